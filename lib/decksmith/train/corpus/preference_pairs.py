"""Which of a prompt's answers is trained against which, and which one is the best: margins,
lengths, leaks, rows.

A prompt is read, decided and forgotten before the next one; what stays is its request, and the
lengths so far. The same records in the same order give the same rows.
"""

import hashlib
import math
import statistics
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import combinations, islice
from pathlib import Path

from pydantic import Field

from decksmith.bench.benchmarks import tasks
from decksmith.core import cli, stream, validation
from decksmith.train.corpus import overlap
from decksmith.train.corpus.overlap import Chat
from decksmith.train.corpus.records import Lengths, PreferenceRow, PreferReport
from decksmith.train.corpus.sampled_answers import (
    LACKS,
    AnswerPair,
    Reader,
    SampledAnswer,
    SampledPrompt,
)

RULES = cli.ROOT / "assets/recipes/prefer.toml"
BLOCK = 64  # prompts that are compared with what is held out at once
# Why a prompt gives no row, in the order in which it is found out.
REASONS: dict[str, str] = tomllib.loads((cli.ROOT / "assets/remedies.toml").read_text())["pairs"]


class PairRules(validation.Body):
    """assets/recipes/prefer.toml or a file like it, which says what each number does."""

    name: str
    margin: float = Field(ge=0)
    least: float = Field(ge=0)
    near: float = Field(ge=0)
    ratio: float = Field(gt=1)
    drift: float = Field(ge=0)
    sha256: str  # of the file's bytes


def read_rules(path: Path = RULES) -> PairRules:
    """Raises cli.Missing, cli.BadConfig with one sentence that names the file and the key."""
    try:
        raw = path.read_bytes()
        found = tomllib.loads(raw.decode()) | {"sha256": hashlib.sha256(raw).hexdigest()}
        return validation.check(PairRules, found)
    except FileNotFoundError:
        raise cli.Missing(f"there is no {path}; {RULES} is an example") from None
    except (ValueError, cli.BadData) as error:
        raise cli.BadConfig(f"{path}: {error}") from None


class Balance:
    """The lengths of what was chosen so far: whether one more may be, and what they come to. A
    stretch is the logarithm of how many times longer the chosen answer is."""

    def __init__(self, rules: PairRules):
        self.step, self.drift = math.log(rules.ratio), rules.drift
        self.n, self.longer, self.shorter, self.total = 0, 0, 0, 0.0

    def takes(self, stretch: float) -> bool:
        """Whether one more of this stretch leaves the lengths in balance."""
        allowed = 1 + self.drift * (self.n + 1)
        lead = self.longer - self.shorter + (stretch > 0) - (stretch < 0)
        is_even = abs(lead) <= allowed and abs(self.total + stretch) <= allowed * self.step
        return is_even and abs(stretch) <= self.step

    def add(self, stretch: float) -> None:
        self.n += 1
        self.longer += stretch > 0
        self.shorter += stretch < 0
        self.total += stretch

    def figures(self) -> Lengths:
        """{"rows", "longer": share in which the chosen one is longer, "ratio": geometric mean};
        null without a row."""
        if not self.n:
            return {"rows": 0, "longer": None, "ratio": None}
        ratio = math.exp(self.total / self.n)
        longer = round(self.longer / self.n, 4)
        return {"rows": self.n, "longer": longer, "ratio": round(ratio, 4)}


