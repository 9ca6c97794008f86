"""One prompt of one run on one screen: what was asked, what came of it, whose doing that is, and what a rerun would do.

Everything that a model wrote is shown without control characters, cut, and never taken for a path.
"""

import difflib
import json
import re
import shlex
import textwrap
import unicodedata
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, cast

from decksmith.core import cli, stream
from decksmith.core.protocol import Protocol
from decksmith.core.records import Record, sample_of
from decksmith.decks import clean as cleaning
from decksmith.decks import conditions, pictures
from decksmith.decks.conditions import Condition
from decksmith.decks.records import Images, Render
from decksmith.judging import identity
from decksmith.judging.records import DeckRecord
from decksmith.models import registry, turns
from decksmith.models.registry import Model
from decksmith.render import pool
from decksmith.results import layout, summary

Journals = dict[str, list[tuple[str, Any, Record]]]  # by stage: (id, inputs, value), oldest first

STAGES = ("gen", "deck", "images", "render", "judge")  # those that keep a journal
WIDTH, LINES = 118, 60
WHOSE = {
    "model": "the model's: it counts against it, as the floor in every dimension",
    "renderer": "our renderer's: excluded and counted, no score; tried again by a rerun",
    "judge": "the judge's: excluded and counted, no score; tried again by a rerun",
    "infra": "the network's or the machine's: excluded, no score; tried again by a rerun",
}


def clean(text: object, width: int | None = None) -> str:
    """Text on one line that a terminal cannot mistake for orders: no escape sequences, control or direction characters."""
    text = re.sub(r"\x1b(\[[0-?]*[ -/]*[@-~]?|\][^\x07\x1b]*(\x07|\x1b\\)?|.?)", "", str(text))
    text = "".join(
        " " if c.isspace() else "" if unicodedata.category(c)[0] == "C" else c for c in text
    )
    text = " ".join(text.split())
    return text if width is None or len(text) <= width else text[: width - 2].rstrip() + ".."


def screen(run: Path, ident: str, protocol: str | None = None) -> list[str]:
    """The lines of the screen, at most LINES. protocol: a name, when the run itself does not say it.

    Raises cli.Missing when there is no such run, cli.BadData when it has no record of that id.
    """
    run = Path(run)
    journals = read_journals(run)
    record, source = _record(run, ident, journals)
    chosen = Rerun(run, record, protocol)
    blocks = [
        _head(record, source, run),
        _request(record),
        _model(record),
        _deck(run, record),
        _render(run, record),
        _judge(run, record),
        _score(record),
        _rerun(chosen, record, journals),
        chosen.commands(record),
    ]
    lines = [
        line[: len(line) - len(line.lstrip(" "))] + clean(line)
        for block in blocks
        for line in block
    ]
    return (
        lines
        if len(lines) <= LINES
        else [*lines[: LINES - 1], f"({len(lines) - LINES + 1} more lines)"]
    )


# Where the record comes from


def read_journals(run: Path) -> Journals:
    """What the run's journals hold; damaged lines are passed over."""
    found: Journals = {stage: [] for stage in STAGES}
    for stage in STAGES:
        try:
            lines = (run / "journal" / f"{stage}.jsonl").read_bytes().splitlines()
        except OSError:
            continue
        for line in lines:
            try:
                entry = stream.loads(line)
                if isinstance(entry.get(stage), dict):
                    found[stage].append((entry["id"], entry.get("inputs"), entry[stage]))
            except ValueError:
                continue
    return found


def _rows(path: Path) -> dict[str, Record]:
    return {record["id"]: record for _, record in stream.records(path)} if path.is_file() else {}


def _record(run: Path, ident: str, journals: Journals) -> tuple[Record, str]:
    """The record, and in words where it was found: scores.jsonl, or else the prompt with what the journals hold."""
    if not any((run / name).exists() for name in ("scores.jsonl", "prompts.jsonl", "journal")):
        raise layout.missing(run)
    scored = _rows(run / "scores.jsonl")
    if ident in scored:
        return scored[ident], "scores.jsonl"
    prompts = _rows(run / "prompts.jsonl")
    kept = {stage: {i: value for i, _, value in lines} for stage, lines in journals.items()}
    row = prompts.get(ident) or prompts.get(ident.rpartition("~")[0])
    known = sorted({*scored, *prompts, *(i for values in kept.values() for i in values)})
    samples = [i for i in known if i.rpartition("~")[0] == ident]
    if not any(ident in values for values in kept.values()) and (row is None or samples):
        near = samples[:4] or difflib.get_close_matches(ident, known, 4, 0.5) or known[:4]
        raise cli.BadData(
            f"{run}: no record {clean(ident, 60)!r}; "
            + (
                f"near it: {', '.join(near)}"
                if near
                else "it has no scores.jsonl, prompts.jsonl or journal"
            )
        )
    record = {
        **(row or {}),
        "id": ident,
        **{stage: kept[stage][ident] for stage in STAGES if ident in kept[stage]},
    }
    return record, "the journals; scores.jsonl does not have it" + (
        "" if scored else " (this run was not finished)"
    )


