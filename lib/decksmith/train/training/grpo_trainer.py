"""Group relative policy optimization by TRL's GRPOTrainer (Shao et al. 2024), with NeMo-RL's recipe keys, for the embedded
model: its answers come from the embedded engine (rollouts.py), their rewards from deck-reward.

What is saved when, and where, is that of trl_trainer.py. The reference of the KL penalty is the adapter that is begun with.
After the steps that the recipe validates, held-out prompts are asked, RUN/curve is drawn, and the recipe's `watch` is applied
(hacking.py). A step's answers are trained once, by the policy that wrote them, so no ratio of two policies is needed; that
the engine computes with fewer bits than the trainer is not corrected for.
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import trl
from transformers import TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import PrinterCallback

from decksmith.core import cli, stream
from decksmith.measure.judging.records import DeckRecord
from decksmith.train.training import curve, hacking, recipes, trl_trainer
from decksmith.train.training.records import CurvePoint
from decksmith.train.training.rollouts import Rollouts, Sampling
from decksmith.train.training.train_plan import Plan, Row

# What a line of metrics.jsonl holds of a step's answers, by TRL's names.
LOGGED = {
    "reward": "reward",
    "kl": "kl",
    "tokens": "completions/mean_length",
    "cut_off": "completions/clipped_ratio",
    "alike": "frac_reward_zero_std",
}


class RecipeCallback(trl_trainer.RecipeCallback):
    """As of SFT; and held-out answers after the steps that are validated, with the watch over what they are worth."""

    tuner: "GroupTuner"

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object
    ) -> None:
        """Measure what a kill left unmeasured, and the beginning. Raises cli.BadData where the watch has stopped the run."""
        self.watch = hacking.rule(self.plan.config.get("watch") or {})
        self.lines = self._kept(state.global_step)
        is_due = state.global_step or self.plan.val_at_start
        if is_due and (not state.global_step or self.plan.validates(state.global_step)):
            self.measure(state.global_step)
        if said := self._stops(state.global_step):
            raise cli.BadData(f"{said}; the adapter is saved, and watch.action=warn goes on")

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **more: object
    ) -> None:
        """As of SFT; TRL does not evaluate, `measure` does."""
        super().on_step_end(args, state, control, **more)
        control.should_evaluate = False

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **more: object
    ) -> None:
        """What is trained is safe before it is measured."""
        super().on_save(args, state, control, **more)
        if self.plan.validates(state.global_step):
            self.measure(state.global_step)
        if said := self._stops(state.global_step):
            self.stopped, control.should_training_stop = f"the watch ({said})", True

    def more(self, logs: trl_trainer.Logs) -> dict[str, float]:
        self.logged = {
            name: round(logs[key], 6) for name, key in LOGGED.items() if logs.get(key) is not None
        }
        return self.logged

    def measure(self, step: int) -> None:
        """A line of the curve for this step, unless it has one; the curve, its table, and what the watch finds."""
        if step in self.lines or not self.plan.held:
            return
        samples = self.plan.setting.get("val_generations_per_prompt") or 1
        decks = self.tuner.rollouts.ask(
            f"val_{step}", self.tuner.policy(), _prompts(self.plan.held), samples, self.plan.seed
        )
        metrics = hacking.measures(decks, self.tuner.rollouts.sampling.rules)
        if "kl" in getattr(self, "logged", {}):
            metrics["kl"] = {"training": {"nats a token": self.logged["kl"]}}
        self.lines[step] = {"step": step, "metrics": metrics}
        self._draw()
        for one in hacking.found(self.lines.values(), self.watch):
            if one.step == step:
                cli.say(f"step {step}: watch: {one.says}")

    def _draw(self) -> None:
        home = self.plan.folder / "curve"
        home.mkdir(exist_ok=True)
        lines = [line for _, line in sorted(self.lines.items())]
        curve.draw(home, lines)
        trained = [json.loads(text) for text in _lines(self.plan.folder / "metrics.jsonl")]
        stream.write(home / "curve.md", hacking.table(lines, trained))
        findings = [asdict(one) for one in hacking.found(lines, self.watch)]
        stream.write(home / "watch.json", json.dumps(findings, indent=2) + "\n")
        text = "".join(json.dumps(line) + "\n" for line in lines)
        stream.write(home / "curve.jsonl", text)  # last: what a kill left undrawn is drawn again

    def _kept(self, step: int) -> dict[int, CurvePoint]:
        """The lines of the curve up to a step."""
        lines = [json.loads(text) for text in _lines(self.plan.folder / "curve/curve.jsonl")]
        return {line["step"]: line for line in lines if line["step"] <= step}

    def _stops(self, step: int) -> str:
        """Why the watch stops the run at this step; nothing where it does not."""
        if self.watch.action != "stop":
            return ""
        findings = hacking.found(self.lines.values(), self.watch)
        return next((one.says for one in findings if one.step == step), "")


class GroupTuner(trl.GRPOTrainer):
    """TRL's, with answers and rewards of the embedded engine and the pipeline."""

    model: Any
    processing_class: Any

    def __init__(self, plan: Plan, rollouts: Rollouts, **parts: Any) -> None:
        self.plan, self.rollouts = plan, rollouts
        self.rows = {json.dumps(row["prompt"]): row for row in plan.rows}
        super().__init__(reward_funcs=deck_reward, rollout_func=_answers, **parts)

    def policy(self) -> Path:
        """The folder of the adapter as it is now, as peft writes it."""
        folder = self.rollouts.folder / "policy"
        self.model.save_pretrained(folder, selected_adapters=["default"])
        return folder

    def create_model_card(self, *_: object, **__: object) -> None:
        """model-export writes the card."""


