"""Set-up installs what the locks name and nothing that was put in its place; `make audit` reads
them all.
"""

import functools
import hashlib
import http.server
import json
import os
import re
import shlex
import subprocess
import threading
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
PINS = re.compile(
    r"(?m)^([\w.-]+)==([^\s;]+)(.*\\\n(?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)?"
)
LISTS = [ROOT / "assets/uv.txt", ROOT / "assets/torch-cpu.txt"]
LISTS += sorted((ROOT / "assets").glob("*/requirements.txt"))


@functools.cache
def uv_lock():
    packages = tomllib.loads((ROOT / "uv.lock").read_text())["package"]
    return {(one["name"], one["version"]): one for one in packages}


def hashes(text):
    return set(re.findall(r"sha256:[0-9a-f]{64}", text))


def recipe(target, *changed, **env):
    """The commands that make would type for a target of the set-up."""
    command = ["make", "-n", *(f"-W{name}" for name in changed), target]
    environ = {**os.environ, "MAKEFLAGS": "", **env}
    done = subprocess.run(
        command, cwd=ROOT, env=environ, check=True, capture_output=True, text=True
    )
    return done.stdout.replace("\\\n", " ")


@pytest.mark.parametrize("path", LISTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_pin_of_a_list_has_hashes(path):
    found = list(PINS.finditer(path.read_text()))
    assert len(found) == path.read_text().count("==") and found
    assert all(pin[3] for pin in found)


def test_the_lists_have_the_versions_and_hashes_of_uv_lock():
    uv = re.search(r'"uv==([\d.]+)"', (ROOT / "pyproject.toml").read_text())[1]
    files = [uv_lock()["uv", uv]["sdist"], *uv_lock()["uv", uv]["wheels"]]
    assert f"uv=={uv} " in LISTS[0].read_text()
    assert hashes(LISTS[0].read_text()) == {file["hash"] for file in files}
    torch = re.search(r"torch==([\d.]+)\+cpu", LISTS[1].read_text())[1]
    assert ("torch", torch) in uv_lock()


def test_every_package_of_npm_has_its_hash():
    listed = subprocess.run(
        ["git", "ls-files", "*package-lock.json"], cwd=ROOT, capture_output=True
    )
    for name in listed.stdout.decode().split():
        packages = json.loads((ROOT / name).read_text())["packages"]
        assert all(
            one["integrity"].startswith("sha512-") for place, one in packages.items() if place
        )


def test_the_engine_for_gpus_is_of_the_same_lock_and_version():
    """`npm install` of a package asks the registry for its hash, not the lock: only `npm ci` is typed."""
    package = json.loads((ROOT / "assets/engine/package.json").read_text())
    wanted = package["dependencies"]["node-llama-cpp"]
    assert package["devDependencies"] == {"@node-llama-cpp/linux-x64-cuda": wanted}
    typed = recipe("assets/engine/node_modules/.cuda", "assets/engine/package-lock.json")
    flags = [re.findall(r"--omit=(\w+)", line) for line in typed.splitlines() if "npm ci" in line]
    assert flags == [["optional", "dev"], ["optional"]]
    places = [ROOT / "make/setup.mk", *(ROOT / "containers").glob("*.def")]
    assert not [path.name for path in places if "npm install" in path.read_text()]


def test_torch_without_a_gpu_brings_nothing_of_cuda():
    typed = recipe(".venv/.train", "assets/torch-cpu.txt", PIP_FIND_LINKS="/nowhere")
    export = next(line for line in typed.splitlines() if "uv export" in line)
    words = [word for word in shlex.split(export) if word != "--quiet"]
    del words[words.index("--output-file") :]
    listed = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    names = {pin[1] for pin in PINS.finditer(listed)}
    assert {"trl", "peft", "sympy"} <= names and hashes(listed)
    assert not [name for name in names if re.match("nvidia|cuda|triton|torch", name)]


def substitute(folder, name, version):
    """A wheel that has the name and version of another, and other contents."""
    folder.mkdir()
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{name}/__init__.py", "raise SystemExit('not what was asked for')\n")
        wheel.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        )
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(
            f"{info}/RECORD", f"{name}/__init__.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n"
        )


