"""The one client for OpenAI-compatible chat endpoints: registry, retries, rate limits, reasoning, structured replies, cost.

The wire is the `openai` package with its aiohttp transport; its default transport costs four times the CPU at high concurrency
(a scan of every pooled connection on each request).
"""

import asyncio
import email.utils
import json
import os
import random
import time
import tomllib
from dataclasses import dataclass, field

from decksmith import cli
from decksmith.stream import Fault

REGISTRY = cli.ROOT / "assets" / "models.toml"
FIELDS = {"label", "color", "base_url", "slug", "key_env", "params", "rename", "drop", "extra_body", "price", "reports_cost",
          "jobs", "timeout"}
RETRIED = {408, 409, 425, 429, 500, 502, 503, 504, 520, 522, 524, 529}
ENDS_ALL = {401: "the key is refused", 402: "the account has no credit", 403: "access is refused", 404: "no such model or path"}


@dataclass
class Model:
    """One entry of assets/models.toml, or an endpoint named by --base-url and --slug."""

    name: str
    base_url: str
    slug: str
    label: str = ""
    color: str = "#555555"
    key_env: str | None = None
    params: dict = field(default_factory=dict)
    rename: dict = field(default_factory=dict)
    drop: list = field(default_factory=list)
    extra_body: dict = field(default_factory=dict)
    price: dict | None = None  # USD per million tokens: {prompt, completion}
    reports_cost: bool = False  # the endpoint says what a call cost (usage.cost)
    jobs: int = 8
    timeout: float = 1200.0  # seconds for one request


@dataclass
class Reply:
    """text and reasoning apart; finish_reason as the endpoint said it; usage with tokens and cost in USD (None: unknown)."""

    text: str
    reasoning: str
    finish_reason: str | None
    usage: dict
    took: float
    attempts: int


def models():
    """The registry, by name. Raises cli.BadConfig naming file and key."""
    try:
        entries = tomllib.loads(REGISTRY.read_text())
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise cli.BadConfig(f"{REGISTRY}: {error}") from None
    for name, entry in entries.items():
        if unknown := set(entry) - FIELDS:
            raise cli.BadConfig(f"{REGISTRY}: [{name}] has an unknown key {sorted(unknown)[0]!r}")
        if missing := {"base_url", "slug"} - set(entry):
            raise cli.BadConfig(f"{REGISTRY}: [{name}] lacks {sorted(missing)[0]!r}")
    return {name: Model(name=name, **entry) for name, entry in entries.items()}


def model(name=None, base_url=None, slug=None, key_env=None):
    """Find a model by registry name, or make one from an endpoint; an entry's endpoint can be overridden."""
    if name is None:
        if not (base_url and slug):
            raise cli.BadConfig("name a model with --model, or an endpoint with --base-url and --slug")
        return Model(name=slug.replace("/", "-"), base_url=base_url, slug=slug, key_env=key_env)
    known = models()
    if name not in known:
        raise cli.BadConfig(f"no model {name!r} in {REGISTRY}; it has: {', '.join(known)}")
    found = known[name]
    found.base_url, found.slug = base_url or found.base_url, slug or found.slug
    found.key_env = key_env or found.key_env
    return found


def split_reasoning(text):
    """Part `<think>` text from the answer: `(answer, reasoning)`. A thought that never ends leaves an empty answer."""
    head = text.lstrip()
    if head.startswith("<think>"):
        thought, closed, answer = head[len("<think>"):].partition("</think>")
        return (answer.lstrip("\n"), thought.strip()) if closed else ("", thought.strip())
    thought, closed, answer = text.partition("</think>")  # the server's template opened it
    return (answer.lstrip("\n"), thought.strip()) if closed else (text, "")


