/** The compiler alone, decks (JSON list of texts) on stdin: [{errors, modules}] on stdout. No browser, no cell. */
import { text } from 'node:stream/consumers'
import { compile } from '../../assets/renderer/compile.mjs'

const out = []
for (const deck of JSON.parse(await text(process.stdin))) {
  const { errors, fatal, files } = await compile(deck, 1)
  out.push({ errors: [...errors, ...(fatal ? [fatal] : [])].map(error => [error.class, error.line]), modules: [...files].filter(([name]) => /slide\/\d/.test(name)).map(([, code]) => code).join('\n') })
}
process.stdout.write(JSON.stringify(out), () => process.exit(0))
