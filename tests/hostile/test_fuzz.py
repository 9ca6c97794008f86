"""Whatever a deck's text is, a failure is the deck's and has a class: no fault of ours, no exception, no wait without an end.

DECKSMITH_FUZZ=N (`make fuzz`) draws N decks: all are compiled, every fifth is rendered. What breaks the rule is written to
tests/fixtures/decks-that-broke, which is replayed by default together with a few decks that are only compiled.
"""

import hashlib
import json
import os
import select
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from decksmith.measure.render import toolchain
from test_hostile import batch

sys.path.insert(0, str(Path(__file__).parent))
from strange import decks  # noqa: E402

pytestmark = [pytest.mark.browser, pytest.mark.fuzz]

FOUND = Path(__file__).parents[1] / "fixtures" / "decks-that-broke"
NUMBER, SEED = int(os.environ.get("DECKSMITH_FUZZ", 15)), int(os.environ.get("DECKSMITH_SEED", 1))
CLASSES = set(
    "vue-compile vue-runtime unknown-component unknown-layout unknown-slot unknown-theme yaml mermaid katex missing-image too-few-slides blank fenced-deck deadline memory forbidden compile-error crash".split()
)


class Compiler:
    """The compiler alone, deck by deck; one that takes too long or ends is replaced."""

    process = None

    def ask(self, text, seconds=40):
        if self.process is None:
            command = [
                toolchain.node().resolve(),
                "--no-warnings",
                "--max-old-space-size=1536",
                Path(__file__).with_name("compile.mjs"),
            ]
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
            self.ask("# A\n")
        self.process.stdin.write(json.dumps(text).encode() + b"\n")
        self.process.stdin.flush()
        line = (
            self.process.stdout.readline()
            if select.select([self.process.stdout], [], [], seconds)[0]
            else b""
        )
        if line:
            return json.loads(line)
        self.close()
        return {
            "errors": [["deadline", None]],
            "kinds": ["model"],
            "messages": [f"no reply in {seconds} seconds, or the end"],
        }

    def close(self):
        if self.process:
            self.process.kill()
            self.process.communicate()
        self.process = None


def wrong(found):
    """Why what the compiler or the renderer says of a deck breaks the rule, or None."""
    if "threw" in found:
        return found["threw"]
    for kind, (cls, *_), message in zip(
        found["kinds"], found["errors"], found["messages"], strict=True
    ):
        if kind != "model" and "is not bundled" not in message:
            return f"{kind}: {cls}: {message}"
        if kind == "model" and cls not in CLASSES:
            return f"the class {cls} is not known"


def keep(text, why):
    FOUND.mkdir(exist_ok=True)
    name = hashlib.sha256(text.encode()).hexdigest()[:10]
    (FOUND / f"{name}.md").write_bytes(text.encode())
    return f"{name}: {why[:300]}"


def said(value):
    errors = value["errors"]
    return {
        "errors": [[error["class"]] for error in errors],
        "kinds": [error["kind"] for error in errors],
        "messages": [error["message"] for error in errors],
    }


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("number", [4, pytest.param(NUMBER, marks=pytest.mark.long)])
def test_no_deck_breaks_the_compiler(capsys, number):
    compiler, broken, classes = Compiler(), [], Counter()
    try:
        for text in decks(number, SEED):
            found = compiler.ask(text)
            classes.update({cls for cls, *_ in found.get("errors", [])})
            if why := wrong(found):
                broken.append(keep(text, why))
            for (cls, *_), message in zip(
                found.get("errors", []), found.get("messages", []), strict=True
            ):
                if cls in ("compile-error", "deadline"):
                    with capsys.disabled():
                        print(f"\n{keep(text, message)}")
    finally:
        compiler.close()
    with capsys.disabled():
        print(f"\n{number} decks of seed {SEED} compiled: {dict(classes.most_common())}")
    assert not broken


@pytest.mark.skipif(
    "DECKSMITH_FUZZ" not in os.environ, reason="make fuzz renders a fifth of its decks"
)
@pytest.mark.timeout(3600)
def test_no_deck_puts_the_blame_on_the_renderer(tmp_path, capsys):
    texts = decks(NUMBER, SEED)[::5]
    values = batch(
        tmp_path, {f"d{number}": text for number, text in enumerate(texts)}, jobs=2, deadline=10
    )
    broken = [
        keep(text, why)
        for text, value in zip(texts, values.values(), strict=True)
        if (why := wrong(said(value)))
    ]
    classes = Counter(
        cls for value in values.values() for cls in {error["class"] for error in value["errors"]}
    )
    with capsys.disabled():
        print(f"\n{len(texts)} of them rendered: {dict(classes.most_common())}")
    assert not broken


def test_what_broke_us_once_is_the_deck_s_fault(tmp_path):
    texts = {path.stem: path.read_bytes().decode() for path in sorted(FOUND.glob("*.md"))}
    assert texts
    values = batch(tmp_path, texts, jobs=1, deadline=10)
    assert {name: why for name, value in values.items() if (why := wrong(said(value)))} == {}
