"""Evaluations for a training loop, asked of an eval server: what `bin/eval-serve` runs is here one
call that never ends the training. `bin/eval-request` is made of it too.

    from decksmith.bench.evalserver import eval_client
    metrics = eval_client.evaluate(step, "http://10.0.0.1:3333", "aime25:8 gsm8k:1", run="my-run")

This file needs nothing but Python 3.10 and may be copied into a trainer's image alone. The server
is DECKSMITH_EVAL_URL, with the token in DECKSMITH_EVAL_TOKEN; or DECKSMITH_EVAL_ADDRESS, its
address file, which is read anew at each attempt: a server that moved is found again. An evaluation
blocks, so that the weights stay as they are; a server that is started anew meanwhile is joined
where it was.

    --eval-function-path decksmith.bench.evalserver.eval_client.slime   slime after January 2026
    eval "$(python3 -m decksmith.bench.evalserver.eval_client results/eval/server.json)"
        sets the two variables once the server answers
"""

import base64
import http.client
import json
import logging
import math
import os
import shlex
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from http.client import HTTPResponse
from typing import Any, Protocol, TypedDict

LOG = logging.getLogger("decksmith.bench.evalserver.eval_client")
SILENCE = 120.0  # seconds without a byte until a connection is lost; the server sends two a second
PATIENCE = 600.0  # seconds without any sign of life until the server counts as gone
TRIES = 100  # connections, of a server that begins to answer and breaks off each time
ANSWER = 64 << 20  # bytes
LOOK = 0.5  # seconds between two looks at a job
ENDED = ("done", "partial", "failed", "cancelled", "superseded")
# The trainer's own settings where the file names none, as its delegate client had it.
FLAGS = {
    "n_samples_per_eval_prompt": ("n_samples_per_eval_prompt", "n_samples_per_prompt"),
    "temperature": ("eval_temperature", "rollout_temperature"),
    "top_p": ("eval_top_p", "rollout_top_p"),
    "top_k": ("eval_top_k", "rollout_top_k"),
    "max_response_len": ("eval_max_response_len", "rollout_max_response_len"),
}
# Slurm's states of a job that runs, or will.
ALIVE = {"RUNNING", "PENDING", "CONFIGURING", "SUSPENDED", "REQUEUED"}
# What asking may end in beside an HTTP status.
BROKEN = (OSError, http.client.HTTPException, ValueError, RecursionError)

Metrics = dict[str, float]  # {"eval/BENCHMARK/MODE/METRIC": number}, shares from 0 to 1
Json = dict[str, Any]  # an object that is sent, or was received


class Address(TypedDict, total=False):
    """What an address file says."""

    url: str
    token: str
    job: str | None  # of Slurm


class EvaluationFailed(RuntimeError):
    """No metrics; `kind` is unreachable, refused, failed or late. `status` is the HTTP status of
    a refusal, `answer` what a job that was to be complete or nothing says instead."""

    def __init__(self, kind: str, message: str, status: int = 0, answer: Json | None = None):
        super().__init__(message)
        self.kind, self.status, self.answer = kind, status, answer


def evaluate(
    step: int,
    router_urls: str | Iterable[str],
    benchmarks: str | Iterable[Mapping[str, object]],
    *,
    run: str | None = None,
    url: str | None = None,
    headers: dict[str, str] | None = None,
    on_failure: str = "soft",
    patience: float = PATIENCE,
    limit: float | None = None,
    **more: object,
) -> Metrics:
    """Have the model behind `router_urls` evaluated.

    step         the trainer's step or rollout
    router_urls  one address of an OpenAI-compatible server without its /v1, or a list of them
    benchmarks   "aime25:8 gsm8k" (NAME:SAMPLES), or the request's own list of objects
    run          a name that this training alone has; by default the Slurm job. A newer step of a
                 run replaces an older one
    on_failure   soft: what went wrong is metrics, eval/delegate/ok = 0 and eval/delegate/KIND = 1;
                 hard: EvaluationFailed
    patience     seconds without any sign of life until the server counts as gone
    limit        seconds of all, or None
    more         further keys of the request: model, defaults, checkpoint, weight_version (only
                 what no other weights ever had)
    """
    began = time.monotonic()
    try:
        urls = [router_urls] if isinstance(router_urls, str) else list(router_urls)
        asked = named(benchmarks) if isinstance(benchmarks, str) else list(benchmarks)
        body: Json = {"rollout_id": int(step), "benchmarks": asked, "on_failure": on_failure}
        body |= {"router_url": urls[0]} | ({"router_urls": urls} if len(urls) > 1 else {})
        if run := run or os.environ.get("SLURM_JOB_ID"):
            body["run"] = str(run)
        server = Server(url, headers=headers, patience=patience, limit=limit)
        answer = server.ask("POST", "/evaluate", {**body, **more})
        if not isinstance(answer.get("raw_metrics"), dict):
            raise EvaluationFailed("failed", f"no raw_metrics in {str(answer)[:300]}")
        metrics = {**_flat(answer["raw_metrics"]), "eval/delegate/ok": 1.0}
    except Exception as error:
        if on_failure == "hard":
            raise
        kind = error.kind if isinstance(error, EvaluationFailed) else "failed"
        LOG.warning("evaluation of step %s gave no metrics (%s): %s", step, kind, error)
        metrics = {"eval/delegate/ok": 0.0, f"eval/delegate/{kind}": 1.0}
    return {**metrics, "eval/delegate/seconds": time.monotonic() - began}


