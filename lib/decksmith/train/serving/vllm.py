"""The command line of `vllm serve`: what every server of ours has, what belongs to the model, and what the adapter needs;
held to the options of the pinned version before anything starts."""

import json
from collections.abc import Sequence
from typing import TypedDict, cast

from decksmith.core import cli
from decksmith.models import families
from decksmith.train.serving.adapter import Adapter

OPTIONS = cli.ROOT / "assets/vllm-options.json"
# What every server of ours has. Prefix caching has changed scores: vLLM #45699.
FIXED = (
    *("--served-model-name", "base"),
    *("--max-num-seqs", "64"),
    "--no-enable-prefix-caching",
    "--enable-lora",
    *("--max-loras", "1"),
)
SHORT = {
    "-tp": "--tensor-parallel-size",
    "-pp": "--pipeline-parallel-size",
    "-dp": "--data-parallel-size",
}


class Option(TypedDict, total=False):
    """What assets/vllm-options.json says of an option: how many values it takes, and which."""

    values: int
    choices: list[str | int]


class Options(TypedDict):
    """assets/vllm-options.json."""

    version: str
    options: dict[str, Option]


def command(
    adapter: Adapter, base: str, host: str, port: int, more: Sequence[str] = ()
) -> list[str]:
    """The argument list of a vLLM with base and adapter; `more` arguments come last and win.
    Raises cli.BadData where `lint` objects."""
    ranks = map(int, _options()["options"]["--max-lora-rank"]["choices"])
    taken = [rank for rank in ranks if rank >= adapter.rank]
    if not taken:
        raise cli.BadData(f"{adapter.path}: its rank is {adapter.rank}, more than vLLM takes")
    arguments = [
        *("vllm", "serve", base, "--host", host, "--port", str(port)),
        *FIXED,
        *_of_the_model(base),
        *_of_the_adapter(adapter),
        *("--max-lora-rank", str(taken[0])),
        *more,
    ]
    lint(arguments)
    return arguments


def _of_the_model(base: str) -> list[str]:
    """The options that a model wants, by its family and its own configuration."""
    config = families.configuration(base)
    family = families.of(base, config)
    found = [*family.flags]
    if family.remote_code:
        found.append("--trust-remote-code")
    if length := family.length(config):
        found += ["--max-model-len", str(length)]
    if family.reasoning_parser:
        found += ["--reasoning-parser", family.reasoning_parser]
    if family.tool_parser:
        found += ["--enable-auto-tool-choice", "--tool-call-parser", family.tool_parser]
    if family.sampling:
        found += ["--override-generation-config", json.dumps(family.sampling)]
    if family.thinking:
        found += ["--default-chat-template-kwargs", json.dumps(family.thinking)]
    return found


def _of_the_adapter(adapter: Adapter) -> list[str]:
    """Buffers are made for the modules that it has and for no others: for all of a mixture of experts they would take as
    much again as a quarter of its weights."""
    modules = ["--lora-target-modules", *adapter.modules] if adapter.modules else []
    return [*modules, "--lora-modules", f"tuned={adapter.path}"]


def value(arguments: Sequence[str], option: str) -> str | None:
    """The value of an option, of two the later; None where it is not there."""
    found = None
    for word, following in zip(arguments, [*arguments[1:], None], strict=True):
        name, equals, given = word.partition("=")
        if SHORT.get(name, name.replace("_", "-")) == option:
            found = given if equals else following
    return found


def lint(arguments: Sequence[str]) -> None:
    """Hold the arguments of `vllm serve` to the option names and choices of the pinned version.
    Raises cli.BadData with all that is wrong."""
    known, wrong = _options(), []
    words = list(arguments[3:])  # behind `vllm serve BASE`
    while words:
        option, _, value = words.pop(0).partition("=")
        option = SHORT.get(option, option)
        if not option.startswith("-"):
            wrong.append(f"{option} belongs to no option")
            continue
        values = [value] if value else []
        while words and not words[0].startswith("--") and words[0] not in SHORT:
            values.append(words.pop(0))
        if option.startswith("--"):
            # --reasoning-config.field is its way into JSON
            option = option.replace("_", "-").split(".")[0]
        wrong += _objections(option, values, known["options"].get(option))
    if wrong:
        raise cli.BadData(f"vLLM {known['version']} would refuse this: {'; '.join(wrong)}")


def _objections(option: str, values: list[str], facts: Option | None) -> list[str]:
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


def _options() -> Options:
    return cast(Options, json.loads(OPTIONS.read_text()))