def asking(
    entry: Model, protocol: Protocol, condition: Condition | None = None
) -> Callable[..., Record]:
    """What this model would be asked for a record, as chat-generate asks it; for one that is a later turn, with the values of
    `gen` by id. Nothing is asked here."""
    from decksmith.models import client

    entry.key_env = None
    sampling = protocol.sampling | entry.params
    seed, entry.params = sampling.pop("seed", None), {}
    asker = client.Client(entry)

    def request(record: Record, values: Record | None = None) -> Record:
        own = None if seed is None else seed + sample_of(record)
        record = {**record, "messages": turns.woven(record, values or {})}
        messages = condition.messages(record) if condition else record["messages"]
        return asker.request(messages, sampling, seed=own)

    return request


class Rerun:
    """What a rerun would be made with: the protocol and the model as they are now."""

    def __init__(self, run: Path, record: Record, protocol: str | None) -> None:
        self.run = run
        # The Makefile says by a file's name how many prompts the run was made for.
        limits = [mark.name.removeprefix(".for-") for mark in sorted(run.glob(".for-*"))]
        self.limit = limits[-1] if limits else None
        self.name = protocol or _protocol_of(run) or "offline"
        model = ((record.get("gen") or {}).get("model") or {}).get("name")
        named, self.condition = conditions.split(layout.run_name(run))
        self.model = str(model or named)

    def protocol(self) -> Protocol:
        return Protocol.load(self.name)

    def inputs(self, stage: str, record: Record) -> str:
        """What the stage's journal would look this record up by. Raises as the stage would: cli.Stop, KeyError and others."""
        given = getattr(self, f"{stage}_inputs")(record)
        return stream.fingerprint([stage, given])

    # The same data as the stage's script gives to stream.stage.

    def gen_inputs(self, record: Record) -> Record:
        kept = read_journals(self.run)["gen"] if "turn" in record else []
        values = {ident: value for ident, _, value in kept}
        condition = conditions.load(self.condition)
        return asking(registry.model(self.model), self.protocol(), condition)(record, values)

    def deck_inputs(self, record: Record) -> list[Any]:
        return cleaning.inputs(record)

    def images_inputs(self, record: Record) -> list[Any]:
        return pictures.inputs(record, self.protocol().images["provider"])

    def render_inputs(self, record: Record) -> Any:
        return pool.inputs(self.run, record, self.protocol())

    def judge_inputs(self, record: Record) -> list[Any]:
        from decksmith.judging import judges

        return judges.inputs(self.protocol(), self.run, cast(DeckRecord, record))

    def whole(self, stage: str, value: Record) -> bool:
        """Whether the files of a kept value are still there, as the stage's script asks."""
        if stage == "deck":
            return bool(cleaning.current(self.run, value))
        if stage == "images":
            return pictures.usable(self.run, cast(Images, value))
        if stage == "render":
            return pool.intact(self.run, cast(Render, value))
        if stage == "judge":
            return all((self.run / path).is_file() for path in value.get("replies") or [])
        return True

    def commands(self, record: Record) -> list[str]:
        """The commands that do the record again: make's where the run is one of its own, else the pipeline."""
        run, name = shlex.quote(str(self.run)), shlex.quote(self.name)
        lines = ["", "To do it again"]
        if self.limit and self.run.resolve().is_relative_to(layout.RUNS.resolve()):
            limit = "" if self.limit == "all" else self.limit
            make = layout.make_command(self.run)
            lines.append(f"  rm -f {run}/scores.jsonl; {make} LIMIT={limit}")
        else:
            sample = (record.get("gen") or {}).get("sample") or {}
            asked = sample.get("of") or record["id"]
            samples = f" --samples {sample['k'] + 1}" if sample else ""
            model, there = shlex.quote(self.model), '--run "$R"'
            lines += [
                f'  R={run}; bin/record-sample --where \'.id == "{asked}"\' < "$R"/prompts.jsonl |',
                f"    bin/chat-generate --model {model} --protocol {name}{samples} {there} | bin/deck-parse {there} |",
                f"    bin/deck-illustrate --protocol {name} {there} | bin/deck-render --protocol {name} {there} |",
                f"    bin/deck-judge --protocol {name} {there} | bin/deck-scan {there} | bin/deck-score --protocol {name}",
            ]
        return [
            *lines,
            "  and before it, for a stage that would be kept: "
            f'sed -i \'/"id":"{record["id"]}"/d\' {run}/journal/<stage>.jsonl',
        ]


