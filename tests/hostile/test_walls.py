"""Each wall alone: the policy without a cell or a browser, the cell without the policy, Node's permissions without the cell, the browser
without any of them. What one wall would let through must not depend on another."""
# ruff: noqa: E501 (decks stand in single lines here)

import asyncio
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import waits
from decksmith.core import cells, cli
from decksmith.core.protocol import Protocol
from decksmith.measure.render import cell, toolchain, worker
from decksmith.measure.render import pool as render_pool

pytestmark = pytest.mark.browser

HERE = Path(__file__).parent
HEAD = "---\ntheme: default\n---\n\n# T\n\n"  # what follows begins on line 7
FORBIDDEN = {  # name: (deck, what must not be left of it)
    "link-in-other-letters": (
        '<LINK rel="prefetch" href="http://x/"><linK rel="prefetch" href="http://x/"><component is="link" href="http://x/" />',
        "http://x",
    ),
    "frame": ('<iframe src="http://x/"></iframe>', "iframe"),
    "frame-between-ticks": (
        '<div title="`"><iframe src="http://x/"></iframe><b title="`">x</b></div>',
        "iframe",
    ),
    "frame-between-fences-in-html": (
        '<div>\n```\n<iframe src="x"></iframe>\n```\n</div>',
        "iframe",
    ),
    "frame-by-component": ('<component is="iframe" src="x" />', "iframe"),
    "frame-in-upper-case": ('<IFRAME\nsrc="x">', "(?i)iframe"),
    "object-between-indented-fences": (
        'text\n\n    ```\n\n<object data="x"></object>\n\n    ```',
        'object data|data: "x"',
    ),
    "embed-after-a-fence-that-is-not-closed": (
        '```js\n1\n```js\n\n<embed src="x">\n\n```\n2\n```',
        "embed",
    ),
    "handler": ('<b onclick="x()">a</b>', "onclick"),
    "handler-between-ticks": ('<b title="`" onclick="x()">a</b><i title="`" />', "onclick"),
    "handler-of-vue": ('<b title="`" @click.once="x()">a</b><i title="`" />', "(?i)onclick"),
    "html": ('<b title="`" v-html="\'<i>\'">a</b><i title="`" />', "innerHTML"),
    "html-by-name": ('<b title="`" :innerHTML="\'<i>\'">a</b><i title="`" />', "innerHTML"),
    "document": ('<b title="`" srcdoc="x">a</b><i title="`" />', "srcdoc"),
    "any-element": ('<component title="`" :is="\'iframe\'" src="x" /><i title="`" />', "iframe"),
    "script": ("<script setup>\nimport x from 'y'\n</script>", "from 'y'"),
    "import": ('<b title="`" :a="import(\'y\')">a</b><i title="`" />', r"import\('y'\)"),
    "meta": (
        '<link rel="preconnect" href="http://x/"><base href="http://x/"><meta http-equiv=refresh content="0;url=http://x/">',
        "http://x",
    ),
    "snippet": ("<<< /etc/hostname", "<<<"),
    "snippet-in-a-list": ("- a\n- <<< /etc/hostname", "hostname"),
}


def node(*args, **options):
    return subprocess.run(
        [toolchain.node().resolve(), *args],
        capture_output=True,
        text=True,
        timeout=waits.HANG,
        **options,
    )


KEYS = "addons export remoteAssets plantUmlServer config shiki setup vite unocss".split()
FRONT = [f"---\ntheme: default\n{key}: ./x\n---\n\n# T\n" for key in KEYS]
FRONT += ["---\ntheme: default\nsrc: ./x\n---\n\n# T\n\n---\n\n# U\n"]
FRONT += [
    f"---\ntheme: {theme}\n---\n\n# T\n"
    for theme in ("./x", "/tmp/x", "'@slidev/theme-default'", "../..", "[default]")
]


@pytest.fixture(scope="module")
def compiled():
    """What the compiler says of each deck of FORBIDDEN, and of FRONT: one process for both."""
    decks = [HEAD + text + "\n" for text, _ in FORBIDDEN.values()] + FRONT
    done = node(HERE / "compile.mjs", input="".join(json.dumps(deck) + "\n" for deck in decks))
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == len(decks)
    return found[: len(FORBIDDEN)], found[len(FORBIDDEN) :]


def test_the_policy_alone_takes_out_what_is_forbidden_however_it_is_disguised(compiled):
    for (name, (_, rest)), found in zip(FORBIDDEN.items(), compiled[0], strict=True):
        assert {cls for cls, _ in found["errors"]} == {"forbidden"}, (name, found["errors"])
        assert all(7 <= line <= 13 for _, line in found["errors"]), (name, found["errors"])
        own = re.sub(r"^import .* from '/@rt/.*$", "", found["modules"], flags=re.M)
        assert not re.search(rest, own), (name, own)


