"""One slide of a deck, changed by a model: what it is asked, and its reply put into the deck.

Whatever the reply says, the other slides stay as they are; a reply that is no slide changes nothing.
"""

import json
import re
from typing import Any

from decksmith.decks import clean, prompts
from decksmith.decks.parser import Deck, Slide

# Of the first block: what belongs to the deck, which a change of its first slide leaves alone.
SETTINGS = ("theme", "themeConfig", "colorSchema", "lineNumbers", "mdc", "comark", "defaults")
_HEADING = re.compile(r"^(#{1,6} |<h[1-6]\b)", re.M)


class NoSlide(ValueError):
    """A reply that is not the slide that was asked for; the words say why."""


def messages(request: str, text: str, number: int, wish: str) -> list[dict[str, str]]:
    """What a model is asked for another slide `number` (from 1, of those shown) of the deck `text`,
    which it wrote for `request`."""
    user = (
        f"Change slide {number} of your deck, and no other: {wish}\n\n"
        f"Reply with the new slide {number} alone, in the same format: its frontmatter between "
        "lines of --- where it needs one, its content, and its notes. No other slide, no remark."
    )
    return [
        {"role": "system", "content": prompts.system()},
        {"role": "user", "content": request},
        {"role": "assistant", "content": text},
        {"role": "user", "content": user},
    ]


def changed(text: str, number: int, reply: str) -> str:
    """The deck `text` with slide `number` (from 1, of those shown) taken from a model's reply: the
    slide alone, or a whole deck of as many slides. Raises NoSlide."""
    deck = Deck.parse(text)
    old = deck.shown[number - 1]
    new = _slide(deck, old, number, clean.clean(reply)[0])
    made = _spliced(text, old, new)
    _check(deck, Deck.parse(made), old)
    return made


def _slide(deck: Deck, old: Slide, number: int, reply: str) -> Slide:
    """The slide that a reply means."""
    given = Deck.parse(reply).shown if reply.strip() else []
    if not given:
        raise NoSlide("the model's reply is empty")
    if len(given) not in (1, len(deck.shown)):
        raise NoSlide(f"the model's reply has {len(given)} slides and not slide {number} alone")
    new = given[0] if len(given) == 1 else given[number - 1]
    if new.frontmatter_error:
        raise NoSlide(
            f"the frontmatter of the model's reply is no YAML: {new.frontmatter_error[0]}"
        )
    is_slide = new.frontmatter or _HEADING.search(new.content)
    if not new.content.strip() or not (is_slide or not old.title):
        raise NoSlide("the model's reply is no slide: it has neither a heading nor a frontmatter")
    return new


def _spliced(text: str, old: Slide, new: Slide) -> str:
    lines = text.split("\n")
    before, after = lines[: old.start - 1], lines[old.end :]
    front: dict[str, Any] = new.frontmatter
    if old.no == 1:
        own = {key: value for key, value in front.items() if key not in SETTINGS}
        front = {**old.frontmatter, **own} if not old.frontmatter_error else own
    elif old.frontmatter_line is None:
        while before and not before[-1].strip():
            before.pop()
        before = before[:-1]  # the separator
    block = [f"{json.dumps(key)}: {json.dumps(value, default=str)}" for key, value in front.items()]
    opening = ["---", *block, "---"] if block else ["---"] if old.no > 1 else []
    note = ["", f"<!--\n{new.note}\n-->"] if new.note else []
    return "\n".join([*before, *opening, "", new.content.strip("\n"), *note, "", *after])


def _check(was: Deck, made: Deck, old: Slide) -> None:
    """Raises NoSlide where a slide other than `old` is not what it was."""
    if len(made.slides) != len(was.slides):
        raise NoSlide("the model's reply would change the number of slides")
    for slide, again in zip(was.slides, made.slides, strict=True):
        same = (slide.content, slide.note, slide.frontmatter, slide.hidden) == (
            again.content,
            again.note,
            again.frontmatter,
            again.hidden,
        )
        if slide.no != old.no and not same:
            raise NoSlide(f"the model's reply would change slide {slide.no} as well")
