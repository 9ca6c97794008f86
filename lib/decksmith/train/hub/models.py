"""Base models in this site's cache of the Hub: which commit, whether all of it is there, and the
fetch that brings it. So are the GGUF files of assets/gguf.toml, of whose repositories one file
is fetched.

The cache is HF_HOME's, in huggingface_hub's own layout, so that trainers and servers find a model
by its name with the Hub switched off. They look up `refs/main`; it is set to the commit that was
fetched.
"""

import hashlib
import json
import os
import re
import shutil
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.pool import ThreadPool
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from decksmith.core import cli, masking, stream
from decksmith.models import gguf

if TYPE_CHECKING:
    from huggingface_hub.hf_api import ModelInfo, RepoSibling

REVISIONS = cli.ROOT / "assets/recipes/revisions.toml"
# The same weights once more, in other programs' formats.
LEFT_OUT = ("*.gguf", "*.onnx", "*.h5", "*.msgpack", "*.ot", "*.tflite", "original/*", "metal/*")
TORCH = ("*.bin", "*.pt", "*.pth")  # left out where there are safetensors
SMALL = ("*.safetensors", *TORCH)  # what a tokenizer and a configuration do without
AT_ONCE = 4  # files on their way side by side, in threads that end with the process
SPARE = 1 << 30  # bytes that stay free
STALE = 600  # seconds without a byte after which nobody is at work on a part of a file


def library() -> ModuleType:
    """The package huggingface_hub, without telemetry. Raises cli.Missing."""
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    if not sys.stderr.isatty():
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    try:
        import huggingface_hub
    except ImportError:
        words = "the package huggingface_hub is not installed; `make .venv/.hub` installs it"
        raise cli.Missing(words) from None
    return huggingface_hub


def is_name(model: str | Path) -> bool:
    """Whether a base model is one of the Hub, `owner/name`: not the embedded one, which has no
    owner, and no folder."""
    return bool(re.fullmatch(r"\w[\w.-]*/[\w.-]+", str(model))) and not Path(model).exists()


def pinned(name: str) -> str:
    """The commit of assets/recipes/revisions.toml, else `main`."""
    return str(tomllib.loads(REVISIONS.read_text()).get(name, "main"))


def cache() -> Path:
    """The cache's folder: that of huggingface_hub, which HF_HOME and HF_HUB_CACHE move."""
    library()
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)


def _folder(name: str) -> Path:
    return cache() / f"models--{name.replace('/', '--')}"


def snapshot(name: str) -> Path | None:
    """The folder of a model in the cache, at its pinned commit or, where none is pinned, at
    `refs/main`; None where nothing of it is there."""
    folder, commit = _folder(name), pinned(name)
    if commit == "main":
        try:
            commit = (folder / "refs/main").read_text().strip()
        except OSError:
            return None
    found = folder / "snapshots" / commit
    return found if found.is_dir() else None


def lacking(folder: Path, small: bool = False) -> list[str]:
    """What a model's folder lacks before it can be trained or served: configuration, tokenizer and,
    unless `small`, weights."""
    lacks = [] if (folder / "config.json").is_file() else ["config.json"]
    if not any((folder / file).is_file() for file in ("tokenizer.json", "tokenizer.model")):
        lacks.append("tokenizer.json")
    if small:
        return lacks
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        files = sorted(set(json.loads(index.read_text())["weight_map"].values()))
        return lacks + [file for file in files if not (folder / file).is_file()]
    weights = [path for kind in SMALL for path in folder.glob(kind) if path.is_file()]
    return lacks + ([] if weights else ["model.safetensors"])


