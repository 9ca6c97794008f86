"""The one client for OpenAI-compatible chat endpoints: registry, retries, rate limits, reasoning, structured replies, cost.

The wire is the `openai` package with its aiohttp transport; its default transport costs four times the CPU at high concurrency
(a scan of every pooled connection on each request).
"""

import asyncio
import email.utils
import functools
import itertools
import json
import os
import random
import time
from dataclasses import dataclass, field

from decksmith.core import cli, masking
from decksmith.core.stream import Fault, fingerprint
from decksmith.models import context, endpoints, registry

RETRIED = {408, 409, 425, 429, 500, 502, 503, 504, 520, 522, 524, 529}
PULSE = float(os.environ.get("DECKSMITH_PULSE") or 2)  # of several servers: seconds between looks
PULSE_LIMIT, MISSES = (
    5 * PULSE,
    3,
)  # seconds for an answer; unanswered looks until a server is given up
NEW = "not asked yet"
NAMED = (
    "id",
    "model",
    "created",
    "system_fingerprint",
)  # what an endpoint says of a reply (OpenAI's API reference, chat completions)
ENDS_ALL = {
    401: "the key is refused",
    402: "the account has no credit",
    403: "access is refused",
    404: "no such model or path",
}


@dataclass
class Reply:
    """text and reasoning apart; finish_reason as the endpoint said it; usage with tokens and cost in USD (None: unknown).

    response: what the endpoint calls this reply, of `id`, `model`, `created`, `system_fingerprint` what it said.
    shortened: {"asked", "sent"}, the max_tokens that did not fit the context and those that did; None where nothing was shortened.
    """

    text: str
    reasoning: str
    finish_reason: str | None
    usage: dict
    took: float
    attempts: int
    response: dict = field(default_factory=dict)
    shortened: dict | None = None

    def value(self):
        """What of it stands in a record (docs/records.md, gen)."""
        said = {
            "text": self.text,
            "reasoning": self.reasoning,
            "finish_reason": self.finish_reason,
            "usage": self.usage,
        }
        return said | ({"shortened": self.shortened} if self.shortened else {})


def stands(value, shorten):
    """Whether a kept value of gen is what asking with or without `shorten` would give."""
    error = value.get("error") or {}
    if error.get("class") == "context-overflow":
        return not shorten or bool(error.get("shortened"))  # else it may fit now
    return shorten or not value.get("shortened")


class Overflow(Fault):
    """A request that does not fit the model's context; its error has `context`, `prompt_tokens` and `max_tokens` as far as known."""

    def __init__(self, kind, said, limit, words):
        known = {"context": said.context, "prompt_tokens": said.prompt, "max_tokens": limit}
        where = f"the request does not fit the model's context{f' of {said.context} tokens' if said.context else ''}"
        if said.most is not None:
            where = f"the model writes at most {said.most} tokens"
        parts = [f"the prompt has {said.prompt}"] * (said.prompt is not None) + [
            f"max_tokens asks for {limit}"
        ] * (limit is not None)
        super().__init__(
            kind,
            "context-overflow",
            f"{where}{': ' * bool(parts)}{', '.join(parts)} ({words})",
            retriable=False,
            **known,
        )
        self.said = said


def asked(body):
    """What of a request's body `gen` keeps: `sampling`, all but model and messages as it was posted, and `request`, the fingerprint of
    the whole body less the model's name: two models with equal ones were asked the same."""
    return {
        "sampling": {key: value for key, value in body.items() if key not in ("model", "messages")},
        "request": fingerprint({key: value for key, value in body.items() if key != "model"}),
    }


def split_reasoning(text):
    """Part `<think>` text from the answer: `(answer, reasoning)`. A thought that never ends leaves an empty answer."""
    head = text.lstrip()
    if head.startswith("<think>"):
        thought, closed, answer = head[len("<think>") :].partition("</think>")
        return (answer.lstrip("\n"), thought.strip()) if closed else ("", thought.strip())
    thought, closed, answer = text.partition("</think>")  # the server's template opened it
    return (answer.lstrip("\n"), thought.strip()) if closed else (text, "")


