"""Public Slidev talks as deck records, for the judge card: what people make is what a check may not alarm about.

  make real-decks                    fetches the repositories of real-decks.toml from GitHub
  make real-decks FROM=folder        takes them from git folders there, OWNER+NAME or OWNER/NAME
  make real-decks STOCK=1            also has stock Slidev export each deck, and writes docs/maintain/stock.md: how far the two differ

Nothing of theirs is kept in the repository. A picture that is not in their repository, or is an SVG, is replaced by a small
grey one, and a component that is neither HTML's nor Slidev's is taken away with its tags and scripts: what is left is the deck as
far as it can be had without their packages and without the network. `changed` of a record names the slides that are no longer as
their author made them: they say nothing about false alarms.
"""

import argparse
import fnmatch
import hashlib
import io
import json
import posixpath
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1] / "lib"), str(HERE.parent)]

import bench_render  # noqa: E402
import numpy as np  # noqa: E402
from decksmith.core import stream  # noqa: E402
from decksmith.core.records import Record  # noqa: E402
from decksmith.measure.decks import clean  # noqa: E402
from decksmith.measure.decks.parser import Deck  # noqa: E402
from PIL import Image  # noqa: E402

LIST = HERE / "real-decks.toml"
PICTURE = re.compile(
    r"(!\[[^\]\n]*\]\(|\b(?:src|image|background|url)\s*[:=]\s*[\"']?)([^\s\"')>]+)"
)
FORMS = (".png", ".jpg", ".jpeg", ".gif", ".svg", ".webp", ".avif")
# Tags of HTML and of what Slidev brings; all else is a component of theirs.
OURS = set(
    "a b blockquote br button center code details div em figure figcaption font footer h1 h2 h3 h4 h5 h6 header hr i iframe "
    "img input kbd label li main mark ol p pre s section small span strike strong style sub summary sup svg path g circle rect "
    "table tbody td th thead tr u ul video source template transform arrow toc link tweet youtube v-click v-clicks v-after "
    "v-switch v-drag lightordark autofittext slidecurrentno slidestotal renderwhen vclick vclicks bluesky".split()
)
TAG = re.compile(r"</?([A-Za-z][\w.-]*)([^<>]*)>")


class Repository:
    """A git folder at a commit."""

    def __init__(self, name: str, commit: str, folder: Path) -> None:
        self.name, self.commit, self.folder = name, commit, folder
        names = self.git("ls-tree", "-r", "-z", "--name-only", commit).decode()
        self.files = set(names.split("\0"))

    def git(self, *words: str) -> bytes:
        said = ["git", "-C", str(self.folder), *words]
        return subprocess.run(said, check=True, capture_output=True).stdout

    def read(self, path: str) -> bytes:
        return self.git("show", f"{self.commit}:{path}")


def opened(entry: dict[str, str], source: Path | None, kept: Path) -> Repository:
    """A repository of the list, from `source` or fetched into `kept`. Ends with a sentence where it cannot be had."""
    owner, name = entry["name"].split("/")
    if source:
        places = [source / f"{owner}+{name}", source / owner / name]
        places += [place / "repo" for place in places]
        found = [p for p in places if (p / "HEAD").is_file() or (p / ".git").exists()]
        if not found:
            sys.exit(f"real_decks.py: no git folder {places[0]} or {places[1]}")
        return Repository(entry["name"], entry["commit"], found[-1])
    folder = kept / f"{owner}+{name}"
    if not folder.is_dir():
        kept.mkdir(parents=True, exist_ok=True)
        url = f"https://github.com/{entry['name']}"
        words = ["git", "clone", "--quiet", "--bare", "--filter=blob:none", url, f"{folder}.tmp"]
        if subprocess.run(words).returncode:
            sys.exit(f"real_decks.py: {url} cannot be fetched; give FROM=a folder that has it")
        Path(f"{folder}.tmp").rename(folder)
    return Repository(entry["name"], entry["commit"], folder)


