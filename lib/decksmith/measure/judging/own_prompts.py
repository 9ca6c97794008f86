"""People's own requests made into prompts, with what each lacks to be measured (bin/prompt-check)."""

import hashlib
import json
import re
import sys
from collections import Counter
from typing import TYPE_CHECKING

from decksmith.core import cli, stream
from decksmith.core.protocol import Protocol
from decksmith.core.records import Record
from decksmith.measure.decks import prompts, sources
from decksmith.measure.decks.parser import THEMES
from decksmith.measure.decks.records import Page
from decksmith.measure.decks.words import likeliest_language
from decksmith.measure.judging import offline, rendered
from decksmith.models import turns

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator

SETS = ["core"]  # the set that the offline protocol takes
# "8 slides", "8-slide", and in the languages of data/prompts.jsonl where the word is plain.
SLIDES = re.compile(
    r"\b(\d{1,2})[\s-]+(?:slides?|folien|diapositiv\w+|diapos|slajd\w+|slide)\b", re.IGNORECASE
)
WORDS = {
    word: number
    for number, word in enumerate(
        "three four five six seven eight nine ten eleven twelve".split(), start=3
    )
}
SPELLED = re.compile(rf"\b({'|'.join(WORDS)})[\s-]+slides?\b", re.IGNORECASE)
# A reference sentence is looked for as it stands: no slide around it is too long or too pale.
LIMITS: rendered.MeasureSettings = {
    "checklist": {"words": 120, "per_slide": 1, "unreadable_px": 0, "unreadable_contrast": 0}
}
THEME = re.compile(rf"\b({'|'.join(map(re.escape, THEMES))})\s+theme\b", re.IGNORECASE)


def row(line: str) -> Record:
    """The prompt that a line stands for: plain words, or a JSON object with `request` or `messages`.

    What it does not say is filled in: id, sets, the system message, and of `asks` what the request itself names.
    Raises ValueError for a line that is no request.
    """
    if not line.lstrip().startswith("{"):
        given: Record = {"request": line.strip()}
    else:
        given = json.loads(line)
    request = given.pop("request", None) or given.pop("prompt", None)
    messages = given.get("messages")
    if isinstance(request, str) and not messages:
        messages = [
            {"role": "system", "content": prompts.system()},
            {"role": "user", "content": request},
        ]
    if not messages:
        raise ValueError('no "request" and no "messages" in this row')
    text = _request(messages)
    quoted = [s for s in given.get("sources") or [] if isinstance(s, dict) and "sha256" in s]
    if quoted:  # a row that was here before: its documents ask for nothing
        text = sources.request({"messages": messages, "sources": quoted})
    made = "u-" + hashlib.sha256(text.encode()).hexdigest()[:8]
    return {
        "id": made,
        "sets": SETS,
        "checklist": [],
        **given,
        "messages": messages,
        "asks": named(text) | (given.get("asks") or {}),
    }


def rows(line: str) -> list[Record]:
    """The prompts that a line stands for: one, or one for each of its `turns`, with the `sources` that it names quoted in
    the last of its first messages. Raises ValueError."""
    made = row(line)
    names, budget = made.get("sources"), made.pop("budget", sources.BUDGET)
    if names and all(isinstance(name, str) for name in names):
        try:
            material, made["sources"] = sources.quoted(
                [sources.find(name, budget) for name in names], budget
            )
        except sources.NotRead as error:
            raise ValueError(f"{made['id']}: sources: {error}") from None
        *first, last = made["messages"]
        made["messages"] = [*first, {**last, "content": f"{last['content']}\n\n{material}"}]
    return turns.expand(made)


def named(request: str) -> Record:
    """What a request itself names of `asks`: the number of slides, the theme, the language."""
    found: Record = {}
    if match := SLIDES.search(request):
        found["slides"] = int(match[1])
    elif match := SPELLED.search(request):
        found["slides"] = WORDS[match[1].lower()]
    if match := THEME.search(request):
        found["theme"] = match[1].lower()
    if language := likeliest_language(request):
        found["language"] = language
    return found


