r"""Where a reply states its answer: in a box, in a place that names it ("Answer: 4", "#### 4"), or else in its last statement.

A last statement counts where a reader has no doubt: it is no question, no guess between several values and no unfinished sentence,
and it holds one value that the question does not give. Courtesies, checks and remarks in brackets are no statements.
"""

import re

SHORT = 4  # words of an answer without a digit that a sentence ends with
LONGEST = (
    2000  # characters at either end of a reply in which it may state its answer without a mark
)
APART = 70  # characters between two boxes that still belong together: "\boxed{1} and \boxed{2}"

# What names an answer, and what stands between it and the answer, in the languages that models reply in.
ANSWER = (
    "answer|antwort|lösung|réponse|respuesta|resposta|risposta|antwoord|odpowiedź|cevap|svar|jawaban|ответ|答案|答え|正解|정답|đáp án"
    "|الإجابة|الجواب|उत्तर"
)
ADVERB = r"(?:(?:also|thus|therefore|then|hence|so|now|clearly|indeed|simply|just|exactly|equal\s+to|donc|dus|daher|somit|folglich|quindi|entonces|portanto),?\s+)"
LINK = rf"(?:(?:is|lautet|ist|est|es|é|è|är|jest|adalah|là|هو|هي)\b\**\s*+:?|[:：=]|是|为|は|은|는)(?:\s*\**{ADVERB})*+"
FINAL = re.compile(
    rf"<(?P<tag>answer|final|final_answer)>\s*+(?P<tagged>(?:(?!<(?P=tag)>).)*?)\s*</(?P=tag)>|^\#{{4}}[ \t]*+(?P<hashes>[^a-zA-Z\s][^\n]*)"
    rf"|(?<![a-z])(?:{ANSWER})[\"\*_]*+\s*+{LINK}[\s*\"]*+(?P<answer>[^\s*\"][^\n]*?)(?=\.\s|。|[.}}]*$|\n)",
    re.I | re.M | re.S,
)
# A writer who takes back what was said before; what follows is the answer.
RETRACTED = re.compile(
    r"\bI\s+(?:made\s+an?\b|mis\w+|was\s+wrong|take\s+(?:that|it)\s+back|change\s+my)|\b(?:that|this|it)(?:\s+is|'s|\s+was)\s+"
    r"(?:wrong|incorrect|not\s+(?:right|correct))|\bcorrection\b\s*:|\bscratch\s+that\b",
    re.I,
)
# Statements and what is none. A guess, and a sentence that breaks off, state nothing.
SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-ZÀ-ÞА-Я$\\*(\d])|(?<=[。।])|\n")
ASIDE = re.compile(
    r"\W*(?:(?:please )?(?:let me know|feel free|i hope|hope (?:this|that)|is there any\w*|would you|do you|thank|happy to)\b.*"
    r"|(?:you|we) can (?:check|verify)\b.*|\([^()]*[a-z]{3}.*\)\W*|$)",
    re.I | re.S,
)
# What a writer says of the answer afterwards, six words and more that bring no number of their own.
COMMENT = re.compile(
    r"(?!.*\b(?:wrong|incorrect|not|mistake|cannot|impossible)\b)"
    r"(?:(?P<always>In\s+math\w*|In\s+general)|This|These|It(?:'s|\s+is)|In\s+other\s+words)\b(?:\W+[^\s=]+){6,}$"
)
CHECK = re.compile(
    r"^\W*(?:check|checking|verification|verify|to (?:check|verify)|probe|contrôle)\b(?:(?!\b(?:so|therefore|thus|hence|wait|wrong|oops)\b).)*\Z",
    re.I | re.M | re.S,
)
# "There are 42 of them. Here is how: ..": the first statement answers.
AHEAD = re.compile(
    r"(?!We\b|Let|To\b|Given\b|If\b|First\b|I\b)([^\n]+?(?<=[.!*\d]))\s+\W*(?:Here(?:'s| is| are)|Explanation|Breakdown|I counted|Reason)\b.*",
    re.S,
)
DOUBT = re.compile(
    r"\b(?:either|might|maybe|perhaps|possibly|could\s+be|(?:not|un)\s*sure|depend\w*|lies\s+between|one\s+of)\b|\?\W*$"
    r"|(?:\b(?:is|are|the|a|of|to|which|and|so|get|equals?)|[=×+/,])\W{0,2}(?<![.!…:])$",
    re.I,
)
# A step, which comes to nothing, and what makes a value behind it no answer: "it is not 7", "fewer than 7".
STEP = re.compile(
    r"\W*(?:(?:now|next|then|therefore|so|first|finally),?\s+)?(?:we\s+|let'?s\s+)?(?:(?:can|must|need|need\s+to|have\s+to)\s+)?"
    r"(?:(?:multiply|divide|subtract|add|consider|substitute|plug|recall)\b(?!.*(?:=|:\s*\S|\bgets?\b|\bgiv|\bso\b))"
    r"|(?:let|suppose|assume|if)\b(?!.*\b(?:so|then|hence|gets?)\b)|(?:see|step|grade|need)\b)",
    re.I,
)
DENIED = re.compile(
    r"(?:\b(?:not|never|cannot|nobody|no\s+one)|n't)\b[^,;:]*$|\b(?:than|at\s+least|at\s+most|but|after|before|up\s+to)\s+$",
    re.I,
)
# What stands out in a statement.
SHOWN = re.compile(
    r"\*\*(?P<bold>[^*\n]+)\*\*|\$+(?P<math>\S(?:[^$\n]*\S)?|\s[^$\n]+\s)\$+(?!\d)|\\\((?P<round>.+?)\\\)"
)
# What is said of an answer behind it: "42 pens (6 times 7)", "42, since 6 times 7 is 42".
REMARK = re.compile(
    r"(?<=[\w}$)]) \([^()]*[a-z]{3}[^()]*\)$|,?\s+(?:as|since|because|rather than|instead of)\s.*$|,\s+not\s.*$"
    r"|(?<=%) [a-z].*$|(?<=[\dπ∞)}²³])(?:\s+[a-z]+)?\s+(?:of|in|between|from|for|when|with|at|on|if|that)\s+(?=.*[a-z]{3}|\d).*$",
    re.S,
)
ROUGHLY = re.compile(
    r",\s+(?:which|that)\s+is\s+(?:about|approximately|roughly|around|≈)\s.*$|,?\s+or\s+(?:about|approximately|roughly|around)\s.*$",
    re.S,
)
# A calculation in front of what it comes to.
WORKED = re.compile(
    r"^(?:[^=a-zA-Z\\]|\\times|\\cdot|\\div)*\d(?:[^=a-zA-Z\\]|\\times|\\cdot|\\div)*=\s*(?=[^=]+$)"
)
SUM = re.compile(
    r"^(?!.*\b[b-z]\b).*[^\W\d_]{3}.*[-+−×·*/÷]\s*[$€£]?\d[\d.,%²³)!]*\s*=\s*(?=[^=]+$)"
)
BEFORE = re.compile(
    r".*(?:\b(?:is|are|equal\s+to|equals?|be|hence|so|thus|therefore|gives?|at|get|leaves|leaving|makes?|costs?|has|have|obtain|ist|sind|beträgt|est|sont|es|son"
    r"|vale|é|são|è|sono|är|равн[аоы]?)\b|\bi\.e\.|\b(?:it|that)'s\b|[:⇒→])(?=\s)",
    re.I | re.S,
)
STATEMENT = re.compile(
    r"(?:The|There|So|Thus|It|We|He|She|They|[A-Z][a-z]+ [a-z]+)\b.*\b(?:is|are|equals)\b(?=.)",
    re.S,
)
AND = "and|or|und|oder|et|ou|y|o|e|и|или|en|of"
NAMED = re.compile(r"\s*\\?[a-zA-Z]\w*(?:_\{?\w+\}?)?'?(?:\([^()]*\))?\s*=")
NUMBER = re.compile(
    r"(?<![a-zA-Z0-9_.,^])[-−]?[$€£]?\d(?:[\d,.]*\d)?(?:\s*/\s*\d+)?%?"
    r"|\b(?:two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|(?:thir|four|fif|six|seven|eigh|nine)teen|twenty)\b",
    re.I,
)
BOX = re.compile(
    r"\\\\?(?:boxed|fbox)\s*+\{|\\\\?(?:boxed|fbox)\s++(?P<bare>[^\s{}$\\.,;]++)|\\.|[{}]", re.S
)
JOINT = re.compile(
    r"[^.?!]*(?:,|;|(?<![a-z])(?:and|or))(?:\s*(?:maybe|perhaps|possibly|else)\b)?(?:[\s$,;:&]|\\[()\[\] ,;:]|\\q?quad|\}|[A-Za-z]\w*\s*=)*",
    re.S,
)


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
        found = hit["tagged"] or hit["hashes"] or _said(hit["answer"] or "")
    if found is None:
        return _stated(text, question)
    taken_back = RETRACTED.search(text, end)
    return (taken_back and _stated(text[taken_back.end() :], question)) or found or None


def _said(text: str) -> str | None:
    said = text.strip(" *\"'“”").rstrip(".。").strip()
    if DOUBT.search(said):
        return None
    while said.endswith("}") and said.count("}") > said.count("{"):  # of JSON
        said = said[:-1].strip(' "')
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
SUBJECT = re.compile(
    r"(?:(?i:So|Thus|Hence|Therefore),?\s+)?(\D+?)\s+is\s+(?:the\s+)?(?!not\b)(\w+)"
)


def subject(text: str, question: str) -> str | None:
    """What the last sentence of a reply says of itself in a word of the question; None where an answer is marked, or for another sentence."""
    if boxed(text) is not None or FINAL.search(text):
        return None
    found = SUBJECT.match(re.split(r"(?<=[.!?])\s+|\n", text.strip()[-LONGEST:])[-1])
    return found[1] if found and re.search(rf"\b{found[2]}\b", question, re.I) else None
