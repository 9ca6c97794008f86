"""Which choice a reply makes: the letter in its last box, else in its last "Answer: X" with X alone. Prose that begins with "a" is no
letter, and two letters are no answer to a single choice."""

import re
import unicodedata

from decksmith.benchmarks.graders.math import boxed

STATED = re.compile(
    r"(?<![A-Za-z])answer(?:\s++(?:choice|option|letter))?+[*_]*+\s*+(?:(?:is|would\s+be|must\s+be|should\s+be)\b[*_]*+\s*+:?|[:=]|(?<=\n))"
    r"[*_\s]*+(?:the\s+)?(?:(?:option|choice|letter)\s*+:?\s*+)?(?P<said>[^\n]*+)",
    re.I,
)
MARKS = re.compile(
    r"\\(?:text(?:bf|rm|it)?|math(?:rm|bf|it|sf)|f?boxed)\s*\{|[{}$*_`\"“”]|\\[()\[\]]"
)
ALONE = re.compile(r"[(\[\s]*([A-Za-z])[)\]\s.:,;!?]*")
LABEL = re.compile(
    r"[(\[]?\s*([A-Z])\s*(?:[)\]]\s*[.:]?|[.:])(?:\s|(?=[^\w\s])).*|[(\[]?\s*([a-z])\s*[)\]].*",
    re.S,
)
REASONED = re.compile(
    r"([A-Z])(?:,\s+not\b|[\s,]+(?:because|since|as|for|which|is\s+(?:the\s+)?(?:correct|right|true|best))\b|\s*[-–—(]).*|([B-HJ-Z])[\s,]+[a-z].*",
    re.S,
)
SEVERAL = re.compile(
    r"[(\[]?([A-Z])[)\].]*\s*(?:(?:[,/&+;|]|\band\b|\bor\b)\s*)+[(\[]?([A-Z])\b(?!')|([A-Z])(?:\s+([A-Z]))+",
    re.I,
)


def letter(text: str, letters: str) -> str | None:
    """The letter of `letters` that a reply chooses, None without one."""
    text = unicodedata.normalize("NFKC", text).strip()  # letters and colons of full width
    places = [stated["said"] for stated in reversed(list(STATED.finditer(text)))]
    if box := boxed(text):
        places.insert(0, re.sub(r"^.*\banswer\W*[:=]", "", box, flags=re.I | re.S))
    if "\n" not in text and "boxed" not in text:
        places.append(text)
    for said in places:
        if (found := _letter(said, letters)) is not None:
            return found or None
    return None


def _letter(said: str, letters: str) -> str | None:
    """The letter that an answer gives, "" where it gives several or one that is none of the choices, None where it is about no letter."""
    said = MARKS.sub("", said[:2000]).strip()
    several = SEVERAL.match(said)
    if several:
        first, second = several[1] or several[3], several[2] or several[4]
        other = first.upper() != second.upper() and second.upper() in letters
        # "a b" may begin a sentence; small letters are two answers only when they are all there is.
        small = first.islower() or second.islower()
        if other and (not small or SEVERAL.fullmatch(said.rstrip(". )]"))):
            return ""
    if found := ALONE.fullmatch(said) or LABEL.fullmatch(said) or REASONED.fullmatch(said):
        one = next(filter(None, found.groups())).upper()
        return one if one in letters else ""
    if several and several[1] and several[1].upper() == several[2].upper():  # "B/B"
        return several[1].upper() if several[1].upper() in letters else ""
    return None
