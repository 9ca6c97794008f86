"""How fast the sandbox is, in Markdown: `.venv/bin/python tests/bench_sandbox.py [WALLS..]` (namespaces, apptainer)."""

import subprocess
import sys
import threading
import time

sys.path.insert(0, __file__.rpartition("/tests/")[0] + "/lib")
from decksmith.bench.sandbox import pool as sandbox_pool  # noqa: E402

CODE = "print(1)"


def timed(work, count, pause=0.0):
    """Milliseconds: (median, 95th percentile)."""
    took = []
    for _ in range(count):
        began = time.perf_counter()
        work()
        took.append((time.perf_counter() - began) * 1000)
        time.sleep(pause)
    took.sort()
    return took[count // 2], took[count * 95 // 100]


def rate(pool, threads, count=160):
    """Runs a second."""

    def work():
        for _ in range(count // threads):
            assert pool.run(CODE).status == "ok"

    workers = [threading.Thread(target=work) for _ in range(threads)]
    began = time.perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return count / (time.perf_counter() - began)


def main():
    alone = timed(
        lambda: subprocess.run(
            [sys.executable, "-IS", "-c", CODE], capture_output=True, check=True
        ),
        60,
    )
    print(
        f"An interpreter that is started for `{CODE}` and nothing else: {alone[0]:.1f} ms (median), {alone[1]:.1f} ms (95 %).\n"
    )
    print(
        "| walls | first run | a run | 95 % | runs/s, 1 thread | 2 threads | after a fork bomb |\n|---|---:|---:|---:|---:|---:|---:|"
    )
    for walls in sys.argv[1:] or ["namespaces"]:
        pool, began = sandbox_pool.CellPool(walls=walls), time.perf_counter()
        pool.run(CODE)
        first = (time.perf_counter() - began) * 1000
        median, late = timed(lambda pool=pool: pool.run(CODE), 100, 0.03)
        one, two = rate(pool, 1), rate(pool, 2)
        bomb = "import os\nwhile True:\n  try: os.fork()\n  except OSError: pass"
        waits = []
        for _ in range(5):
            assert pool.run(bomb).status == "processes"
            waits.append(timed(lambda pool=pool: pool.run(CODE), 1)[0])
        pool.close()
        print(
            f"| {walls} | {first:.0f} ms | {median:.1f} ms | {late:.1f} ms | {one:.0f} | {two:.0f} | {max(waits):.0f} ms at most |"
        )


if __name__ == "__main__":
    main()
