"""What runs remember of being compared: how often, on how many prompts, and what was written down before (registered.json).

A test that is right in 95 of 100 comparisons is not right in 95 of 100 series of them. So each run folder has a journal of the looks
at it (journal/looks.jsonl), by models, protocol and what was compared; the same numbers again are the same look.
"""

import contextlib
import itertools
import json
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TypedDict, cast

from decksmith.core import cli, stream
from decksmith.core.protocol import Protocol
from decksmith.core.records import Record
from decksmith.measure.decks import conditions
from decksmith.measure.judging import identity as identities
from decksmith.measure.results import layout, merge, runs, stats, unnoticed
from decksmith.measure.results.comparison import Look, Looks, Run
from decksmith.measure.results.pairs import better, headline_values
from decksmith.measure.results.runs import is_external
from decksmith.models import registry
from decksmith.models.records import Gen

ORDINALS = "No First Second Third Fourth Fifth Sixth Seventh Eighth Ninth Tenth".split()
REGISTERED = "registered.json"
FIRST_LOOK = "Nobody has compared these models on these prompts before"
ONE_LOOK = "A 95 % interval and its test are right for one look"


class KeptLook(TypedDict):
    """A look as a folder remembers it."""

    models: list[str]  # fingerprints of both
    labels: list[str]
    protocol: str  # fingerprint, less the prompts
    prompts: int
    at: str
    comparison: str  # fingerprint of all looks that were taken together


Kept = dict[tuple[str, str], KeptLook]  # the looks that a folder remembers, by id and inputs


@dataclass
class NewLook:
    """A look that is taken now, at two of the runs."""

    id: str
    inputs: str  # what was seen
    value: KeptLook
    runs: tuple[int, int]  # their places


class RegisteredModel(TypedDict):
    name: str
    slug: str
    params: Record


class Registration(TypedDict):
    """registered.json."""

    models: list[RegisteredModel]
    n: int
    measure: str
    protocol: Record
    at: str


def false_chance(looks: int) -> float:
    """How often, at most, at least one of `looks` tests at 5 % of two equal models separates them, whatever the looks share.

    Exact for looks that share nothing; for others an upper bound (Sidak 1967, Journal of the American Statistical Association
    62:626, for statistics that are jointly normal). `make bench-stats` simulates both.
    """
    return 1 - stats.LEVEL**looks


def remember(loaded: list[Run]) -> Looks:
    """Note that these runs were compared. A look is kept in the folders of both runs; where neither can be written this is
    said. Files with scores of another tool have no memory."""
    if len(loaded) < 2:
        return {"pairs": [], "said": []}
    if is_external(loaded[0]):
        return {"pairs": [], "said": [f"{ONE_LOOK}; looks at files of scores are not counted"]}
    now = _looks(loaded)
    kept: dict[int, Kept] = {}
    written = set()
    for run in loaded:
        own = [look for look in now if run["order"] in look.runs]
        kept[run["order"]], done = _kept(run["path"], own)
        if done:
            written.add(run["order"])
    pairs = [_pair(look, loaded, kept) for look in now]
    said = [line for line in [_kept_to(loaded, pairs)] if line]
    said += _counted(pairs, len(loaded))
    most = max(pair["looks"] for pair in pairs)
    for run in loaded:
        own_looks = _of(run, kept[run["order"]])
        # Several models in one comparison are one look, whose tests are corrected together.
        most = max(most, len({look["comparison"] for look in own_looks}))
        if others := _others(own_looks, loaded):
            said.append(f"{run['label']} was compared with {others} under this protocol too")
    if most > 1:
        chance = f"{100 * false_chance(most):.0f} %"
        said.append(
            f"{ONE_LOOK}: of {most}, at least one separates two equal models with a chance of up to {chance}"
        )
    lost = {order for look in now if not written & {*look.runs} for order in look.runs}
    if names := sorted(str(run["path"]) for run in loaded if run["order"] in lost):
        said.append(f"This look was not remembered: {' and '.join(names)} cannot be written")
    return {
        "pairs": pairs,
        "said": said + [line for run in loaded for line in unnoticed.journal_lost(run)],
    }


def _pair(look: NewLook, loaded: list[Run], kept: dict[int, Kept]) -> Look:
    """All looks at two runs, this one with them."""
    everything = {look.inputs: look.value}
    for run in look.runs:
        own = kept[run].items()
        everything |= {inputs: value for (ident, inputs), value in own if ident == look.id}
    oldest_first = sorted(everything.values(), key=lambda value: value["at"])
    a, b = (run["label"] for run in loaded if run["order"] in look.runs)
    prompts = [value["prompts"] for value in oldest_first]
    return {"a": a, "b": b, "looks": len(prompts), "prompts": prompts}


