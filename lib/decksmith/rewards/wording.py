"""What the words of a deck tell about whether somebody wrote it: measures of a Pages that the offline judge does not have.

Filler with the words of the request in it has all of them, but anywhere. Who answers a request keeps together what belongs
together there: the words of a sentence stand on one slide, and those of a phrase side by side.
"""

import itertools
import re
from collections import Counter

from decksmith.decks.words import content_words, fold
from decksmith.judging.offline import figures_in, repeated, units
from decksmith.judging.rendered import Pages

PAIRS = 8  # of words that a sentence joins, and of others, from which shares are compared
PHRASES = 5  # from so many phrases on their share is one
APART, REACH = 3, 5  # words between the two of a phrase, in the request and on a slide
GRAM = 4  # words
SENTENCES = re.compile(r"(?<=[.!?;:])\s+|\n|[。！？；]")
CLAUSES = re.compile(r"[.!?;:,()\n。！？；]")


def together(pages: Pages) -> float | None:
    """How much likelier two words of the request stand on one slide where one sentence of the request has both: 0.5 as
    likely as words of different sentences, 1 only those. Words of the asked headings, and those on more than a third of
    the slides, are left out. None for a request, or a deck, with few words to compare.
    """
    slides = [_terms(text) - _headings(pages) for text in pages.texts.values()]
    count = Counter(term for slide in slides for term in slide)
    often = max(1, len(slides) // 3)
    sentences = [_terms(part) for part in SENTENCES.split(pages.request)]
    used = {term for part in sentences for term in part if 1 <= count[term] <= often}
    joined = {pair for part in sentences for pair in itertools.combinations(sorted(part), 2)}
    met = {pair for slide in slides for pair in itertools.combinations(sorted(slide & used), 2)}
    pairs = list(itertools.combinations(sorted(used), 2))
    same = [pair in met for pair in pairs if pair in joined]
    other = [pair in met for pair in pairs if pair not in joined]
    if len(same) < PAIRS or len(other) < PAIRS or not met:
        return None
    # Two pairs of the average are added to each side, so that a few pairs say little.
    usual = 2 * (sum(same) + sum(other)) / len(pairs)
    here = (sum(same) + usual) / (len(same) + 2)
    there = (sum(other) + usual) / (len(other) + 2)
    return here / (here + there)


def phrases(pages: Pages) -> float | None:
    """Share of the request's pairs of neighbouring words, both of which the deck has, that stand near each other on some
    slide. None where the deck has few of them.
    """
    headings, asked = _headings(pages), set()
    for clause in CLAUSES.split(pages.request):
        placed = _placed(clause)
        for (i, one), (j, other) in itertools.pairwise(placed):
            if j - i <= APART and one != other and not {one, other} <= headings:
                asked.add(frozenset((one, other)))
    slides = [_placed(text) for text in pages.texts.values()]
    said = {word for placed in slides for _, word in placed}
    near = {
        frozenset((one, other))
        for placed in slides
        for at, (i, one) in enumerate(placed)
        for j, other in placed[at + 1 : at + 1 + REACH]
        if j - i <= REACH
    }
    there = [pair for pair in asked if pair <= said]
    return sum(pair in near for pair in there) / len(there) if len(there) >= PHRASES else None


def molds(pages: Pages) -> float | None:
    """Share of the runs of four words that came before, with the request's words and all figures as if they were one word:
    sentences of one mold with other words in them. None for a deck without such runs.
    """
    asked, seen = content_words(fold(pages.request)), Counter[tuple[str, ...]]()
    for text in pages.texts.values():
        words = [
            "*" if word.isdigit() or content_words(word) & asked else word for word in units(text)
        ]
        runs = zip(*(words[k:] for k in range(GRAM)), strict=False)
        seen.update(run for run in runs if run.count("*") < GRAM - 1)
    total = seen.total()
    return (total - len(seen)) / total if total else None


def copied(pages: Pages) -> float | None:
    """Share of the words that stand in a question of the checklist, three or more in a row. None without a checklist."""
    return repeated(pages, [item["ask"] for item in pages.items])


def _terms(text: str) -> set[str]:
    return content_words(fold(text)) | figures_in(text)


def _headings(pages: Pages) -> set[str]:
    return content_words(fold(" ".join(pages.asks.get("outline") or [])))


def _placed(text: str) -> list[tuple[int, str]]:
    """The content words and figures of a text with their places among all its words."""
    found = []
    for place, unit in enumerate(units(text)):
        for term in sorted(content_words(unit) or figures_in(unit)):
            found.append((place, term))
    return found
