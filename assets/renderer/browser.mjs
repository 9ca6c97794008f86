/**
 * The pinned browser: unpacked once in the folder of @sparticuz/chromium, started behind a pipe, spoken to in raw CDP.
 *
 * A pipe instead of a port has two reasons: no other process of the host can drive the browser, and the browser ends by itself when
 * its parent dies in whatever way (its end of the pipe closes).
 */
import { spawn } from 'node:child_process'
import { createHash } from 'node:crypto'
import fs from 'node:fs'
import path from 'node:path'
import zlib from 'node:zlib'

export const ROOT = import.meta.dirname
const TOOLCHAIN = process.env.DECKSMITH_TOOLCHAIN // set in an image, which has packages of its own
export const MODULES = TOOLCHAIN ? path.join(TOOLCHAIN, 'assets/renderer/node_modules') : path.join(ROOT, 'node_modules')
export const CACHE = process.env.DECKSMITH_RENDER_CACHE || path.join(MODULES, '.cache', 'decksmith')

const BROWSER = path.join(MODULES, '@sparticuz', 'chromium', 'unpacked')
export const PACKED = path.join(BROWSER, '..', 'bin')

export function sha256(...parts) {
  const hash = createHash('sha256')
  for (const part of parts)
    hash.update(part)
  return hash.digest('hex')
}

/** Makes folder `target` with `fill(tmp)` exactly once: concurrent callers may both fill, one rename wins. */
export async function once(target, fill) {
  if (fs.existsSync(target))
    return target
  const tmp = `${target}.${process.pid}.${Date.now()}.tmp`
  fs.mkdirSync(tmp, { recursive: true })
  try {
    await fill(tmp)
    fs.renameSync(tmp, target)
  }
  catch (error) {
    fs.rmSync(tmp, { recursive: true, force: true })
    if (!fs.existsSync(target))
      throw error
  }
  return target
}

/** Files of a ustar archive as [name, bytes]; folders and links are left out. */
function* untar(bytes) {
  for (let at = 0; at + 512 <= bytes.length && bytes[at];) {
    const text = (from, size) => bytes.toString('latin1', at + from, at + from + size).split('\0')[0]
    const size = Number.parseInt(text(124, 12), 8)
    if (text(156, 1) === '0' || text(156, 1) === '')
      yield [path.basename(text(0, 100)), bytes.subarray(at + 512, at + 512 + size)]
    at += 512 + Math.ceil(size / 512) * 512
  }
}

/** Folder with the browser `chromium`, the libraries it needs in `lib/`, and our fonts.conf. */
export async function unpack() {
  return once(BROWSER, async (tmp) => {
    const unbrotli = name => zlib.brotliDecompressSync(fs.readFileSync(path.join(PACKED, name)))
    fs.writeFileSync(path.join(tmp, 'chromium'), unbrotli('chromium.br'), { mode: 0o755 })
    fs.mkdirSync(path.join(tmp, 'lib'))
    for (const [name, bytes] of untar(unbrotli('al2023.tar.br')))
      fs.writeFileSync(path.join(tmp, 'lib', name), bytes, { mode: 0o755 })
    // Only our fonts exist for the browser: pages name theirs by @font-face, this is what generic families and rare symbols fall back to.
    const conf = ['<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd"><fontconfig><dir prefix="relative">../../../dejavu-fonts-ttf/ttf</dir>',
      '<cachedir prefix="xdg">fontconfig</cachedir>',
      ...[['sans-serif', 'DejaVu Sans'], ['serif', 'DejaVu Serif'], ['monospace', 'DejaVu Sans Mono'], ['system-ui', 'DejaVu Sans']].map(
        ([generic, font]) => `<alias binding="same"><family>${generic}</family><prefer><family>${font}</family></prefer></alias>`),
      '<match target="font"><edit name="hinting" mode="assign"><bool>false</bool></edit>',
      '<edit name="antialias" mode="assign"><bool>true</bool></edit><edit name="rgba" mode="assign"><const>none</const></edit></match>',
      '</fontconfig>']
    fs.writeFileSync(path.join(tmp, 'fonts.conf'), conf.join('\n'))
  })
}

/**
 * Starts the browser; every request of every page goes to the proxy at `port` on loopback, which is our own server and
 * answers for our origin alone: no other port, host or protocol can be reached (`<-loopback>` takes away the built-in exception).
 * `more` are arguments of the browser to try (tests/fixtures/bench/tries.mjs).
 */
export async function launch({ port, home, memory = 1024, more = [] }) {
  // The cell says whether the kernel lets the browser build its own sandbox; a browser that cannot after all ends at once.
  const browser = await start({ port, home, memory, more, sandbox: process.env.BROWSER_SANDBOX === '1' })
  try {
    await browser.send('Browser.getVersion')
    return browser
  }
  catch (error) {
    if (process.env.BROWSER_SANDBOX !== '1')
      throw error
    process.stderr.write(`worker: the browser did not start in its own sandbox: ${error.message} ${browser.stderr.slice(-300)}\n`)
    return start({ port, home, memory, more, sandbox: false })
  }
}

