"""The types of rows as Arrow has them, so that a dataset's card names them and load_dataset finds no field of two types.

A type is a name ("int64"), `["list", type]` or `{field: type}`.
"""

from typing import Any

Type = str | list[Any] | dict[str, Any]
_NAMES: dict[type, str] = {type(None): "null", bool: "bool", int: "int64", float: "float64"}


def type_of(value: Any) -> Type:
    """The type of a JSON value. Raises ValueError for a list of two types."""
    if isinstance(value, dict):
        return {key: type_of(inner) for key, inner in value.items()}
    if isinstance(value, list):
        inner: Type = "null"
        for item in value:
            inner = merged(inner, type_of(item))
        return ["list", inner]
    return _NAMES.get(type(value), "string")


def merged(one: Type, other: Type, name: str = "") -> Type:
    """The type that holds both. Raises ValueError naming the field that has two."""
    if one == other or other == "null":
        return one
    if one == "null":
        return other
    if isinstance(one, dict) and isinstance(other, dict):
        return {
            key: merged(one.get(key, "null"), other.get(key, "null"), f"{name}.{key}".lstrip("."))
            for key in one | other
        }
    if isinstance(one, list) and isinstance(other, list):
        return ["list", merged(one[1], other[1], name)]
    if {"int64", "float64"} == {str(one), str(other)}:
        return "float64"
    raise ValueError(
        f"{name or 'a list item'} is of type {_word(other)} here and {_word(one)} before"
    )


def _word(kind: Type) -> str:
    if isinstance(kind, str):
        return kind
    return "list" if isinstance(kind, list) else "object"


def features(schema: dict[str, Type]) -> list[dict[str, Any]]:
    """The schema as a card's `dataset_info` has it, so that a reader needs no inference."""
    return [{"name": name, **_feature(kind)} for name, kind in schema.items()]


def _feature(kind: Type) -> dict[str, Any]:
    if isinstance(kind, str):
        return {"dtype": kind}
    if isinstance(kind, dict):
        return {"struct": features(kind)}
    item = kind[1]
    if isinstance(item, dict):
        return {"list": features(item)}
    inner = _feature(item)
    return {"list": inner.get("dtype") or inner}


def fields(schema: dict[str, Type], prefix: str = "") -> list[tuple[str, str]]:
    """The schema as `[(field, type)]`, fields of structures by their path, `[]` behind what is a list."""
    found = []
    for name, kind in schema.items():
        path = f"{prefix}{name}"
        while isinstance(kind, list):
            kind, path = kind[1], f"{path}[]"
        if isinstance(kind, dict):
            found += fields(kind, f"{path}.")
        else:
            found.append((path, kind))
    return found
