"""A repository on the Hugging Face Hub: how a parcel differs from what is there, and one commit that sends the difference."""

import difflib
import hashlib
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from decksmith import __version__
from decksmith.core import cli, masking, stream
from decksmith.hub import dataset, parcels
from decksmith.hub.parcels import SPLITS, Parcel, Rows

SHOWN, LINES = 5, 40  # ids in a sentence, lines of the card's difference

Difference = dict[str, Any]  # what `Repository.difference` returns


class Repository:
    """One repository on the Hub, seen by the owner of HF_TOKEN.

    Raises cli.BadConfig when the token is absent, unknown or may not do this, cli.TryAgain when the Hub does not answer,
    cli.BadData when it refuses what is sent.
    """

    def __init__(self, made: Parcel):
        self.made = made
        is_dataset = made.kind == "dataset"
        token = _token()
        hub = parcels.library()
        endpoint = os.environ.get("HF_ENDPOINT") or None
        self.api = hub.HfApi(endpoint=endpoint, token=token, library_name="decksmith")
        self.url = f"{self.api.endpoint}/{'datasets/' if is_dataset else ''}{made.repo}"
        self.where = {"repo_id": made.repo, "repo_type": "dataset" if is_dataset else "model"}
        self.user: str | None = None
        self.names: dict[str, str] = {}  # {sha256: name} of files that are being sent
        with self._speaking():
            said = self.api.whoami()
        self.user = said["name"]
        self.role = ((said.get("auth") or {}).get("accessToken") or {}).get("role")
        self.orgs = [org["name"] for org in said.get("orgs") or []]

    @contextmanager
    def _speaking(self) -> Iterator[None]:
        """Turn what huggingface_hub raises into one sentence with an exit status."""
        from httpx import HTTPError

        try:
            yield
        except (HTTPError, OSError, ValueError, RuntimeError) as error:
            # What an upload's thread raised comes inside of a RuntimeError.
            inner = error.__cause__ if type(error) is RuntimeError else None
            self._stop(inner or error)

    def _stop(self, error: BaseException) -> NoReturn:
        status = getattr(getattr(error, "response", None), "status_code", None)
        host, repo = self.api.endpoint, self.made.repo
        if status == 401 and self.user is None:
            raise cli.BadConfig(
                f"{host} does not know HF_TOKEN (401): make a token with write permission at {host}/settings/tokens"
            ) from None
        if status in (401, 403):
            raise cli.BadConfig(
                f"{self._me()} may not do this with {repo} ({status}); a token with write permission for "
                f"{repo.split('/')[0]} is needed: {host}/settings/tokens"
            ) from None
        if status == 412:
            raise cli.TryAgain(
                f"{repo} was changed by somebody else meanwhile; run again to see the difference"
            ) from None
        said = masking.mask(str(error))
        for sha256, name in self.names.items():  # a refused upload is named by its hash alone
            said = said.replace(sha256, name)
        said = " ".join(said.split())[:300]
        is_refusal = status is not None and 0 < status < 500 and status != 429
        if is_refusal or type(error) is ValueError:
            raise cli.BadData(f"the Hub refuses {repo}: {said}") from None
        raise cli.TryAgain(
            f"the Hub did not answer: {said or type(error).__name__}; run again, what was uploaded is kept"
        ) from None

    def _me(self) -> str:
        roles = [f"role {self.role}"] if self.role else []
        roles += [f"member of {org}" for org in self.orgs]
        return f"{self.user} ({', '.join(roles) or 'no role known'})"

    def _info(self) -> Any:
        """What the Hub says of the repository, or None when it is not there (or hidden from this user, which it does not
        tell)."""
        from huggingface_hub.errors import RepositoryNotFoundError

        with self._speaking():
            try:
                return self.api.repo_info(**self.where, files_metadata=True)
            except RepositoryNotFoundError:
                return None

    def difference(self) -> Difference:
        """How the parcel differs from the newest revision there (None: no such repository).

        `{"revision", "private", "files", "only_there", "rows", "card"}`; `rows` is None for an adapter, and when the old
        rows cannot be read.
        """
        info = self._info()
        there = {entry.rfilename: entry for entry in info.siblings or []} if info else {}
        files, old = [], {}  # old: contents of files that are compared line by line
        for name, path in sorted(self.made.files.items()):
            file, content = self._compared(name, path, there.get(name), info)
            files.append(file)
            if content is not None:
                old[name] = content
        return {
            "revision": info.sha if info else None,
            "private": bool(info.private) if info else None,
            "files": files,
            "only_there": sorted(set(there) - set(self.made.files) - {".gitattributes"}),
            "rows": _rows(old, self.made.rows) if self.made.kind == "dataset" else None,
            "card": _card_difference(
                old.get("README.md", b""), self.made.files["README.md"].read_bytes()
            ),
        }

    def _compared(
        self, name: str, path: Path, entry: Any, info: Any
    ) -> tuple[dict[str, Any], bytes | None]:
        """({"path", "state", "size", "sha256", "was"} of a file, its old content where that is compared by line)."""
        file = {"path": name, "size": path.stat().st_size, "sha256": _sha256(path), "was": None}
        by_line = path.suffix in (".jsonl", ".md")
        if not entry:
            return file | {"state": "new"}, None
        if entry.lfs:
            is_same = entry.lfs.sha256 == file["sha256"]
        else:
            is_same = entry.blob_id == _blob(path)
        if is_same:
            return file | {"state": "same"}, path.read_bytes() if by_line else None
        if entry.lfs and not by_line:
            return file | {"state": "changed", "was": entry.lfs.sha256}, None
        content = self._fetch(name, info.sha)
        return file | {"state": "changed", "was": hashlib.sha256(content).hexdigest()}, content

    def _fetch(self, name: str, revision: str) -> bytes:
        with tempfile.TemporaryDirectory() as folder, self._speaking():
            path = self.api.hf_hub_download(
                **self.where, filename=name, revision=revision, local_dir=folder
            )
            return Path(path).read_bytes()

    def push(self, difference: Difference, public: bool) -> dict[str, str]:
        """Send what differs as one commit on the revision that was compared; returns `{"url", "revision"}`.

        A repository that is not there is made. Uploads that an interrupted push finished are not repeated.
        """
        from huggingface_hub import CommitOperationAdd

        if self.role == "read":
            raise cli.BadConfig(
                f"{self._me()} may only read; make a token with write permission at {self.api.endpoint}/settings/tokens"
            )
        revision = difference["revision"]
        if revision is None:
            with self._speaking():
                self.api.create_repo(**self.where, private=not public, exist_ok=True)
                info = self.api.repo_info(**self.where)
            check_visibility(self.made.repo, bool(info.private), public)
            revision = info.sha
        if changed := [file for file in difference["files"] if file["state"] != "same"]:
            self.names = {file["sha256"]: file["path"] for file in changed}
            names = [file["path"] for file in changed]
            with self._speaking():
                revision = self.api.create_commit(
                    **self.where,
                    operations=[CommitOperationAdd(n, str(self.made.files[n])) for n in names],
                    parent_commit=revision,
                    commit_message=f"decksmith {__version__}: {_summary(difference)}",
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


def _token() -> str:
    token = os.environ.get("HF_TOKEN", "").strip()
    masking.add(token, "HF_TOKEN")
    if not token:
        raise cli.BadConfig(
            "HF_TOKEN is not set; make a token with write permission on the Hub's page settings/tokens and export it"
        )
    if not re.fullmatch(r"[!-~]+", token):
        raise cli.BadConfig("HF_TOKEN holds characters that no token has")
    return token


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _blob(path: Path) -> str:
    """The object name that git gives a file."""
    data = path.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def _rows(files: dict[str, bytes], new: Rows) -> dict[str, Any] | None:
    """The rows of `new` against those of the old files: `{"added", "changed", "removed": {split: [id]}, "moved":
    [(id, from, to)]}`, or None when an old file is not JSONL with ids."""
    old: Rows = {}
    for split in SPLITS:
        for line in files.get(f"{split}.jsonl", b"").splitlines():
            try:
                row = stream.loads(line)
            except ValueError:
                return None
            old[row["id"]] = (split, dataset.fingerprint(row))
    both = [ident for ident in new if ident in old]
    changed = [ident for ident in both if new[ident][1] != old[ident][1]]
    moved = [(ident, old[ident][0], new[ident][0]) for ident in both]
    return {
        "added": _by_split([ident for ident in new if ident not in old], new),
        "changed": _by_split(changed, new),
        "removed": _by_split([ident for ident in old if ident not in new], old),
        "moved": [(ident, was, now) for ident, was, now in moved if was != now],
    }


def _by_split(ids: list[str], rows: Rows) -> dict[str, list[str]]:
    """{split: [id]} of those splits that have one."""
    found = {split: [ident for ident in ids if rows[ident][0] == split] for split in SPLITS}
    return {split: here for split, here in found.items() if here}


def _card_difference(old: bytes, new: bytes) -> list[str]:
    before, after = (data.decode("utf-8", "replace").splitlines() for data in (old, new))
    lines = difflib.unified_diff(before, after, "README.md there", "README.md here", lineterm="")
    return list(lines)


def _summary(difference: Difference) -> str:
    """The difference in a commit's message."""
    rows = difference["rows"] or {}
    words = [word for word in rows if rows[word] and word != "moved"]
    if words:
        return ", ".join(f"{sum(map(len, rows[word].values()))} rows {word}" for word in words)
    return ", ".join(file["path"] for file in difference["files"] if file["state"] != "same")


def described(hub: Repository, difference: Difference, public: bool) -> list[str]:
    """The difference as lines of text for whoever decides whether to push."""
    made = hub.made
    lines = [
        f"{hub.url} ({made.kind}, as {hub.user}): {_visible(hub, difference, public)}",
        *map(_file_line, difference["files"]),
        *(f"  stays   {name}  only there, left alone" for name in difference["only_there"]),
    ]
    if difference["rows"]:
        lines += _row_lines(difference["rows"])
    elif made.kind == "dataset":
        lines.append("rows: those there cannot be read, so no row is compared")
    card, path = difference["card"], made.files["README.md"]
    state = next(file["state"] for file in difference["files"] if file["path"] == "README.md")
    if state != "changed":
        return [*lines, f"card: {'the same' if state == 'same' else 'new'}, {path}"]
    lines += ["card:", *(f"  {line}" for line in card[:LINES])]
    if card[LINES:]:
        lines.append(f"  .. {len(card) - LINES} lines more; the whole card: {path}")
    return lines


def _visible(hub: Repository, difference: Difference, public: bool) -> str:
    if difference["revision"] is None:
        wanted = "public" if public else "private"
        return f"not there, or not for {hub.user} to see; --push makes it, {wanted}"
    now = "private" if difference["private"] else "public"
    return f"revision {difference['revision'][:12]}, {now}"


def _file_line(file: dict[str, Any]) -> str:
    sha256, was = file["sha256"][:12], file["was"]
    change = f"{was[:12]} -> {sha256}" if was else sha256
    return f"  {file['state']:<8}{file['path']}  {file['size']:,} bytes, sha256 {change}"


def _row_lines(rows: dict[str, Any]) -> list[str]:
    if not any(rows.values()):
        return ["rows: the same"]
    lines = [
        f"rows of {split} {word}: {_named(ids)}"
        for word in ("added", "changed", "removed")
        for split, ids in rows[word].items()
    ]
    moved = rows["moved"]
    lines += [f"row {ident} moves from {old} to {new}" for ident, old, new in moved[:SHOWN]]
    if moved[SHOWN:]:
        lines.append(f"{len(moved) - SHOWN} more rows move")
    return lines


def _named(ids: list[str]) -> str:
    more = f" and {len(ids) - SHOWN} more" if ids[SHOWN:] else ""
    return f"{len(ids)} ({', '.join(ids[:SHOWN])}{more})"
