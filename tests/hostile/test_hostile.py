"""Decks that attack, between decks that do not: nothing is read, reached or kept, every deck ends with a name, and its neighbours are unharmed.

What an attack would need is kept to what shows containment: a canary file that notices being opened, a canary server on loopback that
notices being called, a canary in the environment, and marks in the browser's stores.
"""
# ruff: noqa: E501 (decks stand in single lines here)

import asyncio
import contextlib
import hashlib
import json
import os
import socket
import threading
from pathlib import Path

import pytest
from decksmith import render, rubric

HEAD = "---\ntheme: default\n---\n\n"
# A deck as many are, whose last slide reads the browser's stores and writes what it finds: any trace of an earlier deck would change it.
HEALTHY = (
    HEAD
    + """# One

---

# Two

---

# Three

- one
- two

$a^2$

```js {1}
let a = 1
```

<div :ref="el => { const w = el && el.ownerDocument.defaultView; if (w) el.textContent = [w.localStorage.length, w.sessionStorage.length, w.document.cookie, w.history.length, w.name].join('|') }" />
"""
)


def code(javascript):
    """A slide whose page runs `javascript` with `w` as its window."""
    return (
        HEAD
        + f'# Three\n\n<div :ref="el => {{ const w = el && el.ownerDocument.defaultView; if (w) {{ {javascript} }} }}">text</div>\n'
    )


class Canary:
    """A loopback server that counts whoever connects or sends, by TCP and UDP on one port."""

    def __init__(self):
        self.hits = []
        self.tcp = socket.create_server(("127.0.0.1", 0))
        self.port = self.tcp.getsockname()[1]
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.bind(("127.0.0.1", self.port))
        threading.Thread(target=self._tcp, daemon=True).start()
        threading.Thread(target=self._udp, daemon=True).start()

    def _tcp(self):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.tcp.accept()
                self.hits.append("tcp")
                connection.close()

    def _udp(self):
        with contextlib.suppress(OSError):
            while True:
                self.hits.append(self.udp.recvfrom(100))

    def close(self):
        self.tcp.close()
        self.udp.close()


class Tripwire:
    """A named pipe: whoever opens it to read is seen, because only then can it be opened to write."""

    def __init__(self, path):
        self.path, self.opened, self.over = path, False, threading.Event()
        os.mkfifo(path)
        self.thread = threading.Thread(target=self._watch, daemon=True)
        self.thread.start()

    def _watch(self):
        while not self.over.wait(0.02):
            with contextlib.suppress(OSError):
                descriptor = os.open(self.path, os.O_WRONLY | os.O_NONBLOCK)
                self.opened = True
                os.write(descriptor, b"CANARY")
                os.close(descriptor)

    def close(self):
        self.over.set()
        self.thread.join()


