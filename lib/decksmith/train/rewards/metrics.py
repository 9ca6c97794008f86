"""What a reward server counts, for Prometheus and for the line a minute on stderr."""

import math
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from typing import Literal

from decksmith.train.rewards.rows import Answer

# Upper ends of the histograms' bins: seconds until an answer; the reward.
SECONDS = (0.02, 0.1, 0.5, 1, 2, 5, 10, 15, 30, 60, 120)
REWARDS = tuple(number / 10 for number in range(11))
SPAN = 60.0  # seconds that the line is about
MOST = 10_000  # answers that it remembers
PREFIX = "decksmith_reward_"

# It was made, it was there, or somebody else had asked for it.
Origin = Literal["scored", "cached", "joined"]


class Histogram:
    """How many values were at most each of `ends`; their sum and number."""

    def __init__(self, ends: tuple[float, ...]) -> None:
        self.ends, self.counts = ends, [0] * len(ends)
        self.total, self.number = 0.0, 0

    def add(self, value: float) -> None:
        self.total, self.number = self.total + value, self.number + 1
        for place, end in enumerate(self.ends):
            if value <= end:
                self.counts[place] += 1

    def samples(self, label: str = "") -> dict[str, float]:
        """Samples of Prometheus' text format: {what stands behind the metric's name: number}."""
        inside, around = (f"{label},", f"{{{label}}}") if label else ("", "")
        bins = zip(self.ends, self.counts, strict=True)
        found: dict[str, float] = {f'_bucket{{{inside}le="{end:g}"}}': count for end, count in bins}
        found[f'_bucket{{{inside}le="+Inf"}}'] = self.number
        return {**found, f"_sum{around}": self.total, f"_count{around}": self.number}


class Metrics:
    """Counts of answers, and how long whoever asked had to wait.

    `waiting` and `working` give the decks that wait for a worker, and those that are worked on.
    """

    def __init__(self, waiting: Callable[[], int], working: Callable[[], int]) -> None:
        self.waiting, self.working = waiting, working
        self.started = time.time()
        self.masks: Counter[str] = Counter()  # by cause
        self.refused: Counter[str] = Counter()  # by HTTP status
        self.seconds: dict[Origin, Histogram] = {
            "scored": Histogram(SECONDS),
            "cached": Histogram(SECONDS),
            "joined": Histogram(SECONDS),
        }
        self.rewards = Histogram(REWARDS)
        self.sums: Counter[str] = Counter()  # of components
        self.counts: Counter[str] = Counter()
        self.late: deque[tuple[float, Origin, float]] = deque(maxlen=MOST)
        self.late_masks: deque[tuple[float, str]] = deque(maxlen=MOST)

    def answered(self, value: Answer, source: Origin, seconds: float) -> None:
        """Count an answer."""
        now = time.monotonic()
        if value["masked"]:
            self.masks[value["cause"]] += 1
            self.late_masks.append((now, value["cause"]))
            return
        self.seconds[source].add(seconds)
        self.late.append((now, source, seconds))
        if source == "scored":
            self.rewards.add(value["reward"] or 0.0)
            self.sums.update(value["components"])  # type: ignore[arg-type]
            self.counts.update(value["components"].keys())

    def line(self) -> str:
        """The last minute in a line."""
        since = time.monotonic() - SPAN
        late = [(source, seconds) for at, source, seconds in self.late if at >= since]
        waits = sorted(seconds for source, seconds in late if source != "cached")
        sources = Counter(source for source, _ in late)
        masks = Counter(cause for at, cause in self.late_masks if at >= since)
        words = [
            f"{sources['scored']} decks in {SPAN:.0f} s, {sources['cached']} more from the cache",
            f"{self.working()} in work, {self.waiting()} waiting",
        ]
        if waits:
            words.append(f"p50 {quantile(waits, 0.5):.1f} s, p95 {quantile(waits, 0.95):.1f} s")
        named = ", ".join(f"{cause} {count}" for cause, count in masks.most_common())
        return "; ".join([*words, f"masked {named or 'none'}"])

    def prometheus(self) -> str:
        """All counts in Prometheus' text format, version 0.0.4."""
        seconds: dict[str, float] = {}
        for source, histogram in self.seconds.items():
            seconds |= histogram.samples(f'source="{source}"')
        component = _labelled("component", self.sums, "_sum")
        component |= _labelled("component", self.counts, "_count")
        metrics: list[tuple[str, str, str, Mapping[str, float]]] = [
            ("waiting", "gauge", "Decks that wait for a worker.", {"": self.waiting()}),
            ("working", "gauge", "Decks that are worked on.", {"": self.working()}),
            ("start_time_seconds", "gauge", "When the server started.", {"": self.started}),
            ("masked_total", "counter", "No reward, by cause.", _labelled("cause", self.masks)),
            ("refused_total", "counter", "Refusals.", _labelled("status", self.refused)),
            ("seconds", "histogram", "Time until the answer, by where it came from.", seconds),
            ("value", "histogram", "Rewards of decks that were scored.", self.rewards.samples()),
            ("component", "summary", "Components of decks that were scored.", component),
        ]
        out = []
        for name, kind, words, samples in metrics:
            out += [f"# HELP {PREFIX}{name} {words}", f"# TYPE {PREFIX}{name} {kind}"]
            out += [f"{PREFIX}{name}{rest} {number:.16g}" for rest, number in samples.items()]
        return "\n".join(out) + "\n"


def _labelled(label: str, counts: Mapping[str, float], what: str = "") -> dict[str, float]:
    return {f'{what}{{{label}="{key}"}}': count for key, count in sorted(counts.items())}


def quantile(ordered: list[float], share: float) -> float:
    """The smallest of ordered values that at least this share of them do not exceed."""
    return ordered[max(0, math.ceil(len(ordered) * share) - 1)]
