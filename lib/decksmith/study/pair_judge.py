"""A vision model as a voter: it sees both decks of a pair, in both orders, and says which it prefers."""

import base64
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from decksmith.core import cli
from decksmith.core.protocol import Protocol
from decksmith.core.records import Record
from decksmith.judging import vision
from decksmith.models import client

SIDES = {"A": "left", "B": "right", "tie": "tie"}
SAID = ("choice", "content", "design", "coherence")


def both_orders(pair: Record) -> list[Record]:
    """A pair as it is and with its sides swapped, `ID~0` and `ID~1`; none of a repeat, which would ask the same again."""
    if pair.get("kind") == "repeat":
        return []
    swapped = {**pair, "left": pair["right"], "right": pair["left"]}
    swapped["pictures"] = {
        "left": pair["pictures"]["right"],
        "right": pair["pictures"]["left"],
    }
    return [{**pair, "id": f"{pair['id']}~0"}, {**swapped, "id": f"{pair['id']}~1"}]


class Voter:
    """A model that votes, with what stream.stage needs. `protocol`: one whose judge is a vision model; its bounds on
    pictures, sampling and tries hold here. Raises cli.BadConfig for another protocol or an unknown model."""

    def __init__(
        self,
        folder: str | Path,
        protocol: Protocol,
        model: str,
        *,
        base_url: str | None = None,
        key_env: str | None = None,
        jobs: int | None = None,
        budget: float | None = None,
    ) -> None:
        if protocol.judge["kind"] != "vision":
            raise cli.BadConfig(
                f"the protocol {protocol.name} has no vision judge whose settings could be used; type --protocol published"
            )
        self.folder, self.settings = Path(folder), protocol.judge
        self.client = client.Client.open(
            model, base_url=base_url, key_env=key_env, jobs=jobs, budget=budget, blame="judge"
        )
        self.jobs, self.close = self.client.jobs, self.client.close
        self.system = (cli.ROOT / "assets/prompts/judge-pair.txt").read_text(encoding="utf-8")
        self.schema = json.loads((cli.ROOT / "assets/schemas/judge-pair.json").read_text("utf-8"))

    def inputs(self, pair: Record) -> list[Any]:
        kept = {key: value for key, value in self.settings.items() if key not in ("model", "caps")}
        paths = [str(path) for side in ("left", "right") for path in self._slides(pair, side)]
        return [
            kept,
            self.client.model.slug,
            self.system,
            pair["request"],
            vision.digests(self.folder, {**pair, "render": {"slides": paths}}),
        ]

    async def work(self, pair: Record) -> Record:
        """What the model says of a pair in this order: choice and dimensions as `left`, `right` or `tie`, why, usage."""
        first: list[Record] = [
            {"role": "system", "content": self.system},
            {"role": "user", "content": self._question(pair)},
        ]
        messages, problem = first, ""
        usage: Record = {}
        tries = self.settings["retries"] + 1
        for attempt in range(tries):
            reply = await self.client.ask(
                messages, self.settings["sampling"], schema=self.schema, seed=attempt
            )
            usage = vision.added(usage, reply.usage)
            try:
                said = vision.one_object(reply.text, self.schema)
            except ValueError as error:
                problem = str(error)
                messages = first + vision.again(reply.text, problem)
                continue
            return {
                "judge": self.client.model.slug,
                **{name: SIDES[said[name]] for name in SAID},
                "why": said["why"],
                "usage": usage,
                "by": {"attempts": attempt + 1},
            }
        message = f"no usable reply in {tries} tries; the last: {problem}"
        return {
            "error": {"kind": "judge", "class": "unparseable", "message": message},
            "usage": usage,
        }

    def _slides(self, pair: Record, side: str) -> list[Path]:
        """The pictures of one side that are shown: spread evenly where there are many."""
        names = pair["pictures"][side]
        return [Path("pictures", names[n - 1]) for n in vision.spread(len(names), self._most())]

    def _most(self) -> int:
        """Pictures of one deck in a request."""
        return max(2, self.settings["max_slides"] // 2)

    def _question(self, pair: Record) -> list[Record]:
        content: list[Record] = [
            {"type": "text", "text": f"The request:\n<request>\n{pair['request']}\n</request>"}
        ]
        for letter, side in (("A", "left"), ("B", "right")):
            count = len(pair["pictures"][side])
            content.append({"type": "text", "text": f"Deck {letter}, {count} slides."})
            numbers = vision.spread(count, self._most())
            for number, path in zip(numbers, self._slides(pair, side), strict=True):
                data = vision.png(pair["id"], self.folder / path, self.settings["image_width"])
                url = "data:image/png;base64," + base64.b64encode(data).decode()
                content += [
                    {"type": "text", "text": f"Deck {letter}, slide {number}:"},
                    {"type": "image_url", "image_url": {"url": url}},
                ]
        return [*content, {"type": "text", "text": "That was the last slide. Compare the decks."}]


def votes(rows: Iterable[Record]) -> list[Record]:
    """The answers of `Voter` in rows of pair-judge, one for each that has one: `{"pair", "order", "prompt", "left",
    "right", "choice", "dimensions", ..}`."""
    found = []
    for row in rows:
        said = row.get("judge") or {}
        if "choice" in said and row.get("kind") == "vote":
            pair, _, order = row["id"].rpartition("~")
            found.append(
                {
                    "pair": pair,
                    "order": int(order),
                    "prompt": row["prompt"],
                    "left": row["left"]["model"],
                    "right": row["right"]["model"],
                    "choice": said["choice"],
                    "dimensions": {name: said[name] for name in SAID[1:]},
                }
            )
    return found
