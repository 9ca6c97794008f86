"""What a fresh machine downloads for each part of the set-up: prints a markdown page (docs/platforms.md).

Everything is fetched anew, by the locks, into a folder that goes afterwards: wheels as pip gets them, Node packages as npm keeps them.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BIN = ROOT / ".venv/bin"

# What is fetched, and for which groups of pyproject.toml, without what the parts before have fetched.
PYTHON = {
    "Python packages": ["--no-default-groups"],
    "the embedded model": ["--only-group", "local"],
    "Node, where the machine's own is another": ["--only-group", "node"],
    "torch and transformers": ["--only-group", "train"],
}
# What the group train asks for: without CUDA's packages where there is no GPU.
TRAIN = ["accelerate", "gguf", "peft", "torch", "transformers", "trl"]
NODE = {
    "Node packages of the renderer, with its browser and fonts": ("assets/renderer", []),
    "Node packages of the embedded engine": ("assets/engine", ["--omit=optional", "--omit=dev"]),
}
# The parts that a command needs.
COMMANDS = {
    "make baseline": [*list(PYTHON)[:3], *NODE],
    "make rehearsal": [*PYTHON, *NODE],
}


def python(part: str, folder: Path) -> int:
    """The bytes of the wheels of a part that are not in the folder yet."""
    before, wanted = size(folder), folder.with_suffix(".txt")
    export = ["export", "--frozen", "--quiet", "--no-hashes", "--no-emit-project", *PYTHON[part]]
    subprocess.run([BIN / "uv", *export, "--output-file", wanted], cwd=ROOT, check=True)
    command = [folder.with_name("pip") / "bin/pip", "download", "--quiet", "--no-cache-dir"]
    command += ["--disable-pip-version-check", "--dest", folder]
    if "train" in PYTHON[part]:
        if not Path("/dev/nvidiactl").exists() and "PIP_FIND_LINKS" not in os.environ:
            command += ["--extra-index-url", "https://download.pytorch.org/whl/cpu"]
        command += ["--constraint", wanted, *TRAIN]
    else:
        command += ["--no-deps", "--requirement", wanted]
    subprocess.run(command, check=True)
    return size(folder) - before


def node(place: str, flags: list[str], folder: Path) -> int:
    """The bytes of the packages of a lock, as npm's cache holds them."""
    for name in ("package.json", "package-lock.json"):
        shutil.copy(ROOT / place / name, folder)
    command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    env = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}
    subprocess.run(
        [*command, *flags, "--cache", folder / "cache"],
        cwd=folder,
        env=env,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return size(folder / "cache/_cacache/content-v2")


def size(folder: Path) -> int:
    """The bytes of the files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def main() -> None:
    found: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as name:
        wheels = Path(name) / "wheels"
        subprocess.run([BIN / "python3", "-m", "venv", Path(name) / "pip"], check=True)
        for part in PYTHON:
            print(f"sizes: {part}", file=sys.stderr)
            found[part] = python(part, wheels)
    for part, (place, flags) in NODE.items():
        print(f"sizes: {part}", file=sys.stderr)
        with tempfile.TemporaryDirectory() as name:
            found[part] = node(place, flags, Path(name))
    print("# What is downloaded\n")
    print(
        "Written by `make sizes`: the set-up's packages at the versions of the locks, fetched anew.\n"
    )
    print("| part | MB |\n|---|---:|")
    for part, count in found.items():
        print(f"| {part} | {count / 1e6:.0f} |")
    print("\n| command | MB |\n|---|---:|")
    for command, parts in COMMANDS.items():
        print(f"| `{command}` | {sum(found[part] for part in parts) / 1e6:.0f} |")


if __name__ == "__main__":
    main()
