"""What every test runs under: its environment, the .bats files as pytest tests, the order of files, the table of slow files.

The marks are in pyproject.toml. A Python test wears them as usual; a .bats file names its own in a comment, `# marks: browser slow`:
above the first test for all of the file, directly above a test for that one.
"""

import gc
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import hypothesis
import pytest
from xdist.scheduler import LoadFileScheduling

ROOT = Path(__file__).resolve().parents[1]
BATS = ROOT / "tests" / "node_modules" / "bats" / "bin" / "bats"

# A shell that runs us with `&` has the interrupt ignored, and children inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
# What one test has rendered is there for the others of this run of the suite, in all its workers.
if "PYTEST_XDIST_WORKER" not in os.environ:
    os.environ["DECKSMITH_RENDERS"] = tempfile.mkdtemp(prefix="decksmith-test-renders-")
# An example has no time in which it must be done: a machine may be busy.
hypothesis.settings.register_profile(
    "house", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("house")
# On a busy machine a second thread waits more than it works.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
# What grades is not to depend on what is installed here (make test-gym asks for the toolchain).
if "DECKSMITH_GYM" not in os.environ:
    os.environ["DECKSMITH_GYM_PYTHON"] = str(ROOT / "no-toolchain")
# The suite starts Python thousands of times: without bytecode each start compiles all it imports.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
os.environ.pop("COLUMNS", None)  # of whoever runs the tests: tables fit themselves to it
sys.dont_write_bytecode = False


def pytest_addoption(parser):
    parser.addoption("--slowest", type=int, metavar="N", help="print the N files that took longest")
    parser.addoption("--busy", type=int, metavar="N", help="keep the machine busy with N processes")


def pytest_configure(config):
    config.option.loadscopereorder = False  # xdist keeps the order that is made below
    if not hasattr(config, "workerinput"):
        loop = [sys.executable, "-c", "while True: pass"]
        config.busy = [subprocess.Popen(loop) for _ in range(config.getoption("busy") or 0)]


class Scheduler(LoadFileScheduling):
    """The files of tests/training are one: each process that trains loads torch and TRL first, which costs ten seconds of CPU."""

    def _split_scope(self, nodeid):
        file = super()._split_scope(nodeid)
        return "tests/training" if file.startswith("tests/training/") else file


def pytest_xdist_make_scheduler(config, log):
    return Scheduler(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_collection_finish():
    gc.freeze()  # what all the tests have loaded stays: no garbage collection, and no fork's, walks it


def pytest_unconfigure(config):
    if not hasattr(config, "workerinput"):
        for process in config.busy:
            process.kill()
        shutil.rmtree(os.environ["DECKSMITH_RENDERS"], ignore_errors=True)


def pytest_collection_modifyitems(items):
    """Files with slow tests begin, so that none of them is the last at work while the other workers are idle."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


def pytest_terminal_summary(terminalreporter, config):
    if not (count := config.getoption("slowest")):
        return
    seconds = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                seconds[report.nodeid.partition("::")[0]] += report.duration
    terminalreporter.section(f"slowest {count} files")
    for name, total in seconds.most_common(count):
        terminalreporter.line(f"{total:8.2f} s  {name}")


def pytest_collect_file(parent, file_path):
    if file_path.suffix == ".bats":
        return BatsFile.from_parent(parent, path=file_path)


class BatsFile(pytest.File):
    """Runs its file once, when the first of its tests is asked for."""

    results = None
    titles = 0

    def collect(self):
        self.add_marker("script")
        text = self.path.read_text()
        first = text.find("\n@test ")
        for marks in re.findall(r"^# marks: (.*)$", text[: text.rfind("\n\n", 0, first) + 1], re.M):
            for name in marks.split():
                self.add_marker(name)
        tests = re.findall(r'^(?:# marks: (.*)\n(?:# first: .*\n)?)?@test "(.*)" \{$', text, re.M)
        self.titles = len(tests)
        for marks, title in tests:
            test = BatsTest.from_parent(self, name=title.replace('\\"', '"'))
            for name in marks.split():
                test.add_marker(name)
            yield test

    def outcomes(self):
        """`{title: (whether it passed, what it printed, seconds)}`."""
        if self.results is None:
            names = [item.name for item in self.session.items if item.parent is self]
            only = []
            if len(names) < self.titles:
                only = ["--filter", "^(" + "|".join(map(re.escape, names)) + ")$"]
            env = dict(os.environ, PATH=f"{ROOT / '.venv/bin'}:{os.environ['PATH']}")
            done = subprocess.run(
                [BATS, "--tap", "--timing", *only, self.path],
                env=env,
                capture_output=True,
                text=True,
                stdin=subprocess.DEVNULL,
            )
            self.results = {}
            for block in re.split(r"^(?=(?:not )?ok \d+ )", done.stdout, flags=re.M)[1:]:
                head, _, detail = block.partition("\n")
                word, title, ms = re.match(r"((?:not )?ok) \d+ (.*) in (\d+)ms", head).groups()
                self.results[title] = (word == "ok", detail, int(ms) / 1000)
            self.noise = done.stdout + done.stderr
        return self.results


class BatsTest(pytest.Item):
    seconds = None

    def runtest(self):
        outcome = self.parent.outcomes().get(self.name, (False, self.parent.noise, 0))
        passed, detail, self.seconds = outcome
        if not passed:
            raise BatsFailure(detail)

    def repr_failure(self, excinfo):
        if excinfo.errisinstance(BatsFailure):
            return str(excinfo.value)
        return super().repr_failure(excinfo)

    def reportinfo(self):
        return self.path, None, f"{self.path.name}: {self.name}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """The first test of a .bats file runs all of them: each is said to last as long as it did."""
    report = yield
    if isinstance(item, BatsTest) and call.when == "call" and item.seconds is not None:
        report.duration = item.seconds
    return report


class BatsFailure(Exception):
    pass
