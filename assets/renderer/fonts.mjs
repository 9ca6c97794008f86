/** @font-face rules for every family a theme names and for the scripts it does not cover, from the @fontsource packages of the lock. */
import fs from 'node:fs'
import path from 'node:path'
import { MODULES } from './browser.mjs'

/** Family as pages name it, package, style sheets of the package. Helvetica Neue (apple-basic) is not free: Inter stands in for it. */
const FAMILIES = [
  ['Nunito Sans', '@fontsource-variable/nunito-sans', ['wght', 'wght-italic']],
  ['Inter', '@fontsource-variable/inter', ['wght', 'wght-italic']],
  ['Helvetica Neue', '@fontsource-variable/inter', ['wght', 'wght-italic']],
  ['Fira Code', '@fontsource-variable/fira-code', ['wght']],
  ['PT Serif', '@fontsource/pt-serif', ['400', '400-italic', '700', '700-italic']],
  ['PT Mono', '@fontsource/pt-mono', ['400']],
  ['Noto Sans Variable', '@fontsource-variable/noto-sans', ['wght', 'wght-italic']],
  ['Noto Color Emoji', '@infolektuell/noto-color-emoji', ['index']],
]
const CJK = { sc: '@fontsource-variable/noto-sans-sc', jp: '@fontsource-variable/noto-sans-jp', kr: '@fontsource-variable/noto-sans-kr' }
export const PACKAGES = new Set([...FAMILIES.map(([, name]) => name), ...Object.values(CJK)])

function faces(family, name, sheets) {
  return sheets.map(sheet => fs.readFileSync(path.join(MODULES, name, `${sheet}.css`), 'utf8')
    .replace(/\/\*.*?\*\//gs, '')
    .replace(/font-family:[^;]+;/g, `font-family: '${family}';`)
    .replace(/font-display:[^;]+;/g, 'font-display: block;')
    .replace(/,\s*url\([^)]*\.woff\) format\('woff'\)/g, '')
    .replace(/url\(\.\/files\//g, `url(/@font/${name}/files/`)).join('')
}

/** {base, sc, jp, kr}: style sheets as text; the last three give the family "Deck CJK", of which the rule that comes last wins where they overlap. */
export function fontFaces() {
  return { base: FAMILIES.map(args => faces(...args)).join(''), ...Object.fromEntries(Object.entries(CJK).map(([key, name]) => [key, faces('Deck CJK', name, ['wght'])])) }
}
