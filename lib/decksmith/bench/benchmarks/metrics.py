"""What a benchmark's grades say: pass@k, the mean of k, majority, with errors that know which samples
belong to one question.

Every number is a share from 0 to 1. Rows that could not be graded are in no score; they are counted,
and coverage stands beside each.
"""

import json
import math
import statistics
import sys
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import NotRequired, cast

from typing_extensions import TypedDict

from decksmith import __version__
from decksmith.bench.benchmarks import tasks
from decksmith.bench.benchmarks.records import BenchmarkSpec, BenchRecord, Grade
from decksmith.core import cli, stream
from decksmith.core.records import Failure, Record, prompt_of, sample_of
from decksmith.measure.results import pairs, regressions, stats
from decksmith.measure.results import text as as_text
from decksmith.measure.results.comparison import PairedDifference
from decksmith.models.records import Asked, Gen

Questions = dict[str, list[BenchRecord]]  # the samples of each question, in their order
Results = dict[str, Questions]  # by benchmark
Settings = dict[str, object]  # the body of a request as it was posted


class Mode(TypedDict, total=False):
    """What one way to count several samples gives; under the metric's own name it has the score (scored)."""

    num_entries: int
    avg_tokens: int | None
    gen_seconds: int | None
    std_err: float | None
    interval: list[float | None]
    scored: int
    no_answer: float | None


class BenchSummary(TypedDict):
    """The metrics of one benchmark."""

    benchmark: str
    title: str
    metric: str
    model: Asked | None
    sampling: Settings | None
    revision: str | None
    prompts: str  # what the model was asked, as a hash
    rows: int | None  # that the benchmark has
    judge: str | None
    rules: list[int | str]
    num_questions: int
    samples: int
    coverage: float | None
    truncated: float | None
    errors: Record
    tokens: dict[str, int]
    cost: float | None
    modes: dict[str, Mode]
    subsets: dict[str, dict[str, Mode]]
    by: dict[str, str]
    prompt_loose: NotRequired[float | None]
    instruction_strict: NotRequired[float | None]
    instruction_loose: NotRequired[float | None]
    position_flips: NotRequired[float | None]


class Compared(TypedDict):
    """Two models on a benchmark, or on several."""

    benchmark: str
    metric: str
    refused: str | None  # why they are not compared
    difference: PairedDifference
    margin: float | None
    needed: int | None
    p_holm: NotRequired[float | None]
    family: NotRequired[int]
    verdict: NotRequired[str]
    sentence: NotRequired[str]
    only: NotRequired[tuple[list[str], list[str]]]  # questions that one has alone, left out
    notes: NotRequired[list[str]]  # what else differs between two logs of another tool


class BenchComparison(Compared):
    """Two models on one benchmark; None is one that has no results of it."""

    ours: BenchSummary | None
    base: BenchSummary | None


NO_REPLY: Grade = {"verdict": "no_answer", "score": 0.0, "answer": None, "truncated": False}


def pass_at(scores: Sequence[float], k: int) -> float | None:
    """The chance that one of `k` of these samples is right, without bias: 1 - C(n-c, k) / C(n, k) (Chen et al. 2021, eq. 1); for scores
    other than 0 and 1 the best of the first k. None with fewer than k samples."""
    n = len(scores)
    if n < k:
        return None
    if any(score not in (0, 1) for score in scores):
        return max(scores[:k])
    return 1 - math.comb(n - int(sum(scores)), k) / math.comb(n, k)


def majority(samples: Sequence[tuple[Hashable, float]], k: int) -> float | None:
    """The score of the most frequent answer among the first `k` samples, `[(answer, score)]`; answers
    that tie are averaged, and without any answer it is 0. None with fewer than k samples."""
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
    "task": ("bench", "subset", "revision", "metric", "asked"),
    "gen": ("sample", "error", "finish_reason", "model", "sampling", "usage", "by"),
    "grade": ("error", "verdict", "score", "answer", "detail", "rules"),
}


