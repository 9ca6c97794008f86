"""A protocol that extends another holds what the other says, but for its own keys."""

import shutil
import tomllib

import pytest
from decksmith.core import cli, config_files
from decksmith.core.protocol import Protocol

SHIPPED = cli.ROOT / "assets/protocols"


def written(folder, text, name="mine"):
    path = folder / f"{name}.toml"
    path.write_text(text)
    return path


def test_what_a_protocol_does_not_say_is_what_the_extended_one_says(tmp_path):
    text = 'name = "mine"\nextends = "published"\n[score.weights]\ndesign = 0.7\n'
    mine = Protocol.load(written(tmp_path, text))
    published = Protocol.load("published")
    assert mine.name == "mine"
    assert mine.score["weights"] == {**published.score["weights"], "design": 0.7}
    assert mine.judge == published.judge and mine.sampling == published.sampling


def test_a_table_of_another_kind_takes_nothing_from_the_extended_one(tmp_path):
    written(tmp_path, 'extends = "published"\n[judge]\nkind = "coin"\nsides = 2\n')
    found = config_files.read(tmp_path / "mine.toml", SHIPPED)
    assert found["judge"] == {"kind": "coin", "sides": 2}
    written(tmp_path, 'extends = "published"\n[judge]\nkind = "vision"\nretries = 0\n')
    judge = config_files.read(tmp_path / "mine.toml", SHIPPED)["judge"]
    assert judge == {**Protocol.load("published").judge, "retries": 0}


def test_a_file_beside_it_comes_before_the_shipped_one(tmp_path):
    shutil.copy(SHIPPED / "offline.toml", tmp_path)
    changed = (tmp_path / "offline.toml").read_text().replace("seed = 1", "seed = 9")
    (tmp_path / "offline.toml").write_text(changed)
    mine = Protocol.load(written(tmp_path, 'name = "mine"\nextends = "offline"\n'))
    assert mine.sampling["seed"] == 9


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('extends = "ofline"', "extends: no 'ofline' beside it .* offline, open, published"),
        ("extends = 3", "extends: no 3"),
        ('extends = "other"', "extends: other.toml extends another itself"),
        ('extends = "mine"', "extends: no 'mine'"),
        ('extends = "offline"\n[render]\nscale = 7', "render.scale: 7 is greater"),
    ],
)
def test_what_cannot_be_extended_is_named(tmp_path, text, message):
    written(tmp_path, 'name = "other"\nextends = "offline"\n', "other")
    with pytest.raises(cli.BadConfig, match=f"mine.toml: {message}"):
        Protocol.load(written(tmp_path, f'name = "mine"\n{text}\n'))


def test_tables_are_merged_and_lists_are_replaced(tmp_path):
    written(tmp_path, "a = [1, 2]\n[t]\nx = 1\n[t.u]\ny = 2\n", "base")
    path = written(tmp_path, 'extends = "base"\na = [3]\n[t.u]\nz = 4\n')
    assert config_files.read(path, tmp_path) == {"a": [3], "t": {"x": 1, "u": {"y": 2, "z": 4}}}
    assert tomllib.loads("a = 1") == config_files.read(written(tmp_path, "a = 1"), tmp_path)
