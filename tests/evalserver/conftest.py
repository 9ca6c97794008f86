"""Servers and routers that end with their test."""

import signal

import pytest
from decksmith.bench.evalserver import worker as eval_worker
from delegates import Router, Server


@pytest.fixture
def serving(tmp_path):
    """Make servers; all of them end with the test, and what they started."""
    made = []

    def make(*flags, **more):
        made.append(Server(tmp_path, *flags, **more).start())
        return made[-1]

    yield make
    for server in made:
        if server.process.poll() is None:
            server.kill(signal.SIGINT)
    for path in tmp_path.glob("eval/jobs/*/*/process.json"):
        eval_worker.send(path.parent, signal.SIGKILL)


@pytest.fixture
def router():
    made = []

    def make(**answers):
        made.append(Router(**({"v1_models": {"data": [{"id": "policy"}]}} | answers)))
        return made[-1]

    yield make
    for one in made:
        one.server.shutdown()
        one.server.server_close()
