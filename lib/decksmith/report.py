"""What a finished run says: one summary, one table over several runs, plots, and a page to look through.

The accountings never mix: `floor` counts a model fault as 1 in every dimension (checklist: 0), `renderable` looks only at decks
that rendered. Judge, renderer and infra faults are in neither; they are counted.
"""

import itertools
import json
import re
import tomllib
from collections import Counter
from datetime import datetime
from functools import lru_cache
from pathlib import Path

from decksmith import __version__, cli, stats, stream

TITLES = {"overall": "Overall", "judge_only": "Judge only", "viscraft": "VisCraft", "design": "Design", "content": "Content",
          "coherence": "Coherence", "checklist": "Checklist", "craft": "craft", "craft_v5": "craft-v5"}
OFFLINE = "offline measures, no vision model looked at these pictures"
FILES = {"summary.json", "scores.jsonl", "protocol.json"}
COLORS = ("#2f6f9f", "#c8553d", "#4f8a5b", "#8a5a9e", "#c2912b", "#4b5563", "#b0567f", "#2a8c8c")


# One run

def summarize(numbered):
    """One object for the records of one run, given as `(line number, record)` pairs: means, counts, faults, usage.

    Means are over prompts: several samples of a prompt are averaged first. Raises cli.BadData on empty input, a record without
    score, mixed models or mixed judges.
    """
    records, seen = [], {}
    for number, record in numbered:
        if not isinstance(record.get("score"), dict):
            raise cli.BadData(f"stdin:{number}: {record['id']}: no \"score\" in this record; deck-score writes it")
        for what, value in (("model", _model(record)), ("judge", _judge(record))):
            first, other = seen.setdefault(what, (record["id"], value)) if value else (None, None)
            if value and other != value:
                raise cli.BadData(f"stdin:{number}: {record['id']}: one summary is for one {what}, here are two: {first} has "
                                  f"{json.dumps(other, sort_keys=True)}, {record['id']} has {json.dumps(value, sort_keys=True)}")
        records.append(record)
    if not records:
        raise cli.BadData("no records on stdin; a summary needs the scores.jsonl of a run")
    faults = [fault for record in records if (fault := _fault(record))]
    generated = [record["gen"] for record in records if isinstance(record.get("gen"), dict) and not record["gen"].get("error")]
    classes = Counter((fault["kind"], fault["stage"], fault["class"]) for fault in faults)
    return {
        "model": seen.get("model", (None, {"name": None, "slug": None, "params": {}}))[1],
        "judge": seen.get("judge", (None, None))[1],
        "n": len(records),
        "prompts": len({_prompt(record) for record in records}),
        "rendered": sum(bool(record["score"].get("rendered")) for record in records),
        "partial": sum(_status(record) == "partial" for record in records),
        "truncated": sum(gen.get("finish_reason") == "length" for gen in generated),
        "faults": {"kinds": {kind: sum(fault["kind"] == kind for fault in faults) for kind in stream.KINDS},
                   "classes": [{"kind": kind, "stage": stage, "class": name, "n": n}
                               for (kind, stage, name), n in sorted(classes.items(), key=lambda item: (-item[1], item[0]))]},
        "tokens": _tokens(generated),
        "cost": _cost(gen.get("usage") for gen in generated),
        "judge_cost": _cost(record["judge"].get("usage") or {"cost": 0} for record in records
                            if isinstance(record.get("judge"), dict) and not record["judge"].get("error")),
        "means": {accounting: {measure: stats.mean(values.values()) for measure, values in columns(records, accounting).items()}
                  for accounting in ("floor", "renderable")},
        "interval": {"level": stats.LEVEL, "method": "percentile bootstrap over prompts", "resamples": stats.RESAMPLES,
                     "seed": stats.SEED},
        "by": {"tool": "run-summarize", "version": __version__, **_seconds(records)},
    }


def columns(records, accounting):
    """The values behind the means: `{measure: {prompt: value}}` under one accounting, samples of one prompt averaged."""
    table = {measure: {} for measure in ["overall", "judge_only", *_dimensions(records), "checklist", "craft", "craft_v5"]}
    for record in records:
        fault, score = _fault(record), record["score"]
        if fault and (fault["kind"] != "model" or accounting == "renderable") or not fault and not score.get("rendered"):
            continue
        features = record.get("features") or {}
        found = {"overall": score.get("overall"), "judge_only": score.get("judge_only"), **(score.get("dimensions") or {}),
                 "checklist": score.get("checklist"), "craft": features.get("craft"), "craft_v5": features.get("craft_v5")}
        for measure, cells in table.items():
            value = (0 if measure == "checklist" else 1) if fault else found.get(measure)
            if value is not None:
                cells.setdefault(_prompt(record), []).append(value)
    return {measure: {prompt: sum(values) / len(values) for prompt, values in cells.items()}
            for measure, cells in table.items() if cells}


def _dimensions(records):
    found = {name: None for record in records for name in record["score"].get("dimensions") or {}}
    return sorted(found, key=lambda name: list(TITLES).index(name) if name in TITLES else len(TITLES))


