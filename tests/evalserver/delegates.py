"""What the tests of the eval server share: a server to start and kill, a router that answers, and a client that behaves as the one of slime."""

import http.server
import json
import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import requests
import waits

ROOT = Path(__file__).resolve().parents[2]
STAGES = (
    "bench-prepare",
    "record-sample",
    "bench-prompt",
    "chat-generate",
    "bench-grade",
    "bench-summarize",
)


class DelegateError(Exception):
    pass


def trainer(server, payload, *, timeout=waits.HANG, attempts=1, pause=0.02, headers=None):
    """The client of slime up to v0.2.1 and of miles, as it was measured: `timeout` bounds connecting and each read; whatever requests raises
    is tried again, every status of 400 and above and every body that is no JSON too; pauses of 2, 4, 8, .. 30 s (here in units of `pause`
    / 2); of the answer it takes raw_metrics, by a hard index."""
    for attempt in range(1, max(1, attempts) + 1):
        try:
            response = requests.post(
                f"{server.url}/evaluate",
                json=payload,
                timeout=timeout,
                headers={"Authorization": f"Bearer {server.token}"} if headers is None else headers,
            )
            response.raise_for_status()
            body = response.json()
            break
        except requests.exceptions.RequestException as error:
            last = error
            if attempt < attempts:
                time.sleep(min(2**attempt, 30) * pause)
    else:
        raise DelegateError(str(last)) from last
    return flat(body["raw_metrics"]) if body else {}


def flat(metrics, prefix="eval"):
    """As the trainer's log shows them: joined with /, numbers as float, anything else dropped."""
    found = {}
    for key, value in (metrics or {}).items():
        if isinstance(value, dict):
            found |= flat(value, f"{prefix}/{key}")
        elif isinstance(value, int | float):
            found[f"{prefix}/{key}"] = float(value)
    return found


class Server:
    """A real eval-serve in a folder of its own; `stages`: with the stages that do nothing."""

    def __init__(self, folder, *flags, stages=True):
        self.folder, self.flags, self.process = folder, flags, None
        self.env = {**os.environ, "IMAGES": "off", "DECKSMITH_BENCH": str(folder / "bench")}
        if stages:
            house = folder / "house"
            if not house.exists():
                (house / "bin").mkdir(parents=True)
                for name in ("lib", "assets", "data", ".venv"):
                    (house / name).symlink_to(ROOT / name)
                for name in STAGES:
                    (house / "bin" / name).symlink_to(ROOT / "tests/fixtures/eval/stage")
            self.pace(0.1)
            self.env["DECKSMITH_ROOT"] = str(house)

    def pace(self, seconds):
        (self.folder / "house/pace").write_text(str(seconds))

    def asked(self):
        """The questions in the order in which they were asked."""
        path = self.folder / "house/asked"
        return (
            [json.loads(line.split(" ")[1])["id"] for line in path.read_text().splitlines()]
            if path.exists()
            else []
        )

    def start(self):
        address = self.folder / "eval/server.json"
        address.unlink(missing_ok=True)
        self.log = open(self.folder / "said", "a")
        self.process = subprocess.Popen(
            [ROOT / "bin/eval-serve", "--root", self.folder / "eval", "--model", "m", *self.flags],
            env=self.env,
            cwd=self.folder,
            stderr=self.log,
            stdout=self.log,
        )
        waits.until(address.exists, self.process)
        found = json.loads(address.read_text())
        self.url, self.token = found["url"], found["token"]
        return self

    def kill(self, number=signal.SIGKILL):
        self.process.send_signal(number)
        self.process.wait()
        self.log.close()

    def ask(self, method, path, body=None, **more):
        return requests.request(
            method,
            self.url + path,
            json=body,
            headers={"Authorization": f"Bearer {self.token}"},
            timeout=waits.HANG,
            **more,
        )

    def job(self, ident):
        return self.ask("GET", f"/jobs/{ident}").json()

    def jobs(self, **query):
        return self.ask("GET", "/jobs", params=query).json()["jobs"]

    def until(self, check, ident):
        """The job, once it is so; asked a few times a second, for each time costs both sides."""
        waits.until(lambda: time.sleep(0.1) or check(self.job(ident)), self.process)
        return self.job(ident)


class Router:
    """Answers what a training loop's router does; `answers` by path: an object, or a status and headers."""

    def __init__(self, **answers):
        router = self
        self.answers, self.seen = answers, []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                router.seen.append(self.path)
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                said = router.answers.get(self.path.strip("/").replace("/", "_"), (404, {}))
                status, headers = said if isinstance(said, tuple) else (200, {})
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                if status == 200:
                    self.wfile.write(json.dumps(said).encode())

            do_POST = do_GET

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()


def payload(router, *names, rollout=0, **more):
    return {
        "rollout_id": rollout,
        "router_url": router.url,
        "benchmarks": [{"name": name} for name in names],
        **more,
    }
