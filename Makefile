# The methods section of a decksmith experiment: one rule per file, read from top to bottom.
# `make` prints help.
# What to run is chosen here, in config.mk, or on the command line: make baseline MODEL="smol
# gpt-5.4" PROTOCOL=offline LIMIT=30

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-builtin-rules --no-print-directory
# What is being made goes to stderr, a line each, since some rules print their result.
SAY = echo "$1" >&2
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.ONESHELL:
# V=1 shows the recipes.
ifndef V
.SILENT:
endif

-include config.mk
# Who is asked: models by their names in assets/models.toml. The embedded model and its fine-tune
# (data/adapter). `reference` is none: decks that people wrote for the first twelve prompts
# (data/reference), read from a folder.
MODEL ?= smol smol-sft $(REFERENCE)
# Under which conditions (assets/conditions): CONDITION="plain cheatsheet best-of-4" runs each model
# under each; plain is the absence of one, and the only one of `reference`.
CONDITION ?= plain
# The template that decks follow (docs/templates.md), in demo, baseline and corpus:
# TEMPLATE=data/templates/company.md. A run under it is called after it, like one under a condition.
TEMPLATE ?=
TEMPLATED := $(basename $(notdir $(TEMPLATE)))
export DECKSMITH_TEMPLATES := $(or $(patsubst %/,%,$(dir $(TEMPLATE))),$(DECKSMITH_TEMPLATES),data/templates)
UNDERS := $(if $(TEMPLATED),$(foreach c,$(CONDITION),$(if $(filter plain,$c),$(TEMPLATED),$c+$(TEMPLATED))),$(CONDITION))
# What they are asked, and by which judge and weights (assets/protocols); the prompts, of which a
# protocol takes some. PROMPTS=mine.txt: your own, a request a line (docs/prompts.md).
PROTOCOL ?= offline
PROMPTS ?= data/prompts.jsonl
# How many, drawn over all domains; a larger number keeps those of a smaller one. The embedded
# pair, which writes on your CPU, takes a dozen unless told otherwise.
LIMIT ?= $(if $(filter file,$(origin MODEL)),12)
FIRST := 1 2 3 4 5 6 7 8 9 10 11 12
REFERENCE := $(if $(and $(filter offline,$(PROTOCOL)),$(filter data/prompts.jsonl,$(PROMPTS)),$(filter \
  $(FIRST),$(LIMIT))),reference)
# How fast: requests in flight (else the registry's number), and the second of four parts (2/4),
# in a folder of its own, for an
# array of jobs; make merge joins the parts.
JOBS ?=
SHARD ?=
# What it may cost: BUDGET=5 stops a model's replies, and its judge, at 5 USD each. Without it a
# terminal is asked before anything is spent; YES=1 agrees elsewhere.
BUDGET ?=
# Of prompts with documents: a model that reads which claims of a deck they support (docs/prompts.md).
CLAIMS ?=
# Where it is shown: the report's folder in results/reports, and the training run whose loss it
# shows. CHAINED=1: MODEL are the steps of a chain (MODEL="smol smol-sft smol-grpo"), each held
# against the one before it and against the first.
NAME ?= $(UNDER)
TRAINING ?=
CHAINED ?=
# Where it runs: in images (on), on this machine (off), or as there are (auto).
IMAGES ?= auto
export IMAGES

# The protocol's file, and that which it extends.
FIXED := $(wildcard assets/protocols/$(PROTOCOL).toml)
FIXED += $(patsubst %,assets/protocols/%.toml,$(shell sed -n 's/^extends = "\(.*\)"$$/\1/p' \
  $(FIXED) 2> /dev/null))
