"""Which pairs a person is given, and in which order."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence

from decksmith.people.study.records import StudyPair


def drawn(
    pairs: Mapping[str, StudyPair],
    own: Collection[str],
    given: Mapping[str, int],
    votes: Mapping[str, int] | None,
    *,
    each: int,
    n: int,
    lot: Callable[[str], str],
    dice: Callable[[str], float],
) -> list[str]:
    """The next `n` pairs of a rater's queue, with the repeats and the attention items that belong
    to so many.

    own: the rater's pairs so far; given: to how many people a pair was given; votes: how many it
    has, where only those are drawn that have fewer than `each`; lot and dice: a text and a number
    from 0 to 1 that are the rater's own for a text."""
    all_votes = [pair for pair, about in pairs.items() if about["kind"] == "vote"]
    all_gold = [pair for pair, about in pairs.items() if about["kind"] == "gold"]
    candidates = [pair for pair in all_votes if pair not in own]
    if votes is not None:
        candidates = [pair for pair in candidates if votes.get(pair, 0) < each]
    chosen = planned(candidates, given, each, n)
    gold = [pair for pair in all_gold if pair not in own]
    gold.sort(key=lambda pair: (given.get(pair, 0), lot(pair)))
    # As many attention items as belong to so many pairs of the whole study.
    gold = gold[: math.ceil(len(chosen) * len(all_gold) / max(1, len(all_votes)))]
    repeats = {
        str(about["of"]): pair
        for pair, about in pairs.items()
        if about["kind"] == "repeat" and pair not in own
    }
    return ordered([*chosen, *gold], repeats, dice)


def planned(pairs: Sequence[str], given: Mapping[str, int], each: int, n: int) -> list[str]:
    """Up to `n` of `pairs`, of which all but 1 in `each` were given to others too, so that
    everybody overlaps with somebody.

    given: to how many people a pair was given; each: how many people are to see one."""
    fresh = [pair for pair in pairs if not given.get(pair)]
    begun = [pair for pair in pairs if 0 < given.get(pair, 0) < each]
    full = [pair for pair in pairs if given.get(pair, 0) >= each]
    begun.sort(key=lambda pair: -given[pair])
    full.sort(key=lambda pair: given[pair])
    shared = begun[: round(n * (each - 1) / each)]
    chosen = [*shared, *fresh[: n - len(shared)]]
    others = [*begun[len(shared) :], *full]
    return chosen + others[: n - len(chosen)]


def ordered(
    pairs: Sequence[str], repeats: Mapping[str, str], own: Callable[[str], float]
) -> list[str]:
    """`pairs` and the repeats of them in the rater's own order.

    repeats: {pair: its repeat}, which stands at least a quarter of the queue after its pair.
    own: a number from 0 to 1 that is the rater's own for a text."""
    twice = [pair for pair in pairs if pair in repeats]
    queue = sorted(pairs, key=own)
    gap = (len(pairs) + len(twice)) // 4
    last = max(0, len(queue) - 1 - gap - len(twice))
    for pair in twice:
        if queue.index(pair) > last:  # too late for a gap behind it
            queue.remove(pair)
            queue.insert(int(own(f"early {pair}") * (last + 1)), pair)
    for pair in twice:
        places = range(min(queue.index(pair) + 1 + gap, len(queue)), len(queue) + 1)
        queue.insert(places[int(own(repeats[pair]) * len(places))], repeats[pair])
    return queue
