"""Other ways of saying a model: `openai/NAME`, `ollama/NAME`, `hf/OWNER/NAME`, or an address, `http://HOST:8000/v1#NAME`.

Each means an entry of the registry, or one that is shown, and written into data/models when somebody agrees (make/given.py). The
standard library only: what was typed is read before any set-up.
"""

import hashlib
import os
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

sys.path[:0] = [
    str(Path(__file__).resolve().parent),
    str(Path(__file__).resolve().parents[1] / "lib"),
]
import local_servers  # noqa: E402
from decksmith.core import config_files  # noqa: E402

Entry = Mapping[str, object]  # with the keys of assets/models.toml
# Whose models are said as WHOSE/NAME; the entry of that name says where and how they are asked.
HOSTED = ("openai", "anthropic", "gemini", "azure", "openrouter", "hf")
WAYS = ", ".join(
    (*(f"{whose}/NAME" for whose in HOSTED), "ollama/NAME", "http://HOST:8000/v1#NAME")
)
# What an entry takes over from another of the same place.
KEPT = "base_url key_env extra_body reports_cost params rename drop jobs timeout".split()
KEY = re.compile(r"[A-Z][A-Z0-9_]*_KEY|HF_TOKEN")  # what a variable with a key in it is called
FORM = "write http://HOST:8000/v1#NAME, or http://MY_API_KEY@HOST/v1#NAME with the key's variable"
# What a key itself looks like.
SECRET = re.compile(r"\b(sk|pk|hf|gsk|xai|AIza)[-_]?(?=[\w-]*\d)[\w-]{24,}")
FREE = {"prompt": 0, "completion": 0}


class NoModel(ValueError):
    """A word that says no model that can be asked; the text is the sentence."""


class Meant(NamedTuple):
    """What a word says: whose model, by which name there (None: the one that its server has), and how it is asked."""

    whose: str
    slug: str | None
    place: Entry


def find(word: str, known: Mapping[str, Entry]) -> tuple[str, Entry | None]:
    """`(name, None)` of the entry that a word with a slash means, or `(name, entry)` of one that is to be written: a name of letters,
    digits, dots and hyphens. A server is asked where only it can say which model it has. Raises NoModel."""
    if SECRET.search(word):
        raise NoModel(f"what looks like a key stands in it: keys stand in .env; type one of {WAYS}")
    meant = _address(word, known) if "://" in word else _prefixed(word, known)
    name = _entered(meant, known)
    if not name and (meant.slug is None or meant.whose == "ollama"):
        meant = meant._replace(slug=_served(meant))
        name = _entered(meant, known)
    if name:
        return name, None
    slug = str(meant.slug)
    name = re.sub(r"(?:[^A-Za-z0-9._]|\.\.)+", "-", f"{meant.whose}-{slug}").strip("-.")[:80]
    if name in known or name == meant.whose:
        name += "-" + hashlib.sha256(f"{meant.place['base_url']} {slug}".encode()).hexdigest()[:6]
    kept = {key: meant.place[key] for key in KEPT if meant.place.get(key)}
    price = {"price": FREE} if meant.whose == "ollama" else {}
    return name, {"label": f"{slug} ({meant.whose})", **kept, "slug": slug, **price}


def _entered(meant: Meant, known: Mapping[str, Entry]) -> str | None:
    """The name of the entry that asks there for that model; without a name of it, of the only one."""
    place = [meant.place.get(key) for key in ("base_url", "key_env")]
    same = [
        name for name in known if [known[name].get(key) for key in ("base_url", "key_env")] == place
    ]
    if meant.slug is None:
        return same[0] if len(same) == 1 else None
    return next((name for name in same if known[name].get("slug") == meant.slug), None)


def _prefixed(word: str, known: Mapping[str, Entry]) -> Meant:
    whose, _, slug = word.partition("/")
    if whose not in ("ollama", *HOSTED):
        raise NoModel(f"{word[:80]!r} says no model; type one of {WAYS}")
    if whose == "hf" and (slug.count("/") != 1 or "gguf" in slug.lower()):
        said = "hf/OWNER/NAME is asked at Hugging Face's router, which serves no GGUF file; run that with"
        raise NoModel(
            f"{word[:80]!r}: {said} llama-server -hf OWNER/NAME, then type MODEL=http://127.0.0.1:8080"
        )
    ollama = {"base_url": f"{local_servers.ollama_address()}/v1", "jobs": 1, "timeout": 7200}
    return Meant(whose, _slug(word, slug), ollama if whose == "ollama" else known[whose])


def _slug(word: str, slug: str) -> str:
    if not slug.strip() or len(slug) > 200 or not slug.isprintable():
        raise NoModel(
            f"{word[:80]!r} lacks the model's name behind the slash or #, at most 200 characters"
        )
    return slug


