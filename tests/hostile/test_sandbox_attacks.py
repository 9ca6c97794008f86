"""What generated code might try against the sandbox, through a server of cells: nothing of it succeeds, each end has its name, and the
next request is answered. And each wall alone: what it stops works where that wall is not."""
# ruff: noqa: E501 (attacks stand in single lines here)

import base64
import fcntl
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import waits
from decksmith.bench.sandbox import pool as sandbox_pool
from decksmith.bench.sandbox import tools
from decksmith.bench.sandbox.cell import Limits
from decksmith.core import cli

pytestmark = pytest.mark.slow

SMALL = {
    "memory": 128 << 20,
    "processes": 16,
    "disk": 8 << 20,
    "inodes": 512,
    "output": 64 << 10,
    "open_files": 64,
}
HEAD = """
import ctypes, errno, json, os, signal, socket, struct, subprocess, sys, time
libc = ctypes.CDLL(None, use_errno=True)
def works(what):  # whether a call is granted
    try: result = what()
    except (OSError, ValueError, EOFError): return False
    return result if isinstance(result, bool) else not (isinstance(result, int) and result < 0)
def breach(*what): print('BREACH', *what, flush=True)
def sys_(*args):
    libc.syscall.restype = ctypes.c_long
    return libc.syscall(*(ctypes.c_long(a) if isinstance(a, int) else a for a in args))
"""
# name: (code, how it may end, limits). The names in capitals are put in: what an attacker could know of this host.
EXHAUST = {
    "fork-bomb": ("while True:\n  try: os.fork()\n  except OSError: pass", "processes", {}),
    "fork-bomb-that-ignores-signals": (
        "for s in range(1, 64):\n  try: signal.signal(s, signal.SIG_IGN)\n  except (OSError, ValueError): pass\nwhile True:\n  try:\n    if os.fork() == 0: os.setsid()\n  except OSError: time.sleep(0.01)",
        "processes",
        {},
    ),
    "zombies": ("for _ in range(500):\n  if os.fork() == 0: os._exit(0)", "processes", {}),
    "threads": (
        "import threading\nfor _ in range(500): threading.Thread(target=time.sleep, args=(60,)).start()",
        "processes",
        {},
    ),
    "a-chain-of-forks": ("while True:\n  if os.fork(): os._exit(0)", "ok", {}),
    "memory-bomb": ("x = []\nwhile True: x.append(bytearray(10 << 20))", "memory", {}),
    "memory-by-many-processes": (
        "for _ in range(6):\n  if os.fork() == 0:\n    x = b'x' * (60 << 20); time.sleep(60)\ntime.sleep(60)",
        "memory",
        {},
    ),
    "memory-behind-a-storm-of-orphans": (
        "for _ in range(6):\n  if os.fork() == 0:\n    x = b'x' * (60 << 20); time.sleep(60)\nwhile True:\n  if os.fork() == 0:\n    os.fork(); os._exit(0)\n  os.wait()",
        "memory",
        {},
    ),
    "memory-that-is-shared": ("import mmap\nx = mmap.mmap(-1, 300 << 20)", "memory", {}),
    "memory-of-a-file-in-memory": (
        "f = os.memfd_create('x'); os.write(f, b'x'); breach()",
        "error",
        {},
    ),
    "memory-of-system-v": ("if works(lambda: libc.shmget(0, 1 << 20, 0o1600)): breach()", "ok", {}),
    "memory-in-buffers-of-tcp": (
        "held, kept = 0, []\ntry:\n  for n in range(20):\n    s = socket.create_server(('127.0.0.1', 0)); a = socket.create_connection(s.getsockname()); b = s.accept()[0]; s.close(); kept += [a, b]\n    for c in (a, b):\n      c.setsockopt(1, 7, 1 << 30); c.setblocking(False)\n      try:\n        while True: held += c.send(b'x' * 65536)\n      except BlockingIOError: pass\nexcept OSError: pass\nif held: breach(held >> 20, 'MiB')",
        "ok",
        {},
    ),
    "memory-in-buffers-of-udp": (
        "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nif works(lambda: s.bind(('127.0.0.1', 0)) or s.sendto(b'x' * 60000, s.getsockname()) > 0): breach()",
        "ok",
        {},
    ),
    "memory-in-larger-buffers-of-sockets": (
        "held, kept = 0, []\nfor n in range(25):\n  for c in kept.append(socket.socketpair()) or kept[-1]:\n    c.setsockopt(1, 7, 1 << 30); c.setblocking(False)\n    try:\n      while True: held += c.send(b'x' * 65536)\n    except BlockingIOError: pass\nif held > 64 << 20: breach(held >> 20, 'MiB')",
        "ok",
        {},
    ),
    "memory-in-buffers-of-many-sockets": (
        "for n in range(14):\n  if os.fork() == 0: break\nkept = [socket.socketpair() for n in range(26)]\nfor a, b in kept:\n  for c in (a, b):\n    c.setblocking(False)\n    try:\n      while True: c.send(b'x' * 65536)\n    except BlockingIOError: pass\ntime.sleep(60)",
        "memory",
        {"wall": 4},
    ),
    "memory-in-sockets-on-their-way": (
        "import array\na, b = socket.socketpair()\nfor n in range(124):\n  c, d = socket.socketpair()\n  for e in (c, d):\n    e.setblocking(False)\n    try:\n      while True: e.send(b'x' * 65536)\n    except BlockingIOError: pass\n  try: socket.send_fds(a, [b'x'], [c.fileno(), d.fileno()])\n  except OSError: break\n  c.close(); d.close()\ntime.sleep(60)",
        "memory",
        {"wall": 4, "memory": 60 << 20, "open_files": 256},
    ),
    "memory-in-queues-of-datagrams": (
        "for kind in (socket.SOCK_DGRAM, socket.SOCK_SEQPACKET):\n  if works(lambda: bool(socket.socket(socket.AF_UNIX, kind))) or works(lambda: bool(socket.socketpair(socket.AF_UNIX, kind))): breach(kind)",
        "ok",
        {},
    ),
    "memory-in-larger-pipes": (
        "import fcntl\nr, w = os.pipe()\nif works(lambda: fcntl.fcntl(w, 1031, 1 << 20)): breach()",
        "ok",
        {},
    ),
    "memory-in-many-pipes": (
        "for n in range(14):\n  if os.fork() == 0: break\nkept = [os.pipe() for n in range(120)]\nfor r, w in kept:\n  os.set_blocking(w, False)\n  try:\n    while True: os.write(w, b'x' * 4096)\n  except BlockingIOError: pass\ntime.sleep(60)",
        "memory",
        {"wall": 4, "memory": 90 << 20, "open_files": 256},
    ),
    "disk": (
        "f = open('x', 'wb'); g = open('y', 'wb')\nwhile True: f.write(b'x' * (1 << 20)); g.write(b'x' * (1 << 20))",
        "files",
        {},
    ),
    "disk-and-deny-it": (
        "for n in range(100):\n  try: open(f'f{n}', 'wb').write(b'x' * (1 << 20))\n  except OSError: pass\ntime.sleep(60)",
        "files",
        {},
    ),
    "inodes": ("for n in range(100000): open(f'f{n}', 'x').close()", "files", {}),
    "directories": ("while True: os.mkdir('d'); os.chdir('d')", "files", {}),
    "a-large-sparse-file": ("open('x', 'wb').truncate(1 << 40)", "files", {}),
    "open-files": ("x = [open('/dev/null') for _ in range(10000)]", "files", {}),
    "output": ("while True: print('x' * 1000)", "output", {}),
    "output-without-a-newline": ("while True: sys.stdout.write('x')", "output", {}),
    "output-on-stderr": ("while True: os.write(2, b'x' * 65536)", "output", {}),
    "output-from-a-child-that-stays": (
        "if os.fork() == 0:\n  os.setsid()\n  while True: os.write(1, b'x' * 4096)\ntime.sleep(60)",
        "output",
        {},
    ),
    "an-endless-loop": ("while True: pass", "timeout", {"wall": 1}),
    "an-endless-loop-of-c": (
        "import re\nre.match(r'(a+)+$', 'a' * 60 + 'b')",
        "timeout",
        {"wall": 1},
    ),
    "cpu": ("while True: pass", "timeout", {"cpu": 1}),
    "sleep": ("time.sleep(1000)", "timeout", {"wall": 1}),
    "a-stop": ("os.kill(os.getpid(), signal.SIGSTOP)", "timeout", {"wall": 1}),
    "sleep-that-ignores-signals": (
        "for s in range(1, 64):\n  try: signal.signal(s, signal.SIG_IGN)\n  except (OSError, ValueError): pass\nwhile True: time.sleep(1)",
        "timeout",
        {"wall": 1},
    ),
    "a-thread-that-stays": (
        "import threading\nthreading.Thread(target=time.sleep, args=(60,)).start()",
        "timeout",
        {"wall": 1},
    ),
    "deep-recursion": (
        "sys.setrecursionlimit(10 ** 9)\ndef f(x): return f([x])\nf(0)",
        "memory killed error",
        {"memory": 96 << 20},
    ),
    "deep-recursion-of-c": (
        "x = []\nfor _ in range(10 ** 6): x = [x]\nsys.setrecursionlimit(10 ** 9)\nrepr(x)",
        "memory killed",
        {},
    ),
    "a-crash": ("ctypes.string_at(0)", "killed", {}),
    "limits-raised": (
        "import resource as r\nfor n in ('AS', 'CPU', 'NPROC', 'NOFILE', 'FSIZE'):\n  n = getattr(r, 'RLIMIT_' + n)\n  if works(lambda: r.setrlimit(n, (r.RLIM_INFINITY,) * 2)): breach(n)\nif works(lambda: os.setpriority(0, 0, -20)): breach('nice')",
        "ok",
        {},
    ),
}
LOOK = {
    "the-environment": (
        "if os.environ: breach(dict(os.environ))\nif open('/proc/self/environ').read(): breach(open('/proc/self/environ').read())\nfor p in os.listdir('/proc'):\n  if p.isdigit() and works(lambda: b'CANARY' not in open(f'/proc/{p}/environ', 'rb').read()) is False:\n    try: b'CANARY' in open(f'/proc/{p}/environ', 'rb').read() and breach(p)\n    except OSError: pass",
        "ok",
    ),
    "other-processes": (
        "seen = [int(p) for p in os.listdir('/proc') if p.isdigit()]\nif len(seen) > 2: breach(seen)\nfor p in (PID, SERVER):\n  for f in ('cmdline', 'environ', 'maps', 'status'):\n    try: b'decksmith' in open(f'/proc/{p}/{f}', 'rb').read() and breach(p, f)\n    except OSError: pass",
        "ok",
    ),
    "the-guard-s-memory": (
        "for f in ('mem', 'maps', 'environ', 'auxv', 'syscall', 'stack'):\n  if works(lambda: len(open(f'/proc/1/{f}', 'rb').read(1)) > 0): breach(f)\nfor f in ('fd', 'map_files'):\n  if works(lambda: os.listdir(f'/proc/1/{f}') and True): breach(f)\nfor f in ('root', 'cwd', 'exe'):\n  if works(lambda: bool(os.readlink(f'/proc/1/{f}'))): breach(f)",
        "ok",
    ),
    "memory-by-process-vm-readv": (
        "b = ctypes.create_string_buffer(8); v = (ctypes.c_void_p * 2)(ctypes.addressof(b), 8)\nfor p in (1, os.getppid(), os.getpid(), PID):\n  if works(lambda: sys_(310 if os.uname().machine == 'x86_64' else 270, p, v, 1, v, 1, 0)): breach(p)",
        "ok",
    ),
    "tcp-to-loopback": (
        "for h in ('127.0.0.1', 'localhost', '0.0.0.0', '::1', HOST):\n  if works(lambda: bool(socket.create_connection((h, PORT), 3))): breach(h)",
        "ok",
    ),
    "udp-to-loopback": (
        "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nfor h in ('127.0.0.1', HOST):\n  try: s.sendto(b'x', (h, PORT))\n  except OSError: pass",
        "ok",
    ),
    "the-server-itself": (
        "import urllib.request\ntry: urllib.request.urlopen('URL/health', timeout=3); breach()\nexcept OSError: pass",
        "ok",
    ),
    "the-network": (
        "for h in ('192.0.2.1', '169.254.169.254', '10.0.0.1', '8.8.8.8', '2001:db8::1'):\n  try: socket.create_connection((h, 80), 2)\n  except OSError as e:\n    if e.errno not in (errno.ENETUNREACH, errno.EAFNOSUPPORT): breach(h, e)\n  else: breach(h)\nif [n for _, n in socket.if_nameindex()] != ['lo']: breach(socket.if_nameindex())",
        "ok error",
    ),
    "dns": (
        "try: print(socket.getaddrinfo('example.com', 80)); breach()\nexcept OSError: pass",
        "ok",
    ),
    "an-abstract-socket": (
        "s = socket.socket(socket.AF_UNIX)\nif works(lambda: s.connect('\\0ABSTRACT') is None): breach()",
        "ok",
    ),
    "a-socket-in-a-folder": (
        "s = socket.socket(socket.AF_UNIX)\nif works(lambda: s.connect('SOCKET') is None): breach()",
        "ok",
    ),
    "other-kinds-of-sockets": (
        "for f, k in ((40, 1), (17, 3), (16, 3), (38, 5), (2, 3), (9, 5), (44, 3)):\n  if works(lambda: bool(socket.socket(f, k))): breach(f, k)",
        "ok",
    ),
    "files-of-the-host": (
        "for p in ('SECRET', 'TRIPWIRE', 'CHECKOUT', 'CHECKOUT/lib/decksmith/bench/sandbox/supervisor.py', 'CHECKOUT/.env', 'ADDRESS', '/etc/shadow', '/etc/hostname', '/home', '/root/.ssh', '/var', '/run', '/sys', '/proc/kcore', '/proc/1/root/etc'):\n  if works(lambda: open(p).read(1) is not None) or works(lambda: os.listdir(p) is not None): breach(p)",
        "ok",
    ),
    "paths-out": (
        "for way in ('..', '../..', '/proc/self/root/..', '/proc/self/cwd/../..', '/dev/fd/../../..', '/proc/1/cwd', '/proc/thread-self/root'):\n  if works(lambda: os.stat(way + 'SECRET') and True): breach(way)\nfor n in range(3, 200):\n  if works(lambda: bool(os.readlink(f'/proc/self/fd/{n}').startswith('/') and os.listdir(f'/proc/self/fd/{n}') is not None)): breach(n)",
        "ok",
    ),
    "the-token": (
        "own = 'SALT' + 'ED'\nfor top in ('/tmp', '/dev', '/etc', '/proc/self', '/proc/1'):\n  for d, _, names in os.walk(top):\n    for n in names:\n      p = os.path.join(d, n)\n      if n in ('mem', 'cmdline') or p.startswith('/dev/') or 'map_files' in p: continue\n      try: f = os.open(p, os.O_RDONLY | os.O_NONBLOCK); data = os.read(f, 1 << 16); os.close(f)\n      except OSError: continue\n      if own.encode() in data: breach(p)",
        "ok",
    ),
    "what-others-do-with-shared-files": (
        "import fcntl\nif works(lambda: libc.inotify_init1(0)): breach('inotify')\nif os.uname().machine == 'x86_64' and works(lambda: sys_(253)): breach('inotify_init')\nfor p in ('/usr/bin', os.path.dirname(os.__file__)):\n  if works(lambda: fcntl.fcntl(os.open(p, os.O_RDONLY), 1026, 0x8000003f)): breach('F_NOTIFY', p)",
        "ok",
    ),
    "locks-on-shared-files": (
        "import fcntl\nif works(lambda: fcntl.flock(os.open('LOCKED', os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB) is None) is False: breach('the host holds it, and we see that')\nif works(lambda: fcntl.fcntl(os.open('LOCKED', os.O_RDONLY), 1024, 0)): breach('lease')\nfcntl.flock(open('own', 'w'), fcntl.LOCK_EX | fcntl.LOCK_NB)",
        "ok",
    ),
    "core-dumps": (
        "import resource\nprint(resource.getrlimit(resource.RLIMIT_CORE))\nif works(lambda: open('/proc/sys/kernel/core_pattern', 'w').write('|/bin/sh') > 0): breach()",
        "ok",
    ),
}
CHANGE = {
    "signals-to-the-parent": (
        "for p in (1, os.getppid(), PID, SERVER):\n  for s in (9, 15, 19, 2, 6, 17):\n    try: os.kill(p, s)\n    except OSError: pass\ntime.sleep(0.2)",
        "ok",
    ),
    "signals-to-everybody": (
        "for _ in range(2):\n  if os.fork() == 0: time.sleep(60)\nos.kill(-1, 15)\nos.kill(-1, 9)\ntime.sleep(0.1)",
        "ok",
    ),
    "a-storm-of-signals": ("for _ in range(20000): os.kill(1, 17)", "ok"),
    "ptrace": (
        "n = 101 if os.uname().machine == 'x86_64' else 117\nchild = os.fork()\nif not child: time.sleep(5); os._exit(0)\nfor p in (1, os.getppid(), PID, child):\n  for how in (16, 0x4206):\n    if works(lambda: sys_(n, how, p, 0, 0)): breach(how, p)\nif works(lambda: sys_(n, 0, 0, 0, 0)): breach('traceme')",
        "ok",
    ),
    "setuid": (
        "for n in (0, 1000, 65534):\n  for call in (os.setuid, os.setgid, os.seteuid, os.setegid):\n    if works(lambda: call(n) is None): breach(call, n)\n  if works(lambda: os.setgroups([n]) is None): breach('groups')\nif 'NoNewPrivs:\\t1' not in open('/proc/self/status').read(): breach('new privileges')",
        "ok",
    ),
    "setuid-programs": (
        "for p in ('/bin/su', '/bin/mount', '/usr/bin/newuidmap', '/usr/bin/passwd', '/usr/bin/sudo'):\n  if os.path.exists(p):\n    x = os.fork()\n    if not x:\n      try: os.execv('/usr/bin/env', ['env', 'sh', '-c', 'id -u'])\n      finally: os._exit(1)\n    os.waitpid(x, 0)\nr = subprocess.run(['/bin/su', '-c', 'echo BREACH'], capture_output=True, stdin=-3) if os.path.exists('/bin/su') else None\nr and print(r.stdout.decode())\nif 0 in os.getresuid(): breach(os.getresuid())",
        "ok",
    ),
    "mount": (
        "os.mkdir('m')\nfor s, k, f in ((b'none', b'tmpfs', 0), (b'proc', b'proc', 0), (b'/', None, 4096), (None, None, 32 | 4096)):\n  if works(lambda: libc.mount(s, b'/tmp/m' if f < 32 or f == 4096 else b'/', k, f, None)): breach(s)\nif works(lambda: libc.umount2(b'/proc', 2)): breach('umount')\nfor n in (428, 430, 442):\n  if works(lambda: sys_(n, -100, b'/', 1, 0, 0)): breach(n)",
        "ok",
    ),
    "unshare": (
        "for flag in (0x10000000, 0x20000, 0x40000000, 0x10020000):\n  if works(lambda: libc.unshare(flag)): breach(hex(flag))\nif works(lambda: libc.setns(os.open('/proc/self/ns/net', 0), 0)): breach('setns')\nr = subprocess.run(['/usr/bin/unshare', '-r', 'echo', 'BREACH'], capture_output=True)\nprint(r.stdout.decode())",
        "ok",
    ),
    "clone-into-namespaces": (
        "n = 56 if os.uname().machine == 'x86_64' else 220\np = sys_(n, 0x10000000 | 17, 0, 0, 0, 0)\nif p == 0: os.write(1, b'BREACH'); os._exit(0)\na = struct.pack('11Q', 0x10000000, 0, 0, 0, 17, 0, 0, 0, 0, 0, 0)\np = sys_(435, a, len(a))\nif p == 0: os.write(1, b'BREACH'); os._exit(0)",
        "ok",
    ),
    "chroot": (
        "os.mkdir('c')\nif works(lambda: os.chroot('c') is None): breach()\nn = 155 if os.uname().machine == 'x86_64' else 41\nif works(lambda: sys_(n, b'.', b'.')): breach('pivot_root')",
        "ok",
    ),
    "devices": (
        "import stat\nfor p in ('/dev/mem', '/dev/kmsg', '/dev/kvm', '/dev/vda', '/dev/sda', '/dev/tty', '/dev/fuse', '/dev/ptmx', '/dev/shm/x'):\n  if works(lambda: bool(open(p, 'w+b'))): breach(p)\nfor k in (stat.S_IFBLK, stat.S_IFCHR):\n  if works(lambda: os.mknod('n', k | 0o600, os.makedev(254, 0)) is None): breach('mknod')\nif sorted(os.listdir('/dev')) != sorted({'null', 'zero', 'full', 'random', 'urandom', 'fd', 'stdin', 'stdout', 'stderr', 'shm'} & set(os.listdir('/dev'))): breach(os.listdir('/dev'))",
        "ok",
    ),
    "the-keyring": (
        "a, k = (248, 250) if os.uname().machine == 'x86_64' else (217, 219)\nif works(lambda: sys_(a, b'user', b'decksmith', b'x', 1, -3)): breach('add')\nfor which in (-1, -2, -3, -4, -5):\n  if works(lambda: sys_(k, 0, which, 0)): breach(which)",
        "ok",
    ),
    "kernel-doors": (
        "x = os.uname().machine == 'x86_64'\nb = ctypes.create_string_buffer(128)\nfor name, n in (('bpf', 321 if x else 280), ('perf', 298 if x else 241), ('userfaultfd', 323 if x else 282), ('io_uring', 425), ('kcmp', 312 if x else 272), ('handle', 303 if x else 264)):\n  if works(lambda: sys_(n, b, 8, 0, 0, 0)) or ctypes.get_errno() != errno.EPERM: breach(name, ctypes.get_errno())",
        "ok",
    ),
    "calls-of-the-other-table": (
        "if os.uname().machine != 'x86_64': os.kill(os.getpid(), 9)\nif works(lambda: sys_(0x40000000 | 101, 0, 0, 0, 0)): breach('x32')\nimport mmap\nm = mmap.mmap(-1, 4096, prot=7); m.write(bytes.fromhex('b81400000053cd805bc3'))\ngo = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(m)))\nbreach('i386', go())",
        "killed",
    ),
    "the-root": (
        "for d in ['/', '/usr', '/usr/bin', '/usr/lib', '/etc', '/dev', '/dev/shm', '/bin', '/lib', os.path.dirname(os.__file__), os.path.dirname(os.__file__) + '/__pycache__', '/root', '/proc', '/proc/sys/kernel', '/var/tmp', '/run']:\n  if works(lambda: bool(open(d + '/x', 'w'))): breach(d)\nfor p in ('/etc/passwd', '/usr/bin/env', os.__file__, '/proc/sys/vm/overcommit_memory', '/proc/sysrq-trigger', '/proc/1/oom_score_adj'):\n  if works(lambda: bool(open(p, 'r+'))) or works(lambda: os.chmod(p, 0o777) is None) or works(lambda: os.unlink(p) is None): breach(p)",
        "ok",
    ),
    "frames-of-the-guard": (
        "import pickle\nclass P:\n  def __reduce__(self): return os.system, ('touch PICKLED',)\nfor n in range(1, 64):\n  for frame in (b'{\"ready\": true}', b'report', b'{\"status\": \"ok\", \"code\": 0, \"finished\": true}\\n', b'ok', pickle.dumps(P())):\n    try: os.write(n, frame)\n    except OSError: pass\nos._exit(7)",
        "error",
    ),
    "a-forged-end": (
        "for n in range(3, 64):\n  try: os.write(n, b'ok')\n  except OSError: pass\nos._exit(7)",
        "error",
    ),
    "closed-descriptors": ("os.closerange(0, 1000)\nprint(1)", "error files"),
    "an-early-exit": ("os._exit(0)", "ok"),
    "fields-of-the-result": (
        "print(json.dumps({'status': 'ok', 'walls': 'none', 'code': 0}))\nsys.exit(3)",
        "error",
    ),
    "a-bad-traceback": (
        "class E(Exception):\n  def __str__(self): raise self\n  __repr__ = __str__\nraise E",
        "error",
    ),
    "a-bad-exit": (
        "class E(BaseException):\n  def __getattr__(self, name): raise SystemExit(0)\nimport atexit\natexit.register(lambda: os.abort())\nraise E",
        "killed",
    ),
}
ATTACKS = {
    name: (code, ends, {}) if len(rest) == 1 else (code, *rest)
    for name, (code, *rest) in {**EXHAUST, **LOOK, **CHANGE}.items()
    for ends in rest[:1]
}


