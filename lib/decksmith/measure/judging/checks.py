"""The checks of a rendered deck: yes or no about each slide, and about each thing that was asked for.

Nothing here understands. A slide passes when no check finds anything on it; a deck's number is what passes (slides and
things asked for) of all that there is. The limits stand in the protocol's [checks] table."""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import cast

from decksmith.core.records import Asks, Record
from decksmith.measure.decks import lint, sources
from decksmith.measure.decks import words as deck_words
from decksmith.measure.decks.records import Finding, Limits
from decksmith.measure.decks.words import fold, length
from decksmith.measure.judging.reading import Reading
from decksmith.measure.judging.records import Asked, Checks, Judge
from decksmith.measure.judging.rendered import ELEMENTS, Pages
from decksmith.models.records import Usage

NAME = "offline checks"
RUN = 3  # words in a row that make a quotation
LANGUAGE = 15  # words that a slide has at least for its language to be told
STEM = 5  # letters of a word that tell it from others: endings go
ECHO = 12  # words that a slide has at least to be an echo
# Marks that a renderer should have consumed, and text that an author should have replaced.
LEFTOVERS = (
    "```|{{|}}|](|image-query:|\nlayout: |v-click|::right::|**|<br|</|\n## |\n# |\n- [|[object Object]|"
    "Lorem ipsum|lorem ipsum|[Insert|[insert|Your text here|Slide title here"
).split("|")
# Findings of the layout that are no check of a deck: a title may be left out.
ADVICE = ("no-title",)

Found = Iterator[tuple[int, str]]  # a slide, and what is wrong with it


# What the X-ray of a page finds (decks.lint), in words.
LAYOUT_SAYS = {
    "overflow": "Content past the edge of the slide, or cut off by its own box.",
    "off-canvas": "Content that stands outside the slide.",
    "overlap": "An element lies on another, or under something that covers it.",
    "small-text": "Text too small to be read.",
    "low-contrast": "Text that hardly stands out from what is behind it, by the colours of the page.",
    "dense": "More words than a slide can hold.",
    "blank": "Nothing can be seen on the slide.",
    "broken-picture": "A picture that is not there.",
}


# --- what is wrong with a slide ---------------------------------------------------------------------------------------


def unreadable(pages: Pages) -> Found:
    """Lines whose letters the picture does not show."""
    for n, page in pages.whole.items():
        lines = sum(1 for box in page.get("boxes") or [] if box.get("ink"))
        lost = len(pages.lost(n))
        if lost > pages.limits["unreadable"] * lines:
            yield n, f"{lost} of {lines} lines of text cannot be made out in the picture"


def markup(pages: Pages) -> Found:
    """Raw markup, template syntax or filler text, where the slide shows no code."""
    for n, page in pages.whole.items():
        text = "\n" + (page.get("text") or "")
        left = next((mark for mark in LEFTOVERS if mark in text), None)
        if left and not pages.has(n, "code"):
            yield n, f"raw markup or filler is shown: {left.strip()}"


def bare(pages: Pages) -> Found:
    """Between the first slide and the last: a heading that was asked for, and nothing else."""
    headings = [set(units(heading)) for heading in pages.asks.get("outline") or []]
    titles = pages.titles()
    for n in pages.numbers[1:-1]:
        if n not in pages.whole or any(pages.has(n, element) for element in ELEMENTS):
            continue
        title, said = set(units(titles[n])), set(units(pages.texts[n]))
        asked = any(len(title & heading) * 2 >= len(heading) for heading in headings)
        few = length(" ".join(said - title)) <= 2 and not any(c.isdigit() for c in pages.texts[n])
        if few and asked:
            yield n, "the slide shows nothing but a heading"


