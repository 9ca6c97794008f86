"""Replies to grade by two graders (tests/agree.py): `replies(kind, count)` gives the same ones each time, without a network.

Each has a form, the way in which it was written; forms are what the page counts disagreements by. `intended` is
what a person would say of it: right, wrong, or None where people differ.
"""

import itertools
import random
import re
from collections.abc import Iterator
from math import comb, factorial, gcd
from typing import NamedTuple

LETTERS = "ABCDEFGHIJ"


class Reply(NamedTuple):
    """One reply: its form, the expected answer (of a choice its letter), the text, what is intended."""

    form: str
    expected: str
    text: str
    intended: bool | None
    choices: tuple[str, ...] = ()


def replies(kind: str, count: int) -> list[Reply]:
    """`count` replies of a kind ("math" or "choice"), its forms in turn."""
    made = {"math": _math, "choice": _choices}[kind]()
    return list(itertools.islice(made, count))


# --- mathematics ----------------------------------------------------------------------------------

# (form, expected answer, what stands in the box, intended). <n> and the like are filled anew for each reply.
ANSWERS: list[tuple[str, str, str, bool | None]] = [
    ("the same integer", "<n>", "<n>", True),
    ("another integer", "<n>", "<m>", False),
    ("leading zeros, as AIME has them", "0<n>", "<n>", True),
    ("a sign lost", "-<n>", "<n>", False),
    ("an integer as a decimal", "<n>", "<n>.0", True),
    ("an integer, not evaluated", "<nk>", "<n> \\cdot <k>", True),
    ("a sum, not evaluated", "<m>", "<n> + 1", True),
    ("thousands with a comma", "<big>", "<th>", True),
    ("thousands expected with a comma", "<th>", "<big>", True),
    ("thousands as 1{,}234", "<big>", "<thbrace>", True),
    ("thousands as 1,\\!234", "<thbang>", "<big>", True),
    ("thousands with a blank", "<big>", "<thblank>", True),
    ("thousands, another number", "<th>", "<big>0", False),
    ("\\dfrac for \\frac", "\\frac{<a>}{<b>}", "\\dfrac{<a>}{<b>}", True),
    ("a slash for \\frac", "\\frac{<a>}{<b>}", "<a>/<b>", True),
    ("a fraction, not reduced", "\\frac{<a>}{<b>}", "\\frac{<2a>}{<2b>}", True),
    ("a fraction upside down", "\\frac{<a>}{<b>}", "\\frac{<b>}{<a>}", False),
    ("\\frac without braces", "\\frac{<d>}{<k>}", "\\frac<d><k>", True),
    ("minus in the numerator", "-\\frac{<a>}{<b>}", "\\frac{-<a>}{<b>}", True),
    ("a decimal for a fraction", "\\frac{<n>}{4}", "<quarter>", True),
    ("a fraction for a decimal", "<n>.5", "\\frac{<2n1>}{2}", True),
    ("a decimal without its zero", "0.<n>", ".<n>", True),
    ("a fraction rounded to two places", "\\frac{<n>}{7}", "<sevenths2>", False),
    ("a fraction rounded to six places", "\\frac{<n>}{7}", "<sevenths6>", None),
    ("a mixed number", "\\frac{<mixed>}{<b>}", "<n>\\frac{<a>}{<b>}", True),
    ("percent, sign left out", "<n>\\%", "<n>", True),
    ("percent, sign added", "<n>", "<n>\\%", True),
    ("percent as a share", "<n>\\%", "0.<n2>", None),
    ("dollars added", "<n>", "\\$<n>", True),
    ("dollars left out", "\\$<n>.50", "<n>.50", True),
    ("dollars as a word", "<n>", "<n>\\text{ dollars}", True),
    ("degrees left out", "<n>^\\circ", "<n>", True),
    ("degrees added", "<n>", "<n>^\\circ", True),
    ("degrees as a word", "<n>^\\circ", "<n>\\text{ degrees}", True),
    ("a unit added", "<n>", "<n>\\text{ cm}", True),
    ("a squared unit added", "<n>", "<n>\\text{ cm}^2", True),
    ("a unit in \\mathrm", "<n>", "<n>\\,\\mathrm{cm}", True),
    ("a unit without \\text", "<n>", "<n> cm", True),
    ("a unit left out", "<n>\\text{ cm}", "<n>", True),
    ("another unit", "<n>\\text{ cm}", "<n>\\text{ m}", False),
    ("a word as unit", "<n>", "<n>\\text{ apples}", True),
    ("a variable behind the number", "<n>", "<n>k", False),
    ("factors in another order", "<n>\\sqrt{<k>}", "\\sqrt{<k>}\\cdot <n>", True),
    ("a root, not simplified", "<n>\\sqrt{<k>}", "\\sqrt{<nnk>}", True),
    ("a root by the sign √", "<n>\\sqrt{<k>}", "<n>√<k>", True),
    ("a root without braces", "\\sqrt{<k>}", "\\sqrt<k>", True),
    ("a rationalized denominator", "\\frac{<n>}{\\sqrt{<k>}}", "\\frac{<n>\\sqrt{<k>}}{<k>}", True),
    ("another root", "<n>\\sqrt{<k>}", "<m>\\sqrt{<k>}", False),
    ("a root as a decimal", "\\sqrt{<p>}", "<rootp>", False),
    ("π in another order", "<n>\\pi", "\\pi \\cdot <n>", True),
    ("π by its sign", "<n>\\pi", "<n>π", True),
    ("π as a decimal", "<n>\\pi", "<pi2>", False),
    ("π lost", "<n>\\pi", "<n>", False),
    ("a power, evaluated", "2^{<k>}", "<2k>", True),
    ("a power, not evaluated", "<2k>", "2^{<k>}", True),
    ("scientific notation", "<n>000", "<n> \\times 10^{3}", True),
    ("a binomial, evaluated", "<comb>", "\\binom{<n>}{2}", True),
    ("a factorial", "<fact>", "<k>!", True),
    ("terms in another order", "x^2+<n>x+1", "1+<n>x+x^2", True),
    ("a square, multiplied out", "(x+<n>)^2", "x^2+<2n>x+<nn>", True),
    ("another coefficient", "x^2+<n>x+1", "x^2+<m>x+1", False),
    ("another variable", "x^2+<n>x", "y^2+<n>y", False),
    ("a name in front", "<n>", "x = <n>", True),
    ("a name left out", "x = <n>", "<n>", True),
    ("another name in front", "x = <n>", "y = <n>", False),
    ("an equation, its left side left out", "y = <n>x+<k>", "<n>x+<k>", True),
    ("an equation, terms in another order", "y = <n>x+<k>", "y = <k>+<n>x", True),
    ("an equation, moved around", "y = <n>x+<k>", "y - <n>x = <k>", None),
    ("a list in another order", "<n>, <m>", "<m>, <n>", True),
    ("a list in braces", "<n>, <m>", "\\{<n>, <m>\\}", True),
    ("a list with and", "<n>, <m>", "<n> \\text{ and } <m>", True),
    ("a list with names and or", "<n>, <m>", "x = <n> \\text{ or } x = <m>", True),
    ("a list, one missing", "<n>, <m>", "<n>", False),
    ("a list, one too many", "<n>, <m>", "<n>, <m>, <big>", False),
    ("a list of guesses", "<n>", "<n>, <m>, <k>", False),
    ("a set in another order", "\\{<n>, <m>\\}", "\\{<m>, <n>\\}", True),
    ("a set as a tuple", "\\{<n>, <m>\\}", "(<n>, <m>)", False),
    ("± for two values", "<n>, -<n>", "\\pm <n>", True),
    ("± written out", "<k> \\pm \\sqrt{<p>}", "<k> + \\sqrt{<p>}, <k> - \\sqrt{<p>}", True),
    ("a tuple with \\left and \\right", "(<n>, <m>)", "\\left( <n>, <m> \\right)", True),
    ("a tuple, swapped", "(<n>, <m>)", "(<m>, <n>)", False),
    ("a tuple with names", "(<n>, <m>)", "x = <n>, y = <m>", True),
    ("a tuple named as one", "(<n>, <m>)", "(x, y) = (<n>, <m>)", True),
    ("a tuple without brackets", "(<n>, <m>)", "<n>, <m>", None),
    ("a tuple of fractions", "(\\frac{1}{<k>}, <n>)", "(1/<k>, <n>)", True),
    ("an interval with \\infty", "[<n>, \\infty)", "[<n>,\\infty)", True),
    ("an interval, another bracket", "[<n>, <big>)", "[<n>, <big>]", False),
    ("an interval as an inequality", "[<n>, <big>)", "<n> \\le x < <big>", True),
    ("an inequality as a ray", "x \\ge <n>", "[<n>, \\infty)", True),
    ("an inequality with ≥", "x \\ge <n>", "x ≥ <n>", True),
    ("an inequality, the other way", "x > <n>", "x < <n>", False),
    ("an inequality, read from the right", "x > <n>", "<n> < x", True),
    ("an interval behind \\in", "(<n>, <big>)", "x \\in (<n>, <big>)", True),
    ("a union in another order", "(-\\infty, <n>) \\cup (<big>, \\infty)", "(<big>, \\infty) \\cup (-\\infty, <n>)", True),
    ("a matrix with other brackets", "\\begin{pmatrix} <n> & 0 \\\\ 1 & <m> \\end{pmatrix}", "\\begin{bmatrix} <n> & 0 \\\\ 1 & <m> \\end{bmatrix}", True),
    ("a matrix, another entry", "\\begin{pmatrix} <n> & 0 \\\\ 1 & <m> \\end{pmatrix}", "\\begin{pmatrix} <n> & 0 \\\\ 1 & <n> \\end{pmatrix}", False),
    ("a matrix, transposed", "\\begin{pmatrix} <n> & 0 \\\\ 1 & <m> \\end{pmatrix}", "\\begin{pmatrix} <n> & 1 \\\\ 0 & <m> \\end{pmatrix}", False),
    ("a vector of fractions", "\\begin{pmatrix} <n> \\\\ 1/<k> \\end{pmatrix}", "\\begin{pmatrix} <n> \\\\ \\frac{1}{<k>} \\end{pmatrix}", True),
    ("a word in \\text", "\\text{<day>}", "<day>", True),
    ("a word, \\text added", "<day>", "\\text{<day>}", True),
    ("another word", "\\text{<day>}", "\\text{<otherday>}", False),
    ("a word in small letters", "\\text{<day>}", "<smallday>", True),
    ("a letter of a choice", "\\text{(C)}", "C", True),
    ("even for odd", "\\text{even}", "\\text{odd}", False),
    ("a base added", "<octal>_8", "<octal>_{8}", True),
    ("a base left out", "<octal>_8", "<octal>", None),
    ("another base", "<octal>_8", "<octal>_9", False),
    ("a complex number, turned", "<n>+<k>i", "<k>i+<n>", True),
    ("a conjugate", "<n>+<k>i", "<n>-<k>i", False),
    ("a function without brackets", "\\sin(<n>x)", "\\sin <n>x", True),
    ("logarithms, brought together", "\\ln <nk>", "\\ln <n> + \\ln <k>", True),
    ("a logarithm of a power", "2\\ln <n>", "\\ln <nn>", True),
    ("a logarithm with a base", "\\log_2 <n>", "\\frac{\\ln <n>}{\\ln 2}", True),
    ("another logarithm", "\\ln <n>", "\\ln <m>", False),
    ("a root of a root, resolved", "\\sqrt{<n>}+1", "\\sqrt{<m>+2\\sqrt{<n>}}", True),
    ("a root as a power", "\\sqrt[3]{<p>}", "<p>^{1/3}", True),
    ("a cosine as roots", "<n>\\cos\\frac{\\pi}{6}", "\\frac{<n>\\sqrt{3}}{2}", True),
    ("a sine of degrees", "\\frac{<n>}{2}", "<n>\\sin 30^\\circ", True),
    ("two fractions, added", "\\frac{<2n1>}{<n>}", "2+\\frac{1}{<n>}", True),
    ("a polynomial in factors", "x^2+<m>x+<n>", "(x+1)(x+<n>)", True),
    ("a fraction of polynomials, reduced", "x+<n>", "\\frac{(x+<n>)(x-1)}{x-1}", True),
    ("a power of e", "e^{<n>}", "\\exp(<n>)", True),
    ("a polar complex number", "-<n>", "<n>e^{i\\pi}", True),
    ("an absolute value", "<n>", "|-<n>|", True),
    ("a floor", "<n>", "\\lfloor <n>.5 \\rfloor", True),
    ("a remainder", "<n>", "<n> \\pmod{<big>}", True),
    ("several variables, in another order", "<n>ab+<k>bc", "<k>cb+<n>ba", True),
    ("a name with an index", "<n>", "a_{10} = <n>", True),
    ("a function's name in front", "<n>x+<k>", "f(x) = <n>x+<k>", True),
    ("words around an equation", "<n>", "\\text{so } x = <n>", True),
    ("the empty set by its other sign", "\\emptyset", "\\varnothing", True),
    ("infinity, another sign", "\\infty", "-\\infty", False),
    ("a ratio as a fraction", "<d>:<k>", "\\frac{<d>}{<k>}", None),
    ("a time of day", "<k>:30", "<k>:30", True),
    ("a time of day, another", "<k>:30", "<k>:15", False),
    ("a repeating decimal", "\\frac{<d>}{9}", "0.\\overline{<d>}", True),
    ("text around the number", "<n>", "\\text{the answer is } <n>", None),
    ("a full stop in the box", "<n>", "<n>.", True),
    ("dollars of mathematics in the box", "<n>", "$<n>$", True),
    ("digits of full width", "<n>", "<wide>", True),
    ("approximately", "<n>", "\\approx <n>", True),
    ("an equation that ends in the value", "<nk>", "<n> \\times <k> = <nk>", True),
    ("a boast", "<n>", "<m> \\text{ (correct)}", False),
    ("nothing in the box", "<n>", "", False),
    ("not a number", "<n>", "\\text{NaN}", False),
    ("a question mark", "<n>", "?", False),
    ("a difference of infinities", "<n>", "\\infty - \\infty", False),
]  # fmt: skip
# (form, the reply, intended); the expected answer is <n>.
LAYOUTS: list[tuple[str, str, bool | None]] = [
    ("wrong box, then the right one", "First \\boxed{<m>}. But I forgot one.\n\nIt is \\boxed{<n>}.", True),
    ("right box, then a wrong one", "First \\boxed{<n>}. But I counted twice.\n\nIt is \\boxed{<m>}.", False),
    ("wrong box, then the right one, in dollars", "First $\\boxed{<m>}$. But I forgot one.\n\nIt is $\\boxed{<n>}$.", True),
    ("right box, then a wrong one, in dollars", "First $\\boxed{<n>}$. But I counted twice.\n\nIt is $\\boxed{<m>}$.", False),
    ("the same box twice", "So \\boxed{<n>}.\n\nThe answer is \\boxed{<n>}.", True),
    ("no box, the answer is", "Adding up, the answer is <n>.", True),
    ("no box, Answer:", "We add.\n\nAnswer: <n>", True),
    ("no box, only a number", "<n>", True),
    ("no box, $n$ at the end", "So in total we have $<n>$", True),
    ("no box, bold", "So it is **<n>**.", True),
    ("no box, another number", "So the answer is <m>.", False),
    ("no answer", "I could not find a way to do this.", False),
    ("\\fbox", "So \\fbox{<n>}.", True),
    ("\\boxed with a blank", "So \\boxed {<n>}.", True),
    ("\\boxed without braces", "So \\boxed <n>.", True),
    ("\\\\boxed", "So \\\\boxed{<n>}.", True),
    ("a box that is not closed", "So $\\boxed{<n>", None),
    ("a box in a box", "So \\boxed{\\boxed{<n>}}.", True),
    ("a box in display mathematics", "So\n\\[\n\\boxed{<n>}\n\\]", True),
    ("a box over two lines", "So \\boxed{\n<n>\n}.", True),
    ("a box in a code block", "```\n\\boxed{<n>}\n```", True),
    ("a box, then other numbers", "So \\boxed{<n>}. Check: <m> - 1 = <n>, and <k> < <m>.", True),
    ("a box, then another statement", "So \\boxed{<n>}. Wait, the answer is <m>.", None),
    ("a right box, then an empty one", "So \\boxed{<n>}. In short: \\boxed{}", None),
    ("two boxes for a list", "So \\boxed{<n>} or \\boxed{<m>}.", False),
    ("a box in bold", "So **\\boxed{<n>}**.", True),
    ("a box in the question's words", "Put it into \\boxed{}: the value is <n>.", None),
]  # fmt: skip
# Replies that are to cost a grader its time or its memory; the expected answer is <n>.
HOSTILE = [
    ("a tower of powers", "\\boxed{9^{9^{9^{9}}}}"),
    ("factorials of factorials", "\\boxed{(((10!)!)!)!}"),
    ("a sum of a thousand million terms", "\\boxed{\\sum_{k=1}^{10^9} \\frac{1}{k^2+k!}}"),
    ("a binomial of millions of digits", "\\boxed{\\binom{10^{12}}{10^{11}}}"),
    ("ten thousand digits", "\\boxed{" + "7" * 10_000 + "}"),
    ("brackets a thousand deep", "\\boxed{" + "(" * 1000 + "1" + ")" * 1000 + "}"),
    ("a thousand boxes", "\\boxed{1} " * 1000),
    ("fractions a hundred deep", "\\boxed{" + "\\frac{1}{" * 100 + "2" + "}" * 100 + "}"),
    ("a thousand members", "\\boxed{" + ", ".join(map(str, range(1000))) + "}"),
    ("control characters", "\\boxed{\x00\x07\ud7ff\u202e5}"),
]
DAYS = ("Monday", "Tuesday", "Friday", "Sunday")


