"""The images for real: built and run by the ordinary user hpc (tests/slurm/setup makes him, and brings Apptainer).

Building takes minutes, so what was built is kept in /var/tmp/decksmith-images by what it is made of; remove that to build again.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
KEPT = Path("/var/tmp/decksmith-images")
USER = "hpc"
IMAGES = ("tools", "render", "sandbox")
CHAIN = """set -o pipefail
bin/deck-parse --run $RUN | bin/deck-illustrate --run $RUN | bin/deck-render --run $RUN | bin/deck-judge --run $RUN |
  bin/deck-scan --run $RUN | bin/deck-score"""
# No process that is seen has the key among its words.
LOOK = """import glob, os
key, seen = os.environ["SOME_API_KEY"], 0
for place in glob.glob("/proc/[0-9]*/cmdline"):
    try:
        words = open(place, "rb").read()
    except OSError:
        continue
    seen += 1
    assert key.encode() not in words, words
print(key, seen > 3)"""
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(7200)]


def bash(folder, script, stdin=None, user=USER, **variables):
    """`script` in a bash of the user, in `folder`, with a bare environment: (status, stdout, stderr)."""
    env = {
        "PATH": "/usr/bin:/bin",
        "IMAGES": "on",
        "DECKSMITH_RENDERS": "off",
        "HOME": f"/home/{user}",
    } | variables
    done = subprocess.run(
        ["bash", "-c", script],
        user=user,
        group=user,
        extra_groups=[],
        cwd=folder,
        env=env,
        input=stdin or "",
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout, done.stderr


def says(folder, script, **more):
    status, said, words = bash(folder, script, **more)
    assert status == 0, words
    return said.strip()


@pytest.fixture(scope="module")
def checkout():
    """A copy of the checkout that belongs to the user, its images built."""
    folder = Path(tempfile.mkdtemp(prefix="decksmith-", dir="/var/tmp"))
    folder.chmod(0o755)
    names = subprocess.run(
        ["git", "-C", ROOT, "ls-files", "-co", "--exclude-standard", "-z"],
        capture_output=True,
        check=True,
    ).stdout
    subprocess.run(
        [
            "rsync",
            "-a",
            "--from0",
            "--files-from=-",
            "--ignore-missing-args",
            f"{ROOT}/",
            f"{folder}/",
        ],
        input=names,
        check=True,
    )
    shutil.chown(folder, USER, USER)
    subprocess.run(["chown", "-R", f"{USER}:{USER}", folder], check=True)
    KEPT.mkdir(exist_ok=True)
    shutil.chown(KEPT, USER, USER)
    for image in IMAGES:
        kept = f"{KEPT}/{image}-{says(folder, f'containers/verify --sources {image}')}.sif"
        if not Path(kept).exists():
            mirror = (
                {"DEBIAN_MIRROR": os.environ["DEBIAN_MIRROR"]}
                if "DEBIAN_MIRROR" in os.environ
                else {}
            )
            status, said, words = bash(folder, f"nice containers/build {image}", **mirror)
            assert status == 0, said[-2000:] + words[-2000:]
            says(
                folder,
                f"cp containers/{image}.sif.lock {kept}.lock && cp containers/{image}.sif {kept}.tmp && mv {kept}.tmp {kept}",
            )
        else:
            says(
                folder,
                f"cp {kept} containers/{image}.sif && cp {kept}.lock containers/{image}.sif.lock",
            )
    yield folder
    shutil.rmtree(folder)


def test_an_image_is_the_user_on_a_root_that_cannot_be_written_without_his_home_or_the_hosts_toolchain(
    checkout,
):
    home = Path(f"/home/{USER}")
    stray = home / ".local/lib/python3.11/site-packages/stray.py"
    says(
        "/",
        f"mkdir -p {stray.parent} {checkout}/.venv/bin && touch {stray} {checkout}/.venv/bin/host",
    )
    try:
        said = says(
            checkout,
            """bin/within tools sh -c 'id -u; echo "$HOME"; ls -A .venv; command -v python3
            touch /usr/x 2> /dev/null || echo sealed; ls '"$HOME"' > /dev/null 2>&1 || echo no home
            python3 -c "import stray" 2> /dev/null || echo no stray; touch written "$HOME/scratch" && echo ours'""",
        )
    finally:
        shutil.rmtree(checkout / ".venv")
        stray.unlink()
    uid = says("/", "id -u")
    assert said.splitlines() == [
        uid,
        "/home/decksmith",
        "/toolchain/.venv/bin/python3",
        "sealed",
        "no home",
        "no stray",
        "ours",
    ]
    assert (checkout / "written").exists()


def test_a_key_arrives_by_environment_and_stands_in_no_command_line(checkout):
    (checkout / "look.py").write_text(LOOK)
    assert (
        says(checkout, "bin/within tools python3 look.py", SOME_API_KEY="sk-83c1") == "sk-83c1 True"
    )


