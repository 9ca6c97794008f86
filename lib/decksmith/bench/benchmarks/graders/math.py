"""Whether a mathematical answer is the expected one.

`plain` gives an answer (said.py finds it) a canonical form, `same` compares two. An answer is read from the
outside in: lists, names ("x = 4"), unions, intervals and inequalities, tuples and sets, numbers with units, words. What is left is
one expression, which Math-Verify (Kydlíček, Hugging Face) parses and compares. docs/benchmarks.md states the rules.
"""

import functools
import itertools
import logging
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

from decksmith.core import config_files

# Characters more than twice the expected answer's that are still compared as mathematics.
LONGEST_ANSWER = 2000
DEEPEST = 50  # brackets within brackets that are still parsed
# A decimal with so many places or more may stand for a value that has no end, correctly rounded (as in Math-Verify).
PLACES = 6


# One way of writing things

_TABLE = config_files.asset("mathematics.toml")
WRITTEN: dict[str, str] = _TABLE["written"]
SUPERSCRIPT = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+")
ROOT = re.compile(r"(?:√|(?<![\\a-z])sqrt)\s*(?:\(([^()]*(?:\([^()]*\)[^()]*)*)\)|(\d+|[a-zA-Z]))")
SYMBOL = re.compile("|".join(map(re.escape, WRITTEN)))
REWRITTEN = [(re.compile(pattern, re.S), by) for pattern, by in _TABLE["rewritten"]]
# Sets by their names.
SETS = [
    (re.compile(rf"(?:the |all |set of )*(?:{pattern})\.?", re.I), by)
    for pattern, by in _TABLE["sets"]
]
ONES = {word: n for n, word in enumerate(_TABLE["ones"].split())}
TENS = {word: 10 * n for n, word in enumerate(_TABLE["tens"].split(), 2)}
SPOKEN = re.compile(rf"(?=\w)({'|'.join(TENS)})?[- ]?({'|'.join(ONES)})?")
SLASHES = re.compile(r"\\\\(?=[a-zA-Z{}(\[])")
SHELLS = [("$", "$"), ("\\(", "\\)"), ("\\[", "\\]"), ("**", "**"), ("`", "`")]
WHOLE_TEXT = re.compile(r"\\text\s*\{([^{}]*)\}")
THOUSANDS = re.compile(r"[-+]?\d{1,3}(?:(?:,\d{3})+|(?: \d{3})+)(?:\.\d+)?%?")


@functools.lru_cache(8)
def _written(text: str) -> str:
    """A text with each thing written in one way: no layout, no dollars, no doubled backslashes, one name for each relation."""
    text = re.sub(r"\s{2,}", " ", text.strip())
    for opening, closing in SHELLS:
        whole = text.startswith(opening) and text.endswith(closing)
        if whole and len(text) > len(opening + closing):
            text = text[len(opening) : -len(closing)].strip()
    if re.fullmatch(r"\\?\{\s*\\?\}", text):
        return "\\emptyset"
    if "\\\\" in text and "matrix" not in text and "array" not in text:
        text = SLASHES.sub(r"\\", text)
    text = SUPERSCRIPT.sub(lambda hit: f"^{{{unicodedata.normalize('NFKD', hit[0])}}}", text)
    text = re.sub(r"[¼-¾⅐-⅞]", _fraction, text)
    if said := SPOKEN.fullmatch(text.lower()):
        text = str(TENS.get(said[1], 0) + ONES.get(said[2], 0))
    text = ROOT.sub(lambda hit: f"\\sqrt{{{hit[1] or hit[2]}}}", text)
    text = SYMBOL.sub(lambda found: WRITTEN[found[0]], text)
    for pattern, by in REWRITTEN:
        text = pattern.sub(by, text)
    text = text.strip().rstrip(".,;\\").strip()
    if found := WHOLE_TEXT.fullmatch(text):
        text = found[1].strip().rstrip(".")
    if len(text) > 2 and text[0] == "{":
        *inside, end = _depths(text)
        text = text[1:-1].strip() if end == 0 and 0 not in inside else text
    text = re.sub(r"^\](?=[^\[\]]*,)", "(", re.sub(r"(?<=\d|y|\))\[$", ")", text.strip("€£¥ \n")))
    return next((by for pattern, by in SETS if pattern.fullmatch(text)), text)


def _fraction(sign: re.Match[str]) -> str:
    above, _, below = unicodedata.normalize("NFKD", sign[0]).partition("⁄")
    return f"\\frac{{{above}}}{{{below}}}"


def _depths(text: str) -> list[int]:
    """How many brackets are open behind each letter, counting all kinds alike."""
    return list(itertools.accumulate((c in "([{") - (c in ")]}") for c in text))


# Units

