"""Picture and measure are of one moment and one slide, and what a page says of itself is bounded: its own code is hostile here."""
# ruff: noqa: E501 (slides stand in single lines here)

import base64
import io
import json
import os
import subprocess
import sys

import pytest
from decksmith.core import cli, stream
from decksmith.core.records import cut, misfit
from decksmith.measure.decks import lint
from decksmith.measure.decks.records import Page, Render
from decksmith.measure.judging import rendered
from decksmith.measure.judging.records import DeckRecord
from decksmith.measure.render import pool as render_pool
from drawing import shared, shared_workers  # noqa: F401
from PIL import Image, ImageDraw
from test_seen import CLEAR, WORDS, coded
from test_walls import ORDINARY

LIST = "# Last\n\n- one\n- two\n"


def slide(code):
    """A slide whose page runs `code` once, with `w` as its window and `el` as an element that says BEFORE."""
    given = f"el => {{ const w = el &amp;&amp; el.ownerDocument.defaultView; if (w &amp;&amp; !el.did) {{ el.did = 1; {code} }} }}"
    given = given.replace('"', "&quot;")
    return (
        f'# Three\n\n<div class="x" style="width: 300px; height: 100px" :ref="{given}">BEFORE</div>'
    )


def written(run, name, bodies):
    """The record of a deck of these slides."""
    (run / name).mkdir(parents=True)
    text = "---\ntheme: default\n---\n\n" + "\n\n---\n\n".join(bodies)
    (run / name / "deck.md").write_text(text)
    return {"id": name, "deck": {"path": f"{name}/deck.md"}}


def shown(run, name, bodies):
    """(render value, what can be read, the classes of errors) of a deck, the latter two by slide."""
    record = written(run, name, bodies)
    value = shared(lambda pool: pool.render(run, record))
    assert len(value["slides"]) == len(bodies), value["errors"]
    classes = {}
    for error in value["errors"]:
        assert error["kind"] == "model"
        classes.setdefault(error["slide"], set()).add(error["class"])
    pages = rendered.Pages(record | {"render": value}, run, lint.limits())
    return value, pages.readable, classes


SWAP = "el.textContent = 'AFTER'; el.style.background = 'rgb(255, 0, 0)'"
BACK = "el.textContent = 'BEFORE'; el.style.background = 'white'"
FLIP = f"(n => {{ if (n % 2) {{ {SWAP} }} else {{ {BACK} }} }})"
NO = "el.closest('[data-slidev-no]')"


def decoy(code):
    return (
        "w.setTimeout(() => { const d = w.document, own = "
        + NO
        + ", copy = own.cloneNode(true); copy.querySelector('.x').textContent = 'AFTER'; "
        + code
        + " }, 9)"
    )


