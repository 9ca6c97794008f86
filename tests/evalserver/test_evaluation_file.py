"""Each trap of an evaluation file, set into the example that ships: it is found, and nothing else with it."""

import re

import pytest
from decksmith.bench.evalserver import evaluation_file
from decksmith.core import cli

GOOD = (cli.ROOT / "assets/multi_tasks.yaml").read_text()
URL = "${oc.env:DECKSMITH_EVAL_URL}/evaluate"
LOCAL = re.search(r"  datasets:\n(    - name: held_out\n(      .*\n)+)", GOOD)[0]


@pytest.fixture(autouse=True)
def _environment(monkeypatch):
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.setenv("DECKSMITH_EVAL_URL", "http://node7:9050")
    monkeypatch.setenv("DECKSMITH_EVAL_TOKEN", "s3cret-s3cret")


def test_the_file_that_ships_has_no_findings():
    assert evaluation_file.check(GOOD) == []


TRAPS = [  # what is said, what is replaced, by what
    ("unknown key 'evals'", "  delegate:", "  evals: 1\n  delegate:"),
    ("without one it refuses to start", LOCAL, "  datasets: []\n"),
    (
        "top_k is ignored for delegates",
        "  delegate:",
        "  defaults:\n    temperature: 0.1\n    top_k: 20\n  delegate:",
    ),
    ("others stop the training", "name: skills", "name: terminal_bench"),
    ("others stop the training", "name: skills", "name: Skills"),
    ("is no http://HOST:PORT/evaluate", f"      url: {URL}\n", ""),
    ("is no http://HOST:PORT/evaluate", "_URL}/evaluate", "_URL}"),
    ("is no http://HOST:PORT/evaluate", URL, "node7/evaluate"),
    ("'NOT_SET' not found", "DECKSMITH_EVAL_URL", "NOT_SET"),
    ("nowhere.url", "${oc.env:DECKSMITH_EVAL_URL}", "${nowhere.url}"),
    ("unknown key 'retries'", "      max_retries", "      retries: 3\n      max_retries"),
    ("a whole number of seconds", "timeout_secs: 3600", "timeout_secs: 1.5"),
    ("at least 10 attempts", "max_retries: 20", "max_retries: often"),
    ("at least 10 attempts", "max_retries: 20", "max_retries: 5"),
    ("at least 10 attempts", re.search(r"      max_retries.*\n", GOOD)[0], ""),
    ("a name of this training in quotes", "${oc.env:SLURM_JOB_ID,by-hand}", "7"),
    ("a name of this training", re.search(r"        X-Run-Id.*\n", GOOD)[0], ""),
    ("Bearer", re.search(r"        Authorization.*\n", GOOD)[0], ""),
    ("it has no token", "Authorization: Bearer", "Authorization: Token"),
    ("unknown key 'temprature'", "        temperature: 0.6", "        temprature: 0.6"),
    ("whole number from 1", "eval_prompt: 8", "eval_prompt: many"),
    ("whole number from 1", "eval_prompt: 8", "eval_prompt: 0"),
    ("top_p", "top_p: 0.95", "top_p: 1.5"),
    ("aime25:8", "- name: aime25", "- name: aime25:8"),
    ("no benchmark ''", "- name: aime25\n          n_", "- n_"),
    ("did you mean aime25?", "- name: aime25", "- name: aime52"),
    ("is asked for twice", "- name: gsm8k", "- name: aime25"),
    ("a local dataset is called 'gsm8k' too", "name: held_out", "name: gsm8k"),
]


@pytest.mark.parametrize(
    ("said", "old", "new"), TRAPS, ids=[f"{said}: {new}" for said, _, new in TRAPS]
)
def test_a_trap_is_found_and_nothing_else_with_it(said, old, new):
    assert old in GOOD
    (finding,) = evaluation_file.check(GOOD.replace(old, new, 1))
    assert said in finding


@pytest.mark.parametrize(
    "text",
    [
        "",
        "- 1\n",
        "a: 1\n",
        "eval: 3\n",
        "eval:\n  datasets: [\n",
        "eval: 1\neval: 2\n",
        "eval:\n  {[a, b]: 1}\n",
    ],
)
def test_a_file_that_is_no_evaluation_file_is_one_finding(text):
    assert len(evaluation_file.check(text)) == 1


def test_delegate_must_be_a_list_of_mappings_with_datasets():
    cut = GOOD[: GOOD.index("  delegate:")]
    for text in (cut, cut + "  delegate:\n    name: skills\n", cut + "  delegate: [skills]\n"):
        assert len(evaluation_file.check(text)) == 1


def test_top_level_defaults_are_no_trap_where_each_delegate_sets_its_own():
    own = "  defaults: {temperature: 0.1, max_response_len: 10}\n  delegate:"
    assert evaluation_file.check(GOOD.replace("  delegate:", own)) == []


def test_the_local_datasets_may_be_a_mapping_by_name():
    text = re.sub(r"    - name: held_out\n((?:      .*\n)+)", r"    held_out:\n\1", GOOD)
    assert evaluation_file.check(text) == []
    assert len(evaluation_file.check(text.replace("    held_out:", "    gsm8k:"))) == 1
