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
NAV = {
    "Begin": ["index", "tutorial", "results", "prompts", "troubleshooting", "glossary"],
    "Measure": ["protocol", "statistics", "statistics-bench", "looks-bench", "judge-card"],
    "Models and money": ["models", "costs", "engines"],
    "Corpus and training": ["corpus", "training", "cluster", "images"],
    "Benchmarks": ["benchmarks", "benchmark-howto", "eval-server"],
    "People": ["people", "votes", "votes-bench", "proxy"],
    "Reference": ["scripts", "records", "architecture", "security", "figures"],
    "Speed": [
        "speed",
        "render-speed",
        "render-pages",
        "pipeline-speed",
        "reward-speed",
        "scale",
        "report-speed",
        "sizes",
    ],
}


def address(name: str, target: str, names: set[str]) -> str | None:
    """A link of page `name` (a path from the checkout's root) as it is on the site; None where it leads out of the pages."""
    if re.match(r"[a-z]+:|#", target):
        return target
    place, mark, anchor = target.partition("#")
    path = posixpath.normpath(posixpath.join(posixpath.dirname(name), place))
    if path == "README.md":
        return "index.md" + mark + anchor
    return path.removeprefix("docs/") + mark + anchor if path in names else None


def rewritten(name: str, text: str, names: set[str]) -> str:
    """A page with its links as they are on the site; `names`: every page and picture, as paths from the root."""

    def link(match: re.Match[str]) -> str:
        leads = address(name, match[2], names)
        return f"[{match[1]}]({leads})" if leads else match[1]

    return LINK.sub(link, text)


def collect(folder: Path) -> None:
    """Write the pages and their pictures into a folder, flat."""
    pages = [*(ROOT / "docs").glob("*.md"), *(ROOT / name for name in ("README.md", *ASIDE))]
    pictures = list((ROOT / "docs").glob("*.png"))
    names = {path.relative_to(ROOT).as_posix() for path in [*pages, *pictures]}
    for path in pages:
        name = path.relative_to(ROOT).as_posix()
        target = folder / ("index.md" if name == "README.md" else path.name)
        target.write_text(rewritten(name, path.read_text(), names))
    for path in pictures:
        shutil.copy(path, folder)
    mermaid = ROOT / "assets/renderer/node_modules/mermaid/dist/mermaid.min.js"
    if mermaid.is_file():  # else the theme would load it from elsewhere
        shutil.copy(mermaid, folder)


def nav(folder: Path) -> list[dict[str, list[str]]]:
    """The menu: NAV, with what it does not name at its end."""
    there = {path.stem for path in folder.glob("*.md")}
    named = {page for pages in NAV.values() for page in pages}
    parts = {**NAV, "More": sorted(there - named)}
    return [
        {title: [f"{page}.md" for page in pages if page in there]}
        for title, pages in parts.items()
        if there & set(pages)
    ]


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
