"""What finished runs say: one summary of each, and one table over several.

The accountings never mix: `floor` counts a model fault as 1 in every dimension (checklist: 0), `renderable` looks only at decks
that rendered. Judge, renderer and infra faults are in neither; they are counted.
"""

import itertools
import json
import math
import tomllib
from collections import Counter
from datetime import datetime
from pathlib import Path

from decksmith import __version__
from decksmith.core import cli, stream
from decksmith.core.records import prompt_of, sample_of
from decksmith.results import stats, verify

TITLES = {
    "overall": "Overall",
    "judge_only": "Judge only",
    "viscraft": "VisCraft",
    "design": "Design",
    "content": "Content",
    "coherence": "Coherence",
    "checklist": "Checklist",
    "craft": "craft",
    "craft_v5": "craft-v5",
}
OFFLINE = "offline measures, no vision model looked at these pictures"
ROWS = "scores of another tool"
FILES = {"summary.json", "scores.jsonl", "protocol.json"}
COLORS = ("#2f6f9f", "#c8553d", "#4f8a5b", "#8a5a9e", "#c2912b", "#4b5563", "#b0567f", "#2a8c8c")


# One run


def summarize(numbered, where="stdin"):
    """One object for the records of one run, given as `(line number, record)` pairs of the file `where`: means, counts, faults, usage.

    Means are over prompts: several samples of a prompt are averaged first. Raises cli.BadData on empty input, a record without
    score, mixed models or mixed judges.
    """
    records, seen = [], {}
    for number, record in numbered:
        if not isinstance(record.get("score"), dict):
            raise cli.BadData(
                f'{where}:{number}: {record["id"]}: no "score" in this record; deck-score writes it'
            )
        for what, value in (("model", _model(record)), ("judge", _judge(record))):
            first, other = seen.setdefault(what, (record["id"], value)) if value else (None, None)
            if value and other != value:
                raise cli.BadData(
                    f"{where}:{number}: {record['id']}: one summary is for one {what}, here are two: {first} has "
                    f"{json.dumps(other, sort_keys=True)}, {record['id']} has {json.dumps(value, sort_keys=True)}"
                )
        records.append(record)
    if not records:
        raise cli.BadData("no records on stdin; a summary needs the scores.jsonl of a run")
    faults = [fault for record in records if (fault := fault_of(record))]
    generated = [
        record["gen"]
        for record in records
        if isinstance(record.get("gen"), dict) and not record["gen"].get("error")
    ]
    lacks = Counter(what for record in records for what in record["score"].get("lacks") or ())
    classes = Counter((fault["kind"], fault["stage"], fault["class"]) for fault in faults)
    return {
        "model": {
            **seen.get("model", (None, {"name": None, "slug": None}))[1],
            "params": _own(generated),
        },
        "asked": _asked(records),
        "judge": seen.get("judge", (None, None))[1],
        "n": len(records),
        "prompts": len({prompt_of(record) for record in records}),
        "rendered": sum(bool(record["score"].get("rendered")) for record in records),
        "partial": sum(status_of(record) == "partial" for record in records),
        "truncated": sum(gen.get("finish_reason") == "length" for gen in generated),
        **({"lacks": dict(sorted(lacks.items()))} if lacks else {}),
        "capped": sum(bool((record.get("judge") or {}).get("caps")) for record in records),
        "faults": {
            "kinds": {
                kind: sum(fault["kind"] == kind for fault in faults) for kind in stream.KINDS
            },
            "classes": [
                {"kind": kind, "stage": stage, "class": name, "n": n}
                for (kind, stage, name), n in sorted(
                    classes.items(), key=lambda item: (-item[1], item[0])
                )
            ],
        },
        "tokens": _tokens(generated),
        "cost": _cost(gen.get("usage") for gen in generated),
        "judge_cost": _cost(
            record["judge"].get("usage") or {"cost": 0}
            for record in records
            if isinstance(record.get("judge"), dict) and not record["judge"].get("error")
        ),
        "means": {
            accounting: _means(columns(records, accounting), domains(records))
            for accounting in ("floor", "renderable")
        },
        "interval": {
            "level": stats.LEVEL,
            "method": stats.METHOD,
            "over": stats.rule(stats.groups(domains(records).values())),
        },
        "by": {"tool": "run-summarize", "version": __version__, **_seconds(records)},
    }


