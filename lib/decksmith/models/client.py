"""The one client for OpenAI-compatible chat endpoints: requests, retries, budget, cost.

One request and one answer are plain aiohttp; what streams is read by the `openai` package, whose import and
layers cost more CPU time than short replies do.
"""

import asyncio
import functools
import json
import os
import random
import re
import time
from collections.abc import Callable, Mapping
from typing import Any

from decksmith.core import cli, masking
from decksmith.core.records import Record
from decksmith.core.stream import Fault, fingerprint
from decksmith.models import context, embedded, endpoints, registry, replies
from decksmith.models.pace import Clock, Gate
from decksmith.models.registry import Model
from decksmith.models.replies import Ear, Reply
from decksmith.models.servers import Pool, Server
from decksmith.models.trouble import ENDS_ALL, Overflow, Trouble

NO_TOOLS = (
    "the server refused a request with tools; this row needs a model and a server that call tools (vLLM: "
    "--enable-auto-tool-choice --tool-call-parser NAME, llama-server: --jinja); it said: "
)
SAID = ("model", "messages", "prompt", "tools")  # of a request: not how, but what is asked


def stands(value: Record, shorten: bool) -> bool:
    """Whether a kept value of gen is what asking with or without `shorten` would give."""
    error = value.get("error") or {}
    if error.get("class") == "context-overflow":
        return not shorten or bool(error.get("shortened"))  # else it may fit now
    return shorten or not value.get("shortened")


def asked(body: Record) -> Record:
    """What of a request's body `gen` keeps: `sampling`, all but model, messages, prompt and tools as it was posted, and `request`, the fingerprint of
    the whole body less the model's name: two models with equal ones were asked the same."""
    return {
        "sampling": {key: value for key, value in body.items() if key not in SAID},
        "request": fingerprint({key: value for key, value in body.items() if key != "model"}),
    }


