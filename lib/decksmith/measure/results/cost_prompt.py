"""What a command is about to spend, said before anything is asked; a terminal is asked once.

  python3 -m decksmith.measure.results.cost_prompt --protocol published results/runs/gpt-5.4/published

Of each run it counts the replies and judgings that its journals do not keep, and prices them: tokens as measured in earlier runs
of the same model, else assumed; USD per token from assets/models.toml, else from the endpoint's own list of models. Nothing is
said where nothing costs anything. YES=1 or a BUDGET answers yes. What another run has already of the same requests is taken
over first. Where it is known beforehand that no score can come out, that is said, and nobody is asked for money.
"""

import asyncio
import contextlib
import math
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
import requests

from decksmith.core import cli, incoming, stream
from decksmith.core.protocol import Protocol
from decksmith.core.records import Record, expanded
from decksmith.measure.decks import conditions
from decksmith.measure.decks.conditions import Condition
from decksmith.measure.results import layout, merge
from decksmith.models import asking, registry, servers, turns
from decksmith.models.client import Client
from decksmith.models.registry import Model

ASSUMED = {"gen": (1000, 4000), "judge": (16000, 2000)}  # tokens where no earlier run says
NO_TOOLS: Any = None  # what would run them
WORDS = {"gen": "replies", "judge": "judgings"}
Journals = dict[str, list[tuple[str, Any, Record]]]  # by stage: (id, inputs, value), oldest first


def read_journals(run: Path) -> Journals:
    """What the run's journals of replies and judgings hold. Raises cli.BadData as stream.journal does."""
    found: Journals = {stage: [] for stage in WORDS}
    for stage, entries in found.items():
        for _, entry in stream.journal(run / "journal" / f"{stage}.jsonl"):
            if isinstance(entry.get(stage), dict):
                entries.append((entry["id"], entry.get("inputs"), entry[stage]))
    return found


def asker(entry: Model, protocol: Protocol, condition: Condition | None = None) -> Any:
    """Whom chat-generate would ask, an asking.Endpoint; nothing is asked here, and no tool runs."""
    under: Any = condition.messages if condition else None
    sampling = protocol.sampling | entry.params
    return asking.Endpoint(replace(entry, key_env=None), sampling, NO_TOOLS, run=None, under=under)


@dataclass
class Bill:
    """What one model will be asked for one run."""

    model: Model
    stage: str  # "gen" or "judge"
    requests: int
    prompt: float  # tokens of one request
    completion: float
    measured: bool
    longest: int | None  # max_tokens
    price: dict[str, float] | None  # USD per million tokens; None where nobody says

    def usd(self, completion: float) -> float | None:
        """USD of all requests with so long a completion each, None without a price."""
        if self.price is None:
            return None
        each = self.prompt * self.price["prompt"] + completion * self.price["completion"]
        return self.requests * each / 1e6

    def line(self) -> str:
        about = self.usd(self.completion)
        most = self.usd(self.longest) if self.longest else None
        how = "as measured" if self.measured else "assumed"
        said = f"{self.model.name}: {self.requests} {WORDS[self.stage]}, {self.prompt:.0f} + {self.completion:.0f} tokens each ({how})"
        said += ": nobody says at what price" if about is None else f": about {about:.2f} USD"
        return said if most is None else f"{said}, at most {most:.2f} at {self.longest} tokens"


def costs(entry: Model) -> bool:
    """Whether asking this model may cost money: it has a price, says what a call costs, or wants a key."""
    if entry.price:
        return any(entry.price.values())
    return bool(entry.reports_cost or entry.key_env)


def bills(protocol: Protocol, folders: Sequence[Path], budget: float | None = None) -> list[Bill]:
    """What these runs will ask of paid models. Raises cli.BadConfig for a model that the registry does not have, whose
    key is not set, or that has no price where there is a budget."""
    found = []
    # Without its judge a deck has no score.
    judge = registry.model(protocol.reader) if protocol.reader else None
    for folder in folders:
        name, under = conditions.split(layout.run_name(folder))
        entry = registry.model(name)
        wanted = missing(folder, entry, protocol, conditions.load(under))
        if costs(entry):
            limit = (protocol.sampling | entry.params).get("max_tokens")
            found.append(_bill(entry, "gen", wanted["gen"], limit))
        limit = (protocol.judge.get("sampling") or {}).get("max_tokens")
        if judge and costs(judge):
            found.append(_bill(judge, "judge", wanted["judge"], limit))
    asked = [bill for bill in found if bill.requests]
    for bill in asked:
        Client(replace(bill.model), budget=budget)  # what is not set is said before anybody agrees
    return asked


def without_score(protocol: Protocol, folders: Sequence[Path], claims: str | None) -> str | None:
    """Why it is known that what is asked for comes to nothing, and what helps; None where it may come to something."""
    rows = [row for folder in folders for _, row in stream.records(folder / "prompts.jsonl")]
    most = [(row["id"], (row.get("asks") or {}).get("slides")) for row in rows]
    least = protocol.render["min_slides"]
    few = [ident for ident, slides in most if slides and slides < least]
    if few and len(few) == len(rows):
        return (
            f"{few[0]} and every other prompt ask for fewer than {least} slides, which {protocol.name} counts as a failure; "
            f"ask for {least} or more, or take a protocol with min_slides = 1 (CONTRIBUTING.md, Add a protocol)"
        )
    if claims and not any(row.get("sources") for row in rows):
        return (
            f"no prompt has documents, so {claims} would find no claim to read; leave CLAIMS out, or name `sources` in the "
            "rows (docs/prompts.md)"
        )
    return None


