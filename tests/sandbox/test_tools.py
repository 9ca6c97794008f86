"""Tools of a conversation, each call in a cell."""

from decksmith.bench.sandbox import tools

SOURCE = """
import time
def add(a, b=1):
    print("noise")
    return {"sum": a + b}
def text():
    return "é"
def endless():
    while True:
        pass
def leaves():
    import os
    os._exit(0)
"""


def test_a_tool_returns_json_or_text_or_says_how_it_failed():
    assert tools.use(SOURCE, "add", {"a": 2}) == '{"sum": 3}'
    assert tools.use(SOURCE, "text", {}) == "é"
    assert tools.use(SOURCE, "endless", {}, 0.3) == "error: timed out after 0.3 s"
    assert tools.use(SOURCE, "leaves", {}) == "error: it ended without a result"
    assert "unexpected keyword argument 'c'" in tools.use(SOURCE, "add", {"a": 1, "c": 2})


def python(code, *cells, seconds=10.0):
    return tools.use("", "python", {"code": code}, seconds, cells)


def test_python_gives_what_a_program_prints():
    assert python("print(6 * 7)") == "42\n" and python("6 * 7") == "42\n"
    assert python("pass") == "(it printed nothing)"
    assert python("print(1)\n1 / 0") == "1\nerror: ZeroDivisionError: division by zero"
    assert tools.use("", "python", {"program": "x"}).startswith("error: python takes")


def test_python_goes_on_from_the_calls_before_less_those_that_did_not_end():
    first = "import random\nx = 6\nprint('first')\nn = random.random()\n1 / 0\nx = 7"
    told = python(first)
    assert told == "first\nerror: ZeroDivisionError: division by zero"
    assert python("x, n", (first, told)) == python("x, n", (first, told)) != "(it printed nothing)"
    endless = "y = 1\nwhile True:\n    pass"
    late = python(endless, (first, told), seconds=0.3)
    assert late == "error: timed out after 0.3 s; what this call did is forgotten"
    assert python("x * 7", (first, told), (endless, late), seconds=5) == "42\n"
    assert (
        python("y", (first, told), (endless, late)) == "error: NameError: name 'y' is not defined"
    )
    dead = python("import os\nos._exit(3)")
    assert dead.startswith("error: killed: ") and dead.endswith(tools.FORGOTTEN)
    assert python("1", ("import os\nos._exit(3)", "fine")).startswith("error: the calls before")
