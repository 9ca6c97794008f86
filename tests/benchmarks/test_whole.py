"""Benchmarks from their rows to a summary, asked of a scripted endpoint, all in one run. Rows of the Hub that this place
cannot reach are stood in for by rows of ours of their shape; the descriptions are the shipped ones but for the place of
the rows."""

import io
import json
import os
import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from decksmith.bench.benchmarks import tasks
from decksmith.core import cli
from PIL import Image
from scripted import Endpoint, calling, saying

sys.path.insert(0, str(Path(__file__).parent))
from test_lean import STAND_IN, STATEMENT  # noqa: E402

pytestmark = pytest.mark.slow

QUERY = "SELECT name FROM item ORDER BY price"
WRONG = ("bfcl-00002", "ruler-00004", "whole-minif2f-00002")  # are answered wrongly


def described(folder, name, source):
    """A shipped description under another name, with its rows elsewhere."""
    text = (cli.ROOT / f"assets/benchmarks/{name}.toml").read_text()
    changed = re.sub(r"^source = \{.*?\}$", f"source = {{ {source} }}", text, flags=re.M)
    assert changed != text
    (folder / f"whole-{name}.toml").write_text(changed)
    return f"whole-{name}"


def shop(folder):
    """Two rows that ask about a database, as BIRD and Spider have them."""
    path = folder / "dbs/shop/shop.sqlite"
    path.parent.mkdir(parents=True)
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE item (name TEXT, price REAL)")
        db.executemany("INSERT INTO item VALUES (?, ?)", [("tea", 2.5), ("salt", 1.0)])
    row = {"db_id": "shop", "question": "Name the items.", "SQL": QUERY, "query": QUERY}
    row |= {"evidence": "Items stand in item.", "difficulty": "simple"}
    (folder / "shop.jsonl").write_text(json.dumps(row) + "\n" + json.dumps(row))
    return 'file = "shop.jsonl", databases = "dbs"'


def pictures(folder):
    """A row as the Hub has MMMU-Pro's: pictures as features of a data set, choices as Python writes a list."""
    import datasets  # a second and a half, not for every collection

    features = {f"image_{n}": datasets.Image() for n in range(1, 8)}
    texts = ("id", "question", "options", "answer", "subject")
    features |= {key: datasets.Value("string") for key in texts}
    drawn = io.BytesIO()
    Image.new("RGB", (8, 6), "teal").save(drawn, "PNG")
    row = {"id": "x_1", "question": "What is <image 1>?", "subject": "Art", "answer": "B"}
    row["options"] = str(["a red field", 'a teal "field"', "it's a line"])
    row |= {f"image_{n}": None for n in range(2, 8)}
    row["image_1"] = {"bytes": drawn.getvalue(), "path": None}
    made = datasets.Dataset.from_list([row], features=datasets.Features(features))
    (folder / "hub/ten").mkdir(parents=True)
    made.to_parquet(folder / "hub/ten/test.parquet")
    named = 'configs: [{config_name: "standard (10 options)", data_files: [{split: test, path: ten/*}]}]'
    (folder / "hub/README.md").write_text(f"---\n{named}\n---\n")
    source = f'hub = "{folder}/hub", config = "standard (10 options)", split = "test"'
    return f'{source}, revision = "{"0" * 40}"'


def questions(folder):
    (folder / "simple.csv").write_text("metadata,problem,answer\n{},Which sea?,Black Sea\n")
    return 'file = "simple.csv"'


def proofs(folder):
    """Two statements, the second of which is answered by a proof that fails. `lean` is the stand-in of test_lean.py."""
    program = folder / "toolchain/bin/lean"
    program.parent.mkdir(parents=True)
    python = os.path.realpath(sys.executable)
    program.write_text(STAND_IN.format(python=python, prefix=str(folder / "toolchain")))
    program.chmod(0o755)
    rows = [
        {"name": name, "formal_statement": STATEMENT.replace("two", name) + " sorry"}
        for name in ("two", "three")
    ]
    (folder / "proofs.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return 'file = "proofs.jsonl"'


def answer(rows, body):
    """What the endpoint says: the right answer to a row, but to those of WRONG; to a judge's question, yes."""
    row = rows.get(json.dumps(body["messages"]))
    if row is None:
        return saying("Judgement: Yes")
    expected, bench = row["task"]["expected"], row["task"]["bench"].removeprefix("whole-")
    match bench:
        case "bfcl" if expected.get("possible") and row["id"] not in WRONG:
            wanted = [call for each in expected["possible"] for call in each.items()]
            given = [(n, {k: v[0] for k, v in all.items() if v[0] != ""}) for n, all in wanted]
            return calling(*((name, json.dumps(arguments)) for name, arguments in given))
        case "bfcl":
            return saying("None of these.")
        case "ruler":
            return saying(", ".join(expected[row["id"] in WRONG :]))
        case "bird" | "spider":
            return saying(f"```sql\n{QUERY}\n```")
        case "minif2f":
            tactic = "native_decide" if row["id"] in WRONG else "norm_num"
            return saying(
                f"```lean4\n{expected['statement']}\n  {tactic}\n```".replace("sorry", "")
            )
        case _:
            return saying(f"Answer: {expected}")


def stage(name, *flags, stdin, env):
    command = [sys.executable, cli.ROOT / "bin" / name, *flags]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, env=env)
    assert not done.returncode, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """(what was asked, the graded records, the summary), each by benchmark."""
    folder = tmp_path_factory.mktemp("whole")
    env = {"DECKSMITH_BENCHMARKS": str(folder), "PYTHONPATH": str(cli.ROOT / "lib")}
    env |= {"PATH": f"{folder}/toolchain/bin:{os.environ['PATH']}", "IMAGES": "off"}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in env.items():
            patch.setenv(name, value)
        databases = shop(folder)
        names = [described(folder, name, databases) for name in ("bird", "spider")]
        names.append(described(folder, "mmmu-pro", pictures(folder)))
        names.append(described(folder, "simpleqa", questions(folder)))
        names.append(described(folder, "minif2f", proofs(folder)))
        rows = [row for name in names for row in tasks.prepare(name, folder / "kept")]
        rows += list(tasks.prepare("ruler", folder / "kept"))[:7]
        calls = list(tasks.prepare("bfcl", folder / "kept"))
        kinds = ("parallel_multiple", "irrelevance")
        rows += calls[:3] + [row for row in calls if row["task"]["subset"] in kinds][::60]
        for row in rows:
            row["messages"] = tasks.messages(row)
    by = {json.dumps(row["messages"]): row for row in rows}
    with Endpoint() as endpoint:
        endpoint.script = lambda n, body: (200, answer(by, body))
        out, all = "".join(json.dumps(row) + "\n" for row in rows), os.environ | env
        asks = ["--base-url", endpoint.url, "--slug", "m", "--run", str(folder / "run")]
        out = stage("chat-generate", *asks, stdin=out, env=all)
        judge = ["--judge-base-url", endpoint.url, "--judge-model", "m"]
        out = stage("bench-grade", *judge, stdin=out, env=all)
    found = {}
    for line in out.splitlines():
        record = json.loads(line)
        found.setdefault(record["task"]["bench"], []).append(record)
    return by, found, json.loads(stage("bench-summarize", stdin=out, env=all))


