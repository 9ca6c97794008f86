import numpy
import pytest
from decksmith.results import robustness

WEIGHTS = {"viscraft": 0.40, "design": 0.25, "content": 0.20, "coherence": 0.15}


def run(label, dimensions, craft=None, craft_v5=None, failed=(), asks=None, weights=WEIGHTS):
    """A run whose decks score `dimensions`: one dict for all prompts, or one for each."""
    rows = dimensions if isinstance(dimensions, list) else [dimensions] * 12
    records = []
    for place, row in enumerate(rows):
        fault = (
            {"stage": "render", "kind": "model", "class": "yaml", "message": "bad"}
            if place in failed
            else None
        )
        row = dict.fromkeys(row, 1) if fault else row
        records.append(
            {
                "id": f"p{place}",
                "asks": (asks or {}).get(place, {"domain": "biology", "theme": "seriph"}),
                "features": {
                    "craft": row.get("viscraft") if craft is None else craft,
                    "craft_v5": row.get("viscraft") if craft_v5 is None else craft_v5,
                },
                "score": {"overall": 1.0, "dimensions": row, "rendered": not fault, "fault": fault},
            }
        )
    return {
        "label": label,
        "records": records,
        "protocol": {"score": {"weights": weights} if weights else {}},
    }


def scores(viscraft, design, content, coherence):
    return {"viscraft": viscraft, "design": design, "content": content, "coherence": coherence}


def test_a_model_that_is_better_in_everything_leads_under_every_change():
    card = robustness.card(
        [run("A", scores(4, 4, 4, 4)), run("B", scores(2, 2, 2, 2))], {"A": [1, 1], "B": [2, 2]}
    )
    assert card["ranks"]["A"] == {kind: [1, 1] for kind in card["ranks"]["A"]}
    assert card["swaps"] == [
        {"a": "A", "b": "B", "move": None, "of": None, "to": None, "where": []}
    ]
    assert (
        card["tried"]["weights"] == 1771
        and card["tried"]["dimension"] == 4
        and card["prompts"] == 12
    )


def test_without_a_test_that_separates_no_rank_is_narrower_than_all():
    card = robustness.card(
        [run("A", scores(4, 4, 4, 4)), run("B", scores(2, 2, 2, 2)), run("C", scores(3, 3, 3, 3))]
    )
    assert {label: ranks["any"] for label, ranks in card["ranks"].items()} == {
        label: [1, 3] for label in "ABC"
    }


def test_equal_models_share_their_ranks_and_the_weights():
    card = robustness.card(
        [run("A", scores(3, 3, 3, 3)), run("B", scores(3, 3, 3, 3)), run("C", scores(1, 1, 1, 1))]
    )
    assert card["ranks"]["A"]["weights"] == card["ranks"]["B"]["weights"] == [1, 2] and card[
        "ranks"
    ]["C"]["weights"] == [3, 3]
    assert card["swaps"][0]["move"] == 0


def test_what_only_the_feature_scan_carries_falls_without_it():
    # Overall: A 0.4 * 5 + 0.6 * 3 = 3.8, B 0.4 * 2 + 0.6 * 4 = 3.2. By the judge alone B leads; A leads from 1/4 VisCraft up.
    card = robustness.card(
        [run("A", scores(5, 3, 3, 3), craft=2.0), run("B", scores(2, 4, 4, 4))],
        {"A": [1, 1], "B": [2, 2]},
    )
    assert card["ranks"]["A"] == {
        "test": [1, 1],
        "weights": [1, 2],
        "dimension": [1, 2],
        "judge": [1, 2],
        "craft": [1, 2],
        "accounting": [1, 1],
        "any": [1, 2],
    }
    (pair,) = card["swaps"]
    assert pair["where"] == ["without VisCraft", "judge only", "craft"]
    assert (pair["move"], pair["of"]) == (pytest.approx(0.15), "viscraft")


