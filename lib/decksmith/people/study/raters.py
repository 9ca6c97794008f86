"""Who comes and what each rater did, who is left out and why, and which names may be fewer people
than they seem (crowds).

A name costs nothing, so votes under many names are as many people only where something else says
so. Two things are known of everybody who chose a name: the network it came from, as a keyed hash,
and when. Whoever opened a link of the owner's is known to the owner and is in no crowd.
"""

import ipaddress
import statistics
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TypedDict

from decksmith.core import cli
from decksmith.measure.results import stats
from decksmith.people.study.records import Rater, Vote, preferred

# A rater is left out for these and nothing else; the numbers stood here before anybody voted.
GOLD, FAILED = 3, 1 / 3  # of so many attention items or more, a larger share failed
REPEATS = 5  # in all of so many swapped repeats or more that had a side, the other deck
FASTEST = 2.0  # seconds: a smaller median
# So many people of one address are a crowd, and so many whose names came within so many seconds,
# wherever from. A crowd with a larger share of the votes is warned of. These stood here too.
PEOPLE, BURST, SECONDS, SHARE = 3, 5, 60, 0.1
# So many names may be chosen from one network within so many seconds. The owner's links have no
# such limit.
NAMES, SPAN = 5, 3600
# Bits: of IPv6, homes and offices are given this prefix or a longer one, and choose the rest
# themselves (RFC 6177).
SITE = 56
CROWD_RULE = (
    f"{PEOPLE} or more of one address, or {BURST} or more names within {SECONDS} s. "
    "Whom the owner gave a link is in none."
)


# Who comes


def network_of(address: str) -> str:
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


def handle(name: object) -> str:
    """A name as people give it, tidied; raises cli.BadData for one that is empty, long or has
    characters that cannot be seen."""
    tidy = " ".join(unicodedata.normalize("NFC", name).split()) if isinstance(name, str) else ""
    if not 1 <= len(tidy) <= 40:
        raise cli.BadData("a name has 1 to 40 characters")
    if any(unicodedata.category(char)[0] == "C" for char in tidy):
        raise cli.BadData("a name has characters that can be seen")
    return tidy


# What they did


class GoldCount(TypedDict):
    n: int  # attention items
    failed: int  # answered otherwise than expected


class RepeatCount(TypedDict):
    n: int  # swapped repeats
    same: int  # the same deck again
    against: int  # the other deck


class RaterSummary(TypedDict):
    rater: str  # the id
    votes: int  # without gold items and repeats
    gold: GoldCount  # attention items
    repeats: RepeatCount  # swapped repeats
    left: float | None  # share of the left side among the untied
    tied: int  # votes for neither
    bad: int  # votes that found both decks bad
    seconds: float | None  # median in view
    excluded: str | None  # why the rule leaves this rater out


def counted(votes: Sequence[Vote]) -> tuple[list[Vote], list[RaterSummary]]:
    """`(votes that count, what each rater did)`: neither gold nor repeats, all slides seen, raters
    who are not left out."""
    people = summaries(votes)
    out = {rater["rater"] for rater in people if rater["excluded"]}
    return [vote for vote in usable(votes) if vote["rater"] not in out], people


def usable(votes: Iterable[Vote]) -> list[Vote]:
    """Neither gold nor repeats, all slides seen: what would count if nobody was left out."""
    return [vote for vote in votes if vote["kind"] == "vote" and vote["seen"]]


def summaries(votes: Iterable[Vote]) -> list[RaterSummary]:
    """What each rater did, in order of name."""
    of = defaultdict(list)
    for vote in votes:
        of[vote["rater"]].append(vote)
    return [_summary(name, of[name]) for name in sorted(of)]


