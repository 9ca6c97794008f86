"""The two feature scans of a deck's markdown: the published one, bit-compatible, and ours, on the real parser."""

import itertools
import re
from collections import Counter
from pathlib import Path

from decksmith.core.records import Record
from decksmith.measure.decks import templates
from decksmith.measure.decks import words as counted
from decksmith.measure.decks.clean import markdown
from decksmith.measure.decks.parser import LAYOUTS, SLOT, Deck, Slide, visible

SCANNER = "craft-v5 craft-3"  # raise it when a score changes: it is part of a run's identity


def features(text: str) -> Record:
    """The `features` value of docs/records.md for a deck's text."""
    v5, parts = craft_v5(text)
    score, counts = craft(Deck.parse(text))
    return {"scanner": SCANNER, "craft_v5": v5, "craft": score, "counts": {**counts, "v5": parts}}


def craft_v5(text: str) -> tuple[float, dict[str, int]]:
    """The published VisCraft scan: (score 1 to 5, what it saw). Source: trillion-labs/nemoslides, eval/features.py.

    score = min(5, 1 + points). Points: one for each distinct layout other than `default`, at most two; one
    each for a fence with a language (not markdown, md, text, txt, plain), a mermaid fence, a formula,
    `<v-click(s)>` or `v-click=` or a line `click:`, a `notes:` key, a `transition:` key, a theme other than
    `default`.

    Its weaknesses are part of it: lines `---` are paired first with second, third with fourth wherever they
    stand, and keys count only inside a pair; comments are no notes; a mermaid fence counts as code as well.
    """
    lines = text.split("\n")
    rules = [i for i, line in enumerate(lines) if line.startswith("---") and not line[3:].strip()]
    pairs = zip(rules[::2], rules[1::2], strict=False)
    blocks = ["\n".join([*lines[a + 1 : b], ""]) for a, b in pairs]

    def named(key: str) -> list[str]:
        values = rf"(?m)^\s*{key}:\s*[\"']?([\w-]+)[\"']?\s*$"
        return [name.lower() for block in blocks for name in re.findall(values, block)]

    def keyed(key: str) -> bool:
        return any(line.lstrip().startswith(key) for b in blocks for line in b.split("\n"))

    fences = re.findall(r"```([a-zA-Z][\w+-]*)", text)
    plain = re.compile(r"(?:markdown|md|text|txt|plain)(?!\w)")
    first = text.find("$$")
    # Unlike "$4M and $5M", a formula has no blank at its ends and one of these signs inside.
    pieces = [p for p in text.split("$")[1:-1] if len(p) > 2]
    tight = [p for p in pieces if not p[0].isspace() and not p[-1].isspace()]
    dollars = any(set(p[1:-1]) & set("\\^_{}=+-") for p in tight)
    seen: dict[str, int] = {
        "layouts": len({*named("layout")} - {"default"}),
        "code": any(not plain.match(f) for f in fences),
        "mermaid": bool(re.search(r"```mermaid\b", text)),
        "katex": dollars or (first >= 0 and text.find("$$", first + 2) >= 0),
        "clicks": bool(re.search(r"<v-clicks?\b|\bv-click\s*=", text))
        or any(x.lstrip().startswith("click:") for x in lines),
        "notes": keyed("notes:"),
        "transitions": keyed("transition:"),
        "theme": named("theme")[:1] not in ([], ["default"]),
    }
    points = min(2, seen["layouts"]) + sum(bool(v) for k, v in seen.items() if k != "layouts")
    return float(min(5, 1 + points)), seen


TRANSITIONS = {*"fade fade-out slide-left slide-right slide-up slide-down view-transition".split()}
_CLICK = re.compile(r"<v-(?:clicks?|after|switch)\b|\sv-(?:click|after|mark)\b")
_EDGE = re.compile(
    r"<?(?:-{2,3}|={2,3}|-\.+-|~{3})[>xo]|-{1,2}>{1,2}|--\s?[\w\"]|[|}o][|o]?(?:--|\.\.)[|o]?[|{o]|<\|--|\*--|o--|\.\.>"
)
_KINDS = (
    "pie gantt mindmap timeline journey quadrantchart xychart-beta gitgraph sankey-beta".split()
)
_KINDS += ["block-beta", "kanban"]
# Of fences: no language, plain text, and diagrams.
_NO_CODE = ("", "md", "markdown", "text", "txt", "plain", "plaintext", "plantuml", "mermaid")
# Slides of these layouts show one thing and are meant to have few words.
_STATEMENTS = ("fact", "quote", "statement", "image")
# h of g(n, h) in `craft`: as many uses earn a half.
_HALVES = dict(layouts=3, code=1, mermaid=1, katex=2, clicks=2, transitions=1, tables=1, images=2)
_BEST = 4  # of nine categories: no deck has use for all