class Client:
    """Asks one model. All requests share one gate (rate and concurrency), one budget and one circuit breaker; of several servers each
    request goes to the least busy one that answers."""

    def __init__(
        self, model, *, jobs=None, budget=None, retries=5, patience=None, breaker=10, blame="infra"
    ):
        """patience: seconds for all attempts at a request, from the first on; None: 900, or the entry's timeout where that is more.
        blame: the kind of fault of a request that does not fit the context (docs/records.md)."""
        self.model, self.jobs, self.budget, self.blame = model, jobs or model.jobs, budget, blame
        self.retries, self.patience, self.breaker = (
            retries,
            max(900.0, model.timeout) if patience is None else patience,
            breaker,
        )
        self.spent, self.reserved, self.dearest = 0.0, 0.0, 0.0
        self.failed_in_a_row, self.broken = 0, None
        self.gate = _Gate(self.jobs)
        self.pool, self.lease, self.lock = None, None, asyncio.Lock()
        self.key = "none"
        if model.key_env and not (key := os.environ.get(model.key_env)):
            raise cli.BadConfig(
                f"{model.name} needs a key: set {model.key_env} in the environment or in .env"
            )
        elif model.key_env:
            self.key = key
            masking.add(key, model.key_env)
        if budget is not None and not (model.price or model.reports_cost):
            raise cli.BadConfig(
                f"--budget needs a price, and [{model.name}] in {registry.REGISTRY} has neither `price` nor `reports_cost`"
            )

    @classmethod
    def open(cls, name=None, *, base_url=None, slug=None, key_env=None, **options):
        """A client for a registry name or an endpoint; raises cli.BadConfig for an unknown model or a missing key."""
        return cls(registry.model(name, base_url, slug, key_env), **options)

    @property
    def served(self):
        """What the running servers of a "serve:" entry answer with, `{"engine", "base", "adapter"}`: two replies belong together only where
        it is the same. None for any other entry, and while no server runs. Raises cli.BadData when the servers differ."""
        return endpoints.identity(self.model.slug) if self.model.base_url == "serve:" else None

    def request(self, messages, sampling=None, *, schema=None, seed=None):
        """The exact JSON body that `ask` posts. `schema` asks for structured output (response_format json_schema)."""
        body = {
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
        for name in self.model.drop:
            body.pop(name, None)
        for old, new in self.model.rename.items():
            if old in body:
                body[new] = body.pop(old)
        return body | self.model.extra_body

    async def ask(self, messages, sampling=None, *, schema=None, seed=None):
        """Ask once, patiently; returns a Reply. Raises Fault("infra", ...) when the endpoint gives no usable answer:
        `retriable=False` when it refuses this request for good."""
        return await self.post(self.request(messages, sampling, schema=schema, seed=seed))

    async def stream(self, messages, sampling=None, *, heard, schema=None, seed=None):
        """`ask`, and meanwhile `heard(kind, piece)` is called with what arrives: `reasoning` and `text`, parted as in the Reply; `turn` (with
        an empty piece) says that all text so far was reasoning, where a template had opened the thought. Until something was heard it is as
        patient as `ask`; after that a failure is Fault("infra", "cut-off", ..). What `heard` raises ends the request, and so does
        cancelling; the endpoint then stops writing."""
        return await self.post(
            self.request(messages, sampling, schema=schema, seed=seed), _Ear(heard)
        )

    async def post(self, body, ear=None):
        """`ask` for a body made by `request`. Raises Overflow for one that does not fit the context, unless the entry says `shorten`."""
        clock = _Clock(self.patience)
        try:
            return await self._patiently(body, ear, clock)
        except Overflow as over:
            if not self.model.shorten:
                over.error["message"] += (
                    "; `shorten` in the entry, or --shorten, asks for as many tokens as fit"
                )
                raise
            return await self._shortened(body, over, ear, clock)

    async def _shortened(self, body, over, ear, clock):
        """The reply to `body` with the most max_tokens that fit, as far as the endpoint says how many that are."""
        name, asked = context.limit_of(body)
        limit, paid = asked, 0.0
        for refusals in itertools.count(1):
            try:
                room = over.said.room()
                if (
                    limit is not None
                    and room is None
                    and over.said.least is not None
                    and over.said.context
                ):
                    # vLLM names a prompt's least number of tokens; the usage of the shortest reply has the true one.
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

    async def _patiently(self, body, ear, clock):
        """One body, asked until there is a reply, a refusal, or no patience left."""
        failures, wait, trouble = 0, 0.0, None
        for attempt in range(1, 1_000_000):
            try:
                async with asyncio.timeout(clock.left() if clock.started else None):
                    await self.gate.enter(wait)
            except TimeoutError:
                raise self._give_up(
                    trouble or _Trouble("timeout", f"not asked again in {clock.patience:.0f} s"),
                    attempt,
                ) from None
            try:
                if self.broken:
                    raise Fault("infra", "circuit-open", self.broken)
                reserve = self._reserve(body)
                clock.start()
                begun, reply = time.monotonic(), None
                try:
                    data = await self._once(body, min(self.model.timeout, clock.left()), ear)
                    reply = self._reply(data, time.monotonic() - begun, attempt)
                finally:
                    self.reserved -= reserve
                    if (
                        reply is None and ear and ear.letters
                    ):  # written and paid for, though nobody says how much
                        self.spent += (
                            self._price(len(json.dumps(body["messages"])) / 4, ear.letters / 4)
                            if self.model.price
                            else self.dearest
                        )
                self.gate.widen()
                self.failed_in_a_row = 0
                return reply
            except _Trouble as error:
                trouble = error
                if ear and ear.letters:
                    raise Fault("infra", "cut-off", f"the reply was cut off: {trouble}") from None
                if trouble.overflow:
                    raise Overflow(
                        self.blame, trouble.overflow, context.limit_of(body)[1], str(trouble)
                    ) from None
                if trouble.final:
                    raise self._give_up(trouble) from None
                if trouble.elsewhere and clock.left() > 0:  # another server takes it, at once
                    wait = 0.0
                    continue
                failures += trouble.status != 429
                wait = (
                    trouble.after
                    if trouble.after is not None
                    else random.uniform(0.5, 1) * min(60, 0.5 * 2 ** min(attempt, 8))
                )
                if trouble.status == 429:
                    self.gate.narrow(wait)
                if failures > self.retries or wait >= clock.left():
                    raise self._give_up(trouble, attempt) from None
            finally:
                self.gate.leave()

    async def close(self):
        """Close connections and give the embedded engine back."""
        if self.pool:
            await self.pool.close()
        if self.lease:
            self.lease.close()

    def _give_up(self, trouble, attempts=1):
        status = {"status": trouble.status} if trouble.status else {}
        if trouble.status in ENDS_ALL:
            self.broken = f"{self.model.base_url} said {trouble.status}, {ENDS_ALL[trouble.status]}: {trouble}"
            if self.model.key_env:
                self.broken += f" (key from {self.model.key_env})"
            return Fault("infra", trouble.cls, self.broken, **status)
        if trouble.final:
            return Fault("infra", trouble.cls, str(trouble), retriable=False, **status)
        self.failed_in_a_row += 1
        if self.failed_in_a_row >= self.breaker and not self.broken:
            self.broken = (
                f"stopped asking {self.model.base_url}: {self.failed_in_a_row} requests in a row failed after retries; "
                f"the last said: {trouble}"
            )
            cli.say(self.broken)
        return Fault(
            "infra", trouble.cls, f"{trouble} (gave up after {attempts} attempts)", **status
        )

    def _reserve(self, body):
        """Set money aside for a request, so that those in flight cannot break the budget together."""
        if self.budget is None:
            return 0.0
        amount = self.dearest
        if self.model.price:
            limit = next(
                (
                    body[k]
                    for k in ("max_tokens", "max_completion_tokens", "max_output_tokens")
                    if k in body
                ),
                0,
            )
            letters = len(json.dumps(body.get("messages"), ensure_ascii=False).encode())
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

    def _price(self, prompt, completion):
        return (
            prompt * self.model.price["prompt"] + completion * self.model.price["completion"]
        ) / 1e6

    async def _connect(self):
        async with self.lock:
            if self.pool is None:
                url = self.model.base_url
                find = url.split if " " in url else None
                if url == "engine:":
                    from decksmith.models import embedded

                    self.lease = await asyncio.to_thread(embedded.lease)
                    url = self.lease.base_url
                elif url == "serve:":
                    find = functools.partial(endpoints.addresses, self.model.slug, self.served)
                pool = _Pool(self.model, self.key, self.jobs, find or (lambda: [url]))
                if find:
                    try:
                        await pool.start()
                    except BaseException:
                        await pool.close()
                        raise
                self.pool = pool
            return self.pool

    async def _once(self, body, seconds, ear=None):
        """One request within `seconds`, whatever the endpoint does meanwhile: the parsed JSON, or _Trouble."""
        import httpx2
        import openai

        pool = await self._connect()
        server = pool.choose()
        asked = context.limit_of(body)[1]
        try:
            async with asyncio.timeout(seconds):
                data, headers = await server.during(
                    self._listen(server, body, ear) if ear else self._fetch(server, body)
                )
        except asyncio.CancelledError:
            if not server.trouble or asyncio.current_task().cancelling():
                raise
            raise _Trouble(
                "connection", f"{server.url}: {server.trouble}", elsewhere=pool.free()
            ) from None
        except (TimeoutError, openai.APITimeoutError) as error:
            # The aiohttp transport calls a refused connection a timeout of connecting.
            if isinstance(error.__cause__, httpx2.ConnectTimeout):
                raise await self._lost(pool, server, error) from None
            raise _Trouble("timeout", f"no whole reply in {seconds:.3g} s") from None
        except openai.APIStatusError as error:
            raise _Trouble.status_error(
                error.status_code, error.response.text, error.response.headers, asked
            ) from None
        except openai.APIConnectionError as error:
            raise await self._lost(pool, server, error) from None
        except openai.APIError as error:  # a failure that came as an event of the stream
            code = error.body.get("code") if isinstance(error.body, dict) else None
            raise _Trouble.status_error(
                code if isinstance(code, int) else 502, error.message, {}, asked
            ) from None
        except ValueError as error:
            raise _Trouble("malformed", f"the endpoint's reply is not JSON ({error})") from None
        if (
            isinstance(data, dict)
            and isinstance(data.get("error"), dict)
            and not data.get("choices")
        ):
            code = data["error"].get("code")  # some gateways wrap a failure in a 200
            raise _Trouble.status_error(
                code if isinstance(code, int) else 502, json.dumps(data), headers, asked
            )
        return data

    async def _fetch(self, server, body):
        import httpx2

        response = await server.sdk.post("/chat/completions", body=body, cast_to=httpx2.Response)
        return json.loads(response.content), response.headers

    async def _listen(self, server, body, ear):
        """A streamed reply, put together as if it had come in one piece; what cannot stream answers in one, and is heard in one."""
        import httpx2
        from openai import AsyncStream

        more = {"stream": True, "stream_options": {"include_usage": True}}
        more = {name: value for name, value in more.items() if name not in self.model.drop}
        stream = await server.sdk.post(
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
            finish, usage, named = None, None, {}
            async for chunk in stream:
                if not isinstance(chunk, dict):
                    raise ValueError("an event that is no object")
                usage = chunk.get("usage") or usage
                named |= {name: chunk[name] for name in NAMED if chunk.get(name)}
                for choice in (chunk.get("choices") or [])[:1]:
                    ear.hear(choice.get("delta"))
                    finish = choice.get("finish_reason") or finish
            if finish is None:
                raise _Trouble("connection", f"{server.url}: the stream ended before the reply did")
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
            raise _Trouble("timeout", f"{server.url}: {error!r}") from None
        except httpx2.TransportError as error:
            raise _Trouble("connection", f"{server.url}: {error!r}") from None
        finally:
            await stream.close()

    async def _lost(self, pool, server, error):
        """The trouble of a connection that failed. Of several servers, one that does not answer a look either is left alone; an embedded
        engine that was killed is forgotten, so that the next attempt starts another."""
        async with self.lock:
            if self.lease and self.pool is pool:
                self.lease.close()
                self.pool = self.lease = None
        if pool.watcher:
            await pool.look(server)
        return _Trouble(
            "connection",
            f"{server.url}: {error.__cause__ or error}",
            elsewhere=bool(server.trouble) and pool.free(),
        )

    def _reply(self, data, took, attempts):
        try:
            choice = data["choices"][0]
            message = choice["message"]
            text = message.get("content") or ""
            if isinstance(text, list):
                text = "".join(part.get("text") or "" for part in text)
            if not isinstance(text, str):
                raise TypeError("content is not text")
            reasoning = message.get("reasoning") or message.get("reasoning_content") or ""
            used = data.get("usage") or {}
            usage = {
                "prompt_tokens": int(used.get("prompt_tokens") or 0),
                "completion_tokens": int(used.get("completion_tokens") or 0),
                "reasoning_tokens": int(
                    (used.get("completion_tokens_details") or {}).get("reasoning_tokens") or 0
                ),
            }
        except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
            raise _Trouble(
                "malformed", f"the endpoint's reply has no usable choice ({error!r})"
            ) from None
        if not isinstance(reasoning, str):
            reasoning = json.dumps(reasoning)
        text, thought = split_reasoning(text)
        usage["cost"] = used.get("cost") if isinstance(used.get("cost"), int | float) else None
        if usage["cost"] is None and self.model.price:
            usage["cost"] = round(
                self._price(usage["prompt_tokens"], usage["completion_tokens"]), 8
            )
        self.spent += usage["cost"] or 0.0
        self.dearest = max(self.dearest, usage["cost"] or 0.0)
        named = {
            name: data[name][:200] if isinstance(data[name], str) else data[name]
            for name in NAMED
            if isinstance(data.get(name), str | int) and not isinstance(data[name], bool)
        }
        return Reply(
            text, reasoning or thought, choice.get("finish_reason"), usage, took, attempts, named
        )


def _fewer(limit, room, refusals):
    """The next number of tokens to ask for after so many refusals, the last of `limit`; `room` fit as far as the endpoint said."""
    if limit is None or (room is not None and room < 1):
        return 0
    if room is None or refusals > 3:
        return limit // 2
    return room if room < limit else limit - 1  # sglang wants one token more than it says


class _Trouble(Exception):
    """A request that failed; `final` when asking again cannot help, `after` the seconds the endpoint wants us to wait, `elsewhere` when
    its server is gone and another one is there, `overflow` (context.Overflow) when the request does not fit the context."""

    def __init__(
        self, cls, message, status=None, after=None, final=False, elsewhere=False, overflow=None
    ):
        super().__init__(message)
        self.cls, self.status, self.after, self.final, self.elsewhere, self.overflow = (
            cls,
            status,
            after,
            final,
            elsewhere,
            overflow,
        )

    @classmethod
    def status_error(cls, status, text, headers, asked=None):
        said, over = " ".join(str(text).split())[:300], context.overflow(status, str(text), asked)
        return cls(
            f"http-{status}",
            f"HTTP {status}: {said}",
            status,
            _retry_after(headers),
            status not in RETRIED,
            overflow=over,
        )


class _Clock:
    """The patience with one request, in seconds; it runs from the first attempt on, and not while that waits for its turn."""

    def __init__(self, patience):
        self.patience, self.started = patience, None

    def start(self):
        self.started = self.started or time.monotonic()

    def left(self):
        return (
            max(0.0, self.patience - (time.monotonic() - self.started))
            if self.started
            else self.patience
        )


def _retry_after(headers):
    """Seconds from a Retry-After header (RFC 9110 10.2.3: seconds or a date), at most five minutes; None without one."""
    value = headers.get("retry-after-ms")
    try:
        if value:
            return min(300.0, max(0.0, float(value) / 1000))
        value = headers.get("retry-after")
        if not value:
            return None
        try:
            seconds = float(value)
        except ValueError:
            seconds = email.utils.parsedate_to_datetime(value).timestamp() - time.time()
        return min(300.0, max(0.0, seconds))
    except (ValueError, TypeError):
        return None


class _Server:
    """One address of a model: its requests in flight, and why it gets none just now."""

    def __init__(self, url, sdk, trouble=None):
        self.url, self.sdk, self.trouble, self.misses, self.calls = url, sdk, trouble, 0, set()

    async def during(self, request):
        """What the coroutine `request` returns; it is cancelled when the server is given up."""
        call = asyncio.ensure_future(request)
        self.calls.add(call)
        try:
            return await call
        finally:
            self.calls.discard(call)


class _Ear:
    """Parts a reply that comes in pieces as `split_reasoning` parts a whole one. A piece that may be the beginning of a tag waits for the next."""

    def __init__(self, heard):
        self.heard, self.content, self.reasoning = heard, [], []
        self.state, self.rest, self.letters = "head", "", 0

    def hear(self, delta):
        delta = delta or {}
        for kind, value in (
            ("reasoning", delta.get("reasoning") or delta.get("reasoning_content")),
            ("content", delta.get("content")),
        ):
            if isinstance(value, list):
                value = "".join(part.get("text") or "" for part in value)
            if not value:
                continue
            if not isinstance(value, str):
                raise TypeError(f"{kind} is not text")
            getattr(self, kind).append(value)
            self.letters += len(value)
            if kind == "reasoning":
                self.heard("reasoning", value)
            else:
                self.rest += value
                while self._step():
                    pass

    def _step(self):
        """Pass on what is certain of `rest`; True when the state changed and there may be more."""
        if self.state == "head":
            head = self.rest.lstrip()
            if "<think>".startswith(head[:7]) and len(head) < 7:
                return False
            self.state, self.rest = (
                ("think", head[7:]) if head.startswith("<think>") else ("text", self.rest)
            )
            return True
        if self.state in ("think", "text"):
            said, closed, after = self.rest.partition("</think>")
            if not closed:
                held = next((n for n in range(7, 0, -1) if said.endswith("</think>"[:n])), 0)
                said, after = said[: len(said) - held], said[len(said) - held :]
            self._say("reasoning" if self.state == "think" else "text", said)
            if closed and self.state == "text":
                self.heard("turn", "")
            self.state, self.rest = "gap" if closed else self.state, after
            return bool(closed)
        if self.state == "gap":
            self.rest = self.rest.lstrip("\n")
            self.state = "answer" if self.rest else "gap"
        if self.state == "answer":
            self._say("text", self.rest)
            self.rest = ""
        return False

    def _say(self, kind, piece):
        if piece:
            self.heard(kind, piece)

    def end(self):
        self._say(
            "reasoning" if self.state == "think" else "text",
            "" if self.state == "gap" else self.rest,
        )
        self.rest = ""


class _Pool:
    """The servers of one model, at the addresses that `find()` gives. With `start()` they are watched: one that stops answering loses
    its requests to the others and is back as soon as it answers, and addresses may come and go."""

    def __init__(self, model, key, jobs, find):
        self.model, self.key, self.jobs, self.find = model, key, jobs, find
        self.session = self.watcher = None
        self.servers = [self._server(url) for url in find()]

    def _server(self, url, trouble=None):
        import httpx2
        from openai import AsyncOpenAI, DefaultAioHttpClient

        limits = httpx2.Limits(max_connections=self.jobs, max_keepalive_connections=self.jobs)
        timeout = httpx2.Timeout(self.model.timeout)
        # A proxy of the site does not know its own compute nodes.
        client = DefaultAioHttpClient(
            limits=limits,
            timeout=timeout,
            trust_env=self.model.base_url != "serve:",
            follow_redirects=False,
        )  # prompts and key go to the host that was named, and to no other
        return _Server(
            url,
            AsyncOpenAI(
                base_url=url, api_key=self.key, max_retries=0, timeout=timeout, http_client=client
            ),
            trouble,
        )

    def choose(self):
        """The least busy server that answers; raises _Trouble, with what is wrong with each, when there is none."""
        if not (there := [server for server in self.servers if not server.trouble]):
            raise _Trouble("connection", self.troubles())
        return min(there, key=lambda server: len(server.calls))

    def free(self):
        return any(not server.trouble for server in self.servers)

    def troubles(self):
        return "no server answers: " + "; ".join(
            f"{server.url}: {server.trouble}" for server in self.servers
        )

    async def start(self):
        """Look at each server once, then go on watching. Raises cli.Missing when none answers."""
        import aiohttp

        self.session = aiohttp.ClientSession(
            headers={"Authorization": f"Bearer {self.key}"},
            trust_env=self.model.base_url != "serve:",
            connector=aiohttp.TCPConnector(force_close=True),
            timeout=aiohttp.ClientTimeout(total=PULSE_LIMIT),
        )
        await asyncio.gather(*(self.look(server, MISSES) for server in self.servers))
        if not self.free():
            if self.model.base_url == "serve:":
                raise cli.Missing(
                    (self.troubles() if self.servers else "no server runs")
                    + "; start one: make serve"
                )
            raise cli.Missing(self.troubles())
        self.watcher = asyncio.create_task(self._watch())

    async def _watch(self):
        while True:
            await asyncio.sleep(PULSE)
            urls = self.find()
            known = {server.url for server in self.servers}
            self.servers += [self._server(url, NEW) for url in urls if url not in known]
            for server in self.servers:
                if server.url not in urls and not server.trouble:
                    server.trouble = "it has signed off"  # what it is doing, it may finish
            await asyncio.gather(
                *(
                    self.look(server)
                    for server in self.servers
                    if server.url in urls and (server.trouble or server.calls)
                )
            )

    async def look(self, server, misses=1):
        """Whether the server answers and has our model; marks it. A refused connection counts at once, silence after MISSES looks."""
        import aiohttp

        wrong = None
        try:
            async with self.session.get(
                f"{server.url.rstrip('/')}/models", allow_redirects=False
            ) as reply:
                listed = await reply.json(content_type=None) if reply.status == 200 else {}
            names = [entry["id"] for entry in listed.get("data") or []]
            if reply.status >= 500:
                wrong, misses = f"HTTP {reply.status}", MISSES
            elif names and self.model.slug not in names:
                wrong, misses = f"it has {', '.join(names)}, and not {self.model.slug}", MISSES
        except TimeoutError:
            wrong = f"silent for {PULSE_LIMIT:.0f} s"
        except (aiohttp.ClientError, OSError) as error:
            wrong, misses = str(error), MISSES
        except (
            ValueError,
            TypeError,
            KeyError,
            AttributeError,
        ):  # it lists its models in some way of its own
            pass
        server.misses = server.misses + misses if wrong else 0
        if server.trouble and not wrong:
            if self.watcher:
                cli.say(f"{server.url} answers{'' if server.trouble == NEW else ' again'}")
            server.trouble = None
        elif wrong and not server.trouble and server.misses >= MISSES:
            server.trouble = wrong
            if self.watcher:
                others = sum(not other.trouble for other in self.servers)
                cli.say(
                    f"{server.url} is gone ({wrong}); {f'{others} more take its requests' if others else 'there is no other'}"
                )
            for call in list(server.calls):
                call.cancel()

    async def close(self):
        if self.watcher:
            self.watcher.cancel()
        if self.session:
            await self.session.close()
        for server in self.servers:
            await server.sdk.close()


class _Gate:
    """At most `width` requests at once. A 429 halves the width and holds everybody back for a while; successes widen it again
    (additive increase, multiplicative decrease, as TCP does)."""

    def __init__(self, jobs):
        self.jobs, self.width, self.inside, self.not_before = jobs, float(jobs), 0, 0.0
        self.waiting = []

    async def enter(self, wait):
        if wait:
            await asyncio.sleep(wait)
        while True:
            if (hold := self.not_before - time.monotonic()) > 0:
                await asyncio.sleep(hold + random.uniform(0, 0.1))
            elif self.inside >= int(self.width):
                turn = asyncio.get_running_loop().create_future()
                self.waiting.append(turn)
                try:
                    await turn
                except asyncio.CancelledError:  # the turn that came too late is another's
                    self._wake()
                    raise
            else:
                self.inside += 1
                return

    def leave(self):
        self.inside -= 1
        self._wake()

    def widen(self):
        self.width = min(self.jobs, self.width + 1 / self.width)
        self._wake()

    def narrow(self, wait):
        now = time.monotonic()
        if now >= self.not_before:  # once per storm, not once per request of it
            self.width = max(1.0, self.width / 2)
        self.not_before = max(self.not_before, now + wait)

    def _wake(self):
        free = int(self.width) - self.inside
        while free > 0 and self.waiting:
            turn = self.waiting.pop(0)
            if not turn.done():
                turn.set_result(None)
                free -= 1
