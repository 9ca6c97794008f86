"""Public Slidev talks as deck records, for the judge card: what people make is what a check may not alarm about.

  make real-decks                    fetches the repositories of real-decks.toml from GitHub
  make real-decks FROM=folder        takes them from git folders there, OWNER+NAME or OWNER/NAME

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
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "lib"))

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
            record["gen"] = {"text": ours(theirs)}
            record["deck"] = clean.parse(run, record)
            folder = run / record["id"]
            text = (folder / "deck.md").read_text()
            made, lost = pictured(repository, path, text, folder)
            stream.write(folder / "deck.md", made)
            del record["gen"]
            record["changed"] = changed(theirs, text, lost)
            yield {**record, "from": f"{entry['name']}@{entry['commit'][:8]}:{path}"}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--from", dest="source", type=Path)
    parser.add_argument("--run", type=Path, required=True)
    given = parser.parse_args()
    for one in records(given.source, given.run / "repositories", given.run):
        print(json.dumps(one))
