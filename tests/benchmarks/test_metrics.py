"""Metrics against tables worked out by hand."""

import json

import pytest
from decksmith.bench.benchmarks import metrics
from decksmith.core import cli

# n = 4 samples, c right: pass@k = 1 - C(4-c, k) / C(4, k). C(4,1..4) = 4, 6, 4, 1.
PASS = {
    0: [0, 0, 0, 0],
    1: [1 / 4, 1 / 2, 3 / 4, 1],
    2: [1 / 2, 5 / 6, 1, 1],
    3: [3 / 4, 1, 1, 1],
    4: [1, 1, 1, 1],
}


@pytest.mark.parametrize("c, row", PASS.items())
def test_pass_at_k_agrees_with_the_table(c, row):
    scores = [1.0] * c + [0.0] * (4 - c)
    assert [metrics.pass_at(scores, k) for k in (1, 2, 3, 4)] == pytest.approx(row)
    assert metrics.pass_at(scores, 5) is None


def test_pass_at_k_of_partial_scores_is_the_best_of_the_first_k():
    assert [metrics.pass_at([0.5, 0.25, 1.0], k) for k in (1, 2, 3)] == [0.5, 0.5, 1.0]


@pytest.mark.parametrize(
    "samples, k, score",
    [
        ([("a", 1), ("b", 0), ("a", 1)], 3, 1),  # a 2, b 1
        ([("a", 1), ("b", 0), ("b", 0)], 3, 0),  # b 2, a 1
        ([("a", 1), ("b", 0), ("b", 0)], 2, 1 / 2),  # a 1, b 1: tied
        ([("a", 1), ("b", 0), ("c", 0)], 3, 1 / 3),  # three tied
        ([(None, 0), (None, 0), ("a", 1)], 3, 1),  # no answer has no vote
        ([(None, 0), (None, 0), ("a", 1)], 2, 0),  # nobody voted
        ([("a", 1), ("a", 1), ("b", 0), ("b", 0), ("c", 0)], 5, 1 / 2),
    ],
)
def test_majority_agrees_with_the_table_and_ties_are_averaged(samples, k, score):
    assert metrics.majority(samples, k) == pytest.approx(score)


def test_majority_needs_k_samples():
    assert metrics.majority([("a", 1)], 2) is None


def test_the_k_are_powers_of_two_and_n():
    assert [metrics.ks(n) for n in (1, 2, 6, 8)] == [[1], [1, 2], [1, 2, 4, 6], [1, 2, 4, 8]]


def row(question, k, score, answer="x", verdict=None, n=2, bench="arithmetic", subset=None, **gen):
    verdict = verdict or ("right" if score == 1 else "wrong")
    grade = (
        {"error": {"kind": "judge", "class": "grader-timeout", "message": "m"}}
        if score is None
        else {
            "verdict": verdict,
            "score": score,
            "answer": answer,
            "truncated": False,
            "detail": {},
        }
    )
    return {
        "id": f"{question}~{k}",
        "task": {"bench": bench, "fields": {}, "expected": "1", "subset": subset, "revision": "r"},
        "messages": [{"role": "user", "content": question}],
        "grade": grade,
        "gen": {
            "text": "t",
            "finish_reason": "stop",
            "model": {"name": "m"},
            "sampling": {"max_tokens": 5},
            "sample": {"of": question, "k": k},
            "usage": {"prompt_tokens": 3, "completion_tokens": 10, "cost": 0.25},
            "by": {"at": f"2026-01-01T00:00:0{k}+00:00", "took": 2.0},
            **gen,
        },
    }


def summary(rows, **options):
    """The summary of whole rows; that of lean ones, which bench-summarize reads, is the same."""
    rows = list(rows)
    whole, lean = (
        metrics.summarize(metrics.read(enumerate(rows, 1), lean)["arithmetic"], **options)
        for lean in (False, True)
    )
    assert whole == lean
    return whole


def test_a_lean_row_holds_nothing_of_its_question_and_reply():
    whole = row("q1", 0, 1.0) | {"tools": {"error": {"kind": "infra", "class": "c", "message": ""}}}
    whole["gen"]["text"] = whole["task"]["fields"]["problem"] = "long " * 1000
    (kept,) = metrics.read([(1, whole)], lean=True)["arithmetic"]["q1"]
    assert len(json.dumps(kept)) < 800
    assert (
        metrics.fault_of(kept)
        == metrics.fault_of(whole)
        == {**whole["tools"]["error"], "stage": "tools"}
    )


