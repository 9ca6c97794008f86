"""Revision: a deck goes back to its model with what is seen to be wrong, and what comes back is kept
only where it is better."""

import base64
from pathlib import Path
from typing import Any, cast

from decksmith.core import stream
from decksmith.core.protocol import Protocol
from decksmith.core.records import Record, sample_of
from decksmith.measure.decks import clean, edits, lint, pictures
from decksmith.measure.decks.conditions import Condition
from decksmith.measure.decks.parser import Deck
from decksmith.measure.decks.records import Finding
from decksmith.measure.render.pool import Pool
from decksmith.measure.results import usage
from decksmith.models.client import Client
from decksmith.models.records import Usage
from decksmith.train.rewards import choosing

PICTURES = 6  # that a model which sees is sent at once
REPLACED = ("deck", "images", "render")  # of a record, by those of the round that was kept


class Reviser:
    """Revises the decks of one run. Replies stand in RUN/journal/revise-reply.jsonl before anything
    is made of them: none is paid for twice."""

    def __init__(
        self,
        condition: Condition,
        protocol: Protocol,
        client: Client,
        sampling: Record,
        run: Path,
        pool: Pool,
    ) -> None:
        self.condition, self.protocol, self.client = condition, protocol, client
        self.sampling, self.run, self.pool = dict(sampling), run, pool
        self.seed = self.sampling.pop("seed", None)
        self.table = condition.revise
        self.rules = choosing.rules_of(self.table, self.table["by"])
        self.source = pictures.providers(protocol.images["provider"])
        self.journal: stream.Journal | None = None

    def inputs(self, record: Record) -> Any:
        """Everything that decides what becomes of a record."""
        if not self._can_be_revised(record):
            return ["unrevised", record["id"]]
        rules = self.rules and self.rules.sha256
        asked = self._request(record, self._findings(record), 1)
        return [asked, self.table, rules, self.protocol.render, record["render"]["engine"]]

    async def revise(self, record: Record) -> Record:
        """The value of `revise`: `{"rule", "rounds", "kept", "stages"}`; `stages` are the deck's,
        images' and render's values of the last round that was kept. Raises stream.Fault where the
        endpoint does not answer."""
        by = self.table["by"]
        rule = by if self.rules is None else f"{by} {self.rules.name} {self.rules.sha256[:12]}"
        value: Record = {"rule": rule, "rounds": [], "kept": 0, "stages": {}}
        if not self._can_be_revised(record):
            return value
        now = record
        for number in range(1, self.table["rounds"] + 1):
            if not (found := self._findings(now)):
                break
            told, made = await self._round(record, now, found, number)
            value["rounds"].append(told)
            if made is not None:
                now, value["kept"] = made, number
                value["stages"] = {key: made[key] for key in REPLACED}
        return value

    async def _round(
        self, record: Record, now: Record, found: list[Finding], number: int
    ) -> tuple[Record, Record | None]:
        """(what a round says of itself, the record with the new deck where that was kept)."""
        ident = f"{record['id']}~r{number}"
        reply = await self._reply(ident, self._request(now, found, number))
        told: Record = {"kept": False, "findings": len(found), **reply}
        try:
            text = edits.edited(self._text(now), reply["reply"])
            self._guard(self._text(now), text)
            made = await self._made(ident, now, text)
        except edits.NoEdit as error:
            return {**told, "why": str(error)}, None
        except stream.Fault as fault:
            if fault.error["kind"] != "model":
                raise
            return {**told, "why": str(fault)}, None
        if (lost := stream.fault(made)) and lost["kind"] != "model":
            raise stream.Fault(lost["kind"], lost["class"], f"revision {number}: {lost['message']}")
        before, after = self._worth(now), self._worth(made)
        told["worth"] = [before, after]
        if after is None or (before is not None and after <= before):
            return {**told, "why": "it is no better"}, None
        return {**told, "kept": True, "deck": made["deck"]["path"]}, made

    async def _reply(self, ident: str, body: Record) -> Record:
        """`{"reply", "finish_reason", "spent"}` to a request, from the journal where it was asked
        before."""
        if self.journal is None:
            self.journal = stream.Journal(self.run / "journal" / "revise-reply.jsonl", "reply")
        inputs = stream.fingerprint(["revise-reply", body])
        kept: Record | None = self.journal.get(ident, inputs)
        if kept is None:
            reply = await self.client.post(body)
            took = usage.part(cast(Usage, reply.usage), round(reply.took, 3))
            kept = {"reply": reply.text, "finish_reason": reply.finish_reason, "spent": took}
            self.journal.put(ident, inputs, kept)
        return kept

    async def _made(self, ident: str, now: Record, text: str) -> Record:
        """The record with another deck: parsed, illustrated and rendered under the round's own id."""
        under = {key: now["gen"][key] for key in ("condition",) if key in now["gen"]}
        fresh: Record = {"id": ident, "gen": {"text": text, **under}}
        fresh["deck"] = clean.parse(self.run, fresh)
        fresh["images"] = pictures.illustrate(self.run, fresh, self.source)
        fresh["render"] = await self.pool.render(self.run, fresh)
        return {**now, **{key: fresh[key] for key in REPLACED}}

    def _guard(self, before: str, after: str) -> None:
        """Raises edits.NoEdit for a deck that is better only for being less."""
        slides = [len(Deck.parse(text).shown) for text in (before, after)]
        if slides[1] < slides[0]:
            raise edits.NoEdit(f"it has {slides[1]} slides, and the deck had {slides[0]}")
        words = [len(text.split()) for text in (before, after)]
        if words[1] < self.table["words"] * words[0]:
            raise edits.NoEdit(f"it has {words[1]} words, and the deck had {words[0]}")

    def _worth(self, record: Record) -> float | None:
        return choosing.worth(record, self.table["by"], self.run, self.rules)

    def _can_be_revised(self, record: Record) -> bool:
        """Whether there is a rendering, even a failed one, through no fault of ours."""
        fault = stream.fault(record)
        ours = fault and (fault["kind"] != "model" or fault["stage"] != "render")
        return not ours and "xray" in (record.get("render") or {})

    def _findings(self, record: Record) -> list[Finding]:
        return lint.examine(self.run, record)["findings"]

    def _text(self, record: Record) -> str:
        return (self.run / record["deck"]["path"]).read_text(encoding="utf-8", errors="replace")

    def _request(self, record: Record, found: list[Finding], number: int) -> Record:
        """The body of the request for a revision; a model that sees gets the slides with findings."""
        text = self._text(record)
        said: Any = edits.findings(text, found)
        if self.client.model.sees:
            slides = sorted({one["slide"] for one in found if one["slide"]})[:PICTURES]
            said = [{"type": "text", "text": said}, *self._pictures(record, slides)]
        messages = [
            *self.condition.messages(record),
            {"role": "assistant", "content": text},
            {"role": "user", "content": said},
        ]
        seed = None if self.seed is None else self.seed + sample_of(record) + number
        return self.client.request(messages, self.sampling, seed=seed)

    def _pictures(self, record: Record, slides: list[int]) -> list[Record]:
        names = {int(Path(name).stem): name for name in record["render"].get("slides") or []}
        found = []
        for slide in slides:
            if slide in names:
                data = base64.b64encode((self.run / names[slide]).read_bytes()).decode()
                url = {"url": f"data:image/png;base64,{data}"}
                found.append({"type": "image_url", "image_url": url})
        return found

    async def close(self) -> None:
        await self.client.close()
        await self.pool.close()
        if self.journal:
            self.journal.close()


def merged(record: Record, value: Record) -> Record:
    """The record after its revision: the kept round's deck, images and render stand in place of the
    first ones."""
    told = {key: part for key, part in value.items() if key != "stages"}
    return {**record, **value.get("stages", {}), "revise": told}
