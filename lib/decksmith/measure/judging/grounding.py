"""What of a deck stands in the documents that its request brought: figures and names, read offline (deck-scan), and the claims
that a model reads (deck-judge --claims). None of it is part of a score (docs/prompts.md)."""

import bisect
import hashlib
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict, Unpack

from decksmith.core import config_files, stream
from decksmith.core.records import Record
from decksmith.measure.decks import features, sources, templates
from decksmith.measure.decks.parser import Deck, Slide, visible
from decksmith.measure.decks.words import STOPWORDS, fold, likeliest_language
from decksmith.measure.judging import identity, vision
from decksmith.measure.judging.records import DeckRecord, Grounding
from decksmith.models import turns
from decksmith.models.replies import added

RULES = "grounding-1"  # raise it when a value changes: it is part of a run's identity
LISTED = 60  # figures and names without a source that a record lists
SCANS = ("decks/features.py", "decks/frontmatter.py", "decks/templates.py", "judging/grounding.py")
CELLS = 60  # figures of one row, column or sentence that are combined


def measured(record: Record, text: str) -> Grounding:
    """The value of `features.grounding` for a deck's text; `record` quotes its `sources`."""
    material = sources.material(record)
    deck = Deck.parse(text)
    known = Known(material, sources.request(record))
    figures = list(_figures(deck))
    unsupported: list[Record] = []
    derived: list[Record] = []
    for figure in figures:
        how = known.says(figure)
        if how is None:
            unsupported.append({"kind": "figure", **figure.place})
        elif how:
            derived.append({**figure.place, "how": how})
    names = list(_names(deck)) if known.same_language(record) else []
    unsupported += [{"kind": "name", **name} for name in names if not known.has(name["text"])]
    said = len(figures) + len(names)
    return {
        "rules": RULES,
        "figures": len(figures),
        "names": len(names),
        "grounding": round(1 - len(unsupported) / said, 4) if said else None,
        "derived": derived[:LISTED],
        "unsupported": unsupported[:LISTED],
    }


# --- figures ----------------------------------------------------------------------------------------------------------

_SCALES = {
    1e3: "k thousand tsd tausend mille milliers",
    1e6: "m mio mln million millions millionen",
    1e9: "bn billion billions mrd milliard milliards milliarden",
}
_SCALE = {word: factor for factor, words in _SCALES.items() for word in words.split()}
_DATE = re.compile(
    r"(?<!\d)(\d{1,2})[./](\d{1,2})[./](\d{4})(?!\d)|(?<!\d)(\d{4})-(\d\d)-(\d\d)(?!\d)"
)
_NUMBER = re.compile(
    r"(?<![^\W_])(?:\d{1,3}(?:[ \u00a0\u202f'’]\d{3})+|\d{1,15}(?:[.,]\d{3}){0,4}(?!\d))(?:[.,]\d{1,15})?"
    r"(?:[ \u00a0\u202f-]?(%|percent\b|per cent\b|prozent\b|pour cent\b|"
    + "|".join(rf"{word}\b\.?" for word in sorted(_SCALE, key=len, reverse=True))
    + r"))?",
    re.IGNORECASE,
)


class Place(TypedDict):
    """What stands where: the slide, the line of deck.md, the text."""

    slide: int
    line: int
    text: str


@dataclass(frozen=True)
class FigureFound:
    """A number of a text. meanings: `(value, step)` of each number that it may be (1.234 is 1234 or 1.234); step is the
    worth of the last digit that counts. percent: it stands before a sign for it."""

    text: str
    meanings: tuple[tuple[float, float], ...]
    percent: bool
    slide: int = 0
    line: int = 0

    @property
    def place(self) -> Place:
        return {"slide": self.slide, "line": self.line, "text": self.text}


def figures_in(text: str, slide: int = 0, line: int = 0) -> list[FigureFound]:
    """The figures of a text that count: of two digits or more, or with a sign of percent or scale. Of a date these are
    the day and the year, since a month may be a word. Numbers that are part of a word (CO2, A4) are none."""
    found = []
    for match in _DATE.finditer(text):
        for part in (match[1] or match[6], match[3] or match[4]):  # the day, the year
            if int(part) > 9:
                found.append(FigureFound(part, ((float(part), 0.0),), False, slide, line))
    for match in _NUMBER.finditer(_DATE.sub(" ", text)):
        unit = (match[1] or "").lower().rstrip(".")
        digits = match[0][: match.start(1) - match.start()] if match[1] else match[0]
        digits = digits.strip(" \u00a0\u202f-")
        if sum(map(str.isdigit, digits)) < 2 and not unit:
            continue
        factor = _SCALE.get(unit, 1)
        meanings = tuple((value * factor, step * factor) for value, step in _meanings(digits))
        percent = bool(unit) and unit not in _SCALE
        found.append(FigureFound(match[0].strip(), meanings, percent, slide, line))
    return found


