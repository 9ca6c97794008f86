"""Ballots: a study's pages as one file for each person, and the files that come back.

What a person answers comes back signed (HMAC-SHA256, RFC 2104) with a key that belongs to that
person's ballot and is derived from the study's secret. That shows that nobody changed the answers
on the way and that they were made by somebody who has this very ballot. It does not show how they
were made: the key is in the ballot, so whoever has it can sign what they like, in this one rater's
name.
"""

import base64
import hmac
import re
import unicodedata
from collections.abc import Collection
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from decksmith.core import cli, stream, validation
from decksmith.study import messages, outside, store
from decksmith.study.page import page

LARGEST = 4 << 20  # bytes of a file that comes back; 10,000 answers have 2 MiB
HEAVY = 100 << 20  # bytes of a ballot that mail and phones have trouble with
VERSION = 1  # of the files that come back


class Signed(validation.Body):
    """A file that comes back."""

    ballot: int  # VERSION
    payload: str  # Answers as JSON: what is signed are its bytes
    signature: str


class Answers(validation.Body):
    """What one person answered: messages.Vote and messages.OnePair, which are checked once the
    signature is."""

    study: str
    rater: str
    at: str
    answers: list[dict[str, Any]]
    skipped: list[dict[str, Any]]


def study_id(study: store.Study) -> str:
    """The name of a study in its ballots; it says nothing of the study."""
    return hmac.digest(study.secret, b"ballot of study", "sha256").hex()[:16]


def key(study: store.Study, rater: str) -> bytes:
    """The 32 bytes by which the answers of this rater are signed."""
    return hmac.digest(study.secret, b"ballot of rater\x1f" + rater.encode(), "sha256")


# Out


def export(study: store.Study, name: str, out: Path) -> dict[str, Any]:
    """Write the ballot of the rater of this name, who is added unless there, into the folder `out`.

    Returns {"rater", "name", "pairs", "bytes", "path"}. The file needs nothing but itself: its
    policy forbids every connection. Raises store.Closed when the study is closed, cli.BadData
    for a name that is none."""
    outside.refuse(study)
    if study.closed:
        raise store.Closed("the study is closed")
    rater = study.rater(study.add_rater(name, source="ballot"))
    assert rater is not None  # the token is our own
    sheet = study.sheet(rater)
    if not sheet["pairs"]:
        raise cli.BadData(f"{name}: there is no pair left for this rater")
    stem = f"{_plain(sheet['rater']) or 'ballot'}-{rater}"
    shown = [file for pair in sheet["pairs"] for side in ("left", "right") for file in pair[side]]
    pictures = {
        file: base64.b64encode((study.folder / "pictures" / file).read_bytes()).decode()
        for file in shown
    }
    data = {
        "study": study_id(study),
        "rater": rater,
        "key": key(study, rater).hex(),
        "file": f"answers-{stem}.json",
        "sheet": sheet,
        "pictures": pictures,
    }
    script = (cli.ROOT / "assets" / "web" / "ballot.js").read_text()
    text = page(sheet["title"], inline={"script": script, "data": data}).encode()
    path = out / f"{stem}.html"
    stream.write(path, text)
    return {
        "rater": rater,
        "name": sheet["rater"],
        "pairs": len(sheet["pairs"]),
        "bytes": len(text),
        "path": str(path),
    }


def _plain(name: str) -> str:
    """A name as a part of a file's name; empty where nothing of it is Latin."""
    latin = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    return re.sub(r"[^a-z0-9]+", "-", latin.lower()).strip("-")


# And back


