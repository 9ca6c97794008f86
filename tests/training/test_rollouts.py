"""Answers of a policy by the embedded engine, rewarded by the pipeline; a killed set goes on (make test-rl)."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from decksmith.core import cli, stream
from decksmith.train.training import adapters

pytestmark = [pytest.mark.engine, pytest.mark.slow]
PROMPT = next(row for _, row in stream.records(cli.ROOT / "data/training-prompts.jsonl"))
ASK = """
import json, sys
from pathlib import Path
from decksmith.train.training.grpo_trainer import Rollouts
folder, peft, prompt = sys.argv[1:]
Rollouts(Path(folder), "smol", 1.0, 1.0, 400, "layout").ask("step_1", Path(peft), [json.loads(prompt)], 3, 7)
"""


@pytest.fixture(scope="module")
def peft(tmp_path_factory):
    """data/adapter as a PEFT folder."""
    folder = tmp_path_factory.mktemp("peft")
    adapters.unpack(cli.ROOT / "data/adapter", folder)
    return folder


@pytest.mark.long(
    "tests/training/test_adapters.py::test_the_gguf_adapter_adds_to_the_permuted_matrix_what_the_adapter_adds_to_the_matrix"
)
def test_the_repositorys_adapter_comes_back_in_the_same_bytes(peft, tmp_path):
    adapters.gguf(peft, "smol", tmp_path / "again.gguf")
    shipped = cli.ROOT / "data/adapter/adapter.gguf"
    assert (tmp_path / "again.gguf").read_bytes() == shipped.read_bytes()


@pytest.mark.browser
@pytest.mark.skipif("DECKSMITH_RL" not in os.environ, reason="make test-rl asks for it")
def test_a_killed_set_of_answers_goes_on_and_nothing_is_asked_twice(peft, tmp_path):
    words = [sys.executable, "-c", ASK, str(tmp_path), str(peft), json.dumps(PROMPT)]
    environment = os.environ | {"PYTHONPATH": str(cli.ROOT / "lib")}
    process = subprocess.Popen(words, env=environment, start_new_session=True)
    while (
        not (journals := [*tmp_path.glob("step_1-*/journal/gen.jsonl")])
        or not journals[0].stat().st_size
    ):
        assert process.poll() is None
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    asked = journals[0].read_text().splitlines()
    from decksmith.train.training.grpo_trainer import Rollouts  # torch: not for every collection

    rollouts = Rollouts(tmp_path, "smol", 1.0, 1.0, 400, "layout")
    decks = rollouts.ask("step_1", peft, [PROMPT], 3, 7)
    assert [deck["id"] for deck in decks] == [f"{PROMPT['id']}~{k}" for k in range(3)]
    assert all(0 <= deck["reward"]["reward"] <= 1 for deck in decks)
    assert journals[0].read_text().splitlines()[: len(asked)] == asked
    assert len(journals[0].read_text().splitlines()) == 3
    made = journals[0].parents[1] / "decks.jsonl"
    before = made.stat().st_mtime_ns
    assert (
        rollouts.ask("step_1", peft, [PROMPT], 3, 7) == decks and made.stat().st_mtime_ns == before
    )
