/** Runs in the page: what can be measured of the slide that stands there. Lengths in CSS px, shares of the canvas. */
export function measure({ slide, line, layout, title, formulas, width, height, replaced }) {
  const none = { slide, line, layout, title: title ?? '', text: '', words: 0, bullets: 0, images: 0, images_broken: 0, code_lines: 0, table_cells: 0, diagrams: 0, formulas: 0, quotes: 0, columns: 1,
    overflow: { x: 0, y: 0 }, overlap: 0, font: { min: null, dominant: null, title: null }, contrast: null, text_area: 0, whitespace: 1, blank: true, missing: [] }
  const root = document.querySelector(`[data-slidev-no="${slide}"]`)
  if (replaced || !root)
    return none
  const round = (value, digits = 3) => Math.round(value * 10 ** digits) / 10 ** digits
  const walk = function* (node) {
    for (const child of node.children) {
      yield child
      yield* walk(child)
      if (child.shadowRoot)
        yield* walk(child.shadowRoot)
    }
  }
  const elements = [...walk(root)]
  const styles = new Map()
  const style = el => styles.get(el) ?? styles.set(el, getComputedStyle(el)).get(el)
  const parent = el => el.parentElement ?? el.getRootNode().host
  const shown = (el) => {
    for (let at = el; at && at !== root.parentElement; at = parent(at)) {
      const s = style(at)
      if (s.display === 'none' || s.visibility === 'hidden' || +s.opacity < 0.05)
        return false
    }
    return true
  }

  // Text: one entry per text node that can be seen, with the rectangles of its lines.
  const pieces = []
  for (const el of [root, ...elements]) {
    if (/^(?:style|script|title|desc|annotation|noscript)$/.test(el.localName) || el.closest?.('.katex-mathml'))
      continue
    for (const node of el.childNodes) {
      if (node.nodeType !== 3 || !node.data.trim() || !shown(el))
        continue
      const range = document.createRange()
      range.selectNodeContents(node)
      const rects = [...range.getClientRects()].filter(rect => rect.width > 0.5 && rect.height > 0.5)
      if (rects.length)
        pieces.push({ el, text: node.data.replace(/\s+/g, ' '), rects, style: style(el), svg: !!el.ownerSVGElement, katex: !!el.closest('.katex') })
    }
  }
  const visible = elements.filter(el => el.getClientRects().length && shown(el))
  const text = (root.innerText ?? '').replace(/[ \t]+/g, ' ').replace(/\n\s*\n+/g, '\n').trim()
  const svgText = pieces.filter(p => p.svg || p.el.getRootNode() !== document).map(p => p.text.trim()).join(' ')
  const full = [text, svgText].filter(Boolean).join('\n')

  // Pictures: elements and backgrounds; a picture without natural size did not arrive.
  const imgs = visible.filter(el => el.localName === 'img' || el.localName === 'image')
  const missing = []
  for (const img of elements.filter(el => el.localName === 'img')) {
    if (!img.complete || !img.naturalWidth)
      missing.push(img.getAttribute('src') ?? '')
  }
  let backgrounds = 0
  for (const el of [root, ...visible]) {
    for (const [, source] of style(el).backgroundImage.matchAll(/url\("?(.*?)"?\)/g)) {
      if (source.startsWith('data:') || el.closest?.('.slidev-icon') || /^i-/.test(el.className))
        continue
      backgrounds++
      const entry = performance.getEntriesByName(source).at(-1)
      if (!entry || (entry.responseStatus && entry.responseStatus >= 400) || (!entry.responseStatus && !entry.decodedBodySize))
        missing.push(source)
    }
  }

  // Overflow: past the canvas, or hidden by an own clipping box.
  let overX = 0
  let overY = 0
  const reach = (rect) => {
    overX = Math.max(overX, rect.right - width, -rect.left)
    overY = Math.max(overY, rect.bottom - height, -rect.top)
  }
  for (const piece of pieces)
    piece.rects.forEach(reach)
  for (const el of visible) {
    if (/^(?:img|svg|table|pre|video|canvas)$/.test(el.localName) && !el.ownerSVGElement)
      reach(el.getBoundingClientRect())
    const s = style(el)
    // What KaTeX and the insides of a diagram clip is their own business.
    if (el !== root && /hidden|clip|auto|scroll/.test(s.overflowX + s.overflowY) && el.clientWidth && el.getRootNode() === document && !el.ownerSVGElement && !el.closest('.katex')) {
      if (/hidden|clip|auto|scroll/.test(s.overflowX))
        overX = Math.max(overX, el.scrollWidth - el.clientWidth)
      if (/hidden|clip|auto|scroll/.test(s.overflowY))
        overY = Math.max(overY, el.scrollHeight - el.clientHeight)
    }
  }

  // Blocks of text against each other, and the area all of it takes, on a grid of 4 px.
  const cell = 4
  const columns = Math.ceil(width / cell)
  const rows = Math.ceil(height / cell)
  const grid = new Uint8Array(columns * rows)
  const ink = new Uint8Array(columns * rows)
  const paint = (target, rect, once) => {
    const x1 = Math.min(columns, Math.floor(rect.right / cell))
    const y1 = Math.min(rows, Math.floor(rect.bottom / cell))
    for (let y = Math.max(0, Math.ceil(rect.top / cell)); y < y1; y++) {
      for (let x = Math.max(0, Math.ceil(rect.left / cell)); x < x1; x++)
        once ? target[y * columns + x] = 1 : target[y * columns + x]++
    }
  }
  const blockOf = el => el.closest('p,li,h1,h2,h3,h4,h5,h6,td,th,pre,blockquote,figcaption,text,foreignObject,.katex-display,.katex') ?? el
  const blocks = new Map()
  for (const piece of pieces) {
    const block = blockOf(piece.el)
    if (!blocks.has(block))
      blocks.set(block, [])
    blocks.get(block).push(...piece.rects.map(rect => ({ left: rect.left, right: rect.right, top: rect.top + rect.height * 0.15, bottom: rect.bottom - rect.height * 0.15 })))
  }
  for (const rects of blocks.values()) {
    const mask = new Uint8Array(columns * rows)
    rects.forEach(rect => paint(mask, rect, true))
    for (let i = 0; i < mask.length; i++)
      grid[i] += mask[i]
  }
  for (const piece of pieces)
    piece.rects.forEach(rect => paint(ink, rect, true))
  const textCells = ink.reduce((sum, value) => sum + value, 0)
  let overlapCells = 0
  for (let i = 0; i < grid.length; i++)
    overlapCells += grid[i] > 1
  for (const el of visible) {
    if (/^(?:img|svg|pre|table|canvas|video)$/.test(el.localName) && !el.ownerSVGElement && !(el.localName === 'svg' && el.closest('.katex')))
      paint(ink, el.getBoundingClientRect(), true)
    else if (el.localName !== 'html' && /url\(/.test(style(el).backgroundImage))
      paint(ink, el.getBoundingClientRect(), true)
  }
  const inkCells = ink.reduce((sum, value) => sum + value, 0)

  // Type: sizes by the characters set in them; what a transform or a diagram's scale does to them counts.
  const sizes = new Map()
  let smallest = Infinity
  for (const piece of pieces) {
    const box = piece.el.getBoundingClientRect()
    const factor = piece.svg ? (piece.el.getScreenCTM?.()?.a ?? 1) : piece.el.offsetWidth ? box.width / piece.el.offsetWidth : 1
    const size = Number.parseFloat(piece.style.fontSize) * (factor > 0.05 && factor < 20 ? factor : 1)
    const count = piece.text.trim().length
    if (!count)
      continue
    if (!piece.katex)
      smallest = Math.min(smallest, size)
    const rounded = Math.round(size)
    sizes.set(rounded, (sizes.get(rounded) ?? 0) + count)
    piece.size = size
  }
  const dominant = [...sizes].sort((a, b) => b[1] - a[1] || a[0] - b[0])[0]?.[0] ?? null
  const heading = visible.find(el => /^h[1-3]$/.test(el.localName) && el.textContent.trim())
  const titleSize = heading ? Number.parseFloat(style(heading).fontSize) : null

  // Contrast: text colour over the colours behind it; where a picture or gradient lies behind, it is not judged.
  const parse = (value) => {
    const m = /rgba?\(([^)]+)\)/.exec(value)
    if (!m)
      return null
    const [r, g, b, a = 1] = m[1].split(/[\s,/]+/).filter(Boolean).map(Number)
    return [r, g, b, a]
  }
  const over = ([r, g, b, a], base) => [r * a + base[0] * (1 - a), g * a + base[1] * (1 - a), b * a + base[2] * (1 - a), 1]
  const luminance = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    return 0.2126 * x + 0.7152 * y + 0.0722 * z
  }
  let contrast = null
  for (const piece of pieces) {
    // Lines of code that a highlight pushes back are dim on purpose.
    if (piece.svg || piece.el.getRootNode() !== document || piece.el.closest('.slidev-code-dishonored'))
      continue
    const stack = []
    let opacity = 1
    let judged = true
    for (let at = piece.el; at; at = parent(at)) {
      const s = style(at)
      opacity *= +s.opacity
      if (/url\(|gradient/.test(s.backgroundImage)) {
        judged = false
        break
      }
      const colour = parse(s.backgroundColor)
      if (colour?.[3])
        stack.push(colour)
      if (colour?.[3] === 1)
        break
    }
    const colour = parse(piece.style.color)
    if (!judged || !colour || /text/.test(piece.style.webkitBackgroundClip))
      continue
    const behind = stack.reverse().reduce((base, layer) => over(layer, base), [255, 255, 255, 1])
    const front = over([colour[0], colour[1], colour[2], colour[3] * opacity], behind)
    const [a, b] = [luminance(front), luminance(behind)].sort((x, y) => y - x)
    const ratio = (a + 0.05) / (b + 0.05)
    contrast = contrast === null ? ratio : Math.min(contrast, ratio)
  }

  const diagrams = elements.filter(el => el.classList?.contains('mermaid') && el.shadowRoot?.querySelector('svg')).length
  const tables = visible.filter(el => /^t[dh]$/.test(el.localName))
  const code = visible.filter(el => el.localName === 'pre' && el.classList.contains('slidev-code'))
  const icons = visible.filter(el => el.localName === 'svg' && !el.closest('.katex')).length
  const seen = full.length > 0 || imgs.length > 0 || backgrounds > 0 || diagrams > 0 || icons > 0
  const grids = visible.filter(el => /grid/.test(style(el).display) && el.clientWidth > width * 0.5).map(el => style(el).gridTemplateColumns.split(' ').filter(size => Number.parseFloat(size) > width * 0.12).length)
  const flexes = visible.filter(el => style(el).display === 'flex' && /^row/.test(style(el).flexDirection) && el.clientWidth > width * 0.5)
    .map(el => [...el.children].filter(child => child.getBoundingClientRect().width > width * 0.2 && child.getBoundingClientRect().height > 60).length)
  return {
    slide, line, layout, title: (heading?.innerText ?? title ?? '').replace(/\s+/g, ' ').trim(), text: full, words: (full.match(/[\p{L}\p{N}]+(?:['’.-][\p{L}\p{N}]+)*/gu) ?? []).length,
    bullets: visible.filter(el => el.localName === 'li').length, images: imgs.length + backgrounds, images_broken: missing.length,
    code_lines: code.reduce((sum, el) => sum + el.querySelectorAll('.line').length, 0), table_cells: tables.length, diagrams, formulas,
    quotes: visible.filter(el => el.localName === 'blockquote').length, columns: Math.max(1, ...grids, ...flexes),
    overflow: { x: Math.max(0, Math.round(overX)), y: Math.max(0, Math.round(overY)) }, overlap: round(overlapCells / (columns * rows)),
    font: { min: Number.isFinite(smallest) ? round(smallest, 1) : null, dominant, title: titleSize === null ? null : round(titleSize, 1) },
    contrast: contrast === null ? null : round(contrast, 2), text_area: round(textCells / (columns * rows)), whitespace: round(1 - inkCells / (columns * rows)), blank: !seen, missing,
  }
}
