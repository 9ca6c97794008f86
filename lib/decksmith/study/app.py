"""The polling booth: the pages on which people compare decks, and the server behind them.

A rater's link is all there is to a rater: `/r/TOKEN/` holds a signed name and everything below it. There are no cookies, so that no other
page can act for a rater, and several people can vote in one browser. What goes out about a pair is its id, its request and its pictures.
"""

import asyncio
import contextlib
import functools
import hashlib
import re
from collections import defaultdict

from aiohttp import web as http

from decksmith.core import cli, pages, stream, web
from decksmith.study import outside, store

PICTURE = re.compile(r"[a-z2-7]{26}\.webp\Z")
TOGETHER = 256  # votes that share one wait for the disk


# The pages


def page(title, kind="rater", *, inline=None, message="", question="", handles=True):
    """The text of a page: `rater`, `start` or `owner`; `message` stands on the start page.

    inline   None for a page that a server gives. Else {"script": text that runs before vote.js and sets window.booth, "data": what it
             finds as JSON in the element #data}: then the page is one file that needs nothing else, under a policy of hashes."""
    files = _files()
    given = {
        "title": title,
        "kind": kind,
        "message": message,
        "question": question,
        "handles": handles,
        "inline": None,
        "names": {name.rpartition(".")[2]: name for name in files},
    }
    if inline:
        script, style = inline.get("script", "") + "\n" + pages.script("vote.js"), _style()
        given["inline"] = {
            "policy": pages.policy(script, style, "data:"),
            "script": pages.as_is(script),
            "style": pages.as_is(style),
            "data": pages.data(inline.get("data")),
        }
    return pages.template("vote.html.j2").render(given)


@functools.cache
def _style():
    """vote.css with the fonts in it and the colours of the report."""
    colours = re.findall(r"^:root[^{]*\{[^}]*\}", (pages.WEB / "report.css").read_text(), re.M)
    return pages.faces() + "\n".join(colours) + "\n" + (pages.WEB / "vote.css").read_text()


@functools.cache
def _files():
    """What the pages load, by names that change with the content."""
    return {
        f"vote-{hashlib.sha256(text.encode()).hexdigest()[:12]}.{kind}": (text.encode(), mime)
        for kind, text, mime in (
            ("css", _style(), "text/css"),
            ("js", pages.script("vote.js"), "text/javascript"),
        )
    }


# The server


class _Writer:
    """Votes that arrive while the disk is busy wait together and are stored by one transaction."""

    def __init__(self, study):
        self.study, self.waiting = study, asyncio.Queue()

    async def do(self, call):
        """Do `call` in a durable transaction; returns its value or raises what it raised. Once begun it is finished, whoever hangs up."""
        future = asyncio.get_running_loop().create_future()
        self.waiting.put_nowait((call, future))
        return await future

    async def run(self):
        while True:
            batch = [await self.waiting.get()]
            while not self.waiting.empty() and len(batch) < TOGETHER:
                batch.append(self.waiting.get_nowait())
            try:
                done = await asyncio.to_thread(self.study.together, [call for call, _ in batch])
            except Exception as error:  # a full disk, say: nothing of the batch is stored, and nobody is told that it was
                cli.say(f"votes could not be stored: {error}")
                done = [cli.TryAgain("this could not be stored; it will be tried again")] * len(
                    batch
                )
            for (_, future), value in zip(batch, done, strict=True):
                if not future.done():
                    future.set_exception(value) if isinstance(
                        value, Exception
                    ) else future.set_result(value)


