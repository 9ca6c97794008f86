"""Which pairs a study asks about: drawn from two or more finished runs, by lot and balanced,
never changed once they are there."""

import itertools
import math
import secrets
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypedDict, cast

from decksmith.core import cli, stream
from decksmith.core.records import prompt_of, sample_of
from decksmith.measure.decks.records import Rendered
from decksmith.measure.judging import identity
from decksmith.measure.judging.records import DeckRecord
from decksmith.measure.results import layout
from decksmith.people.study import pair_pictures, store
from decksmith.people.study.records import PairKind, PairSide, StudyAbout, StudyPair

QUESTION = "Which of the two decks would you rather present?"
KINDS: tuple[PairKind, ...] = ("vote", "repeat", "gold")
# Of a protocol: what decides the slides, whoever judges them.
MADE_BY = ("system", "sampling", "images", "render", "renderer")
GOLDEN = 0.618  # of a column's length: where the next one starts, so that neighbours are far apart
GOLD_SLIDES = range(3, 21)  # slides of a deck that can be an attention item


@dataclass(frozen=True)
class StudyDeck:
    """What a study needs of one answer."""

    state: str  # rendered; failed (the model's fault); excluded (somebody else's)
    why: str | None  # the class of the error
    clean: bool  # rendered without a complaint
    slides: list[str]  # pictures, from the run's folder
    request: str
    domain: str


@dataclass(frozen=True)
class StudiedRun:
    """What a study needs of a run."""

    name: str
    path: Path
    label: str
    identity: dict[str, object]  # MADE_BY of its protocol.json; empty where nothing is known
    decks: dict[str, dict[int, StudyDeck]] = field(repr=False)  # by prompt and sample

    def eligible(self, prompt: str, states: Sequence[str]) -> list[int]:
        """The samples of a prompt that are in one of `states`."""
        decks = self.decks.get(prompt, {})
        return sorted(sample for sample, deck in decks.items() if deck.state in states)

    def slides(self, prompt: str, sample: int) -> list[Path]:
        """The pictures of a deck. Raises cli.BadData for one that is not there or not the run's."""
        found = []
        for slide in self.decks[prompt][sample].slides:
            file = (self.path / slide).resolve()
            if not file.is_relative_to(self.path.resolve()) or not file.is_file():
                raise cli.BadData(
                    f"{self.path / slide}: this slide is not there; "
                    f"`{layout.make_command(self.path)}` renders it again"
                )
            found.append(file)
        return found


class Built(TypedDict):
    """What pair-build prints: how many pairs there are of each kind, and how many were added."""

    study: str
    runs: list[str]
    pairs: dict[PairKind, int]
    added: dict[PairKind, int]
    seed: int | None


def build(
    folder: Path | str,
    runs: Iterable[Path | str],
    *,
    seed: int | None = None,
    prompts: int = 30,
    repeats: float = 0.1,
    gold: float = 0.05,
    failed: bool = False,
    **wanted: str | int | None,
) -> Built:
    """Make the study in `folder`, or bring it up to what is asked.

    runs      run folders (scores.jsonl or renders.jsonl); each two of them are compared
    seed      of prompts, sides and samples: the same seed gives the same pairs. By default drawn
    prompts   for each two runs so many requests, spread evenly over the domains, the same ones for
              all where possible
    repeats   share of the pairs that come again later with sides swapped; gold: share of attention
              items, a deck beside a visibly damaged copy of itself
    failed    also pairs in which an answer gave no accepted deck: it is shown as far as it got
    wanted    title, question, raters_per_pair and per_rater of StudyAbout; None leaves them

    Sides are balanced for each two runs. No line that is there is changed: calling it again adds
    only what is missing. Two processes wait for each other; one that is killed leaves the study
    as it was. Raises cli.BadData when runs differ in more than the model, when their requests
    differ, when the seed is another, and when there is nothing to compare."""
    folder = Path(folder)
    if "imported" in (store.about_of(folder) or {}):
        raise cli.BadData(
            f"{folder} has imported votes (vote-import); a study to vote in needs a folder of "
            "its own"
        )
    named = _runs(runs, {})
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)  # raters may have an account here too
    with store.locked(folder) as secret:
        study = _settled(folder, seed, wanted)
        known = _runs((run["path"] for run in study["runs"]), named)
        _comparable(list(known.values()))
        old = list(store.pairs_of(folder).values())
        lot = PairLot(study["seed"] or 0, secret, known, failed)
        new = lot.missing(old, prompts, repeats, gold)
        if not old and not any(pair["kind"] == "vote" for pair in new):
            raise cli.BadData(_nothing(known, failed))
        study["runs"] = [
            {"name": run.name, "label": run.label, "path": str(run.path)}
            for _, run in sorted(known.items())
        ]
        pair_pictures.draw(
            folder,
            secret,
            new,
            lambda prompt, deck: known[deck["run"]].slides(prompt, deck["sample"]),
        )
        store.write(folder, study, [*old, *new])
    added = Counter(pair["kind"] for pair in new)
    there = Counter(pair["kind"] for pair in [*old, *new])
    return {
        "study": str(folder),
        "runs": sorted(known),
        "pairs": {kind: there[kind] for kind in KINDS},
        "added": {kind: added[kind] for kind in KINDS},
        "seed": study["seed"],
    }


