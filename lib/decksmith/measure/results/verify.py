"""Whether the files of one run agree with each other.

Whatever can be computed from the records is computed again, of the offline checks a sample of `SAMPLE` decks. What was written by
a model, a judge that reads, or a renderer is taken as it stands: only a replay (run-replay) can show that a score is the one it gave.
"""

import hashlib
import itertools
from collections.abc import Iterator
from typing import cast

from decksmith.core import cli, stream
from decksmith.core.protocol import SHIPPED, Protocol
from decksmith.core.records import By, Record, prompt_of
from decksmith.measure.decks import clean, conditions, pictures
from decksmith.measure.decks.records import Limits
from decksmith.measure.judging import checks, identity, scoring
from decksmith.measure.judging.records import DeckRecord, Judge
from decksmith.measure.results import layout
from decksmith.measure.results.comparison import Run
from decksmith.measure.results.records import Summary
from decksmith.measure.results.runs import is_external, whole
from decksmith.measure.results.summary import place, summarize
from decksmith.measure.results.text import few
from decksmith.models.records import Asked, Gen, Served

SHOWN = 5  # contradictions that a message names
CLOSE = 2e-4  # two rounded figures of another machine may be so far apart
SAMPLE = 8  # decks of a run whose pictures are looked at again: 0.3 s each
OTHER_FORM = "a stage's value has another form than docs/records.md says"


def check(runs: list[Run]) -> None:
    """Compute again what can be computed of these runs (runs.load), put it in the place of their stored summaries, and say
    that this was done. Files of scores of another tool have nothing to compute.

    Raises cli.BadData naming file, id, field and both values of what contradicts itself, with a remedy at the end.
    """
    ours = [run for run in runs if not is_external(run)]
    looked = [0, 0]
    for run in ours:
        looked_at, judged = _sample(run)
        run["summary"] = _checked(run, looked_at)
        looked[0] += len(looked_at)
        looked[1] += judged
    if ours:
        records = sum(len(run["records"]) for run in ours)
        verdicts = f", the checks of {looked[0]} of {looked[1]} decks" if looked[1] else ""
        cli.say(
            f"computed again, and the same: scores and summaries of {len(ours)} run{'s' * (len(ours) > 1)}, "
            f"{records} records{verdicts}"
        )


def _checked(run: Run, sample: list[DeckRecord]) -> Summary:
    """The summary of a run, computed anew. sample: decks whose verdicts are computed again."""
    folder, records = run["path"], run["records"]
    asked = folder / "prompts.jsonl"
    prompts = [record for _, record in stream.records(asked)] if asked.exists() else None
    found = [*_ids(records), *_asked(records, prompts), *_requests(run)]
    found += [*_protocol(run), *_scores(run), *_decks(run), *_journal(run)]
    drawn = whole(run, {record["id"] for record in sample}) if sample else ()
    found += [line for record in drawn for line in _verdict(run, record)]
    found = found or [*_changed(run)]
    named = ("prompts.jsonl: ", "protocol.json: ")
    found = [line if line.startswith(named) else f"scores.jsonl: {line}" for line in found]
    if not found:
        where = folder / "scores.jsonl"
        summary = summarize(enumerate(records, 1), where, run.get("made_from"))
        found += _summary(run["summary"], summary)
    if found:
        more = [f"and {len(found) - SHOWN} more"] if len(found) > SHOWN else []
        remedy = f"to derive all of it again from what was paid for: rm {folder}/scores.jsonl && {layout.make_command(folder)}"
        raise cli.BadData(
            "\n  ".join([f"{folder} contradicts itself:", *found[:SHOWN], *more, remedy])
        )
    return summary


def _ids(records: list[DeckRecord]) -> Iterator[str]:
    seen = set()
    for record in records:
        ident, (of, k) = record["id"], place(record)
        if ident in seen:
            yield f"{ident}: this id is there twice"
        elif ident not in (of, f"{of}~{k}"):
            yield f"{ident}: id is {ident}, and gen.sample says {of}~{k}"
        seen.add(ident)


