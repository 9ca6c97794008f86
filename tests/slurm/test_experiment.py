"""make experiment on a real Slurm: trained, asked and compared by a chain of jobs; one is cancelled, and the same line goes on.

The nodes have no network: what jobs read was fetched before they were submitted."""

import re

import pytest
from cluster import Cluster, _until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(2400)]
WORDS = (
    "TRAINER=trl",
    "ENGINE=local",
    "SFT=results/sft/chain",
    "DATA=results/rehearsal/chat",
    "STEPS=1",
    "LIMIT=1",
    "PAIR=smol smol-tuned",
)


@pytest.fixture(scope="module")
def slurm():
    with Cluster(offline=True) as running:
        yield running


@pytest.fixture(scope="module")
def site(slurm):
    place = slurm.ready("chain")
    slurm.run(["make", "results/rehearsal/chat/report.json"], cwd=place)
    return place


def said(slurm, site, target):
    done = slurm.run(["make", "-s", target, *WORDS], cwd=site, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def logs(site):
    return {path.name: path.read_text()[-2000:] for path in site.glob("results/experiment/*.out")}


def test_a_chain_of_which_a_job_is_cancelled_goes_on_by_the_same_line(slurm, site):
    alone = slurm.submit("--wrap=! ip route get 192.0.2.1")
    assert slurm.wait(alone, 60) == ("COMPLETED", 0)  # "Network is unreachable"
    first = said(slurm, site, "experiment")
    found = re.search(
        r"^train: job (\d+)\nfinetuned: job (\d+), when job \1 has ended well$", first, re.M
    )
    assert found, first
    train, asked = found.groups()
    assert "is under way" in said(slurm, site, "experiment")  # nothing is submitted twice
    slurm.run(["scancel", train])
    assert slurm.wait(train, 60)[0] == "CANCELLED"
    _until(60, "what depends on it goes too", lambda: slurm.wait(asked, 60)[0] == "CANCELLED")
    state = said(slurm, site, "status")
    assert re.search(r"^train +- +to do", state, re.M)
    assert "next: make experiment" in state

    again = said(slurm, site, "experiment")
    train, asked = re.findall(r"^\w+: job (\d+)", again, re.M)
    assert slurm.wait(train, 900) == ("COMPLETED", 0), logs(site)
    assert slurm.wait(asked, 1200) == ("COMPLETED", 0), logs(site)
    state = said(slurm, site, "status")
    assert state.endswith("next: look at results/reports/finetuned/index.html\n")
    assert said(slurm, site, "experiment").endswith("train: done\nfinetuned: done\n")
    assert "smol-tuned" in (site / "results/reports/finetuned/index.html").read_text()
