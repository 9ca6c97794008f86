"""A trainer's evaluation file (slime's and miles' `--eval-config`), checked before the training.

The file is read as the delegate client reads it: by OmegaConf, with its interpolations. A mistake
in it shows late: some stop the training at its first evaluation, some leave out an evaluation in
silence, and some ask for other sampling than the file says (slime v0.2.1, miles 2026).
"""

import difflib
import re
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, NamedTuple
from urllib.parse import urlsplit

import yaml
from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from decksmith.core import cli, validation
from decksmith.evalserver import sampling

# Bytes, entries and levels of a file; such a file has a few hundred bytes.
SIZE, NODES, DEPTH = 1 << 20, 20_000, 50
# Attempts of the client that last three minutes (pauses of 2, 4, 8, 16, then 30 s), in which a server
# is back that Slurm put into the queue again.
ATTEMPTS = 10
TOKEN = re.compile(r"Bearer \S+\Z")
# What requests and http.client let through.
HEADER = re.compile(r"(?!\s)[^\r\n\x00\u0100-\U0010ffff]*\Z")

STOPS = "the training stops at its first evaluation"
REFUSED = "the server refuses it, and the training dies after the last attempt"
# Each rule: what happens, and what to write instead.
RULES = {
    "yaml": ("the trainer cannot read this", "mend the file; each key stands once in a mapping"),
    "unset": (
        "unset, it stops the training at its start",
        "export it where the trainer starts, or write ${oc.env:NAME,default}",
    ),
    "interpolation": (
        "the training stops at its start",
        "write ${oc.env:NAME}, or ${key.of.this.file}",
    ),
    "root": (
        "the trainer finds no evaluation in it",
        "write one key `eval` with datasets, defaults and delegate below it",
    ),
    "ignored-key": ("it is ignored in silence", "remove it, or correct its name"),
    "unknown-key": (STOPS, "remove it, or correct its name"),
    "local-datasets": (
        "the trainer refuses to start",
        "name at least one local dataset with name and path below eval.datasets",
    ),
    "eval-defaults": (
        "it is ignored for delegates; the trainer's --eval-.. or --rollout-.. setting is asked for",
        "write it below this delegate's own `defaults`",
    ),
    "no-delegate": (
        "the server is never asked",
        "write `delegate:` as a list below `eval`: - name: skills",
    ),
    "delegate-name": (
        "the client knows `skills` alone, others stop the training or are left out in silence",
        "write `name: skills`",
    ),
    "url": (
        "without an address that ends in /evaluate the training dies, or leaves the delegate out",
        "write url: ${oc.env:DECKSMITH_EVAL_URL}/evaluate",
    ),
    "timeout": (STOPS, "write a whole number of seconds from 1; it limits each silence"),
    "retries": (
        "so many attempts end before a server is back that Slurm starts anew, and the training dies",
        "write max_retries: 20",
    ),
    "header": (STOPS, "put the value in quotes, without a line end or letters beyond Latin-1"),
    "token": (
        "the server answers 401, and the training dies after the last attempt",
        'write headers: {Authorization: "Bearer ${oc.env:DECKSMITH_EVAL_TOKEN}"}',
    ),
    "secret": (
        "a secret stands in the file, or is written to the trainer's log",
        "write ${oc.env:DECKSMITH_EVAL_TOKEN} in its place, and make a new token",
    ),
    "run": (
        "evaluations of two trainings can be taken for one",
        'write X-Run-Id: "${oc.env:SLURM_JOB_ID}" below headers, or a name of this training',
    ),
    "no-datasets": (
        "nothing is asked of the server",
        "name the benchmarks below this delegate's `datasets`",
    ),
    "dataset-name": (
        STOPS,
        "write a name without a colon, and n_samples_per_eval_prompt beside it",
    ),
    "unknown-benchmark": (REFUSED, "write a name that the server has"),
    "twice": (REFUSED, "keep one of the two"),
    "same-name": ("the trainer logs both under one name", "give the local dataset another name"),
    "value": (REFUSED, "write a value that a server can sample with"),
}
# The rule of a key whose value the schema refuses; of any other it is `value`.
RULE_OF = {
    "delegate": "no-delegate",
    "url": "url",
    "timeout_secs": "timeout",
    "max_retries": "retries",
    "headers": "header",
    "authorization": "token",
    "x-run-id": "run",
    "datasets": "no-datasets",
}

Path = tuple[int | str, ...]  # the keys, in small letters, and indices that lead to a place
Tree = dict[str, Any]  # a mapping of the file


class Finding(NamedTuple):
    """What is wrong at one line of the file."""

    line: int
    rule: str
    message: str

    def __str__(self) -> str:
        happens, write = RULES[self.rule]
        return f"{self.line}: {self.message}: {happens} ({self.rule}); {write}"


def _broken(rule: str, message: str) -> PydanticCustomError:
    """What a validator raises: the finding's rule and its message."""
    return PydanticCustomError(rule, "{text}", {"text": message})


class Section(validation.Body):
    """A mapping of the file, in the client's types: text is a number where it says one."""

    model_config = ConfigDict(strict=False)


