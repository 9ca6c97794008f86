"""Seeds: what a deck of the corpus shall be about. A spine is drawn by us, the rest is written by a model.

The spine (theme, manner, domain, audience, language, length, features, outline or none) depends on (seed, number of the
row) alone, so that more rows change no earlier one. The model's part comes through NeMo Data Designer 0.9.6, whose
endpoint is a gateway of ours on loopback: it hands each chat to `chat.Client`, so that a registry model keeps its
parameters, retries, key, budget and cost, keeps every reply in a journal before Data Designer sees it, and binds the
embedded model to the row's schema. Data Designer drops rows without a word; we ask again by id.
"""

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
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from decksmith import __version__
from decksmith.core import cli, stream
from decksmith.corpus import drafts, slides
from decksmith.decks.parser import THEMES
from decksmith.decks.words import content_words, fold
from decksmith.judging import languages

TABLE = cli.ROOT / "assets" / "seeds.toml"
PROMPTS = cli.ROOT / "assets" / "prompts"
GOLD = cli.ROOT / "data" / "gold"
SHARD = 25  # rows that Data Designer has in work at once
HINTS = 3
EXAMPLES = 3
WORDS = 4  # least of a topic, where blanks part words
ALIKE = 0.6  # share of common content words from which two topics are one
# Markup, and words of the request itself.
SIGNS = ("{", "}", "[", "<", "`", "http", "audience_phrase", "feature_hints")
# Least and most, in characters.
LENGTHS = {"topic": (12, 180), "audience_phrase": (4, 100), "style": (6, 140), "heading": (2, 90)}

Seed = dict[str, Any]
Table = dict[str, Any]  # assets/seeds.toml
Written = dict[str, Any]  # what the model wrote of a seed


# --- the spine --------------------------------------------------------------------------------------------------------


def table(path: Path | str = TABLE) -> Table:
    """assets/seeds.toml, checked. Raises cli.BadConfig naming the key."""
    try:
        found = tomllib.loads(Path(path).read_text())
        kinds = {name: kind for name, kind in found["kinds"].items() if name != "count"}
        given = {
            "themes": (set(found["themes"]), THEMES),
            "features": ({f for kind in kinds.values() for f in kind["features"]}, drafts.FEATURES),
        }
        for key, (names, allowed) in given.items():
            if unknown := sorted(names - set(allowed)):
                raise cli.BadConfig(
                    f"{path}: {key} has {unknown[0]!r}, which draft-check does not know"
                )
        for name, theme in found["themes"].items():
            if not all(theme[part] for part in ("vibe", "fit", "tone")):
                raise cli.BadConfig(f"{path}: themes.{name} has an empty list")
        low, high = found["slides"]
        for name, kind in kinds.items():
            if (
                len(kind["features"]) < max(map(int, found["kinds"]["count"]))
                or not kind["domains"]
            ):
                raise cli.BadConfig(f"{path}: kinds.{name} has too few features or no domain")
        if not (
            1 <= low <= high
            and 0 <= found["outline"] <= 1
            and found["audiences"]
            and found["languages"]
        ):
            raise cli.BadConfig(f"{path}: slides, outline, audiences or languages are out of range")
    except (OSError, tomllib.TOMLDecodeError, KeyError, TypeError, ValueError) as error:
        raise cli.BadConfig(f"{path}: {type(error).__name__}: {error}") from None
    return found


def spine(found: Table, seed: int, n: int) -> list[dict[str, Any]]:
    """The first `n` rows under `seed`: [{"id": "s00001", "seed": {..}}, ..]."""
    return [{"id": f"s{i:05d}", "seed": _row(found, f"{seed}/{i}")} for i in range(1, n + 1)]


def _row(found: Table, place: str) -> Seed:
    def draw(what: str) -> float:
        return int.from_bytes(hashlib.sha256(f"{place}/{what}".encode()).digest()[:8]) / 2**64

    def pick(what: str, weights: Any) -> str:
        if not isinstance(weights, dict):
            weights = dict.fromkeys(weights, 1)
        left = draw(what) * sum(weights.values())
        for name, weight in weights.items():
            left -= weight
            if left < 0:
                return name
        return name

    kinds = {name: kind for name, kind in found["kinds"].items() if name != "count"}
    theme = pick("theme", {name: each.get("weight", 1) for name, each in found["themes"].items()})
    domain = pick("domain", [name for kind in kinds.values() for name in kind["domains"]])
    weights = dict(next(kind["features"] for kind in kinds.values() if domain in kind["domains"]))
    features = []
    for k in range(int(pick("count", found["kinds"]["count"]))):
        features.append(pick(f"feature {k}", weights))
        del weights[features[-1]]
    low, high = found["slides"]
    return {
        "theme": theme,
        **{part: pick(part, found["themes"][theme][part]) for part in ("vibe", "fit", "tone")},
        "domain": domain,
        "audience": pick("audience", found["audiences"]),
        "language": pick(
            "language", {code: each["weight"] for code, each in found["languages"].items()}
        ),
        "slides": low + int(draw("slides") * (high - low + 1)),
        "features": [name for name in drafts.FEATURES if name in features],
        "wants_outline": draw("outline") < found["outline"],
    }


