"""Ship a theme: `make theme NAME=slidev-theme-x`, or `@slidev/theme-x`, with `@1.2.3` after it or without.

In steps, each of which may be run again: the package into assets/renderer/package.json and its lock file, a line in
assets/renderer/themes.json, a test deck tests/fixtures/themes/x.md (edit it so that it shows what the theme can do), and
that deck rendered: its findings and results/themes/x.png, to be looked at.
"""

import asyncio
import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "lib"))

from decksmith.core.protocol import Protocol  # noqa: E402
from decksmith.measure.decks.parser import LAYOUTS, THEMES  # noqa: E402
from decksmith.measure.render import pool as render_pool  # noqa: E402

RENDERER = ROOT / "assets" / "renderer"
DECKS = ROOT / "tests" / "fixtures" / "themes"

DECK = """---
theme: {theme}
title: Tides for sailors
---

# Tides for sailors

A short course

---

# What moves the sea

- The moon pulls, **twice a day**
- `height = mean + range`

```ts
const tide: number = 12
```

| Port | Range |
|------|------:|
| Brest | 6 m |

---
layout: {layout}
---

# In the layout {layout}

High water and low water
"""


def install(name):
    """Add the package `name` to the renderer's dependencies at one version, without running its scripts."""
    flags = "--save-exact --ignore-scripts --omit-lockfile-registry-resolved --no-audit --no-fund --loglevel=error"
    path = f"{ROOT / '.venv' / 'bin'}:{os.environ['PATH']}"
    subprocess.run(
        ["npm", "install", *flags.split(), name],
        cwd=RENDERER,
        env={**os.environ, "PATH": path},
        check=True,
    )
    (RENDERER / "node_modules" / ".done").touch()


def layouts(package):
    """The layouts that a package has besides Slidev's own; a .ts file without a default export helps them."""
    files = (RENDERER / "node_modules" / package / "layouts").glob("*")
    found = {
        path.stem
        for path in files
        if path.suffix == ".vue" or path.suffix == ".ts" and "export default" in path.read_text()
    }
    return sorted(found - set(LAYOUTS))


def enter(theme, package):
    """Write the theme's line of the table, where it has none; the layouts are read again each time."""
    table = {
        "package": package,
        "published": False,
        "seeds": False,
        **THEMES.get(theme, {}),
        "layouts": layouts(package),
    }
    THEMES[theme] = table
    rows = [f"  {json.dumps(name)}: {json.dumps(THEMES[name])}" for name in sorted(THEMES)]
    (RENDERER / "themes.json").write_text("{\n" + ",\n".join(rows) + "\n}\n")


def deck(theme):
    """The path of the theme's test deck, written where there is none."""
    path = DECKS / f"{theme}.md"
    if not path.exists():
        path.write_text(
            DECK.format(theme=theme, layout=next(iter(THEMES[theme]["layouts"]), "section"))
        )
    return path


def draw(themes, folder):
    """Render the test decks in one worker: {theme: render value}, pictures below `folder`."""

    async def go():
        pool = render_pool.Pool(Protocol.load("offline"))
        try:
            return {
                theme: await pool.render(
                    folder, {"id": theme, "deck": {"path": f"{theme}/deck.md"}}
                )
                for theme in themes
            }
        finally:
            await pool.close()

    for theme in themes:
        place = folder / theme
        (place / "images").mkdir(parents=True, exist_ok=True)
        (place / "deck.md").write_text(deck(theme).read_text())
        (place / "images" / "a.png").write_bytes((ROOT / "docs" / "vote.png").read_bytes())
    return asyncio.run(go())


def sheet(values, folder, path):
    """One picture of all the decks: a row each, and its findings on stdout."""
    from PIL import Image

    width, height = 490, 276
    whole = Image.new(
        "RGB",
        (width * max(len(value["slides"]) for value in values.values()), height * len(values)),
    )
    for row, (theme, value) in enumerate(values.items()):
        for column, name in enumerate(value["slides"]):
            with Image.open(folder / name) as picture:
                whole.paste(
                    picture.convert("RGB").resize((width - 4, height - 4)),
                    (column * width, row * height),
                )
        print(
            f"{theme}: {value['status']}",
            *(f"  slide {e['slide']}: {e['class']}: {e['message']}" for e in value["errors"]),
            sep="\n",
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    whole.save(path)
    print(f"Look at {path}")


def main(name):
    match = re.fullmatch(r"((?:@slidev/|slidev-)theme-([a-z0-9-]+))(?:@[\w.-]+)?", name)
    if not match:
        sys.exit(f"theme: NAME={name} is no theme's package: slidev-theme-x or @slidev/theme-x")
    package, theme = match.groups()
    install(name)
    enter(theme, package)
    folder = ROOT / "results" / "themes"
    values = draw([theme], folder)
    sheet(values, folder, folder / f"{theme}.png")
    print(f"Edit {deck(theme)}, run this again, then `make themes`.")
    return 0 if values[theme]["status"] == "ok" else 65


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
