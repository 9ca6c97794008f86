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

from decksmith.core import cli, config_files, records, stream
from decksmith.core.records import Optionals, Record
from decksmith.models import shapes
from decksmith.train.corpus import overlap
from decksmith.train.corpus.overlap import Encode
from decksmith.train.training import estimates, preflight, recipes
from decksmith.train.training.check_report import Report
from decksmith.train.training.preflight import Checked

LIMITS = recipes.RECIPES / "rl-check.toml"
REWARDS = cli.ROOT / "assets/rewards"
PAIRINGS = cli.ROOT / "assets/pairings.toml"
# Of a GPU's share for generation, what its weights may take: the rest holds the requests.
MEMORY = 0.9
Rows = list[Record]
Prompts = dict[str, Rows]  # those of each side
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


def check(
    path: Path, folder: Path | None, held: Rows, encode: Encode | None, planted: Path, pace: float
) -> Report:
    """Check a RUN/recipe.yaml of GRPO and its prompts; returns records.RlCheck. folder: a Hugging
    Face folder (config.json, tokenizer), None where there is none. held: requests of evaluations.
    planted: deck records with rewards. pace: decks a minute of all reward servers together. Raises
    cli.Missing, cli.BadConfig, cli.BadData."""
    made, limit = Checked(path), tomllib.loads(LIMITS.read_text())
    if made.algorithm != "grpo":
        raise cli.BadConfig(f"{path} is of {made.algorithm.upper()}; sft-check judges it")
    made.report["limits"] = limit
    if not made.begin(folder):
        return made.result()
    prompts = _data(made)
    _disjoint(made, prompts, held, encode)
    preflight.check_settings(made)
    _rollouts(made)
    for key, value in GYM.items():
        if made.get(key) != value:
            made.wrong("gym", key, f"{key} is {made.get(key)!r}, with NeMo Gym it is {value!r}")
    _paired(made)
    _planted(made, planted, {prompt["id"] for prompt in prompts["train"]}, limit)
    _pace(made, min([pace, *_judged(made)]), limit)
    shape = preflight.check_sizes(made, folder)
    if shape:
        _memory(made, shape, limit)
    return made.result()


def _paired(made: Checked) -> None:
    """Refuse a trainer with whose NeMo Gym our resources server has not been tried."""
    trainer = f"nemo-rl {preflight.keys_version('grpo')}"
    known = tomllib.loads(PAIRINGS.read_text())
    found = known.get(trainer, {})
    made.report["pairing"] = {"trainer": trainer, **found}
    if not found.get("works"):
        why = found.get("why") or f"assets/pairings.toml has {', '.join(known)}"
        made.wrong("pairing", "env.nemo_gym", f"{trainer} cannot ask for our rewards: {why}")


def _data(made: Checked) -> Prompts:
    """The prompts of both sides, {side: [{"id", "messages", "place"}]}; fills in the report."""
    found: Prompts = {"train": [], "validation": []}
    made.report["tokens"] = {}
    for side, prompts in found.items():
        path, lengths = Path(made.get(f"data.{side}.data_path") or ""), []
        if not path.is_file():
            made.wrong("absent", f"data.{side}.data_path", f"there is no {side} set {path}")
            continue
        for number, row in stream.records(path):
            if fault := _fault(row):
                made.findings.add("row", fault, path, number)
                continue
            asked = row["responses_create_params"]["input"]
            prompts.append({"id": row["id"], "messages": asked, "place": (path, number)})
            if length := _length(made, prompts[-1]):
                lengths.append(length)
        if lengths:
            longest = {"median": int(statistics.median(lengths)), "max": max(lengths)}
            made.report["tokens"][side] = longest
    made.report["rows"] = {side: len(prompts) for side, prompts in found.items()}
    made.report |= {"epochs": made.epochs, "steps": made.steps}
    return found


