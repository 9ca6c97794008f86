/**
 * The first wall: what a slide may ask for. Works on its text once Slidev's parser has cut the deck; keeps every line where it is.
 *
 * Takes away, with a `forbidden` finding on the line: script blocks, style blocks that import, event handlers, frames and embeds,
 * file snippets, frontmatter keys that name code, files or servers. Leaves alone what fenced code shows.
 */
import YAML from 'yaml'

/** Keys that name code, files or servers: taken away with a finding. */
const NAMING = ['addons', 'addon', 'export', 'remoteAssets', 'plantUmlServer', 'monacoTypesAdditionalPackages', 'monacoRunAdditionalDeps', 'config', 'shiki', 'setup', 'vite', 'unocss']
/** Keys of the first block that reach the configuration; the rest has no meaning in a picture or is pinned by the renderer. */
const CONFIG = ['title', 'titleTemplate', 'info', 'author', 'keywords', 'lineNumbers', 'colorSchema', 'themeConfig', 'mdc', 'comark', 'magicMoveDuration', 'clickAnimation']

/** Keys that Slidev, its layouts and the page take for text. */
const TEXTS = ['title', 'name', 'titleTemplate', 'layout', 'routeAlias', 'colorSchema']

/** `Link` in that spelling is Slidev's component, in any other the element of HTML. */
const EMBEDS = '(?!(?-i:Link)\\b)(?:script|iframe|object|embed|applet|frame|frameset|base|meta|link|portal|fencedframe|webview)'

/**
 * Findings and the cleaned text of one slide. `spans` of fenced code are told apart by the same rule as Slidev's parser (a line that begins with three
 * or more backticks, up to a line that begins with as many).
 */
export function clean(text) {
  const findings = []
  const lines = text.split('\n')
  const code = new Array(lines.length).fill(false)
  for (let i = 0; i < lines.length; i++) {
    const open = /^\s*(`{3,}|~{3,})\s*(.*)/.exec(lines[i])
    if (!open)
      continue
    let end = i + 1
    while (end < lines.length && !lines[end].trimStart().startsWith(open[1]))
      end++
    if (end === lines.length)
      continue
    const magic = /^(?:md|markdown)\s+magic-move/.test(open[2])
    for (let j = i; j <= end; j++)
      code[j] = true
    // The lines between the inner blocks of a magic-move block are read by Slidev for snippets.
    for (let j = i + 1; magic && j < end; j++) {
      if (/^\s*<<</.test(lines[j]))
        take(j, 'a snippet of a file', () => '')
    }
    i = end
  }
  function take(i, what, edit) {
    lines[i] = edit(lines[i])
    findings.push({ class: 'forbidden', line: i + 1, message: `${what} is not allowed and was taken out` })
  }
  const inside = { script: false }
  for (let i = 0; i < lines.length; i++) {
    if (code[i])
      continue
    if (/^\s*(?:>\s*|[-*+]\s+|\d+[.)]\s+)*<<</.test(lines[i]))
      take(i, 'a snippet of a file', () => '')
    if (inside.script) {
      const end = lines[i].search(/<\/script\s*>/i)
      lines[i] = end < 0 ? '' : lines[i].slice(end).replace(/<\/script\s*>/i, '')
      inside.script = end < 0
      if (inside.script)
        continue
    }
  }
  // Elements may begin on one line and end on another: edit the text between fences as a whole, keeping its line breaks.
  const blank = found => found.replace(/[^\n]/g, '')
  const kept = []
  for (let from = 0; from < lines.length;) {
    if (code[from]) {
      kept.push(lines[from++])
      continue
    }
    let to = from
    while (to < lines.length && !code[to])
      to++
    let part = protect(lines.slice(from, to).join('\n'))
    const drop = (pattern, what, edit = blank) => {
      part = part.replace(pattern, (...args) => {
        const offset = args.find(arg => typeof arg === 'number')
        const line = from + part.slice(0, offset).split('\n').length
        findings.push({ class: 'forbidden', line, message: `${typeof what === 'function' ? what(args) : what} is not allowed and was taken out` })
        return edit(...args)
      })
    }
    drop(/<script\b[\s\S]*?(?:<\/script\s*>|$)/gi, 'a script block')
    drop(/<style\b[^>]*\bsrc\s*=[^>]*>[\s\S]*?(?:<\/style\s*>|$)/gi, 'a style block from a file')
    drop(/<template\b[^>]*\bsrc\s*=[^>]*>/gi, 'a template from a file')
    drop(/@import\b[^;\n}]*;?/gi, 'a style import')
    drop(new RegExp(`<(${EMBEDS})\\b[^>]*>[\\s\\S]*?</\\1\\s*>|</?(?:${EMBEDS})\\b[^>]*>`, 'gi'), args => `the element <${/[\w-]+/.exec(args[0])?.[0]}>`)
    drop(/(<[a-z][^<>]*?)(\s(?:on[a-z]+|v-on:[\w.:-]+|@[a-z][\w.:-]*)\s*=\s*(?:"[^"]*"|'[^']*'|[^\s>]+))/gi, args => `the event handler ${args[2].trim().split('=')[0]}`,
      (all, before, handler) => before + blank(handler))
    drop(/(<[a-z][^<>]*?)(\s(?:v-html|:innerHTML|\.innerHTML|srcdoc|:srcdoc|formaction|:is|v-bind:is)\s*=\s*(?:"[^"]*"|'[^']*'))/gi, args => `the attribute ${args[2].trim().split('=')[0]}`,
      (all, before, attribute) => before + blank(attribute))
    drop(/\bimport\s*(?:\.\s*meta\b|\((?=\s*['"`/]))/g, 'an import', found => found.replace(/import/, 'imp0rt'))
    kept.push(unprotect(part))
    from = to
  }
  return { text: kept.join('\n'), findings }
}