def craft(deck: Deck) -> tuple[float, dict[str, int]]:
    """How much of Slidev a deck puts to use, on the real parser: (score 1.0 to 5.0, counts).

    score = 1 + 4 * substance * mean(the best four of nine categories), rounded to 3 digits; every part is 0..1.

    Only shown slides count, and slides with the same words, code and pictures count once; so do equal
    elements and lines. What differs in its digits only, or in the title above five words or more, is the
    same. words = visible words (words.py) in distinct lines. A slide is substantial with 8 words; with 3
    words and one qualifying code block, diagram, table, formula or picture; and in a layout of one thing
    (fact, quote, statement, image) with 2 words or a picture.

        substance   = min(1, substantial slides / 5) * min(1, words / 60)
        g(n, h)     = n / (n + h): the first use counts most, the sum never saturates

        layouts     g(n, 3)  distinct known layouts other than default, each on a slide that fills it:
                             two-cols(-header) 3 words in every column; image layouts a picture
                             (image-left/right also 5 words); the others 2 words
        notes       share of substantial slides with a note of 5 different words (of scripts without
                    blanks, 10 letters) that no other slide has
        code        g(n, 1)  closed fences with a language (no diagrams, no plain text) and 3 different
                             lines, on slides with 3 words
        mermaid     g(n, 1)  closed mermaid fences with 2 edges (charts without edges: 3 entries)
        katex       g(n, 2)  different formulas that look like one (not two prices) on substantial slides
        clicks      g(n, 2)  substantial slides with v-click, v-clicks, v-after, v-mark or v-switch
        transitions g(n, 1)  known transitions that at least 2 substantial slides use
        tables      g(n, 1)  tables with 2 columns, 2 rows and 4 filled cells
        images      g(n, 2)  different pictures or image queries on substantial slides or in layout image

    A bare deck with every key scores 1.0; the 64 decks of data/gold have 2.4 to 4.0; nothing reaches 5. It
    counts what is used, not whether anybody asked for it.
    """
    slides = _distinct(deck)
    solid = [s for s in slides if s.solid]
    lines = [visible(line) for s in slides for line in s.slide.prose.split("\n")]
    # The first of those that are the same.
    once = {_same(line): line for line in reversed(lines) if line}
    words = sum(map(_words, once.values()))
    notes = [s.slide.note for s in solid if s.slide.note]
    pictured = [s for s in slides if s.solid or s.slide.layout == "image"]
    counts: dict[str, int] = {
        "slides": len(deck.shown),
        "substantial": len(solid),
        "words": words,
        "layouts": len({s.slide.layout for s in slides if s.slide.layout != "default" and s.fills}),
        "notes": len({_same(note) for note in notes if counted.different(note) >= 5}),
        "code": len({_same(f) for s in slides for f in s.code}),
        "mermaid": len({_same(f) for s in slides for f in s.diagrams}),
        "katex": len({_same(f) for s in solid for f in s.formulas}),
        "clicks": sum(bool(_CLICK.search(s.slide.prose)) for s in solid),
        "transitions": _transitions(solid, deck.headmatter.get("transition")),
        "tables": len({_same(t) for s in slides for t in s.tables}),
        "images": len({picture for s in pictured for picture in s.pictures}),
    }
    parts = [counts[name] / (counts[name] + half) for name, half in _HALVES.items()]
    parts.append(counts["notes"] / len(solid) if solid else 0.0)
    substance = min(1, len(solid) / 5) * min(1, words / 60)
    return round(1 + 4 * substance * sum(sorted(parts)[-_BEST:]) / _BEST, 3), counts


def _distinct(deck: Deck) -> "list[_Scanned]":
    """The shown slides, those with the same words, code and pictures once."""
    slides: dict[object, Slide] = {}
    for slide in deck.shown:
        below = slide.text.replace(visible(slide.title or ""), "", 1)
        told = below if _words(below) >= 5 else slide.text
        code = tuple(_same(fence.text) for fence in slide.fences)
        slides.setdefault((_same(told), code, tuple(image.url for image in slide.images)), slide)
    return [_Scanned(slide) for slide in slides.values()]


def _transitions(solid: "list[_Scanned]", default: object) -> int:
    """Known transitions that two slides use; `default`: that of the deck."""
    used: dict[str, set[int]] = {}
    for s in solid:
        move = s.slide.frontmatter.get("transition", default)
        for name in move.split("|") if isinstance(move, str) else []:
            used.setdefault(name.strip(), set()).add(s.slide.no)
    return sum(name in TRANSITIONS and len(on) > 1 for name, on in used.items())


def _same(text: str) -> str:
    """A text without its digits and line breaks."""
    return " ".join(re.sub(r"\d+", "", text).split())