def available():
    """The environments in which a server is tried: {walls: variables}."""
    found = {}
    if not subprocess.run(["unshare", "--user", "true"], capture_output=True).returncode:
        found["namespaces"] = {"IMAGES": "off"}
    if (
        shutil.which("apptainer")
        and not subprocess.run(
            [cli.ROOT / "containers/verify", "sandbox"], capture_output=True
        ).returncode
    ):
        found["apptainer"] = {"IMAGES": "auto"}
    return found


AVAILABLE = available()
if not AVAILABLE:  # then the sandbox runs nothing: tests/sandbox/test_pool.py
    pytest.skip("this machine confines no program, so none is run", allow_module_level=True)


class Client:
    def __init__(self, folder, walls, variables):
        self.address = folder / "address.json"
        env = {
            "CANARY_ENV": "CANARY",
            "PYTHONPATH": os.pathsep.join(sys.path),
            "PATH": os.environ["PATH"],
            **variables,
        }
        self.said = open(folder / "said", "w+")
        command = [sys.executable, Path(__file__).with_name("cell_server.py"), self.address]
        self.process = subprocess.Popen(command, env=env, stderr=self.said)
        waits.until(self.address.exists, self.process)
        facts = json.loads(self.address.read_text())
        assert facts["walls"] == walls
        self.url = facts["url"]

    def ask(self, path, value):
        request = urllib.request.Request(self.url + path, json.dumps(value).encode())
        try:
            with urllib.request.urlopen(request, timeout=waits.HANG) as reply:
                return reply.status, json.load(reply)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def run(self, code, **more):
        status, value = self.ask("/run", {"code": code, **more})
        assert status == 200, value
        return value

    def answers(self):
        """The next request is answered, and by a fresh cell."""
        said = self.run(
            "import os\nprint(6 * 7, os.listdir('.'), len([p for p in os.listdir('/proc') if p.isdigit()]))"
        )
        assert (said["status"], said["stdout"]) == ("ok", "42 [] 2\n"), said

    def close(self):
        self.process.terminate()
        self.process.wait(waits.HANG)
        self.said.close()


