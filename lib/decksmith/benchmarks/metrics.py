"""What a benchmark's grades say: pass@k, the mean of k, majority, with errors that know which samples belong to one question.

Every number is a share from 0 to 1. Rows that could not be graded are in no score; they are counted, and coverage stands beside each.
"""

import json
import math
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from decksmith import __version__
from decksmith.benchmarks import tasks
from decksmith.core import cli, stream
from decksmith.core.records import Record, prompt_of, sample_of
from decksmith.results import chains, pairs, regressions, stats
from decksmith.results import text as as_text

Questions = dict[str, list[Record]]  # the samples of each question, in their order

NO_REPLY = {"verdict": "no_answer", "score": 0.0, "answer": None, "truncated": False, "detail": {}}


def pass_at(scores: Sequence[float], k: int) -> float | None:
    """The chance that one of `k` of these samples is right, without bias: 1 - C(n-c, k) / C(n, k) (Chen et al. 2021, eq. 1); for scores
    other than 0 and 1 the best of the first k. None with fewer than k samples."""
    n = len(scores)
    if n < k:
        return None
    if any(score not in (0, 1) for score in scores):
        return max(scores[:k])
    return 1 - math.comb(n - int(sum(scores)), k) / math.comb(n, k)


def majority(samples: Sequence[tuple[Any, float]], k: int) -> float | None:
    """The score of the most frequent answer among the first `k` samples, `[(answer, score)]`; answers that tie are averaged, and without
    any answer it is 0. None with fewer than k samples."""
    if len(samples) < k:
        return None
    votes = Counter(sample for sample in samples[:k] if sample[0] is not None)
    most = max(votes.values(), default=0)
    tied = [score for (_, score), count in votes.items() if count == most]
    return sum(tied) / len(tied) if tied else 0.0


def ks(n: int) -> list[int]:
    """The k that are reported for n samples: powers of two, and n."""
    return sorted({1 << i for i in range(n.bit_length()) if 1 << i <= n} | {n})


# What `summarize` looks at; the rest of a graded row is ten times as large.
READ: dict[str, tuple[str, ...]] = {
    "task": ("bench", "subset", "revision"),
    "gen": ("sample", "error", "finish_reason", "model", "sampling", "usage", "by"),
    "grade": ("error", "verdict", "score", "answer", "detail", "rules"),
}


def read(numbered: Iterable[tuple[int, Record]], lean: bool = False) -> dict[str, Questions]:
    """Graded records by benchmark, `{name: {question: [record of sample 0, 1, ..]}}`; with `lean` only what `summarize` needs of them.

    Raises cli.BadData for a record without a grade, an id twice, mixed models, settings or judges; cli.TryAgain naming the
    questions that lack samples.
    """
    found: dict[str, Questions] = {}
    ids: set[str] = set()
    settings: dict[str, Any] = {}
    judges: dict[str, str] = {}
    equal: dict[str, Any] = {}
    for number, record in numbered:
        where = f"stdin:{number}: {record['id']}"
        fault = stream.fault(record)
        if not isinstance(record.get("task"), dict) or not (
            isinstance(record.get("grade"), dict) or fault
        ):
            raise cli.BadData(f"{where}: no grade in this record; bench-grade writes it")
        if record["id"] in ids:
            raise cli.BadData(
                f"{where}: this id came before; are two parts of different divisions here?"
            )
        ids.add(record["id"])
        name, setting, judge = record["task"]["bench"], _setting(record), _judge(record)
        if setting and settings.setdefault(name, setting) != setting:
            raise cli.BadData(
                f"{where}: {json.dumps(setting)}, but records before it have {json.dumps(settings[name])}"
            )
        if judge and judges.setdefault(name, judge) != judge:
            raise cli.BadData(
                f"{where}: judged by {judge}, but records before it by {judges[name]}"
            )
        if fault and fault["kind"] == "model":  # no reply, and nobody's fault but the model's
            record = {**record, "grade": dict(NO_REPLY)}
        kept = _lean(record, equal) if lean else record
        found.setdefault(name, {}).setdefault(prompt_of(record), []).append(kept)
    if not found:
        raise cli.BadData("no records on stdin; a summary needs what bench-grade prints")
    for questions in found.values():
        for samples in questions.values():
            samples.sort(key=sample_of)
        _complete(questions)
    return found


