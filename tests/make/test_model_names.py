"""Other ways of saying a model (make/model_names.py): what a word means, what is written, and that nothing else is."""

import importlib.util
import json
import os
import pty
import random
import re
import subprocess
import sys
import threading
import tomllib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import fuzz
import pytest
from decksmith.core import cli
from decksmith.models import registry

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
KNOWN = tomllib.loads((ROOT / "assets/models.toml").read_text())


def _module(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / f"make/{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


names = _module("model_names")
local_servers = names.local_servers


@pytest.fixture
def server():
    """start(*ids) is a server that lists these models; its address. `asked` has the paths."""
    running, asked = [], []

    def start(*ids, raw=None):
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                asked.append(self.path)
                listed = json.dumps({"data": [{"id": one} for one in ids]}).encode()
                self.send_response(200 if self.path == "/v1/models" else 404)
                self.end_headers()
                self.wfile.write(listed if raw is None else raw)

            def log_message(self, *_):
                pass

        running.append(ThreadingHTTPServer(("127.0.0.1", 0), Handler))
        threading.Thread(target=running[-1].serve_forever, args=(0.05,), daemon=True).start()
        return f"http://127.0.0.1:{running[-1].server_port}"

    start.asked = asked
    yield start
    for one in running:
        one.shutdown()
        one.server_close()


@pytest.fixture
def ollama(server, monkeypatch):
    address = server("llama3.2:latest", "qwen3:4b", "hf.co/Owner/Some.Model-GGUF:Q4_K_M")
    monkeypatch.setenv("OLLAMA_HOST", address)
    return address


OPENAI, ROUTER = "https://api.openai.com/v1", "https://router.huggingface.co/v1"
GEMINI = "https://generativelanguage.googleapis.com/v1beta/openai"
AZURE = "https://${AZURE_OPENAI_RESOURCE}.openai.azure.com/openai/v1"


@pytest.mark.parametrize(
    ("word", "name", "base_url", "slug", "key"),
    [
        ("openai/gpt-5.5", "openai-gpt-5.5", OPENAI, "gpt-5.5", "OPENAI_API_KEY"),
        (
            "openai/ft:gpt-4.1:org::Ab9",
            "openai-ft-gpt-4.1-org-Ab9",
            OPENAI,
            "ft:gpt-4.1:org::Ab9",
            "OPENAI_API_KEY",
        ),
        ("gemini/gemini-3-pro", "gemini-gemini-3-pro", GEMINI, "gemini-3-pro", "GEMINI_API_KEY"),
        ("azure/Team_GPT", "azure-Team_GPT", AZURE, "Team_GPT", "AZURE_OPENAI_API_KEY"),
        (
            "hf/Qwen/Qwen3-8B:fastest",
            "hf-Qwen-Qwen3-8B-fastest",
            ROUTER,
            "Qwen/Qwen3-8B:fastest",
            "HF_TOKEN",
        ),
        (
            "openrouter/a/b:free",
            "openrouter-a-b-free",
            "https://openrouter.ai/api/v1",
            "a/b:free",
            "OPENROUTER_API_KEY",
        ),
        (
            "http://gpu7:8000/v1#meta/Llama-3",
            "gpu7-8000-meta-Llama-3",
            "http://gpu7:8000/v1",
            "meta/Llama-3",
            None,
        ),
        ("http://gpu7:8000#m", "gpu7-8000-m", "http://gpu7:8000/v1", "m", None),
        ("http://gpu7/v1/chat/completions#m", "gpu7-m", "http://gpu7/v1", "m", None),
        (
            "http://[::1]:8000/v1/#my%20model",
            "1-8000-my-model",
            "http://[::1]:8000/v1",
            "my model",
            None,
        ),
        (
            "https://MY_API_KEY@h.example/api/v3#m",
            "h.example-m",
            "https://h.example/api/v3",
            "m",
            "MY_API_KEY",
        ),
        (f"{OPENAI}#gpt-5.5", "api.openai.com-gpt-5.5", OPENAI, "gpt-5.5", "OPENAI_API_KEY"),
        ("http://h/v1#$(touch%20x)", "h-touch-x", "http://h/v1", "$(touch x)", None),
        (
            "http://h/v1#../../etc/passwd",
            "h-etc-passwd",
            "http://h/v1",
            "../../etc/passwd",
            None,
        ),
        (
            "anthropic/../../x",
            "anthropic-x",
            "https://api.anthropic.com/v1",
            "../../x",
            "ANTHROPIC_API_KEY",
        ),
        ("openai/GPT🙂模型", "openai-GPT", OPENAI, "GPT🙂模型", "OPENAI_API_KEY"),
    ],
)
def test_a_word_means_an_address_a_name_there_and_a_key_s_variable(word, name, base_url, slug, key):
    found, entry = names.find(word, KNOWN)
    assert (found, entry["base_url"], entry["slug"], entry.get("key_env")) == (
        name,
        base_url,
        slug,
        key,
    )
    assert "price" not in entry and re.fullmatch(r"[\w.-]+", found, re.ASCII)


def test_a_model_of_ollama_is_taken_where_it_is_there_and_costs_nothing(ollama):
    found, entry = names.find("ollama/llama3.2", KNOWN)
    assert (found, entry["base_url"], entry["slug"]) == (
        "ollama-llama3.2",
        f"{ollama}/v1",
        "llama3.2",
    )
    assert entry["price"] == names.FREE and entry["jobs"] == 1
    assert names.find("ollama/qwen3:4b", KNOWN)[0] == "ollama-qwen3-4b"
    assert names.find("ollama/hf.co/Owner/Some.Model-GGUF:Q4_K_M", KNOWN)[1]["slug"].endswith(
        "Q4_K_M"
    )
    with pytest.raises(
        names.NoModel,
        match="has llama3.2:latest, qwen3:4b, .* and not 'llama9'; fetch it: ollama pull",
    ):
        names.find("ollama/llama9", KNOWN)


def test_an_address_alone_means_the_only_model_of_its_server(server):
    assert names.find(f"{server('one')}/v1", KNOWN)[1]["slug"] == "one"
    assert names.find(f"{server('one')}", KNOWN)[1]["slug"] == "one"
    several = server(*(f"m{n}" for n in range(40)))
    with pytest.raises(
        names.NoModel, match=r"has m0, m1, .*, m11 \.\.; name one: .*/v1#NAME"
    ) as said:
        names.find(f"{several}/v1", KNOWN)
    assert "m12" not in str(said.value)
    with pytest.raises(names.NoModel, match="has no model; name one"):
        names.find(f"{server()}/v1", KNOWN)
    for hostile in (
        b"",
        b"[" * 100_000,
        b'{"data": 3}',
        b"\xff\xfe",
        b'{"data": [{"id": "\\u001b[2J"}]}',
    ):
        with pytest.raises(names.NoModel, match="does not list its models|lacks the model's name"):
            names.find(f"{server(raw=hostile)}/v1", KNOWN)


def test_what_answers_without_end_is_left(server, monkeypatch):
    monkeypatch.setattr(local_servers, "LONGEST", 1 << 16)
    endless = b'{"data": [' + b" " * (1 << 20)
    assert local_servers.listed(server(raw=endless)) is None


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("cohere/command", "says no model; type one of openai/NAME, anthropic/NAME, "),
        ("../secret", "says no model; type one of"),
        ("/etc/passwd", "says no model; type one of"),
        ("openai/", "lacks the model's name"),
        ("openai/" + "x" * 201, "at most 200 characters"),
        ("openai/a\x1b[31m", "lacks the model's name"),
        ("hf/owner", "llama-server -hf OWNER/NAME, then type MODEL=http://127.0.0.1:8080"),
        ("hf/unsloth/Qwen3-4B-GGUF", "router, which serves no GGUF file"),
        ("ftp://h/v1#m", "is no address of a server; write http://HOST:8000/v1#NAME"),
        ("http://h:99999/v1#m", "is no address"),
        ("http://[::1/v1#m", "is no address"),
        ("http:///v1#m", "is no address"),
        ("http://h/v1?api-version=1#m", "is no address"),
        ("http://h/../v1;x#m", "is no address"),
        ("http://sk-12345@h/v1#m", "a key or password in it: that stands in .env"),
        ("http://MY_API_KEY:pw@h/v1#m", "a key or password in it"),
        ("openai/sk-proj-0123456789abcdefghijklmn", "what looks like a key stands in it"),
        (
            "http://127.0.0.1:9/v1",
            "http://127.0.0.1:9/v1 does not list its models; start the server, or name one",
        ),
    ],
)
def test_what_says_no_model_is_one_sentence_with_what_to_type(word, said, monkeypatch):
    with pytest.raises(names.NoModel) as refused:
        names.find(word, KNOWN)
    assert said in str(refused.value) and "\n" not in str(refused.value)
    assert "sk-12345" not in str(refused.value)