def _address(word: str, known: Mapping[str, Entry]) -> Meant:
    try:
        url = urlsplit(word)
        host, port, key = url.hostname or "", url.port, url.username
    except ValueError as error:
        raise NoModel(f"{word[:80]!r} is no address ({error}); {FORM}") from None
    if key is not None and (url.password is not None or not KEY.fullmatch(key)):
        raise NoModel(f"an address with a key or password in it: that stands in .env; {FORM}")
    path = url.path.rstrip("/").removesuffix("/chat/completions") or "/v1"
    at = (f"[{host}]" if ":" in host else host) + (f":{port}" if port else "")
    fits = re.fullmatch(
        r"https?://[A-Za-z0-9.:\[\]-]+(/[A-Za-z0-9._~-]+)+", address := f"{url.scheme}://{at}{path}"
    )
    if not host or url.query or not fits:
        raise NoModel(f"{word[:80]!r} is no address of a server; {FORM}")
    same = (entry for entry in known.values() if entry.get("base_url") == address)
    place = next(
        (entry for entry in same if key in (None, entry.get("key_env"))),
        {"base_url": address, "key_env": key},
    )
    slug = _slug(word, unquote(url.fragment)) if url.fragment else None
    return Meant(re.sub("[^a-z0-9.]+", "-", at.lower()).strip("-"), slug, place)


def _served(meant: Meant) -> str:
    """The model that a server has: the one that was named, or its only one."""
    url, slug = str(meant.place["base_url"]), meant.slug
    there = local_servers.listed(url)
    few = ", ".join((there or ["no model"])[:12]) + (" .." if there and there[12:] else "")
    if slug and there is None:
        raise NoModel(f"no Ollama answers at {url}; start it (ollama serve), or set OLLAMA_HOST")
    if slug and not {slug, f"{slug}:latest"} & {*(there or [])}:
        raise NoModel(
            f"the Ollama at {url} has {few}, and not {slug!r}; fetch it: ollama pull NAME"
        )
    if there is None:
        raise NoModel(f"{url} does not list its models; start the server, or name one: {url}#NAME")
    if not slug and len(there) != 1:
        raise NoModel(f"{url} has {few}; name one: {url}#NAME")
    return slug or _slug(url, there[0])


def enter(
    word: str, known: Mapping[str, Entry], folder: Path, is_set: Callable[[str], bool]
) -> None:
    """Write the entry that a word with a slash means into the folder, where there is none and YES=1 or a person at a terminal agrees.
    `is_set`: whether a variable has a key. Raises NoModel, OSError."""
    if word in known:
        raise NoModel(f"{word} has a slash in its name, which becomes a folder; rename the entry")
    name, entry = find(word, known)
    if entry is None:
        return
    path, lines = folder / f"{name}.toml", _shown(entry, is_set)
    if not _agreed("\n  ".join([f"{word} is no entry yet. {path} would say:", *lines])):
        how = f"Type the same command with YES=1: that writes {path}, and it is asked as {name}"
        raise NoModel(f"{word} is no entry yet. {how}. It would say: {'; '.join(lines)}")
    write(name, entry, folder)
    print(f"{word} is entered into {path} and is asked as {name} from now on")


def _shown(entry: Entry, is_set: Callable[[str], bool]) -> list[str]:
    """What a person is asked about: where it is asked, by which name, with whose key, at what price, how many at once."""
    key = entry.get("key_env")
    price = "unknown; BUDGET needs it in the file" if key else "none, since it needs no key"
    if entry.get("price"):
        price = "free"
    elif entry.get("reports_cost"):
        price = "said by the endpoint"
    held = f"in {key}, which is {'set' if is_set(str(key)) else 'not set'}" if key else "none"
    place = [f"address {entry['base_url']}", f"model {entry['slug']}"]
    return [*place, f"key {held}", f"price {price}", f"requests in flight {entry.get('jobs', 8)}"]


def _agreed(said: str) -> bool:
    """Whether YES=1 is given, or a person at a terminal says yes."""
    words = "1 y yes true t on".split()  # as click has it
    yes = os.environ.get("YES", "").lower() in words
    if yes or not sys.stdin.isatty():
        return yes
    try:
        with open("/dev/tty", "r+b", buffering=0) as terminal:
            terminal.write(f"{said}\nWrite it? [y/N] ".encode(errors="replace"))
            return terminal.readline(100).strip().lower() in (b"y", b"yes")
    except (OSError, KeyboardInterrupt):
        return False


def write(name: str, entry: Entry, folder: Path) -> Path:
    """Write an entry into folder/NAME.toml, whole or not at all. Raises OSError."""
    path, new = folder / f"{name}.toml", folder / f".{name}.{os.getpid()}.tmp"
    lines = [
        f"[{config_files.toml(name)}]",
        *(f"{k} = {config_files.toml(v)}" for k, v in entry.items()),
    ]
    folder.mkdir(parents=True, exist_ok=True)
    new.write_text("\n".join(lines) + "\n", encoding="utf-8")
    os.replace(new, path)
    return path
