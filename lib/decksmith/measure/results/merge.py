"""A run in parts: which record belongs to which part, and the parts made one run again; and what a run
takes over of others.

Part I of N works in RUN/shard-I-of-N, with journals of its own: nobody appends to a file that another node appends to.
"""

import itertools
import os
import re
import shutil
from pathlib import Path
from typing import Any

from decksmith.core import cli, stream
from decksmith.core.protocol import Protocol
from decksmith.core.records import Record, prompt_of
from decksmith.measure.judging import identity
from decksmith.measure.results.text import few
from decksmith.models import turns

FOLDER = re.compile(r"shard-(\d+)-of-(\d+)\Z")


def merge(run: Path, prompts: list[Record], protocol: Protocol) -> list[Record]:
    """Join the parts of `run` in it (folders by hard links, journals) and return their records in the order of `prompts`: scored decks
    (scores.jsonl), or graded questions of a benchmark (rows.jsonl).

    Raises cli.TryAgain naming the parts and ids that are not done, cli.BadData for what does not belong together: an id twice, parts of
    different divisions, answers to other prompts, two settings in one run. Nothing is written before all of that is checked.
    """
    shards, parts = _shards(run)
    graded = any((folder / "rows.jsonl").is_file() for folder in shards.values())
    file = "rows.jsonl" if graded else "scores.jsonl"
    asks = ("task",) if graded else ("messages", "asks", "checklist")
    wanted = {prompt["id"]: prompt for prompt in prompts}
    home = {ident: stream.part(turns.root(row), parts) for ident, row in wanted.items()}
    holder: dict[str, int] = {}  # the part that each record came from
    samples: dict[str, dict[Any, Record]] = {}  # by prompt
    undone: dict[int, list[str]] = {}
    for number in range(1, parts + 1):
        scores = shards.get(number, run) / file
        if number not in shards or not scores.is_file():
            undone[number] = [ident for ident in wanted if home[ident] == number]
            continue
        for line, record in stream.records(scores):
            ident, of, where = record["id"], prompt_of(record), f"{scores}:{line}: {record['id']}"
            if ident in holder:
                raise cli.BadData(f"{where}: part {holder[ident]} has this record too")
            if of not in wanted:
                raise cli.BadData(f"{where}: no such prompt on stdin")
            if home[of] != number:
                raise cli.BadData(f"{where}: this record belongs to part {home[of]}")
            if odd := [key for key in asks if record.get(key) != wanted[of].get(key)]:
                raise cli.BadData(
                    f"{where}: its {odd[0]} differ from those of the prompt on stdin; do part {number} again"
                )
            holder[ident] = number
            k = ((record.get("gen") or {}).get("sample") or {}).get("k")
            samples.setdefault(of, {})[k] = record
    kinds = sorted({k for each in samples.values() for k in each})
    for ident, number in home.items():
        if number not in undone or ident in samples:
            lacking = [k for k in kinds or [None] if k not in samples.get(ident, {})]
            names = [ident if k is None else f"{ident}~{k}" for k in lacking]
            undone[number] = undone.get(number, []) + names
    if undone := {number: idents for number, idents in sorted(undone.items()) if idents}:
        said = "; ".join(
            f"part {number} of {parts} lacks {few(idents)}" for number, idents in undone.items()
        )
        raise cli.TryAgain(f"{run}: {said}. Do these again: --array={','.join(map(str, undone))}")
    ordered = [samples[ident][k] for ident in wanted for k in kinds]
    if not graded:
        identity.identity(protocol, ordered)
    _one_setting(ordered, "model", "params")
    _one_setting(ordered, "sampling", "seed")
    for record in ordered:
        folder = shards[holder[record["id"]]] / record["id"]
        if folder.is_dir():
            _adopt(folder, run / record["id"])
    for folder in shards.values():
        for journal in sorted((folder / "journal").glob("*.jsonl")):
            _take(journal, run)
    return ordered


