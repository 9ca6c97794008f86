"""Which benchmarks may be asked for, and how each is asked: what a request may say of it, and what
holds where it says nothing."""

from typing import Any

from decksmith.benchmarks import tasks
from decksmith.core.protocol import Protocol
from decksmith.evalserver.settings import Settings

# The least and the most of each value. The first five keys are the delegate protocol's own.
BOUNDS: dict[str, tuple[float, float]] = {
    "n_samples_per_eval_prompt": (1, 1024),
    "temperature": (0, 100),
    "top_p": (1e-9, 1),
    "top_k": (-1, 1 << 30),
    "max_response_len": (1, 1 << 24),
    "seed": (0, 1 << 31),
    "limit": (0, 1 << 31),
}

# Benchmarks that the delegate's own server (NeMo-Skills) calls otherwise: our name, and what of it
# does not compare.
ALIASES: dict[str, tuple[str, str]] = {
    "arena-hard": (
        "arena-hard-v2",
        "Arena-Hard v2.0's hard prompts against o3-mini; NeMo-Skills' arena-hard is v0.1 against "
        "GPT-4-0314, and the fork of slime's example has v2.0 under that name",
    ),
    "gpqa": ("gpqa-diamond", "the diamond split, which is the default of NeMo-Skills' gpqa too"),
}


def names() -> list[str]:
    """The benchmarks that may be asked for."""
    return [name for name in tasks.usable() if "prompt" not in tasks.load(name)]


def ours(name: str) -> str:
    """What a benchmark is called here: an alias's own name, any other as it is."""
    return ALIASES[name][0] if name in ALIASES else name


def defaults(name: str, settings: Settings, samples: int | None = None) -> dict[str, Any]:
    """How a benchmark is asked unless the request says otherwise, in the protocol's words;
    `samples`: of each question, where they are said. One sample is asked at temperature 0, several
    at 0.7 and top-p 0.95, as `make bench` does; decks as the server's protocol says."""
    spec = tasks.load(name)
    samples = samples or spec["samples"]
    if spec["grader"] == "deck":
        protocol = Protocol.load(settings.protocol).sampling
        own = {"max_response_len": protocol.get("max_tokens", 16384)}
        own |= {key: protocol[key] for key in ("temperature", "top_p", "seed") if key in protocol}
    else:
        own = {"max_response_len": spec.get("max_tokens", 8192)}
        own |= {"temperature": 0.7, "top_p": 0.95} if samples > 1 else {"temperature": 0.0}
    return {
        "n_samples_per_eval_prompt": samples,
        "temperature": 0.0,
        "top_p": 1.0,
        "top_k": -1,
        "seed": 0,
        "limit": settings.limit,
        **own,
    }