@pytest.fixture(scope="module", params=AVAILABLE)
def client(request, tmp_path_factory):
    server = Client(tmp_path_factory.mktemp(request.param), request.param, AVAILABLE[request.param])
    yield server
    server.close()


@pytest.fixture
def host(canary, tripwire, tmp_path):
    """What of this host an attacker could know, as {name: text}; and what must stay as it is."""
    secret = tmp_path / "secret"
    secret.write_text("CANARY")
    listeners = []
    for name in (f"\0decksmith-{os.getpid()}", str(tmp_path / "socket")):
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(name)
        listener.listen()
        listener.settimeout(0)
        listeners.append(listener)
    wire = tripwire(tmp_path / "wire")
    locked = _locked()
    yield {
        "LOCKED": os.path.realpath(locked.name),
        "SECRET": str(secret),
        "TRIPWIRE": wire.path,
        "CHECKOUT": str(cli.ROOT),
        "SOCKET": str(tmp_path / "socket"),
        "ABSTRACT": f"decksmith-{os.getpid()}",
        "PORT": str(canary.port),
        "HOST": repr(_address()),
        "PID": str(os.getpid()),
        "PICKLED": str(tmp_path / "pickled"),
    }
    locked.close()
    for listener in listeners:
        with pytest.raises(BlockingIOError):
            listener.accept()
        listener.close()
    assert (
        secret.read_text() == "CANARY"
        and not wire.opened
        and canary.hits == []
        and not (tmp_path / "pickled").exists()
    )