def _bounded(key: str) -> Any:
    least, most = sampling.BOUNDS[key]
    return Field(default=None, ge=least, le=most)


class Sampling(Section):
    """The sampling values that a delegate or one of its datasets may set."""

    n_samples_per_eval_prompt: int | None = _bounded("n_samples_per_eval_prompt")
    temperature: float | None = _bounded("temperature")
    top_p: float | None = _bounded("top_p")
    top_k: int | None = _bounded("top_k")
    max_response_len: int | None = _bounded("max_response_len")


def _benchmark(name: object) -> str:
    text = str(name or "").strip()
    if not text or ":" in text:
        raise _broken("dataset-name", f"{text!r} is no name of a benchmark")
    known = sampling.names()
    if sampling.ours(text) not in known:
        words = f"the server has no benchmark {text!r}{_meant(text, known)}"
        raise _broken("unknown-benchmark", f"{words}; it has {', '.join(known)}")
    return text


class Dataset(Sampling):
    """A benchmark of a delegate."""

    name: Annotated[str, BeforeValidator(_benchmark)] = Field(default="", validate_default=True)


def _header(value: object) -> object:
    if not isinstance(value, str) or not HEADER.match(value):
        raise _broken("header", f"a header cannot be {value!r}")
    return value


def _bearer(value: str) -> str:
    if not TOKEN.match(value.strip()):
        raise _broken("token", "Authorization is not `Bearer TOKEN`, or the token is empty")
    return value


Header = Annotated[str, BeforeValidator(_header)]


class Headers(validation.Body):
    """The headers of a delegate, their names in small letters."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Header]
    authorization: Annotated[Header, AfterValidator(_bearer)]
    x_run_id: Header = Field(alias="x-run-id")


def _lowered(headers: object) -> object:
    if not isinstance(headers, dict):
        return headers
    return {str(name).lower(): value for name, value in headers.items()}


def _skills(name: object) -> object:
    if name != "skills":
        raise _broken("delegate-name", f"a delegate is called {name!r}")
    return name


def _address(url: object) -> object:
    try:
        parts = urlsplit(str(url))
        is_server = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        is_server = False
    if not is_server or (parts.path.rstrip("/"), parts.query) != ("/evaluate", ""):
        raise _broken("url", f"url is {url!r}")
    if parts.username or parts.password:
        raise _broken("secret", "the address has a password")
    return url


class Delegate(Section):
    """An entry of eval.delegate."""

    name: Annotated[Any, AfterValidator(_skills)] = Field(default=None, validate_default=True)
    url: Annotated[Any, AfterValidator(_address)] = Field(default=None, validate_default=True)
    timeout_secs: int = Field(default=3600, ge=1)
    max_retries: int = Field(default=1, ge=ATTEMPTS, validate_default=True)
    headers: Annotated[Headers, BeforeValidator(_lowered)] = Field(
        default={}, validate_default=True
    )
    defaults: Sampling = Sampling()
    datasets: list[Dataset] = Field(default=[], min_length=1, validate_default=True)


class Evaluation(Section):
    """What stands below `eval`; the trainer's own datasets and defaults are none of ours."""

    datasets: Any = None
    defaults: Any = None
    delegate: list[Delegate] = Field(default=[], min_length=1, validate_default=True)


def read(path: str) -> str:
    """The text of an evaluation file. Raises cli.Missing, cli.BadData."""
    try:
        with open(path, "rb") as file:
            return file.read(SIZE + 1).decode()
    except UnicodeDecodeError as error:
        raise cli.BadData(f"{path}: not UTF-8 text (byte {error.start})") from None
    except OSError as error:
        words = f"{path}: {error.strerror}; assets/multi_tasks.yaml is one to begin with"
        raise cli.Missing(words) from None


def check(text: str) -> list[Finding]:
    """What is wrong with an evaluation file, by line. Variables are read from this process's
    environment; those that are not set are the only findings until they are."""
    return sorted(_Check(text).findings)


