"""What Slurm says of a job: its states, its exit status, and what became of it.

States are those of squeue(1) and scontrol(1). `python3 -m decksmith.core.slurm` reads what sbatch said and says what to do.
"""

import re
import shutil
import socket
import subprocess
import sys
import tomllib

from decksmith.core import cli

OVER = frozenset(
    "BOOT_FAIL CANCELLED COMPLETED DEADLINE FAILED NODE_FAIL OUT_OF_MEMORY PREEMPTED TIMEOUT".split()
)


def this_node() -> str:
    """The name by which other machines know this one; some have themselves as localhost in /etc/hosts."""
    full = socket.getfqdn()
    return socket.gethostname() if full.split(".")[0] == "localhost" else full


def tasks(text: str) -> list[dict[str, str]]:
    """What `scontrol show job -o` says, one dict for each job or array task."""
    lines = [line for line in text.splitlines() if line.startswith("JobId=")]
    return [dict(re.findall(r"(\S+?)=(\S*)", line)) for line in lines]


def is_over(task: dict[str, str]) -> bool:
    """Whether a task of `tasks` has ended and will not run again."""
    return task["JobState"] in OVER


def exit_status(task: dict[str, str]) -> int:
    """The exit status of a task that is over, as a shell would give it: 128 + N for signal N, 1 where Slurm ended it."""
    code, signal = map(int, task["ExitCode"].split(":"))
    if code:
        return code
    if signal:
        return 128 + signal
    return 0 if task["JobState"] == "COMPLETED" else 1


def ended(job: str) -> str | None:
    """What became of a job that runs no more, as words; None while it waits or runs, or where nobody can tell."""
    if not shutil.which("squeue"):  # in an image
        return None
    said = subprocess.run(["squeue", "-h", "-j", job, "-o", "%T"], capture_output=True, text=True)
    if said.returncode and "Invalid job id" not in said.stderr:
        return None  # a controller that does not answer says nothing about the job
    states = set(said.stdout.split())
    if states - OVER - {"COMPLETING"}:
        return None
    return f"job {job} is {'/'.join(sorted(states)) or 'no longer in the queue'}"


def remedy(said: str) -> str | None:
    """What to do about a refusal of sbatch's (assets/remedies.toml), or None where we do not know it."""
    table = tomllib.loads((cli.ROOT / "assets/remedies.toml").read_text())["sbatch"]
    return next((table[words] for words in table if words.lower() in said.lower()), None)


if __name__ == "__main__":
    text = sys.stdin.read()
    cli.say(text.strip() or "sbatch said nothing")
    if found := remedy(text):
        cli.say(found)
