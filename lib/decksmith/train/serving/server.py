"""One server that answers as `base` and as `tuned`: start it, wait for it, prove that the two
differ, publish its address.

The two names come from one process, so that the adapter is the only difference between what they
say. While a server runs, a file in `results/serve` (DECKSMITH_SERVE names another folder) says
where; a registry entry with `base_url = "serve:"` is whatever stands there.
"""

import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, NamedTuple

from decksmith.core import cli, stream
from decksmith.models import embedded, servers
from decksmith.train.hub import models
from decksmith.train.serving import readiness, vllm
from decksmith.train.serving.vllm import Adapter, Words, sha256

# vLLM for a machine without a GPU: `make .venv-vllm/.done`. Eager, since kernels want a compiler and
# minutes. No prompt in pieces: under a request with a seed that ends the CPU build (0.32.0: "CPU
# Generator does not use offset"). Its cache of keys and values in GiB, which else is 4. A busy
# machine may take its time for a start and a step, which else are given 10 and 5 minutes, and its
# threads run where there is room: bound, they leave one core out, and wait for the others' users.
CPU_VLLM = cli.ROOT / ".venv-vllm/bin/vllm"
CPU_ARGUMENTS = ("--enforce-eager", "--no-enable-chunked-prefill")
CPU_ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_ENGINE_READY_TIMEOUT_S": "1800",
    "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS": "1800",
}
PR_SET_PDEATHSIG = 1  # prctl(2)
Engine = Literal["vllm", "local"]


class _Asked(BaseException):
    """Somebody asked this process to stop."""


class _Launch(NamedTuple):
    """How a server is started. `base`: what the base is called; `adapter`: the sha256 of what it
    loads."""

    arguments: list[str]
    environment: dict[str, str]
    base: str
    adapter: str


def serve(
    path: Path, *, engine: Engine, base: str | None, name: str | None, timeout: float, more: Words
) -> int:
    """Serve base and adapter until a signal asks to stop (status 0). Raises cli.Missing, with the
    server's last words, when it dies, cli.TryAgain when it is not ready in `timeout` seconds,
    cli.BadData when its two names answer alike."""
    adapter, job, inside = Adapter.load(path), _job(), "SLURM_JOB_ID" in os.environ
    name = name or job or f"{socket.gethostname()}-{os.getpid()}"
    # Beyond a job nobody but this machine is let in; in one, the clients are on other nodes.
    host, port = socket.getfqdn() if inside else "127.0.0.1", _port()
    command = _command(engine, adapter, base, "0.0.0.0" if inside else host, port, more)
    file, log = servers.folder() / f"{name}.json", servers.folder() / f"{name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    file.unlink(missing_ok=True)
    child: subprocess.Popen[bytes] | None = None
    asked = _signals()
    try:
        for number in asked:
            signal.signal(number, _stop)
        program = command.arguments[0].rpartition("/")[2]
        cli.say(f"starting {program} on port {port}; it says more in {log}")
        url, deadline = f"http://127.0.0.1:{port}/v1", time.monotonic() + timeout
        server = child = _start(command, log)
        readiness.wait(url, deadline, lambda: _dead(server, log))
        facts = _proved(url, engine, adapter, log)
        served = {"sha256": command.adapter, "rewards": adapter.rewards}
        facts |= {"url": f"http://{host}:{port}/v1", "base": command.base, "job": job, "host": host}
        facts["adapter"] = {"path": str(adapter.path), **served}
        stream.write(file, json.dumps(facts, indent=2) + "\n")
        door = os.environ.get("SLURM_SUBMIT_HOST") if inside else socket.gethostname()
        cli.say(
            f"{facts['url']} serves {' and '.join(readiness.NAMES)} ({file}); "
            f"from elsewhere: ssh -L {port}:{host}:{port} {door or 'LOGIN'}"
        )
        child.wait()
        raise cli.Missing(_dead(child, log) or "")
    except _Asked as signal_name:
        cli.say(f"{signal_name}: stopping the server")
        return 0
    finally:
        for number in asked:
            signal.signal(number, signal.SIG_IGN)
        file.unlink(missing_ok=True)
        if child:
            cli.end_group(child)


def gpus(path: Path, *, engine: Engine, base: str | None, gpu: str | None, more: Words) -> int:
    """How many GPUs a server takes (the embedded engine: one is asked for and none used), after its command line was
    linted and its memory was found to fit. gpu: as vllm.gpu_named. Raises cli.BadConfig, cli.BadData, cli.Missing."""
    adapter = Adapter.load(path)
    if engine == "local":
        return 1
    arguments = vllm.command(adapter, _base(adapter, base), "127.0.0.1", 1, more)
    found = vllm.check_memory(arguments, adapter, vllm.gpu_named(gpu))
    return found.gpus if found else 1


def _base(adapter: Adapter, base: str | None) -> str:
    found = base or adapter.base
    if not found:
        raise cli.BadData(f"{adapter.path}/adapter_config.json names no base; name it with --base")
    return found


