"""Decks that attack, between decks that do not: nothing is read, reached or kept, every deck ends with a name, and its neighbours are unharmed.

What an attack would need is kept to what shows containment: a canary file that notices being opened, a canary server on loopback that
notices being called, a canary in the environment, and marks in the browser's stores.
"""
# ruff: noqa: E501 (decks stand in single lines here)

import asyncio
import hashlib
import json
from pathlib import Path

import pytest
from decksmith.core.protocol import Protocol
from decksmith.measure.render import pool as render_pool
from decksmith.measure.render import worker
from drawing import shared, shared_workers  # noqa: F401
from PIL import Image

pytestmark = [pytest.mark.browser, pytest.mark.slow]

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


def reads(file):
    """Ways to name a file, most of which some version of some tool has followed."""
    return {
        "read-snippet": HEAD + f"# Three\n\n<<< {file}\n",
        "read-snippet-magic": HEAD
        + f"# Three\n\n````md magic-move\n<<< {file}\n```js\n1\n```\n````\n",
        "read-src": f"---\ntheme: default\n---\n\n# Cover\n\n---\nsrc: {file}\n---\n\n---\n\n# Three\n",
        "read-script": HEAD
        + f"# Three\n\n<script setup>\nimport text from '{file}?raw'\n</script>\n\n{{{{ text }}}}\n",
        "read-script-lines": HEAD
        + f"# Three\n\n<script\n  setup\n>import text from '{file}?raw'</script\n>\n\n{{{{ text }}}}\n",
        "read-expression": HEAD + f"# Three\n\n<div :ref=\"() => import('{file}?raw')\" />\n",
        "read-style": HEAD
        + f"# Three\n\n<style>\n@import '{file}';\nh1 {{ background: url({file}) }}\n</style>\n",
        "read-style-src": HEAD + f'# Three\n\n<style src="{file}"></style>\n',
        "read-style-map": HEAD
        + f"# Three\n\n<style>\nh1 {{ color: red }}\n/*# sourceMappingURL={file} */\n</style>\n",
        "read-image": HEAD
        + f'# Three\n\n![x](file://{file}) <img src="/@fs{file}"> <img src="{file}"> ![y](images/../../..{file})\n',
        "read-frontmatter": f"---\ntheme: default\n---\n\n# Cover\n\n---\nlayout: image-right\nimage: /@fs{file}\n---\n\n# Two\n\n---\n\n# Three\n",
        "read-theme": f"---\ntheme: {Path(file).parent}\n---\n\n# Cover\n\n---\n\n# Two\n\n---\n\n# Three\n",
        "read-addon": f"---\ntheme: default\naddons:\n  - {Path(file).parent}\nexport:\n  executablePath: {file}\n---\n\n# Cover\n\n---\n\n# Two\n\n---\n\n# Three\n",
        "read-fetch": code(
            f"w.fetch('file://{file}'); w.fetch('/@fs{file}'); w.location = 'file://{file}'"
        ),
        "read-katex": HEAD
        + f"# Three\n\n$\\includegraphics{{{file}}}$ $\\input{{{file}}}$ $\\href{{file://{file}}}{{x}}$\n",
        "read-icon": HEAD
        + f'# Three\n\n<div class="i-..-..{file.replace("/", "-")}" /> <component is="{file}" />\n',
    }


