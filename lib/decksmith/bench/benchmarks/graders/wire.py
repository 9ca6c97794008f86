"""What passes between tests and the code they test, and the programs at its two ends.

The tests run in one cell of the sandbox, the code that a model wrote in another; all that joins the
two is a socket on which plain data goes to and fro as JSON. `examine` runs the tests and holds what
they expect; for the code it has stand-ins, which send the arguments of a call and hand the tests
what comes back. `answer` runs the code and serves the calls. The code can do what it likes with its
own end: whatever arrives here is a claim about what one call returned, and the tests judge it.

supervisor.py has this module ready in every cell: nothing but the standard library.
"""

import ast
import base64
import builtins
import collections
import collections.abc
import contextlib
import itertools
import json
import os
import socket
import struct
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any

LONGEST = 64 << 20  # bytes of a message
MOST = 100_000  # items of a generator that are sent
# Integers below are JSON's; larger ones are hexadecimal, which Python reads in any length.
SMALL = 1 << 63
ATTRIBUTE = ""  # no function has this name: asked for an attribute of a value
FRAME = {"call", "value", "raised"}  # of an answer; the object that stands for a value has one key
LISTS = {"tuple": tuple, "set": set, "frozenset": frozenset, "dict": dict}
# Other plain data by name: its class, what it is sent as, and how it is made of that again.
PARTS: dict[str, tuple[Any, Callable[[Any], Any], Callable[[Any], object]]] = {
    "complex": (complex, lambda it: [it.real, it.imag], lambda held: complex(*held)),
    "bytes": ((bytes, bytearray), lambda it: base64.b64encode(it).decode(), base64.b64decode),
    "range": (range, lambda it: [it.start, it.stop, it.step], lambda held: range(*held)),
    "fraction": (Fraction, lambda it: [it.numerator, it.denominator], lambda held: Fraction(*held)),
    "decimal": (Decimal, str, Decimal),
}


class Broken(Exception):
    """The other side ended, took too long, or said what is not of this protocol."""


class Unfit(Exception):
    """The tests ask for what cannot be sent."""


class Raised(Exception):
    """An exception of the code whose class is not one of Python's own."""


class Remote:
    """Something on the other side: a function by its name, or a value that is no plain data. It can be called, asked for its public
    attributes, and iterated where its items came along; it equals nothing."""

    def __init__(self, link, handle, items=None):
        self._link, self._handle, self._items = link, handle, items

    def __call__(self, *given, **named):
        self._link.ask(self._handle, given, named)
        return self._link.value()

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        self._link.ask(ATTRIBUTE, (self, name), {})
        return self._link.value()

    def __iter__(self):
        if self._items is None:
            raise TypeError("what the code returned cannot be iterated here")
        return iter(self._items)


