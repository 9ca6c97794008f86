#!/usr/bin/env python3
"""Draw the pictures of this folder again, from the topics and palettes of pictures.toml. For maintainers:

  .venv/bin/python3 assets/pictures/draw.py [folder]

A picture depends on its name and palette; with the same Pillow it has the same bytes. `drawn` (deck-illustrate) chooses one by the
words of a query, so that other pictures need another VERSION in lib/decksmith/measure/decks/pictures.py.
"""

import math
import random
import sys
import tomllib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from PIL import Image, ImageChops, ImageDraw, ImageFilter

HERE = Path(__file__).parent
SHOWN = (1120, 630)  # what is kept; drawn larger

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


class Canvas:
    """A picture in the making, 0..1600 by 0..900.

    palette: "sky from top to horizon | four layers, far to near | light accent", colours in hex.
    """

    def __init__(self, rnd: random.Random, palette: str) -> None:
        self.rnd = rnd
        self.between, self.choice, self.gauss = rnd.uniform, rnd.choice, rnd.gauss
        sky, layers, lights = (
            [tuple(bytes.fromhex(colour)) for colour in part.split()] for part in palette.split("|")
        )
        self.sky, self.layers, (self.light, self.accent) = sky, layers, lights
        self.dark = sum(sky[0]) < 330
        self.image = self.gradient(sky)

    def gradient(self, stops: list[Colour], size: tuple[int, int] = SIZE) -> Image.Image:
        """A vertical run through the colours."""
        strip = Image.new("RGB", (1, 256))
        strip.putdata([mix(stops, i / 255) for i in range(256)])
        return strip.resize(size, Image.Resampling.BICUBIC)

    def mask(self, shapes: Callable[[Any], object]) -> Image.Image:
        """`shapes(draw)` draws in white, coordinates doubled."""
        big = Image.new("L", (SIZE[0] * 2, SIZE[1] * 2), 0)
        shapes(ImageDraw.Draw(big))
        return big.reduce(2)

    def lay(self, mask: Image.Image, paint: Paint, alpha: float = 1.0) -> None:
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
        big = Image.new("L", (4 * (right - left), 4 * (bottom - top)), 0)
        inside = [(4 * (x - left), 4 * (y - top)) for x, y in points]
        ImageDraw.Draw(big).polygon(inside, fill=255)
        self.image.paste(paint, (left, top, right, bottom), big.reduce(4))

    def glow(self, x: float, y: float, r: float, paint: Colour, alpha: float) -> None:
        """A soft round light."""
        size = max(2, round(2 * r))
        fades = [max(0.0, 1 - v / 181) ** 2 * 255 * alpha if v < 181 else 0 for v in range(256)]
        soft = Image.radial_gradient("L").point([round(v) for v in fades])
        left, top = round(x - r), round(y - r)
        soft = soft.resize((size, size), Image.Resampling.BICUBIC)
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


def ridges(c: Canvas) -> None:
    """Mountains behind mountains."""
    c.sun()
    for k, colour in enumerate(c.layers):
        line = _peaks(c, 430 + 115 * k, 130 - 14 * k)
        haze = (0.1, 0.42 - 0.1 * k)
        c.ground(line, [c.towards(colour, c.sky[-1], t) for t in haze])


def _peaks(c: Canvas, base: float, height: float) -> list[Point]:
    """A mountain line: midpoint displacement."""
    points, spread = [base + c.between(-1, 1) * height * 0.5 for _ in range(5)], height
    while len(points) < 200:
        spread *= 0.52
        finer = []
        for a, b in zip(points, points[1:], strict=False):
            finer += [a, (a + b) / 2 + c.between(-1, 1) * spread]
        points = [*finer, points[-1]]
    return [(1600 * i / (len(points) - 1), y) for i, y in enumerate(points)]


