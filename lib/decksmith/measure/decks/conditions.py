"""Conditions, assets/conditions: what a model is given beside the request, and what becomes of its replies.

`plain` is the absence of one. A run under a condition is called <model>+<condition>. Its records keep the prompt's own messages; what
was sent is composed here (`Condition.messages`), by everything that asks or checks. A template (templates.py) is a condition by its
name, alone or behind another one: `company`, `cheatsheet+company`.
"""

import json
from dataclasses import dataclass, field, replace
from pathlib import Path

from decksmith.core import cli, config_files, stream
from decksmith.core.records import Record, prompt_of
from decksmith.measure.decks import prompts, templates
from decksmith.measure.decks.templates import Template

PLAIN = "plain"
_CHOOSER = {
    "xray": "X-ray findings",
    "reward": "the reward",
    "judge": "the evaluation's own judge",
}
FOLDER = cli.ROOT / "assets" / "conditions"


@dataclass(frozen=True)
class Shot:
    """A request with its deck, shown to the model as a turn of its own."""

    id: str
    request: str
    deck: str


@dataclass(frozen=True)
class Condition:
    """One file of assets/conditions (assets/schemas/condition.json).

    system: text behind the system prompt, "" without; source: the file that it came from. samples: {"n", "choose", "rules"}.
    revise: {"rounds", "by", "rules", "words"}. Both are {} without. template: of what decks are
    rendered and checked under (templates.Template as a record), {} without.
    """

    name: str
    system: str
    source: str
    shots: tuple[Shot, ...]
    samples: Record
    revise: Record
    template: Record = field(default_factory=dict)

    @property
    def n(self) -> int:
        """Replies to each request."""
        return int(self.samples.get("n", 1))

    def messages(self, record: Record) -> list[Record]:
        """What a model is sent for a record. A shot of the prompt that is asked is left out."""
        own = list(record["messages"])
        head: list[Record] = []
        if own and own[0].get("role") == "system":
            head = [own.pop(0)]
        if self.system:
            said = [message["content"] for message in head] + [self.system]
            head = [{"role": "system", "content": "\n\n".join(said)}]
        turns: list[Record] = []
        asked = (record.get("turn") or {}).get("of") or prompt_of(record)
        for shot in self.shots:
            if shot.id != asked:
                turns.append({"role": "user", "content": shot.request})
                turns.append({"role": "assistant", "content": shot.deck})
        return [*head, *turns, *own]

    def asked(self) -> Record:
        """What `gen.condition` keeps: the name, the sha256 of all of it, and that in words; `template` as `deck.template` has it."""
        under = {"template": templates.tag(Template(**self.template))} if self.template else {}
        sha256 = stream.fingerprint(self.dumped())
        return {"name": self.name, "sha256": sha256, "adds": self.adds(), **under}

    def adds(self) -> list[str]:
        """In what it differs from asking once, a phrase each."""
        said = []
        if self.source:
            said.append(f"system prompt + {self.source}")
        if self.template:
            said.append(f"template {self.template['name']}")
        if self.shots:
            said.append(f"few-shot decks {', '.join(shot.id for shot in self.shots)}")
        if self.samples:
            said.append(f"best of {self.n} by {_CHOOSER[self.samples['choose']]}")
        if self.revise:
            rounds = self.revise["rounds"]
            said.append(
                f"at most {rounds} revision{'s' * (rounds > 1)} kept by {_CHOOSER[self.revise['by']]}"
            )
        return said

    def dumped(self) -> Record:
        """The whole condition, JSON-able: condition.json of a run, which `held` reads."""
        whole = {**vars(self), "shots": [vars(shot) for shot in self.shots]}
        if not self.template:
            del whole["template"]
        return whole


def held(data: Record, path: Path = Path("condition.json")) -> Condition:
    """The condition that `dumped` gave, from the file `path`. Raises cli.BadConfig for what it cannot have given."""
    wanted = _schema()["properties"]
    try:
        for key in ("samples", "revise"):
            if data[key]:
                config_files.check(path, data[key], wanted[key])
        if data.get("template"):
            Template(**data["template"])
        shots = tuple(Shot(**shot) for shot in data["shots"])
        texts = [data["name"], data["system"], data["source"]]
        for shot in shots:
            texts += vars(shot).values()
        if not all(isinstance(text, str) for text in texts):
            raise TypeError("name, system, source and shots are texts")
        return Condition(**{**data, "shots": shots})
    except (TypeError, KeyError) as error:
        raise cli.BadConfig(f"{path}: not the condition of a run ({error})") from None


