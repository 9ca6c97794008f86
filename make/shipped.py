"""Ask the copies of a fine-tune and say which of them may ship: `make shipped`.

    python3 make/shipped.py ADAPTER OUT [NAME=FILE.gguf ..]

Base with adapter, by transformers, is the one that was measured. The copies are those of OUT/copies (training/copies.py), base with
adapter and merged as vLLM serves them, where there is one, and files that others made. Each answers the prompts of
OUT/prompts.jsonl greedily, then by make under the name of OUT and its own: the protocol, and BENCHES. PROTOCOL, SETTING, PROMPTS,
LIMIT, REPLY (the most tokens of a deck) and SERVE (options of vLLM) come by environment. Killed anywhere, it goes on, and asks
nothing twice.
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from statistics import median

import local_servers
import plain
from decksmith.bench.benchmarks import metrics
from decksmith.core import cli, stream
from decksmith.measure.results import runs, text
from decksmith.measure.results.summary import worth
from decksmith.models import embedded
from decksmith.train.serving import fidelity
from decksmith.train.serving import server as servers
from decksmith.train.serving.vllm import sha256
from decksmith.train.training import adapters, base_models

MEASURED = fidelity.MEASURED


class Copy:
    """A copy: a GGUF file, or a folder of Hugging Face's form with an adapter or without, which transformers reads or vLLM."""

    def __init__(self, name, path, adapter=None, by_vllm=False):
        self.name, self.path, self.adapter, self.by_vllm = name, Path(path), adapter, by_vllm
        self.file = self.path if not self.path.is_dir() else self.path / "model.safetensors"
        self.file = self.adapter / adapters.WEIGHTS if self.adapter else self.file
        if not self.file.is_file():
            raise cli.Missing(f"{name}: there is no {self.file}")
        self.sha256 = sha256(self.file)

    @contextlib.contextmanager
    def served(self, place):
        """`(address, engine)` while it is served; `place`: the folder for its server's file."""
        if self.by_vllm:
            with vllm(self, place) as url:
                yield url, "vllm"
        elif self.path.is_dir():
            model = plain.Plain(self.path, self.adapter)
            with plain.served(model) as url:
                yield url, model.name
        else:
            threads, where = embedded.settings({}).threads, str(self.path.resolve())
            chosen = embedded.EngineSettings(threads, 1, {}, self.name, where, 8192)
            with embedded.share(chosen) as lease:
                yield lease.base_url, "embedded"


@contextlib.contextmanager
def vllm(copy, place):
    """The address of bin/model-serve with a copy, which proves that an adapter changes what is said."""
    there = os.environ | {"DECKSMITH_SERVE": str(place.resolve())}
    what = ["--base", str(copy.path), *(["--called", copy.name] if not copy.adapter else [])]
    what += ["--adapter", f"{copy.name}={copy.adapter}"] if copy.adapter else []
    more = (os.environ.get("SERVE") or "--max-model-len 4096").split()
    command = ["bin/model-serve", "--name", "here", *what, "--", *more]
    server = subprocess.Popen(
        command, cwd=cli.ROOT, env=there, preexec_fn=local_servers.dies_with_us
    )
    try:
        wait = ["bin/model-wait", "--address", "--timeout", "3600", "--pid", str(server.pid)]
        found = subprocess.run(wait, cwd=cli.ROOT, env=there, stdout=subprocess.PIPE, text=True)
        if found.returncode:
            raise cli.Missing(f"{copy.name} could not be served by vLLM: its log is in {place}")
        yield found.stdout.strip()
    finally:
        server.terminate()
        server.wait()


def ask(copies, out):
    """Have every copy answer; what is there is not asked again."""
    entries = [
        f'[{out.name}-{copy.name}]\nlabel = "{copy.name}"\nbase_url = "serve:"\nslug = "{copy.name}"\n'
        f"jobs = {8 if copy.by_vllm else 1}\nprice = {{ prompt = 0, completion = 0 }}\n"
        f"params = {{ max_tokens = {int(os.environ['REPLY'])} }}\n"
        for copy in copies
    ]
    for name in ("models", "replies"):
        (out / name).mkdir(exist_ok=True)
    stream.write(out / "models/copies.toml", "\n".join(entries))
    prompts = [record for _, record in stream.records(out / "prompts.jsonl")]
    with contextlib.ExitStack() as stack:
        place = out / f"serve/{MEASURED}"
        measured, engine = stack.enter_context(copies[0].served(place))
        key = [fidelity.TOKENS, engine, copies[0].sha256]

        def own(prompt, tokens):
            return plain.read(measured, engine, MEASURED, prompt["messages"], tokens)

        def begun(prompt):
            tokens = plain.reply(measured, prompt["messages"], fidelity.TOKENS)
            return {"tokens": tokens, "read": own(prompt, tokens)}

        said = kept(out, MEASURED, prompts, key, begun)
        run(copies[0], out, measured, engine)
        for copy in copies[1:]:
            with copy.served(out / f"serve/{copy.name}") as (url, engine_of):

                def parted(prompt, url=url, copy=copy, engine_of=engine_of):
                    tokens, ours = said[prompt["id"]].values()
                    theirs = plain.read(url, engine_of, copy.name, prompt["messages"], tokens)
                    other = lambda changed: own(prompt, changed)  # noqa: E731
                    return fidelity.parting(tokens, ours, theirs, other)

                kept(out, copy.name, prompts, [*key, engine_of, copy.sha256], parted)
                run(copy, out, url, engine_of)


