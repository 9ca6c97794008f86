"""The rules of a reward, assets/rewards: which components count, and how much."""

import hashlib
import math
from dataclasses import dataclass
from pathlib import Path

from decksmith.core import cli, inherit, stream
from decksmith.core.protocol import Protocol
from decksmith.core.records import Record
from decksmith.decks import words
from decksmith.judging import legibility, offline, rendered

SHIPPED = cli.ROOT / "assets/rewards"
# What each component is made of: offline measures (decksmith.judging.offline), in its arithmetic; none where it is not
# made of such. docs/rewards.md prints the sentences.
COMPONENTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "parses": ("The reply holds a deck of as many slides as the protocol wants at least.", ()),
    "renders": (
        "Share of the slides that are drawn without an error and show something.",
        ("errors", "empty"),
    ),
    "slides": ("As many slides as asked for.", ("slides",)),
    "elements": (
        "Share of the asked elements (code, diagram, formula, table, picture ..) that are there.",
        ("features",),
    ),
    "theme": ("The theme that was asked for.", ("theme",)),
    "language": ("The text is in the language that was asked for.", ("language",)),
    "outline": ("Share of the asked headings that some slide's title has.", ("outline",)),
    "order": ("The asked headings come in the asked order.", ("order",)),
    "checklist": (
        "Share of the checklist that is found on slides that can be read.",
        ("checklist",),
    ),
    "figures": ("Share of the request's figures that the deck shows.", ("figures",)),
    "topic": ("The slides take up the words of the request, and not only those.", ("topic",)),
    "layout": (
        "Overflow, overlap, contrast, type size, pictures that load, density, space, hierarchy and variety of the slides.",
        (
            "overflow",
            "overlap",
            "contrast",
            "smallest",
            "pictures",
            "density",
            "whitespace",
            "hierarchy",
            "variety",
            "visuals",
        ),
    ),
    "unread": ("What the page says can be made out in the picture.", ("unread",)),
    "sense": (
        "Words in an order that a sentence can have, and no raw markup or filler text.",
        ("grammar", "articles", "leftovers"),
    ),
    "echo": ("The deck does not repeat the request.", ("echo",)),
    "repetition": (
        "No slide repeats another one, or shows a heading and nothing else.",
        ("repeats", "hollow"),
    ),
    "unasked": ("No code and no formulas where neither was asked for.", ("aside",)),
    "length": ("Words on a slide, on average: neither next to none nor too many.", ()),
}
KEYS = ("name", "protocol", "weights", "gates")


@dataclass(frozen=True)
class Rules:
    """One file of assets/rewards.

    weights: {component: share of the mean}, which sum to 1. gates: {component: what it leaves of the reward at 0}.
    measures: the settings of the offline measures, those of `protocol`. sha256: of all of this, and of the code that
    measures.
    """

    name: str
    sha256: str
    protocol: Protocol
    weights: dict[str, float]
    gates: dict[str, float]
    measures: Record
    judge: Record | None = None

    @property
    def needs_judge(self) -> bool:
        """Whether the reward looks at the `judge` of a record."""
        return self.judge is not None


def read(name: str | Path) -> Rules:
    """Rules by their name in assets/rewards, or by path (anything with a slash or `.toml`).

    Raises cli.BadConfig with one sentence that names the file and the key.
    """
    by_path = "/" in str(name) or str(name).endswith(".toml")
    path = Path(name) if by_path else SHIPPED / f"{name}.toml"
    try:
        data = inherit.read(path, SHIPPED)
    except FileNotFoundError:
        known = ", ".join(sorted(p.stem for p in SHIPPED.glob("*.toml")))
        raise cli.BadConfig(f"no reward {path}; there are: {known}") from None
    except (OSError, ValueError) as error:
        raise cli.BadConfig(f"{path}: {error}") from None
    _check(path, data)
    protocol = Protocol.load(data["protocol"])
    if protocol.judge["kind"] != "offline":
        raise cli.BadConfig(
            f"{path}: protocol: {data['protocol']} has no offline measures; name one that has, as offline"
        )
    held = [data, protocol.render, protocol.measures, _code()]
    return Rules(
        name=data["name"],
        sha256=stream.fingerprint(held),
        protocol=protocol,
        weights=data["weights"],
        gates=data["gates"],
        measures=protocol.measures,
    )


def _code() -> str:
    """The sha256 of the code that measures."""
    files = [str(module.__file__) for module in (offline, legibility, rendered, words)]
    files += [__file__, str(Path(__file__).with_name("components.py"))]
    return hashlib.sha256(b"".join(Path(file).read_bytes() for file in files)).hexdigest()


def _check(path: Path, data: Record) -> None:
    for key in KEYS:
        if key not in data:
            raise cli.BadConfig(f"{path}: {key}: is missing")
    for key in data:
        if key not in KEYS:
            raise cli.BadConfig(f"{path}: {key}: unknown; there are: {', '.join(KEYS)}")
    for table in ("weights", "gates"):
        if not isinstance(data[table], dict):
            raise cli.BadConfig(f"{path}: {table}: is no table")
        for component, number in data[table].items():
            _check_number(path, f"{table}.{component}", component, number)
    if not math.isclose(total := sum(data["weights"].values()), 1, abs_tol=1e-6):
        raise cli.BadConfig(f"{path}: weights: they sum to {total:g} and not to 1")


def _check_number(path: Path, where: str, component: str, number: object) -> None:
    if component not in COMPONENTS:
        known = ", ".join(COMPONENTS)
        raise cli.BadConfig(f"{path}: {where}: unknown component; there are: {known}")
    if isinstance(number, bool) or not isinstance(number, int | float) or not 0 <= number <= 1:
        raise cli.BadConfig(f"{path}: {where}: {number!r} is no number from 0 to 1")