def reads(file):
    """Ways to name a file, most of which some version of some tool has followed."""
    return {
        "read-snippet": HEAD + f"# Three\n\n<<< {file}\n",
        "read-snippet-magic": HEAD + f"# Three\n\n````md magic-move\n<<< {file}\n```js\n1\n```\n````\n",
        "read-src": f"---\ntheme: default\n---\n\n# Cover\n\n---\nsrc: {file}\n---\n\n---\n\n# Three\n",
        "read-script": HEAD
        + f"# Three\n\n<script setup>\nimport text from '{file}?raw'\n</script>\n\n{{{{ text }}}}\n",
        "read-script-lines": HEAD
        + f"# Three\n\n<script\n  setup\n>import text from '{file}?raw'</script\n>\n\n{{{{ text }}}}\n",
        "read-expression": HEAD + f"# Three\n\n<div :ref=\"() => import('{file}?raw')\" />\n",
        "read-style": HEAD + f"# Three\n\n<style>\n@import '{file}';\nh1 {{ background: url({file}) }}\n</style>\n",
        "read-style-src": HEAD + f'# Three\n\n<style src="{file}"></style>\n',
        "read-style-map": HEAD + f"# Three\n\n<style>\nh1 {{ color: red }}\n/*# sourceMappingURL={file} */\n</style>\n",
        "read-image": HEAD
        + f'# Three\n\n![x](file://{file}) <img src="/@fs{file}"> <img src="{file}"> ![y](images/../../..{file})\n',
        "read-frontmatter": f"---\ntheme: default\n---\n\n# Cover\n\n---\nlayout: image-right\nimage: /@fs{file}\n---\n\n# Two\n\n---\n\n# Three\n",
        "read-theme": f"---\ntheme: {Path(file).parent}\n---\n\n# Cover\n\n---\n\n# Two\n\n---\n\n# Three\n",
        "read-addon": f"---\ntheme: default\naddons:\n  - {Path(file).parent}\nexport:\n  executablePath: {file}\n---\n\n# Cover\n\n---\n\n# Two\n\n---\n\n# Three\n",
        "read-fetch": code(f"w.fetch('file://{file}'); w.fetch('/@fs{file}'); w.location = 'file://{file}'"),
        "read-katex": HEAD
        + f"# Three\n\n$\\includegraphics{{{file}}}$ $\\input{{{file}}}$ $\\href{{file://{file}}}{{x}}$\n",
        "read-icon": HEAD + f'# Three\n\n<div class="i-..-..{file.replace("/", "-")}" /> <component is="{file}" />\n',
    }


def calls(url):
    return {
        "call-img": HEAD + f'# Three\n\n![x]({url}) <img src="{url}a" srcset="{url}b 2x">\n',
        "call-css": HEAD
        + f"# Three\n\n<style>\n@font-face {{ font-family: x; src: url({url}f) }}\nh1 {{ font-family: x; background: url({url}); cursor: url({url}c), auto }}\n</style>\n",
        "call-inline": HEAD + f"# Three\n\n<div style=\"background-image: url('{url}'); height: 10px\">x</div>\n",
        "call-frame": HEAD
        + f'# Three\n\n<iframe src="{url}"></iframe><object data="{url}"></object><embed src="{url}">\n',
        "call-link": HEAD
        + f'# Three\n\n<link rel="prefetch" href="{url}"><link rel="dns-prefetch" href="{url}"><meta http-equiv="refresh" content="0;url={url}">\n',
        "call-media": HEAD
        + f'# Three\n\n<video src="{url}" autoplay poster="{url}p"></video><audio src="{url}" autoplay></audio>\n',
        "call-layout": f"---\ntheme: default\n---\n\n# Cover\n\n---\nlayout: iframe\nurl: {url}\n---\n\n---\n\n# Three\n",
        "call-plantuml": HEAD + f'# Three\n\n```plantuml\nA -> B\n```\n\n<PlantUml server="{url}" code="x" />\n',
        "call-fetch": code(
            f"w.fetch('{url}', {{ mode: 'no-cors' }}); w.navigator.sendBeacon('{url}', 'x'); const x = new w.XMLHttpRequest(); x.open('GET', '{url}'); x.send()"
        ),
        "call-socket": code(f"new w.WebSocket('{url}'.replace('http', 'ws')); new w.EventSource('{url}')"),
        "call-worker": code(
            f"try {{ new w.Worker(w.URL.createObjectURL(new w.Blob(['fetch(&quot;{url}&quot;)']))) }} catch (e) {{}} w.navigator.serviceWorker && w.navigator.serviceWorker.register('/sw.js')"
        ),
        "call-script": code(
            f"const s = w.document.createElement('script'); s.src = '{url}'; w.document.head.append(s); const i = new w.Image(); i.src = '{url}i'"
        ),
        "call-rtc": code(
            f"try {{ const c = new w.RTCPeerConnection({{ iceServers: [{{ urls: 'stun:127.0.0.1:{url.split(':')[2].strip('/')}' }}] }}); c.createDataChannel('x'); c.createOffer().then(o => c.setLocalDescription(o)) }} catch (e) {{}}"
        ),
        "call-leave": code(f"w.location.href = '{url}'"),
        "call-form": code(
            f"const f = w.document.createElement('form'); f.action = '{url}'; f.method = 'post'; w.document.body.append(f); f.submit()"
        ),
        "call-frame-blank": code(
            f"const f = w.document.createElement('iframe'); w.document.body.append(f); try {{ f.contentWindow.fetch('{url}', {{ mode: 'no-cors' }}) }} catch (e) {{}}; try {{ f.contentWindow.location = '{url}' }} catch (e) {{}}"
        ),
        "call-eval": HEAD + f"# Three\n\n{{{{ ''.constructor.constructor('return fetch(&quot;{url}&quot;)')() }}}}\n",
    }


