"""Who comes and what each rater did, who is left out and why, and which names may be one person.

A name costs nothing, so votes under many names are as many people only where something else says
so. Of everybody who chose a name the network it came from is known, as a keyed hash. Whoever opened
a link of the owner's is known to the owner.
"""

import ipaddress
import statistics
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import TypedDict

from decksmith.core import cli
from decksmith.measure.results import stats
from decksmith.people.study.records import Rater, Vote, preferred

# A rater is left out for these and nothing else; the numbers stood here before anybody voted.
GOLD, FAILED = 3, 1 / 3  # of so many attention items or more, a larger share failed
REPEATS = 5  # in all of so many swapped repeats or more that had a side, the other deck
FASTEST = 2.0  # seconds: a smaller median
# So many or more who chose their names on one network may be one. Where they cast a larger share of
# the votes on two models, these votes separate nothing.
PEOPLE, SHARE = 3, 0.1
# Bits: of IPv6, homes and offices are given this prefix or a longer one, and choose the rest
# themselves (RFC 6177).
SITE = 56


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


def alike(came: Iterable[Rater]) -> frozenset[str]:
    """The ids of those who chose their names on a network on which PEOPLE or more did."""
    networks = {one["id"]: one["network"] for one in came if one["network"]}
    names = Counter(networks.values())
    return frozenset(rater for rater, network in networks.items() if names[network] >= PEOPLE)


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