def allowed(found: Table, seed: Seed) -> list[str]:
    """The features that the domain of a seed can have, which hints may name."""
    kinds = [kind for name, kind in found["kinds"].items() if name != "count"]
    theirs = [kind["features"] for kind in kinds if seed["domain"] in kind["domains"]]
    return [name for name in drafts.FEATURES if any(name in features for features in theirs)]


# --- what the model writes --------------------------------------------------------------------------------------------


def schema(hints: Iterable[str], slides: int | None = None) -> dict[str, Any]:
    """The JSON schema of the model's part; `slides`: with so many headings, None: with any number or none."""

    def text(name: str) -> dict[str, Any]:
        return {"type": "string", "minLength": LENGTHS[name][0], "maxLength": LENGTHS[name][1]}

    properties: dict[str, Any] = {
        "topic": text("topic"),
        "audience_phrase": text("audience_phrase"),
        "style": text("style"),
        "feature_hints": {
            "type": "array",
            "items": {"type": "string", "enum": list(hints)},
            "minItems": 1,
            "maxItems": HINTS,
        },
    }
    required = list(properties)
    if slides != 0:
        properties["outline"] = {"type": "array", "items": text("heading")}
    if slides:
        properties["outline"] |= {"minItems": slides, "maxItems": slides}
        required.append("outline")
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def faults(seed: Seed, written: Written, hints: Iterable[str], taken: Iterable[str]) -> list[str]:
    """Why what a model wrote for `seed` is refused, as sentences for its next attempt; `taken`: topics of other rows."""
    texts: dict[str, Any] = {
        name: written.get(name) for name in ("topic", "audience_phrase", "style")
    }
    outline = written.get("outline") if seed["wants_outline"] else []
    for name, text in texts.items():
        if not isinstance(text, str):
            return [f"{name} is not text"]
    found = [
        f"{name} has {len(text.strip())} characters, not {LENGTHS[name][0]} to {LENGTHS[name][1]}"
        for name, text in texts.items()
        if not LENGTHS[name][0] <= len(text.strip()) <= LENGTHS[name][1]
    ]
    if len({text.strip().casefold() for text in texts.values()}) < 3:
        found.append("topic, audience_phrase and style must say three different things")
    if seed["language"] not in languages.SCRIPTS and len(texts["topic"].split()) < WORDS:
        found.append(f"topic has fewer than {WORDS} words")
    if not isinstance(outline, list) or not all(map(_is_heading, outline)):
        found.append("outline is not a list of headings")
        outline = []
    elif seed["wants_outline"] and len(outline) != seed["slides"]:
        found.append(f"outline has {len(outline)} headings, not {seed['slides']}")
    if len({heading.strip().casefold() for heading in outline}) < len(outline):
        found.append("outline has a heading twice")
    if unknown := [hint for hint in written.get("feature_hints") or [None] if hint not in hints]:
        found.append(f"feature_hints has {unknown[0]!r}, which is not on the list")
    everything = " ".join([*texts.values(), *outline])
    if sign := next((sign for sign in SIGNS if sign in everything), None):
        found.append(f"the text has {sign!r}; write plain words")
    share = languages.share([fold(everything)], seed["language"])
    if share is not None and share < slides.least_share(seed["language"]):
        found.append(f"the text does not read as {seed['language']}")
    if twin := next((other for other in taken if _alike(texts["topic"], other)), None):
        found.append(f"the topic is taken already ({twin}); choose another")
    return found


