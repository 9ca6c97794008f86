"""From a prompt and a reply to a reward: parsed, illustrated, rendered at scale 1, scored."""

import asyncio
import shutil
import sys
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import cast

from decksmith.core import cli, stream
from decksmith.core.records import Record
from decksmith.measure.judging import judges, vision
from decksmith.measure.judging.records import DeckRecord
from decksmith.measure.render import pool
from decksmith.train.rewards.helper import Helper, HelperBroken
from decksmith.train.rewards.rows import Prompt, RewardAnswer, masked
from decksmith.train.rewards.rules import read

FORM = 1  # of what a key stands for
DEADLINE, MEMORY = 20.0, 1500  # CPU seconds and MB that scoring a deck may take
# What is scored unless we are broken: it tells whose fault it is when another deck is not.
KNOWN_GOOD = (
    "---\ntheme: default\n---\n\n# A\n\n- one\n\n---\n\n# B\n\n- two\n\n---\n\n# C\n\n- three\n"
)
KNOWN_PROMPT: Record = {
    "messages": [{"role": "user", "content": "Three slides"}],
    "asks": {},
    "checklist": [],
    # Nobody is asked, and paid, for a verdict on it.
    "judge": {"judge": "nobody", "scores": {"content": 5, "coherence": 5}, "checklist": []},
}
_CHECKS: list[Record] = [{"has": "one"}]
KNOWN_EDIT: Record = {
    "kind": "none",
    "before": KNOWN_GOOD,
    "slides": 3,
    "may": {},
    "checks": _CHECKS,
}
PATIENCE = 60.0  # seconds for all attempts at one verdict


class Scorer:
    """Warm renderers and scoring processes, `jobs` of each, under the rules of a name (rules.read).

    Decks are worked on in ROOT/work and leave nothing there; finished renders are kept in
    ROOT/renders. Where the rules need a judge that reads, it is asked about each deck that renders.
    Raises what `read`, `pool.Pool` and `judges.open_judge` raise.
    """

    def __init__(self, root: Path, rules: str, *, jobs: int) -> None:
        self.rules = read(rules)
        self.edits = self.rules.protocol.judge["kind"] == "edit"
        self.work = root / "work"
        shutil.rmtree(self.work, ignore_errors=True)  # what a killed server left
        self.work.mkdir(parents=True)
        self.rules.protocol.render.update(scale=1)
        kept = root / "renders" if pool.kept_folder() else None
        self.pool = pool.Pool(self.rules.protocol, jobs=jobs, kept=kept)
        self.judge: judges.Judging | None = None
        if self.rules.judge:
            self.judge = judges.open_judge(self.rules.judge, self.work)
        if isinstance(self.judge, vision.Vision):
            # It is asked about every deck, however many before got no answer: a server outlives an
            # hour in which nobody answers.
            self.judge.client.breaker, self.judge.client.patience = sys.maxsize, PATIENCE
        self.helpers: asyncio.LifoQueue[Helper] = asyncio.LifoQueue()
        self.all = [Helper(rules, deadline=DEADLINE, memory=MEMORY) for _ in range(jobs)]
        for helper in self.all:
            self.helpers.put_nowait(helper)
        self.threads = ThreadPoolExecutor(jobs, thread_name_prefix="helper")
        self.identity = [FORM, self.rules.sha256, self.pool.engine]

    def key(self, prompt: Prompt, reply: str) -> str:
        """What a reward is kept under: all that it depends on."""
        fields = [prompt["messages"], prompt["asks"], prompt["checklist"]]
        fields += [prompt["edit"]] if "edit" in prompt else []
        return stream.fingerprint([*self.identity, fields, reply])

    async def warm(self) -> None:
        """Render and score a deck, so that nobody waits for a start. Raises cli.Missing where no
        deck can be."""
        if trouble := await self._trouble("warm"):
            raise cli.Missing(f"a deck known to be good gets no reward here: {trouble}")

    async def score(self, key: str, prompt: Prompt, reply: str) -> RewardAnswer:
        """The answer for a reply; once more where the process that scores it was killed."""
        record: Record = {**prompt, "id": key[:32], "gen": {"text": reply}}
        try:
            try:
                return await self._scored(record)
            except HelperBroken as error:
                if error.cls != "crash":
                    raise
            return await self._scored(record)
        except HelperBroken as error:
            return await self._blamed(error, key[:32])
        except cli.Stop as error:
            return masked("infra", str(error))
        except OSError as error:
            return masked("infra", cli.full(error) or str(error))

    async def _trouble(self, name: str) -> str | None:
        """Why a deck known to be good gets no reward; None where it gets one."""
        try:
            edit = {"edit": KNOWN_EDIT} if self.edits else {}
            record = {**KNOWN_PROMPT, **edit, "id": name, "gen": {"text": KNOWN_GOOD}}
            value = await self._scored(record)
        except (HelperBroken, cli.Stop, OSError) as error:
            return str(error)
        return value["why"] if value["masked"] else None

    async def _scored(self, record: Record) -> RewardAnswer:
        folder = self.work / record["id"]
        try:
            record = await self._ask(do="prepare", record=record)
            if not stream.fault(record):
                record["render"] = await self.pool.render(self.work, record)
            if self.judge and "judge" not in record and not stream.fault(record):
                try:
                    record["judge"] = await self.judge.work(cast(DeckRecord, record))
                except stream.Fault as fault:  # of the judge, or of the way to it
                    record["judge"] = {"error": fault.error}
            value = cast(RewardAnswer, await self._ask(do="score", record=record))
        finally:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
        if value["masked"]:
            lost = stream.fault(record)
            value["cause"] = lost["kind"] if lost else "scorer"
        return value

    async def _ask(self, **order: object) -> Record:
        """An order to a helper. Whoever is cancelled leaves the helper busy until it has answered."""
        helper = await self.helpers.get()

        def ask() -> Record:
            return helper.ask(run=str(self.work), **order)

        asked = asyncio.get_running_loop().run_in_executor(self.threads, ask)
        asked.add_done_callback(lambda _: self.helpers.put_nowait(helper))
        return await asyncio.shield(asked)

    async def _blamed(self, error: HelperBroken, name: str) -> RewardAnswer:
        """The answer for a deck that broke what scores it: 0 where it alone does, since the model
        brought it about; masked where a deck known to be good fails too, or where the code that
        scores is wrong."""
        why = f"{error.cls}: {error}"
        if error.cls == "internal":
            return masked("scorer", why)
        if not error.model and (trouble := await self._trouble(f"{name}.good")):
            return masked("scorer", f"{why}; of a deck known to be good too: {trouble}")
        why = f"the deck breaks what scores it: {why}"
        return {"reward": 0.0, "components": {}, "masked": False, "why": why}

    async def close(self) -> None:
        """End all processes."""
        if self.judge:
            await self.judge.close()
        for helper in self.all:
            helper.end()
        self.threads.shutdown(cancel_futures=True)
        for helper in self.all:
            helper.kill()
        try:
            await self.pool.close()
        except OSError:
            traceback.print_exc()
        shutil.rmtree(self.work, ignore_errors=True)
