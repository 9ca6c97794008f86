"""The corpus: what drafts must keep to, what becomes a chat row."""

import asyncio
import json
import re
import shutil
from pathlib import Path

import pytest
from decksmith.core import stream
from decksmith.core.protocol import Protocol
from decksmith.measure.decks import templates
from decksmith.measure.decks.parser import LAYOUTS, Deck
from decksmith.train.corpus import chat_rows, check, deck_rules, drafts
from decksmith.train.corpus import rules as draft_rules

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "tests/fixtures/drafts/kept"
GOLD = sorted((ROOT / "data/gold").glob("g*"))
SHORT = [row for _, row in stream.records(ROOT / "data/short/rows.jsonl")]
SEED = drafts.seed(KEPT)


def draft(folder, *edits, **whole):
    """A copy of the kept draft with edits (file, from, to) or whole new files (prompt=, think=, deck=)."""
    shutil.copytree(KEPT, folder, dirs_exist_ok=True)
    names = {"prompt": "PROMPT.md", "think": "think.md", "deck": "deck.md"}
    for name, old, new in edits:
        path = folder / names[name]
        text = path.read_bytes().decode()
        assert old in text, (name, old)
        path.write_bytes(text.replace(old, new, 1).encode())
    for name, text in whole.items():
        (folder / names[name]).write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder


def short_draft(folder, row):
    """A row of data/short as a draft; its thought, which is short too, is replaced."""
    draft(folder, prompt=row["messages"][1]["content"], deck=row["messages"][2]["content"])
    (folder / "seed.json").write_text(json.dumps(row["seed"]))
    return folder


def rules(folder, seed=SEED):
    return sorted({fault["rule"] for fault in draft_rules.faults(folder, seed)})


def text(name):
    return (KEPT / name).read_text()


def without_slides(n):
    return re.split(r"\n(?=---\nlayout)", text("deck.md"))[: 1 + n]


LONG = text("think.md") + "\n" + "and then another word " * 300


# --- strict -----------------------------------------------------------------------------------------------------------

