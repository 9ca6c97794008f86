import pytest
from decksmith.core import cli
from decksmith.train.corpus import chat_rows


def rows(n, first=0, **more):
    return [
        {
            "id": f"s{k:04d}",
            "messages": [{"role": "user", "content": f"request {k}"}],
            **more,
            "seed": {
                "theme": ("default", "seriph", "apple-basic")[k % 3],
                "domain": f"d{k % 7}",
                "language": "en",
            },
        }
        for k in range(first, first + n)
    ]


def test_each_theme_gives_its_share_spread_over_the_domains():
    sides = chat_rows.assign(rows(630), 0.1, {})
    report = chat_rows.report(rows(630), sides, 0.1)
    assert report["test"]["theme"] == {"apple-basic": 21, "default": 21, "seriph": 21}
    assert all(8 <= n <= 10 for n in report["test"]["domain"].values())


def test_the_place_of_a_row_decides_nothing():
    some = rows(200)
    assert chat_rows.assign(some, 0.1, {}) == chat_rows.assign(some[::-1], 0.1, {})


def test_rows_that_come_later_move_none():
    first = chat_rows.assign(rows(200), 0.1, {})
    later = chat_rows.assign(rows(500), 0.1, first)
    assert {ident: later[ident] for ident in first} == first
    assert sum(side == "test" for side in later.values()) == pytest.approx(50, abs=3)


def test_a_cluster_is_never_parted():
    some = rows(120)
    for k, row in enumerate(some):
        row["overlap"] = {"cluster": f"s{k // 4:04d}"}
    sides = chat_rows.assign(some, 0.2, {})
    assert all(len({sides[row["id"]] for row in some[k : k + 4]}) == 1 for k in range(0, 120, 4))
    assert sum(side == "test" for side in sides.values()) == pytest.approx(24, abs=8)


def test_a_new_row_follows_its_cluster_and_a_bridge_between_the_sides_is_left_out():
    old, new = rows(2), rows(1, 2)
    for row in (*old, *new):
        row["overlap"] = {"cluster": "s0000"}
    assert chat_rows.assign([old[0], *new], 0.1, {"s0000": "test"})["s0002"] == "test"
    assert chat_rows.assign([*old, *new], 0.1, {"s0000": "test", "s0001": "train"}) == {
        "s0000": "test",
        "s0001": "train",
        "s0002": None,
    }


def test_a_damaged_list_is_named_by_line(tmp_path):
    (tmp_path / "split.tsv").write_text("a\ttrain\nb\n")
    with pytest.raises(
        cli.BadData, match=r"split\.tsv:2: expected an id, a tab, and train or test"
    ):
        chat_rows.frozen(tmp_path / "split.tsv")
    (tmp_path / "split.tsv").write_text("a\ttrain\na\ttest\n")
    with pytest.raises(cli.BadData, match=r"split\.tsv:2"):
        chat_rows.frozen(tmp_path / "split.tsv")