def _settled(folder: Path, seed: int | None, wanted: Mapping[str, object]) -> StudyAbout:
    """study.json as it is to be: of a new study with a seed, with those settings that are given."""
    study: StudyAbout = store.about_of(folder) or {
        "title": "Two decks, one request",
        "question": QUESTION,
        "seed": secrets.randbelow(1 << 48) if seed is None else seed,
        "raters_per_pair": 3,
        "per_rater": 40,
        "runs": [],
    }
    if seed not in (None, study["seed"]):
        raise cli.BadData(
            f"{folder} was made with seed {study['seed']}; another seed is another study"
        )
    given = {name: value for name, value in wanted.items() if value is not None}
    return cast(StudyAbout, {**study, **given})


# The runs


def _runs(paths: Iterable[Path | str], known: Mapping[str, StudiedRun]) -> dict[str, StudiedRun]:
    """The runs in some folders by name; those that are `known` are not read again. Raises
    cli.BadData for two folders of one name."""
    found: dict[str, StudiedRun] = {**known}
    for path in map(Path, paths):
        name = layout.run_name(path)
        if name not in found:
            found[name] = _run(path, name)
        elif path.resolve() != found[name].path.resolve():
            raise cli.BadData(
                f"{found[name].path} and {path} have one name; a study knows runs by their models"
            )
    return found


def _run(path: Path, name: str) -> StudiedRun:
    """The run in a folder. Raises cli.Missing or cli.BadData for one that cannot be shown."""
    files = [path / name for name in ("scores.jsonl", "renders.jsonl") if (path / name).is_file()]
    if not files:
        raise layout.missing(path)
    held = path / "protocol.json"
    protocol = stream.json_file(held) if held.exists() else {}
    registry = cli.ROOT / "assets" / "models.toml"
    known = tomllib.loads(registry.read_text()) if registry.exists() else {}
    decks: dict[str, dict[int, StudyDeck]] = defaultdict(dict)
    for number, record in stream.records(files[0], Rendered):
        if not any(isinstance(record.get(key), dict) for key in ("gen", "deck", "render")):
            raise cli.BadData(
                f'{files[0]}:{number}: {record["id"]}: no "render" in this record; '
                "deck-render writes it"
            )
        decks[prompt_of(record)][sample_of(record)] = _deck(cast(DeckRecord, record))
    return StudiedRun(
        name=name,
        path=path,
        label=(known.get(name) or {}).get("label", name),
        identity={key: protocol[key] for key in MADE_BY if key in protocol},
        decks=decks,
    )


def _deck(record: DeckRecord) -> StudyDeck:
    said = (record.get("gen"), record.get("deck"), record.get("images"), record.get("render"))
    # An error of a later stage says nothing about the pictures.
    error = next((value["error"] for value in said if value and "error" in value), None)
    render = record.get("render", {})
    slides = render.get("slides", [])
    if error is None and slides:
        state = "rendered"
    else:
        state = "failed" if error and error["kind"] == "model" else "excluded"
    # What the person asked for, without the instructions that the model also had.
    asked = [one["content"] for one in record.get("messages", []) if one["role"] == "user"]
    return StudyDeck(
        state=state,
        why=error["class"] if error else None,
        clean=state == "rendered" and render.get("status") == "ok",
        slides=slides,
        request="\n\n".join(asked).strip(),
        domain=record.get("asks", {}).get("domain", ""),
    )


