"""Group relative policy optimization by TRL's GRPOTrainer (Shao et al. 2024), with NeMo-RL's recipe keys, for the embedded
model: its answers come from the embedded engine, their rewards from deck-reward.

What is saved when, and where, is that of trl_trainer.py. The reference of the KL penalty is the adapter that is begun with.
After the steps that the recipe validates, held-out prompts are asked, and RUN/curve is drawn. A step's answers are trained once, by the policy that wrote them, so no ratio of two policies is needed; that
the engine computes with fewer bits than the trainer is not corrected for.

The engine writes about ten times as fast on a CPU as the model that is trained would. It computes the same weights, the
adapter in 8 bits, so that an answer is nearly one of the policy's own. Each set of answers has a folder with a journal: what
a kill left unfinished goes on, and nothing is asked or drawn twice.
"""

import hashlib
import json
import os
import shlex
import subprocess
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import trl
from transformers import TrainerControl as Control
from transformers import TrainerState as State
from transformers import TrainingArguments as Arguments
from transformers.trainer_callback import PrinterCallback

from decksmith.core import cli, stream
from decksmith.core.records import PromptRow
from decksmith.measure.decks.records import Rendered
from decksmith.measure.judging.records import DeckRecord
from decksmith.models import embedded
from decksmith.train.training import adapters, curve, rl_measures, trl_trainer
from decksmith.train.training.records import CurvePoint
from decksmith.train.training.train import Row, TrainPlan

# What a line of metrics.jsonl holds of a step's answers, by TRL's names.
LOGGED = {
    "reward": "reward",
    "kl": "kl",
    "tokens": "completions/mean_length",
    "cut_off": "completions/clipped_ratio",
    "alike": "frac_reward_zero_std",
}
# From prompts to decks with rewards and checks.
STAGES = (
    "chat-generate --model local --base-url {url} --slug policy --run {run} --samples {samples} "
    "--temperature {temperature} --top-p {top_p} --max-tokens {max_tokens} --seed {seed}",
    "deck-parse --run {run}",
    "deck-illustrate --protocol offline --run {run}",
    "deck-render --protocol offline --run {run}",
    "deck-judge --protocol offline --run {run}",
    "deck-reward --rules {rules} --run {run}",
    "deck-score --protocol offline",
)


@dataclass(frozen=True)
class Rollouts:
    """Decks of a policy, kept below `folder`, and how its answers are drawn; base: the embedded model's name, whose adapter
    the policy is."""

    folder: Path
    base: str
    temperature: float
    top_p: float
    max_tokens: int
    rules: str

    def ask(
        self, name: str, peft: Path, prompts: Iterable[PromptRow], samples: int, seed: int
    ) -> list[DeckRecord]:
        """The records of `samples` answers to each prompt by the adapter in the folder `peft`, in
        the prompts' order. name: of the set; the same name, adapter and prompts are the same set,
        which is read where it is finished. Raises cli.TryAgain where a stage fails."""
        self.folder.mkdir(parents=True, exist_ok=True)
        weights = self.folder / "policy.gguf"
        adapters.gguf(peft, self.base, weights)
        asked = b"".join(stream.dumps(prompt) + b"\n" for prompt in prompts)
        digest = hashlib.sha256(weights.read_bytes() + asked).hexdigest()[:12]
        run = self.folder / f"{name}-{digest}"
        if not (run / "decks.jsonl").is_file():
            run.mkdir(exist_ok=True)
            stream.write(run / "prompts.jsonl", asked)
            with embedded.lease(loras={"policy": weights}) as lease:
                self._pipeline(run, url=lease.base_url, samples=samples, seed=seed)
        made = [record for _, record in stream.records(run / "decks.jsonl", Rendered)]
        return cast(list[DeckRecord], made)

    def _pipeline(self, run: Path, **asking: object) -> None:
        where, bin_folder = shlex.quote(str(run)), shlex.quote(str(cli.ROOT / "bin"))
        given = {**asdict(self), "run": where, **asking}
        stages = " | ".join(f"{bin_folder}/{stage.format(**given)}" for stage in STAGES)
        files = f"< {where}/prompts.jsonl > {where}/decks.jsonl.tmp 2>> {where}/log"
        words = ["bash", "-o", "pipefail", "-c", f"{{ {stages}; }} {files}"]
        status = subprocess.run(words, env=os.environ | {"IMAGES": "off"}).returncode
        if status:
            said = f"the answers of {run.name} ended with status {status}"
            raise cli.TryAgain(f"{said}; {run}/log says why; run this again")
        os.rename(run / "decks.jsonl.tmp", run / "decks.jsonl")


Rewards = list[float | None]


