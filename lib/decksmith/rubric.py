"""Protocols: what an evaluation holds fixed, the arithmetic of its scores, and the hash that says two runs may be
compared."""

import hashlib
import json
import tomllib
from dataclasses import dataclass
from pathlib import Path

from decksmith import cli, stream

DIMENSIONS = ("viscraft", "design", "content", "coherence")
JUDGED = ("content", "design", "coherence")


@dataclass(frozen=True)
class Protocol:
    """One file of assets/protocols. The sections are plain dicts with the keys of that file
    (assets/schemas/protocol.json)."""

    name: str
    prompts: dict
    sampling: dict
    images: dict
    render: dict
    judge: dict
    score: dict
    claim: dict
    measures: dict

    @classmethod
    def load(cls, name):
        """Read a protocol by its name in assets/protocols, or by path (anything with a slash or `.toml`).

        Raises cli.BadConfig with one line that names the file and the key.
        """
        path = (
            Path(name)
            if "/" in str(name) or str(name).endswith(".toml")
            else cli.ROOT / "assets/protocols" / f"{name}.toml"
        )
        try:
            data = tomllib.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            known = ", ".join(sorted(p.stem for p in (cli.ROOT / "assets/protocols").glob("*.toml")))
            raise cli.BadConfig(f"no protocol {path}; there are: {known}") from None
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise cli.BadConfig(f"{path}: {error}") from None
        _check(path, data)
        data.setdefault("measures", {})
        return cls(**data)

    @classmethod
    def held(cls, identity):
        """The protocol as far as an `identity` (protocol.json of a run) says it: enough to score by. Raises ValueError
        with a sentence that names the key."""
        from jsonschema import Draft202012Validator

        schema = json.loads((cli.ROOT / "assets/schemas/protocol.json").read_text(encoding="utf-8"))
        for key in ("sampling", "images", "render", "score", "claim"):
            wanted = {"$ref": f"#/properties/{key}", "properties": schema["properties"], "$defs": schema["$defs"]}
            if error := next(Draft202012Validator(wanted).iter_errors(identity.get(key)), None):
                raise ValueError(f"{'.'.join([key, *map(str, error.absolute_path)])}: {error.message}")
        if sum(identity["score"]["weights"].values()) <= 0:
            raise ValueError("score.weights: they sum to 0")
        parts = {key: identity[key] for key in ("sampling", "images", "render", "score", "claim")}
        return cls(name=identity.get("protocol"), prompts={}, judge=identity.get("judge") or {}, measures={}, **parts)

    @property
    def prompt(self):
        """The vision judge's instructions, as the model gets them."""
        text = _asset(self, "prompts", "prompt").read_text(encoding="utf-8")
        lines = [f"- {cap['seen']}: {cap['means']}" for cap in self.judge["caps"] if not cap.get("counted")]
        return text.replace("{observations}", "\n".join(lines))

    @property
    def schema(self):
        """The JSON Schema of the vision judge's reply, with this protocol's observations as the only ones.

        It goes to the endpoint as it is, so references are resolved: not every endpoint follows them.
        """
        schema = json.loads(_asset(self, "schemas", "schema").read_text(encoding="utf-8"))
        dimension = schema.pop("$defs")["dimension"]
        schema["properties"].update(dict.fromkeys(JUDGED, dimension))
        del schema["$schema"], schema["title"]
        names = [cap["seen"] for cap in self.judge["caps"] if not cap.get("counted")]
        schema["properties"]["observations"]["items"]["properties"]["seen"]["enum"] = names
        return schema

    def judging(self):
        """Everything that decides what a judge says about the same deck, JSON-able; half of the identity, and the
        journal's key."""
        if self.judge["kind"] == "offline":
            return {**self.judge, "measures": self.measures}
        from decksmith import chat

        slug = chat.model(self.judge["model"]).slug
        return {**self.judge, "slug": slug, "prompt": _sha(self.prompt), "schema": stream.fingerprint(self.schema)}


def _asset(protocol, folder, key):
    path = cli.ROOT / "assets" / folder / protocol.judge[key]
    if not path.is_file():
        raise cli.BadConfig(f"protocol {protocol.name}: judge.{key}: no file {path}")
    return path


def _sha(text):
    return hashlib.sha256(text.encode()).hexdigest()


