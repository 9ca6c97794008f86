"""Benchmarks as data: where their rows come from, how they become our records, and what the model is asked.

A benchmark is a file of assets/benchmarks: its source, a jq program that makes a row of ours of one of theirs, a template, a grader.
`gym-NAME` is one of NeMo Gym and has no file.
"""

import base64
import functools
import hashlib
import json
import mimetypes
import os
import random
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypedDict, cast

from decksmith.bench.benchmarks import generators, gym, sources
from decksmith.bench.benchmarks.records import BenchmarkSpec, BenchRecord, RowSource, Task
from decksmith.core import cli, config_files, stream
from decksmith.core.records import Record, prompt_of

# What a description may have; the first four are known from its place (load).
FIELDS = set(BenchmarkSpec.__annotations__) - {"name", "kind", "path", "folder"}
MARGIN = 0.02  # the largest loss that may stay open, of a benchmark that names none
SOURCES = {
    "hub": {"hub", "config", "split", "revision", "files", "join", "databases"},
    "package": {"package", "file", "files", "join", "revision"},
    "generated": {"generated", "rows", "seed", "words"},
    "own": {"own"},
    "file": {"file", "sha256", "databases"},
    "url": {"url", "sha256"},
    "program": {"program"},
}
GRADERS = (
    "math choice instructions exact contains code tools sql lean equal pairwise rubric deck outside"
).split()
NO_TASK = "no task in this record; bench-prepare writes it"
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
TEMPLATES = cli.ROOT / "assets" / "prompts" / "bench"
COMMIT = re.compile(r"[0-9a-f]{40}\Z")


@functools.cache
def load(name: str) -> BenchmarkSpec:
    """The description of a benchmark, by name. Raises cli.BadConfig naming file and key."""
    path = _path(name)
    kind: str | None = "gym"
    if name.startswith("gym-"):
        spec = gym.description(name.removeprefix("gym-"))
    else:
        try:
            spec = tomllib.loads(path.read_text())
        except FileNotFoundError:
            raise cli.BadConfig(f"no benchmark {path}{cli.instead(name, names())}") from None
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise cli.BadConfig(f"{path}: {error}") from None
        source = spec.get("source")
        kind = next((each for each in SOURCES if isinstance(source, dict) and each in source), None)
        if said := _fault(spec, kind):
            raise cli.BadConfig(f"{path}: {said}")
    known = {"name": name, "kind": kind, "path": str(path), "folder": str(path.parent)}
    return cast(BenchmarkSpec, {**known, "samples": 1, "metric": "accuracy", **spec})


def of(task: Task) -> BenchmarkSpec:
    """The description of a row's benchmark; of one that another tool graded, its name and its metric."""
    if "metric" not in task:
        return load(task["bench"])
    name = {"name": task["bench"], "title": task["bench"], "metric": task["metric"]}
    return cast(BenchmarkSpec, {**name, "kind": "imported", "grader": "imported"})


def _fault(spec: Record, kind: str | None) -> str | None:
    """What is wrong with a description, whose source is of this kind; None where nothing is."""
    needed = {"source", "title", "grader", "licence"}
    if "prompt" in spec:  # prompts for decks, which nothing here grades
        needed = {"source"}
    elif kind in ("hub", "package"):
        needed.add("row")
    if wrong := (set(spec) - FIELDS) | (needed - set(spec)):
        return f"the key {sorted(wrong)[0]!r} is unknown or missing"
    source, grader, margin = spec["source"], spec.get("grader", "math"), spec.get("margin", MARGIN)
    fits = kind is not None and set(source) <= SOURCES[kind]
    if kind in ("hub", "package"):
        fits &= bool({"split", "files", "file"} & set(source))
    if not fits or (kind == "generated" and not {"rows", "seed"} <= set(source)):
        has = f"it has one of {', '.join(SOURCES)}, a hub one also split or files"
        return f"source is {source}; {has}, a generated one rows and seed"
    revision = source.get("revision", "0" * 40)
    if kind == "hub" and not COMMIT.match(revision):
        return f"revision {revision!r} can move; it is a commit of 40 letters, or not there"
    if kind == "generated" and str(source["generated"]) not in generators.GENERATORS:
        return f"generated {source['generated']!r} is none of {', '.join(generators.GENERATORS)}"
    if grader not in GRADERS:
        return f"grader {grader!r} is none of {', '.join(GRADERS)}"
    if grader in ("equal", "pairwise", "rubric") and not (spec.get("judge") or {}).get("model"):
        return f"grader {grader!r} needs judge = {{ model = .. }}, an entry of assets/models.toml"
    if grader == "outside" and "note" not in spec:
        return "a grader outside needs a note that says which"
    if not isinstance(margin, int | float) or not 0 < margin < 1:
        return f"margin is {margin!r}; it is a share between 0 and 1"
    return None


