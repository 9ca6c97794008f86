"""Each test that is left to `make test-long` names one of `make test` that holds the first side of the same behaviour: in its mark,
`long("test_x")` or `long("tests/room/test_y.py::test_x")`; in a .bats file on the line below its marks, `# first: TITLE`.

A test of which some cases are long names none: its other cases are the first side.
"""

import ast
import re

from decksmith.core import cli

BATS = re.compile(r'^(?:# marks: (.*)\n(?:# first: (.*)\n)?)?@test "(.*)" \{$', re.M)
NOT_THERE = ("skip", "skipif")  # a test that may be skipped is no first side


def marks(function):
    """The marks of a test function, each with its first argument, as far as that is a text."""
    for one in function.decorator_list:
        called = one.func if isinstance(one, ast.Call) else one
        if isinstance(called, ast.Attribute):
            arguments = one.args if isinstance(one, ast.Call) else []
            texts = [each.value for each in arguments if isinstance(each, ast.Constant)]
            yield called.attr, texts[0] if texts else ""


def collected():
    """{file: {test: its marks}} of all that pytest collects; of a .bats file by titles."""
    found = {}
    for path in sorted((cli.ROOT / "tests").rglob("test_*.py")):
        functions = [n for n in ast.parse(path.read_text()).body if isinstance(n, ast.FunctionDef)]
        found[path] = {n.name: dict(marks(n)) for n in functions if n.name.startswith("test_")}
    for path in sorted((cli.ROOT / "tests").glob("*/*.bats")):
        found[path] = {
            title.replace('\\"', '"'): dict.fromkeys(names.split(), first)
            for names, first, title in BATS.findall(path.read_text())
        }
    return {path.relative_to(cli.ROOT).as_posix(): names for path, names in found.items()}


def test_every_long_test_names_one_of_make_test_that_holds_its_first_side():
    known = collected()
    long = [
        (path, name, found["long"])
        for path, names in known.items()
        for name, found in names.items()
        if "long" in found
    ]
    assert len(long) > 40
    without = []
    for path, name, first in long:
        where, _, title = first.rpartition("::")
        there = known.get(where or path, {}).get(title)
        if there is None or "long" in there or not there.keys().isdisjoint(NOT_THERE):
            without.append(f"{path}::{name}: {first or 'names none'}")
    assert without == []
