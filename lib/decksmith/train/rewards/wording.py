"""What the words of a deck tell about whether somebody wrote it: measures of a Pages that the offline judge does not have.

Filler with the words of the request in it has all of them, but anywhere. Who answers a request keeps together what belongs
together there: the words of a sentence stand on one slide, and those of a phrase side by side.
"""

import itertools
import re
from collections import Counter

from decksmith.measure.decks.words import content_words, fold, length, likeliest_language
from decksmith.measure.judging.offline import figures_in, repeated, units
from decksmith.measure.judging.rendered import Pages

PAIRS = 8  # of words that a sentence joins, and of others, from which shares are compared
PHRASES = 5  # from so many phrases on their share is one
APART, REACH = (
    3,
    2,
)  # the second word of a phrase is so many words on, in the request and on a slide
BODY = 4  # words below a slide's title, on average, that are text of their own
PLACES, ORDERED = 15, 20  # terms with one place, and pairs of them, from which an order is one
GRAM = 4  # words
SENTENCES = re.compile(r"(?<=[.!?;:])\s+|\n|[。！？；]")
CLAUSES = re.compile(r"[.!?;:,()\n。！？；]")


def together(pages: Pages) -> float | None:
    """How much likelier two words of the request stand on one slide where one sentence of the request has both: 0.5 as
    likely as words of different sentences, 1 only those. Words of the asked headings, and those on more than a third of
    the slides, are left out. None for a request, or a deck, with few words to compare.
    """
    slides = [_terms(text) - _headings(pages) for text in _bodies(pages)]
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
    """Share of the request's pairs of neighbouring words, both of which the deck has, that stand
    near each other on some slide. None where the deck has few of them."""
    headings, asked = _headings(pages), set()
    for clause in CLAUSES.split(pages.request):
        placed = _placed(clause)
        for (i, one), (j, other) in itertools.pairwise(placed):
            if j - i <= APART and one != other and not {one, other} <= headings:
                asked.add(frozenset((one, other)))
    slides = [_placed(text) for text in _bodies(pages)]
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


def taken(pages: Pages) -> float | None:
    """Share of the request's content words, beside the asked headings, that the slides take up below their titles. None where
    the request has few, or is in another language than the deck shall be."""
    asked = content_words(fold(pages.request)) - _headings(pages)
    spoken = likeliest_language(pages.request)
    wanted = (pages.asks.get("language") or "").split("-")[0]
    if len(asked) < PAIRS or (spoken and wanted and spoken != wanted):
        return None
    return len(asked & content_words(" ".join(_bodies(pages)))) / len(asked)


def sequence(pages: Pages) -> float | None:
    """Whether what the request names once comes in its order, by the slides that alone have it: Kendall's tau, -1 to 1.
    None where few words have one place in both."""
    slides = [_terms(text) for text in pages.texts.values()]
    times = Counter(term for slide in slides for term in slide)
    where = {term: at for at, slide in enumerate(slides) for term in slide if times[term] == 1}
    words = [term for word in pages.request.split() for term in sorted(_terms(word))]
    once = [term for term in words if words.count(term) == 1 and term in where]
    steps = [
        where[b] - where[a] for a, b in itertools.combinations(once, 2) if where[a] != where[b]
    ]
    if len(once) < PLACES or len(steps) < ORDERED:
        return None
    return sum(1 if step > 0 else -1 for step in steps) / len(steps)


def own(pages: Pages) -> float | None:
    """Content words that the request does not have, for each word of the deck. None for a deck without words."""
    words = sum(pages.words.values())
    said: set[str] = set().union(*pages.tokens.values())
    return len(said - content_words(fold(pages.request))) / words if words else None


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
    """Share of the words that stand in the request, or in a question of the checklist, three or more in a row."""
    return repeated(pages, [pages.request, *(item["ask"] for item in pages.items)])


def again(pages: Pages) -> float | None:
    """Share of the slides with text below their titles that an earlier slide has too, but for a word and the digits. None
    without text."""
    seen: list[list[str]] = []
    found = 0
    for text in _bodies(pages):
        words = sorted("".join(c for c in word if not c.isdigit()) for word in units(text))
        if len(words) >= BODY:
            found += words in seen
            seen.append(words)
    return found / len(seen) if seen else None


def _bodies(pages: Pages) -> list[str]:
    """The text of each slide below its title; all of it in a deck that says next to nothing there. Words of the request
    cost nothing in titles."""
    titles, texts = pages.titles(), pages.texts
    found = [text.replace(titles[n], " ", 1) if titles[n] else text for n, text in texts.items()]
    return found if sum(map(length, found)) >= BODY * len(found) else [*texts.values()]


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
