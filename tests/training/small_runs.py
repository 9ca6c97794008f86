"""A random model of two layers whose tokens are bytes, and runs of the trainer on it, in forks."""

import gc
import json
import multiprocessing
import os
import random
import sys

from decksmith.core import cli
from decksmith.train.training import train

TEMPLATE = (
    "{% for m in messages %}<s>{{ m['role'] }}\n{{ m['content'] }}</s>\n{% endfor %}"
    "{% if add_generation_prompt %}<s>assistant\n{% endif %}"
)
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"  # read when the trainer's packages are loaded, here
WORDS = ["kettle", "harbour", "lamp", "amber", "nine", "slide", "theme", "moth"]
CONTEXT = multiprocessing.get_context("fork")


def load():
    """Import what the forks run, once for all of them: torch, TRL, and what draws the loss."""
    from decksmith.measure.results import plots
    from decksmith.train.training import trl_trainer  # noqa: F401
    from matplotlib import figure, style  # noqa: F401

    plots._fonts()


def make_model(folder):
    import tokenizers
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    alphabet = ["<s>", "</s>", *sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())]
    LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(alphabet),
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=512,
            bos_token_id=0,
            eos_token_id=1,
        )
    ).save_pretrained(folder)
    made = tokenizers.Tokenizer(
        tokenizers.models.BPE({word: at for at, word in enumerate(alphabet)}, [])
    )
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.add_special_tokens(["<s>", "</s>"])
    made.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text('{"eos_token": "</s>"}')
    (folder / "chat_template.jinja").write_text(TEMPLATE)


def conversation(number):
    dice = random.Random(number)

    def text(n):
        return " ".join(dice.choice(WORDS) for _ in range(n))

    return [{"role": "user", "content": text(3)}, {"role": "assistant", "content": text(6)}]


def write_rows(folder, **sides):
    """The conversations of train and test as FOLDER/train.jsonl and FOLDER/test.jsonl."""
    folder.mkdir(parents=True)
    for side, talks in sides.items():
        lines = [json.dumps({"id": f"r{n}", "messages": talk}) for n, talk in enumerate(talks)]
        (folder / f"{side}.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def start(function, *arguments, log=None):
    """`function` in a fork; its exit status is the return value, or that of the cli.Stop it raised."""

    def go():
        import torch

        torch.set_num_threads(1)
        if log:
            sys.stdout = sys.stderr = open(log, "a", buffering=1)
        try:
            status = function(*arguments)
        except cli.Stop as stop:
            cli.say(str(stop))
            status = stop.status
        os._exit(status or 0)

    gc.freeze()  # else each fork walks, and so copies, all that torch and transformers have loaded
    process = CONTEXT.Process(target=go)
    process.start()
    return process


def finished(process):
    process.join()
    return process.exitcode


def trained(run, log=None):
    return finished(start(train.run, run, log=log or run / "log"))


def steps(run):
    return sorted(int(path.name[5:]) for path in (run / "checkpoints").glob("step_*"))


def weights(run, step):
    folder = run / f"checkpoints/step_{step}/policy/weights/model"
    return (folder / "adapter_model.safetensors").read_bytes()


def written(run):
    path = run / "metrics.jsonl"
    return path.stat().st_size if path.exists() else 0


def metrics(run):
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "seconds"} for line in lines]
