"""Figures and tables as text: how this project writes a mean, an interval, a p-value, a rank, money and time."""

import re
import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Any

DASH = "–"


def printable(said: object, width: int) -> str:
    """Text on one line that a terminal cannot mistake for orders: no escape sequences, control or direction characters."""
    plain = re.sub(r"\x1b(\[[0-?]*[ -/]*[@-~]?|\][^\x07\x1b]*(\x07|\x1b\\)?|.?)", "", str(said))
    plain = "".join(
        " " if c.isspace() else "" if unicodedata.category(c)[0] == "C" else c for c in plain
    )
    plain = " ".join(plain.split())
    return plain if len(plain) <= width else plain[: width - 2].rstrip() + ".."


def figure(value: float) -> str:
    """A score with two digits; there is no `-0.00`."""
    return f"{value:.2f}".replace("-0.00", "0.00")


def interval(value: Mapping[str, Any] | None) -> str:
    """`3.31 [3.02, 3.60]`, without brackets where nothing varies, a dash for none."""
    if value is None or value["mean"] is None:
        return DASH
    shown, lo, hi = figure(value["mean"]), value["lo"], value["hi"]
    return shown if lo is None or hi is None or lo == hi else f"{shown} {bounds(lo, hi)}"


def points(value: Mapping[str, Any]) -> str:
    """A difference of shares in per cent: `12 points [8, 16]`."""
    shown = [
        None if value[key] is None else round(100 * value[key]) for key in ("mean", "lo", "hi")
    ]
    reach = "" if None in shown[1:] or value["lo"] == value["hi"] else f" [{shown[1]}, {shown[2]}]"
    return f"{shown[0]} point{'' if shown[0] in (1, -1) else 's'}{reach}"


def whole_percent(share: float) -> str:
    """`61 %`."""
    return f"{share:.0%}".replace("%", " %")


def bounds(low: float, high: float) -> str:
    """`[3.02, 3.60]`."""
    return f"[{figure(low)}, {figure(high)}]"


def share(value: Mapping[str, Any] | None) -> str:
    """`61 % [52, 70]`, without brackets where all are the same, a dash for none."""
    if value is None or value["mean"] is None:
        return DASH
    lo, hi = value["lo"], value["hi"]
    reach = "" if lo is None or lo == hi else f" [{100 * lo:.0f}, {100 * hi:.0f}]"
    return whole_percent(value["mean"]) + reach


def p_value(p: float | None) -> str:
    if p is None:
        return DASH
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def rank(span: Sequence[int]) -> str:
    """A range of ranks, `[best, worst]`, as `2` or `2 to 3`."""
    best, worst = span
    return str(best) if best == worst else f"{best} to {worst}"


def percent(share: float) -> str:
    return f"{100 * share:g} %"


def price(dollars: float | None) -> str:
    if dollars is None:
        return "unknown"
    return f"${dollars:.4f}" if 0 < dollars < 1 else f"${dollars:.2f}"


def duration(seconds: float | None, longest: float = 90) -> str:
    """Seconds as text: in seconds below `longest`, in minutes below 60 times that, else in hours."""
    if seconds is None:
        return "unknown"
    if seconds < longest:
        return f"{seconds:.0f} s"
    if seconds < 60 * longest:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def few(idents: Iterable[str], shown: int = 5) -> str:
    """Some ids in words: at most so many of them, and how many more there are."""
    idents = list(idents)
    more = f" and {len(idents) - shown} more" if len(idents) > shown else ""
    return ", ".join(idents[:shown]) + more


def listed(words: Sequence[str]) -> str:
    """`a, b and c`."""
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]], words: int) -> list[str]:
    """The lines of a markdown table; the first `words` columns are text, the others stand to the right."""
    rule = ["---" if at < words else "---:" for at in range(len(header))]
    return [_row(cells) for cells in (header, rule, *rows)]


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def width(elsewhere: int = 100) -> int:
    """The columns of the terminal, at least 80, or so many where there is none."""
    return max(80, shutil.get_terminal_size((elsewhere, 24)).columns)


def shown(page: str) -> str:
    """A markdown page as it is, or for a terminal that reads it: paragraphs and tables fit it."""
    if not sys.stdout.isatty():
        return page
    lines: list[str] = []
    table: list[list[str]] = []
    for line in page.split("\n"):
        if line.startswith("| "):
            table.append([cell.replace("\\|", "|") for cell in line[2:-2].split(" | ")])
            continue
        if table:
            lines += columns([table[0], *table[2:]], table[1].count("---"))
            table = []
        lines += wrapped(line)
    return "\n".join(lines)


def wrapped(line: str) -> list[str]:
    """A line of markdown in as many of a terminal; a path stays whole, and a number with its %."""
    deeper = "  " if line.startswith("- ") else ""
    plain = line.replace("**", "").replace(" %", "\xa0%")
    lines = textwrap.wrap(
        plain, width(), subsequent_indent=deeper, break_long_words=False, break_on_hyphens=False
    )
    return [line.replace("\xa0", " ") for line in lines] or [""]


def columns(rows: Sequence[Sequence[str]], words: int) -> list[str]:
    """Rows, the first their header, in aligned columns of a terminal: the first `words` of them are text, the others
    stand to the right. Where there is no room, cells are wrapped, then the last columns follow below, with the first."""
    room = width(1000)
    by_column = list(zip(*rows, strict=True))
    least = [max(len(word) for cell in one for word in cell.split() or [""]) for one in by_column]
    widths = [max(map(len, one)) for one in by_column]
    fit = next(
        (n for n in range(len(least), 2, -1) if sum(least[:n]) + 2 * (n - 1) <= room),
        min(2, len(least)),
    )
    while sum(widths[:fit]) + 2 * (fit - 1) > room:
        at = max(range(fit), key=lambda at: widths[at] - least[at])
        if widths[at] <= least[at]:
            break
        widths[at] -= 1
    lines = []
    for row in rows:
        cells = [
            textwrap.wrap(cell, wide, break_on_hyphens=False) or [""]
            for cell, wide in zip(row[:fit], widths, strict=False)
        ]
        for parts in zip_longest(*cells, fillvalue=""):
            padded = [
                part.ljust(wide) if at < words or len(cells[at]) > 2 else part.rjust(wide)
                for at, (part, wide) in enumerate(zip(parts, widths, strict=False))
            ]
            lines.append("  ".join(padded).rstrip())
    if fit < len(least):
        lines += ["", *columns([[row[0], *row[fit:]] for row in rows if any(row[fit:])], 1)]
    return lines
