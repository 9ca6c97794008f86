"""A dataset's rows, checked one by one, and its card: splits, fields, counts and lengths."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from decksmith.core import cli, stream
from decksmith.hub import cards, parcels, schema
from decksmith.hub.parcels import SPLITS, Parcel

COUNTED = ("theme", "domain", "language")  # of the seed, in tables
SIZES = (
    (1_000, "n<1K"),
    (10_000, "1K<n<10K"),
    (100_000, "10K<n<100K"),
    (1_000_000, "100K<n<1M"),
)


@dataclass
class Row:
    """What the card's tables need of a row."""

    split: str
    seed: dict[str, str]  # the part that is counted
    tokens: dict[str, int]  # by part: prompt, reasoning, deck, total
    estimated: bool | None


@dataclass
class Corpus:
    """The rows of all splits, their types, and the split of each cluster of near-duplicates."""

    rows: list[Row] = field(default_factory=list)
    types: schema.Type = "null"
    clusters: dict[str, str] = field(default_factory=dict)


def describe(made: Parcel, out: Path) -> dict[str, Path]:
    """Check the rows (into made.rows), write the card and the plot of a dataset; returns these as files.

    Raises cli.BadData naming file, line and row.
    """
    corpus = _read(made)
    rows, types = corpus.rows, corpus.types
    if not isinstance(types, dict):
        raise cli.BadData(f"{made.files['train.jsonl']}: no rows")
    report = parcels.report(made, out.parent)
    files = {"README.md": out / "README.md"}
    measured = [row for row in rows if "total" in row.tokens]
    if measured:
        files["lengths.png"] = out / "lengths.png"
        stream.write(files["lengths.png"], _plot(rows, report.get("limit")))
    sizes = {split: sum(row.split == split for row in rows) for split in SPLITS}
    groups = {split: sum(s == split for s in corpus.clusters.values()) for split in SPLITS}
    counts = {key: _counted(rows, key) for key in COUNTED if any(key in row.seed for row in rows)}
    cards.write(
        files["README.md"],
        "dataset",
        _meta(made, report, types, sizes, counts),
        report=report,
        repo=made.repo,
        sizes=[(split, sizes[split], groups[split]) for split in SPLITS],
        total=len(rows),
        counts=counts,
        schema=schema.fields(types),
        quantiles=_quantiles(rows),
        plot="lengths.png" in files,
        estimated=any(row.estimated is True for row in measured),
        counted=any(row.estimated is False for row in measured),
    )
    return files


def fingerprint(row: dict[str, Any]) -> str:
    """What of a row counts as its content: everything but who made it when (`by`)."""
    return stream.fingerprint(_content(row))


def _content(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _content(inner) for key, inner in value.items() if key != "by"}
    return [_content(inner) for inner in value] if isinstance(value, list) else value


def _read(made: Parcel) -> Corpus:
    corpus = Corpus()
    for split in SPLITS:
        path = made.files[f"{split}.jsonl"]
        for number, row in stream.records(path):
            try:
                _add(corpus, made, split, row)
            except ValueError as error:
                raise cli.BadData(f"{path}:{number}: {row['id']}: {error}") from None
    return corpus


def _add(corpus: Corpus, made: Parcel, split: str, row: dict[str, Any]) -> None:
    """Add a row to what is known of the corpus. Raises ValueError with what is wrong with it."""
    ident = row["id"]
    if ident in made.rows:
        raise ValueError(f"this id came before, in {made.rows[ident][0]}.jsonl")
    messages = row.get("messages")
    if not isinstance(messages, list) or not messages or not all(map(_is_message, messages)):
        raise ValueError("no messages with role and content; draft-pack makes these rows")
    try:
        corpus.types = schema.merged(corpus.types, schema.type_of(row))
    except ValueError as error:
        raise ValueError(f"{error}; load_dataset refuses a field of two types") from None
    cluster = (row.get("overlap") or {}).get("cluster", ident)
    other = corpus.clusters.setdefault(cluster, split)
    if other != split:
        raise ValueError(
            f"a near-duplicate, of cluster {cluster}, is in {other}.jsonl; chat-split keeps them together"
        )
    made.rows[ident] = (split, fingerprint(row))
    seed, tokens = row.get("seed") or {}, row.get("tokens") or {}
    corpus.rows.append(
        Row(
            split,
            {key: seed[key] for key in COUNTED if isinstance(seed.get(key), str)},
            {part: n for part, n in tokens.items() if type(n) is int},  # a bool is no count
            tokens.get("estimated"),
        )
    )


