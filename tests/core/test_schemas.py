"""What our own check of a file lets pass, jsonschema lets pass; and the scripts start without it and all else that is slow."""

import copy
import itertools
import json
import subprocess
import sys

import pytest
from decksmith.core import cli, inherit, schemas
from jsonschema import Draft202012Validator

FILES = ["protocols/offline", "protocols/published", "conditions/few-shot", "conditions/revise"]
# What no file of ours says there.
ODD = [None, True, -1, 0, 2.5, "", "offline", "Two words", [], ["a", "a"], {}, {"x": 1}]
STAGES = [
    "chat-generate",
    "deck-parse",
    "deck-illustrate",
    "deck-render",
    "deck-judge",
    "deck-scan",
    "deck-score",
    "run-summarize",
]
SLOW = "aiohttp email http jinja2 jsonschema matplotlib numpy openai PIL.Image pydantic scipy"


def places(part, way=()):
    """The ways to every value of nested tables and lists."""
    keys = part if isinstance(part, dict) else range(len(part))
    for key in keys:
        yield *way, key
        if isinstance(part[key], dict | list):
            yield from places(part[key], (*way, key))


def changed(table):
    """Copies: a value is missing, or one of two odd ones stands in its place."""
    odd = itertools.cycle(ODD)
    for way in places(table):
        for new in ("delete", next(odd), next(odd)):
            made = copy.deepcopy(table)
            inner = made
            for step in way[:-1]:
                inner = inner[step]
            if new == "delete":
                del inner[way[-1]]
            else:
                inner[way[-1]] = new
            yield made


@pytest.mark.parametrize("file", FILES)
def test_what_fits_by_us_fits_by_jsonschema(file):
    path = cli.ROOT / f"assets/{file}.toml"
    schema = json.loads((cli.ROOT / f"assets/schemas/{path.parent.name[:-1]}.json").read_text())
    data = inherit.read(path, path.parent)
    assert schemas._fits(data, schema, schema)
    judge = Draft202012Validator(schema)
    for other in itertools.islice(changed(data), 0, None, 40 if "offline" in file else 1):
        assert schemas._fits(other, schema, schema) == judge.is_valid(other), other


def test_a_keyword_that_we_do_not_know_is_jsonschema_s(tmp_path):
    schemas.check(tmp_path, 4, {"multipleOf": 2})
    with pytest.raises(cli.BadConfig, match="top level: 3 is not a multiple of 2"):
        schemas.check(tmp_path, 3, {"multipleOf": 2})


def test_the_stages_of_a_baseline_start_without_what_is_slow_to_import():
    code = f"""
import runpy, sys
sys.path.insert(0, "lib")
for name in {STAGES}:
    runpy.run_path("bin/" + name)
from pathlib import Path
from decksmith.core.protocol import Protocol
from decksmith.judging import judges
judges.open_judge(Protocol.load("offline"), Path("run"))
print(*(name for name in {SLOW.split()} if name in sys.modules))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=cli.ROOT, text=True, capture_output=True, check=True
    )
    assert done.stdout.strip() == ""
