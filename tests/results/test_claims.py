"""What run-compare says, and that nothing else says it."""

import ast
import itertools
import json
import random
import re
import sys
from pathlib import Path

import numpy
import pytest
from decksmith.core import cli, stream
from decksmith.core.protocol import Protocol
from decksmith.measure.judging import scoring
from decksmith.measure.results import claims, floor, pairs, tables, verify
from decksmith.measure.results import runs as reading
from decksmith.models import client, registry

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "web"))
import synthetic  # noqa: E402


def load(paths, common=False):
    """Runs as run-compare takes them: read, computed again, of several prompts what all have."""
    loaded = reading.load(paths, other_prompts=common)
    verify.check(loaded)
    if common:
        reading.keep_common(loaded)
    return loaded


STOPPED = {"why": "no slide", "kept": 1200, "read": 1200}
OFFLINE, READ = Protocol.load("offline"), Protocol.load("published")


def record(
    ident,
    model,
    overall=None,
    judge_only=None,
    fault=None,
    finish="stop",
    cut_by=None,
    body=None,
    domain=None,
    checks=None,
):
    """A finished record with this Overall by a judge that reads, which gives `judge_only` in all its dimensions, and the scan what
    is left; or with `checks` of 100 passed offline."""
    prompt = stream.loads(stream.dumps(synthetic.prompt(int(ident))))  # as a stage reads it
    row = {key: value for key, value in prompt.items() if key != "checklist"}
    row["asks"]["domain"] = domain or f"field {ident}"
    error = fault and {"error": {"kind": fault, "class": "x", "message": "x"}}
    asked = client.asked(
        {"model": model, "messages": row["messages"], "temperature": 0.7, **(body or {})}
    )
    row |= {
        "id": f"p{ident}",
        "gen": {
            "text": "x",
            "finish_reason": finish,
            "usage": {},
            "model": {"name": model, "slug": model, "params": body or {}},
            **({"cut_by": cut_by} if cut_by else {}),
            **({"stopped": STOPPED} if finish == "stopped" else {}),
            **asked,
        },
    }
    if fault == "infra":
        row["gen"] = error
    else:
        row["render"] = (
            {"status": "ok", "slides": ["p/1.png", "p/2.png", "p/3.png"], "errors": []}
            if fault != "model"
            else {"status": "failed", **error}
        )
    if fault == "judge":
        row["judge"] = error
    elif not fault and checks is not None:
        passed = {"passed": checks, "of": 100}
        empty = {"usage": {}, "findings": [], "asked": [], "not_checked": {}}
        row["judge"] = {"judge": "offline checks", "checks": passed, **empty}
    elif not fault:
        judged = overall if judge_only is None else judge_only
        share = READ.score["weights"]["viscraft"]
        craft = round((overall - (1 - share) * judged) / share, 6)
        scores = dict.fromkeys(scoring.JUDGED, judged)
        row["judge"] = {"judge": "reader", "usage": {}, "scores": scores, "checklist": []}
        row["features"] = {"craft": craft, "craft_v5": craft}
    return {**row, "score": scoring.score(READ if checks is None else OFFLINE, row)}


def how(value, offline):
    if isinstance(value, dict):
        return {"checks": 50, **value} if offline else value
    return {"checks": value} if offline else {"overall": value}


@pytest.fixture
def runs(tmp_path):
    """Write runs from `{model: [overall, checks of 100 (whole numbers), or fault, ..]}` and load them."""

    def write(**models):
        every = [value for values in models.values() for value in values]
        offline = any(isinstance(value, int) for value in every)
        for name, values in models.items():
            records = [
                record(str(n), name, **how(value, offline)) for n, value in enumerate(values)
            ]
            synthetic.write(tmp_path / name, records, OFFLINE if offline else READ)
        return load([tmp_path / name for name in models])

    return write


def said(runs):
    return claims.compare(runs)["headlines"]


def counted(runs):
    """What is said of Overall with failures counted as 1, of each two runs."""
    return sentences(claims.compare(runs))


def sentences(compared, accounting="floor", measure="overall"):
    return [
        pair["sentence"]
        for pair in compared["pairs"]
        if (pair["accounting"], pair["measure"]) == (accounting, measure)
    ]


def test_a_check_that_applies_to_one_deck_of_a_prompt_counts_for_neither(runs):
    loaded = runs(ours=[80] * 12, theirs=[80] * 12)
    theme = {"check": "theme", "what": "seriph", "yes": False, "slide": None}
    for ours, theirs in zip(*(run["records"] for run in loaded), strict=True):
        ours["judge"]["asked"] = [theme]
        ours["judge"]["findings"] = [{"check": "theme", "slide": None, "line": None}]
        theirs["judge"]["not_checked"] = {"theme": "it has no theme of Slidev's"}
    found = claims.compare(loaded)
    (pair,) = [pair for pair in found["pairs"] if pair["clause"] == "better"]
    assert sorted(pair["sides"]) == pytest.approx([0.8, 80 / 99], abs=1e-4)
    assert {run["means"]["renderable"]["checks"]["mean"] for run in found["runs"]} == {0.8}
    values = {tuple(side[1] for side in row[1:]) for row in pairs.headline_values(*loaded)}
    assert values == {(round(80 / 99, 4), 0.8)}


