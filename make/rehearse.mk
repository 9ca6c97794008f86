# The whole experiment once, in miniature, on two cores.

##@ Rehearse
# The whole experiment once, in miniature: the embedded model, REHEARSE core prompts, and as its
# corpus the drafts of data/gold that
# fit into its answer. The seconds were measured on two cores; results/rehearsal/phases.jsonl has
# what they took here.
REHEARSE ?= 24
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
	PYTHONPATH=lib .venv/bin/python3 -m decksmith.core.rehearsal $(R)/phases.jsonl \
	  'set-up|130|setup .venv/.train $(if $(filter vllm,$(REHEARSED)),.venv-vllm/.done)' \
	  $(if $(filter local,$(REHEARSED)),'the base model writes|400|results/runs/smol/$(UNDER)/summary.json MODEL=smol LIMIT=$(REHEARSE)') \
	  'data/gold becomes a corpus|150|$(R)/chat/report.json' \
	  'an adapter is trained|700|results/sft/rehearsal/adapter/manifest.json' \
	  '$(if $(filter local,$(REHEARSED)),the tuned model writes|600,base and tuned model write|1800)|rehearsal-tuned ENGINE=$(REHEARSED)' \
	  'the comparison|15|rehearsal-report ENGINE=$(REHEARSED)'

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
	$(MAKE) sft TRAINER=trl SFT=results/sft/rehearsal DATA=$(R)/chat

rehearsal-tuned:
	bin/model-serve --engine $(REHEARSED) --adapter results/sft/rehearsal/adapter $(if $(filter vllm,$(REHEARSED)),--base data/models/smol -- --max-model-len 2048) & server=$$!
	trap 'kill $$server 2> /dev/null || :; wait $$server || :' EXIT
	bin/model-wait --pid $$server > /dev/null
	$(MAKE) $(REHEARSE_SERVED:%=results/runs/%/$(UNDER)/summary.json) MODEL="$(REHEARSE_SERVED)" LIMIT=$(REHEARSE) $(if $(filter vllm,$(REHEARSED)),JOBS=$(or $(JOBS),$(REHEARSE)))

rehearsal-report:
	$(MAKE) results/reports/rehearsal/index.html MODEL="$(REHEARSE_BASE) smol-tuned" LIMIT=$(REHEARSE) NAME=rehearsal TRAINING=results/sft/rehearsal
	bin/run-compare --model-only $(patsubst %,results/runs/%/$(UNDER),$(REHEARSE_BASE) smol-tuned)
	echo "Open the report: file://$(abspath results/reports/rehearsal/index.html)"

# What `smol-sft` answers with is committed, so that `make baseline` needs no training.
.PHONY: adapter
## adapter: data/adapter trained again, as the rehearsal does
adapter: results/sft/rehearsal/adapter/manifest.json
	cp $(<D)/adapter.gguf $(<D)/manifest.json data/adapter/
