"""What a benchmark's grades say: pass@k, the mean of k, majority, with errors that know which samples belong to one question.

Every number is a share from 0 to 1. Rows that could not be graded are in no score; they are counted, and coverage stands beside each.
"""

import json
import math
from collections import Counter
from datetime import datetime
from pathlib import Path

from decksmith import __version__
from decksmith.benchmarks import tasks
from decksmith.core import cli, stream
from decksmith.core.records import prompt_of, sample_of
from decksmith.results import stats


def pass_at(scores, k):
    """The chance that one of `k` of these samples is right, without bias: 1 - C(n-c, k) / C(n, k) (Chen et al. 2021, eq. 1); for scores
    other than 0 and 1 the best of the first k. None with fewer than k samples."""
    n = len(scores)
    if n < k:
        return None
    if any(score not in (0, 1) for score in scores):
        return max(scores[:k])
    return 1 - math.comb(n - int(sum(scores)), k) / math.comb(n, k)


def majority(samples, k):
    """The score of the most frequent answer among the first `k` samples, `[(answer, score)]`; answers that tie are averaged, and without
    any answer it is 0. None with fewer than k samples."""
    if len(samples) < k:
        return None
    votes = Counter(sample for sample in samples[:k] if sample[0] is not None)
    most = max(votes.values(), default=0)
    tied = [score for (_, score), count in votes.items() if count == most]
    return sum(tied) / len(tied) if tied else 0.0


def ks(n):
    """The k that are reported for n samples: powers of two, and n."""
    return sorted({1 << i for i in range(n.bit_length()) if 1 << i <= n} | {n})


def read(numbered):
    """Graded records by benchmark, `{name: {question: [record of sample 0, 1, ..]}}`.

    Raises cli.BadData for a record without a grade, an id twice, mixed models, settings or judges; cli.TryAgain naming the questions that
    lack samples.
    """
    found, seen, models, judges = {}, set(), {}, {}
    for number, record in numbered:
        where = f"stdin:{number}: {record['id']}"
        if not isinstance(record.get("task"), dict) or not (
            isinstance(record.get("grade"), dict) or stream.fault(record)
        ):
            raise cli.BadData(f"{where}: no grade in this record; bench-grade writes it")
        if record["id"] in seen:
            raise cli.BadData(
                f"{where}: this id came before; are two parts of different divisions here?"
            )
        seen.add(record["id"])
        name, gen = record["task"]["bench"], record.get("gen") or {}
        if gen.get("model"):
            setting = (
                gen["model"].get("name"),
                gen["model"].get("served"),
                {k: v for k, v in (gen.get("sampling") or {}).items() if k != "seed"},
            )
            if models.setdefault(name, setting) != setting:
                raise cli.BadData(
                    f"{where}: {json.dumps(setting)}, but records before it have {json.dumps(models[name])}"
                )
        if (judge := _judge(record)) and judges.setdefault(name, judge) != judge:
            raise cli.BadData(
                f"{where}: judged by {judge}, but records before it by {judges[name]}"
            )
        if (fault := stream.fault(record)) and fault[
            "kind"
        ] == "model":  # no reply, and nobody's fault but the model's
            record = {
                **record,
                "grade": {
                    "verdict": "no_answer",
                    "score": 0.0,
                    "answer": None,
                    "truncated": False,
                    "detail": {},
                },
            }
        found.setdefault(name, {}).setdefault(prompt_of(record), []).append(record)
    if not found:
        raise cli.BadData("no records on stdin; a summary needs what bench-grade prints")
    for questions in found.values():
        for samples in questions.values():
            samples.sort(key=sample_of)
        counts = Counter(len(samples) for samples in questions.values())
        usual = max(counts)
        if lacking := [
            f"{ident} ({len(samples)} of {usual})"
            for ident, samples in questions.items()
            if len(samples) != usual
        ]:
            raise cli.TryAgain(
                f"samples are missing, of {len(lacking)}: {', '.join(lacking[:5])}; run the same commands again"
            )
    return found