FRAME = "const f = w.document.createElement('iframe'); w.document.body.append(f); const v = f.contentWindow;"
ONE_MOMENT = {
    **{f"interval-{ms}": f"let n = 0; w.setInterval(() => {FLIP}(n++), {ms})" for ms in (1, 7, 33)},
    "interval-of-a-frame": FRAME + f"let n = 0; v.setInterval(() => {FLIP}(n++), 3)",
    "frames-of-a-frame": FRAME
    + f"let n = 0; const g = () => {{ {FLIP}(n++); v.requestAnimationFrame(g) }}; g()",
    "transition-of-a-frame": FRAME
    + f"const t = v.Document.prototype.startViewTransition; t && w.setTimeout(() => t.call(w.document, () => {{ {SWAP}; return new w.Promise(() => 1) }}), 9)",
    "transition-that-ends": FRAME
    + f"const t = v.Document.prototype.startViewTransition; t && t.call(w.document, () => {{ {SWAP} }})",
    "idle": f"w.requestIdleCallback(() => {{ {SWAP} }})",
    "task": f"w.scheduler && w.scheduler.postTask(() => {{ {SWAP} }}, {{ delay: 25 }})",
    "microtasks": f"let n = 0; const g = () => {{ if (++n === 9000) {{ {SWAP} }} else w.queueMicrotask(g) }}; g()",
    "microtasks-of-frames": f"let n = 0; const g = () => w.requestAnimationFrame(() => w.Promise.resolve().then(() => {{ {FLIP}(n++); g() }})); g()",
    "resize": f"w.addEventListener('resize', () => {{ {SWAP} }}); w.setTimeout(() => w.dispatchEvent(new w.Event('resize')), 15)",
    "scroll": f"el.style.marginTop = '1400px'; w.document.body.style.cssText = 'overflow: auto; height: auto'; w.addEventListener('scroll', () => {{ {SWAP} }}, true); w.setTimeout(() => {{ w.scrollTo(0, 1400); el.scrollIntoView() }}, 9)",
    "zoom": f"{SWAP}; w.setTimeout(() => {{ w.document.documentElement.style.zoom = '.02' }}, 9)",
    "scaled": f"{SWAP}; w.setTimeout(() => {{ w.document.body.style.transform = 'scale(0)' }}, 20)",
    "hidden-page": f"{SWAP}; w.setTimeout(() => {{ w.document.documentElement.style.display = 'none' }}, 20)",
    "print": f"w.addEventListener('beforeprint', () => {{ {SWAP} }}); w.matchMedia('print').addEventListener('change', () => {{ {SWAP} }})",
    "a-change-of-style": f"w.customElements.get('x-a') || w.customElements.define('x-a', class extends w.HTMLElement {{ static observedAttributes = ['style', 'class']; attributeChangedCallback() {{ {SWAP} }} }}); w.setTimeout(() => {{ const a = w.document.createElement('x-a'); a.textContent = 'beside'; el.after(a) }}, 9)",
    "iterations": f"let n = 0; el.animate([{{ opacity: 1 }}, {{ opacity: .99 }}], {{ duration: 8, iterations: Infinity }}); el.addEventListener('animationiteration', () => {FLIP}(n++)); w.setInterval(() => el.dispatchEvent(new w.Event('animationiteration')), 11)",
    "an-animation-that-cannot-finish": f"{SWAP}; const a = el.animate([{{ visibility: 'hidden' }}, {{ visibility: 'visible' }}], 900); a.playbackRate = 0",
    "an-animation-backwards": f"{SWAP}; const a = el.animate([{{ opacity: 0 }}, {{ opacity: 1 }}], {{ duration: 900, iterations: Infinity }}); a.playbackRate = -1",
    "an-animation-of-nothing": f"{SWAP}; const a = el.animate([{{ opacity: 0 }}, {{ opacity: 0 }}], 900); a.effect = null",
    "history": f"w.history.pushState({{}}, '', '/9?print=true&range=9'); w.history.replaceState({{}}, '', '/8'); w.setTimeout(() => {{ {SWAP} }}, 9)",
    "hash": f"w.location.hash = '#2'; w.addEventListener('hashchange', () => {{ {SWAP} }})",
    "navigation": f"w.navigation && w.navigation.addEventListener('navigate', e => e.canIntercept && e.intercept({{ handler: () => {{ {SWAP} }} }})); w.setTimeout(() => w.history.pushState({{}}, '', '/x'), 9)",
    "write": "w.setTimeout(() => { w.document.open(); w.document.write('<p>AFTER</p>'); w.document.close() }, 9)",
    "write-at-once": "w.document.write('<p>AFTER</p>')",
    "another-body": "w.setTimeout(() => { w.document.body.replaceWith(w.document.createElement('body')); w.document.body.textContent = 'AFTER' }, 9)",
    "another-document": "w.setTimeout(() => { const h = w.document.createElement('html'); h.textContent = 'AFTER'; w.document.documentElement.replaceWith(h) }, 9)",
    "a-decoy-before": decoy(
        "copy.style.cssText = 'position: absolute; z-index: -9'; own.before(copy)"
    ),
    "a-decoy-after": decoy(
        "copy.style.cssText = 'position: absolute; left: -9999px'; own.after(copy)"
    ),
    "a-decoy-with-the-number": decoy(
        "copy.style.cssText = 'position: absolute; inset: 0; z-index: -9; transform: rotate(1deg)'; own.before(copy); own.removeAttribute('data-slidev-no')"
    ),
    "a-decoy-around": decoy(
        "const c = d.createElement('div'); c.dataset.slidevNo = own.dataset.slidevNo; c.innerHTML = '<p style=\"position: absolute; top: 0; z-index: -5; transform: rotate(1deg)\">AFTER</p>'; own.replaceWith(c); c.append(own); own.style.cssText = 'background: white; position: absolute; inset: 0; z-index: 3'"
    ),
    "a-decoy-in-a-shadow": decoy(
        "const c = d.createElement('div'); own.before(c); c.attachShadow({ mode: 'open' }).append(copy); c.style.cssText = 'position: absolute; z-index: -9'"
    ),
    "the-slide-in-a-shadow": "w.setTimeout(() => { const own = "
    + NO
    + f", c = w.document.createElement('div'); {SWAP}; own.replaceWith(c); c.attachShadow({{ mode: 'closed' }}).append(own) }}, 9)",
    "the-slide-with-another-number": "w.setTimeout(() => { "
    + NO
    + f".dataset.slidevNo = '77'; {SWAP} }}, 9)",
    "under-a-frame": FRAME
    + "f.style.cssText = 'position: fixed; inset: 0; width: 980px; height: 552px; z-index: 99; border: 0; background: white'; el.textContent = 'AFTER'",
    "a-worker": f"try {{ const k = new w.Worker(w.URL.createObjectURL(new w.Blob(['let n = 0; setInterval(() => postMessage(n++), 3)']))); k.onmessage = e => {FLIP}(e.data) }} catch (e) {{}}",
}


