# Measure: who is asked what, and what may be said of it. The pipelines stand in the Makefile.

# The protocol edit asks three editors of a script beside the embedded model and its fine-tune, for more. Two at once: whoever
# writes longest begins, and the editors follow each other, since they share what is drawn.
EDITS := $(filter edit%,$(PROTOCOL))
ifdef EDITS
  ifeq ($(origin MODEL),undefined)
    MAKEFLAGS += -j2
  endif
  MODEL ?= smol-sft edit-perfect edit-rewrite edit-nothing smol
  LIMIT ?= $(if $(filter file,$(origin MODEL)),24)
endif
# Who is asked: models by their names in assets/models.toml, or as openai/NAME, ollama/NAME, an address
# (docs/models.md); and `reference`, which is none: decks that people wrote for the first twelve prompts.
MODEL ?= $(REFERENCE) smol smol-sft
# Under which conditions (assets/conditions); plain is the absence of one.
CONDITION ?= plain
# The template that decks follow, a file of data/templates, in demo, baseline and corpus.
TEMPLATE ?=
# By which judge and weights (assets/protocols).
PROTOCOL ?= offline
# The prompts: requests of your own are text, markdown, a table, JSON, or a folder of briefs.
PROMPTS ?= data/prompts.jsonl
# What of PROMPTS is a request: a column's name or number, or line, paragraph, heading, item.
REQUEST ?=
# How many prompts, drawn over all domains; a larger number keeps those of a smaller one.
LIMIT ?= $(if $(filter file,$(origin MODEL)),6)
# Requests in flight, in place of the registry's number.
JOBS ?=
# The second of four parts is 2/4, for an array of jobs; `make merge` joins the parts.
SHARD ?=
# USD at which a model's replies, and its judge, stop. YES=1 agrees to a price where nobody is asked.
BUDGET ?=
# Sample with this seed in place of the protocol's.
SEED ?=
# Of floor: runs of the same model made otherwise, WITH="engine=results/runs/.."; WITH="evening=now" asks once more.
WITH ?=
# 1: what damaged lines of a run's journals held is asked, and paid for, again.
REPAIR ?=
# A model that reads which claims of a deck its prompt's documents support.
CLAIMS ?=
# 0: the report is not opened, also where this terminal has a desktop.
OPEN ?=
# The report's folder in results/reports.
NAME ?= $(SETTING)
# The training run whose loss the report shows.
TRAINING ?=
# The difference that `make plan` looks for: of a share (0.05: 5 points of the checks), or in marks of 1 to 5.
EFFECT ?=
# Logs of other tools, one or two, that `make plan` plans from in place of MODEL's runs.
LOGS ?=
# The run folder that `make capsule` packs, in place of MODEL's.
RUN ?=
# The capsule that `make replay` derives again.
CAPSULE ?=

export OPEN REPAIR
FIRST := 1 2 3 4 5 6 7 8 9 10 11 12
# Edits have prompts of their own, and editors of a script (docs/edit.md).
OUR_PROMPTS = $(if $(EDITS),data/edits/edits.jsonl,$(PROMPTS))
REFERENCE := $(if $(and $(filter offline,$(PROTOCOL)),$(filter data/prompts.jsonl,$(PROMPTS)),$(filter \
  $(FIRST),$(LIMIT))),reference)
OWN_PROMPTS := $(patsubst %/,%,$(filter-out data/prompts.jsonl,$(PROMPTS)))
# Where they lie, for an image that has to show it.
export DECKSMITH_PROMPTS := $(abspath $(OWN_PROMPTS))