@pytest.mark.parametrize(
    "path", [LISTS[0], pytest.param(LISTS[1], marks=pytest.mark.long)], ids=["uv", "torch"]
)
def test_a_wheel_that_was_put_in_the_place_of_another_is_refused(tmp_path, path):
    name, version = PINS.search(path.read_text()).group(1, 2)
    substitute(tmp_path / "wheels", name, version)
    goal = {"uv": ".venv/.python", "torch": ".venv/.train"}[name]
    typed = recipe(goal, str(path.relative_to(ROOT)), PIP_FIND_LINKS=str(tmp_path / "wheels"))
    command = next(
        line for line in typed.splitlines() if line.endswith(f"-r {path.relative_to(ROOT)}")
    )
    if ".venv/bin/python3" in command:  # the pip of a new environment, which goes once uv is there
        venv.create(tmp_path / "new", with_pip=True)
        command = command.replace(".venv", f"{tmp_path}/new")
    here = f"{command} --no-index --find-links {tmp_path}/wheels --target {tmp_path}/into"
    done = subprocess.run(["bash", "-c", here], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1 and "hash" in done.stderr.lower(), done.stderr
    assert not list(tmp_path.glob("into/*/__init__.py"))
    # The same wheel, where the list has its hash.
    wheel = next((tmp_path / "wheels").iterdir())
    own = tmp_path / "own.txt"
    own.write_text(
        f"{name}=={version} --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n"
    )
    own_command = here.replace(f"-r {path.relative_to(ROOT)}", f"-r {own}")
    subprocess.run(["bash", "-c", own_command], cwd=ROOT, check=True, capture_output=True)
    assert (tmp_path / "into" / name / "__init__.py").exists()


def test_nothing_of_the_set_up_is_installed_without_its_hash():
    """uv sync and npm ci check the hashes of their locks by themselves."""
    typed = "".join(recipe(goal, "pyproject.toml") for goal in (".venv/.train", ".venv-gym/.done"))
    typed += "".join(path.read_text() for path in (ROOT / "containers").glob("*.def"))
    installs = [line for line in typed.splitlines() if re.search(r"\bpip install\b", line)]
    assert len(installs) >= 7
    assert [line for line in installs if "--require-hashes" not in line] == []


# --- make audit

LOCKED = {
    "uv.lock": """
[[package]]
name = "here"
version = "1"
source = { virtual = "." }

[[package]]
name = "deck-tools"
version = "2.4.0"
source = { registry = "https://pypi.org/simple" }
""",
    "assets/torch-cpu.txt": "torch==2.13.0+cpu \\\n    --hash=sha256:0\n",
    "assets/gym/requirements.txt": "deck-tools==3.0.0rc1 \\\n    --hash=sha256:0\n",
    "tests/package-lock.json": json.dumps(
        {
            "packages": {
                "": {"name": "tests"},
                "node_modules/@deck/slides": {"version": "4.0.0-rc.2"},
                "node_modules/a/node_modules/deep": {"version": "1.10.0"},
                "node_modules/alias": {"name": "real", "version": "7.0.0"},
                "node_modules/near": {"link": True, "resolved": "near"},
            }
        }
    ),
}
V3 = "CVSS:3.1/AV:N/AC:L/PR:N/UI:N/S:U/C:{0}/I:{0}/A:{0}"  # H: 9.8, L: 7.3, N: 0
V2 = "AV:N/AC:L/Au:N/C:N/I:N/A:C"
V4 = "CVSS:4.0/AV:P/AC:H/AT:P/PR:H/UI:A/VC:L/VI:N/VA:N/SC:N/SI:N/SA:N"  # 1.0


ALL = {"introduced": "0"}


def advisory(name, *events, ecosystem="PyPI", id="DECK-1", score=None, **more):
    kind = "ECOSYSTEM" if ecosystem == "PyPI" else "SEMVER"
    affected = {"package": {"ecosystem": ecosystem, "name": name}}
    affected["ranges"] = [{"type": kind, "events": list(events)}]
    record = {"schema_version": "1.7.0", "id": id, "modified": "2026-01-01T00:00:00Z", **more}
    if score:
        record["severity"] = [{"type": f"CVSS_V{score[5]}", "score": score}]
    return {**record, "affected": [affected]}


@pytest.fixture
def audit(tmp_path):
    """audit(*records, lists=None): (status, the table's rows, what was said)."""
    for name, text in LOCKED.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    def run(*records, file=None, more=None, lists="http://127.0.0.1:9"):
        if records:
            file = tmp_path / "osv.jsonl"
            records += tuple(advisory("elsewhere", ALL, ecosystem=name) for name in ("PyPI", "npm"))
            file.write_text("".join(json.dumps(record) + "\n" for record in records))
        env = {
            **os.environ,
            "PYTHONPATH": "lib",
            "DECKSMITH_ROOT": str(tmp_path),
            "OSV_LISTS": lists,
        }
        command = [".venv/bin/python3", "make/audit.py", *(str(one) for one in (file, more) if one)]
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
        rows = [re.split(r"\s{2,}", line) for line in done.stdout.splitlines()]
        return done.returncode, rows[1:], done.stderr

    return run


RANGES = [
    # package, ecosystem, events, affected, fixed in
    ("deck-tools", "PyPI", [("introduced", "0"), ("fixed", "2.4.1")], "2.4.0", "2.4.1"),
    ("Deck_Tools", "PyPI", [("introduced", "0"), ("fixed", "2.4")], None, None),
    ("deck-tools", "PyPI", [("introduced", "2.4"), ("last_affected", "2.4")], "2.4.0", "-"),
    ("deck-tools", "PyPI", [("introduced", "2.5"), ("last_affected", "2.9")], None, None),
    ("deck-tools", "PyPI", [("introduced", "3.0.0a1"), ("fixed", "3.0.0")], "3.0.0rc1", "3.0.0"),
    ("deck-tools", "PyPI", [("introduced", "3.0.0")], None, None),
    # Events come in any order; a fault may come back.
    (
        "deck-tools",
        "PyPI",
        [("fixed", "2.6"), ("introduced", "2.2"), ("fixed", "2.1"), ("introduced", "1")],
        "2.4.0",
        "2.6",
    ),
    ("deck-tools", "PyPI", [("introduced", "1"), ("fixed", "2"), ("introduced", "3")], None, None),
    ("torch", "PyPI", [("introduced", "0"), ("last_affected", "2.13.0")], "2.13.0", "-"),
    ("torch", "PyPI", [("introduced", "0"), ("fixed", "2.13.0")], None, None),
    ("deep", "npm", [("introduced", "0"), ("fixed", "1.9.9")], None, None),
    ("deep", "npm", [("introduced", "1.9.0"), ("fixed", "1.10.1")], "1.10.0", "1.10.1"),
    ("@deck/slides", "npm", [("introduced", "0"), ("fixed", "4.0.0")], "4.0.0-rc.2", "4.0.0"),
    ("@deck/slides", "npm", [("introduced", "0"), ("fixed", "4.0.0-rc.2")], None, None),
    ("@deck/slides", "npm", [("introduced", "4.0.0-rc.10")], None, None),
    ("@deck/slides", "npm", [("introduced", "4.0.0-beta.9")], "4.0.0-rc.2", "-"),
    ("real", "npm", [("introduced", "0")], "7.0.0", "-"),
    ("alias", "npm", [("introduced", "0")], None, None),
    ("deck-tools", "npm", [("introduced", "0")], None, None),
    ("here", "PyPI", [("introduced", "0")], None, None),
]


def test_a_version_is_affected_as_the_events_of_its_range_say(audit):
    records = [
        advisory(name, *({kind: at} for kind, at in events), ecosystem=ecosystem, id=f"DECK-{k:02}")
        for k, (name, ecosystem, events, _, _) in enumerate(RANGES)
    ]
    status, rows, said = audit(*records)
    found = {row[2]: (row[1], row[4]) for row in rows}
    wanted = {f"DECK-{k:02}": row[3:] for k, row in enumerate(RANGES) if row[3]}
    assert (found, status) == (wanted, 0)
    assert f"6 packages of 4 locks: {len(wanted)} advisories, of 12 of PyPI and 10 of npm" in said


def test_versions_that_are_only_listed_and_ranges_of_commits(audit):
    listed, commits = advisory("deck-tools", id="LISTED"), advisory("deck-tools", id="COMMITS")
    listed["affected"][0] |= {"versions": ["2.3.0", "2.4", "oldest"], "ranges": []}
    commits["affected"][0]["ranges"] = [{"type": "GIT", "events": [{"introduced": "0"}]}]
    assert [row[:3] for row in audit(listed, commits)[1]] == [["deck-tools", "2.4.0", "LISTED"]]


@pytest.mark.parametrize(
    ("given", "severity", "status"),
    [
        ({"score": V3.format("H")}, "critical", 1),
        ({"score": V4}, "low", 0),
        # The worse of two words.
        ({"score": V4, "database_specific": {"severity": "CRITICAL"}}, "critical", 1),
        ({"id": "MAL-2026-1"}, "critical", 1),
        *(
            pytest.param(*case, marks=pytest.mark.long)
            for case in (
                ({"score": V3.format("L")}, "high", 1),
                ({"score": V3.format("N")}, "none", 0),
                ({"database_specific": {"severity": "MODERATE"}}, "medium", 0),
                ({"database_specific": {"severity": "HIGH"}}, "high", 1),
                ({}, "unknown", 0),
                ({"severity": [{"type": "CVSS_V3", "score": "CVSS:3.1/AV:?"}]}, "unknown", 0),
                ({"severity": [{"type": "CVSS_V2", "score": V2}]}, "high", 1),
            )
        ),
    ],
)
def test_severity_is_the_worst_that_is_said_and_decides_the_status(audit, given, severity, status):
    found, rows, _ = audit(advisory("real", ALL, ecosystem="npm", **given))
    assert (rows[0][3], found) == (severity, status)


def test_one_fault_is_one_row_and_a_withdrawn_one_is_none(audit):
    database = {"severity": "HIGH"}
    status, rows, _ = audit(
        advisory("real", ALL, ecosystem="npm", id="DECK-A", aliases=["CVE-1"]),
        advisory(
            "real", ALL, ecosystem="npm", id="DECK-B", aliases=["CVE-1"], database_specific=database
        ),
        advisory(
            "deep", ALL, ecosystem="npm", withdrawn="2026-02-02T00:00:00Z", score=V3.format("H")
        ),
    )
    assert (
        rows == [["real", "7.0.0", "DECK-B", "high", "-", "tests/package-lock.json"]]
        and status == 1
    )


def test_a_zip_of_records_is_read_whether_given_or_fetched(audit, tmp_path):
    record = advisory("real", ALL, ecosystem="npm")
    for ecosystem, records in (("npm", [record]), ("PyPI", [advisory("other", ALL)])):
        (tmp_path / ecosystem).mkdir()
        with zipfile.ZipFile(tmp_path / ecosystem / "all.zip", "w") as archive:
            for one in records:
                archive.writestr(f"{one['id']}.json", json.dumps(one))
    given = audit(file=tmp_path / "npm/all.zip", more=tmp_path / "PyPI/all.zip")
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        fetched = audit(lists=f"http://127.0.0.1:{server.server_port}")
        server.shutdown()
    assert given == fetched and len(given[1]) == 1


def test_what_is_no_list_and_what_cannot_be_fetched_are_sentences(audit, tmp_path):
    (tmp_path / "page.html").write_text("<html>not found</html>\n")
    for file in ("page.html", "nowhere.zip"):
        status, rows, said = audit(file=tmp_path / file)
        assert (status, rows) == (65, []) and "is no list of advisories" in said
    (tmp_path / "line.jsonl").write_text("[]\n")
    assert audit(file=tmp_path / "line.jsonl")[0] == 65
    status, _, said = audit()
    assert status == 75 and said.count("\n") == 1 and "make audit ADVISORIES=FILE" in said


def test_a_list_that_has_nothing_on_an_ecosystem_is_no_clean_bill(audit, tmp_path):
    (tmp_path / "part.jsonl").write_text(json.dumps(advisory("other", ALL)))
    status, _, said = audit(file=tmp_path / "part.jsonl")
    assert status == 65 and "of 1 of PyPI and 0 of npm" in said and "leave packages out" in said


def test_a_broken_advisory_of_a_package_of_ours_is_shown(audit):
    status, rows, _ = audit(advisory("deep", {"introduced": "soon"}, ecosystem="npm", id="DECK-X"))
    assert rows[0][:4] == ["deep", "1.10.0", "DECK-X", "unknown"] and "unread: " in rows[0][4]
    assert status == 0


def test_make_audit_reads_every_lock_of_this_checkout(tmp_path):
    listed = ["git", "ls-files", "uv.lock", "*package-lock.json", "assets/*.txt"]
    tracked = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True).stdout.split()
    locks = [name for name in tracked if re.search("sha(256|512)[:-]", (ROOT / name).read_text())]
    records = [advisory("other", ALL), advisory("other", ALL, ecosystem="npm")]
    (tmp_path / "osv.jsonl").write_text("\n".join(map(json.dumps, records)))
    command = ["make", "audit", f"ADVISORIES={tmp_path}/osv.jsonl"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert f"packages of {len(locks)} locks: no advisories" in done.stderr and len(locks) == 10
