"""What can be known of a training run before a GPU is asked for: the recipe, every row, what the adapter touches, what it all takes.

`check` goes through the rows once, as a stream: what it keeps for each row is a few bytes.
"""

import difflib
import hashlib
import json
import os
import shutil
from array import array
from collections import Counter
from pathlib import Path

from decksmith.core import cli, stream
from decksmith.decks import prompts as deck_prompts
from decksmith.training import estimates, recipes

KEYS = recipes.RECIPES / "nemo-rl-keys.txt"
SHOWN = 10  # findings of one rule that are listed; the rest is counted
LOADED = 10 << 20  # the trainer's loader takes its columns from so many bytes

# Each rule with what to do about it.
RULES = {
    "absent": "run sft-config for this run",
    "unknown-key": "correct the name; NeMo-RL ignores a key it does not know, in silence",
    "unfilled": "run sft-config, which computes it, or give it as KEY=VALUE",
    "checkpointing": "set checkpointing.enabled=true and an absolute checkpointing.checkpoint_dir on a disk that all nodes see",
    "batch": "make policy.train_global_batch_size (and sft.val_global_batch_size) a multiple of GPUs x micro batch",
    "template": "set policy.tokenizer.chat_template=default, or the path of a .jinja file",
    "dataset": "name data.train and data.validation openai_format with absolute paths, each with _override_: true where there is a parent",
    "steps": "run sft-config again: the rows are not those it counted, or steps and epochs were set apart",
    "periods": "make checkpointing.save_period a multiple of sft.val_period, both within the steps, and sft.val_at_end true",
    "schedule": "run sft-config again, which fits warm-up and decay to the steps",
    "logger": "set logger.wandb_enabled=false, or give WANDB_API_KEY",
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


class Findings:
    """What is wrong, by rule: all counted, the first few kept with place and words."""

    def __init__(self):
        self.counts, self.listed = Counter(), []

    def add(self, rule, message, *, file, line=None, ident=None):
        self.counts[rule] += 1
        if self.counts[rule] <= SHOWN:
            self.listed.append(
                {
                    "rule": rule,
                    "file": str(file),
                    "line": line,
                    "id": ident,
                    "message": message,
                    "remedy": RULES[rule],
                }
            )


def check(path, folder=None, preview=0):
    """Check a RUN/recipe.yaml and its data. `folder`: a Hugging Face folder (config.json, tokenizer), or None where there is none.

    Returns ({"ok", "recipe", "model", "parent", "rows", "steps", .., "tokens", "lora", "estimate", "failures", "counts", "unchecked"},
    previews `[{"id", "runs": [(trained, text)]}]`); without a tokenizer its checks are named in "unchecked". Raises cli.Missing, cli.BadConfig.
    """
    path, findings, unchecked = Path(path), Findings(), []
    config = recipes.load(path)
    places = _places(path)
    against = _keys(path, config, places, findings)
    gaps = [key for key, value in _leaves(config) if value == "???"]
    for key in gaps:
        findings.add("unfilled", f"{key} is still ???", file=path, line=places[key])
    report = {
        "recipe": str(path),
        "model": recipes.get(config, "policy.model_name"),
        "parent": {"absent": config.get("absent"), "keys": against},
    }
    for key in (
        "policy.train_global_batch_size",
        "policy.train_micro_batch_size",
        "policy.max_total_sequence_length",
        "sft.max_num_epochs",
        "sft.max_num_steps",
        "sft.val_period",
        "checkpointing.save_period",
        "cluster.num_nodes",
        "cluster.gpus_per_node",
    ):
        if key not in gaps and (
            not isinstance(value := recipes.get(config, key), int)
            or isinstance(value, bool)
            or value < 1
        ):
            findings.add(
                "unfilled",
                f"{key} is {value!r} and must be a whole number from 1",
                file=path,
                line=places[key],
            )
            gaps.append(key)
    if gaps:  # the rest would only repeat it
        return _finish(report, findings, unchecked), []
    template = None
    if folder is None:
        unchecked.append(
            "everything that needs the tokenizer: lengths, mask, template, what is trained against what is served"
        )
    else:
        template = recipes.template(config, folder)
    if config.get("absent"):
        unchecked.append(
            f"keys against {config['absent'][0]} itself, which is not on this machine; the list {KEYS.name} stood in for it"
        )
    rows, shown = _data(config, path, places, template, findings, preview, report)
    _settings(config, path, places, rows, findings)
    _sizes(config, path, places, folder, findings, report, unchecked)
    return _finish(report, findings, unchecked), shown


def _finish(report, findings, unchecked):
    return {
        "ok": not findings.counts,
        **report,
        "failures": findings.listed,
        "counts": dict(findings.counts),
        "unchecked": unchecked,
    }


def lines(report):
    """One line for each failure: place, id, rule, what, what to do."""
    for found in report["failures"]:
        place = ":".join(str(part) for part in (found["file"], found["line"]) if part is not None)
        yield ": ".join(
            part
            for part in (
                place,
                found["id"],
                found["rule"],
                f"{found['message']}; {found['remedy']}",
            )
            if part
        )
    for rule, count in report["counts"].items():
        if count > SHOWN:
            yield f"{rule}: {count - SHOWN} more"


def table(report):
    """The report as lines of a table, `[(what, how it stands)]`."""
    rows, tokens, lora, estimate = (
        report.get(key) or {} for key in ("rows", "tokens", "lora", "estimate")
    )
    yield "model", report["model"]
    yield "keys", f"compared with {report['parent']['keys']}"
    if rows:
        yield (
            "rows",
            ", ".join(
                f"{count:,} {side} ({report['prompted'][side]:,} with the system prompt of data/prompts.jsonl)"
                for side, count in rows.items()
            ),
        )
        yield (
            "steps",
            (
                f"{report['steps']} = {report['epochs']} epochs x floor({rows.get('train', 0):,} / {report['batch']}), "
                f"{report['left_over']} rows left over in each"
            ),
        )
    for side, found in tokens.items():
        yield (
            f"tokens, {side}",
            (
                f"median {found['median']:,}, 95 % {found['p95']:,}, longest {found['max']:,} of {report['limit']:,}; "
                f"{found['share']:.1%} of {found['total']:,} trained; {found['reasoned']:,} rows with reasoning"
            ),
        )
    if lora:
        yield (
            "adapter",
            f"rank {lora['rank']}, {lora['trainable'] / 1e6:.1f} M of {lora['of'] / 1e6:,.0f} M parameters ({lora['source']})",
        )
        yield (
            "",
            ", ".join(
                f"{name} {touched}/{every}" for name, (touched, every) in lora["classes"].items()
            ),
        )
    if memory := estimate.get("memory_gib"):
        yield (
            "memory",
            f"about {memory['total']} GiB a device, estimated: "
            + ", ".join(f"{name} {size}" for name, size in memory.items() if name != "total"),
        )
    if estimate.get("hours") is not None:
        gpus = f", {estimate['gpu_hours']} GPU-hours" if estimate["gpu_hours"] else ""
        yield "time", f"about {estimate['hours']} h{gpus}, estimated ({estimate['pace']})"
    if estimate:
        yield (
            "disk",
            f"checkpoints up to {estimate['checkpoints_gib']} GiB, {estimate['free_gib']} GiB free",
        )
    for what in report["unchecked"]:
        yield "not checked", what


def _leaves(value, prefix=""):
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(item, f"{prefix}{key}.")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _leaves(item, f"{prefix}{index}.")
    else:
        yield prefix[:-1], value


def _places(path):
    """The line of every key of a YAML file, {dotted key: line}; for a key that is not there, of the nearest section that is."""
    import yaml

    class Places(dict):
        def __missing__(self, key):
            return self[key.rpartition(".")[0]] if "." in key else None

    found = Places()

    def walk(node, prefix):
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                found[f"{prefix}{key.value}"] = key.start_mark.line + 1
                walk(value, f"{prefix}{key.value}.")

    walk(yaml.compose(path.read_text(), Loader=yaml.SafeLoader), "")
    return found


def known_keys():
    """(names, prefixes below which every key is taken) of NeMo-RL's SFT, from assets/recipes/nemo-rl-keys.txt."""
    names, free = set(), set()
    for line in KEYS.read_text().splitlines():
        if not line.startswith("#"):
            section, _, keys = line.partition(": ")
            for key in keys.split():
                (free if key.endswith(".*") else names).add(f"{section}.{key}".removesuffix(".*"))
    return names, free


def _keys(path, config, places, findings):
    """Refuse keys that neither the parents nor the list know. Says what was compared with."""
    names, free = known_keys()
    parents = _raw(path).get("defaults") or []
    for parent in [parents] if isinstance(parents, str) else parents:
        if (path.parent / parent).exists():
            names |= {key for key, _ in _leaves(recipes.load(path.parent / parent))}
    for key, line in places.items():
        if (
            key == "defaults"
            or key.endswith("_override_")
            or key in names
            or any(key == at or key.startswith(f"{at}.") for at in free)
        ):
            continue
        if any(name.startswith(f"{key}.") for name in names | free):  # a section
            continue
        near = difflib.get_close_matches(key, names, 1, 0.8)
        findings.add(
            "unknown-key",
            f"{key} is no key of NeMo-RL's SFT" + (f"; did you mean {near[0]}?" if near else ""),
            file=path,
            line=line,
        )
    return KEYS.name if config.get("absent") or not parents else "the parent"


def _raw(path):
    import yaml

    return yaml.safe_load(path.read_text()) or {}


def _settings(config, path, places, rows, findings):
    """The recipe against itself and against the number of rows."""

    def get(key, default=None):
        return recipes.get(config, key, default)

    def wrong(rule, key, message):
        findings.add(rule, message, file=path, line=places[key])

    if get("checkpointing.enabled") is not True:
        wrong("checkpointing", "checkpointing.enabled", "nothing would be saved")
    if not Path(get("checkpointing.checkpoint_dir") or "").is_absolute():
        wrong(
            "checkpointing",
            "checkpointing.checkpoint_dir",
            "checkpointing.checkpoint_dir is not absolute",
        )
    gpus = get("cluster.num_nodes") * get("cluster.gpus_per_node")
    parallel = gpus // (
        (get("policy.dtensor_cfg.tensor_parallel_size") or 1)
        * (get("policy.dtensor_cfg.context_parallel_size") or 1)
    )
    for key, micro in (
        ("policy.train_global_batch_size", "policy.train_micro_batch_size"),
        ("sft.val_global_batch_size", "sft.val_micro_batch_size"),
    ):
        each = parallel * (get(micro) or 1)
        if not each or (get(key) or 0) % each or not get(key):
            wrong(
                "batch",
                key,
                f"{key} is {get(key)}, {parallel} GPUs with a micro batch of {get(micro) or 1} take a multiple of {each}",
            )
    template = get("policy.tokenizer.chat_template")
    if template != "default" and not str(template).endswith(".jinja"):
        wrong(
            "template",
            "policy.tokenizer.chat_template",
            f"the chat template is {'inherited: a demo' if template is None else 'written out in the recipe'}",
        )
    elif template != "default" and not Path(template).is_absolute():
        wrong(
            "template",
            "policy.tokenizer.chat_template",
            f"{template} is not absolute, and the trainer runs in another folder",
        )
    raw = _raw(path)
    for side in ("train", "validation"):
        data = get(f"data.{side}")
        if not isinstance(data, dict) or data.get("dataset_name") != "openai_format":
            wrong(
                "dataset",
                f"data.{side}",
                f"data.{side} is not of openai_format" + ("" if data else ": there is none"),
            )
        elif fault := recipes.misread(data.get("data_path") or ""):
            wrong("dataset", f"data.{side}.data_path", fault)
        elif raw.get("defaults") and not recipes.get(raw, f"data.{side}._override_"):
            wrong(
                "dataset",
                f"data.{side}",
                f"data.{side} has no _override_: true, keys of the parent's data set stay in it",
            )
    steps, epochs, batch = (
        get("sft.max_num_steps"),
        get("sft.max_num_epochs"),
        get("policy.train_global_batch_size"),
    )
    if "train" in rows:
        epoch = rows["train"] // batch
        if not (epochs - 1) * epoch < steps <= epochs * epoch:
            wrong(
                "steps",
                "sft.max_num_steps",
                f"sft.max_num_steps is {steps}; {epochs} epochs of floor({rows['train']} rows / {batch}) = {epoch} steps "
                f"are {epochs * epoch}",
            )
    if "validation" in rows and rows["validation"] < (get("sft.val_global_batch_size") or 1):
        wrong(
            "batch",
            "sft.val_global_batch_size",
            f"{rows['validation']} validation rows are less than one batch of {get('sft.val_global_batch_size')}: "
            "the loss would be that of no row",
        )
    val, save = get("sft.val_period"), get("checkpointing.save_period")
    if save % val:
        wrong(
            "periods",
            "checkpointing.save_period",
            f"a save every {save} steps and a validation every {val}: a save without its loss",
        )
    if val > steps or save > steps:
        wrong(
            "periods", "sft.val_period", f"{steps} steps are less than a period ({val} and {save})"
        )
    if steps % val and get("sft.val_at_end") is not True:
        wrong("periods", "sft.val_at_end", f"step {steps}, the last, is saved and not validated")
    parts = get("policy.scheduler")
    if (
        isinstance(parts, list)
        and (warm := recipes.warmup(config))
        and (decay := recipes.get(parts[-2], "kwargs.T_max"))
        and warm + decay != steps
    ):
        wrong(
            "schedule",
            "policy.scheduler",
            f"warm-up {warm} and decay {decay} are {warm + decay} steps, the run has {steps}",
        )
    if (
        raw.get("defaults")
        and get("logger.wandb_enabled") is not False
        and not os.environ.get("WANDB_API_KEY")
    ):
        wrong(
            "logger", "logger.wandb_enabled", "Weights & Biases is on and WANDB_API_KEY is not set"
        )