class RecipeCallback(trl_trainer.RecipeCallback):
    """As of SFT; and held-out answers after the steps that are validated."""

    names = LOGGED

    def on_train_begin(self, args: Arguments, state: State, control: Control, **_: object) -> None:
        """Measure what a kill left unmeasured, and the beginning."""
        step = state.global_step
        path = self.plan.folder / "curve/curve.jsonl"
        lines = map(json.loads, path.read_text().splitlines() if path.is_file() else [])
        self.lines: dict[int, CurvePoint] = {
            n: line for line in lines if (n := line["step"]) <= step
        }
        if self.plan.validates(step) if step else self.plan.val_at_start:
            self.measure(step)

    def measure(self, step: int) -> None:
        """A line of the curve for this step, unless it has one; and the curve."""
        if step in self.lines or not self.plan.held:
            return
        samples = self.plan.setting.get("val_generations_per_prompt") or 1
        policy, rollouts = self.tuner.policy(), self.tuner.rollouts
        prompts = _prompts(self.plan.held)
        decks = rollouts.ask(f"val_{step}", policy, prompts, samples, self.plan.seed)
        metrics = rl_measures.measures(decks, rollouts.rules)
        if "kl" in self.logged:
            metrics["kl"] = {"training": {"nats a token": self.logged["kl"]}}
        self.lines[step] = {"step": step, "metrics": metrics}
        home = self.plan.folder / "curve"
        home.mkdir(exist_ok=True)
        lines = [line for _, line in sorted(self.lines.items())]
        curve.draw(home, lines)
        text = "".join(json.dumps(line) + "\n" for line in lines)
        stream.write(home / "curve.jsonl", text)  # last: what a kill left undrawn is drawn again


class GroupTuner(trl_trainer.WithoutCard, trl.GRPOTrainer):
    """TRL's, with answers and rewards of the embedded engine and the pipeline."""

    model: Any
    processing_class: Any

    def __init__(self, plan: TrainPlan, rollouts: Rollouts, **parts: Any) -> None:
        self.plan, self.rollouts = plan, rollouts
        self.rows = {json.dumps(row["prompt"]): row for row in plan.rows}
        super().__init__(reward_funcs=deck_reward, rollout_func=_answers, **parts)

    def policy(self) -> Path:
        """The folder of the adapter as it is now, as peft writes it."""
        folder = self.rollouts.folder / "policy"
        self.model.save_pretrained(folder, selected_adapters=["default"])
        return folder


def deck_reward(completions: object, reward: Rewards, **_: object) -> Rewards:
    """The rewards that came with the answers; None, which TRL leaves out, for one that is masked."""
    return reward


def _answers(prompts: list[Any], tuner: Any) -> dict[str, Any]:
    """What TRL asks of a rollout function: tokens of prompts and answers, and the rewards. The answers to one prompt follow
    one another."""
    plan: TrainPlan = tuner.plan
    count = plan.trained // plan.batch
    rows = [tuner.rows[json.dumps(prompt)] for prompt in prompts[::count]]
    step = tuner.state.global_step + 1
    seed = plan.seed + 1000 * step
    decks = tuner.rollouts.ask(f"step_{step}", tuner.policy(), _prompts(rows), count, seed)
    return {
        "prompt_ids": [row["prompt_ids"] for row in rows for _ in range(count)],
        "completion_ids": [_tokens(tuner, deck) for deck in decks],
        "logprobs": None,
        "reward": [deck["reward"]["reward"] for deck in decks],
    }


def _tokens(tuner: GroupTuner, deck: DeckRecord) -> list[int]:
    """The tokens of an answer: of its text, and the end where the model ended it."""
    tokenizer, said = tuner.processing_class, deck["gen"]
    ids = tokenizer.encode(str(said.get("text") or ""), add_special_tokens=False)
    limit = tuner.rollouts.max_tokens
    is_cut = said.get("finish_reason") == "length"
    return ids[:limit] if is_cut and ids else [*ids[: limit - 1], tokenizer.eos_token_id]


def _prompts(rows: list[Row]) -> list[DeckRecord]:
    return [json.loads(row["label"]) for row in rows]


def tuner_of(plan: TrainPlan, recipe: RecipeCallback, measures: bool) -> GroupTuner:
    """TRL's trainer for the plan, which measures at its start itself. Raises cli.BadConfig, cli.Missing."""
    rollouts = Rollouts(
        folder=plan.folder / "rollouts",
        base=plan.name,
        temperature=plan.want("policy.generation.temperature", float),
        top_p=plan.want("policy.generation.top_p", float),
        max_tokens=plan.want("policy.generation.max_new_tokens", int),
        rules=plan.get("env.rules") or "layout",
    )
    parts = trl_trainer.parts(
        plan,
        recipe,
        trl.GRPOConfig,
        measures=False,  # `measure` comes at the start
        num_generations=plan.trained // plan.batch,
        steps_per_generation=plan.trained // plan.micro,
        max_completion_length=rollouts.max_tokens,
        temperature=rollouts.temperature,
        shuffle_dataset=False,
        beta=plan.want("loss_fn.reference_policy_kl_penalty", float),
        epsilon=plan.want("loss_fn.ratio_clip_max", float),
    )
    tuner = GroupTuner(plan, rollouts, **parts)
    tuner.remove_callback(PrinterCallback)  # it writes to stdout
    return tuner