def need(model: str | Path) -> Path | None:
    """The whole folder of a model of the Hub in the cache; None for one that is none of the Hub.
    Raises cli.Missing with the command that fetches it."""
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

    A model that is there already is not asked for again (without `revision`); of a fetch that was
    killed the files that were whole stay. Raises cli.BadConfig where the Hub refuses (gated, a
    wrong token), cli.Missing for a model or revision that it does not have and for a disk that is
    too small, cli.TryAgain where it does not answer.
    """
    found = None if revision else snapshot(name)
    if found and not lacking(found, small):
        return found
    asked = revision or pinned(name)
    with speaking(lambda error: _told(error, name, asked, f"bin/model-fetch {name}")):
        info = _info(name, asked)
        if not small:
            cli.say(f"{name} at {str(info.sha)[:12]}: {_licence(info)}")
        left_out = LEFT_OUT + (SMALL if small else ())
        if any(file.rfilename.endswith(".safetensors") for file in info.siblings or []):
            left_out += TORCH
        wanted = library().utils.filter_repo_objects(
            info.siblings or [], ignore_patterns=left_out, key=lambda file: file.rfilename
        )
        folder = _download(name, info, [*wanted])
        stream.write(_folder(name) / "refs/main", folder.name)
    return folder


def fetch_gguf(name: str, revision: str | None = None) -> Path:
    """Bring a model of assets/gguf.toml into the cache and write its lock; returns the file there.
    The revision is `revision`, else the lock's, else the table's. Raises what `fetch` raises, and
    cli.BadData where the Hub's file is another than the one that is pinned."""
    entry, there = gguf.table()[name], gguf.lock(name)
    if there and not revision and gguf.is_whole(there):
        return Path(there["path"])
    asked = revision or (there["commit"] if there else entry.revision)
    pinned_sha256 = there["sha256"] if there else entry.sha256
    with speaking(lambda error: _told(error, entry.repo, asked, gguf.command(name))):
        info = _info(entry.repo, asked)
        files = {one.rfilename: one for one in info.siblings or [] if one.lfs}
        file = files.get(entry.file)
        if not file or not file.lfs:
            others = ", ".join(name for name in files if name.endswith(".gguf"))
            raise cli.Missing(
                f"{entry.repo} at {str(info.sha)[:12]} has no {entry.file}; it has: {others or 'no GGUF file'}"
            )
        sha256 = file.lfs.sha256
        if pinned_sha256 and sha256 != pinned_sha256 and not revision:
            raise cli.BadData(
                f"{entry.repo} at {asked} has another {entry.file} (sha256 {sha256}) than {gguf.TABLE} or its lock pins "
                f"({pinned_sha256}); nothing was fetched. To take the Hub's: bin/model-fetch {name} --revision main"
            )
        cli.say(f"{entry.repo} at {str(info.sha)[:12]}: {_licence(info)}")
        path = _download(entry.repo, info, [file]) / entry.file
    found: dict[str, object] = {"repo": entry.repo, "file": entry.file, "commit": str(info.sha)}
    found |= {"sha256": sha256, "size": path.stat().st_size, "path": str(path)}
    stream.write(gguf.lock_path(name), json.dumps(found, indent=1) + "\n")
    return path


def _info(name: str, revision: str) -> "ModelInfo":
    api = library().HfApi(library_name="decksmith")
    found: ModelInfo = api.model_info(name, revision=revision, files_metadata=True)
    return found


def _download(name: str, info: "ModelInfo", files: "list[RepoSibling]") -> Path:
    """Bring files of a commit into the cache; returns the commit's folder there. Not
    snapshot_download: it would leave a list of all files of the repository, and offline it then
    refuses a cache without those that are left out here (vLLM asks so)."""
    hub, commit = library(), str(info.sha)
    folder = _folder(name) / "snapshots" / commit
    left = [file for file in files if not (folder / file.rfilename).is_file()]
    size = sum(file.size or 0 for file in left)
    _folder(name).mkdir(parents=True, exist_ok=True)
    for part in _folder(name).glob("blobs/*.incomplete"):  # of a fetch that was killed
        if part.stat().st_mtime < time.time() - STALE:
            part.unlink(missing_ok=True)
    free = shutil.disk_usage(_folder(name)).free
    if size + SPARE > free:
        raise cli.Missing(
            f"{name} needs {size / 1e9:.1f} GB more and the disk of {cache()} has {free / 1e9:.1f} GB free "
            "(1 GB of it stays so); free some, or set HF_HOME in slurm/site.env to a larger one and run this again"
        )
    if left != files:
        cli.say(f"{len(files) - len(left)} of {len(files)} files are there already")

    def bring(file: "RepoSibling") -> None:
        path = hub.hf_hub_download(name, file.rfilename, revision=commit)
        if file.lfs:  # over plain HTTP the library looks at the size alone
            _check_sha256(Path(path), file.lfs.sha256)

    with ThreadPool(AT_ONCE) as pool:
        for _ in pool.imap_unordered(bring, left):
            pass
    return folder


