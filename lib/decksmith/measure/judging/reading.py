"""Whether the text of a deck reads like language, by how unlikely the embedded model finds it: bits a character.

Words of no language, words in no order and sentences dealt from other decks surprise a model; a text that goes on
from line to line surprises it less. The model knows nothing of what is true, good or asked for: a fluent text whose
claims are all false reads as well as an honest one. Only languages that it knows are judged (LANGUAGES);
docs/judge-card.md says how often the verdict is right."""

import asyncio
import itertools
import json
import re
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple, TypedDict, cast

from decksmith.core import cli, stream
from decksmith.measure.decks.words import likeliest_language
from decksmith.models import embedded

LANGUAGES = {
    "en": "English"
}  # good decks of others are as unlikely to the model as English word salad
MOST = 1200  # characters of a deck that are read: about 290 tokens of English, 3 CPU seconds
LATIN = 0.9  # of the letters; talks in Chinese have English words enough to be taken for English
SLIDE = 400  # of one slide at most
TOKENS = 360  # pseudo-words have more tokens to a character; the reading ends here
VERSION = "reads-1"  # raise it when other text is taken from a deck: journals keep readings
SECONDS = 600  # for an answer, behind all others that read
_LINK = ("://", "@", "www.")
_CODE = re.compile(r"[={}\[\]<>|$_\\]|\w\(|;$|//")


class Reading(NamedTuple):
    """Whether a deck's text reads like language: None where that was not checked, and why. bits: a character of what
    was read, None where nothing was."""

    passed: bool | None
    why: str
    bits: float | None = None


class Likelihood(TypedDict):
    """What the engine says of the beginning of a text: how much it read, and its bits in all."""

    tokens: int
    characters: int
    bits: float


def engine() -> embedded.EngineSettings:
    """The plain embedded model on one thread, whatever else is served here and by whom."""
    return embedded.EngineSettings(threads=1, parallel=1, loras={}, context=512)


def identity() -> list[str]:
    """What a reading depends on besides the text and the limits."""
    package = json.loads((embedded.ENGINE / "package.json").read_text())
    engine_version = package["dependencies"]["node-llama-cpp"]
    return [VERSION, embedded.WEIGHTS_SHA256, f"node-llama-cpp {engine_version}"]


class Reader:
    """Reads decks with one server, which is started for the first of them and shared with other readers on this machine.

    bits: more a character does not read like language. least: characters of a deck below which nothing is said.
    journal: where readings are kept by the hash of what was read, so that other limits cost nothing; none: nowhere."""

    def __init__(self, bits: float, least: float, journal: str | Path | None = None) -> None:
        self.bits, self.least = bits, least
        self._path, self._journal = journal, cast(stream.Journal | None, None)
        self._lease: embedded.Lease | None = None
        self._lock = threading.Lock()
        self._identity = identity()

    async def verdict(self, texts: Mapping[int, str], language: str | None) -> Reading:
        """What is to be said of a deck, by what can be read on each of its slides and the language that was asked for
        (None: the text's own). Raises cli.Missing where the engine is not there or cannot run."""
        text = excerpt(texts[n] for n in sorted(texts))
        if why := unjudged(text, language, self.least):
            return Reading(None, why)
        said = await asyncio.to_thread(self.read, text)
        bits = said["bits"] / said["characters"]
        passed = bits <= self.bits
        more = "at most" if passed else "more than"
        why = f"{bits:.2f} bits a character, {more} the {self.bits:.2f} of text that goes on"
        return Reading(passed, why, round(bits, 4))

    def close(self) -> None:
        """Give the server back; a later deck would start it again."""
        with self._lock:
            self._hang_up()
            if self._journal:
                self._journal.close()
                self._journal = None

    def _hang_up(self) -> None:
        if self._lease:
            self._lease.close()
            self._lease = None

    def read(self, text: str) -> Likelihood:
        """How unlikely the beginning of a text is, from the journal where it was read before. Errors as of `verdict`."""
        key = stream.fingerprint([text, TOKENS, *self._identity])
        with self._lock:  # the engine reads one text after the other anyway
            if self._path and not self._journal:
                self._journal = stream.Journal(self._path, "reads")
            kept = self._journal.get(key[:16], key) if self._journal else None
            if kept is not None:
                return cast(Likelihood, kept)
            said = self._heard(text)
            if self._journal:
                self._journal.put(key[:16], key, said)
            return said

    def _heard(self, text: str) -> Likelihood:
        """The engine's answer; where somebody ended the server, once more from another. Raises cli.Missing."""
        from http.client import HTTPException

        for last in (False, True):
            try:
                return self._ask(text)
            except (OSError, EOFError, HTTPException, ValueError) as error:
                self._hang_up()
                if last:
                    said = f"the embedded engine breaks off ({error!r}); {embedded.MEND}"
                    raise cli.Missing(said) from None
        raise AssertionError("the last try returns or raises")

    def _ask(self, text: str) -> Likelihood:
        """The engine's answer. Raises cli.Missing where it does not start, OSError where it breaks off."""
        if not self._lease:
            self._lease = embedded.share(engine())
        import urllib.error
        import urllib.request  # brings all of http and email, and most that judge ask nobody

        body = {"model": embedded.NAME, "text": text, "max_tokens": TOKENS}
        request = urllib.request.Request(
            f"{self._lease.base_url}/likelihood", json.dumps(body).encode()
        )
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with direct.open(request, timeout=SECONDS) as answer:
                found = json.load(answer)
        except urllib.error.HTTPError as error:
            said = error.read().decode(errors="replace")
            raise cli.Missing(
                f"the embedded engine does not read: {said}; {embedded.MEND}"
            ) from None
        return {
            "tokens": found["tokens"],
            "characters": found["characters"],
            "bits": round(sum(found["bits"]), 3),
        }


