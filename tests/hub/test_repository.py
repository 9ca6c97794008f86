"""Bundles, cards and pushes against the Hub of tests/hub.py, over HTTP."""

import json
import struct
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from decksmith.core import cli
from decksmith.measure.results import claims, runs
from decksmith.train.hub import repository

ROOT = Path(__file__).resolve().parents[2]
REPORT = {
    "models": ["smol", "gpt"],
    "generation": {"temperature": 0.7, "author": {"attempts": 3}},
    "cost": 0.4321,
    "licence": "apache-2.0",
    "limits": ["Short <decks>"],
    "dedup": {"ngram": 0.5, "cosine": 0.8},
    "kept": 4,
    "limit": 900,
    "dropped": {"draft-check": {"overflow": 3}, "chat-overlap": 2},
}


def row(number, **more):
    themes, languages = ("seriph", "apple-basic"), ("en", "de")
    return {
        "id": f"s{number}",
        "messages": [
            {"role": "user", "content": f"Ask {number}"},
            {"role": "assistant", "content": f"# Deck {number}\n" * 60, "reasoning_content": "Why"},
        ],
        "seed": {
            "theme": themes[number % 2],
            "domain": "law",
            "language": languages[number > 2],
            "slides": 9,
        },
        "tokens": {
            "prompt": 100,
            "reasoning": 200,
            "deck": 300 + number,
            "total": 600 + number,
            "estimated": True,
        },
        "by": {},
    } | more


def save(folder, train, test, report=REPORT):
    folder.mkdir(exist_ok=True)
    for name, rows in (("train", train), ("test", test)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(found) + "\n" for found in rows))
    if report is not None:
        (folder / "report.json").write_text(json.dumps(report))
    return folder


@pytest.fixture
def data(tmp_path):
    return save(tmp_path / "data", [row(1), row(2), row(3)], [row(4)])


@pytest.fixture
def adapter(tmp_path):
    folder = tmp_path / "adapter"
    folder.mkdir()
    head = json.dumps(
        {
            "a.lora_A": {"dtype": "F32", "shape": [4, 10], "data_offsets": [0, 160]},
            "__metadata__": {"format": "pt"},
        }
    ).encode()
    (folder / "adapter_model.safetensors").write_bytes(
        struct.pack("<Q", len(head)) + head + bytes(160)
    )
    (folder / "adapter_config.json").write_text(
        json.dumps(
            {
                "peft_type": "LORA",
                "r": 4,
                "target_modules": ["q_proj", "k_proj"],
                "base_model_name_or_path": "lab/base",
            }
        )
    )
    return folder


def card(folder, kind="dataset"):
    return repository.bundle(folder, kind, "lab/decks").files["README.md"].read_text()


# What a folder holds

CARD = """---
pretty_name: decks
license: apache-2.0
language:
- de
- en
task_categories:
- text-generation
tags:
- slidev
- slides
- synthetic
configs:
- config_name: default
  data_files:
  - split: train
    path: train.jsonl
  - split: test
    path: test.jsonl
dataset_info:
  features:
  - name: id
    dtype: string
  - name: messages
    list:
    - name: role
      dtype: string
    - name: content
      dtype: string
    - name: reasoning_content
      dtype: string
  - name: seed
    struct:
    - name: theme
      dtype: string
    - name: domain
      dtype: string
    - name: language
      dtype: string
    - name: slides
      dtype: int64
  - name: tokens
    struct:
    - name: prompt
      dtype: int64
    - name: reasoning
      dtype: int64
    - name: deck
      dtype: int64
    - name: total
      dtype: int64
    - name: estimated
      dtype: bool
  - name: by
    struct: []
---

# decks

4 chats that ask for a slide deck and answer with one: the instructions, the request, then the deck as
[Slidev](https://sli.dev) markdown. Where a row has its author's reasoning, it is kept apart, in `reasoning_content`.

| Split | Rows | Clusters of near-duplicates |
| --- | ---: | ---: |
| train | 3 | 3 |
| test | 1 | 1 |

## Rows by theme

| Theme | train | test |
| --- | ---: | ---: |
| apple-basic | 2 | 0 |
| seriph | 1 | 1 |

## Rows by domain

| Domain | train | test |
| --- | ---: | ---: |
| law | 3 | 1 |

## Rows by language

| Language | train | test |
| --- | ---: | ---: |
| de | 1 | 1 |
| en | 2 | 0 |

## Length

| Tokens | Least | Median | 90 % | Most |
| --- | ---: | ---: | ---: | ---: |
| prompt | 100 | 100 | 100 | 100 |
| reasoning | 200 | 200 | 200 | 200 |
| deck | 301 | 303 | 304 | 304 |
| total | 601 | 603 | 604 | 604 |

Token counts are estimated from the number of bytes.

## How it was made

Written by: smol; gpt.

| Setting | Value |
| --- | --- |
| temperature | 0.7 |
| author.attempts | 3 |

Cost: 0.43 USD.

## Kept and dropped

Kept: 4 rows.

| Rule | Dropped |
| --- | ---: |
| draft-check.overflow | 3 |
| chat-overlap | 2 |

## Near-duplicates

| Threshold | Value |
| --- | ---: |
| ngram | 0.5 |
| cosine | 0.8 |

## Licence

apache-2.0

## Limits

- Short \\<decks\\>

---
Written by decksmith VERSION (hub-push) from the files beside it.
"""