def _counted(pairs: list[Look], runs: int) -> list[str]:
    """How often each pair was looked at, one sentence for those that were looked at alike; most looks first."""
    groups: dict[tuple[int, ...], list[Look]] = {}
    for pair in sorted(pairs, key=lambda pair: -pair["looks"]):
        groups.setdefault(tuple(pair["prompts"]), []).append(pair)
    if all(pair["looks"] == 1 for pair in pairs):
        return [FIRST_LOOK]
    said = []
    for prompts, members in groups.items():
        models = "; ".join(f"{pair['a']} and {pair['b']}" for pair in members)
        if len(members) == len(pairs) > 1:
            models = f"each pair of the {runs}"
        count = len(prompts)
        nth = ORDINALS[count] if count < len(ORDINALS) else f"{count}th"
        on = ", ".join(map(str, prompts))
        said.append(f"{nth} comparison of {models} under this protocol ({on} prompts)")
    return said


def _looks(loaded: list[Run]) -> list[NewLook]:
    """The looks that this comparison takes, one for each pair of runs."""
    at = datetime.now(UTC).isoformat()
    found: list[NewLook] = []
    for pair in itertools.combinations(loaded, 2):
        a, b = sorted(pair, key=_model)
        values = headline_values(a, b)
        value: KeptLook = {
            "models": [_model(a), _model(b)],
            "labels": [a["label"], b["label"]],
            "protocol": _protocol(a),
            "prompts": len(values),
            "at": at,
            "comparison": "",
        }
        ident = stream.fingerprint([value["models"], value["protocol"]])
        seen = stream.fingerprint(values)
        found.append(NewLook(ident, seen, value, (a["order"], b["order"])))
    comparison = stream.fingerprint(sorted(look.inputs for look in found))
    for look in found:
        look.value["comparison"] = comparison
    return found


def _model(run: Run) -> str:
    return str(stream.fingerprint(run["summary"]["model"]))


def _protocol(run: Run) -> str:
    """What was held fixed, less the prompts: more of them are another look under the same protocol."""
    less = ("hash", "prompts", "renderer")
    return stream.fingerprint(
        {key: run["protocol"].get(key) for key in run["protocol"] if key not in less}
    )


def _kept(folder: Path, looks: list[NewLook]) -> tuple[Kept, bool]:
    """Every look that a run's folder remembers, and whether these could be added."""
    path = folder / "journal/looks.jsonl"
    try:
        journal = stream.Journal(path, "look")
        with contextlib.closing(journal):
            for look in looks:
                if journal.get(look.id, look.inputs) is None:
                    journal.put(look.id, look.inputs, look.value)
            return _read(path), True
    except OSError:
        return _read(path), False


def _read(path: Path) -> Kept:
    """The looks in a journal; lines that are no look are passed over."""
    found: Kept = {}
    for _, entry in stream.journal(path):
        look = entry.get("look")
        if isinstance(look, dict) and KeptLook.__annotations__.keys() <= look.keys():
            found[entry["id"], str(entry.get("inputs"))] = cast(KeptLook, look)
    return found


def _of(run: Run, kept: Kept) -> list[KeptLook]:
    """The looks at this run's model under its protocol; its folder may have held other models before."""
    model, protocol = _model(run), _protocol(run)
    return [
        value
        for value in kept.values()
        if value["protocol"] == protocol and model in value["models"]
    ]


def _others(looks: list[KeptLook], loaded: list[Run]) -> str:
    """The models of these looks that are not here now, in words."""
    here = {_model(one) for one in loaded}
    found: dict[str, str] = {}
    for value in looks:
        found |= dict(zip(value["models"], value["labels"], strict=True))
    counts = Counter(label for model, label in found.items() if model not in here)
    names = [f"{n} others named {label}" if n > 1 else label for label, n in counts.items()]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if names[3:] else "")


def counted(path: Path, who: object, seen: object) -> str:
    """Note a comparison of results without a run folder in the journal `path`; in words, how many there were of `who`. The same
    numbers `seen` again are the same look."""
    ident, inputs = stream.fingerprint(who), stream.fingerprint(seen)
    try:
        with contextlib.closing(stream.Journal(path, "look")) as journal:
            if journal.get(ident, inputs) is None:
                journal.put(ident, inputs, {"at": datetime.now(UTC).isoformat()})
            count = sum(ident == entry["id"] for _, entry in stream.journal(path))
    except OSError:
        return f"This look was not remembered: {path} cannot be written"
    if count == 1:
        return f"These two were not compared on this machine before. {ONE_LOOK}"
    said = f"Comparison {count} of these two on this machine. {ONE_LOOK}: of {count}, at least one"
    chance = f"{100 * false_chance(count):.0f} %"
    return f"{said} separates two equal models with a chance of up to {chance}"


# What was written down before


