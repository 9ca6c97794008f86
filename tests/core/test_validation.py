"""What whoever asks a server is told: one sentence that names the field and what to send."""

from typing import Literal

import pytest
from decksmith.core import cli, validation
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field


class Sauce(validation.Body):
    name: str = Field(default="", description="text")
    heat: int | None = Field(default=None, ge=0, le=5, description="a whole number from 0 to 5")


class Order(validation.Body):
    dish: str = Field(description="the name of a dish")
    guests: int = Field(default=1, ge=1, description="a whole number from 1")
    price: float | None = Field(default=None, ge=0, description="a number from 0")
    size: Literal["small", "large"] | None = Field(default=None, description="small or large")
    sauces: list[Sauce] = Field(default=[], description="a list of objects")
    usual: Sauce = Field(default=Sauce(), description="an object")
    words: dict[str, str] = Field(default={}, description="an object of texts")


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"", "dish is missing: the name of a dish"),
        (b"{", "the body is no JSON"),
        (b"[1]", "the body is no JSON object"),
        (b"null", "the body is no JSON object"),
        (b'{"dish": NaN}', "the body is no JSON"),
        (b"[" * 100_000, "the body is no JSON"),
        (b"\xff", "the body is no JSON"),
        (b'{"dish": 7}', "dish: '7' is not the name of a dish"),
        (b'{"dish": "a", "guests": true}', "guests: 'True' is not a whole number from 1"),
        (b'{"dish": "a", "guests": "2"}', "guests: '2' is not a whole number from 1"),
        (b'{"dish": "a", "guests": 1.5}', "guests: '1.5' is not a whole number from 1"),
        (b'{"dish": "a", "guests": 0}', "guests: '0' is not a whole number from 1"),
        (b'{"dish": "a", "price": -1}', "price: '-1' is not a number from 0"),
        (b'{"dish": "a", "size": "huge"}', "size: 'huge' is not small or large"),
        (b'{"dish": "a", "sauces": {}}', "sauces: '{}' is not a list of objects"),
        (
            b'{"dish": "a", "sauces": [{"heat": 9}]}',
            "sauces: 0: heat: '9' is not a whole number from 0 to 5",
        ),
        (
            b'{"dish": "a", "sauces": [{}, {"name": "red", "heat": 9}]}',
            "red: heat: '9' is not a whole number from 0 to 5",
        ),
        (
            b'{"dish": "a", "usual": {"heat": 9, "het": 1}}',
            "usual: unknown key 'het'; there are: name, heat",
        ),
        (b'{"dish": "a", "words": {"b": 1}}', "words: b: '1' is not text"),
        (
            b'{"z": 1, "dis": 2, "guests": 0}',
            "unknown key 'dis', 'z'; there are: dish, guests, price, size, sauces, usual, words",
        ),
    ],
)
def test_what_is_wrong_is_named_with_what_to_send(body, sentence):
    with pytest.raises(cli.BadData) as refused:
        validation.read(Order, body)
    assert str(refused.value) == sentence


def test_a_whole_number_may_have_a_point():
    assert validation.read(Order, b'{"dish": "a", "guests": 2.0, "price": 3}').guests == 2


WORDS = st.text("az0 \n\u00e9\ud800", max_size=3)  # the last one is half of a character
NAMES = st.sampled_from([*Order.model_fields, *Sauce.model_fields]) | WORDS
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | WORDS,
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(NAMES, inside, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(NAMES, VALUES, max_size=4))
def test_whatever_comes_is_taken_or_refused_in_one_line_that_is_not_long(body):
    try:
        validation.check(Order, body)
    except cli.BadData as refusal:
        assert 5 < len(str(refusal)) < 600
