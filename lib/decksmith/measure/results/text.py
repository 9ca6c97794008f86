"""Figures and tables as text: how this project writes a mean, an interval, a p-value, a rank, money and time."""

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
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
