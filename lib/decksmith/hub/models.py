"""Base models in this site's cache of the Hub: which commit, whether all of it is there, and the fetch that brings it. So
are the GGUF files of assets/gguf.toml, of whose repositories one file is fetched.

The cache is HF_HOME's, in huggingface_hub's own layout, so that trainers and servers find a model by its name with the
Hub switched off. They look up `refs/main`; it is set to the commit that was fetched.
"""

import fcntl
import hashlib
import json
import os
import queue
import re
import shutil
import sys
import threading
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from decksmith.core import cli, masking, stream
from decksmith.hub import parcels
from decksmith.models import gguf

REVISIONS = cli.ROOT / "assets/recipes/revisions.toml"
# The same weights once more, in other programs' formats.
LEFT_OUT = ("*.gguf", "*.onnx", "*.h5", "*.msgpack", "*.ot", "*.tflite", "original/*", "metal/*")
TORCH = ("*.bin", "*.pt", "*.pth")  # left out where there are safetensors
SMALL = ("*.safetensors", *TORCH)  # what a tokenizer and a configuration do without
AT_ONCE = 4  # files on their way side by side
SPARE = 1 << 30  # bytes that stay free


def is_name(model: str | Path) -> bool:
    """Whether a base model is one of the Hub, `owner/name`: not the embedded one, which has no owner, and no folder."""
    return bool(re.fullmatch(r"\w[\w.-]*/[\w.-]+", str(model))) and not Path(model).exists()


def pinned(name: str) -> str:
    """The commit of assets/recipes/revisions.toml, else `main`."""
    return str(tomllib.loads(REVISIONS.read_text()).get(name, "main"))


def cache() -> Path:
    """The cache's folder: that of huggingface_hub, which HF_HOME and HF_HUB_CACHE move."""
    parcels.library()
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)


def snapshot(name: str) -> Path | None:
    """The folder of a model in the cache, at its pinned commit or, where none is pinned, at `refs/main`; None where
    nothing of it is there."""
    folder, commit = _folder(name), pinned(name)
    if commit == "main":
        try:
            commit = (folder / "refs/main").read_text().strip()
        except OSError:
            return None
    found = folder / "snapshots" / commit
    return found if found.is_dir() else None


def lacking(folder: Path) -> list[str]:
    """What a model's folder lacks before it can be trained or served: configuration, tokenizer, weights."""
    lacks = _small_lacking(folder)
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        files = sorted(set(json.loads(index.read_text())["weight_map"].values()))
        return lacks + [file for file in files if not (folder / file).is_file()]
    weights = [path for kind in SMALL for path in folder.glob(kind) if path.is_file()]
    return lacks + ([] if weights else ["model.safetensors"])


def _small_lacking(folder: Path) -> list[str]:
    lacks = [] if (folder / "config.json").is_file() else ["config.json"]
    if not any((folder / file).is_file() for file in ("tokenizer.json", "tokenizer.model")):
        lacks.append("tokenizer.json")
    return lacks


def need(model: str | Path) -> Path | None:
    """The whole folder of a model of the Hub in the cache; None for one that is none of the Hub.

    Raises cli.Missing with the command that fetches it.
    """
    name = str(model)
    if not is_name(name):
        return None
    folder = snapshot(name)
    lacks = lacking(folder) if folder else ["all of it"]
    if folder and not lacks:
        return folder
    some = ", ".join(lacks[:3]) + (f" and {len(lacks) - 3} more files" if len(lacks) > 3 else "")
    raise cli.Missing(
        f"{name} is not in {cache()} (it lacks {some}), and jobs do not ask the Hub; run: bin/model-fetch {name}"
    )


