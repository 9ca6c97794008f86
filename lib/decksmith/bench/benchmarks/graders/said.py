r"""Where a reply states its answer: in a box, in a place that names it ("Answer: 4", "#### 4"), or else in its last statement.

A last statement counts where a reader has no doubt: it is no question, no guess between several values and no unfinished sentence,
and it holds one value that the question does not give. Courtesies, checks and remarks in brackets are no statements.
"""

import re

from decksmith.core import config_files

SHORT = 4  # words of an answer without a digit that a sentence ends with
LONGEST = 2000  # characters at a reply's two ends where an answer without a mark is looked for
APART = 70  # characters between two boxes that still belong together: "\boxed{1} and \boxed{2}"


def pattern(name: str) -> re.Pattern[str]:
    """A pattern of assets/answers.toml."""
    return re.compile(text(name))


def text(name: str) -> str:
    """The text of a pattern of assets/answers.toml, with those that stand in it."""
    said = "".join(config_files.asset("answers.toml")[name])
    return re.sub("%([A-Z]+)%", lambda found: text(found[1]), said)


ANSWER, ADVERB, LINK, AND = map(text, ("ANSWER", "ADVERB", "LINK", "AND"))
FINAL, RETRACTED, SENTENCE_END, ASIDE, COMMENT, CHECK = map(
    pattern, "FINAL RETRACTED SENTENCE_END ASIDE COMMENT CHECK".split()
)
AHEAD, DOUBT, STEP, DENIED, SHOWN, REMARK = map(
    pattern, "AHEAD DOUBT STEP DENIED SHOWN REMARK".split()
)
ROUGHLY, WORKED, SUM, BEFORE, STATEMENT, NAMED = map(
    pattern, "ROUGHLY WORKED SUM BEFORE STATEMENT NAMED".split()
)
NUMBER, BOX, JOINT = map(pattern, "NUMBER BOX JOINT".split())


def boxes(text: str) -> list[tuple[int, int, str]]:
    r"""What stands in the closed boxes (\boxed, \fbox) of a text, braces matched: `[(start, end, content)]`."""
    found = []
    open_: list[tuple[int, int] | None] = []  # where each brace that is open began, and its content
    for hit in BOX.finditer(text):  # once through: a reply may hold ten thousand of them
        if hit["bare"] is not None:
            found.append((hit.start(), hit.end(), hit["bare"]))
        elif hit[0] == "}":
            if open_ and (place := open_.pop()):
                found.append((place[0], hit.end(), text[place[1] : hit.start()].strip()))
        elif hit[0].endswith("{") and hit[0] != "\\{":
            open_.append((hit.start(), hit.end()) if len(hit[0]) > 1 else None)
    return sorted(found)


def boxed(text: str) -> str | None:
    """The content of the last box, or of the last boxes that belong together as a list; None without a box."""
    found = boxes(text)
    if not found:
        return None
    start, _, content = found[-1]
    together = [content]
    for before, end, content in reversed(found[:-1]):
        between = text[end:start]
        if start < end or len(between) > APART or not _joined(between):
            break
        start = before
        if content not in together:
            together.append(content)
    return ", ".join(reversed(together))


def _joined(between: str) -> bool:
    """Whether two boxes with this text between them are one answer: nothing but layout, or a comma, "and" or "or" before the second."""
    layout = re.fullmatch(r"(?:[\s$&]|\\[()\[\] ,;:]|\\q?quad)*", between)
    return bool(layout or JOINT.fullmatch(between))


def final(text: str, question: str = "") -> str | None:
    """The answer a reply gives: in its last box, else in the last place that names an answer, else what its last statement comes to.
    What the writer takes back later counts no more."""
    text = text.rpartition("</think>")[2]
    end = max((box[1] for box in boxes(text)), default=0)
    found = boxed(text)
    if found is None and (hits := list(FINAL.finditer(text))):
        end, hit = hits[-1].end(), hits[-1]
        found = (hit["tagged"] or "").strip() or hit["hashes"] or _said(hit["answer"] or "")
    if found is None:
        return _stated(text, question)
    taken_back = RETRACTED.search(text, end)
    return (taken_back and _stated(text[taken_back.end() :], question)) or found or None


def _said(text: str) -> str | None:
    said = text.strip(" *\"'“”").rstrip(".。").strip()
    if DOUBT.search(said):
        return None
    open_ = said.count("}") - said.count("{")
    while said.endswith("}") and open_ > 0:  # of JSON
        said, open_ = said[:-1].strip(' "'), open_ - 1
    said = REMARK.sub("", said)
    if begins := STATEMENT.match(said):  # "Answer: The largest n is 34"
        said = said[begins.end() :].strip(" *:")
    return said or None


