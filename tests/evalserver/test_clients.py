"""What the clients of slime and miles really send, word for word: recorded from slime v0.2.1, from its old example on slime's head and from miles
(the same request), with the evaluation file that came with it. Where a
checkout is at hand the client itself asks: `make test-clients CLIENTS="/path/to/slime .."` names one or more."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from delegates import ROOT, payload, trainer

pytestmark = pytest.mark.slow

HOW = {"temperature": 1.0, "top_p": 1.0, "top_k": -1}
EXAMPLE = {  # examples/eval/scripts/multi_tasks.yaml, which says temperature 0.6: the client ignores it
    "rollout_id": 4,
    "router_url": "http://127.0.0.1:3333",
    "benchmarks": [
        {"name": "aime25", "n_samples_per_eval_prompt": 8, **HOW, "max_response_len": 8192},
        {"name": "arena-hard", "n_samples_per_eval_prompt": 2, **HOW, "max_response_len": 8192},
        {"name": "hle", "n_samples_per_eval_prompt": 1, **HOW, "max_response_len": 32768},
    ],
}


def oks(metrics):
    """{benchmark: 1 or 0} of flat metrics."""
    return {
        key.removeprefix("eval/").removesuffix("/delegate/ok"): value
        for key, value in metrics.items()
        if key.endswith("/delegate/ok")
    }


@pytest.mark.long("test_a_benchmark_that_nobody_has_is_a_metric_and_costs_the_others_nothing")
def test_the_example_of_slime_and_miles_is_evaluated_and_told_which_arena_hard_it_gets(
    serving, router
):
    server, one = serving(), router()
    asked = EXAMPLE | {"router_url": one.url}
    found = trainer(server, asked)
    assert oks(found) == {"aime25": 1, "arena-hard-v2": 1, "hle": 1}
    assert found["eval/arena-hard-v2/pass@1/accuracy"] == 0.5
    words = "arena-hard is arena-hard-v2 here"
    assert server.ask("POST", "/evaluate", asked).json()["warning"] == words
    assert words in (server.folder / "said").read_text()


def test_a_benchmark_that_nobody_has_is_a_metric_and_costs_the_others_nothing(serving, router):
    server, one, other = serving(), router(), router()
    asked = payload(one, "needle", "nedle", "../../x y", "needle\x00")
    found = trainer(server, asked)
    assert oks(found) == {"needle": 1, "nedle": 0, ".._.._x_y": 0, "needle_": 0}
    assert found["eval/nedle/delegate/unknown"] == 1 and found["eval/needle/pass@1/accuracy"] == 0.5
    said = server.ask("POST", "/evaluate", asked).json()
    assert said["status"] == "partial"
    assert said["warning"].startswith(
        r"no benchmark 'nedle', '../../x y', 'needle\x00' (did you mean needle?); there are: aime24, "
    )
    assert {path.name for path in server.folder.glob("eval/jobs/*/*") if path.is_dir()} == {
        "needle"
    }
    # Where none is ours the answer comes at once and asks nobody.
    assert oks(trainer(server, payload(other, "nedle", rollout=1))) == {"nedle": 0}
    assert server.jobs()[0]["status"] == "failed" and other.seen == []


# The clients themselves

CHECKOUTS = os.environ.get("DECKSMITH_CLIENTS", "").split()


def example(checkout):
    """The evaluation files that a checkout of slime or miles ships for its delegates."""
    homes = (Path(checkout) / "examples/eval", Path(checkout) / "examples/experimental/eval")
    return [path for home in homes for path in sorted(home.glob("scripts/*.yaml"))]


@pytest.mark.skipif(not CHECKOUTS, reason='make test-clients CLIENTS="/path/to/slime .."')
@pytest.mark.parametrize("checkout", CHECKOUTS)
def test_the_client_of_a_checkout_gets_metrics_for_every_file_that_it_ships(
    serving, router, tmp_path, checkout
):
    server, one = serving(), router()
    for path in example(checkout):
        setting = yaml.safe_load(path.read_text())
        (delegate,) = setting["eval"]["delegate"]
        delegate |= {
            "url": f"{server.url}/evaluate",
            "headers": {"Authorization": f"Bearer {server.token}"},
        }
        if delegate["name"] != "skills":
            continue
        (tmp_path / path.name).write_text(json.dumps(setting))
        port = one.url.rpartition(":")[2]
        done = subprocess.run(
            [
                sys.executable,
                ROOT / "tests/fixtures/eval/client.py",
                checkout,
                tmp_path / path.name,
                port,
            ],
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        wanted = ["aime25", "arena-hard-v2", "hle"]
        assert oks(json.loads(done.stdout)) == dict.fromkeys(wanted, 1), done.stderr
