# Rehearse: the whole experiment once, in miniature, on two cores.

##@ Train
# Core prompts that the rehearsal asks for.
REHEARSE ?= 24
# Training prompts that the fine-tune answers in rehearsal-rl.
RL_PROMPTS ?= 20
# How often it answers each.
RL_SAMPLES ?= 4
# Steps of GRPO.
RL_STEPS ?= 6
# Prompts of the comparison in rehearsal-rl.
ACT ?= 12

# The phases of a long target, each "title|usual seconds|what make makes"; a file keeps what each took.
define PHASES
phases() {
  log=$$1; shift; mkdir -p "$${log%/*}"
  for phase; do
    IFS='|' read -r title usual goals <<< "$$phase"
    echo "$@: $$title, usually $$(((usual + 59) / 60)) min" >&2
    begun=$$SECONDS status=0
    make --no-print-directory $$goals || status=$$?
    printf '{"phase": "%s", "seconds": %d, "exit": %d}\n' "$$title" $$((SECONDS - begun)) $$status >> "$$log"
    [ $$status = 0 ] || { echo "$@: stopped in $$title; what is done is kept: run it again" >&2; exit $$status; }
  done
}
phases
endef

# The whole experiment once, in miniature: the embedded model, REHEARSE core prompts, and as its
# corpus the short decks of data/short. The seconds were measured on two cores;
# results/rehearsal/phases.jsonl has what they took here.
R := results/rehearsal
rehearsal%: export DECKSMITH_SERVE := $(CURDIR)/$(R)/serve
# ENGINE=vllm: base and tuned are asked of vLLM's CPU build, together, since one engine's replies
# are not compared with another's (docs/engines.md); all prompts at once. The longest
# prompt and its answer are 1901 tokens, and no step takes more than the context has.
REHEARSED := $(if $(filter command,$(origin ENGINE)),$(ENGINE),local)
ifeq ($(REHEARSED),vllm)
REHEARSE_BASE := smol-base
REHEARSE_SERVED := smol-base smol-tuned
else
REHEARSE_BASE := smol
REHEARSE_SERVED := smol-tuned
endif

.PHONY: rehearsal rehearsal-tuned rehearsal-report
## rehearsal: baseline, corpus, LoRA, serving, comparison: offline, on two cores
rehearsal: .venv/.python
	$(PHASES) $(R)/phases.jsonl \
	  'set-up|130|setup .venv/.train $(if $(filter vllm,$(REHEARSED)),.venv-vllm/.done)' \
	  $(if $(filter local,$(REHEARSED)),'the base model writes|400|results/runs/smol/$(SETTING)/summary.json MODEL=smol LIMIT=$(REHEARSE)') \
	  'data/short becomes a corpus|20|$(R)/chat/report.json' \
	  'an adapter is trained|800|results/sft/rehearsal/adapter/manifest.json' \
	  '$(if $(filter local,$(REHEARSED)),the tuned model writes|600,base and tuned model write|1800)|rehearsal-tuned ENGINE=$(REHEARSED)' \
	  'the comparison|15|rehearsal-report ENGINE=$(REHEARSED)'

$(R)/chat/report.json: data/short/rows.jsonl | run-tools .venv/.train .venv/.local
	mkdir -p $(R)
	PYTHONPATH=lib .venv/bin/python3 -m decksmith.train.training.base_models smol
	bin/chat-overlap --run $(R)/corpus --against data/prompts.jsonl < $< > $(R)/chat.jsonl.tmp
	mv $(R)/chat.jsonl.tmp $(R)/chat.jsonl
	bin/chat-split --share 0.05 --out $(@D) < $(R)/chat.jsonl

results/sft/rehearsal/adapter/manifest.json: $(R)/chat/report.json assets/recipes/smol-lora.yaml
	$(MAKE) sft TRAINER=trl SFT=results/sft/rehearsal DATA=$(R)/chat

rehearsal-tuned:
	bin/model-serve --engine $(REHEARSED) --adapter results/sft/rehearsal/adapter $(if $(filter vllm,$(REHEARSED)),--base data/models/smol -- --max-model-len 2048) & server=$$!
	trap 'kill $$server 2> /dev/null || :; wait $$server || :' EXIT
	bin/model-wait --pid $$server > /dev/null
	$(MAKE) $(REHEARSE_SERVED:%=results/runs/%/$(SETTING)/summary.json) MODEL="$(REHEARSE_SERVED)" LIMIT=$(REHEARSE) $(if $(filter vllm,$(REHEARSED)),JOBS=$(or $(JOBS),$(REHEARSE)))

rehearsal-report:
	$(MAKE) results/reports/rehearsal/index.html MODEL="$(REHEARSE_BASE) smol-tuned" LIMIT=$(REHEARSE) NAME=rehearsal TRAINING=results/sft/rehearsal
	bin/run-compare --model-only $(patsubst %,results/runs/%/$(SETTING),$(REHEARSE_BASE) smol-tuned)
	echo "Open the report: file://$(abspath results/reports/rehearsal/index.html)"