def domains(records):
    """What intervals are clustered by: `{prompt: the domain that it asks for, or None}`."""
    return {prompt_of(record): (record.get("asks") or {}).get("domain") for record in records}


def scales(measures):
    """The least and the most that these measures can be, two arrays."""
    import numpy

    shares = numpy.array([measure == "checklist" for measure in measures])
    return numpy.where(shares, 0.0, 1.0), numpy.where(shares, 1.0, 5.0)


def _means(table, domains):
    """`stats.means` of every column, clustered by the domains of the prompts."""
    import numpy

    prompts = sorted({prompt for cells in table.values() for prompt in cells})
    place = {prompt: index for index, prompt in enumerate(prompts)}
    values = numpy.full((len(place), len(table)), numpy.nan)
    for column, cells in enumerate(table.values()):
        values[[place[prompt] for prompt in cells], column] = list(cells.values())
    found = stats.means(values, scales(table), [domains.get(prompt) for prompt in prompts])
    return {
        measure: {
            **{name: stats.number(found[name][column]) for name in ("mean", "lo", "hi")},
            "n": int(found["n"][column]),
        }
        for column, measure in enumerate(table)
    }


def columns(records, accounting, excluded=None):
    """The values behind the means: `{measure: {prompt: value}}` under one accounting, samples of one prompt averaged.

    Decks that lack a score through no fault of the model are left out; with `excluded` 0 or 1 they get the lowest or the highest
    score there is, to see what they could change.
    """
    known = {
        measure
        for record in records
        for measure, value in _found(record).items()
        if value is not None
    }
    table = {
        measure: {}
        for measure in [
            "overall",
            "judge_only",
            *_dimensions(records),
            "checklist",
            "craft",
            "craft_v5",
        ]
        if measure in known
    }
    for record in records:
        fault, score = fault_of(record), record["score"]
        theirs = fault and fault["kind"] != "model"
        if (
            theirs
            and excluded is None
            or fault
            and accounting == "renderable"
            or not fault
            and not score.get("rendered")
        ):
            continue
        found = _found(record)
        for measure, cells in table.items():
            if score.get("lacks") and measure in ("overall", "judge_only", "content"):
                continue
            least, most = (0, 1) if measure == "checklist" else (1, 5)
            value = (
                (most if excluded else least)
                if theirs
                else _floor(measure, score)
                if fault
                else found[measure]
            )
            if value is not None and (
                measure != "checklist" or found[measure] is not None or record.get("checklist")
            ):
                cells.setdefault(prompt_of(record), []).append(value)
    return {
        measure: {prompt: sum(values) / len(values) for prompt, values in cells.items()}
        for measure, cells in table.items()
        if cells
    }


def _floor(measure, score):
    """What a measure counts where the model failed: the protocol's floor, of a checklist nothing."""
    if measure == "checklist":
        return 0
    return next(
        (value for value in score["dimensions"].values() if value is not None), score["overall"]
    )


def _found(record):
    score, features = record["score"], record.get("features") or {}
    return {
        "overall": score.get("overall"),
        "judge_only": score.get("judge_only"),
        **(score.get("dimensions") or {}),
        "checklist": score.get("checklist"),
        "craft": features.get("craft"),
        "craft_v5": features.get("craft_v5"),
    }


def _dimensions(records):
    found = {name: None for record in records for name in record["score"].get("dimensions") or {}}
    return sorted(
        found, key=lambda name: list(TITLES).index(name) if name in TITLES else len(TITLES)
    )


