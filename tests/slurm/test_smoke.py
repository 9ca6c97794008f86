"""slurm/smoke.sbatch on a cluster without GPUs: the embedded model is trained, served and asked, and a row that fails stops no other."""

import re

import pytest
from cluster import _until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def site(slurm):
    return slurm.ready("smoke")


def smoke(slurm, site, **env):
    """(exit status, {row: (word, what it found)}, the whole output)"""
    job = slurm.run(
        ["sbatch", "--parsable", "--output=results/%j.out", "slurm/smoke.sbatch"],
        cwd=site,
        env=env,
    ).stdout.strip()
    _, status = slurm.wait(job, 1500)
    text = (site / f"results/{job}.out").read_text()
    table = (site / f"results/smoke/{job}/table").read_text()
    rows = {
        name: (word, said)
        for word, name, said in re.findall(r"^(\w+) +(\w+) +\d+ s  (.*)$", table, re.M)
    }
    _until(30, "no process is left", lambda: not slurm.processes(), slurm.processes)
    return status, rows, text


def test_without_gpus_the_embedded_model_goes_all_the_way(slurm, site):
    status, rows, text = smoke(slurm, site)
    logs = {
        path.name: path.read_text()[-1500:] for path in (site / "results/smoke").glob("*/*.log")
    }
    assert status == 0, text + repr(logs)
    assert rows == {
        "image": (
            "skip",
            "CONTAINER=none, and no GPU: the toolchain of this checkout does the rest",
        ),
        "gpus": ("skip", "no GPU"),
        "recipe": ("ok", "two steps of smol"),
        "weights": ("skip", "the embedded model is made here, nothing is fetched"),
        "train": ("ok", "two steps and a checkpoint"),
        "export": ("ok", rows["export"][1]),
        "serve": ("ok", "local answers as base and as tuned"),
        "deck": ("ok", "a deck of smol-tuned went through the renderer"),
    }
    assert re.fullmatch(r"an adapter of \d{6,} bytes", rows["export"][1])
    assert text.endswith("nothing failed\n")


def test_a_row_that_fails_names_its_remedy_and_the_rest_is_tried(slurm, site):
    export = site / "bin/model-export"
    kept = export.read_text()
    export.write_text("#!/bin/sh\necho 'no adapter for you' >&2\nexit 65\n")
    try:
        status, rows, text = smoke(slurm, site)
    finally:
        export.write_text(kept)
    assert status == 69
    assert rows["train"][0] == "ok" and rows["export"] == ("FAIL", "no adapter for you")
    assert rows["serve"] == ("skip", "there is no adapter") and rows["deck"] == (
        "skip",
        "no server",
    )
    assert "what to do:\n  export: the adapter does not fit its base" in text