def test_the_policy_alone_lets_no_key_of_the_frontmatter_name_code_a_file_or_a_server(compiled):
    found = [one["errors"] for one in compiled[1]]
    assert found[:-5] == [[["forbidden", 3]]] * (len(KEYS) + 1)
    assert found[-5:] == [[["unknown-theme", 2]]] * 5


PROBE = """
import fs from 'node:fs'
import net from 'node:net'
import os from 'node:os'
const [file, port, outside] = process.argv.slice(-3)
const attempt = what => { try { return what() ?? 'did' } catch (error) { return error.code ?? String(error) } }
const call = host => new Promise(resolve => net.connect(+port, host).on('connect', () => resolve('did')).on('error', error => resolve(error.code)).setTimeout(3000, () => resolve('slow')))
const status = Object.fromEntries(fs.readFileSync('/proc/self/status', 'utf8').split('\\n').map(line => line.split(':\\t')))
console.log(JSON.stringify({
  read: attempt(() => fs.readFileSync(file, 'utf8')), folder: attempt(() => fs.readdirSync(outside)), write: attempt(() => fs.writeFileSync(outside + '/new', 'x')),
  change: attempt(() => fs.writeFileSync(process.env.RENDERER + '/page.mjs', 'x', { flag: 'r+' })),
  large: attempt(() => { const f = fs.openSync(process.env.HOME + '/large', 'w'); fs.ftruncateSync(f, 300 << 20) }),
  call: await call('127.0.0.1'), out: await call('192.0.2.1'), uid: process.getuid(), caps: status.CapEff, bound: status.CapBnd, nnp: status.NoNewPrivs.trim(), environment: Object.keys(process.env).sort(),
  processes: fs.readdirSync('/proc').filter(name => /^\\d+$/.test(name)).length, interfaces: Object.keys(os.networkInterfaces()) }))
"""


def granted(walls):
    """Whether this host grants these walls."""
    folder, lock = cell.private_folder()
    try:
        command = cells.enclosed(
            (walls, True),
            folder,
            [toolchain.node().resolve(), "--version"],
            cell.readable(),
        )
        return asyncio.run(cell.run(command, folder))[0] == 0
    finally:
        os.rmdir(folder)
        os.close(lock)


@pytest.mark.parametrize("walls", ["full", "shared-pids", "plain"])
def test_the_cell_alone_keeps_what_runs_in_it_from_files_ports_processes_and_privileges(
    walls, canary, tmp_path, monkeypatch
):
    if not granted(walls):
        pytest.skip(f"this host does not grant the walls {walls}")
    monkeypatch.setenv("CANARY_ENV", "CANARY")
    secret = tmp_path / "secret"
    secret.write_text("CANARY")
    secret.chmod(0o600)
    inside, root = walls != "plain", os.geteuid() == 0
    before = (toolchain.RENDERER / "page.mjs").read_bytes()
    # An ordinary user's plain walls keep no file of his: what may be overwritten is a copy.
    renderer = toolchain.RENDERER.resolve() if inside or root else tmp_path
    if renderer == tmp_path:
        (tmp_path / "page.mjs").write_bytes(before)
    folder, lock = cell.private_folder()
    home = folder / "0"
    home.mkdir(mode=0o700)
    done = subprocess.run(
        cells.enclosed(
            (walls, True),
            home,
            [
                toolchain.node().resolve(),
                "--input-type=module",
                "-e",
                PROBE,
                secret,
                str(canary.port),
                tmp_path,
            ],
            cell.readable(),
        ),
        env={
            **toolchain.environment(),
            "HOME": str(home),
            "RENDERER": str(renderer),
        },
        capture_output=True,
        text=True,
        timeout=waits.HANG,
    )
    os.close(lock)
    subprocess.run(["rm", "-rf", folder], check=True)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["environment"] == sorted(
        {"HOME", "LANG", "NODE_ENV", "PATH", "RENDERER", "TZ"}
        | {"BROWSER_SANDBOX", "PWD"} & set(said["environment"])
        | set(toolchain.environment())
    )
    assert (int(said["caps"], 16), said["nnp"]) == (0, "1")
    assert said["large"] == "EFBIG"
    assert said["uid"] != 0 and (not root or 61184 <= said["uid"] < 65520)
    if inside or root:
        assert (
            said["read"] in ("ENOENT", "EACCES")
            and said["folder"] in ("ENOENT", "EACCES")
            and said["write"] in ("ENOENT", "EACCES")
        )
        assert said["change"] in ("EROFS", "EACCES")
        assert not (tmp_path / "new").exists()
    if inside:
        assert (said["call"], said["out"], said["interfaces"]) == (
            "ECONNREFUSED",
            "ENETUNREACH",
            ["lo"],
        )
        assert canary.hits == []
    if walls == "full":
        assert said["processes"] == 1
    assert (toolchain.RENDERER / "page.mjs").read_bytes() == before