def _math() -> Iterator[Reply]:
    """Answers in a box, other layouts and hostile replies, turn by turn; a turn has one reply of each form."""
    for turn in itertools.count():
        draw = random.Random(f"math {turn}")
        for form, expected, said, intended in ANSWERS:
            words = _numbers(draw)
            text = f"Step by step. So the answer is $\\boxed{{{_filled(said, words)}}}$."
            yield Reply(form, _filled(expected, words), text, intended)
        for form, text, intended in LAYOUTS:
            words = _numbers(draw)
            yield Reply(form, words["n"], _filled(text, words), intended)
        if turn < 2:
            for form, text in HOSTILE:
                yield Reply(form, str(draw.randint(11, 97)), f"So {text}.", False)


def _numbers(draw: random.Random) -> dict[str, str]:
    """What the places of a form are filled with: n and m of two digits, k, d and a small, b prime to a."""
    n, k, d = (
        draw.choice([n for n in range(11, 98) if n % 7]),
        draw.randint(4, 9),
        draw.choice((1, 2, 4, 5, 7, 8)),
    )
    a, b = draw.choice(
        [(a, b) for a in range(2, 9) for b in range(3, 14) if a < b and gcd(a, b) == 1]
    )
    big, p = draw.randint(1001, 98_765), draw.choice((2, 3, 5, 7, 11, 13))
    day, other = draw.sample(DAYS, 2)
    apart = f"{big:,}"
    values: dict[str, object] = {
        "n": n, "m": n + 1, "k": k, "d": d, "a": a, "b": b, "big": big, "p": p, "2a": 2 * a, "2b": 2 * b,
        "2n": 2 * n, "nn": n * n, "nk": n * k, "nnk": n * n * k, "2n1": 2 * n + 1, "2k": 2**k, "n2": f"{n:02d}",
        "th": apart, "thbrace": apart.replace(",", "{,}"), "thbang": apart.replace(",", ",\\!"),
        "thblank": apart.replace(",", " "), "quarter": f"{n / 4:g}", "sevenths2": f"{n / 7:.2f}",
        "sevenths6": f"{n / 7:.6f}", "mixed": n * b + a, "rootp": f"{p**0.5:.3f}", "pi2": f"{n * 3.14:.2f}",
        "comb": comb(n, 2), "fact": factorial(k), "day": day, "otherday": other, "smallday": day.lower(),
        "octal": oct(big)[2:], "wide": "".join(chr(ord(c) + 0xFEE0) for c in str(n)),
    }  # fmt: skip
    return {name: str(value) for name, value in values.items()}


