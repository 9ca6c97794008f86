/**
 * Which letters of a slide its picture shows: those whose taking away changes its pixels, whatever CSS brings that about.
 *
 * `strip` takes the paint from every letter that is laid out; the host draws the page again, and compares (pixels.mjs). A slide that only its theme
 * paints is not drawn twice.
 */
export const MOST = 5000 // lines of text on a slide: nobody reads more

/** In the page: keeps the slide of this number as `globalThis.letters.root`, where `measure` finds it. */
export function find(slide) {
  const own = `[data-slidev-no="${slide}"]`
  const roots = [...document.querySelectorAll(own)].filter(el => !el.parentElement?.closest(own))
  // The renderer shows each slide once: another one is put there to be measured in its place.
  if (roots.length > 1)
    throw new Error('a second slide stands beside the slide')
  globalThis.letters = { root: roots[0], nodes: [], undo: [], lost: new Set() }
}

/** In the page: [text node, its letters, x, y, width, height] of each line, at most so many; what is painted as a letter is so no more. */
export function strip(most) {
  const { root, nodes, undo } = globalThis.letters
  const lines = []
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