def fault_of(record):
    return record["score"].get("fault") or stream.fault(record)


def _model(record):
    model = (record.get("gen") or {}).get("model")
    served = {"served": model["served"]} if model and model.get("served") else {}
    return model and {"name": model.get("name"), "slug": model.get("slug"), **served}


def _own(generated):
    """The parameters that the registry set for the model, beside the protocol's."""
    return next(
        (gen["model"]["params"] for gen in generated if (gen.get("model") or {}).get("params")), {}
    )


def _asked(records):
    """How the model was asked: the fingerprint of all requests less its name (None where some reply does not say), and every parameter,
    `{"extra.inner": value}`, a list of values where records differ. Sample k of a prompt is asked with the seed plus k; that is none."""
    gens = [
        (record, gen)
        for record in records
        if isinstance(gen := record.get("gen"), dict) and not gen.get("error")
    ]
    found = {}
    for record, gen in gens:
        sampling = dict(gen.get("sampling") or {})
        if isinstance(sampling.get("seed"), int):
            sampling["seed"] -= sample_of(record)
        for name, value in _flat(sampling):
            if value not in (values := found.setdefault(name, [])):
                values.append(value)
    if cut := sum(bool(gen.get("shortened")) for _, gen in gens):
        found["requests with fewer max_tokens, to fit the context"] = [cut]
    requests = sorted((record["id"], gen.get("request")) for record, gen in gens)
    known = requests and all(request for _, request in requests)
    return {
        "sha256": stream.fingerprint(requests) if known else None,
        "parameters": {
            name: values[0] if len(values) == 1 else values
            for name, values in sorted(found.items())
        },
    }


def _flat(value, name=""):
    if isinstance(value, dict) and (value or not name):
        for key, part in value.items():
            yield from _flat(part, f"{name}.{key}" if name else key)
    else:
        yield name, value


def _judge(record):
    return (record.get("judge") or {}).get("judge")


def status_of(record):
    fault = fault_of(record)
    if fault:
        return "failed" if fault["kind"] == "model" else "excluded"
    return "partial" if (record.get("render") or {}).get("status") == "partial" else "rendered"


def _tokens(generated):
    usages = [
        gen["usage"]
        for gen in generated
        if (gen.get("usage") or {}).get("completion_tokens") is not None
    ]
    total = {
        name: sum(usage.get(f"{name}_tokens") or 0 for usage in usages)
        for name in ("prompt", "completion", "reasoning")
    }
    return {**total, "records": len(usages)}


def _cost(usages):
    costs = [(usage or {}).get("cost") for usage in usages]
    return None if None in costs or not costs else round(sum(costs), 6)


def _seconds(records):
    """Seconds of generation, of each stage, and of wall time: while at least one record was in work, so a pause between reruns is none.
    None where no record says."""
    stages, spans = {}, []
    for key, value in itertools.chain.from_iterable(record.items() for record in records):
        by = value.get("by") or {} if isinstance(value, dict) else {}
        if isinstance(by.get("took"), int | float):
            stages[key] = stages.get(key, 0) + by["took"]
            if by.get("at"):
                start = datetime.fromisoformat(by["at"]).timestamp()
                spans.append((start, start + by["took"]))
    wall, end = 0.0, float("-inf")
    for start, stop in sorted(spans):
        wall, end = wall + max(0.0, stop - max(start, end)), max(end, stop)
    return {
        "generation_s": round(stages["gen"], 1) if "gen" in stages else None,
        "wall_s": round(wall, 1) if spans else None,
        "stages_s": {key: round(seconds, 1) for key, seconds in stages.items()},
    }


# Several runs


