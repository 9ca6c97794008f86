"""Benchmarks that we generate: word problems, also in eight languages, instructions that a program
checks, briefs that a judge checks, needles in long text, tools to call.

Everything is drawn from a seed, so that rows are the same everywhere. A generator takes the
benchmark's `source` and yields `{"fields", "expected", "subset"}`, with `tools` and `tool_code`
where the model may call tools. The words are in assets/prompts/bench/generated.toml.
"""

import functools
import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Any, NotRequired, TypedDict

from decksmith.bench.benchmarks.records import RowSource
from decksmith.core import config_files
from decksmith.core.records import Record

Call = dict[str, Any]  # the name of a function and its arguments
_texts = functools.partial(config_files.asset, "prompts/bench/generated.toml")
# The sentences of each language, by its ISO 639-1 code.
_languages = functools.partial(config_files.asset, "prompts/bench/languages.toml")


class SourceRow(TypedDict):
    """What a generator yields, and a description makes of a row; docs/records.md has its keys under `Task`."""

    fields: Record
    expected: NotRequired[Any]
    subset: NotRequired[str | None]
    tools: NotRequired[list[Record]]  # in OpenAI's form
    tool_code: NotRequired[str]


Rows = Iterator[SourceRow]


class Draw(random.Random):
    """What is drawn for the rows of one benchmark."""

    def one(self, name: str) -> str:
        """One of a list of generated.toml."""
        return self.choice(_texts()[name])

    def many(self, least: int = 2, most: int = 60) -> int:
        return self.randint(least, most)


def arithmetic(source: RowSource) -> Rows:
    """Word problems of one to four steps with exact answers; the subset names the number of steps."""
    draw = Draw(f"arithmetic {source['seed']}")
    for number in range(source["rows"]):
        steps = 1 + number % 4
        kind = draw.choice(PROBLEMS[steps])
        answer, drawn = _problem(kind, draw)
        problem = _texts()["problems"][kind].format(**drawn)
        yield {"fields": {"problem": problem}, "expected": str(answer), "subset": f"{steps}-step"}


# Kinds by the number of steps; generated.toml has their texts.
PROBLEMS = {
    1: ("gain", "loss", "boxes", "share"),
    2: ("loose", "change"),
    3: ("average", "part", "trip"),
    4: ("garden", "pay", "tank"),
}


