"""A reward server that the tests of a file share, and those that a test has for itself."""

import signal

import pytest
from reward_server import PROMPTS, Server


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    made = Server(tmp_path_factory.mktemp("reward"), "--prompts", PROMPTS).start()
    yield made
    if made.process.poll() is None:
        made.kill(signal.SIGTERM)


@pytest.fixture
def serving(tmp_path):
    made = []

    def make(name="root", *flags):
        made.append(Server(tmp_path / name, *flags))
        return made[-1].start()

    yield make
    for one in made:
        if one.process.poll() is None:
            one.kill(signal.SIGTERM)
