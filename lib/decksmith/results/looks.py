"""What the runs remember of being compared: how often, on how many prompts, and what was written down before.

A test that is right in 95 of 100 comparisons is not right in 95 of 100 series of them. Each run folder has a journal of the
looks at it (journal/looks.jsonl), by the two models and the protocol, and by what was compared; the same numbers again are the
same look. `register` writes registered.json into the folders of runs to come.
"""

import contextlib
import itertools
import json
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from decksmith.core import cli, stream
from decksmith.core.protocol import Protocol
from decksmith.core.records import Record
from decksmith.decks import conditions
from decksmith.judging import identity as identities
from decksmith.models import registry
from decksmith.results import external_scores, layout, runs, stats
from decksmith.results.pairs import HEADLINE, headline_values

Kept = dict[tuple[str, str], Record]  # the looks that a folder remembers, by id and inputs
ORDINALS = (
    "No",
    "First",
    "Second",
    "Third",
    "Fourth",
    "Fifth",
    "Sixth",
    "Seventh",
    "Eighth",
    "Ninth",
    "Tenth",
)
REGISTERED = "registered.json"
ONE_LOOK = "A 95 % interval and its test are right for one look"
KEYS = {"models", "labels", "protocol", "prompts", "comparison", "at"}  # of a look


def false_chance(looks: int) -> float:
    """How often, at most, at least one of `looks` tests at 5 % of two equal models separates them, whatever the looks share.

    Exact for looks that share nothing; for others an upper bound (Sidak 1967, Journal of the American Statistical Association
    62:626, for statistics that are jointly normal). `make bench-stats` simulates both.
    """
    return 1 - stats.LEVEL**looks


def remember(loaded: list[Record]) -> Record:
    """Note that these runs (runs.load) were compared: `{"pairs": [{"a", "b", "looks", "prompts"}], "said": [sentence]}`.

    looks: how many there were, this one with them; prompts: of each, oldest first. A look is kept in the folders of both runs;
    where neither can be written this is said. Files with scores of another tool have no memory.
    """
    if len(loaded) < 2:
        return {"pairs": [], "said": []}
    if external_scores.is_external(loaded[0]):
        return {"pairs": [], "said": [f"{ONE_LOOK}; looks at files of scores are not counted"]}
    now = _looks(loaded)
    kept = {
        run["order"]: _kept(run["path"], [look for look in now if run["order"] in look["runs"]])
        for run in loaded
    }
    pairs = [_pair(look, loaded, kept) for look in now]
    said = [line for line in [_kept_to(loaded, pairs)] if line]
    for (looks, prompts), members in _grouped(pairs).items():
        models = "; ".join(f"{pair['a']} and {pair['b']}" for pair in members)
        if len(members) == len(pairs) > 1:
            models = f"each pair of the {len(loaded)}"
        nth = f"{ORDINALS[looks]} look" if looks < len(ORDINALS) else f"Look number {looks}"
        said.append(
            f"{nth} at {models} under this protocol ({', '.join(map(str, prompts))} prompts)"
        )
    for run in loaded:
        if others := _others(run, loaded, kept[run["order"]][0]):
            said.append(f"{run['label']} was compared with {others} under this protocol too")
    made = [_comparisons(run, kept[run["order"]][0]) for run in loaded]
    most = max([pair["looks"] for pair in pairs] + made)
    if most > 1:
        chance = f"{100 * false_chance(most):.0f} %"
        said.append(
            f"{ONE_LOOK}: of {most}, at least one separates two equal models with a chance of up to {chance}"
        )
    forgotten = [look["runs"] for look in now if not any(kept[run][1] for run in look["runs"])]
    if forgotten:
        lost = {order for orders in forgotten for order in orders}
        names = sorted({str(run["path"]) for run in loaded if run["order"] in lost})
        said.append(f"This look was not remembered: {' and '.join(names)} cannot be written")
    return {"pairs": pairs, "said": said}


def _pair(look: Record, loaded: list[Record], kept: dict[int, Any]) -> Record:
    """All looks at two runs, this one (`look`) with them: `{"a", "b", "looks", "prompts"}`."""
    known = {
        inputs: value
        for run in look["runs"]
        for (ident, inputs), value in kept[run][0].items()
        if ident == look["id"]
    }
    everything = {look["inputs"]: look["value"]} | known
    oldest_first = sorted(everything.values(), key=lambda value: value["at"])
    a, b = (run["label"] for run in loaded if run["order"] in look["runs"])
    prompts = [value["prompts"] for value in oldest_first]
    return {"a": a, "b": b, "looks": len(prompts), "prompts": prompts}


