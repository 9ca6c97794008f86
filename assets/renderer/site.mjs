/**
 * A compiled deck as an interactive site of static files: the deck's own modules beside an index.html, the runtime shared by every deck.
 *
 * Nothing is bundled again: an import map in the page leads the fixed addresses of the modules (`/@rt/..`, `/@deck/..`) to files beside it.
 */
import fs from 'node:fs'
import path from 'node:path'
import { CACHE, MODULES, once, sha256 } from './browser.mjs'
import { PACKAGES } from './fonts.mjs'
import { loadRuntime, place as runtimeOf } from './runtime.mjs'

/** From `<run>/<id>/build/` to what the decks of a run share. No id begins with `_` (docs/records.md). */
const SHARED = '../../_runtime'
const KEY = sha256(fs.readFileSync(import.meta.filename)).slice(0, 8)

/** Scripts and pictures from the site's own host, no connection, frame, worker, form or plugin; `eval` stays off. */
const csp = inline => ["default-src 'none'", `script-src 'self' 'sha256-${inline}'`, "style-src 'self' 'unsafe-inline'", "img-src 'self' data: blob:", "font-src 'self'", "connect-src 'none'",
  "media-src 'none'", "frame-src 'none'", "worker-src 'none'", "object-src 'none'", "manifest-src 'none'", "base-uri 'none'", "form-action 'none'"].join('; ')

/**
 * Runs before anything of the deck. The policy of the page cannot stop a page from leaving, from opening windows, from WebRTC and from
 * keeping things in the browser: this does. `__deck` is what the runtime reports to while a picture is taken; here nobody listens.
 */
const FIRST = String.raw`(() => {
  const deck = { all: true, mounted: false, pending: 0, glyphs: '', fault() {}, diagram() {},
    fonts: () => Promise.all([400, 700].flatMap(weight => ['Noto Sans Variable', 'Deck CJK', 'Noto Color Emoji'].map(family => document.fonts.load(weight + ' 16px "' + family + '"', deck.glyphs)))) }
  const set = (on, name, value) => { try { Object.defineProperty(on, name, { value, configurable: false, writable: false }) } catch {} }
  set(window, '__deck', deck)
  const store = () => { const kept = new Map(); return { getItem: key => kept.get(String(key)) ?? null, setItem: (key, value) => void kept.set(String(key), String(value)),
    removeItem: key => void kept.delete(String(key)), clear: () => kept.clear(), key: n => [...kept.keys()][n] ?? null, get length() { return kept.size } } }
  set(window, 'localStorage', store()); set(window, 'sessionStorage', store())
  for (const name of ['indexedDB', 'caches', 'cookieStore', 'RTCPeerConnection', 'webkitRTCPeerConnection', 'RTCDataChannel', 'WebTransport', 'SharedWorker', 'Worker'])
    set(window, name, undefined)
  set(window, 'BroadcastChannel', class { addEventListener() {} postMessage() {} close() {} })
  set(Document.prototype, 'cookie', ''); set(document, 'cookie', '')
  set(window, 'open', () => null); set(window, 'print', () => {})
  for (const name of ['alert', 'confirm', 'prompt'])
    set(window, name, () => null)
  // A blank frame would bring all of that back, fresh: no way of making elements makes one, nor what fetches ahead or sends the page elsewhere.
  const bad = /^(?:iframe|frame|frameset|object|embed|applet|fencedframe|portal|base|meta)$/i
  const wrap = (on, name, around) => {
    const own = on && Object.getOwnPropertyDescriptor(on, name)
    if (own?.set)
      Object.defineProperty(on, name, { get: own.get, set: around(own.set), enumerable: own.enumerable, configurable: false })
    else if (typeof own?.value === 'function')
      set(on, name, around(own.value))
  }
  const tame = text => text === null ? text : String(text).replace(/<([^\s<>/:]*:)?(?=(?:iframe|frame|frameset|object|embed|applet|fencedframe|portal|base|meta|link)(?![\w-]))/gi, '<$1x-')
  const tag = name => bad.test(name.split(':').pop()) ? 'span' : name
  const strip = (root) => {
    for (const el of [...root.querySelectorAll('*')])
      (bad.test(el.localName) || el.localName === 'link') && el.remove()
    for (const el of [...root.querySelectorAll('template')])
      el.content && strip(el.content)
    return root
  }
  wrap(Document.prototype, 'createElement', own => function (name) { return own.call(this, tag(String(name))) })
  wrap(Document.prototype, 'createElementNS', own => function (space, name) { return own.call(this, space, tag(String(name))) })
  wrap(DOMImplementation.prototype, 'createDocument', own => function (space) { return own.call(this, space, null) })
  wrap(DOMParser.prototype, 'parseFromString', own => function (...args) { return strip(own.apply(this, args)) })
  wrap(Range.prototype, 'createContextualFragment', own => function (text) { return own.call(this, tame(text)) })
  for (const on of [Element.prototype, ShadowRoot.prototype]) {
    for (const name of ['innerHTML', 'outerHTML', 'setHTMLUnsafe'])
      wrap(on, name, own => function (text) { return own.call(this, tame(text)) })
  }
  wrap(Element.prototype, 'insertAdjacentHTML', own => function (where, text) { return own.call(this, where, tame(text)) })
  for (const name of ['open', 'write', 'writeln', 'execCommand', 'close'])
    set(Document.prototype, name, () => null)
  for (const name of ['parseHTMLUnsafe', 'parseHTML'])
    set(Document, name, undefined)
  set(window, 'XSLTProcessor', undefined)
  set(CustomElementRegistry.prototype, 'define', () => {})
  // A link element may only be what the runtime itself makes.
  new MutationObserver((records) => {
    for (const record of records) {
      for (const node of record.addedNodes) {
        for (const el of node.nodeType === 1 ? [node, ...node.querySelectorAll('*')] : [])
          (bad.test(el.localName) || (el.localName === 'link' && !/^(?:stylesheet|icon)$/.test(el.rel))) && el.remove()
      }
    }
  }).observe(document, { childList: true, subtree: true })
  // Only a person's own click follows a link, and in a window of its own.
  addEventListener('click', (event) => {
    const link = event.composedPath().find(el => el.localName === 'a' || el.localName === 'area')
    const target = link && (link.href?.baseVal ?? link.href)
    if (!target || String(target).split('#')[0] === location.href.split('#')[0])
      return
    if (event.isTrusted && /^(?:https?|mailto):/.test(new URL(target, location).protocol)) {
      link.setAttribute('target', '_blank')
      link.setAttribute('rel', 'noopener noreferrer')
    }
    else {
      event.preventDefault()
      event.stopImmediatePropagation()
    }
  }, true)
  window.navigation?.addEventListener('navigate', (event) => {
    const to = event.destination.url.split('#')[0]
    if (to !== location.href.split('#')[0] && event.cancelable) {
      event.preventDefault()
      event.stopImmediatePropagation()
    }
  })
})()
`

