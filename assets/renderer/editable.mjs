/**
 * A slide that stands still, taken apart into what a presentation program edits: boxes, text, tables, and pictures of the rest.
 *
 * The functions below run in the page, in our own world of it, as `OUTLINE` and `SHOW`; nothing of the deck runs meanwhile. Lengths are CSS px.
 * `outline` gives {background, layout, frames, fonts, nodes}, in the order in which they are painted:
 *   box      {rect, fill, edges, radius, shadow}                    fill: a colour [r, g, b, a] or {angle, stops: [[share, colour], ..]}
 *   text     {rect, wrap, paragraphs}
 *   table    {rect, columns, rows, cells: [{row, column, down, across, fill, edges, inset, middle, paragraphs}]}
 *   picture  {rect, frame, alt, link, ground, chart}                chart: its data, of a diagram that is one (charts.mjs)
 * Whichever fills a place of the layout says which (`place`): the title 0, the first body or a picture 1, the second body, or a picture's words, 2;
 * and `show(k)` makes of the page what frame `k` is taken of: its pictures alone, on nothing. Frame -1 has what pseudo-elements draw.
 */

/** Keys of a part that hold lengths; a file's slide is as wide as one of 980 px. */
const LENGTHS = new Set('rect radius rows columns inset size spacing gap hang height before left right x y blur'.split(' '))
const MOST = 1500 // nodes; a slide of more is one picture

/** Of a slide's elements, the nodes; `paint` is the order of layers, as a list of z-indices from the outermost in. */
function outline({ width, height, charts, layout }) {
  const diagrams = [...document.querySelectorAll('.mermaid')].filter(el => el.shadowRoot)
  const page = { charts: new Map(diagrams.length === charts.length ? diagrams.map((el, i) => [el, charts[i]]) : []), width, height, nodes: [], frames: [], background: [255, 255, 255, 1], pseudo: false, flows: [], count: 0, heading: false, fonts: {} }
  const root = document.documentElement
  walk(page, root, { opacity: 1, scale: 1, paint: [], ground: page.background, column: {}, level: 0, clip: { left: 0, top: 0, right: width, bottom: height } })
  for (const flow of page.flows)
    Object.assign(flow.node, textBox(flow))
  const nodes = page.nodes.filter(node => node.kind !== 'text' || node.paragraphs.length)
  const layered = nodes.map((node, i) => ({ node, i })).sort((a, b) => layers(a.node.paint, b.node.paint) || a.i - b.i).map(({ node: { paint, ...node } }) => node)
  return { background: page.background, layout: settle(layered, layout, width, height), frames: page.frames.length, pseudo: page.pseudo, fonts: page.fonts, nodes: layered }
}

/** Says which nodes fill a place of their slide's layout; the name of that layout among those of a presentation program. `layout` is Slidev's. */
function settle(nodes, layout, width, height) {
  const fixed = { 'cover': 'Title Slide', 'intro': 'Title Slide', 'section': 'Section Header', 'two-cols': 'Two Content', 'two-cols-header': 'Two Content',
    'image': 'Picture with Caption', 'image-left': 'Picture with Caption', 'image-right': 'Picture with Caption' }
  const title = nodes.find(node => node.place === 0)
  const letters = ({ paragraphs = [], cells = [] }) => [...paragraphs, ...cells.flatMap(cell => cell.paragraphs)].flatMap(one => one.runs).reduce((sum, run) => sum + (run.text ?? '').length, 0)
  const leads = ({ kind, chart, paragraphs = [] }) => kind === 'table' || !!chart || paragraphs.some(one => one.marker)
  // A list, a table or a chart is a slide's body, else what has most letters.
  const bodies = nodes.filter(node => node !== title && (letters(node) || node.chart)).sort((a, b) => leads(b) - leads(a) || letters(b) - letters(a))
  const bounded = ({ rect: [x, y, w, h] }) => nodes.some(({ kind, rect: [left, top, wide, high] }) => left < x + w && left + wide > x
    && (top >= y + h - 1 || (kind === 'box' && top <= y && top + high >= y + h))) // something is below it, or a box around it
  const put = (node, place) => {
    if (node && !Object.assign(node, { place }).chart && node.kind === 'text' && !bounded(node)) // the room below is its own, on every slide alike
      node.rect[3] = Math.max(node.rect[3], height - 32 - node.rect[1])
  }
  const all = bodies.reduce((sum, node) => sum + letters(node), 0)
  const name = Object.hasOwn(fixed, layout) ? fixed[layout] : bodies.length && (leads(bodies[0]) || 3 * letters(bodies[0]) > 2 * all) ? 'Title and Content' : title ? 'Title Only' : 'Blank'
  const right = ({ rect: [x, , w] }) => x + w / 2 > width / 2
  if (name === 'Two Content') {
    put(bodies.find(node => !right(node)), 1)
    put(bodies.find(right), 2)
  }
  else if (name === 'Picture with Caption') {
    put(bodies[0], 2)
    put(nodes.filter(({ kind, chart }) => kind === 'picture' && !chart).sort((a, b) => b.rect[2] * b.rect[3] - a.rect[2] * a.rect[3])[0], 1)
  }
  else if (!/Only|Blank/.test(name)) {
    put(bodies[0], 1)
  }
  return name
}

