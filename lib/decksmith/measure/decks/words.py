"""How much a text says, in any script, and which language it is in."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable

# Letters of scripts without blanks: about two make a Chinese or Japanese word (Korean is counted so), four a Thai one.
SHORT = "\u2e80-\u2fff\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
LONG = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
DENSE = re.compile(f"[{SHORT}{LONG}]")
_SHORT, _LONG = re.compile(f"[{SHORT}]"), re.compile(f"[{LONG}]")
_WORD = re.compile(r"[^\W_]+")
LONGEST = 20_000  # characters of a slide's text that are read


def by_language(table: str) -> dict[str, set[str]]:
    """The words of each line, by the code of a language before a colon."""
    rows = (line.split(":") for line in table.strip().splitlines())
    return {code: set(words.split()) for code, words in rows}


# The commonest function words, enough to tell these languages apart in a few dozen words of slide text.
STOPWORDS = by_language("""
en: the of and to in is for that with on as are by this from or an be at it not how what why your we you our can
de: der die das und ist nicht mit für von auf ein eine den dem des zu im werden wie sich auch durch bei oder als nach
fr: le la les des et est une dans pour que qui sur avec par plus sont aux du ce cette nous vous pas comment ou au en un
es: el la los las y es una para que con por del en se más como son al su no un entre cómo qué desde o sobre
it: il la le gli di e è una per che con non del della dei nel alla si sono come un più i da o delle dal anche
pt: o a os as e é uma para que com não do da dos das em no na por mais como um são ao se ou à entre
nl: de het een en van is voor met op niet dat in te zijn door aan bij als wat hoe naar ook uit of om er
pl: i w na z do nie to się jest że o jak dla przez od po co oraz są czy ich tym który ale za
cs: a v na je se že to pro jak jsou nebo do po při od by ale také co které není mezi podle už
sv: och att det en som är för på med av inte den till ett om har kan vi hur från eller i de vid
da: og at det en som er for på med af ikke den til et om har kan vi hvordan fra eller i de ved
tr: ve bir bu için ile olarak daha en çok gibi olan ne nasıl değil da de her veya sonra kadar
id: yang dan di untuk dengan dari ini pada adalah tidak dalam itu atau ke oleh sebagai akan bisa kita
vi: và của là các cho không có được trong một với những để người này khi từ như đã
""")

FUNCTION = set[str]().union(*STOPWORDS.values())


def count(text: str) -> float:
    """The number of words of a text, a float."""
    letters = len(_SHORT.findall(text)) / 2 + len(_LONG.findall(text)) / 4
    return letters + len(_WORD.findall(DENSE.sub(" ", text)))


def different(text: str) -> float:
    """The number of different words; of a script without blanks, of different letters, by their share of a word."""
    text = text.lower()
    letters = "".join(set(DENSE.findall(text)))
    return count(letters) + len(set(_WORD.findall(DENSE.sub(" ", text))))


def fold(text: str) -> str:
    """A text in one case and one form, with single blanks."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def dense(letter: str) -> bool:
    """Whether a letter is of a script without blanks between words."""
    return bool(DENSE.match(letter))


def length(text: str) -> float:
    """Words between blanks; letters of a script without them by their share of a word."""
    letters = "".join(DENSE.findall(text))
    return len([w for w in text.split() if not all(map(dense, w))]) + count(letters)


def head(text: str, most: float) -> str:
    """The beginning of a text, so many words long."""
    out, used = [], 0.0
    for word in text.split(" "):
        letters = sum(map(dense, word))
        if used >= most:
            break
        out.append(word[: int(2 * (most - used)) or 1] if letters > 1 else word)
        used += letters / 2 if letters else 1
    return " ".join(out)


def content_words(text: str) -> set[str]:
    """What a text is about: words of 4 letters or more (3 in scripts that write no vowels or join them) without
    function words; pairs of letters in scripts without blanks."""
    found: set[str] = set()
    for word in "".join(c if inside(c) else " " for c in text).split():
        if any(map(dense, word)):
            found.update(word[i : i + 2] for i in range(len(word) - 1))
        elif len(word) >= (3 if "\u0590" <= word[0] <= "\u0dff" else 4):
            if word not in FUNCTION:
                found.add(word[:6])  # a crude stem: plural and verb endings go
    return found


def inside(letter: str) -> bool:
    """Whether a character belongs to a word; vowel signs do."""
    return letter.isalnum() or unicodedata.category(letter)[0] == "M"


# How the names of a script's letters begin in Unicode.
SCRIPTS = {
    "zh": ("CJK",),
    "ja": ("HIRAGANA", "KATAKANA", "CJK"),
    "ko": ("HANGUL",),
    **dict.fromkeys(("ru", "uk", "bg"), ("CYRILLIC",)),
    **dict.fromkeys(("ar", "fa"), ("ARABIC",)),
    "he": ("HEBREW",),
    "el": ("GREEK",),
    "hi": ("DEVANAGARI",),
    "th": ("THAI",),
}
FOREIGN = ("CJK", "HIRAGANA", "KATAKANA", "HANGUL", "CYRILLIC", "ARABIC")


def language_share(texts: Iterable[str], asked: str | None) -> float | None:
    """The share of folded texts in a language by its code; None where too little tells."""
    asked, text = (asked or "").split("-")[0], " ".join(texts)
    if asked in SCRIPTS:
        names = [unicodedata.name(c, "") for c in text if c.isalpha()]
        if not names:
            return 0.0
        return sum(name.startswith(SCRIPTS[asked]) for name in names) / len(names)
    if asked not in STOPWORDS:
        return None
    foreign = sum(unicodedata.name(c, "").startswith(FOREIGN) for c in text)
    if foreign * 2 > len(text):
        return 0.0
    hits = _hits(text)
    most = max(hits.values())
    return hits[asked] / most if most >= 3 else None


def _hits(text: str) -> dict[str, int]:
    """How many function words of each language a text has."""
    words = Counter("".join(c if c.isalpha() else " " for c in text).split())
    return {name: sum(words[w] for w in stop) for name, stop in STOPWORDS.items()}


def likeliest_language(text: str) -> str | None:
    """The likeliest language of a text by its script or function words, or None where neither says."""
    text = fold(text)
    letters = [unicodedata.name(c, "") for c in text if c.isalpha()]
    if letters and sum(name.startswith("LATIN") for name in letters) * 2 < len(letters):
        shares = {c: sum(name.startswith(s) for name in letters) for c, s in SCRIPTS.items()}
        best = [code for code, share in shares.items() if share == max(shares.values())]
        if best == ["zh", "ja"]:  # Japanese is hardly written without kana
            return "zh"
        return best[0] if len(best) == 1 else None
    hits = _hits(text)
    second, most = sorted(hits.values())[-2:]
    return max(hits, key=lambda name: hits[name]) if most >= 5 and most > 1.3 * second else None
