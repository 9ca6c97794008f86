/** Two pictures of a slide, compared. */
import zlib from 'node:zlib'

const [CHANGE, EDGE, INK, SHARE] = [8, 0.3, 0.008, 0.4] // of 255; of a cell's largest change; of its pixels; of a text's cells
const [MOST, MOST_PAIRS] = [6, 1e4] // pictures more for texts that stand on each other; such texts

/** The numbers of the nodes that cannot be seen: `shown` and `bare` are the slide's pictures (PNG, base64) with its letters and without. */
export function unseen(shown, bare, lines, width) {
  const [a, b] = [shown, bare].map(pixels)
  const scale = a.width / width
  const cells = new Map() // by node: [with ink, all]
  for (const [node, letters, x, y, wide, high] of lines) {
    const [left, top, right, bottom] = [x, y, x + wide, y + high].map(value => Math.round(value * scale))
    cells.get(node) ?? cells.set(node, [0, 0])
    const along = right - left >= bottom - top
    // A full stop is low in its line: one cell.
    const step = letters < 3 ? Infinity : Math.max(4, Math.min(right - left, bottom - top))
    for (let at = along ? left : top, end = along ? right : bottom; at < end; at += step) {
      const next = Math.min(end, at + step)
      const cell = along ? [at, top, next, bottom] : [left, at, right, next]
      const ink = inked(a, b, cell)
      if (ink === null)
        continue
      const count = cells.get(node)
      count[0] += ink
      count[1]++
    }
  }
  return [...cells].filter(([, [ink, all]]) => ink < all * SHARE || !all).map(([node]) => node)
}

/**
 * Groups of nodes that stand on others, none of a group on another of it: only taken away alone do they show which of them the picture shows.
 * Returns at most `MOST` groups, and the nodes of no group.
 */
export function crowded(lines, lost) {
  const gone = new Set(lost)
  const sorted = lines.filter(([node]) => !gone.has(node)).sort((a, b) => a[3] - b[3])
  const meets = new Map() // by node: those that it meets
  let pairs = 0
  const meet = (a, b) => (meets.get(a) ?? meets.set(a, new Set()).get(a)).add(b)
  sorted.forEach(([node, , x, y, wide, high], i) => {
    for (let j = i + 1; j < sorted.length && sorted[j][3] < y + high && pairs <= MOST_PAIRS; j++) {
      const [other, , left, top, across, down] = sorted[j]
      const shared = Math.min(x + wide, left + across) - Math.max(x, left)
      if (other === node || shared <= 0 || shared * (Math.min(y + high, top + down) - top) < 0.3 * Math.min(wide * high, across * down))
        continue
      pairs++
      meet(node, other)
      meet(other, node)
    }
  })
  if (pairs > MOST_PAIRS)
    return [[], [...meets.keys()]]
  const groups = []
  const rest = []
  for (const [node, others] of meets) {
    const group = groups.find(group => !group.some(member => others.has(member)))
    if (group)
      group.push(node)
    else
      groups.length < MOST ? groups.push([node]) : rest.push(node)
  }
  return [groups, rest]
}

/** Whether letters are in a cell of the picture, which have edges: a blur and a block have none. Null where it lies outside. */
function inked(a, b, [x0, y0, x1, y1]) {
  const [left, top, right, bottom] = [Math.max(0, x0), Math.max(0, y0), Math.min(a.width, x1), Math.min(a.height, y1)]
  if (right - left < 2 || bottom - top < 2)
    return null
  let least = Math.max(1, (right - left) * (bottom - top) * INK)
  const change = at => Math.max(Math.abs(a.bytes[at] - b.bytes[at]), Math.abs(a.bytes[at + 1] - b.bytes[at + 1]), Math.abs(a.bytes[at + 2] - b.bytes[at + 2]))
  let edge = 0
  for (let y = top; y < bottom; y++) {
    for (let at = y * a.stride + 1 + left * a.depth, end = at + (right - left) * a.depth; at < end; at += a.depth)
      edge = Math.max(edge, EDGE * change(at))
  }
  if (edge <= EDGE * CHANGE)
    return 0
  for (let y = top + 1; y < bottom; y++) {
    let at = y * a.stride + 1 + left * a.depth
    let before = change(at)
    for (const end = at + (right - left - 1) * a.depth; at < end;) {
      const here = change(at += a.depth)
      if (here > CHANGE && (Math.abs(here - before) > edge || Math.abs(here - change(at - a.stride)) > edge) && --least < 0)
        return 1
      before = here
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
  // Lines of `filter, bytes`, decoded where they stand: in one piece, since many small ones keep the garbage collector busy.
  const stride = width * depth + 1
  const bytes = zlib.inflateSync(parts.length === 1 ? parts[0] : Buffer.concat(parts), { chunkSize: Math.max(64, stride * height + 1) })
  const above = new Uint32Array(Math.ceil(stride / 4))
  const own = new Uint32Array(above.length)
  const [aboveBytes, ownBytes] = [above, own].map(({ buffer }) => new Uint8Array(buffer, 0, stride - 1))
  for (let y = 0, line = 0; y < height; y++, line += stride) {
    const filter = bytes[line]
    if (filter === 2) {
      // Each byte added to the one above it, four at a time: the highest bits apart, so that none carries into the next byte.
      ownBytes.set(bytes.subarray(line + 1, line + stride))
      for (let i = 0; i < own.length; i++)
        above[i] = ((above[i] & 0x7F7F7F7F) + (own[i] & 0x7F7F7F7F)) ^ ((above[i] ^ own[i]) & 0x80808080)
      bytes.set(aboveBytes, line + 1)
      continue
    }
    if (filter) {
      for (let x = line + 1; x < line + stride; x++) {
        const left = x - depth > line ? bytes[x - depth] : 0
        const up = y ? bytes[x - stride] : 0
        bytes[x] += filter === 1 ? left : filter === 3 ? (left + up) >> 1 : paeth(left, up, y && x - depth > line ? bytes[x - depth - stride] : 0)
      }
    }
    aboveBytes.set(bytes.subarray(line + 1, line + stride))
  }
  return { width, height, depth, stride, bytes }
}

function paeth(left, up, corner) {
  const [a, b, c] = [Math.abs(up - corner), Math.abs(left - corner), Math.abs(left + up - 2 * corner)]
  return a <= b && a <= c ? left : b <= c ? up : corner
}