def _fault(record):
    return record["score"].get("fault") or stream.fault(record)


def _prompt(record):
    return ((record.get("gen") or {}).get("sample") or {}).get("of") or record["id"]


def _model(record):
    model = (record.get("gen") or {}).get("model")
    return model and {"name": model.get("name"), "slug": model.get("slug"), "params": model.get("params") or {}}


def _judge(record):
    return (record.get("judge") or {}).get("judge")


def _status(record):
    fault = _fault(record)
    if fault:
        return "failed" if fault["kind"] == "model" else "excluded"
    return "partial" if (record.get("render") or {}).get("status") == "partial" else "rendered"


def _tokens(generated):
    usages = [gen["usage"] for gen in generated if (gen.get("usage") or {}).get("completion_tokens") is not None]
    total = {name: sum(usage.get(f"{name}_tokens") or 0 for usage in usages) for name in ("prompt", "completion", "reasoning")}
    return {**total, "records": len(usages)}


def _cost(usages):
    costs = [(usage or {}).get("cost") for usage in usages]
    return None if None in costs or not costs else round(sum(costs), 6)


def _seconds(records):
    """Seconds of generation, of each stage, and of wall time: while at least one record was in work, so a pause between reruns is none."""
    stages, spans = {}, []
    for record, key in itertools.product(records, stream.KEYS):
        by = (record.get(key) or {}).get("by") or {}
        if isinstance(by.get("took"), int | float):
            stages[key] = stages.get(key, 0) + by["took"]
            if by.get("at"):
                start = datetime.fromisoformat(by["at"]).timestamp()
                spans.append((start, start + by["took"]))
    wall, end = 0.0, float("-inf")
    for start, stop in sorted(spans):
        wall, end = wall + max(0.0, stop - max(start, end)), max(end, stop)
    return {"generation_s": round(stages.get("gen", 0), 1), "wall_s": round(wall, 1),
            "stages_s": {key: round(seconds, 1) for key, seconds in stages.items()}}


# Several runs

def load(folders):
    """The runs in these folders, ordered by label; each `{"path", "name", "order", "label", "color", "summary", "records", "protocol"}`.

    Raises cli.Missing when a folder lacks a file, cli.BadData when its files disagree, or when the runs differ in anything but
    the model: such numbers do not belong in one table.
    """
    runs = [{"order": order, **_run(Path(folder))} for order, folder in enumerate(folders)]
    if twice := [path for path, n in Counter(run["path"].resolve() for run in runs).items() if n > 1]:
        raise cli.BadData(f"{twice[0]} is named twice; a run cannot be compared with itself")
    labels = Counter(run["label"] for run in runs)
    for run in runs:
        if labels[run["label"]] > 1:
            run["label"] += f" ({run['name']})"
    taken = {run["color"] for run in runs}
    spare = (color for color in itertools.cycle(COLORS) if color not in taken or taken >= set(COLORS))
    for run in sorted(runs, key=lambda run: run["name"]):
        run["color"] = run["color"] or next(spare)
    for other in runs[1:]:
        _same_protocol(runs[0], other)
    return sorted(runs, key=lambda run: (run["label"].casefold(), run["name"]))


def _run(folder):
    make = f"make baseline MODEL={folder.name}"
    if not folder.is_dir():
        raise cli.Missing(f"there is no run {folder}; `{make}` makes it")
    for name in sorted(FILES):
        if not (folder / name).is_file():
            raise cli.Missing(f"{folder} has no {name}; `{make}` makes it")
    read = {}
    for name in ("summary", "protocol"):
        try:
            read[name] = json.loads((folder / f"{name}.json").read_text())
        except ValueError as error:
            raise cli.BadData(f"{folder}/{name}.json: not JSON ({error}); delete it and `{make}`") from None
    records = [record for _, record in stream.records(folder / "scores.jsonl")]
    if bare := next((record["id"] for record in records if not isinstance(record.get("score"), dict)), None):
        raise cli.BadData(f"{folder}/scores.jsonl: {bare}: no \"score\" in this record; `{make}` writes it")
    if len(records) != read["summary"].get("n"):
        raise cli.BadData(f"{folder}: scores.jsonl has {len(records)} records, summary.json counts {read['summary'].get('n')}; "
                          f"`{make}` brings them together")
    model = read["summary"]["model"]["name"] or folder.name
    known = _registry().get(model, {})
    return {"path": folder, "name": folder.name, "label": known.get("label", model), "color": known.get("color"), **read,
            "records": records}


def _registry():
    path = cli.ROOT / "assets" / "models.toml"
    if not path.exists():
        return {}
    try:
        data = tomllib.loads(path.read_text())
    except tomllib.TOMLDecodeError as error:
        raise cli.BadConfig(f"{path}: {error}") from None
    return data


