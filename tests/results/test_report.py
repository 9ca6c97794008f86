import hashlib
import json
import re
import shutil
import sys
from html import unescape
from pathlib import Path

import pytest
from decksmith.core import cli, stream
from decksmith.core.protocol import Protocol
from decksmith.measure.judging import scoring
from decksmith.measure.results import (
    claims,
    looks,
    report,
    report_data,
    report_pictures,
    stats,
    tables,
    verify,
)
from decksmith.measure.results.plots import plots
from decksmith.measure.results.runs import load
from decksmith.measure.results.summary import rendered, rendering, summarize
from decksmith.measure.results.tables import HAPPENED, NOTES, spent

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "web"))
import synthetic  # noqa: E402

pytestmark = pytest.mark.slow


def tiny():
    """Four records: rendered, rendered in part and truncated, a model fault, a judge fault."""
    model = {"name": "m", "slug": "lab/m", "params": {"top_k": 3}}

    def gen(tokens, finish="stop", took=2.0, at="2026-01-01T10:00:00+00:00"):
        return {
            "text": "x",
            "finish_reason": finish,
            "model": model,
            "by": {"at": at, "took": took},
            "sampling": {"top_k": 3, "stop": {"at": ["x"]}},
            "request": "r",
            "usage": {
                "prompt_tokens": 10,
                "completion_tokens": tokens,
                "reasoning_tokens": 1,
                "cost": 0.01,
            },
        }

    def judge(value):
        return {
            "judge": "lab/judge",
            "usage": {},
            "scores": {"content": value, "design": value, "coherence": value},
            "checklist": [
                {"id": "c1", "yes": True, "slide": 1},
                {"id": "c2", "yes": False, "slide": None},
            ],
        }

    def score(value, **more):
        return {
            "overall": value,
            "judge_only": value,
            "checklist": None if value is None else 0.5,
            "dimensions": {
                "viscraft": value,
                "design": value,
                "content": value,
                "coherence": value,
            },
            "rendered": True,
            "floored": False,
            "fault": None,
            **more,
        }

    items = [{"id": "c1", "ask": "One?"}, {"id": "c2", "ask": "Two?"}]
    slides = ["p/1.png", "p/2.png", "p/3.png"]
    model_fault = {"kind": "model", "class": "yaml", "message": "bad indent", "line": 4}
    judge_fault = {"kind": "judge", "class": "unparseable", "message": "no JSON"}
    rows = [
        {
            "id": "a",
            "gen": gen(100),
            "render": {"status": "ok", "slides": slides},
            "judge": judge(3.0),
            "features": {"craft": 3.0, "craft_v5": 4.0},
            "score": score(3.0),
        },
        {
            "id": "b",
            "gen": gen(50, "length", at="2026-01-01T10:00:01+00:00"),
            "render": {"status": "partial", "slides": slides},
            "judge": judge(2.0),
            "features": {"craft": 2.0, "craft_v5": 2.0},
            "score": score(2.0),
        },
        {
            "id": "c",
            "gen": gen(10, at="2026-01-01T12:00:00+00:00"),
            "render": {"status": "failed", "error": model_fault},
            "features": {"craft": 5.0, "craft_v5": 5.0},
            "score": score(
                1,
                checklist=0.0,
                rendered=False,
                floored=True,
                fault={"stage": "render", **model_fault},
            ),
        },
        {
            "id": "d",
            "gen": gen(40, at="2026-01-01T12:00:00+00:00"),
            "render": {"status": "ok", "slides": slides},
            "judge": {"error": judge_fault},
            "score": score(None, fault={"stage": "judge", **judge_fault}),
        },
    ]
    return [{**row, "checklist": items} for row in rows]


