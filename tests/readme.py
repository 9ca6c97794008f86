"""Write the table of scripts into README.md from the scripts' own first sentences; with --check, only say whether it is right."""

import ast
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def table():
    lines = ["| script | what it does |", "|---|---|"]
    for path in sorted((ROOT / "bin").glob("*-*")):
        sentence = ast.get_docstring(ast.parse(path.read_text())).partition("\n")[0]
        lines.append(f"| `{path.name}` | {sentence} |")
    return "\n".join(lines)


def main():
    readme = ROOT / "README.md"
    old = readme.read_text()
    new = re.sub(r"\| script \| what it does \|\n\|---\|---\|\n(\|.*\n|@SCRIPTS@\n)*", lambda _: table() + "\n", old)
    if "--check" in sys.argv:
        sys.exit(new != old and "README.md is behind bin/: run make readme")
    readme.write_text(new)


if __name__ == "__main__":
    main()
