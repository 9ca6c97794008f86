"""Graders held against what a careful person says of each reply: `make bench-labelled` writes docs/maintain/labelled.md.

`.venv/bin/python3 tests/exam/labelled.py` grades tests/exam/replies.jsonl with bench-grade and prints the page; `--write` writes it;
`--misses HALF` prints the replies of one half (seen, unseen) or set of LATER on which ours and the person part. A reply's half is a hash of its id: rules were mended by
the seen half alone.
"""

import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "lib")]

Row = dict[str, Any]
Decides = Callable[[Row], bool]
REPLIES = ROOT / "tests/exam/replies.jsonl"
BENCH = {"math": "math-500", "choice": "mmlu-pro"}
TITLES = {"math": "mathematics", "choice": "choices", "code": "programs"}
HALVES = ("seen", "unseen")
# What the rules decided as the person does before they were mended (2026-11-28), of the two halves.
BEFORE = {"math": (90, 79), "choice": (60, 68)}
# Later sets: what the rules as they stood decided as the person does, and of the unseen halves once more, after they were mended by
# the seen ones. Each set was committed with its labels before the rules were tried on it.
LATER = {
    "second-seen": ("second, seen", {"math": (93,), "choice": (48,), "code": (25,)}),
    "second-unseen": ("second, unseen", {"math": (89, 92), "choice": (46, 46), "code": (27, 29)}),
    "third": ("third", {"math": (85,), "choice": (55,)}),
    "fourth-seen": ("fourth, seen", {"math": (44,), "choice": (36,)}),
    "fourth-unseen": ("fourth, unseen", {"math": (54, 56), "choice": (36, 39)}),
    "fifth": ("fifth", {"math": (112,), "choice": (53,)}),
    "sixth": ("sixth", {"math": (52,), "choice": (27,)}),
    "seventh": ("seventh", {"math": (29,), "choice": (21,)}),
}


def rows() -> list[Row]:
    """The labelled replies, each with the half that it belongs to."""
    found = [json.loads(line) for line in REPLIES.read_text(encoding="utf-8").splitlines()]
    for row in found:
        row["half"] = HALVES[hashlib.sha256(row["id"].encode()).digest()[0] % 2]
        row["truth"] = row["right"]
    return found


def later(name: str) -> list[Row]:
    """The replies of a later set."""
    text = (ROOT / f"tests/exam/replies-{name}.jsonl").read_text(encoding="utf-8")
    return [row | {"truth": row["right"]} for row in map(json.loads, text.splitlines())]


def _record(row: Row) -> Row:
    """A labelled reply as bench-grade takes it."""
    fields = {"problem": row["question"], "question": row["question"], "prompt": row["question"]}
    if "choices" in row:
        fields["choices"] = row["choices"]
    task = {
        "bench": BENCH.get(row["kind"]),
        "fields": fields,
        "expected": row["expected"],
    }
    gen = {"text": row["reply"], "finish_reason": "stop"}
    if row["kind"] == "code":
        task["bench"] = row["bench"]
    return {"id": row["id"], "task": task, "gen": gen}


def ours(given: list[Row]) -> list[bool]:
    """Which replies bench-grade calls right."""
    done = subprocess.run(
        [ROOT / "bin/bench-grade"],
        input="".join(json.dumps(_record(row)) + "\n" for row in given),
        capture_output=True,
        text=True,
        env={**os.environ, "IMAGES": "off"},
        check=True,
    )
    return [json.loads(line)["grade"]["verdict"] == "right" for line in done.stdout.splitlines()]


# --- others on the same replies -------------------------------------------------------------------


def math_verify(row: Row) -> bool:
    """Math-Verify as its documentation has it: both texts parsed, then compared."""
    from math_verify import parse, verify

    gold = parse(f"${row['expected']}$", parsing_timeout=None)
    return bool(verify(gold, parse(row["reply"], parsing_timeout=None), timeout_seconds=None))


def nemo_math(row: Row) -> bool:
    """NeMo-Skills' place of an answer (the last box, else "The final answer is"), compared by Math-Verify."""
    _, mark, last = row["reply"].rpartition("\\boxed{")
    said = re.findall(r"The final answer is (.+)$", row["reply"], re.M)
    if not mark and not said:
        return False
    depth, inside = 1, ""
    for letter in last if mark else "":
        depth += (letter == "{") - (letter == "}")
        if not depth:
            break
        inside += letter
    return math_verify({**row, "reply": f"${inside if mark else said[-1]}$"})


def nemo_choice(row: Row) -> bool:
    """NeMo-Skills' letter: of the last box, else of the last "Answer: X"."""
    boxes = re.findall(r"\\boxed\{((?:[^{}]|\{[^{}]*\})*)\}", row["reply"])
    if boxes:
        alone = re.findall(r"\b[A-J]\b", boxes[-1])
        return bool(alone) and alone[-1] == row["expected"]
    stated = re.findall(r"(?i)answer\s*:\**\s*\**([A-J])\b", row["reply"])
    return bool(stated) and stated[-1].upper() == row["expected"]


def lm_eval_choice(row: Row) -> bool:
    """The filter of mmlu_pro in lm-eval."""
    found = re.findall(r"answer is \(?([ABCDEFGHIJ])\)?", row["reply"])
    return bool(found) and found[0] == row["expected"]


OTHERS: dict[str, dict[str, Decides]] = {
    "math": {"Math-Verify": math_verify, "NeMo-Skills' rule": nemo_math},
    "choice": {"lm-eval's filter": lm_eval_choice, "NeMo-Skills' rule": nemo_choice},
}


