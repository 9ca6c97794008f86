"""How fast the reward server is: decks a minute with 8 clients at once, how long one waits, from the cache, and its memory.

  .venv/bin/python3 tests/bench_reward.py [DECKS [WORKERS [short]]]

The decks are those of data/gold, or short ones of three slides, which show in less time what many decks do to the memory. Each has a
word of its own, so that none is in a cache; the prompts are those of data/prompts.jsonl.
The server is the real one, with a folder of its own; the clients are decksmith.train.rewards.reward_client. Numbers go to
results/bench-reward.json, a markdown page (docs/maintain/speed.md) to stdout; goals stand beside what was measured and nothing fails for them.
"""

import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "lib"))
from decksmith.core import stream  # noqa: E402
from decksmith.measure.decks.parser import Deck  # noqa: E402
from decksmith.measure.render.worker import tree, usage  # noqa: E402
from decksmith.train.rewards import reward_client  # noqa: E402

CLIENTS = 8
TICK = os.sysconf("SC_CLK_TCK")
# On two idle cores; on a busy machine `could do`, from CPU seconds, is the figure to look at.
GOALS = {"decks_per_minute": 80, "p95": 6.0, "cached_p95": 0.001}


SHORT = "# Tides\n\n---\n\n# Twice a day\n\n- the moon\n- the sun\n\n---\n\n# The end\n"


def decks(count, kind="gold"):
    """`count` rows of (prompt's id, deck); no two decks are the same. kind: gold or short."""
    texts = [path.read_text() for path in sorted((ROOT / "data/gold").glob("*/deck.md"))]
    if kind == "short":
        texts = [SHORT]
    with open(ROOT / "data/prompts.jsonl") as file:
        ids = [json.loads(line)["id"] for line in file]
    return [
        {"id": ids[n % len(ids)], "reply": f"{texts[n % len(texts)]}\n\nversion {n}\n"}
        for n in range(count)
    ]


