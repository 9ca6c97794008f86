import copy
import shutil

import pytest
from decksmith.core import cli
from decksmith.core.protocol import Protocol
from decksmith.measure.judging import identity, scoring
from hypothesis import given
from hypothesis import strategies as st

OFFLINE, PUBLISHED = Protocol.load("offline"), Protocol.load("published")


def record(**changes):
    return {
        "id": "p1",
        "messages": [
            {"role": "system", "content": "You write decks."},
            {"role": "user", "content": "Seven slides"},
        ],
        "asks": {"slides": 7},
        "checklist": [{"id": "c1", "ask": "a"}, {"id": "c2", "ask": "b"}],
        "gen": {
            "text": "x",
            "finish_reason": "stop",
            "model": {"name": "m"},
            "sampling": {"temperature": 0.7, "top_p": 0.95, "max_tokens": 4096},
        },
        "deck": {"path": "p1/deck.md"},
        "images": {"path": "p1/deck.md"},
        "render": {
            "status": "ok",
            "slides": ["p1/slides/01.png", "p1/slides/02.png", "p1/slides/03.png"],
            "errors": [],
            "engine": {"slidev": "52.20.1", "scale": 1},
        },
        "judge": {
            "judge": "somebody",
            "checks": {"passed": 6, "of": 8},
            "scores": {"content": 2.0, "design": 4.0, "coherence": 3.0},
            "checklist": [
                {"id": "c1", "yes": True, "slide": 2},
                {"id": "c2", "yes": False, "slide": None},
            ],
        },
        "features": {"craft_v5": 5.0, "craft": 2.0},
        **changes,
    }


def broken(stage, kind, cls="x"):
    whole = record()
    keys = list(whole)
    found = {key: whole[key] for key in keys[: keys.index(stage)]}
    return found | {stage: {"error": {"kind": kind, "class": cls, "message": "it failed"}}}


def test_the_overall_is_the_published_weighted_mean():
    assert scoring.score(PUBLISHED, record()) == {
        "overall": round(0.40 * 5 + 0.25 * 4 + 0.20 * 2 + 0.15 * 3, 4),
        "judge_only": round((0.25 * 4 + 0.20 * 2 + 0.15 * 3) / 0.60, 4),
        "checklist": 0.5,
        "dimensions": {"viscraft": 5.0, "design": 4.0, "content": 2.0, "coherence": 3.0},
        "rendered": True,
        "floored": False,
        "fault": None,
    }


def test_the_offline_protocol_gives_the_share_of_checks_and_no_marks():
    value = scoring.score(OFFLINE, record())
    assert value["checks"] == scoring.worth(value) == 0.75 and "overall" not in value
    assert scoring.worth(scoring.score(PUBLISHED, record())) == 3.85


@pytest.mark.parametrize(
    "counted", [{"passed": 3}, {"passed": 0, "of": 0}, {"passed": 9, "of": 8}, [3]]
)
def test_what_is_no_count_of_checks_is_bad_data(counted):
    with pytest.raises(cli.BadData, match="p1: judge.checks is .* deck-judge writes it"):
        scoring.score(OFFLINE, record(judge={"checks": counted, "checklist": []}))


@pytest.mark.parametrize("stage", ["gen", "deck", "images", "render", "judge", "features"])
@pytest.mark.parametrize("kind", ["model", "renderer", "judge", "infra"])
def test_only_a_model_fault_is_floored_and_every_other_fault_is_no_score(stage, kind):
    value = scoring.score(PUBLISHED, broken(stage, kind))
    assert value["fault"] == {"stage": stage, "kind": kind, "class": "x", "message": "it failed"}
    assert value["floored"] is (kind == "model")
    assert (value["overall"], value["judge_only"]) == ((1, 1) if kind == "model" else (None, None))
    assert value["checklist"] == (0.0 if kind == "model" else None)
    assert value["rendered"] is (stage in ("judge", "features"))
    if kind == "model":
        assert value["dimensions"] == {"viscraft": 1, "design": 1, "content": 1, "coherence": 1}
    else:
        assert [value["dimensions"][name] for name in ("design", "content", "coherence")] == [
            None
        ] * 3