def _lean(record: Record, equal: dict[str, Any]) -> Record:
    """The parts of a record that `summarize` reads. What many records have alike is kept once, in `equal`, by its JSON."""
    made: Record = {"id": record["id"], "messages": _asked(record)}
    for part, value in record.items():
        if isinstance(value, dict):
            names = READ.get(part, ("error",))
            made[sys.intern(part)] = {name: value[name] for name in names if name in value}
    expected = record["task"].get("expected")
    if isinstance(expected, dict) and "instructions" in expected:
        made["task"]["expected"] = {"instructions": expected["instructions"]}
    gen = made.get("gen") or {}
    if "by" in gen:
        gen["by"] = {name: gen["by"].get(name) for name in ("at", "took")}
    for holder, part in ((made, "task"), (gen, "model"), (gen, "sampling")):
        if part in holder:
            holder[part] = equal.setdefault(json.dumps(holder[part]), holder[part])
    return made


def _asked(record: Record) -> str:
    """What the model was asked, as a hash; of a lean record it stands in place of the messages."""
    messages = record["messages"] if "messages" in record else {"prompt": record.get("prompt")}
    return messages if isinstance(messages, str) else stream.fingerprint(messages)


def _setting(record: Record) -> list[Any] | None:
    """What all replies to a benchmark must share: model, server and sampling less the seed."""
    gen = record.get("gen") or {}
    model = gen.get("model")
    return [model.get("name"), model.get("served"), _sampling(gen)] if model else None


def _sampling(gen: Record) -> Record:
    return {key: value for key, value in (gen.get("sampling") or {}).items() if key != "seed"}


def _complete(questions: Questions) -> None:
    """Raises cli.TryAgain unless every question has as many samples as the one with the most."""
    most = max(map(len, questions.values()))
    lacking = [
        f"{ident} ({len(samples)} of {most})"
        for ident, samples in questions.items()
        if len(samples) != most
    ]
    if lacking:
        raise cli.TryAgain(
            f"samples are missing, of {len(lacking)}: {', '.join(lacking[:5])}; run the same commands again"
        )


def _judge(record: Record) -> str | None:
    judge: str | None = ((record.get("grade") or {}).get("detail") or {}).get("judge")
    return judge


def summarize(questions: Questions, of: int | None = None) -> Record:
    """The metrics of one benchmark, `{mode: {...}}` and what happened; `questions` as `read` gives them, `of` the rows the
    benchmark has (None where that is not known)."""
    records = [record for samples in questions.values() for record in samples]
    first = records[0]
    spec = tasks.load(first["task"]["bench"])
    faults = [fault for record in records if (fault := fault_of(record))]
    gens = _replies(records)
    judged = [record["grade"] for record in records if (record.get("grade") or {}).get("verdict")]
    cut = sum(gen.get("finish_reason") == "length" for gen in gens)
    return {
        "benchmark": spec["name"],
        "title": spec["title"],
        "metric": spec["metric"],
        "model": gens[0].get("model") if gens else None,
        "sampling": _sampling(gens[0]) if gens else None,
        "revision": first["task"].get("revision"),
        "prompts": _prompts(questions),
        "rows": of,
        "judge": next(filter(None, map(_judge, records)), None),
        "rules": sorted({grade["rules"] for grade in judged if "rules" in grade}, key=str),
        "num_questions": len(questions),
        "samples": len(next(iter(questions.values()))),
        "coverage": _share(len(judged), len(records)),
        "truncated": _share(cut, len(records)),
        "errors": _errors(faults),
        "tokens": {
            name: sum((gen.get("usage") or {}).get(f"{name}_tokens") or 0 for gen in gens)
            for name in ("prompt", "completion")
        },
        "cost": _cost(gens, judged),
        **_extra(spec, records),
        "modes": _modes(spec, questions, interval=True),
        "subsets": {subset: _modes(spec, part) for subset, part in _subsets(questions).items()},
        "by": {"tool": "bench-summarize", "version": __version__},
    }


