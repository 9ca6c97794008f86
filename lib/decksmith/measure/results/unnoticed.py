"""What the numbers of a comparison would hide: one model under two names, one request twice, other ways of asking, replies that
were cut off. Each is named beside the claims (`unnoticed`), or in the sentence of a pair (`asked_otherwise`).

What contradicts itself within one run is refused before (verify)."""

import functools
import itertools
from collections import Counter
from collections.abc import Iterator
from typing import cast

from decksmith.core import cli, stream
from decksmith.core.records import Record, prompt_of
from decksmith.measure.decks import sources
from decksmith.measure.judging import checks
from decksmith.measure.judging.records import DeckRecord
from decksmith.measure.results import pairs, runs, verify
from decksmith.measure.results.comparison import Run
from decksmith.measure.results.text import few, listed
from decksmith.models import registry
from decksmith.models.client import LIMITS
from decksmith.models.records import Asked, Gen

SAME = 20  # words of a reply that no two models write alike by chance
ADDED = 0.2  # share of its words that a request may have more than another and still be the same
PROMPTS = cli.ROOT / "data/prompts.jsonl"


def unnoticed(loaded: list[Run]) -> list[str]:
    """What is odd about these runs (runs.load), a sentence each; none of an honest comparison. Scores of another tool have
    nothing to look at."""
    ours = [run for run in loaded if not runs.is_external(run)]
    found = [line for a, b in itertools.combinations(ours, 2) for line in _one_model(a, b)]
    for run in ours:
        found += [*_asked_as(run), *_two_names(run)]
    if ours:
        found += [*_repeated(ours[0]["records"]), *_cut_prompts(ours[0]["records"])]
    return found


# Two names


def _replies(run: Run) -> dict[str, str]:
    """The replies long enough to tell models apart, as words, by id."""
    found = {}
    for record in run["records"]:
        words = ((record.get("gen") or {}).get("text") or "").casefold().split()
        if len(words) >= SAME:
            found[record["id"]] = " ".join(words)
    return found


def _one_model(a: Run, b: Run) -> Iterator[str]:
    """Two runs said to be of two models that have the same weights, or the same replies."""
    one, other = a["summary"]["model"], b["summary"]["model"]
    if one["name"] == other["name"]:
        return
    names = f"{a['label']} and {b['label']}"
    if (weights := _weights(one)) and weights == _weights(other):
        yield f"{names} are one model under two names: the same weights answered both"
    ours, theirs = _replies(a), _replies(b)
    shared = ours.keys() & theirs.keys()
    if same := [ident for ident in shared if ours[ident] == theirs[ident]]:
        yield (
            f"{names} gave the same reply to {len(same)} of {len(shared)} requests, word for word "
            f"({few(sorted(same))}): they may be one model under two names"
        )


def _weights(model: Asked) -> object:
    """What is known of the weights that answered; None for nothing."""
    served = model.get("served")
    return model.get("weights") or ((served["base"], served["adapter"]) if served else None)


def _asked_as(run: Run) -> Iterator[str]:
    """A run whose model the registry knows by another name at its endpoint now."""
    model = run["summary"]["model"]
    entry = registry.models().get(model["name"] or "")
    if entry and model["slug"] and entry.slug != model["slug"]:
        yield (
            f"{run['label']}: {model['slug']} answered; the registry now means {entry.slug} by {model['name']}"
        )


def _two_names(run: Run) -> Iterator[str]:
    """An endpoint that called itself by several names in one run."""
    gens = (record.get("gen") or cast(Gen, {}) for record in run["records"])
    responses = (cast(Record, gen.get("by") or {}).get("response") or {} for gen in gens)
    names = Counter(str(said["model"]) for said in responses if said.get("model"))
    if len(names) > 1:
        shown = [f"{name} ({n})" for name, n in names.most_common(3)]
        yield f"{run['label']}: the endpoint answered as {len(names)} models: {listed(shown)}"


def journal_lost(run: Run) -> Iterator[str]:
    """Replies that were kept in a journal, which is not there any more; looks says it, since a capsule holds none."""
    kept = {entry.get("inputs") for _, entry in stream.journal(run["path"] / "journal/gen.jsonl")}
    made = {record["id"]: verify.made_from(record.get("gen") or {}) for record in run["records"]}
    lost = [ident for ident, inputs in made.items() if inputs and inputs not in kept]
    if lost:
        yield (
            f"{run['label']}: its journal (journal/gen.jsonl) has not the replies to {len(lost)} of "
            f"{len(run['records'])} requests ({few(lost)}); nothing else shows what the model said"
        )


# What was asked