def calls(url):
    return {
        "call-img": HEAD + f'# Three\n\n![x]({url}) <img src="{url}a" srcset="{url}b 2x">\n',
        "call-css": HEAD
        + f"# Three\n\n<style>\n@font-face {{ font-family: x; src: url({url}f) }}\nh1 {{ font-family: x; background: url({url}); cursor: url({url}c), auto }}\n</style>\n",
        "call-inline": HEAD
        + f"# Three\n\n<div style=\"background-image: url('{url}'); height: 10px\">x</div>\n",
        "call-frame": HEAD
        + f'# Three\n\n<iframe src="{url}"></iframe><object data="{url}"></object><embed src="{url}">\n',
        "call-link": HEAD
        + f'# Three\n\n<link rel="prefetch" href="{url}"><link rel="dns-prefetch" href="{url}"><meta http-equiv="refresh" content="0;url={url}">\n',
        "call-media": HEAD
        + f'# Three\n\n<video src="{url}" autoplay poster="{url}p"></video><audio src="{url}" autoplay></audio>\n',
        "call-layout": f"---\ntheme: default\n---\n\n# Cover\n\n---\nlayout: iframe\nurl: {url}\n---\n\n---\n\n# Three\n",
        "call-plantuml": HEAD
        + f'# Three\n\n```plantuml\nA -> B\n```\n\n<PlantUml server="{url}" code="x" />\n',
        "call-fetch": code(
            f"w.fetch('{url}', {{ mode: 'no-cors' }}); w.navigator.sendBeacon('{url}', 'x'); const x = new w.XMLHttpRequest(); x.open('GET', '{url}'); x.send()"
        ),
        "call-socket": code(
            f"new w.WebSocket('{url}'.replace('http', 'ws')); new w.EventSource('{url}')"
        ),
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
        "call-eval": HEAD
        + f"# Three\n\n{{{{ ''.constructor.constructor('return fetch(&quot;{url}&quot;)')() }}}}\n",
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
    "huge-deck": "---\n\n# Slide\n\ntext\n\n" * (50 << 20 >> 4),
}
ENVIRONMENT = {
    "environment-expression": HEAD + "# Three\n\n{{ process.env }} {{ process.env.CANARY_ENV }}\n",
    "environment-import": HEAD
    + '# Three\n\n{{ import.meta.env }} <b :a="import.meta.env.CANARY_ENV" />\n',
    "environment-constructor": HEAD
    + "# Three\n\n{{ ''.constructor.constructor('return process.env.CANARY_ENV')() }} {{ [].at.constructor('return this')().process }}\n",
    "environment-frontmatter": "---\ntheme: default\ntitle: ${CANARY_ENV} %CANARY_ENV% <%= process.env.CANARY_ENV %>\n---\n\n# {{ $slidev.configs.title }}\n",
    "environment-code": HEAD + "# Three\n\n```js {monaco-run}\nconsole.log(process.env)\n```\n",
}
# What a deck leaves behind for the next one, if it could.
KEPT = {
    "keep-history": code("for (let i = 0; i < 300; i++) w.history.pushState({ i }, '', '/' + i)"),
    "keep-cache": code(
        "w.caches && w.caches.open('x').then(c => c.put('/x', new w.Response('x'))); w.navigator.storage && w.navigator.storage.persist && w.navigator.storage.persist()"
    ),
    "keep-files": code(
        "w.navigator.storage && w.navigator.storage.getDirectory && w.navigator.storage.getDirectory().then(d => d.getFileHandle('x', { create: true }))"
    ),
    "keep-worker": code(
        "const s = w.navigator.serviceWorker; s && s.register('/@rt/main.js', { scope: '/' }); try { new w.SharedWorker('/@rt/main.js') } catch (e) {}"
    ),
    "keep-channel": code(
        "const c = new w.BroadcastChannel('x'); c.onmessage = () => 1; c.postMessage('x')"
    ),
    "keep-cookies": code(
        "for (let i = 0; i < 200; i++) w.document.cookie = 'c' + i + '=1; max-age=99999; path=/'"
    ),
    "keep-unload": code(
        "w.addEventListener('beforeunload', e => { e.preventDefault(); e.returnValue = 'x' })"
    ),
    "keep-download": code(
        "const a = w.document.createElement('a'); a.href = 'data:application/octet-stream,x'; a.download = 'x'; w.document.body.append(a); a.click()"
    ),
    "keep-size": code(
        "const f = w.document.createElement('iframe'); w.document.body.append(f); f.contentWindow.resizeTo.call(w, 1, 1)"
    ),
    "keep-fullscreen": code(
        "w.document.documentElement.requestFullscreen(); w.resizeTo(1, 1); w.scrollTo(0, 9999)"
    ),
}
# Text that is only strange: it renders, or names what does not, and ends in time.
STRANGE = {
    "unicode-marks": HEAD + "# " + "a" + "\u0301\u0316\u0489" * 20000 + "\n\ntext\n",
    "unicode-directions": HEAD + "# \u202e" + "abc \u2066\u202b" * 3000 + "\n\ntext\n",
    "unicode-joiners": HEAD + "# " + "\U0001f468\u200d" * 8000 + "\n\ntext\n",
    "unicode-noncharacters": HEAD
    + "# \ufffe\uffff\u0001\u0002\u0000\u2028\u2029\ufeff"
    + "\U000e0041" * 2000
    + "\n\ntext\n",
    "nest-quotes": HEAD + "# Three\n\n" + ">" * 20000 + " x\n",
    "nest-lists": HEAD + "# Three\n\n" + "".join("  " * n + "- x\n" for n in range(400)),
    "nest-elements": HEAD + "# Three\n\n" + "<div>" * 3000 + "x" + "</div>" * 3000 + "\n",
    "nest-brackets": HEAD + "# Three\n\n" + "[" * 20000 + "x" + "](" * 20000 + "\n",
    "nest-formula": HEAD + "# Three\n\n$" + "{" * 5000 + "x" + "}" * 5000 + "$\n",
    "nest-expression": HEAD + "# Three\n\n{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}\n",
    "nest-yaml": "---\ntheme: default\na: " + "[" * 20000 + "\n---\n\n# Three\n",
    "nest-diagram": HEAD + "# Three\n\n```mermaid\ngraph LR\n" + "subgraph x\n" * 300 + "```\n",
    "macro-formula": HEAD + "# Three\n\n$\\def\\a{\\b\\b}\\def\\b{\\c\\c}\\def\\c{\\a\\a}\\a$\n",
    "wide-table": HEAD
    + "# Three\n\n"
    + ("|" + " x |" * 300 + "\n|" + " - |" * 300 + "\n")
    + ("|" + " x |" * 300 + "\n") * 20,
    "pattern-elements": HEAD + "# Three\n\n" + "<iframe " * 4000 + "\n",
    "pattern-frames": HEAD + "# Three\n\n" + "<iframe> " * 40000 + "\n",
    "pattern-handlers": HEAD + "# Three\n\n<a" + " on" * 4000 + " " * 4000 + "\n",
    "pattern-emphasis": HEAD + "# Three\n\n" + "*a **b " * 4000 + "\n",
    "pattern-imports": HEAD + "# Three\n\n" + "import " * 4000 + " " * 20000 + "\n",
    "css-variables": HEAD
    + "# Three\n\n<style>\nh1 {\n"
    + "".join(f"--a{n}: var(--a{n + 1}) var(--a{n + 1});\n" for n in range(40))
    + "--a40: x;\ncontent: var(--a0) }\n</style>\n",
    "css-selectors": HEAD
    + "# Three\n\n<style>\n"
    + "".join(
        f"h{n % 6 + 1}:has(* ~ :nth-child({n}n + 1) *) {{ color: red }}\n" for n in range(300)
    )
    + "</style>\n",
    "canvas-large": code(
        "for (let i = 0; i < 30; i++) { const c = w.document.createElement('canvas'); c.width = c.height = 16000; w.document.body.append(c) }"
    ),
    "canvas-webgl": code(
        "for (let i = 0; i < 200; i++) for (const kind of ['webgl', 'webgl2', 'webgpu']) { const c = w.document.createElement('canvas').getContext(kind); c && c.createBuffer() } w.navigator.gpu && w.navigator.gpu.requestAdapter()"
    ),
    "picture-large": HEAD
    + "# Three\n\n<img src=\"data:image/svg+xml,<svg xmlns='http://www.w3.org/2000/svg' width='60000' height='60000'><rect width='60000' height='60000' fill='red'/></svg>\">\n",
    "css-huge": HEAD
    + '# Three\n\n<div style="width: 1e9px; height: 1e9px; box-shadow: 0 0 9999px 9999px red; filter: blur(9999px)">x</div>\n',
}
ENDLESS = {
    "loop-code": code("while (true) {}"),
    "loop-template": HEAD + '# Three\n\n<div v-for="i in 100000000">{{ i }}</div>\n',
    "loop-regex": HEAD
    + "# Three\n\n{{ /^(a+)+$/.test('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!') }}\n",
    "loop-watch": code("const f = () => w.Promise.resolve().then(f); f()"),
    "loop-css": HEAD
    + "# Three\n\n<style>\n@keyframes x { to { left: 1px } }\n* { animation: x 1ms infinite; position: relative }\n</style>\n\n<div :ref=\"el => { const f = () => { el && (el.style.width = el.offsetWidth + 1 + 'px'); w.requestAnimationFrame(f) }, w = el && el.ownerDocument.defaultView; const r = new w.ResizeObserver(() => { while (true) el.offsetWidth }); r.observe(el) }\">x</div>\n",
    "loop-svg": HEAD
    + "# Three\n\n<svg viewBox='0 0 9 9'><g id='a0'><rect width='1' height='1'/></g>"
    + "".join(f"<g id='a{n}'>" + f"<use href='#a{n - 1}'/>" * 10 + "</g>" for n in range(1, 9))
    + "<use href='#a8'/></svg>\n",
    "many-slides": "---\ntheme: default\n---\n"
    + "\n---\n\n".join(f"# Slide {i}\n" for i in range(400)),
}
BOMBS = {
    "bomb-arrays": code("const a = []; while (true) a.push(new w.Uint8Array(50000000).fill(1))"),
    "bomb-strings": code(
        "const a = []; while (true) a.push('x'.repeat(1000000) + a.length + 'y'.split('').join('z'), [...w.Array(100000).keys()])"
    ),
}
# Attempts that the page's policy refuses without a word, or that never were one.
SILENT = {
    "call-layout",
    "call-media",
    "call-plantuml",
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
    "read": {
        "forbidden",
        "vue-runtime",
        "missing-image",
        "vue-compile",
        "unknown-component",
        "unknown-theme",
        "katex",
    },
    "call": {"forbidden", "vue-runtime", "missing-image", "unknown-component"},
}


