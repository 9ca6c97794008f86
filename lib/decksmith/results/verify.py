"""Whether the files of one run agree with each other.

Whatever can be computed from the records is computed again. What was written by a model, a judge or a renderer is
taken as it stands: only a replay (run-replay) can show that a judge's score is the one it gave.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from decksmith.core import cli, stream
from decksmith.core.protocol import Protocol
from decksmith.core.records import Record, prompt_of, sample_of
from decksmith.decks import conditions
from decksmith.judging import identity, scoring

SHOWN = 5  # contradictions, and ids, that a message names
CLOSE = 2e-4  # two rounded figures of another machine may be so far apart


@dataclass
class Files:
    """What the folder of a run holds: scores.jsonl, prompts.jsonl (None without one), protocol.json, summary.json."""

    records: list[Record]
    prompts: list[Record] | None
    protocol: Record
    summary: Record
    condition: Record | None = None  # condition.json, of a run under one


def check(
    folder: Path, files: Files, summarize: Callable[[list[Record]], Record], remedy: str
) -> Record:
    """The summary of the run, computed anew by `summarize(records)`.

    Raises cli.BadData naming file, id, field and both values of what contradicts itself, with `remedy` at the end.
    """
    found = [*_ids(files.records), *_asked(files.records, files.prompts), *_copies(files.records)]
    found += [*_requests(files), *_protocol(files), *_scores(files)]
    summary: Record = {}
    if not found:
        summary = summarize(files.records)
        found += _summary(files.summary, summary)
    if found:
        more = [f"and {len(found) - SHOWN} more"] if len(found) > SHOWN else []
        raise cli.BadData(
            "\n  ".join([f"{folder} contradicts itself:", *found[:SHOWN], *more, remedy])
        )
    return summary


def place(record: Record) -> tuple[str, int]:
    """`(prompt's id, number of the sample)` of a record; what was chosen of several samples stands for its prompt."""
    return prompt_of(record), 0 if "choose" in record else sample_of(record)


def few(idents: Iterable[str]) -> str:
    """Some ids in words: at most SHOWN of them, and how many more there are."""
    idents = list(idents)
    more = f" and {len(idents) - SHOWN} more" if len(idents) > SHOWN else ""
    return ", ".join(idents[:SHOWN]) + more


def _ids(records: list[Record]) -> Iterator[str]:
    seen = {}
    for record in records:
        ident, (of, k) = record["id"], place(record)
        if ident in seen:
            yield f"scores.jsonl: {ident}: this id is there twice"
        elif of != ident and ident != f"{of}~{k}":
            yield f"scores.jsonl: {ident}: id is {ident}, and gen.sample says {of}~{k}"
        seen[ident] = (of, k)


def _asked(records: list[Record], prompts: list[Record] | None) -> Iterator[str]:
    """Rows that are missing, that nobody asked for, or that were asked something else."""
    samples: dict[str, dict[int, Record]] = {}
    for record in records:
        of, k = place(record)
        samples.setdefault(of, {})[k] = record
    if prompts is not None:
        asked = {row["id"]: row for row in prompts}
        if lost := [ident for ident in asked if ident not in samples]:
            yield f"scores.jsonl: lacks {len(lost)} of the {len(asked)} prompts in prompts.jsonl: {few(lost)}"
        if odd := [ident for ident in samples if ident not in asked]:
            yield f"prompts.jsonl: lacks {len(odd)} of the {len(samples)} prompts in scores.jsonl: {few(odd)}"
        for record in records:
            row = asked.get(prompt_of(record), record)
            for key in ("messages", "asks", "checklist", "sources", "turn"):
                if record.get(key) != row.get(key):
                    yield f"scores.jsonl: {record['id']}: {key} differs from prompts.jsonl"
    usual = {k for each in samples.values() for k in each}
    if lost := [
        f"{of}~{k}" for of, each in samples.items() for k in sorted(usual) if k not in each
    ]:
        yield f"scores.jsonl: lacks {len(lost)} samples that other prompts have: {few(lost)}"


def _copies(records: list[Record]) -> list[str]:
    """One request under two ids would count twice."""
    seen: dict[str, str] = {}
    copies: dict[str, str] = {}
    for record in records:
        said = [
            (message.get("role"), _plain(message.get("content")))
            for message in record.get("messages") or []
        ]
        of = prompt_of(record)
        first = seen.setdefault(stream.fingerprint(said), of) if said else of
        if first != of:
            copies[of] = f"scores.jsonl: {of}: messages are those of {first}; a request counts once"
    return list(copies.values())


def _plain(content: Any) -> Any:
    return " ".join(content.split()).casefold() if isinstance(content, str) else content


def _requests(files: Files) -> Iterator[str]:
    given = conditions.held(files.condition) if files.condition else None
    own = given.asked() if given else None
    for record in files.records:
        gen = record.get("gen") or {}
        if kept := gen.get("request"):
            if gen.get("condition") != own:
                yield f"scores.jsonl: {record['id']}: gen.condition is {_short(gen.get('condition'))}, condition.json gives {_short(own)}"
                continue
            messages = given.messages(record) if given else record.get("messages")
            body = {"messages": messages, **(gen.get("sampling") or {})}
            if (now := stream.fingerprint(body)) != kept:
                yield f"scores.jsonl: {record['id']}: gen.request is {_short(kept)}, messages and sampling give {_short(now)}"


def _protocol(files: Files) -> Iterator[str]:
    held = files.protocol
    now = stream.fingerprint({key: value for key, value in held.items() if key != "hash"})
    if held.get("hash") != now:
        yield f"protocol.json: hash is {_short(held.get('hash'))}, its content gives {_short(now)}"
    try:
        seen = identity.observed(Protocol.held(held), files.records)
    except ValueError as error:
        yield f"protocol.json: {error}"
    except cli.BadData as error:
        yield f"scores.jsonl: {error}"
    else:
        seen = {key: value for key, value in seen.items() if value is not None}
        kept = {key: held.get(key) for key in seen}
        yield from (
            f"protocol.json: {field} is {old}, the records give {new}"
            for field, old, new in _unlike(kept, seen)
        )


def _scores(files: Files) -> Iterator[str]:
    try:
        protocol = Protocol.held(files.protocol)
    except ValueError:
        return  # _protocol names it
    for record in files.records:
        where = f"scores.jsonl: {record['id']}"
        try:
            if beyond := _beyond(protocol, record):
                yield f"{where}: {beyond[0]} is {_short(beyond[1])}; it is a number from 1 to 5"
                continue
            score = scoring.score(protocol, record)
        except cli.BadData as error:
            yield f"scores.jsonl: {error}"
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            yield f"{where}: a stage's value has another form than docs/records.md says ({error!r})"
        else:
            stored = {key: value for key, value in record["score"].items() if key != "by"}
            for field, old, new in _unlike(stored, score, "score"):
                yield f"{where}: {field} is {old}, the stages and weights give {new}"


def _beyond(protocol: Protocol, record: Record) -> tuple[str, Any] | None:
    """The first score of judge or scan that is no number from 1 to 5, as `(field, value)`, or None."""
    scores, scan = (record.get("judge") or {}).get("scores") or {}, protocol.score["viscraft"]
    values = {f"judge.scores.{name}": value for name, value in scores.items()}
    values[f"features.{scan}"] = (record.get("features") or {}).get(scan)
    for field, value in values.items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if value is not None and not (number and 1 <= value <= 5):
            return field, value
    return None


def _summary(stored: Record, now: Record) -> Iterator[str]:
    """Where summary.json differs from what its records give. Intervals of another method are no contradiction."""
    interval = None if stored.get("interval") != now["interval"] else "compare"
    for field, old, new in _unlike(stored, now):
        skipped = field.split(".")[0] in ("by", "interval")
        if not skipped and (interval or field.rpartition(".")[2] not in ("lo", "hi")):
            yield f"summary.json: {field} is {old}, the records give {new}"


def _unlike(stored: Any, now: Any, path: str = "") -> Iterator[tuple[str, str, str]]:
    """`(field, stored, computed)`, values as text, of every leaf in which two JSON values differ."""
    if isinstance(stored, dict) and isinstance(now, dict):
        for key in sorted({*stored, *now}):
            yield from _unlike(stored.get(key), now.get(key), f"{path}.{key}" if path else key)
    elif not _equal(stored, now):
        yield path, _short(stored), _short(now)


def _equal(a: Any, b: Any) -> bool:
    numbers = all(
        isinstance(value, int | float) and not isinstance(value, bool) for value in (a, b)
    )
    return abs(a - b) <= CLOSE if numbers else a == b and isinstance(a, bool) == isinstance(b, bool)


def _short(value: Any) -> str:
    text: str = identity.short(value)
    return text if len(text) <= 80 else text[:80] + ".."


def same_but_model(a: Record, b: Record) -> list[str]:
    """In what two loaded runs (runs.load) differ beside the model, one line each; none: the difference of their scores is the model's.

    More than the protocol must agree (identity.differences): also what the registry sets for each model, which decks were asked for, and
    what served them, if both were served here.
    """
    lines = identity.differences(a["protocol"], b["protocol"])
    first, second = (
        {record["id"]: record.get("gen") or {} for record in run["records"]} for run in (a, b)
    )
    if odd := sorted(first.keys() ^ second.keys()):
        lines.append(
            f"records: {len(odd)} in one run only, {', '.join(odd[:5])}{' ..' if odd[5:] else ''}"
        )
    found: set[str] = set()
    for ident in first.keys() & second.keys():
        one, other = first[ident], second[ident]
        if one.get("sampling") and other.get("sampling"):
            found.update(identity.lines(one["sampling"], other["sampling"], "gen.sampling"))
        ours, theirs = (_server(gen) for gen in (one, other))
        if ours and theirs:
            found.update(identity.lines(ours, theirs, "server"))
    return [*lines, *sorted(found)]


def _server(gen: Record) -> Record | None:
    """What served a reply, None where it was not served here."""
    served = (gen.get("model") or {}).get("served")
    return {name: served[name] for name in ("engine", "base")} if served else None
