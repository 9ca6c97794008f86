"""The system call filter of a cell's processes (seccomp(2)). No import of this package."""

import ctypes
import errno
import json
import os
import socket
import struct

# (x86_64, aarch64): what changes or enters namespaces and mounts, looks into other processes,
# reaches what no namespace divides (keys, bpf, perf, clocks), tells what others do with the files
# that all see (inotify, fanotify), allocates memory that no limit counts (memfd, System V), or has
# been many a hole. A file of its own beside this one: nothing else of ours is seen where this runs.
_TABLE = os.path.join(os.path.dirname(__file__), "denied_calls.json")
with open(_TABLE) as _table:
    DENIED: dict[str, tuple[int | None, ...]] = {
        name: tuple(numbers) for name, numbers in json.load(_table).items()
    }
_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
_NAMESPACES = 0x7E020000  # CLONE_NEWNS, _NEWCGROUP, _NEWUTS, _NEWIPC, _NEWUSER, _NEWPID, _NEWNET
# Instructions of struct sock_filter (linux/filter.h); jumps count the lines that are skipped.
_LOAD, _EQUAL, _LARGER, _ANY_BIT, _MASK, _END = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
Line = tuple[int, int, int, int]  # instruction, skipped where true, skipped where false, number
_NUMBER, _MACHINE = (_LOAD, 0, 0, 0), (_LOAD, 0, 0, 4)  # fields of struct seccomp_data
_FIRST, _SECOND, _THIRD = ((_LOAD, 0, 0, 16 + 8 * argument) for argument in range(3))
_ALLOW, _KILL = (_END, 0, 0, 0x7FFF0000), (_END, 0, 0, 0x80000000)


def _refuse(number: int) -> Line:
    """The call fails with this errno; 0: it does nothing and says that it did."""
    return _END, 0, 0, 0x00050000 | number


# Streams alone: their buffers can be counted.
_STREAMS = [
    _SECOND,
    (_MASK, 0, 0, 0xF),
    (_EQUAL, 0, 1, socket.SOCK_STREAM),
    _ALLOW,
    _refuse(errno.ESOCKTNOSUPPORT),
]
# Calls that are granted in part: their numbers, and what decides.
_GRANTED: dict[str, tuple[tuple[int, int], list[Line]]] = {
    "clone": ((56, 220), [_FIRST, (_ANY_BIT, 0, 1, _NAMESPACES), _refuse(errno.EPERM), _ALLOW]),
    "socket": (
        (41, 198),
        [
            _FIRST,
            (_EQUAL, 6, 0, socket.AF_INET),
            (_EQUAL, 5, 0, socket.AF_INET6),
            (_EQUAL, 1, 0, socket.AF_UNIX),
            _refuse(errno.EAFNOSUPPORT),
            *_STREAMS,
        ],
    ),
    "socketpair": ((53, 199), _STREAMS),
    "fcntl": (
        (72, 25),
        [
            _SECOND,
            (_EQUAL, 2, 0, 1024),  # F_SETLEASE
            (_EQUAL, 1, 0, 1026),  # F_NOTIFY
            (_EQUAL, 0, 1, 1031),  # F_SETPIPE_SZ
            _refuse(errno.EPERM),
            _ALLOW,
        ],
    ),
    "setsockopt": (
        (54, 208),
        [
            _SECOND,
            (_EQUAL, 0, 3, socket.SOL_SOCKET),
            _THIRD,
            (_EQUAL, 0, 1, socket.SO_SNDBUF),
            _refuse(0),
            _ALLOW,
        ],
    ),
}


def program(machine: str) -> bytes:
    """The filter for a machine, as bytes of struct sock_filter. Raises KeyError.

    Of the calls that are only granted in part: no new namespaces; sockets of the internet and
    streams of AF_UNIX alone, whose buffers the guard can count (supervisor.py) as long as nobody
    enlarges them (SO_SNDBUF is heard and forgotten) or pipes (F_SETPIPE_SZ); no lease and no
    notice on a file (F_SETLEASE, F_NOTIFY).
    """
    column, architecture = _MACHINES[machine]
    lines = [_MACHINE, (_EQUAL, 1, 0, architecture), _KILL, _NUMBER]
    if machine == "x86_64":  # its other table of calls, x32
        lines += [(_LARGER, 0, 1, 0x40000000), _refuse(errno.ENOSYS)]
    for numbers in DENIED.values():
        number = numbers[column]
        if number is not None:
            lines += [(_EQUAL, 0, 1, number), _refuse(errno.EPERM)]
    # The flags of clone3 cannot be read; libc takes clone where there is none.
    lines += [(_EQUAL, 0, 1, 435), _refuse(errno.ENOSYS)]
    for numbers, rule in _GRANTED.values():
        lines += [(_EQUAL, 0, len(rule), numbers[column]), *rule]
    lines.append(_ALLOW)
    return b"".join(struct.pack("HBBI", *line) for line in lines)


def install(bytecode: bytes) -> None:
    """Filter the calls of this process and its children, for good. Raises OSError."""
    buffer = ctypes.create_string_buffer(bytecode, len(bytecode))
    head = struct.pack("HxxxxxxP", len(bytecode) // 8, ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(22, ctypes.c_ulong(2), head, 0, 0) < 0:  # PR_SET_SECCOMP, SECCOMP_MODE_FILTER
        number = ctypes.get_errno()
        raise OSError(number, f"seccomp: {os.strerror(number)}")
