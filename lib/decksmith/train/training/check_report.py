"""What is wrong with a training run before it begins, rule by rule, and the report of it for people."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from decksmith.core.records import Optionals
from decksmith.train.training.records import CheckFailure

SHOWN = 10  # findings of one rule that are listed; the rest is counted

# Each rule with what to do about it.
RULES = {
    "absent": "run sft-config for this run",
    "unknown-key": "correct the name; NeMo-RL ignores a key it does not know, in silence",
    "unfilled": "run sft-config, which computes it, or give it as KEY=VALUE",
    "pair": "make pairs again: chat-prefer writes context and two completions of rank 0 and 1",
    "bos": "NeMo-RL's DPO puts the tokenizer's bos_token before every prompt, whatever data.add_bos says: take the bos_token out of tokenizer_config.json of the model that is trained",
    "rollouts": "make policy.train_global_batch_size divide grpo.num_prompts_per_step x grpo.num_generations_per_prompt, and at least 2 samples a prompt",
    "gym": "take env, data.default and policy.generation.vllm_cfg from assets/recipes/nemotron-nano-grpo.yaml",
    "row": "write the rows again: env-export --kind nemo-gym, from prompts with messages",
    "held-out": "leave the prompt out: what an evaluation asks is no training",
    "longest": "shorten the prompt, or lower policy.generation.max_new_tokens",
    "planted": "ask the model that is trained, several times each, for prompts of the training set: chat-generate --samples 8 | .. | deck-reward",
    "flat": "train on harder or easier prompts: samples of one prompt that score alike teach nothing",
    "masked": "look at reward.why: faults of ours are no measurement, and their samples train nothing",
    "pace": "start more reward servers (RL_SERVERS), or ask fewer rollouts a step",
    "memory": "lower policy.generation.vllm_cfg.gpu_memory_utilization or raise tensor_parallel_size",
    "checkpointing": "set checkpointing.enabled=true and an absolute checkpointing.checkpoint_dir on a disk that all nodes see",
    "batch": "make policy.train_global_batch_size (and val_global_batch_size) a multiple of GPUs x micro batch",
    "template": "set policy.tokenizer.chat_template=default, or the path of a .jinja file",
    "dataset": "give data.train and data.validation the dataset_name of the recipe as it was, with absolute paths, each with _override_: true where there is a parent",
    "steps": "run sft-config again: the rows are not those it counted, or steps and epochs were set apart",
    "periods": "make checkpointing.save_period a multiple of val_period, both within the steps, and val_at_end true; "
    "without any validation checkpointing.metric_name is null, which keeps the newest",
    "schedule": "run sft-config again, which fits warm-up and decay to the steps",
    "logger": "set logger.wandb_enabled=false, or give WANDB_API_KEY",
    "context": "lower policy.max_total_sequence_length, or train a model with a longer context",
    "lora": "correct policy.dtensor_cfg.lora_cfg",
    "disk": "make room, lower checkpointing.keep_top_k, or give another checkpointing.checkpoint_dir",
    "json": "mend or remove the line",
    "messages": "a row is system, user, assistant: known roles, contents that are not empty, the assistant last",
    "columns": "give every row the same keys: sft-config writes id and messages alone",
    "tags": "move the thoughts into reasoning_content (draft-pack does)",
    "reasoning": "give the row its reasoning_content; without any in the corpus set data.add_generation_prompt=false",
    "template-refuses": "the chat template cannot render these messages; mend the row or the template",
    "too-long": "shorten the row, or raise policy.max_total_sequence_length: such a row is masked out in silence",
    "prompt": "set data.add_bos=false and data.add_generation_prompt=true: what is trained on must begin as a server's prompt does",
    "pieces": "the pieces that are trained do not add up to the template's rendering: give reasoning to the row, set data.add_eos=false where the template ends a turn itself",
    "end": "let the trained text end once with a token at which the server stops: data.add_eos=true, or the tokenizer of the served model",
    "trained": "reasoning and answer must both be trained: look at --preview, and at the chat template",
    "nulls": "the template takes an absent key and null for different things; the trainer's loader fills in nulls",
    "duplicate": "remove one of the two",
    "leak": "split again (chat-split): a row of the validation set is in the training set",
}

Report = dict[str, Any]  # what preflight.check and rl_check.check return


class Findings:
    """What is wrong, by rule: all counted, the first few kept with place and words."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.listed: list[CheckFailure] = []

    def add(
        self, rule: str, message: str, file: Path, line: int | None = None, ident: str | None = None
    ) -> None:
        """Add a finding in a file; `ident` is the id of a row."""
        self.counts[rule] += 1
        if self.counts[rule] <= SHOWN:
            place: CheckFailure = {"rule": rule, "file": str(file), "line": line, "id": ident}
            self.listed.append({**place, "message": message, "remedy": RULES[rule]})


