"""The one client for OpenAI-compatible chat endpoints: requests, retries, budget, cost."""

import asyncio
import functools
import json
import os
import random
import re
import time
from collections.abc import Callable, Mapping
from typing import Any, Self

from decksmith.core import cli, masking
from decksmith.core.records import Record
from decksmith.core.stream import Fault, fingerprint
from decksmith.models import embedded, errors, registry, replies, servers, stopping
from decksmith.models.errors import ENDS_ALL, RequestError
from decksmith.models.records import Messages, Served, StopRule
from decksmith.models.registry import Model
from decksmith.models.replies import Reply, StreamSplitter
from decksmith.models.servers import ModelServer, ServerPool, path

NO_TOOLS = (
    "the server refused a request with tools; this row needs a model and a server that call tools (vLLM: "
    "--enable-auto-tool-choice --tool-call-parser NAME, llama-server: --jinja); it said: "
)
LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")  # a reply's most tokens
SAID = ("model", "messages", "prompt", "tools")  # of a request: not how, but what is asked


def asked(body: Record) -> Record:
    """What of a request's body `gen` keeps: `sampling`, all but model, messages, prompt and tools as it was posted, and `request`, the
    fingerprint of the whole body less the model's name: two models with equal ones were asked the same."""
    return {
        "sampling": {key: value for key, value in body.items() if key not in SAID},
        "request": fingerprint({key: value for key, value in body.items() if key != "model"}),
    }


class RequestLimiter:
    """At most `width` requests at once. A 429 halves the width and holds everybody back for a while; successes widen it again
    (additive increase, multiplicative decrease, as TCP does)."""

    def __init__(self, jobs: int) -> None:
        self.jobs, self.width, self.inside, self.not_before = jobs, float(jobs), 0, 0.0
        self.room = asyncio.Event()  # perhaps: who wakes looks again

    async def enter(self, wait: float) -> None:
        """Come in after `wait` seconds, and when there is room."""
        if wait:
            await asyncio.sleep(wait)
        while True:
            if (hold := self.not_before - time.monotonic()) > 0:
                await asyncio.sleep(hold + random.uniform(0, 0.1))
            elif self.inside >= int(self.width):
                self.room.clear()
                await self.room.wait()
            else:
                self.inside += 1
                return

    def leave(self) -> None:
        """Make room for the next."""
        self.inside -= 1
        self.room.set()

    def widen(self) -> None:
        """After a success."""
        self.width = min(self.jobs, self.width + 1 / self.width)
        self.room.set()

    def narrow(self, wait: float) -> None:
        """After a 429 that asks for `wait` seconds."""
        now = time.monotonic()
        if now >= self.not_before:  # once per storm, not once per request of it
            self.width = max(1.0, self.width / 2)
        self.not_before = max(self.not_before, now + wait)


