"""Whether a model called the tools that it should have: the same functions with the same arguments, in any order, no more and no less.

The calls are those of all its replies (`gen.calls`), also those that failed. An argument that is left out is not its default: the
rows say what is wanted. 3 and 3.0 are one number; texts are compared as they are, but for blanks around them.
"""

import json
from collections import Counter
from typing import Any


def grade(task: dict[str, Any], calls: list[dict[str, Any]], text: str) -> dict[str, Any]:
    """The grade of a loop. `task["expected"]` is {"calls": [{"name", "arguments"}]}; an empty list asks for an answer without a
    call. `score` is the share of the expected calls that were made, 0 where none was expected and one was made."""
    wanted = Counter(_key(call["name"], call["arguments"]) for call in task["expected"]["calls"])
    made = Counter(
        _key(call["function"]["name"], call["function"]["arguments"])
        for message in calls
        for call in message.get("tool_calls") or ()
    )
    detail = {
        "missing": sorted((wanted - made).elements()),
        "more": sorted((made - wanted).elements()),
    }
    if not made and not text.strip():
        return {"verdict": "no_answer", "detail": detail}
    right = made == wanted
    met = (wanted & made).total() / wanted.total() if wanted else float(right)
    return {"verdict": "right" if right else "wrong", "score": met, "detail": detail}


def _key(name: str, arguments: Any) -> str:
    """A call as a text, equal for equal calls; arguments that are no JSON object stay as they came."""
    try:
        given = json.loads(arguments) if isinstance(arguments, str) else arguments
        return f"{name} {json.dumps(_plain(given), sort_keys=True, ensure_ascii=False)}"
    except (ValueError, RecursionError):
        return f"{name} {arguments}"


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value.strip() if isinstance(value, str) else value
