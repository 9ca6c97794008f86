"""The page to look through every deck of some runs."""

import os
import tempfile
from collections import Counter
from pathlib import Path
from typing import NotRequired, TypedDict

from decksmith import __version__
from decksmith.core import cli, pages, stream
from decksmith.core.records import prompt_of
from decksmith.measure.results import (
    claims,
    looks,
    report_data,
    report_pictures,
    tables,
)
from decksmith.measure.results.comparison import Comparison, Run
from decksmith.measure.results.pairs import better, from_folder, is_headline
from decksmith.measure.results.plots import loss, plots
from decksmith.measure.results.records import Mean
from decksmith.measure.results.report_data import Shown
from decksmith.measure.results.runs import (
    agreement_said,
    caption,
    judged_by,
    offline,
    titles,
    with_decks,
)
from decksmith.measure.results.summary import SHARES, scale, status_of
from decksmith.measure.results.tables import spent

MARK = '<svg xmlns="http://www.w3.org/2000/svg" width="1" height="1"/>\n'
MANY = 3  # pairs of models whose sentences the page begins with; of more it says the ranks
DOCS = cli.ROOT / "docs"


class Live(TypedDict):
    """How far the run is that a page was written during."""

    model: str
    done: int
    of: int
    mark: NotRequired[str]  # a picture beside the page, which is there until the page is replaced


def page(
    out: Path,
    runs: list[Run],
    training: Path | None = None,
    single: bool = False,
    live: Live | None = None,
) -> tuple[Path, dict[str, int]]:
    """Write the report of `runs` into the folder `out`: index.html, pictures, plots. Returns the page and what was done,
    in numbers.

    `training` is the folder of the training run (results/sft/RUN) that made one of the models: its loss is drawn too.
    `single`: one file instead, `out`/report.html, with small pictures and the plots inside.
    `live`: a run is not finished. Such a page counts and shows, and compares nothing; it loads itself again when it is replaced.

    The page opens from disk. Everything a model wrote reaches it as JSON or as escaped text, never as markup; a content
    security policy allows only this page's own script, style and pictures.
    """
    with_decks(runs, "a report")
    compared = claims.compare(runs, tested=not live)
    seen = [] if live else looks.remember(runs)["said"]
    pictures = report_pictures.in_page(runs) if single else report_pictures.in_folder(out, runs)
    data = report_data.data(runs, pictures, compared)
    # Where the docs lie as seen from the page; None where the page is not in the checkout.
    inside = not single and out.resolve().is_relative_to(cli.ROOT.resolve())
    docs = Path(os.path.relpath(DOCS, out.resolve())).as_posix() if inside else None
    data |= {"markdown": "" if live else tables.markdown(runs, compared), "docs": docs}
    mark = f"now-{stream.fingerprint([data, live])[:12]}.svg"
    at_once, later = report_data.apart({**data, "live": live and {**live, "mark": mark}})
    html = pages.template("report.html.j2").render(
        **_headline(runs, compared),
        tables=[] if live else _tables(runs, compared),
        prompts=len({prompt_of(record) for run in runs for record in run["records"]}),
        counted=_counted(runs),
        honest=_honest(runs),
        offline=offline(runs),
        title=" and ".join(run["label"] for run in runs)
        if len(runs) < 3
        else f"{len(runs)} models",
        caption=caption(runs),
        protocol=runs[0]["protocol"].get("hash") or "unknown",
        cards=[_card(run) for run in runs],
        seen=seen,
        plots=[] if live else _plots(out, runs, compared, training, single),
        live=live,
        words=report_data.glossary(runs),
        docs=docs,
        origin=report_data.origin(runs),
        command=report_data.command(runs),
        version=f"decksmith {__version__}",
        policy=pages.policy(_script(), _style(), "data:" if single else "'self' file:"),
        style=pages.as_is(_style()),
        script=pages.as_is(_script()),
        data=pages.data(at_once),
        later=[pages.data(deck) for deck in later],
        inside=pages.data(pictures.inside) if single else None,
    )
    file = out / ("report.html" if single else "index.html")
    before = [] if single else [*out.glob("now-*.svg")]
    if live:
        stream.write(out / mark, MARK)
    stream.write(file, html)
    for other in before:
        if not live or other.name != mark:
            other.unlink(missing_ok=True)
    return file, {"decks": sum(len(run["records"]) for run in runs), **pictures.counts()}


def _tables(runs: list[Run], compared: Comparison) -> list[tuple[object, ...]]:
    """Each table, and how many of its columns are words."""
    return [(*one, tables.words_in(one[0])) for one in tables.tables(runs, compared)]


def _headline(runs: list[Run], compared: Comparison) -> Shown:
    """What the page begins with: a few sentences that may be said, and what stands against them."""
    pairs = [pair for pair in compared["pairs"] if is_headline(pair)]
    settled = {(pair["a"], pair["b"]) for pair in pairs if pair["verdict"] == "beats"}
    found = [*zip(claims.decided(pairs), compared["headlines"], strict=True)]
    ranked = claims.ranked(compared) if len(runs) > 1 else None
    said = [(models in settled, sentence) for models, sentence in found]
    begins, more = said, []
    if len(said) > MANY and ranked:
        begins, more = [(True, ranked)], said
    if not said:
        begins = [(True, alone(run)) for run in runs]
    return {
        "headlines": begins,
        "others": more,
        "span": None if more else ranked,
        "limits": tables.limited(compared),
    }


