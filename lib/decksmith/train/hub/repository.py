"""A repository on the Hugging Face Hub: a folder made ready for it, how it differs, one commit that
sends the difference.
"""

import contextlib
import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict

from decksmith import __version__
from decksmith.core import cli, masking
from decksmith.train.hub import cards, models
from decksmith.train.hub.cards import FILES, NEEDED, Bundle

if TYPE_CHECKING:
    from huggingface_hub.hf_api import DatasetInfo, ModelInfo, RepoSibling

_BINARY = (".safetensors", ".gguf")


def bundle(folder: Path, kind: Literal["dataset", "adapter"], repo: str) -> Bundle:
    """Check the folder, write its card to FOLDER/card and return what is to be sent. Raises
    cli.BadData naming the file and line of what must not be published, cli.Missing without
    huggingface_hub."""
    models.library()
    found = {name: folder / name for name in FILES[kind] if (folder / name).is_file()}
    if lacks := [name for name in NEEDED[kind] if name not in found]:
        is_adapter = kind == "dataset" and (folder / "adapter_config.json").exists()
        hint = " (for an adapter: --kind adapter)" if is_adapter else ""
        raise cli.BadData(f"{folder}: no {lacks[0]}{hint}")
    made = Bundle(kind, repo, found)
    describe = cards.describe_dataset if kind == "dataset" else cards.describe_adapter
    made.files |= describe(made, folder / "card")
    _check_secrets(made)
    return made


def _check_secrets(made: Bundle) -> None:
    """Refuse to publish the value of a key or token that this process was given; note a path of
    this machine."""
    secrets = {name: value.encode() for value, name in masking.known(masking.SHORTEST).items()}
    for name, path in made.files.items():
        if path.suffix in _BINARY:
            continue
        data = path.read_bytes()
        if found := next((key for key, value in secrets.items() if value in data), None):
            words = f"{path}: holds the value of {found}; take it out before anything is published"
            raise cli.BadData(words)
        if str(cli.ROOT).encode() in data:
            made.notes.append(f"{name} names a path of this machine, {cli.ROOT}")


class FileChange(TypedDict):
    """A file against the one there."""

    path: str
    state: Literal["new", "same", "changed"]
    size: int
    sha256: str


class HubDifference(TypedDict):
    """A bundle against the newest revision there, which is None where there is no such repository."""

    revision: str | None
    private: bool | None
    files: list[FileChange]
    only_there: list[str]


