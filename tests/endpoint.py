"""A loopback endpoint that speaks the chat completions API and misbehaves on request, for the tests of everything that asks models.

  python tests/endpoint.py --log asked.jsonl --latency 0.05 --plan 429=0.3,500=0.2,drop=0.1,garbage=0.1,400=0.05

prints its base URL. Which requests fail is decided by a hash of their content, so a plan means the same in every run; a passing
fault hits the first `--times` attempts, a 400 hits always. A reply is a deck made from the request, or `--reply FILE`'s text.
Each request is logged as {"key", "status"}, the key being the hash of the last message.
"""

import argparse
import asyncio
import hashlib
import json
from collections import Counter

from aiohttp import web

options = argparse.ArgumentParser()
options.add_argument("--log")
options.add_argument("--latency", type=float, default=0.0)
options.add_argument("--plan", default="")
options.add_argument("--times", type=int, default=1)
options.add_argument("--reply")
options.add_argument("--retry-after", default="0.05")
options.add_argument("--storm", type=int, default=0, help="answer the first N requests of all with 429")
args = options.parse_args()

PLAN = [(name, float(share)) for name, _, share in (part.partition("=") for part in args.plan.split(",") if part)]
attempts, flight, total = Counter(), Counter(), Counter()
log = open(args.log, "a", buffering=1) if args.log else None


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
    slides = [f"---\ntheme: default\ntitle: \"Deck {digest[:6]}\"\nlayout: cover\n---\n\n# Deck {digest[:6]}\n"]
    for n in range(2 + int(digest[0], 16) % 3):
        slides.append(f"## Point {n + 1}\n\n- Finding {digest[n:n + 8]}\n- It follows from {digest[n + 8:n + 16]}\n")
    return "\n---\n\n".join(slides)


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
        if fault in ("400", "401", "404", "429", "500", "503"):
            status = int(fault)
            return web.json_response({"error": {"message": f"planned {fault}", "code": status}}, status=status,
                                     headers={"Retry-After": args.retry_after} if fault == "429" else {})
        await asyncio.sleep(args.latency)
        if fault == "drop":
            status = "drop"
            request.transport.abort()
            return web.Response()
        if fault == "hang":
            status = "hang"
            await asyncio.sleep(3600)
        reply = {"id": "r", "object": "chat.completion", "model": body["model"],
                 "choices": [{"index": 0, "finish_reason": "stop",
                              "message": {"role": "assistant", "content": open(args.reply).read() if args.reply else deck(text)}}],
                 "usage": {"prompt_tokens": len(text) // 4, "completion_tokens": 100, "total_tokens": 100 + len(text) // 4}}
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
        payload = json.dumps(reply).encode()
        if fault == "garbage":
            status, payload = "garbage", payload[:len(payload) // 2]
        if fault == "slow":  # a stream that drips
            response = web.StreamResponse(headers={"Content-Type": "application/json"})
            await response.prepare(request)
            for start in range(0, len(payload), 100):
                await response.write(payload[start:start + 100])
                await asyncio.sleep(0.05)
            return response
        return web.Response(body=payload, content_type="application/json")
    finally:
        flight["now"] -= 1
        if log:
            log.write(json.dumps({"key": key, "status": status, "fault": fault}) + "\n")


async def stats(request):
    return web.json_response({"asked": total["asked"], "peak": flight["peak"], "distinct": len(attempts)})


async def main():
    app = web.Application(client_max_size=1 << 28)
    app.router.add_post("/v1/chat/completions", chat)
    app.router.add_get("/stats", stats)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, backlog=2048)
    await site.start()
    print(f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}/v1", flush=True)
    await asyncio.sleep(7200)


asyncio.run(main())
