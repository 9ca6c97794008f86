"""The page to look through every deck of some runs."""

import json
import os
import tempfile
from collections import Counter
from functools import partial
from pathlib import Path

from decksmith import __version__
from decksmith.core import cli, pages, stream
from decksmith.core.records import prompt_of
from decksmith.measure.judging.scoring import EDIT
from decksmith.measure.results import claims, looks, report_data, report_pictures, tables
from decksmith.measure.results.comparison import Comparison, Run
from decksmith.measure.results.pairs import better, from_folder, is_headline
from decksmith.measure.results.plots import loss, plots
from decksmith.measure.results.report_data import Later, Live, Shown
from decksmith.measure.results.runs import (
    agreement_said,
    judged_by,
    of_edits,
    offline,
    titles,
    with_decks,
)
from decksmith.measure.results.summary import ERROR, status_of
from decksmith.measure.results.tables import spent

MANY = 3  # pairs of models; of more the page begins with the ranks
MAILED = 18 << 20  # bytes of pictures; a third more as text is what most mail takes
DOCS = cli.ROOT / "docs"
VERSION = "version.js"  # beside the page: by it the page of a moment sees that it was replaced
LIVE = "report_live = true"  # what stands in it meanwhile


def is_live(out: Path) -> bool:
    """Whether the page in `out` is one of a moment, which loads itself again."""
    file = out / VERSION
    return file.is_file() and LIVE in file.read_text(encoding="utf-8")


def page(
    out: Path,
    runs: list[Run],
    training: Path | None = None,
    single: bool = False,
    live: Live | None = None,
) -> tuple[Path, dict[str, int]]:
    """Write the report of `runs` into the folder `out`: index.html, pictures, plots, and send.js, which has the whole page as
    one file. Returns the page and what was done, in numbers.

    `training` is the folder of the training run (results/sft/RUN) that made one of the models: its loss is drawn too.
    `single`: one file instead, `out`/report.html, with pictures and plots inside. `live`: how far a run is that goes on; its
    page compares nothing, so that it counts as no look, and loads itself again when version.js beside it changes.

    The page opens from disk. Everything a model wrote reaches it as JSON or as escaped text, never as markup; a content
    security policy allows only this page's own script, style and pictures, and of the scripts beside it those that it adds
    with its key, a hash over all of it, which nothing in it can know.
    """
    with_decks(runs, "a report")
    compared = None if live else claims.compare(runs)
    with tempfile.TemporaryDirectory() as spare:
        folder = Path(spare) if single else out
        pictures = report_pictures.in_folder(folder, runs)
        shown = _shown(runs, compared, live)
        shown["plots"] = _plots(folder, runs, compared, training) if compared else []
        many = sum(len(run["records"]) for run in runs) > report_data.AT_ONCE
        later = report_data.Later(out / "later" if many and not single else None)
        data = report_data.data(runs, pictures, compared, later) | {"live": live}
        if compared:
            data["markdown"] = tables.markdown(runs, compared)
        data["key"] = stream.fingerprint([shown, data, later.sum.hexdigest()])
        whole = None
        if single or (not live and not many and report_pictures.weight(folder) <= MAILED):
            whole = _html(shown, data, later, folder)
        if single:
            file, html = out / "report.html", whole or ""
        else:
            inside = out.resolve().is_relative_to(cli.ROOT.resolve())  # the checkout
            docs = Path(os.path.relpath(DOCS, out.resolve())).as_posix() if inside else None
            shown |= {"docs": docs, "send": bool(whole)}
            file, html = out / "index.html", _html(shown, data, later)
            (out / "send.js").unlink(missing_ok=True)
            if whole:
                stream.write(out / "send.js", f"report_file = {json.dumps(whole)};\n")
        stream.write(file, html)
        if not single:
            ends = f" {LIVE};" if live else ""
            stream.write(out / VERSION, f'report_version = "{data["key"]}";{ends}\n')
    return file, {"decks": sum(len(run["records"]) for run in runs), **pictures.counts()}


def _html(shown: Shown, data: Shown, later: Later, inside: Path | None = None) -> str:
    """The page; `inside`: the folder of the pictures and plots that it carries in itself."""
    style = pages.faces() + (pages.WEB / "report.css").read_text()
    script = pages.script("diff.js", "report.js")
    address = partial(report_pictures.address, inside)
    images, key = ("data:", "") if inside else ("'self' file:", str(data["key"]))
    return pages.template("report.html.j2").render(
        **{"docs": None, "send": False, **shown},
        address=address,
        policy=pages.policy(script, style, images, key),
        style=pages.as_is(style),
        script=pages.as_is(script),
        data=pages.data(data),
        later=[pages.as_is(text) for text in later.texts],
        inside=pages.data(report_pictures.inside(inside)) if inside else None,
    )


def _shown(runs: list[Run], compared: Comparison | None, live: Live | None) -> Shown:
    """What the page's template says of some runs."""
    names = [run["label"] for run in runs]
    found = tables.tables(runs, compared) if compared else []
    return {
        "live": live,
        **(
            _headline(runs, compared) if compared else {"headlines": [], "others": [], "limits": []}
        ),
        "tables": [(*one, tables.words_in(one[0])) for one in found],
        "prompts": len({prompt_of(record) for run in runs for record in run["records"]}),
        "counted": _counted(runs),
        "honest": _honest(runs),
        "offline": offline(runs),
        "edits": of_edits(runs),
        "title": " and ".join(names) if len(runs) < 3 else f"{len(runs)} models",
        "cards": [_card(run) for run in runs],
        "words": report_data.glossary(runs),
        "origin": report_data.origin(runs),
        "command": report_data.command(runs),
        "version": f"decksmith {__version__}",
    }