def _fault(row: Record) -> str | None:
    asked, label = recipes.get(row, "responses_create_params.input"), row.get("label")
    if not isinstance(asked, list) or not asked:
        return "no messages in responses_create_params.input"
    if not recipes.get(row, "agent_ref.name"):
        return "no agent_ref says which agent asks"
    if not isinstance(label, dict) or not (label.get("asks") or label.get("checklist")):
        return "no asks and no checklist in its label: there is nothing to measure a deck by"
    return None


def _length(made: Checked, prompt: Record) -> int | None:
    """The tokens of a prompt as a server is told it, None where nobody can tell; notes one that leaves no room for the answer."""
    if made.template is None:
        return None
    kwargs = made.get("policy.tokenizer.chat_template_kwargs") or {}
    try:
        text = made.template.render(prompt["messages"], add_generation_prompt=True, **kwargs)
    except cli.BadData as error:
        _found(made, "template-refuses", str(error), prompt)
        return None
    length = len(made.template.encode(text))
    limit = made.get("policy.max_total_sequence_length")
    answer = made.get("policy.generation.max_new_tokens") or 0
    if length + answer > limit:
        said = f"{length} tokens and an answer of {answer} are more than {limit}"
        _found(made, "longest", said, prompt)
    return length


def _found(made: Checked, rule: str, message: str, prompt: Record) -> None:
    path, number = prompt["place"]
    made.findings.add(rule, message, path, number, prompt["id"])


def _disjoint(made: Checked, prompts: Prompts, held: Rows, encode: Encode | None) -> None:
    """Note prompts of the training set that an evaluation, or the validation set, asks too, and those that come twice."""
    train, against = prompts["train"], [*held, *prompts["validation"]]
    rows, others = cast(list[overlap.Chat], train), cast(list[overlap.Chat], against)
    leaks, _ = overlap.near(rows, others, encode)
    first = {leak["a"]: leak["b"] for leak in reversed(leaks)}  # of each prompt
    for at, other in sorted(first.items()):
        kind = "an evaluation" if other < len(held) else "the validation set"
        _found(made, "held-out", f"near {against[other]['id']} of {kind}", train[at])
    for prompts_of in prompts.values():
        counts = Counter(prompt["id"] for prompt in prompts_of)
        for prompt in prompts_of:
            if counts[prompt["id"]] > 1:
                _found(made, "duplicate", f"this id comes {counts[prompt['id']]} times", prompt)
    made.report["held_out"] = len(held)
    made.report["compared"] = "letters and embeddings" if encode else "letters"


def _rollouts(made: Checked) -> None:
    """Rollouts, batches and GPUs divide each other."""
    prompts, key = made.batch, "grpo.num_generations_per_prompt"
    samples, batch = made.get(key), made.get("policy.train_global_batch_size")
    if not isinstance(samples, int) or samples < 2:
        said = f"{key} is {samples!r}: one sample has nothing to be compared with"
        made.wrong("rollouts", key, said)
        return
    rollouts = made.report["rollouts"] = prompts * samples
    if rollouts % batch:
        said = f"{prompts} x {samples} rollouts are no multiple of train_global_batch_size, {batch}"
        made.wrong("rollouts", "policy.train_global_batch_size", said)
    preflight.check_batches(made, "policy.train")
    key, gpus = "policy.generation.vllm_cfg.tensor_parallel_size", made.get("cluster.gpus_per_node")
    parts = made.get(key) or 1
    if gpus % parts:
        said = f"{key} is {parts}, which does not divide {gpus} GPUs of a node"
        made.wrong("memory", key, said)