# The second act: the fine-tune of data/adapter (`make adapter` puts the rehearsal's there) answers
# RL_PROMPTS of the training prompts RL_SAMPLES times each; the best answers, pairs of answers, and then
# its own answers train it on. RL_STEPS steps of GRPO; ACT prompts are asked for the comparison, by the checks that the
# reward is made of. Killed anywhere, it goes on. The seconds were measured on two cores with other work beside it
# (docs/rehearsal-rl.md).
A := results/rehearsal-rl
CHAIN := smol smol-sft smol-rft smol-dpo smol-grpo
ON = TRAINER=trl FROM=$(A)/sft
.PHONY: rehearsal-rl rehearsal-rl-report
### rehearsal-rl: from the fine-tune on: best of n, DPO, GRPO by a rendered reward, compared
rehearsal-rl: .venv/.python
	$(PHASES) $(A)/phases.jsonl \
	  'set-up|61|setup .venv/.train' \
	  'base and fine-tune write|200|-j2 rehearsal-rl-before' \
	  'the fine-tune answers the training prompts|1080|$(A)/samples.jsonl' \
	  'it is trained on its best answers|150|$(A)/rft/adapter/manifest.json' \
	  'DPO on pairs of its answers|530|$(A)/dpo/adapter/manifest.json' \
	  'GRPO|1350|$(A)/grpo/adapter/manifest.json' \
	  'the three write|350|-j2 rehearsal-rl-runs' \
	  'the comparison|20|rehearsal-rl-report'

$(A)/sft/adapter/manifest.json: data/adapter/adapter.gguf | .venv/.train .venv/.local
	PYTHONPATH=lib .venv/bin/python3 -m decksmith.train.training.adapters data/adapter $(@D)

$(A)/prompts/report.json: data/training-prompts.jsonl data/prompts.jsonl | run-tools .venv/.corpus .venv/.local
	mkdir -p $(@D)
	bin/chat-overlap --run $(@D) --against data/prompts.jsonl < $< | bin/chat-split --share 0.2 --out $(@D)

# One thread, so that the same answers are written on any number of cores.
$(A)/samples.jsonl: $(A)/prompts/report.json data/adapter/adapter.gguf
	export DECKSMITH_ENGINE_THREADS=1 TOTAL=$$(($(RL_SAMPLES) * $(RL_PROMPTS)))
	bin/record-sample --limit $(RL_PROMPTS) < $(<D)/train.jsonl |
	  bin/chat-generate --model smol-sft --samples $(RL_SAMPLES) --temperature 1 --top-p 1 --seed 1 --run $(A)/samples |
	  bin/deck-parse --run $(A)/samples | bin/deck-illustrate --run $(A)/samples |
	  bin/deck-render --run $(A)/samples | bin/deck-reward --run $(A)/samples > $@.tmp
	mv $@.tmp $@

# sft-check takes no answer with a broken character in it.
$(A)/best/report.json $(A)/pairs/report.json: $(A)/%/report.json: $(A)/samples.jsonl assets/recipes/prefer-smol.toml
	mkdir -p $(@D)
	bin/record-sample --where '.gen.text // "" | contains("\uFFFD") | not' < $< |
	  bin/chat-prefer --run $(A) $(if $(findstring best,$*),--best) --rules assets/recipes/prefer-smol.toml --report $(@D)/chosen.json > $(@D)/rows.jsonl
	bin/chat-split --share 0.2 --out $(@D) < $(@D)/rows.jsonl > /dev/null

$(A)/rft/adapter/manifest.json: $(A)/best/report.json $(A)/sft/adapter/manifest.json
	$(MAKE) rft $(ON) DATA=$(A)/best SFT=$(A)/rft SET="start.adapter=$(abspath $(A))/sft/adapter sft.max_num_epochs=2 policy.optimizer.kwargs.lr=2e-4"

$(A)/dpo/adapter/manifest.json: $(A)/pairs/report.json $(A)/sft/adapter/manifest.json
	$(MAKE) dpo $(ON) DATA=$(A)/pairs SFT=$(A)/dpo SET="dpo.max_num_epochs=2 policy.train_global_batch_size=1"

# Four held-out prompts, twice each, after every third step.
$(A)/grpo/adapter/manifest.json: $(A)/prompts/report.json $(A)/sft/adapter/manifest.json assets/recipes/smol-grpo.yaml
	$(MAKE) rl $(ON) DATA=$(A)/prompts SFT=$(A)/grpo STEPS=$(RL_STEPS) SET="grpo.val_period=3 grpo.val_batches=4"

.PHONY: rehearsal-rl-before rehearsal-rl-runs $(addprefix rehearsal-rl-,rft dpo grpo)
rehearsal-rl-before:
	$(MAKE) $(patsubst %,results/runs/%/$(SETTING)/summary.json,smol smol-sft) MODEL="smol smol-sft" LIMIT=$(ACT)

rehearsal-rl-runs: rehearsal-rl-rft rehearsal-rl-dpo rehearsal-rl-grpo
$(addprefix rehearsal-rl-,rft dpo grpo): rehearsal-rl-%: $(A)/%/adapter/manifest.json
	export DECKSMITH_SERVE=$(CURDIR)/$(A)/serve/$*
	bin/model-serve --engine local --adapter $(<D) & server=$$!
	trap 'kill $$server 2> /dev/null || :; wait $$server || :' EXIT
	bin/model-wait --pid $$server > /dev/null
	$(MAKE) results/runs/smol-$*/$(SETTING)/summary.json MODEL=smol-$* LIMIT=$(ACT)

rehearsal-rl-report:
	$(MAKE) results/reports/rehearsal-rl/index.html MODEL="$(CHAIN)" LIMIT=$(ACT) NAME=rehearsal-rl TRAINING=$(A)/grpo
	bin/run-compare --page results/reports/rehearsal-rl/compare.md $(CHAIN:%=results/runs/%/$(SETTING))
	echo "The curve of GRPO: $(A)/grpo/curve/curve.png"
	echo "Open the report: file://$(abspath results/reports/rehearsal-rl/index.html)"

# What `smol-sft` answers with is committed, so that `make baseline` needs no training.
.PHONY: adapter
### adapter: data/adapter trained again, as the rehearsal does
adapter: results/sft/rehearsal/adapter/manifest.json
	cp $(<D)/adapter.gguf $(<D)/manifest.json data/adapter/
