"""Looks at runs are counted and remembered, and comparisons can be written down before."""

import json
import multiprocessing
import os
import random
import re
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import pytest
from decksmith.core import cli, stream
from decksmith.core.protocol import Protocol
from decksmith.measure.judging import scoring
from decksmith.measure.results import looks, report
from decksmith.measure.results.runs import load

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "web"))
import bench_stats  # noqa: E402
import synthetic  # noqa: E402
import waits

pytestmark = pytest.mark.slow


def record(index, model, overall, slug=None, at=None, fails=False):
    row = {key: value for key, value in synthetic.prompt(index).items() if key != "checklist"}
    row["gen"] = {
        "text": "x",
        "finish_reason": "stop",
        "usage": {},
        "model": {"name": model, "slug": slug or model, "params": {}},
        "by": {"at": at, "took": 1} if at else {},
    }
    row["render"] = {"status": "ok", "slides": ["p/1.png", "p/2.png", "p/3.png"], "errors": []}
    row["judge"] = {
        "judge": "offline checks",
        "checks": {"passed": round(100 * overall / 5), "of": 100},
        "findings": [],
        "asked": [],
        "not_checked": {},
        "usage": {},
        "checklist": [],
    }
    if fails:
        row["render"] = {
            "status": "failed",
            "error": {"kind": "model", "class": "x", "message": "x"},
        }
    return {**row, "score": scoring.score(Protocol.load("offline"), row)}


@pytest.fixture
def runs(tmp_path):
    """Write runs over the first `n` prompts, by the hashes of their ids, and load them."""

    def write(n, *names, shift=0.0, slug=None):
        ids = sorted((f"p{index + 1:03d}" for index in range(200)), key=stream.shuffled)[:n]
        for name in names:
            more = shift if name == names[0] else 0
            values = {
                ident: 3 + more + random.Random(f"{name}{ident}").gauss(0, 0.4) for ident in ids
            }
            synthetic.write(
                tmp_path / name,
                [
                    record(int(ident[1:]) - 1, name, value, slug if more else None)
                    for ident, value in values.items()
                ],
            )
        return load([tmp_path / name for name in names])

    return write


def said(loaded, **how):
    return looks.remember(loaded, **how)["said"]


# Counting


def test_looks_at_two_models_are_counted_with_their_prompts_and_what_that_means(runs):
    assert said(runs(12, "a", "b")) == [looks.FIRST_LOOK]
    assert (
        said(runs(30, "a", "b"))[0]
        == "Second comparison of a and b under this protocol (12, 30 prompts)"
    )
    assert said(runs(60, "a", "b")) == [
        "Third comparison of a and b under this protocol (12, 30, 60 prompts)",
        "A 95 % interval and its test are right for one look: of 3, at least one separates two equal models with a chance of up to "
        "14 %",
    ]


def test_the_same_numbers_again_are_no_new_look_whatever_looks(runs, tmp_path):
    loaded = runs(12, "a", "b")
    first = said(loaded)
    assert said(loaded) == said(load([tmp_path / "b", tmp_path / "a"])) == first
    report.page(tmp_path / "page", loaded)
    assert len((tmp_path / "a/journal/looks.jsonl").read_bytes().splitlines()) == 1
    assert f'<li class="open">{first[0]}.</li>' in (tmp_path / "page/index.html").read_text()


def test_other_replies_to_the_same_prompts_are_a_look(runs):
    said(runs(12, "a", "b"))
    assert (
        said(runs(12, "a", "b", shift=0.1))[0]
        == "Second comparison of a and b under this protocol (12, 12 prompts)"
    )


def test_a_deck_that_renders_no_more_is_another_look_where_its_checks_were_not_compared_anyway(
    runs, tmp_path
):
    said(runs(12, "a", "b"))
    for name in "ab":  # of one prompt no deck of either renders
        rows = [record(index, name, 3.0, fails=index == 0) for index in range(12)]
        synthetic.write(tmp_path / name, rows)
    both = [tmp_path / "a", tmp_path / "b"]
    said(load(both))
    rows[0] = record(0, "b", 3.0)
    synthetic.write(tmp_path / "b", rows)
    assert said(load(both))[0].startswith("Third comparison of a and b")


def test_either_folder_remembers_for_both(runs, tmp_path):
    said(runs(12, "a", "b"))
    (tmp_path / "a/journal/looks.jsonl").unlink()
    assert said(runs(30, "a", "b"))[0].startswith("Second comparison of a and b")
    (tmp_path / "b/journal/looks.jsonl").unlink()
    assert (
        said(runs(60, "a", "b"))[0]
        == "Second comparison of a and b under this protocol (30, 60 prompts)"
    )