def missing(
    folder: Path, entry: Model, protocol: Protocol, condition: Condition | None = None
) -> dict[str, int]:
    """How many replies to a run's prompts are not kept as they would be asked for now, with as many revisions as there can be, and
    how many judgings."""
    if not protocol.reader:
        stream.FREE.add("judge")
    kept = read_journals(folder)
    done = [(ident, inputs, value) for ident, inputs, value in kept["gen"] if "error" not in value]
    replies = {ident: inputs for ident, inputs, _ in done}
    values = {ident: value for ident, _, value in done}
    judged = {ident for ident, _, value in kept["judge"] if "error" not in value}
    lacking = {"gen": 0, "judge": 0}
    would = asker(entry, protocol, condition)
    rounds = condition.revise.get("rounds", 0) if condition else 0
    is_judges = condition is not None and condition.samples.get("choose") == "judge"
    for _, record in stream.records(folder / "prompts.jsonl"):
        asked = expanded(record, condition.n if condition else 1)
        keys = {}
        for one in asked:
            inputs = asyncio.run(would.inputs(one, turns.with_history(one, values)))
            keys[one["id"]] = stream.fingerprint(["gen", inputs])
        left = sum(replies.get(ident) != key for ident, key in keys.items())
        to_judge = list(keys) if is_judges else [record["id"]]
        lacking["gen"] += left + (rounds * len(to_judge) if left else 0)
        lacking["judge"] += sum(bool(left) or ident not in judged for ident in to_judge)
    return lacking


def _bill(entry: Model, stage: str, count: int, limit: int | None) -> Bill:
    usage = _measured(entry, stage)
    prompt, completion = usage or ASSUMED[stage]
    price = entry.price or (listed(entry) if count else None)
    return Bill(entry, stage, count, prompt, completion, bool(usage), limit, price)


def _measured(entry: Model, stage: str) -> tuple[float, float] | None:
    """The mean tokens (prompt, completion) of this model's requests in finished runs."""
    counts: list[tuple[int, int]] = []
    for folder in layout.finished():
        if stage == "gen" and conditions.split(layout.run_name(folder))[0] != entry.name:
            continue
        with contextlib.suppress(cli.BadData):  # a damaged journal of another run
            for _, _, value in read_journals(folder)[stage]:
                if "error" in value:
                    continue
                slug = value.get("judge") if stage == "judge" else value["model"]["slug"]
                usage = value.get("usage") or {}
                if slug == entry.slug and usage.get("completion_tokens"):
                    counts.append((usage.get("prompt_tokens") or 0, usage["completion_tokens"]))
    if not counts:
        return None
    prompts, completions = zip(*counts, strict=True)
    return sum(prompts) / len(counts), sum(completions) / len(counts)


def listed(entry: Model) -> dict[str, float] | None:
    """USD per million tokens by the endpoint's list of models (OpenRouter's form: USD per token as text), or None."""
    key = os.environ.get(entry.key_env or "")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    address = entry.base_url.split()[0].rstrip("/") + "/models"
    try:
        asked = requests.get(address, headers=headers, timeout=10, stream=True)
        answer = incoming.parsed(incoming.together(asked.iter_content(1 << 16), servers.LISTING))
        model = next(model for model in answer["data"] if model["id"] == entry.slug)
        said = {name: float(model["pricing"][name]) * 1e6 for name in ("prompt", "completion")}
        return said if all(0 <= usd < math.inf for usd in said.values()) else None
    except (requests.RequestException, ValueError, KeyError, TypeError, StopIteration):
        return None


def agree(found: list[Bill], yes: bool, budget: float | None) -> None:
    """Say what will be spent, and ask a terminal. Raises cli.Stop with status 78 where nobody can answer."""
    if not found:
        return
    for bill in found:
        cli.say(bill.line())
    known = [bill.usd(bill.completion) for bill in found]
    if len(found) > 1 and None not in known:
        cli.say(f"together about {sum(cost for cost in known if cost is not None):.2f} USD")
    if budget is not None:
        cli.say(f"no model is asked beyond {budget:g} USD (BUDGET)")
    if yes or budget is not None:
        return
    if not sys.stdin.isatty():
        raise cli.BadConfig(
            "nothing was asked; YES=1 agrees to this, BUDGET=5 to at most 5 USD a model"
        )
    click.confirm("Ask them?", abort=True, err=True)


@cli.command(__doc__)
@cli.protocol_option
@click.option("--yes", envvar="YES", is_flag=True, help="Agree without being asked.")
@click.option("--budget", type=float, help="Agree to so many USD a model.")
@click.option("--claims", help="The model that reads which claims are supported.")
@click.argument("runs", nargs=-1, type=click.Path(path_type=Path))
def main(
    protocol: str, yes: bool, budget: float | None, claims: str | None, runs: tuple[Path, ...]
) -> None:
    loaded = Protocol.load(protocol)
    for run in runs:
        merge.reuse(run)
    found = bills(loaded, runs, budget)
    if claims:
        Client(replace(registry.model(claims)), budget=budget)  # is its key set?
    if why := without_score(loaded, runs, claims):
        if found or claims:
            raise cli.BadData(f"nothing was asked: {why}")
        cli.say(why)
    agree(found, yes, budget)


if __name__ == "__main__":
    main()
