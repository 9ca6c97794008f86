"""Programs that mean to pass tests without solving anything: none does, and none is left out of the count either.

Each defines `solve`, whose results only the tests know, in the three shapes that tests have: HumanEval's check, MBPP's asserts, LiveCodeBench's
cases. FOOLS says of some that they succeed where tests and code share a process: the attacks are real.
"""

import json

import pytest
from decksmith.bench.benchmarks import grading, tasks
from decksmith.bench.benchmarks.graders import code
from decksmith.bench.sandbox import pool
from decksmith.bench.sandbox.cell import Limits

RESULTS = {1: "one-7f3", 2: ["two", 2.5], 3: {"a": 3}, 4: 4.25}
ASSERTS = [f"assert NAME({n}) == {result!r}" for n, result in RESULTS.items()]
PROMPT = 'def solve(n: int):\n    """ What only the tests know. """\n'
CHECK = (
    "def check(candidate):\n"
    + "".join(f"    {line}\n" for line in ASSERTS).replace("NAME", "candidate")
    + "check(solve)\n"
)
TASKS = {
    "humaneval": {"tests": [CHECK], "prelude": PROMPT, "entry": "solve", "names": ["solve"]},
    "mbpp": {"tests": ["\n".join(ASSERTS).replace("NAME", "solve")], "names": ["solve"]},
    "livecodebench": {
        "cases": [{"input": str(n), "output": json.dumps(result)} for n, result in RESULTS.items()],
        "function": "solve",
    },
}

YES = """
class Yes:
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __lt__(self, other): return True
    __le__ = __gt__ = __ge__ = __contains__ = __lt__
    def __abs__(self): return self
    __sub__ = __rsub__ = __getitem__ = __getattr__ = __call__ = lambda self, *_: self
    def __hash__(self): return 0
    def __bool__(self): return True
"""
# Where a process could find what it should return: {texts} yields texts of which one may be the tests' own.
HUNT = """
import re
def texts():
{texts}
def solve(n):
    for text in texts():
        for found in re.findall(r"(?:solve|candidate)\\(%d\\) == ([^\\n]+)" % n, str(text)):
            try: return eval(found)
            except Exception: pass
"""
# The end of the socket on which calls come, and an answer as the driver sends it.
LINK = """
import json, os, socket, stat, struct, threading, time
def ends():
    found = []
    for number in range(3, 256):
        try:
            if stat.S_ISSOCK(os.fstat(number).st_mode): found.append(number)
        except OSError: pass
    return found
def answer(call, value, raised=None):
    data = json.dumps({"call": call, "value": value, "raised": raised}).encode()
    return struct.pack("!I", len(data)) + data
def say(*words):
    for end in ends():
        for word in words:
            try: os.write(end, word)
            except OSError: pass
"""
PASSED = 'b\'{"ended": "passed", "said": ""}\\n\''