def test_an_entry_that_is_there_is_found_again_and_two_models_never_share_a_name(tmp_path):
    known = dict(KNOWN)
    assert names.find("openai/gpt-5.4", known) == ("openai", None)
    assert names.find("openrouter/z-ai/glm-5.1", known) == ("glm-5.1", None)
    words = [
        "openai/a:b",
        "openai/a-b",
        "openai/a/b",
        "openai/模型",
        "openai/型",
        "http://h/v1#a",
        "https://h/v1#a",
    ]
    for word in words:
        name, entry = names.find(word, known)
        assert name not in known
        known[name] = tomllib.loads(names.write(name, entry, tmp_path).read_text())[name]
    assert len(known) == len(KNOWN) + len(words)
    for word in words:
        assert names.find(word, known)[1] is None
    assert names.find("http://h/v1", known)[0] == names.find("http://h/v1#a", known)[0]
    assert not [*tmp_path.glob(".*")]


def test_the_registry_reads_what_was_written(tmp_path, monkeypatch):
    monkeypatch.setenv("DECKSMITH_MODELS", str(tmp_path))
    monkeypatch.setenv("AZURE_OPENAI_RESOURCE", "team-9")
    for word in ("azure/dep", 'http://h/v1#a"b\\c%20d', "openrouter/x/y", "hf/a/b"):
        names.write(*names.find(word, KNOWN), tmp_path)
    entry = registry.model("azure-dep")
    assert entry.base_url == "https://team-9.openai.azure.com/openai/v1" and entry.slug == "dep"
    assert entry.drop == ["temperature", "top_p"] and entry.rename == {
        "max_tokens": "max_completion_tokens"
    }
    assert registry.model("h-a-b-c-d").slug == 'a"b\\c d'
    assert registry.model("openrouter-x-y").reports_cost
    with pytest.raises(cli.BadConfig, match="make model MODEL='openai/zzz' writes the entry"):
        registry.model("openai/zzz")


