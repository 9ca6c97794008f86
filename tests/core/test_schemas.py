"""Files held against their schema, and scripts that start without what is slow to import."""

import subprocess
import sys

import pytest
from decksmith.core import cli, config_files

SLOW = "aiohttp email http jinja2 matplotlib numpy openai PIL.Image pydantic scipy"


def test_what_breaks_a_schema_is_said_with_file_and_key(tmp_path):
    schema = {"properties": {"a": {"items": {"multipleOf": 2}}}}
    config_files.check(tmp_path, {"a": [2, 4]}, schema)
    with pytest.raises(cli.BadConfig, match="a.1: 3 is not a multiple of 2"):
        config_files.check(tmp_path, {"a": [2, 3]}, schema)
    with pytest.raises(cli.BadConfig, match="top level: 3 is not a multiple of 2"):
        config_files.check(tmp_path, 3, {"multipleOf": 2})


def test_scripts_start_without_what_is_slow_to_import():
    """`--help` of every script, what the offline judge is made of, and a record's check, in one process."""
    code = f"""
import runpy, sys
from pathlib import Path
sys.path.insert(0, "lib")
for script in sorted(Path("bin").glob("*-*")):
    if "python3" in script.read_text().partition("\\n")[0]:
        runpy.run_path(str(script))
        print(*(script.name + ": " + name for name in {SLOW.split()} if name in sys.modules))
from decksmith.core import stream
from decksmith.core.protocol import Protocol
from decksmith.measure.judging import judges, records
stream.typed({{"id": "a", "render": {{}}}}, records.DeckRecord)
judges.open_judge(Protocol.load("offline"), Path("run"))
print(*(name for name in {SLOW.split()} if name in sys.modules))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=cli.ROOT, text=True, capture_output=True, check=True
    )
    assert done.stdout.split() == []
    assert done.stdout.count("\n") > 40