def statements(text: str, question: str = "") -> list[str]:
    """The sentences and lines at the end of a reply, without courtesies, checks at its end, comments and remarks in brackets."""
    parts = map(str.strip, SENTENCE_END.split(CHECK.sub("", text.strip()[-LONGEST:]).strip()))
    given = set(NUMBER.findall(question))
    return [
        part
        for part in parts
        if not ASIDE.fullmatch(part)
        and not (
            (hit := COMMENT.match(part))
            and (hit["always"] or given.issuperset(NUMBER.findall(part)))
        )
    ]


def _stated(text: str, question: str) -> str | None:
    """What a reply without a marked answer comes to; None where its last statement is open or has no value."""
    if (ahead := AHEAD.fullmatch(text.strip()[:LONGEST])) and (found := _value(ahead[1], question)):
        return found
    said = statements(text, question)
    return _value(said[-1], question) if said else None


def _value(sentence: str, question: str) -> str | None:
    """The value that a statement comes to; None of a step, a guess or what the writer denies."""
    sentence = ROUGHLY.sub("", re.sub(r"\*\*((?:[^*]+ ){3}[^*]+)\*\*", r"\1", sentence))
    if DOUBT.search(sentence) or STEP.match(sentence):
        return None
    value = _comes_to(sentence, question)
    return None if value and DENIED.search(sentence[: sentence.rfind(value)]) else value


def _comes_to(sentence: str, question: str) -> str | None:
    clauses = re.split(r",?\s+(?:and|while|whereas)\s+(?=[A-Z][a-z])", sentence)
    if len(clauses) > 1 and all(map(NUMBER.search, clauses)):  # of two names the one asked for
        asked = re.findall("[A-Z][a-z]+", re.split(r"[.!]\s", question)[-1])
        clauses = [each for each in clauses if set(asked) & set(re.findall("[A-Z][a-z]+", each))]
        if len(clauses) != 1:
            return None
        sentence = clauses[0]
    if shown := list(SHOWN.finditer(sentence)):
        parts = [next(filter(None, hit.groups())).strip().rstrip(".:") for hit in shown]
        first = len(shown) - 1
        while first and _joined(sentence[shown[first - 1].end() : shown[first].start()]):
            if "=" in parts[first - 1] and not NAMED.match(parts[first - 1]):
                break  # a step: 99x = 27
            first -= 1
        return ", ".join(parts[first:])
    head, comma, tail = sentence.rpartition("，")
    sentence = tail if comma and NUMBER.search(tail) else sentence
    begins = BEFORE.match(sentence)
    said = sentence[begins.end() :] if begins else sentence
    if begins and not re.search(r"[\dπ∞a-zA-Z]", said):
        said = sentence
    said = said.strip(" .。!")
    said = re.sub(
        rf"^(?:All (?=[a-z]\b)|=\s*|(?i:{ADVERB})|an?\s+(?=\d)|(?:an?|the)\s+(?:[a-z]+\s+){{1,3}}of\s+(?=[-\d$(]))+",
        "",
        said,
    )
    if said.count("=") > 1 and not re.search(rf",\s|\s(?:{AND})\s", said):
        said = said.rpartition("=")[2].strip()
    said = REMARK.sub("", SUM.sub("", WORKED.sub("", said)))
    if not re.search(r"[\dπ=<>∞]", sentence) and (not begins or len(said.split()) > SHORT):
        return _only(sentence, question)
    if re.search(r"[^\W\d_]{3}.*\d|^\D*$", re.sub(r"\\[a-z]+|sqrt|infinity", "", said)):
        return _only(sentence, question) or said
    return said


def _only(sentence: str, question: str) -> str | None:
    """The one number of a sentence, with the words behind it, that the question does not give; None without one."""
    hits = list(NUMBER.finditer(sentence))
    if len(hits) > 1:
        given = set(NUMBER.findall(question))
        hits = [hit for hit in hits if hit[0] not in given]
        counted = re.search(r"\bhow many (\w+)", question, re.I)
        if counted and "=" not in sentence:
            what = re.compile(rf"\W*{counted[1]}\b")
            named = [hit for hit in hits if what.match(sentence, hit.end())]
            hits = named or hits
    if len(hits) != 1:
        return None
    if not re.search(r"\d", hits[0][0]):
        return hits[0][0]
    behind = re.match(
        r"(?:\s*(?!(?:is|are|was|were)\b)[^\W\d_]+(?:[/ ][^\W\d_]+)*)?", sentence[hits[0].end() :]
    )
    return hits[0][0] + REMARK.sub("", behind[0] if behind else "")


# "Bea is the tallest", where a name is asked for.
SUBJECT = pattern("SUBJECT")


def subject(text: str, question: str) -> str | None:
    """What the last sentence of a reply says of itself in a word of the question; None where an answer is marked, or for another sentence."""
    if boxed(text) is not None or FINAL.search(text):
        return None
    found = SUBJECT.match(re.split(r"(?<=[.!?])\s+|\n", text.strip()[-LONGEST:])[-1])
    return found[1] if found and re.search(rf"\b{found[2]}\b", question, re.I) else None
