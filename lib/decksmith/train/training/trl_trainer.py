"""LoRA by TRL's SFTTrainer and DPOTrainer, with NeMo-RL's recipe keys and checkpoint layout.

TRL trains, validates, resumes and reports. Ours are the rows (tokens and labels as NeMo-RL makes them), the optimizer that the recipe
names, and the callback `RecipeCallback`: when to validate, save and stop, and where a checkpoint lies. The reference of DPO
(Rafailov et al. 2023) is the adapter that is begun with (start.adapter), or the base model where there is none.
"""

import json
import logging
import math
import os
import pydoc
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, TypedDict, cast

import peft
import torch
import transformers
import trl
from datasets import Dataset
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, SequentialLR
from transformers import Trainer, TrainerCallback
from transformers import TrainerControl as Control
from transformers import TrainerState as State
from transformers import TrainingArguments as Arguments
from transformers.trainer_callback import PrinterCallback

from decksmith.core import cli, stream
from decksmith.train.training import base_models, estimates
from decksmith.train.training.checkpoints import Checkpoint, TrainingInfo
from decksmith.train.training.estimates import LORA
from decksmith.train.training.train import UNTRAINED, StopSignal, TrainPlan, trained_tokens

Logs = dict[str, float]  # what transformers has to say of a step


class Schedule(TypedDict, total=False):
    """A part of policy.scheduler; the last of several says after which steps the next begins."""

    name: str
    kwargs: dict[str, float]
    milestones: list[int]


# What TRL's DPO loss is, by NeMo-RL's keys.
DPO = {"preference_loss_weight": 1, "sft_loss_weight": 0, "preference_average_log_probs": False}
WEIGHTS = Path("policy/weights/model")  # of a checkpoint, as NeMo-RL has it: the PEFT folder
STATE = Path("policy/optimizer")  # what transformers resumes from, with links to the weights
ADAPTER = ("adapter_config.json", "adapter_model.safetensors")
# Where the files of transformers' checkpoint lie in NeMo-RL's; the others are left out.
PLACES = {
    **dict.fromkeys(ADAPTER, WEIGHTS),
    **dict.fromkeys(("optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json"), STATE),
    **dict.fromkeys(base_models.TOKENIZER, Path("policy/tokenizer")),
}


def train(
    recipe: "RecipeCallback", newest: Checkpoint | None, tuner_of: Callable[..., Trainer]
) -> TrainingInfo:
    """Train what the recipe's plan asks for, on from `newest`, until it is done or somebody asks for the end. tuner_of: makes TRL's
    trainer, as below. Returns what training_info.json holds of the last step, with gpu_gib, the peak, on a GPU. Raises
    cli.BadConfig, cli.BadData, cli.Missing."""
    plan, step = recipe.plan, newest.step if newest else 0
    measures = plan.lacks(newest) if newest else plan.val_at_start
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    logging.getLogger("trl").setLevel(logging.ERROR)
    recipe.tuner = tuner = tuner_of(plan, recipe, measures)
    plan.begin(newest)
    _say_what(plan, tuner, step)
    tuner.train(resume_from_checkpoint=str(newest.path / STATE) if newest else None)
    info = recipe.info(tuner.state)
    if info["total_steps"] < plan.total:
        step = info["total_steps"]
        saved = f"saved step_{step}" if plan.saves and step else "nothing to save yet"
        where = f"{recipe.stopped} at step {step} of {plan.total}"
        cli.say(f"unfinished: {where}; {saved}; run the same command again to go on")
    if torch.cuda.is_available():
        info["gpu_gib"] = round(torch.cuda.max_memory_allocated() / 2**30, 2)
    return info


class WithoutCard:
    """Of a trainer of TRL: model-export writes the card."""

    def create_model_card(self, *_: object, **__: object) -> None:
        pass