def _same_protocol(first, other):
    from decksmith import rubric

    if differing := rubric.differences(first["protocol"], other["protocol"]):
        raise cli.BadData("\n".join([
            f"{first['path']} and {other['path']} differ in more than the model; their scores do not belong in one table",
            f"  {first['path']}/protocol.json != {other['path']}/protocol.json:", *(f"  {line}" for line in differing)]))


def compare(runs):
    """The comparison as data: the judge, the protocol, each run's summary, and for each pair the paired differences by prompt."""
    pairs = []
    tables = {(run["name"], accounting): columns(run["records"], accounting)
              for run in runs for accounting in ("floor", "renderable")}
    for a, b in itertools.combinations(runs, 2):
        for accounting in ("floor", "renderable"):
            ours, theirs = tables[a["name"], accounting], tables[b["name"], accounting]
            for measure in ours:
                if measure in theirs:
                    difference = stats.paired(ours[measure], theirs[measure])
                    pairs.append({"a": a["label"], "b": b["label"], "accounting": accounting, "measure": measure,
                                  "difference": difference, "separated": separated(difference),
                                  "sentence": sentence(a["label"], b["label"], difference)})
    return {"judge": _judged_by(runs), "caption": caption(runs), "protocol": runs[0]["protocol"].get("hash"),
            "runs": [{"run": str(run["path"]), "label": run["label"], **run["summary"]} for run in runs], "pairs": pairs}


def separated(difference):
    """Whether the interval of a difference excludes 0; None where there are too few pairs to tell."""
    return None if difference["n"] < stats.FEWEST else not difference["lo"] <= 0 <= difference["hi"]


def sentence(a, b, difference):
    """What may be said about a paired difference, and nothing more."""
    n, verdict = difference["n"], separated(difference)
    if verdict is None:
        shown = f" (difference {_number(difference['mean'])})" if n else ""
        return f"{a} and {b}: {n} shared prompt{'' if n == 1 else 's'}, too few to separate anything{shown}"
    figures = interval(difference)
    if verdict:
        return f"{a} minus {b}: {figures} over {n} shared prompts"
    return f"{a} and {b}: not separated (difference {figures} over {n} shared prompts)"


def caption(runs):
    """Who judged, in words."""
    judge = _judged_by(runs)
    if judge is None:
        return "No deck was judged"
    return f"Judge: {judge}" + (f" ({OFFLINE})" if offline(runs) else "")


def _judged_by(runs):
    return next((run["summary"]["judge"] for run in runs if run["summary"]["judge"]), None)


def offline(runs):
    """Whether the judge was the embedded one, which computes measures and sees nothing."""
    return (runs[0]["protocol"].get("judge") or {}).get("kind") == "offline"


def titles(runs):
    """The measures' titles, with what this protocol means by Overall and by VisCraft."""
    score = runs[0]["protocol"].get("score") or {}
    scan = score.get("viscraft")
    return {**TITLES, "overall": score.get("overall") or "Overall",
            "viscraft": f"VisCraft ({TITLES.get(scan, scan)})" if scan else "VisCraft"}


def interval(value):
    """`3.31 [3.02, 3.60]`, without brackets for a single value, a dash for none."""
    if value is None or value["mean"] is None:
        return "–"
    if value["lo"] is None:
        return _number(value["mean"])
    return f"{_number(value['mean'])} [{_number(value['lo'])}, {_number(value['hi'])}]"


def _number(value):
    return f"{value:.2f}".replace("-0.00", "0.00")


def table(runs):
    """The comparison as two tables, `[(title, header, rows)]`, cells as text: what happened, and the scores."""
    happened, scores, named = [], [], titles(runs)
    for run in runs:
        summary, faults = run["summary"], run["summary"]["faults"]["kinds"]
        partial = f" ({summary['partial']} in part)" if summary["partial"] else ""
        happened.append([run["label"], str(summary["n"]), f"{summary['rendered']}{partial}", str(summary["truncated"]),
                         *(str(faults[kind]) for kind in stream.KINDS), *_spent(summary)])
    measures = [measure for measure in dict.fromkeys(itertools.chain(*(run["summary"]["means"]["floor"] for run in runs)))]
    for run, accounting in itertools.product(runs, ("floor", "renderable")):
        means = run["summary"]["means"][accounting]
        n = means.get("overall", {}).get("n", 0)
        scores.append([run["label"], accounting, str(n), *(interval(means.get(measure)) for measure in measures)])
    return [("What happened", ["Model", "n", "Rendered", "Truncated", *(f"{kind.capitalize()} faults" for kind in stream.KINDS),
                               "Tokens in", "Tokens out", "Cost"], happened),
            ("Scores", ["Model", "Accounting", "Prompts", *(named.get(measure, measure) for measure in measures)], scores)]


def _spent(summary):
    tokens, cost = summary["tokens"], summary["cost"]
    known = [f"{tokens[name]:,}" for name in ("prompt", "completion")] if tokens["records"] else ["unknown", "unknown"]
    return [*known, "unknown" if cost is None else f"${cost:.4f}" if 0 < cost < 1 else f"${cost:.2f}"]