def fetch(name: str, revision: str | None = None, *, small: bool = False) -> Path:
    """Bring a model into the cache, all but its weights with `small`; returns its folder there.

    What is there already stays and is not asked for again (without `revision`), a file that was cut off goes on at its last byte, and of two fetches of one model
    the second waits. Raises cli.BadConfig where the Hub refuses (gated, a wrong token), cli.Missing for a model or
    revision that it does not have and for a disk that is too small, cli.TryAgain where it does not answer.
    """
    found = None if revision else snapshot(name)
    if found and not (_small_lacking(found) if small else lacking(found)):
        return found
    asked = revision or pinned(name)
    with _speaking(name, asked):
        return _Fetch(name, asked, small).run()


def fetch_gguf(name: str, revision: str | None = None) -> Path:
    """Bring a model of assets/gguf.toml into the cache and write its lock; returns the file there.

    The revision is `revision`, else the lock's, else the table's. Raises what `fetch` raises, and cli.BadData where
    the Hub's file is another than the one that is pinned.
    """
    entry, there = gguf.table()[name], gguf.lock(name)
    if there and not revision and gguf.is_whole(there):
        return Path(there["path"])
    asked = revision or (there["commit"] if there else entry.revision)
    pinned_sha256 = there["sha256"] if there else entry.sha256
    with _speaking(entry.repo, asked, gguf.command(name)):
        fetch_one = _Fetch(entry.repo, asked, only=entry.file)
        sha256 = fetch_one.files[0].lfs.sha256
        if pinned_sha256 and sha256 != pinned_sha256 and not revision:
            raise cli.BadData(
                f"{entry.repo} at {asked} has another {entry.file} (sha256 {sha256}) than {gguf.TABLE} or its lock pins "
                f"({pinned_sha256}); nothing was fetched. To take the Hub's: bin/model-fetch {name} --revision main"
            )
        path = fetch_one.run() / entry.file
    found = {
        "repo": entry.repo,
        "file": entry.file,
        "commit": fetch_one.commit,
        "sha256": sha256,
        "size": path.stat().st_size,
        "path": str(path),
    }
    stream.write(gguf.lock_path(name), json.dumps(found, indent=1) + "\n")
    return path


