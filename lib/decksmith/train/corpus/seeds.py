"""Seeds: what a deck of the corpus shall be about. A spine is drawn by us, the rest is written by a
model.

The spine (theme, manner, domain, audience, language, length, features, outline or none) depends on
(seed, number of the row) alone, so that more rows change no earlier one. The model's part comes
through NeMo Data Designer 0.9.7, whose endpoint is a gateway of ours on loopback: it hands each
chat to `chat.Client`, so that a registry model keeps its parameters, retries, key, budget and cost,
keeps every reply in a journal before Data Designer sees it, and binds the embedded model to the
row's schema. Data Designer drops rows without a word; we ask again by id.
"""

import asyncio
import contextlib
import functools
import hashlib
import importlib.util
import json
import logging
import os
import secrets
import shutil
import threading
import tomllib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NotRequired, cast

from typing_extensions import TypedDict

from decksmith import __version__
from decksmith.core import cli, stream
from decksmith.core.records import Error, Message, Record
from decksmith.measure.decks.words import SCRIPTS, content_words, fold, language_share
from decksmith.models.client import Client
from decksmith.models.records import Usage
from decksmith.train.corpus import deck_rules, drafts
from decksmith.train.corpus.records import DraftRecord, Seed, SeedBy

if TYPE_CHECKING:
    from aiohttp import web
    from data_designer.interface import DataDesigner

TABLE = cli.ROOT / "assets" / "seeds.toml"
PROMPTS = cli.ROOT / "assets" / "prompts"
SHARD = 25  # rows that Data Designer has in work at once
HINTS = 3
EXAMPLES = 3
WORDS = 4  # least of a topic, where blanks part words
ALIKE = 0.6  # share of common content words from which two topics are one
# Markup, and words of the request itself.
SIGNS = ("{", "}", "[", "<", "`", "http", "audience_phrase", "feature_hints")
# Least and most, in characters.
LENGTHS = {"topic": (12, 180), "audience_phrase": (4, 100), "style": (6, 140)}
HEADING = (2, 90)


class Written(TypedDict):
    """What the model writes of a seed, as `schema` has it."""

    topic: str
    audience_phrase: str
    style: str
    feature_hints: list[str]
    outline: NotRequired[list[str]]


class Language(TypedDict):
    """A language of the table: its English name stands in the prompt."""

    name: str
    weight: float


class Theme(TypedDict):
    """A theme of the table: what is drawn for decks in it."""

    weight: NotRequired[float]
    vibe: list[str]
    fit: list[str]
    tone: list[str]


class Kind(TypedDict):
    """Domains of the table, and the weights of what their slides may show."""

    domains: list[str]
    features: dict[str, float]


@dataclass(frozen=True)
class Table:
    """assets/seeds.toml. counts: the weights of how many features a deck is asked for."""

    slides: tuple[int, int]
    outline: float
    audiences: list[str]
    languages: dict[str, Language]
    themes: dict[str, Theme]
    counts: dict[str, float]
    kinds: dict[str, Kind]


def table(path: Path = TABLE) -> Table:
    """The table in a file like assets/seeds.toml."""
    found = tomllib.loads(path.read_text())
    counts = found["kinds"].pop("count")
    return Table(**found | {"slides": tuple(found["slides"]), "counts": counts})


def spine(found: Table, seed: int, n: int) -> list[DraftRecord]:
    """The first `n` rows under `seed`: [{"id": "s00001", "seed": {..}}, ..]."""
    return [{"id": f"s{i:05d}", "seed": _row(found, f"{seed}/{i}")} for i in range(1, n + 1)]


def _row(found: Table, place: str) -> Seed:
    def draw(what: str) -> float:
        return int.from_bytes(hashlib.sha256(f"{place}/{what}".encode()).digest()[:8]) / 2**64

    def pick(what: str, weights: Mapping[str, float]) -> str:
        left = draw(what) * sum(weights.values())
        for name, weight in weights.items():
            left -= weight
            if left < 0:
                return name
        return name

    def evenly(what: str, names: Iterable[str]) -> str:
        return pick(what, dict.fromkeys(names, 1))

    name = pick("theme", {name: each.get("weight", 1) for name, each in found.themes.items()})
    theme = found.themes[name]
    domain = evenly("domain", [name for kind in found.kinds.values() for name in kind["domains"]])
    kinds = [kind["features"] for kind in found.kinds.values() if domain in kind["domains"]]
    weights = dict(kinds[0])
    features = []
    for k in range(int(pick("count", found.counts))):
        features.append(pick(f"feature {k}", weights))
        del weights[features[-1]]
    low, high = found.slides
    return {
        "theme": name,
        "vibe": evenly("vibe", theme["vibe"]),
        "fit": evenly("fit", theme["fit"]),
        "tone": evenly("tone", theme["tone"]),
        "domain": domain,
        "audience": evenly("audience", found.audiences),
        "language": pick(
            "language", {code: one["weight"] for code, one in found.languages.items()}
        ),
        "slides": low + int(draw("slides") * (high - low + 1)),
        "features": [name for name in drafts.FEATURES if name in features],
        "wants_outline": draw("outline") < found.outline,
    }


