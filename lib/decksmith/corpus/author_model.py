"""An author that is a model of the registry: the prompt, then the thoughts, then the deck."""

import contextlib
import json
import re
from pathlib import Path
from typing import Any

from decksmith.core import stream
from decksmith.corpus import drafts, rules, workfolders
from decksmith.corpus.workfolders import Seed, Status
from decksmith.decks import clean, prompts, templates

STEPS = (
    ("PROMPT.md", "author-prompt.md"),
    ("think.md", "author-think.md"),
    ("deck.md", "author-deck.md"),
)
EARLIER = 12_000  # letters of a refused text that the model is shown again
TOLD = 20  # faults of it

Messages = list[dict[str, str]]


class Model:
    """Each file is checked before the next is asked for. The gold draft of EXAMPLE.md is shown as an earlier turn.

    client: a models.client.Client. shots: how many examples are shown, 0 or 1.
    """

    def __init__(self, name: str, client: Any, *, shots: int = 1):
        self.client, self.shots = client, shots
        self.name, self.jobs = f"llm:{name}", client.jobs
        self.sampling = {"temperature": 0.7} | client.model.params

    @classmethod
    def open(
        cls, name: str, *, jobs: int | None = None, budget: float | None = None, shots: int = 1
    ) -> "Model":
        """The author that is the registry's model of this name."""
        from decksmith.models import client

        return cls(name, client.Client.open(name, jobs=jobs, budget=budget), shots=shots)

    async def close(self) -> None:
        """Give the endpoint back."""
        await self.client.close()

    async def ready(self, parent: Path) -> contextlib.AbstractAsyncContextManager[Any]:
        """A model needs no walls."""
        return contextlib.nullcontext()

    async def attempt(self, folder: Path, seed: Seed, status: Status) -> dict[str, Any]:
        """One pass over the three files: what has faults is asked for again, and so is all that follows from it."""
        texts = {name: workfolders.text(folder / name) for name in drafts.FILES}
        used = status.setdefault("usage", {})
        asked, cut = False, status.pop("cut", None)  # a reply of the attempt before was cut off
        for name, template in STEPS:
            faults = _faults(folder, seed, name)
            if cut and cut["file"] == name:
                faults, cut = [cut, *faults], None
            if texts[name] is not None and not faults and not asked:
                continue
            reply = await self.client.ask(
                self._messages(folder, seed, name, template, faults, texts[name]),
                self.sampling,
                seed=int(stream.fingerprint([folder.name, name, status["attempt"]])[:7], 16),
            )
            asked = True
            _add(used, reply.usage)
            text = _cleaned(name, reply.text)
            texts[name] = text
            stream.write(folder / name, text.encode("utf-8", "replace"))
            if reply.finish_reason == "length":
                tokens = reply.usage["completion_tokens"]
                status["cut"] = cut = {
                    "file": name,
                    "line": text.count("\n"),
                    "message": f"the reply was cut off after {tokens} tokens",
                    "remedy": "be shorter",
                }
            workfolders.save(folder, status, {})
            if cut or _faults(folder, seed, name):
                break
        reasons = ["{file}:{line}: {message}; {remedy}".format(**cut)] if cut else []
        return {"rc": None, "files": {}, "class": "cut" if cut else None, "reasons": reasons}

    def _messages(
        self,
        folder: Path,
        seed: Seed,
        name: str,
        template: str,
        faults: list[drafts.Fault],
        earlier: str | None,
    ) -> Messages:
        messages = []
        if name == "deck.md":
            told = [prompts.text("slidev-cheatsheet.md")]
            if seed.get("template"):
                told.append(templates.held(folder, seed["template"], folder.name).system())
            messages.append({"role": "system", "content": "\n\n".join(told)})
        if self.shots:
            gold = workfolders.example(folder.name, seed)
            answer = (gold / name).read_text(encoding="utf-8").strip()
            messages += [
                {"role": "user", "content": _request(template, drafts.seed(gold), gold)},
                {"role": "assistant", "content": answer},
            ]
        reasons = _refusal(earlier or "", faults) if faults else ""
        content = _request(template, seed, folder, reasons)
        return [*messages, {"role": "user", "content": content}]


def _faults(folder: Path, seed: Seed, name: str) -> list[drafts.Fault]:
    """The faults that belong to a step: those of its file; what think.md and deck.md disagree about is the deck's."""

    def file(fault: drafts.Fault) -> str:
        return "deck.md" if fault["rule"] == "think-deck" else fault["file"]

    found = [f for f in rules.faults(folder, seed) if f["rule"] not in ("missing", "seed")]
    return [fault for fault in found if file(fault) == name]


def _add(used: dict[str, Any], usage: dict[str, Any]) -> None:
    """Add the tokens and the cost of a reply; what is not known stays as it was."""
    for part, number in usage.items():
        known = used.get(part)
        used[part] = known if number is None else round((known or 0) + number, 8)


def _refusal(earlier: str, faults: list[drafts.Fault]) -> str:
    lines = ["- line {line}: {message}; {remedy}".format(**fault) for fault in faults[:TOLD]]
    reasons = "\n".join(lines)
    return (
        f"This was written before and refused:\n\n{earlier[:EARLIER]}\n\nThe reasons:\n{reasons}\n\n"
        "Write the whole text again with these places mended."
    )


def _request(template: str, seed: Seed, folder: Path, reasons: str = "") -> str:
    """A prompt of assets/prompts with its fields filled in from a seed and the files that are there."""
    about = {name: value for name, value in seed.items() if name not in ("id", "template")}
    fields = {
        "seed": json.dumps(about, ensure_ascii=False, indent=1),
        "reasons": reasons,
        "features": ", ".join(seed.get("features") or []) or "none in particular",
        **{name: str(seed.get(name)) for name in ("slides", "theme", "language")},
        "prompt": (workfolders.text(folder / "PROMPT.md") or "").strip(),
        "think": (workfolders.text(folder / "think.md") or "").strip(),
    }
    text = prompts.text(template)
    return re.sub(r"\{(\w+)\}", lambda match: fields.get(match[1], match[0]), text).strip()


def _cleaned(name: str, text: str) -> str:
    """A reply without what models put around a text."""
    if name == "deck.md":
        return clean.clean(text)[0] or ""
    text = text.strip()
    if fenced := re.fullmatch(r"```[\w-]*\n(.*)\n```", text, re.S):
        text = fenced[1].strip()
    return text + "\n" if text else ""
