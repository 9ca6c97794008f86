"""Calm pictures drawn from words: a topic chooses scene and palette, a hash of the words the rest; no fonts, no
network."""

import hashlib
import math
import random
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL import Image

SIZE = (1600, 900)
VERSION = "drawn-1"  # raise it when a change alters the pictures

# Each topic: words that call for it, the scene, and palettes "sky from top to horizon | far to near | light accent".
TOPICS = (
    (
        "reef coral fish underwater marine aquarium whale diving seabed",
        "reef",
        "0b4f6c 12829c 7fd1c7|1d7f8c 14606f 0e4457 0a2c3f|f7e9c5 ff8a70",
        "14375e 1e6f93 8fd6d2|23728a 18546f 123b57 0b233c|fdf3d8 f4a259",
    ),
    (
        "ocean sea water wave beach coast lake river rain ship harbor island surf flood fluid",
        "sea",
        "f6c9a8 f9dcc0 fdeed9|7fb3bd 4f93a6 2f7289 1c5068|fff4dc f08a6b",
        "9fc4d8 c7dfe6 eef3ee|7fa9b8 5487a0 356684 1f4763|ffffff e9b872",
    ),
    (
        "mountain alps hill hike valley landscape glacier snow volcano climb peak geology travel "
        "journey winter ice arctic",
        "ridges",
        "35507a 8a8fb5 f3c6b0|a9a3c0 7d83ad 525f8d 2c3a63|fff1d6 f7a072",
        "5b86a8 a9c6d4 f3ead8|a7bfc6 7698a5 4b7082 294a5c|fff8e3 e6a65d",
    ),
    (
        "forest tree woods jungle rainforest wildlife bear deer pine conservation park",
        "forest",
        "7fa596 bcd0b6 f2ecd0|a3bfa6 739a80 47745c 22493a|fff9de e8b04b",
        "3f5f6b 8faba6 e8e0c4|8fa89a 64877a 3d6257 1d3d38|fff3cf d98e4a",
    ),
    (
        "leaf leaves plant garden botany flower agriculture farm crop organic herb green tea "
        "sustainability ecology nature seed spring",
        "leaves",
        "f4f1e1 eaf0dc dfeacf|b7cfa0 86b08a 4f8a6b 2c5f50|fffdf2 e7a977",
        "f7efe3 f3e7d6 ebdcc8|c7cfa4 9db28a 6c8f6f 42654f|fffaf0 d9815f",
    ),
    (
        "city urban skyline building architecture street downtown tower construction housing office "
        "metro transport traffic bridge",
        "skyline",
        "3a3f6b 9a6a8f f4b393|a77a94 70587f 463f68 262747|ffe9bd ffcf7a",
        "6f93b5 b4c7d3 f5e6d3|a3b4c2 748da3 4b6580 2b3f57|fff7e2 f3b562",
    ),
    (
        "space star galaxy planet moon night astronomy cosmos universe rocket satellite orbit mars "
        "telescope solar-system",
        "cosmos",
        "0d1030 241f56 4a2f73|5b4a8f 3b3675 272458 15153a|fdf0d5 f2a07b",
        "08182f 12345a 2a5d7c|4a7fa0 2f5d82 1d3f62 0f2340|fff7e6 e8c07d",
    ),
    (
        "data network technology ai artificial intelligence neural computer server cloud code software "
        "internet digital algorithm cyber security "
        "blockchain machine robot circuit chip quantum api programming developer",
        "network",
        "0f2440 173a5e 235a7c|4f93b0 3b7596 29587a 183a5a|dff4f5 f6b26b",
        "f1f3f6 e3e9f0 d3dfea|a9bfd4 7d9cbc 55789f 34547c|ffffff ee8866",
    ),
    (
        "finance market growth business economy stock invest money bank revenue sales startup strategy "
        "profit budget chart trade price inflation rate interest currency",
        "rising",
        "f5f1e8 eef0e6 e1eae3|c4d8cf 93bcb0 5d988f 2f6f6d|ffffff e98a5b",
        "18314f 24507a 3f7ea0|5b97b5 3f7899 2b5a7d 1a3d5e|fdf3dc f2b45c",
    ),
    (
        "health medicine biology cell dna gene genome genetic genetics helix lab virus bacteria protein "
        "hospital doctor patient brain neuron medical vaccine drug chemistry molecule "
        "microscope blood immune bacterium organism",
        "cells",
        "fbeee9 f8e0dc f2cfd0|e7aeb0 d2868f a75c72 6f3a57|fffaf5 6fb3ae",
        "e9f4f2 d5ebe8 bddfdd|97cac8 65a9ad 3d8390 245c6e|ffffff f08f79",
    ),
    (
        "desert dune sun summer energy solar heat sahara drought climate wind africa camel egypt fire "
        "temperature warming",
        "dunes",
        "f2b186 f7cfa0 fbe8c6|e8b27c d6905f b06b4b 7a4638|fff6dc e4572e",
        "b7a6c4 ecc2b6 fbe4c8|e5b79a cf9277 a86a5f 6f4350|fff3dd f3904f",
    ),
    (
        "music sound audio podcast radio concert song jazz orchestra piano guitar voice speech signal rhythm",
        "rings",
        "2b1e4a 55306b 9a4a78|c96a86 9a4d80 683a73 3e2858|ffe9d2 ffb56b",
        "f6ece2 f2ddd2 eccbc4|e2a59b c97a80 965a74 5b3d5f|fffaf3 3f8a8c",
    ),
    (
        "food kitchen cooking restaurant bread coffee wine fruit cake chef meal cheese spice chocolate "
        "recipe breakfast",
        "tiles",
        "fbf3e6 f7e7d0 f2d9b8|e9b872 d98353 b5533c 6b2f2e|fffaf0 6d8b57",
        "f9f1e7 f4e3d7 ecd2c6|dba58c c27a5f 8f4f45 4f2c31|fff9ef 8aa27a",
    ),
    (
        "education book school history art museum library culture student university learning teacher "
        "philosophy literature design ancient roman "
        "greek paint renaissance language",
        "arches",
        "f6efe3 efe3cf e7d4b8|e0b083 c98262 8b5e5a 3f4a63|fffaf0 4f8a8b",
        "eef0ea e0e6de cdd9d2|a9c0b2 7b9f98 c98868 3f5560|fffdf6 d9674e",
    ),
    (
        "team people community collaboration meeting work diversity family group classroom kids "
        "conference leadership culture employee hands social user customer",
        "gather",
        "f8efe6 f4e2d5 edd3c3|f0b79b df8a78 9c6a86 4d4f7a|fffaf3 4f9a94",
        "eaf1f3 d9e6ea c5d8df|9dc1cb 6b9fb0 e59a77 3f5f7d|ffffff f0b65f",
    ),
)
ABSTRACT = ("ribbons", "arches", "tiles", "ridges", "gather")
ABSTRACT_PALETTES = (
    "f4efe6 e9e3dc dcd6d6|c3bccb 9a98b8 6c7199 3f4a74|ffffff ec9a75",
    "e8f0ee d5e5e2 bcd7d4|93bfc0 5f9aa5 3b7288 244c66|ffffff f0a868",
    "2a2d4f 4a4274 8a5c8a|b9799a 8a5f93 5b4a82 363560|ffeeda ffb27d",
    "f7ece4 f2dad2 e8c2c0|d99da5 b0758f 7a5580 4b3c66|fffaf5 6aa6a0",
    "163a4a 1f5a66 4a8c86|7bb3a4 4c8b88 2f6670 1b4354|fdf3da f0b35e",
    "f3f0e4 e6e6d2 d3d9bd|b3bf98 87a083 5c7d70 385a5b|fffdf2 e08a5a",
)