def test_a_judge_fault_leaves_the_scan_but_no_overall():
    found = record(judge={"error": {"kind": "judge", "class": "unparseable", "message": "m"}})
    value = scoring.score(PUBLISHED, found)
    assert value["dimensions"] == {
        "viscraft": 5.0,
        "design": None,
        "content": None,
        "coherence": None,
    }
    assert value["overall"] is None and value["floored"] is False and value["rendered"] is True


def test_a_truncated_reply_is_no_fault_by_itself():
    found = record()
    found["gen"]["finish_reason"] = "length"
    assert scoring.score(PUBLISHED, found)["fault"] is None


def partial():
    error = {"kind": "model", "class": "vue-compile", "slide": 2, "line": 9, "message": "bad tag"}
    found = record()
    found["render"] = {**found["render"], "status": "partial", "errors": [error]}
    return found


def test_a_partial_render_counts_where_the_protocol_accepts_it_and_is_floored_where_not():
    assert scoring.score(OFFLINE, partial())["checks"] == 0.75
    value = scoring.score(PUBLISHED, partial())
    assert value["overall"] == 1 and value["rendered"] is False
    assert value["fault"] == {
        "stage": "render",
        "kind": "model",
        "class": "vue-compile",
        "slide": 2,
        "line": 9,
        "message": "bad tag",
    }


def test_fewer_slides_than_the_protocol_asks_for_is_a_model_fault():
    found = record()
    found["render"]["slides"].pop()
    assert scoring.score(OFFLINE, found)["fault"] == {
        "stage": "render",
        "kind": "model",
        "class": "too-few-slides",
        "message": "2 slides; the protocol asks for 3",
    }


@pytest.mark.parametrize(
    ("status", "errors", "offline", "published"),
    [
        ("ok", [], None, None),
        ("partial", [("model", "missing-image")], None, None),
        ("partial", [("model", "vue-runtime"), ("model", "vue-compile")], None, "vue-compile"),
        ("partial", [("model", "yaml")], None, "yaml"),
        ("partial", [("model", "yaml"), ("renderer", "crash")], "crash", "crash"),
        ("partial", [("model", "unknown-theme")], None, "unknown-theme"),
        ("failed", [("model", "fenced-deck")], "fenced-deck", "fenced-deck"),
        ("failed", [("model", "missing-image"), ("renderer", "internal")], "internal", "internal"),
        ("failed", [], "internal", "internal"),
    ],
)
def test_the_protocol_decides_which_renders_count(status, errors, offline, published):
    render = {
        "status": status,
        "slides": ["1", "2", "3"],
        "errors": [{"kind": k, "class": c, "message": "m"} for k, c in errors],
    }
    assert (scoring.refused(OFFLINE, render) or {}).get("class") == offline
    assert (scoring.refused(PUBLISHED, render) or {}).get("class") == published


def test_a_render_that_another_protocol_refused_keeps_its_error_until_it_is_judged():
    found = partial()
    found["render"]["error"] = found["render"]["errors"][0]
    assert scoring.score(OFFLINE, found)["checks"] == 0.75
    del found["judge"]
    value = scoring.score(OFFLINE, found)
    assert value["floored"] is True and value["fault"]["class"] == "vue-compile"


def test_a_score_that_is_there_already_does_not_stand_in_the_way():
    first = scoring.score(PUBLISHED, broken("judge", "judge"))
    assert scoring.score(PUBLISHED, {**record(), "score": first})["fault"] is None


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("judge", "p1: no judge.scores in this record; deck-judge writes it"),
        ("features", "p1: no features.craft_v5 in this record; deck-scan writes it"),
    ],
)
def test_a_record_that_skipped_a_stage_is_named(missing, message):
    found = record()
    del found[missing]
    with pytest.raises(cli.BadData, match=message):
        scoring.score(PUBLISHED, found)


one_to_five = st.floats(1, 5)


@given(
    st.fixed_dictionaries({name: one_to_five for name in scoring.DIMENSIONS}),
    st.fixed_dictionaries({name: st.floats(0, 10) for name in scoring.DIMENSIONS}),
)
def test_a_weighted_mean_lies_between_the_smallest_and_the_largest(dimensions, weights):
    value = scoring.mean(dimensions, weights)
    assert (
        value is None or min(dimensions.values()) - 1e-4 <= value <= max(dimensions.values()) + 1e-4
    )


