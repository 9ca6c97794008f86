"""Evaluations for a training loop, asked of an eval server: what `bin/eval-serve` runs is here one
call that never ends the training.

    from decksmith.evalserver import trainer
    metrics = trainer.evaluate(step, "http://10.0.0.1:3333", "aime25:8 gsm8k:1", run="my-run")     # {"eval/aime25/pass@1[avg-of-8]/..": 0.43}

This file needs nothing but Python 3.10 and may be copied into a trainer's image alone. The server
is DECKSMITH_EVAL_URL, with the token in DECKSMITH_EVAL_TOKEN; or DECKSMITH_EVAL_ADDRESS, its
address file, which is read anew at each attempt: a server that moved is found again. An evaluation
blocks, so that the weights stay as they are; a server that is started anew meanwhile is joined
where it was.

    --eval-function-path decksmith.evalserver.trainer.slime      slime after January 2026: the delegate of its --eval-config, asked here
    --eval-function-path decksmith.evalserver.trainer.Miles      miles with train_async.py: each snapshot, loaded into the sglang server DECKSMITH_EVAL_ENGINE
    eval "$(python3 -m decksmith.evalserver.trainer results/eval/server.json)"      sets the two variables once the server answers
"""

import asyncio
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
from collections.abc import Iterable, Mapping
from http.client import HTTPResponse
from typing import Any

LOG = logging.getLogger("decksmith.evalserver.trainer")
# Seconds without a byte until a connection counts as lost; the server sends two a second.
SILENCE = 120
PATIENCE = 600  # seconds without any sign of life until the server counts as gone
TRIES = 100  # connections, of a server that begins to answer and breaks off each time
ANSWER = 64 << 20  # bytes
# Where the trainer's own settings come from when the file names none, as its delegate client had
# it.
FLAGS = {
    "n_samples_per_eval_prompt": ("n_samples_per_eval_prompt", "n_samples_per_prompt"),
    "temperature": ("eval_temperature", "rollout_temperature"),
    "top_p": ("eval_top_p", "rollout_top_p"),
    "top_k": ("eval_top_k", "rollout_top_k"),
    "max_response_len": ("eval_max_response_len", "rollout_max_response_len"),
}


# Slurm's states of a job that runs, or will.
ALIVE = {"RUNNING", "PENDING", "CONFIGURING", "SUSPENDED", "REQUEUED"}

Record = dict[str, Any]


class EvaluationFailed(RuntimeError):
    """No metrics; `kind` is unreachable, refused, failed or late."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def evaluate(
    step: int,
    router_urls: str | Iterable[str],
    benchmarks: str | Iterable[Mapping[str, Any]],
    *,
    run: str | None = None,
    url: str | None = None,
    headers: dict[str, str] | None = None,
    on_failure: str = "soft",
    silence: float = SILENCE,
    patience: float = PATIENCE,
    limit: float | None = None,
    **more: Any,
) -> dict[str, float]:
    """Have the model behind `router_urls` evaluated: flat metrics, {"eval/BENCHMARK/MODE/METRIC":
    float}, shares from 0 to 1.

    step            the trainer's step or rollout
    router_urls     one address of an OpenAI-compatible server without its /v1, or a list of them (one for each data-parallel rank)
    benchmarks      "aime25:8 gsm8k" (how often each question is asked stands behind the colon), or the request's own list of objects
    run             a name that this training alone has; by default the Slurm job. A newer step of a run replaces an older one
    on_failure      soft: what went wrong is metrics, eval/delegate/ok = 0 and eval/delegate/KIND = 1; hard: EvaluationFailed
    silence         seconds without a byte until a connection counts as lost; patience: until the server does; limit: of all, or None
    more            further keys of the request: model, defaults, checkpoint, weight_version (only what no other weights ever had), supersede
    """
    began = time.monotonic()
    try:
        urls = [router_urls] if isinstance(router_urls, str) else list(router_urls)
        body: Record = {
            "rollout_id": int(step),
            "router_url": urls[0],
            "benchmarks": _benchmarks(benchmarks),
            "on_failure": on_failure,
        }
        if len(urls) > 1:
            body["router_urls"] = urls
        if run := run or os.environ.get("SLURM_JOB_ID"):
            body["run"] = str(run)
        clock = _Clock(patience, None if limit is None else began + limit)
        answer = _asked({**body, **more}, url, headers or {}, silence, clock)
        return {
            **_flat(answer["raw_metrics"]),
            "eval/delegate/ok": 1.0,
            "eval/delegate/seconds": time.monotonic() - began,
        }
    except Exception as error:
        if on_failure == "hard":
            raise
        kind = error.kind if isinstance(error, EvaluationFailed) else "failed"
        LOG.warning("evaluation of step %s gave no metrics (%s): %s", step, kind, error)
        return {
            "eval/delegate/ok": 0.0,
            f"eval/delegate/{kind}": 1.0,
            "eval/delegate/seconds": time.monotonic() - began,
        }


def _benchmarks(asked: str | Iterable[Mapping[str, Any]]) -> list[Record]:
    """The request's own list of what is asked for."""
    if not isinstance(asked, str):
        return [dict(one) for one in asked]
    made: list[Record] = []
    for word in asked.split():
        name, _, samples = word.partition(":")
        made.append({"name": name})
        if samples:
            made[-1]["n_samples_per_eval_prompt"] = int(samples)
    return made