def alone(run: Run) -> str:
    """What there is to say of one run by itself."""
    good = better([run])[1]
    said = f"The decks of {run['label']} render for {tables.renders(run)} requests"
    mean = run["summary"]["means"]["renderable"].get(good)
    if mean is None or mean["mean"] is None:
        return f"{said}."
    value = tables.goodness(mean, good)
    if good == "checks":
        return f"{said}. They pass {value} of the checks."
    return f"{said}. Those get {value} of 5 ({titles([run])[good]})."


def _plots(
    out: Path, runs: list[Run], compared: Comparison, training: Path | None, single: bool
) -> list[tuple[str, str, str]]:
    """The addresses of each plot on light and on dark paper, and its words for who cannot see it."""
    with tempfile.TemporaryDirectory() as spare:
        folder = Path(spare) if single else out / "plots"
        # The light ones as PNG too, for whoever wants to show them elsewhere.
        forms = {"light": ("svg",) if single else ("svg", "png"), "dark": ("svg",)}
        files = plots(folder, runs, compared, forms)
        files += loss(folder, training / "metrics.jsonl", forms) if training else []

        def address(name: str) -> str:
            if not single:
                return f"plots/{name}"
            return report_pictures.data_uri((folder / name).read_bytes(), "image/svg+xml")

        shown = [(name, words) for name, words in _ALT.items() if f"{name}.svg" in files]
        return [(address(f"{n}.svg"), address(f"{n}-dark.svg"), words) for n, words in shown]


def _counted(runs: list[Run]) -> str:
    """How many decks there are, by models and, where nobody was asked, from folders."""
    decks, others, models = 0, 0, 0
    for run in runs:
        read = from_folder(run)
        decks += len(run["records"])
        others += len(run["records"]) * read
        models += not read
    total, by = f"{decks} deck{'s' * (decks != 1)}", f"by {models} model{'s' * (models != 1)}"
    if not models:
        return f"{total} from a folder"
    return f"{total}: {decks - others} {by}, {others} from a folder" if others else f"{total} {by}"


def _style() -> str:
    return pages.faces() + (pages.WEB / "report.css").read_text()


def _script() -> str:
    return pages.script("diff.js", "report.js")


def _honest(runs: list[Run]) -> str:
    """What the numbers on the page are, for somebody who reads nothing else."""
    judge = judged_by(runs)
    if judge is None:
        return "No deck could be judged; what failed, and where, is below."
    if offline(runs):
        return (
            "No model or person has read these decks. A check is a yes or no about a slide, or about something that was asked "
            "for. Compare the checks passed only with other offline scores."
        )
    return f"Scores by {judge}, a vision model that saw the request and the pictures, never the markdown. It can be wrong; {agreement_said(runs)}."


# How many decks of each status a card says.
STATES = {
    "rendered": "without an error",
    "partial": "with a slide that failed",
    "failed": "that do not render",
    "excluded": "not counted: no fault of the model's",
}
_ALT = {
    "scores": "How many decks of each model render, and how good these are, with intervals",
    "checks": "The share of slides, or of things that were asked for, that passes each check, by model",
    "deltas": "Paired differences to the first run",
    "loss": "Loss over the steps of the training",
}


def _card(run: Run) -> Shown:
    """What the summary card of a run shows."""
    summary, good = run["summary"], better([run])[1]
    states = Counter(map(status_of, run["records"]))
    drawn = summary["means"]["renderable"].get(good)
    counted = summary["means"]["floor"].get(good)
    counts = [(state, states[state]) for state in STATES if states[state]]
    bar, x = [], 0.0
    for state, n in counts:
        width = 400 * n / summary["n"]
        bar.append((state, round(x, 2), round(width, 2)))
        x += width
    return {
        "bar": bar,
        "label": run["label"],
        "slug": summary["model"]["slug"] or "",
        "color": run["color"],
        "states": [(state, n, STATES[state]) for state, n in counts],
        "truncated": summary["truncated"],
        "classes": summary["faults"]["classes"],
        "spent": spent(summary),
        "renders": tables.renders(run),
        "good": drawn and tables.goodness(drawn, good).partition(" [")[0],
        "good_title": "of checks passed" if good == "checks" else titles([run])[good],
        "counted": counted and tables.goodness(counted, good).partition(" [")[0],
        "text": tables.valued(good, drawn),
        "ticks": _ticks(good),
        "marks": [_mark(mean, good) for mean in (counted, drawn) if mean],
    }


def _ticks(measure: str) -> list[tuple[float, str]]:
    """Where a card's track has its five numbers, and these."""
    words = [f"{25 * n} %" if measure in SHARES else str(n + 1) for n in range(5)]
    return [(4 + 98.0 * n, word) for n, word in enumerate(words)]


def _mark(mean: Mean, measure: str) -> dict[str, float | None]:
    """Where a mean and its interval stand on a card's track, in units of its picture."""
    least, most = scale(measure)

    def place(value: float | None) -> float | None:
        return None if value is None else round(4 + 392 * (value - least) / (most - least), 1)

    return {"mean": place(mean["mean"]), "lo": place(mean["lo"]), "hi": place(mean["hi"])}
