"""A cell for one command that runs a stranger's work: `python3 -IS walls.py SPEC COMMAND [ARG..]`, SPEC as JSON.

    {"home": folder, "read": [path..], "walls": "full" | "shared-pids" | "plain", "parent": pid, "space": "size=1g"}

The command sees `home` (empty, in memory, its own, of that tmpfs(5) size), the paths of `read` and the system's programs,
all read-only, and a loopback of its own (with "net": true, the host's network; with "loopback": false, none that is up);
nothing else of files, processes or network. Folders are shown through an overlay where the kernel grants one: a lock that the
command takes on a file there, or a watch, is on the overlay's own inode and touches nobody outside. It is unprivileged, whoever starts it: root becomes a user that owns nothing. It dies with whoever started it,
and everything it started dies with it. supervisor.py enters by `enter`, without a command.

full needs user namespaces or root; shared-pids does without a fresh /proc (nested containers); plain keeps only what
every kernel grants: limits, no new privileges, and another user where root starts it; none keeps only the bond with
its parent. What the kernel refuses ends this program with status 125, before the command has run. The environment says
BROWSER_SANDBOX=1 to the command where it may make namespaces of its own.

Runs alone in a fresh interpreter: no import of this package, no thread, one fork.
"""

import ctypes
import errno
import fcntl
import json
import os
import platform
import resource
import signal
import socket
import struct
import sys
from collections.abc import Callable
from typing import Any, NoReturn

REFUSED = 125
_LIBRARIES = ("/lib", "/lib32", "/lib64", "/libx32")
SYSTEM = ("/usr", "/bin", "/sbin", *_LIBRARIES, "/etc/ld.so.cache", "/etc/alternatives")
DEVICES = ("null", "zero", "full", "random", "urandom")
LINKS = {"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"}  # of /dev
_NEWNS, _NEWUTS, _NEWIPC = 0x20000, 0x4000000, 0x8000000
_NEWUSER, _NEWPID, _NEWNET = 0x10000000, 0x20000000, 0x40000000
_RDONLY, _NOSUID, _NODEV, _NOEXEC, _REMOUNT = 1, 2, 4, 8, 32
_BIND, _REC, _PRIVATE = 4096, 16384, 1 << 18
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long


def check(result: int, what: str) -> None:
    """Raises OSError, naming `what`, where a call of libc failed."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def _unshare(flags: int) -> None:
    check(libc.unshare(flags), "unshare")


def _own_namespace(flags: int = 0) -> None:
    """A namespace of users in which this process keeps its number, and those of `flags`."""
    uid, gid = os.geteuid(), os.getegid()
    _unshare(_NEWUSER | flags)
    write("/proc/self/setgroups", "deny")
    write("/proc/self/uid_map", f"{uid} {uid} 1")
    write("/proc/self/gid_map", f"{gid} {gid} 1")


def _mount(
    source: str | None,
    target: str,
    kind: str | None = None,
    flags: int = 0,
    data: str | None = None,
) -> None:
    first, second, third, last = (
        None if text is None else os.fsencode(text) for text in (source, target, kind, data)
    )
    check(libc.mount(first, second, third, ctypes.c_ulong(flags), last), f"mount {target}")


def prctl(option: int, argument: int = 0) -> None:
    """prctl(2). Raises OSError."""
    check(libc.prctl(option, ctypes.c_ulong(argument), 0, 0, 0), f"prctl {option}")


def _read_only(target: str) -> None:
    """Seal a bind mount and what is mounted below it (mount_setattr, Linux 5.12); before that, the mount itself."""
    attributes = struct.pack("QQQQ", _RDONLY | _NOSUID, 0, 0, 0)
    if libc.syscall(442, -100, os.fsencode(target), 0x8000, attributes, len(attributes)) == 0:
        return
    if ctypes.get_errno() not in (errno.ENOSYS, errno.EPERM):
        check(-1, f"mount_setattr {target}")
    had = os.statvfs(target).f_flag
    kept = had & (_NOSUID | _NODEV | _NOEXEC | 1024 | 2048) | (1 << 21 if had & 4096 else 0)
    _mount(None, target, flags=_BIND | _REMOUNT | _RDONLY | _NOSUID | kept)


def write(path: str, text: str) -> None:
    """Write a file of the kernel's, or an empty one to mount on."""
    with open(path, "w") as file:
        file.write(text)


