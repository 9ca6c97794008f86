"""What a reward server counts, for Prometheus and for the line a minute on stderr."""

import math
import time
from collections import Counter, deque
from collections.abc import Callable

from decksmith.core.records import Record

# Upper ends of the histograms' bins: seconds until an answer; the reward.
SECONDS = (0.02, 0.1, 0.5, 1, 2, 5, 10, 15, 30, 60, 120)
REWARDS = tuple(number / 10 for number in range(11))
SPAN = 60.0  # seconds that the line is about
MOST = 10_000  # answers that it remembers
SOURCES = ("scored", "cached", "joined")
PREFIX = "decksmith_reward_"


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

    def lines(self, name: str, label: str = "") -> list[str]:
        """Samples in Prometheus' text format."""
        inside = f"{label}," if label else ""
        around = f"{{{label}}}" if label else ""
        found = [
            f'{name}_bucket{{{inside}le="{end:g}"}} {count}'
            for end, count in zip(self.ends, self.counts, strict=True)
        ]
        found.append(f'{name}_bucket{{{inside}le="+Inf"}} {self.number}')
        return [
            *found,
            f"{name}_sum{around} {self.total:.6f}",
            f"{name}_count{around} {self.number}",
        ]


class Meter:
    """Counts of answers, and how long whoever asked had to wait.

    `waiting` and `working` give the decks that wait for a worker, and those that are worked on.
    """

    def __init__(self, waiting: Callable[[], int], working: Callable[[], int]) -> None:
        self.waiting, self.working = waiting, working
        self.started = time.time()
        self.masks: Counter[str] = Counter()  # by cause
        self.refused: Counter[str] = Counter()  # by HTTP status
        self.seconds = {source: Histogram(SECONDS) for source in SOURCES}
        self.rewards = Histogram(REWARDS)
        self.sums: Counter[str] = Counter()  # of components
        self.counts: Counter[str] = Counter()
        self.late: deque[tuple[float, str, float]] = deque(maxlen=MOST)
        self.late_masks: deque[tuple[float, str]] = deque(maxlen=MOST)

    def answered(self, value: Record, source: str, seconds: float) -> None:
        """Count an answer: `scored`, `cached` (it was there), `joined` (somebody else had asked for it), or masked."""
        now = time.monotonic()
        if value["masked"]:
            self.masks[value["cause"]] += 1
            self.late_masks.append((now, value["cause"]))
            return
        self.seconds[source].add(seconds)
        self.late.append((now, source, seconds))
        if source != "scored":
            return
        self.rewards.add(value["reward"])
        for name, quality in value["components"].items():
            self.sums[name] += quality
            self.counts[name] += 1

    def line(self) -> str:
        """The last minute in a line."""
        since = time.monotonic() - SPAN
        late = [(source, seconds) for at, source, seconds in self.late if at >= since]
        waits = sorted(seconds for source, seconds in late if source != "cached")
        sources = Counter(source for source, _ in late)
        masks = Counter(cause for at, cause in self.late_masks if at >= since)
        words = [
            f"{sources['scored']} decks in {SPAN:.0f} s, {sources['cached']} more from the cache"
        ]
        words.append(f"{self.working()} in work, {self.waiting()} waiting")
        if waits:
            words.append(f"p50 {quantile(waits, 0.5):.1f} s, p95 {quantile(waits, 0.95):.1f} s")
        named = ", ".join(f"{cause} {count}" for cause, count in masks.most_common())
        return "; ".join([*words, f"masked {named or 'none'}"])

    def prometheus(self) -> str:
        """All counts in Prometheus' text format, version 0.0.4."""
        metrics: list[tuple[str, str, str, list[str]]] = [
            ("waiting", "gauge", "Decks that wait for a worker.", [f"waiting {self.waiting()}"]),
            ("working", "gauge", "Decks that are worked on.", [f"working {self.working()}"]),
            (
                "start_time_seconds",
                "gauge",
                "When the server started, seconds since 1970.",
                [f"start_time_seconds {self.started:.3f}"],
            ),
            (
                "masked_total",
                "counter",
                "Answers without a reward, by cause.",
                _counted("masked_total", "cause", self.masks),
            ),
            (
                "refused_total",
                "counter",
                "Requests that were refused, by HTTP status.",
                _counted("refused_total", "status", self.refused),
            ),
            (
                "seconds",
                "histogram",
                "Time until the answer, by where it came from.",
                [
                    line
                    for source, histogram in self.seconds.items()
                    for line in histogram.lines("seconds", f'source="{source}"')
                ],
            ),
            (
                "value",
                "histogram",
                "Rewards of decks that were scored.",
                self.rewards.lines("value"),
            ),
            (
                "component",
                "summary",
                "Components of decks that were scored.",
                [
                    f'component_{what}{{component="{name}"}} {number:.6g}'
                    for what, numbers in (("sum", self.sums), ("count", self.counts))
                    for name, number in sorted(numbers.items())
                ],
            ),
        ]
        out = []
        for name, kind, words, lines in metrics:
            out += [f"# HELP {PREFIX}{name} {words}", f"# TYPE {PREFIX}{name} {kind}"]
            out += [PREFIX + line for line in lines]
        return "\n".join(out) + "\n"


def _counted(name: str, label: str, counts: Counter[str]) -> list[str]:
    return [f'{name}{{{label}="{key}"}} {count}' for key, count in sorted(counts.items())]


def quantile(ordered: list[float], share: float) -> float:
    """The smallest of ordered values that at least this share of them do not exceed."""
    return ordered[max(0, math.ceil(len(ordered) * share) - 1)]
