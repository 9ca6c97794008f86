"""Direct preference optimization by TRL's DPOTrainer (Rafailov et al. 2023), with NeMo-RL's recipe keys.

What is trained of a pair, when a run validates, saves and stops, and where checkpoints lie, is that of trl_trainer.py. The
reference is the adapter that is begun with (start.adapter), or the base model where there is none.
"""

from typing import Any

import trl
from transformers.trainer_callback import PrinterCallback

from decksmith.core import cli
from decksmith.training import recipes
from decksmith.training.trainer import Plan
from decksmith.training.trl_trainer import Recipe, parts


class PairTuner(trl.DPOTrainer):
    """TRL's, of pairs that are tokens already."""

    def _prepare_dataset(self, dataset: Any, *_: Any, **__: Any) -> Any:
        return dataset

    def create_model_card(self, *_: Any, **__: Any) -> None:
        """model-export writes the card."""


def tuner_of(plan: Plan, recipe: Recipe, *, is_new: bool) -> PairTuner:
    """TRL's trainer for the plan. Raises cli.BadConfig, cli.Missing."""
    for key, only in (
        ("preference_loss_weight", 1),
        ("sft_loss_weight", 0),
        ("preference_average_log_probs", False),
    ):
        if plan.setting.get(key, only) != only:
            raise cli.BadConfig(
                f"dpo.{key} is {plan.setting[key]}; this trainer knows {only}, NeMo-RL has the others"
            )
    beta = recipes.want(plan.config, "dpo.reference_policy_kl_penalty", float)
    tuner = PairTuner(
        **parts(plan, recipe, trl.DPOConfig, is_new=is_new, beta=beta, max_length=None)
    )
    tuner.remove_callback(PrinterCallback)  # it writes to stdout
    return tuner