# A run lies by its model, its protocol and, where they are not ours, its prompts: none overwrites another.
UNDER := $(PROTOCOL)$(patsubst %,@%,$(basename $(notdir $(filter-out data/prompts.jsonl,$(PROMPTS)))))
NAMED := $(foreach m,$(MODEL),$(foreach c,$(if $(filter reference,$m),plain,$(UNDERS)),$m$(patsubst %,+%,$(filter-out plain,$c))))
RUNS := $(NAMED:%=results/runs/%/$(UNDER))
# Of a run's path: its name, and of that the model and the condition.
model_of = $(firstword $(subst +, ,$(firstword $(subst /, ,$1))))
condition_of = $(patsubst $(model_of)+%,%,$(filter $(model_of)+%,$(firstword $(subst /, ,$1))))
OWN := $(if $(filter-out data/prompts.jsonl,$(PROMPTS)),bin/prompt-check --protocol $(PROTOCOL) < $(PROMPTS) |)
PARTS := $(RUNS:%=%$(if $(SHARD),/shard-$(subst /,-of-,$(SHARD))))
REPORT := results/reports/$(NAME)
# This site's settings (slurm/site.env); what stands in the environment is stronger.
SITE = if [ -f slurm/site.env ]; then own=$$(export -p); set +eu -a; . slurm/site.env; set -eu +a; eval "$$own"; fi
CODE := $(shell find lib/decksmith -name "*.py") $(wildcard assets/renderer/*.mjs assets/prompts/* assets/conditions/* $(TEMPLATE:%=$(DECKSMITH_TEMPLATES)/*)) assets/renderer/package-lock.json assets/models.toml
# The registry's names: its table, the models that the embedded engine runs, and this checkout's own entries.
NAMES = $(shell sed -n 's/^\["*\([^]."]*[^]"]*\)"*\].*/\1/p' $1 2> /dev/null)
GGUF := $(call NAMES,assets/gguf.toml)
REGISTRY := assets/models.toml $(wildcard $(or $(DECKSMITH_MODELS),data/models)/*.toml)
KNOWN := $(call NAMES,$(REGISTRY)) $(GGUF)
# A run is redone for another LIMIT, a report for other models: they stand in the name of an empty
# file in its folder.
space := $(subst ,, )
comma := ,
FOR_RUN := .for-$(or $(LIMIT),all)
FOR_REPORT := .for-$(subst $(space),+,$(strip $(NAMED)))$(CHAINED:%=-chained)

##@ Measure
define COMPARED
bin/run-compare $(CHAINED:%=--chain) --page $(REPORT)/compare.md $(RUNS)
echo "Every table: $(REPORT)/compare.md"
echo "Open the report: file://$(abspath $(REPORT))/index.html"
echo "Next: make vote (people decide), make plan EFFECT=0.3 (how many prompts find 0.3), make runs"
endef
.PHONY: baseline
## baseline: decks by MODEL: asked for, rendered, judged, scored, compared, reported
baseline: $(REPORT)/index.html
	$(COMPARED)

$(REPORT)/index.html: $(RUNS:%=%/summary.json) assets/models.toml \
  $(wildcard assets/web/report.*) assets/web/element.js assets/web/diff.js $(REPORT)/$(FOR_REPORT)
	$(call SAY,$(@D): plots and page of $(NAMED))
	bin/run-report $(CHAINED:%=--chain) --out $(@D) $(TRAINING:%=--training %) $(RUNS) > /dev/null

$(RUNS:%=%/summary.json): %/summary.json: %/scores.jsonl
	$(call SAY,$*: means and intervals)
	bin/run-summarize --protocol $(PROTOCOL) --run $(@D) < $< > $@.$$$$.tmp
	mv $@.$$$$.tmp $@

# The pipeline. Each stage keeps what it has finished in $(@D)/journal, so that a rerun repeats
# nothing. Temporary names are the
# shell's own ($$$$): a make that was cut off may still be at work beside the next.
$(PARTS:%=%/scores.jsonl): results/runs/%/scores.jsonl: results/runs/%/prompts.jsonl $(CODE) | \
  run-tools agreed
	export TOTAL=$$(wc -l < $<)
	export LIVE=$(@D)/.live
	echo "# $(subst results/runs/,,$(@D))" > $$LIVE
	bin/chat-generate --model $(call model_of,$*) $(patsubst %,--condition %,$(call condition_of,$*)) --protocol $(PROTOCOL) --run $(@D) $(JOBS:%=--jobs %) $(BUDGET:%=--budget %) < $< |
	  bin/deck-parse --run $(@D) |
	  bin/deck-illustrate --protocol $(PROTOCOL) --run $(@D) |
	  bin/deck-render --protocol $(PROTOCOL) --run $(@D) |
	  $(if $(call condition_of,$*),bin/deck-choose --condition $(call condition_of,$*) --run $(@D) |
	  bin/deck-revise --model $(call model_of,$*) --condition $(call condition_of,$*) --protocol $(PROTOCOL) --run $(@D) $(JOBS:%=--jobs %) $(BUDGET:%=--budget %) |)
	  bin/deck-judge --protocol $(PROTOCOL) --run $(@D) $(BUDGET:%=--budget %) |
	  bin/deck-scan --run $(@D) |
	  $(CLAIMS:%=bin/deck-judge --claims % --run $(@D) $(BUDGET:%=--budget %) |)
	  bin/deck-score --protocol $(PROTOCOL) $(if $(call condition_of,$*),| bin/deck-choose --condition $(call condition_of,$*) --run $(@D)) > $@.$$$$.tmp
	mv $@.$$$$.tmp $@
	rm -f $(@D)/summary.json  # of the scores before
	# A deck without a score through no fault of its model's is done again by the next make: older than its prompts.
	! grep -qE '"kind":"(renderer|judge|infra)"' $@ || touch -t 197001020000 $@

.PHONY: model
## model: fetch MODEL=qwen3.5-4b for the embedded engine; alone, say what there is
model: named .venv/.hub
	$(if $(OLLAMA),bin/model-fetch --ollama '$(OLLAMA)',
	$(if $(filter file,$(origin MODEL)),bin/model-fetch --list
	echo "Fetch one: make model MODEL=$(firstword $(GGUF)). One that Ollama has: make model OLLAMA=NAME",
	for name in $(MODEL); do bin/model-fetch $$name > /dev/null; done))

# Five ways of asking one model, or another model's: CONDITION="plain xray-of-4 revise".
.PHONY: conditions
## conditions: would a better prompt, more samples or a revision have done as well?
conditions:
	$(MAKE) baseline MODEL="$(if $(filter file,$(origin MODEL)),smol-sft,$(MODEL))" \
	  CONDITION="$(if $(filter file,$(origin CONDITION)),plain cheatsheet few-shot best-of-4 revise cheatsheet-best-of-4,$(CONDITION))" \
	  LIMIT=$(LIMIT) NAME=$(or $(filter-out $(UNDER),$(NAME)),conditions)

# Once for all of MODEL: what is lacking, and what that costs.
.PHONY: agreed
agreed: $(PARTS:%=%/prompts.jsonl) | run-tools
	bin/within tools python3 -m decksmith.results.spending --protocol $(PROTOCOL) $(BUDGET:%=--budget %) $(PARTS)

results/runs/reference/$(UNDER)/scores.jsonl: $(wildcard data/reference/*.md)

$(PARTS:%=%/prompts.jsonl): %/prompts.jsonl: $(PROMPTS) $(if $(OWN),$(wildcard data/sources/*)) $(FIXED) %/$(FOR_RUN) | run-tools
	$(call SAY,$(@D): prompts of $(PROTOCOL)$(LIMIT:%=$(comma) %))
	$(OWN) bin/record-sample --protocol $(PROTOCOL) $(if $(LIMIT),--shuffle --limit $(LIMIT)) $(SHARD:%=--shard %) $(if $(OWN),,< $<) > $@.$$$$.tmp
	mv $@.$$$$.tmp $@

$(PARTS:%=%/$(FOR_RUN)) $(REPORT)/$(FOR_REPORT): | named
	mkdir -p $(@D)
	rm -f $(@D)/.for-*
	touch $@

# A name that is not there is said before anything is made, fetched or asked.
.PHONY: named
named:
	models="$(strip $(KNOWN)) " conditions="plain $(patsubst assets/conditions/%.toml,%,$(wildcard assets/conditions/*.toml)) $(patsubst $(DECKSMITH_TEMPLATES)/%.md,%,$(wildcard $(DECKSMITH_TEMPLATES)/*.md)) "
	protocols=$$(cd assets/protocols; ls *.toml | sed 's/\.toml$$//' | tr '\n' ' ')
	for name in $(MODEL); do
	  [[ " $$models" == *" $$name "* ]] || { echo "There is no model $$name in assets/models.toml or assets/gguf.toml. Type MODEL=NAME with one of: $$models" >&2; exit 78; }
	  # Before a first set-up, which takes minutes; later the runs that have all their replies need no key.
	  key=$$(awk -v name="$$name" '/^\[/ {head = $$1; gsub(/[]["]/, "", head)} head == name && $$1 == "key_env" {gsub(/"/, "", $$3); print $$3}' $(REGISTRY))
	  [ -e .venv/.python ] || [ -z "$$key" ] || [ -n "$${!key:-}" ] || grep -qs "^$$key=" .env ||
	    { echo "$$name needs a key: set $$key in the environment or in .env" >&2; exit 78; }
	done
	for name in $(subst +, ,$(UNDERS)); do
	  [[ " $$conditions" == *" $$name "* ]] || { echo "There is no condition $$name in assets/conditions. Type CONDITION=NAME with one of: $$conditions" >&2; exit 78; }
	done
	[[ " $$protocols" == *" $(PROTOCOL) "* ]] || { echo "There is no protocol $(PROTOCOL) in assets/protocols. Type PROTOCOL=NAME with one of: $$protocols" >&2; exit 78; }

$(filter-out data/prompts.jsonl,$(PROMPTS)):
	echo "there is no $@; PROMPTS= names a file with a request a line (docs/prompts.md)" >&2
	exit 69

.PHONY: shard merge
## shard: part SHARD=2/4 of MODEL's runs, for an array of jobs
shard: $(PARTS:%=%/scores.jsonl)

## merge: the parts of MODEL's runs into one each; names what is missing
merge: $(RUNS:%=%/prompts.jsonl)
	for run in $(RUNS); do
	  $(call SAY,$$run: its parts become one)
	  bin/run-merge --protocol $(PROTOCOL) --run $$run < $$run/prompts.jsonl > $$run/scores.jsonl.$$$$.tmp
	  mv $$run/scores.jsonl.$$$$.tmp $$run/scores.jsonl
	done

# What follows reads finished runs, and never asks a model.
.PHONY: runs report
## runs: the finished runs, with their decks, scores and cost
runs: .venv/.python
	PYTHONPATH=lib .venv/bin/python3 -m decksmith.results.layout

## report: the report of MODEL's finished runs again
report: .venv/.python
	bin/run-report $(CHAINED:%=--chain) --out $(REPORT) $(TRAINING:%=--training %) $(RUNS) > /dev/null
	$(COMPARED)

.PHONY: plan register
# EFFECT=0.3: the designs that find it.
## plan: what a comparison like that of MODEL's runs can detect, and its cost
plan: .venv/.python
	bin/run-plan $(EFFECT:%=--effect %) $(RUNS)

## register: write down before the first reply how MODEL's runs will be compared
register: $(RUNS:%=%/prompts.jsonl)
	bin/run-plan --register --protocol $(PROTOCOL) $(RUNS)

.PHONY: capsule replay
## capsule: one tar of RUN, from which every number can be derived again
capsule: .venv/.python
	bin/run-pack --out results/capsules $(or $(RUN),$(RUNS))

## replay: derive every number of CAPSULE again, offline; names what differs
replay: run-tools
	IMAGES=off bin/run-replay $(CAPSULE)

.PHONY: published-prompts
## published-prompts: fetch the published test split (needs the network)
published-prompts: .venv/.hub
	bin/bench-prepare published > data/published.jsonl.tmp
	mv data/published.jsonl.tmp data/published.jsonl

##@ Make a corpus
# How many seeds; who writes the drafts: llm:NAME of assets/models.toml, or a command
# (bin/seed-author --help).
N ?= 6
AUTHOR ?= llm:smol
# The share of each theme that is held out for validation; who raises it for a corpus that is there removes data/chat/split.tsv first.
SHARE ?= 0.05
SEED_MODEL ?= $(if $(filter llm:%,$(AUTHOR)),$(AUTHOR:llm:%=%),smol)
CORPUS := results/corpus

.PHONY: corpus push
## corpus: N seeds, drafts by AUTHOR, checked, packed, held apart, split
corpus: run-tools .venv/.synth .venv/.local assets/engine/node_modules/.done
	$(call SAY,$(CORPUS): $(N) seeds and their drafts)
	mkdir -p $(CORPUS)
	bin/seed-sample --n $(N) --model $(SEED_MODEL) --run $(CORPUS) |
	  TOTAL=$(N) bin/seed-author --author '$(AUTHOR)' --run $(CORPUS) $(TEMPLATE:%=--template %) $(AUTHOR_FLAGS) > $(CORPUS)/drafts.jsonl.tmp
	mv $(CORPUS)/drafts.jsonl.tmp $(CORPUS)/drafts.jsonl
	bin/draft-check --run $(CORPUS) < $(CORPUS)/drafts.jsonl |
	  bin/draft-pack --run $(CORPUS) |
	  bin/chat-overlap --run $(CORPUS) --against data/prompts.jsonl > $(CORPUS)/chat.jsonl.tmp
	mv $(CORPUS)/chat.jsonl.tmp $(CORPUS)/chat.jsonl
	if [ -s $(CORPUS)/chat.jsonl ]; then bin/chat-split --share $(SHARE) --out data/chat < $(CORPUS)/chat.jsonl
	else echo "No draft of $(N) was kept: the reasons stand above. data/chat is as it was."; fi

# With PUSH=1 HF_TOKEN is needed; the repository is private unless PUBLIC=1.
## push: data/chat against REPO=owner/name on the Hub; PUSH=1 sends it
push: $(if $(REPO),.venv/.hub)
	[ -n "$(REPO)" ] || { echo "REPO says where: make push REPO=owner/name" >&2; exit 2; }
	bin/hub-push data/chat --repo $(REPO) $(if $(PUSH),--push) $(if $(PUBLIC),--public)

##@ Train
# The recipe (assets/recipes), the run's folder, the chat rows, and who trains: nemo-rl through
# Slurm, or trl on this machine. BASE=Qwen/Qwen3-8B: another model than the recipe's, with the
# recipe of its family (assets/recipes/families.toml).
OTHER := $(if $(filter command environment,$(origin BASE)),$(BASE))
RECIPE ?= $(if $(filter trl,$(TRAINER)),smol-lora,$(if $(OTHER),,nemotron-nano-lora))
SFT ?= results/sft/$(if $(OTHER),$(subst .,_,$(notdir $(OTHER))),$(RECIPE))
DATA ?= data/chat
TRAINER ?= nemo-rl
# SET="sft.max_num_epochs=3 ..": over the recipe; STEPS=2: a trial. HOST=login[:folder]: submit
# there, with FLAGS="--time=08:00:00 ..";
# DRY=1: only say what would be submitted.
SET ?=
STEPS ?=
HOST ?=
FLAGS ?=
DRY ?=

# How each TRAINER trains what lies in $(SFT).
TRAIN_trl = bin/sft-train --run $(SFT)
TRAIN_nemo-rl = bin/job-submit slurm/sft.sbatch --run $(SFT) $(if $(DRY),--dry-run,--wait) $(HOST:%=--host %) -- $(FLAGS)
TRAINERS = $(sort $(patsubst TRAIN_%,%,$(filter TRAIN_%,$(.VARIABLES))))

ALGORITHM = $(if $(findstring -grpo,$(RECIPE)),grpo,$(if $(findstring -dpo,$(RECIPE)),dpo,sft))

# FROM: the run of SFT that dpo and rl go on from. DATA is then what chat-prefer chose of many
# answers, pairs or with --best the best of them, split by chat-split; of rl, prompts (docs/rl.md).
FROM ?= results/sft/$(if $(filter trl,$(TRAINER)),smol-lora,nemotron-nano-lora)
dpo: RECIPE = $(if $(filter trl,$(TRAINER)),smol-dpo,nemotron-nano-dpo)
dpo: DATA = data/pairs
dpo: SFT = results/dpo/$(notdir $(FROM))
dpo rl: START = $(if $(filter trl,$(TRAINER)),start.adapter=$(abspath $(FROM))/adapter)
dpo rl: OTHER = $(if $(filter trl,$(TRAINER)),,$(abspath $(FROM))/merged)
dpo: $(if $(filter trl,$(TRAINER)),,$(FROM)/merged/config.json)
rft: DATA = data/best
rft: SFT = results/rft/$(RECIPE)

.PHONY: sft dpo rft known
known:
	$(if $(TRAIN_$(TRAINER)),,echo "There is no trainer $(TRAINER). Type TRAINER=NAME with one of: $(TRAINERS)" >&2; exit 2)

## sft: an adapter from DATA by RECIPE: checked, trained, exported
## dpo: the adapter of FROM, trained on by the preference pairs in DATA
## rft: the same as sft, on the best of many answers in DATA
sft dpo rft: known .venv/.corpus $(if $(filter trl,$(TRAINER)),.venv/.train) $(if \
  $(filter smol%,$(RECIPE)),.venv/.train .venv/.local)
	$(call SAY,$(SFT): $(RECIPE) $(OTHER) on $(DATA))
	$(SITE)
	made=$$(bin/sft-config $(RECIPE:%=--recipe %) $(OTHER:%=--base %) --data $(DATA) --run $(SFT) $(STEPS:%=$(ALGORITHM).max_num_steps=%) $(START) $(SET))
	echo "$$made"
	# What the adapter touches is counted where the trainer's own code is; without its image it is assumed.
	rm -f $(SFT)/model.json
	$(if $(filter trl,$(TRAINER)),,if [ -f containers/train.sif ]; then
	  model=$$(sed 's/.*"model": "\([^"]*\)".*/\1/' <<< "$$made")
	  bin/within train python3 -m decksmith.training.count "$$model" > $(SFT)/model.json || rm $(SFT)/model.json
	fi)
	bin/sft-check --run $(SFT) --preview 1 $(if $(HOST),--elsewhere) > $(SFT)/check.json$(if $(DRY), || [ $$? = 69 ])
	$(TRAIN_$(TRAINER))
	$(if $(DRY),,bin/model-export --run $(SFT))

# PLANTED: answers of the model of FROM with their rewards; PACE: decks a minute of all reward
# servers together (make bench-reward); both for rl-check. FLAGS=": --nodes=4 --cpus-per-task=32"
# gives the reward servers four CPU nodes.
PLANTED ?= results/planted.jsonl
PACE ?= 60
rl: RECIPE = $(if $(filter trl,$(TRAINER)),smol-grpo,nemotron-nano-grpo)
rl: DATA = data/rl
rl: SFT = results/rl/$(notdir $(FROM))
LEARN_trl = bin/sft-train --run $(SFT)
define LEARN_nemo-rl
bin/rl-check --run $(SFT) --planted $(PLANTED) --pace $(PACE) > $(SFT)/check.json$(if $(DRY), || [ $$? = 69 ])
bin/job-submit slurm/rl.sbatch --run $(SFT) $(if $(DRY),--dry-run,--wait) $(HOST:%=--host %) -- $(FLAGS)
endef
.PHONY: rl
## rl: GRPO of FROM on the prompts in DATA by rewards of rendered decks; DRY=1
rl: known .venv/.corpus $(if $(filter trl,$(TRAINER)),run-tools .venv/.train .venv/.local assets/engine/node_modules/.done,$(FROM)/merged/config.json)
	$(call SAY,$(SFT): $(RECIPE) on $(DATA))
	$(SITE)
	bin/sft-config --recipe $(RECIPE) $(OTHER:%=--base %) --data $(DATA) --run $(SFT) $(STEPS:%=grpo.max_num_steps=%) $(START) $(SET)
	$(LEARN_$(TRAINER))
	$(if $(DRY),,bin/model-export --run $(SFT))

$(FROM)/merged/config.json: | .venv/.corpus
	bin/model-export --run $(FROM) --merge > /dev/null

.PHONY: smoke
## smoke: what works on this cluster, in ten minutes on one node
smoke: run-tools .venv/.corpus .venv/.train .venv/.local assets/engine/node_modules/.done
	$(SITE)
	mkdir -p results/smoke
	# sbatch --wait says the number at once; the rows are shown as they come.
	number=$$(mktemp)
	trap 'rm "$$number"; kill $$job 2> /dev/null || :' EXIT  # the waiting, not the job
	$(or $(SBATCH),sbatch) --parsable --wait --output=results/smoke/%j.out $(FLAGS) slurm/smoke.sbatch --recipe $(RECIPE) > "$$number" & job=$$!
	until [ -s "$$number" ] || ! kill -0 $$job 2> /dev/null; do sleep 0.2; done
	log=results/smoke/$$(sed 's/;.*//' "$$number").out
	[ ! -s "$$number" ] || { echo "job $$(cat "$$number"), log $$log; Ctrl-C leaves it running" >&2; tail --quiet -n +1 --pid=$$job -F $$log 2> /dev/null || :; }
	wait $$job
	[ -e $$log ] || { echo "the job ended before it began" >&2; exit 75; }

##@ Serve and compare
# ADAPTER: a PEFT folder. ENGINE=local: the embedded model. BASE=folder: where its base lies. SBATCH=
# sbatch: as a job, of SERVERS replicas, on GPU=h100 (h200, ..). SERVE="--tensor-parallel-size 2":
# more for vllm serve; the job asks for as many GPUs.
ADAPTER ?= $(error ADAPTER=results/sft/RUN/adapter says what to serve)
ENGINE ?= vllm
SBATCH ?=
SERVE ?=
GPU ?=
PAIR ?= base tuned

SERVED = --adapter $(ADAPTER) --engine $(ENGINE) $(OTHER:%=--base %) $(if $(SERVE),-- $(SERVE))

.PHONY: serve finetuned
## serve: base and ADAPTER from one server, until Ctrl-C; SBATCH=sbatch: as jobs
serve: .venv/.python $(if $(filter local,$(ENGINE)),.venv/.local assets/engine/node_modules/.done,.venv/.hub)
	$(SITE)
	$(if $(SBATCH),gpus=$$(bin/model-serve --check $(GPU:%=--gpu %) $(SERVED)))
	$(if $(filter vllm,$(ENGINE)),bin/model-fetch $(or $(OTHER),$(ADAPTER)) > /dev/null)
	$(if $(SBATCH),mkdir -p results/serve && $(SBATCH) --output=results/serve/%j.out --gres=gpu:$$gpus $(SERVERS:%=--array=1-%) slurm/serve.sbatch,exec bin/model-serve) $(SERVED)
	$(call SAY,Its log is results/serve/JOB.out. Then: bin/model-wait --timeout 3600 --job JOB && make finetuned. To end it: scancel --batch --signal=USR1 JOB)

## finetuned: the same protocol for PAIR against what is served, and the difference
finetuned: run-tools
	bin/model-wait --timeout 60 > /dev/null
	$(MAKE) results/reports/finetuned/index.html MODEL="$(PAIR)" NAME=finetuned
	bin/run-compare --model-only $(PAIR:%=results/runs/%/$(UNDER))

##@ Nothing else broke
# General benchmarks (assets/benchmarks): "aime25:8 gsm8k:1" asks each question of the first eight
# times. What MODEL is held against: BASE.
# JUDGE: an entry of assets/models.toml in place of the benchmarks' own judge. SHOTS=worked.jsonl:
# with worked examples (bench-prompt --help). BENCH=guard: a group (assets/groups) with its own gate.
# smol-outline and reference are left out: they have decks and nothing else.
BENCH ?= arithmetic instructions humaneval
BASE ?= base
JUDGE ?=
SHOTS ?=
# RULES=own or official, where NeMo Gym has a verifier, too: docs/graders.md
RULES ?=
# How much a score is the wording's: WORDINGS=5 SEEDS=3 asks each question in five, three times each.
WORDINGS ?=
SEEDS ?=
# DRAFTS=8: each reply is the best of eight as the model sees it, or another one, CHOOSER.
DRAFTS ?=
CHOOSER ?=
# The largest loss that `regressions` lets stay open; else each benchmark's own (0.02 where its
# file names none).
MARGIN ?=
BENCHES := $(foreach model,$(filter-out smol-outline reference,$(MODEL)),$(subst :,@,$(patsubst %,bench/$(model)/%,$(filter-out slidevbench%,$(BENCH)))))

.PHONY: bench bench-merge regressions $(BENCHES)
## bench: general benchmarks of MODEL: asked, graded, summarized
bench: $(BENCHES) $(if $(filter slidevbench%,$(BENCH)),$(RUNS:%=%/summary.json))
$(BENCHES): run-tools .venv/.bench $(if $(filter local,$(MODEL)),.venv/.local \
  assets/engine/node_modules/.done)
	LIMIT='$(LIMIT)' SHARD='$(SHARD)' SHOTS='$(SHOTS)' JOBS='$(JOBS)' JUDGE='$(JUDGE)' RULES='$(RULES)' \
	  WORDINGS='$(WORDINGS)' SEEDS='$(SEEDS)' DRAFTS='$(DRAFTS)' CHOOSER='$(CHOOSER)' \
	  make/bench $(subst @,:,$(notdir $@)) $(word 2,$(subst /, ,$@))

## bench-merge: the parts of MODEL's benchmarks into one each
bench-merge: .venv/.python
	for path in $(subst @,:,$(BENCHES)); do
	  IFS=/ read -r _ model each <<< "$$path"
	  MERGE=1 SHARD= WORDINGS='$(WORDINGS)' DRAFTS='$(DRAFTS)' CHOOSER='$(CHOOSER)' \
	    make/bench "$$each" "$$model"
	done

## regressions: what MODEL does worse than BASE; passes if more than MARGIN is ruled out
regressions: .venv/.python
	bin/bench-compare $(MARGIN:%=--margin %) $(patsubst assets/groups/%.toml,--group %,$(firstword \
	  $(wildcard $(BENCH:%=assets/groups/%.toml)))) $(patsubst %,results/bench/%,$(firstword $(MODEL)) $(BASE))

.PHONY: eval-serve curve
## eval-serve: evaluations for somebody else's training loop, until Ctrl-C
eval-serve: run-tools .venv/.bench
	exec bin/eval-serve $(FLAGS)

.PHONY: reward-serve
## reward-serve: rewards of decks for somebody else's training loop, until Ctrl-C
reward-serve: run-tools
	exec bin/reward-serve $(if $(filter command environment,$(origin PROMPTS)),--prompts $(PROMPTS)) $(FLAGS)

# What ckpt-watch does for a checkpoint.
define CURVE_POINT
bin/model-export --run "$$CKPT_RUN" > /dev/null
export DECKSMITH_SERVE=$$CKPT_RUN/serve
bin/model-serve --engine $(ENGINE) --adapter "$$CKPT_RUN/adapter" & server=$$!
trap 'kill $$server && wait $$server || true' EXIT
url=$$(bin/model-wait --pid $$server | sed 's/.*"url": "\([^"]*\)".*/\1/')
bin/eval-request run --run "$(SFT)" --rollout $$CKPT_STEP --weight-version $$CKPT_ID --model \
  tuned --base-url "$$url" $(BENCH:%=--bench %)
endef
# The command is no make of its own: make has one status for all that may happen.
curve: export POINT = $(CURVE_POINT)
.PHONY: trained
trained:
	[ -d $(SFT) ] || { echo "There is no training run $(SFT). Name one, make curve SFT=results/sft/RUN, or train one: make sft" >&2; exit 69; }

# ONCE=1: the checkpoints that are there, without waiting for more.
## curve: BENCH over the checkpoints of SFT, also while it trains
curve: trained run-tools .venv/.bench $(if $(filter local,$(ENGINE)),.venv/.local .venv/.train \
  assets/engine/node_modules/.done)
	bin/eval-serve $(if $(filter command environment,$(origin LIMIT)),--limit $(LIMIT)) & server=$$!
	trap 'kill -INT $$server 2> /dev/null && wait $$server || true' EXIT
	bin/within tools python3 -m decksmith.evalserver.trainer results/eval/server.json 60 > /dev/null  # until it listens
	bin/ckpt-watch $(if $(ONCE),--once) $(SFT) -- bash -euo pipefail -c "$$POINT"

include make/people.mk make/rehearse.mk make/check.mk make/setup.mk

.PHONY: help
help:
	(awk -F': ' '/^##@ / { printf "\n%s\n", substr($$0, 5) }
	  /^## / { sub(/^## /, ""); printf "  make %-18s %s\n", $$1, substr($$0, length($$1) + 3) }' \
	  Makefile make/people.mk make/rehearse.mk make/check.mk make/setup.mk
	printf '\nChosen now (change it on the command line or in config.mk)\n'
	printf '  %-8s = %s\n' MODEL '$(MODEL)' PROTOCOL '$(PROTOCOL)' LIMIT '$(or $(LIMIT),all)' \
	  JOBS '$(or $(JOBS),by model)' NAME '$(NAME)') || [ $$? = 141 ]  # a reader that has seen enough