# The two clauses


FAILED = {"fault": "model"}


def verdicts(compared):
    return {pair["clause"]: pair["verdict"] for pair in compared["pairs"] if pair["clause"]}


def test_what_a_student_reads_where_one_model_s_decks_render_and_the_other_s_do_not(runs):
    compared = claims.compare(runs(new=[80] * 12, old=[FAILED] * 12))
    assert compared["headlines"] == [
        "The decks of new render for 12 of 12 requests, those of old for none."
    ]
    assert verdicts(compared)["renders"] == "beats"
    assert compared["ranks"] == {"new": [1, 1], "old": [2, 2]}


def test_the_same_counts_that_tell_alone_may_be_chance_among_several_comparisons(runs):
    alone = claims.compare(runs(new=[80] * 6, old=[FAILED] * 6))
    assert "chance" not in alone["headlines"][0]
    several = claims.compare(runs(new=[80] * 6, old=[FAILED] * 6, other=[80] * 6))
    said = next(line for line in several["headlines"] if "of new" in line and "of old" in line)
    assert "those of old for none, which may be chance among 4 comparisons" in said


def test_a_few_more_decks_that_render_may_be_chance_and_how_many_prompts_would_tell(runs):
    compared = claims.compare(runs(a=[80, 81] * 6, b=[80, 81] * 5 + [FAILED] * 2))
    (sentence,) = compared["headlines"]
    assert re.fullmatch(
        r"The decks of a render for 12 of 12 requests, those of b for 10, which may be chance; a new sample of about \d+ prompts "
        r"would tell\. Where both render, a passes 80 % of the checks, b 80 %: the same on 10 requests\.",
        sentence,
    )
    assert verdicts(compared) == {"renders": "not separated", "better": "not separated"}


def test_better_decks_where_both_render_are_said_in_points_of_the_checks(runs):
    base = [60 + n % 7 for n in range(24)]
    tuned = [value + 12 + n % 5 for n, value in enumerate(base)]
    compared = claims.compare(runs(old=base, new=tuned))
    assert compared["headlines"] == [
        "The decks of new and those of old render for 24 of 24 requests each. "
        "Where both render, new passes 77 % of the checks, old 63 % (difference 14 points [13, 15] on 24 requests)."
    ]
    assert verdicts(compared) == {"renders": "not separated", "better": "beats"}


def test_a_headline_below_the_floor_of_its_protocol_says_so_and_one_above_does_not(
    runs, tmp_path, monkeypatch
):
    monkeypatch.setattr(floor, "path_of", lambda run: tmp_path / "floors/it.json")
    base = [60 + n % 7 for n in range(24)]
    loaded = runs(old=base, new=[value + 2 for value in base])
    gaps = numpy.random.default_rng(1).normal(0, 0.15, 24)
    source = floor.source(gaps, (0, 1), True, ["a", "b"])
    found = {"protocol": "offline", "model": "m", "is_share": True, "sources": {"seed": source}}
    assert "floor" not in said(loaded)[0]
    floor.path_of(loaded[0]).parent.mkdir()
    floor.path_of(loaded[0]).write_text(json.dumps(found))
    size = f"{100 * floor.reach(source, 24):.1f}"
    told = f"below this protocol's floor: one model differs from itself by up to {size} points (95 %, by seed on 24 prompts)."
    assert said(loaded)[0].endswith(told)
    source["half"] = 0.01
    floor.path_of(loaded[0]).write_text(json.dumps(found))
    assert "floor" not in said(loaded)[0]


def test_a_model_that_renders_more_and_is_worse_where_both_render_is_ranked_nowhere(runs):
    base = [80 + n % 7 for n in range(24)]
    more = [value - 14 - n % 5 for n, value in enumerate(base)]
    compared = claims.compare(runs(more=more, less=[FAILED] * 10 + base[10:]))
    assert verdicts(compared) == {"renders": "beats", "better": "beats"}
    assert compared["ranks"] == {"more": [1, 2], "less": [1, 2]}


def test_the_clauses_of_all_pairs_are_one_family_and_the_floor_is_another(runs):
    offline = claims.compare(runs(a=[80, 81] * 6, b=[70, 75] * 6, c=[60, 64] * 6))["pairs"]
    assert {pair["family"] for pair in offline if pair["clause"]} == {6}
    read = claims.compare(runs(a=[3.0, 3.1] * 6, b=[2.0, 2.2] * 6))["pairs"]
    assert {pair["family"] for pair in read if pair["clause"]} == {2}
    (floor,) = [p for p in read if (p["accounting"], p["measure"]) == pairs.COUNTED]
    assert not floor["clause"] and floor["family"] == 1


