# Train: a corpus, an adapter on it, and a server for both. Corpus, sft, rl and serve stand in the
# Makefile.

# How many seeds.
N ?= 6
# Who writes the drafts: llm:NAME of assets/models.toml, or a command (bin/seed-author --help).
AUTHOR ?= llm:smol
# More for seed-author.
AUTHOR_FLAGS ?=
# Who writes the seeds' topics.
SEED_MODEL ?= $(if $(filter llm:%,$(AUTHOR)),$(AUTHOR:llm:%=%),smol)
# The share of each theme that is held out for validation. To raise it later, delete
# data/chat/split.tsv.
SHARE ?= 0.05
# Of which task `make corpus` makes rows; edit takes the open half of data/edits, and asks nobody.
TASK ?= deck
# Where `make push` sends data/chat: owner/name on the Hub.
REPO ?=
# 1: really send it; HF_TOKEN is needed.
PUSH ?=
# 1: the repository is public.
PUBLIC ?=
# Who trains: nemo-rl through Slurm, or trl on this machine.
TRAINER ?= nemo-rl
# The chat rows, or for dpo the pairs: a file, a folder, or owner/name on the Hub; for rl prompts.
DATA ?= data/chat
# The recipe (assets/recipes).
RECIPE ?= $(if $(filter trl,$(TRAINER)),smol-lora,$(if $(OTHER),,nemotron-nano-lora))
# The training run's folder.
SFT ?= results/sft/$(if $(OTHER),$(subst .,_,$(notdir $(OTHER))),$(RECIPE))
# The run of SFT that dpo and rl go on from.
FROM ?= results/sft/$(if $(filter trl,$(TRAINER)),smol-lora,nemotron-nano-lora)
# Over the recipe: SET="sft.max_num_epochs=3 ..".
SET ?=
# Steps of a trial.
STEPS ?=
# How many rows sft and dpo show first, as the model will see them.
PREVIEW ?= 1
# Submit there: login[:folder].
HOST ?=
# More for sbatch, eval-serve or reward-serve. FLAGS=": --nodes=4" gives reward servers four nodes.
FLAGS ?=
# 1: only say what would be submitted.
DRY ?=
# Answers of the model of FROM with their rewards, for rl-check.
PLANTED ?= results/planted.jsonl
# Decks a minute of all reward servers together, for rl-check.
PACE ?= 60
# The PEFT folder that is served beside its base; several by names of their own: ADAPTER="a=PATH b=PATH".
ADAPTER ?= $(if $(OTHER)$(MODELS),,$(error ADAPTER=results/sft/RUN/adapter says what to serve, BASE=NAME a model without one))
# With SBATCH: models of the Hub or folders, a server for each, which answers to its last part (of RUN/merged, to RUN's).
MODELS ?=
# What runs beside each server of MODELS, in its job, and at last for all of them: THEN="make baseline".
THEN ?=
# vllm, sglang, trtllm (assets/engines.toml), or local for the embedded model.
ENGINE ?= vllm
# sbatch: serve as a job.
SBATCH ?=
# Replicas of that job.
SERVERS ?=
# The GPU of that job: h100, h200, ..
GPU ?=
# More for vllm serve: SERVE="--tensor-parallel-size 2"; the job asks for as many GPUs.
SERVE ?=
# The two names of what is served, which finetuned compares.
PAIR ?= base tuned
# The folder, and in results/runs the first part of the names, of what shipped and dose make.
COPIES ?= results/$(firstword $(MAKECMDGOALS))
# GGUF files that others made of ADAPTER's model, which shipped asks too: ALSO="unsloth=/path/to/q4.gguf ..".
ALSO ?=
# The most tokens of a deck in shipped, floor and dose; of dose 0: no decks, held-out answers alone.
REPLY ?= 1024
# A GGUF file of another base than the embedded one, whose tokenizer the copies of shipped take.
LIKE ?=
# Of how many rows of DATA the whole of dose is made; else all.
ROWS ?=
# Of dose: which training, from 0, this job does.
POINT ?=
# 1: curve takes the checkpoints that are there, without waiting for more.
ONCE ?=

CORPUS := results/corpus
# BASE where somebody gave it: another base than the recipe's.
OTHER := $(if $(filter command environment,$(origin BASE)),$(BASE))
# This site's settings (slurm/site.env); what stands in the environment is stronger.
SITE = if [ -f slurm/site.env ]; then own=$$(export -p); set +eu -a; . slurm/module.sh; . slurm/site.env; set -eu +a; eval "$$own"; fi

