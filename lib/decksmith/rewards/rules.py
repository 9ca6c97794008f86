"""The rules of a reward, assets/rewards: which components count, and how much."""

import hashlib
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from decksmith.core import cli, inherit, stream
from decksmith.core.protocol import Protocol
from decksmith.core.records import Record
from decksmith.decks import words
from decksmith.judging import identity, legibility, offline, rendered
from decksmith.models import registry

SHIPPED = cli.ROOT / "assets/rewards"
TABLES = ("weights", "gates", "ramps")
LAYOUT = "overflow overlap contrast smallest pictures density whitespace hierarchy variety visuals".split()


@dataclass(frozen=True)
class Component:
    """says: what it is, in a sentence. measures: those of the offline judge that it is made of; none for one of our own."""

    says: str
    measures: tuple[str, ...] = ()


COMPONENTS = {
    "parses": Component(
        "The reply holds a deck of at least as many slides as the protocol takes for one."
    ),
    "renders": Component(
        "Share of the slides that are drawn without an error and show something.",
        ("errors", "empty"),
    ),
    "slides": Component("As many slides as were asked for.", ("slides",)),
    "elements": Component(
        "Share of the asked elements (code, diagram, formula, table, picture ..) that are there.",
        ("features",),
    ),
    "theme": Component("The theme that was asked for.", ("theme",)),
    "language": Component("The text is in the language that was asked for.", ("language",)),
    "outline": Component("Share of the asked headings that a slide's title has.", ("outline",)),
    "order": Component("The asked headings come in the asked order.", ("order",)),
    "checklist": Component(
        "Share of the checklist that is found on slides where it can be read.", ("checklist",)
    ),
    "figures": Component("Share of the request's figures that the deck shows.", ("figures",)),
    "layout": Component(
        "Overflow, overlap, contrast, type size, pictures that load, density, space, hierarchy and variety.",
        tuple(LAYOUT),
    ),
    "length": Component("Words on a slide, on average: neither next to none nor too many."),
    "unread": Component("What the page says can be made out in the picture.", ("unread",)),
    "pale": Component("The text stands out from what is behind it in the picture."),
    "taken": Component("The slides take up the request's words below their titles."),
    "topic": Component("The slides take up the request's words, and have others.", ("topic",)),
    "together": Component(
        "What one sentence of the request says together stands together on a slide."
    ),
    "phrases": Component("Neighbouring words of the request stand near each other on a slide."),
    "sequence": Component("What the request names once comes in its order."),
    "own": Component("The deck has words that the request does not have."),
    "molds": Component("Sentences are not of one mold with other words in them."),
    "sense": Component(
        "Words stand as they do in sentences, without raw markup or text for the author to replace.",
        ("grammar", "articles", "leftovers"),
    ),
    "echo": Component("The deck does not repeat the request.", ("echo",)),
    "copied": Component("The deck has few pieces of the request, or of the checklist's questions."),
    "again": Component("No slide says below its title what another one says there."),
    "repetition": Component(
        "No slide repeats another, or shows an asked heading and nothing else.",
        ("repeats", "hollow"),
    ),
    "unasked": Component("No code and no formulas where neither was asked for.", ("aside",)),
    "answers": Component("A judge that reads says that the deck answers its request."),
}
RAMPED = "length pale taken together phrases sequence own molds copied again answers".split()


@dataclass(frozen=True)
class Gate:
    """What a component leaves of the reward where it is 0, and from which value on it leaves all."""

    least: float
    full: float

    def factor(self, quality: float) -> float:
        """quality, and what it returns: 0 to 1."""
        return self.least + (1 - self.least) * min(1.0, quality / self.full)


@dataclass(frozen=True)
class Rules:
    """One file of assets/rewards.

    judge: the protocol whose judge reads the decks, of rules that need one. weights: {component: its share of the mean},
    which sum to 1. ramps: {component: where it is 0 and 1}. sha256: of all of this, of the protocol's measures, of what
    decides what the judge says, and of the code that measures.
    """

    name: str
    sha256: str
    protocol: Protocol
    judge: Protocol | None
    weights: dict[str, float]
    gates: dict[str, Gate]
    ramps: dict[str, list[float]]

    @property
    def used(self) -> set[str]:
        """The components that count."""
        return {*self.weights, *self.gates}

    @property
    def needs_judge(self) -> bool:
        """Whether the reward needs the `judge` of a record, by a model that reads."""
        return self.judge is not None

    def shared_with(self, protocol: Protocol) -> list[str]:
        """The measures that this reward and a protocol's scores have in common, sorted: a model that was trained on the
        one was trained to please the other by them.

        Of an offline protocol, names of its measures. With a vision judge: the items of the checklist, the number of slides
        (a cap of the score) and what does not render (the floor), and `content` where a judge that reads is part of the
        reward.
        """
        trained = {name for component in self.used for name in COMPONENTS[component].measures}
        if protocol.measures:
            return sorted(trained & {*protocol.measures})
        alike = trained & {"checklist", "slides", "errors", "empty"}
        return sorted(alike | ({"content"} if self.needs_judge else set()))


