"""The polling booth: the server behind the pages on which people compare decks.

A rater's link is all there is to a rater: `/r/TOKEN/` holds a signed name and everything below it.
There are no cookies, so that no other page can act for a rater, and several people can vote in one
browser. What goes out about a pair is its id, its request and its pictures.
"""

import asyncio
import contextlib
import functools
import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypedDict, TypeVar, cast

from aiohttp import web as http

from decksmith.core import cli, pages, stream, validation, web
from decksmith.people.study import duplicate_raters, import_votes, messages, store
from decksmith.people.study.duplicate_raters import Crowd
from decksmith.people.study.records import Vote
from decksmith.people.study.store import Rater

PICTURE = re.compile(r"[a-z2-7]{26}\.webp\Z")
TOGETHER = 256  # votes that share one wait for the disk
LARGEST = 1 << 16  # bytes of a request
FOR_EVER = "public, max-age=31536000, immutable"

Value = TypeVar("Value")


class _Waiting(Generic[Value]):
    """A change of the study that waits for the disk."""

    def __init__(self, call: Callable[[], Value]) -> None:
        self.call = call
        self.future: asyncio.Future[Value] = asyncio.get_running_loop().create_future()

    def end(self, value: object) -> None:
        """Give the asker a value, or raise it there where it is an exception."""
        if self.future.done():
            return
        if isinstance(value, Exception):
            self.future.set_exception(value)
        else:
            self.future.set_result(cast(Value, value))


class VoteWriter:
    """Votes that arrive while the disk is busy wait together and are stored by one transaction."""

    def __init__(self, study: store.Study) -> None:
        self.study = study
        self.waiting: asyncio.Queue[_Waiting[Any]] = asyncio.Queue()

    async def do(self, call: Callable[[], Value]) -> Value:
        """Do `call` in a durable transaction; returns its value or raises what it raised. Once
        begun it is finished, whoever hangs up."""
        self.waiting.put_nowait(one := _Waiting(call))
        return await one.future

    async def run(self) -> None:
        """Store what waits, until cancelled."""
        while True:
            batch = [await self.waiting.get()]
            while not self.waiting.empty() and len(batch) < TOGETHER:
                batch.append(self.waiting.get_nowait())
            try:
                calls = [one.call for one in batch]
                done = await asyncio.to_thread(self.study.together, calls)
            # A full disk, say: nothing of the batch is stored, and nobody is told that it was.
            except Exception as error:
                cli.say(f"votes could not be stored: {error}")
                again = "this could not be stored; it will be tried again"
                done = [cli.TryAgain(again) for _ in batch]
            for one, value in zip(batch, done, strict=True):
                one.end(value)


