"""Is a server there, does it list what it should, do its adapters change anything, and what does it make of six questions?"""

import hashlib
import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

from decksmith.core import cli, incoming, slurm, stream
from decksmith.measure.decks import templates
from decksmith.models import servers
from decksmith.models.records import ServedEndpoint

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


def wait(
    url: str, names: Sequence[str], deadline: float, dead: Callable[[], str | None] = lambda: None
) -> None:
    """Until the server at `url` is healthy and lists these names. `dead()` says what ended it, or None.
    Raises cli.Missing as soon as it is dead, cli.TryAgain at `deadline` (time.monotonic) with what
    was seen last."""
    while True:
        if last := dead():
            raise cli.Missing(last)
        try:
            get(url, "/health", timeout=2)
            listed = [entry["id"] for entry in get(url, "/v1/models")["data"]]
            lacking = [name for name in names if name not in listed]
            if not lacking:
                return
            seen = f"it lists {', '.join(listed)}, not {', '.join(lacking)}"
        except (OSError, ValueError, KeyError, TypeError) as error:
            seen = str(getattr(error, "reason", error))
        if time.monotonic() > deadline:
            raise cli.TryAgain(f"{url} is not ready in time: {seen}")
        time.sleep(0.5)


class Heard(NamedTuple):
    """A reply: what ended it, its thought and its text, and how many calls it has."""

    ended: str
    thought: str
    text: str
    calls: int


def heard(url: str, body: Mapping[str, object]) -> Heard:
    """A greedy reply to a body. Raises cli.TryAgain with the server's words."""
    try:
        choice = get(url, "/v1/chat/completions", {"temperature": 0, **body}, timeout=600)[
            "choices"
        ][0]
        said = choice["message"]
        thought = said.get("reasoning") or said.get("reasoning_content") or ""
        calls = len(said.get("tool_calls") or ())
        return Heard(str(choice.get("finish_reason")), thought, said.get("content") or "", calls)
    except urllib.error.HTTPError as error:
        words = " ".join(error.read().decode(errors="replace").split())[:300]
        raise cli.TryAgain(f"{url}: HTTP {error.code}: {words}") from None
    except (OSError, ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise cli.TryAgain(f"{url}: no usable answer from {body['model']} ({error!r})") from None


def ask(url: str, text: str, tokens: int, named: Mapping[str, object]) -> Heard:
    """The reply to a request for a deck. named: the model, in the body's words. Raises cli.TryAgain."""
    system = {"role": "system", "content": templates.system_prompt()}
    messages = [system, {"role": "user", "content": text}]
    return heard(url, {"max_tokens": tokens, "messages": messages, **named})


class Probe(TypedDict):
    """Whether adapters and base answer differently; `answers`: sha256 by name; `alike`: the adapters that do not."""

    prompt_sha256: str
    answers: dict[str, str]
    alike: list[str]
    differ: bool


def probe(url: str, names: Sequence[str], engine: str = "") -> Probe | None:
    """Whether each adapter answers a probe otherwise than the base (the first name); None without adapters. An adapter
    that matches no module is accepted by vLLM, and the base answers under its name (vLLM #55193)."""
    said: Probe | None = None
    for text in PROBES if names[1:] else ():
        # A base that does not repeat itself proves nothing by one answer.
        plain = [ask(url, text, PROBE_TOKENS, {"model": names[0]}) for _ in range(2)]
        tuned = {
            name: ask(url, text, PROBE_TOKENS, servers.chosen(engine, name)) for name in names[1:]
        }
        alike = [name for name in tuned if tuned[name] in plain]
        said = {
            "prompt_sha256": hashlib.sha256(text.encode()).hexdigest(),
            "answers": {
                name: stream.fingerprint(answer[1:3])
                for name, answer in {names[0]: plain[0], **tuned}.items()
            },
            "alike": alike,
            "differ": not alike,
        }
        if not alike:
            break
    return said


# What a model is asked before it is published: its parsers, switches and template are wrong here, or after a night's run.
CAPITAL = "What is the capital of France? Answer with one word."
WEATHER = {
    "name": "weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}


def interview(url: str, named: Mapping[str, object], thinking: Mapping[str, Any]) -> None:
    """Ask six questions and show what came back, a line each; what is empty is said. thinking: the switches of the
    model's family, {} of one that has none."""

    def asked(text: str = CAPITAL, *before: object, **more: object) -> Heard:
        messages = [*before, {"role": "user", "content": text}]
        body = {"max_tokens": 512 if thinking else 32, "messages": messages, **named, **more}
        try:
            return heard(url, body)
        except cli.TryAgain as trouble:
            return Heard("refused", "", str(trouble).removeprefix(f"{url}: "), 0)

    on = dict(thinking) or {"enable_thinking": True}
    off = {key: False if value is True else "low" for key, value in on.items()}
    tools = [{"type": "function", "function": WEATHER}]
    questions: dict[str, Callable[[], Heard]] = {
        "plain": asked,
        "system": lambda: asked(CAPITAL, {"role": "system", "content": "Write capitals."}),
        "thinking": lambda: asked(chat_template_kwargs=on),
        "no thought": lambda: asked(chat_template_kwargs=off),
        "tool": lambda: asked("How is the weather in Bern?", tools=tools, tool_choice="auto"),
        "long": lambda: asked("The bee flew home. " * 400 + CAPITAL),
    }
    at_once = ThreadPoolExecutor(len(questions))
    try:
        replies = list(at_once.map(lambda question: question(), questions.values()))
    finally:  # whoever is asked to stop waits for no reply
        at_once.shutdown(wait=False, cancel_futures=True)
    cli.say("six questions: what ended each reply, characters of thought and answer, calls")
    for question, reply in zip(questions, replies, strict=True):
        shown = "".join(filter(str.isprintable, " ".join(reply.text.split())))[:48]
        if not reply.text and not reply.calls:
            shown = "EMPTY" + (": the whole reply is in the thought" if reply.thought else "")
        counts = f"{len(reply.thought):>6} {len(reply.text):>6} {reply.calls:>2}"
        cli.tell(f"  {question:<10} {reply.ended:<8} {counts}  {shown}")
    if any(one.ended == "stop" and one.thought and not one.text for one in replies):
        cli.say(
            "a reply that ended by itself came back empty: the reasoning parser took it for a thought. "
            "Leave it away where the model does not think (reasoning_parser of assets/recipes/families.toml)"
        )


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
                names = endpoint["models"]
                wait(endpoint["url"], names, time.monotonic())
                for name in names:
                    engine = endpoint["engine"] if name in endpoint["adapters"] else ""
                    ask(endpoint["url"], PROBES[0], 1, servers.chosen(engine, name))
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
