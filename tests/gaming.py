"""Score decks that were made to please a metric and no reader, and decks with little on each slide as good designers make them, and
write docs/gameability.md; with --check, only say whether it is right.

All answer tests/fixtures/gaming/prompt.json. The adversarial decks are the files beside it, but for honest.md, and VERSIONS of
that one; the designed decks are tests/fixtures/designed. They go through the real stages.
"""

import json
import os
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "lib"), str(ROOT / "tests/exam")]

import planted_defects as defects  # noqa: E402

DECKS = ROOT / "tests" / "fixtures" / "gaming"
DESIGNED = ROOT / "tests" / "fixtures" / "designed"
METRICS = (
    "overall",
    "judge_only",
    "design",
    "content",
    "coherence",
    "checklist",
    "craft",
    "craft_v5",
)
MARGIN = (
    0.3  # an adversarial deck stands at least so far below the honest one, by the overall score
)
KNOWN = {"shuffled_lines"}  # but for these: only a reader can tell
FILLER = {
    "filler_with_every_feature",
    "varied_filler",
    "varied_filler_on_topic",
    "pseudo_words",
    "half_of_it",
    "toy_elements",
    "stuffed_and_empty",
    "word_salad",
    "keywords",
    "pictures_only",
    "praise_for_the_judge",
    "prompt_echoed",
    "request_in_pieces",
}


def changed(text, body):
    """The deck with `body(text of a slide, its number)` in place of every slide's body."""
    return defects.join(
        part.text(body(part.body, no)) for no, part in enumerate(defects.parts(text), 1)
    )


def wrapped(style, after=""):
    """A version of a deck whose text stands in boxes of a style."""

    def box(text):
        return f'<div style="{style}">\n\n{text.strip()}\n\n</div>{after}'

    def body(text, _):
        columns = re.split(r"(?m)^(::\w+::)$", text)
        return "\n\n".join(part if part.startswith("::") else box(part) for part in columns)

    return lambda text: changed(text, body)


def styled(rules):
    """A version of a deck whose lines have a style each."""
    return lambda text: changed(
        text, lambda body, _: f"{body}\n\n<style>\nh1, p, li, td, th {{ {rules} }}\n</style>"
    )


def irrelevant(text):
    """The honest deck with code and formulas that nothing asks for."""
    code = (
        "```python\ndef merge(left, right):\n    return sorted(left + right)\nprint(merge([3], [1, 2]))\n```",
        "```js\nconst sum = xs => xs.reduce((a, b) => a + b, 0)\nconst mean = xs => sum(xs) / xs.length\nmean([1, 2])\n```",
        "```sql\nSELECT name, count(*)\nFROM orders\nGROUP BY name\n```",
    )
    formulas = (
        "$$\\int_0^1 x^2\\,dx = \\tfrac{1}{3}$$",
        "$$e^{i\\pi} + 1 = 0$$",
        "$$\\sigma^2 = E[X^2] - E[X]^2$$",
    )
    return changed(
        text,
        lambda body, no: (
            f"{body}\n\n{(code if no % 2 else formulas)[no % 3]}" if no in (1, 5, 6, 7, 8) else body
        ),
    )


def shuffled_words(text):
    """The words of each slide in another order."""
    chance = random.Random(1)

    def body(text, _):
        if "```" in text:
            return text
        place = r"[^\W\d_][\w']+"
        words = re.findall(place, re.sub(r"(?m)^(#.*|::.*)$", "", text))
        chance.shuffle(words)
        return re.sub(rf"(?m)^(#.*|::.*)$|{place}", lambda m: m[1] or words.pop(), text)

    return changed(text, body)


def shuffled_lines(text):
    """Every line of text stands on some other slide; headings, tables and the diagram stay."""
    chance = random.Random(2)
    plain = r"(?m)^(?![#:|<`\s])(- |\d\. )?(?=[A-Z*])(?!\*\*)(.+[a-z.].*)$(?![\s\S]*```)"
    lines = [m[2] for part in defects.parts(text) for m in re.finditer(plain, part.body)]
    chance.shuffle(lines)
    return changed(text, lambda body, _: re.sub(plain, lambda m: (m[1] or "") + lines.pop(), body))


