/** Unpacks the browser and bundles the runtime of every theme, for pictures and for sites, where they are not there yet: `node build.mjs`. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import path from 'node:path'
import { ROOT, unpack } from './browser.mjs'
import { THEMES } from './runtime.mjs'
import { bundled, shareRuntime } from './site.mjs'

console.log = console.info = console.warn = console.error
// Side by side: a theme takes ten seconds of one core. What fails there is tried, and said, below.
const aside = theme => once(spawn(process.execPath, [path.join(ROOT, 'site.mjs'), theme], { stdio: 'ignore' }), 'close')
await Promise.all([unpack(), ...THEMES.filter(theme => !bundled(theme)).map(aside)])
for (const theme of THEMES)
  await shareRuntime(theme)
process.exit(0)