def sea(c: Canvas) -> None:
    """The sun over waves, and a boat."""
    x, horizon = c.sun(low=400, high=250), 470
    water = [c.layers[0], c.layers[0], mix(c.layers[:2], 0.6)]
    c.polygon([(0, horizon), (1600, horizon), (1600, 900), (0, 900)], water)
    glints = []
    for y in range(horizon + 8, 640, 9):
        for _ in range(3):
            at, w = x + c.gauss(0, 30 + (y - horizon) * 0.3), c.between(20, 80)
            glints.append([(at - w / 2, y), (at + w / 2, y)])
    c.lines(glints, 2.4, c.light, 0.5)
    for k, colour in enumerate(c.layers[1:]):
        line = _wave(c, 575 + 105 * k, k)
        c.ground(line, [colour, colour, c.towards(colour, c.sky[1], 0.18)])
        c.lines([line], 2.5, c.light, 0.28)
    sail, top = c.between(250, 1350), horizon
    c.polygon([(sail, top - 74), (sail, top - 8), (sail + 42, top - 8)], c.light, 0.95)
    c.polygon([(sail - 5, top - 60), (sail - 5, top - 8), (sail - 30, top - 8)], c.light, 0.8)
    hull = [(sail - 36, top - 4), (sail + 46, top - 4), (sail + 34, top + 8), (sail - 26, top + 8)]
    c.polygon(hull, c.layers[3], 0.9)


def _wave(c: Canvas, base: float, k: int) -> list[Point]:
    phase = c.between(0, 6.28)
    f = c.between(2.2, 3.4) - 0.4 * k

    def height(x: float) -> float:
        small = 0.4 * math.sin(2.7 * f * x / 1600 * 6.283 + 2 * phase)
        return (16 + 9 * k) * (math.sin(f * x / 1600 * 6.283 + phase) + small)

    return [(x, base - height(x)) for x in range(0, 1609, 8)]


def forest(c: Canvas) -> None:
    """Firs on hills."""
    c.sun(low=300, high=160)
    for k, colour in enumerate(c.layers):
        size, line = 120 + 75 * k, c.curve(520 + 110 * k, 30)
        shapes = [[*line, (1610, 910), (-10, 910)]]
        x = -30.0
        while x < 1640:
            h = size * c.between(0.6, 1.15)
            y = line[min(len(line) - 1, max(0, int(x / 8)))][1] + 18
            for part in range(5):
                top, w = y - h + h * 0.17 * part, h * (0.07 + 0.052 * part)
                shapes.append([(x, top), (x - w, top + h * 0.32), (x + w, top + h * 0.32)])
            x += size * c.between(0.22, 0.62)
        tone = c.towards(colour, c.sky[-1], 0.3 - 0.08 * k)
        foot = c.towards(tone, c.sky[-1], 0.3 if k < 3 else 0.0)
        c.lay(c.mask(_polygons(shapes)), [tone, tone, foot])


def _polygons(shapes: list[list[Point]]) -> Callable[[Any], None]:
    """Of several polygons what `Canvas.mask` draws."""

    def draw(d: Any) -> None:
        for shape in shapes:
            d.polygon(doubled(shape), fill=255)

    return draw


def leaves(c: Canvas) -> None:
    """Large leaves from both sides, and berries."""
    c.glow(c.between(300, 1300), 300, 700, c.light, 0.8)
    corner = c.choice((0, 1))
    for k, colour in enumerate(c.layers):
        for i in range(6 - k):
            right = (corner + (i % 3 == 2)) % 2
            x, y = (1660 if right else -60), c.between(80, 860)
            lean = c.between(-0.75, 0.75)
            angle = math.pi - lean if right else lean
            _leaf(c, x, y, angle, c.between(420, 760) - 50 * k, colour)
    berries = [(c.between(500, 1100), c.between(150, 750), c.between(6, 16)) for _ in range(7)]
    c.discs(berries, c.accent, 0.75)


def _leaf(c: Canvas, x: float, y: float, angle: float, length: float, colour: Colour) -> None:
    bend, width = c.between(-0.5, 0.5), length * c.between(0.12, 0.19)
    spine, left, right = [], [], []
    for i in range(41):
        t = i / 40
        way, w = angle + bend * t, width * math.sin(math.pi * t) ** 0.8 * (1.15 - 0.5 * t)
        spine.append((x, y))
        left.append((x - math.sin(way) * w, y + math.cos(way) * w))
        right.append((x + math.sin(way) * w, y - math.cos(way) * w))
        x, y = x + math.cos(way) * length / 40, y + math.sin(way) * length / 40
    c.polygon(left + right[::-1], colour, 0.93)
    c.polygon(left + spine[::-1], c.towards(colour, c.light, 0.16), 0.9)
    veins = [[spine[i], edge[i + 4]] for i in range(4, 34, 4) for edge in (left, right)]
    c.lines([spine, *veins], 1.6, c.towards(colour, c.light, 0.5), 0.7)


