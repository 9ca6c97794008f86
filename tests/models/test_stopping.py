"""Replies that are stopped: where the rule holds, that no good deck is met by it, and what a stopped stream leaves and costs."""

import asyncio
import dataclasses
import json
import os
import random
import signal
import subprocess
import sys
import urllib.request

import pytest
from decksmith.core import cli, stream
from decksmith.core.protocol import Protocol
from decksmith.models import asking, client, registry, replies, stopping
from hypothesis import given, settings
from hypothesis import strategies as st

RULE = Protocol.load("offline").sampling["stop_early"]
HEAD = "---\ntheme: default\n---\n\n# Rivers\n\n"
LOOP = "The river carries sand down to the sea. "
PROSE = "Here is what I think of rivers, and of much else that I will not say twice. "


def watched(pieces, rule=RULE):
    watch = stopping.Watch(rule)
    for piece in pieces:
        watch.hear("text", piece)
    return watch.stopped


def cut(text, rule=RULE):
    """(why, what is kept) of a text, or None."""
    stopped = watched([text], rule)
    return stopped and (stopped["why"], text[: stopped["kept"]])


def chunks(text, seed):
    """A text in pieces of random lengths."""
    dice, at = random.Random(seed), 0
    while at < len(text):
        size = dice.choice([1, 2, 3, 4, 7, 30, 400, 5000])
        yield text[at : at + size]
        at += size


words = st.text(alphabet="ab \n-|0é字\ud83d", min_size=1, max_size=30)
# Text, a part that is repeated, and more text.
looping = st.builds(
    lambda head, once, times, tail: head + once * times + tail,
    st.lists(words, max_size=60).map("".join),
    st.lists(words, min_size=1, max_size=12).map("".join),
    st.integers(0, 60),
    st.lists(words, max_size=60).map("".join),
)
small = {"repeats": 3, "repeated_characters": 100, "no_slide_tokens": 150}


@given(looping, st.integers(), st.sampled_from([RULE, small]))
@settings(max_examples=60)
def test_a_text_is_stopped_at_the_same_place_in_whatever_pieces_it_comes(text, seed, rule):
    whole = watched([text], rule)
    assert whole == watched(chunks(text, seed), rule) == watched(text, rule)
    if whole:  # what comes later changes nothing, and a moment earlier there was nothing
        assert whole == watched([text[: whole["read"]]], rule) == watched([text + "x" * 99], rule)
        assert watched([text[: whole["read"] - 1]], rule) is None