def _locked():
    """A file that cells see, locked: one that no other run of these tests has."""
    for path in sorted(Path(os.__file__).parent.glob("*.py")):
        file = open(path)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return file
        except BlockingIOError:
            file.close()
    raise AssertionError("every file of the library is locked")


def _address():
    """An address of this host that is not loopback, where it has one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        try:
            any_socket.connect(("192.0.2.1", 9))
            return any_socket.getsockname()[0]
        except OSError:
            return "127.0.0.1"


def armed(code, host):
    for name, text in host.items():
        code = code.replace(name, text)
    return HEAD + code


def test_every_kind_of_walls_is_attacked_here():
    if missing := [walls for walls in ("apptainer", "namespaces") if walls not in AVAILABLE]:
        pytest.skip(f"this host has no {' and no '.join(missing)} (is the image built?)")


# Other ways to what an attack of `make test` is after, and what takes a second of the CPU.
LONG = """fork-bomb-that-ignores-signals a-chain-of-forks memory-behind-a-storm-of-orphans memory-of-a-file-in-memory
memory-in-buffers-of-udp memory-in-larger-buffers-of-sockets memory-in-buffers-of-many-sockets memory-in-queues-of-datagrams
memory-in-many-pipes disk-and-deny-it directories output-without-a-newline output-on-stderr an-endless-loop-of-c
sleep-that-ignores-signals deep-recursion-of-c a-storm-of-signals""".split()
assert {*LONG} < {*ATTACKS}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.long] * (n in LONG)) for n in ATTACKS]
)
def test_an_attack_does_not_succeed_has_its_name_and_the_server_goes_on(client, host, name):
    code, ends, limits = ATTACKS[name]
    known = {
        **host,
        "URL": client.url,
        "SERVER": str(client.process.pid),
        "ADDRESS": str(client.address),
    }
    said = client.run(armed(code, known), limits={**SMALL, **limits})
    assert said["status"] in ends.split(), said
    assert "BREACH" not in said["stdout"] and "BREACH" not in said["stderr"], said
    if name == "an-early-exit":
        assert not said["finished"]
    client.answers()
    assert client.process.poll() is None


SWAP = """
import threading
open('real', 'w').write('mine')
def swap():
    while True:
        for way in (lambda: os.symlink('SECRET', 'n'), lambda: os.link('real', 'n')):
            try: way(); os.rename('n', 'out')
            except OSError: pass
