"""What can be known of a run of GRPO before a GPU is asked for: its recipe, its prompts, a planted sample, the rewards' pace.

The recipe is judged as that of SFT is (preflight.py), by the keys of NeMo-RL's GRPO. The planted sample are answers of the
model that is trained, with their rewards: whether the samples of a prompt differ is what GRPO learns from.
"""

import statistics
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from decksmith.core import cli, records, stream
from decksmith.core.records import Record
from decksmith.models import shapes
from decksmith.train.corpus import overlap
from decksmith.train.training import estimates, preflight, recipes
from decksmith.train.training.check_report import Report
from decksmith.train.training.preflight import Checked

LIMITS = recipes.RECIPES / "rl-check.toml"
MEMORY = (
    0.9  # of a GPU's share for generation, what its weights may take: the rest holds the requests
)
# What NeMo Gym inside NeMo-RL needs, by key.
GYM = {
    "env.should_use_nemo_gym": True,
    "data.default.env_name": "nemo_gym",
    "data.default.processor": "nemo_gym_data_processor",
    "policy.generation.backend": "vllm",
    "policy.generation.vllm_cfg.async_engine": True,
    "policy.generation.vllm_cfg.expose_http_server": True,
    "grpo.max_val_samples": None,
}


def limits() -> dict[str, float]:
    """The figures of assets/recipes/rl-check.toml."""
    return tomllib.loads(LIMITS.read_text())


def check(
    path: Path,
    folder: Path | None,
    held: list[Record],
    encode: overlap.Encode | None,
    planted: Path,
    pace: float,
) -> Report:
    """Check a RUN/recipe.yaml of GRPO and its prompts; returns records.RlCheck.

    folder: a Hugging Face folder (config.json, tokenizer), None where there is none. held: requests of evaluations.
    planted: deck records with rewards. pace: decks a minute of all reward servers together. Raises cli.Missing,
    cli.BadConfig, cli.BadData.
    """
    made, limit = Checked(path), limits()
    if made.algorithm != "grpo":
        raise cli.BadConfig(f"{path} is of {made.algorithm.upper()}; sft-check judges it")
    absent, against = made.config.get("absent"), preflight.check_keys(made)
    made.report |= {
        "model": made.get("policy.model_name"),
        "parent": {"absent": absent, "keys": against},
        "limits": limit,
    }
    if preflight.has_gaps(made):
        return made.result()
    if absent:
        made.unchecked.append(
            f"what the recipe inherits from {absent[0]}, which is not on this machine; its keys were compared with a list"
        )
    template = recipes.template(made.config, folder) if folder else None
    if template is None:
        made.unchecked.append("the lengths of the prompts: there is no tokenizer")
    prompts = _data(made, template)
    _disjoint(made, prompts, held, encode)
    preflight.check_settings(made)
    _batches(made)
    for key, value in GYM.items():
        if made.get(key) != value:
            made.wrong("gym", key, f"{key} is {made.get(key)!r}, with NeMo Gym it is {value!r}")
    _planted(made, planted, {prompt["id"] for prompt in prompts["train"]}, limit)
    _pace(made, pace, limit)
    shape = preflight.check_sizes(made, folder)
    if shape:
        _memory(made, shape, limit)
    return made.result()


# Prompts


def _data(made: Checked, template: recipes.Template | None) -> dict[str, list[Record]]:
    """The prompts of both sides, {side: [{"id", "messages", "place"}]}; fills in the report."""
    found: dict[str, list[Record]] = {}
    lengths: dict[str, list[int]] = {}
    for side in ("train", "validation"):
        path = Path(made.get(f"data.{side}.data_path") or "")
        found[side], lengths[side] = [], []
        if not path.is_file():
            made.wrong("absent", f"data.{side}.data_path", f"there is no {side} set {path}")
            continue
        for number, prompt, fault in _rows(path):
            if prompt is None:
                made.findings.add("row", fault, file=path, line=number)
                continue
            found[side].append({**prompt, "place": (path, number)})
            if template:
                lengths[side].append(_length(made, template, prompt, path, number))
    made.report |= {
        "rows": {side: len(prompts) for side, prompts in found.items()},
        "tokens": {
            side: {"median": int(statistics.median(known)), "max": max(known)}
            for side, known in lengths.items()
            if known
        },
        "epochs": made.get("grpo.max_num_epochs"),
        "steps": made.get("grpo.max_num_steps"),
    }
    return found


def _rows(path: Path) -> Iterator[tuple[int, Record | None, str]]:
    """(line number, the prompt of a row of NeMo Gym or None, what is wrong with it)."""
    for number, row in stream.records(path):
        asked, label = recipes.get(row, "responses_create_params.input"), row.get("label")
        fault = ""
        if not isinstance(asked, list) or not asked:
            fault = "no messages in responses_create_params.input"
        elif not recipes.get(row, "agent_ref.name"):
            fault = "no agent_ref says which agent asks"
        elif not isinstance(label, dict) or not (label.get("asks") or label.get("checklist")):
            fault = "no asks and no checklist in its label: there is nothing to measure a deck by"
        yield number, None if fault else {"id": row["id"], "messages": asked}, fault