def skyline(c: Canvas) -> None:
    """Houses in rows, the near ones with lit windows."""
    c.sun(low=420, high=260)
    for k, colour in enumerate(c.layers):
        houses, x = [], -20.0
        while x < 1600:
            w = c.between(46, 110) + 10 * k
            h = c.between(130, 400) * (1.35 - 0.2 * k) + 40 + (150 if c.rnd.random() < 0.12 else 0)
            houses.append((x, 900 - h - (3 - k) * 62, w))
            x += w + (c.between(0, 26) if k > 1 else 0)
        tone = c.towards(colour, c.sky[-1], 0.24 - 0.08 * k)
        foot = c.towards(tone, c.sky[-1], 0.35 - 0.1 * k)
        c.lay(c.mask(_blocks(houses)), [tone, tone, foot])
        if k >= 1:
            c.lay(c.mask(_windows(c, houses, 0.10 + 0.07 * k)), c.accent, 0.22 + 0.2 * k)


House = tuple[float, float, float]  # left, top, width


def _blocks(houses: list[House]) -> Callable[[Any], None]:
    """The houses; some have a mast, some a slanting roof."""

    def draw(d: Any) -> None:
        for i, (x, y, w) in enumerate(houses):
            d.rectangle((2 * x, 2 * y, 2 * (x + w), 1800), fill=255)
            if i % 5 == 1:
                top = (2 * (x + w * 0.25), 2 * (y - 22), 2 * (x + w * 0.75), 2 * y)
                mast = (2 * (x + w / 2) - 3, 2 * (y - 74), 2 * (x + w / 2) + 3, 2 * y)
                d.rectangle(top, fill=255)
                d.rectangle(mast, fill=255)
            elif i % 5 == 3:
                d.polygon(doubled([(x, y), (x + w, y), (x + w, y - w * 0.4)]), fill=255)

    return draw


def _windows(c: Canvas, houses: list[House], chance: float) -> Callable[[Any], None]:
    def draw(d: Any) -> None:
        for x, y, w in houses:
            for top in range(int(y) + 16, 900, 22):
                for left in range(int(x) + 10, int(x + w) - 12, 17):
                    if c.rnd.random() < chance:
                        d.rectangle((2 * left, 2 * top, 2 * left + 14, 2 * top + 20), fill=255)

    return draw


def cosmos(c: Canvas) -> None:
    """A planet with rings and a moon among stars."""
    for _ in range(3):
        x, y, r = c.between(100, 1500), c.between(100, 800), c.between(350, 650)
        c.glow(x, y, r, c.choice([*c.layers[:2], c.accent]), 0.4)
    for size, count, alpha in ((0.9, 260, 0.5), (1.5, 90, 0.7), (2.4, 22, 0.95)):
        stars = [
            (c.between(0, 1600), c.between(0, 900), size * c.between(0.7, 1.2))
            for _ in range(count)
        ]
        c.discs(stars, c.light, alpha)
    x, y, r = c.between(450, 1150), c.between(380, 540), c.between(150, 240)
    c.glow(x, y, r * 2.3, c.accent, 0.35)
    _planet(c, x, y, r)
    mx, my = x + c.choice((-1, 1)) * r * 2.3, y - r * c.between(0.6, 1.1)
    c.discs([(mx, my, r * 0.16)], c.towards(c.light, c.layers[0], 0.25))


