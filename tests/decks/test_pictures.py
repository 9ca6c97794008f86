"""Queries become files of drawn pictures."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from decksmith.core import cli
from decksmith.measure.decks import pictures
from decksmith.measure.decks.parser import Deck
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageChops, ImageStat


def run(tmp_path, deck):
    (tmp_path / "p1").mkdir(exist_ok=True)
    (tmp_path / "p1/deck.md").write_text(deck)
    value = pictures.illustrate(tmp_path, {"id": "p1", "deck": {"path": "p1/deck.md"}})
    return value, (tmp_path / value["path"]).read_text()


@pytest.mark.parametrize(
    ("before", "after", "query"),
    [
        ("---\nimage-query: coral reef\n---\n", "---\nimage: PIC\n---\n", "coral reef"),
        (
            "---\nimage-query: 'coral: reef' # c\nlayout: image\n---\n",
            "---\nimage: PIC # c\nlayout: image\n---\n",
            "coral: reef",
        ),
        (
            "---\nlayout: image\nimage-query: >\n  coral\n  reef\nclass: a\n---\n",
            "---\nlayout: image\nimage: PIC\n\n\nclass: a\n---\n",
            "coral reef",
        ),
        (
            "---\nimage: /old.png\nimage-query: coral reef\n---\n",
            "---\nimage: PIC\nimage-query: coral reef\n---\n",
            "coral reef",
        ),
        (
            "---\nbackground: image-query://coral reef\n---\n",
            "---\nbackground: PIC\n---\n",
            "coral reef",
        ),
        ("# T\n\n![a](image-query://coral%20reef)\n", "# T\n\n![a](PIC)\n", "coral reef"),
        (
            "# T\n\n![a](image-query://coral+reef 'title')\n",
            "# T\n\n![a](PIC 'title')\n",
            "coral reef",
        ),
        ("# T\n\n![a](image-query://coral reef)\n", "# T\n\n![a](PIC)\n", "coral reef"),
        ("# T\n\n![a](<image-query://coral reef>)\n", "# T\n\n![a](<PIC>)\n", "coral reef"),
        ("# T\n\n<img src='image-query://coral reef'>\n", "# T\n\n<img src='PIC'>\n", "coral reef"),
        (
            '# T\n\n<div style="background: url(image-query://coral%20reef)">\n',
            '# T\n\n<div style="background: url(PIC)">\n',
            "coral reef",
        ),
        ("# T\n\n---\nimage-query: 42\n---\n", "# T\n\n---\nimage: PIC\n---\n", "42"),
    ],
)
def test_a_query_becomes_a_file_on_the_same_line(tmp_path, before, after, query):
    value, text = run(tmp_path, before)
    (item,) = value["items"]
    name = item["path"].removeprefix("p1/")
    assert text == after.replace("PIC", name)
    assert (
        item["query"] == query
        and "image-query" in before.split("\n")[item["line"] - 1]
        or item["line"] == 2
    )
    assert (tmp_path / item["path"]).read_bytes() == pictures.drawn(query)
    assert not Deck.parse(text).faults


@pytest.mark.parametrize(
    "deck",
    [
        "# T\n",
        "# T\n\n```md\n![a](image-query://x)\n```\n",
        "# T\n\n<!-- image-query://x -->\ntext\n",
        "# T `image-query://x`\n",
        "---\nimage-query:\n---\n",
        "---\nimage-query: [a]\n---\n",
        "---\nimage-query: a: b\n---\n",
        "# T\nimage-query: prose\n",
    ],
)
def test_a_deck_without_usable_queries_stays_the_deck(tmp_path, deck):
    value, _ = run(tmp_path, deck)
    assert value == {"path": "p1/deck.md", "items": []}
    assert sorted(p.name for p in (tmp_path / "p1").iterdir()) == ["deck.md"]


@pytest.mark.slow
@settings(max_examples=150)
@given(
    st.lists(
        st.sampled_from(
            [
                "---",
                "image-query: a",
                "image-query: >",
                "  b",
                "image: c",
                "![x](image-query://d e)",
                '<img src="image-query://f">',
                "```",
                "<!--",
                "-->",
                "# t",
                "",
                "k: image-query://g",
                "{image-query: h, i: j}",
                "image-query: |",
                "'image-query': k",
            ]
        ),
        max_size=20,
    ).map("\n".join)
)
def test_line_count_and_other_lines_never_change(text):
    deck = Deck.parse(text)
    new, at = [], 0
    for q in deck.queries:
        assert (
            at <= q.start < q.stop <= len(deck.text)
            and deck.text.count("\n", 0, q.start) + 1 == q.line
        )
        new += [deck.text[at : q.start], "PIC" + "\n" * deck.text.count("\n", q.start, q.stop)]
        at = q.stop
    assert ("".join(new) + deck.text[at:]).count("\n") == deck.text.count("\n")


@pytest.mark.slow
def test_hostile_queries_stay_in_the_folder_and_are_cut(tmp_path):
    value, _ = run(
        tmp_path,
        "---\nimage-query: ../../../etc/passwd\n---\n# a\n\n![](image-query://%2e%2e%2f%00%0a"
        + "x" * 5000
        + ")\n",
    )
    assert (
        all(len(i["query"]) <= pictures.QUERY_LENGTH for i in value["items"])
        and len(value["items"]) == 2
    )
    assert {p.parent for p in tmp_path.rglob("*.jpg") if "cache" not in p.parts} == {
        tmp_path / "p1/images"
    }


def test_many_queries_share_pictures_and_old_pictures_go_but_not_the_decks_own(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(pictures, "PICTURES_PER_DECK", 4)
    (tmp_path / "p1/images").mkdir(parents=True)
    for name in ("0123456789abcdef.png", "own.png"):
        (tmp_path / "p1/images" / name).write_bytes(b"x")
    deck = "# T\n\n" + "\n".join(f"![](image-query://mountain{i})" for i in range(40))
    asked, choose = [], pictures.drawn
    monkeypatch.setattr(pictures, "drawn", lambda words: asked.append(words) or choose(words))
    value, text = run(tmp_path, deck)
    assert len(value["items"]) == 40 and "image-query" not in text
    kept = {path.name for path in (tmp_path / "p1/images").iterdir()}
    made = {Path(item["path"]).name for item in value["items"]}
    assert len(asked) == 4 and kept == made | {"own.png"}


FILES = sorted(pictures.DRAWN.glob("*.jpg"))


def test_the_folder_of_drawn_pictures_has_one_for_each_palette_and_stays_small():
    listed = tomllib.loads((pictures.DRAWN / "pictures.toml").read_text())["topic"]
    names = [f"{t['name']}-{k}" for t in listed for k in range(1, len(t["palettes"]) + 1)]
    assert sorted(names) == [path.stem for path in FILES] and len(FILES) == 24
    assert sum(path.stat().st_size for path in FILES) < 500_000


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_drawn_picture_is_a_plain_jpeg_with_many_tones(path):
    image = Image.open(path)
    assert (image.format, image.size, image.mode) == ("JPEG", (1120, 630), "RGB")
    assert not image.getexif() and len(image.resize((160, 90)).getcolors(20000)) > 60


@pytest.mark.slow
@pytest.mark.long("test_a_drawn_picture_is_a_plain_jpeg_with_many_tones")
def test_the_program_draws_the_pictures_again(tmp_path):
    subprocess.run([sys.executable, pictures.DRAWN / "draw.py", tmp_path], check=True)
    for path in FILES:
        again = Image.open(tmp_path / path.name)
        apart = ImageChops.difference(Image.open(path), again)  # another Pillow may round otherwise
        assert max(ImageStat.Stat(apart).mean) < 2, path.name


def test_the_words_of_a_query_choose_the_picture():
    chosen = pictures.drawn("Jazz concert")
    assert chosen == pictures.drawn("jazz concert") == (pictures.DRAWN / "rings-1.jpg").read_bytes()
    assert pictures.drawn("mountains in winter") in [
        p.read_bytes() for p in FILES if "ridges" in p.name
    ]
    unknown = {pictures.drawn(f"qwertz{'x' * k}") for k in range(40)}
    assert len(unknown) > 10, "where no topic is named, all pictures serve"


def test_a_missing_deck_names_the_folder():
    with pytest.raises(cli.Missing, match="p1/deck.md"):
        pictures.illustrate(Path("/nonexistent"), {"id": "p1", "deck": {"path": "p1/deck.md"}})
