"""A real Slurm of two nodes with eight (fake) GPUs each, on this one host, for tests; needs root once `tests/slurm/setup` has run.

    from cluster import Cluster
    with Cluster() as slurm:                              # munge, slurmctld, two slurmd: own folder, own ports, so that several run at once
        slurm.work                                        # a folder of user hpc that every node sees; goes with the cluster
        job = slurm.submit("-N2", script, "argument")     # sbatch as hpc; `stdin=` for a script by text; -> the job's number
        slurm.wait(job, 60)                               # -> ("COMPLETED", 0): state and exit code once it has ended, across requeues
        slurm.run(["squeue"]).stdout                      # any command as hpc with SLURM_CONF set; check=False keeps a failure
        slurm.kill("n2")                                  # node n2 dies: its slurmd and all its processes, by SIGKILL
        slurm.revive("n2")
        slurm.processes()                                 # {pid: command line} of what jobs of this cluster run now
        slurm.hurry(job)                                  # a requeued job waits two minutes by Slurm's own rule; not this one
        slurm.checkout()                                  # a copy of this checkout in slurm.work, with its toolchain, owned by hpc

In tests the fixture `slurm` (conftest.py) gives one cluster for a whole file. By hand, for several commands of a shell:

    tests/slurm/cluster.py start DIR      prints `export SLURM_CONF=...`; then: su hpc -c '...'
    tests/slurm/cluster.py stop DIR       (also for one of /var/tmp/decksmith-slurm/c* that a killed test left)
"""

import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
USER = "hpc"
NODES = ("n1", "n2")
OVER = {
    "COMPLETED",
    "FAILED",
    "CANCELLED",
    "TIMEOUT",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "BOOT_FAIL",
    "DEADLINE",
    "PREEMPTED",
}

# linuxproc, task/none: no cgroups needed. config_overrides: two cores may claim 64. bf_interval: heterogeneous jobs and requeued ones
# are started by the backfill scheduler. ReturnToService: a killed node comes back. SlurmdTimeout: a dead node is given up in a minute.
# KillWait: the time between TERM and KILL that sites give, shortened. UnkillableStepTimeout: a busy machine takes its time to
# end processes, and a node that is slow at it would be drained after a minute.
PARTITIONS = "PartitionName=gpu Nodes=n[1-2] Default=YES MaxTime=INFINITE State=UP"
CONF = """
ClusterName=decksmith
SlurmctldHost={host}({control})
SlurmctldPort={ports[0]}
AuthType=auth/munge
AuthInfo=socket={root}/munge.sock
SlurmUser=root
SlurmdUser=root
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool-%n
SlurmctldPidFile={root}/slurmctld.pid
SlurmdPidFile={root}/slurmd-%n.pid
SlurmctldLogFile={root}/log/slurmctld.log
SlurmdLogFile={root}/log/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
{types}
ReturnToService=2
SlurmdTimeout=60
KillWait=10
UnkillableStepTimeout=900
SlurmdParameters=config_overrides
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=64 RealMemory=1000000{n1}
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=64 RealMemory=1000000{n2}
{partitions}
"""