def picture(repository: Repository, path: str, address: str) -> tuple[bytes, str] | None:
    """(data, ending) of a picture of their repository that a deck names by `address`, as PNG where it is no JPEG; None
    where there is none or Pillow cannot read it (SVG)."""
    home, address = posixpath.dirname(path), address.split("?")[0].lstrip("/")
    places = [posixpath.normpath(f"{home}/{folder}{address}") for folder in ("", "public/")]
    theirs = next((place for place in places if place in repository.files), None)
    if not theirs:
        return None
    data = repository.read(theirs)
    try:
        with Image.open(io.BytesIO(data)) as opened_picture:
            if opened_picture.format == "JPEG":
                return data, "jpg"
            return (data if opened_picture.format == "PNG" else png(opened_picture)), "png"
    except OSError:
        return None


def png(picture: Image.Image) -> bytes:
    buffer = io.BytesIO()
    picture.convert("RGBA").save(buffer, "PNG")
    return buffer.getvalue()


def pictured(repository: Repository, path: str, text: str, folder: Path) -> tuple[str, set[int]]:
    """The deck with every picture in `folder`/images, theirs or a grey one; and the lines of the grey ones."""
    lost = set()

    def one(match: re.Match[str]) -> str:
        address = match[2].split("?")[0]
        if not address.lower().endswith(FORMS) and not address.startswith("http"):
            return match[0]
        if match[1].startswith("url") or "layout" in match[1]:
            return match[0]
        found = picture(repository, path, address)
        if not found:
            lost.add(text.count("\n", 0, match.start()) + 1)
        data, ending = found or (png(Image.new("RGB", (64, 36), "#8a8f98")), "png")
        name = f"images/{hashlib.sha256(data).hexdigest()[:16]}.{ending}"
        stream.write(folder / name, data)
        return match[1] + name

    return PICTURE.sub(one, text), lost


def inlined(repository: Repository, path: str, text: str) -> str:
    """The deck with the slides of other files in the place of those that name them by `src`."""
    deck = Deck.parse(text)
    text = deck.text
    for slide in reversed(deck.slides[1:]):
        file, _, some = str(slide.frontmatter.get("src", "")).partition("#")
        home = "" if file.startswith("/") else posixpath.dirname(path)
        place = posixpath.normpath(posixpath.join(home, file.lstrip("/")))
        if not file or some or slide.frontmatter.get("hide") or place not in repository.files:
            continue
        theirs = repository.read(place).decode("utf-8", "replace")
        theirs = inlined(repository, place, theirs).strip("\n")
        before, after = text[: slide.offset], text[slide.offset + len(slide.raw) :]
        between = "" if theirs.startswith("---") else "---\n\n"
        text = f"{before}{between}{theirs}\n{after}"
    return text


def ours(text: str) -> str:
    """The deck, line by line, without tags that are neither HTML's nor Slidev's, and without its scripts and addons."""
    plain = []
    fenced = scripted = False
    for line in re.sub(r"(?m)^addons:.*\n(?:[ \t]+.*\n)*", "", text).split("\n"):
        fenced ^= line.lstrip().startswith("```")
        if not fenced:
            begins = line.lstrip().startswith("<script")
            scripted, closes = scripted or begins, "</script>" in line
            line = "" if scripted else TAG.sub(lambda m: m[0] if m[1].lower() in OURS else "", line)
            scripted &= not closes
        plain.append(line)
    return "\n".join(plain)


def changed(before: str, after: str, lost: set[int]) -> list[int]:
    """The slides of a deck that are no longer as they were, by number; `lost`: lines of `after` whose picture is not theirs."""
    slides = Deck.parse(after).shown
    pairs = zip(Deck.parse(clean.clean(before)[0]).shown, slides, strict=True)
    told = {n for n, (old, new) in enumerate(pairs, 1) if old.content != new.content}
    grey_ones = {
        n for n, slide in enumerate(slides, 1) for line in lost if slide.start <= line <= slide.end
    }
    return sorted(told | grey_ones)


def records(source: Path | None, kept: Path, run: Path) -> Iterator[Record]:
    """A record a deck, whose markdown and pictures are in the run folder."""
    for entry in tomllib.loads(LIST.read_text())["repository"]:
        repository = opened(entry, source, kept)
        owner = entry["name"].split("/")[0]
        for number, path in enumerate(sorted(fnmatch.filter(repository.files, entry["decks"])), 1):
            record: Record = {"id": f"{owner}-{number:02}"}
            theirs = repository.read(path).decode("utf-8", "replace")
            theirs = inlined(repository, path, theirs)
            record["gen"] = {"text": ours(theirs)}
            record["deck"] = clean.parse(run, record)
            folder = run / record["id"]
            text = (folder / "deck.md").read_text()
            made, lost = pictured(repository, path, text, folder)
            stream.write(folder / "deck.md", made)
            del record["gen"]
            record["changed"] = changed(theirs, text, lost)
            yield {**record, "from": f"{entry['name']}@{entry['commit'][:8]}:{path}"}