def load(paths, common=False):
    """The runs in these folders, ordered by label; each `{"path", "name", "order", "label", "color", "summary", "records", "protocol",
    "unshipped", "left_out", "remedy"}`. A file is read as scores of another tool (docs/records.md), one run for each model in it.
    `common`: keep of each run only the decks that all runs have, and name the others in `left_out` (None without).

    Raises cli.Missing when a folder lacks a file, cli.BadData when its files contradict each other (results.verify), or when the runs
    differ in anything but the model: such numbers do not belong in one table.
    """
    found = [
        run
        for path in map(Path, paths)
        for run in (_rows(path) if path.is_file() else [_run(path)])
    ]
    runs = [{"order": order, "left_out": None, **run} for order, run in enumerate(found)]
    if twice := [
        key
        for key, n in Counter((str(run["path"].resolve()), run["name"]) for run in runs).items()
        if n > 1
    ]:
        raise cli.BadData(f"{twice[0][0]} is named twice; a run cannot be compared with itself")
    labels = Counter(run["label"] for run in runs)
    for run in runs:
        if labels[run["label"]] > 1:
            run["label"] += (
                f" ({run['path'] if sum(other['name'] == run['name'] for other in runs) > 1 else run['name']})"
            )
    taken = {run["color"] for run in runs}
    spare = (
        color for color in itertools.cycle(COLORS) if color not in taken or taken >= set(COLORS)
    )
    for run in sorted(runs, key=lambda run: run["name"]):
        run["color"] = run["color"] or next(spare)
    for other in runs[1:]:
        _same_protocol(runs[0], other, common)
    if common:
        _keep_common(runs)
    return sorted(runs, key=lambda run: (run["label"].casefold(), run["name"]))


def unmatched(runs):
    """Who lacks decks that another run has, as text, or None: whoever leaves out what failed looks better than it is."""
    decks = [set(map(verify.place, run["records"])) for run in runs]
    every = set().union(*decks)
    prompts, said = {of for of, _ in every}, []
    for run, own in zip(runs, decks, strict=True):
        if lacking := every - own:
            gone = sorted({of for of, _ in lacking} - {of for of, _ in own})
            thin = sorted({of for of, _ in lacking} - set(gone))
            said += (
                [f"{run['label']} lacks {len(gone)} of {len(prompts)} prompts ({verify.few(gone)})"]
                if gone
                else []
            )
            said += (
                [
                    f"{run['label']} lacks samples of {len(thin)} of {len(prompts)} prompts ({verify.few(thin)})"
                ]
                if thin
                else []
            )
    return "; ".join(said) or None


def _keep_common(runs):
    from decksmith.judging import identity

    shared = set.intersection(*(set(map(verify.place, run["records"])) for run in runs))
    if not shared:
        raise cli.BadData(
            f"no deck is common to {' and '.join(run['label'] for run in runs)}; they have no prompt in common"
        )
    asked = {}
    for run in runs:
        records = [record for record in run["records"] if verify.place(record) in shared]
        run["left_out"] = [
            record["id"] for record in run["records"] if verify.place(record) not in shared
        ]
        run["records"], run["summary"] = records, summarize(enumerate(records, 1), run["path"])
        for ident, row in identity.prompts(records).items():
            first, holder = asked.setdefault(ident, (row, run["label"]))
            if first != row:
                raise cli.BadData(
                    f"{ident} asks one thing in {holder} and another in {run['label']}; they have only its id in common"
                )


