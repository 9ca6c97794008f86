"""Mathematical answers: what is the same, what only looks like it, and which answer a reply gives."""

import pytest
from decksmith.bench.benchmarks.graders import math, said

# (as the source of a benchmark writes it, the same as a model may write it, near but wrong)
ANSWERS = [
    ("42", ["42", "42.0", "042", "\\text{42}", "x = 42", "42.", "$42$", "\\(42\\)", "**42**", "42\\"], ["-42", "420", "4.2", "42x", "42!", "24"]),
    ("-7", ["−7", "-7.00", "- 7", "x=-7"], ["7", "|{-7}|", "-7i"]),
    ("13535", ["13,535", "13{,}535", "13\\,535", "13 535", "13,\\!535"], ["13,536", "13.535", "13, 53, 5"]),
    ("27,\\! 182,\\! 818,\\! 200", ["27182818200", "27,182,818,200", "27{,}182{,}818{,}200"], ["27, 182, 818, 200", "27182818,200"]),
    ("\\$24.60", ["24.60", "\\$24.6", "24.6 dollars", "$24.60", "24.60 \\text{ dollars}", "USD 24.60"], ["24.06", "2460", "24.60 cents", "24"]),
    ("\\$41,\\!236", ["41236", "\\$41,236", "41{,}236"], ["41,2360", "\\$41.236"]),
    ("\\frac{3}{56}", ["3/56", "\\dfrac{3}{56}", "\\tfrac3{56}", "\\frac {3} {56}", "\\frac{6}{112}", "P = \\frac{3}{56}"], ["\\frac{56}{3}", "0.05", "\\frac{3}{55}"]),
    ("\\frac43", ["4/3", "1\\frac13", "1 \\frac{1}{3}", "1 1/3", "1.\\overline{3}", "1.333333", "\\frac{4}{3}"], ["1.33", "43", "\\frac{43}{1}", "3/4"]),
    ("-\\frac{5}{8}", ["\\frac{-5}{8}", "-0.625", "-5/8", "\\frac{5}{-8}"], ["\\frac58", "-0.62", "-\\frac85"]),
    ("5.4 \\text{ cents}", ["5.4", "5.4 cents", "5.4\\text{ cents}", "5.40"], ["54", "5.4 \\text{ dollars}", "0.054"]),
    ("\\frac{360}7\\text{ degrees}", ["\\frac{360}{7}", "\\frac{360}{7}^\\circ", "360/7", "51\\frac{3}{7}"], ["51.4", "\\frac{360}{7}\\pi"]),
    ("60^\\circ", ["60", "60°", "60 degrees", "60^{\\circ}", "\\angle ABC = 60^\\circ", "60 \\text{ degrees}"], ["\\frac{\\pi}{3}", "6", "60 \\text{ radians}"]),
    ("18\\text{ cm}^2", ["18", "18 cm^2", "18 \\mathrm{~cm}^2", "18 \\text{ sq cm}", "18 square centimeters"], ["18 \\text{ m}^2", "18^2", "81"]),
    ("3\\text{ hours}", ["3", "3 hours", "3 \\text{ hr}", "3\\,\\mathrm{h}"], ["3 minutes", "3 \\text{ days}", "180"]),
    ("30\\%", ["30", "30 \\%", "30%", "30 percent", "0.3", "30 \\text{ percent}", "\\frac{3}{10}"], ["0.30\\%", "3", "0.03"]),
    ("47_8", ["47_{8}", "47", "47_{\\text{eight}}", "(47)_8", "47_{\\text{8}}"], ["47_9", "39", "74_8", "47_{10}"]),
    ("3021_5", ["3021_{5}", "3021"], ["3021_6", "386", "302_{15}"]),
    ("6-5i", ["-5i+6", "6 - 5i", "6 - 5 i", "z = 6-5i"], ["6+5i", "5-6i", "6-5", "-6+5i"]),
    ("2\\sqrt{13}", ["\\sqrt{52}", "2 \\sqrt{13}", "\\sqrt{4 \\cdot 13}", "2√13"], ["2\\sqrt{31}", "\\sqrt{26}", "7.21", "\\sqrt{2\\cdot 13}"]),
    ("\\frac{3\\sqrt{3}}{4}", ["\\frac{3}{4}\\sqrt{3}", "0.75\\sqrt3", "\\frac{9}{4\\sqrt{3}}", "3\\sqrt{3}/4"], ["\\frac{3\\sqrt{3}}{2}", "\\frac{\\sqrt{3}}{4}", "1.3"]),
    ("\\sqrt[3]{7}", ["7^{1/3}", "7^{\\frac{1}{3}}"], ["\\sqrt{7}", "3\\sqrt{7}"]),
    ("\\pi", ["π", "\\pi \\text{ units}", "1\\pi"], ["3.14", "\\pi^2", "2\\pi", "3.1416"]),
    ("\\frac{9\\pi}{4}", ["\\frac{9}{4}\\pi", "9\\pi/4", "2.25\\pi"], ["\\frac{9}{4}", "\\frac{4\\pi}{9}", "7.07"]),
    ("2^{10}", ["1024", "2^10", "4^5", "32^2"], ["2^{11}", "20", "2 \\cdot 10"]),
    ("10^{-3}", ["0.001", "\\frac{1}{1000}", "1e-3"], ["10^3", "-1000", "0.01"]),
    ("3.2 \\times 10^5", ["320000", "320,000", "3.2e5", "3.2 \\cdot 10^5"], ["3.2", "32000", "3.2 \\times 10^4"]),
    ("\\frac{1}{2^{99}}", ["2^{-99}", "\\left(\\frac12\\right)^{99}"], ["\\frac{1}{2^{98}}", "2^{99}", "0"]),
    ("\\frac{1}{2024!}", ["\\frac{1}{2024\\cdot 2023!}"], ["\\frac{1}{2023!}", "0"]),
    ("\\binom{10}{3}", ["120", "\\frac{10!}{3!7!}"], ["30", "\\binom{10}{4}"]),
    ("\\log_2 5", ["\\log_{2} 5", "\\frac{\\ln 5}{\\ln 2}"], ["\\log_5 2", "\\log 5"]),
    ("\\cot x", ["\\cot(x)", "\\frac{\\cos x}{\\sin x}", "\\frac{1}{\\tan x}"], ["\\tan x", "\\cot y"]),
    ("x^2+4x-3", ["-3+4x+x^2", "x^2 + 4 x - 3", "f(x) = x^2+4x-3", "x(x+4)-3", "(x+2)^2-7"], ["x^2-4x-3", "x^2+4x+3", "x^2+4y-3", "x^3+4x-3"]),
    ("(x-2)(x+5)", ["x^2+3x-10", "(x+5)(x-2)"], ["(x+2)(x-5)", "x^2-3x-10"]),
    ("p-q", ["-q+p", "p - q"], ["q-p", "p+q", "p"]),
    ("2k", ["k \\cdot 2", "2 k", "k+k"], ["2", "k", "k^2", "2m"]),
    ("3x", ["3 x", "3\\cdot x", "x \\cdot 3"], ["3 y", "3", "x^3", "3 \\text{ m}"]),
    ("2", ["2.0", "4/2", "\\sqrt{4}"], ["2k", "2m", "2 x", "2d", "2c", "2 xy", "2t^2"]),
    ("\\frac{a+b}{2}", ["\\frac{1}{2}(a+b)", "(a+b)/2", "\\frac a2+\\frac b2"], ["a+\\frac b2", "\\frac{a-b}{2}"]),
    ("3a^2b", ["3 b a^2", "3a^{2}b"], ["3ab^2", "3a^2"]),
    ("\\frac{x+1}{x-1}", ["(x+1)/(x-1)", "1+\\frac{2}{x-1}"], ["\\frac{x-1}{x+1}", "x+1/x-1"]),
    ("y = 2x + 3", ["2x+3", "y=3+2x", "y - 2x = 3", "y = 2x+3."], ["y = 2x - 3", "y = 3x + 2", "x = 2y + 3"]),
    ("5x-7y+11z+4=0", ["-5x+7y-11z-4=0", "5x-7y+11z=-4", "10x-14y+22z+8=0", "4+5x+11z-7y=0"], ["5x-7y+11z-4=0", "5x+7y+11z+4=0", "5x-7y+11z+4", "0"]),
    ("x=5", ["5", "x = 5", "x=5.0"], ["y=5", "x=-5", "x=5, y=1"]),
    ("4", ["x = 4", "2+2=4", "x+y=4", "\\boxed{4}"], ["x=3, y=4", "4 = 5", "x=4, x=5", "4 or 5", "4\\sqrt{2}", "4\\pi", "4, 4.5"]),
    ("x+z=1", ["z+x=1", "1=x+z"], ["1", "x+y=1", "x+z=2"]),
    ("[-2,7]", ["\\left[-2, 7\\right]", "-2 \\le x \\le 7", "x \\in [-2,7]", "7 \\ge x \\ge -2", "[-2; 7]", "-2 <= x <= 7"], ["(-2,7)", "[-2,7)", "-2 < x \\le 7", "-2,7", "[7,-2]"]),
    ("(3,4]", ["3 < x \\leq 4", "x \\in (3, 4]", "\\left(3, 4\\right]"], ["[3,4)", "3 \\le x < 4", "(3,4)"]),
    ("(5,\\infty)", ["x > 5", "5 < x", "(5, +\\infty)", "x\\in(5,\\infty)", "x \\gt 5"], ["[5,\\infty)", "x \\ge 5", "(-\\infty,5)", "(5,10)"]),
    ("x \\ge -1", ["[-1,\\infty)", "-1 \\leq x", "x >= -1", "x\\geqslant -1"], ["x > -1", "x \\le -1", "n \\ge 1"]),
    ("(-\\infty,2)\\cup(3,\\infty)", ["(3,\\infty) \\cup (-\\infty,2)", "x<2 \\text{ or } x>3", "x \\in (-\\infty, 2) ∪ (3, ∞)"],
     ["(-\\infty,2]\\cup[3,\\infty)", "(2,3)", "(-\\infty,2)", "x<2 \\text{ and } x>3"]),
    ("(-\\infty,4)\\cup(4,\\infty)", ["x \\neq 4", "x \\ne 4", "x != 4", "\\mathbb{R} \\setminus \\{4\\}"], ["x = 4", "x \\neq -4", "(-\\infty,\\infty)"]),
    ("(-\\infty,\\infty)", ["\\mathbb{R}", "(-\\infty, +\\infty)"], ["(0,\\infty)", "\\mathbb{Z}"]),
    ("(6,31,-1)", ["(6, 31, -1)", "\\left(6,31,-1\\right)", "(x,y,z)=(6,31,-1)", "x=6, y=31, z=-1"], ["(6,-1,31)", "6,31,-1", "(6,31)", "\\{6,31,-1\\}"]),
    ("\\left( 3, \\frac{\\pi}{2} \\right)", ["(3, \\pi/2)", "(3,\\frac{\\pi}{2})", "(r,\\theta)=(3,\\pi/2)"], ["(\\pi/2,3)", "(3,\\pi)", "(3, 90)"]),
    ("(p,q)=(3,2)", ["(3,2)", "p=3, q=2", "p = 3 \\text{ and } q = 2", "(p, q) = (3, 2)"], ["(2,3)", "p=2,q=3", "3", "3,2,1"]),
    ("a=4,b=-9", ["4, -9", "b=-9, a=4", "(4,-9)", "a = 4 \\text{ and } b = -9"], ["a=-9,b=4", "-9, 4", "a=4", "4"]),
    ("x=1,x=-6", ["1,-6", "-6, 1", "x = -6 \\text{ or } x = 1", "\\{1,-6\\}"], ["1,6", "x=1", "(1,-6,0)"]),
    ("3,5,7", ["7, 5, 3", "3, 5, and 7", "\\{3,5,7\\}", "3; 5; 7", "n=3,5,7", "3, 5 \\text{ and } 7"], ["3,5", "3,5,8", "(3,5,7)", "357", "3,5,7,9"]),
    ("1,-2", ["-2,1", "1 \\text{ and } -2", "1 or -2", "x = 1, -2"], ["1,2", "-1,2", "1", "(1,-2,1)"]),
    ("\\{-1,0,\\frac12\\}", ["\\{0, -1, 0.5\\}", "-1,0,1/2", "\\left\\{-1, 0, \\tfrac12\\right\\}"], ["\\{-1,0\\}", "(-1,0,\\frac12)", "\\{-1,0,2\\}"]),
    ("1 \\pm \\sqrt{19}", ["1+\\sqrt{19}, 1-\\sqrt{19}", "1-\\sqrt{19},1+\\sqrt{19}", "x = 1 ± \\sqrt{19}", "\\{1+\\sqrt{19},1-\\sqrt{19}\\}"], ["1+\\sqrt{19}", "-1 \\pm \\sqrt{19}", "1 \\pm \\sqrt{91}"]),
    ("\\{1\\pm\\sqrt{5},-2\\}", ["-2, 1+\\sqrt{5}, 1-\\sqrt{5}", "\\{-2,1-\\sqrt{5},1+\\sqrt{5}\\}"], ["\\{1+\\sqrt5,-2\\}", "\\{1\\pm\\sqrt{5},2\\}"]),
    ("\\pm 3", ["3, -3", "-3,3", "x=\\pm3", "\\{-3,3\\}"], ["3", "-3", "\\pm 4"]),
    ("(1,2),(3,4)", ["(3,4),(1,2)", "(3,4) \\text{ and } (1,2)", "\\{(1,2),(3,4)\\}"], ["(1,2)", "(2,1),(4,3)", "(1,2),(4,3)"]),
    ("\\begin{pmatrix} 1 & -2 \\\\ 0 & \\frac12 \\end{pmatrix}",
     ["\\begin{bmatrix}1&-2\\\\0&0.5\\end{bmatrix}", "\\left(\\begin{array}{cc}1&-2\\\\0&1/2\\end{array}\\right)", "A = \\begin{pmatrix}1 & -2\\\\0 & \\frac{1}{2}\\end{pmatrix}"],
     ["\\begin{pmatrix}1&0\\\\-2&\\frac12\\end{pmatrix}", "\\begin{pmatrix}1&-2&0&\\frac12\\end{pmatrix}", "\\begin{vmatrix}1&-2\\\\0&\\frac12\\end{vmatrix}", "\\frac12"]),
    ("\\begin{pmatrix} -1/3 \\\\ 2/3 \\end{pmatrix}", ["\\begin{pmatrix}-\\frac13\\\\ \\frac23\\end{pmatrix}", "\\frac13\\begin{pmatrix}-1\\\\2\\end{pmatrix}"],
     ["\\begin{pmatrix}\\frac13\\\\ \\frac23\\end{pmatrix}", "\\begin{pmatrix} -1/3 & 2/3 \\end{pmatrix}"]),
    ("\\text{Evelyn}", ["Evelyn", "evelyn", "\\textbf{Evelyn}", "\\mathrm{Evelyn}", "Evelyn."], ["Carla", "Evelyn and Carla", "Eve"]),
    ("\\text{even}", ["even", "Even", "\\text{Even}"], ["odd", "neither", "seven"]),
    ("\\text{(C)}", ["C", "(C)", "\\text{C}", "\\textbf{(C)}", "C. 12"], ["D", "A, C", "B and C", "c", "(C) and (D)", "CD"]),
    ("E", ["\\mathrm{E}", "(E)", "\\text{E}"], ["\\mathrm{E}*2", "A", "e^2"]),
    ("\\text{Monday}", ["Monday", "monday"], ["Tuesday", "Mon day off"]),
    ("\\text{March 5}", ["March 5", "5 March", "March 5th", "Mar 5"], ["March 6", "May 5", "5"]),
    ("12:30", ["12:30"], ["1:30", "12:03", "12"]),
    ("3:4", ["3 : 4", "V_1:V_2 = 3:4", "6:8"], ["4:3", "3,4", "34"]),
    ("V_{1}:V_{2}=11:21", ["11:21", "11 : 21"], ["21:11", "11"]),
    ("|AB|=1", ["1", "|AB| = 1"], ["2", "|AB| = -1"]),
    ("f(x)=\\frac{1}{x}", ["\\frac1x", "1/x", "f(x) = x^{-1}"], ["x", "f(x)=-\\frac1x", "\\frac{1}{y}"]),
    ("f'(x)", ["f'(x)"], ["f(x)", "f''(x)"]),
    ("\\infty", ["∞", "+\\infty"], ["-\\infty", "0", "1"]),
    ("\\emptyset", ["\\varnothing", "∅"], ["0", "\\{0\\}"]),
    ("18 million", ["18000000", "18,000,000", "18 \\text{ million}"], ["18", "18 billion"]),
    ("033", ["33", "033", "33.0"], ["330", "3"]),
    ("0.5", ["1/2", ".5", "\\frac12", "0.50", "50\\%"], ["5", "0.05", "50"]),
    ("3\\frac12", ["3.5", "7/2", "3 1/2", "\\frac72"], ["3/2", "31/2", "3 \\cdot \\frac12"]),
    ("x\\frac{1}{2}", ["\\frac{x}{2}", "0.5x"], ["x+\\frac12", "\\frac{1}{2x}"]),
    ("0.\\overline{27}", ["\\frac{3}{11}", "3/11"], ["0.27", "\\frac{27}{100}"]),
    ("\\frac{\\sqrt{3}}{3}", ["\\frac{\\sqrt{3}}{3} \\approx 0.577", "\\frac{1}{\\sqrt3}", "0.577350"], ["0.577", "0.577351", "\\sqrt{3}"]),
    ("7.78", ["\\frac{70}{9} \\approx 7.78", "7.78 \\text{ dollars}", "x \\approx 7.78"], ["7.8", "\\frac{70}{9}", "7.77"]),
    ("\\ln 180", ["\\ln 36 + \\ln 5", "2\\ln 6 + \\ln 5"], ["\\ln 36 + \\ln 6", "\\ln 181"]),
    ("1+\\sqrt{2}", ["\\sqrt{3+2\\sqrt{2}}", "\\approx 2.414214"], ["\\sqrt{3+2\\sqrt{3}}", "\\approx 2.41"]),
    ("41", ["\\approx 41", "≈ 41"], ["\\approx 42"]),
    ("12", ["12 apples", "12 \\text{ students}", "12 ways", "12 \\text{ (units)}", "12 \\text{ square units}"], ["12 million", "12 dozen", "12ab", "12e"]),
    ("10 \\le n < 20", ["[10,20)", "n \\in [10, 20)", "20 > n \\ge 10"], ["10 < n < 20", "10 \\le n \\le 20"]),
    ("0<f(x)<1", ["(0,1)", "0 < f(x) < 1"], ["[0,1]", "0 < f(x) < 2"]),
    ("1 \\le |z| \\le 2", ["z \\in [-2,-1] \\cup [1,2]"], ["[1,2]"]),
    ("x+y \\le 4", ["y + x \\leq 4", "4 \\ge x+y"], ["x+y < 4", "x+y \\ge 4", "x-y \\le 4"]),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    "expected, right, wrong",
    [pytest.param(*x, marks=pytest.mark.long if n % 2 else []) for n, x in enumerate(ANSWERS)],
    ids=[expected for expected, _, _ in ANSWERS],
)
def test_an_answer_may_be_written_in_another_way_but_not_be_another_one(expected, right, wrong):
    assert [
        each for each in [expected, math.plain(expected), *right] if not math.same(expected, each)
    ] == []
    assert [each for each in wrong if math.same(expected, each)] == []


