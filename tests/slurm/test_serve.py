"""slurm/serve.sbatch, finetuned.sbatch and bench.sbatch on a real Slurm, with the embedded engine and a random adapter for it."""

import json
import os
import re
import shutil
import signal
import subprocess

import numpy
import pytest
from cluster import USER, _until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]
PART = """#!/bin/bash
# One part of a run: generated and parsed. The first fails after its first record when it is done for the first time.
set -euo pipefail
folder=results/runs/tuned/offline/shard-${SHARD/\\//-of-}
mkdir -p "$folder"
take=cat
[ "$SHARD" != 1/4 ] || [ -e "$folder/again" ] || take='head -n 1'
bin/record-sample --shard "$SHARD" < prompts.jsonl | $take |
  bin/chat-generate --model smol-tuned --max-tokens 12 --run "$folder" | bin/deck-parse --run "$folder" > "$folder/scores.tmp"
[ "$take" = cat ] || { touch "$folder/again"; echo "this part was told to fail"; exit 75; }
mv "$folder/scores.tmp" "$folder/scores.jsonl"
"""


def adapter(folder, size):
    """A LoRA of rank 4 on one projection of the embedded model, of random numbers of this size; 0: it changes nothing."""
    import gguf

    folder.mkdir()
    writer = gguf.GGUFWriter(folder / "adapter.gguf", "llama")
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", 4.0)
    draw = numpy.random.default_rng(1)
    for name, shape in (("a", (4, 1536)), ("b", (576, 4))):
        writer.add_tensor(
            f"blk.20.ffn_down.weight.lora_{name}",
            (size * draw.standard_normal(shape)).astype("float32"),
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    (folder / "adapter_config.json").write_text('{"r": 4, "base_model_name_or_path": "smol"}')
    (folder / "adapter_model.safetensors").write_bytes(b"the embedded engine reads adapter.gguf")


@pytest.fixture(scope="module")
def site(slurm):
    place = slurm.checkout("serving")
    (place / "results").mkdir()
    adapter(place / "results/tuned", 0.1)
    adapter(place / "results/idle", 0)
    # Entries of models are written there.
    models = place / "data/models"
    shared = models.resolve() if models.is_symlink() else None
    models.unlink(missing_ok=True)
    models.mkdir(exist_ok=True)
    for path in shared.iterdir() if shared else ():
        (models / path.name).symlink_to(path)
    shutil.chown(models, USER, USER)
    (place / "part").write_text(PART)
    (place / "part").chmod(0o755)
    rows = [
        {"id": f"p{n}", "messages": [{"role": "user", "content": f"Say {n}."}]} for n in range(12)
    ]
    (place / "prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    subprocess.run(
        [
            "chown",
            "-Rh",
            f"{USER}:{USER}",
            place / "results",
            place / "part",
            place / "prompts.jsonl",
        ],
        check=True,
    )
    return place


def submit(slurm, site, *words, **env):
    return slurm.run(
        ["sbatch", "--parsable", *words], cwd=site, env=env, check=False
    ).stdout.strip()


def endpoints(site):
    return sorted(path.name for path in (site / "results/serve").glob("*.json"))


def nothing_left(slurm, site):
    _until(30, "no process is left", lambda: not slurm.processes(), slurm.processes)
    assert endpoints(site) == [] and not list((site / "results/serve").glob("job-*/*.json"))


def merge(slurm, site):
    with open(site / "prompts.jsonl") as prompts:
        return slurm.run(
            [site / "bin/run-merge", "--run", "results/runs/tuned/offline"],
            cwd=site,
            stdin=prompts,
            check=False,
        )


def test_a_server_is_published_serves_four_parts_of_which_one_fails_and_is_redone_and_goes_without_a_trace(
    slurm, site
):
    server = submit(
        slurm, site, "slurm/serve.sbatch", "--adapter", "results/tuned", "--engine", "local"
    )
    found = json.loads(
        slurm.run([site / "bin/model-wait", "--job", server, "--timeout", "400"], cwd=site).stdout
    )
    assert (found["job"], found["models"], found["engine"], found["probe"]["differ"]) == (
        server,
        ["base", "tuned"],
        "embedded",
        True,
    )
    assert endpoints(site) == [f"{server}.json"]

    assert submit(slurm, site, "--wait", "--array=1-4", "slurm/bench.sbatch", "./part", SHARDS="4")
    incomplete = merge(slurm, site)
    assert incomplete.returncode == 75 and incomplete.stdout == ""
    assert "part 1 of 4 lacks " in incomplete.stderr and incomplete.stderr.endswith(
        "Do these again: --array=1\n"
    )
    journal = site / "results/runs/tuned/offline/shard-1-of-4/journal/gen.jsonl"
    assert len(journal.read_text().splitlines()) == 1

    submit(slurm, site, "--wait", "--array=1", "slurm/bench.sbatch", "./part", SHARDS="4")
    merged = merge(slurm, site)
    assert merged.returncode == 0, merged.stderr
    records = [json.loads(line) for line in merged.stdout.splitlines()]
    assert [record["id"] for record in records] == [f"p{n}" for n in range(12)]
    assert {record["gen"]["model"]["served"]["adapter"] for record in records} == {
        found["adapters"]["tuned"]["sha256"]
    }
    asked = [json.loads(line)["id"] for line in journal.read_text().splitlines()]
    assert len(asked) == len(set(asked)) > 1  # its first record was not asked again

    slurm.run(["scancel", "--batch", "--signal=USR1", server])
    assert slurm.wait(server, 60) == ("COMPLETED", 0)
    nothing_left(slurm, site)


def test_replicas_have_a_file_each_and_one_that_dies_takes_its_own_away_and_says_why(slurm, site):
    job = submit(
        slurm,
        site,
        "--array=1-2",
        "slurm/serve.sbatch",
        "--adapter",
        "results/tuned",
        "--engine",
        "local",
    )
    _until(
        400,
        "both are published",
        lambda: endpoints(site) == [f"{job}_1.json", f"{job}_2.json"],
        lambda: endpoints(site),
    )
    first, second = (
        json.loads((site / f"results/serve/{name}").read_text()) for name in endpoints(site)
    )
    assert first["url"] != second["url"]
    engine = next(
        pid
        for pid, command in slurm.processes().items()
        if "server.mjs" in command and f"--port {first['url'].split(':')[2][:-3]} " in command
    )
    os.kill(engine, signal.SIGKILL)
    assert slurm.wait(f"{job}_1", 60) == ("FAILED", 69)
    assert endpoints(site) == [f"{job}_2.json"]
    assert "the server ended with SIGKILL" in (site / f"slurm-{job}_1.out").read_text()
    with open(site / "prompts.jsonl") as prompts:
        done = slurm.run(
            [site / "bin/chat-generate", "--model", "smol-base", "--max-tokens", "4"],
            cwd=site,
            stdin=prompts,
        )
    assert len(done.stdout.splitlines()) == 12
    slurm.run(["scancel", job])  # without ceremony: TERM
    slurm.wait(f"{job}_2", 60)
    nothing_left(slurm, site)


def test_several_models_are_one_command_each_run_has_its_own_server_and_the_last_job_has_all(
    slurm, site
):
    """The models are the embedded one under two names: what is tried is who starts, finds, ends and follows whom."""
    both = site / "both"
    both.write_text(
        '#!/bin/bash\nset -euo pipefail\nexport "$@"\nmkdir -p results/both\n'
        "set -- $MODEL\n[ $# = 1 ] || { cat results/both/*.jsonl > results/all.jsonl; exit; }\n"
        'head -n 1 prompts.jsonl | bin/chat-generate --model "$NAME" --max-tokens 8 --run "results/both/$NAME" > results/both/$NAME.jsonl\n'
    )
    both.chmod(0o755)
    (site / "slurm/site.env").write_text("GPUS=--gpus-per-node=N\n")
    words = ["make", "serve", "MODELS=maker/one results/two/merged", "ENGINE=local"]
    said = slurm.run([*words, "SBATCH=sbatch", "THEN=./both"], cwd=site).stdout
    (site / "slurm/site.env").unlink()
    jobs = re.findall(r"^(?:job|Submitted batch job) (\d+)", said, re.M)
    assert len(jobs) == 3 and "maker/one as one" in said and "results/two/merged as two" in said
    assert slurm.wait(jobs[-1], 500) == ("COMPLETED", 0)
    assert "gpu:1" in slurm.show(jobs[0])["TresPerNode"]
    rows = [json.loads(line) for line in (site / "results/all.jsonl").read_text().splitlines()]
    assert [row["gen"]["model"]["name"] for row in rows] == ["one", "two"]
    assert {row["gen"]["model"]["served"]["engine"] for row in rows} == {"embedded"}
    logs = [(site / f"results/serve/{job}.out").read_text() for job in jobs[:2]]
    assert all("serves one" in log or "serves two" in log for log in logs)
    nothing_left(slurm, site)


@pytest.mark.parametrize(
    ("which", "command", "status", "said"),
    [
        (
            "tuned",
            "bin/chat-generate --model smol-tuned --max-tokens 4 < prompts.jsonl > replies.jsonl",
            0,
            "the command ended with status 0",
        ),
        ("tuned", "exit 65", 65, "the command ended with status 65"),
        ("idle", "sleep 600", 69, "the server ended (status 65) before the command did"),
    ],
)
def test_server_and_evaluation_in_one_job_end_together(slurm, site, which, command, status, said):
    job = submit(
        slurm,
        site,
        "slurm/finetuned.sbatch",
        f"--adapter results/{which} --engine local",
        "bash",
        "-c",
        command,
    )
    state, code = slurm.wait(job, 400)
    text = (site / f"slurm-{job}.out").read_text()
    assert (state, code) == ("COMPLETED" if status == 0 else "FAILED", status), text
    assert said in text
    if status == 0:
        assert len((site / "replies.jsonl").read_text().splitlines()) == 12
    nothing_left(slurm, site)


def test_slurms_own_warning_of_the_time_limit_ends_a_server_well_and_an_evaluation_with_75(
    slurm, site
):
    limit = ["--time=2", "--signal=B:USR1@60"]  # Slurm sends it up to a minute early
    words = ["--adapter", "results/tuned", "--engine", "local"]
    server = submit(slurm, site, *limit, "slurm/serve.sbatch", *words)
    command = "echo it runs; sleep 600"
    both = ["slurm/finetuned.sbatch", " ".join(words), "bash", "-c", command]
    job = submit(slurm, site, *limit, *both)
    assert slurm.wait(server, 180) == ("COMPLETED", 0)
    assert slurm.wait(job, 180) == ("FAILED", 75)
    assert "the time limit is near" in (site / f"slurm-{job}.out").read_text()
    nothing_left(slurm, site)
    shutil.rmtree(site / "results/serve")
