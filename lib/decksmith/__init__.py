"""decksmith: from a language model to a fine-tuned one, honestly measured."""

import re
from pathlib import Path


def __getattr__(name: str) -> str:
    """`__version__`, which pyproject.toml says. Not at import: the doctor also runs without that file."""
    if name != "__version__":
        raise AttributeError(name)
    text = (Path(__file__).resolve().parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    found = re.search(r'(?m)^version = "(.+)"$', text)
    assert found, "pyproject.toml names no version"
    return found[1]
