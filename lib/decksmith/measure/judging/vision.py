"""A model as the judge: it gets the request and the slides' pictures, or the text on them, and nothing else.

A reply is data, checked against schema and deck, and asked for again when it cannot be used. A judge that never gives
a usable reply is a judge fault, never a score."""

import asyncio
import base64
import hashlib
import io
import json
import re
from pathlib import Path
from typing import Any, TypedDict, Unpack, cast

from decksmith.core import cli, incoming, stream
from decksmith.core.protocol import Protocol
from decksmith.core.records import By, Record
from decksmith.measure.decks import lint
from decksmith.measure.decks.words import fold
from decksmith.measure.judging import checks, identity, scoring
from decksmith.measure.judging.records import Answer, DeckRecord, Judge, Seen
from decksmith.measure.judging.rendered import ELEMENTS, Pages
from decksmith.models.replies import added

LONGEST = 100_000  # characters of a reply that are looked at


def digests(run: Path, record: DeckRecord) -> list[str]:
    """The sha256 of every picture of the deck, and of the one before an edit; raises cli.BadData for one that is not there."""
    render = record["render"]
    paths = [*(render.get("slides") or []), *(render.get("before") or [])]
    try:
        return [hashlib.sha256((run / path).read_bytes()).hexdigest() for path in paths]
    except OSError as error:
        raise cli.BadData(f"{record['id']}: {error}; render it again") from None


def vision_inputs(judging: Record, run: Path, record: DeckRecord) -> list[object]:
    """What the verdict of a vision model on a record depends on; `judging` as from identity.judging, `run` the folder."""
    render, asked = record["render"], checks.fewest(record.get("asks") or {}) or None
    made = [render.get("expected"), render.get("slides"), digests(run, record)]
    return [judging, request_of(record), items(record), asked, *made]


def again(reply: str, problem: str) -> list[Record]:
    """What follows a reply of the judge that cannot be used."""
    asked = "Judge the same slides again, and answer with one JSON object of the required form"
    said = f"This reply cannot be used: {problem}. {asked} and nothing else."
    return [
        {"role": "assistant", "content": reply[:4000] or "(empty)"},
        {"role": "user", "content": said},
    ]


class Access(TypedDict, total=False):
    """How a model that reads decks is asked: at another endpoint, so many at once, for so many USD at most."""

    base_url: str | None
    key_env: str | None
    jobs: int | None
    budget: float | None


