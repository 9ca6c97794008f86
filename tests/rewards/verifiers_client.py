"""The exported environment in verifiers' own evaluation, in an environment with verifiers 0.4:

    python verifiers_client.py REPLY [REPLY ..]

Its vf-eval loads the package decksmith-decks, and its null harness, a process of its own, asks a model that says the text of the
file REPLY to everything; of several files it may revise, and says the next in each turn. Prints the traces that it leaves: id, prompt,
reward, metrics and errors of each.
"""

import http.server
import json
import os
import sys
import threading
from pathlib import Path

from verifiers.v1.cli.eval.main import main as vf_eval


class Model(http.server.BaseHTTPRequestHandler):
    """Chat completions, in chunks where they are asked for so."""

    replies: tuple[str, ...] = ()

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        turn = sum(one["role"] == "user" for one in body["messages"]) - 1
        message = {"role": "assistant", "content": self.replies[min(turn, len(self.replies) - 1)]}
        head = {"id": "r", "created": 0, "model": "m"}
        if not body.get("stream"):
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            said = {**head, "object": "chat.completion", "choices": [choice], "usage": usage}
            return self.answer("application/json", json.dumps(said))
        chunk = {**head, "object": "chat.completion.chunk"}
        parts = [
            {**chunk, "choices": [{"index": 0, "delta": message, "finish_reason": None}]},
            {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
            {**chunk, "choices": [], "usage": usage},
        ]
        lines = [f"data: {json.dumps(part)}\n\n" for part in parts]
        return self.answer("text/event-stream", "".join(lines) + "data: [DONE]\n\n")

    def answer(self, kind, text):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_):
        pass


def told(line):
    """A line of traces.jsonl, as far as it is looked at."""
    (trace,) = json.loads(line)["traces"]
    return {
        "id": trace["task"]["data"]["id"],
        "prompt": trace["task"]["data"]["prompt"],
        "rewards": trace["rewards"],
        "metrics": trace["metrics"],
        "turns": len([node for node in trace["nodes"] if node["message"]["role"] == "assistant"]),
        "errors": [each["message"] for each in trace["errors"]],
    }


if __name__ == "__main__":
    Model.replies = tuple(Path(path).read_text() for path in sys.argv[1:])
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Model)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    os.environ["MODEL_KEY"] = "none"
    flags = (
        "--env.agent.harness.id null --env.agent.runtime.type subprocess -n 2 -m m -o out --no-push"
    )
    if len(Model.replies) > 1:
        flags += f" --env.turns {len(Model.replies)}"
    base = f"http://127.0.0.1:{server.server_port}/v1"
    client = ["--client.base-url", base, "--client.api-key-var", "MODEL_KEY"]
    vf_eval(["decksmith-decks", *flags.split(), *client])
    (traces,) = Path("out").glob("*/traces.jsonl")
    found = sorted(map(told, traces.read_text().splitlines()), key=lambda each: each["id"])
    print("RESULT " + json.dumps(found), flush=True)
