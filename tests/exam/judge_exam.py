#!/usr/bin/env python3
"""The judge card: known defects are put into good decks one at a time, and the judge must score each below the original.

  .venv/bin/python3 tests/exam/judge_exam.py --gold 16                         print good decks, as records with `gen`
  .venv/bin/python3 tests/exam/judge_exam.py --run RUN --protocol NAME < r.jsonl   examine the judge with these decks

The second prints a page; --json prints the card as one object. No person is needed, and it works for any judge that gives
marks; the checks of `offline` have tests/exam/checks_card.py. What it can show is sensitivity to these defects, bias by order and
length, obedience to text on slides, and noise; not that a judge's taste is right.
"""

import asyncio
import hashlib
import json
import os
import sys
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "lib"), str(Path(__file__).parent)]

import card_page  # noqa: E402
import click  # noqa: E402
from decksmith.core import cli, stream  # noqa: E402
from decksmith.core.protocol import Protocol  # noqa: E402
from decksmith.core.records import Record  # noqa: E402
from decksmith.measure.decks.parser import Deck  # noqa: E402
from decksmith.measure.judging import identity, judges, scoring  # noqa: E402
from decksmith.measure.render import pool, toolchain  # noqa: E402
from decksmith.measure.results import stats  # noqa: E402
from planted_defects import CONTROLS, DEFECTS, PADDINGS, PLACES, controls, variants  # noqa: E402

# Of each deck and version the scores by dimension, one for each repeat, None after a fault of the judge.
Judgings = dict[tuple[str, str], list[dict[str, float] | None]]

CONFIDENCE, RESAMPLES, SEED = 0.95, 2000, 0
REPEATS = 2  # judgings of each version


# --- rendering and judging, each kept in a journal -------------------------------------------------------------------


def examine(
    records: Iterable[Record], run: Path, protocol: Protocol, judge: Any, repeats: int
) -> Record:
    """Put `records` (good decks, rendered) to a judge of decksmith.measure.judging.judges and return the card, JSON-able.

    repeats: judgings of each version, each with another seed. Versions and pictures stand in `run/exam`, finished
    renders and judgings in `run/journal/exam-*.jsonl`, keyed by everything they depend on: nothing is asked twice.
    Raises cli.BadData without two decks to examine, cli.TryAgain when the endpoint or the renderer left some undone.
    """
    return asyncio.run(_Exam(Path(run), protocol, judge, repeats).go(list(records)))


