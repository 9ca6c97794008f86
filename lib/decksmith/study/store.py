"""A blind study: which pairs of decks people compare, who compares them, and what they said.

A study is a folder. `pairs.jsonl`, `study.json` and `secret` say who made which deck: they are its owner's, and nothing of them goes to a
rater but a pair's id, its request and the names of its pictures. Ids and names are keyed hashes: they say nothing without the secret.
`votes.db` (SQLite) holds raters and votes; what `vote` has returned from is on the disk.
"""

import contextlib
import fcntl
import hashlib
import hmac
import itertools
import json
import math
import os
import secrets
import sqlite3
import threading
import unicodedata
from base64 import b32encode
from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path

from decksmith.core import cli, stream
from decksmith.core.records import prompt_of, sample_of
from decksmith.study import crowds

CHOICES = {
    "left": "Left is better",
    "right": "Right is better",
    "tie": "About the same",
    "bad": "Both are bad",
}
DIMENSIONS = {"content": "Content", "design": "Design", "coherence": "Coherence"}
TAGS = {
    "request": "Follows the request",
    "substance": "Says more",
    "facts": "Gets facts right",
    "thread": "Has a clear thread",
    "readable": "Easier to read",
    "looks": "Looks better",
    "pictures": "Better pictures or charts",
    "broken": "The other is cut off or broken",
}
QUESTION = "Which of the two decks would you rather present?"
WIDEST, QUALITY = 1960, 88  # of a picture: pixels, WebP quality
STAGES = (
    "draft",
    "gen",
    "deck",
    "images",
    "render",
)  # an error of a later stage says nothing about the pictures
MADE_BY = (
    "system",
    "sampling",
    "images",
    "render",
    "renderer",
)  # of a protocol: what decides the slides, whoever judges them


class Conflict(Exception):
    """What is asked contradicts what is stored; `stored` is the ballot that stands, or None."""

    def __init__(self, message, stored=None):
        super().__init__(message)
        self.stored = stored


class Closed(Conflict):
    """The study is closed: votes neither come nor go."""


class TooSoon(Exception):
    """So many names were chosen from one network of late that the next has to wait, for `seconds`."""

    def __init__(self, message, seconds):
        super().__init__(message)
        self.seconds = seconds


# The pairs


def build(
    folder,
    runs,
    *,
    title=None,
    question=None,
    seed=None,
    prompts=30,
    raters_per_pair=None,
    per_rater=None,
    repeats=0.1,
    gold=0.05,
    failed=False,
):
    """Make the study in `folder`, or bring it up to what is asked; returns what there is and what was added, in numbers.

    runs             run folders (scores.jsonl or renders.jsonl); each two of them are compared
    seed             of prompts, sides and samples: the same seed gives the same pairs. By default drawn, and kept in study.json
    prompts          for each two runs so many requests, spread evenly over the domains, the same ones for all where possible
    raters_per_pair  how many people are to see a pair (3 unless the study says otherwise); per_rater how many pairs a person is given (40)
    repeats          share of the pairs that come again later with sides swapped; gold: share of attention items, a deck beside a visibly
                     damaged copy of itself
    failed           also pairs in which an answer gave no accepted deck: it is shown as far as it got

    Sides are balanced for each two runs. No line that is there is changed: calling it again adds only what is missing. Two processes
    wait for each other; one that is killed leaves the study as it was. Raises cli.BadData when runs differ in more than the model, when
    their requests differ, when the seed is another, and when there is nothing to compare."""
    folder = Path(folder)
    if "outside" in (about_of(folder) or {}):
        raise cli.BadData(
            f"{folder} has votes from elsewhere (vote-import --votes); a study to vote in needs a folder of its own"
        )
    decks = {run["name"]: run for run in map(_run, _distinct(runs))}
    _comparable(list(decks.values()))
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)  # raters may have an account here too
    with locked(folder) as secret:
        study = about_of(folder) or {
            "title": "Two decks, one request",
            "question": QUESTION,
            "seed": None,
            "raters_per_pair": 3,
            "per_rater": 40,
            "runs": [],
            "made": [],
        }
        if seed is not None and study["seed"] not in (None, seed):
            raise cli.BadData(
                f"{folder} was made with seed {study['seed']}; another seed is another study"
            )
        if study["seed"] is None:
            study["seed"] = seed if seed is not None else secrets.randbelow(1 << 48)
        for name, value in {
            "title": title,
            "question": question,
            "raters_per_pair": raters_per_pair,
            "per_rater": per_rater,
        }.items():
            if value is not None:
                study[name] = value
        known = {run["name"]: run for run in study["runs"]}
        for name, run in decks.items():
            if name in known and Path(known[name]["path"]).resolve() != run["path"].resolve():
                raise cli.BadData(
                    f"{run['path']}: this study has {known[name]['path']} under the name {name}; name the folder differently"
                )
        # Only the runs that are named now are paired, with each other and with those that the study had.
        for name in known.keys() - decks.keys():
            decks[name] = _run(Path(known[name]["path"]))
        _comparable(list(decks.values()))
        old = _pairs(folder)
        new = list(
            _wanted(
                study["seed"], secret, decks, list(old.values()), prompts, repeats, gold, failed
            )
        )
        if not old and not any(pair["kind"] == "vote" for pair in new):
            raise cli.BadData(_nothing(decks))
        study["runs"] = [
            {key: str(decks[name][key]) for key in ("name", "label", "path", "protocol")}
            for name in sorted(decks)
        ]
        round_ = 1 + max((pair["round"] for pair in old.values()), default=0)
        kinds = Counter(pair["kind"] for pair in new)
        if new:
            for pair in new:
                pair["round"] = round_
            _draw(folder, secret, decks, new)
            study["made"] = [made for made in study["made"] if made["round"] < round_] + [
                {
                    "round": round_,
                    "at": _now(),
                    "prompts": prompts,
                    "repeats": repeats,
                    "gold": gold,
                    "failed": failed,
                    "added": dict(kinds),
                }
            ]
        # Pictures, then the study, then the pairs: whoever sees a pair sees all that belongs to it.
        stream.write(folder / "study.json", json.dumps(study, ensure_ascii=False, indent=1) + "\n")
        if new:
            stream.write(
                folder / "pairs.jsonl",
                b"".join(stream.dumps(pair) + b"\n" for pair in [*old.values(), *new]),
            )
    there = Counter(pair["kind"] for pair in [*old.values(), *new])
    return {
        "study": str(folder),
        "runs": sorted(decks),
        "pairs": {kind: there[kind] for kind in ("vote", "repeat", "gold")},
        "added": {kind: kinds[kind] for kind in ("vote", "repeat", "gold")},
        "seed": study["seed"],
    }