def named(benchmarks: str) -> list[Json]:
    """The request's list of benchmarks for "aime25:8 gsm8k". Raises ValueError."""
    made: list[Json] = []
    for word in benchmarks.split():
        name, colon, samples = word.partition(":")
        made.append({"name": name})
        if colon:
            made[-1]["n_samples_per_eval_prompt"] = int(samples)
    return made


def _flat(metrics: Json, prefix: str = "eval") -> Metrics:
    """Nested metrics as {"eval/a/b": float}; what is no finite number is left out."""
    found: Metrics = {}
    for key, value in metrics.items():
        name = f"{prefix}/{key}"
        if isinstance(value, dict):
            found.update(_flat(value, name))
        elif isinstance(value, (int, float)) and math.isfinite(value):
            found[name] = float(value)
    return found


# Asking


class _Stays(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:  # the token is for one server
        return None


# No proxy stands between nodes of a cluster.
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}), _Stays)


def _open(
    url: str,
    body: Json | None = None,
    headers: dict[str, str] | None = None,
    timeout: float = 10.0,
    method: str | None = None,
) -> HTTPResponse:
    data = None if body is None else json.dumps(body, allow_nan=False).encode()
    headers = {"Content-Type": "application/json", **(headers or {})}
    request = urllib.request.Request(url, data, headers, method=method)
    reply: HTTPResponse = OPENER.open(request, timeout=timeout)
    return reply


