/**
 * A deck to the modules of its slides, slide by slide: a slide that does not compile becomes an error slide and costs no other.
 *
 * Slidev's own markdown pipeline makes the html, Vue's own compiler the render function; there is no bundler and no module resolver, so
 * nothing in a deck can name a file: its modules import the runtime's fixed addresses and nothing else.
 */
import fs from 'node:fs'
import path from 'node:path'
import { compileStyleAsync, compileTemplate } from '@vue/compiler-sfc'
import { detectFeatures, parseAspectRatio, parseSync } from '@slidev/parser/core'
import katex from 'katex'
import lz from 'lz-string'
import MagicString from 'magic-string'
import nested from 'postcss-nested'
import { bundledLanguages } from 'shiki'
import transformerDirectives from '@unocss/transformer-directives'
import { MODULES } from './browser.mjs'
import { chart } from './charts.mjs'
import { clean, frontmatter, guard } from './policy.mjs'
import { ALLOWED, loadRuntime, slidevOptions, stylesheet, withoutWebFonts } from './runtime.mjs'
import { bundled } from './site.mjs'

const CONTEXT = ['$slidev', '$nav', '$clicksContext', '$clicks', '$page', '$renderContext', '$frontmatter', '$scale', '$zoom']
const KNOWN = new Set(['$route', '$router', '$attrs', '$slots', '$refs', '$el', '$emit', '$props', '$root', '$parent', '$options', '$nextTick', '$forceUpdate', '$watch', '$data'])
const MATHML = new Set('annotation math menclose mfrac mglyph mi mlabeledtr mn mo mover mpadded mphantom mroot mrow mspace msqrt mstyle msub msubsup msup mtable mtd mtext mtr munder munderover semantics'.split(' '))

const DIRECTIVES = transformerDirectives() // @apply and the like
const themes = new Map()
const markdowns = new Map()

/** Everything that stays warm for a theme: its runtime, Slidev's options and UnoCSS's generator. */
export async function warm(theme) {
  if (!themes.has(theme)) {
    themes.set(theme, (async () => {
      const [runtime, options, { ViteSlidevPlugin }] = await Promise.all([loadRuntime(theme), slidevOptions(theme), import('@slidev/cli')])
      options.data.features = { katex: false, monaco: false, tweet: false, bluesky: false, mermaid: true }
      const plugins = (await ViteSlidevPlugin(options)).flat(9).filter(Boolean)
      const context = plugins.find(plugin => plugin.name === 'unocss:api').api.getContext()
      await context.ready
      runtime.icons.forEach(([token, rules]) => context.uno.tokenProcessor.cache.set(token, rules))
      const code = options.themeRoots.some(root => fs.existsSync(path.join(root, 'setup', 'shiki.ts'))) ? theme : 'default'
      return { runtime, options, code, uno: withoutWebFonts(context.uno), fonts: JSON.parse(fs.readFileSync(path.join(runtime.dir, 'fonts.json'), 'utf8')) }
    })())
  }
  return themes.get(theme)
}

/** Slidev's markdown transform for a set of switches, with the code colours of `theme`; `seen` receives what it meets on the way (formulas, diagrams, faults). */
async function markdown(theme, katexOn, comark) {
  const key = `${theme}-${katexOn}-${comark}`
  if (!markdowns.has(key)) {
    const { ViteSlidevPlugin } = await import('@slidev/cli')
    const options = await slidevOptions(theme)
    options.data.features = { katex: katexOn, monaco: false, tweet: false, bluesky: false, mermaid: true }
    options.data.config.comark = comark
    options.utils.shikiOptions.tokenizeTimeLimit = 0 // or the rest of a line has no colours where half a second went by on a busy machine
    options.utils.shiki = steady(options.utils)
    options.data.watchFiles = {}
    const entry = { options, seen: null }
    const markdownSetup = (md) => {
      md.block.ruler.disable('snippet_import', true)
      watch(md, entry)
    }
    const plugin = (await ViteSlidevPlugin(options, { markdown: { markdownSetup } })).flat(9).filter(Boolean).find(p => p.name === 'unplugin-vue-markdown')
    await (plugin.configResolved?.handler ?? plugin.configResolved)?.call({}, { root: options.userRoot, plugins: [] })
    const transform = plugin.transform.handler ?? plugin.transform
    entry.run = async (code, id) => {
      const result = await transform.call({ addWatchFile() {}, warn() {}, error(error) { throw error } }, code, id)
      return typeof result === 'string' ? result : result.code
    }
    markdowns.set(key, entry)
  }
  return markdowns.get(key)
}