@given(
    st.fixed_dictionaries({name: st.integers(1, 5) for name in scoring.JUDGED}),
    st.lists(
        st.sampled_from([cap["seen"] for cap in PUBLISHED.judge["caps"] if not cap.get("counted")]),
        max_size=5,
    ),
    st.integers(1, 20),
    st.integers(0, 20),
)
def test_a_cap_only_lowers_and_no_score_stays_above_it(scores, seen, asked, made):
    after, caps = scoring.capped(
        PUBLISHED, scores, [{"seen": s, "slide": 1} for s in seen], asked, made
    )
    assert all(1 <= after[name] <= scores[name] for name in scores)
    by_name = {cap["seen"]: cap for cap in PUBLISHED.judge["caps"]}
    assert all(after[by_name[s]["dimension"]] <= by_name[s]["max"] for s in seen)
    assert {cap["dimension"] for cap in caps} == {
        name for name in scores if after[name] < scores[name]
    }


@pytest.mark.parametrize(
    ("observations", "asked", "made", "scores", "why"),
    [
        ([], 7, 7, (5, 5, 5), []),
        (
            [{"seen": "text_cut_off", "slide": 3}, {"seen": "text_cut_off", "slide": 1}],
            7,
            7,
            (5, 2, 5),
            ["(slide 1, 3)"],
        ),
        ([{"seen": "wrong_language", "slide": None}], None, 7, (2, 5, 5), ["asked for"]),
        ([{"seen": "blank_slide", "slide": 2}], 7, 3, (2, 5, 5), ["(slide 2)", "3 of 7 slides"]),
        ([{"seen": "repeated_slides", "slide": 2}], 6, 3, (5, 5, 2), ["(slide 2)"]),
    ],
)
def test_the_caps_of_the_published_protocol(observations, asked, made, scores, why):
    after, caps = scoring.capped(
        PUBLISHED, {"content": 5, "design": 5, "coherence": 5}, observations, asked, made
    )
    assert after == dict(zip(("content", "design", "coherence"), scores, strict=True))
    assert len(caps) == len(why) and all(
        cap["why"].endswith(end) for cap, end in zip(caps, why, strict=True)
    )


def test_the_published_numbers_stand_in_the_protocol_file():
    assert PUBLISHED.score["weights"] == {
        "viscraft": 0.40,
        "design": 0.25,
        "content": 0.20,
        "coherence": 0.15,
    }
    assert (
        PUBLISHED.score["floor"],
        PUBLISHED.render["scale"],
        PUBLISHED.render["accepts"],
        PUBLISHED.render["min_slides"],
    ) == (1, 2, "clean", 3)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('name = "offline"', "name = offline", "Invalid value"),
        ("[sampling]", "[sampling]\nheat = 1", r"sampling: .*'heat'"),
        ("scale = 1", 'scale = "one"', "render.scale: 'one' is not of type 'number'"),
        ('accepts = "partial"', 'accepts = "most"', "render.accepts: 'most'"),
        ('kind = "offline"', 'kind = "offline"\nname = "x"', "judge: .*'name'"),
        ("overlap = 0.1", "overlay = 0.1", "checks: "),
        ("overlap = 0.1", "overlap = -1", "checks.overlap: -1 is less"),
        ("[prompts]", "[prompt]", "top level: .*prompt"),
    ],
)
def test_a_protocol_that_is_wrong_is_named_with_file_and_key(tmp_path, old, new, message):
    text = (cli.ROOT / "assets/protocols/offline.toml").read_text()
    assert old in text
    path = tmp_path / "mine.toml"
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(cli.BadConfig, match=f"mine.toml: .*{message}"):
        Protocol.load(path)


def test_an_unknown_protocol_lists_the_known_ones():
    with pytest.raises(
        cli.BadConfig,
        match="no protocol .*/nope.toml .did you mean open.*; there are: .*offline.*published",
    ):
        Protocol.load("nope")


