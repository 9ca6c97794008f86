"""A trainer's evaluation file (slime's and miles' `--eval-config`), checked before the training.

The file is read as the delegate client reads it: by OmegaConf, with its interpolations. A mistake
in it shows late: some stop the training at its first evaluation, some leave out an evaluation in
silence, and some ask for other sampling than the file says (slime v0.2.1, miles 2026).
"""

import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal, NamedTuple
from urllib.parse import urlsplit

import yaml
from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field

from decksmith.bench.evalserver import request
from decksmith.core import cli, validation

# Bytes, entries and levels of a file; such a file has a few hundred bytes.
SIZE, NODES, DEPTH = 1 << 20, 20_000, 50
TOKEN = re.compile(r"Bearer \S+\s*\Z")
# What requests and http.client let through.
HEADER = re.compile(r"(?!\s)[^\r\n\x00\u0100-\U0010ffff]*\Z")
URL = "${oc.env:DECKSMITH_EVAL_URL}/evaluate"
SECRET = "Bearer ${oc.env:DECKSMITH_EVAL_TOKEN}"
SHAPE = "one mapping `eval` with datasets, defaults and delegate below it"

Path = tuple[int | str, ...]  # the keys, in small letters, and indices that lead to a place
Tree = dict[str, Any]  # a mapping of the file
Placed = tuple[Path, str]  # where something is wrong, and the sentence on it


class FileFinding(NamedTuple):
    """What is wrong at one line of the file, and what to write instead."""

    line: int
    message: str


class Sampling(request.Sampling):
    """The sampling values that a delegate or one of its datasets may set. Text is a number where it
    says one, as a variable does."""

    model_config = ConfigDict(strict=False)


class Dataset(Sampling):
    """A benchmark of a delegate."""

    name: request.Name = Field(default="", validate_default=True)


def _header(value: object) -> object:
    if not isinstance(value, str) or not HEADER.match(value):
        words = "put it in quotes, without a line end or letters beyond Latin-1"
        raise ValueError(f"a header cannot be {value!r}; {words}")
    return value


def _bearer(value: str) -> str:
    if not TOKEN.match(value):
        raise ValueError(f"it has no token, and the server answers 401; write {SECRET}")
    return value


Header = Annotated[str, BeforeValidator(_header)]


class Headers(validation.Body):
    """The headers of a delegate, their names in small letters."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Header]
    authorization: Annotated[Header, AfterValidator(_bearer)] = Field(description=SECRET)
    x_run_id: Header = Field(
        alias="x-run-id",
        description="a name of this training, so that no evaluation is taken for another's",
    )


def _lowered(headers: object) -> object:
    if not isinstance(headers, dict):
        return headers
    return {str(name).lower(): value for name, value in headers.items()}


def _address(url: object) -> object:
    try:
        parts = urlsplit(str(url))
        is_server = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        is_server = False
    if not is_server or (parts.path.rstrip("/"), parts.query) != ("/evaluate", ""):
        words = "the training dies, or the delegate is left out in silence"
        raise ValueError(f"{url!r} is no http://HOST:PORT/evaluate: {words}; write {URL}")
    if parts.username or parts.password:
        raise ValueError(f"its password is written to the trainer's log; write {URL}")
    return url


class Delegate(validation.Body):
    """An entry of eval.delegate."""

    model_config = ConfigDict(strict=False)
    name: Literal["skills"] = Field(
        description="skills: others stop the training, or are left out in silence"
    )
    url: Annotated[Any, AfterValidator(_address)] = Field(default=None, validate_default=True)
    timeout_secs: int = Field(
        default=3600, ge=1, description="a whole number of seconds from 1, for each silence"
    )
    max_retries: int = Field(
        default=1,
        validate_default=True,
        ge=10,
        description="at least 10 attempts: fewer end before a server is back that Slurm starts anew, "
        "and the training dies; write max_retries: 20",
    )
    headers: Annotated[Headers, BeforeValidator(_lowered)] = Field(
        default={}, validate_default=True
    )
    defaults: Sampling = Sampling()
    datasets: list[Dataset] = Field(
        default=[],
        min_length=1,
        validate_default=True,
        description="a list of benchmarks, and nothing is asked of the server",
    )


class Evaluation(validation.Body):
    """What stands below `eval`; the trainer's own datasets and defaults are none of ours."""

    datasets: Any = None
    defaults: Any = None
    delegate: list[Delegate] = Field(
        default=[],
        min_length=1,
        validate_default=True,
        description="a list of delegates, and the server is never asked",
    )


