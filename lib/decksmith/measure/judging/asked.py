"""What a request asks for, read out of its words: slides, language, theme, elements, outline, audience (`read`).

Words and patterns stand in assets/prompts/asked.toml; nothing here understands. What is not certain is left out, since a deck is
measured by what is read: a word behind a negation, another deck's slides, two numbers that contradict each other."""

import functools
import re
import unicodedata
from collections.abc import Iterator

from decksmith.core import config_files
from decksmith.core.records import Asks
from decksmith.measure.decks.parser import THEMES
from decksmith.measure.decks.words import FUNCTION, STOPWORDS, likeliest_language

MOST = 12_000  # characters that are read, half of them from the request's end
HEADINGS = range(3, 31)  # of an outline
NEAR = 70  # characters before and behind a word that may say how it is meant
_MARKS = "\u0300-\u036f\u0900-\u0903\u093a-\u094f\u0951-\u0957\u0962\u0963\u064b-\u0652"
_TOKEN = re.compile(rf"\d+(?:[.,:]\d+)*|[^\W\d_](?:[^\W\d_]|[{_MARKS}])*|[^\w\s]|\n")
Bounds = tuple[int | None, int | None]  # how many slides: the fewest and the most
_CJK = dict(zip("二两三四五六七八九十", (2, 2, 3, 4, 5, 6, 7, 8, 9, 10), strict=True))


_lists = functools.partial(config_files.asset, "prompts/asked.toml")


def _fold(text: str) -> str:
    """One case, one form, no apostrophes; lines stay."""
    folded = unicodedata.normalize("NFKC", text).casefold().replace("\u0307", "")
    return re.sub("['’ʼ]", " ", folded)


def _joined(text: str) -> str:
    """The tokens of a folded text with blanks between them."""
    return f" {' '.join(_TOKEN.findall(text))} ".replace("\n", "¶")


@functools.cache
def _words(table: str, key: str = "") -> dict[str, str]:
    """The words of one key of a table, or of all, and their keys; the longest first."""
    if table == "function":
        return dict.fromkeys(sorted(FUNCTION), "")
    chosen = {key: _lists()[table].get(key, "")} if key else _lists()[table]
    found = {
        _joined(_fold(word)).strip(): name
        for name, words in chosen.items()
        for word in re.split(r"[ /]" if table == "number" else r"\|", words)
    }
    return dict(sorted(found.items(), key=lambda entry: -len(entry[0])))


@functools.cache
def _pattern(name: str, code: str = "") -> re.Pattern[str]:
    """A pattern of asked.toml for a language."""

    def words(match: re.Match[str]) -> str:
        found = _words(*match[1].replace("CODE", code).split("."))
        return "|".join(map(re.escape, found)) or "(?!)"

    written = _lists()["pattern"][name].replace("N)", rf"\d{{1,3}}|<number.{code}>)")
    return re.compile(re.sub(r"(?<!\?P)<([a-z_]+(?:\.\w+)?)>", words, written))


def _says(name: str, text: str, start: int, end: int, code: str = "") -> bool:
    """Whether what stands directly before or behind a place matches a pattern."""
    before, behind = text[max(0, start - NEAR) : start], text[end : end + NEAR]
    pattern = _pattern(name, code)
    return bool(pattern.search(before) or pattern.match(f"»{behind}"))


def read(request: str) -> Asks:
    """The `asks` of a request in words; empty where it says nothing that is certain. What it quotes, a deck below a line of
    dashes and code are not read, nor the middle of what is longer than MOST."""
    if len(request) > MOST:
        request = f"{request[: MOST // 2]}\n{request[-MOST // 2 :]}"
    request = "\n".join(re.split(r"(?m)^---\s*$", request, maxsplit=1)[0].split("```")[::2])
    plain = _fold(re.sub(_lists()["raw"]["quoted"], " ", request))
    text = _joined(plain)
    spoken = _spoken(plain, text.split())
    counted = _slides(text, plain, spoken or "")
    outline = _outline(request, counted.get("slides"))
    shown = plain
    for heading in outline:  # a heading names no element
        shown = shown.replace(_fold(heading), " ")
    found: dict[str, object] = {
        "audience": _audience(text),
        "theme": _theme(plain),
        **counted,
        "language": _language(text, plain, spoken),
        "features": _elements(shown, spoken or ""),
        "outline": outline,
    }
    return Asks(**{key: value for key, value in found.items() if value})  # type: ignore[typeddict-item]


