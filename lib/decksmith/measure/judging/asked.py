"""What a request asks for, read out of its words: slides, language, theme, elements, outline, audience (`read`).

Word lists and patterns stand in assets/prompts/asked.toml; nothing here understands. What is not certain is left out, since a
deck is measured by what is read: a word behind a negation, another deck's slides, two numbers that contradict each other."""

import functools
import itertools
import re
import tomllib
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Any

from decksmith.core import cli
from decksmith.core.records import Asks
from decksmith.measure.decks.parser import THEMES
from decksmith.measure.decks.words import FUNCTION, STOPWORDS, likeliest_language

MOST = 12_000  # characters that are read, half of them from the request's end
HEADINGS = range(3, 31)  # of an outline
LONGEST = 80  # characters of a heading
_MARKS = "\u0300-\u036f\u0900-\u0903\u093a-\u094f\u0951-\u0957\u0962\u0963\u064b-\u0652"
_TOKEN = re.compile(rf"\d+(?:[.,:]\d+)*|[^\W\d_](?:[^\W\d_]|[{_MARKS}])*|[^\w\s]|\n")
_QUOTED = re.compile(
    r'„[^“”"\n]{3,300}[“”"]|"[^"\n]{3,300}"|“[^”\n]{3,300}”|«[^»\n]{3,300}»|「[^」\n]{2,300}」'
)
_ENDS = frozenset(".!?;:\n。!?")
_STOPS = _ENDS | frozenset(",、()[]/")
_RANGE = frozenset(
    "- – — ~ to bis à a y e et and und or oder ou o of en tot do až til till и до ile sampai đến έως se".split()
)
_LETTERS = {
    "uk": "іїєґ",
    "ru": "ыэё",
    "fa": "پچژگ",
    "ar": "ةىأإ",
}  # that tell languages of one script apart
_PLAIN_THEMES = ("seriph", "apple-basic", "the-unnamed", "purplin")  # their names are no words
_NEAR = "theme|thema|thème|tema|motyw\\w*|motiv\\w*|тем[аыу]|主题|主題|テーマ|테마|थीम|سمة|θέμα"
_THEME = re.compile(
    rf"(?:(?:{_NEAR})[ :=\"'(は「用是]{{0,3}})?(?<![a-z\d_-])({'|'.join(sorted(THEMES, key=len, reverse=True))})(?![a-z\d_-])"
    rf"(?:[ \"')]{{0,2}}(?:{_NEAR}))?"
)
_ITEM = re.compile(
    r"\s{0,3}(?:([-*•])|(\(?(?:\d{1,2}|[a-n])[.):])|((?:slide|folie|diapositiva?|diapo|slajd)\s\d{1,2}\s?[:.–-]))\s{1,3}(\S.*)",
    re.I,
)
_AND = "(?:and|und|et|y|e|i|en|och|og|a)"
_CJK = dict(zip("二两三四五六七八九十", (2, 2, 3, 4, 5, 6, 7, 8, 9, 10), strict=True))
Phrases = dict[
    str, list[tuple[list[str], str]]
]  # by their first word: all words, and what they mean


def _fold(text: str) -> str:
    """One case, one form, no apostrophes; lines stay."""
    folded = unicodedata.normalize("NFKC", text).casefold().replace("\u0307", "")
    return re.sub("['’ʼ]", " ", folded)


@functools.cache
def _lists() -> dict[str, dict[str, Any]]:
    return tomllib.loads((cli.ROOT / "assets/prompts/asked.toml").read_text(encoding="utf-8"))


@functools.cache
def _words(table: str, key: str) -> frozenset[str]:
    return frozenset(re.split("[ /]", _fold(_lists()[table].get(key, ""))))


@functools.cache
def _by_word(table: str) -> dict[str, frozenset[str]]:
    """Which keys of a table of words a word stands under."""
    keys: dict[str, set[str]] = {}
    for key in _lists()[table]:
        for word in _words(table, key):
            keys.setdefault(word, set()).add(key)
    return {word: frozenset(found) for word, found in keys.items()}


