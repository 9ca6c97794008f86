"""Whether make can use what it was given, before it makes anything.

    python3 make/given.py MODEL='smol typo' -- LIMIT=0    a sentence for the first that it cannot
    python3 make/given.py --asked smol gpt-5.4            the same for models that are to be asked
    python3 make/given.py --needs smol                    the make targets of a model's engine
    python3 make/given.py --values MODEL                  what a variable may name, a line each
    python3 make/given.py --named ollama/llama3.2         the names of models that were said otherwise
    python3 make/given.py --content briefs.csv COLUMN     briefs.csv-1a2b3c4d: a name for what it holds

What stands behind -- is not of the command line, but of the environment or of config.mk.

Of a name, a number and a path it says what is wrong with it, of a variable that no makefile and no
script reads which one was meant. A model that is said otherwise (make/model_names.py) is entered into
data/models when a terminal or YES=1 agrees. The standard library only, since a fresh machine has
nothing else.
"""

import difflib
import hashlib
import math
import os
import re
import shlex
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

ENGINE = (".venv/.local", "assets/engine/node_modules/.done")
CUDA = "assets/engine/node_modules/.cuda"
sys.path.insert(0, str(Path(__file__).resolve().parent))  # for model_names
Entries = dict[str, dict[str, object]]

# What a path may not hold: make or the shell would read it as its own.
SIGNS = re.compile(r"""['"$;&|<>()*?#%:\\]""")

# What a template is learnt of.
LEARNT = {".pptx", ".potx", ".pptm", ".potm", ".ppsx", ".html", ".htm"}


# Names


class Unreadable(Exception):
    """A file of models that cannot be read; the text is the sentence."""


def _entries(paths: Iterable[Path]) -> Entries:
    found: Entries = {}
    for path in paths:
        try:
            read = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:  # no TOML, or no UTF-8
            raise Unreadable(f"{path}: {error}. Mend the file, or take it away.") from None
        found |= {name: entry for name, entry in read.items() if isinstance(entry, dict)}
    return found


def _own() -> Path:
    return Path(os.environ.get("DECKSMITH_MODELS") or "data/models")


def _registry() -> Entries:
    return _entries([Path("assets/models.toml"), *sorted(_own().glob("*.toml"))])


def _weights() -> Entries:
    return _entries([Path("assets/gguf.toml")])


def _models() -> list[str]:
    return [*_registry(), *_weights()]


def _templates() -> list[Path]:
    return sorted(Path(os.environ.get("DECKSMITH_TEMPLATES") or "data/templates").glob("*.md"))


def _conditions() -> list[str]:
    return ["plain", *_stems("assets/conditions"), *(path.stem for path in _templates())]


def _benchmarks() -> list[str]:
    own = os.environ.get("DECKSMITH_BENCHMARKS") or "data/benchmarks"
    return [*_stems("assets/benchmarks"), *_stems("assets/groups"), *_stems(own)]


def _trainers() -> list[str]:
    text = Path("make/train.mk").read_text(encoding="utf-8")
    return sorted(re.findall(r"(?m)^TRAIN_(\S+) =", text))


def _stems(folder: str, suffix: str = "toml") -> list[str]:
    return sorted(path.stem for path in Path(folder).glob(f"*.{suffix}"))


MODEL = ("model", " in assets/models.toml, assets/gguf.toml or data/models", _models)
# By variable of make: what it names, where such names stand, and those that are there.
NAMES: dict[str, tuple[str, str, Callable[[], list[str]]]] = {
    "MODEL": MODEL,
    "JUDGE": MODEL,
    "CLAIMS": MODEL,
    "SEED_MODEL": MODEL,
    "PROTOCOL": ("protocol", " in assets/protocols", lambda: _stems("assets/protocols")),
    "CONDITION": ("condition", " in assets/conditions", _conditions),
    "BENCH": ("benchmark", " in assets/benchmarks or assets/groups", _benchmarks),
    "RECIPE": ("recipe", " in assets/recipes", lambda: _stems("assets/recipes", "yaml")),
    "TEMPLATE": ("template", "", lambda: [str(path) for path in _templates()]),
    "TRAINER": ("trainer", "", _trainers),
    "ENGINE": ("engine", "", lambda: ["vllm", "local"]),
    "IMAGES": ("choice", "", lambda: ["on", "off", "auto"]),
}


