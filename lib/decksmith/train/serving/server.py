"""One server that answers as a base and as each adapter of it: start it, wait for it, prove that they
differ, ask it six questions, publish its address.

All names come from one process, so that an adapter is the only difference between what they say. While a server runs, a file in `results/serve` (DECKSMITH_SERVE names another folder) says
where; a registry entry with `base_url = "serve:"` is whatever stands there.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, NamedTuple

from decksmith.core import cli, slurm, stream
from decksmith.models import embedded, families, servers
from decksmith.models.records import ServedAdapter
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
# Waits for the end of its input, then ends a process group; vLLM that starts does not hear a TERM.
WATCHDOG = 'read -r _; kill -s TERM -- "-$1" && sleep 10 && kill -s KILL -- "-$1"'
Engine = Literal["vllm", "sglang", "trtllm", "local"]


class _Asked(BaseException):
    """Somebody asked this process to stop."""


class _Launch(NamedTuple):
    """How a server is started. `base`: the model that it loads; `adapters`: what its file says of each."""

    arguments: list[str]
    environment: dict[str, str]
    base: str
    adapters: dict[str, ServedAdapter]


class Wanted(NamedTuple):
    """What is to be served. `adapters`: by the names that they shall answer to; `base`: a model, else what the adapters were
    trained on; `called`: the base's name."""

    adapters: Mapping[str, Adapter]
    engine: Engine = "vllm"
    base: str | None = None
    called: str = "base"
    more: Words = ()


