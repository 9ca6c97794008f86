"""Where Slurm is: this machine, or a login node by ssh."""

import functools
import os
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

from decksmith.core import cli

Done = subprocess.CompletedProcess[bytes]
# One connection for all polls, and no question that nobody answers.
OPTIONS = ("BatchMode=yes", "ControlMaster=auto", "ControlPersist=60")


class SlurmHost:
    """This machine, or a login node by ssh: LOGIN or LOGIN:FOLDER of its checkout. DECKSMITH_SSH replaces the command `ssh`
    (and its options)."""

    def __init__(self, host: str = ""):
        name, _, folder = host.partition(":")
        self.name, self.folder = name or None, folder or "decksmith"
        self.command = ["sh", "-c"]
        if self.name:
            # A folder that nobody else reaches; a socket's path, with ssh's own ending, has 100 characters at most.
            place = tempfile.gettempdir()
            self.sockets = tempfile.mkdtemp(prefix="ds-", dir=place if len(place) < 60 else "/tmp")
            options = (*OPTIONS, f"ControlPath={self.sockets}/s")
            self.ssh = shlex.split(os.environ.get("DECKSMITH_SSH") or "ssh")
            self.ssh += [word for option in options for word in ("-o", option)]
            self.command = [*self.ssh, self.name]

    @functools.cached_property
    def root(self) -> Path:
        """The checkout's folder there. Raises cli.Missing; cli.TryAgain where ssh itself fails."""
        if not self.name:
            return cli.ROOT
        folder = shlex.quote(self.folder)
        done = self.shell(f"cd {folder} && ls bin/job-submit > /dev/null && pwd -P")
        if done.returncode == 255:  # of ssh itself; nothing was run there
            said = "; ".join(done.stderr.decode(errors="replace").split("\n")).strip("; ")
            mend = f"mend it until `{shlex.join([*self.ssh[:1], self.name])} true` works"
            raise cli.TryAgain(f"{self.name}: ssh does not get there ({said[-400:]}); {mend}")
        if done.returncode:
            what = f"no checkout in {self.folder} ({last_line(done.stderr)})"
            mend = f"git clone .. {self.folder}, make -C {self.folder} setup, and the images"
            raise cli.Missing(f"{self.name}: {what}; there: {mend} (make images)")
        return Path(done.stdout.decode().strip())

    def shell(self, text: str) -> Done:
        """Run a sh script there."""
        return _run([*self.command, f"sh -c {shlex.quote(text)}" if self.name else text])

    def must(self, done: Done) -> None:
        """Raises cli.TryAgain for a command that failed."""
        if done.returncode:
            command = shlex.join(map(str, done.args))[:120]
            raise cli.TryAgain(f"{self.name or 'here'}: {command}: {last_line(done.stderr)}")

    def send(self, run: Path) -> None:
        """Bring the snapshot and job.json of a run to the same place below the checkout there."""
        if self.name:
            far = self.root / below_root(run)
            snapshot, logs = shlex.quote(str(far / "snapshot")), shlex.quote(str(far / "slurm"))
            self.must(self.shell(f"mkdir -p {snapshot} {logs}"))
            self._rsync("--delete", f"{run / 'snapshot'}/", f"{self.name}:{far}/snapshot/")
            self._rsync(run / "job.json", f"{self.name}:{far}/")

    def fetch(self, run: Path) -> None:
        """Bring back what the job made, without the optimizer's state and the snapshot."""
        if self.name:
            left = ("/snapshot", "optimizer", "/home", "*.tmp")
            far = self.root / below_root(run)
            self._rsync(*(f"--exclude={name}" for name in left), f"{self.name}:{far}/", f"{run}/")

    def close(self) -> None:
        """Give back what the connection holds."""
        if self.name:
            subprocess.run([*self.ssh, "-O", "exit", self.name], capture_output=True)
            shutil.rmtree(self.sockets, ignore_errors=True)

    def _rsync(self, *arguments: str | Path) -> None:
        self.must(_run(["rsync", "-a", "-e", shlex.join(self.ssh), *map(str, arguments)]))


def below_root(run: Path) -> Path:
    """The path of a run folder below the checkout. Raises cli.BadConfig for one that lies elsewhere."""
    if not run.is_relative_to(cli.ROOT):
        why = f"must lie in the checkout ({cli.ROOT}), so that its place there is known"
        raise cli.BadConfig(f"{run}: with --host, the run folder {why}")
    return run.relative_to(cli.ROOT)


def last_line(said: bytes) -> str:
    """The last line that a command said on stderr."""
    lines = said.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "no message"


def _run(argv: list[str]) -> Done:
    return subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True)