def test_a_whole_summary_agrees_with_the_hand():
    # Question means: q1 1, q2 1/2, q3 0, q4 1/2. Mean 1/2; sd = sqrt((.25 + 0 + .25 + 0) / 3); std err = sd / 2 = 0.2041.
    # Runs: first samples 1 1 0 0 = 1/2, second 1 0 0 1 = 1/2.
    rows = [
        row("q1", 0, 1.0, "1"),
        row("q1", 1, 1.0, "1"),
        row("q2", 0, 1.0, "1"),
        row("q2", 1, 0.0, "2", finish_reason="length"),
        row("q3", 0, 0.0, None, "no_answer"),
        row("q3", 1, 0.0, None, "no_answer"),
        row("q4", 0, 0.0, None, "no_answer"),
        row("q4", 1, 1.0, "1"),
    ]
    found = summary(rows, of=10)
    assert {
        key: found[key]
        for key in ("num_questions", "rows", "samples", "coverage", "truncated", "cost", "tokens")
    } == {
        "num_questions": 4,
        "rows": 10,
        "samples": 2,
        "coverage": 1.0,
        "truncated": 0.125,
        "cost": 2.0,
        "tokens": {"prompt": 24, "completion": 80},
    }
    mean = found["modes"]["pass@1[avg-of-2]"]
    assert (
        mean["symbolic_correct"],
        mean["std_err"],
        mean["no_answer"],
        mean["avg_tokens"],
        mean["gen_seconds"],
    ) == (0.5, 0.2041, 0.375, 10, 3)
    # pass@2: q1 1, q2 1, q3 0, q4 1. majority@2: q1 1, q2 tie 1/2, q3 0, q4 1 (the only vote).
    assert [
        found["modes"][mode]["symbolic_correct"] for mode in ("pass@1", "pass@2", "majority@2")
    ] == [0.5, 0.75, 0.625]
    assert found["modes"]["majority@2"]["no_answer"] == 0.25


def test_pass_at_k_never_falls_with_k_and_pass_at_1_is_the_mean():
    rows = [row(f"q{q}", k, float((q * 7 + k * 3) % 5 < 2)) for q in range(12) for k in range(8)]
    modes = summary(rows)["modes"]
    values = [modes[f"pass@{k}"]["symbolic_correct"] for k in (1, 2, 4, 8)]
    assert values == sorted(values) and values[0] == modes["pass@1[avg-of-8]"]["symbolic_correct"]
    assert all(0 <= mode["no_answer"] <= 1 for mode in modes.values())


def test_an_error_is_no_wrong_answer_and_lowers_the_coverage():
    found = summary([row("q1", 0, 1.0), row("q1", 1, None), row("q2", 0, 1.0), row("q2", 1, 1.0)])
    assert (found["coverage"], found["errors"]["n"], found["errors"]["classes"][0]["class"]) == (
        0.75,
        1,
        "grader-timeout",
    )
    assert found["modes"]["pass@1[avg-of-2]"]["symbolic_correct"] == 1.0
    assert found["modes"]["pass@2"]["scored"] == 1


def test_a_question_that_the_model_s_own_limits_left_without_a_reply_counts_as_wrong():
    rows = [row("1", 0, 1.0, n=1), row("2", 0, 1.0, n=1)]
    del rows[1]["grade"]
    rows[1]["gen"] = {
        "error": {"kind": "model", "class": "context-overflow", "message": "too long"}
    }
    found = summary(rows)
    mode = found["modes"]["pass@1"]
    assert (mode[found["metric"]], mode["no_answer"], found["coverage"], found["errors"]["n"]) == (
        0.5,
        0.5,
        1.0,
        0,
    )
    rows[1]["gen"]["error"]["kind"] = "infra"
    found = summary(rows)
    assert (found["modes"]["pass@1"][found["metric"]], found["coverage"], found["errors"]["n"]) == (
        1.0,
        0.5,
        1,
    )


