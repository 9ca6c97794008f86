"""What a run held fixed, and its hash: two runs may stand in one table when nothing of it differs."""

import functools
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from decksmith.core import cli, stream
from decksmith.core.protocol import Protocol
from decksmith.core.records import Record, prompt_of, sample_of
from decksmith.measure.decks import features
from decksmith.measure.judging import reading
from decksmith.models import registry

T = TypeVar("T")
CHECKING = (
    "judging/checks.py",
    "judging/rendered.py",
    "judging/legibility.py",
    "judging/reading.py",
    "decks/lint.py",
    "decks/parser.py",
    "decks/sources.py",
    "decks/words.py",
)
EDITING = ("judging/edited.py", "decks/edits.py", "decks/parser.py", "decks/words.py")


def identity(protocol: Protocol, records: Iterable[Record]) -> Record:
    """What a run with these finished records held fixed, JSON-able; the model is no part of it. A run none of whose decks
    reached the renderer has a null `renderer`, which agrees with any. Raises cli.BadData when it contradicts itself."""
    records = list(records)
    agreed(records, "judge.rubric", _rubric, stream.fingerprint(judging(protocol)))
    same = {**fixed(protocol), **observed(protocol, records)}
    same["scanner"] = same["scanner"] or features.SCANNER
    return {**same, "hash": stream.fingerprint(same)}


def judging(protocol: Protocol) -> Record:
    """Everything that decides what a judge says about the same deck, JSON-able; the journal's key."""
    if protocol.judge["kind"] == "offline":
        return {
            **protocol.judge,
            "checks": protocol.checks,
            "code": checks_code(),
            "reader": reading.identity(),
        }
    if protocol.judge["kind"] == "edit":
        return {**protocol.judge, "code": checks_code(EDITING)}
    slug = registry.model(protocol.reader).slug
    prompt = hashlib.sha256(protocol.prompt.encode()).hexdigest()
    schema = stream.fingerprint(protocol.schema)
    # What can be made out on a slide, and is shown to a reader of text, the checks' code decides.
    code = {"code": checks_code()} if protocol.judge["kind"] == "text" else {}
    return {**protocol.judge, "slug": slug, "prompt": prompt, "schema": schema, **code}


@functools.cache
def checks_code(files: tuple[str, ...] = CHECKING) -> str:
    """The sha256 of the code that checks, which is not loaded for it: other code is another judge."""
    code = hashlib.sha256()
    for name in files:
        code.update((cli.ROOT / "lib/decksmith/measure" / name).read_bytes())
    return code.hexdigest()


def fixed(protocol: Protocol) -> Record:
    """The part of an identity that the protocol alone decides, JSON-able."""
    judge = judging(protocol)
    return {
        "protocol": protocol.name,
        "images": protocol.images,
        "render": protocol.render,
        "judge": {k: v for k, v in judge.items() if k not in ("caps", "checks", "code", "reader")},
        "rubric": stream.fingerprint(
            [judge.get(key) for key in ("caps", "checks", "code", "reader")]
        ),
        "score": protocol.score,
        "claim": protocol.claim,
    }


def observed(protocol: Protocol, records: list[Record]) -> Record:
    """The part that the finished records decide. Raises cli.BadData when they contradict each other."""
    asked = prompts(records)
    said = [message for record in records for message in record.get("messages") or []]
    systems = {message["content"] for message in said if message.get("role") == "system"}
    scanner = agreed(records, "features.scanner", lambda r: _of(r, "features", "scanner"))
    agreed(records, "judge.rubric", _rubric)
    renderer = agreed(records, "render.engine", lambda r: _of(r, "render", "engine"))
    scale = protocol.render["scale"]
    if renderer and renderer.get("scale", scale) != scale:
        two = f"{renderer['scale']}, and the protocol {protocol.name} says {scale}"
        raise cli.BadData(f"the decks were rendered at scale {two}")
    sampling = agreed(records, "gen.sampling", lambda r: _sampling(protocol, r))
    beside = {
        "grounding": agreed(
            records,
            "features.grounding.rules",
            lambda r: (_of(r, "features", "grounding") or {}).get("rules"),
        ),
        "claims": agreed(records, "claims.reader", lambda r: _of(r, "claims", "reader")),
    }
    return {
        **{name: value for name, value in beside.items() if value},
        "prompts": {"count": len(asked), "sha256": stream.fingerprint(sorted(asked.items()))},
        "system": stream.fingerprint(sorted(systems)),
        "sampling": sampling or protocol.sampling,
        "renderer": renderer,
        "scanner": scanner,
    }