def gif():
    frames = []
    for turn in range(2):
        im = Image.new("RGB", (300, 60), "white")
        draw = ImageDraw.Draw(im)
        for x in range(0, 300, 6):
            draw.rectangle((x + 3 * turn, 0, x + 3 * turn + 2, 60), fill="black")
        frames.append(im)
    out = io.BytesIO()
    frames[0].save(out, "GIF", save_all=True, append_images=frames[1:], duration=20, loop=0)
    return "data:image/gif;base64," + base64.b64encode(out.getvalue()).decode()


STRIPES = "".join(f"<rect x='{x}' width='3' height='400'/>" for x in range(0, 300, 6))
MOVES = "<animateTransform attributeName='transform' type='translate' values='0;3' calcMode='discrete' dur='0.02s' repeatCount='indefinite'/>"
MOVING = f"<svg xmlns='http://www.w3.org/2000/svg' width='300' height='400'><g>{STRIPES}{MOVES}</g></svg>"


def over(moving):
    return f'<div style="position: relative; width: 300px; height: 400px">{moving}<p style="position: absolute; left: 20px; top: 0; writing-mode: vertical-rl; height: 380px; {CLEAR}">{WORDS}</p></div>'


QUOTED = MOVING.replace("<", "%3C").replace(">", "%3E").replace("#", "%23")
FLICKER = {
    "a moving picture": over(
        f'<img style="position: absolute; width: 300px; height: 400px" src="{gif()}">'
    ),
    "a moving background": over(
        f'<div style="position: absolute; inset: 0; background: url({gif()}) 0 0 / 300px 400px"></div>'
    ),
    "a drawing that moves": over(f'<div style="position: absolute">{MOVING}</div>'),
    "a drawing that moves as a picture": over(
        f'<img style="position: absolute" src="data:image/svg+xml,{QUOTED}">'
    ),
    "a drawing that moves in a shadow": over(
        coded(
            "el.attachShadow({ mode: 'open' }).innerHTML = el.dataset.s",
            "",
            "div",
            f'style="position: absolute" data-s="{MOVING}"',
        )
    ),
    "a drawing that moves in a closed shadow": over(
        coded(
            "el.attachShadow({ mode: 'closed' }).innerHTML = el.dataset.s",
            "",
            "div",
            f'style="position: absolute" data-s="{MOVING}"',
        )
    ),
    "an animation of a shadow": over(
        coded(
            "el.attachShadow({ mode: 'closed' }).innerHTML = el.dataset.s",
            "",
            "div",
            'style="position: absolute; inset: 0" data-s="&lt;style&gt;@keyframes m { to { background-position: 3px } } div { height: 400px; background: repeating-linear-gradient(90deg, black 0 3px, white 3px 6px); animation: m 20ms steps(2) infinite }&lt;/style&gt;&lt;div&gt;&lt;/div&gt;"',
        )
    ),
    "a scroll timeline": over(
        '<style>\n@keyframes m2 { to { background-position: 3px } }\n#app .mt.mt { position: absolute; inset: 0; background: repeating-linear-gradient(90deg, black 0 3px, white 3px 6px); animation: m2 linear !important; animation-timeline: scroll() !important }\n</style>\n\n<div class="mt"></div>\n'
    ),
    "a frame that moves": over(
        coded(
            "const f = el.ownerDocument.createElement('iframe'); el.append(f); f.style.cssText = 'border: 0; width: 300px; height: 400px'; el.ownerDocument.defaultView.setTimeout(() => f.contentDocument.body.innerHTML = el.dataset.s)",
            "",
            "div",
            f'style="position: absolute" data-s="{MOVING}"',
        )
    ),
    "a loading bar": over(
        '<progress style="position: absolute; width: 300px; height: 400px"></progress>'
    ),
}