def _proved(url: str, engine: Engine, adapter: Adapter, log: Path) -> dict[str, object]:
    """What the endpoint file says of a server that is ready, once its two names were heard to
    differ. Raises cli.BadData where they do not."""
    said = readiness.probe(url)
    if not said["differ"]:
        why = "its module names match none of the base's, or it was never trained"
        what = f"base and tuned answer alike; the adapter changes nothing ({why})"
        raise cli.BadData(f"{adapter.path}: {what}. Not served. Its log: {log}")
    version = "embedded"
    if engine == "vllm":
        version = f"vllm {readiness.get(url, '/version').get('version')}"
    started = datetime.now(UTC).isoformat(timespec="seconds")
    facts = {"models": list(readiness.NAMES), "engine": version, "pid": os.getpid()}
    return {**facts, "probe": said, "started": started}


def _command(
    engine: Engine, adapter: Adapter, base: str | None, host: str, port: int, more: Words
) -> _Launch:
    if engine == "local":
        return _local(adapter, host, port, more)
    base = _base(adapter, base)
    adapter.check_base(base)
    binary, settings = shutil.which("vllm"), {}
    if not binary and CPU_VLLM.is_file():
        binary, more, settings = str(CPU_VLLM), (*CPU_ARGUMENTS, *more), CPU_ENVIRONMENT
    arguments = vllm.command(adapter, base, host, port, more)
    if binary != str(CPU_VLLM):
        vllm.check_memory(arguments, adapter)
    if not binary:
        other = "without a GPU: make .venv-vllm/.done, or --engine local for the embedded model"
        raise cli.Missing(f"vllm is not here; build its image: make image-serve ({other})")
    # Kernels are compiled into a node's own disk.
    cache = Path(tempfile.gettempdir()) / f"decksmith-{os.getuid()}-vllm"
    caches = ("VLLM_CACHE_ROOT", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")
    settings = settings | {name: str(cache / name.lower()) for name in caches} | _offline(base)
    return _Launch([binary, *arguments[1:]], settings | dict(os.environ), base, adapter.sha256)


def _offline(base: str) -> dict[str, str]:
    """The commit that was fetched is served, not what the Hub has by now. Raises cli.Missing where the Hub is switched
    off and the weights are not there."""
    try:
        return {"HF_HUB_OFFLINE": "1"} if models.need(base) else {}
    except cli.Missing:
        if os.environ.get("HF_HUB_OFFLINE", "0") != "0":
            raise
        return {}  # vLLM fetches them


def _local(adapter: Adapter, host: str, port: int, more: Words) -> _Launch:
    if not adapter.gguf:
        why = "which the embedded engine wants; model-export writes it"
        raise cli.Missing(f"{adapter.path} has no adapter.gguf, {why}")
    chosen = embedded.settings({"base": None, "tuned": adapter.gguf})
    arguments = embedded.command(chosen, "--host", host, "--port", port, "--stay", *more)
    return _Launch(arguments, dict(os.environ), embedded.WEIGHTS_SHA256, sha256(adapter.gguf))


def _start(command: _Launch, log: Path) -> subprocess.Popen[bytes]:
    with open(log, "wb") as out:
        return subprocess.Popen(
            command.arguments,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env=command.environment,
            start_new_session=True,
            preexec_fn=_dies_with_us,
        )


def _dies_with_us() -> None:
    """In the child: no way of ending us leaves an orphan."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _dead(child: subprocess.Popen[bytes], log: Path) -> str | None:
    """How the server ended, with its last words; None while it lives."""
    status = child.poll()
    if status is None:
        return None
    how = f"status {status}" if status >= 0 else signal.Signals(-status).name
    return f"the server ended with {how}; the end of {log}:\n{readiness.tail(log)}"


def _signals() -> list[signal.Signals]:
    """The signals that ask us to stop. A SIGHUP that is ignored stays so (nohup)."""
    found = [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1]
    return found + [signal.SIGHUP] * (signal.getsignal(signal.SIGHUP) != signal.SIG_IGN)


def _stop(number: int, _: object) -> None:
    raise _Asked(signal.Signals(number).name)


def _job() -> str | None:
    """This Slurm job, `123` or `123_4`; None outside of one."""
    if array := os.environ.get("SLURM_ARRAY_JOB_ID"):
        return f"{array}_{os.environ['SLURM_ARRAY_TASK_ID']}"
    return os.environ.get("SLURM_JOB_ID")


def _port() -> int:
    """A free port below those that the kernel gives away, the first of a row that begins at the
    job's number. Raises cli.TryAgain."""
    start = int(os.environ.get("SLURM_JOB_ID") or os.getpid())
    for step in range(10000):
        port = 20000 + (start + step) % 10000
        with socket.socket() as held:
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                held.bind(("", port))
                return port
            except OSError:
                continue
    raise cli.TryAgain("no port from 20000 to 29999 is free")