def _comparable(runs: Sequence[StudiedRun]) -> None:
    """Raises cli.BadData where runs differ in more than the model, or their requests differ."""
    first, *others = runs
    for other in others:
        if first.identity and other.identity:
            if differing := identity.differences(first.identity, other.identity):
                said = (
                    f"{first.path} and {other.path} differ in more than the model; "
                    "people would vote on that too"
                )
                raise cli.BadData("\n".join([said, *(f"  {line}" for line in differing)]))
        for prompt in sorted(first.decks.keys() & other.decks.keys()):
            decks = [*first.decks[prompt].values(), *other.decks[prompt].values()]
            if len({deck.request for deck in decks}) > 1:
                raise cli.BadData(
                    f"{first.path} and {other.path}: {prompt} is not the same request in both"
                )


def _nothing(runs: Mapping[str, StudiedRun], failed: bool) -> str:
    """Why there is nothing to compare; `failed`: --failed was given already."""
    if len(runs) < 2:
        return "one run has nothing to be compared with; name two or more"
    lacking = "one of these runs has a rendered deck and another an answer to show"
    lacking = lacking if failed else "two of these runs have a rendered deck"
    lines = [f"there is no request for which {lacking}"]
    for name, run in sorted(runs.items()):
        found = [deck for samples in run.decks.values() for deck in samples.values()]
        rendered = sum(deck.state == "rendered" for deck in found)
        why = Counter(deck.why for deck in found if deck.why).most_common(3)
        most = f" ({', '.join(f'{n} {word}' for word, n in why)})" if why else ""
        lines.append(f"  {name}: {rendered} of {len(found)} rendered{most}")
    if not failed:
        lines.append("  --failed also pairs answers that gave no accepted deck")
    return "\n".join(lines)


# The lot

Models = tuple[str, str]  # two names in the order of the alphabet


