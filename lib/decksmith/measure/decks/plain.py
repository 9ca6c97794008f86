"""Plain markdown where a deck-* script reads records: a file as its argument, or a deck on standard input."""

import functools
import hashlib
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from decksmith.core import cli, stream
from decksmith.core.records import Record

# What stages write into the folder of a deck.
OURS = re.compile(
    r"(gen|reasoning|deck|illustrated)\.md|images|slides|build|judge|.*\.tmp"
    r"|images/[0-9a-f]{16}\.(jpg|png)|slides/[0-9]+\.png"
)


def taken(
    *, reply: bool = False, writes: bool = True, after: str = ""
) -> Callable[[Callable[..., int | None]], Callable[..., int | None]]:
    """Decorate a script's function: markdown in place of records becomes one record a deck.

    reply   it is what a model replied, else a deck
    writes  the script writes into <run>/<id>, whose other files would go: such a folder is refused
    after   the commands whose records the script needs: what markdown is answered with
    """

    def wrap(function: Callable[..., int | None]) -> Callable[..., int | None]:
        @click.argument(
            "decks",
            nargs=-1,
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
        )
        @functools.wraps(function)
        def welcoming(decks: Sequence[Path], **options: Any) -> int | None:
            run = options.get("run", Path())

            def prepare() -> None:
                if decks or not _are_records(stream.stdin.peek()):
                    _replace_stdin(_lines(decks, run, reply, writes, after))

            # Not yet: a key or a renderer that is missing is said first.
            stream.stdin.prepare = prepare
            return function(**options)

        return welcoming

    return wrap


def _are_records(data: bytes) -> bool:
    """Whether this is JSON, or nothing at all."""
    return data.lstrip()[:1] in (b"", b"{", b"[", b'"')


def _replace_stdin(lines: Iterator[bytes]) -> None:
    with tempfile.TemporaryFile() as file:
        file.writelines(lines)
        file.seek(0)
        os.dup2(file.fileno(), 0)


def _lines(
    decks: Sequence[Path], run: Path, reply: bool, writes: bool, after: str
) -> Iterator[bytes]:
    """What stands for the files, or for the deck on stdin: a record each; the lines of one that has records."""
    names: set[str] = set()
    given: list[tuple[Path | None, bytes]] = [(path, path.read_bytes()) for path in decks]
    if not given:
        given = [(_redirected(), b"".join(iter(stream.stdin.take, b"")))]
    for path, data in given:
        if _are_records(data):
            yield data.rstrip(b"\n") + b"\n"
            continue
        if after:
            stages = after.format(path or "deck.md")
            raise cli.BadData(f"{path or 'stdin'} is markdown, not a record: {stages} | {cli.NAME}")
        ident = _ident(path.stem if path else "stdin", names)
        if writes:
            _check_folder(run / ident, path if reply else None)
        value = {"gen": {"text": data.decode("utf-8", "replace")}} if reply else None
        yield stream.dumps({"id": ident, **(value or _deck(ident, path, data, run))}) + b"\n"


def _redirected() -> Path | None:
    """The file that stdin was opened from, where that can be told (proc(5))."""
    try:
        path = Path(os.readlink("/proc/self/fd/0"))
    except OSError:
        return None
    return path if path.is_file() else None


def _ident(stem: str, names: set[str]) -> str:
    """An id of a file's name that no earlier one has."""
    ident = first = re.sub(r"[^A-Za-z0-9._~-]+", "-", stem).strip("._~-")[:100] or "deck"
    number = 1
    while ident in names:
        number += 1
        ident = f"{first}-{number}"
    names.add(ident)
    return ident


def _check_folder(folder: Path, reply: Path | None) -> None:
    """Raise cli.BadData for a folder of somebody's own, in which a stage would replace files; `reply`: a file that
    must not be one of those."""
    found = [*folder.glob("*"), *folder.glob("images/*"), *folder.glob("slides/*")]
    names = [path.relative_to(folder).as_posix() for path in found]
    strange = [name for name in names if not OURS.fullmatch(name)]
    if reply and reply.resolve().parent == folder.resolve():
        strange.append(reply.name)
    if strange:
        raise cli.BadData(
            f"{folder} has files of your own ({strange[0]}), and {cli.NAME} would write there; "
            "name another folder with --run"
        )


def _deck(ident: str, path: Path | None, data: bytes, run: Path) -> Record:
    """The `deck` of a record (docs/records.md). A deck that no file has is written to <run>/<id>/deck.md."""
    from decksmith.measure.decks.parser import Deck

    if path is None:
        path = run / ident / "deck.md"
        stream.write(path, data)
    deck = Deck.parse(data.decode("utf-8", "replace"))
    return {
        "deck": {
            "path": os.path.relpath(path, run),
            "slides": len(deck.shown),
            "theme": deck.theme,
            "sha256": hashlib.sha256(data).hexdigest(),
        }
    }
