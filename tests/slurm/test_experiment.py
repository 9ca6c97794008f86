"""make experiment on a real Slurm: checked, trained, its copies asked, itself asked, and compared by a chain of jobs; two are cancelled,
one with all its processes killed, and the same line goes on.

The nodes have no network: what jobs read was fetched before they were submitted."""

import re

import pytest
from cluster import Cluster, _until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(5400)]
WORDS = (
    "TRAINER=trl",
    "ENGINE=local",
    "SFT=results/sft/chain",
    "DATA=results/rehearsal/chat",
    "STEPS=1",
    "LIMIT=1",
    "REPLY=48",
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


def jobs(text):
    """{stage: number of its job} of what make experiment said."""
    return dict(re.findall(r"^(\w+): job (\d+)", text, re.M))


def test_a_chain_of_which_jobs_are_cancelled_goes_on_by_the_same_line(slurm, site):
    alone = slurm.submit("--wrap=! ip route get 192.0.2.1")
    assert slurm.wait(alone, 60) == ("COMPLETED", 0)  # "Network is unreachable"
    first = said(slurm, site, "experiment")
    found = jobs(first)
    assert [*found] == ["check", "train", "shipped", "finetuned", "compare"], first
    held = re.search(r"^compare: job \d+, when job (\d+) (\d+) has ended well$", first, re.M)
    assert held and held.groups() == (found["shipped"], found["finetuned"])
    assert "is under way" in said(slurm, site, "experiment")  # nothing is submitted twice
    assert slurm.wait(found["check"], 900) == ("COMPLETED", 0), logs(site)
    slurm.run(["scancel", found["train"]])
    assert slurm.wait(found["train"], 60)[0] == "CANCELLED"
    _until(60, "the last goes too", lambda: slurm.wait(found["compare"], 60)[0] == "CANCELLED")
    state = said(slurm, site, "status")
    assert re.search(r"^check +- +done: results/sft/chain/check.json$", state, re.M)
    assert re.search(r"^train +- +to do", state, re.M)
    assert "next: make experiment" in state
    assert max(map(len, state.splitlines())) <= 80, state

    again = said(slurm, site, "experiment")
    assert again.startswith("check: done\n")
    found = jobs(again)
    assert slurm.wait(found["train"], 1800) == ("COMPLETED", 0), logs(site)
    replies = site / "results/chain-shipped/replies/measured.jsonl"
    _until(1800, "the first copy has answered", lambda: replies.is_file() and replies.read_text())
    state = said(slurm, site, "status")
    assert re.search(r"^shipped +\d+ +RUNNING, \d+ of \d+ replies", state, re.M), state
    slurm.run(["scancel", "--signal=KILL", "--full", found["shipped"]])
    assert slurm.wait(found["shipped"], 60)[0] != "COMPLETED"
    kept = replies.read_text()

    found = jobs(said(slurm, site, "experiment"))
    for stage in ("shipped", "finetuned", "compare"):
        if stage in found:
            assert slurm.wait(found[stage], 2400) == ("COMPLETED", 0), (stage, logs(site))
    assert replies.read_text() == kept  # nothing was asked again
    state = said(slurm, site, "status")
    assert state.endswith("next: read results/experiment/chain.md\n")
    ended = said(slurm, site, "experiment").split()
    assert ended.count("done") == 5, ended
    page = (site / "results/experiment/chain.md").read_text()
    assert "(fine-tuned)" in page and "| q8 | " in page