def _show(new: str, path: str, under: str | None = None) -> None:
    """Bind one path of the old root, under the same or another name, into the new one; a link stays a link."""
    target = new + (under or path)
    if os.path.lexists(target):
        return
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if os.path.islink(path):
        os.symlink(os.readlink(path), target)
        return
    if os.path.isdir(path):
        os.mkdir(target)
    else:
        write(target, "")
    if not os.path.isdir(path) or not _overlay(path, target, f"{new}/.none"):
        _mount(path, target, flags=_BIND | _REC)
        _read_only(target)


def _overlay(path: str, target: str, nothing: str) -> bool:
    """Show a folder by inodes of our own; whether the kernel grants that (to users since Linux 5.11, and two deep at most).
    It would hide what is mounted further down."""
    with open("/proc/self/mountinfo") as mounts:
        deeper = any(line.split(" ", 5)[4].startswith(f"{path}/") for line in mounts)
    if deeper or any(character in path for character in ":,\\"):  # they separate its options
        return False
    os.makedirs(nothing, exist_ok=True)
    try:
        _mount(
            "overlay", target, "overlay", _RDONLY | _NOSUID | _NODEV, f"lowerdir={path}:{nothing}"
        )
    except OSError:
        return False
    return True


def _new_root(
    home: str,
    read: list[str],
    uid: int,
    gid: int,
    fresh_proc: bool,
    space: str,
    scratch: bool,
    beside: list[str],
) -> None:
    """A root in memory that holds the system's programs and the paths of `read`, and `home` in memory again."""
    _mount(None, "/", flags=_REC | _PRIVATE)
    _mount("cell", home, "tmpfs", _NOSUID | _NODEV, "mode=0755,size=4m")
    for path in (*SYSTEM, *sorted(read)):
        below_another = any(path.startswith(f"{top}/") for top in read if top != path)
        if os.path.lexists(path) and not below_another:
            _show(home, path)
    for path in beside:  # where they lie is nobody's business
        _show(home, path, f"/packages/{os.path.basename(path)}")
    os.makedirs(f"{home}/dev/shm")
    for name in DEVICES:
        if os.path.exists(f"/dev/{name}"):  # Apptainer leaves one out
            write(f"{home}/dev/{name}", "")
            _mount(f"/dev/{name}", f"{home}/dev/{name}", flags=_BIND)
    for name, target in LINKS.items():
        os.symlink(target, f"{home}/dev/{name}")
    os.mkdir(f"{home}/proc")
    if fresh_proc:
        _mount("proc", f"{home}/proc", "proc", _NOSUID | _NODEV | _NOEXEC)
    else:
        _mount("/proc", f"{home}/proc", flags=_BIND | _REC)
    os.makedirs(f"{home}/etc", exist_ok=True)
    write(f"{home}/etc/passwd", f"cell:x:{uid}:{gid}::{home}:/bin/false\n")
    os.makedirs(home + home, exist_ok=True)
    _mount("home", home + home, "tmpfs", _NOSUID | _NODEV, f"mode=0700,{space},uid={uid},gid={gid}")
    if scratch:  # LibreOffice has its pipe there and nowhere else
        os.makedirs(f"{home}/var/tmp", exist_ok=True)
        _mount("tmp", f"{home}/var/tmp", "tmpfs", _NOSUID | _NODEV, f"size=1m,uid={uid},gid={gid}")
    os.chdir(home)
    pivot_root = {"x86_64": 155, "aarch64": 41}[platform.machine()]
    check(libc.syscall(pivot_root, b".", b"."), "pivot_root")
    check(libc.umount2(b".", 2), "umount")
    os.chdir("/")
    _mount(None, "/", flags=_REMOUNT | _BIND | _RDONLY | _NOSUID | _NODEV)


def _loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh", b"lo", 1))  # SIOCSIFFLAGS, IFF_UP


def _sheds(uid: int, gid: int) -> None:
    """Give up every privilege for good; where there is no such user (a namespace of one user), the capabilities."""
    if os.geteuid() == 0:
        for capability in range(64):
            if libc.prctl(24, ctypes.c_ulong(capability), 0, 0, 0) < 0:
                break
    if os.geteuid() == 0 and uid:
        os.setgroups([])
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    header, none = struct.pack("Ii", 0x20080522, 0), bytes(24)
    check(libc.capset(header, none), "capset")
    prctl(38, 1)


