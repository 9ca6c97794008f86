"""Answers that were cut off become decks of whole slides."""

import pytest
from decksmith.measure.decks.parser import Deck
from decksmith.train.training.trim_truncated import trim_truncated

HEAD = "---\ntheme: default\n---\n\n# A\n"


def answer(text, reason="length"):
    return {"id": "r", "gen": {"text": text, "finish_reason": reason}}


@pytest.mark.parametrize(
    "last", ["---\n\n# D\n\n- half a sen", "---\nlayout: two-cols\n---\n\n# D", "---\nlayout: tw"]
)
def test_the_unfinished_slide_goes_and_the_others_stay(last):
    text = HEAD + "\n---\n\n# B\n\n```\n---\n```\n\n---\nlayout: quote\n---\n\n# C\n\n" + last
    made = trim_truncated(answer(text))["gen"]
    assert made["finish_reason"] == "stop" and made["cut_back"] > 0
    assert [slide.title for slide in Deck.parse(made["text"]).slides] == ["A", "B", "C"]
    assert made["text"].endswith("# C\n") and text.startswith(made["text"].rstrip())


def test_what_has_ended_or_is_no_deck_is_left_alone():
    ended = answer(HEAD + "\n---\n\n# B\n\n---\n\n# C\n\n---\n\n# D", "stop")
    short = answer(HEAD + "\n---\n\n# B\n\n---\n\n# C and")
    prose = answer("I am a helpful " * 40)
    for record in (ended, short, prose, {"id": "r"}):
        assert trim_truncated(record) == record
