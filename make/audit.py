"""What a public list of advisories says of the packages that the locks name: `make audit`.

  .venv/bin/python3 make/audit.py [FILE ..]

A FILE holds advisories in OSV's schema (https://ossf.github.io/osv-schema): a ZIP of JSON files,
JSON, or one JSON object a line. Without a FILE, osv.dev's ZIPs of PyPI and npm are fetched
(some 100 MB). Prints a table. Exit 1 when an advisory is high or critical, 65 for a FILE that holds
none, 75 when nothing can be fetched.
"""

import json
import os
import re
import shutil
import sys
import tempfile
import tomllib
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cvss
from decksmith.core import cli
from packaging.utils import canonicalize_name, canonicalize_version
from packaging.version import Version

LISTS = os.environ.get("OSV_LISTS") or "https://osv-vulnerabilities.storage.googleapis.com"
LOCKS = (
    *("uv.lock", "assets/*.txt", "assets/*/requirements.txt"),
    *(f"{folder}/package-lock.json" for folder in ("assets/*", "tests", "tests/*/*/*")),
)
RANKS = ("unknown", "none", "low", "medium", "high", "critical")
SCORES = {"CVSS_V2": cvss.CVSS2, "CVSS_V3": cvss.CVSS3, "CVSS_V4": cvss.CVSS4}
COLUMNS = ("package", "locked", "advisory", "severity", "fixed in", "locks")
Record = dict[str, Any]
Package = tuple[str, str, str]  # ecosystem, name, version
Row = tuple[int, tuple[str, ...]]  # rank, cells
Locked = dict[tuple[str, str], dict[str, set[str]]]  # of (ecosystem, name): version -> its locks


def locked_in(path: Path) -> Iterator[Package]:
    """The packages of a lock: uv's, npm's, or requirements."""
    if path.suffix == ".json":
        for place, package in json.loads(path.read_text())["packages"].items():
            if place and not package.get("link"):
                name = package.get("name") or place.rpartition("node_modules/")[2]
                yield "npm", name, package["version"]
        return
    pins = re.findall(r"(?m)^([\w.-]+)==([^\s;]+)", path.read_text())
    if path.name == "uv.lock":
        packages = tomllib.loads(path.read_text())["package"]
        pins = [(one["name"], one["version"]) for one in packages if "registry" in one["source"]]
    for name, version in pins:
        yield "PyPI", canonicalize_name(name), Version(version).public


def read(path: Path) -> Iterator[Record]:
    """The advisories of a file. Raises cli.BadData for another kind of file."""
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                for name in archive.namelist():
                    yield {"affected": [], **json.loads(archive.read(name))}
        else:
            for line in path.read_text().splitlines():
                yield {"affected": [], **json.loads(line)}
    except (OSError, TypeError, ValueError) as error:
        raise cli.BadData(f"{path} is no list of advisories in OSV's JSON: {error}") from None


def fetched(folder: Path) -> Iterator[Path]:
    """osv.dev's lists. Raises cli.TryAgain when one cannot be fetched."""
    for ecosystem in ("PyPI", "npm"):
        address, path = f"{LISTS}/{ecosystem}/all.zip", folder / f"{ecosystem}.zip"
        try:
            with urllib.request.urlopen(address, timeout=60) as answer, path.open("wb") as file:
                shutil.copyfileobj(answer, file)
        except OSError as error:
            raise cli.TryAgain(
                f"no list from {address} ({error}); with one on disk: make audit ADVISORIES=FILE"
            ) from None
        yield path


def order(ecosystem: str, version: str) -> Any:
    """What versions compare by: PEP 440's rules, or semver's. Raises ValueError for no version."""
    if ecosystem == "PyPI":
        return Version(version)
    core, _, pre = version.partition("+")[0].partition("-")
    numbers = [int(part) for part in f"{core}.0.0".split(".")[:3]]
    parts = [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in pre.split(".")]
    return numbers, not pre, parts


def affects(affected: Record, ecosystem: str, version: str) -> tuple[bool, str]:
    """Whether a version is affected, and the first later one that is not ("-": none is known)."""
    mine = order(ecosystem, version)
    listed = {canonicalize_version(one) for one in affected.get("versions", [])}
    found, fixes = canonicalize_version(version) in listed, []
    for span in affected.get("ranges", []):
        inside = False
        events = [event for pair in span["events"] for event in pair.items()]
        if span["type"] == "GIT":
            continue
        for kind, bound in sorted(events, key=lambda event: order(ecosystem, event[1])):
            limit = order(ecosystem, bound)
            if kind == "introduced":
                inside |= bound == "0" or mine >= limit
            elif mine > limit or (mine == limit and kind != "last_affected"):
                inside = False
            elif kind == "fixed":
                fixes.append((limit, bound))
        found |= inside
    return found, min(fixes)[1] if fixes else "-"