def unknown(variable: str, word: str) -> str | None:
    """The sentence for a word of one of NAMES that names nothing there; else None."""
    kind, where, there = NAMES[variable]
    source = Path(word)
    if kind == "template" and source.suffix.lower() in LEARNT and source.is_file():
        target = f"data/templates/{source.stem}.md"
        type_it = f"bin/template-learn {word} > {target}, then TEMPLATE={target}"
        return f"TEMPLATE={word} is no template yet. Learn one from it. Type: {type_it}."
    names = there()
    for name in word.split("+") if kind == "condition" else [word]:
        bare = name.partition(":")[0] if kind == "benchmark" else name
        is_file = kind in ("recipe", "template") and Path(name).is_file()
        if bare in names or is_file or (kind == "benchmark" and bare.startswith("gym-")):
            continue
        close = difflib.get_close_matches(bare, names, 1)
        meant = f"Did you mean {close[0]}? " if close else ""
        choose = f"Type {variable}=NAME with one of: {' '.join(names)}"
        if kind == "model":
            choose += f". Others: openai/NAME, ollama/{name[:80]} or an address (docs/models.md)"
        return f"There is no {kind} {name[:80]}{where}. {meant}{choose}"
    return None


def _lacks_key(name: str) -> str | None:
    """The sentence for a model whose key is nowhere, before a first set-up, which takes minutes;
    later the runs that have all their replies need no key."""
    key = _registry().get(name, {}).get("key_env")
    if not isinstance(key, str) or Path(".venv/.python").exists():
        return None
    try:
        is_set = _is_set(key)
    except OSError as error:
        return f".env cannot be read ({error.strerror}): make it a file of yours: chown, chmod 600"
    how = f"set {key} in the environment or in .env: echo '{key}=...' >> .env"
    return None if is_set else f"{name} needs a key: {how}"


def _is_set(key: str) -> bool:
    """Whether a variable has a value in the environment or in .env. Raises OSError."""
    if os.environ.get(key) or not os.path.lexists(".env"):
        return bool(os.environ.get(key))
    text = Path(".env").read_text(encoding="utf-8", errors="replace")
    return bool(re.search(rf"(?m)^{re.escape(key)}=.", text))


def _needs(models: list[str]) -> list[str]:
    """What the embedded engine needs where it runs one of the models: on a GPU, where one is, for
    weights of assets/gguf.toml."""
    registry, weights = _registry(), _weights()
    embedded = [name for name in models if registry.get(name, {}).get("base_url") == "engine:"]
    fetched = [name for name in models if name in weights]
    if not embedded and not fetched:
        return []
    on_gpu = bool(fetched) and Path("/dev/nvidiactl").exists()
    return [*ENGINE, CUDA] if on_gpu else [*ENGINE]


# Numbers and paths


def _whole(text: str, least: int = 1, most: float = math.inf) -> bool:
    return text.isascii() and text.isdecimal() and least <= int(text) <= most


def _part(text: str) -> bool:
    part, _, of = text.partition("/")
    return _whole(of) and _whole(part, 1, int(of))


def _between(text: str, least: float = 0, most: float = math.inf) -> bool:
    try:
        return least < float(text) < most
    except ValueError:
        return False


def _path(text: str) -> bool:
    several = text.split()[1:] and not all(Path(word).is_dir() for word in text.split())
    return not (several or SIGNS.search(text))  # make capsule RUN="one other" names two


# Variables of one kind; what a value must be; which values are.
KINDS: list[tuple[str, str, Callable[[str], bool]]] = [
    (
        "LIMIT N JOBS STEPS SERVERS REHEARSE RL_PROMPTS RL_SAMPLES RL_STEPS ACT WORKERS SLOWEST"
        " REPLIES DECKS ROWS",
        "a whole number from 1",
        _whole,
    ),
    ("SEED", "a whole number from 0", lambda text: _whole(text, 0)),
    ("PORT", "a port, a whole number up to 65535", lambda text: _whole(text, 0, 65535)),
    ("SHARD", "a part such as 2/4", _part),
    ("BUDGET PACE", "a number above 0", _between),
    ("EFFECT", "a difference above 0, such as 0.05", _between),
    ("MARGIN SHARE", "a share between 0 and 1, such as 0.05", lambda text: _between(text, 0, 1)),
    ("OPEN", "0 or 1", ("0", "1").__contains__),
    (
        "REQUEST",
        "a column's name without quotation marks and $, or its number",
        lambda text: not re.search(r"[\"'`$\\]", text),
    ),
    ("PUSH PUBLIC DRY ONCE", "1", "1".__eq__),
    ("PROMPTS", "", lambda text: not text.split()[1:] and _path(text)),
    (
        "TEMPLATE DATA SFT FROM RUN CAPSULE SHOTS ADAPTER PLANTED TRAINING STUDY NAME",
        "",
        _path,
    ),
]
# Where 1 is no good value to propose.
EXAMPLES = dict(LIMIT=6, PORT=8420, SHARD="2/4", BUDGET=5, EFFECT=0.05, MARGIN=0.02, SHARE=0.1)
RULES = {name: (must_be, fits) for names, must_be, fits in KINDS for name in names.split()}


