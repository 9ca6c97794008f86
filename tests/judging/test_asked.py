"""What is read out of requests, held against requests that people labelled: tests/judging/asked.jsonl and data/prompts.jsonl."""

import functools
import itertools
import json
import random
import sys
from collections import Counter
from pathlib import Path

import fuzz
import jsonschema
import pytest
from decksmith.core import cli
from decksmith.measure.decks import sources
from decksmith.measure.judging import asked, prompt_rows

pytestmark = pytest.mark.slow

LABELLED = [
    json.loads(line) for line in (Path(__file__).parent / "asked.jsonl").read_text().splitlines()
]
ROWS = [json.loads(line) for line in (cli.ROOT / "data/prompts.jsonl").read_text().splitlines()]
SCHEMA = json.loads((cli.ROOT / "assets/schemas/prompt.json").read_text())
ASKS = jsonschema.Draft202012Validator(SCHEMA["properties"]["asks"])


def values(asks, kind):
    """What is asked for of a kind, as a set: elements one by one, an outline as a whole."""
    found = asks.get(kind)
    if found is None:
        return set()
    return set(found) if kind == "features" else {tuple(found) if kind == "outline" else found}


read = functools.cache(asked.read)  # once for all kinds


def agreement(pairs, kind):
    """(precision, recall) of what is read, over (request, its asks)."""
    counts = Counter()
    for request, wanted in pairs:
        ours, theirs = values(read(request), kind), values(wanted, kind)
        counts += Counter(both=len(ours & theirs), ours=len(ours), theirs=len(theirs))
    return counts["both"] / counts["ours"], counts["both"] / counts["theirs"]


# Of all that is read, at least so much is right; of all that was asked for, at least so much is read.
@pytest.mark.parametrize(
    ("kind", "precision", "recall"),
    [
        ("slides", 1, 1),
        ("fewest", 1, 1),
        ("language", 1, 1),
        ("theme", 1, 1),
        ("features", 1, 1),
        ("outline", 1, 1),
        ("audience", 1, 0.9),
    ],
)
def test_requests_that_were_labelled_for_this_are_read(kind, precision, recall):
    found = agreement([(row["request"], row["asks"]) for row in LABELLED], kind)
    assert found[0] >= precision and found[1] >= recall, found


@pytest.mark.parametrize(
    ("kind", "precision", "recall"),
    [
        ("slides", 0.99, 0.9),
        ("language", 1, 0.98),
        ("theme", 1, 0.88),
        ("features", 0.98, 0.8),
        ("outline", 1, 0.75),
    ],
)
def test_the_hand_labelled_prompts_are_read_as_they_were_labelled(kind, precision, recall):
    found = agreement([(sources.request(row), row["asks"]) for row in ROWS], kind)
    assert found[0] >= precision and found[1] >= recall, found


def test_the_labels_are_of_many_languages_and_of_the_schema():
    assert len(LABELLED) >= 135
    assert len({row["asks"].get("language") for row in LABELLED}) >= 15
    for row in LABELLED:
        ASKS.validate(row["asks"])


@pytest.mark.parametrize(
    ("request_", "kind"),
    [
        ("No table, please: the deck is about tides.", "features"),
        ("Write it without any pictures, code or formulas.", "features"),
        ("Bitte keine Tabelle und kein Diagramm.", "features"),
        ("The slide 8 is wrong.", "slides"),
        ("20 slides of last year's deck are attached.", "slides"),
        ("One slide per chapter, please.", "slides"),
        ("About ten slides on rain.", "slides"),
        ("Three words a slide, and 2 pictures.", "slides"),
        ("Two slides on costs and three slides on people.", "slides"),
        ("The report was in German, the talk is in French.", "theme"),
        ("The default password is a risk.", "theme"),
        ("Not seriph, please.", "theme"),
        (
            "Remember:\n- the hall is dark\n- the hosts are tired\n- we have no microphone",
            "outline",
        ),
        ("Bakeries in German towns", "features"),
    ],
)
def test_what_is_not_asked_for_is_not_read(request_, kind):
    assert kind not in asked.read(request_)


def test_a_language_is_not_taken_from_what_the_deck_is_about():
    assert asked.read("Six slides on bakeries in German towns for the guild")["language"] == "en"
    assert asked.read("Sechs Folien über unseren Urlaub in Italien im Mai")["language"] == "de"
    assert "language" not in asked.read("The slides in German, the handout in French, please.")


def test_what_a_row_says_itself_always_wins():
    row = json.dumps({"request": "Six slides in German, with a table.", "asks": {"slides": 9}})
    assert prompt_rows.row(row)["asks"] == {"slides": 9, "language": "de", "features": ["table"]}
    own = {"slides": 9, "features": []}
    row = json.dumps({"request": "Six slides in German, with a table.", "asks": own})
    assert prompt_rows.row(row)["asks"] == own
    row = json.dumps({"request": "Five to seven slides on rain.", "asks": {"slides": 6}})
    assert prompt_rows.row(row)["asks"]["slides"] == 6
    assert "fewest" not in prompt_rows.row(row)["asks"]


def mutated(draw):
    """A labelled request with pieces cut out, doubled, swapped and spoilt."""
    letters = list(draw.choice(LABELLED)["request"])
    for _ in range(draw.randrange(1, 6)):
        at = draw.randrange(len(letters) + 1)
        end = min(len(letters), at + draw.randrange(12))
        piece = letters[at:end]
        noise = [
            chr(draw.choice([0, 10, 34, 40, 45, 58, 96, 0x301, 0x5D0, 0x202E, 0x4E00, 0x1F600]))
        ]
        letters[at:end] = draw.choice(
            [[], piece * 3, piece[::-1], noise, noise * 40, list("99999")]
        )
    return "".join(letters)


@pytest.mark.fuzz
def test_spoilt_requests_are_read_into_what_the_schema_takes():
    draw = random.Random(34)
    for _ in range(fuzz.times(2000)):
        request = mutated(draw)
        assert not list(ASKS.iter_errors(asked.read(request))), request


def steps(request):
    """How many lines of asked.py are run to read a request, and of how many characters its patterns are shown a text."""
    count = 0

    def trace(frame, event, _):
        nonlocal count
        if frame.f_code.co_filename != asked.__file__:
            return None
        count += event == "line"
        return trace

    sys.settrace(trace)
    try:
        asked.read(request)
    finally:
        sys.settrace(None)
    return count


PIECES = ["8 ", "no ", '"', "(", "8-", "Plan: A, ", "表", "\n"]


@pytest.mark.parametrize(
    "piece",
    [
        "a ",
        "8 slides, ",
        "- a\n",
        "9枚",
        *(pytest.param(p, marks=pytest.mark.long) for p in PIECES),
    ],
)
def test_a_request_of_a_megabyte_takes_no_more_steps_than_its_ends(piece):
    ends = (piece * asked.MOST)[: asked.MOST // 2]
    asked.read(ends)  # patterns are made once
    tail = (piece * (1_000_000 // len(piece)))[-asked.MOST // 2 :]
    assert steps(piece * (1_000_000 // len(piece))) == steps(f"{ends}\n{tail}"[: asked.MOST + 1])


def test_every_word_of_the_lists_is_found_as_it_is_written():
    for table in ("element", "audience", "language"):
        for word, key in asked._words(table).items():
            assert word and key, (table, word)
    for code, name in itertools.product(asked._lists()["slides"], ("slides", "colon", "others")):
        assert asked._pattern(name, code).pattern
