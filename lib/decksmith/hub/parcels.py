"""Publishing on the Hugging Face Hub: what a folder holds, its card, how it differs from what is there, and one commit.

A parcel is a folder made ready: its files checked, a card written from them to FOLDER/card. Nothing is on a card that is not in
the files (docs/records.md). Only the files named here are ever sent.
"""

import hashlib
import json
import os
import re
import struct
import tomllib
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from decksmith import __version__
from decksmith.core import cli, masking, stream

SPLITS = ("train", "test")
FILES = {
    "dataset": ("train.jsonl", "test.jsonl", "report.json", "split.tsv"),
    "adapter": (
        "adapter_config.json",
        "adapter_model.safetensors",
        "comparison.json",
        "manifest.json",
        "report.json",
        "adapter.gguf",
        "tokenizer.json",
        "tokenizer_config.json",
        "special_tokens_map.json",
        "chat_template.jinja",
    ),
}
NEEDED = {
    "dataset": ("train.jsonl", "test.jsonl"),
    "adapter": ("adapter_config.json", "adapter_model.safetensors"),
}
COUNTED = ("theme", "domain", "language")  # of the seed, in tables
SHOWN, LINES = 5, 40  # ids in a sentence, lines of the card's difference


@dataclass
class Parcel:
    """A folder ready to be sent: `files` by their names on the Hub, `rows` as `{id: (split, fingerprint)}`, `notes` to be said."""

    kind: str
    repo: str
    files: dict
    rows: dict = field(default_factory=dict)
    notes: list = field(default_factory=list)


def parcel(folder, kind, repo):
    """Check the folder, write its card to FOLDER/card and return the Parcel.

    Raises cli.BadData naming the file and line of what must not be published, cli.Missing without huggingface_hub.
    """
    _hub()
    found = {name: folder / name for name in FILES[kind] if (folder / name).is_file()}
    if lacks := [name for name in NEEDED[kind] if name not in found]:
        other = (
            " (for an adapter: --kind adapter)"
            if kind == "dataset" and (folder / "adapter_config.json").exists()
            else ""
        )
        raise cli.BadData(f"{folder}: no {lacks[0]}{other}")
    made = Parcel(kind, repo, found)
    made.files |= (_dataset if kind == "dataset" else _adapter)(made, folder / "card")
    _no_secrets(made)
    return made


def _object(path):
    """The JSON object in a file. Raises cli.BadData."""
    try:
        value = json.loads(path.read_bytes())
    except ValueError as error:
        raise cli.BadData(f"{path}: not JSON ({error})") from None
    if not isinstance(value, dict):
        raise cli.BadData(f"{path}: not a JSON object")
    return value


def _no_secrets(made):
    """Refuse to publish the value of a key or token that this process was given; note a path of this machine."""
    secrets = {name: value.encode() for value, name in masking.known(masking.SHORTEST).items()}
    for name, path in made.files.items():
        if path.suffix not in (".safetensors", ".gguf", ".png"):
            data = path.read_bytes()
            if found := next((key for key, value in secrets.items() if value in data), None):
                raise cli.BadData(
                    f"{path}: holds the value of {found}; take it out before anything is published"
                )
            if str(cli.ROOT).encode() in data:
                made.notes.append(f"{name} names a path of this machine, {cli.ROOT}")


# The card of a dataset