def read(
    numbered: Iterable[tuple[int, Record]], lean: bool = False, name: str = "stdin"
) -> Results:
    """Graded records by benchmark, `{name: {question: [record of sample 0, 1, ..]}}`; with `lean` only
    what `summarize` needs of them.

    Raises cli.BadData for a record without a grade, an id twice, mixed models, settings or judges;
    cli.TryAgain naming the questions that lack samples.
    """
    found: Results = {}
    ids: set[str] = set()
    settings: dict[str, object] = {}
    judges: dict[str, object] = {}
    equal: dict[str, object] = {}
    for number, each in numbered:
        record, where = cast(BenchRecord, each), f"{name}:{number}: {each['id']}"
        fault = stream.fault(each)
        graded = isinstance(each.get("grade"), dict) or fault
        if not isinstance(each.get("task"), dict) or not graded:
            raise cli.BadData(f"{where}: no grade in this record; bench-grade writes it")
        if record["id"] in ids:
            said = "this id came before; are two parts of different divisions here?"
            raise cli.BadData(f"{where}: {said}")
        ids.add(record["id"])
        bench, setting, judge = record["task"]["bench"], _setting(record), _judge(record)
        if setting and (before := settings.setdefault(bench, setting)) != setting:
            said = f"{json.dumps(setting)}, but records before it have {json.dumps(before)}"
            raise cli.BadData(f"{where}: {said}")
        if judge and (before := judges.setdefault(bench, judge)) != judge:
            raise cli.BadData(f"{where}: judged by {judge}, but records before it by {before}")
        if fault and fault["kind"] == "model":  # no reply, and nobody's fault but the model's
            record = {**record, "grade": {**NO_REPLY}}
        kept = _lean(record, equal) if lean else record
        found.setdefault(bench, {}).setdefault(prompt_of(record), []).append(kept)
    if not found:
        raise cli.BadData("no records on stdin; a summary needs what bench-grade prints")
    for questions in found.values():
        for samples in questions.values():
            samples.sort(key=sample_of)
        if not _imported(questions):
            _complete(questions)
    return found


def _lean(record: BenchRecord, equal: dict[str, object]) -> BenchRecord:
    """The parts of a record that `summarize` reads. What many records have alike is kept once, in
    `equal`, by its JSON."""
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
    return cast(BenchRecord, made)


def made_from(questions: Questions) -> str:
    """The fingerprint of what a summary is made from."""
    rows = (record for samples in questions.values() for record in samples)
    return stream.fingerprint([stream.fingerprint(_lean(record, {})) for record in rows])


def _asked(record: BenchRecord) -> str:
    """What the model was asked, as a hash; of a lean record it stands in place of the messages."""
    asked = record["messages"] if "messages" in record else {"prompt": record.get("prompt")}
    return asked if isinstance(asked, str) else stream.fingerprint(asked)


def _setting(record: BenchRecord) -> list[object] | None:
    """What all replies to a benchmark must share: model, server and sampling less the seed."""
    gen = record.get("gen") or {}
    model = gen.get("model")
    return [model.get("name"), model.get("served"), _sampling(gen)] if model else None


def _sampling(gen: Gen) -> Settings:
    return {key: value for key, value in (gen.get("sampling") or {}).items() if key != "seed"}


def _imported(questions: Questions) -> bool:
    """Whether another tool asked and graded these (harnesses)."""
    return "metric" in next(iter(questions.values()))[0]["task"]


def _complete(questions: Questions) -> None:
    """Raises cli.TryAgain unless every question has as many samples as the one with the most."""
    counts = {ident: len(samples) for ident, samples in questions.items()}
    most = max(counts.values())
    lacking = [f"{ident} ({n} of {most})" for ident, n in counts.items() if n != most]
    if lacking:
        said = f"samples are missing, of {len(lacking)}: {', '.join(lacking[:5])}"
        raise cli.TryAgain(f"{said}; run the same commands again")


def _judge(record: BenchRecord) -> str | None:
    judge: str | None = (record.get("grade", {}).get("detail") or {}).get("judge")
    return judge


KINDS = ("prompt", "completion")  # of tokens


