"""Synthetic runs for the tests of run-*: slides drawn with Pillow, every failure class, hostile texts.

python tests/web/synthetic.py FOLDER [PROMPTS]
"""

import json
import random
import sys
from functools import cache, lru_cache
from hashlib import sha256
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "lib"))

from decksmith.core import stream
from decksmith.core.protocol import Protocol
from decksmith.measure.decks.clean import clean
from decksmith.measure.judging import identity, scoring  # noqa: E402
from decksmith.measure.results.summary import summarize  # noqa: E402
from decksmith.models import registry  # noqa: E402

TOPICS = [
    (
        "biology",
        "students",
        "Coral reefs and the slow recovery after bleaching",
        [
            "Why reefs matter",
            "What bleaching is",
            "Heat stress in numbers",
            "Recovery takes decades",
            "What helps",
            "Three things to remember",
        ],
    ),
    (
        "finance",
        "executives",
        "Treasury automation: what the first two quarters taught us",
        [
            "Where we started",
            "Cash positions by region",
            "What broke",
            "Costs and savings",
            "Next quarter",
            "The decision we ask for",
        ],
    ),
    (
        "computing",
        "engineers",
        "Consistent hashing, from the ring to bounded loads",
        [
            "The problem",
            "The ring",
            "Virtual nodes",
            "Bounded loads",
            "A small simulation",
            "When not to use it",
        ],
    ),
    (
        "history",
        "general",
        "The printing press and the price of a book",
        ["Mainz, 1450", "A page an hour", "Prices fall", "Who read", "What came after", "Sources"],
    ),
    (
        "medicine",
        "clinicians",
        "Reading a forest plot without being misled",
        [
            "Anatomy of the plot",
            "Weights",
            "Heterogeneity",
            "Small studies",
            "A worked example",
            "Take away",
        ],
    ),
    (
        "astronomy",
        "students",
        "How we weigh a galaxy",
        [
            "Light and mass",
            "Rotation curves",
            "Lensing",
            "Dark matter",
            "Open questions",
            "Further reading",
        ],
    ),
]
HOSTILE = [
    'Close it: </script><script>document.title="taken"</script> and </style><style>body{display:none}</style>',
    '<img src=x onerror="document.title=\'taken\'"> <svg onload=alert(1)> <iframe src="https://example.org"></iframe>',
    "<!-- <script> --> \u2028 \u2029 {{ 7 * 7 }} ${7*7} `x` &lt;b&gt; \ud800 \x00 \x1b[31m",
    "\u202eمرحبا بالعالم\u202c שלום עולם \u202egnp.exe",
    "[link](javascript:alert(1)) ![x](https://example.org/pixel.png)",
]
LONG = "x" * 10_000
FAULTS = [
    (stage, kind, name)
    for stage, kind, names in (
        ("gen", "infra", ["timeout"]),
        ("deck", "model", ["empty-reply", "no-deck"]),
        ("judge", "judge", ["unparseable"]),
        ("render", "renderer", ["crash", "internal"]),
        (
            "render",
            "model",
            [
                "yaml",
                "vue-compile",
                "vue-runtime",
                "unknown-layout",
                "unknown-component",
                "unknown-theme",
                "mermaid",
                "katex",
                "missing-image",
                "too-few-slides",
                "blank",
                "fenced-deck",
                "deadline",
                "memory",
                "forbidden",
            ],
        ),
    )
    for name in names
]
PAPERS = {
    "default": ("#ffffff", "#22303c", "#2b7a9e"),
    "seriph": ("#faf6ef", "#2d2a26", "#a4552f"),
    "apple-basic": ("#101216", "#f2f2f4", "#6fb1ff"),
}