def _check(path, data):
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import relevance

    schema = json.loads((cli.ROOT / "assets/schemas/protocol.json").read_text(encoding="utf-8"))
    errors = sorted(Draft202012Validator(schema).iter_errors(data), key=relevance)
    if errors:
        where = ".".join(str(step) for step in errors[-1].absolute_path) or "top level"
        raise cli.BadConfig(f"{path}: {where}: {errors[-1].message}")
    if sum(data["score"]["weights"].values()) <= 0:
        raise cli.BadConfig(f"{path}: score.weights: they sum to 0")
    if data["judge"]["kind"] == "offline":
        from decksmith import offline

        offline.check(path, data.get("measures", {}))
    elif "measures" in data:
        raise cli.BadConfig(f"{path}: measures: only the offline judge has them")


def capped(protocol, scores, observations, asked, made):
    """Apply the protocol's caps to a judge's scores: `(scores, caps)`.

    scores: {content, design, coherence} in 1..5. observations: [{"seen", "slide"}] as the judge reported them.
    asked, made: slides in the request (None when it names no number) and in the deck.
    """
    caps, scores = [], dict(scores)
    for cap in protocol.judge.get("caps", []):
        if cap.get("counted"):
            why = f"{made} of {asked} slides" if asked and made * 2 < asked else None
        else:
            slides = [o["slide"] for o in observations if o["seen"] == cap["seen"]]
            why = cap["means"] + (
                " (slide " + ", ".join(map(str, sorted(set(s for s in slides if s)))) + ")" if any(slides) else ""
            )
            why = why if slides else None
        if why and scores[cap["dimension"]] > cap["max"]:
            caps.append({"dimension": cap["dimension"], "max": cap["max"], "seen": cap["seen"], "why": why})
    for cap in caps:
        scores[cap["dimension"]] = min(scores[cap["dimension"]], cap["max"])
    return scores, caps


def refused(protocol, render):
    """Why the protocol does not count a `render` value as rendered: the decisive error as it stands there, or None.

    A fault of the renderer comes first. A failed render is refused by every protocol; where `accepts` is "clean", so
    is any model error of a class that `tolerates` does not name; and so are fewer than `min_slides` slides.
    """
    errors, settings = render.get("errors") or [], protocol.render
    ours = [error for error in errors if error.get("kind") == "renderer"]
    if ours or render.get("status") == "failed":
        return next(iter([*ours, *filter(None, [render.get("error")]), *errors]), None) or {
            "kind": "renderer", "class": "internal", "message": "a failed render without an error"}
    if settings["accepts"] == "clean":
        for error in errors:
            if error.get("kind") == "model" and error["class"] not in settings.get("tolerates", ()):
                return error
    if (made := len(render.get("slides") or [])) < settings["min_slides"]:
        return {"kind": "model", "class": "too-few-slides",
                "message": f"{made} slides; the protocol asks for {settings['min_slides']}"}
    return None


def fault(protocol, record):
    """What keeps a record from being scored, as `{"stage", "kind", "class", "message", ..}`, or None: the first of
    the stages' errors, where for the render the protocol decides (`refused`)."""
    for stage in stream.KEYS[:-1]:
        value = record.get(stage)
        if not isinstance(value, dict):
            continue
        error = value.get("error")
        if stage == "render" and "errors" in value:
            # A render that another protocol refused was never judged: then its error stands.
            error = refused(protocol, value) or (error if "judge" not in record else None)
        if error:
            return {"stage": stage, **error}
    return None