D = "w.__deck"
PAGE = {  # what a page's code does to what is asked of it
    "message-null": f"{D}.faults.push({{ where: 'page', message: null }})",
    "message-missing": f"{D}.faults.push({{}}, null, undefined, 7, 'x', [])",
    "message-long": f"{D}.faults.push({{ where: 'page', message: 'x'.repeat(3000000) }})",
    "messages-many": f"for (let i = 0; i < 100000; i++) {D}.faults.push({{ where: 'page', message: 'x' + i }})",
    "message-nested": f"let a = []; for (let i = 0; i < 900; i++) a = [a]; {D}.faults.push({{ where: a, message: a }})",
    "message-cyclic": f"const a = {{}}; a.a = a; {D}.faults.push(a, {{ where: a, message: a }})",
    "message-of-a-getter": f"{D}.faults.push({{ get where() {{ throw 1 }}, get message() {{ throw 2 }} }})",
    "message-of-a-proxy": f"{D}.faults.push(new w.Proxy({{}}, {{ get() {{ throw 1 }}, ownKeys() {{ throw 2 }} }}))",
    "message-of-numbers": f"{D}.faults.push({{ where: NaN, message: -0 }}, {{ where: Infinity, message: 1e308 }})",
    "message-of-a-bigint": f"{D}.faults.push({{ where: 1n, message: 10n ** 400n }})",
    "message-of-a-symbol": f"{D}.faults.push({{ where: w.Symbol('x'), message: w.Symbol('y') }})",
    "message-of-halves": f"{D}.faults.push({{ where: '\\ud800', message: '\\udc00x\\ud800' }})",
    "message-of-controls": f"{D}.faults.push({{ where: '\\0', message: '\\0\\x1b[31m\\r\\n\\u2028\\u202e' }})",
    "message-of-a-node": f"{D}.faults.push(w.document, w, el)",
    "faults-text": f"{D}.faults = 'x'.repeat(1000000)",
    "faults-number": f"{D}.faults = NaN",
    "faults-none": f"delete {D}.faults; delete {D}.diagrams",
    "faults-sparse": f"{D}.faults.length = 4000000000",
    "faults-getter": f"Object.defineProperty({D}, 'faults', {{ get() {{ throw 1 }} }})",
    "faults-function": f"{D}.faults = () => 1; {D}.diagrams = new w.Map([[1, 2]])",
    "diagram-elsewhere": f"{D}.diagrams.push({{ code: 'x', message: 'Parse error on line 99999999999999999999999' }}, {{ code: null, message: 'Lexical error on line 1e400' }})",
    "diagram-of-objects": f"{D}.diagrams.push({{ code: {{}}, message: [[]] }}, {{ code: '\\ud800'.repeat(99), message: '\\ud800' }})",
    "hooks-gone": f"{D}.fault = {D}.diagram = {D}.begin = {D}.fonts = null; throw new w.Error('x')",
    "to-json": "w.Object.prototype.toJSON = () => { throw 1 }; w.String.prototype.toJSON = () => 'x'.repeat(1000000)",
    "arrays": "w.setTimeout(() => { for (const k of ['slice', 'map', 'push', 'flatMap', 'some', 'forEach', 'filter']) w.Array.prototype[k] = () => { throw 1 } })",
    "maps": "w.setTimeout(() => { w.Map.prototype.set = w.Map.prototype.get = w.Set.prototype.has = () => { throw 1 } })",
    "json": "w.setTimeout(() => { w.JSON.stringify = w.JSON.parse = () => 'x'.repeat(99999) })",
    "strings": "w.setTimeout(() => { w.String.prototype.slice = w.String.prototype.trim = w.String.prototype.replace = () => 'x'.repeat(99999) })",
    "getters-of-all": "w.setTimeout(() => { w.Object.defineProperty(w.Object.prototype, 'where', { get() { throw 1 } }); w.Object.defineProperty(w.Object.prototype, 'message', { get() { return 7 } }) })",
    "first-of-all": "w.setTimeout(() => { w.Object.defineProperty(w.Array.prototype, '0', { set() { throw 1 }, get() { return 'x' } }) })",
    "measuring": "w.Element.prototype.getBoundingClientRect = w.Range.prototype.getClientRects = () => ({ left: NaN, right: NaN, top: NaN, bottom: NaN, width: NaN, height: NaN }); w.getComputedStyle = () => { throw 1 }",
    "console": "for (let i = 0; i < 500; i++) w.console.error('x'.repeat(9999), { i }, el); w.console.table(w.Array(999).fill({}))",
    "events": "for (let i = 0; i < 500; i++) w.dispatchEvent(new w.ErrorEvent('error', { error: { get message() { throw 1 } }, message: 'x'.repeat(9999) }))",
    "rejections": "for (let i = 0; i < 300; i++) w.Promise.reject(new w.Proxy({}, { get() { throw 1 } })); w.Promise.reject(null); w.Promise.reject(w.Symbol())",
    "throws-null": "throw null",
    "throws-symbol": "throw w.Symbol('x')",
    "throws-what-throws": "throw { get message() { throw 1 }, toString() { throw 2 } }",
    "throws-a-long-message": "throw { message: { toString: () => 'x'.repeat(3000000) } }",
    "stacks": "w.Error.prepareStackTrace = () => { throw 1 }; throw new w.Error('\\ud800'.repeat(9999))",
    "title-long": "el.innerHTML = '<h1>' + 'Title '.repeat(20000) + '</h1>'",
    "text-long": "el.textContent = 'word '.repeat(60000)",
    "tag-long": "const a = w.document.createElement('x-' + 'y'.repeat(30000)); a.textContent = 'text'; a.style.cssText = 'display: block; position: absolute; top: 2000px'; el.append(a)",
    "picture-long": "el.innerHTML = '<img src=\\'/' + 'y'.repeat(90000) + '\\'>'.repeat(2)",
    "pictures-many": "el.innerHTML = Array.from({ length: 300 }, (_, i) => '<img src=\\'/n' + i + '.png\\'>').join('')",
    "elements-many": "el.innerHTML = '<p>word</p>'.repeat(2000)",
    "halves": "el.textContent = '\\ud800 half \\udc00 of a pair \\ud83d'.repeat(40)",
    "controls": "el.textContent = '\\0\\x01\\x1b[31m red \\u2028 \\ufeff \\uffff \\u202e back'",
    "no-numbers": "el.style.cssText = 'font-size: calc(NaN * 1px); width: calc(infinity * 1px); rotate: calc(NaN * 1deg); opacity: calc(-0 + 1)'",
    "far-away": "el.style.cssText = 'transform: translate(1e30px, -1e30px) scale(1e30); position: absolute'",
    "infinite": "el.style.cssText = 'transform: matrix(1e38, 0, 0, 1e38, 1e38, 1e38); scale: 1e38; font-size: 1e38px'",
    "no-matrix": "el.style.cssText = 'transform: perspective(0) matrix3d(0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0); zoom: 1e9'",
    "names-of-the-document": "el.innerHTML = ['querySelectorAll', 'createRange', 'getAnimations', 'adoptedStyleSheets', 'createTreeWalker', 'fonts', 'timeline', 'body', 'documentElement', 'defaultView'].map(n => '<img name=' + n + '>').join('') + 'text'",
    "names-of-a-form": "el.innerHTML = '<form>' + ['localName', 'getClientRects', 'closest', 'parentElement', 'shadowRoot', 'children', 'matches', 'innerText', 'style', 'firstChild', 'getRootNode', 'ownerSVGElement', 'textContent'].map(n => '<input name=' + n + '>').join('') + 'text</form>'",
    "names-of-the-window": "el.innerHTML = '<p id=letters></p><p id=globalThis></p><a id=__deck></a><form name=location></form>text'",
    "the-window-gone": "for (const k of ['setTimeout', 'Promise', 'Map', 'document', 'getComputedStyle', 'Number', 'Error']) try { w[k] = null } catch (e) {}",
    "prototypes-frozen": "for (const k of ['Object', 'Array', 'Function', 'Element', 'Node', 'Document', 'Promise']) w.Object.freeze(w[k].prototype)",
    "prototype-gone": "w.Object.setPrototypeOf(w.__deck, null); w.Object.setPrototypeOf(el, null); w.Object.setPrototypeOf(w.document, null)",
}


