"""A model that reads a deck beside its documents and says which claims they support (deck-judge --claims).

Its word is checked where it can be: a claim counts as supported only with a quotation that stands in a document. What it says is
no part of a score, and when it says nothing usable the deck keeps its score.
"""

import json
from collections.abc import Iterable
from pathlib import Path

from decksmith.core import cli, stream
from decksmith.core.records import Record
from decksmith.measure.decks import prompts, sources
from decksmith.measure.decks.parser import Deck
from decksmith.measure.decks.words import fold
from decksmith.measure.judging import vision
from decksmith.measure.judging.records import DeckRecord
from decksmith.models import client

MOST = 40  # claims of a deck
TRIES = 3
LONGEST = 60_000  # characters of a deck that are read
SAMPLING = {"temperature": 0, "max_tokens": 8192}


class ClaimReader:
    """What stream.stage needs for the key `claims`: `work`, `inputs`, `valid`, `jobs`, `close`."""

    def __init__(
        self,
        run: Path,
        model: str,
        *,
        base_url: str | None = None,
        key_env: str | None = None,
        jobs: int | None = None,
        budget: float | None = None,
    ) -> None:
        """Raises cli.BadConfig for an unknown model or a missing key."""
        self.run = run
        self.client = client.Client.open(
            model, base_url=base_url, key_env=key_env, jobs=jobs, budget=budget, blame="judge"
        )
        self.jobs, self.close = self.client.jobs, self.client.close
        self.system = prompts.text("judge-claims.txt").replace("{most}", str(MOST))
        self.schema = json.loads((cli.ROOT / "assets/schemas/claims.json").read_text())
        told = stream.fingerprint([self.system, self.schema, SAMPLING])
        self.reader = f"{self.client.model.slug} {told[:12]}"

    def inputs(self, record: DeckRecord) -> list[object]:
        return [self.reader, self._deck(record), record.get("sources")]

    def valid(self, record: DeckRecord, value: Record) -> bool:
        return "unread" not in value

    async def work(self, record: DeckRecord) -> Record:
        """The value of `claims`; empty where the record has no documents or no deck."""
        deck = self._deck(record)
        if not record.get("sources") or not deck:
            return {"share": None, "claims": []}
        slides = [f"[slide {slide.no}]\n{slide.content}" for slide in Deck.parse(deck).shown]
        documents = sources.material(record)
        quoted = [f"[{name}]\n{text}" for name, text in documents.items()]
        shown = "\n\n".join(slides)[:LONGEST]
        question = "\n\n".join(["The documents:", *quoted, "The deck:", shown])
        asked: list[Record] = [
            {"role": "system", "content": self.system},
            {"role": "user", "content": question},
        ]
        messages, problem = asked, ""
        usage = vision.added()
        for attempt in range(TRIES):
            try:
                reply = await self.client.ask(messages, SAMPLING, schema=self.schema, seed=attempt)
                usage = vision.added(usage, reply.usage)
                claims = usable(reply.text, self.schema, len(slides), documents.values())
            except stream.Fault as fault:
                problem = fault.error["message"]
                break
            except ValueError as error:
                problem = str(error)
                messages = asked + vision.again(reply.text, problem)
                continue
            supported = sum(claim["supported"] for claim in claims)
            share = round(supported / len(claims), 4) if claims else None
            return {"share": share, "claims": claims, "reader": self.reader, "usage": usage}
        stream.warn(record["id"], f"its claims were not read: {problem}")
        return {"share": None, "claims": [], "unread": problem, "usage": usage}

    def _deck(self, record: DeckRecord) -> str:
        path = (record.get("deck") or {}).get("path")
        return (self.run / path).read_text("utf-8", "replace") if path else ""


def usable(text: str, schema: Record, slides: int, documents: Iterable[str]) -> list[Record]:
    """The claims of a reply, checked: one whose quotation stands in no document is not supported. Raises ValueError with a
    sentence that tells the reader what was wrong."""
    from jsonschema import Draft202012Validator

    check = Draft202012Validator(schema)
    found: list[Record] = []
    for one in vision.objects(text[: vision.LONGEST]):
        if check.is_valid(one) and one not in found:
            found.append(one)
    if len(found) != 1:
        raise ValueError("it holds no JSON object of the required form, or more than one")
    claims = found[0]["claims"]
    if len(claims) > MOST:
        raise ValueError(f"it has {len(claims)} claims; give at most {MOST}")
    known = [fold(document) for document in documents]
    for claim in claims:
        if claim["slide"] > slides:
            raise ValueError(f"there is no slide {claim['slide']}")
        quote = fold(claim["quote"] or "")
        claim["supported"] = bool(
            claim["supported"] and quote and any(quote in text for text in known)
        )
    return list(claims)
