"""Graders by plain rules, which run and evaluate nothing of a reply: choices and texts.

Each takes a task and what a model said, and returns verdict, score, answer and detail as far as it
has them (docs/records.md: Grade).
"""

import re
import unicodedata
from collections.abc import Sequence

from decksmith.bench.benchmarks.graders.said import (
    ADVERB,
    ANSWER,
    DOUBT,
    LINK,
    RETRACTED,
    boxed,
    boxes,
    statements,
    subject,
)
from decksmith.bench.benchmarks.records import Grade, Task, Verdict

# Where a reply states its choice; the last place counts. Prose that begins with "a" is no letter, and two letters are no answer to a
# single choice.
SAID = (
    rf"[*_\s]*{ADVERB}*"
    + r"(?:(?:the|la|die|le|a(?=\s+letra))\s+)?(?:(?:option|choice|letter|letra|lettre|lettera|opci[oó]n|opção|opzione|buchstabe|réponse)\s*:?\s*)?(?=(?P<said>\"[^\"\n]*\"|[^\n]{0,200}))"
)
ONE = r"(?:(?:option|choice|answer|statement|sentence|antwort)\s+)?[(\"*\[]{0,4}(?-i:(?P<letter>[A-J]))[)\"*\]]{0,4}(?:\s*\([^()\n]*\))?"
STATED = [re.compile(pattern, re.I | re.S) for pattern in (
    rf"(?<![a-z])(?:{ANSWER}|choice|option|opci[oó]n)(?:\s+(?:choice|option|letter|correct[aeo]?|corretta|correta|richtig\w*))?[*_\"]*\s*(?:{LINK}|(?:would|must|should)\s+be\b[*_]*\s*:?"
    rf"|to\b|-\s|(?<=\n)){SAID}",
    rf"\b(?:I|we|I'd|I'll|let's)\s+(?:\w+\s+){{0,2}}?(?:choose|pick|select|take|say|go\s+with|opt\s+for|vote\s+for)\b{SAID}",
    rf"<(?:answer|final|final_answer|choice)>{SAID}", rf"\[\[{SAID}", rf"选[择项]?{SAID}", rf"\brichtig\s+ist\b{SAID}",
    rf"(?<![a-z]){ONE}\s+(?:(?:is|must\s+be|ist|est|es)\s+(?:(?:the|die|la|le)\s+)?|the\s+)(?:correct|right|best|answer|richtig|bonne)(?!\w*\?)",
    rf"\bist\s+{ONE}\s+(?:die\s+)?richtig", rf"\bonly\s+{ONE}\s+(?:remains|is\s+(?:left|true|correct|right)|fits|works)",
)]  # fmt: skip
# A last sentence that ends with the choice, where nothing is marked.
ENDS = re.compile(
    rf"(?:^|[,:⇒→=]\s*|\b(?:is|be|hence|so|thus|therefore|then|with|only|also|leaves|leaving|option|choice|answer|it's)\s+|(?=\([A-J]\)\W*$)){ONE}"
    r"(?:\s+it\s+is)?\W*$",
    re.I,
)
TAKEN_BACK = re.compile(RETRACTED.pattern + r"|\b(?:actually|wait|hmm|I\s+meant?)\b", re.I)
# What makes a choice at the end of a sentence one in passing.
PASSING = r"(?<!\w)" + "".join(
    rf"(?<!{word} )(?<!{word} the )" for word in ("than", "unlike", "after", "before", "from", "of")
)
NEGATED = re.compile(
    r"\b(?:not|nor|neither|refuse|cannot|wrong|incorrect|out|nicht|excluded|except|confuse|look\s+at|next|people|students|sa(?:id|ys))\b|n't\b|\?",
    re.I,
)
MARKS = re.compile(
    r"\\(?:text(?:bf|rm|it)?|math(?:rm|bf|it|sf)|f?boxed)\s*\{|[{}$*_`\"“”✅✔☑\ufe0f]|\\[()\[\]]|^\s*>+"
)
MOST = 100  # places that state a choice are read, from the end
CROSSED = re.compile(r"\s*[❌✗✘]")  # a choice that the writer rules out