def png(image: "Image.Image") -> bytes:
    """An image as PNG bytes."""
    import io

    out = io.BytesIO()
    image.save(out, "PNG", compress_level=6)
    return out.getvalue()


def draw(query: str) -> bytes:
    """A calm 1600 x 900 picture as PNG bytes, drawn from the words of the query.

    The topic that most of the words belong to gives scene and palette (abstract shapes when none does), a hash of the
    query gives the rest. The same query gives the same bytes with the same version of Pillow. About 0.2 to 0.4 CPU
    seconds.
    """
    words = query.casefold()
    rnd = random.Random(
        int.from_bytes(hashlib.sha256(f"{VERSION}\n{words}".encode()).digest()[:8], "big")
    )
    seen = re.findall(r"[^\W\d_]+", words)
    scores = [
        sum(
            (w in t) or (w.endswith("s") and w[:-1] in t) or (w.endswith("es") and w[:-2] in t)
            for w in seen
        )
        for t in (set(topic[0].split()) for topic in TOPICS)
    ]
    if max(scores):
        topic = TOPICS[scores.index(max(scores))]
        scene, palettes = topic[1], list(topic[2:])
    else:
        scene, palettes = rnd.choice(ABSTRACT), list(ABSTRACT_PALETTES)
    palette = rnd.choice(palettes)
    if {"night", "dark", "evening", "midnight", "deep"} & set(seen):
        palette = min(palettes, key=lambda p: sum(bytes.fromhex(p[:6])))
    elif {"sunset", "sunrise", "dusk", "dawn", "warm", "autumn", "golden"} & set(seen):
        palette = max(palettes, key=lambda p: int(p[:2], 16) - int(p[4:6], 16))
    paper = _Paper(rnd, palette, seen)
    getattr(paper, scene)()
    return png(paper.image)


