#!/usr/bin/env python3
"""The pictures of docs/: take them, and say which are older than what they show.

  tests/pictures.py               take all but those that another command draws (make screenshots)
  tests/pictures.py FILE..        only these
  tests/pictures.py --drawn FILE  FILE was just drawn by its own command

docs/pictures.json has a line for each: the command, the picture's sha256, and what it shows, each with a hash. Whether that is today's is
told without a browser, so what is hashed is what can show: of a page's style and script not the comments, nor rules for paper and for
narrow windows; of the Python behind it the words alone; of a run the models, the prompts and the protocol's hash as the page has it. A
changed line of a script counts even where the first screen does not need it: which lines it needs, only a browser could say.
"""

import argparse
import ast
import asyncio
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / folder) for folder in ("lib", "tests/make", "tests/web", "tests/exam")]

from PIL import Image, ImageDraw, ImageFont  # noqa: E402

MANIFEST = "docs/pictures.json"
SUFFIXES = {".png", ".webp", ".jpg", ".jpeg", ".gif", ".svg"}
PAGES = ("*.md", "docs/**/*.md", "data/*/README.md")
IN_PAGE = re.compile(r"!\[([^\]]*)\]\(([^)\s:]+)\)")
COMMENT = re.compile(r"/\*.*?\*/|<!--.*?-->|\{#.*?#\}|(?:^|(?<=\s))//\s[^\n]*", re.S | re.M)
UNSEEN = re.compile(
    r"@media[^{]*(?:print|\bdark|max-width: ?\d{3}px)[^{]*\{(?:[^{}]|\{[^{}]*\})*\}"
)
TAKE = "make screenshots"


# What a picture shows, by name: a path (with * and the like), or `the KIND of PATH`.


def content(path: Path) -> str:
    """A file without what cannot show."""
    if path.suffix in (".css", ".js", ".j2", ".html"):
        return " ".join(UNSEEN.sub("", COMMENT.sub("", path.read_text("utf-8"))).split())
    if path.suffix == ".py":
        return ast.unparse(undocumented(path))
    return hashlib.sha256(path.read_bytes()).hexdigest()