ALONE = re.compile(r"[(\[\s]*([A-Za-z])[)\]\s.:,;!?。]*(?:です|である|だ|입니다|이다|예요)?[.。]?")
LABEL = re.compile(
    r"[(\[]?\s*([A-Z])\s*(?:[)\]]\s*[.:]?|[.:])(?:\s|(?=[^\w\s])).*|[(\[]?\s*([a-z])\s*[)\]].*|([A-Z]);\s+[A-Z]\s+(?:is|was)\b.*",
    re.S,
)
REASONED = re.compile(
    r"([A-Z])(?:,\s+(?:not|nicht|no|pas)\b|[\s,]+(?:because|since|as|for|which|is\s+(?:the\s+)?(?:correct|right|true|best))\b|\s*[-–—(]).*"
    r"|([B-HJ-Z])[\s,]+(?!or\b|and\b|is\s+(?:not\b|in|wrong|false))[a-z].*",
    re.S,
)
SEVERAL = re.compile(
    r"(?:either\s+|both\s+|one\s+of\s+)?[(\[]?([A-Z])(?:[)\].]*\s*(?:(?:[,/&+;|或和]|\b(?:and|or|oder|und|ou)\b)\s*)+[(\[]?|\s+|\)\s*\()"
    r"([A-Z])\b(?!')(?!\s+(?:is|was)\b)",
    re.I,
)


def chosen_letter(
    text: str, letters: str, choices: Sequence[str] = (), question: str = ""
) -> str | None:
    """The letter of `letters` that a reply chooses, or that of the one of `choices` which it says; None without one."""
    text = unicodedata.normalize("NFKC", text).strip()  # letters and colons of full width
    text = re.sub(r"</answer>\s*<answer>", ", ", text)
    for letter, choice in zip(letters, map(str, choices), strict=False):  # "C, the yen" is C
        text = re.sub(rf"(?<!\w){letter}[^\w{{}}\n]{{1,4}}{re.escape(choice)}(?!\w)", letter, text)
    places = [(hit.start(), hit) for pattern in STATED for hit in pattern.finditer(text)]
    said = [
        (at, hit.groupdict().get("said") or hit.groupdict().get("letter") or "")
        for at, hit in places
    ]
    if box := boxed(text):
        said.append((boxes(text)[-1][0], re.sub(r"^.*\banswer\W*[:=]", "", box, flags=re.I | re.S)))
    for at, each in sorted(said, reverse=True)[:MOST]:
        if re.match(r"\W*not\s+(?:given|listed|provided|shown|among|one\s+of)\b", each):
            return None
        if (found := _letter(re.split(r"</|\]\]|。", each)[0], letters, choices)) is not None:
            taken_back = TAKEN_BACK.search(text, at)
            if not taken_back:
                return found or None
            after = text[taken_back.end() :]
            return (
                _letter(after, letters, choices)
                or _ended(after, letters, choices, question)
                or found
                or None
            )
    if "boxed" in text:  # it was to hold the answer
        return None
    labels = set()
    for line in filter(str.strip, text.split("\n")):
        short = MARKS.sub("", line).strip()
        several = len(set(re.findall(r"(?<!\w)([A-J])\s?[).:]", line))) > 1
        if (
            not several
            and not CROSSED.match(line)
            and (LABEL.fullmatch(short) or len(_named(line)) < 2)
        ):
            labels.add(_letter(line, letters, choices))
    labels.discard(None)
    if labels:
        return (labels.pop() or None) if len(labels) == 1 else None
    return _ended(text, letters, choices, question)


def _named(text: str) -> set[str]:
    """The letters that stand alone in a text, without the article and the pronoun."""
    return set(re.findall(r"(?<![\w'])(?:[B-HJ]|[AI](?! [a-z]))(?![\w'])", text))


