"""Crowds: names that people chose themselves, and that one person or one script may have chosen.

A name costs nothing, so votes under many names are as many people only where something else says so. Two things are known of
everybody who chose a name: the network it came from, as a keyed hash, and when. Whoever opened a link of the owner's is known to
the owner and is in no crowd.
"""

import ipaddress
import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import datetime

# So many people of one address are a crowd, and so many whose names came within so many seconds, wherever from. A crowd with this
# share of the votes is warned of. The numbers stood here before anybody voted.
RULE = {"people": 3, "burst": 5, "seconds": 60, "share": 0.1}
SITE = 56  # bits: of IPv6, homes and offices are given this prefix or a longer one, and choose the rest themselves (RFC 6177)


def network(address: str) -> str:
    """What an asker cannot change at will: an IPv4 address, or the first SITE bits of an IPv6 address; other text as it is."""
    bare = address.strip()
    if bare.startswith("["):
        bare = bare[1:].partition("]")[0]
    elif bare.count(":") == 1:  # some proxies name the port too
        bare = bare.partition(":")[0]
    try:
        found = ipaddress.ip_address(bare.partition("%")[0])
    except ValueError:
        return bare
    found = getattr(found, "ipv4_mapped", None) or found
    return str(found if found.version == 4 else ipaddress.ip_network((found, SITE), strict=False))


def find(people: Iterable[dict], votes: list[dict]) -> dict:
    """The crowds among `people` ({"id", "network" or None, "at"}), and what share of the `votes` ({"rater"}) they cast.

    Returns {"rule", "chose": people who chose a name, "addresses", "found": [{"by": "address" or "burst", "networks", "first",
    "last", "raters", "people", "votes", "share"}], "raters": everybody in a crowd, "people", "votes", "share", "warnings"}.
    """
    chose = sorted(
        (one for one in people if one["network"]), key=lambda one: (one["at"], one["id"])
    )
    cast, total = Counter(vote["rater"] for vote in votes), len(votes)

    def shares(members):
        count = sum(cast[one["id"]] for one in members)
        return {
            "people": len(members),
            "votes": count,
            "share": round(count / total, 4) if total else 0.0,
        }

    def crowd(by, members):
        return {
            "by": by,
            "networks": sorted({one["network"] for one in members}),
            "first": members[0]["at"],
            "last": members[-1]["at"],
            "raters": [one["id"] for one in members],
            **shares(members),
        }

    of = defaultdict(list)
    for one in chose:
        of[one["network"]].append(one)
    found = [crowd("address", members) for members in of.values() if len(members) >= RULE["people"]]
    found += [
        crowd("burst", members)
        for members in bursts(chose)
        if len({one["network"] for one in members}) > 1
    ]
    found.sort(key=lambda one: -one["votes"])
    inside = {rater for one in found for rater in one["raters"]}
    all_in = {
        "chose": len(chose),
        "addresses": len(of),
        "found": found,
        "raters": sorted(inside),
        **shares([one for one in chose if one["id"] in inside]),
    }
    return {"rule": RULE, **all_in, "warnings": _warnings(all_in)}


def bursts(people: list[dict]) -> Iterable[list[dict]]:
    """The stretches of `people`, who are in the order of "at", in which each stands among RULE["burst"] names of RULE["seconds"]."""
    times = [datetime.fromisoformat(one["at"]) for one in people]
    reach, last = RULE["burst"] - 1, -1
    begin = None
    for at in range(len(people) - reach):
        if (times[at + reach] - times[at]).total_seconds() <= RULE["seconds"]:
            if begin is not None and at > last:
                yield people[begin : last + 1]
                begin = None
            begin = at if begin is None else begin
            last = at + reach
    if begin is not None:
        yield people[begin : last + 1]


def large(share: float) -> bool:
    """Whether this share of the votes is one that a reader has to hear of."""
    return share > RULE["share"]


def _warnings(found):
    said = []
    for one in found["found"]:
        if large(one["share"]):
            cast = f"cast {100 * one['share']:.0f} % of the votes"
            if one["by"] == "address":
                said.append(
                    f"{one['people']} people who chose their names came from one address and {cast}; they may be one"
                )
            else:
                seconds = (
                    datetime.fromisoformat(one["last"]) - datetime.fromisoformat(one["first"])
                ).total_seconds()
                said.append(
                    f"{one['people']} names were chosen within {max(1, seconds):.0f} s, from {len(one['networks'])} addresses, "
                    f"and {cast}; they may be one script's"
                )
    if not said and large(found["share"]):
        said.append(
            f"{found['people']} people who chose their names came from few addresses or in bursts and cast "
            f"{100 * found['share']:.0f} % of the votes"
        )
    return said


def by_time(
    people: Iterable[dict], votes: list[dict], most: int = 24
) -> list[tuple[str, int, int]]:
    """`[(time, names that were chosen then, votes)]` by minute, hour, day or month, whichever gives at most `most` rows first."""
    names = [one["at"] for one in people if one["network"]]
    cast = [vote["at"] for vote in votes if vote.get("at")]
    for length in (16, 13, 10, 7):
        rows = [(Counter(text[:length] for text in part)) for part in (names, cast)]
        times = sorted(set(itertools.chain(*rows)))
        if len(times) <= most:
            break
    return [
        (time.replace("T", " ") + (":00" if length == 13 else ""), rows[0][time], rows[1][time])
        for time in times
    ]
