"""Who serves now: the files in which running servers say where they are and what they answer with."""

import json
import os
from pathlib import Path

from decksmith.core import cli
from decksmith.core.records import Record


def folder() -> Path:
    return Path(os.environ.get("DECKSMITH_SERVE") or cli.ROOT / "results/serve")


def endpoints() -> list[Record]:
    """What the files of running servers say, by name of the file; a file that is no endpoint is passed over."""
    found = []
    for path in sorted(folder().glob("*.json")):
        try:
            record = json.loads(path.read_text())
            found.append(
                {
                    **record,
                    "url": record["url"],
                    "models": list(record["models"]),
                    "file": str(path),
                }
            )
        except (OSError, ValueError, KeyError, TypeError):  # gone since the glob, or not ours
            continue
    return found


def kind(endpoint: Record, slug: str) -> Record:
    """What decides how a server answers under this name: `{"engine", "base", "adapter"}`, the adapter by its sha256; with "rewards",
    those that an adapter was trained on, if there are any."""
    adapter = {} if slug == "base" else endpoint.get("adapter") or {}
    rewards = {"rewards": adapter["rewards"]} if adapter.get("rewards") else {}
    return {
        "engine": endpoint.get("engine"),
        "base": endpoint.get("base"),
        "adapter": adapter.get("sha256"),
        **rewards,
    }


def identity(slug: str) -> Record | None:
    """`kind` of all running servers, or None without one. Raises cli.BadData when they differ: their replies are no one model's."""
    found = endpoints()
    for other in found[1:]:
        if differing := [
            name
            for name, value in kind(found[0], slug).items()
            if kind(other, slug).get(name) != value
        ]:
            raise cli.BadData(
                f"{found[0]['file']} and {other['file']} serve different models (another {', '.join(differing)}); stop one, or "
                "remove the file of one that is gone, or name another folder with DECKSMITH_SERVE"
            )
    return kind(found[0], slug) if found else None


def addresses(slug: str, wanted: Record | None) -> list[str]:
    """The addresses of the running servers of this kind."""
    return [endpoint["url"] for endpoint in endpoints() if kind(endpoint, slug) == wanted]
