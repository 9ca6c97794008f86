"""Jobs of slurm/: freeze what they run, hand them to Slurm here or on a login node, follow them to their end.

A job reads nothing of the checkout that may change while it waits or runs: RUN/snapshot holds the code, the recipe and its
data as they were at submission, RUN/job.json says what that was. Toolchains, images and results are links to the checkout's
own.
"""

import getpass
import hashlib
import io
import json
import os
import re
import shlex
import shutil
import socket
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from ruamel.yaml import YAML

from decksmith.core import cli, masking, slurm, stream
from decksmith.train.hub import models
from decksmith.train.training import recipes
from decksmith.train.training.slurm_hosts import SlurmHost, below_root, last_line

CODE = ("assets", "bin", "containers", "lib", "slurm")
LEFT_OUT = {"node_modules", "__pycache__", ".sif"}
# Run beside the checkout: a snapshot gets links to its toolchain, its images and what git ignores, and a copy of site.env,
# where the proxy's address may hold a password.
LINK = """cd {home} || exit
for f in .venv .env results assets/renderer/node_modules assets/engine/node_modules containers/*.sif* data/*; do
  [ ! -e "$f" ] || [ -e {snapshot}/"$f" ] || {{ mkdir -p {snapshot}/"$(dirname "$f")" && ln -s {home}/"$f" {snapshot}/"$f"; }}
done
[ ! -f slurm/site.env ] || install -m 600 slurm/site.env {snapshot}/slurm/
"""
SUBMIT = """command -v sbatch > /dev/null || {{ echo 'sbatch: not found' >&2; exit 69; }}
set -a; [ ! -f {home}/slurm/site.env ] || . {home}/slurm/site.env; set +a
exec env {command}
"""
# How the site wants GPUs asked for, and its partition without them.
SITE = """own=${{GPUS-}}; [ ! -f {home}/slurm/site.env ] || . {home}/slurm/site.env > /dev/null 2>&1
echo "${{own:-${{GPUS-}}}}"
echo "${{CPU_PARTITION-}}"
"""
# What NeMo-RL is started by, from its own folder.
DRIVERS = {"sft": "examples/run_sft.py", "dpo": "examples/run_dpo.py"}
DRIVERS["grpo"] = "examples/nemo_gym/run_grpo_nemo_gym.py"
Words = Iterable[str]
POLL_S = float(os.environ.get("DECKSMITH_POLL_S") or 5)


@dataclass(frozen=True)
class JobRecipe:
    """What the launcher must know of a recipe. variables: those that slurm/ reads, by name; files:
    {place in the snapshot: file that the recipe names}; text: the recipe with the paths of the
    frozen files."""

    variables: dict[str, str]
    model: str
    seeds: dict[str, int]
    files: dict[Path, Path]
    text: str

    @property
    def sha256(self) -> str:
        return _hash(self.text.encode())


