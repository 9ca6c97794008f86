#!/usr/bin/env python3
"""Write docs/architecture.md and docs/scripts.md from the code.

  .venv/bin/python3 tests/pages.py [--check]

The first: the rooms, what each is for, and which imports which; its picture has an arrow where one room imports another
and no third room lies between them. The second: what `--help` of every script says.
"""

import ast
import importlib.util
import re
import sys
import tomllib
from importlib.machinery import SourceFileLoader
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parents[1]
LIB = ROOT / "lib/decksmith"
sys.path.insert(0, str(LIB.parent))


def layers() -> list[list[str]]:
    """The rooms from top to bottom, those of one line side by side: the contract of pyproject.toml."""
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    return [line.split(" | ") for line in contract["contracts"][0]["layers"]]


def imported(path: Path) -> set[str]:
    """The rooms that a file imports, at its top or inside a function."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("decksmith"):
            steps = node.module.split(".")
            found |= {steps[1]} if len(steps) > 1 else {alias.name for alias in node.names}
    return found


def arrows(rooms: list[str]) -> dict[str, set[str]]:
    """Which other rooms each room imports."""
    return {
        room: set().union(*map(imported, (LIB / room).rglob("*.py"))) & set(rooms) - {room}
        for room in rooms
    }


def direct(graph: dict[str, set[str]]) -> list[tuple[str, str]]:
    """The arrows that no path over a third room stands for."""

    def below(room: str) -> set[str]:
        return graph[room].union(*map(below, graph[room]))

    return [
        (room, other)
        for room, others in graph.items()
        for other in sorted(others)
        if not any(other in below(third) for third in others - {other})
    ]


def scripts(room: str) -> list[str]:
    """The scripts that import a room themselves."""
    return [path.name for path in sorted((ROOT / "bin").glob("*-*")) if room in imported(path)]


def table(room: str) -> str:
    """A room's part of the page."""
    text = ast.get_docstring(ast.parse((LIB / room / "__init__.py").read_text())) or ""
    first, _, rest = text.partition("\n\n")
    modules = sorted(path for path in (LIB / room).rglob("*.py") if path.name != "__init__.py")
    lines = [f"## {room}", "", first, "", rest.replace("\n\n", " "), ""]
    lines += ["| module | what it does |", "|---|---|"]
    for path in modules:
        source = path.read_text(encoding="utf-8")
        says = (ast.get_docstring(ast.parse(source)) or "").split("\n\n")[0].replace("\n", " ")
        says = re.sub(r"\|", r"\\|", says)
        name = path.relative_to(LIB / room).with_suffix("").as_posix()
        lines.append(f"| {name} | {says} |")
    return "\n".join(lines)


def architecture() -> str:
    """docs/architecture.md."""
    rooms = [room for line in layers() for room in line]
    graph = arrows(rooms)
    drawn = "\n".join(f"  {room} --> {other}" for room, other in direct(graph))
    table_of_scripts = "\n".join(
        f"| {room} | {', '.join(sorted(graph[room])) or 'nothing'} | {', '.join(scripts(room))} |"
        for room in rooms
        if room != "core"
    )
    return f"""# Architecture

Small scripts in bin/ read records on stdin and write them to stdout; Make composes them. What they do lies in
the rooms of lib/decksmith. A room imports only rooms below it; `make lint` checks that. `make numbers` writes
this page from the code.

```mermaid
graph TD
{drawn}
```

An arrow stands where one room imports another and no third lies between. Every room and every script imports core.

| room | imports | scripts that use it |
|---|---|---|
{table_of_scripts}

{chr(10).join(table(room) + chr(10) for room in rooms)}"""


def flags(path: Path) -> list[str]:
    """The rows of a script's table: flag or argument, what it does."""
    spec = importlib.util.spec_from_loader("script", SourceFileLoader("script", str(path)))
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    context = click.Context(script.main.command)
    rows = []
    for parameter in script.main.command.get_params(context):
        found = parameter.get_help_record(context)
        if found and found[1] and found[0] not in ("--help", "--version"):
            rows.append("| `{}` | {} |".format(*(re.sub(r"\|", r"\\|", text) for text in found)))
    return rows


def scripts_page() -> str:
    """docs/scripts.md."""
    parts, index = [], ["| script | what it does |", "|---|---|"]
    for path in sorted((ROOT / "bin").glob("*-*")):
        text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
        index.append(f"| [{path.name}](#{path.name}) | {text.splitlines()[0]} |")
        parts += [f"## {path.name}", "", re.sub(r"(?m)^  (?=\S)", "    ", text), ""]
        if rows := flags(path):
            parts += ["| flag | what it does |", "|---|---|", *rows, ""]
    return (
        "# Scripts\n\nWhat `--help` of each script says. `make numbers` writes this page.\n\n"
        + "\n".join([*index, "", *parts])
    )


VARIABLE = re.compile(r"((?:^# .*\n)+)^([A-Z_]+) \?= ?(.*(?:\\\n.*)*)", re.M)
CHAPTERS = ("measure", "train", "rehearse", "bench", "people", "setup", "maintain")


def variables_page() -> str:
    """docs/variables.md: every variable that a user may set, from the heads of make/*.mk."""
    lines = [
        "# Variables",
        "",
        "What can be chosen on the command line of make, or in config.mk, by chapter.",
    ]
    lines += ["A default in parentheses is worked out. `make numbers` writes this page.", ""]
    for chapter in CHAPTERS:
        text = (ROOT / f"make/{chapter}.mk").read_text(encoding="utf-8")
        lines += [f"## {chapter}", "", "| variable | default | what it says |", "|---|---|---|"]
        for comment, name, default in VARIABLE.findall(text):
            says = " ".join(line[2:] for line in comment.splitlines()).replace("|", "\\|")
            shown = (
                f"`{default}`" if default and "$" not in default else "(worked out)" * bool(default)
            )
            lines.append(f"| `{name}` | {shown} | {says} |")
        lines.append("")
    return "\n".join(lines)


PAGES = {
    "docs/architecture.md": architecture,
    "docs/scripts.md": scripts_page,
    "docs/variables.md": variables_page,
}


def main() -> int:
    behind = []
    for name, make in PAGES.items():
        page, text = ROOT / name, make().rstrip() + "\n"
        if "--check" not in sys.argv[1:]:
            page.write_text(text, encoding="utf-8")
        elif not page.is_file() or page.read_text(encoding="utf-8") != text:
            behind.append(name)
    if behind:
        print(f"{' and '.join(behind)}: not what the code says; run: make numbers", file=sys.stderr)
    return 1 if behind else 0


if __name__ == "__main__":
    sys.exit(main())
