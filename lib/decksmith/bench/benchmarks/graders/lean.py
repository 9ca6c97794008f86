"""Grading a formal proof: `lean` checks it in a cell of the sandbox.

Of a reply only the proof counts: it stands behind the row's own statement, so that no other statement is proved. What it may not hold
are commands that change what Lean reads or prints; which axioms were used Lean says itself, by the line behind the proof.
"""

import functools
import json
import os
import re
import shutil
import subprocess
import textwrap
from typing import Any

from decksmith.bench.benchmarks.graders.code import blocks, sound
from decksmith.bench.benchmarks.records import Grade, Task
from decksmith.bench.sandbox import pool
from decksmith.bench.sandbox.cell import Limits
from decksmith.core.stream import Fault

SECONDS = 300.0  # of CPU time of a proof
LIMITS = Limits(wall=SECONDS, memory=24 << 30, processes=64, disk=1 << 30, open_files=20_000)
AXIOMS = {"propext", "Classical.choice", "Quot.sound"}  # those that Mathlib stands on
# Commands that change what Lean reads, prints or checks behind them.
BARRED = re.compile(
    r"(?<![\w.'])(?:axiom|macro(?:_rules)?|syntax|notation3?|(?:in|pre|post)fix[lr]?|elab(?:_rules)?|run_(?:cmd|tac|elab|meta)|by_elab"
    r"|unsafe|implemented_by|extern|initialize|builtin_\w+|import|debug\.\w+)(?![\w'])|#\w"
)
COMMENT = re.compile(r"--[^\n]*|/-.*?-/", re.S)
NO_LEAN = "lean is not on the path; install Lean and Mathlib, or make image-lean (containers/lean.def) and grade with IMAGES=off"


def grade(task: Task, text: str) -> Grade:
    """The grade of a reply by `expected`: {statement, name}. Raises Fault without Lean, and where the row's own statement fails."""
    statement, name = task["expected"]["statement"], task["expected"]["name"]
    statement = re.sub(r"\bsorry\s*$", "", statement).rstrip()
    said = proof(text, name)
    if said is None:
        return {"verdict": "no_answer"}
    plain = said if '"' in said else COMMENT.sub("", said)
    if barred := BARRED.search(plain):
        return _wrong(said, f"a proof may not hold {barred[0]}")
    problem = _problem(statement, name, said)
    if problem is None:
        return {"verdict": "right", "answer": said[:2000]}
    if own := _fails(statement, name):
        raise Fault("judge", "statement-fails", f"Lean does not take the row's statement: {own}")
    return _wrong(said, problem)


def _wrong(said: str, why: str) -> Grade:
    return {"verdict": "wrong", "answer": said[:2000], "detail": {"said": why[:300]}}


def proof(text: str, name: str) -> str | None:
    """The tactics of a reply: of its last block of Lean what stands behind the statement of `name`, else the whole block, indented."""
    text = text.rpartition("</think>")[2]
    found = [block.code for block in blocks(text) if block.language in ("lean", "lean4", "")]
    if not found:
        return None
    code = found[-1]
    stated = re.search(rf"\b(?:theorem|lemma)\s+{re.escape(name)}(?![\w'.]).*?:=", code, re.S)
    start = stated.end() if stated else 0
    tactics = re.compile(r"\s*by\b[ \t]*").match(code, start)
    if stated and not tactics:  # a term
        term = textwrap.indent(textwrap.dedent(code[start:]).strip(), "  ")
        return textwrap.indent(f"exact (\n{term})\n", "  ")
    start = tactics.end() if tactics else start
    column = start - code.rfind("\n", 0, start) - 1  # columns have a meaning
    whole = textwrap.dedent(" " * column + code[start:]).strip()
    return textwrap.indent(whole, "  ") + "\n" if whole else None


def _problem(statement: str, name: str, said: str) -> str | None:
    """What Lean has against a proof; None where it takes it. Raises Fault without Lean."""
    source = f"{statement}\n{said}\n"
    asked = source.count("\n") + 1  # the line that has Lean name the axioms
    code, messages = _checked(f"{source}#print axioms _root_.{name}\n")
    errors = [message for message in messages if message.get("severity") == "error"]
    if errors or code:
        return str(errors[0].get("data")) if errors else f"lean ended with status {code}"
    named = [m for m in messages if (m.get("pos") or {}).get("line") == asked]
    if len(named) != 1 or name not in str(named[0].get("data")):
        return "Lean did not say which axioms the proof uses"
    used = re.search(r"depends on axioms: \[(.*?)\]", str(named[0].get("data")), re.S)
    strange = set(re.findall(r"[^\s,]+", used[1])) - AXIOMS if used else set()
    return f"it rests on {', '.join(sorted(strange))}" if strange else None


@functools.lru_cache(maxsize=4096)
def _fails(statement: str, name: str) -> str | None:
    """What Lean has against a statement whose proof is left out; None where that is all that is missing."""
    found = _problem(statement, name, "  sorry\n")
    return None if found == "it rests on sorryAx" else found or "it is proved without a proof"


@functools.cache
def _lean() -> tuple[str, list[str], pool.CellPool]:
    """Lean's program, the folders of its libraries, and cells that show both. Raises Fault."""
    if pool.image("lean").exists() and shutil.which("apptainer"):
        cells = pool.CellPool(LIMITS, warm=0, walls="apptainer", image="lean")
        return "/usr/local/bin/lean", [], cells
    lean = shutil.which("lean")
    if lean is None:
        raise Fault("judge", "no-lean", NO_LEAN)
    asked = subprocess.run([lean, "--print-prefix"], capture_output=True, text=True, timeout=120)
    prefix = asked.stdout.strip()
    if asked.returncode or not os.path.isfile(f"{prefix}/bin/lean"):
        raise Fault(
            "judge", "no-lean", f"{lean} --print-prefix names no Lean: {asked.stderr[-200:]}"
        )
    paths = [os.path.realpath(path) for path in os.environ.get("LEAN_PATH", "").split(":") if path]
    shown = [os.path.realpath(prefix), *paths]
    return f"{shown[0]}/bin/lean", paths, pool.CellPool(LIMITS, warm=0, read=shown)


def _checked(source: str) -> tuple[int, list[dict[str, Any]]]:
    """Lean's exit status and messages on a text. Raises Fault where it had no processor or no cell; one that ends it is the text's doing."""
    lean, paths, cells = _lean()
    path = f"os.environ['LEAN_PATH'] = {':'.join(paths)!r}\n" if paths else ""
    program = (
        f"import os, subprocess, sys\nos.environ['HOME'] = os.getcwd()\n{path}"
        f"sys.exit(subprocess.run([{lean!r}, '--json', 'Proof.lean']).returncode)"
    )
    (ran,) = sound(lambda: [cells.run(program, files={"Proof.lean": source})])
    if "Traceback" in ran.stderr:
        raise Fault("judge", "no-lean", f"lean does not start in its cell: {ran.stderr[-200:]}")
    if ran.status not in ("ok", "exit", "error"):
        return 1, [{"severity": "error", "data": f"{ran.status}: {ran.message}"}]
    lines = ran.stdout.splitlines()
    return ran.code or 0, [json.loads(line) for line in lines if line.startswith("{")]