def variant(tmp_path, old, new, name="published"):
    text = (cli.ROOT / f"assets/protocols/{name}.toml").read_text()
    assert old in text
    (tmp_path / "v.toml").write_text(text.replace(old, new, 1))
    return Protocol.load(tmp_path / "v.toml")


def bare(**changes):
    found = record(**changes)
    del found["judge"], found["render"]["engine"]["scale"]
    return found


def test_two_runs_of_different_models_have_the_same_identity():
    a = identity.identity(OFFLINE, [record()])
    b = identity.identity(
        OFFLINE, [record(gen={**record()["gen"], "text": "y", "model": {"name": "n"}})]
    )
    assert a == b and identity.differences(a, b) == [] and len(a["hash"]) == 64


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ("temperature = 0.7", "temperature = 0.6", "sampling.temperature: 0.7 != 0.6"),
        ("scale = 2", "scale = 1", "render.scale: 2 != 1"),
        ("retries = 3", "retries = 2", "judge.retries: 3 != 2"),
        ("viscraft = 0.40", "viscraft = 0.39", "score.weights.viscraft: 0.4 != 0.39"),
        ("temperature = 0.0", "temperature = 0.1", "judge.sampling.temperature: 0.0 != 0.1"),
        ("max = 3", "max = 2", "rubric: "),
        ("floor = 1", "floor = 2", "score.floor: 1 != 2"),
        (
            'model = "judge"',
            'model = "gpt-5.4"',
            "judge.slug: google/gemini-3-flash-preview != openai/gpt-5.4",
        ),
    ],
)
def test_a_changed_protocol_is_named_by_its_field(tmp_path, old, new, field):
    found = bare(gen={"text": "x"})
    a, b = (
        identity.identity(PUBLISHED, [found]),
        identity.identity(variant(tmp_path, old, new), [found]),
    )
    assert a["hash"] != b["hash"]
    assert any(line.startswith(field) for line in identity.differences(a, b)), identity.differences(
        a, b
    )


def test_one_word_of_the_judge_prompt_changes_the_identity(tmp_path, monkeypatch):
    before = identity.identity(PUBLISHED, [bare()])
    shutil.copytree(
        cli.ROOT / "assets", tmp_path / "assets", ignore=shutil.ignore_patterns("node_modules")
    )
    prompt = tmp_path / "assets/prompts/judge.txt"
    prompt.write_text(prompt.read_text().replace("visibly shows", "clearly shows", 1))
    monkeypatch.setattr(cli, "ROOT", tmp_path)
    assert [
        line.split(":")[0]
        for line in identity.differences(before, identity.identity(PUBLISHED, [bare()]))
    ] == ["judge.prompt"]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda r: r["messages"][1].update(content="Eight slides"), "prompts.sha256"),
        (lambda r: r["messages"][0].update(content="Write."), "system"),
        (lambda r: r["checklist"].pop(), "prompts.sha256"),
        (lambda r: r["asks"].update(slides=8), "prompts.sha256"),
        (lambda r: r["render"]["engine"].update(slidev="53"), "renderer.slidev: 52.20.1 != 53"),
        (lambda r: r.update(id="p2"), "prompts.sha256"),
    ],
)
def test_a_change_of_request_or_renderer_is_named(change, field):
    other = copy.deepcopy(record())
    change(other)
    lines = identity.differences(
        identity.identity(OFFLINE, [record()]), identity.identity(OFFLINE, [other])
    )
    assert len(lines) == 1 and lines[0].startswith(field)


def test_decks_rendered_at_another_scale_than_the_protocols_are_refused():
    found = bare()
    found["render"]["engine"]["scale"] = 1
    with pytest.raises(cli.BadData, match="rendered at scale 1, and the protocol published says 2"):
        identity.identity(PUBLISHED, [found])


def test_samples_of_a_prompt_count_as_the_prompt():
    samples = [
        record(id=f"p1~{k}", gen={"text": "x", "sample": {"of": "p1", "k": k}}) for k in range(3)
    ]
    assert identity.identity(OFFLINE, samples) == identity.identity(OFFLINE, [record()])


