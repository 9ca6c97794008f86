"""What the scenes draw with: shapes in colours of a palette, their edges smoothed by masks of double size."""

import io
import math
import random
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from PIL import Image

SIZE = (1600, 900)
Colour = tuple[int, ...]
Paint = Colour | list[Colour]  # a list: a vertical run through the colours
Point = tuple[float, float]
Disc = tuple[float, float, float]  # x, y, radius


def mix(stops: Sequence[Colour], t: float) -> Colour:
    """The colour at `t`, from 0 to 1, of a run through colours."""
    k = min(int(t * (len(stops) - 1)), len(stops) - 2)
    u = t * (len(stops) - 1) - k
    return tuple(round(a + (b - a) * u) for a, b in zip(stops[k], stops[k + 1], strict=True))


def arc(x: float, y: float, width: float, height: float, angles: Iterable[float]) -> list[Point]:
    """Points of an ellipse around (x, y) with these half axes."""
    return [(x + width * math.cos(a), y + height * math.sin(a)) for a in angles]


def png(image: "Image.Image") -> bytes:
    """An image as PNG bytes."""
    out = io.BytesIO()
    image.save(out, "PNG", compress_level=6)
    return out.getvalue()


class Canvas:
    """A picture in the making, 0..1600 by 0..900.

    palette: "sky from top to horizon | four layers, far to near | light accent", colours in hex.
    """

    def __init__(self, rnd: random.Random, palette: str, words: Iterable[str]) -> None:
        from PIL import Image, ImageDraw

        self.Image, self.ImageDraw = Image, ImageDraw
        self.rnd, self.words = rnd, set(words)
        self.between, self.choice, self.gauss = rnd.uniform, rnd.choice, rnd.gauss
        sky, layers, lights = (
            [tuple(bytes.fromhex(colour)) for colour in part.split()] for part in palette.split("|")
        )
        self.sky, self.layers, (self.light, self.accent) = sky, layers, lights
        self.dark = sum(sky[0]) < 330
        self.image = self.gradient(sky)

    def gradient(self, stops: list[Colour], size: tuple[int, int] = SIZE) -> "Image.Image":
        """A vertical run through the colours."""
        strip = self.Image.new("RGB", (1, 256))
        strip.putdata([mix(stops, i / 255) for i in range(256)])
        return strip.resize(size, self.Image.Resampling.BICUBIC)

    def mask(self, shapes: Callable[[Any], object]) -> "Image.Image":
        """`shapes(draw)` draws in white, coordinates doubled."""
        big = self.Image.new("L", (SIZE[0] * 2, SIZE[1] * 2), 0)
        shapes(self.ImageDraw.Draw(big))
        return big.reduce(2)

    def lay(self, mask: "Image.Image", paint: Paint, alpha: float = 1.0) -> None:
        """Put paint through a mask."""
        if alpha < 1:
            mask = mask.point([round(v * alpha) for v in range(256)])
        if isinstance(paint, list):
            self.image.paste(self.gradient(paint), (0, 0), mask)
        else:
            self.image.paste(paint, (0, 0, *SIZE), mask)

    def polygon(self, points: Sequence[Point], paint: Paint, alpha: float = 1.0) -> None:
        self.lay(self.mask(lambda d: d.polygon(doubled(points), fill=255)), paint, alpha)

    def discs(self, discs: Sequence[Disc], paint: Paint, alpha: float = 1.0) -> None:
        """Circles; where they overlap they are no darker."""

        def shapes(d: Any) -> None:
            for disc in discs:
                d.ellipse(ellipse(*disc), fill=255)

        self.lay(self.mask(shapes), paint, alpha)

    def lines(
        self, lines: Sequence[Sequence[Point]], width: float, paint: Paint, alpha: float = 1.0
    ) -> None:
        def shapes(d: Any) -> None:
            for line in lines:
                d.line(doubled(line), fill=255, width=max(1, round(2 * width)), joint="curve")

        self.lay(self.mask(shapes), paint, alpha)

    def small(self, points: Sequence[Point], paint: Colour) -> None:
        """A small polygon, smoothed in its own box only, which costs less."""
        left, top = (math.floor(min(values)) - 1 for values in zip(*points, strict=True))
        right, bottom = (math.ceil(max(values)) + 2 for values in zip(*points, strict=True))
        big = self.Image.new("L", (4 * (right - left), 4 * (bottom - top)), 0)
        inside = [(4 * (x - left), 4 * (y - top)) for x, y in points]
        self.ImageDraw.Draw(big).polygon(inside, fill=255)
        self.image.paste(paint, (left, top, right, bottom), big.reduce(4))

    def glow(self, x: float, y: float, r: float, paint: Colour, alpha: float) -> None:
        """A soft round light."""
        size = max(2, round(2 * r))
        fades = [max(0.0, 1 - v / 181) ** 2 * 255 * alpha if v < 181 else 0 for v in range(256)]
        soft = self.Image.radial_gradient("L").point([round(v) for v in fades])
        left, top = round(x - r), round(y - r)
        soft = soft.resize((size, size), self.Image.Resampling.BICUBIC)
        self.image.paste(paint, (left, top, left + size, top + size), soft)

    def curve(self, base: float, amplitude: float) -> list[Point]:
        """A smooth random line from left to right around height `base`."""
        waves = [
            (self.between(0.6, 1.4) * f, self.between(0, 6.283), 1 / f**1.1) for f in (1, 2.3, 4.1)
        ]

        def height(x: float) -> float:
            return sum(a * math.sin(f * x / 1600 * 6.283 + p) for f, p, a in waves)

        return [(x, base - amplitude * height(x) / 1.6) for x in range(0, 1609, 8)]

    def ground(self, line: Sequence[Point], paint: Paint, alpha: float = 1.0) -> None:
        """All below a line."""
        self.polygon([*line, (1610, 910), (-10, 910)], paint, alpha)

    def sun(self, low: float = 330, high: float = 180) -> float:
        """A sun somewhere in the sky; returns its x."""
        x, y, r = self.between(350, 1250), self.between(high, low), self.between(55, 105)
        self.glow(x, y, r * 6, self.light, 0.55)
        self.discs([(x, y, r)], self.light, 0.95)
        return x

    def towards(self, colour: Colour, other: Colour, t: float) -> Colour:
        """A colour, so far on its way to another."""
        return mix([colour, other], t)


def doubled(points: Iterable[Point]) -> list[Point]:
    """Points as masks have them."""
    return [(2 * x, 2 * y) for x, y in points]


def ellipse(x: float, y: float, r: float) -> tuple[float, float, float, float]:
    """The box of a circle as masks have it."""
    return (2 * (x - r), 2 * (y - r), 2 * (x + r), 2 * (y + r))