@pytest.mark.long("tests/make/test_bench.py::test_two_questions_are_asked_graded_and_summarized")
@pytest.mark.parametrize(
    "name, rows",
    [("bfcl", 11), ("ruler", 7), ("bird", 2), ("spider", 2), ("mmmu-pro", 1), ("simpleqa", 1)]
    + [("minif2f", 2)],
)
def test_what_is_answered_rightly_is_right_from_the_rows_to_the_summary(whole, name, rows):
    _, found, summary = whole
    own = name if name in found else f"whole-{name}"
    assert len(found[own]) == rows
    wrong = [record["id"] for record in found[own] if record["grade"]["verdict"] != "right"]
    assert wrong == [ident for ident in WRONG if ident.startswith(own)]
    assert own in json.dumps(summary)


@pytest.mark.long(
    "tests/benchmarks/test_calls.py::test_calls_are_right_that_have_one_of_the_right_values_for_each_argument"
)
def test_functions_without_code_are_called_once_and_not_run(whole):
    _, found, _ = whole
    for record in found["bfcl"]:
        assert len(record["gen"].get("calls", ())) <= 1
    assert sum("calls" in record["gen"] for record in found["bfcl"]) >= 5


@pytest.mark.long(
    "tests/bin/bench-prompt.bats::a row gets the messages of its benchmark's template and keeps the rest"
)
def test_the_model_sees_the_tables_and_the_picture(whole):
    asked = whole[0]
    (bird, *_) = [text for text in asked if "Items stand in item" in text]
    assert "CREATE TABLE item" in bird
    (seen,) = [json.loads(text) for text in asked if "<image 1>" in text]
    text, picture = seen[0]["content"]
    assert 'B. a teal "field"' in text["text"]
    assert picture["image_url"]["url"].startswith("data:image/png;base64,iVBOR")


@pytest.mark.long(
    "tests/bin/bench-grade.bats::a reply is right, wrong or no answer, and a cut one is named"
)
def test_a_part_of_a_long_answer_has_its_share(whole):
    assert whole[1]["ruler"][3]["grade"]["score"] == 0.75


def test_patches_go_to_their_own_harness_by_the_line_of_the_page(tmp_path, monkeypatch):
    monkeypatch.setenv("DECKSMITH_BENCHMARKS", str(tmp_path))
    row = {"problem_statement": "It fails.", "repo": "o/n", "base_commit": "c"}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row | {"instance_id": "o__n-1"}))
    own = described(tmp_path, "swe-bench-verified", 'file = "rows.jsonl"')
    (record,) = tasks.prepare(own, tmp_path / "kept")
    assert "issue of the repository o/n at commit c" in tasks.messages(record)[0]["content"]
    record["gen"] = {"text": "So:\n```diff\n--- a/x\n+++ b/x\n```\n", "model": {"slug": "m"}}
    page = (cli.ROOT / "docs/benchmarks.md").read_text()
    program = re.search(r"jq -c '(\{instance_id.*?)'", page, re.S)[1]
    command = ["jq", "-c", program]
    out = subprocess.run(command, input=json.dumps(record), capture_output=True, text=True).stdout
    patch = {"model_patch": "--- a/x\n+++ b/x\n"}
    assert json.loads(out) == {"instance_id": "o__n-1", "model_name_or_path": "m", **patch}
    text = json.dumps(record | {"messages": []})
    command = [sys.executable, cli.ROOT / "bin/bench-grade"]
    env = os.environ | {"PYTHONPATH": str(cli.ROOT / "lib")}
    done = subprocess.run(command, input=text, capture_output=True, text=True, env=env)
    assert done.returncode == 65
    assert "is graded by its own harness: docs/benchmarks.md" in done.stderr
