"""Public Slidev talks as deck records, for the judge card: what people make is what a check may not alarm about.

  make real-decks                    fetches the repositories of real-decks.toml from GitHub
  make real-decks FROM=folder        takes them from git folders there, OWNER+NAME or OWNER/NAME

Nothing of theirs is kept in the repository. A picture that is not in their repository, or is no PNG or JPEG, is replaced by a grey
one of the same place, and a component that is not ours is taken away with its tag: what is left is the deck as far as it can be
had without their packages and without the network. Slides that fail nevertheless are left out by whoever counts (`by_ids`).
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
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "lib"))

from decksmith.core import stream  # noqa: E402
from decksmith.measure.decks import clean  # noqa: E402

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


def pictured(repository: Repository, path: str, text: str, folder: Path) -> str:
    """The deck with every picture in `folder`/images: theirs, or a grey one."""
    from PIL import Image

    home = posixpath.dirname(path)
    lost = 0

    def one(match: re.Match[str]) -> str:
        nonlocal lost
        address = match[2].split("?")[0]
        if not address.lower().endswith(FORMS) and not address.startswith("http"):
            return match[0]
        if match[1].startswith("url") or "layout" in match[1]:
            return match[0]
        places = [posixpath.normpath(posixpath.join(home, address.lstrip("/")))]
        places += [posixpath.normpath(f"{home}/public/{address.lstrip('/')}")]
        theirs = next((place for place in places if place in repository.files), None)
        data = repository.read(theirs) if theirs else b""
        try:
            with Image.open(io.BytesIO(data)) as opened_picture:
                size, form = opened_picture.size, opened_picture.format
        except OSError:
            size, form = (64, 36), None
        if form not in ("PNG", "JPEG"):
            size = (64, 36)
            lost += 1
            buffer = io.BytesIO()
            Image.new("RGB", size, "#8a8f98").save(buffer, "PNG")
            data, form = buffer.getvalue(), "PNG"
        ending = {"PNG": "png", "JPEG": "jpg"}[form]
        name = f"images/{hashlib.sha256(data).hexdigest()[:16]}.{ending}"
        stream.write(folder / name, data)
        return match[1] + name

    made = PICTURE.sub(one, text)
    stream.write(folder / "lost-pictures", str(lost))
    return made


def ours(text: str) -> str:
    """The deck without tags that are neither HTML's nor Slidev's, and without its scripts and addons."""
    text = re.sub(r"(?s)<script.*?</script>", lambda m: "\n" * m[0].count("\n"), text)
    text = re.sub(r"(?m)^addons:.*\n(?:[ \t]+.*\n)*", "", text)
    plain = []
    inside = False
    for line in text.split("\n"):
        if line.lstrip().startswith("```"):
            inside = not inside
        if not inside:
            line = TAG.sub(lambda m: m[0] if m[1].lower() in OURS else "", line)
        plain.append(line)
    return "\n".join(plain)


def records(source: Path | None, kept: Path, run: Path):
    """A record a deck, whose markdown and pictures are in the run folder."""
    for entry in tomllib.loads(LIST.read_text())["repository"]:
        repository = opened(entry, source, kept)
        names = sorted(fnmatch.filter(repository.files, entry["decks"]))
        names = [name for name in names if not name.startswith(".")]
        owner = entry["name"].split("/")[0]
        for number, path in enumerate(names, 1):
            record = {"id": f"{owner}-{number:02}"}
            text = ours(repository.read(path).decode("utf-8", "replace"))
            record["gen"] = {"text": text}
            try:
                record["deck"] = clean.parse(run, record)
            except stream.Fault as fault:
                print(f"{record['id']} {path}: {fault}", file=sys.stderr)
                continue
            folder = run / record["id"]
            made = pictured(repository, path, (folder / "deck.md").read_text(), folder)
            stream.write(folder / "deck.md", made)
            del record["gen"]
            yield {**record, "from": f"{entry['name']}@{entry['commit'][:8]}:{path}"}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--from", dest="source", type=Path)
    parser.add_argument("--run", type=Path, required=True)
    given = parser.parse_args()
    for one in records(given.source, given.run / "repositories", given.run):
        print(json.dumps(one))