def _spoken(text: str, tokens: list[str]) -> str | None:
    """The language that the request is written in."""
    if found := likeliest_language(text):
        return found
    for code, letters in _lists()["letters"].items():
        if not set(letters).isdisjoint(text):
            return str(code)
    hits = {}
    for code in _lists()["spoken"]:
        own = {word for table in ("spoken", "number", "slides") for word in _words(table, code)}
        hits[code] = sum(token in own | STOPWORDS.get(code, set()) for token in tokens)
    second, most = sorted(hits.values())[-2:]
    return max(hits, key=lambda code: hits[code]) if most >= 2 and most > 1.3 * second else None


def _language(text: str, plain: str, spoken: str | None) -> str | None:
    """The language that the deck is asked in: the one that is named, else the request's; None where two are named."""
    joined = re.findall(_lists()["raw"]["language"], plain)
    named = {_words("joined_names")[name] for name in joined}
    for match in _pattern("language").finditer(text):
        if not _says("negated", text, match.start(), match.end()):
            named.update(_words("language")[name] for name in match.groups() if name)
    return spoken if not named else named.pop() if len(named) == 1 else None


# --- slides -----------------------------------------------------------------------------------------------------------


def _slides(text: str, plain: str, spoken: str) -> Asks:
    """`slides`, the number or the most, and `fewest`, where fewer will do; nothing where two numbers are named."""
    found, total = {*filter(None, _joined_counts(plain))}, set[Bounds]()
    for code in {spoken, "en"} if spoken else _lists()["slides"]:
        for match in _pattern("colon", code).finditer(text):
            total.add((None, _number(match["n"], code)))
        for match in _pattern("slides", code).finditer(text):
            if counted := _bounds(text, match, code):
                found.add(counted)
                if _says("total", text, match.start(), match.end()):
                    total.add(counted)
    if len(chosen := total or found) != 1:
        return {}
    fewest, most = chosen.pop()
    asks: Asks = {} if most is None else {"slides": most}
    return asks if fewest is None else {**asks, "fewest": fewest}


def _number(word: str, code: str) -> int:
    if word.isdigit():
        return int(word)
    names = _lists()["number"][code].split(" ")
    return next(n for n, forms in enumerate(names, 2) if word in _fold(forms).split("/"))


def _bounds(text: str, match: re.Match[str], code: str) -> Bounds | None:
    """What is said of a number of slides; None for other slides than those that are asked for, and for "about ten"."""
    n, low = _number(match["n"], code), match["low"] and _number(match["low"], code)
    if n < 1 or (n == 1 and not match[0].startswith(f"{match['n']} - ")) or (low and not low < n):
        return None
    kinds = ("most", "others", "under", "least", "vague")
    kind = next((k for k in kinds if _says(k, text, match.start(), match.end(), code)), "")
    return (low, n) if low and kind not in ("others", "vague") else _bound(kind, n)


def _bound(kind: str, n: int) -> Bounds | None:
    said: dict[str, Bounds] = {
        "most": (1, n),
        "under": (1, n - 1),
        "least": (n, None),
        "": (None, n),
    }
    return said.get(kind)


def _joined_counts(text: str) -> Iterator[Bounds | None]:
    """The numbers of slides in scripts without blanks."""
    raw = _lists()["raw"]
    for match in re.finditer(raw["count"], text):
        first, signs = match["n"], f"{match['sign'] or ''}{match['behind'] or ''}"
        around = re.split("[,、。\n]", text[max(0, match.start() - 8) : match.start()])[-1]
        n = int(first) if first.isdigit() else sum(_CJK[sign] for sign in first)
        if n < 2 or re.search(raw["others"], around) or re.match(".[十]", first):  # 二十 is rare
            continue
        kind = next((kind for kind in ("most", "least") if re.fullmatch(raw[kind], signs)), signs)
        last = int(match["last"] or 0)
        yield (n, last) if last > n else _bound(kind, n)


