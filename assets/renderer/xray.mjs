/**
 * Runs in the page: what can be measured of the slide that stands there. Lengths in CSS px, shares of the canvas; the host counts the `words`.
 * Every page runs this code cold: what the browser does in one call is cheaper than a loop here, and a property of a style is read once.
 * `boxes` are the elements that a finding can point at (docs/records.md), at most MOST of them: those with a defect first.
 */
export function measure({ slide, line, layout, title, formulas, width, height, replaced }) {
  const none = { slide, line, layout, title: title ?? '', text: '', words: 0, bullets: 0, images: 0, images_broken: 0, code_lines: 0, table_cells: 0, diagrams: 0, formulas: 0, quotes: 0, columns: 1,
    overflow: { x: 0, y: 0 }, overlap: 0, font: { min: null, dominant: null, title: null }, contrast: null, text_area: 0, whitespace: 1, blank: true, boxes: [], missing: [] }
  const MOST = 60
  const { root, lost } = globalThis.letters // of the page with the same letters as in its picture
  if (replaced || !root)
    return none
  const round = (value, digits = 3) => Math.round(value * 10 ** digits) / 10 ** digits
  const elements = []
  const collect = (node) => {
    for (const el of node.querySelectorAll('*')) {
      elements.push(el)
      if (el.shadowRoot)
        collect(el.shadowRoot)
    }
  }
  collect(root)
  const mathematical = !!root.querySelector('.katex')
  const katexOf = el => mathematical ? el.closest('.katex') : null
  const styles = new Map()
  const style = el => styles.get(el) ?? styles.set(el, getComputedStyle(el)).get(el)
  const parent = el => el.parentElement ?? el.getRootNode().host
  const showing = new Map([[root.parentElement, true], [null, true], [undefined, true]])
  const shown = (el) => {
    if (!showing.has(el)) {
      const s = style(el)
      showing.set(el, s.display !== 'none' && s.visibility !== 'hidden' && +s.opacity >= 0.05 && shown(parent(el)))
    }
    return showing.get(el)
  }

  // Text: one entry per text node that can be seen, with the rectangles of its lines.
  const pieces = []
  const tiny = [] // less than half a pixel high or wide, which no picture shows
  const unseen = new Set(['style', 'script', 'title', 'desc', 'annotation', 'noscript'])
  const range = document.createRange()
  for (const el of [root, ...elements]) {
    for (let node = el.firstChild; node; node = node.nextSibling) {
      if (node.nodeType !== 3 || !node.data.trim() || unseen.has(el.localName) || !shown(el) || (mathematical && el.closest('.katex-mathml')))
        continue
      range.selectNodeContents(node)
      const rects = []
      for (const rect of range.getClientRects()) {
        if (rect.width > 0.5 && rect.height > 0.5)
          rects.push({ left: rect.left, right: rect.right, top: rect.top, bottom: rect.bottom })
      }
      if (!rects.length && /[\p{L}\p{N}]/u.test(node.data))
        tiny.push(node)
      if (rects.length)
        pieces.push({ el, node, text: node.data.replace(/\s+/g, ' '), rects, style: style(el), svg: !!el.ownerSVGElement, katex: !!katexOf(el), lost: lost.has(node) })
    }
  }
  const visible = elements.filter(el => el.getClientRects().length && shown(el))
  // innerText has what is see-through too, which nobody reads.
  const faded = elements.filter(el => +style(el).opacity < 0.05 && shown(parent(el)) && el.innerText?.trim())
  // Nor has anybody what the picture does not show (letters.mjs).
  const held = [...lost, ...tiny].map(node => [node, node.data])
  held.forEach(([node]) => node.data = '')
  const all = faded.reduce((said, el) => said.replace(el.innerText.trim(), () => ''), root.innerText ?? '')
  held.forEach(([node, data]) => node.data = data)
  const text = all.replace(/[ \t]+/g, ' ').replace(/\n\s*\n+/g, '\n').trim()
  const svgText = pieces.filter(p => !p.lost && (p.svg || p.el.getRootNode() !== document)).map(p => p.text.trim()).join(' ')
  const full = [text, svgText].filter(Boolean).join('\n')

  const backgroundOf = new Map()
  for (const el of [root, ...visible]) {
    const image = style(el).backgroundImage
    if (image !== 'none')
      backgroundOf.set(el, image)
  }

  // Pictures: elements and backgrounds; a picture without natural size did not arrive.
  const imgs = visible.filter(el => el.localName === 'img' || el.localName === 'image')
  const missing = []
  for (const img of elements.filter(el => el.localName === 'img')) {
    if (!img.complete || !img.naturalWidth)
      missing.push(img.getAttribute('src') ?? '')
  }
  let backgrounds = 0
  for (const [el, image] of backgroundOf) {
    for (const [, source] of image.matchAll(/url\("?(.*?)"?\)/g)) {
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
  const solids = new Set(['img', 'svg', 'table', 'pre', 'video', 'canvas'])
  // Whether anything is lost at the sides of a clipping box: a bar behind a heading that runs on (frankfurt) is not.
  const hides = (el) => {
    const { left, right } = el.getBoundingClientRect()
    const past = rect => rect.right > right + 1 || rect.left < left - 1
    const inside = (child) => {
      for (let at = child; at; at = parent(at)) {
        if (at === el)
          return true
      }
      return false
    }
    return pieces.some(piece => piece.rects.some(past) && inside(piece.el)) || visible.some(child => !/^(?:h[1-6]|header|footer)$/.test(child.localName) && past(child.getBoundingClientRect()) && child !== el && inside(child))
  }
  for (const el of visible) {
    if (solids.has(el.localName) && !el.ownerSVGElement)
      reach(el.getBoundingClientRect())
    const s = style(el)
    // What KaTeX and the insides of a diagram clip is their own business.
    if (s.overflow !== 'visible' && el !== root && el.clientWidth && el.getRootNode() === document && !el.ownerSVGElement && !katexOf(el)) {
      if (/hidden|clip|auto|scroll/.test(s.overflowX) && el.scrollWidth > el.clientWidth && hides(el))
        overX = Math.max(overX, el.scrollWidth - el.clientWidth)
      if (/hidden|clip|auto|scroll/.test(s.overflowY))
        overY = Math.max(overY, el.scrollHeight - el.clientHeight)
    }
  }

  // Blocks of text against each other, and the area all of it takes, on a grid of 4 px.
  const cell = 4
  const columns = Math.ceil(width / cell)
  const rows = Math.ceil(height / cell)
  /** The cells that lie wholly in a rectangle: [x0, x1, y0, y1]. */
  const cellsOf = rect => [Math.max(0, Math.ceil(rect.left / cell)), Math.min(columns, Math.floor(rect.right / cell)), Math.max(0, Math.ceil(rect.top / cell)), Math.min(rows, Math.floor(rect.bottom / cell))]
  const ink = new Uint8Array(columns * rows)
  const paint = (grid, [x0, x1, y0, y1]) => {
    for (let y = y0; x0 < x1 && y < y1; y++)
      grid.fill(1, y * columns + x0, y * columns + x1)
  }
  const painted = (grid) => {
    let count = 0
    for (let from = grid.indexOf(1), to; from >= 0; from = grid.indexOf(1, to)) {
      to = grid.indexOf(0, from)
      count += (to < 0 ? to = grid.length : to) - from
    }
    return count
  }
  const blockOf = el => el.closest('p,li,h1,h2,h3,h4,h5,h6,td,th,pre,blockquote,figcaption,text,foreignObject,.katex-display,.katex') ?? el
  const blocks = new Map()
  for (const piece of pieces) {
    const block = blockOf(piece.el)
    if (!blocks.has(block))
      blocks.set(block, [])
    blocks.get(block).push(...piece.rects.map(rect => ({ left: rect.left, right: rect.right, top: rect.top + (rect.bottom - rect.top) * 0.15, bottom: rect.bottom - (rect.bottom - rect.top) * 0.15 })))
  }
  // An overlap is a cell that two blocks cover.
  const once = new Uint8Array(columns * rows)
  const twice = new Uint8Array(columns * rows)
  for (const rects of blocks.values()) {
    const areas = rects.map(cellsOf)
    for (const [x0, x1, y0, y1] of areas) {
      for (let y = y0; x0 < x1 && y < y1; y++) {
        const to = y * columns + x1
        for (let at = once.indexOf(1, y * columns + x0), end; at >= 0 && at < to; at = once.indexOf(1, end)) {
          end = once.indexOf(0, at)
          end = end < 0 || end > to ? to : end
          twice.fill(1, at, end)
        }
      }
    }
    areas.forEach(area => paint(once, area))
  }
  const overlapCells = painted(twice)
  for (const piece of pieces)
    piece.rects.forEach(rect => paint(ink, cellsOf(rect)))
  const textCells = painted(ink)
  for (const el of visible) {
    const name = el.localName
    if (solids.has(name) ? !el.ownerSVGElement && !(name === 'svg' && katexOf(el)) : name !== 'html' && backgroundOf.get(el)?.includes('url('))
      paint(ink, cellsOf(el.getBoundingClientRect()))
  }
  const inkCells = painted(ink)

  // Type: sizes by the characters set in them; what a transform or a diagram's scale does to them counts.
  const factors = new Map()
  // What the transforms of an element and of those around it come to.
  const turns = new Map([[root, new DOMMatrix()], [null, new DOMMatrix()], [undefined, new DOMMatrix()]])
  const turned = (el) => {
    if (!turns.has(el)) {
      const { transform, rotate, scale } = style(el)
      let matrix = turned(parent(el))
      if (rotate !== 'none' || scale !== 'none')
        matrix = matrix.multiply(new DOMMatrix(`${rotate === 'none' ? '' : `rotate(${rotate})`} ${scale === 'none' ? '' : `scale(${scale.replaceAll(' ', ',')})`}`))
      turns.set(el, transform === 'none' ? matrix : matrix.multiply(new DOMMatrix(transform)))
    }
    return turns.get(el)
  }
  // offsetWidth is rounded to whole pixels: only more than that is a transform.
  const scaled = (el) => {
    if (!factors.has(el)) {
      const { width: drawn } = el.getBoundingClientRect()
      const { a, b, c, d } = turned(el)
      // What is squeezed is as small as it is low.
      const flat = Math.min(1, Math.abs(a * d - b * c) / (a * a + b * b) || 1)
      factors.set(el, flat * (el.offsetWidth && Math.abs(drawn - el.offsetWidth) > 1 ? drawn / el.offsetWidth : 1))
    }
    return factors.get(el)
  }
  const sizes = new Map()
  let smallest = Infinity
  for (const piece of pieces) {
    const factor = piece.svg ? (piece.el.getScreenCTM?.()?.a ?? 1) : scaled(blockOf(piece.el))
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

  // Elements a finding can point at: blocks of text with their lines, pictures, diagrams, tables; in document order.
  const clips = new Map()
  const clipped = (el) => {
    if (!clips.has(el)) {
      const up = el === root || !el ? null : clipped(parent(el))
      const s = style(el)
      const hides = axis => /hidden|clip|auto|scroll/.test(axis)
      let clip = up
      if (el !== root && s.overflow !== 'visible' && el.clientWidth) {
        const r = el.getBoundingClientRect()
        // What is as large as the canvas is the canvas.
        if (r.width < width * 0.98 || r.height < height * 0.98) {
          const none = { left: -Infinity, right: Infinity, top: -Infinity, bottom: Infinity }
          const outer = up ?? none
          clip = { ...outer }
          if (hides(s.overflowX))
            Object.assign(clip, { left: Math.max(outer.left, r.left), right: Math.min(outer.right, r.right) })
          if (hides(s.overflowY))
            Object.assign(clip, { top: Math.max(outer.top, r.top), bottom: Math.min(outer.bottom, r.bottom) })
        }
      }
      clips.set(el, clip)
    }
    return clips.get(el)
  }
  const union = rects => rects.reduce((all, r) => ({ left: Math.min(all.left, r.left), right: Math.max(all.right, r.right), top: Math.min(all.top, r.top), bottom: Math.max(all.bottom, r.bottom) }))
  const found = new Map()
  const note = (el, kind) => found.get(el) ?? found.set(el, { el, kind, tag: el.localName, rects: [], pieces: [] }).get(el)
  const owner = (el) => {
    const whole = el.closest('pre.slidev-code, .katex-display')
    if (whole)
      return whole
    let at = el.closest('.katex') ?? el
    while (at !== root && (/^(?:inline$|contents|ruby|math)/.test(style(at).display) || at.closest('.katex')) && parent(at) && parent(at) !== root)
      at = parent(at)
    return at
  }
  const kindOf = el => el.matches('.katex-display') ? 'formula' : el.matches('pre') ? 'code' : /^h[1-6]$/.test(el.localName) ? 'title' : /^t[dh]$/.test(el.localName) ? 'cell' : el.closest('blockquote') ? 'quote' : el.closest('li') ? 'item' : 'text'
  const drawing = (el) => {
    while (el.getRootNode() !== document)
      el = el.getRootNode().host
    return el.closest('.mermaid') ?? el.closest('svg') ?? el
  }
  // As the source has it: formulas as TeX, lines of code apart.
  const read = ({ kind, pieces }) => {
    let text = ''
    let before
    for (const piece of pieces) {
      const unit = piece.katex ? piece.el.closest('.katex') : kind === 'code' ? piece.el.closest('.line') : kind === 'diagram' ? piece.el : null
      if (piece.katex)
        text += unit === before ? '' : ` ${unit.querySelector('annotation')?.textContent ?? piece.text} `
      else
        text += unit === before ? piece.text : ` ${piece.text}`
      before = unit
      if (text.length > 160)
        break
    }
    return text.replace(/\s+/g, ' ').trim()
  }
  for (const piece of pieces) {
    const inside = piece.svg || piece.el.getRootNode() !== document
    const el = inside ? drawing(piece.el) : owner(piece.el)
    const entry = note(el, inside ? (el.classList.contains('mermaid') ? 'diagram' : 'image') : kindOf(el))
    entry.pieces.push(piece)
    piece.box = entry
    if (!inside)
      entry.rects.push(...piece.rects)
  }
  for (const el of visible) {
    const name = el.localName
    if (el.ownerSVGElement || el.getRootNode() !== document || el.closest('.katex'))
      continue
    if (name === 'img' || name === 'video' || name === 'canvas')
      Object.assign(note(el, 'image'), { src: el.getAttribute('src') ?? '', broken: name === 'img' && (!el.complete || !el.naturalWidth) })
    else if (el.shadowRoot && el.classList.contains('mermaid'))
      note(el, 'diagram')
    else if (name === 'svg' && !el.classList.contains('slidev-icon'))
      note(el, 'image')
    else if (name === 'table')
      note(el, 'table')
  }
  for (const [el, image] of backgroundOf) {
    const source = !/^i-|slidev-icon/.test(String(el.className)) && /url\("?(?!data:)(.*?)"?\)/.exec(image)?.[1]
    if (source && !found.has(el) && !el.ownerSVGElement)
      Object.assign(note(el, 'background'), { src: source, broken: missing.includes(source) })
  }
  // A block that its own box or one around it cuts off, and what of it can still be seen.
  const entries = [...found.values()].filter(({ el, kind }) => !(kind === 'background' && el === root))
  const past = r => Math.max(r.right - width, -r.left, r.bottom - height, -r.top)
  for (const entry of entries) {
    const { el, kind } = entry
    if (kind !== 'diagram' && entry.pieces.length > 1)
      entry.pieces.sort((a, b) => a.node.compareDocumentPosition(b.node) & 4 ? -1 : 1)
    entry.text = read(entry)
    const own = el.getBoundingClientRect()
    const drawn = el.shadowRoot?.querySelector('svg')?.getBoundingClientRect()
    const all = drawn ?? (entry.rects.length ? union(kind === 'code' ? [...entry.rects, own] : entry.rects) : own)
    const clip = clipped(el)
    entry.seen = all
    if (clip) {
      entry.seen = { left: Math.max(all.left, Math.min(clip.left, all.right)), right: Math.min(all.right, Math.max(clip.right, all.left)), top: Math.max(all.top, Math.min(clip.top, all.bottom)), bottom: Math.min(all.bottom, Math.max(clip.bottom, all.top)) }
      const cut = [Math.max(0, all.right - clip.right, clip.left - all.left), Math.max(0, all.bottom - clip.bottom, clip.top - all.top)].map(Math.round)
      if (kind !== 'background' && (cut[0] > 1 || cut[1] > 1))
        entry.cut = cut
    }
    // Of code, the line that is too long or the first below the edge.
    if (kind === 'code' && (entry.cut || past(entry.seen) > 1)) {
      const edge = { right: Math.min(clip?.right ?? width, width), bottom: Math.min(clip?.bottom ?? height, height) }
      const line = entry.pieces.find(piece => piece.rects.some(r => r.right > edge.right + 1 || r.bottom > edge.bottom + 1))
      entry.part = (line?.el.closest('.line') ?? line?.el)?.textContent.trim().slice(0, 120)
    }
    const sizes = entry.pieces.filter(piece => !piece.katex && piece.size).map(piece => piece.size)
    entry.size = sizes.length ? Math.min(...sizes) : null
  }

  // Contrast: what is painted under a text, layer by layer, until something covers the rest; over a picture or gradient it is not judged.
  const colours = new Map()
  const parse = (value) => {
    if (!colours.has(value)) {
      const m = /rgba?\(([^)]+)\)/.exec(value)
      const [r, g, b, a = 1] = m ? m[1].split(/[\s,/]+/).filter(Boolean).map(Number) : []
      colours.set(value, m && [r, g, b, a])
    }
    return colours.get(value)
  }
  const over = ([r, g, b, a], [x, y, z, c]) => {
    const alpha = a + c * (1 - a)
    const mix = (top, below) => alpha ? (top * a + below * c * (1 - a)) / alpha : 0
    return [mix(r, x), mix(g, y), mix(b, z), alpha]
  }
  const luminance = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    return 0.2126 * x + 0.7152 * y + 0.0722 * z
  }
  // What an element paints behind what it holds.
  const paints = new Map()
  const paintOf = (el) => {
    if (!paints.has(el)) {
      const s = style(el)
      // A theme may draw a heading's bar as its ::before (the-unnamed): where that is as large as the heading, it is what lies behind the text.
      const bar = /^h[1-6]$/.test(el.localName) && getComputedStyle(el, '::before')
      const covers = bar && bar.position === 'absolute' && Number.parseFloat(bar.width) > el.offsetWidth * 0.8 && Number.parseFloat(bar.height) > el.offsetHeight * 0.8
      const colour = parse((covers && parse(bar.backgroundColor)?.[3] && bar.opacity === '1' ? bar : s).backgroundColor)
      paints.set(el, { solid: /^(?:img|video|canvas)$/.test(el.localName) || /url\(|gradient/.test(s.backgroundImage), colour, opacity: +s.opacity })
    }
    return paints.get(el)
  }
  const chain = (el) => {
    const all = []
    for (let at = el; at; at = parent(at))
      all.push(at)
    return all
  }
  // The layers under a point of a block, from the block down, and whether something lies on it.
  const under = (entry, rect) => {
    const [x, y] = [(rect.left + rect.right) / 2, (rect.top + rect.bottom) / 2]
    const up = chain(entry.el)
    if (x < 0 || y < 0 || x >= width || y >= height)
      return up
    const hits = document.elementsFromPoint(x, y)
    const first = hits.findIndex(el => el === entry.el || entry.el.contains(el))
    if (first < 0)
      return up
    for (const el of hits.slice(0, first)) {
      if (!el.contains(entry.el) && (paintOf(el).solid || paintOf(el).colour?.[3] > 0.9) && shown(el))
        entry.covered = true
    }
    const below = hits.slice(first).filter(el => !entry.el.contains(el))
    // What a pointer goes through is not among the hits.
    return [entry.el, ...below, ...up.slice(1).filter(el => !below.includes(el))]
  }
  const ratioOf = (piece, layers) => {
    const colour = parse(piece.style.color)
    if (!colour || /text/.test(piece.style.webkitBackgroundClip))
      return null
    const inner = []
    for (let at = piece.el; at && at !== layers[0]; at = parent(at))
      inner.push(at)
    const ancestors = new Set([...inner, ...chain(layers[0])])
    let front = colour
    let behind = [0, 0, 0, 0]
    for (const el of [...inner, ...layers]) {
      const { solid, colour: layer, opacity } = paintOf(el)
      const own = ancestors.has(el)
      if (solid && (own || shown(el)))
        return null
      if (layer?.[3] && (own || shown(el))) {
        const through = own ? layer : [layer[0], layer[1], layer[2], layer[3] * opacity]
        front = over(front, through)
        behind = over(behind, through)
      }
      if (own && opacity < 1) {
        front = [front[0], front[1], front[2], front[3] * opacity]
        behind = [behind[0], behind[1], behind[2], behind[3] * opacity]
      }
      if (behind[3] > 0.999)
        break
    }
    const [a, b] = [front, behind].map(c => luminance(over(c, [255, 255, 255, 1]))).sort((x, y) => y - x)
    return (a + 0.05) / (b + 0.05)
  }
  let contrast = null
  for (const entry of entries) {
    if (!entry.rects.length)
      continue
    const seen = new Map()
    const points = [...new Set([entry.rects[0], entry.rects.at(-1)])].map(rect => under(entry, rect))
    for (const piece of entry.pieces) {
      // Lines of code that a highlight pushes back are dim on purpose.
      if (piece.el.closest('.slidev-code-dishonored'))
        continue
      const key = piece.el === entry.el ? '' : `${piece.style.color} ${piece.style.backgroundColor} ${piece.style.opacity} ${parent(piece.el) === entry.el ? '' : seen.size}`
      if (seen.has(key))
        continue
      seen.set(key, true)
      for (const layers of points) {
        const ratio = ratioOf(piece, layers)
        if (ratio === null)
          entry.unjudged = true
        else
          entry.contrast = Math.min(entry.contrast ?? 21, ratio)
      }
    }
    if (entry.contrast !== undefined)
      contrast = Math.min(contrast ?? 21, entry.contrast)
  }

  // Pairs of texts that lie on each other, line by line; the share is of the smaller text.
  const texts = entries.filter(entry => entry.rects.length).slice(0, 200)
  for (const entry of texts) {
    entry.lines = entry.rects.map(r => ({ left: r.left, right: r.right, top: r.top + (r.bottom - r.top) * 0.15, bottom: r.bottom - (r.bottom - r.top) * 0.15 }))
    entry.area = entry.lines.reduce((sum, r) => sum + (r.right - r.left) * (r.bottom - r.top), 0)
  }
  for (const [i, a] of texts.entries()) {
    for (const b of texts.slice(i + 1)) {
      if (a.seen.right <= b.seen.left || b.seen.right <= a.seen.left || a.seen.bottom <= b.seen.top || b.seen.bottom <= a.seen.top || a.cut || b.cut)
        continue
      let shared = 0
      for (const r of a.lines) {
        for (const q of b.lines)
          shared += Math.max(0, Math.min(r.right, q.right) - Math.max(r.left, q.left)) * Math.max(0, Math.min(r.bottom, q.bottom) - Math.max(r.top, q.top))
      }
      const share = round(Math.min(1, shared / Math.min(a.area, b.area)), 2)
      if (share >= 0.02)
        (b.on ??= []).push([a, share])
    }
  }
  const bad = entry => entry.cut || entry.covered || entry.pieces.some(piece => piece.lost) || entry.on || entry.broken || past(entry.seen) > 1 || entry.size < 12 || entry.contrast < 3
  const defects = entries.map(entry => !!bad(entry))
  const order = [...entries.keys()].sort((i, j) => defects[j] - defects[i] || (entries[i].kind === 'cell') - (entries[j].kind === 'cell') || i - j)
  // The last bad one is usually the farthest out.
  const final = order.findLast(i => defects[i])
  const kept = [...new Set([...(final === undefined ? [] : [final]), ...order])].slice(0, MOST).map(i => entries[i])
    .sort((a, b) => a.el.compareDocumentPosition(b.el) & 4 ? -1 : 1)

  // How the widest line of a block looks where it can be read: its first letters drawn plainly in their own font. Whoever has the picture can
  // compare (lib/decksmith/measure/judging/legibility.py). Two bands, upper and lower half, each a row of cells of a sixteenth of the font's size; a hexadecimal
  // digit is the share of ink in a cell.
  const [EM, CELL, SAMPLE] = [32, 2, 24]
  const paper = new OffscreenCanvas(EM * SAMPLE * 2, EM * 3).getContext('2d', { willReadFrequently: true })
  const segmenter = new Intl.Segmenter(undefined, { granularity: 'word' })
  const inkOf = (entry) => {
    let best = null
    for (const piece of entry.pieces) {
      for (const rect of piece.katex || piece.svg ? [] : piece.rects) {
        if (!best || rect.right - rect.left > best.rect.right - best.rect.left)
          best = { piece, rect }
      }
    }
    const lean = best && leaning(best.piece.el)
    if (!best || lean === null)
      return null
    const { piece: { node, style: s, rects }, rect } = best
    const rectsOf = (from, to) => {
      range.setStart(node, from)
      range.setEnd(node, to)
      return [...range.getClientRects()]
    }
    const many = !lean && rects.length > 1
    const here = r => r.width > 0 && Math.abs(r.top - rect.top) < 2 && r.left >= rect.left - 1 && r.right <= rect.right + 1
    let start = 0
    while (start < node.length && (!node.data[start].trim() || (many && start < 2000 && !rectsOf(start, start + 1).some(here))))
      start++
    let end = Math.min(node.length, start + SAMPLE)
    // A word that is cut joins and clusters its letters otherwise than on the page (Arabic, Thai).
    const whole = [...segmenter.segment(node.data.slice(start, end + SAMPLE))].findLast(word => word.index <= end - start)?.index
    if (start + SAMPLE < node.length && whole > 3)
      end = start + whole
    while (end > start && (!node.data[end - 1].trim() || (many ? !rectsOf(end - 1, end).some(here) : lean && rectsOf(start, end).length > 1)))
      end--
    const line = end > start && rectsOf(start, end).find(r => lean || here(r))
    let words = node.data.slice(start, end)
    if (!/^pre|break-spaces/.test(s.whiteSpace))
      words = words.replace(/\s+/g, ' ')
    if (!line || words.replace(/\s/g, '').length < 4)
      return null
    words = s.textTransform === 'uppercase' ? words.toUpperCase() : s.textTransform === 'lowercase' ? words.toLowerCase() : s.textTransform === 'capitalize' ? words.replace(/(^|\s)\S/g, c => c.toUpperCase()) : words
    const size = Number.parseFloat(s.fontSize)
    const spacing = Number.parseFloat(s.letterSpacing) / size || 0
    paper.font = `${s.fontStyle} ${s.fontWeight} ${EM}px ${s.fontFamily}`
    // Letters that stand on each other or far apart make no words.
    paper.letterSpacing = `${spacing > -0.12 && spacing < 0.6 ? spacing * EM : 0}px`
    paper.fontVariantCaps = s.fontVariantCaps
    paper.direction = s.direction
    paper.textAlign = 'left'
    const { width: wide, fontBoundingBoxAscent: up, fontBoundingBoxDescent: down } = paper.measureText(words)
    const [across, high] = [Math.round(wide / CELL), Math.round(up + down)]
    if (across < 8 || across * CELL > paper.canvas.width || high > paper.canvas.height)
      return null
    paper.clearRect(0, 0, paper.canvas.width, paper.canvas.height)
    paper.fillText(words, 0, up)
    const wider = across * CELL
    const pixels = new Uint32Array(paper.getImageData(0, 0, wider, high).data.buffer) // the share of ink in the highest byte
    let digits = ''
    for (const [top, bottom] of [[0, high >> 1], [high >> 1, high]]) {
      for (let column = 0; column < wider; column += CELL) {
        let sum = 0
        for (let at = top * wider + column, end = bottom * wider; at < end; at += wider)
          sum += (pixels[at] >>> 24) + (pixels[at + 1] >>> 24)
        digits += Math.min(15, Math.round(sum / 255 / CELL / (bottom - top) * 24)).toString(16)
      }
    }
    if (!lean)
      return { line: [line.left, line.top, line.width, line.height].map(v => round(v, 1)), ink: digits }
    // The rectangle that stands upright around a leaning one, taken back: both have one middle.
    const [cos, sin] = [Math.cos(lean * Math.PI / 180), Math.abs(Math.sin(lean * Math.PI / 180))]
    const [long, tall] = [line.width * cos - line.height * sin, line.height * cos - line.width * sin].map(v => v / (cos * cos - sin * sin))
    const upright = [(line.left + line.right - long) / 2, (line.top + line.bottom - tall) / 2, long, tall]
    return { line: upright.map(v => round(v, 1)), lean: round(lean, 2), ink: digits }
  }
  // By how many degrees a text leans, clockwise; null of text in columns. What is turned farther than LEAN or mirrored is compared as it stands.
  const LEAN = 20
  const leaning = (el) => {
    if (!/^horizontal/.test(style(el).writingMode))
      return null
    const { a, b } = turned(el)
    const angle = Math.atan2(b, a) * 180 / Math.PI
    return Math.abs(angle) > 0.3 && Math.abs(angle) < LEAN ? angle : 0
  }

  const boxes = kept.map((entry) => {
    const { kind, tag, seen, text, part, src, size, contrast, cut, covered, on, broken, unjudged } = entry
    const [x, y, right, bottom] = [seen.left, seen.top, seen.right, seen.bottom].map(Math.round)
    const box = { kind, tag, box: [x, y, right - x, bottom - y] }
    const say = (name, value) => value && (box[name] = value)
    say('text', text.slice(0, 80))
    say('part', part)
    say('src', src?.startsWith('data:') ? '' : src?.replace(location.origin, '').slice(0, 200))
    say('size', size && round(size, 1))
    say('contrast', contrast && round(contrast, 2))
    say('unjudged', unjudged)
    say('cut', cut)
    say('covered', covered)
    say('unseen', x < width && y < height && right > 0 && bottom > 0 && entry.pieces.length > 0 && entry.pieces.every(piece => piece.lost))
    say('broken', broken)
    Object.assign(box, inkOf(entry))
    say('on', on?.map(([other, share]) => [kept.indexOf(other), share]).filter(([other]) => other >= 0).slice(0, 5))
    return box
  })

  const diagrams = elements.filter(el => el.classList?.contains('mermaid') && el.shadowRoot?.querySelector('svg')).length
  const count = { li: 0, td: 0, th: 0, blockquote: 0 }
  let [icons, codeLines, across] = [0, 0, 1]
  for (const el of visible) {
    const name = el.localName
    const { display } = style(el)
    if (name in count)
      count[name]++
    else if (name === 'svg')
      icons += !katexOf(el)
    else if (name === 'pre' && el.classList.contains('slidev-code'))
      codeLines += el.querySelectorAll('.line').length
    if (display.includes('grid') && el.clientWidth > width * 0.5)
      across = Math.max(across, style(el).gridTemplateColumns.split(' ').filter(size => Number.parseFloat(size) > width * 0.12).length)
    else if (display === 'flex' && el.clientWidth > width * 0.5 && style(el).flexDirection.startsWith('row'))
      across = Math.max(across, [...el.children].filter(child => child.getBoundingClientRect().width > width * 0.2 && child.getBoundingClientRect().height > 60).length)
  }
  const seen = full.length > 0 || imgs.length > 0 || backgrounds > 0 || diagrams > 0 || icons > 0
  return {
    slide, line, layout, title: (heading?.innerText ?? title ?? '').replace(/\s+/g, ' ').trim(), text: full, words: 0,
    bullets: count.li, images: imgs.length + backgrounds, images_broken: missing.length,
    code_lines: codeLines, table_cells: count.td + count.th, diagrams, formulas,
    quotes: count.blockquote, columns: across,
    overflow: { x: Math.max(0, Math.round(overX)), y: Math.max(0, Math.round(overY)) }, overlap: round(overlapCells / (columns * rows)),
    font: { min: Number.isFinite(smallest) ? round(smallest, 1) : null, dominant, title: titleSize === null ? null : round(titleSize, 1) },
    contrast: contrast === null ? null : round(contrast, 2), text_area: round(textCells / (columns * rows)), whitespace: round(1 - inkCells / (columns * rows)), blank: !seen, boxes, missing,
  }
}