def slide(path, number, title, theme, salt):
    """Write one 980 x 552 slide; equal arguments give equal pictures."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(_drawn(number, title, theme, salt))


@lru_cache(maxsize=512)
def _drawn(number, title, theme, salt):
    import io

    from PIL import Image, ImageDraw, ImageFont

    paper, ink, accent = PAPERS[theme]
    picture = Image.new("RGB", (980, 552), paper)
    draw, dice = ImageDraw.Draw(picture), random.Random(f"{number}{title}{salt}")
    font = ImageFont.load_default
    if number == 1:
        draw.rectangle((0, 0, 14, 552), fill=accent)
        words, line, y = title.split(), "", 190
        for word in [*words, None]:
            if word is None or len(line) + len(word) > 26:
                draw.text((80, y), line.strip(), ink, font(48))
                y, line = y + 60, ""
            line += f" {word}"
        draw.text((80, y + 16), "A short talk, with sources", accent, font(22))
    else:
        draw.text((60, 44), title, ink, font(38))
        draw.line((60, 100, 140, 100), fill=accent, width=4)
        shape = dice.choice(["bullets", "chart", "columns", "quote"])
        if shape == "quote":
            draw.text((120, 220), "What is measured gets discussed,", ink, font(34))
            draw.text((120, 268), "what is shown gets remembered.", ink, font(34))
            draw.rectangle((84, 214, 90, 316), fill=accent)
        if shape in ("bullets", "columns"):
            for line in range(dice.randint(3, 5)):
                y = 150 + 62 * line
                draw.ellipse((66, y + 10, 76, y + 20), fill=accent)
                draw.text(
                    (96, y),
                    dice.choice(
                        [
                            "One claim, one number beside it",
                            "The part that surprised us",
                            "Costs are counted per week",
                            "Compare this with the next slide",
                            "A limit that we know of",
                        ]
                    ),
                    ink,
                    font(25),
                )
        if shape in ("chart", "columns"):
            left = 560 if shape == "columns" else 90
            for bar in range(6):
                x, height = left + bar * (58 if shape == "columns" else 130), dice.randint(60, 290)
                draw.rectangle(
                    (x, 470 - height, x + (38 if shape == "columns" else 84), 470),
                    fill=accent if bar % 2 else ink,
                )
    draw.text((930, 515), str(number), accent, font(16))
    buffer = io.BytesIO()
    picture.save(buffer, "PNG")
    return buffer.getvalue()


def prompt(index):
    domain, audience, topic, titles = TOPICS[index % len(TOPICS)]
    theme = list(PAPERS)[index % 3]
    text = f"Make a deck of 6 slides for {audience}: {topic}. Use the {theme} theme, show one chart and close with what to remember. "
    text += f"It is talk {index + 1} of the day."
    if index % 7 == 3:
        text += " " + HOSTILE[index % len(HOSTILE)]
    return {
        "id": f"p{index + 1:03d}",
        "sets": ["core"],
        "messages": [
            {"role": "system", "content": "You write Slidev decks."},
            {"role": "user", "content": text},
        ],
        "asks": {
            "domain": domain,
            "audience": audience,
            "theme": theme,
            "slides": 6,
            "language": "en",
            "features": ["table"],
        },
        "checklist": [
            {"id": f"c{n}", "ask": ask, "match": ["x"]}
            for n, ask in enumerate(
                [
                    f"The cover names {topic.split()[0].lower()} as the topic",
                    f'A slide is titled like "{titles[1]}"',
                    "One slide shows a chart",
                    "Numbers carry a unit",
                    "A slide compares two cases",
                    "The last slide sums up",
                ],
                1,
            )
        ],
    }


def deck(row, titles, theme, hostile):
    slides = [f"---\ntheme: {theme}\nlayout: cover\n---\n\n# {row}\n\nA short talk, with sources"]
    for number, title in enumerate(titles, 2):
        body = f"# {title}\n\n- One claim, one number beside it\n- The part that surprised us\n- A limit that we know of"
        if hostile and number == 3:
            body += f"\n\n{hostile}\n\n{LONG}"
        slides.append(
            f"---\nlayout: {'default' if number % 2 else 'two-cols'}\n---\n\n{body}\n\n<!-- Say this slowly. -->"
        )
    return "\n\n".join(slides) + "\n"


def record(folder, model, skill, index, slides_too=True, reads=False):
    """One scored record. reads: judged by a model that gives marks, and not by the checks."""
    row, dice = prompt(index), random.Random(f"{model}{index}")
    domain, _, topic, titles = TOPICS[index % len(TOPICS)]
    theme, by = row["asks"]["theme"], {"at": "2026-01-01T10:00:00+00:00", "took": 2.0}
    fault = FAULTS[dice.randrange(len(FAULTS))] if dice.random() > skill else None
    hostile = HOSTILE[index % len(HOSTILE)] if index % 5 == 0 else ""
    cut = index % 11 == 4
    text = deck(topic, titles, theme, hostile).replace("A short talk", f"A talk of {model}")
    row["gen"] = {
        "text": "```markdown\n" + text + "```",
        "reasoning": "Outline first.",
        "finish_reason": "length" if cut else "stop",
        "usage": {
            "prompt_tokens": 180,
            "completion_tokens": 900 + 10 * index,
            "reasoning_tokens": 0,
            "cost": 0.002,
        },
        "model": {"name": model, "slug": _slug(model), "params": {}},
        "sampling": {"temperature": 0.7},
        "by": by,
    }
    error = fault and {
        "kind": fault[1],
        "class": fault[2],
        "message": dice.choice(
            [
                f"{fault[2]}: the reply cannot be used",
                hostile or "Element is missing end tag.",
                "nested mappings are not allowed here (line 12, column 9)",
            ]
        ),
    }
    stage = fault and fault[0]
    if stage == "gen":
        row["gen"] = {"error": error, "by": by}
    elif stage == "deck":
        row["gen"]["text"] = (
            ""
            if fault[2] == "empty-reply"
            else "Of course! "
            + (hostile or "I would rather not write slides today.")
            + " "
            + LONG[:3000]
        )
        row["deck"] = {"error": error, "by": by}
    else:
        row["deck"] = {
            "path": f"{row['id']}/deck.md",
            "slides": 7,
            "theme": theme,
            "sha256": sha256(clean(row["gen"]["text"])[0].encode()).hexdigest(),
            "by": by,
        }
        stream.write(folder / row["deck"]["path"], text)
        row["images"] = {
            "path": row["deck"]["path"],
            "items": [
                {
                    "query": "coral reef",
                    "path": f"{row['id']}/images/a.png",
                    "line": 9,
                    "provider": "drawn",
                }
            ]
            if index % 3 == 0
            else [],
            "by": by,
        }
        failed = stage == "render"
        shown = 0 if failed and dice.random() < 0.6 else 3 if failed else 7
        partial = not fault and index % 9 == 2
        names = [f"{row['id']}/slides/{n:02d}.png" for n in range(1, shown + 1)]
        for number, name in enumerate(names, 1):
            if slides_too:
                slide(
                    folder / name,
                    number,
                    [topic, *titles][number - 1] if slides_too is True else "Any",
                    theme,
                    dice.random() if slides_too is True else 0,
                )
        lines = [n for n, line in enumerate(text.split("\n"), 1) if line == "---"][::2]
        errors = (
            [{**error, "slide": 4, "line": 24}]
            if failed
            else [
                {
                    "kind": "model",
                    "class": "mermaid",
                    "slide": 5,
                    "line": 38,
                    "message": "Parse error on line 2: unexpected arrow",
                }
            ]
            if partial
            else []
        )
        row["render"] = {
            "status": "failed" if failed and not names else "partial" if errors else "ok",
            "slides": names,
            "expected": 7,
            "errors": errors,
            "xray": [
                {
                    "slide": n,
                    "line": lines[n - 1],
                    "layout": "default",
                    "title": [topic, *titles][n - 1],
                    "words": dice.randint(5, 60),
                    "images_broken": 0,
                    "overflow": {"x": 0, "y": 34 if n == 4 and index % 4 == 0 else 0},
                    "overlap": 0.0,
                    "font": {"min": 16, "dominant": 22, "title": 38},
                    "contrast": 7.1,
                    "whitespace": 0.6,
                    "blank": False,
                }
                for n in range(1, shown + 1)
            ],
            "engine": {"slidev": "52.20.1"},
            "by": by,
        }
        if failed:
            row["render"]["error"] = errors[0]
        elif stage == "judge":
            row["judge"] = {"error": error, "by": by}
        else:
            answers = [
                {"id": f"c{n}", "yes": (yes := dice.random() < skill), "slide": n if yes else None}
                for n in range(1, 7)
            ]
            said = (
                _marks(dice, skill, index, hostile)
                if reads
                else _checks(dice, skill, row, answers, hostile)
            )
            row["judge"] = {**said, "checklist": answers, "usage": {}, "by": by}
    craft = round(1 + 3 * skill * dice.random(), 2)
    row["features"] = {
        "craft": craft,
        "craft_v5": min(5.0, craft + 1),
        "counts": {"layouts": 3, "notes": 6},
        "by": by,
    }
    row["score"] = scoring.score(_protocol(reads), row)
    return row


def _checks(dice, skill, row, answers, hostile):
    """What the checks say: a finding on some slides, and what was asked for."""
    said = {
        "overflow": "text overflows by 34 px",
        "low-contrast": "text has a contrast of 1.80, below 2.5",
        "twice": "the slide repeats slide 2",
    }
    findings = [
        {
            "line": 9,
            "slide": n,
            "check": name,
            "message": hostile or said[name],
            "box": [60, 400, 500, 180],
        }
        for n in range(1, 8)
        if dice.random() > 0.5 + skill / 2
        for name in [dice.choice(list(said))]
    ]
    asked = [
        {"check": "element", "what": "table", "yes": dice.random() < skill, "slide": None},
        {"check": "theme", "what": row["asks"]["theme"], "yes": True, "slide": None},
        *({"check": "checklist", "what": one["id"], **one} for one in answers),
    ]
    for one in asked:
        one.pop("id", None)
    missing = [one for one in asked if not one["yes"]]
    passed = 7 - len(findings) + len(asked) - len(missing)
    return {
        "judge": "offline checks",
        "checks": {"passed": passed, "of": 7 + len(asked)},
        "findings": findings
        + [
            {"line": None, "slide": None, "check": one["check"], "box": None}
            | {"message": f"no slide shows {one['what']}"}
            for one in missing
        ],
        "asked": asked,
        "not_checked": {"reads": "the model knows no Welsh"},
    }


def _marks(dice, skill, index, hostile):
    """What a model that sees the slides says."""
    level = 1.6 + 2.6 * skill
    scores = {
        name: round(min(5, max(1, dice.gauss(level, 0.6))), 2)
        for name in ("content", "design", "coherence")
    }
    cap = {"dimension": "design", "max": 2.5, "why": "text runs off slide 4"}
    return {
        "judge": "lab/judge",
        "scores": scores,
        "caps": [cap] if index % 4 == 0 else [],
        "why": {
            "content": "4 of 6 items of the checklist are met; theme and number of slides as asked.",
            "design": hostile or "No overflow; smallest text 16 px; contrast at least 7.1.",
            "coherence": "Opens with a cover, closes with a summary; no slide repeats another.",
        },
        "evidence": {"design": [{"slide": 2, "seen": hostile or "A chart without a scale."}]},
        "observations": [{"seen": "text_cut_off", "slide": 3}],
    }


@cache
def _slug(model):
    """What the registry calls it at its endpoint."""
    known = registry.models().get(model)
    return known.slug if known else f"lab/{model}"


@cache
def _protocol(reads=False):
    return Protocol.load("published" if reads else "offline")


def run(folder, model, skill, prompts, **how):
    """Write a whole run folder and return it."""
    records = [record(folder, model, skill, index, **how) for index in range(prompts)]
    return write(folder, records, _protocol(how.get("reads", False)))


def write(folder, records, protocol=None):
    """Write scores.jsonl, summary.json and protocol.json of these records, as stages would: without half characters."""
    protocol = protocol or _protocol()
    records = [stream.loads(stream.dumps(record)) for record in records]
    stream.write(
        folder / "scores.jsonl", b"".join(stream.dumps(record) + b"\n" for record in records)
    )
    stream.write(folder / "summary.json", json.dumps(summarize(enumerate(records, 1))))
    stream.write(folder / "protocol.json", json.dumps(identity.identity(protocol, records)))
    return folder


if __name__ == "__main__":
    for name, ability in (("smol", 0.45), ("smol-sft", 0.8), ("gpt-5.4", 0.93))[
        : int(sys.argv[3]) if len(sys.argv) > 3 else 3
    ]:
        print(
            run(
                Path(sys.argv[1]) / name,
                name,
                ability,
                int(sys.argv[2]) if len(sys.argv) > 2 else 30,
            )
        )