NOTES = ("Means over prompts with 95 % percentile bootstrap intervals, 1 to 5 (Checklist: share of the items, 0 to 1). "
         "floor: a model fault counts 1 (Checklist 0). renderable: only decks that rendered. "
         "Renderer, judge and infra faults are in neither. With fewer than about 20 prompts such intervals are too narrow. "
         "VisCraft counts features of the markdown; Judge only leaves it out.")
FAMILY = "Intervals of differences stand each for itself; they are not corrected for the number of pairs."


def claims(runs):
    """The sentences about pairs that belong under a table: `[(accounting in words, sentence)]`."""
    words = {("floor", "overall"): "Overall, floor", ("renderable", "overall"): "Overall, both rendered",
             ("floor", "judge_only"): "Judge only, floor"}
    found = {(pair["a"], pair["b"], pair["accounting"], pair["measure"]): pair["sentence"] for pair in compare(runs)["pairs"]}
    return [(word, found[a["label"], b["label"], *which]) for a, b in itertools.combinations(runs, 2)
            for which, word in words.items() if (a["label"], b["label"], *which) in found]


def markdown(runs):
    """The comparison as markdown, ordered by the models' names."""
    lines = [f"{caption(runs)}. Protocol {(runs[0]['protocol'].get('hash') or 'unknown')[:12]}.", ""]
    for title, header, rows in table(runs):
        text = 1 + (title == "Scores")  # columns of words
        lines += [f"**{title}**", "", _row(header), _row(["---"] * text + ["---:"] * (len(header) - text)),
                  *(_row(row) for row in rows), ""]
    lines += [NOTES, ""]
    if len(runs) > 1:
        lines += ["**Paired by prompt**", "", *(f"- {words}: {said}" for words, said in claims(runs)), "", FAMILY, ""]
    return "\n".join(lines)


def _row(cells):
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


# Plots

INKS = {"light": {"ink": "#1f2328", "soft": "#6a7078", "line": "#e3e1db", "paper": "#ffffff"},
        "dark": {"ink": "#e8e6e1", "soft": "#9aa0a8", "line": "#34383e", "paper": "none"}}


def plots(out, runs, formats=("png", "svg"), inks=("light",)):
    """Draw the plots of `runs` into the folder `out`; returns the file names. Equal runs give equal bytes."""
    import io

    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot

    _fonts()
    names = []
    for ink, (name, draw) in itertools.product(inks, (("overall", _plot_overall), ("dimensions", _plot_dimensions),
                                                      ("radar", _plot_radar), ("deltas", _plot_deltas))):
        tone = INKS[ink]
        style = {"font.family": ["Deck", "DejaVu Sans"], "font.size": 10, "svg.hashsalt": "decksmith", "svg.fonttype": "path",
                 "text.color": tone["ink"], "axes.labelcolor": tone["soft"], "xtick.color": tone["soft"],
                 "ytick.color": tone["ink"], "axes.edgecolor": tone["line"], "axes.facecolor": "none",
                 "figure.facecolor": tone["paper"], "axes.spines.top": False, "axes.spines.right": False,
                 "axes.spines.left": False, "xtick.major.size": 0, "ytick.major.size": 0, "axes.axisbelow": True}
        with pyplot.rc_context(style):
            figure = draw(pyplot, runs, tone)
            for form in formats if figure else ():
                buffer = io.BytesIO()
                figure.savefig(buffer, format=form, dpi=200, bbox_inches="tight", pad_inches=0.15,
                               metadata={"svg": {"Date": None, "Creator": None}, "png": {"Software": None}}[form])
                file = f"{name}{'' if ink == 'light' else '-' + ink}.{form}"
                stream.write(Path(out) / file, buffer.getvalue())
                names.append(file)
            pyplot.close(figure)
    return names


@lru_cache
def _fonts():
    """Give matplotlib the committed WOFF fonts, as TrueType, under the family names Deck and Deck Bold."""
    import tempfile

    from fontTools.ttLib import TTFont
    from matplotlib import font_manager

    folder = tempfile.TemporaryDirectory()
    for weight, family in ((400, "Deck"), (600, "Deck Bold")):
        font = TTFont(cli.ROOT / "assets" / "web" / "fonts" / f"inter-{weight}.woff", recalcTimestamp=False)
        font.flavor, font["name"].names = None, []
        for ident, text in ((1, family), (2, "Regular"), (4, family), (6, family.replace(" ", ""))):
            font["name"].setName(text, ident, 3, 1, 0x409)
        font["OS/2"].usWeightClass = 400
        path = Path(folder.name) / f"{weight}.ttf"
        font.save(path)
        font_manager.fontManager.addfont(path)
    return folder  # kept until the process ends: matplotlib reads the files late


BOLD = {"family": ["Deck Bold", "DejaVu Sans"]}


def _wrapped(label, width=26):
    import textwrap
    return "\n".join(textwrap.wrap(label, width)) or label