const STYLE = `html, body { margin: 0; height: 100%; overflow: hidden; background: #000; }
.decksmith-error { position: absolute; inset: 0; padding: 56px 64px; background: #fbfbfa; color: #3d3d3a; font-family: Inter, sans-serif; border-left: 12px solid #b4452f; box-sizing: border-box; z-index: 9; }
.decksmith-error h1 { font-size: 30px; line-height: 1.3; margin: 0 0 12px; color: #b4452f; font-weight: 600; }
.decksmith-error p { font-size: 18px; margin: 0 0 20px; }
.decksmith-error pre { font: 15px/1.5 'Fira Code', monospace; white-space: pre-wrap; overflow-wrap: anywhere; background: #f0efec; padding: 16px; color: #3d3d3a; }`

const EMPTY = 'data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7'

/** What the runtime takes from the root of our server, taken from beside the page instead. */
const MOVES = [
  [/createWebHistory\((["'`])\/\1\)/g, 'createWebHistory(location.pathname + location.search + "#")', 1], // slides are told apart by the fragment: any static server will do
  [/return\s*(["'`])\/\1\s*\+\s*url\.slice\(1\)/g, 'return url.slice(1)', 1],
  [/=\s*(["'`])\/asset\/([\w.-]+)\1/g, '=new URL("../asset/$2", import.meta.url).href', 1],
  // seriph's cover fetches a picture from elsewhere: the page may not, and what is drawn over it stays as it is in our pictures.
  [/(["'`])https:\/\/source\.unsplash\.com\/[^"'`]*\1/g, `"${EMPTY}"`, 0],
]

const place = dir => path.join(CACHE, `site-${KEY}-${path.basename(dir)}`)

/** Whether a theme's runtime, and what its sites share, is there. */
export const bundled = theme => fs.existsSync(place(runtimeOf(theme)))

/** Makes (once) the files that every site of a theme shares: a folder with `name` (the hash of its contents) and `files/`. */
export async function shareRuntime(theme) {
  const { dir } = await loadRuntime(theme)
  return once(place(dir), async (tmp) => {
    const { minify } = await import('vite')
    const done = MOVES.map(() => 0)
    const hash = []
    const names = fs.readdirSync(dir, { recursive: true }).filter(name => name.endsWith('.js') || name.startsWith('asset/')).sort()
    const put = (name, bytes) => {
      const to = path.join(tmp, 'files', name)
      fs.mkdirSync(path.dirname(to), { recursive: true })
      fs.writeFileSync(to, bytes)
      hash.push(name, sha256(bytes))
    }
    for (const name of names) {
      if (!name.endsWith('.js')) {
        put(name, fs.readFileSync(path.join(dir, name)))
        continue
      }
      let code = fs.readFileSync(path.join(dir, name), 'utf8')
      MOVES.forEach(([pattern, to], i) => code = code.replace(pattern, (...found) => {
        done[i]++
        return to.replace('$2', found[2])
      }))
      const small = await minify(name, code, { module: true, sourcemap: false })
      if (small.errors?.length)
        throw new Error(`${name}: ${small.errors[0].message}`)
      put(name, small.code)
    }
    put('first.js', FIRST)
    MOVES.forEach(([pattern, , least], i) => {
      if (done[i] < least)
        throw new Error(`the runtime is not as expected: ${pattern} was not found`)
    })
    fs.writeFileSync(path.join(tmp, 'name'), sha256(hash.join('\n')).slice(0, 16))
  })
}

const hashes = new Map()
/** A font by the hash of its bytes: {name, from}, or undefined when it is not one of ours. */
function font(address) {
  const [, name, file] = /^\/@font\/(@[\w-]+\/[\w-]+)\/files\/([\w.[\]-]+\.woff2)$/.exec(address) ?? []
  const katex = /^\/@katex\/fonts\/([\w-]+\.woff2)$/.exec(address)?.[1]
  const from = PACKAGES.has(name) ? `${name}/files/${file}` : katex ? `katex/dist/fonts/${katex}` : null
  if (!from)
    return
  if (!hashes.has(from)) {
    const at = path.join(MODULES, from)
    hashes.set(from, fs.existsSync(at) ? `${sha256(fs.readFileSync(at)).slice(0, 16)}.woff2` : null)
  }
  return hashes.get(from) ? { name: hashes.get(from), from } : undefined
}

/** Whether a `unicode-range` names a character of `used` (a sorted list of code points). */
function covers(range, used) {
  return range.split(',').some((part) => {
    const [, from, to] = /U\+([\dA-F?]+)(?:-([\dA-F]+))?/i.exec(part) ?? []
    const low = Number.parseInt(from?.replace(/\?/g, '0'), 16)
    const high = Number.parseInt(to ?? from?.replace(/\?/g, 'F'), 16)
    return used.some(point => point >= low && point <= high)
  })
}

const escape = text => String(text).replace(/[&<>"]/g, c => `&#${c.charCodeAt(0)};`)

/**
 * The site of a compiled deck: {files: {name: text}, pictures: [names], fonts: {name: path under node_modules}, runtime: {name, dir}}.
 * `deck.files` is taken as it stands after the pictures were made, where slides that fail are error slides already.
 */
export function site(deck, runtime, pictures) {
  const shared = place(runtime.dir)
  const name = fs.readFileSync(path.join(shared, 'name'), 'utf8')
  const code = [...deck.files].filter(([address]) => !address.endsWith('.css'))
  const text = code.map(([, body]) => body).join('\n').replace(/\\u([\dA-Fa-f]{4})/g, (all, hex) => all + String.fromCharCode(Number.parseInt(hex, 16)))
  // Latin and the marks that the deck's interface draws are there always; the rest as far as the deck writes it.
  const used = [...new Set([...text].map(c => c.codePointAt(0)).filter(point => point > 0xFF)), 0x41, 0xE9, 0x2022, 0x2192]
  const fonts = {}
  const local = body => pictures.reduce((all, picture) => all.replaceAll(`"/${picture}"`, `"${picture}"`).replaceAll(`(/${picture})`, `(${picture})`), body)
  const files = {}
  for (const [address, body] of code)
    files[address.slice('/@deck/'.length)] = local(body)
  files['style.css'] = local(deck.files.get('/@deck/style.css'))
    .replace(/@font-face\s*\{[^}]*\}/g, face => covers(/unicode-range:([^;}]+)/.exec(face)?.[1] ?? 'U+41', used) ? face : '')
    .replace(/url\(["']?(\/@(?:font|katex)\/[^)"']+)["']?\)/g, (all, address) => {
      const found = font(address)
      if (!found)
        return all
      fonts[found.name] = found.from
      return `url(${SHARED}/font/${found.name})`
    })
    .replace(/url\(\/asset\//g, `url(${SHARED}/${name}/asset/`)
    .replace(/\n{2,}/g, '\n') + STYLE
  const map = JSON.stringify({ imports: { '/@rt/': `${SHARED}/${name}/`, '/@deck/': './' } })
  const inline = Buffer.from(sha256(map), 'hex').toString('base64')
  const title = deck.slides[0]?.title ?? 'Slides'
  files['index.html'] = `<!DOCTYPE html>
<html lang="en"><head><meta charset="UTF-8"><meta http-equiv="Content-Security-Policy" content="${csp(inline)}"><meta http-equiv="x-dns-prefetch-control" content="off">
<meta name="referrer" content="no-referrer"><meta name="viewport" content="width=device-width, initial-scale=1"><title>${escape(title)}</title><link rel="icon" href="data:,">
<script src="${SHARED}/${name}/first.js"></script><link rel="stylesheet" href="style.css"><script type="importmap">${map}</script></head>
<body><div id="app"></div><script type="module" src="${SHARED}/${name}/main.js"></script><div id="mermaid-rendering-container"></div></body></html>
`
  return { files, fonts, pictures, runtime: { name, folder: path.basename(shared) } }
}

// `node site.mjs THEME ..` bundles themes.
if (process.argv[1] === import.meta.filename) {
  for (const theme of process.argv.slice(2))
    await shareRuntime(theme)
  process.exit(0)
}
