"""What may be asked of an eval server, and what a job makes of it: every key there, every number
explicit."""

import difflib
import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, model_validator

from decksmith.core import validation
from decksmith.evalserver import router
from decksmith.evalserver.sampling import ALIASES, BOUNDS, defaults, names, ours
from decksmith.evalserver.settings import Settings
from decksmith.evalserver.worker import SLIDEV

# How a request came: at /jobs, at /evaluate by a client that blocks, or by one that polls.
Door = Literal["jobs", "evaluate", "poll"]
ROUTER = "where the model is asked, http://HOST:PORT without /v1 (or a list of them as router_urls)"


class Asked(validation.Body):
    """An object of a request, in which null is as good as nothing."""

    @model_validator(mode="before")
    @classmethod
    def _said(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        return {key: value for key, value in data.items() if value is not None}


def _whole(key: str) -> Any:
    return _bounded("a whole number", key)


def _number(key: str) -> Any:
    return _bounded("a number", key)


def _bounded(kind: str, key: str) -> Any:
    least, most = BOUNDS[key]
    words = f"{kind} from {least:g} to {most:g}"
    return Field(default=None, ge=least, le=most, description=words)


def _line(text: Any) -> Any:
    if not isinstance(text, str) or not 0 < len(text) <= 500 or not text.isprintable():
        raise ValueError("not a line of at most 500 characters")
    return text


NAME = 80  # characters of a benchmark's name
Line = Annotated[str, BeforeValidator(_line)]


class Sampling(Asked):
    """How a benchmark is asked."""

    n_samples_per_eval_prompt: int | None = _whole("n_samples_per_eval_prompt")
    temperature: float | None = _number("temperature")
    top_p: float | None = _number("top_p")
    top_k: int | None = _whole("top_k")
    max_response_len: int | None = _whole("max_response_len")
    seed: int | None = _whole("seed")
    limit: int | None = _whole("limit")

    def said(self) -> dict[str, Any]:
        """What was said of it, by key."""
        return self.model_dump(exclude_none=True, include=set(Sampling.model_fields))


def _known(name: Any, info: ValidationInfo) -> str:
    """A benchmark under our name. What we do not have is refused, or kept as it was asked for,
    where the context `soft` says so."""
    text = isinstance(name, str) and 0 < len(name.strip()) <= NAME
    if text and ours(name) in names():
        return ours(name)
    if text and info.context and info.context["soft"]:
        return name
    raise validation.sentence(_missing([str(name)]))


def _missing(asked: list[str]) -> str:
    """The sentence on benchmarks that are not here."""
    near = [close for name in asked for close in difflib.get_close_matches(name, names(), 1)]
    meant = f" (did you mean {near[0]}?)" if near else ""
    named = ", ".join(repr(name[:NAME]) for name in asked)
    return f"no benchmark {named}{meant}; there are: {', '.join(names())}"


class Benchmark(Sampling):
    """One entry of `benchmarks`."""

    name: Annotated[str, BeforeValidator(_known)] = Field(default=None, validate_default=True)


def _digits(step: Any) -> Any:
    """Some trainers write their step as text."""
    if isinstance(step, str) and re.fullmatch(r"[0-9]{1,15}", step):
        return int(step)
    return step


class Request(Asked):
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
    supersede: Literal["newer", "none"] | None = Field(default=None, description="newer or none")

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


class MilesRequest(Asked):
    """The body of miles' asynchronous protocol, made for Terminal-Bench. How many requests are in
    flight is ours to say; a path of a request is opened by nobody."""

    model_name: str | None = None
    api_base: str | None = None
    n_tasks: int | None = None
    n_concurrent: Any = None
    dataset_path: Any = None
    task_ids: list[str] = Field(default=[], description="a list of benchmarks")
    n_attempts: int | None = None
    metric_prefix: Line = "terminal_bench"

    @property
    def prefix(self) -> str:
        """What the metrics stand below."""
        return self.metric_prefix.removeprefix("eval/")

    def translated(self) -> dict[str, Any]:
        """The same in the words of POST /jobs: `task_ids` name the benchmarks, or else
        `metric_prefix` does."""
        how = {"limit": self.n_tasks, "n_samples_per_eval_prompt": self.n_attempts}
        return {
            "rollout_id": 0,
            "router_url": self.api_base,
            "model": self.model_name,
            "benchmarks": [{"name": name, **how} for name in self.task_ids or [self.prefix]],
        }


async def wanted(
    body: dict[str, Any],
    settings: Settings,
    run: str | None = None,
    door: Door = "jobs",
    prefix: str | None = None,
) -> dict[str, Any]:
    """A request as a job keeps it: every key there, every URL looked at, every number explicit.
    `run`: what the header X-Run-Id said; `prefix`: what the metrics stand below. Raises
    cli.BadData with one sentence for whoever asked.

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
    notes = [
        _alias(each["name"]) for each in body.get("benchmarks") or [] if each["name"] in ALIASES
    ]
    if unknown:
        notes.append(_missing(unknown) + ("; name them in task_ids" if door == "poll" else ""))
    return {
        "run": asked.run,
        "rollout_id": asked.rollout_id,
        "router_urls": [await router.trusted(url, settings.allow) for url in dict.fromkeys(urls)],
        "model": asked.model,
        "checkpoint": asked.checkpoint,
        "weight_version": asked.weight_version,
        "on_failure": asked.on_failure,
        "supersede": asked.supersede,
        "prefix": prefix,
        "notes": notes,
        "unknown": unknown,
        "benchmarks": [
            _explicit(each, asked.defaults, settings)
            for each in asked.benchmarks
            if each.name in there
        ],
    }


def _alias(name: str) -> str:
    """What is to be known of a benchmark that was asked for by another name."""
    called, words = ALIASES[name]
    return f"{name} is {called} here: {words}"


def _explicit(asked: Benchmark, common: Sampling, settings: Settings) -> dict[str, Any]:
    said = common.said() | asked.said()
    samples = said.get("n_samples_per_eval_prompt")
    found = {"name": asked.name, **defaults(asked.name, settings, samples), **said}
    return found | ({"protocol": settings.protocol} if asked.name == SLIDEV else {})
