"""A template: what is read of it, what a model is told, what is found in a deck that departs from it, and how it is rendered."""

import asyncio
import base64
import json
import re

import pytest
from decksmith.core import cli
from decksmith.core.protocol import Protocol
from decksmith.measure.decks import clean, conditions, features, lint, template_head, templates
from decksmith.measure.render import pool
from decksmith.people.demo import writer
from decksmith.train.corpus import author_model, authors, chat_rows, check, drafts, rules

COMPANY = cli.ROOT / "data/templates/company.md"
RECORD = {
    "id": "p1",
    "messages": [{"role": "system", "content": "Decks."}, {"role": "user", "content": "Huts"}],
}
PLAIN = "---\ntitle: Huts\n---\n\n# Huts\n\n---\nlayout: fact\n---\n\n# 11 weeks\n\n---\n\n# Three jobs\n\n- one\n"
LOUD = """---
theme: seriph
fonts:
  sans: Lobster
---

# Huts

<p style="color:#123456;font-family:'Lobster'">Loud</p> [a link](#abcdef), ticket #123

---
layout: quote
class: text-red-500
---

# Quote <b style="color: #0B6E69; background: rgba(255, 255, 255, .5)">fine</b>

```css
p { color: #999999 }
```

---

# Third

```mermaid
graph LR
  a --> b
  style a fill:#f00
```
"""


@pytest.fixture
def company():
    return templates.read(COMPANY)


def test_the_shipped_template_tells_a_model_its_theme_layouts_colours_and_the_logos_place(company):
    told = company.system()
    assert "`theme: default`" in told and "cover, section, default" in told
    assert "#0b6e69" in told and "168 x 44 px at 788, 496" in told
    assert "```css" not in told and company.css in company.style()["css"]
    logo = re.search(r'url\("data:image/svg\+xml;base64,([^"]+)"\)', company.style()["css"])
    assert base64.b64decode(logo[1]) == (COMPANY.parent / "logo.svg").read_bytes()


def test_the_families_are_those_that_the_renderer_has():
    fonts = (cli.ROOT / "assets/renderer/fonts.mjs").read_text()
    for family in template_head.FONTS:
        assert f"['{family}'," in fonts


@pytest.mark.parametrize(
    "old, new, why",
    [
        ("theme: default", "theme: fancy", "company.md:2: theme: 'fancy' is not one of academic"),
        ("theme: default", "themes: x", "company.md:2: unknown key 'themes'"),
        (
            "Nunito Sans",
            "Comic Sans",
            "company.md:3: fonts: text: Comic Sans is not one of Nunito",
        ),
        ('"#f2a33a"', "orange", "company.md:6: colours: accent: write it"),
        ("file: logo.svg", "file: none.svg", "company.md:12: logo: .*No such file"),
        ("file: logo.svg", "file: logo.html", "logo.html is none of .svg"),
        ("[788, 496, 168, 44]", "[900, 496, 168, 44]", r"logo: place: write \[x, y, width"),
        ("- `fact`:", "- `facts`:", "company.md:25: the layout facts exists neither"),
        ("  color: #10333f;", '  src: url("a.png");', "company.md:32: the style loads a file"),
        ("---\ntheme", "theme", "company.md:1: a template begins with a frontmatter"),
    ],
)
def test_a_wrong_template_names_file_line_and_what_to_write(tmp_path, old, new, why):
    text = COMPANY.read_text()
    assert old in text
    (tmp_path / "company.md").write_text(text.replace(old, new, 1))
    (tmp_path / "logo.svg").write_bytes((COMPANY.parent / "logo.svg").read_bytes())
    with pytest.raises(cli.BadConfig, match=why):
        templates.read(tmp_path / "company.md")


def test_a_deck_that_follows_it_has_no_findings_and_one_that_does_not_has_them_by_line(company):
    assert templates.findings(company, PLAIN) == []
    found = [(f["line"], f["slide"], f["check"]) for f in templates.findings(company, LOUD)]
    assert found == [
        (2, 1, "template-theme"),
        (3, 1, "template-font"),
        (9, 1, "template-font"),
        (9, 1, "template-colour"),
        (12, 2, "template-layout"),
        (13, 2, "template-colour"),
        (29, 3, "template-colour"),
    ]


@pytest.mark.parametrize("text", ["", "---\n---\n", "<" * 5000, "---\nfonts: [\n---\n# A\n" * 50])
def test_no_text_breaks_the_findings(company, text):
    assert isinstance(templates.findings(company, text), list)


def test_a_template_is_a_condition_by_its_name(company, tmp_path, monkeypatch):
    alone, behind = conditions.load("company"), conditions.load("cheatsheet+company")
    assert (alone.name, behind.name) == ("company", "cheatsheet+company")
    assert alone.adds() == ["template company"] and len(behind.adds()) == 2
    system = behind.messages(RECORD)[0]["content"]
    sheet = conditions.load("cheatsheet").system
    assert system == f"Decks.\n\n{sheet}\n\n{company.system()}"
    assert conditions.held(json.loads(json.dumps(behind.dumped()))) == behind
    assert alone.asked()["template"] == templates.tag(company)
    assert alone.asked()["sha256"] != behind.asked()["sha256"]
    (tmp_path / "revise.md").write_text(
        "\n".join(COMPANY.read_text().split("\n")[:3] + ["---", "- `fact`: a"])
    )
    monkeypatch.setenv("DECKSMITH_TEMPLATES", str(tmp_path))
    with pytest.raises(cli.BadConfig, match="revise has the name of a condition"):
        conditions.load("cheatsheet+revise")
    with pytest.raises(cli.BadConfig, match="none.md: .*No such file"):
        conditions.load("cheatsheet+none")