DECK = text("deck.md")
STRICT = [
    ("size", {"prompt": "A deck about worms, please.\n"}),
    ("encoding", {"deck": DECK.encode().replace(b"Air", b"\xe4ir")}),
    ("encoding", {"deck": DECK.replace("\n", "\r\n")}),
    ("encoding", {"think": "\ufeff" + text("think.md")}),
    ("encoding", [("deck", "5 degrees", "5\0 degrees")]),
    ("tags", {"think": "<think>\n" + text("think.md") + "</think>\n"}),
    ("secret", [("deck", "Air from below", "sk-" + "a1B2" * 8)]),
    ("prompt-fenced", {"prompt": "```\n" + text("PROMPT.md") + "```\n"}),
    ("prompt-leak", [("prompt", "6 slides", "a deck.md of 6 slides")]),
    ("prompt-leak", [("prompt", "6 slides", "6 slides and their chain of thought")]),
    ("prompt-theme", [("prompt", "default theme", "seriph theme")]),
    ("think-headings", [("think", "## Theme fit", "## Theme")]),
    ("think-headings", [("think", "## Theme fit", "### Theme fit")]),
    ("think-headings", [("think", "## Narrative arc\n", "## Theme fit\n")]),
    (
        "think-headings",
        [
            ("think", "## Theme fit", "## Narrative arc"),
            ("think", "## Narrative arc\n\nFirst", "## Theme fit\n\nFirst"),
        ],
    ),
    ("think-headings", [("think", "## Self-review", "## Risks\n\nRain.\n\n## Self-review")]),
    (
        "think-headings",
        {"think": text("think.md")[: text("think.md").index("## Self-review") + 15]},
    ),
    ("think-words", {"think": LONG}),
    ("think-render", [("think", "Six slides as asked.", "I rendered it and all fits.")]),
    (
        "think-render",
        [("think", "Six slides as asked.", "I have looked at each slide in the browser.")],
    ),
    ("think-render", [("think", "Six slides as asked.", "The rendered deck looks calm.")]),
    ("think-render", [("think", "Six slides as asked.", "In the screenshot the table is wide.")]),
    ("wrapped", {"deck": "```markdown\n" + DECK + "```\n"}),
    ("wrapped", {"deck": "Here is your deck:\n\n" + DECK}),
    ("headmatter", [("deck", "title: The bin can live\n", "")]),
    (
        "frontmatter-blank",
        [
            (
                "deck",
                "---\nlayout: default\n---\n\n# It smells",
                "---\n\nlayout: default\n---\n\n# It smells",
            )
        ],
    ),
    ("yaml", [("deck", "layout: fact", "layout: fact\nlabel: *very* cold")]),
    ("yaml", [("deck", "layout: fact", "layout: fact\nlabel: cold: very")]),
    ("theme", [("deck", "theme: default", "theme: seriph")]),
    ("slides", {"deck": DECK + "\n---\nlayout: statement\n---\n\n# More\n" * 3}),
    ("unknown-layout", [("deck", "layout: fact", "layout: facts")]),
    (
        "remote-url",
        [("deck", "Below this they stop", "[Below](https://example.org) this they stop")],
    ),
    ("remote-url", [("deck", "Below this they stop", "![a](https://example.org/a.png) they stop")]),
    ("remote-url", [("deck", "Below this they stop", "<img src='//example.org/a.png'> they stop")]),
    (
        "remote-url",
        [("deck", "layout: fact", "layout: fact\nbackground: https://example.org/a.png")],
    ),
    (
        "remote-url",
        [("deck", "layout: fact", 'layout: fact\nclass: "bg-[url(//example.org/a.png)]"')],
    ),
    (
        "remote-url",
        [
            (
                "deck",
                "B -->|yes| C[Add paper]",
                'click A "https://example.org"\n  B -->|yes| C[Add paper]',
            )
        ],
    ),
    ("remote-url", [("deck", "They do not die at once.", "See https://example.org.")]),
    (
        "picture",
        [
            ("deck", "layout: fact", "layout: image-right"),
            ("think", "3. `fact`", "3. `image-right`"),
        ],
    ),
    ("picture", [("deck", "layout: fact", "layout: fact\nimage-query: a frozen worm bin")]),
    ("picture", [("deck", "Below this they stop", "![a](image-query://worm) they stop")]),
    ("picture", [("deck", "Below this they stop", "![a](images/worm.png) they stop")]),
    ("note", [("deck", "# 5 degrees", "<!-- slowly now -->\n\n# 5 degrees")]),
    ("comment", [("deck", "hand out the leaves.\n-->", "hand out the leaves.")]),
    ("note", [("deck", "layout: fact", "layout: fact\nnotes: say it slowly")]),
    ("note", [("deck", "Squeeze a handful of bedding in front of them: one drop, no more.", "")]),
    ("empty-slide", {"deck": DECK + "\n---\n"}),
    ("empty-slide", {"deck": DECK + "\n---\nlayout: default\n---\n"}),
    (
        "slots",
        [("deck", "layout: fact", "layout: two-cols"), ("think", "3. `fact`", "3. `two-cols`")],
    ),
    ("unknown-component", [("deck", "Below this", "<Callout>cold</Callout> Below this")]),
    ("unknown-component", [("deck", "Below this", "A List<String > below this")]),
    ("forbidden", [("deck", "Below this", "<iframe></iframe> Below this")]),
    ("forbidden", [("deck", "Below this", "<div onclick='f()'>x</div> Below this")]),
    ("interpolation", [("deck", "Below this", "Below {{ limit }} this")]),
    ("placeholder", [("deck", "Below this", "Lorem ipsum dolor")]),
]


@pytest.mark.parametrize(
    "rule, change", STRICT, ids=[f"{i}-{rule}" for i, (rule, _) in enumerate(STRICT)]
)
def test_each_strict_rule_falls_alone_and_names_its_line(tmp_path, rule, change):
    folder = draft(tmp_path, *change) if isinstance(change, list) else draft(tmp_path, **change)
    found = draft_rules.faults(folder, SEED)
    assert {fault["rule"] for fault in found} == {rule}
    for fault in found:
        lines = (folder / fault["file"]).read_bytes().count(b"\n")
        assert (
            1 <= fault["line"] <= lines + 1
            and fault["remedy"] == drafts.STRICT[rule]
            and fault["message"]
        )


def test_a_comment_that_swallows_slides_is_named_where_it_begins(tmp_path):
    folder = draft(
        tmp_path,
        (
            "deck",
            "They do not die at once. They die of the food that rots beside them.\n-->",
            "They do not",
        ),
    )
    found = {f["rule"]: f["line"] for f in draft_rules.faults(folder, SEED)}
    assert set(found) == {"comment", "feature"}  # and with it the table has gone
    assert (folder / "deck.md").read_text().split("\n")[found["comment"]] == "layout: fact"