# 2,000 words that people, programs and attackers might type


PIECES = [
    *"openai anthropic gemini azure openrouter hf ollama http https :// / // ../ .. ./ # @ : ; % %00 %0a %2e%2e%2f".split(),
    *"$(touch${IFS}x) `id` ${HOME} '\"; | & > < * ? [ ] ~ + = \\ -rf --flag \x00 \x1b[2J \x7f é 模型 🙂 \ud800 \u202e".split(" "),
    *"gpt-5.4 llama3.2:3b Qwen/Qwen3-8B localhost 127.0.0.1:9 [::1] h:99999 h:-1 h:x API_KEY HF_TOKEN sk-abc9efghijklmnopqrstuvwxyz v1 NUL CON .toml".split(),
    "\n", "\t", " ", "x" * 300, "..%2f" * 30,
]  # fmt: skip
SEEDS = [
    "openai/gpt-5.4", "ollama/llama3.2:3b", "hf/owner/name", "http://host:8000/v1", "http://host:8000/v1#name",
    "https://MY_API_KEY@h.example/api/v1#a%20b", "azure/dep", "anthropic/claude", "openrouter/a/b:free", "smol",
]  # fmt: skip


def _mutated(dice):
    word = dice.choice(SEEDS)
    for _ in range(dice.randint(1, 4)):
        at = dice.randint(0, len(word))
        cut = dice.choice((0, 0, 1, 3))
        word = word[:at] + dice.choice(PIECES) + word[at + cut :]
    return word


