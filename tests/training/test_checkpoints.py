"""Checkpoints watched: each evaluated once, whatever dies, fails or goes away meanwhile. Commands are real ones, of /bin/sh."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading

import pytest
import waits
from decksmith.core import cli
from decksmith.train.training import checkpoints, curve

SCORE = """echo '{"raw_metrics":{"gsm8k":{"pass@1":{"num_entries":8,"symbolic_correct":0.'$CKPT_STEP',"std_err":0.1},"delegate":{"ok":1}}}}'"""


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "recipe.yaml").write_text("sft: {max_num_steps: 40}\n")
    return folder


@pytest.fixture(autouse=True)
def quick(request, monkeypatch):
    """The plot costs a second; where it is not looked at, a mark stands for it."""
    if "drawn" not in request.fixturenames:
        monkeypatch.setattr(curve, "draw", lambda out, lines: (out / "curve.png").touch())


@pytest.fixture
def drawn():
    """Asked for by a test that looks at the plot."""


def checkpoint(run, step, weights=None):
    """A finished checkpoint as both trainers leave it: written beside, then renamed."""
    made = run / f"checkpoints/tmp_step_{step}"
    for part in ("policy/weights/model", "policy/optimizer"):
        (made / part).mkdir(parents=True)
    (made / "policy/weights/model/adapter_model.safetensors").write_text(
        weights or f"weights of {step}"
    )
    (made / "policy/optimizer/state.pt").write_text("large")
    (made / "training_info.json").write_text(
        json.dumps(
            {"total_steps": step, "train:loss": float("nan"), "val:val_loss": 3.1 - step / 40}
        )
    )
    made.rename(run / f"checkpoints/step_{step}")


def watched(run, script, *, once=True, **more):
    told = []
    status = checkpoints.watch(
        run,
        ["/bin/sh", "-c", script],
        once=once,
        every=0.02,
        told=lambda line: told.append(json.loads(line)),
        **more,
    )
    assert [
        json.loads(line) for line in (run / "curve/curve.jsonl").read_text().splitlines()
    ] == sorted(
        (
            state
            for state in map(
                json.loads, (path.read_text() for path in (run / "curve").glob("step_*.json"))
            )
            if state.pop("failures") is not None
        ),
        key=lambda state: state["step"],
    )
    return status, told


def brief(told):
    return [
        (line["step"], line.get("gap") or line["metrics"]["gsm8k"]["pass@1"]["symbolic_correct"])
        for line in told
    ]


@pytest.mark.long(
    "tests/bin/ckpt-watch.bats::each checkpoint is evaluated once, the newest first, until the training's last one is; lines on stdout, a plot in the run"
)
@pytest.mark.slow
def test_each_checkpoint_is_evaluated_once_the_newest_first_and_the_curve_is_by_step(run, drawn):
    for step in (10, 30):
        checkpoint(run, step)
    (run / "checkpoints/tmp_step_35").mkdir()  # being written
    (run / "checkpoints/step_99").mkdir()  # nothing in it
    status, told = watched(run, f"echo $CKPT_STEP >> {run}/asked; echo chatter; {SCORE}")
    assert (status, brief(told)) == (0, [(30, 0.3), (10, 0.1)])
    assert [line["val_loss"] for line in told] == [3.1 - step / 40 for step in (30, 10)]
    assert (run / "curve/curve.png").read_bytes()[:4] == b"\x89PNG" and b"<svg" in (
        run / "curve/curve.svg"
    ).read_bytes()
    assert watched(run, "exit 1") == (0, [])  # nothing is left to do
    checkpoint(run, 40)
    assert brief(watched(run, f"echo $CKPT_STEP >> {run}/asked; {SCORE}")[1]) == [(40, 0.4)]
    assert (run / "asked").read_text().split() == ["30", "10", "40"]
    assert sorted(path.name for path in (run / "curve").iterdir() if path.is_dir()) == []


def test_the_command_gets_a_run_folder_of_this_checkpoint_alone_without_optimizer(run):
    (run / "data").mkdir()
    checkpoint(run, 10)
    checkpoint(run, 20)
    script = (
        f"cd $CKPT_RUN && find -L . -type f | sort > {run}/seen.$CKPT_STEP; cmp $CKPT_PATH/policy/weights/model/* {run}/checkpoints/step_$CKPT_STEP/policy/weights/model/*"
        f" && echo $CKPT_ID > {run}/id.$CKPT_STEP; {SCORE}"
    )
    assert watched(run, script)[0] == 0
    for step in (10, 20):
        assert (run / f"seen.{step}").read_text().split() == [
            f"./checkpoints/step_{step}/policy/weights/model/adapter_model.safetensors",
            f"./checkpoints/step_{step}/training_info.json",
            "./printed",
            "./recipe.yaml",
        ]
    assert (run / "id.10").read_text() != (run / "id.20").read_text()


@pytest.mark.long(
    "tests/bin/ckpt-watch.bats::each checkpoint is evaluated once, the newest first, until the training's last one is; lines on stdout, a plot in the run"
)
@pytest.mark.slow
def test_it_waits_for_checkpoints_and_ends_when_the_recipes_steps_are_done(run):
    checkpoint(run, 10)
    writes = f"""import sys, pathlib; sys.path.insert(0, {os.path.dirname(__file__)!r})
