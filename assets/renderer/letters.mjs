/**
 * Which letters of a slide its picture shows: those whose taking away changes its pixels, whatever CSS brings that about.
 *
 * `strip` runs in the page and takes the paint from every letter that is laid out; the host draws the page again, and `unseen` compares.
 */
import zlib from 'node:zlib'

const [CHANGE, INK, SHARE] = [8, 0.008, 0.4] // of 255; of a cell's pixels; of a text's cells
const MOST = 5000 // lines of text on a slide: nobody reads more

/** In the page: [text node, its letters, x, y, width, height] of each line, the nodes numbered in `globalThis.letters`; what is painted as a letter is so no more. */
export function strip({ slide, most }) {
  const own = `[data-slidev-no="${slide}"]`
  const roots = [...document.querySelectorAll(own)].filter(el => !el.parentElement?.closest(own))
  // The renderer shows each slide once: another one is put there to be measured in its place.
  if (roots.length > 1)
    throw new Error('a second slide stands beside the slide')
  const [root] = roots
  const lines = []
  const nodes = []
  const undo = []
  globalThis.letters = { root, nodes, undo, lost: new Set() }
  if (!root)
    return lines
  const paint = (el, wanted) => {
    undo.push([el, el.getAttribute('style')])
    for (const [name, value] of Object.entries({ transition: 'none', ...wanted }))
      el.style.setProperty(name, value, 'important')
  }
  const range = document.createRange()
  const gone = { '-webkit-text-fill-color': 'transparent', '-webkit-text-stroke-color': 'transparent', 'text-shadow': 'none' }
  const wanted = new Map()
  const visit = (el) => {
    if (el.shadowRoot)
      [...el.shadowRoot.children].forEach(visit)
    const style = getComputedStyle(el)
    // A background in the form of letters.
    if (/text/.test(style.webkitBackgroundClip))
      wanted.set(el, { background: 'none' })
    for (const child of el.childNodes) {
      if (child.nodeType === 1) {
        visit(child)
        continue
      }
      if (child.nodeType !== 3 || !child.data.trim())
        continue
      range.selectNodeContents(child)
      for (const { x, y, width, height } of range.getClientRects()) {
        if (width > 0.5 && height > 0.5 && lines.length < most)
          lines.push([nodes.length, child.data.trim().length, x, y, width, height])
      }
      nodes.push(child)
      // Lines and dots of a decoration are no letters: they stay.
      const stays = { 'text-decoration-color': style.textDecorationColor, 'text-emphasis-color': style.textEmphasisColor }
      wanted.set(el, { ...wanted.get(el), ...gone, ...stays, ...(el.ownerSVGElement && { fill: 'transparent', stroke: 'transparent' }) })
    }
  }
  visit(root)
  for (const [el, values] of wanted)
    paint(el, values)
  const sheet = new CSSStyleSheet()
  sheet.replaceSync('*::first-line, *::first-letter { -webkit-text-fill-color: transparent !important; -webkit-text-stroke-color: transparent !important; text-shadow: none !important }')
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet]
  return lines
}

/** In the page: every letter as it was; those of the numbered nodes are marked as lost for `measure`. */
export function restore(lost) {
  document.adoptedStyleSheets = document.adoptedStyleSheets.slice(0, -1)
  const { undo, nodes } = globalThis.letters
  // Without the paint first, then without the rule against transitions: none begins.
  for (const [el, before] of undo) {
    el.setAttribute('style', before ?? '')
    el.style.setProperty('transition', 'none', 'important')
  }
  document.documentElement.getBoundingClientRect()
  for (const [el] of undo)
    getComputedStyle(el).color
  for (const [el, before] of undo)
    before === null ? el.removeAttribute('style') : el.setAttribute('style', before)
  globalThis.letters.lost = new Set(lost.map(number => nodes[number]))
}

/** The numbers of the nodes that cannot be seen: `shown` and `bare` are the slide's pictures (PNG, base64) with its letters and without. */
export function unseen(shown, bare, lines, width) {
  const [a, b] = [shown, bare].map(pixels)
  const scale = a.width / width
  const cells = new Map() // by node: [with ink, all]
  for (const [node, letters, x, y, wide, high] of lines) {
    const [left, top, right, bottom] = [x, y, x + wide, y + high].map(value => Math.round(value * scale))
    const along = right - left >= bottom - top
    // A full stop is low in its line: one cell.
    const step = letters < 3 ? Infinity : Math.max(4, Math.min(right - left, bottom - top))
    for (let at = along ? left : top, end = along ? right : bottom; at < end; at += step) {
      const next = Math.min(end, at + step)
      const cell = along ? [at, top, next, bottom] : [left, at, right, next]
      const ink = inked(a, b, cell)
      if (ink === null)
        continue
      const count = cells.get(node) ?? cells.set(node, [0, 0]).get(node)
      count[0] += ink
      count[1]++
    }
  }
  return [...cells].filter(([, [ink, all]]) => ink < all * SHARE).map(([node]) => node)
}

/** Whether letters are in a cell of the picture; null where it lies outside. */
function inked(a, b, [x0, y0, x1, y1]) {
  const [left, top, right, bottom] = [Math.max(0, x0), Math.max(0, y0), Math.min(a.width, x1), Math.min(a.height, y1)]
  if (right - left < 2 || bottom - top < 2)
    return null
  let least = Math.max(1, (right - left) * (bottom - top) * INK)
  for (let y = top; y < bottom; y++) {
    for (let at = (y * a.width + left) * a.depth, end = at + (right - left) * a.depth; at < end; at += a.depth) {
      if (Math.abs(a.bytes[at] - b.bytes[at]) > CHANGE || Math.abs(a.bytes[at + 1] - b.bytes[at + 1]) > CHANGE || Math.abs(a.bytes[at + 2] - b.bytes[at + 2]) > CHANGE) {
        if (--least < 0)
          return 1
      }
    }
  }
  return 0
}

/** The pixels of a PNG as the browser writes it: 8 bits a channel, not interlaced. */
function pixels(base64) {
  const png = Buffer.from(base64, 'base64')
  const [width, height, type] = [png.readUInt32BE(16), png.readUInt32BE(20), png[25]]
  const depth = type === 6 ? 4 : 3
  const parts = []
  for (let at = 8, size; at < png.length; at += 12 + size) {
    size = png.readUInt32BE(at)
    if (png.toString('latin1', at + 4, at + 8) === 'IDAT')
      parts.push(png.subarray(at + 8, at + 8 + size))
  }
  const raw = zlib.inflateSync(parts.length === 1 ? parts[0] : Buffer.concat(parts))
  const stride = width * depth
  const bytes = new Uint8Array(stride * height)
  for (let y = 0; y < height; y++) {
    const filter = raw[y * (stride + 1)]
    const from = y * (stride + 1) + 1
    const to = y * stride
    for (let x = 0; x < stride; x++) {
      const left = x >= depth ? bytes[to + x - depth] : 0
      const up = y ? bytes[to + x - stride] : 0
      const corner = x >= depth && y ? bytes[to + x - stride - depth] : 0
      bytes[to + x] = raw[from + x] + (filter === 0 ? 0 : filter === 1 ? left : filter === 2 ? up : filter === 3 ? (left + up) >> 1 : paeth(left, up, corner))
    }
  }
  return { width, height, depth, bytes }
}

function paeth(left, up, corner) {
  const [a, b, c] = [Math.abs(up - corner), Math.abs(left - corner), Math.abs(left + up - 2 * corner)]
  return a <= b && a <= c ? left : b <= c ? up : corner
}

export { MOST }