class Client:
    """Asks one model. All requests share one gate (rate and concurrency), one budget and one circuit breaker; of several servers each
    request goes to the least busy one that answers."""

    def __init__(
        self,
        model: Model,
        *,
        jobs: int | None = None,
        budget: float | None = None,
        retries: int = 5,
        patience: float | None = None,
        blame: str = "infra",
    ) -> None:
        """patience: seconds for all attempts at a request, from the first on; None: 900, or the entry's timeout where that is more.
        blame: the kind of fault of a request that does not fit the context (docs/records.md)."""
        self.model, self.jobs, self.budget, self.blame = model, jobs or model.jobs, budget, blame
        self.retries, self.breaker = retries, 10
        self.patience = max(900.0, model.timeout) if patience is None else patience
        self.spent, self.reserved, self.dearest = 0.0, 0.0, 0.0  # USD; dearest: of one request
        self.failed_in_a_row = 0
        self.broken: str | None = None  # why nothing is asked any more
        self.gate = RequestLimiter(self.jobs)
        self.pool: ServerPool | None = None
        self.lease: embedded.Lease | None = None
        self.lock = asyncio.Lock()
        self.key = "none"
        if lacking := registry.VARIABLE.search(model.base_url):
            said = f"{model.name} needs {lacking[1]}, a part of its address {model.base_url}"
            raise cli.BadConfig(f"{said}: set it in the environment or in .env")
        if model.key_env:
            self.key = os.environ.get(model.key_env, "")
            if not self.key:
                raise cli.BadConfig(
                    f"{model.name} needs a key: set {model.key_env} in the environment or in .env"
                )
            masking.add(self.key, model.key_env)
        if budget is not None and not (model.price or model.reports_cost):
            raise cli.BadConfig(
                f"a budget needs a price, and [{model.name}] in assets/models.toml or data/models has neither `price` nor "
                "`reports_cost`; add price = { prompt = 1, completion = 4 }: USD for a million tokens"
            )

    @classmethod
    def open(
        cls,
        name: str | None = None,
        *,
        base_url: str | None = None,
        slug: str | None = None,
        key_env: str | None = None,
        **options: Any,
    ) -> Self:
        """A client for a registry name or an endpoint; raises cli.BadConfig for an unknown model or a missing key."""
        return cls(registry.model(name, base_url, slug, key_env), **options)

    @property
    def served(self) -> Served | None:
        """What the running servers of a "serve:" entry answer with: two replies belong together only where it is the same. None for any
        other entry, and while no server runs. Raises cli.BadData when the servers differ."""
        return servers.served(self.model.slug) if self.model.base_url == "serve:" else None

    def request(
        self,
        messages: Messages,
        sampling: Mapping[str, object] | None = None,
        *,
        schema: Mapping[str, object] | None = None,
        seed: int | None = None,
    ) -> Record:
        """The exact JSON body that `ask` posts. `schema` asks for structured output (response_format json_schema). A last message of the
        assistant's is continued: vLLM and sglang are told so, an endpoint that knows no such fields names them in its `drop`."""
        named = {"model": self.model.slug, "messages": messages}
        body: Record = {**named, **self.model.params, **(sampling or {})}
        if seed is not None:
            body["seed"] = seed
        if schema is not None:
            strict = {"name": "reply", "strict": True, "schema": schema}
            body["response_format"] = {"type": "json_schema", "json_schema": strict}
        if messages and messages[-1].get("role") == "assistant":
            body |= {"add_generation_prompt": False, "continue_final_message": True}
        for name in self.model.drop:
            body.pop(name, None)
        for old, new in self.model.rename.items():
            if old in body:
                body[new] = body.pop(old)
        return body | self.model.extra_body

    def completion(
        self, prompt: str, sampling: Mapping[str, object], *, seed: int | None = None
    ) -> Record:
        """As `request`, for a text that a base model goes on from, without a chat template."""
        body = self.request([], sampling, seed=seed)
        del body["messages"]
        return body | {"prompt": prompt}

    async def ask(
        self,
        messages: Messages,
        sampling: Mapping[str, object] | None = None,
        *,
        schema: Mapping[str, object] | None = None,
        seed: int | None = None,
        on_chunk: replies.OnChunk | None = None,
    ) -> Reply:
        """Ask once, patiently; returns a Reply. Raises Fault("infra", ...) when the endpoint gives no usable answer:
        `retriable=False` when it refuses this request for good.

        on_chunk(kind, piece): called meanwhile with what arrives: `reasoning` and `text`, parted as in the Reply; `turn` (with an empty
        piece) says that all text so far was reasoning, where a template had opened the thought. Once something came, a failure is
        Fault("infra", "cut-off", ..). What it raises ends the request, and so does cancelling; the endpoint then stops writing."""
        body = self.request(messages, sampling, schema=schema, seed=seed)
        return await self.post(body, StreamSplitter(on_chunk) if on_chunk else None)

    async def post(self, body: Record, splitter: StreamSplitter | None = None) -> Reply:
        """`ask` for a body made by `request`. Where its `stop_early` holds (it is not posted) the reply is cut, and the stream of one
        that nobody listens to is left."""
        reply = await self._patiently(body, splitter)
        reply.cut_by = replies.cut_by(reply, _limit(body))
        return reply

    async def _patiently(self, body: Record, splitter: StreamSplitter | None) -> Reply:
        """One body, asked until there is a reply, a refusal, or no patience left."""
        now = asyncio.get_running_loop().time
        # The patience runs from the first attempt on: not while that waits for its turn.
        ends: float | None = None
        failures, attempt, wait = 0, 0, 0.0
        failed = RequestError("timeout", f"not asked again in {self.patience:.0f} s")
        while True:
            attempt += 1
            try:
                async with asyncio.timeout_at(ends):
                    await self.gate.enter(wait)
            except TimeoutError:
                raise self._give_up(failed, attempt) from None
            try:
                if self.broken:
                    raise Fault("infra", "circuit-open", self.broken)
                ends = ends or now() + self.patience
                reply = await self._paid(body, splitter, ends - now(), attempt)
                self.gate.widen()
                self.failed_in_a_row = 0
                return reply
            except RequestError as error:
                failed = error.with_traceback(None)
                failed.__context__ = None  # what was received goes, before the next attempt
                if lasting := self._lasting(failed, body, splitter):
                    raise lasting from None
                left = (ends or now()) - now()
                if failed.elsewhere and left > 0:  # another server takes it, at once
                    wait = 0.0
                    continue
                failures += failed.status != 429
                wait = _pause(failed, attempt)
                if failed.status == 429:
                    self.gate.narrow(wait)
                if failures > self.retries or wait >= left:
                    raise self._give_up(failed, attempt) from None
            finally:
                self.gate.leave()

    async def _paid(
        self, body: Record, splitter: StreamSplitter | None, left: float, attempt: int
    ) -> Reply:
        """One attempt, its price put aside meanwhile. Raises RequestError, and Fault where the budget does not allow it."""
        reserve = self._reserve(body)
        begun, reply = time.monotonic(), None
        body = dict(body)
        rule: StopRule | None = body.pop(stopping.NAME, None)
        asked = str(body["messages"][-1]["content"]) if body.get("messages") else ""
        if rule and not splitter and self._can_leave(body):
            splitter = stopping.Watch(rule, self.model.base_url == "engine:", asked)
        try:
            data = await self._once(body, min(self.model.timeout, left), splitter)
            reply = replies.read(data, time.monotonic() - begun, attempt)
            is_paid = any((self.model.price or {}).values())
            if is_paid or (splitter and splitter.enough):
                # What the endpoint does not count, or says was nothing.
                usage, text = reply.usage, reply.reasoning + reply.text
                written = splitter.guessed if splitter else replies.guessed(text)
                usage["prompt_tokens"] = usage["prompt_tokens"] or _prompt_tokens(body)
                usage["completion_tokens"] = usage["completion_tokens"] or written
            if rule:
                stopping.cut(reply, rule, asked)
            self._pay(reply)
            return reply
        finally:
            self.reserved -= reserve
            # Written and paid for, though nobody says how much.
            if reply is None and splitter and splitter.guessed:
                price = self._price(_prompt_tokens(body), splitter.guessed)
                self.spent += price if self.model.price else self.dearest

    def _can_leave(self, body: Record) -> bool:
        """Whether the stream of a reply may be left: not where only its end says what it cost, or it may call tools."""
        is_priced = bool(self.model.price) or not self.model.reports_cost
        return is_priced and "stream" not in self.model.drop and not {"tools", "prompt"} & set(body)

    def _pay(self, reply: Reply) -> None:
        """Note what a reply cost: by the registry's price at least, more by the endpoint's word."""
        usage = reply.usage
        if self.model.price:
            tokens = usage["prompt_tokens"] or 0, usage["completion_tokens"] or 0
            usage["cost"] = max(usage["cost"] or 0.0, round(self._price(*tokens), 8))
        self.spent += usage["cost"] or 0.0
        self.dearest = max(self.dearest, usage["cost"] or 0.0)

    def _lasting(
        self, failed: RequestError, body: Record, splitter: StreamSplitter | None
    ) -> Fault | None:
        """The fault of what another attempt does not mend; of one that ends all, nothing is asked any more."""
        status, words = failed.status, str(failed)
        if splitter and splitter.guessed:
            return Fault("infra", "cut-off", f"the reply was cut off: {words}")
        if failed.overflows:
            said = f"the request does not fit the model's context ({words})"
            return Fault(self.blame, "context-overflow", said, retriable=False)
        if unable := _unable(failed, body):
            return Fault("infra", *unable, retriable=False, status=status)
        if status in ENDS_ALL:
            self.broken = f"{self.model.base_url} said {status}, {ENDS_ALL[status]}: {words}"
            if self.model.key_env:
                self.broken += f" (key from {self.model.key_env})"
            return Fault("infra", failed.cls, self.broken, status=status)
        if failed.final:
            mend = (
                errors.remedy(words, {*body, *registry.DROPPED}, self.model.name)
                if status in (400, 422)
                else ""
            )
            return Fault("infra", failed.cls, words + mend, retriable=False, status=status)
        return None

    async def close(self) -> None:
        """Close connections and give the embedded engine back."""
        if self.pool:
            await self.pool.close()
        if self.lease:
            self.lease.close()

    def _give_up(self, failed: RequestError, attempts: int) -> Fault:
        """The fault that ends a request; after too many in a row nothing is asked any more."""
        self.failed_in_a_row += 1
        if self.failed_in_a_row >= self.breaker and not self.broken:
            self.broken = (
                f"stopped asking {self.model.base_url}: {self.failed_in_a_row} requests in a row "
                f"failed after retries; the last said: {failed}"
            )
            cli.say(self.broken)
        said = f"{failed} (gave up after {attempts} attempt{'s' * (attempts > 1)})"
        return Fault("infra", failed.cls, said, status=failed.status)

    def _reserve(self, body: Record) -> float:
        """Set money aside for a request, so that those in flight cannot break the budget together."""
        if self.budget is None:
            return 0.0
        amount = self.dearest
        if self.model.price:
            limit = _limit(body) or 0
            amount = max(amount if not limit else 0.0, self._price(_prompt_tokens(body), limit))
        if self.spent + self.reserved + amount > self.budget or self.spent >= self.budget:
            raise Fault(
                "infra",
                "budget",
                f"the budget of {self.budget} USD is used up ({self.spent:.4f} spent, "
                f"{self.reserved:.4f} in flight); run again with a larger --budget",
            )
        self.reserved += amount
        return amount

    def _price(self, prompt: float, completion: float) -> float:
        """USD for so many tokens of prompt and reply, by the registry; 0 where it names no price."""
        price = self.model.price or {"prompt": 0, "completion": 0}
        return float(prompt * price["prompt"] + completion * price["completion"]) / 1e6

    async def _connect(self) -> ServerPool:
        async with self.lock:
            if self.pool:
                return self.pool
            entry, url = self.model, self.model.base_url
            find: Callable[[], list[str]] = url.split
            if url.startswith((registry.FILES, registry.COMMAND)):
                raise cli.BadConfig(
                    f"{entry.name} is no endpoint ({url}); chat-generate reads or runs it, nothing else can ask it"
                )
            if url == "engine:":
                self.lease = await asyncio.to_thread(embedded.lease, model=entry.slug)
                find = self.lease.base_url.split
            elif url == "serve:":
                find = functools.partial(servers.addresses, entry.slug, self.served)
            pool = ServerPool(entry, self.key, find)
            if (said := self.served) and said["adapter"]:
                pool.more = servers.chosen(said["engine"], entry.slug)
            if url == "serve:" or " " in url:
                try:
                    await pool.start()
                except BaseException:
                    await pool.close()
                    raise
            self.pool = pool
            return pool

    async def _once(self, body: Record, seconds: float, splitter: StreamSplitter | None) -> Any:
        """One request within `seconds`, whatever the endpoint does meanwhile: the parsed JSON, or RequestError."""
        pool = await self._connect()
        server = pool.choose()
        try:
            async with asyncio.timeout(seconds):
                return await server.during(pool.exchange(server, body, splitter))
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if not server.trouble or (current and current.cancelling()):
                raise
            said = f"{server.url}: {server.trouble}"
            raise RequestError("connection", said, elsewhere=pool.any_answers()) from None
        except TimeoutError:
            raise RequestError("timeout", f"no whole reply in {seconds:.3g} s") from None
        except OSError as error:
            raise await self._lost(pool, server, error) from None
        except ValueError as error:
            said = f"the endpoint's reply cannot be used: {error}"
            raise RequestError("malformed", said) from None

    async def _lost(self, pool: ServerPool, server: ModelServer, error: Exception) -> RequestError:
        """That of a connection that failed. Of several servers, one that does not answer a look either is left alone; an embedded
        engine that was killed is forgotten, so that the next attempt starts another."""
        async with self.lock:
            if self.lease and self.pool is pool:
                self.lease.close()
                self.pool = self.lease = None
                await pool.close()
        if pool.watcher:
            await pool.look(server)
        elsewhere = bool(server.trouble) and pool.any_answers()
        return RequestError("connection", f"{server.url}: {error}", elsewhere=elsewhere)