def _asked(records: list[DeckRecord], prompts: list[Record] | None) -> Iterator[str]:
    """Rows that are missing, that nobody asked for, or that were asked something else."""
    samples: dict[str, set[int]] = {}
    for record in records:
        of, k = place(record)
        samples.setdefault(of, set()).add(k)
    if prompts is not None:
        asked = {row["id"]: row for row in prompts}
        if lost := [ident for ident in asked if ident not in samples]:
            yield f"lacks {len(lost)} of the {len(asked)} prompts in prompts.jsonl: {few(lost)}"
        if odd := [ident for ident in samples if ident not in asked]:
            yield f"prompts.jsonl: lacks {len(odd)} of the {len(samples)} prompts in scores.jsonl: {few(odd)}"
        for record in records:
            row = asked.get(prompt_of(record), record)
            for key in row.keys() - {"id"} | {"messages", "asks", "checklist", "sources", "turn"}:
                if record.get(key) != row.get(key):
                    yield f"{record['id']}: {key} differs from prompts.jsonl"
    usual = sorted(set().union(*samples.values()))
    if lost := [f"{of}~{k}" for of, own in samples.items() for k in usual if k not in own]:
        yield f"lacks {len(lost)} samples that other prompts have: {few(lost)}"


def _requests(run: Run) -> Iterator[str]:
    given = conditions.held(run["condition"]) if run["condition"] else None
    own = given.asked() if given else None
    for record in run["records"]:
        gen: Gen = record.get("gen") or {}
        if not (kept := gen.get("request")):
            continue
        if gen.get("condition") != own:
            yield f"{record['id']}: gen.condition is {_short(gen.get('condition'))}, condition.json gives {_short(own)}"
            continue
        messages = given.messages(cast(Record, record)) if given else record.get("messages")
        now = stream.fingerprint({"messages": messages, **(gen.get("sampling") or {})})
        if now != kept:
            yield f"{record['id']}: gen.request is {_short(kept)}, messages and sampling give {_short(now)}"


def _protocol(run: Run) -> Iterator[str]:
    held, records = cast(Record, run["protocol"]), cast(list[Record], run["records"])
    now = stream.fingerprint({key: value for key, value in held.items() if key != "hash"})
    if held.get("hash") != now:
        yield f"protocol.json: hash is {_short(held.get('hash'))}, its content gives {_short(now)}"
    try:
        seen = identity.observed(Protocol.held(held), records)
    except ValueError as error:
        yield f"protocol.json: {error}"
    except cli.BadData as error:
        yield str(error)
    else:
        seen = {key: value for key, value in seen.items() if value is not None}
        for field, old, new in _unlike({key: held.get(key) for key in seen}, seen):
            yield f"protocol.json: {field} is {old}, the records give {new}"


def _scores(run: Run) -> Iterator[str]:
    try:
        protocol = Protocol.held(cast(Record, run["protocol"]))
    except ValueError:
        return  # _protocol names it
    for record in cast(list[Record], run["records"]):
        ident = record["id"]
        try:
            if beyond := _beyond(protocol, record):
                yield f"{ident}: {beyond[0]} is {_short(beyond[1])}; it is {beyond[2]}"
                continue
            score = scoring.score(protocol, record)
        except cli.BadData as error:
            yield str(error)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            yield f"{ident}: {OTHER_FORM} ({error!r})"
        else:
            for field, old, new in _unlike(record["score"], score, "score"):
                yield f"{ident}: {field} is {old}, the stages and weights give {new}"


def _decks(run: Run) -> Iterator[str]:
    """Decks that are not what their replies say: each reply is cleaned again. A revised deck follows from another reply."""
    for record in run["records"]:
        deck, said = record.get("deck") or {}, (record.get("gen") or {}).get("text")
        if "sha256" not in deck or said is None or (record.get("revise") or {}).get("kept"):
            continue
        now = hashlib.sha256(_meant(record, said).encode()).hexdigest()
        if now != deck["sha256"]:
            yield f"{record['id']}: deck.sha256 is {_short(deck['sha256'])}, the reply gives {_short(now)}"
        elif not clean.current(run["path"], cast(Record, deck)) and _is_there(run, deck["path"]):
            yield f"{record['id']}: {deck['path']} is another deck than the reply gives"


def _meant(record: DeckRecord, reply: str) -> str:
    try:
        return clean.meant(cast(Record, record), reply)
    except stream.Fault:
        return ""


