"""`make baseline` as a user types it, against an endpoint on loopback."""

import json
import subprocess

import pytest
from shadow import core, endpoint, environment, make

REGISTRY = '[fake]\nlabel = "Fake"\ncolor = "#336699"\nbase_url = "{url}"\nslug = "fake"\njobs = 4\n'


@pytest.fixture
def root(tmp_path):
    server, url = endpoint(tmp_path, "--log", "asked.jsonl")
    folder = make(tmp_path / "root", core(4), REGISTRY.format(url=url))
    yield folder
    server.kill()


def baseline(folder, *settings):
    return subprocess.run(["make", "baseline", "MODEL=fake", *settings], cwd=folder, env=environment(folder), text=True,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def asked(folder):
    log = folder.parent / "asked.jsonl"
    return len(log.read_text().splitlines()) if log.exists() else 0


def lines(folder, key):
    return len((folder / f"results/runs/fake/journal/{key}.jsonl").read_text().splitlines())


def scores(folder):
    return [json.loads(line) for line in (folder / "results/runs/fake/scores.jsonl").read_text().splitlines()]


def test_it_makes_a_report_once_and_then_has_nothing_to_do(root):
    first = baseline(root)
    assert first.returncode == 0, first.stdout
    assert f"Open the report: file://{root}/results/reports/offline/index.html" in first.stdout
    assert [row["id"] for row in scores(root)] == [row["id"] for row in core(4)]
    assert all(row["score"]["overall"] for row in scores(root))
    second = baseline(root)
    assert second.returncode == 0
    assert "Nothing to be done for 'baseline'" in second.stdout
    assert asked(root) == 4


def test_a_larger_limit_asks_only_for_what_is_new(root):
    assert baseline(root, "LIMIT=2").returncode == 0
    assert asked(root) == 2
    assert baseline(root, "LIMIT=3").returncode == 0
    assert asked(root) == 3
    assert len(scores(root)) == 3


def test_a_changed_weight_changes_the_scores_and_costs_neither_a_reply_nor_a_render(root):
    assert baseline(root).returncode == 0
    before, rendered = scores(root), lines(root, "render")
    offline = root / "assets/protocols"
    text = (offline / "offline.toml").read_text()
    offline.unlink()
    offline.mkdir()
    (offline / "offline.toml").write_text(text.replace("design = 0.25", "design = 0.05").replace("content = 0.20", "content = 0.40"))
    done = baseline(root)
    assert done.returncode == 0, done.stdout
    assert asked(root) == 4 and lines(root, "render") == rendered
    assert [row["score"]["overall"] for row in scores(root)] != [row["score"]["overall"] for row in before]
    assert [row["render"] for row in scores(root)] == [row["render"] for row in before]


def test_a_dead_endpoint_fails_with_its_reason_and_the_next_run_completes(root):
    registry = (root / "assets/models.toml").read_text()
    (root / "assets/models.toml").write_text(REGISTRY.format(url="http://127.0.0.1:9/v1"))  # nobody listens there
    failed = baseline(root, "LIMIT=1")
    assert failed.returncode != 0
    assert "1 infrastructure faults (run again)" in failed.stdout
    assert not (root / "results/runs/fake/scores.jsonl").exists()
    (root / "assets/models.toml").write_text(registry)
    assert baseline(root, "LIMIT=1").returncode == 0


def test_help_lists_the_targets_and_what_is_chosen():
    from shadow import ROOT
    said = subprocess.run(["make", "MODEL=gpt-5.4", "LIMIT=7"], cwd=ROOT, text=True, capture_output=True).stdout
    assert "make baseline" in said and "make test" in said and "make doctor" in said
    assert "MODEL    = gpt-5.4" in said and "LIMIT    = 7" in said
