"""Packing: the chat row that a checked draft becomes, its length in tokens, and the lengths of many as a histogram."""

import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from decksmith.core import cli
from decksmith.corpus import drafts
from decksmith.corpus.drafts import FILES
from decksmith.decks import prompts, templates

CHEATSHEET = 0.5  # share of the rows whose instructions include the cheat sheet
LIMIT = 4096  # tokens of a training sequence
# Where no tokenizer counts. Latin text has more, so that the estimate is high rather than low.
BYTES_PER_TOKEN = 3.5

Counter = Callable[[str], int]  # text -> tokens


def system(cheatsheet: bool = False) -> str:
    """The system message: the one of data/prompts.jsonl, and the cheat sheet below it where asked."""
    text = prompts.system()
    return f"{text}\n\n{prompts.text('slidev-cheatsheet.md')}" if cheatsheet else text


def has_cheatsheet(ident: str, share: float = CHEATSHEET) -> bool:
    """Whether the row of this id gets the cheat sheet: a coin thrown by the id's hash, so that no row moves another."""
    coin = int.from_bytes(hashlib.sha256(f"cheatsheet:{ident}".encode()).digest()[:8])
    return coin < share * 2**64


def estimate(text: str) -> int:
    """About how many tokens a text has, by its bytes."""
    return -(-len(text.encode()) * 10 // int(BYTES_PER_TOKEN * 10))  # rounded up


def row(
    run: Path | str,
    record: dict[str, Any],
    *,
    cheatsheet: float = CHEATSHEET,
    counter: Counter | None = None,
) -> dict[str, Any]:
    """The chat row of a checked record (docs/records.md); without `counter` its tokens are estimated.

    Raises cli.BadData naming a file that cannot be read.
    """
    found, lacks = drafts.texts(Path(run) / record["draft"]["path"])
    if lacks:
        raise cli.BadData(f"{record['id']}: {lacks[0]['file']}: {lacks[0]['message']}")
    prompt, think, deck = ((found[name] or "").strip() for name in FILES)
    sheet = has_cheatsheet(record["id"], cheatsheet)
    instructions = system(sheet)
    if under := record["seed"].get("template"):
        template = templates.held(Path(run) / record["draft"]["path"], under, record["id"])
        instructions += f"\n\n{template.system()}"
    count = counter or estimate
    tokens = {
        "prompt": count(instructions) + count(prompt),
        "reasoning": count(think),
        "deck": count(deck),
    }
    seeded = record.get("by")
    return {
        "id": record["id"],
        "messages": [
            {"role": "system", "content": instructions},
            {"role": "user", "content": prompt},
            {"role": "assistant", "content": deck, "reasoning_content": think},
        ],
        "seed": record["seed"],
        "tokens": {**tokens, "total": sum(tokens.values()), "estimated": counter is None},
        "by": {
            "author": record["draft"].get("author"),
            "usage": record["draft"].get("usage"),
            "seed": {key: seeded.get(key) for key in ("model", "cost")} if seeded else None,
            "cheatsheet": sheet,
            "system": hashlib.sha256(instructions.encode()).hexdigest(),
        },
    }


def tokenizer(path: Path | str) -> Counter:
    """A function text -> tokens by a tokenizer.json. Raises cli.Missing, cli.BadConfig."""
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise cli.Missing(
            "the package tokenizers is not installed; without --tokenizer the tokens are estimated"
        ) from None
    try:
        known = Tokenizer.from_file(str(path))
    except Exception as error:  # the package raises plain Exception
        raise cli.BadConfig(f"{path}: {error}") from None
    return lambda text: len(known.encode(text, add_special_tokens=False).ids)


def histogram(totals: Iterable[int], limit: int = LIMIT, width: int = 40) -> list[str]:
    """The lengths of rows as lines of text, in eighths of the limit; all that is longer stands in the last line."""
    step = -(-limit // 8)
    bins = [0] * 9
    for total in totals:
        bins[min((max(total, 1) - 1) // step, 8)] += 1
    most = max(bins) or 1
    names = [f"{i * step + 1}-{min((i + 1) * step, limit)}" for i in range(8)] + [f"over {limit}"]
    return [
        f"{name:>12} {n:5d} {'#' * -(-n * width // most)}".rstrip()
        for name, n in zip(names, bins, strict=True)
    ]
