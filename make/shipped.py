"""Ask the copies of a fine-tune and say which of them may ship: `make shipped`.

    python3 make/shipped.py ADAPTER OUT [NAME=FILE.gguf ..]

Base with adapter, by transformers, is the one that was measured. The copies are those of OUT/copies (training/copies.py), and
files that others made. Each answers the prompts of OUT/prompts.jsonl greedily, then by make under the name of OUT and its own:
the protocol, and BENCHES. PROTOCOL, SETTING, PROMPTS, LIMIT and
REPLY (the most tokens of a deck) come by environment. Killed anywhere, it goes on.
"""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median

import plain
from decksmith.bench.benchmarks import metrics
from decksmith.core import cli, stream
from decksmith.measure.results import runs, text
from decksmith.measure.results.summary import worth
from decksmith.models import embedded
from decksmith.train.serving import fidelity
from decksmith.train.serving.vllm import sha256
from decksmith.train.training import adapters, base_models

MEASURED = fidelity.MEASURED


class Copy:
    """A copy: a GGUF file, or a folder of Hugging Face's form with an adapter or without."""

    def __init__(self, name, path, adapter=None):
        self.name, self.path, self.adapter = name, Path(path), adapter
        self.file = self.path if not self.path.is_dir() else self.path / "model.safetensors"
        self.file = self.adapter / adapters.WEIGHTS if self.adapter else self.file
        if not self.file.is_file():
            raise cli.Missing(f"{name}: there is no {self.file}")
        self.sha256 = sha256(self.file)

    @contextlib.contextmanager
    def served(self):
        """`(address, engine)` while it is served."""
        if self.path.is_dir():
            model = plain.Plain(self.path, self.adapter)
            with plain.served(model) as url:
                yield url, model.name
            return
        threads, where = embedded.settings({}).threads, str(self.path.resolve())
        chosen = embedded.EngineSettings(threads, 1, {}, self.name, where, 8192)
        with embedded.share(chosen) as lease:
            yield lease.base_url, "embedded"


def ask(copies, out):
    """Have every copy answer; what is there is not asked again."""
    entries = [
        f'[{out.name}-{copy.name}]\nlabel = "{copy.name}"\nbase_url = "serve:"\nslug = "{copy.name}"\njobs = 1\n'
        f"price = {{ prompt = 0, completion = 0 }}\nparams = {{ max_tokens = {int(os.environ['REPLY'])} }}\n"
        for copy in copies
    ]
    for name in ("models", "replies"):
        (out / name).mkdir(exist_ok=True)
    stream.write(out / "models/copies.toml", "\n".join(entries))
    prompts = [record for _, record in stream.records(out / "prompts.jsonl")]
    with copies[0].served() as (measured, engine):
        inputs = [prompts, fidelity.TOKENS, engine, copies[0].sha256]
        said = kept(
            out / f"replies/{MEASURED}.json",
            inputs,
            lambda: [fidelity.reply(measured, one["messages"]) for one in prompts],
        )
        run(copies[0], out, measured, engine)
        for copy in copies[1:]:
            with copy.served() as (url, engine):
                kept(
                    out / f"replies/{copy.name}.json",
                    [*inputs, engine, copy.sha256, said],
                    lambda url=url, copy=copy: [
                        fidelity.parting(measured, url, copy.name, one["messages"], tokens)
                        for one, tokens in zip(prompts, said, strict=True)
                    ],
                )
                run(copy, out, url, engine)


def kept(path, inputs, made):
    """What `made()` returns, from `path` where it depends on the same."""
    key = stream.fingerprint(inputs)
    if path.is_file() and (known := stream.json_file(path))["inputs"] == key:
        return known["found"]
    cli.say(f"{path}: asked greedily")
    found = made()
    stream.write(path, json.dumps({"inputs": key, "found": found}) + "\n")
    return found


def endpoint(copy, url, engine):
    """What the file of a copy's server says (models/servers.py): other weights are another model."""
    own = {copy.name: {"sha256": copy.sha256}}
    named = {"models": [copy.name], "base": copy.path.name, "adapters": own}
    return {"url": url, "engine": engine, **named}


