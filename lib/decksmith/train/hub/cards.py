"""The cards of datasets and adapters: rows and weights are checked, and what they hold is told."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict, cast

from decksmith.core import cli, stream
from decksmith.core.records import Message, Record
from decksmith.measure.results import tables
from decksmith.measure.results.comparison import Comparison
from decksmith.train.hub import bundles, weights
from decksmith.train.hub.bundles import SPLITS, Bundle, json_object

if TYPE_CHECKING:
    from datasets import Features

REPO = re.compile(r"[\w.-]+/[\w.-]+")
KEYS: tuple[Literal["theme", "domain", "language"], ...] = ("theme", "domain", "language")
PARTS = ("prompt", "reasoning", "deck", "total")  # of `tokens`
SIZES = (
    (1_000, "n<1K"),
    (10_000, "1K<n<10K"),
    (100_000, "10K<n<100K"),
    (1_000_000, "100K<n<1M"),
)
# What the card calls the settings of adapter_config.json.
SHAPE = {
    "method": "peft_type",
    "rank": "r",
    "alpha": "lora_alpha",
    "dropout": "lora_dropout",
    "adapted modules": "target_modules",
}


class Seed(TypedDict, total=False):
    """What of a row's seed is counted."""

    theme: str
    domain: str
    language: str


class Cluster(TypedDict):
    """Near-duplicates, as chat-overlap names them."""

    cluster: str


class Row(TypedDict, total=False):
    """What a card tells of a row; others of its fields are published too."""

    id: str
    messages: list[Message]
    seed: Seed
    overlap: Cluster
    tokens: dict[str, int]


def describe_dataset(bundle: Bundle, out: Path) -> dict[str, Path]:
    """Check the rows (into bundle.rows) and write the card of a dataset; returns it as a file.

    Raises cli.BadData naming file, line and row.
    """
    rows = {split: _read(bundle, split) for split in SPLITS}
    every = [row for split in SPLITS for row in rows[split]]
    if not every:
        raise cli.BadData(f"{bundle.files['train.jsonl']}: no rows")
    clusters = _clusters(bundle, rows)
    features = _features(bundle, rows)
    report = bundles.report(bundle, out.parent)
    given = [key for key in KEYS if any(_seed(row).get(key) for row in every)]
    languages = {_seed(row).get("language", "") for row in every}
    estimated = {(row.get("tokens") or {}).get("estimated") for row in every}
    files = [{"split": split, "path": f"{split}.jsonl"} for split in SPLITS if rows[split]]
    tags = ["slidev", "slides", "synthetic"] if report.get("models") else ["slidev", "slides"]
    meta: dict[str, object] = {
        "pretty_name": bundle.repo.split("/")[1],
        "license": report.get("licence"),
        "language": sorted(one for one in languages if re.fullmatch("[a-z]{2,3}", one)) or None,
        "task_categories": ["text-generation"],
        "tags": tags,
        "size_categories": [next((name for n, name in SIZES if len(every) < n), "1M<n<10M")],
        "configs": [{"config_name": "default", "data_files": files}],
        "dataset_info": _dataset_info(features),
    }
    bundles.write_card(
        out / "README.md",
        "dataset",
        meta,
        report=report,
        repo=bundle.repo,
        sizes=[(split, len(rows[split]), clusters[split]) for split in SPLITS],
        total=len(every),
        counts={key: _counted(rows, key) for key in given},
        quantiles=list(_quantiles(every)),
        estimated=True in estimated,
        counted=False in estimated,
    )
    return {"README.md": out / "README.md"}


def fingerprint(row: Mapping[str, object]) -> str:
    """What of a row counts as its content: everything but who made it when (`by`)."""
    return stream.fingerprint(_content(row))


def _content(value: object) -> object:
    if isinstance(value, dict):
        return {key: _content(inner) for key, inner in value.items() if key != "by"}
    return [_content(inner) for inner in value] if isinstance(value, list) else value


def _read(bundle: Bundle, split: str) -> list[Row]:
    """The rows of a split, each with an id of its own and messages."""
    path, rows = bundle.files[f"{split}.jsonl"], []
    for number, row in stream.records(path):
        if row["id"] in bundle.rows:
            other = bundle.rows[row["id"]][0]
            said = f"this id came before, in {other}.jsonl"
            raise cli.BadData(f"{path}:{number}: {row['id']}: {said}")
        if not _has_messages(row):
            said = "no messages with role and content; draft-pack makes these rows"
            raise cli.BadData(f"{path}:{number}: {row['id']}: {said}")
        bundle.rows[row["id"]] = (split, fingerprint(row))
        rows.append(cast(Row, row))
    return rows


def _has_messages(row: Record) -> bool:
    messages = row.get("messages")
    if not isinstance(messages, list) or not messages:
        return False
    return all(
        isinstance(one, dict)
        and isinstance(one.get("content"), str)
        and isinstance(one.get("role"), str)
        for one in messages
    )