def twice(pages: Pages) -> Found:
    """The same picture as an earlier slide's, or nearly the same words with digits and the titles' words set aside. An agenda
    may come back: lines that are titles of other slides."""
    titles = pages.titles()
    bags: dict[int, Counter[str]] = {}
    for n in pages.whole:
        titled = {*units(titles[n])}
        words = [word for word in pages.texts[n].split() if not titled.issuperset(units(word))]
        bag = Counter("".join(c for c in word if not c.isdigit()) for word in words)
        for m, other in bags.items():
            union = (bag | other).total()
            same = union >= 5 and (bag & other).total() >= pages.limits["twice"] * union
            if (same and not _agenda(pages, n, titles)) or _alike(pages, m, n):
                yield n, f"the slide repeats slide {m}"
                break
        bags[n] = bag


def _agenda(pages: Pages, n: int, titles: dict[int, str]) -> bool:
    """Whether most lines of a slide, at least three, name other slides by their titles."""
    lines = [stems for line in pages.readable[n].splitlines() if (stems := _stems(line))]
    others = [stems for m, title in titles.items() if m != n and (stems := _stems(title))]
    named = sum(
        any(stems & other >= min(stems, other, key=len) for other in others) for stems in lines
    )
    return named >= 3 and named * 2 > len(lines)


def _alike(pages: Pages, m: int, n: int) -> bool:
    """Whether the pictures of two slides are the same, and it was not we who drew one for two different queries."""
    asked, others = pages.queries(m), pages.queries(n)
    if m not in pages.pictures or n not in pages.pictures or (asked and others and asked != others):
        return False
    return bool(abs(pages.looked[m].thumb - pages.looked[n].thumb).max() < 6)


def echo(pages: Pages) -> Found:
    """Words of the request in its own order, and hardly any other."""
    runs = set(_runs(units(pages.request)))
    for n, text in pages.texts.items():
        spoken = units(text)
        if len(spoken) >= ECHO and runs:
            at = {i + k for i, run in enumerate(_runs(spoken)) if run in runs for k in range(RUN)}
            if len(at) > pages.limits["echo"] * len(spoken):
                yield n, f"{len(at)} of its {len(spoken)} words are the request's own"


def _runs(words: list[str]) -> list[tuple[str, ...]]:
    return [tuple(words[i : i + RUN]) for i in range(len(words) - RUN + 1)]


def units(text: str) -> list[str]:
    """Words without their punctuation; single letters in scripts without blanks."""
    whole = (c if deck_words.inside(c) else " " for c in fold(text))
    return "".join(f" {c} " if deck_words.dense(c) else c for c in whole).split()


def language(pages: Pages) -> Found:
    """Text in another language than the asked one: by script, or by its function words against the likeliest other's."""
    asked = pages.asks.get("language")
    for n, text in pages.texts.items():
        share = deck_words.language_share([text], asked)
        is_long = pages.words[n] >= LANGUAGE
        if share is not None and is_long and share < pages.limits["language"]:
            yield n, f"the text is not in the language that was asked for, {asked}"


def surplus(pages: Pages) -> Found:
    """Slides beyond the number that was asked for."""
    asked = pages.asks.get("slides")
    for place, n in enumerate(pages.numbers, 1):
        if asked and place > asked:
            yield n, f"{asked} slides were asked for, this is number {place}"


SLIDE_CHECKS: dict[str, Callable[[Pages], Found]] = {
    "unreadable": unreadable,
    "markup": markup,
    "bare": bare,
    "twice": twice,
    "echo": echo,
    "language": language,
    "slides": surplus,
}

# --- what was asked for -----------------------------------------------------------------------------------------------

# What was asked for, whether it is there, and the slide that shows it.
Answers = Iterator[tuple[str, bool, int | None]]


def heading(pages: Pages) -> Answers:
    """Each heading of the asked outline: a slide of its own whose title has most of its words, or which has them all."""
    asked = pages.asks.get("outline") or []
    places = _places(pages, asked)
    for i, title in enumerate(asked):
        yield title, i in places, places[i][0] if i in places else None


