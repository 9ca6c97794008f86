"""PresentBench as prompts of ours: its cases as its authors publish them, read from a folder.

The layout, by the README and the code of github.com/PresentBench/PresentBench (04f1b1c) and the card of its dataset:
DOMAIN/SOURCE/CASE/ holds `material.md` or `.pdf`, or `material_1`, `material_2` .., and `generation_task/` with the instructions
(`generation_prompt.md` or `instructions.md`) and `judge_prompt.json`; `DOMAIN/common_judge_prompt.json` has what all cases share.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

from decksmith.core import cli
from decksmith.core.records import Record
from decksmith.measure.decks import sources, templates
from decksmith.measure.judging import prompt_rows

REQUESTS = ("generation_prompt.md", "instructions.md")
# Five lists of questions; the third of the dependent ones is left out: it has a question for each page of a finished deck.
LISTS = {
    "i1": "material_independent_checklist_1",
    "i2": "material_independent_checklist_2",
    "d1": "material_dependent_checklist_1",
    "d2": "material_dependent_checklist_2",
}
FETCH = "hf download PresentBench/PresentBench --repo-type dataset --local-dir"


def rows(root: Path, budget: int) -> Iterator[Record]:
    """The cases under `root` as prompts, in the order of their paths; `budget` characters of material each. A prompt's
    `source.path` is its case, under which its scorer looks for slides.pdf. Raises cli.Missing, cli.BadData."""
    cases = sorted(
        path.parent.parent for path in root.glob("*/*/*/generation_task/judge_prompt.json")
    )
    if not cases:
        raise cli.Missing(f"{root} has no case of PresentBench; `{FETCH} {root}` fetches them")
    for case in cases:
        yield _row(root, case, budget)


def _row(root: Path, case: Path, budget: int) -> Record:
    place = case.relative_to(root)
    request = next((p for n in REQUESTS if (p := case / "generation_task" / n).is_file()), None)
    if request is None:
        raise cli.BadData(f"{case}/generation_task has none of {', '.join(REQUESTS)}")
    asked = request.read_text("utf-8", "replace").strip()
    try:
        documents = [sources.read(path.name, path.read_bytes(), budget) for path in _material(case)]
    except sources.NotRead as error:
        raise cli.BadData(f"{case}: {error}") from None
    material, quoted = sources.quoted(documents, budget)
    said = [
        {"role": "system", "content": templates.system_prompt()},
        {"role": "user", "content": f"{asked}\n\n{material}"},
    ]
    return {
        "id": re.sub(r"[^A-Za-z0-9._~-]+", "-", "-".join(place.parts))[-128:].lstrip("-._~"),
        "sets": ["core", "presentbench"],
        "messages": said,
        "asks": prompt_rows.named(asked) | {"domain": place.parts[0]},
        "checklist": _checklist(case, root / place.parts[0]),
        "sources": quoted,
        "source": {"path": str(place)},
    }


def _material(case: Path) -> list[Path]:
    """material, then material_1, material_2 .. as far as they go; markdown before PDF."""
    found, number = [], 0
    while True:
        stem = f"material_{number}" if number else "material"
        path = next((p for end in ("md", "pdf") if (p := case / f"{stem}.{end}").is_file()), None)
        if path:
            found.append(path)
        elif number:
            break
        number += 1
    if not found:
        raise cli.BadData(f"{case} has no material.md or material.pdf")
    return found


def _checklist(case: Path, domain: Path) -> list[Record]:
    """The questions in words; those that are a function of its scorer's are left out. A case's list stands before its
    domain's."""
    own = _object(case / "generation_task/judge_prompt.json")
    path = domain / "common_judge_prompt.json"
    shared = _object(path) if path.is_file() else {}
    items = []
    for short, name in LISTS.items():
        asked = own.get(name, shared.get(name)) or []
        for k, item in enumerate(asked, 1):
            if isinstance(item, str) and item.strip():
                items.append({"id": f"{short}.{k}", "ask": item.strip()})
    return items


def _object(path: Path) -> Record:
    try:
        found = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise cli.BadData(f"{path}: not JSON ({error})") from None
    if not isinstance(found, dict):
        raise cli.BadData(f"{path}: not a JSON object")
    return found
