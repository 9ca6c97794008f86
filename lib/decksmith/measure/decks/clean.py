"""A deck out of what a script is given: a model's reply without reasoning, fences and chatter, or a file of markdown."""

import functools
import hashlib
import itertools
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from decksmith.core import cli, stream
from decksmith.core.records import Record
from decksmith.measure.decks.parser import FENCE, Deck

_THINK = re.compile(r"\s*<(think|thinking)>", re.I)
_DECK_LANGS = {"", "markdown", "md", "mdx", "slidev", "yaml", "yml", "text", "txt", "plaintext"}
_KEY = re.compile(r"[A-Za-z][\w-]*[ \t]*:(?:\s|$)")
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
# What stages write into the folder of a deck.
_OURS = re.compile(
    r"(gen|reasoning|deck|illustrated)\.md|images|slides|build|judge|.*\.tmp"
    r"|images/[0-9a-f]{16}\.(jpg|png)|slides/[0-9]+\.png"
)


def clean(text: str) -> tuple[str, str | None]:
    """A reply without what is not deck: (deck text, maybe empty; leftover reasoning or None).

    Off go BOM and CRLF; a leading think block (one that never closes leaves no answer); an outer code
    fence with what stands around it; chatter before the headmatter; blank lines at both ends."""
    text = text.replace("\ufeff", "", 1) if text.lstrip().startswith("\ufeff") else text
    text = text.encode("utf-8", "replace").decode().replace("\r\n", "\n").lstrip("\n")
    text, thought = unthink(text)
    lines = text.split("\n")
    if outer := _outer_fence(lines):
        text, again = unthink("\n".join(outer).lstrip("\n"))
        thought, lines = thought or again, text.split("\n")
    text = "\n".join(lines[_chatter(lines) :]).strip("\n").rstrip()
    # Behind a closing mark a line's end would begin one more slide, and an empty one.
    ends = "" if not text or text.rpartition("\n")[2].startswith("---") else "\n"
    return text + ends, thought


def unthink(text: str) -> tuple[str, str | None]:
    """A reply without its leading thought, and that thought or None."""
    thoughts: list[str] = []
    while m := _THINK.match(text):
        close = re.compile(rf"</{m.group(1)}>", re.I).search(text, m.end())
        if not close:
            return "", "\n".join([*thoughts, text[m.end() :].strip()])
        thoughts.append(text[m.end() : close.start()].strip())
        text = text[close.end() :].lstrip("\n")
    if not text.startswith("---"):  # a chat template may have written the opening tag itself
        close = re.search(r"</think(?:ing)?>[ \t]*(?:\n|$)", text, re.I)
        if close and not re.search(r"<think(?:ing)?>", text[: close.start()], re.I):
            thoughts.append(text[: close.start()].strip())
            text = text[close.end() :].lstrip("\n")
    return (text.lstrip() if thoughts else text), "\n".join(t for t in thoughts if t) or None


def _rule(line: str) -> bool:
    return line.rstrip() == "---"


def _frontmatter_at(lines: list[str], i: int) -> bool:
    """Whether line i opens a frontmatter block: a rule followed by a `key:` line, perhaps below a comment."""
    below = lines[i + 1 : i + 3]
    if not _rule(lines[i]) or not below:
        return False
    if _KEY.match(below[0]):
        return True
    return below[0].lstrip().startswith("#") and bool(_KEY.match(below[-1]))