def allowed(found: Table, seed: Seed) -> list[str]:
    """The features that the domain of a seed can have, which hints may name."""
    kinds = [kind for kind in found.kinds.values() if seed["domain"] in kind["domains"]]
    theirs = {name for kind in kinds for name in kind["features"]}
    return [name for name in drafts.FEATURES if name in theirs]


def schema(hints: Iterable[str], slides: int | None = None) -> dict[str, object]:
    """The JSON schema of the model's part; `slides`: with so many headings, None: with any number
    or none."""

    def text(least: int, most: int) -> dict[str, object]:
        return {"type": "string", "minLength": least, "maxLength": most}

    properties: dict[str, dict[str, object]] = {
        name: text(*length) for name, length in LENGTHS.items()
    }
    properties["feature_hints"] = {
        "type": "array",
        "items": {"type": "string", "enum": list(hints)},
        "minItems": 1,
        "maxItems": HINTS,
    }
    required = list(properties)
    if slides != 0:
        properties["outline"] = {"type": "array", "items": text(*HEADING)}
    if slides:
        properties["outline"] |= {"minItems": slides, "maxItems": slides}
        required.append("outline")
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def faults(seed: Seed, written: Written, hints: Collection[str], taken: Iterable[str]) -> list[str]:
    """Why what a model wrote for `seed`, within the schema, is refused, as sentences for its next
    attempt; `taken`: topics of other rows."""
    texts = [written["topic"], written["audience_phrase"], written["style"]]
    outline = written.get("outline", []) if seed["wants_outline"] else []
    found = []
    if len({text.strip().casefold() for text in texts}) < 3:
        found.append("topic, audience_phrase and style must say three different things")
    if seed["language"] not in SCRIPTS and len(written["topic"].split()) < WORDS:
        found.append(f"topic has fewer than {WORDS} words")
    if seed["wants_outline"] and len(outline) != seed["slides"]:
        found.append(f"outline has {len(outline)} headings, not {seed['slides']}")
    if len({heading.strip().casefold() for heading in outline}) < len(outline):
        found.append("outline has a heading twice")
    if unknown := [hint for hint in written["feature_hints"] if hint not in hints]:
        found.append(f"feature_hints has {unknown[0]!r}, which is not on the list")
    everything = " ".join([*texts, *outline])
    if sign := next((sign for sign in SIGNS if sign in everything), None):
        found.append(f"the text has {sign!r}; write plain words")
    share = language_share([fold(everything)], seed["language"])
    if share is not None and share < deck_rules.least_share(seed["language"]):
        found.append(f"the text does not read as {seed['language']}")
    ours = _words(written["topic"])
    for other in taken:
        theirs = _words(other)
        if ours | theirs and len(ours & theirs) / len(ours | theirs) >= ALIKE:
            found.append(f"the topic is taken already ({other}); choose another")
            break
    return found


@functools.cache
def _words(topic: str) -> frozenset[str]:
    return frozenset(content_words(fold(topic)))


def _clean(seed: Seed, written: Written) -> Seed:
    """The seed with the model's part, tidied; an outline only where one is wanted."""

    def tidy(text: str) -> str:
        return " ".join(text.split())

    more: Seed = {
        "topic": tidy(written["topic"]),
        "audience_phrase": tidy(written["audience_phrase"]),
        "style": tidy(written["style"]),
        "feature_hints": [name for name in drafts.FEATURES if name in written["feature_hints"]],
    }
    if seed["wants_outline"]:
        more["outline"] = [tidy(heading) for heading in written["outline"]]
    return {**seed, **more}


class Kept(TypedDict):
    """A reply as the journal keeps it."""

    text: str
    finish_reason: str | None
    usage: Usage


