"""The server behind the pages on which people compare decks.

A rater's link is all there is to a rater: `/r/TOKEN/` holds a signed name and everything below it.
There are no cookies, so that no other page can act for a rater, and several people can vote in one
browser. What goes out about a pair is its id, its request and its pictures.
"""

import asyncio
import contextlib
import functools
import re
import sqlite3
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import TypedDict, TypeVar, cast

from aiohttp import web as http

from decksmith.core import cli, pages, stream, validation, web
from decksmith.people.study import raters, records, store
from decksmith.people.study.records import Rater

PICTURE = re.compile(r"[a-z2-7]{26}\.webp\Z")
LARGEST = 1 << 16  # bytes of a request

Value = TypeVar("Value")


class VoteHandlers:
    """What the server answers. Every path of a rater or of the owner begins with their token."""

    def __init__(self, study: store.Study, *, handles: bool = True) -> None:
        self.study, self.handles = study, handles
        self.joins = web.Rate(60, 600)
        self.actions = web.Rate(240, 120)
        self.looks = web.Rate(3000, 300)

    def routes(self) -> list[http.AbstractRouteDef]:
        """Every path with what answers it."""
        return [
            http.get("/", self.front),
            http.get("/{name:vote[.](?:css|js)}", self.file),
            http.post("/join", self.join),
            http.get("/r/{token}", self.bare),
            http.get("/r/{token}/", self.rater),
            http.get("/r/{token}/sheet", self.sheet),
            http.get("/r/{token}/p/{name}", self.picture),
            http.post("/r/{token}/{what:vote|skip|undo}", self.act),
            http.post("/r/{token}/more", self.more),
            http.get("/owner/{token}/", self.owner),
            http.get("/owner/{token}/state", self.state),
            http.post("/owner/{token}/{what:close|open}", self.close),
            http.post("/owner/{token}/raters", self.invite),
        ]

    # Who asks

    async def _rater(self, request: http.Request) -> str:
        """The id of the rater whose link this is. Raises HTTPNotFound."""
        rater = await asyncio.to_thread(self.study.rater, request.match_info["token"])
        if rater is None:
            raise http.HTTPNotFound(text="this link is not complete, or of another study")
        return rater

    async def _acting(self, request: http.Request) -> str:
        """The rater, who wants to change something. Raises HTTPNotFound and HTTPTooManyRequests."""
        rater = await self._rater(request)
        self.actions.check(rater)
        return rater

    def _owner_only(self, request: http.Request) -> None:
        if not self.study.owned(request.match_info["token"]):
            raise http.HTTPNotFound(text="this is not the owner's link")

    # How it is answered

    def _start(self, message: str = "", status: int = 200) -> http.Response:
        """The start page."""
        about = self.study.about
        offers_names = self.handles and not self.study.closed
        shown = {"message": message, "question": about["question"], "handles": offers_names}
        return _html(page(about["title"], "start", **shown), status)

    async def _changed(
        self, call: Callable[[], Value], say: Callable[[Value], Mapping[str, object]]
    ) -> http.Response:
        """Change the study by `call`, and answer what `say` makes of its value; 409 and 423
        say why not. Once begun it is finished, whoever hangs up."""
        try:
            return http.json_response(say(await asyncio.to_thread(call)))
        except store.Closed as error:
            return web.problem(423, str(error))
        except store.Conflict as error:
            return web.problem(409, str(error))
        except sqlite3.Error as error:  # a full disk, say
            cli.say(f"a vote could not be stored: {error}")
            raise cli.TryAgain("this could not be stored; it will be tried again") from None

    # Everybody

    async def front(self, request: http.Request) -> http.Response:
        return self._start()

    async def file(self, request: http.Request) -> http.Response:
        text, mime = files()[request.match_info["name"]]
        return http.Response(text=text, content_type=mime)

    async def join(self, request: http.Request) -> http.Response:
        name = validation.read(records.Join, await request.read()).name
        if not self.handles:
            raise http.HTTPForbidden(text="this study is by invitation: its owner gives you a link")
        address = web.remote(request)
        self.joins.check(address)
        return await self._changed(
            lambda: self.study.add_rater(name, address=address),
            lambda token: {"link": f"/r/{token}/"},
        )

    # Raters

    async def bare(self, request: http.Request) -> http.Response:
        raise http.HTTPPermanentRedirect(f"/r/{request.match_info['token']}/")

    async def rater(self, request: http.Request) -> http.Response:
        try:
            await self._rater(request)
        except http.HTTPNotFound:
            return self._start("This link is not complete, or belongs to another study.", 404)
        return _html(page(self.study.about["title"]))

    async def sheet(self, request: http.Request) -> http.Response:
        rater = await self._rater(request)

        def look() -> bytes:
            found = self.study.sheet(rater)
            if found["closed"]:
                return stream.dumps({**found, "results": self.study.results()})
            return stream.dumps(found)

        body = await asyncio.to_thread(look)
        return http.Response(body=body, content_type="application/json", charset="utf-8")

    async def picture(self, request: http.Request) -> http.Response:
        self.looks.check(await self._rater(request))
        name = request.match_info["name"]
        if not PICTURE.match(name):
            raise http.HTTPNotFound
        try:
            # Not as a file: its ETag and Last-Modified would be the same for a deck in whatever
            # pair it stands.
            data = await asyncio.to_thread((self.study.folder / "pictures" / name).read_bytes)
        except OSError:
            raise http.HTTPNotFound from None
        headers = {"Cache-Control": "private, max-age=86400, immutable"}
        return http.Response(body=data, content_type="image/webp", headers=headers)

    async def act(self, request: http.Request) -> http.Response:
        rater = await self._acting(request)
        what = cast(store.Action, request.match_info["what"])
        form = records.VoteRequest if what == "vote" else records.PairRequest
        said = validation.read(form, await request.read())
        ballot = said.ballot.model_dump() if isinstance(said, records.VoteRequest) else None
        return await self._changed(
            lambda: self.study.act(what, rater, said.pair, ballot, key=said.key),
            lambda done: {"is": done},
        )

    async def more(self, request: http.Request) -> http.Response:
        rater = await self._acting(request)
        return await self._changed(lambda: self.study.more(rater), lambda n: {"given": n})

    # The owner

    async def owner(self, request: http.Request) -> http.Response:
        try:
            self._owner_only(request)
        except http.HTTPNotFound:
            return self._start("This is not the owner's link.", 404)
        about = self.study.about
        return _html(page(about["title"], "owner", question=about["question"]))

    async def state(self, request: http.Request) -> http.Response:
        self._owner_only(request)
        return http.json_response(await asyncio.to_thread(progress, self.study))

    async def close(self, request: http.Request) -> http.Response:
        self._owner_only(request)
        close = request.match_info["what"] == "close"
        return await self._changed(
            self.study.close if close else self.study.open, lambda _: {"closed": self.study.closed}
        )

    async def invite(self, request: http.Request) -> http.Response:
        self._owner_only(request)
        said = validation.read(records.Invitation, await request.read())
        names = list(dict.fromkeys(map(raters.handle, said.names)))

        def invited() -> list[dict[str, str]]:
            with self.study.changing():
                tokens = [self.study.add_rater(name) for name in names]
            pairs = zip(names, tokens, strict=True)
            return [{"name": name, "link": f"/r/{token}/"} for name, token in pairs]

        return await self._changed(invited, lambda links: {"links": links})


