"""The demo in the pinned Chromium: tests/web/demo.mjs does the looking, this file starts what it looks at.

`python tests/web/test_demo_page.py docs/demo.png` takes its picture, with two decks that the embedded model writes.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import waits
from decksmith.core import cli

sys.path.insert(0, str(Path(__file__).parent))
import ballots  # noqa: E402

pytestmark = [pytest.mark.browser, pytest.mark.slow]

TESTS = cli.ROOT / "tests"
NODE = cli.ROOT / ".venv" / "bin" / "node"


@contextlib.contextmanager
def started(command, address, **how):
    """A server until the block ends; `address(process)` waits for where it is. It must end with status 0."""
    process = subprocess.Popen(command, text=True, **how)
    try:
        yield address(process)
    finally:
        process.terminate()
        process.wait(waits.HANG)


def demo(folder, *options):
    """Start demo-serve; gives its address."""

    def address(process):
        waits.until((folder / "address.json").exists, process)
        return json.loads((folder / "address.json").read_text())["url"]

    return started(
        [cli.ROOT / "bin" / "demo-serve", "--port", "0", "--run", folder, *options],
        address,
        env=os.environ | {"PATH": f"{cli.ROOT / '.venv/bin'}:{os.environ['PATH']}"},
    )


def drive(*words):
    place = Path(os.environ.get("PLAYWRIGHT") or TESTS)
    for needed in (
        place / "node_modules" / "playwright-core",
        cli.ROOT / "assets" / "renderer" / "node_modules",
    ):
        assert needed.exists(), f"{needed} is missing: make setup"
    done = subprocess.run(
        [NODE, Path(__file__).with_name("demo.mjs"), *words],
        capture_output=True,
        text=True,
        timeout=1200,
    )
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


def checked(tmp_path, mode):
    """What the driver found of the demo before a stub that answers as five models."""
    stub = [
        sys.executable,
        TESTS / "endpoint.py",
        "--reply",
        TESTS / "fixtures" / "demo",
        "--pace",
        "0.02,hostile=0",
    ]
    with started(
        stub, lambda process: process.stdout.readline().strip(), stdout=subprocess.PIPE
    ) as endpoint:
        models = [
            word
            for name in ("tuned", "base", "hostile", "endless", "broken")
            for word in ("--model", name)
        ]
        with demo(tmp_path / "demo", "--base-url", endpoint, *models) as url:
            found = drive(mode, url, endpoint)
    assert found["trouble"] == []
    return found["cards"]


@pytest.mark.long(
    "tests/bin/demo-serve.bats::what a killed server had heard is there after it starts again, for the same visitor, and ended once"
)
def test_decks_are_written_shown_mended_downloaded_and_stopped_and_a_hostile_one_does_nothing(
    tmp_path,
):
    assert checked(tmp_path, "check") == 3


@pytest.mark.long(
    "tests/bin/demo-serve.bats::what a killed server had heard is there after it starts again, for the same visitor, and ended once"
)
def test_a_slide_is_written_anew_and_a_reference_deck_is_drawn_once_for_all(tmp_path):
    assert checked(tmp_path, "whole") == 4


@pytest.mark.long(
    "tests/bin/demo-serve.bats::what a killed server had heard is there after it starts again, for the same visitor, and ended once"
)
def test_the_embedded_model_writes_a_deck_without_a_key_and_who_comes_second_waits_in_line(
    tmp_path,
):
    with demo(tmp_path / "demo", "--model", "smol-sft") as url:
        found = drive("embedded", url)
    assert found["trouble"] == []
    assert found["state"] == "done" and found["slides"] >= 2
    assert found["first"] < found["written"], (
        "its first slide was there before it had written the last"
    )


if __name__ == "__main__":
    with (
        tempfile.TemporaryDirectory() as place,
        demo(Path(place) / "demo", "--model", "smol", "--model", "smol-sft") as where,
    ):
        trouble = drive("screenshot", where, sys.argv[1])["trouble"]
    ballots.smaller(sys.argv[1])
    sys.exit("\n".join(trouble) or 0)