def _problem(kind: str, draw: Draw) -> tuple[int | Fraction, dict[str, object]]:
    """The answer to a problem of a kind, and what its text is filled with."""
    many = draw.many
    match kind:
        case "gain":
            who, what, a, b = draw.one("people"), draw.one("things"), many(), many()
            return a + b, {"who": who, "what": what, "a": a, "b": b}
        case "loss":
            who, what, b = draw.one("people"), draw.one("things"), many()
            a = b + many()
            return a - b, {"who": who, "what": what, "a": a, "b": b}
        case "boxes":
            what, a, b = draw.one("things"), many(3, 12), many(3, 25)
            return a * b, {"what": what, "a": a, "b": b}
        case "share":
            what, a, b = draw.one("things"), many(3, 12), many(3, 25)
            return b, {"what": what, "a": a, "all": a * b}
        case "loose":
            who, what = draw.one("people"), draw.one("things")
            a, b, c = many(3, 12), many(3, 20), many(2, 19)
            return a * b + c, {"who": who, "what": what, "a": a, "b": b, "c": c}
        case "change":
            who, what, a, price = draw.one("people"), draw.one("things"), many(2, 9), many(3, 11)
            paid = 10 * (a * price // 10 + 1)
            said = {"who": who, "what": what, "a": a, "price": price, "paid": paid}
            return paid - a * price, said
        case "average":
            who, a, b, c = draw.one("people"), many(4, 30), many(4, 30), many(4, 30)
            return Fraction(a + b + c, 3), {"who": who, "a": a, "b": b, "c": c}
        case "part":
            what, whole = draw.one("things"), 20 * many(3, 20)
            share = draw.choice((5, 15, 20, 35, 40, 60))
            return Fraction(whole * share, 200), {"what": what, "whole": whole, "share": share}
        case "trip":
            speed, hours, rest, more = 5 * many(6, 18), many(2, 5), 5 * many(6, 18), many(1, 4)
            far = speed * hours + rest * more
            return far, {"hours": hours, "speed": speed, "more": more, "rest": rest}
        case "garden":
            a, b, price = many(4, 20), many(4, 20), many(2, 9)
            cost = 2 * (a + b) * price + 3 * price
            return cost, {"a": a, "b": b, "price": price, "gate": 3 * price}
        case "pay":
            who, hours, wage = draw.one("people"), many(20, 40), many(10, 30)
            extra, tax = many(2, 9), draw.choice((10, 20, 25))
            net = Fraction((hours * wage + extra * 2 * wage) * (100 - tax), 100)
            return net, {"who": who, "hours": hours, "wage": wage, "extra": extra, "tax": tax}
        case _:  # a tank
            drain = many(2, 9)
            fill, minutes, had = drain + many(3, 15), many(5, 30), 10 * many(2, 20)
            left = Fraction(had + minutes * (fill - drain), 2)
            return left, {"had": had, "minutes": minutes, "fill": fill, "drain": drain}


def multilingual(source: RowSource) -> Rows:
    """Word problems of one or two steps in eight languages; the subset names the language."""
    draw = Draw(f"multilingual {source['seed']}")
    for number in range(source["rows"]):
        said = list(_languages().values())[number % len(_languages())]
        kind = draw.choice(("gain", "boxes", "share"))
        a, b, c = draw.many(3, 12), draw.many(3, 25), draw.many(2, 19)
        answer = {"gain": a + b, "boxes": a * b + c, "share": b}[kind]
        problem = said[kind].format(who=draw.one("people"), a=a, b=b, c=c, t=a * b)
        fields = {"problem": problem, "ending": said["ending"]}
        yield {"fields": fields, "expected": str(answer), "subset": said["name"]}


Constraint = tuple[str, dict[str, Any], str]  # name, arguments, sentence


def _constraints(draw: Draw) -> list[Constraint]:
    """One constraint of each family; any two of different families can be met together."""
    words = draw.sample(_texts()["words"], 2)
    least, count = draw.choice((40, 60, 90)), draw.many(2, 4)
    most, letter, end = least + draw.choice((40, 80)), draw.choice("zqx"), draw.one("ends")
    relation, number = ("at least", least) if draw.random() < 0.5 else ("less than", most)
    said = {"at least": f"at least {least}", "less than": f"fewer than {most}"}[relation]
    lengths = {"relation": relation, "num_words": number}
    rare = {"letter": letter, "let_relation": "less than", "let_frequency": 1}
    lower = "Write in lower case only, without any capital letter."
    bullets = (
        f'Give exactly {count} bullet points, each on a line of its own that begins with "* ".'
    )
    paragraphs = f"Write {count} paragraphs, with a line of three asterisks (***) between each two."
    both = f'The words "{words[0]}" and "{words[1]}" must both occur.'
    ending = f"End with exactly these words and nothing after them: {end}"
    families: tuple[tuple[Constraint, ...], ...] = (
        (
            ("change_case:english_lowercase", {}, lower),
            ("change_case:english_capital", {}, "Write in capital letters only."),
        ),
        (
            ("punctuation:no_comma", {}, "Do not use a comma anywhere."),
            ("keywords:letter_frequency", rare, f'The letter "{letter}" must not occur.'),
        ),
        (
            ("detectable_format:number_bullet_lists", {"num_bullets": count}, bullets),
            ("length_constraints:number_paragraphs", {"num_paragraphs": count}, paragraphs),
            ("startend:quotation", {}, "Put the whole reply into double quotation marks."),
            ("startend:end_checker", {"end_phrase": end}, ending),
        ),
    )
    return [
        ("length_constraints:number_words", lengths, f"Use {said} words."),
        ("keywords:existence", {"keywords": words}, both),
        *map(draw.choice, families),
    ]


CLASHES = (
    {"change_case:english_capital", "keywords:existence"},
    {"change_case", "startend:end_checker"},
    {"keywords:existence", "keywords:letter_frequency"},
    {"keywords:letter_frequency", "startend:end_checker"},
    {"keywords:letter_frequency", "change_case:english_capital"},
)


def instructions(source: RowSource) -> Rows:
    """Writing tasks with one to three constraints that a program checks; the subset names their number."""
    draw = Draw(f"instructions {source['seed']}")
    for number in range(source["rows"]):
        wanted = 1 + number % 3
        chosen: list[Constraint] = []
        found: set[str] = set()  # names and families
        for constraint in draw.sample(_constraints(draw), 5):
            name = constraint[0]
            more = found | {name, name.split(":")[0]}
            if len(chosen) < wanted and not any(clash <= more for clash in CLASHES):
                chosen.append(constraint)
                found = more
        sentences = " ".join(sentence for _, _, sentence in chosen)
        fields = {"prompt": f"{draw.one('tasks')}. {sentences}"}
        names, arguments = [each[0] for each in chosen], [each[1] for each in chosen]
        subset = f"{len(chosen)} constraint{'s' if len(chosen) > 1 else ''}"
        expected = {"instructions": names, "arguments": arguments}
        yield {"fields": fields, "expected": expected, "subset": subset}


def replies(source: RowSource) -> Rows:
    """Short texts to be written in one of eight languages, no request twice: some are made in the
    language itself, the others are in English and ask for it. The subset says which. At most 128 rows."""
    asked: list[tuple[str, str, str]] = []
    for code, said in _languages().items():
        asked += [(code, "asked in it", task) for task in said["tasks"]]
        for task in _texts()["tasks"]:
            prompt = f"{task}, in three to five sentences. Reply in {said['name']}."
            asked.append((code, "asked for in English", prompt))
    Draw(f"replies {source['seed']}").shuffle(asked)
    for code, subset, prompt in asked[: source["rows"]]:
        wanted = {"instructions": ["language:response_language"], "arguments": [{"language": code}]}
        yield {"fields": {"prompt": prompt}, "expected": wanted, "subset": subset}


def briefs(source: RowSource) -> Rows:
    """Short texts to be written from five facts, each with the criteria that a judge checks one by
    one; the subset names the form."""
    draw, texts = Draw(f"briefs {source['seed']}"), _texts()["briefs"]
    for number in range(source["rows"]):
        form, reader = texts["forms"][number % len(texts["forms"])]
        event, detail = draw.choice(texts["events"])
        facts = {
            "form": form,
            "reader": reader,
            "event": event,
            "detail": detail,
            "hall": draw.choice(texts["halls"]),
            "day": draw.one("days"),
            "hour": draw.many(9, 19),
            "who": draw.one("people"),
            "most": draw.choice((80, 120)),
        }
        criteria = [each.format(**facts) for each in texts["criteria"]]
        fields = {"prompt": texts["prompt"].format(**facts)}
        yield {"fields": fields, "expected": {"criteria": criteria}, "subset": form}


def needle(source: RowSource) -> Rows:
    """Numbers hidden in filler of 300 to 19,200 words, one or four of them asked for; the subset names
    the words and how many."""
    draw, texts = Draw(f"needle {source['seed']}"), _texts()
    kinds = [(words, asked) for words in (300, 1200, 4800, 19200) for asked in (1, 4)]
    names = [f"{colour} {animal}" for colour in texts["colours"] for animal in texts["animals"]]
    for number in range(source["rows"]):
        words, asked = kinds[number % len(kinds)]
        keys = draw.sample(names, 8)
        numbers = [str(draw.randint(10000, 99999)) for _ in keys]
        hidden = [
            f"The number of the {key} is {value}." for key, value in zip(keys, numbers, strict=True)
        ]
        text, wanted = _filled(draw, words, hidden), ", ".join(f"the {key}" for key in keys[:asked])
        fields, subset = {"text": text, "keys": wanted}, f"{words} words, {asked} asked"
        yield {"fields": fields, "expected": numbers[:asked], "subset": subset}


def _filled(draw: Draw, words: int, hidden: Sequence[str]) -> str:
    """Filler of about so many words, with these sentences at places of their own."""
    text: list[str] = []
    length = 0
    while length < words:
        text.append(draw.one("fillers").format(draw.one("colours"), draw.one("places")))
        length += len(text[-1].split())
    for sentence in hidden:
        text.insert(draw.randint(0, len(text)), sentence)
    return " ".join(text)


Asked = tuple[str, str, list[str]]  # a text, what is asked of it, and what the answer holds


def ruler(source: RowSource) -> Rows:
    """Tasks after RULER (Hsieh et al. 2024) in texts of the lengths that the source names, in words; the
    subset names task and length."""
    draw = Draw(f"ruler {source['seed']}")
    kinds = [(words, task) for words in source["words"] for task in RULER]
    for number in range(source["rows"]):
        words, task = kinds[number % len(kinds)]
        text, question, wanted = RULER[task](draw, words)
        fields = {"text": text, "question": question}
        yield {"fields": fields, "expected": wanted, "subset": f"{task}, {words} words"}


def _retrieval(keys: int, values: int, asked: int) -> Callable[[Draw, int], Asked]:
    """A task of `keys` names with `values` numbers each, of which the first `asked` are asked for."""

    def made(draw: Draw, words: int) -> Asked:
        names = draw.sample(
            [f"{c} {a}" for c in _texts()["colours"] for a in _texts()["animals"]], keys
        )
        numbers = {
            name: [str(n) for n in draw.sample(range(10**5, 10**6), values)] for name in names
        }
        hidden = [f"One number of the {n} is {value}." for n in names for value in numbers[n]]
        draw.shuffle(hidden)
        said = ", ".join(f"the {name}" for name in names[:asked])
        question = f"What are all the numbers of {said} that the text names?"
        wanted = [value for name in names[:asked] for value in numbers[name]]
        return _filled(draw, words, hidden), question, wanted

    return made


def _variables(draw: Draw, words: int) -> Asked:
    """Variables that are given a number, and handed on from one to the next; another chain beside it."""
    names = ["".join(draw.choices("ABCDEFGHJKLMNPQRSTUVWXYZ", k=5)) for _ in range(10)]
    value, other = draw.sample(range(10_000, 100_000), 2)
    hidden = []
    for chain, first in ((names[:5], value), (names[5:], other)):
        hidden.append(f"VAR {chain[0]} = {first}.")
        hidden += [f"VAR {new} = VAR {old}." for old, new in itertools.pairwise(chain)]
    question = (
        f"Name all variables that have the value {value}, also those that were given it by another."
    )
    return _filled(draw, words, hidden), question, names[:5]


def _coined(draw: Draw, many: int) -> list[str]:
    """Words of three syllables that are none, each different."""
    syllables = [c + v for c in "bdfgklmnprstvz" for v in "aeiou"]
    return ["".join(draw.sample(syllables, 3)) for _ in range(many)]


def _common(draw: Draw, words: int) -> Asked:
    """Ten words thirty times each among words that come three times."""
    found = list(dict.fromkeys(_coined(draw, 10 + max(1, (words - 300) // 3))))
    listed = found[:10] * 30 + found[10:] * 3
    draw.shuffle(listed)
    return " ".join(listed), "Which ten words come most often in this list?", found[:10]


def _frequent(draw: Draw, words: int) -> Asked:
    """Words that come the less often the later they were coined; the three first are asked for."""
    found = list(dict.fromkeys(_coined(draw, 60)))
    listed = draw.choices(found, [1 / (place + 1) ** 2 for place in range(len(found))], k=words)
    ranks = [word for word, _ in Counter(listed).most_common(3)]
    return " ".join(listed), "Which three words come most often in this list?", ranks


RULER: dict[str, Callable[[Draw, int], Asked]] = {
    "one key": _retrieval(1, 1, 1),
    "several keys": _retrieval(8, 1, 1),
    "several values": _retrieval(8, 4, 1),
    "several questions": _retrieval(8, 1, 4),
    "variables": _variables,
    "common words": _common,
    "frequent words": _frequent,
}


def tools(source: RowSource) -> Rows:
    """Requests with five tools at hand, of which one is to be called, one twice, two different ones
    or none; the subset says which."""
    draw = Draw(f"tools {source['seed']}")
    kinds = (("one", 1), ("same twice", 2), ("two", 2), ("none", 0))
    functions = _texts()["toolbox"]["functions"]
    offered = [_tool(name, said) for name, said in functions.items()]
    for number in range(source["rows"]):
        kind, many = kinds[number % len(kinds)]
        if kind == "none":
            request, calls = draw.one("unaided").format(draw.one("animals")), []
        else:
            first = draw.choice([*functions])
            rest = [each for each in functions if each != first]
            other = first if kind == "same twice" else draw.choice(rest)
            parts = _different(draw, [first, other][:many])
            request = " ".join(text for text, _ in parts)
            calls = [call for _, call in parts]
        yield {
            "fields": {"prompt": request},
            "expected": {"calls": calls},
            "subset": kind,
            "tools": draw.sample(offered, len(offered)),
            "tool_code": _texts()["toolbox"]["code"],
        }


def _tool(name: str, said: Record) -> dict[str, Any]:
    """A tool in OpenAI's form, all of its parameters required."""
    known = {key: {"type": one, "description": of} for key, (one, of) in said["parameters"].items()}
    schema = {"type": "object", "properties": known, "required": list(known)}
    function = {"name": name, "description": said["description"], "parameters": schema}
    return {"type": "function", "function": function}


Request = tuple[str, Call]  # a sentence, and the call that it asks for


def _different(draw: Draw, names: Sequence[str]) -> list[Request]:
    """A request for each of these functions, no two of them equal."""
    parts: list[Request] = []
    for name in names:
        part = _request(name, draw)
        while part in parts:
            part = _request(name, draw)
        parts.append(part)
    return parts


def _request(name: str, draw: Draw) -> Request:
    """A request for a function of the toolbox."""
    said = _texts()["toolbox"]["functions"][name]
    given: Record = {}
    for names, of in said["drawn"].items():
        if isinstance(of, list):
            given[names] = draw.many(*of)
        elif " " in names:
            given |= zip(names.split(), draw.sample(_texts()[of], 2), strict=True)
        else:
            given[names] = draw.one(of)
    return said["request"].format(**given), {"name": name, "arguments": given}


# What a benchmark's source may name as `generated`.
GENERATORS: dict[str, Callable[[RowSource], Rows]] = {
    each.__name__: each
    for each in (arithmetic, briefs, instructions, multilingual, needle, replies, ruler, tools)
}
