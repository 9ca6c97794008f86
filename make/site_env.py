#!/usr/bin/env python3
"""Ask Slurm what this site is, propose slurm/site.env, write it after a yes: make site (YES=1 is the yes).

The standard library only: this runs on a login node before any set-up. What site.env says already stays; only what it lacks is
added. Each way of asking for a GPU is tried by `sbatch --test-only`, which queues nothing.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, NoReturn

ROOT = Path(__file__).resolve().parents[1]
SITE = ROOT / "slurm/site.env"
SHORTEST = 8 * 60  # minutes: the longest that a script of slurm/ asks for
LONGEST_TMP = 30  # characters; slurm/train.sh has the reason


class Partition(NamedTuple):
    """A line of sinfo: `gpus` are those of one node, by type ("" without one); `minutes` is None without a limit."""

    name: str
    is_default: bool
    nodes: int
    minutes: int | None
    gpus: dict[str, int]

    @property
    def all_gpus(self) -> int:
        """Of all its nodes."""
        return self.nodes * sum(self.gpus.values())


def asked(*command: str) -> tuple[int, str]:
    """(status, what was said; of a failure on both streams); 127 for a command that is not there."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except FileNotFoundError:
        return 127, ""
    except subprocess.TimeoutExpired:
        return 124, f"{command[0]} does not answer"
    return done.returncode, (done.stdout + done.stderr * bool(done.returncode)).strip()


def minutes(text: str) -> int | None:
    """A time limit of sinfo: 30:00, 4:00:00, 2-00:00:00; None for infinite and n/a."""
    found = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):\d\d", text)
    if not found:
        return None
    days, hours, rest = (int(part or 0) for part in found.groups())
    return (days * 24 + hours) * 60 + rest


def gpus(text: str) -> dict[str, int]:
    """The GPUs of a GRES as sinfo has it: gpu:8, gpu:h100:4(S:0-1),nvme:1, (null)."""
    words = re.sub(r"\([^)]*\)", "", text).split(",")
    found = [re.fullmatch(r"gpu(?::([^:]+))??(?::(\d+))?", word) for word in words]
    return {one[1] or "": int(one[2] or 1) for one in found if one}


def partitions(text: str) -> list[Partition]:
    """What `sinfo -h -o '%P|%a|%l|%D|%G'` says of those that are up: a line each, the one with most GPUs first."""
    best: dict[str, Partition] = {}
    for line in text.splitlines():
        name, up, limit, nodes, gres = line.split("|")
        if up != "up":
            continue
        plain = name.rstrip("*")
        one = Partition(plain, name != plain, int(nodes), minutes(limit), gpus(gres))
        if plain not in best or one.all_gpus > best[plain].all_gpus:  # a line for each kind of node
            best[plain] = one
    return sorted(best.values(), key=lambda one: (-one.all_gpus, not one.is_default))


def accounts(text: str) -> list[str]:
    """What `sacctmgr -nP show associations` says under account, each once."""
    return list(dict.fromkeys(line.split("|")[0] for line in text.splitlines() if line))


def ways(gpus: dict[str, int]) -> Iterator[str]:
    """How a GPU may be asked for: the value of GPUS, whose last N is the number."""
    for kind in sorted(gpus, key=lambda kind: -gpus[kind]):
        typed = f":{kind}" if kind else ""
        yield f"--gres=gpu{typed}:N"
        yield f"--gpus-per-node={typed[1:] + ':' if typed else ''}N"
    yield "--exclusive"


def _stop(why: str) -> NoReturn:
    print(f"site: {why}", file=sys.stderr)
    raise SystemExit(69)


def proposed() -> Iterator[tuple[str, str, str]]:
    """(NAME, value, why) for each line of site.env. Raises SystemExit where Slurm is not there or does not answer."""
    status, said = asked("sinfo", "--noheader", "--format=%P|%a|%l|%D|%G")
    if status:
        why = said or "there is no sinfo here: run this on a login node"
        _stop(why.splitlines()[-1])
    if not (known := partitions(said)):
        _stop("sinfo shows no partition that is up")
    flags = []
    user = os.environ.get("USER", "")
    status, said = asked(
        *("sacctmgr", "--noheader", "--parsable2", "show", "associations"),
        *(f"user={user}", "format=account"),
    )
    if not status and (found := accounts(said)):
        others = f"; others: {', '.join(found[1:])}" if found[1:] else ""
        yield "SBATCH_ACCOUNT", found[0], f"yours, by sacctmgr{others}"
        flags.append(f"--account={found[0]}")
    chosen = known[0]
    first = next((one for one in known if one.is_default), chosen)
    if len(known) > 1 and chosen is not first:
        yield "SBATCH_PARTITION", chosen.name, f"{chosen.all_gpus} GPUs, the most, by sinfo"
    flags.append(f"--partition={chosen.name}")
    plain = [one for one in known if not one.gpus]
    if chosen.gpus and plain:
        cpu = max(plain, key=lambda one: (one.is_default, one.nodes))
        yield "CPU_PARTITION", cpu.name, f"{cpu.nodes} nodes without GPUs: for reward servers"
    yield from _gpus(chosen, flags)
    if chosen.minutes and chosen.minutes < SHORTEST:
        limit = f"{chosen.minutes // 60:02d}:{chosen.minutes % 60:02d}:00"
        yield "SBATCH_TIMELIMIT", limit, "the most that the partition allows"
    yield from _place()


