/**
 * Draws a deck that reveal.js or Marp shows: one JSON request per line on stdin, one reply per line on stdout, as ../worker.mjs has them.
 *
 * Requests: {"id", "text": the page, "images": {"path beside it": base64}, "scale"}. The page and its scripts are a stranger's: the browser
 * reaches this server alone, which answers with these files.
 */
import { randomBytes } from 'node:crypto'
import http from 'node:http'
import path from 'node:path'
import readline from 'node:readline'
import { launch } from '../browser.mjs'
import { CANVAS, open } from '../page.mjs'
import { present } from './present.mjs'

const TYPES = { '.js': 'text/javascript', '.mjs': 'text/javascript', '.css': 'text/css', '.svg': 'image/svg+xml', '.png': 'image/png', '.jpg': 'image/jpeg', '.jpeg': 'image/jpeg', '.gif': 'image/gif',
  '.webp': 'image/webp', '.avif': 'image/avif', '.woff2': 'font/woff2', '.woff': 'font/woff', '.ttf': 'font/ttf', '.otf': 'font/otf' }
const CSP = ["default-src 'none'", "script-src 'self' 'unsafe-inline'", "style-src 'self' 'unsafe-inline'", "img-src 'self' data: blob:", "font-src 'self' data:", "base-uri 'none'", "form-action 'none'"].join('; ')
const out = value => process.stdout.write(`${JSON.stringify(value)}\n`)
for (const name of ['log', 'info', 'warn', 'error', 'debug'])
  console[name] = (...parts) => process.stderr.write(`${parts.join(' ')}\n`)

const host = `${randomBytes(12).toString('hex')}.deck`
let files = new Map()
const server = http.createServer((request, response) => {
  const url = URL.parse(request.url)
  let name = ''
  try {
    name = decodeURIComponent(url?.pathname ?? '').slice(1)
  }
  catch {}
  const body = url?.host === host && request.method === 'GET' ? files.get(name) : undefined
  const type = name === '' ? 'text/html; charset=utf-8' : TYPES[path.extname(name).toLowerCase()] ?? 'application/octet-stream'
  response.writeHead(body === undefined ? 404 : 200, { 'Content-Type': type, 'Content-Security-Policy': CSP, 'X-Content-Type-Options': 'nosniff', 'Cache-Control': 'no-store' })
  response.end(body)
})
for (const event of ['connect', 'upgrade'])
  server.on(event, (_, socket) => socket.end('HTTP/1.1 403 Forbidden\r\nConnection: close\r\n\r\n'))
server.on('clientError', (_, socket) => socket.destroy())
await new Promise(resolve => server.listen(0, '127.0.0.1', resolve))
const browser = await launch({ port: server.address().port, home: process.argv[2] })
browser.closed.then(() => process.exit(3))
out({ ready: {} })

async function render({ id, text, images, scale, least }) {
  files = new Map(Object.entries(images).map(([name, data]) => [name, Buffer.from(data, 'base64')]))
  // Behind the doctype, before anything of the page's own.
  const [start] = /^\s*(?:<!doctype[^>]*>)?/i.exec(text)
  files.set('', `${start}<script>(${present})()</script>${text.slice(start.length)}`)
  const fail = (cls, message) => ({ pictures: [], expected: 0, errors: [{ kind: 'model', class: cls, slide: null, line: null, message }], xray: [] })
  const { browserContextId } = await browser.send('Target.createBrowserContext', { disposeOnDetach: true })
  try {
    await browser.send('Browser.setDownloadBehavior', { behavior: 'deny', browserContextId })
    const page = await open(browser, browserContextId, scale)
    const [pictures, xray, notes, errors] = [[], [], [], []]
    for (let n = 1, of = 1; n <= of; n++) {
      out({ id, slide: n, line: 1, of })
      const state = await page.visit(`http://${host}/?slide=${n}`)
      const said = state.diagrams.find(each => each.code === 'present')
      const about = said && JSON.parse(said.message)
      if (!about || about.fault)
        return fail('unknown-html', about?.fault ?? 'it did not come to rest')
      of = about.of
      if (of > least)
        return fail('unknown-html', `it has ${of} slides; a deck has at most ${least}`)
      await page.hold()
      const picture = await page.picture()
      await page.read(n, picture, true)
      pictures.push(picture)
      const { missing, ...seen } = await page.measure({ slide: n, line: 1, layout: '', title: about.title, formulas: 0, width: CANVAS[0], height: CANVAS[1], replaced: false })
      for (const source of new Set(missing)) {
        // What stands at another address is not reached from here; the deck is not to blame.
        const own = source.replace(`http://${host}/`, '')
        if (/^(?:\w+:)?\/\//.test(own))
          seen.images_broken--
        else
          errors.push({ kind: 'model', class: 'missing-image', slide: n, line: null, message: `the picture ${own.slice(0, 200)} is not there` })
      }
      xray.push(seen)
      notes.push(about.note)
    }
    return { pictures, xray, notes, errors, expected: pictures.length }
  }
  finally {
    browser.send('Target.disposeBrowserContext', { browserContextId }).catch(() => {})
  }
}

const queue = readline.createInterface({ input: process.stdin, terminal: false })
queue.on('line', async (line) => {
  const request = JSON.parse(line)
  try {
    out({ id: request.id, result: await render(request) })
  }
  catch (error) {
    out({ id: request.id, crash: `${error.message}`, page: !!error.page })
  }
})
queue.on('close', () => process.exit(browser.kill() ?? 0))
