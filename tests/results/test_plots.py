"""Plots: one width, type of one size, nothing cut, and why a pair is inconclusive."""

import sys
from pathlib import Path

import pytest
from decksmith.measure.results import claims, plots
from decksmith.measure.results.runs import load
from matplotlib.backends.backend_agg import FigureCanvasAgg

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "web"))
import synthetic  # noqa: E402

pytestmark = pytest.mark.slow
LONG = f"A model with a name that nobody would say aloud, {'W' * 60}, instruct, 8-bit"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Three runs; one has a long name, and of one so many decks are lost that it is inconclusive."""
    folder = tmp_path_factory.mktemp("runs")
    found = load(
        [
            synthetic.run(folder / n, n, s, 8, slides_too=False)
            for n, s in (("a", 0.5), ("b", 0.9), ("c", 1))
        ]
    )
    found[1]["label"] = LONG
    return found


@pytest.fixture(scope="module")
def compared(runs):
    return claims.compare(runs)


def texts(figure):
    """The texts that a plot writes, with where they stand."""
    shown = [*figure.texts, *(text for axes in figure.axes for text in axes.texts)]
    drawn = figure.canvas.get_renderer()
    return [(text, text.get_window_extent(drawn)) for text in shown]


def test_the_plot_is_as_wide_as_a_phone_with_three_sizes_of_type_and_nothing_cut(runs, compared):
    with plots.style() as tone:
        figure = plots._plot_scores(tone, runs=runs, compared=compared)
        FigureCanvasAgg(figure).draw()
        assert figure.get_figwidth() == plots.WIDTH
        width, height = figure.canvas.get_width_height()
        for text, box in texts(figure):
            assert text.get_size() in (plots.TITLE, plots.TEXT, plots.NOTE), text
            inside = box.x0 >= 0 and box.x1 <= width and box.y0 >= 0 and box.y1 <= height
            assert inside, f"{text.get_text()!r} is cut"


def test_what_is_not_told_apart_is_said_on_the_plot(runs, compared):
    with plots.style() as tone:
        figure = plots._plot_scores(tone, runs=runs, compared=compared)
        FigureCanvasAgg(figure).draw()
        assert "may be" in " ".join(text.get_text() for text, _ in texts(figure))


def test_a_pair_that_says_something_has_no_reason_not_to(compared):
    for pair in compared["pairs"]:
        assert pair["verdict"] == "inconclusive" or not claims.undecided(pair)


def test_marks_have_a_bar_each_and_failures_as_1_a_hollow_one(tmp_path):
    runs = load(
        [
            synthetic.run(tmp_path / n, n, s, 6, slides_too=False, reads=True)
            for n, s in (("a", 0.5), ("b", 1))
        ]
    )
    with plots.style() as tone:
        figure = plots._plot_scores(tone, runs=runs, compared=claims.compare(runs))
        FigureCanvasAgg(figure).draw()
        said = [text.get_text() for text, _ in texts(figure)]
        assert {"Overall, of decks that render", "Overall, failures as 1", "Design"} <= {*said}


def test_lines_are_as_wide_as_they_may_be_and_lose_nothing():
    with plots.style():
        lines = plots.fitted(LONG, 2, plots.TEXT)
        assert all(plots._inches(line, plots.TEXT, False) <= 2 for line in lines)
        assert "".join(lines).replace(" ", "") == LONG.replace(" ", "")
        assert plots.fitted("", 4, 9) == [""]