def _now(before=0):
    """The time so many seconds ago, as text that sorts."""
    return (datetime.now(UTC) - timedelta(seconds=before)).isoformat(timespec="milliseconds")


def _keyed(secret, *words, size=16):
    """A name that says nothing: lower-case letters and digits."""
    return (
        b32encode(hmac.digest(secret, "\x1f".join(map(str, words)).encode(), "sha256")[:size])
        .decode()
        .rstrip("=")
        .lower()
    )


def _dice(*words):
    """A number from 0 to 1 that depends on `words` alone."""
    return int.from_bytes(hashlib.sha256("\x1f".join(map(str, words)).encode()).digest()[:8]) / (
        1 << 64
    )


@contextlib.contextmanager
def locked(folder):
    """The study's secret, made on the first call; one process at a time has it."""
    with open(os.open(folder / "secret", os.O_RDWR | os.O_CREAT, 0o600), "r+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            cli.say(f"waiting for another process that is building {folder}")
            fcntl.flock(file, fcntl.LOCK_EX)
        secret = file.read()
        if len(secret) != 32:
            if (folder / "pairs.jsonl").exists():
                raise cli.BadData(
                    f"{folder}/secret is damaged: raters' links and the pairs' names depend on it; bring it back from a copy"
                )
            secret = secrets.token_bytes(32)
            file.seek(0)
            file.truncate()
            file.write(secret)
            file.flush()
            os.fsync(file.fileno())
        yield secret


def about_of(folder):
    """study.json of a folder, or None; raises cli.BadData for one that is damaged."""
    path = folder / "study.json"
    if not path.exists():
        return None
    try:
        return json.loads(path.read_text())
    except ValueError as error:
        raise cli.BadData(f"{path}: not JSON ({error})") from None


def _pairs(folder):
    path = folder / "pairs.jsonl"
    return {pair["id"]: pair for _, pair in stream.records(path)} if path.exists() else {}


def _distinct(paths):
    seen = {}
    for path in map(Path, paths):
        name = path.resolve().name
        if name in seen and seen[name].resolve() != path.resolve():
            raise cli.BadData(
                f"{seen[name]} and {path} have one name; a study knows runs by the names of their folders"
            )
        seen.setdefault(name, path)
    return seen.values()


def _run(path):
    """What a study needs of a run: its decks by prompt and sample, each with its request and its pictures."""
    import tomllib

    files = [path / name for name in ("scores.jsonl", "renders.jsonl") if (path / name).is_file()]
    name = path.resolve().name
    if not files:
        raise cli.Missing(f"{path} has no scores.jsonl; `make baseline MODEL={name}` makes it")
    try:
        protocol = json.loads((path / "protocol.json").read_text())
    except FileNotFoundError:
        protocol = {}
    except ValueError as error:
        raise cli.BadData(f"{path}/protocol.json: not JSON ({error})") from None
    registry = cli.ROOT / "assets" / "models.toml"
    known = tomllib.loads(registry.read_text()) if registry.exists() else {}
    decks = defaultdict(dict)
    for number, record in stream.records(files[0]):
        if not any(isinstance(record.get(key), dict) for key in ("gen", "deck", "render")):
            raise cli.BadData(
                f'{files[0]}:{number}: {record["id"]}: no "render" in this record; deck-render writes it'
            )
        prompt, k = prompt_of(record), sample_of(record)
        error = next(
            (
                value["error"]
                for key in STAGES
                if isinstance(value := record.get(key), dict) and value.get("error")
            ),
            None,
        )
        render = record.get("render") or {}
        slides = [str(slide) for slide in render.get("slides") or []]
        state = (
            "rendered"
            if not error and slides
            else "failed"
            if error and error.get("kind") == "model"
            else "excluded"
        )
        decks[prompt][k] = {
            "state": state,
            "why": (error or {}).get("class"),
            "clean": state == "rendered" and render.get("status") == "ok",
            "slides": slides,
            "request": _request(record),
            "domain": str((record.get("asks") or {}).get("domain") or ""),
        }
    return {
        "name": name,
        "path": path,
        "label": (known.get(name) or {}).get("label", name),
        "protocol": protocol.get("protocol", ""),
        "identity": {key: protocol[key] for key in MADE_BY if key in protocol},
        "decks": decks,
    }


def _request(record):
    """What the person asked for, without the instructions that the model also had."""
    said = []
    for message in record.get("messages") or []:
        if isinstance(message, dict) and message.get("role") == "user":
            content = message.get("content")
            if isinstance(content, list):
                content = "\n".join(
                    str(part.get("text", "")) for part in content if isinstance(part, dict)
                )
            said.append(str(content or ""))
    return "\n\n".join(said).strip()


def _comparable(runs):
    from decksmith.judging import identity

    for other in runs[1:]:
        if (
            runs[0]["identity"]
            and other["identity"]
            and (differing := identity.differences(runs[0]["identity"], other["identity"]))
        ):
            raise cli.BadData(
                "\n".join(
                    [
                        f"{runs[0]['path']} and {other['path']} differ in more than the model; people would vote on that too",
                        *(f"  {line}" for line in differing),
                    ]
                )
            )
        for prompt in sorted(runs[0]["decks"].keys() & other["decks"].keys()):
            if (
                len(
                    {
                        deck["request"]
                        for run in (runs[0], other)
                        for deck in run["decks"][prompt].values()
                    }
                )
                > 1
            ):
                raise cli.BadData(
                    f"{runs[0]['path']} and {other['path']}: {prompt} is not the same request in both"
                )


def _nothing(decks):
    if len(decks) < 2:
        return "one run has nothing to be compared with; name two or more"
    lines = ["there is no request for which two of these runs have a rendered deck"]
    for name, run in sorted(decks.items()):
        found = [deck for samples in run["decks"].values() for deck in samples.values()]
        why = Counter(deck["why"] for deck in found if deck["why"])
        lines.append(
            f"  {name}: {sum(deck['state'] == 'rendered' for deck in found)} of {len(found)} rendered"
            + (f" ({', '.join(f'{n} {word}' for word, n in why.most_common(3))})" if why else "")
        )
    return "\n".join([*lines, "  --failed also pairs answers that gave no accepted deck"])


def _spread(seed, decks):
    """All prompts in the order in which they are taken: drawn within each domain, the domains in turn."""
    domains = defaultdict(set)
    for run in decks.values():
        for prompt, samples in run["decks"].items():
            domains[next(iter(samples.values()))["domain"]].add(prompt)
    drawn = [
        sorted(found, key=lambda prompt: _dice(seed, "prompt", prompt))
        for _, found in sorted(domains.items(), key=lambda item: _dice(seed, "domain", item[0]))
    ]
    return [
        prompt for turn in itertools.zip_longest(*drawn) for prompt in turn if prompt is not None
    ]


def _wanted(seed, secret, decks, old, prompts, repeats, gold, failed):
    """The pairs that are missing, in the order in which people get them: every stretch has all models and many requests."""
    states = ("rendered", "failed") if failed else ("rendered",)

    def eligible(name, prompt):
        return sorted(
            k for k, deck in decks[name]["decks"].get(prompt, {}).items() if deck["state"] in states
        )

    taken, lefts, order = defaultdict(set), Counter(), _spread(seed, decks)
    for pair in old:
        if pair["kind"] == "vote":
            between = tuple(sorted((pair["left"]["run"], pair["right"]["run"])))
            taken[between].add(pair["prompt"])
            lefts[between] += 1 if pair["left"]["run"] == between[0] else -1
    columns = []
    for between in itertools.combinations(sorted(decks), 2):
        open_ = [
            prompt
            for prompt in order
            if prompt not in taken[between]
            and all(eligible(name, prompt) for name in between)
            and any(
                deck["state"] == "rendered"
                for name in between
                for deck in decks[name]["decks"][prompt].values()
            )
        ]
        chosen = open_[: max(0, prompts - len(taken[between]))]
        # Each column starts elsewhere, so that one request is not asked about again and again.
        at = round(len(columns) * len(chosen) * 0.618) % len(chosen) if chosen else 0
        columns.append([(between, prompt) for prompt in chosen[at:] + chosen[:at]])
    votes = [pair for pair in old if pair["kind"] == "vote"]
    golds = [pair for pair in old if pair["kind"] == "gold"]
    for turn in itertools.zip_longest(*columns):
        for between, prompt in filter(None, turn):
            ordered = (
                between
                if lefts[between] < 0
                or not lefts[between]
                and _dice(seed, "side", *between, prompt) < 0.5
                else between[::-1]
            )
            lefts[between] += 1 if ordered == between else -1
            sides = {}
            for side, name in zip(("left", "right"), ordered, strict=True):
                ks = eligible(name, prompt)
                sides[side] = _side(
                    name,
                    ks[int(_dice(seed, "sample", *between, prompt, name) * len(ks))],
                    decks[name]["decks"][prompt],
                )
            pair = {
                "id": _keyed(secret, "vote", prompt, *between, size=6),
                "kind": "vote",
                "prompt": prompt,
                "request": decks[ordered[0]]["decks"][prompt][sides["left"]["sample"]]["request"],
                **sides,
                "of": None,
                "expect": None,
            }
            yield pair
            votes.append(pair)
    repeated = {pair["of"] for pair in old if pair["kind"] == "repeat"}
    for index, pair in enumerate(votes):  # the first, and one in so many after it
        if (
            repeats
            and math.floor(index * repeats) > math.floor((index - 1) * repeats)
            and pair["id"] not in repeated
        ):
            yield {
                **pair,
                "id": _keyed(secret, "repeat", pair["id"], size=6),
                "kind": "repeat",
                "left": pair["right"],
                "right": pair["left"],
                "of": pair["id"],
            }
    yield from _golden(
        seed, secret, decks, votes, golds, math.ceil(len(votes) * gold) - len(golds), order
    )


def _side(name, k, samples):
    return {"model": name, "run": name, "sample": k, "rendered": samples[k]["state"] == "rendered"}


def _golden(seed, secret, decks, votes, golds, missing, order):
    """Attention items: a clean deck beside a damaged copy of itself, of requests that are not voted on where there are such."""
    asked, used = (
        {pair["prompt"] for pair in votes},
        {(pair["left"]["run"], pair["prompt"]) for pair in golds},
    )
    found = [
        (name, prompt, k)
        for prompt in order
        for name in decks
        for k, deck in decks[name]["decks"].get(prompt, {}).items()
        if deck["clean"] and 3 <= len(deck["slides"]) <= 20 and (name, prompt) not in used
    ]
    counts, balance = (
        Counter(pair["left"]["run"] for pair in golds),
        sum(1 if pair["expect"] == "left" else -1 for pair in golds),
    )
    while missing > 0 and found:
        name, prompt, k = min(
            found, key=lambda item: (item[1] in asked, counts[item[0]], _dice(seed, "gold", *item))
        )
        found = [item for item in found if item[:2] != (name, prompt)]
        counts[name], missing = counts[name] + 1, missing - 1
        expect = (
            "left"
            if balance < 0 or not balance and _dice(seed, "gold side", name, prompt) < 0.5
            else "right"
        )
        balance += 1 if expect == "left" else -1
        whole = _side(name, k, decks[name]["decks"][prompt])
        broken = {**whole, "broken": True}
        yield {
            "id": _keyed(secret, "gold", prompt, name, size=6),
            "kind": "gold",
            "prompt": prompt,
            "request": decks[name]["decks"][prompt][k]["request"],
            "left": whole if expect == "left" else broken,
            "right": broken if expect == "left" else whole,
            "of": None,
            "expect": expect,
        }


# The pictures


def _draw(folder, secret, decks, pairs):
    """Re-encode the slides of `pairs`, both sides of a pair at one width, and name them in the pairs."""
    from concurrent.futures import ThreadPoolExecutor

    (folder / "pictures").mkdir(exist_ok=True)
    for left_over in (folder / "pictures").glob("*.tmp"):  # of a build that was killed
        left_over.unlink()
    made, lock = {}, threading.Lock()

    def one(pair):
        sources = {}
        for side in ("left", "right"):
            run, deck = (
                decks[pair[side]["run"]],
                decks[pair[side]["run"]]["decks"][pair["prompt"]][pair[side]["sample"]],
            )
            sources[side] = [_inside(run["path"], slide) for slide in deck["slides"]]
        width = min([WIDEST, *(_width(path) for paths in sources.values() for path in paths)])
        pair["pictures"] = {}
        for side, paths in sources.items():
            names = []
            for index, path in enumerate(paths):
                name = f"{_keyed(secret, 'picture', pair['id'], side, index)}.webp"
                kind = (
                    ("whole", path, width)
                    if not pair[side].get("broken")
                    else ("broken", path, width, paths[(index + 1) % len(paths)], index)
                )
                _place(folder / "pictures" / name, kind, made, lock)
                names.append(name)
            pair["pictures"][side] = names

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for _ in pool.map(one, pairs):
            pass


def _inside(run, path):
    file = (run / path).resolve()
    if not file.is_relative_to(run.resolve()) or not file.is_file():
        raise cli.BadData(
            f"{run / path}: this slide is not there; `make baseline MODEL={run.name}` renders it again"
        )
    return file


def _opened(path):
    """The picture as bare pixels: what a file says beside them (EXIF, colour profile, comments) is left behind."""
    from PIL import Image

    try:
        with Image.open(path) as picture:
            pixels = picture.convert("RGBA")
        bare = Image.new("RGB", pixels.size, "white")
        bare.paste(pixels, mask=pixels.getchannel("A"))
        return bare
    except (OSError, ValueError, Image.DecompressionBombError) as error:
        raise cli.BadData(f"{path}: cannot be read as a picture ({error})") from None


def _width(path):
    from PIL import Image

    try:
        with Image.open(path) as picture:
            return picture.width
    except (OSError, ValueError, Image.DecompressionBombError) as error:
        raise cli.BadData(f"{path}: cannot be read as a picture ({error})") from None


def _place(target, kind, made, lock):
    """Write one picture; the same slide in another pair is another name for the same bytes."""
    import io

    with lock:
        source = made.get(kind)
    if source is None:
        picture = _scaled(_opened(kind[1]), kind[2])
        if kind[0] == "broken":
            picture = _broken(
                picture, _scaled(_opened(kind[3]), kind[2]).resize(picture.size), kind[4]
            )
        buffer = io.BytesIO()
        picture.save(buffer, "WEBP", quality=QUALITY, method=4)
        stream.write(target, buffer.getvalue())
        with lock:
            made[kind] = target
        return
    fresh = target.with_name(f"{target.name}.{os.getpid()}-{threading.get_ident()}.tmp")
    try:
        os.link(source, fresh)
    except OSError:  # a file system without links
        stream.write(target, source.read_bytes())
        return
    os.replace(fresh, target)


def _scaled(picture, width):
    from PIL import Image

    if picture.width == width:
        return picture
    return picture.resize(
        (width, max(1, round(picture.height * width / picture.width))), Image.Resampling.LANCZOS
    )


def _broken(picture, other, index):
    """What nobody would present: in turn so large that the right and lower part is cut off, printed over by another slide, and empty."""
    from PIL import Image

    if index % 3 == 0:
        part = picture.crop((0, 0, round(picture.width / 1.9), round(picture.height / 1.9)))
        return part.resize(picture.size, Image.Resampling.LANCZOS)
    if index % 3 == 1:
        return Image.blend(picture, other.transpose(Image.Transpose.ROTATE_180), 0.5)
    return Image.new("RGB", picture.size, picture.getpixel((2, 2)))


# The people and their votes

_SCHEMA = """
CREATE TABLE raters (id TEXT PRIMARY KEY, name TEXT NOT NULL, folded TEXT NOT NULL UNIQUE, source TEXT NOT NULL, at TEXT NOT NULL,
  network TEXT);
CREATE TABLE given (rater TEXT NOT NULL, place INTEGER NOT NULL, pair TEXT NOT NULL, skipped INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (rater, pair), UNIQUE (rater, place)) WITHOUT ROWID;
CREATE TABLE votes (rater TEXT NOT NULL, pair TEXT NOT NULL, ballot TEXT NOT NULL, source TEXT NOT NULL, at TEXT NOT NULL,
  PRIMARY KEY (rater, pair)) WITHOUT ROWID;
CREATE TABLE events (n INTEGER PRIMARY KEY, rater TEXT NOT NULL, key TEXT NOT NULL, what TEXT NOT NULL, pair TEXT NOT NULL, ballot TEXT,
  at TEXT NOT NULL, UNIQUE (rater, key));
CREATE TABLE state (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
PRAGMA user_version = 2;
"""
MOST_RATERS = 20_000
NAMES, SPAN = (
    5,
    3600,
)  # so many names may be chosen from one network within so many seconds; links of the owner's have no such limit


def checked(ballot):
    """`ballot` with all its keys, or cli.BadData saying what is wrong: {"choice": left|right|tie|bad, "dimensions": {name: left|right|tie},
    "tags": [name], "seconds": time in view, "seen": every slide of both was shown}."""
    if not isinstance(ballot, dict) or (
        unknown := sorted(ballot.keys() - {"choice", "dimensions", "tags", "seconds", "seen"})
    ):
        raise cli.BadData(
            f"a ballot is an object without {unknown[0][:40]!r}"
            if isinstance(ballot, dict)
            else "a ballot is an object"
        )
    choice, dimensions, tags = (
        ballot.get("choice"),
        ballot.get("dimensions") or {},
        ballot.get("tags") or [],
    )
    seconds, seen = ballot.get("seconds"), ballot.get("seen")
    if not isinstance(choice, str) or choice not in CHOICES:
        raise cli.BadData(f"choice is one of {', '.join(CHOICES)}")
    if not isinstance(dimensions, dict) or not all(
        name in DIMENSIONS and value in ("left", "right", "tie")
        for name, value in dimensions.items()
    ):
        raise cli.BadData(f"dimensions has for {', '.join(DIMENSIONS)} left, right or tie")
    if not isinstance(tags, list) or not all(isinstance(tag, str) and tag in TAGS for tag in tags):
        raise cli.BadData(f"tags are of {', '.join(TAGS)}")
    if (
        isinstance(seconds, bool)
        or not isinstance(seconds, int | float)
        or not 0 <= seconds <= 86_400
    ):
        raise cli.BadData("seconds is the time in view, from 0 to 86400")
    if seen is not True:
        raise cli.BadData(
            "seen is not true: a vote counts when every slide of both decks was shown"
        )
    return {
        "choice": choice,
        "dimensions": {name: dimensions[name] for name in DIMENSIONS if name in dimensions},
        "tags": [tag for tag in TAGS if tag in tags],
        "seconds": round(float(seconds), 1),
        "seen": True,
    }


def handle(name):
    """A name as people give it, tidied; raises cli.BadData for one that is empty, long or has characters that cannot be seen."""
    name = " ".join(unicodedata.normalize("NFC", name).split()) if isinstance(name, str) else ""
    if not 1 <= len(name) <= 40:
        raise cli.BadData("a name has 1 to 40 characters")
    if any(unicodedata.category(char)[0] == "C" for char in name):
        raise cli.BadData("a name has characters that can be seen")
    return name


class Study:
    """A study that was built. Several processes may have it open; what a method that changes it has returned from is on the disk.

    choose   for the pairs a rater is given, in place of the planned overlap: choose(study, rater, candidates, n) -> n of their ids"""

    def __init__(self, folder, choose=None):
        self.folder, self.choose = Path(folder), choose
        if (
            not (self.folder / "study.json").is_file()
            or not (self.folder / "pairs.jsonl").is_file()
        ):
            raise cli.Missing(
                f"{self.folder} is no study; `pair-build --study {self.folder} RUN RUN` makes one"
            )
        try:
            self.secret = (self.folder / "secret").read_bytes()
        except OSError as error:
            raise cli.BadData(
                f"{self.folder}/secret cannot be read ({error.strerror}): raters' links depend on it"
            ) from None
        self._stamp, self._read = None, {}
        self._lock, self._depth = threading.RLock(), 0
        try:
            self._db = sqlite3.connect(
                self.folder / "votes.db", timeout=60, isolation_level=None, check_same_thread=False
            )
            with self._first_alone():
                self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute(
                "PRAGMA synchronous = FULL"
            )  # in WAL mode NORMAL could lose what was acknowledged to a power cut
            with self._writing():
                version = self._db.execute("PRAGMA user_version").fetchone()[0]
                if version == 0:
                    for statement in _SCHEMA.split(";\n"):
                        self._db.execute(statement)
            if version not in (0, 2):
                raise cli.BadData(
                    f"{self.folder}/votes.db is of another version of decksmith ({version}): count its votes with that one, or "
                    "let pair-build make a study in another folder"
                )
        except sqlite3.DatabaseError as error:
            raise cli.BadData(f"{self.folder}/votes.db cannot be used: {error}") from None

    @contextlib.contextmanager
    def _first_alone(self):
        """Changing the journal's mode does not wait for another process that is doing the same."""
        # Another file than the database: SQLite's own locks on that would go when it is closed here (sqlite.org/howtocorrupt.html).
        with open(self.folder / "study.json", "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def close_file(self):
        """Close the database; every method fails from here on."""
        self._db.close()

    @contextlib.contextmanager
    def _writing(self):
        """One durable transaction; inside another, a part of it that is undone alone when it fails."""
        with self._lock:
            inner = self._depth > 0
            self._db.execute("SAVEPOINT part" if inner else "BEGIN IMMEDIATE")
            self._depth += 1
            try:
                try:
                    yield
                finally:
                    self._depth -= 1
                self._db.execute("RELEASE part" if inner else "COMMIT")
            except BaseException:
                if self._db.in_transaction:  # an error of SQLite's own may have ended it
                    for statement in (
                        ("ROLLBACK TO part", "RELEASE part") if inner else ("ROLLBACK",)
                    ):
                        self._db.execute(statement)
                raise

    def together(self, calls):
        """Do `calls` (functions without arguments that change this study) in one durable transaction, which costs one wait for the disk.
        Returns for each its value, or the exception that it raised; what it did is undone then."""
        done = []
        with self._writing():
            for call in calls:
                try:
                    with self._writing():
                        done.append(call())
                except Exception as error:
                    done.append(error)
        return done

    def _rows(self, query, *values):
        with self._lock:
            return self._db.execute(query, values).fetchall()

    # What is asked

    @property
    def about(self):
        """study.json."""
        self._fresh()
        return self._read["about"]

    @property
    def pairs(self):
        """{id: pair} as in pairs.jsonl; a study that was extended meanwhile has the new ones too."""
        self._fresh()
        return self._read["pairs"]

    def _fresh(self):
        info = [os.stat(self.folder / name) for name in ("study.json", "pairs.jsonl")]
        stamp = [(each.st_ino, each.st_mtime_ns, each.st_size) for each in info]
        if stamp != self._stamp:
            pairs = _pairs(self.folder)
            repeats = {
                pair["of"]: pair["id"] for pair in pairs.values() if pair["kind"] == "repeat"
            }
            self._read = {
                "about": about_of(self.folder),
                "pairs": pairs,
                "repeats": repeats,
                "votes": [pair["id"] for pair in pairs.values() if pair["kind"] == "vote"],
                "gold": [pair["id"] for pair in pairs.values() if pair["kind"] == "gold"],
            }
            self._stamp = stamp

    def signer(self, salt):
        """An itsdangerous serializer under the study's secret; another `salt` is another kind of signature."""
        from itsdangerous import URLSafeSerializer

        how = {"key_derivation": "hmac", "digest_method": hashlib.sha256}
        return URLSafeSerializer(
            self.secret, salt=f"decksmith.study.store.{salt}", signer_kwargs=how
        )

    def _signed(self, salt, token):
        from itsdangerous import BadSignature

        with contextlib.suppress(BadSignature, UnicodeError):
            return self.signer(salt).loads(token)

    @property
    def owner(self):
        """The token of the study's owner."""
        return self.signer("owner").dumps("owner")

    def owned(self, token):
        """Whether this is the token of the study's owner."""
        return self._signed("owner", token) == "owner"

    # Raters

    def add_rater(self, name, *, source="link", fresh=False, address=None):
        """The token of the rater of this name, who is added unless there. fresh: raises Conflict for a name that is taken.
        address: of whoever chose the name; a keyed hash of its network is kept, and TooSoon raised when NAMES of it came within SPAN.
        A name that somebody chose for themselves is taken for everybody else: an invitation would be to vote as them. The same name has the same token in this study, whatever happens to votes.db."""
        name = handle(name)
        folded = unicodedata.normalize("NFKC", name).casefold()
        rater = _keyed(self.secret, "rater", folded, size=6)
        with self._writing():
            if stands := self._rows("SELECT source FROM raters WHERE folded = ?", folded):
                if fresh:
                    raise Conflict("this name is taken; if it is yours, open your personal link")
                if source == "link" and stands[0][0] == "handle":
                    raise Conflict(
                        f"somebody chose the name {name} for themselves: give another name, or open theirs below"
                    )
            else:
                self._open_only()
                if self._rows("SELECT count(*) FROM raters")[0][0] >= MOST_RATERS:
                    raise Conflict("this study has as many raters as it can take")
                network = (
                    None
                    if address is None
                    else self._paced(
                        _keyed(self.secret, "network", crowds.network(address), size=8)
                    )
                )
                self._db.execute(
                    "INSERT INTO raters VALUES (?, ?, ?, ?, ?, ?)",
                    (rater, name, folded, source, _now(), network),
                )
                self._give(rater, self.about["per_rater"])
        return self.token(rater)

    def _paced(self, network):
        """`network`, unless NAMES of it came within SPAN: raises TooSoon then. The names are counted on the disk: a server that starts
        again has not forgotten them."""
        late = self._rows(
            "SELECT at FROM raters WHERE network = ? AND at > ? ORDER BY at DESC LIMIT 1 OFFSET ?",
            network,
            _now(SPAN),
            NAMES - 1,
        )
        if late:
            wait = SPAN - (datetime.now(UTC) - datetime.fromisoformat(late[0][0])).total_seconds()
            raise TooSoon(
                f"{NAMES} people chose a name from your network within the last hour. The owner of this study can give you a personal "
                f"link, which works at once; or come back in {math.ceil(wait / 60)} minutes",
                wait,
            )
        return network

    def token(self, rater):
        """The signed token of a rater's id: the last part of the personal link."""
        return self.signer("rater").dumps(rater)

    def rater(self, token):
        """The id of the rater with this token, or None."""
        rater = self._signed("rater", token)
        return (
            rater
            if isinstance(rater, str) and self._rows("SELECT 1 FROM raters WHERE id = ?", rater)
            else None
        )

    def raters(self):
        """Every rater in the order in which they came: {"id", "name", "source", "at", "network", "given", "votes", "skipped", "last"}.
        network: a keyed hash of where a name was chosen; None of whom the owner gave a link or a ballot."""
        return [
            dict(
                zip(
                    ("id", "name", "source", "at", "network", "given", "votes", "skipped", "last"),
                    row,
                    strict=True,
                )
            )
            for row in self._rows(
                "SELECT id, name, source, at, network, (SELECT count(*) FROM given WHERE rater = id), (SELECT count(*) FROM votes WHERE rater = id), "
                "(SELECT count(*) FROM given WHERE rater = id AND skipped), (SELECT max(at) FROM votes WHERE rater = id) FROM raters ORDER BY rowid"
            )
        ]

    def name(self, rater):
        return self._rows("SELECT name FROM raters WHERE id = ?", rater)[0][0]

    # Queues

    def more(self, rater, n=10):
        """Give a rater up to `n` pairs more, of those that have too few raters; returns how many there were."""
        with self._writing():
            self._open_only()
            return self._give(rater, n, only_needed=True)

    def _give(self, rater, n, only_needed=False):
        """Put `n` more pairs at the end of a rater's queue, with the repeats and the attention items that belong to so many.

        Of the pairs, all but 1 in `raters_per_pair` are such as others were given too, so that everybody overlaps with somebody."""
        own = {pair for (pair,) in self._rows("SELECT pair FROM given WHERE rater = ?", rater)}
        counts, each = (
            dict(self._rows("SELECT pair, count(*) FROM given GROUP BY pair")),
            self.about["raters_per_pair"],
        )
        votes = [pair for pair in self._read["votes"] if pair not in own]
        if only_needed:
            votes = [pair for pair in votes if counts.get(pair, 0) < each] or [
                pair for pair in votes if self._needed(pair) > 0
            ]
        if self.choose:
            chosen = list(self.choose(self, rater, votes, n))[:n]
        else:
            begun = sorted(
                (pair for pair in votes if 0 < counts.get(pair, 0) < each),
                key=lambda pair: -counts[pair],
            )
            fresh = [pair for pair in votes if not counts.get(pair)]
            full = sorted(
                (pair for pair in votes if counts.get(pair, 0) >= each),
                key=lambda pair: counts[pair],
            )
            shared = begun[: round(n * (each - 1) / each)]
            chosen = [*shared, *fresh[: n - len(shared)]]
            chosen += [*begun[len(shared) :], *full][: n - len(chosen)]
        gold = [pair for pair in self._read["gold"] if pair not in own]
        gold.sort(key=lambda pair: (counts.get(pair, 0), _keyed(self.secret, rater, pair)))
        gold = (
            gold[
                : math.ceil(
                    len(chosen) * len(self._read["gold"]) / max(1, len(self._read["votes"]))
                )
            ]
            if chosen
            else []
        )
        queue = self._shuffled(
            rater,
            [*chosen, *gold],
            {pair: repeat for pair, repeat in self._read["repeats"].items() if repeat not in own},
        )
        first = (
            self._rows("SELECT coalesce(max(place), 0) FROM given WHERE rater = ?", rater)[0][0] + 1
        )
        self._db.executemany(
            "INSERT INTO given (rater, place, pair) VALUES (?, ?, ?)",
            [(rater, first + at, pair) for at, pair in enumerate(queue)],
        )
        return len(queue)

    def _shuffled(self, rater, pairs, repeats):
        """`pairs` in the rater's own order, each repeat at least a quarter of the queue after its pair, and no request twice in a row
        where that can be had."""

        def dice(pair):
            return _dice(self.secret.hex(), rater, pair)

        def about(place):
            return self._read["pairs"][queue[place]]["prompt"] if 0 <= place < len(queue) else None

        twice = [pair for pair in pairs if pair in repeats]
        queue, gap = sorted(pairs, key=dice), (len(pairs) + len(twice)) // 4
        last = max(0, len(queue) - 1 - gap - len(twice))
        for pair in twice:
            if queue.index(pair) > last:
                queue.remove(pair)
                queue.insert(int(dice(f"early {pair}") * (last + 1)), pair)
        for pair in twice:
            places = range(min(queue.index(pair) + 1 + gap, len(queue)), len(queue) + 1)
            queue.insert(places[int(dice(repeats[pair]) * len(places))], repeats[pair])
        free = {place for place, pair in enumerate(queue) if pair not in twice and pair in pairs}
        for place in range(1, len(queue)):
            moved = place if place in free else place - 1
            for other in (
                free - {moved} if about(place) == about(place - 1) and moved in free else ()
            ):
                queue[moved], queue[other] = queue[other], queue[moved]
                if not any(about(at) in (about(at - 1), about(at + 1)) for at in (moved, other)):
                    break
                queue[moved], queue[other] = queue[other], queue[moved]
        return queue

    def _needed(self, pair):
        """How many votes a pair lacks."""
        return (
            self.about["raters_per_pair"]
            - self._rows("SELECT count(*) FROM votes WHERE pair = ?", pair)[0][0]
        )

    def queue(self, rater):
        """The ids of the pairs a rater was given, in the rater's own order."""
        return [
            pair
            for (pair,) in self._rows(
                "SELECT pair FROM given WHERE rater = ? ORDER BY place", rater
            )
        ]

    def sheet(self, rater):
        """All that a rater's page is told: {"title", "question", "rater": name, "closed", "choices", "dimensions", "tags",
        "pairs": [{"id", "request", "left": [picture name], "right": [..]}], "done": {pair: {"choice", "dimensions", "tags"}}, "skipped": [pair],
        "acted": the pairs of done and skipped, the last one last}."""
        about, pairs = self.about, self.pairs
        given = [
            row
            for row in self._rows(
                "SELECT pair, skipped FROM given WHERE rater = ? ORDER BY place", rater
            )
            if row[0] in pairs
        ]
        done = {
            pair: json.loads(ballot)
            for pair, ballot in self._rows("SELECT pair, ballot FROM votes WHERE rater = ?", rater)
        }
        acted = [
            pair
            for (pair,) in self._rows(
                "SELECT pair FROM events WHERE rater = ? GROUP BY pair ORDER BY max(n)", rater
            )
        ]
        skipped = {pair for pair, skipped in given if skipped}
        return {
            "title": about["title"],
            "question": about["question"],
            "rater": self.name(rater),
            "closed": self.closed,
            "choices": CHOICES,
            "dimensions": DIMENSIONS,
            "tags": TAGS,
            "pairs": [
                {"id": pair, "request": pairs[pair]["request"], **pairs[pair]["pictures"]}
                for pair, _ in given
            ],
            "done": {
                pair: {key: ballot[key] for key in ("choice", "dimensions", "tags")}
                for pair, ballot in done.items()
            },
            "skipped": sorted(skipped),
            "acted": [pair for pair in acted if pair in done or pair in skipped],
        }

    # Votes

    def vote(self, rater, pair, ballot, *, key, source="web"):
        """Store a ballot; "stored", or "same" when this key has brought it before. The vote is on the disk when this returns.

        Raises cli.BadData for a ballot or key that is none and for a pair that the rater was not given, Conflict where another ballot of
        this rater stands for the pair or the key has brought something else, Closed when the study is closed."""
        ballot = json.dumps(checked(ballot))
        with self._writing():
            if (said := self._again(rater, key, "vote", pair, ballot)) is not None:
                return said
            self._open_only()
            self._given(rater, pair)
            if stands := self._rows(
                "SELECT ballot FROM votes WHERE rater = ? AND pair = ?", rater, pair
            ):
                raise Conflict(
                    "there is a vote on this pair; undo it first", json.loads(stands[0][0])
                )
            self._event(rater, key, "vote", pair, ballot)
            self._db.execute(
                "INSERT INTO votes VALUES (?, ?, ?, ?, ?)", (rater, pair, ballot, source, _now())
            )
            self._db.execute(
                "UPDATE given SET skipped = 0 WHERE rater = ? AND pair = ?", (rater, pair)
            )
        return "stored"

    def skip(self, rater, pair, *, key):
        """Note that a rater passes over a pair; raises as `vote` does."""
        with self._writing():
            if (said := self._again(rater, key, "skip", pair, None)) is not None:
                return said
            self._open_only()
            self._given(rater, pair)
            if stands := self._rows(
                "SELECT ballot FROM votes WHERE rater = ? AND pair = ?", rater, pair
            ):
                raise Conflict(
                    "there is a vote on this pair; undo it first", json.loads(stands[0][0])
                )
            self._event(rater, key, "skip", pair, None)
            self._db.execute(
                "UPDATE given SET skipped = 1 WHERE rater = ? AND pair = ?", (rater, pair)
            )
        return "stored"

    def undo(self, rater, pair=None, *, key):
        """Take back the vote or the skip of a rater, by default the last; what was said stays in the table of events. Returns as `vote`."""
        with self._writing():
            before = (
                self._rows("SELECT pair FROM events WHERE rater = ? AND key = ?", rater, key)
                if pair is None
                else None
            )
            if before:
                pair = before[0][0]
            elif pair is None:
                last = self._rows(
                    "SELECT pair FROM events WHERE rater = ? AND what != 'undo' AND (pair IN (SELECT pair FROM votes WHERE rater = ?) "
                    "OR pair IN (SELECT pair FROM given WHERE rater = ? AND skipped)) ORDER BY n DESC LIMIT 1",
                    rater,
                    rater,
                    rater,
                )
                if not last:
                    raise Conflict("there is nothing to take back")
                pair = last[0][0]
            if (said := self._again(rater, key, "undo", pair, None)) is not None:
                return said
            self._open_only()
            self._given(rater, pair)
            self._event(rater, key, "undo", pair, None)
            self._db.execute("DELETE FROM votes WHERE rater = ? AND pair = ?", (rater, pair))
            self._db.execute(
                "UPDATE given SET skipped = 0 WHERE rater = ? AND pair = ?", (rater, pair)
            )
        return "stored"

    def _again(self, rater, key, what, pair, ballot):
        if (
            not isinstance(key, str)
            or not 8 <= len(key) <= 64
            or not key.isascii()
            or not key.isprintable()
        ):
            raise cli.BadData(
                "key is a name of 8 to 64 characters that the client makes, another for each thing it asks"
            )
        before = self._rows(
            "SELECT what, pair, ballot FROM events WHERE rater = ? AND key = ?", rater, key
        )
        if before and before[0] != (what, pair, ballot):
            raise Conflict("this key has brought something else before")
        return "same" if before else None

    def _event(self, rater, key, what, pair, ballot):
        self._db.execute(
            "INSERT INTO events (rater, key, what, pair, ballot, at) VALUES (?, ?, ?, ?, ?, ?)",
            (rater, key, what, pair, ballot, _now()),
        )

    def _given(self, rater, pair):
        if (
            not isinstance(pair, str)
            or not pair.isascii()
            or not self._rows("SELECT 1 FROM given WHERE rater = ? AND pair = ?", rater, pair)
        ):
            raise cli.BadData("this pair is not in the rater's queue")

    def votes(self):
        """Every vote that stands, with the identities, in the order of raters and their queues: what vote-tally reads (docs/records.md)."""
        pairs = self.pairs
        for rater, pair, ballot, source, at, place in self._rows(
            "SELECT v.rater, v.pair, v.ballot, v.source, v.at, g.place FROM votes v JOIN given g ON g.rater = v.rater AND g.pair = v.pair "
            "JOIN raters r ON r.id = v.rater ORDER BY r.rowid, g.place"
        ):
            if pair in pairs:
                about = pairs[pair]
                yield {
                    "pair": pair,
                    "kind": about["kind"],
                    "of": about["of"],
                    "expect": about["expect"],
                    "rater": rater,
                    "prompt": about["prompt"],
                    "left": about["left"]["model"],
                    "right": about["right"]["model"],
                    **json.loads(ballot),
                    "source": source,
                    "at": at,
                    "order": place,
                }

    def enter(self, votes):
        """Store votes that were cast elsewhere, [(rater's name, pair, ballot, time)], all or none; returns how many were not there yet.
        A rater's id is the name, and the ballot has "left" and "right", the models that stood there."""
        with self._writing():
            self._open_only()
            stored, places = (
                0,
                dict(self._rows("SELECT rater, max(place) FROM given GROUP BY rater")),
            )
            for rater, pair, ballot, at in votes:
                self._db.execute(
                    "INSERT OR IGNORE INTO raters VALUES (?, ?, ?, 'outside', ?, NULL)",
                    (rater, rater, rater, at),
                )
                if not self._rows("SELECT 1 FROM votes WHERE rater = ? AND pair = ?", rater, pair):
                    places[rater] = places.get(rater, 0) + 1
                    self._db.execute(
                        "INSERT INTO given (rater, place, pair) VALUES (?, ?, ?)",
                        (rater, places[rater], pair),
                    )
                    self._db.execute(
                        "INSERT INTO votes VALUES (?, ?, ?, 'outside', ?)",
                        (rater, pair, json.dumps(ballot), at),
                    )
                    stored += 1
        return stored

    # Open and closed

    @property
    def closed(self):
        """Whether its owner has closed the study: votes neither come nor go, and results may be seen."""
        return bool(self._rows("SELECT 1 FROM state WHERE name = 'closed'"))

    def close(self):
        with self._writing():
            self._db.execute("INSERT OR IGNORE INTO state VALUES ('closed', ?)", (_now(),))

    def open(self):
        with self._writing():
            self._db.execute("DELETE FROM state WHERE name = 'closed'")

    def _open_only(self):
        if self.closed:
            raise Closed("this study is closed")

    def remember(self, name, value):
        """Keep a text under a name beside the votes."""
        with self._writing():
            self._db.execute(
                "INSERT INTO state VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
                (name, value),
            )

    def recall(self, name):
        return next(
            (value for (value,) in self._rows("SELECT value FROM state WHERE name = ?", name)), None
        )

    def results(self):
        """Plain counts for each two models, of the votes alone (no repeats, no attention items); intervals are vote-tally's:
        [{"models": [a, b], "labels": [..], "wins": [n, n], "tie", "bad", "votes"}]."""
        labels, found = {run["name"]: run["label"] for run in self.about["runs"]}, {}
        for vote in self.votes():
            if vote["kind"] == "vote":
                models = sorted((vote["left"], vote["right"]))
                named = {"models": models, "labels": [labels.get(name, name) for name in models]}
                row = found.setdefault(
                    tuple(models), {**named, "wins": [0, 0], "tie": 0, "bad": 0, "votes": 0}
                )
                row["votes"] += 1
                if vote["choice"] in ("left", "right"):
                    row["wins"][models.index(vote[vote["choice"]])] += 1
                else:
                    row[vote["choice"]] += 1
        return [found[models] for models in sorted(found)]
