"""Collects the .bats files as pytest tests, one per @test, so that one closing line counts everything."""

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
signal.signal(
    signal.SIGINT, signal.default_int_handler
)  # a shell that runs us with `&` has it ignored, and children inherit that
os.environ["DECKSMITH_RENDERS"] = "off"  # a test renders what it looks at
os.environ.setdefault(
    "OPENBLAS_NUM_THREADS", "1"
)  # on a busy machine a second thread waits more than it works
BATS = ROOT / "tests" / "node_modules" / "bats" / "bin" / "bats"


def pytest_collect_file(parent, file_path):
    if file_path.suffix == ".bats":
        return BatsFile.from_parent(parent, path=file_path)


class BatsFile(pytest.File):
    """Runs its file once, when the first of its tests is asked for."""

    results = None

    def collect(self):
        for title in re.findall(r'^@test "(.*)" \{$', self.path.read_text(), re.M):
            yield BatsTest.from_parent(self, name=title.replace('\\"', '"'))

    def outcomes(self):
        if self.results is None:
            names = [item.name for item in self.session.items if item.parent is self]
            only = (
                ["--filter", "^(" + "|".join(map(re.escape, names)) + ")$"]
                if len(names) < len(list(self.collect()))
                else []
            )
            env = dict(os.environ, PATH=f"{ROOT / '.venv/bin'}:{os.environ['PATH']}")
            done = subprocess.run(
                [BATS, "--tap", *only, self.path],
                env=env,
                capture_output=True,
                text=True,
                stdin=subprocess.DEVNULL,
            )
            self.results = {}
            for block in re.split(r"^(?=(?:not )?ok \d+ )", done.stdout, flags=re.M)[1:]:
                head, _, detail = block.partition("\n")
                word, title = re.match(r"((?:not )?ok) \d+ (.*)", head).groups()
                self.results[title] = (word == "ok", detail)
            self.noise = done.stdout + done.stderr
        return self.results


class BatsTest(pytest.Item):
    def runtest(self):
        passed, detail = self.parent.outcomes().get(self.name, (False, self.parent.noise))
        if not passed:
            raise BatsFailure(detail)

    def repr_failure(self, excinfo):
        return (
            str(excinfo.value)
            if excinfo.errisinstance(BatsFailure)
            else super().repr_failure(excinfo)
        )

    def reportinfo(self):
        return self.path, None, f"{self.path.name}: {self.name}"


class BatsFailure(Exception):
    pass
