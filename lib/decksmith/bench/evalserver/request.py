"""What may be asked of an eval server, and what holds where a request does not say: a job has every
key and every number."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, TypedDict, cast

from pydantic import BeforeValidator, Field, ValidationInfo, model_validator

from decksmith.bench.benchmarks import tasks
from decksmith.bench.evalserver import router
from decksmith.bench.evalserver.worker import SLIDEV
from decksmith.core import cli, validation
from decksmith.core.protocol import Protocol

# How a request came: at /jobs, or at /evaluate by a client that blocks.
Door = Literal["jobs", "evaluate"]
ROUTER = "where the model is asked, http://HOST:PORT without /v1 (or a list of them as router_urls)"
NAME = 80  # characters of a benchmark's name
# Names that the delegate's own server (NeMo-Skills) has for benchmarks of ours.
ALIASES = {"arena-hard": "arena-hard-v2", "gpqa": "gpqa-diamond"}


@dataclass
class Settings:
    """How eval-serve was started."""

    root: Path
    allow: tuple[str, ...] = ()  # routers beside this machine's, as host names with * or networks
    model: str | None = None  # what the model is called where the router lists none
    limit: int = 0  # questions of each benchmark, 0 for all
    protocol: str = "offline"  # how slidevbench is scored
    jobs: int = 2  # benchmarks at once
    requests: int = 64  # in flight for each of them


class Params(TypedDict):
    """How a benchmark is asked, in the delegate protocol's words."""

    name: str
    n_samples_per_eval_prompt: int
    temperature: float
    top_p: float
    top_k: int
    max_response_len: int
    seed: int
    limit: int
    protocol: NotRequired[str]  # of slidevbench


class JobRequest(TypedDict):
    """What a job was asked. `unknown`: benchmarks that we do not have; `notes`: what whoever asked
    should know."""

    run: str | None
    rollout_id: int
    router_urls: list[str]
    model: str | None
    checkpoint: str | None
    weight_version: str | None
    on_failure: Literal["soft", "hard"] | None
    door: Door
    notes: list[str]
    unknown: list[str]
    benchmarks: list[Params]


def names() -> list[str]:
    """The benchmarks that may be asked for."""
    return [name for name in tasks.usable() if "prompt" not in tasks.load(name)]


def defaults(name: str, settings: Settings, said: dict[str, Any] | None = None) -> Params:
    """How a benchmark is asked; `said`: what the request says, which goes before. One sample is
    asked at temperature 0, several at 0.7 and top-p 0.95, as `make bench` does; decks as the
    server's protocol says."""
    spec = tasks.load(name)
    said = said or {}
    samples = said.get("n_samples_per_eval_prompt", spec["samples"])
    several = samples > 1
    found: Params = {
        "name": name,
        "n_samples_per_eval_prompt": samples,
        "temperature": 0.7 if several else 0.0,
        "top_p": 0.95 if several else 1.0,
        "top_k": -1,
        "max_response_len": spec.get("max_tokens", 8192),
        "seed": 0,
        "limit": settings.limit,
    }
    if spec["grader"] == "deck":
        protocol = Protocol.load(settings.protocol).sampling
        found["temperature"] = protocol.get("temperature", 0.0)
        found["top_p"] = protocol.get("top_p", 1.0)
        found["seed"] = protocol.get("seed", 0)
        found["max_response_len"] = protocol.get("max_tokens", 16384)
    if name == SLIDEV:
        found["protocol"] = settings.protocol
    return cast(Params, found | said)


