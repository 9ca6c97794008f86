#!/usr/bin/env python3
"""Run a program and put what it prints into its part of a page.

  .venv/bin/python3 tests/part.py docs/maintain/speed.md bench-render tests/bench_render.py [ARG..]

A part begins at `<!-- part: NAME -->` and ends where the next begins; a new one is put at the end.
Its headings are one level below the page's. A program that fails leaves the page as it was.
"""

import re
import subprocess
import sys
from pathlib import Path


def replaced(page: str, name: str, text: str) -> str:
    """The page with `text` as its part `name`."""
    mark = f"<!-- part: {name} -->\n"
    lowered = re.sub(r"(?m)^(#+ )", r"#\1", text.strip())
    new = f"{mark}{lowered}\n\n"
    if mark not in page:
        return f"{page.rstrip()}\n\n{new}".rstrip() + "\n"
    before, _, rest = page.partition(mark)
    following = re.search(r"(?m)^<!-- part: ", rest)
    after = rest[following.start() :] if following else ""
    return (before + new + after).rstrip() + "\n"


def main() -> int:
    page, name, program, *arguments = sys.argv[1:]
    command = [sys.executable, program, *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        return done.returncode
    path = Path(page)
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    path.write_text(replaced(text, name, done.stdout), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
