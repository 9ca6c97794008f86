"""Whether what a run is to be made of exists, and what its models need here; before any set-up.

    python3 -m decksmith.core.run_check --protocol offline --condition plain smol gpt-5.4
    python3 -m decksmith.core.run_check --needs smol        the make targets of its engine

Exit 78 with a sentence that names what there is instead. The standard library only, since a fresh
machine has nothing else.
"""

import argparse
import difflib
import os
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

ENGINE = (".venv/.local", "assets/engine/node_modules/.done")
CUDA = "assets/engine/node_modules/.cuda"


class _Lacking(Exception):
    """What is not there, in a sentence."""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("models", nargs="*")
    parser.add_argument("--protocol", default="offline")
    parser.add_argument("--condition", action="append", default=["plain"])
    parser.add_argument("--needs", action="store_true")
    chosen = parser.parse_args()
    own = Path(os.environ.get("DECKSMITH_MODELS") or "data/models")
    registry = _entries([Path("assets/models.toml"), *sorted(own.glob("*.toml"))])
    weights = _entries([Path("assets/gguf.toml")])
    if chosen.needs:
        print(*_needs(chosen.models, registry, weights))
        return 0
    templates = os.environ.get("DECKSMITH_TEMPLATES") or "data/templates"
    conditions = ["plain", *_stems("assets/conditions", "toml"), *_stems(templates, "md")]
    protocols = _stems("assets/protocols", "toml")
    try:
        for name in chosen.models:
            where = "in assets/models.toml or assets/gguf.toml"
            _known("model", name, [*registry, *weights], where)
            _key(name, registry.get(name, {}))
        for name in "+".join(chosen.condition).split("+"):
            _known("condition", name, conditions, "in assets/conditions")
        _known("protocol", chosen.protocol, protocols, "in assets/protocols")
    except _Lacking as lacking:
        print(lacking, file=sys.stderr)
        return 78
    return 0


def _entries(paths: Iterable[Path]) -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]] = {}
    for path in paths:
        try:
            found |= tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, tomllib.TOMLDecodeError) as error:
            sys.exit(f"{path}: {error}")
    return found


def _stems(folder: str, suffix: str) -> list[str]:
    return sorted(path.stem for path in Path(folder).glob(f"*.{suffix}"))


def _known(kind: str, name: str, names: list[str], where: str) -> None:
    """Raises _Lacking unless `name` is one of `names`."""
    if name in names:
        return
    close = difflib.get_close_matches(name, names, 1)
    meant = f"Did you mean {close[0]}? " if close else ""
    raise _Lacking(
        f"There is no {kind} {name} {where}. {meant}"
        f"Type {kind.upper()}=NAME with one of: {' '.join(names)}"
    )


def _key(name: str, entry: dict[str, object]) -> None:
    """Raises _Lacking where the key of a model is nowhere, before a first set-up, which takes
    minutes; later the runs that have all their replies need no key."""
    key = entry.get("key_env")
    if not isinstance(key, str) or os.environ.get(key) or Path(".venv/.python").exists():
        return
    env = Path(".env")
    lines = env.read_text(encoding="utf-8").splitlines() if env.exists() else []
    if not any(line.startswith(f"{key}=") for line in lines):
        raise _Lacking(f"{name} needs a key: set {key} in the environment or in .env")


def _needs(
    models: list[str], registry: dict[str, dict[str, object]], weights: dict[str, dict[str, object]]
) -> list[str]:
    """What the embedded engine needs where it runs one of the models: on a GPU, where one is, for
    weights of assets/gguf.toml."""
    embedded = [name for name in models if registry.get(name, {}).get("base_url") == "engine:"]
    fetched = [name for name in models if name in weights]
    if not embedded and not fetched:
        return []
    on_gpu = bool(fetched) and Path("/dev/nvidiactl").exists()
    return [*ENGINE, CUDA] if on_gpu else [*ENGINE]


if __name__ == "__main__":
    sys.exit(main())
