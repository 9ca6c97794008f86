"""Our own files held against their JSON Schema (assets/schemas)."""

from pathlib import Path
from typing import Any

from decksmith.core import cli
from decksmith.core.records import Record


def check(path: Path, data: Any, schema: Record) -> None:
    """Raises cli.BadConfig with one line that names file and key where what `path` says breaks its schema."""
    if found := fault(data, schema):
        where, message = found
        raise cli.BadConfig(f"{path}: {where or 'top level'}: {message}")


def fault(data: Any, schema: Record) -> tuple[str, str] | None:
    """What is most wrong with `data` by a schema of draft 2020-12: (its keys, joined by dots; a sentence), or None."""
    from jsonschema import Draft202012Validator  # as slow to import as the rest of a script
    from jsonschema.exceptions import relevance

    errors = sorted(Draft202012Validator(schema).iter_errors(data), key=relevance)
    if not errors:
        return None
    return ".".join(map(str, errors[-1].absolute_path)), errors[-1].message
