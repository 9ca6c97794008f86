"""Whether what a run is to be made of exists, and what its models need here; before any set-up.

    python3 -m decksmith.core.run_check smol gpt-5.4      exit 78 and a sentence where one is not there
    python3 -m decksmith.core.run_check --needs smol      the make targets of its engine

The standard library only, since a fresh machine has nothing else.
"""

import argparse
import difflib
import os
import re
import sys
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path

ENGINE = (".venv/.local", "assets/engine/node_modules/.done")
CUDA = "assets/engine/node_modules/.cuda"
Entries = dict[str, dict[str, object]]


def main() -> int:
    parser = argparse.ArgumentParser(prog="make", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("models", nargs="*")
    parser.add_argument("--needs", action="store_true")
    chosen = parser.parse_args()
    if chosen.needs:
        print(*_needs(chosen.models))
        return 0
    asked = [unknown("MODEL", name) or _lacks_key(name) for name in chosen.models]
    for sentence in filter(None, asked):
        print(sentence, file=sys.stderr)
        return 78
    return 0


def _entries(paths: Iterable[Path]) -> Entries:
    found: Entries = {}
    for path in paths:
        try:
            found |= tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, tomllib.TOMLDecodeError) as error:
            sys.exit(f"{path}: {error}")
    return found


def _registry() -> Entries:
    own = Path(os.environ.get("DECKSMITH_MODELS") or "data/models")
    return _entries([Path("assets/models.toml"), *sorted(own.glob("*.toml"))])


def _weights() -> Entries:
    return _entries([Path("assets/gguf.toml")])


def _models() -> list[str]:
    return [*_registry(), *_weights()]


def _templates() -> list[Path]:
    return sorted(Path(os.environ.get("DECKSMITH_TEMPLATES") or "data/templates").glob("*.md"))


def _conditions() -> list[str]:
    return ["plain", *_stems("assets/conditions"), *(path.stem for path in _templates())]


def _benchmarks() -> list[str]:
    own = os.environ.get("DECKSMITH_BENCHMARKS") or "data/benchmarks"
    return [*_stems("assets/benchmarks"), *_stems("assets/groups"), *_stems(own)]


def _trainers() -> list[str]:
    text = Path("make/train.mk").read_text(encoding="utf-8")
    return sorted(re.findall(r"(?m)^TRAIN_(\S+) =", text))


def _stems(folder: str, suffix: str = "toml") -> list[str]:
    return sorted(path.stem for path in Path(folder).glob(f"*.{suffix}"))


MODEL = ("model", " in assets/models.toml or assets/gguf.toml", _models)
# By variable of make: what it names, where such names stand, and those that are there.
NAMES: dict[str, tuple[str, str, Callable[[], list[str]]]] = {
    "MODEL": MODEL,
    "JUDGE": MODEL,
    "CLAIMS": MODEL,
    "SEED_MODEL": MODEL,
    "PROTOCOL": ("protocol", " in assets/protocols", lambda: _stems("assets/protocols")),
    "CONDITION": ("condition", " in assets/conditions", _conditions),
    "BENCH": ("benchmark", " in assets/benchmarks or assets/groups", _benchmarks),
    "RECIPE": ("recipe", " in assets/recipes", lambda: _stems("assets/recipes", "yaml")),
    "TEMPLATE": ("template", "", lambda: [str(path) for path in _templates()]),
    "TRAINER": ("trainer", "", _trainers),
    "ENGINE": ("engine", "", lambda: ["vllm", "local"]),
    "IMAGES": ("choice", "", lambda: ["on", "off", "auto"]),
}


def unknown(variable: str, word: str) -> str | None:
    """The sentence for a word of one of NAMES that names nothing there; else None."""
    kind, where, there = NAMES[variable]
    names = there()
    for name in word.split("+") if kind == "condition" else [word]:
        bare = name.partition(":")[0] if kind == "benchmark" else name
        is_file = kind in ("recipe", "template") and Path(name).is_file()
        if bare in names or is_file or (kind == "benchmark" and bare.startswith("gym-")):
            continue
        close = difflib.get_close_matches(bare, names, 1)
        meant = f"Did you mean {close[0]}? " if close else ""
        choose = f"Type {variable}=NAME with one of: {' '.join(names)}"
        return f"There is no {kind} {name}{where}. {meant}{choose}"
    return None


def _lacks_key(name: str) -> str | None:
    """The sentence for a model whose key is nowhere, before a first set-up, which takes minutes;
    later the runs that have all their replies need no key."""
    key = _registry().get(name, {}).get("key_env")
    if not isinstance(key, str) or os.environ.get(key) or Path(".venv/.python").exists():
        return None
    try:
        if re.search(rf"(?m)^{key}=", Path(".env").read_text(encoding="utf-8")):
            return None
    except FileNotFoundError:
        pass
    except OSError as error:
        return f".env cannot be read ({error.strerror}): make it a file of yours: chown, chmod 600"
    return f"{name} needs a key: set {key} in the environment or in .env"


def _needs(models: list[str]) -> list[str]:
    """What the embedded engine needs where it runs one of the models: on a GPU, where one is, for
    weights of assets/gguf.toml."""
    registry, weights = _registry(), _weights()
    embedded = [name for name in models if registry.get(name, {}).get("base_url") == "engine:"]
    fetched = [name for name in models if name in weights]
    if not embedded and not fetched:
        return []
    on_gpu = bool(fetched) and Path("/dev/nvidiactl").exists()
    return [*ENGINE, CUDA] if on_gpu else [*ENGINE]


if __name__ == "__main__":
    sys.exit(main())
