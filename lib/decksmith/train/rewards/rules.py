"""Rewards, assets/rewards: the share of checks that a rendered deck passes, what was asked for weighing no more than its
slides, and under `read` times how well it answers its request."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, cast

from pydantic import Field, model_validator

from decksmith.core import cli, config_files, stream, validation
from decksmith.core.protocol import Protocol
from decksmith.core.records import Record
from decksmith.measure.decks.records import Limits
from decksmith.measure.judging import scoring
from decksmith.measure.judging.records import DeckRecord, Reward
from decksmith.measure.results.comparison import Guided, Trained
from decksmith.models import registry

SHIPPED = cli.ROOT / "assets/rewards"
DIGITS = 6
STAGES = ("gen", "deck", "images", "render")

Mark = Annotated[float, Field(ge=1, le=5)]


class RulesFile(validation.Body):
    """What a file of assets/rewards may say."""

    name: str = Field(description="text")
    protocol: str = Field(description="text")
    judge: str | None = Field(default=None, description="text")
    answers: list[Mark] | None = Field(default=None, min_length=2, max_length=2)

    @model_validator(mode="after")
    def _complete(self) -> "RulesFile":
        if self.judge != "offline" and (self.judge is None) != (self.answers is None):
            words = "judge and answers go together: the protocol whose judge reads,"
            raise validation.sentence(f"{words} and the marks that are worth 0 and 1")
        if self.answers and self.answers[0] >= self.answers[1]:
            raise validation.sentence("answers: the first mark is worth 0, the second, higher, 1")
        return self


@dataclass(frozen=True)
class Rules:
    """One file of assets/rewards.

    protocol  whose render settings and checks
    judge     the protocol whose judge reads the decks, of rules that need one; a record needs its `judge` then. Of an
              offline one its check `reads` alone counts: a deck that fails it gets nothing
    answers   the marks, 1 to 5, that are worth 0 and 1: the lower of content and coherence counts
    sha256    of all of this, of what decides what the judge says, and of the code that checks
    """

    name: str
    sha256: str
    protocol: Protocol
    judge: Protocol | None
    answers: list[float] | None

    def shared_with(self, protocol: Protocol) -> str:
        """What this reward and a protocol's scores have in common, in words: a model that was trained on the one was
        trained to please the other by it."""
        if self.protocol.judge["kind"] == "edit":
            return "all of this score" if protocol.judge["kind"] == "edit" else "nothing"
        if protocol.judge["kind"] == "offline":
            is_read = self.judge and self.judge.judge["kind"] == "offline"
            return "all checks of this score" + ("" if is_read else " but `reads`")
        shared = "whether a deck renders and how many slides it has"
        return f"{shared}, and a judge's marks for content and coherence" if self.judge else shared


def read(name: str | Path) -> Rules:
    """Rules by their name in assets/rewards, or by path (anything with a slash or `.toml`). Raises
    cli.BadConfig with one sentence that names the file and the key."""
    from decksmith.measure.judging import identity

    by_path = "/" in str(name) or str(name).endswith(".toml")
    path = Path(name) if by_path else SHIPPED / f"{name}.toml"
    try:
        data = config_files.read(path, SHIPPED)
        said = validation.check(RulesFile, data)
    except FileNotFoundError:
        known = sorted(p.stem for p in SHIPPED.glob("*.toml"))
        raise cli.BadConfig(f"no reward {path}{cli.instead(name, known)}") from None
    except (OSError, ValueError, cli.BadData) as error:
        raise cli.BadConfig(f"{path}: {error}") from None
    protocol = Protocol.load(said.protocol)
    if protocol.judge["kind"] not in ("offline", "edit"):
        words = f"protocol: {said.protocol} has no checks; name one that has them, as offline"
        raise cli.BadConfig(f"{path}: {words}")
    judge, judging = None, None
    if said.judge is not None:
        judge = Protocol.load(said.judge)
        if judge.judge["kind"] == "offline" and said.answers:
            words = f"judge: {said.judge} has no judge that reads; name one that has, as text"
            raise cli.BadConfig(f"{path}: {words}")
        judging = identity.judging(judge)
    return Rules(
        name=said.name,
        sha256=stream.fingerprint([data, protocol.render, identity.judging(protocol), judging]),
        protocol=protocol,
        judge=judge,
        answers=said.answers,
    )


def reward(record: Record, rules: Rules, run: str | Path = ".") -> Reward:
    """The value of `reward` for a record that deck-render, and deck-judge where the rules need it,
    are done with. A fault that is not the model's says nothing about a deck: it is masked.

    run: the folder that the record's paths are relative to. Raises cli.BadData for a record that
    lacks what an earlier stage writes, or whose pictures are gone.
    """
    stages = (*STAGES, "judge") if rules.judge else STAGES
    fault = scoring.fault(rules.protocol, {key: record[key] for key in stages if key in record})
    if fault and fault["kind"] != "model":
        why = f"{fault['kind']} fault, {fault['class']}: {fault['message']}"
        return {"reward": None, "components": {}, "masked": True, "why": why}
    if fault:
        why = f"{fault['class']}: {fault['message']}"
        return {"reward": 0.0, "components": {}, "masked": False, "why": why}
    from decksmith.measure.judging import checks

    if not isinstance(record.get("render"), dict):
        raise cli.BadData(f"{record['id']}: no render in this record; deck-render writes it")
    if rules.protocol.judge["kind"] == "edit":
        return _edit(record, rules, Path(run))
    answers, read, said = None, list[bool](), list[str]()
    if rules.answers:
        (low, high), (mark, of) = rules.answers, _mark(record, rules)
        answers = min(1.0, max(0.0, (mark - low) / (high - low)))
        if answers < 1:
            said.append(f"the judge gives its {of} {mark:g} of 5")
        # The judge has read the checklist: its answers stand in place of the text matches.
        read = [item["yes"] for item in record["judge"].get("checklist") or []]
        record = {**record, "checklist": []}
    elif rules.judge:
        unlike = [one for one in record["judge"].get("findings", []) if one["check"] == "reads"]
        answers = 0.0 if unlike else 1.0
        said += [one["message"] for one in unlike[:1]]
    found = checks.judge(record, run, cast(Limits, rules.protocol.checks))
    matched = [one["yes"] for one in found["asked"]]
    made, slides = (found["checks"][key] for key in ("passed", "of"))
    components = shares(made - sum(matched), slides - len(matched), [*matched, *read])
    if answers is not None:
        components["answers"] = answers
    said += [one["message"] for one in found["findings"]]
    return {
        "reward": round(sum(contributions(components).values()), DIGITS),
        "components": {name: round(value, DIGITS) for name, value in components.items()},
        "masked": False,
        "why": "; ".join(said[:3]) or "every check passes",
    }


def _edit(record: Record, rules: Rules, run: Path) -> Reward:
    """The reward of an edit: how far its request is met, times how much of the rest stayed."""
    from decksmith.measure.judging import edited

    if "edit" not in record:
        raise cli.BadData(f"{record['id']}: no edit in this record; the rules {rules.name} need it")
    found = edited.judge(cast(DeckRecord, record), run)
    value = scoring.of_edit(record["id"], found["edit"])
    said = [one["what"] for one in found["asked"] if not one["yes"]]
    said += [one["message"] for one in found["findings"]]
    return {
        "reward": value["edit"],
        "components": {name: value[name] or 0.0 for name in ("met", "stayed")},
        "masked": False,
        "why": "; ".join(said[:3]) or "every check passes, and the rest stayed",
    }


def shares(passed: int, slides: int, asked: list[bool]) -> dict[str, float]:
    """What slides (`passed` of so many) and asked things each bring, at most 1 together. A long request weighs no more
    than the slides do: else a deck that nobody can look at would be paid for what stands on it."""
    weight = min(len(asked), slides)
    there = weight * sum(asked) / len(asked) if asked else 0.0
    return {"slides": passed / (slides + weight), "asked": there / (slides + weight)}


def contributions(components: Mapping[str, float]) -> dict[str, float]:
    """What slides and asked things each bring to the reward; together they are the reward."""
    answers = components.get("answers", 1.0)
    return {name: components.get(name, 0.0) * answers for name in ("slides", "asked")}


def _mark(record: Record, rules: Rules) -> tuple[float, str]:
    """The lower of the marks for content and coherence, 1 to 5, of a judge that reads, and which it is."""
    scores = (record.get("judge") or {}).get("scores")
    if not isinstance(scores, dict):
        raise cli.BadData(
            f"{record['id']}: no judge.scores of a judge that reads in this record; "
            f"deck-judge --protocol {rules.judge.name if rules.judge else 'text'} writes them"
        )
    return min((float(scores[name]), name) for name in ("coherence", "content"))


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
    found: Trained = {"reward": " and ".join(sorted(names)), "shared": None}
    if known and not run["unshipped"] and len(known) == len(names):
        protocol = Protocol.load(run["protocol"]["protocol"])
        found["shared"] = max((rules.shared_with(protocol) for rules in known), key=len)
    return found


def _chooser(run: Record) -> Guided | None:
    """What chose a run's decks by measures of the score itself; None where nothing did, or where
    X-ray findings did, which are no measures of a score."""
    given = run.get("condition") or {}
    for table, key in ((given.get("samples") or {}, "choose"), (given.get("revise") or {}, "by")):
        by = table.get(key)
        if by == "judge":
            return {"by": by, "shared": None}
        if by == "reward":
            rules = read(table.get("rules", "layout"))
            protocol = None if run["unshipped"] else Protocol.load(run["protocol"]["protocol"])
            return {"by": rules.name, "shared": rules.shared_with(protocol) if protocol else None}
    return None
