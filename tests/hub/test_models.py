"""bin/model-fetch against the Hub of tests/hub.py: what arrives, what is refused, and what a fetch that is killed leaves for the next."""

import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import waits
from decksmith.core import cli

MB = 1 << 20
CHUNK = 10 * MB  # what huggingface_hub writes at once
pytestmark = pytest.mark.slow


class Site:
    """A Hub, and a site with an empty cache."""

    def __init__(self, folder, there, url):
        self.folder, self.there, self.home = folder, there, folder / "home"
        self.repo = self.there / "models/lab/base"
        self.repo.mkdir(parents=True)
        weights = {"model-1.safetensors": 24 * MB, "model-2.safetensors": 1 * MB}
        for seed, (name, size) in enumerate(weights.items()):
            (self.repo / name).write_bytes(bytes([seed + 1]) * size)
        (self.repo / "config.json").write_text("{}")
        (self.repo / "tokenizer.json").write_text('{"version":"1.0"}')
        (self.repo / "modeling_lab.py").write_text("# remote code\n")
        (self.repo / "pytorch_model.bin").write_bytes(b"the same once more")
        (self.repo / "README.md").write_text(
            "---\nlicense: other\nlicense_name: lab-open\nlicense_link: https://lab.example/terms\n---\n# Base\n"
        )
        index = {"weight_map": {name[:7]: name for name in weights}}
        (self.repo / "model.safetensors.index.json").write_text(json.dumps(index))
        self.env = os.environ | {
            "HF_ENDPOINT": url,
            "HF_HOME": str(self.home),
            "IMAGES": "off",
        }
        for name in ("HF_TOKEN", "HF_HUB_OFFLINE", "HF_HUB_CACHE"):
            self.env.pop(name, None)

    def start(self, *words, **env):
        return subprocess.Popen(
            [cli.ROOT / "bin/model-fetch", *words],
            env=self.env | env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def fetch(self, *words, **env):
        """(status, stdout, stderr)"""
        running = self.start(*(words or ("lab/base",)), **env)
        out, err = running.communicate(timeout=waits.HANG)
        return running.returncode, out.strip(), err.strip()

    def put(self, name, text=""):
        path = self.there / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def served(self):
        """[(file, first byte, bytes)] of every answer."""
        path = self.there / ".served"
        lines = path.read_text().splitlines() if path.exists() else []
        return [(name, int(start), int(size)) for name, start, size in map(str.split, lines)]

    def longest_part(self):
        """Bytes of the longest file that is on its way; one that arrives while it is looked at has none."""
        sizes = [0]
        for path in self.home.glob("hub/models--*/blobs/*.incomplete"):
            with contextlib.suppress(FileNotFoundError):
                sizes.append(path.stat().st_size)
        return max(sizes)


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    """The folder and the address of a Hub that knows of nothing but what lies in the folder."""
    there = tmp_path_factory.mktemp("hub")
    words = [sys.executable, cli.ROOT / "tests/hub.py", there]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    yield there, process.stdout.readline().strip()
    process.kill()
    process.wait()


@pytest.fixture
def site(tmp_path, hub):
    there, url = hub
    shutil.rmtree(there)
    return Site(tmp_path, there, url)


def test_all_that_a_job_reads_is_there_afterwards_with_the_hub_switched_off(site):
    before = site.fetch("lab/base", "--check")
    assert before[0] == 69 and "run: bin/model-fetch lab/base" in before[2]
    status, out, err = site.fetch()
    assert status == 0, err
    assert "licence lab-open (https://lab.example/terms)" in err
    folder = Path(out)
    for name in ("config.json", "tokenizer.json", "modeling_lab.py", "model-1.safetensors"):
        assert (folder / name).read_bytes() == (site.repo / name).read_bytes()
    assert not (folder / "pytorch_model.bin").exists()
    code = "import huggingface_hub as h; print(h.snapshot_download('lab/base'))"
    off = {"HF_HUB_OFFLINE": "1"}
    found = subprocess.run(
        [sys.executable, "-c", code], env=site.env | off, capture_output=True, text=True
    )
    assert found.stdout.strip() == out, found.stderr
    asked = len((site.there / ".log").read_text().splitlines())
    assert site.fetch("lab/base", "--check") == site.fetch() == (0, out, "")
    assert len((site.there / ".log").read_text().splitlines()) == asked
    (folder / "model-2.safetensors").resolve().unlink()
    status, _, err = site.fetch("lab/base", "--check", **off)
    assert status == 69 and "it lacks model-2.safetensors" in err


def killed_half_way(site, *words):
    """A fetch that is killed while a large file is on its way."""
    hang = site.put(".hang", str(22 * MB))
    running = site.start(*words)
    try:
        waits.until(lambda: site.longest_part() >= 2 * CHUNK, running)
    finally:
        os.killpg(running.pid, signal.SIGKILL)
        running.communicate()
    hang.unlink()


def test_of_a_fetch_that_is_killed_the_whole_files_stay(site):
    killed_half_way(site, "lab/base")
    before = len(site.served())
    whole = {path.name for path in site.home.glob("hub/models--*/snapshots/*/*")}
    assert "model-1.safetensors" not in whole
    status, out, err = site.fetch()
    assert status == 0, err
    again = {name for name, _, _ in site.served()[before:]}
    assert "model-1.safetensors" in again and not whole & again
    assert Path(out, "model-1.safetensors").read_bytes() == b"\x01" * 24 * MB
    assert Path(out, "model-2.safetensors").read_bytes() == b"\x02" * MB


def test_a_connection_that_breaks_is_taken_up_where_it_broke(site):
    site.put(".cut", str(11 * MB))
    status, out, err = site.fetch()
    assert status == 0, err
    starts = [start for name, start, _ in site.served() if name == "model-1.safetensors"]
    assert len(starts) > 1 and starts == sorted(starts) and starts[1] >= CHUNK
    assert Path(out, "model-1.safetensors").read_bytes() == b"\x01" * 24 * MB


@pytest.mark.long("test_a_connection_that_breaks_is_taken_up_where_it_broke")
def test_a_file_that_arrives_broken_is_removed(site):
    bent = site.put(".bent")
    status, _, err = site.fetch()
    assert status == 75 and "what came is not what the Hub names" in err
    assert not list(site.home.glob("hub/models--*/snapshots/*/model-1.safetensors"))
    bent.unlink()
    status, out, err = site.fetch()
    assert status == 0, err
    assert Path(out, "model-1.safetensors").read_bytes() == b"\x01" * 24 * MB


def test_a_gated_model_says_what_to_accept_where_and_is_fetched_by_who_was_let_in(site):
    site.put(".gated/models/lab/base")
    page = f"{site.env['HF_ENDPOINT']}/lab/base"
    status, _, err = site.fetch()
    assert status == 78 and err.endswith(
        f"lab/base is gated: accept the terms on {page}, make a token at {site.env['HF_ENDPOINT']}/settings/tokens, and write "
        "HF_TOKEN=.. into .env; then run this again"
    )
    assert site.fetch(HF_TOKEN="hf_ann_writes")[0] == 0


@pytest.mark.long("test_a_gated_model_says_what_to_accept_where_and_is_fetched_by_who_was_let_in")
def test_who_has_not_been_let_in_is_told_where_to_accept(site):
    site.put(".gated/models/lab/base")
    page = f"{site.env['HF_ENDPOINT']}/lab/base"
    status, _, err = site.fetch(HF_TOKEN="hf_bob_writes")
    assert status == 78 and f"has not been let in: accept the terms on {page}" in err


@pytest.mark.parametrize(
    ("words", "env", "status", "said"),
    [
        (["lab/base", "--revision", "v9"], {}, 69, "/lab/base has no revision v9"),
        pytest.param(
            *(["lab/base"], {"HF_TOKEN": "hf_nobody"}, 78, "HF_TOKEN is wrong or may not read it"),
            marks=pytest.mark.long,
        ),
        pytest.param(
            *(["lab/none"], {}, 78, "/lab/none is not there or not to be seen"),
            marks=pytest.mark.long,
        ),
        pytest.param(
            *(["lab/base"], {"HF_HUB_OFFLINE": "1"}, 69),
            "run: HF_HUB_OFFLINE=0 bin/model-fetch lab/base",
            marks=pytest.mark.long,
        ),
        (["lab/base"], {"HF_ENDPOINT": "http://127.0.0.1:9"}, 75, "what is fetched is kept"),
    ],
)
def test_a_refusal_is_one_sentence_that_says_what_to_do(site, words, env, status, said):
    got, out, err = site.fetch(*words, **env)
    assert (got, out) == (status, "") and said in err.splitlines()[-1], err
    assert "Traceback" not in err


def test_a_disk_that_is_too_small_is_said_before_a_byte_is_fetched(site):
    site.put(".sizes/models/lab/base/model-1.safetensors", str(10**15))
    status, _, err = site.fetch()
    assert status == 69 and "lab/base needs 1000000.0 GB more and the disk of" in err
    assert "HF_HOME in slurm/site.env" in err and not site.served()


def test_a_run_and_an_adapter_name_their_model(site):
    adapter = site.folder / "adapter"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text('{"base_model_name_or_path": "lab/base"}')
    assert site.fetch(str(adapter))[0] == 0
    run = site.folder / "run"
    run.mkdir()
    (run / "recipe.yaml").write_text("policy: {model_name: lab/base}\n")
    assert site.fetch(str(run), "--check")[0] == 0
    assert "no model of the Hub" in site.fetch("smol")[2]


# Files for the embedded engine


class Shelf:
    """A Hub that has a GGUF file under the name of an entry whose revision the table leaves open."""

    name, repo, file = "gemma-4-e4b", "unsloth/gemma-4-E4B-it-GGUF", "gemma-4-E4B-it-Q4_K_M.gguf"

    def __init__(self, site):
        self.site, self.there = site, site.there / "models" / self.repo
        self.there.mkdir(parents=True)
        (self.there / self.file).write_bytes(b"\x09" * 24 * MB)
        (self.there / "gemma-4-E4B-it-Q8_0.gguf").write_bytes(b"\x08" * MB)
        (self.there / "README.md").write_text("---\nlicense: apache-2.0\n---\n# Gemma\n")
        site.env["DECKSMITH_MODELS"] = str(site.folder / "known")
        self.lock = site.folder / "known" / f"{self.name}.gguf.json"


@pytest.fixture
def shelf(site):
    return Shelf(site)


def test_one_file_is_fetched_for_the_engine_and_its_lock_says_which(shelf):
    status, out, err = shelf.site.fetch(shelf.name, "--check")
    assert (status, out) == (69, "") and f"run: make model MODEL={shelf.name}" in err
    status, out, err = shelf.site.fetch(shelf.name)
    assert status == 0, err
    assert "licence apache-2.0" in err and f"make baseline MODEL={shelf.name}" in err
    assert Path(out).read_bytes() == (shelf.there / shelf.file).read_bytes()
    lock = json.loads(shelf.lock.read_text())
    assert lock["sha256"] == hashlib.sha256(b"\x09" * 24 * MB).hexdigest()
    assert (lock["repo"], lock["file"], lock["path"]) == (shelf.repo, shelf.file, out)
    assert lock["commit"] in out and lock["size"] == 24 * MB
    assert {name for name, _, _ in shelf.site.served()} == {shelf.file}
    asked = (shelf.site.there / ".log").read_text()
    assert shelf.site.fetch(shelf.name)[:2] == (0, out)
    assert (shelf.site.there / ".log").read_text() == asked, "what is here is not asked for again"
    assert f"{shelf.name}" in (listed := shelf.site.fetch("--list")[1])
    assert [line for line in listed.splitlines() if line.endswith("here")] == [
        line for line in listed.splitlines() if line.startswith(shelf.name)
    ]


@pytest.mark.long("test_of_a_fetch_that_is_killed_the_whole_files_stay")
def test_a_killed_fetch_for_the_engine_leaves_no_lock_and_the_next_one_is_whole(shelf):
    killed_half_way(shelf.site, shelf.name)
    assert not shelf.lock.exists()
    shelf.site.put(".cut", str(11 * MB))
    status, out, err = shelf.site.fetch(shelf.name)
    assert status == 0, err
    assert Path(out).read_bytes() == (shelf.there / shelf.file).read_bytes()


@pytest.mark.long("test_a_pin_that_the_hub_does_not_keep_stops_the_fetch")
def test_a_revision_or_a_file_that_the_hub_does_not_have_stops_the_fetch(shelf):
    site = shelf.site
    (site.there / "models/unsloth/Qwen3.5-4B-GGUF").mkdir()
    (site.there / "models/unsloth/Qwen3.5-4B-GGUF/x.gguf").write_bytes(b"\x01" * MB)
    status, _, err = site.fetch("qwen3.5-4b")
    assert status == 69 and "has no revision e87f176479d0" in err
    status, _, err = site.fetch("qwen3.5-4b", "--revision", "main")
    assert status == 69 and "has no Qwen3.5-4B-Q4_K_M.gguf; it has: x.gguf" in err


def test_a_pin_that_the_hub_does_not_keep_stops_the_fetch(shelf):
    site = shelf.site
    assert site.fetch(shelf.name)[0] == 0
    lock = json.loads(shelf.lock.read_text())
    shelf.lock.write_text(json.dumps(lock | {"sha256": "0" * 64, "path": "/nowhere"}))
    status, _, err = site.fetch(shelf.name)
    assert status == 65 and "pins (" + "0" * 64 + "); nothing was fetched" in err


@pytest.mark.long("test_a_refusal_is_one_sentence_that_says_what_to_do")
def test_what_keeps_the_engine_s_file_away_is_one_sentence(shelf):
    site = shelf.site
    status, _, err = site.fetch(shelf.name, HF_ENDPOINT="http://127.0.0.1:9")
    assert status == 75 and "what is fetched is kept; without a network" in err
    status, _, err = site.fetch(shelf.name, HF_HUB_OFFLINE="1")
    assert status == 69 and f"run: HF_HUB_OFFLINE=0 make model MODEL={shelf.name}" in err
    site.put(f".sizes/models/{shelf.repo}/{shelf.file}", str(10**15))
    status, _, err = site.fetch(shelf.name)
    assert status == 69 and "needs 1000000.0 GB more and the disk of" in err
    assert not site.served()
