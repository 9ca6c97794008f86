/**
 * The browser of the renderer with no other wall around it: a page of our origin, without any policy, runs what argv[2] says.
 * Prints what the page said when it was done. `node browse.mjs SCRIPT HOME`
 */
import http from 'node:http'
import { launch } from '../../assets/renderer/browser.mjs'

const [script, home] = process.argv.slice(2)
const ORIGIN = 'http://abc.deck'
let said
const done = new Promise(resolve => said = resolve)
const server = http.createServer((request, response) => {
  const url = URL.parse(request.url)
  if (url?.host !== 'abc.deck')
    return response.writeHead(403).end()
  if (url.pathname === '/said')
    said(decodeURIComponent(url.search.slice(1)))
  response.writeHead(200, { 'Content-Type': 'text/html' }).end(url.pathname === '/' ? `<!DOCTYPE html><body><script>${script}</script>` : '')
})
for (const event of ['connect', 'upgrade'])
  server.on(event, (_, socket) => socket.end('HTTP/1.1 403 Forbidden\r\n\r\n'))
await new Promise(resolve => server.listen(0, '127.0.0.1', resolve))
const browser = await launch({ port: server.address().port, home })
const { browserContextId } = await browser.send('Target.createBrowserContext')
await browser.send('Target.createTarget', { url: `${ORIGIN}/`, browserContextId })
console.log(await Promise.race([done, new Promise(resolve => setTimeout(resolve, 20000, 'nothing'))]))
browser.kill()
process.exit(0)
