"""The demo's two web servers: the page and what it asks for, and in an origin of their own the
built decks.

Model output reaches the page as text and as pictures; as a page it runs only under the second
origin, in a frame that may do nothing else.
"""

import asyncio
import contextlib
import hashlib
import re
import secrets
from collections import defaultdict
from collections.abc import AsyncIterator, Collection
from pathlib import Path
from typing import cast

from aiohttp import web as http

from decksmith.core import cli, pages, stream, validation, web
from decksmith.measure.decks import sources
from decksmith.measure.decks.parser import THEMES
from decksmith.measure.decks.templates import Template
from decksmith.models.registry import Model
from decksmith.people.demo import ask as forms
from decksmith.people.demo.ask import TEXT, AskedMaterial, DeckAsk, DeckWish, Event, version_id
from decksmith.people.demo.studio import ASK_ID, EVERYBODY, Studio, references

BODY = 4 * TEXT + 4096  # bytes of a body of JSON
STREAMS = 12  # open event streams of one visitor
ALIVE = 15  # seconds between two signs of life in an event stream
COOKIE, MONTH = "decksmith_demo", 30 * 86400
NOT_YOURS = "there is no such deck of yours"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".png": "image/png",
    ".woff": "font/woff",
    ".woff2": "font/woff2",
    ".svg": "image/svg+xml",
    ".webp": "image/webp",
    ".json": "application/json",
}
DOWNLOADS = {
    "md": "text/markdown",
    "pdf": "application/pdf",
    "pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
}
# What the page loads, by its name below assets/web.
ASSETS = ("demo.css", "element.js", "demo.js", "fonts/inter-400.woff", "fonts/inter-600.woff")
GALLERY = pages.WEB / "references"  # the pictures of `make gallery`
FOR_A_DAY = "private, max-age=86400, immutable"
_PICTURE = re.compile(
    rf"({ASK_ID})(?:\.([01])\.(\d+)/slides/(\d+)\.png|/early/([01])/(\d+)/slides/(\d+)\.png)\Z"
)
_SITE = re.compile(rf"(?:_runtime|{ASK_ID}\.[01]\.\d+/build)/[\w./@-]+\Z")


# The decks


def beside(request: http.Request, place: str | int) -> str:
    """The other origin of this server: the one that a proxy gives it, else its port under the name
    by which the browser called."""
    if isinstance(place, str):
        return place
    name = request.url.host or "localhost"
    if not re.fullmatch(r"[\w.:-]+", name):
        return "'none'"
    return f"http://{f'[{name}]' if ':' in name else name}:{place}"


# A deck is only ever shown in a frame, because only the page around a frame can forbid that it
# goes elsewhere (CSP frame-src). Whoever opens its address by itself gets this page around it.
_ALONE = (pages.WEB / "alone.html").read_text()


def _policy_alone() -> str:
    hashes = {
        f"{tag}_src": f"'sha256-{pages.sha256(text)}'"
        for tag, text in re.findall("<(style|script)>(.*?)</", _ALONE, re.DOTALL)
    }
    return web.policy(frame_src="'self'", **hashes)


def decks(
    studio: Studio, hosts: Collection[str] | None, main: str | int, public: str | None = None
) -> http.Application:
    """The second origin: built decks and nothing else, by names that cannot be guessed. Even on
    its own such a page is sandboxed.

    hosts: the names by which it may be called, None for any. main: origin or port of the page.
    public: as of web.application."""
    app = web.application(hosts=hosts, public=public)
    alone = _policy_alone()

    async def file(request: http.Request) -> http.StreamResponse:
        place = _deck_file(studio, request.match_info["path"])
        if place is None:
            raise http.HTTPNotFound(text="there is no such deck")
        framed = "framed" in request.query and request.headers.get("Sec-Fetch-Dest") != "document"
        if place.suffix == ".html" and not framed:
            return http.Response(
                text=_ALONE, content_type="text/html", headers={"Content-Security-Policy": alone}
            )
        ancestors = f"'self' {beside(request, main)}"
        return http.FileResponse(
            place,
            headers={
                "Content-Type": TYPES[place.suffix],
                "Content-Security-Policy": f"sandbox allow-scripts; frame-ancestors {ancestors}",
                "Access-Control-Allow-Origin": "*",
                "Cross-Origin-Resource-Policy": "cross-origin",
                "Cache-Control": FOR_A_DAY,
            },
        )

    app.router.add_get("/{path:.+}", file)
    return app