class Sampler:
    """Fills rows of a spine by a model, in rounds, and keeps RUN/seeds.jsonl; a context manager.

    accepted  records by id
    reasons   of the rows that have been refused so far, by id: sentences
    trouble   of the rows that the endpoint failed, by id: an error as in docs/records.md
    asked     requests that were sent; replies from the journal do not count
    """

    def __init__(
        self, rows: list[DraftRecord], client: Client, run: Path, *, found: Table, seed: int = 0
    ):
        if importlib.util.find_spec("data_designer") is None:
            raise cli.Missing("Data Designer is not installed; run: make .venv/.synth")
        self.rows, self.client, self.run, self.found, self.seed = rows, client, run, found, seed
        self.sampling = {"temperature": 0.9, "max_tokens": 4096} | client.model.params
        self.system = (PROMPTS / "seed-system.txt").read_text()
        self.user = (PROMPTS / "seed-user.txt").read_text()
        self.gold = [*drafts.gold().values()]
        self.seeds = {row["id"]: row["seed"] for row in rows}
        self.reasons: dict[str, list[str]] = {}
        self.trouble: dict[str, Error] = {}
        self.usage: dict[str, Usage] = {}
        self.accepted: dict[str, DraftRecord] = {}
        self.asked = 0
        asked = [self.system, self.user, client.model.name, client.model.slug, self.sampling]
        self.inputs = {row["id"]: stream.fingerprint([self._columns(row), *asked]) for row in rows}
        self.designer: DataDesigner | None = None

    def __enter__(self) -> "Sampler":
        self.work = self.run / "designer"  # everything that Data Designer writes
        self.journal = stream.Journal(self.run / "journal" / "seed.jsonl", "reply")
        if (path := self.run / "seeds.jsonl").exists():
            for _, record in stream.records(path):
                if record.get("by", {}).get("inputs") == self.inputs.get(record["id"], 0):
                    self.accepted[record["id"]] = cast(DraftRecord, record)
        self.kept = len(self.accepted)
        self._save()
        self.gateway = _Gateway(self)
        return self

    def __exit__(self, *_: object) -> None:
        self.gateway.close()
        self.journal.close()
        shutil.rmtree(self.work / "shards", ignore_errors=True)

    def round(self) -> None:
        """Ask once for each row that is missing and that the endpoint did not fail."""
        done = self.accepted.keys() | self.trouble.keys()
        missing = [row for row in self.rows if row["id"] not in done]
        for start in range(0, len(missing), SHARD):
            shard = missing[start : start + SHARD]
            written = self._write(shard)
            for row in shard:
                if row["id"] in written:
                    self._judge(row, written[row["id"]])
                elif row["id"] not in self.trouble:
                    self.reasons[row["id"]] = ["there was no JSON that keeps to the schema"]
            self._save()

    def _judge(self, row: DraftRecord, written: Written) -> None:
        ident, seed = row["id"], row["seed"]
        taken = [each["topic"] for each in self.gold]
        taken += [other["seed"]["topic"] for other in self.accepted.values()]
        if found := faults(seed, written, allowed(self.found, seed), taken):
            self.reasons[ident] = found
            return
        self.reasons.pop(ident, None)
        by: SeedBy = {
            "tool": cli.NAME,
            "version": __version__,
            "image": os.environ.get("DECKSMITH_IMAGE", "host"),
            "inputs": self.inputs[ident],
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "model": {"name": self.client.model.name, "slug": self.client.model.slug},
            "usage": self.usage.get(ident),
        }
        self.accepted[ident] = {"id": ident, "seed": _clean(seed, written), "by": by}

    def _save(self) -> None:
        self.accepted = dict(sorted(self.accepted.items()))
        stream.write_records(self.run / "seeds.jsonl", self.accepted.values())

    def _columns(self, row: DraftRecord) -> dict[str, str]:
        """A row as Data Designer's seed data: the columns that seed-user.txt names, all of them
        ready text."""
        seed, ident = row["seed"], row["id"]
        outline = f"- outline: the titles of the {seed['slides']} slides in order, the opening and the close included\n"
        reasons = "".join(f"- {reason}\n" for reason in self.reasons.get(ident, ()))
        return {
            "id": ident,
            "allowed": ", ".join(allowed(self.found, seed)),
            "outline": outline if seed["wants_outline"] else "",
            "language": self.found.languages[seed["language"]]["name"],
            "fixed": _fixed(seed),
            "reasons": f"\nAn earlier answer was refused:\n{reasons}" if reasons else "",
            "examples": "".join(map(_example, self._like(seed, ident))),
        }

    def _like(self, seed: Seed, ident: str) -> list[Seed]:
        """Seeds of data/gold as examples: with an outline where one is wanted, of other domains,
        the language's first."""

        def distance(each: Seed) -> tuple[bool, str]:
            return each["language"] != seed["language"], stream.fingerprint([ident, each["topic"]])

        near = [each for each in self.gold if each["language"] in ("en", seed["language"])]
        fit = [each for each in near if ("outline" in each) == seed["wants_outline"]]
        other = [each for each in fit if each["domain"] != seed["domain"]]
        return sorted(other, key=distance)[:EXAMPLES]

    def _write(self, shard: list[DraftRecord]) -> dict[str, Written]:
        """The model's parts of a shard by id, as Data Designer has them; rows that it dropped are
        not there."""
        designer = self.designer or self._start()
        import data_designer.config as dd
        from data_designer.interface.errors import DataDesignerGenerationError

        spine = self.work / "shards" / "spine.jsonl"
        stream.write_records(spine, map(self._columns, shard))
        limits = dd.ChatCompletionInferenceParams(
            max_parallel_requests=self.client.jobs, timeout=86400
        )
        author = dd.ModelConfig(
            alias="author",
            model=self.client.model.slug,
            provider="gateway",
            skip_health_check=True,
            inference_parameters=limits,
        )
        column = dd.LLMStructuredColumnConfig(
            name="written",
            model_alias="author",
            system_prompt=self.system,
            prompt=self.user,
            output_format=schema(drafts.FEATURES),
        )
        builder = dd.DataDesignerConfigBuilder(model_configs=[author])
        source, ordered = dd.LocalFileSeedSource(path=str(spine)), dd.SamplingStrategy.ORDERED
        builder.with_seed_dataset(source, sampling_strategy=ordered)
        builder.add_column(column)
        before = self.gateway.heard
        try:
            name = f"shard-{secrets.token_hex(4)}"
            result = designer.create(builder, num_records=len(shard), dataset_name=name)
            rows = json.loads(result.load_dataset().to_json(orient="records"))
            return {row["id"]: row["written"] for row in rows}
        except DataDesignerGenerationError:  # also where every row was dropped
            if self.gateway.heard == before:
                raise
            return {}
        finally:
            if self.gateway.stop:
                raise self.gateway.stop
            shutil.rmtree(self.work / "shards", ignore_errors=True)

    def _start(self) -> "DataDesigner":
        """Import Data Designer (3 CPU seconds), silent, without telemetry, and at home in the run
        folder."""
        home = (self.work / "home").resolve()
        home.mkdir(parents=True, exist_ok=True)
        os.environ.update(NEMO_TELEMETRY_ENABLED="false", DATA_DESIGNER_HOME=str(home))
        logging.getLogger("data_designer").setLevel(logging.CRITICAL + 1)
        import data_designer.config as dd
        from data_designer.engine.utils import token_counting
        from data_designer.interface import DataDesigner

        def no_vocabulary() -> None:
            raise LookupError("token counts are off")

        # It would fetch a vocabulary over the network, to count tokens in a profile that nobody
        # reads; without one it goes on.
        token_counting.get_cl100k_base_tokenizer = no_vocabulary
        url, key = self.gateway.url, self.gateway.key
        gateway = dd.ModelProvider(
            name="gateway", endpoint=url, provider_type="openai", api_key=key
        )
        shards = self.work / "shards"
        self.designer = DataDesigner(
            artifact_path=shards, auto_configure_logging=False, model_providers=[gateway]
        )
        config = dd.RunConfig(
            otel_metrics_port=None,
            buffer_size=SHARD,
            max_conversation_restarts=0,
            max_conversation_correction_steps=1,
            disable_early_shutdown=True,
        )
        self.designer.set_run_config(config)
        return self.designer