# A run lies in results/runs/MODEL[+CONDITION]/PROTOCOL[@FILE-HASH], by the content of PROMPTS: none
# overwrites another. One under a template is called after it.
TEMPLATE_NAME := $(basename $(notdir $(TEMPLATE)))
export DECKSMITH_TEMPLATES := $(or $(patsubst %/,%,$(dir $(TEMPLATE))),$(DECKSMITH_TEMPLATES),data/templates)
templated = $(if $(filter plain,$1),$(TEMPLATE_NAME),$1+$(TEMPLATE_NAME))
CONDITIONS := $(if $(TEMPLATE_NAME),$(foreach c,$(CONDITION),$(call templated,$c)),$(CONDITION))
conditions_of = $(if $(filter reference edit-%,$1),plain,$(CONDITIONS))
RUN_NAMES := $(foreach m,$(MODEL),$(foreach c,$(call conditions_of,$m),$m$(patsubst %,+%,$(filter-out plain,$c))))
SETTING := $(PROTOCOL)$(if $(OWN_PROMPTS),@$(shell $(or $(PYTHON),$(FOUND_PYTHON)) make/given.py \
  --content $(OWN_PROMPTS) '$(REQUEST)'))
RUNS := $(RUN_NAMES:%=results/runs/%/$(SETTING))
PARTS := $(RUNS:%=%$(if $(SHARD),/shard-$(subst /,-of-,$(SHARD))))
CONDITION_PARTS := $(foreach run,$(PARTS),$(if $(findstring +,$(word 3,$(subst /, ,$(run)))),$(run)))
PLAIN_PARTS := $(filter-out $(CONDITION_PARTS),$(PARTS))
REPORT := results/reports/$(NAME)
# Of a run's path below results/runs: the model, and what stands behind the first plus.
model_of = $(firstword $(subst +, ,$(firstword $(subst /, ,$1))))
condition_of = $(patsubst $(model_of)+%,%,$(firstword $(subst /, ,$1)))
# A run is redone for another LIMIT, a report for other models: they stand in the name of an empty
# file in its folder.
FOR_RUN := .for-$(or $(LIMIT),all)
FOR_REPORT := .for-$(subst $(space),+,$(strip $(RUN_NAMES)))

