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

// What only builds or serves is left out, 0.7 CPU s of a start: the one brings Babel, the other a server with a page of its own.
const UNUSED = ['@vitejs/plugin-vue-jsx', '@unocss/inspector']
const none = { url: 'data:text/javascript,export default () => []', format: 'module', shortCircuit: true }
registerHooks({ resolve: (name, context, next) => UNUSED.includes(name) ? none : next(name, context) })
