"""Serve evaluations to a training loop: the queue behind two kinds of routes.

`POST /evaluate` is the eval delegate of slime up to v0.2.1, of its old example on slime's head,
and of miles: it blocks until all benchmarks ran. `/jobs` is the same queue for everybody else.
"""

import asyncio
import contextlib
import json
import os
import signal
import socket
from collections.abc import AsyncIterator
from pathlib import Path

from aiohttp import web as http

from decksmith.bench.evalserver import request as requests
from decksmith.bench.evalserver.jobqueue import Queue
from decksmith.bench.evalserver.jobs import Job
from decksmith.bench.evalserver.request import Settings
from decksmith.core import cli, stream, validation, web

# Seconds between blanks to whoever waits: each restarts the client's read timeout, and a second is
# the shortest there is.
HEARTBEAT = 0.5
LISTED = 1000  # jobs that a list names


class Routes:
    """The handlers of the queue's routes."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue

    def routes(self) -> list[http.RouteDef]:
        return [
            http.get("/health", self.health),
            http.post("/evaluate", self.evaluate),
            http.post("/jobs", self.submit),
            http.get("/jobs", self.listed),
            http.get("/jobs/{id}", self.shown),
            http.get("/jobs/{id}/result", self.result),
            http.post("/jobs/{id}/cancel", self.cancel),
        ]

    def _job(self, request: http.Request) -> Job:
        job = self.queue.jobs.get(request.match_info["id"])
        if job is None:
            raise http.HTTPNotFound(text="there is no such job")
        return job

    # Asking

    async def evaluate(self, request: http.Request) -> http.StreamResponse:
        body, run = validation.parse(await request.read()), request.headers.get("X-Run-Id")
        if body.get("benchmarks") == []:
            warning = "no benchmarks were asked for"
            return http.json_response(
                {"job_id": None, "warning": warning, "raw_metrics": {}, "runs": []}
            )
        job, _ = await self.queue.submit(body, run, "evaluate")
        return await self._answered(request, job)

    async def submit(self, request: http.Request) -> http.Response:
        body = validation.parse(await request.read())
        job, created = await self.queue.submit(body, request.headers.get("X-Run-Id"))
        said = {"job_id": job.id, "status": job.state["status"], "created": created}
        return http.json_response(said, status=202)

    async def cancel(self, request: http.Request) -> http.Response:
        job = self._job(request)
        await self.queue.cancel(job)
        return http.json_response({"job_id": job.id, "status": job.state["status"]})

    # Looking

    async def listed(self, request: http.Request) -> http.Response:
        run, status = request.query.get("run"), request.query.get("status")
        found = [
            job
            for job in reversed(self.queue.jobs.values())
            if run in (None, job.request["run"]) and status in (None, job.state["status"])
        ]
        brief = [job.brief() for job in found[:LISTED]]
        return http.json_response({"jobs": brief, "total": len(found)})

    async def shown(self, request: http.Request) -> http.Response:
        return http.json_response(self._job(request).full())

    async def result(self, request: http.Request) -> http.StreamResponse:
        return await self._answered(request, self._job(request))

    async def _answered(self, request: http.Request, job: Job) -> http.StreamResponse:
        """The job's result as soon as it is there; until then blanks, which JSON allows in
        front."""
        job.waiting += 1
        try:
            response = await self._blanks(request, job)
            if response and job.failed_hard:
                # It has 200 on it already: it is cut, and whoever asks again gets the 500.
                _cut(request)
                return response
            error = {"error": job.troubles()} if job.failed_hard else {}
            if response is None:
                response = await _json_stream(request, 500 if job.failed_hard else 200)
            said = {**error, **job.answer()}
            text = json.dumps(said, ensure_ascii=False, allow_nan=False)
            await response.write(text.encode("utf-8", "replace"))
            await response.write_eof()
            if request.transport is not None and not request.transport.is_closing():
                job.deliver()
            return response
        except asyncio.CancelledError:
            # We end, or the client has gone: never a last chunk behind half an answer.
            _cut(request)
            raise
        finally:
            job.waiting -= 1

    async def _blanks(self, request: http.Request, job: Job) -> http.StreamResponse | None:
        """Send blanks until a job ended: the response that was begun, or None where it ended
        before the first."""
        response = None
        while not job.ended:
            try:
                await asyncio.wait_for(job.done.wait(), HEARTBEAT)
            except TimeoutError:
                if response is None:
                    response = await _json_stream(request, 200)
                await response.write(b" ")
        return response

    # The server

    async def health(self, request: http.Request) -> http.Response:
        return http.json_response({"status": "ok"})


async def _json_stream(request: http.Request, status: int) -> http.StreamResponse:
    """A response that is begun, of which the body comes later."""
    json_type = {"Content-Type": "application/json"}
    response = http.StreamResponse(status=status, headers=json_type)
    await response.prepare(request)
    return response


def _cut(request: http.Request) -> None:
    if request.transport is not None:
        request.transport.abort()


def serve(settings: Settings, *, address: Path, host: str = "127.0.0.1", port: int = 0) -> None:
    """Serve until SIGTERM (benchmarks go on by themselves) or Ctrl-C (they are ended). Without a
    port it takes the one that it had last time, so that clients find it again after a restart.
    Raises cli.TryAgain for a root that another server has, cli.BadConfig for a protocol or a
    benchmark that is not there."""
    root = Path(settings.root)
    for name in requests.names():
        # What is wrong with one is said now, and none is read while somebody waits.
        requests.defaults(name, settings)

    @contextlib.asynccontextmanager
    async def make(url: str) -> AsyncIterator[http.Application]:
        queue = Queue(settings)
        token = web.secret(root, "DECKSMITH_EVAL_TOKEN")
        async with queue:
            _end_all_on_ctrl_c(queue)
            stream.write(root / "port", url.rpartition(":")[2])
            job, node = os.environ.get("SLURM_JOB_ID"), socket.gethostname()
            facts = {"url": url, "token": token, "job": job, "host": node}
            with web.announced(Path(address), facts):
                cli.say(f"{url} evaluates; address and token are in {address}")
                app = web.application(token=token)
                app.router.add_routes(Routes(queue).routes())
                yield app

    web.run(make, host, port or web.last_port(root, host))


def _end_all_on_ctrl_c(queue: Queue) -> None:
    """Have SIGINT end the benchmarks, and then us as SIGTERM does."""
    loop = asyncio.get_running_loop()

    def interrupted() -> None:
        cli.say("ending the benchmarks; the next eval-serve goes on from what they have")
        ending = loop.create_task(queue.end_all())
        queue.unbroken.add(ending)
        ending.add_done_callback(lambda _: signal.raise_signal(signal.SIGTERM))

    loop.add_signal_handler(signal.SIGINT, interrupted)
