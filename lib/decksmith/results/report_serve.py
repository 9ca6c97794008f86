"""Show a written report over HTTP, to this machine's browsers."""

import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from aiohttp import web as http

from decksmith.core import cli, web
from decksmith.results import report

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".avif": "image/avif",
    ".svg": "image/svg+xml",
    ".md": "text/plain; charset=utf-8",
}


def serve(page: Path, port: int, said: Callable[[str], None]) -> None:
    """Serve a report's page and the files beside it on loopback until SIGTERM or Ctrl-C; `said` gets the address.

    port 0: any that is free. docs/ is there too, because the page links to it. Raises cli.Missing for a port in use.
    """

    folder, name = page.parent, page.name
    policy = f"{report.policy(single=name == report.SINGLE)}; frame-ancestors 'none'"

    @contextlib.asynccontextmanager
    async def made(url: str) -> AsyncIterator[http.Application]:
        app = web.application(csp=policy, hosts=web.LOOPBACK)
        app.router.add_get("/", lambda _: _file(folder, name))
        app.router.add_get(
            "/docs/{path:.*}", lambda r: _file(cli.ROOT / "docs", r.match_info["path"])
        )
        app.router.add_get("/{path:.*}", lambda r: _file(folder, r.match_info["path"]))
        said(f"{url}/")
        yield app

    web.run(made, port=port)


async def _file(folder: Path, path: str) -> http.StreamResponse:
    """A file of a folder, of the kinds that a report has; 404 for whatever else."""
    file = (folder / path).resolve()
    kind = TYPES.get(file.suffix)
    if kind is None or not file.is_relative_to(folder.resolve()) or not file.is_file():
        raise http.HTTPNotFound(text="there is no such file in this report")
    return http.FileResponse(file, headers={"Content-Type": kind})