def lines(report: Report) -> Iterator[str]:
    """One line for each failure: place, id, rule, what, what to do."""
    for found in report["failures"]:
        place = found["file"]
        if found["line"] is not None:
            place += f":{found['line']}"
        parts = [place, found["id"], found["rule"], f"{found['message']}; {found['remedy']}"]
        yield ": ".join(part for part in parts if part)
    for rule, count in report["counts"].items():
        if count > SHOWN:
            yield f"{rule}: {count - SHOWN} more"


def table(report: Report) -> Iterator[tuple[str, str]]:
    """The report as lines of a table, (what, how it stands)."""
    yield "model", str(report["model"])
    yield "keys", f"compared with {report['parent']['keys']}"
    if rows := report.get("rows"):
        yield "rows", _facts(rows)
    if prompted := report.get("prompted"):
        yield "our system prompt", f"begins {_facts(prompted)} of them"
    if "batch" in report:
        epoch = f"floor({report['rows'].get('train', 0):,} / {report['batch']})"
        over = f"{report['left_over']} rows left over in each"
        yield "steps", f"{report['steps']} = {report['epochs']} epochs x {epoch}, {over}"
    if "rollouts" in report:
        yield "steps", f"{report['steps']} of {report['rollouts']} rollouts"
    for side, found in report.get("tokens", {}).items():
        limit = {"limit": report["limit"]} if "limit" in report else {}
        yield f"tokens, {side}", _facts({**found, **limit})
    if "held_out" in report:
        held, how = report["held_out"], report["compared"]
        yield "held out", f"{held:,} requests of evaluations, compared by {how}"
    if planted := report.get("planted"):
        yield "planted sample", _facts(planted)
    if pace := report.get("pace"):
        seconds, decks = pace["reward_seconds"], pace["decks_a_minute"]
        yield "rewards", f"{seconds} s a step at {decks:g} decks a minute"
    for when, parts in report.get("memory_gib", {}).items():
        yield f"memory, {when}", f"{_facts(parts)} GiB a GPU, estimated"
    if lora := report.get("lora"):
        trained, whole = lora["trainable"] / 1e6, lora["of"] / 1e6
        size = f"{trained:.1f} M of {whole:,.0f} M parameters ({lora['source']})"
        yield "adapter", f"rank {lora['rank']} on {lora['modules']:,} modules, {size}"
        touched = [f"{name} {some}/{every}" for name, (some, every) in lora["classes"].items()]
        yield "", ", ".join(touched)
    if estimate := report.get("estimate"):
        yield from _estimated(estimate)
    for what in report["unchecked"]:
        yield "not checked", what


def _estimated(estimate: Report) -> Iterator[tuple[str, str]]:
    if memory := estimate.get("memory_gib"):
        yield "memory", f"{_facts(memory)} GiB a device, estimated"
    if estimate.get("hours") is not None:
        gpus = f", {estimate['gpu_hours']} GPU-hours" if estimate["gpu_hours"] else ""
        yield "time", f"about {estimate['hours']} h{gpus}, estimated ({estimate['pace']})"
    saved, free = estimate["checkpoints_gib"], estimate["free_gib"]
    yield "disk", f"checkpoints up to {saved} GiB, {free} GiB free"


def _facts(found: Optionals) -> str:
    """Numbers with their names."""
    said = {name: "none" if one is None else f"{one:,}" for name, one in found.items()}
    return ", ".join(f"{name.replace('_', ' ')} {one}" for name, one in said.items())
