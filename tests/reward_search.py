"""What a search finds that sees nothing but a reward: a part of tests/reward_attack.py.

It begins with word salad, with filler, or with the husk of a good deck (its headings and elements, its words shuffled), and changes
slides as a policy might that has the request and the reward: words, lines, headings, elements, layouts. New slides are rendered many
to a deck, as each looks the same whatever stands beside it; a deck is composed of slides that are there, so an evaluation costs
milliseconds. The best of each search is rendered whole at the end, and that reward is the one that is printed.
"""

import asyncio
import copy
import random
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "lib"), str(ROOT / "tests"), str(ROOT / "tests/exam")]

import gaming  # noqa: E402
import planted_defects as defects  # noqa: E402
from decksmith.core import stream  # noqa: E402
from decksmith.core.protocol import Protocol  # noqa: E402
from decksmith.measure.decks.parser import Deck  # noqa: E402
from decksmith.measure.judging import checks, rendered  # noqa: E402
from decksmith.measure.render import pool  # noqa: E402
from decksmith.train.rewards import helper  # noqa: E402
from decksmith.train.rewards import rules as reward_rules  # noqa: E402

BATCH = 16  # new slides that are rendered together
TRIES = 100  # decks that are composed before the next
SALAD = "the of and river blue seven walk into sky under table light go old paper make glass wind often near".split()
FILLER = (
    "This is an important aspect of the topic",
    "There are many factors to consider here",
    "A careful approach brings the best results",
    "We will look at this in more detail",
    "Good planning is the key to success",
    "Everyone can benefit from this in the long run",
)


class Drawing:
    """A warm renderer for a run folder: `with Drawing(run) as drawn: drawn(decks)` gives records as deck-render does."""

    def __init__(self, run):
        self.run, self.loop = Path(run), asyncio.new_event_loop()

    def __enter__(self):
        self.pool = pool.Pool(Protocol.load("offline"))
        return self.drawn

    def drawn(self, decks):
        records = [helper.prepared(self.run, {**row, "gen": {"text": text}}) for row, text in decks]
        for record in records:
            if not stream.fault(record):
                record["render"] = self.loop.run_until_complete(self.pool.render(self.run, record))
        return records

    def __exit__(self, *_):
        self.loop.run_until_complete(self.pool.close())
        self.loop.close()


class Composed(rendered.Pages):
    """A deck of slides that were rendered with others: pictures and measures as they are known."""

    def __init__(self, record, run, limits, looked, text):
        self.known, self.markdown = looked, text
        super().__init__(record, run, limits)

    @property
    def looked(self):
        return self.known

    @property
    def deck(self):
        return Deck.parse(self.markdown)