def _html(text: str, status: int = 200) -> http.Response:
    return http.Response(text=text, content_type="text/html", status=status)


def application(
    study: store.Study, hosts: set[str] | None, public: str | None, handles: bool
) -> http.Application:
    """The aiohttp application that serves `study`. hosts, public: by which names it may be
    called (web.application); handles: whether people may choose a name themselves, or need a
    link from the owner."""
    policy = web.policy(**web.OWN, font_src="data:")
    app: http.Application = web.application(csp=policy, hosts=hosts, public=public, body=LARGEST)
    app.add_routes(VoteHandlers(study, handles=handles).routes())
    return app


# The pages


def page(title: str, kind: str = "rater", **shown: object) -> str:
    """The text of a page: `rater`, `start` or `owner`. shown: the `question`, on the start page a
    `message`, and whether it `handles` names that people choose."""
    known = {"message": "", "question": "", "handles": True, **shown}
    return pages.template("vote.html.j2").render(title=title, kind=kind, **known)


@functools.cache
def files() -> dict[str, tuple[str, str]]:
    """`{name: (content, MIME type)}` of what the pages load."""
    report = (pages.WEB / "report.css").read_text()
    colours = re.findall(r"^:root[^{]*\{[^}]*\}", report, re.M)
    style = [pages.faces() + "\n".join(colours), (pages.WEB / "vote.css").read_text()]
    return {
        "vote.css": ("\n".join(style), "text/css"),
        "vote.js": (pages.script("vote.js"), "text/javascript"),
    }


