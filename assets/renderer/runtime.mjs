/**
 * The client runtime: everything of Slidev that is not the deck, bundled once per theme and kept on disk.
 *
 * A deck's own modules import it by fixed addresses (`/@rt/vue.js`, `/@rt/layout/cover.js`, ..); the runtime in turn leaves the deck's
 * modules (`slides`, `configs`, `titles`) as external addresses. Places where UnoCSS puts its generated rules are left as markers in the
 * stylesheet and filled per deck.
 */
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { CACHE, MODULES, ROOT, once, sha256 } from './browser.mjs'
import { PACKAGES, fontFaces } from './fonts.mjs'

const TABLE = JSON.parse(fs.readFileSync(path.join(ROOT, 'themes.json'), 'utf8'))
/** The themes a deck may name. */
export const ALLOWED = Object.keys(TABLE).sort()
/** The ones that our seeds ask for are bundled at set-up; each of the others when a deck first names it. */
export const THEMES = ALLOWED.filter(name => TABLE[name].seeds)
const CLIENT = fs.realpathSync(path.join(MODULES, '@slidev', 'client')) // as Vite names modules, also where node_modules is a link
const DIAGRAM_FONTS = '"Noto Sans Variable", "Deck CJK", "Noto Color Emoji", sans-serif'
const LAYERS = ['preflights', 'typography', 'shortcuts']

/** What a runtime depends on: the lock file and the sources that make it. */
export const LOCK = sha256(fs.readFileSync(path.join(ROOT, 'package-lock.json')))
const KEY = sha256(LOCK, ...['runtime.mjs', 'fonts.mjs'].map(name => fs.readFileSync(path.join(ROOT, name)))).slice(0, 16)

// Slidev reads its own TypeScript by jiti, which keeps what Babel makes of it in `TMPDIR/jiti`: half a second of a start. A worker may write
// nowhere but to its home, and takes along what those who build have kept.
const kept = path.join(CACHE, 'jiti')
if (!process.permission)
  process.env.TMPDIR = CACHE
else if (fs.existsSync(kept))
  fs.cpSync(kept, path.join(os.tmpdir(), 'jiti'), { recursive: true })

/** Slidev's resolved options for a theme over an empty deck; the deck's data are put in by the compiler. */
export async function slidevOptions(theme) {
  const { resolveOptions } = await import('@slidev/cli')
  const root = await once(path.join(MODULES, '.cache', 'decksmith', 'root'), tmp => fs.writeFileSync(path.join(tmp, 'deck.md'), '# Deck\n'))
  const options = await resolveOptions({ entry: path.join(root, 'deck.md'), theme }, 'build')
  const { config } = options.data
  Object.assign(config, { title: '', remoteAssets: false, monaco: false, twoslash: false, editor: false, presenter: false, browserExporter: false, record: false, mcp: false,
    wakeLock: false, contextMenu: false, download: true, favicon: '', plantUmlServer: '', preloadImages: false, selectable: true, codeCopy: false })
  Object.assign(config.drawings, { enabled: false, persist: false })
  const tail = generic => ['"Noto Sans Variable"', '"Deck CJK"', '"Noto Color Emoji"', generic]
  const own = names => names.slice(0, Math.max(0, names.findIndex(name => name.startsWith('ui-'))))
  const ours = name => [...PACKAGES].some(font => font.endsWith(`/${name.replaceAll('"', '').replaceAll(' ', '-').toLowerCase()}`))
  const fonts = config.fonts
  Object.assign(fonts, { provider: 'none', webfonts: [], sans: [...own(fonts.sans), ...tail('sans-serif')], serif: [...own(fonts.serif), ...tail('serif')],
    mono: [...own(fonts.mono), ...(own(fonts.mono).some(ours) ? [] : ['"Fira Code"']), ...tail('monospace')] }) // code stands in columns whatever font a theme wished for
  const { createDataUtils } = await import('@slidev/cli')
  options.utils = await createDataUtils(options)
  return options
}