def rank(record: Record, affected: Record) -> int:
    """The worst that an advisory says of itself, in words or by CVSS: an index of RANKS."""
    if record["id"].startswith("MAL-"):  # a package that was made to do harm
        return RANKS.index("critical")
    ranks = [0]
    for place in (record, affected):
        word = place.get("database_specific", {}).get("severity", "").lower()
        word = {"moderate": "medium"}.get(word, word)
        ranks += [RANKS.index(word)] if word in RANKS else []
        for given in place.get("severity", []):
            if given["type"] in SCORES:
                score = float(SCORES[given["type"]](given["score"]).base_score)
                ranks.append(1 + sum(score >= least for least in (0.1, 4, 7, 9)))
    return max(ranks)


def hits(record: Record, locked: Locked) -> Iterator[tuple[Package, int, str]]:
    """(package, rank, first version without the fault) of each locked package that it is about."""
    for affected in [] if "withdrawn" in record else record["affected"]:
        package = {"ecosystem": "", "name": "", **affected.get("package", {})}
        ecosystem, name = package["ecosystem"], package["name"]
        name = canonicalize_name(name) if ecosystem == "PyPI" else name
        for version in locked.get((ecosystem, name), {}):
            try:
                found, fixed = affects(affected, ecosystem, version)
                worst = rank(record, affected) if found else 0
            except (ValueError, LookupError, TypeError, AttributeError, cvss.CVSSError) as error:
                found, worst, fixed = True, 0, f"unread: {error}"
            if found:
                yield (ecosystem, name, version), worst, fixed


def rows(locked: Locked, found: dict[Package, list[tuple[int, str, Record]]]) -> list[Row]:
    """The rows of the table, the worst first. Two sources' words on one fault are one row."""
    out = []
    for (ecosystem, name, version), advisories in found.items():
        seen: set[str] = set()
        for worst, fixed, record in sorted(advisories, key=lambda row: row[0], reverse=True):
            names = {record["id"], *record.get("aliases", [])}
            if seen.isdisjoint(names):
                places = " ".join(sorted(locked[ecosystem, name][version]))
                out.append((worst, (name, version, record["id"], RANKS[worst], fixed, places)))
            seen |= names
    return sorted(out, key=lambda row: (-row[0], row[1]))


def main(files: list[Path]) -> int:
    """Print the table; 1 when a row is high or critical."""
    paths = sorted(path for pattern in LOCKS for path in cli.ROOT.glob(pattern))
    locked: Locked = {}
    for path in paths:
        for ecosystem, name, version in locked_in(path):
            versions = locked.setdefault((ecosystem, name), {})
            versions.setdefault(version, set()).add(str(path.relative_to(cli.ROOT)))
    found: dict[Package, list[tuple[int, str, Record]]] = {}
    known = {"PyPI": 0, "npm": 0}
    with tempfile.TemporaryDirectory() as folder:
        for path in files or fetched(Path(folder)):
            for record in read(path):
                about = {one.get("package", {}).get("ecosystem") for one in record["affected"]}
                for ecosystem in about & set(known):
                    known[ecosystem] += 1
                for package, worst, fixed in hits(record, locked):
                    found.setdefault(package, []).append((worst, fixed, record))
    table = rows(locked, found)
    lines = [COLUMNS, *(cells for _, cells in table)] if table else []
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for cells in lines:
        print("  ".join(map(str.ljust, cells, widths)).rstrip())
    looked = " and ".join(f"{count} of {ecosystem}" for ecosystem, count in known.items())
    count = sum(map(len, locked.values()))
    cli.say(f"{count} packages of {len(paths)} locks: {len(table) or 'no'} advisories, of {looked}")
    if not all(known.values()):
        raise cli.BadData("these lists leave packages out; hand in those of PyPI and of npm")
    return int(any(worst >= RANKS.index("high") for worst, _ in table))


if __name__ == "__main__":
    cli.ends_with(lambda: main([Path(name) for name in sys.argv[1:]]))
