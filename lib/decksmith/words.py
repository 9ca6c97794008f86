"""How much a text says, in any script: words where blanks part them, letters by their share of a word where none do."""

import re

# Letters of scripts without blanks between words, and what share of a word one is: about two make a Chinese or Japanese word
# (and Korean syllables are counted like them), four a Thai, Lao, Khmer or Burmese one.
SHORT = "\u2e80-\u2fff\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
LONG = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
DENSE = re.compile(f"[{SHORT}{LONG}]")
_SHORT, _LONG = re.compile(f"[{SHORT}]"), re.compile(f"[{LONG}]")
_WORD = re.compile(r"[^\W_]+")


def count(text):
    """The number of words of a text, a float."""
    return len(_SHORT.findall(text)) / 2 + len(_LONG.findall(text)) / 4 + len(_WORD.findall(DENSE.sub(" ", text)))


def different(text):
    """The number of different words; of a script without blanks, of different letters, by their share of a word."""
    text = text.lower()
    letters = "".join(set(DENSE.findall(text)))
    return count(letters) + len(set(_WORD.findall(DENSE.sub(" ", text))))