def _length(
    made: Checked, template: recipes.Template, prompt: Record, path: Path, number: int
) -> int:
    """The tokens of a prompt as a server is told it; notes one that leaves no room for the answer."""
    kwargs = made.get("policy.tokenizer.chat_template_kwargs") or {}
    try:
        text = template.render(prompt["messages"], add_generation_prompt=True, **kwargs)
    except cli.BadData as error:
        made.findings.add(
            "template-refuses", str(error), file=path, line=number, ident=prompt["id"]
        )
        return 0
    length = len(template.encode(text))
    limit, answer = (
        made.get("policy.max_total_sequence_length"),
        made.get("policy.generation.max_new_tokens") or 0,
    )
    if length + answer > limit:
        said = f"{length} tokens and an answer of {answer} are more than {limit}"
        made.findings.add("longest", said, file=path, line=number, ident=prompt["id"])
    return length


def _disjoint(
    made: Checked,
    prompts: dict[str, list[Record]],
    held: list[Record],
    encode: overlap.Encode | None,
) -> None:
    """Note prompts of the training set that an evaluation, or the validation set, asks too, and those that come twice."""
    train, against = prompts["train"], [*held, *prompts["validation"]]
    leaks, _ = overlap.near(
        cast(list[overlap.Chat], train), cast(list[overlap.Chat], against), encode
    )
    told: set[int] = set()
    for leak in leaks:
        if leak["a"] not in told:
            told.add(leak["a"])
            prompt, other = train[leak["a"]], against[leak["b"]]
            path, number = prompt["place"]
            kind = "an evaluation" if leak["b"] < len(held) else "the validation set"
            said = f"near {other['id']} of {kind}"
            made.findings.add("held-out", said, file=path, line=number, ident=prompt["id"])
    for prompts_of in prompts.values():
        counts = Counter(prompt["id"] for prompt in prompts_of)
        for prompt in prompts_of:
            if counts[prompt["id"]] > 1:
                path, number = prompt["place"]
                said = f"this id comes {counts[prompt['id']]} times"
                made.findings.add("duplicate", said, file=path, line=number, ident=prompt["id"])
    made.report["held_out"] = len(held)
    made.report["compared"] = "letters and embeddings" if encode else "letters"


# Numbers of the recipe


def _batches(made: Checked) -> None:
    """Rollouts, batches and GPUs divide each other."""
    prompts, samples = (
        made.get("grpo.num_prompts_per_step"),
        made.get("grpo.num_generations_per_prompt"),
    )
    batch, micro = (
        made.get("policy.train_global_batch_size"),
        made.get("policy.train_micro_batch_size"),
    )
    nodes, gpus = made.get("cluster.num_nodes"), made.get("cluster.gpus_per_node")
    if not isinstance(samples, int) or samples < 2:
        said = f"grpo.num_generations_per_prompt is {samples!r}: one sample has nothing to be compared with"
        made.wrong("rollouts", "grpo.num_generations_per_prompt", said)
        return
    rollouts = prompts * samples
    made.report["rollouts"] = rollouts
    if rollouts % batch:
        said = f"{prompts} x {samples} rollouts are no multiple of train_global_batch_size, {batch}"
        made.wrong("rollouts", "policy.train_global_batch_size", said)
    if batch % (nodes * gpus * micro):
        said = f"train_global_batch_size is {batch}, {nodes * gpus} GPUs with a micro batch of {micro} take a multiple of {nodes * gpus * micro}"
        made.wrong("batch", "policy.train_global_batch_size", said)
    parts = made.get("policy.generation.vllm_cfg.tensor_parallel_size") or 1
    if gpus % parts:
        key = "policy.generation.vllm_cfg.tensor_parallel_size"
        made.wrong("memory", key, f"{key} is {parts}, which does not divide {gpus} GPUs of a node")


# The planted sample


