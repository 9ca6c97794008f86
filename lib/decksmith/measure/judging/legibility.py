"""Whether the text of a slide can be made out in its picture: the picture's pixels against what the page says is there.

Which letters change the picture at all, assets/renderer/letters.mjs tells. For the widest line of each block the X-ray
keeps how its first letters look, drawn plainly in their own font (`ink`), and where they stand (`line`). Here the same
cells are read from the picture and compared. Nothing about the page is believed: blurred, mirrored, turned, covered,
masked or overprinted text fails whatever brought it about."""

import numpy as np
from PIL import Image

from decksmith.measure.decks.records import Box

# Cells, of which `ink` has 16 to the font's size: what changes more slowly is background.
WINDOW = 49
SHIFT = 4  # cells that the line may stand beside its place
LEVELS = 3.0  # grey values of 255; what varies less is one colour


def _seen(picture: Image.Image, box: Box, scale: float) -> np.ndarray:
    """The cells of a box as the picture has them: (2, cells + 2 * SHIFT) grey values 0 to 255."""
    left, top, width, height = (value * scale for value in box["line"])
    across = len(box["ink"]) // 2
    step, wanted = width / across, across + 2 * SHIFT
    begin, end = left - SHIFT * step, left + width + SHIFT * step
    # What stands off the canvas has no pixels; the edge's colour goes on there.
    x0, x1 = max(0, begin), min(picture.width, end)
    y0, y1 = max(0, top), min(picture.height, top + height)
    first, columns = round((x0 - begin) / step), round((x1 - x0) / step)
    if x1 - x0 < 1 or y1 - y0 < 2 or columns < 1:
        return np.zeros((2, wanted))
    part = picture.resize((columns, 2), Image.Resampling.BOX, box=(x0, y0, x1, y1))
    sides = max(0, first), max(0, wanted - first - columns)
    return np.pad(np.asarray(part, dtype=float), ((0, 0), sides), mode="edge")[:, :wanted]


def _less(rows: np.ndarray, window: int) -> np.ndarray:
    """Each row without its moving average over `window` cells, fewer at the ends."""
    across = rows.shape[1]
    sums = np.pad(np.cumsum(rows, axis=1), ((0, 0), (1, 0)))
    at = np.arange(across)
    low, high = np.maximum(0, at - window // 2), np.minimum(across, at + window // 2 + 1)
    return rows - (sums[:, high] - sums[:, low]) / (high - low)


def _likeness(reference: np.ndarray, found: np.ndarray) -> float:
    """How like the reference (2, n) the strokes of a line (2, n + 2 * SHIFT) are at best: 0 to 1."""
    if found.max() - found.min() < LEVELS:
        return 0.0
    across, want, best = reference.shape[1], _less(reference, WINDOW), 0.0
    for shift in range(2 * SHIFT + 1):
        have = _less(found[:, shift : shift + across], WINDOW)
        size = np.sqrt((have**2).sum() * (want**2).sum())
        best = max(best, abs(float((have * want).sum())) / size if size else 0.0)
    return best


def look(picture: Image.Image, box: Box, scale: float) -> tuple[float, float]:
    """(likeness 0 to 1, contrast ratio from 1) of a line in the pixels (PIL, mode L) of its slide, `scale` to a CSS px. box:
    of `render.xray`, with `ink`. The contrast of the lightest and darkest pixel bounds that of the letters."""
    left, top, width, height = (value * scale for value in box["line"])
    if lean := box.get("lean"):
        middle = left + width / 2, top + height / 2
        picture = picture.rotate(lean, Image.Resampling.BILINEAR, center=middle)
    x0, x1 = max(0, int(left)), min(picture.width, int(left + width) + 1)
    y0, y1 = max(0, int(top)), min(picture.height, int(top + height) + 1)
    if x1 - x0 < 2 or y1 - y0 < 2:
        return 0.0, 1.0
    grey = np.asarray(picture.crop((x0, y0, x1, y1)))
    ratio = (_luminance(int(grey.max())) + 0.05) / (_luminance(int(grey.min())) + 0.05)
    ink = np.array([int(digit, 16) for digit in box["ink"]], dtype=float).reshape(2, -1) / 15
    return _likeness(ink, _seen(picture, box, scale)), ratio


def _luminance(grey: float) -> float:
    """The relative luminance (WCAG 2) of a grey value."""
    value = grey / 255
    return value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4