def _pause(trouble: Trouble, attempt: int) -> float:
    """Seconds until the next attempt: what the server says, else twice as long each time, with
    chance in it, so that those who wait do not come back together."""
    if trouble.after is not None:
        return trouble.after
    longest: float = min(60, 0.5 * 2 ** min(attempt, 8))
    return random.uniform(0.5, 1) * longest


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
        breaker: int = 10,
        blame: str = "infra",
    ) -> None:
        """patience: seconds for all attempts at a request, from the first on; None: 900, or the entry's timeout where that is more.
        blame: the kind of fault of a request that does not fit the context (docs/records.md)."""
        self.model, self.jobs, self.budget, self.blame = model, jobs or model.jobs, budget, blame
        self.retries, self.breaker = retries, breaker
        self.patience = max(900.0, model.timeout) if patience is None else patience
        self.spent, self.reserved, self.dearest = 0.0, 0.0, 0.0  # USD; dearest: of one request
        self.failed_in_a_row = 0
        self.broken: str | None = None  # why nothing is asked any more
        self.gate = Gate(self.jobs)
        self.pool: Pool | None = None
        self.lease: embedded.Lease | None = None
        self.lock = asyncio.Lock()
        self.key = "none"
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
        base_url: str | list[str] | tuple[str, ...] | None = None,
        slug: str | None = None,
        key_env: str | None = None,
        **options: Any,
    ) -> "Client":
        """A client for a registry name or an endpoint; raises cli.BadConfig for an unknown model or a missing key."""
        return cls(registry.model(name, base_url, slug, key_env), **options)

    @property
    def served(self) -> Record | None:
        """What the running servers of a "serve:" entry answer with, `{"engine", "base", "adapter"}`: two replies belong together only where
        it is the same. None for any other entry, and while no server runs. Raises cli.BadData when the servers differ."""
        return endpoints.identity(self.model.slug) if self.model.base_url == "serve:" else None

    def request(
        self,
        messages: list[Record],
        sampling: Mapping[str, Any] | None = None,
        *,
        schema: Record | None = None,
        seed: int | None = None,
    ) -> Record:
        """The exact JSON body that `ask` posts. `schema` asks for structured output (response_format json_schema). A last message of the
        assistant's is continued: vLLM and sglang are told so, an endpoint that knows no such fields names them in its `drop`."""
        body: Record = {
            "model": self.model.slug,
            "messages": messages,
            **self.model.params,
            **(sampling or {}),
        }
        if seed is not None:
            body["seed"] = seed
        if schema is not None:
            body["response_format"] = {
                "type": "json_schema",
                "json_schema": {"name": "reply", "strict": True, "schema": schema},
            }
        if messages and messages[-1].get("role") == "assistant":
            body |= {"add_generation_prompt": False, "continue_final_message": True}
        for name in self.model.drop:
            body.pop(name, None)
        for old, new in self.model.rename.items():
            if old in body:
                body[new] = body.pop(old)
        return body | self.model.extra_body

    def completion(
        self, prompt: str, sampling: Mapping[str, Any] | None = None, *, seed: int | None = None
    ) -> Record:
        """As `request`, for a text that a base model goes on from, without a chat template."""
        body = self.request([], sampling, seed=seed)
        return {("prompt" if name == "messages" else name): body[name] for name in body} | {
            "prompt": prompt
        }

    async def ask(
        self,
        messages: list[Record],
        sampling: Mapping[str, Any] | None = None,
        *,
        schema: Record | None = None,
        seed: int | None = None,
    ) -> Reply:
        """Ask once, patiently; returns a Reply. Raises Fault("infra", ...) when the endpoint gives no usable answer:
        `retriable=False` when it refuses this request for good."""
        return await self.post(self.request(messages, sampling, schema=schema, seed=seed))

    async def stream(
        self,
        messages: list[Record],
        sampling: Mapping[str, Any] | None = None,
        *,
        heard: replies.Heard,
        schema: Record | None = None,
        seed: int | None = None,
    ) -> Reply:
        """`ask`, and meanwhile `heard(kind, piece)` is called with what arrives: `reasoning` and `text`, parted as in the Reply; `turn` (with
        an empty piece) says that all text so far was reasoning, where a template had opened the thought. Until something was heard it is as
        patient as `ask`; after that a failure is Fault("infra", "cut-off", ..). What `heard` raises ends the request, and so does
        cancelling; the endpoint then stops writing."""
        return await self.post(
            self.request(messages, sampling, schema=schema, seed=seed), Ear(heard)
        )

    async def post(self, body: Record, ear: Ear | None = None) -> Reply:
        """`ask` for a body made by `request`. Raises Overflow for one that does not fit the context, unless the entry says `shorten`."""
        clock = Clock(self.patience)
        try:
            reply = await self._patiently(body, ear, clock)
        except Overflow as over:
            if not self.model.shorten:
                over.error["message"] += (
                    "; `shorten` in the entry, or --shorten, asks for as many tokens as fit"
                )
                raise
            reply = await self._shortened(body, over, ear, clock)
        reply.cut_by = replies.cut_by(reply, context.limit_of(body)[1])
        return reply

    async def _shortened(
        self, body: Record, over: Overflow, ear: Ear | None, clock: Clock
    ) -> Reply:
        """The reply to `body` with the most max_tokens that fit, as far as the endpoint says how many that are."""
        name, asked = context.limit_of(body)
        limit, paid, refusals = asked or 0, 0.0, 0
        while name is not None:
            refusals += 1
            try:
                room = over.said.room()
                if room is None and over.said.least is not None and over.said.context:
                    # vLLM names a prompt's least number of tokens; the usage of the shortest reply
                    # has the true one.
                    probe = await self._patiently({**body, name: 1}, None, clock)
                    paid += probe.usage["cost"] or 0.0
                    room = over.said.context - probe.usage["prompt_tokens"]
                limit = _fewer(limit, room, refusals)
                if limit < 1:
                    break
                reply = await self._patiently({**body, name: limit}, ear, clock)
            except Overflow as again:
                over = again
                continue
            if reply.usage["cost"] is not None:
                reply.usage["cost"] = round(reply.usage["cost"] + paid, 8)
            reply.shortened = {"asked": asked, "sent": limit}
            return reply
        over.error["shortened"] = True  # it was tried
        raise over

    async def _patiently(self, body: Record, ear: Ear | None, clock: Clock) -> Reply:
        """One body, asked until there is a reply, a refusal, or no patience left."""
        failures, wait = 0, 0.0
        trouble: Trouble | None = None
        attempt = 0
        while True:
            attempt += 1
            try:
                async with asyncio.timeout(clock.left() if clock.started else None):
                    await self.gate.enter(wait)
            except TimeoutError:
                late = Trouble("timeout", f"not asked again in {clock.patience:.0f} s")
                raise self._give_up(trouble or late, attempt) from None
            try:
                if self.broken:
                    raise Fault("infra", "circuit-open", self.broken)
                clock.start()
                reply = await self._paid(body, ear, clock, attempt)
                self.gate.widen()
                self.failed_in_a_row = 0
                return reply
            except Trouble as error:
                trouble = error
                self._hopeless(trouble, body, ear)
                if trouble.elsewhere and clock.left() > 0:  # another server takes it, at once
                    wait = 0.0
                    continue
                failures += trouble.status != 429
                wait = _pause(trouble, attempt)
                if trouble.status == 429:
                    self.gate.narrow(wait)
                if failures > self.retries or wait >= clock.left():
                    raise self._give_up(trouble, attempt) from None
            finally:
                self.gate.leave()

    async def _paid(self, body: Record, ear: Ear | None, clock: Clock, attempt: int) -> Reply:
        """One attempt, its price put aside meanwhile. Raises Trouble, and Fault where the budget
        does not allow it."""
        reserve = self._reserve(body)
        begun, reply = time.monotonic(), None
        try:
            data = await self._once(body, min(self.model.timeout, clock.left()), ear)
            reply = self._reply(data, time.monotonic() - begun, attempt)
            return reply
        finally:
            self.reserved -= reserve
            # Written and paid for, though nobody says how much.
            if reply is None and ear and ear.letters:
                asked = len(json.dumps(_conversation(body))) / 4
                price = self._price(asked, ear.letters / 4) if self.model.price else self.dearest
                self.spent += price

    def _hopeless(self, trouble: Trouble, body: Record, ear: Ear | None) -> None:
        """Raises Fault or Overflow for what another attempt does not mend."""
        if ear and ear.letters:
            raise Fault("infra", "cut-off", f"the reply was cut off: {trouble}") from None
        if trouble.overflow:
            limit = context.limit_of(body)[1]
            raise Overflow(self.blame, trouble.overflow, limit, str(trouble)) from None
        if unable := _unable(trouble, body):
            raise Fault("infra", *unable, retriable=False, status=trouble.status) from None
        if trouble.final:
            raise self._give_up(trouble) from None

    async def close(self) -> None:
        """Close connections and give the embedded engine back."""
        if self.pool:
            await self.pool.close()
        if self.lease:
            self.lease.close()

    def _give_up(self, trouble: Trouble, attempts: int = 1) -> Fault:
        """The fault that ends a request; after too many in a row, or one that ends all, nothing is asked any more."""
        status = trouble.status or None
        if trouble.status in ENDS_ALL:
            self.broken = f"{self.model.base_url} said {trouble.status}, {ENDS_ALL[trouble.status]}: {trouble}"
            if self.model.key_env:
                self.broken += f" (key from {self.model.key_env})"
            return Fault("infra", trouble.cls, self.broken, status=status)
        if trouble.final:
            return Fault("infra", trouble.cls, str(trouble), retriable=False, status=status)
        self.failed_in_a_row += 1
        if self.failed_in_a_row >= self.breaker and not self.broken:
            self.broken = (
                f"stopped asking {self.model.base_url}: {self.failed_in_a_row} requests in a row failed after retries; "
                f"the last said: {trouble}"
            )
            cli.say(self.broken)
        return Fault(
            "infra", trouble.cls, f"{trouble} (gave up after {attempts} attempts)", status=status
        )

    def _reserve(self, body: Record) -> float:
        """Set money aside for a request, so that those in flight cannot break the budget together."""
        if self.budget is None:
            return 0.0
        amount = self.dearest
        if self.model.price:
            limit = next((body[name] for name in context.LIMITS if name in body), 0)
            letters = len(json.dumps(_conversation(body), ensure_ascii=False).encode())
            amount = max(amount if not limit else 0.0, self._price(letters / 2, limit))
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

    async def _connect(self) -> Pool:
        async with self.lock:
            if self.pool is None:
                url = self.model.base_url
                if url.startswith(registry.FILES):
                    raise cli.BadConfig(
                        f"{self.model.name} is a folder of decks ({url}) and answers nothing; "
                        "chat-generate reads it, `make baseline` reports it"
                    )
                if url.startswith(registry.COMMAND):
                    raise cli.BadConfig(
                        f"{self.model.name} is a command ({url}), which leaves one deck for each request; "
                        "chat-generate runs it, nothing else can ask it"
                    )
                find: Callable[[], list[str]] | None = url.split if " " in url else None
                if url == "engine:":
                    self._embedded_answers()
                    self.lease = await asyncio.to_thread(embedded.lease, model=self.model.slug)
                    url = self.lease.base_url
                elif url == "serve:":
                    find = functools.partial(endpoints.addresses, self.model.slug, self.served)
                pool = Pool(self.model, self.key, self.jobs, find or (lambda: [url]))
                if find:
                    try:
                        await pool.start()
                    except BaseException:
                        await pool.close()
                        raise
                self.pool = pool
            return self.pool

    def _embedded_answers(self) -> None:
        """Raise cli.BadConfig where LLAMA_SERVER would answer in the embedded model's name."""
        entry, server = self.model, os.environ.get("LLAMA_SERVER")
        if server and entry.name != "local" and entry.slug == embedded.NAME:
            raise cli.BadConfig(
                f"{entry.name} is the embedded model, and LLAMA_SERVER={server} would answer in its name; "
                "unset it, or ask that server: MODEL=local"
            )

    async def _once(self, body: Record, seconds: float, ear: Ear | None = None) -> Any:
        """One request within `seconds`, whatever the endpoint does meanwhile: the parsed JSON, or Trouble."""
        pool = await self._connect()
        server = pool.choose()
        asked = context.limit_of(body)[1]
        try:
            async with asyncio.timeout(seconds):
                data, headers = await server.during(
                    self._listen(pool, server, body, ear)
                    if ear
                    else self._fetch(pool, server, body)
                )
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if not server.trouble or (current and current.cancelling()):
                raise
            raise Trouble(
                "connection", f"{server.url}: {server.trouble}", elsewhere=pool.free()
            ) from None
        except TimeoutError:
            raise Trouble("timeout", f"no whole reply in {seconds:.3g} s") from None
        except OSError as error:
            raise await self._lost(pool, server, error) from None
        except ValueError as error:
            raise Trouble("malformed", f"the endpoint's reply is not JSON ({error})") from None
        if (
            isinstance(data, dict)
            and isinstance(data.get("error"), dict)
            and not data.get("choices")
        ):
            code = data["error"].get("code")  # some gateways wrap a failure in a 200
            raise Trouble.status_error(
                code if isinstance(code, int) else 502, json.dumps(data), headers, asked
            )
        return data

    async def _fetch(
        self, pool: Pool, server: Server, body: Record
    ) -> tuple[Any, Mapping[str, str]]:
        text = json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        status, said, headers = await pool.post(server, path(body), text.encode())
        if not 200 <= status < 300:
            asked = context.limit_of(body)[1]
            raise Trouble.status_error(status, said.decode(errors="replace"), headers, asked)
        return json.loads(said), headers

    async def _listen(
        self, pool: Pool, server: Server, body: Record, ear: Ear
    ) -> tuple[Any, Mapping[str, str]]:
        """`_stream`, with the openai package's errors as ours: Trouble, TimeoutError, ConnectionError."""
        import httpx2
        import openai

        try:
            return await self._stream(pool, server, body, ear)
        except openai.APIStatusError as error:
            asked = context.limit_of(body)[1]
            raise Trouble.status_error(
                error.status_code, error.response.text, error.response.headers, asked
            ) from None
        except openai.APIConnectionError as error:
            # The aiohttp transport calls a refused connection a timeout of connecting.
            late = isinstance(error, openai.APITimeoutError)
            if late and not isinstance(error.__cause__, httpx2.ConnectTimeout):
                raise TimeoutError from None
            raise ConnectionError(str(error.__cause__ or error)) from None
        except openai.APIError as error:  # a failure that came as an event of the stream
            code = error.body.get("code") if isinstance(error.body, dict) else None
            asked = context.limit_of(body)[1]
            raise Trouble.status_error(
                code if isinstance(code, int) else 502, error.message, {}, asked
            ) from None

    async def _stream(
        self, pool: Pool, server: Server, body: Record, ear: Ear
    ) -> tuple[Any, Mapping[str, str]]:
        """A streamed reply, put together as if it had come in one piece; what cannot stream answers in one, and is heard in one."""
        import httpx2
        from openai import AsyncStream

        more = {"stream": True, "stream_options": {"include_usage": True}}
        more = {name: value for name, value in more.items() if name not in self.model.drop}
        stream = await pool.sdk(server).post(
            "/chat/completions",
            body=body | more,
            cast_to=object,
            stream=True,
            stream_cls=AsyncStream[object],
        )
        try:
            headers = stream.response.headers
            if "json" in headers.get("content-type", ""):
                data = json.loads(await stream.response.aread())
                for choice in (data.get("choices") or [])[:1] if isinstance(data, dict) else []:
                    ear.hear(choice.get("message"))
                    ear.end()
                return data, headers
            finish, usage = None, None
            named: Record = {}
            async for chunk in stream:
                if not isinstance(chunk, dict):
                    raise ValueError("an event that is no object")
                usage = chunk.get("usage") or usage
                named |= {name: chunk[name] for name in replies.NAMED if chunk.get(name)}
                for choice in (chunk.get("choices") or [])[:1]:
                    ear.hear(choice.get("delta"))
                    finish = choice.get("finish_reason") or finish
            if finish is None:
                raise Trouble("connection", f"{server.url}: the stream ended before the reply did")
            ear.end()
            message = {"content": "".join(ear.content), "reasoning": "".join(ear.reasoning)}
            return {
                **named,
                "choices": [{"message": message, "finish_reason": finish}],
                "usage": usage,
            }, headers
        except (AttributeError, TypeError, KeyError) as error:
            raise ValueError(f"an event of another form, {error!r}") from None
        except httpx2.TimeoutException as error:
            raise Trouble("timeout", f"{server.url}: {error!r}") from None
        except httpx2.TransportError as error:
            raise Trouble("connection", f"{server.url}: {error!r}") from None
        finally:
            await stream.close()

    async def _lost(self, pool: Pool, server: Server, error: Exception) -> Trouble:
        """The trouble of a connection that failed. Of several servers, one that does not answer a look either is left alone; an embedded
        engine that was killed is forgotten, so that the next attempt starts another."""
        async with self.lock:
            if self.lease and self.pool is pool:
                self.lease.close()
                self.pool = self.lease = None
        if pool.watcher:
            await pool.look(server)
        return Trouble(
            "connection",
            f"{server.url}: {error}",
            elsewhere=bool(server.trouble) and pool.free(),
        )

    def _reply(self, data: Any, took: float, attempts: int) -> Reply:
        """The reply in an endpoint's JSON, and what it cost: by the endpoint's word, else by the registry's price."""
        reply = replies.read(data, took, attempts)
        usage = reply.usage
        if usage["cost"] is None and self.model.price:
            cost = self._price(usage["prompt_tokens"], usage["completion_tokens"])
            usage["cost"] = round(cost, 8)
        self.spent += usage["cost"] or 0.0
        self.dearest = max(self.dearest, usage["cost"] or 0.0)
        return reply