def _filled(text: str, words: dict[str, str]) -> str:
    return re.sub(r"<(\w+)>", lambda found: words[found[1]], text)


# --- choices --------------------------------------------------------------------------------------

# (form, the reply, intended). <L> is the right letter, <W> another of the choices, <X> none of them,
# <l> the right one in small, <said> and <wsaid> what the choices say, <F> the letter in full width.
PHRASES: list[tuple[str, str, bool | None]] = [
    ("Answer: L", "We weigh them.\n\nAnswer: <L>", True),
    ("Answer: W", "We weigh them.\n\nAnswer: <W>", False),
    ("Answer in bold", "So\n\n**Answer: <L>**", True),
    ("the letter in bold", "So\n\nAnswer: **<L>**", True),
    ("Answer: (L)", "So\n\nAnswer: (<L>)", True),
    ("Answer: [L]", "So\n\nAnswer: [<L>]", True),
    ("Answer: L. text", "So\n\nAnswer: <L>. <said>", True),
    ("Answer: L) text", "So\n\nAnswer: <L>) <said>", True),
    ("Answer: L - text", "So\n\nAnswer: <L> - <said>", True),
    ("Answer: $L$", "So\n\nAnswer: $<L>$", True),
    ("Answer: \\boxed{L}", "So\n\nAnswer: \\boxed{<L>}", True),
    ("Answer: $\\boxed{\\text{L}}$", "So\n\nAnswer: $\\boxed{\\text{<L>}}$", True),
    ("a box alone", "So it must be \\boxed{<L>}.", True),
    ("a box with \\text", "So it must be $\\boxed{\\text{<L>}}$.", True),
    ("a box with the wrong letter", "So it must be \\boxed{<W>}.", False),
    ("Answer: L, then a box", "Answer: <W>\n\nNo, that forgets one.\n\n\\boxed{<L>}", True),
    ("Answer: `L`", "So\n\nAnswer: `<L>`", True),
    ("Answer: \"L\"", "So\n\nAnswer: \"<L>\"", True),
    ("a small letter", "So\n\nAnswer: <l>", True),
    ("ANSWER in capitals", "So\n\nANSWER: <L>", True),
    ("Answer = L", "So\n\nAnswer = <L>", True),
    ("Answer is: L", "So\n\nThe answer is: <L>", True),
    ("the answer is L.", "All in all, the answer is <L>.", True),
    ("the answer is (L).", "All in all, the answer is (<L>).", True),
    ("the correct answer is L", "The correct answer is <L>, since nothing else fits.", True),
    ("the correct option is L", "So the correct option is <L>.", True),
    ("the letter alone", "<L>", True),
    ("(L) alone", "(<L>)", True),
    ("L. text alone", "<L>. <said>", True),
    ("a heading", "### Answer: <L>", True),
    ("Final Answer in bold", "**Final Answer:** <L>", True),
    ("the letter on the next line", "So.\n\nAnswer:\n<L>", True),
    ("Final answer, then a blank line", "**Final Answer**\n\n<L>", True),
    ("Answer: Option L", "So\n\nAnswer: Option <L>", True),
    ("Answer: L because", "So\n\nAnswer: <L> because the others contradict it.", True),
    ("Answer: L, not W", "So\n\nAnswer: <L>, not <W>", True),
    ("Answer: not W but L", "So\n\nAnswer: not <W> but <L>", None),
    ("Answer: L (W is wrong)", "So\n\nAnswer: <L> (<W> is wrong)", True),
    ("Answer: L or W", "So\n\nAnswer: <L> or <W>", False),
    ("Answer: L, W", "So\n\nAnswer: <L>, <W>", False),
    ("Answer: L and W", "So\n\nAnswer: <L> and <W>", False),
    ("Answer: L/W", "So\n\nAnswer: <L>/<W>", False),
    ("Answer: LW", "So\n\nAnswer: <L><W>", False),
    ("all letters", "So\n\nAnswer: A B C D", False),
    ("L/L", "So\n\nAnswer: <L>/<L>", True),
    ("first W, then L", "Answer: <W>\n\nWait, that forgets the sign.\n\nAnswer: <L>", True),
    ("first L, then W", "Answer: <L>\n\nWait, that forgets the sign.\n\nAnswer: <W>", False),
    ("L, then none", "Answer: <L>\n\nOn reflection, I am not sure.\n\nAnswer: none of them", False),
    ("a letter that is no choice", "So\n\nAnswer: <X>", False),
    ("none of the above", "So\n\nAnswer: none of the above", False),
    ("the text of the choice", "So\n\nAnswer: <said>", None),
    ("the text of another choice", "So\n\nAnswer: <wsaid>", False),
    ("prose that begins with a", "So\n\nAnswer: a matter of taste, really.", False),
    ("prose that begins with I", "So\n\nAnswer: I cannot tell.", False),
    ("prose with a capital letter in it", "So\n\nAnswer: it depends on vitamin <L>.", False),
    ("no answer", "I do not know which of these fits.", False),
    ("refuting each", "<W> is wrong. <L> is right.", None),
    ("full width", "So\n\nAnswer：<F>", True),
    ("JSON", "{\"answer\": \"<L>\"}", True),
    ("XML", "<answer><L></answer>", True),
    ("Answer - L", "So\n\nAnswer - <L>", True),
    ("Answer: \\text{L}", "So\n\nAnswer: \\text{<L>}", True),
    ("Answer: $\\mathbf{(L)}$", "So\n\nAnswer: $\\mathbf{(<L>)}$", True),
    ("Answer: L?", "So\n\nAnswer: <L>?", None),
    ("Answer: L!", "So\n\nAnswer: <L>!", True),
    ("another speaks of an answer", "Answer: <L>\n\nI hope this answer: helps you.", True),
    ("the format is repeated", "I end with \"Answer: X\" as asked.\n\nAnswer: <L>", True),
    ("the format is repeated at the end", "Answer: <L>\n\n(The form \"Answer: X\" was asked for.)", None),
    ("each choice is weighed", "Answer A: no. Answer B: no. Answer C: no. Answer D: no.\n\nAnswer: <L>", True),
    ("in German", "Die Antwort ist <L>.", None),
    ("a sentence behind the letter", "So\n\nAnswer: <L>. This follows from the first law.", True),
    ("the answer with its article", "So\n\nAnswer: the letter <L>", True),
    ("asterisks and a colon outside", "So\n\n**Answer**: <L>", True),
    ("underscores", "So\n\n__Answer: <L>__", True),
    ("ten thousand words Answer", "Answer: " * 10_000 + "<L>", None),
    ("a very long line", "Answer: <L> " + "because " * 10_000, True),
]  # fmt: skip
WORDS = "amber basalt cedar dune ember fjord glacier harbour island juniper kelp lagoon".split()


def _choices() -> Iterator[Reply]:
    """Each phrase in turn, of questions with four choices and with ten."""
    for turn in itertools.count():
        draw = random.Random(f"choice {turn}")
        for form, text, intended in PHRASES:
            letters = LETTERS[: draw.choice((4, 10))]
            said = tuple(draw.sample(WORDS, len(letters)))
            right, wrong = draw.sample(range(len(letters)), 2)
            words = {
                "L": letters[right],
                "l": letters[right].lower(),
                "F": chr(ord(letters[right]) + 0xFEE0),
                "W": letters[wrong],
                "X": "K",
                "said": said[right],
                "wsaid": said[wrong],
            }
            written = re.sub(r"<([LlFWX]|w?said)>", lambda found, w=words: w[found[1]], text)
            yield Reply(form, letters[right], written, intended, said)
