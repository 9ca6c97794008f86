/**
 * The long-lived worker: one JSON request per line on stdin, one JSON reply per line on stdout; ends when stdin does.
 *
 * Requests: {"id", "text", "images": {"images/x.png": base64}, "scale": 1|2, "least": 3, "formats": [] or
 * null, "template": {} or {"theme", "css"}}. Replies: {"ready": {...}} once, {"id", "slide": n, "line", "of"} while a deck is on, then
 * {"id", "result": {...}} or {"id", "crash": "why"}. Whoever starts the worker keeps its time and memory and kills it.
 */
import fs from 'node:fs'
import path from 'node:path'
import readline from 'node:readline'
import { MODULES, launch } from './browser.mjs'
import { Server } from './server.mjs'

const out = value => process.stdout.write(`${JSON.stringify(value)}\n`)
const note = (...parts) => process.stderr.write(`${parts.join(' ')}\n`)
for (const name of ['log', 'info', 'warn', 'error', 'debug'])
  console[name] = (...parts) => note(...parts)

const home = process.argv[2]
let ending = false
const server = new Server()
const port = await server.listen()
// The browser starts while Slidev is loaded.
const [browser, { compile, warm }, { CANVAS, shoot }, { LOCK }, { site }] = await Promise.all([
  launch({ port, home, memory: Number(process.env.DECKSMITH_PAGE_MEMORY || 1024) }), import('./compile.mjs'), import('./page.mjs'), import('./runtime.mjs'), import('./site.mjs')])
browser.closed.then((why) => {
  if (!ending)
    process.exit(note(`worker: ${why}`, browser.stderr.slice(-500)) ?? 3)
})
// What every deck needs is paid for before the first one's clock runs.
await compile('# A\n\n---\n\n# B\n\n---\n\n```\n1\n```\n')
const { product } = await browser.send('Browser.getVersion')
out({ ready: { slidev: JSON.parse(fs.readFileSync(path.join(MODULES, '@slidev/cli/package.json'), 'utf8')).version, lock: LOCK, browser: product, canvas: CANVAS } })

/** Slides whose picture is what the deck is scored on come out even when something on them failed; a deck is `failed` when it cannot count as rendered. */
async function render({ id, text, images = {}, scale = 1, least = 3, formats, template }) {
  const deck = await compile(text, least, template)
  if (deck.fatal)
    return { pictures: [], expected: deck.expected, errors: [deck.fatal, ...deck.errors], xray: [] }
  const { runtime } = await warm(deck.theme)
  const pictures = new Map(Object.entries(images).map(([name, data]) => [name, Buffer.from(data, 'base64')]))
  const shot = await shoot({ browser, server, deck, runtime: runtime.dir, images: pictures, scale, print: formats?.includes('pdf'), edit: formats?.includes('pptx'), onSlide: slide => out({ id, slide, line: deck.slides[slide - 1].line, of: deck.slides.length }) })
  const errors = [...deck.errors, ...shot.errors].sort((a, b) => (a.slide ?? 0) - (b.slide ?? 0) || (a.line ?? 0) - (b.line ?? 0))
  const more = formats && { prints: shot.prints, parts: shot.edits, notes: deck.slides.map(slide => slide.note), site: formats.includes('site') ? site(deck, runtime, [...pictures.keys()]) : null }
  return { ...more, pictures: shot.pictures, expected: deck.slides.length, errors, xray: shot.xray }
}

// V8 lets its heap grow long before it cleans up: between decks, what is this far over the last clean level goes (0.2 CPU seconds).
const SLACK = 128 << 20
let level = -Infinity
function tidy() {
  if (process.memoryUsage().heapTotal < level + SLACK)
    return
  gc({ type: 'major', execution: 'sync', flavor: 'last-resort' })
  level = process.memoryUsage().heapTotal
}

const queue = readline.createInterface({ input: process.stdin, terminal: false })
let busy = Promise.resolve()
queue.on('line', (line) => {
  const request = JSON.parse(line)
  busy = busy.then(async () => {
    try {
      out({ id: request.id, result: await render(request) })
    }
    catch (error) {
      out({ id: request.id, crash: error.crash ? `${error.message}` : `${error.stack}`, page: !!error.page })
    }
    tidy()
  })
})
queue.on('close', () => {
  ending = true
  browser.kill()
  process.exit(0)
})
