"""The traps of a trainer's evaluation file (slime's and miles' `--eval-config`), found before the
first evaluation of a training run.

The file is read as the delegate client reads it: by OmegaConf, with its interpolations, against
the same typed fields. A mistake in it shows late: some stop the training at its first evaluation,
some leave out an evaluation in silence, and some ask for other sampling than the file says (slime
v0.2.1, miles 2026).
"""

import difflib
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, fields
from typing import Any
from urllib.parse import urlsplit

from decksmith.core import cli
from decksmith.evalserver import sampling

# Bytes, entries and levels of a file; such a file has a few hundred bytes.
SIZE, NODES, DEPTH = 1 << 20, 20_000, 50
# A server that is put back into the queue by Slurm comes after two to three minutes.
RESTART = 180

# Each rule with what to write instead.
RULES = {
    "yaml": "mend the file; each key stands once in a mapping",
    "unset": "export it where the trainer starts (`python3 -m decksmith.evalserver.trainer ADDRESS` prints the address and the token), or write ${oc.env:NAME,default}",
    "interpolation": "write ${oc.env:NAME}, or ${key.of.this.file}",
    "root": "write one key `eval` with datasets, defaults and delegate below it",
    "ignored-key": "remove it, or correct its name",
    "local-datasets": "name at least one local dataset with name and path below eval.datasets; there is no configuration of delegates alone",
    "local-dataset": "give it a name and a path",
    "eval-defaults": "write it below this delegate's own `defaults`",
    "no-delegate": "write `delegate:` as a list below `eval`: - name: skills",
    "delegate-name": "write `name: skills`",
    "url": "write url: ${oc.env:DECKSMITH_EVAL_URL}/evaluate",
    "unknown-key": "remove it, or correct its name",
    "type": "write a value of that type",
    "timeout": "write a whole number of seconds from 1; it limits each silence, and our server is silent for half a second at most",
    "retries": "write max_retries: 20",
    "header": "put the value in quotes",
    "token": 'write headers: {Authorization: "Bearer ${oc.env:DECKSMITH_EVAL_TOKEN}"}',
    "secret": "write ${oc.env:DECKSMITH_EVAL_TOKEN} in its place, and make a new token: this one is in a file",
    "run": 'write X-Run-Id: "${oc.env:SLURM_JOB_ID}" below headers, or another name that this training alone has',
    "no-datasets": "name the benchmarks below this delegate's `datasets`",
    "dataset-name": "write a name without a colon; how often each question is asked is n_samples_per_eval_prompt",
    "unknown-benchmark": "write a name that the server has",
    "twice": "keep one of the two",
    "same-name": "give the local dataset another name",
    "value": "write a value that a server can sample with",
}
EVAL_KEYS = ("datasets", "defaults", "delegate")
TOKEN = re.compile(r"Bearer \S+\Z")
# What requests and http.client let through.
HEADER = re.compile(r"(?!\s)[^\r\n\x00\u0100-\U0010ffff]*\Z")


@dataclass
class Dataset:
    """A benchmark of a delegate, in the client's types."""

    name: str = ""
    n_samples_per_eval_prompt: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    max_response_len: int | None = None


@dataclass
class Delegate:
    """An entry of eval.delegate, in the client's types."""

    name: str = ""
    url: str | None = None
    timeout_secs: int = 3600
    max_retries: int = 1
    headers: dict[str, Any] = field(default_factory=dict)
    defaults: dict[str, Any] = field(default_factory=dict)
    datasets: list[Any] = field(default_factory=list)


Path = tuple[str | int, ...]  # the keys and indices that lead to a place in the file
Finding = dict[str, Any]
SAMPLING = [each.name for each in fields(Dataset) if each.name != "name"]


def check(text: str, name: str, benchmarks: Collection[str] | None = None) -> list[Finding]:
    """What is wrong with the evaluation file `text` called `name`: [{"file", "line", "rule",
    "key", "message", "remedy"}] by line.

    benchmarks: the names that the server knows; by default those of assets/benchmarks. Variables
    are read from this process's environment.
    """
    return sorted(_Check(text, name, benchmarks).findings, key=lambda one: one["line"])


def patience(attempts: int) -> int:
    """Seconds that the client waits in all, between so many attempts that are refused at once: 2,
    4, 8, 16, then 30 after each."""
    return sum(min(2**number, 30) for number in range(1, max(1, attempts)))