@pytest.mark.parametrize(
    ("image", "reached"), [("tools", True), ("render", False), ("sandbox", False)]
)
def test_render_and_sandbox_have_no_network(checkout, image, reached):
    with socket.create_server(("127.0.0.1", 0)) as server:
        program = (
            f"import socket; socket.create_connection(('127.0.0.1', {server.getsockname()[1]}), 5)"
        )
        status, _, words = bash(checkout, f'bin/within {image} python3 -c "{program}"')
    assert (status == 0) == reached and (
        reached or "Connection refused" in words or "unreachable" in words
    ), words
    devices = says(checkout, f"bin/within {image} cat /proc/net/dev").splitlines()[2:]
    assert reached or [line.split(":")[0].strip() for line in devices] == ["lo"]


def test_every_script_starts_in_its_image(checkout):
    names = [
        path.name
        for path in sorted((checkout / "bin").glob("*-*"))
        if path.read_text().splitlines()[0]
        in [
            f"""#!/usr/bin/env -S sh -c 's=$(readlink -f "$0"); exec "${{s%/*}}/within" {image} python3 "$s" "$@"'"""
            for image in IMAGES
        ]
    ]
    assert "deck-render" in names and "chat-generate" in names
    said = says(
        checkout,
        f"for name in {' '.join(names)}; do bin/$name --help > /dev/null && echo $name; done",
        PATH="/usr/bin:/bin",
    )
    assert said.split() == names


def test_the_pipeline_in_images_draws_the_bytes_of_a_second_run_and_of_the_hosts_toolchain(
    checkout,
):
    records = subprocess.run(
        [sys.executable, ROOT / "tests/exam/judge_exam.py", "--gold", "2"],
        env=os.environ | {"PYTHONPATH": str(ROOT / "lib")},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    runs = {}
    for name, folder, user, images in (
        ("one", checkout, USER, "on"),
        ("two", checkout, USER, "on"),
        ("host", ROOT, "root", "off"),
    ):
        run = checkout / "results" / name
        status, said, words = bash(
            folder, CHAIN, stdin=records, user=user, RUN=str(run), IMAGES=images
        )
        assert status == 0, words
        runs[name] = [json.loads(line) for line in said.splitlines()]
        assert [record["render"]["status"] for record in runs[name]] == ["ok", "ok"]
        assert runs[name][0]["render"]["by"]["image"] == ("render" if images == "on" else "host")
        assert runs[name][0]["score"]["by"]["image"] == ("tools" if images == "on" else "host")
    slides = [slide for record in runs["one"] for slide in record["render"]["slides"]]
    assert len(slides) > 10
    for other in ("two", "host"):
        differ = [
            slide
            for slide in slides
            if (checkout / "results/one" / slide).read_bytes()
            != (checkout / "results" / other / slide).read_bytes()
        ]
        assert not differ, (other, differ)
    assert runs["one"][0]["render"]["engine"] == runs["host"][0]["render"]["engine"]
    assert [record["score"]["checks"] for record in runs["one"]] == [
        record["score"]["checks"] for record in runs["host"]
    ]


def test_the_embedded_model_writes_in_its_image_also_for_others_when_who_started_it_has_gone(
    checkout,
):
    """The server belongs to the container of the first; it must outlive that while somebody needs it."""
    script = """
for id in a; do echo '{"id":"'$id'","messages":[{"role":"user","content":"Say '$id'."}]}'; done > few
for id in b c d; do echo '{"id":"'$id'","messages":[{"role":"user","content":"Say '$id'."}]}'; done > many
bin/chat-generate --model smol --max-tokens 8 --run results/few < few > few.jsonl & first=$!
bin/chat-generate --model smol --max-tokens 60 --run results/many < many > many.jsonl & second=$!
wait $first; wait $second; cat few.jsonl many.jsonl"""
    records = [json.loads(line) for line in says(checkout, script).splitlines()]
    assert [record["id"] for record in records] == ["a", "b", "c", "d"]
    assert all(
        record["gen"]["by"]["image"] == "tools" and record["gen"]["text"] for record in records
    )


def test_a_changed_image_is_refused_and_the_right_one_taken_again(checkout):
    with open(checkout / "containers/sandbox.sif", "ab") as file:
        file.write(b"x")
    assert bash(checkout, "bin/within sandbox true") == (
        69,
        "",
        "within: image sandbox is not the file that was built (its sha256 differs); build it: make image-sandbox\n",
    )
    os.truncate(
        checkout / "containers/sandbox.sif",
        (checkout / "containers/sandbox.sif").stat().st_size - 1,
    )
    says(checkout, "bin/within sandbox true")


def test_an_image_says_what_it_is_made_of(checkout):
    said = json.loads(says(checkout, "apptainer inspect --json containers/render.sif"))["data"][
        "attributes"
    ]["labels"]
    lock = subprocess.run(
        ["sha256sum", checkout / "assets/renderer/package-lock.json"],
        capture_output=True,
        text=True,
    ).stdout
    assert said["decksmith.image"] == "render" and said["decksmith.renderer.lock"] == lock[:64]
    assert said["decksmith.sources"] == says(checkout, "containers/verify --sources render")
