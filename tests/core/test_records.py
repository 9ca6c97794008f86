"""Whether a record holds what its type says: as pydantic says it of the same type, value by value."""

import json
from random import Random
from typing import Any

import pytest
from decksmith.bench.benchmarks.records import BenchRecord
from decksmith.core import records
from decksmith.measure.decks.records import Page, Render
from decksmith.measure.judging.records import DeckRecord
from decksmith.models.records import ChatRequest
from decksmith.train.corpus.records import DraftRecord
from pydantic import TypeAdapter, ValidationError

ODD: list[Any] = [None, True, 7, -1, 0.5, 1e9, "", "x" * 90, "a/1.png", [], [1, 2], {}, {"x": 1.5}]
OF_TYPE = {"str": ["a", "a/1.png", "0f"], "int": [0, 3], "float": [0.5, 1], "bool": [True, False]}


def value(schema: Any, draw: Random, odd: float) -> Any:
    """What a schema asks for, where a share `odd` of its parts is something else."""
    if draw.random() < odd:
        return draw.choice(ODD)
    match schema:
        case {"type": "typed-dict", "fields": fields}:
            kept = [key for key in fields if draw.random() >= odd]
            return {key: value(fields[key]["schema"], draw, odd) for key in kept}
        case {"type": "list", "items_schema": item}:
            count = draw.randint(0, 2) + schema.get("min_length", 0)
            return [value(item, draw, odd) for _ in range(count)]
        case {"type": "tuple", "items_schema": items}:
            return [value(item, draw, odd) for item in items]
        case {"type": "dict", "values_schema": item}:
            return {key: value(item, draw, odd) for key in ("x", "b")}
        case {"type": "literal", "expected": words}:
            return draw.choice(words)
        case {"type": "union", "choices": choices}:
            return value(draw.choice(choices), draw, odd)
        case {"schema": inner}:
            return value(inner, draw, odd)
    return draw.choice(OF_TYPE.get(schema["type"], ODD))


def said(check: Any, made: Any) -> list[Any]:
    try:
        check(made, strict=True)
    except ValidationError as error:
        return error.errors(include_url=False)
    return []


@pytest.mark.parametrize("takes", [DeckRecord, ChatRequest, BenchRecord, DraftRecord, Render, Page])
def test_a_record_is_refused_as_pydantic_refuses_it_and_in_its_words(takes):
    theirs, draw = TypeAdapter(takes), Random(takes.__name__)
    refused = 0
    for _ in range(60):
        made = value(records._schema(takes), draw, draw.choice([0, 0, 0.01, 0.2]))
        whole = said(theirs.validate_json, json.dumps(made))
        for each in whole:  # its words for JSON are others than for what was read of it
            said_of = each["msg"].replace("an object", "a valid dictionary")
            each["msg"] = said_of.replace("valid array", f"valid {each['type'][:-5]}")
        assert records._misfits(made, takes) == whole
        refused += bool(whole)
        known = [key for key in takes.__annotations__ if isinstance(made, dict) and key in made]
        if known:  # as a stage reads it: of the keys that are there
            there = [each for each in whole if each["loc"][0] in known]
            assert records._misfits(made, takes, *known) == there
    assert 15 < refused


def test_what_no_type_names_is_no_fault_whatever_it_holds():
    records.check_record({"note": "\ud800", "cost": float("nan")}, DeckRecord)
    with pytest.raises(ValueError, match="id: input should be a valid string, not 7"):
        records.check_record({"id": 7, "note": "\ud800"}, DeckRecord)


def test_letters_that_were_measured_are_never_cut_but_refused():
    box = {
        "kind": "text",
        "tag": "p",
        "box": [0, 0, 9, 9],
        "line": [0.0, 0, 9, 9],
        "ink": "0f" * 801,
    }
    page = {"slide": 1, "line": 1, "boxes": [box]}
    with pytest.raises(ValueError, match="boxes.0.ink"):
        records.cut(page, Page)
    assert box["ink"] == "0f" * 801
