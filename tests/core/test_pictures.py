"""Each picture of the docs shows what there is today, and a picture that does not is named: `make screenshots` takes them."""

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

import pictures  # noqa: E402

SHOWS = ["assets/web/vote.css", "the words of lib/vote.py", "data/*.md"]


def test_every_picture_shows_what_there_is_today():
    assert pictures.behind() == []


def test_every_picture_has_words_for_who_cannot_see_it():
    assert [(page, path) for page, alt, path in pictures.in_pages(ROOT) if not alt.strip()] == []


def test_every_picture_that_can_be_taken_is_in_the_manifest():
    assert sorted(json.loads((ROOT / pictures.MANIFEST).read_text())) == sorted(pictures.PICTURES)


@pytest.fixture
def root(tmp_path):
    """A checkout with one picture that is as it should be."""
    texts = {
        "README.md": "![A vote](docs/vote.png)\n",
        "assets/web/vote.css": "/* wide */\np { color: red }\n",
        "lib/vote.py": 'def say():\n    """Say it."""\n    return "a fine deck"\n',
        "data/a.md": "# A\n",
        "docs/vote.png": "picture",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    pictures.note("docs/vote.png", SHOWS, root=tmp_path)
    assert pictures.behind(tmp_path) == []
    return tmp_path


@pytest.mark.parametrize(
    ("name", "text", "wrong"),
    [
        ("assets/web/vote.css", "p { color: blue }", "is older than assets/web/vote.css"),
        (
            "lib/vote.py",
            'def say():\n    return "a bad deck"',
            "is older than the words of lib/vote.py",
        ),
        ("data/a.md", "# B\n", "is older than data/*.md"),
        ("data/b.md", "# B\n", "is older than data/*.md"),
        ("docs/vote.png", "painted", "is not the picture that make screenshots made"),
        ("README.md", "none", "no page shows it; delete it, and its line in docs/pictures.json"),
        ("docs/more.png", "x", "docs/pictures.json does not know it"),
    ],
)
def test_what_changed_is_named_with_its_picture_and_the_command(root, name, text, wrong):
    (root / name).write_text(text)
    (sentence,) = pictures.behind(root)
    assert wrong in sentence
    assert sentence.startswith("docs/more.png: " if "more" in name else "docs/vote.png")
    assert "older" not in wrong or sentence.endswith(": make screenshots")


def test_a_picture_or_what_it_shows_that_is_gone_is_named(root):
    (root / "assets/web/vote.css").unlink()
    assert pictures.behind(root) == [
        "docs/vote.png is older than assets/web/vote.css: make screenshots"
    ]
    (root / "docs/vote.png").unlink()
    assert pictures.behind(root) == [
        "docs/vote.png of docs/pictures.json is not there: make screenshots"
    ]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("assets/web/vote.css", "p {  color: red } /* or blue */"),
        (
            "assets/web/vote.css",
            "@media print { p { color: black } i { top: 0 } } p { color: red }",
        ),
        ("assets/web/vote.css", "p { color: red }\n@media (max-width: 640px) { p { top: 0 } }"),
        ("lib/vote.py", 'TEXT = "a fine deck"  # once\nKEY = "key"\n'),
    ],
)
def test_what_cannot_show_makes_no_picture_old(root, name, text):
    (root / name).write_text(text)
    assert pictures.behind(root) == []


def test_comments_are_left_out_and_addresses_are_not(tmp_path):
    page = tmp_path / "page.js"
    page.write_text("// what it is\nconst a = 'https://x.org/a'; // where\n{# jinja\n #} run()\n")
    assert pictures.content(page) == "const a = 'https://x.org/a'; run()"


def test_nothing_is_noted_of_what_is_not_there(root):
    with pytest.raises(SystemExit, match=r"docs/vote.png: nothing is called lib/gone.py"):
        pictures.note("docs/vote.png", ["lib/gone.py"], root=root)


def test_the_report_is_of_the_models_and_prompts_that_make_baseline_takes_today():
    said = pictures.value("the defaults of make/measure.mk")
    assert said == "Reference authors, SmolLM2 135M, SmolLM2 135M (fine-tuned): 6 prompts"
    assert len(pictures.value(pictures.HASH)) == 12


def test_a_picture_that_cannot_be_taken_is_named_and_the_next_is_taken(monkeypatch):
    def fails(_, out):
        pictures.run("false", out.name)

    taken = []
    both = {"a.png": pictures.Picture([], fails), "b.png": pictures.Picture([], lambda *_: None)}
    monkeypatch.setattr(pictures, "PICTURES", both)
    monkeypatch.setattr(pictures, "note", lambda name, *_: taken.append(name))
    monkeypatch.setattr(sys, "argv", ["pictures.py"])
    with pytest.raises(SystemExit) as said:
        pictures.main()
    assert str(said.value) == "a.png is as it was: false a.png ended with 1"
    assert taken == ["b.png"]
