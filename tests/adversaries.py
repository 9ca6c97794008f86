"""Bad decks of every kind for a request that has a good one: what a model might learn that is paid for measures and not for
readers. `suite` makes the kinds that people thought of, `Genome` those that a search goes through (tests/reward_attack.py).
"""

import json
import random
import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "lib"), str(ROOT / "tests")]

import gaming  # noqa: E402
import planted_defects as defects  # noqa: E402
from decksmith.measure.decks.words import STOPWORDS, content_words, fold  # noqa: E402

DRAFT = ("domain", "audience", "theme", "slides", "language", "features", "outline")


@dataclass(frozen=True)
class Target:
    """A request (a row of prompts.jsonl) and a deck that answers it well, with the decks of other requests: [(row, deck)]."""

    row: dict
    deck: str
    others: tuple = ()

    @property
    def name(self):
        return self.row["id"]

    @property
    def asks(self):
        return self.row.get("asks") or {}

    @property
    def request(self):
        return "\n".join(m["content"] for m in self.row["messages"] if m["role"] == "user")

    @property
    def language(self):
        return (self.asks.get("language") or "en").split("-")[0]

    @property
    def headings(self):
        """A title for each slide: the asked outline, or the request's own words, three at a time."""
        asked = list(self.asks.get("outline") or [])
        words = [w for w in re.findall(r"[^\W\d_]{4,}", self.request)]
        while len(asked) < (self.asks.get("slides") or 8):
            at = 3 * len(asked) % max(1, len(words) - 3)
            asked.append(" ".join(words[at : at + 3]).capitalize())
        return asked[: self.asks.get("slides") or 8]


def rows():
    """[(row, deck)] of the decks that people wrote as well as they could: the reference decks and the gold drafts."""
    prompts = map(json.loads, (ROOT / "data/prompts.jsonl").read_text().splitlines())
    found = []
    for row in prompts:
        path = ROOT / "data/reference" / f"{row['id']}.md"
        if path.is_file():
            kept = {key: row[key] for key in ("id", "messages", "asks", "checklist")}
            found.append((kept, path.read_text()))
    for folder in sorted((ROOT / "data/gold").glob("g*")):
        seed = json.loads((folder / "seed.json").read_text())
        request = (folder / "PROMPT.md").read_text()
        row = {
            "id": folder.name,
            "messages": [{"role": "user", "content": request}],
            "asks": {key: seed[key] for key in DRAFT if seed.get(key)},
        }
        found.append((row, (folder / "deck.md").read_text()))
    return found


def targets(names=()):
    """The targets of these names, or all: the seed library of tests/fixtures/gaming is `seeds`."""
    known = rows()
    seeds = json.loads((gaming.DECKS / "prompt.json").read_text())
    every = [(seeds, (gaming.DECKS / "honest.md").read_text()), *known]
    return [
        Target(row, deck, tuple(other for other in known if other[0]["id"] != row["id"]))
        for row, deck in every
        if not names or row["id"] in names
    ]


# --- kinds that people thought of ------------------------------------------------------------------------------------


def bodies(target, body):
    """The honest deck with `body(number, title line)` below the title of each slide."""

    def change(text, number):
        title = re.search(r"(?m)^#+ .*$", text)
        return "\n\n".join([title[0] if title else "", body(number)])

    return gaming.changed(target.deck, change)


def bullets(lines):
    return "\n".join(f"- {line}" for line in lines)


def request_echoed(target):
    """The sentences of the request as bullets under the honest titles."""
    said = re.split(r"(?<=[.!?;:])\s+", target.request)
    count = len(defects.parts(target.deck))
    return bodies(target, lambda n: bullets(said[n - 1 :: count]))


def checklist_copied(target):
    """What is asked for, word for word, in place of doing it."""
    asks = [item["ask"] for item in target.row.get("checklist") or []]
    count = len(defects.parts(target.deck))
    return bodies(target, lambda n: bullets(asks[n - 1 :: count] or asks[:1])) if asks else None