# A unit is a word, or an abbreviation of two letters and more: a single letter behind a number is a variable ("2k" is not 2).
SCALES: dict[str, int] = _TABLE["scales"]
KNOWN = {name: unit for unit, names in _TABLE["units"].items() for name in names.split()}
FLAT = [(re.compile(pattern), by) for pattern, by in _TABLE["flat"]]
POWER = r"\s*(?:\^\s*\{?\s*-?\d\s*\}?|\^\\circ\s*)?"
TEXT = r"\\text\s*\{(?:[^{}]|\{[^{}]*\})*\}" + POWER
PIECE = rf"(?:{TEXT}|\\frac\s*\{{\s*{TEXT}\s*\}}\s*\{{\s*{TEXT}\s*\}})"
TEXT_UNIT = re.compile(rf"(?<=[\d\w)}}\]!])\s*({PIECE}(?:(?:\\cdot|[\s/])*{PIECE})*)$")
WORD = r"[^\W\d_\u0370-\u03ff\u2100-\u214f]+"  # Greek letters are variables
SYMBOLS = r"[-+\d.,/^{}() ]*"
WORD_UNIT = re.compile(
    r"(?P<number>[-+]?(?:\d[\d,]*\.?\d*|\.\d+|\\frac\s*\{\d+\}\s*\{\d+\}|\d+\s*/\s*\d+|\d+\s*\\frac\s*\{\d+\}\s*\{\d+\})"
    rf"|{SYMBOLS}(?:\\(?:pi|sqrt|frac|cdot|times)(?![a-z]){SYMBOLS})+(?=\s))"
    rf"(?P<gap>\s*)(?P<unit>{WORD}{POWER}(?:[ /.-]+{WORD}{POWER})*)\.?"
)
CURRENCY = re.compile(r"^(?:USD|US|EUR|GBP|Rs\.?)\s*(?=[-+\d.$])", re.I)


def _unit(text: str, like: str = "") -> tuple[str, str]:
    r"""An answer parted from its unit, `(answer, unit)`: the text at the end of an expression, or the words behind a number. A single letter
    is a unit where the other answer has it too (`like`)."""
    text = CURRENCY.sub("", text)
    if text.endswith("^\\circ"):
        return text.removesuffix("^\\circ").strip(), "degree"
    if (found := TEXT_UNIT.search(text)) and not _scale(found[1]):
        return text[: found.start()].strip(), found[1].strip()
    found = WORD_UNIT.fullmatch(text)
    if not found or _scale(found["unit"]):
        return text, ""
    word = re.split(r"[\W\d_]", found["unit"])[0]
    is_word = not word.isascii() or (len(word) > 2 and re.search(r"[aeiou]", word, re.I))
    known = _measure(found["unit"])
    if (
        known
        and (len(word) > 1 or "/" in found["unit"] or known == _measure(like))
        or (is_word and (found["gap"] or not word.isascii()))
    ):
        return found["number"].strip(), found["unit"]
    return text, ""


def _scale(words: str) -> str | None:
    """The first word that scales a number and is no unit: thousands, percent."""
    for word in re.split(r"[^a-z]+", words.lower()):
        if word.rstrip("s") in SCALES or word.startswith("percent"):
            return word
    scaled = re.search(
        "[百万萬億亿백천만억]|千(?![米克瓦])|тысяч|милли|tausend|million", words, re.I
    )
    return scaled and scaled[0]


def _measure(unit: str) -> dict[str, int] | None:
    """What a unit measures in, each with its power, where we know all of it: "sq cm" is cm to the 2; None for apples."""
    flat = re.sub(r"\}\s*\{", "/", unit.lower())
    for pattern, by in FLAT:
        flat = pattern.sub(by, flat)
    powers: dict[str, int] = {}
    sign = 1
    for word, power in re.findall(r"([a-z]+|/)\s*(-?\d)?", flat):
        if word == "/":
            sign = -1
            continue
        name = KNOWN.get(word) or KNOWN.get(word.rstrip("s"))
        if name is None:
            return None
        powers[name] = sign * int(power or 1)
    return powers or None


# What a question wants its answer in.
WANTED = re.compile(
    r"\b(?:in|to|how (?:many|much))\s+(?!in\b)((?:(?:square|cubic)\s+)?[a-z]+(?:\^?\{?[23]\}?)?(?:(?:/|\s+per\s+)[a-z]+)?)",
    re.I,
)

GIVEN = re.compile(r"\d\s*\\?(?:%|percent)")
PERCENT = re.compile(r"(?<![\d\s\\])\s*\\?(?:%|percent)")


# What a question gives and wants otherwise; a single letter that may be a unit; a power of a whole number.
POSED = re.compile(r"\b(?:simplif|expand|factor|evaluat|comput|calculat|convert|reduc)\w*", re.I)
LONE = re.compile(r"(.*\d)\s*(?:\\text\s*\{\s*)?([a-zA-Z](?:\^\s*\{?[23]\}?)?)\s*\}?")
RADICAND = re.compile(r"\\sqrt\s*\{?(\d+)")
POWERS = re.compile(r"(\d+)(?:\^\s*\{?(\d+)\}?)?")


