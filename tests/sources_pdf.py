"""Make a PDF of a document of data/sources from its markdown, the same bytes each time.

  python tests/sources_pdf.py data/sources/imkerverein-bericht.md

writes imkerverein-bericht.pdf beside it: plain pages with a text that can be read out again.
"""

import re
import sys
import textwrap
from pathlib import Path

from matplotlib import pyplot
from matplotlib.backends.backend_pdf import PdfPages

LINES, COLUMNS = 46, 86  # of a page


def lines(text: str) -> list[tuple[str, str]]:
    """`(line, "bold" or "normal")` of a markdown text: paragraphs wrapped, chapters numbered, the cells of a table in columns."""
    out, table, chapter = [], [], 0
    for line in [*text.split("\n"), ""]:
        if line.startswith("|"):
            table.append([cell.strip() for cell in line.strip("|").split("|")])
            continue
        rows = [row for row in table if set("".join(row)) - set("-:")]
        widths = [max(map(len, column)) + 3 for column in zip(*rows, strict=True)]
        for row in rows:
            cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
            out.append(("".join(cells).rstrip(), "normal"))
        table = []
        weight = "bold" if line.startswith("#") else "normal"
        if line.startswith("## "):
            chapter += 1
            line = f"{chapter} {line[3:]}"
        wrapped = textwrap.wrap(re.sub(r"^#+ ", "", line), COLUMNS) or [""]
        out += [(part, weight) for part in wrapped]
    return out


def main(source: Path) -> None:
    pyplot.rcParams["pdf.fonttype"] = 42  # letters that can be read out
    rest = lines(source.read_text())
    with PdfPages(source.with_suffix(".pdf"), metadata={"CreationDate": None}) as pdf:
        while rest:
            page, rest = rest[:LINES], rest[LINES:]
            figure = pyplot.figure(figsize=(8.27, 11.69))
            for k, (line, weight) in enumerate(page):
                y = 0.94 - k * 0.0192
                figure.text(
                    0.09, y, line.replace("$", r"\$"), size=9, family="monospace", weight=weight
                )
            pdf.savefig(figure)
            pyplot.close(figure)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