def _planet(c: Canvas, x: float, y: float, r: float) -> None:
    """The far half of the rings, the planet with its night side, the near half."""
    disc = c.mask(lambda d: d.ellipse(ellipse(x, y, r), fill=255))
    stripes = [c.light, c.accent, c.layers[0], c.layers[1]]
    body = c.gradient(stripes, (round(2 * r), round(2 * r)))
    sheet = c.image.copy()
    body = body.rotate(c.between(-30, 30), Image.Resampling.BICUBIC, fillcolor=c.accent)
    sheet.paste(body, (round(x - r), round(y - r)))
    tilt, turn = c.between(0.16, 0.26), c.between(-0.35, 0.35)

    def rings(start: int, stop: int) -> list[list[Point]]:
        found = []
        for s in (1.5, 1.62, 1.78):
            angles = [t / 60 * math.pi for t in range(start, stop + 1)]
            flat = [(math.cos(t) * r * s, math.sin(t) * r * s * tilt) for t in angles]
            found.append([turned(a, b) for a, b in flat])
        return found

    def turned(a: float, b: float) -> Point:
        return (
            x + a * math.cos(turn) - b * math.sin(turn),
            y + a * math.sin(turn) + b * math.cos(turn),
        )

    c.lines(rings(60, 120), 5, c.light, 0.45)
    c.image.paste(sheet, (0, 0), disc)
    day = (2 * (x - r * 1.32), 2 * (y - r * 1.32), 2 * (x + r * 0.78), 2 * (y + r * 0.78))
    soft = c.mask(lambda d: d.ellipse(day, fill=255)).filter(ImageFilter.GaussianBlur(r * 0.16))
    c.lay(ImageChops.multiply(ImageChops.invert(soft), disc), c.layers[3], 0.8)
    c.lines(rings(0, 60), 5, c.light, 0.7)


def network(c: Canvas) -> None:
    """Nodes joined to their neighbours, some of them hubs."""
    for _ in range(3):
        x, y, r = c.between(200, 1400), c.between(100, 800), c.between(300, 600)
        c.glow(x, y, r, c.layers[0] if c.dark else c.light, 0.5)
    nodes: list[Point] = []
    for _ in range(400):
        node = (c.between(-40, 1640), c.between(-40, 940))
        if all(_squared(node, other) > 105**2 for other in nodes):
            nodes.append(node)
    ink = c.layers[0] if c.dark else c.layers[2]
    for limit, width, alpha in ((215, 1.2, 0.3), (150, 2.0, 0.5)):
        near = [[a, b] for i, a in enumerate(nodes) for b in nodes[:i] if _squared(a, b) < limit**2]
        c.lines(near, width, ink, alpha)
    hubs = c.rnd.sample(nodes, 9)
    for x, y in hubs[:4]:
        c.glow(x, y, 150, c.accent, 0.55)
    dots = [(x, y, c.between(4, 8)) for x, y in nodes]
    c.discs(dots, c.towards(ink, c.light, 0.45 if c.dark else 0.1))
    large = [(x, y, c.between(13, 21)) for x, y in hubs[4:]]
    c.discs(large, c.light if c.dark else c.layers[3], 0.95)
    c.discs([(x, y, c.between(15, 24)) for x, y in hubs[:4]], c.accent)
    c.discs([(x, y, 6) for x, y in hubs], c.sky[0])


def _squared(a: Point, b: Point) -> float:
    """The square of the distance of two points."""
    return (a[0] - b[0]) ** 2 + (a[1] - b[1]) ** 2


def rising(c: Canvas) -> None:
    """Bars that grow, and a line above them."""
    c.glow(1250, 220, 620, c.light, 0.5)
    c.lines([[(0, y), (1600, y)] for y in range(180, 900, 120)], 1, c.layers[1], 0.3)
    n = c.choice((9, 11, 13))
    step, bars, level = 1600 / n, [], 0.18
    for i in range(n):
        level = min(0.8, level + c.between(-0.035, 0.115) * 9 / n)
        bars.append((i * step + step * 0.16, 900 - level * 800, step * 0.68))
    for i, (x, y, w) in enumerate(bars):
        tone = mix(c.layers, i / (n - 1))
        shades = [c.towards(tone, c.light, 0.12), tone, c.towards(tone, c.sky[-1], 0.35)]
        c.polygon([(x, y), (x + w, y), (x + w, 910), (x, 910)], shades)
    knots = [(x + w / 2, y - 70 - c.between(0, 24)) for x, y, w in bars]
    knots = [(-60, knots[0][1] + 60), *knots, (1660, knots[-1][1] - 40)]
    line = []
    for (x0, y0), (x1, y1) in zip(knots, knots[1:], strict=False):
        for t in (i / 16 for i in range(16)):  # level at both ends
            line.append((x0 + (x1 - x0) * t, y0 + (y1 - y0) * (3 * t**2 - 2 * t**3)))
    c.lines([line], 6, c.accent)
    c.discs([(x, y, 13) for x, y in knots], c.accent)
    c.discs([(x, y, 6) for x, y in knots], c.light)


