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


def test_each_program_shows_its_last_expression_and_an_exit_ends_only_itself():
    cells = []
    said = []
    for code in (
        "x = 20",
        "x + 1",
        "x / 0",
        "def f():\n    print('in f')\n    return x\nf()",
        "import sys\nsys.exit(3)",
        "sys.exit()",
        "import os\nprint('heard by nobody')\nos.system('echo nor this')\nos.fork()\nNone",
        "while x > 19:\n    x -= 1\n    [x].pop()",
        "x",
    ):
        said.append(python(code, *cells))
        cells.append((code, said[-1]))
    assert said[:6] == [
        "(it printed nothing)",
        "21\n",
        "error: ZeroDivisionError: division by zero",
        "in f\n20\n",
        "error: it ended without a result",
        "(it printed nothing)",
    ]
    assert said[7:] == ["(it printed nothing)", "19\n"]
    told = python("import os; os._exit(5)", *cells)
    assert told == f"error: killed: its process ended, exit status 5{tools.FORGOTTEN}"