class Repository:
    """One repository on the Hub, seen by the owner of HF_TOKEN. Raises cli.BadConfig when the token
    is absent, unknown or may not do this, cli.TryAgain when the Hub does not answer, cli.BadData
    when it refuses what is sent."""

    def __init__(self, made: Bundle):
        self.made = made
        token = os.environ.get("HF_TOKEN", "").strip()
        masking.add(token, "HF_TOKEN")
        if not token:
            raise cli.BadConfig(
                "HF_TOKEN is not set; make a token with write permission on the Hub's page settings/tokens and export it"
            )
        if not re.fullmatch(r"[!-~]+", token):
            raise cli.BadConfig("HF_TOKEN holds characters that no token has")
        endpoint = os.environ.get("HF_ENDPOINT") or None
        self.api = models.library().HfApi(endpoint=endpoint, token=token, library_name="decksmith")
        self.type = "dataset" if made.kind == "dataset" else "model"
        self.url = f"{self.api.endpoint}/{'datasets/' if self.type == 'dataset' else ''}{made.repo}"
        self.user: str | None = None
        self.names: dict[str, str] = {}  # {sha256: name} of files that are being sent
        with models.speaking(self._told):
            said = self.api.whoami()
        self.user = said["name"]
        self.role = ((said.get("auth") or {}).get("accessToken") or {}).get("role")

    def _told(self, error: BaseException) -> cli.Stop:
        """What to raise for it."""
        status = getattr(getattr(error, "response", None), "status_code", None)
        host, repo = self.api.endpoint, self.made.repo
        tokens = f"{host}/settings/tokens"
        if status == 401 and self.user is None:
            return cli.BadConfig(
                f"{host} does not know HF_TOKEN (401): make a token with write permission at {tokens}"
            )
        if status in (401, 403):
            return cli.BadConfig(
                f"{self._me()} may not do this with {repo} ({status}); a token with write permission for "
                f"{repo.split('/')[0]} is needed: {tokens}"
            )
        if status == 412:
            return cli.TryAgain(
                f"{repo} was changed by somebody else meanwhile; run again to see the difference"
            )
        said = masking.mask(str(error))
        for sha256, name in self.names.items():  # a refused upload is named by its hash alone
            said = said.replace(sha256, name)
        said = " ".join(said.split())[:300]
        is_refusal = status is not None and 0 < status < 500 and status != 429
        if is_refusal or type(error) is ValueError:
            return cli.BadData(f"the Hub refuses {repo}: {said}")
        return cli.TryAgain(
            f"the Hub did not answer: {said or type(error).__name__}; run again, what was uploaded is kept"
        )

    def _me(self) -> str:
        return f"{self.user} (role {self.role or 'unknown'})"

    def difference(self) -> HubDifference:
        """How the bundle differs from the newest revision there."""
        from huggingface_hub.errors import RepositoryNotFoundError

        info: ModelInfo | DatasetInfo | None = None  # not there, or hidden from this user
        with models.speaking(self._told), contextlib.suppress(RepositoryNotFoundError):
            info = self.api.repo_info(self.made.repo, repo_type=self.type, files_metadata=True)
        there = {one.rfilename: one for one in info.siblings or []} if info else {}
        files = [
            _compared(name, path, there.get(name)) for name, path in sorted(self.made.files.items())
        ]
        return {
            "revision": info.sha if info else None,
            "private": bool(info.private) if info else None,
            "files": files,
            "only_there": sorted(there.keys() - self.made.files.keys() - {".gitattributes"}),
        }

    def push(self, difference: HubDifference, public: bool) -> dict[str, str | None]:
        """Send what differs as one commit on the revision that was compared; returns `{"url",
        "revision"}`. A repository that is not there is made. Uploads that an interrupted push
        finished are not repeated."""
        from huggingface_hub import CommitOperationAdd

        repo, kind = self.made.repo, self.type
        if self.role == "read":
            raise cli.BadConfig(
                f"{self._me()} may only read; make a token with write permission at {self.api.endpoint}/settings/tokens"
            )
        revision = difference["revision"]
        if revision is None:
            with models.speaking(self._told):
                self.api.create_repo(repo, repo_type=kind, private=not public, exist_ok=True)
                info = self.api.repo_info(repo, repo_type=kind)
            check_visibility(repo, bool(info.private), public)
            revision = info.sha
        if changed := [file for file in difference["files"] if file["state"] != "same"]:
            self.names = {file["sha256"]: file["path"] for file in changed}
            names = [file["path"] for file in changed]
            with models.speaking(self._told):
                revision = self.api.create_commit(
                    repo,
                    repo_type=kind,
                    operations=[CommitOperationAdd(n, str(self.made.files[n])) for n in names],
                    parent_commit=revision,
                    commit_message=f"decksmith {__version__}: {', '.join(names)}",
                ).oid
        return {"url": self.url, "revision": revision}


def check_visibility(repo: str, private: bool | None, public: bool) -> None:
    """Raises cli.BadConfig when the repository is there and is not as private as asked."""
    if private is False and not public:
        raise cli.BadConfig(
            f"{repo} is there and public, but private is what was asked: --public if everybody may read it, else make it "
            "private on its settings page or name another --repo"
        )
    if private and public:
        raise cli.BadConfig(
            f"{repo} is there and private, but --public was asked: make it public on its settings page, or leave out --public"
        )


def _compared(name: str, path: Path, there: "RepoSibling | None") -> FileChange:
    data = path.read_bytes()
    sha256 = hashlib.sha256(data).hexdigest()
    if there is None:
        return {"path": name, "state": "new", "size": len(data), "sha256": sha256}
    if there.lfs:
        is_same = there.lfs.sha256 == sha256
    else:  # the object name that git gives a file
        is_same = there.blob_id == hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
    state: Literal["same", "changed"] = "same" if is_same else "changed"
    return {"path": name, "state": state, "size": len(data), "sha256": sha256}


def described(hub: Repository, difference: HubDifference, public: bool) -> Iterator[str]:
    """The difference as lines of text for whoever decides whether to push."""
    made, revision = hub.made, difference["revision"]
    if revision is None:
        wanted = "public" if public else "private"
        state = f"not there, or not for {hub.user} to see; --push makes it, {wanted}"
    else:
        state = f"revision {revision[:12]}, {'private' if difference['private'] else 'public'}"
    yield f"{hub.url} ({made.kind}, as {hub.user}): {state}"
    for file in difference["files"]:
        size, sha256 = file["size"], file["sha256"][:12]
        yield f"  {file['state']:<8}{file['path']}  {size:,} bytes, sha256 {sha256}"
    for name in difference["only_there"]:
        yield f"  stays   {name}  only there, left alone"
    yield f"the card: {made.files['README.md']}"
