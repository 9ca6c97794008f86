"""A bundle: the files of a folder that are published, and a card written from them to FOLDER/card.

Rows and weights are checked. Nothing is on a card that is not in the files (docs/records.md). Only
the files named here are ever sent.
"""

import bisect
import json
import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, cast

from decksmith import __version__
from decksmith.core import cli, pages, stream
from decksmith.core.records import Record
from decksmith.measure.results import tables
from decksmith.measure.results.comparison import Comparison
from decksmith.measure.results.text import markdown_table
from decksmith.train.hub import weights

if TYPE_CHECKING:
    from datasets import Features

SPLITS = ("train", "test")
FILES = {
    "dataset": "train.jsonl test.jsonl report.json split.tsv".split(),
    "adapter": (
        "adapter_config.json adapter_model.safetensors comparison.json manifest.json report.json "
        "adapter.gguf tokenizer.json tokenizer_config.json special_tokens_map.json chat_template.jinja"
    ).split(),
}
NEEDED = {
    "dataset": ("train.jsonl", "test.jsonl"),
    "adapter": ("adapter_config.json", "adapter_model.safetensors"),
}

REPO = re.compile(r"[\w.-]+/[\w.-]+")
KEYS = ("theme", "domain", "language")  # of a seed, whose values are counted
PARTS = ("prompt", "reasoning", "deck", "total")  # of `tokens`
# What the card calls the settings of adapter_config.json.
SHAPE = {
    "method": "peft_type",
    "rank": "r",
    "alpha": "lora_alpha",
    "dropout": "lora_dropout",
    "adapted modules": "target_modules",
}


@dataclass
class Bundle:
    """A folder ready to be sent: `files` by their names on the Hub, `notes` to be said."""

    kind: Literal["dataset", "adapter"]
    repo: str
    files: dict[str, Path]
    notes: list[str] = field(default_factory=list)


def _report(bundle: Bundle, folder: Path) -> dict[str, object]:
    """What is known of how the folder was made. Raises cli.BadData, cli.BadConfig. about.toml has
    what no tool knows: licence, limits and the like."""
    known: dict[str, object] = {}
    for name in ("manifest.json", "report.json"):  # of model-export, of chat-split
        if name in bundle.files:
            known |= stream.json_file(bundle.files[name])
    if (path := folder / "about.toml").exists():
        try:
            known |= tomllib.loads(path.read_text())
        except ValueError as error:
            raise cli.BadConfig(f"{path}: {error}") from None
    if not known.get("licence"):
        bundle.notes.append(f'no licence is named; {path} may: licence = "apache-2.0"')
    return known


def _write_card(
    path: Path, kind: str, meta: Mapping[str, object], **known: object
) -> dict[str, Path]:
    """Fill assets/cards/KIND.md.j2 with what is known; what is None in `meta` is left out. Returns
    the card as a file of a bundle."""
    from huggingface_hub.utils import yaml_dump

    templates = pages.environment(cli.ROOT / "assets" / "cards")
    body = templates.get_template(f"{kind}.md.j2").render(
        table=_table, plain=plain, flat=_flat, version=__version__, **known
    )
    given = {key: value for key, value in meta.items() if value is not None}
    head = yaml_dump(given, sort_keys=False)
    stream.write(path, f"---\n{head}---\n\n{body.strip()}\n")
    return {path.name: path}


def plain(value: object) -> str:
    """A value as text of one line that markdown and HTML leave alone."""
    return re.sub(r"([<>`*]|(?<=\])\()", r"\\\1", " ".join(_text(value).split()))


def _table(header: list[str], rows: Sequence[Sequence[object]], words: int = 1) -> str:
    return "\n".join(markdown_table(header, [[plain(cell) for cell in row] for row in rows], words))


