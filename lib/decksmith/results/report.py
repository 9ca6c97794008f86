"""The page to look through every deck of some runs."""

import hashlib
import io
import os
import re
from collections import Counter
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from decksmith.core import cli, pages, stream
from decksmith.core.records import Record
from decksmith.results import claims, foreign, looks, tables, text
from decksmith.results.pairs import is_headline
from decksmith.results.plots import dimensions, loss, plots
from decksmith.results.runs import caption, judged_by, offline, titles
from decksmith.results.summary import fault_of, prompt_of, status_of
from decksmith.results.tables import spent

Pictures = dict[
    tuple[str, str], str | None
]  # file names of WebP, by the run's name and the path in it
IMAGES = {"thumb": (336, 72), "full": (980, 84)}  # width in pixels, WebP quality
LONGEST = 60_000  # characters of a deck or a reply that the page carries


def page(out: Path, runs: list[Record], training: Path | None = None) -> dict[str, int]:
    """Write the report of `runs` into the folder `out`: index.html, pictures, plots. Returns what was done, in numbers.

    `training` is the folder of the training run (results/sft/RUN) that made one of the models: its loss is drawn too.

    The page opens from disk. Everything a model wrote reaches it as JSON or as escaped text, never as markup; a content
    security policy allows only this page's own script, style and pictures.
    """
    for run in runs:
        if foreign.is_foreign(run):
            raise cli.BadData(f"{run['path']} has scores only; a report needs the decks of runs")
    out = Path(out)
    pictures, done = _pictures(out, runs)
    compared, seen = claims.compare(runs), looks.remember(runs)
    ways = {"formats": ("svg",), "inks": ("light", "dark")}
    drawn = plots(out / "plots", runs, compared, **ways)
    if training:
        drawn += loss(out / "plots", Path(training) / "metrics.jsonl", **ways)
    decks = sum(len(run["records"]) for run in runs)
    many = f"{len(runs)} models" if len(runs) > 2 else " and ".join(run["label"] for run in runs)
    shown = [name for name in drawn if "-dark" not in name]
    said = dict(
        counted=_counted(runs),
        honest=_honest(runs),
        overall=titles(runs)["overall"],
        title=many,
        caption=caption(runs),
        protocol=runs[0]["protocol"].get("hash") or "unknown",
        cards=[_card(run) for run in runs],
        tables=tables.tables(runs, compared),
        headlines=[
            (pair["verdict"], pair["sentence"]) for pair in compared["pairs"] if is_headline(pair)
        ],
        limits=tables.limited(compared),
        ranked=claims.ranked(compared) if len(runs) > 1 else None,
        seen=seen["said"],
        plots=[(name, name.replace(".svg", "-dark.svg"), _ALT[name[:-4]]) for name in shown],
    )
    stream.write(out / "index.html", _html(said, _data(runs, pictures)))
    return {"decks": decks, **done}


def _counted(runs: list[Record]) -> str:
    """How many decks there are, by models and, where nobody was asked, from folders."""
    read = [run for run in runs if run["summary"]["model"].get("files")]
    models = len(runs) - len(read)
    decks, others = (sum(len(run["records"]) for run in some) for some in (runs, read))
    total = f"{decks} deck{'s' * (decks != 1)}"
    by = f"by {models} model{'s' * (models != 1)}"
    if not read:
        return f"{total} {by}"
    if not models:
        return f"{total} from a folder"
    return f"{total}: {decks - others} {by}, {others} from a folder"


def _html(said: Record, data: Record) -> str:
    """The page: what it says, and the data that its script shows."""
    style = pages.faces() + (pages.WEB / "report.css").read_text()
    script = pages.script("report.js")
    template = pages.template("report.html.j2", number=_number, place=_place)
    return template.render(
        **said,
        policy=pages.policy(script, style, "'self' file:"),
        style=pages.as_is(style),
        script=pages.as_is(script),
        data=pages.data(data),
    )


def _number(value: float | None) -> str:
    return "–" if value is None else text.figure(value)


def _place(score: float) -> float:
    """Where a score from 1 to 5 stands on a card's track, in units of its picture."""
    return round(4 + 98 * (score - 1), 1)