def test_the_card_of_a_dataset_says_what_its_rows_and_its_report_say(data):
    from decksmith import __version__

    assert card(data) == CARD.replace("VERSION", __version__)


def test_what_the_report_does_not_say_is_not_on_the_card(data):
    (data / "report.json").unlink()
    made = repository.bundle(data, "dataset", "lab/decks")
    body = made.files["README.md"].read_text()
    assert [line for line in body.splitlines() if line.startswith("## ")] == [
        "## Rows by theme",
        "## Rows by domain",
        "## Rows by language",
        "## Length",
    ]
    assert not {"license", "synthetic", "USD"} & set(body.replace(":", " ").split())
    assert made.notes == [f'no licence is named; {data}/about.toml may: licence = "apache-2.0"']


def test_what_no_tool_knows_comes_from_about_toml_which_is_not_sent(data):
    (data / "about.toml").write_text(
        'licence = "cc-by-4.0"\nlimits = ["Written by a small model"]\n'
    )
    made = repository.bundle(data, "dataset", "lab/decks")
    body = made.files["README.md"].read_text()
    assert (
        "\nlicense: cc-by-4.0\n" in body
        and "\n- Written by a small model\n" in body
        and "smol; gpt" in body
    )
    assert "about.toml" not in made.files


def test_a_split_without_rows_is_not_named_on_the_card(data):
    body = card(save(data, [row(1, tokens=None)], []))
    assert "split: test" not in body and "## Length" not in body


def test_only_the_files_that_belong_to_the_kind_are_taken(data):
    (data / ".env").write_text("X")
    (data / "optimizer.pt").write_text("X")
    assert set(repository.bundle(data, "dataset", "lab/decks").files) == {
        "train.jsonl",
        "test.jsonl",
        "report.json",
        "README.md",
    }


@pytest.mark.parametrize(
    "train, test, said",
    [
        ([row(1)], [row(1)], "test.jsonl:1: s1: this id came before, in train.jsonl"),
        (
            [row(1, messages=[])],
            [],
            "train.jsonl:1: s1: no messages with role and content; draft-pack makes these rows",
        ),
        (
            [row(1), row(2, seed={"slides": "nine"})],
            [],
            "train.jsonl:2: s2: Could not convert 'nine' with type str: tried to convert to int64; "
            "load_dataset refuses a field of two types",
        ),
        (
            [{"id": "a b"}],
            [],
            "train.jsonl:1: no usable \"id\" (letters, digits, '.', '_', '~', '-'; at most 128)",
        ),
        ([], [], "train.jsonl: no rows"),
        (
            [row(1)],
            [row(2, overlap={"cluster": "s1", "near": []})],
            "test.jsonl:1: s2: a near-duplicate, of cluster s1, is in train.jsonl; "
            "chat-split keeps them together",
        ),
    ],
)
def test_rows_that_cannot_be_published_are_named_by_file_and_line(tmp_path, train, test, said):
    with pytest.raises(cli.BadData) as refused:
        repository.bundle(save(tmp_path / "data", train, test), "dataset", "lab/decks")
    assert str(refused.value) == f"{tmp_path}/data/{said}"


def test_a_folder_of_the_other_kind_is_named_as_such(adapter):
    with pytest.raises(cli.BadData, match=r"no train.jsonl \(for an adapter: --kind adapter\)"):
        repository.bundle(adapter, "dataset", "lab/decks")


def test_a_key_of_this_machine_is_not_published(data, monkeypatch):
    monkeypatch.setenv("OPENROUTER_API_KEY", "sk-or-123456")
    save(data, [row(1, seed={"theme": "my key is sk-or-123456"})], [])
    with pytest.raises(cli.BadData) as refused:
        repository.bundle(data, "dataset", "lab/decks")
    assert "train.jsonl: holds the value of OPENROUTER_API_KEY" in str(
        refused.value
    ) and "123456" not in str(refused.value)