import test_checkpoints, time
time.sleep(1); test_checkpoints.checkpoint(pathlib.Path({str(run)!r}), 20); time.sleep(1); test_checkpoints.checkpoint(pathlib.Path({str(run)!r}), 40)"""
    trainer = subprocess.Popen(
        [sys.executable, "-c", writes],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        status, told = watched(run, SCORE, once=False)
    finally:
        trainer.kill()
    assert (status, brief(told)) == (0, [(10, 0.1), (20, 0.2), (40, 0.4)])


def test_what_the_trainer_prunes_is_kept_while_it_is_evaluated_and_a_gap_before(run):
    for step in (10, 20):
        checkpoint(run, step)
    script = f"rm -r {run}/checkpoints/step_10 {run}/checkpoints/step_20; cat $CKPT_PATH/policy/weights/model/* > {run}/read; {SCORE}"
    status, told = watched(run, script)
    assert (status, brief(told)) == (0, [(20, 0.2), (10, "pruned")])
    assert (run / "read").read_text() == "weights of 20"
    assert told[1]["message"] == "the trainer removed it (keep_top_k) before its turn"


def test_a_failure_is_tried_again_after_the_others_and_then_a_gap_that_can_be_tried_anew(
    run, capsys
):
    for step in (10, 20):
        checkpoint(run, step)
    status, told = watched(
        run,
        f"echo $CKPT_STEP >> {run}/asked; [ $CKPT_STEP = 10 ] || {{ echo no engine >&2; exit 69; }}; {SCORE}",
    )
    assert (status, brief(told)) == (75, [(10, 0.1), (20, "failed")])
    assert (run / "asked").read_text().split() == ["20", "10", "20", "20"]
    assert (told[1]["message"], told[1]["attempts"]) == ("ended with status 69: no engine", 3)
    assert f"rm {run}/curve/step_20.json" in capsys.readouterr().err
    assert watched(run, SCORE) == (75, [])
    (run / "curve/step_20.json").unlink()
    assert brief(watched(run, SCORE)[1]) == [(20, 0.2)]


@pytest.mark.parametrize(
    ("script", "gap", "message", "attempts"),
    [
        ("exit 65", "refused", "ended with status 65", 1),
        ("echo no JSON", "failed", "printed no metrics (a JSON object)", 3),
        ("echo '{\"a\": NaN}'", "failed", "printed no metrics (a JSON object)", 3),
        (
            'echo \'{"raw_metrics": {"gsm8k": {"delegate": {"ok": 0}}}}\'; exit 1',
            "failed",
            "ended with status 1",
            3,
        ),
        ("kill -9 $$", "failed", "was killed", 3),
        (f"{SCORE}; echo more", "failed", "printed no metrics (a JSON object)", 3),
    ],
)
def test_gaps_have_names(run, script, gap, message, attempts):
    checkpoint(run, 10)
    status, told = watched(run, script)
    assert (status, told[0]["gap"], told[0]["message"], told[0]["attempts"]) == (
        75,
        gap,
        message,
        attempts,
    )


def test_a_part_of_the_metrics_is_asked_again_for_the_rest_and_kept_if_that_does_not_come(run):
    checkpoint(run, 10)
    status, told = watched(run, f"{SCORE}; exit 1")
    assert (status, brief(told), told[0]["partial"], told[0]["attempts"]) == (
        0,
        [(10, 0.1)],
        True,
        3,
    )


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("exit 2", r"was called wrongly \(status 2\)"),
        ("no-such-command", r"is not there \(status 127\): .*no-such-command.*not found"),
        ("echo key >&2; exit 78", r"is configured wrongly \(status 78\): key"),
    ],
)
def test_a_command_that_is_wrong_whatever_the_checkpoint_ends_the_watch_and_notes_nothing(
    run, script, said
):
    checkpoint(run, 10)
    with pytest.raises(cli.BadConfig, match=said):
        checkpoints.watch(run, ["/bin/sh", "-c", script], once=True, every=0.02)
    assert brief(watched(run, SCORE)[1]) == [(10, 0.1)]


def test_metrics_are_the_last_object_over_several_lines_too(tmp_path):
    path = tmp_path / "printed"
    path.write_text(
        '{"manifest": {"x": 1}}\nnoise {\n'
        + json.dumps({"status": "done", "raw_metrics": {"a": {"pass@1": {"s": 0.5}}}}, indent=2)
        + "\n"
    )
    assert checkpoints.read_metrics(path) == {"a": {"pass@1": {"s": 0.5}}}
    path.write_text('{"a": 0.25, "b": {"c": 1}}')
    assert checkpoints.read_metrics(path) == {"a": 0.25, "b": {"c": 1}}


def test_a_checkpoint_that_is_another_under_the_same_name_is_evaluated_anew(run, capsys):
    checkpoint(run, 10)
    watched(run, SCORE)
    shutil.rmtree(run / "checkpoints")
    checkpoint(run, 10, "others")
    assert brief(watched(run, SCORE)[1]) == [(10, 0.1)]
    assert "Has the training begun anew?" in capsys.readouterr().err
    info = run / "checkpoints/step_10/training_info.json"
    info.write_text(
        info.read_text().replace("}", ', "more": 1}')
    )  # validated later: the weights are the same
    assert watched(run, SCORE) == (0, [])


def test_what_it_waits_for_is_said_once_and_at_once(run, capsys):
    thread = threading.Thread(target=watched, args=(run, SCORE), kwargs={"once": False})
    thread.start()
    said = ""

    def until(words):
        def is_said():
            nonlocal said
            said += capsys.readouterr().err
            return words in said

        waits.until(is_said)

    until(
        f"waiting for the first checkpoint in {run}/checkpoints: a look every 0.02 s, Ctrl-C ends it"
    )
    checkpoint(run, 20)
    until("waiting for the checkpoint after step 20 in ")
    checkpoint(run, 40)
    thread.join()
    assert (said + capsys.readouterr().err).count("waiting for") == 2


def test_without_checkpoints_once_says_so_and_a_second_watcher_is_refused(run):
    with pytest.raises(cli.Missing, match="no finished checkpoint in"):
        checkpoints.watch(run, ["true"], once=True)
    with pytest.raises(cli.Missing, match="there is no"):
        checkpoints.watch(run / "none", ["true"])
    checkpoint(run, 10)
    status, told = watched(
        run,
        f'PYTHONPATH={cli.ROOT}/lib {sys.executable} -c \'from pathlib import Path; from decksmith.train.training import checkpoints; checkpoints.watch(Path("{run}"), ["true"])\' 2> {run}/said; {SCORE}',
    )
    assert status == 0 and "another ckpt-watch works in" in (run / "said").read_text()


def start(run, script):
    """The script itself, as a process of its own."""
    return subprocess.Popen(
        [
            cli.ROOT / "bin/ckpt-watch",
            "--once",
            "--every",
            "0.05",
            run,
            "--",
            "/bin/sh",
            "-c",
            script,
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"IMAGES": "off"},
    )


@pytest.mark.long(
    "tests/bin/ckpt-watch.bats::each checkpoint is evaluated once, the newest first, until the training's last one is; lines on stdout, a plot in the run"
)
@pytest.mark.slow
def test_beside_the_command_of_a_killed_watcher_no_second_one_begins(run):
    checkpoint(run, 10)
    script = f"echo $CKPT_STEP >> {run}/asked; until [ -e {run}/go ]; do sleep 0.05; done; {SCORE}"
    first = start(run, script)
    waits.until((run / "asked").exists)
    first.kill()
    first.communicate()
    _, err = start(run, script).communicate()  # the command of before still runs
    assert "or a command that it began; wait for it" in err
    (run / "go").touch()

    def is_done():
        out, _ = start(run, script).communicate()
        return brief(map(json.loads, out.splitlines())) == [(10, 0.1)]

    waits.until(is_done)
    assert (run / "asked").read_text().split() == ["10", "10"]


@pytest.mark.slow
def test_a_signal_ends_the_command_with_all_it_started_and_is_no_failure(run):
    checkpoint(run, 10)
    deaf = "sh -c 'trap : TERM; echo $$ > child; while :; do sleep 1; done' &"
    process = start(run, f"cd {run}; {deaf} trap 'exit 1' TERM; wait")
    waits.until(lambda: (run / "child").exists() and (run / "child").read_text())
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=waits.HANG)
    assert (process.returncode, out) == (130, "") and "run the same command again to go on" in err
    stat = f"/proc/{(run / 'child').read_text().strip()}/stat"
    waits.until(lambda: not os.path.exists(stat) or open(stat).read().split()[2] == "Z")
    status, told = watched(run, SCORE)
    assert (brief(told), told[0]["attempts"]) == ([(10, 0.1)], 1)


def test_where_the_file_system_has_no_links_the_checkpoint_itself_is_shown(run, monkeypatch):
    def refuse(*_, **__):
        raise OSError(18, "Invalid cross-device link")

    checkpoint(run, 10)
    monkeypatch.setattr(os, "link", refuse)
    status, told = watched(run, f"cat $CKPT_PATH/policy/weights/model/* >&2; {SCORE}")
    assert (status, brief(told)) == (0, [(10, 0.1)])
    assert (run / "checkpoints/step_10/training_info.json").exists()
    assert "weights of 10" in (run / "curve/step_10.log").read_text()


def test_the_headline_of_a_benchmark_is_its_first_score_and_subsets_have_no_panel():
    aime = {
        "pass@1[avg-of-8]": {"num_entries": 30, "symbolic_correct": 0.4, "std_err": 0.05},
        "pass@8": {"symbolic_correct": 0.9},
        "delegate": {"ok": 1},
    }
    assert curve.headline(aime) == ("pass@1[avg-of-8] symbolic_correct", 0.4, 0.05)
    assert curve.headline({"delegate": {"ok": 0}}) is None
    assert curve.headline(0.5) == ("", 0.5, None)
    assert curve.headline({"accuracy": 0.5}) == ("accuracy", 0.5, None)
    assert (
        curve.headline(True) is None
        and curve.headline("0.5") is None
        and curve.headline(float("nan")) is None
    )
    metrics = {"mmlu": aime, "mmlu-law": {"pass@1": {"symbolic_correct": 1}}, "mmlu-pro": aime}
    assert list(curve.benchmarks(metrics)) == ["mmlu", "mmlu-pro"]


def test_a_panel_names_the_mode_and_the_score_of_its_benchmark(drawn):
    from decksmith.measure.results import plots

    lines = [
        {
            "step": step,
            "val_loss": 2,
            "metrics": {
                "gsm8k": {"pass@1": {"num_entries": 100, "s": 0.1 * step, "std_err": 0.05}}
            },
        }
        for step in (3, 5, 4)
    ]
    with plots.style() as tone:
        figure = curve.figure(tone, lines)
        said = [text.get_text() for axes in figure.axes for text in axes.texts]
    assert said == ["pass@1 s", "nats a token"]


@pytest.mark.long("test_a_panel_names_the_mode_and_the_score_of_its_benchmark")
def test_equal_curves_give_equal_bytes_and_only_gaps_can_be_drawn(tmp_path, drawn):
    lines = [
        {
            "step": step,
            "metrics": {
                f"bench{n}": {"pass@1": {"s": 0.1 * step, "std_err": 0.02}} for n in range(4)
            },
            "val_loss": 2.0,
        }
        for step in (1, 3)
    ]
    lines.insert(1, {"step": 2, "gap": "failed"})
    for name in "ab":
        curve.draw(tmp_path / name, lines)
    assert (tmp_path / "a/curve.svg").read_bytes() == (tmp_path / "b/curve.svg").read_bytes()
    odd = {"$x^{": {"$a$": {"\n\x00": 1e300, "y": -5}}, "b" * 500: 0.5}
    curve.draw(tmp_path / "c", [lines[1], {"step": 3, "metrics": odd}])
    assert re.search("<svg", (tmp_path / "c/curve.svg").read_text())