const EMBEDDED = new RegExp(`^(?:${EMBEDS}|style)$`, 'i')
const ATTRIBUTE = /^(?:on.*|srcdoc|formaction|(?:inner|outer)HTML)$/i
const IMPORT = /\bimport\s*(?:\(|\.\s*meta)/

/**
 * The same rules once more where nothing can be disguised: on the tree of elements that Vue compiles, whatever the text above took for code.
 * A transform for Vue's compiler; `taken` receives {what, near} with the source text of what was taken out.
 */
export function guard(taken) {
  return (node) => {
    const take = what => taken.push({ what, near: node.loc.source })
    if (node.type === 5 && IMPORT.test(node.loc.source)) {
      take('an import')
      node.content = { type: 4, content: "''", isStatic: false, constType: 3, loc: node.content.loc }
    }
    if (node.type !== 1)
      return
    const is = node.props.find(prop => prop.type === 6 && prop.name === 'is')?.value?.content
    if (EMBEDDED.test(node.tag) || EMBEDDED.test(is ?? '')) {
      take(`the element <${is ?? node.tag}>`)
      Object.assign(node, { tag: 'div', tagType: 0, props: [], children: [] })
    }
    node.props = node.props.filter((prop) => {
      const name = prop.type === 6 ? prop.name : prop.arg?.isStatic ? prop.arg.content : ''
      const bad = prop.type === 7 && ['on', 'html'].includes(prop.name) ? `the event handler or html of ${prop.loc.source.split('=')[0]}`
        : ATTRIBUTE.test(name) || (prop.type === 7 && name === 'is') ? `the attribute ${name}`
          : prop.type === 7 && IMPORT.test(prop.loc.source) ? 'an import' : null
      if (bad)
        take(bad)
      if (bad && node.tag === 'component')
        Object.assign(node, { tag: 'div', tagType: 0 })
      return !bad
    })
  }
}

/** Inline code shows what is forbidden elsewhere: hide it from the patterns above. */
let held = []
function protect(text) {
  held = []
  return text.replace(/(`+)([^`\n]+?)\1(?!`)/g, found => `\u0001${held.push(found) - 1}\u0002`)
}
function unprotect(text) {
  return text.replace(/\u0001(\d+)\u0002/g, (_, n) => held[n])
}

/**
 * Frontmatter of one slide: {data, findings, where (a key's line), config, hidden, file (whether it shows another file's slides)}; a fault is a `yaml`
 * finding with its line in the deck, and hides nothing.
 */
export function frontmatter(raw, first, index) {
  const findings = []
  if (raw == null || !raw.trim())
    return { data: {}, findings, where: () => first, config: {}, hidden: false, file: false }
  const counter = new YAML.LineCounter()
  const doc = YAML.parseDocument(raw, { lineCounter: counter, maxAliasCount: 50, uniqueKeys: true })
  for (const error of doc.errors.slice(0, 1))
    findings.push({ class: 'yaml', line: first + counter.linePos(error.pos[0]).line - 1, message: error.message.split('\n')[0].replace(/ at line.*$/, '') })
  const aliased = () => {
    let at = 0
    YAML.visit(doc, { Alias: (_, node) => {
      at ||= node.range?.[0]
    } })
    return first + counter.linePos(at).line - 1
  }
  let data = {}
  try {
    data = doc.toJS({ maxAliasCount: 50 })
  }
  catch (error) {
    if (!findings.length)
      findings.push({ class: 'yaml', line: aliased(), message: error.message })
  }
  const told = data
  // Values that text can hold: an alias of itself has no end.
  try {
    data = JSON.parse(JSON.stringify(data ?? {}, (key, value) => key === '__proto__' ? undefined : typeof value === 'bigint' ? String(value) : value))
  }
  catch (error) {
    if (!findings.length)
      findings.push({ class: 'yaml', line: aliased(), message: /circular/i.test(error.message) ? 'an alias of the frontmatter refers to itself' : error.message })
    data = {}
  }
  if (typeof data !== 'object' || Array.isArray(data)) {
    if (!findings.length)
      findings.push({ class: 'yaml', line: first, message: 'the frontmatter is not a set of keys and values' })
    data = {}
  }
  const faulty = findings.length > 0
  const where = key => {
    const item = doc.contents?.items?.find(pair => pair.key?.value === key)
    return item?.key?.range ? first + counter.linePos(item.key.range[0]).line - 1 : first
  }
  for (const key of TEXTS) {
    if (Object.hasOwn(data, key) && typeof data[key] === 'object') {
      if (data[key] !== null && !findings.length)
        findings.push({ class: 'yaml', line: where(key), message: `the ${key} is ${Array.isArray(data[key]) ? 'a list' : 'a set of keys and values'}, not text` })
      delete data[key]
    }
  }
  for (const key of NAMING) {
    if (Object.hasOwn(data, key)) {
      findings.push({ class: 'forbidden', line: where(key), message: `the frontmatter key ${key} is not allowed and was taken out` })
      delete data[key]
    }
  }
  for (const [key, value] of Object.entries(data)) {
    if (/^on[a-z]|^\^?innerHTML$|^\.|^textContent$/i.test(key) || (key === 'class' && typeof value === 'object')) {
      findings.push({ class: 'forbidden', line: where(key), message: `the frontmatter key ${key} is not allowed and was taken out` })
      delete data[key]
    }
  }
  const hidden = !faulty && !!(told?.hide || told?.disabled)
  const file = !faulty && !!told?.src
  delete data.src
  return { data, findings, where, config: index === 0 ? Object.fromEntries(CONFIG.filter(key => key in data).map(key => [key, data[key]])) : {}, hidden, file }
}
