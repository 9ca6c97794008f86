"""Train and test: decided once for each row, by cluster and content."""

import hashlib
import math
from collections import Counter
from pathlib import Path
from typing import Any

from decksmith.core import cli, stream
from decksmith.core.records import Record
from decksmith.corpus import overlap

Sides = dict[str, str | None]  # {id: "train", "test" or None}


def assign(rows: list[Record], share: float, frozen: dict[str, str]) -> Sides:
    """The side of each row; None is a row whose cluster touches both sides already.

    rows: chat records with `overlap.cluster` (its own id without). frozen: decisions of earlier calls, which stand. Of the
    new clusters of a theme as many are held out as bring the theme to `share`: every n-th in the order of domain and content
    hash (systematic sampling, which spreads them over the domains), from a start that the theme's name gives.
    """
    clusters: dict[str, list[Record]] = {}
    sides: Sides = {}
    for row in rows:
        clusters.setdefault(_cluster(row), []).append(row)
    themes: Counter[str] = Counter()
    new: dict[str, list[tuple[str, str, list[Record]]]] = {}
    for members in clusters.values():
        known = {frozen[row["id"]] for row in members if row["id"] in frozen}
        head = min(members, key=_content)
        theme = _asked(head, "theme")
        themes[theme] += len(members)
        if known:
            theirs = known.pop() if len(known) == 1 else None
            sides.update({row["id"]: frozen.get(row["id"], theirs) for row in members})
        else:
            new.setdefault(theme, []).append((_asked(head, "domain"), _content(head), members))
    for theme, fresh in new.items():
        decided = [row for row in rows if sides.get(row["id"]) == "test"]
        held = sum(_asked(row, "theme") == theme for row in decided)
        size = sum(len(members) for *_, members in fresh)
        rate = min(1.0, max(0.0, share * themes[theme] - held) / size)
        reached = int(_sha(theme)[:8], 16) / 2**32
        for _, _, members in sorted(fresh, key=lambda item: item[:2]):
            before, reached = reached, reached + rate
            side = "test" if math.floor(reached) > math.floor(before) else "train"
            sides.update({row["id"]: side for row in members})
    return sides


def read(path: Path) -> dict[str, str]:
    """The frozen decisions of a split.tsv, `{id: side}`; empty when there is none. Raises cli.BadData for a bad line."""
    found: dict[str, str] = {}
    if not path.exists():
        return found
    for number, line in enumerate(path.read_text().splitlines(), 1):
        ident, tab, side = line.partition("\t")
        if not tab or side not in ("train", "test") or found.setdefault(ident, side) != side:
            raise cli.BadData(
                f"{path}:{number}: expected an id, a tab, and train or test, each id once"
            )
    return found


def report(rows: list[Record], sides: Sides, share: float) -> dict[str, Any]:
    """What a split holds and how it was made: rows, clusters and counts of each side; authors, cost where all of it is
    known, thresholds."""
    done: dict[str, Any] = {"left_out": list(sides.values()).count(None)}
    for side in ("train", "test"):
        here = [row for row in rows if sides[row["id"]] == side]
        done[side] = {
            "rows": len(here),
            "clusters": len(set(map(_cluster, here))),
            **{
                key: dict(sorted(Counter(_asked(row, key) for row in here).items()))
                for key in ("theme", "domain", "language")
            },
        }
    made = [row.get("by") or {} for row in rows if sides[row["id"]]]
    seeded = [by["seed"] for by in made if by.get("seed")]
    names = [by.get("author") for by in made] + [by.get("model") for by in seeded]
    done["models"] = sorted({str(name) for name in names if name})
    costs: list[Any] = [(by.get("usage") or {}).get("cost") for by in made] + [
        by.get("cost") for by in seeded
    ]
    if costs and None not in costs:
        done["cost"] = round(sum(costs), 6)
    done["generation"] = {
        "instructions": sorted({by["system"][:12] for by in made if by.get("system")}),
        "held out": share,
    }
    done["dedup"] = {
        f"{overlap.N}-grams of characters, Jaccard at least": overlap.NGRAM,
        "all-MiniLM-L6-v2, cosine at least": overlap.COSINE,
    }
    return done


def _cluster(row: Record) -> str:
    """The cluster of near-duplicates that a row is of: by default, itself alone."""
    return str((row.get("overlap") or {}).get("cluster", row["id"]))


def _asked(row: Record, key: str) -> str:
    return str((row.get("seed") or {}).get(key) or "unknown")


def _content(row: Record) -> str:
    # Of a pair (chat-prefer) the prompt.
    return stream.fingerprint(row.get("messages") or row.get("context") or row.get("prompt"))


def _sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
