"""The pages' links lead somewhere, and the pages for newcomers are read in one breath a sentence."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    path.relative_to(ROOT).as_posix() for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
)
# Written for whoever is here for the first time: no sentence of more than LONGEST words.
SHORT = (
    "README.md",
    "CONTRIBUTING.md",
    "docs/costs.md",
    "docs/maintain/figures.md",
    "docs/glossary.md",
    "docs/troubleshooting.md",
    "docs/tutorial.md",
)
LONGEST = 25
LINK = re.compile(r"\]\(([^)\s]+)\)")


def prose(text: str) -> str:
    """A page without code, tables, comments and the targets of links; a code span is one word."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)
    text = re.sub(r"^(?:    |\|).*$", "", text, flags=re.M)
    text = re.sub(r"`[^`]+`", "code", text)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.S)
    return LINK.sub("]", text)


def sentences(text: str) -> list[str]:
    """The sentences of a page; a heading, a paragraph, an item of a list and a colon end one too."""
    parts = re.split(r"\n\s*\n|\n\s*(?:[-*]|\d+\.)\s|\n#+ |(?<=[.!?:])\s", prose(text))
    return [" ".join(part.split()) for part in parts if part.strip()]


def anchors(text: str) -> set[str]:
    """The anchors that a page's headings have, as GitHub and MkDocs name them."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)
    headings = re.findall(r"^#+ (.*)$", text, re.M)
    words = (re.sub(r"[^\w\- ]", "", LINK.sub("]", heading).lower()) for heading in headings)
    return {word.strip().replace(" ", "-") for word in words}


def broken(page: Path) -> list[str]:
    """The relative links of a page that lead nowhere."""
    text = re.sub(r"`[^`\n]*`", "", page.read_text())
    wrong = []
    for target in LINK.findall(text):
        if re.match(r"[a-z]+:", target):
            continue
        place, _, anchor = target.partition("#")
        path = page.parent / place if place else page
        if not path.exists() or anchor and anchor not in anchors(path.read_text()):
            wrong.append(target)
    return wrong


@pytest.mark.parametrize("name", PAGES)
def test_every_link_of_a_page_leads_somewhere(name):
    assert broken(ROOT / name) == []


@pytest.mark.parametrize("name", SHORT)
def test_no_sentence_is_longer_than_a_breath(name):
    long = [said for said in sentences((ROOT / name).read_text()) if len(said.split()) > LONGEST]
    assert long == []


@pytest.mark.parametrize("name", PAGES)
def test_every_command_of_a_page_is_there(name):
    text = (ROOT / name).read_text()
    code = "\n".join([*re.findall(r"`([^`\n]+)`", text), *re.findall(r"(?s)```.*?```", text)])
    code += "\n".join(re.findall(r"^    .*$", text, re.M))
    rules = "\n".join(path.read_text() for path in [ROOT / "Makefile", *ROOT.glob("make/*.mk")])
    targets = set(" ".join(re.findall(r"^([\w -]+):(?!=)", rules, re.M)).split())
    asked = set(re.findall(r"^ *(?:\w+=\S+ )?make ([a-z][\w-]*)(?![\w./=])", code, re.M))
    assert {word for word in asked if not word.startswith("image")} <= targets
    scripts = set(re.findall(r"(?:^|[ |;])bin/([a-z]+-[a-z]+)", code, re.M))
    assert [script for script in scripts if not (ROOT / "bin" / script).is_file()] == []


def said_by_the_code() -> str:
    """The text of what may say something to a user, split strings joined."""
    paths = [
        *ROOT.glob("lib/**/*.py"),
        *ROOT.glob("bin/*"),
        *ROOT.glob("make/*"),
        ROOT / "Makefile",
    ]
    found = [*paths, *ROOT.glob("slurm/*.s*")]
    text = "".join(path.read_text() for path in found if path.is_file())
    text = re.sub(r'"\s*\n\s*f?"', "", text)
    return re.sub(r'\{[^{}"\n]*\}', "..", text)


def test_troubleshooting_quotes_what_the_code_says():
    page = (ROOT / "docs/troubleshooting.md").read_text()
    headings = re.findall(r"^### (.*)$", page, re.M)
    code = said_by_the_code()
    quoted = [span for heading in headings for span in re.findall(r"`([^`]+)`", heading)]
    parts = [part.strip(" .,;:") for span in quoted for part in span.split("..")]
    assert len(quoted) > 30
    assert [part for part in parts if part not in code] == []


@pytest.mark.slow
def test_the_site_is_built_and_loads_nothing_from_elsewhere(tmp_path):
    pytest.importorskip("mkdocs", reason="make .venv/.docs installs it")
    command = [sys.executable, ROOT / "tests/docs_site.py", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    pages = list(tmp_path.glob("*.html"))
    assert {"index.html", "tutorial.html", "CONTRIBUTING.html"} <= {page.name for page in pages}
    loads = re.compile(r"<(?:script|img|iframe|link)[^>]*(?:src|href)=[\"']?(?:https?:)?//[^>]*>")
    for page in pages:
        assert loads.findall(page.read_text()) == [], page.name
    assert "troubleshooting" in (tmp_path / "search/search_index.json").read_text()


def test_every_script_is_named_by_a_noun_and_a_verb_of_contributing():
    page = (ROOT / "CONTRIBUTING.md").read_text()
    nouns, verbs = (
        set(re.search(rf"^ *{kind}: ((?:.+\n)+)", page, re.M)[1].split())
        for kind in ("nouns", "verbs")
    )
    names = [path.name.split("-") for path in (ROOT / "bin").glob("*-*")]
    assert [name for name in names if name[0] not in nouns or name[1] not in verbs] == []


def test_a_link_that_leads_nowhere_is_found(tmp_path):
    page = tmp_path / "a.md"
    page.write_text("# One two\n\n[x](b.md) [y](#one-two) [z](#three) `[c](d)`\n")
    assert broken(page) == ["b.md", "#three"]


def test_words_are_counted_by_sentence():
    text = "# A head\n\nOne two `a b c` [three](x.md).\nFour:\n\n    code code\n\n* five\n  six\n"
    assert sentences(text) == ["# A head", "One two code [three].", "Four:", "* five six"]
