# People: a blind vote, and a demo.

# The study's folder in results/blindtest.
STUDY ?= decks
# More for pair-build: VOTE="--prompts 50". The embedded base model hardly ever writes a deck, so
# its failures are shown too.
VOTE ?= $(if $(filter file,$(origin MODEL)),--failed)
# The port of demo (8420; its decks are on the next) and of vote (any that is free).
PORT ?=

BLIND := results/blindtest/$(STUDY)
DEMO_MODELS := $(patsubst %,--model %,$(filter-out reference,$(MODEL)))

##@ People
.PHONY: vote tally vote-demo demo
## vote: a blind study of MODEL's finished runs and its page, until Ctrl-C
vote: .venv/.python
	bin/pair-build --study $(BLIND) $(VOTE) $(RUNS) > /dev/null
	exec bin/vote-serve --study $(BLIND) $(PORT:%=--port %)

## tally: close STUDY and count it: preferences, agreement, the judge beside people
tally: .venv/.python
	bin/vote-tally --study $(BLIND) --close --table

### vote-demo: 20 simulated people vote; vote-tally has to find the planted truth
vote-demo: .venv/.python
	IMAGES=off .venv/bin/python3 tests/vote_demo.py

## demo: decks in the browser by MODEL, two side by side, until Ctrl-C
demo: run-check .venv/.python assets/renderer/node_modules/.built $(ENGINE_TOOLS)
	exec bin/demo-serve $(DEMO_MODELS) $(PORT:%=--port %) $(TEMPLATE:%=--template %)