def shuffled_slides(text):
    """The slides between the first and the last the other way round."""
    first, *inner, last = (part.text() for part in defects.parts(text))
    return defects.join([first, *inner[::-1], last])


def wrong_figures(text):
    """Every number is another one."""
    return changed(
        text, lambda body, _: re.sub(r"\d+(?!\.)", lambda m: str(int(m[0]) * 7 + 13), body)
    )


def half_of_it(text):
    """From the middle on, a picture's caption in place of what was to be said."""
    half = len(defects.parts(text)) // 2
    return changed(
        text,
        lambda body, no: (
            body
            if no <= half
            else body.split("\n")[0] + "\n\nMore about this will be said in the talk."
        ),
    )


def request_in_pieces(text):
    """The request, four words to a line, under the headings that it asks for."""
    words = json.loads((DECKS / "prompt.json").read_text())["messages"][0]["content"].split()
    lines = [" ".join(words[i : i + 4]) for i in range(0, len(words), 4)]
    return changed(
        text,
        lambda body, no: "\n".join(
            [body.split("\n")[0], "", *(f"- {line}" for line in lines[no - 1 :: 8][:5])]
        ),
    )


COVER = (
    '\n\n<div style="position: absolute; inset: 0; background: #fff; pointer-events: none"></div>'
)
GLASS = '\n\n<div style="position: absolute; inset: 0; backdrop-filter: blur(6px); pointer-events: none"></div>'
VERSIONS = {
    "irrelevant_code_and_formulas": irrelevant,
    "blurred": wrapped("filter: blur(4px)"),
    "mirrored": wrapped("transform: scaleX(-1)"),
    "upside_down": wrapped("transform: rotate(180deg)"),
    "dots_for_letters": wrapped("-webkit-text-security: disc"),
    "letters_piled_up": wrapped("letter-spacing: -0.5em"),
    "backwards": styled("direction: rtl; unicode-bidi: bidi-override"),
    "struck_out": wrapped("text-decoration: line-through 0.7em"),
    "lightened_away": wrapped("filter: contrast(0.15) brightness(1.9)"),
    "under_paper": wrapped("", COVER),
    "behind_frosted_glass": wrapped("", GLASS),
    "shuffled_words": shuffled_words,
    "shuffled_lines": shuffled_lines,
    "shuffled_slides": shuffled_slides,
    "wrong_figures": wrong_figures,
    "half_of_it": half_of_it,
    "request_in_pieces": request_in_pieces,
}


def decks():
    """{name: text} of every deck: `honest`, the adversarial ones, and the designed ones as `designed/NAME`."""
    found = {path.stem: path.read_text() for path in sorted(DECKS.glob("*.md"))}
    found |= {name: make(found["honest"]) for name, make in VERSIONS.items()}
    return found | {
        f"designed/{path.stem}": path.read_text() for path in sorted(DESIGNED.glob("*.md"))
    }


def scores(run, names=None):
    """{deck: {metric: score}} of `names` (or all) by the offline protocol, through the stages of the pipeline."""
    prompt = json.loads((DECKS / "prompt.json").read_text())
    chosen = {name: text for name, text in decks().items() if names is None or name in names}
    rows = "".join(
        json.dumps({**prompt, "id": name.replace("/", "-"), "gen": {"text": text}}) + "\n"
        for name, text in chosen.items()
    )
    for stage in (
        "deck-parse",
        "deck-illustrate",
        "deck-render",
        "deck-judge",
        "deck-scan",
        "deck-score",
    ):
        options = [] if stage == "deck-score" else ["--run", run]
        env = dict(os.environ, DECKSMITH_PROTOCOL="offline")
        rows = subprocess.run(
            [ROOT / "bin" / stage, *options],
            input=rows,
            env=env,
            text=True,
            check=True,
            stdout=subprocess.PIPE,
        ).stdout
    found = {}
    for name, record in zip(chosen, map(json.loads, rows.splitlines()), strict=True):
        score, features = record["score"], record["features"]
        found[name] = {
            **{key: score[key] for key in ("overall", "judge_only", "checklist")},
            **{d: score["dimensions"][d] for d in ("design", "content", "coherence")},
            "craft": features["craft"],
            "craft_v5": features["craft_v5"],
        }
    return found


