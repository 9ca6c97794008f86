"""Seeds: the spine is ours and repeatable; Data Designer itself fills it, against an endpoint that misbehaves."""

import contextlib
import hashlib
import http.server
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from types import SimpleNamespace

import pytest
import waits
from decksmith.core import cli, stream
from decksmith.models import client as chat_client
from decksmith.models import registry
from decksmith.train.corpus import drafts, rules, seeds

TABLE = """
slides = [6, 14]
outline = 0.35
audiences = ["students", "engineers"]
[languages]
en = { name = "English", weight = 9 }
de = { name = "German", weight = 1 }
[themes.default]
vibe = ["clear", "brisk"]
fit = ["a workshop"]
tone = ["curious", "plain"]
[themes.seriph]
weight = 2
vibe = ["bookish"]
fit = ["a lecture"]
tone = ["sober"]
[kinds]
count = { 1 = 1, 2 = 2 }
[kinds.software]
domains = ["databases"]
features = { code = 2, table = 1 }
[kinds.general]
domains = ["history", "crafts"]
features = { image = 1, quote = 1, notes = 1 }
"""


@pytest.fixture
def table(tmp_path):
    (tmp_path / "seeds.toml").write_text(TABLE)
    return seeds.table(tmp_path / "seeds.toml")


# --- the spine --------------------------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_bytes_on_every_machine_and_more_rows_touch_none_before_them(
    table,
):
    rows = b"\n".join(stream.dumps(row) for row in seeds.spine(table, 7, 50))
    assert (
        hashlib.sha256(rows).hexdigest()
        == "0c0144b31557da05742f3d8b15260a707b848bf038ff749580aa0584581d8953"
    )
    assert seeds.spine(table, 7, 400)[:50] == seeds.spine(table, 7, 50)
    assert seeds.spine(table, 8, 50) != seeds.spine(table, 7, 50)


def test_the_spine_keeps_to_the_table_and_to_its_weights():
    found = seeds.table()
    rows = [row["seed"] for row in seeds.spine(found, 3, 3000)]
    for row in rows:
        assert all(
            row[part] in found.themes[row["theme"]][part] for part in ("vibe", "fit", "tone")
        )
        assert row["features"] and set(row["features"]) <= set(seeds.allowed(found, row))
        assert row["features"] == [name for name in drafts.FEATURES if name in row["features"]]
        assert not list(rules.seed_faults(row))
    assert {row["slides"] for row in rows} == set(range(6, 15))
    assert 0.32 < sum(row["wants_outline"] for row in rows) / 3000 < 0.38
    assert 0.80 < sum(row["language"] == "en" for row in rows) / 3000 < 0.88
    assert len({row["domain"] for row in rows}) >= 35 and {row["theme"] for row in rows} == set(
        drafts.SEED_THEMES
    )
    assert {name for row in rows for name in row["features"]} == set(drafts.FEATURES)


# --- what the model writes --------------------------------------------------------------------------------------------

SEED = {"language": "en", "slides": 3, "wants_outline": True}
GOOD = {
    "topic": "Why the harbour clock of Brannoc is always nine minutes late",
    "audience_phrase": "the town's retired pilots",
    "style": "a riddle with a mechanism at its end",
    "feature_hints": ["image"],
    "outline": ["The riddle", "The gear", "The answer"],
}


