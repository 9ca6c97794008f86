"""The page to look through every deck of some runs."""

import os
import tempfile
from collections import Counter
from pathlib import Path

from decksmith import __version__
from decksmith.core import cli, pages, stream
from decksmith.core.records import prompt_of
from decksmith.measure.results import (
    claims,
    looks,
    report_data,
    report_pictures,
    tables,
    text,
)
from decksmith.measure.results.comparison import Comparison, Run
from decksmith.measure.results.pairs import is_headline
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
from decksmith.measure.results.summary import status_of
from decksmith.measure.results.tables import spent

MANY = 3  # pairs of models whose sentences the page begins with; of more it says the ranks
DOCS = cli.ROOT / "docs"


def page(
    out: Path, runs: list[Run], training: Path | None = None, single: bool = False
) -> tuple[Path, dict[str, int]]:
    """Write the report of `runs` into the folder `out`: index.html, pictures, plots. Returns the page and what was done,
    in numbers.

    `training` is the folder of the training run (results/sft/RUN) that made one of the models: its loss is drawn too.
    `single`: one file instead, `out`/report.html, with small pictures and the plots inside.

    The page opens from disk. Everything a model wrote reaches it as JSON or as escaped text, never as markup; a content
    security policy allows only this page's own script, style and pictures.
    """
    with_decks(runs, "a report")
    compared, seen = claims.compare(runs), looks.remember(runs)
    pictures = report_pictures.in_page(runs) if single else report_pictures.in_folder(out, runs)
    data = report_data.data(runs, pictures, compared)
    # Where the docs lie as seen from the page; None where the page is not in the checkout.
    inside = not single and out.resolve().is_relative_to(cli.ROOT.resolve())
    docs = Path(os.path.relpath(DOCS, out.resolve())).as_posix() if inside else None
    at_once, later = report_data.apart(
        {**data, "markdown": tables.markdown(runs, compared), "docs": docs}
    )
    html = pages.template("report.html.j2", number=_number, place=_place).render(
        **_headline(runs, compared),
        tables=tables.tables(runs, compared),
        prompts=len({prompt_of(record) for run in runs for record in run["records"]}),
        counted=_counted(runs),
        honest=_honest(runs),
        overall=titles(runs)["overall"],
        title=" and ".join(run["label"] for run in runs)
        if len(runs) < 3
        else f"{len(runs)} models",
        caption=caption(runs),
        protocol=runs[0]["protocol"].get("hash") or "unknown",
        cards=[_card(run) for run in runs],
        seen=seen["said"],
        plots=_plots(out, runs, compared, training, single),
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
    stream.write(file, html)
    return file, {"decks": sum(len(run["records"]) for run in runs), **pictures.counts()}


def _headline(runs: list[Run], compared: Comparison) -> Shown:
    """What the page begins with: a few sentences that may be said, and what stands against them."""
    pairs = [pair for pair in compared["pairs"] if is_headline(pair)]
    people = {run["label"] for run in runs if run["summary"]["model"].get("files")}
    pairs.sort(key=lambda pair: bool({pair["a"], pair["b"]} & people))  # models first
    ranked = claims.ranked(compared) if len(runs) > 1 else None
    said = [(pair["verdict"] == "beats", pair["sentence"]) for pair in pairs]
    begins, more = (said, []) if len(said) <= MANY else ([(True, ranked)], said)
    if not said:
        begins = [(True, _alone(run)) for run in runs]
    return {
        "headlines": begins,
        "others": more,
        "span": None if more else ranked,
        "limits": tables.limited(compared),
    }


def _alone(run: Run) -> str:
    """What there is to say of one run by itself."""
    value = run["summary"]["means"]["floor"].get("overall")
    if value is None or value["mean"] is None:
        return f"{run['label']}: no deck has a score"
    of = f"{value['n']} prompt{'s' * (value['n'] != 1)}"
    return f"{run['label']}: {text.interval(value)} of 5 on {of}, {titles([run])['overall']}, floor"


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
        read = bool(run["summary"]["model"].get("files"))
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


def _number(value: float | None) -> str:
    return "–" if value is None else text.figure(value)


def _place(score: float) -> float:
    """Where a score from 1 to 5 stands on a card's track, in units of its picture."""
    return round(4 + 98 * (score - 1), 1)


def _honest(runs: list[Run]) -> str:
    """What the numbers on the page are, for somebody who reads nothing else."""
    judge = judged_by(runs)
    if judge is None:
        return "No deck could be judged; what failed, and where, is below."
    if offline(runs):
        return (
            f"Scores by {judge}: measures computed from the rendered slides, their pixels and their text. No vision model and no "
            "person looked at these pictures, so they compare with other offline scores only."
        )
    return f"Scores by {judge}, a vision model that saw the request and the pictures, never the markdown. It can be wrong; {agreement_said(runs)}."


STATES = ("rendered", "partial", "failed", "excluded")
_ALT = {
    "scores": "Overall score of each model, and its score in each dimension, with intervals",
    "deltas": "Paired differences to the first run",
    "loss": "Loss over the steps of the training",
}


def _card(run: Run) -> Shown:
    """What the summary card of a run shows."""
    summary = run["summary"]
    states = Counter(map(status_of, run["records"]))
    empty: Mean = {"mean": None, "lo": None, "hi": None, "n": 0}
    means = {name: summary["means"][name].get("overall", empty) for name in ("floor", "renderable")}
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
        "n": summary["n"],
        "states": counts,
        "truncated": summary["truncated"],
        "classes": summary["faults"]["classes"],
        "spent": spent(summary),
        "floor": means["floor"],
        "renderable": means["renderable"],
        "text": {name: text.interval(value) for name, value in means.items()},
    }