def right(expected: str, answer: str, question: str) -> bool:
    """Whether an answer to a question is the expected one: the same, in a unit that the question names where it names one and the expected
    answer has none, as prime factors where it asks for those, and not what the question itself says."""
    if _too_long(expected, answer):
        return False
    text = unicodedata.normalize("NFKC", question.replace("$", ""))
    wanted = [found for name in WANTED.findall(text) if (found := _measure(name))]
    answer = _written(answer)
    if (lone := LONE.fullmatch(answer)) and _measure(lone[2]) in wanted:
        answer = lone[1]
    ours, its = (_squeezed(each.partition("\\approx")[0]) for each in (_written(expected), answer))
    again = len(its) > 2 and ours != its and POSED.search(question)
    said = r"\s*".join(map(re.escape, its))
    if again and re.search(rf"(?<![\w.]){said}(?![\w.])", _written(question)):
        return False
    if "implif" in question and RADICAND.findall(ours) != RADICAND.findall(its):
        return False
    if "prime factoriz" in question and _factors(ours) != _factors(its):
        return False
    value, its_value = number(_written(expected)), number(answer)
    if value and its_value and its_value[1] and not value[1] and value[0] == its_value[0]:
        return bool(PERCENT.search(text)) or not GIVEN.search(text)
    unit = _measure(_unit(answer)[1])
    named = not wanted or unit is None or unit in wanted or bool(_unit(_written(expected))[1])
    return named and same(expected, answer)


def _too_long(expected: str, answer: str) -> bool:
    return len(answer) > LONGEST_ANSWER + 2 * len(str(expected))


def _factors(product: str) -> Counter[str]:
    """How often each factor stands in a product."""
    found: Counter[str] = Counter()
    for factor, power in POWERS.findall(product.rpartition("=")[2]):
        found[factor] += int(power or 1)
    return found


# Numbers

DECIMAL = r"(?:\d{1,400}(?:\.\d{0,400})?|\.\d{1,400})"
PLAIN = re.compile(rf"([-+]?)\s*({DECIMAL})(?:\s*/\s*(-?{DECIMAL})|[eE]([-+]?\d{{1,2}}))?")
OVER = r"\\frac\s*(?:\{\s*(-?\d{1,400})\s*\}|(\d))\s*(?:\{\s*(-?\d{1,400})\s*\}|(\d))"
FRACTION = re.compile(rf"([-+]?)\s*(\d{{1,400}})?\s*{OVER}")
MIXED = re.compile(r"([-+]?)(\d{1,400})\s+(\d{1,400})\s*/\s*(\d{1,400})")
REPEATING = re.compile(r"([-+]?)(\d{0,400})\.(\d{0,400})\\(?:overline|bar)\s*\{?(\d{1,400})\}?")
SHARE = re.compile(
    r"(.*?)\s*(?:%|(?<![a-z])(?:percent(?:age)?|pct)|\\text\s*\{\s*(?:%|percent(?:age)?|pct)\s*\})",
    re.S,
)


def number(text: str) -> tuple[Fraction, bool] | None:
    """The exact value of a plain number, fraction, mixed number or percentage as `(Fraction, whether it was a percentage)`, else None."""
    share = SHARE.fullmatch(text)
    text = share[1] if share else text
    text = text.replace(",", "").replace(" ", "") if THOUSANDS.fullmatch(text) else text
    scale = 1
    if found := re.fullmatch(r"([^a-zA-Z\\]+?)\s*(?:\\text\s*\{)?\s*([a-z]+)\s*\}?", text):
        if (word := found[2].rstrip("s")) not in SCALES:
            return None
        text, scale = found[1].strip(), SCALES[word]
    try:
        value = _value(text)
    except ZeroDivisionError:
        return None
    return None if value is None else (value * scale, bool(share))


def _value(text: str) -> Fraction | None:
    if found := PLAIN.fullmatch(text):
        sign, above, below, power = found.groups()
        value = Fraction(above) / Fraction(below or 1) * Fraction(10) ** int(power or 0)
    elif found := FRACTION.fullmatch(text):
        sign, whole, *parts = found.groups()
        above, below = parts[0] or parts[1], parts[2] or parts[3]
        if whole and "-" in above + below:
            return None
        value = int(whole or 0) + Fraction(int(above)) / int(below)
    elif found := MIXED.fullmatch(text):
        sign = found[1]
        value = int(found[2]) + Fraction(int(found[3])) / int(found[4])
    elif found := REPEATING.fullmatch(text):
        sign, whole, fixed, again = found.groups()
        period = (10 ** len(again) - 1) * 10 ** len(fixed)
        value = Fraction(f"{whole or 0}.{fixed or 0}") + Fraction(int(again), period)
    else:
        return None
    return -value if sign == "-" else value


def _near(text: str, value: Fraction) -> bool:
    """Whether a decimal of `PLACES` places or more is the value it was rounded from; the value has no end in so many places."""
    found = re.fullmatch(r"-?\d*\.(\d+)", text)
    places = len(found[1]) if found else 0
    if not PLACES <= places <= 400:
        return False
    return abs(Fraction(text) - value) * 2 * 10**places <= 1 and value * 10**PLACES % 1 != 0