LONG = pytest.mark.long


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("part", [slice(0, None, 4), pytest.param(slice(None), marks=LONG)])
def test_picture_and_measure_are_of_one_moment_and_one_slide(tmp_path, part):
    some = dict([*ONE_MOMENT.items()][part])
    value, read, classes = shown(tmp_path, "a", [*map(slide, some.values()), LIST])
    wrong = {}
    for n, name in enumerate(some, 1):
        picture = Image.open(tmp_path / value["slides"][n - 1]).convert("RGB")
        red = (255, 0, 0) in {colour for _, colour in picture.getcolors(1 << 20)}
        after = "AFTER" in read.get(n, "")
        # What is read is seen; what is seen and not read is too small, or said.
        if (after and not red) or (red and not after and name != "zoom" and n not in classes):
            wrong[name] = after, red, classes.get(n)
    assert wrong == {}
    assert "one" in read[len(some) + 1]


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("part", [0, *(pytest.param(n, marks=LONG) for n in (1, 2, 3))])
def test_what_a_page_says_of_itself_is_bounded_and_costs_its_own_slide(tmp_path, part):
    some = [*PAGE.values()][part::4]
    bodies = [LIST, LIST, *map(slide, some), LIST]
    value, _, classes = shown(tmp_path, "a", bodies)
    assert misfit(value, Render, without=("engine", "by")) is None
    assert len(stream.dumps(value)) < 1 << 20
    assert {*classes} <= {*range(3, len(bodies))}
    lines = (tmp_path / "a/deck.md").read_text().count("\n") + 1
    assert all(1 <= error["line"] <= lines for error in value["errors"])
    assert not any(
        ord(sign) < 9 or sign == "\x1b" for e in value["errors"] for sign in e["message"]
    )
    pictures = [(tmp_path / value["slides"][at]).read_bytes() for at in (1, -1)]
    assert pictures[0] == pictures[1]


