"""The trainer on a CUDA GPU; writes docs/gpu.md once all of it was measured. Skipped, with the reason, where there is none."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from decksmith.core import cli, stream
from decksmith.measure.results import capsule

_spec = importlib.util.spec_from_file_location("measure", Path(__file__).with_name("measure.py"))
measure = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(measure)

pytestmark = [pytest.mark.engine, pytest.mark.slow]
LONG = 8000  # characters of a prompt and of a deck
ASKED = """
import json, torch
if torch.cuda.is_available():
    it = torch.cuda.get_device_properties(0)
    print(json.dumps({"GPU": it.name, "its memory, GiB": f"{it.total_memory / 2**30:.0f}", "CUDA of torch": torch.version.cuda, "torch": torch.__version__}))
"""


@pytest.fixture(scope="module")
def machine():
    """What the GPU is, in words."""
    if not Path("/dev/nvidiactl").exists():
        pytest.skip("no CUDA GPU on this machine: there is no /dev/nvidiactl")
    said = subprocess.run([sys.executable, "-c", ASKED], capture_output=True, text=True).stdout
    if not said:
        pytest.skip(
            "torch finds no CUDA GPU: the driver, or a torch for CPUs (make .venv/.train again)"
        )
    return json.loads(said) | {"decksmith": capsule.toolchain()["revision"]}


@pytest.fixture(scope="module")
def found(machine):
    """What the tests below measure, {name: value}; written as docs/gpu.md when it is complete."""
    found = {"sizes": {}}
    yield found
    if {"compared", "killed"} <= found.keys() and len(found["sizes"]) == 3:
        stream.write(cli.ROOT / "docs/gpu.md", measure.page(machine, **found))


@pytest.fixture(scope="module")
def small(machine, tmp_path_factory):
    """The folder of the smallest model."""
    return measure.made("135 M", tmp_path_factory.mktemp("gpu") / "model")


@pytest.mark.gpu
def test_in_bf16_the_losses_are_those_of_the_cpu(found, small, tmp_path):
    found["compared"] = compared = measure.compare(tmp_path, small, "cuda", LONG)
    assert compared.device == pytest.approx(compared.cpu, rel=0.01)


@pytest.mark.gpu
def test_a_run_that_is_killed_goes_on_where_it_was(found, small, tmp_path):
    found["killed"] = killed = measure.kill(tmp_path, small, "cuda", LONG)
    assert killed.killed == pytest.approx(killed.whole, rel=0.01)


@pytest.mark.gpu
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", ["135 M", "1 B", "8 B"])
def test_the_memory_that_was_estimated_is_enough(found, tmp_path, name):
    model = measure.made(name, tmp_path / "model")
    found["sizes"][name] = one = measure.size(tmp_path / "run", model, "cuda", LONG)
    assert one.peak <= one.estimate


@pytest.mark.skipif("DECKSMITH_GPU" not in os.environ, reason="make test-gpu asks for it")
def test_without_a_gpu_the_same_measurements_run_on_a_tiny_model(tmp_path):
    model = measure.made("tiny", tmp_path / "model")
    one = measure.size(tmp_path / "size", model, "cpu", 200)
    assert one.parameters > one.adapter > 0 and one.tokens_per_second > 0 and one.peak > 0
    killed = measure.kill(tmp_path / "kill", model, "cpu", 200, undisturbed=tmp_path / "size")
    assert killed.killed == killed.whole and len(killed.whole) == measure.ROWS
    compared = measure.Losses(killed.whole, killed.killed)
    page = measure.page({"GPU": "none"}, compared, {"tiny": one}, killed)
    assert f"| tiny | {one.parameters / 1e6:,.0f} M |" in page
    assert f"| 8 | {compared.cpu[7]:.4f} | {compared.device[7]:.4f} | +0.0000 |" in page
    assert f"after its checkpoint of step {killed.at} " in page
