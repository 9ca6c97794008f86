"""Score the decks of tests/fixtures/gaming and write the table of docs/protocol.md; with --check, only say whether it is right.

Each deck but honest.md was made to please a metric and no reader; all answer prompt.json. They go through the real stages.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DECKS = ROOT / "tests" / "fixtures" / "gaming"
METRICS = ("craft_v5", "craft", "design", "content", "coherence", "overall", "judge_only", "checklist")


def scores(run):
    """{deck: {metric: score}} of every fixture by the offline protocol, through the stages of the pipeline."""
    prompt = json.loads((DECKS / "prompt.json").read_text())
    decks = {path.stem: path.read_text() for path in sorted(DECKS.glob("*.md"))}
    rows = "".join(json.dumps({**prompt, "id": name, "gen": {"text": text}}) + "\n" for name, text in decks.items())
    for stage in ("deck-parse", "deck-illustrate", "deck-render", "deck-judge", "deck-scan", "deck-score"):
        options = [] if stage == "deck-score" else ["--run", run]
        env = dict(os.environ, DECKSMITH_PROTOCOL="offline")
        rows = subprocess.run([ROOT / "bin" / stage, *options], input=rows, env=env, text=True, check=True,
                              stdout=subprocess.PIPE).stdout
    found = {}
    for record in map(json.loads, rows.splitlines()):
        score, features = record["score"], record["features"]
        found[record["id"]] = {"craft_v5": features["craft_v5"], "craft": features["craft"],
                               **{d: score["dimensions"][d] for d in ("design", "content", "coherence")},
                               **{key: score[key] for key in ("overall", "judge_only", "checklist")}}
    return found


def fooled(found):
    """{deck: [metrics that do not put it below the honest deck]} of those that fool any."""
    honest = found["honest"]
    lost = {name: [m for m in METRICS if row[m] >= honest[m]] for name, row in found.items() if name != "honest"}
    return {name: metrics for name, metrics in lost.items() if metrics}


def table(found):
    """The scores as a markdown table; what does not stand below the honest deck is bold."""
    lines = ["| deck | " + " | ".join(f"`{m}`" for m in METRICS) + " |", "|---" * (len(METRICS) + 1) + "|"]
    lost = fooled(found)
    for name in sorted(found, key=lambda name: (name != "honest", name)):
        cells = [f"{found[name][m]:.2f}" for m in METRICS]
        cells = [f"**{c}**" if m in lost.get(name, ()) else c for m, c in zip(METRICS, cells, strict=True)]
        lines.append(f"| {name.replace('_', ' ')} | " + " | ".join(cells) + " |")
    count = [f"{sum(m in metrics for metrics in lost.values())} of {len(found) - 1}" for m in METRICS]
    return "\n".join([*lines, "| fooled by | " + " | ".join(count) + " |"])


def main():
    page = ROOT / "docs" / "protocol.md"
    old = page.read_text()
    with tempfile.TemporaryDirectory() as run:
        new = re.sub(r"\| deck \| `craft_v5` .*\n(\|.*\n)+", lambda _: table(scores(run)) + "\n", old)
    if "--check" in sys.argv:
        sys.exit(new != old and "docs/protocol.md is behind tests/fixtures/gaming: run make gaming")
    page.write_text(new)


if __name__ == "__main__":
    main()
