"""A real reward-serve to ask and to kill, for the tests of its doors."""

import json
import os
import signal
import subprocess
from pathlib import Path

import requests
import waits

ROOT = Path(__file__).resolve().parents[2]
PROMPTS = ROOT / "data/prompts.jsonl"
DECK = """---
theme: default
---

# Tide pools

- what lives there
- {word}

---

# Who lives there

- crabs
- anemones

---

# Thank you

- questions
"""
ASKS = {"asks": {"slides": 3, "language": "en"}, "request": "Three slides on tide pools"}


def prompt(number=0):
    """A row of data/prompts.jsonl."""
    with open(PROMPTS) as file:
        return json.loads(file.readlines()[number])


class Server:
    """reward-serve in a folder of its own, with one worker."""

    def __init__(self, folder, *flags):
        self.folder, self.flags, self.process = folder, flags, None
        self.address = folder / "server.json"

    def start(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        self.address.unlink(missing_ok=True)
        with open(self.folder / "said", "a") as log:
            self.process = subprocess.Popen(
                [ROOT / "bin/reward-serve", "--root", self.folder, "--jobs", "1", *self.flags],
                env={**os.environ, "IMAGES": "off"},
                cwd=ROOT,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        waits.until(self.address.exists, self.process)
        facts = json.loads(self.address.read_text())
        self.url, self.token = facts["url"], facts["token"]
        return self

    def said(self):
        return (self.folder / "said").read_text()

    def kill(self, number=signal.SIGKILL):
        self.process.send_signal(number)
        self.process.wait()

    def ask(self, path, body=None, **more):
        method = "GET" if body is None else "POST"
        headers = {"Authorization": f"Bearer {self.token}"}
        return requests.request(
            method, self.url + path, json=body, headers=headers, timeout=waits.HANG, **more
        )
