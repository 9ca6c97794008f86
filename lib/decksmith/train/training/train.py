"""Training on this machine by TRL: what a run is asked for by its recipe, where it stands, and how it goes on.

What a step trains follows from recipe, data and step number alone. So a run that was killed and started again ends, on a
CPU, in the same bytes as one that was not.
"""

import fcntl
import hashlib
import importlib.util
import json
import math
import os
import resource
import shutil
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from decksmith.core import cli, incoming, stream
from decksmith.train.training import base_models, checkpoints, recipes
from decksmith.train.training.checkpoints import Checkpoint, TrainingInfo
from decksmith.train.training.recipes import T

UNTRAINED = -100  # the label of a token that is read and not trained
LOGGERS = ("tensorboard", "wandb", "mlflow", "swanlab")  # NeMo-RL's keys, and transformers' names
# {"input_ids", "labels"}, of one length; of a pair {"prompt_ids", "chosen_ids", "rejected_ids"}; of GRPO {"prompt_ids",
# "prompt", "label"}, the messages and the JSON of the prompt that deck-reward measures by
Row = dict[str, Any]
Read = tuple[Row | None, bool]  # what is trained of a record, and whether it is too long for that
# Read when torch and the Hub's package are loaded; what is set already stays.
ENVIRONMENT = {
    "OMP_WAIT_POLICY": "passive",  # threads that spin cost a busy machine more than they gain
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "TRL_EXPERIMENTAL_SILENCE": "1",  # of rollout functions, of a version that is pinned
}


class StopSignal:
    """Whether somebody asks for the end: SIGTERM, SIGUSR1 or Ctrl-C; a second Ctrl-C ends at once."""

    def __init__(self) -> None:
        self.name: str | None = None  # of the signal that came
        for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT):
            signal.signal(number, self._note)

    def _note(self, number: int, _: object) -> None:
        if self.name and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.name = signal.Signals(number).name


