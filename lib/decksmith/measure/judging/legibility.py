"""Whether the text of a slide can be made out in its picture: the picture's pixels against what the page says is there.

For the widest line of each block the X-ray keeps how its first letters look, drawn plainly in their own font (`ink`), and
where they stand (`line`). Here the same cells are read from the picture and compared. Nothing about the page is believed:
blurred, mirrored, turned, covered, masked or overprinted text fails whatever brought it about, in the deck or in the file.
"""

import numpy as np
from PIL import Image

from decksmith.measure.decks.records import Box

CANVAS = 980  # CSS px across
CELLS = 16  # cells of `ink` to the font's size
WINDOW = 3 * CELLS + 1  # cells: what changes more slowly is background
SHIFT = 4  # cells that the line may stand beside its place
LEVELS = 3.0  # grey values of 255; what varies less is one colour


def cells(ink: str) -> np.ndarray:
    """The reference of a box, a float array (2 bands, cells): the share of ink, 0 to 1."""
    return np.array([int(digit, 16) for digit in ink], dtype=float).reshape(2, -1) / 15


def seen(picture: Image.Image, box: Box, pad: int = 0) -> np.ndarray:
    """The same cells as the picture has them: (2, cells + 2 * pad) grey values 0 to 255. `picture`: PIL, mode L."""
    scale = picture.width / CANVAS
    left, top, width, height = (value * scale for value in box["line"])
    across = len(box["ink"]) // 2
    step = width / across
    area = (left - pad * step, top, left + width + pad * step, top + height)
    # What stands off the canvas has no pixels; the edge's colour goes on there.
    inside = (
        max(0, area[0]),
        max(0, area[1]),
        min(picture.width, area[2]),
        min(picture.height, area[3]),
    )
    first = round((inside[0] - area[0]) / step)
    columns = round((inside[2] - inside[0]) / step)
    if inside[2] - inside[0] < 1 or inside[3] - inside[1] < 2 or columns < 1:
        return np.zeros((2, across + 2 * pad))
    part = picture.resize((columns, 2), Image.Resampling.BOX, box=inside)
    found = np.asarray(part, dtype=float)
    after = across + 2 * pad - first - columns
    return np.pad(found, ((0, 0), (max(0, first), max(0, after))), mode="edge")[
        :, : across + 2 * pad
    ]


def _less(rows: np.ndarray, window: int) -> np.ndarray:
    """Each row without its moving average over `window` cells, fewer at the ends."""
    across = rows.shape[1]
    sums = np.pad(np.cumsum(rows, axis=1), ((0, 0), (1, 0)))
    at = np.arange(across)
    low, high = np.maximum(0, at - window // 2), np.minimum(across, at + window // 2 + 1)
    return rows - (sums[:, high] - sums[:, low]) / (high - low)


def compare(reference: np.ndarray, found: np.ndarray, pad: int = SHIFT) -> float:
    """How like the reference's the strokes of a line are, at the best of a few places: a correlation, 0 to 1.

    reference: (2, n). found: (2, n + 2 * pad). Light on dark is as good as dark on light.
    """
    if found.max() - found.min() < LEVELS:
        return 0.0
    across, want, best = reference.shape[1], _less(reference, WINDOW), 0.0
    for shift in range(2 * pad + 1):
        have = _less(found[:, shift : shift + across], WINDOW)
        size = np.sqrt((have**2).sum() * (want**2).sum())
        best = max(best, abs(float((have * want).sum())) / size if size else 0.0)
    return best


def look(picture: Image.Image, box: Box) -> tuple[float, float]:
    """(likeness 0 to 1, contrast ratio from 1) of a line in the pixels of its slide.

    picture: PIL, mode L. box: one of `render.xray` that has `ink`. The contrast is that of the lightest and the darkest
    pixel where the line stands: an upper bound for that of its letters.
    """
    scale = picture.width / CANVAS
    left, top, width, height = (value * scale for value in box["line"])
    area = (
        max(0, int(left)),
        max(0, int(top)),
        min(picture.width, int(left + width) + 1),
        min(picture.height, int(top + height) + 1),
    )
    if area[2] - area[0] < 2 or area[3] - area[1] < 2:
        return 0.0, 1.0
    grey = np.asarray(picture.crop(area))
    ratio = (_luminance(int(grey.max())) + 0.05) / (_luminance(int(grey.min())) + 0.05)
    return compare(cells(box["ink"]), seen(picture, box, SHIFT)), ratio


def _luminance(grey: float) -> float:
    """The relative luminance (WCAG 2) of a grey value."""
    value = grey / 255
    return value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4
