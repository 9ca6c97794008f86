"""Grading tool calls: nothing of a reply is run or evaluated."""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import cast

from decksmith.bench.benchmarks.records import Grade, Task
from decksmith.models.records import ChatMessage

Call = tuple[str, object]  # a name, and arguments as JSON holds them
Possible = Mapping[str, Mapping[str, list[object]]]  # {name: {argument: its right values}}
Given = Mapping[str, object]
Required = Mapping[str, list[str]]  # by name: the arguments that no call leaves out


def tools(task: Task, messages: Sequence[ChatMessage], text: str) -> Grade:
    """The grade of the calls that a reply made, by what the row expects.

    `calls`: the same functions with the same arguments, in any order, no more and no less. An argument
    that is left out is not its default; 3 and 3.0 are one number; texts are compared but for blanks
    around them. `score` is the share of the expected calls that were made, 0 where none was expected
    and one was made. `possible`: as many calls, each one of those that the Berkeley Function Calling
    Leaderboard accepts. `called`: any call. messages: those of all replies (`gen.calls`).
    """
    expected = task["expected"]
    made = [
        _call(call["function"]["name"], call["function"]["arguments"])
        for message in messages
        for call in message.get("tool_calls") or ()
    ]
    if not made and not text.strip():
        return {"verdict": "no_answer"}
    if "calls" in expected:
        return _same([_call(call["name"], call["arguments"]) for call in expected["calls"]], made)
    if expected.get("called"):
        right = bool(made)
    else:
        right = _assigned(expected["possible"], made, expected.get("required", {}))
    said = [_key(call) for call in made]
    return {"verdict": "right" if right else "wrong", "detail": {"made": said}}


def _same(wanted: list[Call], found: list[Call]) -> Grade:
    """The grade of calls that have to be these."""
    expected, made = Counter(map(_key, wanted)), Counter(map(_key, found))
    missing, more = sorted((expected - made).elements()), sorted((made - expected).elements())
    right = made == expected
    met = (expected & made).total() / expected.total() if expected else float(right)
    detail = {"missing": missing, "more": more}
    return {"verdict": "right" if right else "wrong", "score": met, "detail": detail}


def _call(name: str, arguments: object) -> Call:
    """A call; arguments that are no JSON stay as they came."""
    try:
        return name, _normal(json.loads(arguments) if isinstance(arguments, str) else arguments)
    except (ValueError, RecursionError):
        return name, arguments


def _key(call: Call) -> str:
    """A call as a text, equal for equal calls."""
    name, arguments = call
    if isinstance(arguments, str):
        return f"{name} {arguments}"
    return f"{name} {json.dumps(arguments, sort_keys=True, ensure_ascii=False)}"


def _normal(value: object) -> object:
    if isinstance(value, dict):
        return {key: _normal(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_normal(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value.strip() if isinstance(value, str) else value


def _assigned(wanted: list[Possible], made: list[Call], required: Required) -> bool:
    """Whether each wanted call is another one of those that were made, and none is left over."""
    holders: dict[int, int] = {}  # by the place of a call: the wanted one that has it

    def placed(want: int, tried: set[int]) -> bool:
        """Find a call for a wanted one; who has it already moves where it can."""
        for place, call in enumerate(made):
            if place not in tried and _meets(wanted[want], call, required):
                tried.add(place)
                if place not in holders or placed(holders[place], tried):
                    holders[place] = want
                    return True
        return False

    return len(wanted) == len(made) and all(placed(want, set()) for want in range(len(wanted)))


def _meets(possible: Possible, call: Call, required: Required) -> bool:
    """Whether a call is the function with arguments of which each has one of its right values; one whose right values
    hold "" may be left out, unless the function requires it."""
    name, given = call
    if name not in possible or not isinstance(given, dict):
        return False
    return all(key in given for key in required.get(name, ())) and _fields(possible[name], given)


def _fields(possible: Mapping[str, list[object]], given: Given) -> bool:
    left_out = [values for key, values in possible.items() if key not in given]
    known = all(key in possible for key in given)
    return (
        known
        and all("" in values for values in left_out)
        and all(any(_alike(value, given[key]) for value in possible[key]) for key in given)
    )


def _alike(right: object, given: object) -> bool:
    """Whether a value is a right one: texts but for case, blanks and the marks ,./-_*^, numbers by value, lists in their
    order, the values of an object each by a list of right ones."""
    if isinstance(right, dict):
        options = isinstance(given, dict) and all(isinstance(each, list) for each in right.values())
        return right == given or (options and _fields(right, cast(Given, given)))
    if isinstance(right, list):
        if not isinstance(given, list) or len(given) != len(right):
            return False
        return all(map(_alike, right, given))
    if isinstance(right, str) and isinstance(given, str):
        return _plain(right) == _plain(given)
    return isinstance(right, bool) == isinstance(given, bool) and right == given


def _plain(text: str) -> str:
    return re.sub(r"[ ,./\-_*^]", "", text).lower().replace("'", '"')