def _flat(metrics: Record, prefix: str = "eval") -> dict[str, float]:
    """Nested metrics as {"eval/a/b": float}; what is no finite number is left out."""
    found: dict[str, float] = {}
    for key, value in metrics.items():
        name = f"{prefix}/{key}"
        if isinstance(value, dict):
            found.update(_flat(value, name))
        elif isinstance(value, (int, float)) and math.isfinite(value):
            found[name] = float(value)
    return found


# Asking


class _Stays(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:  # the token is for one server
        return None


# No proxy stands between nodes of a cluster.
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}), _Stays)


def _open(
    url: str,
    body: Record | None = None,
    headers: dict[str, str] | None = None,
    timeout: float = 10.0,
) -> HTTPResponse:
    data = None if body is None else json.dumps(body, allow_nan=False).encode()
    headers = {"Content-Type": "application/json", **(headers or {})}
    return OPENER.open(urllib.request.Request(url, data, headers), timeout=timeout)


class _Clock:
    """How long to go on asking: `patience` seconds without a sign of life, at most TRIES
    connections, and not beyond `deadline` (time.monotonic), if there is one."""

    def __init__(self, patience: float, deadline: float | None) -> None:
        self.patience, self.deadline = patience, deadline
        self.tries = TRIES
        self.alive()

    def alive(self) -> None:
        """There was a sign of life."""
        self.last, self.pause = time.monotonic(), 1.0

    def late(self) -> bool:
        return self.deadline is not None and time.monotonic() > self.deadline

    def wait(self, said: str) -> None:
        """Pause before the next connection; `said`: why the last one brought nothing. Raises
        EvaluationFailed where there is none."""
        if self.late():
            raise EvaluationFailed("late", said)
        silent = time.monotonic() - self.last
        self.tries -= 1
        if silent > self.patience or self.tries <= 0:
            raise EvaluationFailed(
                "unreachable", f"no answer, and no sign of life for {silent:.0f} s: {said}"
            )
        LOG.info("asking the eval server again in %.0f s: %s", self.pause, said)
        time.sleep(min(self.pause, max(0.1, self.patience - silent)))
        self.pause = min(2 * self.pause, 30.0)


def _asked(
    body: Record, url: str | None, headers: dict[str, str], silence: float, clock: _Clock
) -> Record:
    """POST /evaluate until there is an answer. A retry joins the evaluation that runs."""
    while True:
        try:
            where, token = server(url)
            own = {"Authorization": f"Bearer {token}"} if token else {}
            with _open(where + "/evaluate", body, {**own, **headers}, silence) as reply:
                return _answer(reply, clock)
        except urllib.error.HTTPError as error:
            said = f"HTTP {error.code}: {_words(error)}"
            if error.code == 500:
                raise EvaluationFailed("failed", said) from None
            if error.code < 500 and error.code not in (408, 425, 429):
                raise EvaluationFailed("refused", said) from None
        except (OSError, http.client.HTTPException, ValueError, RecursionError) as error:
            said = str(getattr(error, "reason", error)) or repr(error)
        clock.wait(said)


def _answer(reply: HTTPResponse, clock: _Clock) -> Record:
    """The object that a server answers after its blanks. Raises EvaluationFailed, and OSError or
    ValueError for what was cut."""
    received, size = [], 0
    while part := reply.read1(1 << 16):
        if part.isspace():  # a sign of life; anything else is an answer, good or bad
            clock.alive()
        received.append(part)
        size += len(part)
        if clock.late():
            raise EvaluationFailed(
                "late", "the limit is over; the server goes on, and a later request joins it"
            )
        if size > ANSWER:
            raise EvaluationFailed("failed", "the answer has no end")
    answer = json.loads(b"".join(received))
    if not isinstance(answer, dict) or not isinstance(answer.get("raw_metrics"), dict):
        raise EvaluationFailed("failed", f"an answer without raw_metrics: {str(answer)[:300]}")
    return answer


