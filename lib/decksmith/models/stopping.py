"""A reply that is stopped before its end: it repeats itself, no slide has begun, or, of an edit, no line of the deck has come
(`stop_early` of a protocol's sampling).

The rule reads the answer, not the thought. It looks after each EVERY characters, at nothing but what stands before that place: a reply
is cut at the same character in whatever pieces it comes, and where it comes whole.
"""

import re

from decksmith.models.records import Stopped, StopRule, Why
from decksmith.models.replies import Reply, StreamSplitter, guessed

NAME = "stop_early"  # of a request's parameters; it is ours, and is not posted
EVERY = 50  # characters between two looks
LONGEST = 4000  # characters of a text whose repetition is found
OTHER = 10  # as many characters that are no letter or digit count as one: dashes, blanks, frames
_BEGUN = re.compile(r"^(?:---|#{1,6}[ \t]|<h[1-6]\b)", re.M)  # a slide: its rule or its heading
WORDS = {
    "repeats": "it repeats itself",
    "no slide": "no slide has begun",
    "no line": "it has no line of what was asked",
}
# A line of 12 characters or more, without the marks of a list, a heading or a diff.
_LINE = re.compile(r"^[ \t+*#>-]*([^\s+*#>-].{11,}?)[ \t]*$", re.M)


class Watch(StreamSplitter):
    """A stream that is left as soon as the rule holds. `stopped`: where it first held, or None.

    apart: the endpoint is known to keep its model's thought apart from the answer; else nothing is left for want of a slide.
    asked: the message that it answers, for `no_line_tokens`.
    """

    def __init__(self, rule: StopRule, apart: bool = True, asked: str = "") -> None:
        super().__init__(self.hear)
        self.rule = rule
        self.lines = {*_LINE.findall(asked)} if "no_line_tokens" in rule else set[str]()
        self.most = rule["no_slide_tokens"] or (rule["no_line_tokens"] if self.lines else 0)
        # Characters that a look may need.
        self.reach = max(LONGEST * rule["repeats"], 2 * self.most + EVERY)
        self.hear("turn", "")
        self.apart = apart

    def hear(self, kind: str, piece: str) -> None:
        """Take the next piece of the thought or of the answer."""
        self.apart = kind != "text" or self.apart
        if kind == "turn":  # what came was thought
            self.stopped: Stopped | None = None
            self.begun = not self.most
            self.look, self.start, self.tail = EVERY, 0, ""  # tail: from character `start` on
        elif kind == "text":
            self.tail += piece
        while not self.stopped and self.look <= self.start + len(self.tail):
            end = self.look - self.start
            self.stopped = self._seen(self.tail[max(0, end - self.reach) : end])
            self.look += EVERY
        if (old := len(self.tail) - self.reach - EVERY) > self.reach:
            self.start, self.tail = self.start + old, self.tail[old:]
        self.enough = bool(self.stopped and (self.apart or self.stopped["why"] == "repeats"))

    def _seen(self, text: str) -> Stopped | None:
        """What the rule says after `look` characters, of which `text` are the last."""
        if not self.begun and guessed(text) >= self.most:
            said = self.lines & {*_LINE.findall(text)}
            self.begun = bool(said if self.lines else _BEGUN.search(text))
            if not self.begun:
                why: Why = "no line" if self.lines else "no slide"
                return {"why": why, "kept": self.look, "read": self.look}
        if (kept := self._once(text)) is None:
            return None
        return {"why": "repeats", "kept": self.look - len(text) + kept, "read": self.look}

    def _once(self, text: str) -> int | None:
        """Of a text that ends with repetitions, how much holds one of them, to the end of its line; None for any other.

        What repeats with a period of p characters has its last characters also p before, so only such places are looked at.
        """
        times, most = self.rule["repeats"], self.rule["repeated_characters"]
        if not times or len(text) < most:
            return None
        last, first = text[most // times - most :], len(text)  # of the longest run so far
        found = text.rfind(last, 0, -1)
        while found >= 0 and first:
            begin, period = found, len(text) - len(last) - found
            if found < first or text[first - 1] == text[first - 1 + period]:  # a longer run
                while begin and text[begin - 1] == text[begin - 1 + period]:
                    begin -= 1
                said = sum(map(str.isalnum, text[begin:]))
                long = said + (len(text) - begin - said) / OTHER >= most
                if long and len(text) - begin >= times * period:
                    once = begin + period
                    line = text.find("\n", once, once + period)
                    return once if line < 0 else line
                first = min(first, begin)
            # Within a run of a short period each other period is a multiple of it.
            found = text.rfind(last, 0, (first if period <= len(last) else found) + len(last) - 1)
        return None


def cut(reply: Reply, rule: StopRule, asked: str = "") -> None:
    """Cut a reply where the rule first holds, if anywhere. asked: as of Watch."""
    watch = Watch(rule, asked=asked)
    watch.hear("text", reply.text)
    if watch.stopped:
        reply.stopped, reply.finish_reason = watch.stopped, "stopped"
        reply.text = reply.text[: watch.stopped["kept"]]
