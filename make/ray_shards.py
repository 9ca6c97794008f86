"""The parts of a run as tasks of a Ray cluster that you have: Ray places them, and does a lost one again.

  python make/ray_shards.py 8 make shard MODEL=tuned && make merge MODEL=tuned

Each task runs the command with SHARD=I/8, in this checkout, which every node sees under the same path. What a part has done is
kept: the same line does only what is missing. CPUS is how many processors a part takes (2). Exit 75: parts failed, named on stderr.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def part(row: dict[str, Any], count: int, command: list[str]) -> dict[str, Any]:
    """Do one part; `{"shard", "status", "said"}` with the end of what it printed."""
    shard = f"{row['id'] + 1}/{count}"
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "SHARD": shard},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return {"shard": shard, "status": done.returncode, "said": done.stdout[-2000:]}


def main() -> int:
    if len(sys.argv) < 3 or not sys.argv[1].isdigit() or int(sys.argv[1]) < 1:
        print(__doc__, file=sys.stderr)
        return 2
    import ray

    count, command = int(sys.argv[1]), sys.argv[2:]
    parts = ray.data.range(count, override_num_blocks=count)
    done = parts.map(
        part, fn_kwargs={"count": count, "command": command}, num_cpus=float(os.environ.get("CPUS", "2"))
    )
    failed = [row for row in done.take_all() if row["status"]]
    for row in sorted(failed, key=lambda one: one["shard"]):
        print(f"part {row['shard']} ended with {row['status']}:\n{row['said']}", file=sys.stderr)
    return 75 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