def _run(folder):
    from decksmith.judging import identity

    make = f"make baseline MODEL={folder.name}"
    if not folder.is_dir():
        raise cli.Missing(f"there is no run {folder}; `{make}` makes it")
    for name in sorted(FILES):
        if not (folder / name).is_file():
            raise cli.Missing(f"{folder} has no {name}; `{make}` makes it")
    summary, protocol = (_object(folder / f"{name}.json", make) for name in ("summary", "protocol"))
    records, prompts = (
        [record for _, record in stream.records(folder / name)]
        if (folder / name).exists()
        else None
        for name in ("scores.jsonl", "prompts.jsonl")
    )
    if bare := next(
        (record["id"] for record in records if not isinstance(record.get("score"), dict)), None
    ):
        raise cli.BadData(
            f'{folder}/scores.jsonl: {bare}: no "score" in this record; `{make}` writes it'
        )
    files = verify.Files(records, prompts, protocol, summary)
    summary = verify.check(
        folder,
        files,
        lambda records: summarize(enumerate(records, 1), folder / "scores.jsonl"),
        f"to derive all of it again from what was paid for: rm {folder}/scores.jsonl && {make}",
    )
    model = summary["model"]["name"] or folder.name
    known = _registry().get(model, {})
    return {
        "path": folder,
        "name": folder.name,
        "label": known.get("label", model),
        "color": known.get("color"),
        "summary": summary,
        "protocol": protocol,
        "unshipped": identity.unshipped(protocol, records),
        "records": records,
        "remedy": f"`{make}` does these again and nothing else",
    }


def _object(path, make):
    try:
        found = json.loads(path.read_text())
    except ValueError as error:
        raise cli.BadData(f"{path}: not JSON ({error}); delete it and `{make}`") from None
    if not isinstance(found, dict):
        raise cli.BadData(f"{path}: not a JSON object; delete it and `{make}`")
    return found


def _rows(path):
    """The runs in a file of `{"model", "id", "scores": {dimension: 1..5 or null}, "weights", "rendered", "error_kind"}`, one for each
    model. Without weights every dimension counts the same."""
    models, dimensions, weights = {}, None, None
    for number, row in stream.records(path):
        where, scores, kind = (
            f"{path}:{number}: {row['id']}",
            row.get("scores"),
            row.get("error_kind"),
        )
        if (
            not isinstance(row.get("model"), str)
            or not isinstance(row.get("rendered"), bool)
            or not isinstance(scores, dict)
            or not scores
        ):
            raise cli.BadData(
                f'{where}: a row of scores needs "model" (a name), "rendered" (true or false) and "scores" (an object)'
            )
        if kind not in (None, *stream.KINDS):
            raise cli.BadData(
                f"{where}: error_kind is {json.dumps(kind)}; it is null or one of {', '.join(stream.KINDS)}"
            )
        dimensions = dimensions or set(scores)
        if set(scores) != dimensions:
            raise cli.BadData(
                f"{where}: scores for {', '.join(sorted(scores))}, and for {', '.join(sorted(dimensions))} in the first row"
            )
        for name, value in scores.items():
            if value is not None and (
                isinstance(value, bool) or not isinstance(value, int | float) or not 1 <= value <= 5
            ):
                raise cli.BadData(
                    f"{where}: scores.{name} is {json.dumps(value)}; it is a number from 1 to 5, or null"
                )
        weights = weights or _weights(where, row, dimensions)
        if row.get("weights", weights) != weights:
            raise cli.BadData(
                f"{where}: weights are {json.dumps(row['weights'])}, and {json.dumps(weights)} in the first row"
            )
        if not row["rendered"]:
            kind = kind or "model"
        elif None in scores.values():
            kind = kind or "judge"
        samples = models.setdefault(row["model"], {}).setdefault(row["id"], [])
        samples.append(
            {
                "id": row["id"],
                "gen": {
                    "model": {"name": row["model"]},
                    "sample": {"of": row["id"], "k": len(samples)},
                },
                "score": _foreign(scores, weights, kind, row["rendered"]),
            }
        )
    if not models:
        raise cli.BadData(f"{path} is empty; a file of scores has one row for each deck")
    for model, prompts in models.items():
        records = [record for samples in prompts.values() for record in samples]
        yield {
            "path": path,
            "name": model,
            "label": model,
            "color": None,
            "records": records,
            "summary": summarize(enumerate(records, 1), path),
            "unshipped": [],
            "remedy": "have these scored again",
            "protocol": {
                "protocol": ROWS,
                "score": {"overall": _overall(weights), "weights": weights},
            },
        }