def _places(pages: Pages, asked: Sequence[str]) -> dict[int, tuple[int, bool]]:
    """(slide, whether its title says so) by the place of the asked heading. The likest pair is taken first, then the one
    whose places in outline and deck are closest. A slide stands for one heading, the deck's own title for the first."""
    pairs = []
    for place, (n, title) in enumerate(pages.titles().items()):
        said, text = _stems(title), _stems(pages.texts[n])
        for i, heading in enumerate(asked if place else asked[:1]):
            stems = _stems(heading)
            share = len(stems & said) / len(stems or "-")
            away = abs(place / len(pages.whole) - i / len(asked))
            if share > 0.5:
                pairs.append((-share, away, i, n, True))
            elif stems and stems <= text:
                pairs.append((0.0, away, i, n, False))
    found: dict[int, tuple[int, bool]] = {}
    for _, _, i, n, titled in sorted(pairs):
        if i not in found and all(n != taken for taken, _ in found.values()):
            found[i] = n, titled
    return found


def _stems(text: str) -> set[str]:
    """The beginnings of a text's words without function words; of all words where it has no other."""
    words = set(units(text))
    return {word[:STEM] for word in words - deck_words.FUNCTION or words}


def order(pages: Pages) -> Answers:
    """Whether the headings that stand as titles do so in the asked order."""
    asked = pages.asks.get("outline") or []
    places = _places(pages, asked)
    found = [n for _, (n, titled) in sorted(places.items()) if titled]
    late = next((b for a, b in zip(found, found[1:], strict=False) if b < a), None)
    if len(asked) > 1:
        yield "headings in the asked order", len(found) > 1 and late is None, late


def element(pages: Pages) -> Answers:
    """Each asked element: code, diagram, formula, table, picture, columns, quotation, click steps, notes."""
    for asked in pages.asks.get("features") or []:
        if asked == "notes":
            yield asked, any(slide.note for slide in pages.deck.slides), None
        elif asked == "clicks":
            yield asked, any("v-click" in slide.prose for slide in pages.deck.slides), None
        else:
            place = next((n for n in pages.whole if pages.has(n, asked)), None)
            yield asked, place is not None, place


def figure(pages: Pages) -> Answers:
    """Each figure of the request (two digits or more; not the number of slides, nor the numbering of a list, nor what its
    first two sentences say: for whom the deck is)."""
    shown = {n: figures_in(text) for n, text in pages.texts.items()}
    for asked in sorted(asked_figures(pages.record)):
        place = next((n for n, figures in shown.items() if asked in figures), None)
        yield asked, place is not None, place


def figures_in(text: str) -> set[str]:
    """The numbers of a text without the signs that group digits; 10 000 is one and also two."""
    text = unicodedata.normalize("NFKC", text)
    found = re.findall(r"(?<!\w)\d+(?:[.,:']\d+)*", text)
    found += re.findall(r"(?<!\w)\d{1,3}(?: \d{3})+(?!\d)", text)
    digits = {"".join(c for c in number if c.isdigit()) for number in found}
    return {number for number in digits if len(number) > 1}


def asked_figures(record: Record) -> set[str]:
    """The figures of a request, or those that its asks name. A number at a word for slides in the request's language is how
    many there shall be."""
    if (own := (record.get("asks") or {}).get("figures")) is not None:
        return set(own)
    request = re.sub(r"(?m)^\s*\d{1,2}[.):]?\s", "", sources.request(record))
    pairs = _SLIDES.findall(unicodedata.normalize("NFKC", request).casefold())
    slides = {str((record.get("asks") or {}).get("slides")), *(d for pair in pairs for d in pair)}
    return figures_in(_PREFACE.sub("", request, count=1)) - slides


# The first two sentences or lines, where more follow.
_PREFACE = re.compile(r"(?s)\A\s*(?:\S.*?(?:[.!?]\s+|[。！？]\s*|\n\s*)){2}(?=\S)")
# 12 slides, a 12-slide deck, 10-12 pages, slides: 12, 12枚のスライド, 12张幻灯片 ..
_SLIDES = re.compile(
    r"(?<!\d)(\d{1,3})(?:\s?(?:-|–|to|bis|à|a|bis zu)\s?(\d{1,3}))?[\s-]?(?:[^\W\d_]{1,12}\s){0,1}(?:の)?"
    r"(?:slid|page|seite|foli|diapo|diaposit|lámin|pantall|planche|pagin|páginas|dia'?s|sider|sidor|bild|slajd|snímk|strán|"
    r"слайд|διαφάνει|slayt|salind|trang|स्लाइड|شرائح|شريحة|枚|张|張|页|頁|ページ|장|슬라이드|쪽)"
    r"|(?:slides?|folien|diapositiv\w*|スライド|幻灯片|슬라이드)\s*[:=]\s*(\d{1,3})"
)


