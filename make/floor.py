"""Ask one model several times, and say how far its runs are apart: `make floor`.

    python3 make/floor.py OUT MODEL [SOURCE=RUN ..] [SOURCE=now ..]

The runs are made by make under the names OUT-first, OUT-seed, OUT-parallel and OUT-again: by the protocol, by another seed, four
requests at once, and once more, by a server started anew where it is the embedded one. SOURCE=RUN is a run of the same model that was
made otherwise: by another engine or layout. SOURCE=now asks once more now, as OUT-SOURCE: at another hour, by a server that you
started again. What was measured of other sources stays. PROTOCOL, SETTING, PROMPTS, LIMIT and REPLY, the most tokens of a deck, come
by environment. Killed anywhere, it goes on.
"""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy
from decksmith.core import cli, stream
from decksmith.measure.results import floor, pairs, runs, stats, summary, text
from decksmith.models import registry

MANY = "4"
BY = {
    "first": {},
    "seed": {"SEED": "1000"},
    "parallel": {"JOBS": MANY},
    "again": {},
}


def entry(name, model):
    """An entry of the registry that asks what `model` asks, under another name."""
    plain = registry.Model(name="", base_url="", slug="")
    kept = {
        key: value
        for key, value in dataclasses.asdict(model).items()
        if key not in ("name", "label", "color") and value != getattr(plain, key)
    }
    lines = [f"{key} = {_toml(value)}" for key, value in kept.items()]
    return "\n".join([f"[{name}]", f'label = "{name}"', *lines, ""])


def _toml(value):
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(k)} = {_toml(v)}" for k, v in value.items()) + " }"
    return json.dumps(value)


def measured(first, others):
    """The floor by runs of one model, each against the first. Raises cli.BadData."""
    sources, measure = {}, pairs.better([first])[1]
    for name, run in others.items():
        both = [(a[1], b[1]) for _, a, b in pairs.headline_values(first, run)]
        gaps = numpy.array([a - b for a, b in both if a is not None and b is not None])
        sources[name] = floor.source(
            gaps, summary.scale(measure), name in floor.SWAPS, [first["name"], run["name"]]
        )
    protocol, model = first["protocol"]["protocol"], first["summary"]["model"]
    return {
        "protocol": str(protocol),
        "model": str(model.get("slug") or model["name"]),
        "is_share": measure in summary.SHARES,
        "sources": sources,
    }


def joined(path, found):
    """A floor with the other sources that are kept of the same model."""
    if path.is_file() and (known := stream.json_file(path)).get("model") == found["model"]:
        found["sources"] = known["sources"] | found["sources"]
    return found


def table(found):
    """A floor as a markdown table: of each source on the prompts whose decks render in both of its runs."""
    rows = []
    for name, one in found["sources"].items():
        sizes = [one["seen"], one["mean"], floor.reach(one, one["prompts"])]
        shown = [floor.shown(found, size).removesuffix(" points") for size in sizes]
        rows.append([name, f"{one['alike']} of {one['prompts']}", *shown])
    header = ["by", "decks alike", "seen", "mean", "95th percentile"]
    return text.markdown_table(header, rows, 1)


def main(out, model, *more):
    limit = os.environ["LIMIT"]
    if limit.isdigit() and int(limit) < stats.FEWEST:
        few = f"LIMIT={limit}: a floor needs {stats.FEWEST} prompts whose decks render"
        raise cli.BadConfig(f"{few}; 30 are a good beginning")
    out, given = Path(out), dict(word.partition("=")[::2] for word in more)
    for by, run in given.items():
        if run != "now" and not (run and (Path(run) / "summary.json").is_file()):
            raise cli.Missing(
                f"{by}={run}: no run is there; WITH=NAME=FOLDER names one, NAME=now asks"
            )
    asked = registry.model(model)
    if most := os.environ.get("REPLY"):
        asked.params = asked.params | {"max_tokens": int(most)}
    now = [by for by, run in given.items() if run == "now"]
    names = {by: f"{out.name}-{by}" for by in [*BY, *now]}
    (out / "models").mkdir(parents=True, exist_ok=True)
    entries = [entry(name, asked) for name in names.values()]
    stream.write(out / "models/floor.toml", "\n".join(entries))
    setting = os.environ["SETTING"]
    for by, name in names.items():
        environment = {k: v for k, v in os.environ.items() if not k.startswith("MAKE")}
        environment["DECKSMITH_MODELS"] = str((out / "models").resolve())
        if by == "parallel":
            environment["DECKSMITH_ENGINE_PARALLEL"] = MANY
        words = [f"{key}={os.environ[key]}" for key in ("PROTOCOL", "LIMIT", "PROMPTS")]
        words += [f"{key}={value}" for key, value in BY.get(by, {}).items()]
        goal = f"results/runs/{name}/{setting}/summary.json"
        command = ["make", "--no-print-directory", goal, f"MODEL={name}", *words]
        if status := subprocess.run(command, cwd=cli.ROOT, env=environment).returncode:
            raise cli.Missing(f"{name}: make ended with {status}; type the same command again")
    first = runs.in_folder(cli.ROOT / "results/runs" / names.pop("first") / setting)
    others = {by: cli.ROOT / "results/runs" / name / setting for by, name in names.items()}
    others |= {by: Path(folder) for by, folder in given.items() if by not in now}
    path, loaded = floor.path_of(first), {by: runs.in_folder(run) for by, run in others.items()}
    for run in loaded.values():
        if floor.path_of(run).name != path.name:
            raise cli.BadData(f"{run['path']} is of another protocol than {first['path']}")
    found = joined(path, measured(first, loaded))
    stream.write(path, json.dumps(found, indent=2) + "\n")
    most = f", decks of at most {os.environ['REPLY']} tokens" if os.environ.get("REPLY") else ""
    prompts = first["summary"]["prompts"]
    said = "\n".join([*table(found), "", f"{prompts} prompts{most}."])
    stream.write(out / "floor.md", said + "\n")
    print(text.shown(said))
    cli.say(f"kept in {path}: comparisons and plans by {found['protocol']} say it from now on")


if __name__ == "__main__":
    cli.ends_with(lambda: main(*sys.argv[1:]))