def _sizes(config, path, places, folder, findings, report, unchecked):
    """What the adapter touches, and estimates of memory, time and disk."""
    lora, known, base = (
        recipes.get(config, "policy.dtensor_cfg.lora_cfg") or {},
        estimates.known(report["model"]),
        None,
    )
    at = places["policy.dtensor_cfg.lora_cfg"]
    if lora.get("enabled") is not True or not isinstance(lora.get("dim"), int):
        return findings.add(
            "lora",
            "lora_cfg.enabled is not true, or there is no dim: all of the model would be trained",
            file=path,
            line=at,
        )
    if lora["dim"] not in estimates.SERVED_RANKS:
        findings.add(
            "lora",
            f"dim {lora['dim']} is a rank that vLLM does not serve ({', '.join(map(str, estimates.SERVED_RANKS))})",
            file=path,
            line=at,
        )
    if folder is not None and (Path(folder) / "config.json").is_file():
        base = json.loads((Path(folder) / "config.json").read_text())
    source = "by its config.json" if base else known.get("source")
    base = base or known.get("config")
    if base is None or (layers := estimates.linears(base)) is None:
        return unchecked.append(
            "what the adapter touches, memory and disk: no config.json of a known family"
        )
    try:
        found = estimates.coverage(lora, layers)
    except cli.BadConfig as error:
        return findings.add("lora", str(error).partition(": ")[2], file=path, line=at)
    for pattern in [*(lora.get("target_modules") or []), *(lora.get("exclude_modules") or [])]:
        if not any(estimates.matches(pattern, layer[0]) for layer in layers):
            findings.add("lora", f"{pattern!r} matches no module of this model", file=path, line=at)
    if not found["trainable"]:
        findings.add("lora", "the adapter touches no module", file=path, line=at)
    if found["classes"].get("mamba out_proj", [0])[0]:
        findings.add(
            "lora",
            "out_proj of Mamba is adapted: the fused kernel reads its weight directly, the adapter gets no gradient",
            file=path,
            line=at,
        )
    if found["classes"].get("lm_head", [0])[0] and base.get("model_type") == "nemotron_h":
        findings.add(
            "lora",
            "lm_head is adapted: tools that read the adapter afterwards have trouble with it; exclude *lm_head*",
            file=path,
            line=at,
        )
    report["lora"] = {
        "rank": lora["dim"],
        "alpha": lora.get("alpha"),
        **found,
        "of": estimates.parameters(base, layers)[0],
        "source": source,
    }
    needed = estimates.disk(config, found["trainable"])
    place = Path(recipes.get(config, "checkpointing.checkpoint_dir") or ".").absolute()
    place = next(parent for parent in (place, *place.parents) if parent.exists())
    free = shutil.disk_usage(place).free
    if needed > free:
        findings.add(
            "disk",
            f"checkpoints take up to {needed / estimates.GIB:.1f} GiB, {place} has {free / estimates.GIB:.1f}",
            file=path,
            line=places["checkpointing.checkpoint_dir"],
        )
    report["estimate"] = {
        "checkpoints_gib": round(needed / estimates.GIB, 2),
        "free_gib": round(free / estimates.GIB, 1),
    }
    if train := (report.get("tokens") or {}).get("train"):
        pace = estimates.hours(config, known.get("seconds"), train["mean"], train["p95"])
        report["estimate"] |= {
            "memory_gib": estimates.memory(base, config, layers, found["trainable"], train["max"]),
            "hours": pace and pace[0],
            "gpu_hours": pace and pace[1],
            "pace": known.get("seconds_source"),
        }