def designed(name):
    return name.startswith("designed/")


def adversarial(found):
    return {name: row for name, row in found.items() if name != "honest" and not designed(name)}


def fooled(found):
    """{deck: [metrics that do not put it below the honest deck]} of the adversarial decks that fool any."""
    honest = found["honest"]
    lost = {
        name: [m for m in METRICS if row[m] >= honest[m]]
        for name, row in adversarial(found).items()
    }
    return {name: metrics for name, metrics in lost.items() if metrics}


def near(found):
    """The adversarial decks whose overall score is not MARGIN below the honest deck's."""
    return {
        name
        for name, row in adversarial(found).items()
        if row["overall"] > found["honest"]["overall"] - MARGIN
    }


def table(found):
    """The scores as a markdown table; of an adversarial deck, what does not stand below the honest deck is bold."""
    lines = [
        "| deck | " + " | ".join(f"`{m}`" for m in METRICS) + " |",
        "|---" * (len(METRICS) + 1) + "|",
    ]
    lost = fooled(found)
    for name in sorted(
        found,
        key=lambda name: (name != "honest", not designed(name), -found[name]["overall"], name),
    ):
        cells = [f"{found[name][m]:.2f}" for m in METRICS]
        cells = [
            f"**{c}**" if m in lost.get(name, ()) else c
            for m, c in zip(METRICS, cells, strict=True)
        ]
        lines.append(f"| {name.replace('_', ' ').replace('/', ': ')} | " + " | ".join(cells) + " |")
    count = [
        f"{sum(m in metrics for metrics in lost.values())} of {len(adversarial(found))}"
        for m in METRICS
    ]
    return "\n".join([*lines, "| fooled by | " + " | ".join(count) + " |"])


def printed(page):
    """{deck: {metric: score}} as the table of a page has them."""
    lines = re.search(r"\| deck \| `\w+` .*\n\|---.*\n((?:\|.*\n)+)\| fooled by", page)[
        1
    ].splitlines()
    rows = ([cell.strip(" *") for cell in line.strip("|").split("|")] for line in lines)
    return {
        name.replace(": ", "/").replace(" ", "_"): dict(
            zip(METRICS, map(float, cells), strict=True)
        )
        for name, *cells in rows
    }


PAGE = """\
# Decks made to please a metric

`make gaming` writes this page. The adversarial decks (tests/fixtures/gaming, tests/gaming.py) were made to please a metric and no
reader: they hide their words, list the checklist's words, say the request again, fill slides with sentences about nothing, add code
that nobody asked for, blur or mirror an honest deck, and so on. The *designed* ones (tests/fixtures/designed) have little on each
slide, as good designers make them: one idea, a large number, a full picture, a quotation. All answer one request, as does the honest
deck. The scores are those of the protocol `offline`; bold is what does not stand below the honest deck.

{table}

A test holds three things, for these decks and no others: by `overall`, no adversarial deck but *shuffled lines* comes within {margin:g} of the
honest deck; every designed deck stands more than {margin:g} above every deck of filler; text that cannot be made out is worth nothing. The
decks were written together with the measures, so this is no estimate of how often the next attempt succeeds. Single dimensions and
the two scans are fooled as the last row says: `craft_v5`, kept as published, by nearly all, `craft` by whatever keeps the markdown.
*Shuffled lines*, true sentences each on a wrong slide, equals the honest deck: only a reader can tell.
"""


def main():
    page = ROOT / "docs" / "gameability.md"
    with tempfile.TemporaryDirectory() as run:
        text = PAGE.format(table=table(scores(run)), margin=MARGIN)
    if "--check" in sys.argv:
        behind = text != page.read_text()
        sys.exit(behind and "docs/gameability.md is behind tests/fixtures/gaming: run make gaming")
    page.write_text(text)


if __name__ == "__main__":
    main()
