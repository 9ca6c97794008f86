"""How the tests wait: for what shall happen, and never for a time.

HANG alone is a clock. It ends what would hang for ever, far beyond what a busy machine needs.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HANG = 300  # s


def until(happened: Callable[[], Any], process: Any = None) -> Any:
    """What `happened()` says once that is true; fails after HANG, or where `process` has ended."""
    stop = time.monotonic() + HANG
    while not (found := happened()):
        assert process is None or process.poll() is None, "the process ended before it happened"
        assert time.monotonic() < stop, "it did not happen"
        time.sleep(0.02)
    return found


def ended(pid: int) -> bool:
    """Whether a process has ended; one that nobody has reaped has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def cpu(pid: int) -> float:
    """Seconds of the processor that a process has used, which a busy machine does not stretch."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100
