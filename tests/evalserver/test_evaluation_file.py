"""Each trap of an evaluation file, set into the example that ships: found at its line, and nothing else with it."""

import re

import pytest
from decksmith.bench.evalserver import evaluation_file
from decksmith.core import cli

GOOD = (cli.ROOT / "assets/multi_tasks.yaml").read_text()
SET = {"DECKSMITH_EVAL_URL": "http://node7:9050", "DECKSMITH_EVAL_TOKEN": "s3cret-s3cret"}


@pytest.fixture(autouse=True)
def _environment(monkeypatch):
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    for name, value in SET.items():
        monkeypatch.setenv(name, value)


def found(text):
    return [one.line for one in evaluation_file.check(text)]


def line(text, wanted):
    """The number of the first line that has `wanted`, counted here and not by a parser."""
    return next(number for number, one in enumerate(text.splitlines(), 1) if wanted in one)


def test_the_file_that_ships_has_no_findings():
    assert evaluation_file.check(GOOD) == []


TRAPS = [  # what is wrong, where the finding stands, what is replaced, by what
    ("ignored-key", "evals: 1", "  delegate:", "  evals: 1\n  delegate:"),
    (
        "local-datasets",
        "datasets: []",
        re.search(r"  datasets:\n(    - name: held_out\n(      .*\n)+)", GOOD)[0],
        "  datasets: []\n",
    ),
    ("local-datasets", "- name: held_out", "      path: /data/held_out.jsonl\n", ""),
    (
        "eval-defaults",
        "top_k: 20",
        "  delegate:",
        "  defaults:\n    temperature: 0.1\n    top_k: 20\n  delegate:",
    ),
    ("delegate-name", "name: terminal_bench", "name: skills", "name: terminal_bench"),
    ("delegate-name", "name: Skills", "name: skills", "name: Skills"),
    ("url", "- name: skills", "      url: ${oc.env:DECKSMITH_EVAL_URL}/evaluate\n", ""),
    ("url", "url: ${oc.env:DECKSMITH_EVAL_URL}", "_URL}/evaluate", "_URL}"),
    ("url", "url: node7/evaluate", "${oc.env:DECKSMITH_EVAL_URL}/evaluate", "node7/evaluate"),
    (
        "secret",
        "url: http://me:word@n/evaluate",
        "${oc.env:DECKSMITH_EVAL_URL}/evaluate",
        "http://me:word@n/evaluate",
    ),
    ("unset", "NOT_SET", "DECKSMITH_EVAL_URL", "NOT_SET"),
    ("interpolation", "${nowhere.url}", "${oc.env:DECKSMITH_EVAL_URL}", "${nowhere.url}"),
    ("interpolation", "${env:X}", "${oc.env:DECKSMITH_EVAL_URL}", "${env:X}"),
    (
        "unknown-key",
        "retries: 3",
        "      max_retries: 20",
        "      retries: 3\n      max_retries: 20",
    ),
    ("timeout", "timeout_secs: 1.5", "timeout_secs: 3600", "timeout_secs: 1.5"),
    ("timeout", "timeout_secs: 0", "timeout_secs: 3600", "timeout_secs: 0"),
    ("retries", "max_retries: often", "max_retries: 20", "max_retries: often"),
    ("retries", "max_retries: 5", "max_retries: 20", "max_retries: 5"),
    ("retries", "- name: skills", re.search(r"      max_retries.*\n", GOOD)[0], ""),
    ("header", "X-Run-Id: 7", "X-Run-Id: ${oc.env:SLURM_JOB_ID,by-hand}", "X-Run-Id: 7"),
    ("header", "X-Run-Id: a €", "X-Run-Id: ${oc.env:SLURM_JOB_ID,by-hand}", "X-Run-Id: a €"),
    ("run", "headers:", re.search(r"        X-Run-Id.*\n", GOOD)[0], ""),
    ("token", "headers:", re.search(r"        Authorization.*\n", GOOD)[0], ""),
    ("token", "Authorization: Token", "Authorization: Bearer", "Authorization: Token"),
    (
        "secret",
        "Authorization: Bearer abc",
        "Bearer ${oc.env:DECKSMITH_EVAL_TOKEN}",
        "Bearer abcdefgh",
    ),
    ("ignored-key", "temprature: 0.6", "        temperature: 0.6", "        temprature: 0.6"),
    (
        "value",
        "n_samples_per_eval_prompt: many",
        "n_samples_per_eval_prompt: 8",
        "n_samples_per_eval_prompt: many",
    ),
    (
        "value",
        "n_samples_per_eval_prompt: 0",
        "n_samples_per_eval_prompt: 8",
        "n_samples_per_eval_prompt: 0",
    ),
    ("value", "top_p: 1.5", "top_p: 0.95", "top_p: 1.5"),
    (
        "unknown-key",
        "seed: 1",
        "        - name: aime25",
        "        - name: aime25\n          seed: 1",
    ),
    ("dataset-name", "name: aime25:8", "- name: aime25", "- name: aime25:8"),
    ("dataset-name", "n_samples_per_eval_prompt: 8", "- name: aime25\n          n_", "- n_"),
    ("unknown-benchmark", "name: aime52", "- name: aime25", "- name: aime52"),
    ("twice", "max_tokens_marker", "- name: gsm8k", "- name: aime25 # max_tokens_marker"),
    ("same-name", "        - name: gsm8k", "name: held_out", "name: gsm8k"),
]


