"""Whoever asks an eval server: what eval-request does, across restarts of the server."""

import contextlib
import http.client
import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

from decksmith.core import cli
from decksmith.evalserver import trainer, worker
from decksmith.evalserver.jobs import ENDED

REFUSALS: dict[int, type[cli.Stop]] = {401: cli.BadConfig, 404: cli.Missing}


class Client:
    """Asks a server: of an address file (`address`), which is read again whenever the server
    cannot be reached, or at a `url` with the token in DECKSMITH_EVAL_TOKEN. Raises cli.BadData
    with the server's sentence for what it refuses, cli.BadConfig for a token that is wrong,
    cli.Missing for a job that it does not know, cli.TryAgain when it cannot be reached for
    `patience` seconds."""

    def __init__(
        self,
        address: str | Path | None = None,
        url: str | None = None,
        patience: float = 60.0,
    ) -> None:
        self.address, self.url, self.patience = address, url, patience

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """The JSON that a route answers."""

        def once() -> dict[str, Any]:
            with self._open(method, path, body) as reply:
                return json.loads(reply.read())

        return self._patiently(once)

    def events(self, job: str, start: int = 0, follow: bool = False) -> Iterator[dict[str, Any]]:
        """The events of a job from number `start`; with `follow` until it ended, across restarts
        of the server."""
        lines: Iterator[dict[str, Any]] | None = None

        def following() -> dict[str, Any] | None:
            """The next event; the stream is opened again after a failure, from the event after the
            last."""
            nonlocal lines
            try:
                if lines is None:
                    lines = self._stream(job, start, follow)
                return next(lines, None)
            except BaseException:
                lines = None
                raise

        while True:
            # Before the stream, which may have been cut when it looks as if it ended.
            follow = follow and self.ask("GET", f"/jobs/{job}")["status"] not in ENDED
            while (event := self._patiently(following)) is not None:
                yield event
                start = event["n"] + 1
            lines = None
            if not follow:
                return

    def wait(
        self, job: str, heard: Callable[[dict[str, Any]], object] | None = None
    ) -> dict[str, Any]:
        """The answer of a job once it ended, as /evaluate gives it; `heard` is called with each
        event meanwhile."""
        for event in self.events(job, follow=True):
            if heard:
                heard(event)
        return self.ask("GET", f"/jobs/{job}/result")

    def _stream(self, job: str, start: int, follow: bool) -> Iterator[dict[str, Any]]:
        """The events that one request brings. Raises OSError where the stream was cut in a line."""
        path = f"/jobs/{job}/events?from={start}{'&follow=1' if follow else ''}"
        with self._open("GET", path) as reply:
            for line in reply:
                if not line.strip():  # a sign of life
                    continue
                if not line.endswith(b"\n"):
                    raise OSError("the stream was cut")
                yield json.loads(line)

    def _where(self) -> tuple[str, str]:
        """Address and token of the server. Raises OSError where nothing says."""
        if self.url:
            return self.url, os.environ.get("DECKSMITH_EVAL_TOKEN", "")
        found = worker.read(self.address) if self.address else {}
        if not isinstance(found.get("url"), str):
            raise OSError(
                f"{self.address}: no server says there where it is; "
                "start one with eval-serve, or name it with --url"
            )
        return found["url"], os.environ.get("DECKSMITH_EVAL_TOKEN") or str(found.get("token"))

    @contextlib.contextmanager
    def _open(
        self, method: str, path: str, body: dict[str, Any] | None = None
    ) -> Iterator[HTTPResponse]:
        url, token = self._where()
        request = urllib.request.Request(
            url.rstrip("/") + path,
            None if body is None else json.dumps(body).encode(),
            method=method,
            headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
        )
        with trainer.OPENER.open(request, timeout=60) as reply:
            yield reply

    def _patiently(self, work: Callable[[], Any]) -> Any:
        """What `work()` returns, tried again while the server cannot be reached."""
        until, wait = time.monotonic() + self.patience, 0.2
        while True:
            try:
                return work()
            except urllib.error.HTTPError as error:
                said, sentence = _refusal(error)
                # A job that was to be complete or nothing, and is not: that is its answer.
                if error.code == 500 and "raw_metrics" in said:
                    return said
                if error.code < 500:
                    raise REFUSALS.get(error.code, cli.BadData)(sentence) from None
                seen = sentence
            except (OSError, http.client.HTTPException, ValueError) as error:
                seen = str(error)
            if time.monotonic() + wait > until:
                raise cli.TryAgain(f"no answer from the server: {seen}")
            time.sleep(wait)
            wait = min(5, 2 * wait)


def _refusal(error: urllib.error.HTTPError) -> tuple[dict[str, Any], str]:
    """What a server says of an error: its JSON object, empty where there is none, and the sentence
    in it."""
    with error:
        text = error.read()
    try:
        said = json.loads(text)
        return said, str(said["error"])
    except (ValueError, KeyError, TypeError):
        return {}, f"HTTP {error.code}"