def score(protocol, record):
    """The value of `score` (docs/records.md) for one record that the other stages are done with.

    A model fault sets every dimension to the floor; any other fault leaves `overall` null. Raises cli.BadData when a
    stage is missing.
    """
    weights, floor = protocol.score["weights"], protocol.score["floor"]
    error = fault(protocol, record)
    items = len(record.get("checklist") or [])
    lacks = unmeasured(protocol, record)
    if error and error["kind"] == "model":
        dimensions = dict.fromkeys(DIMENSIONS, floor) | ({"content": None} if lacks else {})
        return {
            "overall": mean(dimensions, weights),
            "judge_only": mean(dimensions, {name: weights[name] for name in JUDGED}),
            "checklist": 0.0 if items else None,
            "dimensions": dimensions,
            "rendered": _rendered(protocol, record),
            "floored": True,
            "fault": error,
            **({"lacks": lacks} if lacks else {}),
        }
    if error:
        dimensions = dict.fromkeys(DIMENSIONS)
        dimensions["viscraft"] = (record.get("features") or {}).get(protocol.score["viscraft"])
        return {
            "overall": None,
            "judge_only": None,
            "checklist": None,
            "dimensions": dimensions,
            "rendered": _rendered(protocol, record),
            "floored": False,
            "fault": error,
        }
    judge, features = _get(record, "judge", "scores"), _get(record, "features", protocol.score["viscraft"])
    dimensions = {"viscraft": features, **{name: judge[name] for name in ("design", "content", "coherence")}}
    yes = sum(1 for item in record["judge"].get("checklist") or [] if item["yes"])
    return {
        "overall": mean(dimensions, weights),
        "judge_only": mean(dimensions, {name: weights[name] for name in JUDGED}),
        "checklist": round(yes / items, 4) if items else None,
        "dimensions": dimensions,
        "rendered": True,
        "floored": False,
        "fault": None,
        **({"lacks": lacks} if lacks else {}),
    }


def unmeasured(protocol, record):
    """What the prompt of a record lacks for its content to be measured offline (`offline.lacking`), or []. It is a property
    of the prompt: a deck that failed has no content score there either, or failing would be the only way to have one."""
    if protocol.judge["kind"] != "offline":
        return []
    from decksmith import offline

    return offline.lacking(record, protocol.judge["needed"])


def mean(dimensions, weights):
    """The weighted mean over the dimensions that have a weight, rounded to 4 digits; None when the weights sum to 0 or a
    dimension with a weight is None."""
    total = sum(weights.values())
    if any(dimensions[name] is None for name, weight in weights.items() if weight):
        return None
    return round(sum(dimensions[name] * weight for name, weight in weights.items()) / total, 4) if total else None


def _rendered(protocol, record):
    """Whether the pictures are there and the protocol accepts them, whatever failed afterwards."""
    render = {key: record[key] for key in ("gen", "deck", "images", "render") if key in record}
    return "render" in render and fault(protocol, render) is None


def _get(record, stage, key):
    value = record.get(stage)
    if not isinstance(value, dict) or value.get(key) is None:
        raise cli.BadData(
            f"{record['id']}: no {stage}.{key} in this record; deck-{'judge' if stage == 'judge' else 'scan'} writes it"
        )
    return value[key]


def identity(protocol, records):
    """What a run held fixed, JSON-able: two runs may stand in one table when nothing of it differs (`differences`).

    records: the finished records of the run. The model (gen.model) is no part of it. A run none of whose decks
    reached the renderer has a null `renderer`, which agrees with any. Raises cli.BadData when the run contradicts
    itself: two renderers, two judges, other sampling in some records.
    """
    from decksmith import craft

    records = list(records)
    _agree(records, "judge.rubric", _rubric, stream.fingerprint(protocol.judging()))
    same = {**fixed(protocol), **observed(protocol, records)}
    same["scanner"] = same["scanner"] or craft.SCANNER
    return {**same, "hash": stream.fingerprint(same)}


def fixed(protocol):
    """The part of an identity that the protocol alone decides, JSON-able."""
    judging = protocol.judging()
    return {
        "protocol": protocol.name,
        "images": protocol.images,
        "render": protocol.render,
        "judge": {k: v for k, v in judging.items() if k not in ("caps", "measures")},
        "rubric": stream.fingerprint([judging.get("caps"), judging.get("measures")]),
        "score": protocol.score,
        "claim": protocol.claim,
    }


def observed(protocol, records):
    """The part of an identity that the finished records decide, JSON-able; None where no record says. Raises
    cli.BadData when they contradict each other or the protocol."""
    asked, systems = prompts(records), set()
    for record in records:
        systems.update(m["content"] for m in record.get("messages") or [] if m.get("role") == "system")
    scanner = _agree(records, "features.scanner", lambda r: (r.get("features") or {}).get("scanner"))
    _agree(records, "judge.rubric", _rubric)
    renderer = _agree(records, "render.engine", lambda r: (r.get("render") or {}).get("engine"))
    if renderer and renderer.get("scale", protocol.render["scale"]) != protocol.render["scale"]:
        scales = f"{renderer['scale']}, and the protocol {protocol.name} says {protocol.render['scale']}"
        raise cli.BadData(f"the decks were rendered at scale {scales}")
    sampling = _agree(records, "gen.sampling", lambda r: _sampling(protocol, r))
    return {
        "prompts": {"count": len(asked), "sha256": stream.fingerprint(sorted(asked.items()))},
        "system": stream.fingerprint(sorted(systems)),
        "sampling": sampling or protocol.sampling,
        "renderer": renderer,
        "scanner": scanner,
    }