async function start({ port, home, memory, more, sandbox }) {
  const folder = await unpack()
  const own = process.env.DECKSMITH_CHROMIUM
  const args = [
    '--headless', '--remote-debugging-pipe', `--user-data-dir=${home}/profile`, '--no-first-run', '--no-default-browser-check', '--hide-scrollbars', '--mute-audio',
    `--proxy-server=http://127.0.0.1:${port}`, '--proxy-bypass-list=<-loopback>', '--disable-quic', '--disable-background-networking',
    '--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1', '--force-webrtc-ip-handling-policy=disable_non_proxied_udp', '--dns-prefetch-disable',
    '--disable-sync', '--disable-component-update', '--disable-default-apps', '--disable-extensions', '--disable-domain-reliability', '--no-pings',
    '--disable-client-side-phishing-detection', '--disable-breakpad', '--disable-dev-shm-usage', '--disable-gpu', '--disable-software-rasterizer', '--disable-webgl', '--disable-3d-apis',
    '--font-render-hinting=none', '--disable-lcd-text', '--force-color-profile=srgb', '--disable-partial-raster', '--disable-skia-runtime-opts',
    '--disable-background-timer-throttling', '--disable-renderer-backgrounding', '--disable-backgrounding-occluded-windows', '--disable-hang-monitor',
    '--disable-popup-blocking', '--disable-prompt-on-repost', '--lang=en-US', '--accept-lang=en-US', '--metrics-recording-only', '--password-store=basic',
    '--use-mock-keychain', '--disable-features=Translate,MediaRouter,OptimizationHints,WebBluetooth,PaintHolding,WebRtcHideLocalIpsWithMdns,ServiceWorker,ViewTransitionOnNavigation',
    // A page draws when we ask it to, and then all of it: one frame for a picture instead of a dozen on the way there.
    '--enable-begin-frame-control', '--run-all-compositor-stages-before-draw', '--disable-new-content-rendering-timeout', '--disable-threaded-animation', '--disable-threaded-scrolling', '--disable-checker-imaging',
    '--blink-settings=imageAnimationPolicy=2', // moving pictures and drawings stand at their beginning, wherever they are
    // A page lives for one picture: its scripts end before what the optimizing compilers make of them would pay.
    `--js-flags=--max-old-space-size=${memory} --no-opt --no-maglev`, '--disk-cache-size=1', ...(sandbox ? [] : ['--no-zygote', '--no-sandbox']), ...more, 'about:blank',
  ]
  const child = spawn(own || path.join(folder, 'chromium'), args, {
    stdio: ['ignore', 'ignore', 'pipe', 'pipe', 'pipe'],
    cwd: home,
    env: { HOME: home, XDG_CACHE_HOME: home, TMPDIR: home, TZ: 'UTC', LANG: 'C.UTF-8', FONTCONFIG_FILE: path.join(folder, 'fonts.conf'), ...(own ? {} : { LD_LIBRARY_PATH: path.join(folder, 'lib') }) },
  })
  return new Browser(child)
}

class Browser {
  #next = 1
  #waiting = new Map()
  #listeners = new Map()
  #tail = []

  constructor(child) {
    this.child = child
    this.closed = new Promise(resolve => child.once('exit', (code, signal) => resolve(`browser ended (${signal ?? code})`)))
    this.closed.then((why) => {
      this.over = why
      for (const { reject } of this.#waiting.values())
        reject(Object.assign(new Error(why), { crash: true }))
      this.#waiting.clear()
    })
    child.once('error', () => {});
    child.stdio[3].on('error', () => {})
    this.stderr = ''
    child.stderr.on('data', data => this.stderr = (this.stderr + data).slice(-4000))
    child.stdio[4].on('data', (data) => {
      let from = 0
      for (let end; (end = data.indexOf(0, from)) >= 0; from = end + 1) {
        this.#tail.push(data.subarray(from, end))
        const bytes = this.#tail.length === 1 ? this.#tail[0] : Buffer.concat(this.#tail)
        this.#tail = []
        this.#receive(JSON.parse(bytes.toString()))
      }
      if (from < data.length)
        this.#tail.push(data.subarray(from))
    })
  }

  #receive(message) {
    if (message.id) {
      const waiting = this.#waiting.get(message.id)
      this.#waiting.delete(message.id)
      if (message.error)
        waiting?.reject(new Error(`${waiting.method}: ${message.error.message}`))
      else
        waiting?.resolve(message.result)
    }
    else {
      this.#listeners.get(message.sessionId ?? '')?.(message.method, message.params)
      // However a page ended: its listener holds every reply it ever had, pictures too.
      if (message.method === 'Target.detachedFromTarget')
        this.#listeners.delete(message.params.sessionId)
    }
  }

  send(method, params = {}, sessionId) {
    const id = this.#next++
    if (this.over)
      return Promise.reject(Object.assign(new Error(this.over), { crash: true }))
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, { resolve, reject, method })
      this.child.stdio[3].write(`${JSON.stringify({ id, method, params, sessionId })}\0`)
    })
  }

  /** Calls `listener(method, params)` for events of a session ('' is the browser itself). */
  listen(sessionId, listener) {
    listener ? this.#listeners.set(sessionId, listener) : this.#listeners.delete(sessionId)
  }

  kill() {
    this.child.kill('SIGKILL')
  }
}