def test_decks_from_a_folder_cost_the_models_no_power_and_are_spoken_of_last(runs):
    made = runs(author=[98] * 6, old=[FAILED] * 6, new=[40, 41] * 3)
    made[0]["summary"]["model"]["files"] = "data/reference/"
    compared = claims.compare(made)
    families = {(p["a"], p["b"]): p["family"] for p in compared["pairs"] if p["clause"]}
    assert families == {("new", "old"): 1, ("author", "new"): 3, ("author", "old"): 3}
    assert compared["headlines"][0] == (
        "The decks of new render for 6 of 6 requests, those of old for none."
    )


def test_decks_that_were_lost_may_undo_the_second_clause_too(runs):
    base = [60 + n % 3 for n in range(24)]
    near = [value + 1 + n % 2 for n, value in enumerate(base)]
    lost_one = [{"fault": "judge"}, *near[1:]]
    compared = claims.compare(runs(a=lost_one, b=base))
    assert compared["headlines"][0].endswith("but the decks without a score could change that.")
    assert verdicts(compared)["better"] == "inconclusive" and compared["unsettled"]
    assert verdicts(claims.compare(runs(a=near, b=base)))["better"] == "beats"


STEPS = [0.1 * n for n in range(-5, 6)]


def test_a_difference_that_the_test_finds_is_said_with_its_interval(runs):
    base = [3 + step for step in STEPS * 3]
    better = [
        value + 0.33 + wobble for value, wobble in zip(base, itertools.cycle([0.3, -0.3, 0.0]))
    ]
    assert counted(runs(a=better, b=base)) == ["a beats b by 0.33 [0.11, 0.52] on 33 prompts"]
    assert counted(runs(a=base, b=better)) == ["b beats a by 0.33 [0.11, 0.52] on 33 prompts"]


def test_a_difference_that_it_does_not_find_is_said_with_its_interval(runs):
    dice = random.Random(1)
    a, b = ([dice.gauss(3.4 + more, 0.6) for _ in range(30)] for more in (0.07, 0))
    (sentence,) = counted(runs(a=a, b=b))
    assert re.fullmatch(
        r"a is not separated from b on 30 prompts \(difference -?0\.\d\d \[-0\.\d\d, 0\.\d\d\]\)",
        sentence,
    )


def test_equal_runs_are_not_separated(runs):
    # What twelve prompts do not show can be true of 1 - 0.04 ** (1 / 12) = 24 % of all: there, a failure is worse by 2.
    assert counted(runs(a=[3.0] * 12, b=[3.0] * 12)) == [
        "a is not separated from b on 12 prompts (difference 0.00 [-0.47, 0.47])"
    ]


def test_five_prompts_are_too_few_for_anything(runs):
    assert counted(runs(a=[4.0] * 5, b=[2.0] * 5)) == [
        "a and b: inconclusive on 5 prompts (5 shared prompts, at least 6 are needed; difference 2.00)"
    ]


def test_what_one_pair_shows_alone_may_not_survive_the_family(runs):
    dice = random.Random(11)
    base = [dice.gauss(3, 0.5) for _ in range(24)]
    shift = [0.34 + dice.gauss(0, 0.42) for _ in base]
    better = [min(5.0, value + more) for value, more in zip(base, shift, strict=True)]
    others = {
        name: [min(5.0, max(1.0, value + dice.gauss(0, 0.42))) for value in base] for name in "cdef"
    }
    alone = counted(runs(a=better, b=base))[0]
    among = counted(runs(a=better, b=base, **others))[0]
    assert alone.startswith("a beats b by ")
    assert re.fullmatch(
        r"a and b: inconclusive on 24 prompts \(difference 0\.\d\d \[0\.\d\d, 0\.\d\d\], but p = 0\.\d{3} corrected over 15 comparisons\)",
        among,
    )


def lost(n, value=3.0):
    return [{"overall": value, "fault": "judge"}] * n


def test_faults_that_are_not_the_model_s_are_never_floored_but_may_undo_a_claim(runs):
    base = [3.0 + step for step in STEPS * 10]
    better = [value + 0.12 + wobble for value, wobble in zip(base, itertools.cycle([0.2, -0.2]))]
    loaded = runs(a=better[:-1] + lost(1), b=base)  # 1 of 110, less than a hundredth
    pair = next(
        pair
        for pair in claims.compare(loaded)["pairs"]
        if (pair["accounting"], pair["measure"]) == pairs.COUNTED
    )
    assert pair["verdict"] == "beats" and pair["difference"]["n"] == 109
    assert pair["bounds"]["least"] < pair["difference"]["mean"] < pair["bounds"]["most"]

    small = [value + 0.07 + wobble for value, wobble in zip(base, itertools.cycle([0.1, -0.1]))]
    unlike = runs(a=small[:-1] + lost(1), b=base)
    assert counted(unlike) == [
        "a and b: inconclusive on 109 of 110 prompts (difference 0.07 [0.01, 0.13], but the decks without a score could change that)"
    ]
    # Where both render the difference is narrower, and what was lost could change it all the same.
    assert sentences(claims.compare(unlike), "scored")[0].endswith(
        "[0.05, 0.09] on 109 requests), but the decks without a score could change that"
    )


