"""transformers behind the addresses of the embedded engine, one request after the other: what the trainer itself would say. And how
a server of any engine reads a reply, token by token.

In 32 bits on a CPU, and in bfloat16 on a GPU. A reply of /v1/chat/completions brings its tokens as numbers, `token_ids`.
"""

import contextlib
import json
import math
import os
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

from decksmith.train.serving import fidelity, readiness
from decksmith.train.training import base_models


class Plain:
    """A model of a Hugging Face folder, with an adapter where one is named. alone: on all cores."""

    def __init__(self, folder: Path, adapter: Path | None = None, alone: bool = False) -> None:
        torch, transformers = map(base_models.library, ("torch", "transformers"))
        transformers.utils.logging.disable_progress_bar()
        transformers.utils.logging.set_verbosity_error()
        self.torch, self.lock = torch, threading.Lock()
        # As the embedded engine: threads that wait for a core cost more than they do.
        torch.set_num_threads(max(1, (os.cpu_count() or 2) - (not alone)))
        place = "cuda" if torch.cuda.is_available() else "cpu"
        dtype = torch.bfloat16 if place == "cuda" else torch.float32
        model: Any = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
        if adapter:
            model = base_models.library("peft").PeftModel.from_pretrained(model, adapter)
        self.model = model.to(place).eval()
        self.tokenizer: Any = transformers.AutoTokenizer.from_pretrained(folder)
        self.name = f"transformers {transformers.__version__}, {str(dtype).removeprefix('torch.')}"

    def complete(self, body: dict[str, Any]) -> dict[str, Any]:
        """The reply to a chat completion's body."""
        prompt = self._prompt(body["messages"])
        heat, end = body.get("temperature", 1.0), self.tokenizer.eos_token_id
        how: dict[str, Any] = {"do_sample": False}
        if heat > 0:
            how = {
                "do_sample": True,
                "temperature": heat,
                "top_k": 0,
                "top_p": body.get("top_p", 1),
            }
        with self.lock, self.torch.no_grad():
            self.torch.manual_seed(body.get("seed") or 0)
            asked = self.torch.tensor([prompt], device=self.model.device)
            how |= {"max_new_tokens": body.get("max_tokens") or 1024, "pad_token_id": end}
            mask = self.torch.ones_like(asked)
            made = self.model.generate(input_ids=asked, attention_mask=mask, **how)
        made = made[0, len(prompt) :].tolist()
        said = self.tokenizer.decode(made, skip_special_tokens=True)
        ended = "stop" if made[-1:] == [end] else "length"
        choice = {"index": 0, "message": {"role": "assistant", "content": said}}
        choice |= {"finish_reason": ended, "token_ids": made}
        usage = {"prompt_tokens": len(prompt), "completion_tokens": len(made)}
        head = {"id": "plain", "object": "chat.completion", "created": int(time.time())}
        return {**head, "model": body["model"], "choices": [choice], "usage": usage}

    def likelihood(self, body: dict[str, Any]) -> dict[str, Any]:
        """As /v1/likelihood of the embedded engine (assets/engine/server.mjs) for a reply given as tokens."""
        prompt, reply = self._prompt(body["messages"]), body["tokens"]
        with self.lock, self.torch.no_grad():
            asked = self.torch.tensor([prompt + reply], device=self.model.device)
            rows = self.model(input_ids=asked).logits[0, len(prompt) - 1 : -1].float()
            likely = rows.log_softmax(-1) / -self.torch.log(self.torch.tensor(2.0))
            best = likely.argmin(-1)
            places = asked[0, len(prompt) :], best
            bits, top_bits = (likely.gather(1, at[:, None])[:, 0].tolist() for at in places)
        return {"prompt": prompt, "bits": bits, "top": best.tolist(), "top_bits": top_bits}

    def bits(self, messages: list[dict[str, str]], most: int) -> float:
        """The mean bits of a token of the last message, as the reply to those before: of `most` tokens, its end among them."""
        said = [*self.tokenizer.encode(messages[-1]["content"], add_special_tokens=False)]
        tokens = [*said, self.tokenizer.eos_token_id][:most]
        body = {"messages": messages[:-1], "tokens": tokens}
        found = self.likelihood(body)["bits"]
        return float(sum(found) / len(found))

    def _prompt(self, messages: list[dict[str, str]]) -> list[int]:
        found = self.tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, return_dict=True
        )
        return cast(list[int], found["input_ids"])


@contextlib.contextmanager
def served(model: Plain) -> Iterator[str]:
    """The address of a server of this process, on loopback, as long as the block lasts."""
    answers = {"/v1/chat/completions": model.complete, "/v1/likelihood": model.likelihood}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._send({"status": "ok"})

        def do_POST(self) -> None:
            length = int(self.headers.get("content-length") or 0)
            if self.path in answers:
                self._send(answers[self.path](json.loads(self.rfile.read(length))))
            else:
                self.send_error(404)

        def _send(self, found: dict[str, Any]) -> None:
            data = json.dumps(found).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1"
        finally:
            server.shutdown()


def reply(url: str, messages: Any, tokens: int) -> list[int]:
    """The greedy reply of a server of this file, as numbers of tokens. Raises OSError, ValueError."""
    body = {"model": "plain", "messages": messages, "temperature": 0, "max_tokens": tokens}
    said = readiness.get(url, "/v1/chat/completions", body, 3600)
    return cast(list[int], said["choices"][0]["token_ids"])


def read(url: str, engine: str, name: str, messages: Any, tokens: list[int]) -> fidelity.Reading:
    """How the model `name` of a server reads a reply to `messages`, given as tokens. Raises OSError, ValueError."""
    asked = {"model": name, "messages": messages}
    if not engine.startswith("vllm"):
        body = {**asked, "tokens": tokens}
        return cast(fidelity.Reading, readiness.get(url, "/v1/likelihood", body, 3600))
    prompt = readiness.get(url, "/tokenize", asked, 3600)["tokens"]
    body = {"model": name, "prompt": [*prompt, *tokens], "max_tokens": 1, "prompt_logprobs": 1}
    said = readiness.get(url, "/v1/completions", body, 3600)["choices"][0]["prompt_logprobs"]
    places = [
        {int(token): -one["logprob"] / math.log(2) for token, one in row.items()}
        for row in said[len(prompt) :]
    ]
    top = [min(place, key=lambda each: place[each]) for place in places]
    return {
        "prompt": prompt,
        "bits": [place[token] for place, token in zip(places, tokens, strict=True)],
        "top": top,
        "top_bits": [place[token] for place, token in zip(places, top, strict=True)],
    }