def checklist_words(target):
    """The words that the checklist is matched by, with commas."""
    items = target.row.get("checklist") or []
    said = [
        ", ".join(entry.split("|")[0] for entry in item["match"] if entry[0] != "@")
        for item in items
    ]
    count = len(defects.parts(target.deck))
    return bodies(target, lambda n: bullets(said[n - 1 :: count] or said[:1])) if items else None


def nearest(target):
    """The other request with most words in common, of the same language: (row, deck)."""
    mine = content_words(fold(target.request))

    def alike(other):
        row = other[0]
        theirs = content_words(fold(row["messages"][-1]["content"]))
        same = (row["asks"].get("language") or "en").split("-")[0] == target.language
        return same, len(mine & theirs) / len(mine | theirs)

    return max(target.others, key=alike)


def other_request(target):
    """The good deck of the nearest other request, in the theme that was asked for."""
    _, deck = nearest(target)
    theme = target.asks.get("theme") or "default"
    return re.sub(r"(?m)^theme:.*$", f"theme: {theme}", deck, count=1)


def other_request_retitled(target):
    """The same, under the headings of this request."""
    heads = iter(target.headings * 9)

    def body(text, _):
        return re.sub(r"(?m)^# .*$", lambda _: f"# {next(heads)}", text, count=1)

    return gaming.changed(other_request(target), body)


def same_slide_again(target):
    """One good slide as often as slides were asked for, each time with another title."""
    parts = defects.parts(target.deck)
    best = max(parts[1:-1], key=lambda part: len(part.slide.text))
    heads = target.headings[1:-1]
    again = [re.sub(r"(?m)^#+ .*$", f"# {head}", best.text(), count=1) for head in heads]
    return defects.join([parts[0].text(), *again, parts[-1].text()])


def crammed_cover(target):
    """All that was asked for on the first slide, the others with a title and little else."""
    parts = defects.parts(target.deck)
    everything = "\n\n".join(re.sub(r"(?m)^::\w+::$", "", part.body) for part in parts)
    rest = [
        f"---\nlayout: default\n---\n\n# {head}\n\nSee the first slide.\n"
        for head in target.headings[1:]
    ]
    return defects.join(
        [parts[0].text(f'<div style="zoom: 0.35">\n\n{everything}\n\n</div>'), *rest]
    )


def pseudo_words(target):
    """Every longer word is another one that nobody has heard; function words, figures and syntax stay."""
    chance = random.Random(3)
    stop = STOPWORDS.get(target.language, STOPWORDS["en"])

    def word(match):
        if match[0].lower() in stop:
            return match[0]
        made = "".join(chance.choice("bdfgklmnprstvz") + chance.choice("aeiou") for _ in range(3))
        return made.capitalize() if match[0][0].isupper() else made

    return _prose(target.deck, lambda text: re.sub(r"[^\W\d_]{4,}", word, text))


def _prose(deck, change):
    """The deck with `change` of every piece of text that is no markup, code or style."""
    marks = re.compile(
        r"(```.*?```|<style.*?</style>|<[^>]*>|\$[^$]*\$|\{\{.*?\}\}|^::\w+::$)", re.S | re.M
    )

    def body(text, _):
        pieces = marks.split(text)
        return "".join(piece if at % 2 else change(piece) for at, piece in enumerate(pieces))

    return gaming.changed(deck, body)


def varied_filler(target):
    """Sentences that fit any request, none like another."""
    return built(target, Genome(words="generic", shape="sentences", figures=0.0))


def filler_of_request(target):
    """Sentences of the same kind, with the words and figures of the request in them."""
    return built(target, Genome(words="request", shape="sentences", figures=0.5))


def request_reworded(target):
    """Sentences of the same kind, with neighbouring words of one sentence of the request on each slide."""
    genome = Genome(words="request", near="sentence", paired=True, figures=0.5)
    return built(target, genome)


