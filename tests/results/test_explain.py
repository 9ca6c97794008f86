"""One prompt on one screen."""

import json
import unicodedata

import pytest
from decksmith.core import cli
from decksmith.results import explain

ROW = {
    "id": "p001",
    "sets": ["core"],
    "messages": [
        {"role": "system", "content": "SYSTEM"},
        {"role": "user", "content": "Five slides on reefs"},
    ],
    "asks": {"theme": "seriph", "slides": 5, "language": "en", "features": ["table"]},
    "checklist": [{"id": "c1", "ask": "Names a reef", "match": ["reef"]}],
}
DECK = "---\ntheme: seriph\n---\n\n# Reefs\n\n---\n\n# Broken\n\n<Chart :data=\n"
GEN = {
    "text": DECK,
    "reasoning": "",
    "finish_reason": "length",
    "usage": {"prompt_tokens": 1, "completion_tokens": 99},
    "model": {"name": "smol", "slug": "smol"},
    "sampling": {"temperature": 0.7},
    "by": {},
}
ERROR = {
    "kind": "model",
    "class": "vue-compile",
    "slide": 2,
    "line": 11,
    "message": "Element is missing end tag",
}
RENDER = {
    "status": "partial",
    "slides": ["p001/slides/01.png", "p001/slides/02.png"],
    "expected": 2,
    "errors": [ERROR],
    "xray": [{"slide": 1, "line": 4}, {"slide": 2, "line": 7}],
    "engine": {"slidev": "1"},
}
JUDGE = {
    "judge": "lab/seer",
    "scores": {"content": 2, "design": 2, "coherence": 4},
    "why": {"design": "Text runs off."},
    "caps": [{"dimension": "design", "max": 2, "why": "text runs off slide 1"}],
    "observations": [{"seen": "text_cut_off", "slide": 1}],
    "checklist": [{"id": "c1", "yes": False, "slide": None}],
    "replies": ["p001/judge/1.txt"],
    "usage": {},
}
SCORE = {
    "overall": 2.5,
    "judge_only": 2.6,
    "checklist": 0.0,
    "dimensions": {"design": 2},
    "rendered": True,
    "floored": False,
    "fault": None,
}


