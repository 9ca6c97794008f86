"""What finished runs say: one summary of each, and one table over several.

The accountings never mix: `floor` counts a model fault as 1 in every dimension (checklist: 0), `renderable` looks only at decks
that rendered. Judge, renderer and infra faults are in neither; they are counted.
"""

import itertools
import json
import tomllib
from collections import Counter
from datetime import datetime
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
    faults = [fault for record in records if (fault := fault_of(record))]
    generated = [record["gen"] for record in records if isinstance(record.get("gen"), dict) and not record["gen"].get("error")]
    classes = Counter((fault["kind"], fault["stage"], fault["class"]) for fault in faults)
    return {
        "model": seen.get("model", (None, {"name": None, "slug": None, "params": {}}))[1],
        "judge": seen.get("judge", (None, None))[1],
        "n": len(records),
        "prompts": len({prompt_of(record) for record in records}),
        "rendered": sum(bool(record["score"].get("rendered")) for record in records),
        "partial": sum(status_of(record) == "partial" for record in records),
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
        fault, score = fault_of(record), record["score"]
        if fault and (fault["kind"] != "model" or accounting == "renderable") or not fault and not score.get("rendered"):
            continue
        features = record.get("features") or {}
        found = {"overall": score.get("overall"), "judge_only": score.get("judge_only"), **(score.get("dimensions") or {}),
                 "checklist": score.get("checklist"), "craft": features.get("craft"), "craft_v5": features.get("craft_v5")}
        for measure, cells in table.items():
            value = (0 if measure == "checklist" else 1) if fault else found.get(measure)
            if value is not None:
                cells.setdefault(prompt_of(record), []).append(value)
    return {measure: {prompt: sum(values) / len(values) for prompt, values in cells.items()}
            for measure, cells in table.items() if cells}


def _dimensions(records):
    found = {name: None for record in records for name in record["score"].get("dimensions") or {}}
    return sorted(found, key=lambda name: list(TITLES).index(name) if name in TITLES else len(TITLES))


def fault_of(record):
    return record["score"].get("fault") or stream.fault(record)


def prompt_of(record):
    return ((record.get("gen") or {}).get("sample") or {}).get("of") or record["id"]


def _model(record):
    model = (record.get("gen") or {}).get("model")
    return model and {"name": model.get("name"), "slug": model.get("slug"), "params": model.get("params") or {}}


def _judge(record):
    return (record.get("judge") or {}).get("judge")


def status_of(record):
    fault = fault_of(record)
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
    return {"judge": judged_by(runs), "caption": caption(runs), "protocol": runs[0]["protocol"].get("hash"),
            "runs": [{"run": str(run["path"]), "label": run["label"], **run["summary"]} for run in runs], "pairs": pairs}


def separated(difference):
    """Whether the interval of a difference excludes 0; None where there are too few pairs to tell."""
    return None if difference["n"] < stats.FEWEST else not difference["lo"] <= 0 <= difference["hi"]


def sentence(a, b, difference):
    """What may be said about a paired difference, and nothing more."""
    n, verdict = difference["n"], separated(difference)
    if verdict is None:
        shown = f" (difference {figure_text(difference['mean'])})" if n else ""
        return f"{a} and {b}: {n} shared prompt{'' if n == 1 else 's'}, too few to separate anything{shown}"
    figures = interval(difference)
    if verdict:
        return f"{a} minus {b}: {figures} over {n} shared prompts"
    return f"{a} and {b}: not separated (difference {figures} over {n} shared prompts)"


def caption(runs):
    """Who judged, in words."""
    judge = judged_by(runs)
    if judge is None:
        return "No deck was judged"
    return f"Judge: {judge}" + (f" ({OFFLINE})" if offline(runs) else "")


def judged_by(runs):
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
        return figure_text(value["mean"])
    return f"{figure_text(value['mean'])} [{figure_text(value['lo'])}, {figure_text(value['hi'])}]"


def figure_text(value):
    return f"{value:.2f}".replace("-0.00", "0.00")


def table(runs):
    """The comparison as two tables, `[(title, header, rows)]`, cells as text: what happened, and the scores."""
    happened, scores, named = [], [], titles(runs)
    for run in runs:
        summary, faults = run["summary"], run["summary"]["faults"]["kinds"]
        partial = f" ({summary['partial']} in part)" if summary["partial"] else ""
        happened.append([run["label"], str(summary["n"]), f"{summary['rendered']}{partial}", str(summary["truncated"]),
                         *(str(faults[kind]) for kind in stream.KINDS), *spent(summary)])
    measures = [measure for measure in dict.fromkeys(itertools.chain(*(run["summary"]["means"]["floor"] for run in runs)))]
    for run, accounting in itertools.product(runs, ("floor", "renderable")):
        means = run["summary"]["means"][accounting]
        n = means.get("overall", {}).get("n", 0)
        scores.append([run["label"], accounting, str(n), *(interval(means.get(measure)) for measure in measures)])
    return [("What happened", ["Model", "n", "Rendered", "Truncated", *(f"{kind.capitalize()} faults" for kind in stream.KINDS),
                               "Tokens in", "Tokens out", "Cost"], happened),
            ("Scores", ["Model", "Accounting", "Prompts", *(named.get(measure, measure) for measure in measures)], scores)]


def spent(summary):
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