def summarize(questions: Questions, of: int | None = None) -> BenchSummary:
    """The metrics of one benchmark; `questions` as `read` gives them, `of` the rows the benchmark has
    (None where that is not known)."""
    records = [record for samples in questions.values() for record in samples]
    first = records[0]
    spec = tasks.of(first["task"])
    asked = [(ident, _asked(samples[0])) for ident, samples in questions.items()]
    lost = filter(None, map(fault_of, records))
    faults = Counter((fault["kind"], fault["stage"], fault["class"]) for fault in lost)
    names = ("kind", "stage", "class")
    classes = [dict(zip(names, one, strict=True)) | {"n": n} for one, n in faults.most_common()]
    gens = _replies(records)
    judged = [record["grade"] for record in records if record.get("grade", {}).get("verdict")]
    usages = [cast(Record, gen["usage"]) for gen in gens if gen.get("usage")]
    cut = sum(gen.get("finish_reason") == "length" for gen in gens)
    found: BenchSummary = {
        "benchmark": spec["name"],
        "title": spec["title"],
        "metric": spec["metric"],
        "model": gens[0].get("model") if gens else None,
        "sampling": _sampling(gens[0]) if gens else None,
        "revision": first["task"].get("revision"),
        "prompts": stream.fingerprint(sorted(asked)),
        "rows": of,
        "judge": next(filter(None, map(_judge, records)), None),
        "rules": sorted({grade["rules"] for grade in judged if "rules" in grade}, key=str),
        "num_questions": len(questions),
        "samples": len(next(iter(questions.values()))),
        "coverage": _share(len(judged), len(records)),
        "truncated": _share(cut, len(records)),
        "errors": {"n": faults.total(), "classes": classes},
        "tokens": {
            kind: sum(usage.get(f"{kind}_tokens") or 0 for usage in usages) for kind in KINDS
        },
        "cost": _cost(gens, judged),
        "modes": _modes(spec, questions, interval=True),
        "subsets": {subset: _modes(spec, part) for subset, part in _subsets(questions).items()},
        "by": {"tool": "bench-summarize", "version": __version__},
    }
    if spec["grader"] == "instructions":
        strict, loose = _followed(records, "strict"), _followed(records, "loose")
        found["prompt_loose"] = _rounded(_mean([all(row) for row in loose]))
        found["instruction_strict"] = _rounded(_mean([each for row in strict for each in row]))
        found["instruction_loose"] = _rounded(_mean([each for row in loose for each in row]))
    if spec["grader"] == "pairwise":
        details = [grade.get("detail") or {} for grade in judged]
        flips = [detail["flipped"] for detail in details if "flipped" in detail]
        found["position_flips"] = _rounded(_mean(flips))
    return found


def _replies(records: Iterable[BenchRecord]) -> list[Gen]:
    return [record["gen"] for record in records if not record.get("gen", {}).get("error")]


def _subsets(questions: Questions) -> dict[str, Questions]:
    """The questions of each subset, subsets in the order of their names."""
    found: dict[str, Questions] = {}
    for ident, samples in questions.items():
        if (subset := samples[0]["task"].get("subset")) is not None:
            found.setdefault(subset, {})[ident] = samples
    return dict(sorted(found.items()))


def _modes(spec: BenchmarkSpec, questions: Questions, interval: bool = False) -> dict[str, Mode]:
    """What each way to count several samples gives: their mean first, then pass@k and majority@k."""
    metric, n = spec["metric"], max(map(len, questions.values()))
    grades = [_graded(samples) for samples in questions.values()]
    scores = [[grade["score"] for grade in samples] for samples in grades]
    silent = [[grade["verdict"] == "no_answer" for grade in samples] for samples in grades]
    answers = [[(grade["answer"], grade["score"]) for grade in samples] for samples in grades]
    voted = any(answer is not None for samples in answers for answer, _ in samples)
    common = _taken(questions)
    mean = _mode(common, metric, list(map(_mean, scores)), list(map(_mean, silent)), interval)
    if n == 1:
        return {"pass@1": mean}
    modes = {f"pass@1[avg-of-{n}]": mean}
    for k in ks(n):
        mute = [all(values[:k]) if len(values) >= k else None for values in silent]
        passed = [pass_at(values, k) for values in scores]
        modes[f"pass@{k}"] = _mode(common, metric, passed, mute)
        if voted and k > 1:
            majorities = [majority(samples, k) for samples in answers]
            modes[f"majority@{k}"] = _mode(common, metric, majorities, mute)
    return modes


