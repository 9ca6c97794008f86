# Bench: whether anything else got worse, or better: general benchmarks, one after another or for a training
# loop that asks.

# Benchmarks (assets/benchmarks) or a group with its own gate (assets/groups): "aime25:8 gsm8k:1"
# asks each question of the first eight times.
BENCH ?= arithmetic instructions humaneval
# What regressions holds MODEL against. Of sft and serve: another base than the recipe's, a name of
# the Hub or a folder, with the recipe of its family (assets/recipes/families.toml).
BASE ?= base
# A judge of assets/models.toml in place of the benchmarks' own.
JUDGE ?=
# A file of worked examples, which are shown before each question.
SHOTS ?=
# wandb or mlflow: where the metrics of each benchmark are logged too.
TRACK ?=
# The largest loss that regressions lets stay open, in place of each benchmark's own.
MARGIN ?=

# reference has decks and nothing else; slidevbench is the pipeline of Measure.
BENCHES := $(foreach model,$(filter-out reference,$(MODEL)),$(subst :,@,$(patsubst %,bench/$(model)/%,$(filter-out slidevbench%,$(BENCH)))))
DECK_BENCH := $(if $(filter slidevbench%,$(BENCH)),$(RUNS:%=%/summary.json))
BENCH_TOOLS := $(if $(filter local,$(MODEL)),.venv/.local assets/engine/node_modules/.done)
BENCH_GROUP := $(patsubst assets/groups/%.toml,--group %,$(firstword $(wildcard $(BENCH:%=assets/groups/%.toml))))

##@ Bench
.PHONY: bench bench-merge regressions $(BENCHES)
## bench: general benchmarks of MODEL: asked, graded, summarized
bench: $(BENCHES) $(DECK_BENCH)
$(BENCHES): run-check run-tools .venv/.bench $(BENCH_TOOLS)
	LIMIT='$(LIMIT)' SHARD='$(SHARD)' SHOTS='$(SHOTS)' JOBS='$(JOBS)' JUDGE='$(JUDGE)' BUDGET='$(BUDGET)' \
	  TRACK='$(TRACK)' make/bench $(subst @,:,$(notdir $@)) $(word 2,$(subst /, ,$@))

### bench-merge: the parts of MODEL's benchmarks into one each
bench-merge: .venv/.python
	for path in $(subst @,:,$(BENCHES)); do
	  IFS=/ read -r _ model each <<< "$$path"
	  MERGE=1 SHARD= make/bench "$$each" "$$model"
	done

### regressions: what MODEL does worse than BASE; passes if more than MARGIN is ruled out
regressions: .venv/.python
	bin/bench-compare $(MARGIN:%=--margin %) $(BENCH_GROUP) $(patsubst %,results/bench/%,$(firstword $(MODEL)) $(BASE))

GUARDED = $(firstword $(filter-out reference,$(MODEL))) $(BASE)
.PHONY: guard
## guard: what MODEL does worse than BASE: cost, asking, one sentence and a status
guard: run-check run-tools .venv/.bench $(BENCH_TOOLS)
	bin/bench-plan guard
	BUDGET='$(BUDGET)' bin/within tools python3 make/bench_asked.py costs guard $(GUARDED)
	$(MAKE) --no-print-directory bench MODEL='$(GUARDED)' BENCH=guard
	bin/bench-compare $(MARGIN:%=--margin %) --group guard $(GUARDED:%=results/bench/%)

.PHONY: eval-serve
## eval-serve: evaluations for somebody else's training loop, until Ctrl-C
eval-serve: run-tools .venv/.bench
	exec bin/eval-serve $(FLAGS)