@functools.cache
def _phrases(table: str) -> Phrases:
    """The phrases of a table, with commas between them; the longest first."""
    found: Phrases = {}
    for key, said in _lists()[table].items():
        for phrase in said.split(",") if key not in ("in", "then", "deck", "alone") else ():
            words = _TOKEN.findall(_fold(phrase))
            found.setdefault(words[0], []).append((words, key))
    for options in found.values():
        options.sort(key=lambda option: -len(option[0]))
    return found


def _at(phrases: Phrases, tokens: Sequence[str], place: int) -> tuple[str, int] | None:
    """What the phrase that begins here means, and where it ends."""
    for words, key in phrases.get(tokens[place], ()):
        if tokens[place : place + len(words)] == words:
            return key, place + len(words)
    return None


def read(request: str) -> Asks:
    """The `asks` of a request in words; empty where it says nothing that is certain. What it quotes, a deck below a line of
    dashes and code are not read, nor the middle of what is longer than MOST."""
    if len(request) > MOST:
        request = f"{request[: MOST // 2]}\n{request[-MOST // 2 :]}"
    request = "\n".join(re.split(r"(?m)^---\s*$", request, maxsplit=1)[0].split("```")[::2])
    text = _fold(_QUOTED.sub(" ", request))
    tokens = _TOKEN.findall(text)
    spoken = _spoken(text, tokens)
    counted = _slides(text, tokens, spoken)
    outline = _outline(request, counted.get("slides"))
    shown = text
    for heading in outline:  # a heading names no element
        shown = shown.replace(_fold(heading), " ")
    found: dict[str, object] = {
        "audience": _audience(tokens),
        "theme": _theme(text),
        **counted,
        "language": _language(text, tokens, spoken),
        "features": _elements(shown, spoken),
        "outline": outline,
    }
    return Asks(**{key: value for key, value in found.items() if value})  # type: ignore[typeddict-item]


def _negated(tokens: Sequence[str], place: int, end: int) -> bool:
    """Whether a negation stands in the clause before, or says so behind."""
    for i in range(place - 1, max(-1, place - 8), -1):
        new = tokens[i + 1 : i + 3] if tokens[i] == "," else []
        comma = any(token in _words("negation", "one") for token in new)
        if tokens[i] in _words("negation", "before"):
            return True
        if comma or tokens[i] in _ENDS or tokens[i] in _words("negation", "ends"):
            break
    for token in tokens[end : end + 3]:
        if token in _STOPS:
            return False
        if token in _words("negation", "behind"):
            return True
    return False


# --- language ---------------------------------------------------------------------------------------------------------


def _spoken(text: str, tokens: Sequence[str]) -> str | None:
    """The language that the request is written in."""
    if found := likeliest_language(text):
        return found
    for code, letters in _LETTERS.items():
        if sum(map(text.count, letters)) >= 1:
            return code
    tables = ("spoken", "number", "slides")
    own = {
        code: STOPWORDS.get(code, set()).union(*(_words(table, code) for table in tables))
        for code in _lists()["spoken"]
    }
    hits = {code: sum(token in words for token in tokens) for code, words in own.items()}
    second, most = sorted(hits.values())[-2:]
    return max(hits, key=lambda code: hits[code]) if most >= 2 and most > 1.3 * second else None


def _language(text: str, tokens: Sequence[str], spoken: str | None) -> str | None:
    """The language that the deck is asked in: the one that is named, else the request's; None where two are named."""
    named = {
        key
        for name in re.findall(_lists()["joined"]["name"], text)
        for key, names in _lists()["joined_names"].items()
        if name in names.split()
    }
    for i in range(len(tokens)):
        if found := _at(_phrases("language"), tokens, i):
            code, end = found
            if _is_asked_in(tokens, i, end) and not _negated(tokens, i, end):
                named.add(code)
    if not named:
        return spoken
    return named.pop() if len(named) == 1 else None


