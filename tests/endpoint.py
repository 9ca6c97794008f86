"""A loopback endpoint that speaks the chat completions API and misbehaves on request, for the tests of everything that asks models.

  python tests/endpoint.py --log asked.jsonl --latency 0.05 --plan 429=0.3,500=0.2,drop=0.1,garbage=0.1,400=0.05

prints its base URL. Which requests fail is decided by a hash of their content, so a plan means the same in every run; a passing
fault hits the first `--times` attempts, a 400 hits always. A reply is a deck made from the request, or `--reply FILE`'s text, or of a
folder the file that the request's model names (`FOLDER/MODEL.md`). With "stream" in the request it comes in words, `--pace` seconds
apart (`--pace 0.02,slow=0.1`: of the model `slow`); that of the model `endless` never ends; at the word {{hold}} it waits for a POST to
/go. Streams that the client left are counted.
With `--context N` a request with more tokens is refused, in the words of the server that its model names (`vllm`, `openai`, ..).
With `--gains` four scripted models are better under one condition and no other: `sheet` with a cheat sheet in its system prompt,
`sampler` with the third of several seeds, `reviser` when it is told what is wrong, and `flat` never (tests/make/test_conditions.py).
Each request is logged as {"key", "status"}, the key being the hash of the last message.
"""

import argparse
import asyncio
import hashlib
import json
import random
import re
from collections import Counter
from pathlib import Path

from aiohttp import web

options = argparse.ArgumentParser()
options.add_argument("--log")
options.add_argument("--latency", type=float, default=0.0)
options.add_argument("--plan", default="")
options.add_argument("--times", type=int, default=1)
options.add_argument("--reply")
options.add_argument("--decks", help="answer with decks of this folder, and with what is none")
options.add_argument("--pace", default="0")
options.add_argument("--retry-after", default="0.05")
options.add_argument(
    "--storm", type=int, default=0, help="answer the first N requests of all with 429"
)
options.add_argument(
    "--context",
    type=int,
    help="tokens that a prompt (four letters each) and its max_tokens may have together",
)
options.add_argument("--model", help="list this model, as a router does")
options.add_argument("--pricing", help="USD a token, of its prompts and of its replies: 1e-6,4e-6")
options.add_argument("--weights", help="a file with the weight_version that /model_info gives")
options.add_argument("--gains", action="store_true")
args = options.parse_args()

PLAN = [
    (name, float(share))
    for name, _, share in (part.partition("=") for part in args.plan.split(",") if part)
]
attempts, flight, total = Counter(), Counter(), Counter()
go = asyncio.Event()
log = open(args.log, "a", buffering=1) if args.log else None


def refusal(server, most, prompt, asked):
    """(status, body) with which a server refuses `asked` tokens after a prompt, or None; the sentences are theirs."""
    said = {"type": "invalid_request_error", "param": None, "code": 400}
    if server == "llama.cpp":  # it stops writing where the context ends
        words = f"request ({prompt} tokens) exceeds the available context size ({most} tokens), try increasing it"
        return (
            (
                400,
                {
                    "error": {
                        "code": 400,
                        "message": words,
                        "type": "exceed_context_size_error",
                        "n_prompt_tokens": prompt,
                        "n_ctx": most,
                    }
                },
            )
            if prompt >= most
            else None
        )
    if server == "sglang":  # one token stays free
        words = f"The input ({prompt} tokens) is longer than the model's context length ({most} tokens)."
        if prompt < most:
            words = (
                f"Requested token count exceeds the model's maximum context length of {most} tokens. You requested a total of "
                f"{prompt + asked} tokens: {prompt} tokens from the input messages and {asked} tokens for the completion. Please reduce "
                "the number of tokens in the input messages or the completion to fit within the limit."
            )
        return (
            (
                400,
                {
                    "object": "error",
                    "message": words,
                    "type": "BadRequestError",
                    "param": None,
                    "code": 400,
                },
            )
            if prompt + asked >= most
            else None
        )
    if prompt + asked <= most:
        return None
    head = f"This model's maximum context length is {most} tokens. However, "
    words = {
        "vllm": f"{head}you requested {asked} output tokens and your prompt contains at least {max(0, most - asked) + 1} input tokens, for a "
        f"total of at least {most + 1} tokens. Please reduce the length of the input prompt or the number of requested output tokens.",
        "vllm-0.9": f"'max_tokens' or 'max_completion_tokens' is too large: {asked}. This model's maximum context length is {most} tokens and "
        f"your request has {prompt} input tokens ({asked} > {most} - {prompt}).",
        "openrouter": f"This endpoint's maximum context length is {most} tokens. However, you requested about {prompt + asked} tokens ({prompt} of "
        f'text input, {asked} in the output). Please reduce the length of either one, or use the "middle-out" transform.',
        "total": f"{head}you requested {prompt + asked} tokens. Please reduce the length of the messages or completion.",
        "mute": "the maximum context length of this model is exceeded",
    }.get(
        server,
        f"{head}you requested {prompt + asked} tokens ({prompt} in the messages, {asked} in the completion). Please reduce the "
        "length of the messages or completion.",
    )
    if server == "openai":
        said["code"] = "context_length_exceeded"
    return (
        (200, {"error": {"message": words, "code": 400}})
        if server == "openrouter"
        else (400, {"error": {**said, "message": words}})
    )


