"""Conditions, assets/conditions: what a model is given beside the request, and what becomes of its replies.

`plain` is the absence of one. A run under a condition is called <model>+<condition>; its records keep the prompt's own
messages. A template is a condition by its name, alone or behind another one: `cheatsheet+company`.
"""

import functools
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from decksmith.core import cli, config_files, stream
from decksmith.core.records import Record, prompt_of
from decksmith.measure.decks import templates
from decksmith.measure.decks.templates import Template

PLAIN = "plain"
_CHOOSER = {"xray": "X-ray findings", "reward": "the reward", "judge": "the evaluation's own judge"}
FOLDER = cli.ROOT / "assets" / "conditions"
_schema = functools.partial(config_files.asset, "schemas/condition.json")


@dataclass(frozen=True)
class Shot:
    """A request with its deck, shown to the model as a turn of its own."""

    id: str
    request: str
    deck: str


@dataclass(frozen=True)
class Condition:
    """One file of assets/conditions (assets/schemas/condition.json). system: text behind the system prompt, of the file
    `source`. samples: {"n", "choose", "rules"}; revise: {"rounds", "by", "rules", "words"}; {} without."""

    name: str
    system: str
    source: str
    shots: tuple[Shot, ...]
    samples: Record
    revise: Record
    template: Template | None = None

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
        asked = (record.get("turn") or {}).get("of") or prompt_of(record)
        for shot in self.shots:
            if shot.id != asked:
                head.append({"role": "user", "content": shot.request})
                head.append({"role": "assistant", "content": shot.deck})
        return [*head, *own]

    def asked(self) -> Record:
        """What `gen.condition` keeps: its name, the sha256 of all of it, what it adds, and its template."""
        under = {"template": templates.tag(self.template)} if self.template else {}
        sha256 = stream.fingerprint(self.dumped())
        return {"name": self.name, "sha256": sha256, "adds": self.adds(), **under}

    def adds(self) -> list[str]:
        """In what it differs from asking once, a phrase each."""
        said = []
        if self.source:
            said.append(f"system prompt + {self.source}")
        if self.template:
            said.append(f"template {self.template.name}")
        if self.shots:
            said.append(f"few-shot decks {', '.join(shot.id for shot in self.shots)}")
        if self.samples:
            said.append(f"best of {self.n} by {_CHOOSER[self.samples['choose']]}")
        if self.revise:
            rounds, by = self.revise["rounds"], _CHOOSER[self.revise["by"]]
            said.append(f"at most {rounds} revision{'s' * (rounds > 1)} kept by {by}")
        return said

    def dumped(self) -> Record:
        """The whole condition, JSON-able: condition.json of a run, which `held` reads."""
        whole = asdict(self)
        if not self.template:
            del whole["template"]
        return whole


def held(data: Record, path: Path = Path("condition.json")) -> Condition:
    """The condition that `dumped` gave, from the file `path`. Raises cli.BadConfig for what it cannot have given."""
    from pydantic import TypeAdapter, ValidationError

    try:
        condition = TypeAdapter(Condition).validate_python(data)
        if unknown := sorted({*data} - {*vars(condition)}):
            raise cli.BadConfig(f"{path}: not the condition of a run ({unknown[0]})")
    except ValidationError as error:
        first = error.errors()[0]
        why = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise cli.BadConfig(f"{path}: not the condition of a run ({why})") from None
    for key in ("samples", "revise"):
        if value := getattr(condition, key):
            config_files.check(path, value, _schema()["properties"][key])
    return condition


def load(name: str | None) -> Condition | None:
    """A condition by its name, that of a template, both joined by a +, or the path of a condition.json;
    None for `plain` and no name. Raises cli.BadConfig naming file and key."""
    if name is None or name == PLAIN:
        return None
    if name.endswith("/condition.json"):
        path = Path(name)
        return held(stream.json_file(path, cli.BadConfig), path)
    first, _, second = name.partition("+")
    if second:
        return under(load(first), templates.read(_template(second)))
    path = FOLDER / f"{name}.toml"
    if not path.is_file():
        if _template(name).is_file():
            return under(None, templates.read(_template(name)))
        raise cli.BadConfig(f"no condition {name!r} in {FOLDER}{cli.instead(name, names())}")
    try:
        data = config_files.read(path, FOLDER)
    except (OSError, ValueError) as error:
        raise cli.BadConfig(f"{path}: {error}") from None
    config_files.check(path, data, _schema())
    if data["name"] != path.stem:
        raise cli.BadConfig(f"{path}: name: it is {data['name']!r}, and the file is {path.name}")
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
    """The condition with a template behind it. Raises cli.BadConfig where a condition has its name."""
    if template.name in names():
        why = "has the name of a condition; call its file otherwise"
        raise cli.BadConfig(f"the template {template.name} {why}")
    if condition is None:
        return Condition(template.name, template.system(), "", (), {}, {}, template)
    return replace(
        condition,
        name=f"{condition.name}+{template.name}",
        system="\n\n".join(filter(None, (condition.system, template.system()))),
        template=template,
    )


def _template(name: str) -> Path:
    return templates.folder() / f"{name}.md"


def names() -> list[str]:
    """The names that CONDITION may have, `plain` first; templates' names besides."""
    return [PLAIN, *sorted(path.stem for path in FOLDER.glob("*.toml"))]


def split(run: str) -> tuple[str, str]:
    """Model and condition that a run's name says: ("smol", "revise"), ("smol", "plain")."""
    model, _, condition = run.partition("+")
    return model, condition or PLAIN


def _system(path: Path, table: Record) -> tuple[str, str]:
    """(the text behind the system prompt, where it is from)."""
    if "text" in table:
        return table["text"].strip(), f"{len(table['text'].split())} words of its own"
    try:
        file = table.get("file", "")
        return templates.prompt_text(file) if file else "", file
    except OSError as error:
        raise cli.BadConfig(f"{path}: system.file: {error}") from None


def _shot(path: Path, deck: str) -> Shot:
    """The shot of a draft's folder in data/gold."""
    place = cli.ROOT / deck
    try:
        request = (place / "PROMPT.md").read_text(encoding="utf-8").strip()
        return Shot(place.name, request, (place / "deck.md").read_text(encoding="utf-8").strip())
    except OSError as error:
        raise cli.BadConfig(f"{path}: shots: {error}") from None