def _judge(record):
    return ((record.get("grade") or {}).get("detail") or {}).get("judge")


def summarize(questions, of=None):
    """The metrics of one benchmark, `{mode: {...}}` and what happened; `questions` as `read` gives them, `of` the rows the benchmark has
    (None where that is not known)."""
    first = next(iter(questions.values()))[0]
    spec = tasks.load(first["task"]["bench"])
    subsets = sorted({samples[0]["task"].get("subset") for samples in questions.values()} - {None})
    whole = _modes(spec, questions, interval=True)
    records = [record for samples in questions.values() for record in samples]
    errors = [fault for record in records if (fault := fault_of(record))]
    gens = [record["gen"] for record in records if not (record.get("gen") or {}).get("error")]
    judged = [record["grade"] for record in records if (record.get("grade") or {}).get("verdict")]
    classes = Counter((fault["kind"], fault["stage"], fault["class"]) for fault in errors)
    return {
        "benchmark": spec["name"],
        "title": spec["title"],
        "metric": spec["metric"],
        "model": (gens[0].get("model") if gens else None),
        "sampling": {k: v for k, v in (gens[0].get("sampling") or {}).items() if k != "seed"}
        if gens
        else None,
        "revision": first["task"].get("revision"),
        "prompts": _prompts(questions),
        "rows": of,
        "judge": next(filter(None, map(_judge, records)), None),
        "rules": sorted({grade["rules"] for grade in judged if "rules" in grade}, key=str),
        "num_questions": len(questions),
        "samples": len(first and next(iter(questions.values()))),
        "coverage": _share(len(judged), len(records)),
        "truncated": _share(
            sum(gen.get("finish_reason") == "length" for gen in gens), len(records)
        ),
        "errors": {
            "n": len(errors),
            "classes": [
                {"kind": kind, "stage": stage, "class": cls, "n": n}
                for (kind, stage, cls), n in classes.most_common()
            ],
        },
        "tokens": {
            name: sum((gen.get("usage") or {}).get(f"{name}_tokens") or 0 for gen in gens)
            for name in ("prompt", "completion")
        },
        "cost": _cost(gens, judged),
        **_extra(spec, records),
        "modes": whole,
        "subsets": {
            subset: _modes(
                spec,
                {
                    ident: samples
                    for ident, samples in questions.items()
                    if samples[0]["task"].get("subset") == subset
                },
            )
            for subset in subsets
        },
        "by": {"tool": "bench-summarize", "version": __version__},
    }


def _modes(spec, questions, interval=False):
    metric, graded = (
        spec["metric"],
        {
            ident: [r for r in samples if fault_of(r) is None]
            for ident, samples in questions.items()
        },
    )
    n = max(map(len, questions.values()))
    records = [record for samples in questions.values() for record in samples]
    gens = [record["gen"] for record in records if not (record.get("gen") or {}).get("error")]
    spans = [(start, start + gen["by"]["took"]) for gen in gens if (start := _at(gen)) is not None]
    tokens = [
        gen["usage"]["completion_tokens"]
        for gen in gens
        if (gen.get("usage") or {}).get("completion_tokens") is not None
    ]
    common = {
        "num_entries": len(questions),
        "avg_tokens": round(sum(tokens) / len(tokens)) if tokens else None,
        "gen_seconds": round(max(end for _, end in spans) - min(start for start, _ in spans))
        if spans
        else None,
    }
    scores = {
        ident: [record["grade"]["score"] for record in samples] for ident, samples in graded.items()
    }
    silent = {
        ident: [record["grade"]["verdict"] == "no_answer" for record in samples]
        for ident, samples in graded.items()
    }
    answers = {
        ident: [(r["grade"]["answer"], r["grade"]["score"]) for r in samples]
        for ident, samples in graded.items()
    }
    voted = n > 1 and any(answer is not None for pairs in answers.values() for answer, _ in pairs)
    modes = {}
    for k in ks(n) if n > 1 else []:
        modes[f"pass@{k}"] = common | _mode(
            metric,
            [pass_at(values, k) for values in scores.values()],
            [all(values[:k]) if len(values) >= k else None for values in silent.values()],
        )
        if voted and k > 1:
            modes[f"majority@{k}"] = common | _mode(
                metric,
                [majority(pairs, k) for pairs in answers.values()],
                [all(values[:k]) if len(values) >= k else None for values in silent.values()],
            )
    mean = _mode(
        metric,
        [_mean(values) for values in scores.values()],
        [_mean(values) for values in silent.values()],
        interval,
    )
    return {
        (f"pass@1[avg-of-{n}]" if n > 1 else "pass@1"): common
        | mean
        | ({f"{metric}_statistics": _statistics(scores, n)} if n > 1 else {}),
        **modes,
    }


