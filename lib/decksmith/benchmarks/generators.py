"""Benchmarks that we generate: word problems, also in eight languages, instructions that a program checks, briefs that a judge
checks, needles in long text, tools to call.

Everything is drawn from a seed, so rows are the same everywhere; each generator takes the benchmark's `source` and yields
`{"fields", "expected", "subset"}`, with `tools` and `tool_code` where the model may call tools.
"""

import functools
import random
import tomllib
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from decksmith.core import cli

PEOPLE = (
    "Amara",
    "Boris",
    "Chidi",
    "Dalia",
    "Emre",
    "Farah",
    "Goran",
    "Hana",
    "Ivo",
    "Jun",
    "Kaya",
    "Lena",
    "Marek",
    "Noor",
    "Otis",
    "Priya",
)
THINGS = (
    "postcards",
    "marbles",
    "seed packets",
    "screws",
    "tickets",
    "stickers",
    "apples",
    "notebooks",
    "beads",
    "candles",
)


def arithmetic(source: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Word problems of one to four steps with exact answers; the subset names the number of steps."""
    draw = random.Random(f"arithmetic {source['seed']}")
    for number in range(source["rows"]):
        steps = 1 + number % 4
        problem, answer = draw.choice(_PROBLEMS[steps])(draw)
        yield {"fields": {"problem": problem}, "expected": str(answer), "subset": f"{steps}-step"}


def _many(draw, least=2, most=60):
    return draw.randint(least, most)


def _gain(draw):
    who, what, a, b = draw.choice(PEOPLE), draw.choice(THINGS), _many(draw), _many(draw)
    return f"{who} has {a} {what} and buys {b} more. How many {what} does {who} have now?", a + b


def _loss(draw):
    who, what, b = draw.choice(PEOPLE), draw.choice(THINGS), _many(draw)
    a = b + _many(draw)
    return f"{who} had {a} {what} and gave {b} of them away. How many are left?", a - b


def _boxes(draw):
    what, a, b = draw.choice(THINGS), _many(draw, 3, 12), _many(draw, 3, 25)
    return f"A shop packs {what} into boxes of {b}. How many {what} are in {a} full boxes?", a * b


def _share(draw):
    what, a, b = draw.choice(THINGS), _many(draw, 3, 12), _many(draw, 3, 25)
    return (
        f"{a * b} {what} are divided equally among {a} children. How many does each child get?",
        b,
    )


def _boxes_and_loose(draw):
    who, what, a, b, c = (
        draw.choice(PEOPLE),
        draw.choice(THINGS),
        _many(draw, 3, 12),
        _many(draw, 3, 20),
        _many(draw, 2, 19),
    )
    return (
        f"{who} fills {a} boxes with {b} {what} each and has {c} left over. How many {what} are there altogether?",
        a * b + c,
    )


def _change(draw):
    who, what, a, price = (
        draw.choice(PEOPLE),
        draw.choice(THINGS),
        _many(draw, 2, 9),
        _many(draw, 3, 11),
    )
    paid = 10 * (a * price // 10 + 1)
    return (
        f"{who} buys {a} {what} at {price} coins each and pays with {paid} coins. How many coins come back?",
        paid - a * price,
    )


def _average(draw):
    who, numbers = draw.choice(PEOPLE), [_many(draw, 4, 30) for _ in range(3)]
    return (
        f"On three days {who} walked {numbers[0]}, {numbers[1]} and {numbers[2]} kilometres. What was the average for a day? "
        "Give an exact number or fraction.",
        Fraction(sum(numbers), 3),
    )


def _part(draw):
    what, whole, share = (
        draw.choice(THINGS),
        20 * _many(draw, 3, 20),
        draw.choice((5, 15, 20, 35, 40, 60)),
    )
    return (
        f"Of {whole} {what} {share} percent are red, and of the red ones half are broken. How many {what} are red and broken? "
        "Give an exact number or fraction.",
        Fraction(whole * share, 200),
    )


def _trip(draw):
    speed, hours, rest, more = (
        5 * _many(draw, 6, 18),
        _many(draw, 2, 5),
        5 * _many(draw, 6, 18),
        _many(draw, 1, 4),
    )
    return (
        f"A bus drives {hours} hours at {speed} kilometres per hour and then {more} hours at {rest} kilometres per hour. "
        "How many kilometres does it cover?",
        speed * hours + rest * more,
    )


def _garden(draw):
    a, b, price = _many(draw, 4, 20), _many(draw, 4, 20), _many(draw, 2, 9)
    return (
        f"A garden is a rectangle of {a} by {b} metres. A fence around it costs {price} coins a metre, and the gate costs another "
        f"{3 * price} coins. What do fence and gate cost together?",
        2 * (a + b) * price + 3 * price,
    )


def _team(draw):
    who, hours, wage, extra, tax = (
        draw.choice(PEOPLE),
        _many(draw, 20, 40),
        _many(draw, 10, 30),
        _many(draw, 2, 9),
        draw.choice((10, 20, 25)),
    )
    gross = hours * wage + extra * 2 * wage
    return (
        f"{who} works {hours} hours at {wage} coins an hour and {extra} more hours at twice that rate. Of the pay {tax} percent are "
        "withheld. How many coins does " + who + " receive? Give an exact number or fraction.",
        Fraction(gross * (100 - tax), 100),
    )


def _tank(draw):
    drain = _many(draw, 2, 9)
    fill, minutes, had = drain + _many(draw, 3, 15), _many(draw, 5, 30), 10 * _many(draw, 2, 20)
    return (
        f"A tank holds {had} litres. For {minutes} minutes {fill} litres a minute flow in while {drain} litres a minute flow out; then "
        "half of the water is used. How many litres are left? Give an exact number or fraction.",
        Fraction(had + minutes * (fill - drain), 2),
    )


_PROBLEMS = {
    1: (_gain, _loss, _boxes, _share),
    2: (_boxes_and_loose, _change),
    3: (_average, _part, _trip),
    4: (_garden, _team, _tank),
}

TASKS = (
    "Describe what a lighthouse is for",
    "Explain why leaves change colour",
    "Write about a morning at a market",
    "Tell how bread is made",
    "Describe a river from its source to the sea",
    "Explain how a bicycle stays upright",
    "Write a short letter to a new neighbour",
    "Describe the work of a librarian",
    "Explain what a map can and cannot show",
    "Write about the first snow of a winter",
    "Tell what happens in a bee hive",
    "Explain how a lock and its key work together",
)
WORDS = (
    "window",
    "copper",
    "quiet",
    "harvest",
    "signal",
    "mirror",
    "thread",
    "anchor",
    "lantern",
    "pebble",
)
ENDS = ("That is all there is to say.", "Here the report ends.", "Thank you for reading.")


Constraint = tuple[str, dict[str, Any], str]  # name, arguments, sentence


def _constraints(draw: random.Random) -> list[Constraint]:
    """One constraint of each family; any two of different families can be met together."""
    words, least, count = draw.sample(WORDS, 2), draw.choice((40, 60, 90)), draw.randint(2, 4)
    most, letter, end = least + draw.choice((40, 80)), draw.choice("zqx"), draw.choice(ENDS)
    relation, number = ("at least", least) if draw.random() < 0.5 else ("less than", most)
    said = {"at least": f"at least {least}", "less than": f"fewer than {most}"}[relation]
    lengths: Constraint = (
        "length_constraints:number_words",
        {"relation": relation, "num_words": number},
        f"Use {said} words.",
    )
    existence: Constraint = (
        "keywords:existence",
        {"keywords": words},
        f'The words "{words[0]}" and "{words[1]}" must both occur.',
    )
    cases: list[Constraint] = [
        (
            "change_case:english_lowercase",
            {},
            "Write in lower case only, without any capital letter.",
        ),
        ("change_case:english_capital", {}, "Write in capital letters only."),
    ]
    signs: list[Constraint] = [
        ("punctuation:no_comma", {}, "Do not use a comma anywhere."),
        (
            "keywords:letter_frequency",
            {"letter": letter, "let_relation": "less than", "let_frequency": 1},
            f'The letter "{letter}" must not occur.',
        ),
    ]
    return [
        lengths,
        existence,
        draw.choice(cases),
        draw.choice(signs),
        draw.choice(_forms(count, end)),
    ]


def _forms(count: int, end: str) -> list[Constraint]:
    """The family of what a whole reply looks like."""
    return [
        (
            "detectable_format:number_bullet_lists",
            {"num_bullets": count},
            f'Give exactly {count} bullet points, each on a line of its own that begins with "* ".',
        ),
        (
            "length_constraints:number_paragraphs",
            {"num_paragraphs": count},
            f"Write {count} paragraphs, with a line of three asterisks (***) between each two.",
        ),
        ("startend:quotation", {}, "Put the whole reply into double quotation marks."),
        (
            "startend:end_checker",
            {"end_phrase": end},
            f"End with exactly these words and nothing after them: {end}",
        ),
    ]


CLASHES = (
    {"change_case:english_capital", "keywords:existence"},
    {"change_case", "startend:end_checker"},
    {"keywords:existence", "keywords:letter_frequency"},
    {"keywords:letter_frequency", "startend:end_checker"},
    {"keywords:letter_frequency", "change_case:english_capital"},
)


def instructions(source: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Writing tasks with one to three constraints that a program checks; the subset names their number."""
    draw = random.Random(f"instructions {source['seed']}")
    for number in range(source["rows"]):
        wanted = 1 + number % 3
        chosen: list[Any] = []
        for name, arguments, sentence in draw.sample(_constraints(draw), 5):
            found = {
                name,
                name.split(":")[0],
                *(n for n, _, _ in chosen),
                *(n.split(":")[0] for n, _, _ in chosen),
            }
            if len(chosen) < wanted and not any(clash <= found for clash in CLASHES):
                chosen.append((name, arguments, sentence))
        yield {
            "fields": {
                "prompt": f"{draw.choice(TASKS)}. {' '.join(sentence for _, _, sentence in chosen)}"
            },
            "expected": {
                "instructions": [name for name, _, _ in chosen],
                "arguments": [arguments for _, arguments, _ in chosen],
            },
            "subset": f"{len(chosen)} constraint{'s' if len(chosen) > 1 else ''}",
        }


EVENTS = (
    ("the yearly repair café", "broken household things may be brought"),
    ("a clean-up of the river bank", "gloves and bags are provided"),
    ("an evening on the new bus lines", "questions can be handed in beforehand"),
    ("the opening of the seed library", "seeds can be swapped"),
    ("a course in first aid", "there is room for twelve people"),
    ("the night walk through the old quarter", "lamps should be left at home"),
)
HALLS = (
    "the old fire station",
    "the library's reading room",
    "the school gymnasium",
    "the community kitchen",
    "the boat house",
)
DAYS = ("Monday", "Tuesday", "Thursday", "Friday", "Saturday")
FORMS = (
    ("an invitation", "the people of the neighbourhood"),
    ("a short notice for the town's newsletter", "its readers"),
    ("a message to the volunteers who helped last year", "the volunteers"),
    ("a polite reminder", "people who have signed up and not confirmed"),
)


def briefs(source: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Short texts to be written from five facts, each with the criteria that a judge checks one by one; the subset names the form."""
    draw = random.Random(f"briefs {source['seed']}")
    for number in range(source["rows"]):
        (form, reader), (event, detail) = FORMS[number % len(FORMS)], draw.choice(EVENTS)
        hall, day, hour, who, most = (
            draw.choice(HALLS),
            draw.choice(DAYS),
            draw.randint(9, 19),
            draw.choice(PEOPLE),
            draw.choice((80, 120)),
        )
        yield {
            "fields": {
                "prompt": f"Write {form} about {event}. It takes place in {hall} on {day} at {hour}:30; {detail}. {who} answers questions. "
                f"Write for {reader}, in at most {most} words, and add nothing that is not said here."
            },
            "expected": {
                "criteria": [
                    f"It says that it is about {event}.",
                    f"It names the place ({hall}), the day ({day}) and the time ({hour}:30).",
                    f"It says that {detail}.",
                    f"It says that {who} answers questions.",
                    f"It reads as {form}, written for {reader}.",
                    "It states no fact about the event that the request does not state.",
                ]
            },
            "subset": form,
        }


COLOURS = (
    "amber",
    "azure",
    "crimson",
    "ivory",
    "jade",
    "olive",
    "scarlet",
    "silver",
    "teal",
    "violet",
)
ANIMALS = (
    "badger",
    "crane",
    "falcon",
    "heron",
    "ibex",
    "lynx",
    "marten",
    "otter",
    "raven",
    "stork",
)
FILLERS = (
    "The {0} road follows the {1} for most of a day.",
    "Nobody at the {1} remembered when the {0} gate was painted.",
    "A {0} flag means that the {1} is closed.",
    "In spring the {1} smells of rain and of {0} paint.",
    "They carried {0} sacks past the {1} until evening.",
    "The keeper of the {1} wrote every visit into a {0} book.",
)
PLACES = (
    "harbour",
    "mill",
    "orchard",
    "quarry",
    "station",
    "tower",
    "bridge",
    "market",
    "garden",
    "archive",
)


def needle(source: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Numbers hidden in filler of 300 to 19,200 words, one or four of them asked for; the subset names the words and how many."""
    draw = random.Random(f"needle {source['seed']}")
    kinds = [(words, asked) for words in (300, 1200, 4800, 19200) for asked in (1, 4)]
    for number in range(source["rows"]):
        words, asked = kinds[number % len(kinds)]
        keys = draw.sample([f"{colour} {animal}" for colour in COLOURS for animal in ANIMALS], 8)
        numbers = [str(draw.randint(10000, 99999)) for _ in keys]
        text, length = [], 0
        while length < words:
            text.append(draw.choice(FILLERS).format(draw.choice(COLOURS), draw.choice(PLACES)))
            length += len(text[-1].split())
        for key, value in zip(keys, numbers, strict=True):
            text.insert(draw.randint(0, len(text)), f"The number of the {key} is {value}.")
        yield {
            "fields": {
                "text": " ".join(text),
                "keys": ", ".join(f"the {key}" for key in keys[:asked]),
            },
            "expected": numbers[:asked],
            "subset": f"{words} words, {asked} asked",
        }


@functools.cache
def _languages() -> dict[str, dict[str, Any]]:
    """The sentences of each language, by its ISO 639-1 code."""
    return tomllib.loads((cli.ROOT / "assets/prompts/bench/languages.toml").read_text())


def multilingual(source: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Word problems of one or two steps in eight languages; the subset names the language."""
    draw = random.Random(f"multilingual {source['seed']}")
    for number in range(source["rows"]):
        said = list(_languages().values())[number % len(_languages())]
        kind = draw.choice(("gain", "boxes", "share"))
        a, b, c = _many(draw, 3, 12), _many(draw, 3, 25), _many(draw, 2, 19)
        answer = {"gain": a + b, "boxes": a * b + c, "share": b}[kind]
        problem = said[kind].format(who=draw.choice(PEOPLE), a=a, b=b, c=c, t=a * b)
        yield {
            "fields": {"problem": problem, "ending": said["ending"]},
            "expected": str(answer),
            "subset": said["name"],
        }


def replies(source: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Short texts to be written in one of eight languages, no request twice: some are made in the language itself, the others
    are in English and ask for it. The subset says which. At most 128 rows."""
    asked = []
    for code, said in _languages().items():
        asked += [(code, "asked in it", task) for task in said["tasks"]]
        for task in TASKS:
            prompt = f"{task}, in three to five sentences. Reply in {said['name']}."
            asked.append((code, "asked for in English", prompt))
    random.Random(f"replies {source['seed']}").shuffle(asked)
    for code, subset, prompt in asked[: source["rows"]]:
        yield {
            "fields": {"prompt": prompt},
            "expected": {
                "instructions": ["language:response_language"],
                "arguments": [{"language": code}],
            },
            "subset": subset,
        }


def tools(source: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Requests with five tools at hand, of which one is to be called, one twice, two different ones or none; the subset says which."""
    draw = random.Random(f"tools {source['seed']}")
    kinds = (("one", 1), ("same twice", 2), ("two", 2), ("none", 0))
    for number in range(source["rows"]):
        kind, many = kinds[number % len(kinds)]
        if kind == "none":
            request, calls = draw.choice(_UNAIDED).format(draw.choice(ANIMALS)), []
        else:
            first = draw.choice(_TASKS)
            rest = [task for task in _TASKS if task is not first]
            other = first if kind == "same twice" else draw.choice(rest)
            parts = _different(draw, [first, other][:many])
            request = " ".join(text for text, _ in parts)
            calls = [call for _, call in parts]
        yield {
            "fields": {"prompt": request},
            "expected": {"calls": calls},
            "subset": kind,
            "tools": draw.sample(TOOLS, len(TOOLS)),
            "tool_code": TOOL_CODE,
        }


def _different(draw, makers):
    """A part of a request, and the call that it wants, by each maker; no two calls are equal."""
    parts = []
    for make in makers:
        part = make(draw)
        while part in parts:
            part = make(draw)
        parts.append(part)
    return parts


def _tool(name, description, **parameters):
    """A tool in OpenAI's form, all of its parameters required. parameters: name=(type, description)."""
    described = {
        key: {"type": kind, "description": text} for key, (kind, text) in parameters.items()
    }
    schema = {"type": "object", "properties": described, "required": list(parameters)}
    function = {"name": name, "description": description, "parameters": schema}
    return {"type": "function", "function": function}


TOOLS = [
    _tool(
        "get_weather",
        "The weather in a city on a day of this week.",
        city=("string", "name of the city, as the user writes it"),
        day=("string", "day of the week in English, such as Monday"),
    ),
    _tool(
        "convert_currency",
        "An amount of money in another currency.",
        amount=("number", "how much"),
        source=("string", "ISO 4217 code of the currency it is in"),
        target=("string", "ISO 4217 code of the currency wanted"),
    ),
    _tool(
        "set_timer",
        "Start a timer.",
        label=("string", "what it is for, in one word as the user writes it"),
        minutes=("integer", "how long"),
    ),
    _tool(
        "count_stock",
        "How many pieces of an item a branch has in stock.",
        item=("string", "the item in the plural, as the user writes it"),
        branch=("integer", "number of the branch"),
    ),
    _tool(
        "find_trains",
        "Trains between two cities that leave after a full hour.",
        origin=("string", "where it leaves"),
        destination=("string", "where it goes"),
        hour=("integer", "0 to 23"),
    ),
]
TOOL_CODE = """
def _number(*parts):
    return sum(map(ord, "".join(map(str, parts)))) % 90 + 10

def get_weather(city, day):
    return {"city": city, "day": day, "celsius": _number(city, day) - 40}

def convert_currency(amount, source, target):
    return {"amount": amount * _number(source, target) / 50, "currency": target}

def set_timer(label, minutes):
    return {"label": label, "minutes": minutes, "state": "running"}

def count_stock(item, branch):
    return {"item": item, "branch": branch, "pieces": _number(item, branch)}

def find_trains(origin, destination, hour):
    return {"trains": [{"leaves": f"{hour}:{_number(origin, destination) % 60:02}", "from": origin, "to": destination}]}
"""
CITIES = ("Bergen", "Cusco", "Dakar", "Hanoi", "Izmir", "Lagos", "Nantes", "Osaka", "Quito", "Riga")
CURRENCIES = ("CHF", "EUR", "INR", "JPY", "KES", "NOK", "PEN", "USD")
_UNAIDED = (
    "Write one sentence about a {0}. Nothing needs to be looked up.",
    "What is the plural of the word {0}?",
    "Spell the word {0} backwards.",
    "Give me a name for a pet {0}.",
)


def _weather(draw):
    city, day = draw.choice(CITIES), draw.choice(DAYS)
    call = {"name": "get_weather", "arguments": {"city": city, "day": day}}
    return f"What is the weather in {city} on {day}?", call


def _currency(draw):
    amount = draw.randint(2, 900)
    source, target = draw.sample(CURRENCIES, 2)
    call = {"amount": amount, "source": source, "target": target}
    return f"How much are {amount} {source} in {target}?", {
        "name": "convert_currency",
        "arguments": call,
    }


def _timer(draw):
    label, minutes = draw.choice(("bread", "laundry", "rice", "tea", "yoga")), draw.randint(2, 55)
    call = {"name": "set_timer", "arguments": {"label": label, "minutes": minutes}}
    return f"Set a timer of {minutes} minutes with the label {label}.", call


def _stock(draw):
    item, branch = draw.choice(THINGS), draw.randint(2, 60)
    call = {"name": "count_stock", "arguments": {"item": item, "branch": branch}}
    return f"How many {item} does branch {branch} have in stock?", call


def _trains(draw):
    origin, destination = draw.sample(CITIES, 2)
    hour = draw.randint(5, 22)
    call = {"origin": origin, "destination": destination, "hour": hour}
    return f"Which trains go from {origin} to {destination} after {hour}:00?", {
        "name": "find_trains",
        "arguments": call,
    }


_TASKS = (_weather, _currency, _timer, _stock, _trains)


# What a benchmark's source may name as `generated`.
GENERATORS = {
    "arithmetic": arithmetic,
    "briefs": briefs,
    "instructions": instructions,
    "multilingual": multilingual,
    "needle": needle,
    "replies": replies,
    "tools": tools,
}