class Vision:
    """A vision model behind any endpoint. Raises cli.BadConfig for an unknown one or a missing key."""

    def __init__(self, protocol: Protocol, run: Path, **access: Unpack[Access]) -> None:
        from decksmith.models import client

        self.run, self.protocol, self.judging = run, protocol, identity.judging(protocol)
        self.client = client.Client.open(protocol.judge["model"], blame="judge", **access)
        self.jobs, self.close = self.client.jobs, self.client.close
        self.rubric = stream.fingerprint(self.judging)
        self.system, self.schema = protocol.prompt, protocol.schema

    def inputs(self, record: DeckRecord) -> list[object]:
        return vision_inputs(self.judging, self.run, record)

    def valid(self, record: DeckRecord, value: Judge) -> bool:
        return all((self.run / path).is_file() for path in value.get("replies") or [])

    async def work(self, record: DeckRecord, seed: int = 0) -> Judge:
        """The judge's value for a record. `seed`: which of several independent judgings this is (tests/exam)."""
        if not record["render"].get("slides"):
            why = "there is no picture of any slide to judge"
            raise stream.Fault("renderer", "no-pictures", why)
        for old in (self.run / record["id"] / "judge").glob("*.txt"):
            old.unlink()
        shown, seen = await asyncio.to_thread(self._pictures, record)
        first: list[Record] = [{"role": "system", "content": self.system}]
        first.append({"role": "user", "content": self._question(record, shown, seen)})
        messages, replies, problem = first, list[str](), ""
        usage = added()
        tries = self.protocol.judge["retries"] + 1
        for attempt in range(tries):
            sampling, number = self.protocol.judge["sampling"], seed * tries + attempt
            reply = await self.client.ask(messages, sampling, schema=self.schema, seed=number)
            usage = added(usage, reply.usage)
            replies.append(f"{record['id']}/judge/{attempt + 1}.txt")
            stream.write(self.run / replies[-1], reply.text)
            kept: Judge = {"replies": replies, "usage": usage, "rubric": self.rubric}
            try:
                if reply.finish_reason == "length":
                    raise ValueError("it was cut off at the token limit; write less")
                said = usable(reply.text, self.schema, items(record), seen["slides"])
                self._verify(said, shown)
            except ValueError as error:
                problem = str(error)
                stream.warn(
                    record["id"], f"reply {attempt + 1} of the judge cannot be used: {problem}"
                )
                messages = first + again(reply.text, problem)
                continue
            value = self._value(record, said)
            return {**value, "seen": seen, **kept, "by": cast(By, {"attempts": attempt + 1})}
        message = f"no usable reply in {len(replies)} tries; the last: {problem}"
        return {"error": {"kind": "judge", "class": "unparseable", "message": message}, **kept}

    def _verify(self, said: Record, shown: dict[int, Any]) -> None:
        """Hold what a usable reply says against what was shown."""

    def _value(self, record: DeckRecord, said: Record) -> Judge:
        names = judged(self.schema)
        given = {name: said[name]["score"] for name in names}
        asked = checks.fewest(record.get("asks") or {}) or None
        made = len(record["render"].get("slides") or [])
        scores, caps = scoring.capped(self.protocol, given, said["observations"], asked, made)
        answers = {}
        for one in said["checklist"]:
            slide = one["slide"] if one["yes"] else None
            answers[one["id"]] = Answer(id=one["id"], yes=one["yes"], slide=slide)
        return {
            "judge": self.judging["slug"],
            "scores": {**scores},
            "given": given,
            "why": {name: said[name]["why"] for name in names},
            "evidence": {name: said[name]["evidence"] for name in names},
            "observations": said["observations"],
            "caps": caps,
            "checklist": [answers[item["id"]] for item in items(record)],
        }

    def _pictures(self, record: DeckRecord) -> tuple[dict[int, Any], Seen]:
        """`({slide: PNG bytes}, what was shown)`: bounded in number (spread evenly) and in bytes (made smaller)."""
        settings = self.protocol.judge
        made = record["render"].get("slides") or []
        paths = {int(Path(path).stem): self.run / path for path in made}
        every = sorted(paths)
        numbers = [every[place - 1] for place in spread(len(every), settings["max_slides"])]
        width = settings["image_width"]
        while True:
            shown = {n: png(record["id"], paths[n], width) for n in numbers}
            size = sum(map(len, shown.values()))
            if size <= settings["max_bytes"] or width < 240:
                of = max([*paths, record["render"].get("expected") or 0])
                return shown, {"slides": numbers, "of": of, "width": width, "bytes": size}
            width = width * 4 // 5

    def _question(
        self, record: DeckRecord, shown: dict[int, Any], seen: Seen
    ) -> list[dict[str, object]]:
        parts = [f"The request that the deck answers:\n<request>\n{request_of(record)}\n</request>"]
        if asked := [f"{item['id']}: {item['ask']}" for item in items(record)]:
            parts.append("\n".join(["The checklist:", *asked]))
        count = f"The deck has {seen['of']} slides."
        if len(shown) < seen["of"]:
            lost = [n for n in range(1, seen["of"] + 1) if n not in shown]
            count += f" You see {len(shown)} of them; not shown: {', '.join(map(str, lost))}."
        content: list[dict[str, object]] = [{"type": "text", "text": "\n\n".join([*parts, count])}]
        for n, data in shown.items():
            content += self._slide(n, data)
        return [*content, {"type": "text", "text": "That was the last slide. Judge the deck."}]

    def _slide(self, n: int, data: Any) -> list[dict[str, object]]:
        """A slide as it is shown."""
        url = "data:image/png;base64," + base64.b64encode(data).decode()
        picture: dict[str, object] = {"type": "image_url", "image_url": {"url": url}}
        return [{"type": "text", "text": f"Slide {n}:"}, picture]