def _mode(metric, values, silent, interval=False):
    """One mode: the mean over questions, its standard error clustered by question (the questions' means are what is independent: Miller
    2024, arXiv 2411.00640), and, for the mode that is reported first, its 95 % interval (`stats.mean`, strict)."""
    present = [value for value in values if value is not None]
    found = stats.mean(present, (0, 1), strict=True) if interval and present else {}
    error = _sd(present) / math.sqrt(len(present)) if len(present) > 1 else None
    return {
        metric: _rounded(_mean(present)),
        "std_err": _rounded(error),
        "interval": [found.get("lo"), found.get("hi")],
        "scored": len(present),
        "no_answer": _rounded(_mean([value for value in silent if value is not None])),
    }


def _statistics(scores, n):
    """As NeMo-Skills gives them, over the questions whose every sample has a score."""
    whole = [values for values in scores.values() if len(values) == n]
    if not whole:
        return None
    runs = [sum(values[i] for values in whole) / len(whole) for i in range(n)]
    spread = _sd(runs)
    return {
        "avg": round(_mean(runs), 4),
        "std_dev_across_runs": round(spread, 4),
        "std_err_across_runs": round(spread / math.sqrt(n), 4),
        "avg_sample_std_dev": round(_mean([_sd(values) for values in whole]), 4),
    }


def _sd(values):
    centre = sum(values) / len(values)
    return math.sqrt(sum((value - centre) ** 2 for value in values) / (len(values) - 1))


def _mean(values):
    return sum(values) / len(values) if values else None


def _rounded(value):
    return None if value is None else round(value, 4)


def _share(part, whole):
    return round(part / whole, 4) if whole else None


def fault_of(record):
    """The error that kept a record from a verdict, with its stage, or None. What the model brought about is a verdict (`read`)."""
    fault = stream.fault(record)
    return None if fault is None or fault["kind"] == "model" else fault


def _at(gen):
    by = gen.get("by") or {}
    return (
        datetime.fromisoformat(by["at"]).timestamp()
        if by.get("at") and isinstance(by.get("took"), int | float)
        else None
    )


def _cost(gens, judged):
    costs = [(gen.get("usage") or {}).get("cost") for gen in gens] + [
        grade["detail"]["usage"].get("cost")
        for grade in judged
        if "usage" in (grade.get("detail") or {})
    ]
    return None if None in costs or not costs else round(sum(costs), 6)


def _extra(spec, records):
    judged = [record for record in records if (record.get("grade") or {}).get("verdict")]
    details = [record["grade"].get("detail") or {} for record in judged]
    if spec["grader"] == "instructions":
        # Of a blank reply, or one on which a checker stalled, no instruction is followed.
        lengths = [len(record["task"]["expected"]["instructions"]) for record in judged]
        strict, loose = (
            [
                detail.get(mode) or [False] * length
                for detail, length in zip(details, lengths, strict=True)
            ]
            for mode in ("strict", "loose")
        )
        return {
            "prompt_loose": _rounded(_mean(list(map(all, loose)))),
            "instruction_strict": _rounded(_mean([followed for row in strict for followed in row])),
            "instruction_loose": _rounded(_mean([followed for row in loose for followed in row])),
        }
    if spec["grader"] == "pairwise":
        return {
            "position_flips": _rounded(
                _mean([detail["flipped"] for detail in details if "flipped" in detail])
            )
        }
    return {}