def _looks(loaded: list[Record]) -> list[Record]:
    """The looks that this comparison takes, one for each pair of runs."""
    at = datetime.now(UTC).isoformat()
    found: list[Record] = []
    for pair in itertools.combinations(loaded, 2):
        a, b = sorted(pair, key=_model)
        values = headline_values(a, b)
        value: dict[str, Any] = {
            "models": [_model(a), _model(b)],
            "labels": [a["label"], b["label"]],
            "protocol": _protocol(a),
            "prompts": len(values),
            "at": at,
        }
        found.append(
            {
                "id": stream.fingerprint([value["models"], value["protocol"]]),
                "inputs": stream.fingerprint(values),
                "value": value,
                "runs": [a["order"], b["order"]],
            }
        )
    comparison = stream.fingerprint(sorted(look["inputs"] for look in found))
    for look in found:
        look["value"]["comparison"] = comparison
    return found


def _model(run: Record) -> str:
    return str(stream.fingerprint(run["summary"]["model"]))


def _protocol(run: Record) -> str:
    """What was held fixed, less the prompts: more of them are another look under the same protocol."""
    return stream.fingerprint(
        {
            key: value
            for key, value in run["protocol"].items()
            if key not in ("hash", "prompts", "renderer")
        }
    )


def _kept(folder: Path, looks: list[Record]) -> tuple[Kept, bool]:
    """Every look that a run's folder remembers, `{(id, inputs): value}`, and whether these could be added."""
    path = folder / "journal/looks.jsonl"
    try:
        journal = stream.Journal(path, "look")
        with contextlib.closing(journal):
            for look in looks:
                if journal.get(look["id"], look["inputs"]) is None:
                    journal.put(look["id"], look["inputs"], look["value"])
            return _read(path), True
    except OSError:
        return _read(path), False


def _read(path: Path) -> Kept:
    """The looks in a journal; lines that are no look are passed over."""
    found = {}
    with contextlib.suppress(OSError):
        for line in path.read_bytes().splitlines():
            with contextlib.suppress(ValueError, KeyError, TypeError):
                row = json.loads(line)
                if KEYS <= set(row["look"]):
                    found[row["id"], row["inputs"]] = row["look"]
    return found


def _grouped(pairs: list[Record]) -> dict[tuple[int, tuple[int, ...]], list[Record]]:
    """{(looks, prompts): the pairs that were looked at so}, most looks first."""
    found: dict[tuple[int, tuple[int, ...]], list[Record]] = {}
    for pair in sorted(pairs, key=lambda pair: -pair["looks"]):
        found.setdefault((pair["looks"], tuple(pair["prompts"])), []).append(pair)
    return found


def _of(run: Record, kept: Kept) -> list[Record]:
    """The looks at this run's model under its protocol; its folder may have held other models before."""
    model, protocol = _model(run), _protocol(run)
    return [
        value
        for value in kept.values()
        if value["protocol"] == protocol and model in value["models"]
    ]


def _comparisons(run: Record, kept: Kept) -> int:
    """In how many comparisons a run stood; several models in one are one, whose tests are corrected together."""
    return len({value["comparison"] for value in _of(run, kept)})


def _others(run: Record, loaded: list[Record], kept: Kept) -> str:
    """The models that a run was compared with and that are not here now, in words."""
    here = {_model(one) for one in loaded}
    found: dict[str, str] = {}
    for value in _of(run, kept):
        found |= dict(zip(value["models"], value["labels"], strict=True))
    found = {model: label for model, label in found.items() if model not in here}
    names = [
        label if n == 1 else f"{n} others named {label}"
        for label, n in Counter(found.values()).items()
    ]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if names[3:] else "")


# What was written down before