def _meanings(digits: str) -> tuple[tuple[float, float], ...]:
    """`(value, step)` of what the digits of a figure may mean. A whole number of five digits or more that ends in zeros
    is a rounded one: its step is that of its last other digit, of the third at most."""
    plain = re.sub(r"[ \u00a0\u202f'’]", "", digits)
    marks = [c for c in plain if c in ".,"]
    last = plain.rfind(marks[-1]) if marks else len(plain)
    whole, behind = re.sub(r"[.,]", "", plain[:last]), plain[last + 1 :]
    grouped = whole + behind
    zeros = len(grouped) - len(grouped.rstrip("0"))
    round_ = (float(grouped), 10.0 ** min(zeros, len(grouped) - 3) if len(grouped) > 4 else 1.0)
    decimal = (float(f"{whole}.{behind or 0}"), 10.0 ** -len(behind))
    if not marks or (len(marks) > 1 and len(set(marks)) == 1):  # 1234, 1,234,567
        return (round_,)
    if len(behind) != 3 or len(marks) > 1:  # 12.5, 1,234.567
        return (decimal,)
    return (round_, decimal)


def _figures(deck: Deck) -> Iterator[FigureFound]:
    """The figures that a deck shows: in its text without the numbers of lists, and in its diagrams; not in code."""
    for slide in deck.shown:
        for line, text in _lines(slide):
            yield from figures_in(re.sub(r"^\s*\d{1,3}[.)]\s", "", text), slide.no, line)
        for fence in slide.fences:
            if fence.lang == "mermaid":
                for k, text in enumerate(fence.text.split("\n"), fence.line + 1):
                    yield from figures_in(text, slide.no, k)


def _lines(slide: Slide) -> Iterator[tuple[int, str]]:
    """`(line of the deck, what can be read on it)` of a slide, its title in the frontmatter included."""
    if isinstance(title := slide.frontmatter.get("title"), str):
        yield slide.key_line("title"), title
    for k, line in enumerate(slide.prose.split("\n")):
        if shown := visible(line):
            yield slide.content_line + k, shown


class Known:
    """What the documents and the request say: their figures, with those that follow from them, and their words."""

    def __init__(self, material: dict[str, str], request: str) -> None:
        self.text = "\n\n".join(material.values())
        self.request = request
        told = figures_in(f"{self.text}\n\n{request}")
        self.given = sorted({value for figure in told for value, _ in figure.meanings})
        self.sums: dict[float, str] = {}
        self.percentages: dict[float, str] = {}
        for text in material.values():
            for group in _groups(text):
                self._combine(group)
        self.changes = sorted(self.percentages)
        self.words = set(re.findall(r"\w+", fold(f"{self.text} {request}")))

    def says(self, figure: FigureFound) -> str | None:
        """How a figure is known: "" where it stands there, maybe with more digits; else how it follows, or None.

        It follows from two figures of one row, column or sentence, or all of them: exact sums and
        differences, and (with a sign of percent) share and change to the digits shown."""
        if any(_nearest(self.given, value, step) is not None for value, step in figure.meanings):
            return ""
        own, step = figure.meanings[0]
        if figure.percent and (found := _nearest(self.changes, own, step)) is not None:
            return self.percentages[found]
        return self.sums.get(round(own, 6))

    def _combine(self, group: list[float]) -> None:
        """Adds what follows from the figures of a row, column or sentence."""
        self.sums.setdefault(round(sum(group), 6), f"sum of {len(group)} figures")
        for i, a in enumerate(group):
            for b in group[i + 1 :]:
                self.sums.setdefault(round(a + b, 6), f"{a:g} + {b:g}")
                self.sums.setdefault(round(abs(a - b), 6), f"difference of {a:g} and {b:g}")
                for part, whole in ((a, b), (b, a)):
                    if whole:
                        share, change = 100 * part / whole, 100 * abs(part - whole) / whole
                        self.percentages.setdefault(change, f"change from {whole:g} to {part:g}")
                        self.percentages.setdefault(share, f"{part:g} of {whole:g}")

    def has(self, name: str) -> bool:
        """Whether every word of a name stands in the documents or the request."""
        return self.words.issuperset(re.findall(r"\w+", fold(name)))

    def same_language(self, record: Record) -> bool:
        """Whether the deck is asked for in the documents' language: in another, names are translated."""
        asked = ((record.get("asks") or {}).get("language") or "").split("-")[0]
        spoken = likeliest_language(self.text)
        return not asked or not spoken or asked == spoken


