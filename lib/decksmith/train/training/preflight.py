"""What can be known of a training run before a GPU is asked for: the recipe, every row, what the adapter touches, what it all
takes."""

import difflib
import json
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import yaml

from decksmith.core import cli
from decksmith.models import families, shapes
from decksmith.train.training import estimates, recipes, row_checks
from decksmith.train.training.check_report import Findings, Report
from decksmith.train.training.estimates import LORA
from decksmith.train.training.recipes import leaves

# Of each algorithm: the keys that NeMo-RL takes, and the class of its data.
KEYS = {name: recipes.RECIPES / f"nemo-rl-keys-{name}.txt" for name in recipes.ALGORITHMS}
DATASETS = {"sft": "openai_format", "dpo": "PreferenceDataset", "grpo": "NemoGymDataset"}
OURS = {"start.adapter"}  # of sft-train, where a recipe has no parent
# Keys whose values are whole numbers from 1, and those of STEPS in the algorithm's own section.
WHOLE = ["policy.train_global_batch_size", "policy.train_micro_batch_size"]
WHOLE += ["policy.max_total_sequence_length", "checkpointing.save_period"]
WHOLE += ["cluster.num_nodes", "cluster.gpus_per_node"]
STEPS = ("max_num_epochs", "max_num_steps", "val_period")


class Places(dict[str, int | None]):
    """The line of every key of a recipe, by dotted key; of a key that is not there, that of the nearest section."""

    def __missing__(self, key: str) -> int | None:
        return self[key.rpartition(".")[0]] if "." in key else None


class Checked:
    """A recipe while it is checked: its values, their places, and what is wrong with them. `raw`: as its file has it, without
    what it inherits."""

    def __init__(self, path: Path):
        self.path, self.config = path, recipes.load(path)
        self.algorithm = recipes.algorithm(self.config)
        self.raw: dict[str, Any] = yaml.safe_load(path.read_text()) or {}
        self.places = places(path)
        self.findings = Findings()
        self.unchecked: list[str] = []
        self.template: recipes.ChatTemplate | None = None
        self.report: Report = {"recipe": str(path), "model": self.get("policy.model_name")}

    def begin(self, folder: Path | str | None) -> bool:
        """Check the keys, and load the tokenizer in `folder` where there is one; False where the recipe lacks what everything
        else is computed from."""
        absent, against = self.config.get("absent"), check_keys(self)
        self.report["parent"] = {"absent": absent, "keys": against}
        if has_gaps(self):
            return False
        self.steps, self.epochs = (
            self.get(self.own("max_num_steps")),
            self.get(self.own("max_num_epochs")),
        )
        self.batch: int = self.get(recipes.ALGORITHMS[self.algorithm])
        if folder is None:
            what = "lengths, mask, template, what is trained against what is served"
            self.unchecked.append(f"everything that needs the tokenizer: {what}")
        else:
            self.template = recipes.template(self.config, folder)
        if absent:
            parent = f"{absent[0]} itself, which is not on this machine"
            self.unchecked.append(f"keys against {parent}; the list {against} stood in for it")
        return True

    def get(self, key: str, default: Any = None) -> Any:
        """The value under a dotted key."""
        return recipes.get(self.config, key, default)

    def own(self, key: str) -> str:
        """The dotted name of a key of the algorithm's own section."""
        return f"{self.algorithm}.{key}"

    def wrong(self, rule: str, key: str, message: str) -> None:
        """Note what is wrong with a key."""
        self.findings.add(rule, message, self.path, self.places[key])

    def result(self) -> Report:
        return {
            "ok": not self.findings.counts,
            **self.report,
            "failures": self.findings.listed,
            "counts": dict(self.findings.counts),
            "unchecked": self.unchecked,
        }