def register(folders: list[Path], protocol: Protocol) -> Record:
    """Write down, before the first reply, what the runs to come will be compared by; returns the registration, JSON-able.

    folders: run folders named as their models, with prompts.jsonl; protocol: a rubric.Protocol. Each folder gets it as
    registered.json. Raises cli.Missing without prompts, cli.BadData where a reply is there already or the prompts differ.
    """
    prompts = {}
    if len(folders) < 2:
        raise cli.BadData("a comparison has two runs or more; name the folders of both")
    for folder in folders:
        for journal in [folder / "scores.jsonl", *sorted(folder.glob("**/journal/gen.jsonl"))]:
            if journal.is_file() and journal.stat().st_size:
                raise cli.BadData(
                    f"{journal}: replies are there already, and what is written down now was not written before; "
                    f"move {folder} away, or register a run of another name"
                )
        path = folder / "prompts.jsonl"
        if not path.is_file():
            raise cli.Missing(
                f"there is no {path}; `make {path} MODEL={layout.run_name(folder)} LIMIT=..` draws the prompts and asks nobody"
            )
        prompts[path] = identities.identity(
            protocol, [record for _, record in stream.records(path)]
        )
    (first, identity), *others = prompts.items()
    for path, other in others:
        if lines := identities.differences(identity, other):
            raise cli.BadData(
                f"{first} and {path} do not hold the same prompts: {'; '.join(lines)}"
            )
    names = [layout.run_name(folder) for folder in folders]
    models = [registry.model(conditions.split(name)[0]) for name in names]
    accounting, measure = HEADLINE
    written = {
        "models": [
            {"name": name, "slug": model.slug, "params": model.params}
            for name, model in zip(names, models, strict=True)
        ],
        "n": identity["prompts"]["count"],
        "measure": measure,
        "accounting": accounting,
        "protocol": identity,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    for folder in folders:
        stream.write(
            folder / REGISTERED,
            json.dumps(written, indent=2, ensure_ascii=False, sort_keys=True) + "\n",
        )
    return written


def _kept_to(loaded: list[Record], pairs: list[Record]) -> str | None:
    """Whether this comparison is the one that was registered, as one sentence; None where nothing was."""
    found = [(run, _registered(run)) for run in loaded]
    written = next((one for _, one in found if one), None)
    if written is None:
        return None
    lines = [f"{run['label']} was not registered" for run, one in found if one is None]
    if any(one not in (None, written) for _, one in found):
        lines.append("the runs were registered apart")
    wanted = {model["name"]: model for model in written["models"]}
    here = {_named(run): run for run in loaded}
    lines += [f"{name} is not compared" for name in wanted if name not in here]
    lines += itertools.chain(
        *(_other_model(run, wanted[name]) for name, run in here.items() if name in wanted)
    )
    fixed = {key: value for key, value in written["protocol"].items() if value is not None}
    lines += identities.differences(fixed, {key: loaded[0]["protocol"].get(key) for key in fixed})
    if (written["accounting"], written["measure"]) != HEADLINE:
        lines.append(f"the measure was {written['measure']}, {written['accounting']}")
    if (most := max(pair["looks"] for pair in pairs)) > 1:
        lines.append(f"one look was registered, and there were {most}")
    begun = datetime.fromisoformat(written["at"])
    lines += [
        f"{run['label']} has replies from before {written['at']}"
        for run in loaded
        if _first(run, begun) < begun
    ]
    title = f"{runs.titles(loaded)[written['measure']]}, {written['accounting']}, {written['n']} prompts"
    if not lines:
        return f"As registered before the first reply, on {written['at'][:10]}: {title}"
    return f"Not as registered on {written['at'][:10]} ({title}): {'; '.join(lines)}"


def _named(run: Record) -> str:
    """A run's model, and its condition behind a +."""
    model = run["summary"]["model"]
    under = model.get("condition")
    return f"{model['name']}+{under['name']}" if under else str(model["name"])


def _registered(run: Record) -> Record | None:
    path = run["path"] / REGISTERED
    if not path.is_file():
        return None
    try:
        written: Record = json.loads(path.read_text())
        if {"models", "n", "measure", "accounting", "protocol", "at"} - set(written):
            raise ValueError("a key is missing")
        return written
    except (ValueError, TypeError) as error:
        raise cli.BadData(
            f"{path}: not what run-plan --register writes ({error}); remove it, or put it back as it was"
        ) from None


def _other_model(run: Record, wanted: Record) -> list[str]:
    """In what a run's model is another one than the registered."""
    slug, lines = run["summary"]["model"]["slug"], []
    if slug != wanted["slug"]:
        lines.append(f"{run['label']}: slug {wanted['slug']} != {slug}")
    sampled = ((record.get("gen") or {}).get("sampling") for record in run["records"])
    used: Record = next(filter(None, sampled), {})
    return lines + [
        f"{run['label']}: {key} {json.dumps(value)} != {json.dumps(used[key])}"
        for key, value in wanted["params"].items()
        if key in used and used[key] != value
    ]


def _first(run: Record, other: datetime) -> datetime:
    """When the first reply of a run was there; `other` where no reply says when."""
    times = [
        gen["by"]["at"]
        for record in run["records"]
        if ((gen := record.get("gen") or {}).get("by") or {}).get("at")
    ]
    return min(map(datetime.fromisoformat, times), default=other)
