"""A repository on the Hugging Face Hub: a folder made ready for it, and one commit that sends what
differs there.
"""

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from decksmith import __version__
from decksmith.core import cli, masking
from decksmith.train.hub import cards, models
from decksmith.train.hub.cards import FILES, NEEDED, Bundle

if TYPE_CHECKING:
    from huggingface_hub.hf_api import DatasetInfo, ModelInfo

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

    def newest(self) -> tuple[str | None, bool | None]:
        """(the newest revision there, whether it is private); None where there is no such
        repository, or it is hidden from this user."""
        from huggingface_hub.errors import RepositoryNotFoundError

        info: ModelInfo | DatasetInfo | None = None
        with models.speaking(self._told), contextlib.suppress(RepositoryNotFoundError):
            info = self.api.repo_info(self.made.repo, repo_type=self.type)
        return (info.sha, bool(info.private)) if info else (None, None)

    def push(self, revision: str | None, public: bool) -> dict[str, str | None]:
        """Send what differs as one commit on this revision, where it is still the newest; returns
        `{"url", "revision"}`. A repository that is not there is made. Uploads that an interrupted
        push finished are not repeated."""
        from huggingface_hub import CommitOperationAdd

        repo, kind = self.made.repo, self.type
        if self.role == "read":
            raise cli.BadConfig(
                f"{self._me()} may only read; make a token with write permission at {self.api.endpoint}/settings/tokens"
            )
        if revision is None:
            with models.speaking(self._told):
                self.api.create_repo(repo, repo_type=kind, private=not public, exist_ok=True)
            revision, private = self.newest()
            check_visibility(repo, private, public)
        files = [CommitOperationAdd(name, str(path)) for name, path in self.made.files.items()]
        self.names = {one.upload_info.sha256.hex(): one.path_in_repo for one in files}
        with models.speaking(self._told):
            made = self.api.create_commit(
                repo,
                repo_type=kind,
                operations=files,
                parent_commit=revision,
                commit_message=f"decksmith {__version__}: {', '.join(self.made.files)}",
            )
        return {"url": self.url, "revision": made.oid}


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


def described(hub: Repository, revision: str | None, private: bool | None) -> Iterator[str]:
    """What would be sent where, as lines of text for whoever decides whether to push."""
    made = hub.made
    state = f"not there, or not for {hub.user} to see; --push makes it"
    if revision:
        state = f"revision {revision[:12]}, {'private' if private else 'public'}"
    yield f"{hub.url} ({made.kind}, as {hub.user}): {state}"
    for name, path in sorted(made.files.items()):
        yield f"  {name}  {path.stat().st_size:,} bytes"
    yield f"the card: {made.files['README.md']}"