class _Gateway:
    """The endpoint that Data Designer talks to: a thread with a server on loopback before
    `chat.Client`.

    A chat is known by the row id in its first line ("Talk s00001. .."); the k-th chat of a row is
    answered from the journal where that has it. A failure of the endpoint is noted and ends as a
    400, so that Data Designer gives the row up: the client has been patient enough.
    """

    def __init__(self, sampler: Sampler):
        self.sampler, self.client, self.key = sampler, sampler.client, secrets.token_hex(16)
        self.heard = 0  # chats
        self.turns: dict[str, int] = {}
        self.stop: Exception | None = None
        self.ready = threading.Event()
        self.thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self.thread.start()
        self.ready.wait()

    async def _serve(self) -> None:
        from aiohttp import web

        self.loop, self.ended = asyncio.get_running_loop(), asyncio.Event()
        app = web.Application(client_max_size=1 << 24)
        app.router.add_post("/v1/chat/completions", self._chat)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        self.ready.set()
        await self.ended.wait()
        await runner.cleanup()
        with contextlib.suppress(Exception):
            await self.client.close()

    def close(self) -> None:
        """End the server."""
        self.loop.call_soon_threadsafe(self.ended.set)
        self.thread.join(10)

    async def _chat(self, request: "web.Request") -> "web.Response":
        from aiohttp import web

        def refusal(said: str, status: int) -> web.Response:
            return web.json_response({"error": {"message": said}}, status=status)

        if request.headers.get("Authorization") != f"Bearer {self.key}":
            return refusal("this server belongs to a seed-sample that runs", 401)
        asked = (await request.json())["messages"]
        messages: list[Message] = []
        for one in asked:  # whose content may come in parts
            parts = (
                [{"text": one["content"]}] if isinstance(one["content"], str) else one["content"]
            )
            text = "".join(part.get("text") or "" for part in parts)
            messages.append({"role": one["role"], "content": text})
        # The first line of what comes after the system message.
        ident = messages[1]["content"].split(".")[0].removeprefix("Talk ")
        self.heard += 1
        try:
            reply = await self._reply(ident, messages)
        except stream.Fault as fault:
            self.sampler.trouble[ident] = fault.error
            return refusal(fault.error["message"], 400)
        except Exception as stop:
            # The embedded engine is not installed, or a bug: for the main thread to raise.
            self.stop = stop
            return refusal(str(stop), 400)
        said = {"role": "assistant", "content": reply["text"]}
        choice = {"index": 0, "finish_reason": reply["finish_reason"], "message": said}
        usage = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
        answer = {"id": ident, "object": "chat.completion", "created": 0, "usage": usage}
        answer |= {"model": self.client.model.slug, "choices": [choice]}
        return web.json_response(answer)

    async def _reply(self, ident: str, messages: list[Message]) -> Kept:
        sampler, seed = self.sampler, self.sampler.seeds[ident]
        turn = self.turns[ident] = self.turns.get(ident, -1) + 1
        bound = None
        if self.client.model.base_url == "engine:":  # others read the schema in the prompt
            headings = seed["slides"] if seed["wants_outline"] else 0
            bound = schema(allowed(sampler.found, seed), headings)
            content = messages[1]["content"]
            content, _, _ = content.partition("\n\n* Your response must be in JSON format.")
            messages[1]["content"] = f"{content}\n"
        number = int(stream.fingerprint([sampler.seed, ident, turn])[:7], 16)
        body = self.client.request(
            cast(list[Record], messages), sampler.sampling, schema=bound, seed=number
        )
        inputs = stream.fingerprint([turn, body])
        kept: Kept | None = sampler.journal.get(ident, inputs)
        if kept is None:
            answer = await self.client.post(body)
            sampler.asked += 1
            usage = cast(Usage, answer.usage)
            kept = {"text": answer.text, "finish_reason": answer.finish_reason, "usage": usage}
            sampler.journal.put(ident, inputs, kept)
        sampler.usage[ident] = drafts.total_usage(sampler.usage.get(ident), kept["usage"])
        return kept


def _fixed(seed: Seed) -> str:
    return (
        f"Field: {seed['domain']}. Listeners: {seed['audience']}. Occasion: {seed['fit']}. Manner: {seed['vibe']}, {seed['tone']}. "
        f"{seed['slides']} slides. They show: {', '.join(seed['features'])}."
    )


def _example(seed: Seed) -> str:
    written: dict[str, object] = {"topic": seed["topic"], "audience_phrase": seed["audience"]}
    written |= {"style": seed["style"], "feature_hints": seed["features"]}
    if "outline" in seed:
        written["outline"] = seed["outline"]
    return f"{_fixed(seed)}\n{json.dumps(written, ensure_ascii=False)}\n\n"