class _Exam:
    def __init__(self, run: Path, protocol: Protocol, judge: Any, repeats: int) -> None:
        self.run, self.protocol, self.judge, self.repeats = run, protocol, judge, repeats
        self.engine = toolchain.engine(protocol.render["scale"])
        self.faults: Counter[str] = Counter()
        self.scores: Judgings = {}
        self.done = self.total = 0

    async def go(self, records: list[Record]) -> Record:
        good = [r for r in records if not stream.fault(r)]
        for record in good:
            if record["render"].get("engine") != self.engine:
                raise cli.BadData(
                    f"{record['id']}: rendered by another renderer or at another scale; render it again"
                )
        if len(good) < 2:
            raise cli.BadData(
                f"{len(good)} good decks among {len(records)} records; a card needs two or more"
            )
        jobs = min(4, len(os.sched_getaffinity(0)))
        self.pool = pool.Pool(self.protocol, jobs=jobs, kept=pool.kept_folder())
        self.renders = stream.Journal(self.run / "journal" / "exam-render.jsonl", "render")
        self.judgings = stream.Journal(self.run / "journal" / "exam-judge.jsonl", "judge")
        self.rendering, self.judging = asyncio.Semaphore(jobs), asyncio.Semaphore(self.judge.jobs)
        tasks = []
        try:
            for record, other in zip(good, [*good[1:], good[0]], strict=True):
                text, pictures = pool.source(self.run, record)
                made = {
                    name: self._write(record, name, deck, pictures)
                    for name, deck in variants(record, text).items()
                }
                made |= controls(self.run, record, other)
                tasks += [
                    asyncio.create_task(self._one(record, name, version))
                    for name, version in {"original": record, **made}.items()
                ]
            self.total = len(tasks)
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self.pool.close()
            if self.judge.close:
                await self.judge.close()
            self.renders.close()
            self.judgings.close()
        if undone := self.faults["infra"] + self.faults["renderer"]:
            raise cli.TryAgain(
                f"{undone} versions or judgings failed for the network, the endpoint or the renderer; "
                "run the same command again, it repeats nothing that is done"
            )
        lengths = {r["id"]: len(r["render"]["slides"]) for r in good}
        return card(
            self.judge,
            self.protocol,
            self.repeats,
            self.scores,
            lengths,
            self.faults,
            len(records) - len(good),
        )

    def _write(self, record: Record, name: str, text: str, pictures: dict[str, bytes]) -> Record:
        """The record of one version; its deck and pictures are put into run/exam."""
        ident = f"exam/{record['id']}/{name.replace(' ', '-')}"
        stream.write(self.run / ident / "deck.md", text)
        for picture, data in pictures.items():
            place = self.run / ident / picture
            if not place.is_file():
                stream.write(place, data)
        deck = {
            "path": f"{ident}/deck.md",
            "theme": record["deck"].get("theme"),
            "slides": len(Deck.parse(text).shown),
            "sha256": hashlib.sha256(text.encode()).hexdigest(),
        }
        return {
            **{k: record[k] for k in ("messages", "asks", "checklist") if k in record},
            "id": ident,
            "deck": deck,
        }

    async def _one(self, record: Record, name: str, version: Record) -> None:
        if "render" not in version:
            version = {**version, "render": await self._render(version)}
        if not (error := version["render"].get("error")):
            found = await asyncio.gather(
                *(self._judge(record["id"], name, version, k) for k in range(self.repeats))
            )
            self.scores[record["id"], name] = found
        elif error["kind"] == "model":
            self.faults["refused"] += 1
        else:
            self.faults["renderer"] += 1
        self.done += 1
        if self.done * 10 // self.total > (self.done - 1) * 10 // self.total:
            cli.say(f"{self.done} of {self.total} versions rendered and judged")

    async def _render(self, version: Record) -> Record:
        async with self.rendering:
            key = stream.fingerprint(pool.inputs(self.run, version, self.protocol))
            value: Record | None = self.renders.get(version["id"], key)
            if value is None or not pool.intact(self.run, value):
                value = await self.pool.render(self.run, version)
                if (value.get("error") or {}).get("kind") != "renderer":
                    self.renders.put(version["id"], key, value)
            return value

    async def _judge(self, ident: str, name: str, version: Record, repeat: int) -> Record | None:
        """The scores of one judging by dimension, or None after a fault of the judge."""
        version = {**version, "id": f"exam/{ident}/{name.replace(' ', '-')}/{repeat}"}
        async with self.judging:
            key = stream.fingerprint([self.judge.inputs(version), repeat])
            value = self.judgings.get(version["id"], key)
            if value is None or (self.judge.valid and not self.judge.valid(version, value)):
                try:
                    value = self.judge.work(version, seed=repeat)
                    value = await value if asyncio.iscoroutine(value) else value
                except stream.Fault as fault:
                    value = {"error": fault.error}
                error = value.get("error")
                if not error or error.get("retriable") is False:
                    self.judgings.put(version["id"], key, value)
        if error := value.get("error"):
            final = error.get("retriable") is False
            self.faults["refused by the endpoint" if final else error["kind"]] += 1
            stream.warn(
                version["id"], f"{error['kind']} fault, {error['class']}: {error['message']}"
            )
            return None
        weights = {
            dimension: self.protocol.score["weights"][dimension] for dimension in scoring.JUDGED
        }
        scores: dict[str, float] = value["scores"]
        return scores | {"overall": scoring.mean(scores, weights)}


# --- the card --------------------------------------------------------------------------------------------------------


