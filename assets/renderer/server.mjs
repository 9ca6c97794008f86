/**
 * The only thing the browser can reach: a server on loopback that is also the browser's proxy. It answers for one secret origin from memory,
 * the runtime's folder and the fonts of the lock, and refuses every other address.
 */
import { randomBytes } from 'node:crypto'
import fs from 'node:fs'
import http from 'node:http'
import path from 'node:path'
import { MODULES } from './browser.mjs'
import { PACKAGES } from './fonts.mjs'

const TYPES = { '.js': 'text/javascript', '.css': 'text/css', '.html': 'text/html', '.json': 'application/json', '.svg': 'image/svg+xml', '.png': 'image/png', '.jpg': 'image/jpeg',
  '.jpeg': 'image/jpeg', '.gif': 'image/gif', '.webp': 'image/webp', '.avif': 'image/avif', '.ico': 'image/x-icon', '.bmp': 'image/bmp', '.woff2': 'font/woff2', '.woff': 'font/woff', '.ttf': 'font/ttf' }
/** No frame, worker, connection, form or plugin; scripts and pictures from our origin alone. */
const CSP = ["default-src 'none'", "script-src 'self'", "style-src 'self' 'unsafe-inline'", "img-src 'self' data: blob:", "font-src 'self' data:", "media-src 'none'", "connect-src 'none'",
  "frame-src 'none'", "child-src 'none'", "worker-src 'none'", "object-src 'none'", "base-uri 'none'", "form-action 'none'", "manifest-src 'none'", "frame-ancestors 'none'"].join('; ')

const INDEX = `<!DOCTYPE html><html lang="en"><head><meta charset="UTF-8"><link rel="icon" href="data:,"><link rel="stylesheet" href="/@deck/style.css"><link rel="stylesheet" href="/@deck/frame.css"></head>
<body><div id="app"></div><script type="module" src="/@rt/main.js"></script><div id="mermaid-rendering-container"></div></body></html>`

/** Nothing moves: an animation is at its end at once, a transition never starts. */
const FRAME = `*, *::before, *::after { animation-duration: 0s !important; animation-delay: 0s !important; animation-iteration-count: 1 !important; transition: none !important;
  scroll-behavior: auto !important; caret-color: transparent !important; }
html, body { margin: 0; overflow: hidden !important; }
.katex-mathml { display: none !important; }
.decksmith-error { position: absolute; inset: 0; padding: 56px 64px; background: #fbfbfa; color: #3d3d3a; font-family: Inter, sans-serif; border-left: 12px solid #b4452f; box-sizing: border-box; z-index: 9; }
.decksmith-error h1 { font-size: 30px; line-height: 1.3; margin: 0 0 12px; color: #b4452f; font-weight: 600; }
.decksmith-error p { font-size: 18px; margin: 0 0 20px; }
.decksmith-error pre { font: 15px/1.5 'Fira Code', monospace; white-space: pre-wrap; overflow-wrap: anywhere; background: #f0efec; padding: 16px; color: #3d3d3a; }`

const refuse = socket => socket.end('HTTP/1.1 403 Forbidden\r\nConnection: close\r\n\r\n')

export class Server {
  constructor() {
    this.host = `${randomBytes(12).toString('hex')}.deck`
    this.origin = `http://${this.host}`
    this.deck = null
    this.cache = new Map()
    this.http = http.createServer((request, response) => this.#answer(request, response))
    this.http.on('connect', (_, socket) => refuse(socket))
    this.http.on('upgrade', (_, socket) => refuse(socket))
    this.http.on('clientError', (_, socket) => socket.destroy())
    this.http.keepAliveTimeout = 60000
  }

  listen() {
    return new Promise(resolve => this.http.listen(0, '127.0.0.1', () => resolve(this.http.address().port)))
  }

  #answer(request, response) {
    const url = URL.parse(request.url)
    if (!url || url.host !== this.host || request.method !== 'GET' || !this.deck) {
      response.writeHead(403).end()
      return
    }
    let found
    try {
      found = this.#find(decodeURIComponent(url.pathname))
    }
    catch {}
    if (!found) {
      response.writeHead(404, { 'Cache-Control': 'no-store', 'Content-Security-Policy': CSP }).end()
      return
    }
    const [body, type, keep] = found
    response.writeHead(200, { 'Content-Type': type, 'Content-Security-Policy': CSP, 'X-Content-Type-Options': 'nosniff', 'Referrer-Policy': 'no-referrer',
      'Cache-Control': keep ? 'max-age=31536000, immutable' : 'no-store', 'Cross-Origin-Resource-Policy': 'same-origin' })
    response.end(body)
  }

  /** [bytes, type, cacheable] of an address, or undefined. Files come from the runtime's folder, KaTeX's fonts and the font packages, nothing else. */
  #find(pathname) {
    const { files, runtime, images } = this.deck
    if (/^\/\d+$/.test(pathname))
      return [INDEX, TYPES['.html'], false]
    if (pathname === '/@deck/frame.css')
      return [FRAME, TYPES['.css'], true]
    if (files.has(pathname))
      return [files.get(pathname), TYPES[path.extname(pathname)], !pathname.startsWith('/@deck/slide/')] // a slide may be replaced by an error slide
    if (pathname.startsWith('/asset/'))
      return this.#file(runtime, pathname.slice(1))
    if (pathname.startsWith('/@rt/'))
      return this.#file(runtime, pathname.slice(5))
    if (pathname.startsWith('/@katex/fonts/'))
      return this.#file(path.join(MODULES, 'katex/dist/fonts'), pathname.slice(14))
    const font = /^\/@font\/(@[\w-]+\/[\w-]+)\/files\/([\w.[\]-]+\.woff2)$/.exec(pathname)
    if (font && PACKAGES.has(font[1]))
      return this.#file(path.join(MODULES, font[1], 'files'), font[2])
    const image = images.get(pathname.slice(1))
    if (image)
      return [image, TYPES[path.extname(pathname).toLowerCase()] ?? 'application/octet-stream', true]
  }

  #file(root, name) {
    const file = path.join(root, name)
    if (!file.startsWith(`${root}/`) || name.includes('\0'))
      return
    let body = this.cache.get(file)
    if (!body)
      this.cache.set(file, body = fs.readFileSync(file))
    return [body, TYPES[path.extname(file)] ?? 'application/octet-stream', true]
  }
}
