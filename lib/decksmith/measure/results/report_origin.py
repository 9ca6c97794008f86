"""Who made the numbers of a report, when, and by which command; from what the runs say of themselves."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

from decksmith import __version__
from decksmith.core.records import By
from decksmith.measure.results import layout
from decksmith.measure.results.comparison import Run
from decksmith.measure.results.text import listed

Facts = list[tuple[str, str]]  # what it is, and what it is for this run


def origin(runs: list[Run]) -> list[tuple[str, Facts]]:
    """Each run's label with its facts. No path of this machine, no key, no endpoint's address."""
    return [(run["label"], _facts(run)) for run in runs]


def command(runs: list[Run]) -> str:
    """The command that writes such a report of these runs."""
    folders = " ".join(folder(run["path"]) for run in sorted(runs, key=lambda run: run["order"]))
    chain = "--chain " if "chain" in runs[0] else ""
    return f"bin/run-report {chain}--out results/reports/NAME {folders}"


def folder(path: Path) -> str:
    """A run's folder as seen from the checkout; elsewhere its name alone."""
    parts = path.resolve().parts
    for at in range(len(parts) - 3, 0, -1):
        if parts[at - 1 : at + 1] == ("results", "runs"):
            return "/".join(parts[at - 1 :])
    return parts[-1]


def _facts(run: Run) -> Facts:
    protocol, model = run["protocol"], run["summary"]["model"]
    engine = protocol.get("renderer")
    made = layout.make_command(run["path"]) if "/" in folder(run["path"]) else "not recorded"
    judge, asked = protocol.get("judge") or {}, run["summary"]["asked"]["parameters"]
    facts = [
        ("model", _model(run)),
        ("when", _when(run)),
        ("command", made),
        ("folder", folder(run["path"])),
        ("asked", ", ".join(f"{name} {value}" for name, value in asked.items())),
        ("prompts", f"{run['summary']['prompts']}, {_short(protocol.get('prompts'))}"),
        ("judge", str(judge.get("name") or judge.get("slug") or run["summary"]["judge"])),
        ("renderer", f"slidev {engine.get('slidev')}" if engine else ""),
        ("browser", engine.get("browser", "") if engine else ""),
        ("protocol", f"{protocol.get('protocol') or ''} {protocol.get('hash') or 'unknown'}"),
        ("tools", listed(sorted(_tools(run))) if _tools(run) else ""),
    ]
    if model.get("files"):
        facts[0] = ("decks", f"read from {model['files']}; no model was asked")
    return [(name, value.strip()) for name, value in facts if value.strip()]


def _model(run: Run) -> str:
    """The model as the registry calls it, and as endpoints called what answered."""
    model = run["summary"]["model"]
    said = [(by.get("response") or {}).get("model") for _, by in _by(run, "gen")]
    others = sorted({str(name) for name in said if name} - {model["slug"]})
    more = f"; the endpoint called it {listed(others)}" if others else ""
    return f"{model['name']} ({model['slug']}){more}"


def _short(prompts: Mapping[str, str] | None) -> str:
    return f"sha256 {(prompts or {}).get('sha256', 'unknown')[:12]}"


def _by(run: Run, stage: str | None = None) -> Iterator[tuple[str, By]]:
    """Each stage's `by` in a run's records."""
    for record in run["records"]:
        for name, value in record.items():
            by = value.get("by") if isinstance(value, dict) else None
            if isinstance(by, dict) and stage in (None, name):
                yield name, cast(By, by)


def _when(run: Run) -> str:
    """From the first reply to the end of the last stage, in UTC."""
    spans = []
    for _, by in _by(run):
        if by.get("at"):
            start = datetime.fromisoformat(by["at"]).astimezone(UTC)
            spans.append((start, start + timedelta(seconds=by.get("took") or 0)))
    if not spans:
        return "not recorded"
    first, last = min(start for start, _ in spans), max(end for _, end in spans)
    same_day = first.date() == last.date()
    return f"{first:%Y-%m-%d %H:%M} to {last:{'%H:%M' if same_day else '%Y-%m-%d %H:%M'}} UTC"


def _tools(run: Run) -> set[str]:
    """The versions of decksmith that made the values, with the images they ran in."""
    found = {(by.get("version"), by.get("image")) for _, by in _by(run)}
    return {
        f"decksmith {version}" + (f" in {image}" if image not in (None, "host") else "")
        for version, image in found
        if version
    }


def version() -> str:
    """The version that writes the report."""
    return f"decksmith {__version__}"
