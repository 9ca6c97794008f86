"""Write assets/vllm-options.json: the names and choices that `vllm serve` of one version takes, read from its own parser, without a GPU.

  VLLM_TARGET_DEVICE=cpu PYTHONPATH=UNPACKED_WHEEL python tests/vllm_options.py 0.27.1 > assets/vllm-options.json

UNPACKED_WHEEL: `pip download vllm==VERSION --no-deps`, unzipped; its shared objects are not needed, and the version
in its METADATA must end in +cpu, or it looks for a GPU. The Python needs torch (CPU),
transformers and vLLM's light dependencies. Values of --reasoning-parser are not among the choices: vLLM checks them later.
"""

import json
import logging
import sys

logging.disable()  # vLLM logs to stdout
from vllm.entrypoints.openai.cli_args import make_arg_parser  # noqa: E402  (vllm.entrypoints.common in 0.33)
from vllm.utils.argparse_utils import FlexibleArgumentParser  # noqa: E402


def takes(action):
    """How many values: 0, 1, or "some"."""
    return {None: 1, 0: 0}.get(action.nargs, "some")


found = {}
for name, action in make_arg_parser(
    FlexibleArgumentParser()
)._option_string_actions.items():  # hidden ones too
    choices = [choice for choice in action.choices or [] if isinstance(choice, str | int)]
    found[name] = {"values": takes(action), **({"choices": choices} if choices else {})}
lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(found[name])}" for name in sorted(found))
print(
    f'{{"version": {json.dumps(sys.argv[1])}, "by": "tests/vllm_options.py", "options": {{\n{lines}\n}}}}'
)
