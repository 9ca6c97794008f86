"""A run of GRPO before a GPU is asked for: what rl-check finds in a recipe, its prompts and a planted sample."""

import json
import random
from pathlib import Path

import pytest
from decksmith.core import cli
from decksmith.train.training import check_report, recipes, rl_check

THINKER = Path(__file__).parents[1] / "fixtures" / "sft" / "thinker"
PACE = 60


def prompt(k):
    dice = random.Random(k)
    asked = " ".join(f"{dice.choice('bdfgkl')}{dice.randrange(10**6)}" for _ in range(9))
    return {
        "id": f"t{k}",
        "messages": [{"role": "user", "content": asked}],
        "asks": {"slides": 8},
        "checklist": [],
    }


def answers(k, rewards):
    """Deck records of one prompt with these rewards, None where there is no measurement."""
    return [
        {
            "id": f"t{k}~{n}",
            "gen": {"sample": {"of": f"t{k}", "k": n}},
            "reward": {"reward": reward, "masked": reward is None},
        }
        for n, reward in enumerate(rewards)
    ]


def write(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def run(tmp_path):
    """A function of overrides: a run of GRPO without a fault, as sft-config leaves it."""
    data = tmp_path / "data"
    write(data / "train.jsonl", [prompt(k) for k in range(40)])
    write(data / "test.jsonl", [prompt(k) for k in range(90, 96)])

    def make(*overrides):
        run, name = tmp_path / "run", "nemotron-nano-grpo"
        frozen = recipes.freeze(name, data, run / "data")
        overrides = ("env.judge.host=node7", *overrides)
        config = recipes.recipe(name, data=frozen, run=run, base=str(THINKER), overrides=overrides)
        (run / "recipe.yaml").write_text(recipes.dump(config))
        return run

    return make


@pytest.fixture
def planted(tmp_path):
    """A planted sample in which the answers to a prompt differ."""
    rows = [one for k in range(24) for one in answers(k, (0.2, 0.5, 0.8, 0.4))]
    return write(tmp_path / "planted.jsonl", rows)


def checked(run, planted, held=(), pace=PACE):
    report = rl_check.check(run / "recipe.yaml", THINKER, list(held), None, planted, pace)
    return report, {one["rule"]: one for one in reversed(report["failures"])}


def test_a_run_without_a_fault_is_told_in_figures(run, planted):
    report, found = checked(run(), planted)
    assert report["ok"], list(check_report.lines(report))
    assert report["rollouts"] == 128 and report["steps"] == 2
    assert report["rows"] == {"train": 40, "validation": 6}
    assert report["planted"] == {
        "prompts": 24,
        "answers": 96,
        "known": 24,
        "masked": 0,
        "flat": 0,
        "mean": 0.475,
        "spread": 0.2165,
        "best_of": 0.8,
    }
    assert report["pace"] == {"decks_a_minute": 60, "reward_seconds": 128.0}
    # 2 steps of 128 rewards, 100 verdicts a minute at 3 USD an hour.
    assert report["judge"] == {"verdicts_a_minute": 100, "hours": 0.0, "usd": 0.0}
    said = dict(check_report.table(report))
    assert said["judge"].startswith("verdicts a minute 100, hours 0.0, usd 0.0")
    assert said["rewards"] == "128.0 s a step at 60 decks a minute"
    assert said["steps"] == "2 of 128 rollouts"
    trainer, _, lost = said["trainer"].partition("; ")
    assert trainer == "nemo-rl v0.7.0, NeMo Gym 0.4.0, Python 3.13.13, vLLM 0.20.0"
    assert lost == "a deck without a reward gets the mean of the others, which moves nothing"


@pytest.mark.parametrize(
    ("version", "message"),
    [("v0.6.0", "its Gym is a pre-release"), ("v0.9.0", "assets/pairings.toml has nemo-rl v0.6.0")],
)
def test_a_trainer_whose_gym_our_door_does_not_know_is_refused(
    run, planted, monkeypatch, version, message
):
    monkeypatch.setattr(rl_check.preflight, "keys_version", lambda _: version)
    report, found = checked(run(), planted)
    assert f"nemo-rl {version} cannot ask for our rewards: " in found["pairing"]["message"]
    assert message in found["pairing"]["message"] and not report["ok"]


def test_the_recipe_tells_the_resources_server_how_many_answers_a_prompt_has(run):
    config = recipes.load(run("grpo.num_generations_per_prompt=16") / "recipe.yaml")
    told = recipes.get(config, "env.nemo_gym.decksmith.resources_servers.decksmith")
    assert told == {"samples": 16, "faults": 0.25}


def test_samples_that_score_alike_and_those_without_a_measurement_are_refused(run, tmp_path):
    rows = []
    for k in range(24):
        rows += answers(k, (0.2, 0.5, None, 0.4) if k < 6 else (0.5, 0.5, 0.505, 0.5))
    report, found = checked(run(), write(tmp_path / "flat.jsonl", rows))
    assert set(found) == {"flat", "masked", "planted"}
    assert (
        "of 75% of the prompts all samples score alike, more than 50%" in found["flat"]["message"]
    )
    assert found["masked"]["message"] == "6% of the answers have no reward, more than 5%"
    assert "18 prompts have 4 rewards or more" in found["planted"]["message"]
    assert report["planted"]["flat"] == 0.75


def test_a_sample_of_other_prompts_and_one_without_rewards_say_nothing(run, tmp_path, planted):
    other = [one for k in range(200, 224) for one in answers(k, (0.1, 0.9, 0.4, 0.2))]
    _, found = checked(run(), write(tmp_path / "other.jsonl", other))
    assert found["planted"]["message"] == "none of its prompts is one of the training set"
    write(planted, [{"id": "t1~0", "render": {}}])
    with pytest.raises(cli.BadData, match=r'planted.jsonl:1: t1~0: no "reward" in this record'):
        checked(run(), planted)


def test_a_prompt_of_an_evaluation_or_of_the_validation_set_is_named_with_its_line(run, planted):
    held = [{"id": "p001", "messages": prompt(3)["messages"]}]
    made = run()
    validation = (made / "data/test.jsonl").read_text()
    with open(made / "data/train.jsonl", "a") as file:
        file.write(validation.splitlines()[2] + "\n")
    report, _ = checked(made, planted, held)
    leaks = [one for one in report["failures"] if one["rule"] == "held-out"]
    assert [(one["id"], one["line"], one["message"]) for one in leaks] == [
        ("t3", 4, "near p001 of an evaluation"),
        ("t92", 41, "near t92 of the validation set"),
    ]


def test_a_prompt_that_comes_twice_is_named(run, planted):
    made = run()
    with open(made / "data/train.jsonl", "a") as file:
        file.write((made / "data/train.jsonl").read_text().splitlines()[0] + "\n")
    report, _ = checked(made, planted)
    assert "duplicate" in report["counts"]


@pytest.mark.parametrize(
    ("override", "rule", "message"),
    [
        (
            "grpo.num_generations_per_prompt=1",
            "rollouts",
            "one sample has nothing to be compared with",
        ),
        ("grpo.num_prompts_per_step=10", "rollouts", "10 x 8 rollouts are no multiple of"),
        (
            "policy.train_global_batch_size=8",
            "batch",
            "16 GPUs with a micro batch of 1 take a multiple",
        ),
        (
            "grpo.max_val_samples=256",
            "gym",
            "grpo.max_val_samples is 256, with NeMo Gym it is None",
        ),
        (
            "grpo.max_val_sample=2",
            "unknown-key",
            "is no key of NeMo-RL v0.7.0's GRPO; did you mean",
        ),
        (
            "policy.generation.max_new_tokens=8190",
            "longest",
            "and an answer of 8190 are more than 8192",
        ),
        ("policy.generation.vllm_cfg.tensor_parallel_size=3", "memory", "does not divide 8 GPUs"),
        ("checkpointing.save_period=3", "periods", "a save without its loss"),
        ("env.judge.host=null", "judge", "the reward read asks a judge's server: SET="),
        ("env.judge.a_minute=0", "judge", "the reward read asks a judge's server: SET="),
        ("env.rules=raed", "judge", "there is no reward 'raed' (did you mean read?); there are"),
    ],
)
def test_what_is_wrong_with_a_recipe_is_one_sentence_with_its_line(
    run, planted, override, rule, message
):
    report, found = checked(run(override), planted)
    assert message in found[rule]["message"]
    assert found[rule]["line"] and found[rule]["remedy"] == check_report.RULES[rule]


def test_rewards_that_would_hold_up_every_step_are_refused_with_how_many_servers_would_do(
    run, planted
):
    report, found = checked(run(), planted, pace=6)
    assert (
        "128 rewards at 6 a minute take 1280 s of every step, more than 300; 4.3 times"
        in (found["pace"]["message"])
    )


def test_a_slow_judge_holds_up_a_step_as_slow_rewards_do_and_layout_asks_none(run, planted):
    report, found = checked(run("env.judge.a_minute=20", "grpo.max_num_steps=300"), planted)
    assert "128 rewards at 20 a minute take 384 s of every step" in found["pace"]["message"]
    assert report["judge"] == {"verdicts_a_minute": 20, "hours": 32.0, "usd": 96.0}
    report, _ = checked(run("env.rules=layout", "env.judge.host=null"), planted)
    assert report["ok"] and "judge" not in report and report["pace"]["decks_a_minute"] == 60


def test_a_row_that_no_reward_can_be_given_for_is_refused(run, planted):
    made = run()
    rows = [json.loads(line) for line in (made / "data/train.jsonl").read_text().splitlines()]
    rows[1]["label"] = {"id": "t1"}
    del rows[2]["agent_ref"]
    write(made / "data/train.jsonl", rows)
    report, _ = checked(made, planted)
    said = [(one["line"], one["message"]) for one in report["failures"] if one["rule"] == "row"]
    assert said == [
        (2, "no asks and no checklist in its label: there is nothing to measure a deck by"),
        (3, "no agent_ref says which agent asks"),
    ]


def test_a_recipe_of_another_algorithm_is_sent_to_its_own_check(tmp_path, planted):
    (tmp_path / "recipe.yaml").write_text("sft: {max_num_steps: 1}\n")
    with pytest.raises(cli.BadConfig, match="is of SFT; sft-check judges it"):
        rl_check.check(tmp_path / "recipe.yaml", None, [], None, planted, PACE)