# What the rules of the Makefile are made of.
BY_PROTOCOL := --protocol $(PROTOCOL)
ASK = $(BY_PROTOCOL) --run $(@D) $(SEED:%=--seed %) $(JOBS:%=--jobs %) $(BUDGET:%=--budget %)
READ_CLAIMS = $(CLAIMS:%=bin/deck-judge --claims % --run $(@D) $(BUDGET:%=--budget %) |)
CODE := $(wildcard lib/decksmith/*/*.py lib/decksmith/*/*/*.py assets/renderer/*.mjs assets/prompts/* assets/conditions/* \
  $(TEMPLATE:%=$(DECKSMITH_TEMPLATES)/*)) assets/renderer/package-lock.json assets/models.toml
PROMPTS_FROM := $(or $(OWN_PROMPTS),$(OUR_PROMPTS)) $(wildcard assets/protocols/*.toml $(EDITS:%=data/edits/decks/*.md)) $(if $(OWN_PROMPTS),$(wildcard data/sources/*))
SAMPLE := bin/record-sample $(BY_PROTOCOL) $(LIMIT:%=--shuffle --limit %) $(SHARD:%=--shard %)
# What is read of PROMPTS, in the one way in which `make baseline` takes them.
PROMPTS_READ := bin/prompt-check $(BY_PROTOCOL) --request '$(REQUEST)' $(or $(OWN_PROMPTS),$(PROMPTS))
EDITS_READ := bin/within tools python3 make/edits.py --scripted
PROMPTS_TAKEN := $(if $(OWN_PROMPTS),$(PROMPTS_READ) | $(SAMPLE),$(SAMPLE) < $(OUR_PROMPTS) $(EDITS:%=| $(EDITS_READ)))
REPORT_PAGE := $(wildcard assets/web/report.*) assets/web/element.js assets/web/diff.js
REPORT_FLAGS = --out $(REPORT) $(TRAINING:%=--training %)
# What was cut off, by Ctrl-C too, is of no use. What kill -9 left bears the number of its process,
# which is gone.
define SWEEP
for left in $$(find $(sort $1) -name '*.tmp'); do
  [[ $$left =~ \.([0-9]+)(-[a-z0-9]+)?\.tmp$$ ]] && kill -0 $${BASH_REMATCH[1]} 2> /dev/null || rm -rf $$left
done
endef
define TIDY
$(call SWEEP,$(@D))
trap 'rm -f $@.$$$$.tmp' EXIT
endef
define BEGIN
$(TIDY)
export TOTAL=$$(wc -l < $<) LIVE=$(@D)/.live
echo "# $(subst results/runs/,,$(@D))" > $$LIVE || {
  echo "$(@D) cannot be written. Make room on its disk or make the folder yours, then type the same command again: what is finished is kept." >&2; exit 75; }
endef
# A deck without a score through no fault of its model's is done again by the next make: its scores
# are made older than its prompts. The summary was of the scores before.
define END
mv $@.$$$$.tmp $@
rm -f $(@D)/summary.json
! grep -qE '"kind":"(renderer|judge|infra)"' $@ || touch -t 197001020000 $@
endef
define COMPARE
$(call SWEEP,$(REPORT) $(RUNS))
bin/run-compare --page $(REPORT)/compare.md $(RUNS)
echo "Every table: $(REPORT)/compare.md"
echo "Open the report: file://$(abspath $(REPORT))/index.html"
echo "Next: make vote (people decide), make runs,"
echo "      make plan EFFECT=0.05 (how many prompts find 5 points)"
endef

results/runs/reference/$(SETTING)/scores.jsonl: $(wildcard data/reference/*.md)
$(foreach m,$(MODEL),$(eval results/runs/$m/$(SETTING)/scores.jsonl: $(wildcard data/decks/$m/*.md)))

$(PARTS:%=%/$(FOR_RUN)) $(REPORT)/$(FOR_REPORT): | run-check
	mkdir -p $(@D)
	rm -f $(@D)/.for-*
	touch $@

# A model that nobody can ask is said before anything is made, fetched or asked, and a key that is
# not set before a first set-up, which takes minutes. Other names: make/given.mk.
.PHONY: run-check
run-check:
	$(PYTHON) make/given.py --asked $(MODEL)

$(OWN_PROMPTS):
	echo "there is no $@; PROMPTS= names a file of requests, or a folder of briefs (docs/bring-your-own.md)" >&2
	exit 69

##@ Measure
.PHONY: model
## model: fetch MODEL=qwen3.5-4b for the embedded engine; alone, say what there is
model: run-check .venv/.hub
	$(MODEL_FETCH)
MODEL_LIST = bin/model-fetch --list; echo "Fetch one: make model MODEL=NAME. One that Ollama has is asked as MODEL=ollama/NAME"
MODEL_NAMED = $(foreach name,$(MODEL),bin/model-fetch $(name) > /dev/null;)
MODEL_FETCH = $(if $(filter file,$(origin MODEL)),$(MODEL_LIST),$(MODEL_NAMED))

.PHONY: prompts-check
## prompts-check: what is measured of each request of PROMPTS=mine.txt, to be corrected
prompts-check: $(or $(OWN_PROMPTS),$(PROMPTS)) | .venv/.python
	read=$$($(PROMPTS_READ)) || exit
	bin/within tools python3 make/asked_table.py $(or $(OWN_PROMPTS),$(PROMPTS)) <<< "$$read"

LEARNT = $(DECKSMITH_TEMPLATES)/$(basename $(notdir $(FROM))).md
.PHONY: template
### template: learn TEMPLATE= from FROM=company.pptx or a page, and draw both
template: $(if $(filter command environment,$(origin FROM)),run-tools)
	$(if $(filter command environment,$(origin FROM)),,echo 'Name a file: make template FROM=company.pptx' >&2; exit 78)
	if [ -e $(LEARNT) ] && ! grep -q 'read by bin/template-learn' $(LEARNT); then
	  echo '$(LEARNT) was written by hand: give $(FROM) another name' >&2; exit 78
	fi
	bin/template-learn $(FROM) > $(LEARNT).tmp || { rm -f $(LEARNT).tmp; exit 65; }
	mv $(LEARNT).tmp $(LEARNT)
	bin/within render python3 make/template_picture.py $(FROM) $(LEARNT) results/template/$(basename $(notdir $(FROM))).png

# Five ways of asking one model, or another model's: CONDITION="plain xray-of-4 revise".
ALL_CONDITIONS := plain cheatsheet few-shot best-of-4 revise cheatsheet-best-of-4
.PHONY: conditions
## conditions: would a better prompt, more samples or a revision have done as well?
conditions:
	$(MAKE) baseline MODEL="$(if $(filter file,$(origin MODEL)),smol-sft,$(MODEL))" \
	  CONDITION="$(if $(filter file,$(origin CONDITION)),$(ALL_CONDITIONS),$(CONDITION))" \
	  LIMIT=$(LIMIT) NAME=$(or $(filter-out $(SETTING),$(NAME)),conditions)

.PHONY: shard merge
### shard: part SHARD=2/4 of MODEL's runs, for an array of jobs
shard: $(PARTS:%=%/scores.jsonl)

### merge: the parts of MODEL's runs into one each; names what is missing
merge: $(RUNS:%=%/prompts.jsonl)
	for run in $(RUNS); do
	  $(call SAY,$$run: its parts become one)
	  bin/run-merge $(BY_PROTOCOL) --run $$run < $$run/prompts.jsonl > $$run/scores.jsonl.$$$$.tmp
	  mv $$run/scores.jsonl.$$$$.tmp $$run/scores.jsonl
	done

# What follows reads finished runs, and never asks a model.
.PHONY: runs report plan register capsule replay
## runs: the finished runs, with their decks, scores and cost
runs: .venv/.python
	.venv/bin/python3 make/run_table.py

## report: the report of MODEL's finished runs again
report: .venv/.python
	bin/run-report $(REPORT_FLAGS) $(RUNS) > /dev/null
	$(COMPARE)

## plan: what a comparison like that of MODEL's runs can detect; EFFECT=0.05
plan: .venv/.python
	$(if $(LOGS),bin/bench-plan,bin/run-plan) $(EFFECT:%=--effect %) $(or $(LOGS),$(RUNS))

.PHONY: floor
## floor: how far two runs of MODEL are apart by the machine alone
floor: export PROTOCOL := $(PROTOCOL)
floor: export SETTING := $(SETTING)
floor: export PROMPTS := $(PROMPTS)
floor: export LIMIT = $(call given,LIMIT,12)
floor: export REPLY = $(call given,REPLY,)
floor: run-tools .venv/.local assets/engine/node_modules/.done
	PYTHONPATH=lib .venv/bin/python3 make/floor.py $(call given,COPIES,results/floor-$(call given,MODEL,smol-sft)) $(call given,MODEL,smol-sft) $(WITH)

OFFICE := results/edits/office
OFFICE_EDITORS := office-perfect office-rewrite office-nothing
$(OFFICE)/%.pptx: data/edits/decks/%.md | run-tools
	bin/deck-build $< --format pptx --run $(@D) > /dev/null
	mv $(@D)/data-edits-decks-$*/build/deck.pptx $@

.PHONY: edits-office
### edits-office: edits of PowerPoint files by three editors of a script
edits-office: $(OFFICE)/ferry.pptx $(OFFICE)/biblio.pptx
	bin/within render python3 make/edits.py --scripted < data/edits/office.jsonl > $(OFFICE)/prompts.jsonl
	$(foreach e,$(OFFICE_EDITORS),bin/deck-import --as $e --prompts $(OFFICE)/prompts.jsonl results/edits/$(e:office-%=%)/x*.pptx > /dev/null;)
	$(MAKE) baseline PROTOCOL=edit PROMPTS=$(OFFICE)/prompts.jsonl MODEL="$(OFFICE_EDITORS)" NAME=edits-office

### register: write down before the first reply how MODEL's runs will be compared
register: $(RUNS:%=%/prompts.jsonl)
	bin/run-plan --register $(BY_PROTOCOL) $(RUNS)

### capsule: one tar of RUN, from which every number can be derived again
capsule: .venv/.python
	bin/run-pack --out results/capsules $(or $(RUN),$(RUNS))

### replay: derive every number of CAPSULE again, offline; names what differs
replay: run-tools
	IMAGES=off bin/run-replay $(CAPSULE)

.PHONY: published-prompts
### published-prompts: fetch the published test split (needs the network)
published-prompts: .venv/.hub
	bin/bench-prepare published > data/published.jsonl.tmp
	mv data/published.jsonl.tmp data/published.jsonl
