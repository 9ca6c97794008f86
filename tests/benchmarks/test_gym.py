"""NeMo Gym's verifiers: that a worker which fails costs one row, and (`make test-gym`) that each gives a right
reply its reward and a wrong one none, on rows that we wrote in its format."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from decksmith.bench.benchmarks import grading, gym, tasks
from decksmith.core import cli, stream
from decksmith.models import client as chat_client

ROWS = json.loads((cli.ROOT / "tests" / "fixtures" / "gym.json").read_text())
HERE = {name: row for name, row in gym.table()["benchmarks"].items() if gym.lack(name) is None}
real = pytest.mark.skipif(not os.environ.get("DECKSMITH_GYM"), reason="make test-gym")

# Stands in for gym_worker.py, and so for .venv-gym: it speaks the protocol and misbehaves as the
# reply says. What verifiers say is `make test-gym`'s.
STAND_IN = """
import json, os, sys, time
born = time.time_ns()

def reached(path):
    try:
        open(path).close()
    except OSError:
        return False
    return True

def called(port):
    import socket
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True

for line in sys.stdin:
    order = json.loads(line)
    text = order.get("text")
    if text is None:
        said = {"ready": order["bench"]}
    elif text == "hang":
        time.sleep(600)
    elif text == "crash":
        os._exit(7)
    elif text == "garbage":
        print("not JSON", flush=True)
        continue
    elif text == "look":
        row = order["row"]
        saw = {"files": sum(map(reached, row["files"])), "network": called(row["port"]), "key": len(os.environ.get("KEY", ""))}
        said = {"said": {"reward": 1.0, **saw}}
    elif text == "masked":
        said = {"said": {"reward": 0, "mask_sample": True, "failure_kind": "judge_failed", "failure_reason": "r"}}
    elif text == "judge":
        print(json.dumps({"ask": {"input": "B?", "max_output_tokens": 5}}), flush=True)
        said = {"said": {"reward": float(json.loads(sys.stdin.readline())["answer"]), "born": born}}
    elif text == "no number":
        said = {"said": {"reward": "much"}}
    elif text == "refused":
        said = {"failed": "422: expected_answer"}
    else:
        said = {"said": {"reward": 1.0, "extracted_answer": text, "born": born, "asked": {"a": 1}}}
    print(json.dumps(said), flush=True)
