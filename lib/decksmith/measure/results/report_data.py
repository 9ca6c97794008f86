"""What the report's script shows of each deck, as JSON data (assets/web/report.js)."""

import re
from collections.abc import Collection, Mapping
from typing import cast

from decksmith.core.records import Record, prompt_of
from decksmith.measure.decks import sources
from decksmith.measure.decks.records import Deck, Render
from decksmith.measure.judging.records import DeckRecord, Judge
from decksmith.measure.results import report_origin
from decksmith.measure.results.comparison import Comparison, Run
from decksmith.measure.results.plots import dimensions
from decksmith.measure.results.report_pictures import Pictures, inside_run
from decksmith.measure.results.report_words import measures
from decksmith.measure.results.runs import caption, judged_by, titles
from decksmith.measure.results.summary import fault_of, status_of
from decksmith.models.records import Gen

LONGEST = 60_000  # characters of a deck, a reply or a thought that the page carries
SEEN = ("words", "contrast", "overflow", "font", "images_broken", "blank")  # of a slide's X-ray


Shown = dict[str, object]  # JSON for the page's script

# What only an open deck shows, or a search looks through: nine tenths of a page of many decks.
LATER = (
    "markdown",
    "reply",
    "reasoning",
    "measures",
    "features",
    "why",
    "evidence",
    "observations",
    "caps",
    "pictures",
)
XRAY = ("line", "seen")  # the same of a slide


def apart(data: Shown) -> tuple[Shown, list[Shown]]:
    """`data` as the page's script wants it: without what it reads later, and that, deck by deck. A deck's `xray` has an entry for
    each of its slides."""
    rows, later = [], []
    for row in cast(list[Shown], data["rows"]):
        shown = cast(list[Shown], row["slides"])
        slides = [{k: v for k, v in slide.items() if k not in XRAY} for slide in shown]
        light = {key: value for key, value in row.items() if key not in LATER}
        rows.append({**light, "slides": slides})
        xray = [_only(slide, XRAY) for slide in shown]
        later.append({**_only(row, LATER), "xray": xray})
    return {**data, "rows": rows, "later": [*LATER, "xray"]}, later


def data(runs: list[Run], pictures: Pictures, compared: Comparison) -> Shown:
    """Everything that the page's script shows; `compared` is claims.compare's."""
    prompts: dict[str, Shown] = {}
    rows = []
    for index, run in enumerate(runs):
        for record in run["records"]:
            prompts.setdefault(prompt_of(record), _request(record))
            rows.append(_deck(index, run, record, pictures))
    return {
        "judge": judged_by(runs),
        "caption": caption(runs),
        "overall": titles(runs)["overall"],
        "dimensions": [[name, titles(runs).get(name, name)] for name in dimensions(runs)],
        "measures": measures(runs),
        "runs": [_run(run, runs) for run in runs],
        "said": {label: _said(compared, label) for label in (run["label"] for run in runs)},
        "prompts": prompts,
        "rows": rows,
    }


def _run(run: Run, runs: list[Run]) -> Shown:
    """A run by its key in addresses, unique among these runs, its label, its color, and where it lies."""
    alike = [other for other in runs if other["name"] == run["name"]]
    place = alike.index(run)
    key = run["name"] if place == 0 else f"{run['name']}.{place + 1}"
    folder = report_origin.folder(run["path"])
    return {"name": key, "label": run["label"], "color": run["color"], "folder": folder}


def _said(compared: Comparison, label: str) -> dict[str, str]:
    """The sentence about a run and each other, by the other's label."""
    sentences = {}
    for pair in compared["pairs"]:
        if (pair["accounting"], pair["measure"]) == ("floor", "overall") and pair["a"] == label:
            sentences[pair["b"]] = pair["sentence"]
    return sentences


def _request(record: DeckRecord) -> Shown:
    said = {}
    for message in record.get("messages") or []:
        said[message.get("role")] = _text(message.get("content"))
    asks = record.get("asks") or {}
    own = "sources" in record or "turn" in record
    return {
        "text": sources.request(cast(Record, record)) if own else said.get("user", ""),
        "system": said.get("system", ""),
        "sets": record.get("sets") or [],
        "asks": {key: value for key, value in asks.items() if key != "outline"},
        "checklist": [
            {"id": item.get("id"), "ask": item.get("ask")} for item in record.get("checklist") or []
        ],
    }


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
        seen = xray.get(number)
        slide |= {key: seen.get(key) if seen else None for key in ("line", "title")}
        slides.append({**slide, "seen": _only(seen or {}, SEEN)})
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
        "truncated": gen.get("finish_reason") == "length",
        "finish": gen.get("finish_reason"),
        "cut_by": gen.get("cut_by"),
        "usage": {k: v for k, v in (gen.get("usage") or {}).items() if v is not None},
        "took": by.get("took") if by else None,
        "overall": score.get("overall"),
        "judge_only": score.get("judge_only"),
        "checklist": score.get("checklist"),
        "dimensions": score.get("dimensions") or {},
        "floored": bool(score.get("floored")),
        "checks": judge.get("checklist") or [],
        "why": judge.get("why") or {},
        "evidence": judge.get("evidence") or {},
        "observations": judge.get("observations") or [],
        "caps": judge.get("caps") or [],
        "measures": judge.get("measures") or {},
        "features": _only(
            record.get("features") or {}, ("craft", "craft_v5", "counts", "grounding", "kept")
        ),
        "slides": slides,
        "expected": render.get("expected"),
        "errors": render.get("errors") or [],
        "markdown": _cut(markdown),
        "reply": None if slides and markdown else _cut(reply[:6000]),
        "reasoning": _cut(thought),
        "pictures": [
            _only(item, ("query", "provider", "attribution", "fallback", "line"))
            for item in (images.get("items") or [] if images else [])
        ],
    }


def _cut(text: str | None) -> str | None:
    if text is None or len(text) <= LONGEST:
        return text
    return text[:LONGEST] + f"\n… {len(text) - LONGEST:,} more characters are in the run folder"