def _planted(made: Checked, path: Path, known: set[str], limit: dict[str, float]) -> None:
    """Whether the samples of a prompt differ in reward, and how many are no measurement."""
    rewards: dict[str, list[float]] = {}
    masked = total = 0
    for number, record in stream.records(path):
        value = record.get("reward")
        if not isinstance(value, dict) or "reward" not in value:
            where = f"{path}:{number}: {record['id']}"
            raise cli.BadData(f'{where}: no "reward" in this record; deck-reward writes it')
        total += 1
        of = rewards.setdefault(records.prompt_of(record), [])
        if value["reward"] is None or value.get("masked"):
            masked += 1
        else:
            of.append(value["reward"])
    several = [some for some in rewards.values() if len(some) > 1]
    found: Optionals = {
        "prompts": len(rewards),
        "answers": total,
        "known": len(known & rewards.keys()),
        "masked": masked / total if total else None,
        "flat": _mean([max(some) - min(some) <= limit["tie"] for some in several]),
        "mean": _mean([reward for some in rewards.values() for reward in some]),
        "spread": _mean([statistics.pstdev(some) for some in several]),
        "best_of": _mean([max(some) for some in several]),
    }
    rounded = {name: value and round(value, 4) for name, value in found.items()}
    made.report["planted"] = rounded
    for rule, said in _faults_of_planted(found, rewards, limit):
        made.findings.add(rule, said, path)


def _faults_of_planted(
    found: Optionals, rewards: dict[str, list[float]], limit: dict[str, float]
) -> Iterator[tuple[str, str]]:
    few = sum(len(some) >= limit["samples"] for some in rewards.values())
    if few < limit["prompts"]:
        said = f"{few} prompts have {limit['samples']} rewards or more"
        yield "planted", f"{said}; {limit['prompts']} are the least that says anything"
    masked, flat = found["masked"] or 0, found["flat"] or 0
    if masked > limit["masked"]:
        said = f"{masked:.0%} of the answers have no reward, more than {limit['masked']:.0%}"
        yield "masked", said
    if flat > limit["flat"]:
        said = f"of {flat:.0%} of the prompts all samples score alike"
        yield "flat", f"{said}, more than {limit['flat']:.0%}"
    if rewards and not found["known"]:
        yield "planted", "none of its prompts is one of the training set"


def _mean(numbers: list[float] | list[bool]) -> float | None:
    return statistics.fmean(numbers) if numbers else None


def _judged(made: Checked) -> list[float]:
    """Verdicts a minute of the judge that the run's reward asks, none where it asks nobody; notes a judge that is nowhere."""
    rules = made.get("env.rules") or "layout"
    path = REWARDS / f"{rules}.toml"
    if not path.is_file():
        known = cli.instead(rules, sorted(some.stem for some in REWARDS.glob("*.toml")))
        made.wrong("judge", "env.rules", f"there is no reward {rules!r}{known}")
        return []
    if "judge" not in config_files.read(path, REWARDS):
        return []
    judge = made.get("env.judge") or {}
    host, rate, hourly = (judge.get(key) for key in ("host", "a_minute", "usd_an_hour"))
    if not host or not rate:
        said = f"the reward {rules} asks a judge's server: SET='env.judge.host=HOST' names it"
        made.wrong("judge", "env.judge", f"{said}, or SET='env.rules=layout' does without")
        return []
    rewards = (made.report.get("rollouts") or 0) * (made.report.get("steps") or 0)
    hours = round(rewards / rate / 60, 1)
    usd = round(hours * (hourly or 0), 2)
    made.report["judge"] = {"verdicts_a_minute": rate, "hours": hours, "usd": usd}
    return [float(rate)]


def _pace(made: Checked, pace: float, limit: dict[str, float]) -> None:
    """Whether the rewards of a step come in time."""
    rollouts = made.report.get("rollouts")
    if not rollouts:
        return
    seconds, most = 60 * rollouts / pace, limit["reward_seconds"]
    made.report["pace"] = {"decks_a_minute": pace, "reward_seconds": round(seconds, 1)}
    if seconds > most:
        said = (
            f"{rollouts} rewards at {pace:g} a minute take {seconds:.0f} s of every step, more than "
            f"{most:g}; {seconds / most:.1f} times as many servers would do"
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