def test_another_protocol_begins_anew(runs):
    said(runs(12, "a", "b"))
    loaded = runs(30, "a", "b")
    for run in loaded:
        run["protocol"]["judge"] = {"kind": "other"}
    assert said(loaded) == [looks.FIRST_LOOK]


def test_checkpoints_compared_with_their_base_one_by_one_are_counted_together(runs):
    for step in range(1, 10):
        said(runs(12, "tuned", "base", slug=f"step-{step}", shift=step / 100))
    _, others, error = said(runs(12, "tuned", "base", slug="step-10", shift=0.1))
    assert others == "Base was compared with 9 others named Fine-tuned under this protocol too"
    assert "of 10, at least one separates two equal models with a chance of up to 40 %" in error


def test_several_models_in_one_comparison_are_one_look_because_their_tests_are_corrected_together(
    runs,
):
    assert said(runs(12, "a", "b", "c")) == [looks.FIRST_LOOK]


def test_scores_of_another_tool_have_no_memory_and_that_is_said(tmp_path):
    path = tmp_path / "theirs.jsonl"
    path.write_text(
        "".join(
            json.dumps(
                {
                    "model": model,
                    "id": f"p{n}",
                    "scores": {"x": value + n / 10},
                    "rendered": True,
                    "error_kind": None,
                }
            )
            + "\n"
            for n in range(8)
            for model, value in (("a", 4), ("b", 3))
        )
    )
    assert said(load([path])) == [
        "A 95 % interval and its test are right for one look; looks at files of scores are not counted"
    ]
    assert [one.name for one in tmp_path.iterdir()] == ["theirs.jsonl"]


def test_one_run_is_no_comparison(runs):
    assert said(runs(12, "a")) == []


def _as_nobody(folders, done):
    if os.getuid() == 0:
        os.setegid(65534)
        os.seteuid(65534)
    done.put(said(load(folders)))


def test_folders_that_cannot_be_written_are_read_and_what_is_forgotten_is_said(runs, tmp_path):
    said(runs(12, "a", "b"))
    runs(30, "a", "b")
    with tempfile.TemporaryDirectory() as place:  # pytest's own folders are closed to others
        folders = [shutil.copytree(tmp_path / name, Path(place, name)) for name in "ab"]
        for path in (Path(place), *folders, *(folder / "journal" for folder in folders)):
            path.chmod(0o555)
        for path in Path(place).rglob("*.json*"):
            path.chmod(0o444)
        context = multiprocessing.get_context("fork")
        done = context.Queue()
        child = context.Process(target=_as_nobody, args=(folders, done))
        child.start()
        found = done.get(timeout=waits.HANG)
        child.join()
        for path in (Path(place), *folders, *(folder / "journal" for folder in folders)):
            path.chmod(0o755)
    assert found[0] == "Second comparison of a and b under this protocol (12, 30 prompts)"
    assert found[-1] == f"This look was not remembered: {place}/a and {place}/b cannot be written"


def test_a_torn_line_and_lines_that_are_no_look_are_passed_over(runs, tmp_path):
    said(runs(12, "a", "b"))
    for name in "ab":
        path = tmp_path / name / "journal/looks.jsonl"
        whole = path.read_bytes()
        path.write_bytes(
            b'null\n{"id":"x","inputs":"y","look":7}\n{"look":{}}\n' + whole + whole[:40]
        )
    assert (
        said(runs(30, "a", "b"))[0]
        == "Second comparison of a and b under this protocol (12, 30 prompts)"
    )


def _look_for_ever(folders, began):
    began.set()
    while True:
        for path in (folders[0] / "journal", folders[1] / "journal"):
            (path / "looks.jsonl").unlink(missing_ok=True)
        looks.remember(load(folders))


@pytest.mark.long(
    "tests/core/test_stream.py::test_killed_at_random_moments_it_finishes_and_repeats_nothing"
)
def test_a_look_that_is_killed_or_meets_another_leaves_journals_that_count(runs, tmp_path):
    runs(12, "a", "b")
    context, folders = multiprocessing.get_context("fork"), [tmp_path / "a", tmp_path / "b"]
    for seed in range(6):
        began = context.Event()
        child = context.Process(target=_look_for_ever, args=(folders, began))
        child.start()
        assert began.wait(waits.HANG)
        child.join(0.05 + random.Random(seed).random() / 10)
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        assert said(load(folders))[0] == looks.FIRST_LOOK
    together = [
        context.Process(target=looks.remember, args=(load(folders if at % 2 else folders[::-1]),))
        for at in range(4)
    ]
    runs(30, "a", "b")
    together += [context.Process(target=looks.remember, args=(load(folders),)) for _ in range(4)]
    for child in together:
        child.start()
    for child in together:
        child.join(waits.HANG)
        assert child.exitcode == 0
    assert said(load(folders))[0].startswith("Second comparison of a and b")
    assert all(
        len((folder / "journal/looks.jsonl").read_bytes().splitlines()) == 2 for folder in folders
    )