FEW = [
    ONE_MOMENT["frames-of-a-frame"],
    ONE_MOMENT["a-decoy-with-the-number"],
    PAGE["message-nested"],
    PAGE["title-long"],
]


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_what_moves_stands_where_it_stands_in_every_picture_and_is_not_taken_for_letters(tmp_path):
    bodies = [*(f"# Slide\n\n{body}" for body in FLICKER.values()), LIST]
    (one, read, _), (again, _, _) = (shown(tmp_path, name, bodies) for name in "ab")
    assert [name for n, name in enumerate(FLICKER, 1) if "heron" in read.get(n, "")] == []
    assert "one" in read[len(FLICKER) + 1]
    others = [
        name
        for name, *two in zip([*FLICKER, "the list"], one["slides"], again["slides"], strict=True)
        if len({(tmp_path / picture).read_bytes() for picture in two}) > 1
    ]
    assert others == []


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.long(
    "tests/hostile/test_walls.py::test_where_there_are_no_walls_nothing_is_rendered_unless_that_is_accepted"
)
def test_an_ordinary_user_without_namespaces_has_the_same_pictures_and_errors(tmp_path):
    bodies = [*map(slide, FEW[1:]), f"# Slide\n\n{FLICKER['an animation of a shadow']}", LIST]
    value, _, _ = shown(tmp_path, "a", bodies)
    record = written(tmp_path / "run", "a", bodies)
    for folder in (tmp_path, tmp_path / "run", tmp_path / "run/a"):
        folder.chmod(0o777)
    done = subprocess.run(
        [
            *(sys.executable, "-c", ORDINARY),
            *(cli.ROOT / "bin/deck-render", "--run", tmp_path / "run", "--walls", "plain"),
        ],
        input=json.dumps(record),
        capture_output=True,
        text=True,
        env={**os.environ, "IMAGES": "off", "DECKSMITH_RENDERS": "off", "DECKSMITH_WALLS": ""},
    )
    if "max_user_namespaces" in done.stderr or "AssertionError" in done.stderr:
        pytest.skip("this machine does not let a test become such a user")
    assert done.returncode == 0, done.stderr
    other = json.loads(done.stdout)["render"]
    assert other["by"]["walls"] == "plain"
    assert other["errors"] == value["errors"] and other["xray"] == value["xray"]
    for name in value["slides"]:
        assert (tmp_path / name).read_bytes() == (tmp_path / "run" / name).read_bytes(), name


