"""Greedy tokens of one tuned model by vLLM, by the embedded engine and by transformers in bf16, held to those of transformers in
fp32: where each parts from them, and how much less likely the token was that it took there.

The page docs/maintain/engines.md is `page()` of what the test in test_vllm.py found: make engines.
"""

import json
import urllib.request

from decksmith.core import cli
from decksmith.models import embedded
from decksmith.train.training import adapters

BASE = cli.ROOT / "data/models/smol"
TOKENS = 24
PROMPTS = (
    "Write a deck of three slides about bees.",
    "What is compound interest?",
    "Name three rivers of Europe and say where they end.",
    "Explain in two sentences why the sky is blue.",
    "What is the capital of France, and which river runs through it?",
    "Which numbers between one and ten are prime?",
)
NAMES = {
    "transformers": "transformers, bf16",
    "vllm": "vLLM 0.32.0, CPU, bf16",
    "embedded": "embedded engine (llama.cpp), Q4_1 with the adapter in fp32",
}


def compare(vllm_url, adapter, folder):
    """{engine: [{"prompt_tokens", "alike", "gap"}, ..]}, one for each prompt. `alike`: how many tokens are those of transformers in
    fp32, None for all; `gap`: how much less likely (fp32, in nats) the first other token was than the best one."""
    import torch
    from transformers import AutoTokenizer

    torch.set_num_threads(
        1
    )  # the servers are on this machine too, and threads that wait for a core cost more than they do
    tokenizer = AutoTokenizer.from_pretrained(BASE)
    prompts = [
        tokenizer.apply_chat_template(
            [{"role": "user", "content": prompt}],
            add_generation_prompt=True,
            return_tensors="pt",
            return_dict=True,
        )["input_ids"]
        for prompt in PROMPTS
    ]
    adapters.gguf(adapter, BASE, folder / "adapter.gguf")
    lease = embedded.lease(loras={"tuned": folder / "adapter.gguf"})
    try:
        said = {"embedded": [ask(lease.base_url, prompt) for prompt in PROMPTS]}
    finally:
        lease.close()
    said["vllm"] = [ask(vllm_url, prompt) for prompt in PROMPTS]
    asked = {
        engine: [(tokens(tokenizer, text), count) for text, count in replies]
        for engine, replies in said.items()
    }
    rough = load(adapter, torch.bfloat16)
    asked["transformers"] = [(greedy(rough, prompt), prompt.shape[1]) for prompt in prompts]
    exact = load(adapter, torch.float32)
    return {
        engine: [
            {"prompt_tokens": count, **parted(exact, prompt, written)}
            for prompt, (written, count) in zip(prompts, replies, strict=True)
        ]
        for engine, replies in asked.items()
    }


def load(adapter, dtype):
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(BASE, dtype=dtype)
    return PeftModel.from_pretrained(model, adapter).eval()


def ask(url, prompt):
    """(text, tokens of the prompt) of a greedy reply."""
    body = {
        "model": "tuned",
        "messages": [{"role": "user", "content": prompt}],
        "temperature": 0,
        "max_tokens": TOKENS,
    }
    request = urllib.request.Request(
        f"{url}/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=300) as reply:
        found = json.loads(reply.read())
    return found["choices"][0]["message"]["content"], found["usage"]["prompt_tokens"]


def tokens(tokenizer, text):
    """A reply's tokens, with the end of the turn where it ended by itself."""
    found = tokenizer.encode(text, add_special_tokens=False)[:TOKENS]
    return found if len(found) == TOKENS else [*found, tokenizer.eos_token_id]


def greedy(model, prompt):
    import torch

    with torch.no_grad():
        found = model.generate(input_ids=prompt, max_new_tokens=TOKENS, do_sample=False)
    return found[0, prompt.shape[1] :].tolist()


def parted(model, prompt, written):
    """{"alike", "gap"} of the tokens that were written. One pass over all of them is enough: up to the first other token the prefix is
    that of the model's own greedy reply."""
    import torch

    whole = torch.cat([prompt, torch.tensor([written], dtype=prompt.dtype)], dim=1)
    with torch.no_grad():
        likely = model(input_ids=whole).logits[0, prompt.shape[1] - 1 : -1].log_softmax(-1)
    for n, (row, token) in enumerate(zip(likely, written, strict=True)):
        if (best := int(row.argmax())) != token:
            return {"alike": n, "gap": round(float(row[best] - row[token]), 3)}
    return {"alike": None, "gap": None}


def page(found):
    """docs/maintain/engines.md."""
    rows = []
    for engine, name in NAMES.items():
        ones = found[engine]
        alike = [TOKENS if one["alike"] is None else one["alike"] for one in ones]
        gaps = [one["gap"] for one in ones if one["gap"] is not None]
        whole = sum(one["alike"] is None for one in ones)
        largest = f"{max(gaps):.3f}" if gaps else "none"
        rows.append(
            f"| {name} | {whole} of {len(ones)} | {', '.join(map(str, alike))} | {largest} |"
        )
    return f"""# Engines

Written by `make engines`: the greedy tokens of the embedded model with a LoRA adapter (rank 8, random), {len(PROMPTS)} prompts,
{TOKENS} tokens each, held to those of transformers in fp32. Every engine counted the same prompt tokens, so all of them read the same
prompt. *Gap*: how much less likely the first other token was than the best one, in nats, by the model in fp32.

| engine | replies that are alike | tokens until the two outputs differ | largest gap |
|---|---|---|---|
{chr(10).join(rows)}

An engine parts from another where two tokens are nearly as good: bf16 rounds each matrix product to eight bits of mantissa, and
llama.cpp multiplies its Q4_1 weights by activations in eight bits. After the first other token a reply goes its own way, and that
says nothing more about the engine. So runs of two engines are never compared as if the adapter were the only difference: base and
tuned are asked of one server (`served.engine` in each record; `run-compare --model-only` refuses another).
"""