class TrainPlan:
    """What FOLDER/recipe.yaml asks for, with the rows as token ids. Raises cli.BadConfig, cli.BadData, cli.Missing."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.config = config = recipes.load(folder / "recipe.yaml")
        self.algorithm = recipes.algorithm(config)
        if self.get("env.should_use_nemo_gym"):
            raise cli.BadConfig(f"{folder}/recipe.yaml asks for NeMo Gym; NeMo-RL does that")
        self.setting: dict[str, Any] = config[self.algorithm]
        self.val_loss = recipes.VAL_LOSS.get(self.algorithm, "")
        self.seed: int = self.setting.get("seed", 42)
        # Rows of a step; of GRPO these are prompts, each with several answers.
        key = recipes.ALGORITHMS[self.algorithm]
        self.batch = self.trained = self.want(key, int)
        self.micro = self.want("policy.train_micro_batch_size", int)
        if self.algorithm == "grpo":
            self.trained *= self.want("grpo.num_generations_per_prompt", int)
            key += " x grpo.num_generations_per_prompt"
        if self.trained % self.micro:
            micro = f"policy.train_micro_batch_size, {self.micro}"
            raise cli.BadConfig(f"{key} is {self.trained}, no multiple of {micro}")
        self.name = self.want("policy.model_name", str)
        self.base = base_models.folder(self.name)
        self.rows = self._rows("train")
        self.per_epoch = len(self.rows) // self.batch
        epochs = self.want(f"{self.algorithm}.max_num_epochs", int)
        self.total = min(self.want(f"{self.algorithm}.max_num_steps", int), epochs * self.per_epoch)
        if not self.total:
            rows = f"{len(self.rows)} rows"
            raise cli.BadData(f"{rows} are less than one batch of {self.batch} ({key})")
        self._validation()
        keep = config.get("checkpointing") or {}
        self.saves, self.keep = bool(keep.get("enabled")), keep.get("keep_top_k")
        self.save_period: int = keep.get("save_period") or self.total
        self.metric = keep.get("metric_name", self.val_loss)
        self.higher = bool(keep.get("higher_is_better"))
        self.checkpoints = Path(keep.get("checkpoint_dir") or folder / "checkpoints").resolve()
        self.limit = _seconds(keep.get("checkpoint_must_save_by"))
        self.start = self._start()
        # What makes two runs the same: where they write, and how long they may take, does not.
        reading = {k: v for k, v in config["data"].items() if k not in ("train", "validation")}
        made_of = ["trl", config["policy"], self.setting, [self.rows, self.held, reading]]
        if self.algorithm == "grpo":
            made_of += [config["loss_fn"], config.get("env")]
        if self.start:
            weights = (self.start / "adapter_model.safetensors").read_bytes()
            made_of.append(hashlib.sha256(weights).hexdigest())
        self.same = stream.fingerprint(made_of)
        self.loggers = self._loggers()

    def get(self, key: str, default: Any = None) -> Any:
        """The value under a dotted key of the recipe."""
        return recipes.get(self.config, key, default)

    def want(self, key: str, kind: type[T]) -> T:
        """The value under a dotted key of the recipe, as recipes.want. Raises cli.BadConfig."""
        return recipes.want(self.config, key, kind)

    def _start(self) -> Path | None:
        """The PEFT folder that the adapter begins as, where the recipe names one. Raises cli.Missing, cli.BadConfig."""
        given = self.get("start.adapter")
        if given is None:
            return None
        weights = Path(given) / "adapter_model.safetensors"
        if not weights.is_file():
            raise cli.Missing(f"there is no {weights} (start.adapter); model-export writes it")
        own = json.loads((Path(given) / "adapter_config.json").read_text()).get("r")
        key = "policy.dtensor_cfg.lora_cfg.dim"
        if own != (rank := self.get(key)):
            raise cli.BadConfig(f"{given} is of rank {own}, {key} is {rank}; it keeps its rank")
        return Path(given)

    def _rows(self, side: str) -> list[Row]:
        """The rows of train or validation: the tokens and the mask that NeMo-RL would train on."""
        path = self.get(f"data.{side}.data_path")
        if not path:
            return []
        if not Path(path).is_file():
            raise cli.Missing(f"there is no {path} (data.{side}.data_path)")
        template = recipes.template(self.config, self.base)
        rows: list[Row] = []
        long = 0
        for number, row in stream.records(path):
            try:
                made, is_long = READERS[self.algorithm](row, template, self.config)
            except cli.BadData as error:
                raise cli.BadData(f"{path}:{number}: {row['id']}: {error}") from None
            long += is_long
            if made:
                rows.append(made)
        if long:
            limit = "policy.max_total_sequence_length"
            cli.say(f"{long} rows of {path} train nothing: they are as long as {limit} or longer")
        return rows

    def _validation(self) -> None:
        """The validation rows that have something to predict, and when they are asked."""
        setting = self.setting
        held = self._rows("validation")
        if (batches := setting.get("val_batches") or 0) > 0:
            held = held[: batches * setting.get("val_global_batch_size", 1)]
        self.held = [row for row in held if self.algorithm == "grpo" or trained_tokens(row)]
        self.val_period: int = setting.get("val_period") or 0
        if self.val_period > 0 and not self.held:
            key = f"{self.algorithm}.val_period"
            raise cli.BadConfig(f"{key} is above 0 and data.validation has no rows")
        self.val_at_end = bool(setting.get("val_at_end"))
        self.val_at_start = bool(self.held) and bool(setting.get("val_at_start"))

    def _loggers(self) -> list[str]:
        """Where the losses are reported to beside metrics.jsonl; what the loggers read from the environment is set, unless
        it is. Raises cli.Missing for one that is not installed."""
        logger = self.config.get("logger") or {}
        wanted = [name for name in LOGGERS if logger.get(f"{name}_enabled")]
        if not wanted:
            return []
        for name in wanted:
            if not importlib.util.find_spec(name):
                what = f"logger.{name}_enabled is true, and {name} is not installed"
                mend = f".venv/bin/uv pip install {name}, or set logger.{name}_enabled=false"
                raise cli.Missing(f"{what}; run: {mend}")
        logs = Path(logger.get("log_dir") or self.folder / "logs")
        logs.mkdir(parents=True, exist_ok=True)
        said = {
            "TENSORBOARD_LOGGING_DIR": logs / "tensorboard",
            "WANDB_DIR": logs,
            "WANDB_PROJECT": recipes.get(logger, "wandb.project"),
            "WANDB_ENTITY": recipes.get(logger, "wandb.entity"),
            "WANDB_RUN_ID": self.same[:16],  # a run that was killed goes on in the same curve
            "WANDB_RESUME": "allow",
            "MLFLOW_TRACKING_URI": recipes.get(logger, "mlflow.tracking_uri")
            or f"sqlite:///{logs.resolve()}/mlflow.db",
            "MLFLOW_EXPERIMENT_NAME": recipes.get(logger, "mlflow.experiment_name"),
            "SWANLAB_PROJECT": recipes.get(logger, "swanlab.project"),
        }
        for name, value in said.items():
            if value:
                os.environ.setdefault(name, str(value))
        return wanted

    def validates(self, step: int) -> bool:
        """Whether a validation follows this step."""
        is_due = self.val_period > 0 and step % self.val_period == 0
        return bool(self.held) and (is_due or (self.val_at_end and step == self.total))

    def order(self) -> list[int]:
        """The row of each place of the training: of every epoch its whole batches, in an order of its own."""
        import torch

        places: list[int] = []
        for epoch in range(-(-self.total // self.per_epoch)):
            order = list(range(len(self.rows)))
            if self.get("data.shuffle", True):
                dice = torch.Generator().manual_seed(self.seed + epoch)
                order = torch.randperm(len(self.rows), generator=dice).tolist()
            places += order[: self.per_epoch * self.batch]
        return places[: self.total * self.batch]

    def newest(self) -> Checkpoint | None:
        """The checkpoint to go on from. Raises cli.BadConfig for one of another run."""
        found = checkpoints.finished(self.checkpoints)
        if found and found[-1].info.get("run") != self.same:
            how = "was trained by another recipe or on other data"
            mend = f"name another run, or remove {self.checkpoints}"
            raise cli.BadConfig(f"{found[-1].path} {how}; {mend}")
        return found[-1] if found else None

    def lacks(self, found: Checkpoint) -> bool:
        """Whether a kill left a checkpoint without the validation that follows its step."""
        return self.validates(found.step) and self.val_loss not in {"", *found.info}

    def prune(self) -> None:
        """Keep the keep_top_k best by the metric, the newer of equals, and the newest in any case, as NeMo-RL does."""
        if self.keep is None:
            return
        found = checkpoints.finished(self.checkpoints)
        best = checkpoints.ranked(found, self.metric, self.higher)
        best += [one for one in reversed(found) if one not in best]
        for step, path, _ in best[self.keep :]:
            if step != found[-1].step:
                gone = path.with_name(f"tmp_{path.name}")
                shutil.rmtree(gone, ignore_errors=True)
                os.rename(path, gone)
                shutil.rmtree(gone)

    def begin(self, newest: Checkpoint | None) -> None:
        """Forget what lies behind the newest checkpoint: later metrics, and folders that a kill left half."""
        lines = []
        if newest:
            again = newest.step if self.lacks(newest) else None
            for text in (self.folder / "metrics.jsonl").read_text().splitlines():
                with suppress(ValueError):  # torn by a kill
                    line = json.loads(text)
                    if line["step"] <= newest.step and (line["step"] != again or "loss" in line):
                        lines.append(text + "\n")
        stream.write(self.folder / "metrics.jsonl", "".join(lines))
        for name in ("tmp_step_*", "checkpoint-*"):
            for half in self.checkpoints.glob(name):
                shutil.rmtree(half)


def _talk(row: Row, template: recipes.ChatTemplate, config: recipes.Recipe) -> Read:
    """Of a conversation its tokens and labels; one that is too long trains none of them. Raises cli.BadData."""
    if not row.get("messages") or row["messages"][-1].get("role") != "assistant":
        raise cli.BadData("the last message is not the assistant's")
    made = recipes.example(row["messages"], template, config, row.get("tools"))
    pairs = zip(made["ids"], made["mask"], strict=True)
    labels = [token if trained else UNTRAINED for token, trained in pairs]
    return {"input_ids": made["ids"], "labels": labels}, made["masked_out"]


def _pair(row: Row, template: recipes.ChatTemplate, config: recipes.Recipe) -> Read:
    """Of a pair the tokens; one of which a side is too long is left out. Raises cli.BadData."""
    try:
        sides = recipes.sides(row)
        made = {name: recipes.example(talk, template, config) for name, talk in sides.items()}
    except (KeyError, TypeError, ValueError):
        raise cli.BadData("no pair; chat-prefer writes context and completions") from None
    if any(side["masked_out"] for side in made.values()):
        return None, True
    ids: Row = {}
    for name, side in made.items():
        first = side["mask"].index(1)
        if ids.setdefault("prompt_ids", side["ids"][:first]) != side["ids"][:first]:
            raise cli.BadData("the chat template writes two prompts for one context")
        ids[f"{name}_ids"] = side["ids"][first:]
    return ids, False


def _prompt(row: Row, template: recipes.ChatTemplate, config: recipes.Recipe) -> Read:
    """Of a prompt its messages, tokens and label; one that leaves no room for an answer is left out. Raises cli.BadData."""
    asked, label = recipes.get(row, "responses_create_params.input"), recipes.get(row, "label", {})
    if not asked or not (recipes.get(label, "asks") or recipes.get(label, "checklist")):
        raise cli.BadData("a prompt needs asks or a checklist; sft-config writes such rows")
    kwargs = recipes.get(config, "policy.tokenizer.chat_template_kwargs") or {}
    ids = template.encode(template.render(asked, add_generation_prompt=True, **kwargs))
    room = recipes.want(config, "policy.generation.max_new_tokens", int)
    if len(ids) + room > recipes.want(config, "policy.max_total_sequence_length", int):
        return None, True
    prompt = {"id": row["id"], "messages": asked, "asks": {}, "checklist": [], **label}
    return {"prompt": asked, "prompt_ids": ids, "label": json.dumps(prompt)}, False


READERS = {"sft": _talk, "dpo": _pair, "grpo": _prompt}


def trained_tokens(row: Row) -> int:
    """How many tokens of a row are predicted; there is nothing before the first one. None of a prompt's: its answers are not
    written yet."""
    if "prompt" in row:
        return 0
    if "labels" not in row:
        return len(row["chosen_ids"]) + len(row["rejected_ids"])
    return sum(label != UNTRAINED for label in row["labels"][1:])


def _seconds(limit: object) -> float:
    """`DD:HH:MM:SS` in seconds; without a limit there is no end of them."""
    if not limit:
        return math.inf
    try:
        days, hours, minutes, seconds = map(int, str(limit).split(":"))
    except ValueError:
        key = "checkpointing.checkpoint_must_save_by"
        raise cli.BadConfig(f"{key} is {limit!r}; write DD:HH:MM:SS") from None
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def run(folder: Path | str) -> int:
    """Train FOLDER/recipe.yaml, from its newest checkpoint where there is one. Returns the exit status: 0 done, 75 saved but
    unfinished. Raises cli.BadConfig, cli.BadData, cli.Missing, cli.TryAgain."""
    started, stop, folder = time.monotonic(), StopSignal(), Path(folder)
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    # One process trains on one GPU; NeMo-RL is for more.
    gpus = os.environ.get("CUDA_VISIBLE_DEVICES", "0")
    os.environ["CUDA_VISIBLE_DEVICES"] = gpus.partition(",")[0]
    if not (folder / "recipe.yaml").is_file():
        raise cli.Missing(f"there is no {folder}/recipe.yaml; sft-config --run {folder} writes it")
    with open(incoming.own(folder / ".lock", closed=0), "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise cli.TryAgain(f"another process trains in {folder}; wait for it") from None
        plan = TrainPlan(folder)
        newest = plan.newest()
        if newest and newest.step >= plan.total and not plan.lacks(newest):
            cli.say(f"done before: {newest.step} of {plan.total} steps in {newest.path}")
            return _report(plan, newest.info, started)
        base_models.library("trl")
        from decksmith.train.training import grpo_trainer, trl_trainer

        made = grpo_trainer if plan.algorithm == "grpo" else trl_trainer
        callback = made.RecipeCallback(plan, stop, started)
        return _report(plan, trl_trainer.train(callback, newest, made.tuner_of), started)


def _report(plan: TrainPlan, info: TrainingInfo, started: float) -> Literal[0, 75]:
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
