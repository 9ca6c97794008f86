# What is given on the command line, by the environment or in config.mk is read before anything is
# made: a name that is not there, a number that is none, a path that make cannot read and, on the
# command line, a variable that nobody reads are refused in a sentence (make/given.py). A model that
# is said otherwise, openai/NAME or an address, goes on by the name of its entry.

# What may say a model; make would run what a dollar sign begins.
MODELS_IN := MODEL JUDGE CLAIMS SEED_MODEL AUTHOR
dollar := $$
$(foreach v,$(MODELS_IN),$(if $(filter command environment,$(origin $v)),$(if \
  $(findstring $(dollar),$(value $v)),$(error $v holds the sign $(dollar), which make reads as its \
  own: leave it out, or write %24 for it behind the \# of an address))))
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
GIVEN := $(or $(PYTHON),$(FOUND_PYTHON)) make/given.py
REFUSED := $(shell status=0; said=$$($(GIVEN) \
  $(foreach v,$(TYPED),$(call quoted,$v)) -- $(foreach v,$(FOUND),$(call quoted,$v)) \
  2> /dev/null) || status=$$?; [ -z "$$said" ] || echo "$$said" >&2; [ $$status != 78 ] || echo 1)
$(if $(REFUSED),$(error Nothing was made))
named = $(shell $(GIVEN) --named '$(subst ','\'',$($1))' 2> /dev/null)
$(foreach v,$(MODELS_IN),$(if $(findstring /,$(if $(filter AUTHOR,$v),$(filter llm:%,$($v)),$($v))),$(eval \
  $(if $(filter file,$(origin $v)),,override )$v := $(call named,$v))))
endif