@pytest.fixture
def given(monkeypatch, tmp_path):
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("DECKSMITH_MODELS", str(tmp_path / "models"))
    return _module("given")


@pytest.mark.fuzz
def test_of_drawn_words_none_is_a_traceback_and_nothing_is_written_elsewhere(
    given, tmp_path, monkeypatch, capsys
):
    dice = random.Random(34)
    monkeypatch.setenv("YES", "1")
    lists = [None, [], ["a"], ["../b", "c"], ["x" * 999], ["\x1b]0;"], ["d e"], ["llama3.2:3b"]]
    monkeypatch.setattr(local_servers, "listed", lambda *_: dice.choice(lists))
    before = {
        *subprocess.run(
            ["git", "status", "--porcelain"], capture_output=True, text=True
        ).stdout.splitlines()
    }
    refused = entered = 0
    for number in range(fuzz.times(2000)):
        if number % 200 == 0:  # reading many entries again and again takes long
            monkeypatch.setenv("DECKSMITH_MODELS", str(tmp_path / f"models-{number}"))
        word = _mutated(dice)
        status = given.main([f"MODEL={word}"])
        said = capsys.readouterr().out
        assert status in (0, 78), word
        if status:
            refused += 1
            assert said.count("\n") == 1 and "Traceback" not in said and "\x1b" not in said, (
                word,
                said,
            )
        else:
            entered += said.count("is entered into")
            assert given.main(["--named", word]) == 0
            assert re.fullmatch(r"[\w. -]*\n", capsys.readouterr().out, re.ASCII), word
    files = [path for folder in tmp_path.iterdir() for path in folder.iterdir()]
    assert len(files) == entered > 4 and refused > 20
    for path in files:
        assert re.fullmatch(r"\w[\w.-]*\.toml", path.name, re.ASCII) and path.is_file()
        assert not re.search(r"\bsk-abc9efghijklmnopqrstuvwxyz", path.read_text())
    for folder in tmp_path.iterdir():
        monkeypatch.setenv("DECKSMITH_MODELS", str(folder))
        assert {path.stem for path in folder.iterdir()} <= {*registry.models()}
    after = {
        *subprocess.run(
            ["git", "status", "--porcelain"], capture_output=True, text=True
        ).stdout.splitlines()
    }
    assert after == before


# Through make


def make(*words, answer=None, **env):
    """(status, what was said) of make; `answer`: typed at a terminal."""
    env = {**os.environ, "PYTHON": sys.executable, **env}
    for name in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "OPENAI_API_KEY", "YES"):
        env.pop(name, None) if name not in words else None
    command = ["make", "-s", "run-check", *words]
    if answer is None:
        done = subprocess.run(
            command, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        return done.returncode, done.stdout + done.stderr
    child, terminal = pty.fork()
    if not child:
        os.chdir(ROOT)
        os.execvpe("make", command, env)
    said = b""
    while b"[y/N]" not in said and (piece := _read(terminal)):
        said += piece
    os.write(terminal, answer)
    while piece := _read(terminal):
        said += piece
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), said.decode()


def _read(terminal):
    try:
        return os.read(terminal, 4096)
    except OSError:  # its other end is closed
        return b""