def _is_asked_in(tokens: Sequence[str], i: int, end: int) -> bool:
    """Whether a language's name says in which the deck shall be: "in German", "German slides", "language: German", "(German,"."""
    before, behind = [*tokens[max(0, i - 2) : i]], tokens[end : end + 1]
    is_last = not behind or behind[0] in _STOPS or behind[0] in FUNCTION or behind[0].isdigit()
    is_last = (
        is_last
        or behind[0] in _by_word("slides")
        or behind[0] in _by_word("number")
        or behind[0] in _words("language", "then")
    )
    if end - i > 1 or tokens[i] in _words("language", "alone"):
        return is_last
    if behind and (behind[0] in _by_word("slides") or behind[0] in _words("language", "deck")):
        return not before or before[-1] not in ("from", "of")
    bare = (not before or before[-1] in _STOPS) and (not behind or behind[0] in _STOPS)
    return is_last and (bare or any(word in _words("language", "in") for word in before))


# --- slides -----------------------------------------------------------------------------------------------------------


def _number(token: str, languages: frozenset[str]) -> int | None:
    if token.isascii() and token.isdigit() and len(token) <= 3:
        return int(token)
    for language in _by_word("number").get(token, frozenset()) & languages:
        for n, forms in enumerate(_lists()["number"][language].split(), 2):
            if token in _fold(forms).split("/"):
                return n
    return None


def _slides(text: str, tokens: Sequence[str], spoken: str | None) -> Asks:
    """`slides`, the number or the most, and `fewest`, where fewer will do; nothing where two numbers are named."""
    found, total = set(), set()
    for i, token in enumerate(tokens):
        languages = _by_word("slides").get(token)
        if not languages or (spoken and spoken not in languages and len(languages) < 5):
            continue  # the word for a slide is another language's for a day, or a picture
        if counted := _counted(tokens, i, languages, spoken):
            found.add(counted[:2])
            if counted[2]:
                total.add(counted[:2])
    found |= set(_joined_counts(text))
    if len(chosen := total or found) != 1:
        return {}
    ((fewest, most),) = chosen
    asks: Asks = {} if most is None else {"slides": most}
    return asks if fewest is None else {**asks, "fewest": fewest}


def _counted(
    tokens: Sequence[str], i: int, languages: frozenset[str], spoken: str | None
) -> tuple[int | None, int | None, bool] | None:
    """(fewest, most, whether it says "in total") of the number at the word for slides at i; None where there is none, or where
    it is of other slides."""
    if tokens[i + 1 : i + 2] in ([":"], ["="]) and "".join(tokens[i + 3 : i + 4]) in ("", *_STOPS):
        n = _number("".join(tokens[i + 2 : i + 3]), languages)
        return (None, n, True) if n else None
    at = next((j for j in range(i - 1, max(-1, i - 5), -1) if not _fills(tokens[j])), -1)
    n = _number(tokens[at], languages) if at >= 0 else None
    if n is None or n < 1 or (n == 1 and tokens[at + 1] != "-"):
        return None
    low = _number(tokens[at - 2], languages) if at > 1 and tokens[at - 1] in _RANGE else None
    if low and not low < n:
        return None
    at -= 2 if low else 0
    clause = tokens[max(0, at - 5) : at]
    clause = clause[
        max((k + 1 for k, t in enumerate(clause) if t in _ENDS and t != "."), default=0) :
    ]
    before, behind = " ".join(clause), " ".join(tokens[i + 1 : i + 4])

    def says(kind: str) -> bool:
        phrases = _fold(_lists()["bound"][kind]).split(", ")
        later = [p for p in phrases if p in _fold(_lists()["bound"]["behind"]).split(", ")]
        first = any(f" {before}".endswith(f" {p}") for p in phrases)
        return first or any(f"{behind} ".startswith(f"{p} ") for p in later)

    total = any(
        word in clause or word in tokens[i + 1 : i + 3] for word in _words("bound", "total")
    )
    if _of_others(tokens[max(0, at - 2) : at], tokens[i + 1 : i + 7], spoken) and not says("most"):
        return None
    if low:
        return low, n, total
    if says("most"):
        return 1, n, total
    if says("under"):
        return 1, n - 1, total
    if says("least"):
        return n, None, total
    negated = bool(clause) and clause[-1] in _words("negation", "before")
    return None if says("vague") or negated else (None, n, total)