REMEDY = "at most 1 % may); `make baseline MODEL=NAME` does these again and nothing else"


@pytest.mark.parametrize("kind", ["judge", "infra"])
def test_a_run_that_lost_decks_says_what_their_bounds_settle_and_the_remedy(runs, kind):
    compared = claims.compare(runs(a=[{"fault": kind}] * 2 + [3.0] * 98, b=[2.0] * 100))
    assert compared["headlines"] == [
        "The decks of a and those of b render for 98 of 98 requests each (the decks without a score could change that). "
        "Where both render, a gets 3.00 of 5, b 2.00 (difference 1.00 on 98 requests); the 2 lost decks could not change that. "
        "Overall, counting failures as 1: a beats b by 1.00 [0.94, 1.03] on 98 of 100 prompts; with the 2 lost at their worst still by 0.96."
    ]
    assert (
        compared["caveats"] == [f"a: 2 of 100 decks have no score ({kind} faults 2; {REMEDY}"]
        and not compared["unsettled"]
    )
    assert compared["ranks"] == {"a": [1, 1], "b": [2, 2]}


def test_one_lost_deck_in_thirty_silences_only_what_it_could_change(runs):
    base = [3 + 0.1 * step for step in range(-5, 5)] * 3
    near = [
        value + 0.05 + wobble for value, wobble in zip(base, itertools.cycle([0.04, -0.04, 0.0]))
    ]
    compared = claims.compare(
        runs(a=[value + 0.9 for value in base], b=base, c=[*near[:-1], {"fault": "judge"}])
    )
    said = dict(zip(("a b", "a c", "b c"), sentences(compared), strict=True))
    assert (
        said["a b"] == "a beats b by 0.90 [0.61, 1.10] on 30 prompts"
    )  # a row of another pair changes nothing here
    assert said["a c"].startswith(
        "a beats c by 0.85 [0.55, 1.06] on 29 of 30 prompts; with the 1 lost at their worst still by 0.80"
    )
    assert re.fullmatch(
        r"b and c: inconclusive on 29 of 30 prompts \(difference -0.05 \[-0.25, 0.16\], but the decks without a "
        r"score could change that\)",
        said["b c"],
    )
    assert (
        compared["ranks"] == {"a": [1, 1], "b": [2, 3], "c": [2, 3]} and not compared["unsettled"]
    )
    assert [
        pair["a"] + pair["b"]
        for pair in compared["pairs"]
        if "bounds" in pair and (pair["accounting"], pair["measure"]) == pairs.COUNTED
    ] == ["ac", "bc"]


def test_beyond_the_limit_two_models_that_are_not_separated_may_be_so_for_the_lost_decks(runs):
    base = [3 + step for step in STEPS * 2]
    level = [value + wobble for value, wobble in zip(base, itertools.cycle([0.3, -0.3]))]
    within = runs(a=level, b=base)
    assert counted(within)[0].startswith("a is not separated from b on 22 prompts")
    compared = claims.compare(runs(a=[*level[:-1], {"fault": "judge"}], b=base))
    assert sentences(compared)[0].startswith(
        "a and b: inconclusive on 21 of 22 prompts (difference "
    )
    assert compared["unsettled"]


def test_a_run_that_was_cut_off_says_nothing_and_other_pairs_do_under_a_protocol_that_limits_it(
    runs,
):
    cut = [{"overall": 3.0, "finish": "length"}] * 2 + [3.0] * 18
    loaded = runs(a=cut, b=[2.0] * 20, c=[1.5] * 20)
    early = runs(early=[{"overall": 3.0, "finish": "length", "cut_by": "server"}] * 2 + [3.0] * 18)
    assert claims.caveats(early)[0].endswith(
        "2 of them by the server before max_tokens: serve a longer context"
    )
    stopped = [{"overall": 3.0, "finish": "stopped"}] * 2 + [3.0] * 18
    assert claims.caveats(runs(stopped=stopped)) == [
        "stopped: 2 of 20 replies were cut off (at most 5 % may); 2 of them were stopped, since they repeated themselves or began no "
        "slide"
    ]
    compared = claims.compare(loaded)
    assert compared["caveats"] == [
        "a: 2 of 20 replies were cut off (at most 5 % may); raise max_tokens in the protocol's sampling"
    ]
    assert sentences(compared) == [
        "a and b: inconclusive on 20 prompts (difference 1.00 [0.70, 1.15], but 2 of 20 replies of a were cut off)",
        "a and c: inconclusive on 20 prompts (difference 1.50 [1.20, 1.57], but 2 of 20 replies of a were cut off)",
        "b beats c by 0.50 [0.35, 0.57] on 20 prompts",
    ]


