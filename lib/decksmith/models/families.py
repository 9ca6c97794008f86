"""What belongs to a model: parsers, context, sampling, switches of its chat template. From assets/recipes/families.toml and
from the model's own configuration and chat template."""

import json
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from decksmith.core import cli, config_files, stream

TABLE = "recipes/families.toml"
MATCHED = ("names", "types", "with")  # keys that choose a family
MERGED = "merged.json"  # in the folder of a merged model: what it is of, {"base": name or folder}
# vLLM's parser of tool calls, by what a chat template shows of them; of two the first.
TOOLS = {"<function=": "qwen3_coder", "<tool_call>": "hermes", "[TOOL_CALLS]": "mistral"}
TOOLS["<|python_tag|>"] = "llama3_json"
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
    thoughts: str = "</think>"
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
    """The family of a model, by its name (of a merged one by that of its base), else by its config.json. A chat template
    that is on this machine has the last word on parsers: vLLM's of reasoning takes a reply without its tags for a thought."""
    found, template = _listed(_origin(name), config), chat_template(name)
    if template is None:
        return found
    if found.reasoning_parser and found.thoughts not in template:
        found = replace(found, reasoning_parser=None, thinking={})
    if not found.tool_parser and "tools" in template:
        parsers = (TOOLS[mark] for mark in TOOLS if mark in template)
        found = replace(found, tool_parser=next(parsers, None))
    return found


def _origin(name: str) -> str:
    """What a merged model is of, as far back as folders say it; any other is itself."""
    seen = set()
    while name not in seen and (mark := Path(name) / MERGED).is_file():
        seen.add(name)
        name = str(stream.json_file(mark, cli.BadConfig).get("base") or name)
    return name


def chat_template(name: str) -> str | None:
    """The chat template of a model that is on this machine, else None."""
    folder = local(name)
    if folder is None:
        return None
    if (path := folder / "chat_template.jinja").is_file():
        return path.read_text()
    path = folder / "tokenizer_config.json"
    said = stream.json_file(path, cli.BadConfig) if path.is_file() else {}
    found = said.get("chat_template")
    return found if isinstance(found, str) or found is None else json.dumps(found)


def _listed(name: str, config: Config | None) -> Family:
    table = config_files.asset(TABLE)
    for ident, entry in table.items():
        if any(fnmatchcase(name, pattern) for pattern in entry["names"]):
            return _family(ident, entry)
    for ident, entry in table.items():
        if (
            config is not None
            and config.get("model_type") in entry.get("types", ())
            and all(
                bool(config.get(key)) is value
                if isinstance(value, bool)
                else config.get(key) == value
                for key, value in entry.get("with", {}).items()
            )
        ):
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