def _protocol_of(run: Path) -> str | None:
    """The name of the protocol that a run's protocol.json gives, None where it gives none."""
    try:
        return str(json.loads((run / "protocol.json").read_text())["protocol"] or "") or None
    except (OSError, ValueError, KeyError, TypeError):
        return None


# The blocks of the screen


def _block(title: str, lines: Iterable[object]) -> list[str]:
    return ["", title, *("  " + clean(line, WIDTH - 2) for line in lines)]


def _head(record: Record, source: str, run: Path) -> list[str]:
    lines = [f"{record['id']} in {clean(run, 80)} (from {source})"]
    if isinstance(record.get("score"), dict):
        error, state = summary.fault_of(record), summary.status_of(record)
    else:
        fault = stream.fault(record)
        error = dict(fault) if fault else None
        done = [
            stage
            for stage in STAGES
            if isinstance(record.get(stage), dict) and not record[stage].get("error")
        ]
        state = "failed" if error else f"not finished: {', '.join(done) or 'nothing'} done so far"
    if not error:
        return [*lines, f"Class: {state}. Fault: none"]
    stage, kind = error.get("stage", "?"), error.get("kind")
    where = "".join(f", {name} {error[name]}" for name in ("slide", "line") if error.get(name))
    return [
        *lines,
        clean(
            f"Class: {state}, {error.get('class')} ({stage}{where}): {error.get('message')}",
            2 * WIDTH,
        ),
        f"Fault: {WHOSE.get(str(kind)) or clean(kind, 40)}",
    ]


def _request(record: Record) -> list[str]:
    said = "\n".join(
        _text(m.get("content")) for m in record.get("messages") or [] if m.get("role") == "user"
    )
    asks = record.get("asks") or {}
    asked = ", ".join(
        f"{key} {' '.join(map(str, value)) if isinstance(value, list) else value}"
        for key, value in asks.items()
        if key != "outline" and value
    )
    return _block("Request", [*_wrapped(said, 3), *([f"asks: {asked}"] if asked else [])])


def _wrapped(text: str, lines: int) -> list[str]:
    return textwrap.wrap(clean(text), WIDTH - 2, max_lines=lines, placeholder=" ..")


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return str(content or "")


def _model(record: Record) -> list[str]:
    gen = record.get("gen")
    if not isinstance(gen, dict):
        return _block("Model", ["not asked yet"])
    if gen.get("error"):
        return _block("Model", [f"gave no reply: {gen['error'].get('message')}"])
    model, usage = gen.get("model") or {}, gen.get("usage") or {}
    sampling = " ".join(
        f"{k} {v}" for k, v in (gen.get("sampling") or {}).items() if not isinstance(v, dict | list)
    )
    finish = str(gen.get("finish_reason"))
    if finish == "length":
        early = gen.get("cut_by") == "server"
        finish += (
            f" (cut off {'by the server before max_tokens' if early else 'at the token limit'})"
        )
    return _block(
        "Model",
        [
            f"{model.get('name')} ({model.get('slug')}), {sampling or 'its own sampling'}",
            f"finished: {finish}; {usage.get('completion_tokens')} tokens; its reply begins: "
            f"{clean(gen.get('text') or gen.get('reasoning') or '(nothing)', 60)}",
        ],
    )