def _outer_fence(lines: list[str]) -> list[str] | None:
    """The lines inside the code fence around a whole deck, or None when there is none."""
    for i, line in enumerate(lines):
        if _frontmatter_at(lines, i):
            return None  # the deck has begun: a fence further down belongs to it
        m = FENCE.fullmatch(line)
        if not m or line.lstrip().startswith(">"):
            continue
        mark, lang = m.group(1), m.group(2).lower()
        inside = next((j for j in range(i + 1, len(lines)) if lines[j].strip()), None)
        if lang not in _DECK_LANGS or inside is None:
            return None
        first = lines[inside]
        if not (_rule(first) or first.startswith("# ") or _THINK.match(first)):
            return None
        if any(before.startswith("#") for before in lines[:i]):
            if lang not in ("markdown", "md", "slidev", "") or not _frontmatter_at(lines, inside):
                return None
        close = _closing(lines, i + 1, mark)
        body = lines[i + 1 : close]
        if lang in ("yaml", "yml") and close is not None:
            block = "\n".join(body).strip("\n").split("\n")
            ends = _rule(block[-1]) and sum(map(_rule, block)) == 2
            if ends and _slides_in(lines[close + 1 :]):  # only the headmatter was fenced
                return block + lines[close + 1 :]
        return body
    return None


def _closing(lines: list[str], i: int, mark: str) -> int | None:
    """The line that closes the outer fence, None where it is cut off. Inner fences end before it."""
    marks: dict[int, bool] = {}  # lines with such a mark: whether nothing else stands there
    for j in range(i, len(lines)):
        m = FENCE.fullmatch(lines[j])
        if m and m.group(1)[0] == mark[0] and len(m.group(1)) >= len(mark):
            marks[j] = not (m.group(2) + m.group(3)).strip()
    last = max((j for j, bare in marks.items() if bare), default=None)
    inner = False
    more_slides: tuple[bool, int] | None = None  # below a line; looked for again past it only
    for j, bare in marks.items():
        if not bare:
            inner = True
        elif inner:
            inner = False
        elif j == last:
            return j
        else:
            if more_slides is None or j > more_slides[1]:
                more_slides = (_slides_in(lines[j + 1 :]), j)
            if not lines[j + 1].strip() and not more_slides[0]:
                return j
            inner = True
    return last if inner else None


def _slides_in(lines: list[str]) -> bool:
    """Whether these lines hold slides: a frontmatter block, or a rule whose next text is a heading."""
    for i, line in enumerate(lines):
        if _rule(line):
            following = next((x for x in lines[i + 1 : i + 6] if x.strip()), "")
            if _frontmatter_at(lines, i) or following.startswith("# "):
                return True
    return False


def _chatter(lines: list[str]) -> int:
    """How many lines of chatter stand before the headmatter, which names a theme or follows prose."""
    for i, line in enumerate(lines):
        if FENCE.fullmatch(line) and not line.lstrip().startswith(">"):
            return 0
        if not _frontmatter_at(lines, i):
            continue
        before = [x for x in lines[:i] if x.strip()]
        if not before:
            return i
        block = itertools.takewhile(lambda x: not _rule(x), lines[i + 1 :])
        if any("<!--" in x for x in before):
            return 0  # of the deck: for Slidev, a slide of its own before that
        if any(x.startswith("theme:") for x in block):
            return i
        prose = all(x.lstrip()[:1] not in "#|<-*!" and not _KEY.match(x) for x in before)
        return i if prose and (before[-1].rstrip().endswith(":") or len(before) == 1) else 0
    return 0


def current(run: Path, value: Record) -> bool:
    """Whether a journaled `deck` value may be used again: a fault, or a deck.md of the bytes it names."""
    if "error" in value:
        return True
    path = run / value["path"]
    return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == value["sha256"]


def meant(record: Record, reply: str) -> str:
    """The deck that a reply to a record means. Raises stream.Fault where it cannot be applied to the deck of the record's `edit`."""
    if "edit" not in record:
        return clean(reply)[0]
    from decksmith.measure.decks import edits  # which stands on this module

    text = reply.encode("utf-8", "replace").decode().replace("\r\n", "\n")
    try:
        return edits.applied(record["edit"]["before"], unthink(text)[0])
    except edits.NoEdit as error:
        raise stream.Fault("model", "no-edit", str(error)) from None


