/** Unpacks the browser and bundles the runtime of every theme, for pictures and for sites, where they are not there yet: `node build.mjs`. */
import fs from 'node:fs'
import { PACKED, unpack } from './browser.mjs'
import { THEMES } from './runtime.mjs'
import { shareRuntime } from './site.mjs'

console.log = console.info = console.warn = console.error
// One after the other: three processes side by side are no faster on two cores, and take half as much again of them.
const all = async () => {
  for (const theme of THEMES)
    await shareRuntime(theme)
}
await Promise.all([unpack(), all()])
fs.rmSync(PACKED, { recursive: true, force: true }) // 70 MB
process.exit(0)
