#!/usr/bin/env python3
"""A part of docs/copies.md, from what the last `make shipped`, `make floor` or `make dose` left in results:

tests/copies_page.py shipped results/shipped/shipped.md
"""

import sys
from pathlib import Path

SAID = {
    "shipped": """# Which copy may I ship?

Merging, quantising and converting may make another model.

    make shipped ADAPTER=results/sft/RUN/adapter PROTOCOL=wide LIMIT=120
    make shipped ADAPTER=.. ALSO="theirs=/path/to/q4.gguf" BENCH=arithmetic

makes four copies: merged, and GGUF of 16, 8 and 4 bits. `copies/NAME.json` says what each was made of. vLLM, where it is (`make
.venv-vllm/.done` for a CPU), serves the adapter and the merged model too. Each is held against what was measured, base and adapter
by transformers: it reads that one's greedy replies token by token, then answers by the protocol and BENCH.

* *May ship*: three losses are ruled out. Those are 10 points of checks, 5 points in how likely a token of the measured replies is, and
  BENCH's margin.
* *May ship, by replies*: the same without the decks, which are too few to rule a loss out.
* *Is worse*: a loss is shown. *Not known*: neither.

All at 95 %, corrected over copies and parts (Holm). Decks rule a loss out with 50 prompts where all render, 90 where one of twenty
does not, 300 where half do not. `offline` has 30 prompts of its own, `wide` all.

*Parts at*: the token at which a greedy reply becomes another (median), and in how many. *Checks*: passed, none where a deck does not
render.
""",
    "floor": """# Is my difference the machine's noise?

    make floor MODEL=smol-sft LIMIT=30
    make floor MODEL=tuned WITH="engine=results/runs/OTHER/offline evening=now"

asks one model again: by another seed, with four requests at once, and once more (the embedded engine is started anew). WITH adds runs
of the same model by another engine or tensor layout; `evening=now` asks once more now, at another hour or by a server that you
restarted.

A headline below the largest 95th percentile may be noise alone: from then on it says so, and `make plan` adds the floor. It is kept in
`results/floors` for this protocol, with all sources so far.

*Mean* and *95th percentile*: how far two runs are apart, in points of the checks, over prompts whose decks render in both. Two seeds can be
swapped; what another engine moves, it moves again, so its floor is wider. [Simulation](maintain/floor.md).
""",
    "dose": """# Would more data help?

    make dose DATA=data/chat PROTOCOL=wide LIMIT=60
    make dose DATA=data/chat RECIPE=nemotron-nano-lora SBATCH=sbatch FLAGS=--gres=gpu:1
    make dose ROWS=16 REPLY=0          a miniature: no decks, minutes on two cores

trains on 1/8, 1/4, 1/2 and all of the rows: smaller shares lie in larger ones, and rows that ask the same stay together. One curve has
the same epochs, one the same steps. It says first what is to come and how long it takes. Each model then reads answers that none was
trained on (with TRAINER=trl), and is asked by the protocol. With SBATCH the trainings are an array of jobs. Typed again, it waits for
those of an earlier start.

*Held-out tokens*: how likely a model finds a token of those answers' first 128 (geometric mean). Few rows move it already, where
hardly a deck renders. The gain of a doubling is the slope over log2 of the rows. Its interval is over answers or prompts, and wider
where trainings lie off the line: each was run once.
""",
}
NOTE = {
    "shipped": " Requests: tests/fixtures/short-requests.csv. `alpha-x3` is broken on purpose: its LoRA was merged with three times its scale.",
    "floor": "",
    "dose": "",
}


def main():
    name, path = sys.argv[1:]
    found = Path(path).read_text()
    print(SAID[name])
    print(f"Of the last `make {name}` on two busy cores.{NOTE[name]}\n")
    if name == "shipped":  # of the sentences, those about one copy
        lines = found.splitlines()
        told = [line for line in lines if line.startswith("-") and " q4" in line]
        found = "\n".join([*(line for line in lines if not line.startswith("-")), *told])
    print(found)


if __name__ == "__main__":
    main()