def test_faults_name_the_very_line(tmp_path):
    edits = [
        ("deck", "layout: fact", "layout: fact\nlabel: *very* cold"),
        ("deck", "Food in small", "{{ food }} in small"),
        ("think", "Six slides as asked.", "I rendered it."),
    ]
    folder = draft(tmp_path, *edits)
    named = {
        (f["file"], f["rule"], (folder / f["file"]).read_text().split("\n")[f["line"] - 1])
        for f in draft_rules.faults(folder, SEED)
    }
    assert named == {
        ("deck.md", "yaml", "label: *very* cold"),
        ("deck.md", "interpolation", "- {{ food }} in small pieces, buried, once a week"),
        (
            "think.md",
            "think-render",
            "I rendered it. The chores add up to ten minutes a week, which is a fair "
            "promise. Each point is short enough to be read from the back row. The flowchart ends in things to do "
            "and not in names of faults. The last slide repeats what was said and brings nothing new.",
        ),
    }


@pytest.mark.parametrize(
    "edit",
    [
        (
            "think",
            "No picture is needed",
            "Rather than KaTeX, a picture of `image-right` or v-clicks",
        ),
        ("think", "No picture is needed", "I considered `image-right` and decided against it"),
        (
            "think",
            "Six slides as asked.",
            "Nobody has rendered the deck. Without a screenshot I rely on counting.",
        ),
        ("think", "Six slides as asked.", "The table renders in one glance."),
        ("think", "3. `fact`: the", "3. `fact` or `statement`: the"),
        (
            "deck",
            "Below this they stop eating",
            "Write `{{ name }}`, `List<T>` and `https://example.org`",
        ),
        (
            "deck",
            "Below this they stop eating",
            "```html\n---\nlayout: none\n---\n<Foo src='https://a.b'>{{ x }}\n```",
        ),
        (
            "deck",
            "Below this they stop eating",
            "$\\frac{1}{{2}}$ and 3 < 4 and <br> and <carbon-sun />",
        ),
        (
            "deck",
            "Below this they stop eating",
            "<v-click>Below this</v-click>\n\n<Arrow x1='1' y1='1' x2='2' y2='2' />",
        ),
        ("deck", "Below this they stop eating", "![bin](image-query://worm+bin+in+snow)"),
        ("deck", "layout: fact", 'class: big\nlayout: fact\nbackground: "#eef"'),
        (
            "deck",
            "---\nlayout: fact\n---",
            "---",
        ),
        ("prompt", "6 slides", "6 slides, not like my training of the dog,"),
    ],
)
def test_these_pass(tmp_path, edit):
    folder = draft(tmp_path, edit)
    assert rules(folder) == []


def test_a_prompt_about_training_may_say_so(tmp_path):
    folder = draft(tmp_path, ("prompt", "6 slides", "6 slides about SFT and training data"))
    assert rules(folder) == ["prompt-leak"]
    assert rules(folder, {**SEED, "topic": "How language models are fine-tuned"}) == []


@pytest.mark.parametrize(
    "seed, expected",
    [
        ({"slides": 8}, []),
        ({"slides": 9}, ["slides"]),
        ({"slides": 3}, ["slides"]),
        ({"slides": "6"}, ["seed"]),
        ({"theme": "nosuch"}, ["seed", "theme"]),
        ({"theme": "nord"}, ["theme"]),
        ({"features": ["katex", "clicks"]}, ["feature"]),
        ({"features": ["gantt"]}, ["seed"]),
        ({"language": "de"}, ["language"]),
        ({"language": "ja"}, ["language"]),
        ({"language": "xx"}, []),
        ({"language": None}, ["seed"]),
    ],
)
def test_the_seed_is_what_was_asked_for(seed, expected):
    assert rules(KEPT, {**SEED, **seed}) == expected


def test_what_is_no_file_is_missing(tmp_path):
    folder = draft(tmp_path)
    (folder / "think.md").unlink()
    (folder / "think.md").symlink_to(KEPT / "think.md")
    (folder / "PROMPT.md").unlink()
    (folder / "deck.md").write_bytes(b"x" * (drafts.LARGEST + 1))
    assert [(f["file"], f["rule"]) for f in draft_rules.faults(folder, SEED)] == [
        (n, "missing") for n in drafts.FILES
    ]


