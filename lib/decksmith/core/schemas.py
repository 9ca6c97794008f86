"""Our own files held against their JSON Schema (assets/schemas)."""

import re
from pathlib import Path
from typing import Any

from decksmith.core import cli
from decksmith.core.records import Record

TYPES: dict[str, Any] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "number": (int, float),
    "integer": int,
}


def check(path: Path, data: Any, schema: Record) -> None:
    """Raises cli.BadConfig with one line that names file and key where what `path` says breaks its schema."""
    if found := fault(data, schema):
        where, message = found
        raise cli.BadConfig(f"{path}: {where or 'top level'}: {message}")


def fault(data: Any, schema: Record) -> tuple[str, str] | None:
    """What is most wrong with `data` by a schema of draft 2020-12: (its keys, joined by dots; a sentence), or None.

    jsonschema takes as long to import as the rest of a script, so data that plainly fits never meets it; of any other
    it decides.
    """
    try:
        if _fits(data, schema, schema):
            return None
    except NotImplementedError:
        pass
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import relevance

    errors = sorted(Draft202012Validator(schema).iter_errors(data), key=relevance)
    if not errors:
        return None
    return ".".join(map(str, errors[-1].absolute_path)), errors[-1].message


def _fits(value: Any, schema: Record | bool, root: Record) -> bool:
    """Whether a value fits. Raises NotImplementedError where a keyword is none of those of our files."""
    if isinstance(schema, bool):
        return schema
    return all(_meets(value, keyword, schema, root) for keyword in schema)


def _meets(value: Any, keyword: str, schema: Record, root: Record) -> bool:
    wanted = schema[keyword]
    match keyword:
        case "$schema" | "title" | "$defs" | "then" | "else":
            return True
        case "type":
            return isinstance(value, TYPES[wanted]) and isinstance(value, bool) == (
                wanted == "boolean"
            )
        case "const":
            return bool(value == wanted)
        case "enum":
            return value in wanted
        case "$ref":
            part = root
            for step in wanted.split("/")[1:]:
                part = part[step]
            return _fits(value, part, root)
        case "allOf":
            return all(_fits(value, each, root) for each in wanted)
        case "oneOf":
            return sum(_fits(value, each, root) for each in wanted) == 1
        case "if":
            branch = "then" if _fits(value, wanted, root) else "else"
            return _fits(value, schema.get(branch, True), root)
        case "minimum":
            return not isinstance(value, int | float) or bool(value >= wanted)
        case "exclusiveMinimum":
            return not isinstance(value, int | float) or bool(value > wanted)
        case "maximum":
            return not isinstance(value, int | float) or bool(value <= wanted)
        case "pattern":
            return not isinstance(value, str) or re.search(wanted, value) is not None
        case "minLength":
            return not isinstance(value, str) or len(value) >= wanted
        case "items":
            return not isinstance(value, list) or all(_fits(item, wanted, root) for item in value)
        case "minItems":
            return not isinstance(value, list) or len(value) >= wanted
        case "maxItems":
            return not isinstance(value, list) or len(value) <= wanted
        case "uniqueItems":
            items = value if isinstance(value, list) else []
            return not any(item in items[:place] for place, item in enumerate(items))
        case _:
            met = _has(value if isinstance(value, dict) else {}, keyword, schema, root)
            return met or not isinstance(value, dict)


def _has(table: Record, keyword: str, schema: Record, root: Record) -> bool:
    """The keywords of objects."""
    wanted = schema[keyword]
    match keyword:
        case "required":
            return all(name in table for name in wanted)
        case "minProperties":
            return bool(len(table) >= wanted)
        case "maxProperties":
            return bool(len(table) <= wanted)
        case "propertyNames":
            return all(_fits(name, wanted, root) for name in table)
        case "properties":
            named = wanted.keys() & table.keys()
            return all(_fits(table[name], wanted[name], root) for name in named)
        case "additionalProperties":
            others = table.keys() - schema.get("properties", {}).keys()
            return all(_fits(table[name], wanted, root) for name in others)
        case _:
            raise NotImplementedError(keyword)