def _prompts(questions):
    """What the model was asked, as one hash over all questions: only equal ones are compared."""
    return stream.fingerprint(
        sorted(
            (ident, stream.fingerprint(samples[0].get("messages")))
            for ident, samples in questions.items()
        )
    )


# As text


def main_mode(summary):
    return next(iter(summary["modes"].items()))


def score(summary):
    """The first mode's score as text, a dash without a summary."""
    return text(main_mode(summary)[1][summary["metric"]]) if summary else "–"


ALSO = (
    "prompt_loose",
    "instruction_strict",
    "instruction_loose",
)  # beside prompt_strict, as IFEval and IFBench report


def table(summaries):
    """The metrics as a table of text cells: `(header, rows)`."""
    rows = []
    for found in summaries:
        rows += _lines(found, found["benchmark"], found["modes"])
        rows += [["", also, "", text(found[also]), *[""] * 8] for also in ALSO if also in found]
        for subset, modes in found["subsets"].items():
            rows += _lines(found, f"  {subset}", dict([next(iter(modes.items()))]))
    return [
        "benchmark",
        "mode",
        "questions",
        "score",
        "std err",
        "95 %",
        "no answer",
        "truncated",
        "coverage",
        "tokens",
        "seconds",
        "cost",
    ], rows


def _lines(found, name, modes):
    shown, best = (
        [],
        max(
            (k for mode in modes if "@" in mode and (k := int(mode.split("@")[1].split("[")[0]))),
            default=1,
        ),
    )
    for index, (mode, value) in enumerate(modes.items()):
        if index and int(mode.split("@")[1]) != best:
            continue
        whole = not index and not name.startswith(" ")
        of = (
            f" of {found['rows']}"
            if whole and found["rows"] not in (None, value["num_entries"])
            else ""
        )
        lo, hi = value["interval"]
        shown.append(
            [
                name if not index else "",
                mode,
                f"{value['num_entries']}{of}",
                text(value[found["metric"]]),
                text(value["std_err"]),
                "–" if lo is None else f"[{text(lo)}, {text(hi)}]",
                text(value["no_answer"]),
                text(found["truncated"]) if whole else "",
                text(found["coverage"]) if whole else "",
                ""
                if index
                else str(value["avg_tokens"] if value["avg_tokens"] is not None else "–"),
                ""
                if index
                else str(value["gen_seconds"] if value["gen_seconds"] is not None else "–"),
                ("unknown" if found["cost"] is None else f"${found['cost']:.4f}") if whole else "",
            ]
        )
    return shown


def text(value):
    return "–" if value is None else f"{value:.3f}"


def aligned(header, rows):
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]

    def line(row):
        return "  ".join(
            cell.ljust(w) if i < 2 else cell.rjust(w)
            for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        ).rstrip()

    return "\n".join([line(header), "  ".join("-" * w for w in widths), *map(line, rows)])


# Two models


def load(folder):
    """The graded records of a model, `{benchmark: {question: [records]}}`, from `folder/<benchmark>/rows.jsonl`. Raises cli.Missing."""
    found = {}
    for rows in sorted(Path(folder).glob("*/rows.jsonl")):
        found |= read((number, record) for number, record in stream.records(rows))
    if not found:
        raise cli.Missing(
            f"{folder} has no graded benchmark; `make bench MODEL={Path(folder).name}` makes them"
        )
    return found


NOTHING = {"n": 0, "mean": None, "lo": None, "hi": None, "p": None, "sd": None}
COUNTS = ("n", "clusters", "wins", "ties", "losses")