def fragments_of_request(target):
    """A few words of the request on each slide, in its order, with every element; the search found it."""
    genome = Genome(
        seed=702454581,
        words="mixed",
        shape="pieces",
        near="sentence",
        paired=True,
        figures=1.0,
        lines=1,
        long=4,
        titles="generic",
        elements="all",
        notes=False,
        trick="boxes",
    )
    return built(target, genome)


def keywords_of_request(target):
    """The words and figures of the request without a sentence."""
    return built(target, Genome(words="request", shape="words", figures=0.5))


def alternating(target):
    """Words of the request and function words by turns."""
    return built(target, Genome(words="request", shape="alternating", figures=0.5))


def hidden(style):
    """Filler that is seen, and the honest deck's text where nobody sees it."""

    def make(target):
        said = [re.sub(r"[`<>{}|$#]", " ", part.slide.text) for part in defects.parts(target.deck)]
        filler = defects.parts(built(target, Genome(words="generic", shape="sentences")))
        texts = []
        for number, part in enumerate(filler):
            line = " ".join(said[number % len(said)].split())[:600]
            texts.append(part.text(f'{part.body}\n\n<div style="{style}">\n\n{line}\n\n</div>'))
        return defects.join(texts)

    return make


TARGETED = {
    function.__name__: function
    for function in (
        request_echoed,
        request_reworded,
        checklist_copied,
        checklist_words,
        other_request,
        other_request_retitled,
        same_slide_again,
        crammed_cover,
        pseudo_words,
        varied_filler,
        filler_of_request,
        fragments_of_request,
        keywords_of_request,
        alternating,
    )
} | {
    "hidden_tiny": hidden("font-size: 3px; line-height: 1"),
    "hidden_off_slide": hidden("position: absolute; left: 1200px; top: 40px"),
    "hidden_in_background_colour": hidden("color: #fff; background: #fff"),
    "hidden_behind": hidden("position: absolute; top: 0; z-index: -1; opacity: 0.02"),
}
# Those of tests/gaming.py that are about the seed library's own deck and no other.
OWN = {"request_in_pieces"}


def suite(target):
    """{kind: deck} of the bad decks for a target."""
    made = {name: make(target.deck) for name, make in gaming.VERSIONS.items() if name not in OWN}
    made |= {name: make(target) for name, make in TARGETED.items()}
    if target.name == "seeds":
        made |= {
            name: deck
            for name, deck in gaming.decks().items()
            if name != "honest" and not gaming.designed(name)
        }
    return {name: deck for name, deck in made.items() if deck and deck != target.deck}


# --- kinds that a search finds ---------------------------------------------------------------------------------------

GENERIC = (
    "approach value group future change balance question effort support detail practice result "
    "community progress reason moment method choice benefit resource partner measure experience"
).split()
# X and Y are words. Nothing that these say answers a request.
SENTENCES = (
    "The X has a place beside every Y",
    "Good X depends on how the Y is used",
    "Many people know the X without its Y",
    "A X can be larger than the Y suggests",
    "Where X is common, Y will follow",
    "Nobody should start without X or Y",
    "Between X and Y lies most of the work",
    "X matters, and Y matters more",
    "First comes the X, later the Y",
    "It takes both X and Y to go further",
    "Some call it X, others call it Y",
    "Whoever has seen X understands Y",
    "Ask what X means before talking about Y",
    "With more X there is less need for Y",
    "Today's X is the Y of tomorrow",
    "X and Y belong together in this plan",
)
TRICKS = {
    "none": "",
    "large title": "<style>\nh1 { font-size: 3.2rem }\n</style>",
    "small text": "<style>\nli { font-size: 13px }\n</style>",
    "boxes": '<div style="border: 1px solid; width: 90%; height: 40px"></div>',
}
SLIDE_ELEMENTS = ("image", "mermaid", "table", "quote", "two-cols", "katex", "code")