class _Check:
    """The findings of one file."""

    def __init__(self, text: str) -> None:
        self.findings: list[Finding] = []
        self.lines: dict[Path, int] = {}
        self.written: Any = None  # the file as it stands there, interpolations and all
        try:
            setting = self._read(text)
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            self.lines[()] = mark.line + 1 if mark else 1
            self.add("yaml", (), getattr(error, "problem", None) or str(error).splitlines()[0])
        except (RecursionError, ValueError) as error:
            self.add("yaml", (), str(error).partition("\n")[0])
        else:
            if not self.findings:
                self._judge(setting)

    def add(self, rule: str, path: Path, message: str) -> None:
        """A finding at a place, or at the next one around it that has a line."""
        path = tuple(step.lower() if isinstance(step, str) else step for step in path)
        while path and path not in self.lines:  # from an alias, or merged in: where it was used
            path = path[:-1]
        self.findings.append(Finding(self.lines.get(path, 1), rule, message))

    # Reading

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
                    self.add("unset", path, f"the variable {unset[1]} is not set here")
                else:
                    self.add("interpolation", path, said)
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

    # The rules

    def _judge(self, setting: Any) -> None:
        top: Path = ()
        if not isinstance(setting, dict) or not setting.keys() & {"eval", *Evaluation.model_fields}:
            self.add("root", (), "there is no key `eval`")
            return
        if "eval" in setting:
            for key in setting.keys() & {*Evaluation.model_fields}:
                self.add("ignored-key", (key,), f"`{key}` stands beside `eval` and not in it")
            top, setting, self.written = ("eval",), setting["eval"], self.written["eval"]
        if not isinstance(setting, dict):
            self.add("root", top, "`eval` holds no mapping")
            return
        try:
            Evaluation.model_validate(setting)
        except ValidationError as error:
            for each in error.errors(include_url=False):
                self._report(each, top)
        self._local(setting, (*top, "datasets"))
        self._lost_defaults(setting, (*top, "defaults"))
        self._secrets(setting, (*top, "delegate"))
        self._same_names(setting, top)

    def _report(self, error: ErrorDetails, top: Path) -> None:
        """The finding of what the schema says."""
        place = (*top, *error["loc"])
        key, kind = str(place[-1]), error["type"]
        if kind in RULES:
            self.add(kind, place, error["msg"])
        elif kind == "extra_forbidden":
            known = (
                Sampling if "defaults" in place else Dataset if "datasets" in place else Delegate
            )
            is_silent = len(error["loc"]) == 1 or "defaults" in place
            rule = "ignored-key" if is_silent else "unknown-key"
            self.add(rule, place, f"`{key}` is no key here{_meant(key, known.model_fields)}")
        elif kind == "model_type":
            rule = "dataset-name" if "datasets" in place else "delegate-name"
            self.add(rule, place, "this entry is no mapping with a name")
        elif kind == "missing":
            self.add(RULE_OF[key], place, f"there is no header {key.title()}")
        else:
            words = f"{key} is {str(error['input'])[:80]!r}: {error['msg']}"
            self.add(RULE_OF.get(key, "value"), place, words)

    def _local(self, setting: Tree, path: Path) -> None:
        """The trainer's own datasets, a list or a mapping by name."""
        found = list(_local_datasets(setting))
        if not found:
            self.add("local-datasets", path, "eval.datasets is empty, missing or no list")
        for key, name, one in found:
            if not name or not one.get("path"):
                self.add("local-datasets", (*path, key), "a dataset without name or path")

    def _lost_defaults(self, setting: Tree, path: Path) -> None:
        """Defaults of all datasets, which reach no delegate."""
        defaults = setting.get("defaults")
        for key in Sampling.model_fields.keys() & (defaults if isinstance(defaults, dict) else {}):
            for _, delegate, one in _benchmarks(setting):
                if key not in one and key not in (delegate.get("defaults") or {}):
                    self.add("eval-defaults", (*path, key), f"{key} stands in the wrong place")
                    break

    def _secrets(self, setting: Tree, path: Path) -> None:
        """Tokens that stand in the file itself."""
        delegates = setting.get("delegate")
        for number, each in enumerate(delegates if isinstance(delegates, list) else []):
            headers = each.get("headers") if isinstance(each, dict) else None
            for name, value in headers.items() if isinstance(headers, dict) else ():
                raw = str(self.written["delegate"][number]["headers"][name])
                is_token = str(name).lower() == "authorization" and TOKEN.match(str(value))
                if is_token and "${" not in raw:
                    self.add("secret", (*path, number, "headers", str(name)), "this is the token")

    def _same_names(self, setting: Tree, top: Path) -> None:
        """Benchmarks that are named twice, or like a dataset of the trainer's own."""
        local = {str(name) for _, name, _ in _local_datasets(setting)}
        seen: set[str] = set()
        for path, _, one in _benchmarks(setting):
            where, name = (*top, *path, "name"), str(one.get("name") or "").strip()
            if name in local:
                self.add("same-name", where, f"a local dataset is called {name!r} too")
            if (ours := sampling.ours(name)) in seen:
                self.add("twice", where, f"{ours!r} is asked for above already")
            seen |= {ours} - {""}


def _local_datasets(setting: Tree) -> Iterator[tuple[str | int, object, Tree]]:
    """(key, name, dataset) of the trainer's own."""
    found = setting.get("datasets")
    pairs = found.items() if isinstance(found, dict) else enumerate(found or [])
    for key, one in pairs if isinstance(found, dict | list) else ():
        one = one if isinstance(one, dict) else {}
        yield key, one.get("name") or (key if isinstance(found, dict) else None), one


def _benchmarks(setting: Tree) -> Iterator[tuple[Path, Tree, Tree]]:
    """(place, delegate, dataset) of each benchmark that is asked for."""
    delegates = setting.get("delegate")
    for number, each in enumerate(delegates if isinstance(delegates, list) else []):
        datasets = each.get("datasets") if isinstance(each, dict) else None
        for place, one in enumerate(datasets if isinstance(datasets, list) else []):
            if isinstance(one, dict):
                yield ("delegate", number, "datasets", place), each, one


def _meant(key: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(key, list(known), 1)
    return f" (did you mean {near[0]}?)" if near else ""