def _dataset(made, out):
    """Write the card and the plot of a dataset; returns them as files."""
    rows, schema, clusters = [], "null", {}
    for split in SPLITS:
        path = made.files[f"{split}.jsonl"]
        for number, row in stream.records(path):
            where = f"{path}:{number}: {row['id']}"
            if row["id"] in made.rows:
                raise cli.BadData(
                    f"{where}: this id came before, in {made.rows[row['id']][0]}.jsonl"
                )
            if not (
                isinstance(row.get("messages"), list)
                and row["messages"]
                and all(
                    isinstance(m, dict)
                    and isinstance(m.get("content"), str)
                    and isinstance(m.get("role"), str)
                    for m in row["messages"]
                )
            ):
                raise cli.BadData(
                    f"{where}: no messages with role and content; draft-pack makes these rows"
                )
            try:
                schema = _merged(schema, _type(row))
            except ValueError as error:
                raise cli.BadData(
                    f"{where}: {error}; load_dataset refuses a field of two types"
                ) from None
            cluster = (row.get("overlap") or {}).get("cluster", row["id"])
            if (other := clusters.setdefault(cluster, split)) != split:
                raise cli.BadData(
                    f"{where}: a near-duplicate, of cluster {cluster}, is in {other}.jsonl; chat-split keeps them together"
                )
            made.rows[row["id"]] = (split, _fingerprint(row))
            seed, tokens = row.get("seed") or {}, row.get("tokens") or {}
            rows.append(
                {
                    "split": split,
                    **{key: seed[key] for key in COUNTED if isinstance(seed.get(key), str)},
                    "tokens": {
                        k: v
                        for k, v in tokens.items()
                        if isinstance(v, int) and not isinstance(v, bool)
                    },
                    "estimated": tokens.get("estimated"),
                }
            )
    if not rows:
        raise cli.BadData(f"{made.files['train.jsonl']}: no rows")
    report = _report(made, out.parent)
    files, lengths = (
        {"README.md": out / "README.md"},
        [row["tokens"]["total"] for row in rows if "total" in row["tokens"]],
    )
    if lengths:
        files["lengths.png"] = out / "lengths.png"
        stream.write(files["lengths.png"], _plot(rows, report.get("limit")))
    sizes = {split: sum(row["split"] == split for row in rows) for split in SPLITS}
    groups = {split: sum(other == split for other in clusters.values()) for split in SPLITS}
    counts = {key: _counted(rows, key) for key in COUNTED if any(key in row for row in rows)}
    languages = [
        value for value, *_ in counts.get("language", []) if re.fullmatch("[a-z]{2,3}", value)
    ]
    meta = {
        "pretty_name": made.repo.split("/")[1],
        "license": report.get("licence"),
        "language": sorted(languages) or None,
        "task_categories": ["text-generation"],
        "tags": ["slidev", "slides", "synthetic"] if report.get("models") else ["slidev", "slides"],
        "size_categories": [_size(len(rows))],
        "configs": [
            {
                "config_name": "default",
                "data_files": [
                    {"split": split, "path": f"{split}.jsonl"} for split in SPLITS if sizes[split]
                ],
            }
        ],
        "dataset_info": {"features": _features(schema)},
    }
    estimated = {row["estimated"] for row in rows if "total" in row["tokens"]}
    _write_card(
        files["README.md"],
        "dataset",
        meta,
        report,
        repo=made.repo,
        sizes=[(split, sizes[split], groups[split]) for split in SPLITS],
        total=len(rows),
        counts=counts,
        schema=_fields(schema),
        quantiles=_quantiles(rows),
        plot="lengths.png" in files,
        estimated=True in estimated,
        counted=False in estimated,
    )
    return files


def _report(made, folder):
    """What is known of how the folder was made: manifest.json or report.json, and about.toml over it, for what no tool knows (licence, limits ..)."""
    known = {}
    for name in ("manifest.json", "report.json"):  # of model-export, of chat-split
        if name in made.files:
            known |= _object(made.files[name])
    if (path := folder / "about.toml").exists():
        try:
            known |= tomllib.loads(path.read_text())
        except ValueError as error:
            raise cli.BadConfig(f"{path}: {error}") from None
    if not known.get("licence"):
        made.notes.append(f'no licence is named; {path} may: licence = "apache-2.0"')
    return known


def _fingerprint(row):
    """What of a row counts as its content: everything but who made it when (`by`)."""
    return stream.fingerprint(_content(row))


def _content(value):
    if isinstance(value, dict):
        return {key: _content(inner) for key, inner in value.items() if key != "by"}
    return [_content(inner) for inner in value] if isinstance(value, list) else value


def _type(value):
    """A value's type as Arrow has it: a name, `["list", type]` or `{field: type}`."""
    if isinstance(value, dict):
        return {key: _type(inner) for key, inner in value.items()}
    if isinstance(value, list):
        inner = "null"
        for item in value:
            inner = _merged(inner, _type(item))
        return ["list", inner]
    return {type(None): "null", bool: "bool", int: "int64", float: "float64"}.get(
        type(value), "string"
    )