def theme(pages: Pages) -> Answers:
    """The theme that was asked for."""
    if asked := pages.asks.get("theme"):
        yield asked, asked == (pages.record.get("deck") or {}).get("theme"), None


def checklist(pages: Pages) -> Answers:
    """Each item of the prompt's checklist, by a match of its words or elements."""
    for answer in pages.answers:
        yield answer["id"], answer["yes"], answer["slide"]


ASKED_CHECKS: dict[str, Callable[[Pages], Answers]] = {
    "heading": heading,
    "order": order,
    "element": element,
    "figure": figure,
    "theme": theme,
    "checklist": checklist,
}
# What each check looks for, in a sentence; a class of error of the renderer is none of these.
SAYS = {
    **LAYOUT_SAYS,
    **{
        name: " ".join((check.__doc__ or "").split())
        for name, check in {**SLIDE_CHECKS, **ASKED_CHECKS}.items()
    },
    "reads": "Text that does not read like its language, by the embedded model.",
    "error": "A slide that the renderer could not draw as it is written.",
}
# What nobody can say of a deck that another program made (render.imported), and why.
_UNKNOWN = {
    "unreadable": "its fonts are not known",
    "markup": "what is code in it is not known",
    "bare": "what is drawn in it is not known",
    "broken-picture": "which pictures it lacks is not known",
    "theme": "it has no theme of Slidev's",
}
# Elements that are known of it, by what it was read from; of others pictures are.
_KNOWN = {
    "pptx": {"image", "table", "notes"},
    "html": {"image", "table", "quote", "two-cols", "notes"},
}
_LACKING = {
    "heading": "no slide has the asked heading {}",
    "order": "the asked headings stand in another order",
    "element": "no slide shows the asked element: {}",
    "figure": "no slide shows the asked figure {}",
    "theme": "the deck has not the asked theme, {}",
    "checklist": "no slide shows what item {} of the checklist looks for",
}


def judge(record: Record, run: str | Path, limits: Limits, reading: Reading | None = None) -> Judge:
    """The value of `judge` for a rendered record. `reading`: of the deck's text. Raises cli.BadData for a picture that
    cannot be read."""
    return verdict(Pages(record, run, limits), reading)


def verdict(pages: Pages, reading: Reading | None = None) -> Judge:
    """The value of `judge` for a deck as its pages are seen; `reading`: of its text, None where nobody read it."""
    unknown = not_checked(pages)
    asked = [
        Asked(check=name, what=what, yes=yes, slide=slide)
        for name, check in ASKED_CHECKS.items()
        for what, yes, slide in check(pages)
        if not {name, f"{name} {what}"} & unknown.keys()
    ]
    found = slide_findings(pages, _text(pages.record, pages.run), reading)
    slides = [one for one in found if one["check"] not in unknown]
    items = {one["what"] for one in asked if one["check"] == "checklist"}
    absent = [*_too_few(pages), *(finding for one in asked for finding in _missing(one))]
    value: Judge = {
        "judge": NAME,
        "checks": _count(pages, slides, asked),
        "findings": [*slides, *absent],
        "asked": asked,
        "not_checked": unknown,
        "checklist": [answer for answer in pages.answers if answer["id"] in items],
        "usage": cast(Usage, {}),  # nobody was asked
    }
    if reading is None or reading.passed is None:
        value["not_checked"] = {"reads": reading.why if reading else "nobody read it"} | unknown
    return value


