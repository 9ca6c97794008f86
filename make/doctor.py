"""What this machine has, one line each, and the command that mends what is lacking.

Runs on the bare Python of a fresh machine, before any set-up: the standard library only.
"""

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "make"), str(ROOT / "lib")]
import local_servers  # noqa: E402
from decksmith.core import config_files  # noqa: E402

PYTHON = ROOT / ".venv/bin/python3"
ENV = ROOT / ".env"
DECK = "---\ntheme: default\n---\n\n# One\n\n---\n\n# Two\n\n---\n\n# Three\n"
ELSEWHERE = "not here; needed only for images, the cluster, or training"


def run(
    command: Sequence[str | Path], text: str = "", env: Mapping[str, str] | None = None
) -> tuple[int, str]:
    """(exit status, output) of a command that is given `text`; 127 when it cannot be started."""
    try:
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, timeout=300, env=env
        )
    except OSError:  # not there, or not for us
        return 127, "not found"
    except subprocess.TimeoutExpired:
        return 124, "no answer in 300 s"
    return done.returncode, (done.stdout + done.stderr).strip()


def last_line(text: str) -> str:
    return text.rpartition("\n")[2]


class Report:
    """The lines that were said, as far as how many say that something needed is lacking."""

    def __init__(self) -> None:
        self.lacking = 0

    def line(self, ok: object, name: str, found: str, mend: str = "", needed: bool = True) -> bool:
        """`ok`, what was found, and how to mend it; only a needed lack counts."""
        mark = "ok  " if ok else "LACK" if needed else "-   "
        self.lacking += int(needed and not ok)
        how = f"   mend: {mend}" if mend and not ok else ""
        print(f"{mark} {name:<14} {found}{how}", flush=True)
        return bool(ok)


def machine(report: Report) -> None:
    """Python, disk, cores, proxies, and the file of keys."""
    version = platform.python_version()
    report.line(sys.version_info >= (3, 11), "python", version, "make PYTHON=/path/to/python3.11")
    free = shutil.disk_usage(ROOT).free / 2**30
    report.line(free > 4, "disk", f"{free:.0f} GiB free", "free 4 GiB, or clone to another disk")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    report.line(True, "cores", f"{len(os.sched_getaffinity(0))}, {memory:.0f} GiB of memory")
    kinds = ("http_proxy", "https_proxy", "all_proxy")
    proxies = ", ".join(sorted(name for name in os.environ if name.lower() in kinds))
    local = os.environ.get("no_proxy", os.environ.get("NO_PROXY", ""))
    direct = not proxies or "127.0.0.1" in local
    report.line(direct, "proxies", proxies or "none", "export no_proxy=127.0.0.1,localhost")
    if not _env_is_readable():
        report.line(False, ".env", "cannot be read", "make it a file of yours: chown, chmod 600")
    elif ENV.exists():
        alone = not ENV.stat().st_mode & 0o077
        found = "read by you alone" if alone else "others of this machine may read it"
        report.line(alone, ".env", found, "chmod 600 .env")


def toolchain(report: Report) -> bool:
    """The locked packages and Node; whether the packages are there."""
    imports = "import click, aiohttp, numpy; print('the locked packages import')"
    status, said = run([PYTHON, "-c", imports])
    found = "not set up" if status else said
    ready = report.line(status == 0, "packages", found, "make setup")
    status, said = run([ROOT / ".venv/bin/node", "--version"])
    report.line(status == 0, "node", last_line(said), "make setup")
    return ready


