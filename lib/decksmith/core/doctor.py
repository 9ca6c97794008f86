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
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from decksmith.core import inherit, nearby

ROOT = Path(__file__).resolve().parents[3]
DECK = "---\ntheme: default\n---\n\n# One\n\n---\n\n# Two\n\n---\n\n# Three\n"


def run(
    command: Sequence[str | Path], timeout: float = 300, whole: bool = False, **options: Any
) -> tuple[int, str]:
    """(exit status, last line of output, or with `whole` all of it) of a command; 127 when it cannot be started."""
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=timeout,
            stdin=options.pop("stdin", subprocess.DEVNULL),
            **options,
        )
    except FileNotFoundError:
        return 127, "not found"
    except subprocess.TimeoutExpired:
        return 124, f"no answer in {timeout} s"
    said = (done.stdout + done.stderr).strip()
    return done.returncode, said if whole else said.rpartition("\n")[2]


class Report:
    def __init__(self) -> None:
        self.lacking = 0

    def line(self, ok: object, name: str, found: str, mend: str = "", needed: bool = True) -> bool:
        """`ok`, what was found, and how to mend it; only a needed lack counts."""
        mark = "ok  " if ok else "LACK" if needed else "-   "
        self.lacking += int(needed and not ok)
        print(
            f"{mark} {name:<14} {found}" + (f"   mend: {mend}" if mend and not ok else ""),
            flush=True,
        )
        return bool(ok)


def machine(report: Report) -> None:
    version = platform.python_version()
    report.line(sys.version_info >= (3, 11), "python", version, "make PYTHON=/path/to/python3.11")
    free = shutil.disk_usage(ROOT).free / 2**30
    report.line(free > 4, "disk", f"{free:.0f} GiB free", "free 4 GiB, or clone to another disk")
    report.line(
        True,
        "cores",
        f"{len(os.sched_getaffinity(0))}, {os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB of memory",
    )
    proxies = sorted(
        name for name in os.environ if name.lower() in ("http_proxy", "https_proxy", "all_proxy")
    )
    local = os.environ.get("no_proxy", os.environ.get("NO_PROXY", ""))
    report.line(
        not proxies or "127.0.0.1" in local,
        "proxies",
        ", ".join(proxies) or "none",
        "export no_proxy=127.0.0.1,localhost",
    )


def toolchain(report: Report) -> bool:
    status, said = run(
        [
            ROOT / ".venv/bin/python3",
            "-c",
            "import click, openai, numpy; print('the locked packages import')",
        ]
    )
    ready = report.line(
        status == 0, "packages", said if status == 0 else "not set up", "make setup"
    )
    status, said = run([ROOT / ".venv/bin/node", "--version"])
    report.line(status == 0, "node", said, "make setup")
    return ready


def renderer(report: Report) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "x").mkdir()
        Path(folder, "x", "deck.md").write_text(DECK)
        record = Path(folder, "record.jsonl")
        record.write_text('{"id":"x","images":{"path":"x/deck.md","items":[]}}\n')
        with open(record) as source:
            fresh = os.environ | {"DECKSMITH_RENDERS": "off"}
            status, said = run(
                [ROOT / "bin/deck-render", "--run", folder], stdin=source, env=fresh, whole=True
            )
        pictures = len(list(Path(folder, "x").glob("slides/*.png")))
    done = status == 0 and pictures == 3
    walls = re.search(r'"walls":"([a-z-]+)"', said)
    said = (
        f"{pictures} of 3 slides rendered, walls: {walls[1] if walls else 'unknown'}"
        if done
        else said.splitlines()[-1]
    )
    report.line(done, "renderer", said, "make setup")


def sandbox(report: Report) -> None:
    """In which walls programs run that a model wrote: the strongest of sandbox/pool.py that works here."""
    ask = "from decksmith.bench.sandbox.pool import CellPool; pool = CellPool(warm=1); print(pool.open()); pool.close()"
    status, said = _locked_python(ask)
    report.line(
        status == 0,
        "sandbox",
        f"walls: {said}" if status == 0 else said,
        "make image-sandbox",
        needed=False,
    )


def _locked_python(program: str) -> tuple[int, str]:
    """`run` of a program that may import what the lock brings, and the rooms of decksmith."""
    path = os.environ | {"PYTHONPATH": str(ROOT / "lib")}
    return run([ROOT / ".venv/bin/python3", "-c", program], env=path)