"""


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    worker = tmp_path / "worker.py"
    worker.write_text(STAND_IN)
    monkeypatch.setattr(gym, "WORKER", worker)
    monkeypatch.setenv("DECKSMITH_GYM_PYTHON", sys.executable)


def test_a_verifier_that_fails_costs_one_row_and_is_replaced(stand_in):
    async def go():
        verifiers = gym.Verifiers(1, seconds=2)

        async def ask(request):
            messages, sampling = gym.judged(request)
            assert messages == [{"role": "user", "content": "B?"}] and sampling == {"max_tokens": 5}
            return "0.5"

        found = {}
        for text in "B hang crash garbage masked judge judge refused".split() + ["no number", "C"]:
            try:
                found[text] = await verifiers.grade("mmlu", {}, text, False, ask)
            except stream.Fault as fault:
                found[text] = fault.error["class"]
            found.setdefault(f"{text} 1", found[text])
        await verifiers.close()
        return found

    found = asyncio.run(go())
    assert found["B"]["verdict"] == "right" and found["B"]["answer"] == "B"
    assert set(found["B"]["detail"]) == {"reward", "born"}
    assert [found[text] for text in ("hang", "crash", "garbage", "masked", "no number")] == [
        "verifier-timeout",
        "verifier-crash",
        "verifier-garbage",
        "judge_failed",
        "verifier-garbage",
    ]
    assert found["refused"] == "verifier-error"
    assert found["judge"]["score"] == 0.5 and found["judge"]["verdict"] == "wrong"
    same = [found[name]["detail"]["born"] for name in ("judge", "judge 1")]
    assert same[0] == same[1] != found["B"]["detail"]["born"] != found["C"]["detail"]["born"]


def test_what_evaluates_a_reply_sees_no_file_no_key_and_no_network(stand_in, tmp_path, monkeypatch):
    """A verifier may evaluate what a reply says: a fault of its evaluator is to reach nothing."""
    monkeypatch.setenv("KEY", "secret")
    own = tmp_path / "own.txt"
    own.write_text("mine")
    files = [own, cli.ROOT / "README.md", Path.home() / ".profile", "/etc/shadow", "/etc/hostname"]

    async def go(port):
        verifiers = gym.Verifiers(1)
        row = {"files": [str(path) for path in files], "port": port}
        try:
            return await verifiers.grade("mmlu", row, "look", False, None)
        finally:
            await verifiers.close()

    with socket.create_server(("127.0.0.1", 0)) as server:
        found = asyncio.run(go(server.getsockname()[1]))
    assert found["detail"] == {"reward": 1.0, "files": 0, "network": False, "key": 0}


def test_a_benchmark_of_gym_is_described_by_its_table(tmp_path, monkeypatch):
    spec = tasks.load("gym-mmlu")
    assert spec["source"] == {"gym": "mmlu"} and spec["grader"] == "gym" and spec["kind"] == "gym"
    assert len(HERE) >= 60
    with pytest.raises(cli.BadConfig, match="no benchmark 'mmlux'"):
        tasks.load("gym-mmlux")
    with pytest.raises(cli.Missing, match="several turns"):
        list(tasks.prepare("gym-toolsandbox", tmp_path))
    monkeypatch.setenv("DECKSMITH_GYM_PYTHON", str(tmp_path / "none"))
    with pytest.raises(cli.Missing, match="make .venv-gym"):
        list(tasks.prepare("gym-mmlu", tmp_path))
    with pytest.raises(cli.BadConfig, match="bench-grade --judge"):
        asyncio.run(grading.Graders(1).work(record("simpleqa", {}, [], "x")))


def test_messages_are_those_of_a_responses_request():
    parts = [{"type": "input_text", "text": "A"}, {"type": "input_text", "text": "B"}]
    asked = [{"role": "developer", "content": "Be short."}, {"role": "user", "content": parts}]
    assert gym.chat(asked) == [
        {"role": "system", "content": "Be short."},
        {"role": "user", "content": "AB"},
    ]
    for item in ({"type": "function_call"}, {"role": "user", "content": [{"type": "input_image"}]}):
        with pytest.raises(cli.BadData, match=item.get("type", "input_image")):
            gym.chat([item])


def record(name, row, messages, text):
    task = {"bench": f"gym-{name}", "expected": row, "fields": {"question": ""}}
    gen = {"text": text, "finish_reason": "stop"}
    return {"id": f"gym-{name}-00001", "task": task, "messages": messages, "gen": gen}


class Judge:
    """Stands in for a judge's endpoint: it says what the row's author wrote that it says."""

    model = type("Model", (), {"slug": "j"})
    says: list[str] = []

    def request(self, messages, sampling=None):
        return {"messages": messages, "sampling": sampling}

    async def ask(self, messages, sampling=None, *, seed=None):
        assert messages and all(isinstance(each["content"], str) for each in messages)
        said = self.says[0] if len(self.says) == 1 else self.says.pop(0)
        return type("Reply", (), {"text": said, "usage": {}})

    async def close(self):
        pass


@real
def test_a_right_reply_has_its_reward_and_a_wrong_one_none(tmp_path, monkeypatch):
    """All in one worker, whose imports are what takes time."""
    judge = Judge()
    monkeypatch.setattr(chat_client.Client, "open", lambda *_, **__: judge)
    home = tmp_path / "gym-mmlu"
    home.mkdir()
    (home / "gym.jsonl").write_text(json.dumps(ROWS["mcqa"]["row"]) + "\n")
    (prepared,) = tasks.prepare("gym-mmlu", tmp_path)
    assert "three plus four" in prepared["messages"][-1]["content"]
    messages = [{"role": "user", "content": "Which one?"}]

    async def go():
        graders, found = grading.Graders(1, judge="any"), {}
        for name, known in HERE.items():
            rows = ROWS[known["server"]]
            row = {key: rows["row"][key] for key in rows["row"] if key[:9] != "responses"}
            for said in ("right", "wrong"):
                judged = rows.get("judge of", {}).get(name) or rows.get("judge", {})
                says = judged.get(said, "?")
                judge.says = [says] if isinstance(says, str) else list(says)
                try:
                    grade = await graders.work(record(name, row, messages, rows[said]))
                    found[name, said] = grade["verdict"] == "right", grade["detail"]
                except stream.Fault as fault:
                    found[name, said] = None, fault.error
        await graders.close()
        return found

    found = asyncio.run(go())
    assert {name for name, row in gym.table()["benchmarks"].items() if row["tested"]} == set(HERE)
    assert len(found) == 2 * len(HERE)
    wrong = [(key, got) for key, got in found.items() if got[0] != (key[1] == "right")]
    assert not wrong, "\n".join(map(str, wrong))


@real
def test_what_a_verifier_asks_its_judge_goes_to_an_endpoint_once(tmp_path):
    rows = ROWS["simpleqa"]
    (tmp_path / "reply.md").write_text(rows["judge"]["right"])
    log = tmp_path / "asked.jsonl"
    command = [sys.executable, str(cli.ROOT / "tests" / "endpoint.py"), "--log", str(log)]
    endpoint = subprocess.Popen(
        [*command, "--reply", str(tmp_path / "reply.md")], stdout=subprocess.PIPE, text=True
    )
    url = endpoint.stdout.readline().strip()
    row = {key: value for key, value in rows["row"].items() if key[:9] != "responses"}
    asked = record("simpleqa", row, [{"role": "user", "content": "Which?"}], rows["right"])

    async def graded():
        graders = grading.Graders(1, run=tmp_path / "run", base_url=url, slug="m")
        grade = await graders.work(asked)
        await graders.close()
        return grade["verdict"]

    try:
        assert [asyncio.run(graded()), asyncio.run(graded())] == ["right", "right"]
    finally:
        endpoint.kill()
        endpoint.wait()
    assert [json.loads(line)["status"] for line in log.read_text().splitlines()] == [200]


# A parent that opens a verifier, says its process, and waits.
PARENT = """
import asyncio
from decksmith.bench.benchmarks import gym

