"""A panel of vision models against a real endpoint on loopback, which answers by the model's name."""

import asyncio
import json
from dataclasses import replace

import pytest
from aiohttp import web
from decksmith.core import cli, stream
from decksmith.core.protocol import Protocol
from decksmith.measure.judging import judges
from verdicts import answer, dimension, make

PUBLISHED = Protocol.load("published")
NAMES = ["judge", "gpt-5.4", "glm-5.1"]
SLUGS = ["google/gemini-3-flash-preview", "openai/gpt-5.4", "z-ai/glm-5.1"]


def protocol(rule="median", names=tuple(NAMES)):
    return replace(
        PUBLISHED, judge={**PUBLISHED.judge, "model": list(names), "combine": rule, "retries": 0}
    )


@pytest.fixture
def deck(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENROUTER_API_KEY", "test")
    return make(tmp_path, 3)


def ask(record, run, said, rule="median"):
    """Put a record to the panel, whose models answer with `said[slug]`: an object or a status. Returns `(value or the
    fault, slugs that were asked)`."""
    asked = []

    async def serve(request):
        slug = (await request.json())["model"]
        asked.append(slug)
        if isinstance(said[slug], int):
            return web.json_response({"error": {"message": "no"}}, status=said[slug])
        message = {"role": "assistant", "content": json.dumps(said[slug])}
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        usage = {"prompt_tokens": 100, "completion_tokens": 10, "cost": 0.01}
        return web.json_response({"choices": [choice], "usage": usage})

    async def go():
        app = web.Application(client_max_size=1 << 26)
        app.router.add_post("/v1/chat/completions", serve)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = site._server.sockets[0].getsockname()[1]
        chosen = judges.open_judge(protocol(rule), run, base_url=f"http://127.0.0.1:{port}/v1")
        try:
            return await chosen.work(record)
        except stream.Fault as fault:
            return fault
        finally:
            await chosen.close()
            await runner.cleanup()

    return asyncio.run(go()), asked


def three(*scores, **changes):
    """What the three say whose scores of the design these are."""
    return {
        slug: answer(design=dimension(score, 2), **changes)
        for slug, score in zip(SLUGS, scores, strict=True)
    }


def test_three_models_judge_apart_and_the_rule_joins_them(deck, tmp_path):
    value, asked = ask(deck, tmp_path, three(1, 4, 5))
    assert sorted(asked) == sorted(SLUGS)
    assert value["scores"] == {"content": 4, "design": 4, "coherence": 5}
    assert value["disagreement"] == {
        "content": 0.0,
        "design": round((3 + 4 + 1) / 3, 4),
        "coherence": 0.0,
        "checklist": 0.0,
    }
    assert value["judge"] == f"{' + '.join(SLUGS)} (median)"
    assert value["members"]["gpt-5.4"]["scores"]["design"] == 4
    assert value["why"]["design"].splitlines()[0] == "judge: It is a 1."
    assert {seen["by"] for seen in value["evidence"]["design"]} == set(NAMES)
    assert value["usage"]["cost"] == pytest.approx(0.03)
    for path in value["replies"]:
        assert (tmp_path / path).is_file()
    assert "p1/judge/glm-5.1/1.txt" in value["replies"]


@pytest.mark.parametrize(
    ("rule", "scores", "design"),
    [
        ("mean", (1, 4, 5), 3.3333),
        ("median", (1, 4, 5), 4),
        ("majority", (5, 1, 5), 5),
        ("majority", (1, 4, 5), 4),  # each once: the middle one
    ],
)
def test_the_rules(rule, scores, design):
    said = {
        name: {
            **verdict(score),
            "checklist": [],
        }
        for name, score in zip(NAMES, scores, strict=True)
    }
    assert judges.combined(rule, said)["scores"]["design"] == design


def verdict(score, yes=True):
    scores = {"content": 3, "design": score, "coherence": 3}
    return {
        "judge": "j",
        "scores": scores,
        "given": scores,
        "why": dict.fromkeys(scores, "w"),
        "evidence": dict.fromkeys(scores, []),
        "observations": [],
        "caps": [],
        "checklist": [{"id": "c1", "yes": yes, "slide": 2 if yes else None}],
        "usage": {"cost": None},
        "seen": {},
        "replies": [],
    }


def test_an_item_counts_where_more_than_half_see_it():
    two = judges.combined("mean", {"a": verdict(3), "b": verdict(3), "c": verdict(3, yes=False)})
    assert two["checklist"] == [{"id": "c1", "yes": True, "slide": 2}]
    assert two["disagreement"]["checklist"] == round(2 / 3, 4)
    half = judges.combined("mean", {"a": verdict(3), "b": verdict(3, yes=False)})
    assert half["checklist"] == [{"id": "c1", "yes": False, "slide": None}]


def test_who_has_answered_is_not_asked_again_when_another_was_down(deck, tmp_path):
    said = three(1, 4, 5) | {SLUGS[1]: 400}
    fault, asked = ask(deck, tmp_path, said)
    assert fault.error["kind"] in ("infra", "judge") and sorted(asked) == sorted(SLUGS)
    value, asked = ask(deck, tmp_path, three(1, 4, 5))
    assert asked == [SLUGS[1]] and value["scores"]["design"] == 4


def test_a_member_without_a_usable_reply_is_a_fault_of_the_judge_that_names_it(deck, tmp_path):
    value, _ = ask(deck, tmp_path, three(1, 4, 5) | {SLUGS[2]: {"score": 5}})
    assert value["error"]["kind"] == "judge" and value["error"]["message"].startswith("glm-5.1: ")


def test_a_panel_says_how_it_is_joined_and_one_model_does_not(tmp_path):
    text = (cli.ROOT / "assets/protocols/published.toml").read_text()
    path = tmp_path / "mine.toml"
    path.write_text(text.replace('model = "judge" ', 'model = ["judge", "gpt-5.4"] '))
    with pytest.raises(cli.BadConfig, match=r"mine\.toml: judge\.combine"):
        Protocol.load(path)
    path.write_text(text.replace('model = "judge" ', 'model = "judge"\ncombine = "mean" '))
    with pytest.raises(cli.BadConfig, match=r"mine\.toml: judge\.combine"):
        Protocol.load(path)