def summary(text: str) -> str:
    """One sentence about what a file without findings will evaluate."""
    from omegaconf import OmegaConf

    setting: Any = OmegaConf.to_container(OmegaConf.create(text), resolve=True)
    said = []
    for entry in setting.get("eval", setting)["delegate"]:
        asked = [{**entry.get("defaults", {}), **one} for one in entry["datasets"]]
        said.append(f"{' '.join(map(_named, asked))} at {entry['url']}")
    return "; ".join(said)


def _named(dataset: dict[str, Any]) -> str:
    samples = dataset.get("n_samples_per_eval_prompt")
    name = dataset["name"]
    asked = f"{name}:{samples}" if samples else name
    return asked if sampling.ours(name) == name else f"{asked} (here {sampling.ours(name)})"


class _Check:
    def __init__(self, text: str, name: str, benchmarks: Collection[str] | None) -> None:
        self.file = name
        self.findings: list[Finding] = []
        self.lines: dict[Path, int] = {}
        self.bad: set[Path] = set()  # what cannot be resolved, or has the wrong type
        self.filled: set[Path] = set()  # what an interpolation fills
        self.benchmarks = sampling.names() if benchmarks is None else benchmarks
        setting = self._read(text)
        if setting is not None:
            self._root(setting)

    def add(self, rule: str, path: Path, message: str, remedy: str | None = None) -> None:
        """A finding at the place of `path`, a tuple of keys and indices."""
        while path and path not in self.lines:  # from an alias, or merged in: where it was used
            path = path[:-1]
        self.findings.append(
            {
                "file": self.file,
                "line": self.lines.get(path, 1),
                "rule": rule,
                "key": _dotted(path),
                "message": message,
                "remedy": remedy or RULES[rule],
            }
        )

    # Reading

    def _read(self, text: str) -> dict[str, Any] | None:
        """The file as plain containers, interpolations resolved; None where there is no mapping.
        What cannot be resolved is None in it."""
        import yaml
        from omegaconf import OmegaConf
        from omegaconf.errors import OmegaConfBaseException

        if len(text) > SIZE:
            self.add("yaml", (), f"{len(text)} characters are no evaluation file")
            return None
        try:
            self._places(yaml.compose(text, Loader=yaml.SafeLoader), ())
            loaded = OmegaConf.create(text)
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            self.lines[()] = mark.line + 1 if mark else 1
            why = getattr(error, "problem", None) or str(error).splitlines()[0]
            self.add("yaml", (), f"the trainer cannot read this: {why}")
            return None
        except (OmegaConfBaseException, RecursionError, ValueError) as error:
            why = str(error).splitlines()[0] if str(error) else "nested too deeply"
            self.add("yaml", (), f"the trainer cannot read this: {why}")
            return None
        if not OmegaConf.is_dict(loaded) or not loaded:
            why = "no mapping at the root: the trainer finds no evaluation in it"
            self.add("root", (), why)
            return None
        return self._resolved(loaded, ())

    def _places(self, node: Any, path: Path) -> None:
        """Note the line of every key and item. Raises ValueError for more than a file of a few
        hundred lines has (aliases of aliases)."""
        import yaml

        if len(self.lines) > NODES or len(path) > DEPTH:
            raise ValueError("too many entries, or nested too deeply")
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                if not isinstance(key, yaml.ScalarNode):
                    raise yaml.MarkedYAMLError(
                        problem="a key that is a list or a mapping", problem_mark=key.start_mark
                    )
                where = (*path, key.value)
                self.lines.setdefault(where, key.start_mark.line + 1)
                self._places(value, where)
        elif isinstance(node, yaml.SequenceNode):
            for number, value in enumerate(node.value):
                self.lines.setdefault((*path, number), value.start_mark.line + 1)
                self._places(value, (*path, number))

    def _resolved(self, node: Any, path: Path) -> Any:
        """A mapping or a list as plain containers."""
        from omegaconf import OmegaConf

        if OmegaConf.is_dict(node):
            return {key: self._value(node, key, (*path, str(key))) for key in list(node.keys())}
        return [self._value(node, number, (*path, number)) for number in range(len(node))]

    def _value(self, node: Any, key: Any, where: Path) -> Any:
        """What stands under a key, interpolations resolved; None, and a finding, where that cannot
        be done."""
        from omegaconf import OmegaConf
        from omegaconf.errors import OmegaConfBaseException

        try:
            filled = OmegaConf.is_interpolation(node, key)
            if filled:
                self.filled.add(where)
            value = node[key]
            if not OmegaConf.is_config(value):
                return value
            if filled:
                return OmegaConf.to_container(value, resolve=True)
            return self._resolved(value, where)
        except OmegaConfBaseException as error:
            self.bad.add(where)
            self._unresolved(error, where)
            return None

    def _unresolved(self, error: Exception, where: Path) -> None:
        from omegaconf.errors import InterpolationResolutionError

        line = str(error).splitlines()[0]
        unset = re.search(r"Environment variable '(.*?)' not found", line)
        if unset and isinstance(error, InterpolationResolutionError):
            self.add(
                "unset",
                where,
                f"the variable {unset[1]} is not set here; unset, it stops the training at its start",
            )
        else:
            self.add("interpolation", where, f"{line}: the training stops at its start")

    # The rules

    def _root(self, setting: dict[str, Any]) -> None:
        top: Path = ()
        if "eval" in setting:
            top = ("eval",)
            for key in setting.keys() - {"eval"}:
                if key in EVAL_KEYS:
                    self.add(
                        "ignored-key",
                        (str(key),),
                        f"`{key}` stands beside `eval` and not in it: the trainer ignores it",
                        "indent it, below `eval`",
                    )
            setting = setting["eval"]
            if not isinstance(setting, dict):
                self.add(
                    "root", top, "`eval` holds no mapping: the trainer finds no evaluation in it"
                )
                return
        elif not setting.keys() & set(EVAL_KEYS):
            self.add("root", (), "there is no key `eval`")
            return
        for key in setting.keys() - set(EVAL_KEYS):
            self.add(
                "ignored-key",
                (*top, str(key)),
                f"`{key}` is ignored in silence{_meant(key, EVAL_KEYS)}",
            )
        local = self._local(setting.get("datasets"), (*top, "datasets"))
        entries, where = setting.get("delegate"), (*top, "delegate")
        if not entries:
            self.add("no-delegate", where, "no delegate: the server is never asked")
            return
        if not isinstance(entries, list):
            self.add(
                "no-delegate",
                where,
                "`delegate` is no list: the training dies at its first evaluation",
            )
            return
        defaults = setting.get("defaults") or {}
        seen: dict[str, int] = {}  # of all delegates, the line of each benchmark
        for number, entry in enumerate(entries):
            self._delegate(
                entry,
                (*where, number),
                local,
                defaults if isinstance(defaults, dict) else {},
                (*top, "defaults"),
                seen,
            )

    def _local(self, found: Any, path: Path) -> dict[str, Path]:
        """The names of the trainer's own datasets, {name: path}."""
        if not found:
            self.add(
                "local-datasets",
                path,
                "eval.datasets is empty or missing: the trainer refuses to start (ValueError)",
            )
            return {}
        if not isinstance(found, (list, dict)):
            self.add(
                "local-datasets",
                path,
                "eval.datasets is no list: the trainer refuses to start (TypeError)",
            )
            return {}
        names: dict[str, Path] = {}
        keyed = isinstance(found, dict)
        for key, one in found.items() if isinstance(found, dict) else enumerate(found):
            where, name = (*path, key), None
            one = one or {}
            if isinstance(one, dict):
                if (*where, "name") in self.bad or (*where, "path") in self.bad:
                    continue
                name = one.get("name") or (key if keyed else None)
            if not name or not one.get("path"):
                self.add(
                    "local-dataset",
                    where,
                    "a dataset without name or path: the trainer refuses to start",
                )
            if name:
                names[str(name)] = where
        return names

    def _delegate(self, entry, path, local, outer, outer_path, seen):
        if not isinstance(entry, dict):
            self.add(
                "delegate-name",
                path,
                "this entry is no mapping: the training dies at its first evaluation",
            )
            return
        entry = self._typed(entry, Delegate, path)
        name = entry.get("name")
        if (*path, "name") in self.bad:
            pass
        elif not str(name or "").strip():
            self.add("delegate-name", path, "a delegate without a name is left out in silence")
        elif str(name).strip().lower() != "skills":
            self.add(
                "delegate-name",
                (*path, "name"),
                f"a delegate called {name!r} stops the training at its first evaluation, not at its start"
                " (terminal_bench was known to miles alone, from January to June 2026)",
            )
        elif name != "skills":
            self.add(
                "delegate-name",
                (*path, "name"),
                f"{name!r} is accepted and then left out: the client is known as `skills`, in these letters",
            )
        self._url(entry.get("url"), path)
        self._patience(entry, path)
        self._headers(entry.get("headers") or {}, path)
        defaults = entry.get("defaults") or {}
        for key in defaults.keys() - set(SAMPLING):
            self.add(
                "ignored-key",
                (*path, "defaults", str(key)),
                f"the default `{key}` is ignored in silence{_meant(key, SAMPLING)}",
            )
        defaults = self._sampling(
            {key: value for key, value in defaults.items() if key in SAMPLING}, (*path, "defaults")
        )
        datasets = entry.get("datasets")
        if (*path, "datasets") in self.bad:
            return
        if not isinstance(datasets, list) or not datasets:
            self.add(
                "no-datasets",
                (*path, "datasets"),
                "no datasets: nothing is asked of the server, with a warning in the log at most",
            )
            return
        lost = set()
        for number, one in enumerate(datasets):
            one = self._dataset(one, (*path, "datasets", number), local, seen)
            lost |= {
                key
                for key in SAMPLING
                if key in outer
                and key not in one
                and key not in defaults
                and outer[key] is not None
            }
        for key in sorted(lost):
            self.add(
                "eval-defaults",
                (*outer_path, key),
                f"the default {key} = {outer[key]} is ignored for delegates: what is asked for instead is the "
                "trainer's own --eval-.. or --rollout-.. setting",
            )

    def _typed(self, given: dict[str, Any], kind: type, path: Path) -> dict[str, Any]:
        """The mapping with each value in the client's type; what is of no such field, or of
        another type, is a finding and left out."""
        from omegaconf import OmegaConf
        from omegaconf.errors import OmegaConfBaseException

        known = {each.name for each in fields(kind)}
        found: dict[str, Any] = {}
        for key, value in given.items():
            where = (*path, str(key))
            if key not in known:
                self.add(
                    "unknown-key",
                    where,
                    f"`{key}` stops the training at its first evaluation (ConfigKeyError){_meant(key, known)}",
                )
            elif where in self.bad:
                found[key] = None
            elif kind is Dataset and value is None:
                found[key] = None
            else:
                try:
                    found[key] = OmegaConf.to_object(
                        OmegaConf.merge(OmegaConf.structured(kind), OmegaConf.create({key: value}))
                    )
                    found[key] = getattr(found[key], key)
                except (OmegaConfBaseException, TypeError) as error:
                    self.bad.add(where)
                    found[key] = None
                    rule = "timeout" if key == "timeout_secs" else "type"
                    self.add(
                        rule,
                        where,
                        f"{key}: {str(error).splitlines()[0]}; it stops the training at its first evaluation",
                    )
        return found

    def _url(self, url: str | None, path: Path) -> None:
        if (*path, "url") in self.bad:
            return
        if not (url or "").strip():
            self.add(
                "url",
                (*path, "url") if url is not None else path,
                "a delegate without url is left out in silence",
            )
            return
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            self.add("url", (*path, "url"), f"{url!r} is no address: {error}")
            return
        if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
            self.add(
                "url",
                (*path, "url"),
                f"{url!r} is no address of a server: the training dies at its first evaluation",
            )
            return
        if parts.path.rstrip("/") != "/evaluate" or parts.query or parts.fragment:
            self.add(
                "url",
                (*path, "url"),
                f"{url} has no path /evaluate: it is asked as it stands, answers 404, and the training dies",
            )
        if parts.username or parts.password:
            self.add(
                "secret",
                (*path, "url"),
                "a password in the address is written to the trainer's log",
            )

    def _patience(self, entry: dict[str, Any], path: Path) -> None:
        seconds = entry.get("timeout_secs", 3600)
        if isinstance(seconds, int) and seconds < 1:
            self.add(
                "timeout",
                (*path, "timeout_secs"),
                f"timeout_secs is {seconds}: the training dies at its first evaluation (ValueError)",
            )
        attempts = entry.get("max_retries", 1)
        if isinstance(attempts, int) and patience(attempts) < RESTART:
            given = (
                f"max_retries counts attempts, and {attempts} {'is' if attempts == 1 else 'are'} over"
                if "max_retries" in entry
                else "one attempt is the default, over"
            )
            self.add(
                "retries",
                (*path, "max_retries"),
                f"{given} {patience(attempts)} s after the server went away; then the training dies, and a server that "
                f"Slurm starts anew takes up to {RESTART} s",
            )

    def _headers(self, headers: dict[str, Any], path: Path) -> None:
        where = (*path, "headers")
        if where in self.bad:
            return
        for name, value in headers.items():
            here = (*where, str(name))
            if here in self.bad:
                continue
            if not isinstance(name, str) or not isinstance(value, str):
                self.add(
                    "header",
                    here,
                    f"the header {name} is {value!r}, no string: the training dies at its first evaluation (InvalidHeader)",
                )
            elif not HEADER.match(value) or not re.fullmatch(r"[!-9;-~]+", name):
                self.add(
                    "header",
                    here,
                    f"the header {name} has letters or blanks that no header may have: the training dies at its first evaluation",
                    "remove them; a variable read from a file often ends in a line end",
                )
        given = {str(name).lower(): (name, value) for name, value in headers.items()}
        if "authorization" not in given:
            self.add(
                "token",
                where,
                "no Authorization header: the server answers 401, and the training dies after the last attempt",
            )
        else:
            name, value = given["authorization"]
            here = (*where, name)
            if isinstance(value, str) and here not in self.bad:
                if not TOKEN.match(value.strip()):
                    self.add(
                        "token",
                        here,
                        "Authorization is not of the form `Bearer TOKEN`, or the token is empty: the server answers 401",
                    )
                elif here not in self.filled:
                    self.add("secret", here, "the token stands in the file itself")
        if "x-run-id" not in given:
            self.add(
                "run",
                where,
                "no X-Run-Id: evaluations of two trainings can be taken for one, and a newer rollout does not replace an older one",
            )

    def _dataset(self, one, path, local, seen):
        if not isinstance(one, dict):
            self.add(
                "dataset-name",
                path,
                "this entry is no mapping with a name: the training dies at its first evaluation",
                "write - name: aime25",
            )
            return {}
        one = self._sampling(self._typed(one, Dataset, path), path)
        name = str(one.get("name") or "").strip()
        if not name:
            if (*path, "name") not in self.bad:
                self.add(
                    "dataset-name",
                    path,
                    "a dataset without a name stops the training at its first evaluation",
                )
            return one
        here = (*path, "name")
        if ":" in name:
            self.add(
                "dataset-name",
                here,
                f"the colon in {name!r} stops the training at its first evaluation",
            )
        elif sampling.ours(name) not in self.benchmarks:
            self.add(
                "unknown-benchmark",
                here,
                f"the server has no benchmark {name!r}{_meant(name, self.benchmarks)}; it has: {', '.join(self.benchmarks)}",
            )
        if name in local:
            self.add(
                "same-name",
                here,
                f"a local dataset is called {name!r} too: the trainer logs both below eval/{name}",
            )
        if (ours := sampling.ours(name)) in seen:
            self.add(
                "twice",
                here,
                f"{ours!r} stands in line {seen[ours]} already: the server refuses a delegate that names it twice, and of two delegates the later metrics are kept",
            )
        seen.setdefault(ours, self.lines.get(here, 1))
        return one

    def _sampling(self, given: dict[str, Any], path: Path) -> dict[str, Any]:
        """Hold sampling values to what a server can sample with; returns them."""
        for key, value in given.items():
            if key in SAMPLING and value is not None and (*path, key) not in self.bad:
                least, most = sampling.BOUNDS[key]
                if (
                    isinstance(value, bool)
                    or not isinstance(value, int | float)
                    or not least <= value <= most
                ):
                    self.add(
                        "value",
                        (*path, key),
                        f"{key} is {value!r}, not from {least:g} to {most:g}: the server refuses it, and the training dies after the last attempt",
                    )
        return given


def _dotted(path: Path) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(
        "."
    )


def _meant(key: object, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(str(key), list(known), 1)
    return f" (did you mean {near[0]}?)" if near else ""


def read(path: str) -> str:
    """The text of an evaluation file. Raises cli.Missing, cli.BadData."""
    try:
        with open(path, "rb") as file:
            return file.read(SIZE + 1).decode()
    except UnicodeDecodeError as error:
        raise cli.BadData(f"{path}: not UTF-8 text (byte {error.start})") from None
    except OSError as error:
        raise cli.Missing(
            f"{path}: {error.strerror}; assets/multi_tasks.yaml is one to begin with"
        ) from None
