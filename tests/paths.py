"""What a newcomer waits for: each of README's ways in, typed in a fresh clone, with the seconds until each stage.

    python3 tests/paths.py           all of them, as a part of docs/maintain/speed.md (make paths)
    python3 tests/paths.py laptop    one alone

The clone lies in a temporary folder, with an empty HOME and a small PATH. Standing in for a provider: tests/endpoint.py, which answers
at once, so that its path is what decksmith adds.
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OWN = """We open a bicycle repair cafe in March. 6 slides for volunteers, default theme.
Explain to new swimmers how to breathe every third stroke; 5 slides with a table.
"""
ENTRY = """[mine]
label = "My model"
base_url = "{url}"
slug = "mine"
key_env = "MY_KEY"
price = {{ prompt = 1.0, completion = 2.0 }}
"""
SET_UP = ("set up", r": prompts of ")
SHOWN = ("a report with its first deck", r"^The report so far: ")
DONE = ("the whole", r"^Open the report: ")


def timed(command: str, stages: list[tuple[str, str]], clone: Path, **more: str) -> list[float]:
    """Seconds from the start of a shell command to the first line that fits each stage's pattern. A server is ended with
    Ctrl-C at the last one. Raises SystemExit with what was printed where a stage never came."""
    keep = {
        k: v for k, v in os.environ.items() if k.startswith(("PIP_", "UV_", "npm_config_", "SSL_"))
    }
    env = {**keep, "HOME": f"{clone.parent}/home", "PATH": f"{_python()}:/usr/bin:/bin", **more}
    started, found, said = time.monotonic(), [], []
    job = subprocess.Popen(
        ["sh", "-c", command], cwd=clone, env=env, text=True, start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert job.stdout
    for line in job.stdout:
        said.append(line)
        print(f"{time.monotonic() - started:6.1f}  {line}", end="", file=sys.stderr)
        if len(found) < len(stages) and re.search(stages[len(found)][1], line):
            found.append(time.monotonic() - started)
            if len(found) == len(stages) and "serving" in stages[-1][0]:
                os.killpg(job.pid, signal.SIGINT)
    job.wait()
    if len(found) < len(stages):
        sys.exit(f"{command}: never came to: {stages[len(found)][0]}\n{''.join(said[-20:])}")
    return found


def _python() -> Path:
    return Path(os.path.realpath(sys.base_prefix)) / "bin"


def laptop(clone: Path) -> tuple[str, list[tuple[str, float]]]:
    stages = [
        SET_UP,
        SHOWN,
        ("the reference decks", r"^results/runs/reference/offline: means"),
        ("the base model", r"^results/runs/smol/offline: means"),
        ("the fine-tuned model", r"^results/runs/smol-sft/offline: means"),
        DONE,
    ]
    return "make baseline", _named(stages, timed("make baseline", stages, clone))


def key(clone: Path) -> tuple[str, list[tuple[str, float]]]:
    server = subprocess.Popen(
        [ROOT / ".venv/bin/python3", ROOT / "tests/endpoint.py"], stdout=subprocess.PIPE, text=True
    )
    assert server.stdout
    try:
        entry = ENTRY.format(url=server.stdout.readline().strip())
        (clone / "data/models").mkdir(exist_ok=True)
        (clone / "data/models/mine.toml").write_text(entry)
        command = "make baseline MODEL=mine LIMIT=6"
        stages = [("the price said", r"USD|\$"), SHOWN, DONE]
        return command, _named(stages, timed(command, stages, clone, MY_KEY="k", YES="1"))
    finally:
        server.terminate()


def own(clone: Path) -> tuple[str, list[tuple[str, float]]]:
    (clone / "mine.txt").write_text(OWN)
    command = "make baseline MODEL=smol-sft PROMPTS=mine.txt"
    stages = [SHOWN, DONE]
    return command, _named(stages, timed(command, stages, clone))


def people(clone: Path) -> tuple[str, list[tuple[str, float]]]:
    stages = [("the vote is serving", r"http://")]
    return "make vote", _named(stages, timed("make vote", stages, clone))


def _named(stages: list[tuple[str, str]], found: list[float]) -> list[tuple[str, float]]:
    return [(name, seconds) for (name, _), seconds in zip(stages, found, strict=True)]


PATHS = {"laptop": laptop, "key": key, "own prompts": own, "people": people}


def main(*wanted: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        clone = Path(folder) / "decksmith"
        (Path(folder) / "home").mkdir()
        subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
        rows = []
        for name, path in PATHS.items():
            if wanted and name not in wanted:
                continue
            command, stages = path(clone)
            rows += [f"| {name}: {stage} | `{command}` | {s:.0f} |" for stage, s in stages]
    print("# What a newcomer waits for\n")
    print(
        f"Written by `make paths` on {os.cpu_count()} cores, in a fresh clone with an empty HOME: seconds from the command to each "
        "stage. The first path includes set-up; the others come after it. The key's endpoint is one of the tests', which answers at "
        "once.\n"
    )
    print("| stage | command | s |\n|---|---|---:|")
    print("\n".join(rows))


if __name__ == "__main__":
    main(*sys.argv[1:])