@pytest.mark.parametrize(
    "nasty",
    [
        "",
        "---",
        "---\n",
        "\x00" * 400,
        "<!--" * 2000,
        "`" * 5000,
        "---\n- a\n---\n" * 500,
        "<" * 20000,
        "{{" * 9000,
        "$" * 20000,
        "## " * 9000,
        "1. `a` " * 4000,
    ],
)
def test_no_text_breaks_the_checker(tmp_path, nasty):
    folder = draft(tmp_path, prompt=nasty, think=nasty, deck=nasty)
    assert draft_rules.faults(folder, SEED)


def test_every_rule_has_a_remedy():
    remedies = drafts.STRICT.values()
    assert all(remedy and not remedy.endswith(".") for remedy in remedies)


# --- rendered ---------------------------------------------------------------------------------------------------------


CHOSEN = sorted(GOLD, key=lambda folder: stream.fingerprint(folder.name))[:3]
DRAWN_SHORT = sorted(SHORT, key=lambda row: stream.fingerprint(row["id"]))[:3]


GOOD = ["kept", *(folder.name for folder in CHOSEN), *(row["id"] for row in DRAWN_SHORT)]
NOW = {"kept", CHOSEN[0].name}  # the others are long


@pytest.fixture(scope="module")
def drawn(request, tmp_path_factory):
    """(a run folder, {id: check value}) of the kept draft, of one with faults, and of three gold drafts and three rows of
    data/short by the hash of their names, as far as they are asked for; `make gold-check` renders all gold drafts."""
    run = tmp_path_factory.mktemp("run")
    draft(run / "kept")
    draft(
        run / "faulty",
        ("deck", "| October |", "| January | a spoon | sing |\n" * 12 + "| October |"),
        ("deck", "  B -->|yes| C[Add paper]", "  B -->|yes| C[Add (paper]]"),
        ("deck", "Below this", "$\\frac{1}$ Below this"),
    )
    places = {
        "kept": run / "kept",
        "faulty": run / "faulty",
        **{folder.name: folder for folder in CHOSEN},
        **{row["id"]: short_draft(run / row["id"], row) for row in DRAWN_SHORT},
    }
    here = [one for one in request.session.items if one.path == request.path]
    cases = [one.callspec.params for one in here if hasattr(one, "callspec")]
    asked = {"faulty", *(each.get("good") for each in cases)}

    async def go():
        checker = check.Checker(run, Protocol.load("offline"), jobs=1, scratch=run / "check")
        try:
            return {
                name: await checker.check(
                    {"id": name, "seed": drafts.seed(place), "draft": {"path": str(place)}}
                )
                for name, place in places.items()
                if name in asked
            }
        finally:
            await checker.close()

    return run, asyncio.run(go())


@pytest.mark.browser
def test_a_rendered_draft_names_overflow_and_what_only_the_renderer_sees(drawn):
    run, got = drawn[0], drawn[1]["faulty"]
    found = {fault["rule"]: fault for fault in got["faults"]}
    assert (
        set(found) == {"overflow", "mermaid", "katex"}
        and len(got["faults"]) == 3
        and got["rendered"]
    )
    assert got["error"]["kind"] == "model" and got["error"]["class"] == got["faults"][0]["rule"]
    lines = (run / "faulty/deck.md").read_text().split("\n")
    assert "slide 4" in found["overflow"]["message"] and lines[
        found["overflow"]["line"] - 1
    ].startswith("|")
    assert lines[found["katex"]["line"] - 1].startswith("$")


@pytest.mark.browser
@pytest.mark.parametrize(
    "good", [pytest.param(name, marks=[pytest.mark.long] * (name not in NOW)) for name in GOOD]
)
def test_good_drafts_render_clean(drawn, good):
    assert (drawn[1][good]["faults"], drawn[1][good]["rendered"], "error" in drawn[1][good]) == (
        [],
        True,
        False,
    )
    gold = ROOT / "data/gold" / good
    folder = gold if gold.exists() else drawn[0] / good
    pictures = list((drawn[0] / "check" / good / "slides").glob("*.png"))
    assert len(pictures) == drafts.seed(folder)["slides"]


# --- packing ----------------------------------------------------------------------------------------------------------


def row(ident="kept", **options):
    return chat_rows.row(
        KEPT.parent, {"id": ident, "seed": SEED, "draft": {"path": "kept"}}, **options
    )


def test_models_are_trained_with_the_instructions_they_are_asked_with():
    asked = {
        record["messages"][0]["content"]
        for _, record in stream.records(ROOT / "data/prompts.jsonl")
    }
    assert asked == {row(cheatsheet=0)["messages"][0]["content"]}
    with_sheet = row(cheatsheet=1)["messages"][0]["content"]
    assert (
        with_sheet
        == asked.pop() + "\n\n" + (ROOT / "assets/prompts/slidev-cheatsheet.md").read_text().strip()
    )


