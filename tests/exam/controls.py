"""Whether the offline judge looks: the same decks with another deck's pictures, and with white ones: a part of docs/judges.md.

  .venv/bin/python3 tests/exam/controls.py --run RUN      (make judge-controls)

Judges that give marks have the same two figures on their card (tests/exam/judge_exam.py).
"""

import argparse
import asyncio
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "lib"), str(Path(__file__).parent)]

import checks_card  # noqa: E402
from decksmith.measure.decks import lint  # noqa: E402
from decksmith.measure.judging import checks  # noqa: E402
from decksmith.measure.results import stats, text  # noqa: E402
from planted_defects import CONTROLS, controls  # noqa: E402

DECKS = 24


def share(record: dict) -> float:
    """The share of its checks that a judged deck passes."""
    found = record["judge"]["checks"]
    return found["passed"] / found["of"]


async def main(run: Path) -> None:
    good = await checks_card.judged(
        run, [checks_card.prepared(run, record) for record in checks_card.ours()[:DECKS]]
    )
    rows = {"as they are": [share(record) for record in good]}
    for record, other in zip(good, [*good[1:], good[0]], strict=True):
        for name, version in controls(run, record, other).items():
            judged = {**version, "judge": checks.judge(version, run, lint.limits())}
            rows.setdefault(name, []).append(share(judged))
    print("# Whether the offline judge looks\n")
    print(
        f"{len(good)} good decks of data/reference and data/gold, with the same words in the page and other pictures.\n"
    )
    print("| pictures | checks passed |\n|---|---:|")
    names = dict(zip(CONTROLS, ("of another deck", "white"), strict=True))
    for name, values in rows.items():
        print(f"| {names.get(name, name)} | {text.share(stats.mean(values, (0.0, 1.0)))} |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", type=Path, required=True)
    asyncio.run(main(parser.parse_args().run))