def _titled(figure, tone, title, note, top):
    """A title and a note at the upper left, `top` inches of room above the axes."""
    height = figure.get_figheight()
    figure.subplots_adjust(top=1 - top / height)
    left = min(axes.get_position().x0 for axes in figure.axes)
    figure.text(left, 1 - 0.12 / height, title, size=14, **BOLD, va="top")
    figure.text(left, 1 - 0.42 / height, note, size=9, color=tone["soft"], va="top", linespacing=1.45)


def _scale(axes, tone, axis="x"):
    getattr(axes, f"set_{axis}lim")(1, 5)
    getattr(axes, f"set_{axis}ticks")([1, 2, 3, 4, 5])
    axes.grid(axis=axis, color=tone["line"], linewidth=0.8)


def _bar_with_interval(axes, y, value, color, tone, height, hollow=False):
    axes.barh(y, (value["mean"] or 1) - 1, left=1, height=height, color=color, alpha=0.14 if hollow else 0.30, linewidth=0)
    if value["lo"] is not None:
        axes.plot([value["lo"], value["hi"]], [y, y], color=color, linewidth=2.2, solid_capstyle="round", clip_on=False)
    if value["mean"] is not None:
        axes.plot([value["mean"]], [y], "o", markersize=7, markerfacecolor=tone["paper"] if hollow and tone["paper"] != "none"
                  else color, markeredgecolor=color, markeredgewidth=1.6, fillstyle="none" if hollow else "full", clip_on=False, zorder=3)


def _plot_overall(pyplot, runs, tone):
    empty = {"mean": None, "lo": None, "hi": None, "n": 0}
    means = [(run, *(run["summary"]["means"][a].get("overall", empty) for a in ("floor", "renderable"))) for run in runs]
    means.sort(key=lambda item: (item[1]["mean"] or 0, item[0]["label"]))
    figure, axes = pyplot.subplots(figsize=(8.8, 1.5 + 0.95 * len(runs)))
    for y, (run, floor, renderable) in enumerate(means):
        _bar_with_interval(axes, y + 0.19, floor, run["color"], tone, 0.30)
        _bar_with_interval(axes, y - 0.19, renderable, run["color"], tone, 0.30, hollow=True)
        for offset, value, word in ((0.19, floor, "floor"), (-0.19, renderable, "rendered")):
            axes.text(5.12, y + offset, word, va="center", size=9, color=tone["soft"])
            axes.text(5.78, y + offset, f"{interval(value)}  n = {value['n']}", va="center", size=9, color=tone["ink"])
    axes.set_yticks(range(len(means)), [_wrapped(run["label"]) for run, *_ in means])
    axes.set_ylim(-0.6, len(means) - 0.4)
    _scale(axes, tone)
    figure.subplots_adjust(left=0.23, right=0.71, bottom=0.35 / figure.get_figheight())
    _titled(figure, tone, titles(runs)["overall"], f"{caption(runs)}. Filled: floor. Hollow: rendered decks.\n"
            "Lines are 95 % intervals. The order alone says little: read the paired differences.", 1.0)
    return figure


def _measured(runs):
    return [name for name in dict.fromkeys(itertools.chain(*(run["summary"]["means"]["floor"] for run in runs)))
            if name not in ("overall", "judge_only", "checklist", "craft", "craft_v5")]


def _plot_dimensions(pyplot, runs, tone):
    names = _measured(runs)
    if not names:
        return None
    step = 0.34
    group = step * len(runs) + 0.42
    figure, axes = pyplot.subplots(figsize=(8.4, 1.6 + 0.62 * group * len(names)))
    for index, name in enumerate(names):
        for place, run in enumerate(runs):
            value = run["summary"]["means"]["floor"].get(name)
            if value and value["mean"] is not None:
                y = -index * group - place * step
                _bar_with_interval(axes, y, value, run["color"], tone, 0.24)
                axes.text(5.12, y, interval(value), va="center", size=9)
    middle = step * (len(runs) - 1) / 2
    axes.set_yticks([-index * group - middle for index in range(len(names))], [TITLES.get(name, name) for name in names])
    axes.set_ylim(-len(names) * group + group - 2 * middle - 0.35, 0.35)
    _scale(axes, tone)
    figure.subplots_adjust(left=0.14, right=0.82, bottom=0.35 / figure.get_figheight())
    lines = (len(runs) + 2) // 3
    _titled(figure, tone, "Each dimension, floor", "A model fault counts 1. Lines are 95 % intervals.", 0.85 + 0.22 * lines)
    _legend(figure, axes, runs, 0.66)
    return figure


def _legend(figure, axes, runs, below):
    from matplotlib.lines import Line2D

    marks = [Line2D([], [], marker="o", linestyle="", markersize=7, color=run["color"]) for run in runs]
    figure.legend(marks, [run["label"] for run in runs], loc="upper left", ncols=min(3, len(runs)), frameon=False, fontsize=9,
                  bbox_to_anchor=(axes.get_position().x0 - 0.015, 1 - below / figure.get_figheight()), handletextpad=0.1,
                  columnspacing=1.4, borderaxespad=0)