# Rows that are left out


def thirty(path, *, without=()):
    """Scores of two models over 30 prompts, of which beta failed 10 and is better where it did not; rows of `without` are deleted."""
    return rows(
        path,
        *(other("alpha", f"p{n}", 3 + n % 3 / 10, 3.0) for n in range(30)),
        *(
            other(
                "beta",
                f"p{n}",
                *(3.6 + n % 3 / 10, 3.6) if n >= 10 else (None, None),
                rendered=n >= 10,
            )
            for n in range(30)
            if n not in without
        ),
    )


def test_rows_of_a_model_that_failed_cannot_be_left_out(tmp_path):
    whole = counted(load([thirty(tmp_path / "whole.jsonl")]))[0]
    assert (
        re.fullmatch(
            r"alpha (is not separated from|beats) .* on 30 prompts.*",
            whole,
        )
        and "beta beats" not in whole
    )
    path = thirty(tmp_path / "less.jsonl", without=range(10))
    with pytest.raises(cli.BadData) as refusal:
        claims.compare(load([path]))
    assert str(refusal.value) == (
        "alpha and beta cannot be compared: beta lacks 10 of 30 prompts (p0, p1, p2, p3, p4 and 5 more). What a model failed at is a row too "
        "(docs/records.md): have these added, or compare what all have: run-compare --common"
    )
    compared = claims.compare(load([path], common=True))
    assert sentences(compared) == ["beta beats alpha by 0.60 [0.21, 0.91] on 20 common prompts"]
    assert compared["left_out"] == {"alpha": [f"p{n}" for n in range(10)], "beta": []}
    assert (
        tables.headline(compared)[-1]
        == "- alpha: 10 of its decks are left out, which not all have (p0, p1, p2, p3, p4 and 5 more)"
    )
    assert all(
        "common prompt" in pair["sentence"] for pair in compared["pairs"] if not pair["clause"]
    )


def test_samples_of_a_model_that_failed_cannot_be_left_out(tmp_path):
    path = rows(
        tmp_path / "t.jsonl",
        *(
            other(model, f"p{n}")
            for model in "xy"
            for n in range(8)
            for k in range(3)
            if (model, n, k) != ("y", 4, 2)
        ),
    )
    with pytest.raises(cli.BadData, match=r"y lacks samples of 1 of 8 prompts \(p4\)"):
        claims.compare(load([path]))
    assert "on 8 common prompts" in counted(load([path], common=True))[0]


def test_runs_of_other_prompts_are_no_pair_and_common_takes_only_what_is_asked_alike(
    tmp_path, runs
):
    def write(name, numbers, **asks):
        rows = [record(str(n), name, 3.0) for n in numbers]
        asked = [{**row, "asks": {**row["asks"], **asks}} for row in rows]
        return synthetic.write(tmp_path / name, asked, READ)

    paths = [write("a", range(12)), write("b", range(4, 16))]
    with pytest.raises(cli.BadData, match="prompts.sha256"):
        load(paths)
    assert counted(load(paths, common=True)) == [
        "a is not separated from b on 8 common prompts (difference 0.00 [-0.66, 0.66])"
    ]
    with pytest.raises(cli.BadData, match="no deck is common to a and c"):
        load([paths[0], write("c", range(20, 30))], common=True)
    with pytest.raises(cli.BadData, match="p4 asks one thing in a and another in d"):
        load([paths[0], write("d", range(4, 16), audience="somebody else")], common=True)


def test_every_other_sentence_names_measure_accounting_and_n(runs):
    compared = claims.compare(runs(a=[4.0, {"fault": "model"}] + [4.0] * 8, b=[3.0] * 10))
    titles = compared["titles"]
    for pair in compared["pairs"]:
        if not pair["clause"] and (pair["accounting"], pair["measure"]) != pairs.COUNTED:
            named = re.escape(f"{titles[pair['measure']]}, {pairs.ACCOUNTINGS[pair['accounting']]}")
            assert re.search(rf" on \d+( of \d+)? prompts, {named}", pair["sentence"])
    (judged,) = sentences(compared, "scored", "judge_only")
    assert "on 9 of 10 prompts, Judge only, both scored" in judged