def lay(run, record=None, rows=(ROW,), **journals):
    (run / "p001/judge").mkdir(parents=True)
    (run / "journal").mkdir()
    (run / "p001/deck.md").write_text(DECK)
    (run / "p001/judge/1.txt").write_text('{"content": {"score": 2}}')
    (run / "prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    if record:
        (run / "scores.jsonl").write_text(json.dumps(record) + "\n")
    for stage, values in journals.items():
        lines = (
            json.dumps({"id": ident, "inputs": "0" * 64, stage: value}) + "\n"
            for ident, value in values.items()
        )
        (run / f"journal/{stage}.jsonl").write_text("".join(lines))
    return run


def whole(**changes):
    deck = {"path": "p001/deck.md", "slides": 2, "theme": "seriph", "sha256": "0"}
    return {
        **ROW,
        "gen": GEN,
        "deck": deck,
        "images": {"path": "p001/deck.md", "items": []},
        "render": RENDER,
        "judge": JUDGE,
        "score": SCORE,
        **changes,
    }


def block(lines, title):
    start = lines.index(title) + 1
    return [line.strip() for line in lines[start : lines.index("", start)]]


def test_it_shows_request_model_lines_render_log_judge_and_scores(tmp_path):
    lines = explain.screen(lay(tmp_path / "smol", whole()), "p001")
    assert len(lines) <= explain.LINES
    assert lines[0].startswith("p001 in ") and lines[1] == "Class: partial. Fault: none"
    assert block(lines, "Request") == [
        "Five slides on reefs",
        "asks: theme seriph, slides 5, language en, features table",
    ]
    assert block(lines, "Model") == [
        "smol (smol), temperature 0.7",
        "finished: length (cut off at the token limit); 99 tokens; its reply begins: "
        "--- theme: seriph --- # Reefs --- # Br..",
    ]
    assert block(lines, "Deck")[1:] == [
        "line 11: <Chart :data= <- vue-compile",
        "line 5: # Reefs <- text_cut_off",
    ]
    assert (
        block(lines, "Render")[1]
        == "model vue-compile (slide 2, line 11): Element is missing end tag"
    )
    assert block(lines, "Judge") == [
        "lab/seer: content 2, design 2, coherence 4",
        "capped: design at 2: text runs off slide 1",
        "design: Text runs off.",
        f"its words, in {tmp_path}/smol/p001/judge/1.txt:",
        '{"content": {"score": 2}}',
        "not shown: c1 Names a reef",
    ]
    assert block(lines, "Scores") == ["overall 2.5, judge_only 2.6, checklist 0.0, design 2"]


@pytest.mark.parametrize(
    ("kind", "whose"),
    [
        ("model", "the model's: it counts against it"),
        ("judge", "the judge's: excluded"),
        ("renderer", "our renderer's: excluded"),
        ("infra", "the network's or the machine's"),
    ],
)
def test_whose_fault_it_is_stands_there_in_words(tmp_path, kind, whose):
    error = {"kind": kind, "class": "crash", "message": "it fell"}
    lines = explain.screen(
        lay(tmp_path / "smol", whole(score={**SCORE, "fault": {"stage": "render", **error}})),
        "p001",
    )
    assert "crash (render): it fell" in lines[1] and lines[2].startswith(f"Fault: {whose}")


def test_a_run_that_was_not_finished_is_read_from_its_journals(tmp_path):
    lines = explain.screen(lay(tmp_path / "smol", gen={"p001": GEN}), "p001")
    assert lines[0].endswith(
        "(from the journals; scores.jsonl does not have it (this run was not finished))"
    )
    assert lines[1] == "Class: not finished: gen done so far. Fault: none"
    plan = block(lines, "On a rerun")
    assert plan[0].startswith("gen: again: the request changed: max_tokens None -> 1024")
    assert plan[1:] == [f"{stage}: to be done after gen" for stage in explain.STAGES[1:]] + [
        "features, score: always computed anew"
    ]


def test_a_fault_that_is_not_the_models_is_said_to_be_tried_again(tmp_path):
    infra = {"error": {"kind": "infra", "class": "timeout", "message": "no reply in 1200 s"}}
    lines = explain.screen(lay(tmp_path / "smol", {**ROW, "gen": infra, "score": SCORE}), "p001")
    assert block(lines, "Model") == ["gave no reply: no reply in 1200 s"]
    assert (
        block(lines, "On a rerun")[0]
        == "gen: again: infra fault (timeout) in the last run; such are not kept"
    )


def test_what_a_model_wrote_cannot_speak_to_the_terminal(tmp_path):
    bad = "\x1b]0;owned\x07\x1b[31mred\x1b[0m\u202egnp.exe\u2066\r\x9b2J\x00end\u2028next"
    judge = {
        **JUDGE,
        "why": {"design": bad},
        "observations": [{"seen": bad, "slide": 1}],
        "replies": ["../../../etc/hostname"],
    }
    render = {**RENDER, "errors": [{**ERROR, "message": bad, "class": bad}], "slides": [bad]}
    run = lay(
        tmp_path / "smol",
        whole(
            judge=judge,
            render=render,
            gen={**GEN, "text": bad, "model": {"name": bad, "slug": bad}},
        ),
    )
    (run / "p001/deck.md").write_text(bad * 300 + "\n" + bad)
    said = "\n".join(explain.screen(run, "p001"))
    assert {unicodedata.category(c) for c in said} & {"Cc", "Cf", "Cs", "Zl", "Zp"} == {
        "Cc"
    }  # the newlines between the lines
    assert all(c == "\n" for c in said if unicodedata.category(c) == "Cc")
    assert "redgnp.exe 2Jend next" in said and "owned" not in said
    assert len(said.split("\n")) <= explain.LINES
    with open("/etc/hostname") as file:
        assert f"  {file.read().strip()}\n" not in said


def test_an_unknown_id_is_answered_with_those_near_it(tmp_path):
    run = lay(tmp_path / "smol", rows=[{**ROW, "id": ident} for ident in ("p001", "p002", "q777")])
    with pytest.raises(cli.BadData, match=r"no record 'p01'; near it: p001, p002"):
        explain.screen(run, "p01")
    sampled = lay(tmp_path / "two", gen={"p001~0": GEN, "p001~1": GEN})
    with pytest.raises(cli.BadData, match=r"no record 'p001'; near it: p001~0, p001~1"):
        explain.screen(sampled, "p001")
    assert block(explain.screen(sampled, "p001~1"), "Request")[0] == "Five slides on reefs"
    with pytest.raises(cli.Missing, match="there is no run"):
        explain.screen(tmp_path / "none", "p001")
