"""Count a model's modules in the image that trains it: built without weights, by the very class that the trainer would load.

  bin/within train python3 -m decksmith.train.training.count_modules nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16 > model.json

Configuration and code alone are needed (bin/model-fetch brings them). It imports nothing of ours: the image's Python
has torch and transformers, which is all that is asked of it. Exit 69 where the model cannot be built.
"""

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

# Where the image keeps the Python of the process that trains: it alone has what a model's own code may import (mamba-ssm).
WORKER = "*.DTensorPolicyWorkerV2/bin/python"


def count(model: Any, config: Any, source: str) -> dict[str, Any]:
    """What models/shapes.Shape.counted reads, of a model on the meta device and its configuration.

    A layer is an entry of a list of modules that no other list holds.
    """
    from torch import nn

    modules = dict(model.named_modules())
    lists = [name for name, module in modules.items() if isinstance(module, nn.ModuleList)]
    outer = [name for name in lists if not any(name.startswith(f"{other}.") for other in lists)]
    layers = [child for name in outer for child in modules[name]]
    text = config.get_text_config()
    return {
        "linears": [
            [name, module.in_features, module.out_features]
            for name, module in modules.items()
            if isinstance(module, nn.Linear)
        ],
        "modules": [name for name in modules if name],
        "parameters": _parameters(model),
        "largest": max(map(_parameters, layers or model.children())),
        "hidden": text.hidden_size,
        "depth": text.num_hidden_layers,
        "vocabulary": text.vocab_size,
        "source": source,
    }


def _parameters(module: Any) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def build(name: str) -> tuple[Any, Any, str]:
    """(model on the meta device, configuration, how it was built).

    A model's own code is run as NeMo Automodel does it: for a name of nvidia on the Hub, never for a folder. That is
    why this belongs into the image.
    """
    import torch
    import transformers

    trusted = name.startswith("nvidia/") and not os.path.isdir(name)
    config = transformers.AutoConfig.from_pretrained(name, trust_remote_code=trusted)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config, trust_remote_code=trusted)
    made = type(model)
    own = "the model's own code" if made.__module__.startswith("transformers_modules") else ""
    where = "the train image" if os.environ.get("DECKSMITH_IMAGE") == "train" else "this machine"
    code = own or f"transformers {transformers.__version__}"
    return model, config, f"counted: {made.__name__} of {code}, built in {where}"


def _model(name: str) -> str:
    """The model of a training run's recipe, where `name` is such a folder; else `name`."""
    recipe = Path(name) / "recipe.yaml"
    if not recipe.is_file():
        return name
    from omegaconf import OmegaConf

    return str(OmegaConf.load(recipe).policy.model_name)


def _enter_worker() -> None:
    """Go on in the Python of the process that trains, where there is one."""
    here = os.environ.get("NEMO_RL_VENV_DIR")
    for python in Path(here).glob(WORKER) if here else ():
        if sys.prefix != str(python.parents[1]):
            os.execv(
                python, [str(python), "-m", "decksmith.train.training.count_modules", *sys.argv[1:]]
            )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "model", help="A name of the Hub, in its cache, a folder, or a training run's."
    )
    name = _model(parser.parse_args().model)
    _enter_worker()
    try:
        found = {"model": name, **count(*build(name))}
    except Exception as error:  # the image's, the model's own code's, the cache's
        words = " ".join(f"{type(error).__name__}: {error}".split())[:400]
        print(f"sft-count: {name} could not be built and is not counted: {words}", file=sys.stderr)
        return 69
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