def _may_make_namespaces() -> bool:
    """Whether the browser could build its own sandbox here: tried in a child, as the browser itself would."""
    if os.geteuid() == 0:
        return False
    child = os.fork()
    if not child:
        try:
            _own_namespace(_NEWPID | _NEWNET)
            os._exit(0)
        except OSError:
            os._exit(1)
    return os.waitpid(child, 0)[1] == 0


def _limit(number: int, most: int) -> None:
    hard = resource.getrlimit(number)[1]
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(number, (most, most))


def _dies_with(alive: Callable[[], bool]) -> None:
    """SIGKILL when the parent ends; `alive` is a pipe it holds, for the case that it has ended already."""
    prctl(1, signal.SIGKILL)
    if alive():
        return
    os._exit(REFUSED)


def _enter(spec: dict[str, Any], home: str, walls: str, become: int) -> None:
    """In the process that becomes the command: the new root, no privileges, the limits."""
    uid, gid = (become, become) if become else (os.getuid(), os.getgid())
    if walls != "plain":
        if not spec.get("net") and spec.get("loopback", True):
            _loopback()
        room = spec.get("space", "size=1g"), spec.get("scratch", False), spec.get("beside", [])
        _new_root(home, spec["read"], uid, gid, walls == "full", *room)
    elif become:
        os.chown(home, uid, gid)
    try:
        _sheds(uid, gid)
    except OSError as error:
        if error.errno != errno.EINVAL or walls == "plain":
            raise
        _sheds(0, 0)
    prctl(4, 1)  # dumpable again: else its own /proc entries are root's
    os.chdir(home)
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_FSIZE, 256 << 20)
    _limit(resource.RLIMIT_NOFILE, 4096)
    if walls != "plain" or become:  # elsewhere the user's other processes would count
        _limit(resource.RLIMIT_NPROC, 1024)
    if not all(os.access(path, os.R_OK) for path in spec["read"] if os.path.exists(path)):
        raise OSError(
            errno.EACCES, "the renderer's files cannot be read by others than their owner"
        )


def enter(spec: dict[str, Any]) -> None:
    """Return inside of the cell: in a child of the caller, who waits for it and never returns. Raises OSError."""
    home, walls = spec["home"], spec["walls"]
    _dies_with(lambda: os.getppid() == spec["parent"])
    root = os.geteuid() == 0
    os.umask(0o077 if walls == "plain" else 0o022)
    try:
        write("/proc/self/oom_score_adj", "500")
    except OSError:
        pass
    # A user that owns nothing, different for every cell, as systemd's dynamic users are.
    become = 61184 + os.getpid() % 4336 if root and spec.get("become", True) else 0
    if walls == "plain":
        _enter(spec, home, walls, become)
        _dies_with(lambda: os.getppid() == spec["parent"])
    else:
        if not root:
            _own_namespace()
        network = 0 if spec.get("net") else _NEWNET
        processes = _NEWPID if walls == "full" else 0
        _unshare(_NEWNS | _NEWIPC | _NEWUTS | network | processes)
        waits, holds = os.pipe()
        child = os.fork()
        if child:
            for descriptor in (0, 1, 2, waits):
                os.close(descriptor)
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            os._exit(code if code >= 0 else 128 - code)
        os.close(holds)
        _enter(spec, home, walls, become)
        os.set_blocking(waits, False)

        def held() -> bool:
            try:
                return os.read(waits, 1) != b""
            except BlockingIOError:
                return True

        _dies_with(held)
    os.umask(0o077)


def main() -> NoReturn:
    spec, command = json.loads(sys.argv[1]), sys.argv[2:]
    if spec["walls"] == "none":
        _dies_with(lambda: os.getppid() == spec["parent"])
        os.execv(command[0], command)
    enter(spec)
    if _may_make_namespaces():
        os.environ["BROWSER_SANDBOX"] = "1"
    try:
        os.execv(command[0], command)
    except OSError as error:
        raise OSError(error.errno, f"{command[0]}: {error.strerror}") from None


if __name__ == "__main__":
    try:
        main()
    except OSError as error:
        print(f"cell: {error.strerror or error}", file=sys.stderr)
        os._exit(REFUSED)