def _data(config, path, places, template, findings, preview, report):
    """Every row of both sides. Returns ({side: rows}, previews) and fills in the report."""
    rows, shown, seen, prompt = (
        {},
        [],
        {},
        deck_prompts.system(),
    )
    report["tokens"] = {}
    for side in ("train", "validation"):
        file = Path(recipes.get(config, f"data.{side}.data_path") or "")
        if not file.is_file():
            findings.add(
                "absent",
                f"there is no {file if file.name else f'{side} set'}",
                file=path,
                line=places[f"data.{side}.data_path"],
            )
            continue
        rows[side], lengths, trained, reasoned, alike, columns = 0, array("I"), 0, 0, 0, set()
        for number, read, row in _rows(file):
            rows[side] += 1
            if rows[side] % 20_000 == 0:
                cli.say(f"{side}: {rows[side]:,} rows read")
            if isinstance(row, str):
                findings.add("json", row, file=file, line=number)
                continue
            faults = list(_shape(row, read > LOADED, columns))
            if not faults or faults[0][0] != "messages":
                messages = row["messages"]
                faults += _twice(row, side, seen)
                alike += messages[0]["role"] == "system" and messages[0]["content"].startswith(
                    prompt
                )
                reasoned += bool(messages[-1].get("reasoning_content"))
                if template:
                    made, more = _tokens(messages, template, config, len(lengths) < 20)
                    faults += more
                    if made:
                        lengths.append(made["length"])
                        trained += sum(made["mask"])
                        if side == "train" and len(shown) < preview:
                            shown.append({"id": row["id"], "runs": _runs(made, template)})
            for rule, message in faults:
                findings.add(rule, message, file=file, line=number, ident=row["id"])
        report.setdefault("prompted", {})[side] = alike
        if lengths:
            order, total = sorted(lengths), sum(lengths)
            report["tokens"][side] = {
                "total": total,
                "mean": round(total / len(order), 1),
                "median": order[len(order) // 2],
                "p95": order[len(order) * 95 // 100],
                "max": order[-1],
                "trained": trained,
                "share": round(trained / total, 4),
                "reasoned": reasoned,
            }
    report |= {
        "rows": rows,
        "batch": config["policy"]["train_global_batch_size"],
        "epochs": config["sft"]["max_num_epochs"],
        "steps": config["sft"]["max_num_steps"],
        "limit": config["policy"]["max_total_sequence_length"],
    }
    report["left_over"] = rows.get("train", 0) % report["batch"]
    return rows, shown


def _rows(file):
    """Yield `(line number, bytes read so far, record or what is wrong with it)`."""
    read = 0
    with open(file, "rb") as lines:
        for number, line in enumerate(lines, 1):
            read += len(line)
            if line.strip():
                try:
                    yield number, read, stream.loads(line)
                except ValueError as error:
                    yield number, read, str(error)


def _shape(row, late, columns):
    """Faults of one row as JSON; `columns` gathers the keys that the loader has seen."""
    messages = row.get("messages")
    roles = (
        [message.get("role") if isinstance(message, dict) else None for message in messages]
        if isinstance(messages, list)
        else []
    )
    turns = roles[1:] if roles[:1] == ["system"] else roles
    if not turns or len(turns) % 2 or turns != ["user", "assistant"] * (len(turns) // 2):
        yield "messages", f"the roles are {', '.join(map(str, roles)) or 'none'}"
        return
    for role, message in zip(roles, messages, strict=True):
        thoughts = message.get("reasoning_content")
        if (
            not isinstance(message.get("content"), str)
            or not message["content"].strip()
            or not isinstance(thoughts, str | None)
        ):
            yield (
                "messages",
                f"the content of {role} is empty or no text"
                if isinstance(thoughts, str | None)
                else "reasoning_content is no text",
            )
            return
        if "\ufffd" in message["content"] + (
            thoughts or ""
        ):  # what stream.loads makes of a lone surrogate, too
            yield (
                "messages",
                f"what {role} says holds a broken character (U+FFFD, or half of a pair)",
            )
            return
    paths = {
        key
        for key, _ in _leaves(
            {**row, "messages": {str(index): message for index, message in enumerate(messages)}}
        )
    }
    if late and (fresh := sorted(paths - columns)):
        yield (
            "columns",
            f"{fresh[0]} first comes here, after the 10 MB from which the trainer's loader takes its columns",
        )
    columns |= paths
    if any(
        tag in message["content"]
        for tag in ("<think>", "</think>")
        for message in messages
        if message["role"] == "assistant"
    ):
        yield "tags", "a think tag stands in the content"


def _twice(row, side, seen):
    """Faults of ids and contents that came before; `seen` keeps a short hash of each."""
    request, answer = row["messages"][-2]["content"], row["messages"][-1]["content"]
    for kind, text in (("id", row["id"]), ("request", request.casefold()), ("answer", answer)):
        key = hashlib.blake2b(
            f"{kind} {' '.join(text.split())}".encode("utf-8", "replace"), digest_size=8
        ).digest()
        if key not in seen:
            seen[key] = side
        elif seen[key] != side:
            yield "leak", f"its {kind} is that of a row of train"
        elif kind == "id":
            yield "duplicate", "this id came before"


def _tokens(messages, template, config, closely):
    """(sft.example or None, faults) of one conversation: its length, and what is trained against what is served."""
    kwargs, prompts = (
        recipes.get(config, "policy.tokenizer.chat_template_kwargs") or {},
        bool(recipes.get(config, "data.add_generation_prompt")),
    )
    try:
        pieces = recipes.chunks(messages, template, config)
        whole, served = (
            template.render(messages, **kwargs),
            template.render(messages[:-1], add_generation_prompt=True, **kwargs),
        )
        filled = (
            whole
            if not closely
            else template.render(
                [{"reasoning_content": None, **message} for message in messages], **kwargs
            )
        )
    except cli.BadData as error:
        return None, [("template-refuses", str(error))]
    made, faults = recipes.assemble(pieces, config), []
    if made["masked_out"]:
        faults.append(
            (
                "too-long",
                f"{made['length']} tokens, the limit is {config['policy']['max_total_sequence_length']}",
            )
        )
    reasoning, answer = (
        (messages[-1].get("reasoning_content") or "").strip(),
        messages[-1]["content"].strip(),
    )
    thinks = kwargs.get("enable_thinking", served.rstrip().endswith("<think>"))
    if thinks and prompts and not reasoning:
        faults.append(("reasoning", "no reasoning, and the prompt asks for it"))
    text, trained = "".join(piece for _, piece, _ in pieces), pieces[-1][1]
    if text != whole and (text != f"{whole}{template.eos}" or _closed(whole, answer, template)):
        at = recipes.common(text, whole)
        faults.append(
            (
                "pieces",
                f"at character {at} {text[at : at + 24]!r} is trained where the template has {whole[at : at + 24]!r}",
            )
        )
    if prompts or reasoning:
        told = template.encode(served)
        ids = [token for *_, ids in (pieces[:-1] if prompts else pieces) for token in ids]
        if (ids if prompts else ids[: len(told)]) != told:
            at = recipes.common(ids, told)
            faults.append(
                (
                    "prompt",
                    f"token {at} is {template.decode(ids[at : at + 1])!r}, in a server's prompt {template.decode(told[at : at + 1])!r}",
                )
            )
    if stops := template.stops():
        ends = [index for index, token in enumerate(pieces[-1][2]) if token in stops]
        after = template.decode(pieces[-1][2][ends[0] + 1 :]).strip() if ends else ""
        if not ends:
            faults.append(("end", "no token at which a server stops is trained"))
        elif after:
            faults.append(
                ("end", f"{after[:24]!r} is trained after the first token at which a server stops")
            )
    for name, part, wanted in (("answer", answer, True), ("reasoning", reasoning, thinks)):
        if part and (part in trained) != bool(wanted):
            faults.append(
                ("trained", f"the {name} is {'not ' if wanted else ''}in the trained text")
            )
    if filled != whole:
        faults.append(("nulls", "with null for an absent reasoning_content the text differs"))
    return made, faults


def _closed(whole, content, template):
    """Whether the template itself ends the last turn with a special token."""
    tail = whole[whole.rfind(content.strip()) + len(content.strip()) :]
    return any(
        template.tokenizer.get_added_tokens_decoder().get(token) for token in template.encode(tail)
    )


def _runs(made, template):
    """The tokens as text, `[(trained, text)]`."""
    runs, start = [], 0
    for index in range(1, len(made["mask"]) + 1):
        if index == len(made["mask"]) or made["mask"][index] != made["mask"][start]:
            runs.append((bool(made["mask"][start]), template.decode(made["ids"][start:index])))
            start = index
    return runs
