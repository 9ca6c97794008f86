"""The second trainer: LoRA on one machine, by transformers and peft, with NeMo-RL's recipe keys and checkpoint layout.

A run is a function of recipe, data and machine: the rows of a step follow from seed and step number alone, so that a
checkpoint needs no position, and a run that was killed and started again ends, on a CPU, in the same bytes as one that was
not.
"""

import fcntl
import json
import os
import shutil
import signal
import sys
import time
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from decksmith.core import cli, stream
from decksmith.training import base, checkpoints, estimates, recipes

WEIGHTS = Path("policy/weights/model")  # of a checkpoint, as NeMo-RL has it
STATE = Path("policy/optimizer/state.pt")
VAL_LOSS = "val:val_loss"  # of training_info.json, as NeMo-RL has it

Row = tuple[list[int], list[int]]  # (token ids, 1 where one is trained else 0)


class _Stop(Exception):
    """Asked to end before all steps are done; the message says by whom."""


def run(folder: Path | str) -> int:
    """Train FOLDER/recipe.yaml, from its newest checkpoint where there is one.

    Returns the exit status: 0 done, 75 saved but unfinished. Raises cli.BadConfig, cli.BadData, cli.Missing, cli.TryAgain.
    """
    started = time.monotonic()
    bell = _Bell()
    folder = Path(folder)
    if not (folder / "recipe.yaml").is_file():
        raise cli.Missing(f"there is no {folder}/recipe.yaml; sft-config --run {folder} writes it")
    with open(folder / ".lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise cli.TryAgain(f"another process trains in {folder}; wait for it") from None
        return _Run(folder, bell, started).go()


class _Bell:
    """Whether somebody asks for the end: SIGTERM, SIGUSR1, Ctrl-C (a second one ends at once), or the time that the recipe
    gives."""

    def __init__(self) -> None:
        self.rung: str | None = None  # by which signal
        self.deadline: float | None = None  # as time.monotonic() counts
        self.longest = 0.0  # seconds of a step, a validation or a save
        for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT):
            signal.signal(number, self._ring)

    def _ring(self, number: int, _: Any) -> None:
        if self.rung and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.rung = signal.Signals(number).name

    def check(self) -> None:
        """Raises _Stop where a signal came."""
        if self.rung:
            raise _Stop(self.rung)

    def check_time(self) -> None:
        """Raises _Stop where there is no time for one more step, as long as the longest so far."""
        if self.deadline and time.monotonic() + 1.2 * self.longest > self.deadline:
            raise _Stop("checkpointing.checkpoint_must_save_by")


