"""Single scripts in a shell: what they say of input that is none, at a terminal, behind a link, and at Ctrl-C."""

import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from decksmith.core import cli

pytestmark = pytest.mark.slow

BIN = cli.ROOT / "bin"
PROMPTS = cli.ROOT / "data/prompts.jsonl"
SCRIPTS = sorted(path.name for path in BIN.glob("*-*"))
ENV = {**os.environ, "IMAGES": "off"}
# The filters, and what each wants beside its input; `r` and `o` are folders that are not there.
FILTERS = {
    "bench-grade": [],
    "bench-overlap": ["--train", PROMPTS, "--lexical"],
    "bench-prompt": [],
    "bench-summarize": [],
    "chat-generate": ["--model", "smol"],
    "chat-overlap": ["--lexical", "--against", PROMPTS],
    "chat-prefer": ["--lexical"],
    "chat-split": ["--out", "o"],
    "deck-build": [],
    "deck-choose": ["--condition", "best-of-4"],
    "deck-illustrate": [],
    "deck-judge": [],
    "deck-parse": [],
    "deck-render": [],
    "deck-revise": ["--model", "smol", "--condition", "revise", "--run", "r"],
    "deck-reward": [],
    "deck-scan": [],
    "deck-score": [],
    "deck-xray": [],
    "draft-check": ["--no-render"],
    "draft-pack": [],
    "env-export": ["--kind", "verifiers", "--out", "o"],
    "prompt-check": [],
    "record-sample": [],
    "run-merge": ["--run", "r"],
    "run-report": ["--out", "o", "--during", "r", "r"],
    "run-summarize": [],
    "seed-author": ["--author", "true"],
}
NO_RECORDS = (b"not json\n", b"[]\n", b"{}\n", b"\x00\xff", b"\x80" * 99)
WORDS = {"prompt-check": (b"not json\n",)}  # a line in plain words is what it takes
# The status where no record comes: 65 (it cannot go on), 75 (a part may still come), else 0.
NOTHING = {
    "bench-summarize": 65,
    "chat-split": 65,
    "env-export": 65,
    "prompt-check": 65,
}
NOTHING |= {"record-sample": 65, "run-merge": 75, "run-summarize": 65}


def started(name, *options, **more):
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([BIN / name, *options], **{**pipes, "env": ENV, **more})


def is_filter(name):
    """Whether the help of a script shows something piped or redirected into it."""
    doc = (BIN / name).read_text().split('"""')[1]
    return re.search(rf"\| *{name}\b|(?<![\w-]){name}\b[^|\n]*<", doc)


def test_the_table_has_every_filter():
    assert {name for name in SCRIPTS if is_filter(name)} == set(FILTERS)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if n % 4 == 0 else pytest.mark.long)
        for n, name in enumerate(FILTERS)
    ],
)
def test_what_is_no_record_is_refused_by_line(name, tmp_path):
    # Each gets one of them, in turn: all read by stream.records (tests/core/test_stream.py).
    # Nothing at all is given to those that cannot go on, and to every fifth of the others.
    turn = [*FILTERS].index(name)
    bad = [data for data in NO_RECORDS if data not in WORDS.get(name, ())]
    given = [bad[turn % len(bad)]] + [b""] * (name in NOTHING or turn % 5 == 0)
    at_once = [started(name, *FILTERS[name], cwd=tmp_path) for _ in given]
    for data, process in zip(given, at_once, strict=True):
        out, said = process.communicate(data)
        said = said.decode()
        assert "Traceback" not in said
        assert all(line.startswith(f"{name}: ") for line in said.splitlines()), said
        if data:
            assert (process.returncode, out) == (65, b""), (data, said)
            assert said.startswith(f"{name}: stdin:1: "), said
            assert "; usage: " in said, said
        else:
            assert process.returncode == NOTHING.get(name, 0), said
            assert re.search("no record|no part|no prompt|no request", said), said
    assert not list(tmp_path.rglob("*.tmp"))


@pytest.mark.parametrize(
    "name",
    [
        "deck-score",
        *(
            pytest.param(x, marks=pytest.mark.long)
            for x in ("deck-judge", "deck-xray", "deck-reward")
        ),
    ],
)
def test_markdown_where_records_are_wanted_is_answered_with_the_command(name, tmp_path):
    process = started(name, cwd=tmp_path)
    said = process.communicate(b"# One\n\n---\n\n# Two\n")[1].decode()
    assert process.returncode == 65
    assert said.startswith(f"{name}: stdin is markdown, not a record: deck-render deck.md"), said
    assert said.rstrip().endswith(f"| {name}"), said