def _merged(one, other, name=""):
    """The type that holds both. Raises ValueError naming the field that has two."""
    if one == other or other == "null":
        return one
    if one == "null":
        return other
    if isinstance(one, dict) and isinstance(other, dict):
        return {
            key: _merged(one.get(key, "null"), other.get(key, "null"), f"{name}.{key}".lstrip("."))
            for key in one | other
        }
    if isinstance(one, list) and isinstance(other, list):
        return ["list", _merged(one[1], other[1], name)]
    if {"int64", "float64"} == {str(one), str(other)}:
        return "float64"
    words = [
        found if isinstance(found, str) else "list" if isinstance(found, list) else "object"
        for found in (other, one)
    ]
    raise ValueError(f"{name or 'a list item'} is of type {words[0]} here and {words[1]} before")


def _features(schema):
    """The schema as a card's `dataset_info` has it, so that a reader needs no inference."""

    def one(kind):
        if isinstance(kind, dict):
            return {"struct": _features(kind)}
        if isinstance(kind, list):
            return {
                "list": _features(kind[1])
                if isinstance(kind[1], dict)
                else one(kind[1]).get("dtype") or one(kind[1])
            }
        return {"dtype": kind}

    return [{"name": name, **one(kind)} for name, kind in schema.items()]


def _fields(schema, prefix=""):
    """The schema as `[(field, type)]`, fields of structures by their path."""
    found = []
    for name, kind in schema.items():
        many = ""
        while isinstance(kind, list):
            kind, many = kind[1], many + "[]"
        if isinstance(kind, dict):
            found += _fields(kind, f"{prefix}{name}{many}.")
        else:
            found.append((f"{prefix}{name}{many}", kind))
    return found


def _counted(rows, key):
    """`[(value, rows in each split ..)]`, the most frequent first."""
    values = {}
    for row in rows:
        values.setdefault(row.get(key, "not given"), dict.fromkeys(SPLITS, 0))[row["split"]] += 1
    return sorted(
        ((value, *n.values()) for value, n in values.items()),
        key=lambda entry: (-sum(entry[1:]), entry[0]),
    )


def _quantiles(rows):
    """`[(part, least, median, nine tenths, most)]` of the rows' tokens."""
    found = []
    for part in ("prompt", "reasoning", "deck", "total"):
        if many := sorted(row["tokens"][part] for row in rows if part in row["tokens"]):
            found.append(
                (part, *(f"{many[round(q * (len(many) - 1))]:,}" for q in (0, 0.5, 0.9, 1)))
            )
    return found


def _size(n):
    for most, name in (
        (1_000, "n<1K"),
        (10_000, "1K<n<10K"),
        (100_000, "10K<n<100K"),
        (1_000_000, "100K<n<1M"),
    ):
        if n < most:
            return name
    return "1M<n<10M"


def _plot(rows, limit):
    """The lengths of the rows as a PNG in the style of the reports; equal rows give equal bytes."""
    import numpy

    from decksmith.results import plots

    lengths = {
        split: [
            row["tokens"]["total"]
            for row in rows
            if row["split"] == split and "total" in row["tokens"]
        ]
        for split in SPLITS
    }
    limit = limit if isinstance(limit, int) else None
    most = max([limit or 1, *(length for many in lengths.values() for length in many)])
    step = next(
        step
        for power in range(12)
        for step in (10**power, 2 * 10**power, 5 * 10**power)
        if most <= 24 * step
    )
    with plots.style() as (pyplot, tone):
        figure, axes = pyplot.subplots(figsize=(8.8, 3.4))
        axes.hist(
            list(lengths.values()),
            bins=numpy.arange(0, most + 2 * step, step),
            stacked=True,
            rwidth=0.86,
            color=["#3d7ea6", "#b5543c"],
            label=[f"{split}, {len(many)} rows" for split, many in lengths.items()],
        )
        axes.yaxis.get_major_locator().set_params(integer=True)
        axes.grid(axis="y", color=tone["line"], linewidth=0.8)
        axes.set_xlabel("tokens in a row: prompt, reasoning and deck")
        axes.legend(
            frameon=False,
            loc="lower right",
            bbox_to_anchor=(1.01, 0.99),
            ncols=2,
            fontsize=9,
            handlelength=0.9,
            handleheight=0.9,
        )
        note = "Rows by their number of tokens" + (
            " (estimated)" if any(row["estimated"] for row in rows) else ""
        )
        if limit:
            axes.axvline(limit, color=tone["ink"], linewidth=1, linestyle=(0, (4, 3)))
            note += f". Dashed: the training sequence's limit, {limit:,}"
        figure.subplots_adjust(left=0.07, right=0.97, bottom=0.17)
        plots._titled(figure, tone, "Length of the rows", f"{note}.", 0.85)
        pyplot.close(figure)
        return plots.drawn(figure, "png")