def check(
    path: Path | str, folder: Path | str | None = None, preview: int = 0
) -> tuple[Report, list[row_checks.Preview]]:
    """Check a RUN/recipe.yaml and its data. `folder`: a Hugging Face folder (config.json,
    tokenizer), or None where there is none. Returns (records.SftCheck, previews of the first rows);
    without a tokenizer its checks are named in "unchecked". Raises cli.Missing, cli.BadConfig."""
    made = Checked(Path(path))
    if not made.begin(folder):
        return made.result(), []
    shown = _data(made, preview)
    check_batches(made, "policy.train", f"{made.algorithm}.val")
    check_settings(made)
    check_sizes(made, folder)
    return made.result(), shown


def has_gaps(made: Checked) -> bool:
    """Whether the recipe lacks what everything else is computed from; notes it."""
    gaps = [key for key, value in leaves(made.config) if value == "???"]
    for key in gaps:
        made.wrong("unfilled", key, f"{key} is still ???")
    for key in (*WHOLE, *map(made.own, STEPS), recipes.ALGORITHMS[made.algorithm]):
        if key in gaps or (key == made.own("val_period") and made.get(key) == 0):
            continue
        try:
            recipes.want(made.config, key, int)
        except cli.BadConfig as error:
            made.wrong("unfilled", key, str(error))
            gaps.append(key)
    return bool(gaps)


def places(path: Path) -> Places:
    """The places of a recipe's keys."""
    found = Places()

    def walk(node: yaml.Node | None, prefix: str) -> None:
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                found[f"{prefix}{key.value}"] = key.start_mark.line + 1
                walk(value, f"{prefix}{key.value}.")

    walk(yaml.compose(path.read_text(), Loader=yaml.SafeLoader), "")
    return found


def known_keys(algorithm: str) -> tuple[set[str], set[str]]:
    """(names, prefixes below which every key is taken) of NeMo-RL, from a list of assets/recipes."""
    names: set[str] = set()
    free: set[str] = set()
    for line in KEYS[algorithm].read_text().splitlines():
        if not line.startswith("#"):
            section, _, keys = line.partition(": ")
            for key in keys.split():
                name = f"{section}.{key}".removeprefix(".")
                (free if key.endswith(".*") else names).add(name.removesuffix(".*"))
    return names, free


def keys_version(algorithm: str) -> str:
    """The version of NeMo-RL that a list of keys is of, `v0.7.0`."""
    return KEYS[algorithm].read_text().removeprefix("# NeMo-RL ").partition(":")[0]


def check_keys(made: Checked) -> str:
    """Refuse keys that neither the parents nor the list know. Says what was compared with."""
    (names, free), version = known_keys(made.algorithm), keys_version(made.algorithm)
    parents = made.raw.get("defaults") or []
    if not parents:
        names |= OURS
    for parent in [parents] if isinstance(parents, str) else parents:
        if (made.path.parent / parent).exists():
            names |= {key for key, _ in leaves(recipes.load(made.path.parent / parent))}

    def is_known(key: str) -> bool:
        if key == "defaults" or key in names:
            return True
        if any(key == prefix or key.startswith(f"{prefix}.") for prefix in free):
            return True
        return any(name.startswith(f"{key}.") for name in names | free)  # a section

    for key in made.places:
        if not is_known(key) and not key.endswith("._override_"):
            near = difflib.get_close_matches(key, names, 1, 0.8)
            hint = f"; did you mean {near[0]}?" if near else ""
            message = f"{key} is no key of NeMo-RL {version}'s {made.algorithm.upper()}{hint}"
            made.wrong("unknown-key", key, message)
    # What is left of these marks once the parents are merged goes to the trainer as a key.
    for key, _ in leaves(made.config):
        if key.endswith("_override_"):
            message = f"NeMo-RL takes {key} for a key: it marks a section of the first level only"
            made.wrong("override", key, message)
    return KEYS[made.algorithm].name if made.config.get("absent") or not parents else "the parent"


