"""Jobs of slurm/: freeze what they run, hand them to Slurm here or on a login node, follow them to their end.

A job reads nothing of the checkout that may change while it waits or runs: RUN/snapshot holds the code, the recipe and its data as
they were at submission, RUN/job.json says what that was. Toolchains, images and results are links to the checkout's own.
"""

import getpass
import hashlib
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from decksmith.core import cli, masking, slurm, stream

CODE = ("assets", "bin", "containers", "lib", "slurm")
LINKED = (
    ".venv",
    ".env",
    "results",
    "assets/renderer/node_modules",
    "assets/engine/node_modules",
    "containers/*.sif*",
    "data/*",
)
POLL_S = float(os.environ.get("DECKSMITH_POLL_S") or 5)


class Here:
    """This machine as the place where Slurm is."""

    name, root = None, cli.ROOT

    def shell(self, text, **options):
        """A sh script -> CompletedProcess with bytes."""
        return subprocess.run(
            ["sh", "-c", text], stdin=subprocess.DEVNULL, capture_output=True, **options
        )

    def send(self, run):
        pass

    def fetch(self, run):
        pass

    def close(self):
        pass


class There(Here):
    """A login node by ssh, LOGIN or LOGIN:FOLDER of its checkout; DECKSMITH_SSH replaces the command `ssh` (and its options)."""

    def __init__(self, host):
        self.name, _, folder = host.partition(":")
        self.folder = folder or "decksmith"
        self.ssh = shlex.split(os.environ.get("DECKSMITH_SSH") or "ssh")
        # One connection for all polls, through a socket that nobody else reaches, and no question that nobody answers.
        self.sockets = tempfile.mkdtemp(prefix="ds-")
        self.ssh += [
            "-o",
            "BatchMode=yes",
            "-o",
            "ControlMaster=auto",
            "-o",
            f"ControlPath={self.sockets}/%C",
            "-o",
            "ControlPersist=60",
        ]

    @property
    def root(self):
        if not hasattr(self, "_root"):
            done = self.shell(
                f"cd {shlex.quote(self.folder)} && ls bin/job-submit > /dev/null && pwd -P"
            )
            if done.returncode:
                raise cli.Missing(
                    f"{self.name}: no checkout in {self.folder} ({_last(done.stderr)}); there: git clone .. {self.folder}, "
                    f"make -C {self.folder} setup, and the images (make images)"
                )
            self._root = Path(done.stdout.decode().strip())
        return self._root

    def shell(self, text, **options):
        return super().shell(
            shlex.join([*self.ssh, self.name, f"sh -c {shlex.quote(text)}"]), **options
        )

    def send(self, run):
        """The snapshot and job.json to the same place below the checkout there."""
        far = self.far(run)
        self._must(
            self.shell(
                f"mkdir -p {shlex.quote(str(far / 'snapshot'))} {shlex.quote(str(far / 'slurm'))}"
            )
        )
        self._rsync("--delete", f"{run / 'snapshot'}/", f"{self.name}:{far}/snapshot/")
        self._rsync(run / "job.json", f"{self.name}:{far}/")

    def fetch(self, run):
        """What the job made, without the optimizer's state and the snapshot."""
        self._rsync(
            "--exclude=/snapshot",
            "--exclude=optimizer",
            "--exclude=/home",
            "--exclude=*.tmp",
            f"{self.name}:{self.far(run)}/",
            f"{run}/",
        )

    def close(self):
        subprocess.run([*self.ssh, "-O", "exit", self.name], capture_output=True)
        shutil.rmtree(self.sockets, ignore_errors=True)

    def far(self, run):
        return self.root / _below_root(run)

    def _rsync(self, *arguments):
        self._must(
            subprocess.run(
                ["rsync", "-a", "-e", shlex.join(self.ssh), *map(str, arguments)],
                capture_output=True,
                stdin=subprocess.DEVNULL,
            )
        )

    def _must(self, done):
        if done.returncode:
            raise cli.TryAgain(
                f"{self.name}: {shlex.join(map(str, done.args))[:120]}: {_last(done.stderr)}"
            )


