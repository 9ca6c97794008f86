"""How often the check `reads` is right: bits a character of good decks against those of decks that were spoiled.

  .venv/bin/python3 tests/bench_reads.py [FOLDER]

The good decks are those of data/gold and data/reference, and every deck (*.md) under FOLDER, of which nothing is kept but numbers.
Of two decks that share half of their lines (a talk that was given twice) one counts. What is read is taken from the markdown,
without renderer. The limit is chosen on one half of the decks, and the other half says how good it is.
What was read stands in results/bench-reads, so that another run repeats nothing. A markdown part of docs/judge-card.md goes to stdout.
"""

import dataclasses
import json
import random
import re
import statistics
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "lib"))
from decksmith.core import stream  # noqa: E402
from decksmith.measure.decks.parser import Deck, visible  # noqa: E402
from decksmith.measure.decks.words import STOPWORDS, likeliest_language  # noqa: E402
from decksmith.measure.judging import reading  # noqa: E402
from decksmith.measure.render.worker import usage  # noqa: E402

LEAST = 800  # characters of a deck that are needed
ALARMS = 0.025  # of the decks on which the limit is chosen
MARGIN = 0.1  # bits: a rendered deck has labels of diagrams beside what its markdown says
SYLLABLES = "ba ke lor min tra vo su pel dri fon gat hul zem ri no cal".split()


def slides(text):
    """The lines of each slide that are sentences or parts of one, from a deck's markdown."""
    found = []
    for slide in Deck.parse(text).slides:
        shown = re.sub(r"(?s)<(style|script|svg)\b.*?</\1>|<!--.*?-->", "", slide.prose)
        lines = re.sub(r"<[^>]*>|\|", "\n", shown).split("\n")
        found.append(reading.running("\n".join(visible(line) for line in lines)))
    return found


def relaid(lines, words):
    """The words, as many to a line as there were."""
    dealt = iter(words)
    return [[" ".join(next(dealt) for _ in line.split()) for line in slide] for slide in lines]


def salad(lines, rng, _):
    """The deck's own words in any order."""
    words = [word for slide in lines for line in slide for word in line.split()]
    return relaid(lines, rng.sample(words, len(words)))


def random_words(lines, rng, others):
    """Words of other decks."""
    count = sum(len(line.split()) for slide in lines for line in slide)
    return relaid(lines, [rng.choice(rng.choice(others).split()) for _ in range(count)])


def dealt(lines, rng, others):
    """Lines of other decks."""
    return [[rng.choice(others) for _ in slide] for slide in lines]


def pseudo(lines, rng, _):
    """Words of no language, always the same for the same word, between the function words that were there."""
    made = {}

    def word(match):
        said = match[0]
        if said.lower() in STOPWORDS["en"]:
            return said
        count = max(1, round(len(said) / 2.7))
        new = made.setdefault(said.lower(), "".join(rng.choices(SYLLABLES, k=count)))
        return new.capitalize() if said[0].isupper() else new

    return [[re.sub(r"[^\W\d_]+", word, line) for line in slide] for slide in lines]


KINDS = {
    "pseudo-words between function words": pseudo,
    "its own words, shuffled": salad,
    "words of other decks": random_words,
    "lines of other decks": dealt,
}
*EASY, HARD = KINDS  # each deck is spoiled by the hard one and by one of the others


def decks(folder):
    """{(source, id): lines by slide} of the good decks with enough to read, those that repeat another left out."""
    paths = [("own", path.parent.name, path) for path in sorted(ROOT.glob("data/gold/*/deck.md"))]
    paths += [("own", path.stem, path) for path in sorted(ROOT.glob("data/reference/p*.md"))]
    paths += (
        [("public", str(path), path) for path in sorted(Path(folder).rglob("*.md"))]
        if folder
        else []
    )
    found, short, again = {}, 0, 0
    for source, ident, path in paths:
        lines = slides(path.read_text(encoding="utf-8", errors="replace"))
        said = {line for slide in lines for line in slide}
        if len(excerpt(lines)) < LEAST:
            short += 1
        elif any(
            2 * len(said & {x for s in other for x in s}) > len(said) for other in found.values()
        ):
            again += 1
        else:
            found[source, ident] = lines
    return found, short, again


def excerpt(lines):
    return reading.excerpt("\n".join(slide) for slide in lines)


def auc(good, bad):
    """The probability that a spoiled deck has more bits than a good one, ties counting half."""
    pairs = [(a < b) + 0.5 * (a == b) for a in good for b in bad]
    return sum(pairs) / len(pairs)


def table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, row)) + " |" for row in lines)