STATES = {
    "keep-stores": code(
        "w.localStorage.setItem('x', '1'); w.sessionStorage.setItem('x', '1'); w.document.cookie = 'x=1'; w.name = 'x'; w.history.pushState({}, '', '/3'); w.indexedDB.open('x')"
    ),
    "alert-storm": code(
        "for (let i = 0; i < 100; i++) { w.alert(i); w.confirm(i); w.prompt(i) } w.Window.prototype.alert && w.Window.prototype.alert.call(w, 'x')"
    ),
    "close": code("w.close(); w.Window.prototype.close && w.Window.prototype.close.call(w)"),
    "open": code("for (let i = 0; i < 20; i++) w.open('about:blank')"),
    "reload": code("w.location.reload()"),
    "other-slide": code("w.location.href = '/1'"),
    "poison": code(
        "w.Array.prototype.map = () => { throw 1 }; w.JSON.stringify = () => ''; w.Promise.race = () => {}; w.document.querySelector = () => null"
    ),
    "yaml-bomb": "---\ntheme: default\na: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c]\n"
    "e: [*d,*d,*d,*d,*d,*d,*d]\n---\n\n# Cover\n\n---\n\n# Two\n\n---\n\n# Three\n",
    "huge-text": "x" * (3 << 20),
}
ENDLESS = {
    "loop-code": code("while (true) {}"),
    "loop-template": HEAD + '# Three\n\n<div v-for="i in 100000000">{{ i }}</div>\n',
    "loop-regex": HEAD + "# Three\n\n{{ /^(a+)+$/.test('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!') }}\n",
    "loop-watch": code("const f = () => w.Promise.resolve().then(f); f()"),
    "many-slides": "---\ntheme: default\n---\n" + "\n---\n\n".join(f"# Slide {i}\n" for i in range(400)),
}
BOMBS = {
    "bomb-arrays": code("const a = []; while (true) a.push(new w.Uint8Array(50000000).fill(1))"),
    "bomb-strings": code(
        "const a = []; while (true) a.push('x'.repeat(1000000) + a.length + 'y'.split('').join('z'), [...w.Array(100000).keys()])"
    ),
}
# Attempts that the page's policy refuses without a word, or that never were one.
SILENT = {
    "call-media",
    "read-fetch",
    "read-icon",
    "read-style-map",
    "read-style-map-run",
    "call-fetch",
    "call-socket",
    "call-worker",
    "call-script",
    "call-rtc",
    "call-frame-blank",
    "call-form",
}
KINDS = {
    "read": {"forbidden", "vue-runtime", "missing-image", "vue-compile", "unknown-component", "unknown-theme", "katex"},
    "call": {"forbidden", "vue-runtime", "missing-image", "unknown-component"},
}


def digest(run, value):
    return [hashlib.sha256((run / name).read_bytes()).hexdigest() for name in value["slides"]]