def _words(text: str) -> int:
    return int(counted.count(text))


def _rows(text: str) -> list[str]:
    """The lines of a fence that say something; `%%` begins a comment of Mermaid's."""
    lines = [line.strip() for line in text.split("\n")]
    return [line for line in lines if line and not line.startswith("%%")]


def _is_drawn(rows: list[str]) -> bool:
    """Whether a Mermaid diagram has two edges, or three entries where its kind has no edges."""
    if rows and rows[0].split()[0].lower().rstrip(":") in _KINDS:
        return len(set(rows[1:])) >= 3
    return sum(len(_EDGE.findall(row)) for row in set(rows)) >= 2


class _Scanned:
    """What a slide really holds, for craft."""

    def __init__(self, slide: Slide) -> None:
        self.slide, self.words = slide, _words(slide.text)
        closed = [(fence.lang, _rows(fence.text)) for fence in slide.fences if fence.closed]
        drawn = [rows for lang, rows in closed if lang == "mermaid" and _is_drawn(rows)]
        code = [rows for lang, rows in closed if lang not in _NO_CODE and len(set(rows)) >= 3]
        self.diagrams = [" ".join(rows) for rows in drawn]
        self.code = [" ".join(rows) for rows in code if self.words >= 3]
        self.tables = _tables(slide.prose)
        self.formulas = _formulas(slide.prose)
        self.pictures = [i.url for i in slide.images]
        query = slide.frontmatter.get("image-query")
        if isinstance(query, str) and query.strip():
            self.pictures.append(query)
        elements = self.diagrams or self.code or self.tables or self.formulas or self.pictures
        alone = slide.layout in _STATEMENTS and (self.words >= 2 or bool(self.pictures))
        self.solid = self.words >= 8 or (self.words >= 3 and bool(elements)) or alone

    @property
    def fills(self) -> bool:
        """Whether the slide has what its layout is for."""
        layout, shown = self.slide.layout, self.slide.frontmatter
        if layout not in LAYOUTS:
            return False
        if layout.startswith("two-cols"):
            parts, name = {"default": ""}, "default"
            for line in self.slide.content.split("\n"):
                if m := SLOT.fullmatch(line.strip()):
                    name = m.group(1)
                else:
                    parts[name] = parts.get(name, "") + line + "\n"
            need = LAYOUTS[layout] if layout == "two-cols-header" else ("default", "right")
            return all(_words(parts.get(n, "")) >= 3 for n in need)
        if layout.startswith("iframe"):
            return isinstance(shown.get("url"), str) and (layout == "iframe" or self.words >= 5)
        if layout.startswith("image"):
            return bool(self.pictures) and (layout == "image" or self.words >= 5)
        return self.words >= 2


def _tables(prose: str) -> list[str]:
    """Markdown tables worth the name, each as its text."""
    out = []
    lines = [line.strip() for line in prose.split("\n")]
    for is_table, run in itertools.groupby(lines, lambda line: line.startswith("|")):
        rows = list(run)
        if is_table and len(rows) >= 4 and not rows[1].strip("|:- \t") and "-" in rows[1]:
            cells = [[c.strip() for c in r.strip("|").split("|")] for r in rows]
            body = {tuple(r) for r in cells[2:] if sum(map(bool, r)) >= 2}
            if len(cells[0]) >= 2 and len(body) >= 2:
                out.append("\n".join(rows))
    return out


def _formulas(prose: str) -> list[str]:
    """The different formulas of a slide: $$blocks$$, and $inline$ with a sign that prices do not have."""
    parts = prose.split("$$")
    found = [" ".join(block.split()) for block in parts[1::2] if len(block.strip()) >= 3]
    for around in parts[::2]:
        found += [formula for line in around.split("\n") for formula in _inline(line)]
    return found


def _inline(line: str) -> list[str]:
    """The formulas between neighbouring dollars of a line; each dollar belongs to one of them."""
    found, pieces = [], iter(line.split("$")[1:-1])
    for piece in pieces:
        tight = len(piece) >= 3 and not piece[0].isspace() and not piece[-1].isspace()
        if tight and set(piece) & set("\\^_={}+<>/*"):
            found.append(piece)
            next(pieces, None)  # what stands behind its second dollar
    return found


def scan(run: Path, record: Record) -> Record:
    """The `features` value of a record, read from its deck.md under `run`; nulls without a deck.
    `template` counts where a deck under a template departs from it, by rule."""
    if not (record.get("deck") or {}).get("path"):
        return {"scanner": SCANNER, "craft_v5": None, "craft": None, "counts": {}}
    text = markdown(run, record)
    value = features(text)
    if template := templates.of(run, record):
        found = Counter(one["check"] for one in templates.findings(template, text))
        value["template"] = {**templates.tag(template), "findings": dict(found)}
    return value