@pytest.mark.parametrize(
    "change, said",
    [
        ({}, None),
        ({"topic": "Horological deliberations"}, "topic has fewer than 4 words"),
        ({"style": GOOD["topic"]}, "three different things"),
        ({"feature_hints": ["code"]}, "'code', which is not on the list"),
        ({"outline": ["The riddle", "The gear"]}, "outline has 2 headings, not 3"),
        ({"outline": ["The riddle", "the riddle", "The answer"]}, "a heading twice"),
        ({"topic": "Why the clock of {harbour} is always late"}, "the text has '{'"),
        (
            {
                "topic": "Warum die Uhr am Hafen von Brannoc immer neun Minuten nach der Zeit ist",
                "style": "ein Rätsel und die Lösung mit dem Werk",
                "audience_phrase": "die Lotsen der Stadt",
                "outline": ["Das Rätsel", "Der Fehler", "Die Lösung"],
            },
            "does not read as en",
        ),
        (
            {"topic": "why the Harbour clock of Brannoc is, always, nine minutes late!"},
            "the topic is taken already",
        ),
    ],
)
def test_what_the_model_wrote_is_refused_with_a_reason_for_its_next_attempt(change, said):
    taken = (
        ["The harbour clock of Brannoc is always nine minutes late: why"]
        if said and "taken" in said
        else []
    )
    found = seeds.faults(SEED, GOOD | change, ["image", "quote"], taken)
    assert not found if said is None else [reason for reason in found if said in reason], found


def test_the_schema_binds_the_outline_to_the_number_of_slides():
    import jsonschema

    jsonschema.validate(GOOD, seeds.schema(["image"], 3))
    jsonschema.validate(
        {key: value for key, value in GOOD.items() if key != "outline"}, seeds.schema(["image"], 0)
    )
    for hints, slides in (["image"], 4), (["quote"], 3), (["image"], 0):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(GOOD, seeds.schema(hints, slides))


# --- Data Designer ----------------------------------------------------------------------------------------------------


def good(ident, prompt):
    """An answer fit for any row: words that depend on its id, as many headings as were asked for."""
    letters = random.Random(ident)
    one, two, three, four, five = (
        "".join(letters.choices("bdfgklmnprstvz", k=3) + letters.choices("aeiou", k=3))
        for _ in range(5)
    )
    german = "in German" in prompt
    answer = {
        "topic": f"Warum die {one} und das {two} nicht mit {three} {four} {five} gehen"
        if german
        else f"How {one} and {two} met the {three} of {four} {five}",
        "audience_phrase": f"die Leute von {one}" if german else f"the keepers of {one}",
        "style": f"eine Geschichte von {two}, mit der Rechnung"
        if german
        else f"the story of {two}, with the sums",
        "feature_hints": [re.search(r"best: ([\w-]+)", prompt)[1]],
    }
    if wanted := re.search(r"titles of the (\d+) slides", prompt):
        answer["outline"] = [f"{one} {k}" for k in range(int(wanted[1]))]
    return answer


class Endpoint:
    """An endpoint whose answer to the k-th chat of a row is `plan[row][k]` (an object, a text, or a status), else a good one."""

    def __init__(self, plan=(), latency=0.0):
        self.plan, self.latency, self.chats, self.bodies = dict(plan), latency, Counter(), []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                status, answer = outer.answer(body)
                data = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                with contextlib.suppress(BrokenPipeError):  # the asker was killed
                    self.wfile.write(data)

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/v1"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def answer(self, body):
        self.bodies.append(body)
        prompt = body["messages"][1]["content"]
        ident = re.match(r"Talk (s\d+)\. ", prompt)[1]
        k, self.chats[ident] = self.chats[ident], self.chats[ident] + 1
        time.sleep(self.latency)
        planned = self.plan.get(ident, ())
        planned = (
            planned[min(k, len(planned) - 1)]
            if planned and (k < len(planned) or planned[-1] == "garbage")
            else None
        )
        if isinstance(planned, int):
            return planned, {"error": {"message": f"planned {planned}"}}
        if planned is None or callable(planned):
            planned = (planned or (lambda answer: answer))(good(ident, prompt))
        text = (
            planned
            if isinstance(planned, str)
            else f"Here it is:\n```json\n{json.dumps(planned)}\n```"
        )
        return 200, {
            "choices": [
                {
                    "index": 0,
                    "finish_reason": "stop",
                    "message": {"role": "assistant", "content": text},
                }
            ],
            "usage": {"prompt_tokens": 10, "completion_tokens": 5, "cost": 0.01},
        }


