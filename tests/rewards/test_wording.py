"""What the words of a deck tell about whether somebody wrote it."""

import pytest
from decksmith.core.protocol import Protocol
from decksmith.measure.judging.rendered import Pages
from decksmith.train.rewards import wording

MEASURES = Protocol.load("offline").measures
REQUEST = (
    "Volunteers repaint the harbour lighthouse between April and August. "
    "The keeper Ingrid Solheim measures wind every morning with a brass anemometer. "
    "Scaffolding costs 4200 crowns and the northern paint another 1350 crowns. "
    "Visitors photograph puffins from a wooden platform behind the boathouse."
)
# Each slide is about one sentence of the request, in words of its own too.
WRITTEN = [
    "Repaint the harbour lighthouse\nVolunteers work in pairs, from April until August",
    "Wind decides\nIngrid Solheim, our keeper, reads a brass anemometer each morning",
    "What we pay\nScaffolding 4200 crowns, northern paint 1350 crowns",
    "Puffins\nVisitors photograph them on the wooden platform behind the boathouse",
]
# The same words, those of each sentence on all the slides.
DEALT = [
    "Ingrid crowns\nVolunteers paint 1350 behind the morning platform until brass",
    "Wind lighthouse\nScaffolding Solheim pairs with puffins in April",
    "What anemometer photograph\n4200 harbour boathouse keeper northern August",
    "Visitors repaint\nThe wooden reads each crowns of words",
]


def pages(texts, request=REQUEST, **more):
    xray = [{"slide": n, "text": text, "title": ""} for n, text in enumerate(texts, 1)]
    record = {
        "id": "p1",
        "messages": [{"role": "user", "content": request}],
        "render": {"xray": xray, "slides": [], "expected": len(xray)},
        **more,
    }
    return Pages(record, ".", MEASURES)


def test_what_is_said_together_stands_together_in_a_deck_that_somebody_wrote():
    assert wording.together(pages(WRITTEN)) > 0.8
    assert wording.together(pages(DEALT)) < 0.5


def test_neighbouring_words_stay_near_each_other_in_a_deck_that_somebody_wrote():
    assert wording.phrases(pages(WRITTEN)) > 0.7
    assert wording.phrases(pages(DEALT)) < 0.3


def test_words_of_the_asked_headings_say_nothing_about_that():
    heading = "Volunteers repaint the harbour lighthouse"
    asked = {"asks": {"outline": [heading]}}
    for measure in (wording.together, wording.phrases):
        assert measure(pages([heading, *DEALT], **asked)) == measure(pages(DEALT, **asked))
        assert measure(pages([heading, *DEALT])) > measure(pages(DEALT))


@pytest.mark.parametrize("measure", [wording.together, wording.phrases])
@pytest.mark.parametrize("texts", [[], [""], ["Puffins"], ["全部で四枚のスライド"]])
def test_little_to_compare_is_no_evidence(measure, texts):
    assert measure(pages(texts)) is None
    assert measure(pages(WRITTEN, request="Four slides, please")) is None


def test_sentences_of_one_mold_are_told_by_what_stands_around_the_words_of_the_request():
    words = ["wind", "harbour", "paint", "puffins", "keeper", "platform"]
    said = [f"Nobody should begin a good summer without {word} nor 12" for word in words]
    assert wording.molds(pages(said)) > 0.7
    assert wording.molds(pages(WRITTEN)) == 0
    assert wording.molds(pages(["Puffins"])) is None


def test_the_questions_of_the_checklist_are_told_where_they_are_copied():
    asks = ["A slide names the keeper and what she reads", "The two costs are given in crowns"]
    checklist = [{"id": f"c{n}", "ask": ask, "match": []} for n, ask in enumerate(asks)]
    assert wording.copied(pages(asks, checklist=checklist)) == 1
    assert wording.copied(pages(WRITTEN, checklist=checklist)) < 0.6
    assert wording.copied(pages([REQUEST[:60]])) > 0.9


def test_a_caption_under_another_title_is_the_same_caption():
    caption = "More about this will be said in the talk"
    shown = pages([f"{title}\n{caption} {n}" for n, title in enumerate(["In short", "The 2", "C"])])
    for page, title in zip(shown.xray.values(), ["In short", "The 2", "C"], strict=True):
        page["title"] = title
    assert wording.again(shown) == pytest.approx(2 / 3)
    assert wording.again(pages(WRITTEN)) == 0
    assert wording.again(pages(["Puffins"])) is None
