#!/usr/bin/env python3
"""A part of docs/copies.md, from what the last `make shipped`, `make floor` or `make dose` left in results:

tests/copies_page.py shipped results/shipped/shipped.md
"""

import sys
from pathlib import Path

SAID = {
    "shipped": """# Is the copy that ships the one that was measured?

People train in one engine, then merge, quantise and convert. The copy may be another model.

    make shipped ADAPTER=results/sft/RUN/adapter LIMIT=120
    make shipped ADAPTER=.. ALSO="theirs=/path/to/q4.gguf" BENCH=arithmetic

makes four copies: merged, and GGUF in 16, 8 and 4 bits. `copies/NAME.json` says what each was made of. Where vLLM is (`make
.venv-vllm/.done` for a CPU), it serves the adapter and the merged model; GGUF it does not read. Base with adapter, asked by
transformers, is the one that was measured. Every copy reads its greedy replies token by token, then answers by the protocol, and BENCH.

*Parts at*: the median of the token at which a greedy reply becomes another, and in how many. *Checks*: passed, none where a deck
does not render. A copy *may ship* where three losses are ruled out: of 10 points of checks, of 5 points in how likely it finds a
token of the measured replies, and of BENCH's margin. It *is worse* where a loss is shown. Both are corrected over copies and parts
(Holm).

Decks need many prompts for that: 50 where all render, 90 where one of twenty does not, 300 where half do not. The measured copy's
decks say how many, before any copy is looked at. With fewer, decks can show a loss alone, and a copy *may ship, by replies*.
""",
    "floor": """# How much of a difference is noise of the machine?

    make floor MODEL=smol-sft LIMIT=60
    make floor MODEL=tuned WITH="engine=results/runs/OTHER/offline evening=now"

asks one model again: by another seed, with four requests at once, and once more (the embedded engine is started anew). WITH adds runs
of the same model that were made otherwise, by another engine or tensor layout; `evening=now` asks once more now, at another hour or
by a server that you restarted. The floor is kept in `results/floors`, by what the protocol holds fixed, with all sources measured so
far. From then on a headline below it says so, and `make plan` adds it.

*Mean* and *95th percentile* are of the size of the difference between two runs, in points of the checks where both render.
Two seeds can be swapped; what another engine moves, it moves again, and its floor is wider. [Simulation](maintain/floor.md).
""",
    "dose": """# Would more data help?

    make dose DATA=data/chat LIMIT=60
    make dose DATA=data/chat RECIPE=nemotron-nano-lora SBATCH=sbatch FLAGS=--gres=gpu:1
    make dose ROWS=16 REPLY=0          a miniature: no decks, minutes on two cores

trains on 1/8, 1/4, 1/2 and all of the rows: smaller shares lie in larger ones, and rows that ask the same stay together. One curve has
the same epochs, one the same steps. It says what is to come and how long it takes. Each model is asked by the protocol, and reads
answers that none was trained on (with TRAINER=trl). With SBATCH the trainings are an array of jobs.

*Held-out tokens*: how likely a model finds a token of those answers' first 128 (geometric mean). Few rows move it already, where hardly a deck
renders. The gain of a doubling is the slope of the line through log2 of the rows. Its interval is over answers or prompts, and wider
where the trainings lie off the line: each was run once.
""",
}
NOTE = {
    "shipped": " Requests: tests/fixtures/short-requests.csv. No vLLM was there. `alpha-x3` is broken on purpose: its LoRA was merged with three times its scale.",
    "floor": " Requests: tests/fixtures/short-requests.csv.",
    "dose": "",
}


def main():
    name, path = sys.argv[1:]
    found = Path(path).read_text()
    print(SAID[name])
    print(f"Of the last `make {name}` on two busy cores.{NOTE[name]}\n")
    if name == "shipped":  # of the sentences, those about two copies
        lines = found.splitlines()
        asked = [line for line in lines if line.startswith("-")]
        told = [line for line in asked if " q4" in line or " alpha-x3" in line]
        found = "\n".join([*(line for line in lines if not line.startswith("-")), *told])
    print(found)


if __name__ == "__main__":
    main()