def _text(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    return value if isinstance(value, str) else json.dumps(value)


def _flat(value: object, prefix: str = "") -> list[tuple[str, str]]:
    """`[(dotted name, text)]` of a nested object."""
    if isinstance(value, dict):
        return [pair for key, inner in value.items() for pair in _flat(inner, f"{prefix}{key}.")]
    return [(prefix.rstrip("."), _text(value))]


class _Row(NamedTuple):
    """A row of a dataset and where it stands, for sentences about it; `data` is published whole."""

    split: str
    place: str  # file, line and id
    data: Record

    def seed(self, key: str) -> str | None:
        """What its seed says of theme, domain or language."""
        return (self.data.get("seed") or {}).get(key)


def describe_dataset(bundle: Bundle, out: Path) -> dict[str, Path]:
    """Check the rows and write the card of a dataset; returns it as a file. Raises cli.BadData naming file, line and row."""
    rows = list(_read(bundle))
    if not rows:
        raise cli.BadData(f"{bundle.files['train.jsonl']}: no rows")
    count = Counter(row.split for row in rows)
    clusters = _clusters(rows)
    features = _features(rows)
    report = _report(bundle, out.parent)
    given = [key for key in KEYS if any(row.seed(key) for row in rows)]
    languages = {row.seed("language") or "" for row in rows}
    tokens = [row.data.get("tokens") or {} for row in rows]
    files = [{"split": split, "path": f"{split}.jsonl"} for split in SPLITS if count[split]]
    tags = ["slidev", "slides", "synthetic"] if report.get("models") else ["slidev", "slides"]
    meta: dict[str, object] = {
        "pretty_name": bundle.repo.split("/")[1],
        "license": report.get("licence"),
        "language": sorted(one for one in languages if re.fullmatch("[a-z]{2,3}", one)) or None,
        "task_categories": ["text-generation"],
        "tags": tags,
        "configs": [{"config_name": "default", "data_files": files}],
        "dataset_info": _dataset_info(features),
    }
    return _write_card(
        out / "README.md",
        "dataset",
        meta,
        report=report,
        repo=bundle.repo,
        sizes=[(split, count[split], clusters[split]) for split in SPLITS],
        total=len(rows),
        counts={key: _counted(rows, key) for key in given},
        quantiles=list(_quantiles(tokens)),
        estimated=any(one.get("estimated") for one in tokens),
    )


def _read(bundle: Bundle) -> Iterator[_Row]:
    """The rows of both splits, each with an id of its own and messages."""
    splits: dict[str, str] = {}  # by id
    for split in SPLITS:
        path = bundle.files[f"{split}.jsonl"]
        for number, data in stream.records(path):
            place = f"{path}:{number}: {data['id']}"
            if data["id"] in splits:
                other = splits[data["id"]]
                raise cli.BadData(f"{place}: this id came before, in {other}.jsonl")
            messages = data.get("messages") or [None]
            for one in messages if isinstance(messages, list) else [None]:
                said = [one.get("role"), one.get("content")] if isinstance(one, dict) else [None]
                if not all(isinstance(each, str) for each in said):
                    wanted = "no messages with role and content; draft-pack makes these rows"
                    raise cli.BadData(f"{place}: {wanted}")
            splits[data["id"]] = split
            yield _Row(split, place, data)


def _clusters(rows: Sequence[_Row]) -> Counter[str]:
    """How many clusters of near-duplicates each split has; none is in two."""
    splits: dict[str, str] = {}
    for row in rows:
        cluster = (row.data.get("overlap") or {"cluster": row.data["id"]})["cluster"]
        other = splits.setdefault(cluster, row.split)
        if other != row.split:
            raise cli.BadData(
                f"{row.place}: a near-duplicate, of cluster {cluster}, is in {other}.jsonl; "
                "chat-split keeps them together"
            )
    return Counter(splits.values())


def _features(rows: Sequence[_Row]) -> "Features":
    """The types of the rows, as load_dataset finds them. Raises cli.BadData naming a row of another
    type."""
    import pyarrow
    from datasets import Features

    data = [row.data for row in rows]

    def fault(count: int) -> str | None:
        """Why so many rows have no one type."""
        try:
            pyarrow.array(data[:count])
        except pyarrow.ArrowInvalid as error:
            return str(error)
        return None

    if said := fault(len(data)):
        counts = range(len(data) + 1)
        first = bisect.bisect_left(counts, True, key=lambda count: fault(count) is not None)
        words = f"{rows[first - 1].place}: {said}; load_dataset refuses a field of two types"
        raise cli.BadData(words)
    return Features.from_arrow_schema(pyarrow.schema(list(pyarrow.array(data).type)))


def _dataset_info(features: "Features") -> object:
    """The types as the card's metadata has them, so that a reader needs no inference."""
    from datasets import DatasetInfo
    from datasets.info import DatasetInfosDict
    from huggingface_hub import DatasetCardData

    card = DatasetCardData()
    DatasetInfosDict(default=DatasetInfo(features=features)).to_dataset_card_data(card)
    return card["dataset_info"]


def _counted(rows: Sequence[_Row], key: str) -> list[tuple[str, int, int]]:
    """[(value, rows of train, of test)], the most frequent first."""
    counts = Counter((str(row.seed(key) or "not given"), row.split) for row in rows)
    values = {value for value, _ in counts}
    table = [(value, counts[value, "train"], counts[value, "test"]) for value in values]
    return sorted(table, key=lambda line: (-line[1] - line[2], line[0]))


def _quantiles(tokens: Sequence[Mapping[str, int]]) -> Iterator[tuple[str, ...]]:
    """(part, least, median, nine tenths, most) of the rows' tokens."""
    for part in PARTS:
        if many := sorted(one[part] for one in tokens if part in one):
            values = [many[round(q * (len(many) - 1))] for q in (0, 0.5, 0.9, 1)]
            yield part, *(f"{value:,}" for value in values)


def describe_adapter(bundle: Bundle, out: Path) -> dict[str, Path]:
    """Write the card of an adapter: what it changes of which model, how it was trained, what a
    comparison may claim. Returns it as a file. Raises cli.BadData."""
    config = stream.json_file(bundle.files["adapter_config.json"])
    report = _report(bundle, out.parent)
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
    return _write_card(
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


def _comparison(bundle: Bundle) -> Record | None:
    """What `run-compare --json` printed, or None with a note."""
    if "comparison.json" not in bundle.files:
        bundle.notes.append("no comparison.json (run-compare --json): the card makes no claim")
        return None
    compared = stream.json_file(bundle.files["comparison.json"])
    if not all(isinstance(compared.get(key), list) for key in ("caveats", "headlines", "runs")):
        raise cli.BadData(
            f"{bundle.files['comparison.json']}: not what `run-compare --json` prints (caveats, headlines, runs)"
        )
    return compared
