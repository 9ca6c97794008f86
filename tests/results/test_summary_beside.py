"""Measures beside the score, of documents and turns; and records without their X-rays."""

import copy

from decksmith.core import stream
from decksmith.measure.results import summary


def record(ident, *, turn=None, sources=True, features=None, fault=None):
    score = {"overall": 3.0, "judge_only": 3.0, "checklist": None, "dimensions": {}}
    if fault:
        score |= {"overall": 1, "judge_only": 1, "floored": True}
    made = {
        "id": ident,
        "asks": {},
        "features": features or {},
        "score": {**score, "rendered": not fault, "fault": fault},
    }
    if sources:
        made["sources"] = [{"name": "a.md"}]
    if turn:
        made["turn"] = turn
    return made


FAULT = {"stage": "deck", "kind": "model", "class": "no-deck", "message": "none"}
GROUNDED = {"grounding": {"grounding": 0.5}}


def test_a_failed_deck_with_documents_counts_nothing_and_one_without_does_not_count():
    records = [
        record("d1", features=GROUNDED),
        record("d2", fault=FAULT),
        record("d3", sources=False, fault=FAULT),
    ]
    floor = summary.columns(records, "floor")
    assert floor["grounding"] == {"d1": 0.5, "d2": 0}
    assert "kept" not in floor and "claims" not in floor
    assert summary.columns(records, "renderable")["grounding"] == {"d1": 0.5}
    assert summary.scale("grounding") == (0, 1)


def test_a_turn_that_keeps_slides_counts_what_it_kept_and_a_failed_one_nothing():
    keeps = {"of": "t1", "n": 2, "keeps": {"except": [2]}}
    records = [
        record("t1", turn={"of": "t1", "n": 1}),
        record("t1.2", turn=keeps, features={"kept": 0.8}),
        record("t2.2", turn=keeps, fault=FAULT),
    ]
    floor = summary.columns(records, "floor")
    assert floor["kept"] == {"t1.2": 0.8, "t2.2": 0}
    assert floor["overall"] == {"t1": 3.0, "t1.2": 3.0, "t2.2": 1.0}
    assert summary.columns(records, "renderable")["kept"] == {"t1.2": 0.8}


def test_runs_hold_what_a_prompt_says_once_and_their_fingerprint_is_that_of_whole_records():
    said = [{"role": "user", "content": "Sechs Folien \u00fcber Ebbe und Flut"}]
    rows = [
        {"id": f"p~{k}", "messages": said, "render": {"status": "ok", "xray": [{"slide": 1}]}}
        for k in range(2)
    ]
    asked = {}
    lights = [summary.Light(asked), summary.Light(asked)]
    kept = [[light.take(copy.deepcopy(row)) for row in rows] for light in lights]
    alike = [{**row, "render": {"status": "ok"}} for row in rows]
    assert kept == [alike, alike]
    assert len({id(row["messages"]) for run in kept for row in run}) == 1
    apart = summary.Light().take(copy.deepcopy(rows[0]))["messages"]
    assert apart == said and apart is not kept[0][0]["messages"]
    assert {light.fingerprint() for light in lights} == {stream.fingerprint(rows)}