@pytest.fixture
def endpoint():
    started = []

    def start(*args, **options):
        started.append(Endpoint(*args, **options))
        return started[-1]

    yield start
    for each in started:
        each.server.shutdown()
        each.server.server_close()


def sample(run, rows, url, table, rounds=4, retries=2, **options):
    client = chat_client.Client(
        registry.Model("stub", url, "stub", **options), jobs=4, retries=retries
    )
    with seeds.Sampler(rows, client, run, found=table, seed=7) as sampler:
        for _ in range(rounds):
            sampler.round()
    return sampler


def without_by(rows):
    return [{"id": row["id"], "seed": row["seed"]} for row in rows]


@pytest.mark.long(
    "tests/bin/seed-sample.bats::a row that never becomes good is named with its reasons; the others are there, and the exit is 0"
)
@pytest.mark.slow
def test_rows_that_fail_are_asked_again_by_id_until_they_are_good_or_the_rounds_are_over(
    tmp_path, table, endpoint
):
    rows = seeds.spine(table, 7, 16)
    outlined, other = (
        next(row["id"] for row in rows[8:] if row["seed"]["wants_outline"] is wanted)
        for wanted in (True, False)
    )
    stub = endpoint(
        {
            "s00001": [500, 503],
            "s00002": ["I would rather not."],
            "s00003": [lambda answer: answer | {"feature_hints": ["karaoke"]}],
            "s00004": [lambda answer: answer | {"topic": good("s00003", "best: x")["topic"]}],
            "s00005": ["garbage"],
            "s00006": [{"topic": 3}, '{"topic": "torn'],
            outlined: [lambda answer: answer | {"outline": answer["outline"][:-1]}],
            other: [json.dumps],
        }
    )
    sampler = sample(tmp_path / "run", rows, stub.url, table)
    assert sorted(sampler.accepted) == [row["id"] for row in rows if row["id"] != "s00005"]
    assert (
        sampler.reasons == {"s00005": ["there was no JSON that keeps to the schema"]}
        and not sampler.trouble
    )
    for row in rows:
        if row["id"] in sampler.accepted:
            seed = sampler.accepted[row["id"]]["seed"]
            assert {key: seed[key] for key in row["seed"]} == row["seed"]
            assert set(seed["feature_hints"]) <= set(seeds.allowed(table, seed))
            assert len(seed.get("outline", [])) == (seed["slides"] if seed["wants_outline"] else 0)
    asked = stub.chats
    assert (
        asked["s00001"] == 3
        and asked["s00002"] == asked["s00003"] == asked[outlined] == 2
        and asked["s00005"] == 8
    )
    assert asked[other] == 1 and asked["s00007"] == 1
    again = [
        body
        for body in stub.bodies
        if body["messages"][1]["content"].startswith(f"Talk {outlined}.")
    ][-1]
    slides = next(row["seed"]["slides"] for row in rows if row["id"] == outlined)
    assert (
        f"refused:\n- outline has {slides - 1} headings, not {slides}"
        in again["messages"][1]["content"]
    )
    assert all(isinstance(message["content"], str) for message in again["messages"])
    assert sampler.accepted["s00002"]["by"]["usage"]["cost"] == pytest.approx(0.02)
    assert [row for _, row in stream.records(tmp_path / "run" / "seeds.jsonl")] == list(
        sampler.accepted.values()
    )


@pytest.mark.slow
def test_running_again_asks_nothing_more_rows_ask_for_those_and_a_lost_product_is_made_from_the_journal(
    tmp_path, table, endpoint
):
    stub = endpoint({"s00002": ["no"]})
    rows = seeds.spine(table, 7, 5)
    first = sample(tmp_path, rows[:3], stub.url, table, rounds=2)
    assert (first.asked, first.kept) == (4, 0)
    again = sample(tmp_path, rows[:3], stub.url, table, rounds=2)
    assert (again.asked, again.kept, again.designer) == (0, 3, None)
    more = sample(tmp_path, rows, stub.url, table, rounds=2)
    assert (more.asked, more.kept) == (2, 3)
    assert list(more.accepted.values())[:3] == list(first.accepted.values())
    (tmp_path / "seeds.jsonl").unlink()
    made = sample(tmp_path, rows, stub.url, table, rounds=2)
    assert made.asked == 0 and without_by(made.accepted.values()) == without_by(
        more.accepted.values()
    )
    assert sum(stub.chats.values()) == 6