# The card of an adapter


def _adapter(made, out):
    """Write the card of an adapter; returns it as a file."""
    from decksmith.results import tables

    config, report = _object(made.files["adapter_config.json"]), _report(made, out.parent)
    compared = None
    if "comparison.json" in made.files:
        compared = _object(made.files["comparison.json"])
        if not all(isinstance(compared.get(key), list) for key in ("caveats", "headlines", "runs")):
            raise cli.BadData(
                f"{made.files['comparison.json']}: not what `run-compare --json` prints (caveats, headlines, runs)"
            )
    else:
        made.notes.append("no comparison.json (run-compare --json): the card makes no claim")
    base = config.get("base_model_name_or_path")
    if base and not re.fullmatch(r"[\w.-]+/[\w.-]+", base):
        made.notes.append(
            f"adapter_config.json names the base model by a path, {base}: nobody else can load it, and the card leaves it out"
        )
        base = None
    data = report.get("data") if isinstance(report.get("data"), dict) else {}
    meta = {
        "library_name": "peft",
        "license": report.get("licence"),
        "base_model": base,
        "pipeline_tag": "text-generation",
        "datasets": [data["repo"]]
        if re.fullmatch(r"[\w.-]+/[\w.-]+", str(data.get("repo")))
        else None,
        "tags": ["slidev", "slides", "lora"],
    }
    shape = {
        name: config[key]
        for name, key in (
            ("method", "peft_type"),
            ("rank", "r"),
            ("alpha", "lora_alpha"),
            ("dropout", "lora_dropout"),
            ("adapted modules", "target_modules"),
        )
        if config.get(key) is not None
    }
    if isinstance(shape.get("adapted modules"), list):
        shape["adapted modules"] = sorted(shape["adapted modules"])
    shape["parameters"] = f"{_parameters(made.files['adapter_model.safetensors']):,}"
    _write_card(
        out / "README.md",
        "adapter",
        meta,
        report,
        repo=made.repo,
        base=base,
        shape=shape,
        compared=compared,
        said=tables.headline(compared) if compared else None,
    )
    return {"README.md": out / "README.md"}


