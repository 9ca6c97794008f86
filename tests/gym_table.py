"""What the wheel of NeMo Gym says of each benchmark: `make gym-table` writes assets/gym.toml.

Runs with the toolchain's Python: `.venv-gym/bin/python3 tests/gym_table.py > assets/gym.toml`.
"""

import json
import os
import re
import sys
import warnings
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "assets/gym"))

import yaml  # noqa: E402
from gym_worker import HOME, parts, resolved  # noqa: E402

GENERATED = re.compile(r"\bgit\+|-e |https?://|^\s*#|^\s*$")
# What a verifier's source names when it runs what a reply holds.
RUNS = re.compile(
    r"^(?:import|from) subprocess|\bexec\(|check_correctness|[Ss]andbox|SANDBOX|sqlite3|lean4", re.M
)


def server_source(kind: str) -> str:
    """What a server runs: all of its folder but a client, which is for people who try it."""
    folder = HOME / "resources_servers" / kind
    files = [path for path in sorted(folder.glob("*.py")) if path.name != "client.py"]
    return "\n".join(path.read_text() for path in files)


def needs(agent: str, kind: str, settings: dict[str, Any], manifest: dict[str, Any]) -> list[str]:
    """What a benchmark asks for beyond a reply of one turn."""
    found, source = [], server_source(kind)
    if agent != "simple_agent":
        found.append("turns")
    if "audio" in str(manifest.get("modality")):
        found.append("audio")
    elif manifest.get("modality") != "text":
        found.append("pictures")
    if "server_client" in source and settings.get("should_use_judge") is not False:
        found.append("judge")
    if RUNS.search(source):
        found.append("sandbox")
    return found


def table() -> dict[str, dict[str, Any]]:
    """All benchmarks, by name, with facts about each; one that cannot be read says why."""
    rows = {}
    for path in sorted((HOME / "benchmarks").glob("*/config.yaml")):
        name = path.parent.name
        manifest_path = path.with_name("manifest.yaml")
        manifest = yaml.safe_load(manifest_path.read_text()) if manifest_path.exists() else {}
        row = {"licence": manifest.get("licensing") or "unknown"}
        try:
            agent, kind, settings, data = parts(resolved(name))
            wanted = HOME / "resources_servers" / kind / "requirements.txt"
            lines = wanted.read_text().splitlines() if wanted.exists() else []
            row |= {
                "server": kind,
                "needs": needs(agent, kind, settings, manifest),
                "packages": [line.strip() for line in lines if not GENERATED.search(line)],
                "elsewhere": any(re.search(r"git\+|https?://", line) for line in lines),
                "repeats": data.get("num_repeats") or 1,
            }
        except Exception as error:
            row |= {"server": "", "needs": ["turns"], "packages": [], "elsewhere": False}
            row |= {"repeats": 1, "unread": f"{type(error).__name__}: {str(error)[:120]}"}
        rows[name] = row
    return rows


def main() -> None:
    """Print the table; `tested` are those whose server tests/benchmarks/test_gym.py vouches for."""
    warnings.simplefilter("ignore")
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the wheel's modules print is no part of the table
    proven = set(json.loads((ROOT / "tests/fixtures/gym.json").read_text()))
    os.chdir(HOME)  # its benchmarks name files from there
    lines = ["# Written by `make gym-table` from the wheel: facts about NeMo Gym's benchmarks."]
    lines.append(f"version = {json.dumps(metadata.version('nemo-gym'))}")
    for name, row in table().items():
        row.pop("unread", None)
        row["tested"] = row["server"] in proven
        lines += ["", f"[benchmarks.{json.dumps(name)}]"]
        lines += [f"{key} = {json.dumps(value)}" for key, value in row.items()]
    out.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
