"""Protocols, assets/protocols: what an evaluation holds fixed."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from decksmith.core import cli, config_files
from decksmith.core.records import Record

SHIPPED = cli.ROOT / "assets/protocols"
SCHEMA = cli.ROOT / "assets/schemas/protocol.json"


@dataclass(frozen=True)
class Protocol:
    """One file of assets/protocols. The sections are plain dicts with the keys of that file
    (assets/schemas/protocol.json)."""

    name: str
    prompts: Record
    sampling: Record
    images: Record
    render: Record
    judge: Record
    score: Record
    claim: Record
    checks: Record

    @classmethod
    def load(cls, name: str | Path) -> "Protocol":
        """Read a protocol by its name in assets/protocols, or by path (anything with a slash or `.toml`).

        Raises cli.BadConfig with one line that names the file and the key.
        """
        is_path = "/" in str(name) or str(name).endswith(".toml")
        path = Path(name) if is_path else SHIPPED / f"{name}.toml"
        try:
            data = config_files.read(path, SHIPPED)
        except FileNotFoundError:
            known = sorted(path.stem for path in SHIPPED.glob("*.toml"))
            raise cli.BadConfig(f"no protocol {path}{cli.instead(name, known)}") from None
        except (OSError, ValueError) as error:  # no TOML, no UTF-8, or extends what is not there
            raise cli.BadConfig(f"{path}: {error}") from None
        _check(path, data)
        data.setdefault("checks", {})
        data.setdefault("score", {})
        return cls(**data)

    @classmethod
    def held(cls, identity: Record) -> "Protocol":
        """The protocol as far as an `identity` (protocol.json of a run) says it: enough to score by. Raises ValueError
        with a sentence that names the key."""
        schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
        reads = (identity.get("judge") or {}).get("kind") not in ("offline", "edit")
        keys = ("sampling", "images", "render", *(["score"] if reads else []), "claim")
        parts = {key: identity.get(key) for key in keys}
        for key, part in parts.items():
            wanted = {**schema["properties"][key], "$defs": schema["$defs"]}
            if found := config_files.fault(part, wanted):
                raise ValueError(f"{'.'.join(filter(None, [key, found[0]]))}: {found[1]}")
        parts.setdefault("score", {})
        if reads and sum(identity["score"]["weights"].values()) <= 0:
            raise ValueError("score.weights: they sum to 0")
        name, judge = identity.get("protocol") or "", identity.get("judge") or {}
        return cls(name=name, prompts={}, judge=judge, checks={}, **cast(Any, parts))

    @property
    def reader(self) -> str | None:
        """The name in assets/models.toml of the model that judges; None where nobody is asked."""
        return self.judge.get("model")

    @property
    def prompt(self) -> str:
        """The judge's instructions, as the model gets them."""
        text = _asset(self, "prompts", "prompt").read_text(encoding="utf-8")
        lines = [f"- {cap['seen']}: {cap['means']}" for cap in self._seen()]
        return text.replace("{observations}", "\n".join(lines))

    def _seen(self) -> list[Record]:
        """The caps that rest on what the judge sees, and not on a count."""
        return [cap for cap in self.judge["caps"] if not cap.get("counted")]

    @property
    def schema(self) -> Record:
        """The JSON Schema of the judge's reply, with this protocol's observations as the only ones.

        It goes to the endpoint as it is, so references are resolved: not every endpoint follows them.
        """
        schema: Record = json.loads(_asset(self, "schemas", "schema").read_text(encoding="utf-8"))
        dimension = schema.pop("$defs")["dimension"]
        names = {"content", "design", "coherence"} & schema["properties"].keys()
        schema["properties"].update(dict.fromkeys(names, dimension))
        del schema["$schema"], schema["title"]
        seen = schema["properties"]["observations"]["items"]["properties"]["seen"]
        seen["enum"] = [cap["seen"] for cap in self._seen()]
        return schema


def _asset(protocol: Protocol, folder: str, key: str) -> Path:
    path: Path = cli.ROOT / "assets" / folder / protocol.judge[key]
    if not path.is_file():
        raise cli.BadConfig(f"protocol {protocol.name}: judge.{key}: no file {path}")
    return path


def _check(path: Path, data: Record) -> None:
    config_files.check(path, data, json.loads(SCHEMA.read_text(encoding="utf-8")))
    wrong = ""
    if data["judge"]["kind"] in ("offline", "edit"):
        wrong = "" if "checks" in data else "checks: is missing"
        wrong = "score: only a judge that reads has one" if "score" in data else wrong
    elif "score" not in data:
        wrong = "score: is missing"
    elif sum(data["score"]["weights"].values()) <= 0:
        wrong = "score.weights: they sum to 0"
    elif "checks" in data:
        wrong = "checks: only the offline judge has them"
    if wrong:
        raise cli.BadConfig(f"{path}: {wrong}")


def refused(protocol: Protocol, render: Record) -> Record | None:
    """Why the protocol does not count a `render` value as rendered: the decisive error as it stands there, or None.

    A fault of the renderer comes first. A failed render is refused by every protocol; where `accepts` is "clean", so
    is any model error of a class that `tolerates` does not name; and so are fewer than `min_slides` slides.
    """
    errors: list[Record] = render.get("errors") or []
    settings = protocol.render
    ours = [error for error in errors if error.get("kind") == "renderer"]
    if ours or render.get("status") == "failed":
        for said in (*ours, render.get("error"), *errors):
            if said:
                return said
        return _error("renderer", "internal", "a failed render without an error")
    if settings["accepts"] == "clean":
        for error in errors:
            if error.get("kind") == "model" and error["class"] not in settings.get("tolerates", ()):
                return error
    if (made := len(render.get("slides") or [])) < settings["min_slides"]:
        said = f"{made} slides; the protocol asks for {settings['min_slides']}"
        return _error("model", "too-few-slides", said)
    return None


def _error(kind: str, cls: str, message: str) -> Record:
    return {"kind": kind, "class": cls, "message": message}