BOX = {"kind": "text", "tag": "p", "box": [10, 10, 90, 20], "text": "one"}
INKED = {**BOX, "line": [10.0, 10, 90, 20], "ink": "0f" * 16}
MEASURED = {"slide": 1, "line": 1, "title": "One", "text": "one", "boxes": [INKED]}
ERROR = {"kind": "model", "class": "blank", "slide": 1, "line": 1, "message": "nothing"}


def page(**more):
    return {"xray": [{**MEASURED, **more}]}


def box(**more):
    return page(boxes=[{**INKED, **more}])


DAMAGED = {  # what a kept record says, and what of it is named
    "message-null": ({"errors": [{**ERROR, "message": None}]}, "errors.0.message"),
    "message-long": ({"errors": [{**ERROR, "message": "x" * 60_000}]}, "errors.0.message"),
    "message-gone": ({"errors": [{"kind": "model", "class": "x"}]}, "errors.0.message"),
    "kind-unknown": ({"errors": [{**ERROR, "kind": "nobody"}]}, "errors.0.kind"),
    "errors-text": ({"errors": "none"}, "errors"),
    "errors-many": ({"errors": [ERROR] * 300}, "errors"),
    "decisive-error-of-nothing": ({"error": {}}, "error.kind"),
    "ink-not-hexadecimal": (box(ink="zz"), "xray.0.boxes.0.ink"),
    "ink-odd": (box(ink="0"), "xray.0.boxes.0.ink"),
    "ink-empty": (box(ink=""), "xray.0.boxes.0.ink"),
    "ink-long": (box(ink="0f" * 801), "xray.0.boxes.0.ink"),
    "ink-number": (box(ink=7), "xray.0.boxes.0.ink"),
    "ink-without-a-line": (page(boxes=[{**BOX, "ink": "00"}]), "xray.0.boxes"),
    "line-short": (box(line=[1.0]), "xray.0.boxes.0.line"),
    "line-text": (box(line=["1"] * 4), "xray.0.boxes.0.line.0"),
    "box-short": (box(box=[1, 2]), "xray.0.boxes.0.box"),
    "box-far": (box(box=[10**12, 0, 1, 1]), "xray.0.boxes.0.box.0"),
    "box-gone": (page(boxes=[{"kind": "text", "tag": "p"}]), "xray.0.boxes.0.box"),
    "box-null": (page(boxes=[None]), "xray.0.boxes.0"),
    "on-nothing": (box(on=[[9, 0.5]]), "xray.0.boxes"),
    "on-below": (box(on=[[-1, 0.5]]), "xray.0.boxes.0.on.0.0"),
    "on-a-number": (box(on=[7]), "xray.0.boxes.0.on.0"),
    "size-text": (box(size="16"), "xray.0.boxes.0.size"),
    "contrast-huge": (box(contrast=1e300), "xray.0.boxes.0.contrast"),
    "boxes-many": (page(boxes=[BOX] * 61), "xray.0.boxes"),
    "boxes-object": (page(boxes={"0": BOX}), "xray.0.boxes"),
    "slide-gone": ({"xray": [{"line": 1}]}, "xray.0"),
    "slide-true": (page(slide=True), "xray.0.slide"),
    "page-null": ({"xray": [None]}, "xray.0"),
    "text-null": (page(text=None), "xray.0.text"),
    "text-long": (page(text="x" * 200_000), "xray.0.text"),
    "words-negative": (page(words=-1), "xray.0.words"),
    "share-of-two": (page(overlap=2), "xray.0.overlap"),
    "overflow-of-z": (page(overflow={"z": 1}), "xray.0.overflow.z"),
    "picture-elsewhere": ({"slides": ["../../etc/1.png"]}, "slides.0"),
    "picture-of-the-root": ({"slides": ["/etc/1.png"]}, "slides.0"),
    "picture-without-a-number": ({"slides": ["a/slides/x.png"]}, "slides.0"),
    "expected-text": ({"expected": "3"}, "expected"),
}