def test_a_terminal_is_asked_and_sees_the_entry_that_would_be_written(tmp_path):
    env = {"DECKSMITH_MODELS": str(tmp_path / "m"), "OPENAI_API_KEY": "sk-x"}
    status, said = make("MODEL=openai/gpt-5.5", answer=b"n\n", **env)
    assert status == 2 and "Nothing was made" in said and not (tmp_path / "m").exists()
    for line in (
        "address https://api.openai.com/v1",
        "model gpt-5.5",
        "key in OPENAI_API_KEY, which is not set",
        "price unknown",
    ):
        assert line in said
    status, said = make("MODEL=openai/gpt-5.5", answer=b"y\n", **env)
    assert (status, [*(tmp_path / "m").iterdir()]) == (0, [tmp_path / "m/openai-gpt-5.5.toml"]), (
        said
    )
    assert make("MODEL=openai/gpt-5.5", **env)[0] == 0  # an ordinary name from then on
    assert make("MODEL=openai-gpt-5.5", **env)[0] == 0


def test_without_a_terminal_the_sentence_has_the_command_and_yes_agrees(tmp_path):
    env = {"DECKSMITH_MODELS": str(tmp_path)}
    status, said = make("MODEL=http://gpu:8000/v1#m", **env)
    assert (
        status == 2 and "Type the same command with YES=1" in said and "asked as gpu-8000-m" in said
    )
    assert make("MODEL=http://gpu:8000/v1#m", "YES=0", **env)[0] == 2 and not [*tmp_path.iterdir()]
    status, said = make(
        "MODEL=smol http://gpu:8000/v1#m", "JUDGE=azure/d", "AUTHOR=llm:hf/a/b", "YES=1", **env
    )
    assert status == 0 and said.count("is entered into") == 3
    assert sorted(path.stem for path in tmp_path.iterdir()) == ["azure-d", "gpu-8000-m", "hf-a-b"]
    shown = ["--eval", "shown:;@echo $(MODEL) $(JUDGE) $(AUTHOR) $(RUNS)", "shown"]
    command = [
        "make",
        "-s",
        *shown,
        "MODEL=smol http://gpu:8000/v1#m",
        "JUDGE=azure/d",
        "AUTHOR=llm:hf/a/b",
        "LIMIT=1",
    ]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **env}, capture_output=True, text=True
    )
    assert done.stdout.split() == [
        *("smol", "gpu-8000-m", "azure-d", "llm:hf-a-b"),
        *("results/runs/smol/offline", "results/runs/gpu-8000-m/offline"),
    ], done.stderr


@pytest.mark.parametrize(
    "word",
    [
        "$(shell touch {0})",
        "smol' ; touch {0} ; '",
        "$$(touch {0})",
        "../../{0}",
        "openai/a;touch {0}",
        "http://h/v1#`touch {0}`",
        "%",
        *(
            pytest.param(word, marks=pytest.mark.long)
            for word in (
                "`touch {0}`",
                "smol; touch {0}",
                "ollama/$(touch {0})",
                "llama3.2:3b",
                "a%b",
                "#",
                "a=b",
                "-x",
                "é模型",
                "a+b",
            )
        ),
    ],
)
def test_no_sign_of_a_shell_or_of_make_runs(word, tmp_path):
    word = word.format(tmp_path / "ran")
    for words, env in (([f"MODEL={word}"], {}), ([], {"MODEL": word})):
        status, said = make(*words, DECKSMITH_MODELS=str(tmp_path / "m"), **env)
        assert status == 2 and "Traceback" not in said and not (tmp_path / "ran").exists(), said
        assert not (tmp_path / "m").exists()


def test_a_file_of_models_that_cannot_be_read_is_named(tmp_path):
    (tmp_path / "x.toml").write_bytes(b"\xff = 3")
    status, said = make("MODEL=openai/gpt-5.5", DECKSMITH_MODELS=str(tmp_path))
    assert (
        status == 2 and f"{tmp_path}/x.toml: " in said and "Mend the file, or take it away." in said
    )
