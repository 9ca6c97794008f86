"""Our images by Podman, without root and without Apptainer: `make test-images`. No registry is asked: Debian comes by debootstrap.

What is built stays in the user's Podman, tagged by what it is made of.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from test_images import CHAIN, IMAGES, KEPT, LOOK, ROOT, USER

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(7200),
    pytest.mark.skipif(not shutil.which("podman"), reason="no podman here"),
]
BASE = KEPT / "bookworm.tar"
# crun wants one hierarchy of cgroups; where the machine has two, this process gets one of its own.
ALONE = f"""
if [ ! -e /sys/fs/cgroup/cgroup.controllers ]; then
  mount --make-rprivate / && umount -l -R /sys/fs/cgroup && mount -t cgroup2 none /sys/fs/cgroup
fi
mkdir -p /sys/fs/cgroup/decksmith && chown -R {USER} /sys/fs/cgroup/decksmith
echo $$ > /sys/fs/cgroup/decksmith/cgroup.procs
exec setpriv --reuid {USER} --regid {USER} --clear-groups bash -c "$0"
"""


def podman(folder, script, stdin="", **variables):
    """`script` in a bash of the user, which has Podman for its engine: (status, stdout, stderr)."""
    env = {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "HOME": f"/home/{USER}", "CONTAINER": "podman"}
    env |= {"IMAGES": "on", "DECKSMITH_RENDERS": "off", "XDG_RUNTIME_DIR": f"/tmp/run-{USER}"}
    env |= {"STORAGE_DRIVER": "overlay"}
    for name in ("SSL_CERT_FILE", "DEBIAN_MIRROR"):
        env |= {name: os.environ[name]} if name in os.environ else {}
    done = subprocess.run(
        ["unshare", "-m", "bash", "-c", ALONE, script],
        cwd=folder,
        env=env | {"BASE": "localhost/decksmith-base:bookworm"} | variables,
        input=stdin,
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout, done.stderr


def says(folder, script, **more):
    status, said, words = podman(folder, script, **more)
    assert status == 0, said[-2000:] + words[-2000:]
    return said.strip()


@pytest.fixture(scope="module")
def checkout():
    """A copy of the checkout that belongs to the user, whose Podman has its images."""
    folder = Path(tempfile.mkdtemp(prefix="decksmith-", dir="/var/tmp"))
    listed = subprocess.run(
        ["git", "-C", ROOT, "ls-files", "-co", "--exclude-standard"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    words = ["rsync", "-a", "--files-from=-", "--ignore-missing-args", f"{ROOT}/", f"{folder}/"]
    subprocess.run(words, input=listed, text=True, check=True)
    subprocess.run(["chown", "-R", f"{USER}:{USER}", folder], check=True)
    runtime = Path(f"/tmp/run-{USER}")
    runtime.mkdir(exist_ok=True, mode=0o700)
    shutil.chown(runtime, USER, USER)
    KEPT.mkdir(exist_ok=True)
    # What an earlier run left waiting holds other mounts.
    says(folder, "podman system migrate")
    if podman(folder, "podman image inspect $BASE")[0]:
        with tempfile.TemporaryDirectory(dir="/var/tmp") as root:
            mirror = os.environ.get("DEBIAN_MIRROR", "http://deb.debian.org/debian")
            words = ["debootstrap", "--variant=minbase", "bookworm", root, mirror]
            subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
            subprocess.run(["tar", "-C", root, "-cf", BASE, "."], check=True)
        says(folder, f"podman import -q {BASE} decksmith-base:bookworm")
        BASE.unlink()
    for image in IMAGES:
        says(folder, f"containers/verify {image} 2> /dev/null || containers/build {image}")
    yield folder
    says("/", "podman system migrate")
    shutil.rmtree(folder)


def test_an_image_is_the_user_on_a_root_that_cannot_be_written_and_a_sandbox_has_no_network(
    checkout,
):
    said = says(
        checkout,
        """bin/within sandbox sh -c 'id -u; echo "$HOME $DECKSMITH_IMAGE"; touch /usr/x 2> /dev/null || echo sealed
        ls /home/hpc > /dev/null 2>&1 || echo no home; grep -c : /proc/net/dev; touch written "$HOME/scratch" && echo ours; exit 0'
        bin/within sandbox sh -c 'exit 7' || echo $?""",
    ).splitlines()
    uid = says("/", "id -u")
    assert said == [uid, "/home/decksmith sandbox", "sealed", "no home", "1", "ours", "7"]
    assert (checkout / "written").exists()


def test_a_key_arrives_by_name_and_stands_in_no_command_line(checkout):
    (checkout / "look.py").write_text(LOOK)
    said = says(checkout, "bin/within tools python3 look.py", SOME_API_KEY="sk-83c1")
    assert said == "sk-83c1 True"


def test_decks_are_drawn_as_by_the_hosts_toolchain(checkout):
    records = subprocess.run(
        [sys.executable, ROOT / "tests/exam/judge_exam.py", "--gold", "1"],
        env=os.environ | {"PYTHONPATH": str(ROOT / "lib")},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    found = {}
    for name in ("podman", "host"):
        run = checkout / "results" / name
        if name == "podman":
            said = says(checkout, CHAIN, stdin=records, RUN=str(run))
        else:
            env = os.environ | {"IMAGES": "off", "DECKSMITH_RENDERS": "off", "RUN": str(run)}
            words = ["bash", "-c", CHAIN]
            said = subprocess.run(
                words, cwd=ROOT, env=env, input=records, text=True, capture_output=True, check=True
            ).stdout
        (found[name],) = map(json.loads, said.splitlines())
    ours, hosts = found["podman"], found["host"]
    assert (ours["render"]["status"], ours["render"]["by"]["image"]) == ("ok", "render")
    assert (ours["score"]["by"]["image"], hosts["score"]["by"]["image"]) == ("tools", "host")
    assert (
        len(ours["render"]["slides"]) > 4 and ours["render"]["slides"] == hosts["render"]["slides"]
    )
    for slide in ours["render"]["slides"]:
        one, other = (checkout / "results" / name / slide for name in found)
        assert one.read_bytes() == other.read_bytes(), slide
    assert ours["score"]["checks"] == hosts["score"]["checks"]