# How each TRAINER trains what lies in $(SFT), and what is needed for it.
TRAIN_trl = bin/sft-train --run $(SFT)
TRAIN_nemo-rl = bin/job-submit slurm/sft.sbatch --run $(SFT) $(SUBMITTED)
LEARN_trl = $(TRAIN_trl)
# What a job wants is said before anything is made.
NEED_nemo-rl = $(if $(HOST),,containers/need train $(OR_LACKING))
NEED_vllm = containers/need serve
define LEARN_nemo-rl
bin/rl-check --run $(SFT) --planted $(PLANTED) --pace $(PACE) > $(SFT)/check.json $(OR_LACKING)
bin/job-submit slurm/rl.sbatch --run $(SFT) $(SUBMITTED)
endef
ON_THIS_MACHINE := $(filter trl,$(TRAINER))
SFT_TOOLS := $(if $(ON_THIS_MACHINE),.venv/.train) $(if $(filter smol%,$(RECIPE)),.venv/.train .venv/.local)
RL_TOOLS := $(if $(ON_THIS_MACHINE),run-tools .venv/.train .venv/.local assets/engine/node_modules/.done,$(FROM)/merged/config.json)
SUBMITTED := $(if $(DRY),--dry-run,--wait) $(HOST:%=--host %) -- $(FLAGS)
ELSEWHERE := $(HOST:%=--elsewhere)
OR_LACKING := $(if $(DRY),|| [ $$? = 69 ])
EXPORT = $(if $(DRY),:,bin/model-export --run $(SFT))
ALGORITHM = $(if $(findstring -grpo,$(RECIPE)),grpo,$(if $(findstring -dpo,$(RECIPE)),dpo,sft))
CONFIGURE = bin/sft-config $(RECIPE:%=--recipe %) $(OTHER:%=--base %) --data $(DATA) --run $(SFT) \
  $(STEPS:%=$(ALGORITHM).max_num_steps=%) $(START) $(SET)

# dpo and rl go on from FROM: from its adapter on this machine, else from the model that it was
# merged into.
dpo rl: START = $(ON_THIS_MACHINE:%=start.adapter=$(abspath $(FROM))/adapter)
dpo rl: OTHER = $(if $(ON_THIS_MACHINE),,$(abspath $(FROM))/merged)
dpo: RECIPE = $(if $(ON_THIS_MACHINE),smol-dpo,nemotron-nano-dpo)
dpo: DATA = data/pairs
dpo: SFT = results/dpo/$(notdir $(FROM))
dpo: $(if $(ON_THIS_MACHINE),,$(FROM)/merged/config.json)
rft: DATA = data/best
rft: SFT = results/rft/$(RECIPE)
rl: RECIPE = $(if $(ON_THIS_MACHINE),smol-grpo,nemotron-nano-grpo)
rl: DATA = data/rl
rl: SFT = results/rl/$(notdir $(FROM))