def renderer(report: Report) -> None:
    """Whether three slides can be rendered, and in which walls."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "x").mkdir()
        Path(folder, "x", "deck.md").write_text(DECK)
        record = '{"id":"x","images":{"path":"x/deck.md","items":[]}}\n'
        fresh = os.environ | {"DECKSMITH_RENDERS": "off"}
        status, said = run([ROOT / "bin/deck-render", "--run", folder], record, fresh)
        pictures = len(list(Path(folder, "x").glob("slides/*.png")))
    done = status == 0 and pictures == 3
    walls = re.search(r'"walls":"([a-z-]+)"', said)
    found = f"{pictures} of 3 slides rendered, walls: {walls[1] if walls else 'unknown'}"
    report.line(done, "renderer", found if done else last_line(said), "make setup")


def sandbox(report: Report) -> None:
    """In which walls programs run that a model wrote: the strongest of sandbox/pool.py that works here."""
    ask = "from decksmith.bench.sandbox.pool import CellPool; pool = CellPool(warm=1); print(pool.open()); pool.close()"
    status, said = _locked_python(ask)
    found = last_line(said) if status else f"walls: {last_line(said)}"
    report.line(status == 0, "sandbox", found, "make image-sandbox", needed=False)


def _locked_python(program: str) -> tuple[int, str]:
    """`run` of a program that may import what the lock brings, and the rooms of decksmith."""
    return run([PYTHON, "-c", program], env=os.environ | {"PYTHONPATH": str(ROOT / "lib")})


REGISTRY = """
import json
from decksmith.models import gguf, registry
lacks = [name for name in gguf.table() if not ((lock := gguf.lock(name)) and gguf.is_whole(lock))]
known = registry.models().items()
print(json.dumps({name: [entry.base_url, entry.key_env, name in lacks] for name, entry in known}))
"""


def models(report: Report, names: Sequence[str]) -> None:
    """Whether each of these models is in the registry, has its key, and answers."""
    status, said = _locked_python(REGISTRY)
    if status:
        report.line(False, "models", last_line(said), "see the line above")
        return
    known = json.loads(said)
    for name in names:
        where = "assets/models.toml, assets/gguf.toml, data/models"
        found = "in the registry" if name in known else f"not in {where}"
        if report.line(name in known, name, found, f"add [{name}] to assets/models.toml"):
            _model(report, name, *known[name])


def _model(report: Report, name: str, url: str, key: str | None, lacks_weights: bool) -> None:
    kind, _, rest = url.partition(":")
    if lacks_weights:
        report.line(False, name, "its weights are not fetched", f"make model MODEL={name}")
        return
    if kind == "files":  # nobody to ask
        there = (ROOT / rest.strip()).is_dir()
        report.line(there, name, f"decks of {rest}", f"mkdir {rest}, or name another")
        return
    if kind == "command":  # asking it would be a whole deck
        there = bool(rest.split()) and shutil.which(rest.split()[0]) is not None
        report.line(there, name, rest, "install it, or give its path")
        return
    if key:
        is_set = bool(os.environ.get(key))
        found = f"{key} {'is set' if is_set else 'is not set'}"
        if not report.line(is_set, name, found, f"echo '{key}=...' >> .env"):
            return
    ask = '{"id":"x","messages":[{"role":"user","content":"Say yes."}]}\n'
    flags = ["--model", name, "--max-tokens", "16", "--retries", "1"]
    why = _why(*run([ROOT / "bin/chat-generate", *flags], ask))
    start = "start its server, or mend its entry in the registry (docs/models.md)"
    mend = "make setup" if kind == "engine" else start
    report.line(why is None, name, why or "answers", mend)


def _why(status: int, said: str) -> str | None:
    """Why there is no reply in what chat-generate said: the error of its record, else its last line; None for a reply."""
    try:
        return str(json.loads(said.partition("\n")[0])["gen"]["error"]["message"])
    except (ValueError, KeyError):
        return last_line(said) if status else None


def neighbours(report: Report) -> None:
    """The model servers that run here, with what they list and how one of their models is asked."""
    address, named = local_servers.ollama_address(), "OLLAMA_HOST" in os.environ
    there = local_servers.listed(address)
    if there:
        how = f"make baseline MODEL=ollama/{there[0]}"
        report.line(True, "Ollama", f"{address} has {_few(there)}; to ask one: {how}")
    elif there == []:
        found = f"{address} has no model yet"
        report.line(False, "Ollama", found, "ollama pull NAME", needed=False)
    elif named:
        report.line(False, "Ollama", f"{address} does not answer", "ollama serve", needed=False)
    else:
        report.line(False, "Ollama", "not here; needed by nothing", needed=False)
    # On a port that many use, only what says that it is llama.cpp.
    address = local_servers.LLAMA_SERVER
    if there := local_servers.listed(address, owner="llamacpp"):
        found = f"{address} has {_few(there)}; to ask it: make baseline MODEL={address}"
        report.line(True, "llama-server", found)


def _few(names: Sequence[str], most: int = 6) -> str:
    more = f" and {len(names) - most} more" if names[most:] else ""
    return ", ".join(names[:most]) + more


def cluster(report: Report) -> None:
    """Apptainer, Slurm and a GPU."""
    for name, command in (
        ("Apptainer", ["apptainer", "--version"]),
        ("Slurm", ["sbatch", "--version"]),
        ("NVIDIA GPU", ["nvidia-smi", "-L"]),
    ):
        status, said = run(command)
        report.line(status == 0, name, ELSEWHERE if status else last_line(said), needed=False)


def main() -> int:
    parser = argparse.ArgumentParser(prog="doctor", description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*")
    parser.add_argument("--protocol", default="offline")
    options = parser.parse_args()
    _read_env()
    report = Report()
    machine(report)
    if toolchain(report):
        renderer(report)
        sandbox(report)
        folder, names = ROOT / "assets/protocols", list(options.models)
        protocol = folder / f"{options.protocol}.toml"
        choose = f"choose one of {', '.join(path.stem for path in folder.glob('*.toml'))}"
        if report.line(protocol.exists(), "protocol", options.protocol, choose):
            judge = config_files.read(protocol, folder)["judge"].get("model")
            names += [judge] if judge else []
        models(report, names)
    neighbours(report)
    cluster(report)
    print(f"{report.lacking} lacking" if report.lacking else "ready")
    return 69 if report.lacking else 0


def _read_env() -> None:
    """The keys of .env, as bin/within reads them: what is set already stays."""
    os.environ["DECKSMITH_ENV_READ"] = "1"  # for the scripts: what is wrong with it is said here
    for line in ENV.read_text().splitlines() if ENV.exists() and _env_is_readable() else ():
        name, equals, value = line.partition("=")
        if equals and name.isidentifier():
            quoted = value[:1] == value[-1:] == '"'
            os.environ.setdefault(name, value[1:-1] if quoted else value)


def _env_is_readable() -> bool:
    return not os.path.lexists(ENV) or (ENV.is_file() and os.access(ENV, os.R_OK))


if __name__ == "__main__":
    try:
        status = main()
        sys.stdout.flush()
    except BrokenPipeError:
        # `make doctor | head`. core/cli.py, which handles it for scripts, needs packages.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        status = 0
    sys.exit(status)