def planned(key):
    """The fault of a request by its hash: the shares of the plan divide [0, 1)."""
    place, start = int(key[:8], 16) / 2**32, 0.0
    for name, share in PLAN:
        if start <= place < start + share:
            return name
        start += share
    return None


def deck(text):
    digest = hashlib.sha256(text.encode()).hexdigest()
    slides = [
        f'---\ntheme: default\ntitle: "Deck {digest[:6]}"\nlayout: cover\n---\n\n# Deck {digest[:6]}\n'
    ]
    for n in range(2 + int(digest[0], 16) % 3):
        slides.append(
            f"## Point {n + 1}\n\n- Finding {digest[n : n + 8]}\n- It follows from {digest[n + 8 : n + 16]}\n"
        )
    return "\n---\n\n".join(slides)


GOOD = """---
theme: seriph
title: Rivers
---

# Rivers carry mountains to the sea

Why a valley is as wide as its flood, not as its stream

---

# A flood moves what a year does not

- Sand travels in any season, boulders only in a flood
- One day of high water can move half of a year's load
- Dams keep the load: the delta below them sinks

---

# Three rivers compared

| River | Load, Mt a year | Dams |
| --- | --- | --- |
| Po | 15 | many |
| Amazon | 1100 | few |
| Nile | 2 | one |

---

# What to do on Monday

- Measure the load at the bridge, twice a week
- Ask the dam for its flushing days
"""
FALLS = "\n\n".join(["# Water"] * 12)  # far beyond the slide, in fewer words than the good deck has
BAD = "---\ntheme: seriph\n---\n\n" + "\n\n---\n\n".join([FALLS] * 3) + "\n"


def gained(body, text):
    """The reply of a scripted model whose gain is planted."""
    system = " ".join(m["content"] for m in body["messages"] if m["role"] == "system")
    told = text.startswith("Your deck was rendered")
    better = {
        "sheet": "image-query" in system and len(system) > 2000,
        "sampler": body.get("seed", 0) % 4 == 3 and not told,
        "reviser": told,
    }
    return GOOD if better.get(body["model"]) else BAD


DECKS = [path.read_text() for path in sorted(Path(args.decks).glob("*.md"))] if args.decks else []