def serve(wanted: Wanted, *, name: str | None, timeout: float) -> int:
    """Serve base and adapters until a signal asks to stop (status 0). Raises cli.Missing, with the
    server's last words, when it dies, cli.TryAgain when it is not ready in `timeout` seconds,
    cli.BadData when an adapter answers as the base does."""
    job, inside = _job(), "SLURM_JOB_ID" in os.environ
    name = name or job or f"{socket.gethostname()}-{os.getpid()}"
    # Beyond a job nobody but this machine is let in; in one, the clients are on other nodes.
    host, port = slurm.this_node() if inside else "127.0.0.1", _port()
    command = _command(wanted, "0.0.0.0" if inside else host, port)
    names = [_called(wanted, command.base), *wanted.adapters]
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
        readiness.wait(url, names, deadline, lambda: _dead(server, log))
        facts = _proved(url, wanted, names, log)
        chosen = servers.chosen(str(facts["engine"]) if wanted.adapters else "", names[-1])
        readiness.interview(url, chosen, families.of(command.base).thinking)
        facts |= {"url": f"http://{host}:{port}/v1", "base": command.base, "job": job, "host": host}
        facts["adapters"] = command.adapters
        stream.write(file, json.dumps(facts, indent=2) + "\n")
        door = os.environ.get("SLURM_SUBMIT_HOST") if inside else socket.gethostname()
        cli.say(
            f"{facts['url']} serves {' and '.join(names)} ({file}); "
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


def gpus(wanted: Wanted, gpu: str | None) -> int:
    """How many GPUs a server takes (the embedded engine: one is asked for and none used), after its command line was
    linted and its memory was found to fit. gpu: as vllm.gpu_named. Raises cli.BadConfig, cli.BadData, cli.Missing."""
    if wanted.engine == "local":
        return 1
    found = vllm.check_memory(_line(wanted, _base(wanted)), vllm.gpu_named(gpu))
    return found.gpus if found else 1


def _line(wanted: Wanted, base: str, host: str = "127.0.0.1", port: int = 1) -> vllm.Line:
    adapters, kind, more = wanted.adapters, wanted.engine, wanted.more
    words = vllm.command(adapters, base, host, port, more, kind=kind, name=wanted.called)
    return vllm.Line(words, base, adapters.values(), kind)


def _base(wanted: Wanted) -> str:
    """Raises cli.BadData where nobody names one, or adapters name several."""
    named = {wanted.base} if wanted.base else {one.base for one in wanted.adapters.values()}
    found = named.pop() if len(named) == 1 else None
    if not found:
        said = ", ".join(f"{one.path}: {one.base}" for one in wanted.adapters.values())
        raise cli.BadData(f"adapters name no base, or several ({said}): name it with --base")
    return found


def _called(wanted: Wanted, base: str) -> str:
    """What the base answers to: an engine that cannot be told has its own name for it."""
    if wanted.engine == "local" or "base" in vllm.engine(wanted.engine):
        return wanted.called
    return Path(base).name if Path(base).is_dir() else base


def _proved(url: str, wanted: Wanted, names: list[str], log: Path) -> dict[str, object]:
    """What the endpoint file says of a server that is ready, once its adapters were heard to
    differ from the base. Raises cli.BadData where one does not."""
    version = "embedded"
    if wanted.engine != "local":
        where = vllm.engine(wanted.engine)["version"]
        version = f"{wanted.engine} {readiness.get(url, where).get('version')}"
    said = readiness.probe(url, names, version)
    if said and not said["differ"]:
        why = "its module names match none of the base's, or it was never trained"
        alike = ", ".join(said["alike"])
        what = f"{names[0]} and {alike} answer alike; the adapter changes nothing ({why})"
        folders = ", ".join(str(wanted.adapters[each].path) for each in said["alike"])
        raise cli.BadData(f"{folders}: {what}. Not served. Its log: {log}")
    started = datetime.now(UTC).isoformat(timespec="seconds")
    facts = {"models": names, "engine": version, "pid": os.getpid()}
    return {**facts, "probe": said, "started": started}


def _command(wanted: Wanted, host: str, port: int) -> _Launch:
    if wanted.engine == "local":
        return _local(wanted, host, port)
    base = _base(wanted)
    for adapter in wanted.adapters.values():
        adapter.check_base(base)
    program = vllm.engine(wanted.engine)["program"][0]
    binary, settings = shutil.which(program), {}
    if not binary and wanted.engine == "vllm" and CPU_VLLM.is_file():
        binary, settings = str(CPU_VLLM), CPU_ENVIRONMENT
        wanted = wanted._replace(more=(*CPU_ARGUMENTS, *wanted.more))
    line = _line(wanted, base, host, port)
    if binary != str(CPU_VLLM):
        vllm.check_memory(line)
    if not binary:
        other = "without a GPU: make .venv-vllm/.done, or --engine local for the embedded model"
        raise cli.Missing(f"{program} is not here; build its image: make image-serve ({other})")
    # Kernels are compiled into a node's own disk.
    cache = Path(tempfile.gettempdir()) / f"decksmith-{os.getuid()}-vllm"
    caches = ("VLLM_CACHE_ROOT", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")
    settings = settings | {name: str(cache / name.lower()) for name in caches} | _offline(base)
    facts = {name: _facts(one, one.sha256) for name, one in wanted.adapters.items()}
    return _Launch([binary, *line.words[1:]], settings | dict(os.environ), base, facts)


def _facts(adapter: Adapter, sha256: str) -> ServedAdapter:
    return {"path": str(adapter.path), "sha256": sha256, "rewards": adapter.rewards}


def _offline(base: str) -> dict[str, str]:
    """The commit that was fetched is served, not what the Hub has by now. Raises cli.Missing where the Hub is switched
    off and the weights are not there."""
    try:
        return {"HF_HUB_OFFLINE": "1"} if models.need(base) else {}
    except cli.Missing:
        if os.environ.get("HF_HUB_OFFLINE", "0") != "0":
            raise
        return {}  # vLLM fetches them


def _local(wanted: Wanted, host: str, port: int) -> _Launch:
    files: dict[str, Path] = {}
    for name, adapter in wanted.adapters.items():
        if not adapter.gguf:
            why = "which the embedded engine wants; model-export writes it"
            raise cli.Missing(f"{adapter.path} has no adapter.gguf, {why}")
        files[name] = adapter.gguf
    chosen = embedded.settings({wanted.called: None, **files})
    arguments = embedded.command(chosen, "--host", host, "--port", port, "--stay", *wanted.more)
    facts = {name: _facts(wanted.adapters[name], sha256(path)) for name, path in files.items()}
    return _Launch(arguments, dict(os.environ), embedded.WEIGHTS_SHA256, facts)


def _start(command: _Launch, log: Path) -> subprocess.Popen[bytes]:
    """The server, in a process group that ends when we do, however that is."""
    reads, _ = os.pipe()  # the other end is ours as long as we live
    with open(log, "wb") as out:
        child = subprocess.Popen(
            command.arguments,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env=command.environment,
            start_new_session=True,
        )
    watchdog, null = ["sh", "-c", WATCHDOG, "sh", str(child.pid)], subprocess.DEVNULL
    subprocess.Popen(watchdog, stdin=reads, stdout=null, stderr=null, start_new_session=True)
    os.close(reads)
    return child


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
    for one in _signals():  # a second one would cut short what ends the server
        signal.signal(one, signal.SIG_IGN)
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
