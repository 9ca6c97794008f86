"""Ballots: a study's pages as one file for each person, and the files that come back.

What a person answers comes back signed (HMAC-SHA256, RFC 2104) with a key that belongs to that person's ballot and is derived from the
study's secret. That shows that nobody changed the answers on the way and that they were made by somebody who has this very ballot. It does
not show how they were made: the key is in the ballot, so whoever has it can sign what they like, in this one rater's name.
"""

import base64
import hmac
import json
import re
import unicodedata

from decksmith.core import cli, stream
from decksmith.study import messages, outside, store
from decksmith.study.page import page

LARGEST = 4 << 20  # bytes of a file that comes back; 10,000 answers have 2 MiB
HEAVY = 100 << 20  # bytes of a ballot that mail and phones have trouble with


def study_id(study):
    """The name of a study in its ballots; it says nothing of the study."""
    return hmac.digest(study.secret, b"ballot of study", "sha256").hex()[:16]


def key(study, rater):
    """The 32 bytes by which the answers of this rater are signed."""
    return hmac.digest(study.secret, b"ballot of rater\x1f" + rater.encode(), "sha256")


# Out


def export(study, name, out):
    """Write the ballot of the rater of this name, who is added unless there, into the folder `out`.

    Returns {"rater", "name", "pairs", "bytes", "path"}. The file needs nothing but itself: its policy forbids every connection. Raises
    store.Closed when the study is closed, cli.BadData for a name that is none."""
    outside.refuse(study)
    if study.closed:
        raise store.Closed("the study is closed")
    rater = study.rater(study.add_rater(name, source="ballot"))
    sheet = study.sheet(rater)
    if not sheet["pairs"]:
        raise cli.BadData(f"{name}: there is no pair left for this rater")
    stem = re.sub(
        r"[^a-z0-9]+",
        "-",
        unicodedata.normalize("NFKD", sheet["rater"]).encode("ascii", "ignore").decode().lower(),
    ).strip("-")
    stem = f"{stem or 'ballot'}-{rater}"
    pictures = {
        file: base64.b64encode((study.folder / "pictures" / file).read_bytes()).decode()
        for pair in sheet["pairs"]
        for side in ("left", "right")
        for file in pair[side]
    }
    data = {
        "study": study_id(study),
        "rater": rater,
        "key": key(study, rater).hex(),
        "file": f"answers-{stem}.json",
        "sheet": sheet,
        "pictures": pictures,
    }
    text = page(
        sheet["title"],
        inline={"script": (cli.ROOT / "assets" / "web" / "ballot.js").read_text(), "data": data},
    ).encode()
    path = out / f"{stem}.html"
    stream.write(path, text)
    return {
        "rater": rater,
        "name": sheet["rater"],
        "pairs": len(sheet["pairs"]),
        "bytes": len(text),
        "path": str(path),
    }


# And back


def merge(study, path, *, unfinished=False):
    """Store the answers of one file: {"file", "is": "stored", "same" or "refused", "rater", "votes", "same", "differ", "why"}.

    A file is taken whole, in one durable transaction, or not at all; one that came before changes nothing ("same"). A vote that stands
    for a pair stands: other answers are counted as "differ". unfinished: also files that do not answer all pairs."""
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
    calls = [
        lambda one=one: study.vote(
            rater, one["pair"], one["ballot"], key=one["key"], source="ballot"
        )
        for one in answers
    ]
    calls += [lambda one=one: study.skip(rater, one["pair"], key=one["key"]) for one in skipped]
    done = study.together(calls)
    for value in done:
        if isinstance(value, Exception) and not isinstance(value, store.Conflict):
            raise value
    if any(isinstance(value, store.Closed) for value in done):
        return {**found, "why": "the study is closed: votes neither come nor go"}
    votes = done[: len(answers)]
    found |= {
        "votes": votes.count("stored"),
        "same": votes.count("same"),
        "differ": sum(isinstance(v, store.Conflict) for v in votes),
    }
    found["why"] = (
        f"{found['differ']} of its pairs have other votes already; those stand"
        if found["differ"]
        else None
    )
    return {**found, "is": "stored" if "stored" in done else "same"}