def _limit(body: Record) -> int | None:
    """How many tokens the reply to a request may have; None where it does not say."""
    said = (body.get(name) for name in LIMITS)
    return next((n for n in said if isinstance(n, int) and not isinstance(n, bool)), None)


def _pause(failed: RequestError, attempt: int) -> float:
    """Seconds until the next attempt: what the server says, else twice as long each time, with
    chance in it, so that those who wait do not come back together."""
    if failed.after is not None:
        return failed.after
    longest: float = min(60, 0.5 * 2 ** min(attempt, 8))
    return random.uniform(0.5, 1) * longest


def _unable(failed: RequestError, body: Record) -> tuple[str, str] | None:
    """`(class, message)` where a server lacks what this row needs and others may not; None else."""
    status, words = failed.status, str(failed)
    if "prompt" in body and status in (404, 405, 501):
        said = f"the server has no {path(body)}, which a row with a prompt is asked at; it said: {words}"
        return "no-completions", said
    speaks = re.search(r"\btools?\b|tool[_-]", words, re.IGNORECASE)
    begun = any(one.get("role") == "tool" for one in body.get("messages") or ())
    if "tools" in body and not begun and speaks and status in (400, 404, 422, 500, 501):
        return "no-tools", NO_TOOLS + words
    looks = re.search(r"multi-?modal|image", words, re.IGNORECASE)
    if looks and status in (400, 404, 415, 422, 500, 501) and _has_picture(body):
        said = f"the model takes no pictures, and this row has one; the server said: {words}"
        return "no-pictures", said
    return None


def _has_picture(body: Record) -> bool:
    contents = [one.get("content") for one in body.get("messages") or ()]
    parts = [part for content in contents if isinstance(content, list) for part in content]
    return any(part.get("type") == "image_url" for part in parts)


def _prompt_tokens(body: Record) -> int:
    """How many tokens the model reads of a body, where nobody counts them: rather too many."""
    said = [body[name] for name in ("messages", "prompt", "tools") if name in body]
    return len(json.dumps(said, ensure_ascii=False).encode()) // 2
