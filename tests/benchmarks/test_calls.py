"""Tool calls by the Berkeley Function Calling Leaderboard: its rows, and its own checker beside ours on calls drawn from them."""

import copy
import functools
import json
import random
import sys
import types
from collections import Counter

import pytest
from decksmith.bench.benchmarks import sources, tasks
from decksmith.bench.benchmarks.graders import calls

pytestmark = pytest.mark.slow

CATEGORIES = {"simple_python": 400, "multiple": 200, "parallel": 200, "parallel_multiple": 200}
CATEGORIES |= {"live_simple": 258, "live_multiple": 1053, "live_parallel": 16}
CATEGORIES |= {"live_parallel_multiple": 24}
NO_CALL = {"irrelevance": 240, "live_irrelevance": 884, "live_relevance": 16}


def said(made):
    """The messages of a reply that makes these calls, each {name: arguments}."""
    found = [{"name": n, "arguments": json.dumps(a)} for call in made for n, a in call.items()]
    return [{"role": "assistant", "tool_calls": [{"function": one} for one in found]}]


def verdict(expected, made, text=""):
    return calls.tools({"expected": expected}, said(made) if made else [], text)["verdict"]


@pytest.mark.parametrize(
    "made, found",
    [
        ([{"f": {"city": "new york"}}, {"g": {"n": 2.0}}], "right"),
        ([{"g": {"n": 2}}, {"f": {"city": "New-York", "unit": "C"}}], "right"),
        ([{"f": {"city": "New York"}}], "wrong"),
        ([{"f": {"city": "New York"}}, {"f": {"city": "New York"}}], "wrong"),
        ([{"f": {"city": "New York", "day": 1}}, {"g": {"n": 2}}], "wrong"),
        ([{"f": {}}, {"g": {"n": 2}}], "wrong"),
        ([{"f": {"city": "New York"}}, {"g": {"n": True}}], "wrong"),
        ([{"f": {"city": "New York"}}, {"g": {"n": "2"}}], "wrong"),
        ([{"f": {"city": ["New York"]}}, {"g": {"n": 2}}], "wrong"),
        ([{"f": [1]}, {"g": {"n": 2}}], "wrong"),
        ([{"h": {"city": "New York"}}, {"g": {"n": 2}}], "wrong"),
    ],
)
def test_calls_are_right_that_have_one_of_the_right_values_for_each_argument(made, found):
    city = {"city": ["New York"], "unit": ["", "C"]}
    assert verdict({"possible": [{"f": city}, {"g": {"n": [2, 1]}}]}, made) == found


def test_a_call_that_meets_two_wanted_ones_is_given_to_that_which_no_other_meets():
    wanted = [{"f": {"n": [1, 2]}}, {"f": {"n": [1]}}]
    assert verdict({"possible": wanted}, [{"f": {"n": 1}}, {"f": {"n": 2}}]) == "right"
    assert verdict({"possible": wanted}, [{"f": {"n": 2}}, {"f": {"n": 2}}]) == "wrong"


def test_no_call_any_call_and_no_reply():
    assert verdict({"possible": []}, [], "No function fits.") == "right"
    assert verdict({"possible": []}, [{"f": {}}]) == "wrong"
    assert verdict({"called": True}, [{"f": {}}]) == "right"
    assert verdict({"called": True}, [], "I cannot.") == "wrong"
    assert verdict({"possible": []}, []) == "no_answer"
    odd = [{"tool_calls": [{"function": {"name": "f", "arguments": "[" * 90_000}}]}]
    assert calls.tools({"expected": {"possible": [{"f": {}}]}}, odd, "")["verdict"] == "wrong"


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    return list(tasks.prepare("bfcl", tmp_path_factory.mktemp("kept")))


@pytest.mark.long("test_calls_are_right_that_have_one_of_the_right_values_for_each_argument")
def test_every_row_of_the_package_becomes_one_that_can_be_asked(rows):
    from decksmith.models import loops

    counted = {}
    for row in rows:
        loops.check(row)
        counted[row["task"]["subset"]] = counted.get(row["task"]["subset"], 0) + 1
    assert counted == CATEGORIES | NO_CALL
    kinds = {"object", "number", "integer", "string", "boolean", "array"}
    for row in rows:
        for tool in row["tools"]:
            given = tool["function"]["parameters"]
            assert given["type"] == "object"
            assert {each["type"] for each in given["properties"].values()} <= kinds


