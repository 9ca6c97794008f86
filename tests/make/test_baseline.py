"""`make baseline` as a user types it, against an endpoint on loopback."""

import contextlib
import json
import os
import pty
import shutil
import subprocess

import pytest
from shadow import ROOT, core, endpoint, environment, make

pytestmark = [pytest.mark.browser, pytest.mark.slow]

REGISTRY = (
    '[fake]\nlabel = "Fake"\ncolor = "#336699"\nbase_url = "{url}"\nslug = "fake"\njobs = 4\n'
)


@pytest.fixture
def root(tmp_path):
    server, url = endpoint(tmp_path, "--log", "asked.jsonl")
    folder = make(tmp_path / "root", core(4), REGISTRY.format(url=url))
    yield folder
    server.kill()


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A root with the report of four prompts, and what was said while it was made; to be copied, not changed."""
    place = tmp_path_factory.mktemp("finished")
    server, url = endpoint(place, "--log", "asked.jsonl")
    folder = make(place / "root", core(4), REGISTRY.format(url=url))
    done = baseline(folder)
    assert done.returncode == 0, done.stdout
    yield folder, done.stdout
    server.kill()


@pytest.fixture
def copied(finished, tmp_path):
    """A copy of that root; the log of its endpoint, which goes on for all copies, is linked."""
    shutil.copytree(finished[0], tmp_path / "root", symlinks=True)
    (tmp_path / "asked.jsonl").symlink_to(finished[0].parent / "asked.jsonl")
    return tmp_path / "root"


def baseline(folder, *settings, goal="baseline"):
    return subprocess.run(
        ["make", goal, "MODEL=fake", *settings],
        cwd=folder,
        env=environment(folder),
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def measured(folder, *settings):
    """`make baseline` as far as the scores and their means: without its comparison, plots and page, which take half of the time."""
    return baseline(folder, *settings, goal="results/runs/fake/offline/summary.json")


def asked(folder):
    log = folder.parent / "asked.jsonl"
    return len(log.read_text().splitlines()) if log.exists() else 0


def lines(folder, key):
    return len((folder / f"results/runs/fake/offline/journal/{key}.jsonl").read_text().splitlines())


def scores(folder, model="fake", under="offline"):
    kept = folder / f"results/runs/{model}/{under}/scores.jsonl"
    return [json.loads(line) for line in kept.read_text().splitlines()]


@pytest.mark.long("test_the_embedded_model_needs_no_key_and_no_network_and_is_asked_once")
def test_it_makes_a_report_once_and_then_has_nothing_to_do(finished):
    root, first = finished
    assert f"Open the report: file://{root}/results/reports/offline/index.html" in first
    assert [row["id"] for row in scores(root)] == [row["id"] for row in core(4)]
    assert all(row["score"]["checks"] for row in scores(root))
    page = root / "results/reports/offline/index.html"
    written = page.stat().st_mtime_ns
    second = baseline(root)
    assert second.returncode == 0
    # Nothing is made again; the comparison is said again, and that is all.
    assert second.stdout == first[first.index("run-compare: computed again") :]
    assert page.stat().st_mtime_ns == written and asked(root) == 4


@pytest.mark.long("test_the_embedded_model_needs_no_key_and_no_network_and_is_asked_once")
def test_a_larger_limit_asks_only_for_what_is_new_and_a_smaller_one_nothing(root):
    assert measured(root, "LIMIT=2").returncode == 0
    assert asked(root) == 2
    assert measured(root, "LIMIT=3").returncode == 0
    assert asked(root) == 3
    assert len(scores(root)) == 3
    assert measured(root, "LIMIT=1").returncode == 0
    assert measured(root, "LIMIT=3").returncode == 0
    assert asked(root) == 3
    assert len(scores(root)) == 3


@pytest.mark.long("test_a_file_of_prompts_that_is_not_there_is_named")
def test_other_prompts_have_a_run_of_their_own(copied):
    root = copied
    kept = scores(root)
    (root / "mine.txt").write_text("Six slides on tide pools for a school class\n")
    done = baseline(root, "PROMPTS=mine.txt")
    assert done.returncode == 0, done.stdout
    assert "1 lack a checklist, 1 lack theme" in done.stdout
    (mine,) = (path.name for path in (root / "results/runs/fake").glob("offline@mine.txt-*"))
    assert "1 request from mine.txt, line by line; first: Six slides on tide pools" in done.stdout
    assert f"results/reports/{mine}/index.html" in done.stdout
    assert len(scores(root, "fake", mine)) == 1
    assert scores(root) == kept
    listed = subprocess.run(
        ["make", "runs"], cwd=root, env=environment(root), text=True, capture_output=True
    ).stdout.splitlines()
    assert [line.split()[:3] for line in listed[1:-2]] == [
        ["fake", "offline", "4"],
        ["fake", mine, "1"],
    ]


def test_a_file_of_prompts_that_is_not_there_is_named(root):
    done = baseline(root, "PROMPTS=mine.txt")
    assert done.returncode != 0
    assert "there is no mine.txt; PROMPTS= names a file of requests, or a folder" in done.stdout


def priced(folder):
    with open(folder / "assets/models.toml", "a") as registry:
        registry.write("price = { prompt = 1, completion = 4 }\n")


def test_money_is_spent_only_where_somebody_agrees(root):
    priced(root)
    refused = baseline(root)
    assert refused.returncode != 0 and asked(root) == 0
    assert "fake: 4 replies, 1000 + 4000 tokens each (assumed): about 0.07 USD" in refused.stdout
    assert (
        "nothing was asked; YES=1 agrees to this, BUDGET=5 to at most 5 USD a model"
        in refused.stdout
    )
    assert asked(root) == 0  # what YES=1 asks: tests/make/test_conditions.py


@pytest.mark.long("test_money_is_spent_only_where_somebody_agrees")
def test_no_more_is_spent_than_the_budget(root):
    priced(root)
    broke = baseline(root, "BUDGET=0.0001")
    assert broke.returncode != 0 and "the budget of 0.0001 USD is used up" in broke.stdout
    assert asked(root) == 0


@pytest.mark.parametrize(
    "target",
    ["report", *(pytest.param(x, marks=pytest.mark.long) for x in ("vote", "plan", "capsule"))],
)
def test_what_reads_runs_never_asks_a_model(root, target):
    done = subprocess.run(
        ["make", target, "MODEL=fake"],
        cwd=root,
        env=environment(root),
        text=True,
        stdin=subprocess.DEVNULL,
        capture_output=True,
    )
    assert done.returncode != 0
    assert "`make baseline MODEL=fake PROTOCOL=offline` makes it" in done.stderr
    assert asked(root) == 0


@pytest.mark.long(
    "tests/core/test_stream.py::test_a_changed_input_is_done_again_and_an_unchanged_one_is_not"
)
def test_a_changed_limit_changes_the_scores_and_costs_neither_a_reply_nor_a_render(copied):
    root = copied
    before, rendered, replies = scores(root), lines(root, "render"), asked(root)
    assert replies >= 4
    offline = root / "assets/protocols"
    text = (offline / "offline.toml").read_text()
    offline.unlink()
    offline.mkdir()
    (offline / "offline.toml").write_text(text.replace("\nwords = 150", "\nwords = 1"))
    done = measured(root)
    assert done.returncode == 0, done.stdout
    assert asked(root) == replies and lines(root, "render") == rendered
    assert [row["score"]["checks"] for row in scores(root)] != [
        row["score"]["checks"] for row in before
    ]
    assert [row["render"] for row in scores(root)] == [row["render"] for row in before]


@pytest.mark.long(
    "tests/bin/chat-generate.bats::every row gets a reply, in order, with all its keys kept, and the endpoint's own names of the reply under by"
)
def test_a_dead_endpoint_fails_with_its_reason_and_the_next_run_completes(root):
    registry = (root / "assets/models.toml").read_text()
    (root / "assets/models.toml").write_text(
        REGISTRY.format(url="http://127.0.0.1:9/v1")
    )  # nobody listens there
    (root / "bin").unlink()
    (root / "bin").mkdir()
    for script in (ROOT / "bin").glob("[!_]*"):
        (root / "bin" / script.name).symlink_to(script)
    impatient = root / "bin/chat-generate"  # the default retries wait half a minute for it
    impatient.unlink()
    impatient.write_text(f'#!/bin/sh\nexec {ROOT}/bin/chat-generate --retries 1 "$@"\n')
    impatient.chmod(0o755)
    failed = measured(root, "LIMIT=1")
    assert failed.returncode != 0
    assert "1 infrastructure faults (run again)" in failed.stdout
    assert not (root / "results/runs/fake/offline/scores.jsonl").exists()
    (root / "assets/models.toml").write_text(registry)
    assert measured(root, "LIMIT=1").returncode == 0


def test_help_lists_the_targets_and_what_is_chosen():
    said = subprocess.run(
        ["make", "MODEL=gpt-5.4", "LIMIT=7"], cwd=ROOT, text=True, capture_output=True
    ).stdout
    assert "make baseline" in said and "make test" in said and "make doctor" in said
    assert "MODEL    = gpt-5.4" in said and "LIMIT    = 7" in said


@pytest.mark.long(
    "tests/bin/deck-judge.bats::the published protocol asks the judge with the pictures and records what it said"
)
def test_the_published_protocol_runs_over_an_api_that_misbehaves(tmp_path):
    rows = core(6)
    for row in rows:
        row["checklist"] = [{"id": "c1", "ask": "Is there a title?", "match": ["deck"]}]
    dimension = {"why": "plain", "evidence": [{"slide": 1, "seen": "a title"}]}
    verdict = {
        name: {**dimension, "score": score}
        for name, score in (("content", 2), ("design", 3), ("coherence", 4))
    }
    verdict |= {"observations": [], "checklist": [{"id": "c1", "yes": True, "slide": 1}]}
    (tmp_path / "verdict.json").write_text(json.dumps(verdict))
    faults = "429=0.2,500=0.15,drop=0.15,garbage=0.15,slow=0.1,think=0.1"
    writer, writer_url = endpoint(
        tmp_path, "--plan", faults, "--times", "2", "--storm", "4", "--log", "asked.jsonl"
    )
    judge, judge_url = endpoint(tmp_path, "--plan", faults, "--reply", "verdict.json")
    try:
        entry = '[{}]\nlabel = "X"\ncolor = "#336699"\nbase_url = "{}"\nslug = "x"\nkey_env = "SOME_KEY"\n'
        root = make(
            tmp_path / "root",
            rows,
            entry.format("gpt-x", writer_url) + entry.format("judge", judge_url),
        )
        command = ["make", "baseline", "MODEL=gpt-x", "PROTOCOL=published"]
        options = {
            "cwd": root,
            "text": True,
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.STDOUT,
        }
        keyless = subprocess.run(command, env=environment(root), **options)
        assert (
            keyless.returncode != 0
            and "set SOME_KEY in the environment or in .env" in keyless.stdout
        )
        done = subprocess.run(
            [*command, "YES=1"], env=environment(root, SOME_KEY="sk-not-to-be-seen"), **options
        )
        assert done.returncode == 0, done.stdout
        assert "sk-not-to-be-seen" not in done.stdout
        found = scores(root, "gpt-x", "published")
        assert [row["score"]["dimensions"] | {"viscraft": None} for row in found] == [
            {"viscraft": None, "design": 3, "content": 2, "coherence": 4}
        ] * 6
        assert len((tmp_path / "asked.jsonl").read_text().splitlines()) > 6
        protocol = json.loads((root / "results/runs/gpt-x/published/protocol.json").read_text())
        assert protocol["judge"]["slug"] == "x"
        kept = "".join(
            path.read_text(errors="replace")
            for path in (root / "results").rglob("*")
            if path.suffix in (".json", ".jsonl", ".html")
        )
        assert "sk-not-to-be-seen" not in kept
    finally:
        writer.kill()
        judge.kill()


def test_the_embedded_model_needs_no_key_and_no_network_and_is_asked_once(tmp_path):
    registry = (ROOT / "assets/models.toml").read_text()
    registry = registry.replace("max_tokens = 1024", "max_tokens = 200")  # a few slides are enough
    root = make(tmp_path / "root", core(1), registry)
    env = environment(
        root,
        HTTP_PROXY="http://127.0.0.1:9",
        HTTPS_PROXY="http://127.0.0.1:9",
        NO_PROXY="127.0.0.1",
    )
    how = {"cwd": root, "env": env, "text": True, "stdin": subprocess.DEVNULL}
    how |= {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    done = subprocess.run(["make", "baseline", "MODEL=smol-sft"], **how)
    assert done.returncode == 0, done.stdout
    page = root / "results/reports/offline/index.html"
    assert f"Open the report: file://{page}" in done.stdout
    (found,) = scores(root, "smol-sft")
    assert found["gen"]["text"] and found["render"]["slides"]
    assert found["judge"]["judge"] == "offline checks"
    written = page.stat().st_mtime_ns
    again = subprocess.run(["make", "baseline", "MODEL=smol-sft"], **how)
    # Nothing is made again; the comparison is said again, and that is all.
    assert again.stdout == done.stdout[done.stdout.index("run-compare: computed again") :]
    assert again.returncode == 0 and page.stat().st_mtime_ns == written


@pytest.mark.long(
    "tests/models/test_files.py::test_chat_generate_reads_a_folder_and_says_which_deck_is_missing"
)
def test_decks_of_a_folder_are_reported_beside_a_model_and_one_that_is_missing_is_named(copied):
    root = copied
    registry = root / "assets/models.toml"
    registry.write_text(
        registry.read_text()
        + '[mine]\nlabel = "Mine"\ncolor = "#993366"\nbase_url = "files:decks/"\nslug = "mine"\n'
    )
    (root / "decks").mkdir()
    rows = core(4)
    deck = "---\ntheme: default\n---\n\n# {}\n\n---\n\n# Two\n\n---\n\n# Three\n"
    for row in rows:
        (root / f"decks/{row['id']}.md").write_text(deck.format("One"))
    late = root / f"decks/{rows[1]['id']}.md"
    late.unlink()
    replies = asked(root)
    missing = baseline(root, "MODEL=fake mine")
    assert missing.returncode != 0
    assert f"{rows[1]['id']}: infra fault, no-file" in missing.stdout
    assert "nothing can be said: Mine: 1 of 4 decks have no score" in missing.stdout
    late.write_text(deck.format("Late"))
    done = baseline(root, "MODEL=fake mine")
    assert done.returncode == 0, done.stdout
    page = (root / "results/reports/offline/index.html").read_text()
    assert "8 decks: 4 by 1 model, 4 from a folder" in page
    found = scores(root, "mine")
    assert asked(root) == replies and [row["render"]["expected"] for row in found] == [3] * 4
    assert all(row["gen"]["usage"]["cost"] == 0 for row in found)


@pytest.mark.long(
    "tests/core/test_scripts.py::test_ctrl_c_in_a_pipeline_at_a_terminal_is_said_once"
)
def test_ctrl_c_at_a_terminal_is_two_lines_and_leaves_no_half_file(root):
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(root)
        settings = environment(root, DECKSMITH_RENDERS="off", OPEN="0")
        os.execvpe("make", ["make", "baseline", "MODEL=fake"], settings)
    said = ""
    with contextlib.suppress(OSError):  # how a terminal ends
        while data := os.read(terminal, 1 << 16):
            before, said = said, said + data.decode(errors="replace")
            if "answered" in said and "answered" not in before:
                os.write(terminal, b"\x03")
    assert os.waitpid(pid, 0)[1] != 0
    os.close(terminal)
    after = said.partition("^C")[2].replace("\033[K", "").replace("\r", "\n").split("\n")
    lines = [line for line in after if line and not line.startswith("fake/offline: ")]
    assert lines[0] == "run-report: interrupted; run the same command again to go on", said
    assert lines[1].startswith("make: *** [") and len(lines) == 2, said
    assert not [path for path in (root / "results").rglob("*") if ".tmp" in path.name]