def test_one_sample_has_one_mode_and_subsets_have_their_own():
    rows = [{**row(f"q{i}", 0, float(i % 2), subset="ab"[i // 2]), "id": f"q{i}"} for i in range(4)]
    found = summary(rows)
    assert list(found["modes"]) == ["pass@1"] and list(found["subsets"]) == ["a", "b"]
    assert found["subsets"]["a"]["pass@1"]["num_entries"] == 2


def by_judge(name, k):
    found = row("q1", k, 1.0)
    found["grade"]["detail"]["judge"] = name
    return found


@pytest.mark.parametrize(
    "rows, stop, said",
    [
        (
            [row("q1", 0, 1.0), row("q1", 1, 1.0), row("q2", 0, 1.0)],
            cli.TryAgain,
            "of 1: q2 .1 of 2.;",
        ),
        ([row("q1", 0, 1.0), row("q1", 0, 1.0)], cli.BadData, "came before"),
        ([{"id": "a", "task": {"bench": "arithmetic"}}], cli.BadData, "bench-grade writes it"),
        (
            [row("q1", 0, 1.0), row("q1", 1, 1.0, sampling={"max_tokens": 9})],
            cli.BadData,
            "records before it",
        ),
        (
            [by_judge("one", 0), by_judge("two", 1)],
            cli.BadData,
            "judged by two, but records before it by one",
        ),
        ([], cli.BadData, "no records"),
    ],
)
def test_what_does_not_belong_together_is_refused_by_name(rows, stop, said):
    with pytest.raises(stop, match=said):
        metrics.read(enumerate(rows, 1))


def sides(ours, base, n=30):
    return tuple(
        {
            "arithmetic": metrics.read(
                enumerate(
                    [{**row(f"q{i}", 0, float(i % 10 < share)), "id": f"q{i}"} for i in range(n)], 1
                )
            )["arithmetic"]
        }
        for share in (ours, base)
    )


@pytest.mark.parametrize(
    "ours, base, verdict, said",
    [
        (3, 8, "worse", "arithmetic: tuned is worse than base, by 0.50 [0."),
        (8, 3, "better", "arithmetic: tuned beats base by 0.50 ["),
        # The two differ nowhere: counted as two in 32; the interval allows for more than a t test's 1,230 questions.
        (
            5,
            5,
            "cannot tell",
            "cannot tell whether tuned lost more than 0.02 against base (difference 0.00 [-0.14, 0.14] on 30 questions); if it is as seen, about 1,3",
        ),
    ],
)
def test_two_models_are_compared_question_by_question(ours, base, verdict, said):
    from decksmith.measure.results import regressions

    (entry,) = metrics.compare(*sides(ours, base))
    found, sentence = regressions.benchmark("tuned", "base", entry)
    assert found == verdict and said in sentence


def test_games_in_pairs_have_their_rate_of_flips_and_cost_of_the_judge():
    rows = [
        row(f"q{i}", 0, score, None, "wrong", bench="arena-hard-v2")
        for i, score in enumerate((0.5, 1.0, 0.25, 0.0))
    ]
    for i, each in enumerate(rows):
        each["grade"]["detail"] = {"judge": "j", "flipped": i == 0, "usage": {"cost": 0.5}}
    found = metrics.summarize(metrics.read(enumerate(rows, 1))["arena-hard-v2"])
    assert (
        found["position_flips"],
        found["judge"],
        found["cost"],
        found["modes"]["pass@1"]["judge_score"],
    ) == (0.25, "j", 3.0, 0.4375)


def test_a_loss_is_ruled_out_up_to_the_margin_and_no_further():
    from decksmith.measure.results import regressions

    for margin, verdict in ((0.1, "cannot tell"), (0.15, "holds")):
        (entry,) = metrics.compare(*sides(5, 5), margin)
        assert regressions.benchmark("tuned", "base", entry)[0] == verdict
    assert regressions.benchmark("tuned", "base", entry)[1].endswith(
        "(difference 0.00 [-0.14, 0.14]); a loss of more than 0.141 is ruled out"
    )


def side(scores):
    rows = [{**row(f"q{i}", 0, float(score)), "id": f"q{i}"} for i, score in enumerate(scores)]
    return {"arithmetic": metrics.read(enumerate(rows, 1))["arithmetic"]}


@pytest.mark.parametrize(
    "ours, base, outcome",
    [
        ([1] * 5 + [0] * 3, [1] * 8, "open"),  # 0.625 against 1.000 on 8 questions
        ([1] * 30, [1] * 29 + [0], "open"),  # one win and 29 ties
        ([0] * 10 + [1] * 20, [1] * 30, "fail"),  # a loss that is shown
        (
            [1] * 400,
            [1] * 400,
            "pass",
        ),  # of 400 equal questions, no more than 1.1 % can differ unseen
        ([1] * 4, [1] * 4, "open"),
    ],
)
def test_the_gate_passes_only_what_is_shown(ours, base, outcome):
    from decksmith.measure.results import regressions

    (entry,) = compared = metrics.compare(side(ours), side(base))
    entry["verdict"], entry["sentence"] = regressions.benchmark("tuned", "base", entry)
    said, found = regressions.summary("tuned", "base", compared)
    assert found == outcome and "0.00 is ruled out" not in entry["sentence"]
    # A loss beyond the margin, if it is as seen, is ruled out by no number of questions.
    lost = sum(base) - sum(ours) > 0.02 * len(ours)
    assert ("questions would tell" in said) == (outcome == "open" and not lost)
    assert ("no number of questions" in entry["sentence"]) == (outcome == "open" and lost)


def test_about_as_many_questions_as_are_said_to_be_needed_rule_the_loss_out():
    import numpy
    from decksmith.measure.results import stats

    random = numpy.random.default_rng(7)
    gaps = random.choice([-1.0, 0.0, 1.0], size=200, p=[0.1, 0.8, 0.1])
    ours, base = (list(numpy.maximum(side, 0.0)) for side in (gaps, -gaps))
    n = metrics.gap(ours, base, 0.1)[1]
    assert 100 < n < 300
    drawn = random.choice([-1.0, 0.0, 1.0], size=(n, 300), p=[0.1, 0.8, 0.1])
    found = stats.differences(
        numpy.maximum(drawn, 0.0), numpy.maximum(-drawn, 0.0), (0, 1), strict=True
    )
    assert 0.65 < (found["lo"] > -0.1).mean() < 0.95


def test_what_was_not_asked_alike_or_not_graded_is_not_compared():
    ours, base = sides(3, 8)
    other = json.loads(json.dumps(base))
    other["arithmetic"]["q1"][0]["messages"][0]["content"] = "in other words"
    assert "prompts" in metrics.compare(ours, other)[0]["refused"]
    lost = json.loads(json.dumps(base))
    for i in range(3):
        lost["arithmetic"][f"q{i}"][0]["grade"] = {
            "error": {"kind": "infra", "class": "x", "message": "m"}
        }
    assert "only 90.0 %" in metrics.compare(ours, lost)[0]["refused"]
    del other["arithmetic"]["q1"]
    assert "different questions" in metrics.compare(ours, other)[0]["refused"]


def test_equal_values_on_all_questions_leave_an_interval_that_knows_their_number():
    # At least that of Clopper and Pearson: 1 - 0.025 ** (1 / 30) = 0.1157.
    found = metrics.compare(*sides(0, 0))[0]
    assert (found["difference"]["lo"], found["difference"]["hi"]) == (-0.1407, 0.1407)
    assert found["ours"]["modes"]["pass@1"]["interval"] == [0.0, 0.1407]
    found = metrics.compare(*sides(10, 0))[0]
    assert (found["difference"]["lo"], found["difference"]["hi"]) == (0.7187, 1.0)
    assert found["ours"]["modes"]["pass@1"]["interval"] == [0.8593, 1.0]


def test_a_benchmark_of_one_side_only_is_named_and_two_judges_are_not_compared():
    from decksmith.measure.results import regressions

    ours, base = sides(3, 8)
    found = metrics.compare(ours, {"needle": base["arithmetic"]})
    assert [regressions.benchmark("tuned", "base", entry) for entry in found] == [
        (
            "refused",
            "arithmetic: not compared; base has no results (make bench MODEL=base BENCH=arithmetic)",
        ),
        (
            "refused",
            "needle: not compared; tuned has no results (make bench MODEL=tuned BENCH=needle)",
        ),
    ]
    for side, name in ((ours, "one"), (base, "two")):
        for records in side["arithmetic"].values():
            records[0]["grade"]["detail"]["judge"] = name
    assert "judge: one, two" in metrics.compare(ours, base)[0]["refused"]
    ours, base = sides(3, 8)
    base["arithmetic"]["q1"][0]["grade"]["rules"] = 1  # by an older decksmith
    assert (
        "rules: [], [1]); make bench grades them anew" in metrics.compare(ours, base)[0]["refused"]
    )


def test_replies_that_were_cut_off_stand_beside_the_sentence():
    from decksmith.measure.results import regressions

    ours, base = sides(5, 5)
    for i in range(6):
        ours["arithmetic"][f"q{i}"][0]["gen"]["finish_reason"] = "length"
    (entry,) = metrics.compare(ours, base)
    assert regressions.benchmark("tuned", "base", entry)[1].endswith(
        "rule that out. Cut off at the token limit: 20 % and 0 % of the replies"
    )


def test_a_completion_is_known_by_its_prompt():
    def asked(prompt):
        made = {key: value for key, value in row("a", 0, 1.0).items() if key != "messages"}
        return summary([{**made, "prompt": prompt}])["prompts"]

    assert asked("One, two,") == asked("One, two,") != asked("Three,")
