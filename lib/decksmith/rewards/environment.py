"""A verifiers environment (PyPI, 0.4) of prompts of ours: a package that asks a reward server."""

import shutil
from pathlib import Path

from decksmith.core import cli, stream
from decksmith.rewards import trainer
from decksmith.rewards.rows import Rows

TEMPLATE = cli.ROOT / "assets/environments/verifiers"
PACKAGE = "decksmith_decks"


def export(folder: Path) -> int:
    """Write the package of the prompts on stdin into a new folder; returns how many there are. Raises cli.BadData for
    prompts that cannot be used, cli.Missing for a folder that is there."""
    if folder.exists():
        raise cli.Missing(f"{folder} is there already; remove it, or give another --out")
    rows = Rows(Path("/dev/stdin")).known.values()
    if not rows:
        raise cli.BadData("stdin: no prompt in it")
    fresh = folder.with_name(f"{folder.name}.tmp")
    shutil.rmtree(fresh, ignore_errors=True)
    shutil.copytree(TEMPLATE, fresh, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(trainer.__file__, fresh / PACKAGE / "trainer.py")
    lines = b"".join(stream.dumps(row) + b"\n" for row in rows)
    stream.write(fresh / PACKAGE / "prompts.jsonl", lines)
    fresh.rename(folder)
    return len(rows)