class Job:
    """One batch script with one run folder: `freeze`, `submit`, `follow`, or `describe` without any of them."""

    def __init__(self, script, run, *, sbatch=(), env=(), host=None):
        """`script`: slurm/NAME.sbatch of this checkout. `sbatch`: more flags for sbatch, the last word. `env`: NAME=value for the job."""
        self.script, self.run = Path(script).resolve(), Path(run).resolve()
        if not self.script.is_relative_to(cli.ROOT) or not self.script.is_file():
            raise cli.Missing(
                f"{script}: no batch script of this checkout; there are {', '.join(_scripts())}"
            )
        self.script = self.script.relative_to(cli.ROOT)
        self.place = There(host) if host else Here()
        self.home = self.place.root
        self.far = self.home / _below_root(self.run) if host else self.run
        if re.search(r"[\s,:'\"\\]", str(self.far)):
            raise cli.BadConfig(
                f"{self.far}: a run folder's path may hold no space, comma, colon or quote: containers mount it by name"
            )
        self.env = [_assignment(text) for text in env]
        self.recipe = self._recipe()
        self.sbatch = [*self._flags(), *sbatch]

    # What will be submitted

    @property
    def name(self):
        return f"{self.script.stem}-{re.sub(r'[^A-Za-z0-9._]', '_', self.run.name)}"

    @property
    def argv(self):
        return [
            "sbatch",
            "--parsable",
            *self.sbatch,
            str(self.far / "snapshot" / self.script),
            str(self.far),
        ]

    def _flags(self):
        flags = [
            f"--job-name={self.name}",
            f"--chdir={self.far}",
            f"--output={self.far}/slurm/%x-%j.out",
        ]
        if self.recipe:
            flags += [f"--nodes={self.recipe['nodes']}", f"--gres=gpu:{self.recipe['gpus']}"]
        return flags

    def _recipe(self):
        """What the launcher must know of RUN/recipe.yaml, if there is one, and its text with the paths of the frozen files."""
        path = self.run / "recipe.yaml"
        if not path.exists():
            if "SFT_STEPS" in (cli.ROOT / self.script).read_text():
                raise cli.Missing(f"{path} is not there; sft-config --run {self.run} writes it")
            return None
        from ruamel.yaml import YAML

        yaml = YAML()
        yaml.width = 1 << 20  # no line is folded
        config = yaml.load(path)
        found = {"files": {}}
        for name, key, kind in (
            ("nodes", "cluster.num_nodes", int),
            ("gpus", "cluster.gpus_per_node", int),
            ("steps", "sft.max_num_steps", int),
            ("checkpoints", "checkpointing.checkpoint_dir", str),
        ):
            value = config
            for part in key.split("."):
                value = value.get(part) if isinstance(value, dict) else None
            if type(value) is not kind:
                raise cli.BadConfig(f"{path}: {key} is {value!r}; sft-config writes it")
            found[name] = value
        found["seeds"] = dict(_seeds(config))
        config = self._moved(config, found["files"])
        found["checkpoints"] = config["checkpointing"]["checkpoint_dir"]
        with tempfile.TemporaryFile("w+") as text:
            yaml.dump(config, text)
            text.seek(0)
            found["text"] = text.read()
        return found

    def _moved(self, value, files):
        """A recipe whose files point into the snapshot and whose folders are those of the place where it runs."""
        if isinstance(value, dict):
            for key in value:
                value[key] = self._moved(value[key], files)
        elif isinstance(value, list):
            value[:] = [self._moved(item, files) for item in value]
        elif isinstance(value, str) and value.startswith("/"):
            path = Path(value)
            if path.is_file():
                inside = Path(
                    "data", path.parent.name.replace(".", "_"), path.name
                )  # NeMo-RL cuts a parent's name at its first dot
                if files.setdefault(inside, path) != path:
                    raise cli.BadConfig(
                        f"{files[inside]} and {path} would be one file of the snapshot; rename a folder"
                    )
                return str(self.far / "snapshot" / inside)
            for here, there in ((self.run, self.far), (cli.ROOT, self.home)):
                if path.is_relative_to(here):
                    return str(there / path.relative_to(here))
        return value

    def _assignments(self):
        given = {"DECKSMITH_HOME": str(self.home)}
        if self.recipe:
            given |= {
                "SFT_CHECKPOINTS": self.recipe["checkpoints"],
                "SFT_STEPS": self.recipe["steps"],
                "SFT_NODES": self.recipe["nodes"],
                "SFT_GPUS": self.recipe["gpus"],
            }
        return given | dict(self.env)

    def describe(self):
        """Every resolved setting as (name, value, where it comes from), the exact command first."""
        yield "command", shlex.join(self.argv), ""
        yield (
            "place",
            self.place.name or socket.gethostname(),
            "--host" if self.place.name else "this machine",
        )
        yield "run", str(self.far), "--run"
        settings = {}
        for line in (cli.ROOT / self.script).read_text().splitlines():
            if match := re.match(r"#SBATCH\s+--([a-z-]+)(?:[= ](\S+))?", line):
                settings[match[1]] = (match[2] or "yes", str(self.script))
        site = self._site()
        for source, values in (("slurm/site.env", site), ("the environment", os.environ)):
            settings |= {
                name[7:].lower().replace("_", "-"): (value, f"{name} of {source}")
                for name, value in sorted(values.items())
                if name.startswith("SBATCH_")
            }
        derived = len(self._flags())
        for number, text in enumerate(self.sbatch):
            name, _, value = text.lstrip("-").partition("=")
            settings[name] = (
                value or "yes",
                ("recipe.yaml" if name in ("nodes", "gres") else "job-submit")
                if number < derived
                else "the command line",
            )
        yield from ((f"--{name}", *settings[name]) for name in sorted(settings))
        for source, values in (
            ("slurm/site.env", {k: v for k, v in site.items() if not k.startswith("SBATCH_")}),
            ("job.env", self._assignments()),
        ):
            yield from (
                (name, masking.shown(name, str(value)), source) for name, value in values.items()
            )
        if self.place.name:
            yield "site", f"slurm/site.env of {self.home}", self.place.name
        for name, image in self._images().items():
            yield (
                f"image {name}",
                f"sha256 {image['sif']}" if image["sif"] else "not built here",
                f"base {image['base'] or 'unknown'}",
            )
        if self.recipe:
            yield (
                "recipe",
                f"sha256 {_hash(self.recipe['text'].encode())[:16]}",
                str(self.run / "recipe.yaml"),
            )
            yield from (
                (
                    f"frozen {inside}",
                    f"{path.read_bytes().count(10)} lines, sha256 {_hash(path.read_bytes())[:16]}",
                    str(path),
                )
                for inside, path in self.recipe["files"].items()
            )
            yield from (
                (f"seed {key}", str(value), "recipe.yaml")
                for key, value in self.recipe["seeds"].items()
            )
        revision = self._revision()
        yield (
            "revision",
            revision["commit"],
            f"{len(revision['changed'])} files differ from it"
            if revision["changed"]
            else "unchanged",
        )

    def _site(self):
        """The assignments of this checkout's slurm/site.env, for `describe`; jobs and sbatch have a shell read it."""
        path = cli.ROOT / "slurm/site.env"
        if self.place.name or not path.exists():
            return {}
        names = re.findall(r"^(?:export +)?([A-Za-z_]\w*)=", path.read_text(), re.M)
        done = subprocess.run(
            ["sh", "-c", 'set -a; . "$0" > /dev/null 2>&1; env -0', path],
            capture_output=True,
            text=True,
        )
        values = dict(line.partition("=")[::2] for line in done.stdout.split("\0"))
        return {name: values.get(name, "") for name in dict.fromkeys(names)}

    def _images(self):
        """{name: {"base": digest, "sif": sha256}} of the images that the script names."""
        lock = cli.ROOT / "containers/images.lock"
        lines = (
            [line.split() for line in lock.read_text().splitlines() if line[:1] not in ("", "#")]
            if lock.exists()
            else []
        )
        bases = {line[0]: f"{line[1]}@{line[3]}" for line in lines if len(line) > 3}
        found = {}
        for name in sorted(
            set(
                re.findall(
                    r"image\.sh\"? ([a-z]+)|containers/([a-z]+)\.sif",
                    (cli.ROOT / self.script).read_text(),
                )
            )
        ):
            name = name[0] or name[1]
            built = cli.ROOT / f"containers/{name}.sif.lock"
            digest = (
                re.search(r"^sif ([0-9a-f]{64})", built.read_text(), re.M)
                if built.exists()
                else None
            )
            found[name] = {"base": bases.get(name), "sif": digest[1] if digest else None}
        return found

    def _revision(self):
        commit = _git("rev-parse", "HEAD")
        changed = _git("status", "--porcelain", "--untracked-files=no")
        return {
            "commit": (commit or "unknown").strip(),
            "changed": [line[3:] for line in (changed or "").splitlines()],
        }

    # Freeze, submit, follow

    def freeze(self):
        """Make RUN/snapshot and RUN/job.json."""
        new, old = self.run / "snapshot.tmp", self.run / "snapshot"
        shutil.rmtree(new, ignore_errors=True)
        (self.run / "slurm").mkdir(parents=True, exist_ok=True)
        total = hashlib.sha256()
        files = _tracked()
        for path in files:
            (new / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(cli.ROOT / path, new / path, follow_symlinks=False)
            total.update(f"{path}\0{_hash((new / path).read_bytes())}\n".encode())
        if self.recipe:
            for inside, path in self.recipe["files"].items():
                (new / inside).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, new / inside)
            (new / "recipe.yaml").write_text(self.recipe["text"])
        (new / "job.env").write_text(
            "".join(
                f"{name}={shlex.quote(str(value))}\n" for name, value in self._assignments().items()
            )
        )
        if not self.place.name:
            _link(cli.ROOT, new, old)
        shutil.rmtree(old, ignore_errors=True)
        new.rename(old)
        record = {
            "job": None,
            "nodes": None,
            "name": self.name,
            "argv": self.argv,
            "submitted": datetime.now(UTC).isoformat(timespec="seconds"),
            "by": f"{getpass.getuser()}@{socket.gethostname()}",
            "place": self.place.name,
            "env": dict(self.env),
            "revision": self._revision(),
            "snapshot": {"files": len(files), "sha256": total.hexdigest()},
            "images": self._images(),
        }
        if self.recipe:
            record |= {
                "recipe": {
                    "sha256": _hash(self.recipe["text"].encode()),
                    "steps": self.recipe["steps"],
                },
                "seeds": self.recipe["seeds"],
                "data": {
                    str(inside): _hash(path.read_bytes())
                    for inside, path in self.recipe["files"].items()
                },
            }
        # One key per line: the job itself fills in the first two.
        lines = ",\n".join(
            f" {json.dumps(key)}: {json.dumps(value)}" for key, value in record.items()
        )
        stream.write(self.run / "job.json", f"{{\n{lines}\n}}\n")

    def submit(self):
        """sbatch -> the job's number. Raises cli.Missing when an image or sbatch is missing, cli.TryAgain with what sbatch said."""
        home, far = shlex.quote(str(self.home)), shlex.quote(str(self.far))
        mine = [
            f"{name}={value}" for name, value in os.environ.items() if name.startswith("SBATCH_")
        ]  # stronger than site.env
        for name in self._images():
            if self.place.shell(f"test -e {home}/containers/{name}.sif").returncode:
                raise cli.Missing(
                    f"containers/{name}.sif is not there{self._at()}; make image-{name}"
                )
        self.place.send(self.run)
        if self.place.name:  # what is there, not what is here
            links = "; ".join(
                f'for f in {pattern}; do [ ! -e "$f" ] || [ -e {far}/snapshot/"$f" ] || {{ mkdir -p {far}/snapshot/"$(dirname "$f")"; '
                f'ln -s {home}/"$f" {far}/snapshot/"$f"; }}; done'
                for pattern in LINKED
            )
            self.place._must(
                self.place.shell(
                    f"cd {home} && {{ {links}; }}; [ ! -f slurm/site.env ] || install -m 600 slurm/site.env {far}/snapshot/slurm/"
                )
            )
        done = self.place.shell(
            f"command -v sbatch > /dev/null || {{ echo 'sbatch: not found' >&2; exit 69; }}; set -a; "
            f"[ ! -f {home}/slurm/site.env ] || . {home}/slurm/site.env; set +a; exec env {shlex.join([*mine, *self.argv])}"
        )
        if done.returncode:
            kind = cli.Missing if done.returncode == 69 else cli.TryAgain
            raise kind(f"not submitted{self._at()}: {_last(done.stderr)}")
        number = done.stdout.decode().strip().split(";")[0]
        self.place.shell(f"echo {number} > {far}/slurm/job")
        return number

    def active(self):
        """The number of this run's job if it waits or runs now."""
        far = shlex.quote(str(self.far))
        done = self.place.shell(
            f'cat {far}/slurm/job && scontrol show job -o "$(cat {far}/slurm/job)"'
        )
        if done.returncode:
            return None
        number, _, text = done.stdout.decode().partition("\n")
        states = slurm.tasks(text)
        ours = any(task.get("WorkDir") == str(self.far) for task in states)
        return number if ours and not all(map(slurm.is_over, states)) else None

    def follow(self, number, out):
        """Copy the job's log to `out` until it has ended, across requeues and lost connections -> its exit status."""
        seen, told, tasks, quiet = {}, {}, [], 0
        while True:
            done = self.place.shell(f"scontrol show job -o {number}")
            text = done.stdout.decode(errors="replace")
            if done.returncode == 0 and text.strip():
                tasks, quiet = slurm.tasks(text), 0
                for task in tasks:
                    said = task["JobState"] + (
                        f" ({task['Reason']})" if task["JobState"] == "PENDING" else ""
                    )
                    if told.get(task["JobId"]) != said:
                        cli.say(
                            f"{task['JobId']}: {said}"
                            + (
                                f", restart {task['Restarts']}"
                                if task.get("Restarts", "0") != "0"
                                else ""
                            )
                        )
                        told[task["JobId"]] = said
            elif b"Invalid job id" in done.stderr:
                if not (tasks and all(map(slurm.is_over, tasks))):
                    raise cli.TryAgain(
                        f"Slurm has forgotten job {number}; its log is {self.far}/slurm/{self.name}-{number}.out"
                    )
            else:
                quiet += 1
                if quiet == 3:
                    cli.say(f"no answer{self._at()}: {_last(done.stderr)}; still trying")
            ended = tasks and all(map(slurm.is_over, tasks))
            for path in dict.fromkeys(task["StdOut"] for task in tasks if task.get("StdOut")):
                more = self.place.shell(
                    f"tail -c +{seen.get(path, 0) + 1} {shlex.quote(path)} 2>/dev/null | head -c 4000000"
                ).stdout
                seen[path] = seen.get(path, 0) + len(more)
                out.write(more)
                out.flush()
            if ended:
                self.place.fetch(self.run)
                return max(slurm.exit_status(task) for task in tasks)
            time.sleep(POLL_S)

    def _at(self):
        return f" on {self.place.name}" if self.place.name else ""


