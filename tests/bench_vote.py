"""Fifty people who vote at once: how long a vote takes, and whether one is lost or stored twice when the server is killed in the middle.

  .venv/bin/python3 tests/bench_vote.py [RATERS [VOTES]]

Each rater has a link of the owner's and sends one vote after the other as fast as the server answers, over HTTP to the real vote-serve. The first
round measures; in the second the server is killed (SIGKILL) when a third of the votes are acknowledged, what the disk has is looked at,
and it is started again while the raters keep trying, each vote under its own key.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "lib"), str(ROOT / "tests" / "web")]

CHOICES = ("left", "right", "tie", "bad")


class Server:
    """The real vote-serve of one study; `kill` is SIGKILL."""

    def __init__(self, study, *options):
        self.study, self.options = study, options

    def __enter__(self):
        self.facts = self.study / "server.json"
        self.facts.unlink(missing_ok=True)
        self.process = subprocess.Popen(
            [ROOT / "bin" / "vote-serve", "--study", self.study, *self.options],
            env={**os.environ, "IMAGES": "off"},
            stderr=subprocess.PIPE,
        )
        while not self.facts.exists():
            if self.process.poll() is not None:
                raise RuntimeError(self.process.stderr.read().decode())
            time.sleep(0.02)
        self.url, self.owner = (
            json.loads(self.facts.read_text())[name] for name in ("url", "owner")
        )
        return self

    def cpu(self):
        """Seconds of processor that the server has used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait()
        self.process.stderr.close()


async def invited(session, server, names):
    """The links that the owner's page makes for people of these names."""
    async with session.post(f"{server.owner}raters", json={"names": names}) as answer:
        return [server.url + one["link"] for one in (await answer.json())["links"]]


async def rater(session, link, number, votes, times, acknowledged):
    """Vote; returns {pair: choice} as it was meant."""
    async with session.get(f"{link}sheet") as answer:
        pairs = [pair["id"] for pair in (await answer.json())["pairs"]][:votes]
    meant = {}
    for place, pair in enumerate(pairs):
        meant[pair] = CHOICES[(number + place) % 4]
        body = {
            "pair": pair,
            "key": f"key-{number}-{pair}",
            "ballot": {"choice": meant[pair], "seconds": 1.5, "seen": True},
        }
        while True:
            began = time.perf_counter()
            try:
                async with session.post(f"{link}vote", json=body) as answer:
                    assert answer.status == 200, await answer.text()
                    await answer.read()
            except (TimeoutError, OSError):
                await asyncio.sleep(0.1)
                continue
            except Exception as error:  # aiohttp's own: the connection was cut
                if isinstance(error, AssertionError):
                    raise
                await asyncio.sleep(0.1)
                continue
            break
        times.append(time.perf_counter() - began)
        acknowledged.add((number, pair))
    return meant


def rush(study, raters, votes, *, kill=False):
    """All raters at once; what happened, in numbers. With `kill` the server dies on the way and comes back."""
    import aiohttp
    from decksmith.people.study.store import Study

    times, acknowledged, found = [], set(), {}

    def stored():
        opened = Study(study)
        names = {each["id"]: int(each["name"].split()[1]) for each in opened.raters()}
        rows = [(names[vote["rater"]], vote["pair"], vote["choice"]) for vote in opened.votes()]
        opened.close_file()
        return rows

    async def all_of_them(server):
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=raters), timeout=aiohttp.ClientTimeout(30)
        ) as session:
            links = await invited(session, server, [f"rater {number}" for number in range(raters)])
            people = [
                asyncio.create_task(rater(session, link, number, votes, times, acknowledged))
                for number, link in enumerate(links)
            ]
            if kill:
                while len(acknowledged) < raters * votes // 3:
                    await asyncio.sleep(0.01)
                server.kill()
                before = set(acknowledged)
                found["acknowledged_before_kill"], rows = len(before), {row[:2] for row in stored()}
                found["lost_by_kill"], found["stored_unacknowledged"] = (
                    len(before - rows),
                    len(rows - acknowledged),
                )
                server.__enter__()
            return await asyncio.gather(*people)

    with Server(study) as server:
        began = time.perf_counter()
        meant = asyncio.run(all_of_them(server))
        wall, cpu = time.perf_counter() - began, server.cpu()
    rows = stored()
    wanted = {
        (number, pair): choice for number, said in enumerate(meant) for pair, choice in said.items()
    }
    times.sort()
    return {
        "raters": raters,
        "votes": len(wanted),
        "stored": len(rows),
        "lost": len(wanted.keys() - {row[:2] for row in rows}),
        "double": len(rows) - len({row[:2] for row in rows}),
        "changed": sum(wanted.get(row[:2]) != row[2] for row in rows),
        "p50_ms": round(1000 * times[len(times) // 2], 1),
        "p95_ms": round(1000 * times[int(len(times) * 0.95)], 1),
        "max_ms": round(1000 * times[-1], 1),
        "per_second": round(len(wanted) / wall),
        "server_cpu_s": round(cpu, 2),
        **found,
    }


def study_of(folder, votes, raters):
    """A study in which everybody is asked about the same `votes` pairs."""
    import ballots
    from decksmith.people.study import pairs

    runs = [ballots.run(folder / name, prompts=votes, slides=1, size=98) for name in ("one", "two")]
    pairs.build(
        folder / "study",
        runs,
        seed=1,
        prompts=votes,
        per_rater=votes,
        raters_per_pair=raters,
        repeats=0,
        gold=0,
    )
    return folder / "study"


def main(raters=50, votes=60):
    for kill in (False, True):
        with tempfile.TemporaryDirectory(prefix="decksmith-vote-") as folder:
            print(
                json.dumps(rush(study_of(Path(folder), votes, raters), raters, votes, kill=kill)),
                flush=True,
            )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