def register(folders: list[Path], protocol: Protocol) -> Registration:
    """Write down, before the first reply, what the runs to come will be compared by; returns the registration.

    folders: run folders named as their models, with prompts.jsonl. Each gets it as registered.json. Raises cli.Missing without
    prompts, cli.BadData where a reply is there already or the prompts differ.
    """
    if len(folders) < 2:
        raise cli.BadData("a comparison has two runs or more; name the folders of both")
    names = [layout.run_name(folder) for folder in folders]
    held = {}
    for folder, name in zip(folders, names, strict=True):
        if (folder / "prompts.jsonl").is_file():
            merge.reuse(folder)  # a reply that another run has is one that may have been read
        for journal in [folder / "scores.jsonl", *sorted(folder.glob("**/journal/gen.jsonl"))]:
            if journal.is_file() and journal.stat().st_size:
                raise cli.BadData(
                    f"{journal}: replies are there already, and what is written down now was not written before; "
                    f"move {folder} away, or register a run of another name"
                )
        path = folder / "prompts.jsonl"
        if not path.is_file():
            raise cli.Missing(
                f"there is no {path}; `make {path} MODEL={name} LIMIT=..` draws the prompts and asks nobody"
            )
        prompts = [record for _, record in stream.records(path)]
        held[path] = identities.identity(protocol, prompts)
    (first, identity), *others = held.items()
    for path, other in others:
        if lines := identities.differences(identity, other):
            raise cli.BadData(
                f"{first} and {path} do not hold the same prompts: {'; '.join(lines)}"
            )
    kind = {"offline": "checks", "edit": "edit"}.get(protocol.judge["kind"], "overall")
    written: Registration = {
        "models": [_registered_model(name) for name in names],
        "n": identity["prompts"]["count"],
        "measure": kind,
        "protocol": identity,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    text = json.dumps(written, indent=2, ensure_ascii=False, sort_keys=True) + "\n"
    for folder in folders:
        stream.write(folder / REGISTERED, text)
    return written


def _registered_model(name: str) -> RegisteredModel:
    model = registry.model(conditions.split(name)[0])
    return {"name": name, "slug": model.slug, "params": model.params}


def _kept_to(loaded: list[Run], pairs: list[Look]) -> str | None:
    """Whether this comparison is the one that was registered, as one sentence; None where nothing was."""
    found = [(run, _registered(run)) for run in loaded]
    written = next((one for _, one in found if one), None)
    if written is None:
        return None
    lines = [f"{run['label']} was not registered" for run, one in found if one is None]
    if any(one not in (None, written) for _, one in found):
        lines.append("the runs were registered apart")
    here = {run["name"]: run for run in loaded}
    for model in written["models"]:
        if model["name"] not in here:
            lines.append(f"{model['name']} is not compared")
    for model in written["models"]:
        if model["name"] in here:
            lines += _other_model(here[model["name"]], model)
    fixed = {key: value for key, value in written["protocol"].items() if value is not None}
    lines += identities.differences(fixed, {key: loaded[0]["protocol"].get(key) for key in fixed})
    if written["measure"] != better(loaded)[1]:
        lines.append(f"the measure was {written['measure']}")
    if (most := max(pair["looks"] for pair in pairs)) > 1:
        lines.append(f"one look was registered, and there were {most}")
    begun = datetime.fromisoformat(written["at"])
    for run in loaded:
        times = [gen["by"]["at"] for gen in _replies(run) if "by" in gen and gen["by"].get("at")]
        if any(datetime.fromisoformat(at) < begun for at in times):
            lines.append(f"{run['label']} has replies from before {written['at']}")
    title = f"renders, and {runs.titles(loaded)[written['measure']]} where both do, {written['n']} prompts"
    if not lines:
        return f"As registered before the first reply, on {written['at'][:10]}: {title}"
    return f"Not as registered on {written['at'][:10]} ({title}): {'; '.join(lines)}"


def _replies(run: Run) -> list[Gen]:
    return [gen for record in run["records"] if (gen := record.get("gen"))]


def _registered(run: Run) -> Registration | None:
    path = run["path"] / REGISTERED
    if not path.is_file():
        return None
    try:
        written: Registration = json.loads(path.read_text())
        if Registration.__annotations__.keys() - set(written):
            raise ValueError("a key is missing")
        return written
    except (ValueError, TypeError) as error:
        raise cli.BadData(
            f"{path}: not what run-plan --register writes ({error}); remove it, or put it back as it was"
        ) from None


def _other_model(run: Run, wanted: RegisteredModel) -> list[str]:
    """In what a run's model is another one than the registered."""
    slug, lines = run["summary"]["model"]["slug"], []
    if slug != wanted["slug"]:
        lines.append(f"{run['label']}: slug {wanted['slug']} != {slug}")
    used = next((gen["sampling"] for gen in _replies(run) if gen.get("sampling")), {})
    for key, value in wanted["params"].items():
        if key in used and used[key] != value:
            lines.append(f"{run['label']}: {key} {json.dumps(value)} != {json.dumps(used[key])}")
    return lines