def _ended(text: str, letters: str, choices: Sequence[str], question: str) -> str | None:
    """The letter, or that of the one choice, that the last statement of a text ends with or speaks of in a word of the question, where it
    names no other and negates nothing."""
    last = re.split(r"[→⇒]|;\s|,\s(?=therefore|thus|hence|so\b)", (statements(text) or [""])[-1])[
        -1
    ].strip()
    if NEGATED.search(last) or DOUBT.search(last):
        return None
    about = subject(last, question) or ""
    if ends := ENDS.search(last) or re.fullmatch(ONE, about, re.I):
        return ends["letter"] if _named(last) == {ends["letter"]} <= set(letters) else None
    folded = _folded(MARKS.sub("", last))
    texts = [re.escape(_folded(MARKS.sub("", str(choice)))) for choice in choices]
    told = [n for n, each in enumerate(texts) if re.search(rf"(?<!\w){each}(?!\w)", folded)]
    if len(told) != 1 or not letters[told[0] :]:
        return None
    text, asked = texts[told[0]], question.casefold()
    ends = re.search(rf"{PASSING}{text}(?:\s*°[cf]|\s(\w+))?$", folded)
    begins = re.match(rf"{text}\s(?:(?:is|was|are|has)\s)?(?:(?:an?|the)\s)?(\w+)", folded)
    for hit in filter(None, (ends, begins)):
        if hit[1] is None or re.search(rf"\b{hit[1]}\b", asked):
            return letters[told[0]]
    return None


def _letter(said: str, letters: str, choices: Sequence[str] = ()) -> str | None:
    """The letter that an answer gives, "" where it gives several or one that is none of the choices, None where it is about no letter."""
    said = MARKS.sub("", said[:2000]).strip()
    if found := LABEL.fullmatch(said):
        if found[3]:  # "C; B is a common mistake"
            return found[3] if found[3] in letters else ""
    several = SEVERAL.match(said)
    if several:
        first, second = several[1], several[2]
        other = first.upper() != second.upper() and second.upper() in letters
        # "a b" may begin a sentence; small letters are two answers only when they are all there is.
        small = first.islower() or second.islower()
        if other and (not small or SEVERAL.fullmatch(said.rstrip(". )]"))):
            return ""
    if found := ALONE.fullmatch(said) or LABEL.fullmatch(said) or REASONED.fullmatch(said):
        one = next(filter(None, found.groups())).upper()
        return one if one in letters else ""
    if several and several[1].upper() == several[2].upper():  # "B/B"
        return several[1].upper() if several[1].upper() in letters else ""
    labelled = re.match(r"([A-Z])\W+(.+)", said, re.S)
    if labelled and labelled[1] in letters[: len(choices)]:
        if _folded(labelled[2]) == _folded(MARKS.sub("", str(choices[letters.index(labelled[1])]))):
            return labelled[1]
    same = [
        n
        for n, choice in enumerate(choices)
        if _folded(MARKS.sub("", str(choice))) == _folded(said)
    ]
    return letters[same[0]] if len(same) == 1 else None


def _folded(text: str) -> str:
    return " ".join(text.casefold().split()).strip(". ")


def wanted(task: Task) -> list[str]:
    """What is expected, one text or several."""
    expected = task["expected"]
    return list(map(str, expected if isinstance(expected, list) else [expected]))


def exact(task: Task, text: str) -> Grade:
    """Right is a reply that is one of the expected texts, but for case, blanks and a full stop."""
    right = _folded(text) in map(_folded, wanted(task))
    return {"verdict": "right" if right else "wrong", "answer": text.strip()}


def contains(task: Task, text: str) -> Grade:
    """Right is a reply that has all expected words; the score is the share that it has."""
    patterns = [rf"(?<!\w){re.escape(each)}(?!\w)" for each in wanted(task)]
    found = [bool(re.search(pattern, text, re.I)) for pattern in patterns]
    verdict: Verdict = "right" if all(found) else "wrong"
    return {"verdict": verdict, "score": sum(found) / len(found), "detail": {"found": found}}