BASED = re.compile(
    r"\(?([0-9A-F]{1,400})\)?\s*_\s*(?:\{\s*)?(?:\\text\s*\{)?\s*(\d{1,2}|[a-z]+)\s*\}?\s*\}?"
)
NUMERALS = "two three four five six seven eight nine ten eleven twelve".split()
BASES = {word: str(n) for n, word in enumerate(NUMERALS, 2)}


def _based(text: str) -> tuple[str, str] | None:
    """A number written with its base, `(digits, base)`; None for anything else."""
    found = BASED.fullmatch(text)
    if not found or not (found[2].isdigit() or found[2] in BASES):
        return None
    return found[1].lstrip("0") or "0", BASES.get(found[2], found[2])


def plain(text: str) -> str | None:
    """A mathematical answer as it is compared and counted: no dollars, units, thousands separators, leading zeros or layout."""
    text = _written(text[:LONGEST_ANSWER])
    text = _unit(_inside(text))[0]
    text = text.replace(",", "").replace(" ", "") if THOUSANDS.fullmatch(text) else text
    found = re.fullmatch(r"([-+]?)0*(\d+)(\.0+)?", text)
    return f"{found[1] if found[1] == '-' else ''}{found[2]}" if found else text


# Lists, names, intervals

JOINTS = re.compile(
    r",?\s*(?<![a-zA-Z\\])(?:and|or)(?![a-zA-Z])|(?<=[\d)}\]])\s*(?:and|or)(?=[A-Z(\d\\-])|[,;]",
    re.S,
)


def _split(text: str, joints: re.Pattern[str] = JOINTS) -> tuple[list[str], list[str]]:
    """A text parted where a joint stands outside of all brackets: `(parts, joints)`; brackets that do not match part nothing."""
    parts: list[str] = []
    seen: list[str] = []
    depth, start, place = 0, 0, 0
    hits = {hit.start(): hit for hit in joints.finditer(text)}
    if not hits:
        return [text.strip()], seen
    while place < len(text):
        if not depth and place in hits:
            parts.append(text[start:place].strip())
            seen.append(hits[place][0].strip(" ,") or ",")
            start = place = hits[place].end()
            continue
        if text.startswith(("\\begin", "\\end"), place):
            depth += 1 if text[place + 1] == "b" else -1
        depth += (text[place] in "([{") - (text[place] in ")]}")
        if depth < 0:
            return [text.strip()], []
        place += 1
    parts.append(text[start:].strip())
    return ([part for part in parts if part], seen) if not depth else ([text.strip()], [])


def _members(text: str) -> list[str]:
    r"""The members of a list that stands without brackets; \pm makes two of one. A semicolon parts more than a comma does."""
    if THOUSANDS.fullmatch(text):
        return [text]
    parts, joints = _split(text)
    if ";" in joints and "," in joints:
        parts = _split(text, re.compile(";"))[0]
    return [variant for part in parts for variant in _signs(part)]


SIGN = re.compile(r"\\(?:pm|mp)(?![a-zA-Z])")


def _signs(text: str) -> list[str]:
    r"""Both readings of \pm and \mp."""
    signs = SIGN.findall(text)
    if not signs or len(signs) > 4 or len(_split(text)[0]) > 1 or text.startswith("\\{"):
        return [text]
    choices = list(itertools.product("+-", repeat=len(signs)))
    if "\\mp" in signs:  # all upper signs, or all lower ones
        upper = tuple("+" if sign == "\\pm" else "-" for sign in signs)
        lower = tuple("-" if sign == "\\pm" else "+" for sign in signs)
        choices = [upper, lower]
    variants = []
    for choice in choices:
        parts = zip(SIGN.split(text), (*choice, ""), strict=True)
        variant = "".join(part + sign for part, sign in parts)
        variants.append(re.sub(r"(^|[=({,]\s*)\+\s*", r"\1", variant).strip())
    return variants


def _bracketed(text: str) -> tuple[str, list[str], str] | None:
    """The members of a bracketed list, `("(", [..], ")")`; None for anything else. Sets are `("{", [..], "}")`."""
    found = re.fullmatch(r"(\\\{|[(\[])(.*?)(\\\}|[)\]])", text, re.S)
    if not found or (found[1] == "\\{") != (found[3] == "\\}"):
        return None
    parts = _split(found[2], re.compile("[,;]"))[0]
    if found[1] == "\\{":
        return "{", [variant for part in parts for variant in _signs(part)], "}"
    return (found[1], parts, found[3]) if len(parts) > 1 else None


LETTER_NAME = r"\\?[a-zA-Z]+(?:_\{?\w+\}?|'|\^\{-1\})?"
NAME = re.compile(
    rf"\s*(?:{LETTER_NAME}(?:\s*\(\s*[\w,\s\\+-]*\))?|\|\s*\w+\s*\||\(\s*{LETTER_NAME}(?:\s*,\s*{LETTER_NAME})+\s*\)"
    rf"|(?:{LETTER_NAME}(?:\([^()]*\))?)\s*:\s*{LETTER_NAME}|\\frac\s*\{{\s*[A-Z]+\s*\}}\s*\{{\s*[A-Z]+\s*\}}|\\text\s*\{{[^{{}}]*\}})\s*"
)
EQUALS = re.compile(r"(?<![<>!\\:])=(?!=)")


