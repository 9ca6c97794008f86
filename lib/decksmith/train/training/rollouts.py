"""Answers of a policy in training, with their rewards: asked of the embedded engine, made into decks by the pipeline's scripts.

The engine writes about ten times as fast on a CPU as the model that is trained would. It computes the same weights, the
adapter in 8 bits, so that an answer is nearly one of the policy's own. Each set of answers has a folder with a journal: what
a kill left unfinished goes on, and nothing is asked or drawn twice.
"""

import contextlib
import hashlib
import os
import shlex
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from decksmith.core import cli, stream
from decksmith.core.records import PromptRow
from decksmith.measure.judging.records import DeckRecord
from decksmith.models import embedded
from decksmith.train.training import adapters

# The stages after the answers; the held-out judge scores what the reward has measured.
STAGES = (
    "deck-parse --run {run}",
    "deck-illustrate --protocol offline --run {run}",
    "deck-render --protocol offline --run {run}",
    "deck-reward --rules {rules} --run {run}",
    "deck-judge --protocol offline --run {run}",
    "deck-scan --run {run}",
    "deck-score --protocol offline",
)


@dataclass(frozen=True)
class Sampling:
    """How answers are drawn; base: the embedded model's name, whose adapter the policy is."""

    base: str
    temperature: float
    top_p: float
    max_tokens: int
    rules: str


class Rollouts:
    """Decks of a policy, kept below `folder`."""

    def __init__(self, folder: Path, sampling: Sampling) -> None:
        self.folder, self.sampling = folder, sampling

    def ask(
        self, name: str, peft: Path, prompts: Iterable[PromptRow], samples: int, seed: int
    ) -> list[DeckRecord]:
        """The records of `samples` answers to each prompt by the adapter in the folder `peft`, in the prompts' order.

        name: of the set; the same name, adapter and prompts are the same set, which is read where it is finished.
        Raises cli.TryAgain where a stage fails.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        weights = self.folder / "policy.gguf"
        adapters.gguf(peft, self.sampling.base, weights)
        asked = b"".join(stream.dumps(prompt) + b"\n" for prompt in prompts)
        digest = hashlib.sha256(weights.read_bytes() + asked).hexdigest()[:12]
        run = self.folder / f"{name}-{digest}"
        if not (run / "decks.jsonl").is_file():
            run.mkdir(exist_ok=True)
            stream.write(run / "prompts.jsonl", asked)
            with self._served(weights) as url:
                self._pipeline(run, url, samples, seed)
        return [cast(DeckRecord, record) for _, record in stream.records(run / "decks.jsonl")]

    @contextlib.contextmanager
    def _served(self, weights: Path) -> Iterator[str]:
        with embedded.lease(loras={"policy": weights}) as lease:
            yield lease.base_url

    def _pipeline(self, run: Path, url: str, samples: int, seed: int) -> None:
        one, where = self.sampling, shlex.quote(str(run))
        asking = (
            f"chat-generate --model local --base-url {url} --slug policy --run {where} --samples {samples} "
            f"--temperature {one.temperature} --top-p {one.top_p} --max-tokens {one.max_tokens} --seed {seed}"
        )
        stages = [stage.format(run=where, rules=one.rules) for stage in STAGES]
        script = " | ".join(
            f"{shlex.quote(str(cli.ROOT))}/bin/{stage}" for stage in [asking, *stages]
        )
        made = run / "decks.jsonl.tmp"
        with (
            open(run / "prompts.jsonl", "rb") as source,
            open(made, "wb") as out,
            open(run / "log", "ab") as log,
        ):
            status = subprocess.run(
                ["bash", "-o", "pipefail", "-c", script],
                stdin=source,
                stdout=out,
                stderr=log,
                env=os.environ | {"IMAGES": "off"},
                check=False,
            ).returncode
        if status:
            raise cli.TryAgain(
                f"the answers of {run.name} ended with status {status}; {run}/log says why; run this again"
            )
        made.rename(run / "decks.jsonl")