def _deck(run: Path, record: Record) -> list[str]:
    deck = record.get("deck")
    if not isinstance(deck, dict):
        return []
    if deck.get("error"):
        return _block(
            "Deck",
            [
                f"none: {deck['error'].get('message')}",
                f"the reply as it came: {run}/{record['id']}/gen.md",
            ],
        )
    items = (record.get("images") or {}).get("items") or []
    failed = sum(bool(item.get("fallback")) for item in items)
    pictures = (
        f", {len(items)} picture(s)" + (f", {failed} of them a stand-in" if failed else "")
        if items
        else ""
    )
    lines = [
        f"{run}/{deck.get('path')}, {deck.get('slides')} slides, theme {deck.get('theme')}{pictures}"
    ]
    source = _lines(run, deck.get("path"))
    seen: dict[int, list[str]] = {}
    for line, why in _accused(record):
        while line < len(source) and source[line - 1].strip() in ("", "---"):
            line += 1  # where a slide begins says nothing
        seen.setdefault(line, []).append(why)
    for line, whys in list(seen.items())[:8]:
        quoted = clean(source[line - 1], 60) if 0 < line <= len(source) else "(no such line)"
        lines.append(f"line {line}: {quoted} <- {'; '.join(dict.fromkeys(whys))}")
    return _block("Deck", lines)


def _lines(run: Path, path: object) -> list[str]:
    """The lines of a file of the run, [] where there is none or where it lies outside."""
    try:
        file = (run / str(path)).resolve()
        return (
            file.read_text("utf-8", "replace").split("\n")
            if file.is_relative_to(run.resolve())
            else []
        )
    except OSError:
        return []


def _accused(record: Record) -> list[tuple[int, str]]:
    """(line of deck.md, why) of whatever failed or cost, the gravest first."""
    render, judge = record.get("render") or {}, record.get("judge") or {}
    first = {page.get("slide"): page.get("line") for page in render.get("xray") or []}
    found = [
        (e.get("line") or first.get(e.get("slide")), e.get("class"))
        for e in render.get("errors") or []
    ]
    found += [(first.get(o.get("slide")), o.get("seen")) for o in judge.get("observations") or []]
    found += [(first.get(m.get("slide")), f"{name} {m.get('value')}") for name, m in _costly(judge)]
    return [(line, clean(why, 50)) for line, why in found if isinstance(line, int) and line > 0]


def _costly(judge: Record) -> list[tuple[str, Record]]:
    """The offline measures with their values, the worst quality first; those that lost nothing are left out."""
    found = [
        (name, m)
        for name, m in (judge.get("measures") or {}).items()
        if isinstance(m.get("quality"), int | float)
    ]
    return sorted(
        ((n, m) for n, m in found if m["quality"] < 0.995),
        key=lambda pair: (pair[1]["quality"], pair[0]),
    )[:6]


def _render(run: Path, record: Record) -> list[str]:
    render = record.get("render")
    if not isinstance(render, dict):
        return []
    slides, errors = render.get("slides") or [], render.get("errors") or []
    lines = [
        f"{render.get('status') or 'failed'}: {len(slides)} pictures of {render.get('expected')} slides"
        + (
            f": {run}/{slides[0]}" + (f" to {Path(slides[-1]).name}" if len(slides) > 1 else "")
            if slides
            else ""
        )
    ]
    for error in errors[:6] or [e for e in [render.get("error")] if e]:
        where = ", ".join(f"{name} {error[name]}" for name in ("slide", "line") if error.get(name))
        lines.append(
            f"{error.get('kind')} {error.get('class')}{f' ({where})' if where else ''}: {error.get('message')}"
        )
    return _block("Render", [*lines, *([f"and {len(errors) - 6} more"] if len(errors) > 6 else [])])


def _judge(run: Path, record: Record) -> list[str]:
    judge = record.get("judge")
    if not isinstance(judge, dict):
        return []
    lines = (
        [f"failed: {judge['error'].get('message')}"]
        if judge.get("error")
        else [
            f"{judge.get('judge')}: "
            + ", ".join(f"{k} {v}" for k, v in (judge.get("scores") or {}).items())
        ]
    )
    lines += [
        f"capped: {cap.get('dimension')} at {cap.get('max')}: {cap.get('why')}"
        for cap in judge.get("caps") or []
    ]
    lines += [f"{name}: {why}" for name, why in (judge.get("why") or {}).items()]
    lines += [
        f"cost: {name} {m.get('value')}, quality {m['quality']:.2f}{', worst on slide ' + str(m['slide']) if m.get('slide') else ''}"
        for name, m in _costly(judge)
    ]
    replies = judge.get("replies") or []
    if replies:
        lines += [
            f"its words, in {run}/{replies[-1]}"
            + (f" (the last of {len(replies)})" if len(replies) > 1 else "")
            + ":",
            *_wrapped(" ".join(_lines(run, replies[-1])), 3),
        ]
    missed = [a.get("id") for a in judge.get("checklist") or [] if not a.get("yes")]
    asked = {item.get("id"): item.get("ask") for item in record.get("checklist") or []}
    lines += [f"not shown: {ident} {asked.get(ident, '')}" for ident in missed[:4]]
    return _block(
        "Judge",
        [*lines, *([f"and {len(missed) - 4} more items not shown"] if len(missed) > 4 else [])],
    )