def _plot_radar(pyplot, runs, tone):
    import numpy

    names = _measured(runs)
    if len(names) < 3:
        return None
    angles = numpy.linspace(0, 2 * numpy.pi, len(names), endpoint=False)
    lines = (len(runs) + 2) // 3
    figure = pyplot.figure(figsize=(6.4, 6.15 + 0.24 * lines))
    height = figure.get_figheight()
    axes = figure.add_axes([0.14, 0.3 / height, 0.72, 4.6 / height], projection="polar")
    axes.set_theta_offset(numpy.pi / 2)
    axes.set_theta_direction(-1)
    for run in runs:
        means = [run["summary"]["means"]["floor"].get(name, {}).get("mean") for name in names]
        if None in means:
            continue
        closed = [*means, means[0]], [*angles, angles[0]]
        axes.plot(closed[1], closed[0], color=run["color"], linewidth=2, marker="o", markersize=5)
        axes.fill(closed[1], closed[0], color=run["color"], alpha=0.08)
    axes.set_ylim(1, 5)
    axes.set_yticks([2, 3, 4, 5], ["2", "3", "4", "5"], size=8, color=tone["soft"])
    axes.set_rlabel_position(180 / len(names))
    axes.set_xticks(angles, [TITLES.get(name, name) for name in names])
    axes.tick_params(axis="x", pad=10)
    axes.grid(color=tone["line"], linewidth=0.8)
    axes.spines["polar"].set_visible(False)
    figure.text(0.04, 1 - 0.12 / height, "Profile, floor means", size=14, **BOLD, va="top")
    figure.text(0.04, 1 - 0.42 / height, "Shape only: a radar shows no intervals.", size=9, color=tone["soft"], va="top")
    _legend(figure, axes, runs, 0.7)
    figure.legends[0].set_bbox_to_anchor((0.025, 1 - 0.7 / height))
    return figure


def _plot_deltas(pyplot, runs, tone):
    """Each later run minus the base, paired by prompt; the base is the run that was named first."""
    if len(runs) < 2:
        return None
    base = min(runs, key=lambda run: run["order"])
    others = [run for run in runs if run is not base]
    measured = ["overall", "judge_only", *_measured(runs)]
    tables = {run["name"]: columns(run["records"], "floor") for run in runs}
    step = 0.34
    group = step * len(others) + 0.42
    figure, axes = pyplot.subplots(figsize=(8.4, 1.75 + 0.62 * group * len(measured)))
    reach = 0.5
    for index, name in enumerate(measured):
        for place, run in enumerate(others):
            value = stats.paired(tables[run["name"]].get(name, {}), tables[base["name"]].get(name, {}))
            if value["mean"] is None:
                continue
            y = -index * group - place * step
            reach = max(reach, *(abs(value[key]) for key in ("lo", "hi") if value[key] is not None), abs(value["mean"]))
            if value["lo"] is not None:
                axes.plot([value["lo"], value["hi"]], [y, y], color=run["color"], linewidth=2.2, solid_capstyle="round")
            axes.plot([value["mean"]], [y], "o", markersize=7, color=run["color"], markeredgewidth=1.6,
                      fillstyle="full" if separated(value) else "none")
            axes.text(1.03, y, interval(value) + {True: "", False: "  not separated", None: f"  n = {value['n']}, too few"}[separated(value)], va="center", size=9,
                      transform=axes.get_yaxis_transform(), color=tone["ink"] if separated(value) else tone["soft"])
    axes.axvline(0, color=tone["soft"], linewidth=1)
    axes.set_xlim(-1.1 * reach, 1.1 * reach)
    axes.grid(axis="x", color=tone["line"], linewidth=0.8)
    middle = step * (len(others) - 1) / 2
    axes.set_yticks([-index * group - middle for index in range(len(measured))], [TITLES.get(name, name) for name in measured])
    axes.set_ylim(-len(measured) * group + group - 2 * middle - 0.35, 0.35)
    figure.subplots_adjust(left=0.14, right=0.70, bottom=0.35 / figure.get_figheight())
    lines = (len(others) + 2) // 3
    _titled(figure, tone, f"Difference to {base['label']}, floor",
            "Paired by prompt, 95 % intervals. Hollow: not separated.", 0.85 + 0.22 * lines)
    _legend(figure, axes, others, 0.66)
    return figure


# The page

IMAGES = {"thumb": (336, 72), "full": (980, 84)}  # width in pixels, WebP quality
LONGEST = 60_000  # characters of a deck or a reply that the page carries