def test_a_summary_of_four_records_is_what_one_counts_by_hand():
    # 1, 2, 3: Student's t to 4.484. Two values, 2 and 3: t with one degree of freedom leaves the whole scale open.
    three, two = (
        {"mean": 2.0, "lo": 1.0, "hi": 4.4841, "n": 3},
        {"mean": 2.5, "lo": 1.0, "hi": 5.0, "n": 2},
    )
    names = ["overall", "judge_only", "viscraft", "design", "content", "coherence"]
    found = summarize(enumerate(tiny(), 1))
    assert len(found["by"].pop("made_from")) == len(found["by"].pop("sum")) == 64
    assert found == {
        "model": {"name": "m", "slug": "lab/m", "params": {"top_k": 3}},
        "judge": "lab/judge",
        "asked": {
            "sha256": stream.fingerprint([[ident, "r"] for ident in "abcd"]),
            "parameters": {"stop.at": ["x"], "top_k": 3},
        },
        "n": 4,
        "prompts": 4,
        "rendered": 3,
        "partial": 1,
        "truncated": 1,
        "capped": 0,
        "faults": {
            "kinds": {"model": 1, "renderer": 0, "judge": 1, "infra": 0},
            "classes": [
                {"kind": "judge", "stage": "judge", "class": "unparseable", "n": 1},
                {"kind": "model", "stage": "render", "class": "yaml", "n": 1},
            ],
        },
        "tokens": {"prompt": 40, "completion": 200, "reasoning": 4, "records": 4},
        "cost": 0.04,
        "judge_cost": 0,
        "means": {
            "floor": {
                "renders": {"mean": 0.6667, "lo": 0.0943, "hi": 0.9916, "n": 3},
                **dict.fromkeys(names, three),
                "checklist": {"mean": 0.3333, "lo": 0.0, "hi": 1.0, "n": 3},
                "craft": three,
                "craft_v5": {"mean": 2.3333, "lo": 1.0, "hi": 5.0, "n": 3},
            },
            "renderable": {
                **dict.fromkeys(names, two),
                "checklist": {"mean": 0.5, "lo": 0.5, "hi": 0.5, "n": 2},
                "craft": two,
                "craft_v5": {"mean": 3.0, "lo": 1.0, "hi": 5.0, "n": 2},
            },
        },
        "interval": {"level": 0.95, "method": stats.METHOD, "over": "each prompt by itself"},
        # 10:00:00 to 10:00:03 (overlapping), two hours of nothing, 12:00:00 to 12:00:02
        "by": {
            "tool": "run-summarize",
            "version": "0.1.0",
            "generation_s": 8.0,
            "wall_s": 5.0,
            "stages_s": {"gen": 8.0},
        },
    }


def test_seconds_that_no_record_tells_are_unknown_and_not_none():
    records = [{**record, "gen": {**record["gen"], "by": {}}} for record in tiny()]
    summary = summarize(enumerate(records, 1))
    assert {name: summary["by"][name] for name in ("generation_s", "wall_s")} == {
        "generation_s": None,
        "wall_s": None,
    }
    assert spent(summary)[-1] == "unknown"


def test_parameters_that_vary_within_a_run_are_all_given_and_a_sample_s_seed_is_the_run_s():
    records = [
        {
            **record,
            "gen": {
                **record["gen"],
                "sample": {"of": record["id"], "k": k},
                "sampling": {"seed": 5 + k, "max_tokens": 90 - k % 2},
            },
        }
        for k, record in enumerate(tiny())
    ]
    assert summarize(enumerate(records, 1))["asked"]["parameters"] == {
        "seed": 5,
        "max_tokens": [90, 89],
    }


def test_samples_of_one_prompt_count_once():
    records = [
        {**record, "id": f"a~{k}", "gen": {**record["gen"], "sample": {"of": "a", "k": k}}}
        for k, record in enumerate(tiny()[:2])
    ]
    summary = summarize(enumerate(records, 1))
    assert (summary["n"], summary["prompts"]) == (2, 1)
    assert summary["means"]["floor"]["overall"] == {"mean": 2.5, "lo": None, "hi": None, "n": 1}


def test_an_unknown_price_makes_the_cost_unknown_not_zero():
    records = tiny()
    records[1]["gen"]["usage"]["cost"] = None
    assert summarize(enumerate(records, 1))["cost"] is None