def parse(run: Path, record: Record) -> Record:
    """Write <id>/gen.md, reasoning.md (if any) and deck.md from `record["gen"]`; returns the `deck` value.

    Raises stream.Fault of kind model: `empty-reply` (no text and no reasoning), `no-deck` (reasoning
    only, or nothing left), `no-edit` (a reply that cannot be applied to the deck of the record's `edit`)."""
    gen, folder = record["gen"], run / record["id"]
    reply, reasoning = gen.get("text") or "", gen.get("reasoning") or ""
    text, thought = clean(reply)
    reasoning = reasoning if reasoning.strip() else thought or ""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("deck.md", "reasoning.md"):
        (folder / name).unlink(missing_ok=True)  # nothing of an earlier reply may stay behind
    stream.write(folder / "gen.md", reply.encode("utf-8", "replace"))
    if reasoning.strip():
        stream.write(folder / "reasoning.md", (reasoning.strip() + "\n").encode("utf-8", "replace"))
    if not text and reasoning.strip():
        raise stream.Fault("model", "no-deck", "the reply holds reasoning but no deck")
    if not text and reply.strip():
        raise stream.Fault("model", "no-deck", "nothing is left of the reply")
    if not text:
        raise stream.Fault("model", "empty-reply", "the reply is empty")
    data = meant(record, reply).encode()
    stream.write(folder / "deck.md", data)
    return {**_value(f"{record['id']}/deck.md", data), **_template(record)}


def inputs(record: Record) -> list[Any]:
    """Everything that the `deck` value of a record depends on, for the journal."""
    gen = record["gen"]
    edit = [record["edit"]["before"]] if "edit" in record else []
    return ["clean-2", gen.get("text"), gen.get("reasoning"), *_template(record).values(), *edit]


def _template(record: Record) -> Record:
    """`{"template": ..}` of a reply under a condition with a template, else {}."""
    under = (record["gen"].get("condition") or {}).get("template")
    return {"template": under} if under else {}


def _value(path: str, data: bytes) -> Record:
    """The `deck` value of docs/records.md for a deck's file, `path` relative to the run."""
    deck = Deck.parse(data.decode("utf-8", "replace"))
    sha256 = hashlib.sha256(data).hexdigest()
    return {"path": path, "slides": len(deck.shown), "theme": deck.theme, "sha256": sha256}


def markdown(run: str | Path, record: Record) -> str:
    """The text of a record's deck.md. Raises cli.Missing."""
    path = Path(run) / record["deck"]["path"]
    try:
        return path.read_bytes().decode("utf-8", "replace")
    except OSError as error:
        mend = "is --run the folder that deck-parse wrote to?"
        raise cli.Missing(f"{record['id']}: {path}: {error.strerror}; {mend}") from None


def illustrated(run: str | Path, record: Record) -> tuple[Path, str]:
    """(path, text) of a record's deck, with its pictures where it has them. Raises cli.BadData."""
    made = record.get("images") or record.get("deck") or {}
    if "path" not in made:
        raise cli.BadData(f'{record["id"]}: no "deck" in this record; deck-parse writes it')
    path = Path(run) / made["path"]
    try:
        return path, path.read_bytes().decode("utf-8", "replace")
    except OSError as error:
        said = f"the deck of this record cannot be read: {error}"
        raise cli.BadData(f"{record['id']}: {said}") from None