def run(copy, out, url, engine):
    """Protocol and benchmarks of one copy, by make."""
    name, place = f"{out.name}-{copy.name}", out / f"serve/{copy.name}"
    place.mkdir(parents=True, exist_ok=True)
    stream.write(place / "here.json", json.dumps(endpoint(copy, url, engine)) + "\n")
    environment = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MAKEOVERRIDES")}
    environment |= {"DECKSMITH_SERVE": str(place.resolve())}
    environment |= {"DECKSMITH_MODELS": str((out / "models").resolve())}
    given = [f"{key}={os.environ[key]}" for key in ("PROTOCOL", "LIMIT", "PROMPTS")]
    goals = [[f"results/runs/{name}/{os.environ['SETTING']}/summary.json"]]
    if os.environ.get("BENCHES"):
        goals.append(["bench", f"BENCH={os.environ['BENCHES']}"])
    for goal in goals:
        command = ["make", "--no-print-directory", *goal, f"MODEL={name}", *given]
        if status := subprocess.run(command, cwd=cli.ROOT, env=environment).returncode:
            raise cli.Missing(f"{copy.name}: make ended with {status}; type the same command again")


def page(copies, out):
    """The table, and what stands behind each verdict; both are kept in OUT too."""
    loaded, entries, partings = {}, {}, {}
    for copy in copies:
        folder = cli.ROOT / f"results/runs/{out.name}-{copy.name}" / os.environ["SETTING"]
        loaded[copy.name] = runs.in_folder(folder)
    for copy in copies[1:]:
        partings[copy.name] = stream.json_file(out / f"replies/{copy.name}.json")["found"]
        parts = [fidelity.decks(loaded[copy.name], loaded[MEASURED])]
        parts.append(fidelity.replies(partings[copy.name]))
        if os.environ.get("BENCHES"):
            graded = [
                metrics.load(cli.ROOT / f"results/bench/{out.name}-{name}")
                for name in (copy.name, MEASURED)
            ]
            parts += metrics.compare(*graded)
        entries[copy.name] = parts
    fidelity.settle(entries)
    rows, lines, kept = [], [], []
    for copy in copies:
        found, parts = partings.get(copy.name, []), entries.get(copy.name, [])
        said = fidelity.verdict(parts, found) if parts else "as it was measured"
        places = [one["at"] for one in found if one["at"] is not None]
        first = (
            f"{1 + median(places):.0f}, in {len(places)} of {len(found)}" if places else text.DASH
        )
        cells = [*worth(loaded[copy.name]["records"]).values()]
        checks = text.whole_percent(sum(cells) / len(cells)) if cells else text.DASH
        size = f"{copy.file.stat().st_size / 1e6:.0f}"
        rows.append([copy.name, size, pace(loaded[copy.name]), first, checks, said])
        lines += [f"- {line}." for line in sentences(copy.name, parts, found)]
        kept.append({"copy": copy.name, "sha256": copy.sha256, "verdict": said, "parts": parts})
    stream.write(out / "shipped.json", json.dumps(kept, indent=2) + "\n")
    header = ["copy", "MB", "tokens/s", "parts at token", "checks", "verdict"]
    return "\n".join([*text.markdown_table(header, rows, 1), "", *lines])


def sentences(name, entries, partings):
    """What stands behind a verdict."""
    found = []
    apart = [one for one in partings if one["at"] is not None]
    if apart:
        first = min(apart, key=lambda one: one["at"] or 0)
        by = [[text.whole_percent(p) for p in first[side]] for side in ("measured", "copy")]
        found.append(
            f"{name} parts first at token {1 + (first['at'] or 0)}. There the measured copy gave its own token {by[0][0]} "
            f"and the other {by[0][1]}; {name} gave them {by[1][0]} and {by[1][1]}"
        )
    if other := sum(not one["prompt"] for one in partings):
        found.append(f"{name} reads {other} prompts as other tokens: template or tokenizer differ")
    return [*found, *map(of_prompts, entries)]


def of_prompts(entry):
    """The sentence of a part; what is asked for decks is no question."""
    is_decks = entry["benchmark"] == "decks"
    return entry["sentence"].replace("question", "prompt") if is_decks else entry["sentence"]


def pace(run):
    """Tokens that it writes in a second here."""
    gens = [gen for one in run["records"] if (gen := one.get("gen")) and gen.get("usage")]
    seconds = sum(gen["by"].get("took") or 0 for gen in gens)
    count = sum(gen["usage"]["completion_tokens"] or 0 for gen in gens)
    return f"{count / seconds:.0f}" if seconds else text.DASH


def main(adapter, out, *more):
    adapter, out = Path(adapter), Path(out)
    base = base_models.folder(adapters.base_of(adapter))
    copies = [Copy(MEASURED, base, adapter), Copy("merged", out / "copies/merged")]
    copies += [Copy(name, out / f"copies/{name}.gguf") for name in ("f16", "q8", "q4")]
    copies += [Copy(*word.split("=", 1)) for word in more]
    ask(copies, out)
    said = page(copies, out)
    stream.write(out / "shipped.md", said + "\n")
    print(text.shown(said))


if __name__ == "__main__":
    cli.ends_with(lambda: main(*sys.argv[1:]))