class _Fetch:
    """One fetch of one model, or with `only` of one file of its repository: `run`."""

    def __init__(self, name: str, revision: str, small: bool = False, only: str | None = None):
        self.hub = parcels.library()
        self.name, self.small, self.only = name, small, only
        self.token = os.environ.get("HF_TOKEN") or None
        self.info = self.hub.HfApi(library_name="decksmith").model_info(
            name, revision=revision, files_metadata=True, token=self.token
        )
        self.commit = str(self.info.sha)
        self.folder = _folder(name)
        self.files = self._one(only) if only else list(_wanted(self.info.siblings, small))

    def _one(self, name: str) -> list[Any]:
        """The file of this name. Raises cli.Missing naming those that are there instead."""
        large = [file for file in self.info.siblings if file.lfs]
        found = [file for file in large if file.rfilename == name]
        if not found:
            there = [file.rfilename for file in large if file.rfilename.endswith(".gguf")]
            raise cli.Missing(
                f"{self.name} at {self.commit[:12]} has no {name}; it has: {', '.join(there) or 'no GGUF file'}"
            )
        return found

    def run(self) -> Path:
        if not self.small:
            cli.say(f"{self.name} at {self.commit[:12]}: {_licence(self.info)}")
        with _alone(self.folder, self.name):
            left = [file for file in self.files if not self._is_there(file)]
            self._check_disk(left)
            if left and not self.small:
                self._download([file for file in left if file.lfs])
            # The small ones, and the names of all. Not snapshot_download: it would leave a list of all files of the repository,
            # and offline it then refuses a cache without those that are left out here (vLLM asks so).
            for file in self.files:
                self.hub.hf_hub_download(
                    self.name, file.rfilename, revision=self.commit, token=self.token
                )
            if not self.only:
                stream.write(self.folder / "refs/main", self.commit)
        return self.folder / "snapshots" / self.commit

    def _blob(self, file: Any) -> Path:
        return self.folder / "blobs" / str(file.lfs.sha256 if file.lfs else file.blob_id)

    def _part(self, file: Any) -> Path:
        blob = self._blob(file)
        return blob.with_name(f"{blob.name}.part")

    def _is_there(self, file: Any) -> bool:
        link = self.folder / "snapshots" / self.commit / file.rfilename
        return link.is_file() or self._blob(file).is_file()

    def _check_disk(self, left: list[Any]) -> None:
        todo = sum((file.size or 0) - _size(self._part(file)) for file in left)
        free = shutil.disk_usage(self.folder).free
        if todo + SPARE > free:
            raise cli.Missing(
                f"{self.name} needs {todo / 1e9:.1f} GB more and the disk of {self.folder} has {free / 1e9:.1f} GB free "
                "(1 GB of it stays so); free some, or set HF_HOME in slurm/site.env to a larger one and run this again"
            )

    def _download(self, files: list[Any]) -> None:
        """The large files, each into FILE.part, which a fetch that is killed leaves for the next."""
        waiting: queue.SimpleQueue[Any] = queue.SimpleQueue()
        for file in sorted(files, key=lambda file: -file.size):
            waiting.put(file)
        wrong: list[BaseException] = []
        bar = _Bar(sum(file.size for file in files), sum(_size(self._part(file)) for file in files))

        def work() -> None:
            while not wrong:
                try:
                    self._download_one(waiting.get_nowait(), bar)
                except queue.Empty:
                    return
                except BaseException as error:
                    wrong.append(error)

        # Daemons: Ctrl-C ends them with the process, and what they have is kept.
        workers = [threading.Thread(target=work, daemon=True) for _ in range(AT_ONCE)]
        for worker in workers:
            worker.start()
        while not wrong and any(worker.is_alive() for worker in workers):
            time.sleep(0.1)
        bar.close()
        if wrong:
            raise wrong[0]

    def _download_one(self, file: Any, bar: "_Bar") -> None:
        part, blob = self._part(file), self._blob(file)
        part.parent.mkdir(parents=True, exist_ok=True)
        url = self.hub.hf_hub_url(self.name, file.rfilename, revision=self.commit)
        with open(part, "ab") as out:
            self._bytes(url, out, file.size, bar)
        with open(part, "rb") as made:
            sha256 = hashlib.file_digest(made, "sha256").hexdigest()
        if sha256 != file.lfs.sha256:
            part.unlink()
            raise cli.TryAgain(
                f"{file.rfilename} of {self.name} arrived broken and was removed; run the same command again"
            )
        part.rename(blob)

    def _bytes(self, url: str, out: BinaryIO, size: int, bar: "_Bar") -> None:
        """The rest of a file behind what `out` has, through connections that break as long as each brings something."""
        from httpx import TransportError
        from huggingface_hub.file_download import http_get
        from huggingface_hub.utils import build_hf_headers

        headers = build_hf_headers(token=self.token, library_name="decksmith")
        while True:
            had = out.tell()
            try:
                http_get(
                    url,
                    out,
                    resume_size=had,
                    headers=headers,
                    expected_size=size,
                    _tqdm_bar=bar,
                )
                return
            except TransportError:
                if out.tell() <= had:
                    raise


class _Bar:
    """Bytes of all files together, for several threads: a live bar on a terminal, else a line per tenth."""

    def __init__(self, total: int, had: int):
        self.total, self.had, self.done, self.tenth = total, had, had, had * 10 // max(total, 1)
        self.began, self.lock, self.live = time.monotonic(), threading.Lock(), None
        if had:
            cli.say(f"{had / 1e9:.2f} GB of {total / 1e9:.2f} GB are there already")
        if sys.stderr.isatty():
            from tqdm import tqdm

            self.live = tqdm(total=total, initial=had, unit="B", unit_scale=True, desc=cli.NAME)

    def __enter__(self) -> "_Bar":
        return self

    def __exit__(self, *_: object) -> None:
        """A file's end; the others go on."""

    def update(self, size: int) -> None:
        with self.lock:
            self.done += size
            if self.live is not None:
                self.live.update(size)
            elif self.done * 10 // self.total > self.tenth:
                self.tenth = self.done * 10 // self.total
                self._say()

    def _say(self) -> None:
        pace = max(self.done - self.had, 1) / max(time.monotonic() - self.began, 0.001)
        left = (self.total - self.done) / pace
        cli.say(
            f"{self.done / 1e9:.2f} of {self.total / 1e9:.2f} GB, {pace / 1e6:.0f} MB/s, {left:.0f} s left"
        )

    def close(self) -> None:
        if self.live is not None:
            self.live.close()