class Text(Vision):
    """A model that gets the words which can be made out on each picture, and which elements a slide shows. It lists what the
    request asks for; that is there where the words that it quotes stand on the slide that it names."""

    def _pictures(self, record: DeckRecord) -> tuple[dict[int, Any], Seen]:
        pages = Pages(dict(record), self.run, lint.limits())
        every = pages.numbers
        numbers = [every[k - 1] for k in spread(len(every), self.protocol.judge["max_slides"])]
        shown = {n: as_text(pages, n)[: LONGEST // len(numbers)] for n in numbers}
        size = sum(len(text.encode()) for text in shown.values())
        return shown, {"slides": numbers, "of": len(every), "width": 0, "bytes": size}

    def _slide(self, n: int, data: Any) -> list[dict[str, object]]:
        return [{"type": "text", "text": f"Slide {n}:\n{data}"}]

    def _verify(self, said: Record, shown: dict[int, Any]) -> None:
        for one in said["asked"]:
            quote = fold(one["quote"] or "")
            one["yes"] = bool(one["yes"] and quote and quote in fold(shown.get(one["slide"], "")))

    def _value(self, record: DeckRecord, said: Record) -> Judge:
        value = super()._value(record, said)
        there = [one["what"] for one in said["asked"] if one["yes"]]
        most = 1 + 4 * len(there) / len(said["asked"])
        if (value["scores"]["content"] or 0) > most:
            why = f"{len(there)} of {len(said['asked'])} asked things stand on a slide"
            value["scores"]["content"] = most
            value["caps"].append({"dimension": "content", "max": most, "why": why})
        return value


def as_text(pages: Pages, n: int) -> str:
    """What a reader of text gets of a slide: the elements that it shows, and what can be made out in its picture."""
    elements = ", ".join(name for name in ELEMENTS if pages.has(n, name))
    shows = f"[shows: {elements}]\n" if elements else ""
    return shows + pages.readable.get(n, "")


def judged(schema: Record) -> list[str]:
    """The dimensions that a judge of this form of reply scores."""
    return [name for name in scoring.JUDGED if name in schema["properties"]]


def spread(count: int, most: int) -> list[int]:
    """The numbers, from 1, of at most `most` of `count` slides: spread evenly, the first and the last among them."""
    if count <= most:
        return list(range(1, count + 1))
    step = (count - 1) / (most - 1)
    return [1 + round(place * step) for place in range(most)]


def request_of(record: DeckRecord) -> str:
    """What the user asked for, all of it."""
    messages = record.get("messages") or []
    return "\n\n".join(m["content"] for m in messages if m.get("role") == "user")


def items(record: DeckRecord) -> list[dict[str, str]]:
    """The questions of a prompt's checklist."""
    return [{"id": item["id"], "ask": item["ask"]} for item in record.get("checklist") or []]


def png(ident: str, path: Path, width: int) -> bytes:
    """A picture of a record's deck as PNG, no wider than `width`. Raises cli.BadData."""
    from PIL import Image

    try:
        with Image.open(path) as picture:
            shown = picture.convert("RGB")
            if shown.width > width:
                size = (width, round(shown.height * width / shown.width))
                shown = shown.resize(size, Image.Resampling.LANCZOS)
            out = io.BytesIO()
            shown.save(out, "PNG")
    except OSError as error:
        raise cli.BadData(f"{ident}: {error}; render it again") from None
    return out.getvalue()


def usable(text: str, schema: Record, items: list[dict[str, str]], slides: list[int]) -> Record:
    """The judge's answer in a reply, checked against checklist and slides shown; raises ValueError."""
    said = one_object(text, schema)
    for name in judged(schema):
        if not said[name]["why"].strip():
            raise ValueError(f"{name}.why is empty")
    answered = [item["id"] for item in said["checklist"]]
    for ident in (item["id"] for item in items):
        if (times := answered.count(ident)) != 1:
            raise ValueError(
                f"the checklist item {ident} is answered {times} times instead of once"
            )
    if extra := set(answered) - {item["id"] for item in items}:
        raise ValueError(f"there is no checklist item {sorted(extra)[0]}")
    cited = [("evidence", e["slide"]) for name in judged(schema) for e in said[name]["evidence"]]
    cited += [("observations", o["slide"]) for o in said["observations"] if o["slide"] is not None]
    for item in (item for item in said["checklist"] if item["yes"]):
        if item["slide"] is None:
            start = f"the checklist item {item['id']} is answered yes"
            raise ValueError(f"{start} without the slide that shows it")
        cited.append(("checklist", item["slide"]))
    for where, slide in cited:
        if slide not in slides:
            raise ValueError(f"{where} names slide {str(slide)[:20]}, which was not shown")
    return said


def one_object(text: str, schema: Record) -> Record:
    """The one JSON object in a reply that fits the schema; raises ValueError with what is wrong."""
    from jsonschema import Draft202012Validator

    check = Draft202012Validator(schema)
    found: list[Record] = []
    errors = []
    for candidate in _objects(text[:LONGEST]):
        wrong = sorted(check.iter_errors(candidate), key=lambda e: len(e.absolute_path))
        if wrong:
            errors.append((len(candidate), wrong[0]))
        elif candidate not in found:
            found.append(candidate)
    if not found and not errors:
        raise ValueError("it holds no JSON object")
    if not found:
        error = max(errors, key=lambda pair: pair[0])[1]
        where = ".".join(map(str, error.absolute_path)) or "the object"
        raise ValueError(f"{where}: {error.message[:200]}")
    if len(found) > 1:
        raise ValueError("it holds several different answers")
    return found[0]


def _objects(text: str) -> list[Any]:
    """Every top-level JSON object; else the outermost braces as YAML, which forgives bare keys."""
    decoder = json.JSONDecoder(strict=False, parse_constant=incoming.no_constant)
    objects: list[Any] = []
    first = place = text.find("{")
    tries = 0
    while place >= 0 and tries < 200:
        try:
            value, end = decoder.raw_decode(text, place)
            objects.append(value)
        except (ValueError, RecursionError):
            end, tries = place + 1, tries + 1
        place = text.find("{", end)
    whole = text[first : text.rfind("}") + 1] if first >= 0 else ""
    marked = re.search(r"[:,{\[]\s*[&*!]", whole)  # anchors and tags could make YAML explode
    if whole and not marked and not any("checklist" in o for o in objects):
        from ruamel.yaml import YAML
        from ruamel.yaml.error import YAMLError

        try:
            value = YAML(typ="safe", pure=True).load(whole.replace("\t", " "))
            objects += [value] if isinstance(value, dict) else []
        except (YAMLError, ValueError, RecursionError):
            pass
    return objects