def _summary(name: str, votes: Sequence[Vote]) -> RaterSummary:
    first = {vote["pair"]: vote for vote in votes if vote["kind"] == "vote"}
    sides = [vote["choice"] for vote in votes if vote["kind"] == "vote"]
    untied = sides.count("left") + sides.count("right")
    times = [vote["seconds"] for vote in votes if vote["seconds"] is not None]
    pace = statistics.median(times) if times else None
    gold = [vote["choice"] == vote["expect"] for vote in votes if vote["kind"] == "gold"]
    failed = gold.count(False)
    turned = [
        (preferred(first[of]), preferred(vote))
        for vote in votes
        if vote["kind"] == "repeat" and (of := vote["of"] or "") in first
    ]
    decided = [before == now for before, now in turned if before and now]
    against = decided.count(False)
    why = []
    if len(gold) >= GOLD and failed > FAILED * len(gold):
        why.append(f"failed {failed} of {len(gold)} gold items")
    if len(decided) >= REPEATS and all(not same for same in decided):
        why.append(f"chose the other deck in all of {len(decided)} swapped repeats")
    if pace is not None and pace < FASTEST:
        why.append(f"median of {pace:.1f} s a vote")
    return {
        "rater": name,
        "votes": len(first),
        "gold": {"n": len(gold), "failed": failed},
        "repeats": {"n": len(turned), "same": decided.count(True), "against": against},
        "left": round(sides.count("left") / untied, 4) if untied else None,
        "tied": sides.count("tie"),
        "bad": sides.count("bad"),
        "seconds": None if pace is None else stats.number(pace, 1),
        "excluded": " and ".join(why) or None,
    }


# Crowds


class Crowd(TypedDict):
    by: str  # `address` or `burst`
    origin: str  # where the names came from, in words; an address by the beginning of its hash
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


def crowds(raters: Iterable[Rater], votes: Sequence[Vote]) -> Crowds:
    """The crowds among `raters`, and what share of the `votes` they cast."""
    named = [one for one in raters if one["network"]]
    named.sort(key=lambda one: (one["at"], one["id"]))
    by_network: dict[str | None, list[Rater]] = defaultdict(list)
    for one in named:
        by_network[one["network"]].append(one)
    together = [members for members in by_network.values() if len(members) >= PEOPLE]
    rushed = [some for some in bursts(named) if len({one["network"] for one in some}) > 1]
    cast = Counter(vote["rater"] for vote in votes)
    found = [_crowd(members, cast) for members in [*together, *rushed]]
    found.sort(key=lambda one: -one["votes"])
    inside = sorted({rater for one in found for rater in one["raters"]})
    by_them = sum(cast[rater] for rater in inside)
    share = _share(by_them, cast)
    warnings = [_warning(one) for one in found if one["share"] > SHARE]
    if not warnings and share > SHARE:
        warnings.append(
            f"{len(inside)} people who chose their names came from few addresses or in bursts "
            f"and cast {100 * share:.0f} % of the votes"
        )
    return {
        "chose": len(named),
        "addresses": len(by_network),
        "found": found,
        "raters": inside,
        "people": len(inside),
        "votes": by_them,
        "share": share,
        "warnings": warnings,
    }


def _crowd(members: Sequence[Rater], cast: Counter[str]) -> Crowd:
    """What is said of some people who came together. cast: votes by rater."""
    networks = sorted({str(one["network"]) for one in members})
    votes = sum(cast[one["id"]] for one in members)
    alone = len(networks) == 1
    return {
        "by": "address" if alone else "burst",
        "origin": f"Address {networks[0][:6]}"
        if alone
        else f"Within a minute, {len(networks)} addresses",
        "networks": networks,
        "first": members[0]["at"],
        "last": members[-1]["at"],
        "raters": [one["id"] for one in members],
        "people": len(members),
        "votes": votes,
        "share": _share(votes, cast),
    }


def _share(votes: int, cast: Counter[str]) -> float:
    return round(votes / cast.total(), 4) if cast else 0.0


def bursts(people: Sequence[Rater]) -> list[Sequence[Rater]]:
    """The stretches of `people`, who are in the order of "at", in which each stands among
    BURST names of SECONDS."""
    times = [datetime.fromisoformat(one["at"]) for one in people]
    found: list[list[int]] = []  # first and last place of a stretch
    for first, last in enumerate(range(BURST - 1, len(people))):
        if (times[last] - times[first]).total_seconds() > SECONDS:
            continue
        if found and first <= found[-1][1]:
            found[-1][1] = last
        else:
            found.append([first, last])
    return [people[first : last + 1] for first, last in found]


def _warning(crowd: Crowd) -> str:
    cast = f"cast {100 * crowd['share']:.0f} % of the votes"
    if crowd["by"] == "address":
        chose = f"{crowd['people']} people who chose their names"
        return f"{chose} came from one address and {cast}; they may be one"
    first, last = (datetime.fromisoformat(crowd[end]) for end in ("first", "last"))
    seconds = max(1, (last - first).total_seconds())
    return (
        f"{crowd['people']} names were chosen within {seconds:.0f} s, from "
        f"{len(crowd['networks'])} addresses, and {cast}; they may be one script's"
    )