class PairChooser:
    """What is trained of each prompt: a pair, or with `best` the best answer.

    held: records of which no request may be near a prompt. encode: gives embeddings of records, or
    None to compare letters only.
    """

    def __init__(
        self,
        reader: Reader,
        rules: PairRules,
        held: Iterable[Chat],
        encode: overlap.Encode | None = None,
        best: bool = False,
    ):
        self.reader, self.rules, self.encode, self.best = reader, rules, encode, best
        self.held = list({overlap.plain(overlap.request(one)): one for one in held}.values())
        self.before: list[Chat] = []  # requests that were let in
        self.said: set[int] = set()  # hashes of the answers that were chosen
        self.lengths = Balance(rules)
        self.margin = rules.margin
        self.reasons: Counter[str] = Counter()
        self.sums: dict[str, float] = defaultdict(float)

    def choose(self, path: str) -> Iterator[tuple[SampledPrompt, AnswerPair | SampledAnswer]]:
        """Yield each prompt of a JSONL file or /dev/stdin with what was chosen. Raises cli.BadData."""
        prompts = self.reader.read(path)
        while block := list(islice(prompts, BLOCK)):
            for prompt, leak in zip(block, self._leaks(block), strict=True):
                made = leak or (self._best(prompt) if self.best else self._pair(prompt))
                if isinstance(made, str):
                    self.reasons[made] += 1
                else:
                    yield prompt, made

    def _leaks(self, block: list[SampledPrompt]) -> list[str | None]:
        """Why each prompt of a block may not be trained on, None where it may."""
        asks: list[Chat] = [{"id": prompt.id, "messages": prompt.messages} for prompt in block]
        against = self.held + self.before
        leaks, pairs = overlap.near(asks, against, self.encode)
        why: list[str | None] = [None] * len(block)
        for leak in sorted(leaks, key=lambda leak: leak["b"]):
            if why[leak["a"]] is None:
                is_held = leak["b"] < len(self.held)
                why[leak["a"]] = "held-out" if is_held else "repeated"
                kind, other = "held-out" if is_held else "prompt", against[leak["b"]]
                stream.warn(asks[leak["a"]]["id"], f"left out, near the {kind} {other['id']}")
        for pair in sorted(pairs, key=lambda pair: pair["b"]):
            if why[pair["a"]] is None and why[pair["b"]] is None:
                why[pair["b"]] = "repeated"
                first = asks[pair["a"]]["id"]
                stream.warn(asks[pair["b"]]["id"], f"left out, near the prompt {first}")
        self.before += [ask for ask, reason in zip(asks, why, strict=True) if reason is None]
        return why

    def _pair(self, prompt: SampledPrompt) -> AnswerPair | str:
        """The pair with the largest margin that keeps the lengths in balance, or why there is none."""
        if len(prompt.samples) < 2:
            return "few"
        pairs = sorted(self._margins(prompt), key=lambda pair: -pair.margin)
        if not pairs:
            return "margin"
        near = self.rules.near
        apart = [
            pair
            for pair in pairs
            if not overlap.jaccard([pair.chosen.plain, pair.rejected.plain], least=near)
        ]
        if not apart:
            return "alike"
        fresh = [pair for pair in apart if hash(pair.chosen.plain) not in self.said]
        if not fresh:
            return "copied"
        even = [pair for pair in fresh if self.lengths.takes(pair.stretch)]
        if not even:
            return "length"
        pair = even[0]
        self.lengths.add(pair.stretch)
        self.said.add(hash(pair.chosen.plain))
        self.sums["margin"] += pair.margin
        self.sums["chosen"] += pair.chosen.worth
        self.sums["rejected"] += pair.rejected.worth
        return pair

    def _margins(self, prompt: SampledPrompt) -> Iterator[AnswerPair]:
        """Every two answers that are as far apart as the margin asks, in the order of the answers."""
        for one, other in combinations(prompt.samples, 2):
            lead = one.worth - other.worth
            if lead and abs(lead) + 1e-9 >= self.margin:  # 0.7 - 0.6 is a little less than 0.1
                better, worse = (one, other) if lead > 0 else (other, one)
                yield AnswerPair(better, worse, abs(lead))

    def _best(self, prompt: SampledPrompt) -> SampledAnswer | str:
        """Of the answers within the margin of the best one, that of the middlemost length, or why
        there is none."""
        if len(prompt.samples) < 2:
            return "few"
        first = max(prompt.samples, key=lambda one: one.worth)
        least = self.rules.least
        if first.worth < least:
            return "least"
        floor = max(first.worth - self.margin, least)
        good = [one for one in prompt.samples if one.worth >= floor]
        good = [one for one in good if hash(one.plain) not in self.said]
        if not good:
            return "copied"
        middle = statistics.median(sample.length for sample in prompt.samples)
        chosen = min(good, key=lambda one: (abs(math.log(one.length / middle)), -one.worth))
        self.said.add(hash(chosen.plain))
        self.lengths.add(math.log(chosen.length / middle))
        self.sums["chosen"] += chosen.worth
        self.sums["answers"] += statistics.fmean(sample.worth for sample in prompt.samples)
        return chosen

    def report(self) -> PreferReport:
        """What was read, chosen and left out, why, and what the lengths come to."""
        reader, rows = self.reader, self.lengths.n
        return {
            "best": self.best,
            "rules": {"name": self.rules.name, "sha256": self.rules.sha256},
            "held_out": len(self.held),
            "compared": "letters and embeddings" if self.encode else "letters",
            "prompts": reader.prompts,
            "answers": reader.answers,
            "rows": rows,
            "left_out": {
                "prompts": {why: self.reasons[why] for why in REASONS if self.reasons[why]},
                "answers": dict(sorted(reader.lacks.items())),
            },
            "means": {name: round(total / rows, 4) for name, total in sorted(self.sums.items())},
            "length": self.lengths.figures(),
        }