class VoteHandlers:
    """What the server answers. Every path of a rater or of the owner begins with their token."""

    def __init__(self, study: store.Study, *, handles: bool = True) -> None:
        self.study, self.handles = study, handles
        self.writer = VoteWriter(study)
        self.known: dict[str, str] = {}  # raters by token
        self.joins = web.Rate(60, 600)
        self.misses = web.Rate(60, 60)
        self.actions = web.Rate(240, 120)
        self.looks = web.Rate(3000, 300)

    def routes(self) -> list[http.AbstractRouteDef]:
        """Every path with what answers it."""
        return [
            http.get("/", self.front),
            http.get("/health", self.health),
            http.get("/{name:vote-[0-9a-f]{12}[.](?:css|js)}", self.file),
            http.post("/join", self.join),
            http.get("/r/{token}", self.bare),
            http.get("/r/{token}/", self.rater),
            http.get("/r/{token}/sheet", self.sheet),
            http.get("/r/{token}/p/{name}", self.picture),
            http.post("/r/{token}/vote", self.vote),
            http.post("/r/{token}/skip", self.skip),
            http.post("/r/{token}/undo", self.undo),
            http.post("/r/{token}/more", self.more),
            http.get("/owner/{token}/", self.owner),
            http.get("/owner/{token}/state", self.state),
            http.post("/owner/{token}/{what:close|open}", self.close),
            http.post("/owner/{token}/raters", self.invite),
        ]

    async def running(self, app: http.Application) -> AsyncIterator[None]:
        """While the application runs, votes are stored."""
        task = asyncio.create_task(self.writer.run())
        yield
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    # Who asks

    async def _rater(self, request: http.Request) -> str:
        """The id of the rater whose link this is. Raises HTTPNotFound."""
        token = request.match_info["token"]
        if token in self.known:
            return self.known[token]
        rater = await asyncio.to_thread(self.study.rater, token)
        if rater is None:
            self.misses.check(web.remote(request))
            raise http.HTTPNotFound(text="this link is not complete, or of another study")
        if len(self.known) < store.MOST_RATERS:
            self.known[token] = rater
        return rater

    async def _acting(self, request: http.Request) -> str:
        """The rater, who wants to change something. Raises HTTPNotFound and HTTPTooManyRequests."""
        rater = await self._rater(request)
        self.actions.check(rater)
        return rater

    def _owner_only(self, request: http.Request) -> None:
        if not self.study.owned(request.match_info["token"]):
            self.misses.check(web.remote(request))
            raise http.HTTPNotFound(text="this is not the owner's link")

    # How it is answered

    def _start(self, message: str = "", status: int = 200) -> http.Response:
        """The start page."""
        about = self.study.about
        text = page(
            about["title"],
            "start",
            message=message,
            question=about["question"],
            handles=self.handles and not self.study.closed,
        )
        return _html(text, status)

    async def _changed(
        self, call: Callable[[], Value], say: Callable[[Value], Mapping[str, object]]
    ) -> http.Response:
        """Do `call` durably and answer what `say` makes of its value; 409 and 423 say why not."""
        try:
            return http.json_response(say(await self.writer.do(call)))
        except store.Closed as error:
            return web.problem(423, str(error))
        except store.Conflict as error:
            return web.problem(409, str(error), stored=error.stored)

    # Everybody

    async def front(self, request: http.Request) -> http.Response:
        return self._start()

    async def health(self, request: http.Request) -> http.Response:
        return http.json_response({"status": "ok"})

    async def file(self, request: http.Request) -> http.Response:
        name = request.match_info["name"]
        if name not in files():
            raise http.HTTPNotFound
        body, mime = files()[name]
        headers = {"Cache-Control": FOR_EVER}
        return http.Response(body=body, content_type=mime, charset="utf-8", headers=headers)

    async def join(self, request: http.Request) -> http.Response:
        name = validation.read(messages.Join, await request.read()).name
        if not self.handles:
            raise http.HTTPForbidden(text="this study is by invitation: its owner gives you a link")
        address = web.remote(request)
        self.joins.check(address)
        try:
            return await self._changed(
                lambda: self.study.add_rater(name, source="handle", fresh=True, address=address),
                lambda token: {"link": f"/r/{token}/"},
            )
        except store.TooSoon as error:
            raise http.HTTPTooManyRequests(
                text=str(error), headers={"Retry-After": str(int(error.seconds) + 1)}
            ) from None

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

    async def vote(self, request: http.Request) -> http.Response:
        rater = await self._acting(request)
        said = validation.read(messages.VoteRequest, await request.read())
        ballot = said.ballot.model_dump()
        return await self._changed(
            lambda: self.study.vote(rater, said.pair, ballot, key=said.key), _is
        )

    async def skip(self, request: http.Request) -> http.Response:
        rater = await self._acting(request)
        said = validation.read(messages.PairRequest, await request.read())
        return await self._changed(lambda: self.study.skip(rater, said.pair, key=said.key), _is)

    async def undo(self, request: http.Request) -> http.Response:
        rater = await self._acting(request)
        said = validation.read(messages.PairRequest, await request.read())
        return await self._changed(lambda: self.study.undo(rater, said.pair, key=said.key), _is)

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
        await self.writer.do(self.study.close if close else self.study.open)
        return http.json_response({"closed": self.study.closed})

    async def invite(self, request: http.Request) -> http.Response:
        self._owner_only(request)
        said = validation.read(messages.Invitation, await request.read())
        names = list(dict.fromkeys(map(store.handle, said.names)))

        def links(tokens: list[str]) -> dict[str, list[dict[str, str]]]:
            pairs = zip(names, tokens, strict=True)
            return {"links": [{"name": name, "link": f"/r/{token}/"} for name, token in pairs]}

        return await self._changed(lambda: [self.study.add_rater(name) for name in names], links)


def _html(text: str, status: int = 200) -> http.Response:
    return http.Response(text=text, content_type="text/html", status=status)


def _is(what: str) -> dict[str, str]:
    return {"is": what}


def application(
    study: store.Study,
    *,
    hosts: set[str] | None = None,
    public: str | None = None,
    handles: bool = True,
) -> http.Application:
    """The aiohttp application that serves `study`. hosts, public: by which names it may be
    called (web.application); handles: whether people may choose a name themselves, or need a
    link from the owner."""
    app: http.Application = web.application(
        csp=web.policy(
            script_src="'self'",
            style_src="'self'",
            img_src="'self' data:",
            font_src="data:",
            connect_src="'self'",
        ),
        hosts=hosts,
        public=public,
        body=LARGEST,
    )
    handlers = VoteHandlers(study, handles=handles)
    app.add_routes(handlers.routes())
    app.cleanup_ctx.append(handlers.running)
    return app


# The pages


def page(
    title: str,
    kind: str = "rater",
    *,
    message: str = "",
    question: str = "",
    handles: bool = True,
) -> str:
    """The text of a page: `rater`, `start` or `owner`. message: stands on the start page; handles:
    the start page offers to choose a name."""
    names = {name.rpartition(".")[2]: name for name in files()}
    template = pages.template("vote.html.j2")
    return str(
        template.render(
            title=title,
            kind=kind,
            message=message,
            question=question,
            handles=handles,
            names=names,
        )
    )