def _graded(samples: list[BenchRecord]) -> list[Grade]:
    return [record["grade"] for record in samples if fault_of(record) is None]


def _taken(questions: Questions) -> Mode:
    """How many questions there are, and what the replies took: the mean of their tokens, and seconds from
    the first request to the last reply; None where no reply says."""
    gens = _replies(record for samples in questions.values() for record in samples)
    starts, ends = [], []  # seconds of the epoch
    for gen in gens:
        by = gen.get("by")
        if by and by.get("at") and isinstance(by.get("took"), int | float):
            starts.append(datetime.fromisoformat(by["at"]).timestamp())
            ends.append(starts[-1] + by["took"])
    counts = [gen["usage"].get("completion_tokens") for gen in gens if gen.get("usage")]
    tokens = [count for count in counts if count is not None]
    return {
        "num_entries": len(questions),
        "avg_tokens": round(sum(tokens) / len(tokens)) if tokens else None,
        "gen_seconds": round(max(ends) - min(starts)) if starts else None,
    }


def _mode(
    common: Mode,
    metric: str,
    values: Sequence[float | None],
    silent: Sequence[float | None],
    interval: bool = False,
) -> Mode:
    """One mode: the mean over questions, its standard error clustered by question (the questions' means
    are what is independent: Miller 2024, arXiv 2411.00640), and, for the mode that is reported first,
    its 95 % interval (`stats.mean`, strict)."""
    present = [value for value in values if value is not None]
    reach = stats.mean(present, (0, 1), strict=True) if interval and present else None
    error = None
    if len(present) > 1:
        error = statistics.stdev(present) / math.sqrt(len(present))
    found = {
        metric: _rounded(_mean(present)),
        "std_err": _rounded(error),
        "interval": [reach["lo"], reach["hi"]] if reach else [None, None],
        "scored": len(present),
        "no_answer": _rounded(_mean([value for value in silent if value is not None])),
    }
    return cast(Mode, {**common, **found})


def scored(mode: Mode, metric: str) -> float | None:
    """The score of a mode."""
    return cast(dict[str, float | None], mode)[metric]


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def _share(part: int, whole: int) -> float | None:
    return _rounded(part / whole) if whole else None


def fault_of(record: BenchRecord) -> Failure | None:
    """The error that kept a record from a verdict, with its stage, or None. What the model brought about
    is a verdict (`read`)."""
    fault = stream.fault(record)
    return None if fault is None or fault["kind"] == "model" else fault


def _cost(gens: list[Gen], judged: list[Grade]) -> float | None:
    """USD of all replies and verdicts; None where any does not say."""
    costs = [gen["usage"].get("cost") if gen.get("usage") else None for gen in gens]
    verdicts = [grade.get("detail") or {} for grade in judged]
    costs += [detail["usage"].get("cost") for detail in verdicts if "usage" in detail]
    known = [cost for cost in costs if cost is not None]
    return round(sum(known), 6) if costs and len(known) == len(costs) else None


def _followed(records: list[BenchRecord], how: str) -> list[list[bool]]:
    """Whether each instruction of each graded reply was followed; of a blank reply, or one on which a
    checker stalled, none is."""
    return [
        (record["grade"].get("detail") or {}).get(how)
        or [False] * len(record["task"]["expected"]["instructions"])
        for record in records
        if record.get("grade", {}).get("verdict")
    ]


# As text


def main_mode(summary: BenchSummary) -> tuple[str, Mode]:
    return next(iter(summary["modes"].items()))


def main_score(summary: BenchSummary) -> float | None:
    """The score of the first mode."""
    return scored(main_mode(summary)[1], summary["metric"])


# Beside prompt_strict, as IFEval and IFBench report.
ALSO = ("prompt_loose", "instruction_strict", "instruction_loose")
COLUMNS = "benchmark|mode|questions|score|std err|95 %|no answer|"
COLUMNS += "truncated|coverage|tokens|seconds|cost"