def _link(root, new, old):
    """Relative links from a snapshot (built as `new`, to be moved to `old`) to the checkout's toolchain, images and ignored files."""
    for pattern in LINKED:
        for source in root.glob(pattern):
            place = source.relative_to(root)
            if not (new / place).exists():
                (new / place).parent.mkdir(parents=True, exist_ok=True)
                (new / place).symlink_to(os.path.relpath(source, (old / place).parent))
    if (root / "slurm/site.env").exists():
        shutil.copy2(root / "slurm/site.env", new / "slurm/site.env")
        (new / "slurm/site.env").chmod(0o600)  # the proxy's address may hold a password


def _tracked():
    """The files of the checkout as they are now: what git tracks, and what is new in the folders of code; all of these without git."""
    tracked, new = (
        _git("ls-files", "-z"),
        _git("ls-files", "-z", "--others", "--exclude-standard", "--", *CODE),
    )
    names = (
        {*tracked.split("\0"), *new.split("\0")}
        if tracked
        else {
            str(path.relative_to(cli.ROOT))
            for folder in CODE
            for path in (cli.ROOT / folder).rglob("*")
            if not {"node_modules", "__pycache__"} & {*path.parts} and ".sif" not in path.suffixes
        }
    )
    return sorted(name for name in names if name and (cli.ROOT / name).is_file())