def _is_heading(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _alike(one: str, other: str) -> bool:
    """Whether two topics are one."""
    ours, theirs = _words(one), _words(other)
    every = ours | theirs
    return bool(every) and len(ours & theirs) / len(every) >= ALIKE


@functools.cache
def _words(text: str) -> frozenset[str]:
    return frozenset(content_words(fold(text)))


def _clean(seed: Seed, written: Written) -> Seed:
    """The seed with the model's part: blanks in texts made single, hints in order and once, an outline only where wanted."""

    def tidy(text: str) -> str:
        return " ".join(text.split())

    more: Seed = {name: tidy(written[name]) for name in ("topic", "audience_phrase", "style")}
    more["feature_hints"] = [name for name in drafts.FEATURES if name in written["feature_hints"]]
    if seed["wants_outline"]:
        more["outline"] = [tidy(heading) for heading in written["outline"]]
    return {**seed, **more}


# --- sampling ---------------------------------------------------------------------------------------------------------


class Sampler:
    """Fills rows of a spine by a model, in rounds, and keeps RUN/seeds.jsonl; a context manager.

    accepted  records by id
    reasons   of the rows that have been refused so far, by id: sentences
    trouble   of the rows that the endpoint failed, by id: an error as in docs/records.md
    asked     requests that were sent; replies from the journal do not count
    """

    def __init__(
        self,
        rows: list[dict[str, Any]],
        client: Any,
        run: Path | str,
        *,
        found: Table,
        sampling: dict[str, Any] | None = None,
        seed: int = 0,
    ):
        if importlib.util.find_spec("data_designer") is None:
            raise cli.Missing("Data Designer is not installed; run: make .venv/.synth")
        self.rows, self.client, self.run = rows, client, Path(run)
        self.found, self.seed = found, seed
        usual = {"temperature": 0.9, "max_tokens": 4096}
        self.sampling = usual | client.model.params | (sampling or {})
        self.system = (PROMPTS / "seed-system.txt").read_text()
        self.user = (PROMPTS / "seed-user.txt").read_text()
        self.gold = [drafts.seed(path.parent) for path in sorted(GOLD.glob("*/seed.json"))]
        self.seeds = {row["id"]: row["seed"] for row in rows}
        self.reasons: dict[str, list[str]] = {}
        self.trouble: dict[str, dict[str, Any]] = {}
        self.usage: dict[str, dict[str, Any]] = {}
        self.accepted: dict[str, dict[str, Any]] = {}
        self.asked = 0
        self.inputs = {
            row["id"]: stream.fingerprint(
                [
                    self._columns(row),
                    self.system,
                    self.user,
                    client.model.name,
                    client.model.slug,
                    self.sampling,
                ]
            )
            for row in rows
        }
        self.designer: Any = None
        self.log: logging.FileHandler | None = None

    def __enter__(self) -> "Sampler":
        self.work = self.run / "designer"  # everything that Data Designer writes
        self.journal = stream.Journal(self.run / "journal" / "seed.jsonl", "reply")
        if (path := self.run / "seeds.jsonl").exists():
            self.accepted = {
                row["id"]: row
                for _, row in stream.records(path)
                if row.get("by", {}).get("inputs") == self.inputs.get(row["id"], 0)
            }
        self.kept = len(self.accepted)
        self._save()
        self.gateway = _Gateway(self)
        return self

    def __exit__(self, *_: object) -> None:
        self.gateway.close()
        self.journal.close()
        if self.log:
            logging.getLogger("data_designer").removeHandler(self.log)
            self.log.close()
        shutil.rmtree(self.work / "shards", ignore_errors=True)

    def round(self) -> None:
        """Ask once for each row that is missing and that the endpoint did not fail."""
        missing = [
            row
            for row in self.rows
            if row["id"] not in self.accepted and row["id"] not in self.trouble
        ]
        for start in range(0, len(missing), SHARD):
            shard = missing[start : start + SHARD]
            written = self._write(shard)
            for row in shard:
                if row["id"] in written:
                    self._judge(row, written[row["id"]])
                elif row["id"] not in self.trouble:
                    self.reasons[row["id"]] = ["there was no JSON that keeps to the schema"]
            self._save()

    def _judge(self, row: dict[str, Any], written: Written) -> None:
        ident, seed = row["id"], row["seed"]
        taken = [each["topic"] for each in self.gold] + [
            other["seed"]["topic"] for other in self.accepted.values()
        ]
        if found := faults(seed, written, allowed(self.found, seed), taken):
            self.reasons[ident] = found
            return
        self.reasons.pop(ident, None)
        by = {
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
        stream.write(
            self.run / "seeds.jsonl",
            b"".join(stream.dumps(row) + b"\n" for row in self.accepted.values()),
        )

    def _columns(self, row: dict[str, Any]) -> dict[str, str]:
        """A row as Data Designer's seed data: the columns that seed-user.txt names, all of them ready text."""
        seed, ident = row["seed"], row["id"]
        outline = f"- outline: the titles of the {seed['slides']} slides in order, the opening and the close included\n"
        reasons = "".join(f"- {reason}\n" for reason in self.reasons.get(ident, ()))
        return {
            "id": ident,
            "allowed": ", ".join(allowed(self.found, seed)),
            "outline": outline if seed["wants_outline"] else "",
            "language": self.found["languages"][seed["language"]]["name"],
            "fixed": _fixed(seed),
            "reasons": f"\nAn earlier answer was refused:\n{reasons}" if reasons else "",
            "examples": "".join(
                f"{_fixed(each)}\n{json.dumps(_example(each), ensure_ascii=False)}\n\n"
                for each in self._like(seed, ident)
            ),
        }

    def _like(self, seed: Seed, ident: str) -> list[Seed]:
        """Seeds of data/gold as examples: with an outline where one is wanted, in the language where there are any, of other domains."""
        fit = [
            each
            for each in self.gold
            if ("outline" in each) == seed["wants_outline"]
            and each["domain"] != seed["domain"]
            and each["language"] in ("en", seed["language"])
        ]
        return sorted(
            fit,
            key=lambda each: (
                each["language"] != seed["language"],
                stream.fingerprint([ident, each["topic"]]),
            ),
        )[:EXAMPLES]

    def _write(self, shard: list[dict[str, Any]]) -> dict[str, Written]:
        """The model's parts of a shard by id, as Data Designer has them; rows that it dropped are not there."""
        dd, designer = self.designer or self._start()
        spine = self.work / "shards" / "spine.jsonl"
        stream.write(spine, b"".join(stream.dumps(self._columns(row)) + b"\n" for row in shard))
        builder = dd.DataDesignerConfigBuilder(
            model_configs=[
                dd.ModelConfig(
                    alias="author",
                    model=self.client.model.slug,
                    provider="gateway",
                    skip_health_check=True,
                    inference_parameters=dd.ChatCompletionInferenceParams(
                        max_parallel_requests=self.client.jobs, timeout=86400
                    ),
                )
            ]
        )
        builder.with_seed_dataset(
            dd.LocalFileSeedSource(path=str(spine)), sampling_strategy=dd.SamplingStrategy.ORDERED
        )
        builder.add_column(
            dd.LLMStructuredColumnConfig(
                name="written",
                model_alias="author",
                system_prompt=self.system,
                prompt=self.user,
                output_format=schema(drafts.FEATURES),
            )
        )
        from data_designer.interface.errors import DataDesignerGenerationError

        before = self.gateway.heard
        try:
            result = designer.create(
                builder, num_records=len(shard), dataset_name=f"shard-{secrets.token_hex(4)}"
            )
            return {
                row["id"]: row["written"]
                for row in json.loads(result.load_dataset().to_json(orient="records"))
            }
        except DataDesignerGenerationError:  # also where every row was dropped
            if self.gateway.heard == before:
                raise
            return {}
        finally:
            if self.gateway.stop:
                raise self.gateway.stop
            shutil.rmtree(self.work / "shards", ignore_errors=True)

    def _start(self) -> Any:
        """Import Data Designer (3 CPU seconds), silent, without telemetry, and at home in the run folder."""
        home = (self.work / "home").resolve()
        home.mkdir(parents=True, exist_ok=True)
        os.environ.update(NEMO_TELEMETRY_ENABLED="false", DATA_DESIGNER_HOME=str(home))
        self.log = logging.FileHandler(self.work / "log.txt")
        logging.getLogger("data_designer").addHandler(self.log)
        logging.getLogger("data_designer").propagate = False
        import data_designer.config as dd
        from data_designer.engine.utils import token_counting
        from data_designer.interface import DataDesigner

        # It would fetch a vocabulary over the network, to count tokens in a profile that nobody reads; without one it goes on.
        token_counting.get_cl100k_base_tokenizer = _no_vocabulary
        designer = DataDesigner(
            artifact_path=self.work / "shards",
            auto_configure_logging=False,
            model_providers=[
                dd.ModelProvider(
                    name="gateway",
                    endpoint=self.gateway.url,
                    provider_type="openai",
                    api_key=self.gateway.key,
                )
            ],
        )
        designer.set_run_config(
            dd.RunConfig(
                otel_metrics_port=None,
                buffer_size=SHARD,
                max_conversation_restarts=0,
                max_conversation_correction_steps=1,
                disable_early_shutdown=True,
            )
        )
        self.designer = dd, designer
        return self.designer


class _Gateway:
    """The endpoint that Data Designer talks to: a thread with a server on loopback before `chat.Client`.

    A chat is known by the row id in its first line ("Talk s00001. .."); the k-th chat of a row is answered from the
    journal where that has it. A failure of the endpoint is noted and ends as a 400, so that Data Designer gives the row
    up: the client has been patient enough.
    """

    def __init__(self, sampler: Sampler):
        self.sampler, self.client, self.key = sampler, sampler.client, secrets.token_hex(16)
        self.heard = 0  # chats
        self.turns: dict[str, int] = {}
        self.stop: Exception | None = None
        ready = threading.Event()
        self.thread = threading.Thread(target=self._serve, args=(ready,), daemon=True)
        self.thread.start()
        ready.wait()

    def _serve(self, ready: threading.Event) -> None:
        import asyncio

        from aiohttp import web

        async def serve():
            self.loop, self.ended = asyncio.get_running_loop(), asyncio.Event()
            app = web.Application(client_max_size=1 << 24)
            app.router.add_post("/v1/chat/completions", self._chat)
            runner = web.AppRunner(app, access_log=None, shutdown_timeout=0)
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            self.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
            ready.set()
            await self.ended.wait()
            await runner.cleanup()
            with contextlib.suppress(Exception):
                await self.client.close()

        asyncio.run(serve())

    def close(self) -> None:
        """End the server."""
        self.loop.call_soon_threadsafe(self.ended.set)
        self.thread.join(10)

    async def _chat(self, request: Any) -> Any:
        from aiohttp import web

        if request.headers.get("Authorization") != f"Bearer {self.key}":
            return web.json_response(
                {"error": {"message": "this server belongs to a seed-sample that runs"}}, status=401
            )
        asked = (await request.json())["messages"]
        messages = [{"role": m["role"], "content": _text(m["content"])} for m in asked]
        # The first line of what comes after the system message.
        ident = messages[1]["content"].split(".")[0].removeprefix("Talk ")
        self.heard += 1
        try:
            reply = await self._reply(ident, messages)
        except stream.Fault as fault:
            self.sampler.trouble[ident] = fault.error
            return web.json_response({"error": {"message": fault.error["message"]}}, status=400)
        except Exception as stop:
            # The embedded engine is not installed, or a bug: for the main thread to raise.
            self.stop = stop
            return web.json_response({"error": {"message": str(stop)}}, status=400)
        choice = {
            "index": 0,
            "finish_reason": reply["finish_reason"],
            "message": {"role": "assistant", "content": reply["text"]},
        }
        return web.json_response(
            {
                "id": ident,
                "object": "chat.completion",
                "created": 0,
                "model": self.client.model.slug,
                "choices": [choice],
                "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
            }
        )

    async def _reply(self, ident: str, messages: list[dict[str, str]]) -> dict[str, Any]:
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
        body = self.client.request(messages, sampler.sampling, schema=bound, seed=number)
        inputs = stream.fingerprint([turn, body])
        reply = sampler.journal.get(ident, inputs)
        if reply is None:
            answer = await self.client.post(body)
            sampler.asked += 1
            reply = {
                "text": answer.text,
                "finish_reason": answer.finish_reason,
                "usage": answer.usage,
            }
            sampler.journal.put(ident, inputs, reply)
        total = sampler.usage.setdefault(ident, {})
        for name, value in reply["usage"].items():
            total[name] = value if total.get(name) is None else total[name] + (value or 0)
        return reply


def _fixed(seed: Seed) -> str:
    return (
        f"Field: {seed['domain']}. Listeners: {seed['audience']}. Occasion: {seed['fit']}. Manner: {seed['vibe']}, {seed['tone']}. "
        f"{seed['slides']} slides. They show: {', '.join(seed['features'])}."
    )


def _example(seed: Seed) -> Written:
    return {
        "topic": seed["topic"],
        "audience_phrase": seed["audience"],
        "style": seed["style"],
        "feature_hints": seed["features"],
        **({"outline": seed["outline"]} if "outline" in seed else {}),
    }


def _no_vocabulary() -> None:
    raise LookupError("token counts are off")


def _text(content: Any) -> str:
    """The text of a message's content, which may come in parts."""
    if isinstance(content, str):
        return content
    return "".join(part.get("text") or "" for part in content)