def one_of(model, text):
    """A deck of the folder with a sentence before it, by the hash of model and request; of some requests a
    refusal, half of a deck, or slides without a frontmatter that can be read. The models differ in how many."""
    dice = random.Random(f"{model}\n{text}")
    chosen, kind = dice.choice(DECKS), dice.random() / (0.4 + int(model[-1:], 36) % 8)
    told = f"Here is deck {dice.randrange(10**9)}, with {dice.randrange(3, 30)} points that I kept short.\n\n"
    if kind < 0.004:
        return f"I would rather not write this deck ({dice.randrange(10**6)})."
    if kind < 0.012:
        return told + chosen[: len(chosen) // 2]
    if kind < 0.016:
        return "---\ntheme: [seriph\n---\n\n" + chosen[40:]
    return f"{told}```markdown\n{chosen}\n```\n"


def reply_to(body, text):
    if DECKS:
        return one_of(body["model"], text)
    if args.gains:
        return gained(body, text)
    if not args.reply:
        return deck(text)
    path = Path(args.reply)
    change = path / f"{body['model']}.change.md"  # of one slide (decks/edits.py)
    if text.startswith("Change slide ") and change.is_file():
        return change.read_text()
    return (path / f"{body['model']}.md" if path.is_dir() else path).read_text()


async def streamed(request, body, reply, fault):
    """The reply as server-sent events. `cut` breaks off in the middle, `error` says so first."""
    message, usage = reply["choices"][0]["message"], reply["usage"]
    paces = dict(part.rpartition("=")[::2] for part in args.pace.split(","))
    pace = float(paces.get(body["model"], paces.get("", 0)))
    pieces = [
        {"reasoning_content": word}
        for word in re.findall(r"\s*\S+", message.get("reasoning_content", ""))
    ]
    word = r"\s*\S+\s*$|\s*\S+" if not DECKS else r"(?s).{1,400}"  # a pool is for many requests
    pieces += [{"content": piece} for piece in re.findall(word, message["content"])]
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)

    head = {name: reply[name] for name in ("id", "model", "created", "system_fingerprint")}
    head["object"] = "chat.completion.chunk"

    async def send(value):
        await response.write(
            b"data: "
            + (value if isinstance(value, bytes) else json.dumps(value).encode())
            + b"\n\n"
        )

    flight["streams"] += 1
    try:
        at = 0
        while at < len(pieces) or body["model"] == "endless":
            if fault in ("cut", "error") and at == len(pieces) // 2:
                if fault == "error":
                    await send({"error": {"message": "the GPU fell off", "code": 503}})
                request.transport.abort()
                return response
            if "{{hold}}" in pieces[at % len(pieces)].get("content", ""):
                await go.wait()
                go.clear()
            else:
                await send(
                    {
                        **head,
                        "choices": [
                            {"index": 0, "delta": pieces[at % len(pieces)], "finish_reason": None}
                        ],
                    }
                )
            at += 1
            await asyncio.sleep(pace)
        last = {"index": 0, "delta": {}, "finish_reason": reply["choices"][0]["finish_reason"]}
        await send({**head, "choices": [last]})
        if (body.get("stream_options") or {}).get("include_usage"):
            await send({**head, "choices": [], "usage": usage})
        await send(b"[DONE]")
    except (ConnectionError, asyncio.CancelledError):
        total["left"] += 1
        raise
    finally:
        flight["streams"] -= 1
    return response


