"""What make refuses before it makes anything (make/given.py), each kind of variable."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def given(monkeypatch):
    monkeypatch.chdir(ROOT)
    spec = importlib.util.spec_from_file_location("given", ROOT / "make/given.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("LIMIT=0 LIMIT=-3 LIMIT=x LIMIT=1.5 JOBS=0 N=x ROWS=²", "LIMIT=1 LIMIT=30 JOBS=16 LIMIT="),
        ("SEED=-1 SEED=x", "SEED=0 SEED=7"),
        ("PORT=x PORT=-1 PORT=65536", "PORT=0 PORT=8420 PORT="),
        ("SHARD=2 SHARD=0/4 SHARD=5/4 SHARD=x/4 SHARD=1/", "SHARD=1/1 SHARD=2/4 SHARD="),
        ("BUDGET=0 BUDGET=-1 BUDGET=five BUDGET=nan BUDGET=inf", "BUDGET=5 BUDGET=0.50"),
        ("EFFECT=0 EFFECT=x", "EFFECT=0.05 EFFECT=1"),
        ("MARGIN=0 MARGIN=1 SHARE=2", "MARGIN=0.02 SHARE=.1"),
        ("REQUEST=a'b REQUEST=$x", "REQUEST=brief REQUEST=3 REQUEST=Your,request?"),
        ("DRY=0 ONCE=no PUSH=yes", "DRY=1 DRY= PUBLIC=1"),
        (
            "RECIPE=smol TEMPLATE=data/none.md",
            "RECIPE=smol-lora TEMPLATE=data/templates/company.md",
        ),
        ("AUTHOR=llm:none ENGINE=x IMAGES=x", "AUTHOR=llm:smol ENGINE=local IMAGES=off"),
        ("BENCH=none BENCH= PROMPTS= TRAINER=", "BENCH=gym-mmlu BENCH=guard RECIPE= VOTE="),
        ("Limit=3 MODLE=x R2D2=x", "RUNS=x BOOTSTRAP=x VERIFIERS=x YES=1 KILLS=1 HF_HUB_OFFLINE=1"),
    ],
)
def test_what_is_given(given, capsys, wrong, right):
    for word in wrong.split():
        said = given.main([word]), capsys.readouterr().out
        assert said[0] == 78 and word.partition("=")[0] in said[1], word
    assert (given.main(right.split()), capsys.readouterr().out) == (0, "")


def test_every_variable_with_a_fixed_default_may_keep_it(given):
    chosen = given.defaults()
    assert {"MODEL", "LIMIT", "PORT", "TORCH_INDEX", "ROWS"} <= set(chosen)
    fixed = {name: text for name, text in chosen.items() if "$" not in text}
    assert {name: given.refused(name, text, chosen) for name, text in fixed.items() if text} == {
        name: None for name, text in fixed.items() if text
    }


def test_the_rules_are_of_variables_that_there_are(given):
    names = {*given.RULES, *given.NAMES}
    assert names <= set(given.defaults()), names - set(given.defaults())


def test_a_model_that_was_asked_here_can_be_read(given, tmp_path, monkeypatch):
    (tmp_path / "results/runs/elsewhere+few-shot/offline").mkdir(parents=True)
    for name in ("assets", "make"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    assert given.refused("MODEL", "elsewhere smol", given.defaults()) is None
    assert "There is no model elsewere" in given.refused("MODEL", "elsewere", given.defaults())


def test_a_file_of_powerpoint_is_answered_with_what_learns_a_template(given, capsys, tmp_path):
    (tmp_path / "corp.pptx").write_bytes(b"PK")
    assert given.main([f"TEMPLATE={tmp_path}/corp.pptx"]) == 78
    said = capsys.readouterr().out
    assert f"bin/template-learn {tmp_path}/corp.pptx > data/templates/corp.md" in said
    assert given.main(["TEMPLATE=none.pptx"]) == 78
    assert "There is no template none.pptx" in capsys.readouterr().out