def _data(made: Checked, preview: int) -> list[row_checks.Preview]:
    """Check every row of both sides; returns the previews and fills in the report."""
    shown: list[row_checks.Preview] = []
    rows: dict[str, int] = {}
    made.report |= {"tokens": {}, "prompted": {}, "rows": rows}
    for name in ("train", "validation"):
        key = f"data.{name}.data_path"
        file = Path(made.get(key) or "")
        if not file.is_file():
            made.wrong("absent", key, f"there is no {file if file.name else f'{name} set'}")
            continue
        side = row_checks.Side(name, made.config, made.template)
        shown += row_checks.check(side, file, made.findings, preview if name == "train" else 0)
        rows[name], made.report["prompted"][name] = side.rows, side.prompted
        if tokens := side.tokens():
            made.report["tokens"][name] = tokens
    made.report |= {"batch": made.batch, "epochs": made.epochs, "steps": made.steps}
    made.report["limit"] = made.get("policy.max_total_sequence_length")
    made.report["left_over"] = rows.get("train", 0) % made.batch
    return shown


def check_settings(made: Checked) -> None:
    """What every algorithm's recipe must keep."""
    if made.get("checkpointing.enabled") is not True:
        made.wrong("checkpointing", "checkpointing.enabled", "nothing would be saved")
    folder = "checkpointing.checkpoint_dir"
    if not Path(made.get(folder) or "").is_absolute():
        made.wrong("checkpointing", folder, f"{folder} is not absolute")
    _template(made)
    for side in ("train", "validation"):
        _dataset(made, side)
    if made.raw.get("defaults") and not recipes.get(made.raw, "data._override_"):
        message = "data has no _override_: true, keys of the parent's data sets stay in it"
        made.wrong("dataset", "data", message)
    for key in ("data.max_input_seq_length", "data.shuffle", "data.num_workers"):
        if made.raw.get("defaults") and made.get(key, ...) is ...:
            made.wrong("dataset", key, f"there is no {key}, which NeMo-RL reads")
    _steps(made)
    _periods(made)
    _schedule(made)
    inherits, logs = made.raw.get("defaults"), made.get("logger.wandb_enabled") is not False
    if inherits and logs and not os.environ.get("WANDB_API_KEY"):
        message = "Weights & Biases is on and WANDB_API_KEY is not set"
        made.wrong("logger", "logger.wandb_enabled", message)


def check_batches(made: Checked, *kinds: str) -> None:
    """Whether the batches of these kinds (`policy.train`, `sft.val`) are made of whole micro batches on every GPU."""
    gpus = made.get("cluster.num_nodes") * made.get("cluster.gpus_per_node")
    parts = made.get("policy.dtensor_cfg.tensor_parallel_size") or 1
    parts *= made.get("policy.dtensor_cfg.context_parallel_size") or 1
    parallel = gpus // parts
    for kind in kinds:
        key = f"{kind}_global_batch_size"
        batch, micro = made.get(key), made.get(f"{kind}_micro_batch_size") or 1
        each = parallel * micro
        if not batch or not each or batch % each:
            how = f"{parallel} GPUs with a micro batch of {micro} take a multiple of {each}"
            made.wrong("batch", key, f"{key} is {batch}, {how}")


def _template(made: Checked) -> None:
    """The chat template is the model's own, or a file."""
    key = "policy.tokenizer.chat_template"
    template = made.get(key)
    if template == "default":
        return
    if not str(template).endswith(".jinja"):
        how = "inherited: a demo" if template is None else "written out in the recipe"
        made.wrong("template", key, f"the chat template is {how}")
    elif not Path(template).is_absolute():
        message = f"{template} is not absolute, and the trainer runs in another folder"
        made.wrong("template", key, message)


def _dataset(made: Checked, side: str) -> None:
    """One side of the data is of the class that the algorithm reads, and lies where NeMo-RL reads it."""
    key = f"data.{side}"
    data = made.get(key)
    wanted = DATASETS[made.algorithm]
    if not isinstance(data, dict) or data.get("dataset_name") != wanted:
        lack = "" if data else ": there is none"
        made.wrong("dataset", key, f"{key} is not of {wanted}{lack}")
    elif fault := recipes.misread(data.get("data_path") or ""):
        made.wrong("dataset", f"{key}.data_path", fault)


