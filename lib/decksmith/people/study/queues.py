"""Which pairs a person is given, and in which order."""

from collections.abc import Callable, Mapping, Sequence

Dice = Callable[[str], float]  # a number from 0 to 1 that is the rater's own for this text


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


def ordered(pairs: Sequence[str], repeats: Mapping[str, str], dice: Dice) -> list[str]:
    """`pairs` and the repeats of them in the rater's own order.

    repeats: {pair: its repeat}, which stands at least a quarter of the queue after its pair."""
    twice = [pair for pair in pairs if pair in repeats]
    queue = sorted(pairs, key=dice)
    gap = (len(pairs) + len(twice)) // 4
    last = max(0, len(queue) - 1 - gap - len(twice))
    for pair in twice:
        if queue.index(pair) > last:  # too late for a gap behind it
            queue.remove(pair)
            queue.insert(int(dice(f"early {pair}") * (last + 1)), pair)
    for pair in twice:
        places = range(min(queue.index(pair) + 1 + gap, len(queue)), len(queue) + 1)
        queue.insert(places[int(dice(repeats[pair]) * len(places))], repeats[pair])
    return queue
