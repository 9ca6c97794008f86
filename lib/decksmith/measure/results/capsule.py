"""Capsules: everything that runs rest on in one tar, from which replay.py derives every number again.

It holds what was paid for (the model's replies, a vision judge's raw words), what the experiment fixed (protocol, judge's
instructions, the models' names and parameters), what came of it, and hashes of the toolchain.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import subprocess
import tarfile
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from decksmith import __version__
from decksmith.core import cli, config_files, stream
from decksmith.core.protocol import Protocol
from decksmith.core.records import Record, expanded, sample_of
from decksmith.measure.decks import conditions
from decksmith.measure.decks.conditions import Condition
from decksmith.measure.judging import identity
from decksmith.measure.results import layout
from decksmith.models import registry

Entries = dict[str, bytes | Path]  # the files of a capsule by their paths in it

FILES = ("scores.jsonl", "summary.json", "protocol.json", "prompts.jsonl")  # of a run
FORMAT = 2
PACKAGES = ("assets/renderer/package-lock.json", "assets/engine/package-lock.json")
LOCKS = ("uv.lock", *PACKAGES, "containers/images.lock")
CODE = ("lib/decksmith/**/*.py", "assets/renderer/*.mjs", "bin/*-*")
# Of a model's entry in the registry: what it is called, and what its requests depend on.
ENTRY = ("label", "color", "slug", "params", "extra_body", "rename", "drop", "sees")
REVISIONS = "journal/revise-reply.jsonl"  # of a run: what a model said to its decks' findings
MOST, LARGEST, WHOLE = 200_000, 512 << 20, 8 << 30  # members, bytes of one, bytes of all
NAME = r"[A-Za-z0-9][A-Za-z0-9._~+-]{0,127}"
_MEMBER = re.compile(
    rf"capsule\.json|compare\.json|containers/images\.lock|assets/protocols/{NAME}\.toml|assets/prompts/{NAME}\.txt|runs/{NAME}/"
    rf"(scores\.jsonl|summary\.json|protocol\.json|prompts\.jsonl|gen\.jsonl|condition\.json|revise\.jsonl|{NAME}/images/{NAME}|{NAME}/judge/[0-9]{{1,3}}\.txt)"
)


def toolchain() -> dict[str, str | None]:
    """What decides the numbers besides the capsule: `{name: sha256}` of locks and code, and the git revision where there is one."""
    found: dict[str, str | None] = {
        name: sha256((cli.ROOT / name).read_bytes())
        for name in LOCKS
        if (cli.ROOT / name).is_file()
    }
    code = [path for each in CODE for path in cli.ROOT.glob(each)]
    found["code"] = stream.fingerprint(
        [[str(path.relative_to(cli.ROOT)), sha256(path.read_bytes())] for path in sorted(code)]
    )
    return {**found, "revision": cli.git("rev-parse", "HEAD")}


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


# Packing


def pack(folders: Sequence[Path], out: Path) -> Path:
    """Write the capsule of finished runs into the folder `out`; returns its path, `<runs>-<hash of the file>.tar`.

    The same runs give the same bytes. Raises cli.Missing for a file that is not there, cli.BadData when a run cannot be replayed:
    its protocol changed since, or a picture is gone.
    """
    entries: Entries = {}
    slides: dict[str, dict[str, str]] = {}
    models: dict[str, Record] = {}
    places = {layout.run_name(folder): folder.resolve() for folder in folders}
    names = [layout.run_name(folder) for folder in folders]
    if len(places) < len(names):
        raise cli.BadData("two of these runs have one name; a capsule tells them apart by it")
    for folder, name in zip(folders, names, strict=True):
        files = {file: _read(folder / file) for file in FILES}
        records = [record for _, record in stream.records(folder / "scores.jsonl")]
        protocol = _unchanged(folder, files, records)
        under = _under(folder, records, protocol)
        if under:
            files["condition.json"] = _read(folder / "condition.json")
        if under and under.revise:
            kept = stream.journal(folder / REVISIONS)
            files["revise.jsonl"] = b"".join(line for line, _ in kept)
        files["gen.jsonl"] = _replies(folder, records, under)
        entries |= {f"runs/{name}/{file}": data for file, data in files.items()}
        entries |= _assets(protocol)
        said = [(record.get("judge") or {}).get("replies") or [] for record in records]
        entries |= {f"runs/{name}/{path}": folder / path for paths in said for path in paths}
        models |= _models(records, protocol)
        shown = [(record.get("render") or {}).get("slides") or [] for record in records]
        slides[name] = {path: sha256(_read(folder / path)) for paths in shown for path in paths}
    entries["compare.json"] = _dumps(compared(places, cli.ROOT))
    if (cli.ROOT / LOCKS[-1]).is_file():
        entries[LOCKS[-1]] = cli.ROOT / LOCKS[-1]
    about = {
        "format": FORMAT,
        "version": __version__,
        "runs": names,
        "toolchain": toolchain(),
        "models": models,
        "slides": slides,
    }
    entries["capsule.json"] = _dumps(about)
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=out, suffix=".tmp") as file:
        _write(file, entries)
        file.seek(0)
        digest = hashlib.file_digest(file, "sha256").hexdigest()[:12]
        path = out / f"{'+'.join(names)[:100]}-{digest}.tar"
        os.chmod(file.name, 0o644)
        path.unlink(missing_ok=True)
        os.link(file.name, path)
    return path


def _under(folder: Path, records: list[Record], protocol: Protocol) -> Condition | None:
    """The condition of a run. Raises cli.BadData for one whose choice or revision a replay could not do again."""
    if not any((record.get("gen") or {}).get("condition") for record in records):
        return None
    under = conditions.held(stream.json_file(folder / "condition.json"), folder / "condition.json")
    if under.samples.get("choose") == "judge" and protocol.judge["kind"] != "offline":
        raise cli.BadData(
            f"{folder}: a run under {under.name} cannot be packed; a capsule does not hold what the judge said of decks that "
            "were not kept"
        )
    return under


def _unchanged(folder: Path, files: dict[str, bytes], records: list[Record]) -> Protocol:
    """The protocol of a run. Raises cli.BadData where it is another by now."""
    fixed = json.loads(files["protocol.json"])
    protocol = Protocol.load(fixed["protocol"])
    if changed := identity.differences(fixed, identity.identity(protocol, records)):
        raise cli.BadData(
            f"{folder} was made under another {protocol.name} than the present one; "
            f"make it anew first: {'; '.join(changed)}"
        )
    return protocol


def _assets(protocol: Protocol) -> Entries:
    """The protocol's own files, with the one that it extends and the judge's prompt."""
    own = cli.ROOT / f"assets/protocols/{protocol.name}.toml"
    extended = tomllib.loads(own.read_text(encoding="utf-8")).get("extends")
    paths = [own, config_files.extended(own, extended, own.parent)] if extended else [own]
    entries: Entries = {f"assets/protocols/{path.name}": _read(path) for path in paths}
    if prompt := protocol.judge.get("prompt"):
        entries[f"assets/prompts/{prompt}"] = _read(cli.ROOT / "assets/prompts" / prompt)
    return entries


def _models(records: list[Record], protocol: Protocol) -> dict[str, Record]:
    """The registry's entries of those who wrote and judged."""
    known = registry.models()
    wrote = {((record.get("gen") or {}).get("model") or {}).get("name") for record in records}
    used = known.keys() & {*wrote, protocol.reader}
    return {name: {key: getattr(known[name], key) for key in ENTRY} for name in used}


