#!/usr/bin/env python3
"""What a reader has to hold, counted: lines and files of lib by room, scripts, flags, targets, variables, words.

  .venv/bin/python3 tests/house.py          print the figures
  .venv/bin/python3 tests/house.py --check  only say which limit is passed (LIMITS)

An annotation is loose where `Any` or the untyped `Record` stands in it: of parameters, results and names.
"""

import ast
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIB = ROOT / "lib/decksmith"
LIMITS = {"lines": 50_100, "files": 222, "loose": 7.0, "words": 29_200, "makefile": 200}


def modules() -> list[Path]:
    """The files of lib that git knows or would take."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "lib/decksmith"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    paths = [ROOT / name for name in names.split() if name.endswith(".py")]
    return sorted(path for path in paths if path.exists())


def lines(path: Path) -> int:
    """How many lines a file has."""
    return len(path.read_text(encoding="utf-8").splitlines())


def annotations(path: Path) -> list[ast.expr]:
    """Every annotation of a module: of parameters, results and names."""
    found: list[ast.expr | None] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.append(node.returns)
        elif isinstance(node, ast.arg | ast.AnnAssign):
            found.append(node.annotation)
    return [each for each in found if each is not None]


def is_loose(annotation: ast.expr) -> bool:
    """Whether `Any` or `Record` stands in an annotation."""
    names = {node.id for node in ast.walk(annotation) if isinstance(node, ast.Name)}
    return bool(names & {"Any", "Record"})


# What a command writes: a whole page, or the tables of a page.
GENERATED = re.compile(r"\A(?:.*\n){0,6}.*(?:Written by `make|writes this page)")
TABLES = re.compile(
    r"<!-- fields: \w+ -->\n(?:\|[^\n]*\n)*|^<!-- part: .*?(?=^<!-- part: |\Z)", re.S | re.M
)


def users_words() -> int:
    """The words that people wrote for people who use decksmith: README and the pages of docs/."""
    count = 0
    docs = ROOT / "docs"
    for page in [ROOT / "README.md", *docs.glob("*.md"), *docs.glob("records/*.md")]:
        text = page.read_text(encoding="utf-8")
        if not GENERATED.search(text):
            count += len(TABLES.sub("", text).split())
    return count


def matches(pattern: str, *globs: str) -> int:
    """How often a pattern begins a line in files."""
    paths = [path for each in globs for path in ROOT.glob(each)]
    return sum(len(re.findall(pattern, path.read_text(), re.M)) for path in paths)


def figures() -> dict[str, float]:
    """Each figure by its name."""
    hints = [each for path in modules() for each in annotations(path)]
    return {
        "lines": sum(map(lines, modules())),
        "files": len(modules()),
        "loose": round(100 * sum(map(is_loose, hints)) / len(hints), 1),
        "words": users_words(),
        "makefile": lines(ROOT / "Makefile"),
        "scripts": len(list((ROOT / "bin").glob("*-*"))),
        "flags": matches(r"@click\.option|@cli\.option|^\s*cli\.option", "bin/*-*"),
        "targets": matches(r"^###? [a-z.-]+: ", "Makefile", "make/*.mk"),
        "in help": matches(r"^## [a-z.-]+: ", "Makefile", "make/*.mk"),
        "variables": matches(r"^[A-Z_]+ \?=", "make/*.mk"),
    }


def main() -> int:
    found = figures()
    if "--check" in sys.argv[1:]:
        passed = {name: limit for name, limit in LIMITS.items() if found[name] > limit}
        for name, limit in passed.items():
            print(
                f"tests/house.py: {name}: {found[name]:g}, the limit is {limit:g}", file=sys.stderr
            )
        return 1 if passed else 0
    rooms: dict[str, list[int]] = {}
    for path in modules():
        parts = path.relative_to(LIB).parts
        chapter = parts[0] in ("people", "train", "bench", "measure")
        rooms.setdefault("/".join(parts[: 1 + chapter]), []).append(lines(path))
    for room, counts in rooms.items():
        if len(counts) > 1:
            print(f"{room:18} {sum(counts):7,} lines {len(counts):4} files")
    for name, value in found.items():
        print(f"{name:18} {value:7,g}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