def plain(value: object, keep: Callable[[object], object]) -> Any:
    """A value as JSON can carry it. A value of a subclass is what its base holds; of anything else goes what `keep` makes of it."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        value = int.__index__(value)
        return value if -SMALL < value < SMALL else {"int": hex(value)}
    if isinstance(value, float):
        return float.__pos__(value)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, list):
        return [plain(each, keep) for each in list.__iter__(value)]
    for name, base in LISTS.items():
        if isinstance(value, base):
            items = dict.items(value) if base is dict else base.__iter__(value)
            return {name: [plain(each, keep) for each in items]}
    if isinstance(value, (collections.abc.KeysView, collections.abc.ItemsView)):
        return {"set": [plain(each, keep) for each in value]}
    for name, (kind, parts, _) in PARTS.items():
        if isinstance(value, kind):
            return {name: plain(parts(value), keep)}
    return keep(value)


def restored(tagged: Mapping[str, Any], remote: Callable[..., object]) -> object:
    """The value of one JSON object of `plain`. Raises ValueError, TypeError and others for what is none."""
    ((name, held),) = tagged.items()
    if name in LISTS:
        return LISTS[name](held)
    if name == "remote":
        return remote(*held)
    return int(held, 16) if name == "int" else PARTS[name][2](held)


class Link:
    """One end. `seconds` is how long an answer may take."""

    def __init__(self, end, seconds=None):
        self.end, self.seconds, self.calls = end, seconds, 0

    def send(self, message: object) -> None:
        data = json.dumps(message).encode()
        if len(data) > LONGEST:
            raise Broken("a message is too long")
        self.end.settimeout(self.seconds)
        try:
            self.end.sendall(struct.pack("!I", len(data)) + data)
        except OSError:
            raise Broken("the code ended") from None

    def receive(self, hook: Callable[[dict[str, Any]], object]) -> Any:
        """The next message; JSON objects go through `hook`. Raises Broken."""
        deadline = self.seconds and time.monotonic() + self.seconds
        (size,) = struct.unpack("!I", self._read(4, deadline))
        if size > LONGEST:
            raise Broken("a message is too long")
        try:
            return json.loads(self._read(size, deadline), object_hook=hook)
        except Broken:
            raise
        except Exception as error:
            raise Broken(f"what came is no plain data: {type(error).__name__}") from None

    def _read(self, size, deadline):
        data = bytearray()
        while len(data) < size:
            left = deadline and deadline - time.monotonic()
            if left is not None and left <= 0:
                raise Broken(f"no answer within {self.seconds:g} seconds")
            self.end.settimeout(left)
            try:
                got = self.end.recv(min(size - len(data), 1 << 20))
            except TimeoutError:
                continue
            except OSError:
                got = b""
            if not got:
                raise Broken("the code ended")
            data += got
        return bytes(data)

    def ask(self, handle: object, given: tuple[object, ...], named: dict[str, object]) -> None:
        """Call a function or value at the other end."""
        self.calls += 1
        try:
            sent = [plain(each, self._known) for each in (*given, *named.values())]
        except RecursionError:
            raise Broken("what it returned is too deep to be given back") from None
        by_name = [*zip(named, sent[len(given) :], strict=True)]
        self._call(handle, sent[: len(given)], by_name)

    def _call(self, handle, given, named=()):
        self.send({"call": self.calls, "of": handle, "given": given, "named": [*named]})

    def answer(self, hook=None):
        """What the last call came to, `(value, None)` or `(None, [class, words])`. Raises Broken for what is no answer to it."""
        said = self.receive(
            lambda found: found if found.keys() == FRAME or not hook else hook(found)
        )
        if type(said) is not dict or said.keys() != FRAME or said["call"] != self.calls:
            raise Broken("it answered out of turn")
        raised = said["raised"]
        if raised is not None and (type(raised) is not list or [*map(type, raised)] != [str, str]):
            raise Broken("it answered out of turn")
        return said["value"], raised

    def value(self) -> object:
        """What the last call returned, or the exception that it raised."""
        value, raised = self.answer(
            lambda found: restored(found, lambda handle, items: Remote(self, handle, items))
        )
        if raised is None:
            return value
        name, words = raised
        kind = getattr(builtins, name, None)
        error: Exception = Raised(": ".join(filter(None, raised)))
        # Not the two that would end a loop of the tests as if it had come to its end.
        ends = (StopIteration, StopAsyncIteration)
        if isinstance(kind, type) and issubclass(kind, Exception) and not issubclass(kind, ends):
            with contextlib.suppress(TypeError):  # UnicodeDecodeError and the like want more
                error = kind(words)
        raise error

    def _known(self, value):
        if isinstance(value, Remote):
            return {"remote": [value._handle, None]}
        raise Unfit(f"a value of type {type(value).__name__} cannot be sent to the code")


def _link(seconds=None):
    """The link on standard input, in whose place stands nothing, as in place of the two outputs."""
    link = Link(socket.socket(fileno=os.dup(0)), seconds)
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nothing, number)
    os.close(nothing)
    return link


BINDING = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.ExceptHandler)


def strange(source: str) -> set[str]:
    """The names that a text uses and neither binds nor has from Python."""
    loaded: set[str] = set()
    bound: set[str | None] = {*dir(builtins), "__name__", "__file__"}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Name):
            (loaded if isinstance(node.ctx, ast.Load) else bound).add(node.id)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, ast.alias):
            bound.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, BINDING):
            bound.add(node.name)
    return loaded - bound


def examine(tests: str, *, prelude: str = "", names: Iterable[str] = (), seconds: float) -> None:
    """Run tests of the code at the other end and print how they ended, `{"ended": .., "said": ..}`: "passed"; "failed"; "unfit" when
    they ask for what cannot be sent. `prelude` is the prompt, whose helpers tests may use; `names` are those of the code."""
    out = os.dup(1)
    link = _link(seconds)
    space: dict[str, object] = {}
    ended, said = "passed", ""
    try:
        exec(compile(completed_prompt(prelude), "prompt.py", "exec", dont_inherit=True), space)
        program = compile(tests, "tests.py", "exec", dont_inherit=True)
        for name in {*names, *(strange(tests) - space.keys())}:
            space[name] = Remote(link, name)
    except Exception as error:  # nothing of the reply was asked yet
        ended, said = (
            "unfit",
            f"the row's own tests fail: {type(error).__name__}: {str(error)[:200]}",
        )
    try:
        if ended == "passed":
            link.value()  # that it is loaded
            exec(program, space)
    except Unfit as error:
        ended, said = "unfit", str(error)
    except BaseException as error:
        frames = list(traceback.walk_tb(error.__traceback__))
        here = (
            frames[-1][0].f_code.co_filename == __file__
        )  # where what the reply raises is raised again
        ended = "unfit" if isinstance(error, ImportError) and not here else "failed"
        said = f"{type(error).__name__}: {str(error)[:200]}".removesuffix(": ")
        lines = [line for frame, line in frames if frame.f_code.co_filename == "tests.py"]
        said = f"{said} ({tests.splitlines()[lines[-1] - 1].strip()[:100]})" if lines else said
    os.write(out, json.dumps({"ended": ended, "said": said}).encode())


def completed_prompt(prompt: str) -> str:
    """A prompt as a program: a function that lacks its body gets one."""
    return prompt if _compiles(prompt) else f"{prompt}\n    pass\n"


def _compiles(text: str) -> bool:
    try:
        compile(text, "text.py", "exec", dont_inherit=True)
    except SyntaxError:
        return False
    return True


def record(calls: list[object], name: str, *, seconds: float) -> None:
    """No tests but a record: print what the function `name` returns to calls, `{"ended": .., "said": .., "values": [..]}`, each as it came.
    It ends with the first call that fails."""
    out, values, said = os.dup(1), [], ""
    link = _link(seconds)
    try:
        _, raised = link.answer()
        for given in [] if raised else calls:
            link.calls += 1
            link._call(name, given)
            value, raised = link.answer()
            if raised:
                break
            values.append(value)
        said = ": ".join(raised or [])
    except Broken as error:
        said = str(error)
    found = {"ended": "recorded", "said": "", "values": values}
    if said:
        found = {"ended": "failed", "said": said[:300], "values": []}
    with open(out, "w") as file:
        json.dump(found, file)


def answer(code, *, prelude="", entry=None, method=False):
    """Load the code as the harnesses do, in an empty namespace and not as `__main__`, and serve calls to what it defines.

    `prelude` is the prompt: its helpers and imports are there when the code holds the asked function `entry` alone, and where the
    code does not define that function it is taken for the rest of the prompt. `method`: where there is a class Solution, functions
    are methods of one of it.
    """
    link, kept, space = _link(), [], {}

    def keep(value):
        items, listed = None, (collections.abc.Iterator, collections.abc.ValuesView)
        if isinstance(value, (*listed, collections.deque)):
            items = [plain(each, keep) for each in itertools.islice(value, MOST + 1)]
        kept.append(value)
        return {"remote": [len(kept) - 1, None if items is None or len(items) > MOST else items]}

    def reply(call, work):
        try:
            link.send({"call": call, "value": work(), "raised": None})
        except BaseException as error:
            raised = [type(error).__name__, str(error)[:200]]
            link.send({"call": call, "value": None, "raised": raised})

    def find(handle):
        if isinstance(handle, int):
            return kept[handle]
        if handle == ATTRIBUTE:
            return getattr
        return getattr(solution, handle) if solution is not None else space[handle]

    solution = None

    def load():
        nonlocal solution
        _load(code, prelude, entry, space)
        if method and "Solution" in space:
            solution = space["Solution"]()

    reply(0, load)

    def read(found):
        return found if "call" in found else restored(found, lambda handle, _: find(handle))

    while True:
        try:
            asked = link.receive(read)
        except Broken:
            os._exit(0)

        def work(asked=asked):
            target = find(asked["of"])
            value = target(*asked["given"], **dict(asked["named"]))
            return keep(value) if _has_methods(target, value) else plain(value, keep)

        reply(asked["call"], work)


def _has_methods(target, value):
    """Whether a call made an instance of a class of the code (by its flag, in a namespace without a name) with methods."""
    own = type(value) is target and target.__flags__ & 1 << 9 and target.__module__ == "builtins"
    return own and any(callable(held) and name[0] != "_" for name, held in vars(target).items())


def _load(code, prelude, entry, space):
    def run(text, name="reply.py"):
        exec(compile(text, name, "exec", dont_inherit=True), space)

    run(completed_prompt(prelude), "prompt.py")
    stub = space.pop(entry, None)
    try:
        program = compile(code, "reply.py", "exec", dont_inherit=True)
    except SyntaxError:
        if stub is None:
            raise
        return run(_continued(prelude, code))
    exec(program, space)
    if stub is not None and entry not in space:
        run(_continued(prelude, code))


def _continued(prompt, code):
    """Prompt and the rest of its function, indented where it is not."""
    if _compiles(prompt + code):
        return prompt + code
    return prompt + "".join(f"    {line}" for line in code.splitlines(True))
