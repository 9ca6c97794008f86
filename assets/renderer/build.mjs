/** Unpacks the browser and bundles the runtime of every theme, where they are not there yet: `node build.mjs`. */
import { unpack } from './browser.mjs'
import { THEMES, loadRuntime } from './runtime.mjs'

console.log = console.info = console.warn = console.error
await unpack()
for (const theme of THEMES)
  await loadRuntime(theme)
process.exit(0)