class Cluster:
    def __init__(
        self, root=None, apart=None, kind="", gres=NODES, partitions=PARTITIONS, offline=False
    ):
        """`root`: a folder for everything of this cluster, made new and removed at the end; by default below /var/tmp.
        `apart`: a folder that each node has for itself, as nodes have their own disks; here it is n1's.
        `kind`: the type of its GPUs, as h100; `gres`: the nodes whose GPUs Slurm knows; `partitions`: lines of slurm.conf.
        `offline`: what runs on nodes reaches the login node, and nothing else; `run` has this machine's network."""
        self.kind, self.gres, self.partitions = kind, gres, partitions
        if os.geteuid():
            raise RuntimeError("tests/slurm needs root, to start daemons and to be user hpc")
        self.given, self.apart, self.offline, self.net = root, apart, offline, None
        self.root = Path(root).absolute() if root else None

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.stop()

    def start(self):
        base = Path("/var/tmp/decksmith-slurm")
        base.mkdir(exist_ok=True)
        base.chmod(0o755)
        self.root = self.root or Path(tempfile.mkdtemp(prefix="c", dir=base))
        self.root.mkdir(parents=True, exist_ok=True)
        self.root.chmod(0o755)
        for name in ("log", "state", "dev", *(f"spool-{node}" for node in NODES)):
            (self.root / name).mkdir(exist_ok=True)
        self.work.mkdir(exist_ok=True)
        shutil.chown(self.work, USER, USER)
        for number in range(8):  # the GPUs: character devices like /dev/null
            os.mknod(self.root / f"dev/nvidia{number}", 0o20666, os.makedev(1, 3))
        conf = CONF.format(
            host=socket.gethostname().split(".")[0],
            root=self.root,
            control=self._cable() if self.offline else "127.0.0.1",
            ports=_free_ports(3),
            types="GresTypes=gpu" if self.gres else "",
            **{
                node: f" Gres=gpu:{self.kind + ':' if self.kind else ''}8" * (node in self.gres)
                for node in NODES
            },
            partitions=self.partitions,
        )
        self.conf.write_text(conf.lstrip())
        if self.gres:
            typed = f"Type={self.kind} " if self.kind else ""
            (self.root / "gres.conf").write_text(
                f"NodeName={','.join(self.gres)} Name=gpu {typed}File={self.root}/dev/nvidia[0-7]\n"
            )
        key = self.root / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        try:
            self._daemon(
                "munged",
                "--force",
                f"--socket={self.root}/munge.sock",
                f"--pid-file={self.root}/munged.pid",
                f"--key-file={key}",
                f"--log-file={self.root}/log/munged.log",
                f"--seed-file={self.root}/munge.seed",
            )
            self._daemon("slurmctld")
            for node in NODES:
                self._slurmd(node)
            _until(
                30,
                "both nodes are idle",
                lambda: (
                    self.run(["sinfo", "-h", "-N", "-o", "%t"], check=False).stdout.split()
                    == ["idle"] * 2
                ),
            )
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self):
        """End jobs and daemons, by pid files; then remove the folder. Raises if a process of a job is left."""
        if self._pid("slurmctld"):
            self.run(["scancel", "-u", USER], check=False)
        deadline = time.monotonic() + 20  # more than KillWait
        while self.processes() and time.monotonic() < deadline:
            time.sleep(0.2)
        left = self.processes()
        for pid in left:
            _kill(pid)
        for name in (*(f"slurmd-{node}" for node in NODES), "slurmctld", "munged"):
            self._end(name)
        if self.net:
            self.net.kill()  # the cable goes with it
            self.net.wait()
        shutil.rmtree(self.root, ignore_errors=True)
        if left:
            raise RuntimeError(f"left behind by jobs, now killed: {left}")

    @property
    def conf(self):
        return self.root / "slurm.conf"

    @property
    def work(self):
        return self.root / "work"

    @property
    def env(self):
        """The whole environment of `run`."""
        home = Path(f"~{USER}").expanduser()
        return {
            "SLURM_CONF": str(self.conf),
            "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "HOME": str(home),
            "USER": USER,
            "LOGNAME": USER,
            "LANG": "C.UTF-8",
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def run(self, command, *, check=True, cwd=None, env=None, **options):
        """A command as user hpc -> CompletedProcess with text; stderr is shown when it fails and `check` is set."""
        done = subprocess.run(
            [str(word) for word in command],
            user=USER,
            group=USER,
            extra_groups=[],
            cwd=cwd or self.work,
            env=self.env | (env or {}),
            capture_output=True,
            text=True,
            **options,
        )
        if check and done.returncode:
            raise AssertionError(
                f"{' '.join(map(str, command))}: exit {done.returncode}\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
            )
        return done

    def submit(self, *arguments, stdin=None):
        """sbatch ARGUMENTS as hpc -> the job's number; `stdin`: the script as text."""
        return (
            self.run(["sbatch", "--parsable", *arguments], input=stdin).stdout.strip().split(";")[0]
        )

    def show(self, job):
        """What `scontrol show job` says, as {"JobState": .., "ExitCode": .., "Restarts": .., ...}."""
        return dict(
            re.findall(r"(\S+?)=(\S*)", self.run(["scontrol", "show", "job", "-o", job]).stdout)
        )

    def wait(self, job, seconds):
        """(state, exit code) once the job has ended; a requeued one has not. AssertionError with its state after `seconds`."""
        found = {}

        def over():
            found.update(self.show(job))
            return found["JobState"] in OVER

        _until(seconds, f"job {job} ends", over, lambda: found)
        return found["JobState"], int(found["ExitCode"].split(":")[0])

    def kill(self, node):
        """SIGKILL to the slurmd of a node and to every process of its job steps."""
        daemon = self._pid(f"slurmd-{node}")
        steps = [
            pid
            for pid, line in _table().items()
            if line["name"] == "slurmstepd"
            and f"{self.root}/log/slurmd-{node}.log" in line["files"]
        ]
        for pid in [daemon, *steps, *_below(steps)]:
            _kill(pid)
        (self.root / f"slurmd-{node}.pid").unlink(missing_ok=True)

    def revive(self, node):
        self._slurmd(node)

    def processes(self):
        """{pid: command line} of every process of a job of this cluster, containers included."""
        table = _table()
        daemons = {
            self._pid(name)
            for name in ("munged", "slurmctld", *(f"slurmd-{node}" for node in NODES))
        }
        mine = [
            pid
            for pid, line in table.items()
            if str(self.root) in line["text"] + line["files"]
            and pid not in daemons | {os.getpid(), os.getppid()}
            and line["uid"] != 0
            or line["name"] == "slurmstepd"
            and str(self.root) in line["files"]
        ]
        return {pid: table[pid]["command"] for pid in {*mine, *_below(mine)} if pid in table}

    def hurry(self, job):
        time.sleep(
            3
        )  # a node takes a job again only in a later second than that in which it ended there
        subprocess.run(
            ["scontrol", "update", f"JobId={job}", "StartTime=now"],
            env=self.env,
            capture_output=True,
        )

    def ready(self, name):
        """`checkout` as `make setup` leaves it: a renderer of this user's own, built; no containers."""
        place = self.checkout(name)
        (place / "results").mkdir()
        (place / "slurm/site.env").write_text("CONTAINER=none\n")
        modules = place / "assets/renderer/node_modules"
        shared = modules.resolve()
        modules.unlink()
        shutil.copytree(shared, modules, symlinks=True, ignore=shutil.ignore_patterns(".cache"))
        subprocess.run(["chown", "-Rh", f"{USER}:{USER}", modules, place / "results"], check=True)
        self.run([place / ".venv/bin/node", "assets/renderer/build.mjs"], cwd=place)
        return place

    def checkout(self, name="decksmith"):
        """`work/NAME`: the files of this checkout as they are, links to its toolchain, no images, no results; a git repository."""
        copy = self.work / name
        listed = subprocess.run(
            ["git", "-c", "safe.directory=*", "ls-files", "-co", "--exclude-standard", "-z"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split("\0")
        for name in filter(None, listed):
            if (ROOT / name).is_file():
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, copy / name, follow_symlinks=False)
        for name in ("assets/engine/node_modules", "assets/renderer/node_modules", "data/models"):
            if (ROOT / name).exists():
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                (copy / name).symlink_to(ROOT / name)
        (copy / ".venv/bin").mkdir(parents=True)
        for path in [*(ROOT / ".venv").glob("*"), *(ROOT / ".venv/bin").glob("*")]:
            place = copy / path.relative_to(ROOT)
            if not place.exists() and not path.name.startswith("python"):
                place.symlink_to(path)
        # The interpreter of .venv may lie where only root looks (/root/.pyenv); Debian's own runs the same packages,
        # and has to be told of the data that NLTK finds beside an interpreter.
        python = copy / ".venv/bin/python3"
        packages = next((ROOT / ".venv/lib").glob("python3*/site-packages"))
        python.write_text(
            f'#!/bin/sh\nexport NLTK_DATA="{ROOT}/.venv/nltk_data"\n'
            f'PYTHONPATH="$PYTHONPATH:{packages}" exec {_python()} "$@"\n'
        )
        python.chmod(0o755)
        subprocess.run(["chown", "-Rh", f"{USER}:{USER}", copy], check=True)
        self.run(["git", "init", "-q"], cwd=copy)
        self.run(["git", "add", "-A"], cwd=copy)
        self.run(
            [
                "git",
                "-c",
                "user.name=hpc",
                "-c",
                "user.email=hpc@localhost",
                "commit",
                "-qm",
                "As it is now",
            ],
            cwd=copy,
        )
        return copy

    def _slurmd(self, node):
        command = ["slurmd", "-N", node]
        if self.apart and node != NODES[0]:
            mount = 'mount -t tmpfs -o mode=1777 tmpfs "$0" && exec "$@"'
            command = ["unshare", "--mount", "sh", "-c", mount, self.apart, *command]
        self._daemon(*command)

    def _cable(self):
        """A network namespace for the nodes, with a cable to this one -> their address; no route leads further."""
        self.net = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
        ours, theirs = (Path(f"/proc/{pid}/ns/net") for pid in ("self", self.net.pid))
        _until(10, "a network namespace", lambda: os.readlink(ours) != os.readlink(theirs))
        name, block = f"ds{self.net.pid}", f"10.77.{random.randrange(256)}"
        inside = ["nsenter", f"--net={theirs}"]
        for command in (
            ["ip", "link", "add", name, "type", "veth", "peer", "eth0", "netns", f"{self.net.pid}"],
            ["ip", "address", "add", f"{block}.1/30", "dev", name],
            ["ip", "link", "set", name, "up"],
            [*inside, "ip", "address", "add", f"{block}.2/30", "dev", "eth0"],
            [*inside, "ip", "link", "set", "eth0", "up"],
            [*inside, "ip", "link", "set", "lo", "up"],
        ):
            subprocess.run(command, check=True)
        return f"{block}.2"

    def _daemon(self, *command):
        if self.net:
            command = ["nsenter", f"--net=/proc/{self.net.pid}/ns/net", *command]
        done = subprocess.run(command, env=self.env, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stdout}{done.stderr}")

    def _pid(self, name):
        try:
            return int((self.root / f"{name}.pid").read_text())
        except (FileNotFoundError, ValueError):
            return None

    def _end(self, name):
        if pid := self._pid(name):
            _kill(pid, signal.SIGTERM)
            deadline = time.monotonic() + 10
            while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
                time.sleep(0.05)
            _kill(pid)


def _python():
    """An interpreter of .venv's version that everybody may run."""
    version = next((ROOT / ".venv/lib").glob("python3*")).name
    for path in (
        Path(f"/usr/bin/{version}"),
        Path(f"/usr/local/bin/{version}"),
        (ROOT / ".venv/bin/python3").resolve(),
    ):
        if (
            path.exists()
            and subprocess.run(
                [path, "-c", ""], user=USER, group=USER, capture_output=True, cwd="/"
            ).returncode
            == 0
        ):
            return path
    raise RuntimeError(f"user {USER} can run no {version}: apt-get install {version}")


def _table():
    """What /proc says of every process: name, uid, command, text (command and environment), files (open ones and the working folder)."""
    table = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            status = (folder / "status").read_text()
            command = (
                (folder / "cmdline")
                .read_bytes()
                .replace(b"\0", b" ")
                .decode(errors="replace")
                .strip()
            )
            text = (
                command
                + "\n"
                + (folder / "environ").read_bytes().replace(b"\0", b"\n").decode(errors="replace")
            )
            files = "\n".join(
                _link(entry) for entry in [folder / "cwd", *(folder / "fd").iterdir()]
            )
        except OSError:
            continue
        field = dict(re.findall(r"^(\w+):\s+(.*)", status, re.M))
        if field["State"][0] != "Z":
            name = "slurmstepd" if command.startswith("slurmstepd") else field["Name"]
            table[int(folder.name)] = {
                "name": name,
                "uid": int(field["Uid"].split()[0]),
                "parent": int(field["PPid"]),
                "command": command,
                "text": text,
                "files": files,
            }
    return table


def _link(path):
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _below(pids):
    """All descendants."""
    table, found, more = _table(), set(), set(pids)
    while more:
        more = {pid for pid, line in table.items() if line["parent"] in more} - found
        found |= more
    return found


def _kill(pid, number=signal.SIGKILL):
    try:
        os.kill(pid, number)
    except (ProcessLookupError, TypeError):
        pass


def _free_ports(count):
    """`count` ports in a row below the ephemeral range that nobody listens on."""
    for _ in range(1000):
        first = random.randrange(17000, 31000)
        try:
            held = [socket.create_server(("", first + number)) for number in range(count)]
        except OSError:
            continue
        for one in held:
            one.close()
        return range(first, first + count)
    raise RuntimeError("no free ports")


def _until(seconds, what, test, state=lambda: ""):
    deadline = time.monotonic() + seconds
    while not test():
        if time.monotonic() > deadline:
            raise AssertionError(f"after {seconds} s not yet: {what} {state()}")
        time.sleep(0.3)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["start", root]:
            print(f"export SLURM_CONF={Cluster(root).start().conf}")
        case ["stop", root]:
            Cluster(root).stop()
        case _:
            sys.exit(__doc__)