def _named(text: str) -> tuple[str | None, str]:
    """An answer parted from its name: "x = 4" is `("x", "4")`; `(None, text)` without a name."""
    sides = _split(text, EQUALS)[0]
    if len(sides) > 1 and NAME.fullmatch(sides[0]) and len(_split(text)[0]) == 1:
        return re.sub(r"\s", "", sides[0]), sides[-1].strip()
    return None, text


def _assignments(text: str) -> list[tuple[str, str]] | None:
    """A list in which each member has a name, as `[(name, value)]`; "(p, q) = (3, 2)" is one too. None for anything else."""
    name, value = _named(text)
    if name and name.startswith("("):
        names, values = _bracketed(name), _bracketed(value)
        if not names or not values or len(names[1]) != len(values[1]):
            return None
        return list(zip(names[1], values[1], strict=True))
    members = _members(text)
    found = [(name, value) for name, value in map(_named, members) if name]
    return found if len(members) > 1 and len(found) == len(members) else None


RELATION = re.compile(r"(\\le(?![a-zA-Z])|\\ge(?![a-zA-Z])|\\ne(?![a-zA-Z])|<|>)")
# Each relation read from the other side.
TURNED = {"<": ">", ">": "<", "\\le": "\\ge", "\\ge": "\\le"}


# "{x | ..}" over the reals is what stands behind the bar.
BUILDER = re.compile(
    r"^\\\{\s*\\?[a-zA-Z](?:\s*\\in\s*(?:\\mathbb\{R\}|\(-\\infty, \\infty\)))?\s*(?:\\mid|\\vert|\||:)\s*(.*?)\s*\\\}$",
    re.S,
)


def _interval(text: str) -> tuple[str, str] | None:
    r"""An inequality about one name as `(name, interval)`: "-2 \le x < 7" is `("x", "[-2, 7)")`; None for anything else."""
    text = BUILDER.sub(r"\1", text)
    parts = [part.strip() for part in RELATION.split(text)]
    if (
        len(parts) == 3
        and (size := re.fullmatch(r"\|(\\?[a-zA-Z])\|", parts[0]))
        and number(parts[2])
    ):
        if parts[1] in ("<", "\\le"):
            return _interval(f"-{parts[2]} {parts[1]} {size[1]} {parts[1]} {parts[2]}")
        above, below = _ray(parts[1], parts[2]), _ray(TURNED.get(parts[1], ""), f"-{parts[2]}")
        return size[1], f"{below} \\cup {above}"
    if any("|" in part for part in parts):
        return None
    if len(parts) == 3:
        left, sign, right = parts
        if not NAME.fullmatch(left) and NAME.fullmatch(right):
            left, right, sign = right, left, TURNED.get(sign, sign)
        return (left, _ray(sign, right)) if NAME.fullmatch(left) and right else None
    if len(parts) == 5 and NAME.fullmatch(parts[2]) and parts[0] and parts[4]:
        low, first, name, second, high = parts
        if {first, second} <= {">", "\\ge"}:
            low, high = high, low
            first, second = TURNED[second], TURNED[first]
        if {first, second} <= {"<", "\\le"}:
            opening, closing = "(" if first == "<" else "[", ")" if second == "<" else "]"
            return name, f"{opening}{low}, {high}{closing}"
    return None


def _ray(sign: str, end: str) -> str:
    """All numbers that stand in this relation to one, as an interval."""
    below, above = f"(-\\infty, {end}", f"{end}, \\infty)"
    return {
        "<": f"{below})",
        "\\le": f"{below}]",
        ">": f"({above}",
        "\\ge": f"[{above}",
        "\\ne": f"{below}) \\cup ({above}",
    }[sign]


def _inequality(text: str) -> tuple[str, str] | None:
    """`_interval` of one inequality, of several about one name that are joined by "or", or of two from both sides joined by "and"."""
    parts, joints = _split(BUILDER.sub(r"\1", _named(text)[1] if "\\{" in text else text))
    found = [interval for interval in map(_interval, parts) if interval]
    if not found or len(found) < len(parts):
        return None
    about_one = set(joints) == {"or"} and len({name for name, _ in found}) == 1
    if len(found) == 2 and joints == ["and"] and found[0][0] == found[1][0]:
        above, below = sorted(
            (interval for _, interval in found), key=lambda each: "-\\infty" in each
        )
        if above.endswith(" \\infty)") and below.startswith("(-\\infty,"):
            return found[0][0], above.partition(",")[0] + "," + below.partition(",")[2]
    if len(found) > 1 and not about_one:
        return None
    return found[0][0], " \\cup ".join(interval for _, interval in found)


# Comparison