class _Run:
    def __init__(self, folder: Path, bell: _Bell, started: float):
        self.folder, self.bell, self.started = folder, bell, started
        self.config = config = recipes.load(folder / "recipe.yaml")
        self.seed = recipes.get(config, "sft.seed", 42)
        self.batch = recipes.want(config, "policy.train_global_batch_size", int)
        self.micro = recipes.want(config, "policy.train_micro_batch_size", int)
        self.base = base.folder(recipes.want(config, "policy.model_name", str))
        self.rows, self.held = self._rows("train"), self._rows("validation")
        self.per_epoch = len(self.rows) // self.batch
        self.total = min(
            recipes.want(config, "sft.max_num_steps", int),
            recipes.want(config, "sft.max_num_epochs", int) * self.per_epoch,
        )
        if not self.total:
            raise cli.BadData(
                f"{len(self.rows)} rows are less than one batch of {self.batch} (policy.train_global_batch_size)"
            )
        self.val_period = recipes.get(config, "sft.val_period") or 0
        if self.val_period > 0 and not self.held:
            raise cli.BadConfig("sft.val_period is above 0 and data.validation has no rows")
        keep = config.get("checkpointing") or {}
        self.saves, self.keep = keep.get("enabled"), keep.get("keep_top_k")
        self.save_period = keep.get("save_period") or self.total
        self.metric = keep.get("metric_name", VAL_LOSS)
        self.higher = keep.get("higher_is_better")
        self.checkpoints = Path(keep.get("checkpoint_dir") or folder / "checkpoints")
        if limit := keep.get("checkpoint_must_save_by"):
            bell.deadline = started + _seconds(limit)
        # What makes two runs the same: where they write, and how long they may take, does not.
        reading = {k: v for k, v in config["data"].items() if k not in ("train", "validation")}
        self.same = stream.fingerprint(
            {
                "policy": config.get("policy"),
                "sft": config.get("sft"),
                "data": [stream.fingerprint([self.rows, self.held]), reading],
            }
        )
        self.device: str | None = None  # until the model is loaded
        self.step = 0
        self.info: dict[str, Any] = {
            "epoch": 0,
            "step": 0,
            "total_steps": 0,
            "consumed_samples": 0,
            "total_valid_tokens": 0,
        }

    def _rows(self, side: str) -> list[Row]:
        """The tokenized rows of train or validation: [(ids, mask)]."""
        path = recipes.get(self.config, f"data.{side}.data_path")
        if not path:
            return []
        if not Path(path).is_file():
            raise cli.Missing(f"there is no {path} (data.{side}.data_path)")
        template = recipes.template(self.config, self.base)
        rows, long = [], 0
        for number, row in stream.records(path):
            if not row.get("messages") or row["messages"][-1].get("role") != "assistant":
                raise cli.BadData(
                    f"{path}:{number}: {row['id']}: the last message is not the assistant's"
                )
            example = recipes.example(row["messages"], template, self.config)
            long += example["masked_out"]
            rows.append((example["ids"], example["mask"]))
        if long:
            cli.say(
                f"{long} of {len(rows)} rows of {path} train nothing: they are as long as policy.max_total_sequence_length or longer"
            )
        return rows

    def go(self) -> int:
        newest = self._newest()
        if newest:
            self.info = json.loads((newest / "training_info.json").read_text())
            self.step = self.info["total_steps"]
            if self.info.get("run") != self.same:
                raise cli.BadConfig(
                    f"{newest} was trained by another recipe or on other data; name another run, or remove {self.checkpoints}"
                )
        if self.step >= self.total and self._validated():
            cli.say(f"done before: {self.step} of {self.total} steps in {newest}")
            return self._report(0)
        self._load(newest)
        self._begin_metrics()
        shown = _Shown(self.total, self.step)
        try:
            self._loop(shown)
        except _Stop as stop:
            shown.close()
            where = "nothing to save yet"
            if self.saves and self.step:
                where = f"saved step_{self.step}"
                if self._newest() != self.checkpoints / f"step_{self.step}":
                    self._save()
            cli.say(
                f"unfinished: {stop} at step {self.step} of {self.total}; {where}; run the same command again to go on"
            )
            return self._report(75)
        shown.close()
        return self._report(0)

    def _loop(self, shown: "_Shown") -> None:
        """Validate, save and train until all steps are done. Raises _Stop."""
        while True:
            if not self._validated():
                self.info[VAL_LOSS] = held = self._validate()
                self._log({"step": self.step, "val_loss": round(held, 6)})
                shown.validated(self.step, held)
            is_due = self.step % self.save_period == 0 or self.step == self.total
            if self.saves and self.step and is_due:
                self._save()
            if self.step >= self.total:
                return
            self.bell.check()
            if shown.tokens:  # one step in any case, so that a chain of short jobs gets somewhere
                self.bell.check_time()
            before = time.monotonic()
            loss, tokens, norm, rate = self._train()
            took = time.monotonic() - before
            self.bell.longest = max(self.bell.longest, took)
            self._log(
                {
                    "step": self.step,
                    "epoch": self.info["epoch"],
                    "loss": loss and round(loss, 6),
                    "tokens": tokens,
                    "lr": rate,
                    "grad_norm": round(norm, 4),
                    "seconds": round(took, 3),
                }
            )
            shown.trained(self.step, loss, tokens)

    def _validated(self) -> bool:
        """Whether the validation that belongs to this step, if any does, is done."""
        return VAL_LOSS in self.info or not self._validates()

    def _validates(self) -> bool:
        """Whether a validation belongs to this step."""
        setting = self.config["sft"]
        if self.held and setting.get("val_at_end") and self.step == self.total:
            return True
        if self.val_period <= 0:
            return False
        if self.step == 0:
            return bool(setting.get("val_at_start"))
        return self.step % self.val_period == 0

    # Model and arithmetic

    def _load(self, newest: Path | None) -> None:
        """Model, adapter, optimizer and schedule, as they were at the checkpoint `newest`, or new."""
        # Threads that spin while they wait cost a busy machine more than they gain; read when torch is loaded.
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        try:
            import peft
            import torch
            import transformers
        except ImportError as error:
            raise cli.Missing(f"{error.name} is not installed; {base.MEND}") from None
        self.torch = torch
        warnings.filterwarnings("ignore", category=FutureWarning)  # of transformers about peft
        transformers.utils.logging.disable_progress_bar()
        transformers.utils.logging.set_verbosity_error()
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        wants_bf16 = recipes.get(self.config, "policy.precision") in ("bfloat16", "bf16")
        self.half = wants_bf16 and (self.device == "cuda" or _computes_bf16())
        model = transformers.AutoModelForCausalLM.from_pretrained(
            self.base, dtype=torch.bfloat16 if self.half else torch.float32
        )
        lora = recipes.get(self.config, "policy.dtensor_cfg.lora_cfg") or {}
        if not lora.get("enabled", True):
            raise cli.BadConfig(
                "policy.dtensor_cfg.lora_cfg.enabled is false; this trainer trains LoRA only"
            )
        rank = recipes.want(self.config, "policy.dtensor_cfg.lora_cfg.dim", int)
        alpha = recipes.want(self.config, "policy.dtensor_cfg.lora_cfg.alpha", int)
        recipes.want(self.config, "policy.optimizer.kwargs.lr", float)
        modules = model.named_modules()
        linear = {name for name, module in modules if isinstance(module, torch.nn.Linear)}
        torch.manual_seed(self.seed)
        self.model = peft.get_peft_model(
            model,
            peft.LoraConfig(
                r=rank,
                lora_alpha=alpha,
                lora_dropout=lora.get("dropout") or 0.0,
                target_modules=targets(linear, lora),
                task_type="CAUSAL_LM",
            ),
        )
        if recipes.get(self.config, "policy.dtensor_cfg.activation_checkpointing"):
            self.model.enable_input_require_grads()
            self.model.gradient_checkpointing_enable()
        self.model.to(self.device)
        self.trained = [
            parameter for parameter in self.model.parameters() if parameter.requires_grad
        ]
        chosen = recipes.get(self.config, "policy.optimizer") or {}
        self.optimizer = _named(chosen.get("name", "torch.optim.AdamW"))(
            self.trained, **chosen["kwargs"]
        )
        self.scheduler = _scheduler(self.optimizer, recipes.get(self.config, "policy.scheduler"))
        if newest:
            import safetensors.torch

            peft.set_peft_model_state_dict(
                self.model,
                safetensors.torch.load_file(newest / WEIGHTS / "adapter_model.safetensors"),
            )
            state = torch.load(newest / STATE, map_location=self.device, weights_only=True)
            self.optimizer.load_state_dict(state["optimizer"])
            if self.scheduler:
                self.scheduler.load_state_dict(state["scheduler"])
        self.versions = {
            module.__name__: module.__version__ for module in (torch, transformers, peft)
        }
        cli.say(
            f"{sum(p.numel() for p in self.trained):,} parameters of {self.config['policy']['model_name']} on {self.device} in "
            f"{'bf16' if self.half else 'fp32'}, {torch.get_num_threads()} threads; {len(self.rows)} rows, {self.total} steps of {self.batch}"
            + (f"; going on after step {self.step}" if newest else "")
        )

    def _loss(self, rows: list[Row]) -> tuple[Any, int]:
        """The summed negative log likelihood of the trained tokens of at most a micro batch of rows (None without any), and
        their number."""
        torch = self.torch
        width = max(len(ids) for ids, _ in rows)
        ids, mask, there = (torch.zeros(len(rows), width, dtype=torch.long) for _ in range(3))
        for at, (tokens, trained) in enumerate(rows):
            ids[at, : len(tokens)] = torch.tensor(tokens)
            mask[at, : len(tokens)] = torch.tensor(trained)
            there[at, : len(tokens)] = 1
        # A logit is computed only where the next token is trained.
        places = mask[:, 1:].any(0).nonzero().squeeze(1)
        if not len(places):
            return None, 0
        wanted = torch.where(mask[:, places + 1] == 1, ids[:, places + 1], -100)
        move = {"device": self.device}
        with torch.autocast(self.device, torch.bfloat16, enabled=self.half):
            logits = self.model(
                input_ids=ids.to(**move),
                attention_mask=None if len(rows) == 1 else there.to(**move),
                use_cache=False,
                logits_to_keep=places.to(**move),
            ).logits
        loss = torch.nn.functional.cross_entropy(
            logits.float().flatten(0, 1),
            wanted.to(**move).flatten(),
            ignore_index=-100,
            reduction="sum",
        )
        return loss, int((wanted != -100).sum())

    def _train(self) -> tuple[float | None, int, float, float]:
        """One step: (loss per trained token or None, tokens read, gradient norm, learning rate). A signal in it leaves the
        step undone."""
        torch = self.torch
        epoch, index = divmod(self.step, self.per_epoch)
        order = list(range(len(self.rows)))
        if recipes.get(self.config, "data.shuffle", True):
            dice = torch.Generator().manual_seed(self.seed + epoch)
            order = torch.randperm(len(self.rows), generator=dice).tolist()
        batch = [self.rows[at] for at in order[index * self.batch : (index + 1) * self.batch]]
        valid = sum(sum(mask[1:]) for _, mask in batch)
        torch.manual_seed(self.seed * 1_000_003 + self.step)  # dropout, the same after a restart
        self.model.train()
        self.optimizer.zero_grad()
        total = 0.0
        for at in range(0, len(batch), self.micro):
            self.bell.check()
            loss, tokens = self._loss(batch[at : at + self.micro])
            if tokens:
                (loss / valid).backward()
                total += float(loss.detach())
        self.bell.check()
        norm = torch.nn.utils.clip_grad_norm_(
            self.trained, recipes.get(self.config, "policy.max_grad_norm") or float("inf")
        )
        if not torch.isfinite(norm):
            raise cli.BadData(
                f"step {self.step + 1}: the gradient is {float(norm)}; a lower policy.optimizer.kwargs.lr may help"
            )
        rate = self.optimizer.param_groups[0]["lr"]
        self.optimizer.step()
        if self.scheduler:
            self.scheduler.step()
        self.step += 1
        self.info = {
            "epoch": epoch,
            "step": index + 1,
            "total_steps": self.step,
            "consumed_samples": self.step * self.batch,
            "total_valid_tokens": self.info["total_valid_tokens"] + valid,
            "train:loss": total / valid if valid else None,
        }
        return self.info["train:loss"], sum(len(ids) for ids, _ in batch), float(norm), rate

    def _validate(self) -> float:
        """The loss per trained token over the validation rows (sft.val_batches of sft.val_global_batch_size; all when
        <= 0)."""
        setting, before = self.config["sft"], time.monotonic()
        rows = self.held
        if (batches := setting.get("val_batches") or 0) > 0:
            rows = rows[: batches * setting.get("val_global_batch_size", 1)]
        self.model.eval()
        total, tokens = 0.0, 0
        with self.torch.no_grad():
            for row in rows:
                self.bell.check()
                loss, count = self._loss([row])
                if count:
                    total, tokens = total + float(loss), tokens + count
        self.bell.longest = max(self.bell.longest, time.monotonic() - before)
        return total / max(tokens, 1)

    # Files

    def _newest(self) -> Path | None:
        found = checkpoints.finished(self.checkpoints)
        return found[-1].path if found else None

    def _save(self) -> None:
        """Write step_N whole or not at all, then remove what keep_top_k does not keep."""
        import peft
        import safetensors.torch

        before = time.monotonic()
        final = self.checkpoints / f"step_{self.step}"
        if final.exists():  # of a run that was stopped before its validation
            self._write_info(final)
            self._prune()
            return
        made = final.with_name(f"tmp_{final.name}")
        shutil.rmtree(made, ignore_errors=True)
        for part in (WEIGHTS, STATE.parent, Path("policy/tokenizer")):
            (made / part).mkdir(parents=True)
        state = {
            name: tensor.contiguous().cpu()
            for name, tensor in sorted(peft.get_peft_model_state_dict(self.model).items())
        }
        stream.write(
            made / WEIGHTS / "adapter_model.safetensors",
            safetensors.torch.save(state, {"format": "pt"}),
        )
        self.torch.save(
            {
                "optimizer": self.optimizer.state_dict(),
                "scheduler": self.scheduler and self.scheduler.state_dict(),
            },
            made / STATE,
        )
        setting = self.model.peft_config["default"].to_dict() | {
            "inference_mode": True,
            "base_model_name_or_path": base.known(self.config["policy"]["model_name"]),
        }
        plain = {
            key: sorted(value) if isinstance(value, set) else value
            for key, value in setting.items()
        }
        stream.write(
            made / WEIGHTS / "adapter_config.json",
            json.dumps(plain, indent=2, sort_keys=True, default=str) + "\n",
        )
        for name in base.TOKENIZER:
            if (self.base / name).is_file():
                shutil.copyfile(self.base / name, made / "policy/tokenizer" / name)
        shutil.copyfile(self.folder / "recipe.yaml", made / "config.yaml")
        self._write_info(made)
        with open(made / STATE, "rb") as file:
            os.fsync(file.fileno())
        os.rename(made, final)
        self.bell.longest = max(self.bell.longest, time.monotonic() - before)
        self._prune()

    def _write_info(self, folder: Path) -> None:
        text = json.dumps(self.info | {"run": self.same}, indent=2)
        stream.write(folder / "training_info.json", text + "\n")

    def _prune(self) -> None:
        """Keep the keep_top_k best by the metric, the newer of equals, and the newest in any case, as NeMo-RL does."""
        if self.keep is None:
            return
        found = checkpoints.finished(self.checkpoints)
        sign, worst = (-1, float("-inf")) if self.higher else (1, float("inf"))
        ranked = sorted(found, key=lambda one: (sign * one.info.get(self.metric, worst), -one.step))
        for step, path, _ in ranked[self.keep :]:
            if step != found[-1].step:
                gone = path.with_name(f"tmp_{path.name}")
                shutil.rmtree(gone, ignore_errors=True)
                os.rename(path, gone)
                shutil.rmtree(gone)

    def _begin_metrics(self) -> None:
        """Forget the metrics of steps that are not in the checkpoint; write job.json at the first start."""
        path = self.folder / "metrics.jsonl"
        lines = []
        if self.step and path.exists():
            for text in path.read_text().splitlines():
                with suppress(ValueError):  # torn by a kill
                    line = json.loads(text)
                    if self._is_kept(line):
                        lines.append(json.dumps(line) + "\n")
        stream.write(path, "".join(lines))
        for half in self.checkpoints.glob("tmp_step_*"):
            shutil.rmtree(half)
        if not (self.folder / "job.json").exists():
            text = json.dumps(self._job(), indent=2)
            stream.write(self.folder / "job.json", text + "\n")

    def _is_kept(self, line: dict[str, Any]) -> bool:
        """Whether a line of metrics.jsonl belongs to what is in the checkpoint; its own validation may not."""
        if line["step"] != self.step:
            return line["step"] < self.step
        return "loss" in line or self._validated()

    def _job(self) -> dict[str, Any]:
        from decksmith.results import capsule

        return {
            "trainer": "peft",
            "argv": [cli.NAME, *sys.argv[1:]],
            "revision": capsule.toolchain()["revision"],
            "image": os.environ.get("DECKSMITH_IMAGE", "host"),
            "nodes": 1,
            "device": self.device,
            "dtype": "bfloat16" if self.half else "float32",
            "threads": self.torch.get_num_threads(),
            "seed": self.seed,
            "versions": self.versions,
        }

    def _log(self, line: dict[str, Any]) -> None:
        with open(self.folder / "metrics.jsonl", "a") as file:
            file.write(json.dumps(line) + "\n")

    def _report(self, status: Literal[0, 75]) -> int:
        """Draw the loss, print what was reached as one JSON object, and return the status."""
        import resource

        from decksmith.results import plots

        plots.loss(self.folder, self.folder / "metrics.jsonl")
        use = resource.getrusage(resource.RUSAGE_SELF)
        said = {
            "run": str(self.folder),
            "step": self.step,
            "of": self.total,
            "train_loss": self.info.get("train:loss"),
            "val_loss": self.info.get(VAL_LOSS),
            "trained_tokens": self.info["total_valid_tokens"],
            "seconds": round(time.monotonic() - self.started, 1),
            "cpu_seconds": round(use.ru_utime + use.ru_stime, 1),
            "peak_gib": round(use.ru_maxrss / 2**20, 2),
        }
        if self.step and self.device == "cuda":
            said["gpu_gib"] = round(self.torch.cuda.max_memory_allocated() / 2**30, 2)
        print(json.dumps(said))
        return status


