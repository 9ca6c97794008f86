"""slurm/rl.sbatch as on a site: real Slurm, Apptainer and Ray over two nodes, real reward servers that render decks, the real Gym door.

Only the driver is a stand-in: run_grpo.py says what of it is not real. It is shown in the image at the place of NeMo-RL's own.
"""

import json
import re
import shutil
import signal
import subprocess

import pytest
from cluster import ROOT, USER, _until
from test_sft import _site, _tmp, image, log, metrics, nothing_left, starts  # noqa: F401

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]
DRIVER = "/opt/nemo-rl/examples/nemo_gym/run_grpo_nemo_gym.py"


@pytest.fixture(scope="module")
def site(slurm, image):  # noqa: F811
    place = slurm.checkout()
    _site(slurm, place)
    driver = slurm.work / "run_grpo.py"
    shutil.copy(ROOT / "tests/slurm/run_grpo.py", driver)
    with open(place / "slurm/site.env", "a") as file:
        file.write(f"DECKSMITH_BINDS={driver}:{DRIVER}\nRL_REWARD_JOBS=1\n")
    (place / "containers/train.sif").symlink_to(image)
    # As `make setup` leaves it: a renderer of this user's own, built.
    modules = place / "assets/renderer/node_modules"
    shared = modules.resolve()
    modules.unlink()
    shutil.copytree(shared, modules, symlinks=True, ignore=shutil.ignore_patterns(".cache"))
    subprocess.run(["chown", "-Rh", f"{USER}:{USER}", modules], check=True)
    slurm.run([place / ".venv/bin/node", "assets/renderer/build.mjs"], cwd=place)
    (place / "data/rl").mkdir()
    rows = []
    for folder in sorted((ROOT / "data/gold").iterdir())[:4]:
        asked = [{"role": "user", "content": (folder / "PROMPT.md").read_text()}]
        rows.append({"id": folder.name, "messages": asked, "asks": {"language": "en"}})
    for name, some in (("train", rows), ("test", rows[:2])):
        (place / f"data/rl/{name}.jsonl").write_text(
            "".join(json.dumps(one) + "\n" for one in some)
        )
    subprocess.run(["chown", "-R", f"{USER}:{USER}", place / "data/rl"], check=True)
    yield place
    shutil.rmtree(_tmp(slurm))


@pytest.fixture
def run(slurm, site, request):
    def make(steps, pause):
        name = re.sub(r"\W+", "_", request.node.name.removeprefix("test_"))[-32:]
        folder = site / "results/rl" / name
        words = [
            "policy.model_name=/base",  # none is needed
            "grpo.num_prompts_per_step=1",
            "grpo.num_generations_per_prompt=3",
            "policy.train_global_batch_size=1",
            f"grpo.max_num_steps={steps}",
            "grpo.val_period=1",
            "env.rules=layout",  # nobody here reads
            "checkpointing.save_period=1",
            f"standin.decks={site}/data/gold",
            f"standin.pause={pause}",
        ]
        command = [site / "bin/sft-config", "--recipe", "nemotron-nano-grpo", "--data", "data/rl"]
        slurm.run([*command, "--run", folder, *words], cwd=site)
        return folder

    return make


def submit(slurm, site, folder, *words):
    command = [site / "bin/job-submit", "slurm/rl.sbatch", "--run", folder, *words]
    return slurm.run(command, cwd=site).stdout.strip()


def test_rewards_come_through_gyms_door_from_servers_on_both_nodes_and_a_killed_server_comes_back(
    slurm, site, run
):
    folder = run(steps=4, pause=5)
    job = submit(slurm, site, folder)
    _until(600, "a step is rewarded", lambda: metrics(folder), lambda: log(folder))
    assert "2 reward servers answer on n1 n2" in log(folder)
    servers = [pid for pid, command in slurm.processes().items() if "bin/reward-serve" in command]
    subprocess.run(["kill", "-KILL", str(min(servers))], check=True)
    assert slurm.wait(job, 900) == ("COMPLETED", 0)
    driver = next((folder / "slurm").glob("rl-*/driver.log")).read_text()
    assert driver.count("'patched': True") == 2 and "'decksmith_reward.py'" in driver
    found = metrics(folder)
    assert [line["step"] for line in found] == [1, 2, 3, 4]
    assert all(0 <= reward <= 1 for line in found for reward in line["rewards"])
    assert not any(masked for line in found for masked in line["masked"])
    # A whole deck is worth more than a third of it.
    assert all(line["rewards"][2] > line["rewards"][0] for line in found)
    assert "it is started again (1 of 5)" in log(folder)
    nothing_left(slurm)


def test_a_job_that_is_near_its_limit_goes_on_from_its_checkpoint_with_new_servers(
    slurm, site, run
):
    folder = run(steps=3, pause=3)
    job = submit(slurm, site, folder)
    _until(
        600, "a step is saved", lambda: list(folder.glob("checkpoints/step_1")), lambda: log(folder)
    )
    slurm.run(["scancel", "--batch", f"--signal={signal.SIGUSR1.name[3:]}", job])
    _until(120, "it waits again", lambda: len(starts(folder)) >= 2, lambda: log(folder))
    slurm.hurry(job)
    assert slurm.wait(job, 900) == ("COMPLETED", 0)
    assert [line["step"] for line in metrics(folder)][-1] == 3
    assert len([one for one in starts(folder) if "from" in one]) == 2
    nothing_left(slurm)


def test_in_a_hetjob_the_servers_have_a_node_of_their_own(slurm, site, run):
    folder = run(steps=1, pause=0)
    path = folder / "recipe.yaml"
    path.write_text(path.read_text().replace("num_nodes: 2", "num_nodes: 1"))
    job = submit(slurm, site, folder, "--", ":", "--nodes=1", "--ntasks=1")
    assert slurm.wait(job, 900) == ("COMPLETED", 0), log(folder)
    assert "done: 1 of 1 steps" in log(folder)
    assert "1 reward servers answer on" in log(folder)
    nothing_left(slurm)