class Search:
    """One request: `render(decks) -> records` draws decks, `judge(slides' texts) -> (mark, answers)` reads them, or is None.
    The reward is that of the rules, of a composed deck."""

    def __init__(self, row, rules, run, render, judge=None):
        self.row, self.rules, self.run, self.render, self.judge = (
            row,
            rules,
            Path(run),
            render,
            judge,
        )
        self.slides = {}  # markdown: (measures, picture's path, what was seen in it, errors, items)
        self.limits = rules.protocol.checks
        self.evaluated = 0
        said = row["messages"][-1]["content"]
        self.words = re.findall(r"[^\W\d_]{3,}", said)
        self.phrases = [
            part.strip() for part in re.split(r"[,.:;\n]", said) if 2 <= len(part.split()) <= 6
        ]
        self.figures = re.findall(r"\d+", said)

    def know(self, theme, texts):
        """Render the slides that are new, all in one deck."""
        new = [text for text in dict.fromkeys(texts) if text not in self.slides]
        if not new:
            return
        name = f"bank-{len(self.slides)}"
        whole = defects.join([f"---\ntheme: {theme}\n---\n\n# Bank\n", *new])
        record = self.render([({**self.row, "id": name}, whole)])[0]
        shown = record.get("render") or {}
        pages = rendered.Pages(record, self.run, self.limits) if shown.get("xray") else None
        fits = pages and (shown.get("expected") == len(new) + 1)
        for place, text in enumerate(new, 2):
            if not fits or place not in pages.xray or place not in pages.looked:
                self.slides[text] = None  # it breaks the deck, or is no one slide
                continue
            errors = [error for error in shown["errors"] if error.get("slide") == place]
            page = {**pages.xray[place], "line": 0}
            self.slides[text] = page, pages.pictures[place], pages.looked[place], errors

    def worth(self, texts):
        """The reward of a deck of known slides."""
        self.evaluated += 1
        parts = [self.slides[text] for text in texts]
        if None in parts or len(parts) < 3:
            return 0.0
        xray = [{**part[0], "slide": n} for n, part in enumerate(parts, 1)]
        errors = [{**error, "slide": n} for n, part in enumerate(parts, 1) for error in part[3]]
        render = {"xray": xray, "expected": len(parts), "slides": [], "errors": errors}
        record = {
            **self.row,
            "render": render,
            "deck": {"path": "", "theme": self.theme},
            "images": {"items": []},
        }
        looked = {n: part[2] for n, part in enumerate(parts, 1)}
        judged, read = 1.0, []
        if self.judge:
            record["checklist"] = []
        pages = Composed(record, self.run, self.limits, looked, defects.join(texts))
        pages.pictures = {n: part[1] for n, part in enumerate(parts, 1)}
        found = checks.verdict(pages)
        if self.judge:
            judged, read = self.judge(self.row, pages)
        matched = [one["yes"] for one in found["asked"]]
        passed = found["checks"]["passed"] - sum(matched)
        slides = found["checks"]["of"] - len(matched)
        return judged * sum(reward_rules.shares(passed, slides, [*matched, *read]).values())

    def starts(self, good):
        """{name: slides} to begin with; `good`: the deck whose husk is one of them."""
        chance = random.Random(5)
        count = self.row["asks"].get("slides") or 7
        salad = [
            f"---\n---\n\n# {self.some(chance, 3)}\n\n"
            + "\n".join(f"- {self.some(chance, 7)}" for _ in range(3))
            for _ in range(count)
        ]
        filler = [
            f"---\n---\n\n# Part {n}\n\n"
            + "\n".join(f"- {line}" for line in chance.sample(FILLER, 3))
            for n in range(1, count + 1)
        ]
        husk = [part.text() for part in defects.parts(gaming.shuffled_words(good))]
        self.theme = Deck.parse(good).theme
        return {"salad": salad, "filler": filler, "husk": [bare(text) for text in husk]}

    def some(self, chance, count):
        """Words in no order, some of them the request's."""
        return " ".join(
            chance.choice(self.words if chance.random() < 0.4 else SALAD) for _ in range(count)
        ).capitalize()

    def changed(self, chance, text):
        """A slide with one thing changed."""
        head, _, body = text.partition("\n\n")
        lines = body.split("\n")
        at = chance.randrange(len(lines))
        element = chance.choice(
            (
                f"| {self.some(chance, 1)} | {self.some(chance, 1)} |\n| --- | --- |\n| {self.some(chance, 2)} | {self.some(chance, 2)} |",
                f"```mermaid\nflowchart LR\n  A[{self.some(chance, 2)}] --> B[{self.some(chance, 2)}]\n```",
                f"```python\n{self.some(chance, 1).lower()} = {chance.randrange(99)}\n```",
                "$$x = " + str(chance.randrange(99)) + "$$",
                f"> {self.some(chance, 6)}",
                f"![](image-query://{self.some(chance, 1).lower()})",
                f"<!-- {self.some(chance, 5)} -->",
            )
        )
        match chance.randrange(9):
            case 0:
                lines = [f"# {chance.choice(self.phrases or self.words)}", *lines[1:]]
            case 1:
                lines.append(f"- {self.some(chance, 6)}")
            case 2 if len(lines) > 3:
                del lines[at]
            case 3:
                lines += ["", element]
            case 4:
                lines.append(
                    f"- {self.some(chance, 2)} {chance.choice(self.figures or ['12'])} {self.some(chance, 2)}"
                )
            case 5:
                head = f"---\nlayout: {chance.choice(('default', 'center', 'two-cols', 'quote', 'fact'))}\n---"
            case 6:
                lines.append(f"- {chance.choice(self.phrases or self.words)}")
            case 7:
                lines = [lines[0], "", f"- {chance.choice(FILLER)}", f"- {self.some(chance, 5)}"]
            case _:
                lines[at] = re.sub(
                    r"[^\W\d_]{3,}", lambda _: chance.choice(self.words), lines[at], count=2
                )
        return head + "\n\n" + "\n".join(lines)

    def run_from(self, slides, evaluations, seed):
        """(reward, slides) of the best deck that so many evaluations find: climbing, every fourth batch from the bank alone."""
        chance = random.Random(seed)
        self.know(self.theme, slides)
        best, deck = self.worth(slides), slides
        left = evaluations - 1
        while left > 0:
            bank = [self.changed(chance, chance.choice(deck)) for _ in range(BATCH)]
            self.know(self.theme, bank)
            bank = [text for text in bank if self.slides.get(text)]
            for _ in range(min(left, TRIES)):
                left -= 1
                tried = copy.copy(deck)
                what = chance.randrange(8)
                if what == 0 and len(tried) > 3:
                    del tried[chance.randrange(len(tried))]
                elif what == 1:
                    i, j = chance.randrange(len(tried)), chance.randrange(len(tried))
                    tried[i], tried[j] = tried[j], tried[i]
                elif what == 2 and bank:
                    tried.insert(chance.randrange(len(tried) + 1), chance.choice(bank))
                elif bank:
                    for _ in range(chance.choice((1, 1, 2))):
                        tried[chance.randrange(len(tried))] = chance.choice(bank)
                if (value := self.worth(tried)) >= best:
                    best, deck = value, tried
        return best, deck


def bare(text):
    """A slide with a frontmatter of its own, whose keys of the whole deck are gone."""
    head, _, body = (
        text.partition("\n---") if text.startswith("---") else ("---", "", "\n\n" + text)
    )
    kept = [line for line in head.split("\n")[1:] if re.match(r"layout|image|class", line)]
    return "\n".join(["---", *kept, "---", "", body.strip("\n")])