class Job:
    """One batch script with one run folder: `freeze`, `submit`, `follow`, or `describe` without any of them."""

    def __init__(
        self, script: Path, run: Path, *, sbatch: Words = (), env: Words = (), host: str = ""
    ):
        """script: slurm/NAME.sbatch of this checkout. sbatch: more flags for sbatch, the last word. env: NAME=value for the
        job. host: LOGIN[:FOLDER]. Raises cli.Missing, cli.BadConfig."""
        path, self.run = script.resolve(), run.resolve()
        if not path.is_relative_to(cli.ROOT) or not path.is_file():
            known = ", ".join(sorted(one.name for one in cli.ROOT.glob("slurm/*.sbatch")))
            raise cli.Missing(f"{script}: no batch script of this checkout; slurm/ has {known}")
        self.script = path.relative_to(cli.ROOT)
        self.script_text = path.read_text()
        if '"$CODE/slurm/train.sh"' in self.script_text:  # what it goes on with
            self.script_text += (cli.ROOT / "slurm/train.sh").read_text()
        self.host = SlurmHost(host)
        self.home = self.host.root
        self.far = self.home / below_root(self.run) if host else self.run
        self.at = f" on {self.host.name}" if self.host.name else ""
        if re.search(r"[\s,:'\"\\]", str(self.far)):
            wrong = "a run folder's path may hold no space, comma, colon or quote"
            raise cli.BadConfig(f"{self.far}: {wrong}: containers mount it by name")
        self.name = f"{self.script.stem}-{re.sub(r'[^A-Za-z0-9._]', '_', self.run.name)}"
        self.env = dict(assignment(text) for text in env)
        self.recipe = self._recipe()
        self.argv = ["sbatch", "--parsable", f"--job-name={self.name}", f"--chdir={self.far}"]
        self.argv.append(f"--output={self.far}/slurm/%x-%j.out")
        if self.recipe:
            given = self.recipe.variables
            gpus, sbatch = self._of_site(given["SFT_GPUS"], [*sbatch])
            self.argv += [f"--nodes={given['SFT_NODES']}", gpus]
        self.argv += [*sbatch, str(self.far / "snapshot" / self.script), str(self.far)]

    def _of_site(self, count: str, flags: list[str]) -> tuple[str, list[str]]:
        """(the flag that asks for GPUs of a node, `flags` with name and partition of a second component)."""
        done = self.host.shell(SITE.format(home=shlex.quote(str(self.home))))
        gpus, partition = (done.stdout.decode().split("\n") + ["", ""])[:2]
        second = flags[flags.index(":") :] if ":" in flags else []
        if second:  # by the same name `singleton` would have each component wait for the other
            flags.insert(flags.index(":") + 1, f"--job-name={self.name}-rewards")
        if second and partition and "--partition" not in " ".join(second):
            flags.append(f"--partition={partition}")
        return re.sub("N$", count, gpus or "--gres=gpu:N"), flags

    def _recipe(self) -> JobRecipe | None:
        """What the launcher must know of RUN/recipe.yaml, if there is one."""
        path = self.run / "recipe.yaml"
        if not path.exists():
            if "SFT_STEPS" in self.script_text:
                raise cli.Missing(f"{path} is not there; sft-config --run {self.run} writes it")
            return None
        yaml = YAML()
        yaml.width = 1 << 20  # no line is folded
        config = yaml.load(path)
        algorithm = recipes.algorithm(config)
        values = dict(recipes.leaves(config))
        given = {key: value for key, value in values.items() if key.endswith(".seed")}
        seeds = {key: value for key, value in given.items() if isinstance(value, int)}
        files: dict[Path, Path] = {}
        config = self._moved(config, files)
        text = io.StringIO()
        yaml.dump(config, text)
        wanted: dict[str, tuple[str, type]] = {
            "SFT_CHECKPOINTS": ("checkpointing.checkpoint_dir", str),
            "SFT_STEPS": (f"{algorithm}.max_num_steps", int),
            "SFT_NODES": ("cluster.num_nodes", int),
            "SFT_GPUS": ("cluster.gpus_per_node", int),
        }
        try:
            found = {name: str(recipes.want(config, *key)) for name, key in wanted.items()}
            model = recipes.want(config, "policy.model_name", str)
        except cli.BadConfig as error:
            raise cli.BadConfig(f"{path}: {error}; sft-config writes it") from None
        found["SFT_DRIVER"] = DRIVERS[algorithm]
        for name, key in (("RL_REWARD_RULES", "env.rules"), ("DECKSMITH_JUDGE", "env.judge.host")):
            if value := recipes.get(config, key):
                found[name] = str(value)
        return JobRecipe(found, model, seeds, files, text.getvalue())

    def _moved(self, value: object, files: dict[Path, Path]) -> object:
        """A recipe whose files point into the snapshot and whose folders are those of the host.
        files: is filled in, {place in the snapshot: file}. Raises cli.BadConfig for two files of
        one place."""
        if isinstance(value, dict):
            for key in value:
                value[key] = self._moved(value[key], files)
        elif isinstance(value, list):
            value[:] = [self._moved(item, files) for item in value]
        elif isinstance(value, str) and value.startswith("/"):
            return self._moved_path(value, files)
        return value

    def _moved_path(self, value: str, files: dict[Path, Path]) -> str:
        path = Path(value)
        if path.is_file():
            # NeMo-RL cuts a parent's name at its first dot.
            inside = Path("data", path.parent.name.replace(".", "_"), path.name)
            if files.setdefault(inside, path) != path:
                both = f"{files[inside]} and {path}"
                raise cli.BadConfig(f"{both} would be one file of the snapshot; rename a folder")
            return str(self.far / "snapshot" / inside)
        for here, there in ((self.run, self.far), (cli.ROOT, self.home)):
            if path.is_relative_to(here):
                return str(there / path.relative_to(here))
        return value

    def _assignments(self) -> dict[str, str]:
        of_recipe = self.recipe.variables if self.recipe else {}
        return {"DECKSMITH_HOME": str(self.home), **of_recipe, **self.env}

    def describe(self) -> Iterator[tuple[str, object]]:
        """What would be submitted, by name: the exact command, job.env, and what job.json would say."""
        yield "command", shlex.join(self.argv)
        yield from self._assignments().items()
        for key, value in self._record().items():
            if value and key not in ("argv", "env"):
                yield key, value

    def _images(self) -> dict[str, dict[str, str | None]]:
        """{name: {"base", "sif"}} of the images that the script names: what each is built from, with its digest, and the sha256
        of the built one."""
        lock = cli.ROOT / "containers/images.lock"
        lines = lock.read_text().splitlines() if lock.exists() else []
        entries = [line.split() for line in lines if line and not line.startswith("#")]
        bases = {entry[0]: f"{entry[1]}@{entry[3]}" for entry in entries if len(entry) > 3}
        pairs = re.findall(r"image\.sh\"? ([a-z]+)|containers/([a-z]+)\.sif", self.script_text)
        found: dict[str, dict[str, str | None]] = {}
        for name in sorted({one or other for one, other in pairs}):
            built = cli.ROOT / f"containers/{name}.sif.lock"
            text = built.read_text() if built.exists() else ""
            digest = re.search(r"^sif ([0-9a-f]{64})", text, re.M)
            found[name] = {"base": bases.get(name), "sif": digest[1] if digest else None}
        return found

    def freeze(self) -> None:
        """Make RUN/snapshot and RUN/job.json."""
        new, old = self.run / "snapshot.tmp", self.run / "snapshot"
        shutil.rmtree(new, ignore_errors=True)
        (self.run / "slurm").mkdir(parents=True, exist_ok=True)
        total = hashlib.sha256()
        files = _tracked()
        for name in files:
            (new / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(cli.ROOT / name, new / name, follow_symlinks=False)
            total.update(f"{name}\0{_hash((new / name).read_bytes())}\n".encode())
        if self.recipe:
            for inside, path in self.recipe.files.items():
                (new / inside).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, new / inside)
            (new / "recipe.yaml").write_text(self.recipe.text)
        given = self._assignments().items()
        text = "".join(f"{name}={shlex.quote(value)}\n" for name, value in given)
        (new / "job.env").write_text(text)
        shutil.rmtree(old, ignore_errors=True)
        new.rename(old)
        if not self.host.name:
            self._link()
        # One key per line: the job itself fills in the first two.
        record = self._record() | {"snapshot": {"files": len(files), "sha256": total.hexdigest()}}
        lines = [f" {json.dumps(key)}: {json.dumps(value)}" for key, value in record.items()]
        stream.write(self.run / "job.json", "{\n" + ",\n".join(lines) + "\n}\n")

    def _record(self) -> dict[str, object]:
        commit, changed = _revision()
        record: dict[str, object] = {
            "job": None,
            "nodes": None,
            "name": self.name,
            "argv": self.argv,
            "submitted": datetime.now(UTC).isoformat(timespec="seconds"),
            "by": f"{getpass.getuser()}@{socket.gethostname()}",
            "place": self.host.name,
            "env": self.env,
            "revision": {"commit": commit, "changed": changed},
            "images": self._images(),
        }
        if recipe := self.recipe:
            name = recipe.model
            pinned = models.pinned(name) if models.is_name(name) else None  # a folder has none
            data = {str(inside): _hash(path.read_bytes()) for inside, path in recipe.files.items()}
            record |= {
                "recipe": {"sha256": recipe.sha256, "steps": int(recipe.variables["SFT_STEPS"])},
                "model": {"name": name, "revision": pinned},
                "seeds": recipe.seeds,
                "data": data,
            }
        return record

    def _link(self) -> None:
        home, snapshot = shlex.quote(str(self.home)), shlex.quote(f"{self.far}/snapshot")
        self.host.must(self.host.shell(LINK.format(home=home, snapshot=snapshot)))

    def submit(self) -> str:
        """Submit what was frozen; returns the job's number. Raises cli.Missing when an image or
        sbatch is missing, cli.TryAgain with what sbatch said."""
        for name in self._images():
            self._need_image(name)
        self._need_weights()
        self.host.send(self.run)
        if self.host.name:  # what is there, not what is here
            self._link()
        # Stronger than site.env:
        mine = {name: os.environ[name] for name in os.environ if name.startswith("SBATCH_")}
        command = shlex.join([*(f"{name}={value}" for name, value in mine.items()), *self.argv])
        done = self.host.shell(SUBMIT.format(home=shlex.quote(str(self.home)), command=command))
        if done.returncode:
            kind = cli.Missing if done.returncode == 69 else cli.TryAgain
            mend = slurm.remedy(done.stderr.decode(errors="replace"))
            raise kind(
                f"not submitted{self.at}: {'; '.join(filter(None, [last_line(done.stderr), mend]))}"
            )
        number = done.stdout.decode().strip().split(";")[0]
        self.host.shell(f"echo {number} > {shlex.quote(str(self.far))}/slurm/job")
        return number

    def _need_image(self, name: str) -> None:
        """Raises cli.Missing where the site's CONTAINER wants an image that is not there."""
        done = self.host.shell(f"{shlex.quote(str(self.home))}/containers/need {name}")
        if done.returncode == 69:
            raise cli.Missing(f"{last_line(done.stderr)}{self.at}")

    def _need_weights(self) -> None:
        """Raises cli.Missing where the job's base model is not in the cache of the place where it runs."""
        if not self.recipe or not models.is_name(self.recipe.model):
            return
        # Of this shell's environment the job sees nothing.
        given = [f"{name}={value}" for name, value in self.env.items() if name.startswith("HF_")]
        command = ["env", "-u", "HF_HOME", "-u", "HF_HUB_CACHE", *given]
        command += [str(self.home / "bin/model-fetch"), "--check", self.recipe.model]
        done = self.host.shell(f"exec {shlex.join(command)}")
        if done.returncode:
            raise cli.Missing(f"not submitted{self.at}: {last_line(done.stderr)}")

    def active(self) -> str | None:
        """The number of this run's job if it waits or runs now."""
        file = f"{shlex.quote(str(self.far))}/slurm/job"
        done = self.host.shell(f'cat {file} && scontrol show job -o "$(cat {file})"')
        if done.returncode:
            return None
        number, _, text = done.stdout.decode().partition("\n")
        tasks = slurm.tasks(text)
        ours = any(task.get("WorkDir") == str(self.far) for task in tasks)
        return number if ours and not all(map(slurm.is_over, tasks)) else None

    def follow(self, number: str, out: BinaryIO) -> int:
        """Copy the job's log to `out` until it has ended, across requeues and lost connections;
        returns its exit status. Raises cli.TryAgain when Slurm has forgotten the job."""
        seen: dict[str, int] = {}  # {log: bytes that were copied}
        told: dict[str, str] = {}  # {task: what was said of it}
        tasks: list[dict[str, str]] = []
        quiet = 0  # polls without an answer
        while True:
            done = self.host.shell(f"scontrol show job -o {number}")
            text = done.stdout.decode(errors="replace")
            if done.returncode == 0 and text.strip():
                tasks, quiet = slurm.tasks(text), 0
                for task in tasks:
                    _tell(task, told)
            elif b"Invalid job id" not in done.stderr:
                quiet += 1
                if quiet == 3:
                    cli.say(f"no answer{self.at}: {last_line(done.stderr)}; still trying")
            elif not _have_ended(tasks):
                log = f"{self.far}/slurm/{self.name}-{number}.out"
                raise cli.TryAgain(f"Slurm has forgotten job {number}; its log is {log}")
            for path in dict.fromkeys(task["StdOut"] for task in tasks if task.get("StdOut")):
                start = seen.get(path, 0)  # 4 MB at most are copied at once
                tail = f"tail -c +{start + 1} {shlex.quote(path)} 2>/dev/null | head -c 4000000"
                more = self.host.shell(tail).stdout
                seen[path] = start + len(more)
                out.write(more)
                out.flush()
            if _have_ended(tasks):
                self.host.fetch(self.run)
                return max(map(slurm.exit_status, tasks))
            time.sleep(POLL_S)


