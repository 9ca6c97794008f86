"""slurm/serve.sbatch over two nodes: what `vllm` is started with on each, and that the two end together.

The program is a stand-in (it says so in its log): the stub of tests/fixtures/serve answers where vLLM's first node would, and on the second a
script waits. vLLM itself over two nodes wants GPUs; its command lines are held to the options of the pinned version here.
"""

import json
import subprocess

import pytest
from cluster import USER, _until
from decksmith.train.serving import vllm
from decksmith.train.training import base_models

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]
STANDIN = """#!/bin/bash
echo "stand-in for vLLM on node $SLURMD_NODENAME: $*" >> "$STANDIN_LOG"
case "$*" in *--headless*) exec sleep 1000 ;; esac
exec {stub} "$@"
"""


@pytest.fixture(scope="module")
def site(slurm):
    place = slurm.checkout("nodes")
    stand = slurm.work / "standin"
    for folder in (place / "results/adapter", stand):
        folder.mkdir(parents=True)
    stub = place / "tests/fixtures/serve/vllm"
    (stand / "vllm").write_text(STANDIN.format(stub=stub))
    (stand / "vllm").chmod(0o755)
    (place / "results/adapter/adapter_config.json").write_text(
        json.dumps({"r": 8, "base_model_name_or_path": str(place / "results/base")})
    )
    tensors = {"m.q_proj.lora_A": ("BF16", (8, 16), bytes(256))}
    (place / "results/adapter/adapter_model.safetensors").write_bytes(
        base_models.safetensors(tensors)
    )
    (place / "slurm/site.env").write_text(
        f"CONTAINER=none\nPATH={stand}:$PATH\nSTANDIN_LOG={slurm.work}/calls\n"
    )
    subprocess.run(["chown", "-R", f"{USER}:{USER}", place / "results", stand], check=True)
    return place


def test_one_server_over_two_nodes_is_published_by_the_first_and_ends_on_both(slurm, site):
    words = ["--nodes=2", "--gres=gpu:8", "slurm/serve.sbatch", "--adapter", "results/adapter"]
    job = slurm.run(
        ["sbatch", "--parsable", *words, "--", "--tensor-parallel-size", "8"], cwd=site
    ).stdout.strip()
    waited = slurm.run(
        [site / "bin/model-wait", "--job", job, "--timeout", "200"], cwd=site, check=False
    )
    assert waited.returncode == 0, waited.stderr + (site / f"slurm-{job}.out").read_text()
    assert json.loads(waited.stdout)["models"] == ["base", "tuned"]
    calls = sorted((slurm.work / "calls").read_text().splitlines())
    first, second = (line.split(": ", 1) for line in calls)
    assert (first[0], second[0]) == tuple(f"stand-in for vLLM on node n{n}" for n in (1, 2))
    common, _, ours = first[1].partition(" --pipeline-parallel-size")
    port = 30000 + int(job) % 2000
    assert " --tensor-parallel-size 8" in common and f"tuned={site}/results/adapter" in common
    nodes = "--nnodes 2 --node-rank {} --master-addr 127.0.0.1 --master-port {}"
    assert ours == " 2 " + nodes.format(0, port)
    assert second[1] == f"{common} --pipeline-parallel-size 2 {nodes.format(1, port)} --headless"
    for line in (first, second):
        vllm.parsed(["vllm", *line[1].split()])  # options of the version that is pinned

    slurm.run(["scancel", "--batch", "--signal=USR1", job])
    assert slurm.wait(job, 60) == ("COMPLETED", 0)
    _until(30, "no process is left", lambda: not slurm.processes(), slurm.processes)
    assert not list((site / "results/serve").glob("*.json"))


def test_a_node_whose_share_dies_ends_the_server(slurm, site):
    (slurm.work / "calls").unlink(missing_ok=True)
    job = slurm.run(
        ["sbatch", "--parsable", "--nodes=2", "slurm/serve.sbatch", "--adapter", "results/adapter"],
        cwd=site,
    ).stdout.strip()
    slurm.run([site / "bin/model-wait", "--job", job, "--timeout", "200"], cwd=site)
    share = next(pid for pid, line in slurm.processes().items() if line == "sleep 1000")
    subprocess.run(["kill", "-KILL", str(share)], check=True)
    assert slurm.wait(job, 60) == ("FAILED", 69)
    assert "the server ended" in (site / f"slurm-{job}.out").read_text()
    _until(30, "no process is left", lambda: not slurm.processes(), slurm.processes)
