/** The compiler alone: a deck (a JSON string) per line on stdin, {errors, modules} or {threw} per line on stdout. No browser, no cell. */
import readline from 'node:readline'
import { compile } from '../../assets/renderer/compile.mjs'

for (const name of ['log', 'info', 'warn', 'error', 'debug'])
  console[name] = () => {}
for await (const line of readline.createInterface({ input: process.stdin })) {
  let said
  try {
    const { errors, fatal, files } = await compile(JSON.parse(line), 1)
    const all = [...errors, ...(fatal ? [fatal] : [])]
    said = { errors: all.map(error => [error.class, error.line]), kinds: all.map(error => error.kind), messages: all.map(error => error.message),
      modules: [...files].filter(([name]) => /slide\/\d/.test(name)).map(([, code]) => code).join('\n') }
  }
  catch (error) {
    said = { threw: `${error.stack}` }
  }
  process.stdout.write(`${JSON.stringify(said)}\n`)
}
process.exit(0)
