"""The pages that people see: their text, and what they load by names that change with the content."""

import functools
import hashlib
import re
from typing import Any

from decksmith.core import pages


def page(
    title: str,
    kind: str = "rater",
    *,
    inline: dict[str, Any] | None = None,
    message: str = "",
    question: str = "",
    handles: bool = True,
) -> str:
    """The text of a page: `rater`, `start` or `owner`; `message` stands on the start page.

    inline   None for a page that a server gives. Else {"script": text that runs before vote.js and
             sets window.booth, "data": what it finds as JSON in the element #data}: then the page
             is one file that needs nothing else, under a policy of hashes.
    handles  the start page offers to choose a name"""
    given: dict[str, Any] = {
        "title": title,
        "kind": kind,
        "message": message,
        "question": question,
        "handles": handles,
        "inline": None,
        "names": {name.rpartition(".")[2]: name for name in files()},
    }
    if inline:
        script = inline["script"] + "\n" + pages.script("vote.js")
        given["inline"] = {
            "policy": pages.policy(script, _style(), "data:"),
            "script": pages.as_is(script),
            "style": pages.as_is(_style()),
            "data": pages.data(inline["data"]),
        }
    return str(pages.template("vote.html.j2").render(given))


@functools.cache
def files() -> dict[str, tuple[bytes, str]]:
    """`{name: (content, MIME type)}` of what the pages load."""
    found = {}
    for kind, text, mime in (
        ("css", _style(), "text/css"),
        ("js", pages.script("vote.js"), "text/javascript"),
    ):
        digest = hashlib.sha256(text.encode()).hexdigest()[:12]
        found[f"vote-{digest}.{kind}"] = (text.encode(), mime)
    return found


@functools.cache
def _style() -> str:
    """vote.css with the fonts in it and the colours of the report."""
    report = (pages.WEB / "report.css").read_text()
    colours = re.findall(r"^:root[^{]*\{[^}]*\}", report, re.M)
    return "\n".join([pages.faces() + "\n".join(colours), (pages.WEB / "vote.css").read_text()])