def page(out, runs):
    """Write the report of `runs` into the folder `out`: index.html, pictures, plots. Returns what was done, in numbers.

    The page opens from disk. Everything a model wrote reaches it as JSON or as escaped text, never as markup; a content
    security policy allows only this page's own script, style and pictures.
    """
    import base64
    import hashlib

    import jinja2

    out, web = Path(out), cli.ROOT / "assets" / "web"
    pictures, done = _pictures(out, runs)
    drawn = plots(out / "plots", runs, ("svg",), ("light", "dark"))
    data = json.dumps(_data(runs, pictures), ensure_ascii=False, separators=(",", ":"))
    # In a script element only `<` can end or change what follows; lone surrogates are not UTF-8.
    data = data.replace("<", "\\u003c").encode("utf-8", "backslashreplace").decode()
    faces = "".join(f'@font-face{{font-family:Inter;font-weight:{weight};font-display:block;src:url(data:font/woff;base64,'
                    f'{base64.b64encode((web / "fonts" / f"inter-{weight}.woff").read_bytes()).decode()})}}' for weight in (400, 600))
    style, script = faces + (web / "report.css").read_text(), (web / "report.js").read_text()
    digest = {name: base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
              for name, text in (("style", style), ("script", script))}
    policy = (f"default-src 'none'; script-src 'sha256-{digest['script']}'; style-src 'sha256-{digest['style']}'; "
              "img-src 'self' file:; font-src data:; base-uri 'none'; form-action 'none'")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True,
                                     loader=jinja2.FileSystemLoader(web))
    environment.filters["number"] = lambda value: "–" if value is None else _number(value)
    environment.filters["place"] = lambda value: round(4 + 98 * (value - 1), 1)  # 1 to 5 on the card's track
    decks = sum(len(run["records"]) for run in runs)
    stream.write(out / "index.html", environment.get_template("report.html.j2").render(
        counted=f"{decks} deck{'s' * (decks != 1)} by {len(runs)} model{'s' * (len(runs) != 1)}",
        honest=_honest(runs), overall=titles(runs)["overall"],
        title=" and ".join(run["label"] for run in runs) if len(runs) < 3 else f"{len(runs)} models", caption=caption(runs),
        protocol=runs[0]["protocol"].get("hash") or "unknown", cards=[_card(run) for run in runs], tables=table(runs),
        claims=claims(runs), notes=NOTES, family=FAMILY, plots=[(name, name.replace(".svg", "-dark.svg"), _ALT[name[:-4]])
                                                                for name in drawn if "-dark" not in name],
        policy=policy, style=jinja2.utils.markupsafe.Markup(style), script=jinja2.utils.markupsafe.Markup(script),
        data=jinja2.utils.markupsafe.Markup(data)))
    return {"decks": decks, **done}


def _honest(runs):
    """What the numbers on the page are, for somebody who reads nothing else."""
    judge = _judged_by(runs)
    if judge is None:
        return "No deck could be judged; what failed, and where, is below."
    if offline(runs):
        return (f"Scores by {judge}: measures computed from the rendered slides, their pixels and their text. No vision model and no "
                "person looked at these pictures, so they compare with other offline scores only.")
    return f"Scores by {judge}, a vision model that saw the request and the pictures, never the markdown. It can be wrong."


_ALT = {"overall": "Overall score of each model with its interval", "dimensions": "Score of each model in each dimension with intervals",
        "radar": "Profile of the dimensions", "deltas": "Paired differences to the first run"}


def _pictures(out, runs):
    """Make the WebP files that are not there yet, remove those that nothing names: `{(run, path): name}` and the counts."""
    import hashlib
    import os
    from concurrent.futures import ThreadPoolExecutor

    def named(source):
        run, path = source
        file = (run["path"] / path).resolve()
        if not file.is_relative_to(run["path"].resolve()) or not file.is_file():
            return None
        return hashlib.sha256(file.read_bytes()).hexdigest()[:20] + ".webp"

    def make(name):
        run, path = sources[first[name]]
        try:
            return sum(_webp(run["path"] / path, out / "img" / size / name, *IMAGES[size]) for size in IMAGES)
        except OSError as error:
            stream.warn(f"{run['name']}/{path}", f"cannot be read as a picture ({error})")
            return None

    sources = [(run, path) for run in runs for record in run["records"] for path in (record.get("render") or {}).get("slides") or []]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        names = list(pool.map(named, sources))
        first = {name: at for at, name in reversed(list(enumerate(names))) if name}
        made = dict(zip(first, pool.map(make, first), strict=True))
    for file in out.glob("img/*/*.webp"):
        if made.get(file.name) is None:
            file.unlink()
    names = [name if made.get(name) is not None else None for name in names]
    return {(run["name"], path): name for (run, path), name in zip(sources, names, strict=True)}, {
        "pictures": len(names), "made": sum(bool(count) for count in made.values()), "lost": names.count(None)}


def _webp(source, path, width, quality):
    """Write the picture `source` as WebP of at most `width`; returns whether there was anything to do."""
    import io

    from PIL import Image

    if path.exists():
        return False
    with Image.open(source) as picture:
        picture = picture.convert("RGB")
        if picture.width > width:
            picture = picture.resize((width, round(picture.height * width / picture.width)), Image.Resampling.LANCZOS)
        buffer = io.BytesIO()
        picture.save(buffer, "WEBP", quality=quality, method=3)
    stream.write(path, buffer.getvalue())
    return True


