"""Reward rules: what a file may say, and what a reward has in common with a protocol."""

import re

import pytest
from decksmith.core import cli
from decksmith.core.protocol import Protocol
from decksmith.train.rewards import rules

SHIPPED = (rules.SHIPPED / "rendered.toml").read_text()


@pytest.fixture
def refused(tmp_path):
    """Read rules made of the shipped ones by a change, and return the sentence that refuses them."""

    def read(old, new):
        assert re.search(old, SHIPPED, re.M)
        path = tmp_path / "mine.toml"
        path.write_text(re.sub(old, new, SHIPPED, count=1, flags=re.M))
        with pytest.raises(cli.BadConfig) as error:
            rules.read(path)
        said = str(error.value)
        assert said.startswith(f"{path}: ") and "\n" not in said
        return said.removeprefix(f"{path}: ")

    return read


@pytest.mark.parametrize("name", ["rendered", "read"])
def test_the_shipped_rules_are_read_by_their_names(name):
    found = rules.read(name)
    assert found.name == name and sum(found.weights.values()) == pytest.approx(1)
    assert bool(found.judge) == (name == "read")


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("^layout = .*", "loyout = 0.25", "weights: loyout: [key]: unknown component; there are: "),
        ("^layout = .*", "layout = 0.35", "weights: they sum to 1.1 and not to 1"),
        (
            "^layout = .*",
            "layout = -1",
            "weights: layout: Input should be greater than or equal to",
        ),
        ("^layout = .*", "layout = true", "weights: layout: Input should be a valid number"),
        ("^layout = .*", "layout = nan", "weights: layout: Input should be "),
        ("^echo = .*", "echo = 0.1", "gates: echo: Input should be a valid dictionary"),
        ("full = 0.9", "full = 0.0", "gates: language: full: Input should be greater than 0"),
        ("^molds = .*0.12.*", "", "ramps.molds: is missing; the component is used"),
        ("^molds = .*0.12.*", "molds = 3", "ramps: molds: Input should be a valid list"),
        ("^molds = .*0.12.*", "molds = [3]", "ramps: molds: [3.0] are not two numbers, or four"),
        ("^molds = .*0.12.*", "echo = [0, 1]", "ramps: echo: [key]: unknown component; there are"),
        ("^protocol = .*", "", "protocol is missing: text"),
        ("^protocol = .*", 'protocol = "published"', "protocol: published has no offline measures"),
        (r"^\[gates\]", "[gate]", "unknown key 'gate'; there are: name, protocol, judge, weights"),
        ("^name = .*", 'name = "a"\nscale = 2', "unknown key 'scale'; there are: name, protocol"),
        ("^name = .*", "name =", "Invalid value (at line 3, column 7)"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_by_its_key(refused, old, new, says):
    assert refused(old, new).startswith(says)


def test_an_unknown_reward_is_answered_with_those_that_there_are():
    with pytest.raises(
        cli.BadConfig, match="no reward .*/rewards/none.toml; there are: read, rendered"
    ):
        rules.read("none")


def test_another_number_is_another_hash(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(SHIPPED)
    same = rules.read(path).sha256
    path.write_text(SHIPPED.replace("unread = { least = 0.02", "unread = { least = 0.03"))
    assert same == rules.read("rendered").sha256 != rules.read(path).sha256


def test_a_reward_has_most_measures_in_common_with_the_offline_protocol_and_few_with_a_judge():
    rendered, read = rules.read("rendered"), rules.read("read")
    offline, published = Protocol.load("offline"), Protocol.load("published")
    shared = rendered.shared_with(offline)
    assert {*offline.measures} - {*shared} == {"close", "opening", "thread", "titles"}
    assert rendered.shared_with(published) == ["checklist", "empty", "errors", "slides"]
    assert read.shared_with(published) == ["checklist", "content", "empty", "errors", "slides"]


def test_a_run_of_a_model_that_was_trained_on_a_reward_is_marked_with_what_both_measure(
    tmp_path, monkeypatch
):
    entries = tmp_path / "models.toml"
    entries.write_text(
        '[grpo]\nbase_url = "http://x/v1"\nslug = "x"\nreward = "rendered"\n[base]\nbase_url = "http://x/v1"\nslug = "y"\n'
    )
    monkeypatch.setattr("decksmith.models.registry.REGISTRY", entries)
    held = {"unshipped": [], "protocol": {"protocol": "offline"}}
    runs = [{"summary": {"model": {"name": name}}, **held} for name in ("grpo", "base", "other")]
    strange = {**runs[0], "unshipped": ["there is no mine in assets/protocols"]}
    rules.note_training([*runs, strange])
    assert (
        runs[0]["trained"]["reward"] == "rendered" and "layout" not in runs[0]["trained"]["shared"]
    )
    assert runs[0]["trained"]["others"] == ["close", "opening", "thread", "titles"]
    assert "trained" not in runs[1] and "trained" not in runs[2]
    assert strange["trained"]["shared"] is None


def test_an_unknown_reward_of_a_model_is_said(tmp_path, monkeypatch):
    entries = tmp_path / "models.toml"
    entries.write_text('[grpo]\nbase_url = "http://x/v1"\nslug = "x"\nreward = "none"\n')
    monkeypatch.setattr("decksmith.models.registry.REGISTRY", entries)
    run = {"summary": {"model": {"name": "grpo"}}, "unshipped": [], "protocol": {}}
    with pytest.raises(cli.BadConfig, match="no reward .*none.toml"):
        rules.note_training([run])


def test_what_a_served_adapter_was_trained_on_counts_without_an_entry_that_says_so():
    served = {"engine": "e", "base": "b", "adapter": "a", "rewards": ["read", "rendered"]}
    model = {"name": "finetuned", "served": served}
    run = {
        "summary": {"model": model},
        "unshipped": [],
        "protocol": {"protocol": "offline"},
    }
    rules.note_training([run])
    assert run["trained"]["reward"] == "read and rendered"
    assert run["trained"]["others"] == ["close", "opening", "thread", "titles"]
    served["rewards"] = ["theirs"]
    rules.note_training([run])
    assert run["trained"] == {"reward": "theirs", "shared": None, "others": []}