def _check_sha256(path: Path, sha256: str) -> None:
    """Raises cli.TryAgain, and removes the file, where its bytes are not those that were named."""
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != sha256:
        path.resolve().unlink()
        path.unlink(missing_ok=True)
        raise cli.TryAgain(
            f"{path.name}: what came is not what the Hub names (sha256 {found}, not {sha256}); "
            "it was removed: run this again"
        )


def _licence(info: "ModelInfo") -> str:
    from huggingface_hub import ModelCardData

    card = info.card_data or ModelCardData()
    name = card.get("license_name") or card.get("license") or "its card names none"
    link = f" ({card.get('license_link')})" if card.get("license_link") else ""
    gated = ", gated: its terms are accepted on its page" if info.gated else ""
    return f"licence {name}{link}{gated}"


@contextmanager
def speaking(told: Callable[[BaseException], Exception]) -> Iterator[None]:
    """Turn what huggingface_hub raises into what `told` makes of it: one sentence with an exit status."""
    library()
    from httpx import HTTPError

    try:
        yield
    except (HTTPError, OSError, ValueError, RuntimeError) as error:
        # What an upload's thread raised comes inside of a RuntimeError.
        inner = error.__cause__ if type(error) is RuntimeError else None
        raise told(inner or error) from None


def _told(error: BaseException, name: str, revision: str, command: str) -> Exception:
    """What to raise for it."""
    from huggingface_hub import constants, errors

    page = f"{constants.ENDPOINT}/{name}"
    tokens = f"{constants.ENDPOINT}/settings/tokens"
    token = os.environ.get("HF_TOKEN")
    if constants.HF_HUB_OFFLINE:
        return cli.Missing(
            f"{name} is not in {cache()}, and HF_HUB_OFFLINE is set: no question goes to the Hub; where it is reached, run: "
            f"HF_HUB_OFFLINE=0 {command}"
        )
    if isinstance(error, errors.GatedRepoError):
        said = f"HF_TOKEN's owner has not been let in: accept the terms on {page}"
        if not token:
            said = f"accept the terms on {page}, make a token at {tokens}, and write HF_TOKEN=.. into .env"
        return cli.BadConfig(f"{name} is gated: {said}; then run this again")
    if isinstance(error, errors.RevisionNotFoundError):
        words = f"{page} has no revision {revision}; name one with --revision (main is its newest)"
        return cli.Missing(words)
    status = getattr(getattr(error, "response", None), "status_code", None)
    if isinstance(error, errors.RepositoryNotFoundError) or status in (401, 403):
        who = f"a private one wants HF_TOKEN ({tokens})"
        if token:
            who = "HF_TOKEN is wrong or may not read it"
        return cli.BadConfig(f"{page} is not there or not to be seen; {who}")
    if isinstance(error, OSError) and error.errno is not None and status is None:
        return error
    said = " ".join(masking.mask(str(error)).split())[:200] or type(error).__name__
    return cli.TryAgain(
        f"{constants.ENDPOINT} does not give {name}: {said}; run the same command again, what is fetched is kept; without a "
        "network, run it on a machine that has one and bring its HF_HOME"
    )