def batch(run, decks, *, jobs=1, **limits):
    """Render decks (id to text) in one pool, one after the other: id to value."""
    protocol = rubric.Protocol.load("offline")
    protocol.render.update({"min_slides": 1} | limits)
    for name, text in decks.items():
        (run / name).mkdir(parents=True)
        (run / name / "deck.md").write_text(text)

    async def go():
        pool = render.Pool(protocol, jobs=jobs)
        try:
            values = await asyncio.gather(
                *(pool.render(run, {"id": name, "deck": {"path": f"{name}/deck.md"}}) for name in decks)
            )
            return dict(zip(decks, values, strict=True))
        finally:
            await pool.close()

    return asyncio.run(go())


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """The healthy deck alone, undisturbed: the hashes of its pictures."""
    run = tmp_path_factory.mktemp("reference")
    value = batch(run, {"healthy": HEALTHY})["healthy"]
    assert value["status"] == "ok", value
    return digest(run, value)


def between(decks, every=1):
    """A healthy deck after every so many attacks."""
    mixed = {}
    for number, (name, text) in enumerate(decks.items(), 1):
        mixed[name] = text
        if number % every == 0 or number == len(decks):
            mixed[f"{name}~healthy"] = HEALTHY
    return mixed


def check_neighbours(run, values, reference):
    for name, value in values.items():
        if "~" in name:
            assert value["status"] == "ok", (name, value["errors"])
            assert digest(run, value) == reference, f"{name} looks different"


@pytest.mark.timeout(300)
def test_no_deck_reads_a_file_calls_a_port_or_leaves_a_trace(tmp_path, monkeypatch, reference):
    monkeypatch.setenv("CANARY_ENV", "CANARY")
    wire, inside = Tripwire(str(tmp_path / "canary.txt")), Tripwire(str(tmp_path / "run.json"))
    canary = Canary()
    try:
        decks = reads(wire.path) | {
            f"{name}-run": text
            for name, text in reads(inside.path).items()
            if "style" in name or "image" in name or "snippet" in name
        }
        decks |= calls(f"http://127.0.0.1:{canary.port}/") | STATES
        values = batch(tmp_path / "run", between(decks, 4))
        assert not wire.opened and not inside.opened, "a file was opened"
        assert canary.hits == []
    finally:
        wire.close()
        inside.close()
        canary.close()
    assert "CANARY" not in json.dumps(values)
    wrong = {}
    for name, value in values.items():
        kind = name.split("-")[0]
        if (
            "~" not in name
            and kind in KINDS
            and not {error["class"] for error in value["errors"]} & KINDS[kind]
            and name not in SILENT
        ):
            wrong[name] = value["errors"]
        assert not [error for error in value["errors"] if error["kind"] != "model"], (name, value["errors"])
    assert not wrong
    assert values["huge-text"]["error"]["class"] == "memory"
    assert values["yaml-bomb"]["errors"][0]["class"] == "yaml"
    assert values["reload"]["errors"][0]["class"] == "forbidden"
    check_neighbours(tmp_path / "run", values, reference)


@pytest.mark.timeout(300)
def test_an_endless_deck_ends_at_its_deadline_and_costs_only_itself(tmp_path, reference):
    values = batch(tmp_path, between(ENDLESS), deadline=3)
    named = {name: value["error"]["class"] for name, value in values.items() if "~" not in name}
    assert named.pop("loop-template") in ("deadline", "memory")
    assert named == {name: "deadline" for name in ENDLESS if name != "loop-template"}
    assert values["loop-code"]["error"] | {"message": ""} == {
        "kind": "model",
        "class": "deadline",
        "slide": 1,
        "line": 1,
        "message": "",
    }
    assert values["loop-code"]["status"] == "failed"
    check_neighbours(tmp_path, values, reference)


@pytest.mark.timeout(300)
def test_a_deck_that_eats_the_memory_costs_only_itself(tmp_path, reference):
    values = batch(tmp_path, between(BOMBS), memory=700)
    assert {name: value["error"]["class"] for name, value in values.items() if "~" not in name} == {
        name: "memory" for name in BOMBS
    }
    check_neighbours(tmp_path, values, reference)