class LenientBody(validation.Body):
    """An object of a request, in which null is as good as nothing."""

    @model_validator(mode="before")
    @classmethod
    def _said(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        return {key: value for key, value in data.items() if value is not None}


def _between(kind: str, least: float, most: float) -> Any:
    words = f"a {kind} from {least:g} to {most:g}"
    return Field(default=None, ge=least, le=most, description=words)


def _line(text: Any) -> Any:
    if not isinstance(text, str) or not 0 < len(text) <= 500 or not text.isprintable():
        raise ValueError("not a line of at most 500 characters")
    return text


Line = Annotated[str, BeforeValidator(_line)]


class Sampling(LenientBody):
    """How a benchmark is asked, in the delegate protocol's own keys; the last two are ours alone."""

    n_samples_per_eval_prompt: int | None = _between("whole number", 1, 1024)
    temperature: float | None = _between("number", 0, 100)
    top_p: float | None = _between("number", 1e-9, 1)
    top_k: int | None = _between("whole number", -1, 1 << 30)
    max_response_len: int | None = _between("whole number", 1, 1 << 24)
    seed: int | None = _between("whole number", 0, 1 << 31)
    limit: int | None = _between("whole number", 0, 1 << 31)

    def said(self) -> dict[str, Any]:
        """What was said of it, by key."""
        return self.model_dump(exclude_none=True, include=set(Sampling.model_fields))


def _known(name: Any, info: ValidationInfo) -> str:
    """A benchmark's name. What we do not have is refused, unless the context `soft` says otherwise."""
    text = isinstance(name, str) and 0 < len(name.strip()) <= NAME
    if text and ALIASES.get(name, name) in names():
        return ALIASES.get(name, name)
    if text and info.context and info.context["soft"]:
        return name
    raise validation.sentence(_missing([str(name)]))


def _missing(asked: list[str]) -> str:
    """The sentence on benchmarks that are not here."""
    named = ", ".join(repr(name[:NAME]) for name in asked)
    return f"no benchmark {named}{cli.instead(asked[0][:NAME], names())}"


Name = Annotated[str, BeforeValidator(_known)]


class Benchmark(Sampling):
    """One entry of `benchmarks`."""

    name: Name = Field(default="", validate_default=True)


def _digits(step: Any) -> Any:
    """Some trainers write their step as text."""
    return int(step) if isinstance(step, str) and re.fullmatch(r"[0-9]{1,15}", step) else step


class Request(LenientBody):
    """The body of POST /evaluate and POST /jobs."""

    rollout_id: Annotated[int, BeforeValidator(_digits)] = Field(
        ge=0, le=1 << 53, description="the trainer's step, a whole number"
    )
    router_url: str | None = Field(default=None, description="http://HOST:PORT")
    router_urls: list[str] | None = Field(
        default=None, min_length=1, max_length=256, description="a list of http://HOST:PORT"
    )
    benchmarks: list[Benchmark] = Field(default=[], description="a list of objects")
    defaults: Sampling = Field(default=Sampling(), description="an object")
    run: Line | None = None
    model: Line | None = None
    checkpoint: Line | None = None
    weight_version: Line | None = None
    on_failure: Literal["soft", "hard"] | None = Field(default=None, description="soft or hard")

    @model_validator(mode="after")
    def _complete(self) -> "Request":
        if self.router_url is None and self.router_urls is None:
            raise validation.sentence(f"router_url is missing: {ROUTER}")
        seen: set[str] = set()
        for each in self.benchmarks:
            if each.name in seen:
                raise validation.sentence(f"{each.name} is there twice")
            seen.add(each.name)
        return self


async def wanted(
    body: dict[str, Any], settings: Settings, run: str | None = None, door: Door = "jobs"
) -> JobRequest:
    """A request as a job keeps it: every key there, every URL looked at, every number explicit.
    `run`: what the header X-Run-Id said. Raises cli.BadData with one sentence for whoever asked.

    A trainer's client ends the training at a refusal: at its doors a benchmark that we do not have
    stands under `unknown` and is reported as one that failed, unless all or nothing was asked
    for."""
    if body.get("run") is None and run is not None:
        body = {**body, "run": run}
    soft = door != "jobs" and body.get("on_failure") != "hard"
    asked = validation.check(Request, body, {"soft": soft})
    urls = asked.router_urls or [asked.router_url or ""]
    there = names()
    unknown = [each.name for each in asked.benchmarks if each.name not in there]
    given = [each["name"] for each in body.get("benchmarks") or []]
    notes = [f"{name} is {ALIASES[name]} here" for name in given if name in ALIASES]
    notes += [_missing(unknown)] if unknown else []
    return {
        "run": asked.run,
        "rollout_id": asked.rollout_id,
        "router_urls": [await router.trusted(url, settings.allow) for url in dict.fromkeys(urls)],
        "model": asked.model,
        "checkpoint": asked.checkpoint,
        "weight_version": asked.weight_version,
        "on_failure": asked.on_failure,
        "door": door,
        "notes": notes,
        "unknown": unknown,
        "benchmarks": [
            defaults(each.name, settings, asked.defaults.said() | each.said())
            for each in asked.benchmarks
            if each.name in there
        ],
    }