def _one_setting(records: list[Record], what: str, less: str) -> None:
    """Raises cli.BadData unless all replies have the same `what`, leaving out the key `less`."""

    def setting(record: Record) -> Record | None:
        value = (record.get("gen") or {}).get(what) or {}
        return {key: part for key, part in value.items() if key != less} or None

    identity.agreed(records, f"gen.{what}", setting)


def _shards(run: Path) -> tuple[dict[int, Path], int]:
    found: dict[int, dict[int, Path]] = {}
    for path in sorted(Path(run).glob("shard-*-of-*")):
        if match := FOLDER.match(path.name):
            found.setdefault(int(match[2]), {})[int(match[1])] = path
    if not found:
        raise cli.TryAgain(f"{run} has no part (shard-1-of-N) yet")
    if len(found) > 1:
        raise cli.BadData(
            f"{run} has parts of {' and of '.join(map(str, sorted(found)))}; remove those of one division"
        )
    parts, shards = next(iter(found.items()))
    marks = {path: sorted(mark.name for mark in path.glob(".for-*")) for path in shards.values()}
    (first, its), *others = marks.items()
    for path, names in others:
        if names != its:
            raise cli.BadData(
                f"{first} was made for {' '.join(its)}, {path} for {' '.join(names)}; do one again"
            )
    return shards, parts


def _adopt(source: Path, target: Path) -> None:
    """The folder of a record under the run, whole or not at all; its files take no second place on the disk."""
    fresh = target.with_name(f".{target.name}.tmp")
    shutil.rmtree(fresh, ignore_errors=True)
    shutil.copytree(source, fresh, copy_function=_link)
    if target.exists():
        shutil.rmtree(target)
    fresh.rename(target)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without hard links
        shutil.copy2(source, target)


def reuse(run: Path) -> None:
    """Take over what other runs have of this run's prompts, by the same model, condition and protocol over another
    file of prompts: what their journals keep of the same inputs, and the files that it names. So a request is paid
    for once, whatever file it stands in. What is there stays, and what is cut off is done again."""
    home = run.parent if FOLDER.match(run.name) else run
    protocol, own, _ = home.name.partition("@")
    if not own:
        return
    wanted = {record["id"] for _, record in stream.records(run / "prompts.jsonl")}
    for other in sorted(home.parent.glob(f"{protocol}@*")):
        for place in (other, *sorted(other.glob("shard-*-of-*"))):
            for journal in sorted((place / "journal").glob("*.jsonl")) if place != run else ():
                _take(journal, run, wanted)


def _take(source: Path, run: Path, wanted: set[str] | None = None) -> None:
    """The lines of a journal that the run's has not, behind the files of their records: all, the newer in place of
    the older; or, on `wanted` ids alone (`id`, `id~0`, `id~r1`), those for which it has none."""
    found = {(each["id"], each.get("inputs")): each for _, each in stream.journal(source)}
    if wanted is not None:
        found = {key: each for key, each in found.items() if not wanted.isdisjoint(_ids(key[0]))}
    if not found:
        return
    name = next(key for each in found.values() for key in each if key not in ("id", "inputs"))
    ours = stream.Journal(run / "journal" / source.name, name)
    for (ident, inputs), each in found.items():
        value, own = each.get(name), inputs and ours.get(ident, inputs)
        if value is None or not inputs or own == value or (own is not None and wanted is not None):
            continue
        folder = source.parent.parent / ident
        for path in folder.rglob("*"):
            to = run / ident / path.relative_to(folder)
            if path.is_file() and path.suffix != ".tmp" and not to.exists():
                to.parent.mkdir(parents=True, exist_ok=True)
                _link(str(path), f"{to}.tmp")
                os.replace(f"{to}.tmp", to)
        ours.put(ident, inputs, value)
    ours.close()


def _ids(ident: str) -> set[str]:
    return set(itertools.accumulate(ident.split("~"), "{}~{}".format))
