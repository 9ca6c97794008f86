"""Which language a text is in: by its script, or by its function words."""

import unicodedata
from collections import Counter
from collections.abc import Iterable

from decksmith.decks.words import STOPWORDS, fold

# How the names of a script's letters begin in Unicode.
SCRIPTS = {
    "zh": ("CJK",),
    "ja": ("HIRAGANA", "KATAKANA", "CJK"),
    "ko": ("HANGUL",),
    "ru": ("CYRILLIC",),
    "uk": ("CYRILLIC",),
    "bg": ("CYRILLIC",),
    "ar": ("ARABIC",),
    "fa": ("ARABIC",),
    "he": ("HEBREW",),
    "el": ("GREEK",),
    "hi": ("DEVANAGARI",),
    "th": ("THAI",),
}
FOREIGN = ("CJK", "HIRAGANA", "KATAKANA", "HANGUL", "CYRILLIC", "ARABIC")


def share(texts: Iterable[str], asked: str | None) -> float | None:
    """The share of folded texts that is in a language by its code (`pt-BR` counts as `pt`); None for an unknown code or too few words."""
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


def likeliest(text: str) -> str | None:
    """The likeliest language of a text by its script or function words, or None where neither says."""
    text = fold(text)
    letters = [unicodedata.name(c, "") for c in text if c.isalpha()]
    if letters and sum(name.startswith("LATIN") for name in letters) * 2 < len(letters):
        shares = {
            code: sum(name.startswith(scripts) for name in letters)
            for code, scripts in SCRIPTS.items()
        }
        best = [code for code, share in shares.items() if share == max(shares.values())]
        if best == ["zh", "ja"]:  # Japanese is hardly written without kana
            return "zh"
        return best[0] if len(best) == 1 else None
    hits = _hits(text)
    second, most = sorted(hits.values())[-2:]
    return max(hits, key=lambda name: hits[name]) if most >= 5 and most > 1.3 * second else None