def _is_message(message: Any) -> bool:
    if not isinstance(message, dict):
        return False
    return isinstance(message.get("content"), str) and isinstance(message.get("role"), str)


def _meta(
    made: Parcel,
    report: dict[str, Any],
    types: dict[str, schema.Type],
    sizes: dict[str, int],
    counts: dict[str, list[tuple[Any, ...]]],
) -> dict[str, Any]:
    """The metadata of the card."""
    found = [value for value, *_ in counts.get("language", [])]
    languages = sorted(value for value in found if re.fullmatch("[a-z]{2,3}", value))
    total = sum(sizes.values())
    files = [{"split": split, "path": f"{split}.jsonl"} for split in SPLITS if sizes[split]]
    return {
        "pretty_name": made.repo.split("/")[1],
        "license": report.get("licence"),
        "language": languages or None,
        "task_categories": ["text-generation"],
        "tags": ["slidev", "slides", "synthetic"] if report.get("models") else ["slidev", "slides"],
        "size_categories": [next((name for most, name in SIZES if total < most), "1M<n<10M")],
        "configs": [{"config_name": "default", "data_files": files}],
        "dataset_info": {"features": schema.features(types)},
    }


def _counted(rows: list[Row], key: str) -> list[tuple[Any, ...]]:
    """`[(value, rows in each split ..)]`, the most frequent first."""
    values: dict[str, dict[str, int]] = {}
    for row in rows:
        counts = values.setdefault(row.seed.get(key, "not given"), dict.fromkeys(SPLITS, 0))
        counts[row.split] += 1
    ranked = sorted(values.items(), key=lambda item: (-sum(item[1].values()), item[0]))
    return [(value, *counts.values()) for value, counts in ranked]


def _quantiles(rows: list[Row]) -> list[tuple[str, ...]]:
    """`[(part, least, median, nine tenths, most)]` of the rows' tokens."""
    found = []
    for part in ("prompt", "reasoning", "deck", "total"):
        if many := sorted(row.tokens[part] for row in rows if part in row.tokens):
            values = [many[round(q * (len(many) - 1))] for q in (0, 0.5, 0.9, 1)]
            found.append((part, *(f"{value:,}" for value in values)))
    return found


def _bin_width(most: int) -> int:
    """The least of 1, 2, 5, 10, 20, .. tokens of which 24 bins reach `most`."""
    power = 1
    while True:
        for step in (power, 2 * power, 5 * power):
            if most <= 24 * step:
                return step
        power *= 10


def _plot(rows: list[Row], limit: Any) -> bytes:
    """The lengths of the rows as a PNG in the style of the reports; equal rows give equal bytes."""
    import numpy

    from decksmith.results import plots

    lengths: dict[str, list[int]] = {split: [] for split in SPLITS}
    for row in rows:
        if "total" in row.tokens:
            lengths[row.split].append(row.tokens["total"])
    limit = limit if isinstance(limit, int) else None
    most = max([limit or 1, *(max(many) for many in lengths.values() if many)])
    step = _bin_width(most)
    with plots.style() as (pyplot, tone):
        figure, axes = pyplot.subplots(figsize=(8.8, 3.4))
        axes.hist(
            list(lengths.values()),
            bins=numpy.arange(0, most + 2 * step, step),
            stacked=True,
            rwidth=0.86,
            color=["#3d7ea6", "#b5543c"],
            label=[f"{split}, {len(many)} rows" for split, many in lengths.items()],
        )
        axes.yaxis.get_major_locator().set_params(integer=True)
        axes.grid(axis="y", color=tone["line"], linewidth=0.8)
        axes.set_xlabel("tokens in a row: prompt, reasoning and deck")
        axes.legend(
            frameon=False,
            loc="lower right",
            bbox_to_anchor=(1.01, 0.99),
            ncols=2,
            fontsize=9,
            handlelength=0.9,
            handleheight=0.9,
        )
        note = "Rows by their number of tokens"
        if any(row.estimated for row in rows):
            note += " (estimated)"
        if limit:
            axes.axvline(limit, color=tone["ink"], linewidth=1, linestyle=(0, (4, 3)))
            note += f". Dashed: the training sequence's limit, {limit:,}"
        figure.subplots_adjust(left=0.07, right=0.97, bottom=0.17)
        plots.titled(figure, tone, "Length of the rows", f"{note}.", 0.85)
        pyplot.close(figure)
        return plots.drawn(figure, "png")