def read(path: str) -> str:
    """The text of an evaluation file. Raises cli.Missing, cli.BadData."""
    try:
        with open(path, "rb") as file:
            return file.read(SIZE + 1).decode()
    except UnicodeDecodeError as error:
        name = str(path).replace("/dev/stdin", "stdin:1")
        raise cli.BadData(f"{name}: not UTF-8 text (byte {error.start})") from None
    except OSError as error:
        words = f"{path}: {error.strerror}; assets/multi_tasks.yaml is one to begin with"
        raise cli.Missing(words) from None


def check(text: str) -> list[FileFinding]:
    """What is wrong with an evaluation file, by line. Variables are read from this process's
    environment; those that are not set are the only findings until they are."""
    return sorted(_Check(text).findings)


class _Check:
    """The findings of one file."""

    def __init__(self, text: str) -> None:
        self.findings: list[FileFinding] = []
        self.lines: dict[Path, int] = {}
        self.written: Any = None  # the file as it stands there, interpolations and all
        try:
            setting = self._read(text)
        except (yaml.YAMLError, RecursionError, ValueError) as error:
            if mark := getattr(error, "problem_mark", None):
                self.lines[()] = mark.line + 1
            why = getattr(error, "problem", None) or str(error).partition("\n")[0]
            self.add((), f"the trainer cannot read this: {why}")
        else:
            if not self.findings:
                self._judge(setting)

    def add(self, path: Path, message: str) -> None:
        """A finding at a place, or at the next one around it that has a line."""
        path = tuple(step.lower() if isinstance(step, str) else step for step in path)
        while path and path not in self.lines:  # from an alias, or merged in: where it was used
            path = path[:-1]
        self.findings.append(FileFinding(self.lines.get(path, 1), message))

    def _read(self, text: str) -> Any:
        """The file as plain containers; a finding for each value that cannot be resolved. Raises
        YAMLError, and ValueError or RecursionError for what is no such file."""
        from omegaconf import OmegaConf
        from omegaconf.errors import OmegaConfBaseException

        if len(text) > SIZE:
            raise ValueError(f"{len(text)} characters are no evaluation file")
        self._note_lines(yaml.compose(text, Loader=yaml.SafeLoader), ())
        try:
            loaded = OmegaConf.create(text)
            self.written = OmegaConf.to_container(loaded)
        except OmegaConfBaseException as error:
            raise ValueError(str(error)) from None
        while True:
            try:
                return OmegaConf.to_container(loaded, resolve=True)
            except OmegaConfBaseException as error:
                steps = re.findall(r"[^.\[\]]+", str(error.full_key))
                path = tuple(int(step) if step.isdigit() else step for step in steps)
                said = str(error).splitlines()[0]
                if unset := re.search(r"Environment variable '(.*?)' not found", said):
                    said = f"the variable {unset[1]} is not set here"
                words = "export it where the trainer starts, or write ${oc.env:NAME,default}"
                self.add(path, f"{said}: the training stops at its start; {words}")
                assert error.parent_node is not None
                error.parent_node[error.key] = None  # and on to the next

    def _note_lines(self, node: Any, path: Path) -> None:
        """Note the line of every key and item. Raises ValueError for more than a file of a few
        hundred lines has (aliases of aliases)."""
        if len(self.lines) > NODES or len(path) > DEPTH:
            raise ValueError("too many entries, or nested too deeply")
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                if not isinstance(key, yaml.ScalarNode):
                    words = "a key that is a list or a mapping"
                    raise yaml.MarkedYAMLError(problem=words, problem_mark=key.start_mark)
                where = (*path, key.value.lower())
                self.lines.setdefault(where, key.start_mark.line + 1)
                self._note_lines(value, where)
        elif isinstance(node, yaml.SequenceNode):
            for number, value in enumerate(node.value):
                self.lines.setdefault((*path, number), value.start_mark.line + 1)
                self._note_lines(value, (*path, number))

    def _judge(self, setting: Any) -> None:
        top: Path = ()
        keys = {*Evaluation.model_fields}
        if isinstance(setting, dict) and "eval" in setting:
            for key in setting.keys() & keys:
                self.add((key,), f"`{key}` stands beside `eval`, and is ignored; write {SHAPE}")
            top, setting, self.written = ("eval",), setting["eval"], self.written["eval"]
        if not isinstance(setting, dict) or not (top or setting.keys() & keys):
            self.add(top, f"the trainer finds no evaluation in it; write {SHAPE}")
            return
        found = validation.problems(Evaluation, setting)
        for judged in (_local, _lost_defaults, self._secrets, _same_names):
            found += judged(setting)
        for place, sentence in found:
            self.add((*top, *place), sentence)

    def _secrets(self, setting: Tree) -> Iterator[Placed]:
        """Tokens that stand in the file itself."""
        for number, each in enumerate(_mappings(setting.get("delegate"))):
            headers = each.get("headers")
            for name, value in headers.items() if isinstance(headers, dict) else ():
                raw = str(self.written["delegate"][number]["headers"][name])
                is_token = str(name).lower() == "authorization" and TOKEN.match(str(value))
                if is_token and "${" not in raw:
                    words = f"the token stands in the file; write {SECRET}, and make a new one"
                    yield ("delegate", number, "headers", str(name)), words


