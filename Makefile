# The methods section of a decksmith experiment, read from top to bottom: baseline, corpus,
# training, serving, comparison. `make` prints help. What can be chosen on the command line or in
# config.mk stands at the head of each chapter in make/, and in docs/variables.md.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-builtin-rules --no-print-directory
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.ONESHELL:
# What is being made goes to stderr, a line each, since some rules print their result. V=1 shows the
# recipes.
SAY = echo "$1" >&2
ifndef V
.SILENT:
endif

-include config.mk
include make/given.mk
include make/measure.mk make/train.mk make/setup.mk make/bench.mk make/people.mk
include make/rehearse.mk make/maintain.mk

##@ Measure
.PHONY: baseline
## baseline: decks by MODEL: asked for, rendered, judged, scored, compared, reported
baseline: $(REPORT)/index.html
	$(COMPARE)
# While decks come in, the report shows those that there are.
baseline $(REPORT)/index.html: SHOW = $(if $(filter -j%,$(MAKEFLAGS)),,| bin/run-report --during $(@D) $(BY_PROTOCOL) --out $(REPORT) $(RUNS))

# 1. Prompts: of PROMPTS those that the protocol takes, LIMIT of them, this part of SHARD.
$(PARTS:%=%/prompts.jsonl): %/prompts.jsonl: $(PROMPTS_FROM) %/$(FOR_RUN) | run-tools
	$(call SAY,$(@D): prompts of $(PROTOCOL)$(LIMIT:%=$(comma) %))
	$(TIDY)
	$(PROMPTS_TAKEN) > $@.$$$$.tmp
	mv $@.$$$$.tmp $@

# 2. Agreement: what is lacking and what the replies will cost, said once for all models.
.PHONY: agreed
agreed: $(PARTS:%=%/prompts.jsonl) | run-tools
	bin/within tools python3 -m decksmith.measure.results.cost_prompt $(BY_PROTOCOL) $(BUDGET:%=--budget %) $(CLAIMS:%=--claims %) $(PARTS)

# 3. The pipeline. Each stage keeps what it has finished in the run's journal, so that a rerun
# repeats nothing. Temporary names hold the shell's number: a make that was cut off may still be at
# work beside the next.
$(PLAIN_PARTS:%=%/scores.jsonl): results/runs/%/scores.jsonl: results/runs/%/prompts.jsonl $(CODE) \
  | run-tools agreed
	$(BEGIN)
	bin/chat-generate --model $(call model_of,$*) $(ASK) < $< |
	  bin/deck-parse --run $(@D) |
	  bin/deck-illustrate $(BY_PROTOCOL) --run $(@D) |
	  bin/deck-render $(BY_PROTOCOL) --run $(@D) |
	  bin/deck-judge $(BY_PROTOCOL) --run $(@D) $(BUDGET:%=--budget %) |
	  bin/deck-scan --run $(@D) | $(READ_CLAIMS)
	  bin/deck-score $(BY_PROTOCOL) $(SHOW) > $@.$$$$.tmp
	$(END)

# The same under a condition: of several drafts one is chosen, and a draft is revised.
$(CONDITION_PARTS:%=%/scores.jsonl): results/runs/%/scores.jsonl: results/runs/%/prompts.jsonl $(CODE) \
  | run-tools agreed
	$(BEGIN)
	by_model="--model $(call model_of,$*)" under="--condition $(call condition_of,$*)"
	bin/chat-generate $$by_model $$under $(ASK) < $< |
	  bin/deck-parse --run $(@D) |
	  bin/deck-illustrate $(BY_PROTOCOL) --run $(@D) |
	  bin/deck-render $(BY_PROTOCOL) --run $(@D) |
	  bin/deck-choose $$under --run $(@D) |
	  bin/deck-revise $$by_model $$under $(ASK) |
	  bin/deck-judge $(BY_PROTOCOL) --run $(@D) $(BUDGET:%=--budget %) |
	  bin/deck-scan --run $(@D) | $(READ_CLAIMS)
	  bin/deck-score $(BY_PROTOCOL) |
	  bin/deck-choose $$under --run $(@D) $(SHOW) > $@.$$$$.tmp
	$(END)

# 4. Means and intervals of a run; then plots and page of all.
$(RUNS:%=%/summary.json): %/summary.json: %/scores.jsonl
	$(call SAY,$*: means and intervals)
	$(TIDY)
	bin/run-summarize $(BY_PROTOCOL) --run $(@D) < $< > $@.$$$$.tmp
	mv $@.$$$$.tmp $@

