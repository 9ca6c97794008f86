"""Several answers to each prompt, as they are read from a stream: what its reward is."""

import functools
import math
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import cast

from decksmith.core import cli, records, stream
from decksmith.core.records import Message
from decksmith.measure.judging.records import DeckRecord
from decksmith.models.records import Gen
from decksmith.models.replies import CUT
from decksmith.train.corpus import chat_rows, overlap
from decksmith.train.corpus.records import Seed

# Why an answer is not considered.
LACKS: dict[str, str] = tomllib.loads((cli.ROOT / "assets/remedies.toml").read_text())["answers"]
# Who wrote an answer (None where the record does not say), and which sample of its prompt it is.
Key = tuple[str | None, int]


@dataclass(frozen=True)
class SampledAnswer:
    """One answer that counts.

    answer: the assistant's message. length: of thought and answer, in estimated tokens. worth: the
    number of `reward`. reward: by which rules.
    """

    id: str
    key: Key
    answer: Message
    length: int
    worth: float
    reward: str | None = None

    @functools.cached_property
    def plain(self) -> str:
        """The answer as it is compared."""
        return overlap.plain(self.answer["content"])


@dataclass
class SampledPrompt:
    """A prompt with the answers to it that count. seed: what it was made of, where that is known."""

    id: str
    messages: list[Message]
    seed: Seed | None = None
    samples: list[SampledAnswer] = field(default_factory=list)


@dataclass(frozen=True)
class AnswerPair:
    chosen: SampledAnswer
    rejected: SampledAnswer
    margin: float

    @property
    def stretch(self) -> float:
        """The logarithm of how many times longer the chosen answer is."""
        return math.log(self.chosen.length / self.rejected.length)


class Reader:
    """The prompts of a stream of deck records, each with its answers.

    After reading, `prompts` and `answers` are counted, and `lacks` are the answers that do not
    count, by why.
    """

    def __init__(self) -> None:
        self.prompts, self.answers = 0, 0
        self.lacks: Counter[str] = Counter()
        self.seen: set[str] = set()  # prompts

    def read(self, path: str) -> Iterator[SampledPrompt]:
        """Yield the prompts of a JSONL file or /dev/stdin, in which the answers to one follow one
        another. Raises cli.BadData naming file and line."""
        name = path.removeprefix("/dev/")
        for of, group in groupby(stream.records(path), lambda line: records.prompt_of(line[1])):
            prompt: SampledPrompt | None = None
            ids: set[tuple[str | None, str]] = set()
            for number, line in group:
                record = cast(DeckRecord, line)
                try:
                    prompt = prompt or self._begin(of, record)
                    if record.get("messages") != prompt.messages:
                        raise ValueError(f"its messages are not those of the other answers to {of}")
                    if (_model(record), record["id"]) in ids:
                        raise ValueError("this id came before, of the same model")
                    sample = self._sample(record)
                except ValueError as error:
                    raise cli.BadData(f"{name}:{number}: {record['id']}: {error}") from None
                ids.add((_model(record), record["id"]))
                self.answers += 1
                if isinstance(sample, str):
                    self.lacks[sample] += 1
                else:
                    prompt.samples.append(sample)
            if prompt:
                yield prompt

    def _begin(self, of: str, record: DeckRecord) -> SampledPrompt:
        messages = record.get("messages")
        if of in self.seen:
            raise ValueError(
                f"other prompts stand between this answer to {of} and those before it; bring them together: "
                "jq -cs 'sort_by(.gen.sample.of // .id)[]'"
            )
        if not isinstance(messages, list) or not messages:
            raise ValueError('no "messages" in this record; it is none of chat-generate')
        if not isinstance(messages[-1], dict) or messages[-1].get("role") != "user":
            raise ValueError("the last message is not the user's; what is answered?")
        self.seen.add(of)
        self.prompts += 1
        return SampledPrompt(of, messages, cast(Seed | None, record.get("seed")))

    def _sample(self, record: DeckRecord) -> SampledAnswer | str:
        """The answer of a record, or why it does not count (LACKS)."""
        worth = self._worth(record)
        if worth is None:
            return "masked"
        gen = record.get("gen") or {}
        text, thought = gen.get("text"), gen.get("reasoning")
        if not isinstance(text, str) or not text.strip():
            return "empty"
        if gen.get("finish_reason") in CUT:
            return "truncated"
        key = (_model(record), records.sample_of(cast(records.Record, record)))
        answer: Message = {"role": "assistant", "content": text}
        if isinstance(thought, str) and thought.strip():
            answer["reasoning_content"] = thought
        length = chat_rows.estimate(text) + chat_rows.estimate(thought or "")
        reward = str(record["reward"].get("rules") or "").partition(" ")[0] or None
        return SampledAnswer(record["id"], key, answer, length, worth, reward)

    def _worth(self, record: DeckRecord) -> float | None:
        """The reward of an answer, None where that was not measured. Raises ValueError."""
        value = record.get("reward")
        if not isinstance(value, dict):
            raise ValueError('no "reward" in this record; deck-reward writes it')
        number = value.get("reward")
        if number is None or value.get("masked"):
            return None
        is_flag = isinstance(number, bool)
        if is_flag or not isinstance(number, int | float) or not 0 <= number <= 1:
            raise ValueError(f"reward is {number!r}, no number from 0 to 1")
        return float(number)


def _model(record: DeckRecord) -> str | None:
    """Who answered, by its name in the registry."""
    gen: Gen = record.get("gen") or {}
    return gen["model"]["name"] if "model" in gen else None
