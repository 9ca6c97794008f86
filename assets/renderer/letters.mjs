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
  globalThis.letters = { root: roots[0], nodes: [], owners: [], undo: [], lost: new Set() }
}

/**
 * In the page: [text node, its letters, x, y, width, height] of each line, at most so many; what is painted as a letter is so no more.
 * A form's fields stand in for its properties of their names: those of elements are read from their prototypes.
 */
export function strip(most) {
  const { root, nodes, undo, owners } = globalThis.letters
  const lines = []
  if (!root)
    return lines
  const range = document.createRange()
  const gone = { '-webkit-text-fill-color': 'transparent', '-webkit-text-stroke-color': 'transparent', 'text-shadow': 'none' }
  const wanted = new Map()
  const letters = (node, el) => {
    if (!node.data.trim())
      return
    range.selectNodeContents(node)
    for (const { x, y, width, height } of range.getClientRects()) {
      if (width > 0.5 && height > 0.5 && lines.length < most)
        lines.push([nodes.length, node.data.trim().length, x, y, width, height])
    }
    nodes.push(node)
    // Lines and dots of a decoration are no letters: they stay.
    const { textDecorationColor, textEmphasisColor } = getComputedStyle(el)
    const stays = { 'text-decoration-color': textDecorationColor, 'text-emphasis-color': textEmphasisColor }
    wanted.set(el, { ...wanted.get(el), ...gone, ...stays, ...(el instanceof SVGElement && { fill: 'transparent', stroke: 'transparent' }) })
    owners.push(el)
  }
  const visit = (top, host) => {
    const walker = document.createTreeWalker(top, NodeFilter.SHOW_ELEMENT | NodeFilter.SHOW_TEXT)
    for (let node = top === host ? top : walker.nextNode(); node; node = walker.nextNode()) {
      if (node instanceof Text) {
        letters(node, node.parentNode === top ? host : node.parentNode)
        continue
      }
      // A background in the form of letters.
      if (/text/.test(getComputedStyle(node).webkitBackgroundClip))
        wanted.set(node, { background: 'none' })
      const inner = Reflect.get(Element.prototype, 'shadowRoot', node)
      if (inner)
        visit(inner, node)
    }
  }
  visit(root, root)
  globalThis.letters.style = el => Reflect.get((el instanceof HTMLElement ? HTMLElement : el instanceof SVGElement ? SVGElement : MathMLElement).prototype, 'style', el)
  for (const [el, values] of wanted) {
    undo.push([el, Element.prototype.getAttribute.call(el, 'style'), values])
    const style = globalThis.letters.style(el)
    for (const [name, value] of Object.entries({ transition: 'none', ...values }))
      style.setProperty(name, value, 'important')
  }
  const sheet = new CSSStyleSheet()
  sheet.replaceSync('*::first-line, *::first-letter { -webkit-text-fill-color: transparent !important; -webkit-text-stroke-color: transparent !important; text-shadow: none !important }')
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet]
  return lines
}

/** In the page: after `strip`, every letter as it was but for those of the numbered nodes. */
export function leave(numbers) {
  const { undo, owners, style } = globalThis.letters
  document.adoptedStyleSheets.at(-1).disabled = true
  const gone = new Set(numbers.map(number => owners[number]))
  for (const [el, before, values] of undo) {
    Element.prototype.setAttribute.call(el, 'style', before ?? '')
    for (const [name, value] of Object.entries({ transition: 'none', ...(gone.has(el) && values) }))
      style(el).setProperty(name, value, 'important')
  }
}

/** In the page: every letter as it was; those of the numbered nodes, and of nodes behind `last`, are marked as lost for `measure`. */
export function restore({ lost, last }) {
  document.adoptedStyleSheets = document.adoptedStyleSheets.slice(0, -1)
  const { undo, nodes, style } = globalThis.letters
  const put = (el, text) => Element.prototype.setAttribute.call(el, 'style', text)
  // Without the paint first, then without the rule against transitions: none begins.
  for (const [el, before] of undo) {
    put(el, before ?? '')
    style(el).setProperty('transition', 'none', 'important')
  }
  for (const [el] of undo)
    getComputedStyle(el).color
  for (const [el, before] of undo)
    before === null ? Element.prototype.removeAttribute.call(el, 'style') : put(el, before)
  globalThis.letters.lost = new Set([...lost.map(number => nodes[number]), ...nodes.slice(last + 1)])
}
