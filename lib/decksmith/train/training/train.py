"""Train a run on this machine by TRL, from its newest checkpoint where there is one."""

import fcntl
import json
import os
import resource
import time
from pathlib import Path
from typing import Literal

from decksmith.core import cli
from decksmith.train.training import base_models
from decksmith.train.training.checkpoints import TrainingInfo
from decksmith.train.training.train_plan import Plan, StopSignal

# Read when torch and the Hub's package are loaded; what is set already stays.
ENVIRONMENT = {
    "OMP_WAIT_POLICY": "passive",  # threads that spin cost a busy machine more than they gain
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "TRL_EXPERIMENTAL_SILENCE": "1",  # of rollout functions, of a version that is pinned
}


def run(folder: Path | str) -> int:
    """Train FOLDER/recipe.yaml, from its newest checkpoint where there is one.

    Returns the exit status: 0 done, 75 saved but unfinished. Raises cli.BadConfig, cli.BadData, cli.Missing, cli.TryAgain.
    """
    started, stop, folder = time.monotonic(), StopSignal(), Path(folder)
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    # One process trains on one GPU; NeMo-RL is for more.
    gpus = os.environ.get("CUDA_VISIBLE_DEVICES", "0")
    os.environ["CUDA_VISIBLE_DEVICES"] = gpus.partition(",")[0]
    if not (folder / "recipe.yaml").is_file():
        raise cli.Missing(f"there is no {folder}/recipe.yaml; sft-config --run {folder} writes it")
    with open(folder / ".lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise cli.TryAgain(f"another process trains in {folder}; wait for it") from None
        plan = Plan(folder)
        newest = plan.newest()
        if newest and newest.step >= plan.total:
            cli.say(f"done before: {newest.step} of {plan.total} steps in {newest.path}")
            return _report(plan, newest.info, started)
        try:
            from decksmith.train.training import grpo_trainer, trl_trainer
        except ImportError as error:
            raise cli.Missing(f"{error.name} is not installed; {base_models.MEND}") from None
        made = grpo_trainer if plan.algorithm == "grpo" else trl_trainer
        callback = made.RecipeCallback(plan, stop, started)
        return _report(plan, trl_trainer.train(callback, newest, made.tuner_of), started)


def _report(plan: Plan, info: TrainingInfo, started: float) -> Literal[0, 75]:
    """Draw the loss, print what was reached as one JSON object, and return the status."""
    from decksmith.measure.results import plots

    plots.loss(plan.folder, plan.folder / "metrics.jsonl")
    use = resource.getrusage(resource.RUSAGE_SELF)
    said = {
        "run": str(plan.folder),
        "step": info["total_steps"],
        "of": plan.total,
        "train_loss": info.get("train:loss"),
        "val_loss": info.get(plan.val_loss),
        "trained_tokens": info["total_valid_tokens"] or None,
        "seconds": round(time.monotonic() - started, 1),
        "cpu_seconds": round(use.ru_utime + use.ru_stime, 1),
        "peak_gib": round(use.ru_maxrss / 2**20, 2),
    }
    if "gpu_gib" in info:
        said["gpu_gib"] = info["gpu_gib"]
    print(json.dumps(said))
    return 0 if info["total_steps"] >= plan.total else 75