$(REPORT)/index.html: $(RUNS:%=%/summary.json) assets/models.toml $(REPORT_PAGE) $(REPORT)/$(FOR_REPORT)
	$(call SAY,$(@D): plots and page of $(RUN_NAMES))
	$(call SWEEP,$(@D))
	bin/run-report $(REPORT_FLAGS) $(RUNS) > /dev/null

##@ Train
.PHONY: corpus
## corpus: N seeds, drafts by AUTHOR, checked, packed, held apart, split
corpus: run-tools .venv/.synth .venv/.local assets/engine/node_modules/.done
	mkdir -p $(CORPUS)
	if [ $(TASK) = edit ]; then
	  bin/record-sample --where '.sets | index("open")' < data/edits/edits.jsonl |
	    bin/within tools python3 make/edits.py --train > $(CORPUS)/edits.jsonl.tmp
	  mv $(CORPUS)/edits.jsonl.tmp $(CORPUS)/edits.jsonl
	  echo "$$(wc -l < $(CORPUS)/edits.jsonl) rows; train on them: make sft DATA=$(CORPUS)/edits.jsonl" && exit
	fi
	$(call SAY,$(CORPUS): $(N) seeds and their drafts)
	bin/seed-sample --n $(N) --model $(SEED_MODEL) --run $(CORPUS) |
	  TOTAL=$(N) bin/seed-author --author '$(AUTHOR)' --run $(CORPUS) $(TEMPLATE:%=--template %) $(AUTHOR_FLAGS) \
	  > $(CORPUS)/drafts.jsonl.tmp
	mv $(CORPUS)/drafts.jsonl.tmp $(CORPUS)/drafts.jsonl
	bin/draft-check --run $(CORPUS) < $(CORPUS)/drafts.jsonl |
	  bin/draft-pack --run $(CORPUS) |
	  bin/chat-overlap --run $(CORPUS) --against data/prompts.jsonl > $(CORPUS)/chat.jsonl.tmp
	mv $(CORPUS)/chat.jsonl.tmp $(CORPUS)/chat.jsonl
	if [ -s $(CORPUS)/chat.jsonl ]; then bin/chat-split --share $(SHARE) --out data/chat < $(CORPUS)/chat.jsonl
	else echo "No draft of $(N) was kept: the reasons stand above. data/chat is as it was."; fi

.PHONY: sft dpo rft
## sft: an adapter from DATA by RECIPE: checked, trained, exported
## dpo: the adapter of FROM, trained on by the preference pairs in DATA
### rft: the same as sft, on the best of many answers in DATA
sft dpo rft: .venv/.corpus $(SFT_TOOLS)
	$(call SAY,$(SFT): $(RECIPE) $(OTHER) on $(DATA))
	$(SITE)
	$(NEED_$(TRAINER))
	$(CONFIGURE)
	bin/sft-check --run $(SFT) --preview $(PREVIEW) $(ELSEWHERE) > $(SFT)/check.json $(OR_LACKING)
	$(TRAIN_$(TRAINER))
	$(EXPORT)

.PHONY: rl
## rl: GRPO of FROM on the prompts in DATA by rewards of rendered decks; DRY=1
rl: .venv/.corpus $(RL_TOOLS)
	$(call SAY,$(SFT): $(RECIPE) on $(DATA))
	$(SITE)
	$(NEED_$(TRAINER))
	$(CONFIGURE)
	$(LEARN_$(TRAINER))
	$(EXPORT)

.PHONY: serve finetuned
## serve: base and ADAPTER from one server, until Ctrl-C; SBATCH=sbatch: as jobs
serve: .venv/.python $(SERVE_TOOLS)
	$(SITE)
	$(if $(SBATCH),$(NEED_$(ENGINE)))
	$(if $(MODELS),$(SERVE_MODELS),$(SERVE_ONE))

## finetuned: the same protocol for PAIR against what is served, and the difference
finetuned: run-tools
	bin/model-wait --timeout 60 > /dev/null
	$(MAKE) results/reports/finetuned/index.html MODEL="$(PAIR)" NAME=finetuned
	bin/run-compare --model-only $(PAIR:%=results/runs/%/$(SETTING))

.PHONY: help help-all
HELP_FILES := Makefile $(patsubst %,make/%.mk,measure train rehearse bench people setup maintain)
# A reader that has seen enough ends them by SIGPIPE, which is no error.
help:
	(make/help $(HELP_FILES)
	printf '  %-8s = %s\n' MODEL '$(MODEL)' PROTOCOL '$(PROTOCOL)' LIMIT '$(or $(LIMIT),all)' \
	  JOBS '$(or $(JOBS),by model)' NAME '$(NAME)') || [ $$? = 141 ]
### help-all: every target, also those for maintainers
help-all:
	make/help --all $(HELP_FILES) || [ $$? = 141 ]