/**
 * Slidev's highlighter, so that no picture depends on what was drawn before it. What a language leaves open (`js` in `md`, `scss` in `vue`)
 * has colours from when somebody has loaded it: all of that is loaded. A name that every object has breaks Shiki for all that follow.
 */
function steady({ shiki, shikiOptions }) {
  const opened = new Map()
  const open = async (language) => {
    for (const lang of (await bundledLanguages[language]()).default.flatMap(grammar => grammar.embeddedLangsLazy ?? []))
      await shiki.codeToHast('', { ...shikiOptions, lang })
  }
  const checked = run => async (code, options) => {
    const { lang } = options
    if (lang in Object.prototype)
      throw new Error(`Language \`${lang}\` is not there`)
    if (lang in bundledLanguages && !opened.has(lang))
      opened.set(lang, open(lang))
    await opened.get(lang)
    return run(code, options)
  }
  return { ...shiki, codeToHtml: checked(shiki.codeToHtml), codeToTokens: checked(shiki.codeToTokens) }
}

/** Notes formulas and diagrams with their line while they are rendered; runs KaTeX strictly, because Slidev swallows its faults. */
function watch(md, entry) {
  const { math_inline: inline, math_block: block, fence } = md.renderer.rules
  const strict = (display, original) => (tokens, idx, ...rest) => {
    const { content, map } = tokens[idx]
    entry.seen.formulas++
    try {
      katex.renderToString(content, { throwOnError: true, strict: false, displayMode: display, maxExpand: 1000 })
    }
    catch (error) {
      entry.seen.faults.push({ class: 'katex', row: map ? map[0] : entry.seen.rowOf(content), message: error.message.replace(/^KaTeX parse error: /, '') })
    }
    return original(tokens, idx, ...rest)
  }
  if (inline)
    md.renderer.rules.math_inline = strict(false, inline)
  if (block)
    md.renderer.rules.math_block = strict(true, block)
  md.renderer.rules.fence = (tokens, idx, ...rest) => {
    const token = tokens[idx]
    token.info = token.info.replace(/\{monaco[\w-]*\}/, '') // an editor there, code here; or no line of it would be one to look at
    if (/^mermaid\b/.test(token.info.trim()))
      entry.seen.diagrams.push({ code: lz.compressToBase64(token.content.trim()), row: token.map?.[0] ?? 0, chart: chart(token.content) })
    return fence(tokens, idx, ...rest)
  }
}

const icons = new Map()
function icon(tag) {
  const name = tag.replace(/:/g, '-').replace(/([a-z0-9])([A-Z])/g, '$1-$2').replace(/([a-zA-Z])(\d)/g, '$1$2').toLowerCase().replace(/^i-/, '')
  const collections = fs.readdirSync(path.join(MODULES, '@iconify-json'))
  const prefix = collections.filter(c => name.startsWith(`${c}-`)).sort((a, b) => b.length - a.length)[0]
  if (!prefix)
    return null
  if (!icons.has(prefix))
    icons.set(prefix, JSON.parse(fs.readFileSync(path.join(MODULES, '@iconify-json', prefix, 'icons.json'), 'utf8')))
  const set = icons.get(prefix)
  let id = name.slice(prefix.length + 1)
  const found = () => set.icons[id] ?? (set.aliases?.[id] && { ...set.icons[set.aliases[id].parent], ...set.aliases[id] })
  // A tag written in one case cannot show where a digit was set apart: try the usual spellings.
  for (const spelling of [id, id.replace(/([a-z])(\d)/g, '$1-$2'), id.replace(/(\d)-?([a-z])/g, '$1-$2')]) {
    id = spelling
    if (found())
      break
  }
  const data = found()
  if (!data?.body)
    return { missing: `${prefix}:${id}` }
  const { left = 0, top = 0, width = set.width ?? 16, height = set.height ?? 16 } = data
  return { body: data.body, viewBox: `${left} ${top} ${width} ${height}`, ratio: width / height }
}

/** The line of `lines` (the markdown) most like `text` (a line of html): the longest piece they share decides. */
function alike(lines, text, needle) {
  let best = [-1, 0]
  const target = text.trim()
  for (let i = 0; i < lines.length; i++) {
    const line = lines[i].trim()
    if (!line || (needle && !line.includes(needle)))
      continue
    if (line === target)
      return i
    let score = 0
    for (let size = Math.min(line.length, target.length); size > 3 && !score; size = size > 24 ? Math.floor(size * 0.8) : size - 1) {
      for (let at = 0; at + size <= line.length; at++) {
        if (target.includes(line.slice(at, at + size))) {
          score = size
          break
        }
      }
    }
    if (score > best[1] || best[0] < 0)
      best = [i, score]
  }
  return best[0] >= 0 ? best[0] : needle ? alike(lines, text) : 0
}