/** Which of two lists of z-indices is painted first; what is not positioned comes after the negative ones. */
function layers(a, b) {
  for (let i = 0; i < Math.max(a.length, b.length); i++) {
    const order = (a[i] ?? -0.5) - (b[i] ?? -0.5)
    if (order)
      return order
  }
  return 0
}

/** What of an element's surroundings its own style changes for what is in it; undefined where nothing of it shows. */
function inside(page, el, s, around) {
  const opacity = around.opacity * s.opacity
  if (s.display === 'none' || opacity < 0.05)
    return
  const now = { ...around, opacity }
  if (s.transform !== 'none')
    now.scale *= Math.hypot(...(/\(([^)]*)\)/.exec(s.transform)?.[1].split(',').slice(0, 2).map(Number) ?? [1, 0]))
  if (s.scale !== 'none')
    now.scale *= Number.parseFloat(s.scale)
  if (s.zoom && s.zoom !== '1')
    now.scale *= Number(s.zoom) || 1
  if (s.position !== 'static')
    now.paint = [...around.paint, Number.parseInt(s.zIndex) || 0]
  if (/underline/.test(s.textDecorationLine))
    now.underline = true
  if (/line-through/.test(s.textDecorationLine))
    now.strike = true
  if (el.localName === 'a' && el.hasAttribute('href'))
    now.link = address(el)
  if (s.overflowX !== 'visible' && el !== document.documentElement && el !== document.body && el.clientWidth) {
    const r = el.getBoundingClientRect()
    const { clip } = around
    now.clip = { left: Math.max(clip.left, r.left), top: Math.max(clip.top, r.top), right: Math.min(clip.right, r.right), bottom: Math.min(clip.bottom, r.bottom) }
  }
  return now
}

/** Where a link leads, as it was written; the host says which addresses a file may name. */
function address(el) {
  const link = el.getAttribute('href') ?? ''
  return link.length < 2000 ? link : ''
}

/** One element: what it is drawn as, then what is in it. */
function walk(page, el, around) {
  if (++page.count > 20000 || /^(?:script|style|template|noscript|head|title|link|meta)$/.test(el.localName))
    return
  const s = getComputedStyle(el)
  const now = inside(page, el, s, around)
  if (!now)
    return
  const rect = el.getBoundingClientRect()
  if (s.display !== 'contents' && s.visibility === 'visible') {
    if (isPicture(el, s))
      return picture(page, el, rect, now)
    if (el.localName === 'table' && s.display === 'table' && table(page, el, rect, now))
      return
    if (decorate(page, el, s, rect, now))
      now.column = {}
    pseudos(page, el)
  }
  if (/^(?:absolute|fixed)$/.test(s.position) || s.float !== 'none' || /^(?:table-cell|flow-root|inline-block)/.test(s.display))
    now.column = {}
  contents(page, el, s, rect, now)
}

/** Whether an element can only be a picture: drawings, formulas, and what is drawn by means that shapes do not have. */
function isPicture(el, s) {
  if (/^(?:svg|canvas|video|img|input|meter|progress|select|textarea|math)$/.test(el.localName) || el.shadowRoot || el.classList.contains('katex') || el.classList.contains('katex-display'))
    return true
  if (s.maskImage !== 'none' || s.clipPath !== 'none' || s.mixBlendMode !== 'normal' || s.filter !== 'none' || s.writingMode !== 'horizontal-tb')
    return true
  const [a, b, c, d] = /matrix\(([^)]*)\)/.exec(s.transform)?.[1].split(',').map(Number) ?? [1, 0, 0, 1]
  return s.transform.startsWith('matrix3d') || s.rotate !== 'none' || Math.abs(b) > 0.01 || Math.abs(c) > 0.01 || a < 0 || Math.abs(a - d) > 0.02
}

/** The part of a rectangle that shows, as [x, y, width, height], or undefined. */
function visible(page, rect, clip) {
  const left = Math.max(rect.left, clip.left, 0)
  const top = Math.max(rect.top, clip.top, 0)
  const right = Math.min(rect.right, clip.right, page.width)
  const bottom = Math.min(rect.bottom, clip.bottom, page.height)
  if (right - left > 0.5 && bottom - top > 0.5)
    return [left, top, right - left, bottom - top]
}

