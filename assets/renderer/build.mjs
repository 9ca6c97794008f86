/** Unpacks the browser and bundles the runtime of every theme, for pictures and for sites, where they are not there yet: `node build.mjs`. */
import { unpack } from './browser.mjs'
import { THEMES } from './runtime.mjs'
import { shareRuntime } from './site.mjs'

console.log = console.info = console.warn = console.error
await unpack()
for (const theme of THEMES)
  await shareRuntime(theme)
process.exit(0)
