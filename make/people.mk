# What people look at: a blind vote, a demo.

##@ People
# The study's name in results/blindtest. The embedded base model hardly ever writes a deck, so
# its failures are shown too.
STUDY ?= decks
BLIND := results/blindtest/$(STUDY)
VOTE ?= $(if $(filter file,$(origin MODEL)),--failed)
# The demo's page is on this port, its decks on the next.
PORT ?= 8420

.PHONY: vote tally vote-demo demo
# VOTE="--prompts 50": more pairs (bin/pair-build --help).
## vote: a blind study of MODEL's finished runs and its page, until Ctrl-C
vote: .venv/.python
	bin/pair-build --study $(BLIND) $(VOTE) $(RUNS) > /dev/null
	exec bin/vote-serve --study $(BLIND)

## tally: close STUDY and count it: preferences, agreement, the judge beside people
tally: .venv/.python
	bin/vote-tally --study $(BLIND) --close --table

## vote-demo: 20 simulated people vote; vote-tally has to find the planted truth
vote-demo: .venv/.python
	IMAGES=off .venv/bin/python3 tests/vote_demo.py

## demo: decks in the browser by MODEL, two side by side, until Ctrl-C
demo: .venv/.python assets/renderer/node_modules/.built $(if \
  $(filter local smol smol-sft smol-outline,$(MODEL)),.venv/.local assets/engine/node_modules/.done)
	exec bin/demo-serve $(patsubst %,--model %,$(filter-out reference,$(MODEL))) --port $(PORT) $(TEMPLATE:%=--template %)
