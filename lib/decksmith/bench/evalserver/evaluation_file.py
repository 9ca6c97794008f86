"""A trainer's evaluation file (slime's and miles' `--eval-config`), checked before the training.

The file is read as the delegate client reads it: by OmegaConf, with its interpolations. A mistake
in it shows late: some stop the training at its first evaluation, some leave out an evaluation in
silence, and some ask for other sampling than the file says (slime v0.2.1, miles 2026).
"""

from collections.abc import Iterator
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import yaml
from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field

from decksmith.bench.evalserver import request
from decksmith.core import validation

URL = "${oc.env:DECKSMITH_EVAL_URL}/evaluate"
SECRET = "Bearer ${oc.env:DECKSMITH_EVAL_TOKEN}"
SHAPE = "one mapping `eval` with datasets, defaults and delegate below it"


class Sampling(request.Sampling):
    """The sampling values that a delegate or one of its datasets may set. Text is a number where it
    says one, as a variable does."""

    model_config = ConfigDict(strict=False)


class Dataset(Sampling):
    """A benchmark of a delegate."""

    name: request.Name = Field(default="", validate_default=True)


def _bearer(value: str) -> str:
    if not value.startswith("Bearer ") or not value[7:].strip():
        raise ValueError(f"it has no token, and the server answers 401; write {SECRET}")
    return value


class Headers(validation.Body):
    """The headers of a delegate, their names in small letters."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, str]
    authorization: Annotated[str, AfterValidator(_bearer)] = Field(description=SECRET)
    x_run_id: str = Field(
        alias="x-run-id",
        description="a name of this training in quotes, so that no evaluation is taken for another's",
    )


def _lowered(headers: object) -> object:
    if not isinstance(headers, dict):
        return headers
    return {str(name).lower(): value for name, value in headers.items()}


def _address(url: object) -> object:
    parts = urlsplit(str(url))
    is_server = parts.scheme in ("http", "https") and parts.hostname
    if not is_server or (parts.path.rstrip("/"), parts.query) != ("/evaluate", ""):
        words = "the training dies, or the delegate is left out in silence"
        raise ValueError(f"{url!r} is no http://HOST:PORT/evaluate: {words}; write {URL}")
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
        min_length=1, description="a list of benchmarks, and nothing is asked of the server"
    )


class Evaluation(validation.Body):
    """What stands below `eval`; the trainer's own datasets and defaults are none of ours."""

    datasets: list[dict[str, Any]] | dict[str, Any] = Field(
        min_length=1, description="the trainer's own datasets: without one it refuses to start"
    )
    defaults: Any = None
    delegate: list[Delegate] = Field(
        min_length=1, description="a list of delegates, and the server is never asked"
    )


def check(text: str) -> list[str]:
    """What is wrong with an evaluation file. Variables are read from this process's environment;
    the first that is not set is the only finding until it is."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        setting: Any = OmegaConf.to_container(OmegaConf.create(text), resolve=True)
    except (yaml.YAMLError, OmegaConfBaseException, ValueError) as error:
        said = " ".join(str(error).split())
        return [f"the trainer cannot read this, and stops at its start: {said}"]
    setting = setting.get("eval", setting) if isinstance(setting, dict) else None
    if not isinstance(setting, dict) or not setting.keys() & Evaluation.model_fields:
        return [f"the trainer finds no evaluation in it; write {SHAPE}"]
    found = [said for _, said in validation.problems(Evaluation, setting)]
    return found or list(_silent(setting))


def _silent(setting: dict[str, Any]) -> Iterator[str]:
    """What is left out or mixed up in silence, in a file whose every entry is right."""
    local = setting["datasets"]
    names = {*local} if isinstance(local, dict) else {str(one.get("name")) for one in local}
    lost = Sampling.model_fields.keys() & (setting.get("defaults") or {})
    for delegate in setting["delegate"]:
        asked = [request.ours(str(one["name"])) for one in delegate["datasets"]]
        for name in sorted({name for name in asked if asked.count(name) > 1}):
            yield f"{name!r} is asked for twice, which the server refuses"
        for one in delegate["datasets"]:
            if one["name"] in names:
                yield f"a local dataset is called {one['name']!r} too; give it another name"
        for key in sorted(lost - (delegate.get("defaults") or {}).keys()):
            yield f"defaults: {key} is ignored for delegates; write it below the delegate's own"
