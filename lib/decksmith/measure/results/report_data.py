"""What the report's page and script show of runs and decks: JSON data of each deck (assets/web/report.js), the words of the
page, and who made its numbers, when, and by which command."""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TypedDict, cast

from decksmith.core import pages, stream
from decksmith.core.records import Record, prompt_of
from decksmith.measure.decks import edits, sources
from decksmith.measure.decks.records import Deck, Render
from decksmith.measure.judging import checks
from decksmith.measure.judging.records import DeckRecord, Judge
from decksmith.measure.judging.scoring import EDIT, worth
from decksmith.measure.results import layout
from decksmith.measure.results.claims import decided
from decksmith.measure.results.comparison import Comparison, Run
from decksmith.measure.results.pairs import better, is_headline
from decksmith.measure.results.plots import dimensions
from decksmith.measure.results.report_pictures import Pictures, inside_run
from decksmith.measure.results.runs import measures, offline, titles, whole
from decksmith.measure.results.summary import fault_of, made_by, spans, status_of
from decksmith.measure.results.text import listed
from decksmith.models.records import Gen
from decksmith.models.replies import CUT

LONGEST = 60_000  # characters of a deck, a reply or a thought that the page carries
# Of a slide's X-ray.
SEEN = ("words", "contrast", "overflow", "font", "images_broken", "blank", "canvas")


Shown = dict[str, object]  # JSON for the page's script


class Live(TypedDict):
    """How far a run is that goes on while its page is written."""

    model: str
    done: int
    of: int


# What only a deck in the window shows, or a search looks through: nine tenths of a page of many decks.
LATER = (
    *("slides", "answers", "before", "markdown", "reply", "reasoning", "findings", "asked"),
    *("not_checked", "features", "why", "evidence", "observations", "caps", "pictures"),
)
AT_ONCE = 2_000  # decks; of more, what a page reads later stands in files beside it
IN_FILE = 10  # decks of such a file
LISTED = 1_000  # decks that have a place in the page's list; more follow when somebody comes near its end


class Later:
    """What a page reads later, deck by deck: texts for the page itself, or files in `folder`."""

    def __init__(self, folder: Path | None) -> None:
        self.folder, self.files = folder, list[str]()
        self.texts, self.sum = list[str](), hashlib.sha256()
        for path in folder.glob("*.js") if folder else ():
            path.unlink()

    def add(self, row: Shown) -> None:
        text = pages.data(row)
        self.sum.update(text.encode())
        self.texts.append(text)
        if len(self.texts) == IN_FILE:
            self.flush()

    def flush(self) -> None:
        if self.folder and self.texts:
            name = stream.fingerprint(self.texts)[:16]  # no older page takes it for its own
            stream.write(self.folder / f"{name}.js", f"report_decks = {json.dumps(self.texts)};\n")
            self.files, self.texts = [*self.files, name], []


def data(runs: list[Run], pictures: Pictures, compared: Comparison | None, later: Later) -> Shown:
    """What the page's script shows at once; the rest of each deck goes to `later`. `compared` is claims.compare's, None
    while a run goes on. The rows are lists, of values whose names stand once."""
    prompts: dict[str, Shown] = {}
    names: list[str] = []
    rows = []
    for index, run in enumerate(runs):
        for record in whole(run):
            prompts.setdefault(prompt_of(record), _request(record))
            deck = _deck(index, run, record, pictures)
            later.add({name: deck.pop(name) for name in LATER})
            names = names or [*deck]
            rows.append([*deck.values()])
    later.flush()
    said: dict[str, dict[str, str]] = {run["label"]: {} for run in runs}
    if compared:
        pairs = decided([pair for pair in compared["pairs"] if is_headline(pair)])
        for (a, b), sentence in zip(pairs, compared["headlines"], strict=True):
            said[a][b] = sentence
    return {
        "good": better(runs)[1],
        "says": checks.SAYS if offline(runs) else {},
        "dimensions": [[name, titles(runs).get(name, name)] for name in dimensions(runs)],
        "runs": [_run(run, runs) for run in runs],
        "said": said,
        "prompts": prompts,
        "names": names,
        "rows": rows,
        "later": LATER,
        "in_file": IN_FILE if later.folder else 0,
        "files": later.files,
        "listed": LISTED,
    }


