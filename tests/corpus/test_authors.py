"""Authors that behave and authors that do not, in real cells, by real processes."""

import asyncio
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
import waits
from decksmith.core import cells, cli, masking, stream
from decksmith.models import client as chat_client
from decksmith.models import registry
from decksmith.train.corpus import author_command, author_model, authors, drafts

pytestmark = pytest.mark.slow

GOLD = cli.ROOT / "data" / "gold"
SCRIPT = cli.ROOT / "tests" / "fixtures" / "authors" / "author.py"
PYTHON = os.path.realpath(sys.executable)
FOLDERS = [
    path.parent
    for path in sorted(GOLD.glob("*/seed.json"))
    if json.loads(path.read_text())["language"] == "en"
]
SECRET = "a-key-that-nobody-may-see"


def seeds(*names):
    """One seed a name, each that of another gold draft; the scripted author behaves as the name says."""
    return [
        {
            "id": name,
            "seed": {
                **{k: v for k, v in drafts.seed(gold).items() if k != "id"},
                "gold": gold.name,
            },
        }
        for name, gold in zip(names, FOLDERS, strict=False)
    ]


def template(*more):
    return " ".join(map(str, [PYTHON, SCRIPT, "{dir}", GOLD, *more]))


def start(run, records, *options, command=None, show=(), out="out", **environment):
    """bin/seed-author over the records; stdout goes to run/out.jsonl."""
    run.mkdir(exist_ok=True)
    (run / f"{out}.in").write_bytes(b"".join(stream.dumps(record) + b"\n" for record in records))
    words = ["--author", command or template(), "--run", run, "--show", GOLD]
    for path in show:
        words += ["--show", path]
    return subprocess.Popen(
        [cli.ROOT / "bin/seed-author", *words, *options],
        stdin=open(run / f"{out}.in", "rb"),
        stdout=open(run / f"{out}.jsonl", "wb"),
        stderr=open(run / "err", "ab"),
        env=os.environ | {"IMAGES": "off", **environment},
    )


def results(run):
    return {record["id"]: record["draft"] for _, record in stream.records(run / "out.jsonl")}


def status(run, ident):
    return json.loads((run / "work" / ident / "status.json").read_text())


