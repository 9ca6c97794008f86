#!/usr/bin/env python3
"""Write the pages that are made of the code.

  .venv/bin/python3 tests/pages.py [--check]

docs/maintain/architecture.md: the rooms by chapter, and which imports which. Its picture has an
arrow where one room imports another and no third lies between.
docs/maintain/CHAPTER.md: the modules of its rooms, below what people wrote there.
docs/scripts.md and docs/scripts/CHAPTER.md: what `--help` of every script says.
docs/variables.md: what can be chosen, from the heads of make/*.mk.
docs/measures.md: what the offline judge computes.
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

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
CHAPTERS: dict[str, list[str]] = PYPROJECT["decksmith"]["chapters"]
ROOMS = [room for rooms in CHAPTERS.values() for room in rooms]
# What a script is about, for those whose first room does not say it.
NOUNS = {
    "measure": ("deck", "run", "prompt", "record", "template"),
    "train": ("seed", "draft", "chat", "sft", "rl", "ckpt", "job", "model", "hub", "reward", "env"),
    "bench": ("bench", "eval"),
    "people": ("pair", "vote", "judge", "demo"),
}
GENERATED = "`make numbers` writes this page."


def imported(path: Path) -> set[str]:
    """The rooms that a file imports, at its top or inside a function."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("decksmith"):
            steps = {*node.module.split("."), *(alias.name for alias in node.names)}
            found |= steps & set(ROOMS)
    return found


def place(room: str) -> Path:
    """The folder of a room: models and core lie beside the chapters."""
    chapter = next(name for name, rooms in CHAPTERS.items() if room in rooms)
    return LIB / room if chapter == "core" else LIB / chapter / room


def arrows() -> dict[str, set[str]]:
    """Which other rooms each room imports."""
    graph = {}
    for room in ROOMS:
        found = set().union(*map(imported, place(room).rglob("*.py")))
        graph[room] = found & set(ROOMS) - {room}
    return graph


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


def scripts() -> list[Path]:
    """Every script, by name."""
    return sorted((ROOT / "bin").glob("*-*"))


def said(path: Path) -> str:
    """The docstring of a Python file."""
    return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""


def architecture() -> str:
    """docs/maintain/architecture.md."""
    graph = arrows()
    drawn = []
    for chapter, rooms in CHAPTERS.items():
        drawn += [f"  subgraph {chapter}", *(f"    {room}" for room in rooms), "  end"]
    drawn += [f"  {room} --> {other}" for room, other in direct(graph)]
    lines = [
        "# Architecture",
        "",
        "Small scripts in bin/ read records on stdin and write them to stdout; Make composes them.",
        "What they do lies in the rooms of lib/decksmith, which form five chapters. A room imports",
        f"only rooms below it; `make lint` checks that. {GENERATED}",
        "",
        "```mermaid",
        "graph TD",
        *drawn,
        "```",
        "",
        "An arrow stands where one room imports another and no third lies between.",
        "",
        "| chapter | room | what it is | imports | scripts that use it |",
        "|---|---|---|---|---|",
    ]
    for chapter, rooms in CHAPTERS.items():
        for room in rooms:
            says = said(place(room) / "__init__.py").split("\n\n")[0].replace("\n", " ")
            users = [path.name for path in scripts() if room in imported(path)]
            below = ", ".join(sorted(graph[room])) or "nothing"
            used = "every script" if room == "core" else ", ".join(users)
            lines.append(f"| [{chapter}]({chapter}.md) | {room} | {says} | {below} | {used} |")
    return "\n".join(lines)


def modules(room: str) -> list[str]:
    """A room's part of its chapter's page."""
    lines = [f"## {room}", "", said(place(room) / "__init__.py").replace("\n\n", "\n"), ""]
    lines += ["| module | what it does |", "|---|---|"]
    for path in sorted(place(room).rglob("*.py")):
        if path.name != "__init__.py":
            says = said(path).split("\n\n")[0].replace("\n", " ").replace("|", r"\|")
            name = path.relative_to(place(room)).with_suffix("").as_posix()
            lines.append(f"| {name} | {says} |")
    return [*lines, ""]


def chapter_page(chapter: str) -> str:
    """docs/maintain/CHAPTER.md: what people wrote above the first room, and its rooms."""
    path = ROOT / f"docs/maintain/{chapter}.md"
    mark = "<!-- The rest is made of the code: make numbers -->"
    written = path.read_text(encoding="utf-8").partition(mark)[0] if path.exists() else ""
    lines = [written.rstrip(), "", mark, ""]
    for room in CHAPTERS[chapter]:
        lines += modules(room)
    return "\n".join(lines)