def _deck_file(studio: Studio, path: str) -> Path | None:
    """The file of a built deck that a path names; None for anything else, wherever links lead."""
    if not _SITE.match(path) or ".." in path:
        return None
    place = (studio.folder / path).resolve()
    inside = place.is_relative_to(studio.folder.resolve())
    return place if inside and place.is_file() and place.suffix in TYPES else None


# The page


class DemoHandlers:
    """The handlers of the first origin. `decks`: origin or port of the second."""

    fresh = http.RequestKey("fresh", str)  # the cookie that an answer sets

    def __init__(self, studio: Studio, decks: str | int, public: str | None = None) -> None:
        self.studio, self.decks, self.public = studio, decks, public
        self.template = pages.template("demo.html.j2")
        self.themes = sorted(THEMES)
        # At most so many in so many seconds, of one visitor; `everybody` of one address.
        self.asking, self.everybody = web.Rate(20, 600), web.Rate(200, 600)
        self.editing, self.making = web.Rate(60, 600), web.Rate(40, 600)
        self.looking = web.Rate(600, 60)
        self.made: dict[str, None] = {}  # visitors of cookies that were given out, the oldest first
        self.streams: defaultdict[str | None, int] = defaultdict(int)  # open ones, by visitor

    def routes(self) -> list[http.RouteDef]:
        ask, side = f"/asks/{{ask:{ASK_ID}}}", "{side:[01]}"
        return [
            http.get("/", self.page),
            *map(_asset, [*ASSETS, *(f"references/{one.name}" for one in GALLERY.iterdir())]),
            http.get("/asks", self.history),
            http.post("/asks", self.ask),
            http.get(f"{ask}/events", self.events),
            http.post(f"{ask}/{side}/stop", self.stop),
            http.post(f"{ask}/{side}/text", self.edit),
            http.post(f"{ask}/{side}/change", self.change),
            http.post("/material", self.material),
            http.get("/references", self.references),
            http.post(r"/references/{name:[\w-]+}", self.reference),
            http.delete(ask, self.forget),
            http.get(r"/pictures/{path:.+}", self.picture),
            http.get(
                rf"{ask}/{side}/{{version:\d{{1,3}}}}/deck.{{kind:md|pdf|pptx}}", self.download
            ),
        ]

    # Who asks, and what for

    def _visitor(self, request: http.Request) -> str | None:
        """Who asks: a hash of the cookie; None for one that we did not make. Those made before a restart
        are known by what they asked for."""
        who = _hashed(request.cookies.get(COOKIE, ""))
        is_ours = who in self.made or who in self.studio.owner.values()
        return who if is_ours else None

    def _new_visitor(self, request: http.Request) -> str:
        """Who asks; whoever has no cookie of ours gets one with the answer."""
        if known := self._visitor(request):
            return known
        request[self.fresh] = secrets.token_hex(32)
        self.made[who := _hashed(request[self.fresh])] = None
        if len(self.made) > web.Rate.KEYS:
            del self.made[next(iter(self.made))]
        return who

    def _allow(self, request: http.Request, rate: web.Rate, visitor: str) -> None:
        """Raises HTTPTooManyRequests where this visitor, or this address, asks too often."""
        rate.check(visitor)
        self.everybody.check(web.remote(request))

    def _ask(self, request: http.Request) -> DeckAsk:
        """The ask that a path names. Raises HTTPNotFound, HTTPTooManyRequests."""
        visitor = self._visitor(request)
        self.looking.check(visitor or web.remote(request))
        return self.studio.find(visitor, request.match_info["ask"])

    def _own(self, request: http.Request) -> DeckAsk:
        """`_ask`, of one that this visitor may change: everybody's is nobody's to change."""
        ask = self._ask(request)
        if ask.asked["visitor"] == EVERYBODY:
            why = "a reference deck is everybody's; download it to change it"
            raise http.HTTPForbidden(text=why)
        return ask

    def _side(self, request: http.Request, ask: DeckAsk) -> int:
        number = int(request.match_info["side"])
        if number >= len(ask.asked["models"]):
            raise http.HTTPNotFound(text=NOT_YOURS)
        return number

    def _answer(self, request: http.Request, value: object, status: int = 200) -> http.Response:
        response = http.json_response(value, status=status)
        if self.fresh in request:
            response.set_cookie(
                COOKIE,
                request[self.fresh],
                max_age=MONTH,
                httponly=True,
                samesite="Strict",
                secure=(self.public or "").startswith("https:"),
                path="/",
            )
        return response

    # Handlers

    async def page(self, request: http.Request) -> http.Response:
        frames = beside(request, self.decks)
        facts = {
            "models": [
                {"name": name, "label": model.label or name, "color": model.color}
                for name, model in self.studio.models.items()
            ],
            "themes": self.themes,
            "decks": frames,
            "limits": forms.LIMITS,
            "documents": sources.KINDS,
        }
        policy = web.policy(**web.OWN, font_src="'self'", frame_src=frames)
        return http.Response(
            text=self.template.render(data=pages.data(facts), limits=forms.LIMITS),
            content_type="text/html",
            headers={"Content-Security-Policy": policy},
        )

    async def history(self, request: http.Request) -> http.Response:
        self.looking.check(web.remote(request))
        return self._answer(request, self.studio.history(self._new_visitor(request)))

    async def ask(self, request: http.Request) -> http.Response:
        who = self._new_visitor(request)
        known = {"models": list(self.studio.models), "theme": self.themes}
        asked = validation.read(forms.AskRequest, await _body(request), known)
        self._allow(request, self.asking, who)
        wanted = asked.model_dump(exclude={"models"}, exclude_none=True) | {"slides": asked.slides}
        ask = self.studio.begin(who, cast(DeckWish, wanted), asked.models)
        return self._answer(request, {"id": ask.id}, 201)

    async def events(self, request: http.Request) -> http.StreamResponse:
        """The journal and what is added to it: each message is a JSON array of events, its id the
        number of the last one."""
        ask, who = self._ask(request), self._visitor(request)
        if self.streams[who] >= STREAMS:
            raise http.HTTPTooManyRequests(text="too many windows of yours are open")
        last = request.headers.get("Last-Event-ID") or request.query.get("after", "")
        at = min(int(last) + 1, len(ask.events)) if re.fullmatch(r"\d{1,9}", last) else 0
        response = http.StreamResponse(headers={"Content-Type": "text/event-stream", **web.HEADERS})
        self.streams[who] += 1
        try:
            with contextlib.suppress(ConnectionError):
                await response.prepare(request)
                await _follow(ask, at, response)
        finally:
            self.streams[who] -= 1
            if not self.streams[who]:
                del self.streams[who]
        return response

    async def material(self, request: http.Request) -> http.Response:
        """What of a document is used: its bytes are the body, its name the query's `name`."""
        self._allow(request, self.making, self._new_visitor(request))
        name = (
            forms.line(forms.visible(request.query.get("name", ""))[-forms.LIMITS["words"] :])
            or "document"
        )
        try:
            found = await read_document(name, await request.read())
        except sources.NotRead as error:
            raise http.HTTPUnprocessableEntity(text=str(error)) from None
        return self._answer(request, {**found, "text": forms.visible(found["text"])})

    async def references(self, request: http.Request) -> http.Response:
        """The reference decks, each with the name of its picture."""
        self.looking.check(web.remote(request))
        found = []
        for name, deck in references().items():
            facts = {"title": deck.title, "theme": deck.theme, "slides": deck.slides}
            found.append({"id": name, "picture": f"{name}.{deck.ask[:12]}.webp", **facts})
        self._new_visitor(request)
        return self._answer(request, found)

    async def reference(self, request: http.Request) -> http.Response:
        self._new_visitor(request)
        self.looking.check(web.remote(request))
        return self._answer(request, {"id": self.studio.reference(request.match_info["name"]).id})

    async def change(self, request: http.Request) -> http.Response:
        ask = self._own(request)
        side = self._side(request, ask)
        wanted = validation.read(forms.ChangeRequest, await _body(request))
        self._allow(request, self.asking, ask.asked["visitor"])
        self.studio.change(ask, side, wanted.slide, wanted.wish)
        return http.json_response({}, status=202)

    async def stop(self, request: http.Request) -> http.Response:
        ask = self._own(request)
        await self.studio.stop(ask, self._side(request, ask))
        return http.json_response({})

    async def edit(self, request: http.Request) -> http.Response:
        ask = self._own(request)
        side = self._side(request, ask)
        text = validation.read(forms.TextRequest, await _body(request)).text.replace("\r\n", "\n")
        if not text.strip():
            raise http.HTTPBadRequest(text="The deck is empty.")
        if len(text) > TEXT:
            said = f"The deck has {len(text)} characters; at most {TEXT} are rendered."
            raise http.HTTPRequestEntityTooLarge(TEXT, len(text), text=said)
        self.editing.check(self._visitor(request))
        self.studio.edit(ask, side, text)
        return http.json_response({}, status=202)

    async def forget(self, request: http.Request) -> http.Response:
        await self.studio.forget(self._own(request))
        return http.json_response({})

    async def picture(self, request: http.Request) -> http.FileResponse:
        path, visitor = request.match_info["path"], self._visitor(request)
        found = _PICTURE.match(path)
        if not found or not self.studio.may_see(visitor, found[1]):
            raise http.HTTPNotFound(text="there is no such picture of yours")
        place = self.studio.folder / path
        if not place.is_file():
            raise http.HTTPNotFound(text="this picture is no longer kept")
        return http.FileResponse(place, headers={"Cache-Control": FOR_A_DAY})

    async def download(self, request: http.Request) -> http.FileResponse:
        ask, kind = self._ask(request), request.match_info["kind"]
        side, version = self._side(request, ask), int(request.match_info["version"])
        place = self.studio.folder / version_id(ask.id, side, version)
        at = ask.sides()[side]
        if not (place / "deck.md").is_file():
            old = version < at["version"]
            raise http.HTTPNotFound(
                text="this version is no longer kept" if old else "there is nothing to download yet"
            )
        self.making.check(self._visitor(request))
        path = place / "deck.md"
        if kind != "md":
            path = await self.studio.writer.made(ask, side, version, kind)
        disposition = f'attachment; filename="{_file_name(at["title"] or "")}.{kind}"'
        headers = {"Content-Type": DOWNLOADS[kind], "Content-Disposition": disposition}
        return http.FileResponse(path, headers=headers)


