"""Model servers that run here: found, listed, entered into the registry, asked. tests/endpoint.py stands in for Ollama."""

import json
import os
import subprocess
import sys
import urllib.request

import pytest
from decksmith.core import cli
from decksmith.models import registry

sys.path.insert(0, str(cli.ROOT / "make"))
import doctor  # noqa: E402
import local_servers  # noqa: E402


@pytest.fixture
def ollama(monkeypatch, tmp_path):
    """The stand-in's address, which OLLAMA_HOST names as Ollama takes it."""
    command = [sys.executable, cli.ROOT / "tests/endpoint.py", "--model", "qwen3:4b"]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    address = running.stdout.readline().strip().removesuffix("/v1")
    monkeypatch.setenv("OLLAMA_HOST", address.removeprefix("http://"))
    monkeypatch.setenv("DECKSMITH_MODELS", str(tmp_path / "known"))
    yield address
    running.kill()
    running.wait()


@pytest.mark.parametrize(
    ("said", "address"),
    [
        ("", "http://127.0.0.1:11434"),
        ("0.0.0.0", "http://127.0.0.1:11434"),
        ("box:5000", "http://box:5000"),
        ("http://box:5000/", "http://box:5000"),
        ("https://box", "https://box:443"),
    ],
)
def test_ollama_is_sought_where_its_own_variable_says(monkeypatch, said, address):
    monkeypatch.setenv("OLLAMA_HOST", said)
    assert local_servers.ollama_address() == address


def test_what_does_not_answer_or_answers_otherwise_lists_nothing(ollama):
    with urllib.request.urlopen(f"{ollama}/") as answer:
        assert answer.read().startswith(b"a stand-in for Ollama")
    assert local_servers.listed(f"{ollama}/v1/") == ["qwen3:4b"]
    assert local_servers.listed(f"{ollama}/elsewhere") is None
    assert local_servers.listed("http://127.0.0.1:9") is None


def test_the_doctor_offers_a_server_that_runs_and_says_what_to_type(ollama, monkeypatch, capsys):
    monkeypatch.setattr(local_servers, "LLAMA_SERVER", ollama)
    doctor.neighbours(report := doctor.Report())
    assert capsys.readouterr().out.splitlines() == [
        f"ok   Ollama         {ollama} has qwen3:4b; to ask one: make baseline MODEL=ollama/qwen3:4b",
    ]
    monkeypatch.setenv("OLLAMA_HOST", "http://127.0.0.1:9")
    doctor.neighbours(report)
    assert capsys.readouterr().out.splitlines() == [
        "-    Ollama         http://127.0.0.1:9 does not answer   mend: ollama serve",
    ]
    assert report.lacking == 0


def test_a_model_of_ollama_is_entered_by_make_and_asked_by_its_name(ollama):
    env = os.environ | {"IMAGES": "off", "PYTHON": sys.executable}
    entered = subprocess.run(
        ["make", "-s", "run-check", "MODEL=ollama/qwen3:4b", "YES=1"],
        cwd=cli.ROOT,
        env=env,
        capture_output=True,
        text=True,
    )
    assert "is asked as ollama-qwen3-4b from now on" in entered.stderr
    entry = registry.model("ollama-qwen3-4b")
    assert (entry.base_url, entry.slug, entry.label) == (
        f"{ollama}/v1",
        "qwen3:4b",
        "qwen3:4b (ollama)",
    )
    assert entry.price == {"prompt": 0, "completion": 0}
    row = json.dumps({"id": "p1", "messages": [{"role": "user", "content": "Tides"}]})
    asked = subprocess.run(
        [cli.ROOT / "bin/chat-generate", "--model", "ollama-qwen3-4b"],
        input=row,
        env=env,
        capture_output=True,
        text=True,
    )
    gen = json.loads(asked.stdout)["gen"]
    assert gen["model"]["slug"] == "qwen3:4b" and gen["text"].startswith("---\ntheme: default")


def test_the_doctor_says_why_a_model_does_not_answer():
    said = '{"id":"x","gen":{"error":{"message":"http://127.0.0.1:9/v1: Cannot connect"}}}\nchat-generate: 1 fault'
    assert doctor._why(75, said) == "http://127.0.0.1:9/v1: Cannot connect"
    assert doctor._why(0, said) == "http://127.0.0.1:9/v1: Cannot connect"  # a model's own fault
    assert doctor._why(78, "first\nchat-generate: m needs a key") == "chat-generate: m needs a key"
    assert doctor._why(0, '{"id":"x","gen":{"text":"yes"}}') is None
