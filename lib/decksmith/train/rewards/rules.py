"""The rules of a reward, assets/rewards: which components count, and how much."""

import hashlib
import importlib.util
import math
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from decksmith.core import cli, config_files, stream, validation
from decksmith.core.protocol import Protocol
from decksmith.core.records import Record
from decksmith.measure.results.comparison import Guided, Trained
from decksmith.models import registry

SHIPPED = cli.ROOT / "assets/rewards"
# What measures, beside this room.
MEASURING = (
    "decksmith.measure.judging.offline",
    "decksmith.measure.judging.rendered",
    "decksmith.measure.judging.legibility",
    "decksmith.measure.decks.words",
    "decksmith.train.rewards.rules",
    "decksmith.train.rewards.components",
    "decksmith.train.rewards.wording",
)


# Components of our own, whose values a file of rules says the ends of.
RAMPED = "length pale taken together phrases sequence own molds copied again answers".split()
# Those that are one measure of the offline judge, under its name.
SAME = "slides theme language outline order checklist figures unread topic echo".split()
# The components of a reward, which docs/rewards.md says in words, and the measures of the offline
# judge that each is made of.
MEASURES = {
    **{name: [] for name in ("parses", *RAMPED)},
    **{name: [name] for name in SAME},
    "renders": ["errors", "empty"],
    "elements": ["features"],
    "layout": (
        "overflow overlap contrast smallest pictures density whitespace hierarchy variety visuals"
    ).split(),
    "sense": ["grammar", "articles", "leftovers"],
    "repetition": ["repeats", "hollow"],
    "unasked": ["aside"],
}


def _one_of(names: Collection[str]) -> AfterValidator:
    def known(name: str) -> str:
        if name not in names:
            raise ValueError(f"unknown component; there are: {', '.join(names)}")
        return name

    return AfterValidator(known)


def _ramp(numbers: list[float]) -> list[float]:
    if len(numbers) not in (2, 4):
        raise ValueError(f"{numbers} are not two numbers, or four")
    return numbers


Share = Annotated[float, Field(ge=0, le=1)]
Name = Annotated[str, _one_of(MEASURES)]
Ramped = Annotated[str, _one_of(RAMPED)]
Ramp = Annotated[list[float], AfterValidator(_ramp)]


class RewardGate(validation.Body):
    """What a component leaves of the reward where it is 0, and from which value on it leaves all."""

    least: Share
    full: Annotated[float, Field(gt=0, le=1)]

    def factor(self, quality: float) -> float:
        """quality, and what it returns: 0 to 1."""
        return self.least + (1 - self.least) * min(1.0, quality / self.full)


class RulesFile(validation.Body):
    """What a file of assets/rewards may say."""

    name: str = Field(description="text")
    protocol: str = Field(description="text")
    judge: str | None = Field(default=None, description="text")
    weights: dict[Name, Share] = Field(description="a table")
    gates: dict[Name, RewardGate] = Field(description="a table")
    ramps: dict[Ramped, Ramp] = Field(description="a table")

    @model_validator(mode="after")
    def _complete(self) -> "RulesFile":
        used = {*self.weights, *self.gates}
        if (self.judge is not None) != ("answers" in used):
            words = "judge and the component answers go together: the protocol whose judge reads,"
            raise validation.sentence(f"{words} and what its verdict is worth")
        if not math.isclose(total := sum(self.weights.values()), 1, abs_tol=1e-6):
            raise validation.sentence(f"weights: they sum to {total:g} and not to 1")
        if missing := sorted(used & {*RAMPED} - {*self.ramps}):
            raise validation.sentence(f"ramps.{missing[0]}: is missing; the component is used")
        return self


@dataclass(frozen=True)
class Rules:
    """One file of assets/rewards.

    judge    the protocol whose judge reads the decks, of rules that need one; a record needs its
             `judge` then
    weights  {component: its share of the mean}, which sum to 1
    ramps    {component: where it is 0 and 1}
    sha256   of all of this, of the protocol's measures, of what decides what the judge says, and
             of the code that measures
    """

    name: str
    sha256: str
    protocol: Protocol
    judge: Protocol | None
    weights: dict[str, float]
    gates: dict[str, RewardGate]
    ramps: dict[str, list[float]]

    @property
    def used(self) -> set[str]:
        """The components that count."""
        return {*self.weights, *self.gates}

    def shared_with(self, protocol: Protocol) -> list[str]:
        """The measures that this reward and a protocol's scores have in common, sorted: a model
        that was trained on the one was trained to please the other by them.

        Of an offline protocol, names of its measures. With a vision judge: the items of the
        checklist, the number of slides (a cap of the score) and what does not render (the floor),
        and `content` where a judge that reads is part of the reward.
        """
        trained = {name for component in self.used for name in MEASURES[component]}
        if protocol.measures:
            return sorted(trained & {*protocol.measures})
        alike = trained & {"checklist", "slides", "errors", "empty"}
        return sorted(alike | ({"content"} if self.judge else set()))