ATTACKS = {
    # what is equal to everything
    "an object that is equal": YES + "def solve(n): return Yes()",
    "a list of such objects": YES + "def solve(n): return [Yes(), Yes()]",
    "a subclass of int": "class N(int):\n    __eq__ = lambda *_: True\n    __hash__ = int.__hash__\ndef solve(n): return N(0)",
    "a subclass of str": "class S(str):\n    __eq__ = lambda *_: True\n    __hash__ = str.__hash__\ndef solve(n): return S('')",
    "a subclass of list": "class L(list):\n    __eq__ = lambda *_: True\ndef solve(n): return L()",
    "a subclass of dict": "class D(dict):\n    __eq__ = lambda *_: True\n    def __missing__(self, key): return self\ndef solve(n): return D()",
    "a class that lies about itself": YES
    + "class Lie(Yes):\n    __class__ = property(lambda self: str)\ndef solve(n): return Lie()",
    "a class that is equal": "class Meta(type):\n    __eq__ = lambda *_: True\n    __hash__ = type.__hash__\nclass K(metaclass=Meta): pass\ndef solve(n): return K",
    "a mock": "from unittest.mock import ANY\ndef solve(n): return ANY",
    "nan": "def solve(n): return float('nan')",
    "a property that answers": YES + "import sys\nsys.modules[__name__] = Yes()\nsolve = Yes()",
    # what the tests use, changed
    "builtins are overridden": YES
    + "import builtins\nfor name in ('abs', 'len', 'all', 'any', 'isinstance', 'type', 'list', 'enumerate', 'sorted', 'eval', 'compile',"
    " 'getattr'):\n    setattr(builtins, name, lambda *_, **__: Yes())\ndef solve(n): return Yes()",
    "AssertionError is made harmless": "import builtins, sys\nclass Calm(BaseException): pass\nbuiltins.AssertionError = AssertionError = Calm\n"
    "sys.excepthook = lambda *_: None\ndef solve(n): return None",
    "json is patched": YES
    + "import json\nfor name in ('dumps', 'loads', 'dump', 'load'):\n    setattr(json, name, lambda *_, **__: Yes())\ndef solve(n): return Yes()",
    "the driver is patched": "import decksmith_wire as wire\nwire.plain = lambda value, keep: {'any': value}\nwire.restored = lambda *_: 1\n"
    "wire.Link.answer = wire.Link.value = lambda *_: (1, None)\nwire.examine = wire.record = print\ndef solve(n): return 0",
    "modules are replaced": "import sys\nfor name in list(sys.modules):\n    if name != 'builtins': sys.modules[name] = None\ndef solve(n): return 0",
    "modules lie in the folder": "for name in ('json', 'socket', 'struct', 'decksmith_wire', 'builtins'):\n    with open(name + '.py', 'w') as file: file.write('x = 1')\n"
    "def solve(n): return 0",
    "a trace jumps over the tests": "import sys\ndef trace(frame, event, _):\n    if event == 'line' and frame.f_code.co_name in ('check', '<module>', 'examine'):\n"
    "        try: frame.f_lineno += 1\n        except Exception: pass\n    return trace\nsys.settrace(trace)\ndef solve(n):\n"
    "    frame = sys._getframe(1)\n    while frame: frame.f_trace = trace; frame = frame.f_back\n    return 0",
    # what is expected, read
    "lines of the tests": HUNT.format(
        texts="    import linecache\n    for entry in linecache.cache.values(): yield ''.join(entry[2])"
    ),
    "frames": HUNT.format(
        texts="    import sys\n    frame = sys._getframe()\n    while frame:\n        yield frame.f_locals; yield frame.f_globals; yield frame.f_code.co_consts\n"
        "        frame = frame.f_back"
    ),
    "constants of the caller": "import sys\ndef solve(n):\n    frame = sys._getframe(1)\n    while frame:\n        found = list(frame.f_code.co_consts)\n"
    "        if n in found and found.index(n) + 1 < len(found): return found[found.index(n) + 1]\n        frame = frame.f_back",
    "the garbage collector": HUNT.format(
        texts="    import gc\n    for each in gc.get_objects():\n        if isinstance(each, (dict, list, tuple)):\n"
        "            yield from (one for one in (each.values() if isinstance(each, dict) else each) if isinstance(one, (str, bytes)))"
    ),
    "its own memory": HUNT.format(
        texts="    for line in open('/proc/self/maps'):\n        area = line.split()\n        if area[1].startswith('rw'):\n"
        "            start, end = (int(word, 16) for word in area[0].split('-'))\n"
        "            with open('/proc/self/mem', 'rb', 0) as file:\n                file.seek(start)\n"
        "                try: yield file.read(end - start).decode('latin-1')\n                except OSError: pass"
    ),
    "the memory of others": HUNT.format(
        texts="    import os\n    for pid in os.listdir('/proc'):\n        for name in ('mem', 'cmdline', 'environ', 'maps') * pid.isdigit():\n"
        "            try: yield open(f'/proc/{pid}/{name}', 'rb', 0).read(1 << 20)\n            except OSError: pass"
    ),
    "open files": HUNT.format(
        texts="    import os\n    for number in range(256):\n        try: yield os.pread(number, 1 << 20, 0)\n        except OSError: pass\n"
        "        try: yield open(f'/proc/self/fd/{number}', 'rb', 0).read(0)\n        except OSError: pass"
    ),
    "the driver's module": HUNT.format(
        texts="    import inspect, decksmith_wire\n    yield inspect.getsource(decksmith_wire)\n    yield vars(decksmith_wire)"
    ),
    "files": HUNT.format(
        texts="    import os\n    for top, _, names in os.walk('/tmp'):\n        for name in names: yield open(os.path.join(top, name), errors='replace').read()"
    ),
    "ptrace": "import ctypes, os\nlibc = ctypes.CDLL(None)\nfor pid in (1, os.getppid()): libc.ptrace(16, pid, 0, 0)\n"
    "local = (ctypes.c_size_t * 2)(ctypes.addressof(ctypes.create_string_buffer(64)), 64)\nlibc.syscall(310, 1, local, 1, local, 1, 0)\ndef solve(n): return 0",
    # the end, forged
    "it ends well": "import os\nos._exit(0)",
    "it ends well when called": "import os\ndef solve(n): os._exit(0)",
    "it says passed": f"import os\nfor number in range(256):\n    try: os.write(number, {PASSED})\n    except OSError: pass\nos._exit(0)",
    "it says passed where it was started": f"import os\nfor name in ('stdout', 'fd/1', 'fd/2'):\n    try: open('/dev/' + name, 'wb', 0).write({PASSED})\n    except OSError: pass\n"
    "print('ok')\ndef solve(n): return 0",
    "it tells the guard": "import os\nfor number in range(3, 256):\n    try: os.write(number, b'ok')\n    except OSError: pass\nos._exit(0)",
    "at exit": "import atexit, os, sys, threading\natexit.register(os._exit, 0)\nthreading._shutdown = lambda: os._exit(0)\nsys.exit = sys.excepthook = lambda *_: os._exit(0)\n"
    "def solve(n): raise SystemExit(0)",
    "a child outlives it": f"import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        while True:\n            for number in range(256):\n"
    f"                try: os.write(number, {PASSED})\n                except OSError: pass\n            time.sleep(0.05)\n    os._exit(0)\ndef solve(n): os._exit(0)",
    "signals": "import os, signal\nfor number in range(1, 65):\n    try: signal.signal(number, lambda *_: os._exit(0))\n    except (OSError, ValueError): pass\n"
    "for pid in (1, os.getppid(), -1, 0):\n    for number in (2, 9, 15, 19):\n        try: pid in (0, -1) and number != 2 or os.kill(pid, number)\n        except OSError: pass\n"
    "def solve(n): return 0",
    # answers that nobody asked for
    "answers ahead": LINK
    + "say(*(answer(call, 'one-7f3' if call == 9 else True) for call in range(1, 40)))\ndef solve(n): return True",
    "answers twice": LINK + "def solve(n):\n    say(answer(n, 0), answer(n, 0))\n    return 0",
    "answers out of turn": LINK
    + "def solve(n):\n    say(answer(99, 0), answer(-1, 0), answer(None, 0), answer([1], 0))\n    return 0",
    "answers later, from a thread": LINK
    + "def later():\n    for call in range(100):\n        say(answer(call % 5, True))\n        time.sleep(0.01)\n"
    "threading.Thread(target=later, daemon=True).start()\ndef solve(n):\n    time.sleep(0.1)\n    return True",
    "an answer with parts of its own": LINK
    + "def solve(n):\n    say(answer(n, {'call': n, 'value': True, 'raised': None}), answer(n, {'passed': True, 'ended': 'passed'}))\n    os._exit(0)",
    "classes that are not there": LINK
    + "def solve(n):\n    say(answer(n, {'__class__': 'Yes'}), answer(n, {'eval': 'exit(0)'}), answer(n, {'pickle': 'x'}))\n    os._exit(0)",
    "values that cannot be": LINK
    + "def solve(n):\n    say(answer(n, {'set': [[1], {'dict': 5}]}), answer(n, {'int': 'zz'}), answer(n, {'decimal': 'sNaN'}))\n    os._exit(0)",
    "exceptions of the protocol": LINK
    + "def solve(n):\n    say(answer(n, None, ['Unfit', 'x']))\n    time.sleep(9)",
    "exceptions that are none": LINK
    + "def solve(n):\n    say(answer(n, None, ['SystemExit', '0']), answer(n, None, ['__import__', 'os']), answer(n, None, ['print', '1']))\n    os._exit(0)",
    "StopIteration": "def solve(n): raise StopIteration",
    "GeneratorExit": "def solve(n): raise GeneratorExit",
    "an exception that cannot be shown": "class Bad(Exception):\n    def __str__(self): raise self\ndef solve(n): raise Bad",
    "its files as a gift": LINK
    + "def solve(n):\n    for end in ends():\n        socket.send_fds(socket.socket(fileno=os.dup(end)), [answer(n, 0)], [0, 1, 2])\n    os._exit(0)",
    "nothing more to say": LINK
    + "def solve(n):\n    for end in ends(): socket.socket(fileno=os.dup(end)).shutdown(2)\n    time.sleep(9)",
    "pickles": "class P:\n    def __reduce__(self): return (exec, ('import os; os._exit(0)',))\n    def __getstate__(self): return 0\ndef solve(n): return P()",
    "a generator with a purpose": "import os\ndef solve(n):\n    yield 'one-7'\n    os.write(1, b'passed')\n    yield n",
    "a generator without end": "def solve(n):\n    while True: yield n",
    "endless recursion": "def solve(n): return solve(n)",
}
# Those that succeed where tests and code share a process.
FOOLS = {
    "an object that is equal",
    "a subclass of int",
    "a subclass of str",
    "a subclass of list",
    "a subclass of dict",
    "a class that lies about itself",
    "a class that is equal",
    "a mock",
    "lines of the tests",
    "its own memory",
    "it tells the guard",
}
# What costs the tests time and memory, tried in one shape: all end by the limits of the cell that runs the tests.
BOMBS = {
    "a gigabyte": "def solve(n): return 'x' * (900 << 20)",
    "many small things": "def solve(n): return [[]] * 12_000_000",
    "deep nests": "import sys\nsys.setrecursionlimit(10 ** 6)\nfrom decksmith_wire import *\nimport json\n"
    + LINK
    + "def solve(n):\n    body = b'[' * 100_000 + b']' * 100_000\n    body = b'{\"call\": 1, \"raised\": null, \"value\": ' + body + b'}'\n"
    "    say(struct.pack('!I', len(body)) + body)\n    time.sleep(9)",
    "hashes that collide": LINK
    + "def solve(n):\n    say(answer(n, {'set': [{'int': hex((2 ** 61 - 1) * k)} for k in range(1, 60_000)]}))\n    time.sleep(9)",
    "a number to be written out": LINK
    + "def solve(n):\n    say(answer(n, {'fraction': ['1e999999999']}))\n    time.sleep(9)",
    "a length without a text": LINK
    + "def solve(n):\n    say(struct.pack('!I', (1 << 32) - 1))\n    time.sleep(9)",
    "a text by drops": LINK
    + "def solve(n):\n    for byte in answer(n, 'x' * 100):\n        say(bytes([byte]))\n        time.sleep(0.1)",
}
FEW = ["a gigabyte", "deep nests", "a number to be written out"]


