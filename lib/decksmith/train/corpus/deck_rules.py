"""The strict rules for deck.md, on our parser: frontmatter, layouts, slots, addresses, pictures,
notes, tags, words.
"""

import json
import re
from collections.abc import Iterator
from urllib.parse import unquote

from decksmith.core import config_files
from decksmith.measure.decks import clean, features
from decksmith.measure.decks import words as deck_words
from decksmith.measure.decks.parser import LAYOUTS, SLOT, THEMES, Deck, Slide
from decksmith.measure.decks.pictures import QUERY_LENGTH
from decksmith.measure.decks.words import SCRIPTS, language_share
from decksmith.train.corpus.drafts import SLIDES_OFF, fault
from decksmith.train.corpus.records import DraftFault, Seed

# Least value of language_share, by what tells the language.
LANGUAGE = {"latin": 0.8, "script": 0.5}
_PICTURE_LAYOUTS = ("image", "image-left", "image-right", "intro-image", "intro-image-right")
_BARE_LAYOUTS = ("end", "image", "intro-image", "3-images")  # that say something without words
_WORDS = {name: said.split() for name, said in config_files.asset("draft-words.toml").items()}
_KEYS, _ICONS = frozenset(_WORDS["keys"]), tuple(_WORDS["icons"])
_HTML, _SLIDEV = frozenset(_WORDS["html"]), frozenset(_WORDS["slidev"])
_BANNED = frozenset(_WORDS["banned"])
_PLACEHOLDER = re.compile(
    r"(?i)lorem ipsum|\[insert\b|\byour text here\b|\bslide title here\b|\bTODO:|\bTBD\b"
)
_REMOTE = re.compile(r"""(?ix)\b(?:https?|ftp|file|wss?)://\S* | (?:src|href|poster|data)\s*=\s*["']?//[\w.-]+\S*
                     | url\(\s*["']?//[\w.-]+\S* | \]\(\s*//[\w.-]+\S*""")
_REMOTE_KEY = re.compile(r"(?i)\b[a-z][a-z+.-]{1,20}://|\"//\w|url\(\s*['\"\\]*//")  # in JSON
_INLINE_CODE = re.compile(r"(`+)[^`\n]{1,500}?\1")
_STEPS = re.compile(r"\{[^}|]*\|[^}]*\}")


Place = tuple[int, str, str]  # line of deck.md, rule, message


def faults(raw: str, deck: Deck, seed: Seed) -> Iterator[DraftFault]:
    """What is wrong with a deck by its text; `raw` is the file, `deck` is what was parsed of it."""
    for line, rule, message in _places(raw, deck, seed):
        yield fault("deck.md", line, rule, message)


def _places(raw: str, deck: Deck, seed: Seed) -> Iterator[Place]:
    text = deck.text
    if clean.clean(raw)[0].strip() != text.replace("\0", "").strip() and "\0" not in raw:
        yield 1, "wrapped", "something stands around the deck"
        return
    yield from _headmatter(deck, seed)
    asked = seed.get("slides")
    if isinstance(asked, int) and abs(len(deck.shown) - asked) > SLIDES_OFF:
        yield 1, "slides", f"{len(deck.shown)} slides, asked were {asked}"
    # The layouts of Slidev and of the theme.
    known = {*LAYOUTS, *THEMES.get(deck.theme, THEMES["default"])["layouts"]}
    for slide in deck.slides:
        # The slide without fences, comments and inline code, character for character.
        bare = _INLINE_CODE.sub(lambda match: " " * len(match[0]), slide.prose)
        yield from _layout(slide, known)
        yield from _emptiness(slide)
        yield from _addresses(slide, bare)
        yield from _pictures(slide)
        yield from _comments(slide, bare)
        for fence in slide.fences:
            if not fence.closed:
                yield fence.line, "fence", "the code fence is not closed"
        yield from _markup(slide, bare)
    counts = found_features(deck)
    for feature in seed.get("features") or []:
        if feature in counts and not counts[feature]:
            yield 1, "feature", f"asked was {feature}, and no slide has it"
    if language := seed.get("language"):
        texts = [deck_words.fold(slide.text) for slide in deck.shown]
        share, least = language_share(texts, language), least_share(language)
        if share is not None and share < least:
            message = f"the text does not read as {language} ({share:.2f}, least {least})"
            yield 1, "language", message