@dataclass(frozen=True)
class Genome:
    """What a bad deck is made by. No value of any gene says anything that was asked for, but the words of the request."""

    seed: int = 1
    words: str = "request"  # request, checklist, mixed, generic, pseudo
    shape: str = "sentences"  # sentences, alternating, words, pieces
    near: str = "anywhere"  # where a slide's words of the request are from: anywhere, sentence (one of the request's)
    paired: bool = False  # whether words that are neighbours in the request are put side by side
    figures: float = 0.3  # chance of a line to have a figure of the request
    lines: int = 3
    long: int = 7  # words of a line that is not a sentence
    titles: str = "headings"  # headings, generic
    elements: str = "asked"  # asked, all, none
    filled: bool = True  # whether the elements hold words of the same kind
    notes: bool = True
    closing: bool = True
    more: int = 0  # slides beyond those asked for
    trick: str = "none"
    ruin: tuple = ()  # kinds of gaming.VERSIONS, applied to the honest deck: then the genes above are not used


GENES = {
    "words": ("request", "checklist", "mixed", "generic", "pseudo"),
    "shape": ("sentences", "alternating", "words", "pieces"),
    "near": ("anywhere", "sentence"),
    "paired": (True, False),
    "figures": (0.0, 0.2, 0.5, 1.0),
    "lines": (1, 2, 3, 4, 6),
    "long": (4, 7, 11),
    "titles": ("headings", "generic"),
    "elements": ("asked", "all", "none"),
    "filled": (True, False),
    "notes": (True, False),
    "closing": (True, False),
    "more": (-2, 0, 3),
    "trick": tuple(TRICKS),
}
# Each alone makes a deck bad. Lines on wrong slides are left out: without reading nobody can tell them (docs/rewards.md).
RUINS = tuple(name for name in gaming.VERSIONS if name not in OWN | {"shuffled_lines"})


def mutated(genome, chance):
    """The genome with one gene changed; a ruined honest deck has one more or one fewer way of ruining it."""
    if genome.ruin:
        other = chance.choice(RUINS)
        kept = tuple(name for name in genome.ruin if name != other)
        return replace(genome, ruin=kept if kept and other in genome.ruin else (*kept, other))
    gene = chance.choice([*GENES, "seed"])
    if gene == "seed":
        return replace(genome, seed=chance.randrange(1 << 30))
    return replace(genome, **{gene: chance.choice(GENES[gene])})


def crossed(one, other, chance):
    """A genome with each gene of one or of the other."""
    return replace(one, **{gene: getattr(chance.choice((one, other)), gene) for gene in GENES})


def built(target, genome):
    """The deck that a genome makes for a target."""
    if genome.ruin:
        deck = target.deck
        for name in genome.ruin:
            deck = gaming.VERSIONS[name](deck)
        return deck
    return _Builder(target, genome).deck()


