"""Figures and strangers' words as text."""

import unicodedata

from decksmith.measure.results import text


def test_what_a_stranger_wrote_cannot_speak_to_the_terminal():
    bad = "\x1b]0;owned\x07\x1b[31mred\x1b[0m\u202egnp.exe\u2066\r\x9b2J\x00end\u2028next"
    said = text.printable(bad, 80)
    assert said == "redgnp.exe 2Jend next"
    assert not any(unicodedata.category(c)[0] == "C" for c in said)
    assert text.printable("a b" * 50, 10) == "a ba ba.."