def unjudged(text: str, language: str | None, least: float) -> str | None:
    """Why nothing is said of an excerpt, whose language was asked for; None where something is."""
    asked, found = (language or "").split("-")[0], likeliest_language(text)
    for code in filter(None, (asked, found)):
        if code not in LANGUAGES:
            return f"the embedded model does not know this language ({code})"
    letters = [letter for letter in text if letter.isalpha()]
    if sum(map(str.isascii, letters)) < LATIN * len(letters):
        return "a part of the text is in another script"
    if len(text) < least:
        return f"{len(text)} characters of running text are too few"
    return None if asked or found else "the language of the text is unknown"


def excerpt(slides: Iterable[str]) -> str:
    """Running text of a deck, MOST characters or a little less: lines of slides that are spread evenly over it, in
    their order, without code, addresses, figures, and lines of fewer than three words."""
    spoken = [lines for slide in slides if (lines := running(slide))]
    taken: dict[int, str] = {}
    left = MOST
    for n in spread(len(spoken)):
        room = min(SLIDE, left)
        ends = itertools.accumulate(len(line) + 1 for line in spoken[n])
        taken[n] = "".join(
            f"{line}\n" for line, end in zip(spoken[n], ends, strict=True) if end <= room
        )
        left -= len(taken[n])
    return "".join(taken[n] for n in sorted(taken)).rstrip()


def spread(count: int) -> list[int]:
    """The places 0 to count - 1 in an order whose every beginning is spread evenly: 0, the middle, the quarters .."""
    width = max(1, (count - 1).bit_length())
    return sorted(range(count), key=lambda n: int(f"{n:0{width}b}"[::-1], 2))


def running(text: str) -> list[str]:
    """The lines of a slide that are sentences or parts of one."""
    lines = (
        [w for w in line.split() if not any(sign in w for sign in _LINK)]
        for line in text.split("\n")
    )
    return [line[: SLIDE - 1] for words in lines if _runs(line := " ".join(words))]


def _runs(line: str) -> bool:
    """Three words or more, and no sign that stands in code or tables."""
    words = [word for word in line.split() if sum(map(str.isalpha, word)) > 1]
    letters = sum(map(str.isalpha, line))
    return len(words) >= 3 and letters >= 0.6 * len(line) and not _CODE.search(line)