@pytest.mark.parametrize(
    "change, words",
    [
        (
            lambda records: records.clear(),
            "no records on stdin; a summary needs the scores.jsonl of a run",
        ),
        (
            lambda records: records[1].pop("score"),
            'stdin:2: b: no "score" in this record; deck-score writes it',
        ),
        (
            lambda records: records[1]["judge"].update(judge="gemini"),
            'stdin:2: b: one summary is for one judge, here are two: a has "lab/judge", b has "gemini"',
        ),
        (lambda records: records[3]["gen"]["model"].update(name="n"), None),
    ],
)
def test_what_cannot_be_summarized_is_refused_in_a_sentence(change, words):
    records = json.loads(json.dumps(tiny()))
    change(records)
    with pytest.raises(cli.BadData) as refusal:
        summarize(enumerate(records, 1))
    assert str(refusal.value) == (
        words
        or (
            'stdin:4: d: one summary is for one model, here are two: a has {"name": "m", "slug": "lab/m"}, '
            'd has {"name": "n", "slug": "lab/m"}'
        )
    )


@pytest.fixture
def runs(tmp_path):
    """Two runs of the same prompts; `low` is worse on every prompt."""
    for name, shift in (("high", 0.0), ("low", -0.5)):
        records = json.loads(json.dumps(tiny()))
        for record in records:
            record["gen"]["model"].update(name=name, slug=f"lab/{name}")
            del record["gen"]["request"]
            if record["id"] in "ab":
                record["features"]["craft_v5"] += shift
                record["score"] = scoring.score(Protocol.load("published"), record)
        synthetic.write(tmp_path / name, records, Protocol.load("published"))
    return tmp_path


def test_the_page_states_everything_and_claims_nothing_that_the_lost_decks_could_undo(runs):
    loaded = load([runs / "low", runs / "high"])
    said = tables.markdown(loaded, claims.compare(loaded))
    identity = json.loads((runs / "low" / "protocol.json").read_text())["hash"][:12]
    marks = " | ".join(["2.50 [1.00, 5.00]"] * 3)
    assert said.startswith(
        f"Judge: lab/judge (not yet compared with people's judgements). Protocol {identity}.\n\n"
        "**What was found**\n\n- The decks of high and those of low render for 2 of 3 requests each"
    )
    for line in (
        "- high: 1 of 4 decks have no score (judge faults 1; at most 1 % may); `make baseline MODEL=NAME` does these again and "
        "nothing else",
        "| Model | Decks | Renders | Of such requests | Requests | Overall | Judge only | VisCraft (craft-v5) | Design | Content | "
        "Coherence | Checklist | craft | craft-v5 |",
        f"| low | that render | 2 of 3 | 9 to 99 % | 2 | 2.50 [1.00, 5.00] | 2.50 [1.00, 5.00] | 2.50 [1.00, 5.00] | {marks} | "
        "50 % | 2.50 [1.00, 5.00] | 2.50 [1.00, 5.00] |",
        "| high minus low | Renders | 3 | +0 of 3 | -25, 25 | 0/3/0 |",
        "| high minus low | Overall, where both render | 2 | 0.20 | -1.20, 1.47 | 2/0/0 |",
        "| Model | Render | Cut off | Model faults | Judge faults | Tokens in | Tokens out | Cost | Wall |",
        "| high | 2 of 3, 1 with an error | 1 | 1 | 1 | 40 | 200 | $0.0400 | 5 s |",
    ):
        assert line in said.splitlines(), line
    assert NOTES in said and HAPPENED in said


def test_runs_that_differ_in_more_than_the_model_are_refused_with_the_fields(runs):
    path = runs / "low" / "protocol.json"
    changed = json.loads(path.read_text())
    changed["claim"]["excluded"] = 0.3
    del changed["hash"]
    path.write_text(json.dumps({**changed, "hash": stream.fingerprint(changed)}))
    with pytest.raises(cli.BadData) as refusal:
        load([runs / "high", runs / "low"])
    assert str(refusal.value) == (
        f"{runs}/high and {runs}/low differ in more than the model; their scores do not belong in one table\n"
        f"  {runs}/high/protocol.json != {runs}/low/protocol.json:\n  claim.excluded: 0.01 != 0.3"
    )