def at_terminal(*command):
    """A command at a terminal of its own: (its process, the terminal)."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(command[0], list(map(str, command)), ENV)
    return pid, terminal


def said_at(terminal, wanted=None):
    """What is said there up to `wanted`, or to the end."""
    said = ""
    with contextlib.suppress(OSError):  # how a terminal ends
        while wanted is None or wanted not in said:
            data = os.read(terminal, 1 << 16)
            said += data.decode(errors="replace")
    return said


@pytest.mark.parametrize(
    "name",
    [
        "deck-parse",
        "prompt-check",
        *(pytest.param(x, marks=pytest.mark.long) for x in ("bench-prompt", "record-sample")),
    ],
)
def test_a_filter_at_a_terminal_says_that_it_waits_and_for_what(name):
    pid, terminal = at_terminal(BIN / name)
    said = said_at(terminal, "\n")
    assert said.startswith(f"{name}: waiting for lines on stdin (Ctrl-D ends them); usage: "), said
    assert name in said.partition("usage: ")[2]
    os.write(terminal, b"\x04")  # Ctrl-D, once
    assert re.search("no record|no request", said_at(terminal))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == NOTHING.get(name, 0)
    os.close(terminal)


@pytest.mark.parametrize(
    "name", ["deck-parse", pytest.param("bench-prompt", marks=pytest.mark.long)]
)
def test_a_filter_that_is_given_something_does_not_wait_aloud(name):
    assert b"waiting" not in started(name).communicate(b"")[1]


LINK = "ln -s {bin}/record-sample x"


@pytest.mark.parametrize(
    ("linked", "typed"),
    [
        ("ln -s {bin}/record-sample x && ln -s x y", "./y"),
        ("ln -s $(realpath --relative-to . {bin})/record-sample x", "./x"),
        ("ln -s {bin}/record-sample x", "PATH=$PWD:$PATH && cd / && x"),
        ("ln -s {bin}/within x", "./x tools record-sample"),
        *(
            pytest.param(*case, marks=pytest.mark.long)
            for case in (
                ("ln -s {bin}/record-sample x", "./x"),
                ("ln -s {bin} x", "x/record-sample"),
                ("ln -s {bin} x", "cd x && ./record-sample"),
                ("ln -s {bin}/record-sample x", "PATH=:$PATH && x"),
                ("ln -s {bin}/record-sample x", "bash -c \"exec '$PWD/x'\""),
            )
        ),
    ],
)
def test_a_script_works_through_links_and_says_its_own_name(tmp_path, linked, typed):
    place = tmp_path / "a folder"
    place.mkdir()
    command = f"{linked.format(bin=BIN)} && {typed}"
    env = {**ENV, "PATH": f"{BIN}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["sh", "-c", command], cwd=place, env=env, input=b"1", capture_output=True
    )
    assert done.stderr.decode().startswith("record-sample: stdin:1: not a JSON object"), done
    assert done.returncode == 65


def test_first_lines_find_the_house_through_links_and_fit_an_old_kernel():
    line = """#!/usr/bin/env -S sh -c 's=$(readlink -f "$0"); exec "${s%/*}/within" IMAGE python3 "$s" "$@"'"""
    for name in SCRIPTS:
        first = (BIN / name).read_text().partition("\n")[0]
        image = first.partition('within" ')[2].partition(" ")[0]
        assert first == line.replace("IMAGE", image), name
        assert image == "host" or (cli.ROOT / f"containers/{image}.def").is_file(), name
        assert len(first) < 127, name  # before Linux 5.1 the rest is cut off


@pytest.mark.parametrize(
    "script",
    [
        "bin/record-sample",
        "bin/within",
        "containers/build",
        *(pytest.param(f"containers/{x}", marks=pytest.mark.long) for x in ("verify", "pin")),
    ],
)
def test_h_is_help(script):
    said = [
        subprocess.check_output([cli.ROOT / script, flag], env=ENV) for flag in ("-h", "--help")
    ]
    assert said[0] == said[1]
    assert script.rpartition("/")[2] in said[0].decode()


def modules_of_make():
    makefiles = [cli.ROOT / "Makefile", *cli.ROOT.glob("make/*.mk")]
    rules = "".join(path.read_text() for path in makefiles)
    return sorted(set(re.findall(r"python3 -m (decksmith\.[a-z._]+)", rules)))