def read(name: str | Path) -> Rules:
    """Rules by their name in assets/rewards, or by path (anything with a slash or `.toml`). Raises
    cli.BadConfig with one sentence that names the file and the key."""
    by_path = "/" in str(name) or str(name).endswith(".toml")
    path = Path(name) if by_path else SHIPPED / f"{name}.toml"
    try:
        data = config_files.read(path, SHIPPED)
        said = validation.check(RulesFile, data)
    except FileNotFoundError:
        known = ", ".join(sorted(p.stem for p in SHIPPED.glob("*.toml")))
        raise cli.BadConfig(f"no reward {path}; there are: {known}") from None
    except (OSError, ValueError, cli.BadData) as error:
        raise cli.BadConfig(f"{path}: {error}") from None
    protocol = Protocol.load(said.protocol)
    if not protocol.measures:
        words = f"protocol: {said.protocol} has no offline measures; name one that has them"
        raise cli.BadConfig(f"{path}: {words}, as offline")
    judge, judging = None, None
    if said.judge is not None:
        from decksmith.measure.judging import identity

        judge = Protocol.load(said.judge)
        if judge.judge["kind"] != "vision":
            words = f"judge: {said.judge} has no vision judge; name one that has it, as published"
            raise cli.BadConfig(f"{path}: {words}")
        judging = identity.judging(judge)
    return Rules(
        name=said.name,
        sha256=stream.fingerprint([data, protocol.render, protocol.measures, judging, _code()]),
        protocol=protocol,
        judge=judge,
        weights=said.weights,
        gates=said.gates,
        ramps=said.ramps,
    )


def note_training(runs: list[Record]) -> None:
    """Give each of these runs (results.runs.load) whose model was trained on a reward, as its
    registry entry or the served adapter's manifest says, the key `trained` (Trained), and each
    whose decks were chosen by a measure of the score `guided` (Guided). Raises cli.BadConfig for
    an unknown reward."""
    entries = registry.models()
    for run in runs:
        if by := _chooser(run):
            run["guided"] = by
        model = run["summary"]["model"]
        entry = entries.get(model["name"])
        names = {*(model.get("served") or {}).get("rewards", ())}
        if entry and entry.reward:
            names.add(read(entry.reward).name)
        if names:
            run["trained"] = _trained(run, names)


def _trained(run: Record, names: set[str]) -> Trained:
    # An adapter of elsewhere may have been trained on a reward that is not here.
    known = [read(name) for name in names if (SHIPPED / f"{name}.toml").is_file()]
    found: Trained = {"reward": " and ".join(sorted(names)), "shared": None, "others": []}
    if not run["unshipped"] and len(known) == len(names):
        protocol = Protocol.load(run["protocol"]["protocol"])
        shared = {one for rules in known for one in rules.shared_with(protocol)}
        found["shared"] = sorted(shared)
        found["others"] = sorted({*protocol.measures} - shared)
    return found


def _chooser(run: Record) -> Guided | None:
    """What chose a run's decks by measures of the score itself; None where nothing did, or where
    X-ray findings did, which are no measures of a score."""
    given = run.get("condition") or {}
    for table, key in ((given.get("samples") or {}, "choose"), (given.get("revise") or {}, "by")):
        by = table.get(key)
        if by == "judge":
            return {"by": by, "shared": []}
        if by == "reward":
            rules = read(table.get("rules", "rendered"))
            protocol = None if run["unshipped"] else Protocol.load(run["protocol"]["protocol"])
            return {"by": rules.name, "shared": rules.shared_with(protocol) if protocol else []}
    return None


def _code() -> str:
    """The sha256 of the code that measures, which is not loaded for it."""
    code = hashlib.sha256()
    for name in MEASURING:
        found = importlib.util.find_spec(name)
        assert found and found.origin, f"{name} has gone: mend MEASURING"
        code.update(Path(found.origin).read_bytes())
    return code.hexdigest()