# --- stock Slidev ---------------------------------------------------------------------------------

CELL = 4  # px: pictures are compared by the mean colours of squares of this side
VISIBLE = 26  # of 255: squares whose colours are farther apart differ
SAME = 0.01  # the share of squares below which two pictures of a slide count as the same
# The fonts of our page, which stock is given too: the first line of the reply is the deck's font faces, the second Slidev's `fonts`.
FONTS = """
const [renderer, theme] = process.argv.slice(1)
const { compile } = await import(`${renderer}/compile.mjs`)
const { slidevOptions } = await import(`${renderer}/runtime.mjs`)
const text = await new Response(process.stdin).text()
const css = (await compile(text, 1)).files.get('/@deck/style.css') ?? ''
const faces = (css.match(/@font-face\\s*\\{[^}]*\\}/g) ?? []).filter(face => !face.includes('/@katex/'))
const { sans, serif, mono } = (await slidevOptions(theme)).data.config.fonts
const look = { faces: faces.join('\\n'), fonts: { sans, serif, mono, provider: 'none', fallbacks: false } }
process.stdout.write(`decksmith ${JSON.stringify(look)}`, () => process.exit(0))
"""
RENDERER = HERE.parents[1] / "assets/renderer"


class Compared(NamedTuple):
    """A deck's slides here and in stock; for each of both the share of the picture that differs visibly; the slides of which the
    renderer says that something is wrong."""

    name: str
    ours: int
    stock: int
    shares: dict[int, float]
    told: set[int]


def export(run: Path, record: Record, tools: Path, chromium: Path) -> Path:
    """The folder of the pictures that stock Slidev exports of a deck, made where it is not there yet."""
    out = run / "stock" / record["id"]
    if (out / ".done").exists():
        return out
    text = (run / record["deck"]["path"]).read_text()
    deck = Deck.parse(text)
    theme = (
        deck.theme if (tools / f"node_modules/@slidev/theme-{deck.theme}").exists() else "default"
    )
    command = [str(bench_render.NODE), "--input-type=module", "-e", FONTS, str(RENDERER), theme]
    told = subprocess.run(command, input=text, stdout=subprocess.PIPE, text=True, check=True).stdout
    look = json.loads(told.rpartition("decksmith ")[2])
    named = ("addons", "export", "remoteAssets", "src")
    head = {key: value for key, value in deck.headmatter.items() if key not in named}
    head |= {"theme": theme, "fonts": look["fonts"]}
    lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()]
    start = deck.slides[0].content_offset
    body = re.sub(r"(?<![\w/.-])images/", "/images/", deck.text[start:])
    block = re.sub(r"(?<![\w/.-])images/", "/images/", "\n".join(lines))
    for icons in (RENDERER / "node_modules/@iconify-json").iterdir():
        if not (there := tools / "node_modules/@iconify-json" / icons.name).exists():
            there.symlink_to(icons)
    place = tools / f"deck-{record['id']}"
    shutil.rmtree(place, ignore_errors=True)
    pictures = (run / record["deck"]["path"]).parent / "images"
    (place / "public").mkdir(parents=True)
    if pictures.is_dir():
        shutil.copytree(pictures, place / "public/images")
    (place / "public/@font").symlink_to(RENDERER / "node_modules")
    (place / "style.css").write_text(look["faces"])
    (place / "slides.md").write_text(f"---\n{block}\n---\n\n{body}")
    command = [
        str(bench_render.NODE), str(tools / "node_modules/@slidev/cli/bin/slidev.mjs"), "export", "slides.md", "--format", "png",
        "--output", str(out), "--scale", "1", "--timeout", "240000", "--executable-path", str(chromium / "chromium"),
    ]  # fmt: skip
    environment = {
        "PATH": f"{bench_render.NODE.parent}:/usr/bin:/bin", "HOME": str(place / "home"), "LANG": "C.UTF-8", "TZ": "UTC",
        "LD_LIBRARY_PATH": str(chromium / "lib"), "FONTCONFIG_FILE": str(chromium / "fonts.conf"),
    }  # fmt: skip
    (place / "home").mkdir()
    try:
        for _ in range(3):  # Vite reloads a page at times, and the export ends
            done = subprocess.run(command, cwd=place, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)  # fmt: skip
            if not done.returncode and any(out.glob("*.png")):
                (out / ".done").touch()
                break
            print(f"{record['id']}: {(done.stdout + done.stderr)[-600:]}", file=sys.stderr)
    finally:
        shutil.rmtree(place)
    return out