@pytest.mark.parametrize("name", ["summary.json", "scores.jsonl", "protocol.json"])
def test_an_unfinished_run_names_the_command_that_finishes_it(runs, name):
    (runs / "low" / name).unlink()
    with pytest.raises(cli.Missing) as missing:
        load([runs / "low"])
    assert str(missing.value) == f"{runs}/low has no {name}; `make baseline MODEL=NAME` makes it"


def test_a_summary_of_other_records_is_refused(runs):
    path = runs / "low" / "scores.jsonl"
    rows = path.read_text().splitlines(True)
    path.write_text(
        "".join([*rows[:3], rows[3].replace('"finish_reason":"stop"', '"finish_reason":"length"')])
    )
    with pytest.raises(cli.BadData) as refusal:
        verify.check(load([runs / "low"]))
    assert str(refusal.value) == (
        f"{runs}/low contradicts itself:\n  summary.json: by.made_from is of other records\n"
        f"  summary.json: truncated is 1, the records give 2\n"
        f"  to derive all of it again from what was paid for: rm {runs}/low/scores.jsonl && make baseline MODEL=NAME"
    )


def digests(folder):
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_plots_are_drawn_as_png_and_svg_and_equal_runs_give_equal_bytes(runs, tmp_path):
    loaded = load([runs / "low", runs / "high"])
    names = plots(tmp_path / "one", loaded, claims.compare(loaded))
    assert names == ["scores.png", "scores.svg"]
    again = load([runs / "low", runs / "high"])
    plots(tmp_path / "two", again, claims.compare(again))
    assert digests(tmp_path / "one") == digests(tmp_path / "two")


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    folder = tmp_path_factory.mktemp("small")
    synthetic.run(folder / "one", "one", 0.6, 4)
    synthetic.run(folder / "two", "two", 0.9, 4)
    return folder


@pytest.fixture(scope="module")
def both(small, tmp_path_factory):
    """The folder of a report of both, to be copied, and what was said of its making."""
    folder = tmp_path_factory.mktemp("both")
    return folder, report.page(folder, load([small / "one", small / "two"]))[1]


@pytest.fixture(scope="module")
def pages(small, both, tmp_path_factory):
    """Folders of finished reports that tests only read: of `one` alone, of both, and of `one` in a single file."""
    folder = tmp_path_factory.mktemp("pages")
    one = load([small / "one"])
    report.page(folder / "one", one)
    (folder / "both").symlink_to(both[0])
    report.page(folder / "single", one, single=True)
    return folder


def test_a_page_is_the_same_twice_and_only_what_changed_is_made_again(small, both, tmp_path):
    runs, first = load([small / "one", small / "two"]), both[1]
    shutil.copytree(both[0], tmp_path / "r")
    before = digests(tmp_path / "r")
    assert first["decks"] == 8 and first["pictures"] > 20 and first["lost"] == 0
    assert (
        first["made"]
        == len(list((tmp_path / "r").glob("img/full/*")))
        == len(list((tmp_path / "r").glob("img/small/*")))
    )
    assert report.page(tmp_path / "r", runs)[1]["made"] == 0
    assert digests(tmp_path / "r") == before

    slides = [
        run["path"] / path
        for run in runs
        for record in run["records"]
        for path in (record.get("render") or {}).get("slides") or []
    ]
    path = next(
        path
        for path in slides
        if sum(other.read_bytes() == path.read_bytes() for other in slides) == 1
    )
    old = path.read_bytes()
    synthetic.slide(path, 2, "Another title", "seriph", "again")
    try:
        assert report.page(tmp_path / "r", runs)[1]["made"] == 1
        assert len(list((tmp_path / "r").glob("img/full/*"))) == first["made"], (
            "the old picture is gone"
        )
    finally:
        path.write_bytes(old)