if os.fork() == 0: swap()
time.sleep(0.3)
"""
HANDED = {
    "a-link": ("os.symlink('/etc/passwd', 'out')", "symbolic link"),
    "a-link-to-the-host": ("os.symlink('SECRET', 'out')", "symbolic link"),
    "a-folder": ("os.mkdir('out')", "directory"),
    "a-pipe": ("os.mkfifo('out')", "regular file"),
    "a-device": ("os.symlink('/dev/zero', 'out')", "symbolic link"),
    "a-folder-that-is-a-link": ("os.symlink('/proc/self', 'd')", "symbolic link"),
    "too-large": ("open('out', 'wb').truncate(60 << 20)", "more than 8192 kB"),
    "nothing": ("pass", "No such file"),
}


@pytest.mark.parametrize("name", HANDED)
def test_only_a_regular_file_of_the_run_is_handed_back(client, host, name):
    code, why = HANDED[name]
    wanted = "d/environ" if "folder-that" in name else "out"
    said = client.run(armed(code, host), take=[wanted])
    assert said["files"] == {} and why in said["odd"][wanted], said
    client.answers()


def test_a_race_over_a_file_that_is_handed_back_is_over_before_it_is_read(client, host):
    for _ in range(3):
        said = client.run(armed(SWAP, host), take=["out"])
        assert said["left"] == 1
        assert (
            all(base64.b64decode(data) == b"mine" for data in said["files"].values())
            and len(said["files"]) + len(said["odd"]) == 1
        ), said


def test_names_of_files_do_not_leave_the_folder(client):
    for name in ("../x", "/tmp/x", "a/../../x", "", ".", "a//b", "./a", "a\0b"):
        for asked in ({"files": {name: "x"}}, {"take": [name]}):
            status, value = client.ask("/run", {"code": "", **asked})
            assert status == 400 and "relative path" in value["error"]


def _running(word):
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            found += [pid] * (
                word.encode() in open(f"/proc/{pid}/cmdline", "rb").read().split(b"\0")
            )
        except OSError:
            pass
    return found


def test_what_is_left_running_ends_with_the_run_and_is_counted(client):
    word = f"{4000 + os.getpid() / 1e6:.6f}"
    said = client.run(
        HEAD
        + f"for _ in range(3):\n  if os.fork() == 0:\n    os.setsid()\n    if os.fork(): os._exit(0)\n    os.execv('/bin/sleep', ['sleep', '{word}'])\nos.wait(); os.wait(); os.wait(); time.sleep(0.2)"
    )
    assert (said["status"], said["left"]) == ("ok", 3)
    assert _running(word) == []


def test_a_run_cannot_poison_the_next(client):
    poison = """
