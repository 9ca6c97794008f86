"""Several answers to a prompt, as they are read from a stream, and the rows of preference data that trainers read."""

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from decksmith.core import cli, records, stream
from decksmith.core.records import Record
from decksmith.corpus import pack

SCALES = {"reward": (0, 1), "score": (1, 5)}
# Why an answer is not considered.
LACKS = {
    "masked": "no measurement: a fault that is not the model's",
    "truncated": "cut off at the token limit",
    "empty": "no answer",
    "unjudged": "in no pair that people voted on",
}
# Who wrote an answer (None where the record does not say), and which sample of its prompt it is.
Key = tuple[str | None, int]


@dataclass(frozen=True)
class Sample:
    """One answer that counts.

    answer: the assistant's message. length: of thought and answer, in estimated tokens. worth: of `reward` or `score`; 0
    with votes, which know pairs alone. reward: the name of the reward that `worth` is of, None of anything else.
    """

    id: str
    key: Key
    answer: Record
    length: int
    worth: float
    reward: str | None = None


@dataclass
class Prompt:
    """A prompt with the answers to it that count. seed: what it was made of, where that is known."""

    id: str
    messages: list[Record]
    seed: Record | None = None
    samples: list[Sample] = field(default_factory=list)


@dataclass(frozen=True)
class Pair:
    chosen: Sample
    rejected: Sample
    margin: float

    @property
    def stretch(self) -> float:
        """The logarithm of how many times longer the chosen answer is."""
        return math.log(self.chosen.length / self.rejected.length)


class Votes:
    """What people said of answers, in the study of a folder (pair-build, vote-tally).

    Votes on repeated pairs and on attention items are not counted; a tie is a vote that prefers neither.
    """

    def __init__(self, study: Path):
        """Raises cli.Missing, cli.BadData."""
        pairs, votes = study / "pairs.jsonl", study / "tally/votes.jsonl"
        for path in (pairs, votes):
            if not path.is_file():
                raise cli.Missing(
                    f"there is no {path}; vote-tally --study {study} --close writes it"
                )
        asked = {pair["id"]: pair for _, pair in stream.records(pairs) if pair["kind"] == "vote"}
        self.found: dict[str, dict[tuple[Key, Key], list[int]]] = {}
        for number, vote in _ballots(votes):
            choice, pair = vote.get("choice"), asked.get(str(vote.get("pair")))
            if choice not in ("left", "right", "tie", "bad"):
                raise cli.BadData(
                    f"{votes}:{number}: choice is {choice!r}; it is left, right, tie or bad"
                )
            if pair:
                sides = (_side(pair["left"]), _side(pair["right"]))
                cast = self.found.setdefault(pair["prompt"], {}).setdefault(sides, [])
                cast.append((choice == "left") - (choice == "right"))

    def keys(self, prompt: str) -> set[Key]:
        """The answers to a prompt that people compared."""
        return {key for sides in self.found.get(prompt, {}) for key in sides}

    def lead(self, prompt: str, one: Key, other: Key) -> float:
        """The share of votes for `one` less that for `other`; 0 where nobody compared them."""
        known = self.found.get(prompt, {})
        votes = known.get((one, other), []) + [-vote for vote in known.get((other, one), [])]
        return sum(votes) / len(votes) if votes else 0.0


