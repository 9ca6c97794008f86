"""What the README says of the scripts is what they say of themselves."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_table_of_scripts_is_up_to_date():
    done = subprocess.run([sys.executable, ROOT / "tests/readme.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_every_script_has_a_bats_file_and_its_own_help():
    for path in sorted((ROOT / "bin").glob("*-*")):
        assert (ROOT / "tests/bin" / f"{path.name}.bats").exists(), path.name
        said = subprocess.run([path, "--help"], capture_output=True, text=True, check=True).stdout
        assert said.split("\n")[0] in path.read_text(), path.name
