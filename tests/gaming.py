"""Check decks that were made to please a metric and no reader, and decks with little on each slide as good designers make them:
a part of docs/judge-card.md (make gaming).

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
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "lib"), str(ROOT / "tests/exam")]

import planted_defects as defects  # noqa: E402

DECKS = ROOT / "tests" / "fixtures" / "gaming"
DESIGNED = ROOT / "tests" / "fixtures" / "designed"
NEAR = 0.1  # a nonsense deck's share of passed checks stands at least so far below the honest one's


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


def judged(run, names=None):
    """{deck: judge} of `names` (or all) by the offline protocol, through the stages of the pipeline."""
    prompt = json.loads((DECKS / "prompt.json").read_text())
    chosen = {name: text for name, text in decks().items() if names is None or name in names}
    rows = "".join(
        json.dumps({**prompt, "id": name.replace("/", "-"), "gen": {"text": text}}) + "\n"
        for name, text in chosen.items()
    )
    for stage in ("deck-parse", "deck-illustrate", "deck-render", "deck-judge"):
        rows = subprocess.run(
            [ROOT / "bin" / stage, "--run", run],
            input=rows,
            env=dict(os.environ, DECKSMITH_PROTOCOL="offline"),
            text=True,
            check=True,
            stdout=subprocess.PIPE,
        ).stdout
    return {
        name: json.loads(line)["judge"]
        for name, line in zip(chosen, rows.splitlines(), strict=True)
    }


def share(judge):
    return judge["checks"]["passed"] / judge["checks"]["of"]


def designed(name):
    return name.startswith("designed/")


def near(found):
    """The adversarial decks that pass nearly as much as the honest one."""
    least = share(found["honest"]) - NEAR
    others = {name for name in found if name != "honest" and not designed(name)}
    return {name for name in others if share(found[name]) > least}


def table(found):
    """What each deck passes, and what is found wrong with it most often, as a markdown table."""
    lines = ["| deck | passes | what is found |", "|---|---:|---|"]
    order = sorted(
        found, key=lambda name: (name != "honest", not designed(name), -share(found[name]), name)
    )
    for name in order:
        checks = found[name]["checks"]
        wrong = Counter(one["check"] for one in found[name]["findings"]).most_common(4)
        said = ", ".join(f"{check} {n}" for check, n in wrong)
        title = name.replace("_", " ").replace("/", ": ")
        passed = f"{checks['passed']} of {checks['of']}"
        lines.append(f"| {title} | {f'**{passed}**' if name in near(found) else passed} | {said} |")
    return "\n".join(lines)


PAGE = """\
# Nonsense decks beside an honest one

All answer one request. The nonsense was made to please a metric and no reader (tests/fixtures/gaming, tests/gaming.py); the *designed*
decks (tests/fixtures/designed) have little on each slide, as good designers make them. What passes nearly as much as the honest deck
(within {near:.0%}) is in bold: true lines each on a wrong slide, slides the other way round, code that nobody asked for.

What the numbers do not see: most checks look at how a slide is drawn, so filler and pseudo-words that keep to the form pass two thirds,
and a designed deck that leaves out what was asked for may pass less. No check knows what is true: a fluent deck whose claims are all
false passes as an honest one does. The decks were written together with the checks; this says nothing about the next attempt.

{table}
"""


def main():
    with tempfile.TemporaryDirectory() as run:
        print(PAGE.format(table=table(judged(run)), near=NEAR))


if __name__ == "__main__":
    main()