def models(report: Report, names: Iterable[str]) -> None:
    """Whether each of these models is in the registry, has its key, and answers."""
    ask = (
        "import json; from decksmith.models import gguf, registry; "
        "lacks = [name for name in gguf.table() if not ((lock := gguf.lock(name)) and gguf.is_whole(lock))]; "
        "print(json.dumps({name: vars(entry) | {'unfetched': name in lacks} for name, entry in registry.models().items()}))"
    )
    status, said = _locked_python(ask)
    if status:
        report.line(False, "models", said, "see the line above")
        return
    registry = json.loads(said)
    for name in names:
        entry = registry.get(name)
        report.line(
            entry is not None,
            name,
            "in the registry"
            if entry
            else "not in assets/models.toml, assets/gguf.toml, data/models",
            f"add [{name}] to assets/models.toml",
        )
        if entry is None:
            continue
        if entry["unfetched"]:
            mend = f"make model MODEL={name}"
            report.line(False, name, "its weights are not fetched", mend)
            continue
        if entry["base_url"].startswith("files:"):  # nobody to ask
            folder = entry["base_url"].removeprefix("files:").strip()
            report.line(
                (ROOT / folder).is_dir(),
                name,
                f"decks of {folder}",
                f"mkdir {folder}, or name another",
            )
            continue
        if entry["base_url"].startswith("command:"):  # asking it would be a whole deck
            line = entry["base_url"].removeprefix("command:").split()
            found = bool(line) and shutil.which(line[0]) is not None
            report.line(found, name, " ".join(line), "install it, or give its path")
            continue
        variable = entry.get("key_env")
        if variable and not report.line(
            os.environ.get(variable),
            name,
            f"{variable} {'is set' if os.environ.get(variable) else 'is not set'}",
            f"echo '{variable}=...' >> .env",
        ):
            continue
        ask = '{"id":"x","messages":[{"role":"user","content":"Say yes."}]}\n'
        with tempfile.TemporaryFile("w+") as source:
            source.write(ask)
            source.seek(0)
            command: list[str | Path] = [
                ROOT / "bin/chat-generate",
                "--model",
                name,
                "--max-tokens",
                "16",
            ]
            status, said = run([*command, "--retries", "1"], stdin=source, whole=True)
        why = _why(status, said)
        start = "start its server, or mend its entry in the registry (docs/models.md)"
        mend = "make setup" if entry["base_url"] == "engine:" else start
        report.line(why is None, name, why or "answers", mend)


def _why(status: int, said: str) -> str | None:
    """Why there is no reply in what chat-generate said: the error of its record, else its last line; None for a reply."""
    try:
        return str(json.loads(said.partition("\n")[0])["gen"]["error"]["message"])
    except (ValueError, KeyError):
        return said.rpartition("\n")[2] if status else None


def neighbours(report: Report) -> None:
    """The model servers that run here, with what they list and how one of their models is asked."""
    address, named = nearby.ollama_address(), "OLLAMA_HOST" in os.environ
    there = nearby.listed(address)
    if there:
        first = there[0]["id"]
        how = f"make model OLLAMA={first}"
        report.line(True, "Ollama", f"{address} has {_ids(there)}; to ask one: {how}")
    else:
        found = "has no model yet" if there == [] else "does not answer"
        mend = "ollama pull NAME" if there == [] else "ollama serve"
        said = f"{address} {found}" if named or there == [] else "not here; needed by nothing"
        report.line(False, "Ollama", said, mend if named or there == [] else "", needed=False)
    server = os.environ.get("LLAMA_SERVER")
    there = nearby.listed(server or nearby.LLAMA_SERVER)
    if server:
        found = f"{server} has {_ids(there or [])}; to ask it: make baseline MODEL=local"
        silent = f"{server} (LLAMA_SERVER) does not answer"
        report.line(
            there, "llama-server", found if there else silent, "start it, or unset LLAMA_SERVER"
        )
    # On a port that many use, only what says that it is llama.cpp.
    elif there and there[0].get("owned_by") == "llamacpp":
        how = f"make baseline MODEL=local LLAMA_SERVER={nearby.LLAMA_SERVER}"
        report.line(
            True, "llama-server", f"{nearby.LLAMA_SERVER} has {_ids(there)}; to ask it: {how}"
        )


def _ids(entries: list[dict[str, Any]], most: int = 6) -> str:
    names = [str(entry["id"]) for entry in entries]
    more = f" and {len(names) - most} more" if names[most:] else ""
    return ", ".join(names[:most]) + more


def secrets(report: Report) -> None:
    """Keys in a file that others of this machine may read are no secrets."""
    path = ROOT / ".env"
    if path.exists():
        alone = not path.stat().st_mode & 0o077
        report.line(
            alone,
            ".env",
            "read by you alone" if alone else "others of this machine may read it",
            "chmod 600 .env",
        )


def cluster(report: Report) -> None:
    for command, what in (
        ("apptainer", "Apptainer"),
        ("sbatch", "Slurm"),
        ("nvidia-smi", "NVIDIA GPU"),
    ):
        status, said = run([command, "--version" if command != "nvidia-smi" else "-L"])
        report.line(
            status == 0,
            what,
            said if status == 0 else "not here; needed only for images, the cluster, or training",
            needed=False,
        )


def main() -> int:
    parser = argparse.ArgumentParser(prog="doctor", description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*")
    parser.add_argument("--protocol", default="offline")
    options = parser.parse_args()
    _read_env()
    report = Report()
    machine(report)
    secrets(report)
    if toolchain(report):
        renderer(report)
        sandbox(report)
        protocol = ROOT / f"assets/protocols/{options.protocol}.toml"
        names = list(options.models)
        if report.line(
            protocol.exists(),
            "protocol",
            options.protocol,
            f"choose one of {', '.join(p.stem for p in protocol.parent.glob('*.toml'))}",
        ):
            judge = inherit.read(protocol, protocol.parent)["judge"]
            judges = judge.get("model") or []
            names += [judges] if isinstance(judges, str) else judges
        models(report, names)
    neighbours(report)
    cluster(report)
    print(f"{report.lacking} lacking" if report.lacking else "ready")
    return 69 if report.lacking else 0


def _read_env() -> None:
    """The keys of .env, as bin/within reads them: what is set already stays."""
    if (ROOT / ".env").exists():
        for line in (ROOT / ".env").read_text().splitlines():
            name, equals, value = line.partition("=")
            if equals and name.isidentifier():
                os.environ.setdefault(
                    name, value[1:-1] if value[:1] == value[-1:] == '"' else value
                )


if __name__ == "__main__":
    try:
        status = main()
        sys.stdout.flush()
    except BrokenPipeError:
        # `make doctor | head`. core/cli.py, which handles it for scripts, needs packages.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        status = 0
    sys.exit(status)
