"""Secrets by value: whatever writes text masks them, and job-submit neither keeps nor sends any."""

import io
import json
import os
import subprocess
import tempfile
from pathlib import Path

import pytest
from decksmith.core import cli, masking, stream

KEY = "sk-live-0123456789abcdef"


@pytest.fixture
def key(monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", KEY)
    monkeypatch.setattr(masking, "_added", {})
    masking._forms.cache_clear()
    yield KEY
    masking._forms.cache_clear()


def test_records_journals_and_files_hold_no_secret(key, tmp_path):
    said = {"id": "a", "error": {"message": f"invalid key {key} given"}}
    assert json.loads(stream.dumps(said))["error"]["message"] == "invalid key [SOME_API_KEY] given"
    journal = stream.Journal(tmp_path / "journal.jsonl", "gen")
    journal.put("a", "0" * 64, said)
    journal.close()
    stream.write(tmp_path / "page.html", f"<p>{key}")
    for path in tmp_path.iterdir():
        assert key not in path.read_text() and "[SOME_API_KEY]" in path.read_text()


def test_a_secret_is_found_as_it_stands_inside_of_json(monkeypatch, key):
    masking.add('quo"ted\\secret', "ODD")
    assert stream.dumps({"id": "a", "x": 'see quo"ted\\secret'}) == b'{"id":"a","x":"see [ODD]"}'


def test_stderr_holds_no_secret_either_whoever_writes(key):
    inner = io.StringIO()
    masked = masking.Stream(inner)
    print(f"Traceback: Authorization: Bearer {key}", file=masked)
    masked.writelines([f"{key}\n"])
    assert key not in inner.getvalue() and inner.getvalue().count("[SOME_API_KEY]") == 2


def test_words_files_and_short_values_are_no_secrets(monkeypatch, key, tmp_path):
    path = tmp_path / "a-file-that-holds-the-key"
    path.touch()
    monkeypatch.setenv("DB_PASSWORD", "password")
    monkeypatch.setenv("SSL_KEY", str(path))
    monkeypatch.setenv("KEYBOARD_LAYOUT_OF_MINE", "abcdefghijklmnopqrstuvwxyz")
    masking._forms.cache_clear()
    text = f"password {path} abcdefghijklmnopqrstuvwxyz"
    assert masking.mask(text) == text
    masking.add("EMPTY", "LOCAL_KEY")
    assert masking.mask("EMPTY") == "EMPTY"


def test_the_password_of_a_proxy_is_masked_as_it_is_written_and_as_it_is_meant(monkeypatch, key):
    monkeypatch.setenv("https_proxy", "http://me:pass%2Fword1@proxy:3128")
    masking._forms.cache_clear()
    assert masking.mask("pass%2Fword1 pass/word1") == "[https_proxy] [https_proxy]"
    assert masking.shown("HTTP_PROXY", "http://me:other-pw@proxy:1") == "http://me:(set)@proxy:1"
    assert masking.shown("HF_TOKEN", "x") == "(set)" and masking.shown("NOTE", "x") == "x"


@pytest.mark.slow
def test_a_key_that_an_endpoint_echoes_is_written_nowhere(tmp_path):
    asked = {"id": "a", "messages": [{"role": "user", "content": "hi"}]}
    python, root = cli.ROOT / ".venv/bin/python3", cli.ROOT
    served = [python, root / "tests/endpoint.py", "--plan", "401=1"]
    with subprocess.Popen(served, stdout=subprocess.PIPE, text=True) as endpoint:
        ask = [
            root / "bin/chat-generate",
            "--base-url",
            endpoint.stdout.readline().strip(),
            "--slug",
            "m",
            "--key-env",
            "ODDLY_NAMED",
            "--run",
            tmp_path / "run",
        ]
        done = subprocess.run(
            ask,
            input=json.dumps(asked),
            capture_output=True,
            text=True,
            env={**os.environ, "ODDLY_NAMED": "hunter2hunter2", "IMAGES": "off"},
        )
        endpoint.kill()
    assert "by Bearer [ODDLY_NAMED]" in done.stdout and "by Bearer [ODDLY_NAMED]" in done.stderr
    kept = [path.read_text() for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert "hunter2" not in "".join([done.stdout, done.stderr, *kept])


def test_no_secret_goes_into_a_job_by_argument(tmp_path, key):
    from decksmith.train.training.jobs import Job

    for given in (f"HF_TOKEN={'x' * 20}", f"NOTE=see {key}"):
        with pytest.raises(cli.BadConfig, match=r"a secret does not travel .* \.env") as refused:
            Job(cli.ROOT / "slurm/bench.sbatch", tmp_path, env=[given])
        assert key not in str(refused.value) and "xxxx" not in str(refused.value)


@pytest.mark.parametrize("depth", [0, 38, 90])
def test_the_sockets_of_ssh_lie_in_a_folder_of_ones_own(tmp_path, monkeypatch, depth):
    from decksmith.train.training.slurm_hosts import SlurmHost

    if depth:
        (tmp_path / ("x" * depth)).mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / ("x" * depth)))
    place = SlurmHost("login")
    option = next(word for word in place.ssh if word.startswith("ControlPath="))
    folder = Path(option.removeprefix("ControlPath=")).parent
    assert folder.stat().st_mode & 0o077 == 0
    assert len(option) + len(".XXXXXXXXXXXXXXXX") < 104 + len("ControlPath=")
    place.close()
    assert not folder.exists()