def content(path: Path, by: str) -> str:
    """The name of a file or a folder of requests, with a hash of what it holds and of how it is read: of a
    folder the briefs and their documents, as request_files.py reads it. A folder is walked no further."""
    held = hashlib.sha256(by.encode())
    files = [path]
    if path.is_dir():
        briefs = [each for each in path.iterdir() if each.suffix.lower() in (".txt", ".md")]
        files = sorted(briefs + [file for each in briefs for file in (path / each.stem).rglob("*")])
    for file in filter(Path.is_file, files):
        try:
            with open(file, "rb") as opened:
                held.update(f"{file.relative_to(path)} {file.stat().st_size}\n".encode())
                while part := opened.read(1 << 20):
                    held.update(part)
        except OSError:  # whoever reads the requests says it
            continue
    return f"{path.name}-{held.hexdigest()[:8]}"


# Variables

# What is set for the programs that we start: by whom a name of that beginning or end is read.
ELSEWHERE = re.compile(
    r"[.]|[A-Z_]*_(KEY|TOKEN|PROXY)$|[a-z]+_proxy$|(MAKE|SHELL|VPATH|HF|SLURM|SBATCH|NCCL|CUDA|VLLM|GLOO|"
    r"TRITON|PIP|UV|NPM|NODE|SSL|OLLAMA|WANDB|MLFLOW|PLAYWRIGHT|PYTEST|APPTAINER|DECKSMITH)"
)
DEFAULT = re.compile(r"(?m)^(?:export )?([A-Z][A-Z_]*) \?= ?(.*)")
READ = re.compile(r"\$[({]?([A-Z][A-Z0-9_]*)\b|(?m:^ifn?def ([A-Z][A-Z0-9_]*))")
ENVIRONMENT = re.compile(r"""(?:environ\S*?|getenv\(|envvar=)["']([A-Z][A-Z0-9_]*)["']""")


def _texts(*patterns: str) -> Iterator[str]:
    for pattern in patterns:
        for path in filter(Path.is_file, Path().glob(pattern)):
            yield path.read_text(encoding="utf-8", errors="replace")


def defaults() -> dict[str, str]:
    """The variables that can be chosen (docs/variables.md), and what stands for each."""
    return dict(pair for text in _texts("make/*.mk") for pair in DEFAULT.findall(text))


def _nobody_reads(name: str, chosen: dict[str, str]) -> str | None:
    if name in chosen or ELSEWHERE.match(name):
        return None
    for text in _texts(
        "Makefile", "config.mk", "make/*.mk", "make/bench", "containers/build", "slurm/*.s*"
    ):
        if any(name in found for found in READ.findall(text)):
            return None
    for text in _texts("lib/decksmith/**/*.py", "bin/*", "tests/**/test_*.py"):
        if name in ENVIRONMENT.findall(text):
            return None
    close = difflib.get_close_matches(name.upper(), chosen, 1)
    meant = f"Did you mean {close[0]}? " if close else ""
    return f"Nobody reads a variable {name}. {meant}docs/variables.md lists those there are."


def _runs() -> set[str]:
    """The models that were asked here: their runs can be read, whatever the registry has now."""
    found = [*Path("results/runs").glob("*"), *Path("results/bench").glob("*")]
    return {path.name.partition("+")[0] for path in found}


def _unknown(name: str, value: str) -> str | None:
    if name == "AUTHOR":  # llm:NAME, or a command
        if not value.startswith("llm:"):
            return None
        said = _unknown("SEED_MODEL", value.removeprefix("llm:"))
        return said and said.replace("SEED_MODEL=", "AUTHOR=llm:").replace("SEED_MODEL:", "AUTHOR:")
    ran = _runs() if name == "MODEL" else set()
    words = [word for word in value.split() if word not in ran] if name in NAMES else []
    is_model = name in NAMES and NAMES[name][0] == "model"
    for word in words:
        said = _said(name, word) if is_model and "/" in word else unknown(name, word)
        if said:
            return said
    return None