def _score(record: Record) -> list[str]:
    score = record.get("score")
    if not isinstance(score, dict):
        return []
    values = {key: score.get(key) for key in ("overall", "judge_only", "checklist")} | (
        score.get("dimensions") or {}
    )
    floored = " (floored: the model failed)" if score.get("floored") else ""
    return _block(
        "Scores", [", ".join(f"{k} {'-' if v is None else v}" for k, v in values.items()) + floored]
    )


# What a rerun would do


def _rerun(chosen: Rerun, record: Record, journals: Journals) -> list[str]:
    """A line for each stage: kept, or done again and why. After the first that is done again, the others follow its outcome."""
    lines, record, again = [], dict(record), None
    for stage in STAGES:
        known = [entry[1:] for entry in journals[stage] if entry[0] == record["id"]]
        if again:
            lines.append(
                f"{stage}: again, if {again} gives something else; else kept"
                if known
                else f"{stage}: to be done after {again}"
            )
            continue
        verdict, value = _verdict(chosen, stage, record, known)
        lines.append(f"{stage}: {verdict}")
        if value is None:
            again = stage
            continue
        record[stage] = value
        if value.get("error"):  # a failure of the model ends the record's way, every time
            break
    return _block("On a rerun", [*lines, "features, score: always computed anew"])


def _verdict(
    chosen: Rerun, stage: str, record: Record, lines: list[tuple[Any, Record]]
) -> tuple[str, Record | None]:
    """(in words, the value that is kept or None) for one stage, by its journal and its present inputs."""
    error = (record.get(stage) or {}).get("error") or {}
    trouble = (
        f"again: {error['kind']} fault ({error.get('class')}) in the last run; such are not kept"
        if error.get("kind") in ("renderer", "judge", "infra")
        and error.get("retriable") is not False
        else None
    )
    if stage == "gen" and not record.get("messages"):
        return "cannot be told: the run's prompts.jsonl does not have this id", None
    if not lines:
        return trouble or (
            "again: no journal has it" if record.get(stage) else "to be done: it was never finished"
        ), None
    try:
        inputs = chosen.inputs(stage, record)
    except (cli.Stop, KeyError, TypeError, AttributeError) as stop:
        return f"cannot be told: {clean(stop, 90)}", None
    value = next((value for known, value in reversed(lines) if known == inputs), None)
    if value is None:
        return trouble or f"again: {_changed(chosen, stage, record)}", None
    if not chosen.whole(stage, value):
        return (
            "again: files that it names are gone or were changed, or a stand-in picture waits for its provider",
            None,
        )
    if value.get("error"):
        whose = (
            "the model's own, and a result"
            if value["error"].get("kind") == "model"
            else "refused for good by the endpoint"
        )
        return f"kept: {value['error'].get('class')} is {whose}", value
    return "kept: its inputs are the same", value


def _changed(chosen: Rerun, stage: str, record: Record) -> str:
    """In words, what is different from when the stage was last done."""
    old = record.get(stage) or {}
    if stage == "gen":
        now = chosen.gen_inputs(record)
        then = {"model": (old.get("model") or {}).get("slug"), **(old.get("sampling") or {})}
        names = sorted(k for k in {*now, *then} - {"messages"} if now.get(k) != then.get(k))
        return (
            "the request changed: " + ", ".join(f"{k} {then.get(k)} -> {now.get(k)}" for k in names)
            if names
            else ("the request's messages changed")
        )
    if stage == "render":
        now, then = dict(pool.engine(chosen.protocol().render["scale"])), old.get("engine") or {}
        if names := [k for k in now if now[k] != then.get(k)]:
            return "the renderer changed: " + ", ".join(
                f"{k} {str(then.get(k))[:12]} -> {str(now[k])[:12]}" for k in names
            )
        return "the deck, its pictures or the protocol's render settings changed"
    if stage == "judge":
        if old.get("rubric") and old["rubric"] != stream.fingerprint(
            identity.judging(chosen.protocol())
        ):
            return f"the judge or its rubric changed (protocol {chosen.name})"
        return "the slides or the request changed"
    return {
        "deck": "the reply or our parser changed",
        "images": "the deck, the provider or our drawing changed",
    }[stage]