def _local(setting: Tree) -> Iterator[Placed]:
    """What is wrong with the trainer's own datasets."""
    found = list(_local_datasets(setting))
    words = "the trainer refuses to start; name at least one with name and path"
    if not found:
        yield ("datasets",), f"eval.datasets is empty or missing: {words}"
    for key, name, one in found:
        if not name or not one.get("path"):
            yield ("datasets", key), f"a dataset without name or path: {words}"


def _lost_defaults(setting: Tree) -> Iterator[Placed]:
    """Defaults of all datasets, which reach no delegate."""
    defaults = setting.get("defaults")
    for key in Sampling.model_fields.keys() & (defaults if isinstance(defaults, dict) else {}):
        for _, delegate, one in _benchmarks(setting):
            if key not in one and key not in (delegate.get("defaults") or {}):
                words = "the trainer's --eval-.. or --rollout-.. setting is asked for"
                words += "; write it below the delegate's own `defaults`"
                yield ("defaults", key), f"{key} is ignored for delegates, {words}"
                break


def _same_names(setting: Tree) -> Iterator[Placed]:
    """Benchmarks that are named twice, or like a dataset of the trainer's own."""
    local = {str(name) for _, name, _ in _local_datasets(setting)}
    seen: set[str] = set()
    for path, _, one in _benchmarks(setting):
        where, name = (*path, "name"), str(one.get("name") or "").strip()
        if name in local:
            words = "and the trainer logs both under one name; give it another"
            yield where, f"a local dataset is called {name!r} too, {words}"
        if (ours := request.ours(name)) in seen:
            yield where, f"{ours!r} is asked for above already, which the server refuses"
        seen |= {ours} - {""}


def _local_datasets(setting: Tree) -> Iterator[tuple[str | int, object, Tree]]:
    """(key, name, dataset) of the trainer's own."""
    found = setting.get("datasets")
    pairs = found.items() if isinstance(found, dict) else enumerate(found or [])
    for key, one in pairs if isinstance(found, dict | list) else ():
        one = one if isinstance(one, dict) else {}
        yield key, one.get("name") or (key if isinstance(found, dict) else None), one


def _mappings(found: object) -> list[Tree]:
    """The items of a list, an empty mapping for what is none."""
    items = found if isinstance(found, list) else []
    return [one if isinstance(one, dict) else {} for one in items]


def _benchmarks(setting: Tree) -> Iterator[tuple[Path, Tree, Tree]]:
    """(place, delegate, dataset) of each benchmark that is asked for."""
    for number, each in enumerate(_mappings(setting.get("delegate"))):
        for place, one in enumerate(_mappings(each.get("datasets"))):
            yield ("delegate", number, "datasets", place), each, one