LETTER = re.compile(r"\(?([A-J])\)?")
LABEL = re.compile(r"\(?([A-J])(?:[).:](?![A-Za-z])(?!\s*(?:[,;&/+]|and\b|or\b)).*|)", re.S)
WORDS = re.compile(r"[^\W\d_]+(?:[\s,'-]+[^\W\d_]+)*", re.S)
MONTH = re.compile(r"\b(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*", re.I)
UNION = re.compile(r"\\cup(?![a-zA-Z])")


def _squeezed(text: str) -> str:
    return re.sub(r"(?<!\d)\s+|\s+(?!\d)", "", text)


def same(expected: str, answer: str) -> bool:
    """Whether two mathematical answers are the same. The expected one may be about a name ("x = 4"); the answer need not repeat it."""
    expected = str(expected)
    if _too_long(expected, answer):
        return False
    return _same(_written(expected), _written(answer))


def _same(expected: str, answer: str) -> bool:  # noqa: C901, PLR0911 - one rule after the other, from the outside in
    if not expected or not answer:
        return expected == answer
    if _squeezed(expected) == _squeezed(answer):
        return True
    if letter := LETTER.fullmatch(expected):
        label = LABEL.fullmatch(answer)
        return label is not None and label[1] == letter[1]
    if "\\approx" in answer and "\\approx" not in expected:
        exact, _, rounded = (part.strip() for part in answer.partition("\\approx"))
        if not exact or NAME.fullmatch(exact):
            return _same(expected, rounded)
        return _same(expected, exact) or (
            "." in expected and number(expected) is not None and _same(expected, rounded)
        )
    ours, unit = _unit(expected)
    theirs, its = _unit(answer, unit)
    measures = _measure(unit), _measure(its)
    if None not in measures and measures[0] != measures[1]:
        return False
    for rule in RULES:
        if (found := rule(expected, answer)) is not None:
            return found
    return _symbolic(ours or expected, theirs or answer)


def _as_numbers(expected: str, answer: str) -> bool | None:
    """By value, where both are plain numbers; a base may be left out but not be another one."""
    one, unit = _unit(expected)
    other = _unit(answer, unit)[0]
    if re.fullmatch(r"-?\d+,\d+\s*%?", other) and not THOUSANDS.fullmatch(other) and "," not in one:
        other = other.replace(",", ".")  # as many languages write a decimal
    if _based(one) or _based(other):
        return _same_digits(one, other)
    ours, its = number(one), number(other)
    if ours and its:
        if ours[1] != its[1]:  # 50 % is written for 50 as well as for 0.5
            shares = [value / 100 if percent else value for value, percent in (ours, its)]
            return ours[0] == its[0] or shares[0] == shares[1]
        return ours[0] == its[0] or _near(other, ours[0]) or _near(one, its[0])
    # A time of day, by 24 hours, or a ratio that looks like one.
    one, other = (
        CLOCK.sub(lambda time: f"{int(time[1]) % 12 + 12 * (time[3] in 'pP')}{time[2]}", text)
        for text in (one, other)
    )
    timed = any(re.fullmatch(r"\d{1,2}:\d\d", text) for text in (one, other))
    if timed and ":" in one and ":" in other and not NAME.match(one):
        return one.lstrip("0") == other.lstrip("0")
    return None


CLOCK = re.compile(r"^(\d{1,2})(:\d\d)\s*([ap])\.?m\.?$", re.I)


def _same_digits(one: str, other: str) -> bool:
    """Whether two numbers, of which one or both name a base, have the same digits and no other base."""
    found = [_based(text) or (text.lstrip("0"), "") for text in (one, other)]
    if not all(_based(text) or re.fullmatch("[0-9A-F]+", text) for text in (one, other)):
        return False
    (digits, base), (its_digits, its_base) = found
    return digits == its_digits and (not base or not its_base or base == its_base)


def _as_words(expected: str, answer: str) -> bool | None:
    """Words and dates by their letters; two or three letters may be a product of variables."""
    if MONTH.search(expected) and MONTH.search(answer) and re.search(r"\d", expected):
        return _date(expected) == _date(answer)
    if not WORDS.fullmatch(expected) or _split(expected)[1]:
        return None
    letters = re.sub(r"\W", "", expected)
    if len(letters) < 2 or (len(letters) <= 3 and re.fullmatch(r"[a-zA-Z\s*]+|.*[\\^+].*", answer)):
        return None
    said = (re.sub(r"\\text|[{}]", " ", text).casefold() for text in (expected, answer))
    ours, theirs = (re.findall(r"\w+", text) for text in said)
    return bool(ours == theirs)


def _date(text: str) -> list[str]:
    """The numbers and the month of a date, in one order."""
    short = MONTH.sub(lambda m: m[1], text.lower())
    return sorted(re.findall(r"\d+|[a-z]{3}", re.sub(r"(?<=\d)(st|nd|rd|th)\b", "", short)))