def test_node_s_permissions_alone_keep_the_worker_from_other_files(tripwire, tmp_path):
    wire = tripwire(tmp_path / "canary")
    script = f"""import fs from 'node:fs'
      const attempt = what => {{ try {{ return what() ?? 'did' }} catch (error) {{ return error.code }} }}
      console.log(JSON.stringify([attempt(() => fs.readFileSync({json.dumps(wire.path)})), attempt(() => fs.writeFileSync({json.dumps(str(tmp_path / "new"))}, 'x')),
        attempt(() => fs.readFileSync({json.dumps(str(toolchain.RENDERER.resolve() / "package.json"))}) && 'did'), fs.existsSync({json.dumps(wire.path)})]))"""
    root = toolchain.RENDERER.resolve()
    done = node(
        "--no-warnings",
        "--permission",
        f"--allow-fs-read={root}",
        "--import",
        root / "wall.mjs",
        "--input-type=module",
        "-e",
        script,
    )
    assert json.loads(done.stdout) == ["ENOENT", "ERR_ACCESS_DENIED", "did", False], done.stderr
    assert not wire.opened and not (tmp_path / "new").exists()


def test_the_browser_alone_reaches_nothing_but_our_origin(canary, tmp_path):
    attack = """
      const P = PORT, hosts = ['127.0.0.1', 'localhost', '[::1]', '0.0.0.0', '127.1', '2130706433', 'x.localhost'].map(host => host + ':' + P)
      const attempt = what => { try { const made = what(); made?.catch?.(() => {}) } catch {} }
      const add = (tag, set) => attempt(() => document.body.append(Object.assign(document.createElement(tag), set)))
      for (const host of hosts) {
        const url = 'http://' + host + '/'
        attempt(() => fetch(url, { mode: 'no-cors' })); attempt(() => navigator.sendBeacon(url, 'x')); attempt(() => new WebSocket('ws://' + host)); attempt(() => new EventSource(url))
        attempt(() => new WebTransport('https://' + host)); attempt(() => new Worker(url)); attempt(() => new SharedWorker(url)); attempt(() => importScripts(url)); attempt(() => import(url))
        for (const rel of ['prefetch', 'preconnect', 'dns-prefetch', 'preload', 'modulepreload', 'stylesheet', 'icon', 'manifest', 'prerender']) add('link', { rel, href: url, as: 'image' })
        add('img', { src: url, srcset: url + 'b 2x' }); add('iframe', { src: url }); add('object', { data: url }); add('embed', { src: url }); add('video', { src: url, poster: url }); add('audio', { src: url })
        add('script', { src: url }); add('input', { type: 'image', src: url })
        add('style', { textContent: `@import '${url}'; @font-face { font-family: x; src: url(${url}) } body { font-family: x; background: url(${url}) }` })
        add('script', { type: 'speculationrules', textContent: JSON.stringify({ prefetch: [{ source: 'list', urls: [url] }], prerender: [{ source: 'list', urls: [url] }] }) })
        attempt(() => { const form = document.createElement('form'); form.action = url; form.method = 'post'; form.target = 'x'; add('iframe', { name: 'x' }); document.body.append(form); form.submit() })
        attempt(() => { const rtc = new RTCPeerConnection({ iceServers: [{ urls: 'stun:' + host }, { urls: 'turn:' + host + '?transport=tcp', username: 'x', credential: 'x' }] }); rtc.createDataChannel('x'); rtc.createOffer().then(offer => rtc.setLocalDescription(offer)) })
        attempt(() => open(url)); attempt(() => fetch('file:///etc/hostname')); add('iframe', { src: 'file:///etc/hostname' })
      }
      const kept = []
      const service = navigator.serviceWorker ? navigator.serviceWorker.register('/sw.js').then(() => kept.push('service worker'), () => {}) : 0
      setTimeout(() => fetch('/said?ran ' + kept), 2500)
    """.replace("PORT", str(canary.port))
    done = node(HERE / "browse.mjs", attack, tmp_path, env=toolchain.environment())
    assert done.stdout.strip() == "ran", (done.stdout, done.stderr[-500:])
    assert canary.hits == []