@pytest.mark.parametrize("text, answer", [
    ("\\boxed{1} and \\boxed{2}", "1, 2"), ("$\\boxed{1}$, $\\boxed{2}$ and $\\boxed{3}$.", "1, 2, 3"), ("\\boxed{1}\\boxed{2}", "1, 2"),
    ("\\boxed{5} apples and \\boxed{7} pears", "5, 7"), ("$x = \\boxed{1} \\text{ or } y = \\boxed{2}$", "1, 2"), ("\\fbox{12}", "12"),
    ("\\boxed 9", "9"), ("\\\\boxed{8}", "8"), ("first \\boxed{1}, no: \\boxed{2}", "2"), ("\\boxed{1}. So \\boxed{2}", "2"),
    ("\\boxed{3} ... it is \\boxed{3}", "3"), ("\\boxed{1} is too small, and so is what follows from it if we count it again, so \\boxed{2}", "2"),
    ("\\boxed{\\text{a \\boxed{4}}}", "4"), ("Final Answer: The largest n is 34.", "34"), ("**Answer:** \\(12\\)", "\\(12\\)")])  # fmt: skip
def test_several_boxes_that_belong_together_are_one_answer(text, answer):
    assert said.final(text) == answer


def test_an_answer_that_names_two_values_for_one_is_wrong():
    assert not math.same("4", said.final("So it is \\boxed{3} or \\boxed{4}."))


@pytest.mark.parametrize(
    "text, count",
    [
        ("$1,000$", "1000"),
        ("007", "7"),
        ("\\text{odd}", "odd"),
        ("x \\in [1,2]", "[1,2]"),
        ("12\\text{ cm}", "12"),
        ("2m", "2m"),
    ],
)
def test_answers_are_counted_in_one_form(text, count):
    assert math.plain(text) == count
