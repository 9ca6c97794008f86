"""Keep what the pages say of the code right: the tables of docs/records.md and docs/records, and
every figure that docs/numbers.json knows.

  tests/readme.py           write the tables, the figures into docs/numbers.json, and from there into the pages
  tests/readme.py --check   only say what is behind, and which figure of a page nobody vouches for

docs/numbers.json has `figures`, name to value, which are computed here (FIGURES), and `said`, page to phrases, which people write: where
the page says "the 30 core prompts" the phrase is "the {core} core prompts". A phrase without a name in braces allows a figure that is
no result of ours ("Python 3.11"). Line breaks in a page do not matter. Pages that a command writes, and say so at the top, are left alone.
"""

import ast
import importlib
import json
import re
import sys
import tomllib
import types
import typing
from functools import cache
from pathlib import Path

import typing_extensions

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "lib"))


def _types():
    """The types of every room's records.py, by name."""
    found = {}
    for path in sorted((ROOT / "lib/decksmith").glob("**/records.py")):
        name = ".".join(path.relative_to(ROOT / "lib").with_suffix("").parts)
        module = importlib.import_module(name)
        found |= {n: t for n, t in vars(module).items() if typing_extensions.is_typeddict(t)}
    return found


TYPES = _types()

NUMBERS = ROOT / "docs/numbers.json"
NUMBER = r"\d(?:[\d.,]*\d)?"
UNITS = (
    "%|×|x(?! ?\\d)|times|fold|px|ms|s|seconds?|minutes?|hours?|days?|[kMG]i?B|million|billion|USD|cores?|prompts?|decks?|slides?|"
    "models?|languages?|themes?|domains?|measures|values|items?|words|pairs|tests?|tokens?|resamples|rows|records|runs|"
    "points?|scripts"
)
# A table of fields: a line that names a type, and the rows that are made of it.
FIELDS = re.compile(r"<!-- fields: (\w+) -->\n((?:\|.*\n)*)")
# What the types of Python are called in a page about JSON.
WORDS = {
    str: "text",
    int: "integer",
    float: "number",
    bool: "true or false",
    type(None): "null",
    typing.Any: "anything",
}
# A figure that claims something: a number with a unit (a word may stand between), or a decimal fraction. No versions, names, addresses.
FIGURE = re.compile(
    rf"(?<![\w.:/#=])(?<!\w-)(?:{NUMBER}[ -]?(?:[a-z]+ )?(?:{UNITS})(?!\w)|\d[\d,]*\.\d+(?!\d|\.\d))"
)


@cache
def prompts():
    return [json.loads(line) for line in (ROOT / "data/prompts.jsonl").read_text().splitlines()]


@cache
def protocol(name):
    return tomllib.loads((ROOT / f"assets/protocols/{name}.toml").read_text())


@cache
def constants(path):
    """The literals that a Python file gives names to at its top, and the keys of its dicts whose values are none."""
    found = {}
    for node in ast.parse((ROOT / path).read_text()).body:
        if isinstance(node, ast.Assign):
            pairs = zip(
                *(
                    [t.elts, v.elts]
                    if isinstance(t := node.targets[0], ast.Tuple)
                    and isinstance(v := node.value, ast.Tuple)
                    else [[t], [node.value]]
                ),
                strict=True,
            )
            for target, value in pairs:
                try:
                    found[ast.unparse(target)] = ast.literal_eval(value)
                except ValueError:
                    if isinstance(value, ast.Dict):
                        found[ast.unparse(target)] = value.keys
    return found


def asked(key):
    return len({row["asks"].get(key) for row in prompts()} - {None})


def cell(page, header, row, column):
    """A cell of a page that a bench wrote: of the table under `header`, in the row that begins with `row`. None without such a row."""
    path = ROOT / "docs" / page
    table = (
        (path.read_text() if path.exists() else "").partition(f"\n{header}")[2].partition("\n\n")[0]
    )
    line = next((line for line in table.splitlines() if line.startswith(f"| {row} |")), None)
    return line and line.split("|")[1 + column].strip()


def stat(name):
    return constants("lib/decksmith/measure/results/stats.py")[name]