def table(summaries: Iterable[BenchSummary]) -> tuple[list[str], list[list[str]]]:
    """The metrics as a table of text cells: `(header, rows)`."""
    rows = []
    for found in summaries:
        rows += _lines(found, found["benchmark"], found["modes"])
        beside = cast(dict[str, float], found)
        rows += [["", also, "", text(beside[also]), *[""] * 8] for also in ALSO if also in found]
        for subset, modes in found["subsets"].items():
            rows += _lines(found, f"  {subset}", dict([next(iter(modes.items()))]))
    return COLUMNS.split("|"), rows


def _lines(found: BenchSummary, name: str, modes: dict[str, Mode]) -> list[list[str]]:
    """The rows of the first mode and of those over the most samples."""
    first = next(iter(modes))
    most = max((_over(mode) for mode in modes), default=1)
    shown = [mode for mode in modes if mode == first or _over(mode) == most]
    return [_line(found, name if mode == first else "", mode, modes[mode]) for mode in shown]


def _over(mode: str) -> int:
    """The k of `pass@k`, `majority@k` and `pass@1[avg-of-n]`."""
    return int(mode.partition("@")[2].partition("[")[0])


def _line(found: BenchSummary, name: str, mode: str, value: Mode) -> list[str]:
    """A row; without a name it is of another mode than the first."""
    lo, hi = value["interval"]
    reach = "–" if lo is None else f"[{text(lo)}, {text(hi)}]"
    scores = [text(scored(value, found["metric"])), text(value["std_err"]), reach]
    scores.append(text(value["no_answer"]))
    questions, beside, cost = str(value["num_entries"]), ["", ""], ""
    if name and not name.startswith(" "):  # no subset
        if found["rows"] not in (None, value["num_entries"]):
            questions += f" of {found['rows']}"
        beside = [text(found["truncated"]), text(found["coverage"])]
        cost = "unknown" if found["cost"] is None else f"${found['cost']:.4f}"
    counts = [value["avg_tokens"], value["gen_seconds"]]
    taken = ["–" if count is None else str(count) for count in counts] if name else ["", ""]
    return [name, mode, questions, *scores, *beside, *taken, cost]