def _request(messages: object) -> str:
    """The text of the user's messages; '' where they are not of that form, which the schema then says."""
    if not isinstance(messages, list):
        return ""
    return "\n".join(
        str(message.get("content"))
        for message in messages
        if isinstance(message, dict) and message.get("role") == "user"
    )


def check(protocol: Protocol) -> int:
    """Write the prompts of the lines on stdin to stdout and say on stderr what they lack; returns the exit status."""
    from jsonschema import Draft202012Validator

    schema = json.loads((cli.ROOT / "assets/schemas/prompt.json").read_text())
    validator = Draft202012Validator(schema)
    seen: dict[str, int] = {}
    lacks: Counter[str] = Counter()
    bad = 0
    for number, line in enumerate(sys.stdin, 1):
        if not line.strip():
            continue
        try:
            made = rows(line)
            for record in made:
                valid(validator, record)
                if (first := seen.setdefault(record["id"], number)) != number:
                    raise ValueError(f"{record['id']}: this id is on line {first} already")
        except ValueError as error:
            cli.say(f"stdin:{number}: {error}")
            bad += 1
            continue
        for record in made:
            stream.emit(record)
            lacks.update(_say(record, protocol))
    if not seen:
        raise cli.BadData("stdin: no request in it")
    if lacks:
        said = ", ".join(f"{count} lack {what}" for what, count in lacks.most_common())
        cli.say(f"{len(seen)} prompts; {said} (docs/prompts.md)")
    return 65 if bad else 0


def valid(validator: "Draft202012Validator", record: Record) -> None:
    """Raises ValueError with the place and the reason of the first thing that is not of the schema, or of the first
    reference sentence that its own item of the checklist does not find."""
    for error in validator.iter_errors(record):
        place = ".".join(map(str, error.absolute_path)) or "row"
        raise ValueError(f"{record['id']}: {place}: {error.message[:200]}")
    items, sentences = record["checklist"], record.get("references", [])
    if sentences and len(sentences) != len(items):
        raise ValueError(
            f"{record['id']}: references: {len(sentences)} sentences for {len(items)} items; each item has its own"
        )
    for item, sentence in zip(items, sentences, strict=False):
        if item.get("match") and not found([item], item, sentence):
            raise ValueError(
                f"{record['id']}: references: {item['id']} does not match its own sentence: {sentence}"
            )


def found(items: list[Record], item: Record, sentence: str) -> list[str]:
    """The ids of the checklist's `items` that the offline judge finds on one slide with the `sentence` and every element
    (`@table` ...) that `item` names. Bounded by no `per_slide`: each item is looked for on its own."""
    options = [option for entry in item.get("match", []) for option in entry.split("|")]
    page: Page = {"slide": 1, "text": sentence}
    for option in options:
        page |= rendered.SHOWN.get(option.removeprefix("@"), {}) if option.startswith("@") else {}
    render = {"xray": [page]}
    ids = []
    for other in items:
        record = {"render": render, "checklist": [other]}
        if rendered.Pages(record, "", LIMITS).answers[0]["yes"]:
            ids.append(other["id"])
    return ids


def _say(record: Record, protocol: Protocol) -> list[str]:
    """Say what a prompt lacks and what that silences; returns the names of what it lacks."""
    found = [] if record["checklist"] else ["a checklist"]
    found += [name for name in ("slides", "language", "theme") if name not in record["asks"]]
    silenced = []
    needed = protocol.judge.get("needed")
    if needed and offline.lacking(record, needed):
        silenced.append("Content and Overall are not measured")
    if not record["checklist"]:
        silenced.append("no share of the checklist")
    if found:
        said = f"lacks {', '.join(found)}" + (f": {'; '.join(silenced)}" if silenced else "")
        stream.warn(record["id"], said)
    return found