def _honest(runs: list[Record]) -> str:
    """What the numbers on the page are, for somebody who reads nothing else."""
    judge = judged_by(runs)
    if judge is None:
        return "No deck could be judged; what failed, and where, is below."
    if offline(runs):
        return (
            f"Scores by {judge}: measures computed from the rendered slides, their pixels and their text. No vision model and no "
            "person looked at these pictures, so they compare with other offline scores only."
        )
    return f"Scores by {judge}, a vision model that saw the request and the pictures, never the markdown. It can be wrong."


_ALT = {
    "overall": "Overall score of each model with its interval",
    "dimensions": "Score of each model in each dimension with intervals",
    "radar": "Profile of the dimensions",
    "deltas": "Paired differences to the first run",
    "loss": "Loss over the steps of the training",
}


def _pictures(out: Path, runs: list[Record]) -> tuple[Pictures, dict[str, int]]:
    """Make the WebP files that are not there yet, remove those that nothing names: their names and the counts."""
    sources = [
        (run, path)
        for run in runs
        for record in run["records"]
        for path in (record.get("render") or {}).get("slides") or []
    ]
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        names = list(threads.map(_webp_name, sources))
        first: dict[str, tuple[Record, str]] = {}  # equal pictures are made once
        for name, source in zip(names, sources, strict=True):
            if name:
                first.setdefault(name, source)
        made = dict(
            zip(
                first, threads.map(lambda name: _sizes(out, name, *first[name]), first), strict=True
            )
        )
    good = {name for name, count in made.items() if count is not None}
    for file in out.glob("img/*/*.webp"):
        if file.name not in good:
            file.unlink()
    pictures = {
        (run["name"], path): name if name in good else None
        for (run, path), name in zip(sources, names, strict=True)
    }
    return pictures, {
        "pictures": len(names),
        "made": sum(bool(count) for count in made.values()),
        "lost": sum(name not in good for name in names),
    }


def _webp_name(source: tuple[Record, str]) -> str | None:
    """The name of a picture in the report, by its bytes; None where the run has no such file."""
    run, path = source
    file = (run["path"] / path).resolve()
    if not file.is_relative_to(run["path"].resolve()) or not file.is_file():
        return None
    return hashlib.sha256(file.read_bytes()).hexdigest()[:20] + ".webp"


def _sizes(out: Path, name: str, run: Record, path: str) -> int | None:
    """Make a picture in all sizes of the report; how many were not there yet, None where it cannot be read."""
    try:
        return sum(
            _webp(run["path"] / path, out / "img" / size / name, width, quality)
            for size, (width, quality) in IMAGES.items()
        )
    except OSError as error:
        stream.warn(f"{run['name']}/{path}", f"cannot be read as a picture ({error})")
        return None


