"""An endpoint that answers as a test says, and chat-generate in front of it."""

import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def calling(*calls):
    """An answer that calls tools: (name, arguments) each."""
    made = [
        {"id": f"c{n}", "type": "function", "function": {"name": name, "arguments": given}}
        for n, (name, given) in enumerate(calls)
    ]
    return _answer("tool_calls", content=None, tool_calls=made)


def saying(text):
    return _answer("stop", content=text)


def _answer(finish_reason, **message):
    """All that NeMo Gym wants of an answer."""
    said = {"role": "assistant", **message}
    return {
        "id": "c",
        "object": "chat.completion",
        "created": 0,
        "model": "m",
        "choices": [{"index": 0, "finish_reason": finish_reason, "message": said}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12},
    }


class Endpoint:
    """Answers by `script(number of the request, body) -> (status, answer)`; `asked` has (path, body) of each request."""

    def __init__(self):
        self.asked, self.script = [], None
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                endpoint.asked.append((self.path, body))
                found = endpoint.script(len(endpoint.asked), body)
                if found is None:  # whoever asked was killed
                    return
                status, answer = found
                data = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    def tools_seen(self):
        """What the model was told by its tools, in the last request."""
        return [m["content"] for m in self.asked[-1][1]["messages"] if m["role"] == "tool"]


def generate(endpoint, rows, run, fatal=None, more=()):
    """(status, records, stderr) of chat-generate; `fatal(process)` gets it as soon as it runs."""
    command = [sys.executable, ROOT / "bin/chat-generate", "--base-url", endpoint.url]
    process = subprocess.Popen(
        [*command, "--slug", "m", "--run", run, *more],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT / "lib")},
        text=True,
        start_new_session=True,
    )
    if fatal:
        fatal(process)
    out, err = process.communicate("".join(json.dumps(row) + "\n" for row in rows))
    return process.returncode, [json.loads(line) for line in out.splitlines()], err