class Server:
    """An eval server: at a `url`, in an `address` file, or where the environment says. It is asked
    again while it cannot be reached: for `patience` seconds without a sign of life, for TRIES
    connections, and for `limit` seconds in all. What was asked for before is joined."""

    def __init__(
        self,
        url: str | None = None,
        address: str | os.PathLike[str] | None = None,
        *,
        headers: dict[str, str] | None = None,
        patience: float = PATIENCE,
        limit: float | None = None,
    ) -> None:
        self.url, self.address, self.headers = url, address, headers or {}
        self.patience = patience
        self.deadline = math.inf if limit is None else time.monotonic() + limit

    def ask(self, method: str, path: str, body: Json | None = None) -> Json:
        """The object that a route answers. Raises EvaluationFailed."""
        self.tries, self.pause, self.heard = TRIES, 1.0, time.monotonic()
        while True:
            try:
                url, token = self._where()
                bearer = {"Authorization": f"Bearer {token}"} if token else {}
                headers = bearer | self.headers
                with _open(url + path, body, headers, SILENCE, method) as reply:
                    return self._answer(reply)
            except urllib.error.HTTPError as error:
                answer, words = _refusal(error)
                seen = f"HTTP {error.code} {words}"
                if error.code == 500:
                    raise EvaluationFailed("failed", seen, 500, answer) from None
                if error.code < 500 and error.code not in (408, 425, 429):
                    raise EvaluationFailed("refused", words or seen, error.code) from None
            except FileNotFoundError as error:
                seen = f"{error.strerror}: {error.filename}"
            except BROKEN as error:
                seen = str(getattr(error, "reason", error)) or repr(error)
            self._wait(seen)

    def watch(self, job: str) -> Iterator[Json]:
        """How far the benchmarks of a job are, at each change, until it ended; across restarts of
        the server."""
        before: Json = {}
        while True:
            said = self.ask("GET", f"/jobs/{job}")
            states = {name: each["status"] for name, each in said["benchmarks"].items()}
            done = {name: each.get("done") for name, each in said["benchmarks"].items()}
            if (now := {"status": said["status"], "benchmarks": states, "done": done}) != before:
                yield now
            if said["status"] in ENDED:
                return
            before = now
            time.sleep(LOOK)

    def _where(self) -> tuple[str, str]:
        """Address and token. Raises OSError or ValueError for an address file that is not there or
        no such file, EvaluationFailed where nothing says."""
        token = os.environ.get("DECKSMITH_EVAL_TOKEN", "")
        url = self.url or (None if self.address else os.environ.get("DECKSMITH_EVAL_URL"))
        if url:
            return url.rstrip("/").removesuffix("/evaluate"), token
        path = self.address or os.environ.get("DECKSMITH_EVAL_ADDRESS")
        if not path:
            words = "neither DECKSMITH_EVAL_URL nor DECKSMITH_EVAL_ADDRESS says where the server is"
            raise EvaluationFailed("unreachable", words)
        found = address(path)
        return found["url"], token or found["token"]

    def _answer(self, reply: HTTPResponse) -> Json:
        """The object that a server answers, after blanks where it takes long. Raises
        EvaluationFailed, and OSError or ValueError for what was cut."""
        received, size = [], 0
        while part := reply.read1(1 << 16):
            if part.isspace():  # a sign of life; anything else is an answer, good or bad
                self.heard, self.pause = time.monotonic(), 1.0
            received.append(part)
            size += len(part)
            if time.monotonic() > self.deadline:
                words = "the limit is over; the server goes on, and a later request joins it"
                raise EvaluationFailed("late", words)
            if size > ANSWER:
                raise EvaluationFailed("failed", "the answer has no end")
        answer = json.loads(b"".join(received))
        if not isinstance(answer, dict):
            raise EvaluationFailed("failed", f"no object, but {str(answer)[:300]}")
        return answer

    def _wait(self, seen: str) -> None:
        """Pause before the next connection; `seen`: why the last one brought nothing. Raises
        EvaluationFailed where there is none."""
        now = time.monotonic()
        if now > self.deadline:
            raise EvaluationFailed("late", seen)
        silent = now - self.heard
        self.tries -= 1
        if silent >= self.patience or self.tries <= 0:
            words = f"no answer, and no sign of life for {silent:.0f} s: {seen}"
            raise EvaluationFailed("unreachable", words)
        LOG.info("asking the eval server again in %.0f s: %s", self.pause, seen)
        time.sleep(min(self.pause, max(0.1, self.patience - silent)))
        self.pause = min(2 * self.pause, 30.0)


def _refusal(error: urllib.error.HTTPError) -> tuple[Json | None, str]:
    """What a server says of an error: its metrics, if it has some, and a line."""
    try:
        text = error.read(ANSWER).decode(errors="replace")
    except OSError:
        return None, ""
    try:
        said = json.loads(text)
        return (said if "raw_metrics" in said else None), str(said["error"])
    except (ValueError, KeyError, TypeError):
        return None, " ".join(text.split())[:300]


def address(path: str | os.PathLike[str]) -> Address:
    """What an address file says. Raises OSError, and ValueError for what is no such file."""
    with open(path) as file:
        found = json.load(file)
    texts = [found.get(key) for key in ("url", "token")] if isinstance(found, dict) else [None]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError(f"{path} is no address file")
    return {"url": found["url"].rstrip("/"), "token": found["token"], "job": found.get("job")}


def ready(path: str | os.PathLike[str], seconds: float = 0.0) -> Address:
    """The address file's content once its server answers. Raises EvaluationFailed: `failed` as
    soon as the Slurm job in it is over, `unreachable` after so many seconds."""
    deadline = time.monotonic() + seconds
    while True:
        found: Address = {}
        try:
            found = address(path)
            _open(found["url"] + "/health", timeout=5).close()
            return found
        except FileNotFoundError:
            seen = f"there is no {path}"
        except BROKEN as error:
            seen = f"{found.get('url', path)}: {getattr(error, 'reason', error)}"
        job = found.get("job")
        if job and (over := _over(str(job))):
            words = f"{path} is left over: {over}; a server started anew replaces it"
            raise EvaluationFailed("failed", words)
        if time.monotonic() >= deadline:
            raise EvaluationFailed("unreachable", f"no eval server answers: {seen}")
        time.sleep(LOOK)