# How a server starts.
SERVED = $(ADAPTER:%=--adapter %) --engine $(ENGINE) $(OTHER:%=--base %) $(if $(SERVE),-- $(SERVE))
SERVE_TOOLS := $(if $(filter local,$(ENGINE)),.venv/.local assets/engine/node_modules/.done,.venv/.hub)
FETCH = $(if $(filter local,$(ENGINE)),,bin/model-fetch $(or $(OTHER),$(lastword $(subst =, ,$(firstword $(ADAPTER))))) > /dev/null)
ASK_GPUS = --gres=none $$(sed "s/N$$/$$gpus/" <<< "$${GPUS:---gres=gpu:N}")
define SERVE_JOB
mkdir -p results/serve
$(SBATCH) --output=results/serve/%j.out $(ASK_GPUS) $(SERVERS:%=--array=1-%) slurm/serve.sbatch $(SERVED)
$(call SAY,Its log is results/serve/JOB.out. Then: bin/model-wait --timeout 3600 --job JOB && make finetuned$(if $(filter local,$(ENGINE)), PAIR='smol-base smol-tuned'). To end it: scancel --batch --signal=USR1 JOB)
endef
# A server of its own for each of MODELS. With THEN server and run are one job, which ends with the run; the last job
# begins when all have ended well.
define SERVE_MODELS
[ -n "$(SBATCH)" ] || { echo 'servers of MODELS are jobs: SBATCH=sbatch' >&2; exit 2; }
mkdir -p results/serve data/models
jobs= names=
for model in $(MODELS); do
  name=$${model%/merged} name=$${name##*/}
  served="--base $$model --called $$name --engine $(ENGINE)"
  gpus=$$(bin/model-serve --check $(GPU:%=--gpu %) $$served $(if $(SERVE),-- $(SERVE)))
  $(if $(filter local,$(ENGINE)),,bin/model-fetch "$$model" > /dev/null)
  [ -e "data/models/$$name.toml" ] ||
    printf '["%s"]\nlabel = "%s"\nbase_url = "serve:"\nslug = "%s"\nprice = { prompt = 0, completion = 0 }\njobs = 64\ntimeout = 3600\n' \
      "$$name" "$$name" "$$name" > "data/models/$$name.toml"
  job=$$($(SBATCH) --parsable --output=results/serve/%j.out $(ASK_GPUS) \
    $(if $(THEN),slurm/finetuned.sbatch "$$served $(if $(SERVE),-- $(SERVE))" $(THEN) MODEL="$$name" NAME="$$name",slurm/serve.sbatch $$served $(if $(SERVE),-- $(SERVE))))
  echo "job $${job%%;*}: $$model as $$name"
  jobs+=:$${job%%;*} names+="$$name "
done
$(if $(THEN),$(SBATCH) --output=results/serve/%j.out --dependency=afterok$$jobs --kill-on-invalid-dep=yes $(if $(SBATCH),$${CPU_PARTITION:+--partition=$$CPU_PARTITION}) slurm/bench.sbatch $(THEN) MODEL="$$names")
endef
define SERVE_ONE
$(if $(SBATCH),gpus=$$(bin/model-serve --check $(GPU:%=--gpu %) $(SERVED)))
$(FETCH)
$(if $(SBATCH),$(SERVE_JOB),exec bin/model-serve $(SERVED))
endef

##@ Train
.PHONY: data-check
## data-check: DATA as the model of RECIPE will see it, and what is dropped
data-check: .venv/.corpus $(SFT_TOOLS)
	bin/chat-check $(RECIPE:%=--recipe %) $(OTHER:%=--base %) $(DATA) > /dev/null

.PHONY: push
### push: data/chat against REPO=owner/name on the Hub; PUSH=1 sends it
push: $(if $(REPO),.venv/.hub)
	[ -n "$(REPO)" ] || { echo "REPO says where: make push REPO=owner/name" >&2; exit 2; }
	bin/hub-push data/chat --repo $(REPO) $(PUSH:%=--push) $(PUBLIC:%=--public)

$(FROM)/merged/config.json: | .venv/.corpus
	bin/model-export --run $(FROM) --merge > /dev/null

.PHONY: site
## site: ask Slurm what this cluster is; slurm/site.env, written after a yes
site:
	$(SITE)
	$(PYTHON) make/site_env.py

given = $(if $(filter command environment,$(origin $1)),$($1),$2)
THE_ADAPTER = $(call given,ADAPTER,$(COPIES)/adapter)
.PHONY: shipped
## shipped: which copy of ADAPTER may ship: merged, GGUF in 16 to 4 bits, by vLLM
shipped: export PROTOCOL := $(PROTOCOL)
shipped: export SETTING := $(SETTING)
shipped: export PROMPTS := $(PROMPTS)
shipped: export REPLY := $(REPLY)
shipped: export SERVE := $(SERVE)
shipped: export LIMIT = $(call given,LIMIT,12)
shipped: export BENCHES = $(call given,BENCH,)
shipped: run-tools .venv/.train .venv/.local assets/engine/node_modules/.done
	mkdir -p $(COPIES)
	$(PROMPTS_TAKEN) > $(COPIES)/prompts.jsonl
	export PYTHONPATH=lib
	$(if $(call given,ADAPTER,),,[ -f $(COPIES)/adapter/manifest.json ] || .venv/bin/python3 -m decksmith.train.training.adapters data/adapter $(COPIES)/adapter)
	.venv/bin/python3 -m decksmith.train.training.copies $(THE_ADAPTER) $(COPIES)/copies $(LIKE)
	.venv/bin/python3 make/shipped.py $(THE_ADAPTER) $(COPIES) $(ALSO)

.PHONY: dose
## dose: would more data help? trained on 1/8 to all of DATA's rows, and asked
dose: TRAINER = trl
dose: DATA = results/rehearsal/chat
dose: ENGINE = $(if $(filter smol%,$(RECIPE)),local,vllm)
dose: export PROTOCOL := $(PROTOCOL)
dose: export SETTING := $(SETTING)
dose: export PROMPTS := $(PROMPTS)
dose: export REPLY := $(REPLY)
dose: export LIMIT = $(call given,LIMIT,12)
dose: export ROWS := $(ROWS)
dose: export POINT := $(POINT)
dose: export SET := $(SET)
dose: export SBATCH := $(SBATCH)
dose: export FLAGS := $(FLAGS)
dose: run-tools .venv/.train .venv/.local assets/engine/node_modules/.done $(if $(filter command environment,$(origin DATA)),,results/rehearsal/chat/report.json)
	$(SITE)
	mkdir -p $(COPIES)
	export RECIPE=$(RECIPE) TRAINER=$(TRAINER) ENGINE=$(ENGINE) PYTHONPATH=lib
	.venv/bin/python3 make/dose.py $(COPIES) $(DATA)

.PHONY: smoke
## smoke: what works on this cluster, in ten minutes on one node
smoke: run-tools .venv/.corpus .venv/.train .venv/.local assets/engine/node_modules/.done
	$(SITE)
	mkdir -p results/smoke
	# sbatch --wait says the number at once; the rows are shown as they come.
	number=$$(mktemp)
	trap 'rm "$$number" "$$number.said"; kill $$job 2> /dev/null || :' EXIT  # the waiting, not the job
	gres=$$(sinfo --noheader $${SBATCH_PARTITION:+--partition="$$SBATCH_PARTITION"} --format=%G 2> /dev/null | grep -om1 '^gpu:[^,(]*' || :)
	[ -z "$${GPUS-}" ] || gpus=$${GPUS/%N/$${gres##*:}}
	$(or $(SBATCH),sbatch) --parsable --wait --output=results/smoke/%j.out $${gpus-$${gres:+--gres="$$gres"}} $(FLAGS) slurm/smoke.sbatch --recipe $(RECIPE) \
	  > "$$number" 2> "$$number.said" & job=$$!
	until [ -s "$$number" ] || ! kill -0 $$job 2> /dev/null; do sleep 0.2; done
	log=results/smoke/$$(sed 's/;.*//' "$$number").out
	[ ! -s "$$number" ] || { echo "job $$(cat "$$number"), log $$log; Ctrl-C leaves it running" >&2; tail --quiet -n +1 --pid=$$job -F $$log 2> /dev/null || :; }
	wait $$job || { status=$$?; [ -s "$$number" ] || { PYTHONPATH=lib .venv/bin/python3 -m decksmith.core.slurm < "$$number.said"; exit 75; }; exit $$status; }
	[ -e $$log ] || { echo "the job ended before it began" >&2; exit 75; }

EXPERIMENT = SFT='$(SFT)' TRAINER=$(TRAINER) ENGINE=$(ENGINE) RECIPE=$(RECIPE) PAIR='$(PAIR)' SETTING='$(SETTING)' FLAGS='$(FLAGS)' make/experiment
.PHONY: experiment status
## experiment: check, sft, shipped, finetuned, compare: jobs; typed again, what is missing
experiment: run-tools .venv/.corpus $(SFT_TOOLS)
	$(SITE)
	$(NEED_$(TRAINER))
	$(NEED_$(ENGINE))
	$(EXPERIMENT) begun check || $(EXPERIMENT) begun train || $(CONFIGURE)
	$(EXPERIMENT) submit $(MAKEOVERRIDES)

### status: each stage of the experiment: done, under way or to do, and how long yet
status:
	$(SITE)
	$(EXPERIMENT) status

REWARD_PROMPTS := $(if $(filter command environment,$(origin PROMPTS)),--prompts $(PROMPTS))
.PHONY: reward-serve
### reward-serve: rewards of decks for somebody else's training loop, until Ctrl-C
reward-serve: run-tools
	exec bin/reward-serve $(REWARD_PROMPTS) $(FLAGS)

.PHONY: curve trained
trained:
	[ -d $(SFT) ] || { echo "There is no training run $(SFT). Name one, make curve SFT=results/sft/RUN, or train one: make sft" >&2; exit 69; }

# What ckpt-watch does for a checkpoint.
define CURVE_POINT
bin/model-export --run "$$CKPT_RUN" > /dev/null
export DECKSMITH_SERVE=$$CKPT_RUN/serve
bin/model-serve --engine $(ENGINE) --adapter "$$CKPT_RUN/adapter" & server=$$!
trap 'kill $$server && wait $$server || true' EXIT
url=$$(bin/model-wait --address --pid $$server)
bin/eval-request run --run "$(SFT)" --rollout $$CKPT_STEP --weight-version $$CKPT_ID --model \
  tuned --base-url "$$url" $(BENCH:%=--bench %)
endef
# The command is no make of its own: make has one status for all that may happen.
curve: export POINT = $(CURVE_POINT)
CURVE_LIMIT := $(if $(filter command environment,$(origin LIMIT)),--limit $(LIMIT))
CURVE_TOOLS := $(if $(filter local,$(ENGINE)),.venv/.local .venv/.train assets/engine/node_modules/.done)
### curve: BENCH over the checkpoints of SFT, also while it trains
curve: trained run-tools .venv/.bench $(CURVE_TOOLS)
	bin/eval-serve $(CURVE_LIMIT) & server=$$!
	trap 'kill -INT $$server 2> /dev/null && wait $$server || true' EXIT
	bin/within tools python3 -m decksmith.bench.evalserver.eval_client results/eval/server.json 60 > /dev/null  # until it listens
	bin/ckpt-watch $(ONCE:%=--once) $(SFT) -- bash -euo pipefail -c "$$POINT"
