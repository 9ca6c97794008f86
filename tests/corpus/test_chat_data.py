"""The door for chat data: what is taken, what becomes of it, what is dropped, what is refused."""

import csv
import importlib.util
import json
import random
import subprocess
import sys
from pathlib import Path

import fuzz
import pytest
from decksmith.core import cli, stream
from decksmith.train.corpus import chat_data, chat_sources

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
_spec = importlib.util.spec_from_file_location("chat_cases", HERE / "chat_cases.py")
cases = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(cases)
WORDS = "kettle harbour lamp amber nine slide theme moth quay rope anchor".split()


@pytest.fixture(scope="module")
def read():
    """A row as its shape has it, or why it is unfit."""
    return stream.program(f"false as $columns | {chat_data.SHAPES.read_text()}")


@pytest.mark.parametrize("shape, row, wanted", cases.SEEN + cases.UNSEEN)
def test_a_row_as_people_have_it_becomes_one_of_ours(read, shape, row, wanted):
    found = read(row)
    assert (found.get("shape"), found.get("row")) == (
        shape,
        {key: value for key, value in wanted.items() if key != "id"},
    )


ASK = cases.says("user", "Name a harbour.")


@pytest.mark.parametrize(
    "row, why",
    [
        ({"prompt": "a", "completion": " "}, "an empty message of the assistant"),
        ({"prompt": "a", "completion": ""}, "no answer"),
        ({"prompt": "a"}, "no answer"),
        ({"messages": [ASK]}, "no reply of an assistant"),
        ({"messages": "hello"}, "no list of messages"),
        ({"messages": [ASK, ASK, cases.TALK[1]]}, "roles that do not take turns"),
        ({"messages": [cases.TALK[1], ASK, cases.TALK[1]]}, "roles that do not take turns"),
        ({"messages": [{"role": "narrator", "content": "a"}]}, "an unknown role, narrator"),
        ({"messages": [ASK, {**cases.TALK[1], "weight": 0}]}, "a message of weight 0"),
        ({"prompt": "a", "completion": "b <think>c</think>"}, "a think tag within the reply"),
        ({"prompt": "a", "completion": "b\0"}, "characters that are no text"),
        ({"prompt": "a", "completion": "b \ufffd"}, "characters that are no text"),
        ({"prompt": "a", "completion": True}, "a content that is no text"),
        ({"prompt": [{"type": "image"}], "completion": "b"}, "a picture, or another part"),
        ({"prompt": "a", "chosen": "b", "rejected": "b"}, "two equal answers"),
        ({"prompt": "a", "chosen": "b", "rejected": "c", "tools": [{"name": "t"}]}, "tools, which"),
        ({"chosen": "b", "rejected": "c"}, "roles that do not take turns"),
        ({"text": "### Human: a"}, "none of the columns that are known"),
        ({"instruction": "a", "output": "b", "history": "c"}, "not of the shape"),
    ],
)
def test_a_row_that_cannot_be_trained_on_says_why(read, row, why):
    assert read(row)["unfit"].startswith(why)


def rows(n=40, **more):
    dice = random.Random(n)

    def text(words):
        return " ".join(dice.choice(WORDS) for _ in range(words))

    return [{"prompt": text(8), "completion": text(14), **more} for _ in range(n)]