def entries(path, *names):
    """How many entries the dictionaries of these names have in a module, as they stand in its text."""
    held = {
        node.targets[0].id: node.value
        for node in ast.parse((ROOT / path).read_text()).body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    return sum(len(held[name].keys) for name in names)


def assumed(stage, side):
    """Tokens of a request (0) or of its answer (1) before anything was measured."""
    return f"{constants('lib/decksmith/measure/results/cost_prompt.py')['ASSUMED'][stage][side]:,}"


@cache
def rehearsed():
    """The seconds of each part of the rehearsal, in its order, as make/rehearse.mk has them."""
    text = (ROOT / "make/rehearse.mk").read_text()
    names = ["set-up", "the base model writes", "data/short becomes a corpus"]
    names += ["an adapter is trained", "the tuned model writes", "the comparison"]
    return [int(re.search(rf"{re.escape(name)}[|,](\d+)", text)[1]) for name in names]


def megabytes(page, header, row):
    """A whole number of a page's last column; None where the page has no such row."""
    found = cell(page, header, row, 1)
    return found and int(found)


def waited(stage):
    """Seconds to a stage of `make paths`; None before the first."""
    found = cell("maintain/speed.md", "| stage | command | s |", stage, 2)
    return found and int(found)


GRADERS = "lib/decksmith/bench/benchmarks/graders"
# What a figure is called, and where it comes from. Cheap to compute: the test does it each time.
FIGURES = {
    "prompts": lambda: len(prompts()),
    "core": lambda: sum("core" in row["sets"] for row in prompts()),
    "languages": lambda: asked("language"),
    "domains": lambda: asked("domain"),
    "themes": lambda: asked("theme"),
    "items": lambda: sum(len(row["checklist"]) for row in prompts()),
    "scripts": lambda: len(list((ROOT / "bin").glob("*-*"))),
    "broken_decks": lambda: len(constants("tests/render/test_pool.py")["BROKEN"]),
    "gaming_decks": lambda: len(list((ROOT / "tests/fixtures/gaming").glob("*.md"))) or None,
    "smol_millions": lambda: re.search(
        r'label = "SmolLM2 (\d+)M"', (ROOT / "assets/models.toml").read_text()
    )[1],
    "weight_viscraft": lambda: f"{protocol('published')['score']['weights']['viscraft']:.2f}",
    "weight_design": lambda: f"{protocol('published')['score']['weights']['design']:.2f}",
    "weight_content": lambda: f"{protocol('published')['score']['weights']['content']:.2f}",
    "weight_coherence": lambda: f"{protocol('published')['score']['weights']['coherence']:.2f}",
    "unlike": lambda: protocol("offline")["checks"]["unlike"],
    "gold": lambda: len(list((ROOT / "data/gold").glob("*/deck.md"))),
    "fewest_slides": lambda: protocol("published")["render"]["min_slides"],
    "searched_words": lambda: protocol("offline")["checks"]["checklist_words"],
    "items_per_slide": lambda: protocol("offline")["checks"]["checklist_per_slide"],
    "unreadable_px": lambda: protocol("offline")["checks"]["unreadable_px"],
    "unreadable_contrast": lambda: protocol("offline")["checks"]["unreadable_contrast"],
    "width": lambda: constants("lib/decksmith/measure/decks/lint.py")["CANVAS"][0],
    "height": lambda: constants("lib/decksmith/measure/decks/lint.py")["CANVAS"][1],
    "resamples": lambda: f"{stat('EXCHANGES'):,}",
    "level": lambda: round(100 * stat("LEVEL")),
    "alpha": lambda: round(100 * (1 - stat("LEVEL"))),
    "fewest_pairs": lambda: stat("FEWEST"),
    "vote_resamples": lambda: (
        f"{constants('lib/decksmith/people/study/intervals.py')['RESAMPLES']:,}"
    ),
    "render_times_less_cpu": lambda: cell(
        "maintain/speed.md", "| | CPU s per deck |", "**ours**", 2
    ),
    "baseline_mb": lambda: megabytes("platforms.md", "| command | MB |", "`make baseline`"),
    "train_mb": lambda: megabytes("platforms.md", "| part | MB |", "torch and transformers"),
    "first_report_s": lambda: waited("laptop: a report with its first deck"),
    "first_minutes": lambda: (all_of := waited("laptop: the whole")) and -(-all_of // 60),
    "rehearsal_minutes": lambda: round(sum(rehearsed()) / 60),
    "rehearsed_prompts": lambda: re.search(
        r"^REHEARSE \?= (\d+)", (ROOT / "make/rehearse.mk").read_text(), re.M
    )[1],
    **{
        f"assumed_{stage}_{side}": lambda stage=stage, side=side: assumed(stage, side)
        for stage in ("gen", "judge")
        for side in (0, 1)
    },
    "setup_s": lambda: rehearsed()[0],
    "base_s": lambda: rehearsed()[1],
    "gold_s": lambda: rehearsed()[2],
    "adapter_s": lambda: rehearsed()[3],
    "tuned_s": lambda: rehearsed()[4],
    "compared_s": lambda: rehearsed()[5],
    "client_cpu_ratio": lambda: cell("maintain/speed.md", "| client |", "chat-generate", 2),
    "sandbox_attacks": lambda: entries(
        "tests/hostile/test_sandbox_attacks.py", "EXHAUST", "LOOK", "CHANGE"
    ),
    "forgeries": lambda: entries("tests/judging/test_forgery.py", "ATTACKS", "BOMBS"),
    "grader_seconds": lambda: (
        f"{constants('lib/decksmith/bench/benchmarks/grading.py')['SECONDS']:g}"
    ),
    "code_call": lambda: f"{constants(f'{GRADERS}/code.py')['CALL']:g}",
    "code_case": lambda: f"{constants(f'{GRADERS}/code.py')['CASE']:g}",
    "code_clock": lambda: f"{3 * constants(f'{GRADERS}/code.py')['CASE']:g}",
    "plus_call": lambda: f"{constants(f'{GRADERS}/plus.py')['CALL']:g}",
    "plus_task": lambda: f"{constants(f'{GRADERS}/plus.py')['TASK']:g}",
}


def figures():
    return {name: str(value) for name, make in FIGURES.items() if (value := make()) is not None}


# What a page says that a command writes, whole or in parts.
GENERATED = re.compile(r"\A(?:.*\n){0,6}.*(?:Written by `make|writes this page)")
PART = re.compile(r"^<!-- part: .*?(?=^<!-- part: |\Z)", re.S | re.M)  # tests/part.py


def pages():
    """The pages that people write, by name: README, CONTRIBUTING, docs."""
    found = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    texts = {str(path.relative_to(ROOT)): path.read_text() for path in found}
    return {name: text for name, text in texts.items() if not GENERATED.search(text)}


def pattern(phrase):
    """A phrase as a regular expression: `{name}` matches any number, a blank any white space. And the names, in order."""
    parts = re.split(r"\{(\w+)\}", phrase)
    words = [r"\s+".join(re.escape(word) for word in part.split(" ")) for part in parts[::2]]
    start, end = (
        (r"(?<!\w)" if re.match(r"[\w{]", phrase) else ""),
        (r"(?!\w)" if re.search(r"[\w}]\Z", phrase) else ""),
    )
    return re.compile(start + f"({NUMBER})".join(words) + end), parts[1::2]


def written(text, phrases, values):
    """A page with the figures of its phrases as they are now."""
    for phrase in phrases:
        found, names = pattern(phrase)

        for match in reversed(list(found.finditer(text))):
            for number, name in reversed(list(enumerate(names, 1))):
                text = text[: match.start(number)] + values[name] + text[match.end(number) :]
    return text


def unvouched(text, phrases):
    """`(line, figure)` of each figure of a page that no phrase covers. JSON and Python, links and code spans are no claims; nor are
    the tables whose header a phrase gives whole (they are generated, and checked where they are made)."""

    def blank(match):
        return re.sub(r"[^\n]", " ", match[0])

    bare = PART.sub(blank, FIELDS.sub(blank, text))
    bare = re.sub(r"^```(?:json|python)\n.*?^```", blank, bare, flags=re.S | re.M)
    for phrase in phrases:
        if phrase.startswith("| "):
            bare = re.sub(rf"^{re.escape(phrase)}\n(\|.*\n)*", blank, bare, flags=re.M)
    bare = re.sub(r"(?<!`)`[^`\n]+`(?!`)|\]\([^)\n]*\)|https?://\S+", blank, bare)
    covered = [match.span() for phrase in phrases for match in pattern(phrase)[0].finditer(text)]
    return [
        (text.count("\n", 0, match.start()) + 1, match[0])
        for match in FIGURE.finditer(bare)
        if not any(start <= match.start() and match.start() < end for start, end in covered)
    ]


def behind(numbers, texts):
    """What is wrong with the figures, a sentence each."""
    values, wrong = figures(), []
    for name in sorted({*values, *numbers["figures"]}):
        if values.get(name) != numbers["figures"].get(name):
            wrong.append(
                f"docs/numbers.json: {name} is {numbers['figures'].get(name)}, and now {values.get(name)}: run make numbers"
            )
    for name, phrases in numbers["said"].items():
        for phrase in phrases:
            found, names = pattern(phrase)
            if unknown := [n for n in names if n not in values]:
                wrong.append(
                    f"docs/numbers.json: {name}: {phrase!r} names a figure that nobody computes: {unknown[0]}"
                )
            elif not (said := list(found.finditer(texts.get(name, "")))):
                wrong.append(
                    f"{name} no longer says {phrase!r}: mend or delete the phrase in docs/numbers.json"
                )
            for match in said if not unknown else ():
                wrong += [
                    f"{name} says {got} in {phrase!r}, and {n} is {values[n]}: run make numbers"
                    for n, got in zip(names, match.groups(), strict=True)
                    if got != values[n]
                ]
    for name, text in texts.items():
        wrong += [
            f"{name}:{line}: {figure!r} is a figure that nobody vouches for: give docs/numbers.json a phrase for it"
            for line, figure in unvouched(text, numbers["said"].get(name, ()))
        ]
    return wrong


def kind(hint):
    """A type as the page says it: `list of ImageItem`, `text or null`."""
    origin, given = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Annotated, typing.NotRequired):
        return kind(given[0])
    if origin is typing.Literal:
        return " or ".join(f"`{value}`" for value in given)
    if origin in (types.UnionType, typing.Union):
        return " or ".join(map(kind, given))
    if origin is list:
        return f"list of {kind(given[0])}"
    if origin is dict:
        return "object" if given[1] is typing.Any else f"object of {kind(given[1])}"
    return WORDS.get(hint) or hint.__name__


def is_explained(name):
    """Whether the keys of a type say what they are, for these pages."""
    hints = typing.get_type_hints(TYPES[name], include_extras=True).values()
    return all(hasattr(hint, "__metadata__") for hint in hints)


def fields(name):
    """The table of one type of a room's records.py: its keys in order, each with its sentence."""
    found = TYPES[name]
    lines = [f"| `{name}` | holds | what it is |", "|---|---|---|"]
    for key, hint in typing.get_type_hints(found, include_extras=True).items():
        mark = "" if key in found.__required_keys__ else "?"
        lines.append(f"| `{key}`{mark} | {kind(hint)} | {hint.__metadata__[0]} |")
    return "\n".join(lines) + "\n"


def with_fields(page):
    """A page with the tables of its types as they are now."""
    return FIELDS.sub(lambda match: f"<!-- fields: {match[1]} -->\n{fields(match[1])}", page)


def main():
    numbers, texts = json.loads(NUMBERS.read_text()), pages()
    if "--check" in sys.argv:
        wrong = [
            f"{name} is behind the records.py of lib/decksmith: run make numbers"
            for name, text in texts.items()
            if with_fields(text) != text
        ]
        sys.exit("\n".join([*wrong, *behind(numbers, texts)]) or None)
    numbers["figures"] = figures()
    NUMBERS.write_text(json.dumps(numbers, indent=1, ensure_ascii=False) + "\n")
    for name, text in texts.items():
        new = written(with_fields(text), numbers["said"].get(name, ()), numbers["figures"])
        if new != text:
            (ROOT / name).write_text(new)


if __name__ == "__main__":
    main()