def found_features(deck: Deck) -> dict[str, int]:
    """How often a deck uses each of drafts.FEATURES."""
    counts = features.craft(deck)[1]
    slides = deck.shown
    fences = [fence for slide in slides for fence in slide.fences]
    plain = ("", "mermaid", "text", "txt", "md")
    quote = re.compile(r"(?m)^\s*>\s")
    return {
        "code": sum(fence.closed and fence.lang not in plain for fence in fences),
        "mermaid": sum(fence.closed and fence.lang == "mermaid" for fence in fences),
        "katex": counts["katex"],
        "table": counts["tables"] + sum("<table" in s.prose.lower() for s in slides),
        "image": sum(bool(s.images) or bool(s.frontmatter.get("image-query")) for s in slides),
        "two-cols": sum(s.layout.startswith("two-cols") or "grid-cols-" in s.prose for s in slides),
        "quote": sum(s.layout == "quote" or bool(quote.search(s.prose)) for s in slides),
        "clicks": counts["clicks"] + sum(bool(_STEPS.search(fence.info)) for fence in fences),
        "notes": sum(bool(s.note) for s in slides),
    }


def least_share(language: str) -> float:
    """The least value of language_share with which a text counts as being in a language."""
    return LANGUAGE["script" if language.split("-")[0] in SCRIPTS else "latin"]


def _headmatter(deck: Deck, seed: Seed) -> Iterator[Place]:
    head = deck.headmatter
    if not deck.text.startswith("---\n") or not (head.get("theme") and head.get("title")):
        message = "the deck does not begin with a frontmatter that names theme and title"
        yield 1, "headmatter", message
    for _, line, message in deck.faults:
        yield line or 1, "yaml", message
    asked = seed.get("theme")
    if deck.theme != asked and not deck.faults:
        line = deck.slides[0].key_line("theme") if deck.slides else 1
        yield line, "theme", f"the theme is {deck.theme}, asked was {asked}"


def _line(slide: Slide, match: re.Match[str]) -> int:
    """The line of a match in the slide's content or in what is as long."""
    return slide.content_line + match.string.count("\n", 0, match.start())


def _layout(slide: Slide, known: set[str]) -> Iterator[Place]:
    line, name = slide.key_line("layout"), slide.layout
    if name not in known:
        yield line, "unknown-layout", f"the layout {name[:60]} does not exist"
    elif name.startswith("iframe"):
        yield line, "forbidden", f"the layout {name} shows another site"
    marks = [SLOT.fullmatch(text.strip()) for text in slide.content.split("\n")]
    slots = {mark[1] for mark in marks if mark}
    for slot in LAYOUTS.get(name, ()):
        if slot not in slots:
            yield line, "slots", f"the layout {name} has nothing under ::{slot}::"


def _emptiness(slide: Slide) -> Iterator[Place]:
    lines = [line for line in slide.content.split("\n") if line.strip()]
    matches = [re.match(r"([A-Za-z][\w-]*):(?:\s|$)", line) for line in lines]
    keys = [match[1] for match in matches if match]
    are_keys = bool(lines) and len(keys) == len(lines) and any(key in _KEYS for key in keys)
    if slide.frontmatter_line is None and are_keys:  # Slidev shows them as text
        message = "a blank line parts a frontmatter from its `---`"
        yield slide.content_line, "frontmatter-blank", message
    elif not (slide.prose.strip() or slide.fences or slide.layout in _BARE_LAYOUTS):
        yield slide.start, "empty-slide", "the slide is empty"


