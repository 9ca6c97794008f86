"""Formal proofs are checked by `lean` in a cell. It is not here: a small program of ours stands in for it, which takes no proof but
`norm_num`, `sorry` and `native_decide`, and says what it takes in the form of Lean's own messages."""

import json
import os
import sys

import pytest
from decksmith.bench.benchmarks import grading, tasks
from decksmith.bench.benchmarks.graders import lean
from decksmith.core.stream import Fault

STATEMENT = "import Mathlib\n\ntheorem two (n : Nat) :\n    1 + 1 = 2 := by"
STAND_IN = """#!{python} -IS
# Stands in for Lean 4: one rule for each tactic, and no logic.
import json, re, sys
if sys.argv[1:] == ["--print-prefix"]:
    print({prefix!r})
    sys.exit()
if sys.argv[1] != "--json":
    sys.exit("lean: what is " + sys.argv[1])
lines = open(sys.argv[2]).read().split("\\n")
axioms, errors = ["propext"], []
for number, line in enumerate(lines, 1):
    def say(severity, data):
        print(json.dumps({{"severity": severity, "pos": {{"line": number, "column": 0}}, "data": data}}))
    word = line.strip()
    if word.startswith("import") and word != "import Mathlib":
        errors.append(1); say("error", "unknown module prefix")
    elif word == "sorry":
        axioms.append("sorryAx"); say("warning", "declaration uses 'sorry'")
    elif word == "native_decide":
        axioms.append("Lean.ofReduceBool")
    elif word.startswith("trace"):
        say("info", word.split('"')[1])
    elif word.startswith("#print axioms") and not errors:
        say("info", "'" + word.split("_root_.")[1] + "' depends on axioms: [" + ", ".join(axioms) + "]")
    elif line.startswith("  ") and word and word != "norm_num" and ":=" not in line:
        errors.append(1); say("error", "unsolved goals: " + word)
sys.exit(1 if errors else 0)
"""


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """A `lean` on the path, in a folder as Lean has one."""
    program = tmp_path / "toolchain" / "bin" / "lean"
    program.parent.mkdir(parents=True)
    python = os.path.realpath(sys.executable)
    program.write_text(STAND_IN.format(python=python, prefix=str(program.parent.parent)))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("IMAGES", "off")
    yield from _fresh()


@pytest.fixture
def nothing(tmp_path, monkeypatch):
    """No `lean` on the path."""
    monkeypatch.setenv("PATH", str(tmp_path))
    yield from _fresh()


def _fresh():
    lean._lean.cache_clear()
    lean._fails.cache_clear()
    yield
    if lean._lean.cache_info().currsize:
        lean._lean()[2].close()
    lean._lean.cache_clear()


def grade(reply, statement=STATEMENT):
    return lean.grade({"expected": {"statement": statement, "name": "two"}}, reply)


def block(code):
    return f"So:\n\n```lean4\n{code}\n```"


@pytest.mark.parametrize(
    "code",
    [
        f"{STATEMENT}\n  norm_num",
        f"{STATEMENT} norm_num",
        "norm_num",
        "  norm_num",
        f"{STATEMENT}\n  norm_num\n    /- by the axiom of choice := -/",
    ],
)
def test_a_proof_that_lean_takes_is_right(stand_in, code):
    assert grade(block(code))["verdict"] == "right"


@pytest.mark.parametrize(
    "code, said",
    [
        (f"{STATEMENT}\n  ring", "unsolved goals: ring"),
        (f"{STATEMENT}\n  sorry", "it rests on sorryAx"),
        (f"{STATEMENT}\n  native_decide", "it rests on Lean.ofReduceBool"),
        (f"{STATEMENT}\n  norm_num\n\naxiom easy : False", "a proof may not hold axiom"),
        (
            f'{STATEMENT}\n  norm_num\n  macro "#print" : command => `(end)',
            "a proof may not hold macro",
        ),
        (f"{STATEMENT}\n  norm_num\n#print axioms two", "a proof may not hold #p"),
        (f"{STATEMENT}\n  run_tac done", "a proof may not hold run_tac"),
        # What is said by a proof of itself is no word of Lean's: it stands on another line.
        (
            f"{STATEMENT}\n  trace \"'two' depends on axioms: [propext]\"\n  sorry",
            "it rests on sorryAx",
        ),
        ('/- " -/ axiom easy : False', "a proof may not hold axiom"),
    ],
)
def test_what_lean_does_not_take_or_what_goes_around_it_is_wrong(stand_in, code, said):
    found = grade(block(code))
    assert (found["verdict"], found["detail"]["said"]) == ("wrong", said)


def test_another_statement_proves_nothing_since_the_rows_own_stands_in_its_place(stand_in):
    other = "theorem two : True := by\n  trivial"
    assert grade(block(other))["detail"]["said"] == "unsolved goals: trivial"
    assert (
        lean.proof(block("theorem two : True :=\n  trivial"), "two") == "  exact (\n    trivial)\n"
    )
    assert lean.proof("I cannot prove it.", "two") is None


def test_a_statement_that_lean_does_not_take_is_a_fault_of_the_row(stand_in):
    with pytest.raises(
        Fault, match="statement-fails|does not take the row's statement: unknown module"
    ):
        grade(block("ring"), STATEMENT.replace("Mathlib", "Elsewhere"))


def test_without_lean_a_row_is_an_error_that_says_what_to_mend(nothing):
    with pytest.raises(Fault) as fault:
        grade(block("norm_num"))
    assert fault.value.error["class"] == "no-lean" and "containers/lean.def" in str(fault.value)
    spec = tasks.load("minif2f")
    task = {"bench": "minif2f", "fields": {}, "expected": {"statement": STATEMENT, "name": "two"}}
    said = grading._answered("lean", (spec, task, block("norm_num")))
    assert said["error"]["kind"] == "judge"
    assert tasks.lack(spec, {**task, "expected": {"statement": "theorem x", "name": "x"}})
    json.dumps(said)
