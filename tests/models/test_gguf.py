"""Models in GGUF for the embedded engine: the table, and the whole path from the Hub to a reply, with a file that is here."""

import json
import os
import subprocess
import sys

import pytest
from decksmith.core import cli
from decksmith.models import embedded, gguf, registry

# The template of a model that thinks, as long as SmolLM2's own, so that the file keeps its layout.
THINKER = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and not enable_thinking %}<think></think>{% else %}<think>{% endif %}"
    "{% endif %}"
)


def test_every_entry_of_the_table_is_a_model_without_an_entry_by_hand():
    known = registry.models()
    for name, entry in gguf.table().items():
        model = known[name]
        assert model.base_url == "engine:" and model.slug == name
        assert model.label == entry.label and model.color == entry.color
        assert model.price == {"prompt": 0, "completion": 0}
        assert entry.file.endswith(".gguf") and 1e9 < entry.size < 6e9 and entry.licence
        assert bool(entry.sha256) == (entry.revision != "main"), "pinned whole or not at all"
    assert len({entry.color for entry in gguf.table().values()}) == len(gguf.table())


def test_a_model_that_is_not_fetched_is_named_with_its_command(tmp_path, monkeypatch):
    monkeypatch.setenv("DECKSMITH_MODELS", str(tmp_path))
    with pytest.raises(cli.Missing, match=r"2.7 GB\); run: make model MODEL=qwen3.5-4b"):
        embedded.lease(model="qwen3.5-4b")
    (tmp_path / "qwen3.5-4b.gguf.json").write_text("{}")
    with pytest.raises(cli.BadConfig, match="remove it and run: make model MODEL=qwen3.5-4b"):
        gguf.need("qwen3.5-4b")


def test_thoughts_are_parted_however_the_text_is_cut():
    script = """
      import {splitter} from "%s";
      const run = (open, pieces) => {
        const parts = splitter(open), said = ["", ""];
        const add = ({thought, answer}) => { said[0] += thought; said[1] += answer; };
        for (const piece of pieces) add(parts.push(piece));
        add(parts.rest());
        return said;
      };
      const texts = [[true, "so\\n</think>\\n\\n# A </think>"], [false, " <think>so</think># A"], [false, "# A <think> b"],
                     [true, "never ends </thi"], [false, "<thi"]];
      const found = texts.map(([open, text]) => [1, 2, 3, 100].map((size) =>
        run(open, Array.from({length: Math.ceil(text.length / size)}, (_, i) => text.slice(i * size, (i + 1) * size)))));
      console.log(JSON.stringify(found));
    """ % (cli.ROOT / "assets/engine/thoughts.mjs")
    node = cli.ROOT / ".venv/bin/node"
    done = subprocess.run(
        [node, "--input-type=module", "-e", script], capture_output=True, text=True, check=True
    )
    whole = [
        ["so\n", "# A </think>"],
        ["so", "# A"],
        ["", "# A <think> b"],
        ["never ends </thi", ""],
        ["", "<thi"],
    ]
    assert json.loads(done.stdout) == [[want] * 4 for want in whole]


@pytest.mark.long(
    "tests/hub/test_models.py::test_one_file_is_fetched_for_the_engine_and_its_lock_says_which"
)
@pytest.mark.engine
@pytest.mark.slow
def test_a_file_goes_from_the_hub_to_a_reply_and_its_thought_stands_apart(tmp_path):
    """SmolLM2's own weights, with a template that opens a thought, under the name of another model."""
    data = embedded.weights().read_bytes()
    start = data.index(b"{% for message in messages %}")
    end = data.index(b"assistant\n' }}{% endif %}") + len(b"assistant\n' }}{% endif %}")
    template = THINKER + "{#" + " " * (end - start - len(THINKER) - 4) + "#}"
    repo = tmp_path / "hub/models/unsloth/gemma-4-E4B-it-GGUF"
    repo.mkdir(parents=True)
    path = repo / "gemma-4-E4B-it-Q4_K_M.gguf"
    path.write_bytes(data[:start] + template.encode() + data[end:])
    hub = subprocess.Popen(
        [sys.executable, cli.ROOT / "tests/hub.py", tmp_path / "hub"],
        stdout=subprocess.PIPE,
        text=True,
    )
    env = os.environ | {
        "HF_ENDPOINT": hub.stdout.readline().strip(),
        "HF_HOME": str(tmp_path / "home"),
        "DECKSMITH_MODELS": str(tmp_path / "known"),
        "TMPDIR": str(tmp_path),
        "IMAGES": "off",
    }
    try:
        made = ["make", "-s", "-o", ".venv/.hub", "model", "MODEL=gemma-4-e4b"]
        fetched = subprocess.run(made, cwd=cli.ROOT, env=env, capture_output=True, text=True)
        assert fetched.returncode == 0, fetched.stderr
        path.unlink()  # from here on, nothing comes from the Hub
    finally:
        hub.kill()
        hub.wait()
    row = json.dumps(
        {"id": "p1", "messages": [{"role": "user", "content": "Name a coral animal."}]}
    )
    ask = [
        cli.ROOT / "bin/chat-generate",
        "--model",
        "gemma-4-e4b",
        "--max-tokens",
        "16",
        "--temperature",
        "0",
    ]
    asked = subprocess.run(ask, input=row, env=env, capture_output=True, text=True)
    gen = json.loads(asked.stdout)["gen"]
    assert gen["finish_reason"] == "length" and gen["text"] == "" and len(gen["reasoning"]) > 10
    assert gen["usage"]["reasoning_tokens"] == 16 and gen["usage"]["cost"] == 0
    lock = json.loads((tmp_path / "known/gemma-4-e4b.gguf.json").read_text())
    assert gen["model"]["weights"] == lock["sha256"]