def not_checked(pages: Pages) -> dict[str, str]:
    """The checks that do not apply to a deck that another program made, `element code` and `checklist c2` among them, and
    why; {} for a deck of Slidev's."""
    kind = pages.record["render"].get("imported")
    if not kind:
        return {}
    lacks = [name for name in SAYS if name not in ("blank", "twice", "slides", "error")]
    if kind == "pictures":
        return dict.fromkeys(lacks, "a picture has no text") | _UNKNOWN
    known = _KNOWN.get(kind, {"image"})
    lacks = [f"element {name}" for name in pages.asks.get("features") or [] if name not in known]
    for item in pages.items:
        elements = set(re.findall(r"@([\w-]+)", "|".join(item["match"])))
        lacks += [f"checklist {item['id']}"] if elements - known else []
    return _UNKNOWN | dict.fromkeys(lacks, "whether it is there is not known")


def slide_findings(pages: Pages, text: str, reading: Reading | None = None) -> list[Finding]:
    """What is wrong with the slides of a deck of this text, in order of slide and line."""
    source = lint.Source(text)
    layout = lint.findings(pages.record, text, pages.limits)
    found = [one for one in layout if one["check"] not in ADVICE]
    blank = {one["slide"] for one in found if one["check"] == "blank"}

    def add(name: str, n: int, message: str) -> None:
        line = source.first(pages.xray[n]) if n in pages.xray else None
        box = _lost_box(pages, n) if name == "unreadable" else None
        found.append(Finding(line=line, slide=n, check=name, message=message, box=box))

    failed = {one["slide"] for one in found}
    for n in pages.numbers:
        if n not in pages.whole and n not in blank and n not in failed:
            add("blank", n, "nothing can be seen on the slide")
    for name, check in SLIDE_CHECKS.items():
        for n, message in check(pages):
            add(name, n, message)
    if reading and reading.passed is False:
        for n, said in pages.words.items():
            if said >= ECHO:
                add("reads", n, reading.why)
    return sorted(found, key=lambda f: (f["slide"] or 0, f["line"] or 0))


def _lost_box(pages: Pages, n: int) -> list[int]:
    """The first box of a slide whose text the picture does not show."""
    return pages.whole[n]["boxes"][min(pages.lost(n))]["box"]


def _text(record: Record, run: str | Path) -> str:
    """The deck's markdown; empty where its file has gone."""
    path = Path(run) / (record.get("images") or record.get("deck") or {}).get("path", "")
    return path.read_text("utf-8", "replace") if path.is_file() else ""


def fewest(asks: Asks) -> int:
    """How many slides a deck has at least, as it was asked for; 0 where nothing says it."""
    return asks.get("fewest") or asks.get("slides") or 0


def _too_few(pages: Pages) -> Iterator[Finding]:
    """The finding on a deck that has fewer slides than were asked for; each of those that lack counts (`_count`)."""
    asked, made = fewest(pages.asks), len(pages.numbers)
    if made < asked:
        least = "at least " if pages.asks.get("fewest") else ""
        message = (
            f"{least}{asked} slides were asked for, there {'is' if made == 1 else 'are'} {made}"
        )
        yield Finding(line=None, slide=None, check="slides", message=message, box=None)


def _missing(asked: Asked) -> Iterator[Finding]:
    """The finding on what was asked for and is not there."""
    if not asked["yes"]:
        message = _LACKING[asked["check"]].format(asked["what"])
        yield Finding(
            line=None, slide=asked["slide"], check=asked["check"], message=message, box=None
        )


def _count(pages: Pages, findings: Sequence[Finding], asked: Sequence[Asked]) -> Checks:
    """How many slides and asked things pass. A slide that was asked for and is not there does not; a fault of the deck
    that has no slide counts as one thing."""
    numbers = set(pages.numbers)
    wrong = {one["slide"] for one in findings if one["slide"] in numbers}
    homeless = sum(one["slide"] not in numbers for one in findings)
    slides = max(len(numbers), fewest(pages.asks))
    yes = sum(one["yes"] for one in asked)
    passed = len(numbers) - len(wrong) + yes
    return {"passed": passed, "of": slides + homeless + len(asked)}
