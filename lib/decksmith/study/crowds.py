"""Crowds: names that people chose themselves, and that one person or one script may have chosen.

A name costs nothing, so votes under many names are as many people only where something else says
so. Two things are known of everybody who chose a name: the network it came from, as a keyed hash,
and when. Whoever opened a link of the owner's is known to the owner and is in no crowd.
"""

import ipaddress
from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import datetime
from typing import Any

# So many people of one address are a crowd, and so many whose names came within so many seconds,
# wherever from. A crowd with this share of the votes is warned of. The numbers stood here before
# anybody voted.
RULE: dict[str, Any] = {"people": 3, "burst": 5, "seconds": 60, "share": 0.1}
# Bits: of IPv6, homes and offices are given this prefix or a longer one, and choose the rest
# themselves (RFC 6177).
SITE = 56


def network(address: str) -> str:
    """What an asker cannot change at will: an IPv4 address, or the first SITE bits of an IPv6
    address; other text as it is."""
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


def find(people: Iterable[dict[str, Any]], votes: list[dict[str, Any]]) -> dict[str, Any]:
    """The crowds among `people` ({"id", "network" or None, "at"}), and what share of the `votes`
    ({"rater"}) they cast.

    Returns {"rule", "chose": people who chose a name, "addresses", "found": [{"by": "address" or
    "burst", "networks", "first", "last", "raters", "people", "votes", "share"}], "raters":
    everybody in a crowd, "people", "votes", "share", "warnings"}.
    """
    chose = sorted(
        (one for one in people if one["network"]), key=lambda one: (one["at"], one["id"])
    )
    cast, total = Counter(vote["rater"] for vote in votes), len(votes)

    def shares(members: list[dict[str, Any]]) -> dict[str, Any]:
        count = sum(cast[one["id"]] for one in members)
        return {
            "people": len(members),
            "votes": count,
            "share": round(count / total, 4) if total else 0.0,
        }

    def crowd(by: str, members: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "by": by,
            "networks": sorted({one["network"] for one in members}),
            "first": members[0]["at"],
            "last": members[-1]["at"],
            "raters": [one["id"] for one in members],
            **shares(members),
        }

    of: dict[str, list[dict[str, Any]]] = defaultdict(list)
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


def bursts(people: list[dict[str, Any]]) -> Iterable[list[dict[str, Any]]]:
    """The stretches of `people`, who are in the order of "at", in which each stands among
    RULE["burst"] names of RULE["seconds"]."""
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
    return bool(share > RULE["share"])


def rule() -> str:
    """What makes a crowd, in words."""
    return (
        f"{RULE['people']} or more of one address, or {RULE['burst']} or more names within {RULE['seconds']} s. "
        "Whom the owner gave a link is in none."
    )


def origin(crowd: dict[str, Any]) -> str:
    """Where a crowd came from, in words; an address by the beginning of its hash."""
    if crowd["by"] == "address":
        return f"Address {crowd['networks'][0][:6]}"
    return f"Within a minute, {len(crowd['networks'])} addresses"


def _warnings(found: dict[str, Any]) -> list[str]:
    said = [_warning(one) for one in found["found"] if large(one["share"])]
    if not said and large(found["share"]):
        said.append(
            f"{found['people']} people who chose their names came from few addresses or in bursts and cast "
            f"{100 * found['share']:.0f} % of the votes"
        )
    return said


def _warning(crowd: dict[str, Any]) -> str:
    cast = f"cast {100 * crowd['share']:.0f} % of the votes"
    if crowd["by"] == "address":
        return f"{crowd['people']} people who chose their names came from one address and {cast}; they may be one"
    first, last = (datetime.fromisoformat(crowd[end]) for end in ("first", "last"))
    seconds = max(1, (last - first).total_seconds())
    return (
        f"{crowd['people']} names were chosen within {seconds:.0f} s, from {len(crowd['networks'])} addresses, "
        f"and {cast}; they may be one script's"
    )


def by_time(
    people: Iterable[dict[str, Any]], votes: list[dict[str, Any]], most: int = 24
) -> list[tuple[str, int, int]]:
    """`[(time, names that were chosen then, votes)]` by minute, hour, day or month, whichever
    gives at most `most` rows first."""
    names = [one["at"] for one in people if one["network"]]
    cast = [vote["at"] for vote in votes if vote.get("at")]
    for length in (16, 13, 10, 7):  # of the time as text: to the minute, hour, day, month
        chosen = Counter(at[:length] for at in names)
        voted = Counter(at[:length] for at in cast)
        times = sorted({*chosen, *voted})
        if len(times) <= most:
            break
    end = ":00" if length == 13 else ""
    return [(time.replace("T", " ") + end, chosen[time], voted[time]) for time in times]