def _replies(records: list[Record]) -> list[Record]:
    return [record["gen"] for record in records if not (record.get("gen") or {}).get("error")]


def _errors(faults: list[Record]) -> Record:
    classes = Counter((fault["kind"], fault["stage"], fault["class"]) for fault in faults)
    return {
        "n": len(faults),
        "classes": [
            {"kind": kind, "stage": stage, "class": cls, "n": n}
            for (kind, stage, cls), n in classes.most_common()
        ],
    }


def _subsets(questions: Questions) -> dict[str, Questions]:
    """The questions of each subset, subsets in the order of their names."""
    found: dict[str, Questions] = {}
    for ident, samples in questions.items():
        if (subset := samples[0]["task"].get("subset")) is not None:
            found.setdefault(subset, {})[ident] = samples
    return dict(sorted(found.items()))


def _modes(spec: Record, questions: Questions, interval: bool = False) -> dict[str, Record]:
    """What each way to count several samples gives: their mean first, then pass@k and majority@k."""
    metric, n = spec["metric"], max(map(len, questions.values()))
    grades = [
        [record["grade"] for record in samples if fault_of(record) is None]
        for samples in questions.values()
    ]
    scores = [[grade["score"] for grade in samples] for samples in grades]
    silent = [[grade["verdict"] == "no_answer" for grade in samples] for samples in grades]
    answers = [[(grade["answer"], grade["score"]) for grade in samples] for samples in grades]
    voted = any(answer is not None for samples in answers for answer, _ in samples)
    common = _taken(questions)
    mean = common | _mode(metric, list(map(_mean, scores)), list(map(_mean, silent)), interval)
    if n == 1:
        return {"pass@1": mean}
    modes = {f"pass@1[avg-of-{n}]": mean | {f"{metric}_statistics": _statistics(scores, n)}}
    for k in ks(n):
        mute = [all(values[:k]) if len(values) >= k else None for values in silent]
        passed = [pass_at(values, k) for values in scores]
        modes[f"pass@{k}"] = common | _mode(metric, passed, mute)
        if voted and k > 1:
            majorities = [majority(samples, k) for samples in answers]
            modes[f"majority@{k}"] = common | _mode(metric, majorities, mute)
    return modes


def _taken(questions: Questions) -> Record:
    """How many questions there are, and what the replies took: the mean of their tokens, and seconds from the first request
    to the last reply; None where no reply says."""
    gens = _replies([record for samples in questions.values() for record in samples])
    spans = [(start, start + gen["by"]["took"]) for gen in gens if (start := _at(gen)) is not None]
    counts = [(gen.get("usage") or {}).get("completion_tokens") for gen in gens]
    tokens = [count for count in counts if count is not None]
    seconds = None
    if spans:
        seconds = round(max(end for _, end in spans) - min(start for start, _ in spans))
    return {
        "num_entries": len(questions),
        "avg_tokens": round(sum(tokens) / len(tokens)) if tokens else None,
        "gen_seconds": seconds,
    }


def _mode(
    metric: str,
    values: Sequence[float | None],
    silent: Sequence[float | None],
    interval: bool = False,
) -> Record:
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


def _statistics(scores: list[list[float]], n: int) -> Record | None:
    """As NeMo-Skills gives them, over the questions whose every sample has a score."""
    whole = [values for values in scores if len(values) == n]
    if not whole:
        return None
    runs = [sum(values[i] for values in whole) / len(whole) for i in range(n)]
    spread = _sd(runs)
    return {
        "avg": round(sum(runs) / n, 4),
        "std_dev_across_runs": round(spread, 4),
        "std_err_across_runs": round(spread / math.sqrt(n), 4),
        "avg_sample_std_dev": round(sum(map(_sd, whole)) / len(whole), 4),
    }