def _over(job: str) -> str | None:
    """What became of a Slurm job that is over; None while it is not, or where nobody can tell."""
    if not shutil.which("squeue"):
        return None
    said = subprocess.run(["squeue", "-h", "-j", job, "-o", "%T"], capture_output=True, text=True)
    if said.returncode and "Invalid job id" not in said.stderr:
        return None  # a controller that does not answer says nothing about the job
    states = set(said.stdout.split())
    if states & ALIVE:
        return None
    return f"job {job} is {'/'.join(sorted(states)) or 'no longer in the queue'}"


# Trainers


class SlimeArgs(Protocol):
    """Of slime's settings, those that are always there."""

    sglang_router_ip: str
    sglang_router_port: int


def configured(args: object) -> list[Json]:
    """What the delegates of a trainer's --eval-config ask for: [keyword arguments of `evaluate`],
    read as its own client read them."""
    from omegaconf import OmegaConf  # the trainer reads the same file by it

    source = getattr(args, "eval_config", None) or ""
    if not source:
        return []
    if source.startswith("base64:"):
        loaded = OmegaConf.create(base64.b64decode(source[7:]).decode())
    else:
        loaded = OmegaConf.load(os.path.expanduser(source))
    setting: Any = OmegaConf.to_container(loaded, resolve=True)
    flags: Json = {}
    for key, names in FLAGS.items():
        given = [getattr(args, name, None) for name in names]
        flags[key] = next((value for value in given if value is not None), None)
    found: list[Json] = []
    for entry in setting.get("eval", setting).get("delegate") or []:
        if not entry.get("url") or not entry.get("datasets"):
            continue
        asked = []
        for one in entry["datasets"]:
            values = {**flags, **(entry.get("defaults") or {}), **one}
            asked.append({key: value for key, value in values.items() if value is not None})
        headers = entry.get("headers") or {}
        run = {name.lower(): value for name, value in headers.items()}.get("x-run-id")
        found.append({"benchmarks": asked, "url": entry["url"], "headers": headers, "run": run})
    return found


def _delegated(args: object, step: int, router: str) -> Metrics:
    """The metrics of all delegates. Nothing is raised, unless DECKSMITH_EVAL_FAILURE is hard."""
    on_failure = os.environ.get("DECKSMITH_EVAL_FAILURE") or "soft"
    metrics: Metrics = {}
    try:
        for asked in configured(args):
            metrics.update(evaluate(step, router, on_failure=on_failure, **asked))
    except Exception as error:
        if on_failure == "hard":
            raise
        LOG.warning("evaluation of step %s was not asked for: %r", step, error)
        metrics.update({"eval/delegate/ok": 0.0, "eval/delegate/failed": 1.0})
    return metrics


def slime(args: SlimeArgs, rollout_id: int, data_source: object, evaluation: bool = True) -> object:
    """For slime's --eval-function-path: the delegates of --eval-config, then the trainer's own
    evaluation."""
    from slime.rollout.base_types import RolloutFnEvalOutput
    from slime.rollout.sglang_rollout import generate_rollout

    host = args.sglang_router_ip
    if ":" in host and not host.startswith("["):
        host = f"[{host}]"
    metrics = _delegated(args, rollout_id, f"http://{host}:{args.sglang_router_port}")
    own = generate_rollout(args, rollout_id, data_source, evaluation=evaluation)
    if not isinstance(own, RolloutFnEvalOutput):
        own = RolloutFnEvalOutput(data=own)
    own.metrics = {**metrics, **(own.metrics or {})}
    return own


def main(path: str, seconds: str = "600") -> int:
    """Print what sets the two variables of a shell, once the server answers. The exit status."""
    try:
        try:
            found = ready(path)
        except EvaluationFailed as error:
            if error.kind == "failed":
                raise
            print(f"waiting up to {float(seconds):g} s: {error}", file=sys.stderr, flush=True)
            found = ready(path, float(seconds))
    except EvaluationFailed as error:
        print(f"eval-serve: {error}", file=sys.stderr)
        return 69 if error.kind == "failed" else 75
    url, token = shlex.quote(found["url"]), shlex.quote(found["token"])
    print(f"export DECKSMITH_EVAL_URL={url} DECKSMITH_EVAL_TOKEN={token}")
    # Trainers ask by the environment's proxies.
    host = shlex.quote(urllib.parse.urlsplit(found["url"]).hostname or "")
    direct = f'"${{no_proxy:+$no_proxy,}}"{host}'
    print(f"export no_proxy={direct} NO_PROXY={direct}")
    return 0


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit("usage: python3 -m decksmith.bench.evalserver.eval_client ADDRESS [SECONDS]")
    sys.exit(main(*sys.argv[1:]))