/** Layout and component names to files, as Slidev resolves them for this theme. */
function catalogue(options) {
  const layouts = {}
  const components = {}
  for (const root of [options.clientRoot, ...options.themeRoots]) {
    for (const [folder, into] of [['layouts', layouts], [root === options.clientRoot ? 'builtin' : 'components', components]]) {
      const at = path.join(root, folder)
      for (const name of fs.existsSync(at) ? fs.readdirSync(at) : []) {
        if (/^[\w-]+\.(?:vue|ts)$/.test(name) && !/\.test\.|^katex-lines|^Monaco\./.test(name))
          into[name.replace(/\.\w+$/, '')] = path.join(at, name)
      }
    }
  }
  return { layouts, components }
}

export const place = theme => path.join(CACHE, `runtime-${KEY}-${theme}`)

/** Builds (once) and loads a theme's runtime: {dir, css, tokens, icons (what UnoCSS makes of those tokens that are icons), layouts, slots (by layout), contents (the layouts that list the slides), components}. */
export async function loadRuntime(theme) {
  const dir = await once(place(theme), tmp => build(theme, tmp))
  const info = JSON.parse(fs.readFileSync(path.join(dir, 'runtime.json'), 'utf8'))
  return { dir, ...info, css: fs.readFileSync(path.join(dir, 'style.css'), 'utf8') }
}