def test_a_deck_of_a_run_is_under_the_template_of_its_reply_and_of_no_other(company, tmp_path):
    gen = {"text": LOUD, "condition": conditions.load("company").asked()}
    record = {"id": "p1", "gen": gen}
    bare = clean.inputs({"gen": {"text": LOUD}})
    assert bare == ["clean-2", LOUD, None] and clean.inputs(record) != bare
    record["deck"] = clean.parse(tmp_path, record)
    with pytest.raises(cli.BadData, match="p1: .*template.json"):
        pool.dress(tmp_path, record)
    templates.put(tmp_path, company)
    assert pool.dress(tmp_path, record) == [company.style()]
    assert features.scan(tmp_path, record)["template"]["findings"]["template-colour"] == 3
    record["render"] = {"slides": [], "xray": [], "errors": []}
    rules_found = {one["check"] for one in lint.examine(tmp_path, record)["findings"]}
    assert rules_found == {*templates.RULES} - {"template-logo"}
    (tmp_path / "template.json").write_text(
        (tmp_path / "template.json").read_text().replace("11", "12")
    )
    other = company.__class__(**{**vars(company), "told": "Something else."})
    templates.put(tmp_path, other)
    with pytest.raises(cli.BadData, match="another template than the deck's"):
        templates.of(tmp_path, record)


def test_a_draft_under_a_template_is_told_it_held_to_it_and_packed_with_it(company, tmp_path):
    gold = next(drafts.GOLD.glob("g001*"))
    seed = {**drafts.seed(gold), "theme": "default"}
    seed["template"] = templates.put(tmp_path, company)
    folder = tmp_path / "work" / "s1"
    folder.mkdir(parents=True)
    authors.give(folder, "s1", seed)
    assert (folder / "INSTRUCTIONS.md").read_text().endswith(f"{company.system()}\n")
    for name in drafts.FILES:
        (folder / name).write_bytes((gold / name).read_bytes())
    (folder / "deck.md").write_text(LOUD)
    faults = [one for one in rules.faults(folder, seed) if one["rule"].startswith("template-")]
    assert len(faults) == 7 and faults[0]["remedy"] == "follow the template"
    model = author_model.ModelAuthor.__new__(author_model.ModelAuthor)
    asked = model._messages(folder, seed, "deck.md", "")
    assert asked[0]["content"].endswith(company.system()) and "sha256" not in asked[1]["content"]
    record = {"id": "s1", "seed": seed, "draft": {"path": "work/s1"}}
    assert chat_rows.row(tmp_path, record)["messages"][0]["content"].endswith(company.system())
    assert check.Checker(tmp_path, None, jobs=1, scratch=tmp_path).inputs(record)[1][
        "template"
    ] == templates.tag(company)


def test_the_demo_asks_under_its_template(company):
    asked = {"prompt": "Huts"}
    assert writer.messages(asked, company)[0]["content"].endswith(company.system())
    assert company.system() not in writer.messages(asked)[0]["content"]


@pytest.mark.long(
    "tests/render/test_agents.py::test_a_deck_is_drawn_and_found_faults_in_and_a_hostile_one_ends_nothing"
)
@pytest.mark.browser
def test_a_template_is_rendered_its_logo_found_and_a_deck_without_a_theme_gets_its_own(
    company, tmp_path
):
    text = COMPANY.read_text().replace("theme: default", "theme: seriph")
    for name, data in (
        ("mine.md", text.encode()),
        ("logo.svg", (COMPANY.parent / "logo.svg").read_bytes()),
    ):
        (tmp_path / name).write_bytes(data)
    mine = templates.read(tmp_path / "mine.md")
    hides = (
        PLAIN
        + '\n<div class="absolute left-0 top-0 w-full h-full" style="background:#10333f;z-index:99">over</div>\n'
    )
    hides += "\n<style>\n:global(.slidev-page::after) { display: none !important; }\n</style>\n"

    async def drawn():
        at = pool.Pool(Protocol.load("offline"))
        try:
            given = (("good", PLAIN, mine), ("hides", hides, mine), ("other", PLAIN, company))
            return [await one(at, *each) for each in given]
        finally:
            await at.close()

    async def one(at, name, text, template):
        (tmp_path / name).mkdir()
        (tmp_path / name / "deck.md").write_text(text)
        deck = {"path": f"{name}/deck.md", "template": templates.put(tmp_path, template)}
        record = {"id": name, "deck": deck}
        record["render"] = await at.render(tmp_path, record)
        return record, lint.examine(tmp_path, record)["findings"]

    (good, found), (_, lost), (_, also) = asyncio.run(drawn())
    assert good["render"]["status"] == "ok"
    assert [f for f in [*found, *also] if "template" in f["check"]] == []
    assert (3, "template-logo") in [(f["slide"], f["check"]) for f in lost]
    pictures = [(tmp_path / name / "slides/01.png").read_bytes() for name in ("good", "other")]
    assert pictures[0] != pictures[1]  # one in the theme seriph, one in default