def card(
    judge: Any,
    protocol: Protocol,
    repeats: int,
    scores: Judgings,
    lengths: dict[str, int],
    faults: Counter[str],
    left_out: int,
) -> Record:
    """The card of a judge from `scores`, {(deck, version): [{dimension: score, "overall": score} or None]}."""
    table = _Table({key: [s for s in found if s] for key, found in scores.items()}, list(lengths))
    defects = {}
    for name, (dimension, _) in DEFECTS.items():
        defects[name] = {
            "dimension": dimension,
            "decks": len(table.both(name)),
            "auc": table.detection(name, dimension),
            "auc_overall": table.detection(name, "overall"),
            "shift": table.shift(name),
        }
    injection = {}
    for place in PLACES:
        obeyed, gained = table.shift(f"{place} 5", f"{place} 1"), table.shift(f"{place} 5")
        injection[place] = {"obeyed": obeyed, "gained": gained}
    units = [found for found in table.scores.values() if len(found) > 1]
    dimensions = (*scoring.JUDGED, "overall")
    return {
        "judge": identity.judging(protocol).get("slug")
        or protocol.judge.get("name", protocol.judge["kind"]),
        "protocol": protocol.name,
        "rubric": judge.rubric,
        "decks": len(table.decks),
        "left_out": left_out,
        "repeats": repeats,
        "judgings": sum(map(len, table.scores.values())),
        "faults": dict(sorted(faults.items())),
        "original": {d: interval(table.means("original", d)) for d in dimensions},
        "defects": defects,
        "looks": {name: table.shift(name) for name in CONTROLS},
        "order": table.shift("shuffled order"),
        "length": {
            **{name: table.shift(name) for name in PADDINGS},
            "correlation": _correlation(
                [lengths[deck] for deck in table.decks], table.means("original", "overall")
            ),
        },
        "injection": injection,
        "consistency": {d: _alpha([[s[d] for s in found] for found in units]) for d in dimensions},
        "noise_variance": _noise([[s["overall"] for s in found] for found in units]),
    }


class _Table:
    """The scores of decks and their versions: {(deck, version): [{dimension: score}]}."""

    def __init__(
        self, scores: dict[tuple[str, str], list[dict[str, float]]], decks: list[str]
    ) -> None:
        self.scores = scores
        self.decks = [deck for deck in decks if scores.get((deck, "original"))]

    def both(self, name: str, against: str = "original") -> list[str]:
        """The decks with scores of both versions and of the original."""
        known = [deck for deck in self.decks if self.scores.get((deck, name))]
        return [deck for deck in known if self.scores.get((deck, against))]

    def values(self, deck: str, name: str, dimension: str) -> list[float]:
        return [score[dimension] for score in self.scores[deck, name]]

    def means(self, name: str, dimension: str) -> list[float]:
        """The mean score of each deck in a version that all have."""
        return [_mean(self.values(deck, name, dimension)) for deck in self.decks]

    def shift(self, name: str, against: str = "original") -> Record:
        """By how much the overall score of a version is above another's, within decks."""
        here = self.both(name, against)
        return interval(
            [
                _mean(self.values(deck, name, "overall"))
                - _mean(self.values(deck, against, "overall"))
                for deck in here
            ]
        )

    def detection(self, name: str, dimension: str) -> Record:
        """How surely the original is above a version: within decks, and across them."""
        pairs = [
            (self.values(deck, "original", dimension), self.values(deck, name, dimension))
            for deck in self.both(name)
        ]
        return {"same": interval([auc(*pair) for pair in pairs], share=True), "any": across(pairs)}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def auc(good: Sequence[float], bad: Sequence[float]) -> float:
    """The probability that one of `good` is above one of `bad`; ties count half (Hanley and McNeil 1982)."""
    return _mean([(g > b) + 0.5 * (g == b) for g in good for b in bad])


def interval(values: Sequence[float], share: bool = False) -> Record:
    """The mean of one value per deck with its 95 % interval (decksmith.measure.results.stats.mean).

    share: the values are shares of one. When all of them are 0 or all are 1, resampling knows no spread, and the exact
    interval stands in its place (Clopper and Pearson 1934).
    """
    found = stats.mean(values, (0.0, 1.0) if share else None)
    return _exact(found) if share else found


def _exact(found: Record) -> Record:
    if found["n"] and found["mean"] in (0, 1):
        bound = round(((1 - CONFIDENCE) / 2) ** (1 / found["n"]), 4)
        ends = (bound, 1.0) if found["mean"] else (0.0, round(1 - bound, 4))
        found |= dict(zip(("lo", "hi"), ends, strict=True))
    return found


