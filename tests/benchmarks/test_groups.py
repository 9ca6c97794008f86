"""Groups: what a plan promises, one model's table, and the gate over several benchmarks."""

import pytest
from decksmith.bench.benchmarks import groups, metrics, tasks
from decksmith.core import cli

GROUP = {
    "name": "small",
    "title": "T",
    "margin": 0.05,
    "aspects": {"sums": 0.1, "texts": 0.1},
    "parts": [
        {"bench": "arithmetic", "aspect": "sums", "questions": 300, "tokens": [100, 200]},
        {"bench": "thinking", "aspect": "sums", "questions": 100, "tokens": [100, 200]},
        {"bench": "multilingual", "aspect": "texts", "questions": 300, "tokens": [100, 200]},
    ],
}


def graded(model, scores, sampling=None):
    """Results as metrics.load has them; scores: of each benchmark's questions."""
    rows = [
        {
            "id": f"{bench}-{number}",
            "task": {"bench": bench, "fields": {}, "expected": "1", "revision": "r"},
            "messages": [],
            "gen": {
                "text": "t",
                "model": {"name": model},
                "sampling": sampling or {},
                "usage": {"prompt_tokens": 10, "completion_tokens": 30},
            },
            "grade": {
                "verdict": "right",
                "score": score,
                "answer": "a",
                "rules": 1,
                "detail": {},
            },
        }
        for bench, values in scores.items()
        for number, score in enumerate(values)
    ]
    return metrics.read(enumerate(rows, 1))


def compared(ours, base):
    entries = groups.compare(GROUP, ours, base, "tuned", "base")
    said, outcome = groups.summary(GROUP, entries, "tuned", "base")
    return {entry["benchmark"]: entry for entry in entries}, said, outcome


GOOD = {
    "arithmetic": [1.0, 0.0] * 150,
    "thinking": [1.0, 0.0] * 50,
    "multilingual": [1.0, 0.0] * 150,
}


def test_the_gate_passes_where_every_loss_is_ruled_out_and_says_so_in_one_sentence():
    entries, said, outcome = compared(graded("tuned", GOOD), graded("base", GOOD))
    assert outcome == "pass"
    assert entries["sums"]["difference"]["n"] == 400 and entries["all"]["difference"]["n"] == 700
    assert said.startswith("small: tuned is worse than base on 0 of 2 aspects. Over all questions:")
    assert "Tokens of a reply: 30 and 30" in entries["sums"]["sentence"]
    header, rows = groups.table(
        GROUP, {n: metrics.summarize(q) for n, q in graded("m", GOOD).items()}
    )
    assert [row[0] for row in rows] == ["sums", "  arithmetic", "  thinking", "texts", "all"]
    assert rows[-1][:3] == ["all", "700", "0.500"] and len(rows[0]) == len(header)


def test_a_loss_on_one_aspect_fails_whatever_the_others_say():
    worse = {**GOOD, "multilingual": [0.0] * 300}
    entries, said, outcome = compared(graded("tuned", worse), graded("base", GOOD))
    assert outcome == "fail" and entries["texts"]["verdict"] == "worse"
    assert "worse than base on 1 of 2 aspects: texts" in said


def test_a_part_that_nobody_was_asked_is_named_and_an_aspect_without_any_does_not_pass():
    without = {name: scores for name, scores in GOOD.items() if name != "multilingual"}
    entries, said, outcome = compared(graded("tuned", without), graded("base", without))
    assert outcome == "open" and entries["texts"]["verdict"] == "cannot tell"
    assert "Not asked: multilingual. Graders decide as a person does: mathematics " in said
    asked = {name: metrics.summarize(q) for name, q in graded("m", without).items()}
    said = groups.sentence(GROUP, asked, {"multilingual": "the Hub did not answer"})
    assert (
        said
        == "small: 400 of 700 questions, in 2 of 3 parts; not asked: multilingual (the Hub did not answer)"
    )


def test_parts_that_were_not_asked_alike_fail_the_gate_and_are_named():
    _, said, outcome = compared(graded("tuned", GOOD), graded("base", GOOD, {"temperature": 1}))
    assert outcome == "fail" and "not compared: sums, texts" in said


def test_a_plan_counts_questions_and_tokens_and_takes_both_from_results_where_there_are_any():
    found = groups.plan(GROUP)
    assert found["all"].questions == 700 and found["tokens"] == (70000, 140000)
    assert found["seconds"] == pytest.approx(140000 / 8000 + 2048 / 40)
    assert [round(one.least, 3) for one in found["aspects"]] == [0.055, 0.063]
    same = graded("m", GOOD)
    measured = groups.plan(GROUP, (same, same))
    assert measured["tokens"][1] == 700 * 30
    assert measured["all"].least < found["all"].least / 3
    assert "700 questions of each model find a loss of" in groups.planned(measured)


def test_the_group_of_this_repository_is_whole_and_large_enough():
    guard = groups.load("guard")
    for part in guard["parts"]:
        assert tasks.load(part["bench"])["grader"] in tasks.GRADERS
    assert {part["aspect"] for part in guard["parts"]} == set(guard["aspects"])
    found = groups.plan(guard)
    assert min(one.power for one in found["aspects"]) > 0.95
    assert found["seconds"] < 3600


def test_a_group_that_names_what_is_not_there_is_refused(tmp_path, monkeypatch):
    (tmp_path / "assets/groups").mkdir(parents=True)
    monkeypatch.setattr(cli, "ROOT", tmp_path)
    part = 'title = "T"\nmargin = 0.1\n[aspects]\na = 0.1\n[[parts]]\nbench = "none"\naspect = "a"\nquestions = 1\ntokens = [1, 1]\n'
    for text, said in (
        (part, "none: no such"),
        ("title = 1", "it has the keys"),
        ("=", "guard.toml"),
    ):
        (tmp_path / "assets/groups/guard.toml").write_text(text)
        with pytest.raises(cli.BadConfig, match=said):
            groups.load("guard")
    with pytest.raises(cli.BadConfig, match="there are: guard"):
        groups.load("other")