def jsonl(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def sides(out):
    return [
        [json.loads(line) for line in (out / f"{side}.jsonl").read_text().splitlines()]
        for side in ("train", "test")
    ]


def tabled(folder, kind, rows):
    import datasets
    import pyarrow

    columns = {key: None for row in rows for key in row}  # else those of the first row
    made = datasets.Dataset.from_list([{**columns, **row} for row in rows])
    path = folder / f"chat.{kind}"
    if kind == "parquet":
        made.to_parquet(path)
    elif kind == "stream":
        with pyarrow.ipc.new_stream(path, made.data.table.schema) as file:
            file.write_table(made.data.table)
    elif kind == "arrow":
        with pyarrow.ipc.new_file(path, made.data.table.schema) as file:
            file.write_table(made.data.table)
    elif kind == "saved":
        datasets.DatasetDict({"train": made, "test": made.select(range(3))}).save_to_disk(path)
    return path


def written(folder, kind, rows):
    """The rows as a file or folder of a kind."""
    path = folder / f"chat.{kind}"
    if kind in ("parquet", "arrow", "stream", "saved"):
        return tabled(folder, kind, rows)
    if kind == "json":
        path.write_text(json.dumps(rows, indent=1))
    elif kind == "pretty":
        path = folder / "chat.json"
        path.write_text("\n".join(json.dumps(row, indent=2) for row in rows))
    elif kind in ("csv", "tsv"):
        with open(path, "w", newline="", encoding="utf-8-sig") as file:
            table = csv.DictWriter(
                file, [*{**rows[0], **rows[-1]}], delimiter="\t" if kind == "tsv" else ","
            )
            table.writeheader()
            table.writerows(
                {k: v if isinstance(v, str) else json.dumps(v) for k, v in row.items()}
                for row in rows
            )
    else:
        jsonl(path, rows)
    return path


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """Rows as they are given, and as they come of JSONL."""
    folder = tmp_path_factory.mktemp("plain")
    several = [{"messages": [dict(one) for one in talk(row)]} for row in rows()]
    several.append({"messages": cases.CALLS, "tools": [cases.WEATHER]})
    path = jsonl(folder / "plain.jsonl", several)
    report = chat_data.convert(str(path), "sft", folder / "plain")
    assert report["kind"] == "JSONL" and report["dropped"] == {}
    assert report["counts"]["tools"] == 1
    return several, sides(folder / "plain")


@pytest.mark.parametrize(
    "kind, called",
    [
        ("json", "JSON"),
        ("csv", "CSV"),
        ("parquet", "parquet"),
        ("arrow", "arrow"),
        pytest.param("pretty", "JSON", marks=pytest.mark.long),
        pytest.param("tsv", "CSV", marks=pytest.mark.long),
        pytest.param("stream", "arrow", marks=pytest.mark.long),
    ],
)
def test_every_kind_of_file_gives_the_same_rows(tmp_path, plain, kind, called):
    several, wanted = plain
    report = chat_data.convert(str(written(tmp_path, kind, several)), "sft", tmp_path / "out")
    assert report["kind"] == called and report["dropped"] == {}
    assert sides(tmp_path / "out") == wanted


def talk(row):
    return [cases.says("user", row["prompt"]), cases.says("assistant", row["completion"])]


def test_sides_that_there_are_are_kept_and_what_both_have_is_not_held_out(tmp_path):
    folder, many = tmp_path / "set", rows(30)
    (folder / "data").mkdir(parents=True)
    jsonl(folder / "data/train-00000.jsonl", many[:20])
    jsonl(folder / "data/validation.jsonl", many[20:] + [{**many[0], "completion": "Another one."}])
    jsonl(folder / "data/test.jsonl", rows(7))
    (folder / "dataset_info.json").write_text("{}")
    (folder / "split.tsv").write_text("a\ttrain\nb\ttest\n")  # of chat-split
    report = chat_data.convert(str(folder), "sft", tmp_path / "out")
    assert report["split"] == "its validation set" and report["counts"]["read"] == 31
    assert [len(side) for side in sides(tmp_path / "out")] == [20, 10]
    assert report["dropped"] == {"held out, but its request or answer is trained on": ["1"]}
    saved = chat_data.convert(str(written(tmp_path, "saved", rows(5))), "sft", tmp_path / "saved")
    assert saved["split"] == "its test set" and saved["kind"] == "arrow"


def test_a_split_follows_from_the_content_and_parts_no_group_and_no_request(tmp_path):
    many = [{**row, "topic": f"t{k % 40}"} for k, row in enumerate(rows(200))]
    for name, order in (("one", many), ("two", many[::-1])):
        chat_data.convert(str(jsonl(tmp_path / name, order)), "sft", tmp_path / f"{name}.out")
    one, two = ([*map(by_id, sides(tmp_path / f"{name}.out"))] for name in ("one", "two"))
    assert one == two and 16 <= len(one[1]) <= 32
    topics = {row["prompt"]: row["topic"] for row in many}
    parted = [{topics[row["messages"][0]["content"]] for row in side.values()} for side in one]
    assert not parted[0] & parted[1]
    # Of three groups none is small enough: then requests are what is not parted.
    few = [{**row, "source": f"s{k % 3}", "prompt": f"ask {k // 4}"} for k, row in enumerate(many)]
    report = chat_data.convert(str(jsonl(tmp_path / "few", few)), "sft", tmp_path / "few.out")
    asked = [
        {row["messages"][0]["content"] for row in side} for side in sides(tmp_path / "few.out")
    ]
    assert report["split"] == "by requests" and not asked[0] & asked[1]


def by_id(rows):
    return {row["id"]: row for row in rows}


def test_what_is_dropped_is_counted_with_reason_and_line(tmp_path):
    prompt = json.loads(chat_data.PROMPTS.read_text().splitlines()[0])
    many = rows(30)
    path = jsonl(tmp_path / "my.jsonl", [*many, many[3], {"prompt": "a", "completion": ""}])
    with open(path, "a") as file:
        file.write("{oops\n\n")
        leak = prompt["messages"][-1]["content"]
        file.write(json.dumps({"prompt": leak, "completion": "A deck."}) + "\n")
    report = chat_data.convert(str(path), "sft", tmp_path / "out")
    assert report["dropped"] == {
        "the same as an earlier row": ["1", "line 31"],
        "no answer": ["1", "line 32"],
        "not JSON": ["1", "line 33"],
        "near a prompt of data/prompts.jsonl": ["1", f"line 35: {prompt['id']}"],
    }
    assert [*chat_data.sentences(report)][:4] == [
        f"{path}: 34 rows, prompt and completion (JSONL)",
        "prompt -> user, completion -> assistant",
        "24 rows to train on, 6 held out, by requests",
        "dropped: 1 x the same as an earlier row (line 31)",
    ]


def test_ids_are_kept_where_they_can_be_and_made_from_the_content_elsewhere(tmp_path):
    many = rows(6)
    given = ["a1", 7, "a1", "no id!", None, "b"]
    several = [{**row, "id": ident} for row, ident in zip(many, given, strict=True)]
    chat_data.convert(str(jsonl(tmp_path / "my.jsonl", several)), "sft", tmp_path / "out")
    made = {
        row["messages"][0]["content"]: row["id"] for side in sides(tmp_path / "out") for row in side
    }
    ids = [made[row["prompt"]] for row in many]
    assert ids[:2] == ["a1", "7"] and ids[5] == "b" and len(set(ids)) == 6
    assert all(ident.startswith("c") and len(ident) == 17 for ident in ids[2:5])


def test_the_same_content_is_converted_once_and_a_kill_leaves_no_report(tmp_path, monkeypatch):
    path = jsonl(tmp_path / "my.jsonl", rows())
    first = chat_data.convert(str(path), "sft", tmp_path / "out")
    with monkeypatch.context() as patch:
        patch.setattr(chat_data.Conversion, "into", None)
        assert chat_data.convert(str(path), "sft", tmp_path / "out") == first
    jsonl(path, rows(41))
    code = (
        "import os, signal, sys; from pathlib import Path; from decksmith.train.corpus import chat_data\n"
        "chat_data.stream.write_records = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        f"chat_data.convert({str(path)!r}, 'sft', Path({str(tmp_path / 'out')!r}))"
    )
    done = subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": str(cli.ROOT / "lib")})
    assert done.returncode == -9 and not (tmp_path / "out/report.json").exists()
    assert chat_data.convert(str(path), "sft", tmp_path / "out")["counts"]["read"] == 41
    assert {one.name for one in (tmp_path / "out").iterdir()} == {
        "train.jsonl",
        "test.jsonl",
        "report.json",
    }


@pytest.mark.parametrize(
    "name, content, said",
    [
        ("a.pdf", b"%PDF-1.7 \0", r"a.pdf is a PDF, no chat data; DATA= takes JSONL"),
        ("a.docx", b"PK\3\4\0\0", "a ZIP archive or an Office document"),
        ("a.jsonl", b"", "is empty"),
        ("a.jsonl", "{}".encode("utf-16"), "is no text in UTF-8"),
        (
            "a.jsonl",
            b'{"prompt": "Ten slides"}\n',
            r"can be trained on .*; 1 x no answer \(line 1\); a model answers requests: make baseline",
        ),
        (
            "a.jsonl",
            b'{"text": "a"}\n',
            r"none of 1 rows can be trained on \(text -> not used\); 1 x none of the columns",
        ),
        ("a.txt", b"Ten slides on tea.\nSix on rye.\n", "can be trained on"),
        (
            "a.jsonl",
            b'{"prompt": "a", "completion": "b"}\n' * 3,
            r"none of 3 rows can be held out; 2 x the same as an earlier row \(.*\); give rows that ask",
        ),
        ("a.json", b'[{"prompt": "a", "completion": "b"}, ', "1 x not JSON, and all that follows"),
    ],
)
def test_what_is_no_chat_data_is_refused_in_one_sentence(tmp_path, name, content, said):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(cli.BadData, match=said) as refused:
        chat_data.convert(str(tmp_path / name), "sft", tmp_path / "out")
    text = str(refused.value)
    mends = ("jq -c", "make baseline", "give rows")
    assert "\n" not in text and name in text and any(mend in text for mend in mends)


def test_pairs_and_conversations_name_the_target_that_trains_on_them(tmp_path):
    pairs = [{**row, "chosen": row["completion"], "rejected": "No."} for row in rows(9)]
    path = jsonl(tmp_path / "pairs.jsonl", pairs)
    with pytest.raises(cli.BadData, match=f"type: make dpo DATA={path}"):
        chat_data.convert(str(path), "sft", tmp_path / "out")
    assert chat_data.convert(str(path), "dpo", tmp_path / "out")["counts"]["train"] == 8
    path = jsonl(tmp_path / "chat.jsonl", rows(9))
    with pytest.raises(cli.BadData, match=f"type: make sft DATA={path}"):
        chat_data.convert(str(path), "dpo", tmp_path / "out")


def test_what_is_not_here_or_leads_elsewhere_is_not_read(tmp_path):
    with pytest.raises(cli.Missing, match="no chat data in nothing; DATA= takes"):
        chat_sources.parts("nothing")
    (tmp_path / "set").mkdir()
    (tmp_path / "set/train.jsonl").symlink_to(jsonl(tmp_path / "secret.jsonl", rows(3)))
    with pytest.raises(cli.Missing, match="no chat data in"):
        chat_sources.parts(str(tmp_path / "set"))


@pytest.mark.long("test_every_kind_of_file_gives_the_same_rows")
def test_a_dataset_of_the_hub_is_read_with_its_sides_and_an_absent_one_is_said(tmp_path):
    """Against the Hub of tests/hub.py."""
    hub, folder = tmp_path / "hub", tmp_path / "hub/lab/talks"
    folder.mkdir(parents=True)
    many = rows(12)
    jsonl(folder / "train.jsonl", many[:9])
    jsonl(folder / "test.jsonl", many[9:])
    command = [sys.executable, str(cli.ROOT / "tests/hub.py"), str(hub)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    url = server.stdout.readline().strip()
    code = (
        "import sys; from pathlib import Path; from decksmith.core import cli; from decksmith.train.corpus import chat_data\n"
        "for name in sys.argv[1:]:\n"
        "    try: print(chat_data.convert(name, 'sft', Path('out')))\n"
        "    except cli.Stop as stop: print(stop.status, stop)"
    )

    def said(*names, **more):
        env = {"PYTHONPATH": str(cli.ROOT / "lib"), "HF_HOME": str(tmp_path / "home"), **more}
        asked = [sys.executable, "-c", code, *names]
        return subprocess.run(asked, env=env, cwd=tmp_path, capture_output=True, text=True).stdout

    try:
        taken, lost = said("lab/talks", "lab/nothing", HF_ENDPOINT=url).splitlines()
        assert "'kind': 'Hub'" in taken and "'split': 'its test set'" in taken, taken
        assert [len(side) for side in sides(tmp_path / "out")] == [9, 3]
        assert lost.startswith("69 no file lab/nothing here, nor such data on the Hub: "), lost
    finally:
        server.kill()
        server.wait()
    offline = said("lab/other", HF_HUB_OFFLINE="1")
    assert "no file lab/other here" in offline and offline.count("\n") == 1, offline


def test_names_that_would_write_on_the_terminal_are_shown_plain(tmp_path):
    odd = {"a\n\x1b[31mred": "x", "messages": [{"role": "r\x1b\n", "content": "x"}]}
    with pytest.raises(
        cli.BadData, match=r"\(a\?\?\[31mred -> not used, .* an unknown role, r\?\? "
    ):
        chat_data.convert(str(jsonl(tmp_path / "my.jsonl", [odd])), "sft", tmp_path / "out")


def mutant(dice, content):
    """The bytes with a few of them changed, cut, doubled, or turned round."""
    made = bytearray(content)
    for _ in range(dice.randint(1, 6)):
        at, length = dice.randrange(len(made)), dice.randint(1, 40)
        piece = bytes(made[at : at + length])
        made[at : at + length] = dice.choice(
            [
                dice.randbytes(length),
                b"",
                piece * 2,
                piece[::-1],
                dice.choice(
                    [
                        b'"',
                        b"{",
                        b"]",
                        b"null",
                        b",",
                        b"\n",
                        b"\xef\xbb\xbf",
                        b"1e999",
                        b"\\u0000",
                        b"\\ud800",
                        b"<think>",
                    ]
                ),
            ]
        )
        made = made or bytearray(b"x")
    return bytes(made)


@pytest.mark.fuzz
@pytest.mark.parametrize("kind", ["jsonl", "json", "csv", "parquet", "arrow"])
@pytest.mark.long("test_what_is_no_chat_data_is_refused_in_one_sentence")
def test_mutated_files_are_taken_in_part_or_refused_and_give_no_rubbish(
    tmp_path, kind, monkeypatch
):
    monkeypatch.setattr("os.fsync", lambda _: None)  # ten thousand files
    dice = random.Random(kind)
    several = [
        {"prompt": f"ask {k}", "completion": f"told {k}", "system": "Be brief.", "topic": "t"}
        for k in range(4)
    ]
    content = written(tmp_path, kind, several).read_bytes()
    monkeypatch.setattr(chat_data, "PROMPTS", jsonl(tmp_path / "prompts", []))
    read = stream.program(f"false as $columns | {chat_data.SHAPES.read_text()}")
    columns = stream.program(f"true as $columns | {chat_data.SHAPES.read_text()}")
    monkeypatch.setattr(
        stream, "program", lambda text: columns if text.startswith("true") else read
    )
    ends: dict[str, int] = {"taken": 0, "refused": 0}
    path = tmp_path / f"mutant.{kind}"
    for _ in range(fuzz.times(2000)):
        path.write_bytes(mutant(dice, content))
        try:
            chat_data.convert(str(path), "sft", tmp_path / "out")
        except cli.BadData as refused:
            assert "\n" not in str(refused)
            ends["refused"] += 1
            continue
        ends["taken"] += 1
        for row in (row for side in sides(tmp_path / "out") for row in side):
            assert stream.ID.match(row["id"])
            roles = [message["role"] for message in row["messages"]]
            assert roles in (["system", "user", "assistant"], ["user", "assistant"])
            for message in row["messages"]:
                assert message["content"].strip() and "\ufffd" not in message["content"]
                assert not set(message["content"]) & set(map(chr, range(9)))
    assert min(ends.values()) > 0, ends
