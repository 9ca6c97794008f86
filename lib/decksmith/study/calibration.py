"""A protocol whose weights were fitted to people's votes, as the text of its file."""

import json
import re
from pathlib import Path
from typing import Any

from decksmith.core import cli
from decksmith.results.text import interval
from decksmith.study import store

_OWN = re.compile(r"^(extends|name)\s*=.*\n", re.MULTILINE)


def protocol(name: str, study: store.Study, found: dict[str, Any]) -> str:
    """The protocol `name`: that of the study's runs with the weights that `tally.of_study` found. Its head says on what
    they were fitted and what they gain.

    Raises cli.BadData where the votes fit no weights, or the runs' protocol is not one of assets/protocols."""
    weights = found["weights"]
    if not weights:
        raise cli.BadData(
            f"{study.folder}: these votes fit no weights; 50 untied votes on 6 prompts are needed, on decks that a judge scored"
        )
    base = _base(study)
    own = (cli.ROOT / "assets/protocols" / f"{base}.toml").read_text(encoding="utf-8")
    extends = re.search(r'^extends\s*=\s*"([^"]+)"', own, re.MULTILINE)
    if "[score.weights]" in own and extends:
        raise cli.BadData(
            f"{base}.toml extends {extends[1]} and has weights of its own: write by hand"
        )
    accuracy = weights["accuracy"]
    values = {
        dimension: weight["suggested"] or 0.0 for dimension, weight in weights["dimensions"].items()
    }
    lines = [
        f"# Weights fitted to people's votes (vote-tally): the study {json.dumps(found['study']['title'])},",
        f"# {weights['votes']} votes of {weights['raters']} people on {weights['prompts']} prompts.",
        f"# Votes on held-out prompts that they follow: {interval(accuracy['held_out'])}; with the weights of {base}:",
        f"# {interval(accuracy['current'])}; gain {interval(weights['gain'])}: {weights['advice']}.",
        f'extends = "{extends[1] if extends else base}"',
        f'name = "{name}"',
        "",
    ]
    if extends:  # a file extends one that stands by itself: this one's own tables come along
        lines += [_OWN.sub("", own).strip(), ""]
    lines.append("[score.weights]")
    lines += [f"{dimension} = {value}" for dimension, value in values.items()]
    return "\n".join(lines) + "\n"


def _base(study: store.Study) -> str:
    """The protocol of the study's runs."""
    names = set()
    for run in study.about["runs"]:
        path = Path(run.get("path") or "", "protocol.json")
        if path.is_file():
            names.add(json.loads(path.read_text())["protocol"])
    base = next(iter(names), None)
    if not base or not (cli.ROOT / "assets/protocols" / f"{base}.toml").is_file():
        raise cli.BadData(
            f"{study.folder}: its decks were not made under a protocol of assets/protocols, which alone could have other weights"
        )
    return base
