"""What a fresh machine downloads for each part of the set-up: prints a markdown page (docs/sizes.md).

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

# What is fetched, and for which groups of pyproject.toml, without those of the parts before.
PYTHON = {
    "Python packages": ["--no-default-groups"],
    "the embedded model": ["--only-group", "local"],
    "Node, where the machine's own is another": ["--only-group", "node"],
    "torch and transformers": ["--only-group", "train"],
}
NODE = {
    "Node packages of the renderer, with its browser and fonts": ("assets/renderer", []),
    "Node packages of the embedded engine": ("assets/engine", ["--omit=optional"]),
}
# The parts that a command needs.
COMMANDS = {
    "make baseline": [*list(PYTHON)[:3], *NODE],
    "make rehearsal": [*PYTHON, *NODE],
}


def python(groups: list[str], folder: Path) -> int:
    """The bytes of the wheels of some groups."""
    wanted = folder / "wanted.txt"
    export = ["export", "--frozen", "--quiet", "--no-hashes", "--no-emit-project", *groups]
    subprocess.run([BIN / "uv", *export, "--output-file", wanted], cwd=ROOT, check=True)
    fetch = ["-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    # torch without CUDA, where this machine has no GPU, as make/setup.mk does it
    index = (
        []
        if Path("/dev/nvidiactl").exists() or "PIP_FIND_LINKS" in os.environ
        else ["--extra-index-url", "https://download.pytorch.org/whl/cpu"]
    )
    into = ["--no-cache-dir", "--dest", folder / "wheels", *index]
    subprocess.run([BIN / "python3", *fetch, *into, "--requirement", wanted], check=True)
    return size(folder / "wheels")


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
    for part in [*PYTHON, *NODE]:
        print(f"sizes: {part}", file=sys.stderr)
        with tempfile.TemporaryDirectory() as name:
            if part in PYTHON:
                found[part] = python(PYTHON[part], Path(name))
            else:
                found[part] = node(*NODE[part], Path(name))
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