class _Paper:
    """A picture in the making: coordinates are 0..1600 and 0..900, edges smoothed by drawing masks at double size."""

    def __init__(self, rnd, palette, words):
        from PIL import Image, ImageDraw

        self.Image, self.ImageDraw, self.rnd, self.words = Image, ImageDraw, rnd, words
        sky, layers, lights = (
            [tuple(bytes.fromhex(c)) for c in part.split()] for part in palette.split("|")
        )
        self.sky, self.layers, (self.light, self.accent) = sky, layers, lights
        self.dark = sum(sky[0]) < 330
        self.image = self.gradient(sky)

    # tools

    def gradient(self, stops, size=SIZE):
        """A vertical run through the colours."""
        strip = self.Image.new("RGB", (1, 256))
        strip.putdata([self.mix(stops, i / 255) for i in range(256)])
        return strip.resize(size, self.Image.Resampling.BICUBIC)

    @staticmethod
    def mix(stops, t):
        k = min(int(t * (len(stops) - 1)), len(stops) - 2)
        u = t * (len(stops) - 1) - k
        return tuple(round(a + (b - a) * u) for a, b in zip(stops[k], stops[k + 1], strict=True))

    def mask(self, shapes):
        """An antialiased mask; `shapes(draw)` draws white with coordinates doubled by `d2`."""
        big = self.Image.new("L", (SIZE[0] * 2, SIZE[1] * 2), 0)
        shapes(self.ImageDraw.Draw(big))
        return big.reduce(2)

    def lay(self, mask, colour, alpha=1.0):
        """Put a colour, or a gradient when it is a list of colours, through a mask."""
        if alpha < 1:
            mask = mask.point([round(v * alpha) for v in range(256)])
        self.image.paste(
            self.gradient(colour) if isinstance(colour, list) else colour,
            (0, 0) if isinstance(colour, list) else (0, 0, *SIZE),
            mask,
        )

    def polygon(self, points, colour, alpha=1.0):
        self.lay(
            self.mask(lambda d: d.polygon([(2 * x, 2 * y) for x, y in points], fill=255)),
            colour,
            alpha,
        )

    def discs(self, discs, colour, alpha=1.0):
        """Filled circles (x, y, r), overlaps not darkened."""
        self.lay(
            self.mask(
                lambda d: [
                    d.ellipse((2 * (x - r), 2 * (y - r), 2 * (x + r), 2 * (y + r)), fill=255)
                    for x, y, r in discs
                ]
            ),
            colour,
            alpha,
        )

    def lines(self, lines, width, colour, alpha=1.0):
        self.lay(
            self.mask(
                lambda d: [
                    d.line(
                        [(2 * x, 2 * y) for x, y in line],
                        fill=255,
                        width=max(1, round(2 * width)),
                        joint="curve",
                    )
                    for line in lines
                ]
            ),
            colour,
            alpha,
        )

    def glow(self, x, y, r, colour, alpha):
        """A soft round light."""
        size = max(2, round(2 * r))
        soft = self.Image.radial_gradient("L").point(
            [round(max(0.0, 1 - v / 181) ** 2 * 255 * alpha) if v < 181 else 0 for v in range(256)]
        )
        self.image.paste(
            colour,
            (round(x - r), round(y - r), round(x - r) + size, round(y - r) + size),
            soft.resize((size, size), self.Image.Resampling.BICUBIC),
        )

    def curve(self, base, amplitude, rough=1.0, step=8):
        """Points of a smooth random line from left to right around height `base`."""
        waves = [
            (self.rnd.uniform(0.6, 1.4) * f, self.rnd.uniform(0, 6.283), 1 / f**1.1)
            for f in (1, 2.3, 4.1, *((9, 17) if rough > 1 else ()))
        ]
        return [
            (
                x,
                base
                - amplitude
                * sum(a * math.sin(f * x / 1600 * 6.283 + p) for f, p, a in waves)
                / 1.6,
            )
            for x in range(0, 1601 + step, step)
        ]

    def ground(self, line, colour, alpha=1.0):
        self.polygon([*line, (1610, 910), (-10, 910)], colour, alpha)

    def sun(self, low=330, high=180):
        x, y, r = (
            self.rnd.uniform(350, 1250),
            self.rnd.uniform(high, low),
            self.rnd.uniform(55, 105),
        )
        self.glow(x, y, r * 6, self.light, 0.55)
        self.discs([(x, y, r)], self.light, 0.95)
        return x, y, r

    # scenes

    def ridges(self):
        self.sun()
        for k, colour in enumerate(self.layers):
            line = self.peaks(430 + 115 * k, 130 - 14 * k)
            self.ground(
                line,
                [
                    self.mix([colour, self.sky[-1]], 0.1),
                    self.mix([colour, self.sky[-1]], 0.42 - 0.1 * k),
                ],
            )

    def peaks(self, base, height):
        """A mountain line: midpoint displacement."""
        points, spread = [base + self.rnd.uniform(-1, 1) * height * 0.5 for _ in range(5)], height
        while len(points) < 200:
            spread *= 0.52
            points = [
                p
                for a, b in zip(points, points[1:], strict=False)
                for p in (a, (a + b) / 2 + self.rnd.uniform(-1, 1) * spread)
            ] + [points[-1]]
        return [(1600 * i / (len(points) - 1), y) for i, y in enumerate(points)]

    def sea(self):
        x, y, r = self.sun(low=400, high=250)
        horizon = 470
        self.polygon(
            [(0, horizon), (1600, horizon), (1600, 900), (0, 900)],
            [self.layers[0], self.layers[0], self.mix(self.layers[:2], 0.6)],
        )
        glints = [
            (x + self.rnd.gauss(0, 30 + (yy - horizon) * 0.3), yy, self.rnd.uniform(20, 80))
            for yy in range(horizon + 8, 640, 9)
            for _ in range(3)
        ]
        self.lines([[(a - w / 2, b), (a + w / 2, b)] for a, b, w in glints], 2.4, self.light, 0.5)
        for k, colour in enumerate(self.layers[1:]):
            base, p = 575 + 105 * k, self.rnd.uniform(0, 6.28)
            f = self.rnd.uniform(2.2, 3.4) - 0.4 * k
            line = [
                (
                    xx,
                    base
                    - (16 + 9 * k)
                    * (
                        math.sin(f * xx / 1600 * 6.283 + p)
                        + 0.4 * math.sin(2.7 * f * xx / 1600 * 6.283 + 2 * p)
                    ),
                )
                for xx in range(0, 1609, 8)
            ]
            self.ground(line, [colour, colour, self.mix([colour, self.sky[1]], 0.18)])
            self.lines([line], 2.5, self.light, 0.28)
        sail = self.rnd.uniform(250, 1350)
        self.polygon(
            [(sail, horizon - 74), (sail, horizon - 8), (sail + 42, horizon - 8)], self.light, 0.95
        )
        self.polygon(
            [(sail - 5, horizon - 60), (sail - 5, horizon - 8), (sail - 30, horizon - 8)],
            self.light,
            0.8,
        )
        self.polygon(
            [
                (sail - 36, horizon - 4),
                (sail + 46, horizon - 4),
                (sail + 34, horizon + 8),
                (sail - 26, horizon + 8),
            ],
            self.layers[3],
            0.9,
        )

    def reef(self):
        self.image = self.gradient([self.sky[2], self.sky[1], self.sky[0], self.layers[3]])
        x = self.rnd.uniform(500, 1100)
        self.glow(x, -40, 900, self.light, 0.55)
        for _ in range(7):
            a, w = x + self.rnd.uniform(-420, 420), self.rnd.uniform(30, 90)
            lean = (a - x) * 1.1
            self.polygon(
                [
                    (a - w / 3, -10),
                    (a + w / 3, -10),
                    (a + lean + w * 1.6, 760),
                    (a + lean - w * 1.6, 760),
                ],
                self.light,
                0.055,
            )
        for k in (1, 2, 3):
            base = 640 + 85 * k
            self.ground(self.curve(base, 34), [self.layers[k], self.layers[k], self.layers[3]])
            twigs = []
            for _ in range(5):
                self.branch(
                    self.rnd.uniform(0, 1600), base + 25, -math.pi / 2, 60 + 15 * k, 5, twigs
                )
            for width in range(1, 6):
                some = [t for t, w in twigs if w == width]
                if some:
                    self.lines(
                        some,
                        width * (2.2 + k * 0.7),
                        self.mix([self.layers[k], self.accent], (0.2, 0.45, 0.8)[k - 1]),
                        0.95,
                    )
            fan = self.rnd.uniform(150, 1450)
            for i in range(9):
                t = -math.pi / 2 + (i - 4) * 0.2
                self.lines(
                    [
                        [
                            (fan, base + 30),
                            (
                                fan + math.cos(t) * (90 + 20 * k),
                                base + 30 + math.sin(t) * (110 + 20 * k),
                            ),
                        ]
                    ],
                    5 + k,
                    self.mix([self.layers[k], self.light], 0.25 + 0.1 * k),
                    0.9,
                )
        cx, cy, way = (
            self.rnd.uniform(400, 1200),
            self.rnd.uniform(240, 430),
            self.rnd.choice((-1, 1)),
        )
        for _ in range(16):
            fx, fy, s = (
                cx + self.rnd.gauss(0, 190),
                cy + self.rnd.gauss(0, 70),
                self.rnd.uniform(9, 19),
            )
            body = [
                (
                    fx + way * s * 1.5 * math.cos(t / 8 * 3.1416),
                    fy + s * 0.62 * math.sin(t / 8 * 3.1416),
                )
                for t in range(16)
            ]
            tail = [
                (fx - way * s * 1.2, fy),
                (fx - way * s * 2.3, fy - s * 0.7),
                (fx - way * s * 2.3, fy + s * 0.7),
            ]
            self.small(body, self.accent)
            self.small(tail, self.accent)
        self.discs(
            [
                (self.rnd.uniform(100, 1500), self.rnd.uniform(60, 650), self.rnd.uniform(2, 7))
                for _ in range(34)
            ],
            self.light,
            0.3,
        )

    def small(self, points, colour):
        """A small polygon, smoothed in its own box only (cheap)."""
        x0, y0 = (
            math.floor(min(x for x, _ in points)) - 1,
            math.floor(min(y for _, y in points)) - 1,
        )
        w, h = (
            math.ceil(max(x for x, _ in points)) - x0 + 2,
            math.ceil(max(y for _, y in points)) - y0 + 2,
        )
        big = self.Image.new("L", (4 * w, 4 * h), 0)
        self.ImageDraw.Draw(big).polygon(
            [(4 * (x - x0), 4 * (y - y0)) for x, y in points], fill=255
        )
        self.image.paste(colour, (x0, y0, x0 + w, y0 + h), big.reduce(4))

    def branch(self, x, y, angle, length, level, out):
        xx, yy = x + math.cos(angle) * length, y + math.sin(angle) * length
        out.append(([(x, y), (xx, yy)], level))
        if level > 1:
            for turn in (-1, 1):
                self.branch(
                    xx,
                    yy,
                    angle + turn * self.rnd.uniform(0.25, 0.6),
                    length * self.rnd.uniform(0.66, 0.84),
                    level - 1,
                    out,
                )

    def forest(self):
        self.sun(low=300, high=160)
        for k, colour in enumerate(self.layers):
            base, size = 520 + 110 * k, 120 + 75 * k
            line = self.curve(base, 30)
            tone = self.mix([colour, self.sky[-1]], 0.3 - 0.08 * k)

            def firs(d, base=base, size=size, line=line):
                d.polygon([(2 * x, 2 * y) for x, y in [*line, (1610, 910), (-10, 910)]], fill=255)
                x = -30.0
                while x < 1640:
                    h = size * self.rnd.uniform(0.6, 1.15)
                    y = line[min(len(line) - 1, max(0, int(x / 8)))][1] + 18
                    for part in range(5):
                        top, w = y - h + h * 0.17 * part, h * (0.07 + 0.052 * part)
                        d.polygon(
                            [
                                (2 * x, 2 * top),
                                (2 * (x - w), 2 * (top + h * 0.32)),
                                (2 * (x + w), 2 * (top + h * 0.32)),
                            ],
                            fill=255,
                        )
                    x += size * self.rnd.uniform(0.22, 0.62)

            self.lay(
                self.mask(firs), [tone, tone, self.mix([tone, self.sky[-1]], 0.3 if k < 3 else 0.0)]
            )

    def leaves(self):
        self.glow(self.rnd.uniform(300, 1300), 300, 700, self.light, 0.8)
        corner = self.rnd.choice((0, 1))
        for k, colour in enumerate(self.layers):
            for i in range(6 - k):
                side = (corner + (i % 3 == 2)) % 2
                x, y = (-60 if side == 0 else 1660), self.rnd.uniform(80, 860)
                angle = (0 if side == 0 else math.pi) + self.rnd.uniform(-0.75, 0.75) * (
                    1 if side == 0 else -1
                )
                self.leaf(x, y, angle, self.rnd.uniform(420, 760) - 50 * k, colour)
        self.discs(
            [
                (self.rnd.uniform(500, 1100), self.rnd.uniform(150, 750), self.rnd.uniform(6, 16))
                for _ in range(7)
            ],
            self.accent,
            0.75,
        )

    def leaf(self, x, y, angle, length, colour):
        bend, width = self.rnd.uniform(-0.5, 0.5), length * self.rnd.uniform(0.12, 0.19)
        spine = []
        for i in range(41):
            t = i / 40
            spine.append(
                (x, y, angle + bend * t, width * math.sin(math.pi * t) ** 0.8 * (1.15 - 0.5 * t))
            )
            x, y = (
                x + math.cos(angle + bend * t) * length / 40,
                y + math.sin(angle + bend * t) * length / 40,
            )
        left = [(a - math.sin(g) * w, b + math.cos(g) * w) for a, b, g, w in spine]
        right = [(a + math.sin(g) * w, b - math.cos(g) * w) for a, b, g, w in spine]
        self.polygon(left + right[::-1], colour, 0.93)
        self.polygon(
            left + [(a, b) for a, b, _, _ in spine][::-1], self.mix([colour, self.light], 0.16), 0.9
        )
        veins = [
            [(spine[i][0], spine[i][1]), (e[i + 4][0], e[i + 4][1])]
            for i in range(4, 34, 4)
            for e in (left, right)
        ]
        self.lines(
            [[(a, b) for a, b, _, _ in spine], *veins],
            1.6,
            self.mix([colour, self.light], 0.5),
            0.7,
        )

    def skyline(self):
        self.sun(low=420, high=260)
        for k, colour in enumerate(self.layers):
            houses, x, base = [], -20.0, 900
            while x < 1600:
                w = self.rnd.uniform(46, 110) + 10 * k
                h = (
                    self.rnd.uniform(130, 400) * (1.35 - 0.2 * k)
                    + 40
                    + (150 if self.rnd.random() < 0.12 else 0)
                )
                houses.append((x, base - h - (3 - k) * 62, w))
                x += w + (self.rnd.uniform(0, 26) if k > 1 else 0)
            tone = self.mix([colour, self.sky[-1]], 0.24 - 0.08 * k)

            def blocks(d, houses=houses):
                for i, (x, y, w) in enumerate(houses):
                    d.rectangle((2 * x, 2 * y, 2 * (x + w), 1800), fill=255)
                    if i % 5 == 1:
                        d.rectangle(
                            (2 * (x + w * 0.25), 2 * (y - 22), 2 * (x + w * 0.75), 2 * y), fill=255
                        )
                        d.rectangle(
                            (2 * (x + w / 2) - 3, 2 * (y - 74), 2 * (x + w / 2) + 3, 2 * y),
                            fill=255,
                        )
                    elif i % 5 == 3:
                        d.polygon(
                            [
                                (2 * x, 2 * y),
                                (2 * (x + w), 2 * y),
                                (2 * (x + w), 2 * (y - w * 0.4)),
                            ],
                            fill=255,
                        )

            self.lay(
                self.mask(blocks), [tone, tone, self.mix([tone, self.sky[-1]], 0.35 - 0.1 * k)]
            )
            if k >= 1:
                chance = 0.10 + 0.07 * k

                def windows(d, houses=houses, chance=chance):
                    for x, y, w in houses:
                        for wy in range(int(y) + 16, 900, 22):
                            for wx in range(int(x) + 10, int(x + w) - 12, 17):
                                if self.rnd.random() < chance:
                                    d.rectangle(
                                        (2 * wx, 2 * wy, 2 * wx + 14, 2 * wy + 20), fill=255
                                    )

                self.lay(self.mask(windows), self.accent, 0.22 + 0.2 * k)

    def cosmos(self):
        for _ in range(3):
            self.glow(
                self.rnd.uniform(100, 1500),
                self.rnd.uniform(100, 800),
                self.rnd.uniform(350, 650),
                self.rnd.choice([*self.layers[:2], self.accent]),
                0.4,
            )
        for r, n, a in ((0.9, 260, 0.5), (1.5, 90, 0.7), (2.4, 22, 0.95)):
            self.discs(
                [
                    (
                        self.rnd.uniform(0, 1600),
                        self.rnd.uniform(0, 900),
                        r * self.rnd.uniform(0.7, 1.2),
                    )
                    for _ in range(n)
                ],
                self.light,
                a,
            )
        x, y, r = (
            self.rnd.uniform(450, 1150),
            self.rnd.uniform(380, 540),
            self.rnd.uniform(150, 240),
        )
        self.glow(x, y, r * 2.3, self.accent, 0.35)
        disc = self.mask(
            lambda d: d.ellipse((2 * (x - r), 2 * (y - r), 2 * (x + r), 2 * (y + r)), fill=255)
        )
        body = self.gradient(
            [self.light, self.accent, self.layers[0], self.layers[1]], (round(2 * r), round(2 * r))
        )
        sheet = self.image.copy()
        sheet.paste(
            body.rotate(
                self.rnd.uniform(-30, 30), self.Image.Resampling.BICUBIC, fillcolor=self.accent
            ),
            (round(x - r), round(y - r)),
        )
        tilt, turn = self.rnd.uniform(0.16, 0.26), self.rnd.uniform(-0.35, 0.35)

        def ring(start, stop, s):
            pts = [
                (math.cos(t / 60 * math.pi) * r * s, math.sin(t / 60 * math.pi) * r * s * tilt)
                for t in range(start, stop + 1)
            ]
            return [
                (
                    x + a * math.cos(turn) - b * math.sin(turn),
                    y + a * math.sin(turn) + b * math.cos(turn),
                )
                for a, b in pts
            ]

        self.lines([ring(60, 120, s) for s in (1.5, 1.62, 1.78)], 5, self.light, 0.45)
        self.image.paste(sheet, (0, 0), disc)
        shade = self.Image.new("L", SIZE, 0)
        night = self.mask(
            lambda d: d.ellipse(
                (2 * (x - r * 1.32), 2 * (y - r * 1.32), 2 * (x + r * 0.78), 2 * (y + r * 0.78)),
                fill=255,
            )
        )
        from PIL import ImageChops, ImageFilter

        shade = ImageChops.multiply(
            ImageChops.invert(night.filter(ImageFilter.GaussianBlur(r * 0.16))), disc
        )
        self.lay(shade, self.layers[3], 0.8)
        self.lines([ring(0, 60, s) for s in (1.5, 1.62, 1.78)], 5, self.light, 0.7)
        mx, my = x + self.rnd.choice((-1, 1)) * r * 2.3, y - r * self.rnd.uniform(0.6, 1.1)
        self.discs([(mx, my, r * 0.16)], self.mix([self.light, self.layers[0]], 0.25))

    def network(self):
        for _ in range(3):
            self.glow(
                self.rnd.uniform(200, 1400),
                self.rnd.uniform(100, 800),
                self.rnd.uniform(300, 600),
                self.layers[0] if self.dark else self.light,
                0.5,
            )
        nodes = []
        for _ in range(400):
            p = (self.rnd.uniform(-40, 1640), self.rnd.uniform(-40, 940))
            if all((p[0] - q[0]) ** 2 + (p[1] - q[1]) ** 2 > 105**2 for q in nodes):
                nodes.append(p)
        ink = self.layers[0] if self.dark else self.layers[2]
        for limit, width, alpha in ((215, 1.2, 0.3), (150, 2.0, 0.5)):
            self.lines(
                [
                    [a, b]
                    for i, a in enumerate(nodes)
                    for b in nodes[:i]
                    if (a[0] - b[0]) ** 2 + (a[1] - b[1]) ** 2 < limit**2
                ],
                width,
                ink,
                alpha,
            )
        hubs = self.rnd.sample(nodes, 9)
        for x, y in hubs[:4]:
            self.glow(x, y, 150, self.accent, 0.55)
        self.discs(
            [(x, y, self.rnd.uniform(4, 8)) for x, y in nodes],
            self.mix([ink, self.light], 0.45 if self.dark else 0.1),
            1,
        )
        self.discs(
            [(x, y, self.rnd.uniform(13, 21)) for x, y in hubs[4:]],
            self.light if self.dark else self.layers[3],
            0.95,
        )
        self.discs([(x, y, self.rnd.uniform(15, 24)) for x, y in hubs[:4]], self.accent)
        self.discs([(x, y, 6) for x, y in hubs], self.sky[0])

    def rising(self):
        self.glow(1250, 220, 620, self.light, 0.5)
        self.lines([[(0, y), (1600, y)] for y in range(180, 900, 120)], 1, self.layers[1], 0.3)
        n = self.rnd.choice((9, 11, 13))
        step, bars, level = 1600 / n, [], 0.18
        for i in range(n):
            level = min(0.8, level + self.rnd.uniform(-0.035, 0.115) * 9 / n)
            bars.append((i * step + step * 0.16, 900 - level * 800, step * 0.68))
        for i, (x, y, w) in enumerate(bars):
            tone = self.mix(self.layers, i / (n - 1))
            self.polygon(
                [(x, y), (x + w, y), (x + w, 910), (x, 910)],
                [self.mix([tone, self.light], 0.12), tone, self.mix([tone, self.sky[-1]], 0.35)],
            )
        knots = [(x + w / 2, y - 70 - self.rnd.uniform(0, 24)) for x, y, w in bars]
        knots = [(-60, knots[0][1] + 60), *knots, (1660, knots[-1][1] - 40)]
        line = []
        for (x0, y0), (x1, y1) in zip(knots, knots[1:], strict=False):
            line += [
                (x0 + (x1 - x0) * t / 16, y0 + (y1 - y0) * (3 * (t / 16) ** 2 - 2 * (t / 16) ** 3))
                for t in range(16)
            ]
        self.lines([line], 6, self.accent)
        self.discs([(x, y, 13) for x, y in knots], self.accent)
        self.discs([(x, y, 6) for x, y in knots], self.light)

    def cells(self):
        self.glow(self.rnd.uniform(300, 1300), self.rnd.uniform(200, 700), 750, self.light, 0.7)
        if {"dna", "gene", "genes", "genome", "genetic", "genetics", "helix"} & set(self.words):
            return self.helix()
        placed = []
        for _ in range(700):
            r = self.rnd.choice((150, 115, 85, 60, 38, 24)) * self.rnd.uniform(0.85, 1.1)
            x, y = self.rnd.uniform(-60, 1660), self.rnd.uniform(-60, 960)
            if all((x - a) ** 2 + (y - b) ** 2 > (r + c + 9) ** 2 for a, b, c in placed):
                placed.append((x, y, r))
        for k in range(3):
            some = placed[k::3]
            self.discs(some, self.layers[k], 0.42)
            self.discs(
                [(x, y, r * 0.9) for x, y, r in some],
                self.mix([self.layers[k], self.light], 0.55),
                0.6,
            )
            cores = [
                (
                    x + self.rnd.uniform(-0.2, 0.2) * r,
                    y + self.rnd.uniform(-0.2, 0.2) * r,
                    r * self.rnd.uniform(0.3, 0.42),
                )
                for x, y, r in some
                if r > 45
            ]
            self.discs(cores, self.accent if k == 0 else self.layers[k + 1], 0.75)
            self.discs(
                [(x - r * 0.3, y - r * 0.3, r * 0.25) for x, y, r in cores], self.light, 0.55
            )

    def helix(self):
        turn, phase = self.rnd.uniform(-0.25, 0.25), self.rnd.uniform(0, 6.28)

        def place(u, v):
            return 800 + u * math.cos(turn) - v * math.sin(turn), 450 + u * math.sin(
                turn
            ) + v * math.cos(turn)

        for u in range(-920, 921, 40):
            s = math.sin(u / 150 + phase) * 165
            c = math.cos(u / 150 + phase)
            self.lines([[place(u, -s), place(u, s)]], 6 + 2 * abs(c), self.layers[1], 0.5)
        for sign in (1, -1):
            for layer in (0, 1):  # the strand behind first
                for k in range(-950, 951, 10):
                    front = sign * math.cos(k / 150 + phase) > 0
                    if front == bool(layer):
                        px, py = place(k, sign * math.sin(k / 150 + phase) * 165)
                        r = 15 + 8 * sign * math.cos(k / 150 + phase)
                        self.small(
                            [
                                (
                                    px + r * math.cos(t / 10 * 3.1416),
                                    py + r * math.sin(t / 10 * 3.1416),
                                )
                                for t in range(20)
                            ],
                            (self.layers[2] if sign > 0 else self.accent)
                            if layer
                            else self.mix([self.layers[1 if sign > 0 else 0], self.sky[1]], 0.35),
                        )

    def dunes(self):
        self.sun(low=330, high=190)
        for k, colour in enumerate(self.layers):
            line = self.curve(500 + 100 * k, 62 + 6 * k)
            self.ground(
                line,
                [
                    self.mix([colour, self.light], 0.2),
                    colour,
                    self.mix([colour, self.layers[-1]], 0.25),
                ],
            )
            self.lines([line], 2, self.light, 0.25)

    def rings(self):
        x, y = self.rnd.uniform(350, 1250), self.rnd.uniform(500, 980)
        self.glow(x, y, 1000, self.accent if self.dark else self.light, 0.5)
        n = self.rnd.choice((9, 11, 13))
        for i in range(n, 0, -1):
            r, t = 95 * i * (1 + 0.02 * i), i / n
            self.discs(
                [(x, y, r)],
                self.mix([self.accent, *self.layers], t)
                if i % 2
                else self.mix([self.light, *self.sky[::-1]], t),
                0.55,
            )
        bars = []
        for i in range(64):
            h = 26 + 130 * abs(math.sin(i * 0.19 + x) * math.sin(i * 0.053 + y)) * self.rnd.uniform(
                0.5, 1
            )
            bars.append([(25 + i * 24.6, 450 - h), (25 + i * 24.6, 450 + h)])
        self.lines(bars, 5, self.light if self.dark else self.layers[3], 0.55)

    def tiles(self):
        s = self.rnd.choice((200, 225, 300))
        colours = [*self.layers, self.accent, self.light]
        for gy in range(0, 900, s):
            for gx in range(0, 1600, s):
                ground, ink = (
                    self.rnd.sample([*self.sky, self.layers[0]], 2)[0],
                    self.rnd.choice(colours),
                )
                shape, flip = self.rnd.randrange(6), self.rnd.randrange(4)

                def tile(d, gx=gx, gy=gy, shape=shape, flip=flip):
                    x, y, b = 2 * gx, 2 * gy, 2 * s
                    cx, cy = x + (flip & 1) * b, y + (flip >> 1) * b
                    if shape == 0:
                        d.pieslice(
                            (cx - b, cy - b, cx + b, cy + b),
                            (0, 90, 270, 180)[flip],
                            (90, 180, 360, 270)[flip],
                            fill=255,
                        )
                    elif shape == 1:
                        d.ellipse(
                            (x + b * 0.12, y + b * 0.12, x + b * 0.88, y + b * 0.88), fill=255
                        )
                    elif shape == 2:
                        d.pieslice((x, y + b * 0.25, x + b, y + b * 1.25), 180, 360, fill=255)
                    elif shape == 3:
                        d.polygon(
                            [(x, y), (x + b, y), (x, y + b)]
                            if flip % 2
                            else [(x + b, y), (x + b, y + b), (x, y + b)],
                            fill=255,
                        )
                    elif shape == 4:
                        for i in range(4):
                            d.rectangle(
                                (x, y + b * (i * 0.25 + 0.05), x + b, y + b * (i * 0.25 + 0.15)),
                                fill=255,
                            )
                    else:
                        d.ellipse(
                            (x + b * 0.08, y + b * 0.08, x + b * 0.92, y + b * 0.92), fill=255
                        )
                        d.ellipse((x + b * 0.3, y + b * 0.3, x + b * 0.7, y + b * 0.7), fill=0)

                big = self.Image.new("L", (2 * s, 2 * s), 0)
                canvas = _Shifted(self.ImageDraw.Draw(big), 2 * gx, 2 * gy)
                tile(canvas)
                self.image.paste(ground, (gx, gy, gx + s, gy + s))
                self.image.paste(
                    ink,
                    (gx, gy, gx + s, gy + s),
                    big.reduce(2).point([round(v * 0.92) for v in range(256)]),
                )

    def arches(self):
        self.glow(800, 250, 800, self.light, 0.7)
        x, k = -60.0, 0
        tones = [*self.layers, self.accent]
        while x < 1600:
            w, h = self.rnd.uniform(150, 330), self.rnd.uniform(300, 720)
            first = self.rnd.randrange(5)
            for i in range(4):
                inset = i * w * 0.115
                a, b, top = x + inset, x + w - inset, 900 - h + inset
                half = (b - a) / 2
                arc = [
                    (
                        a + half - half * math.cos(t / 40 * math.pi),
                        top + half - half * math.sin(t / 40 * math.pi),
                    )
                    for t in range(41)
                ]
                self.polygon(
                    [(a, 910), *arc, (b, 910)],
                    tones[(first + i) % 5]
                    if i % 2 == 0
                    else self.mix([tones[(first + i) % 5], self.light], 0.55),
                    0.96,
                )
            x += w + self.rnd.uniform(-30, 36)
            k += 1
        r = self.rnd.uniform(50, 85)
        self.discs([(self.rnd.uniform(250, 1350), self.rnd.uniform(110, 180), r)], self.accent, 0.9)

    def gather(self):
        self.glow(800, 420, 800, self.light, 0.8)
        for _ in range(26):
            r = self.rnd.uniform(60, 190)
            a, d = self.rnd.uniform(0, 6.283), abs(self.rnd.gauss(0, 330))
            self.discs(
                [(800 + math.cos(a) * d * 1.6, 450 + math.sin(a) * d * 0.8, r)],
                self.rnd.choice([*self.layers, self.accent]),
                0.34,
            )
        for _ in range(9):
            a, d = self.rnd.uniform(0, 6.283), self.rnd.uniform(100, 430)
            x, y, r = (
                800 + math.cos(a) * d * 1.5,
                450 + math.sin(a) * d * 0.75,
                self.rnd.uniform(40, 110),
            )
            self.lines(
                [
                    [
                        (x + r * math.cos(t / 40 * 6.2832), y + r * math.sin(t / 40 * 6.2832))
                        for t in range(41)
                    ]
                ],
                3,
                self.light,
                0.8,
            )

    def ribbons(self):
        self.glow(self.rnd.uniform(300, 1300), 200, 800, self.light, 0.6)
        p, q = self.rnd.uniform(0, 6.28), self.rnd.uniform(0, 6.28)
        tones = [*self.layers[:3], self.accent, self.layers[3]]
        slope, n = self.rnd.uniform(-0.22, 0.22), 11
        for i in range(n):
            t = i / (n - 1)
            y0 = 180 + 700 * t
            line = [
                (
                    x,
                    y0
                    + slope * (x - 800)
                    + (120 - 60 * t) * math.sin(x / 1600 * 5.2 + p + t * 1.7)
                    + 46 * math.sin(x / 1600 * 11 + q - t * 2.4),
                )
                for x in range(0, 1609, 8)
            ]
            tone = self.mix(tones, t)
            self.ground(line, [self.mix([tone, self.light], 0.3), tone, tone], 0.8)
            self.lines([line], 1.5, self.light, 0.35)


class _Shifted:
    """A drawing surface whose origin lies elsewhere: a tile draws with the picture's coordinates into a small mask."""

    def __init__(self, draw, x, y):
        self.draw, self.x, self.y = draw, x, y

    def __getattr__(self, name):
        method = getattr(self.draw, name)

        def shifted(points, *args, **more):
            if isinstance(points, list):
                return method([(a - self.x, b - self.y) for a, b in points], *args, **more)
            return method(
                tuple(v - (self.y if i % 2 else self.x) for i, v in enumerate(points)),
                *args,
                **more,
            )

        return shifted