@dataclass(frozen=True)
class PairLot:
    """What pairs are drawn from. The same seed and runs give the same pairs; ids are keyed by
    the secret."""

    seed: int
    secret: bytes
    runs: Mapping[str, StudiedRun]
    failed: bool

    def missing(
        self, old: Sequence[StudyPair], prompts: int, repeats: float, gold: float
    ) -> list[StudyPair]:
        """The pairs that are missing, in the order in which people get them: every stretch has all
        models and many requests."""
        of_kind = {kind: [pair for pair in old if pair["kind"] == kind] for kind in KINDS}
        new = self.votes(of_kind["vote"], prompts)
        votes = [*of_kind["vote"], *new]
        new += self.repeats(votes, {pair["of"] for pair in of_kind["repeat"]}, repeats)
        count = math.ceil(len(votes) * gold) - len(of_kind["gold"])
        return new + self.gold({pair["prompt"] for pair in votes}, of_kind["gold"], count)

    def dice(self, *words: object) -> float:
        return store.dice(self.seed, *words)

    def heads(self, balance: int, *words: object) -> bool:
        """Whether it is the turn of the first of two, who was chosen `balance` times more often
        than the second."""
        return balance < 0 or (balance == 0 and self.dice(*words) < 0.5)

    def samples(self, run: str, prompt: str) -> list[int]:
        """Of the decks of a prompt, those that can be shown."""
        states = ("rendered", "failed") if self.failed else ("rendered",)
        return self.runs[run].eligible(prompt, states)

    def open(self, between: Models, prompt: str) -> bool:
        """Whether people can compare two models on a prompt: both have a deck to show, one of
        them a rendered one."""
        if not all(self.samples(name, prompt) for name in between):
            return False
        return any(self.runs[name].eligible(prompt, ("rendered",)) for name in between)

    def pair(
        self, kind: PairKind, prompt: str, left: PairSide, right: PairSide, *key: str
    ) -> StudyPair:
        """A pair whose pictures are not drawn yet. key: what its id is made of."""
        return {
            "id": store.keyed(self.secret, kind, *key, size=6),
            "kind": kind,
            "prompt": prompt,
            "request": self.runs[left["run"]].decks[prompt][left["sample"]].request,
            "left": left,
            "right": right,
            "pictures": {},
            "of": None,
            "expect": None,
        }

    def prompts(self) -> list[str]:
        """All prompts in the order in which they are taken: drawn within each domain, the
        domains in turn."""
        domains: dict[str, set[str]] = defaultdict(set)
        for run in self.runs.values():
            for prompt, samples in run.decks.items():
                domains[next(iter(samples.values())).domain].add(prompt)
        drawn = [
            sorted(domains[domain], key=lambda prompt: self.dice("prompt", prompt))
            for domain in sorted(domains, key=lambda domain: self.dice("domain", domain))
        ]
        turns = itertools.zip_longest(*drawn)
        return [prompt for turn in turns for prompt in turn if prompt is not None]

    def votes(self, old: Sequence[StudyPair], prompts: int) -> list[StudyPair]:
        """Pairs to vote on, until each two models meet on so many prompts."""
        taken: dict[Models, set[str]] = defaultdict(set)
        lefts: Counter[Models] = Counter()  # how often the first stood left more than the second
        for pair in old:
            first, second = sorted((pair["left"]["run"], pair["right"]["run"]))
            taken[first, second].add(pair["prompt"])
            lefts[first, second] += 1 if pair["left"]["run"] == first else -1
        order = self.prompts()
        columns: list[list[tuple[Models, str]]] = []
        for between in itertools.combinations(sorted(self.runs), 2):
            rest = [prompt for prompt in order if prompt not in taken[between]]
            usable = [prompt for prompt in rest if self.open(between, prompt)]
            chosen = usable[: max(0, prompts - len(taken[between]))]
            # Each column starts elsewhere, so that one request is not asked about again and again.
            at = round(len(columns) * len(chosen) * GOLDEN) % len(chosen) if chosen else 0
            columns.append([(between, prompt) for prompt in chosen[at:] + chosen[:at]])
        found = []
        for turn in itertools.zip_longest(*columns):
            for between, prompt in filter(None, turn):
                sides: list[PairSide] = []
                for name in between:
                    samples = self.samples(name, prompt)
                    at = int(self.dice("sample", *between, prompt, name) * len(samples))
                    sides.append({"model": name, "run": name, "sample": samples[at]})
                as_named = self.heads(lefts[between], "side", *between, prompt)
                lefts[between] += 1 if as_named else -1
                left, right = sides if as_named else sides[::-1]
                found.append(self.pair("vote", prompt, left, right, prompt, *between))
        return found

    def repeats(
        self, votes: Sequence[StudyPair], repeated: set[str | None], share: float
    ) -> list[StudyPair]:
        """The first pair, and one in so many after it, again with its sides swapped, unless it was
        `repeated`."""
        found: list[StudyPair] = []
        for index, pair in enumerate(votes):
            due = math.floor(index * share) > math.floor((index - 1) * share)
            if due and pair["id"] not in repeated:
                sides = pair["right"], pair["left"]
                again = self.pair("repeat", pair["prompt"], *sides, pair["id"])
                found.append({**again, "of": pair["id"]})
        return found

    def gold(self, asked: set[str], old: Sequence[StudyPair], count: int) -> list[StudyPair]:
        """Attention items: a clean deck beside a damaged copy of itself, of prompts that are not
        `asked` about where there are such."""
        used = {(pair["left"]["run"], pair["prompt"]) for pair in old}
        decks = [
            (name, prompt, sample)
            for prompt in self.prompts()
            for name, run in self.runs.items()
            for sample, deck in run.decks.get(prompt, {}).items()
            if deck.clean and len(deck.slides) in GOLD_SLIDES and (name, prompt) not in used
        ]
        counts = Counter(pair["left"]["run"] for pair in old)
        balance = sum(1 if pair["expect"] == "left" else -1 for pair in old)
        found: list[StudyPair] = []
        while len(found) < count and decks:
            name, prompt, sample = min(
                decks,
                key=lambda deck: (deck[1] in asked, counts[deck[0]], self.dice("gold", *deck)),
            )
            decks = [deck for deck in decks if deck[:2] != (name, prompt)]
            counts[name] += 1
            left = self.heads(balance, "gold side", name, prompt)
            balance += 1 if left else -1
            whole: PairSide = {"model": name, "run": name, "sample": sample}
            broken: PairSide = {**whole, "broken": True}
            sides = (whole, broken) if left else (broken, whole)
            pair = self.pair("gold", prompt, *sides, prompt, name)
            found.append({**pair, "expect": "left" if left else "right"})
        return found