def test_a_protocol_that_is_not_the_shipped_one_is_named_in_the_headline(tmp_path):
    text = (cli.ROOT / "assets/protocols/published.toml").read_text()
    (tmp_path / "published.toml").write_text(text.replace("retries = 3 ", "retries = 4 "))
    mine, paths = Protocol.load(tmp_path / "published.toml"), []
    for name, value in (("a", 4.0), ("b", 3.0)):
        records = [record(str(n), name, value) for n in range(8)]
        records = [{**one, "score": scoring.score(mine, one)} for one in records]
        paths.append(synthetic.write(tmp_path / name, records, mine))
    compared = claims.compare(load(paths))
    assert compared["headlines"][0].endswith(
        "a beats b by 1.00 [0.01, 1.66] on 8 prompts, not the shipped protocol."
    )
    assert (
        tables.headline(compared)[-1]
        == "- the protocol is not the shipped one: judge.retries: 4 != 3"
    )


def test_verdicts_by_another_rubric_than_the_shipped_one_are_named_though_the_protocol_file_is_the_shipped_one(
    tmp_path,
):
    other, paths = "f" * 64, []
    for name in "ab":
        records = [record(str(n), name, 3.0) for n in range(8)]
        paths.append(synthetic.write(tmp_path / name, records, READ))
        judged = [{**one, "judge": {**one["judge"], "rubric": other}} for one in records]
        stream.write_records(tmp_path / name / "scores.jsonl", iter(judged))
        kept = tmp_path / name / "summary.json"  # of a run whose summary does not say what it is of
        summary = json.loads(kept.read_text())
        summary["by"] = {k: v for k, v in summary["by"].items() if k not in ("made_from", "sum")}
        kept.write_text(json.dumps(summary))
    assert [line.split(":")[0] for line in load(paths)[0]["unshipped"]] == ["judge.rubric"]


def test_ranks_are_the_ranges_that_the_pairs_leave_open(runs):
    base = [3 + step for step in STEPS * 2]
    compared = claims.compare(
        runs(
            a=[value + 1 for value in base],
            b=base,
            c=[value + wobble for value, wobble in zip(base, itertools.cycle([0.2, -0.2]))],
        )
    )
    assert compared["ranks"] == {"a": [1, 1], "b": [2, 3], "c": [2, 3]}
    assert claims.ranked(compared) == "Ranks that the tests leave open: a 1; b 2 to 3; c 2 to 3."
    open_to_all = {"ranks": dict.fromkeys("abc", [1, 3])}
    assert claims.ranked(open_to_all) == "The tests separate no two of the 3."
    settled = {"ranks": {name: [place, place] for place, name in enumerate("abc", 1)}}
    assert claims.ranked(settled) is None


def test_the_accountings_count_what_they_say(runs):
    # Prompt 0: a failed; prompt 1: b failed; the other six both rendered.
    loaded = runs(
        a=[{"overall": 1, "fault": "model"}, 4.0] + [4.0] * 6,
        b=[2.0, {"overall": 1, "fault": "model"}] + [3.0] * 6,
    )
    found = {
        pair["accounting"]: pair["difference"]
        for pair in claims.compare(loaded)["pairs"]
        if pair["measure"] == "overall"
    }
    assert {
        accounting: (difference["n"], difference["mean"])
        for accounting, difference in found.items()
    } == {
        "floor": (8, (-1 + 3 + 6) / 8),
        "scored": (6, 1.0),
    }


def test_several_samples_of_a_prompt_are_one_prompt(tmp_path):
    for name, more in (("a", 0.5), ("b", 0.0)):
        records = []
        for n, k in itertools.product(range(8), range(4)):
            one = record(str(n), name, 3 + more + 0.1 * k)
            records.append(
                {**one, "id": f"p{n}~{k}", "gen": {**one["gen"], "sample": {"of": f"p{n}", "k": k}}}
            )
        synthetic.write(tmp_path / name, records, READ)
    pair = next(
        pair
        for pair in claims.compare(load([tmp_path / "a", tmp_path / "b"]))["pairs"]
        if pair["measure"] == "overall"
    )
    assert (pair["difference"]["n"], pair["difference"]["mean"], pair["difference"]["p"]) == (
        8,
        0.5,
        0.234666,
    )