def text(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


# Two models


def load(folder: Path) -> Results:
    """The graded records of a model, from `folder/<benchmark>/rows.jsonl`. Raises cli.Missing, and cli.BadData for rows
    that are others than bench-summarize saw."""
    found: Results = {}
    for rows in sorted(Path(folder).glob("*/rows.jsonl")):
        found |= read(stream.records(rows))
    for name, questions in found.items():
        summary = Path(folder, "eval-results", name, "metrics.json")
        by = stream.json_file(summary).get("by", {}) if summary.is_file() else {}
        if by.get("made_from", made_from(questions)) != made_from(questions):
            said = f"{folder}/{name}/rows.jsonl has other rows than {summary} was made from"
            raise cli.BadData(f"{said}; `make bench` makes both again")
    if not found:
        mend = f"`make bench MODEL={Path(folder).name}` makes them"
        raise cli.Missing(f"{folder} has no graded benchmark; {mend}")
    return found


NOTHING = cast(PairedDifference, dict.fromkeys(PairedDifference.__annotations__) | {"n": 0})


def compare(ours: Results, base: Results, margin: float | None = None) -> list[BenchComparison]:
    """Two models paired by question, one entry for each benchmark; of one that only one of them has,
    "ours" or "base" is None.

    The difference is ours minus base, of the questions' means over samples (stats.differences, strict);
    p is corrected over the benchmarks. margin: the largest loss that may stay open; without it each
    benchmark's own. needed: about how many questions would rule out a loss of more than that with a
    chance of 80 %, if the two were equally good; None without a difference.
    """
    names = sorted({*ours, *base})
    found = [_compared(name, ours.get(name), base.get(name), margin) for name in names]
    corrected([entry for entry in found if not entry["refused"]])
    return found


def corrected(family: Sequence[Compared]) -> None:
    """Give each entry of a family its p by Holm's method; None stays None."""
    pairs.holm(family)
    for entry in family:
        entry["family"] = len(family)


def comparison(
    model: str, base: str, entries: Sequence[BenchComparison], first: str = "Benchmark"
) -> list[str]:
    """Entries of `compare` that have their verdict as a markdown table, then a line for each."""
    header = [first, "Metric", "Questions", model, base, "Difference", "p corrected"]
    rows = []
    for entry in entries:
        pair = (entry["ours"], entry["base"])
        sides = ["–" if side is None else text(main_score(side)) for side in pair]
        difference = as_text.interval(cast(Record, entry["difference"]))
        found = [difference, as_text.p_value(entry.get("p_holm")), text(entry["margin"])]
        known = [entry["benchmark"], entry["metric"], str(entry["difference"]["n"])]
        rows.append([*known, *sides, *found, entry["verdict"]])
    lines = as_text.markdown_table([*header, "Margin", "Verdict"], rows, 2)
    return [*lines, "", *(f"- {entry['sentence']}" for entry in entries)]


def judged(entries: list[BenchComparison], model: str, base: str) -> list[BenchComparison]:
    """Entries of `compare` with their verdict and sentence."""
    for entry in entries:
        entry["verdict"], entry["sentence"] = regressions.benchmark(model, base, entry)
    return entries


def _compared(
    name: str, ours: Questions | None, base: Questions | None, margin: float | None
) -> BenchComparison:
    """The entry of one benchmark, less what belongs to its family."""
    ours_said, base_said = (summarize(side) if side else None for side in (ours, base))
    spec = tasks.of(next(iter((ours or base or {}).values()))[0]["task"])
    entry: BenchComparison = {
        "benchmark": name,
        "metric": spec["metric"],
        "ours": ours_said,
        "base": base_said,
        "refused": "only one of the two has results",
        "difference": NOTHING,
        "margin": None,
        "needed": None,
    }
    if _imported(ours or base or {}):
        entry["notes"] = []
    if not (ours and base and ours_said and base_said):
        return entry
    clusters = None
    if _imported(ours) and _imported(base):
        entry["only"] = ([*(ours.keys() - base.keys())], [*(base.keys() - ours.keys())])
        ours, base = ({k: side[k] for k in ours if k in base} for side in (ours, base))
        if not ours:
            entry["refused"] = "no question is in both"
            return entry
        ours_said, base_said = entry["ours"], entry["base"] = summarize(ours), summarize(base)
        clusters, entry["notes"] = _apart(ours, base, ours_said, base_said)
    sides = [means(ours), means(base)]
    shared = [ident for ident in sides[0] if ident in sides[1]]
    entry["refused"] = _refused(ours_said, base_said, ours, base)
    margin = margin or spec.get("margin", tasks.MARGIN)
    entry["margin"] = margin
    scores, others = ([side[ident] for ident in shared] for side in sides)
    labels = [clusters[ident] for ident in shared] if clusters else None
    entry["difference"], entry["needed"] = gap(scores, others, margin, labels)
    return entry


def _apart(
    ours: Questions, base: Questions, ours_said: BenchSummary, base_said: BenchSummary
) -> tuple[dict[str, str | None] | None, list[str]]:
    """Of two logs with the same questions: their groups, where there are enough to cluster by, and in words what differs
    though it does not keep them from being compared."""
    tasks_of = [(ours[k][0]["task"], base[k][0]["task"]) for k in ours]
    groups = {k: task.get("subset") for k, (task, _) in zip(ours, tasks_of, strict=True)}
    notes = []
    if asked := sum(one.get("asked") != other.get("asked") for one, other in tasks_of):
        notes.append(f"the prompts differ on {asked:,} of {len(ours):,} questions")
    ours_how, base_how = (
        cast(Record, said["sampling"] or {}).get("how") or {} for said in (ours_said, base_said)
    )
    if names := [k for k in ours_how | base_how if ours_how.get(k) != base_how.get(k)]:
        notes.append(f"the settings differ ({', '.join(names)})")
    if ours_said["samples"] != base_said["samples"]:
        notes.append(f"samples of a question: {ours_said['samples']} and {base_said['samples']}")
    count = len(set(groups.values()) - {None})
    if 1 < count < stats.FEWEST:
        notes.append(f"{count} groups are too few to cluster by")
    return groups if count >= stats.FEWEST else None, notes


def means(questions: Questions) -> dict[str, float]:
    """The mean over the graded samples of every question that has any."""
    graded = {ident: _graded(samples) for ident, samples in questions.items()}
    scores = {ident: [grade["score"] for grade in grades] for ident, grades in graded.items()}
    return {ident: sum(some) / len(some) for ident, some in scores.items() if some}


def gap(
    ours: list[float], base: list[float], margin: float, clusters: stats.Labels | None = None
) -> tuple[PairedDifference, int | None]:
    """`stats.differences` of the scores of the same questions, rounded for a record, and about how many questions would
    rule out a loss of more than the margin if the true difference is the one seen; None where that is such a loss
    itself. Of no question NOTHING."""
    import numpy

    if not ours:
        return NOTHING, None
    gaps = [one - other for one, other in zip(ours, base, strict=True)]
    a, b = (numpy.array(scores, dtype=float)[:, None] for scores in (ours, base))
    found = stats.difference(stats.differences(a, b, (0, 1), clusters, strict=True), 0)
    if margin + min(0.0, found["mean"] or 0.0) <= 0:
        return found, None
    wanted = stats.smallest_sample(lambda n: ruled_out(gaps, margin, n) if n > len(gaps) else 0.0)
    if wanted and found["clusters"] and found["sd"]:
        wanted = round(wanted * ((stats.apparent_sd(found) or found["sd"]) / found["sd"]) ** 2)
    return found, wanted


def ruled_out(gaps: Sequence[float], margin: float, n: int) -> float:
    """The chance that the lower end of the interval over `n` questions like these is above minus the margin: of questions
    that stand for all of them in due number, with how far the mean of others would be from theirs. A better model is
    taken to be no better."""
    import numpy
    from scipy.special import ndtr

    seen = numpy.sort(
        [*gaps, 1.0, -1.0]
    )  # one won and one lost more: few questions show less than there is
    rows = seen[((numpy.arange(n) + 0.5) * len(seen) / n).astype(int)]
    rows = rows - max(0.0, float(rows.mean()))
    lo = stats.means(rows[:, None], (-1, 1), strict=True)["lo"][0]
    return float(ndtr((lo + margin) / (rows.std() / math.sqrt(n))))


def spread(gaps: list[float]) -> float:
    """The standard deviation of a question's difference, around 0 and with one question won and one lost
    more, since few questions show less than there is."""
    return math.sqrt((sum(gap**2 for gap in gaps) + 2) / (len(gaps) + 2))


def _refused(
    ours_said: BenchSummary, base_said: BenchSummary, ours: Questions, base: Questions
) -> str | None:
    """Why two results of a benchmark are not compared, or None."""
    same, imported = set(ours) == set(base), _imported(ours) and _imported(base)
    for what in ("revision", "prompts", "judge", "rules", *(() if imported else ("samples",))):
        one, other = (cast(Record, said)[what] for said in (ours_said, base_said))
        if one != other and (what != "prompts" or same):
            mend = "; make bench grades them anew, and asks nothing" if what == "rules" else ""
            return f"the two were not asked or graded alike ({what}: {one}, {other}){mend}"
    if not same:
        more, less = len(set(ours) - set(base)), len(set(base) - set(ours))
        return f"the two have different questions ({more} and {less} of their own)"
    asked = [json.dumps(said["sampling"]) for said in (ours_said, base_said)]
    if asked[0] != asked[1] and not imported:
        return f"sampling differs ({asked[0]}, {asked[1]})"
    for side in (ours_said, base_said):
        coverage = side["coverage"] or 0
        if 1 - coverage > pairs.LIMITS["excluded"]:
            name = side["model"]["name"] if side["model"] else "one model"
            return f"of {name} only {100 * coverage:.1f} % of the rows could be graded"
    return None
