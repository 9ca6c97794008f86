"""Other people's sets of judgements, on rows that we made in their forms."""

import json

import pytest
from decksmith.core import cli
from decksmith.study import forms, outside

RANKS = {
    "title": "t",
    "licence": "none",
    "file": "ranks.csv",
    "kind": "ranks",
    "columns": {"prompt": "topic", "rater": "who", "maker": "system", "value": "place"},
}
RATINGS = {
    **RANKS,
    "kind": "ratings",
    "columns": {**RANKS["columns"], "value": "score", "design": "looks"},
}


def test_the_pairs_of_evopresent_become_a_study(tmp_path):
    rows = [
        {
            "ref_image": f"r{n}.png",
            "ImageA": f"a{n}.png",
            "ImageB": f"b{n}.png",
            "result": "AB"[n % 2],
        }
        for n in range(8)
    ]
    (tmp_path / "compare_train.json").write_text(json.dumps(rows))
    form = forms.load("evopresent")
    path = forms.written(tmp_path / "study", "evopresent", form, forms.find(form, tmp_path))
    done = outside.take(tmp_path / "study", path, None)
    assert (done["votes"], done["raters"], done["prompts"]) == (8, 1, 8)
    assert forms.votes(form, tmp_path / "compare_train.json")[1]["choice"] == "right"


def test_a_ranking_is_a_vote_on_each_two(tmp_path):
    path = tmp_path / "ranks.csv"
    path.write_text(
        "topic,who,system,place\nq1,ada,x,1\nq1,ada,y,2\nq1,ada,z,2\nq1,bob,x,3\nq1,bob,y,1\n"
    )
    said = {
        (vote["rater"], vote["left"], vote["right"]): vote["choice"]
        for vote in forms.votes(RANKS, path)
    }
    assert said == {
        ("ada", "x", "y"): "left",
        ("ada", "x", "z"): "left",
        ("ada", "y", "z"): "tie",
        ("bob", "x", "y"): "right",
    }


def test_ratings_have_dimensions(tmp_path):
    path = tmp_path / "r.jsonl"
    rows = [("x", 4, 2), ("y", 3, 5)]
    path.write_text(
        "".join(
            json.dumps({"topic": "q1", "system": system, "score": score, "looks": looks}) + "\n"
            for system, score, looks in rows
        )
    )
    (vote,) = forms.votes(RATINGS, path)
    assert (vote["choice"], vote["design"], vote["rater"]) == ("left", "right", "everybody")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("topic,who,system,place\nq1,ada,x,first\n", r"row 1: place: 'first' is no number"),
        ("topic,who,system,place\nq1,ada,x,1\nq1,ada,x,2\n", "row 2: ada placed x twice for q1"),
        ("topic,who,place\nq1,ada,1\n", "row 1: no 'system', which is the maker"),
    ],
)
def test_a_bad_row_is_named_and_nothing_is_taken(tmp_path, text, message):
    (tmp_path / "ranks.csv").write_text(text)
    with pytest.raises(cli.BadData, match=message + r"(\n|.)*nothing was taken"):
        forms.votes(RANKS, tmp_path / "ranks.csv")


def test_a_bad_description_names_its_key(tmp_path):
    with pytest.raises(cli.BadConfig, match="no description .*; there are: evopresent"):
        forms.load("nobody")
    path = tmp_path / "mine.toml"
    path.write_text('title="t"\nlicence="l"\nfile="f"\nkind="pairs"\n[columns]\nprompt="p"\n')
    with pytest.raises(cli.BadConfig, match=r"mine\.toml: columns: 'left' is a required"):
        forms.load(str(path))
    with pytest.raises(cli.Missing, match="name the folder that has compare_train"):
        forms.find(forms.load("evopresent"), None)
