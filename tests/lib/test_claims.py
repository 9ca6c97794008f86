"""What run-compare says, and that nothing else says it."""
import ast
import itertools
import json
import random
import re
import sys
from pathlib import Path

import pytest
from decksmith import claims, cli
from decksmith.runs import load

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "web"))
import synthetic  # noqa: E402


def record(ident, model, overall, judge_only=None, fault=None, finish="stop"):
    model_fault = fault == "model"
    if fault:
        overall = 1 if model_fault else None
    judge_only = overall if judge_only is None else judge_only
    row = synthetic.prompt(int(ident))
    return {**row, "id": f"p{ident}", "gen": {"text": "x", "finish_reason": finish, "model": {"name": model, "slug": model, "params": {}},
                                              "usage": {}, "sampling": {}},
            "render": {"status": "failed" if model_fault else "ok"}, "judge": {"judge": "offline-v1", "usage": {}},
            "score": {"overall": overall, "judge_only": judge_only, "checklist": None, "dimensions": {}, "rendered": not model_fault,
                      "floored": model_fault, "fault": fault and {"stage": "render", "kind": fault, "class": "x", "message": "x"}}}


@pytest.fixture
def runs(tmp_path):
    """Write runs from `{model: [overall or fault, ..]}` and load them."""
    def write(**models):
        for name, values in models.items():
            records = [record(str(n), name, **(value if isinstance(value, dict) else {"overall": value})) for n, value in enumerate(values)]
            synthetic.write(tmp_path / name, records)
        return load([tmp_path / name for name in models])
    return write


def said(runs):
    return claims.compare(runs)["headlines"]


STEPS = [0.1 * n for n in range(-5, 6)]


def test_a_difference_that_the_test_finds_is_said_with_its_interval(runs):
    base = [3 + step for step in STEPS * 3]
    better = [value + 0.33 + wobble for value, wobble in zip(base, itertools.cycle([0.3, -0.3, 0.0]))]
    assert said(runs(a=better, b=base)) == ["a beats b by 0.33 [0.24, 0.42]"]
    assert said(runs(a=base, b=better)) == ["b beats a by 0.33 [0.24, 0.42]"]


def test_a_difference_that_it_does_not_find_says_how_many_prompts_would(runs):
    dice = random.Random(1)
    a, b = ([dice.gauss(3.4 + more, 0.6) for _ in range(30)] for more in (0.07, 0))
    sentence, = said(runs(a=a, b=b))
    assert re.fullmatch(r"a is not separated from b \(difference -?0\.\d\d \[-0\.\d\d, 0\.\d\d\]; about [\d,]+ prompts would be needed\)", sentence)


def test_equal_runs_are_not_separated_and_no_number_of_prompts_is_promised(runs):
    assert said(runs(a=[3.0] * 12, b=[3.0] * 12)) == ["a is not separated from b (difference 0.00 [0.00, 0.00])"]


def test_five_prompts_are_too_few_for_anything(runs):
    assert said(runs(a=[4.0] * 5, b=[2.0] * 5)) == ["a and b: inconclusive (5 shared prompts, at least 6 are needed; difference 2.00)"]


def test_what_one_pair_shows_alone_may_not_survive_the_family(runs):
    dice = random.Random(11)
    base = [dice.gauss(3, 0.5) for _ in range(24)]
    shift = [0.22 + dice.gauss(0, 0.42) for _ in base]
    pair = runs(a=[value + more for value, more in zip(base, shift, strict=True)], b=base)
    others = {name: [value + dice.gauss(0, 0.42) for value in base] for name in "cdef"}
    alone = said(pair)[0]
    among = said(runs(a=[value + more for value, more in zip(base, shift, strict=True)], b=base, **others))[0]
    assert alone.startswith("a beats b by ")
    assert re.fullmatch(r"a and b: inconclusive \(difference 0\.\d\d \[0\.\d\d, 0\.\d\d\], but p = 0\.\d{3} corrected over 15 comparisons\)", among)


def lost(n, value=3.0):
    return [{"overall": value, "fault": "judge"}] * n