def sentences(report: PreferReport) -> Iterator[str]:
    """A report for people."""
    kind = "best answers" if report["best"] else "pairs"
    yield f"{report['rows']} {kind} of {report['prompts']} prompts and {report['answers']} answers"
    for what, why_not in (("prompts", REASONS), ("answers", LACKS)):
        for why, count in report["left_out"][what].items():
            yield f"{count} {what} left out: {why_not[why]}"
    length = report["length"]
    if length["rows"]:
        than = "the middle one of its prompt" if report["best"] else "the rejected one"
        share = f"the chosen answer is longer than {than} in {length['longer']:.0%} of the rows"
        yield f"{share}, {length['ratio']:.2f} times as long on average (geometric)"


def held_out(more: Iterable[Path] = ()) -> list[Chat]:
    """The requests that nobody may train on: of every evaluation that lies here, and of the files
    `more`."""
    data, results = cli.ROOT / "data", cli.ROOT / "results"
    files = [data / "prompts.jsonl", data / "published.jsonl", data / "chat/test.jsonl"]
    files += sorted(results.glob("runs/*/*/prompts.jsonl"))
    files += sorted(results.glob("bench/*/*/questions.jsonl"))
    found: list[Chat] = []
    for path in [*filter(Path.is_file, files), *more]:
        for _, record in stream.records(path):
            asked = record.get("messages")
            if not asked and "task" in record:
                asked = [{"role": "user", "content": tasks.asked(record)}]
            if asked:
                found.append({"id": record["id"], "messages": asked})
    return found


def row(prompt: SampledPrompt, made: AnswerPair | SampledAnswer) -> PreferenceRow:
    """A row of NeMo-RL's PreferenceDataset, or chat JSONL of the best answer; `prefer` says what it
    was made of."""
    row: PreferenceRow = {"id": prompt.id}
    if prompt.seed:
        row["seed"] = prompt.seed
    if isinstance(made, SampledAnswer):
        row["messages"] = [*prompt.messages, made.answer]
        row["prefer"] = {"chosen": made.id, "model": made.key[0], "worth": made.worth}
        best = made
    else:
        best, worst = made.chosen, made.rejected
        row["context"] = prompt.messages
        row["completions"] = [
            {"rank": 0, "completion": [best.answer]},
            {"rank": 1, "completion": [worst.answer]},
        ]
        row["prefer"] = {
            "chosen": best.id,
            "rejected": worst.id,
            "models": {"chosen": best.key[0], "rejected": worst.key[0]},
            "margin": round(made.margin, 4),
            "tokens": {"chosen": best.length, "rejected": worst.length},
        }
    if best.reward:
        row["prefer"]["reward"] = best.reward
    return row