def _addresses(slide: Slide, bare: str) -> Iterator[Place]:
    for address in _REMOTE.finditer(bare):
        yield _line(slide, address), "remote-url", f"the address {address[0][:60]}"
    hidden = [slide.note or "", *(text for _, text in slide.comments)]
    for text in hidden:
        if match := _REMOTE.search(text):
            line = slide.start + slide.raw.count("\n", 0, max(0, slide.raw.find(match[0])))
            yield line, "remote-url", f"the address {match[0][:60]}"
    for fence in slide.fences:
        if fence.lang == "mermaid" and (match := _REMOTE.search(fence.text)):
            line = fence.line + 1 + fence.text.count("\n", 0, match.start())
            yield line, "remote-url", f"the address {match[0]}"
    for key, value in slide.frontmatter.items():
        plain = json.dumps(value, ensure_ascii=False, default=str).replace("image-query://", "")
        if _REMOTE_KEY.search(plain):
            yield slide.key_line(key), "remote-url", f"{key} is an address"
        if key == "notes":
            yield slide.key_line(key), "note", "a key `notes` is shown to nobody"


def _pictures(slide: Slide) -> Iterator[Place]:
    shows = slide.layout in _PICTURE_LAYOUTS
    if "image-query" in slide.frontmatter:
        query, line = slide.frontmatter["image-query"], slide.key_line("image-query")
        if not isinstance(query, str) or deck_words.count(query) < 2 or len(query) > QUERY_LENGTH:
            yield line, "picture", f"image-query is not 2 words to {QUERY_LENGTH} letters"
        if not shows:
            yield line, "picture", f"the layout {slide.layout} shows no picture"
    elif shows and not slide.frontmatter.get("image"):
        yield slide.key_line("layout"), "picture", f"the layout {slide.layout} has no image-query"
    for image in slide.images:
        url = image.url
        if url.startswith("image-query://"):
            query = unquote(url.removeprefix("image-query://"))
            if deck_words.count(query) < 2 or re.search(r"\s", url):
                yield image.line, "picture", "an image-query:// wants 2 words or more, joined by +"
            continue
        is_remote = re.match(r"(?i)[a-z][a-z+.-]*://|//", url)
        is_svg_part = image.kind == "url" and url.startswith("#")  # url(#gradient)
        if not is_remote and not is_svg_part:
            yield image.line, "picture", f"there is no file {url[:60]}"


def _comments(slide: Slide, bare: str) -> Iterator[Place]:
    for line, _ in slide.comments:
        yield line, "note", "a comment stands before the end of the slide"
    if match := re.search(r"(?m)<!--|^[ \t]*-->[ \t]*$", bare):
        yield _line(slide, match), "comment", f"a comment without its other half ({match[0]})"
    for comment in [slide.note or "", *(text for _, text in slide.comments)]:
        if re.search(r"(?m)^---\s*$|^layout:", comment):
            yield slide.start, "comment", "a comment runs on into the next slide"
    if slide.note is not None and deck_words.count(slide.note) < 2:
        yield slide.end, "note", "the note is empty"


def _markup(slide: Slide, bare: str) -> Iterator[Place]:
    # Formulas are blanked, character for character and line for line.
    blocks = r"\$\$[^$]{0,5000}\$\$"
    prose = re.sub(blocks, lambda math: re.sub(r"[^\n]", " ", math[0]), bare)
    inline = r"(?<![\\$\w])\$(?=[^\s$])[^$\n]{1,300}(?<=\S)\$(?!\w)"
    prose = re.sub(inline, lambda math: " " * len(math[0]), prose)
    if match := re.search(r"\{\{|\}\}", prose):
        yield _line(slide, match), "interpolation", f"{match[0]} stands outside of code"
    for opening in re.finditer(r"<([A-Za-z][\w.:-]*)(?=[\s/>])", prose):
        name = opening[1]
        tag = name.lower()
        joined = tag.replace("-", "")
        if joined in _BANNED and name != "Link":
            yield _line(slide, opening), "forbidden", f"the element <{name}>"
        elif not (tag in _HTML or joined in _SLIDEV or tag.startswith(_ICONS)):
            message = f"the component <{name[:40]}> does not exist"
            yield _line(slide, opening), "unknown-component", message
    if match := re.search(r"(?m)^\s*<<<.*|\son[a-z]+\s*=\s*[\"']", bare):
        yield _line(slide, match), "forbidden", f"{match[0].strip()[:40]} is not allowed"
    if match := _PLACEHOLDER.search(bare):
        yield _line(slide, match), "placeholder", f"the slide says {match[0]!r}"
