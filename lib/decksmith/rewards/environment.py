"""Prompts of ours as an environment of somebody else's library: files of its own that ask a reward server."""

import shutil
from collections.abc import Iterable
from pathlib import Path

from decksmith.core import cli, stream
from decksmith.core.records import Record
from decksmith.rewards import trainer
from decksmith.rewards.rows import Rows

TEMPLATES = cli.ROOT / "assets/environments"
# Of each kind: where its folder has the client, and the prompts.
PLACES = {
    "verifiers": ("decksmith_decks", "decksmith_decks/prompts.jsonl"),
    "nemo-gym": ("resources_servers/decksmith", "resources_servers/decksmith/data/train.jsonl"),
}
AGENT = {"type": "responses_api_agents", "name": "decksmith_agent"}


EVALUATION = cli.ROOT / "data/prompts.jsonl"


def export(kind: str, folder: Path) -> tuple[int, int]:
    """Write an environment of the prompts on stdin into a new folder; returns how many there are, and how many of them
    EVALUATION asks too. `kind`: of PLACES. Raises cli.BadData for prompts that cannot be used, cli.Missing for a folder that is there."""
    if folder.exists():
        raise cli.Missing(f"{folder} is there already; remove it, or give another --out")
    prompts = Rows(Path("/dev/stdin")).known.values()
    if not prompts:
        raise cli.BadData("stdin: no prompt in it")
    fresh = folder.with_name(f"{folder.name}.tmp")
    shutil.rmtree(fresh, ignore_errors=True)
    shutil.copytree(TEMPLATES / kind, fresh, ignore=shutil.ignore_patterns("__pycache__"))
    client, data = PLACES[kind]
    shutil.copy(trainer.__file__, fresh / client / "decksmith_reward.py")
    rows = prompts if kind == "verifiers" else gym_rows(prompts)
    stream.write(fresh / data, b"".join(stream.dumps(row) + b"\n" for row in rows))
    fresh.rename(folder)
    evaluated = {_request(row) for _, row in stream.records(EVALUATION)}
    return len(prompts), sum(_request(row) in evaluated for row in prompts)


def _request(prompt: Record) -> tuple[str, ...]:
    """What a prompt's user says."""
    return tuple(m["content"] for m in prompt["messages"] if m["role"] == "user")


def gym_rows(prompts: Iterable[Record]) -> Iterable[Record]:
    """Rows of NeMo Gym's collector: what the model is asked, which agent asks, and the prompt as our server wants it."""
    for prompt in prompts:
        yield {
            "responses_create_params": {"input": prompt["messages"]},
            "agent_ref": AGENT,
            "label": prompt,
        }
