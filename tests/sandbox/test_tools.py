"""Tools of a conversation, each call in a cell."""

from decksmith.sandbox import tools

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


def test_python_gives_what_a_program_prints():
    assert tools.use("", "python", {"code": "print(6 * 7)"}) == "42\n"
    assert tools.use("", "python", {"code": "pass"}) == "(it printed nothing)"
    found = tools.use("", "python", {"code": "print(1)\n1 / 0"})
    assert found == "1\nerror: ZeroDivisionError: division by zero"
    assert tools.use("", "python", {"program": "x"}).startswith("error: python takes")