def alive(word):
    """The processes that have a word in their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(word) in line and int(path.parent.name) != os.getpid():
            found.append(line)
    return found


def gone(word):
    waits.until(lambda: not alive(word))


BATCH = ["--retries", "1"]


@pytest.fixture(scope="module")
def batch(tmp_path_factory):
    """Twelve ways to misbehave and a few good drafts among them, in one run."""
    run = tmp_path_factory.mktemp("batch")
    names = [
        "good-1",
        "elsewhere",
        "forks",
        "secrets",
        "half",
        "theme",
        "language",
        "forty",
        "fences",
        "unthinking",
        "signals",
        "nothing",
        "links",
        "learns",
        "fails",
        "good-2",
    ]
    process = start(run, seeds(*names), *BATCH, "--jobs", "3", SOME_API_KEY=SECRET)
    until_it_hangs = start(run, seeds("hangs"), *BATCH, "--timeout", "3", out="hangs")
    assert [process.wait(), until_it_hangs.wait()] == [0, 0]
    with open(run / "out.jsonl", "ab") as out:
        out.write((run / "hangs.jsonl").read_bytes())
    return run


REFUSED = {
    "hangs": ("timeout", "no end within 3 seconds"),
    "elsewhere": ("escaped", "outside of its folder"),
    "links": ("escaped", "outside of its folder"),
    "half": ("invalid", "deck.md"),
    "theme": ("invalid", "(theme)"),
    "language": ("language", "does not read as en"),
    "forty": ("invalid", "asked were"),
    "fences": ("invalid", "(wrapped)"),
    "unthinking": ("invalid", "think.md:1: fewer than 400 bytes (size)"),
    "signals": ("crash", "killed by SIGSEGV"),
    "nothing": ("empty", "the author wrote nothing (exit status 0"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_misbehaving_author_is_caught_classified_and_tried_again_within_the_limit(batch, name):
    cls, words = REFUSED[name]
    draft, found = results(batch)[name], status(batch, name)
    assert (draft["error"]["kind"], draft["error"]["class"]) == ("model", cls), draft
    assert any(words in line for line in found["reasons"])
    assert (draft["attempts"], found["attempt"], found["state"]) == (2, 2, "failed")
    assert (batch / "work" / name / "reasons.txt").read_text() == "\n".join(found["reasons"]) + "\n"


def test_the_rest_of_a_batch_is_untouched_by_its_misbehaving_neighbours(batch):
    found = results(batch)
    for record in seeds(*found):
        ident, gold = record["id"], GOLD / record["seed"]["gold"]
        if ident in REFUSED:
            continue
        assert "error" not in found[ident], found[ident]
        for name in drafts.FILES:
            assert (batch / "work" / ident / name).read_bytes() == (gold / name).read_bytes()
    assert sorted(set(found) - set(REFUSED)) == [
        "fails",
        "forks",
        "good-1",
        "good-2",
        "learns",
        "secrets",
    ]
    assert {path.name for path in (batch / "work").iterdir()} == set(found)


def test_success_is_what_the_validator_says_and_not_the_exit_status(batch):
    assert status(batch, "fails")["rc"] == 3
    assert results(batch)["fails"]["sha256"] == drafts.hashes(batch / "work" / "fails")


def test_an_author_learns_from_the_reasons_of_its_last_attempt(batch):
    assert results(batch)["learns"]["attempts"] == 2
    assert not (batch / "work" / "learns" / "reasons.txt").exists()


def test_what_an_author_leaves_running_ends_with_it_and_is_noted(batch):
    assert results(batch)["forks"]["noted"] == ["left running and ended: 1"]
    gone(batch)


def test_an_author_sees_nothing_of_our_environment_and_its_log_is_bounded(batch):
    log = (batch / "work" / "secrets" / "run.log").read_text()
    assert "'TMPDIR': " in log and len(log) < 80_000 and "more bytes were not kept" in log
    assert (
        "'PATH'" in log
        and "SOME_API_KEY" not in log
        and "DECKSMITH" not in log
        and "PYTHONPATH" not in log
    )
    assert not [
        path
        for path in batch.rglob("*")
        if path.is_file() and SECRET in path.read_text(errors="replace")
    ]


def test_a_variable_that_is_named_crosses_and_its_value_stays_out_of_log_and_draft(tmp_path):
    says = tmp_path / "says"
    says.write_text(
        '#!/bin/sh\necho "key $SOME_API_KEY"\nfor f in PROMPT.md think.md deck.md; do echo "$SOME_API_KEY" > $f; done\n'
    )
    says.chmod(0o755)
    process = start(
        tmp_path / "run",
        seeds("a"),
        "--retries",
        "0",
        "--pass-env",
        "SOME_API_KEY",
        command=str(says),
        SOME_API_KEY=SECRET,
    )
    assert process.wait() == 0
    assert results(tmp_path / "run")["a"]["error"]["class"] == "secret"
    assert "key [SOME_API_KEY]\n" in (tmp_path / "run/work/a/run.log").read_text()
    assert not [
        path
        for path in (tmp_path / "run").rglob("*")
        if path.is_file() and SECRET in path.read_text()
    ]


def test_a_log_keeps_no_secret_and_no_piece_of_one_however_it_arrives(tmp_path, monkeypatch):
    monkeypatch.setattr(masking, "_added", {})
    masking.add(SECRET, "KEY")
    rng = random.Random(1)
    said = b"".join(
        rng.choice([SECRET.encode(), b"words ", b"x" * 3000, b"\n"]) for _ in range(400)
    )
    log = author_command.Log(tmp_path / "run.log")
    log.left = 1 << 30
    while said:
        size = rng.randrange(1, 5000)
        log.feed(said[:size])
        said = said[size:]
    log.close("end")
    text = (tmp_path / "run.log").read_text()
    assert "[KEY]" in text and SECRET[:8] not in text and SECRET[-8:] not in text


def test_a_finished_batch_is_not_authored_again_and_more_retries_go_on_with_what_failed(batch):
    before = {path: path.read_text() for path in (batch / "work").glob("*/run.log")}
    first = results(batch)
    records = [record for record in seeds(*first) if record["id"] != "hangs"]
    assert start(batch, records, "--retries", "1").wait() == 0
    again = results(batch)
    assert {path: path.read_text() for path in (batch / "work").glob("*/run.log")} == before
    strip = lambda draft: {k: v for k, v in draft.items() if k != "by"}  # noqa: E731
    assert {k: strip(v) for k, v in again.items()} == {k: strip(first[k]) for k in again}
    assert start(batch, seeds("good-1", "a", "b", "c", "half")[-1:], "--retries", "2").wait() == 0
    assert results(batch)["half"]["attempts"] == 3


def written(run, record):
    """The draft of one record, by the scripted author within this process."""
    writer = author_command.Command(template(), show=[GOLD])
    return asyncio.run(authors.write(run, record, writer, retries=0))


def test_a_draft_mended_by_hand_is_taken_as_it_is(tmp_path):
    record = seeds("half")[0]
    assert "error" in written(tmp_path, record)
    (tmp_path / "work/half/deck.md").write_bytes(
        (GOLD / record["seed"]["gold"] / "deck.md").read_bytes()
    )
    assert "error" not in written(tmp_path, record) and status(tmp_path, "half")["state"] == "valid"


def test_another_seed_under_the_same_id_begins_anew_and_what_was_paid_for_is_laid_aside(tmp_path):
    assert "error" not in written(tmp_path, seeds("a")[0])
    first = (tmp_path / "work/a/deck.md").read_bytes()
    other = {**seeds("b", "a")[1]}
    assert "error" not in written(tmp_path, other)
    assert (tmp_path / "work/a/deck.md").read_bytes() == (
        GOLD / other["seed"]["gold"] / "deck.md"
    ).read_bytes()
    assert (tmp_path / "work/a/before/deck.md").read_bytes() == first


def test_an_author_has_no_network_unless_it_is_left_it(tmp_path):
    import socket

    server = socket.create_server(("127.0.0.1", 0))
    knock = tmp_path / "knock.py"
    knock.write_text(
        f"import socket\nsocket.create_connection(('127.0.0.1', {server.getsockname()[1]}), 5)\nprint('through')\n"
    )
    for net, words in (("--jobs=1", "Connection refused"), ("--net", "through")):
        run = tmp_path / net
        assert (
            start(run, seeds("a"), "--retries", "0", net, command=f"{PYTHON} {knock}").wait() == 0
        )
        assert words in (run / "work/a/run.log").read_text()
    server.close()


def test_a_command_that_lacks_something_in_its_cell_costs_no_attempt(tmp_path):
    lost = tmp_path / "lost"
    lost.write_text("#!/bin/sh\nexec /nowhere/tool\n")
    lost.chmod(0o755)
    assert start(tmp_path / "run", seeds("a"), command=str(lost)).wait() == 75
    error = results(tmp_path / "run")["a"]["error"]
    assert (error["kind"], error["class"]) == ("infra", "command") and "/nowhere/tool" in error[
        "message"
    ]
    assert start(tmp_path / "run", seeds("a")).wait() == 0
    assert results(tmp_path / "run")["a"]["attempts"] == 1


def test_a_command_behind_several_links_is_shown_with_all_that_they_name(tmp_path):
    near, far, there = tmp_path / "near", tmp_path / "far", tmp_path / "there"
    there.write_text("#!/bin/sh\n")
    there.chmod(0o755)
    far.symlink_to("there")
    near.symlink_to(far)
    shown = author_command.Command(f"{near} {{dir}}", walls=("plain", False)).shown
    assert {str(near), str(far), str(there)} <= {*shown}


@pytest.mark.parametrize(
    "walls", [("shared-pids", True), ("plain", os.geteuid() != 0)], ids=lambda walls: walls[0]
)
def test_with_weaker_walls_the_same_is_caught(walls, tmp_path):
    async def go():
        writer = author_command.Command(template(), show=[GOLD], walls=walls)

        async def one(record):
            try:
                return await authors.write(tmp_path, record, writer, retries=0)
            except stream.Fault as fault:
                if fault.error["class"] == "cell":
                    pytest.skip(fault.error["message"])
                raise

        return await asyncio.gather(
            *map(one, seeds("good", "elsewhere", "forks", "links", "good-2"))
        )

    found = asyncio.run(go())
    # Without walls nobody sees what a command writes elsewhere: it is missed in its folder alone.
    outside = "no-deck" if walls[0] == "plain" else "escaped"
    said = [draft.get("error", {}).get("class") for draft in found]
    assert said == [None, outside, None, "escaped", None]
    assert found[2]["noted"] == ["left running and ended: 1"]
    assert {path.name for path in (tmp_path / "work").glob("*/*")} <= author_command.OURS
    gone(tmp_path)


def test_without_walls_an_authors_command_is_refused_unless_that_is_accepted(tmp_path, monkeypatch):
    monkeypatch.setattr(cells, "WALLS", [("plain", os.geteuid() != 0)])
    with pytest.raises(
        cli.Missing, match="no walls around an author's command.*DECKSMITH_WALLS=plain"
    ):
        asyncio.run(author_command.Command(template()).ready(tmp_path))
    monkeypatch.setenv("DECKSMITH_WALLS", "plain")
    asyncio.run(author_command.Command(template()).ready(tmp_path))


class Counter:
    """What the authors themselves count: lines of a FIFO that the cell shows them."""

    def __init__(self, path):
        os.mkfifo(path)
        path.chmod(0o666)
        self.path, self.lines = path, []
        self.pipe = os.open(path, os.O_RDWR)
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in os.fdopen(self.pipe):
            self.lines.append(line.split())

    def begun(self, ident):
        return self.lines.count([ident, "begins"])


@pytest.mark.long("test_what_was_delivered_before_a_kill_is_judged_and_not_authored_again")
def test_killed_at_ten_random_moments_nothing_authored_is_lost_or_authored_twice_and_nobody_is_orphaned(
    tmp_path,
):
    rng, kills, known = random.Random(5), 0, {}
    counter = Counter(tmp_path / "counter")
    run, records = tmp_path / "run", seeds(*(f"d{n}" for n in range(8)))
    options = dict(command=template(counter.path, 0.4), show=[counter.path])

    def unharmed():
        for ident, before in known.items():
            assert (counter.begun(ident), drafts.hashes(run / "work" / ident)) == before

    while kills < 10:
        process = start(run, records, "--jobs", "2", **options)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(rng.uniform(0.2, 1.4))
        if process.returncode is None:
            process.kill()
            process.wait()
            kills += 1
            gone(run)
        unharmed()
        known = {
            r["id"]: (counter.begun(r["id"]), drafts.hashes(run / "work" / r["id"]))
            for r in records
            if (run / "work" / r["id"] / "status.json").exists()
            and status(run, r["id"])["state"] == "valid"
        }
        if len(known) == len(records):  # all was done in time: once more from the beginning
            shutil.rmtree(run)
            known.clear()
            counter.lines.clear()
    assert start(run, records, "--jobs", "2", **options).wait() == 0
    unharmed()
    assert [
        ident for ident, draft in results(run).items() if "error" in draft or draft["attempts"] != 1
    ] == []
    assert not list(run.rglob("*.tmp")) and not list(run.rglob("delivery.json"))


def test_without_namespaces_a_kill_leaves_nobody_behind_either(tmp_path):
    code = (
        "import asyncio, json, sys; from decksmith.train.corpus import author_command, authors; from pathlib import Path\n"
        "writer = author_command.Command(sys.argv[2], show=[sys.argv[3]], walls=('plain', False))\n"
        "asyncio.run(authors.write(Path(sys.argv[1]), json.loads(sys.argv[4]), writer))"
    )
    with contextlib.ExitStack() as stack:
        for name in ("hangs", "strays"):
            process = subprocess.Popen(
                [PYTHON, "-c", code, tmp_path, template(), GOLD, json.dumps(seeds(name)[0])],
                env=os.environ
                | {"PYTHONPATH": os.pathsep.join([str(cli.ROOT / "lib"), *sys.path])},
            )
            stack.callback(process.kill)
            last = "think.md" if name == "hangs" else "daemon"
            waits.until((tmp_path / "work" / name / last).exists, process)
            assert alive(tmp_path / "work")
            process.kill()
            process.wait()
            gone(tmp_path)


def test_what_was_delivered_before_a_kill_is_judged_and_not_authored_again(tmp_path):
    record = seeds("a")[0]
    folder = tmp_path / "work" / "a"
    folder.mkdir(parents=True)
    texts = {name: (GOLD / record["seed"]["gold"] / name).read_text() for name in drafts.FILES}
    (folder / "status.json").write_text(
        json.dumps(
            {
                "id": "a",
                "state": "running",
                "attempt": 1,
                "author": "nobody",
                **authors.key(record["seed"]),
            }
        )
    )
    (folder / "delivery.json").write_text(json.dumps({"attempt": 1, "rc": 0, "files": texts}))

    class Nobody:
        name = "nobody"

        async def ready(self, parent):
            pass

        async def attempt(self, *_):
            raise AssertionError("authored again")

    value = asyncio.run(authors.write(tmp_path, record, Nobody()))
    assert value["attempts"] == 1 and value["sha256"] == drafts.hashes(folder)


def test_an_interrupt_ends_the_authors_and_the_next_run_goes_on(tmp_path):
    for number in (signal.SIGINT, signal.SIGTERM):
        process = start(tmp_path, seeds("hangs"))
        waits.until(lambda: alive(f"{SCRIPT} {tmp_path}"), process)
        process.send_signal(number)
        assert process.wait() == 130
        assert (
            status(tmp_path, "hangs")["state"] == "interrupted"
            and status(tmp_path, "hangs")["attempt"] == 1
        )
        gone(tmp_path)


def test_two_processes_share_a_run_and_author_every_draft_once(tmp_path):
    counter = Counter(tmp_path / "counter")
    records = seeds(*(f"d{n}" for n in range(4)))
    options = dict(command=template(counter.path, 0.2), show=[counter.path])
    first = start(tmp_path / "run", records, **options)
    second = start(tmp_path / "run", records[::-1], **options)
    assert (first.wait(), second.wait()) == (0, 0)
    assert [counter.begun(record["id"]) for record in records] == [1, 1, 1, 1]


def test_the_example_is_the_nearest_gold_draft_and_the_same_every_time():
    for record in seeds(*map(str, range(len(FOLDERS)))):
        found = authors.example(record["id"], record["seed"])
        near = drafts.seed(found)
        assert [near[key] for key in ("theme", "language")] == [
            record["seed"][key] for key in ("theme", "language")
        ]
        assert set(near["features"]) == set(record["seed"]["features"])
        assert authors.example(record["id"], record["seed"]) == found


# --- a model as the author --------------------------------------------------------------------------------------------


def told(run, replies, record, retries=2):
    """What author.ModelAuthor does with a client that gives these replies, and what the client was asked."""
    asked = []

    class Client:
        jobs, model = 1, SimpleNamespace(params={})

        async def ask(self, messages, sampling, seed):
            from decksmith.models.replies import Reply

            asked.append(messages)
            text, finish = replies.pop(0) if replies else ("", "stop")
            return Reply(
                text, "", finish, {"prompt_tokens": 10, "completion_tokens": 5, "cost": 0.5}, 0.1, 1
            )

    writer = author_model.ModelAuthor("told", Client())
    return asyncio.run(authors.write(run, record, writer, retries=retries)), asked


def test_a_model_writes_prompt_thoughts_and_deck_and_each_sees_what_came_before(tmp_path):
    record = seeds("a")[0]
    texts = [(GOLD / record["seed"]["gold"] / name).read_text().strip() for name in drafts.FILES]
    value, asked = told(
        tmp_path,
        [(texts[0], "stop"), (texts[1], "stop"), (f"```md\n{texts[2]}\n```", "stop")],
        record,
    )
    assert "error" not in value and value["attempts"] == 1
    assert value["usage"] == {"prompt_tokens": 30, "completion_tokens": 15, "cost": 1.5}
    assert texts[0] in asked[1][-1]["content"] and texts[1] in asked[2][-1]["content"]
    assert [message["role"] for message in asked[0]] == ["user", "assistant", "user"]


def test_a_model_is_told_the_reasons_and_asked_only_for_what_was_refused(tmp_path):
    record = seeds("a")[0]
    texts = [(GOLD / record["seed"]["gold"] / name).read_text().strip() for name in drafts.FILES]
    replies = [
        (texts[0], "stop"),
        ("Too short a thought.", "stop"),
        (texts[1], "stop"),
        (texts[2], "length"),
        (texts[2], "stop"),
    ]
    value, asked = told(tmp_path, replies, record)
    assert "error" not in value and value["attempts"] == 3 and len(asked) == 5
    assert (
        "Too short a thought." in asked[2][-1]["content"]
        and "250 to 1200 words" in asked[2][-1]["content"]
    )
    assert "cut off" in asked[4][-1]["content"] and "cut off" not in asked[3][-1]["content"]


def test_a_model_that_writes_nothing_usable_fails_honestly_with_the_first_rule_in_the_message(
    tmp_path,
):
    value, asked = told(
        tmp_path,
        [("A deck about bees, please, with nine slides in seriph.", "stop")],
        seeds("a")[0],
        retries=1,
    )
    assert value["error"]["class"] == "no-deck" and value["attempts"] == 2 and len(asked) == 3
    assert "think.md" in value["error"]["message"]


def test_a_model_of_the_registry_is_asked_over_its_endpoint(tmp_path, monkeypatch):

    record = seeds("a")[0]
    reply = tmp_path / "reply.md"
    reply.write_text((GOLD / record["seed"]["gold"] / "deck.md").read_text())
    server = subprocess.Popen(
        [PYTHON, cli.ROOT / "tests/endpoint.py", "--reply", reply],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        known = tmp_path / "models.toml"
        known.write_text(f'[test]\nbase_url = "{server.stdout.readline().strip()}"\nslug = "m"\n')
        monkeypatch.setattr(registry, "REGISTRY", known)

        async def go():
            writer = author_model.ModelAuthor("test", chat_client.Client.open("test"))
            try:
                return await authors.write(tmp_path, record, writer, retries=0)
            finally:
                await writer.close()

        value = asyncio.run(go())
    finally:
        server.kill()
        server.wait()
    assert (value["author"], value["error"]["class"], value["attempts"]) == (
        "llm:test",
        "no-deck",
        1,
    )
    assert value["usage"]["completion_tokens"] > 0 and value["usage"]["cost"] is None