def compared(folder, better):
    """What run-compare says of two models, the second better by `better`."""
    (folder / "scores.jsonl").write_text(
        "".join(
            json.dumps(
                {
                    "model": model,
                    "id": f"p{number}",
                    "scores": {"design": score + number % 2 / 2},
                    "rendered": True,
                    "error_kind": None,
                }
            )
            + "\n"
            for model, score in (("base", 2), ("tuned", 2 + better))
            for number in range(20)
        )
    )
    found = claims.compare(runs.load([folder / "scores.jsonl"]))
    (folder / "comparison.json").write_text(json.dumps(found))
    return found


def test_the_card_of_an_adapter_claims_what_the_claim_compiler_says(adapter):
    (adapter / "report.json").write_text(
        json.dumps({"recipe": {"steps": 80}, "data": {"repo": "lab/chats", "revision": "abc"}})
    )
    found = compared(adapter, 1)
    body = card(adapter, "adapter")
    assert found["headlines"] == [
        "The decks of base and those of tuned render for 20 of 20 requests each. Where both render, tuned gets 3.25 of 5, base 2.25 "
        "(difference 1.00 on 20 requests). Overall, counting failures as 1: tuned beats base by 1.00 [0.67, 1.19] on 20 prompts."
    ]
    assert f"**What was found**\n\n- {found['headlines'][0]}\n" in body
    for line in (
        "base_model: lab/base",
        "- lab/chats",
        "| adapted modules | k_proj, q_proj |",
        "| parameters | 40 |",
        "| steps | 80 |",
        "| revision | abc |",
    ):
        assert f"\n{line}\n" in body


def test_the_card_of_an_adapter_that_is_not_separated_says_so(adapter):
    found = compared(adapter, 0)
    assert "is not separated from" in found["headlines"][
        0
    ] and f"- {found['headlines'][0]}\n" in card(adapter, "adapter")


def test_the_card_says_what_limits_the_comparison(adapter):
    found = {**compared(adapter, 1), "caveats": ["base: 3 of 20 decks have no score; run again"]}
    (adapter / "comparison.json").write_text(json.dumps(found))
    assert f"- {found['headlines'][0]}\n" in card(adapter, "adapter")
    assert "**What limits this**\n\n- base: 3 of 20 decks have no score; run again\n" in card(
        adapter, "adapter"
    )


def test_an_adapter_without_a_comparison_claims_nothing(adapter):
    made = repository.bundle(adapter, "adapter", "lab/decks")
    assert "so this card claims nothing" in made.files["README.md"].read_text()
    assert "no comparison.json (run-compare --json): the card makes no claim" in made.notes


def test_a_base_model_named_by_a_path_is_left_off_the_card_and_said(adapter):
    (adapter / "adapter_config.json").write_text('{"base_model_name_or_path": "/somewhere/base"}')
    made = repository.bundle(adapter, "adapter", "lab/decks")
    assert "/somewhere/base" not in made.files["README.md"].read_text() and any(
        "/somewhere/base" in note for note in made.notes
    )


@pytest.mark.parametrize("cut", [-1, 30, 4, 0])
def test_an_adapter_that_is_cut_off_is_refused(adapter, cut):
    path = adapter / "adapter_model.safetensors"
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(cli.BadData, match="cut off"):
        repository.bundle(adapter, "adapter", "lab/decks")


# On the Hub


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hub")
    process = subprocess.Popen(
        [sys.executable, ROOT / "tests" / "hub.py", folder], stdout=subprocess.PIPE, text=True
    )
    yield SimpleNamespace(folder=folder, url=process.stdout.readline().strip())
    process.kill()
    process.wait()