def _run(run: Run, runs: list[Run]) -> Shown:
    """A run by its key in addresses, unique among these runs, its label, its color, and where it lies."""
    place = [other for other in runs if other["name"] == run["name"]].index(run)
    key = f"{run['name']}.{place + 1}" if place else run["name"]
    where = layout.shown(run["path"])
    return {"name": key, "label": run["label"], "color": run["color"], "folder": where}


def _request(record: DeckRecord) -> Shown:
    said = {}
    for message in record.get("messages") or []:
        said[message.get("role")] = _text(message.get("content"))
    asks = record.get("asks") or {}
    own = "sources" in record or "turn" in record
    deck = edits.BEFORE + record["edit"]["before"] if "edit" in record else ""
    return {
        "text": sources.request(cast(Record, record))
        if own
        else said.get("user", "").removesuffix(deck),
        "asks": {key: value for key, value in asks.items() if key != "outline"},
        "checklist": [_only(item, ("id", "ask")) for item in record.get("checklist") or []],
    }


def _before(run: Run, record: DeckRecord, pictures: Pictures) -> Shown | None:
    """The deck before an edit."""
    if "edit" not in record:
        return None
    drawn: Render = {"slides": record.get("render", {}).get("before") or []}
    return {"markdown": record["edit"]["before"], "slides": _slides(run, drawn, pictures)}


def _text(content: object) -> str:
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return str(content or "")


def _slides(run: Run, render: Render, pictures: Pictures) -> list[Shown]:
    """The slides of a deck that there are pictures of, with what was measured of each."""
    xray = {entry.get("slide"): entry for entry in render.get("xray") or []}
    slides: list[Shown] = []
    for place, path in enumerate(render.get("slides") or [], 1):
        named = re.search(r"(\d+)\.png\Z", path)
        number = int(named[1]) if named else place
        slide: Shown = {"n": number, "img": pictures.names.get((run["name"], path))}
        seen = xray.get(number) or {}
        slide |= {key: seen.get(key) for key in ("line", "title")}
        slides.append({**slide, "seen": _only(seen, SEEN)})
    return slides


def _only(values: Mapping[str, object], keys: Collection[str]) -> Shown:
    """The given keys of a record, in their order, as far as they are there."""
    return {key: values[key] for key in keys if key in values}


def _deck(index: int, run: Run, record: DeckRecord, pictures: Pictures) -> Shown:
    gen: Gen = record.get("gen") or {}
    deck: Deck = record.get("deck") or {}
    render: Render = record.get("render") or {}
    judge: Judge = record.get("judge") or {}
    score = record["score"]
    by, images = gen.get("by"), record.get("images")
    slides = _slides(run, render, pictures)
    file = inside_run(run, deck.get("path"))
    markdown = file.read_text("utf-8", "replace") if file else None
    reply, thought = gen.get("text") or "", gen.get("reasoning") or ""
    return {
        "run": index,
        "id": record["id"],
        "prompt": prompt_of(record),
        "status": status_of(record),
        "fault": fault_of(record),
        "truncated": gen.get("finish_reason") in CUT,
        "stopped": gen.get("stopped"),
        "finish": gen.get("finish_reason"),
        "cut_by": gen.get("cut_by"),
        "usage": {k: v for k, v in (gen.get("usage") or {}).items() if v is not None},
        "took": by.get("took") if by else None,
        **{key: score.get(key) for key in ("checks", "overall", "judge_only", "checklist", *EDIT)},
        "before": _before(run, record, pictures),
        "worth": worth(score),
        "dimensions": score.get("dimensions") or {},
        "floored": bool(score.get("floored")),
        "passed": judge.get("checks"),
        "failed": Counter(one["check"] for one in judge.get("findings") or []),
        "answers": judge.get("checklist") or [],
        **{key: judge.get(key) or {} for key in ("why", "evidence", "not_checked")},
        **{key: judge.get(key) or [] for key in ("findings", "asked", "observations", "caps")},
        "features": _only(
            record.get("features") or {}, ("craft", "craft_v5", "counts", "grounding", "kept")
        ),
        "slides": slides,
        "drawn": len(slides),
        "expected": render.get("expected"),
        "errors": render.get("errors") or [],
        "markdown": _cut(markdown),
        "reply": None if slides and markdown else _cut(reply[:6000]),
        "reasoning": _cut(thought),
        "pictures": [
            _only(item, ("query", "provider", "line"))
            for item in (images.get("items") or [] if images else [])
        ],
    }


