"""People's own requests as rows, with what measuring their decks needs (bin/prompt-check)."""

import hashlib
import io
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from decksmith.core import cli, config_files, stream
from decksmith.core.protocol import Protocol
from decksmith.core.records import Record
from decksmith.measure.decks import lint, sources, templates
from decksmith.measure.decks.records import Limits, Page
from decksmith.measure.judging import asked, rendered, request_files
from decksmith.models import turns

CORE = "core"  # the set that the offline protocol takes
# A reference sentence is looked for as it stands: no slide around it is too long or too pale.
LIMITS: Limits = {
    **lint.limits(),
    "checklist_per_slide": 1,
    "unreadable_px": 0,
    "unreadable_contrast": 0,
}


def row(line: str | Record) -> Record:
    """The prompt of a row, or of its line: plain words, or an object with `request` or `messages`. What it does not
    say is filled in: id, sets, system message, what the request says of `asks`. Raises ValueError."""
    given = _object(line.strip()) if isinstance(line, str) else {**line}
    request = given.pop("request", None) or given.pop("prompt", None)
    messages = given.get("messages")
    if isinstance(request, str) and not messages:
        messages = _messages(request)
    if not messages:
        raise ValueError('no "request" and no "messages" in this row')
    text = _request(messages)
    quoted = [s for s in given.get("sources") or [] if isinstance(s, dict) and "sha256" in s]
    if quoted:  # a row that was here before: its documents ask for nothing
        text = sources.request({"messages": messages, "sources": quoted})
    return {
        "id": "u-" + hashlib.sha256(text.encode()).hexdigest()[:8],
        "sets": [CORE],
        "checklist": [],
        **given,
        "messages": messages,
        "asks": asks(text, given.get("asks") or {}),
    }


def asks(request: str, own: Record) -> Record:
    """What a request asks for: `own`, which always stands, and what else is read out of its words; nothing where `own` names
    the elements, as rows do that somebody went through."""
    if not isinstance(own, dict) or "features" in own:
        return own
    found = {key: value for key, value in asked.read(request).items() if key not in own}
    if "slides" in own:
        found.pop("fewest", None)
    return found | own


def _object(line: str) -> Record:
    is_json = line.startswith("{") or (line.startswith("[") and line.endswith("]"))
    return stream.json_object(line) if is_json else {"request": line}


def rows(line: str | Record) -> list[Record]:
    """The prompts of a row, one for each of its `turns`; its `sources` are quoted. Raises ValueError."""
    made = row(line)
    names, budget = made.get("sources"), made.pop("budget", sources.BUDGET)
    if names and all(isinstance(name, str | Path) for name in names):
        try:
            found = [sources.find(name, budget) for name in names]
        except sources.NotRead as error:
            raise ValueError(f"{made['id']}: sources: {error}") from None
        if isinstance(names[0], Path):  # in a folder, briefs of the same words have other documents
            inputs = [made["id"], *(document.sha256 for document in found)]
            made["id"] = f"u-{stream.fingerprint(inputs)[:8]}"
        material, made["sources"] = sources.quoted(found, budget)
        *first, last = made["messages"]
        made["messages"] = [*first, {**last, "content": f"{last['content']}\n\n{material}"}]
    return turns.expand(made)


def _messages(request: str) -> list[Record]:
    return [
        {"role": "system", "content": templates.system_prompt()},
        {"role": "user", "content": request},
    ]


def _request(messages: object) -> str:
    """The text of the user's messages; '' where they are not of that form, which the schema then says."""
    listed = messages if isinstance(messages, list) else []
    theirs = [m for m in listed if isinstance(m, dict) and m.get("role") == "user"]
    return "\n".join(str(message.get("content")) for message in theirs)


def check(protocol: Protocol, path: Path | None = None, by: str = "") -> int:
    """Write the prompts of the lines on stdin, or of a file or folder (`by`: as of request_files), to stdout and say on
    stderr what they lack; returns the exit status. What a file holds is said before the first is written."""
    taken = request_files.opened(path, by) if path else request_files.Found("", _stdin())
    seen: dict[int, str] = {}  # where an id was first, by the id's hash
    texts = set[int]()  # the hashes of what was said before
    lacks: Counter[str] = Counter()
    with tempfile.TemporaryFile() as kept:
        for where, given in taken.items:
            try:
                if isinstance(given, ValueError):
                    raise given
                made = rows(given)
                said = hash(_request(made[-1]["messages"]))
                for record in made:
                    valid(record)
                    if path and said in texts:  # whatever id it has, it would count as two
                        raise request_files.LeftOut("said twice")
                    if (first := seen.setdefault(hash(record["id"]), where)) != where:
                        raise ValueError(f"{record['id']}: {first} has this id already")
                if path:
                    texts.add(said)
            except ValueError as error:
                taken.lost(where, error)
                continue
            taken.took(given)
            for record in made:
                if path:
                    kept.write(stream.dumps(record) + b"\n")
                else:
                    stream.emit(record)
                    lacks.update(_say(record))
        taken.look(path)
        kept.seek(0)
        for line in kept:
            sys.stdout.buffer.write(line)
            lacks.update(_say(json.loads(line)))
    if lacks:
        lacking = ", ".join(f"{count} lack {what}" for what, count in lacks.most_common())
        cli.say(f"{len(seen)} prompts; {lacking} (make prompts-check shows what is read)")
    return 65 if taken.bad else 0


def _stdin() -> Iterator[tuple[str, str | ValueError]]:
    for number, data in enumerate(io.BufferedReader(stream.stdin), 1):
        try:
            if data.strip():
                yield f"stdin:{number}", data.decode()
        except UnicodeDecodeError:
            yield f"stdin:{number}", ValueError("not UTF-8 text")


def valid(record: Record) -> None:
    """Raises ValueError for what is not of the schema, or a reference that its item does not find."""
    for error in config_files.validator("prompt.json").iter_errors(record):
        place = ".".join(map(str, error.absolute_path)) or "row"
        raise ValueError(f"{record['id']}: {place}: {error.message[:200]}")
    items, sentences = record["checklist"], record.get("references", [])
    wrong = f"{record['id']}: references: "
    if sentences and len(sentences) != len(items):
        counts = f"{len(sentences)} sentences for {len(items)} items"
        raise ValueError(f"{wrong}{counts}; each item has its own")
    for item, sentence in zip(items, sentences, strict=False):
        if item.get("match") and not found([item], item, sentence):
            raise ValueError(f"{wrong}{item['id']} does not match its own sentence: {sentence}")


def found(items: list[Record], item: Record, sentence: str) -> list[str]:
    """The ids of those `items` that a slide with `sentence` and the elements of `item` satisfies."""
    options = [option for entry in item.get("match", []) for option in entry.split("|")]
    page: Page = {"slide": 1, "text": sentence}
    for option in options:
        page |= rendered.SHOWN.get(option.removeprefix("@"), {}) if option.startswith("@") else {}
    ids = []
    for other in items:
        record = {"render": {"xray": [page]}, "checklist": [other]}
        if rendered.Pages(record, "", LIMITS).answers[0]["yes"]:
            ids.append(other["id"])
    return ids


def _say(record: Record) -> list[str]:
    """What a prompt lacks to be measured by it."""
    found = [] if record["checklist"] else ["a checklist"]
    return found + [key for key in ("slides", "language", "theme") if key not in record["asks"]]