/** A brace that begins a text, as a paragraph, heading, item or cell. */
const BRACES = /^(?:[\s>|#]|[-*+] |\d+[.)] |.*\| ?(?=\{))*(\{(?!\{)[^}]*\}?)/
const shown = value => (typeof value === 'string' ? value : `${JSON.stringify(value)}`).slice(0, 60)
const json = value => JSON.stringify(value ?? null).replace(/</g, '\\u003C').replace(/\u2028|\u2029/g, c => `\\u${c.charCodeAt(0).toString(16)}`)

/** Compiles unless we are broken: what fails where this does not is the deck's doing. */
const KNOWN_GOOD = '# A\n\n- one\n\n$a^2$\n\n---\n\n# B\n\n```js\n1\n```\n'
const about = error => `the deck breaks its compiler: ${String(error?.message ?? error).split('\n')[0].slice(0, 300)}`

/**
 * Compiles a deck that should have at least `least` slides. What its text breaks in the compiler is the deck's fault, a `compile-error`
 * on the slide or, where no slide can be told, of the deck; raises only what a known good deck brings about too.
 * @returns {Promise<{fatal?: object, expected?: number, slides: object[], errors: object[], theme: string, files: Map<string, string>}>} `fatal` is the error that leaves nothing to
 * render; `template` is {theme, css}: the theme of a deck that names none, and a style behind the theme's; `slides` hold {no, line, layout, title, diagrams, formulas, failed, plain (whether it may follow another in one page), styled (whether anything but the theme says how its letters are painted)}; `files` are the deck's modules by address.
 */
export async function compile(text, least = 3, template = {}) {
  try {
    const deck = await compileDeck(text, least, template)
    if (deck.errors.some(error => error.class === 'compile-error'))
      await compileDeck(KNOWN_GOOD, 1)
    return deck
  }
  catch (error) {
    await compileDeck(KNOWN_GOOD, 1)
    return { fatal: { kind: 'model', class: 'compile-error', slide: null, line: 1, message: about(error) }, slides: [], expected: 0, errors: [], files: new Map() }
  }
}

/**
 * A deck as Slidev's parser cuts it: {lines, headmatter, head (how the first block reads, shown or not), shown: slides with their number, errors}. What may not
 * be asked for is taken out of a slide once it is cut.
 */
export function cut(text) {
  const source = text.replace(/^\uFEFF/, '')
  const lines = source.split(/\r?\n/)
  const errors = []
  const shown = []
  let head
  for (const slide of parseSync(source, '/deck.md', { noParseYAML: true }).slides) {
    // The parser reads a first yaml fence as frontmatter too.
    const first = slide.frontmatterStyle === 'yaml' ? lines.findIndex((l, i) => i >= slide.start && /^\s*```ya?ml/.test(l)) + 1 : slide.start + 2
    const parsed = frontmatter(slide.frontmatterRaw?.replace(/^\n/, ''), first, slide.index)
    head ??= parsed
    if (parsed.hidden)
      continue
    // It shows another file's slides in this one's place, and there is no other file.
    if (parsed.file) {
      errors.push({ kind: 'model', slide: null, class: 'forbidden', line: parsed.where('src'), message: `this slide is not shown: src names another file, and a deck is one file` })
      continue
    }
    const no = shown.length + 1
    const begin = slide.content.split('\n')[0].trim()
    let row = slide.contentStart
    while (row < slide.end && lines[row].trim() !== begin)
      row++
    row = row < slide.end ? row : slide.contentStart
    const { text: content, findings } = clean(slide.content)
    errors.push(...parsed.findings.map(finding => ({ kind: 'model', slide: no, ...finding })))
    errors.push(...findings.map(finding => ({ kind: 'model', slide: no, ...finding, line: row + finding.line })))
    shown.push({ ...slide, content, no, parsed, row })
  }
  return { lines, headmatter: head?.data ?? {}, head, shown, errors }
}

/** {canvasWidth, aspectRatio} of the slides as Slidev has them; `fault` is told of what cannot be. */
function canvasOf(headmatter, config, fault) {
  const found = { canvasWidth: config.canvasWidth, aspectRatio: config.aspectRatio }
  for (const key of Object.keys(found)) {
    if (headmatter[key] === undefined)
      continue
    let value = headmatter[key]
    try {
      value = key === 'aspectRatio' ? parseAspectRatio(value) : Number(value)
    }
    catch {}
    const wide = key === 'canvasWidth' ? value : found.canvasWidth
    const high = wide / (key === 'aspectRatio' ? value : found.aspectRatio)
    if ([wide, Math.ceil(high)].every(side => side >= 100 && side <= 3840) && wide / Math.ceil(high) >= 1 / 4 && wide / Math.ceil(high) <= 4 && (key === 'aspectRatio' || Number.isInteger(wide)))
      found[key] = value
    else
      fault(key, `the ${key} ${shown(headmatter[key])} cannot be: a slide has 100 to 3840 px each way, and one side is at most four times the other`)
  }
  return found
}

async function compileDeck(text, least, template = {}) {
  const { lines, headmatter, head, shown: raw, errors } = cut(text)
  const fail = (cls, line, message, slide = null) => ({ fatal: { kind: 'model', class: cls, slide, line, message }, slides: [], expected: raw.length, errors, files: new Map() })
  const whole = lines.filter(line => line.trim())
  const mark = /^\s*(```+|~~~+)/.exec(whole[0])?.[1]
  const fenced = raw.length <= 1 && mark && !whole.slice(1, -1).some(line => line.trim() === mark)
  if (!text.trim() || !raw.length)
    return fail('too-few-slides', 1, 'the deck is empty')
  if (fenced)
    return fail('fenced-deck', lines.findIndex(line => line.trim()) + 1, 'the whole deck stands inside a code fence')
  const wanted = headmatter.theme ?? template.theme ?? 'default'
  const theme = ALLOWED.includes(wanted) ? wanted : 'default'
  if (theme !== wanted)
    errors.push({ kind: 'model', class: 'unknown-theme', slide: 1, line: head.where('theme'), message: `the theme ${shown(wanted)} is not one of ${ALLOWED.join(', ')}; the deck is shown in the theme default` })
  // A worker can write nothing: whoever started it bundles the theme and asks again.
  if (process.permission && !bundled(theme)) {
    const failure = fail('internal', null, `the theme ${theme} is not bundled`)
    return { ...failure, fatal: { ...failure.fatal, kind: 'renderer', unbundled: theme } }
  }
  if (raw.length < least)
    errors.push({ kind: 'model', class: 'too-few-slides', slide: null, line: 1, message: `the deck has ${raw.length} slide${raw.length === 1 ? '' : 's'}, at least ${least} are needed` })

  const { runtime, options, code, uno, fonts } = await warm(theme)
  const features = detectFeatures(raw.map(slide => slide.raw).join(''))
  const source = lines.join('\n')
  const md = await markdown(code, features.katex, !!(headmatter.comark || headmatter.mdc))
  const defaults = headmatter.defaults && typeof headmatter.defaults === 'object' ? headmatter.defaults : {}
  const tokens = new Set()
  const files = new Map()
  const styles = []
  const slides = []
  md.options.data.slides = raw.map((slide, index) => ({ ...slide, index, frontmatter: slide.parsed.data, source: { filepath: '/deck.md', ...slide } }))
  md.options.data.headmatter = headmatter
  Object.assign(md.options.data.config, { lineNumbers: !!headmatter.lineNumbers })
  const canvas = canvasOf(headmatter, options.data.config, (key, message) => errors.push({ kind: 'model', class: 'yaml', slide: 1, line: head.where(key), message }))

  for (const slide of raw) {
    const data = { ...defaults, ...slide.parsed.data }
    let result
    try {
      result = await compileSlide({ slide, data, md, runtime, uno, lines, first: slide.no === 1, tokens })
    }
    catch (error) {
      const fault = { class: 'compile-error', line: slide.row + 1, message: about(error) }
      result = { code: errorModule(slide.no, fault), css: '', layout: 'default', errors: [fault], formulas: 0, diagrams: [], failed: true }
    }
    errors.push(...result.errors.map(error => ({ kind: 'model', slide: slide.no, ...error })))
    styles.push(result.css)
    files.set(`/@deck/slide/${slide.no}.js`, result.code)
    slides.push({ no: slide.no, line: slide.start + 1, row: slide.row + 1, layout: result.layout, title: title(slide, data), note: slide.note ?? '', data, source: slide, diagrams: result.diagrams,
      formulas: result.formulas, failed: result.failed, plain: result.plain, styled: painted(slide.content) || unusual(data) })
  }
  // A style may reach beyond its slide.
  const everywhere = unusual(headmatter, SLIDE) || styles.some(css => css)
  slides.forEach(slide => slide.styled ||= everywhere)

  // Han characters look different by language: kana or hangul tell which, and the deck's main script wins.
  const count = pattern => source.match(pattern)?.length ?? 0
  const han = [['sc', count(/[\u2E80-\u2FDF\u3000-\u303F\u3400-\u9FFF\uF900-\uFAFF\uFF00-\uFFEF]/g) ? 1 : 0], ['kr', count(/[\uAC00-\uD7AF\u1100-\u11FF\u3130-\u318F]/g)], ['jp', count(/[\u3040-\u30FF]/g)]]
    .filter(([, n]) => n).sort((a, b) => a[1] - b[1]).map(([key]) => fonts[key])
  let css = await stylesheet(runtime, uno, tokens)
  if (features.katex)
    css = css.replace(/^/, `${katexCss()}\n`)
  files.set('/@deck/style.css', [fonts.base, ...han, css, template.css ?? '', ...styles].join('\n'))
  files.set('/@deck/slides.js', slidesModule(slides))
  files.set('/@deck/configs.js', configsModule({ ...options.data.config, ...canvas }, head.config, slides[0]))
  files.set('/@deck/titles.js', await titlesModule(slides, md, /<(?:toc|title-?renderer)\b/i.test(source) || slides.some(slide => runtime.contents.includes(slide.layout))))
  for (const slide of slides) {
    delete slide.source
    delete slide.data
  }
  return { slides, errors, theme, files, lines, canvas: [canvas.canvasWidth, Math.ceil(canvas.canvasWidth / canvas.aspectRatio)] }
}

/** Keys of a frontmatter that say nothing of how letters are painted; of the first one, what it says of its slide alone. */
const USUAL = new Set('theme layout title level info author keywords description transition mdc hideInToc routeAlias lineNumbers highlighter download drawings record'.split(' '))
const SLIDE = new Set(['background', 'class', 'image', 'layoutClass', 'zoom'])
/** Classes that set letters side by side or beneath each other, in a size and weight that is read. */
const SETS = /^(?:grid|grid-cols-[1-6]|flex|flex-col|(?:items|justify|text)-(?:start|center|end|left|right|between)|[wh]-full|(?:gap|gap-[xy]|m[tb]|p|p[xytb])-(?:\d|1[0-6])|text-(?:xs|sm|base|lg|[2-4]?xl)|font-(?:medium|semibold|bold)|italic)?$/
const setting = classes => classes.split(/\s+/).every(name => SETS.test(name))
const sets = (key, value) => (key === 'zoom' ? typeof value === 'number' && value >= 0.5 && value <= 2 : /^(?:class|layoutClass)$/.test(key) && typeof value === 'string' && setting(value))
const unusual = (data, more = new Set()) => Object.entries(data).some(([key, value]) => !USUAL.has(key) && !more.has(key) && !sets(key, value))
/** Markup that says how letters are painted; and tags that only set them. */
const PAINTS = /<[a-z]|\{[^}\n]*[.#=:]|\\(?:[a-z]*color|[hv]?phantom)/i
const TAG = /<\/?(?:br|b|i|em|strong|sub|sup|kbd|ul|ol|li|p|div|span|v-clicks?)(?:\s+class="([^"\n]*)")?\s*\/?>/g
const painted = text => PAINTS.test(text.replace(TAG, (tag, classes = '') => (setting(classes) ? '' : tag)))

function title(slide, data) {
  if (data.title ?? data.name)
    return String(data.title ?? data.name)
  return slide.title ?? null
}

async function compileSlide({ slide, data, md, runtime, uno, lines, first, tokens }) {
  const errors = []
  const own = lines.slice(slide.row, slide.end)
  const lineOf = row => slide.row + 1 + Math.max(0, Math.min(row, own.length - 1))
  let layout = data.layout || (first ? 'cover' : 'default')
  if (!runtime.layouts.includes(layout)) {
    errors.push({ class: 'unknown-layout', line: slide.parsed.where?.('layout') ?? slide.start + 1, message: `the layout ${shown(layout)} does not exist in the theme ${runtime.theme}` })
    layout = 'default'
  }
  const seen = { formulas: 0, diagrams: [], faults: [], rowOf: piece => Math.max(0, own.findIndex(line => line.includes(piece.split('\n')[0]))) }
  const done = (code, css = '') => ({ code, css, layout, errors, formulas: seen.formulas, failed: css === null, diagrams: seen.diagrams.map(d => ({ code: d.code, line: lineOf(d.row), chart: d.chart })) })
  const broken = (error) => {
    errors.push(error)
    return { ...done(errorModule(slide.no, error), ''), failed: true }
  }

  md.seen = seen
  let html
  try {
    html = await md.run(slide.content, `/deck.md__slidev_${slide.no}.md`)
  }
  catch (error) {
    const language = /Language `([^`]*)`/.exec(error.message)?.[1]
    let code = false
    const braces = /'tag'/.test(error.message) ? own.findIndex(line => !(code = /^\s*(?:```|~~~)/.test(line) ? !code : code) && BRACES.test(line)) : -1
    if (braces >= 0)
      return broken({ class: 'vue-compile', line: lineOf(braces), message: `a text begins with ${shown(BRACES.exec(own[braces])[1])}: under mdc braces give attributes to what stands before them, and nothing does; write \\{ for a brace` })
    const row = language ? own.findIndex(line => line.includes('```') && line.includes(language)) : 0
    return broken({ class: 'vue-compile', line: lineOf(row), message: language ? `the code language ${language} is unknown` : error.message.split('\n')[0] })
  }
  errors.push(...seen.faults.map(({ row, ...fault }) => ({ ...fault, line: lineOf(row) })))

  const styles = []
  let body = html.slice(html.indexOf('<template>') + 10, html.lastIndexOf('</template>')).trim()
  html.slice(html.lastIndexOf('</template>')).replace(/<style\b[^>]*>([\s\S]*?)<\/style>/g, (_, css) => styles.push(css))
  if (body.startsWith('<div>') && body.endsWith('</div>'))
    body = body.slice(5, -6)
  const scope = `data-v-slide${slide.no}`
  const source = `<InjectedLayout v-bind="_frontmatterToProps($frontmatter,${slide.no - 1})">\n${body}\n</InjectedLayout>`
  await uno.applyExtractors(`${source}\n${JSON.stringify(data)}`, 'slide.md', tokens)
  const out = template(source, { _frontmatterToProps: 'setup-const', InjectedLayout: 'setup-const', ...Object.fromEntries(CONTEXT.map(name => [name, 'setup-maybe-ref'])) }, styles.length ? scope : null)
  if (out.error) {
    const near = source.split('\n')[(out.error.loc?.start.line ?? 1) - 1] ?? ''
    const tag = /^<\/?([\w:.-]+)/.exec(out.error.loc?.source ?? '')?.[1]
    return broken({ class: 'vue-compile', line: lineOf(alike(own, near, tag ? tag : null)), message: out.error.message.split('\n')[0] })
  }
  for (const name of errors.length ? [] : out.slots) {
    if (!(runtime.slots[layout] ?? [name]).includes(name)) {
      const row = own.findIndex(line => new RegExp(`^(?:::\\s*${name}\\s*::\\s*$|\\s*<template\\b.*(?:v-slot:|#)${name}\\b)`).test(line))
      errors.push({ class: 'unknown-slot', line: lineOf(row), message: name === 'default' ? `the layout ${layout} shows no text, and the slide has some` : `the layout ${layout} has no slot ${name}: what stands under ::${name}:: is not shown` })
    }
  }
  for (const { what, near } of out.taken)
    errors.push({ class: 'forbidden', line: lineOf(alike(own, near.split('\n')[0])), message: `${what} is not allowed and was taken out` })
  const imports = []
  const components = []
  for (const tag of out.components) {
    const pascal = tag.replace(/(?:^|-)(\w)/g, (_, c) => c.toUpperCase())
    const known = runtime.components.find(name => name.toLowerCase() === pascal.toLowerCase())
    if (known) {
      imports.push(`import C${components.length} from '/@rt/component/${known}.js'`)
      components.push(tag)
      continue
    }
    if (pascal === 'TitleRenderer') {
      imports.push(`import C${components.length} from '/@deck/titles.js'`)
      components.push(tag)
      continue
    }
    if (/^(?:RouterLink|RouterView)$/.test(pascal) || /^(?:VMenu|VDropdown|VTooltip)$/i.test(pascal))
      continue
    const found = icon(tag)
    if (found?.body) {
      imports.push(`const C${components.length} = { render: () => h('svg', { xmlns: 'http://www.w3.org/2000/svg', width: '${1.2 * found.ratio}em', height: '1.2em', viewBox: '${found.viewBox}', class: 'slidev-icon', innerHTML: ${json(found.body)} }) }`)
      components.push(tag)
      continue
    }
    const row = own.findIndex(line => new RegExp(`<${tag.replace(/[^\w-]/g, '\\$&')}[\\s/>]|<${tag.replace(/[^\w-]/g, '\\$&')}$`, 'i').test(line))
    errors.push({ class: 'unknown-component', line: lineOf(row), message: found?.missing ? `the icon ${found.missing} does not exist` : `the component <${tag}> does not exist` })
  }
  for (const name of out.unknown) {
    const row = own.findIndex(line => new RegExp(`(?:\\{\\{|[:@]|v-)[^\\n]*(?<![\\w$])${name.replace(/\$/g, '\\$')}(?![\\w$])`).test(line))
    errors.push({ class: 'vue-runtime', line: lineOf(row), message: `${name} is not defined` })
  }
  const css = []
  for (const style of styles) {
    const plain = style.replace(/\/\*[\s\S]*?\*\//g, '')
    try {
      const text = new MagicString(plain)
      await DIRECTIVES.transform(text, 'slide.css', { uno })
      const { code, errors: [error] } = await compileStyleAsync({ source: text.toString(), filename: 'slide.css', id: scope, scoped: true, postcssPlugins: [nested()] })
      if (error)
        throw error
      css.push(code)
    }
    catch (error) {
      const row = own.findIndex(line => /<style\b/i.test(line))
      return broken({ class: 'vue-compile', line: lineOf(row + (error.line ?? 1) - 1), message: `style: ${error.reason ?? error.message.split('\n')[0]}` })
    }
  }
  const plain = !errors.length && !out.runs && !seen.diagrams.length && ![...out.components].some(tag => MOVING.test(tag.replace(/-/g, '')))
  const glyphs = [...new Set(seen.diagrams.flatMap(diagram => [...lz.decompressFromBase64(diagram.code)]))].sort().join('')
  const code = [`__deck.glyphs = ${json(glyphs)}`, `import { h, onMounted } from '/@rt/vue.js'`, `import { useSlideContext, frontmatterToProps } from '/@rt/context.js'`, `import InjectedLayout from '/@rt/layout/${layout}.js'`, ...imports, out.code,
    `export default { ${styles.length ? `__scopeId: '${scope}', ` : ''}components: { ${components.map((tag, i) => `${json(tag)}: C${i}`).join(', ')} },`,
    `  setup() { const context = useSlideContext(); context.$clicksContext.setup(); onMounted(() => __deck.mounted = true); return { ...context, InjectedLayout, _frontmatterToProps: frontmatterToProps } }, render }`]
  return { ...done(code.join('\n'), css.join('\n')), plain }
}