@pytest.fixture
def there(server, monkeypatch, request):
    """The Hub with a repository name of the test's own, as ann."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    monkeypatch.setenv("HF_TOKEN", "hf_ann_writes")
    name = f"lab/t{abs(hash(request.node.name)) % 10**8}"
    return SimpleNamespace(
        repo=name,
        folder=server.folder / name,
        private=server.folder / ".private" / name,
        url=f"{server.url}/datasets/{name}",
        commits=lambda: (
            (server.folder / ".log").read_text().count(f"POST /api/datasets/{name}/commit/")
        ),
    )


def compare(folder, repo):
    found = repository.Repository(repository.bundle(folder, "dataset", repo))
    return found, *found.newest()


def push(folder, repo, public=False):
    found, revision, private = compare(folder, repo)
    repository.check_visibility(repo, private, public)
    return found.push(revision, public)


def test_a_push_makes_a_private_repository_and_one_commit_and_a_second_push_none(data, there):
    (data / "secret.txt").write_text("X")
    first = push(data, there.repo)
    assert first["url"] == there.url and len(first["revision"]) == 40
    assert there.private.exists() and there.commits() == 1
    assert {path.name for path in there.folder.iterdir()} == {
        ".gitattributes",
        "README.md",
        "report.json",
        "test.jsonl",
        "train.jsonl",
    }
    assert all(
        (there.folder / name).read_bytes() == (data / name).read_bytes()
        for name in ("train.jsonl", "test.jsonl", "report.json")
    )
    assert push(data, there.repo) == first and there.commits() == 1


def test_public_is_public(data, there):
    push(data, there.repo, public=True)
    assert not there.private.exists()


def test_the_files_and_where_they_would_go_are_named(data, there):
    push(data, there.repo)
    found, revision, private = compare(data, there.repo)
    first, *files, last = repository.described(found, revision, private)
    assert first == f"{there.url} (dataset, as ann): revision {revision[:12]}, private"
    assert [line.split()[0] for line in files] == sorted(found.made.files)
    assert last.endswith("README.md")


@pytest.mark.slow
def test_a_public_repository_is_not_written_when_private_was_asked(data, there):
    push(data, there.repo, public=True)
    save(data, [row(1)], [])
    with pytest.raises(
        cli.BadConfig,
        match="is there and public, but private is what was asked: --public if everybody may read it",
    ):
        push(data, there.repo)
    assert there.commits() == 1


def test_a_private_repository_is_not_written_when_public_was_asked(data, there):
    push(data, there.repo)
    with pytest.raises(cli.BadConfig, match="is there and private, but --public was asked"):
        push(data, there.repo, public=True)


def test_what_changed_there_after_the_comparison_is_not_overwritten(data, there):
    push(data, there.repo)
    save(data, [row(1)], [])
    found, revision, _ = compare(data, there.repo)
    (there.folder / "train.jsonl").write_text("theirs")
    with pytest.raises(cli.TryAgain, match="was changed by somebody else meanwhile"):
        found.push(revision, False)
    assert (there.folder / "train.jsonl").read_text() == "theirs"


def test_a_file_that_somebody_else_put_there_is_replaced(data, there):
    push(data, there.repo)
    (there.folder / "train.jsonl").write_text("theirs")
    push(data, there.repo)
    assert (there.folder / "train.jsonl").read_bytes() == (data / "train.jsonl").read_bytes()


@pytest.mark.parametrize(
    "token, said",
    [
        (
            "",
            "HF_TOKEN is not set; make a token with write permission on the Hub's page settings/tokens and export it",
        ),
        ("hf_un known", "HF_TOKEN holds characters that no token has"),
        (
            "hf_unknown",
            "URL does not know HF_TOKEN (401): make a token with write permission at URL/settings/tokens",
        ),
        (
            "hf_ann_reads",
            "ann (role read) may only read; make a token with write permission at URL/settings/tokens",
        ),
        (
            "hf_bob_writes",
            "bob (role write) may not do this with REPO (403); a token with write permission for lab is needed: URL/settings/tokens",
        ),
    ],
)
def test_a_token_that_will_not_do_is_told_apart_and_never_shown(
    data, there, server, monkeypatch, token, said
):
    monkeypatch.setenv("HF_TOKEN", token)
    with pytest.raises(cli.BadConfig) as refused:
        push(data, there.repo)
    assert str(refused.value) == said.replace("URL", server.url).replace("REPO", there.repo)
    assert not there.folder.exists()


def test_a_file_too_large_for_the_hub_is_named(data, there):
    save(data, [row(n) for n in range(800)], [])
    with pytest.raises(
        cli.BadData, match="the Hub refuses lab/.*train.jsonl: `a file may have 600000 bytes"
    ):
        push(data, there.repo)
    assert there.commits() == 0


def test_without_a_network_it_may_be_tried_again(data, there, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(cli.TryAgain, match="the Hub did not answer: .*run again"):
        push(data, there.repo)


def test_an_adapter_goes_to_a_model_repository(adapter, there, server):
    found = repository.Repository(repository.bundle(adapter, "adapter", there.repo))
    assert found.push(None, False)["url"] == f"{server.url}/{there.repo}"
    assert {path.name for path in (server.folder / "models" / there.repo).iterdir()} == {
        ".gitattributes",
        "README.md",
        "adapter_config.json",
        "adapter_model.safetensors",
    }
    assert (server.folder / ".private" / "models" / there.repo).exists()