def _write(file: Any, entries: Entries) -> None:
    """A plain tar of `{path: bytes or Path}`: sorted, of nobody, of no time, so that the same files give the same bytes."""
    with tarfile.open(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for path, data in sorted(entries.items()):
            data = data if isinstance(data, bytes) else _read(data)
            if not _MEMBER.fullmatch(path):
                raise cli.BadData(f"{path} has no place in a capsule")
            info = tarfile.TarInfo(path)
            info.size = len(data)
            try:
                tar.addfile(info, io.BytesIO(data))
            except ValueError as error:
                raise cli.BadData(f"{path}: {error}") from None
    file.flush()
    os.fsync(file.fileno())


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise cli.Missing(
            f"{path}: {error.strerror}; `{layout.make_command(path.parent)}` makes it"
        ) from None


def _dumps(data: Any) -> bytes:
    text = json.dumps(data, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    return text.encode("utf-8", "replace")


def _replies(folder: Path, records: list[Record], under: Condition | None) -> bytes:
    """The lines of the run's journal that these records rest on, in their order; of a prompt's other samples the last."""
    lines: dict[tuple[str, str | None], bytes] = {}
    last: dict[str, bytes] = {}
    for line, entry in stream.journal(folder / "journal/gen.jsonl"):
        lines[entry["id"], entry.get("inputs")] = last[entry["id"]] = line
    found = []
    for record in records:
        samples = expanded({"id": record["id"]}, under.n if under else 1)
        own = samples[sample_of(record) if len(samples) > 1 else 0]["id"]
        inputs = ((record.get("gen") or {}).get("by") or {}).get("inputs")
        for ident in (each["id"] for each in samples):
            kept = lines.get((ident, inputs)) if ident == own else last.get(ident)
            found.append(kept or b"")
    return b"".join(found)


def compared(places: dict[str, Path], root: Path) -> Record:
    """What run-compare of `root` says of runs, `{"status", "said"}`; places: {name: absolute folder}. Paths in it are the names alone."""
    with tempfile.TemporaryDirectory() as folder:
        for name, place in places.items():
            Path(folder, name).symlink_to(place)
        done = subprocess.run(
            [root / "bin/run-compare", "--json", *places],
            cwd=folder,
            capture_output=True,
            text=True,
            env=environment(root),
        )
    try:
        said = json.loads(done.stdout)
        # What a checkout remembers of folders and of judges, which a replay does not have.
        said = {key: value for key, value in said.items() if key not in ("looks", "caption")}
    except ValueError:
        said = done.stderr.strip()[-2000:]
    return {"status": done.returncode, "said": said}


def environment(root: Path, into: Path | None = None) -> dict[str, str]:
    """The environment of the scripts: no keys, no proxies, and for a replay a cache of its own."""
    known = ("PATH", "HOME", "LANG", "TMPDIR", "IMAGES")
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in known or name.startswith("DECKSMITH_")
    }
    own = {"XDG_CACHE_HOME": str(into / "cache")} if into else {}
    paths = {"DECKSMITH_ROOT": str(root), "PYTHONPATH": str(root / "lib")}
    return {**kept, **paths, "PYTHONDONTWRITEBYTECODE": "1", **own}


# Unpacking


def unpack(path: Path, into: Path) -> Path:
    """Write the members of a capsule below `into`, each only where a capsule has such a file.

    Raises cli.BadData for anything else: links, devices, other paths, a path twice, extended headers, too much of it, a torn file.
    """
    count = whole = 0
    try:
        file = open(path, "rb")
    except OSError as error:
        raise cli.Missing(f"{path}: {error.strerror}; `make capsule` makes one") from None
    with file:
        while (block := file.read(tarfile.BLOCKSIZE)).strip(b"\0"):
            try:
                # One header at a time, because tarfile's own loop follows extended headers and links.
                info = tarfile.TarInfo.frombuf(block, "ascii", "strict")
            except (tarfile.HeaderError, UnicodeDecodeError) as error:
                raise cli.BadData(f"{path}: not a capsule ({error})") from None
            count, whole = count + 1, whole + info.size
            if info.type != tarfile.REGTYPE or not _MEMBER.fullmatch(info.name):
                raise cli.BadData(f"{path}: {info.name[:200]!r} has no place in a capsule")
            if count > MOST or not 0 <= info.size <= LARGEST or whole > WHOLE:
                raise cli.BadData(f"{path}: too large: {info.name[:200]!r}")
            place = into / info.name
            place.parent.mkdir(parents=True, exist_ok=True)
            try:
                with open(place, "xb") as copy:
                    if copy.write(file.read(info.size)) < info.size:
                        raise cli.BadData(f"{path}: it ends in the middle of {info.name!r}")
            except FileExistsError:
                raise cli.BadData(f"{path}: {info.name!r} is there twice") from None
            file.seek(-info.size % tarfile.BLOCKSIZE, os.SEEK_CUR)
    return into
