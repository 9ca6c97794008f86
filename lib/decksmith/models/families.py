"""What belongs to a model: parsers, context, sampling, switches of its chat template. From assets/recipes/families.toml and
from the model's own configuration."""

from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from decksmith.core import cli, config_files, stream

TABLE = "recipes/families.toml"
MATCHED = ("names", "types", "with")  # keys that choose a family
# Tokens of context that are served of a model without an entry: decks and benchmarks want no more, and more costs memory.
CONTEXT = 65536
# A bare dot would mean any character, and the shared experts too.
ROUTED = "*[.]experts*"
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")  # keys of those that have them

Config = dict[str, Any]  # a config.json of Hugging Face


@dataclass(frozen=True)
class Family:
    """An entry of the table, whose head explains the fields; `name` is empty for a model of no family."""

    name: str = ""
    reasoning_parser: str | None = None
    tool_parser: str | None = None
    remote_code: bool = False
    context: int = CONTEXT
    sampling: dict[str, float] = field(default_factory=dict)
    thinking: dict[str, Any] = field(default_factory=dict)
    flags: list[str] = field(default_factory=list)
    exclude: list[str] = field(default_factory=lambda: ["*lm_head*"])
    recipe: str = "lora"
    dimensions: Config = field(default_factory=dict)
    dimensions_source: str | None = None
    pace: dict[str, Any] = field(default_factory=dict)
    source: str = "the model's own configuration"
    unverified: list[str] = field(default_factory=list)

    def length(self, config: Config | None) -> int | None:
        """The tokens of context to serve: the family's, or the model's own limit where that is less; None where there
        is neither an entry nor a configuration."""
        own = limit(config)
        if own is None:
            return self.context if self.name else None
        return min(own, self.context)


def of(name: str, config: Config | None = None) -> Family:
    """The family of a model, by its name, else by its config.json."""
    table = config_files.asset(TABLE)
    for ident, entry in table.items():
        if any(fnmatchcase(name, pattern) for pattern in entry["names"]):
            return _family(ident, entry)
    for ident, entry in table.items():
        has_type = config is not None and config.get("model_type") in entry.get("types", ())
        if config is not None and has_type and entry.get("with", "model_type") in config:
            return _family(ident, entry)
    text = (config or {}).get("text_config") or config or {}
    has_experts = any(key in text for key in EXPERTS)
    return Family(exclude=["*lm_head*", ROUTED] if has_experts else ["*lm_head*"])


def limit(config: Config | None) -> int | None:
    """The most tokens that a model was made for (max_position_embeddings), where its configuration says it."""
    config = config or {}
    found = (config.get("text_config") or config).get("max_position_embeddings")
    return found if isinstance(found, int) else None


def local(name: str) -> Path | None:
    """The folder of a model on this machine: itself, or its place in the Hub's cache; None where it is not here."""
    if Path(name).is_dir():
        return Path(name)
    if name == "smol":
        return local(str(cli.ROOT / "data/models/smol"))
    try:
        from huggingface_hub import try_to_load_from_cache
        from huggingface_hub.errors import HFValidationError
    except ImportError:
        return None
    try:
        found = try_to_load_from_cache(name, "config.json")
    except HFValidationError:
        return None
    return Path(found).parent if isinstance(found, str) else None


def configuration(name: str) -> Config | None:
    """The config.json of a model that is on this machine, else None. Raises cli.BadConfig where it is no JSON object."""
    folder = local(name)
    path = folder / "config.json" if folder else None
    if path is None or not path.is_file():
        return None
    return stream.json_file(path, cli.BadConfig)


def _family(ident: str, entry: dict[str, Any]) -> Family:
    return Family(name=ident, **{key: entry[key] for key in entry if key not in MATCHED})