def test_a_row_is_the_draft_and_nothing_else():
    got = row(cheatsheet=0)
    assert [m["role"] for m in got["messages"]] == ["system", "user", "assistant"]
    assert got["messages"][1]["content"] + "\n" == text("PROMPT.md")
    assert got["messages"][2] == {
        "role": "assistant",
        "content": DECK.strip(),
        "reasoning_content": text("think.md").strip(),
    }
    assert got["seed"] == SEED and got["tokens"]["estimated"] is True
    assert got["tokens"]["total"] == sum(
        got["tokens"][key] for key in ("prompt", "reasoning", "deck")
    )


def test_the_cheat_sheet_goes_to_its_share_and_no_row_moves_another():
    share = [chat_rows.has_cheatsheet(f"s{i:05d}") for i in range(2000)]
    assert 900 < sum(share) < 1100
    assert not any(chat_rows.has_cheatsheet(f"s{i}", 0) for i in range(50)) and all(
        chat_rows.has_cheatsheet(f"s{i}", 1) for i in range(50)
    )
    fewer = [chat_rows.has_cheatsheet(f"s{i:05d}", 0.2) for i in range(2000)]
    assert all(more for more, less in zip(share, fewer, strict=True) if less)


def test_the_cheat_sheet_keeps_to_the_rules_and_is_compact():
    sheet = templates.prompt_text("slidev-cheatsheet.md")
    example = re.search(r"````md\n(.*?)````", sheet, re.S)[1]
    deck = Deck.parse(example)
    assert (
        list(deck_rules.faults(example, deck, {"theme": "seriph", "slides": 3, "language": "en"}))
        == []
    )
    layouts = re.findall(
        r"`([a-z][a-z-]+)`",
        re.sub(r"(?m) need .*$", "", sheet.split("## Layouts")[1].split("\n\nOther")[0]),
    )
    assert len(layouts) >= 15 and set(layouts) <= set(LAYOUTS)
    assert all(theme in sheet for theme in drafts.SEED_THEMES)
    assert len(sheet.encode()) / chat_rows.BYTES_PER_TOKEN < 1200


def test_the_instructions_name_every_strict_rule_and_heading():
    told = draft_rules.instructions()
    assert all(f"\n- {rule}: " in told for rule in drafts.STRICT) and "{rules}" not in told
    assert all(f"## {heading}" in told for heading in drafts.HEADINGS)


# --- data/gold --------------------------------------------------------------------------------------------------------


def test_the_gold_drafts_are_many_and_keep_to_the_rules():
    assert len(GOLD) >= 64
    assert {folder.name: draft_rules.faults(folder, drafts.seed(folder)) for folder in GOLD} == {
        folder.name: [] for folder in GOLD
    }


def test_the_gold_drafts_cover_every_theme_and_feature():
    seeds = [drafts.seed(folder) for folder in GOLD]
    assert {seed["theme"] for seed in seeds} == set(drafts.SEED_THEMES)
    assert {feature for seed in seeds for feature in seed["features"]} == set(drafts.FEATURES)
    assert len({json.dumps(seed["topic"]) for seed in seeds}) == len(seeds)


# --- data/short -------------------------------------------------------------------------------------------------------


def test_the_short_decks_keep_to_the_rules_and_are_short(tmp_path):
    assert len({row["messages"][1]["content"] for row in SHORT}) == len(SHORT) >= 100
    for row in SHORT:
        folder = short_draft(tmp_path / row["id"], row)
        assert (row["id"], draft_rules.faults(folder, row["seed"])) == (row["id"], [])
        assert row["messages"][0]["content"] == templates.system_prompt()
        assert row["tokens"]["deck"] <= 900


def test_the_short_decks_count_the_asked_slides_down_and_none_is_a_title_alone():
    for row in SHORT:
        deck, asked = Deck.parse(row["messages"][2]["content"]), row["seed"]["slides"]
        left = [slide.frontmatter["left"] for slide in deck.shown]
        assert (row["id"], left) == (row["id"], [*range(asked, 0, -1)])
        for slide in deck.shown:
            lines = [line for line in slide.prose.split("\n") if line.strip()]
            titles = [line for line in lines if line.startswith("# ")]
            assert titles and (slide.fences or len(lines) > len(titles)), (row["id"], slide.start)
