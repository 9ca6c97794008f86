"""Training before any GPU: recipes in NeMo-RL's key names, and which tokens of a row are trained.

Both trainers read the same recipe and train the same tokens: `example` follows NeMo-RL's own rule (its sft_processor and
get_formatted_message_log, read at commit 7ea279abf), so that what sft-check measures is what either trainer does.
"""

import json
import math
import sys
from collections.abc import Container, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypedDict, TypeVar

import jinja2
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from decksmith.core import cli, stream
from decksmith.models import families

RECIPES = cli.ROOT / "assets" / "recipes"
PARTED = 4  # of a row that is too long, NeMo-RL keeps so many tokens of each message, none of them trained

# The section of a recipe that says how many steps there are, and the key that says how many rows a step has.
ALGORITHMS = dict.fromkeys(("sft", "dpo"), "policy.train_global_batch_size")
ALGORITHMS["grpo"] = "grpo.num_prompts_per_step"

# The loss on the validation set, as NeMo-RL names it in training_info.json.
VAL_LOSS = {"sft": "val:val_loss", "dpo": "val:validation-default_loss"}

T = TypeVar("T")
Recipe = dict[str, Any]
Message = dict[str, Any]  # {"role", "content", ..}
Piece = tuple[str, str, list[int]]  # role, text, token ids


class Trained(TypedDict):
    """What is trained of a conversation; `length` is that of the whole, also where it is masked out."""

    ids: list[int]
    mask: list[int]
    length: int
    masked_out: bool


def load(path: Path | str) -> Recipe:
    """A recipe as a plain dict: parents merged where they exist on this machine, interpolations resolved. `defaults` names parents
    (a path or a list; relative to the file that names it, or absolute), later ones win; a section with `_override_: true` replaces
    its parent's, as in NeMo-RL on the first level only: deeper marks stay, as keys. A parent that is not here (it may live in an
    image) is left out, and stands in the result under "absent". `???` stays where nothing filled it. Raises cli.Missing,
    cli.BadConfig."""
    # Those of NeMo-RL.
    OmegaConf.register_resolver("add", lambda *a: sum(a), replace=True)
    OmegaConf.register_resolver("mul", lambda *a: math.prod(a), replace=True)
    OmegaConf.register_resolver("div", lambda a, b: a / b, replace=True)
    OmegaConf.register_resolver("max", lambda *a: max(a), replace=True)
    absent: list[str] = []
    try:
        merged = _inherit(Path(path), absent, ())
        found: Any = OmegaConf.to_container(merged, resolve=True)
    except (OmegaConfBaseException, TypeError) as error:  # TypeError: a list over a section
        raise cli.BadConfig(f"{path}: {_one_line(error)}") from None
    return found | ({"absent": absent} if absent else {})


def algorithm(config: Container[str]) -> str:
    """Which of ALGORITHMS a recipe is of. Raises cli.BadConfig."""
    found = [name for name in ALGORITHMS if name in config]
    if len(found) != 1:
        known, there = ", ".join(ALGORITHMS), ", ".join(found) or "none"
        raise cli.BadConfig(f"a recipe has one section of {known}, this one has {there}")
    return found[0]