@pytest.fixture(scope="module")
def theirs():
    """The leaderboard's own checker. Its table of models, which imports every provider's client, is left out: it only
    says whether names of functions are asked with dots."""
    name = "bfcl_eval.constants.model_config"
    table = types.ModuleType(name)
    table.MODEL_CONFIG_MAPPING = {"ours": types.SimpleNamespace(underscore_to_dot=True)}
    sys.modules[name] = table
    from bfcl_eval.constants.enums import Language
    from bfcl_eval.eval_checker.ast_eval.ast_checker import ast_checker

    def valid(functions, made, possible, category):
        found = ast_checker(functions, made, possible, Language.PYTHON, category, "ours")
        return found["valid"]

    yield valid
    del sys.modules[name]


def described(row):
    """The functions of a row as the leaderboard's own files describe them."""
    found = raw()[int(row["id"].removeprefix("bfcl-")) - 1]["function"]
    return [
        {**one, "name": tool["function"]["name"]}
        for one, tool in zip(found, row["tools"], strict=True)
    ]


@functools.cache
def raw():
    """The rows of the leaderboard's files."""
    return list(sources.READERS["package"](tasks.load("bfcl"))[1])


def right(values, dice):
    """One of the right values of an argument, as JSON; None: it is left out."""
    value = dice.choice(values or [""]) if isinstance(values, list) else values
    if value == "":
        return None
    if isinstance(value, dict):
        made = {key: right(each, dice) for key, each in value.items()}
        return {key: each for key, each in made.items() if each is not None}
    if isinstance(value, list):
        return [right([each], dice) if isinstance(each, dict) else each for each in value]
    return value


def drawn(possible, dice):
    made = []
    for wanted in possible:
        for name, arguments in wanted.items():
            found = {key: right(values, dice) for key, values in arguments.items()}
            made.append({name: {k: v for k, v in found.items() if v is not None}})
    return made


def spoilt(made, dice):
    """The calls with one change, which may leave them right."""
    made = copy.deepcopy(made)
    call = dice.choice(made)
    ((name, arguments),) = call.items()
    key = dice.choice(sorted(arguments)) if arguments else None
    match dice.randrange(9):
        case 0:
            made.remove(call)
        case 1:
            made.append(copy.deepcopy(call))
        case 2:
            call[f"{name}x"] = call.pop(name)
        case 3:
            arguments["unheard_of"] = 1
        case 4 if key:
            del arguments[key]
        case 5 if key and isinstance(arguments[key], str):
            arguments[key] = dice.choice([arguments[key].upper(), f"{arguments[key]} x", ""])
        case 6 if key and type(arguments[key]) in (int, float):
            arguments[key] = arguments[key] + 1
        case 7 if key and isinstance(arguments[key], list) and len(arguments[key]) > 1:
            arguments[key] = arguments[key][::-1]
        case _ if key:
            arguments[key] = dice.choice([str(arguments[key]), [arguments[key]], None, {"x": 1}])
    dice.shuffle(made)
    return made


# Rows whose right answer, by the leaderboard's files, names an argument that the function does not have.
CONTRADICT = {"bfcl-00813", "bfcl-02361"}


@pytest.mark.long("test_calls_are_right_that_have_one_of_the_right_values_for_each_argument")
def test_ours_decides_as_the_leaderboards_own_checker(rows, theirs):
    dice, parted, counted = random.Random(1), set(), Counter()
    for row in rows:
        category, expected = row["task"]["subset"], row["task"]["expected"]
        if category not in CATEGORIES:
            continue
        functions = described(row)
        for turn in range(3):
            made = drawn(expected["possible"], dice)
            if turn:
                made = spoilt(made, dice)
            found = theirs(functions, made, expected["possible"], category)
            counted[found] += 1
            if found != (verdict(expected, made) == "right"):
                parted.add(row["id"])
    assert counted.total() == 3 * sum(CATEGORIES.values())
    assert min(counted.values()) > 2500
    assert parted == CONTRADICT
