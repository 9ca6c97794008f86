"""What the pages of assets/web are made of: their templates, their fonts and data inside, and the policy of a page that is one file."""

import base64
import functools
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from decksmith.core import cli

if TYPE_CHECKING:
    import jinja2
    import markupsafe

WEB = cli.ROOT / "assets" / "web"


def environment(folder: Path, **settings: Any) -> "jinja2.Environment":
    """What reads the Jinja templates of a folder; a line of theirs that holds a block leaves none."""
    import jinja2

    loader = jinja2.FileSystemLoader(folder)
    return jinja2.Environment(trim_blocks=True, lstrip_blocks=True, loader=loader, **settings)


def template(name: str, **filters: Callable[..., Any]) -> "jinja2.Template":
    """A page of assets/web, which escapes what is put into it, and refuses a name that it was not
    given; `filters` by their names in it."""
    import jinja2

    known = environment(WEB, autoescape=True, undefined=jinja2.StrictUndefined)
    known.filters |= filters  # before it is read: a filter that is not there then is an error
    return known.get_template(name)


def data(value: Any) -> "markupsafe.Markup":
    """A JSON-able value as the content of a script element: there only `<` can end or change what follows. Lone surrogates are not UTF-8."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return as_is(text.replace("<", "\\u003c").encode("utf-8", "backslashreplace").decode())


def as_is(text: str) -> "markupsafe.Markup":
    """Text that a template does not escape: scripts and styles of ours."""
    import markupsafe

    return markupsafe.Markup(text)


@functools.cache
def faces() -> str:
    """CSS with the page's fonts in it."""
    fonts = {
        weight: base64.b64encode((WEB / "fonts" / f"inter-{weight}.woff").read_bytes()).decode()
        for weight in (400, 600)
    }
    return "".join(
        f"@font-face{{font-family:Inter;font-weight:{weight};font-display:block;src:url(data:font/woff;base64,{font})}}"
        for weight, font in fonts.items()
    )


def script(*names: str) -> str:
    """The script of a page, of one file or several, after what every page draws with (element.js)."""
    return "".join((WEB / name).read_text() for name in ("element.js", *names))


def policy(script: str, style: str, images: str, nonce: str = "") -> str:
    """The Content-Security-Policy of a page that is one file: this script and this style alone (by hash, W3C CSP 3), and the
    scripts that this one adds with `nonce`; pictures from `images`."""
    scripts = f"'sha256-{sha256(script)}'" + f" 'nonce-{nonce}'" * bool(nonce)
    return (
        f"default-src 'none'; script-src {scripts}; style-src 'sha256-{sha256(style)}'; img-src {images}; "
        "font-src data:; base-uri 'none'; form-action 'none'"
    )


def sha256(text: str) -> str:
    """The hash by which a policy allows a script or style that stands in the page."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