def recipe(
    name: str, *, data: Path, run: Path, base: str | None = None, overrides: Iterable[str] = ()
) -> Recipe:
    """What RUN/recipe.yaml holds: our overrides of assets/recipes/NAME.yaml (or a path) with every `???` computed.

    data: the folder of train.jsonl and test.jsonl. run: the run folder. base: another base model than the recipe's, with what
    belongs to it (families.of). overrides: "dotted.key=value" (YAML values), stronger than both. The number of steps is epochs x
    floor(rows / batch); who gives `sft.max_num_steps` (of DPO `dpo.`, of GRPO `grpo.`) instead gets the epochs that contain it.
    `defaults` and `_override_` stay, so that the trainer merges the same parents. Raises cli.Missing, cli.BadConfig, cli.BadData.
    """
    config = OmegaConf.create(_named(name))
    section = algorithm(config)
    if base:
        _set_base(config, base)
    given = set()
    for text in overrides:
        key, equals, value = text.lstrip("+").partition("=")
        if not equals or not key:
            raise cli.BadConfig(f"{text!r} is no override; write key=value, sft.max_num_epochs=3")
        try:
            OmegaConf.update(config, key, OmegaConf.from_dotlist([f"x={value}"]).x, force_add=True)
        except Exception as error:  # YAML and OmegaConf have unrelated exceptions of their own
            raise cli.BadConfig(f"{text}: {_one_line(error)}") from None
        given.add(key)
    _fit_rows(config, data, given)
    run = run.resolve()
    sides = {"train": data_file(data, "train"), "validation": data_file(data, "test")}
    rows, batch = count(sides["train"]), want(config, ALGORITHMS[section], int)
    epoch = rows // batch
    if not epoch:
        few = f"{sides['train']} has {rows} rows, less than one batch of {batch}"
        mend = "no step would be made; write more (make corpus N=..)"
        raise cli.BadData(f"{few} ({ALGORITHMS[section]}); {mend}")
    if f"{section}.max_num_steps" in given:
        steps = want(config, f"{section}.max_num_steps", int)
        if f"{section}.max_num_epochs" not in given:
            config[section].max_num_epochs = -(-steps // epoch)
    else:
        steps = want(config, f"{section}.max_num_epochs", int) * epoch
    period = min(epoch, steps, _paced(config))
    filled = {
        f"{section}.max_num_steps": steps,
        f"{section}.val_period": period,
        "checkpointing.checkpoint_dir": str(run / "checkpoints"),
        "logger.log_dir": str(run / "logs"),
        **{f"data.{side}.data_path": str(path) for side, path in sides.items()},
    }
    for key, computed in filled.items():
        _fill(config, key, computed)
    # A val_period of 0 is no validation on the way; checkpoints are saved all the same.
    _fill(config, "checkpointing.save_period", config[section].val_period or period)
    _schedule(config, steps)
    made: Any = OmegaConf.to_container(config, resolve=False)
    return made


def freeze(name: str, data: Path | str, out: Path | str) -> Path:
    """Write OUT/train.jsonl and OUT/test.jsonl: of `data`, as people bring it, what the trainer of
    recipe `name` reads (chat_data.convert, whose report lies beside them and is said); prompts of
    GRPO become rows of NeMo Gym. Returns `out`. Raises cli.Missing, cli.BadConfig, cli.BadData."""
    # They read the renderer's themes, which a submit has not.
    from decksmith.train.corpus import chat_data, chat_rows

    section, out = algorithm(_named(name)), Path(out)
    if section != "grpo":
        for line in chat_data.sentences(chat_data.convert(str(data), section, out)):
            cli.say(line)
        return out
    for side in ("train", "test"):
        rows = [row for _, row in stream.records(data_file(data, side))]
        if alone := next((row["id"] for row in rows if not row.get("messages")), None):
            raise cli.BadData(f"{data_file(data, side)}: {alone}: no messages; GRPO reads prompts")
        gym = ({"id": row["id"], **chat_rows.gym_row(row)} for row in rows)
        stream.write_records(out / f"{side}.jsonl", gym)
    return out


def rewards_of(run: Path, config: Recipe) -> list[str]:
    """The rewards (assets/rewards) that a run's adapter was trained on: by which rows were chosen, which GRPO was given, and those of
    the adapter that it began as."""
    chosen_by, of_job = run / "data/report.json", run / "rewards/rules"
    found = set(stream.json_file(chosen_by)["rewards"]) if chosen_by.is_file() else set()
    if algorithm(config) == "grpo" and of_job.is_file():  # of its reward servers
        found.add(of_job.read_text().strip())
    elif algorithm(config) == "grpo":
        found.add(get(config, "env.rules", "layout"))
    before = Path(get(config, "start.adapter") or "") / "manifest.json"
    if before.is_file():
        found |= set(json.loads(before.read_text()).get("rewards", []))
    return sorted(found)


def data_file(folder: Path | str, side: str) -> Path:
    """The absolute path of SIDE.jsonl in a data folder. Raises cli.Missing, cli.BadData where NeMo-RL would misread the path."""
    path = (Path(folder) / f"{side}.jsonl").resolve()
    if not path.is_file():
        raise cli.Missing(f"there is no {path}; chat-split writes it (make corpus)")
    if fault := misread(path):
        raise cli.BadData(fault)
    return path


def misread(path: Path | str) -> str | None:
    """Why NeMo-RL would misread this data path (it names the task after the last two parts, cut at the first dot), or None."""
    if not Path(path).is_absolute():
        return f"{path}: the path of the data is not absolute; NeMo-RL reads it from another folder"
    if "." in Path(path).parent.name:
        return f"{path}: its folder has a dot in its name, at which NeMo-RL cuts the task's name; rename the folder"
    return None


def count(path: Path | str) -> int:
    """The number of rows (lines that are not blank) of a JSONL file, read as a stream."""
    with open(path, "rb") as file:
        return sum(1 for line in file if line.strip())


def warmup(config: Recipe) -> int:
    """The steps of the warm-up, 0 without one."""
    parts = get(config, "policy.scheduler")
    if isinstance(parts, list) and parts and "milestones" in parts[-1]:
        return parts[-1]["milestones"][0]
    return 0


def dump(config: Recipe) -> str:
    """A recipe as YAML text: the same dict gives the same bytes."""
    return OmegaConf.to_yaml(OmegaConf.create(config))


def get(config: object, key: str, default: Any = None) -> Any:
    """The value under a dotted key of a plain dict."""
    for part in key.split("."):
        if not isinstance(config, dict) or part not in config:
            return default
        config = config[part]
    return config


def leaves(value: object, prefix: str = "") -> Iterator[tuple[str, object]]:
    """(dotted key, value) of all that is no object and no list in a JSON value."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, f"{prefix}{key}.")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from leaves(item, f"{prefix}{index}.")
    else:
        yield prefix[:-1], value


def want(config: object, key: str, kind: type[T]) -> T:
    """The value under a dotted key, of type `kind`, a number above 0. Raises cli.BadConfig."""
    value = OmegaConf.select(config, key) if isinstance(config, DictConfig) else get(config, key)
    is_wrong = value == "???" or isinstance(value, bool) or not isinstance(value, kind)
    if is_wrong or (isinstance(value, int) and value < 1):
        least = " from 1" if kind is int else ""
        raise cli.BadConfig(f"{key} is {value!r}; it must be a {kind.__name__}{least}")
    return value


class ChatTemplate:
    """Tokenizer and chat template of a Hugging Face model folder: tokenizer.json, and chat_template.jinja or tokenizer_config.json.
    chat_template: "default" (the folder's), the path of a .jinja file, or the template itself, as NeMo-RL reads
    policy.tokenizer.chat_template. Raises cli.Missing, cli.BadConfig."""

    def __init__(self, folder: Path | str, chat_template: str = "default"):
        try:
            from tokenizers import Tokenizer
        except ImportError:
            raise cli.Missing("tokenizers is not installed; run: make .venv/.corpus") from None
        self.folder = Path(folder)
        path = self.folder / "tokenizer.json"
        if not path.is_file():
            raise cli.Missing(f"there is no {path}; name a folder of a Hugging Face model")
        self.tokenizer = Tokenizer.from_file(str(path))
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()
        named, mapped = self._json("tokenizer_config.json"), self._json("special_tokens_map.json")
        self.specials = {}
        for name in ("bos_token", "eos_token", "unk_token", "pad_token"):
            token = named.get(name, mapped.get(name))
            if token := token["content"] if isinstance(token, dict) else token:
                self.specials[name] = token
        self.bos, self.eos = self.specials.get("bos_token"), self.specials.get("eos_token")
        self.eos_id = self.tokenizer.token_to_id(self.eos) if self.eos else None
        self.source = self._source(chat_template, named)
        self.compiled = _jinja(self.source, f"the chat template of {folder}")

    def stops(self) -> set[int]:
        """The ids at which a server ends a reply: those of generation_config.json and the tokenizer's end of sequence."""
        ids = self._json("generation_config.json").get("eos_token_id") or []
        stops = set(ids) if isinstance(ids, list) else {ids}
        return stops if self.eos_id is None else stops | {self.eos_id}

    def render(
        self, messages: list[Message], add_generation_prompt: bool = False, **kwargs: object
    ) -> str:
        """The text of a conversation. Raises cli.BadData when the template refuses it."""
        try:
            given = {"messages": messages, "tools": None, "documents": None, **self.specials}
            given["add_generation_prompt"] = add_generation_prompt
            return self.compiled.render(given, **kwargs)
        except (jinja2.TemplateError, TypeError, KeyError) as error:
            raise cli.BadData(f"the chat template refuses the messages: {error}") from None

    def encode(self, text: str) -> list[int]:
        """Token ids; nothing is put before or after the text."""
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def decode(self, ids: list[int]) -> str:
        """The text of token ids, special tokens included."""
        return self.tokenizer.decode(ids, skip_special_tokens=False)

    def _json(self, name: str) -> dict[str, Any]:
        path = self.folder / name
        return stream.json_file(path, cli.BadConfig) if path.exists() else {}

    def _source(self, chosen: str, named: dict[str, Any]) -> str:
        path = self.folder / "chat_template.jinja"
        if chosen.endswith(".jinja"):
            path = Path(chosen)
            if not path.is_file():
                raise cli.Missing(f"there is no {path}, the chat template of the recipe")
        elif chosen and chosen != "default":
            return chosen
        if path.is_file():
            return path.read_text()
        source = named.get("chat_template")
        if isinstance(source, list):
            source = {entry["name"]: entry["template"] for entry in source}.get("default")
        if not source:
            places = "chat_template.jinja, or chat_template in tokenizer_config.json"
            raise cli.Missing(f"{self.folder} has no chat template ({places})")
        return source


def template(config: Recipe, folder: Path | str) -> ChatTemplate:
    """The ChatTemplate that a recipe asks for, of the model in `folder`."""
    return ChatTemplate(folder, get(config, "policy.tokenizer.chat_template") or "default")


def switches(config: Recipe, tools: object = None) -> dict[str, Any]:
    """What a chat template is given beside the messages of a row."""
    return {**(get(config, "policy.tokenizer.chat_template_kwargs") or {}), "tools": tools}


def chunks(
    messages: list[Message], template: ChatTemplate, config: Recipe, tools: object = None
) -> list[Piece]:
    """The pieces of a conversation, `[(role, text, ids)]`, one for each message, each tokenized on
    its own. A piece is what rendering one message more adds to the rendering before; the generation
    prompt, where the recipe has `data.add_generation_prompt`, belongs to the message of the
    user."""
    data = config.get("data") or {}
    kwargs = switches(config, tools)
    bos = template.bos if data.get("add_bos") else None
    eos = template.eos if data.get("add_eos") else None
    made: list[Piece] = []
    before = ""
    for index, message in enumerate(messages):
        prompt = bool(data.get("add_generation_prompt")) and message["role"] in ("user", "tool")
        text = template.render(messages[: index + 1], add_generation_prompt=prompt, **kwargs)
        piece, before = text[common(before, text) :], text
        if index == 0 and bos and not piece.startswith(bos):
            piece = bos + piece
        if index == len(messages) - 1 and eos and not piece.rstrip("\n").endswith(eos):
            piece += eos
        made.append((message["role"], piece, template.encode(piece)))
    return made


def common(a: Sequence[object], b: Sequence[object]) -> int:
    """The length of the common beginning of two texts or lists."""
    short = min(len(a), len(b))
    if a[:short] == b[:short]:
        return short
    return next(index for index in range(short) if a[index] != b[index])


def example(
    messages: list[Message], template: ChatTemplate, config: Recipe, tools: object = None
) -> Trained:
    """What is trained of a conversation: {"ids": [..], "mask": [0 | 1, ..], "length": tokens of the
    whole, "masked_out": bool}. The mask is 1 on the tokens of the assistant. A row of
    `policy.max_total_sequence_length` tokens or more is masked out: it keeps a few tokens and
    trains none, as in NeMo-RL, which says nothing about it."""
    return assemble(chunks(messages, template, config, tools), config)


def sides(row: Any) -> dict[str, list[Message]]:
    """The two conversations of a row of preferences, {"chosen", "rejected"}; the lower rank is the better one."""
    better, worse = sorted(row["completions"], key=lambda one: one["rank"])
    found = {"chosen": better, "rejected": worse}
    return {name: row["context"] + side["completion"] for name, side in found.items()}


def assemble(pieces: list[Piece], config: Recipe) -> Trained:
    """`example` from the pieces that `chunks` gave."""
    length = sum(len(ids) for *_, ids in pieces)
    limit = get(config, "policy.max_total_sequence_length")
    over, final = length >= limit, "dpo" in config or bool(get(config, "sft.only_unmask_final"))
    row: Trained = {"ids": [], "mask": [], "length": length, "masked_out": over}
    for index, (role, _, ids) in enumerate(pieces):
        kept = ids[: min(PARTED, limit // len(pieces))] if over else ids
        trained = role == "assistant" and not over and (not final or index == len(pieces) - 1)
        row["ids"] += kept
        row["mask"] += [int(trained)] * len(kept)
    return row


def _named(name: str) -> Recipe:
    """NAME of assets/recipes, or a path, as its file has it."""
    path = Path(name) if name.endswith((".yaml", ".yml")) else RECIPES / f"{name}.yaml"
    known = ", ".join(sorted(path.stem for path in RECIPES.glob("*.yaml")))
    return _read(path, f"there is no {path}; recipes: {known}")


def _inherit(path: Path, absent: list[str], seen: tuple[Path, ...]) -> DictConfig:
    path = path.resolve()
    if path in seen:
        raise cli.BadConfig(f"{path}: inherits from itself")
    own = OmegaConf.create(_read(path, f"there is no {path}"))
    if "defaults" not in own:
        return own
    parents = own.pop("defaults") or []
    merged = OmegaConf.create()
    for parent in [parents] if isinstance(parents, str) else parents:
        parent = path.parent / parent
        if parent.exists():
            merged = _merge(merged, _inherit(parent, absent, (*seen, path)))
        else:
            absent.append(str(parent))
    return _merge(merged, own)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def _merge(old: DictConfig, new: DictConfig) -> DictConfig:
    """What NeMo-RL makes of a parent and its child (merge_with_override, read at 7ea279abf). Both are changed."""
    for name in list(new):
        section = None if OmegaConf.is_missing(new, name) else new[name]
        if isinstance(section, DictConfig) and section.get("_override_"):
            section.pop("_override_")
            old.pop(name, None)
    merged: Any = OmegaConf.merge(old, new)
    return merged


def _read(path: Path, missing: str) -> Recipe:
    try:
        config: Any = OmegaConf.to_container(OmegaConf.load(path), resolve=False)
    except FileNotFoundError:
        raise cli.Missing(missing) from None
    except Exception as error:  # YAML and OmegaConf have unrelated exceptions of their own
        raise cli.BadConfig(f"{path}: {_one_line(error)}") from None
    if not isinstance(config, dict):
        raise cli.BadConfig(f"{path}: not a mapping of keys")
    return config


def _fill(config: DictConfig, key: str, value: object) -> None:
    section, _, last = key.rpartition(".")
    if OmegaConf.is_missing(OmegaConf.select(config, section) or {}, last):
        OmegaConf.update(config, key, value)


def _set_base(config: DictConfig, name: str) -> None:
    """Put a base model, and what belongs to it, into a recipe."""
    if Path(name).is_dir():  # NeMo-RL reads it from another folder
        name = str(Path(name).resolve())
    own = families.configuration(name)
    family = families.of(name, own)
    lora, length = "policy.dtensor_cfg.lora_cfg", "policy.max_total_sequence_length"
    longest = want(config, length, int)
    values = {
        "policy.model_name": name,
        "policy.tokenizer.chat_template_kwargs": family.thinking or {"enable_thinking": False},
        length: min(longest, family.length(own) or longest),
    }
    if not OmegaConf.select(config, f"{lora}.target_modules"):
        values[f"{lora}.exclude_modules"] = family.exclude
    for key, value in values.items():
        OmegaConf.update(config, key, value, merge=False)


def _fit_rows(config: DictConfig, data: Path, given: set[str]) -> None:
    """What depends on the rows: without a thought in them nothing asks for one, and tools are kept
    as they are (NeMo-RL's docs/guides/sft.md)."""
    path, thinks = data / "report.json", "policy.tokenizer.chat_template_kwargs.enable_thinking"
    counts = stream.json_file(path)["counts"] if path.is_file() else {}
    if counts.get("reasoned") == 0 and thinks not in given and OmegaConf.select(config, thinks):
        OmegaConf.update(config, thinks, False)
        cli.say(f"no row has a thought: {thinks} is false")
    for side in ("train", "validation") if counts.get("tools") else ():
        OmegaConf.update(config, f"data.{side}.use_preserving_dataset", True, force_add=True)


def _paced(config: DictConfig) -> int:
    """Steps of half an hour, what a killed job loses at most: by the pace of the base's family,
    else of a minute each, of GRPO five; no limit without a parent (this machine trains)."""
    if "defaults" not in config:
        return sys.maxsize
    pace = families.of(str(OmegaConf.select(config, "policy.model_name"))).pace
    seconds = 300 if "grpo" in config else 60
    if "sft" in config and "step" in pace:
        length = want(config, "policy.max_total_sequence_length", int)
        seconds = pace["step"] * max(1, length / pace["tokens_of_a_row"])
    return max(1, int(1800 / seconds))


def _schedule(config: DictConfig, steps: int) -> None:
    """Fit warm-up and decay (policy.scheduler: LinearLR, CosineAnnealingLR, then where to switch) to the number of steps."""
    parts = OmegaConf.select(config, "policy.scheduler") or []
    if len(parts) != 3 or not OmegaConf.is_missing(parts[1].kwargs, "T_max"):
        return
    warm = min(parts[0].kwargs.total_iters, max(1, steps // 4))
    parts[0].kwargs.total_iters = warm
    parts[1].kwargs.T_max = max(1, steps - warm)
    parts[2].milestones = [warm]


def _jinja(source: str, where: str) -> jinja2.Template:
    """A chat template compiled as transformers compiles it: sandboxed, blocks trimmed, with its few helpers."""

    class Generation(Extension):
        """`{% generation %}` marks the assistant's text for other trainers; here it is its content."""

        tags = {"generation"}

        def parse(self, parser):
            next(parser.stream)
            return parser.parse_statements(["name:endgeneration"], drop_needle=True)

    def refuse(message):
        raise jinja2.TemplateError(message)

    def now(form):
        why = "no two runs would train the same tokens"
        raise jinja2.TemplateError(f"the chat template asks for the date (strftime_now): {why}")

    def tojson(value, **options):
        return json.dumps(value, **{"ensure_ascii": False, **options})

    loops = "jinja2.ext.loopcontrols"
    env = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loops]
    )
    env.filters["tojson"] = tojson
    env.globals.update(raise_exception=refuse, strftime_now=now)
    try:
        return env.from_string(source)
    except jinja2.TemplateSyntaxError as error:
        raise cli.BadConfig(f"{where}: line {error.lineno}: {error.message}") from None