def merge(study: store.Study, path: Path, *, unfinished: bool = False) -> dict[str, Any]:
    """Store the answers of one file: {"file", "is": "stored", "same" or "refused", "rater",
    "votes", "same", "differ", "why"}.

    A file is taken whole, in one durable transaction, or not at all; one that came before
    changes nothing ("same"). A vote that stands for a pair stands: other answers are counted as
    "differ". unfinished: also files that do not answer all pairs."""
    found = {
        "file": str(path),
        "is": "refused",
        "rater": None,
        "votes": 0,
        "same": 0,
        "differ": 0,
        "why": None,
    }
    try:
        rater, answers, skipped = _read(study, path, unfinished)
    except cli.BadData as error:
        return {**found, "why": str(error)}
    found["rater"] = study.name(rater)

    def vote(one: messages.Vote) -> str:
        return study.vote(rater, one.pair, one.ballot.model_dump(), key=one.key, source="ballot")

    calls = [lambda one=one: vote(one) for one in answers]
    calls += [lambda one=one: study.skip(rater, one.pair, key=one.key) for one in skipped]
    done = study.together(calls)
    for value in done:
        if isinstance(value, Exception) and not isinstance(value, store.Conflict):
            raise value
    if any(isinstance(value, store.Closed) for value in done):
        return {**found, "why": "the study is closed: votes neither come nor go"}
    votes = done[: len(answers)]
    differ = sum(isinstance(value, store.Conflict) for value in votes)
    found |= {"votes": votes.count("stored"), "same": votes.count("same"), "differ": differ}
    if differ:
        found["why"] = f"{differ} of its pairs have other votes already; those stand"
    return {**found, "is": "stored" if "stored" in done else "same"}


def _read(
    study: store.Study, path: Path, unfinished: bool
) -> tuple[str, list[messages.Vote], list[messages.OnePair]]:
    """`(rater, answers, skipped)` of a file that is whole, ours and signed; raises cli.BadData
    with a sentence that says what is wrong."""
    said = _signed(study, _bytes(path))
    if study.rater(study.token(said.rater)) is None:
        raise cli.BadData(
            "the study does not know this rater: its votes.db is not the one that the ballot was exported from"
        )
    sheet = study.sheet(said.rater)
    queue = {pair["id"] for pair in sheet["pairs"]}
    answers = _answers(messages.Vote, "answers", said.answers, queue)
    skipped = _answers(messages.OnePair, "skipped", said.skipped, queue)
    names = [one.pair for one in [*answers, *skipped]]
    if len(names) > len(set(names)):
        raise cli.BadData("a pair is answered twice")
    open_ = queue - set(names) - sheet["done"].keys()
    if open_ and not unfinished:
        raise cli.BadData(
            f"{len(open_)} of {len(queue)} pairs have no answer yet; --unfinished takes what is there, and the rest can come later"
        )
    return said.rater, answers, skipped


def _bytes(path: Path) -> bytes:
    try:
        with open(path, "rb") as file:
            data = file.read(LARGEST + 1)
    except OSError as error:
        raise cli.BadData(f"cannot be read: {error.strerror}") from None
    if len(data) > LARGEST:
        raise cli.BadData(f"larger than {LARGEST >> 20} MiB: no file of answers")
    if data.lstrip()[:1] == b"<":
        raise cli.BadData('this is a page; what it saves by "Save my answers" is a file of answers')
    return data


def _signed(study: store.Study, data: bytes) -> Answers:
    """What a file says, when it is of this study and nobody changed it."""
    outer = _object(Signed, data)
    if outer.ballot != VERSION:
        raise cli.BadData("of another version of decksmith")
    said = _object(Answers, outer.payload.encode())
    if said.study != study_id(study):
        raise cli.BadData("of another study")
    if not re.fullmatch(r"[a-z0-9]{1,64}", said.rater):
        raise cli.BadData("not a file of answers")
    wanted = hmac.digest(key(study, said.rater), outer.payload.encode(), "sha256").hex()
    if not hmac.compare_digest(wanted.encode(), outer.signature.encode()):
        raise cli.BadData(
            "the signature does not fit: somebody or something changed the file after it was saved; ask for it again"
        )
    return said


def _object(kind: type[validation.Kind], text: bytes) -> validation.Kind:
    """The JSON object in `text`."""
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        if error.errors()[0]["type"] == "json_invalid":
            raise cli.BadData("no JSON: cut off, or not a file of answers") from None
        raise cli.BadData("not a file of answers") from None


def _answers(
    kind: type[messages.Pair], name: str, said: list[dict[str, Any]], queue: Collection[str]
) -> list[messages.Pair]:
    """What was said of pairs of this `queue`."""
    found = []
    for number, one in enumerate(said, 1):
        try:
            answer = validation.check(kind, one)
        except cli.BadData as error:
            raise cli.BadData(f"{name} {number}: {error}") from None
        if answer.pair not in queue:
            raise cli.BadData(
                f"{name} {number}: {answer.pair[:40]!r} is no pair of this rater's ballot"
            )
        found.append(answer)
    return found