def _clusters(bundle: Bundle, rows: dict[str, list[Row]]) -> Counter[str]:
    """How many clusters of near-duplicates each split has; none is in two."""
    splits: dict[str, str] = {}
    for split in SPLITS:
        for number, row in enumerate(rows[split], 1):
            cluster = row["overlap"]["cluster"] if row.get("overlap") else row["id"]
            other = splits.setdefault(cluster, split)
            if other != split:
                raise cli.BadData(
                    f"{bundle.files[f'{split}.jsonl']}:{number}: {row['id']}: a near-duplicate, of cluster "
                    f"{cluster}, is in {other}.jsonl; chat-split keeps them together"
                )
    return Counter(splits.values())


def _features(bundle: Bundle, rows: dict[str, list[Row]]) -> "Features":
    """The types of the rows, as load_dataset finds them. Raises cli.BadData naming a row of another
    type."""
    import pyarrow
    from datasets import Features

    every = [(split, n, row) for split in SPLITS for n, row in enumerate(rows[split], 1)]

    def types(count: int) -> pyarrow.DataType:
        return pyarrow.array([row for _, _, row in every[:count]]).type

    try:
        return Features.from_arrow_schema(pyarrow.schema(list(types(len(every)))))
    except pyarrow.ArrowInvalid as error:
        fits, fails = 0, len(every)  # so many rows have one type, so many have not
        while fails - fits > 1:
            middle = (fits + fails) // 2
            try:
                types(middle)
                fits = middle
            except pyarrow.ArrowInvalid:
                fails = middle
        split, number, row = every[fails - 1]
        raise cli.BadData(
            f"{bundle.files[f'{split}.jsonl']}:{number}: {row['id']}: {error}; load_dataset refuses a "
            "field of two types"
        ) from None


def _dataset_info(features: "Features") -> object:
    """The types as the card's metadata has them, so that a reader needs no inference."""
    from datasets import DatasetInfo
    from datasets.info import DatasetInfosDict
    from huggingface_hub import DatasetCardData

    card = DatasetCardData()
    DatasetInfosDict(default=DatasetInfo(features=features)).to_dataset_card_data(card)
    return card["dataset_info"]


def _seed(row: Row) -> Seed:
    return row.get("seed") or {}


def _counted(
    rows: dict[str, list[Row]], key: Literal["theme", "domain", "language"]
) -> list[tuple[str, int, int]]:
    """[(value, rows of train, of test)], the most frequent first."""
    train, test = (
        Counter(str(_seed(row).get(key, "not given")) for row in rows[split]) for split in SPLITS
    )
    ranked = sorted((train + test).items(), key=lambda item: (-item[1], item[0]))
    return [(value, train[value], test[value]) for value, _ in ranked]


def _quantiles(rows: list[Row]) -> Iterator[tuple[str, ...]]:
    """(part, least, median, nine tenths, most) of the rows' tokens."""
    for part in PARTS:
        tokens = [row.get("tokens") or {} for row in rows]
        if many := sorted(one[part] for one in tokens if part in one):
            values = [many[round(q * (len(many) - 1))] for q in (0, 0.5, 0.9, 1)]
            yield part, *(f"{value:,}" for value in values)


# --- adapters -------------------------------------------------------------------------------------


def describe_adapter(bundle: Bundle, out: Path) -> dict[str, Path]:
    """Write the card of an adapter: what it changes of which model, how it was trained, what a
    comparison may claim.

    Returns it as a file. Raises cli.BadData.
    """
    config = json_object(bundle.files["adapter_config.json"])
    report = bundles.report(bundle, out.parent)
    compared = _comparison(bundle)
    base = config.get("base_model_name_or_path")
    if base and not REPO.fullmatch(str(base)):
        bundle.notes.append(
            f"adapter_config.json names the base model by a path, {base}: nobody else can load it, and the card leaves it out"
        )
        base = None
    data = report.get("data")
    trained_on = str(data.get("repo")) if isinstance(data, dict) else ""
    meta: dict[str, object] = {
        "library_name": "peft",
        "license": report.get("licence"),
        "base_model": base,
        "pipeline_tag": "text-generation",
        "datasets": [trained_on] if REPO.fullmatch(trained_on) else None,
        "tags": ["slidev", "slides", "lora"],
    }
    shape = {name: config[key] for name, key in SHAPE.items() if config.get(key) is not None}
    if isinstance(modules := shape.get("adapted modules"), list):
        shape["adapted modules"] = sorted(modules)
    shape["parameters"] = f"{weights.parameters(bundle.files['adapter_model.safetensors']):,}"
    bundles.write_card(
        out / "README.md",
        "adapter",
        meta,
        report=report,
        repo=bundle.repo,
        base=base,
        shape=shape,
        compared=compared,
        said=tables.headline(cast(Comparison, compared)) if compared else None,
    )
    return {"README.md": out / "README.md"}


def _comparison(bundle: Bundle) -> Record | None:
    """What `run-compare --json` printed, or None with a note."""
    if "comparison.json" not in bundle.files:
        bundle.notes.append("no comparison.json (run-compare --json): the card makes no claim")
        return None
    compared = json_object(bundle.files["comparison.json"])
    if not all(isinstance(compared.get(key), list) for key in ("caveats", "headlines", "runs")):
        raise cli.BadData(
            f"{bundle.files['comparison.json']}: not what `run-compare --json` prints (caveats, headlines, runs)"
        )
    return compared