def _nearest(known: list[float], value: float, step: float) -> float | None:
    """The first of the sorted numbers that is `value` when it is rounded to `step`."""
    room = step / 2 + 1e-9 * value
    at = bisect.bisect_left(known, value - room)
    return known[at] if at < len(known) and known[at] <= value + room else None


_YEAR = re.compile(r"(?:19|20)\d\d")


def _groups(text: str) -> Iterator[list[float]]:
    """The figures of each sentence, row and column that are worth combining: two or more, no years."""
    table: list[list[str]] = []
    for line in [*text.split("\n"), ""]:
        if line.lstrip().startswith("|"):
            table.append([cell.strip() for cell in line.strip().strip("|").split("|")])
            continue
        columns = [list(filter(None, column)) for column in itertools.zip_longest(*table)]
        sentences = [[part] for part in re.split(r"(?<=[.;!?])\s", line)]
        for cells in [*table, *columns, *sentences]:
            found = [f for cell in cells for f in figures_in(cell) if not _YEAR.fullmatch(f.text)]
            values = [f.meanings[0][0] for f in found][:CELLS]
            if len(values) > 1:
                yield values
        table = []


_WORD = re.compile(r"[^\W\d_][\w'’-]*")


def _names(deck: Deck) -> Iterator[Place]:
    """What is surely a name in a deck's running text: two words or more in a row with a capital, and words of three
    capitals or more. The first word of a line or sentence has a capital anyway and counts for none; headings and the
    heads of tables, where every word may have one, are left out."""
    for slide in deck.shown:
        lines = [*slide.prose.split("\n"), ""]
        for k, line in enumerate(lines[:-1]):
            under = lines[k + 1]
            if line.lstrip().startswith("#") or re.fullmatch(r"\s*\|[\s|:-]+\s*", under):
                continue
            shown = " | ".join(visible(cell) for cell in line.split("|"))
            for part in re.split(r"[.:;!?|•–—(]\s*|\*\*", shown):
                for name in _named(part):
                    yield {"slide": slide.no, "line": slide.content_line + k, "text": name}


def _named(part: str) -> Iterator[str]:
    run: list[str] = []
    for n, word in enumerate([*_WORD.findall(part), ""]):
        is_stop = any(word.lower() in stop for stop in STOPWORDS.values())
        if n and word[:1].isupper() and not is_stop:
            run.append(word)
            continue
        if len(run) > 1 or any(len(one) > 2 and one.isupper() for one in run):
            yield " ".join(run)
        run = [word] if len(word) > 2 and word.isupper() else []


def kept(keeps: Record, before: str, after: str) -> float | None:
    """The share of the slides that `keeps` names (`slides`, or all `except` some) whose content stands on
    some slide of the deck after, blanks apart, 0 to 1; None where the deck before has none of them."""
    old = Deck.parse(before).shown
    named = keeps.get("slides") or [n for n in range(1, len(old) + 1) if n not in keeps["except"]]
    wanted = Counter(" ".join(old[n - 1].content.split()) for n in named if n <= len(old))
    there = Counter(" ".join(slide.content.split()) for slide in Deck.parse(after).shown)
    return round((wanted & there).total() / wanted.total(), 4) if wanted else None


def inputs(run: Path, record: Record) -> list[object]:
    """Everything that the `features` value of a record depends on, for the journal."""
    deck, keeps = record.get("deck") or {}, (record.get("turn") or {}).get("keeps")
    names = [deck["path"]] if deck.get("path") else []
    names += [f"{turns.before(record)[-1]}/deck.md"] if keeps else []
    files = [(run / name).read_bytes() for name in names if (run / name).is_file()]
    said = [record.get(key) for key in ("messages", "asks", "sources")]
    said += [keeps, deck.get("template"), (record.get("render") or {}).get("imported")]
    code = identity.checks_code((*identity.CHECKING, *SCANS))
    return [code, said, *(hashlib.sha256(data).hexdigest() for data in files)]


