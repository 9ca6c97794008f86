"""Run the phases of a long make target one after the other and say how far it is and how long it will take.

  python3 -m decksmith.core.rehearsal LOG "title|seconds|make target" ..

`seconds` is what the phase took where it was measured (two cores). The estimate scales it by what the phases that were really
run have taken here; a phase that Make finds done costs nothing and says nothing about speed. LOG keeps what each phase took.
"""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path


def left(typical: Sequence[float], took: Sequence[float]) -> float:
    """Seconds that the phases after `took` will take: `typical` seconds of all, real seconds of those that are over.

    Phases of under five seconds were done before and do not count.
    """
    ran = [(real, usual) for real, usual in zip(took, typical, strict=False) if real >= 5]
    pace = sum(real for real, _ in ran) / sum(usual for _, usual in ran) if ran else 1.0
    return pace * sum(typical[len(took) :])


def made(target: str) -> int:
    """Make a target to its end and return its exit status, 128 and the signal's number where one ended it.

    Ctrl-C reaches Make as well, and what Make runs; it is waited for until these have put their things away.
    """
    before = signal.signal(signal.SIGINT, lambda *_: None)  # exec gives Make the default again
    try:
        status = subprocess.run(["make", "--no-print-directory", *target.split()]).returncode
    finally:
        signal.signal(signal.SIGINT, before)
    return status if status >= 0 else 128 - status


def main(log: str, *phases: str) -> int:
    name, started = Path(log).parent.name, time.monotonic()
    took: list[float] = []
    titles, usual, targets = zip(*(phase.split("|") for phase in phases), strict=True)
    typical = [float(seconds) for seconds in usual]
    Path(log).parent.mkdir(parents=True, exist_ok=True)
    for number, (title, target) in enumerate(zip(titles, targets, strict=True), 1):
        spent = time.monotonic() - started
        print(
            f"{name}: {number} of {len(titles)}, {title}; {spent / 60:.0f} min so far, about {left(typical, took) / 60:.0f} min to go",
            file=sys.stderr,
            flush=True,
        )
        begun = time.monotonic()
        status = made(target)
        took.append(time.monotonic() - begun)
        with open(log, "a") as file:
            file.write(
                json.dumps({"phase": title, "seconds": round(took[-1], 1), "exit": status}) + "\n"
            )
        if status:
            print(
                f"{name}: stopped in {title}; what is done is kept: run it again", file=sys.stderr
            )
            return status
    print(f"{name}: done in {(time.monotonic() - started) / 60:.0f} min", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