class Tuner(WithoutCard, trl.SFTTrainer):
    """TRL's, with a loss per trained token in validation too, and one that a CPU computes in time."""

    held_tokens = 1.0  # that are trained, in a row of the validation on average

    def compute_loss(
        self,
        model: torch.nn.Module,
        inputs: dict[str, torch.Tensor],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        """The loss of a micro batch, divided by the trained tokens of its whole batch. Of a validation transformers takes the
        mean over the rows, whatever their length: each is divided by the mean length."""
        if not model.training:
            num_items_in_batch = self.held_tokens
        if self.args.device.type != "cpu":
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        # Without Triton, TRL compares every place with the whole vocabulary; this does it where the next token is trained.
        labels = inputs["labels"]
        places = (labels[:, 1:] != UNTRAINED).any(0).nonzero().squeeze(1)
        inputs |= {"logits_to_keep": places, "shift_labels": labels[:, places + 1]}
        items = max(num_items_in_batch, 1)  # a batch in which nothing is trained has none
        return super(trl.SFTTrainer, self).compute_loss(model, inputs, return_outputs, items)


class RecipeCallback(TrainerCallback):
    """The keys of NeMo-RL that transformers has no argument for, metrics.jsonl, and the layout of a checkpoint."""

    tuner: Any
    # Of DPO, by TRL's names: the share of pairs whose chosen answer has gained more, and by how much, in nats times beta.
    names: ClassVar = {"accuracy": "rewards/accuracies", "margin": "rewards/margins"}

    def __init__(self, plan: TrainPlan, stop: StopSignal, started: float):
        self.plan, self.stop = plan, stop
        self.logged: Logs = {}  # of the last step
        self.order = plan.order()
        self.trained = [trained_tokens(plan.rows[at]) for at in self.order]
        self.deadline = started + plan.limit
        self.stopped: str | None = None  # by what
        self.longest = 0.0  # seconds of a step with its validation and its saving
        self.ended = self.begun = time.monotonic()  # the step before, and this one

    def on_step_begin(self, args: Arguments, state: State, control: Control, **_: object) -> None:
        """Dropout follows from the step, so that it is the same after a restart."""
        torch.manual_seed(self.plan.seed * 1_000_003 + state.global_step)
        self.begun = time.monotonic()

    def on_substep_end(self, args: Arguments, state: State, control: Control, **_: object) -> None:
        """A signal leaves the step undone, and saves the one before."""
        if self.stop.name:
            self.stopped = self.stop.name
            control.should_training_stop = True
            control.should_save = self.plan.saves and state.global_step > 0

    def on_step_end(self, args: Arguments, state: State, control: Control, **_: object) -> None:
        """Whether to validate, to save, and to stop: there must be time for a step as long as the longest so far."""
        step, now = state.global_step, time.monotonic()
        self.longest, self.ended = max(self.longest, now - self.ended), now
        if now + 1.2 * self.longest > self.deadline:
            self.stopped = "checkpointing.checkpoint_must_save_by"
        self.stopped = self.stop.name or self.stopped
        is_last = bool(self.stopped) or step == self.plan.total
        control.should_training_stop = is_last
        control.should_save = self.plan.saves and (is_last or step % self.plan.save_period == 0)
        # What is saved is validated thereafter (on_save); of GRPO nothing else is.
        is_due = self.plan.validates(step) and bool(self.plan.val_loss)
        control.should_evaluate = is_due and not control.should_save

    def on_log(
        self, args: Arguments, state: State, control: Control, logs: Logs | None = None, **_: object
    ) -> None:
        """A line of metrics.jsonl. Raises cli.BadData where the gradient is not finite."""
        step, total, logs = state.global_step, self.plan.total, logs or {}
        line: dict[str, float | None] = {"step": step}
        if "eval_loss" in logs:
            line |= {"val_loss": round(logs["eval_loss"], 6), **self.known(logs, "eval_")}
            self._show(f"step {step}: val loss {logs['eval_loss']:.4f}")
        elif "loss" in logs:
            norm = logs["grad_norm"]
            if not math.isfinite(norm):
                mend = "a lower policy.optimizer.kwargs.lr may help"
                raise cli.BadData(f"step {step}: the gradient is {norm}; {mend}")
            self.logged = self.known(logs)
            line |= {
                "loss": round(logs["loss"], 6) or None,  # where nothing was trained
                "lr": logs["learning_rate"],
                "grad_norm": round(norm, 4),
                "seconds": round(time.monotonic() - self.begun, 3),
                **self.logged,
            }
            is_tenth = step * 10 // total > (step - 1) * 10 // total
            self._show(f"step {step} of {total}, loss {logs['loss']:.3f}", is_tenth)
        else:  # the summary at the end
            return
        with open(self.plan.folder / "metrics.jsonl", "a") as file:
            file.write(json.dumps(line) + "\n")

    def _show(self, text: str, is_due: bool = True) -> None:
        """A line where one is due; on a terminal one line that is always written over."""
        if sys.stderr.isatty():
            print(f"\r{text}\x1b[K", end="", file=sys.stderr, flush=True)
        elif is_due:
            cli.say(text)

    def on_train_end(self, args: Arguments, state: State, control: Control, **_: object) -> None:
        """Leave the line that was written over."""
        if sys.stderr.isatty():
            print(file=sys.stderr)

    def known(self, logs: Logs, side: str = "") -> Logs:
        """What a line of metrics.jsonl holds beside what each trainer has."""
        found = {name: logs.get(side + key) for name, key in self.names.items()}
        return {name: round(one, 6) for name, one in found.items() if one is not None}

    def info(self, state: State) -> TrainingInfo:
        """What training_info.json holds of the last step, with NeMo-RL's names."""
        step, batch, per_epoch = state.global_step, self.plan.batch, self.plan.per_epoch
        entries = [entry for entry in state.log_history if entry["step"] == step]
        logged: Logs = {key: value for entry in entries for key, value in entry.items()}
        info: TrainingInfo = {
            "epoch": max(step - 1, 0) // per_epoch,
            "step": (step - 1) % per_epoch + 1 if step else 0,
            "total_steps": step,
            "consumed_samples": step * batch,
            "total_valid_tokens": sum(self.trained[: step * batch]),
            "train:loss": logged.get("loss") or None,
            "run": self.plan.same,
        }
        if "eval_loss" in logged:
            info[self.plan.val_loss] = logged["eval_loss"]
        return info

    def on_save(self, args: Arguments, state: State, control: Control, **_: object) -> None:
        """Turn transformers' checkpoint into step_N, whole or not at all; validate; remove what keep_top_k does not keep."""
        made = Path(str(args.output_dir)) / f"checkpoint-{state.global_step}"
        final = made.with_name(f"step_{state.global_step}")
        if final.exists():  # a signal came in the step after it
            shutil.rmtree(made)
            return
        for path in list(made.iterdir()):
            if place := PLACES.get(path.name):
                (made / place).mkdir(parents=True, exist_ok=True)
                path.rename(made / place / path.name)
            elif path.is_dir():  # the adapter that DPO compares with
                shutil.rmtree(path)
            else:
                path.unlink()
        for name in ADAPTER:
            (made / STATE / name).symlink_to(Path("../weights/model") / name)
        # The name of the base model for others, not its place here; the same bytes each time.
        config = json.loads((made / WEIGHTS / ADAPTER[0]).read_text())
        config["base_model_name_or_path"] = base_models.known(self.plan.name)
        config["target_modules"] = sorted(config["target_modules"])
        _write(made / WEIGHTS / ADAPTER[0], config)
        shutil.copyfile(self.plan.folder / "recipe.yaml", made / "config.yaml")
        _write(made / "training_info.json", self.info(state))
        for path in made.rglob("*"):
            if path.is_file():
                with open(path, "rb") as file:
                    os.fsync(file.fileno())
        os.rename(made, final)
        if self.plan.validates(state.global_step):
            self.measure(state.global_step)
        self.plan.prune()

    def measure(self, step: int) -> None:
        """Validate what the checkpoint of this step holds."""
        self.tuner.evaluate()

    def on_evaluate(self, args: Arguments, state: State, control: Control, **_: object) -> None:
        """The loss stands in the checkpoint of its step, too."""
        found = self.plan.checkpoints / f"step_{state.global_step}/training_info.json"
        if found.is_file():
            _write(found, self.info(state))
            self.plan.prune()


class PairTuner(WithoutCard, trl.DPOTrainer):
    """TRL's, of pairs that are tokens already."""

    def _prepare_dataset(self, dataset: Dataset, *_: object, **__: object) -> Dataset:
        return dataset


def tuner_of(plan: TrainPlan, recipe: RecipeCallback, measures: bool) -> Tuner | PairTuner:
    """TRL's trainer for the plan; measures: it validates before its first step. Raises cli.BadConfig, cli.Missing."""
    tuner: Tuner | PairTuner
    if plan.algorithm == "dpo":
        beta = plan.want("dpo.reference_policy_kl_penalty", float)
        for key, only in DPO.items():
            if plan.setting.get(key, only) != only:
                known = f"this trainer knows {only}, NeMo-RL has the others"
                raise cli.BadConfig(f"dpo.{key} is {plan.setting[key]}; {known}")
        made = parts(plan, recipe, trl.DPOConfig, measures, beta=beta, max_length=None)
        tuner = PairTuner(**made)
    else:  # rows that are too long train nothing already
        tuner = Tuner(**parts(plan, recipe, trl.SFTConfig, measures, max_length=None))
        if plan.held:
            tuner.held_tokens = sum(map(trained_tokens, plan.held)) / len(plan.held)
    tuner.remove_callback(PrinterCallback)  # it writes to stdout
    return tuner


def parts(
    plan: TrainPlan, recipe: RecipeCallback, config: Callable[..., Any], measures: bool, **more: Any
) -> dict[str, Any]:
    """What each of TRL's trainers is made of; `more` are arguments of its `config`. Raises cli.BadConfig, cli.Missing."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    setting = plan.get("policy.dtensor_cfg") or {}
    # A CPU that does not multiply bf16 would only pretend to.
    able = torch.cpu.get_capabilities()
    is_able = device == "cuda" or able.get("avx512_bf16") or able.get("amx_bf16")
    half = bool(is_able and plan.get("policy.precision") in ("bfloat16", "bf16"))
    model = _model(plan, torch.bfloat16 if half else torch.float32).to(device)
    plan.want("policy.optimizer.kwargs.lr", float)
    chosen = plan.config["policy"]["optimizer"]
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    made = _named(chosen.get("name", "torch.optim.AdamW"))
    optimizer: Optimizer = made(trained, **chosen["kwargs"])
    arguments = config(
        output_dir=str(plan.checkpoints),
        run_name=plan.folder.resolve().name,
        report_to=plan.loggers,
        seed=plan.seed,
        max_steps=plan.total,  # the data set holds the rows of all of them, in their order
        train_sampling_strategy="sequential",
        per_device_train_batch_size=plan.micro,
        gradient_accumulation_steps=plan.trained // plan.micro,
        per_device_eval_batch_size=1,
        router_aux_loss_coef=0.0,  # of a mixture of experts too, the loss is that of the tokens
        eval_on_start=measures,
        eval_strategy="no",  # `RecipeCallback` says when
        save_strategy="no",
        logging_steps=1,
        logging_nan_inf_filter=False,
        disable_tqdm=True,
        lr_scheduler_type="constant",  # where the recipe has none
        max_grad_norm=plan.get("policy.max_grad_norm") or math.inf,
        bf16=half,
        use_cpu=device == "cpu",
        dataloader_pin_memory=device == "cuda",
        gradient_checkpointing=bool(setting.get("activation_checkpointing")),
        **more,
    )
    return {
        "model": model,
        "args": arguments,
        "train_dataset": Dataset.from_list(plan.rows).select(recipe.order),
        "eval_dataset": Dataset.from_list(plan.held) if plan.held else None,
        "processing_class": transformers.AutoTokenizer.from_pretrained(plan.base),
        "optimizers": (optimizer, _scheduler(plan, optimizer)),
        "callbacks": [recipe],
    }


def _model(plan: TrainPlan, dtype: torch.dtype) -> peft.PeftModel:
    """The base model with an adapter: the one that is begun with, or a fresh one as policy.dtensor_cfg.lora_cfg asks for.
    Raises cli.BadConfig."""
    lora = cast(estimates.LoraConfig, plan.get(LORA) or {})
    if not lora.get("enabled", True):
        raise cli.BadConfig(f"{LORA}.enabled is false; this trainer trains LoRA only")
    rank, alpha = plan.want(f"{LORA}.dim", int), plan.want(f"{LORA}.alpha", int)
    model = transformers.AutoModelForCausalLM.from_pretrained(plan.base, dtype=dtype)
    if plan.start:
        tuned = peft.PeftModel.from_pretrained(model, plan.start, is_trainable=True)
        # By the adapter's own name for it peft would ask the Hub at each checkpoint.
        tuned.peft_config["default"].base_model_name_or_path = str(plan.base)
        return tuned
    modules = dict(model.named_modules())
    linear = {name for name, module in modules.items() if isinstance(module, torch.nn.Linear)}
    chosen = estimates.targets(linear, lora)
    head = next(name for name in modules if modules[name] is model.get_output_embeddings())
    if head in chosen:
        mend = f"exclude_modules: ['*{head}*'] instead of target_modules and match_all_linear"
        why = f"lora_cfg adapts {head}, and TRL trains no adapter there"
        raise cli.BadConfig(f"{why}; leave it out: {mend}")
    torch.manual_seed(plan.seed)
    setting = peft.LoraConfig(
        r=rank,
        lora_alpha=alpha,
        lora_dropout=lora.get("dropout") or 0.0,
        target_modules=chosen,
        task_type="CAUSAL_LM",
    )
    return peft.get_peft_model(model, setting)


def _named(dotted: str) -> Callable[..., Any]:
    """The class behind a dotted name below torch.optim. Raises cli.BadConfig."""
    found: Any = pydoc.locate(dotted) if dotted.startswith("torch.optim.") else None
    if found is None:
        raise cli.BadConfig(f"{dotted} is no class of torch.optim")
    return found


def _scheduler(plan: TrainPlan, optimizer: Optimizer) -> LRScheduler | None:
    """The schedule of `policy.scheduler`: nothing, one {name, kwargs}, or several in a list that ends with {milestones}."""
    setting: Schedule | list[Schedule] | None = plan.get("policy.scheduler")
    if not setting:
        return None
    entries = setting if isinstance(setting, list) else [setting]
    parts = [part for part in entries if "name" in part]
    made = [_named(part["name"])(optimizer, **part.get("kwargs") or {}) for part in parts]
    if len(made) == 1:
        return made[0]
    return SequentialLR(optimizer, made, entries[-1]["milestones"])


def _say_what(plan: TrainPlan, tuner: Trainer, step: int) -> None:
    """Say what is trained on what, and keep it in job.json at the first start."""
    device, dtype = tuner.args.device.type, "bfloat16" if tuner.args.bf16 else "float32"
    threads = torch.get_num_threads()
    model: Any = tuner.model  # of peft
    trained, _ = model.get_nb_trainable_parameters()
    where = f"on {device} in {dtype}, {threads} threads; {len(plan.rows)} rows"
    again = f"; going on after step {step}" if step else ""
    steps = f"{plan.total} steps of {plan.batch}{again}"
    cli.say(f"{trained:,} parameters of {plan.name} {where}, {steps}")
    if (plan.folder / "job.json").exists():
        return
    job = {
        "trainer": "trl",
        "argv": [cli.NAME, *sys.argv[1:]],
        "revision": cli.git("rev-parse", "HEAD"),
        "image": os.environ.get("DECKSMITH_IMAGE", "host"),
        "nodes": 1,
        "device": device,
        "dtype": dtype,
        "threads": threads,
        "seed": plan.seed,
        "versions": {one.__name__: one.__version__ for one in (torch, transformers, peft, trl)},
    }
    _write(plan.folder / "job.json", job)


def _write(path: Path, value: Mapping[str, object]) -> None:
    stream.write(path, json.dumps(value, indent=2) + "\n")
