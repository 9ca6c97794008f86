"""Benchmarks as data: where their rows come from and how they become our records (assets/benchmarks/*.toml)."""

import re
import tomllib

from decksmith import cli

FIELDS = {"source", "path", "split", "revision", "id"}


def load(name):
    """The description of a benchmark, by name. Raises cli.BadConfig naming file and key."""
    path = cli.ROOT / "assets" / "benchmarks" / f"{name}.toml"
    try:
        spec = tomllib.loads(path.read_text())
    except FileNotFoundError:
        known = ", ".join(sorted(p.stem for p in path.parent.glob("*.toml")))
        raise cli.BadConfig(f"no benchmark {path}; there are: {known}") from None
    except tomllib.TOMLDecodeError as error:
        raise cli.BadConfig(f"{path}: {error}") from None
    if wrong := (set(spec) - FIELDS) | ({"source", "path", "split", "id"} - set(spec)):
        raise cli.BadConfig(f"{path}: the key {sorted(wrong)[0]!r} is unknown or missing")
    return spec


def prepare(name):
    """Yield the rows of a benchmark from the Hub as prompt records (docs/records.md): what the model is asked, never the answer.

    Raises cli.TryAgain when the Hub cannot be reached, cli.BadData naming the row that lacks a field.
    """
    spec = load(name)
    from httpx import HTTPError
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, RepositoryNotFoundError
    try:
        revision = spec.get("revision") or HfApi().dataset_info(spec["path"]).sha
        if "revision" not in spec:
            cli.say(f"{name}: took the newest revision; to pin it: revision = \"{revision}\" in assets/benchmarks/{name}.toml")
        from datasets import load_dataset
        rows = load_dataset(spec["path"], revision=revision, split=spec["split"])
    except RepositoryNotFoundError:
        raise cli.Missing(f"{name}: the Hub has no public dataset {spec['path']}; if it is gated, ask for access there and set HF_TOKEN") from None
    except (HfHubHTTPError, HTTPError, OSError) as error:
        raise cli.TryAgain(f"{name}: the Hub did not answer: {' '.join(str(error).split())[:300]}") from None
    for number, row in enumerate(rows, 1):
        try:
            ident = re.sub(r"[^A-Za-z0-9._~-]", "-", str(row[spec["id"]]))
            asked = [{"role": m["role"], "content": m["content"]} for m in row["messages"] if m["role"] in ("system", "user")]
        except (KeyError, TypeError) as error:
            raise cli.BadData(f"{spec['path']} row {number}: no usable {error}") from None
        yield {"id": ident, "sets": [name], "messages": asked, "asks": {}, "checklist": [],
               "source": {"path": spec["path"], "revision": revision, "split": spec["split"]}}