def _card(run):
    """What the summary card of a run shows."""
    summary = run["summary"]
    states = Counter(map(_status, run["records"]))
    empty = {"mean": None, "lo": None, "hi": None, "n": 0}
    means = {name: summary["means"][name].get("overall", empty) for name in ("floor", "renderable")}
    bar, x = [], 0.0
    for state in ("rendered", "partial", "failed", "excluded"):
        width = 400 * states[state] / summary["n"]
        bar.append((state, round(x, 2), round(width, 2)))
        x += width
    return {"bar": bar, "label": run["label"], "slug": summary["model"]["slug"] or "", "color": run["color"], "n": summary["n"],
            "states": [(state, states[state]) for state in ("rendered", "partial", "failed", "excluded") if states[state]],
            "truncated": summary["truncated"], "classes": summary["faults"]["classes"], "spent": _spent(summary),
            "seconds": summary.get("by", {}).get("generation_s"),
            "floor": means["floor"], "renderable": means["renderable"],
            "text": {name: interval(value) for name, value in means.items()}}


def _data(runs, pictures):
    """Everything the page's script shows, as JSON data (see assets/web/report.js)."""
    prompts, rows = {}, []
    for index, run in enumerate(runs):
        for record in run["records"]:
            prompts.setdefault(_prompt(record), _request(record))
            rows.append(_deck(index, run, record, pictures))
    dimensions = dict.fromkeys(name for run in runs for name in _measured([run]))
    return {"judge": _judged_by(runs), "caption": caption(runs),
            "dimensions": [[name, TITLES.get(name, name)] for name in dimensions], "offline": offline(runs),
            "runs": [{"name": run["name"], "label": run["label"], "color": run["color"]} for run in runs],
            "prompts": prompts, "rows": rows}


def _request(record):
    said = {}
    for message in record.get("messages") or []:
        said[message.get("role")] = _text(message.get("content"))
    asks = record.get("asks") or {}
    return {"text": said.get("user", ""), "system": said.get("system", ""), "sets": record.get("sets") or [],
            "asks": {key: value for key, value in asks.items() if key != "outline"},
            "checklist": [{"id": item.get("id"), "ask": item.get("ask")} for item in record.get("checklist") or []]}


def _text(content):
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return str(content or "")


def _deck(index, run, record, pictures):
    gen, deck, render, judge, score = (record.get(key) or {} for key in ("gen", "deck", "render", "judge", "score"))
    xray = {entry.get("slide"): entry for entry in render.get("xray") or []}
    slides = []
    for number, path in enumerate(render.get("slides") or [], 1):
        named = re.search(r"(\d+)\.png\Z", path)
        number = int(named[1]) if named else number
        seen = xray.get(number, {})
        slides.append({"n": number, "img": pictures.get((run["name"], path)), "line": seen.get("line"), "title": seen.get("title"),
                       "seen": {key: seen[key] for key in ("words", "contrast", "overflow", "font", "whitespace", "blank",
                                                           "images_broken", "overlap") if key in seen}})
    reply = gen.get("text") or gen.get("reasoning") or ""
    markdown = _read(run["path"], deck.get("path"))
    return {
        "run": index, "id": record["id"], "prompt": _prompt(record), "status": _status(record), "fault": _fault(record),
        "truncated": gen.get("finish_reason") == "length", "finish": gen.get("finish_reason"),
        "usage": {key: value for key, value in (gen.get("usage") or {}).items() if value is not None},
        "took": (gen.get("by") or {}).get("took"),
        "overall": score.get("overall"), "judge_only": score.get("judge_only"), "checklist": score.get("checklist"),
        "dimensions": score.get("dimensions") or {}, "floored": bool(score.get("floored")),
        "checks": judge.get("checklist") or [], "why": judge.get("why") or {}, "caps": judge.get("caps") or [],
        "measures": judge.get("measures") or {}, "features": {key: value for key, value in (record.get("features") or {}).items()
                                                               if key in ("craft", "craft_v5", "counts")},
        "slides": slides, "expected": render.get("expected"), "errors": render.get("errors") or [],
        "markdown": _cut(markdown), "reply": None if slides and markdown else _cut(reply[:6000]),
        "thought": bool(not gen.get("text") and gen.get("reasoning")),
        "pictures": [{key: item.get(key) for key in ("query", "provider", "attribution", "fallback", "line")}
                     for item in (record.get("images") or {}).get("items") or []]}


def _read(folder, path):
    """The text of a file inside the run folder, None when there is none."""
    file = (folder / path).resolve() if path else None
    if not file or not file.is_relative_to(folder.resolve()) or not file.is_file():
        return None
    return file.read_text("utf-8", "replace")


def _cut(text):
    if text is None or len(text) <= LONGEST:
        return text
    return text[:LONGEST] + f"\n… {len(text) - LONGEST:,} more characters are in the run folder"