def _as_lists(expected: str, answer: str) -> bool | None:
    """Lists member by member, in any order unless names or brackets give one."""
    if not RELATION.search(answer):
        expected, answer = _inside(expected), _inside(answer)
    ours, theirs = _assignments(expected), _assignments(answer)
    if ours and theirs:
        return _matched(
            ours, theirs, lambda a, b: _squeezed(a[0]) == _squeezed(b[0]) and _same(a[1], b[1])
        )
    if ours:
        return _as_named(ours, answer, _same)
    if theirs:
        stems = {re.sub(r"_\{?\w+\}?$", "", name) for name, _ in theirs}
        if len(stems) == 1:  # x_1 and x_2 are both x
            theirs = [(name, value) for name in stems for _, value in theirs]
        return _as_named(theirs, expected, lambda value, member: _same(member, value))
    left, right = _members(expected), _members(answer)
    if len(left) < 2 and len(right) < 2:
        return None
    if len(left) == 1 and not _bracketed(expected) and all(_same(expected, each) for each in right):
        return True  # one value in several forms
    for side in (left, right):
        if len(side) > 1:
            side[0] = _named(side[0])[1]
    # A set may go without its braces, an interval or a tuple not.
    if len(left) < 2 or len(right) < 2:
        one, many = (left, right) if len(left) < 2 else (right, left)
        whole = _bracketed(_named(one[0])[1])
        if not whole or whole[0] != "{":
            return False
        left, right = (whole[1], many) if one is left else (many, whole[1])
    return _matched(left, right)


def _as_named(named: list[tuple[str, str]], bare: str, equal: Callable[[str, str], bool]) -> bool:
    """Whether a list without names has the values of one with names, in order where they differ."""
    values = [value for _, value in named]
    whole = _bracketed(_named(bare)[1])
    others = whole[1] if whole else _members(bare)
    distinct = len({name for name, _ in named}) == len(named)
    distinct |= bool(whole and whole[0] == "(")
    if len(others) != len(values) or (whole and whole[0] == "{" and distinct):
        return False
    return all(map(equal, values, others)) if distinct else _matched(values, others, equal)


def _matched(
    left: Sequence[Any], right: Sequence[Any], equal: Callable[[Any, Any], bool] | None = None
) -> bool:
    """Whether the members of two lists are the same in some order."""
    equal, right = equal or _same, list(right)
    if len(left) != len(right):
        return False
    for one in left:
        hit = next((i for i, other in enumerate(right) if equal(one, other)), None)
        if hit is None:
            return False
        right.pop(hit)
    return True


def _as_equations(expected: str, answer: str) -> bool | None:
    """A name before the sign of equality may be left out; the value stands behind the last one."""
    ours, theirs = _split(expected, EQUALS)[0], _split(answer, EQUALS)[0]
    if len(ours) == len(theirs) == 1 or RELATION.search(expected) or RELATION.search(answer):
        return None
    if len(theirs) > 1 and len(ours) == 1:
        return _same(expected, theirs[-1].strip())
    name, value = _named(expected)
    if len(theirs) == 1:
        return _same(value, answer) if name else False
    other, its = _named(answer)
    return _same(value, its) if name and (name == other or (other == "y" and "(" in name)) else None


def _as_inequalities(expected: str, answer: str) -> bool | None:
    """Inequalities as the intervals they describe."""
    if not RELATION.search(expected) and not RELATION.search(answer):
        return None
    ours, theirs = _inequality(expected), _inequality(answer)
    if ours and theirs:
        return _squeezed(ours[0]) == _squeezed(theirs[0]) and _same(ours[1], theirs[1])
    if ours and not RELATION.search(answer):
        return _same(ours[1], _inside(answer))
    if theirs and not RELATION.search(expected):
        return _same(_inside(expected), theirs[1])
    # Several names, or an expression between the signs.
    return _symbolic(_inside(expected), _inside(answer))


def _inside(text: str) -> str:
    r"""What stands behind "x \in"."""
    return re.sub(r"^\\?[a-zA-Z](?:_\{?\w\}?)?\s*\\in(?![a-zA-Z])\s*", "", text)


def _as_unions(expected: str, answer: str) -> bool | None:
    ours, theirs = _inside(expected), _inside(answer)
    if (ours, theirs) != (expected, answer):
        return _same(ours, theirs)
    if not UNION.search(ours) and not UNION.search(theirs):
        return None
    left, right = ([part.strip() for part in UNION.split(text)] for text in (ours, theirs))
    return _matched(left, right) or (None if "\\setminus" in expected + answer else False)


def _as_brackets(expected: str, answer: str) -> bool | None:
    """Tuples, points and intervals by place, sets in any order; the brackets count."""
    ours, theirs = _bracketed(expected), _bracketed(answer)
    if not ours and not theirs:
        return None
    if not ours or not theirs:
        alone = len(_members(expected)) == len(_members(answer)) == 1
        if not alone or "\\setminus" in expected + answer:
            return None
        # A set of one may go without its braces.
        if ours:
            return ours[0] == "{" and len(ours[1]) == 1 and _same(ours[1][0], answer)
        assert theirs
        return theirs[0] == "{" and len(theirs[1]) == 1 and _same(expected, theirs[1][0])
    if (ours[0], ours[2]) != (theirs[0], theirs[2]) or len(ours[1]) != len(theirs[1]):
        return False
    return _matched(ours[1], theirs[1]) if ours[0] == "{" else all(map(_same, ours[1], theirs[1]))