def _cut(text: str | None) -> str | None:
    if text is None or len(text) <= LONGEST:
        return text
    return text[:LONGEST] + f"\n… {len(text) - LONGEST:,} more characters are in the run folder"


# Who made the numbers, from what the runs say of themselves

Facts = list[tuple[str, str]]  # what it is, and what it is for this run


def command(runs: list[Run]) -> str:
    """The command that writes such a report of these runs."""
    folders = [layout.shown(run["path"]) for run in sorted(runs, key=lambda run: run["order"])]
    return f"bin/run-report --out results/reports/NAME {' '.join(folders)}"


def origin(runs: list[Run]) -> list[tuple[str, Facts]]:
    """Each run's label with its facts. No path of this machine, no key, no endpoint's address."""
    return [(run["label"], _facts(run)) for run in runs]


def _facts(run: Run) -> Facts:
    protocol, model, folder = run["protocol"], run["summary"]["model"], layout.shown(run["path"])
    engine = cast(Record, protocol.get("renderer") or {})
    judge = protocol.get("judge") or {}
    asked = run["summary"]["asked"]["parameters"]
    prompts = (protocol.get("prompts") or {}).get("sha256", "unknown")[:12]
    if model.get("files"):
        who = ("decks", f"read from {model['files']}; no model was asked")
    else:
        who = ("model", _model(run))
    facts = [
        who,
        ("when", _when(run)),
        ("command", layout.make_command(run["path"]) if "/" in folder else "not recorded"),
        ("folder", folder),
        ("asked", ", ".join(f"{name} {value}" for name, value in asked.items())),
        ("prompts", f"{run['summary']['prompts']}, sha256 {prompts}"),
        ("judge", str(judge.get("name") or judge.get("slug") or run["summary"]["judge"])),
        ("renderer", f"slidev {engine['slidev']}" if engine.get("slidev") else ""),
        ("browser", engine.get("browser", "")),
        ("protocol", f"{protocol.get('protocol') or ''} {protocol.get('hash') or 'unknown'}"),
        ("tools", ", ".join(_tools(run))),
    ]
    return [(name, value.strip()) for name, value in facts if value.strip()]


def _model(run: Run) -> str:
    """The model as the registry calls it, and as endpoints called what answered."""
    model = run["summary"]["model"]
    said = [
        (by.get("response") or {}).get("model")
        for stage, by in made_by(run["records"])
        if stage == "gen"
    ]
    others = sorted({str(name) for name in said if name} - {model["slug"]})
    more = f"; the endpoint called it {listed(others)}" if others else ""
    return f"{model['name']} ({model['slug']}){more}"


def _when(run: Run) -> str:
    """From the first reply to the end of the last stage, in UTC."""
    worked = spans(run["records"])
    if not worked:
        return "not recorded"
    first, last = worked[0][0], max(end for _, end in worked)
    same_day = first.date() == last.date()
    return f"{first:%Y-%m-%d %H:%M} to {last:{'%H:%M' if same_day else '%Y-%m-%d %H:%M'}} UTC"


def _tools(run: Run) -> list[str]:
    """The versions of decksmith that made the values, with the images they ran in."""
    found = {(by.get("version"), by.get("image")) for _, by in made_by(run["records"])}
    return sorted(
        f"decksmith {version}" + (f" in {image}" if image not in (None, "host") else "")
        for version, image in found
        if version
    )


# What each measure is, in which unit


SCORES = {
    "judge_only": "Overall without VisCraft: what the judge alone gives.",
    "viscraft": "What the deck's markdown uses of Slidev, counted by the scan that the protocol names.",
    "design": "How soundly the slides are laid out.",
    "content": "Whether what was asked for is there.",
    "coherence": "Whether the deck opens, goes on and closes as one talk.",
}


def glossary(runs: list[Run]) -> Facts:
    """The measures of these runs' scores with a sentence each, Overall first; none where the checks are all. The template
    has the other words."""
    named = titles(runs)
    if offline(runs):
        return []
    weights = (runs[0]["protocol"].get("score") or {}).get("weights") or {}
    parts = [f"{weight:g} {named.get(name, name)}" for name, weight in weights.items()]
    overall = f"The protocol's score of a deck: {' + '.join(parts)}."
    words = [(named["overall"], overall)] if parts else []
    return words + [(named[name], SCORES[name]) for name in measures(runs) if name in SCORES]