def undocumented(path: Path) -> ast.Module:
    """A module without its docstrings."""
    tree = ast.parse(path.read_text("utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if ast.get_docstring(node) is not None:
                node.body[0] = ast.Pass()
    return tree


def words(path: Path) -> str:
    """The texts of a module that people may read: its strings with a space in them, sorted."""
    strings = (
        node.value for node in ast.walk(undocumented(path)) if isinstance(node, ast.Constant)
    )
    return "\n".join(sorted(text for text in strings if isinstance(text, str) and " " in text))


def colours(path: Path) -> str:
    """What a style names colours by: other pages take these alone of the report's."""
    return "\n".join(re.findall(r"^:root[^{]*\{[^}]*\}", path.read_text("utf-8"), re.M))


def part(path: Path, name: str) -> str:
    """A part of a page that tests/part.py wrote."""
    return path.read_text("utf-8").partition(f"<!-- part: {name} -->")[2].partition("<!-- part")[0]


def defaults(path: Path) -> str:
    """Which models `make baseline` asks, as they are called, and for how many prompts."""
    from decksmith.models import registry

    text = path.read_text("utf-8")
    names = setting(text, "MODEL").replace("$(REFERENCE)", "reference").split()
    return f"{', '.join(registry.model(name).label for name in names)}: {limit(text)} prompts"


def setting(text: str, name: str) -> str:
    """A variable's default in a makefile."""
    found = re.search(rf"^{name} \?= (.*)$", text, re.M)
    return found[1] if found else ""


def limit(text: str) -> str:
    """How many prompts `make baseline` takes."""
    return "".join(re.findall(r"\d+", setting(text, "LIMIT")))


def protocol_hash(path: Path) -> str:
    """The hash that the report of `make baseline` shows, of the code and prompts of `path`'s checkout."""
    from decksmith.core.protocol import Protocol
    from decksmith.measure.judging import identity
    from decksmith.measure.render import toolchain

    root, protocol = path.parents[2], Protocol.load(path)
    count = limit((root / "make/measure.mk").read_text("utf-8"))
    sample = [root / "bin/record-sample", "--protocol", path, "--shuffle", "--limit", count]
    prompts = (root / "data/prompts.jsonl").read_bytes()
    env = {**os.environ, "IMAGES": "off"}
    drawn = subprocess.run(sample, input=prompts, stdout=subprocess.PIPE, env=env, check=True)
    records = [json.loads(line) for line in drawn.stdout.splitlines()]
    records[0]["render"] = {"engine": toolchain.engine(protocol.render["scale"])}
    return str(identity.identity(protocol, records)["hash"])[:12]


def value(name: str, root: Path = ROOT) -> str:
    """What a name of the manifest stands for today: a few words, or a hash; empty where nothing is there."""
    what, _, pattern = name.rpartition(" of ")
    kind, _, title = what.removeprefix("the ").partition(" ")
    readers: dict[str, Callable[[Path], str]] = {
        "": content,
        "words": words,
        "colours": colours,
        "hash": protocol_hash,
        "defaults": defaults,
        "part": lambda path: part(path, title),
    }
    texts = [readers[kind](path) for path in sorted(root.glob(pattern))]
    if kind in ("hash", "defaults"):
        return "".join(texts)
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:12] if texts else ""


# Which picture is old.


def in_pages(root: Path) -> Iterator[tuple[str, str, str]]:
    """(page, words for who cannot see it, path) of each picture that a page shows."""
    for page in (page for pattern in PAGES for page in root.glob(pattern)):
        for alt, target in IN_PAGE.findall(page.read_text("utf-8")):
            path = Path(os.path.normpath(page.parent / target))
            yield page.relative_to(root).as_posix(), alt, path.relative_to(root).as_posix()


def behind(root: Path = ROOT) -> list[str]:
    """A sentence for each picture that is older than what it shows, that nothing knows or that no page shows."""
    manifest = json.loads((root / MANIFEST).read_text("utf-8"))
    shown = {path for _, _, path in in_pages(root)}
    there = {p.relative_to(root).as_posix() for p in (root / "docs").rglob("*")}
    there = {name for name in there if Path(name).suffix in SUFFIXES}
    found = [
        f"{name}: {MANIFEST} does not know it; take it by tests/pictures.py, or delete it"
        for name in sorted(there - manifest.keys())
    ]
    for name, line in manifest.items():
        if name not in there:
            found.append(f"{name} of {MANIFEST} is not there: {line['command']}")
            continue
        if name not in shown:
            found.append(f"{name}: no page shows it; delete it, and its line in {MANIFEST}")
        if line["sha256"] != sha256(root / name):
            found.append(f"{name} is not the picture that {line['command']} made")
        old = [what for what, was in line["shows"].items() if value(what, root) != was]
        found += [f"{name} is older than {what}: {line['command']}" for what in old]
    return found


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def note(name: str, shows: list[str], command: str = TAKE, root: Path = ROOT) -> None:
    """Write the line of a picture that was just made; lines of pictures that are gone go too."""
    file = root / MANIFEST
    lines = json.loads(file.read_text("utf-8")) if file.exists() else {}
    today = {what: value(what, root) for what in shows}
    if nothing := [what for what, now in today.items() if not now]:
        sys.exit(f"{name}: nothing is called {', '.join(nothing)}")
    lines[name] = {"command": command, "sha256": sha256(root / name), "shows": today}
    kept = {one: line for one, line in sorted(lines.items()) if (root / one).is_file()}
    file.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", "utf-8")


# Taking them. Each gets a folder that all share, and its file; it may say what else it shows.


def run(*command: object) -> None:
    """Run a command of this checkout; what it prints goes to stderr."""
    env = {**os.environ, "IMAGES": "off", "PYTHONPATH": f"{ROOT / 'lib'}:{ROOT / 'tests/tools'}"}
    subprocess.run([str(word) for word in command], cwd=ROOT, env=env, stdout=2, check=True)


def fresh(place: Path, *words: str) -> Path:
    """`make` with these words, in a root without results, keys and choices of this checkout's user."""
    import shadow

    root = place / "root"
    if not root.exists():
        shadow.make(root, [], (ROOT / "assets/models.toml").read_text("utf-8"))
        (root / "data/prompts.jsonl").unlink()
        for name in ("prompts.jsonl", "reference", "edits", "gold"):
            (root / "data" / name).symlink_to(ROOT / "data" / name)
    env = shadow.environment(root, OPEN="0")
    subprocess.run(["make", *words], cwd=root, env=env, stdout=2, check=True)
    return root


def report(place: Path, out: Path) -> None:
    """The first screen of the report of `make baseline`, as it is."""
    page = fresh(place, "baseline") / "results/reports/offline/index.html"
    if (today := value(HASH)) not in page.read_text("utf-8"):
        sys.exit(f"{page} does not show {today}, which is the protocol's hash")
    run(".venv/bin/node", "tests/web/drive.mjs", "screenshot", page, out)
    smaller(out)


def edit(place: Path, out: Path) -> None:
    """An edit, and what the three editors of a script make of it, side by side in their report."""
    fresh(place, "baseline", "PROTOCOL=edit", "LIMIT=3", f"MODEL={EDITORS}")
    page = place / "root/results/reports/edit/index.html"
    run(".venv/bin/node", "tests/web/drive.mjs", "shots", page, place / "edit")
    with Image.open(place / "edit/light-beside.png") as shown:
        shown.save(out)
    smaller(out)


def vote(_: Path, out: Path) -> None:
    run(".venv/bin/python3", "tests/web/test_vote.py", out)


def demo(_: Path, out: Path) -> None:
    run(".venv/bin/python3", "tests/web/test_demo_page.py", out)


def reference(place: Path, out: Path) -> None:
    """Of each reference deck the cover and its fourth slide."""
    scores = "results/runs/reference/offline/scores.jsonl"
    root = fresh(place, scores, "MODEL=reference", "LIMIT=12")
    decks = [json.loads(line) for line in (root / scores).read_text("utf-8").splitlines()]
    tiles = []
    for deck in sorted(decks, key=lambda one: str(one["id"])):
        for at in (0, 3):
            with Image.open((root / scores).parent / deck["render"]["slides"][at]) as slide:
                tiles.append((slide.convert("RGB"), ""))
    sheet(tiles, 4, out)


def defects(place: Path, out: Path) -> list[str]:
    """A planted defect of each check that a slide shows."""
    import checks_card

    found = asyncio.run(checks_card.pictures_of(place / "defects"))
    sheet([(one.picture, f"{one.check}\n{one.message}") for one in found], 3, out)
    return sorted({one.source for one in found})


WIDE, GAP = 1660, 16  # pixels of a sheet, twice what GitHub shows; between its tiles


def sheet(tiles: list[tuple[Image.Image, str]], across: int, out: Path) -> None:
    """One picture of many, in rows, each above its caption (a name, then a line)."""
    width = (WIDE - GAP * (across + 1)) // across
    height = width * tiles[0][0].height // tiles[0][0].width
    fonts = [ImageFont.truetype(ROOT / f"assets/web/fonts/inter-{w}.woff", 24) for w in (600, 400)]
    step = height + GAP + (96 if any(caption for _, caption in tiles) else 0)
    made = Image.new("RGB", (WIDE, GAP + step * -(-len(tiles) // across)), "white")
    draw = ImageDraw.Draw(made)
    for at, (picture, caption) in enumerate(tiles):
        x, y = GAP + at % across * (width + GAP), GAP + at // across * step
        made.paste(picture.resize((width, height), Image.Resampling.LANCZOS), (x, y))
        draw.rectangle((x - 1, y - 1, x + width, y + height), outline="#c8c6bf")
        name, _, said = caption.partition("\n")
        for number, line in enumerate([name, *textwrap.wrap(said, width // 13)[:2]]):
            font = fonts[min(number, 1)]
            draw.text((x, y + height + 6 + 28 * number), line, "#1c1d22", font)
    made.save(out)
    smaller(out)


def smaller(path: Path) -> None:
    import ballots

    ballots.smaller(path)


@dataclass
class Picture:
    """What a picture shows, and what takes it; without `take` it is drawn by `command`."""

    shows: list[str]
    take: Callable[[Path, Path], list[str] | None] | None = None
    command: str = TAKE


EDITORS = "edit-nothing edit-perfect edit-rewrite"
HASH = "the hash of assets/protocols/offline.toml"
EMBEDDED = "data/adapter/adapter.gguf"
PICTURES = {
    "docs/report.png": Picture(
        [
            *(f"assets/web/{name}" for name in ("report.html.j2", "report.css", "report.js")),
            *(f"the words of lib/decksmith/measure/results/{name}.py" for name in ("claims", "report", "tables")),
            *(HASH, "the defaults of make/measure.mk", EMBEDDED, "data/reference/*.md"),
        ],
        report,
    ),
    "docs/edit.png": Picture(
        [
            *(f"assets/web/report.{name}" for name in ("html.j2", "css", "js")),
            *("the words of make/edits.py", "data/edits/edits.jsonl", "data/edits/decks/*.md"),
        ],
        edit,
    ),
    "docs/vote.png": Picture(
        [
            *(f"assets/web/{name}" for name in ("vote.html.j2", "vote.css", "vote.js")),
            "the colours of assets/web/report.css",
            *("the words of lib/decksmith/people/study/vote_app.py", "data/gold/g003-*/*.md"),
        ],
        vote,
    ),
    "docs/demo.png": Picture(
        [
            *(f"assets/web/{name}" for name in ("demo.html.j2", "demo.css", "demo.js")),
            *("the words of lib/decksmith/people/demo/*.py", EMBEDDED),
        ],
        demo,
    ),
    "docs/reference.png": Picture(["data/reference/*.md"], reference),
    "docs/defects.png": Picture(
        [
            "tests/exam/planted_defects.py",
            *(f"the words of lib/decksmith/measure/judging/{name}.py" for name in ("checks", "legibility", "rendered")),
            "the words of lib/decksmith/measure/decks/lint.py",
        ],
        defects,
    ),
    "docs/maintain/pipeline-speed.png": Picture(
        ["tests/bench_pipeline.py", "the part bench-pipeline of docs/maintain/speed.md"],
        command="make bench-pipeline",
    ),
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description="Take the pictures of docs/.")
    parser.add_argument("file", nargs="*", help="only these")
    parser.add_argument("--drawn", metavar="FILE", help="it was just drawn by its own command")
    given = parser.parse_args()
    names = given.file or ([] if given.drawn else [*PICTURES])
    for name in filter(None, [*names, given.drawn]):
        if name not in PICTURES:
            parser.error(f"no picture {name}; there are: {', '.join(PICTURES)}")
    failed = []
    with tempfile.TemporaryDirectory(prefix="decksmith-pictures-") as place:
        for name in names:
            try:
                take(name, Path(place))
            except subprocess.CalledProcessError as error:
                words = " ".join(map(str, error.cmd))
                failed.append(f"{name} is as it was: {words} ended with {error.returncode}")
    if given.drawn:
        note(given.drawn, PICTURES[given.drawn].shows, PICTURES[given.drawn].command)
    if failed:
        sys.exit("\n".join(failed))


def take(name: str, place: Path) -> None:
    """Take a picture and write its line."""
    picture, began = PICTURES[name], time.monotonic()
    if not picture.take:
        print(f"{name}: {picture.command} draws it", file=sys.stderr)
        return
    more = picture.take(place, ROOT / name) or []
    note(name, picture.shows + more, picture.command)
    print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