def test_faults_that_are_not_the_model_s_are_never_floored_but_may_undo_a_claim(runs):
    base = [3.0 + step for step in STEPS * 10]
    better = [value + 0.12 + wobble for value, wobble in zip(base, itertools.cycle([0.2, -0.2]))]
    loaded = runs(a=better[:-1] + lost(1), b=base)  # 1 of 110, less than a hundredth
    pair = next(pair for pair in claims.compare(loaded)["pairs"] if (pair["accounting"], pair["measure"]) == claims.HEADLINE)
    assert pair["verdict"] == "beats" and pair["difference"]["n"] == 109
    assert pair["bounds"]["least"] < pair["difference"]["mean"] < pair["bounds"]["most"]

    small = [value + 0.025 + wobble for value, wobble in zip(base, itertools.cycle([0.1, -0.1]))]
    assert said(runs(a=small[:-1] + lost(1), b=base))[0]== (
        "a and b: inconclusive (difference 0.03 [0.01, 0.04], but the excluded decks leave it between 0.00 and 0.04)")


@pytest.mark.parametrize("values, reason", [
    (lost(2) + [3.0] * 98, "a: 2 of 100 decks have no score (judge faults 2; at most 1 % may); `make baseline MODEL=a` does these again and nothing else"),
    ([{"overall": 3.0, "fault": "infra"}] * 2 + [3.0] * 98,
     "a: 2 of 100 decks have no score (infra faults 2; at most 1 % may); `make baseline MODEL=a` does these again and nothing else"),
])
def test_a_run_that_lost_decks_carries_no_headline_and_the_remedy_is_said(runs, values, reason):
    compared = claims.compare(runs(a=values, b=[2.0] * 100))
    assert (compared["refused"], compared["headlines"], compared["ranks"]) == ([reason], [], None)


def test_a_run_that_was_cut_off_carries_no_headline_under_a_protocol_that_says_so(runs):
    cut = [{"overall": 3.0, "finish": "length"}] * 2 + [3.0] * 18
    loaded = runs(a=cut, b=[2.0] * 20)
    assert claims.refused(loaded) == []  # the offline protocol lets the embedded model write until it is stopped
    loaded[0]["protocol"]["claim"] = {"excluded": 0.01, "truncated": 0.05}
    assert claims.refused(loaded) == ["a: 2 of 20 replies were cut off at the token limit (at most 5 % may); raise max_tokens in the protocol's sampling"]


def test_a_headline_that_hangs_on_the_scan_says_so(runs):
    stuffed = [{"overall": 3.5 + step, "judge_only": 3 + step} for step in STEPS * 2]
    honest = [{"overall": 3.0 + step, "judge_only": 3 + step} for step in STEPS * 2]
    assert said(runs(a=stuffed, b=honest)) == ["a beats b by 0.50 [0.50, 0.50]; without VisCraft the two are not separated (0.00)"]


def test_a_headline_that_the_judge_contradicts_says_so(runs):
    stuffed = [{"overall": 3.5 + step, "judge_only": 2 + step} for step in STEPS * 2]
    honest = [{"overall": 3.0 + step, "judge_only": 3 + step} for step in STEPS * 2]
    assert said(runs(a=stuffed, b=honest)) == ["a beats b by 0.50 [0.50, 0.50]; without VisCraft the difference turns round (-1.00)"]


def test_ranks_are_the_ranges_that_the_pairs_leave_open(runs):
    base = [3 + step for step in STEPS * 2]
    compared = claims.compare(runs(a=[value + 1 for value in base], b=base, c=[value + wobble for value, wobble in zip(
        base, itertools.cycle([0.2, -0.2]))]))
    assert compared["ranks"] == {"a": [1, 1], "b": [2, 3], "c": [2, 3]}
    assert claims.ranked(compared) == "Ranks left open by the tests: a 1; b 2 to 3; c 2 to 3"


def test_the_accountings_count_what_they_say(runs):
    # Prompt 0: a failed; prompt 1: b failed; the other six both rendered.
    loaded = runs(a=[{"overall": 1, "fault": "model"}, 4.0] + [4.0] * 6, b=[2.0, {"overall": 1, "fault": "model"}] + [3.0] * 6)
    found = {pair["accounting"]: pair["difference"] for pair in claims.compare(loaded)["pairs"] if pair["measure"] == "overall"}
    assert {accounting: (difference["n"], difference["mean"]) for accounting, difference in found.items()} == {
        "floor": (8, (-1 + 3 + 6) / 8), "renderable": (6, round(4.0 - 20 / 7, 4)), "scored": (6, 1.0)}