def percent(found, limit):
    return f"{100 * statistics.fmean(bits > limit for bits in found):.0f} %"


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else None
    reader = reading.Reader(0, LEAST, ROOT / "results/bench-reads/readings.jsonl")
    spent = {"tokens": 0, "cpu": 0.0, "decks": 0}

    def bits(lines):
        """Bits a character of a deck; what it cost is counted where it was not read before."""
        before = usage(reader._lease.pid)[0] if reader._lease else None
        kept = len(reader._journal.places) if reader._journal else 0
        said = reader.read(excerpt(lines))
        if before is not None and len(reader._journal.places) > kept:
            spent["cpu"] += usage(reader._lease.pid)[0] - before
            spent["tokens"] += said["tokens"]
            spent["decks"] += 1
        return said["bits"] / said["characters"]

    every, short, again = decks(folder)
    language = {key: likeliest_language(excerpt(lines)) for key, lines in every.items()}
    good = {
        key: lines
        for key, lines in every.items()
        if language[key] == "en" and not reading.unjudged(excerpt(lines), "en", LEAST)
    }
    found = {key: {"good": bits(lines)} for key, lines in good.items()}
    part = {key: stream.part(key[1].removeprefix(str(folder)), 2) for key in good}
    chosen = sorted(found[key]["good"] for key in good if part[key] == 1)
    limit = round(chosen[-1 - int(ALARMS * len(chosen))] + MARGIN, 1)
    unseen = [key for key in good if part[key] == 2]
    for n, key in enumerate(unseen):
        lines = good[key]
        others = [line for other in good if other != key for slide in good[other] for line in slide]
        for kind in (HARD, EASY[n % len(EASY)]):
            found[key][kind] = bits(KINDS[kind](lines, random.Random(f"{key[1]} {kind}"), others))
        print(f"{n + 1}/{len(unseen)}", file=sys.stderr)

    print("## Does it read like language?\n")
    print(
        f"The check `reads`: bits that the embedded model needs for a character of at most {reading.MOST:,} of a deck. It knows nothing of what "
        f"is true: a fluent deck whose claims are all false passes. `make bench-reads` writes this part, from {len(good)} good English decks "
        f"({sum(key[0] == 'own' for key in good)} of this repository, {sum(key[0] == 'public' for key in good)} public talks; {again} that "
        f"repeat another and {short} with fewer than {LEAST} characters of running text left out). "
        f"On {len(chosen)} of them the limit was chosen: {limit:.1f}. The table is of the other {len(unseen)}, each spoiled in two of four ways.\n"
    )

    def row(name, kind, keys):
        these = [found[key][kind] for key in keys if kind in found[key]]
        low, middle, high = min(these), statistics.median(these), max(these)
        value = (
            "" if kind == "good" else f"{auc([found[key]['good'] for key in unseen], these):.3f}"
        )
        return [
            name,
            len(these),
            f"{middle:.2f} ({low:.2f} to {high:.2f})",
            value,
            percent(these, limit),
        ]

    rows = [row("good: ours", "good", [key for key in unseen if key[0] == "own"])]
    if public := [key for key in unseen if key[0] == "public"]:
        rows.append(row("good: public", "good", public))
    rows += [row(kind, kind, unseen) for kind in KINDS]
    print(table(["decks", "n", "bits a character (range)", "AUC", "fail"], rows))

    print("\nBy language, good decks of this repository against their own words, shuffled:\n")
    rows = []
    for code in sorted({said for said in language.values() if said} - {"en"}):
        keys = [key for key in every if language[key] == code and key[0] == "own"]
        if keys:
            fine = [bits(every[key]) for key in keys]
            bad = [bits(salad(every[key], random.Random(key[1]), [])) for key in keys]
            rows.append(
                [
                    code,
                    len(keys),
                    f"{statistics.median(fine):.2f}",
                    f"{max(fine):.2f}",
                    f"{min(bad):.2f}",
                ]
            )
    print(table(["language", "n", "good: median", "good: most", "shuffled: least"], rows))
    print(
        "\nOnly English is judged: good decks of other languages lie where spoiled English ones do."
    )

    print("\nThe gamed decks of tests/fixtures/gaming:\n")
    rows = []
    for path in sorted((ROOT / "tests/fixtures/gaming").glob("*.md")):
        lines = slides(path.read_text())
        text = excerpt(lines)
        said = "not checked" if reading.unjudged(text, "en", LEAST) else f"{bits(lines):.2f}"
        verdict = "" if said == "not checked" else "passes" if float(said) <= limit else "fails"
        rows.append([path.stem.replace("_", " "), said, verdict])
    print(table(["deck", "bits a character", "verdict"], rows))

    if spent["decks"]:
        each = spent["cpu"] / spent["decks"]
        print(
            f"\nA deck takes {each:.1f} CPU seconds ({spent['tokens'] / spent['decks']:.0f} tokens)."
        )
    texts = [excerpt(lines) for lines in list(good.values())[:3]]
    one = [reader._ask(text)["bits"] for text in texts]
    reader.close()
    made = reading.engine()
    reading.engine = lambda: dataclasses.replace(made, threads=2)
    two = [reader._ask(text)["bits"] for text in texts]
    reader.close()
    apart = max(abs(a - b) / a for a, b in zip(one, two, strict=True))
    print(f"With two threads in place of one the bits differ by at most {100 * apart:.3f} %.")
    (ROOT / "results/bench-reads/bench.json").write_text(
        json.dumps([{"deck": key, **value} for key, value in found.items()], indent=1)
    )


if __name__ == "__main__":
    main()