def differing(ours: Path, stock: Path) -> float:
    """The share of squares whose mean colours differ visibly, wherever the one picture is moved by up to a pixel."""
    with Image.open(ours) as one, Image.open(stock) as other:
        size = one.size
        a, b = (np.asarray(picture.convert("RGB").resize(size), float) for picture in (one, other))
    across, down = size[0] // CELL, size[1] // CELL

    def means(pixels: np.ndarray) -> np.ndarray:
        whole = pixels[: down * CELL, : across * CELL]
        return whole.reshape(down, CELL, across, CELL, 3).mean(axis=(1, 3))

    least, there = np.full((down, across), np.inf), means(b)
    for x in (-1, 0, 1):
        for y in (-1, 0, 1):
            moved = means(np.roll(a, (y, x), (0, 1)))
            least = np.minimum(least, abs(moved - there).max(axis=2))
    return float((least > VISIBLE).mean())


def compared(run: Path, records: list[Record]) -> Iterator[Compared]:
    """Each deck here and in stock Slidev."""
    tools, chromium = bench_render.toolchain(), bench_render.browser()
    for record in records:
        made = export(run, record, tools, chromium)
        stock = {int(path.stem): path for path in made.glob("*.png")}
        mine = {int(Path(name).stem): run / name for name in record["render"]["slides"]}
        shares = {n: differing(mine[n], stock[n]) for n in sorted(mine) if n in stock}
        told = {error["slide"] for error in record["render"]["errors"]}
        yield Compared(record["id"], len(mine), len(stock), shares, told)


def table(rows: list[Compared]) -> Iterator[str]:
    """The page docs/maintain/stock.md, line by line."""
    shares = [share for row in rows for share in row.shares.values()]
    alike = sum(share < SAME for share in shares)
    equal = sum(row.ours == row.stock for row in rows)
    untold = [
        share
        for row in rows
        for n, share in row.shares.items()
        if share >= SAME and n not in row.told
    ]
    yield "# Public decks here and in stock Slidev\n"
    yield "Written by `make real-decks STOCK=1` from the list of tests/exam/real-decks.toml.\n"
    yield f"{equal} of {len(rows)} decks have as many slides as stock Slidev exports. {alike} of {len(shares)} slides look the same."
    yield f"Of the {len(shares) - alike} others, {len(shares) - alike - len(untold)} have an error that the renderer tells; {len(untold)} have none.\n"
    yield f"Pictures are compared by squares of {CELL} px, moved by at most one. A square differs where a mean colour is {VISIBLE} of 255 away."
    yield f"A slide looks the same where less than {SAME:.0%} of it differs. Stock is given our fonts, our icons and the same text.\n"
    yield "| deck | slides | in stock | look the same | with an error | others | differ by at most | slide |\n|---|---:|---:|---:|---:|---:|---:|---:|"
    for row in rows:
        differ = {n: share for n, share in row.shares.items() if share >= SAME}
        others = {n: share for n, share in differ.items() if n not in row.told}
        most = max(others, key=lambda n: others[n], default=0)
        last = f"{others[most]:.1%} | {most}" if others else "|"
        counts = len(row.shares) - len(differ), len(differ) - len(others), len(others)
        yield f"| {row.name} | {row.ours} | {row.stock} | {' | '.join(map(str, counts))} | {last} |"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--from", dest="source", type=Path)
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument(
        "--stock", action="store_true", help="rendered records on stdin: print the page"
    )
    given = parser.parse_args()
    if given.stock:
        print("\n".join(table([*compared(given.run, [json.loads(line) for line in sys.stdin])])))
        sys.exit()
    for one in records(given.source, given.run / "repositories", given.run):
        print(json.dumps(one))