def graded(shape, reply):
    return grading.grade(
        tasks.load(shape),
        {"bench": shape, "expected": TASKS[shape], "fields": {}},
        f"```python\n{reply}\n```",
    )


@pytest.fixture
def brief(monkeypatch):
    monkeypatch.setattr(code, "CALL", 1.5)
    monkeypatch.setattr(code, "CASE", 1.5)


# Each attack on one grader, in turn; `make test-long` has it on the others.
PAIRS = [
    pytest.param(name, shape, marks=[] if (at - turn) % len(TASKS) == 0 else pytest.mark.long)
    for turn, name in enumerate(ATTACKS)
    for at, shape in enumerate(TASKS)
]


@pytest.mark.usefixtures("brief")
@pytest.mark.parametrize("name, shape", PAIRS)
def test_a_program_that_means_to_deceive_does_not_pass(name, shape):
    found = graded(shape, ATTACKS[name])
    assert found["verdict"] == "wrong", found


@pytest.mark.slow
@pytest.mark.usefixtures("brief")
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.long] * (n not in FEW)) for n in BOMBS]
)
def test_what_a_reply_returns_to_stall_the_tests_costs_its_own_row(name):
    found = graded("mbpp", BOMBS[name])
    assert found["verdict"] == "wrong", found


def test_the_attacks_are_real_where_tests_and_code_share_a_process():
    tests = "\n".join(ASSERTS).replace("NAME", "solve")
    limits = Limits(wall=5)
    assert {
        name
        for name, attack in ATTACKS.items()
        if name in FOOLS and pool.common().run(f"{attack}\n{tests}\n", limits=limits).finished
    } == FOOLS


@pytest.mark.parametrize("shape", TASKS)
def test_a_program_that_solves_it_passes(shape):
    assert graded(shape, f"def solve(n):\n    return {RESULTS!r}[n]")["verdict"] == "right"