def _git(*words):
    try:
        done = subprocess.run(
            ["git", "-c", "safe.directory=*", "-C", cli.ROOT, *words],
            capture_output=True,
            text=True,
        )
    except FileNotFoundError:
        return None
    return done.stdout if done.returncode == 0 else None


def _seeds(value, where=""):
    for key, item in value.items():
        if isinstance(item, dict):
            yield from _seeds(item, f"{where}{key}.")
        elif key == "seed":
            yield f"{where}{key}", item


def _assignment(text):
    name, equals, value = text.partition("=")
    if not equals or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) or "\n" in value:
        raise cli.BadConfig(f"--env {masking.mask(repr(text))}: write NAME=value, on one line")
    if masking.secret_name(name) or masking.mask(value) != value:
        raise cli.BadConfig(
            f"--env {name}: a secret does not travel by argument or in a snapshot; write it into .env of the checkout "
            "where the job runs (mode 600), which jobs read"
        )
    return name, value


def _below_root(run):
    if not run.is_relative_to(cli.ROOT):
        raise cli.BadConfig(
            f"{run}: with --host, the run folder must lie in the checkout ({cli.ROOT}), so that its place there is known"
        )
    return run.relative_to(cli.ROOT)


def _scripts():
    return sorted(str(path.relative_to(cli.ROOT)) for path in (cli.ROOT / "slurm").glob("*.sbatch"))


def _hash(data):
    return hashlib.sha256(data).hexdigest()


def _last(stderr):
    lines = (
        (stderr if isinstance(stderr, str) else stderr.decode(errors="replace"))
        .strip()
        .splitlines()
    )
    return lines[-1] if lines else "no message"
