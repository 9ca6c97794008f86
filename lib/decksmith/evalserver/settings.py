"""What the owner of an eval server decides."""

from dataclasses import dataclass
from pathlib import Path


@dataclass
class Settings:
    """How eval-serve was started.

    root      its folder
    allow     routers beside those of this machine, as host names with * or as networks
    model     what the model is called where the router lists none
    limit     questions of each benchmark, 0 for all
    protocol  how slidevbench is scored
    jobs      benchmarks at once
    requests  in flight for each of them
    keep      finished jobs that keep their rows, None for all
    key_env   the variable that holds the router's key
    """

    root: Path
    allow: tuple[str, ...] = ()
    model: str | None = None
    limit: int = 0
    protocol: str = "offline"
    jobs: int = 2
    requests: int = 64
    keep: int | None = None
    key_env: str | None = None