/** What does more than give a value, and what is drawn by chance or moved by scripts: a slide that has it has a page of its own. */
const RUNS = /[(`=]|\+\+|--|\b(?:new|delete|await|yield)\b/
const MOVES = /^(?:mark|motion|drag)/
const MOVING = /^(?:vdrag|mermaid|shikimagicmove|autofittext|component)/i
function runs(found) {
  const look = part => found.runs ||= RUNS.test(part?.loc.source ?? '')
  return (node) => {
    if (node.type === 5)
      look(node)
    else if (node.type === 9) // v-if
      node.branches.forEach(branch => look(branch.condition))
    else if (node.type === 11) // v-for
      look(node.source)
    else if (node.type === 1 && node.tag !== 'InjectedLayout')
      node.props.forEach((prop) => {
        if (prop.type === 7 && !prop.loc.source.startsWith('style=')) // which Vue takes for an expression
          MOVES.test(prop.name) ? found.runs = true : look(prop.exp)
      })
  }
}

/** The slots of its layout that a slide fills. */
function slots(found) {
  return (node) => {
    if (node.type !== 1 || node.tag !== 'InjectedLayout')
      return
    for (const child of node.children) {
      const slot = child.type === 1 && child.tag === 'template' && child.props.find(prop => prop.type === 7 && prop.name === 'slot')
      if (slot ? slot.arg?.isStatic !== false : child.type !== 3 && child.loc.source.trim())
        found.slots.add(slot?.arg?.content ?? 'default')
    }
  }
}

/** Vue's template compiler on one source: {code, components, unknown, taken, slots (that the slide fills), runs (whether it may run code of the deck's)} or {error}. */
function template(source, bindingMetadata, scope) {
  const components = new Set()
  const taken = []
  const found = { runs: false, slots: new Set() }
  let result
  try {
    result = compileTemplate({
      source, filename: 'slide.vue', id: scope ?? 'data-v-slide', scoped: !!scope, transformAssetUrls: false, slotted: false,
      compilerOptions: { mode: 'module', bindingMetadata, runtimeModuleName: '/@rt/vue.js', isCustomElement: tag => MATHML.has(tag), comments: false, nodeTransforms: [guard(taken), runs(found), slots(found)] },
    })
  }
  catch (error) {
    return { error }
  }
  if (result.errors.length) {
    const [error] = result.errors
    return { error: typeof error === 'string' ? { message: error } : error }
  }
  for (const [, tag] of result.code.matchAll(/_resolveComponent\("([^"]+)"/g))
    components.add(tag)
  const bare = result.code.replace(/"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'/g, '""')
  const unknown = new Set([...bare.matchAll(/_ctx\.([\w$]+)/g)].map(m => m[1]).filter(name => !KNOWN.has(name)))
  return { code: result.code, components, unknown, taken, ...found }
}

function errorModule(no, error) {
  return [`import { h, onMounted } from '/@rt/vue.js'`, `export default { setup() { onMounted(() => __deck.mounted = true); return () => h('div', { class: 'decksmith-error' },`,
    `  [h('h1', 'Slide ${no} could not be rendered'), h('p', ${json(`${error.class}, line ${error.line}`)}), h('pre', ${json(String(error.message).slice(0, 600))})]) } }`].join('\n')
}

/** The same error slide for faults that only show in the page. */
export const errorSlide = errorModule

function slidesModule(slides) {
  const rows = slides.map(({ no, title, data, source }) => ({ no, frontmatter: data, slide: { title, level: source.level ?? 1, index: no - 1, start: source.start, images: [] } }))
  return `import { defineAsyncComponent, shallowRef, reactive, shallowReactive } from '/@rt/vue.js'
const rows = ${json(rows)}
const empty = { render: () => null }
const made = current => structuredClone(rows).map(({ no, frontmatter: data, slide }) => {
  const frontmatter = reactive(data)
  const load = async () => !current || no === current ? import('/@deck/slide/' + no + '.js') : { default: empty }
  const meta = shallowReactive({
    get layout() { return frontmatter.layout }, get transition() { return undefined }, get class() { return frontmatter.class }, get clicks() { return frontmatter.clicks },
    get name() { return frontmatter.name }, get preload() { return false },
    slide: { ...slide, frontmatter, note: '', noteHTML: '', content: '', raw: '', filepath: '', id: no - 1, no }, __clicksContext: null, __preloaded: false })
  const component = !current || no === current ? defineAsyncComponent({ loader: load, suspensible: false, onError: (error) => { __deck.fault('load', error) } }) : empty
  return { no, meta, load, component }
})
const current = () => __deck.all ? 0 : Number(location.pathname.slice(1)) || 1
export const slides = shallowRef(made(current()))
__deck.select = () => { slides.value = made(current()) }`
}

function configsModule(base, wanted, first) {
  const { fonts, ...config } = structuredClone(base)
  void fonts
  const plain = Object.fromEntries(Object.entries(wanted).filter(([key, value]) => key === 'themeConfig' ? value && typeof value === 'object' : typeof value !== 'object'))
  Object.assign(config, plain, { colorSchema: ['light', 'dark'].includes(wanted.colorSchema) ? wanted.colorSchema : ['light', 'dark'].includes(base.colorSchema) ? base.colorSchema : 'light',
    title: String(wanted.title ?? first?.title ?? ''), transition: null, remote: '', slidesTitle: String(wanted.title ?? first?.title ?? 'Slidev'), info: false })
  return `export default ${json(config)}`
}

async function titlesModule(slides, md, used) {
  if (!used)
    return 'export default { render: () => null }'
  md.seen = { formulas: 0, diagrams: [], faults: [], rowOf: () => 0 }
  const source = slides.map(({ title }, i) => `<template ${i === 0 ? 'v-if' : 'v-else-if'}="no === ${i + 1}">\n\n${title ?? ''}\n\n</template>`).join('\n')
  const html = await md.run(source, '/titles.md')
  const out = template(html.slice(html.indexOf('<template>') + 10, html.lastIndexOf('</template>')), { no: 'setup-ref' }, null)
  if (out.error)
    return 'export default { render: () => null }'
  return [`import { computed } from '/@rt/vue.js'`, `import { useSlideContext } from '/@rt/context.js'`, out.code,
    `export default { props: ['no'], setup(props) { const { $page } = useSlideContext(); return { no: computed(() => +(props.no ?? $page.value)) } }, render }`].join('\n')
}

let katexText
function katexCss() {
  katexText ??= fs.readFileSync(path.join(MODULES, 'katex/dist/katex.min.css'), 'utf8').replace(/url\(fonts\//g, 'url(/@katex/fonts/').replace(/,url\([^)]*\.(?:woff|ttf)\) format\("(?:woff|truetype)"\)/g, '').replace(/font-display:\w+/g, 'font-display:block')
  return katexText
}
