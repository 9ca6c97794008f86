"""The replay of a capsule: every number that it holds is derived again, offline, and each that differs is named.

Only what was paid for is taken as it was stored: the model's replies, a vision judge's raw words. The rest is done
again by the same scripts, in a root of its own that holds what the capsule's experiment fixed (protocol, judge's
instructions, the models' names and parameters) beside this checkout's code. A capsule from a stranger is hostile.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from decksmith.core import cli, config_files, stream
from decksmith.core.protocol import Protocol
from decksmith.core.records import Record, expanded, prompt_of
from decksmith.measure.decks import conditions, templates
from decksmith.measure.decks.conditions import Condition
from decksmith.measure.judging import identity, vision
from decksmith.measure.judging.records import STAGES, DeckRecord, Judge
from decksmith.measure.results import capsule, verify
from decksmith.measure.results.text import printable
from decksmith.models import registry, turns
from decksmith.models.records import Usage

GRANTED = {"deadline": 300, "memory": 8000}  # what a stranger's protocol may let a deck use


class Replay:
    """One replay in the folder `into`; `run()` does it. Then `notes` say how the toolchains differ, `differences` name each value that
    is not what was stored, `counts` what was compared, and `labels` the names that people see for its runs."""

    def __init__(self, path: Path, into: Path) -> None:
        self.path, self.into = path, into.resolve()
        self.stored, self.root = self.into / "capsule", self.into / "root"
        self.notes: list[str] = []
        self.differences: list[str] = []
        self.counts: Counter[str] = Counter()
        self.labels: list[str] = []

    def run(self) -> Replay:
        capsule.unpack(self.path, self.stored)
        self.about = stream.json_file(self.stored / "capsule.json")
        if (form := self.about.get("format")) != capsule.FORMAT:
            raise cli.BadData(
                f"{self.path}: a capsule of format {str(form)[:20]}; this reads {capsule.FORMAT}"
            )
        runs = self._named()
        named = re.search(r"-([0-9a-f]{12})\.tar\Z", self.path.name)
        with open(self.path, "rb") as file:
            whole = hashlib.file_digest(file, "sha256").hexdigest()
        if named and not whole.startswith(named[1]):
            self.differences.append(
                f"the file's name says {named[1]}, its content is {whole[:12]}: it was changed after it was packed"
            )
        self._toolchain()
        try:
            self._root()
            for name in runs:
                self._redo(name)
            for name in runs:
                self._compare(name)
            self._comparison(runs)
        except RecursionError:
            raise cli.BadData(f"{self.path}: nested too deeply") from None
        return self

    def _named(self) -> list[str]:
        """The names of the runs in the capsule. Raises cli.BadData unless these are usable, each has its slides, and models
        are a table of tables."""
        runs, slides = self.about.get("runs"), self.about.get("slides")
        if not isinstance(runs, list) or not isinstance(slides, dict):
            runs, slides = [], {}
        models = self.about.get("models")
        if not isinstance(models, dict) or not all(
            isinstance(one, dict) for one in models.values()
        ):
            raise cli.BadData(f"{self.path}: capsule.json does not name its models")
        names = [one for one in runs if isinstance(one, str) and re.fullmatch(capsule.NAME, one)]
        if names != runs or not names or not all(isinstance(slides.get(n), dict) for n in names):
            raise cli.BadData(f"{self.path}: capsule.json does not name its runs and slides")
        return names

    def _toolchain(self) -> None:
        """Note in what the toolchains differ."""
        then, now = self.about.get("toolchain") or {}, capsule.toolchain()
        for name in sorted({*then, *now} - {"revision"}):
            if then.get(name) != now.get(name):
                at = f" (at the git revision {_short(then.get('revision'))})"
                was = _short(then.get(name)) + (at if name == "code" else "")
                self.notes.append(
                    f"{_shown(name)}: the capsule's is {was}, here it is {_short(now.get(name))}"
                )
        for file in sorted((self.stored / "assets").rglob("*.*")):
            name = str(file.relative_to(self.stored))
            ours = cli.ROOT / name
            if not ours.is_file() or ours.read_bytes() != file.read_bytes():
                self.notes.append(f"{name} of this checkout is another; the capsule's is used")
        known = registry.models()
        for name, entry in self.about["models"].items():
            if name in known and known[name].label != entry.get("label"):
                self.notes.append(
                    f"{_shown(name)}: the capsule calls it {_shown(entry.get('label'))}, this checkout {known[name].label}"
                )

    def _root(self) -> None:
        """A root with this checkout's code and toolchain and the capsule's protocol, judge's instructions and models."""
        assets = self.root / "assets"
        assets.mkdir(parents=True)
        (self.root / "data").mkdir()
        (self.root / "data/prompts.jsonl").symlink_to(cli.ROOT / "data/prompts.jsonl")
        own = {"assets", "results", "data", ".env", ".git", "models.toml", "protocols", "prompts"}
        for path in [*cli.ROOT.iterdir(), *(cli.ROOT / "assets").iterdir()]:
            if path.name not in own:
                (self.root / path.relative_to(cli.ROOT)).symlink_to(path.resolve())
        for folder in ("protocols", "prompts"):
            (assets / folder).mkdir()
            for path in (self.stored / "assets" / folder).glob("*"):
                shutil.copy(path, assets / folder)
        text = []
        for name, entry in self.about["models"].items():
            kept = {key: entry[key] for key in capsule.ENTRY if entry.get(key)}
            kept["base_url"] = "http://127.0.0.1:9/v1"  # nobody is asked
            text.append(f"[{config_files.toml(name)}]\n")
            text += [f"{key} = {config_files.toml(value)}\n" for key, value in kept.items()]
        (assets / "models.toml").write_text("".join(text), encoding="utf-8")

    def _redo(self, name: str) -> None:
        """Everything of one run again, from its prompts and its stored replies, into now/<name>."""
        stored, now = self.stored / "runs" / name, self.into / "now" / name
        now.mkdir(parents=True)
        protocol, path, under = self._protocol(name), stored / "condition.json", None
        if path.is_file():
            under = conditions.held(stream.json_file(path), path)
            shutil.copy(path, now)
            if under.template:
                templates.put(now, under.template)
            if under.revise:
                (now / "journal").mkdir()
                shutil.copy(stored / "revise.jsonl", now / capsule.REVISIONS)
        source = now / "replies.jsonl"
        source.write_bytes(b"".join(stream.dumps(row) + b"\n" for row in self._rows(name, under)))
        for target, command in self._stages(protocol, under, stored, now):
            with open(source, "rb") as fed, open(now / target, "wb") as got:
                status = subprocess.run(
                    command, stdin=fed, stdout=got, env=capsule.environment(self.root, self.into)
                ).returncode
            if status:
                stop = cli.Missing if status == 69 else cli.BadData
                raise stop(
                    f"{name}: {Path(command[0]).name} ended with status {status}; "
                    "what it said stands above"
                )
            source = now / target

    def _stages(
        self, protocol: Protocol, under: Condition | None, stored: Path, now: Path
    ) -> Iterator[tuple[str, list[Any]]]:
        """The commands of the pipeline after the replies, each with the file that it writes. Verdicts that were paid for come
        from the capsule, by a stage of ours."""
        scripts, fixed, run = self.root / "bin", ["--protocol", protocol.name], ["--run", now]
        heard = [sys.executable, "-m", __name__, stored, now, protocol.name]
        jobs = ["--jobs", str(max(1, (os.cpu_count() or 2) // 2))]
        asked = ["--condition", now / "condition.json"]
        choose, score = [scripts / "deck-choose", *asked, *run], [scripts / "deck-score", *fixed]
        chosen = under is not None and bool(under.samples)
        yield "1.jsonl", [scripts / "deck-parse", *run]
        yield "2.jsonl", [scripts / "deck-illustrate", *fixed, *run]
        yield "3.jsonl", [scripts / "deck-render", *fixed, *run, *jobs]
        if chosen:
            yield "chosen.jsonl", choose
        if under and under.revise:
            revise = [scripts / "deck-revise", f"--model={self._writer(stored)}"]
            yield "revised.jsonl", [*revise, *asked, *fixed, *run]
        offline = protocol.judge["kind"] == "offline"
        judge = [scripts / "deck-judge", *fixed, *run]
        yield "4.jsonl", judge if offline else heard
        yield "5.jsonl", [scripts / "deck-scan", *run]
        yield ("6.jsonl" if chosen else "scores.jsonl"), score
        if chosen:
            yield "scores.jsonl", choose
        yield "summary.json", [scripts / "run-summarize", *fixed, *run]

    def _protocol(self, name: str) -> Protocol:
        fixed = stream.json_file(self.stored / "runs" / name / "protocol.json").get("protocol")
        path = self.stored / f"assets/protocols/{fixed}.toml"
        if (
            not isinstance(fixed, str)
            or not re.fullmatch(capsule.NAME, fixed)
            or not path.is_file()
        ):
            raise cli.BadData(f"{name}: the capsule has no protocol {_shown(fixed)}")
        protocol = Protocol.load(str(path))
        over = any(protocol.render[key] > most for key, most in GRANTED.items())
        if protocol.name != fixed or over:
            raise cli.BadData(
                f"{name}: its protocol has another name, or grants decks more than {GRANTED}"
            )
        return protocol

    def _rows(self, name: str, under: Condition | None) -> Iterator[Record]:
        """The records as chat-generate left them: prompt and stored reply, each checked against the other places where it stands."""
        stored = self.stored / "runs" / name
        prompts = {row["id"]: row for _, row in stream.records(stored / "prompts.jsonl")}
        replies = {entry["id"]: entry for _, entry in stream.records(stored / "gen.jsonl")}
        values = {ident: entry["gen"] for ident, entry in replies.items() if "gen" in entry}
        for _, record in stream.records(stored / "scores.jsonl"):
            row = {key: value for key, value in record.items() if key not in STAGES}
            gen: Record = record["gen"] if isinstance(record.get("gen"), dict) else {}
            asked = prompts.get(prompt_of(record), {})
            self._same(name, record["id"], "", {**asked, "id": record["id"]}, row, "prompts")
            paid = {"claims": record["claims"]} if "claims" in record else {}  # as they stand
            for each in expanded(row, under.n if under else 1):
                entry = replies.get(each["id"])
                if entry and isinstance(entry.get("gen"), dict):
                    sent = turns.with_history(row, values)
                    if under:
                        sent = under.messages({**row, "messages": sent})
                    gen = entry["gen"]
                    self.counts["replies"] += 1
                    asked_for = None if gen.get("error") else _asked(gen, sent)
                    if asked_for and asked_for != entry.get("inputs"):
                        self.differences.append(
                            f"{name} {entry['id']} gen: the stored reply was given to another request than the stored one"
                        )
                elif not gen.get("error"):
                    self.counts["replies that no journal has"] += 1
                given = {"condition": under.asked()} if under else {}
                yield {**each, "gen": {**gen, **given}, **paid}

    def _writer(self, stored: Path) -> str:
        """The registry's name of who wrote a run. Raises cli.BadData where the capsule has no such entry."""
        model = stream.json_file(stored / "summary.json").get("model")
        name = model.get("name") if isinstance(model, dict) else None
        if not isinstance(name, str) or name not in self.about["models"]:
            raise cli.BadData(f"{self.path}: it has no entry of the model that revised its decks")
        return name

    def _compare(self, name: str) -> None:
        """Hold everything of a run that was derived again against what was stored."""
        places = self.stored / "runs" / name, self.into / "now" / name
        then, again = (
            {record["id"]: record for _, record in stream.records(place / "scores.jsonl")}
            for place in places
        )
        for ident in then:
            self._slides(name, then[ident], again[ident])
        for ident in then:
            self.counts["records"] += 1
            self._same(name, ident, "", then[ident], again[ident], "numbers of records")
        old, new = (stream.json_file(place / "summary.json") for place in places)
        self._same(name, "", "summary", old, new, "numbers of summaries")
        self._fixed(name, *(stream.json_file(place / "protocol.json") for place in places))

    def _comparison(self, runs: list[str]) -> None:
        then = stream.json_file(self.stored / "compare.json")
        now = capsule.compared({name: self.into / "now" / name for name in runs}, self.root)
        if isinstance(now["said"], dict):
            self.labels = [_shown(run["label"]) for run in now["said"]["runs"]]
        # The protocol's hash takes the renderer in, which was looked at above; everything else of it by _fixed.
        places = (self.stored / "runs", self.into / "now")
        old, new = (
            stream.json_file(each / runs[0] / "protocol.json").get("hash") for each in places
        )
        if isinstance(old, str) and re.fullmatch("[0-9a-f]{64}", old):
            now = json.loads(json.dumps(now).replace(str(new), old))
        self._same("comparison", "", "", then, now, "numbers of the comparison")

    def _slides(self, name: str, then: Record, again: Record) -> None:
        known = self.about["slides"][name]
        old, new = ((side.get("render") or {}).get("slides") or [] for side in (then, again))
        for path in dict.fromkeys(map(str, [*old, *new])):
            file = self.into / "now" / name / path
            now = capsule.sha256(file.read_bytes()) if path in new else None
            self.counts["slides"] += 1
            if (was := known.get(path)) != now:
                where = f"{name} {then['id']} {_shown(path)} sha256"
                self.differences.append(f"{where}: stored {_short(was)}, now {_short(now)}")

    def _fixed(self, name: str, then: Record, now: Record) -> None:
        """Hold what was held fixed against what is; another renderer is a note, and no difference."""
        self.counts["protocol files"] += 1
        same = {key: value for key, value in then.items() if key != "hash"}
        if stream.fingerprint(same) != then.get("hash"):
            self.differences.append(
                f"{name} protocol.json hash: it is not the hash of what stands there"
            )
        lines = identity.differences({**then, "renderer": None}, {**now, "renderer": None})
        self.differences += [f"{name} protocol.json {_shown(line)}" for line in lines]
        old, new = then.get("renderer"), now.get("renderer")
        if isinstance(old, dict) and isinstance(new, dict):
            self.notes += [_shown(line) for line in identity.lines(old, new, f"{name}: renderer")]

    def _same(self, name: str, ident: str, key: str, then: Any, now: Any, what: str) -> None:
        """Note each place where two values differ; `by` (when, how long, by whom) is left out."""
        for path, old, new in verify.leaves(then, now, key):
            self.counts[what] += isinstance(old, int | float) or isinstance(new, int | float)
            if old != new or isinstance(old, bool) != isinstance(new, bool):
                where = " ".join(filter(None, [name, ident, _shown(path)]))
                old_text, new_text = _values(old, new)
                self.differences.append(f"{where}: stored {old_text}, now {new_text}")


def _asked(gen: Record, messages: list[Record]) -> str | None:
    """The fingerprint of what a reply was given to, as chat-generate has it: a request with these messages, or a file in a
    folder of decks. None for an agent's, which rests on files that a capsule does not have."""
    model = gen.get("model") or {}
    if "command" in model:
        return None
    if "files" in model:
        deck = str(gen.get("text")).encode("utf-8", "replace")
        return stream.fingerprint(
            ["gen", {"files": model["files"], "sha256": capsule.sha256(deck)}]
        )
    request = {"model": model.get("slug"), "messages": messages, **(gen.get("sampling") or {})}
    return stream.fingerprint(["gen", request])


def _values(old: Any, new: Any) -> list[str]:
    """Two values as they are shown; of long texts, from where they part."""
    if isinstance(old, str) and isinstance(new, str) and max(len(old), len(new)) > 80:
        at = max(0, len(os.path.commonprefix([old, new])) - 20)
        old, new = (f"{'..' if at else ''}{text[at : at + 60]}" for text in (old, new))
    return [
        "nothing" if value is verify.ABSENT else _shown(json.dumps(value, ensure_ascii=False))
        for value in (old, new)
    ]


def _shown(text: object) -> str:
    return printable(text, 120)


def _short(text: object) -> str:
    return "not there" if text is None else _shown(text)[:12]


# The stage that reads what a vision judge said from the capsule, in place of asking again


class StoredWords(vision.Vision):
    """A vision judge with its stored replies for an endpoint. `stored`, `now`: the run's folders."""

    def __init__(self, protocol: Protocol, stored: Path, now: Path) -> None:
        self.stored, self.run, self.protocol = stored, now, protocol
        self.judging, self.schema = identity.judging(protocol), protocol.schema
        self.rubric = stream.fingerprint(self.judging)

    def hear(self, record: DeckRecord, replies: list[str], usage: Usage) -> Judge:
        """The verdict of the last of these replies (paths in the run's folder)."""
        common: Judge = {"replies": replies, "usage": usage, "rubric": self.rubric}
        try:
            if not replies:
                raise ValueError("no reply was stored")
            _, seen = self._pictures(record)
            text = (self.stored / replies[-1]).read_bytes().decode("utf-8", "replace")
            said = vision.usable(text, self.schema, vision.items(record), seen["slides"])
        except (OSError, ValueError) as error:
            return {**_unparseable(str(error)), **common}
        return {**self._value(record, said), "seen": seen, **common}


def _unparseable(message: str) -> Judge:
    return {"error": {"kind": "judge", "class": "unparseable", "message": message}}


def judged_again(
    record: DeckRecord, value: Record, stored: Path, now: Path, protocol: Protocol
) -> Judge:
    """What the judge of `value`, the verdict of the capsule, said, read again. The paths are made anew, not taken from it."""
    kept = value.get("replies") or []
    if not kept:
        return cast(Judge, value) or _unparseable("no reply was stored")
    paths = [f"{record['id']}/judge/{n}.txt" for n in range(1, len(kept) + 1)]
    judge = StoredWords(protocol, stored, now)
    return judge.hear(record, paths, cast(Usage, value.get("usage")))


def _judge(stored: Path, now: Path, protocol: Protocol) -> int:
    """Run the stage over stdin; returns the exit status."""
    rows = stream.records(stored / "scores.jsonl")
    then = {record["id"]: record.get("judge") or {} for _, record in rows}

    def again(record: DeckRecord) -> Judge:
        return judged_again(record, then[record["id"]], stored, now, protocol)

    return stream.stage("judge", again, takes=DeckRecord, needs="render")


if __name__ == "__main__":
    stored, now, protocol = sys.argv[1:]
    sys.exit(_judge(Path(stored), Path(now), Protocol.load(protocol)))