def _gpus(chosen: Partition, flags: list[str]) -> Iterator[tuple[str, str, str]]:
    refused = ""
    for way in ways(chosen.gpus):
        test = ["--test-only", *flags, re.sub("N$", "1", way), "--wrap=true"]
        status, said = asked("sbatch", *test)
        if not status:
            what = "nodes have no GRES for GPUs" if way == "--exclusive" else str(chosen.gpus)
            if way != "--gres=gpu:N":  # what stands in the scripts
                yield "GPUS", way, f"sbatch --test-only takes it; {what.strip('{}')}"
            return
        refused = said
    table = tomllib.loads((ROOT / "assets/remedies.toml").read_text())["sbatch"]
    mends = [table[words] for words in table if words in refused.lower()]
    said = "; ".join([*refused.splitlines()[-1:], *mends[:1]])
    print(f"site: sbatch takes no way of asking for a GPU: {said}", file=sys.stderr)


def _place() -> Iterator[tuple[str, str, str]]:
    """What is no question of queues: container, models, temporary folder, proxy."""
    if "--container-image" in asked("srun", "--help")[1]:
        yield "CONTAINER", "pyxis", "srun has --container-image"
    elif not shutil.which("apptainer"):
        _, said = asked("bash", "-lc", "module -t avail apptainer 2>&1")
        if found := re.search(r"^apptainer\S*", said, re.M):
            yield "module load", found[0].rstrip("/"), "Apptainer is no command, but a module"
        else:
            yield "CONTAINER", "none", "no Apptainer, no Pyxis: what the nodes have installed"
    disk = next((os.environ[name] for name in ("SCRATCH", "WORK") if os.environ.get(name)), None)
    if disk and not os.environ.get("HF_HOME"):
        yield (
            "HF_HOME",
            f"{disk.rstrip('/')}/huggingface",
            "models; not in HOME, whose quota is small",
        )
    said = asked("scontrol", "show", "config")[1]
    tmp = re.search(r"^TmpFS\s*= (\S+)", said, re.M)
    if tmp and tmp[1] != "/tmp" and "%" not in tmp[1] and len(tmp[1]) <= LONGEST_TMP:
        yield "DECKSMITH_TMP", tmp[1], "the nodes' own disk, by scontrol (TmpFS)"
    for name in ("https_proxy", "no_proxy"):
        if value := os.environ.get(name):
            yield name, value, "as in this shell"


def main() -> int:
    old = SITE.read_text() if SITE.exists() else ""
    lines = []
    for name, value, why in proposed():
        is_module = name == "module load"
        if re.search(rf"^(export )?{name}{'' if is_module else '='}", old, re.M):
            continue
        text = f"{name} {value}" if is_module else f"{name}={shlex.quote(value)}"
        lines.append(f"{text}  # {why}")
    if not lines:
        lacks = f"that {SITE.relative_to(ROOT)} lacks" if old else "that the scripts do not say"
        print(f"site: Slurm says nothing {lacks}", file=sys.stderr)
        return 0
    print("\n".join(lines))
    if not os.environ.get("YES"):
        if not sys.stdin.isatty():
            print("site: nothing was written; YES=1 writes it", file=sys.stderr)
            return 78
        print(f"Write it to {SITE.relative_to(ROOT)}? [y/N] ", end="", file=sys.stderr, flush=True)
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            return 1
    fresh = SITE.with_suffix(".env.tmp")
    fresh.write_text(
        f"{old}{'' if old.endswith(chr(10)) or not old else chr(10)}" + "\n".join(lines) + "\n"
    )
    fresh.chmod(0o600)  # a proxy's address may hold a password
    fresh.rename(SITE)
    print(
        "site: written; slurm/site.env.example has what else can stand there. Then: make smoke",
        file=sys.stderr,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