def deck_reward(
    completions: list[object], reward: list[float | None], **_: object
) -> list[float | None]:
    """The rewards that came with the answers; None, which TRL leaves out, for one that is masked."""
    return reward


def _answers(prompts: list[Any], tuner: Any) -> dict[str, Any]:
    """What TRL asks of a rollout function: tokens of prompts and answers, and the rewards. The answers to one prompt follow
    one another."""
    plan: Plan = tuner.plan
    count = plan.trained // plan.batch
    rows = [tuner.rows[json.dumps(prompt)] for prompt in prompts[::count]]
    step = tuner.state.global_step + 1
    decks = tuner.rollouts.ask(
        f"step_{step}", tuner.policy(), _prompts(rows), count, plan.seed + 1000 * step
    )
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
    limit = tuner.rollouts.sampling.max_tokens
    is_cut = said.get("finish_reason") == "length"
    return ids[:limit] if is_cut and ids else [*ids[: limit - 1], tokenizer.eos_token_id]


def _prompts(rows: list[Row]) -> list[DeckRecord]:
    return [json.loads(row["label"]) for row in rows]


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.is_file() else []


def tuner_of(plan: Plan, recipe: RecipeCallback, *, is_new: bool) -> GroupTuner:
    """TRL's trainer for the plan. Raises cli.BadConfig, cli.Missing."""
    config = plan.config
    want = recipes.want
    sampling = Sampling(
        base=plan.name,
        temperature=float(want(config, "policy.generation.temperature", float)),
        top_p=float(want(config, "policy.generation.top_p", float)),
        max_tokens=want(config, "policy.generation.max_new_tokens", int),
        rules=recipes.get(config, "env.rules") or "rendered",
    )
    parts = trl_trainer.parts(
        plan,
        recipe,
        trl.GRPOConfig,
        is_new=False,  # `measure` comes at the start
        num_generations=plan.trained // plan.batch,
        steps_per_generation=plan.trained // plan.micro,
        max_completion_length=sampling.max_tokens,
        temperature=sampling.temperature,
        shuffle_dataset=False,
        beta=want(config, "loss_fn.reference_policy_kl_penalty", float),
        epsilon=want(config, "loss_fn.ratio_clip_max", float),
    )
    recipe.tuner = GroupTuner(plan, Rollouts(plan.folder / "rollouts", sampling), **parts)
    recipe.tuner.remove_callback(PrinterCallback)  # it writes to stdout
    return recipe.tuner
