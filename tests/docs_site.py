"""Build the pages as a site with a search: results/site, which loads nothing from elsewhere.

  make docs

The pages are written to be read where they lie. Here README becomes the first page, and a link that leads out of the pages (to a
folder, to a script) becomes its words. Anything that MkDocs objects to, such as a link that leads nowhere, fails the build.
"""

import posixpath
import re
import shutil
import sys
import tempfile
from pathlib import Path

from mkdocs.commands.build import build
from mkdocs.config import load_config

ROOT = Path(__file__).resolve().parents[1]
ASIDE = ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")  # beside README, and pages here
LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]+)\)")
# The menu: the users' pages by chapter; what no line names stands under its folder's.
NAV = {
    "Begin": ["index", "tutorial", "prompts", "troubleshooting", "platforms", "glossary"],
    "Measure": [
        "results",
        "protocol",
        "statistics",
        "judge-card",
        "conditions",
        "decks",
        "templates",
    ],
    "Models and money": ["models", "costs"],
    "Train": [
        "corpus",
        "training",
        "copies",
        "rl",
        "rewards",
        "reward-server",
        "cluster",
        "images",
    ],
    "Bench": ["benchmarks", "benchmark-howto", "gym", "eval-server"],
    "People": ["people", "votes", "judges"],
    "Reference": ["scripts", "variables", "records", "security"],
}


def on_site(name: str) -> str:
    """The place of a page or picture on the site."""
    return "index.md" if name == "README.md" else name.removeprefix("docs/")


def address(name: str, target: str, names: set[str]) -> str | None:
    """A link of page `name` (a path from the checkout's root) as it is on the site; None where it leads out of the pages."""
    if re.match(r"[a-z]+:|#", target):
        return target
    place, mark, anchor = target.partition("#")
    path = posixpath.normpath(posixpath.join(posixpath.dirname(name), place))
    if path not in names:
        return None
    here = posixpath.dirname(on_site(name)) or "."
    return posixpath.relpath(on_site(path), here) + mark + anchor


def rewritten(name: str, text: str, names: set[str]) -> str:
    """A page with its links as they are on the site; `names`: every page and picture, as paths from the root."""

    def link(match: re.Match[str]) -> str:
        leads = address(name, match[2], names)
        return f"[{match[1]}]({leads})" if leads else match[1]

    return LINK.sub(link, text)


def collect(folder: Path) -> None:
    """Write the pages and their pictures into a folder."""
    pages = [*(ROOT / "docs").rglob("*.md"), *(ROOT / name for name in ("README.md", *ASIDE))]
    pictures = list((ROOT / "docs").rglob("*.png"))
    names = {path.relative_to(ROOT).as_posix() for path in [*pages, *pictures]}
    for path in [*pages, *pictures]:
        name = path.relative_to(ROOT).as_posix()
        target = folder / on_site(name)
        target.parent.mkdir(parents=True, exist_ok=True)
        if path in pages:
            target.write_text(rewritten(name, path.read_text(), names))
        else:
            shutil.copy(path, target)
    mermaid = ROOT / "assets/renderer/node_modules/mermaid/dist/mermaid.min.js"
    if mermaid.is_file():  # else the theme would load it from elsewhere
        shutil.copy(mermaid, folder)


def nav(folder: Path) -> list[dict[str, list[str]]]:
    """The menu: NAV, then what it does not name, by folder."""
    there = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.md"))
    menu = {title: [f"{page}.md" for page in pages] for title, pages in NAV.items()}
    named = {page for pages in menu.values() for page in pages}
    for page in there:
        if page not in named:
            title = {"": "More", "scripts": "Scripts", "maintain": "For maintainers"}
            menu.setdefault(title[posixpath.dirname(page)], []).append(page)
    return [{title: [page for page in pages if page in there]} for title, pages in menu.items()]


def main(out: Path) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        collect(folder)
        scripts = [path.name for path in folder.glob("*.js")]
        config = load_config(
            str(ROOT / "docs/mkdocs.yml"),
            docs_dir=name,
            site_dir=str(out),
            nav=nav(folder),
            extra_javascript=scripts,
        )
        build(config)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