def _steps(made: Checked) -> None:
    """Steps, epochs and rows belong together."""
    key, found = made.own("max_num_steps"), made.report["rows"]
    steps, epochs, batch = made.steps, made.epochs, made.batch
    if "train" in found:
        epoch = found["train"] // batch
        if not (epochs - 1) * epoch < steps <= epochs * epoch:
            counted = f"{epochs} epochs of floor({found['train']} rows / {batch}) = {epoch} steps"
            made.wrong("steps", key, f"{key} is {steps}; {counted} are {epochs * epoch}")
    key = made.own("val_global_batch_size")
    rows, held = found.get("validation"), made.get(key) or 1
    if rows is not None and rows < held:
        few = f"{rows} validation rows are less than one batch of {held}: the loss would be that of no row"
        mend = "give more rows, or of a corpus hold out more (rm data/chat/split.tsv && make corpus SHARE=..)"
        made.wrong("batch", key, f"{few}; {mend}")


def _periods(made: Checked) -> None:
    """What is saved has been validated."""
    val, save = made.get(made.own("val_period")), made.get("checkpointing.save_period")
    ends_validated = made.get(made.own("val_at_end")) is True
    metric = made.get("checkpointing.metric_name") or ""
    if val == 0 and not ends_validated and metric.startswith("val:"):
        message = f"nothing is validated, and checkpoints are chosen by {metric}"
        made.wrong("periods", "checkpointing.metric_name", message)
    if val and save % val:
        message = f"a save every {save} steps and a validation every {val}: a save without its loss"
        made.wrong("periods", "checkpointing.save_period", message)
    if val > made.steps or save > made.steps:
        message = f"{made.steps} steps are less than a period ({val} and {save})"
        made.wrong("periods", made.own("val_period"), message)
    if val and made.steps % val and not ends_validated:
        message = f"step {made.steps}, the last, is saved and not validated"
        made.wrong("periods", made.own("val_at_end"), message)


def _schedule(made: Checked) -> None:
    """Warm-up and decay fit the steps."""
    warm = recipes.warmup(made.config)
    decay = recipes.get(made.get("policy.scheduler")[-2], "kwargs.T_max") if warm else None
    if warm and decay and warm + decay != max(2, made.steps):
        fitted = f"warm-up {warm} and decay {decay} are {warm + decay} steps"
        made.wrong("schedule", "policy.scheduler", f"{fitted}, the run has {made.steps}")