import builtins, json, gc, types
builtins.print = builtins.len = builtins.compile = lambda *a, **k: 'BREACH'
json.dumps = json.loads = lambda *a, **k: {'status': 'ok', 'BREACH': 1}
for name in ('json', 'os', 'ast', 'sitecustomize', 'usercustomize', 'bisect'):
    open(name + '.py', 'w').write('print("BREACH")')
for m in list(sys.modules.values()):
    for k, v in list(getattr(m, '__dict__', {}).items()):
        if isinstance(v, types.FunctionType) and k.startswith('_') and m.__name__ in ('__main__', 'decksmith_cell', 'decksmith_desk'):
            setattr(m, k, lambda *a, **k: os._exit(0))
os.chmod('.', 0o777); os.umask(0)
"""
    for _ in range(4):
        client.run(HEAD + poison)
    for _ in range(4):
        said = client.run(
            "import bisect, json, os\nprint(len([1]), os.listdir('.'), json.dumps(1), os.umask(0))"
        )
        assert said["stdout"] == "1 [] 1 63\n", said


def test_the_runner_imports_nothing_from_the_folder_of_the_code(client):
    files = {
        f"{name}.py": "import os; os.write(1, b'BREACH')"
        for name in (
            "json",
            "traceback",
            "linecache",
            "threading",
            "ast",
            "encodings/x",
            "codecs",
            "tokenize",
            "unicodedata",
        )
    }
    said = client.run("raise ValueError('é')", files=files)
    assert said["status"] == "error" and "BREACH" not in said["stdout"], said
    writes = "\n".join(
        f"open({name!r}, 'w').write('import os; os.write(1, b\"BREACH\")')"
        for name in files
        if "/" not in name
    )
    cells = [(f"{writes}\nNone", "(it printed nothing)")]
    for code in ("1/0", "2"):
        told = tools.use("", "python", {"code": code}, cells=cells)
        assert "BREACH" not in told, told
        cells.append((code, told))
    assert told == "2\n"


PROGRAMS = {
    "an-endless-loop-that-heeds": ("while True: pass", "error: timed out after 1 s;"),
    "an-endless-loop-that-does-not": (
        "import signal; signal.signal(14, signal.SIG_IGN)\nwhile True: pass",
        "error: timed out after 1 s;",
    ),
    "an-exit": ("import os; os._exit(0)", "error: killed: its process ended, exit status 0;"),
    "a-crash": ("import ctypes; ctypes.string_at(0)", "error: killed: ended by signal 11;"),
    "a-memory-bomb": ("x = []\nwhile True: x.append(bytearray(1 << 30))", "error: memory: "),
    "a-fork-bomb": (
        "import os\nwhile True:\n  try: os.fork()\n  except OSError: pass",
        "error: processes: ",
    ),
    "a-full-disk": (
        "import time\nopen('x', 'wb').write(b'x' * (4 << 20)); f = open('y', 'wb')\ntry:\n  while True: f.write(b'x' * 4096)\nexcept OSError: time.sleep(60)",
        "error: files: ",
    ),
    "too-much-output": ("while True: print('x' * 1000)", "error: output: "),
    "words-on-every-descriptor": (
        'import os\nfor n in range(3, 64):\n  for number in range(9):\n    try: os.write(n, b\'{"number": %d, "status": "ok", "code": 0}\' % number)\n    except OSError: pass',
        ".",
    ),
    "noise-on-every-descriptor": (
        "import os\nfor n in range(3, 64):\n  for data in (b'[' * 60000, b'\\x80\\x04', b'{}', b'null', b'[1]'):\n    try: os.write(n, data)\n    except OSError: pass",
        ".",
    ),
    "closed-descriptors": ("import os; os.closerange(0, 1000)", "error: killed: "),
    "a-fork-that-also-ends": ("import os\nx = os.fork()", "[(]it printed nothing[)]$"),
    "patched-json": ("import json; json.dumps = lambda *a, **k: '['", "[(]it printed nothing[)]$"),
    "a-missing-interpreter": ("import sys; sys.modules.clear()", "."),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_of_a_conversation_ends_as_it_should_and_the_next_goes_on_or_says_why_not(name):
    code, ends = PROGRAMS[name]
    before = ("x = 1", "(it printed nothing)")
    told = tools.use("", "python", {"code": code}, 1.0, [before])
    assert re.match(ends, told), told
    after = tools.use("", "python", {"code": "1 + 1"}, 5.0, [before, (code, told)])
    harmed = "error: the calls before this one could not be run again|error: RuntimeError: lost "
    assert after == "2\n" or (ends == "." and re.match(harmed, after)), after
    assert tools.use("", "python", {"code": "x + 1"}, 5.0, [before]) == "2\n"


def test_many_who_attack_at_once_do_not_keep_the_others_from_their_answers(client):
    bad = [ATTACKS[name] for name in ("fork-bomb", "memory-bomb", "output", "sleep")]
    ends = []
    threads = [
        threading.Thread(
            target=lambda one=one: ends.append(
                client.run(HEAD + one[0], limits={**SMALL, **one[2]})["status"] == one[1]
            )
        )
        for one in bad * 2
    ]
    for thread in threads:
        thread.start()
    client.answers()  # it waits for its turn
    for thread in threads:
        thread.join()
    assert ends == [True] * 8


def test_the_server_that_is_killed_takes_every_cell_with_it(tmp_path):
    server = Client(tmp_path, "namespaces", AVAILABLE["namespaces"])
    word = f"{5000 + os.getpid() / 1e6:.6f}"
    threading.Thread(
        target=lambda: pytest.raises(
            OSError, server.run, f"import os; os.execv('/bin/sleep', ['sleep', '{word}'])"
        ),
        daemon=True,
    ).start()
    waits.until(lambda: _running(word))
    server.process.kill()
    server.process.wait()
    server.said.close()
    waits.until(lambda: not _running(word))


# --- the walls bite: the same attack where the wall is not ------------------------------------------------------------

NO_WALLS = [
    "memory-of-a-file-in-memory",
    "memory-of-system-v",
    "tcp-to-loopback",
    "an-abstract-socket",
    "a-socket-in-a-folder",
    "files-of-the-host",
    "other-processes",
    "the-keyring",
    "clone-into-namespaces",
    "ptrace",
    "the-server-itself",
]


@pytest.mark.parametrize("name", NO_WALLS)
def test_without_walls_the_same_attack_works(name, tmp_path, request):
    """Where the code has neither a cell nor a filter: only what harms nobody."""
    code, _, _ = ATTACKS[name]
    secret = tmp_path / "secret"
    secret.write_text("CANARY")
    pool = sandbox_pool.CellPool(walls="none", warm=1)
    listener = socket.create_server(("127.0.0.1", 0))
    abstract, path = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
    abstract.bind(f"\0none-{os.getpid()}")
    path.bind(str(tmp_path / "socket"))
    for each in (abstract, path):
        each.listen()

    def reply():
        with listener.accept()[0] as peer:
            peer.recv(1000)
            peer.sendall(b"HTTP/1.0 200 OK\r\n\r\n")

    if name == "the-server-itself":
        threading.Thread(target=reply, daemon=True).start()
    known = {
        "SECRET": str(secret),
        "TRIPWIRE": str(secret),
        "CHECKOUT": str(cli.ROOT),
        "ADDRESS": str(secret),
        "SOCKET": str(tmp_path / "socket"),
        "ABSTRACT": f"none-{os.getpid()}",
        "PORT": str(listener.getsockname()[1]),
        "HOST": "'127.0.0.1'",
        "PID": str(os.getpid()),
        "SERVER": str(os.getpid()),
        "URL": f"http://127.0.0.1:{listener.getsockname()[1]}",
    }
    code = code.replace("(1, os.getppid(), PID, child)", "(child,)")  # nobody else is to be traced
    try:
        said = pool.run(armed(code, known))
        assert "BREACH" in said.stdout, said
    finally:
        pool.close()
        for each in (listener, abstract, path):
            each.close()


BOUNDS = {  # (what is within a larger bound, the bound)
    "processes": (
        "x = [os.fork() or (time.sleep(60), os._exit(0)) for _ in range(24)]; time.sleep(0.3); breach(); os.kill(-1, 9)",
        {"processes": 16},
        {"processes": 40},
    ),
    "memory": ("x = b'x' * (200 << 20); breach()", {"memory": 128 << 20}, {"memory": 400 << 20}),
    "files": (
        "open('x', 'wb').write(b'x' * (12 << 20)); breach()",
        {"disk": 8 << 20},
        {"disk": 32 << 20},
    ),
    "output": (
        "print('x' * 100000); breach(); time.sleep(0.2)",
        {"output": 1 << 16},
        {"output": 1 << 18},
    ),
    "timeout": ("time.sleep(1.5); breach()", {"wall": 0.7}, {"wall": 20.0}),
}


@pytest.mark.parametrize("status", BOUNDS)
def test_a_bound_is_what_stops_it_and_a_larger_one_lets_it_through(status):
    code, small, large = BOUNDS[status]
    pool = sandbox_pool.CellPool(warm=0)
    try:
        refused, let = (pool.run(HEAD + code, limits=Limits(**limits)) for limits in (small, large))
        assert (refused.status, "BREACH" in let.stdout, let.status) == (status, True, "ok"), (
            refused,
            let,
        )
    finally:
        pool.close()