def _changed(run: Run) -> Iterator[str]:
    """Pictures that are damaged on their disk, and records that are others than those whose scores they have."""
    for record in run["records"]:
        for path in (record.get("render") or {}).get("slides") or []:
            if _is_there(run, path) and not pictures.is_whole(run["path"] / path):
                yield f"{record['id']}: {path} is damaged"
    for ident in run.get("altered", ()):
        yield f"{ident}: it is another record than the one that score.by.inputs says"


def _is_there(run: Run, path: str) -> bool:
    return (run["path"] / path).is_file()


def made_from(gen: Gen) -> str | None:
    """The fingerprint of what a reply was made from, by which its journal keeps it."""
    by: By | None = gen.get("by")
    return by.get("inputs") if by else None


def _journal(run: Run) -> Iterator[str]:
    """Replies that are others than their journal keeps (unnoticed names those that it does not have)."""
    kept: dict[str | None, list[Gen]] = {}
    for _, entry in stream.journal(run["path"] / "journal/gen.jsonl"):
        kept.setdefault(entry.get("inputs"), []).append(entry.get("gen") or {})
    for record in run["records"]:
        gen = record.get("gen") or cast(Gen, {})
        if gen.get("error") or not (stored := kept.get(made_from(gen))):
            continue
        for field in ("text", "model"):
            values = [each.get(field) for each in stored]
            if gen.get(field) not in values:
                yield (
                    f"{record['id']}: gen.{field} is {_short(gen.get(field))}, "
                    f"journal/gen.jsonl has {_short(values[-1])}"
                )


# Verdicts of the offline checks, from the pictures


def _sample(run: Run) -> tuple[list[DeckRecord], int]:
    """Decks whose checks can be computed again, at most SAMPLE, and how many have checks. What is drawn depends on all
    verdicts, so that nobody can edit those that are not."""
    judged = [record for record in run["records"] if "checks" in (record.get("judge") or {})]
    name = run["protocol"].get("protocol")
    if not judged or not any(path.stem == name for path in SHIPPED.glob("*.toml")):
        return [], len(judged)
    ours = stream.fingerprint(identity.judging(Protocol.load(name)))
    usable = [
        record
        for record in judged
        if record["judge"].get("rubric") == ours
        and all(_is_there(run, path) for path in _files(record))
    ]
    salt = stream.fingerprint([record["judge"]["checks"] for record in judged])
    usable.sort(key=lambda record: stream.fingerprint([salt, record["id"]]))
    return usable[:SAMPLE], len(judged)


def _files(record: DeckRecord) -> list[str]:
    """What a verdict was made of: the deck and its pictures."""
    deck, render = record.get("deck") or {}, record.get("render") or {}
    return [deck.get("path", "deck.md"), *(render.get("slides") or [])]


def _verdict(run: Run, record: DeckRecord) -> Iterator[str]:
    """What the pictures and the request say of a deck in place of what stands there. Whether its text reads like language
    is taken as it stands, since a model says it."""
    stored, limits = record["judge"], Protocol.load(run["protocol"]["protocol"]).checks
    try:
        now = checks.judge(
            cast(Record, record), run["path"], cast(Limits, limits), _reading(stored)
        )
    except cli.BadData as error:
        yield str(error)
        return
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        yield f"{record['id']}: {OTHER_FORM} ({error!r})"
        return
    for key in ("checks", "findings", "asked", "checklist"):
        for field, old, new in _unlike(stored.get(key), now.get(key), f"judge.{key}"):
            yield f"{record['id']}: {field} is {old}, the pictures give {new}"


def _reading(stored: Judge) -> checks.Reading | None:
    """What a verdict says of whether the text reads like language."""
    if why := (stored.get("not_checked") or {}).get("reads"):
        return checks.Reading(None, why)
    found = [one["message"] for one in stored.get("findings") or [] if one["check"] == "reads"]
    return checks.Reading(False, found[0]) if found else None