def _headline(runs: list[Run], compared: Comparison) -> Shown:
    """What the page begins with: the sentence that says most, the others, and what stands against them."""
    pairs = [pair for pair in compared["pairs"] if is_headline(pair)]
    settled = {(pair["a"], pair["b"]) for pair in pairs if pair["verdict"] == "beats"}
    found = [*zip(claims.decided(pairs), compared["headlines"], strict=True)]
    said = [(models in settled, sentence) for models, sentence in found]
    ranked = claims.ranked(compared) if len(runs) > 1 else None
    if ranked:  # of many pairs the ranks say most, of few each pair more than they
        said.insert(0 if len(said) > MANY else len(said), (True, ranked))
    if not said:
        said = [(True, alone(run)) for run in runs]
    looked = [(False, f"{line}.") for line in looks.remember(runs)["said"]]
    return {"headlines": said[:1], "others": said[1:] + looked, "limits": tables.limited(compared)}


def alone(run: Run) -> str:
    """What there is to say of one run by itself."""
    good = better([run])[1]
    said = f"The decks of {run['label']} render for {tables.renders(run)} requests"
    means = run["summary"]["means"]
    if of_edits([run]):
        met, stayed = (tables.goodness(means["floor"].get(name), name) for name in EDIT[1:])
        return f"{run['label']} meets {met} of what the edits ask for, and {stayed} of the rest stayed as it was."
    mean = means["renderable"].get(good)
    if mean is None or mean["mean"] is None:
        return f"{said}."
    value = tables.goodness(mean, good)
    if good == "checks":
        return f"{said}. They pass {value} of the checks."
    return f"{said}. Those get {value} of 5 ({titles([run])[good]})."


def _plots(
    folder: Path, runs: list[Run], compared: Comparison, training: Path | None
) -> list[tuple[str, str]]:
    """Draw the plots; the name of each, and its words for who cannot see it."""
    # The light ones as PNG too, for whoever wants to show them elsewhere.
    forms = {"light": ("svg", "png"), "dark": ("svg",)}
    files = plots(folder / "plots", runs, compared, forms)
    files += loss(folder / "plots", training / "metrics.jsonl", forms) if training else []
    return [(name, words) for name, words in _ALT.items() if f"{name}.svg" in files]


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


def _honest(runs: list[Run]) -> str:
    """What the numbers on the page are, for somebody who reads nothing else."""
    judge = judged_by(runs)
    if judge is None:
        return "No deck could be judged; what failed, and where, is below."
    if of_edits(runs):
        return (
            "No model or person has read these decks. A request is met as far as its checks hold; a slide stayed where its "
            "markdown is the same byte for byte, and its picture pixel for pixel."
        )
    if offline(runs):
        return (
            "No model or person has read these decks. A check is a yes or no about a slide, or about something that was asked "
            "for. Compare the checks passed only with other offline scores."
        )
    return f"Scores by {judge}, a vision model that saw the request and the pictures, never the markdown. It can be wrong; {agreement_said(runs)}."


# How many decks of each status a card says beside how many render.
STATES = {"partial": ERROR, "failed": "do not render", "excluded": "not counted"}
_ALT = {
    "scores": "How many decks of each model render, and how good these are, with intervals",
    "loss": "Loss over the steps of the training",
}


def _card(run: Run) -> Shown:
    """What the summary card of a run shows."""
    summary, good = run["summary"], better([run])[1]
    states = Counter(map(status_of, run["records"]))
    bar, x = [], 0.0
    for state in ("rendered", "partial", "failed", "excluded"):
        width = 400 * states[state] / summary["n"]
        bar.append((state, round(x, 2), round(width, 2)))
        x += width
    shown = [("renderable", good, ""), ("floor", good, "counting failures as 1")]
    if of_edits([run]):
        shown = [("floor", name, titles([run])[name].lower()) for name in (*EDIT[1:], EDIT[0])]
    means = [(name, summary["means"][table].get(name), words) for table, name, words in shown]
    tokens_in, tokens_out, cost, _ = spent(summary)
    usage = [f"{tokens_in} tokens in", f"{tokens_out} out", *([cost] if summary["cost"] else [])]
    return {
        "bar": bar,
        "label": run["label"],
        "slug": summary["model"]["slug"] or "",
        "color": run["color"],
        "states": [
            (state, f"{n} {words}") for state, words in STATES.items() if (n := states[state])
        ],
        "truncated": summary["truncated"],
        "stopped": summary.get("stopped"),
        "classes": summary["faults"]["classes"],
        "spent": ", ".join(usage) if summary["tokens"]["completion"] else "",
        "renders": tables.renders(run),
        "good_title": "of checks passed" if good == "checks" else titles([run])[good],
        "values": [
            (*tables.valued(name, mean).partition(" [")[::2], words)
            if name not in EDIT
            else (tables.goodness(mean, name), "", words)
            for name, mean, words in means
            if mean and mean["mean"] is not None
        ],
    }
