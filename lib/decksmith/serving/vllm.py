"""The command line of `vllm serve`, held to the options of the pinned version before anything
starts."""

import json
from collections.abc import Sequence
from typing import Any

from decksmith.core import cli
from decksmith.serving.adapter import Adapter

OPTIONS = cli.ROOT / "assets/vllm-options.json"
# What every server of ours has. Prefix caching has changed scores: vLLM #45699.
FIXED = (
    *("--served-model-name", "base"),
    "--trust-remote-code",
    *("--max-model-len", "65536"),
    *("--max-num-seqs", "64"),
    "--no-enable-prefix-caching",
    "--enable-lora",
    *("--max-loras", "1"),
)


def command(
    adapter: Adapter, base: str, host: str, port: int, more: Sequence[str] = ()
) -> list[str]:
    """The argument list of a vLLM with base and adapter; `more` arguments come last and win.
    Raises cli.BadData where `lint` objects."""
    ranks = _options()["options"]["--max-lora-rank"]["choices"]
    taken = [rank for rank in ranks if rank >= adapter.rank]
    if not taken:
        raise cli.BadData(f"{adapter.path}: its rank is {adapter.rank}, more than vLLM takes")
    arguments = [
        *("vllm", "serve", base, "--host", host, "--port", str(port)),
        *FIXED,
        *("--max-lora-rank", str(taken[0])),
        *("--lora-modules", f"tuned={adapter.path}"),
        *(("--reasoning-parser", "nemotron_v3") if "nemotron" in base.lower() else ()),
        *more,
    ]
    lint(arguments)
    return arguments


def lint(arguments: Sequence[str]) -> None:
    """Hold the arguments of `vllm serve` to the option names and choices of the pinned version.
    Raises cli.BadData with all that is wrong."""
    known, wrong = _options(), []
    words = list(arguments[3:])  # behind `vllm serve BASE`
    while words:
        option, _, value = words.pop(0).partition("=")
        if not option.startswith("-"):
            wrong.append(f"{option} belongs to no option")
            continue
        values = [value] if value else []
        while words and not words[0].startswith("--"):
            values.append(words.pop(0))
        if option.startswith("--"):
            # --reasoning-config.field is its way into JSON
            option = option.replace("_", "-").split(".")[0]
        wrong += _objections(option, values, known["options"].get(option))
    if wrong:
        raise cli.BadData(f"vLLM {known['version']} would refuse this: {'; '.join(wrong)}")


def _objections(option: str, values: list[str], facts: dict[str, Any] | None) -> list[str]:
    """What is wrong with one option and its values; `facts`: how many it takes (one, unless they
    say), and which."""
    if facts is None:
        return [f"it has no {option}"]
    takes = facts.get("values", 1)
    if takes == 0 and values:
        return [f"{option} takes no value"]
    if takes == 1 and len(values) != 1:
        return [f"{option} takes one value"]
    choices = list(map(str, facts.get("choices") or ()))
    if not choices:
        return []
    there = ", ".join(choices)
    return [f"{option} {value} is none of {there}" for value in values if value not in choices]


def _options() -> dict[str, Any]:
    return json.loads(OPTIONS.read_text())