def test_the_chance_of_a_false_finding_grows_as_is_said():
    found = bench_stats.again((0.2, 0.2), "half passed", repeats=400)
    bound = [looks.false_chance(k) for k in (1, 2, 3, 4)]
    assert 0.06 < found[-1] < bound[-1] == pytest.approx(1 - 0.95**4)
    assert all(
        share < most + 0.02 for share, most in zip(found, bound, strict=True)
    )  # the standard error is 0.011


# What was written down before


@pytest.fixture
def folders(tmp_path):
    """Two folders of runs to come, with their prompts, named as models of the registry."""
    for name in ("smol", "base"):
        asks(tmp_path / name)
    return [tmp_path / "smol", tmp_path / "base"]


def asks(folder, n=12):
    stream.write(
        folder / "prompts.jsonl",
        "".join(
            json.dumps(synthetic.prompt(index) | {"checklist": None}) + "\n" for index in range(n)
        ),
    )


def written(folders):
    return looks.register(folders, Protocol.load("offline"))


def finish(folders, n=12, at="2099-01-01T00:00:00+00:00", **slugs):
    for folder, shift in zip(folders, (0.3, 0), strict=True):
        slug = slugs.get(
            folder.name,
            json.loads((folder / looks.REGISTERED).read_text())["models"][folders.index(folder)][
                "slug"
            ],
        )
        asks(folder, n)
        synthetic.write(
            folder,
            [record(index, folder.name, 3 + shift + index / 30, slug, at) for index in range(n)],
        )
    return said(load(folders))[0]


def test_a_comparison_that_kept_to_what_was_written_down_says_so(folders):
    found = written(folders)
    assert (found["n"], found["measure"]) == (12, "checks")
    assert [model["name"] for model in found["models"]] == ["smol", "base"] and found["protocol"][
        "prompts"
    ]["sha256"]
    assert (
        finish(folders)
        == f"As registered before the first reply, on {found['at'][:10]}: renders, and Checks passed where both do, 12 prompts"
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"n": 9}, "prompts.count: 12 != 9; prompts.sha256: "),
        ({"smol": "another"}, r"SmolLM2 135M: slug .* != another"),
        ({"at": "2020-01-01T00:00:00+00:00"}, "Base has replies from before 20"),
    ],
)
def test_one_that_did_not_says_how(folders, change, words):
    written(folders)
    found = finish(folders, **change)
    assert found.startswith("Not as registered on 20") and re.search(words, found)


def test_a_second_look_and_a_third_model_are_not_as_registered(folders, tmp_path):
    written(folders)
    finish(folders)
    synthetic.write(
        folders[0],
        [record(index, "smol", 3.9, "smol", "2099-01-01T00:00:00+00:00") for index in range(12)],
    )
    assert "one look was registered, and there were 2" in said(load(folders))[0]
    synthetic.write(tmp_path / "glm-5.1", [record(index, "glm-5.1", 3.1) for index in range(12)])
    assert "GLM-5.1 was not registered" in said(load([*folders, tmp_path / "glm-5.1"]))[0]


def test_nothing_is_registered_once_a_reply_is_there_or_where_the_prompts_are_not(folders):
    with pytest.raises(cli.BadData, match="name the folders of both"):
        written(folders[:1])
    stream.write(folders[1] / "journal/gen.jsonl", '{"id":"p001"}\n')
    with pytest.raises(cli.BadData, match="base/journal/gen.jsonl: replies are there already"):
        written(folders)
    (folders[1] / "journal/gen.jsonl").unlink()
    asks(folders[0], 1)
    with pytest.raises(cli.BadData, match="do not hold the same prompts: prompts.count: 1 != 12"):
        written(folders)
    (folders[0] / "prompts.jsonl").unlink()
    with pytest.raises(cli.Missing, match="prompts.jsonl MODEL=smol"):
        written(folders)
    assert not any((folder / looks.REGISTERED).exists() for folder in folders)


def test_a_registration_that_was_broken_is_named(folders):
    written(folders)
    finish(folders)
    (folders[0] / looks.REGISTERED).write_text("{}")
    with pytest.raises(
        cli.BadData, match="smol/registered.json: not what run-plan --register writes"
    ):
        said(load(folders))