def _have_ended(tasks: list[dict[str, str]]) -> bool:
    return bool(tasks) and all(map(slurm.is_over, tasks))


def _tell(task: dict[str, str], told: dict[str, str]) -> None:
    """Say the state of a task where it is another than the one that was said last."""
    state = task["JobState"]
    if state == "PENDING":
        state += f" ({task['Reason']})"
    if told.get(task["JobId"]) != state:
        restarts = task.get("Restarts", "0")
        cli.say(f"{task['JobId']}: {state}" + (f", restart {restarts}" if restarts != "0" else ""))
        told[task["JobId"]] = state


def _tracked() -> list[str]:
    """The files of the checkout as they are now: what git tracks, and what is new in the folders of code; all of these
    without git."""
    tracked = cli.git("ls-files", "-z")
    if tracked:
        new = cli.git("ls-files", "-z", "--others", "--exclude-standard", "--", *CODE) or ""
        names = {*tracked.split("\0"), *new.split("\0")} - {""}
    else:
        paths = [path for folder in CODE for path in (cli.ROOT / folder).rglob("*")]
        paths = [path for path in paths if not LEFT_OUT & {*path.parts, *path.suffixes}]
        names = {str(path.relative_to(cli.ROOT)) for path in paths}
    return sorted(name for name in names if (cli.ROOT / name).is_file())


def _revision() -> tuple[str, list[str]]:
    """The commit of this checkout, and the files that differ from it."""
    changed = cli.git("status", "--porcelain", "--untracked-files=no") or ""
    return cli.git("rev-parse", "HEAD") or "unknown", [line[3:] for line in changed.splitlines()]


def assignment(text: str) -> tuple[str, str]:
    """NAME=value in two. Raises cli.BadConfig, also for a secret."""
    name, equals, value = text.partition("=")
    if not equals or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) or "\n" in value:
        raise cli.BadConfig(f"--env {masking.mask(repr(text))}: write NAME=value, on one line")
    if masking.secret_name(name) or masking.mask(value) != value:
        why = "a secret does not travel by argument or in a snapshot"
        mend = "write it into .env of the checkout where the job runs (mode 600), which jobs read"
        raise cli.BadConfig(f"--env {name}: {why}; {mend}")
    return name, value


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