def test_each_sample_is_asked_with_a_seed_of_its_own_and_that_is_no_contradiction():
    def asked(seeds):
        return [
            record(
                id=f"p1~{k}",
                gen={
                    "text": "x",
                    "sample": {"of": "p1", "k": k},
                    "sampling": {**OFFLINE.sampling, "seed": seed},
                },
            )
            for k, seed in enumerate(seeds)
        ]

    first = OFFLINE.sampling["seed"]
    assert identity.identity(OFFLINE, asked([first, first + 1])) == identity.identity(
        OFFLINE, [record()]
    )
    with pytest.raises(cli.BadData, match="gen.sampling"):
        identity.identity(OFFLINE, asked([first, first + 2]))


def test_sampling_that_is_the_models_own_is_no_difference_but_a_flag_is():
    own = record(
        gen={
            "text": "x",
            "model": {"name": "smol", "params": {"max_tokens": 1024}},
            "sampling": {"temperature": 0.7, "top_p": 0.95, "max_tokens": 1024},
        }
    )
    flag = record(
        gen={
            "text": "x",
            "model": {"name": "smol", "params": {"max_tokens": 1024}},
            "sampling": {"temperature": 0.1, "top_p": 0.95, "max_tokens": 1024},
        }
    )
    base = identity.identity(OFFLINE, [record()])
    assert identity.differences(base, identity.identity(OFFLINE, [own])) == []
    assert identity.differences(base, identity.identity(OFFLINE, [flag])) == [
        "sampling.temperature: 0.7 != 0.1"
    ]


def test_a_run_that_nothing_of_was_rendered_agrees_with_any_renderer():
    none = {**broken("deck", "model"), "id": "p1"}
    a, b = identity.identity(OFFLINE, [record()]), identity.identity(OFFLINE, [none])
    assert b["renderer"] is None and identity.differences(a, b) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda r: r["render"]["engine"].update(scale=2),
            "p1 and p2 differ: render.engine.scale: 1 != 2",
        ),
        (
            lambda r: r["gen"]["sampling"].update(temperature=0),
            "p1 and p2 differ: gen.sampling.temperature: 0.7 != 0",
        ),
        (
            lambda r: r["judge"].update(rubric="f" * 64),
            "the protocol and p2 differ: judge.rubric: ",
        ),
    ],
)
def test_a_run_that_contradicts_itself_is_refused(change, message):
    other = copy.deepcopy(record(id="p2"))
    change(other)
    with pytest.raises(cli.BadData, match=message):
        identity.identity(OFFLINE, [record(), other])


def test_the_documentation_prints_the_caps_as_they_are():
    text = (cli.ROOT / "docs/protocol.md").read_text()
    rows = [
        line.split("|")[1:-1]
        for line in text.split("| seen | dimension | at most |")[1]
        .split("\n\n")[0]
        .splitlines()[2:]
    ]
    printed = {
        (name.strip(), row[1].strip(), int(row[2]))
        for row in rows
        for name in row[0].split("`")[1::2]
    }
    assert printed == {
        (cap["seen"], cap["dimension"], cap["max"]) for cap in PUBLISHED.judge["caps"]
    }


def test_the_documentation_explains_every_key_of_a_model():
    from decksmith.models import registry

    section = (cli.ROOT / "docs/protocol.md").read_text().split("## Models")[1]
    assert {name for name in registry.FIELDS if f"`{name}`" not in section} == set()


def test_the_shipped_prompts_fit_their_schema_and_a_wrong_row_does_not():
    import json

    from jsonschema import Draft202012Validator

    check = Draft202012Validator(json.loads((cli.ROOT / "assets/schemas/prompt.json").read_text()))
    rows = [json.loads(line) for line in (cli.ROOT / "data/prompts.jsonl").read_text().splitlines()]
    assert [(row["id"], error.message) for row in rows for error in check.iter_errors(row)] == []
    asks = rows[0]["asks"]
    for wrong in (
        {"asks": {**asks, "features": ["video"]}},
        {"asks": {**asks, "slides": 0}},
        {"messages": []},
        {"checklist": [{"id": "c1"}]},
    ):
        assert not check.is_valid({**rows[0], **wrong})