def application(study, *, hosts=None, public=None, handles=True):
    """The aiohttp application that serves `study`. hosts, public: by which names it may be called (web.application); handles: whether people
    may choose a name themselves, or need a link from the owner."""
    app = web.application(
        csp=web.policy(
            script_src="'self'",
            style_src="'self'",
            img_src="'self' data:",
            font_src="data:",
            connect_src="'self'",
        ),
        hosts=hosts,
        public=public,
        body=1 << 16,
    )
    writer, known = _Writer(study), {}
    joins, misses, actions, looks = (
        web.Rate(60, 600),
        web.Rate(60, 60),
        web.Rate(240, 120),
        web.Rate(3000, 300),
    )
    routes = http.RouteTableDef()

    def html(text, status=200):
        return http.Response(text=text, content_type="text/html", status=status)

    def start(message="", status=200):
        about = study.about
        return html(
            page(
                about["title"],
                "start",
                message=message,
                question=about["question"],
                handles=handles and not study.closed,
            ),
            status,
        )

    async def rater_of(request):
        token = request.match_info["token"]
        if token not in known:
            if (rater := await asyncio.to_thread(study.rater, token)) is None:
                misses.check(web.remote(request))
                raise http.HTTPNotFound(text="this link is not complete, or of another study")
            if len(known) < store.MOST_RATERS:
                known[token] = rater
            return rater
        return known[token]

    def owned(request):
        if not study.owned(request.match_info["token"]):
            misses.check(web.remote(request))
            raise http.HTTPNotFound(text="this is not the owner's link")

    async def changed(call):
        try:
            return await writer.do(call)
        except store.Closed as error:
            return web.problem(423, str(error))
        except store.Conflict as error:
            return web.problem(409, str(error), stored=error.stored)

    def said(value):
        return value if isinstance(value, http.Response) else http.json_response(value)

    @routes.get("/")
    async def front(request):
        return start()

    @routes.get("/health")
    async def health(request):
        return http.json_response({"status": "ok"})

    @routes.get("/{name:vote-[0-9a-f]{12}[.](?:css|js)}")
    async def file(request):
        body, mime = _files().get(request.match_info["name"]) or (None, None)
        if body is None:
            raise http.HTTPNotFound
        return http.Response(
            body=body,
            content_type=mime,
            charset="utf-8",
            headers={"Cache-Control": "public, max-age=31536000, immutable"},
        )

    @routes.post("/join")
    async def join(request):
        body = await web.asked(request, name=str)
        if not handles:
            raise http.HTTPForbidden(text="this study is by invitation: its owner gives you a link")
        joins.check(web.remote(request))
        address = web.remote(request)
        try:
            token = await changed(
                lambda: study.add_rater(
                    body.get("name"), source="handle", fresh=True, address=address
                )
            )
        except store.TooSoon as error:
            raise http.HTTPTooManyRequests(
                text=str(error), headers={"Retry-After": str(int(error.seconds) + 1)}
            ) from None
        return (
            token
            if isinstance(token, http.Response)
            else http.json_response({"link": f"/r/{token}/"})
        )

    @routes.get("/r/{token}")
    async def bare(request):
        raise http.HTTPPermanentRedirect(f"/r/{request.match_info['token']}/")

    @routes.get("/r/{token}/")
    async def rater(request):
        try:
            await rater_of(request)
        except http.HTTPNotFound:
            return start("This link is not complete, or belongs to another study.", 404)
        return html(page(study.about["title"]))

    @routes.get("/r/{token}/sheet")
    async def sheet(request):
        rater = await rater_of(request)

        def look():
            found = study.sheet(rater)
            return stream.dumps({**found, "results": study.results()} if found["closed"] else found)

        return http.Response(
            body=await asyncio.to_thread(look), content_type="application/json", charset="utf-8"
        )

    @routes.get("/r/{token}/p/{name}")
    async def picture(request):
        looks.check(await rater_of(request))
        name = request.match_info["name"]
        if not PICTURE.match(name):
            raise http.HTTPNotFound
        try:
            # Not as a file: its ETag and Last-Modified would be the same for a deck in whatever pair it stands.
            data = await asyncio.to_thread((study.folder / "pictures" / name).read_bytes)
        except OSError:
            raise http.HTTPNotFound from None
        return http.Response(
            body=data,
            content_type="image/webp",
            headers={"Cache-Control": "private, max-age=86400, immutable"},
        )

    @routes.post("/r/{token}/vote")
    async def vote(request):
        rater = await rater_of(request)
        actions.check(rater)
        body = await web.asked(request, pair=str, key=str, ballot=dict)
        return said(
            await changed(
                lambda: {
                    "is": study.vote(
                        rater, body.get("pair"), body.get("ballot"), key=body.get("key")
                    )
                }
            )
        )

    @routes.post("/r/{token}/skip")
    async def skip(request):
        rater = await rater_of(request)
        actions.check(rater)
        body = await web.asked(request, pair=str, key=str)
        return said(
            await changed(lambda: {"is": study.skip(rater, body.get("pair"), key=body.get("key"))})
        )

    @routes.post("/r/{token}/undo")
    async def undo(request):
        rater = await rater_of(request)
        actions.check(rater)
        body = await web.asked(request, pair=str, key=str)
        if "pair" not in body:
            raise http.HTTPBadRequest(
                text="pair: which one?"
            )  # a last one would be another when the request comes twice
        return said(
            await changed(lambda: {"is": study.undo(rater, body["pair"], key=body.get("key"))})
        )

    @routes.post("/r/{token}/more")
    async def more(request):
        rater = await rater_of(request)
        actions.check(rater)
        return said(await changed(lambda: {"given": study.more(rater)}))

    @routes.get("/owner/{token}/")
    async def owner(request):
        try:
            owned(request)
        except http.HTTPNotFound:
            return start("This is not the owner's link.", 404)
        return html(page(study.about["title"], "owner", question=study.about["question"]))

    @routes.get("/owner/{token}/state")
    async def state(request):
        owned(request)
        return http.json_response(await asyncio.to_thread(progress, study))

    @routes.post("/owner/{token}/{what:close|open}")
    async def close(request):
        owned(request)
        await writer.do(study.close if request.match_info["what"] == "close" else study.open)
        return http.json_response({"closed": study.closed})

    @routes.post("/owner/{token}/raters")
    async def raters(request):
        owned(request)
        names = (await web.asked(request, names=list)).get("names") or []
        names = list({store.handle(name): None for name in names})
        if len(names) > 500:
            raise http.HTTPBadRequest(text="at most 500 names at a time")
        tokens = await changed(lambda: [study.add_rater(name) for name in names])
        return (
            tokens
            if isinstance(tokens, http.Response)
            else http.json_response(
                {
                    "links": [
                        {"name": name, "link": f"/r/{token}/"}
                        for name, token in zip(names, tokens, strict=True)
                    ]
                }
            )
        )

    app.add_routes(routes)

    async def running(app):
        task = asyncio.create_task(writer.run())
        yield
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    app.cleanup_ctx.append(running)
    return app