def compare(ours, base, margin=None):
    """Two models paired by question, one entry for each benchmark: `{"benchmark", "difference", "p_holm", "refused", "margin", "needed",
    ..}`; of one that only one of them has, "ours" or "base" is None.

    The difference is ours minus base, of the questions' means over samples (stats.differences, strict); p is corrected over the
    benchmarks. margin: the largest loss that may stay open; without it each benchmark's own. needed: about how many questions would
    rule out a loss of more than that with a chance of 80 %, if the two were equally good; None without a difference.
    """
    import numpy

    from decksmith.results import claims

    found = []
    for name in sorted(set(ours) ^ set(base)):
        sides = [summarize(side[name]) if name in side else None for side in (ours, base)]
        found.append(
            {
                "benchmark": name,
                "metric": (sides[0] or sides[1])["metric"],
                "ours": sides[0],
                "base": sides[1],
                "difference": NOTHING,
                "margin": None,
                "needed": None,
                "refused": "only one of the two has results",
            }
        )
    for name in sorted(set(ours) & set(base)):
        sides = [summarize(side[name]) for side in (ours, base)]
        entry = {
            "benchmark": name,
            "metric": sides[0]["metric"],
            "ours": sides[0],
            "base": sides[1],
        }
        entry["refused"] = _refused(name, sides, ours[name], base[name], claims.LIMITS["excluded"])
        means = [
            {
                ident: _mean([r["grade"]["score"] for r in samples if fault_of(r) is None])
                for ident, samples in side[name].items()
            }
            for side in (ours, base)
        ]
        shared = [
            ident
            for ident in means[0]
            if means[0][ident] is not None and means[1].get(ident) is not None
        ]
        columns = [
            numpy.array([[side[ident]] for ident in shared], dtype=float).reshape(-1, 1)
            for side in means
        ]
        result = (
            {
                key: value[0]
                for key, value in stats.differences(*columns, (0, 1), strict=True).items()
            }
            if shared
            else {}
        )
        entry["difference"] = {
            key: int(result[key])
            if key in COUNTS
            else stats.number(result[key], 6 if key == "p" else 4)
            for key in result
        } or NOTHING
        entry["margin"] = tasks.load(name).get("margin", tasks.MARGIN) if margin is None else margin
        entry["needed"] = _needed(columns[0] - columns[1], entry["margin"]) if shared else None
        found.append(entry)
    found.sort(key=lambda entry: entry["benchmark"])
    usable = [entry for entry in found if not entry["refused"]]
    adjusted = stats.holm(
        [
            numpy.nan if entry["difference"]["p"] is None else entry["difference"]["p"]
            for entry in usable
        ]
    )
    for entry, p in zip(usable, adjusted, strict=True):
        entry["p_holm"], entry["family"] = stats.number(p, 6), len(usable)
    return found


def _needed(gaps, margin):
    """The questions that a margin needs: as for finding a difference of its size, by the spread of these differences around 0 and of one
    question won and one lost more, since few questions show less than there is."""
    spread = math.sqrt((float((gaps**2).sum()) + 2) / (len(gaps) + 2))
    return max(len(gaps) + 1, stats.needed(margin, spread))


def _refused(name, sides, ours, base, limit):
    """Why two results of a benchmark are not compared, or None."""
    for what in ("revision", "prompts", "samples", "judge", "rules"):
        if sides[0][what] != sides[1][what] and (what != "prompts" or set(ours) == set(base)):
            return f"the two were not asked or graded alike ({what}: {sides[0][what]}, {sides[1][what]})"
    if set(ours) != set(base):
        return f"the two have different questions ({len(set(ours) - set(base))} and {len(set(base) - set(ours))} of their own)"
    if sides[0]["sampling"] != sides[1]["sampling"]:
        return f"sampling differs ({json.dumps(sides[0]['sampling'])}, {json.dumps(sides[1]['sampling'])})"
    if lost := next((side for side in sides if 1 - (side["coverage"] or 0) > limit), None):
        return f"of {(lost['model'] or {}).get('name', 'one model')} only {100 * (lost['coverage'] or 0):.1f} % of the rows could be graded"
    return None