@pytest.mark.long("test_a_page_is_the_same_twice_and_only_what_changed_is_made_again")
def test_a_plot_shows_what_changed(small, pages, tmp_path):
    shutil.copytree(pages / "both", tmp_path, dirs_exist_ok=True)
    runs, plot = load([small / "one", small / "two"]), tmp_path / "plots" / "scores.svg"
    before = plot.read_bytes()  # of the same runs it is the same: above
    runs[0]["label"] = "another name"
    assert '"plots/scores.svg"' in report.page(tmp_path, runs)[0].read_text()
    assert plot.read_bytes() != before


def test_nothing_a_model_wrote_can_end_the_data_or_reach_outside_the_run(small, pages, tmp_path):
    shutil.copytree(pages / "one", tmp_path, dirs_exist_ok=True)  # its pictures need not be made
    runs = load([small / "one"])
    row = next(
        record for record in runs[0]["records"] if (record.get("render") or {}).get("slides")
    )
    row["render"]["slides"][0], row["deck"]["path"] = (
        "../two/p001/slides/01.png",
        "../../../../../../etc/hostname",
    )
    row["messages"][-1]["content"] = "</script><!-- <script> \ud800 \u2028"
    del runs[0]["made_from"]  # its records are those, and no longer the file's
    _, done = report.page(tmp_path, runs)
    html = (tmp_path / "index.html").read_text()
    data = html.split('<script type="application/json" id="data">')[1].split("</script>")[0]
    later = html.split('id="later">')[1].split("</script>")[0]
    shown, more = next(
        (one, json.loads(line))
        for one, line in zip(named(json.loads(data)), later.split("\n"), strict=True)
        if one["id"] == row["id"]
    )
    assert "<" not in data + later
    assert json.loads(data)["prompts"][row["id"]]["text"] == "</script><!-- <script> \ud800 \u2028"
    assert (done["lost"], more["slides"][0]["img"], more["markdown"]) == (1, None, None)
    assert shown["drawn"] == len(more["slides"]) and "markdown" not in shown
    assert html.count("<script") == 3 and "http://" not in html.split("<style>")[0]


def named(data):
    """The rows of a page's data, each value under its name."""
    return [dict(zip(data["names"], row, strict=True)) for row in data["rows"]]


def shown_of(runs):
    """What a page has of these runs: its data, and each deck with what is read later."""
    later = report_data.Later(None)
    data = report_data.data(runs, report_pictures.Pictures({}), claims.compare(runs), later)
    rows = zip(named(data), map(json.loads, later.texts), strict=True)
    return data, [row | more for row, more in rows]


