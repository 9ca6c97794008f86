"""The registry of models, assets/models.toml, and endpoints that a command line names instead."""

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field

from decksmith.core import cli
from decksmith.core.records import Record

REGISTRY = cli.ROOT / "assets" / "models.toml"
FILES = "files:"  # of a base_url: what follows is a folder of finished decks (models/files.py)
FIELDS = {
    "label",
    "color",
    "base_url",
    "slug",
    "key_env",
    "params",
    "rename",
    "drop",
    "extra_body",
    "price",
    "reports_cost",
    "jobs",
    "timeout",
    "shorten",
    "reward",
}
# What a protocol or a client decides for every model alike. An entry that set one of these would ask its model something else, unseen.
OWNED = {
    "messages",
    "prompt",
    "input",
    "model",
    "models",
    "n",
    "best_of",
    "seed",
    "stream",
    "stream_options",
    "response_format",
}


@dataclass
class Model:
    """One entry of assets/models.toml, or an endpoint named by --base-url and --slug."""

    name: str
    # An address, several with blanks between them, "engine:" (the embedded model), "serve:" (whatever model-serve runs) or
    # "files:FOLDER/" (decks that are there already).
    base_url: str
    slug: str
    label: str = ""
    color: str = "#555555"
    key_env: str | None = None
    params: Record = field(default_factory=dict)
    rename: dict[str, str] = field(default_factory=dict)
    drop: list[str] = field(default_factory=list)
    extra_body: Record = field(default_factory=dict)
    price: dict[str, float] | None = None  # USD per million tokens: {prompt, completion}
    reports_cost: bool = False  # the endpoint says what a call cost (usage.cost)
    jobs: int = 8
    timeout: float = 1200.0  # seconds for one request
    shorten: bool = False  # a request that does not fit the context is asked with fewer max_tokens
    reward: str | None = None  # of assets/rewards, that it was trained on: comparisons say so


def models() -> dict[str, Model]:
    """The registry, by name. Raises cli.BadConfig naming file and key."""
    try:
        entries = tomllib.loads(REGISTRY.read_text())
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise cli.BadConfig(f"{REGISTRY}: {error}") from None
    for name, entry in entries.items():
        if unknown := set(entry) - FIELDS:
            raise cli.BadConfig(f"{REGISTRY}: [{name}] has an unknown key {sorted(unknown)[0]!r}")
        if missing := {"base_url", "slug"} - set(entry):
            raise cli.BadConfig(f"{REGISTRY}: [{name}] lacks {sorted(missing)[0]!r}")
        if owned := _owned(entry):
            raise cli.BadConfig(
                f"{REGISTRY}: [{name}] {owned}: not a model's to set; the protocol decides it for every model alike"
            )
    return {name: Model(name=name, **entry) for name, entry in entries.items()}


def _owned(entry: Record) -> str | None:
    """The first place where a registry entry sets, renames or drops a key of OWNED, as text, or None. What an endpoint cannot take of a
    stream, a seed or a schema may be dropped."""
    rename = entry.get("rename") or {}
    for where, keys in (
        ("params", entry.get("params") or {}),
        ("extra_body", entry.get("extra_body") or {}),
        ("rename", [*rename, *rename.values()]),
        (
            "drop",
            set(entry.get("drop") or []) - {"stream", "stream_options", "seed", "response_format"},
        ),
    ):
        if taken := sorted(OWNED & set(keys)):
            return f"{where}.{taken[0]}"
    return None


def model(
    name: str | None = None,
    base_url: str | Iterable[str] | None = None,
    slug: str | None = None,
    key_env: str | None = None,
) -> Model:
    """Find a model by registry name, or make one from an endpoint; an entry's endpoint can be overridden. `base_url`: one or several."""
    base_url = base_url if base_url is None or isinstance(base_url, str) else " ".join(base_url)
    if name is None:
        if not (base_url and slug):
            raise cli.BadConfig(
                "name a model with --model, or an endpoint with --base-url and --slug"
            )
        return Model(name=slug.replace("/", "-"), base_url=base_url, slug=slug, key_env=key_env)
    known = models()
    if name not in known:
        raise cli.BadConfig(f"no model {name!r} in {REGISTRY}; it has: {', '.join(known)}")
    found = known[name]
    found.base_url, found.slug = base_url or found.base_url, slug or found.slug
    found.key_env = key_env or found.key_env
    return found