def prompts(records: Iterable[Record]) -> dict[str, str]:
    """The fingerprint of each prompt by its id. Raises cli.BadData for two prompts under one id."""
    found: dict[str, str] = {}
    for record in records:
        ident = prompt_of(record)
        rest = [m for m in record.get("messages") or [] if m.get("role") != "system"]
        turn = [record["turn"]] if record.get("turn") else []
        row = stream.fingerprint([ident, rest, record.get("asks"), record.get("checklist"), *turn])
        if found.setdefault(ident, row) != row:
            raise cli.BadData(f"{ident}: two different prompts under one id")
    return found


def unshipped(held: Record, records: list[Record]) -> list[str]:
    """In what an identity differs from the protocol of its name in assets/protocols, a line each."""
    known = {path.stem for path in (cli.ROOT / "assets/protocols").glob("*.toml")}
    if held.get("protocol") not in known:
        return [f"there is no {short(held.get('protocol'))} in assets/protocols"]
    protocol = Protocol.load(held["protocol"])
    shipped = {**fixed(protocol), "sampling": protocol.sampling}
    ours = stream.fingerprint(judging(protocol))
    theirs = sorted({str(rubric) for record in records if (rubric := _rubric(record))} - {ours})
    other = [f"judge.rubric: {short(rubric)} != {short(ours)}" for rubric in theirs]
    return lines({key: held.get(key) for key in shipped}, shipped) + other


def _of(record: Record, stage: str, key: str) -> Any:
    return (record.get(stage) or {}).get(key)


def _rubric(record: Record) -> str | None:
    rubric: str | None = _of(record, "judge", "rubric")
    return rubric


def _sampling(protocol: Protocol, record: Record) -> Record | None:
    """The protocol's sampling as this record was asked. The model's own parameters (gen.model.params) are part of the
    model; a value that neither the protocol nor these explain was set by a flag, and counts. Sample k of a prompt was
    asked with the seed plus k."""
    gen = record.get("gen") or {}
    if not gen.get("sampling"):
        return None
    own, asked = (gen.get("model") or {}).get("params") or {}, dict(gen["sampling"])
    if isinstance(asked.get("seed"), int):
        asked["seed"] -= sample_of(record)
    return {
        key: value if asked.get(key, value) == own.get(key) else asked.get(key, value)
        for key, value in protocol.sampling.items()
    }


def agreed(
    records: Iterable[Record],
    what: str,
    get: Callable[[Record], T | None],
    expected: T | None = None,
) -> T | None:
    """The one value that all records with a value share, or None; raises cli.BadData naming two that differ."""
    first, holder = expected, "the protocol"
    for record in records:
        value = get(record)
        if value is None:
            continue
        if first is None:
            first, holder = value, record["id"]
        elif value != first:
            how = "; ".join(lines({what: first}, {what: value}))
            raise cli.BadData(f"two settings in one run, {holder} and {record['id']} differ: {how}")
    return first


def differences(a: Mapping[str, object], b: Mapping[str, object]) -> list[str]:
    """The fields in which two identities differ (`lines`). Empty: they may be compared."""
    skip = {"hash"}
    if a.get("renderer") is None or b.get("renderer") is None:
        skip.add("renderer")
    ours, theirs = ({k: v for k, v in one.items() if k not in skip} for one in (a, b))
    return lines(ours, theirs)


def lines(a: Mapping[str, object], b: Mapping[str, object], prefix: str = "") -> list[str]:
    """Where two JSON objects differ, one line each: `judge.prompt: 3f2a.. != 9b1c..`."""
    found = []
    for key in sorted({*a, *b}):
        x, y, name = a.get(key), b.get(key), f"{prefix}.{key}" if prefix else key
        if isinstance(x, dict) and isinstance(y, dict):
            found += lines(x, y, name)
        elif x != y:
            found.append(f"{name}: {short(x)} != {short(y)}")
    return found


def short(value: object) -> str:
    """A value as text, of a hash its beginning."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text[:12] + ".." if len(text) == 64 and set(text) <= set("0123456789abcdef") else text