@pytest.mark.slow
def test_an_endpoint_that_refuses_is_trouble_of_the_rows_and_is_not_asked_on(
    tmp_path, table, endpoint
):
    stub = endpoint({"s00001": [400], "s00002": [401]})
    sampler = sample(tmp_path, seeds.spine(table, 7, 2), stub.url, table)
    assert (
        sampler.trouble["s00001"]["retriable"] is False
        and "the key is refused" in sampler.trouble["s00002"]["message"]
    )
    assert not sampler.accepted and not sampler.reasons and sum(stub.chats.values()) == 2


@pytest.mark.slow
def test_the_budget_ends_the_asking_and_keeps_what_was_paid(tmp_path, table, endpoint):
    stub = endpoint()
    client = chat_client.Client(
        registry.Model("stub", stub.url, "stub", reports_cost=True), jobs=1, budget=0.025
    )
    with seeds.Sampler(seeds.spine(table, 7, 6), client, tmp_path, found=table, seed=7) as sampler:
        sampler.round()
    assert len(sampler.accepted) == 2 and {
        error["class"] for error in sampler.trouble.values()
    } == {"budget"}


def test_the_gateway_serves_nobody_but_its_own_data_designer(tmp_path, table, endpoint):
    import requests

    stub = endpoint()
    with seeds.Sampler(
        seeds.spine(table, 7, 1),
        chat_client.Client(registry.Model("stub", stub.url, "stub")),
        tmp_path,
        found=table,
    ) as sampler:
        reply = requests.post(
            f"{sampler.gateway.url}/chat/completions", json={"messages": []}, timeout=waits.HANG
        )
    assert reply.status_code == 401 and not stub.bodies


def test_without_data_designer_the_command_that_installs_it_is_named(tmp_path, table, monkeypatch):
    monkeypatch.setattr(seeds.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(cli.Missing, match=r"run: make \.venv/\.synth"):
        seeds.Sampler(
            [], SimpleNamespace(model=registry.Model("m", "u", "m")), tmp_path, found=table
        )


@pytest.mark.slow
def test_kill_9_loses_no_reply_and_pays_for_none_twice(tmp_path, endpoint):
    stub, found = endpoint(latency=0.15), seeds.table()
    seed = next(
        k
        for k in range(1000)
        if {row["seed"]["language"] for row in seeds.spine(found, k, 12)} <= {"en", "de"}
    )
    arguments = [
        sys.executable,
        cli.ROOT / "bin/seed-sample",
        "--n",
        "12",
        "--seed",
        str(seed),
        "--base-url",
        stub.url,
        "--slug",
        "stub",
        "--jobs",
        "2",
        "--run",
        tmp_path,
    ]
    environment = dict(os.environ, PYTHONPATH=str(cli.ROOT / "lib"))
    first = subprocess.Popen(
        arguments, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    while sum(stub.chats.values()) < 6:
        assert first.poll() is None
        time.sleep(0.01)
    first.send_signal(signal.SIGKILL)
    first.wait()
    done = sum(1 for _ in stream.records(tmp_path / "journal/seed.jsonl"))
    assert 4 <= done <= 6
    second = subprocess.run(
        arguments, env=environment, capture_output=True, text=True, timeout=waits.HANG
    )
    assert second.returncode == 0, second.stderr
    assert [json.loads(line)["id"] for line in second.stdout.splitlines()] == [
        f"s{i:05d}" for i in range(1, 13)
    ]
    assert 12 <= sum(stub.chats.values()) <= 14  # the two in flight at the kill were asked again
    assert f"12 of 12 seeds, 0 of them from before; {12 - done} requests" in second.stderr