def progress(study):
    """What the owner's page shows: how far everybody is, how attentive, how many votes the pairs have, and the counts."""
    pairs, by, covered = study.pairs, defaultdict(list), defaultdict(int)
    for vote in study.votes():
        by[vote["rater"]].append(vote)
        covered[vote["pair"]] += vote["kind"] == "vote"
    raters = []
    for rater in study.raters():
        votes = by[rater["id"]]
        times, gold = (
            sorted(vote["seconds"] for vote in votes),
            [vote for vote in votes if vote["kind"] == "gold"],
        )
        raters.append(
            {
                **{
                    key: rater[key]
                    for key in ("name", "source", "given", "votes", "skipped", "last")
                },
                "seconds": times[len(times) // 2] if times else None,
                "gold": [sum(vote["choice"] == vote["expect"] for vote in gold), len(gold)],
                "link": f"/r/{study.token(rater['id'])}/",
            }
        )
    each, asked = (
        study.about["raters_per_pair"],
        [pair for pair in pairs if pairs[pair]["kind"] == "vote"],
    )
    return {
        "title": study.about["title"],
        "closed": study.closed,
        "pairs": len(asked),
        "each": each,
        "votes": sum(map(len, by.values())),
        "covered": [sum(min(covered[pair], each) == n for pair in asked) for n in range(each + 1)],
        "raters": raters,
        "results": study.results(),
    }


def serve(folder, *, host="127.0.0.1", port=None, public=None, handles=True, adaptive=False):
    """Serve the study in `folder` until SIGTERM or Ctrl-C; while it lasts, `server.json` in it says where. Without a port it listens where
    it did the last time, because people keep their links. public: the origin that people open where a proxy stands between. adaptive: who comes is given the pairs that tell most (tally.adaptive)."""
    if adaptive:
        from decksmith.study import tally
    study = store.Study(folder, tally.adaptive if adaptive else None)
    outside.refuse(study)
    if port is None:
        port = int(study.recall("port") or 0)
    local = host in web.LOOPBACK

    @contextlib.asynccontextmanager
    async def make(url):
        study.remember("port", url.rpartition(":")[2])
        url = public or url
        owner = f"{url}/owner/{study.owner}/"
        with web.announced(study.folder / "server.json", {"url": url, "owner": owner}):
            cli.say(
                f"{study.folder}: {len(study.pairs)} pairs; people vote at {url}/"
                if handles
                else f"{study.folder}: {len(study.pairs)} pairs; by invitation"
            )
            cli.say(f"the owner's page, which makes links and closes the study: {owner}")
            yield application(
                study, hosts=web.LOOPBACK if local else None, public=public, handles=handles
            )
        study.close_file()

    web.run(make, host, port)