async function build(theme, out) {
  const [{ ViteSlidevPlugin }, vite, { default: nested }] = await Promise.all([import('@slidev/cli'), import('vite'), import('postcss-nested')])
  const options = await slidevOptions(theme)
  options.data.features = { katex: false, monaco: false, tweet: false, bluesky: false, mermaid: true }
  const { layouts, components } = catalogue(options)
  const slidev = [...await ViteSlidevPlugin(options), ...await Promise.all(options.themeRoots.map(themePlugins))].flat(9).filter(Boolean)
  const uno = await slidev.find(plugin => plugin.name === 'unocss:api').api.getContext()

  const input = { main: path.join(CLIENT, 'main.ts'), vue: '/@rt/vue', context: path.join(CLIENT, 'context.ts') }
  for (const [name, file] of Object.entries(layouts))
    input[`layout/${name}`] = file
  for (const [name, file] of Object.entries(components))
    input[`component/${name}`] = file

  const result = await vite.build({
    configFile: false,
    root: options.userRoot,
    logLevel: 'error',
    base: '/', // the router's base: a slide is at /3, so that relative addresses of a deck begin at the root
    publicDir: false,
    define: { __VUE_PROD_DEVTOOLS__: 'false', __VUE_OPTIONS_API__: 'true', __VUE_PROD_HYDRATION_MISMATCH_DETAILS__: 'false' },
    css: { postcss: { plugins: [nested()] } },
    plugins: [splitter(options.themeRoots), ...slidev.filter(plugin => !/^unocss:(?:global|devtools|inspector)/.test(plugin.name))],
    resolve: { alias: [{ find: /^vue$/, replacement: path.join(MODULES, 'vue/dist/vue.runtime.esm-bundler.js') }] },
    build: {
      write: false, minify: false, cssMinify: false, cssCodeSplit: false, modulePreload: false, target: 'esnext', assetsInlineLimit: 0, reportCompressedSize: false,
      rolldownOptions: {
        input, preserveEntrySignatures: 'strict',
        output: { entryFileNames: '[name].js', chunkFileNames: 'chunk/[hash].js', assetFileNames: 'asset/[name]-[hash][extname]', codeSplitting: undefined, manualChunks: undefined },
      },
    },
  })
  const roots = [CLIENT, ...options.themeRoots.map(root => fs.realpathSync(root))]
  let style = ''
  for (const file of result.output) {
    if (file.fileName.endsWith('.css')) {
      style += file.source
      continue
    }
    const to = path.join(out, file.fileName)
    fs.mkdirSync(path.dirname(to), { recursive: true })
    fs.writeFileSync(to, file.code ?? file.source)
    for (const [id, { code }] of Object.entries(file.modules ?? {})) {
      if (!roots.some(root => id.startsWith(root)))
        continue
      await uno.uno.applyExtractors(code ?? '', id, uno.tokens)
      if (id.endsWith('.vue')) // attributes that are classes (`h-1.5em` of PoweredBySlidev) are seen in the sources only
        await uno.uno.applyExtractors(fs.readFileSync(id, 'utf8'), id, uno.tokens)
    }
  }
  await pack(result.output.filter(file => file.type === 'chunk'), out)
  const { matched } = await uno.uno.generate(new Set(uno.tokens), { preflights: false })
  const tokens = [...matched].sort()
  const icons = [...uno.uno.tokenProcessor.cache].filter(([, rules]) => rules?.some(rule => rule[4]?.layer === 'icons')) // whose sets are megabytes to read
  // No font or sheet comes from elsewhere; what a theme asks for there, ours stand in for.
  const own = style.replace(/@import\s+(?:url\()?["']?(?:https?:)?\/\/[^;]*;?/g, '')
    .replace(/@font-face\s*\{[^}]*\}/g, face => /url\((?!["']?(?:\/asset\/|data:))/.test(face) ? '' : face)
  fs.writeFileSync(path.join(out, 'style.css'), own)
  const contents = Object.keys(layouts).filter(name => /<toc\b/i.test(fs.readFileSync(layouts[name], 'utf8')))
  fs.writeFileSync(path.join(out, 'fonts.json'), JSON.stringify(fontFaces()))
  fs.writeFileSync(path.join(out, 'runtime.json'), JSON.stringify({ theme, tokens, icons, layouts: Object.keys(layouts), slots: Object.fromEntries(Object.entries(layouts).map(([name, file]) => [name, slotsOf(file)])), contents, components: Object.keys(components) }))
}

/** The slots that a layout shows, null where it may show any. */
function slotsOf(file) {
  const text = fs.readFileSync(file, 'utf8')
  const tags = [...text.matchAll(/<slot\b([^>]*)>/g)].map(([, inside]) => inside)
  if (tags.some(inside => /\s(?::name|v-bind)/.test(inside)))
    return null
  return [...new Set([...tags.map(inside => /\sname="([^"]+)"/.exec(inside)?.[1] ?? 'default'), ...[...text.matchAll(/\bslots(?:\.|\[["'])([\w-]+)/g)].map(([, name]) => name)])]
}

/**
 * What a page loads together becomes one file: a request costs 2 ms of CPU. A bundle of the bundle, so that the order of the style's rules stays.
 * Vue and the slide's context stand apart, because the deck's modules import them while the rest has not run yet.
 */
async function pack(chunks, out) {
  const holding = pattern => chunks.filter(chunk => chunk.moduleIds.some(id => pattern.test(id))).map(chunk => chunk.fileName)
  const starts = Object.entries({
    vue: ['vue.js'],
    context: ['context.js'],
    core: ['main.js', ...holding(/\/client\/pages\/play\.vue$/)],
    diagram: ['component/Mermaid.js', ...holding(/\/mermaid\/.*\/(?:flowDiagram|dagre)-[^/]+$/)],
  })
  const real = fs.realpathSync(out) // as the bundler names its modules
  const parts = new Map()
  const plugin = {
    name: 'decksmith:pack',
    buildEnd() {
      const reach = (id, name) => {
        if (parts.has(id))
          return
        parts.set(id, name)
        this.getModuleInfo(id)?.importedIds.forEach(next => reach(next, name))
      }
      for (const [name, files] of starts)
        files.forEach(file => reach(path.join(real, file), name))
    },
  }
  const groups = starts.map(([name], i) => ({ name, priority: starts.length - i, test: id => parts.get(id) === name }))
  const [{ rolldown }, { minifySync }] = await Promise.all([import('rolldown'), import('vite')]) // Vite's bundler; Vite itself would wrap every lazy import once more
  const bundle = await rolldown({
    input: Object.fromEntries(chunks.filter(chunk => chunk.isEntry).map(({ fileName }) => [fileName.replace(/\.js$/, ''), path.join(out, fileName)])),
    cwd: out, external: /^\/@deck\//, treeshake: false, preserveEntrySignatures: 'strict', plugins: [plugin],
  })
  const { output } = await bundle.generate({ entryFileNames: '[name].js', chunkFileNames: 'chunk/[hash].js', codeSplitting: { groups } })
  await bundle.close()
  fs.rmSync(path.join(out, 'chunk'), { recursive: true })
  for (const file of output) {
    fs.mkdirSync(path.dirname(path.join(out, file.fileName)), { recursive: true })
    // Every page parses this again: whitespace and comments go, names stay.
    fs.writeFileSync(path.join(out, file.fileName), minifySync(file.fileName, file.code, { mangle: false, compress: false, codegen: { removeWhitespace: true } }).code)
  }
}

/** A theme's UnoCSS without what it would fetch to set its fonts. */
export function withoutWebFonts(uno) {
  const fetched = uno.config.presets.filter(preset => preset.name === '@unocss/preset-web-fonts').flatMap(preset => preset.preflights ?? [])
  uno.config.preflights = uno.config.preflights.filter(preflight => !fetched.some(each => each.getCSS === preflight.getCSS))
  return uno
}

/** What a theme's own vite.config adds to the build (penguin: pictures as components). */
async function themePlugins(root) {
  const file = path.join(root, 'vite.config.ts')
  if (!fs.existsSync(file))
    return []
  const { loadConfigFromFile } = await import('vite')
  return (await loadConfigFromFile({ command: 'build', mode: 'production' }, file, root, 'silent', undefined, 'runner')).config.plugins ?? []
}

/** A module that exports the theme's own setups of a kind (`setup/main.ts`) as a list, and after them ours. */
function setups(roots, kind, ours) {
  const files = roots.map(root => path.join(root, 'setup', `${kind}.ts`)).filter(file => fs.existsSync(file))
  return [...files.map((file, i) => `import own${i} from ${JSON.stringify(file)}`), `const own = [${files.map((_, i) => `own${i}`).join(', ')}]`, ours].join('\n')
}

const EMBEDS = /\/builtin\/(?:BlueSky|Monaco|PlantUml|SlidevVideo|Tweet|Youtube)\.vue$/
/** What stands where Slidev would show something of another site: a box of the size that was asked for. Nothing is fetched, and no deck pays for it. */
const BOX = '<div class="decksmith-embed"><svg viewBox="0 0 24 24"><path d="M8 5v14l11-7z" /></svg></div>'
const EMBED = `<script setup>
const size = value => /^\\d+(?:\\.\\d+)?$/.test(value ?? '') ? value + 'px' : value
defineOptions({ inheritAttrs: false })
</script>
<template>${BOX.replace('class="decksmith-embed"', `class="decksmith-embed" :class="$attrs.class" :style="[{ width: size($attrs.width), height: size($attrs.height) }, $attrs.style]"`)}</template>
<style>
:where(.decksmith-embed) { width: 300px; height: 150px; display: flex; align-items: center; justify-content: center; background: #8883; color: #888; border-radius: 6px; }
:where(.decksmith-embed svg) { width: 48px; height: 48px; fill: currentColor; }
:where(.decksmith-embed.slidev-layout-iframe) { width: 100%; height: 100%; }
</style>`

/**
 * A page that has shown one slide shows another: Slidev starts again at another address, in the document as it was before Slidev came.
 * What is loaded and parsed by then stays.
 */
const TURN = `const nodes = new Set([...document.head.childNodes, ...document.body.childNodes])
const roots = [document.documentElement, document.body].map(el => [el, [...el.attributes].map(({ name, value }) => [name, value])])
let shown = main()
__deck.turn = async (address) => {
  (await shown).unmount()
  for (const node of [...document.head.childNodes, ...document.body.childNodes])
    nodes.has(node) || node.remove()
  for (const [el, attributes] of roots) {
    for (const { name } of [...el.attributes])
      el.removeAttribute(name)
    for (const [name, value] of attributes)
      el.setAttribute(name, value)
  }
  scrollTo(0, 0)
  history.replaceState(null, '', address)
  __deck.begin()
  __deck.select()
  shown = main()
  await shown
}`

/** Leaves the deck's modules external and UnoCSS's sheets as markers. */
function splitter(roots) {
  const external = { '/@slidev/slides': '/@deck/slides.js', '/@slidev/configs': '/@deck/configs.js', '/@slidev/title-renderer': '/@deck/titles.js' }
  return {
    name: 'decksmith:splitter',
    enforce: 'pre',
    resolveId: { order: 'pre', handler(id) {
      const clean = id.replace('#slidev/', '/@slidev/')
      if (external[clean])
        return { id: external[clean], external: 'absolute' }
      if (id === '/@rt/vue')
        return id
      if (clean === '/@slidev/setups/main' || clean === '/@slidev/setups/mermaid')
        return clean.replace('@slidev/setups', '@rt')
      const sheet = id === 'uno.css' ? 'default' : id.match(/^uno:(\w+)\.css$/)?.[1]
      if (sheet)
        return `${CLIENT}/styles/decksmith-uno-${sheet}.css`
      if (id.endsWith('/vue.esm-bundler.js'))
        return id.replace('vue.esm', 'vue.runtime.esm')
    } },
    load(id) {
      if (id === '/@rt/vue')
        return `export * from 'vue'`
      // Labels are measured while they are drawn: their fonts must be ours and must be there before.
      if (id === '/@rt/mermaid')
        return setups(roots, 'mermaid', `const fontFamily = ${JSON.stringify(DIAGRAM_FONTS)}
export default [async () => {
  const wished = Object.assign({}, ...await Promise.all(own.map(setup => setup())))
  return { ...wished, fontFamily, themeVariables: { ...wished.themeVariables, fontFamily } }
}]`)
      if (id === '/@rt/main')
        return setups(roots, 'main', 'export default [...own, ({ app }) => { app.config.errorHandler = (error, _, info) => __deck.fault(info, error) }]')
      const sheet = id.match(/decksmith-uno-(\w+)\.css$/)?.[1]
      if (sheet)
        return `#decksmith-uno-${sheet}{--layer:here}`
    },
    // A link's title is text; what shows another site is a box; what cannot be written back to a source still stands where it is put.
    // The page waits for diagrams by count, and a diagram's fault is told with its source instead of being drawn as text only.
    transform(code, id) {
      if (EMBEDS.test(id))
        return EMBED
      if (id.startsWith(CLIENT) && /\/layouts\/iframe[\w-]*\.vue$/.test(id))
        return code.replace(/<iframe[\s\S]*?\/>/, BOX.replace('class="', 'class="slidev-layout-iframe '))
      if (id.endsWith('/builtin/Link.vue'))
        return code.replaceAll('v-html="title"', 'v-text="title"')
      if (id.endsWith('/@slidev/client/main.ts')) {
        const again = code.replace("app.mount('#app')", "app.mount('#app')\n  return app").replace(/main\(\)\s*$/, TURN)
        if (!again.includes('return app') || !again.endsWith(TURN))
          throw new Error('main.ts is not as expected')
        return again
      }
      if (id.endsWith('/composables/useDragElements.ts'))
        return code.replace(`if (dataSource !== 'frontmatter' && !markdownSource)`, 'if (false)')
      if (!id.endsWith('/builtin/Mermaid.vue'))
        return
      const told = code
        .replace('const svg = await renderMermaid(', '__deck.pending++\n    await __deck.fonts()\n    const svg = await renderMermaid(')
        .replace('console.warn(e)', '__deck.diagram(props.codeLz, e)')
        .replace(/__deck\.diagram\(props\.codeLz, e\)\s*\}/, '__deck.diagram(props.codeLz, e)\n  }\n  finally {\n    __deck.pending--\n  }')
      if (told.split('__deck').length !== 5)
        throw new Error('Mermaid.vue is not as expected')
      return told
    },
  }
}

/** The stylesheet of one deck: the runtime's, with UnoCSS's rules for these tokens in their places. */
export async function stylesheet(runtime, uno, tokens) {
  const { getLayer, getLayers } = await uno.generate(new Set([...runtime.tokens, ...tokens]), { preflights: true, minify: false })
  return runtime.css.replace(/#decksmith-uno-(\w+)\s*\{[^}]*\}/g, (_, sheet) => (sheet === 'default' ? getLayers(undefined, LAYERS) : getLayer(sheet)) ?? '')
}