async def read_document(name: str, data: bytes) -> AskedMaterial:
    """What of a document is used: at most BUDGET characters, which a small model can read beside
    the request. Raises sources.NotRead."""
    document = await asyncio.to_thread(sources.read, name, data)
    text = "\n\n".join(document.pages).strip()
    used = sources.beginning(text, sources.BUDGET)
    cut, read = None, len(document.pages)
    unread = f" on the first {read} of {document.of} pages" if read < document.of else ""
    if unread or len(used) < len(text):
        cut = (
            f"The first {len(used):,} of {len(text):,} characters{unread} are used; "
            "the rest was left out."
        )
    return {"name": document.name, "text": used, "cut": cut}


async def _body(request: http.Request) -> bytes:
    """A body of JSON. Only a document may be larger. Raises HTTPRequestEntityTooLarge."""
    data = await request.read()
    if len(data) > BODY:
        raise http.HTTPRequestEntityTooLarge(max_size=BODY, actual_size=len(data))
    return data


def _asset(name: str) -> http.RouteDef:
    headers = {"Cache-Control": "no-cache", "Content-Type": TYPES[Path(name).suffix]}

    async def send(request: http.Request) -> http.FileResponse:
        return http.FileResponse(pages.WEB / name, headers=headers)

    return http.get(f"/{Path(name).name}", send)


