"""Rollouts of NeMo Gym's agents and environments: its own servers and collector, in .venv-gym, against an endpoint of our registry.

A run's folder has `rows.jsonl` (what is asked), `rollouts.jsonl` (what came, Gym's format), `rollouts_failures.jsonl` and
`collector.log`.
"""

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from decksmith.benchmarks import gym, imports, tasks
from decksmith.core import cli, stream
from decksmith.core.records import Record
from decksmith.models import client as chat_client
from decksmith.models import embedded, endpoints


def collect(
    name: str,
    client: chat_client.Client,
    folder: Path,
    rows: Path | None = None,
    limit: int | None = None,
    repeats: int = 1,
) -> Iterator[Record]:
    """Our graded records of an environment's rollouts, collected where `folder` does not have them yet.

    `rows`: a file in Gym's format; without it a benchmark's own rows, or the example rows of the wheel. Raises cli.BadConfig
    for an unknown name, cli.Missing without .venv-gym, cli.TryAgain where the endpoint does not answer, the collector fails
    or rollouts are lacking, cli.BadData for a folder with rollouts of something else.
    """
    bench = f"gym-{name}"
    tasks.load(bench)
    command = gym.command("collect")
    model = client.model
    folder.mkdir(parents=True, exist_ok=True)
    order = {
        "name": name,
        "model": model.slug,
        "rows": str(rows.resolve()) if rows else None,
        "limit": limit,
        "repeats": repeats,
        "params": _sampling(model.params),
    }
    content = hashlib.sha256(rows.read_bytes()).hexdigest()[:12] if rows else None
    made = folder / "rollouts.jsonl"
    _same(folder / "order.json", order | {"rows": content}, made.exists())
    with _addresses(client) as urls:
        where = {"folder": str(folder.resolve()), "urls": urls, "key": client.key or "none"}
        _collected(command, order | where | {"jobs": model.jobs}, folder / "collector.log")
    records = list(imports.gym(made, bench, model.name)) if made.exists() else []
    yield from records
    wanted = (folder / "rows.jsonl").read_bytes().count(b"\n") * repeats
    if not wanted:
        raise cli.BadData(f"{rows or name} has no tasks")
    if len(records) < wanted:
        raise cli.TryAgain(
            f"{wanted - len(records)} of {wanted} rollouts failed ({folder}/rollouts_failures.jsonl says why, "
            f"{folder}/logs what the servers said); the same command tries them again"
        )


def _sampling(params: Record) -> Record:
    """An entry's sampling in the words of the Responses API."""
    words = {"temperature": "temperature", "top_p": "top_p", "max_tokens": "max_output_tokens"}
    return {theirs: params[ours] for ours, theirs in words.items() if ours in params}


def _same(path: Path, order: Record, begun: bool) -> None:
    """Keep what a folder is collected for. Raises cli.BadData where it has rollouts of something else."""
    if begun and path.exists() and (kept := json.loads(path.read_text())) != order:
        differs = [
            f"{key} {kept.get(key)!r}, now {order[key]!r}"
            for key in order
            if kept.get(key) != order[key]
        ]
        raise cli.BadData(
            f"{path}: other rollouts are here ({'; '.join(differs)}); take another --run"
        )
    stream.write(path, json.dumps(order) + "\n")


@contextlib.contextmanager
def _addresses(client: chat_client.Client) -> Iterator[list[str]]:
    """Where the model answers. Raises cli.TryAgain where nothing does."""
    url = client.model.base_url
    if url == "engine:":
        with embedded.lease(model=client.model.slug) as lease:
            yield [lease.base_url]
        return
    urls = endpoints.addresses(client.model.slug, client.served) if url == "serve:" else url.split()
    if not urls:
        raise cli.TryAgain(f"{client.model.name}: no server runs; `make serve` starts one")
    for url in urls:
        _answers(url)
    yield urls


def _answers(url: str) -> None:
    """Raise cli.BadConfig for what is no address, cli.TryAgain where nothing answers; any status is an answer."""
    if not url.startswith(("http://", "https://")):
        raise cli.BadConfig(f"{url} is no endpoint that Gym's collector can ask")
    try:
        urllib.request.urlopen(f"{url.rstrip('/')}/models", timeout=30).close()
    except urllib.error.HTTPError:
        pass
    except OSError as error:
        raise cli.TryAgain(f"the endpoint {url} does not answer ({error})") from None


def _collected(command: list[str], order: Record, log: Path) -> None:
    """Run the collector to its end. Its servers end with it, and it with us: its input ends, which it watches."""
    env = {
        key: os.environ[key] for key in ("PATH", "HOME", "LANG", "HF_TOKEN") if key in os.environ
    }
    # Gym's settings hold the key; its servers get them by their environment.
    with log.open("ab") as out:
        child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=out, stderr=out, env=env, start_new_session=True
        )
        assert child.stdin, "it is a pipe"
        try:
            with contextlib.suppress(BrokenPipeError):
                child.stdin.write(stream.dumps(order) + b"\n")
                child.stdin.flush()
            status = child.wait()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
    if status:
        last = (log.read_text(errors="replace").strip().splitlines() or ["it said nothing"])[-1]
        raise cli.TryAgain(f"Gym's collector failed ({last[:500]}); {log} has all that it said")
