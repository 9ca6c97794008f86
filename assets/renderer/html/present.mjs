/**
 * Runs in a page of reveal.js or Marp before anything of its own: shows the slide that the address names, with all its steps, marks it for
 * ../xray.mjs, and says how many slides there are (as the diagram `present`, which is what a page can tell the host).
 */
export function present() {
  const deck = window.__deck
  const number = Number(new URL(location.href).searchParams.get('slide'))
  const sleep = ms => new Promise(resolve => setTimeout(resolve, ms))
  const say = (about) => {
    deck.diagram('present', JSON.stringify(about))
    deck.mounted = true
  }
  const style = (text) => {
    const sheet = document.createElement('style')
    sheet.textContent = `*, *::before, *::after { animation-duration: 0s !important; animation-delay: 0s !important; transition: none !important; caret-color: transparent !important; }
      html, body { margin: 0 !important; overflow: hidden !important; } ${text}`
    document.head.append(sheet)
  }
  const tell = (slides, section, note) => {
    section.setAttribute('data-slidev-no', number)
    const title = section.querySelector('h1, h2, h3')?.textContent ?? ''
    say({ of: slides.length, title: title.replace(/\s+/g, ' ').trim().slice(0, 120), note: (note ?? '').trim().slice(0, 120) })
  }

  async function reveal(wrapper) {
    for (let waited = 0; waited < 8000 && !wrapper.classList.contains('ready'); waited += 20)
      await sleep(20)
    if (!wrapper.classList.contains('ready')) {
      const far = [...document.querySelectorAll('script[src], link[href]')].map(el => el.getAttribute('src') ?? el.getAttribute('href')).find(address => /^(?:https?:)?\/\//.test(address))
      return say({ fault: far ? `it loads ${far.slice(0, 100)}, and nothing is fetched from here` : 'its reveal.js did not start: is the folder of reveal.js beside it?' })
    }
    const tops = [...wrapper.querySelectorAll('.slides > section')]
    const slides = tops.flatMap((top, h) => {
      const inner = [...top.children].filter(el => el.localName === 'section')
      return inner.length ? inner.map((el, v) => [el, h, v]) : [[top, h, 0]]
    })
    if (!slides[number - 1])
      return say({ fault: 'it has no slides' })
    const [section, h, v] = slides[number - 1]
    style('.reveal .controls, .reveal .progress, .reveal .slide-number { display: none !important } .reveal .fragment { opacity: 1 !important; visibility: inherit !important; transform: none !important }')
    if (window.Reveal?.slide)
      window.Reveal.slide(h, v)
    else
      location.hash = `#/${h}/${v}`
    for (let waited = 0; waited < 2000 && !section.classList.contains('present'); waited += 20)
      await sleep(20)
    const at = slides.findIndex(([each]) => each === section)
    tell(slides, slides[at][0], section.querySelector('aside.notes')?.textContent ?? section.dataset.notes)
  }

  function marp(frames) {
    const frame = frames[number - 1]
    const section = frame.localName === 'section' ? frame : frame.querySelector('section[data-marpit-advanced-background="content"]') ?? frame.querySelector('section')
    style('.bespoke-marp-osc, .bespoke-progress-parent { display: none !important } [data-marpit-fragment], [data-bespoke-marp-fragment] { visibility: visible !important; opacity: 1 !important }')
    frames.forEach((each, place) => {
      const shown = place === number - 1
      const rules = shown ? { display: 'block', visibility: 'visible', opacity: '1', position: 'fixed', inset: '0', margin: '0', 'z-index': '9', 'content-visibility': 'visible' } : { display: 'none' }
      if (shown && frame !== section)
        Object.assign(rules, { width: '100vw', height: '100vh' })
      for (const [name, value] of Object.entries(rules))
        each.style.setProperty(name, value, 'important')
    })
    if (frame === section) { // a page without inline SVG is drawn in its own size
      const scale = Math.min(innerWidth / section.offsetWidth, innerHeight / section.offsetHeight)
      section.style.setProperty('transform', `scale(${scale})`, 'important')
      section.style.setProperty('transform-origin', '0 0', 'important')
    }
    tell(frames, section, document.querySelectorAll('.bespoke-marp-note')[number - 1]?.textContent)
  }

  addEventListener('load', async () => {
    await sleep(0)
    try {
      const wrapper = document.querySelector('.reveal')
      const svgs = [...document.querySelectorAll('svg[data-marpit-svg]')]
      const sections = [...document.querySelectorAll('div.marpit > section')]
      if (wrapper?.querySelector('.slides'))
        await reveal(wrapper)
      else if (svgs.length || sections.length)
        marp(svgs.length ? svgs : sections)
      else
        say({ fault: 'it is a page of neither reveal.js nor Marp' })
    }
    catch (error) {
      say({ fault: `it broke while its slides were shown: ${error.message}`.slice(0, 200) })
    }
  })
}