class Client:
    """Asks one model. All requests share one gate (rate and concurrency), one budget and one circuit breaker."""

    def __init__(self, model, *, jobs=None, budget=None, retries=5, patience=900.0, breaker=10):
        self.model, self.jobs, self.budget = model, jobs or model.jobs, budget
        self.retries, self.patience, self.breaker = retries, patience, breaker
        self.spent, self.reserved, self.dearest = 0.0, 0.0, 0.0
        self.failed_in_a_row, self.broken = 0, None
        self.gate = _Gate(self.jobs)
        self.sdk, self.lease, self.lock = None, None, asyncio.Lock()
        self.key = "none"
        if model.key_env and not (key := os.environ.get(model.key_env)):
            raise cli.BadConfig(f"{model.name} needs a key: set {model.key_env} in the environment or in .env")
        elif model.key_env:
            self.key = key
        if budget is not None and not (model.price or model.reports_cost):
            raise cli.BadConfig(f"--budget needs a price, and [{model.name}] in {REGISTRY} has neither `price` nor `reports_cost`")

    @classmethod
    def open(cls, name=None, *, base_url=None, slug=None, key_env=None, **options):
        """A client for a registry name or an endpoint; raises cli.BadConfig for an unknown model or a missing key."""
        return cls(model(name, base_url, slug, key_env), **options)

    def request(self, messages, sampling=None, *, schema=None, seed=None):
        """The exact JSON body that `ask` posts. `schema` asks for structured output (response_format json_schema)."""
        body = {"model": self.model.slug, "messages": messages, **self.model.params, **(sampling or {})}
        if seed is not None:
            body["seed"] = seed
        if schema is not None:
            body["response_format"] = {"type": "json_schema", "json_schema": {"name": "reply", "strict": True, "schema": schema}}
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

    async def post(self, body):
        """`ask` for a body made by `request`."""
        started, failures, wait = time.monotonic(), 0, 0.0
        for attempt in range(1, 1_000_000):
            await self.gate.enter(wait)
            try:
                if self.broken:
                    raise Fault("infra", "circuit-open", self.broken)
                reserve = self._reserve(body)
                begun = time.monotonic()
                try:
                    data = await self._once(body)
                    reply = self._reply(data, time.monotonic() - begun, attempt)
                finally:
                    self.reserved -= reserve
                self.gate.widen()
                self.failed_in_a_row = 0
                return reply
            except _Trouble as trouble:
                if trouble.final:
                    raise self._give_up(trouble) from None
                failures += trouble.status != 429
                wait = trouble.after if trouble.after is not None else random.uniform(0.5, 1) * min(60, 0.5 * 2 ** min(attempt, 8))
                if trouble.status == 429:
                    self.gate.narrow(wait)
                if failures > self.retries or time.monotonic() + wait - started > self.patience:
                    raise self._give_up(trouble, attempt) from None
            finally:
                self.gate.leave()

    async def close(self):
        """Close connections and give the embedded engine back."""
        if self.sdk:
            await self.sdk.close()
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
            self.broken = (f"stopped asking {self.model.base_url}: {self.failed_in_a_row} requests in a row failed after retries; "
                           f"the last said: {trouble}")
            cli.say(self.broken)
        return Fault("infra", trouble.cls, f"{trouble} (gave up after {attempts} attempts)", **status)

    def _reserve(self, body):
        """Set money aside for a request, so that those in flight cannot break the budget together."""
        if self.budget is None:
            return 0.0
        amount = self.dearest
        if self.model.price:
            limit = next((body[k] for k in ("max_tokens", "max_completion_tokens", "max_output_tokens") if k in body), 0)
            letters = len(json.dumps(body.get("messages"), ensure_ascii=False).encode())
            amount = max(amount if not limit else 0.0, self._price(letters / 2, limit))
        if self.spent + self.reserved + amount > self.budget or self.spent >= self.budget:
            raise Fault("infra", "budget", f"the budget of {self.budget} USD is used up ({self.spent:.4f} spent, "
                                           f"{self.reserved:.4f} in flight); run again with a larger --budget")
        self.reserved += amount
        return amount

    def _price(self, prompt, completion):
        return (prompt * self.model.price["prompt"] + completion * self.model.price["completion"]) / 1e6

    async def _connect(self):
        async with self.lock:
            if self.sdk is None:
                import httpx2
                from openai import AsyncOpenAI, DefaultAioHttpClient
                url = self.model.base_url
                if url == "engine:":
                    from decksmith import engine
                    self.lease = await asyncio.to_thread(engine.lease)
                    url = self.lease.base_url
                limits = httpx2.Limits(max_connections=self.jobs, max_keepalive_connections=self.jobs)
                self.raw = httpx2.Response
                self.sdk = AsyncOpenAI(base_url=url, api_key=self.key, max_retries=0, timeout=self.model.timeout,
                                       http_client=DefaultAioHttpClient(limits=limits, timeout=self.model.timeout))
            return self.sdk

    async def _once(self, body):
        """One request: the parsed JSON, or _Trouble."""
        import httpx2
        import openai
        sdk = await self._connect()
        try:
            async with asyncio.timeout(self.model.timeout):
                response = await sdk.post("/chat/completions", body=body, cast_to=self.raw)
            data = json.loads(response.content)
        except (TimeoutError, openai.APITimeoutError) as error:
            # The aiohttp transport calls a refused connection a timeout of connecting.
            if isinstance(error.__cause__, httpx2.ConnectTimeout):
                await self._engine_is_gone(sdk)
                raise _Trouble("connection", f"{self.model.base_url}: {error.__cause__}") from None
            raise _Trouble("timeout", f"no reply in {self.model.timeout:.0f} s") from None
        except openai.APIStatusError as error:
            raise _Trouble.status_error(error.status_code, error.response.text, error.response.headers) from None
        except openai.APIConnectionError as error:
            await self._engine_is_gone(sdk)
            raise _Trouble("connection", f"{self.model.base_url}: {error.__cause__ or error}") from None
        except ValueError as error:
            raise _Trouble("malformed", f"the endpoint's reply is not JSON ({error})") from None
        if isinstance(data, dict) and isinstance(data.get("error"), dict) and not data.get("choices"):
            code = data["error"].get("code")  # some gateways wrap a failure in a 200
            raise _Trouble.status_error(code if isinstance(code, int) else 502, json.dumps(data), response.headers)
        return data

    async def _engine_is_gone(self, sdk):
        """The embedded engine was killed: forget it, so that the next attempt starts another."""
        async with self.lock:
            if self.lease and self.sdk is sdk:
                self.lease.close()
                self.sdk = self.lease = None

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
            usage = {"prompt_tokens": int(used.get("prompt_tokens") or 0), "completion_tokens": int(used.get("completion_tokens") or 0),
                     "reasoning_tokens": int((used.get("completion_tokens_details") or {}).get("reasoning_tokens") or 0)}
        except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
            raise _Trouble("malformed", f"the endpoint's reply has no usable choice ({error!r})") from None
        if not isinstance(reasoning, str):
            reasoning = json.dumps(reasoning)
        text, thought = split_reasoning(text)
        usage["cost"] = used.get("cost") if isinstance(used.get("cost"), int | float) else None
        if usage["cost"] is None and self.model.price:
            usage["cost"] = round(self._price(usage["prompt_tokens"], usage["completion_tokens"]), 8)
        self.spent += usage["cost"] or 0.0
        self.dearest = max(self.dearest, usage["cost"] or 0.0)
        return Reply(text, reasoning or thought, choice.get("finish_reason"), usage, took, attempts)


class _Trouble(Exception):
    """A request that failed; `final` when asking again cannot help, `after` the seconds the endpoint wants us to wait."""

    def __init__(self, cls, message, status=None, after=None, final=False):
        super().__init__(message)
        self.cls, self.status, self.after, self.final = cls, status, after, final

    @classmethod
    def status_error(cls, status, text, headers):
        said = " ".join(str(text).split())[:300]
        return cls(f"http-{status}", f"HTTP {status}: {said}", status, _retry_after(headers), status not in RETRIED)


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
                await turn
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