def _read(study, path, unfinished):
    """`(rater, answers, skipped)` of a file that is whole, ours and signed; raises cli.BadData with a sentence that says what is wrong."""
    try:
        with open(path, "rb") as file:
            data = file.read(LARGEST + 1)
    except OSError as error:
        raise cli.BadData(f"cannot be read: {error.strerror}") from None
    if len(data) > LARGEST:
        raise cli.BadData(f"larger than {LARGEST >> 20} MiB: no file of answers")
    if data.lstrip()[:1] == b"<":
        raise cli.BadData('this is a page; what it saves by "Save my answers" is a file of answers')
    outer = _object(data, {"ballot": int, "payload": str, "signature": str})
    if outer["ballot"] != 1:
        raise cli.BadData("of another version of decksmith")
    said = _object(
        outer["payload"], {"study": str, "rater": str, "at": str, "answers": list, "skipped": list}
    )
    if said["study"] != study_id(study):
        raise cli.BadData("of another study")
    if not re.fullmatch(r"[a-z0-9]{1,64}", said["rater"]):
        raise cli.BadData("not a file of answers")
    wanted = hmac.new(
        key(study, said["rater"]), outer["payload"].encode("utf-8", "surrogatepass"), "sha256"
    ).hexdigest()
    if not hmac.compare_digest(
        wanted.encode(), outer["signature"].encode("utf-8", "surrogatepass")
    ):
        raise cli.BadData(
            "the signature does not fit: somebody or something changed the file after it was saved; ask for it again"
        )
    if study.rater(study.token(said["rater"])) is None:
        raise cli.BadData(
            "the study does not know this rater: its votes.db is not the one that the ballot was exported from"
        )
    sheet, names = study.sheet(said["rater"]), []
    queue = {pair["id"] for pair in sheet["pairs"]}
    for kind in ("answers", "skipped"):
        for number, one in enumerate(said[kind], 1):
            if not isinstance(one, dict) or one.keys() != (
                {"pair", "key", "ballot"} if kind == "answers" else {"pair", "key"}
            ):
                raise cli.BadData(f"{kind} {number}: not an answer")
            if not isinstance(one["pair"], str) or one["pair"] not in queue:
                raise cli.BadData(
                    f"{kind} {number}: {str(one['pair'])[:40]!r} is no pair of this rater's ballot"
                )
            if (
                not isinstance(one["key"], str)
                or not 8 <= len(one["key"]) <= 64
                or not one["key"].isascii()
                or not one["key"].isprintable()
            ):
                raise cli.BadData(f"{kind} {number}: not an answer")
            names.append(one["pair"])
            if kind == "answers":
                try:
                    messages.checked(one["ballot"])
                except cli.BadData as error:
                    raise cli.BadData(f"answers {number}: {error}") from None
    if len(names) > len(set(names)):
        raise cli.BadData("a pair is answered twice")
    if (open_ := queue - set(names) - sheet["done"].keys()) and not unfinished:
        raise cli.BadData(
            f"{len(open_)} of {len(queue)} pairs have no answer yet; --unfinished takes what is there, and the rest can come later"
        )
    return said["rater"], said["answers"], said["skipped"]


def _object(text, kinds):
    """The JSON object in `text`, which has the keys of `kinds` and no other, each of its type."""
    try:
        found = json.loads(text, parse_constant=lambda name: 1 / 0)
    except (ValueError, RecursionError, ZeroDivisionError):
        raise cli.BadData("no JSON: cut off, or not a file of answers") from None
    if (
        not isinstance(found, dict)
        or found.keys() != kinds.keys()
        or not all(type(found[name]) is kind for name, kind in kinds.items())
    ):
        raise cli.BadData("not a file of answers")
    return found