def _planted(made: Checked, path: Path, known: set[str], limit: dict[str, float]) -> None:
    """Whether the samples of a prompt differ in reward, and how many are no measurement."""
    rewards: dict[str, list[float]] = {}
    masked = total = 0
    for number, record in stream.records(path):
        value = record.get("reward")
        if not isinstance(value, dict) or "reward" not in value:
            raise cli.BadData(
                f'{path}:{number}: {record["id"]}: no "reward" in this record; deck-reward writes it'
            )
        total += 1
        of = rewards.setdefault(records.prompt_of(record), [])
        if value["reward"] is None or value.get("masked"):
            masked += 1
        else:
            of.append(value["reward"])
    several = {ident: some for ident, some in rewards.items() if len(some) > 1}
    flat = sum(max(some) - min(some) <= limit["tie"] for some in several.values())
    made.report["planted"] = {
        "prompts": len(rewards),
        "answers": total,
        "known": len(known & rewards.keys()),
        "masked": round(masked / total, 4) if total else None,
        "flat": round(flat / len(several), 4) if several else None,
        "mean": _mean([reward for some in rewards.values() for reward in some]),
        "spread": _mean([statistics.pstdev(some) for some in several.values()]),
        "best_of": _mean([max(some) for some in several.values()]),
    }
    few = [some for some in rewards.values() if len(some) >= limit["samples"]]
    if len(few) < limit["prompts"]:
        said = f"{len(few)} prompts have {limit['samples']} rewards or more; {limit['prompts']} are the least that says anything"
        made.findings.add("planted", said, file=path)
    if total and masked / total > limit["masked"]:
        said = (
            f"{masked / total:.0%} of the answers have no reward, more than {limit['masked']:.0%}"
        )
        made.findings.add("masked", said, file=path)
    if several and flat / len(several) > limit["flat"]:
        said = f"of {flat / len(several):.0%} of the prompts all samples score alike, more than {limit['flat']:.0%}"
        made.findings.add("flat", said, file=path)
    if rewards and not known & rewards.keys():
        said = "none of its prompts is one of the training set"
        made.findings.add("planted", said, file=path)


def _mean(numbers: list[float]) -> float | None:
    return round(statistics.fmean(numbers), 4) if numbers else None


# Pace and memory


def _pace(made: Checked, pace: float, limit: dict[str, float]) -> None:
    """Whether the rewards of a step come in time."""
    rollouts = made.report.get("rollouts")
    if not rollouts:
        return
    seconds = 60 * rollouts / pace
    made.report["pace"] = {"decks_a_minute": pace, "reward_seconds": round(seconds, 1)}
    if seconds > limit["reward_seconds"]:
        times = seconds / limit["reward_seconds"]
        said = (
            f"{rollouts} rewards at {pace:g} a minute take {seconds:.0f} s of every step, more than "
            f"{limit['reward_seconds']:g}; {times:.1f} times as many servers would do"
        )
        made.wrong("pace", "grpo.num_prompts_per_step", said)


def _memory(made: Checked, shape: shapes.Shape, limit: dict[str, float]) -> None:
    """What training and generation hold on a GPU, each while the other is put aside."""
    setting = made.get("policy.generation.vllm_cfg") or {}
    weights = 2 * shape.parameters / (setting.get("tensor_parallel_size") or 1) / estimates.GIB
    room = (setting.get("gpu_memory_utilization") or 0) * limit["gpu_gib"]
    longest = made.get("policy.max_total_sequence_length")
    trainable = (made.report.get("lora") or {}).get("trainable", 0)
    made.report["memory_gib"] = {
        "training": estimates.memory(shape, made.config, trainable, longest),
        "generation": {"weights": round(weights, 1), "room": round(room, 1)},
    }
    if weights > MEMORY * room:
        key = "policy.generation.vllm_cfg.gpu_memory_utilization"
        said = f"the weights take {weights:.1f} GiB of a GPU, {room:.1f} GiB are for generation: no request would fit"
        made.wrong("memory", key, said)


def table(report: Report) -> Iterator[tuple[str, str]]:
    """The report as lines of a table, (what, how it stands)."""
    yield "model", str(report["model"])
    yield "keys", f"compared with {report['parent']['keys']}"
    if rows := report.get("rows"):
        yield "prompts", ", ".join(f"{count:,} {side}" for side, count in rows.items())
    for side, found in (report.get("tokens") or {}).items():
        yield f"tokens, {side}", f"median {found['median']:,}, longest {found['max']:,}"
    if "held_out" in report:
        yield (
            "held out",
            f"{report['held_out']:,} requests of evaluations, compared by {report['compared']}",
        )
    if rollouts := report.get("rollouts"):
        yield "steps", f"{report['steps']} of {rollouts} rollouts"
    if planted := report.get("planted"):
        yield (
            "planted sample",
            f"{planted['answers']} answers to {planted['prompts']} prompts ({planted['known']} of the training set): mean reward "
            f"{planted['mean']}, best of each prompt {planted['best_of']}, spread within a prompt {planted['spread']}; "
            f"share of prompts whose samples score alike {planted['flat']}, of answers without a reward {planted['masked']}",
        )
    if pace := report.get("pace"):
        yield (
            "rewards",
            f"{pace['reward_seconds']} s a step at {pace['decks_a_minute']:g} decks a minute",
        )
    if memory := report.get("memory_gib"):
        generation = memory["generation"]
        yield (
            "memory",
            f"about {memory['training']['total']} GiB a GPU in training; in generation {generation['weights']} GiB of weights in "
            f"{generation['room']}, estimated",
        )
    for what in report["unchecked"]:
        yield "not checked", what