def _sd(values: Sequence[float]) -> float:
    centre = sum(values) / len(values)
    return math.sqrt(sum((value - centre) ** 2 for value in values) / (len(values) - 1))


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def _share(part: int, whole: int) -> float | None:
    return round(part / whole, 4) if whole else None


def fault_of(record: Record) -> Record | None:
    """The error that kept a record from a verdict, with its stage, or None. What the model brought about is a verdict (`read`)."""
    fault = stream.fault(record)
    return None if fault is None or fault["kind"] == "model" else fault


def _at(gen: Record) -> float | None:
    by = gen.get("by") or {}
    return (
        datetime.fromisoformat(by["at"]).timestamp()
        if by.get("at") and isinstance(by.get("took"), int | float)
        else None
    )


def _cost(gens: list[Record], judged: list[Record]) -> float | None:
    """USD of all replies and verdicts; None where any does not say."""
    usages = [gen.get("usage") or {} for gen in gens]
    usages += [
        grade["detail"]["usage"] for grade in judged if "usage" in (grade.get("detail") or {})
    ]
    costs = [usage.get("cost") for usage in usages]
    known = [cost for cost in costs if cost is not None]
    return round(sum(known), 6) if costs and len(known) == len(costs) else None


def _extra(spec: Record, records: list[Record]) -> Record:
    """What a kind of benchmark has beside its score."""
    judged = [record for record in records if (record.get("grade") or {}).get("verdict")]
    if spec["grader"] == "instructions":
        strict, loose = _followed(judged, "strict"), _followed(judged, "loose")
        return {
            "prompt_loose": _rounded(_mean([all(row) for row in loose])),
            "instruction_strict": _rounded(_mean([each for row in strict for each in row])),
            "instruction_loose": _rounded(_mean([each for row in loose for each in row])),
        }
    if spec["grader"] == "pairwise":
        details = [record["grade"].get("detail") or {} for record in judged]
        flips = [detail["flipped"] for detail in details if "flipped" in detail]
        return {"position_flips": _rounded(_mean(flips))}
    return {}


def _followed(judged: list[Record], how: str) -> list[list[bool]]:
    """Whether each instruction of each reply was followed; of a blank reply, or one on which a checker stalled, none is."""
    return [
        (record["grade"].get("detail") or {}).get(how)
        or [False] * len(record["task"]["expected"]["instructions"])
        for record in judged
    ]


def _prompts(questions: Questions) -> str:
    """What the model was asked, as one hash over all questions: only equal ones are compared."""
    return stream.fingerprint(
        sorted((ident, _asked(samples[0])) for ident, samples in questions.items())
    )


# As text


def main_mode(summary: Record) -> tuple[str, Record]:
    return next(iter(summary["modes"].items()))


def score(summary: Record | None) -> str:
    """The first mode's score as text, a dash without a summary."""
    return text(main_mode(summary)[1][summary["metric"]]) if summary else "–"


ALSO = (
    "prompt_loose",
    "instruction_strict",
    "instruction_loose",
)  # beside prompt_strict, as IFEval and IFBench report


def table(summaries: Iterable[Record]) -> tuple[list[str], list[list[str]]]:
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


def _lines(found: Record, name: str, modes: dict[str, Record]) -> list[list[str]]:
    """The rows of the first mode and of those over the most samples."""
    first = next(iter(modes))
    most = max((_over(mode) for mode in modes), default=1)
    shown = [mode for mode in modes if mode == first or _over(mode) == most]
    return [_line(found, name, mode, modes[mode], mode == first) for mode in shown]


def _over(mode: str) -> int:
    """The k of `pass@k`, `majority@k` and `pass@1[avg-of-n]`."""
    return int(mode.partition("@")[2].partition("[")[0])