def lack(spec: BenchmarkSpec, task: Task) -> str | None:
    """What keeps the grader of a benchmark from grading a row (assets/schemas/expected.json); None where nothing does."""
    grader = spec["grader"]
    expected: Any = task.get("expected")
    schema = config_files.validator("expected.json")
    if error := next(schema.iter_errors({grader: expected}), None):
        return f"expected of a row for {grader}: {error.message[:200]}"
    if grader == "choice":
        choices = task["fields"].get("choices")
        if not isinstance(choices, list) or not 2 <= len(choices) <= len(LETTERS):
            return f"fields.choices of a row for choice: a list of 2 to {len(LETTERS)}"
        if expected not in LETTERS[: len(choices)]:
            return f"expected {expected!r} is the letter of none of its {len(choices)} choices"
    if grader == "instructions" and len(expected["instructions"]) != len(expected["arguments"]):
        return "expected of a row for instructions: as many arguments as instructions"
    return None


def names() -> list[str]:
    """Every benchmark that has a description, ours and those of this checkout alone."""
    return sorted({path.stem for folder in _folders() for path in folder.glob("*.toml")})


def usable() -> list[str]:
    """Those of `names` whose descriptions can be used; of each other one, stderr says why not."""
    found = []
    for name in names():
        try:
            load(name)
        except cli.BadConfig as error:
            cli.say(f"left out: {error}")
        else:
            found.append(name)
    return found


def _folders() -> list[Path]:
    """Where descriptions lie; of two with the same name the first counts."""
    own = os.environ.get("DECKSMITH_BENCHMARKS") or cli.ROOT / "data" / "benchmarks"
    return [cli.ROOT / "assets" / "benchmarks", Path(own)]


def _path(name: str) -> Path:
    """The description of that name; where there is none, where ours would lie."""
    paths = [folder / f"{name}.toml" for folder in _folders()]
    return next((path for path in paths if path.is_file()), paths[0])


# Rows


class Card(TypedDict, total=False):
    """What is known of prepared rows; it lies beside them."""

    title: str
    source: RowSource
    licence: str
    description: str  # a hash of what they were made by
    revision: str  # of the source, as it came
    rows: int
    sha256: str  # of the rows
    prepared: str  # when, ISO 8601 in UTC


def prepare(name: str, folder: Path) -> Iterator[Record]:
    """Yield the rows of a benchmark as records (docs/records.md), and keep them with a card in
    `folder/name`; what is kept and was made by the same description is given without a look at its
    source. Raises what a reader of sources does, cli.BadData naming the row that does not fit."""
    spec, home = load(name), Path(folder) / name
    if "prompt" in spec or spec["kind"] == "own":
        # Prompts of the deck pipeline: nothing to grade here, nothing to keep.
        yield from _rows(spec, {})
        return
    others = ("margin", "path", "folder", "beside")
    said = {key: value for key, value in spec.items() if key not in others}
    file = home / "gym.jsonl"  # rows in Gym's format
    gym_rows = file if spec["kind"] == "gym" and file.is_file() else None
    made = stream.fingerprint(said | ({"file": _sha(file)} if gym_rows else {}))
    rows, known = home / "rows.jsonl", _card(home)
    same = spec["kind"] not in sources.LOCAL and known.get("description") == made
    if not same or not rows.is_file() or _sha(rows) != known["sha256"]:
        card: Card = {"title": spec["title"], "source": spec["source"], "licence": spec["licence"]}
        card["description"] = made
        card["rows"] = stream.write_records(rows, _rows(spec, card, gym_rows))
        card["sha256"] = _sha(rows)
        card["prepared"] = datetime.now(UTC).isoformat(timespec="seconds")
        stream.write(home / "card.json", json.dumps(card, indent=2, ensure_ascii=False) + "\n")
    yield from (record for _, record in stream.records(rows))