def _ballots(path: Path) -> Iterator[tuple[int, Record]]:
    """(line number, vote) of a tally's votes, which have no id."""
    with open(path, encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            try:
                vote = json.loads(line)
            except ValueError as error:
                raise cli.BadData(f"{path}:{number}: not JSON ({error})") from None
            if not isinstance(vote, dict):
                raise cli.BadData(f"{path}:{number}: no vote; vote-tally writes these lines")
            yield number, vote


def _side(side: Record) -> Key:
    return str(side["model"]), int(side["sample"])


class Reader:
    """The prompts of a stream of deck records, each with its answers.

    by: "reward", "score" or "votes", of which the last needs `votes`. After reading, `prompts` and `answers` are counted,
    and `lacks` are the answers that do not count, by why.
    """

    def __init__(self, by: str, votes: Votes | None = None):
        self.by, self.votes = by, votes
        self.prompts, self.answers = 0, 0
        self.lacks: Counter[str] = Counter()
        self.seen: set[str] = set()  # prompts

    def read(self, path: str) -> Iterator[Prompt]:
        """Yield the prompts of a JSONL file or /dev/stdin, in which the answers to one follow one another.

        Raises cli.BadData naming file and line.
        """
        now: Prompt | None = None
        ids: set[tuple[str | None, str]] = set()
        name = path.removeprefix("/dev/")
        for number, record in stream.records(path):
            where = f"{name}:{number}: {record['id']}"
            of = records.prompt_of(record)
            if now is None or of != now.id:
                if now:
                    yield now
                now, ids = self._begin(of, record, where), set()
            elif record.get("messages") != now.messages:
                raise cli.BadData(
                    f"{where}: its messages are not those of the other answers to {of}"
                )
            if (_model(record), record["id"]) in ids:
                raise cli.BadData(f"{where}: this id came before, of the same model")
            ids.add((_model(record), record["id"]))
            self.answers += 1
            sample = self._sample(record, where, of)
            if isinstance(sample, str):
                self.lacks[sample] += 1
            else:
                now.samples.append(sample)
        if now:
            yield now

    def _begin(self, of: str, record: Record, where: str) -> Prompt:
        messages = record.get("messages")
        if of in self.seen:
            raise cli.BadData(
                f"{where}: other prompts stand between this answer to {of} and those before it; bring them together: "
                "jq -cs 'sort_by(.gen.sample.of // .id)[]'"
            )
        if not isinstance(messages, list) or not messages:
            raise cli.BadData(f'{where}: no "messages" in this record; it is none of chat-generate')
        if not isinstance(messages[-1], dict) or messages[-1].get("role") != "user":
            raise cli.BadData(f"{where}: the last message is not the user's; what is answered?")
        self.seen.add(of)
        self.prompts += 1
        return Prompt(of, messages, record.get("seed"))

    def _sample(self, record: Record, where: str, of: str) -> Sample | str:
        """The answer of a record, or why it does not count (LACKS)."""
        worth = self._worth(record, where)
        if worth is None:
            return "masked"
        gen = record.get("gen") or {}
        text, thought = gen.get("text"), gen.get("reasoning")
        if not isinstance(text, str) or not text.strip():
            return "empty"
        if gen.get("finish_reason") == "length":
            return "truncated"
        key = (_model(record), records.sample_of(record))
        if self.votes and key not in self.votes.keys(of):
            return "unjudged"
        answer = {"role": "assistant", "content": text}
        if isinstance(thought, str) and thought.strip():
            answer["reasoning_content"] = thought
        length = pack.estimate(text) + pack.estimate(thought or "")
        reward = None
        if self.by == "reward":
            reward = str(record["reward"].get("rules") or "").partition(" ")[0] or None
        return Sample(record["id"], key, answer, length, worth, reward)

    def _worth(self, record: Record, where: str) -> float | None:
        """What an answer is worth, None where that was not measured. Raises cli.BadData."""
        if self.by == "votes":
            return 0.0
        value = record.get(self.by)
        if not isinstance(value, dict):
            raise cli.BadData(
                f'{where}: no "{self.by}" in this record; deck-{self.by} writes it (docs/records.md)'
            )
        number = value.get("reward" if self.by == "reward" else "overall")
        if number is None or value.get("masked") or value.get("error"):
            return None
        low, high = SCALES[self.by]
        is_number = isinstance(number, int | float) and not isinstance(number, bool)
        if not is_number or not low <= number <= high:
            raise cli.BadData(f"{where}: {self.by} is {number!r}, no number from {low} to {high}")
        return float(number)


def _model(record: Record) -> str | None:
    """Who answered, by its name in the registry."""
    return ((record.get("gen") or {}).get("model") or {}).get("name")


# What is written


def preference(prompt: Prompt, pair: Pair) -> Record:
    """A row of NeMo-RL's PreferenceDataset, which keeps the thoughts apart."""
    return {
        "context": prompt.messages,
        "completions": [
            {"rank": 0, "completion": [pair.chosen.answer]},
            {"rank": 1, "completion": [pair.rejected.answer]},
        ],
    }


def binary(prompt: Prompt, pair: Pair) -> Record:
    """A row of NeMo-RL's BinaryPreferenceDataset: answers are texts, so a thought stands in think tags before its own."""
    return {
        "prompt": prompt.messages,
        "chosen": _inline(pair.chosen.answer),
        "rejected": _inline(pair.rejected.answer),
    }


def conversational(prompt: Prompt, pair: Pair) -> Record:
    """A row of TRL's conversational form."""
    return {
        "prompt": prompt.messages,
        "chosen": [pair.chosen.answer],
        "rejected": [pair.rejected.answer],
    }


FORMS: dict[str, Callable[[Prompt, Pair], Record]] = {
    "preference": preference,
    "binary": binary,
    "trl": conversational,
}


def _inline(answer: Record) -> str:
    thought, text = answer.get("reasoning_content"), str(answer["content"])
    return f"<think>\n{thought}\n</think>\n{text}" if thought else text


def row(prompt: Prompt, made: Pair | Sample, form: str) -> Record:
    """A row: a pair in one of FORMS, or chat JSONL of the best answer; `prefer` says what it was made of."""
    shared: Record = {"id": prompt.id} | ({"seed": prompt.seed} if prompt.seed else {})
    if isinstance(made, Sample):
        told = {"chosen": made.id, "model": made.key[0], "worth": made.worth, **_reward(made)}
        return {**shared, "messages": [*prompt.messages, made.answer], "prefer": told}
    sides = {"chosen": made.chosen, "rejected": made.rejected}
    about: Record = {name: sample.id for name, sample in sides.items()}
    about["models"] = {name: sample.key[0] for name, sample in sides.items()}
    about["margin"] = round(made.margin, 4)
    about["tokens"] = {name: sample.length for name, sample in sides.items()}
    return {**shared, **FORMS[form](prompt, made), "prefer": about | _reward(made.chosen)}


def _reward(sample: Sample) -> Record:
    return {"reward": sample.reward} if sample.reward else {}