@pytest.mark.parametrize(
    "module",
    [
        pytest.param(name, marks=[] if name.endswith(".cost_prompt") else pytest.mark.long)
        for name in modules_of_make()
    ],
)
def test_no_module_s_name_is_said(tmp_path, module):
    """What Make runs as a module speaks with a name that people know."""
    assert "decksmith.measure.results.cost_prompt" in modules_of_make()
    done = subprocess.run(
        [sys.executable, "-m", module, "--nonsense", "nonsense"],
        env={**ENV, "PYTHONPATH": str(cli.ROOT / "lib")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert not re.search(r"\w\.py: |^-[cm]: ", done.stderr, re.M), done.stderr


def left_of(session):
    """The processes of a session that still run."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, *_, sid = stat.read_text().rpartition(") ")[2].split()[:4]
            if int(sid) == session and state != "Z":
                found.append(stat.parent.name)
    return found


def ended(process):
    """(status, what was said) of an interrupted process that has left nothing running."""
    said = process.stderr.read().decode()
    status = process.wait()
    assert "Traceback" not in said and "Exception ignored" not in said, said
    assert not left_of(process.pid)
    return status, said


@pytest.mark.parametrize(
    ("name", "module", "status"),
    [
        ("deck-score", "click", -signal.SIGINT),
        ("bench-prompt", "decksmith", -signal.SIGINT),
        ("record-sample", "jq", 130),
        ("eval-serve", "aiohttp", 130),
        *(
            pytest.param(*case, marks=pytest.mark.long)
            for case in (
                ("vote-serve", "click", -signal.SIGINT),
                ("model-serve", "click", -signal.SIGINT),
                ("reward-serve", "aiohttp", 130),
                ("demo-serve", "aiohttp", 130),
                ("vote-serve", "aiohttp", 130),
            )
        ),
    ],
)
def test_ctrl_c_during_an_import_is_no_traceback(tmp_path, name, module, status):
    """Another module of this name is imported in its place, and is interrupted."""
    (tmp_path / f"{module}.py").write_text("import os\nos.kill(os.getpid(), 2)\n")
    process = subprocess.Popen(
        [sys.executable, BIN / name],
        env={**ENV, "PYTHONPATH": f"{tmp_path}:{cli.ROOT}/lib"},
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        cwd=tmp_path,
    )
    process.stdin.close()
    said = f"{name}: interrupted; run the same command again to go on\n" if status == 130 else ""
    assert ended(process) == (status, said)


@pytest.mark.parametrize(
    "name", ["deck-parse", pytest.param("record-sample", marks=pytest.mark.long)]
)
def test_ctrl_c_at_a_record_is_one_sentence(tmp_path, name):
    process = started(name, cwd=tmp_path, start_new_session=True)
    record = {"id": "a", "gen": {"text": "# One\n\n---\n\n# Two\n"}}
    process.stdin.write(json.dumps(record).encode() + b"\n")
    process.stdin.flush()
    assert json.loads(process.stdout.readline())["id"] == "a"
    os.killpg(process.pid, signal.SIGINT)
    status, said = ended(process)
    assert (status, said.splitlines()[-1]) == (
        130,
        f"{name}: interrupted; run the same command again to go on",
    )
    assert not list(tmp_path.rglob("*.tmp"))


def test_ctrl_c_in_a_pipeline_at_a_terminal_is_said_once():
    pipe = "record-sample | deck-parse | deck-scan | deck-score"
    pid, terminal = at_terminal("/bin/sh", "-c", f"cd /; PATH={BIN}:$PATH; {pipe}")
    said_at(terminal, "\n")  # the first one waits; the others may still import
    os.write(terminal, b"\x03")
    said = said_at(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) in (130, -signal.SIGINT)
    os.close(terminal)
    assert "Traceback" not in said
    assert said.count("interrupted") <= 1 and "record-sample: interrupted" not in said


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("eval-serve", ["--root", "r"]),
        pytest.param("reward-serve", ["--root", "r"], marks=pytest.mark.long),
        pytest.param(
            "demo-serve",
            ["--run", "r", "--port", "0"],
            marks=[pytest.mark.browser, pytest.mark.long],
        ),
    ],
)
def test_ctrl_c_ends_a_server_and_all_it_started(tmp_path, name, options):
    process = started(name, *options, cwd=tmp_path, start_new_session=True)
    said = b""
    while b"http://" not in said:
        line = process.stderr.readline()
        assert line, said
        said += line
    for _ in range(2):  # twice, as people do
        os.killpg(process.pid, signal.SIGINT)
    assert ended(process)[0] == 0
    assert not list(tmp_path.rglob("*.tmp"))