def test_prompts_of_a_domain_are_no_independent_witnesses(runs):
    # Domains lean to a model or against it: as thirty prompts apart this is a claim, as six domains of five it is none.
    lean = [0.6, 0.5, 0.5, 0.4, -0.6, 0.6]

    def write(domain):
        return runs(
            a=[
                {"overall": 3 + lean[n // 5] + 0.1 * (n % 5), "domain": domain(n)}
                for n in range(30)
            ],
            b=[{"overall": 3 + 0.1 * (n % 3), "domain": domain(n)} for n in range(30)],
        )

    apart, together = (
        claims.compare(write(lambda n: None)),
        claims.compare(write(lambda n: f"d{n // 5}")),
    )
    assert [
        pair["difference"]["clusters"] for pair in (apart["pairs"][0], together["pairs"][0])
    ] == [0, 6]
    assert "may be chance" not in sentences(apart, "scored")[0]
    assert sentences(apart)[0].startswith("a beats b")
    assert sentences(together)[0].startswith("a is not separated from b")
    assert "which may be chance" in sentences(together, "scored")[0]
    notes = [note for _, _, _, note in tables.tables(write(lambda n: f"d{n // 5}"), together)]
    assert any("clustered by domain (6 domains)" in note for note in notes)


# Scores of other tools


def rows(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def other(model, ident, design=3.0, content=3.0, **more):
    return {
        "model": model,
        "id": ident,
        "scores": {"design": design, "content": content},
        "rendered": True,
        "error_kind": None,
        **more,
    }


def test_scores_of_another_tool_are_compared_by_the_same_rules(tmp_path):
    path = rows(
        tmp_path / "theirs.jsonl",
        *(
            other(model, f"p{n}", design)
            for n in range(10)
            for model, design in (("x", 4.0), ("y", 3.0))
        ),
        other("x", "p10", None, None, rendered=False),
        other("y", "p10"),
        other("x", "p11", None, error_kind="judge"),
        other("y", "p11"),
    )
    compared = claims.compare(load([path]))
    pair = next(
        pair for pair in compared["pairs"] if (pair["accounting"], pair["measure"]) == pairs.COUNTED
    )
    assert (pair["difference"]["n"], pair["difference"]["mean"]) == (
        11,
        round((10 * 0.5 - 2) / 11, 4),
    )
    assert compared["caveats"] == [
        "x: 1 of 12 decks have no score (judge faults 1; at most 1 % may); have these scored again"
    ]
    assert compared["caption"] == "Scores as theirs.jsonl gives them"
    assert [run["label"] for run in compared["runs"]] == ["x", "y"] and "craft" not in compared[
        "runs"
    ][0]["means"]["floor"]


FORM = 'a row of scores needs "model" (a name), "rendered" (true or false) and "scores" (an object)'


@pytest.mark.parametrize(
    "change, words",
    [
        ({"rendered": "yes"}, f"rendered: Input should be a valid boolean; {FORM}"),
        (
            {"error_kind": "bad"},
            f"error_kind: Input should be 'model', 'renderer', 'judge' or 'infra'; {FORM}",
        ),
        ({"scores": {}}, "scores is empty"),
        (
            {"weights": {"design": 3, "content": 1}},
            'weights are {"design": 3.0, "content": 1.0}, and {"content": 1.0, "design": 1.0} in the first row',
        ),
        ({"scores": {"design": 3}}, "scores for design, and for content, design in the first row"),
        (
            {"scores": {"design": 3, "content": 7}},
            "scores.content is 7.0; it is a number from 1 to 5, or null",
        ),
    ],
)
def test_a_bad_row_of_scores_is_named(tmp_path, change, words):
    with pytest.raises(cli.BadData) as refusal:
        load([rows(tmp_path / "t.jsonl", other("x", "p0"), {**other("x", "p1"), **change})])
    assert str(refusal.value) == f"{tmp_path}/t.jsonl:2: p1: {words}"


def test_scores_of_another_tool_are_weighed_as_the_file_says(tmp_path):
    weights = {"design": 3, "content": 1}
    path = rows(
        tmp_path / "t.jsonl",
        *(
            other(model, f"p{n}", design, 3.0, weights=weights)
            for n in range(12)
            for model, design in (("x", 4.0), ("y", 3.0))
        ),
    )
    loaded = load([path])
    assert counted(loaded) == ["x beats y by 0.75 [0.10, 1.22] on 12 prompts"]
    assert loaded[0]["protocol"]["score"] == {
        "overall": "Weighted mean of the dimensions",
        "weights": weights,
    }
    with pytest.raises(cli.BadData, match=r"score.weights.design: 3.0 != 1.0"):
        load([path, rows(tmp_path / "u.jsonl", other("z", "p0"))])


@pytest.mark.parametrize(
    "weights",
    [
        None,
        [],
        {"design": 1},
        {"design": 0, "content": 0},
        {"design": -1, "content": 2},
        {"design": "1", "content": 1},
    ],
)
def test_weights_that_cannot_be_used_are_named(tmp_path, weights):
    with pytest.raises(
        cli.BadData,
        match=r"t.jsonl:1: p0: weights( is .*; it has a number from 0 for each dimension|[.\w]*: Input should be a valid)",
    ):
        load([rows(tmp_path / "t.jsonl", other("x", "p0", weights=weights))])


def test_the_time_of_a_single_measure_is_unknown(tmp_path):
    loaded = load(
        [
            rows(
                tmp_path / "t.jsonl",
                *(
                    {
                        "model": model,
                        "id": f"p{n}",
                        "scores": {"overall": 4 if model == "x" else 3},
                        "rendered": True,
                    }
                    for n in range(8)
                    for model in "xy"
                ),
            )
        ]
    )
    found = {title: header for title, header, *_ in tables.tables(loaded, claims.compare(loaded))}
    assert list(found) == ["Scores", "Paired by prompt", "What happened"]
    assert "Cost" not in found["What happened"]


def test_a_run_and_the_scores_of_another_tool_never_share_a_table(runs, tmp_path):
    loaded = runs(a=[3.0] * 6)
    with pytest.raises(cli.BadData, match="one is a run and one a file of scores of another tool"):
        load([loaded[0]["path"], rows(tmp_path / "t.jsonl", other("x", "p0"))])


# The rule


@pytest.mark.slow
def test_no_other_code_prints_a_ranking_or_a_winner():
    """Sentences that separate models are strings of claims.py and regressions.py; a string elsewhere with such a word is a second path. The words "beats", a
    verdict, and "winner", a column of other people's votes, are no sentences."""
    words = re.compile(
        r"\b(beats?|outperforms?|better than|worse than|wins? against|winner|ranked|1st|first place|best model|leaderboard)\b",
        re.I,
    )
    offenders = []
    scripts = [
        path
        for path in (cli.ROOT / "bin").iterdir()
        if path.is_file() and "python3" in path.read_text().partition("\n")[0]
    ]
    for path in [*(cli.ROOT / "lib/decksmith").rglob("*.py"), *scripts]:
        text = path.read_text()
        if path.name in ("claims.py", "regressions.py") or not words.search(text):
            continue
        tree = ast.parse(text)
        docs = {
            id(node.body[0].value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef)
            and node.body
            and isinstance(node.body[0], ast.Expr)
        }
        offenders += [
            f"{path.name}:{node.lineno}: {node.value!r}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and node.value not in ("beats", "winner")
            and id(node) not in docs
            and words.search(node.value)
        ]
    for path in (cli.ROOT / "assets/web").glob("report.*"):
        offenders += [
            f"{path.name}: {found[0]}"
            for found in words.finditer(path.read_text())
            if found[0].lower() != "beats"
        ]
    assert offenders == []


def test_a_headline_says_what_a_score_shares_with_the_reward_that_a_model_was_trained_on(runs):
    both = runs(a=[3.0] * 12, b=[3.0] * 12)
    both[0]["trained"] = {"reward": "rendered", "shared": "whether a deck renders"}
    both[1]["trained"] = {"reward": "mine", "shared": None}
    (sentence,) = said(both)
    assert sentence.endswith(
        "; a was trained on the reward rendered, so on whether a deck renders; b was trained on the reward mine."
    )


def test_of_several_models_every_headline_says_what_its_rewards_share(runs):
    three = runs(a=[3.0] * 12, b=[3.0] * 12, c=[3.0] * 12)
    three[0]["trained"] = three[1]["trained"] = {"reward": "rendered", "shared": "checks"}
    shared = "was trained on the reward rendered, so on checks"
    endings = [line.rpartition("; a ")[2] if "; a " in line else line for line in said(three)]
    assert endings[0] == f"{shared}; b {shared}." and endings[1] == f"{shared}."
    assert said(three)[2].endswith(f"; b {shared}.")


def judged_by(loaded, name):
    """The runs as a protocol with this judge has them."""
    for run in loaded:
        run["protocol"] = {**run["protocol"], "judge": {"kind": "vision", "model": name}}
    return loaded


def test_a_judge_of_a_models_own_family_or_of_its_teachers_is_named(runs, monkeypatch):
    known = {
        "judge": registry.model("judge"),
        "writer": registry.Model("writer", "http://x/v1", "openai/gpt-9"),
        "tuned": registry.Model("tuned", "serve:", "tuned", taught_by=["glm"]),
        "a": registry.Model("a", "http://x/v1", "openai/gpt-oss-20b"),
        "b": registry.Model("b", "http://x/v1", "z-ai/glm-5.1"),
    }
    monkeypatch.setattr(registry, "models", lambda: known)
    loaded = runs(writer=[3.0] * 8, tuned=[2.0] * 8)
    summary = {run["name"]: run["summary"] for run in loaded}
    summary["writer"]["model"]["slug"] = "openai/gpt-9"
    assert claims.kin(judged_by(loaded, "a")) == [
        "the judge a is of the same family as writer (gpt)"
    ]
    assert claims.kin(judged_by(loaded, "b")) == [
        "the family of the judge b (glm) wrote what tuned was trained on"
    ]
    known["a"].family = "other"
    assert claims.kin(judged_by(loaded, "a")) == []
    summary["tuned"]["model"]["served"] = {"base": "zai-org/GLM-5"}
    assert claims.kin(judged_by(loaded, "b")) == [
        "the judge b is of the same family as tuned (glm)"
    ]
