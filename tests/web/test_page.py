"""The report in the pinned Chromium, from disk: tests/web/drive.mjs does the looking, this file makes the runs."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import waits
from decksmith.core import cli
from decksmith.measure.results import report, report_data
from decksmith.measure.results.runs import load

sys.path.insert(0, str(Path(__file__).parent))
import synthetic  # noqa: E402

pytestmark = [pytest.mark.browser, pytest.mark.slow]

TESTS = Path(os.environ.get("PLAYWRIGHT") or cli.ROOT / "tests")
NODE = cli.ROOT / ".venv" / "bin" / "node"


def drive(*words):
    for needed in (
        TESTS / "node_modules" / "playwright-core",
        cli.ROOT / "assets" / "renderer" / "node_modules",
    ):
        assert needed.exists(), f"{needed} is missing: make setup"
    return subprocess.run(
        [NODE, Path(__file__).with_name("drive.mjs"), *words],
        capture_output=True,
        text=True,
        timeout=waits.HANG,
    )


def made(folder, prompts, single=False, **how):
    runs = [
        synthetic.run(folder / name, name, skill, prompts, **how)
        for name, skill in (("smol", 0.45), ("gpt-5.4", 0.9))
    ]
    page, _ = report.page(folder / "report", load(runs), single=single)
    return page


@pytest.mark.long(
    "tests/results/test_report.py::test_one_file_holds_every_picture_and_plot_and_asks_for_nothing_else"
)
def test_a_page_that_is_one_file_works_as_well_and_has_nothing_beside_it(tmp_path):
    page = made(tmp_path, 12, single=True, reads=True, slides_too="plain")
    assert [path.name for path in page.parent.iterdir()] == ["report.html"]
    done = drive("check", page)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["trouble"] == []


def test_a_page_of_many_decks_works_from_disk_shows_hostile_text_literally_and_asks_the_network_for_nothing(
    tmp_path, capsys
):
    decks = 600 if os.environ.get("DECKSMITH_STRESS") else 40
    page = made(tmp_path, decks // 2, slides_too="plain")
    done = drive("check", page)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert (found["decks"], found["trouble"]) == (decks, [])
    assert found["literal"] > 0
    with capsys.disabled():
        print(
            f"\n{decks} decks: the page answers after {found['ready_ms']} ms; frames while scrolling: {found['frames']}"
        )


@pytest.mark.long(
    "test_a_page_of_many_decks_works_from_disk_shows_hostile_text_literally_and_asks_the_network_for_nothing"
)
def test_a_page_whose_decks_stand_in_files_beside_it_reads_those_that_are_looked_at(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(report_data, "AT_ONCE", 1)
    monkeypatch.setattr(report_data, "LISTED", 10)
    done = drive("files", made(tmp_path, 12, slides_too="plain"))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.long(
    "tests/results/test_report.py::test_the_page_of_a_run_that_goes_on_says_how_far_it_is_compares_nothing_and_is_no_look"
)
def test_the_page_of_a_run_that_goes_on_loads_itself_again_and_disturbs_nobody(tmp_path):
    runs = [
        synthetic.run(tmp_path / name, name, skill, 6, slides_too="plain")
        for name, skill in (("smol", 0.6), ("gpt-5.4", 0.9))
    ]
    far = {"model": "gpt-5.4", "done": 6, "of": 12}
    page, _ = report.page(tmp_path / "report", load(runs), live=far)
    done = drive("live", page)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.long(
    "test_a_page_of_many_decks_works_from_disk_shows_hostile_text_literally_and_asks_the_network_for_nothing"
)
def test_the_picture_for_the_readme_is_made_from_a_report(tmp_path):
    from PIL import Image

    page = made(tmp_path, 3)
    done = drive("screenshot", page, tmp_path / "readme.png")
    assert done.returncode == 0, done.stderr
    with Image.open(tmp_path / "readme.png") as picture:
        assert picture.size == (2160, 1860)
        assert len(picture.convert("RGB").resize((60, 52)).getcolors(60 * 52)) > 50, (
            "the picture is not blank"
        )