class _Shown:
    """The loss as it falls: a live line on a terminal, elsewhere a line per tenth."""

    def __init__(self, total: int, step: int):
        self.total, self.first, self.started = total, step, time.monotonic()
        self.tokens = 0
        self.smooth: float | None = None  # the loss, averaged over about ten steps
        self.held: float | None = None  # the last validation's
        self.bar: Any = None
        if sys.stderr.isatty():
            from tqdm import tqdm

            self.bar = tqdm(
                total=total,
                initial=step,
                desc=cli.NAME,
                unit="step",
                file=sys.stderr,
                dynamic_ncols=True,
                leave=False,
            )

    def trained(self, step: int, loss: float | None, tokens: int) -> None:
        """Show a step that was trained."""
        self.tokens += tokens
        if loss is not None:
            self.smooth = loss if self.smooth is None else 0.9 * self.smooth + 0.1 * loss
        if self.bar is not None:
            self.bar.set_postfix_str(self._said(loss), refresh=False)
            self.bar.update()
        elif step * 10 // self.total > (step - 1) * 10 // self.total:
            left = (time.monotonic() - self.started) / (step - self.first) * (self.total - step)
            cli.say(f"step {step} of {self.total}, {self._said(loss)}, {left:.0f} s left")

    def _said(self, loss: float | None) -> str:
        held = f", val {self.held:.3f}" if self.held is not None else ""
        pace = self.tokens / (time.monotonic() - self.started)
        return f"loss {self.smooth or 0:.3f} (now {loss or 0:.3f}){held}, {pace:.0f} tokens/s"

    def validated(self, step: int, loss: float) -> None:
        """Show the loss of a validation."""
        self.held = loss
        if self.bar is not None:
            self.bar.write(f"{cli.NAME}: step {step}: val loss {loss:.4f}", file=sys.stderr)
        else:
            cli.say(f"step {step}: val loss {loss:.4f}")

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()