@functools.cache
def files() -> dict[str, tuple[bytes, str]]:
    """`{name: (content, MIME type)}` of what the pages load. A name changes with its content."""
    report = (pages.WEB / "report.css").read_text()
    colours = re.findall(r"^:root[^{]*\{[^}]*\}", report, re.M)
    style = [pages.faces() + "\n".join(colours), (pages.WEB / "vote.css").read_text()]
    found = {}
    for kind, text, mime in (
        ("css", "\n".join(style), "text/css"),
        ("js", pages.script("vote.js"), "text/javascript"),
    ):
        digest = hashlib.sha256(text.encode()).hexdigest()[:12]
        found[f"vote-{digest}.{kind}"] = (text.encode(), mime)
    return found


# The owner's page


class RaterProgress(Rater):
    """How far a rater is; gold: attention items that were passed, and seen."""

    seconds: float | None
    gold: list[int]
    link: str


class CrowdShown(Crowd):
    """A crowd for the owner. origin: where it came from, in words; large: it cast many votes."""

    origin: str
    names: list[str]
    large: bool


class CrowdsShown(TypedDict):
    """Who came together, for the owner. rule: in words."""

    chose: int
    addresses: int
    people: int
    warnings: list[str]
    rule: str
    found: list[CrowdShown]


class StudyProgress(TypedDict):
    """What the owner's page shows. covered: how many pairs have 0, 1, .. `each` votes or more."""

    title: str
    closed: bool
    pairs: int
    each: int
    votes: int
    covered: list[int]
    raters: list[RaterProgress]
    crowds: CrowdsShown
    results: list[store.PlainCounts]


def progress(study: store.Study) -> StudyProgress:
    """How far everybody is, how attentive, who came together, how many votes the pairs have, and
    the counts."""
    by: dict[str, list[Vote]] = defaultdict(list)
    for vote in study.votes():
        by[vote["rater"]].append(vote)
    counted = [vote for votes in by.values() for vote in votes if vote["kind"] == "vote"]
    people = study.raters()
    asked = [pair for pair, about in study.pairs.items() if about["kind"] == "vote"]
    covered = Counter(vote["pair"] for vote in counted)
    each = study.about["raters_per_pair"]
    enough = Counter(min(covered[pair], each) for pair in asked)
    return {
        "title": study.about["title"],
        "closed": study.closed,
        "pairs": len(asked),
        "each": each,
        "votes": sum(map(len, by.values())),
        "covered": [enough[n] for n in range(each + 1)],
        "raters": [_person(study, rater, by[rater["id"]]) for rater in people],
        "crowds": _crowds(people, counted),
        "results": study.results(),
    }


def _person(study: store.Study, rater: Rater, votes: Sequence[Vote]) -> RaterProgress:
    times = sorted(vote["seconds"] or 0 for vote in votes)
    gold = [vote for vote in votes if vote["kind"] == "gold"]
    return {
        **rater,
        "seconds": times[len(times) // 2] if times else None,
        "gold": [sum(vote["choice"] == vote["expect"] for vote in gold), len(gold)],
        "link": f"/r/{study.token(rater['id'])}/",
    }


def _crowds(people: Sequence[Rater], votes: Sequence[Vote]) -> CrowdsShown:
    crowds = duplicate_raters.find(people, votes)
    names = {rater["id"]: rater["name"] for rater in people}
    found: list[CrowdShown] = [
        {
            **one,
            "origin": duplicate_raters.origin(one),
            "names": [names[rater] for rater in one["raters"]],
            "large": duplicate_raters.large(one["share"]),
        }
        for one in crowds["found"]
    ]
    return {
        "chose": crowds["chose"],
        "addresses": crowds["addresses"],
        "people": crowds["people"],
        "warnings": crowds["warnings"],
        "rule": duplicate_raters.rule(),
        "found": found,
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
    import_votes.refuse_voting(study)
    if port is None:
        port = int(study.recall("port") or 0)
    local = host in web.LOOPBACK

    @contextlib.asynccontextmanager
    async def make(url: str) -> AsyncIterator[http.Application]:
        study.remember("port", url.rpartition(":")[2])
        url = public or url
        owner = f"{url}/owner/{study.owner}/"
        with web.announced(study.folder / "server.json", {"url": url, "owner": owner}):
            where = f"people vote at {url}/" if handles else "by invitation"
            cli.say(f"{study.folder}: {len(study.pairs)} pairs; {where}")
            cli.say(f"the owner's page, which makes links and closes the study: {owner}")
            hosts = web.LOOPBACK if local else None
            yield application(study, hosts=hosts, public=public, handles=handles)
        study.close_file()

    web.run(make, host, port)