# --- the page -------------------------------------------------------------------------------------


def page(given: list[Row], verdicts: list[bool]) -> str:
    """docs/maintain/labelled.md."""
    lines = [
        "# Graders and a careful person",
        "",
        "Written by `make bench-labelled`. Replies of our own (tests/exam/replies.jsonl), each labelled by a person as right or wrong. "
        "About two in five are wrong: near misses, several answers at once, corrections, other units.",
        "The rules were mended by the seen half, without a look at the unseen one. When that was first measured, 118 of its 122 in "
        "mathematics were decided so (96.7 %), and all 99 choices. Then four forms were mended that other replies had shown. "
        "assets/graders.json, whose shares gates name, has those of the three newest sets together, when first asked (below). One label was "
        'corrected later: `\\sqrt{12}` is no answer to "Simplify sqrt(12)".',
        "",
        "| kind | grader | seen | unseen | wrong, called right | right, called wrong |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for kind in BENCH:
        title = TITLES[kind]
        of = [row for row in given if row["kind"] == kind]
        own = [found for row, found in zip(given, verdicts, strict=True) if row["kind"] == kind]
        if before := BEFORE.get(kind):
            cells = [_share(n, of, half) for n, half in zip(before, HALVES, strict=True)]
            lines.append(f"| {title} | ours, before | {' | '.join(cells)} | | |")
        graders = {"ours": own}
        graders |= {name: [decides(row) for row in of] for name, decides in OTHERS[kind].items()}
        lines += [_line(title, name, of, found) for name, found in graders.items()]
    return "\n".join([*lines, *LATER_INTRO, *later_lines(), ""])


LATER_INTRO = [
    "",
    "## Later sets",
    "",
    'Replies mostly in free words, although prompts ask for a box, a line or a block: "marked" are those that do as asked. '
    "The fourth has several languages, cut-off, hedged, corrected and forged replies; half of it was shuffled away unseen. "
    "The fifth has 82 such replies and 90 by the embedded model of 135M, the sixth and the seventh are that model's alone; "
    "nine of theirs on which people differ were left out. Whoever wrote the fourth and fifth also mended the rules.",
    "First: by the rules as they stood. Mended: the unseen half, asked once after the rules were mended by the seen half. Now: by rules "
    "mended by all sets, and so no measurement. Wrong, called right at first: fourth, seen 5; unseen 1, mended 2; fifth 3; sixth and seventh none.",
    "",
    "| set | kind | first | mended | now | marked, now | wrong, called right now | Math-Verify, or lm-eval's filter | NeMo-Skills' rule |",
    "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
]
# Where a reply gives its answer as the prompt asks: a box, a line "Answer: X".
MARKED = {"math": r"\\(?:boxed|fbox)", "choice": r"(?i)answer:\W*[a-j]\b|\\boxed"}


def later_lines() -> list[str]:
    """The table of the later sets."""
    lines = []
    for name, (title, first) in LATER.items():
        of = later(name)
        pairs = list(zip(of, ours(of), strict=True))
        for kind, hits in first.items():
            mine = [(row, said) for row, said in pairs if row["kind"] == kind]
            good = sum(row["truth"] == said for row, said in mine)
            much = sum(said and not row["truth"] for row, said in mine)
            cells = [
                *(_of(n, len(mine)) for n in hits),
                *[""] * (2 - len(hits)),
                _of(good, len(mine)),
            ]
            kept = [(r, said) for r, said in mine if re.search(MARKED.get(kind, "```"), r["reply"])]
            cells.append(_of(sum(row["truth"] == said for row, said in kept), len(kept)))
            others = [
                _of(sum(other(r) == r["truth"] for r, _ in mine), len(mine))
                for other in OTHERS.get(kind, {}).values()
            ] or ["", ""]
            lines.append(
                f"| {title} | {TITLES[kind]} | {' | '.join([*cells, str(much), *others])} |"
            )
    return lines


def _of(hits: int, count: int) -> str:
    return f"{hits} of {count} ({100 * hits / count:.1f} %)" if count else ""


def _line(title: str, name: str, of: list[Row], found: list[bool]) -> str:
    pairs = list(zip(of, found, strict=True))
    cells = [
        _share(sum(row["truth"] == said for row, said in pairs if row["half"] == half), of, half)
        for half in HALVES
    ]
    much = sum(said and not row["truth"] for row, said in pairs)
    little = sum(row["truth"] and not said for row, said in pairs)
    return f"| {title} | {name} | {' | '.join(cells)} | {much} | {little} |"


def _share(hits: int, of: list[Row], half: str) -> str:
    return _of(hits, sum(row["half"] == half for row in of))


def main() -> None:
    given = later(sys.argv[2]) if sys.argv[2:] and sys.argv[2] in LATER else rows()
    verdicts = ours(given)
    if sys.argv[1:2] == ["--misses"]:
        for row, said in zip(given, verdicts, strict=True):
            if row.get("half", sys.argv[2]) == sys.argv[2] and said != row["truth"]:
                print(json.dumps([row["id"], row["truth"], row.get("expected"), row["reply"]]))
        return
    if sys.argv[1:2] != ["--write"]:
        print(page(given, verdicts), end="")
        return
    (ROOT / "docs/maintain/labelled.md").write_text(page(given, verdicts), encoding="utf-8")


if __name__ == "__main__":
    main()
