"""Rewards: what a file of them may say, what a deck gets, what is masked, and what a reward shares with a score."""

import re

import pytest
from decksmith.core import cli
from decksmith.core.protocol import Protocol
from decksmith.train.rewards import rules
from PIL import Image

LAYOUT, READ = rules.read("layout"), rules.read("read")


@pytest.fixture
def refused(tmp_path):
    """Read a file of `read` changed so, and return the sentence that refuses it."""

    def read(old, new):
        shipped = (rules.SHIPPED / "read.toml").read_text()
        shipped = shipped.replace('extends = "layout"', 'protocol = "offline"')
        assert re.search(old, shipped, re.M)
        path = tmp_path / "mine.toml"
        path.write_text(re.sub(old, new, shipped, count=1, flags=re.M))
        with pytest.raises(cli.BadConfig) as error:
            rules.read(path)
        said = str(error.value)
        assert said.startswith(f"{path}: ") and "\n" not in said
        return said.removeprefix(f"{path}: ")

    return read


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("^protocol = .*", "", "protocol is missing: text"),
        ("^protocol = .*", 'protocol = "published"', "protocol: published has no checks; name one"),
        ("^judge = .*", 'judge = "offline"', "judge: offline has no judge that reads; name one"),
        ("^judge = .*", "judge = 3", "judge: '3' is not text"),
        ("^judge = .*", "", "judge and answers go together: the protocol whose judge reads"),
        ("^answers = .*", "", "judge and answers go together: the protocol whose judge reads"),
        ("^answers = .*", "answers = [3.5, 1.5]", "answers: the first mark is worth 0, the second"),
        ("^answers = .*", "answers = [0, 5]", "answers: 0: Input should be greater than or equal"),
        ("^answers = .*", "answers = 3", "answers: Input should be a valid list"),
        ("^name = .*", 'name = "a"\ngates = 2', "unknown key 'gates'; there are: name, protocol"),
        ("^name = .*", "name =", "Invalid value (at line 4, column 7)"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_by_its_key(refused, old, new, says):
    assert refused(old, new).startswith(says)


def test_an_unknown_reward_is_answered_with_those_that_there_are():
    with pytest.raises(
        cli.BadConfig, match="no reward .*/none.toml; there are: edit, layout, read, rehearsal"
    ):
        rules.read("none")


def test_another_number_is_another_hash(tmp_path):
    path = tmp_path / "mine.toml"
    shipped = (rules.SHIPPED / "read.toml").read_text()
    path.write_text(shipped)
    assert rules.read(path).sha256 == READ.sha256
    path.write_text(shipped.replace("[1.5, 3.5]", "[1.5, 4.0]"))
    assert rules.read(path).sha256 != READ.sha256 != LAYOUT.sha256


PAGE = {
    "layout": "default",
    "images": 0,
    "images_broken": 0,
    "code_lines": 0,
    "table_cells": 0,
    "diagrams": 0,
    "formulas": 0,
    "quotes": 0,
    "columns": 1,
    "overflow": {"x": 0, "y": 0},
    "overlap": 0.0,
    "font": {"min": 16, "dominant": 18, "title": 36},
    "contrast": 9.0,
    "blank": False,
}
TEXTS = [
    "Puffins of the harbour",
    "When they come\nIn April the first puffins reach the island and look for their old holes",
    "What they need\nA quiet slope with soft soil, and sand eels within an hour of flight",
]


@pytest.fixture
def record():
    """Three good slides; of the asked theme, table and checklist item, the table is not there."""
    xray = [
        {**PAGE, "slide": n, "line": 1, "title": text.split("\n")[0], "text": text}
        for n, text in enumerate(TEXTS, 1)
    ]
    return {
        "id": "p1",
        "messages": [{"role": "user", "content": "Three slides on harbour puffins, in English"}],
        "asks": {"slides": 3, "theme": "seriph", "language": "en", "features": ["table"]},
        "checklist": [{"id": "c1", "ask": "food", "match": ["eel"]}],
        "deck": {"path": "p1/deck.md", "slides": 3, "theme": "seriph"},
        "render": {
            "status": "ok",
            "slides": [f"p1/slides/0{n}.png" for n in (1, 2, 3)],
            "expected": 3,
            "errors": [],
            "xray": xray,
        },
    }


@pytest.fixture
def scored(record, tmp_path):
    """The reward of a record, whose pictures each show a bar of another length."""
    for n, path in enumerate(record["render"]["slides"], 1):
        picture = Image.new("L", (980, 552), 250)
        picture.paste(40, (60, 50, 200 * n, 200))
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        picture.save(tmp_path / path)
    return lambda changed=None, by=LAYOUT: rules.reward(changed or record, by, tmp_path)


def test_a_reward_is_the_share_of_checks_that_a_deck_passes(record, scored):
    value = scored()
    assert value == {
        "reward": pytest.approx(5 / 6, abs=1e-6),  # three slides, theme and item; no table
        "components": {"slides": 0.5, "asked": pytest.approx(1 / 3, abs=1e-6)},
        "masked": False,
        "why": "no slide shows the asked element: table",
    }
    record["render"]["xray"][1] |= {"title": "What they need", "text": TEXTS[2]}
    assert scored()["reward"] == pytest.approx(4 / 6, abs=1e-6)  # a slide twice
    record["asks"]["outline"] = ["Nesting", "Moulting", "Eggs", "Enemies", "Counting"]
    # Nine asked things weigh as three, as the slides do, of which two pass; two of the nine are there.
    assert scored()["reward"] == pytest.approx((2 + 3 * 2 / 9) / 6, abs=1e-6)
    record["asks"] = {}
    del record["checklist"]
    assert scored()["reward"] == pytest.approx(2 / 3, abs=1e-6)


@pytest.mark.parametrize("stage", ["gen", "deck", "images", "render"])
@pytest.mark.parametrize("kind", ["infra", "renderer"])
def test_a_fault_that_is_not_the_models_is_masked_and_never_zero(record, stage, kind):
    error = {"kind": kind, "class": "timeout", "message": "no answer in 30 s"}
    record[stage] = {**record.get(stage, {}), "error": error, "errors": [error]}
    assert rules.reward(record, LAYOUT) == {
        "reward": None,
        "components": {},
        "masked": True,
        "why": f"{kind} fault, timeout: no answer in 30 s",
    }


def test_a_deck_that_its_model_failed_gets_nothing(record):
    error = {"kind": "model", "class": "vue-compile", "message": "m"}
    record["render"] = {"status": "failed", "errors": [error], "error": error}
    value = rules.reward(record, LAYOUT)
    assert (value["reward"], value["masked"], value["why"]) == (0.0, False, "vue-compile: m")


def test_a_record_that_was_not_rendered_is_named(record):
    del record["render"]
    with pytest.raises(cli.BadData, match="p1: no render in this record; deck-render writes it"):
        rules.reward(record, LAYOUT)


def test_a_fault_of_the_judge_is_nothing_to_a_reward_without_one(record, scored):
    record["judge"] = {"error": {"kind": "judge", "class": "unparseable", "message": "m"}}
    assert scored()["reward"] > 0.5
    value = scored(by=READ)
    assert value["reward"] is None and value["why"] == "judge fault, unparseable: m"


def test_under_read_a_deck_gets_its_checks_times_its_answer_and_the_judge_reads_the_checklist(
    record, scored
):
    def judged(content, yes):
        verdict = {
            "judge": "m",
            "scores": {"content": content, "coherence": 3.5},
            "checklist": [{"yes": yes}],
        }
        return scored({**record, "judge": verdict}, READ)

    assert judged(1, True)["reward"] == 0
    assert judged(5, True)["reward"] == pytest.approx(5 / 6, abs=1e-6)
    assert judged(5, False)["reward"] == pytest.approx(4 / 6, abs=1e-6)
    half = judged(2.5, True)
    assert half["components"]["answers"] == 0.5 and half["reward"] == pytest.approx(5 / 12)
    assert sum(rules.contributions(half["components"]).values()) == pytest.approx(5 / 12, abs=1e-5)
    assert half["why"].startswith("the judge gives its content 2.5 of 5; no slide shows the asked")


def test_the_rehearsal_pays_nothing_for_a_text_that_does_not_read_like_language(record, scored):
    rehearsal = rules.read("rehearsal")
    unlike = {"check": "reads", "slide": 2, "message": "2.90 bits a character"}
    record["judge"] = {"judge": "offline checks", "findings": [{**unlike, "check": "bare"}]}
    assert scored(by=rehearsal)["reward"] == pytest.approx(5 / 6, abs=1e-6)
    record["judge"]["findings"].append(unlike)
    value = scored(by=rehearsal)
    assert (value["reward"], value["components"]["answers"]) == (0.0, 0.0)
    assert value["why"].startswith("2.90 bits a character; ")
    assert rehearsal.shared_with(Protocol.load("offline")) == "all checks of this score"


@pytest.mark.parametrize("judge", [None, {"judge": "offline checks", "checks": {}}])
def test_a_reward_with_a_judge_needs_one_that_reads(record, scored, judge):
    record |= {"judge": judge} if judge else {}
    with pytest.raises(cli.BadData, match="p1: no judge.scores of a judge that reads"):
        scored(by=READ)


def test_what_a_reward_shares_with_a_score_is_said_in_words():
    offline, published = Protocol.load("offline"), Protocol.load("published")
    assert (
        LAYOUT.shared_with(offline)
        == READ.shared_with(offline)
        == "all checks of this score but `reads`"
    )
    slides = "whether a deck renders and how many slides it has"
    assert LAYOUT.shared_with(published) == slides
    assert READ.shared_with(published) == f"{slides}, and a judge's marks for content and coherence"


@pytest.fixture
def entries(tmp_path, monkeypatch):
    """Models: grpo was trained on the reward that is given, base on none."""

    def write(reward):
        path = tmp_path / "models.toml"
        rows = (f'[grpo]\nslug = "x"\nreward = "{reward}"', '[base]\nslug = "y"')
        path.write_text("".join(f'{row}\nbase_url = "http://x/v1"\n' for row in rows))
        monkeypatch.setattr("decksmith.models.registry.REGISTRY", path)

    return write


def test_a_run_of_a_model_that_was_trained_on_a_reward_is_marked_with_what_both_measure(entries):
    entries("layout")
    held = {"unshipped": [], "protocol": {"protocol": "offline"}}
    runs = [{"summary": {"model": {"name": name}}, **held} for name in ("grpo", "base", "other")]
    strange = {**runs[0], "unshipped": ["there is no mine in assets/protocols"]}
    rules.note_training([*runs, strange])
    assert runs[0]["trained"] == {
        "reward": "layout",
        "shared": "all checks of this score but `reads`",
    }
    assert "trained" not in runs[1] and "trained" not in runs[2]
    assert strange["trained"]["shared"] is None


def test_an_unknown_reward_of_a_model_is_said(entries):
    entries("none")
    run = {"summary": {"model": {"name": "grpo"}}, "unshipped": [], "protocol": {}}
    with pytest.raises(cli.BadConfig, match="no reward .*none.toml"):
        rules.note_training([run])


def test_what_a_served_adapter_was_trained_on_counts_without_an_entry_that_says_so():
    served = {"engine": "e", "base": "b", "adapter": "a", "rewards": ["read", "layout"]}
    model = {"name": "finetuned", "served": served}
    run = {"summary": {"model": model}, "unshipped": [], "protocol": {"protocol": "offline"}}
    rules.note_training([run])
    assert run["trained"] == {
        "reward": "layout and read",
        "shared": "all checks of this score but `reads`",
    }
    served["rewards"] = ["theirs"]
    rules.note_training([run])
    assert run["trained"] == {"reward": "theirs", "shared": None}