def _fills(token: str) -> bool:
    """Whether a word may stand between a number and the slides: "eight short slides"."""
    if token == "-":
        return True
    others = (
        _words("not_asked", "units"),
        FUNCTION,
        _words("others", "en"),
        _words("negation", "before"),
    )
    return (
        token.isalpha()
        and token not in _by_word("number")
        and not any(token in words for words in others)
    )


def _of_others(before: Sequence[str], behind: Sequence[str], spoken: str | None) -> bool:
    """Whether these are other slides than those that are asked for: "the 20 slides of last year are attached"."""
    if any(word in _words("others", code) for word in before for code in ("en", spoken or "en")):
        return True
    if behind and behind[0] in _words("not_asked", "next"):
        return True
    ends = next((k for k, token in enumerate(behind) if token in _ENDS), len(behind))
    if any(word in _words("not_asked", "behind") for word in behind[:ends]):
        return True
    return behind[:1] in (["of"], ["from"]) and any(
        word in _words("not_asked", "of") for word in behind[1:2]
    )


def _joined_counts(text: str) -> Iterator[tuple[int | None, int | None]]:
    """(fewest, most) of the numbers of slides in scripts without blanks."""
    lists = _lists()["joined"]
    for match in re.finditer(lists["count"], text):
        sign, first, second, behind = match[1], match[2], match[3], match[4] or ""
        around = re.split("[,、。\n]", text[max(0, match.start() - 8) : match.start()])[-1]
        n = int(first) if first.isdigit() else _CJK.get(first[0], 0) if len(first) == 1 else 0
        n = 10 + _CJK[first[1]] if len(first) == 2 and first[0] == "十" else n
        if n < 2 or sign in ("第", "제") or any(word in around for word in lists["others"].split()):
            continue
        if second:
            yield n, int(second)
        elif (sign or behind) and {sign, behind} & {*lists["most"].split()}:
            yield 1, n
        elif {sign, behind} & {*lists["least"].split()}:
            yield n, None
        elif not sign and not behind:
            yield None, n


# --- theme, elements, audience ----------------------------------------------------------------------------------------


def _theme(text: str) -> str | None:
    """The one theme that is named, with the word for theme beside it where its name is a word; "default" also between commas."""
    named = set()
    for match in _THEME.finditer(text):
        before, behind = (
            text[max(0, match.start() - 24) : match.start()],
            text[match.end() : match.end() + 1],
        )
        alone = before.rstrip()[-1:] in (*",(",) and behind in (*",.:)",) and match[1] == "default"
        if match[0] != match[1] or match[1] in _PLAIN_THEMES or alone:
            words = _TOKEN.findall(before)[-2:]
            if not _negated([*words, match[1]], len(words), len(words) + 1):
                named.add(match[1])
    return named.pop() if len(named) == 1 else None


def _elements(text: str, spoken: str | None) -> list[str]:
    """The elements that are asked for, in the order of the lists."""
    lists, found, i = _lists(), set(), 0
    tokens = [token for token in _TOKEN.findall(text) if token != "-"]
    own, only = _by_word("slides"), _by_word("element_only")
    while i < len(tokens):
        if never := _at(_phrases("element_never"), tokens, i):
            i = never[1]
            continue
        if there := _at(_phrases("element"), tokens, i):
            name, end = there
            others = spoken and (
                spoken not in only.get(tokens[i], {spoken}) or spoken in own.get(tokens[i], ())
            )
            about = i and tokens[i - 1] in _words("negation", "about")
            if not others and not about and not _negated(tokens, i, end):
                found.add(name)
            i = end - 1
        i += 1
    joined = lists["element_joined"]
    for name in lists["element"]:
        for match in re.finditer(joined.get(name) or "(?!)", text):
            before, behind = (
                text[max(0, match.start() - 5) : match.start()],
                text[match.end() : match.end() + 6],
            )
            behind = re.split("[,、。\n]", behind)[0]
            if not re.search(joined["not_before"], before) and not re.search(
                joined["not_behind"], behind
            ):
                found.add(name)
    return [name for name in lists["element"] if name in found]