def _repeated(records: list[DeckRecord]) -> Iterator[str]:
    """Requests that are others with a few words added. They count as several, and are one."""
    said: dict[str, list[str]] = {}
    for record in records:
        if not record.get("turn"):
            said.setdefault(prompt_of(record), checks.units(sources.request(cast(Record, record))))
    ordered = sorted(said, key=lambda ident: len(said[ident]))
    having: dict[str, list[str]] = {}  # the requests with a word, from the shortest on
    for ident in ordered:
        for word in {*said[ident]}:
            having.setdefault(word, []).append(ident)
    copies: dict[str, str] = {}
    for short in filter(said.get, ordered):
        rarest = min((having[word] for word in said[short]), key=len)  # a copy has every word
        for long in rarest[rarest.index(short) + 1 :]:
            more = len(said[long]) - len(said[short])
            near = more <= max(2, ADDED * len(said[long])) and long not in copies
            if near and _within(said[short], said[long]):
                copies[long] = short
    if copies:
        named = [f"{ident} is {copies[ident]}" for ident in said if ident in copies]
        yield (
            f"requests that are others with some words added: {few(named)}; the {len(said)} prompts are "
            f"{len(said) - len(copies)} requests, and intervals take them for {len(said)}"
        )


def _within(short: list[str], long: list[str]) -> bool:
    """Whether all words of the one stand in the other, in their order."""
    rest = iter(long)
    return all(word in rest for word in short)


@functools.cache
def _shipped() -> dict[str, Record]:
    """The prompts of this repository by their ids; none where they are not there."""
    return {row["id"]: row for _, row in stream.records(PROMPTS)} if PROMPTS.is_file() else {}


def _cut_prompts(records: list[DeckRecord]) -> Iterator[str]:
    """Prompts with the id and request of a shipped one that ask for something else, or have another checklist."""
    odd: dict[str, list[str]] = {"asks": [], "checklist": []}
    prompts = {prompt_of(record): cast(Record, record) for record in records}
    for ident, record in prompts.items():
        row = _shipped().get(ident, record)
        differing = [key for key in odd if record.get(key) != row.get(key)]
        if differing and _alike(record, row):
            for key in differing:
                odd[key].append(ident)
    for key, idents in odd.items():
        if idents:
            yield (
                f"{len(idents)} of {len(prompts)} prompts have another {key} than data/prompts.jsonl has "
                f"under their ids ({few(idents)}): compare these numbers with no others of these prompts"
            )


def _alike(record: Record, row: Record) -> bool:
    """Whether two prompts of one id are the same request, by half of its words; else the id is its owner's affair."""
    ours, theirs = ({*checks.units(sources.request(one))} for one in (row, record))
    return 2 * len(theirs & ours) >= len(ours)


# In the sentence of a pair

STOPPED = "stopped, since they repeated themselves or began no slide"


def asked_otherwise(a: Run, b: Run) -> str:
    """In what the requests to two models differ, and how many of their replies were cut off, as sentences at the end of a headline."""
    return "".join(f". {clause}" for clause in (_sampling(a, b), _cut(a, b)) if clause)


def _sampling(a: Run, b: Run) -> str:
    ours, theirs = (_settings(run) for run in (a, b))
    names = {*ours, *theirs} - {"seed"} if ours and theirs else set()  # a folder is asked nothing
    names = {name for name in names if ours.get(name) != theirs.get(name)}
    said = [
        listed([f"{name} {_value(one.get(name))}" for name in sorted(names)])
        for one in (ours, theirs)
        if names
    ]
    return f"{a['label']} was asked at {said[0]}, {b['label']} at {said[1]}" if said else ""


def _settings(run: Run) -> dict[str, object]:
    """What was sent beside messages and the model's name, and by what it was served."""
    served = run["summary"]["model"].get("served")
    engine = {"engine": served["engine"]} if served else {}
    return {**run["summary"]["asked"]["parameters"], **engine}


def _value(value: object) -> str:
    if isinstance(value, list):
        return "of several values"
    return "unset" if value is None else f"{value:,}" if type(value) is int else str(value)


def _cut(a: Run, b: Run) -> str:
    """Which replies were cut off, where the protocol sets no limit that would say it."""
    found: dict[str, list[str]] = {}
    for run in (a, b):
        n, cut = run["summary"]["n"], run["summary"]["truncated"]
        stopped = run["summary"].get("stopped", 0)
        if cut > pairs.LIMITS["truncated"] * n and not pairs.cut_too_many(run):
            sent = run["summary"]["asked"]["parameters"]
            tokens = next((sent[name] for name in LIMITS if type(sent.get(name)) is int), None)
            early = run["summary"].get("cut_by_server")
            limit = f"{tokens:,} tokens" if tokens and not early else "the token limit"
            for how, count in (f"cut off at {limit}", cut - stopped), (STOPPED, stopped):
                who = [f"{count} of {n} replies of {run['label']}"] if count else []
                found.setdefault(how, []).extend(who)
    return listed([f"{listed(who)} were {how}" for how, who in found.items() if who] or [""])
