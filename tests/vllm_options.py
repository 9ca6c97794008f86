"""Write assets/vllm-options.json: the names and choices that `vllm serve` of one version takes, read from its own parser, without a GPU.

  VLLM_TARGET_DEVICE=cpu PYTHONPATH=UNPACKED_WHEEL python tests/vllm_options.py 0.33.0 > assets/vllm-options.json

UNPACKED_WHEEL: `pip download vllm==VERSION --no-deps`, unzipped; its shared objects are not needed, and the version
in its METADATA must end in +cpu, or it looks for a GPU. The Python needs torch (CPU),
transformers and vLLM's light dependencies. Values of --reasoning-parser and --tool-call-parser are not among the choices: vLLM checks
them later, and has their names in two tables of its sources.
"""

import ast
import importlib.util
import json
import logging
import sys
from pathlib import Path

logging.disable()  # vLLM logs to stdout
from vllm.entrypoints.common.cli_args import make_arg_parser  # noqa: E402
from vllm.utils.argparse_utils import FlexibleArgumentParser  # noqa: E402


def takes(action):
    """How many values: 0, 1, or "some"."""
    return {None: 1, 0: 0}.get(action.nargs, "some")


def parsers(room):
    """The names of a table of parsers, in the source of vllm/ROOM/__init__.py."""
    source = Path(importlib.util.find_spec("vllm").origin).parent / room / "__init__.py"
    for node in ast.parse(source.read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).endswith(
            "_PARSERS_TO_REGISTER"
        ):
            return sorted(ast.literal_eval(node.value))
    raise SystemExit(f"{source} has no table of parsers any more")


found = {}
for name, action in make_arg_parser(
    FlexibleArgumentParser()
)._option_string_actions.items():  # hidden ones too
    choices = [choice for choice in action.choices or [] if isinstance(choice, str | int)]
    found[name] = {"values": takes(action), **({"choices": choices} if choices else {})}
lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(found[name])}" for name in sorted(found))
print(
    f'{{"version": {json.dumps(sys.argv[1])}, "by": "tests/vllm_options.py", "options": {{\n{lines}\n}},\n'
    f'"reasoning": {json.dumps(parsers("reasoning"))},\n'
    f'"tools": {json.dumps(parsers("tool_parsers"))}}}'
)
