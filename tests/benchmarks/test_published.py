"""Published figures beside ours."""

import pytest
from decksmith.bench.benchmarks import published
from decksmith.core import cli

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"


def summary(bench, score, interval=(0.6, 0.8), model=None, **more):
    return {
        "benchmark": bench,
        "metric": "accuracy",
        "model": model or {"name": "tuned", "slug": LLAMA},
        "modes": {"pass@1": {"accuracy": score, "interval": list(interval)}},
        "sampling": {"temperature": 0.0, "max_tokens": 1024},
        "samples": 1,
        "num_questions": 3,
        "rows": 164,
        **more,
    }


def test_every_figure_of_the_table_is_a_share_and_cites_an_address():
    for figure in published.figures():
        assert 0 < figure["score"] < 1 and figure["source"]
        assert all(address.startswith("https://") for address in figure["source"])


def test_ours_stands_beside_the_published_one_with_how_each_was_asked():
    (found,) = published.compare([summary("humaneval", 0.7), summary("needle", 0.7)])
    assert (found["ours"], found["published"], found["verdict"]) == (0.7, 0.726, "agrees")
    lines = published.lines([found])
    assert "| humaneval | 0.700 | [0.600, 0.800] | 0.726 | agrees |" in lines
    assert (
        "here 3 of 164 questions, 1 sample, temperature 0, at most 1,024 tokens; there 0 shots"
        in lines[-1]
    )
    assert "Source: https://github.com/meta-llama/" in lines[-1]
    (found,) = published.compare([summary("humaneval", 0.4, (0.3, 0.5))])
    assert found["verdict"] == "lower"


def test_a_measure_of_several_metrics_is_their_mean_and_what_differs_is_said():
    parts = {"prompt_loose": 0.8, "instruction_strict": 0.82, "instruction_loose": 0.84}
    (found,) = published.compare(
        [
            summary("ifeval", 0.78, metric="prompt_strict", **parts)
            | {"modes": {"pass@1": {"prompt_strict": 0.78, "interval": [0.7, 0.8]}}}
        ]
    )
    assert found["ours"] == pytest.approx(0.81) and found["verdict"] is None
    (found,) = published.compare([summary("gsm8k", 0.7)])
    assert "Differs: they show 8 worked examples" in published.lines([found])[-1]


def test_a_model_is_found_by_what_it_is_said_to_be_and_nothing_is_made_up_of_others():
    served = {"engine": "vLLM", "base": LLAMA, "adapter": None}
    other = {"name": "base", "slug": "base", "served": served}
    assert len(published.compare([summary("humaneval", 0.7, model=other)])) == 1
    served["adapter"] = "0" * 64
    assert published.compare([summary("humaneval", 0.7, model=other)]) == []
    unknown = summary("humaneval", 0.7, model={"name": "base", "slug": "base"})
    assert published.compare([unknown]) == []
    assert "No figure is published" in published.lines([])[0]
    assert len(published.compare([unknown], LLAMA.lower())) == 1


def test_a_figure_without_a_source_is_refused(tmp_path, monkeypatch):
    (tmp_path / "assets").mkdir()
    (tmp_path / "assets/published.toml").write_text('[[figures]]\nbench = "gsm8k"\nscore = 0.5\n')
    monkeypatch.setattr(cli, "ROOT", tmp_path)
    with pytest.raises(cli.BadConfig, match="figure 1 .gsm8k.: it has"):
        published.figures()