def _weights(where, row, dimensions):
    """The weight of each dimension, as the first row gives them."""
    weights = row.get("weights", dict.fromkeys(sorted(dimensions), 1))
    usable = (
        isinstance(weights, dict)
        and set(weights) == dimensions
        and all(
            isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf
            for value in weights.values()
        )
    )
    if not usable or sum(weights.values()) <= 0:
        raise cli.BadData(
            f"{where}: weights is {json.dumps(row.get('weights'))}; it has a number from 0 for each dimension of scores "
            f"({', '.join(sorted(dimensions))}), not all 0"
        )
    return weights


def _overall(weights):
    """What Overall is, in words."""
    if len(weights) == 1:
        return f"Overall ({next(iter(weights))})"
    return (
        "Mean of the dimensions"
        if len(set(weights.values())) == 1
        else "Weighted mean of the dimensions"
    )


def _foreign(scores, weights, kind, rendered):
    fault = kind and {
        "stage": "judge" if rendered else "render",
        "kind": kind,
        "class": "as-reported",
        "message": "reported by the other tool",
    }
    if kind == "model":
        scores = dict.fromkeys(scores, 1)
    whole = (
        None
        if kind and kind != "model"
        else sum(scores[name] * weight for name, weight in weights.items()) / sum(weights.values())
    )
    return {
        "overall": whole,
        "judge_only": None,
        "checklist": None,
        "dimensions": scores,
        "rendered": rendered and kind != "model",
        "floored": kind == "model",
        "fault": fault,
    }


def _registry():
    path = cli.ROOT / "assets" / "models.toml"
    if not path.exists():
        return {}
    try:
        data = tomllib.loads(path.read_text())
    except tomllib.TOMLDecodeError as error:
        raise cli.BadConfig(f"{path}: {error}") from None
    return data


def _same_protocol(first, other, common):
    from decksmith.judging import identity

    if (first["protocol"].get("protocol") == ROWS) != (other["protocol"].get("protocol") == ROWS):
        raise cli.BadData(
            f"{first['path']} and {other['path']}: one is a run and one a file of scores of another tool; nothing says that "
            "both were made alike, so they do not belong in one table"
        )
    held = [
        {key: value for key, value in run["protocol"].items() if not (common and key == "prompts")}
        for run in (first, other)
    ]
    if differing := identity.differences(*held):
        raise cli.BadData(
            "\n".join(
                [
                    f"{first['path']} and {other['path']} differ in more than the model; their scores do not belong in one table",
                    f"  {first['path']}/protocol.json != {other['path']}/protocol.json:",
                    *(f"  {line}" for line in differing),
                ]
            )
        )


def caption(runs):
    """Who judged, in words."""
    judge = judged_by(runs)
    if runs[0]["protocol"].get("protocol") == ROWS:
        return f"Scores as {' and '.join(sorted({run['path'].name for run in runs}))} gives them"
    if judge is None:
        return "No deck was judged"
    said = f"Judge: {judge}" + (f" ({OFFLINE})" if offline(runs) else "")
    poor = {
        prompt_of(record)
        for run in runs
        for record in run["records"]
        if record["score"].get("lacks")
    }
    if poor:
        lacks = sorted({what for run in runs for what in run["summary"].get("lacks") or ()})
        said += (
            f". {len(poor)} prompts say too little of what they want for Content and {titles(runs)['overall']} to be measured; "
            f"they lack {', '.join(lacks)}"
        )
    return said


def judged_by(runs):
    return next((run["summary"]["judge"] for run in runs if run["summary"]["judge"]), None)


def offline(runs):
    """Whether the judge was the embedded one, which computes measures and sees nothing."""
    return (runs[0]["protocol"].get("judge") or {}).get("kind") == "offline"