def _beyond(protocol: Protocol, record: Record) -> tuple[str, object, str] | None:
    """The first number of judge or scan that cannot be, as `(field, value, what it is)`, or None."""
    judge = record.get("judge") or {}
    if counted := judge.get("checks"):
        possible = 0 <= counted["passed"] <= counted["of"] > 0
        return None if possible else ("judge.checks", counted, "passed of all there are")
    values = {f"judge.scores.{name}": value for name, value in (judge.get("scores") or {}).items()}
    if scan := protocol.score.get("viscraft"):
        values[f"features.{scan}"] = (record.get("features") or {}).get(scan)
    for field, value in values.items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if value is not None and not (number and 1 <= value <= 5):
            return field, value, "a number from 1 to 5"
    return None


def _summary(stored: Summary, now: Summary) -> Iterator[str]:
    """Where summary.json differs from what its records give. Intervals of another method are no contradiction."""
    made_from = (stored.get("by") or {}).get("made_from")
    if made_from and made_from != now["by"]["made_from"]:
        yield "summary.json: by.made_from is of other records"
    interval = None if stored.get("interval") != now["interval"] else "compare"
    for field, old, new in _unlike(stored, now):
        skipped = field.split(".")[0] in ("by", "interval")
        if not skipped and (interval or field.rpartition(".")[2] not in ("lo", "hi")):
            yield f"summary.json: {field} is {old}, the records give {new}"


ABSENT = object()


def leaves(then: object, now: object, path: str = "") -> Iterator[tuple[str, object, object]]:
    """(path, stored, now) of every leaf of two JSON values, ABSENT where one lacks it; but for what may differ: who made a
    value and when (`by`), the renderer's engine (looked at once for all), and the words of a judge's fault."""
    if isinstance(then, dict) and isinstance(now, dict):
        skipped = {"by"}
        skipped |= {"engine"} if path == "render" else set()
        skipped |= {"message"} if then.get("kind") == "judge" else set()
        for key in dict.fromkeys([*then, *now]):
            if key not in skipped:
                inner = f"{path}.{key}" if path else str(key)
                yield from leaves(then.get(key, ABSENT), now.get(key, ABSENT), inner)
    elif isinstance(then, list) and isinstance(now, list):
        for at, (old, new) in enumerate(itertools.zip_longest(then, now, fillvalue=ABSENT)):
            yield from leaves(old, new, f"{path}[{at}]")
    else:
        yield path, then, now


def _unlike(stored: object, now: object, path: str = "") -> Iterator[tuple[str, str, str]]:
    """`(field, stored, computed)`, values as text, of every leaf in which two JSON values differ."""
    for field, *values in leaves(stored, now, path):
        old, new = (None if value is ABSENT else value for value in values)
        if not _equal(old, new):
            yield field, _short(old), _short(new)


def _equal(a: object, b: object) -> bool:
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, int | float) and isinstance(b, int | float):
        return abs(a - b) <= CLOSE
    return a == b


def _short(value: object) -> str:
    text: str = identity.short(value)
    return text if len(text) <= 80 else text[:80] + ".."


def same_but_model(a: Run, b: Run) -> list[str]:
    """In what two runs differ beside the model, one line each; none: the difference of their scores is the model's.

    More than the protocol must agree: also what the registry sets for each model, which decks were asked for, and what
    served them, if both were served here.
    """
    lines = identity.differences(cast(Record, a["protocol"]), cast(Record, b["protocol"]))
    first, second = (
        {record["id"]: record.get("gen") or cast(Gen, {}) for record in run["records"]}
        for run in (a, b)
    )
    if odd := sorted(first.keys() ^ second.keys()):
        lines.append(f"records: {len(odd)} in one run only, {few(odd)}")
    found: set[str] = set()
    for ident in first.keys() & second.keys():
        one, other = first[ident], second[ident]
        if one.get("sampling") and other.get("sampling"):
            found.update(identity.lines(one["sampling"], other["sampling"], "gen.sampling"))
        ours, theirs = _server(one), _server(other)
        if ours and theirs:
            found.update(identity.lines(ours, theirs, "server"))
    return [*lines, *sorted(found)]


def _server(gen: Gen) -> dict[str, str | None] | None:
    """What served a reply, None where it was not served here."""
    model = cast(Asked, gen.get("model") or {})
    served = cast(Served, model.get("served") or {})
    return {"engine": served["engine"], "base": served["base"]} if served else None