def read(name: str | Path) -> Rules:
    """Rules by their name in assets/rewards, or by path (anything with a slash or `.toml`).

    Raises cli.BadConfig with one sentence that names the file and the key.
    """
    by_path = "/" in str(name) or str(name).endswith(".toml")
    path = Path(name) if by_path else SHIPPED / f"{name}.toml"
    try:
        data = inherit.read(path, SHIPPED)
    except FileNotFoundError:
        known = ", ".join(sorted(p.stem for p in SHIPPED.glob("*.toml")))
        raise cli.BadConfig(f"no reward {path}; there are: {known}") from None
    except (OSError, ValueError) as error:
        raise cli.BadConfig(f"{path}: {error}") from None
    _check(path, data)
    protocol = Protocol.load(data["protocol"])
    if not protocol.measures:
        raise cli.BadConfig(
            f"{path}: protocol: {data['protocol']} has no offline measures; name one that has them, as offline"
        )
    judge = Protocol.load(data["judge"]) if "judge" in data else None
    if judge and judge.judge["kind"] != "vision":
        raise cli.BadConfig(
            f"{path}: judge: {data['judge']} has no vision judge; name one that has it, as published"
        )
    judging = identity.judging(judge) if judge else None
    return Rules(
        name=data["name"],
        sha256=stream.fingerprint([data, protocol.render, protocol.measures, judging, _code()]),
        protocol=protocol,
        judge=judge,
        weights=data["weights"],
        gates={component: Gate(**gate) for component, gate in data["gates"].items()},
        ramps=data["ramps"],
    )


def note_training(runs: list[Record]) -> None:
    """Give each of these runs (results.runs.load) whose model was trained on a reward, as its registry entry or the served adapter's
    manifest says, the key `trained`: {"reward": names, "shared": what that has in common with the run's scores, "others": the
    other measures}.

    `shared` is None where nothing can be said: the run's protocol is none of ours. Raises cli.BadConfig for an unknown
    reward.
    """
    entries = registry.models()
    for run in runs:
        if by := _chooser(run):
            run["guided"] = by
        model = run["summary"]["model"]
        entry = entries.get(model["name"])
        names = {*(model.get("served") or {}).get("rewards", ())}
        if entry and entry.reward:
            names.add(read(entry.reward).name)
        if not names:
            continue
        # An adapter of elsewhere may have been trained on a reward that is not here.
        known = [read(name) for name in names if (SHIPPED / f"{name}.toml").is_file()]
        shared, others = None, []
        if not run["unshipped"] and len(known) == len(names):
            protocol = Protocol.load(run["protocol"]["protocol"])
            shared = sorted({one for rules in known for one in rules.shared_with(protocol)})
            others = sorted({*protocol.measures} - {*shared})
        reward = " and ".join(sorted(names))
        run["trained"] = {"reward": reward, "shared": shared, "others": others}


def _chooser(run: Record) -> Record | None:
    """What chose a run's decks by measures of the score itself, `{"by", "shared"}`; None where nothing did, or where X-ray findings
    did, which are no measures of a score."""
    given = run.get("condition") or {}
    for table, key in ((given.get("samples") or {}, "choose"), (given.get("revise") or {}, "by")):
        by = table.get(key)
        if by == "judge":
            return {"by": by, "shared": []}
        if by == "reward":
            rules = read(table.get("rules", "rendered"))
            protocol = None if run["unshipped"] else Protocol.load(run["protocol"]["protocol"])
            shared = rules.shared_with(protocol) if protocol else []
            return {"by": rules.name, "shared": shared}
    return None


def _code() -> str:
    """The sha256 of the code that measures."""
    files = [str(module.__file__) for module in (offline, rendered, legibility, words)]
    here = Path(__file__).parent
    files += [str(here / name) for name in ("rules.py", "components.py", "wording.py")]
    return hashlib.sha256(b"".join(Path(file).read_bytes() for file in files)).hexdigest()


def _check(path: Path, data: Record) -> None:
    keys = ("name", "protocol", *TABLES)
    for key in keys:
        if not isinstance(data.get(key), dict if key in TABLES else str):
            raise cli.BadConfig(f"{path}: {key}: is missing, or no {_kind(key)}")
    for key in data:
        if key not in (*keys, "judge"):
            raise cli.BadConfig(f"{path}: {key}: unknown; there are: {', '.join(keys)}, judge")
    if not isinstance(data.get("judge", ""), str):
        raise cli.BadConfig(f"{path}: judge: is no text")
    if ("judge" in data) != ("answers" in {*data["weights"], *data["gates"]}):
        raise cli.BadConfig(
            f"{path}: judge and the component answers go together: the protocol whose judge reads, and what its verdict is worth"
        )
    for table in TABLES:
        for component, value in data[table].items():
            _check_entry(f"{path}: {table}.{component}", table, component, value)
    if not math.isclose(total := sum(data["weights"].values()), 1, abs_tol=1e-6):
        raise cli.BadConfig(f"{path}: weights: they sum to {total:g} and not to 1")
    for component in {*data["weights"], *data["gates"]} & {*RAMPED} - {*data["ramps"]}:
        raise cli.BadConfig(f"{path}: ramps.{component}: is missing; the component is used")


def _kind(key: str) -> str:
    return "table" if key in TABLES else "text"


def _check_entry(where: str, table: str, component: str, value: Any) -> None:
    known = RAMPED if table == "ramps" else [*COMPONENTS]
    if component not in known:
        raise cli.BadConfig(f"{where}: unknown component; there are: {', '.join(known)}")
    if table == "weights" and not _share(value):
        raise cli.BadConfig(f"{where}: {value!r} is no number from 0 to 1")
    if table == "gates" and not (
        isinstance(value, dict)
        and {*value} == {"least", "full"}
        and all(map(_share, value.values()))
        and value["full"] > 0
    ):
        raise cli.BadConfig(
            f"{where}: {value!r} is not least and full, each from 0 to 1, full above 0"
        )
    if table == "ramps" and not (
        isinstance(value, list) and len(value) in (2, 4) and all(map(_number, value))
    ):
        raise cli.BadConfig(f"{where}: {value!r} is no list of two numbers, or of four")


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _share(value: Any) -> bool:
    return _number(value) and 0 <= value <= 1
