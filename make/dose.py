"""Train on nested shares of the rows, ask each model, and say what more rows would gain: `make dose`.

    python3 make/dose.py OUT DATA

RECIPE, TRAINER, ENGINE, ROWS (of how many rows the whole is made), PROTOCOL, SETTING, PROMPTS, LIMIT and REPLY (0: no decks) come by
environment. Where transformers trains, each model also reads answers that none was trained on (OUT/data/held.jsonl). With SBATCH the trainings are an array of jobs, each `make dose POINT=n`, which does that one alone. Killed anywhere, it goes on.
"""

import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

import local_servers
import plain
from decksmith.core import cli, stream
from decksmith.measure.results import runs, stats, text
from decksmith.measure.results.summary import domains, worth
from decksmith.train.training import adapters, base_models, dose, recipes

# Measured on two cores: seconds of a step of smol-lora, and of a deck of the embedded engine.
STEP, DECK = 3.5, 12.0
READ = 128  # tokens of a held-out answer, from its beginning


def make(words, **more):
    """Run make; what it says on stderr stands, of what it prints nothing: the tables at the end are
    of all models. Raises cli.Missing where it fails."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("MAKE")} | more
    command, none = ["make", "--no-print-directory", *words], subprocess.DEVNULL
    done = subprocess.run(command, cwd=cli.ROOT, env=environment, stdout=none)
    if done.returncode:
        raise cli.Missing(f"make {words[0]} ended with {done.returncode}; type the same again")


def pace(out, points, log):
    """Seconds of a step, by the trainings that are over."""
    took = [row for _, row in stream.journal(log)]
    steps = sum(point["steps"] for point in points for row in took if row["id"] == point["name"])
    return sum(row["seconds"] for row in took) / steps if steps else STEP


def one(point, out, section):
    """Train a point, have it read and ask it, unless that is done."""
    run, name = out / point["name"], f"{out.name}-{point['name']}"
    share = point["name"].partition("-")[2] or "1"
    if not (run / "adapter/manifest.json").is_file():
        begun = time.monotonic()
        words = [f"SFT={run}", f"DATA={out}/data/{share}", f"STEPS={point['steps']}", "PREVIEW=0"]
        # Small shares have short epochs, and would be validated all the time; what reads held-out
        # answers when it is trained needs no validation at all.
        half = -(-point["steps"] // 2)
        val = {"val_period": half}
        if os.environ["TRAINER"] == "trl":
            val = {"val_period": 0, "val_at_start": "false", "val_at_end": "false"}
        often = " ".join(f"{section}.{key}={value}" for key, value in val.items())
        given = f"{os.environ['SET']} {often} checkpointing.save_period={half}"
        words.append(f"SET={given.lstrip()}")
        make(["sft", *words, *(f"{key}={os.environ[key]}" for key in ("RECIPE", "TRAINER"))])
        with open(out / "took.jsonl", "a") as log:
            seconds = round(time.monotonic() - begun, 1)
            log.write(json.dumps({"id": point["name"], "seconds": seconds}) + "\n")
    if os.environ["TRAINER"] == "trl" and not (run / "held.json").is_file():
        stream.write(run / "held.json", json.dumps(likely(run / "adapter", out)) + "\n")
    if os.environ["REPLY"] != "0":
        asked(run, name, point["name"])


def is_done(point, out):
    """Whether a point is trained, has read and was asked."""
    kept = [out / point["name"] / "adapter/manifest.json"]
    kept += [out / point["name"] / "held.json"] if os.environ["TRAINER"] == "trl" else []
    run = f"results/runs/{out.name}-{point['name']}/{os.environ['SETTING']}/summary.json"
    kept += [cli.ROOT / run] if os.environ["REPLY"] != "0" else []
    return all(path.is_file() for path in kept)


def likely(adapter, out):
    """By held row the geometric mean of the chances that a model gives to the tokens of its answer."""
    model = plain.Plain(base_models.folder(adapters.base_of(adapter)), adapter, alone=True)
    rows = [row for _, row in stream.records(out / "data/held.jsonl")]
    cli.say(f"{adapter.parent.name}: reads {len(rows)} answers that no model was trained on")
    return {row["id"]: 2 ** -model.bits(row["messages"], READ) for row in rows}


def asked(run, name, label):
    """Serve what was trained, and ask it by make."""
    entry = f'[{name}]\nlabel = "{label}"\nbase_url = "serve:"\nslug = "tuned"\njobs = 1\n'
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
    server = subprocess.Popen(
        serve, cwd=cli.ROOT, env=os.environ | there, preexec_fn=local_servers.dies_with_us
    )
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


def wait_for(label):
    """Wait for the jobs of a name that an earlier start submitted; whether there were any. Raises cli.TryAgain where Slurm does
    not say: what runs would be trained twice."""
    listed, found = ["squeue", "--me", "--noheader", f"--name={label}", "--format=%F"], False
    while True:
        said = subprocess.run(listed, stdout=subprocess.PIPE, text=True)
        if said.returncode:
            raise cli.TryAgain("squeue does not say whether an earlier start still trains")
        if not (jobs := said.stdout.split()):
            return found
        if not found:
            cli.say(f"job {jobs[0]} of an earlier start is at it: waiting for its end")
        found = True
        time.sleep(5)


def curves(points, out):
    """The table of both curves, and the sentences of each."""
    by_held, by_decks = os.environ["TRAINER"] == "trl", os.environ["REPLY"] != "0"
    rows, lines = [], []
    for curve in ("epochs", "steps"):
        taken = [point for point in points if point["curve"] in (curve, "both")]
        counts = [point["rows"] for point in taken]
        cells = [[f"same {curve}", str(point["rows"]), str(point["steps"])] for point in taken]
        if by_held:
            values = [stream.json_file(out / point["name"] / "held.json") for point in taken]
            for cell, each in zip(cells, values, strict=True):
                cell.append(text.percent(round(sum(each.values()) / len(each), 3)))
            found = dose.doubling(counts, values, {})
            lines.append(
                f"- Same {curve}, tokens of {len(values[0])} held-out answers: {dose.sentence(found)}."
            )
        if by_decks:
            loaded = [
                runs.in_folder(
                    cli.ROOT / f"results/runs/{out.name}-{point['name']}" / os.environ["SETTING"]
                )
                for point in taken
            ]
            values = [worth(run["records"]) for run in loaded]
            for cell, each, run in zip(cells, values, loaded, strict=True):
                renders = f"{run['summary']['rendered']} of {run['summary']['n']}"
                cell += [renders, text.whole_percent(sum(each.values()) / len(each))]
            found = dose.doubling(counts, values, domains(loaded[0]["records"]))
            lines.append(f"- Same {curve}, checks of decks: {dose.sentence(found)}.")
        rows += cells
    asked = f"{len(values[0])} prompts, decks of at most {os.environ['REPLY']} tokens."
    lines = [asked, "", *lines] if by_decks else lines
    header = ["curve", "rows", "steps", *(["held-out tokens"] if by_held else [])]
    header += ["render", "checks"] if by_decks else []
    return "\n".join([*text.markdown_table(header, rows, 1), "", *lines])


def main(out, data):
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    whole = recipes.freeze(os.environ["RECIPE"], data, out / "data/whole")
    most = os.environ.get("ROWS")
    counts = dose.split(whole, out / "data", int(most) if most else None)
    given = os.environ.get("SET", "").split()
    rows = (out / "data/1/train.jsonl").read_text()
    inputs = [os.environ["RECIPE"], os.environ["TRAINER"], given, stream.fingerprint(rows)]
    held = (out / "data/held.jsonl").read_bytes().count(b"\n")
    few = f"; a curve needs {stats.FEWEST}"
    if os.environ["TRAINER"] == "trl" and held < stats.FEWEST:
        raise cli.BadData(f"{held} answers that no model is trained on{few}: give a smaller ROWS")
    if os.environ["REPLY"] != "0" and int(os.environ["LIMIT"]) < stats.FEWEST:
        raise cli.BadData(f"LIMIT={os.environ['LIMIT']} prompts{few}")
    note = out / "inputs.json"
    if note.is_file() and json.loads(note.read_text()) != inputs:
        raise cli.BadData(f"{out} has trainings on other rows or settings: name another, COPIES=..")
    stream.write(note, json.dumps(inputs) + "\n")
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
    left = [
        point for point in points if not (out / point["name"] / "adapter/manifest.json").is_file()
    ]
    steps = sum(point["steps"] for point in left)
    each = pace(out, points, out / "took.jsonl")
    lacking = [n for n, point in enumerate(points) if not is_done(point, out)]
    decks = len(lacking) * int(os.environ["LIMIT"]) * (os.environ["REPLY"] != "0")
    local = (
        f"; about {text.duration(steps * each + decks * DECK)} here"
        if not os.environ.get("SBATCH") and os.environ["TRAINER"] == "trl"
        else ""
    )
    cli.say(
        f"{len(left)} of {len(points)} trainings to come, {steps:,} steps in all, and {decks} decks{local}. "
        "What is finished is kept"
    )
    submit = os.environ.get("SBATCH")
    if submit and lacking:
        label = f"dose-{stream.fingerprint(str(out.resolve()))[:8]}"
        if wait_for(label):
            lacking = [n for n, point in enumerate(points) if not is_done(point, out)]
        (out / "log").mkdir(exist_ok=True)
        words = "RECIPE TRAINER ENGINE ROWS PROTOCOL PROMPTS LIMIT REPLY".split()
        words = [f"{key}={os.environ[key]}" for key in words if os.environ.get(key)]
        words += [f"COPIES={out}", f"DATA={data}", f"SET={' '.join(given)}", "SBATCH="]
        job = f"cd {shlex.quote(str(cli.ROOT))} && make dose {shlex.join(words)} POINT=$SLURM_ARRAY_TASK_ID"
        array = [f"--array={','.join(map(str, lacking))}", f"--job-name={label}"]
        array += [f"--output={out}/log/%A_%a.out", "--wrap", job]
        if lacking:
            flags = os.environ.get("FLAGS", "").split()
            subprocess.run([*submit.split(), "--wait", *flags, *array])
        if not all(is_done(point, out) for point in points):  # a cancelled task ends with 0
            raise cli.TryAgain(f"a job failed: {out}/log; type the same command again")
    elif not submit:
        for point in points:
            one(point, out, section)
    said = curves(points, out)
    stream.write(out / "dose.md", said + "\n")
    print(text.shown(said))


if __name__ == "__main__":
    cli.ends_with(lambda: main(*sys.argv[1:]))