def megabytes(pid):
    """Memory of a process and its descendants, shared pages counted once."""
    total = 0
    for each in [pid, *tree(pid)]:
        try:
            lines = Path(f"/proc/{each}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / 1024


# The processes of a server, by a word of their command line: the first that fits.
PARTS = {
    "rewards.helper": "parsing and scoring",
    "worker.mjs": "compiling, and driving the browser",
    "--type=gpu-process": "drawing",
    "--type=utility": "the browser's network",
    "--type=zygote": "pages: scripts, layout, measures",
    "--type=renderer": "pages: scripts, layout, measures",
    "chromium": "the browser itself",
    "reward-serve": "the server",
}


def by_part(pid):
    """{part: CPU seconds} of a process and its descendants, with those that they have waited for."""
    found = dict.fromkeys([*PARTS.values(), "other"], 0.0)
    for each in [pid, *tree(pid)]:
        try:
            command = Path(f"/proc/{each}/cmdline").read_text().replace("\0", " ")
            fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        part = next((PARTS[word] for word in PARTS if word in command), "other")
        found[part] += sum(map(int, fields[11:15])) / TICK
    return found


def watched(pid, seen, ended):
    while not ended.wait(2):
        seen.append(megabytes(pid))


def timed(row):
    """(seconds, whether it was masked) of a deck, asked with our own client."""
    began = time.monotonic()
    answer = reward_client.ask(row)
    return time.monotonic() - began, answer["masked"]


def asked(rows, clients):
    """(seconds of all, sorted seconds of each, how many were masked) with so many clients, each with a deck after the other."""
    began = time.monotonic()
    with ThreadPoolExecutor(clients) as pool:
        found = list(pool.map(timed, rows))
    took = time.monotonic() - began
    return took, sorted(seconds for seconds, _ in found), sum(masked for _, masked in found)


def measured(rows, workers, folder):
    """The numbers of one server."""
    with open(folder / "said", "w") as said:
        server = subprocess.Popen(
            [ROOT / "bin/reward-serve", "--root", folder, "--jobs", str(workers)]
            + ["--prompts", ROOT / "data/prompts.jsonl"],
            env={**os.environ, "IMAGES": "off"},
            stderr=said,
        )
        try:
            while not (folder / "server.json").exists():
                if server.poll() is not None:
                    sys.exit((folder / "said").read_text())
                time.sleep(0.1)
            os.environ["DECKSMITH_REWARD_ADDRESS"] = str(folder / "server.json")
            return numbers(rows, server.pid)
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait()


def numbers(rows, pid):
    seen, ended = [], threading.Event()
    watcher = threading.Thread(target=watched, args=(pid, seen, ended))
    watcher.start()
    before, parts = usage(pid)[0], by_part(pid)
    took, each, masked = asked(rows, CLIENTS)
    cpu, after = usage(pid)[0] - before, by_part(pid)
    ended.set()
    watcher.join()
    _, alone, _ = asked(rows, 1)
    again_took, together, _ = asked(rows, CLIENTS)
    slides = [len(Deck.parse(row["reply"]).shown) for row in rows]
    tenth = max(1, len(seen) // 10)
    memory = [seen[n : n + tenth] for n in range(0, tenth * (len(seen) // tenth), tenth)]
    return {
        "decks": len(rows),
        "slides_per_deck": sum(slides) / len(slides),
        "clients": CLIENTS,
        "masked": masked,
        "seconds": took,
        "decks_per_minute": 60 * len(rows) / took,
        "p50": float(numpy.quantile(each, 0.5)),
        "p95": float(numpy.quantile(each, 0.95)),
        "cpu_seconds_per_deck": cpu / len(rows),
        "cpu_by_part": {part: (after[part] - parts[part]) / len(rows) for part in parts},
        "cached_p50": float(numpy.quantile(alone, 0.5)),
        "cached_p95": float(numpy.quantile(alone, 0.95)),
        "cached_p95_together": float(numpy.quantile(together, 0.95)),
        "cached_per_second": len(rows) / again_took,
        "memory": [sum(part) / len(part) for part in memory],
        "memory_peak": max(seen, default=0.0),
    }


def shown(found):
    """The page."""
    met = {
        "decks_per_minute": found["decks_per_minute"] >= GOALS["decks_per_minute"],
        "p95": found["p95"] < GOALS["p95"],
        "cached_p95": found["cached_p95"] < GOALS["cached_p95"],
    }
    yes = {name: "met" if good else "missed" for name, good in met.items()}
    load = " ".join(f"{each:.1f}" for each in found["load"])
    head = (
        "# What a reward costs\n\n"
        f"Written by `make bench-reward`: {found['decks']} decks of {found['slides_per_deck']:.1f} slides at scale 1, {found['clients']} "
        f"clients, {found['workers']} workers, {found['cores']} cores. The load of the machine before it was {load}. {found['cores']} cores "
        f"that do nothing else could do {60 * found['cores'] / found['cpu_seconds_per_deck']:.0f} such decks a minute.\n\n```"
    )
    rows = [
        (
            "decks a minute",
            f"{found['decks_per_minute']:.1f}",
            f"{GOALS['decks_per_minute']}: {yes['decks_per_minute']}",
        ),
        ("CPU seconds a deck", f"{found['cpu_seconds_per_deck']:.2f}", ""),
        *((f"  {part}", f"{cpu:.2f}", "") for part, cpu in found["cpu_by_part"].items()),
        ("until the answer, p50", f"{found['p50']:.1f} s", ""),
        ("until the answer, p95", f"{found['p95']:.1f} s", f"{GOALS['p95']:g} s: {yes['p95']}"),
        (
            "from the cache, p95, one client",
            f"{1000 * found['cached_p95']:.1f} ms",
            f"{1000 * GOALS['cached_p95']:g} ms: {yes['cached_p95']}",
        ),
        ("from the cache, p95, all clients", f"{1000 * found['cached_p95_together']:.1f} ms", ""),
        ("from the cache, a second", f"{found['cached_per_second']:.0f}", ""),
        ("masked", str(found["masked"]), ""),
        ("memory of all processes, peak", f"{found['memory_peak']:.0f} MiB", ""),
    ]
    table = [f"{name:36}{value:>10}  {goal}".rstrip() for name, value, goal in rows]
    flow = " ".join(f"{each:.0f}" for each in found["memory"])
    return "\n".join([head, *table, f"memory by tenths of the time, MiB: {flow}", "```"])


def main(count=200, workers=2, kind="gold"):
    rows = decks(int(count), kind)
    load = os.getloadavg()
    with tempfile.TemporaryDirectory() as folder:
        found = measured(rows, int(workers), Path(folder))
    found |= {"workers": int(workers), "cores": len(os.sched_getaffinity(0)), "load": load}
    found |= {"python": platform.python_version(), "goals": GOALS}
    stream.write(ROOT / "results/bench-reward.json", json.dumps(found, indent=2) + "\n")
    print(shown(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