async def go():
    worker = await gym._VerifierProcess.start()
    await worker.open("mmlu")
    print(worker.process.pid, flush=True)
    await asyncio.sleep(600)

asyncio.run(go())
"""


@real
def test_a_verifier_that_is_stuck_ends_with_a_killed_parent():
    env = os.environ | {"PYTHONPATH": str(cli.ROOT / "lib")}
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, env=env)
    worker = int(parent.stdout.readline())
    os.kill(worker, signal.SIGSTOP)  # it reads nothing, as one that is in a verifier
    parent.kill()
    parent.wait()
    while lives(worker):
        time.sleep(0.05)


def lives(pid):
    """Whether a process is there, and not only as an entry that nobody has reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@real
def test_each_benchmark_has_its_prompt(tmp_path):
    for name, row in HERE.items():
        (tmp_path / name).write_text(json.dumps(ROWS[row["server"]]["row"]) + "\n")
    work = "\n".join(
        [
            "import json, sys, gym_worker",
            "for name in sys.argv[2:]:",
            "    (row,) = gym_worker.prepared(name, f'{sys.argv[1]}/{name}')",
            "    assert row['responses_create_params']['input'][-1]['content'], name",
            "    print(name)",
        ]
    )
    command = [str(gym.python()), "-c", work, str(tmp_path), *HERE]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=gym.WORKER.parent)
    assert ran.returncode == 0, ran.stderr[-800:]
    assert ran.stdout.split()[-1:] == list(HERE)[-1:]
