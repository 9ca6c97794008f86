"""What NeMo-RL itself makes of a run: its resolved configuration, and tokens and mask of each row, as one JSON object.

  PYTHONPATH=/path/of/NeMo-RL python tests/training/nemo_rl_rows.py RUN/recipe.yaml TOKENIZER

Runs in NeMo-RL's own environment, or any with torch, transformers, datasets, omegaconf, hydra-core and what else its modules import;
nothing of decksmith is imported. The calls are those of NeMo-RL's examples/run_sft.py and of its training loop.
"""

import json
import sys
from functools import partial

from nemo_rl.algorithms.utils import get_tokenizer
from nemo_rl.data.collate_fn import rl_collate_fn
from nemo_rl.data.datasets import (
    AllTaskProcessedDataset,
    load_response_dataset,
    update_single_dataset_config,
)
from nemo_rl.data.llm_message_utils import (
    add_loss_mask_to_message_log,
    batched_message_log_to_flat_message,
)
from nemo_rl.utils.config import load_config, register_omegaconf_resolvers
from omegaconf import OmegaConf


def main(recipe, folder):
    register_omegaconf_resolvers()
    config = OmegaConf.to_container(load_config(recipe), resolve=True)
    tokenizer = get_tokenizer(config["policy"]["tokenizer"] | {"name": folder})
    data = config["data"]
    rows = {side: list(read(data, data[side], tokenizer)) for side in ("train", "validation")}
    json.dump({"config": config, "rows": rows, "refused": refusal(config)}, sys.stdout)


def read(data, source, tokenizer):
    """(ids, mask, loss multiplier) of each row."""
    source = dict(source)
    update_single_dataset_config(source, data["default"])  # it names the processor
    loaded = load_response_dataset(source)
    words = {key: data[key] for key in ("add_bos", "add_eos", "add_generation_prompt")}
    processor = partial(loaded.processor, **words)
    dataset = AllTaskProcessedDataset(
        loaded.dataset,
        tokenizer,
        None,
        {loaded.task_name: (loaded.task_spec, processor)},
        max_seq_length=data["max_input_seq_length"],
    )
    for index in range(len(dataset)):
        batch = rl_collate_fn([dataset[index]])
        add_loss_mask_to_message_log(batch["message_log"], roles_to_train_on=["assistant"])
        flat, lengths = batched_message_log_to_flat_message(
            batch["message_log"],
            pad_value_dict={"token_ids": tokenizer.pad_token_id},
            make_sequence_length_divisible_by=1,
        )
        end = int(lengths[0])
        yield {
            "ids": flat["token_ids"][0][:end].tolist(),
            "mask": [int(bit) for bit in flat["token_loss_mask"][0][:end]],
            "multiplier": float(batch["loss_multiplier"][0]),
        }


def refusal(config):
    """What NeMo-RL's own schema of the configuration says against it; None where it says nothing, or cannot be loaded here."""
    try:
        from nemo_rl.algorithms.sft import MasterConfig

        MasterConfig(**config)
    except ImportError as error:
        return f"not checked: {error}"
    except Exception as error:
        unfit = type(error).__name__ == "PydanticUserError"
        return f"not checked: {error}" if unfit else str(error)
    return None


if __name__ == "__main__":
    main(*sys.argv[1:])
