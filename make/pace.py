"""How far a stage of an experiment is, and how long it takes yet: `make status` (make/experiment).

    python3 make/pace.py count STAGE     what is done of it, as a number
    python3 make/pace.py left STAGE      seconds to go where they are known, a bar, and the words for it

SFT, NAME, PAIR and SETTING come by environment. The pace is that of this start: results/experiment/NAME.jsonl has a line for each
start of a stage, with what was done then, and one for its end; the training's own are slurm/starts.jsonl. A stage that has not begun
takes what it took the last time, of any experiment. The standard library only.
"""

import json
import os
import re
import sys
import time
from datetime import datetime
from pathlib import Path

RUN, NAME, RUNS = Path(os.environ["SFT"]), os.environ["NAME"], Path("results/runs")
SETTING = os.environ["SETTING"]


def rows(path: Path) -> list[dict]:
    """The whole lines of a file of records; none where there is none."""
    text = path.read_text() if path.is_file() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def count(stage: str) -> tuple[int, int, str]:
    """`(done, of how many, what)` of a stage; of 0 where nobody can say."""
    if stage == "train":
        recipe = (RUN / "recipe.yaml").read_text() if (RUN / "recipe.yaml").is_file() else ""
        total = re.search(r"^ +max_num_steps: (\d+)", recipe, re.M)
        kept = [int(path.name[5:]) for path in RUN.glob("checkpoints/step_*[0-9]")]
        steps = [row["step"] for row in rows(RUN / "metrics.jsonl") if "step" in row]
        return max([0, *kept, *steps]), int(total[1]) if total else 0, "steps"
    models, each, greedy = os.environ["PAIR"].split(), 1, 0
    if stage == "shipped":
        models = sorted(path.name for path in RUNS.glob(f"{NAME}-shipped-*"))
        replies = Path(f"results/{NAME}-shipped/replies").glob("*.jsonl")
        greedy, each = sum(len(rows(path)) for path in replies), 2
    elif stage != "finetuned":
        return 0, 0, ""
    folders = [RUNS / model / SETTING for model in models]
    places = [*folders, *([Path(f"results/{NAME}-shipped")] if stage == "shipped" else [])]
    asked = max(len(rows(place / "prompts.jsonl")) for place in places)
    done = greedy + sum(len(rows(folder / "journal/gen.jsonl")) for folder in folders)
    if stage == "shipped":
        copies = Path(f"results/{NAME}-shipped/models/copies.toml")
        models = re.findall(r"^\[", copies.read_text() if copies.is_file() else "", re.M)
    return done, asked * len(models) * each, "replies"


def starts(stage: str) -> list[dict]:
    """The starts and ends of a stage, the newest last."""
    log = [row for row in rows(Path(f"results/experiment/{NAME}.jsonl")) if row["stage"] == stage]
    for row in rows(RUN / "slurm/starts.jsonl") if stage == "train" else ():
        if "at" in row:
            log.append(row | {"at": datetime.fromisoformat(row["at"]).timestamp()})
    return log


def usual(stage: str) -> float | None:
    """Seconds that it took the last time that it was done from its beginning, here or in another experiment."""
    logs = sorted(Path("results/experiment").glob("*.jsonl"), key=lambda path: path.stat().st_mtime)
    took = [row for log in logs for row in rows(log) if row["stage"] == stage and "seconds" in row]
    whole = [row["seconds"] for row in took if not row["from"] and not row["status"]]
    return whole[-1] if whole else None


def left(stage: str, is_running: bool) -> tuple[float | None, str]:
    """Seconds to go, None where nobody knows, and the words for it."""
    done, total, what = count(stage)
    far = f"{done} of {total} {what}" if total else ""
    begun = [row for row in starts(stage) if "at" in row][-1:]
    seconds = usual(stage)
    if is_running and begun:
        passed, new = time.time() - begun[0]["at"], done - begun[0]["from"]
        if new > 0 and total:
            seconds = passed / new * max(0, total - done)
        elif seconds is not None:
            seconds = max(0.0, seconds - passed)
    said = f"about {max(1, round(seconds / 60))} min" if seconds is not None else ""
    return seconds, ", ".join(filter(None, [far if is_running else "", said]))


def main(what: str, stage: str, state: str = "") -> None:
    if what == "count":
        print(count(stage)[0])
        return
    seconds, said = left(stage, state == "RUNNING")
    print("" if seconds is None else round(seconds), said, sep="|")


if __name__ == "__main__":
    main(*sys.argv[1:])
