# What is given on the command line, by the environment or in config.mk is read before anything is
# made: a name that is not there, a number that is none, a path that make cannot read and, on the
# command line, a variable that nobody reads are refused in a sentence (make/given.py).

# By this name a module speaks that a rule runs.
export DECKSMITH_GOAL := $(firstword $(MAKECMDGOALS))
space := $(subst ,, )
comma := ,
first_python = $(shell for p in $2; do $$p -c 'import sys, venv; sys.exit(sys.version_info < $1)' \
  2> /dev/null && echo $$p && break; done)
FOUND_PYTHON := $(or $(call first_python,(3$(comma)11),python3 python3.14 python3.13 python3.12 python3.11),python3)

CHOICES := $(shell sed -n 's/^\([A-Z_]*\) ?=.*/\1/p' make/*.mk)
TYPED := $(foreach v,$(.VARIABLES),$(if $(filter command,$(origin $v)),$v))
FOUND := $(foreach v,$(CHOICES),$(if $(filter environment file,$(origin $v)),$(if $($v),$v)))
quoted = '$(subst ','\'',$1=$($1))'
ifneq ($(strip $(TYPED) $(FOUND)),)
REFUSED := $(shell said=$$($(or $(PYTHON),$(FOUND_PYTHON)) make/given.py \
  $(foreach v,$(TYPED),$(call quoted,$v)) -- $(foreach v,$(FOUND),$(call quoted,$v)) \
  2> /dev/null || :); [ -z "$$said" ] || { echo "$$said" >&2; echo 1; })
$(if $(REFUSED),$(error Nothing was made))
endif