def cells(c: Canvas) -> None:
    """Cells with their cores."""
    c.glow(c.between(300, 1300), c.between(200, 700), 750, c.light, 0.7)
    placed: list[tuple[float, float, float]] = []
    for _ in range(700):
        r = c.choice((150, 115, 85, 60, 38, 24)) * c.between(0.85, 1.1)
        at = (c.between(-60, 1660), c.between(-60, 960))
        if all(_squared(at, (a, b)) > (r + other + 9) ** 2 for a, b, other in placed):
            placed.append((*at, r))
    for k in range(3):
        some = placed[k::3]
        c.discs(some, c.layers[k], 0.42)
        inner = c.towards(c.layers[k], c.light, 0.55)
        c.discs([(x, y, r * 0.9) for x, y, r in some], inner, 0.6)
        cores = []
        for x, y, r in some:
            if r > 45:
                aside, below = c.between(-0.2, 0.2) * r, c.between(-0.2, 0.2) * r
                cores.append((x + aside, y + below, r * c.between(0.3, 0.42)))
        c.discs(cores, c.accent if k == 0 else c.layers[k + 1], 0.75)
        c.discs([(x - r * 0.3, y - r * 0.3, r * 0.25) for x, y, r in cores], c.light, 0.55)


def dunes(c: Canvas) -> None:
    """Sand under the sun."""
    c.sun(low=330, high=190)
    for k, colour in enumerate(c.layers):
        line = c.curve(500 + 100 * k, 62 + 6 * k)
        foot = c.towards(colour, c.layers[-1], 0.25)
        c.ground(line, [c.towards(colour, c.light, 0.2), colour, foot])
        c.lines([line], 2, c.light, 0.25)


def rings(c: Canvas) -> None:
    """Circles that spread, and the bars of a sound."""
    x, y = c.between(350, 1250), c.between(500, 980)
    c.glow(x, y, 1000, c.accent if c.dark else c.light, 0.5)
    n = c.choice((9, 11, 13))
    warm, pale = [c.accent, *c.layers], [c.light, *c.sky[::-1]]
    for i in range(n, 0, -1):
        c.discs([(x, y, 95 * i * (1 + 0.02 * i))], mix(warm if i % 2 else pale, i / n), 0.55)
    bars: list[list[Point]] = []
    for i in range(64):
        swell = abs(math.sin(i * 0.19 + x) * math.sin(i * 0.053 + y))
        h = 26 + 130 * swell * c.between(0.5, 1)
        bars.append([(25 + i * 24.6, 450 - h), (25 + i * 24.6, 450 + h)])
    c.lines(bars, 5, c.light if c.dark else c.layers[3], 0.55)


def tiles(c: Canvas) -> None:
    """Tiles of six patterns."""
    side = c.choice((200, 225, 300))
    for y in range(0, 900, side):
        for x in range(0, 1600, side):
            ground = c.rnd.sample([*c.sky, c.layers[0]], 2)[0]
            ink = c.choice([*c.layers, c.accent, c.light])
            shape, flip = c.rnd.randrange(6), c.rnd.randrange(4)
            big = Image.new("L", (2 * side, 2 * side), 0)
            _tile(ImageDraw.Draw(big), 2 * side, shape, flip)
            box = (x, y, x + side, y + side)
            c.image.paste(ground, box)
            c.image.paste(ink, box, big.reduce(2).point([round(v * 0.92) for v in range(256)]))