/** A picture of an element with what is in it, or (`ground`) of its own background alone. */
function picture(page, el, rect, now, ground = false) {
  const drawn = el.shadowRoot?.querySelector('svg')?.getBoundingClientRect()
  const shown = visible(page, drawn?.width ? drawn : rect, now.clip)
  if (!shown)
    return
  const apart = ([x, y, w, h]) => x > shown[0] + shown[2] + 1 || x + w < shown[0] - 1 || y > shown[1] + shown[3] + 1 || y + h < shown[1] - 1
  let frame = page.frames.findIndex(taken => taken.every(apart))
  if (frame < 0)
    frame = page.frames.push([]) - 1
  page.frames[frame].push(shown)
  el.setAttribute('data-deck-frame', frame)
  if (ground) {
    el.setAttribute('data-deck-ground', '')
  }
  else {
    for (const inner of el.querySelectorAll('*'))
      inner.setAttribute('data-deck-in', frame)
  }
  page.nodes.push({ kind: 'picture', rect: shown, frame, alt: ground ? '' : described(el), link: now.link ?? '', ground, chart: page.charts.get(el) ?? null, paint: now.paint })
  now.column.flow = undefined
}

/** What a picture says to whoever does not see it. */
function described(el) {
  const words = el.getAttribute('alt') ?? el.querySelector('annotation')?.textContent ?? el.getAttribute('aria-label')
    ?? (el.shadowRoot ? [...el.shadowRoot.querySelectorAll('text, .nodeLabel, .edgeLabel')].map(label => label.textContent.trim()).join(' ') : el.localName === 'svg' ? el.textContent : el.innerText)
  return String(words ?? '').replace(/\s+/g, ' ').trim().slice(0, 1000)
}

/** A computed colour as [r, g, b, alpha], with the opacity of its surroundings; undefined where it cannot be seen. */
function colour(value, opacity = 1) {
  page_canvas ??= new OffscreenCanvas(1, 1).getContext('2d', { willReadFrequently: true })
  const plain = /^rgba?\((\d+), (\d+), (\d+)(?:, ([\d.]+))?\)$/.exec(value)
  let found = plain && [+plain[1], +plain[2], +plain[3], +(plain[4] ?? 1)]
  if (!found) { // oklch(..), color(..): the browser's own reading of it
    page_canvas.clearRect(0, 0, 1, 1)
    page_canvas.fillStyle = '#0000'
    page_canvas.fillStyle = value
    page_canvas.fillRect(0, 0, 1, 1)
    const [r, g, b, a] = page_canvas.getImageData(0, 0, 1, 1).data
    found = [r, g, b, a / 255]
  }
  const alpha = found[3] * opacity
  return alpha < 0.02 ? undefined : [found[0], found[1], found[2], Math.round(alpha * 1000) / 1000]
}

/** A colour laid over another. */
function over([r, g, b, a], [x, y, z]) {
  return [Math.round(r * a + x * (1 - a)), Math.round(g * a + y * (1 - a)), Math.round(b * a + z * (1 - a)), 1]
}