def repeats(text, rule):
    """Whether a text ends with repetitions, by trying each period."""
    for period in range(1, len(text) // rule["repeats"] + 1):
        begin = len(text) - period
        while begin and text[begin - 1] == text[begin - 1 + period]:
            begin -= 1
        run = text[begin:]
        said = sum(map(str.isalnum, run))
        weight = said + (len(run) - said) / stopping.OTHER
        if len(run) >= rule["repeats"] * period and weight >= rule["repeated_characters"]:
            return True
    return False


@given(looping)
@settings(max_examples=40)
def test_it_is_the_first_look_at_which_any_period_repeats(text):
    rule = {**small, "no_slide_tokens": 0}
    looks = range(stopping.EVERY, len(text) + 1, stopping.EVERY)
    first = next((look for look in looks if repeats(text[:look], rule)), None)
    stopped = watched([text], rule)
    assert (stopped and stopped["read"]) == first


SLIDE = "---\nlayout: fact\n---\n\n# {} locks\n\n" + "Each lock lifts a boat by four metres. " * 2
LOOPS = {
    "a sentence": (HEAD + LOOP * 99, HEAD + LOOP),
    "a line": (HEAD + "- Sand travels\n" * 99, HEAD + "- Sand travels"),
    "a slide": (HEAD + SLIDE.format(9) * 20, HEAD + SLIDE.format(9)[:3]),
    "slides, each twice": (
        HEAD + (SLIDE.format(8) * 2 + SLIDE.format(9) * 2) * 9,
        HEAD + SLIDE.format(8) * 2 + SLIDE.format(9) * 2 + "---",
    ),
    "blank lines": (HEAD + "\n" * 9000, None),
    "dashes": (HEAD + "Up\n" + "-" * 9000, None),
    "Chinese": (HEAD + "江河把泥沙带到海里。" * 99, HEAD + "江河把泥沙带到海里。"),
}


@pytest.mark.parametrize("name", LOOPS)
def test_what_repeats_is_stopped_and_stands_once_to_the_end_of_its_line(name):
    text, kept = LOOPS[name]
    why, found = cut(text)
    assert why == "repeats" and len(found) < 700
    assert kept is None or found.rstrip().startswith(kept.rstrip())
    assert len(found) <= len(text) and text.startswith(found)


def test_without_a_slide_a_reply_is_stopped_and_a_heading_or_a_rule_is_one():
    prose = "".join(f"{n}. {PROSE}" for n in range(40))
    assert cut(prose) == ("no slide", prose[:1200])
    for begun in ("---\ntheme: default\n---\n", "# Rivers\n", "```md\n---\n", "<h1>Rivers</h1>\n"):
        assert cut(prose[:1000] + "\n" + begun + prose) is None
    assert cut(prose, {**RULE, "no_slide_tokens": 0}) is None
    assert cut(LOOP * 99, {**RULE, "repeats": 0, "no_slide_tokens": 0}) is None


def test_of_an_edit_what_has_no_line_of_the_deck_is_stopped_in_whatever_form():
    rule = {**RULE, "no_slide_tokens": 0, "no_line_tokens": 400}
    asked = "Shorter, please.\n\nThe deck:\n\n# Rivers\n\n- Sand travels to the sea\n"
    prose = "".join(f"{n}. {PROSE}\n" for n in range(40))

    def stopped(text, asked=asked):
        watch = stopping.Watch(rule, asked=asked)
        watch.hear("text", text)
        return watch.stopped and watch.stopped["why"]

    assert stopped(HEAD + prose) == "no line"  # a heading alone is no edit
    for line in (
        "* Sand travels to the sea",
        "-- Sand travels to the sea",
        " Sand travels to the sea",
    ):
        assert stopped(f"{prose[:400]}\n{line}\n{prose}") is None
    assert stopped(prose, "# Ebb") is None  # a deck whose lines are all short tells nothing


def rows(n):
    return "".join(f"| {year} | 0.0 | 0.0 | yes |\n" for year in range(1990, 1990 + n))


ART = "+" + "-" * 70 + "+\n" + ("|" + " " * 70 + "|\n") * 18 + "+" + "-" * 70 + "+\n"
GOOD = {
    "a table of like rows": HEAD + "| Year | Po | Nile | Dams |\n|---|---|---|---|\n" + rows(60),
    "a matrix of zeros": HEAD + "```py\n" + ("[" + "0, " * 16 + "],\n") * 16 + "```\n",
    "code with the same line": HEAD + "```c\n" + "    step();\n" * 40 + "```\n",
    "a drawn box": HEAD + "```\n" + ART + "```\n",
    "a footer on each slide": "".join(
        f"---\nlayout: two-cols\nzoom: 1.2\n---\n\n# Lock {n}\n\n<footer>Rivers, 24 November, the "
        "harbour board of Hamburg and its friends</footer>\n\n"
        for n in range(40)
    ),
    "a slide that grows": "".join(
        f"\n---\n\n# What a lock does\n\n{''.join(f'- Step {k} of the lift' + chr(10) for k in range(n))}"
        for n in range(14)
    ),
    "Chinese": HEAD + "".join(f"- 第{n}座船闸把船抬高四米\n" for n in range(99)),
}


@pytest.mark.parametrize("name", GOOD)
def test_what_only_looks_alike_is_never_stopped(name):
    assert cut(GOOD[name]) is None


def test_no_deck_of_this_repository_is_stopped_but_the_one_that_repeats_itself():
    root = cli.ROOT
    decks = [*(root / "data/reference").glob("*.md"), *(root / "data/gold").glob("*/deck.md")]
    decks += (root / "tests/fixtures").rglob("*.md")
    found = [path.name for path in decks if cut(path.read_text("utf-8", "replace"))]
    assert len(decks) > 150 and found == ["repeated.md"]


# On the wire


@pytest.fixture
def endpoint(tmp_path):
    """Start tests/endpoint.py with a reply and options; gives its address."""
    started = []

    def start(text, *options):
        reply = tmp_path / f"reply{len(started)}.md"
        reply.write_text(text)
        command = [sys.executable, cli.ROOT / "tests/endpoint.py", "--reply", reply, *options]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        return started[-1].stdout.readline().strip()

    yield start
    for process in started:
        process.kill()
        process.wait()


def ask(url, slug="m", rule=RULE, **entry):
    """(the reply, the client) of one request under the rule, the stream left or at its end."""

    async def go():
        asker = client.Client(registry.Model("m", url, slug, **entry))
        try:
            return await asker.ask(
                [{"role": "user", "content": "Deck"}], {"stop_early": rule}
            ), asker
        finally:
            await asker.close()

    return asyncio.run(go())


def stats(url):
    with urllib.request.urlopen(url.replace("/v1", "/stats")) as answer:
        return json.load(answer)


PRICE = {"prompt": 1e6, "completion": 1e6}  # a dollar a token
TEXT = HEAD + LOOP * 200


def test_a_reply_that_never_ends_is_left_and_paid_for_and_the_same_comes_of_a_whole_one(endpoint):
    url = endpoint(TEXT)
    left, asker = ask(url, "endless", price=PRICE)
    assert left.text == TEXT[: left.stopped["kept"]] and left.stopped["why"] == "repeats"
    assert left.finish_reason == "stopped" and left.value()["stopped"] == left.stopped
    words = len(TEXT[: left.stopped["read"]].split())
    assert left.usage["completion_tokens"] >= words and asker.spent == left.usage["cost"] > words
    while stats(url)["streams"]:  # it has stopped writing
        pass
    assert stats(url)["left"] == 1

    for entry in (
        {"drop": ["stream", "stream_options"]},
        {"reports_cost": True},  # only its end says what it cost
    ):
        whole, _ = ask(url, **entry)
        assert (whole.text, whole.stopped) == (left.text, left.stopped)
        assert whole.finish_reason == "stopped" and whole.usage["completion_tokens"] == 100
    assert stats(url)["left"] == 1
    assert ask(url, rule={**RULE, "repeats": 0})[0].text == TEXT


def test_an_endpoint_that_does_not_stream_when_it_is_told_to_is_cut_alike(endpoint):
    reply, _ = ask(endpoint(TEXT, "--plan", "whole=1"))
    assert reply.text == cut(TEXT)[1] and reply.usage["completion_tokens"] == 100


def test_a_stream_that_breaks_off_is_asked_for_again(endpoint):
    reply, asker = ask(endpoint(HEAD + PROSE, "--plan", "cut=1"), price=PRICE)
    assert reply.attempts == 2 and reply.text == HEAD + PROSE and not reply.stopped
    assert asker.spent > reply.usage["cost"]  # what came of the first was written too


PLAN = "".join(f"{n}. {PROSE}" for n in range(40))  # of thought, 3,000 characters


@pytest.mark.parametrize(
    "head", [f"<think>\n{PLAN}</think>\n", f"{PLAN}\n</think>\n"], ids=["tagged", "opened"]
)
def test_a_thought_counts_for_nothing_where_it_is_told_apart_at_last(endpoint, head):
    """The second as of a server whose template opens the thought."""
    reply, _ = ask(endpoint(head + HEAD + LOOP * 99))
    assert reply.text == cut(HEAD + LOOP * 99)[1] and reply.stopped["why"] == "repeats"
    assert reply.reasoning == PLAN.strip()
    prose, _ = ask(endpoint(head + PLAN))
    assert prose.stopped["why"] == "no slide" and prose.text == PLAN[: prose.stopped["kept"]]


def test_what_is_kept_of_a_stopped_reply_is_a_reply_as_the_journal_gives_it_back():
    reply = replies.Reply(TEXT, "", "stop", asking.FREE, 1.0, 1)
    stopping.cut(reply, RULE)
    assert replies.Reply(**json.loads(stream.dumps(dataclasses.asdict(reply)))) == reply


@pytest.mark.slow
def test_a_run_that_is_killed_amid_a_reply_asks_for_none_before_it_again(endpoint, tmp_path):
    url = endpoint(HEAD + " {{hold}} " + LOOP * 99)  # each reply waits there for a POST to /go
    rows = [{"id": f"p{n}", "messages": [{"role": "user", "content": str(n)}]} for n in (1, 2)]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def start():
        flags = ["--slug", "m", "--jobs", "1", "--protocol", "offline", "--run", tmp_path]
        return subprocess.Popen(
            [cli.ROOT / "bin/chat-generate", "--base-url", url, *flags],
            stdin=open(tmp_path / "in.jsonl"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=os.environ | {"IMAGES": "off"},
            start_new_session=True,
        )

    def go():
        urllib.request.urlopen(url.replace("/v1", "/go"), b"").close()

    killed = start()
    go()
    first = json.loads(killed.stdout.readline())
    assert first["gen"]["stopped"]["why"] == "repeats"
    assert first["gen"]["sampling"]["stop_early"] == RULE
    while stats(url)["asked"] < 2:
        pass
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()

    again = start()
    go()
    said, warned = again.communicate()
    kept, second = map(json.loads, said.splitlines())
    assert kept == first and second["gen"]["text"] == first["gen"]["text"]
    assert b"p2: stopped after" in warned and b"it repeats itself" in warned
    assert stats(url)["asked"] == 3