def titles(runs):
    """The measures' titles, with what this protocol means by Overall and by VisCraft."""
    score = runs[0]["protocol"].get("score") or {}
    scan = score.get("viscraft")
    return {
        **TITLES,
        "overall": score.get("overall") or "Overall",
        "content": score.get("content") or TITLES["content"],
        "viscraft": f"VisCraft ({TITLES.get(scan, scan)})" if scan else "VisCraft",
    }


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
        cut = (
            f" ({100 * summary['truncated'] / summary['n']:.0f} %)" if summary["truncated"] else ""
        )
        happened.append(
            [
                run["label"],
                str(summary["n"]),
                f"{summary['rendered']}{partial}",
                f"{summary['truncated']}{cut}",
                *(str(faults[kind]) for kind in stream.KINDS),
                str(summary["capped"]),
                *spent(summary),
            ]
        )
    measures = [
        measure
        for measure in dict.fromkeys(
            itertools.chain(*(run["summary"]["means"]["floor"] for run in runs))
        )
    ]
    for run, common in zip(runs, _scored_by_all(runs), strict=True):
        for accounting, means in [
            *run["summary"]["means"].items(),
            *([("all scored", common)] if len(runs) > 1 else []),
        ]:
            n = means.get("overall", {}).get("n", 0)
            scores.append(
                [
                    run["label"],
                    accounting,
                    str(n),
                    *(interval(means.get(measure)) for measure in measures),
                ]
            )
    return [
        (
            "What happened",
            [
                "Model",
                "n",
                "Rendered",
                "Truncated",
                *(f"{kind.capitalize()} faults" for kind in stream.KINDS),
                "Capped",
                "Tokens in",
                "Tokens out",
                "Cost",
                "Wall",
            ],
            happened,
        ),
        (
            "Scores",
            [
                "Model",
                "Accounting",
                "Prompts",
                *(named.get(measure, measure) for measure in measures),
            ],
            scores,
        ),
    ]


def _scored_by_all(runs):
    """For each run its means over the prompts for which every run has a rendered and scored deck."""
    tables = [columns(run["records"], "renderable") for run in runs]
    common = set.intersection(*(set(cells.get("overall", {})) for cells in tables))
    return [
        _means(
            {
                measure: {prompt: value for prompt, value in cells.items() if prompt in common}
                for measure, cells in found.items()
            },
            domains(run["records"]),
        )
        for run, found in zip(runs, tables, strict=True)
    ]


def spent(summary):
    """Tokens in, tokens out, cost and wall time as text."""
    tokens, cost, wall = summary["tokens"], summary["cost"], summary["by"]["wall_s"]
    known = (
        [f"{tokens[name]:,}" for name in ("prompt", "completion")]
        if tokens["records"]
        else ["unknown", "unknown"]
    )
    money = "unknown" if cost is None else f"${cost:.4f}" if 0 < cost < 1 else f"${cost:.2f}"
    return [*known, money, _time(wall)]


def _time(seconds):
    if seconds is None:
        return "unknown"
    return (
        f"{seconds:.0f} s"
        if seconds < 90
        else f"{seconds / 60:.0f} min"
        if seconds < 5400
        else f"{seconds / 3600:.1f} h"
    )


HAPPENED = (
    "Truncated: cut off at the token limit. Faults: whose doing it was that a deck has no score. Capped: decks in which something the "
    "judge saw limits a score."
)
NOTES = (
    "Means over prompts with 95 % intervals, clustered by domain where a domain has several, 1 to 5 (Checklist: share of the items, 0 to 1). "
    "floor: a model fault counts 1 (Checklist 0). renderable: only decks that rendered. all scored: prompts for which every model's "
    "deck rendered. Renderer, judge and infra faults are in none. With fewer than about 20 prompts such intervals are too narrow. "
    "VisCraft counts features of the markdown; Judge only leaves it out."
)


def markdown_table(header, rows, words):
    """A markdown table; the first `words` columns are text, the others stand to the right."""
    return [
        _row(header),
        _row(["---"] * words + ["---:"] * (len(header) - words)),
        *map(_row, rows),
    ]


def _row(cells):
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