def test_a_lead_that_hangs_on_one_domain_or_feature_is_shown():
    asks = {
        place: {
            "domain": "marketing" if place < 4 else "biology",
            "features": ["table"] if place in (0, 1, 2, 3, 4) else [],
            "language": "en",
        }
        for place in range(12)
    }
    best = [scores(*[5 if place < 4 else 2.9] * 4) for place in range(12)]
    card = robustness.card([run("A", best, asks=asks), run("B", scores(3, 3, 3, 3), asks=asks)])
    assert card["swaps"][0]["where"] == ["without domain marketing", "without feature table"]
    assert card["ranks"]["A"]["domain"] == card["ranks"]["A"]["prompts"] == [1, 2] and card[
        "ranks"
    ]["A"]["dimension"] == [1, 1]
    assert (
        card["tried"]["domain"] == card["tried"]["prompts"] == 1
    )  # without biology or English too few are left


def test_a_model_that_fails_often_leads_where_only_its_rendered_decks_count():
    card = robustness.card(
        [run("A", scores(4, 4, 4, 4), failed={0, 1, 2, 3, 4}), run("B", scores(3, 3, 3, 3))]
    )
    assert card["ranks"]["A"]["accounting"] == [1, 2] and card["swaps"][0]["where"] == [
        "renderable only (7 prompts)"
    ]


def test_the_least_move_of_weight_is_the_least_that_a_search_finds():
    random = numpy.random.default_rng(5)
    for _ in range(30):
        weights, gap = random.dirichlet([1] * 4), random.normal(0.2, 1, 4)
        moved = robustness.swap(weights, gap)
        grid = robustness.simplex(4)
        other = grid[(grid @ gap) * (weights @ gap) <= 0]
        assert (moved is None) == (min(gap) > 0 or max(gap) < 0)
        if moved is not None:
            assert (
                moved.sum() == pytest.approx(1)
                and (moved >= -1e-12).all()
                and abs(moved @ gap) < 1e-9
            )
            found = numpy.abs(other - weights).sum(axis=1).min() / 2
            assert (
                numpy.abs(moved - weights).sum() / 2 <= found + 1e-9
                and found < numpy.abs(moved - weights).sum() / 2 + 0.15
            )


def test_the_grid_holds_every_weight_once_and_grows_no_further_than_four_dimensions_need():
    assert robustness.simplex(2).tolist() == [[i / 20, (20 - i) / 20] for i in range(21)]
    assert robustness.simplex(1).tolist() == [[1.0]]
    grid = robustness.simplex(7)
    assert (
        numpy.allclose(grid.sum(axis=1), 1) and len(numpy.unique(grid, axis=0)) == len(grid) <= 4000
    )


def test_scores_of_another_tool_are_weighed_alike_over_their_own_dimensions():
    card = robustness.card(
        [
            run("A", {"logic": 5, "style": 2}, weights=None),
            run("B", {"logic": 3, "style": 3}, weights=None),
        ]
    )
    assert card["ranks"]["A"]["weights"] == [1, 2]
    assert card["tried"]["judge"] == card["tried"]["craft"] == 0


def test_a_single_measure_can_be_weighed_in_one_way_only_and_has_no_card():
    assert (
        robustness.card(
            [run("A", {"overall": 4}, weights=None), run("B", {"overall": 3}, weights=None)]
        )
        is None
    )


def test_too_little_for_a_card_gives_none():
    assert robustness.card([run("A", scores(4, 4, 4, 4))]) is None
    few = [scores(4, 4, 4, 4)] * 5
    assert robustness.card([run("A", few), run("B", few)]) is None


def test_the_tables_give_ranges_of_ranks():
    card = robustness.card(
        [run("A", scores(5, 3, 3, 3), craft=2.0), run("B", scores(2, 4, 4, 4))],
        {"A": [1, 1], "B": [2, 2]},
    )
    (_, header, rows, _), (_, _, swaps, _) = robustness.tables(card)
    assert header == [
        "Model",
        "Rank, any change",
        "Paired tests",
        "Any weights",
        "A dimension left out",
        "Judge only",
        "craft or craft-v5",
        "Renderable only",
    ]
    assert rows == [
        ["A", "1 to 2", "1", "1 to 2", "1 to 2", "1 to 2", "1 to 2", "1"],
        ["B", "1 to 2", "2", "1 to 2", "1 to 2", "1 to 2", "1 to 2", "2"],
    ]
    assert swaps == [
        ["A / B", "0.15, most from VisCraft to Design", "without VisCraft; judge only; craft"]
    ]