def _webp(source: Path, path: Path, width: int, quality: int) -> bool:
    """Write the picture `source` as WebP of at most `width`; returns whether there was anything to do."""
    from PIL import Image

    if path.exists():
        return False
    with Image.open(source) as opened:
        picture = opened.convert("RGB")
    if picture.width > width:
        height = round(picture.height * width / picture.width)
        picture = picture.resize((width, height), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    picture.save(buffer, "WEBP", quality=quality, method=3)
    stream.write(path, buffer.getvalue())
    return True


def _card(run: Record) -> Record:
    """What the summary card of a run shows."""
    summary = run["summary"]
    states = Counter(map(status_of, run["records"]))
    empty = {"mean": None, "lo": None, "hi": None, "n": 0}
    means = {name: summary["means"][name].get("overall", empty) for name in ("floor", "renderable")}
    bar, x = [], 0.0
    for state in ("rendered", "partial", "failed", "excluded"):
        width = 400 * states[state] / summary["n"]
        bar.append((state, round(x, 2), round(width, 2)))
        x += width
    return {
        "bar": bar,
        "label": run["label"],
        "slug": summary["model"]["slug"] or "",
        "color": run["color"],
        "n": summary["n"],
        "states": [
            (state, states[state])
            for state in ("rendered", "partial", "failed", "excluded")
            if states[state]
        ],
        "truncated": summary["truncated"],
        "classes": summary["faults"]["classes"],
        "spent": spent(summary),
        "seconds": summary.get("by", {}).get("generation_s"),
        "floor": means["floor"],
        "renderable": means["renderable"],
        "text": {name: text.interval(value) for name, value in means.items()},
    }


def _data(runs: list[Record], pictures: Pictures) -> Record:
    """Everything the page's script shows, as JSON data (see assets/web/report.js)."""
    prompts: dict[str, Record] = {}
    rows = []
    for index, run in enumerate(runs):
        for record in run["records"]:
            prompts.setdefault(prompt_of(record), _request(record))
            rows.append(_deck(index, run, record, pictures))
    return {
        "judge": judged_by(runs),
        "caption": caption(runs),
        "dimensions": [[name, titles(runs).get(name, name)] for name in dimensions(runs)],
        "offline": offline(runs),
        "runs": [
            {"name": run["name"], "label": run["label"], "color": run["color"]} for run in runs
        ],
        "prompts": prompts,
        "rows": rows,
    }


def _request(record: Record) -> Record:
    said = {}
    for message in record.get("messages") or []:
        said[message.get("role")] = _text(message.get("content"))
    asks = record.get("asks") or {}
    return {
        "text": said.get("user", ""),
        "system": said.get("system", ""),
        "sets": record.get("sets") or [],
        "asks": {key: value for key, value in asks.items() if key != "outline"},
        "checklist": [
            {"id": item.get("id"), "ask": item.get("ask")} for item in record.get("checklist") or []
        ],
    }


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return str(content or "")


_SEEN = (
    "words",
    "contrast",
    "overflow",
    "font",
    "whitespace",
    "blank",
    "images_broken",
    "overlap",
)


def _slides(run: Record, render: Record, pictures: Pictures) -> list[Record]:
    """The slides of a deck that there are pictures of, with what was measured of each."""
    xray = {entry.get("slide"): entry for entry in render.get("xray") or []}
    slides = []
    for number, path in enumerate(render.get("slides") or [], 1):
        named = re.search(r"(\d+)\.png\Z", path)
        number = int(named[1]) if named else number
        seen = xray.get(number, {})
        slide = {"n": number, "img": pictures.get((run["name"], path))}
        slide |= {"line": seen.get("line"), "title": seen.get("title")}
        slides.append({**slide, "seen": _only(seen, _SEEN)})
    return slides


def _only(values: Record, keys: Collection[str]) -> Record:
    """The given keys of a record, in their order, as far as they are there."""
    return {key: values[key] for key in keys if key in values}


def _deck(index: int, run: Record, record: Record, pictures: Pictures) -> Record:
    gen, deck, render, judge, score = (
        record.get(key) or {} for key in ("gen", "deck", "render", "judge", "score")
    )
    slides = _slides(run, render, pictures)
    reply = gen.get("text") or gen.get("reasoning") or ""
    markdown = _read(run["path"], deck.get("path"))
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
        "took": (gen.get("by") or {}).get("took"),
        "overall": score.get("overall"),
        "judge_only": score.get("judge_only"),
        "checklist": score.get("checklist"),
        "dimensions": score.get("dimensions") or {},
        "floored": bool(score.get("floored")),
        "checks": judge.get("checklist") or [],
        "why": judge.get("why") or {},
        "caps": judge.get("caps") or [],
        "measures": judge.get("measures") or {},
        "features": _only(record.get("features") or {}, ("craft", "craft_v5", "counts")),
        "slides": slides,
        "expected": render.get("expected"),
        "errors": render.get("errors") or [],
        "markdown": _cut(markdown),
        "reply": None if slides and markdown else _cut(reply[:6000]),
        "thought": bool(not gen.get("text") and gen.get("reasoning")),
        "pictures": [
            {key: item.get(key) for key in ("query", "provider", "attribution", "fallback", "line")}
            for item in (record.get("images") or {}).get("items") or []
        ],
    }


def _read(folder: Path, path: str | None) -> str | None:
    """The text of a file inside the run folder, None when there is none."""
    file = (folder / path).resolve() if path else None
    if not file or not file.is_relative_to(folder.resolve()) or not file.is_file():
        return None
    return file.read_text("utf-8", "replace")


def _cut(text: str | None) -> str | None:
    if text is None or len(text) <= LONGEST:
        return text
    return text[:LONGEST] + f"\n… {len(text) - LONGEST:,} more characters are in the run folder"
