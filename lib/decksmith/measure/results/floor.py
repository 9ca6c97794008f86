"""The floor of a protocol: how far two runs of one model are apart though nothing about it changed, by what did change.

`make floor` (make/floor.py) asks a model several times. Of sources whose two runs could as well be swapped, such as two seeds, the
floor is half the interval of their difference (stats.t_differences). What moves the mean, as another engine may, is expected to
move it again: its floor is the farther end of where the difference of two runs to come would lie. A floor is kept by what its
protocol holds fixed, prompts and seed apart.
"""

import math
from pathlib import Path
from typing import TypedDict, cast

import numpy

from decksmith.core import cli, stream
from decksmith.core.records import Record
from decksmith.measure.results import stats, text
from decksmith.measure.results.comparison import Run
from decksmith.measure.results.stats import Array


class Source(TypedDict):
    """Of two runs that differ by one thing alone, in the unit of the headline where both decks render."""

    seen: float  # the difference of the two
    mean: float  # of the size of such a difference
    half: float  # of its 95 % interval
    swaps: bool  # whether the two runs could as well be swapped
    prompts: int
    alike: int  # prompts whose decks are worth the same
    runs: list[str]


class Floor(TypedDict):
    protocol: str
    model: str
    is_share: bool
    sources: dict[str, Source]


SWAPS = ("seed", "again")  # sources whose two runs could as well be swapped


def source(gaps: Array, scale: stats.Scale, swaps: bool, names: list[str]) -> Source:
    """What two runs of one model say, by their difference on each prompt. Raises cli.BadData where these are too few."""
    n = len(gaps)
    if n < stats.FEWEST:
        said = f"{n} prompts whose decks render in both"
        raise cli.BadData(f"{' and '.join(names)}: {said}; a floor needs {stats.FEWEST}")
    found = stats.t_differences(gaps[:, None], numpy.zeros((n, 1)), scale)
    seen, half = float(found["mean"][0]), float(found["hi"][0] - found["lo"][0]) / 2
    chance = math.sqrt(2 / math.pi * (gaps**2).mean() / n)
    return {
        "seen": seen,
        "mean": chance if swaps else max(abs(seen), chance),
        "half": half,
        "swaps": swaps,
        "prompts": n,
        "alike": int((numpy.abs(gaps) < 1e-9).sum()),
        "runs": names,
    }


def reach(found: Source, prompts: int) -> float:
    """The size that the difference of two runs of one model exceeds in at most one of twenty pairs, on so many prompts."""
    chance = found["half"] * math.sqrt(found["prompts"] / prompts)
    return chance if found["swaps"] else abs(found["seen"]) + math.hypot(found["half"], chance)


def path_of(run: Run) -> Path:
    """Where the floor of a run's protocol is kept: in a folder `floors` beside that of the runs (results/runs)."""
    held = {key: value for key, value in run["protocol"].items() if key not in ("hash", "prompts")}
    sampling = cast(Record, held.get("sampling") or {})
    held["sampling"] = {key: value for key, value in sampling.items() if key != "seed"}
    above = run["path"].resolve().parents
    return above[min(2, len(above) - 1)] / "floors" / f"{stream.fingerprint(held)[:16]}.json"


def largest(run: Run, prompts: int) -> tuple[str, float, Floor] | None:
    """The source with the largest floor of a run's protocol on so many prompts: `(name, size, the floor)`; None where none
    was measured. Raises cli.BadData for a file that `make floor` did not write."""
    path = path_of(run)
    if not path.is_file() or not prompts:
        return None
    try:
        found = cast(Floor, stream.json_file(path))
        sizes = {name: reach(one, prompts) for name, one in found["sources"].items()}
        name = max(sizes, key=lambda each: sizes[each])
    except (ValueError, KeyError, TypeError) as error:
        raise cli.BadData(f"{path}: make floor writes it anew ({error!r})") from None
    return name, sizes[name], found


def below(run: Run, difference: float, prompts: int) -> str:
    """That a difference is below the floor of its protocol, as the end of a sentence; else nothing."""
    known = largest(run, prompts)
    if known is None or abs(difference) > known[1]:
        return ""
    name, size, found = known
    by = f"95 %, by {name} on {found['sources'][name]['prompts']} prompts"
    return f"; below this protocol's floor: one model differs from itself by up to {shown(found, size)} ({by})"


def planned(run: Run) -> list[str]:
    """What a plan says of the floor."""
    sizes = {n: known for n in (30, 120, 480) if (known := largest(run, n))}
    if not sizes:
        return []
    each = [f"{shown(found, size)} on {n} prompts" for n, (_, size, found) in sizes.items()]
    by = text.listed(sorted({name for name, _, _ in sizes.values()}))
    return [f"The floor of this protocol (make floor; 95 %, by {by}): {text.listed(each)}."]


def shown(found: Floor, value: float) -> str:
    """A difference as text."""
    return f"{100 * value:.1f} points" if found["is_share"] else f"{value:.2f}"
