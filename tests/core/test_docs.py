"""What the pages say of the scripts, and every figure in them, is what the code says."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from decksmith.core import cli, records

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

import readme  # noqa: E402

SAID = {
    "README.md": ["the {core} core prompts", "Python 3.11"],
    "docs/protocol.md": ["computes {items} values"],
}
TEXTS = {
    "README.md": "Python 3.11 judges the {core}\ncore prompts, `9 decks` and [this](9%20px).\n",
    "docs/protocol.md": 'It computes {items} values.\n\n```json\n{"x": 0.55}\n```\n',
}


def state(**changes):
    """Numbers and pages that agree with the code, with these changes to the texts."""
    values = readme.figures()
    texts = {
        name: text.replace("{core}", values["core"]).replace("{items}", values["items"])
        for name, text in TEXTS.items()
    }
    for name, text in changes.items():
        texts[{"readme": "README.md", "protocol": "docs/protocol.md"}[name]] += text
    return {"figures": values, "said": SAID}, texts


def test_every_figure_is_up_to_date():
    done = subprocess.run(
        [sys.executable, ROOT / "tests/readme.py", "--check"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_figures_that_agree_are_passed():
    assert readme.behind(*state()) == []


@pytest.mark.parametrize(
    "claim",
    [
        "It is 3.5x faster.",
        "3.5 × faster",
        "It takes 40 % less.",
        "(1,200 decks)",
        "12 broken decks",
        "in 15 ms",
        "costs 0.38 of it",
        "[0.09, 1]",
        "-0.30",
        "99.9%",
        "It has 7 themes",
        "3 MiB",
        "| 14 languages |",
    ],
)
def test_a_figure_that_nobody_vouches_for_is_named_with_its_line(claim):
    wrong = readme.behind(*state(readme=f"\n{claim}\n"))
    assert len(wrong) == 1 and wrong[0].startswith("README.md:4: "), wrong


@pytest.mark.parametrize(
    "words",
    [
        "p017",
        "version 24.19.0",
        "980 x 552",
        "issue 4",
        "LIMIT=30",
        "127.0.0.1",
        "https://x.org/3%20x",
        "from 1 to 5",
        "kill -9",
        "exit 65",
        "in 2026",
        "gpt-5.4 decks",
        '```json\n{"a": 0.5}\n```',
    ],
)
def test_what_claims_nothing_is_let_be(words):
    assert readme.behind(*state(readme=f"\n{words}\n")) == []


def test_a_changed_figure_a_lost_phrase_and_an_unknown_name_are_told_apart():
    numbers, texts = state()
    core = numbers["figures"]["core"]
    stale = {**texts, "README.md": texts["README.md"].replace(core, "29")}
    assert readme.behind(numbers, stale) == [
        f"README.md says 29 in 'the {{core}} core prompts', and core is {core}: run make numbers"
    ]
    gone = {**texts, "docs/protocol.md": "Nothing.\n"}
    assert readme.behind(numbers, gone) == [
        "docs/protocol.md no longer says 'computes {items} values': mend or delete the phrase in docs/numbers.json"
    ]
    old = {**numbers, "figures": {**numbers["figures"], "core": "29"}}
    assert readme.behind(old, texts) == [
        f"docs/numbers.json: core is 29, and now {core}: run make numbers"
    ]
    odd = {**numbers, "said": {**SAID, "docs/records.md": ["{nothing} decks"]}}
    assert readme.behind(odd, texts) == [
        "docs/numbers.json: docs/records.md: '{nothing} decks' names a figure that nobody computes: nothing"
    ]


def test_figures_are_written_into_pages_whatever_the_line_breaks():
    text = "a 1 b 22 c\nthe 29\ncore prompts, the 1,000 core prompts.\n0.40 V + 0.25 D."
    values = {"core": "31", "v": "0.5", "d": "0.125"}
    assert readme.written(text, ["the {core} core prompts", "{v} V + {d} D"], values) == (
        "a 1 b 22 c\nthe 31\ncore prompts, the 31 core prompts.\n0.5 V + 0.125 D."
    )


def test_a_generated_table_is_checked_where_it_is_made():
    table = "| a | b |\n|---|---|\n| 0.5 | 9 px |\n"
    assert len(readme.behind(*state(readme=f"\n{table}"))) == 2
    numbers, texts = state(readme=f"\n{table}\n3 px\n")
    assert readme.behind(
        {**numbers, "said": {**SAID, "README.md": [*SAID["README.md"], "| a | b |"]}}, texts
    ) == [
        "README.md:8: '3 px' is a figure that nobody vouches for: give docs/numbers.json a phrase for it"
    ]


def test_a_table_of_fields_is_made_of_its_type_and_claims_no_figures():
    old = "One:\n\n<!-- fields: Sample -->\n| `old` | 9 px |\n\nTwo.\n"
    new = readme.with_fields(old)
    assert new.replace(readme.fields("Sample"), "") == "One:\n\n<!-- fields: Sample -->\n\nTwo.\n"
    assert readme.fields("Sample").splitlines()[:2] == [
        "| `Sample` | holds | what it is |",
        "|---|---|---|",
    ]
    assert readme.fields("Sample").splitlines()[3].startswith("| `k` | integer | from 0")
    assert readme.unvouched(old, ()) == []


SAMPLE = readme.TYPES["Sample"]


@pytest.mark.parametrize(
    "hint, said",
    [
        (records.NotRequired[int | None], "integer or null"),
        (records.Kind, "`model` or `renderer` or `judge` or `infra`"),
        (list[SAMPLE], "list of Sample"),
        (dict[str, list[str]], "object of list of text"),
        (records.Record, "object"),
    ],
)
def test_a_type_is_said_in_the_words_of_json(hint, said):
    assert readme.kind(hint) == said


def test_every_type_whose_keys_are_explained_has_its_table():
    pages = [ROOT / "docs/records.md", *sorted((ROOT / "docs/records").glob("*.md"))]
    text = "".join(page.read_text() for page in pages)
    # Types of what one room keeps for itself say what their keys are in comments.
    explained = {name for name in readme.TYPES if readme.is_explained(name)}
    assert explained == {match[1] for match in readme.FIELDS.finditer(text)}


def test_a_measured_figure_is_read_from_the_page_of_its_bench():
    page = (ROOT / "docs/maintain/speed.md").read_text()
    assert (
        f"| chat-generate | {readme.cell('maintain/speed.md', '| client |', 'chat-generate', 1)} | {readme.figures()['client_cpu_ratio']} |"
        in page
    )
    assert readme.cell("maintain/speed.md", "| client |", "no such client", 2) is None
    assert readme.cell("no-such-page.md", "| client |", "chat-generate", 2) is None


def test_the_manifest_is_as_the_tool_writes_it():
    text = (ROOT / "docs/numbers.json").read_text()
    assert text == json.dumps(json.loads(text), indent=1, ensure_ascii=False) + "\n"


@pytest.mark.slow
@pytest.mark.parametrize("page", ["README.md", "docs/tutorial.md"])
def test_the_first_pages_have_sentences_of_at_most_25_words(page):
    text = re.sub(r"```.*?```", "", (cli.ROOT / page).read_text(), flags=re.DOTALL)
    text = re.sub(r"`[^`]*`", "x", re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text))
    blocks = re.split(r"\n\s*\n|\n(?=[*#-] )", text)
    prose = [" ".join(block.split()) for block in blocks if not block.lstrip().startswith("|")]
    sentences = [one for block in prose for one in re.split(r"(?<=[.!?]) ", block)]
    assert len(sentences) > 20
    assert [one for one in sentences if len(re.findall(r"\S*\w\S*", one)) > 25] == []


def test_the_readme_fits_two_screens():
    assert len((cli.ROOT / "README.md").read_text().splitlines()) <= 100