def path(body: Record) -> str:
    """Where a body is posted, behind the base URL."""
    return "/completions" if "prompt" in body else "/chat/completions"


def _unable(trouble: Trouble, body: Record) -> tuple[str, str] | None:
    """`(class, message)` where a server lacks what this row needs and others may not; None else."""
    if "prompt" in body and trouble.status in (404, 405, 501):
        said = f"the server has no {path(body)}, which a row with a prompt is asked at; it said: {trouble}"
        return "no-completions", said
    speaks = re.search(r"\btools?\b|tool[_-]", str(trouble), re.IGNORECASE)
    begun = any(one.get("role") == "tool" for one in body.get("messages") or ())
    if "tools" in body and not begun and speaks and trouble.status in (400, 404, 422, 500, 501):
        return "no-tools", NO_TOOLS + str(trouble)
    looks = re.search(r"multi-?modal|image", str(trouble), re.IGNORECASE)
    if looks and trouble.status in (400, 404, 415, 422, 500, 501) and _has_picture(body):
        said = f"the model takes no pictures, and this row has one; the server said: {trouble}"
        return "no-pictures", said
    return None


def _has_picture(body: Record) -> bool:
    contents = [one.get("content") for one in body.get("messages") or ()]
    parts = [part for content in contents if isinstance(content, list) for part in content]
    return any(part.get("type") == "image_url" for part in parts)


def _conversation(body: Record) -> list[Any]:
    """What the model reads of a body, for a guess at its tokens."""
    return [body[name] for name in ("messages", "prompt", "tools") if name in body]


def _fewer(limit: int, room: int | None, refusals: int) -> int:
    """The next number of tokens to ask for after so many refusals, the last of `limit`; `room` fit as far as the endpoint said."""
    if room is not None and room < 1:
        return 0
    if room is None or refusals > 3:
        return limit // 2
    return room if room < limit else limit - 1  # sglang wants one token more than it says