def _words(error: urllib.error.HTTPError) -> str:
    """What a server says of an error, in one line."""
    try:
        text = error.read(2000).decode(errors="replace")
    except OSError:
        return ""
    try:
        text = str(json.loads(text)["error"])
    except (ValueError, KeyError, TypeError):
        pass
    return " ".join(text.split())[:300]


def server(url: str | None = None) -> tuple[str, str]:
    """(address, token) of the eval server. Raises OSError or ValueError where the address file is
    not there or no such file."""
    if url := url or os.environ.get("DECKSMITH_EVAL_URL"):
        return url.rstrip("/").removesuffix("/evaluate"), os.environ.get("DECKSMITH_EVAL_TOKEN", "")
    path = os.environ.get("DECKSMITH_EVAL_ADDRESS")
    if not path:
        raise EvaluationFailed(
            "unreachable",
            "neither DECKSMITH_EVAL_URL nor DECKSMITH_EVAL_ADDRESS says where the eval server is",
        )
    found = address(path)
    return found["url"], found["token"]


def address(path: str | os.PathLike[str]) -> Record:
    """What an address file says: {"url", "token", "pid", "job", "host"}. Raises OSError, and
    ValueError for what is no such file."""
    with open(path) as file:
        found = json.load(file)
    if not isinstance(found, dict):
        raise ValueError(f"{path} is no address file")
    if not isinstance(found.get("url"), str) or not isinstance(found.get("token"), str):
        raise ValueError(f"{path} is no address file")
    return {**found, "url": found["url"].rstrip("/")}


def ready(path: str | os.PathLike[str], seconds: float = 0.0) -> Record:
    """The address file's content once its server answers. Raises EvaluationFailed: `failed` as
    soon as the Slurm job in it is over, `unreachable` after so many seconds."""
    deadline = time.monotonic() + seconds
    while True:
        found: Record = {}
        try:
            found = address(path)
            with _open(found["url"] + "/health", timeout=5) as reply:
                said = json.loads(reply.read(1 << 16))
            if said.get("job") in (None, found.get("job")):
                return found
            seen = f"at {found['url']} answers the server of job {said['job']}, and {path} is of job {found.get('job')}"
        except FileNotFoundError:
            seen = f"there is no {path}"
        except (OSError, http.client.HTTPException, ValueError, AttributeError) as error:
            seen = f"{found.get('url', path)}: {getattr(error, 'reason', error)}"
        over = _over(str(found["job"])) if found.get("job") else None
        if over:
            raise EvaluationFailed(
                "failed", f"{path} is left over: {over}; a server started anew replaces it"
            )
        if time.monotonic() >= deadline:
            raise EvaluationFailed("unreachable", f"no eval server answers: {seen}")
        time.sleep(0.5)


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


def configured(args: Any) -> list[Record]:
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
    flags = {key: _flag(args, names) for key, names in FLAGS.items()}
    found = []
    for entry in setting.get("eval", setting).get("delegate") or []:
        if not entry.get("url") or not entry.get("datasets"):
            continue
        defaults, headers = entry.get("defaults") or {}, entry.get("headers") or {}
        asked = [_said({**flags, **defaults, **one}) for one in entry["datasets"]]
        run = {name.lower(): value for name, value in headers.items()}.get("x-run-id")
        found.append({"benchmarks": asked, "url": entry["url"], "headers": headers, "run": run})
    return found


def _flag(args: Any, names: Iterable[str]) -> Any:
    """The first of a trainer's settings that is set."""
    return next((value for name in names if (value := getattr(args, name, None)) is not None), None)


def _said(values: Record) -> Record:
    return {key: value for key, value in values.items() if value is not None}


