"""What every script shares on the command line: help from the docstring, exit codes from exceptions, the common options."""

import contextlib
import errno
import os
import re
import signal
import stat
import sys
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click
from click.core import ParameterSource

from decksmith import __version__
from decksmith.core import masking

if TYPE_CHECKING:
    import subprocess

ROOT = Path(os.environ.get("DECKSMITH_ROOT") or Path(__file__).resolve().parents[3])
# Where .venv and the folders node_modules are: the checkout; in an image (containers/*.def), a folder of its own.
TOOLCHAIN = Path(os.environ.get("DECKSMITH_TOOLCHAIN") or ROOT)
_called = Path(sys.argv[0])
# Nobody typed the name of a module (`python3 -m ..`); one that make runs speaks for the target.
_ours = (Path(__file__).parents[1], Path(__file__).resolve().parents[3] / "make")
_is_module = _called.name in ("", "-c", "-m") or not {*_ours}.isdisjoint(_called.absolute().parents)
NAME = "decksmith" if _is_module else _called.name
_GOAL = os.environ.get("DECKSMITH_GOAL") if _is_module else None
SPEAKER = f"make {_GOAL}" if _GOAL else NAME
INTERRUPTED = "interrupted; run the same command again to go on"


class Stop(Exception):
    """End the script with one line on stderr and `status` (sysexits.h)."""

    status = 1


class BadData(Stop):
    """Input that cannot be used; the message says which file, line and id."""

    status = 65


class Missing(Stop):
    """Something this needs is not there; the message ends with the command that mends it."""

    status = 69


class TryAgain(Stop):
    """Infrastructure failed; running the same command again may succeed."""

    status = 75


class BadConfig(Stop):
    """A key is missing or a configuration file is invalid; the message names file and key."""

    status = 78


class _Command(click.Command):
    """Its reader may have seen enough (`| head`), which click would make exit 1."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except BrokenPipeError:  # `--help | head`
            _forget(1)
            ctx.exit(0)

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            _forget(1)
            return 0
        except KeyboardInterrupt:
            raise click.Abort from None  # click itself would write an empty line

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write((self.help or "").strip() + "\n")
        self.format_options(ctx, formatter)


class Script:
    """A script: called, it runs its `command` on the arguments of the process, and ends the process."""

    # Of the script that runs: what to add to a sentence on its input, and whether no record came.
    usage, empty = "", False

    def __init__(self, command: click.Command) -> None:
        self.command = command

    def __call__(self) -> NoReturn:
        found = re.search(r"(?m)^  (.+)", self.command.help or "")
        Script.usage = f"; usage: {found[1]}" if found else ""
        ends_with(lambda: self.command.main(prog_name=NAME, standalone_mode=False))


def ends_with(work: Callable[[], int | None]) -> NoReturn:
    """End the process with what `work` returns, or with the sentence and status of its exception."""
    sys.stderr = masking.Stream(sys.stderr)
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:  # lib/sitecustomize.py
        signal.signal(signal.SIGINT, signal.default_int_handler)
    status = _status(work)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # nothing is left to put away
    try:
        if not sys.stdout.closed:  # by a library
            sys.stdout.flush()  # what was printed before an error
    except BrokenPipeError:
        _forget(1)
    sys.exit(status)


def command(doc: str | None) -> Callable[[Callable[..., int | None]], Script]:
    """Make a script of a function: `--help` prints `doc`, the return value is the exit status."""
    settings = {"max_content_width": 110, "help_option_names": ["-h", "--help"]}
    version = click.version_option(
        __version__, message="decksmith %(version)s", help="Say decksmith's version."
    )

    def wrap(function: Callable[..., int | None]) -> Script:
        made = click.command(cls=_Command, help=doc, context_settings=settings)(function)
        return Script(version(made))

    return wrap


def _status(work: Callable[[], int | None]) -> int:
    try:
        status = work() or 0
        if Script.empty:
            say("no record came on stdin")
        return status
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.ClickException as error:
        say(f"{' '.join(error.format_message().split())} (see {NAME} --help)")
        return 2
    except Stop as stop:
        say(str(stop))
        return stop.status
    except (KeyboardInterrupt, click.Abort):
        if not os.isatty(2):
            say(INTERRUPTED)
        elif not stat.S_ISFIFO(os.fstat(1).st_mode):  # else the last of a pipe says it
            tell(f"\n{SPEAKER}: {INTERRUPTED}")  # behind ^C
        return 130
    except Exception as error:
        if not (sentence := full(error)):
            traceback.print_exc()
            return 1
        say(sentence)
        _forget(1)
        return TryAgain.status


def full(error: BaseException) -> str | None:
    """The sentence for an exception that says that a disk has no room, or None for any other."""
    number = getattr(error, "errno", None) if isinstance(error, OSError) else None
    if getattr(error, "sqlite_errorname", "") == "SQLITE_FULL":
        number = errno.ENOSPC
    if number not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return None
    what = "no room is left on the disk"
    if number == errno.EFBIG:
        what = "a file would be larger than this process may write (ulimit -f)"
    place = getattr(error, "filename", None)
    return f"{what}{f': {place}' if place else ''}; make room and run the same command again, what is finished is kept"


def _forget(descriptor: int) -> None:
    """Let what is still to be written there go nowhere: the interpreter's own last flush would fail, and change the exit status."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)


def ends_its_children() -> None:
    """Make SIGTERM end this script as Ctrl-C does, children first; both also where a shell's `&` or nohup has SIGINT ignored."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))


def end_group(child: "subprocess.Popen[bytes]") -> None:
    """TERM to a command that leads a process group, and to all it started; KILL to what is left when the command has ended,
    or after half a minute."""
    from subprocess import TimeoutExpired

    for number, patience in ((signal.SIGTERM, 30.0), (signal.SIGKILL, None)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, number)
        with contextlib.suppress(TimeoutExpired):
            child.wait(patience)


def git(*words: str) -> str | None:
    """What git says of this checkout; None without git or where it fails."""
    import subprocess

    command = ["git", "-c", "safe.directory=*", "-C", str(ROOT), *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError:
        return None
    return done.stdout.rstrip() if done.returncode == 0 else None


def instead(name: object, known: Iterable[str]) -> str:
    """The end of a sentence on a name that is not there: the nearest one, and all that there are."""
    import difflib

    names = [*known]
    near = difflib.get_close_matches(str(name), names, 1)
    return f"{f' (did you mean {near[0]}?)' if near else ''}; there are: {', '.join(names)}"


def say(message: str) -> None:
    """Print one line on stderr, the script's name first."""
    tell(f"{SPEAKER}: {message}")


def tell(line: str) -> None:
    """Print one line on stderr; where it cannot be written (a full disk), nobody hears it, and the work goes on."""
    try:
        print(masking.mask(line), file=sys.stderr, flush=True)
    except OSError:
        _forget(2)


run_option = click.option(
    "--run",
    type=click.Path(path_type=Path, file_okay=False),
    default=".",
    show_default=True,
    help="The run folder: records name files in it, and the journal lives there.",
)


def kept(run: Path) -> Path | None:
    """The run folder for a journal that saves only time: none where --run was not given, since nobody looks for a
    journal in the folder that he works in."""
    source = click.get_current_context().get_parameter_source("run")
    return None if source is ParameterSource.DEFAULT else run


protocol_option = click.option(
    "--protocol",
    default="offline",
    show_default=True,
    envvar="DECKSMITH_PROTOCOL",
    help="A protocol of assets/protocols, or a path to one.",
)
