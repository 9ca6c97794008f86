"""Which run costs what."""

from decksmith.measure.results import claims, cost_table


def run(label, score, tokens, usd=0.0, condition=None):
    def record(ident):
        usage = {"prompt_tokens": 0, "completion_tokens": tokens, "cost": usd}
        gen = {"usage": usage, "by": {"latency": 3.0}}
        return {"id": ident, "gen": gen, "score": {"overall": score}}

    return {
        "label": label,
        "condition": condition,
        "records": [record(f"p{n}") for n in range(8)],
    }


def test_without_a_price_tokens_are_the_cost():
    under = {"name": "best-of-4"}
    runs = [run("A", 2.0, 100), run("A + best-of-4", 3.0, 410, condition=under)]
    found = cost_table.table(runs)
    assert found["unit"] == "tokens"
    assert found["runs"]["A"] == {"tokens": 100, "seconds": 3.0, "usd": 0.0}
    said = claims.at_what_cost("A", "A + best-of-4", found)
    assert said == "; A + best-of-4 costs 4.1 times as much (tokens in and out)"
    assert cost_table.table(runs[:1]) is None  # nobody asked under a condition


def test_with_a_price_usd_is_the_cost_and_equal_costs_are_said():
    runs = [run("A", 2.0, 100, 0.5), run("B", 3.0, 300, 0.5, condition={"name": "x"})]
    found = cost_table.table(runs)
    assert found["unit"] == "usd"
    said = claims.at_what_cost("A", "B", found)
    assert said == "; a deck of both costs the same (USD)"