# --- theme, elements, audience ----------------------------------------------------------------------------------------


def _theme(text: str) -> str | None:
    """The one theme that is named: with the word for theme beside it, or by a name that is no word."""
    named = set[str]()
    for match in re.finditer(_lists()["raw"]["theme"].replace("THEMES", "|".join(THEMES)), text):
        before = _TOKEN.findall(text[max(0, match.start() - 24) : match.start()])[-2:]
        if not any(token in _words("negation", "before") for token in before):
            named.update(name for name in match.groups() if name)
    return named.pop() if len(named) == 1 else None


def _elements(plain: str, spoken: str) -> list[str]:
    """The elements that are asked for, in the order of the lists."""
    found, raw = set(), _lists()["element_joined"]
    text = _pattern("never").sub("¤", _joined(plain.replace("-", " ")))
    alone, slides = _words("element_only"), _words("slides", spoken)
    for match in _pattern("element").finditer(text):
        place = match.start(), match.end()
        others = spoken and (alone.get(match[0], spoken) != spoken or match[0] in slides)
        if not others and not _says("about", text, *place) and not _says("negated", text, *place):
            found.add(_words("element")[match[0]])
    for name in _lists()["element"]:
        for match in re.finditer(raw[name], plain):
            before = re.search(raw["not_before"], plain[max(0, match.start() - 5) : match.start()])
            behind = re.split("[,、。\n]", plain[match.end() : match.end() + 6])[0]
            if not before and not re.search(raw["not_behind"], behind):
                found.add(name)
    return [name for name in _lists()["element"] if name in found]


def _audience(text: str) -> str | None:
    """Who listens, by the first word for people behind a "for"."""
    for match in _pattern("audience").finditer(text):
        if not _says("vague", text, match.start() + 1, match.end()):
            return _words("audience")[match["who"]]
    return None


# --- outline ----------------------------------------------------------------------------------------------------------


def _outline(request: str, slides: int | None) -> list[str]:
    """The headings that a request lists: below or behind a word for outline, as numbered slides, or about as many numbers as
    slides. None where two lists could be meant."""
    raw, found = _lists()["raw"], []
    lined = f"\n{request}\n"
    for match in re.finditer(raw["listed"], lined):
        listed = match["items"].strip()
        items = [re.sub(raw["mark"], "", line.strip()) for line in listed.split("\n")]
        numbered = listed[0] in "(0123456789" and slides and 0 <= slides - len(items) <= 3
        if re.match(raw["slide"], listed) or numbered or _is_headed(match["intro"]):
            found.append(items)
    for match in re.finditer(raw["lines"], lined):
        if _is_headed(match["intro"]):
            found.append(match["items"].strip().split("\n"))
    for match in re.finditer(raw["inline"], lined):
        if _is_headed(match["intro"]):
            found += [items] if (items := _split(match["items"])) else []
    headings = [_heading(item) for item in found[0]] if len(found) == 1 else []
    return headings if all(headings) and len(headings) in HEADINGS else []


def _is_headed(intro: str) -> bool:
    """Whether what stands before a list calls it an outline."""
    return bool(_pattern("outline").search(_joined(_fold(intro))))


def _split(listed: str) -> list[str]:
    """The headings between slashes, semicolons or commas; none where it is not certain whether the last is one or two."""
    sign = next((sign for sign in (" / ", ";", ",") if listed.count(sign) >= 2), None)
    *items, end = [item.strip() for item in listed.split(sign)] if sign else [""]
    if not items or any(item[:1].islower() or item[:1].isdigit() for item in items):
        return []  # more likely steps or figures
    two = re.split(_lists()["raw"]["two"], end, maxsplit=1) if sign == "," else [end]
    if len(two) == 1 and sign == "," and re.search(_lists()["raw"]["and"], end):
        return []
    return [*items, *(part.strip() for part in two if part.strip())]


def _heading(item: str) -> str:
    """An item of a list as a heading: what stands before a colon, a dash or a bracket; '' for what is none."""
    head, *rest = re.split(r": | – | — | - | \(", item.strip(), maxsplit=1)
    head = (item if rest and len(rest[0].split()) <= 4 else head).strip(' .,;:*"“”')
    return head if len(head.split()) <= 10 else ""
