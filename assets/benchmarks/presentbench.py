"""Print the cases of PresentBench below data/sources (or FOLDER) as requests with documents, a row each.

The layout is that of github.com/PresentBench/PresentBench (04f1b1c) and of its dataset's card: DOMAIN/SOURCE/CASE/ holds
`material.md` or `.pdf`, or `material_1`, `material_2` .., and `generation_task/` with the request and `judge_prompt.json`;
`DOMAIN/common_judge_prompt.json` has what all cases share.
"""

import json
import re
import sys
from pathlib import Path

FETCH = "hf download PresentBench/PresentBench --repo-type dataset --local-dir"
REQUESTS = ("generation_prompt.md", "instructions.md")
# Of five lists the third of the dependent ones is left out: it has a question for each page of a finished deck.
LISTS = {
    f"{kind[0]}{number}": f"material_{kind}_checklist_{number}"
    for kind in ("independent", "dependent")
    for number in (1, 2)
}


def row(top: Path, folder: Path, case: Path) -> dict[str, object]:
    """One case. Raises LookupError for one without a request or material."""
    asked = [path for name in REQUESTS if (path := case / "generation_task" / name).is_file()]
    documents = sorted(path for path in case.glob("material*.*") if path.suffix in (".md", ".pdf"))
    once = {path.stem: path for path in reversed(documents)}  # of .md and .pdf the first
    if not asked or not once:
        raise LookupError(f"{case} has no request, or no material")
    domain, lists = folder / case.relative_to(folder).parts[0], {}
    for path in (domain / "common_judge_prompt.json", case / "generation_task/judge_prompt.json"):
        lists |= json.loads(path.read_text("utf-8")) if path.is_file() else {}
    place = case.relative_to(folder)
    return {
        "id": re.sub(r"[^A-Za-z0-9._~-]+", "-", "-".join(place.parts))[-128:].lstrip("-._~"),
        "sets": ["core", "presentbench"],
        "request": asked[0].read_text("utf-8", "replace").strip(),
        "sources": [str(path.relative_to(top)) for _, path in sorted(once.items())],
        "budget": 60_000,  # characters of material that a model is given
        "asks": {"domain": domain.name},
        # The questions in words; others are a function of its scorer's.
        "checklist": [
            {"id": f"{short}.{k}", "ask": item.strip()}
            for short, name in LISTS.items()
            for k, item in enumerate(lists.get(name) or [], 1)
            if isinstance(item, str) and item.strip()
        ],
        "source": {"path": str(place)},
    }


def main(top: Path) -> None:
    folder = top / "presentbench"
    found = sorted(folder.glob("*/*/*/generation_task/judge_prompt.json"))
    if not found:
        sys.exit(f"{folder} has no case; `{FETCH} {folder}` fetches them")
    for path in found:
        print(json.dumps(row(top, folder, path.parent.parent), ensure_ascii=False))


if __name__ == "__main__":
    main(Path(*sys.argv[1:]) if sys.argv[1:] else Path(__file__).parents[2] / "data/sources")
