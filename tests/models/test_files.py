"""Decks that are read from a folder in place of a model's replies."""

import asyncio
import hashlib
import json
import subprocess

import pytest
from decksmith.core import cli
from decksmith.core.stream import Fault
from decksmith.models import asking, client, registry

DECK = "---\ntheme: default\n---\n\n# One\n"


@pytest.fixture
def folder(tmp_path):
    """A folder with p1.md and p2/deck.md, beside a file that no id may reach."""
    decks = tmp_path / "decks"
    (decks / "p2").mkdir(parents=True)
    (decks / "p1.md").write_text(DECK)
    (decks / "p2" / "deck.md").write_text(DECK + "\nTwo\n")
    (tmp_path / "secret.md").write_text("secret")
    return decks


def opened(path):
    return asking.DeckFolder(registry.Model("mine", f"files:{path}/", "mine"))


def read(path, record):
    return asyncio.run(opened(path).answer(record, []))


def test_a_deck_is_a_file_or_a_folder_named_by_the_prompt(folder):
    gen = read(folder, {"id": "p1"})
    assert gen["text"] == DECK and gen["finish_reason"] == "stop"
    assert gen["usage"]["completion_tokens"] == 0 and gen["usage"]["cost"] == 0
    assert gen["by"] == {"files": "p1.md", "sha256": hashlib.sha256(DECK.encode()).hexdigest()}
    assert gen["model"]["files"] == f"{folder}/"
    assert read(folder, {"id": "p2"})["by"]["files"] == "p2/deck.md"


def test_an_edited_deck_is_another_input(folder):
    before = asyncio.run(opened(folder).inputs({"id": "p1"}, []))
    (folder / "p1.md").write_text(DECK + "more")
    assert asyncio.run(opened(folder).inputs({"id": "p1"}, [])) != before
    assert asyncio.run(opened(folder).inputs({"id": "p9"}, []))["sha256"] is None


@pytest.mark.parametrize("ident", ["../secret", "p1/../../secret", "/etc/passwd", "", "a\nb"])
def test_an_id_that_is_a_path_is_refused(folder, ident):
    with pytest.raises(Fault) as fault:
        read(folder, {"id": ident})
    assert fault.value.error["kind"] == "infra" and fault.value.error["class"] == "bad-file"


def test_a_link_out_of_the_folder_is_refused(folder):
    (folder / "p3.md").symlink_to(folder.parent / "secret.md")
    with pytest.raises(Fault, match="link out of"):
        read(folder, {"id": "p3"})


def test_a_deck_without_end_is_refused(folder):
    (folder / "p3.md").write_bytes(b"x" * (asking.LARGEST + 1))
    with pytest.raises(Fault, match="at most"):
        read(folder, {"id": "p3"})


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(cli.Missing, match="nowhere is no folder"):
        opened(tmp_path / "nowhere")


def test_a_folder_answers_no_request(folder):
    model = registry.Model("mine", f"files:{folder}/", "mine")
    asked = client.Client(model)
    with pytest.raises(cli.BadConfig, match="is no endpoint"):
        asyncio.run(asked.ask([{"role": "user", "content": "x"}]))


def test_chat_generate_reads_a_folder_and_says_which_deck_is_missing(folder, tmp_path):
    rows = [{"id": ident, "messages": []} for ident in ("p1", "p2", "p9")]
    command = [cli.ROOT / "bin/chat-generate", "--base-url", f"files:{folder}", "--slug", "mine"]
    done = subprocess.run(
        [*command, "--run", tmp_path / "run"],
        input="".join(json.dumps(row) + "\n" for row in rows),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    one, two, nine = (json.loads(line)["gen"] for line in done.stdout.splitlines())
    assert one["text"] == DECK and two["text"].endswith("Two\n")
    assert nine["error"]["kind"] == "infra" and nine["error"]["class"] == "no-file"
    assert "p9: infra fault, no-file" in done.stderr


def test_the_reference_decks_are_those_of_the_default_run():
    rows = subprocess.run(
        [cli.ROOT / "bin/record-sample", "--protocol", "offline", "--shuffle", "--limit", "12"],
        stdin=open(cli.ROOT / "data/prompts.jsonl"),
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    decks = asking.DeckFolder(registry.model("reference"))
    for line in rows.splitlines():
        assert decks.find(json.loads(line)["id"])[1]
