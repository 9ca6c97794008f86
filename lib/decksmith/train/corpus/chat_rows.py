"""Chat rows: what a checked draft becomes, and the split into train and test, decided once for each
row.
"""

import hashlib
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from decksmith.core import cli, stream
from decksmith.core.records import Record
from decksmith.measure.decks import templates
from decksmith.train.corpus import drafts, overlap
from decksmith.train.corpus.drafts import FILES
from decksmith.train.corpus.records import (
    ChatRow,
    DraftRecord,
    Seed,
    SeedCost,
    SplitReport,
    SplitSide,
)

CHEATSHEET = 0.5  # share of the rows whose instructions include the cheat sheet
# Latin text has more, so that the estimate is high rather than low.
BYTES_PER_TOKEN = 3.5

Key = Literal["theme", "domain", "language"]
Sides = dict[str, str | None]  # {id: "train", "test" or None}


def has_cheatsheet(ident: str, share: float = CHEATSHEET) -> bool:
    """Whether the row of this id gets the cheat sheet: a coin thrown by the id's hash, so that no
    row moves another."""
    coin = int.from_bytes(hashlib.sha256(f"cheatsheet:{ident}".encode()).digest()[:8])
    return coin < share * 2**64


def estimate(text: str) -> int:
    """About how many tokens a text has, by its bytes."""
    return -(-len(text.encode()) * 10 // int(BYTES_PER_TOKEN * 10))  # rounded up


def row(run: Path | str, record: DraftRecord, *, cheatsheet: float = CHEATSHEET) -> ChatRow:
    """The chat row of a checked record (docs/records.md). Raises cli.BadData naming a file that
    cannot be read."""
    draft = record["draft"]
    folder = Path(run) / draft["path"]
    found, lacks = drafts.texts(folder)
    if lacks:
        raise cli.BadData(f"{record['id']}: {lacks[0]['file']}: {lacks[0]['message']}")
    prompt, think, deck = ((found[name] or "").strip() for name in FILES)
    sheet = has_cheatsheet(record["id"], cheatsheet)
    instructions = templates.system_prompt()
    if sheet:
        instructions += f"\n\n{templates.prompt_text('slidev-cheatsheet.md')}"
    if under := record["seed"].get("template"):
        instructions += f"\n\n{templates.held(folder, under, record['id']).system()}"
    lengths = estimate(instructions) + estimate(prompt), estimate(think), estimate(deck)
    seed: SeedCost | None = None
    if seeded := record.get("by"):
        cost = seeded["usage"]["cost"] if seeded["usage"] else None
        seed = {"model": seeded["model"]["name"], "cost": cost}
    return {
        "id": record["id"],
        "messages": [
            {"role": "system", "content": instructions},
            {"role": "user", "content": prompt},
            {"role": "assistant", "content": deck, "reasoning_content": think},
        ],
        "seed": record["seed"],
        "tokens": {
            "prompt": lengths[0],
            "reasoning": lengths[1],
            "deck": lengths[2],
            "total": sum(lengths),
            "estimated": True,
        },
        "by": {
            "author": draft.get("author"),
            "usage": draft.get("usage"),
            "seed": seed,
            "cheatsheet": sheet,
            "system": hashlib.sha256(instructions.encode()).hexdigest(),
        },
    }


def assign(rows: Sequence[ChatRow], share: float, decided: dict[str, str]) -> Sides:
    """The side of each row; None is a row whose cluster touches both sides already.

    rows: chat records with `overlap.cluster` (its own id without). decided: decisions of earlier
    calls, which stand. Of the new clusters of a theme as many are held out as bring the theme to
    `share`: every n-th in the order of domain and content hash (systematic sampling, which spreads
    them over the domains), from a start that the theme's name gives.
    """
    clusters: dict[str, list[ChatRow]] = {}
    sides: Sides = {}
    for row in rows:
        clusters.setdefault(_cluster(row), []).append(row)
    themes: Counter[str] = Counter()
    new: dict[str, list[tuple[str, str, list[ChatRow]]]] = {}
    for members in clusters.values():
        known = {decided[row["id"]] for row in members if row["id"] in decided}
        head = min(members, key=_content)
        theme = _asked(head, "theme")
        themes[theme] += len(members)
        if known:
            theirs = known.pop() if len(known) == 1 else None
            sides.update({row["id"]: decided.get(row["id"], theirs) for row in members})
        else:
            new.setdefault(theme, []).append((_asked(head, "domain"), _content(head), members))
    for theme, fresh in new.items():
        tested = [row for row in rows if sides.get(row["id"]) == "test"]
        held = sum(_asked(row, "theme") == theme for row in tested)
        size = sum(len(members) for *_, members in fresh)
        rate = min(1.0, max(0.0, share * themes[theme] - held) / size)
        reached = int.from_bytes(hashlib.sha256(theme.encode()).digest()[:4]) / 2**32
        for _, _, members in sorted(fresh, key=lambda item: item[:2]):
            before, reached = reached, reached + rate
            side = "test" if math.floor(reached) > math.floor(before) else "train"
            sides.update({row["id"]: side for row in members})
    return sides


def frozen(path: Path) -> dict[str, str]:
    """The frozen decisions of a split.tsv, `{id: side}`; empty when there is none. Raises
    cli.BadData for a bad line."""
    found: dict[str, str] = {}
    if not path.exists():
        return found
    for number, line in enumerate(path.read_text().splitlines(), 1):
        ident, tab, side = line.partition("\t")
        if not tab or side not in ("train", "test") or found.setdefault(ident, side) != side:
            words = f"{path}:{number}: expected an id, a tab, and train or test, each id once"
            raise cli.BadData(words)
    return found


def report(rows: Sequence[ChatRow], sides: Sides, share: float) -> SplitReport:
    """What a split holds and how it was made: counts of each side, authors, cost where all of it is
    known, thresholds."""
    made = [row["by"] for row in rows if sides[row["id"]] and "by" in row]
    seeded = [by["seed"] for by in made if by["seed"]]
    names = [by["author"] for by in made] + [seed["model"] for seed in seeded]
    costs = [by["usage"]["cost"] if by["usage"] else None for by in made]
    costs += [seed["cost"] for seed in seeded]
    done: SplitReport = {
        "left_out": list(sides.values()).count(None),
        "train": _side(rows, sides, "train"),
        "test": _side(rows, sides, "test"),
        "models": sorted({name for name in names if name}),
        "generation": {
            "instructions": sorted({by["system"][:12] for by in made}),
            "held out": share,
        },
        "dedup": {
            f"{overlap.N}-grams of characters, Jaccard at least": overlap.NGRAM,
            "all-MiniLM-L6-v2, cosine at least": overlap.COSINE,
        },
    }
    if costs and None not in costs:
        done["cost"] = round(sum(filter(None, costs)), 6)
    return done


def _side(rows: Sequence[ChatRow], sides: Sides, side: str) -> SplitSide:
    here = [row for row in rows if sides[row["id"]] == side]

    def counts(key: Key) -> dict[str, int]:
        return dict(sorted(Counter(_asked(row, key) for row in here).items()))

    return {
        "rows": len(here),
        "clusters": len(set(map(_cluster, here))),
        "theme": counts("theme"),
        "domain": counts("domain"),
        "language": counts("language"),
    }


def _cluster(row: ChatRow) -> str:
    """The cluster of near-duplicates that a row is of: by default, itself alone."""
    return row["overlap"]["cluster"] if row.get("overlap") else row["id"]


def _asked(row: ChatRow, key: Key) -> str:
    seed: Seed = row.get("seed") or {}
    return seed.get(key) or "unknown"


def _content(row: ChatRow) -> str:
    # A pair (chat-prefer) has its prompt in place of messages.
    return stream.fingerprint(row.get("messages") or row.get("context"))


def gym_row(prompt: Record) -> Record:
    """A prompt as a row of NeMo Gym: what the model is asked, which agent asks, and the prompt as reward-serve wants it."""
    asked = [message for message in prompt["messages"] if message.get("role") != "assistant"]
    label = {key: prompt[key] for key in ("id", "asks", "checklist", "edit") if key in prompt}
    return {
        "responses_create_params": {"input": asked},
        "agent_ref": {"type": "responses_api_agents", "name": "decksmith_agent"},
        "label": {**label, "messages": asked},
    }