def _delegated(args: Any, step: int, router_urls: str, **more: Any) -> dict[str, float]:
    """The metrics of all delegates. Nothing is raised, unless DECKSMITH_EVAL_FAILURE is hard."""
    more.setdefault("on_failure", os.environ.get("DECKSMITH_EVAL_FAILURE") or "soft")
    metrics: dict[str, float] = {}
    try:
        for asked in configured(args):
            metrics.update(evaluate(step, router_urls, **asked, **more))
    except Exception as error:
        if more["on_failure"] == "hard":
            raise
        LOG.warning("evaluation of step %s was not asked for: %r", step, error)
        metrics.update({"eval/delegate/ok": 0.0, "eval/delegate/failed": 1.0})
    return metrics


def slime(args: Any, rollout_id: int, data_source: Any, evaluation: bool = True) -> Any:
    """For slime's --eval-function-path: the delegates of --eval-config, then the trainer's own
    evaluation."""
    from slime.rollout.base_types import RolloutFnEvalOutput
    from slime.rollout.sglang_rollout import generate_rollout

    metrics = _delegated(
        args, rollout_id, f"http://{_bracketed(args.sglang_router_ip)}:{args.sglang_router_port}"
    )
    own = generate_rollout(args, rollout_id, data_source, evaluation=evaluation)
    if not isinstance(own, RolloutFnEvalOutput):
        own = RolloutFnEvalOutput(data=own)
    own.metrics = {**metrics, **(own.metrics or {})}
    return own


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def pin(engine: str, checkpoint: str | os.PathLike[str], version: str) -> None:
    """Load a checkpoint's folder into an sglang server. Raises OSError or ValueError when it does
    not have it afterwards."""
    engine = engine.rstrip("/")
    with _open(
        engine + "/update_weights_from_disk",
        {"model_path": str(checkpoint), "weight_version": version},
        timeout=1800,
    ) as reply:
        said = json.loads(reply.read(1 << 20))
    with _open(engine + "/model_info") as reply:
        loaded = json.loads(reply.read(1 << 20)).get("weight_version")
    if said.get("success") is False or str(loaded) != version:
        raise ValueError(
            f"{engine} has the weights {loaded!r}, not {version!r}: {str(said.get('message', ''))[:200]}"
        )


def snapshot(folder: str | os.PathLike[str]) -> str:
    """A name of a snapshot's weights: its path, and when its newest file was written, because a
    resumed training writes other weights to the same path. Raises OSError."""
    newest = max((entry.stat().st_mtime_ns for entry in os.scandir(folder)), default=0)
    return f"{folder} of {newest // 1_000_000}"


def _miles() -> Any:
    from miles.rollout.base_types import RolloutFnEvalOutput
    from miles.rollout.checkpoint_eval import CheckpointEvalFn, EvalSkip

    class Miles(CheckpointEvalFn):
        """Evaluates each snapshot of a training by the delegates of --eval-config, on the sglang
        server at DECKSMITH_EVAL_ENGINE."""

        def __init__(self, given: Any) -> None:
            self.args, self.engine = given.args, os.environ["DECKSMITH_EVAL_ENGINE"]
            self.one = asyncio.Lock()  # there is one engine

        async def evaluate_checkpoint(self, checkpoint_dir: Any, input: Any) -> Any:
            version = str(getattr(input, "weight_version", None) or input.rollout_id)
            async with self.one:
                try:
                    weights = snapshot(checkpoint_dir)
                    await asyncio.to_thread(pin, self.engine, checkpoint_dir, version)
                except (OSError, http.client.HTTPException, ValueError) as error:
                    LOG.warning("snapshot %s: %s", checkpoint_dir, error)
                    raise EvalSkip("engine") from error
                metrics = await asyncio.to_thread(
                    _delegated,
                    self.args,
                    input.rollout_id,
                    self.engine,
                    checkpoint=weights,
                )
            if not metrics.get("eval/delegate/ok"):
                raise EvalSkip(_reason(metrics))
            return RolloutFnEvalOutput(data={}, metrics=metrics)

    return Miles


def _reason(metrics: dict[str, float]) -> str:
    """Why there are no metrics: the KIND of eval/delegate/KIND."""
    for key, value in metrics.items():
        if key.startswith("eval/delegate/") and value == 1.0:
            return key.rpartition("/")[2]
    return "unconfigured"


def __getattr__(name: str) -> Any:  # PEP 562: the class needs miles, the module does not
    if name == "Miles":
        globals()[name] = _miles()
        return globals()[name]
    raise AttributeError(name)


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
        print(f"decksmith.evalserver.trainer: {error}", file=sys.stderr)
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
        sys.exit("usage: python3 -m decksmith.evalserver.trainer ADDRESS [SECONDS]")
    sys.exit(main(*sys.argv[1:]))