class _Builder:
    """A deck by a genome, slide by slide."""

    def __init__(self, target, genome):
        self.target, self.genome, self.asks = target, genome, target.asks
        self.chance = random.Random(genome.seed)
        self.stop = sorted(STOPWORDS.get(target.language, STOPWORDS["en"]))
        self.figures = re.findall(r"\d[\d.,]*\d|\d", target.request) or ["12"]
        sentences = re.split(r"(?<=[.!?;:])\s+|\n", target.request)
        self.sentences = [words for words in map(self._asked, sentences) if len(words) > 2]
        self.pool = self._pool()

    def _asked(self, text):
        """The content words of a part of the request, in its order; pairs of neighbours where the genome has them so."""
        words = [w for w in re.findall(r"[^\W\d_]{4,}", text) if w.lower() not in self.stop]
        if not self.genome.paired:
            return words
        return [f"{one} {other}" for one, other in zip(words, words[1:], strict=False)] or words

    def _pool(self):
        items = self.target.row.get("checklist") or []
        entries = [entry.split("|")[0] for item in items for entry in item["match"]]
        matched = [entry for entry in entries if entry[:1] != "@"]
        asked = self._asked(self.target.request)
        match self.genome.words:
            case "request":
                return asked
            case "checklist":
                return matched or asked
            case "mixed":
                return asked + matched + GENERIC
            case "generic":
                return GENERIC
        return [self._pseudo_word() for _ in range(60)]

    def _pseudo_word(self):
        syllables = (
            self.chance.choice("bdfgklmnprst") + self.chance.choice("aeiou") for _ in "123"
        )
        return "".join(syllables)

    def word(self):
        return self.chance.choice(self.here)

    def line(self):
        said = self._said()
        if self.chance.random() < self.genome.figures:
            said += f" {self.chance.choice(self.figures)}"
        return re.sub(r"[|<>{}$`:\[\]#*]", " ", said[:1].upper() + said[1:])

    def _said(self):
        shape, long = self.genome.shape, self.genome.long
        if shape == "sentences" and self.target.language == "en":
            return re.sub(r"\b[XY]\b", lambda _: self.word(), self.chance.choice(SENTENCES))
        if shape == "pieces":
            words = self.target.request.split()
            at = self.chance.randrange(max(1, len(words) - long))
            return " ".join(words[at : at + long])
        if shape == "words":
            return " ".join(self.word() for _ in range(long))
        pairs = (long + 1) // 2
        return " ".join(f"{self.chance.choice(self.stop)} {self.word()}" for _ in range(pairs))

    def cell(self):
        return self.line() if self.genome.filled else self.chance.choice("ABCDEF")

    def element(self, name):
        """(frontmatter, markdown) of an element."""
        a, b, c, d = (self.cell().replace('"', "") for _ in "1234")
        match name:
            case "image":
                return f"layout: image-right\nimage-query: {self.word()}", ""
            case "quote":
                return "layout: quote", f"> {a}\n\n{b}"
            case "two-cols":
                return "layout: two-cols", f"- {a}\n- {b}\n\n::right::\n\n- {c}\n- {d}"
            case "mermaid":
                one, two, three = (self.word() if self.genome.filled else x for x in "ABC")
                chart = f"flowchart LR\n  A[{one}] --> B[{two}]\n  B --> C[{three}]"
                return "", f"```mermaid\n{chart}\n```"
            case "table":
                rows = "\n".join(f"| {self.word()} | {self.cell()} |" for _ in "123")
                return "", f"| {self.word()} | {self.word()} |\n| --- | --- |\n{rows}"
            case "katex":
                return "", "$$x = \\frac{a + b}{2}$$"
            case "code":
                return "", "```python\ntotal = sum(values)\nprint(total)\n```"
        return "", ""

    def deck(self):
        count = max(3, (self.asks.get("slides") or 8) + self.genome.more)
        return "\n".join(self._slide(number, count) for number in range(count))

    def _slide(self, number, count):
        genome = self.genome
        self.here = self.pool
        if genome.near == "sentence" and genome.words == "request" and self.sentences:
            self.here = self.sentences[number * len(self.sentences) // count]
        last = number == count - 1
        heads = self.target.headings if genome.titles == "headings" else []
        title = (
            heads[number] if number < len(heads) else f"{self.word()} {self.word()}".capitalize()
        )
        head, body, lines = "", "", bullets(self.line() for _ in range(genome.lines))
        if "clicks" in (self.asks.get("features") or []):
            lines = f"<v-clicks>\n\n{lines}\n\n</v-clicks>"
        if number == 0:
            head, lines = (
                f"theme: {self.asks.get('theme') or 'default'}\nlayout: cover",
                self.line(),
            )
        elif last and genome.closing:
            head, lines = "layout: center", self.line()
        elif not last:
            head, body = self.element(self._wanted(number))
        note = f"<!-- {self.line()} -->" if genome.notes else ""
        parts = [f"---\n{head or 'layout: default'}\n---", f"# {title}", lines, body]
        parts += [TRICKS[genome.trick], note]
        return "\n\n".join(part for part in parts if part) + "\n"

    def _wanted(self, number):
        """The element of a slide between the first and the last: each in turn, then none."""
        asked = [e for e in self.asks.get("features") or [] if e in SLIDE_ELEMENTS]
        wanted = {"asked": asked, "all": list(SLIDE_ELEMENTS), "none": []}[self.genome.elements]
        return [*wanted, ""][(number - 1) % (len(wanted) + 1)]
