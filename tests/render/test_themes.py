"""The themes that we ship: one table, a test deck for each; Slidev's own components and icon sets."""

import json
import os
import re
import sys
from pathlib import Path

import pytest
from decksmith.core.protocol import Protocol
from decksmith.measure.decks.parser import LAYOUTS, THEMES, Deck
from decksmith.measure.judging import scoring
from decksmith.train.corpus import drafts, seeds
from drawing import shared, shared_workers  # noqa: F401

ROOT = Path(__file__).resolve().parents[2]
RENDERER = ROOT / "assets" / "renderer"
sys.path.insert(0, str(ROOT / "tests"))
import theme as adding  # noqa: E402

# `make themes` renders all of them (test_pool.py says why not `make test`).
SWEEP = sorted(THEMES) if os.environ.get("DECKSMITH_THEMES") == "all" else ["dracula"]


def test_a_file_of_a_theme_that_only_helps_its_layouts_is_none(tmp_path, monkeypatch):
    folder = tmp_path / "node_modules/slidev-theme-x/layouts"
    folder.mkdir(parents=True)
    (folder / "cards.vue").write_text("<template><slot /></template>")
    (folder / "grid.ts").write_text("export default {}")
    (folder / "helper.ts").write_text("export function url() {}")
    (folder / "cover.vue").write_text("<template><slot /></template>")  # Slidev has one
    monkeypatch.setattr(adding, "RENDERER", tmp_path)
    assert adding.layouts("slidev-theme-x") == ["cards", "grid"]


def test_the_table_the_dependencies_and_the_test_decks_name_the_same_themes_pinned_and_from_the_registry():
    package = json.loads((RENDERER / "package.json").read_text())
    locked = json.loads((RENDERER / "package-lock.json").read_text())["packages"]
    depended = {
        name for name in package["dependencies"] if re.search(r"(?:@slidev/|slidev-)theme-", name)
    }
    assert {theme["package"] for theme in THEMES.values()} == depended
    assert (
        list(THEMES)
        == sorted(THEMES)
        == sorted(THEMES)
        == sorted(path.stem for path in adding.DECKS.glob("*.md"))
    )
    for name, theme in THEMES.items():
        assert re.fullmatch(rf"(?:@slidev/|slidev-)theme-{name}", theme["package"])
        entry = locked[f"node_modules/{theme['package']}"]
        assert entry["version"] == package["dependencies"][theme["package"]]
        assert entry["integrity"].startswith("sha512-") and "resolved" not in entry


def test_every_theme_of_the_published_list_is_shipped():
    asked = "default seriph apple-basic geist academic the-unnamed nord penguin dracula frankfurt scholarly takahashi"
    assert sorted(name for name, theme in THEMES.items() if theme["published"]) == sorted(
        asked.split()
    )
    assert sorted(drafts.SEED_THEMES) == sorted(seeds.table().themes)


def test_the_documentation_lists_every_theme_with_its_layouts():
    section = (ROOT / "docs" / "protocol.md").read_text().split("## Themes")[1].split("\n## ")[0]
    rows = [
        [cell.strip(" `") for cell in row.split("|")[1:-1]]
        for row in section.split("\n")
        if row.startswith("| `")
    ]
    assert rows == [
        [name, theme["package"], ", ".join(theme["layouts"]) or "-"]
        for name, theme in THEMES.items()
    ]


@pytest.mark.skipif(
    not (RENDERER / "node_modules" / ".done").exists(), reason="the renderer is in an image"
)
def test_the_table_has_the_layouts_of_the_packages():
    for theme in THEMES.values():
        assert theme["layouts"] == adding.layouts(theme["package"]), theme
        assert not set(theme["layouts"]) & set(LAYOUTS)


@pytest.mark.long("tests/render/test_pool.py::test_every_feature_renders_clean")
@pytest.mark.browser
def test_each_theme_shows_its_test_deck_whole(tmp_path):
    values = adding.draw(SWEEP, tmp_path)
    if len(SWEEP) == len(THEMES):
        adding.sheet(values, tmp_path, ROOT / "results" / "themes.png")
    for theme, value in values.items():
        assert (value["status"], value["errors"], len(value["slides"])) == ("ok", [], 3), theme
        first, text, own = value["xray"]
        assert Deck.parse(adding.deck(theme).read_text()).slides[2].layout in {
            *THEMES[theme]["layouts"],
            *LAYOUTS,
        }
        for slide, words in (
            (first, "Tides for sailors"),
            (text, "Brest"),
            (own, "In the layout|High water"),
        ):
            assert re.search(words, slide["text"]), (theme, slide["text"])
            assert not slide["blank"], theme
            # What penguin draws beside a new section runs off the slide.
            assert slide is own or slide["overflow"] == {"x": 0, "y": 0}, theme
            assert (slide["contrast"] or 21) > 1.4, (
                theme,
                slide["slide"],
            )  # the code of nord and penguin has 1.5
        assert len({(tmp_path / name).read_bytes() for name in value["slides"]}) == 3, theme


def show(tmp_path, *texts):
    """The render values of decks, by one worker."""

    async def draw(pool):
        ids = [f"d{number}" for number in range(len(texts))]
        return [
            await pool.render(tmp_path, {"id": i, "deck": {"path": f"{i}/deck.md"}}) for i in ids
        ]

    for number, text in enumerate(texts):
        (tmp_path / f"d{number}").mkdir()
        (tmp_path / f"d{number}" / "deck.md").write_text(text)
    return shared(draw)