def kept(out, name, prompts, key, made):
    """What `made(prompt)` returns, by prompt; it is kept line by line in OUT/replies, and made where nothing is or of other inputs."""
    path = out / f"replies/{name}.jsonl"
    keys = {one["id"]: stream.fingerprint([*key, one["messages"]]) for one in prompts}
    known = {entry["inputs"]: entry["found"] for _, entry in stream.journal(path)}
    stream.write(path, b"".join(line for line, _ in stream.journal(path)))  # less a torn line
    left = [one for one in prompts if keys[one["id"]] not in known]
    if left:
        cli.say(f"{name}: {len(left)} of {len(prompts)} prompts to be asked greedily")
    with open(path, "ab", buffering=0) as log:
        for one in left:
            inputs = keys[one["id"]]
            known[inputs] = made(one)
            log.write(
                stream.summed({"id": one["id"], "inputs": inputs, "found": known[inputs]}) + b"\n"
            )
    return {ident: known[inputs] for ident, inputs in keys.items()}


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
    asked = [one["id"] for _, one in stream.records(out / "prompts.jsonl")]
    for copy in copies:
        folder = cli.ROOT / f"results/runs/{out.name}-{copy.name}" / os.environ["SETTING"]
        loaded[copy.name] = runs.in_folder(folder)
    n, wanted = len(loaded[MEASURED]["records"]), fidelity.prompts_wanted(loaded[MEASURED])
    by_decks = wanted is not None and wanted <= n
    for copy in copies[1:]:
        lines = stream.journal(out / f"replies/{copy.name}.jsonl")
        newest = {entry["id"]: entry["found"] for _, entry in lines}
        partings[copy.name] = [newest[ident] for ident in asked]
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
    rows, lines, notes = [], [], []
    for copy in copies:
        found, parts = partings.get(copy.name, []), entries.get(copy.name, [])
        said = fidelity.verdict(parts, found, by_decks) if parts else "as it was measured"
        places = [one["at"] for one in found if one["at"] is not None]
        first = f"{1 + median(places):.0f} ({len(places)}/{len(found)})" if places else text.DASH
        cells = [*worth(loaded[copy.name]["records"]).values()]
        checks = text.whole_percent(sum(cells) / len(cells)) if cells else text.DASH
        size = f"{copy.file.stat().st_size / 1e6:.0f}"
        rows.append([copy.name, size, pace(loaded[copy.name]), first, checks, said])
        lines += [f"- {line}." for line in sentences(copy.name, parts, found)]
        notes.append({"copy": copy.name, "sha256": copy.sha256, "verdict": said, "parts": parts})
    stream.write(out / "shipped.json", json.dumps(notes, indent=2) + "\n")
    header = ["copy", "MB", "tokens/s", "parts at", "checks", "verdict"]
    told = f"decks tell with about {wanted or 'more than 5,000'} prompts"
    rest = f"replies and benchmarks; {n} decks can show a loss, and nothing else"
    decided = f"{n} prompts, decks of at most {os.environ['REPLY']} tokens. Said before any copy was looked at, by how the measured one's decks vary: {told}. "
    decided += f"The gate rests on {'decks, replies and benchmarks' if by_decks else rest}."
    return "\n".join([*text.markdown_table(header, rows, 1), "", decided, "", *lines])


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
    """Tokens that one request writes in a second here."""
    gens = [gen for one in run["records"] if (gen := one.get("gen")) and gen.get("usage")]
    seconds = sum(gen["by"].get("took") or 0 for gen in gens)
    count = sum(gen["usage"]["completion_tokens"] or 0 for gen in gens)
    return f"{count / seconds:.0f}" if seconds else text.DASH


def main(adapter, out, *more):
    adapter, out = Path(adapter), Path(out)
    base = base_models.folder(adapters.base_of(adapter))
    copies = [Copy(MEASURED, base, adapter), Copy("merged", out / "copies/merged")]
    copies += [Copy(name, out / f"copies/{name}.gguf") for name in ("f16", "q8", "q4")]
    if shutil.which("vllm") or servers.CPU_VLLM.is_file():
        copies.append(Copy("vllm-lora", base, adapter, by_vllm=True))
        copies.append(Copy("vllm-merged", out / "copies/merged", by_vllm=True))
    else:
        cli.say("no vLLM is asked: make .venv-vllm/.done, or one on the PATH")
    copies += [Copy(*word.split("=", 1)) for word in more]
    ask(copies, out)
    said = page(copies, out)
    stream.write(out / "shipped.md", said + "\n")
    print(text.shown(said))


if __name__ == "__main__":
    cli.ends_with(lambda: main(*sys.argv[1:]))
