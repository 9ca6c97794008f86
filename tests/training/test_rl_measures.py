"""The measures of a checkpoint of GRPO, on planted decks."""

from decksmith.train.training import rl_measures


def deck(ident, reward, text, *found):
    """A deck of two slides, with what the checks find on the first one."""
    return {
        "id": f"{ident}~0",
        "gen": {"text": text, "usage": {"completion_tokens": 40}, "sample": {"of": ident, "k": 0}},
        "reward": {"reward": reward, "masked": reward is None},
        "render": {"slides": ["1", "2"]},
        "judge": {"findings": [{"slide": 1, "check": check} for check in found]},
        "score": {"checks": 0.5},
    }


def test_the_measures_of_a_checkpoint_are_means_over_prompts():
    same = "one two three four five"
    decks = [
        deck("a", 0.2, same, "overflow"),
        deck("a", 0.4, same, "echo", "twice"),
        deck("b", 0.9, "six seven eight nine"),
        deck("b", None, "ten eleven twelve thirteen"),
    ]
    found = rl_measures.measures(decks, "layout")
    assert found["reward"]["layout"] == {"mean": 0.6, "std_err": 0.3, "num_entries": 2}
    assert found["checks"]["share"]["mean"] == 0.5 and found["length"]["tokens"]["mean"] == 40
    assert found["adversarial"]["share"]["mean"] == 0.25
    assert found["diversity"]["distinct"]["mean"] == 0.75  # of a half, of b all