def _tile(d: Any, b: int, shape: int, flip: int) -> None:
    """One tile of `b` pixels; `flip`: which of its corners comes first."""
    match shape:
        case 0:
            x, y = (flip & 1) * b, (flip >> 1) * b
            start = (0, 90, 270, 180)[flip]
            d.pieslice((x - b, y - b, x + b, y + b), start, start + 90, fill=255)
        case 1:
            d.ellipse((b * 0.12, b * 0.12, b * 0.88, b * 0.88), fill=255)
        case 2:
            d.pieslice((0, b * 0.25, b, b * 1.25), 180, 360, fill=255)
        case 3:
            d.polygon([(0, 0), (b, 0), (0, b)] if flip % 2 else [(b, 0), (b, b), (0, b)], fill=255)
        case 4:
            for i in range(4):
                d.rectangle((0, b * (i * 0.25 + 0.05), b, b * (i * 0.25 + 0.15)), fill=255)
        case _:
            d.ellipse((b * 0.08, b * 0.08, b * 0.92, b * 0.92), fill=255)
            d.ellipse((b * 0.3, b * 0.3, b * 0.7, b * 0.7), fill=0)


def arches(c: Canvas) -> None:
    """Doors within doors."""
    c.glow(800, 250, 800, c.light, 0.7)
    x, tones = -60.0, [*c.layers, c.accent]
    while x < 1600:
        w, h = c.between(150, 330), c.between(300, 720)
        first = c.rnd.randrange(5)
        for i in range(4):
            inset = i * w * 0.115
            a, b, top = x + inset, x + w - inset, 900 - h + inset
            half = (b - a) / 2
            bow = arc(a + half, top + half, -half, -half, [t / 40 * math.pi for t in range(41)])
            tone = tones[(first + i) % 5]
            paint = c.towards(tone, c.light, 0.55) if i % 2 else tone
            c.polygon([(a, 910), *bow, (b, 910)], paint, 0.96)
        x += w + c.between(-30, 36)
    r = c.between(50, 85)
    c.discs([(c.between(250, 1350), c.between(110, 180), r)], c.accent, 0.9)


def gather(c: Canvas) -> None:
    """Discs and circles that come together."""
    c.glow(800, 420, 800, c.light, 0.8)
    for _ in range(26):
        r = c.between(60, 190)
        a, d = c.between(0, 6.283), abs(c.gauss(0, 330))
        disc = (800 + math.cos(a) * d * 1.6, 450 + math.sin(a) * d * 0.8, r)
        c.discs([disc], c.choice([*c.layers, c.accent]), 0.34)
    for _ in range(9):
        a, d = c.between(0, 6.283), c.between(100, 430)
        x, y = 800 + math.cos(a) * d * 1.5, 450 + math.sin(a) * d * 0.75
        r = c.between(40, 110)
        c.lines([arc(x, y, r, r, [t / 40 * 6.2832 for t in range(41)])], 3, c.light, 0.8)


def ribbons(c: Canvas) -> None:
    """Bands that swing across."""
    c.glow(c.between(300, 1300), 200, 800, c.light, 0.6)
    first, second = c.between(0, 6.28), c.between(0, 6.28)
    tones = [*c.layers[:3], c.accent, c.layers[3]]
    slope = c.between(-0.22, 0.22)
    for t in (i / 10 for i in range(11)):
        line = []
        for x in range(0, 1609, 8):
            swing = (120 - 60 * t) * math.sin(x / 1600 * 5.2 + first + t * 1.7)
            ripple = 46 * math.sin(x / 1600 * 11 + second - t * 2.4)
            line.append((x, 180 + 700 * t + slope * (x - 800) + swing + ripple))
        tone = mix(tones, t)
        c.ground(line, [c.towards(tone, c.light, 0.3), tone, tone], 0.8)
        c.lines([line], 1.5, c.light, 0.35)


def main() -> None:
    folder = Path(sys.argv[1]) if sys.argv[1:] else HERE
    for topic in tomllib.loads((HERE / "pictures.toml").read_text(encoding="utf-8"))["topic"]:
        for number, palette in enumerate(topic["palettes"], 1):
            name = f"{topic['name']}-{number}"
            canvas = Canvas(random.Random(name), palette)
            globals()[topic["name"]](canvas)
            picture = canvas.image.resize(SHOWN, Image.Resampling.LANCZOS)
            picture.save(folder / f"{name}.jpg", quality=52, optimize=True, progressive=True)


if __name__ == "__main__":
    main()