def chapter_of(script: str) -> str:
    """The chapter that a script belongs to, by its noun."""
    noun = script.partition("-")[0]
    return next((chapter for chapter, nouns in NOUNS.items() if noun in nouns), "core")


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
    """docs/scripts.md: every script in a sentence."""
    lines = ["# Scripts", "", f"What each script does, by chapter. {GENERATED}", ""]
    for chapter in reversed(CHAPTERS):
        lines += [f"## {chapter.capitalize()}", "", "| script | what it does |", "|---|---|"]
        for path in scripts():
            if chapter_of(path.name) == chapter:
                link = f"[{path.name}](scripts/{chapter}.md#{path.name})"
                lines.append(f"| {link} | {said(path).splitlines()[0]} |")
        lines.append("")
    return "\n".join(lines)


def scripts_of(chapter: str) -> str:
    """docs/scripts/CHAPTER.md: what `--help` of its scripts says."""
    lines = [f"# Scripts: {chapter}", "", f"What `--help` of each script says. {GENERATED}", ""]
    for path in scripts():
        if chapter_of(path.name) == chapter:
            text = re.sub(r"(?m)^  (?=\S)", "    ", said(path))
            lines += [f"## {path.name}", "", text, ""]
            if rows := flags(path):
                lines += ["| flag | what it does |", "|---|---|", *rows, ""]
    return "\n".join(lines)


VARIABLE = re.compile(r"((?:^# .*\n)+)^([A-Z_]+) \?= ?(.*(?:\\\n.*)*)", re.M)
INCLUDES = ("measure", "train", "rehearse", "bench", "people", "setup", "maintain")


def variables_page() -> str:
    """docs/variables.md: every variable that a user may set."""
    lines = ["# Variables", "", "What can be chosen on the command line of make, or in config.mk."]
    lines += [GENERATED, ""]
    for name in INCLUDES:
        text = (ROOT / f"make/{name}.mk").read_text(encoding="utf-8")
        lines += [f"## {name.capitalize()}", ""]
        lines += ["| variable | default | what it says |", "|---|---|---|"]
        for comment, variable, default in VARIABLE.findall(text):
            says = " ".join(line[2:] for line in comment.splitlines()).replace("|", r"\|")
            shown = "worked out" if "$" in default else f"`{default}`" if default else ""
            lines.append(f"| `{variable}` | {shown} | {says} |")
        lines.append("")
    return "\n".join(lines)


def checks_page() -> str:
    """docs/checks.md: what the checks of the offline protocol look for, from their code, and their limits."""
    from decksmith.measure.judging import checks

    asked = {name: checks.SAYS[name] for name in checks.ASKED_CHECKS}
    said = {name: says for name, says in checks.SAYS.items() if name not in asked}
    lines = ["# The checks of the offline protocol", ""]
    lines += ["How they make a number: [protocol.md](protocol.md); how often each is right:"]
    lines += ["[judge-card.md](judge-card.md). `make numbers` writes this page."]
    for title, found in (("slide", said), ("thing that was asked for", asked)):
        lines += ["", f"| of each {title} | what it looks for |", "|---|---|"]
        lines += [f"| `{name}` | {says} |" for name, says in found.items()]
    text = (ROOT / "assets/protocols/offline.toml").read_text(encoding="utf-8")
    rows = re.findall(r"(?m)^(\w+) = (\S+) +# (.+)$", text[text.index("[checks]") :])
    lines += ["", "| limit | value | of what |", "|---|---|---|"]
    return "\n".join([*lines, *(f"| `{name}` | {value} | {says} |" for name, value, says in rows)])


PAGES = {
    "docs/maintain/architecture.md": architecture,
    "docs/checks.md": checks_page,
    "docs/scripts.md": scripts_page,
    "docs/variables.md": variables_page,
    **{f"docs/maintain/{name}.md": lambda name=name: chapter_page(name) for name in CHAPTERS},
    **{
        f"docs/scripts/{name}.md": lambda name=name: scripts_of(name)
        for name in CHAPTERS
        if any(chapter_of(path.name) == name for path in scripts())
    },
}


def main() -> int:
    behind = []
    for name, make in PAGES.items():
        page, text = ROOT / name, make().rstrip() + "\n"
        if "--check" not in sys.argv[1:]:
            page.parent.mkdir(parents=True, exist_ok=True)
            page.write_text(text, encoding="utf-8")
        elif not page.is_file() or page.read_text(encoding="utf-8") != text:
            behind.append(name)
    if behind:
        print(f"{' and '.join(behind)}: not what the code says; run: make numbers", file=sys.stderr)
    return 1 if behind else 0


if __name__ == "__main__":
    sys.exit(main())
