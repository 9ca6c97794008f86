"""Our own speed as ratios against a named alternative measured in the same run: prints a markdown page (docs/speed.md).

CPU seconds are of the process and its children; the median of a few runs is printed, since machines are noisy.
"""

import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ROWS, FLIGHT, LATENCY = 2000, 512, 0.05

PLAIN_OPENAI = '''
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
'''


def cost(command, repeats=3, **options):
    """Median CPU seconds and largest peak memory (MiB) of a command."""
    seconds, peak = [], 0
    for _ in range(repeats):
        probe = ("import os, resource, subprocess, sys; status = subprocess.call(sys.argv[1:]); u = resource.getrusage(resource.RUSAGE_CHILDREN);"
                 "print(u.ru_utime + u.ru_stime, u.ru_maxrss / 1024, file=sys.stderr); sys.exit(status)")
        stdin = open(options["stdin"]) if "stdin" in options else subprocess.DEVNULL
        done = subprocess.run([sys.executable, "-c", probe, *map(str, command)], stdin=stdin, stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True, cwd=options.get("cwd"))
        if done.returncode:
            sys.exit(f"{command[0]} failed: {done.stderr[-500:]}")
        used, memory = map(float, done.stderr.splitlines()[-1].split())
        seconds.append(used)
        peak = max(peak, memory)
    return statistics.median(seconds), peak


def scripts():
    return sorted(path for path in (ROOT / "bin").iterdir() if "-" in path.name)


def main():
    print("# Our own speed\n")
    print(f"Written by `make bench-self` on {os.cpu_count()} cores, Python {platform.python_version()}. CPU seconds, median of 3.\n")

    print("## `--help`\n")
    bare, _ = cost([sys.executable, "-c", "pass"])
    rows = [(path.name, cost([path, "--help"])[0]) for path in scripts()]
    print("| script | CPU s | times a bare Python |\n|---|---|---|")
    for name, used in rows:
        print(f"| {name} | {used:.2f} | {used / bare:.1f} |")

    print(f"\n## {ROWS} short replies, {FLIGHT} in flight, {LATENCY * 1000:.0f} ms each\n")
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "rows.jsonl")
        source.write_text("".join(json.dumps({"id": f"r{i}", "messages": [{"role": "user", "content": f"row {i}"}]}) + "\n" for i in range(ROWS)))
        server = subprocess.Popen([sys.executable, ROOT / "tests/endpoint.py", "--latency", str(LATENCY)], stdout=subprocess.PIPE, text=True)
        try:
            url = server.stdout.readline().strip()
            ours = [ROOT / "bin/chat-generate", "--base-url", url, "--slug", "m", "--jobs", FLIGHT]
            plain, plain_memory = cost([sys.executable, "-c", PLAIN_OPENAI, url], stdin=source)
            piped, piped_memory = cost(ours, stdin=source)
            kept = []
            for i in range(3):
                kept.append(cost([*ours, "--run", Path(folder, f"run{i}")], repeats=1, stdin=source)[0])
            resumed, _ = cost([*ours, "--run", Path(folder, "run0")], stdin=source)
        finally:
            server.kill()
    print("| client | CPU s | ratio | peak MiB |\n|---|---|---|---|")
    print(f"| openai package, its default transport | {plain:.2f} | 1.0 | {plain_memory:.0f} |")
    print(f"| chat-generate | {piped:.2f} | {piped / plain:.2f} | {piped_memory:.0f} |")
    print(f"| chat-generate with a journal | {statistics.median(kept):.2f} | {statistics.median(kept) / plain:.2f} | |")
    print(f"| chat-generate, all from the journal | {resumed:.2f} | {resumed / plain:.2f} | |")


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    main()