def _audience(tokens: Sequence[str]) -> str | None:
    """Who listens, by the first word for people that a "for" stands before."""
    for i, token in enumerate(tokens):
        if names := _by_word("audience").get(token, frozenset()) - {"for"}:
            clause = tokens[max(0, i - 4) : i]
            clause = clause[max((k + 1 for k, t in enumerate(clause) if t in _STOPS), default=0) :]
            if any(word in _words("audience", "for") for word in clause) and not _negated(
                tokens, i, i + 1
            ):
                return min(names)
    return None


# --- outline ----------------------------------------------------------------------------------------------------------


def _outline(request: str, slides: int | None) -> list[str]:
    """The headings that a request lists: under a word for outline, as numbered slides, or about as many as slides. None where
    two lists could be meant."""
    found, intro = [], ""
    for kind, run in itertools.groupby(request.split("\n"), _kind):
        lines = [line.strip() for line in run]
        if kind == "":
            continue
        items = [match[4] if (match := _ITEM.fullmatch(line)) else line for line in lines]
        if kind == "line":
            short = all(len(line.split()) <= 9 and line[-1] not in ".!?:" for line in lines)
            if not (short and len(lines) in HEADINGS and _is_headed(intro)):
                found += [listed for line in lines if (listed := _inline(line))]
                intro = lines[-1]
                if len(lines) > 1 and _is_headed(lines[0]) and ":" in lines[0][-2:]:
                    rest = lines[1:]
                    short = all(len(line.split()) <= 9 and line[-1] not in ".!?:" for line in rest)
                    found += [rest] if short and len(rest) in HEADINGS else []
                continue
        numbered = kind == "number" and slides is not None and 0 <= slides - len(items) <= 3
        if kind == "slide" or numbered or _is_headed(intro):
            found.append(items)
        intro = ""
    headings = [_heading(item) for item in found[0]] if len(found) == 1 else []
    return headings if all(headings) and len(headings) in HEADINGS else []


def _kind(line: str) -> str:
    """What a line is: "bullet", "number" or "slide" of a list, "line", or "" where it is empty."""
    match = _ITEM.fullmatch(line.rstrip()) if len(line) <= 4 * LONGEST else None
    if match is None:
        return "line" if line.strip() else ""
    return "bullet" if match[1] else "number" if match[2] else "slide"


def _is_headed(intro: str) -> bool:
    """Whether what stands before a list calls it an outline."""
    return any(token in _words("outline", "words") for token in _TOKEN.findall(_fold(intro)))


def _inline(line: str) -> list[str]:
    """The headings behind `Sections:` on a line, between slashes, semicolons or commas."""
    line = line[: 40 * LONGEST]
    for colon in re.finditer(": ?", line):
        head = re.split("[.!?:]", line[max(0, colon.start() - LONGEST) : colon.start()])[-1]
        if _is_headed(head):
            rest = re.split(r"[.!?](?:\s|$)", line[colon.end() :], maxsplit=1)[0]
            sign = next((sign for sign in (" / ", ";", ",") if rest.count(sign) >= 2), "")
            return _split(rest, sign) if sign else []
    return []


def _split(rest: str, sign: str) -> list[str]:
    """The headings between the signs; none where it is not certain whether the last is one or two."""
    *items, end = [item.strip() for item in rest.split(sign)]
    if any(item[:1].islower() or item[:1].isdigit() for item in items):
        return []  # more likely steps or figures
    if sign != ",":
        return [*items, end]
    two = re.split(rf"\b{_AND}\s+(?=[A-ZÄÖÜÉÁÍÓÚŁŚŻ])", end, maxsplit=1)
    if len(two) == 1 and re.search(rf"\s{_AND}\s", end):
        return []
    return [*items, *(part.strip() for part in two if part.strip())]


def _heading(item: str) -> str:
    """An item of a list as a heading: what stands before a colon, a dash or a bracket; '' for what is none."""
    head, *rest = re.split(r": | – | — | - | \(", item.strip(), maxsplit=1)
    head = (item if rest and len(rest[0].split()) <= 4 else head).strip(' .,;:*"“”')
    return head if len(head) <= LONGEST and len(head.split()) <= 10 else ""
