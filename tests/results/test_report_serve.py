"""A report over HTTP: this machine's browsers, the report's files, and nothing else."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
import requests
from decksmith.core import cli

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "web"))
import synthetic  # noqa: E402

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """(the address, the process) of a report of one run."""
    folder = tmp_path_factory.mktemp("served")
    run = synthetic.run(folder / "smol", "smol", 0.6, 2)
    (folder / "page").mkdir()
    (folder / "page" / "secret.txt").write_text("not of the report")
    command = [cli.ROOT / "bin/run-report", "--serve", "--out", folder / "page", run]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        yield process.stdout.readline().strip(), process
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def test_the_page_its_pictures_and_the_docs_it_links_to_are_there(served):
    url, _ = served
    page = requests.get(url, timeout=30)
    assert page.status_code == 200 and "<h1" in page.text
    policy = page.headers["Content-Security-Policy"]
    assert "'unsafe" not in policy and "frame-ancestors 'none'" in policy
    assert policy.split("; frame")[0] in page.text.replace("&#39;", "'")
    assert (
        requests.get(f"{url}plots/overall.svg", timeout=30).headers["Content-Type"]
        == "image/svg+xml"
    )
    assert "# Protocols" in requests.get(f"{url}docs/protocol.md", timeout=30).text


@pytest.mark.parametrize(
    "path",
    [
        "secret.txt",
        "img",
        "docs/../pyproject.toml",
        "..%2f..%2fsmol/scores.jsonl",
        "docs/..%2fREADME.md",
    ],
)
def test_nothing_else_is(served, path):
    url, _ = served
    request = requests.Request("GET", url).prepare()
    request.url = url + path
    with requests.Session() as session:
        assert session.send(request, timeout=30).status_code == 404


def test_another_name_and_another_method_are_refused(served):
    url, _ = served
    assert requests.get(url, headers={"Host": "evil.example"}, timeout=30).status_code == 421
    assert requests.post(url, timeout=30).status_code == 405
