/**
 * Loaded before the worker. Node's permission model lets it read this folder alone; packages that look around for configuration elsewhere
 * expect "not there", not "forbidden".
 */
import fs from 'node:fs'
import { registerHooks, syncBuiltinESMExports } from 'node:module'

const absent = (error, path) => error?.code === 'ERR_ACCESS_DENIED' ? Object.assign(new Error(`ENOENT: no such file or directory, '${path}'`), { code: 'ENOENT', errno: -2, path }) : error

for (const name of ['statSync', 'lstatSync', 'realpathSync', 'readFileSync', 'readdirSync', 'accessSync', 'readlinkSync', 'openSync']) {
  const original = fs[name]
  const wrapped = (path, ...rest) => {
    try {
      return original(path, ...rest)
    }
    catch (error) {
      if (error?.code === 'ERR_ACCESS_DENIED' && rest.at(-1)?.throwIfNoEntry === false)
        return undefined
      throw absent(error, path)
    }
  }
  fs[name] = Object.assign(wrapped, original)
}
for (const name of ['stat', 'lstat', 'realpath', 'readFile', 'readdir', 'access', 'readlink']) {
  const original = fs.promises[name]
  fs.promises[name] = (path, ...rest) => Promise.resolve().then(() => original(path, ...rest)).catch((error) => {
    throw absent(error, path)
  })
}
const exists = fs.existsSync
fs.existsSync = (path) => {
  try {
    return exists(path)
  }
  catch {
    return false
  }
}
syncBuiltinESMExports()

// What only builds, serves or talks to editors is left out, a quarter of a start: bundlers and their plugins, Babel, a server, schemas.
const none = 'export default () => []'
const never = (...names) => `const never = () => { throw new Error('a worker does without it') }; export { ${names.map(name => `never as ${name}`)} }`
const UNUSED = {
  vite: never('createServer', 'loadConfigFromFile', 'mergeConfig', 'parseSync'),
  '@vitejs/plugin-vue': none,
  '@vitejs/plugin-vue-jsx': none,
  'vite-plugin-vue-server-ref': none,
  'unplugin-icons/vite': none,
  'unplugin-icons/resolver': none,
  'unplugin-vue-components/vite': none,
  '@unocss/inspector': none,
  '@unocss/transformer-attributify-jsx': none,
  '@modelcontextprotocol/node': never('NodeStreamableHTTPServerTransport'),
  '@modelcontextprotocol/server': never('McpServer'),
  zod: 'export const z = new Proxy(() => z, { get: () => z })',
}
registerHooks({ resolve: (name, context, next) => name in UNUSED ? { url: `data:text/javascript,${UNUSED[name]}`, format: 'module', shortCircuit: true } : next(name, context) })
