"""Names that people chose themselves, and that one person or one script may have chosen: crowds.

A name costs nothing, so votes under many names are as many people only where something else says
so. Two things are known of everybody who chose a name: the network it came from, as a keyed hash,
and when. Whoever opened a link of the owner's is known to the owner and is in no crowd.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TypedDict

from decksmith.people.study.records import Vote
from decksmith.people.study.store import Rater

# So many people of one address are a crowd, and so many whose names came within so many seconds,
# wherever from. A crowd with this share of the votes is warned of. The numbers stood here before
# anybody voted.
PEOPLE, BURST, SECONDS, SHARE = 3, 5, 60, 0.1


class Crowd(TypedDict):
    by: str  # `address` or `burst`
    networks: list[str]  # keyed hashes of where the names came from
    first: str  # when the first name was chosen
    last: str  # when the last name was chosen
    raters: list[str]  # their ids
    people: int  # how many names
    votes: int  # that they cast
    share: float  # of all votes


class Crowds(TypedDict):
    chose: int  # people who chose their names
    addresses: int  # that they came from
    found: list[Crowd]  # the crowds, by votes
    raters: list[str]  # everybody in a crowd
    people: int  # how many these are
    votes: int  # that they cast
    share: float  # of all votes
    warnings: list[str]  # a sentence for each crowd that cast much of the votes


def find(raters: Iterable[Rater], votes: Sequence[Vote]) -> Crowds:
    """The crowds among `raters`, and what share of the `votes` they cast."""
    named = [one for one in raters if one["network"]]
    named.sort(key=lambda one: (one["at"], one["id"]))
    by_network: dict[str | None, list[Rater]] = defaultdict(list)
    for one in named:
        by_network[one["network"]].append(one)
    cast = Counter(vote["rater"] for vote in votes)
    found = [
        _crowd("address", members, cast)
        for members in by_network.values()
        if len(members) >= PEOPLE
    ]
    for members in bursts(named):
        if len({one["network"] for one in members}) > 1:
            found.append(_crowd("burst", members, cast))
    found.sort(key=lambda one: -one["votes"])
    inside = sorted({rater for one in found for rater in one["raters"]})
    all_in: Crowds = {
        "chose": len(named),
        "addresses": len(by_network),
        "found": found,
        "raters": inside,
        "people": len(inside),
        "votes": sum(cast[rater] for rater in inside),
        "share": _share(inside, cast),
        "warnings": [],
    }
    return {**all_in, "warnings": _warnings(all_in)}


def _crowd(by: str, members: Sequence[Rater], cast: Counter[str]) -> Crowd:
    """What is said of some people who came together. cast: votes by rater."""
    raters = [one["id"] for one in members]
    return {
        "by": by,
        "networks": sorted({str(one["network"]) for one in members}),
        "first": members[0]["at"],
        "last": members[-1]["at"],
        "raters": raters,
        "people": len(raters),
        "votes": sum(cast[rater] for rater in raters),
        "share": _share(raters, cast),
    }


def _share(raters: Iterable[str], cast: Counter[str]) -> float:
    return round(sum(cast[rater] for rater in raters) / cast.total(), 4) if cast else 0.0


def bursts(people: Sequence[Rater]) -> Iterable[Sequence[Rater]]:
    """The stretches of `people`, who are in the order of "at", in which each stands among
    BURST names of SECONDS."""
    times = [datetime.fromisoformat(one["at"]) for one in people]
    reach, last = BURST - 1, -1
    begin = None
    for at in range(len(people) - reach):
        if (times[at + reach] - times[at]).total_seconds() <= SECONDS:
            if begin is not None and at > last:
                yield people[begin : last + 1]
                begin = None
            begin = at if begin is None else begin
            last = at + reach
    if begin is not None:
        yield people[begin : last + 1]


def large(share: float) -> bool:
    """Whether this share of the votes is one that a reader has to hear of."""
    return share > SHARE


def rule() -> str:
    """What makes a crowd, in words."""
    return (
        f"{PEOPLE} or more of one address, or {BURST} or more names within {SECONDS} s. "
        "Whom the owner gave a link is in none."
    )


def origin(crowd: Crowd) -> str:
    """Where a crowd came from, in words; an address by the beginning of its hash."""
    if crowd["by"] == "address":
        return f"Address {crowd['networks'][0][:6]}"
    return f"Within a minute, {len(crowd['networks'])} addresses"


def _warnings(found: Crowds) -> list[str]:
    said = [_warning(one) for one in found["found"] if large(one["share"])]
    if not said and large(found["share"]):
        said.append(
            f"{found['people']} people who chose their names came from few addresses or in "
            "bursts and cast "
            f"{100 * found['share']:.0f} % of the votes"
        )
    return said


def _warning(crowd: Crowd) -> str:
    cast = f"cast {100 * crowd['share']:.0f} % of the votes"
    if crowd["by"] == "address":
        chose = f"{crowd['people']} people who chose their names"
        return f"{chose} came from one address and {cast}; they may be one"
    first, last = (datetime.fromisoformat(crowd[end]) for end in ("first", "last"))
    seconds = max(1, (last - first).total_seconds())
    return (
        f"{crowd['people']} names were chosen within {seconds:.0f} s, from "
        f"{len(crowd['networks'])} addresses, "
        f"and {cast}; they may be one script's"
    )