def test_of_many_decks_the_page_has_what_a_list_needs_and_the_rest_stands_beside_it(
    small, tmp_path, monkeypatch
):
    runs = load([small / "one", small / "two"])
    _, whole = shown_of(runs)
    monkeypatch.setattr(report_data, "AT_ONCE", 3)
    (tmp_path / "later").mkdir()
    (tmp_path / "later/999.js").write_text("of a larger report")
    html = report.page(tmp_path, runs)[0].read_text()
    data = json.loads(html.split('id="data">')[1].split("</script>")[0])
    assert not html.split('id="later">')[1].split("</script>")[0]
    files = [tmp_path / "later" / f"{name}.js" for name in data["files"]]
    assert {*files} == {*(tmp_path / "later").glob("*.js")}
    assert len(files) == -(-len(whole) // data["in_file"])
    decks = [json.loads(path.read_text()[15:-2]) for path in files]
    later = [json.loads(text) for texts in decks for text in texts]
    pictured = {**later[0], "slides": whole[0]["slides"]}
    assert [row["markdown"] for row in later] == [row["markdown"] for row in whole]
    assert named(data)[0] | pictured == whole[0]


def test_the_policy_allows_exactly_the_page_s_own_script_and_style(pages):
    import base64

    html = (pages / "one" / "index.html").read_text()
    for tag in ("style", "script"):
        text = html.split(f"<{tag}>")[1].split(f"</{tag}>")[0]
        assert (
            f"{tag}-src &#39;sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}&#39;"
            in html
        )
    assert "unsafe" not in html.split("<style>")[0]


def test_every_failure_class_of_the_records_keeps_its_name_on_the_page(small):
    records = [record for _, record in stream.records(small / "one" / "scores.jsonl")]
    runs = load([small / "one"])
    rows = shown_of(runs)[1]
    assert [row["fault"] and row["fault"]["class"] for row in rows] == [
        record["score"]["fault"] and record["score"]["fault"]["class"] for record in records
    ]
    assert all(row["reply"] is not None for row in rows if not row["slides"])


def test_the_page_begins_with_what_may_be_said_its_n_and_who_read_it(small, pages):
    runs = load([small / "one", small / "two"])
    html = (pages / "both" / "index.html").read_text().split("<body>")[1]
    (sentence,) = claims.compare(runs)["headlines"]
    assert html.index(sentence) < html.index("No model or person has read") < html.index("<article")
    assert "4 prompts" in html.split("<h1")[0]
    alone = (pages / "one" / "index.html").read_text()
    title = alone.split("<h1>")[1].split("</h1>")[0]
    assert f"The decks of one render for {tables.renders(runs[0])} requests. They pass" in title


def test_card_terminal_table_and_log_say_the_same_in_the_same_words(small):
    runs = load([small / "one", small / "two"])
    runs[1]["summary"]["partial"] = 2
    compared, found = claims.compare(runs), {}
    for title, _, rows, _ in tables.tables(runs, compared):
        found[title] = {row[0]: row for row in reversed(rows)}
    for run in runs:
        card, (drawn, counted) = report._card(run), rendering(run["summary"])
        said = rendered(run["summary"])
        assert card["renders"] == f"{drawn} of {counted}" == said.partition(", ")[0]
        (value, _, _), *_ = card["values"]
        (line,) = [
            one
            for one in tables.brief([run], compared).splitlines()
            if run["label"] in one and said in one
        ]
        assert value in line
        assert found["What happened"][run["label"]][1] == said
        assert found["Scores"][run["label"]][2] == card["renders"]
        assert found["Scores"][run["label"]][5].startswith(value)
    assert rendered(runs[1]["summary"]).endswith(", 2 with an error")
    assert report.STATES["partial"] == "with an error"


def test_of_many_models_the_page_begins_with_the_ranks_and_sentences_about_people_s_decks_come_last(
    small, tmp_path
):
    runs = load([small / "one", small / "two"])
    third, fourth = (
        load([synthetic.run(tmp_path / name, name, 0.7, 4)])[0] for name in ("aaa", "four")
    )
    third["summary"]["model"]["files"] = "data/reference/"
    runs = [{**run, "order": order} for order, run in enumerate([third, *runs])]
    said = report._headline(runs, claims.compare(runs))
    assert [("aaa" in line) for _, line in said["headlines"]] == [False]
    assert [("aaa" in line) for _, line in said["others"]][:2] == [True, True]
    runs.append({**fourth, "order": 3})
    compared = claims.compare(runs)
    said = report._headline(runs, compared)
    assert said["headlines"] == [(True, claims.ranked(compared))] and len(said["others"]) >= 6


def test_the_page_of_a_run_that_goes_on_says_how_far_it_is_compares_nothing_and_is_no_look(
    small, pages, tmp_path, monkeypatch
):
    shutil.copytree(pages / "both", tmp_path, dirs_exist_ok=True)
    monkeypatch.setattr(looks, "remember", lambda runs: pytest.fail("that is a look"))
    far = {"model": "two", "done": 4, "of": 6}
    page, _ = report.page(tmp_path, load([small / "one", small / "two"]), live=far)
    html = page.read_text()
    data = json.loads(html.split('id="data">')[1].split("</script>")[0])
    assert data["live"] == far and "two: 4 of 6 so far" in html
    assert 'id="comparison"' not in html and 'id="plots"' not in html and 'id="send"' not in html


def test_what_the_page_sends_is_the_single_file(pages):
    page, alone = ((pages / name).read_text() for name in ("one/index.html", "single/report.html"))
    sent = (pages / "one" / "send.js").read_text()
    assert json.loads(sent.removeprefix("report_file = ").removesuffix(";\n")) == alone
    assert 'id="send"' in page and 'id="send"' not in alone


def test_a_page_runs_no_script_of_the_disk_but_those_that_it_adds_by_its_own_key(pages):
    html = unescape((pages / "one" / "index.html").read_text())
    key = json.loads(html.split('id="data">')[1].split("</script>")[0])["key"]
    allowed = re.search(r"script-src ([^;]+);", html)[1].split()
    assert [one.partition("-")[0] for one in allowed] == ["'sha256", "'nonce"]
    assert allowed[1] == f"'nonce-{key}'" and f'"{key}"' in (pages / "one/version.js").read_text()


def test_a_report_too_large_to_be_mailed_offers_no_file(small, pages, tmp_path, monkeypatch):
    shutil.copytree(pages / "one", tmp_path, dirs_exist_ok=True)
    monkeypatch.setattr(report, "MAILED", 10)
    page, _ = report.page(tmp_path, load([small / "one"]))
    assert 'id="send"' not in page.read_text() and not (tmp_path / "send.js").exists()


def test_one_file_holds_every_picture_and_plot_and_asks_for_nothing_else(pages):
    assert [path.name for path in (pages / "single").iterdir()] == ["report.html"]
    html = (pages / "single/report.html").read_text()
    inside = json.loads(html.split('id="inside">')[1].split("</script>")[0])
    later = html.split('id="later">')[1].split("</script>")[0].split("\n")
    named = {slide["img"] for line in later for slide in json.loads(line)["slides"]}
    assert named == set(inside) and all(
        uri.startswith("data:image/avif;") for uri in inside.values()
    )
    assert "img-src data:;" in html and 'src="plots/' not in html and 'src="img/' not in html


def test_the_page_says_who_made_its_numbers_when_and_by_which_command_and_no_path_of_here(tmp_path):
    folder = synthetic.run(tmp_path / "results/runs/one/offline", "one", 0.6, 3)
    (run,) = load([folder])
    ((label, facts),) = report_data.origin([run])
    facts = dict(facts)
    assert label == "one"
    assert facts["command"] == "make baseline MODEL=one PROTOCOL=offline"
    assert facts["folder"] == "results/runs/one/offline"
    assert facts["when"] == "2026-01-01 10:00 to 10:00 UTC"
    assert run["protocol"]["hash"] in facts["protocol"]
    page, _ = report.page(tmp_path / "page", [run])
    assert str(tmp_path) not in page.read_text()


def test_pages_that_the_report_s_words_name_exist():
    template = (cli.ROOT / "assets/web/report.html.j2").read_text()
    pages = re.findall(r'word\(.*?"([a-z-]+\.md(?:#[a-z-]+)?)"', template)
    assert len(pages) > 10
    for page in pages:
        file, _, section = page.partition("#")
        titles = [
            line.lstrip("# ").lower().replace(" ", "-")
            for line in (cli.ROOT / "docs" / file).read_text().splitlines()
            if line.startswith("#")
        ]
        assert not section or section in titles, page


def test_what_the_checks_found_and_what_the_model_thought_reach_the_page(small):
    (run,) = load([small / "two"])
    record = next(one for one in run["records"] if (one.get("judge") or {}).get("findings"))
    row = next(one for one in shown_of([run])[1] if one["id"] == record["id"])
    assert row["findings"] == record["judge"]["findings"] and row["asked"]
    assert row["passed"] == record["judge"]["checks"] and row["worth"] == record["score"]["checks"]
    assert sum(row["failed"].values()) == len(row["findings"])
    assert row["reasoning"] == "Outline first."


def test_what_a_judge_that_reads_said_of_slides_reaches_the_page(tmp_path):
    (run,) = load([synthetic.run(tmp_path, "one", 1, 1, reads=True)])
    data, (row,) = shown_of([run])
    assert row["evidence"]["design"][0]["slide"] == 2 and row["observations"][0]["slide"] == 3
    assert row["worth"] == run["records"][0]["score"]["overall"] and data["good"] == "overall"