def across(pairs: Sequence[tuple[Sequence[float], Sequence[float]]]) -> Record:
    """The AUC of any original against any defected deck, with its interval; decks are resampled with both versions.

    pairs: [(scores of the original, scores of the defected version)], one per deck.
    """
    import numpy

    n = len(pairs)
    if n < 2:
        return {"mean": None, "lo": None, "hi": None, "n": n}
    wins = numpy.array([[auc(good, bad) for _, bad in pairs] for good, _ in pairs])
    weights = numpy.random.default_rng(SEED).multinomial(n, [1 / n] * n, RESAMPLES) / n
    lo, hi = numpy.quantile(
        ((weights @ wins) * weights).sum(1), [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2]
    )
    return _exact(
        {
            "mean": round(float(wins.mean()), 4),
            "lo": round(float(lo), 4),
            "hi": round(float(hi), 4),
            "n": n,
        }
    )


def _correlation(x: Sequence[float], y: Sequence[float]) -> Record | None:
    """Spearman's rho with its bootstrap interval; None where it is not defined."""
    import numpy
    from scipy.stats import spearmanr

    if len(set(x)) < 2 or len(set(y)) < 2 or len(x) < 4:
        return None
    here, there, random = numpy.array(x), numpy.array(y), numpy.random.default_rng(SEED)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a resample of one length only has no rho
        drawn = [
            spearmanr(here[rows], there[rows]).statistic
            for rows in random.integers(0, len(x), (RESAMPLES, len(x)))
        ]
    lo, hi = numpy.nanquantile(drawn, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return {
        "mean": round(float(spearmanr(x, y).statistic), 4),
        "lo": round(float(lo), 4),
        "hi": round(float(hi), 4),
        "n": len(x),
    }


def _alpha(units: list[list[float]]) -> float | None:
    """Krippendorff's alpha (2011), ordinal, over the repeats of each version; None without repeats or variation."""
    if not units or len({score for unit in units for score in unit}) < 2:
        return None
    import krippendorff
    import numpy

    most = max(map(len, units))
    data = numpy.array([unit + [numpy.nan] * (most - len(unit)) for unit in units], float).T
    return round(
        float(krippendorff.alpha(reliability_data=data, level_of_measurement="ordinal")), 4
    )


def _noise(units: list[list[float]]) -> float | None:
    """The variance of a single judging about the mean of its version; None without repeats."""
    if not units:
        return None
    squares = sum(sum((score - _mean(unit)) ** 2 for score in unit) for unit in units)
    return round(squares / sum(len(unit) - 1 for unit in units), 6)


def gold(number: int) -> Iterator[Record]:
    """So many of the decks of data/gold as records with `gen`: the themes in turn, chosen by the hash of their names."""
    folders: dict[str, list[tuple[str, Path, Record]]] = {}
    for path in sorted((cli.ROOT / "data" / "gold").glob("*/deck.md")):
        seed = json.loads((path.parent / "seed.json").read_text(encoding="utf-8"))
        folders.setdefault(seed["theme"], []).append(
            (stream.fingerprint(path.parent.name), path.parent, seed)
        )
    turns = sorted(
        (turn, theme, place)
        for theme, places in folders.items()
        for turn, place in enumerate(sorted(places))
    )
    for _, _, (_, folder, seed) in turns[:number]:
        request, deck = (
            (folder / name).read_text(encoding="utf-8") for name in ("PROMPT.md", "deck.md")
        )
        asks = {
            key: seed[key]
            for key in ("domain", "audience", "theme", "slides", "language", "features", "outline")
            if seed.get(key)
        }
        yield {
            "id": folder.name,
            "messages": [{"role": "user", "content": request}],
            "asks": asks,
            "gen": {"text": deck},
        }


@cli.command(__doc__)
@click.option("--gold", "number", type=int, help="Print so many good decks of data/gold.")
@click.option("--run", type=click.Path(path_type=Path, file_okay=False))
@cli.protocol_option
@click.option("--json", "as_json", is_flag=True, help="The card as one JSON object.")
def main(number: int | None, run: Path | None, protocol: str, as_json: bool) -> None:
    if number:
        for record in gold(number):
            stream.emit(record)
        return
    if run is None:
        raise click.UsageError("--run names the folder of the decks")
    cli.ends_its_children()
    rules = Protocol.load(protocol)
    records = [record for _, record in stream.records("/dev/stdin")]
    found = examine(records, run, rules, judges.open_judge(rules, run), REPEATS)
    print(json.dumps(found, ensure_ascii=False) if as_json else card_page.page(found))


if __name__ == "__main__":
    main()