@pytest.mark.parametrize(
    ("what", "place", "old", "new"), TRAPS, ids=[f"{rule}: {place}" for rule, place, *_ in TRAPS]
)
def test_a_trap_is_found_at_its_line_and_nothing_else_with_it(what, place, old, new):
    assert old in GOOD
    text = GOOD.replace(old, new, 1)
    assert found(text) == [line(text, place)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 1),
        ("- 1\n", 1),
        ("a: 1\n", 1),
        ("eval: 3\n", 1),
        ("eval:\n  datasets: [\n", 3),
        ("eval: 1\neval: 2\n", 2),
        ("eval: {a: !!python/object:os.system x}\n", 1),
        ("eval:\n  {[a, b]: 1}\n", 2),
        ("? {a: b}\n: c\n", 1),
        ("x" * 2_000_000, 1),
        ("[" * 5000, 1),
        ("eval: &a {b: *a}\n", 1),
        (
            "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
            + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12)),
            1,
        ),
    ],
)
def test_a_file_that_is_no_evaluation_file_is_one_finding(text, expected):
    assert found(text) == [expected]


def test_delegate_must_be_a_list_of_mappings_with_datasets():
    cut = GOOD[: GOOD.index("  delegate:")]
    assert found(cut) == [3]
    assert found(cut + "  delegate:\n    name: skills\n") == [line(GOOD, "  delegate:")]
    assert found(cut + "  delegate: [skills]\n") == [line(GOOD, "  delegate:")]
    tail = GOOD[GOOD.rindex("      datasets:") :]
    for empty in ("", "      datasets: []\n"):
        assert len(found(GOOD.replace(tail, empty))) == 1


def test_top_level_defaults_are_no_trap_where_each_delegate_sets_its_own():
    text = GOOD.replace(
        "  delegate:", "  defaults: {temperature: 0.1, max_response_len: 10}\n  delegate:"
    )
    assert found(text) == []


def test_the_delegates_own_name_of_a_benchmark_is_no_trap():
    text = GOOD.replace("- name: gsm8k", "- name: arena-hard")
    assert evaluation_file.check(text) == []
    both = text.replace("- name: aime25", "- name: arena-hard-v2")
    assert [one.message[:15] for one in evaluation_file.check(both)] == ["'arena-hard-v2'"]


def test_keys_beside_eval_are_ignored_and_a_file_without_eval_is_its_own():
    assert found(GOOD + "delegate: []\n") == [len(GOOD.splitlines()) + 1]
    flat = "\n".join(one[2:] if one.startswith("  ") else "#" for one in GOOD.splitlines())
    assert found(flat) == []


def test_the_local_datasets_may_be_a_mapping_by_name():
    text = re.sub(r"    - name: held_out\n((?:      .*\n)+)", r"    held_out:\n\1", GOOD)
    assert found(text) == []
    assert found(text.replace("    held_out:", "    gsm8k:")) == [line(GOOD, "name: gsm8k")]


def test_anchors_and_merged_keys_are_read_as_the_trainer_reads_them():
    text = GOOD.replace("      defaults:  ", "      defaults: &d").replace(
        "        - name: gsm8k\n", "        - <<: *d\n          top_p: 7\n          name: gsm8k\n"
    )
    assert "&d" in text
    assert found(text) == [line(text, "top_p: 7")]


def test_an_interpolation_of_a_wrong_value_is_judged_by_what_it_becomes(monkeypatch):
    monkeypatch.setenv("DECKSMITH_EVAL_TOKEN", "")
    monkeypatch.setenv("DECKSMITH_EVAL_URL", "http://n:1/")
    assert found(GOOD) == [line(GOOD, "url:"), line(GOOD, "Authorization")]
    monkeypatch.setenv("DECKSMITH_EVAL_TOKEN", "abcdefgh\n")
    assert line(GOOD, "Authorization") in found(GOOD)


def test_findings_say_what_to_write_and_stand_in_the_order_of_the_file():
    text = (
        GOOD.replace("max_retries: 20", "max_retries: 5")
        .replace("- name: aime25", "- name: aime5")
        .replace("/evaluate", "")
    )
    listed = evaluation_file.check(text)
    assert [one.line for one in listed] == sorted(one.line for one in listed)
    assert "did you mean aime25?" in listed[2].message
    assert listed[1].message.endswith("write max_retries: 20")


def test_a_file_that_cannot_be_read_says_so(tmp_path):
    with pytest.raises(cli.Missing, match="No such file"):
        evaluation_file.read(tmp_path / "none.yaml")
    (tmp_path / "f").write_bytes(b"\xff\xfe")
    with pytest.raises(cli.BadData, match="not UTF-8"):
        evaluation_file.read(tmp_path / "f")