def _line(found: Record, name: str, mode: str, value: Record, first: bool) -> list[str]:
    whole = first and not name.startswith(" ")  # no subset
    questions = str(value["num_entries"])
    if whole and found["rows"] not in (None, value["num_entries"]):
        questions += f" of {found['rows']}"
    lo, hi = value["interval"]
    cost = "unknown" if found["cost"] is None else f"${found['cost']:.4f}"
    taken = [value["avg_tokens"], value["gen_seconds"]]
    return [
        name if first else "",
        mode,
        questions,
        text(value[found["metric"]]),
        text(value["std_err"]),
        "–" if lo is None else f"[{text(lo)}, {text(hi)}]",
        text(value["no_answer"]),
        text(found["truncated"]) if whole else "",
        text(found["coverage"]) if whole else "",
        *(("–" if count is None else str(count)) if first else "" for count in taken),
        cost if whole else "",
    ]


def text(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def aligned(header: list[str], rows: list[list[str]]) -> str:
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]

    def line(row: list[str]) -> str:
        return "  ".join(
            cell.ljust(w) if i < 2 else cell.rjust(w)
            for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        ).rstrip()

    return "\n".join([line(header), "  ".join("-" * w for w in widths), *map(line, rows)])


# Two models


def load(folder: Path) -> dict[str, Questions]:
    """The graded records of a model, `{benchmark: {question: [records]}}`, from `folder/<benchmark>/rows.jsonl`. Raises cli.Missing."""
    found: dict[str, Questions] = {}
    for rows in sorted(Path(folder).glob("*/rows.jsonl")):
        found |= read((number, record) for number, record in stream.records(rows))
    if not found:
        raise cli.Missing(
            f"{folder} has no graded benchmark; `make bench MODEL={Path(folder).name}` makes them"
        )
    return found


NOTHING = {"n": 0, "mean": None, "lo": None, "hi": None, "p": None, "sd": None}
COUNTS = ("n", "clusters", "wins", "ties", "losses")


def compare(
    ours: dict[str, Questions], base: dict[str, Questions], margin: float | None = None
) -> list[Record]:
    """Two models paired by question, one entry for each benchmark: `{"benchmark", "difference", "p_holm", "refused", "margin", "needed",
    ..}`; of one that only one of them has, "ours" or "base" is None.

    The difference is ours minus base, of the questions' means over samples (stats.differences, strict); p is corrected over the
    benchmarks. margin: the largest loss that may stay open; without it each benchmark's own. needed: about how many questions would
    rule out a loss of more than that with a chance of 80 %, if the two were equally good; None without a difference.
    """
    found = [
        _compared(name, ours.get(name), base.get(name), margin) for name in sorted({*ours, *base})
    ]
    usable = [entry for entry in found if not entry["refused"]]
    pairs.holm(usable)
    for entry in usable:
        entry["family"] = len(usable)
    return found


def comparison(model: str, base: str, entries: list[Record], first: str = "Benchmark") -> list[str]:
    """Entries of `compare` that have their verdict as a markdown table, then a line for each."""
    header = [first, "Metric", "Questions", model, base, "Difference", "p corrected"]
    rows = [
        [
            entry["benchmark"],
            entry["metric"],
            str(entry["difference"]["n"]),
            *(score(entry[side]) for side in ("ours", "base")),
            as_text.interval(entry["difference"]),
            as_text.p_value(entry.get("p_holm")),
            text(entry["margin"]),
            entry["verdict"],
        ]
        for entry in entries
    ]
    lines = as_text.markdown_table([*header, "Margin", "Verdict"], rows, 2)
    return [*lines, "", *(f"- {entry['sentence']}" for entry in entries)]