def digest(run, value):
    return [hashlib.sha256((run / name).read_bytes()).hexdigest() for name in value["slides"]]


def batch(run, decks, *, jobs=0, **limits):
    """Render decks (id to text), one after the other by a worker of this file: id to value; with `jobs` by so many fresh ones."""
    for name, text in decks.items():
        (run / name).mkdir(parents=True)
        (run / name / "deck.md").write_text(text)

    async def draw(pool):
        records = ({"id": name, "deck": {"path": f"{name}/deck.md"}} for name in decks)
        values = await asyncio.gather(*(pool.render(run, record) for record in records))
        return dict(zip(decks, values, strict=True))

    async def go():
        protocol = Protocol.load("offline")
        protocol.render.update({"min_slides": 1} | limits)
        pool = render_pool.Pool(protocol, jobs=jobs)
        try:
            return await draw(pool)
        finally:
            await pool.close()

    return asyncio.run(go()) if jobs else shared(draw, min_slides=1)


@pytest.fixture(scope="module", autouse=True)
def secret():
    """What every worker of this file is started with: several decks say its name, none its value."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CANARY_ENV", "CANARY")
        yield


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """The healthy deck alone, undisturbed: the hashes of its pictures."""
    run = tmp_path_factory.mktemp("reference")
    value = batch(run, {"healthy": HEALTHY})["healthy"]
    assert value["status"] == "ok", value
    return digest(run, value)


def parted(text):
    """The cases of a test: `few` are these decks, one for each way in which they are noticed; in `make test-long` none, which is all."""
    rest = pytest.param((), id="all", marks=pytest.mark.long)
    return pytest.mark.parametrize("few", [pytest.param(text.split(), id="few"), rest])


def some(decks, few):
    """These of the decks, or all."""
    return {name: text for name, text in decks.items() if not few or name in few}


def joined(decks):
    """Slides with no more than HEAD before them, ten in a deck, which takes less than ten decks: (the decks, {name: (its deck, its slide)}).

    The slide is None where a deck stays as it is.
    """
    bodies = {name: text.removeprefix(HEAD) for name, text in decks.items()}
    given = {n: t for n, t in decks.items() if bodies[n] == t or "\n---\n" in bodies[n]}
    slides = {name: (name, None) for name in given}
    rest = [name for name in decks if name not in given]
    for start in range(0, len(rest), 10):
        part, deck = rest[start : start + 10], f"joined-{start}"
        given[deck] = HEAD + "\n---\n\n".join(bodies[name] for name in part)
        slides |= {name: (deck, slide) for slide, name in enumerate(part, 1)}
    return given, slides


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


@parted(
    """read-snippet read-script read-expression read-style read-style-run read-image read-image-run read-fetch read-theme read-katex
    call-img call-css call-frame call-link call-layout call-fetch call-worker call-script call-rtc call-leave call-eval
    keep-cookies keep-worker environment-expression environment-constructor keep-stores poison reload yaml-bomb huge-text"""
)
def test_no_deck_reads_a_file_calls_a_port_or_leaves_a_trace(
    tmp_path, reference, canary, tripwire, few
):
    wire, inside = tripwire(tmp_path / "canary.txt"), tripwire(tmp_path / "run.json")
    decks = reads(wire.path) | {
        f"{name}-run": text
        for name, text in reads(inside.path).items()
        if "style" in name or "image" in name or "snippet" in name
    }
    decks |= calls(f"http://127.0.0.1:{canary.port}/") | KEPT | ENVIRONMENT
    decks, slides = joined(some(decks, few))
    values = batch(tmp_path / "run", between(decks | some(STATES, few), 4))
    assert not wire.opened and not inside.opened, "a file was opened"
    assert canary.hits == []
    assert "CANARY" not in json.dumps(values).replace("CANARY_ENV", "")
    for value in values.values():
        assert not [error for error in value["errors"] if error["kind"] != "model"], value["errors"]
    wrong = {}
    for name, (deck, slide) in slides.items():
        errors = [one for one in values[deck]["errors"] if slide in (None, one["slide"])]
        classes, known = {error["class"] for error in errors}, KINDS.get(name.split("-")[0])
        missed = known and name not in SILENT and not classes & known
        if missed or "deadline" in classes:
            wrong[name] = errors
    assert not wrong
    huge = {"huge-text", "huge-deck"} & {*values}
    assert {values[name]["error"]["class"] for name in huge} == {"memory"}
    assert values["yaml-bomb"]["errors"][0]["class"] == "yaml"
    assert values["reload"]["errors"][0]["class"] == "forbidden"
    check_neighbours(tmp_path / "run", values, reference)


@pytest.mark.long("test_a_deck_that_never_ends_or_eats_the_memory_costs_only_itself")
def test_a_strange_deck_ends_in_time_with_a_name_and_costs_only_itself(tmp_path, reference):
    values = batch(tmp_path, between(STRANGE, 6), jobs=2, deadline=8)
    for name, value in values.items():
        assert all(
            (error["kind"], bool(error["class"])) == ("model", True) for error in value["errors"]
        ), (name, value["errors"])
        assert value["status"] == "ok" or 0 < len(value["errors"]) <= 200, name
    check_neighbours(tmp_path, values, reference)


@pytest.mark.parametrize(
    "decks, limits",
    [
        (some(ENDLESS | BOMBS, ["loop-code", "bomb-arrays"]), {"deadline": 4, "memory": 700}),
        pytest.param(ENDLESS, {"deadline": 4}, marks=pytest.mark.long),
        pytest.param(BOMBS, {"memory": 700}, marks=pytest.mark.long),
    ],
    ids=["few", "endless", "bombs"],
)
def test_a_deck_that_never_ends_or_eats_the_memory_costs_only_itself(
    tmp_path, reference, decks, limits
):
    # The neighbours have the same limits; on a slow machine a healthy deck takes 2 CPU seconds.
    values = batch(tmp_path, between(decks), jobs=1, **limits)
    named = {name: value["error"]["class"] for name, value in values.items() if "~" not in name}
    assert named.pop("loop-template", "memory") in ("deadline", "memory")
    assert named == {
        name: "memory" if name in BOMBS else "deadline" for name in decks if name != "loop-template"
    }
    if "loop-code" in decks:
        assert values["loop-code"]["error"] | {"message": ""} == {
            "kind": "model",
            "class": "deadline",
            "slide": 1,
            "line": 1,
            "message": "",
        }
        assert values["loop-code"]["status"] == "failed"
    check_neighbours(tmp_path, values, reference)


BLAME = {  # what once was taken for a fault of ours: (deck, class, line)
    "alias-of-itself": ("---\ntheme: default\na: 1\nb: &x\n  c: *x\n---\n\n# Three\n", "yaml", 5),
    "title-of-keys": ("---\ntheme: default\ntitle: {toString: 1}\n---\n\n# Three\n", "yaml", 3),
    "title-as-list": (
        HEAD + "# Three\n\n---\nlayout: center\ntitle: [a]\n---\n\n# Four\n",
        "yaml",
        9,
    ),
    "layout-of-keys": ("---\ntheme: default\nlayout: {toString: 1}\n---\n\n# Three\n", "yaml", 3),
    "theme-of-keys": ("---\ntheme: {toString: 1}\n---\n\n# Three\n", "unknown-theme", 2),
    "many-lines": (HEAD + "# Three\n\n" + "x\n" * 130_000, "out-of-bounds", 1),
}


def test_what_a_deck_brings_about_in_the_compiler_is_its_own_fault_with_a_line(tmp_path):
    values = batch(tmp_path, {name: text for name, (text, _, _) in BLAME.items()})
    for name, (_, cls, line) in BLAME.items():
        found = [(error["kind"], error["class"], error["line"]) for error in values[name]["errors"]]
        assert found == ([("model", cls, line)] if cls else []), (name, values[name]["errors"])


def asked(tmp_path, monkeypatch, reply):
    """A deck named `bad` through a pool whose first worker answers `reply(request)` instead, where that is not None: (its value, requests)."""
    requests, real = [], worker.Worker.ask

    async def ask(self, request, *rest):
        requests.append(request["id"])
        return reply(request, len(requests)) or await real(self, request, *rest)

    monkeypatch.setattr(worker.Worker, "ask", ask)
    return batch(tmp_path, {"bad": HEAD + "# Three\n"})["bad"], requests


def broken(cls):
    return worker.failure(cls, "it broke", kind="renderer")


GOOD = "bad (known good)"


@pytest.mark.parametrize("cls", ["internal", "crash", "deadline"])
def test_what_breaks_while_a_known_good_deck_works_is_the_deck_s_fault_and_asked_twice_at_most(
    tmp_path, monkeypatch, cls
):
    value, requests = asked(
        tmp_path, monkeypatch, lambda request, _: broken(cls) if request["id"] == "bad" else None
    )
    assert (value["error"]["kind"], value["error"]["class"]) == (
        "model",
        "crash" if cls == "internal" else cls,
    )
    assert requests == (["bad", GOOD] if cls == "deadline" else ["bad", GOOD, "bad"])


def test_what_breaks_a_known_good_deck_too_is_our_fault(tmp_path, monkeypatch):
    value, requests = asked(tmp_path, monkeypatch, lambda request, _: broken("internal"))
    assert (value["error"]["kind"], requests) == ("renderer", ["bad", GOOD, GOOD])


@pytest.mark.long("test_what_breaks_a_known_good_deck_too_is_our_fault")
def test_a_deck_that_fails_once_is_rendered_once_more(tmp_path, monkeypatch):
    value, requests = asked(
        tmp_path, monkeypatch, lambda _, number: broken("crash") if number == 1 else None
    )
    assert (value["status"], requests) == ("ok", ["bad", GOOD, "bad"])


SWAP = "if (!el.done) { el.done = 1; el.textContent = 'AFTER'; el.style.background = 'rgb(255, 0, 0)' }"
LATE = {  # ways to change the page some time after it was mounted
    **{
        f"frame-{k}": f"let n = 0; const f = () => {{ if (++n == {k}) {{ {SWAP} }} else w.requestAnimationFrame(f) }}; w.requestAnimationFrame(f)"
        for k in (1, 3, 4, 5, 6, 7, 9, 15)
    },
    **{
        f"timer-{ms}": f"w.setTimeout(() => {{ {SWAP} }}, {ms})" for ms in (5, 20, 40, 60, 100, 300)
    },
    "every-frame": "let n = 0; const f = () => { const on = ++n % 2; el.textContent = on ? 'AFTER' : 'BEFORE'; el.style.background = on ? 'rgb(255, 0, 0)' : 'white'; w.requestAnimationFrame(f) }; w.requestAnimationFrame(f)",
    "mutation": f"new w.MutationObserver(() => {{ {SWAP} }}).observe(el, {{ attributes: true }}); let n = 0; const f = () => {{ if (++n == 5) el.title = 'x'; else w.requestAnimationFrame(f) }}; w.requestAnimationFrame(f)",
    "resize": f"let first = 1; new w.ResizeObserver(() => {{ if (!first) {{ {SWAP} }}; first = 0 }}).observe(el); let n = 0; const f = () => {{ if (++n == 5) el.style.width = '200px'; else w.requestAnimationFrame(f) }}; w.requestAnimationFrame(f)",
    "intersection": f"new w.IntersectionObserver(() => {{ {SWAP} }}).observe(el)",
    "end-of-an-animation": f"el.addEventListener('animationend', () => {{ {SWAP} }})",
    "end-of-a-late-animation": f"el.animate([{{ opacity: 1 }}, {{ opacity: 1 }}], 60).finished.then(() => {{ {SWAP} }})",
    "channel": f"const c = new w.MessageChannel(); let n = 0; c.port1.onmessage = () => {{ if (++n == 400) {{ {SWAP} }} else c.port2.postMessage(1) }}; c.port2.postMessage(1)",
    "measuring": f"const own = el.getBoundingClientRect.bind(el); el.getBoundingClientRect = () => {{ w.requestAnimationFrame(() => {{ {SWAP} }}); return own() }}",
}


@pytest.mark.long(
    "tests/hostile/test_door.py::test_picture_and_measure_are_of_one_moment_and_one_slide"
)
def test_picture_and_measures_are_of_one_frame(tmp_path):
    style = "<style>\n@keyframes x { to { opacity: 1 } }\n.x { animation: x 1ms }\n</style>\n"
    slides = [
        f'# Three\n\n<div class="x" style="width: 300px; height: 100px" :ref="el => {{ const w = el && el.ownerDocument.defaultView; if (w) {{ {code} }} }}">BEFORE</div>\n\n{style}'
        for code in LATE.values()
    ]
    css = "<style>\n@keyframes y { 0% { height: 0 } 50% { height: 90px } 100% { height: 300px } }\n#app .y.y.y { animation: y 130ms linear infinite !important; background: rgb(0, 0, 255) }\n</style>\n"
    slides.append(f'# Three\n\n<div class="y"></div>\n\n<p>below</p>\n\n{css}')
    value, seen = batch(tmp_path, {"late": HEAD + "\n---\n\n".join(slides)})["late"], set()
    for name, slide, page in zip([*LATE, "css-alone"], value["slides"], value["xray"], strict=True):
        picture = Image.open(tmp_path / slide).convert("RGB")
        colours = {colour for _, colour in picture.getcolors(1 << 20)}
        if name == "css-alone":  # an animation without an end stands at its beginning
            assert (0, 0, 255) not in colours, name
            continue
        after = "AFTER" in page["text"]
        seen.add(after)
        assert after == ((255, 0, 0) in colours), name
    assert seen == {True, False}