@pytest.mark.browser
@pytest.mark.parametrize(
    "names",
    [
        ["https://example.org/theme"],
        pytest.param(
            ["nosuch", "./here", "'@slidev/theme-seriph'", "[seriph]"], marks=pytest.mark.long
        ),
    ],
)
def test_a_theme_that_we_do_not_have_is_shown_as_default_and_the_protocol_says_what_it_costs(
    tmp_path, names
):
    text = "---\ntitle: T\ntheme: {}\n---\n\n# One\n\n---\n\n# Two\n\n---\n\n# Three\n"
    plain, *values = show(tmp_path, *(text.format(name) for name in ["default", *names]))
    pictures = [
        [(tmp_path / name).read_bytes() for name in value["slides"]] for value in [plain, *values]
    ]
    assert plain["errors"] == [] and pictures == [pictures[0]] * len(pictures)
    published, offline = Protocol.load("published"), Protocol.load("offline")
    free = Protocol.load("published")
    free.render["tolerates"].append("unknown-theme")
    for value in values:
        assert (value["status"], len(value["slides"]), "error" in value) == ("partial", 3, False)
        (error,) = value["errors"]
        found = [error[key] for key in ("kind", "class", "slide", "line")]
        assert found == ["model", "unknown-theme", 1, 3]
        assert error["message"].endswith("; the deck is shown in the theme default")
        assert scoring.refused(published, value) == error
        assert scoring.refused(offline, value) is None and scoring.refused(free, value) is None


# Each built-in component and icon set with what is to be seen of it; a component that would fetch something is a box.
BUILT_IN = {
    '<Link to="2">the second slide</Link>': "the second slide",
    '<Link :to="3" title="the <b>third</b>" />': "the <b>third</b>",
    '<Link to="2">\n\n**marked** up\n\n</Link>': "marked up",
    '<Arrow x1="10" y1="10" x2="200" y2="60" color="red" width="3" />': "",
    '<VDragArrow pos="10,10,200,60" />': "",
    '<v-drag pos="20,300,200,_">dragged</v-drag>': "dragged",
    '<AutoFitText :max="60" :min="20" modelValue="fitted" />': "fitted",
    "<LightOrDark><template #light>in the light</template><template #dark>in the dark</template></LightOrDark>": "in the light",
    '<RenderWhen context="main">on the slide<template #fallback>elsewhere</template></RenderWhen>': "on the slide|elsewhere",
    "Slide <SlideCurrentNo /> of <SlidesTotal />": "Slide [0-9]+ of [0-9]+",
    '<TitleRenderer no="1" />': "Built-in",
    '<Toc minDepth="1" maxDepth="1" />': "Built-in",
    '<Transform :scale="0.5">half</Transform>': "half",
    "<div v-click>first</div><v-after>then</v-after>": "first(?s:.*)then",
    "<VClicks>\n\n- one by one\n\n</VClicks>": "one by one",
    '<VClickGap size="1" />after a gap': "after a gap",
    "<VSwitch><template #1>switched</template><template #2>again</template></VSwitch>": "",
    "<PoweredBySlidev />": "Powered by",
    '<Youtube id="luoMHjh-XcQ" width="400" height="200" />': "",
    '<Tweet id="20" scale="0.6" />': "",
    '<BlueSky uri="https://bsky.app/profile/sli.dev/post/3lgwg2vy44s2q" />': "",
    '<SlidevVideo controls>\n  <source src="/tide.mp4" type="video/mp4">\n</SlidevVideo>': "",
    "```plantuml\n@startuml\nAlice -> Bob : Hello!\n@enduml\n```": "",
    "```ts {monaco}\nconst tide = 1\n```": "const tide = 1",
    "```ts {monaco-run}\nconsole.log(1)\n```": "console.log",
    "<mdi-fish /> <carbon-badge /> <logos-vue /> <ph-waves /> <svg-spinners-180-ring />": "",
    '<twemoji-cat-with-tears-of-joy /> <uim-rocket class="text-3xl" /> <div class="i-twemoji:waving-hand" />': "",
}


@pytest.mark.long("tests/render/test_pool.py::test_every_feature_renders_clean")
@pytest.mark.browser
def test_what_slidev_ships_works_or_costs_nothing(tmp_path):
    slides = [f"# Part {n}\n\n{source}\n" for n, source in enumerate(BUILT_IN)]
    sites = [
        f"---\nlayout: {name}\nurl: https://sli.dev\n---\n\n{beside}\n"
        for name, beside in (
            ("iframe", ""),
            ("iframe-left", "beside it"),
            ("iframe-right", "beside it"),
        )
    ]
    (value,) = show(
        tmp_path,
        "---\ntitle: Built-in\n---\n\n# Built-in\n\n---\n\n"
        + "\n---\n\n".join(slides)
        + "\n"
        + "\n".join(sites),
    )
    assert (value["status"], value["errors"]) == ("ok", [])
    for slide, (source, words) in zip(value["xray"][1:], BUILT_IN.items(), strict=False):
        assert re.search(words, slide["text"]), (source, slide["text"])
        assert not slide["blank"], source
    pictures = [(tmp_path / name).read_bytes() for name in value["slides"]]
    assert len(set(pictures)) == len(pictures)