async def chat(request):
    body = await request.json()
    content = body["messages"][-1]["content"]
    text = content if isinstance(content, str) else json.dumps(content)
    key = hashlib.sha256(text.encode()).hexdigest()
    attempts[key] += 1
    total["asked"] += 1
    flight["now"] += 1
    flight["peak"] = max(flight["peak"], flight["now"])
    status = 200
    try:
        fault = planned(key)
        if total["asked"] <= args.storm:
            fault = "429"
        elif fault != "400" and attempts[key] > args.times:
            fault = None
        if fault in ("307", "400", "401", "404", "429", "500", "503"):
            status = int(fault)
            quoted = (
                f", by {request.headers.get('Authorization')}" if status == 401 else ""
            )  # as careless endpoints do
            return web.json_response(
                {"error": {"message": f"planned {fault}{quoted}", "code": status}},
                status=status,
                headers={
                    "429": {"Retry-After": args.retry_after},
                    "307": {"Location": "/v1/elsewhere"},
                }.get(fault, {}),
            )
        if args.context and (
            refused := refusal(
                body["model"], args.context, len(text) // 4, body.get("max_tokens", 0)
            )
        ):
            status = 400
            return web.json_response(refused[1], status=refused[0])
        await asyncio.sleep(args.latency)
        if fault == "drop":
            status = "drop"
            request.transport.abort()
            return web.Response()
        if fault == "hang":
            status = "hang"
            await asyncio.sleep(3600)
        if fault in ("stall", "drip"):
            status = fault
            response = web.StreamResponse(headers={"Content-Type": "application/json"})
            await response.prepare(request)
            await response.write(b'{"choices": [')
            while True:
                await asyncio.sleep(0.1 if fault == "drip" else 3600)
                await response.write(b" ")
        said = "".join(str(m["content"]) for m in body["messages"]) if args.gains else text
        reply = {
            "id": f"chatcmpl-{total['asked']}",
            "object": "chat.completion",
            "model": body["model"],
            "created": 1700000000,
            "system_fingerprint": "fp_44709d6fcb",
            "choices": [
                {
                    "index": 0,
                    "finish_reason": "stop",
                    "message": {"role": "assistant", "content": reply_to(body, text)},
                }
            ],
            "usage": {
                "prompt_tokens": len(said) // 4,
                "completion_tokens": 100,
                "total_tokens": 100 + len(said) // 4,
            },
        }
        message = reply["choices"][0]["message"]
        if fault == "truncated":
            reply["choices"][0]["finish_reason"] = "length"
        if fault == "reasoning":
            message["reasoning_content"] = "step by step"
        if fault == "think":
            message["content"] = "<think>\nstep by step\n</think>\n" + message["content"]
        if fault == "empty":
            reply["choices"] = []
        if fault == "wrapped":
            reply = {"error": {"message": "upstream is busy", "code": 503}}
        if body.get("stream") and reply.get("choices") and fault not in ("garbage", "whole"):
            return await streamed(request, body, reply, fault)
        payload = json.dumps(reply).encode()
        if fault == "garbage":
            status, payload = "garbage", payload[: len(payload) // 2]
        if fault == "slow":  # a stream that drips
            response = web.StreamResponse(headers={"Content-Type": "application/json"})
            await response.prepare(request)
            for start in range(0, len(payload), 100):
                await response.write(payload[start : start + 100])
                await asyncio.sleep(0.05)
            return response
        return web.Response(body=payload, content_type="application/json")
    finally:
        flight["now"] -= 1
        if log:
            log.write(json.dumps({"key": key, "status": status, "fault": fault}) + "\n")


async def stats(request):
    return web.json_response(
        {
            "asked": total["asked"],
            "peak": flight["peak"],
            "distinct": len(attempts),
            "streams": flight["streams"],
            "left": total["left"],
        }
    )


async def models(request):
    if not args.model:
        return web.Response(status=404)
    model = {"id": args.model}
    if args.pricing:
        model["pricing"] = dict(zip(("prompt", "completion"), args.pricing.split(","), strict=True))
    return web.json_response({"object": "list", "data": [model]})


async def info(request):
    return (
        web.json_response({"weight_version": open(args.weights).read().strip()})
        if args.weights
        else web.Response(status=404)
    )


async def named(request):
    """What Ollama answers here; this one stands in for it where a test says so."""
    return web.Response(text="a stand-in for Ollama is running (tests/endpoint.py)")


async def healthy(request):
    return web.Response()


async def released(request):
    go.set()
    return web.Response()


async def main():
    app = web.Application(client_max_size=1 << 28)
    app.router.add_post("/v1/chat/completions", chat)
    app.router.add_get("/stats", stats)
    app.router.add_post("/go", released)
    app.router.add_get("/v1/models", models)
    app.router.add_get("/model_info", info)
    app.router.add_get("/get_model_info", info)  # the older name, which sglang's router forwards
    app.router.add_get("/health", healthy)
    app.router.add_get("/", named)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, backlog=2048)
    await site.start()
    print(f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}/v1", flush=True)
    await asyncio.sleep(7200)


asyncio.run(main())