def kept() -> Path:
    """The folder of prepared rows and their cards."""
    return Path(os.environ.get("DECKSMITH_BENCH") or cli.ROOT / "data" / "bench")


def place(spec: BenchmarkSpec) -> str:
    """Where the rows of a benchmark are, in words: kept here, or what fetches or makes them."""
    if rows := _card(kept() / spec["name"]).get("rows"):
        return f"{rows:,} rows here"
    if "gated" in spec:
        return "gated"
    kinds = {"hub": "on the Hub", "url": "at an address", "package": "make .venv/.bench"}
    return kinds.get(spec["kind"], "made here")


def size(name: str, questions: Mapping[str, Sequence[BenchRecord]]) -> int | None:
    """How many rows the benchmark has of which these are questions, by its card; None where no card is
    of the same revision."""
    card = _card(kept() / name)
    revision = next(iter(questions.values()))[0]["task"].get("revision")
    return card.get("rows") if card.get("revision") == revision else None


def _card(home: Path) -> Card:
    """The card of prepared rows; an empty one where there is none."""
    try:
        return cast(Card, json.loads((home / "card.json").read_text()))
    except (OSError, ValueError):
        return {}


def _sha(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _rows(spec: BenchmarkSpec, card: Card, file: Path | None = None) -> Iterator[Record]:
    """Our records of a source's rows; `card` gets the revision that came. file: of rows in Gym's format."""
    source, name = spec["source"], spec["name"]
    if spec["kind"] == "own":
        yield from (record for _, record in stream.records(cli.ROOT / source["own"]))
        return
    if spec["kind"] == "gym":
        card["revision"] = gym.revision()
        yield from gym.records(spec, file)
        return
    revision, rows = sources.READERS[spec["kind"]](spec)
    card["revision"] = revision
    keep = stream.program(spec["where"]) if "where" in spec else None
    program = stream.program(spec.get("row") or spec.get("prompt") or ".")
    for number, row in enumerate(rows, 1):
        row = sources.DECODERS[spec["decode"]](row) if "decode" in spec else row
        if "databases" in source:
            row |= sources.database(Path(spec["folder"], source["databases"]), str(row["db_id"]))
        try:
            if keep and not keep(row):
                continue
            made = program(row)
        except (ValueError, TypeError) as error:
            said = f"{_shown(spec)} does not fit it: {error}"
            raise cli.BadData(f"{name}: row {number}: {said}") from None
        if "prompt" in spec:
            place = {"path": source.get("hub"), "revision": revision, "split": source.get("split")}
            yield {**made, "source": made.get("source", place)}
        else:
            yield _task(spec, revision, number, made)


def _shown(spec: BenchmarkSpec) -> str:
    """The path of a description as people know it."""
    path = Path(spec["path"])
    return str(path.relative_to(cli.ROOT) if path.is_relative_to(cli.ROOT) else path)


def _task(spec: BenchmarkSpec, revision: str, number: int, made: generators.SourceRow) -> Record:
    """The record of a row, from what the description made of it. Raises cli.BadData for a value that is not there."""
    where = f"{spec['name']}: row {number}"
    if not isinstance(made, dict) or not isinstance(made.get("fields"), dict):
        raise cli.BadData(f'{where}: {_shown(spec)} makes no "fields" (an object) of it')
    for key, value in {**made["fields"], **made}.items():
        if value is None:
            raise cli.BadData(f"{where} has no {key}")
    task: Task = {
        "bench": spec["name"],
        "split": spec["source"].get("split"),
        "fields": made["fields"],
        "expected": made.get("expected"),
        "subset": made.get("subset"),
        "revision": revision,
    }
    record: Record = {"id": f"{spec['name']}-{number:05d}", "task": task}
    if said := lack(spec, task):
        raise cli.BadData(f"{where}: {said}")
    beside = ("messages", "tools", "tool_code")
    return record | {key: value for key, value in made.items() if key in beside}


# Prompts


def order(record: BenchRecord) -> list[int]:
    """In which order a record's choices are shown: indices of task.fields.choices. Where the benchmark shuffles them it is drawn by the id
    of the question, so that the grader finds the same letter; samples of a question share it."""
    found = list(range(len(record["task"]["fields"].get("choices") or ())))
    if load(record["task"]["bench"]).get("shuffle"):
        random.Random(f"choices {prompt_of(record)}").shuffle(found)
    return found


def asked(record: Mapping[str, Any]) -> str:
    """What a row asks, as one text without its template. Raises cli.BadData."""
    if not isinstance((record.get("task") or {}).get("fields"), dict):
        raise cli.BadData(f"{record['id']}: {NO_TASK}")
    return " ".join(
        " ".join(map(str, value)) if isinstance(value, list) else str(value)
        for value in record["task"]["fields"].values()
    )


def right_letter(record: BenchRecord) -> str:
    """The letter of the right choice as the model saw it; `expected` is the letter in the order of the source."""
    return LETTERS[order(record).index(LETTERS.index(record["task"]["expected"]))]


def template(name: str, folder: str = "") -> str:
    """The text of a template: a name in assets/prompts/bench or a path, from `folder`. Raises cli.BadConfig."""
    path = TEMPLATES / f"{name}.txt"
    path = path if path.is_file() else Path(folder, name)
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        there = ", ".join(sorted(path.stem for path in TEMPLATES.glob("*.txt")))
        raise cli.BadConfig(f"no template {name}; there are: {there}") from None


def filled(text: str, fields: Record, where: str) -> str:
    """`text` with {name} replaced by fields. Raises cli.BadData naming a field that is not there."""

    def value(match: re.Match[str]) -> str:
        if match[1] not in fields:
            said = f"the template asks for {{{match[1]}}}; the row has {', '.join(sorted(fields))}"
            raise cli.BadData(f"{where}: {said}")
        return str(fields[match[1]])

    return re.sub(r"\{([a-z_]+)\}", value, text)


def messages(record: BenchRecord, shots: Sequence[Record] = (), n: int = 0) -> list[Record]:
    """What the model is asked of one row. `shots`: example rows with fields and an answer, of which `n`
    come before the question as turns of their own, drawn by the question's id. Raises cli.BadData
    naming what the row lacks."""
    if "messages" in record:  # a prompt of the deck pipeline
        return record["messages"]
    try:
        task, spec = record["task"], load(record["task"]["bench"])
    except (KeyError, TypeError):
        raise cli.BadData(f"{record['id']}: {NO_TASK}") from None
    if said := lack(spec, task):
        raise cli.BadData(f"{record['id']}: {said}")
    fields, ident = task["fields"], prompt_of(record)
    text = template(spec.get("template") or spec["name"], spec["folder"])
    turns: list[Record] = []
    others = [shot for shot in shots if shot["fields"] != fields and shot["id"] != ident]
    for shot in random.Random(f"shots {ident}").sample(others, min(n, len(others))):
        question = filled(text, _lettered(shot["fields"]), shot["id"])
        turns.append({"role": "user", "content": question})
        turns.append({"role": "assistant", "content": shot["answer"]})
    content: Any = filled(text, _lettered(fields, order(record)), record["id"])
    if pictures := [_picture(image, record) for image in fields.get("images") or ()]:
        content = [{"type": "text", "text": content}, *pictures]
    return [*turns, {"role": "user", "content": content}]


def _lettered(fields: Record, shown: Sequence[int] | None = None) -> Record:
    """Fields with the choices as lettered lines, in this order (None: the source's own), and their letters."""
    choices = fields.get("choices")
    if not choices:
        return fields
    places = enumerate(shown or range(len(choices)))
    lines = [f"{LETTERS[at]}. {choices[place]}" for at, place in places]
    *letters, last = list(LETTERS[: len(choices)])
    return fields | {"choices": "\n".join(lines), "letters": f"{', '.join(letters)} or {last}"}


def _picture(image: str, record: BenchRecord) -> Record:
    """A picture as a part of a message: by its address, or one in this folder as data."""
    url = image
    if not image.startswith(("data:", "https://", "http://")):
        path = Path(image).resolve()
        # Rows come from elsewhere, and what they name would be sent away.
        if not path.is_relative_to(Path.cwd()):
            raise cli.BadData(f"{record['id']}: the picture {image} is not in {Path.cwd()}")
        try:
            data = base64.b64encode(path.read_bytes()).decode()
        except OSError as error:
            raise cli.BadData(f"{record['id']}: {error}") from None
        url = f"data:{mimetypes.guess_type(image)[0] or 'image/png'};base64,{data}"
    return {"type": "image_url", "image_url": {"url": url}}