def note_chain(runs: list[Record], folder: Path) -> None:
    """Make these runs (results.runs.load) a chain in the order in which they were given: each gets the key `chain` that
    results.chains reads, with what the benchmarks of both models in `folder`/MODEL say of it and earlier ones."""
    for run in runs:
        run["chain"] = {}
    kept = ("benchmark", "difference", "p_holm", "margin", "verdict", "sentence")
    for run, other in chains.pairs(runs):
        ours, base = (folder / str(each["summary"]["model"]["name"]) for each in (run, other))
        if not any(ours.glob("*/rows.jsonl")) or not any(base.glob("*/rows.jsonl")):
            continue
        found = run["chain"][other["label"]] = []
        for entry in compare(load(ours), load(base)):
            said = regressions.benchmark(run["label"], other["label"], entry)
            entry["verdict"], entry["sentence"] = said
            found.append({name: entry.get(name) for name in kept})


def _compared(
    name: str, ours: Questions | None, base: Questions | None, margin: float | None
) -> Record:
    """The entry of one benchmark, less what belongs to its family."""
    ours_said, base_said = (summarize(side) if side else None for side in (ours, base))
    entry: Record = {
        "benchmark": name,
        "metric": (ours_said or base_said or {})["metric"],
        "ours": ours_said,
        "base": base_said,
        "refused": "only one of the two has results",
        "difference": NOTHING,
        "margin": None,
        "needed": None,
    }
    if not (ours and base and ours_said and base_said):
        return entry
    sides = [means(ours), means(base)]
    shared = [ident for ident in sides[0] if ident in sides[1]]
    entry["refused"] = _refused(ours_said, base_said, ours, base)
    entry["margin"] = tasks.load(name).get("margin", tasks.MARGIN) if margin is None else margin
    if shared:
        gaps = [sides[0][ident] - sides[1][ident] for ident in shared]
        entry["difference"] = difference(*([side[ident] for ident in shared] for side in sides))
        entry["needed"] = needed(gaps, entry["margin"])
    return entry


def means(questions: Questions) -> dict[str, float]:
    """The mean over the graded samples of every question that has any."""
    graded = {
        ident: [record["grade"]["score"] for record in samples if fault_of(record) is None]
        for ident, samples in questions.items()
    }
    return {ident: sum(scores) / len(scores) for ident, scores in graded.items() if scores}


def difference(ours: list[float], base: list[float]) -> Record:
    """`stats.differences` of the scores of the same questions, rounded for a record."""
    import numpy

    a, b = (numpy.array(scores, dtype=float)[:, None] for scores in (ours, base))
    result = stats.differences(a, b, (0, 1), strict=True)
    return {
        key: int(value[0]) if key in COUNTS else stats.number(value[0], 6 if key == "p" else 4)
        for key, value in result.items()
    }


def needed(gaps: list[float], margin: float) -> int:
    """The questions that a margin needs: as for finding a difference of its size, by the spread of these differences around 0
    and of one question won and one lost more, since few questions show less than there is."""
    spread = math.sqrt((sum(gap**2 for gap in gaps) + 2) / (len(gaps) + 2))
    return max(len(gaps) + 1, stats.needed(margin, spread))


def _refused(ours_said: Record, base_said: Record, ours: Questions, base: Questions) -> str | None:
    """Why two results of a benchmark are not compared, or None."""
    same = set(ours) == set(base)
    for what in ("revision", "prompts", "samples", "judge", "rules"):
        one, other = ours_said[what], base_said[what]
        if one != other and (what != "prompts" or same):
            mend = "; make bench grades them anew, and asks nothing" if what == "rules" else ""
            return f"the two were not asked or graded alike ({what}: {one}, {other}){mend}"
    if not same:
        more, less = len(set(ours) - set(base)), len(set(base) - set(ours))
        return f"the two have different questions ({more} and {less} of their own)"
    one, other = ours_said["sampling"], base_said["sampling"]
    if one != other:
        return f"sampling differs ({json.dumps(one)}, {json.dumps(other)})"
    for side in (ours_said, base_said):
        coverage = side["coverage"] or 0
        if 1 - coverage > pairs.LIMITS["excluded"]:
            name = (side["model"] or {}).get("name", "one model")
            return f"of {name} only {100 * coverage:.1f} % of the rows could be graded"
    return None