def _folder(name: str) -> Path:
    return cache() / f"models--{name.replace('/', '--')}"


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _wanted(siblings: Any, small: bool) -> Iterator[Any]:
    """The files of a repository that a trainer or a server may read."""
    names = [file.rfilename for file in siblings]
    left_out = LEFT_OUT + (TORCH if any(name.endswith(".safetensors") for name in names) else ())
    for file in siblings:
        if not any(fnmatch(file.rfilename, kind) for kind in left_out + (SMALL if small else ())):
            yield file


def _licence(info: Any) -> str:
    card = info.card_data or {}
    name = card.get("license_name") or card.get("license") or "its card names none"
    link = card.get("license_link")
    gated = ", gated: its terms are accepted on its page" if info.gated else ""
    return f"licence {name}{f' ({link})' if link else ''}{gated}"


@contextmanager
def _alone(folder: Path, name: str) -> Iterator[None]:
    """One fetch of a model at a time, on this machine or (where the file system has locks) on all."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".fetch", "a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            cli.say(f"another fetch of {name} is under way; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def _speaking(name: str, revision: str, command: str | None = None) -> Iterator[None]:
    """Turn what huggingface_hub raises into one sentence with an exit status. `command`: what brings this model."""
    parcels.library()
    from httpx import HTTPError

    try:
        yield
    except (HTTPError, OSError, ValueError) as error:
        _stop(error, name, revision, command or f"bin/model-fetch {name}")


def _stop(error: BaseException, name: str, revision: str, command: str) -> NoReturn:
    from huggingface_hub import constants, errors

    page = f"{constants.ENDPOINT}/{name}"
    tokens = f"{constants.ENDPOINT}/settings/tokens"
    token = "HF_TOKEN" if os.environ.get("HF_TOKEN") else None
    if constants.HF_HUB_OFFLINE:
        raise cli.Missing(
            f"{name} is not in {cache()}, and HF_HUB_OFFLINE is set: no question goes to the Hub; where it is reached, run: "
            f"HF_HUB_OFFLINE=0 {command}"
        ) from None
    if isinstance(error, errors.GatedRepoError):
        said = f"HF_TOKEN's owner has not been let in: accept the terms on {page}"
        if not token:
            said = f"accept the terms on {page}, make a token at {tokens}, and write HF_TOKEN=.. into .env"
        raise cli.BadConfig(f"{name} is gated: {said}; then run this again") from None
    if isinstance(error, errors.RevisionNotFoundError):
        raise cli.Missing(
            f"{page} has no revision {revision}; name one with --revision (main is its newest)"
        ) from None
    status = getattr(getattr(error, "response", None), "status_code", None)
    if isinstance(error, errors.RepositoryNotFoundError) or status in (401, 403):
        who = (
            "HF_TOKEN is wrong or may not read it"
            if token
            else f"a private one wants HF_TOKEN ({tokens})"
        )
        raise cli.BadConfig(f"{page} is not there or not to be seen; {who}") from None
    if isinstance(error, OSError) and error.errno is not None and status is None:
        raise error
    said = " ".join(masking.mask(str(error)).split())[:200] or type(error).__name__
    raise cli.TryAgain(
        f"{constants.ENDPOINT} does not give {name}: {said}; run the same command again, what is fetched is kept; without a "
        "network, run it on a machine that has one and bring its HF_HOME"
    ) from None
