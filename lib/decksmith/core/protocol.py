"""Protocols, assets/protocols: what an evaluation holds fixed."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

from decksmith.core import cli, config_files
from decksmith.core.records import Record


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
    measures: Record

    @classmethod
    def load(cls, name: str | Path) -> "Protocol":
        """Read a protocol by its name in assets/protocols, or by path (anything with a slash or `.toml`).

        Raises cli.BadConfig with one line that names the file and the key.
        """
        path = (
            Path(name)
            if "/" in str(name) or str(name).endswith(".toml")
            else cli.ROOT / "assets/protocols" / f"{name}.toml"
        )
        try:
            data = config_files.read(path, cli.ROOT / "assets/protocols")
        except FileNotFoundError:
            known = ", ".join(
                sorted(p.stem for p in (cli.ROOT / "assets/protocols").glob("*.toml"))
            )
            raise cli.BadConfig(f"no protocol {path}; there are: {known}") from None
        except (OSError, ValueError) as error:  # no TOML, no UTF-8, or extends what is not there
            raise cli.BadConfig(f"{path}: {error}") from None
        _check(path, data)
        data.setdefault("measures", {})
        return cls(**data)

    @classmethod
    def held(cls, identity: Record) -> "Protocol":
        """The protocol as far as an `identity` (protocol.json of a run) says it: enough to score by. Raises ValueError
        with a sentence that names the key."""
        schema = json.loads((cli.ROOT / "assets/schemas/protocol.json").read_text(encoding="utf-8"))
        for key in ("sampling", "images", "render", "score", "claim"):
            wanted = {**schema["properties"][key], "$defs": schema["$defs"]}
            if found := config_files.fault(identity.get(key), wanted):
                raise ValueError(f"{'.'.join(filter(None, [key, found[0]]))}: {found[1]}")
        if sum(identity["score"]["weights"].values()) <= 0:
            raise ValueError("score.weights: they sum to 0")
        parts = {key: identity[key] for key in ("sampling", "images", "render", "score", "claim")}
        return cls(
            name=identity.get("protocol") or "",
            prompts={},
            judge=identity.get("judge") or {},
            measures={},
            **parts,
        )

    @property
    def judges(self) -> list[str]:
        """The names in assets/models.toml of the models that judge; none where nothing is asked."""
        model = self.judge.get("model") or []
        return [model] if isinstance(model, str) else list(model)

    def alone(self, name: str) -> "Protocol":
        """The same protocol with one of its judges for the only one."""
        judge = {key: value for key, value in self.judge.items() if key != "combine"}
        return replace(self, judge={**judge, "model": name})

    @property
    def prompt(self) -> str:
        """The vision judge's instructions, as the model gets them."""
        text = _asset(self, "prompts", "prompt").read_text(encoding="utf-8")
        lines = [
            f"- {cap['seen']}: {cap['means']}"
            for cap in self.judge["caps"]
            if not cap.get("counted")
        ]
        return text.replace("{observations}", "\n".join(lines))

    @property
    def schema(self) -> Record:
        """The JSON Schema of the vision judge's reply, with this protocol's observations as the only ones.

        It goes to the endpoint as it is, so references are resolved: not every endpoint follows them.
        """
        schema: Record = json.loads(_asset(self, "schemas", "schema").read_text(encoding="utf-8"))
        dimension = schema.pop("$defs")["dimension"]
        schema["properties"].update(dict.fromkeys(("content", "design", "coherence"), dimension))
        del schema["$schema"], schema["title"]
        names = [cap["seen"] for cap in self.judge["caps"] if not cap.get("counted")]
        schema["properties"]["observations"]["items"]["properties"]["seen"]["enum"] = names
        return schema


def _asset(protocol: Protocol, folder: str, key: str) -> Path:
    path: Path = cli.ROOT / "assets" / folder / protocol.judge[key]
    if not path.is_file():
        raise cli.BadConfig(f"protocol {protocol.name}: judge.{key}: no file {path}")
    return path


def _check(path: Path, data: Record) -> None:
    wanted = json.loads((cli.ROOT / "assets/schemas/protocol.json").read_text(encoding="utf-8"))
    config_files.check(path, data, wanted)
    if sum(data["score"]["weights"].values()) <= 0:
        raise cli.BadConfig(f"{path}: score.weights: they sum to 0")
    if data["judge"]["kind"] == "offline":
        if "measures" not in data:
            raise cli.BadConfig(f"{path}: measures: is missing")
    elif isinstance(data["judge"]["model"], list) != ("combine" in data["judge"]):
        raise cli.BadConfig(
            f"{path}: judge.combine: says how the models of a panel are joined (mean, median or "
            "majority), where judge.model is a list of them, and only there"
        )
    elif "measures" in data:
        raise cli.BadConfig(f"{path}: measures: only the offline judge has them")


def refused(protocol: Protocol, render: Record) -> Record | None:
    """Why the protocol does not count a `render` value as rendered: the decisive error as it stands there, or None.

    A fault of the renderer comes first. A failed render is refused by every protocol; where `accepts` is "clean", so
    is any model error of a class that `tolerates` does not name; and so are fewer than `min_slides` slides.
    """
    errors: list[Record] = render.get("errors") or []
    settings = protocol.render
    ours = [error for error in errors if error.get("kind") == "renderer"]
    if ours or render.get("status") == "failed":
        said = [*ours, *filter(None, [render.get("error")]), *errors]
        unsaid = {
            "kind": "renderer",
            "class": "internal",
            "message": "a failed render without an error",
        }
        return said[0] if said else unsaid
    if settings["accepts"] == "clean":
        for error in errors:
            if error.get("kind") == "model" and error["class"] not in settings.get("tolerates", ()):
                return error
    if (made := len(render.get("slides") or [])) < settings["min_slides"]:
        return {
            "kind": "model",
            "class": "too-few-slides",
            "message": f"{made} slides; the protocol asks for {settings['min_slides']}",
        }
    return None