def check_sizes(made: Checked, folder: Path | str | None) -> shapes.Shape | None:
    """What the adapter touches, what fits; returns the model's shape where it is known."""
    lora = cast(estimates.LoraConfig, made.get(LORA) or {})
    if lora.get("enabled") is not True or not isinstance(lora.get("dim"), int):
        how = "lora_cfg.enabled is not true, or there is no dim"
        made.wrong("lora", LORA, f"{how}: all of the model would be trained")
        return None
    options = json.loads((cli.ROOT / "assets/vllm-options.json").read_text())["options"]
    ranks = options["--max-lora-rank"]["choices"]
    if lora["dim"] not in ranks:
        served = ", ".join(map(str, ranks))
        message = f"dim {lora['dim']} is a rank that vLLM does not serve ({served})"
        made.wrong("lora", LORA, message)
    own = (families.configuration(str(folder)) or None) if folder else None
    family = families.of(made.report["model"], own)
    limit, key = families.limit(own), "policy.max_total_sequence_length"
    if limit is not None and made.get(key) > limit:
        message = f"{key} is {made.get(key)}, the model was made for {limit} tokens"
        made.wrong("context", key, message)
    if own is not None:
        shape = shapes.Shape.assumed(own, "by its config.json")
    else:
        shape = shapes.Shape.assumed(family.dimensions, str(family.dimensions_source))
    if shape is None:
        what = "what the adapter touches, memory and disk"
        made.unchecked.append(f"{what}: no config.json of a family whose layers are known here")
        return None
    try:
        found = estimates.coverage(lora, shape.linears)
    except cli.BadConfig as error:
        made.wrong("lora", LORA, str(error).partition(": ")[2])
        return None
    for message in _adapter_faults(lora, shape, found, bool(made.raw.get("defaults"))):
        made.wrong("lora", LORA, message)
    if any(shapes.is_routed(name) for name, _, _ in shape.linears):
        how = "the routed experts are taken for linear layers, the larger case"
        made.unchecked.append(f"the modules of the class that is trained: {how}")
    made.report["lora"] = {"rank": lora["dim"], "alpha": lora.get("alpha"), **found}
    made.report["lora"] |= {"of": shape.parameters, "source": shape.source}
    _disk(made, found["trainable"])
    train = made.report["tokens"].get("train")
    held = made.report["tokens"].get("validation") or {"total": 0}
    if train and made.algorithm != "grpo":
        is_paced = family.pace.get("of", made.report["model"]) == made.report["model"]
        pace = family.pace if is_paced else {}
        made.report["estimate"] |= {
            "memory_gib": estimates.memory(shape, made.config, found["trainable"], train["max"]),
            **estimates.hours(made.config, pace, train["mean"], train["p95"], held["total"]),
            "pace": pace.get("source"),
        }
    return shape


def _adapter_faults(
    lora: estimates.LoraConfig, shape: shapes.Shape, found: estimates.Coverage, by_nemo_rl: bool
) -> Iterable[str]:
    """What is wrong with what an adapter touches, as sentences."""
    every = {name for name, _, _ in shape.linears}
    patterns = [*(lora.get("target_modules") or []), *(lora.get("exclude_modules") or [])]
    for pattern in patterns:
        if not any(estimates.matches(pattern, name) for name in every):
            yield f"{pattern!r} matches no module of this model"
    if not found["trainable"]:
        yield "the adapter touches no module"
    adapted = estimates.adapted(lora, shape.linears)
    experts = [layer for layer in adapted if shapes.is_routed(layer[0])]
    if experts:
        size = shapes.size(lora["dim"], experts) / 1e6
        yield (
            f"{len(experts):,} linear layers of routed experts are adapted, {size:,.0f} M parameters: no server takes that; "
            "exclude *mixer.experts* (Nemotron-3; by another name *mlp.experts*)"
        )
    kinds = {shapes.kind(name) for name, _, _ in adapted}
    if "mixer.out_proj" in kinds:
        yield "out_proj of Mamba is adapted: the fused kernel reads its weight directly, the adapter gets no gradient"
    if "lm_head" in kinds and any(".mixer." in name for name in every):
        yield "lm_head is adapted: tools that read the adapter afterwards have trouble with it; exclude *lm_head*"
    for pattern in patterns:
        if by_nemo_rl and "*" not in pattern and pattern not in every:  # Automodel 24b47e85
            yield f"{pattern!r} means nothing to NeMo-RL, which compares whole names; write '*{pattern}'"


def _disk(made: Checked, trainable: int) -> None:
    """Note what the checkpoints take, against what there is where they are written."""
    key = "checkpointing.checkpoint_dir"
    needed = estimates.disk(made.config, trainable)
    wanted = Path(made.get(key) or ".").absolute()
    place = next(parent for parent in (wanted, *wanted.parents) if parent.exists())
    free = shutil.disk_usage(place).free
    saved_gib, free_gib = needed / estimates.GIB, free / estimates.GIB
    if needed > free:
        message = f"checkpoints take up to {saved_gib:.1f} GiB, {place} has {free_gib:.1f}"
        made.wrong("disk", key, message)
    estimate = {"checkpoints_gib": round(saved_gib, 2), "free_gib": round(free_gib, 1)}
    made.report["estimate"] = estimate