def scan(run: Path, record: Record) -> Record:
    """The value of `features`: the scans, and `grounding` and `kept` where the record asks for them."""
    value = features.scan(run, record)
    if (record.get("render") or {}).get("imported"):
        value |= {"craft": None, "craft_v5": None}  # its markdown is ours
    path = (record.get("deck") or {}).get("path")
    if not path:
        return value
    text = (run / path).read_bytes().decode("utf-8", "replace")
    if record.get("sources"):
        value["grounding"] = measured(record, text)
    if keeps := (record.get("turn") or {}).get("keeps"):
        before = run / turns.before(record)[-1] / "deck.md"
        if before.is_file():
            value["kept"] = kept(keeps, before.read_bytes().decode("utf-8", "replace"), text)
    return value


# --- what a model reads -----------------------------------------------------------------------------------------------

CLAIMS, TRIES = 40, 3  # claims of a deck; requests
LONGEST = 60_000  # characters of a deck that are read
SAMPLING = {"temperature": 0, "max_tokens": 8192}


class ClaimReader:
    """A model that reads claims, with what stream.stage needs. A claim counts as supported only with a
    quotation that stands in a document. Raises cli.BadConfig for an unknown model or a missing key."""

    def __init__(self, run: Path, model: str, **access: Unpack[vision.Access]) -> None:
        from decksmith.models import client

        self.run = run
        self.client = client.Client.open(model, blame="judge", **access)
        self.jobs, self.close = self.client.jobs, self.client.close
        self.system = templates.prompt_text("judge-claims.txt").replace("{most}", str(CLAIMS))
        self.schema = config_files.asset("schemas/claims.json")
        told = stream.fingerprint([self.system, self.schema, SAMPLING])
        self.reader = f"{self.client.model.slug} {told[:12]}"

    def inputs(self, record: DeckRecord) -> list[object]:
        return [self.reader, self._deck(record), record.get("sources")]

    def valid(self, record: DeckRecord, value: Record) -> bool:
        return "unread" not in value

    async def work(self, record: DeckRecord) -> Record:
        """The value of `claims`; empty where the record has no documents or no deck."""
        deck = self._deck(record)
        if not record.get("sources") or not deck:
            return {"share": None, "claims": []}
        slides = [f"[slide {slide.no}]\n{slide.content}" for slide in Deck.parse(deck).shown]
        documents = sources.material(record)
        quoted = [f"[{name}]\n{text}" for name, text in documents.items()]
        shown = "\n\n".join(slides)[:LONGEST]
        question = "\n\n".join(["The documents:", *quoted, "The deck:", shown])
        asked: list[Record] = [{"role": "system", "content": self.system}]
        asked.append({"role": "user", "content": question})
        messages, problem, usage = asked, "", added()
        for attempt in range(TRIES):
            try:
                reply = await self.client.ask(messages, SAMPLING, schema=self.schema, seed=attempt)
                usage = added(usage, reply.usage)
                claims = usable(reply.text, self.schema, len(slides), documents.values())
            except stream.Fault as fault:
                problem = fault.error["message"]
                break
            except ValueError as error:
                problem = str(error)
                messages = asked + vision.again(reply.text, problem)
                continue
            supported = sum(claim["supported"] for claim in claims)
            share = round(supported / len(claims), 4) if claims else None
            return {"share": share, "claims": claims, "reader": self.reader, "usage": usage}
        stream.warn(record["id"], f"its claims were not read: {problem}")
        return {"share": None, "claims": [], "unread": problem, "usage": usage}

    def _deck(self, record: DeckRecord) -> str:
        path = (record.get("deck") or {}).get("path")
        return (self.run / path).read_text("utf-8", "replace") if path else ""


def usable(text: str, schema: Record, slides: int, documents: Iterable[str]) -> list[Record]:
    """The claims of a reply, checked against the documents. Raises ValueError with what was wrong."""
    claims: list[Record] = vision.one_object(text, schema)["claims"]
    if len(claims) > CLAIMS:
        raise ValueError(f"it has {len(claims)} claims; give at most {CLAIMS}")
    known = [fold(document) for document in documents]
    for claim in claims:
        if claim["slide"] > slides:
            raise ValueError(f"there is no slide {claim['slide']}")
        quote = fold(claim["quote"] or "")
        stands = bool(quote) and any(quote in text for text in known)
        claim["supported"] = claim["supported"] and stands
    return claims