def prompts(records):
    """`{prompt's id: fingerprint of what was asked}`, the system message apart. Raises cli.BadData for two prompts
    under one id."""
    found = {}
    for record in records:
        ident = ((record.get("gen") or {}).get("sample") or {}).get("of") or record["id"]
        rest = [m for m in record.get("messages") or [] if m.get("role") != "system"]
        row = stream.fingerprint([ident, rest, record.get("asks"), record.get("checklist")])
        if found.setdefault(ident, row) != row:
            raise cli.BadData(f"{ident}: two different prompts under one id")
    return found


def unshipped(held, records):
    """In what the identity `held` of these records differs from the protocol of its name in assets/protocols, one line
    each. Empty: it is that one."""
    known = {path.stem for path in (cli.ROOT / "assets/protocols").glob("*.toml")}
    if held.get("protocol") not in known:
        return [f"there is no {short(held.get('protocol'))} in assets/protocols"]
    protocol = Protocol.load(held["protocol"])
    shipped = {**fixed(protocol), "sampling": protocol.sampling}
    ours, judged = stream.fingerprint(protocol.judging()), {str(rubric) for record in records if (rubric := _rubric(record))}
    other = [f"judge.rubric: {short(theirs)} != {short(ours)}" for theirs in sorted(judged - {ours})]
    return lines({key: held.get(key) for key in shipped}, shipped) + other


def _rubric(record):
    return (record.get("judge") or {}).get("rubric")


def _sampling(protocol, record):
    """The protocol's sampling as this record was asked. The model's own parameters (gen.model.params, from
    assets/models.toml) are part of the model; a value that neither the protocol nor these explain was set by a flag,
    and counts. Sample k of a prompt was asked with the seed plus k."""
    gen = record.get("gen") or {}
    if not gen.get("sampling"):
        return None
    own, asked = (gen.get("model") or {}).get("params") or {}, dict(gen["sampling"])
    if isinstance(asked.get("seed"), int):
        asked["seed"] -= (gen.get("sample") or {}).get("k", 0)
    return {key: value if asked.get(key, value) == own.get(key) else asked.get(key, value) for key, value in protocol.sampling.items()}


def _agree(records, what, get, expected=None):
    """The one value that all records with a value share, or None; raises cli.BadData naming the two records that
    differ."""
    first, holder = expected, "the protocol"
    for record in records:
        value = get(record)
        if value is None:
            continue
        if first is None:
            first, holder = value, record["id"]
        elif value != first:
            differing = (
                lines(first, value, what)
                if isinstance(value, dict)
                else [f"{what}: {short(first)} != {short(value)}"]
            )
            raise cli.BadData(f"two settings in one run, {holder} and {record['id']} differ: " + "; ".join(differing))
    return first


def differences(a, b):
    """The fields in which two identities differ, one line each: `judge.prompt: 3f2a.. != 9b1c..`. Empty: they may be
    compared."""
    skip = {"hash"} | ({"renderer"} if a.get("renderer") is None or b.get("renderer") is None else set())
    return lines({k: v for k, v in a.items() if k not in skip}, {k: v for k, v in b.items() if k not in skip})


def lines(a, b, prefix=""):
    """Where two JSON objects differ, one line each: `judge.prompt: 3f2a.. != 9b1c..`."""
    found = []
    for key in sorted({*a, *b}):
        x, y, name = a.get(key), b.get(key), f"{prefix}.{key}" if prefix else key
        if isinstance(x, dict) and isinstance(y, dict):
            found += lines(x, y, name)
        elif x != y:
            found.append(f"{name}: {short(x)} != {short(y)}")
    return found


def short(value):
    """A value as text, of a hash its beginning."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text[:12] + ".." if len(text) == 64 and set(text) <= set("0123456789abcdef") else text