MATRIX = re.compile(r"\\begin\{pmatrix\}(.*?)\\end\{pmatrix\}", re.S)


def _as_matrices(expected: str, answer: str) -> bool | None:
    """Matrices entry by entry; a column is as good as a tuple."""
    ours, theirs = MATRIX.fullmatch(expected), MATRIX.fullmatch(answer)
    place = _bracketed(expected)
    if theirs and place and place[0] == "(" and "&" not in answer:
        entries = theirs[1].strip().removesuffix("\\\\").split("\\\\")
        return _same(expected, f"({', '.join(entries)})")
    if not ours or not theirs or "\\begin" in ours[1] + theirs[1]:
        return None
    left, right = (
        [row.split("&") for row in found[1].strip().removesuffix("\\\\").split("\\\\")]
        for found in (ours, theirs)
    )
    if [len(row) for row in left] != [len(row) for row in right]:
        return False
    entries = zip(itertools.chain(*left), itertools.chain(*right), strict=True)
    return all(_same(one.strip(), other.strip()) for one, other in entries)


# From the outside in.
RULES = (
    _as_numbers,
    _as_words,
    _as_matrices,
    _as_inequalities,
    _as_lists,
    _as_equations,
    _as_unions,
    _as_brackets,
)


# One expression


@functools.lru_cache(maxsize=64)
def _parsed(text: str) -> Any:
    """A LaTeX expression as SymPy's, None when it is none. Units are not taken off: 2m is two times m."""
    from latex2sympy2_extended import NormalizationConfig, latex2sympy, normalize_latex
    from math_verify.grader import should_treat_as_complex

    config = NormalizationConfig(
        basic_latex=True,
        units=False,
        malformed_operators=True,
        nits=True,
        boxed="none",
        equations=False,
    )
    text = re.sub(r"(?<=[a-zA-Z])('+)", lambda found: "_{" + "prime" * len(found[1]) + "}", text)
    # No mixed number.
    text = re.sub(r"(?<=\d)(\s*)\\frac(?=\s*\{[^{}]*[a-zA-Z\\])", r"\\cdot\\frac", text)
    try:
        normal = normalize_latex(text, config)
        real = not should_treat_as_complex(normal)
        return latex2sympy(normal, is_real=real, convert_degrees=False, normalization_config=None)
    except (MemoryError, RecursionError, ImportError, OSError):
        raise
    except Exception:  # whatever a generated parser says about a text that is no expression
        return None


def _symbolic(expected: str, answer: str) -> bool:
    """Whether two expressions are the same to Math-Verify, and their numbers also relative to their size."""
    if max(_depths(expected) + _depths(answer), default=0) > DEEPEST:
        return False
    from math_verify import verify

    # It warns of each call whose time limit is ours.
    logging.getLogger("math_verify").setLevel(logging.ERROR)
    left, right = _parsed(expected), _parsed(answer)
    if left is None or right is None:
        return False
    numbers = _numeric(left, expected), _numeric(right, answer)
    if None not in numbers:
        return _equal_numbers(*numbers, expected, answer)
    return bool(verify([left], [right], timeout_seconds=None, allow_set_relation_comp=True))


def _numeric(expression: Any, text: str) -> Any:
    """The number that an expression without variables is, evaluated; exactly where it is a decimal. None for other things."""
    from sympy import Expr, Rational

    if value := number(text):
        return Rational(value[0].numerator, value[0].denominator)
    if not isinstance(expression, Expr) or expression.free_symbols:
        return None
    value = expression.doit()
    return value if isinstance(value, Expr) and value.is_number else None


def _equal_numbers(one: Any, other: Any, expected: str, answer: str) -> bool:
    """Exactly, or to 15 digits of the larger of the two: 1/2004! is not 1/2006!."""
    if one.is_Rational and other.is_Rational:
        ours, its = (Fraction(int(each.p), int(each.q)) for each in (one, other))
        return ours == its or _near(answer, ours) or _near(expected, its)
    for text, decimal, value in ((answer, other, one), (expected, one, other)):
        if found := re.fullmatch(r"-?\d*\.(\d+)", text):  # a decimal for a value without an end
            places = len(found[1])
            if places < PLACES:
                return False
            gap = abs(value.evalf(places + 20) - decimal.evalf(places + 20))
            return bool(gap * 2 * 10**places <= 1)
    size = max(abs(one.evalf(20)), abs(other.evalf(20)))
    apart = abs((one - other).evalf(30, maxn=200))
    # A difference of zero comes as a Float of no precision: nothing was left of it in 200 digits.
    return bool(one == other or apart == 0 or (apart.is_Float and apart < size * 10**-15))
