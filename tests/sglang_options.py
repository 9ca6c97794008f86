"""Write assets/sglang-options.json: the names and choices that SGLang's server of one version takes, read from its own parser, without
a GPU.

  PYTHONPATH=UNPACKED_WHEEL .venv-vllm/bin/python3 tests/sglang_options.py 0.5.23 > assets/sglang-options.json

UNPACKED_WHEEL: `pip download sglang==VERSION --no-deps`, unzipped. What it imports for GPUs is stood in for: a command line needs none
of it. `dest`: the name that options with several names share.
"""

import argparse
import ast
import contextlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import sys
from pathlib import Path
from unittest.mock import MagicMock

ABSENT = "triton sgl_kernel flashinfer pybase64 zmq orjson IPython decord torchao uvloop setproctitle torchvision torchaudio"


class Standin(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """An empty module for each of ABSENT that is not here."""

    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in ABSENT.split():
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        made = MagicMock()
        made.__path__, made.__name__, made.__spec__ = [], spec.name, spec
        return made

    def exec_module(self, module):
        pass


def keys(path, name):
    """The keys of a class's table, in a source of sglang."""
    source = Path(importlib.util.find_spec("sglang").origin).parent / path
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == name:
            return sorted(key.value for key in node.value.keys)
    raise SystemExit(f"{source} has no {name} any more")


sys.meta_path.append(Standin())
parser, found = argparse.ArgumentParser(), {}
with contextlib.redirect_stdout(sys.stderr):
    from sglang.srt.server_args import ServerArgs

    ServerArgs.add_cli_args(parser)
for name, action in parser._option_string_actions.items():
    choices = [choice for choice in action.choices or [] if isinstance(choice, str | int)]
    values = {None: 1, 0: 0}.get(action.nargs, "some")
    found[name] = {"values": values, "dest": action.dest}
    if choices:
        found[name]["choices"] = choices
lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(found[name])}" for name in sorted(found))
print(
    f'{{"version": {json.dumps(sys.argv[1])}, "by": "tests/sglang_options.py", "options": {{\n{lines}\n}},\n'
    f'"reasoning": {json.dumps(keys("srt/parser/reasoning_parser.py", "DetectorMap"))},\n'
    f'"tools": {json.dumps(keys("srt/function_call/function_call_parser.py", "ToolCallParserEnum"))}}}'
)
