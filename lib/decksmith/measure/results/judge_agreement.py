"""How far a judge follows people, kept by judge-compare for the captions of comparisons under the same judge."""

import json
import re
from pathlib import Path
from typing import Any

from decksmith.core import cli, stream
from decksmith.measure.results import text

FOLDER = cli.ROOT / "results" / "judges"


def keep(judge: str, found: dict[str, Any]) -> Path:
    """Keep what was found of a judge, `{"study", "votes", "agreement": {"mean", "lo", "hi"}}`; returns the file."""
    stream.write(path := _path(judge), json.dumps(found, ensure_ascii=False) + "\n")
    return path


def said(judge: str) -> str:
    """The clause of a caption. Raises cli.BadData for a file that `keep` did not write."""
    path = _path(judge)
    if not path.is_file():
        return "never held beside people"
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        share = text.interval(found["agreement"])
        return f"it prefers what people prefer in a share of {share} of {found['votes']} votes ({found['study']})"
    except (ValueError, KeyError, TypeError) as error:
        raise cli.BadData(f"{path}: judge-compare --keep writes it anew ({error!r})") from None


def _path(judge: str) -> Path:
    return FOLDER / f"{re.sub(r'[^A-Za-z0-9._-]+', '-', judge)}.json"