/** A background of one linear gradient as {angle, stops}, degrees clockwise from left to right; undefined for any other. */
function gradient(image, opacity) {
  const found = /^linear-gradient\(((?:[^()]|\([^()]*\))*)\)$/.exec(image)
  if (!found)
    return
  const parts = found[1].match(/(?:[^,()]|\([^()]*\))+/g).map(part => part.trim())
  const sides = { 'to top': 270, 'to right': 0, 'to bottom': 90, 'to left': 180, 'to right bottom': 45, 'to bottom right': 45, 'to right top': 315, 'to top right': 315, 'to left bottom': 135, 'to bottom left': 135, 'to left top': 225, 'to top left': 225 }
  const turn = /^(-?[\d.]+)deg$/.exec(parts[0])
  const angle = turn ? +turn[1] - 90 : sides[parts[0]] ?? 90
  if (turn || parts[0] in sides)
    parts.shift()
  const stops = parts.map((part, i) => {
    const [, value, share] = /^(.*?)(?:\s+([\d.]+)%)?$/.exec(part)
    return [share === undefined ? i / Math.max(1, parts.length - 1) : share / 100, colour(value, opacity) ?? [255, 255, 255, 0]]
  })
  if (stops.length > 1 && parts.every(part => /^(?:rgb|#|[a-z]+\()/.test(part) && !/px/.test(part)))
    return { angle: ((angle % 360) + 360) % 360, stops }
}

/** The edges of an element as four of [width, colour, style] or null: top, right, bottom, left. */
function edges(s, now) {
  const all = ['Top', 'Right', 'Bottom', 'Left'].map((side) => {
    const width = Number.parseFloat(s[`border${side}Width`]) * now.scale
    const ink = colour(s[`border${side}Color`], now.opacity)
    return width > 0 && ink && !/none|hidden/.test(s[`border${side}Style`]) ? [width, ink, s[`border${side}Style`]] : null
  })
  return all.some(Boolean) ? all : null
}

/** What an element paints behind what is in it, as a box or a picture; whether it does. */
function decorate(page, el, s, rect, now) {
  if (s.display === 'inline')
    return false // a highlight of its text
  const clipsText = s.webkitBackgroundClip === 'text' || s.backgroundClip === 'text'
  let fill = colour(s.backgroundColor, now.opacity)
  let blend = gradient(s.backgroundImage, now.opacity)
  if (clipsText) { // the background is the text's
    now.gradient = blend ?? now.gradient
    fill = blend = undefined
  }
  else if (s.backgroundImage !== 'none' && !blend) {
    picture(page, el, rect, now, true)
    return true
  }
  const shown = visible(page, rect, now.clip)
  const bordered = edges(s, now)
  if (!shown || !(fill || blend || bordered))
    return false
  if (fill)
    now.ground = over(fill, now.ground)
  const whole = shown[2] > page.width - 1 && shown[3] > page.height - 1
  if (whole && fill && !blend && !bordered && !page.nodes.length) {
    page.background = now.ground
    return false
  }
  const shadow = /^(.*?\)) (-?[\d.]+)px (-?[\d.]+)px ([\d.]+)px/.exec(s.boxShadow)
  const radius = Number.parseFloat(s.borderTopLeftRadius) * (s.borderTopLeftRadius.endsWith('%') ? rect.width / 100 : now.scale)
  const shade = shadow && !/inset/.test(s.boxShadow) && colour(shadow[1], now.opacity)
  page.nodes.push({ kind: 'box', rect: shown, fill: blend ?? fill ?? null, edges: bordered, radius: Math.min(radius || 0, rect.width / 2, rect.height / 2),
    shadow: shade ? { colour: shade, x: +shadow[2] * now.scale, y: +shadow[3] * now.scale, blur: +shadow[4] * now.scale } : null, paint: now.paint })
  return true
}

/** Marks an element whose pseudo-elements draw something. */
function pseudos(page, el) {
  const drawn = ['before', 'after'].filter((which) => {
    const s = getComputedStyle(el, `::${which}`)
    if (/^(?:none|normal)$/.test(s.content) || s.display === 'none' || s.visibility === 'hidden')
      return false
    return !/^(?:""|''|counters?\(\s*\))$/.test(s.content) || s.backgroundImage !== 'none' || s.maskImage !== 'none' || colour(s.backgroundColor) || edges(s, { scale: 1, opacity: 1 }) || s.boxShadow !== 'none'
  })
  if (drawn.length && !el.hasAttribute('data-deck-ground')) {
    el.setAttribute('data-deck-pseudo', drawn.join(' '))
    page.pseudo = true
  }
}

/** What is in an element: paragraphs of what stands in lines, and the blocks between them. */
function contents(page, el, s, rect, now) {
  const boxed = /flex|grid/.test(s.display) // a text or element in it is a box of its own
  const own = { el, s, now, rect, marker: marker(el, s, now) ?? now.marker }
  let line = []
  const flush = () => {
    paragraph(page, own, line)
    line = []
  }
  for (const child of el.childNodes) {
    if (child.nodeType === 3) {
      line.push(child)
    }
    else if (child.nodeType === 1) {
      const c = getComputedStyle(child)
      if (!boxed && (c.display.startsWith('inline') || /^(?:contents|ruby)$/.test(c.display) || child.localName === 'br') && !/absolute|fixed/.test(c.position) && !hasBlocks(child)) {
        line.push(child)
        continue
      }
      flush()
      const row = boxed && !(s.display.includes('flex') && s.flexDirection.startsWith('column')) // what stands side by side is no one's next line
      const level = /^(?:ul|ol)$/.test(el.localName) ? now.level + 1 : now.level
      walk(page, child, { ...now, level, list: /^(?:ul|ol)$/.test(child.localName) ? child : now.list, marker: own.marker, column: row ? {} : now.column })
      if (own.marker?.used)
        own.marker = undefined
    }
    if (boxed)
      flush()
  }
  flush()
}

/** Whether something that stands in a line has blocks in it (a link around a card). */
function hasBlocks(el) {
  return [...el.children].some(child => !/^(?:none|inline|contents|ruby)/.test(getComputedStyle(child).display) && child.localName !== 'br' && !child.closest('svg, .katex') && !child.shadowRoot) && !el.matches('svg, .katex')
}

/** The sign before a list's item: {sign} or {number, start}; undefined where there is none. */
function marker(el, s, now) {
  if (s.display !== 'list-item' || s.listStyleType === 'none')
    return
  const of = getComputedStyle(el, '::marker')
  const ink = colour(of.color, now.opacity)
  const own = /^"(.*)"$/.exec(of.content)?.[1] ?? /^"(.*)"$/.exec(s.listStyleType)?.[1]
  const numbers = { 'decimal': 'arabicPeriod', 'lower-alpha': 'alphaLcPeriod', 'lower-latin': 'alphaLcPeriod', 'upper-alpha': 'alphaUcPeriod', 'upper-latin': 'alphaUcPeriod', 'lower-roman': 'romanLcPeriod', 'upper-roman': 'romanUcPeriod' }
  if (own === undefined && s.listStyleType in numbers)
    return { el, number: numbers[s.listStyleType], start: Number.parseInt(el.parentElement?.getAttribute('start')) || 1, ink }
  return { el, drawn: own === undefined, sign: (own ?? { circle: '◦', square: '▪' }[s.listStyleType] ?? '•').trim().slice(0, 3) || '•', ink }
}

/** The font that a stack of families comes to, by the fonts that this page has. */
function family(page, stack) {
  if (!(stack in page.fonts)) {
    page_families ??= new Set([...document.fonts].map(face => face.family.replace(/["']/g, '')))
    const names = stack.split(',').map(name => name.trim().replace(/["']/g, ''))
    const name = names.find(name => page_families.has(name)) ?? (/mono/.test(stack) ? 'Courier New' : 'Arial')
    page.fonts[stack] = name === 'Helvetica Neue' ? 'Arial' : name.replace(/ Variable$/, '') // in which Inter stands in here; everyone has the other
  }
  return page.fonts[stack]
}

/** How text of a style looks, as a run says it; undefined where it cannot be seen. `now` is of the element that it stands in. */
function look(page, s, now) {
  const ink = now.gradient ? now.gradient.stops[0][1] : colour(s.webkitTextFillColor, now.opacity)
  if (!ink)
    return
  const spacing = Number.parseFloat(s.letterSpacing) * now.scale || 0
  return { font: family(page, s.fontFamily), size: (now.raised ? now.raised.size : Number.parseFloat(s.fontSize)) * now.scale, ink, gradient: now.gradient ?? null, bold: Number(s.fontWeight) >= 600, italic: s.fontStyle !== 'normal',
    underline: !!now.underline, strike: !!now.strike, spacing, caps: s.textTransform === 'uppercase', raised: now.raised?.by ?? 0, highlight: now.highlight ?? null, link: now.link ?? '' }
}

/** The runs of the nodes of a line, with where they were found: `into` = {runs, found, apart}. */
function runs(page, node, s, now, into) {
  if (node.nodeType === 3)
    return textRun(page, node, s, now, into)
  if (node.localName === 'br')
    return void into.runs.push({ text: '\n' })
  if (node.nodeType !== 1 || /^(?:script|style|template|noscript|wbr)$/.test(node.localName))
    return
  const c = getComputedStyle(node)
  const within = inside(page, node, c, now)
  if (!within)
    return
  const rect = node.getBoundingClientRect()
  const boxed = c.display.startsWith('inline-') && (colour(c.backgroundColor) || edges(c, within) || c.backgroundImage !== 'none' || /flex|grid|table/.test(c.display) || Number.parseFloat(c.width) > 0 && c.textAlign !== s.textAlign)
  if (c.visibility === 'visible' && (isPicture(node, c) || boxed || (c.backgroundImage !== 'none' && !node.textContent.trim()))) {
    // It stands where it stands; the text leaves it the room.
    into.runs.push({ gap: rect.width })
    into.apart.push(() => walk(page, node, { ...now, column: {}, marker: undefined }))
    return
  }
  const ground = colour(c.backgroundColor, within.opacity)
  if (c.webkitBackgroundClip === 'text' || c.backgroundClip === 'text')
    within.gradient = gradient(c.backgroundImage, within.opacity) ?? within.gradient
  else if (ground && c.display !== 'contents')
    within.highlight = over(ground, now.highlight ?? now.ground)
  const [, , below] = edges(c, within) ?? []
  if (below && !ground)
    within.underline = true
  const by = { super: 30, sub: -25 }[c.verticalAlign]
  if (by)
    within.raised = { by, size: Number.parseFloat(s.fontSize) }
  pseudos(page, node)
  for (const child of node.childNodes)
    runs(page, child, c, within, into)
}

/** A text node as runs: white space as its style shows it, a line break as a run of its own. */
function textRun(page, node, s, now, into) {
  if (s.visibility !== 'visible')
    return
  const range = document.createRange()
  range.selectNodeContents(node)
  const found = [...range.getClientRects()].filter(r => r.width > 0.2 && r.height > 0.5)
  const keeps = /^(?:pre|break-spaces)/.test(s.whiteSpace) && s.whiteSpace !== 'pre-line'
  const blank = !node.data.trim()
  const style = look(page, s, now)
  if (!style || (!found.length && !blank) || (blank && !keeps && !into.runs.length))
    return
  if (found.length && !blank && !found.some(r => r.right > now.clip.left && r.left < now.clip.right && r.bottom > now.clip.top && r.top < now.clip.bottom))
    return // cut away by a box around it
  const lines = keeps ? node.data.replace(/\r/g, '').split('\n') : s.whiteSpace === 'pre-line' ? node.data.split('\n').map(line => line.replace(/\s+/g, ' ')) : [node.data.replace(/[\s\u200B]+/g, ' ')]
  lines.forEach((text, i) => {
    if (i)
      into.runs.push({ text: '\n' })
    if (!keeps && (!into.runs.length || /[ \n]$/.test(into.runs.at(-1).text ?? '')))
      text = text.replace(/^ /, '')
    if (text)
      into.runs.push({ text, ...style })
  })
  const last = into.runs.at(-1)
  if (!blank && found.length && last)
    into.found.set(last, [...into.found.get(last) ?? [], { s, now, rect: found[0], rects: found.map(r => ({ left: r.left, right: r.right, top: r.top, bottom: r.bottom })) }])
}

/** Lines as [top, bottom] of rectangles, from the top: two share a line where they overlap by half. */
function lines(rects) {
  const all = []
  for (const r of [...rects].sort((a, b) => a.top - b.top)) {
    const last = all.at(-1)
    if (last && Math.min(last[1], r.bottom) - Math.max(last[0], r.top) > 0.5 * Math.min(r.bottom - r.top, last[1] - last[0]))
      last[1] = Math.max(last[1], r.bottom)
    else
      all.push([r.top, r.bottom])
  }
  return all
}

/** The middle one of numbers. */
function median(numbers) {
  return [...numbers].sort((a, b) => a - b)[numbers.length >> 1]
}

/** What stands in the lines of an element as a paragraph of the column's text. */
function paragraph(page, { el, s, now, rect, marker }, nodes) {
  const into = { runs: [], apart: [], found: new Map() }
  for (const node of nodes)
    runs(page, node, s, now, into)
  const keeps = s.whiteSpace.startsWith('pre')
  for (const part of parted(into.runs)) {
    while (part.length && !keeps && /^\s*$/.test(part[0].text ?? 'gap'))
      part.shift()
    while (part.length && /^\s*$/.test(part.at(-1).text ?? 'gap'))
      part.pop()
    const found = part.flatMap(run => into.found.get(run) ?? [])
    if (found.length)
      place(page, el, s, rect, now, marker, { runs: part, first: found[0], rects: found.flatMap(one => one.rects) })
  }
  for (const draw of into.apart)
    draw()
}

/** Runs as they are, or, where the lines between breaks differ in size, each line's: no paragraph has lines of two heights. */
function parted(all) {
  const parts = [[]]
  for (const run of all)
    run.text === '\n' ? parts.push([]) : parts.at(-1).push(run)
  const sizes = parts.map(part => Math.max(0, ...part.map(run => run.size ?? 0))).filter(Boolean)
  return Math.max(...sizes) > 1.15 * Math.min(...sizes) ? parts : [all]
}

/** Puts a paragraph into the flow of its column, or begins a new one. */
function place(page, el, s, rect, now, marker, into) {
  const box = { left: Math.min(...into.rects.map(r => r.left)), right: Math.max(...into.rects.map(r => r.right)) }
  const rows = lines(into.rects)
  const { first } = into
  const last = into.runs.at(-1)
  if (last.text)
    last.text = s.whiteSpace.startsWith('pre') ? last.text : last.text.trimEnd()
  page_canvas ??= new OffscreenCanvas(1, 1).getContext('2d', { willReadFrequently: true })
  page_canvas.font = `${first.s.fontStyle} ${first.s.fontWeight} ${first.s.fontSize} ${first.s.fontFamily}`
  const baseline = first.rect.top + page_canvas.measureText('x').fontBoundingBoxAscent * now.scale
  const set = Number.parseFloat(first.s.lineHeight) * now.scale || (rows[0][1] - rows[0][0])
  const gaps = rows.slice(1).map((row, i) => row[1] - rows[i][1])
  const height = gaps.length && !s.whiteSpace.startsWith('pre') ? median(gaps) : set
  const blockish = !/^(?:inline|contents)/.test(s.display) && !/flex|grid/.test(s.display)
  const pad = side => (Number.parseFloat(s[`padding${side}`]) + Number.parseFloat(s[`border${side}Width`])) * now.scale || 0
  const hard = into.runs.filter(run => run.text === '\n').length + 1
  const count = s.whiteSpace.startsWith('pre') ? Math.max(hard, rows.length) : rows.length
  const top = baseline - 0.8 * height
  const one = { runs: into.runs, align: s.textAlign.replace('-webkit-', ''), rtl: s.direction === 'rtl', height, top, bottom: top + count * height, count, hard, glyphs: box, size: first.s.fontSize,
    left: blockish ? Math.min(rect.left + pad('Left'), box.left) : box.left, right: blockish ? Math.max(rect.right - pad('Right'), box.right) : box.right,
    marker: marker && !marker.used ? { ...marker } : null, level: now.list ? Math.max(0, now.level - 1) : 0, nowrap: /nowrap|^pre$/.test(s.whiteSpace) }
  const edge = now.list && now.list.getBoundingClientRect().left + (Number.parseFloat(getComputedStyle(now.list).borderLeftWidth) || 0)
  if (one.marker)
    one.marker.hang = ((marker.drawn ? 1.35 * Number.parseFloat(first.s.fontSize) : page_canvas.measureText(marker.number ? `${marker.start}. ` : `${marker.sign} `).width) + (Number.parseFloat(getComputedStyle(marker.el).paddingLeft) || 0)) * now.scale
  one.outer = Math.min(one.left - (one.marker?.hang ?? 0), edge ?? one.left)
  delete one.marker?.el
  if (marker)
    marker.used = true
  const heading = /^h[1-6]$/.test(el.localName)
  const title = heading && !page.heading && !now.cell
  page.heading ||= title
  const { flow } = now.column
  const before = flow?.paragraphs.at(-1)
  if (flow && !title && !flow.heading && top >= before.bottom - 0.25 * height && top - before.bottom < 60 && String(flow.paint) === String(now.paint)) {
    flow.paragraphs.push(one)
    return
  }
  const fresh = { paragraphs: [one], heading: title, node: { kind: 'text', place: title ? 0 : undefined, paint: now.paint, paragraphs: [] }, paint: now.paint }
  now.column.flow = fresh
  if (now.cell) {
    now.cell.push(fresh)
  }
  else {
    page.flows.push(fresh)
    page.nodes.push(fresh.node)
  }
}

/** A flow as a text box. Its paragraphs say how far they stand in, and how far below the one before. */
function textBox({ paragraphs }) {
  const left = Math.min(...paragraphs.map(one => one.outer))
  const right = Math.max(...paragraphs.map(one => one.right))
  const { top } = paragraphs[0]
  let bottom = top
  const told = paragraphs.map((one) => {
    const before = Math.max(0, one.top - bottom)
    bottom = Math.max(bottom + before, one.top) + one.count * one.height
    return { runs: one.runs, align: one.align, rtl: one.rtl, height: one.height, before, left: one.left - left, right: right - one.right, outer: one.outer - left, marker: one.marker, level: one.level }
  })
  // Another program sets the same words a little wider: where a line is nearly full, the box gets the room, or does not wrap.
  const tight = Math.max(...paragraphs.map(one => (one.glyphs.right - one.glyphs.left) / Math.max(1, one.right - one.left)))
  const single = paragraphs.every(one => one.count === one.hard)
  return { paragraphs: told, wrap: !(paragraphs.some(one => one.nowrap) || (single && tight > 0.92)), full: tight, rect: [left, top, right - left, bottom - top] }
}

/** A table as one node; false where its cells do not make a grid. */
function table(page, el, rect, now) {
  const rows = [...el.rows].filter(row => row.getClientRects().length)
  if (!rows.length || rows.length * Math.max(...rows.map(row => row.cells.length)) > 1000 || !visible(page, rect, now.clip))
    return false
  const taken = rows.map(() => [])
  const cells = []
  rows.forEach((tr, row) => {
    for (const td of tr.cells) {
      let column = 0
      while (taken[row][column])
        column++
      const down = Math.min(td.rowSpan, rows.length - row) || 1
      const across = Math.min(td.colSpan, 50) || 1
      for (let y = row; y < row + down; y++) {
        for (let x = column; x < column + across; x++)
          taken[y][x] = true
      }
      cells.push({ td, tr, row, column, down, across, rect: td.getBoundingClientRect() })
    }
  })
  const count = Math.max(...taken.map(row => row.length))
  const marks = new Array(count + 1).fill(null)
  for (const { column, across, rect: r } of cells) {
    marks[column] ??= r.left
    marks[column + across] ??= r.right
  }
  if (!count || marks.some((mark, i) => mark === null || (i && mark <= marks[i - 1])))
    return false
  const node = { kind: 'table', rect: [marks[0], rows[0].getBoundingClientRect().top, marks[count] - marks[0], 0], columns: marks.slice(1).map((mark, i) => mark - marks[i]), rows: rows.map(row => row.getBoundingClientRect().height), cells: [], paint: now.paint }
  node.rect[3] = node.rows.reduce((sum, one) => sum + one, 0)
  page.nodes.push(node)
  for (const cell of cells)
    node.cells.push(tableCell(page, cell, rows.length, { ...now, column: {} }))
  const caption = el.caption
  if (caption)
    walk(page, caption, { ...now, column: {} })
  return true
}

/** One cell of a table, with what rows and groups paint behind and around it. */
function tableCell(page, { td, tr, row, column, down, across, rect }, total, around) {
  const chain = [tr.parentElement, tr, td].map(el => getComputedStyle(el))
  let { ground } = around
  let fill = null
  for (const s of chain) {
    const ink = colour(s.backgroundColor, around.opacity * s.opacity)
    if (ink)
      fill = ground = over(ink, ground)
  }
  // Not every program draws a table's lines see-through.
  const [group, ofRow, own] = chain.map(s => edges(s, around)?.map(edge => edge && [edge[0], over(edge[1], around.ground), edge[2]]))
  const first = !row || tr === tr.parentElement.rows?.[0]
  const final = row + down === total || tr === [...(tr.parentElement.rows ?? [])].at(-1)
  const bordered = [own?.[0] ?? ofRow?.[0] ?? (first ? group?.[0] : null) ?? null, own?.[1] ?? null, own?.[2] ?? ofRow?.[2] ?? (final ? group?.[2] : null) ?? null, own?.[3] ?? null]
  const sink = []
  const now = inside(page, td, chain[2], { ...around, ground, cell: sink, opacity: around.opacity * chain[0].opacity * chain[1].opacity })
  const told = { row, column, down, across, fill, edges: bordered, inset: [4, 4, 4, 4], middle: false, paragraphs: [] }
  if (!now)
    return told
  pseudos(page, td)
  contents(page, td, chain[2], rect, now)
  const paragraphs = sink.flatMap(flow => flow.paragraphs)
  if (!paragraphs.length)
    return told
  const box = textBox({ paragraphs })
  const [x, y, w, h] = box.rect
  // A cell grows with its text: where that nearly fills it, nothing may be lost to insets.
  return { ...told, inset: [y - rect.top, Math.max(0, Math.min(rect.right - (x + w), 4)), Math.max(0, rect.bottom - (y + h)), x - rect.left].map(one => Math.max(0, one)), middle: Math.abs((y - rect.top) - (rect.bottom - y - h)) < 6, paragraphs: box.paragraphs }
}

/** Only the pictures of frame `k` are seen, or (-1) what pseudo-elements draw. */
function show(k) {
  const sheet = document.getElementById('data-deck-show') ?? document.head.appendChild(Object.assign(document.createElement('style'), { id: 'data-deck-show' }))
  const nothing = 'html, body { background: none !important }'
  sheet.textContent = k < 0
    ? `${nothing} * { visibility: hidden !important } [data-deck-pseudo~="before"]::before, [data-deck-pseudo~="after"]::after { visibility: visible !important; -webkit-text-fill-color: currentcolor }`
    : `${nothing} *:not([data-deck-in="${k}"]) { visibility: hidden !important } [data-deck-frame="${k}"] { visibility: visible !important }
      [data-deck-ground] { -webkit-text-fill-color: transparent !important; text-shadow: none !important; text-decoration-color: transparent !important }
      [data-deck-ground]::before, [data-deck-ground]::after { -webkit-text-fill-color: currentcolor }`
}

const IN_PAGE = [outline, settle, layers, inside, address, walk, isPicture, visible, picture, described, colour, over, gradient, edges, decorate, pseudos, contents, hasBlocks, marker, family, look, runs, textRun, lines, median, paragraph, parted, place, textBox, table, tableCell]
export const OUTLINE = `(facts) => { let page_canvas, page_families; ${IN_PAGE.join('\n')}; return JSON.stringify(outline(facts)) }`
export const SHOW = `${show}`

/**
 * A held page as {background, nodes, .., shots}; `shots` are pictures (base64 PNG with transparency) of the frames that nodes name, the last of
 * what pseudo-elements draw where `pseudo` says so. null for a slide of too many parts, or that cannot be read. The page shows nothing but those afterwards.
 */
export async function parts(call, picture, see, facts) {
  let told
  try {
    const lengths = value => Array.isArray(value) ? value.map(lengths) : typeof value === 'number' ? value * 980 / facts.width : value
    told = JSON.parse(await call(OUTLINE, facts), facts.width === 980 ? undefined : (key, value) => LENGTHS.has(key) ? lengths(value) : key === 'edges' ? value?.map(edge => edge && [lengths(edge[0]), ...edge.slice(1)]) : value)
  }
  catch (failure) { // a deck may name the fields of a form as it likes, and so hide what elements are
    if (/^in the page/.test(failure.message))
      return null
    throw failure
  }
  if (told.nodes.length > MOST || told.frames > 12)
    return null
  const shots = []
  await see(false)
  for (const frame of [...Array.from({ length: told.frames }).keys(), ...(told.pseudo ? [-1] : [])]) {
    await call(SHOW, frame)
    shots.push(await picture())
  }
  await see(true)
  return { ...told, shots }
}
