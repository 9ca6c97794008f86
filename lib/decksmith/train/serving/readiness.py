"""Is a server there, does it list what it should, and does its adapter change anything?"""

import hashlib
import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypedDict

from decksmith.core import cli, incoming, slurm, stream
from decksmith.measure.decks import templates
from decksmith.models import servers
from decksmith.models.records import ServedEndpoint

NAMES = ("base", "tuned")
LAST = 50  # lines of its log that a dead server is quoted with
# What decks are asked for with, since that is what the adapter was trained on; a second one,
# should the first begin alike.
PROBES = (
    "Make a Slidev deck of five slides about how honeybees find their way home. Use the seriph theme.",
    "Write a deck of eight slides that explains compound interest to pupils, with a table and speaker notes.",
)
PROBE_TOKENS = 48


def get(url: str, path: str, body: dict[str, object] | None = None, timeout: float = 5.0) -> Any:
    """The JSON of a GET, or of a POST with a body, below the server's root; no proxy stands between
    us and a compute node. An empty answer is an empty object. Raises OSError, ValueError."""
    data = json.dumps(body).encode() if body is not None else None
    kind = {"Content-Type": "application/json"}
    request = urllib.request.Request(url.removesuffix("/v1") + path, data, kind)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=timeout) as reply:
        text = reply.read(servers.LISTING)
    return incoming.parsed(text) if text.strip() else {}


def wait(url: str, deadline: float, dead: Callable[[], str | None] = lambda: None) -> None:
    """Until the server at `url` is healthy and lists NAMES. `dead()` says what ended it, or None.
    Raises cli.Missing as soon as it is dead, cli.TryAgain at `deadline` (time.monotonic) with what
    was seen last."""
    while True:
        if last := dead():
            raise cli.Missing(last)
        try:
            get(url, "/health", timeout=2)
            listed = [entry["id"] for entry in get(url, "/v1/models")["data"]]
            lacking = [name for name in NAMES if name not in listed]
            if not lacking:
                return
            seen = f"it lists {', '.join(listed)}, not {', '.join(lacking)}"
        except (OSError, ValueError, KeyError, TypeError) as error:
            seen = str(getattr(error, "reason", error))
        if time.monotonic() > deadline:
            raise cli.TryAgain(f"{url} is not ready in time: {seen}")
        time.sleep(0.5)


def ask(url: str, model: str, text: str, tokens: int) -> tuple[str, str]:
    """(content, reasoning) of a greedy reply. Raises cli.TryAgain with the server's words."""
    system = {"role": "system", "content": templates.system_prompt()}
    messages = [system, {"role": "user", "content": text}]
    body = {"model": model, "temperature": 0, "max_tokens": tokens, "messages": messages}
    try:
        message = get(url, "/v1/chat/completions", body, timeout=600)["choices"][0]["message"]
    except urllib.error.HTTPError as error:
        words = " ".join(error.read().decode(errors="replace").split())[:300]
        raise cli.TryAgain(f"{url}: HTTP {error.code}: {words}") from None
    except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
        raise cli.TryAgain(f"{url}: no usable answer from {model} ({error!r})") from None
    reasoning = message.get("reasoning") or message.get("reasoning_content")
    return message.get("content") or "", reasoning or ""


class Probe(TypedDict):
    """Whether adapter and base answer differently; `base` and `tuned` are the sha256 of answers."""

    prompt_sha256: str
    base: str
    tuned: str
    differ: bool


def probe(url: str) -> Probe:
    """Whether adapter and base answer a probe differently. An adapter that matches no module is
    accepted by vLLM, and the base answers under its name (vLLM #55193)."""
    for text in PROBES:
        # A base that does not repeat itself proves nothing by one answer.
        base, tuned, again = (ask(url, name, text, PROBE_TOKENS) for name in (*NAMES, "base"))
        said: Probe = {
            "prompt_sha256": hashlib.sha256(text.encode()).hexdigest(),
            "base": stream.fingerprint(base),
            "tuned": stream.fingerprint(tuned),
            "differ": tuned not in (base, again),
        }
        if said["differ"]:
            break
    return said


def await_ready(
    *, job: str | None = None, pid: int | None = None, timeout: float = 1800
) -> ServedEndpoint:
    """The endpoint of a server that is ready: the first that a file of `servers.folder()` (of
    this `job`) announces. Raises cli.Missing when process or job is gone, with the end of the job's
    log; cli.TryAgain after `timeout` seconds."""
    deadline, seen = time.monotonic() + timeout, "none has been started (make serve)"
    while True:
        for endpoint in servers.running():
            # Job `12` has those of its array, `12_3`.
            its = str(endpoint.get("job"))
            if job and job not in (its, its.split("_")[0]):
                continue
            try:
                wait(endpoint["url"], time.monotonic())
                for name in NAMES:
                    ask(endpoint["url"], name, PROBES[0], 1)
                return endpoint
            except cli.TryAgain as trouble:
                seen = str(trouble)
        if last := _end_of(job, pid):
            raise cli.Missing(last)
        if time.monotonic() > deadline:
            where = f"no server in {servers.folder()} is ready after {timeout:.0f} s"
            raise cli.TryAgain(f"{where}: {seen}")
        time.sleep(1)


def _end_of(job: str | None, pid: int | None) -> str | None:
    """What ended a server of which job or process are known; None while nothing did."""
    if pid and _is_gone(pid):
        return f"process {pid} is gone, and with it the server"
    gone = slurm.ended(job) if job else None
    if not gone:
        return None
    log = servers.folder() / f"{job}.log"
    return f"{gone}, and with it the server; the end of {log}:\n{tail(log)}"


def tail(path: str | Path) -> str:
    """The last lines of a log."""
    try:
        lines = Path(path).read_text(errors="replace").splitlines()
    except OSError:
        return "(it has no log)"
    return "\n".join(lines[-LAST:]) or "(it said nothing)"


def _is_gone(pid: int) -> bool:
    """Whether a process is not there, or only its exit status is (proc(5): state Z)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
