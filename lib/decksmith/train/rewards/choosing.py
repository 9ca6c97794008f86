"""Which deck is taken: of several samples the best one, by X-ray findings, by a reward, or by the
score of the evaluation's own judge; and of a deck that goes back to its model with what is seen to
be wrong, what comes back only where it is better."""

import base64
import math
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, cast

from decksmith.core import stream
from decksmith.core.protocol import Protocol
from decksmith.core.records import Record, prompt_of, sample_of
from decksmith.measure.decks import clean, edits, lint, pictures
from decksmith.measure.decks.conditions import Condition
from decksmith.measure.decks.parser import Deck
from decksmith.measure.decks.records import Finding
from decksmith.measure.judging import scoring
from decksmith.measure.judging.records import DeckRecord
from decksmith.measure.render.pool import Pool
from decksmith.measure.results import usage
from decksmith.models.client import Client
from decksmith.models.records import Usage
from decksmith.train.rewards import rules

PICTURES = 6  # that a model which sees is sent at once
REPLACED = ("deck", "images", "render")  # of a record, by those of the round that was kept


class Criterion:
    """What a rendered deck is worth by a table of a condition, more is better.

    by: xray, minus the findings a slide; reward, 0 to 1; or judge, the score that is there.
    """

    def __init__(self, by: str, table: Record) -> None:
        self.by, self.name, self.sha256 = by, by, None
        if by == "reward":
            self.rules = rules.read(table.get("rules", "layout"))
            self.sha256 = self.rules.sha256
            self.name = f"{by} {self.rules.name} {self.sha256[:12]}"

    def worth(self, record: Record, run: str | Path) -> float | None:
        """None where its model failed. Raises cli.BadData for a record that lacks what an earlier
        stage writes."""
        if stream.fault(record):
            return None
        if self.by == "judge":
            return scoring.worth(record["score"])
        if self.by == "reward":
            return rules.reward(record, self.rules, run)["reward"]
        slides = len(record["render"].get("slides") or []) or 1
        return -round(len(lint.examine(run, record)["findings"]) / slides, 4)


def chosen(records: Iterable[Record], condition: Condition, run: str | Path) -> Iterator[Record]:
    """Of each prompt's samples, which follow each other, the best by the condition's rule, under the
    prompt's id; the first of equals. `choose` says what the others were worth and took.

    A sample that failed through no fault of its model leaves the prompt undecided: the record has
    that fault. By `judge`, records without a score pass through as they are, and so does what was
    chosen before: the same command stands before and behind the judge.
    """
    by = condition.samples["choose"]
    criterion = Criterion(by, condition.samples)
    for _, group in groupby(records, prompt_of):
        samples = list(group)
        is_early = by == "judge" and "score" not in samples[0]
        if is_early or "choose" in samples[0]:
            yield from samples
            continue
        worths = [criterion.worth(sample, run) for sample in samples]
        ranked = [-math.inf if one is None else one for one in worths]
        best = ranked.index(max(ranked))
        value: Record = {
            "rule": criterion.name,
            "k": sample_of(samples[best]),
            "n": condition.n,
            "worth": worths,
            "spent": usage.of_all(cast(list[DeckRecord], samples)),
        }
        if lost := _lost(samples, condition.n):
            value["error"] = lost
        yield {**samples[best], "id": prompt_of(samples[best]), "choose": value}


def _lost(samples: list[Record], n: int) -> Record | None:
    """Why nothing can be chosen, as an error, or None."""
    for sample in samples:
        fault = stream.fault(sample)
        if fault and fault["kind"] != "model":
            said = f"{sample['id']}: {fault['message']}"
            return {"kind": fault["kind"], "class": fault["class"], "message": said}
    if len(samples) < n:
        said = f"{len(samples)} of {n} samples arrived; run again"
        return {"kind": "infra", "class": "samples-missing", "message": said}
    return None


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
        self.sampling.pop("stop_early", None)  # an edit has no slide to begin with
        self.table = condition.revise
        self.criterion = Criterion(self.table["by"], self.table)
        self.journal: stream.Journal | None = None

    def inputs(self, record: Record) -> Any:
        """Everything that decides what becomes of a record."""
        if not self._can_be_revised(record):
            return ["unrevised", record["id"]]
        asked = self._request(record, self._findings(record), 1)
        engine = record["render"]["engine"]
        return [asked, self.table, self.criterion.sha256, self.protocol.render, engine]

    async def revise(self, record: Record) -> Record:
        """The value of `revise`: `{"rule", "rounds", "kept", "stages"}`; `stages` are the deck's,
        images' and render's values of the last round that was kept. Raises stream.Fault where the
        endpoint does not answer."""
        value: Record = {"rule": self.criterion.name, "rounds": [], "kept": 0, "stages": {}}
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
        before, after = (self.criterion.worth(one, self.run) for one in (now, made))
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
        fresh["images"] = pictures.illustrate(self.run, fresh)
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
