"""Train on nested shares of the rows, ask each model, and say what more rows would gain: `make dose`.

    python3 make/dose.py OUT DATA

RECIPE, TRAINER, ENGINE, ROWS (of how many rows the whole is made), PROTOCOL, SETTING, PROMPTS, LIMIT and REPLY come by environment.
With SBATCH the trainings are an array of jobs, each `make dose POINT=n`, which does that one alone. Killed anywhere, it goes on.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from decksmith.core import cli, stream
from decksmith.measure.results import runs, text
from decksmith.measure.results.summary import domains, worth
from decksmith.train.serving.server import dies_with_us
from decksmith.train.training import dose, recipes

# Measured on two cores: seconds of a step of smol-lora, and of a deck of the embedded engine.
STEP, DECK = 3.5, 12.0


def make(words, **more):
    """Run make; what it says stands. Raises cli.Missing where it fails."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("MAKE")} | more
    done = subprocess.run(["make", "--no-print-directory", *words], cwd=cli.ROOT, env=environment)
    if done.returncode:
        raise cli.Missing(f"make {words[0]} ended with {done.returncode}; type the same again")


def pace(out, points, log):
    """Seconds of a step, by the trainings that are over."""
    took = [row for _, row in stream.records(log)] if log.is_file() else []
    steps = sum(point["steps"] for point in points for row in took if row["id"] == point["name"])
    return sum(row["seconds"] for row in took) / steps if steps else STEP


def one(point, out, section):
    """Train a point and ask it, unless that is done."""
    run, name = out / point["name"], f"{out.name}-{point['name']}"
    share = point["name"].partition("-")[2] or "1"
    if not (run / "adapter/manifest.json").is_file():
        begun = time.monotonic()
        words = [f"SFT={run}", f"DATA={out}/data/{share}", f"STEPS={point['steps']}"]
        # Small shares have short epochs, and would be validated all the time.
        half = -(-point["steps"] // 2)
        often = f"{section}.val_period={half} checkpointing.save_period={half}"
        words.append(f"SET={os.environ['SET']} {often}".rstrip())
        make(["sft", *words, *(f"{key}={os.environ[key]}" for key in ("RECIPE", "TRAINER"))])
        with open(out / "took.jsonl", "a") as log:
            seconds = round(time.monotonic() - begun, 1)
            log.write(json.dumps({"id": point["name"], "seconds": seconds}) + "\n")
    entry = f'[{name}]\nlabel = "{point["name"]}"\nbase_url = "serve:"\nslug = "tuned"\njobs = 1\n'
    entry += f"price = {{ prompt = 0, completion = 0 }}\nparams = {{ max_tokens = {int(os.environ['REPLY'])} }}\n"
    place = run / "serve"
    place.mkdir(exist_ok=True)
    stream.write(run / "models.toml", entry)
    goal = f"results/runs/{name}/{os.environ['SETTING']}/summary.json"
    words = [goal, f"MODEL={name}"]
    words += [f"{key}={os.environ[key]}" for key in ("PROTOCOL", "LIMIT", "PROMPTS")]
    there = {"DECKSMITH_SERVE": str(place.resolve()), "DECKSMITH_MODELS": str(run.resolve())}
    if (cli.ROOT / goal).is_file():
        make(words, **there)  # which says whether it stands
        return
    serve = ["bin/model-serve", "--engine", os.environ["ENGINE"], "--adapter", str(run / "adapter")]
    server = subprocess.Popen(serve, cwd=cli.ROOT, env=os.environ | there, preexec_fn=dies_with_us)
    try:
        wait = ["bin/model-wait", "--pid", str(server.pid)]
        if subprocess.run(
            wait, cwd=cli.ROOT, env=os.environ | there, stdout=subprocess.DEVNULL
        ).returncode:
            raise cli.Missing(f"{name} could not be served")
        make(words, **there)
    finally:
        server.terminate()
        server.wait()


def curves(points, out):
    """The table of both curves, and the sentence of each."""
    rows, lines = [], []
    for curve in ("epochs", "steps"):
        taken = [point for point in points if point["curve"] in (curve, "both")]
        loaded = [
            runs.in_folder(
                cli.ROOT / f"results/runs/{out.name}-{point['name']}" / os.environ["SETTING"]
            )
            for point in taken
        ]
        cells = [worth(run["records"]) for run in loaded]
        for point, cell, run in zip(taken, cells, loaded, strict=True):
            share = text.whole_percent(sum(cell.values()) / len(cell))
            renders = f"{run['summary']['rendered']} of {run['summary']['n']}"
            same = f"same {curve}"
            rows.append([same, str(point["rows"]), str(point["steps"]), renders, share])
        found = dose.doubling(
            [point["rows"] for point in taken], cells, domains(loaded[0]["records"])
        )
        lines.append(f"With the same {curve}, {dose.sentence(found)}.")
    header = ["curve", "rows", "steps", "render", "checks passed"]
    return "\n".join([*text.markdown_table(header, rows, 1), "", *lines])


def main(out, data):
    out = Path(out)
    whole = recipes.freeze(os.environ["RECIPE"], data, out / "data/whole")
    most = os.environ.get("ROWS")
    counts = dose.split(whole, out / "data", int(most) if most else None)
    given = os.environ.get("SET", "").split()
    config = recipes.recipe(
        os.environ["RECIPE"], data=out / "data/1", run=out / "all", base=None, overrides=given
    )
    section = recipes.algorithm(config)
    # How many epochs is said by the steps of each training.
    os.environ["SET"] = " ".join(word for word in given if "max_num_epochs" not in word)
    batch = recipes.get(config, recipes.ALGORITHMS[section])
    points = dose.points(counts, config[section]["max_num_epochs"], batch)
    if at := os.environ.get("POINT"):
        one(points[int(at)], out, section)
        return
    left = [point for point in points if not (out / point["name"] / "adapter").is_dir()]
    steps = sum(point["steps"] for point in left)
    each = pace(out, points, out / "took.jsonl")
    decks = len(points) * int(os.environ["LIMIT"])
    local = (
        f"; about {text.duration(steps * each + decks * DECK)} here"
        if not os.environ.get("SBATCH") and os.environ["TRAINER"] == "trl"
        else ""
    )
    cli.say(
        f"{len(left)} of {len(points)} trainings to come, {steps:,} steps in all, and {decks} decks{local}. "
        "What is finished is kept"
    )
    if submit := os.environ.get("SBATCH"):
        (out / "log").mkdir(exist_ok=True)
        words = [
            f"{key}='{os.environ[key]}'"
            for key in "RECIPE TRAINER ENGINE ROWS PROTOCOL PROMPTS LIMIT REPLY".split()
            if os.environ.get(key)
        ]
        words.append(f"SET='{' '.join(given)}'")
        job = f"cd '{cli.ROOT}' && make dose COPIES='{out}' DATA='{data}' {' '.join(words)} SBATCH= POINT=$SLURM_ARRAY_TASK_ID"
        array = [f"--array=0-{len(points) - 1}", f"--output={out}/log/%A_%a.out", "--wrap", job]
        done = subprocess.run(
            [*submit.split(), "--wait", *os.environ.get("FLAGS", "").split(), *array]
        )
        if done.returncode:
            raise cli.TryAgain(f"a job failed: {out}/log; type the same command again")
    else:
        for point in points:
            one(point, out, section)
    said = curves(points, out)
    stream.write(out / "dose.md", said + "\n")
    print(text.shown(said))


if __name__ == "__main__":
    cli.ends_with(lambda: main(*sys.argv[1:]))
