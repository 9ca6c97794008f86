"""Put the data of NLTK that the checkers read where NLTK looks: in this Python's prefix.

Punkt (sentences) and the stop words lie in the package llama-index-core, which uv.lock pins. No
package carries the tagger (words:start_verb of IFBench, 6 of its 294 rows): it is fetched from
NLTK's own index, pinned by sha256 (`make nltk-data`).
"""

import hashlib
import importlib.metadata
import io
import os
import shutil
import sys
import urllib.request
import zipfile
from pathlib import Path

from decksmith.core import cli

CARRIED = ("tokenizers/punkt_tab/english", "corpora/stopwords")
TAGGER = "taggers/averaged_perceptron_tagger_eng"
URL = f"https://raw.githubusercontent.com/nltk/nltk_data/gh-pages/packages/{TAGGER}.zip"
SHA256 = "6025f530624335c67d6547d44757b357b4e79bae030a0383e9887a92c1718f0b"
SECONDS = 30  # for the connection, and for each pause of the server


def copy(target: Path) -> None:
    """Copy what the package carries into `target`. No link will do: NLTK refuses a file that has
    two names, which uv makes.

    Raises cli.Missing without the package.
    """
    try:
        package = importlib.metadata.distribution("llama-index-core")
    except importlib.metadata.PackageNotFoundError:
        raise cli.Missing(
            "the package llama-index-core carries NLTK's data; install it: make .venv/.bench"
        ) from None
    for name in CARRIED:
        found = Path(str(package.locate_file("llama_index/core/_static/nltk_cache"))) / name
        _place(target / name, {path.name: path.read_bytes() for path in sorted(found.iterdir())})


def fetch(target: Path, url: str = URL, sha256: str = SHA256) -> None:
    """Fetch the tagger into `target`. Raises cli.TryAgain when another file comes, or none."""
    if (target / TAGGER).is_dir():
        return
    try:
        with urllib.request.urlopen(url, timeout=SECONDS) as answer:
            data = answer.read(1 << 26)
    except OSError as error:
        raise cli.TryAgain(
            f"no tagger from {url} ({error}); IFBench needs it for six rows; again: make nltk-data"
        ) from None
    if hashlib.sha256(data).hexdigest() != sha256:
        raise cli.TryAgain(f"{url} is not the tagger that is pinned here ({len(data)} bytes)")
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        _place(
            target / TAGGER,
            {
                Path(name).name: archive.read(name)
                for name in archive.namelist()
                if name.endswith(".json")
            },
        )


def _place(folder: Path, files: dict[str, bytes]) -> None:
    """Make a folder of `files` that is there as a whole or not at all."""
    if folder.is_dir() and all(path.stat().st_nlink == 1 for path in folder.iterdir()):
        return
    temporary = folder.with_name(f"{folder.name}.{os.getpid()}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    for name, data in files.items():
        (temporary / name).write_bytes(data)
    if folder.is_dir():
        shutil.rmtree(folder)  # hard-linked: NLTK refuses it
    try:
        temporary.rename(folder)
    except OSError:  # another process was first
        shutil.rmtree(temporary)
        if not folder.is_dir():
            raise


def main() -> None:
    target = Path(sys.prefix) / "nltk_data"
    copy(target)
    fetch(target)


if __name__ == "__main__":
    try:
        main()
    except cli.Stop as stop:
        print(f"nltk-data: {stop}", file=sys.stderr)
        sys.exit(stop.status)