# The owner's page


class RaterProgress(Rater):
    """How far a rater is; gold: attention items that were passed, and seen; alike: whether several
    chose their names on this rater's network (raters.alike)."""

    seconds: float | None
    gold: list[int]
    alike: bool
    link: str


class StudyProgress(TypedDict):
    """What the owner's page shows. covered: how many pairs have `each` votes or more."""

    closed: bool
    pairs: int
    each: int
    votes: int
    covered: int
    raters: list[RaterProgress]
    results: list[store.PlainCounts]


def progress(study: store.Study) -> StudyProgress:
    """How far everybody is, how attentive, who may be one person, how many votes the pairs have,
    and the counts."""
    votes, people = list(study.votes()), study.raters()
    did = {one["rater"]: one for one in raters.summaries(votes)}
    alike = raters.alike(people)
    found: list[RaterProgress] = []
    for rater in people:
        mine = did.get(rater["id"])
        gold = mine["gold"] if mine else {"n": 0, "failed": 0}
        found.append(
            {
                **rater,
                "seconds": mine["seconds"] if mine else None,
                "gold": [gold["n"] - gold["failed"], gold["n"]],
                "alike": rater["id"] in alike,
                "link": f"/r/{study.token(rater['id'])}/",
            }
        )
    counted = [vote for vote in votes if vote["kind"] == "vote"]
    asked = [pair for pair, about in study.pairs.items() if about["kind"] == "vote"]
    covered = Counter(vote["pair"] for vote in counted)
    each = study.about["raters_per_pair"]
    return {
        "closed": study.closed,
        "pairs": len(asked),
        "each": each,
        "votes": len(votes),
        "covered": sum(covered[pair] >= each for pair in asked),
        "raters": found,
        "results": study.results(),
    }


def serve(
    folder: Path,
    *,
    host: str = "127.0.0.1",
    port: int | None = None,
    public: str | None = None,
    handles: bool = True,
) -> None:
    """Serve the study in `folder` until SIGTERM or Ctrl-C; while it lasts, `server.json` in it says
    where.

    port      by default where it listened the last time, because people keep their links
    public    the origin that people open where a proxy stands between
    handles   people may choose a name; else they need a link from the owner"""
    study = store.Study(folder)
    if study.imported:
        raise cli.BadData(
            f"{folder} has imported votes and no pictures; vote-tally counts it, "
            "and nobody can vote in it"
        )
    if port is None:
        port = int(study.recall("port") or 0)
    hosts = web.LOOPBACK if host in web.LOOPBACK else None

    @contextlib.asynccontextmanager
    async def make(url: str) -> AsyncIterator[http.Application]:
        study.remember("port", url.rpartition(":")[2])
        url = public or url
        owner = f"{url}/owner/{study.owner}/"
        with web.announced(study.folder / "server.json", {"url": url, "owner": owner}):
            where = f"people vote at {url}/" if handles else "by invitation"
            cli.say(f"{study.folder}: {len(study.pairs)} pairs; {where}")
            # A log keeps what stderr says, and whoever reads it would own the study.
            shown = owner if sys.stderr.isatty() else f"`owner` of {study.folder}/server.json"
            cli.say(f"the owner's page, which makes links and closes the study: {shown}")
            yield application(study, hosts, public, handles)
        study.close_file()

    web.run(make, host, port)
