"""A real run of one deck, packed, replayed, and tampered with."""

import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile

import pytest
from decksmith.core import cli, config_files, stream
from decksmith.core.protocol import Protocol
from decksmith.measure.judging import identity, scoring
from decksmith.measure.results import capsule, replay, verify
from decksmith.measure.results.summary import summarize
from shadow import ROOT, core, endpoint, environment, make

pytestmark = pytest.mark.slow

REGISTRY = '[fake]\nlabel = "Fake"\ncolor = "#336699"\nbase_url = "{url}"\nslug = "fake"\nparams = {{ top_k = 3 }}\n'

PIPELINE = """R=results/runs/fake/offline
bin/chat-generate --model fake --protocol offline --run $R < $R/prompts.jsonl | bin/deck-parse --run $R |
bin/deck-illustrate --run $R | bin/deck-render --run $R | bin/deck-judge --run $R | bin/deck-scan --run $R |
bin/deck-score"""


def script(root, line, **options):
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", line],
        cwd=root,
        env=environment(root),
        capture_output=True,
        text=True,
        **options,
    )


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A root with one finished run, made by the scripts over an endpoint on loopback that is gone afterwards."""
    folder = tmp_path_factory.mktemp("capsule")
    server, url = endpoint(folder)
    root = make(folder / "root", core(1), REGISTRY.format(url=url))
    run = root / "results/runs/fake/offline"
    run.mkdir(parents=True)
    (run / "prompts.jsonl").write_bytes((root / "data/prompts.jsonl").read_bytes())
    done = script(
        root,
        f"{PIPELINE} > $R/scores.jsonl && bin/run-summarize --run $R < $R/scores.jsonl > $R/summary.json",
    )
    server.kill()
    assert done.returncode == 0, done.stderr
    return root


@pytest.fixture(scope="module")
def packed(root):
    done = script(root, "bin/run-pack --out caps results/runs/fake/offline")
    assert done.returncode == 0, done.stderr
    return root / done.stdout.strip()


def members(path):
    with tarfile.open(path) as tar:
        return {info.name: tar.extractfile(info).read() for info in tar}


@pytest.mark.long("test_a_replay_without_the_endpoint_finds_everything_the_same")
def test_every_stage_of_a_finished_run_is_kept_on_a_rerun(root):
    done = script(root, PIPELINE)  # the endpoint is gone
    assert done.returncode == 0, done.stderr
    before = (root / "results/runs/fake/offline/scores.jsonl").read_text().splitlines()
    for old, new in zip(before, done.stdout.splitlines(), strict=True):
        first, again = json.loads(old), json.loads(new)
        for stage in ("gen", "deck", "images", "render", "judge"):
            assert again[stage] == first[stage], stage


@pytest.mark.long("test_a_replay_without_the_endpoint_finds_everything_the_same")
def test_a_capsule_of_the_same_run_has_the_same_bytes_and_no_address(packed, root):
    again = script(root, "bin/run-pack --out others results/runs/fake/offline")
    other = root / again.stdout.strip()
    assert other.name == packed.name and other.read_bytes() == packed.read_bytes()
    assert packed.name == f"fake-{hashlib.sha256(packed.read_bytes()).hexdigest()[:12]}.tar"
    assert sorted(members(packed)) == sorted(
        [
            "assets/protocols/offline.toml",
            "capsule.json",
            "compare.json",
            *(
                f"runs/fake/{name}"
                for name in (
                    "gen.jsonl",
                    "prompts.jsonl",
                    "protocol.json",
                    "scores.jsonl",
                    "summary.json",
                )
            ),
        ]
    )
    assert b"127.0.0.1" not in packed.read_bytes()


def test_a_replay_without_the_endpoint_finds_everything_the_same(packed, root):
    done = script(root, f"bin/run-replay {packed}")
    assert done.returncode == 0, done.stdout + done.stderr
    said = done.stdout.splitlines()
    slides = len(json.loads(members(packed)["capsule.json"])["slides"]["fake"])
    assert said[0] == "Toolchain: the capsule's" and said[-2:] == [
        "Everything is the same.",
        "That the models wrote the replies is not shown.",
    ]
    assert (
        said[1] == "Runs: Fake"
        and said[2].startswith(f"Compared: 1 prompts, 1 replies, {slides} slides, 1 records, ")
        and slides > 1
    )


TRIES = """
name = "tries"
[system]
file = "slidev-cheatsheet.md"
[samples]
n = 2
choose = "xray"
[revise]
rounds = 1
by = "xray"
words = 0.1
"""


@pytest.mark.long("test_a_replay_without_the_endpoint_finds_everything_the_same")
def test_a_replay_chooses_and_revises_again_what_a_condition_did(tmp_path):
    server, url = endpoint(tmp_path, "--gains")
    registry = f'[reviser]\nbase_url = "{url}"\nslug = "reviser"\n'
    root = make(tmp_path / "root", core(1), registry)
    (root / "assets/conditions").unlink()
    (root / "assets/conditions").mkdir()
    own = root / "assets/conditions/tries.toml"
    own.write_text(TRIES)
    run = root / "results/runs/reviser+tries/offline"
    run.mkdir(parents=True)
    (run / "prompts.jsonl").write_bytes((root / "data/prompts.jsonl").read_bytes())
    done = script(
        root,
        """R=results/runs/reviser+tries/offline; choose="bin/deck-choose --condition tries --run $R"
        bin/chat-generate --model reviser --condition tries --protocol offline --run $R < $R/prompts.jsonl |
        bin/deck-parse --run $R | bin/deck-illustrate --run $R | bin/deck-render --run $R | $choose |
        bin/deck-revise --model reviser --condition tries --run $R | bin/deck-judge --run $R | bin/deck-scan --run $R |
        bin/deck-score | $choose > $R/scores.jsonl && bin/run-summarize --run $R < $R/scores.jsonl > $R/summary.json""",
    )
    server.kill()
    assert done.returncode == 0, done.stderr
    record = json.loads((run / "scores.jsonl").read_text())
    assert len(record["choose"]["worth"]) == 2 and record["revise"]["kept"] == 1
    own.unlink()  # a replay takes the condition from the capsule
    done = script(root, "bin/run-pack --out caps results/runs/reviser+tries/offline")
    assert done.returncode == 0, done.stderr
    path = root / done.stdout.strip()
    done = script(root, f"bin/run-replay {path}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Compared: 1 prompts, 2 replies, " in done.stdout and "is the same" in done.stdout
    # Another revision than the stored one is told, and nobody is asked for it.
    files = members(path)
    entry = json.loads(files["runs/reviser+tries/revise.jsonl"])
    entry["reply"]["reply"] = "It is well as it is."
    del entry["crc"]
    files["runs/reviser+tries/revise.jsonl"] = stream.dumps(entry) + b"\n"
    with open(root / "edited.tar", "wb") as edited:
        capsule._write(edited, files)
    done = script(root, "bin/run-replay edited.tar")
    assert done.returncode == 65, done.stdout + done.stderr
    assert "revise.kept: stored 1, now 0" in done.stdout


def test_a_capsule_takes_the_reply_that_a_sample_rests_on(tmp_path):
    """Of samples without a condition, too, whose prompt was asked otherwise before and after."""
    lines = [stream.dumps({"id": "p~1", "inputs": each, "gen": {}}) + b"\n" for each in "abc"]
    (tmp_path / "journal").mkdir()
    (tmp_path / "journal/gen.jsonl").write_bytes(b"".join(lines))
    record = {"id": "p~1", "gen": {"sample": {"of": "p", "k": 1}, "by": {"inputs": "b"}}}
    assert capsule._replies(tmp_path, [record], None) == lines[1]


@pytest.mark.long("test_a_replay_without_the_endpoint_finds_everything_the_same")
def test_each_edited_number_is_named_after_the_toolchain_that_differs(root, tmp_path):
    registry, runs = root / "assets/models.toml", root / "results/runs"
    registry.write_text(
        registry.read_text()
        + "[twin]\nlabel = 'Twin'\nbase_url = 'http://127.0.0.1:9/v1'\nslug = 'fake'\n"
    )
    shutil.copytree(runs / "fake", runs / "twin")
    folder = runs / "twin/offline"
    for name in ("scores.jsonl", "journal/gen.jsonl"):
        text = re.sub(r',"crc":"[0-9a-f]{8}"', "", (folder / name).read_text())
        (folder / name).write_text(text.replace('"name":"fake"', '"name":"twin"'))
    rows = [row for _, row in stream.records(folder / "scores.jsonl")]
    for row in rows:
        made_from = ["score", scoring.weighed(row)]
        row["score"]["by"]["inputs"] = stream.fingerprint(made_from)
    stream.write_records(folder / "scores.jsonl", rows)
    (folder / "summary.json").write_text(json.dumps(summarize(enumerate(rows, 1))))
    done = script(
        root, "bin/run-pack --out caps results/runs/fake/offline results/runs/twin/offline"
    )
    assert done.returncode == 0, done.stderr
    packed = root / done.stdout.strip()
    parts = members(packed)
    score, about = json.loads(parts["runs/fake/scores.jsonl"]), json.loads(parts["capsule.json"])
    ident, score["score"]["checks"] = score["id"], 4.9
    slide = sorted(about["slides"]["fake"])[0]
    about["slides"]["fake"][slide] = "0" * 64
    about["toolchain"]["uv.lock"] = "1" * 64
    summary = json.loads(parts["runs/fake/summary.json"])
    summary["means"]["floor"]["renders"]["mean"] = 1.25
    parts |= {
        "runs/fake/scores.jsonl": stream.dumps(score) + b"\n",
        "capsule.json": json.dumps(about).encode(),
        "runs/fake/summary.json": json.dumps(summary).encode(),
        "runs/fake/gen.jsonl": parts["runs/fake/gen.jsonl"].replace(b"## Point 1", b"## Paint 1"),
    }
    claims = json.loads(parts["compare.json"])
    assert claims["status"] == 0, claims["said"]
    place, number = next(
        (path, old)
        for path, old, _ in verify.leaves(claims, claims, "")
        if type(old) is float and ".mean" in path
    )
    parts["compare.json"] = parts["compare.json"].replace(json.dumps(number).encode(), b"77.5")
    edited = tmp_path / packed.name
    with open(edited, "wb") as file:
        capsule._write(file, parts)
    done = script(root, f"bin/run-replay {edited}")
    assert done.returncode == 65, done.stderr
    said = done.stdout.splitlines()
    assert said[0] == "Toolchain: another than the capsule's"
    assert said[1].startswith("  uv.lock: the capsule's is 111111111111, here it is ")
    assert said[4].startswith("differs: the file's name says ")
    assert any(
        line.startswith(f"differs: fake {ident} score.checks: stored 4.9, now ") for line in said
    )
    assert any(
        line.startswith(f"differs: fake {ident} {slide} sha256: stored 000000000000, now ")
        for line in said
    )
    assert any(
        line.startswith(f'differs: fake {ident} gen.text: stored "')
        and "Point 1" in line
        and "Paint 1" in line
        for line in said
    )
    assert any(line.startswith(f"differs: comparison {place}: stored 77.5, now ") for line in said)
    assert any(
        line.startswith("differs: fake summary.means.floor.renders.mean: stored 1.25, now ")
        for line in said
    )


@pytest.mark.long("test_a_replay_without_the_endpoint_finds_everything_the_same")
def test_another_label_is_named(packed, root, tmp_path):
    parts = members(packed)
    about = json.loads(parts["capsule.json"])
    about["models"]["fake"]["label"] = "Famous"
    edited = tmp_path / "edited.tar"
    with open(edited, "wb") as file:
        capsule._write(file, {**parts, "capsule.json": json.dumps(about).encode()})
    done = script(root, f"bin/run-replay {edited}")
    assert done.returncode == 65, done.stderr
    assert "  fake: the capsule calls it Famous, this checkout Fake\n" in done.stdout
    assert '.label: stored "Fake", now "Famous"\n' in done.stdout


DECKS = '[reference]\nlabel = "People"\nbase_url = "files:data/reference/"\nslug = "reference"\n'


@pytest.mark.long("test_a_replay_without_the_endpoint_finds_everything_the_same")
def test_decks_of_a_folder_pack_and_replay_and_another_deck_is_named(tmp_path):
    shipped = [row for _, row in stream.records(ROOT / "data/prompts.jsonl") if row["id"] == "p002"]
    root = make(tmp_path / "root", shipped, DECKS)
    (root / "data/reference").symlink_to(ROOT / "data/reference")
    run = root / "results/runs/reference/offline"
    run.mkdir(parents=True)
    (run / "prompts.jsonl").write_bytes((root / "data/prompts.jsonl").read_bytes())
    done = script(
        root,
        PIPELINE.replace("fake", "reference")
        + " > $R/scores.jsonl && bin/run-summarize --run $R < $R/scores.jsonl > $R/summary.json",
    )
    assert done.returncode == 0, done.stderr
    done = script(root, "bin/run-pack --out caps results/runs/reference/offline")
    assert done.returncode == 0, done.stderr
    path = root / done.stdout.strip()
    done = script(root, f"bin/run-replay {path}")
    assert done.returncode == 0 and "Runs: People\n" in done.stdout, done.stdout + done.stderr
    files = members(path)
    entry = json.loads(files["runs/reference/gen.jsonl"])
    entry["gen"]["text"] = entry["gen"]["text"].replace("# ", "# A ", 1)
    files["runs/reference/gen.jsonl"] = stream.dumps(entry) + b"\n"
    with open(root / "edited.tar", "wb") as edited:
        capsule._write(edited, files)
    done = script(root, "bin/run-replay edited.tar")
    assert done.returncode == 65, done.stderr
    assert "p002 gen: the stored reply was given to another request" in done.stdout


# A vision judge's words, without a browser


@pytest.fixture
def vision(tmp_path, monkeypatch):
    """A stored run with one judged record, and the folder of its replay."""
    from PIL import Image

    stored, now = tmp_path / "stored", tmp_path / "now"
    paths = [f"p1/slides/{n:02}.png" for n in (1, 2)]
    for path in paths:
        (now / path).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (196, 110), (40, 90, 120)).save(now / path)
    part = {"why": "plain", "evidence": [{"slide": 1, "seen": "a title"}], "score": 4}
    said = {name: part for name in scoring.JUDGED} | {
        "observations": [{"seen": "text_cut_off", "slide": 2}],
        "checklist": [{"id": "c1", "yes": True, "slide": 2}],
    }
    (stored / "p1/judge").mkdir(parents=True)
    (stored / "p1/judge/1.txt").write_text("I cannot say.")
    (stored / "p1/judge/2.txt").write_text(f"Here:\n```json\n{json.dumps(said)}\n```")
    row = {
        "id": "p1",
        "messages": [{"role": "user", "content": "Reefs"}],
        "asks": {"slides": 2},
        "checklist": [{"id": "c1", "ask": "A map?"}],
        "render": {"slides": paths, "expected": 2, "errors": [], "xray": []},
    }
    judged = {"replies": ["p1/judge/1.txt", "p1/judge/2.txt"], "usage": {"cost": 0.5}}
    (stored / "scores.jsonl").write_text(json.dumps({**row, "judge": judged}) + "\n")

    def hear():
        command = [
            sys.executable,
            "-m",
            "decksmith.measure.results.replay",
            stored,
            now,
            "published",
        ]
        env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "lib")}
        done = subprocess.run(
            command, input=json.dumps(row) + "\n", capture_output=True, text=True, env=env
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["judge"]

    return stored, hear


def test_a_vision_judge_is_heard_again_from_its_stored_words_without_a_key(vision):
    stored, hear = vision
    value = hear()
    assert value["given"] == {"content": 4, "design": 4, "coherence": 4}
    assert value["scores"] == {"content": 4, "design": 2, "coherence": 4}
    assert value["checklist"] == [{"id": "c1", "yes": True, "slide": 2}]
    assert value["usage"] == {"cost": 0.5} and value["replies"] == [
        "p1/judge/1.txt",
        "p1/judge/2.txt",
    ]
    assert value["rubric"] == stream.fingerprint(identity.judging(Protocol.load("published")))


@pytest.mark.long("test_a_vision_judge_is_heard_again_from_its_stored_words_without_a_key")
def test_other_words_of_a_vision_judge_are_another_verdict(vision):
    stored, hear = vision
    words = stored / "p1/judge/2.txt"
    words.write_text(words.read_text().replace('"score": 4', '"score": 5', 1))
    assert hear()["scores"]["content"] == 5
    words.write_text("nothing")
    assert hear()["error"]["class"] == "unparseable"


# A hostile capsule


def tar(path, *members, form=tarfile.USTAR_FORMAT):
    with tarfile.open(path, "w", format=form) as out:
        for name, change in members:
            info = tarfile.TarInfo(name)
            info.size = 2
            for key, value in change.items():
                setattr(info, key, value)
            out.addfile(info, io.BytesIO(b"{}" if info.isreg() else b""))
    return path


@pytest.mark.parametrize(
    "name",
    [
        "../evil",
        "/etc/evil",
        "runs/fake/../../evil",
        "runs/../scores.jsonl",
        "runs/a/b/images/../x",
        "evil",
        "runs/a/.env",
        "assets/protocols/../../x.toml",
        "runs/a/p/slides/01.png",
        "capsule.json\n",
        "",
    ],
)
def test_a_path_that_no_capsule_has_is_refused(tmp_path, name):
    path = tar(tmp_path / "x.tar", (name, {}))
    with pytest.raises(cli.BadData, match="has no place in a capsule"):
        capsule.unpack(path, tmp_path / "in")
    assert not (tmp_path / "in").exists() and sorted(p.name for p in tmp_path.iterdir()) == [
        "x.tar"
    ]


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE]
)
def test_links_devices_and_folders_are_refused(tmp_path, kind):
    path = tar(
        tmp_path / "x.tar",
        ("runs/a/scores.jsonl", {"type": kind, "linkname": "/etc/passwd", "size": 0}),
    )
    with pytest.raises(cli.BadData, match="has no place in a capsule"):
        capsule.unpack(path, tmp_path / "in")


def test_extended_headers_repeated_torn_and_oversized_members_are_refused(tmp_path, monkeypatch):
    long = tar(
        tmp_path / "long.tar",
        ("capsule.json", {"pax_headers": {"path": "/etc/evil"}}),
        form=tarfile.PAX_FORMAT,
    )
    twice = tar(tmp_path / "twice.tar", ("capsule.json", {}), ("capsule.json", {}))
    torn = tmp_path / "torn.tar"
    torn.write_bytes(tar(tmp_path / "whole.tar", ("capsule.json", {})).read_bytes()[:513])
    noise = tmp_path / "noise.tar"
    noise.write_bytes(b"PK\x03\x04" * 300)
    for path, words in (
        (long, "no place"),
        (twice, "there twice"),
        (torn, "ends in the middle"),
        (noise, "not a capsule"),
    ):
        with pytest.raises(cli.BadData, match=words):
            capsule.unpack(path, tmp_path / path.stem)
    monkeypatch.setattr(capsule, "LARGEST", 1)
    with pytest.raises(cli.BadData, match="too large"):
        capsule.unpack(tmp_path / "whole.tar", tmp_path / "large")


def test_a_protocol_that_grants_decks_too_much_is_refused(packed, tmp_path):
    parts = members(packed)
    text = parts["assets/protocols/offline.toml"].replace(b"deadline = 30", b"deadline = 3000000")
    path = tmp_path / "x.tar"
    with open(path, "wb") as file:
        capsule._write(file, {**parts, "assets/protocols/offline.toml": text})
    with pytest.raises(cli.BadData, match="grants decks more than"):
        replay.Replay(path, tmp_path / "in").run()


def test_names_and_parameters_of_models_survive_toml(tmp_path):
    import tomllib

    entry = {
        "label": 'A "quoted" \\ name\n\x7f é',
        "params": {"max_tokens": 5, "stop": ["a", "]"], "deep": {"x": True}},
    }
    text = f"[{config_files.toml('gpt-5.4')}]\n" + "".join(
        f"{key} = {config_files.toml(value)}\n" for key, value in entry.items()
    )
    assert tomllib.loads(text) == {"gpt-5.4": entry}
