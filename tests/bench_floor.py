#!/usr/bin/env python3
"""Whether the floor is what it says, against simulation: docs/maintain/floor.md.

Two runs of one model differ on a part of the prompts; by a shift too, where a source moves the mean. Of each pair the floor is
computed, and a new pair is drawn: how often is its difference above the floor? It should be in 1 of 20.
"""

import numpy
from decksmith.measure.results import floor

DRAWS = 2000
SD = 0.15  # of the difference on a prompt that differs


def gaps(dice, n, apart, shift):
    """The differences on n prompts, of which a share is apart."""
    found = dice.normal(0, SD, n) * (dice.random(n) < apart)
    return found + shift


def above(n, later, apart, shift):
    """The share of new pairs on `later` prompts whose difference is above the floor of a pair on n."""
    dice = numpy.random.default_rng([n, later, int(100 * apart), int(100 * shift)])
    count, sizes = 0, []
    for _ in range(DRAWS):
        found = floor.source(gaps(dice, n, apart, shift), (-1, 1), not shift, [])
        sizes.append(floor.reach(found, later))
        count += abs(gaps(dice, later, apart, shift).mean()) > sizes[-1]
    return count / DRAWS, float(numpy.mean(sizes))


def main():
    print("# The floor, against simulation\n")
    print("Written by `make bench-floor`. Two runs of one model are drawn, and the floor is")
    print("computed (`make floor`); then two more, on as many prompts or others. *Above*: the")
    print(f"share of {DRAWS:,} new pairs whose difference is above the floor; 5 % is what it says.")
    print(
        "Where a source moves the mean, where it was measured and again, the floor is wider than it must be.\n"
    )
    print("| prompts | new prompts | decks apart | moved by | floor | above |")
    print("|---:|---:|---:|---:|---:|---:|")
    for n, later in ((12, 12), (12, 120), (30, 30), (120, 30), (120, 120)):
        for apart in (0.4, 1.0):
            for shift in (0.0, 0.05):
                share, size = above(n, later, apart, shift)
                cells = [str(n), str(later), f"{apart:.0%}", f"{100 * shift:g}"]
                print(f"| {' | '.join([*cells, f'{100 * size:.1f}', f'{100 * share:.1f} %'])} |")


if __name__ == "__main__":
    main()