def _said(name: str, word: str, enter: bool = False) -> str | None:
    """The sentence for a word with a slash that means no model; else None. `enter`: its entry is
    written where there is none, if somebody agrees."""
    import model_names

    try:
        if enter:
            model_names.enter(word, _registry(), _own(), _is_set)
        else:
            model_names.find(word, _registry())
    except model_names.NoModel as error:
        return f"{name}: {error}."
    except OSError as error:
        where = error.filename or "data/models"
        return f"{where} cannot be used ({error.strerror}): make it yours: chown, chmod."
    return None


def refused(name: str, value: str, chosen: dict[str, str]) -> str | None:
    """Why make cannot use `name=value`, in a sentence; None where it can."""
    value, default = value.strip(), chosen.get(name, "")
    if not value:
        if name != "MODEL" and (not default or "$" in default):
            return None
        if name not in NAMES:
            return f"{name}= is empty. Leave it out for {name}={default}."
        names = " ".join(NAMES[name][2]())
        return f"{name}= is empty. Type {name}=NAME with one of: {names}"
    must_be, fits = RULES.get(name, ("", bool))
    if fits(value):
        return _nobody_reads(name, chosen) or _unknown(name, value)
    if must_be:
        leave = f"leave it out for {default}" if default and "$" not in default else "leave it out"
        return f"{name}={value} is not {must_be}. Type {name}={EXAMPLES.get(name, 1)}, or {leave}."
    name_it = re.sub(r"[^\w.-]+", "-", Path(value).name)
    link = f"ln -s {shlex.quote(value)} {name_it}, then " if Path(value).exists() else ""
    why = "a path may hold no space and none of the shell's signs"
    return f"{name}={value} cannot be read by make: {why}. Type: {link}{name}={name_it}."


def main(words: list[str]) -> int:
    try:
        return _answer(words)
    except Unreadable as error:
        is_question = words[:1] in (["--asked"], ["--needs"], ["--values"], ["--named"])
        print(error, file=sys.stderr if is_question else sys.stdout)
        return 78


def _answer(words: list[str]) -> int:
    how, rest = words[:1], words[1:]
    if how == ["--values"]:
        print(*NAMES[rest[0]][2](), sep="\n")
    elif how == ["--named"]:
        print(*(_name(word) for word in " ".join(rest).split()))
    elif how == ["--content"]:
        print(content(Path(rest[0]).absolute(), rest[1]))
    elif how == ["--needs"]:
        print(*_needs(rest))
    elif how == ["--asked"]:
        for sentence in filter(None, (unknown("MODEL", one) or _lacks_key(one) for one in rest)):
            print(sentence, file=sys.stderr)
            return 78
    else:
        return _check(words)
    return 0


def _name(word: str) -> str:
    """The name of the entry that a word means which was let through; any other word is itself."""
    if "/" not in word or word in _runs():
        return word
    import model_names

    author = "llm:" * word.startswith("llm:")
    return author + model_names.find(word.removeprefix(author), _registry())[0]


def _check(words: list[str]) -> int:
    for word in words:
        if word.startswith("YES="):
            os.environ["YES"] = word.removeprefix("YES=")
    chosen, where = defaults(), ""
    for word in words:
        name, _, value = word.partition("=")
        if word == "--":
            where = " It stands in your environment or in config.mk."
        elif sentence := refused(name, value, chosen):
            return _refuse(sentence + where)
    for name, said in _said_models(words):  # written where all that was given can be used
        if sentence := _said(name, said, enter=True):
            return _refuse(sentence)
    return 0


def _said_models(words: list[str]) -> Iterator[tuple[str, str]]:
    """The variable and the word of each model that is said with a slash."""
    for word in words:
        name, _, value = word.partition("=")
        if name == "AUTHOR" and value.startswith("llm:"):
            name, value = "SEED_MODEL", value.removeprefix("llm:")
        if name in NAMES and NAMES[name][0] == "model":
            yield from ((name, one) for one in value.split() if "/" in one)


def _refuse(sentence: str) -> int:
    # What was typed may hold what a terminal obeys.
    print("".join(c if c.isprintable() else repr(c)[1:-1] for c in sentence))
    return 78


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