def kept(name, more):
    value = {"status": "ok", "slides": [], "expected": 1, "errors": [], **page(), **more}
    by = {"tool": "deck-render", "inputs": None}
    return {"id": name, "deck": {"path": f"{name}/deck.md"}, "render": {**value, "by": by}}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_render_is_an_error_of_its_record(tmp_path, name, capsys):
    more, place = DAMAGED[name]
    stream.write_records(tmp_path / "rows", [kept("a", {}), kept("b", more), kept("c", {})])
    a, b, c = (row for _, row in stream.records(tmp_path / "rows", DeckRecord))
    assert (a, c) == (kept("a", {}), kept("c", {}))
    assert [*b["render"]] == ["error"] and b["render"]["error"]["class"] == "bad-record"
    assert f"run deck-render again: {place}" in capsys.readouterr().err
    assert not render_pool.intact(tmp_path, kept("b", more)["render"])
    assert render_pool.intact(tmp_path, a["render"])


@pytest.mark.parametrize("script", [["deck-xray"], ["deck-xray", "--json"], ["deck-score"]])
def test_a_damaged_render_ends_no_batch(tmp_path, script):
    rows = [kept("first", page(boxes=[{**INKED, "size": 3.0}]))]
    rows += [kept(name, more) for name, (more, _) in DAMAGED.items()]
    rows.append({**rows[0], "id": "last", "deck": {"path": "last/deck.md"}})
    for row in rows:
        written(tmp_path, row["id"], ["# One\n\none"])
    given = ["--run", tmp_path] if script[0] == "deck-xray" else []
    done = subprocess.run(
        [cli.ROOT / "bin" / script[0], *script[1:], *given],
        input="".join(json.dumps(row) + "\n" for row in rows),
        capture_output=True,
        text=True,
        env={**os.environ, "IMAGES": "off"},
    )
    assert "Traceback" not in done.stderr and done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert done.stderr.count("its render is damaged") == len(DAMAGED)
    if script[1:] or not given:
        assert [json.loads(line)["id"] for line in said] == [row["id"] for row in rows]
    else:
        assert [line.partition("/")[0] for line in said] == ["first", "last"]


def test_what_is_too_long_is_cut_and_what_does_not_fit_is_said():
    long = {**MEASURED, "text": "x" * 200_000, "boxes": [{**INKED, "tag": "y" * 99}] * 70}
    assert "text: string should have at most" in cut(long, Page)
    assert (len(long["text"]), len(long["boxes"]), len(long["boxes"][0]["tag"])) == (
        100_000,
        60,
        80,
    )
    assert cut(long, Page) is None
    with pytest.raises(ValueError, match="words"):
        cut({**MEASURED, "words": float("nan")}, Page)