def takes_markdown(
    *, reply: bool = False, writes: bool = True, after: str = ""
) -> Callable[[Callable[..., int | None]], Callable[..., int | None]]:
    """Decorate a script's function: markdown in place of records becomes one record a deck (`reply`: what a model replied).

    writes  the script writes into <run>/<id>, whose other files would go: such a folder is refused
    after   the commands whose records the script needs: what markdown is answered with"""

    def wrap(function: Callable[..., int | None]) -> Callable[..., int | None]:
        @click.argument("decks", nargs=-1, type=FILE)
        @functools.wraps(function)
        def with_markdown(decks: Sequence[Path], **options: Any) -> int | None:
            run = options.get("run", Path())

            def prepare() -> None:
                if decks or not _are_records(stream.stdin.peek()):
                    with tempfile.TemporaryFile() as file:
                        file.writelines(_lines(decks, run, reply, writes, after))
                        file.seek(0)
                        os.dup2(file.fileno(), 0)

            # Not yet: a key or a renderer that is missing is said first.
            stream.stdin.prepare = prepare
            return function(**options)

        return with_markdown

    return wrap


# What a line of markdown begins with that is more than prose.
_MARKED = re.compile(rb"(?m)^\s*(#{1,6} |---|```|<\w|[-*+] |\d+[.)] |!\[|\|)")


def _are_records(data: bytes) -> bool:
    """Whether this is JSON, or nothing at all."""
    return data.lstrip()[:1] in (b"", b"{", b"[", b'"')


def _lines(
    decks: Sequence[Path], run: Path, reply: bool, writes: bool, after: str
) -> Iterator[bytes]:
    """A record for each file, or for the deck on stdin; the lines of a file that has records."""
    names: set[str] = set()
    given: list[tuple[Path | None, bytes]] = [(path, path.read_bytes()) for path in decks]
    if not given:
        given = [(_redirected(), b"".join(iter(stream.stdin.take, b"")))]
    for path, data in given:
        if decks and not data.strip():
            raise cli.BadData(f"{path} is empty: no deck and no record")
        if _are_records(data):
            yield data.rstrip(b"\n") + b"\n"
            continue
        if b"\0" in data or not (path or _MARKED.search(data)):
            raise cli.BadData(f"{path or 'stdin:1'}: no record and no markdown{cli.Script.usage}")
        if after:
            stages = after.format(path or "deck.md")
            raise cli.BadData(f"{path or 'stdin'} is markdown, not a record: {stages} | {cli.NAME}")
        # Where a folder of that name is written, a/deck.md and b/deck.md have one each.
        called = (os.path.relpath(path) if writes else path.name) if path else "stdin"
        ident = _ident(os.path.splitext(called)[0], names)
        if writes:
            _check_folder(run / ident, path if reply else None)
        if reply:
            value: Record = {"gen": {"text": data.decode("utf-8", "replace")}}
        else:
            if path is None:
                path = run / ident / "deck.md"
                stream.write(path, data)
            value = {"deck": _value(os.path.relpath(path, run), data)}
        yield stream.dumps({"id": ident, **value}) + b"\n"


def _redirected() -> Path | None:
    """The file that stdin was opened from, where that can be told (proc(5))."""
    try:
        path = Path(os.readlink("/proc/self/fd/0"))
    except OSError:
        return None
    return path if path.is_file() else None


def _ident(called: str, names: set[str]) -> str:
    """An id of a file's name or path that no earlier one has."""
    first = re.sub(r"[^A-Za-z0-9._~-]+", "-", called)[-100:].strip("._~-") or "deck"
    numbered = (f"{first}-{number}" for number in itertools.count(2))
    ident = next(name for name in itertools.chain([first], numbered) if name not in names)
    names.add(ident)
    return ident


def _check_folder(folder: Path, reply: Path | None) -> None:
    """Raise cli.BadData for a folder with files that no stage of ours writes, such as the reply."""
    found = [*folder.glob("*"), *folder.glob("images/*"), *folder.glob("slides/*")]
    names = [path.relative_to(folder).as_posix() for path in found]
    strange = [name for name in names if not _OURS.fullmatch(name)]
    if reply and reply.resolve().parent == folder.resolve():
        strange.append(reply.name)
    if strange:
        said = f"{folder} has files of your own ({strange[0]}), and {cli.NAME} would write there"
        raise cli.BadData(f"{said}; name another folder with --run")
