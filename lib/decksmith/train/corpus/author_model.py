"""An author that is a model of the registry: the prompt, then the thoughts, then the deck."""

import json
import re
from pathlib import Path
from typing import cast

from decksmith.core import stream
from decksmith.core.records import Message, Record
from decksmith.measure.decks import clean, templates
from decksmith.models.client import Client
from decksmith.models.records import Usage
from decksmith.train.corpus import authors, drafts, rules
from decksmith.train.corpus.authors import Delivery
from decksmith.train.corpus.drafts import Status
from decksmith.train.corpus.records import DraftFault, Seed

ASKS = {"PROMPT.md": "author-prompt.md", "think.md": "author-think.md", "deck.md": "author-deck.md"}
EARLIER = 12_000  # letters of a refused text that the model is shown again
TOLD = 20  # faults of it


class ModelAuthor:
    """Each file is checked before the next is asked for. The gold draft of EXAMPLE.md is shown as an earlier turn."""

    def __init__(self, name: str, client: Client):
        self.client, self.name, self.jobs = client, f"llm:{name}", client.jobs
        self.sampling = {"temperature": 0.7} | client.model.params

    async def close(self) -> None:
        """Give the endpoint back."""
        await self.client.close()

    async def ready(self, parent: Path) -> None:
        """A model needs no walls."""

    async def attempt(self, folder: Path, seed: Seed, status: Status) -> Delivery:
        """One pass over the three files: what has faults is asked for again, and so is all that follows from it."""
        asked, cut = False, status.pop("cut", None)  # a reply of the attempt before was cut off
        for name in drafts.FILES:
            faults, earlier = _faults(folder, seed, name), drafts.text(folder / name)
            if cut and cut["file"] == name:
                faults, cut = [cut, *faults], None
            if earlier is not None and not faults and not asked:
                continue
            refusal = _refusal(earlier or "", faults) if faults else ""
            messages = cast(list[Record], self._messages(folder, seed, name, refusal))
            number = int(stream.fingerprint([folder.name, name, status["attempt"]])[:7], 16)
            reply = await self.client.ask(messages, self.sampling, seed=number)
            asked = True
            status["usage"] = drafts.total_usage(status.get("usage"), cast(Usage, reply.usage))
            text = _cleaned(name, reply.text)
            stream.write(folder / name, text.encode("utf-8", "replace"))
            if reply.finish_reason == "length":
                said = f"the reply was cut off after {reply.usage['completion_tokens']} tokens"
                cut = drafts.fault(name, text.count("\n"), "cut", said)
                status["cut"] = cut = {**cut, "remedy": "be shorter"}
            drafts.save(folder, status, {})
            if cut or _faults(folder, seed, name):
                break
        reasons = [drafts.sentence(cut)] if cut else []
        return {"rc": None, "files": {}, "conduct": "cut" if cut else None, "reasons": reasons}

    def _messages(self, folder: Path, seed: Seed, name: str, refusal: str) -> list[Message]:
        messages: list[Message] = []
        if name == "deck.md":
            told = [templates.prompt_text("slidev-cheatsheet.md")]
            if under := seed.get("template"):
                told.append(templates.held(folder, under, folder.name).system())
            messages.append({"role": "system", "content": "\n\n".join(told)})
        gold = authors.example(folder.name, seed)
        answer = (gold / name).read_text(encoding="utf-8").strip()
        return [
            *messages,
            {"role": "user", "content": _request(name, drafts.seed(gold), gold)},
            {"role": "assistant", "content": answer},
            {"role": "user", "content": _request(name, seed, folder, refusal)},
        ]


def _faults(folder: Path, seed: Seed, name: str) -> list[DraftFault]:
    """The faults of a file that is there."""
    found = rules.faults(folder, seed)
    return [fault for fault in found if fault["file"] == name and fault["rule"] != "missing"]


def _refusal(earlier: str, faults: list[DraftFault]) -> str:
    lines = ["- line {line}: {message}; {remedy}".format(**fault) for fault in faults[:TOLD]]
    reasons = "\n".join(lines)
    return (
        f"This was written before and refused:\n\n{earlier[:EARLIER]}\n\nThe reasons:\n{reasons}\n\n"
        "Write the whole text again with these places mended."
    )


def _request(name: str, seed: Seed, folder: Path, reasons: str = "") -> str:
    """The prompt for a file, with its fields filled in from a seed and the files that are there."""
    about = {name: value for name, value in seed.items() if name not in ("id", "template")}
    fields = {
        "seed": json.dumps(about, ensure_ascii=False, indent=1),
        "reasons": reasons,
        "features": ", ".join(seed.get("features") or []) or "none in particular",
        **{name: str(seed.get(name)) for name in ("slides", "theme", "language")},
        "prompt": (drafts.text(folder / "PROMPT.md") or "").strip(),
        "think": (drafts.text(folder / "think.md") or "").strip(),
    }
    prompt = templates.prompt_text(ASKS[name])
    return re.sub(r"\{(\w+)\}", lambda match: fields.get(match[1], match[0]), prompt).strip()


def _cleaned(name: str, text: str) -> str:
    """A reply without what models put around a text."""
    if name == "deck.md":
        return clean.clean(text)[0] or ""
    text = text.strip()
    if fenced := re.fullmatch(r"```[\w-]*\n(.*)\n```", text, re.S):
        text = fenced[1].strip()
    return text + "\n" if text else ""