def test_several_samples_of_a_prompt_are_one_prompt(tmp_path):
    for name, more in (("a", 0.5), ("b", 0.0)):
        records = []
        for n, k in itertools.product(range(8), range(4)):
            one = record(str(n), name, 3 + more + 0.1 * k)
            records.append({**one, "id": f"p{n}~{k}", "gen": {**one["gen"], "sample": {"of": f"p{n}", "k": k}}})
        synthetic.write(tmp_path / name, records)
    pair = next(pair for pair in claims.compare(load([tmp_path / "a", tmp_path / "b"]))["pairs"] if pair["measure"] == "overall")
    assert (pair["difference"]["n"], pair["difference"]["mean"], pair["difference"]["p"]) == (8, 0.5, round(2 / 256, 6))


# Scores of other tools

def rows(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def other(model, ident, design=3.0, content=3.0, **more):
    return {"model": model, "id": ident, "scores": {"design": design, "content": content}, "rendered": True, "error_kind": None, **more}


def test_scores_of_another_tool_are_compared_by_the_same_rules(tmp_path):
    path = rows(tmp_path / "theirs.jsonl", *(other(model, f"p{n}", design) for n in range(10) for model, design in (("x", 4.0), ("y", 3.0))),
                other("x", "p10", None, None, rendered=False), other("y", "p10"),
                other("x", "p11", None, error_kind="judge"), other("y", "p11"))
    compared = claims.compare(load([path]))
    pair = next(pair for pair in compared["pairs"] if (pair["accounting"], pair["measure"]) == claims.HEADLINE)
    assert (pair["difference"]["n"], pair["difference"]["mean"]) == (11, round((10 * 0.5 - 2) / 11, 4))
    assert compared["refused"] == ["x: 1 of 12 decks have no score (judge faults 1; at most 1 % may); have these scored again"]
    assert compared["caption"] == "Scores as theirs.jsonl gives them"
    assert [run["label"] for run in compared["runs"]] == ["x", "y"] and "craft" not in compared["runs"][0]["means"]["floor"]


@pytest.mark.parametrize("change, words", [
    ({"rendered": "yes"}, 'a row of scores needs "model" (a name), "rendered" (true or false) and "scores" (an object)'),
    ({"error_kind": "bad"}, 'error_kind is "bad"; it is null or one of model, renderer, judge, infra'),
    ({"scores": {"design": 3}}, "scores for design, and for content, design in the first row"),
    ({"scores": {"design": 3, "content": 7}}, "scores.content is 7; it is a number from 1 to 5, or null"),
])
def test_a_bad_row_of_scores_is_named(tmp_path, change, words):
    with pytest.raises(cli.BadData) as refusal:
        load([rows(tmp_path / "t.jsonl", other("x", "p0"), {**other("x", "p1"), **change})])
    assert str(refusal.value) == f"{tmp_path}/t.jsonl:2: p1: {words}"


def test_a_run_and_the_scores_of_another_tool_never_share_a_table(runs, tmp_path):
    loaded = runs(a=[3.0] * 6)
    with pytest.raises(cli.BadData, match="one is a run and one a file of scores of another tool"):
        load([loaded[0]["path"], rows(tmp_path / "t.jsonl", other("x", "p0"))])


# The rule

def test_no_other_code_prints_a_ranking_or_a_winner():
    """Sentences that separate models are strings of claims.py; a string elsewhere with such a word is a second path."""
    words = re.compile(r"\b(beats?|outperforms?|better than|worse than|wins? against|winner|ranked|1st|first place|best model|leaderboard)\b", re.I)
    offenders = []
    scripts = [path for path in (cli.ROOT / "bin").iterdir() if "python3" in path.read_text().partition("\n")[0]]
    for path in [*(cli.ROOT / "lib/decksmith").glob("*.py"), *scripts]:
        if path.name == "claims.py":
            continue
        tree = ast.parse(path.read_text())
        docs = {id(node.body[0].value) for node in ast.walk(tree) if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef)
                and node.body and isinstance(node.body[0], ast.Expr)}
        offenders += [f"{path.name}:{node.lineno}: {node.value!r}" for node in ast.walk(tree) if isinstance(node, ast.Constant)
                      and isinstance(node.value, str) and node.value != "beats" and id(node) not in docs and words.search(node.value)]
    for path in (cli.ROOT / "assets/web").glob("report.*"):
        offenders += [f"{path.name}: {found[0]}" for found in words.finditer(path.read_text()) if found[0].lower() not in ("beats", "ranked")]
    assert offenders == []
