"""The files of assets: TOML that extends another (`extends = "offline"`), tables, and the schemas that data is held against.

Imports nothing but the standard library before `check` is called: doctor runs before anything is installed.
"""

import functools
import json
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator


def read(path: Path, shipped: Path) -> dict[str, Any]:
    """The tables of a TOML file, merged over those of the file that it extends.

    A table of the file is merged into the same table of the other, key by key; every other value replaces, and so
    does a table of another `kind`. The other file stands beside this one, or in the folder `shipped`, and extends
    nothing itself.

    Raises OSError, UnicodeDecodeError and tomllib.TOMLDecodeError as reading does; ValueError, in a sentence, where
    `extends` names no such file.
    """
    own = tomllib.loads(path.read_text(encoding="utf-8"))
    if "extends" not in own:
        return own
    base = extended(path, own.pop("extends"), shipped)
    other = tomllib.loads(base.read_text(encoding="utf-8"))
    if "extends" in other:
        raise ValueError(f"extends: {base.name} extends another itself; name that one")
    return _merged(other, own)


@functools.cache
def asset(name: str) -> dict[str, Any]:
    """What assets/NAME says, TOML or JSON, read once: nobody changes it."""
    from decksmith.core import cli

    text = (cli.ROOT / "assets" / name).read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text) if name.endswith(".json") else tomllib.loads(text)
    return found


def extended(path: Path, name: object, shipped: Path) -> Path:
    """The file that `extends = name` in `path` means. Raises ValueError where there is none."""
    for folder in (path.parent, shipped):
        found = folder / f"{name}.toml"
        if isinstance(name, str) and found.is_file() and not found.samefile(path):
            return found
    known = ", ".join(sorted(found.stem for found in shipped.glob("*.toml")))
    raise ValueError(f"extends: no {name!r} beside it or in {shipped}; there are: {known}")


def _merged(base: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    result = base | own
    for key, value in own.items():
        old = base.get(key)
        if isinstance(value, dict) and isinstance(old, dict):
            if value.get("kind", old.get("kind")) == old.get("kind"):
                result[key] = _merged(old, value)
    return result


@functools.cache
def validator(name: str) -> "Draft202012Validator":
    """What holds data against assets/schemas/NAME."""
    from jsonschema import Draft202012Validator

    return Draft202012Validator(asset(f"schemas/{name}"))


def check(path: Path, data: object, schema: dict[str, Any]) -> None:
    """Raises cli.BadConfig with one line that names file and key where what `path` says breaks its schema."""
    from decksmith.core import cli

    if found := fault(data, schema):
        where, message = found
        raise cli.BadConfig(f"{path}: {where or 'top level'}: {message}")


def fault(data: object, schema: dict[str, Any]) -> tuple[str, str] | None:
    """What is most wrong with `data` by a schema of draft 2020-12: (its keys, joined by dots; a sentence), or None."""
    from jsonschema import Draft202012Validator  # as slow to import as the rest of a script
    from jsonschema.exceptions import relevance

    errors = sorted(Draft202012Validator(schema).iter_errors(data), key=relevance)
    if not errors:
        return None
    return ".".join(map(str, errors[-1].absolute_path)), errors[-1].message


def toml(value: Any) -> str:
    """A JSON value as TOML."""
    if isinstance(value, dict):
        pairs = [f"{toml(str(key))} = {toml(part)}" for key, part in value.items()]
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