def load(name: str | None) -> Condition | None:
    """A condition by its name in assets/conditions, that of a template, or both joined by a +; or condition.json of a run by its path.
    None for `plain` and no name. Raises cli.BadConfig naming file and key."""
    if name is None or name == PLAIN:
        return None
    if name.endswith("/condition.json"):
        path = Path(name)
        try:
            return held(json.loads(path.read_bytes()), path)
        except (OSError, ValueError) as error:
            raise cli.BadConfig(f"{path}: {error}") from None
    first, _, second = name.partition("+")
    if second:
        return under(load(first), templates.read(_template(second)))
    path = FOLDER / f"{name}.toml"
    if not path.is_file():
        if _template(name).is_file():
            return under(None, templates.read(_template(name)))
        raise cli.BadConfig(f"no condition {name!r} in {FOLDER}; there are: {', '.join(names())}")
    try:
        data = config_files.read(path, FOLDER)
    except (OSError, ValueError) as error:
        raise cli.BadConfig(f"{path}: {error}") from None
    _check(path, data)
    system, source = _system(path, data.get("system") or {})
    return Condition(
        name=data["name"],
        system=system,
        source=source,
        shots=tuple(_shot(path, shot["deck"]) for shot in data.get("shots", ())),
        samples=data.get("samples") or {},
        revise=data.get("revise") or {},
    )


def under(condition: Condition | None, template: Template) -> Condition:
    """A condition with a template behind it, None: the template alone. Raises cli.BadConfig for a template that has a condition's name."""
    if template.name in names():
        raise cli.BadConfig(
            f"the template {template.name} has the name of a condition; call its file otherwise"
        )
    before = condition or Condition(PLAIN, "", "", (), {}, {})
    return replace(
        before,
        name=template.name if condition is None else f"{before.name}+{template.name}",
        system="\n\n".join(filter(None, (before.system, template.system()))),
        template=dict(vars(template)),
    )


def _template(name: str) -> Path:
    return templates.folder() / f"{name}.md"


def names() -> list[str]:
    """The names that CONDITION may have, `plain` first; templates' names besides."""
    return [PLAIN, *sorted(path.stem for path in FOLDER.glob("*.toml"))]


def split(run: str) -> tuple[str, str]:
    """The model and the condition that the name of a run says: "smol+revise" is ("smol", "revise"), "smol" is ("smol", "plain")."""
    model, _, condition = run.partition("+")
    return model, condition or PLAIN


def _schema() -> Record:
    text = (cli.ROOT / "assets/schemas/condition.json").read_text(encoding="utf-8")
    found: Record = json.loads(text)
    return found


def _check(path: Path, data: Record) -> None:
    config_files.check(path, data, _schema())
    if data["name"] != path.stem:
        raise cli.BadConfig(f"{path}: name: it is {data['name']!r}, and the file is {path.name}")


def _system(path: Path, table: Record) -> tuple[str, str]:
    """(the text behind the system prompt, where it is from)."""
    if "text" in table:
        return table["text"].strip(), f"{len(table['text'].split())} words of its own"
    if "file" not in table:
        return "", ""
    try:
        return prompts.text(table["file"]), table["file"]
    except OSError as error:
        raise cli.BadConfig(f"{path}: system.file: {error}") from None


def _shot(path: Path, deck: str) -> Shot:
    """The shot of a draft's folder in data/gold, or of a deck in data/reference, which answers the prompt of its name."""
    place = cli.ROOT / deck
    try:
        if place.suffix == ".md":
            rows = stream.records(cli.ROOT / "data/prompts.jsonl")
            request = next((_request(row) for _, row in rows if row["id"] == place.stem), None)
            if request is None:
                raise cli.BadConfig(
                    f"{path}: shots: {place.stem} is no prompt of data/prompts.jsonl"
                )
            return Shot(place.stem, request, place.read_text(encoding="utf-8").strip())
        request = (place / "PROMPT.md").read_text(encoding="utf-8").strip()
        return Shot(place.name, request, (place / "deck.md").read_text(encoding="utf-8").strip())
    except OSError as error:
        raise cli.BadConfig(f"{path}: shots: {error}") from None


def _request(row: Record) -> str:
    return str(row["messages"][-1]["content"])