async def _follow(ask: DeckAsk, at: int, response: http.StreamResponse) -> None:
    """Send the events of an ask from number `at`, and what comes, until nothing more will come by
    itself."""
    while True:
        changed = ask.changed  # before the look, so that nothing that comes meanwhile is missed
        news = ask.events[at:]
        for start in range(0, len(news), 2000):
            await response.write(_message(news[start : start + 2000]))
        at += len(news)
        if at < len(ask.events):
            continue
        if ask.resting():
            await response.write(b"event: rest\ndata: {}\n\n")
            return
        try:
            await asyncio.wait_for(changed.wait(), ALIVE)
        except TimeoutError:
            await response.write(b": still here\n\n")


def _message(events: list[Event]) -> bytes:
    """Some events as one message of an event stream; who the visitor is stays here."""
    data = [{key: value for key, value in event.items() if key != "visitor"} for event in events]
    return b"id: %d\ndata: %s\n\n" % (events[-1]["n"], stream.dumps(data))


def _hashed(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()[:24]


def _file_name(title: str) -> str:
    """A title as the name of a file, without its ending."""
    name = re.sub(r"[^\w-]+", "-", title).strip("-")[:60]
    return name.encode("ascii", "ignore").decode().strip("-") or "deck"


def application(
    studio: Studio, hosts: Collection[str] | None, decks: str | int, public: str | None = None
) -> http.Application:
    """The first origin: the page, and what it asks for. Its arguments as those of `decks`."""
    app = web.application(hosts=hosts, public=public, body=sources.LARGEST + 4096)
    app.router.add_routes(DemoHandlers(studio, decks, public).routes())

    async def own(request: http.Request, response: http.StreamResponse) -> None:
        response.headers.setdefault("Cross-Origin-Resource-Policy", "same-origin")

    app.on_response_prepare.append(own)
    return app


def serve(
    folder: Path,
    models: dict[str, Model],
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    public: tuple[str | None, str | None] = (None, None),
    budget: float | None = None,
    template: Template | None = None,
) -> None:
    """Serve the demo until SIGTERM or Ctrl-C, the page on `port` and the decks on the next one.

    models, budget and template are Studio's. public: the origins that a reverse proxy gives
    the two. While it runs, `<folder>/address.json` has {"url", "decks", "pid"}. Raises cli.Missing
    for ports in use, and where there is no renderer."""
    folder = Path(folder)
    public_page, public_decks = public
    hosts = web.LOOPBACK if host in web.LOOPBACK else None

    @contextlib.asynccontextmanager
    async def make(url: str) -> AsyncIterator[http.Application]:
        listening = web.listen(host, port + 1 if port else 0)
        start, _, page_port = url.rpartition(":")
        decks_port = listening.getsockname()[1]
        studio = Studio(folder, models, budget=budget, template=template)
        second = decks(studio, hosts, public_page or int(page_port), public_decks)
        async with web.serving(second, listening):
            warming = asyncio.create_task(studio.writer.warm())
            try:
                said = public_page or url
                facts = {"url": said, "decks": public_decks or f"{start}:{decks_port}"}
                with web.announced(folder / "address.json", facts):
                    cli.say(f"{said} makes decks with {' and '.join(models)}; Ctrl-C ends it")
                    yield application(studio, hosts, public_decks or decks_port, public_page)
            finally:
                warming.cancel()
                await asyncio.gather(warming, return_exceptions=True)
                await studio.close()

    web.run(make, host, port)