def test_the_browser_has_a_sandbox_of_its_own_where_the_kernel_allows_it(tmp_path):
    if not granted("full"):
        pytest.skip("no namespaces on this host")
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "deck.md").write_text(HEAD + '<div :ref="() => { while (true) {} }" />\n')

    def said(pid):
        return dict(
            line.split(":\t", 1)
            for line in Path(f"/proc/{pid}/status").read_text().splitlines()
            if ":\t" in line
        )

    async def go():
        pool = render_pool.Pool(Protocol.load("offline"))
        work = asyncio.ensure_future(
            pool.render(tmp_path, {"id": "x", "deck": {"path": "x/deck.md"}})
        )
        try:
            while True:
                await asyncio.sleep(0.1)
                for pid in (
                    worker.tree(pool.workers[0].process.pid) if pool.workers[0].process else []
                ):
                    command = Path(f"/proc/{pid}/cmdline").read_bytes()
                    if b"--type=renderer" not in command:
                        continue
                    if work.done() or said(pid)["Seccomp"] == "2":  # it begins without
                        return said(pid), [
                            os.readlink(f"/proc/{process}/ns/net") for process in (pid, "self")
                        ]
        finally:
            work.cancel()
            await pool.close()

    status, (theirs, ours) = asyncio.run(go())
    assert (status["Seccomp"], status["NoNewPrivs"], int(status["CapEff"], 16)) == ("2", "1", 0)
    assert "0" not in status["Uid"].split() and theirs != ours


def test_a_cell_that_cannot_be_had_is_refused_before_the_command_runs(tmp_path):
    spec = {
        "home": str(tmp_path),
        "read": [],
        "walls": "full",
        "parent": os.getpid() + 1,
        "become": True,
    }
    done = subprocess.run(
        [sys.executable, "-IS", cells.CELL, json.dumps(spec), "/bin/echo", "ran"],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (125, "")
    spec |= {"parent": os.getpid(), "walls": "plain"}
    done = subprocess.run(
        [sys.executable, "-IS", cells.CELL, json.dumps(spec), cli.ROOT / "nothing"],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr.count("\n")) == (125, 1)
    assert re.fullmatch(r"cell: .*(nothing: No such file|Permission denied).*\n", done.stderr)


async def render_one(folder):
    """The `render` value of a small deck, by a pool of its own."""
    (folder / "a").mkdir(exist_ok=True)
    (folder / "a/deck.md").write_text("# One\n\n---\n\n# Two\n\n---\n\n# Three\n")
    pool = render_pool.Pool(Protocol.load("offline"))
    try:
        return await pool.render(folder, {"id": "a", "deck": {"path": "a/deck.md"}})
    finally:
        await pool.close()


def test_where_there_are_no_walls_nothing_is_rendered_unless_that_is_accepted(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(cells, "WALLS", [("plain", True)])
    monkeypatch.delenv("DECKSMITH_WALLS", raising=False)
    with pytest.raises(cli.Missing, match="grants no namespaces.*--walls plain") as refused:
        asyncio.run(render_one(tmp_path))
    assert refused.value.status == 69
    monkeypatch.setenv("DECKSMITH_WALLS", "plain")
    found = asyncio.run(render_one(tmp_path))
    assert (found["status"], found["by"]) == ("ok", {"walls": "plain"})
    assert "with your files and your network" in capsys.readouterr().err


# Becomes an ordinary user for whom the kernel makes no namespaces, and then the command.
ORDINARY = """
import ctypes, os, sys
uid, gid = os.getuid(), os.getgid()
assert ctypes.CDLL(None, use_errno=True).unshare(0x10000000) == 0
for name, text in (("setgroups", "deny"), ("uid_map", f"1000 {uid} 1"), ("gid_map", f"1000 {gid} 1")):
    with open(f"/proc/self/{name}", "w") as file: file.write(text)
with open("/proc/sys/user/max_user_namespaces", "w") as file: file.write("0")
os.execv(sys.argv[1], sys.argv[1:])
"""


@pytest.mark.long("test_where_there_are_no_walls_nothing_is_rendered_unless_that_is_accepted")
def test_an_ordinary_user_without_namespaces_is_told_and_can_accept_it(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a/deck.md").write_text("# One\n\n---\n\n# Two\n\n---\n\n# Three\n")
    record = json.dumps({"id": "a", "deck": {"path": "a/deck.md"}})

    def deck_render(*options):
        return subprocess.run(
            [
                sys.executable,
                "-c",
                ORDINARY,
                cli.ROOT / "bin/deck-render",
                "--run",
                tmp_path,
                *options,
            ],
            input=record,
            capture_output=True,
            text=True,
            timeout=waits.HANG,
            env={**os.environ, "IMAGES": "off", "DECKSMITH_RENDERS": "off", "DECKSMITH_WALLS": ""},
        )

    refused = deck_render()
    if "max_user_namespaces" in refused.stderr or "AssertionError" in refused.stderr:
        pytest.skip("this machine does not let a test become such a user")
    assert (
        refused.returncode == 69
        and "grants no namespaces" in refused.stderr
        and refused.stdout == ""
    )
    accepted = deck_render("--walls", "plain")
    assert accepted.returncode == 0, accepted.stderr
    assert json.loads(accepted.stdout)["render"]["by"]["walls"] == "plain"
    assert "with your files and your network" in accepted.stderr
