"""The registry of models, and endpoints that a command line names instead.

Its entries stand in assets/models.toml, in assets/gguf.toml (models/gguf.py), and, of this checkout alone, in
data/models/NAME.toml.
"""

import hashlib
import os
import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from pathlib import Path

from decksmith.core import cli
from decksmith.core.records import Record
from decksmith.models import gguf

REGISTRY = cli.ROOT / "assets" / "models.toml"
FREE = {"prompt": 0.0, "completion": 0.0}
PATIENT = 7200.0  # seconds for a reply of a model on a laptop
FILES = "files:"  # of a base_url: what follows is a folder of finished decks (asking.DeckFolder)
VARIABLE = re.compile(r"\$\{([A-Z][A-Z0-9_]*)\}")  # in a base_url: a part that the environment says
COMMAND = "command:"  # what follows is a command line that leaves a deck (corpus/agents.py)
# What a protocol or a client decides for every model alike. An entry that set one of these would ask its model something else, unseen.
OWNED = frozenset(
    "messages prompt input model models n best_of seed stream stream_options stop_early response_format".split()
)
# What of it an endpoint that does not take it may drop.
DROPPED = {"stream", "stream_options", "seed", "response_format"}


@dataclass
class Model:
    """One entry of assets/models.toml, or an endpoint named by --base-url and --slug."""

    name: str
    # An address, several with blanks between them, "engine:" (the embedded model), "serve:" (whatever model-serve runs) or
    # "files:FOLDER/" (decks that are there already) or "command:LINE" (an agent that leaves a deck).
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
    sees: bool = False  # it takes pictures: deck-revise sends it the slides with findings
    reward: str | None = None  # of assets/rewards, that it was trained on: comparisons say so
    family: str = ""  # whose relative a judge is; without it, by the name (family_of)
    taught_by: list[str] = field(default_factory=list)  # families that wrote what it was trained on
    # Of a command: whether it has the network, the variables of our environment that it gets, the paths that it may read.
    net: bool = False
    pass_env: list[str] = field(default_factory=list)
    show: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.base_url = VARIABLE.sub(_of_environment, self.base_url)


FIELDS = {each.name for each in fields(Model)} - {"name"}


def _of_environment(found: re.Match[str]) -> str:
    """What a variable of an address stands for: a part of a host's name, or itself where it is none."""
    said = os.environ.get(found[1], "")
    return said if re.fullmatch("[A-Za-z0-9.-]+", said) else found[0]


def models() -> dict[str, Model]:
    """The registry, by name. Raises cli.BadConfig naming file and key."""
    found = _read(REGISTRY) | {name: _engine(entry) for name, entry in gguf.table().items()}
    for path in sorted(gguf.folder().glob("*.toml")):
        found |= _read(path)
    return found


def _read(path: Path) -> dict[str, Model]:
    """The entries of one file of the registry."""
    try:
        entries = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:  # no TOML, or no UTF-8
        raise cli.BadConfig(f"{path}: {error}") from None
    for name, entry in entries.items():
        if not isinstance(entry, dict) or not re.fullmatch(r"\w[\w.-]*", name, re.ASCII):
            said = "is no entry's name; write [NAME] of letters, digits, dots and hyphens"
            raise cli.BadConfig(f"{path}: {name!r} {said}: it becomes a folder")
        if unknown := sorted(set(entry) - FIELDS):
            known = cli.instead(unknown[0], sorted(FIELDS))
            raise cli.BadConfig(f"{path}: [{name}] has an unknown key {unknown[0]!r}{known}")
        for key in ("base_url", "slug"):
            if not isinstance(entry.get(key), str) or not entry[key].strip():
                raise cli.BadConfig(f"{path}: [{name}] lacks {key!r}, a text that is not empty")
        if owned := _owned(entry):
            said = "not a model's to set; the protocol decides it for every model alike"
            raise cli.BadConfig(f"{path}: [{name}] {owned}: {said}")
    return {name: Model(name=name, **entry) for name, entry in entries.items()}


def _engine(weights: gguf.Weights) -> Model:
    """The entry of a model that the embedded engine runs, whether it is fetched or not."""
    return Model(
        name=weights.name,
        base_url="engine:",
        slug=weights.name,
        label=weights.label,
        color=weights.color,
        params={"max_tokens": gguf.THOUGHTFUL} if weights.thinks else {},
        price=dict(FREE),
        jobs=1,
        timeout=PATIENT,
    )


def weights(entry: Model) -> str | None:
    """The sha256 of the GGUF file, or of the adapter, that answers for an entry; None for an entry that has none or is not fetched."""
    if entry.base_url != "engine:":
        return None
    if path := gguf.ADAPTERS.get(entry.slug):
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    found = gguf.lock(entry.slug) if entry.slug in gguf.table() else None
    return str(found["sha256"]) if found else None


def family_of(slug: str) -> str:
    """The family of a model by its name, as far as one shows: the letters that `owner/name-1.2-size` begins with."""
    found = re.match(r"[a-z]+", slug.rpartition("/")[2].lower())
    return found[0] if found else ""


def _owned(entry: Record) -> str | None:
    """The first place where a registry entry sets, renames or drops a key of OWNED, as text, or None."""
    rename = entry.get("rename") or {}
    places = {
        "params": set(entry.get("params") or {}),
        "extra_body": set(entry.get("extra_body") or {}),
        "rename": {*rename, *rename.values()},
        "drop": set(entry.get("drop") or []) - DROPPED,
    }
    for where, keys in places.items():
        if taken := sorted(OWNED & keys):
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
    if base_url and not re.match(r"https?://|(engine|serve|files|command):", base_url):
        raise cli.BadConfig(f"{base_url} is no address; write --base-url http://HOST:PORT/v1")
    if name is None:
        if not (base_url and slug):
            raise cli.BadConfig(
                "name a model with --model, or an endpoint with --base-url and --slug"
            )
        return Model(name=slug.replace("/", "-"), base_url=base_url, slug=slug, key_env=key_env)
    known = models()
    if name not in known:
        enter = f"; make model MODEL={name!r} writes the entry of one that is said so"
        more = enter if "/" in name else cli.instead(name, known)
        raise cli.BadConfig(f"no model {name!r} in {REGISTRY} or {gguf.folder()}{more}")
    found = known[name]
    found.base_url, found.slug = base_url or found.base_url, slug or found.slug
    found.key_env = key_env or found.key_env
    return found
