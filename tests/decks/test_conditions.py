"""What a condition adds to a request, and what a wrong one is answered with."""

import json

import pytest
from decksmith.core import cli
from decksmith.measure.decks import conditions

RECORD = {
    "id": "p010",
    "messages": [{"role": "system", "content": "Decks."}, {"role": "user", "content": "Tides"}],
}


def test_every_shipped_condition_loads_and_says_what_it_adds():
    assert {"cheatsheet", "few-shot", "best-of-4", "revise"} < {*conditions.names()}
    for name in conditions.names():
        condition = conditions.load(name)
        assert (condition is None) == (name == "plain")
        assert condition is None or condition.adds()
        assert condition is None or conditions.held(condition.dumped()) == condition


def test_the_cheat_sheet_stands_behind_the_system_prompt():
    system, user = conditions.load("cheatsheet").messages(RECORD)
    assert system["content"].startswith("Decks.\n\n") and len(system["content"]) > 2000
    assert user == RECORD["messages"][1]


def test_few_shot_decks_are_turns_and_never_the_answer_to_what_is_asked(tmp_path, monkeypatch):
    (tmp_path / "shots.toml").write_text(
        'name = "shots"\n[[shots]]\ndeck = "data/gold/g035-float-money"\n'
        '[[shots]]\ndeck = "data/gold/g006-sourdough-jar"\n'
    )
    monkeypatch.setattr(conditions, "FOLDER", tmp_path)
    condition = conditions.load("shots")
    roles = [message["role"] for message in condition.messages(RECORD)]
    assert roles == ["system", *["user", "assistant"] * 2, "user"]
    shown = {**RECORD, "id": "g035-float-money"}
    sample = {**shown, "id": "g035~1", "gen": {"sample": {"of": shown["id"], "k": 1}}}
    for record in (shown, sample):
        assert len(condition.messages(record)) == 4


@pytest.mark.parametrize(
    "text, why",
    [
        ('name = "x"\n', "top level"),
        ('name = "y"\n[system]\ntext = "a"\n', "name: it is 'y', and the file is x.toml"),
        ('name = "x"\n[samples]\nn = 1\nchoose = "xray"\n', "samples.n"),
        ('name = "x"\n[samples]\nn = 4\nchoose = "vote"\n', "samples.choose"),
        ('name = "x"\n[system]\nfile = "none.md"\n', "system.file"),
        ('name = "x"\n[[shots]]\ndeck = "data/gold/none"\n', "shots: .*No such file"),
        ('name = "x"\n[[shots]]\ndeck = "data/gold/../../etc"\n', "shots.0.deck"),
    ],
)
def test_a_wrong_condition_names_file_and_key(tmp_path, monkeypatch, text, why):
    (tmp_path / "x.toml").write_text(text)
    monkeypatch.setattr(conditions, "FOLDER", tmp_path)
    with pytest.raises(cli.BadConfig, match=why):
        conditions.load("x")


def test_a_condition_that_is_not_there_is_answered_with_those_that_are():
    with pytest.raises(cli.BadConfig, match="there are: plain, best-of-4, blocks, cheatsheet"):
        conditions.load("none")


def test_a_later_turn_is_asked_under_a_condition_with_its_conversation_and_without_its_own_prompt():
    from decksmith.models import turns

    condition = conditions.load("few-shot")
    shown = condition.shots[0].id
    first = {"id": shown, "messages": [{"role": "user", "content": "Huts"}], "asks": {}}
    row = turns.expand({**first, "turns": [{"request": "Shorter"}]})[1]
    row["messages"] = turns.with_history(row, {shown: {"text": "# Huts"}})
    said = [message["content"] for message in condition.messages(row)]
    assert said[-3:] == ["Huts", "# Huts", "Shorter"]
    assert condition.shots[0].deck not in said
    assert all(shot.deck in said for shot in condition.shots[1:])


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("samples", {"n": 10**9, "choose": "xray"}, "n: "),
        ("system", 7, "system"),
        ("shots", [{"id": "a", "request": "b", "deck": []}], "shots.0.deck"),
        ("shots", [{"path": "/etc/passwd"}], "shots.0.id"),
        ("more", "", "more"),
    ],
)
def test_a_file_that_no_condition_wrote_is_named(tmp_path, key, value, said):
    path = tmp_path / "condition.json"
    path.write_text(json.dumps(conditions.load("cheatsheet").dumped() | {key: value}))
    with pytest.raises(cli.BadConfig, match=f"condition.json: .*{said}"):
        conditions.load(str(path))
    path.write_text("[]")
    with pytest.raises(cli.BadConfig, match="condition.json: not a JSON object"):
        conditions.load(str(path))