def targets(linear: set[str], lora: dict[str, Any]) -> list[str]:
    """The names for peft's target_modules, of the names of a model's linear modules: last parts where they say the same,
    else whole names.

    lora: lora_cfg of the recipe; estimates.adapted says what it means. Raises cli.BadConfig where a pattern or all of it matches nothing.
    """
    for pattern in lora.get("target_modules") or []:
        if not any(estimates.matches(pattern, name) for name in linear):
            raise cli.BadConfig(
                f"lora_cfg.target_modules: no linear module of the model matches {pattern!r}"
            )
    chosen = {name for (name,) in estimates.adapted(lora, [(name,) for name in linear])}
    if not chosen:
        raise cli.BadConfig("lora_cfg leaves no linear module to train")
    last = {name.rpartition(".")[2] for name in chosen}
    meant = {name for name in linear if name.rpartition(".")[2] in last}
    return sorted(last if meant == chosen else chosen)


def _named(dotted: str) -> Any:
    """The class behind a dotted name of torch.optim or torch.optim.lr_scheduler. Raises cli.BadConfig."""
    import torch

    module, _, name = dotted.rpartition(".")
    modules = {"torch.optim": torch.optim, "torch.optim.lr_scheduler": torch.optim.lr_scheduler}
    found = getattr(modules[module], name, None) if module in modules else None
    if found is None:
        raise cli.BadConfig(f"{dotted} is no class of torch.optim")
    return found


def _scheduler(optimizer: Any, setting: Any) -> Any:
    """The schedule of `policy.scheduler`: nothing, one {name, kwargs}, or several in a list that ends with {milestones}."""
    import torch

    if not setting:
        return None
    *parts, last = setting if isinstance(setting, list) else [setting, {}]
    if "name" in last:
        parts, last = [*parts, last], {}
    made = [_named(part["name"])(optimizer, **part.get("kwargs") or {}) for part in parts]
    if len(made) == 1:
        return made[0]
    return torch.optim.lr_scheduler.SequentialLR(optimizer, made, milestones=last["milestones"])


def _seconds(limit: Any) -> int:
    """`DD:HH:MM:SS` in seconds."""
    try:
        days, hours, minutes, seconds = map(int, str(limit).split(":"))
    except ValueError:
        raise cli.BadConfig(
            f"checkpointing.checkpoint_must_save_by is {limit!r}; write DD:HH:MM:SS"
        ) from None
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def _computes_bf16() -> bool:
    """Whether this CPU multiplies bf16, and need not pretend to."""
    with suppress(OSError):
        text = Path("/proc/cpuinfo").read_text()
        return "avx512_bf16" in text or "amx_bf16" in text
    return False