def _parameters(path):
    """How many numbers a safetensors file holds. Raises cli.BadData when it is cut off or no such file."""
    try:
        with open(path, "rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            size = path.stat().st_size
            tensors = {
                k: v
                for k, v in json.loads(file.read(min(length, size))).items()
                if k != "__metadata__"
            }
        end = (
            8 + length + max((tensor["data_offsets"][1] for tensor in tensors.values()), default=0)
        )
    except (ValueError, KeyError, TypeError, AttributeError, struct.error):
        raise cli.BadData(f"{path}: not a safetensors file, or cut off") from None
    if size != end:
        raise cli.BadData(f"{path}: {size} bytes, its header says {end}: cut off")
    total = 0
    for tensor in tensors.values():
        count = 1
        for extent in tensor["shape"]:
            count *= extent
        total += count
    return total


# Cards


def _write_card(path, kind, meta, report, **known):
    """Fill assets/cards/KIND.md.j2 and write it below its metadata; what is None in `meta` is left out."""
    import jinja2
    from huggingface_hub.utils import yaml_dump

    from decksmith.results.text import markdown_table

    def table(header, rows, words=1):
        return "\n".join(
            markdown_table(header, [[plain(cell) for cell in row] for row in rows], words)
        )

    setting = jinja2.Environment(
        loader=jinja2.FileSystemLoader(cli.ROOT / "assets" / "cards"),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    body = setting.get_template(f"{kind}.md.j2").render(
        table=table,
        plain=plain,
        listed=_listed,
        flat=_flat,
        money=_money,
        report=report,
        version=__version__,
        **known,
    )
    head = yaml_dump(
        {key: value for key, value in meta.items() if value is not None}, sort_keys=False
    )
    stream.write(path, f"---\n{head}---\n\n{body.strip()}\n")


def plain(value):
    """A value as text of one line that markdown and HTML leave alone."""
    return re.sub(r"([<>`*]|(?<=\])\()", r"\\\1", " ".join(_text(value).split()))


def _text(value):
    return (
        ", ".join(map(_text, value))
        if isinstance(value, list)
        else value
        if isinstance(value, str)
        else json.dumps(value)
    )


def _flat(value, prefix=""):
    """`[(dotted name, text)]` of a nested object."""
    if isinstance(value, dict):
        return [pair for key, inner in value.items() for pair in _flat(inner, f"{prefix}{key}.")]
    return [(prefix.rstrip("."), _text(value))]


def _listed(value):
    """The items of a list as text; an object is its name and the rest in brackets, anything but a list is a list of one."""

    def one(item):
        if not isinstance(item, dict):
            return plain(item)
        rest = ", ".join(
            " ".join(pair)
            for pair in _flat({key: inner for key, inner in item.items() if key != "name"})
        )
        return plain(f"{item.get('name', '')} ({rest})" if rest else item.get("name", "")).strip()

    return [one(item) for item in (value if isinstance(value, list) else [value])]


def _money(cost):
    """A number is in USD; anything else is told as it stands."""
    if isinstance(cost, int | float) and not isinstance(cost, bool):
        return f"{cost:.2f} USD"
    return plain(", ".join(" ".join(pair).strip() for pair in _flat(cost)))


# The Hub


def _hub():
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    import sys

    if not sys.stderr.isatty():
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    try:
        import huggingface_hub
    except ImportError:
        raise cli.Missing(
            "the package huggingface_hub is not installed; `make .venv/.hub` installs it"
        ) from None
    return huggingface_hub


class Hub:
    """One repository on the Hub, seen by the owner of HF_TOKEN.

    Raises cli.BadConfig when the token is absent, unknown or may not do this, cli.TryAgain when the Hub does not answer,
    cli.BadData when it refuses what is sent.
    """

    def __init__(self, made):
        self.made = made
        self.token = os.environ.get("HF_TOKEN", "").strip()
        masking.add(self.token, "HF_TOKEN")
        if not self.token:
            raise cli.BadConfig(
                "HF_TOKEN is not set; make a token with write permission on the Hub's page settings/tokens and export it"
            )
        if not re.fullmatch(r"[!-~]+", self.token):
            raise cli.BadConfig("HF_TOKEN holds characters that no token has")
        hub = _hub()
        self.api = hub.HfApi(
            endpoint=os.environ.get("HF_ENDPOINT") or None,
            token=self.token,
            library_name="decksmith",
        )
        self.url = f"{self.api.endpoint}/{'datasets/' if made.kind == 'dataset' else ''}{made.repo}"
        self.where = {
            "repo_id": made.repo,
            "repo_type": "dataset" if made.kind == "dataset" else "model",
        }
        self.user, self.names = None, {}
        with self._speaking():
            said = self.api.whoami()
        self.user, self.role = (
            said["name"],
            ((said.get("auth") or {}).get("accessToken") or {}).get("role"),
        )
        self.orgs = [org["name"] for org in said.get("orgs") or []]

    @contextmanager
    def _speaking(self):
        """Turn what huggingface_hub raises into one sentence with an exit status."""
        from httpx import HTTPError

        try:
            yield
        except (HTTPError, OSError, ValueError, RuntimeError) as error:
            if type(error) is RuntimeError and error.__cause__:  # what an upload's thread raised
                error = error.__cause__
            status = getattr(getattr(error, "response", None), "status_code", None)
            said = masking.mask(str(error))
            for sha256, name in self.names.items():  # a refused upload is named by its hash alone
                said = said.replace(sha256, name)
            said = " ".join(said.split())[:300]
            host, repo = self.api.endpoint, self.made.repo
            if status == 401 and self.user is None:
                raise cli.BadConfig(
                    f"{host} does not know HF_TOKEN (401): make a token with write permission at {host}/settings/tokens"
                ) from None
            if status in (401, 403):
                raise cli.BadConfig(
                    f"{self._me()} may not do this with {repo} ({status}); a token with write permission for "
                    f"{repo.split('/')[0]} is needed: {host}/settings/tokens"
                ) from None
            if status == 412:
                raise cli.TryAgain(
                    f"{repo} was changed by somebody else meanwhile; run again to see the difference"
                ) from None
            if status and status < 500 and status != 429 or type(error) is ValueError:
                raise cli.BadData(f"the Hub refuses {repo}: {said}") from None
            raise cli.TryAgain(
                f"the Hub did not answer: {said or type(error).__name__}; run again, what was uploaded is kept"
            ) from None

    def _me(self):
        return f"{self.user} ({', '.join([f'role {self.role}'] * bool(self.role) + [f'member of {org}' for org in self.orgs]) or 'no role known'})"

    def _info(self):
        """What the Hub says of the repository, or None when it is not there (or hidden from this user, which it does not tell)."""
        from huggingface_hub.errors import RepositoryNotFoundError

        with self._speaking():
            try:
                return self.api.repo_info(**self.where, files_metadata=True)
            except RepositoryNotFoundError:
                return None

    def difference(self):
        """How the parcel differs from the newest revision there (None: no such repository): `{"revision", "private", "files",
        "only_there", "rows", "card"}`; `rows` is None for an adapter, and when the old rows cannot be read."""
        info = self._info()
        there = {entry.rfilename: entry for entry in info.siblings or []} if info else {}
        files, old = [], {}
        for name, path in sorted(self.made.files.items()):
            entry, sha256, was = there.get(name), _sha256(path), None
            if not entry:
                state = "new"
            elif sha256 == entry.lfs.sha256 if entry.lfs else _blob(path) == entry.blob_id:
                state, old[name] = (
                    "same",
                    path.read_bytes() if path.suffix == ".jsonl" or name == "README.md" else None,
                )
            else:
                state, was = "changed", entry.lfs.sha256 if entry.lfs else None
                if not was or path.suffix in (".jsonl", ".md"):
                    old[name] = self._fetch(name, info.sha)
                    was = hashlib.sha256(old[name]).hexdigest()
            files.append(
                {
                    "path": name,
                    "state": state,
                    "size": path.stat().st_size,
                    "sha256": sha256,
                    "was": was,
                }
            )
        return {
            "revision": info.sha if info else None,
            "private": bool(info.private) if info else None,
            "files": files,
            "only_there": sorted(set(there) - set(self.made.files) - {".gitattributes"}),
            "rows": _rows(old, self.made.rows) if self.made.kind == "dataset" else None,
            "card": _card_difference(
                old.get("README.md", b""), self.made.files["README.md"].read_bytes()
            ),
        }

    def _fetch(self, name, revision):
        import tempfile

        with tempfile.TemporaryDirectory() as folder, self._speaking():
            return Path(
                self.api.hf_hub_download(
                    **self.where, filename=name, revision=revision, local_dir=folder
                )
            ).read_bytes()

    def push(self, difference, public):
        """Send what differs as one commit on the revision that was compared; returns `{"url", "revision"}`.

        A repository that is not there is made. Uploads that an interrupted push finished are not repeated.
        """
        from huggingface_hub import CommitOperationAdd

        if self.role == "read":
            raise cli.BadConfig(
                f"{self._me()} may only read; make a token with write permission at {self.api.endpoint}/settings/tokens"
            )
        revision = difference["revision"]
        if revision is None:
            with self._speaking():
                self.api.create_repo(**self.where, private=not public, exist_ok=True)
                info = self.api.repo_info(**self.where)
            check_visibility(self.made.repo, bool(info.private), public)
            revision = info.sha
        if changed := [file for file in difference["files"] if file["state"] != "same"]:
            self.names = {file["sha256"]: file["path"] for file in changed}
            with self._speaking():
                sent = [
                    CommitOperationAdd(file["path"], str(self.made.files[file["path"]]))
                    for file in changed
                ]
                revision = self.api.create_commit(
                    **self.where,
                    operations=sent,
                    parent_commit=revision,
                    commit_message=f"decksmith {__version__}: {_summary(difference)}",
                ).oid
        return {"url": self.url, "revision": revision}


def check_visibility(repo, private, public):
    """Raises cli.BadConfig when the repository is there and is not as private as asked."""
    if private is False and not public:
        raise cli.BadConfig(
            f"{repo} is there and public, but private is what was asked: --public if everybody may read it, else make it "
            "private on its settings page or name another --repo"
        )
    if private and public:
        raise cli.BadConfig(
            f"{repo} is there and private, but --public was asked: make it public on its settings page, or leave out --public"
        )


def _sha256(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _blob(path):
    """The object name that git gives a file."""
    data = path.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def _rows(files, new):
    """The rows of `new` (Parcel.rows) against those of the old files: `{"added", "changed", "removed": {split: [id]}, "moved":
    [(id, from, to)]}`, or None when an old file is not JSONL with ids."""
    old = {}
    for split in SPLITS:
        for line in files.get(f"{split}.jsonl", b"").splitlines():
            try:
                row = stream.loads(line)
            except ValueError:
                return None
            old[row["id"]] = (split, _fingerprint(row))

    def by_split(ids, rows):
        return {
            split: found
            for split in SPLITS
            if (found := [ident for ident in ids if rows[ident][0] == split])
        }

    both = [ident for ident in new if ident in old]
    return {
        "added": by_split([ident for ident in new if ident not in old], new),
        "changed": by_split([ident for ident in both if new[ident][1] != old[ident][1]], new),
        "removed": by_split([ident for ident in old if ident not in new], old),
        "moved": [
            (ident, old[ident][0], new[ident][0])
            for ident in both
            if old[ident][0] != new[ident][0]
        ],
    }


def _card_difference(old, new):
    import difflib

    before, after = (data.decode("utf-8", "replace").splitlines() for data in (old, new))
    return list(
        difflib.unified_diff(before, after, "README.md there", "README.md here", lineterm="")
    )


def _summary(difference):
    counts = [
        f"{sum(map(len, found.values()))} rows {word}"
        for word, found in (difference["rows"] or {}).items()
        if found and word != "moved"
    ]
    return ", ".join(counts) or ", ".join(
        file["path"] for file in difference["files"] if file["state"] != "same"
    )


def described(hub, difference, public):
    """The difference as lines of text for whoever decides whether to push."""
    made, revision = hub.made, difference["revision"]
    visible = {
        None: f"not there, or not for {hub.user} to see; --push makes it, {'public' if public else 'private'}",
        True: f"revision {str(revision)[:12]}, private",
        False: f"revision {str(revision)[:12]}, public",
    }[difference["private"]]
    lines = [f"{hub.url} ({made.kind}, as {hub.user}): {visible}"]
    for file in difference["files"]:
        change = (
            f"{file['was'][:12]} -> {file['sha256'][:12]}" if file["was"] else file["sha256"][:12]
        )
        lines.append(f"  {file['state']:<8}{file['path']}  {file['size']:,} bytes, sha256 {change}")
    lines += [f"  stays   {name}  only there, left alone" for name in difference["only_there"]]
    if rows := difference["rows"]:
        lines += [
            f"rows of {split} {word}: {_named(ids)}"
            for word in ("added", "changed", "removed")
            for split, ids in rows[word].items()
        ]
        lines += [
            f"row {ident} moves from {old} to {new}" for ident, old, new in rows["moved"][:SHOWN]
        ]
        if rows["moved"][SHOWN:]:
            lines.append(f"{len(rows['moved']) - SHOWN} more rows move")
        if not any(rows.values()):
            lines.append("rows: the same")
    elif made.kind == "dataset":
        lines.append("rows: those there cannot be read, so no row is compared")
    card, path = difference["card"], made.files["README.md"]
    state = next(file["state"] for file in difference["files"] if file["path"] == "README.md")
    if state != "changed":
        return [*lines, f"card: {'the same' if state == 'same' else 'new'}, {path}"]
    more = [f"  .. {len(card) - LINES} lines more; the whole card: {path}"] if card[LINES:] else []
    return [*lines, "card:", *(f"  {line}" for line in card[:LINES]), *more]


def _named(ids):
    more = f" and {len(ids) - SHOWN} more" if ids[SHOWN:] else ""
    return f"{len(ids)} ({', '.join(ids[:SHOWN])}{more})"
