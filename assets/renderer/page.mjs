/**
 * One deck in one fresh browser context: shows each slide, waits for an explicit state of readiness, measures, takes the picture.
 */
import { errorSlide } from './compile.mjs'
import { parts } from './editable.mjs'
import { MOST, find, leave, restore, strip } from './letters.mjs'
import { crowded, unseen } from './pixels.mjs'
import { measure } from './xray.mjs'

/** Animations of a page that are put where they stand in every picture of it, at most. */
const MOVING = 1000
/** Px of a slide whose deck says nothing else. */
export const CANVAS = [980, 552]

/** Runs before anything of the page: the state the host waits for, no clock, no chance, no dialogs. */
const PRELUDE = `(() => {
  let seed
  const deck = { begin() { Object.assign(deck, { mounted: false, pending: 0, faults: [], diagrams: [], glyphs: '' }); seed = 1 },
    fault(where, error) { if (deck.faults.length < 20) deck.faults.push({ where: String(where), message: String(error?.message ?? error).slice(0, 500) }); deck.mounted ||= where !== 'page' && where !== 'promise' },
    fonts: () => Promise.all([400, 700].flatMap(weight => ['Noto Sans Variable', 'Deck CJK', 'Noto Color Emoji'].map(family => document.fonts.load(weight + ' 16px "' + family + '"', deck.glyphs)))),
    diagram(code, error) { if (deck.diagrams.length < 20) deck.diagrams.push({ code, message: String(error?.message ?? error).slice(0, 500) }) } }
  deck.begin()
  Object.defineProperty(window, '__deck', { value: deck })
  addEventListener('error', event => event.target === window && deck.fault('page', event.error ?? event.message), true)
  addEventListener('unhandledrejection', event => deck.fault('promise', event.reason))
  Math.random = () => { seed = (seed * 16807) % 2147483647; return (seed - 1) / 2147483646 }
  const NOW = Date.UTC(2024, 0, 1, 12), Native = Date
  const Fixed = function (...args) { return new.target ? Reflect.construct(Native, args.length ? args : [NOW], new.target === Fixed ? Native : new.target) : new Native(NOW).toString() }
  Object.setPrototypeOf(Fixed, Native); Fixed.prototype = Native.prototype; Fixed.now = () => NOW; window.Date = Fixed
  // A transition that does not end shows a picture of the page as it was.
  delete Document.prototype.startViewTransition; delete Element.prototype.startViewTransition
  window.alert = window.print = () => {}; window.confirm = () => false; window.prompt = () => null; window.open = () => null; window.close = window.stop = () => {}
  for (const name of ['resizeTo', 'resizeBy', 'moveTo', 'moveBy']) window[name] = () => {} // a frame of a window of another size never comes
})()`

/** Resolves when the slide stands still: mounted, diagrams drawn, fonts and pictures settled, two frames passed; `everywhere`: any element may show one by the style sheet. */
async function settle(everywhere) {
  const sleep = ms => new Promise(resolve => setTimeout(resolve, ms))
  const deck = window.__deck
  for (let waited = 0; !deck.mounted || deck.pending; waited += 4) {
    if (waited > 60000)
      return { ...state(), stuck: deck.mounted ? 'a diagram' : 'the slide' }
    await sleep(4)
  }
  const frames = () => new Promise(resolve => requestAnimationFrame(() => requestAnimationFrame(resolve)))
  await frames()
  const elements = root => [...root.querySelectorAll('*')].flatMap(el => [el, ...(el.shadowRoot ? elements(el.shadowRoot) : [])])
  const images = () => elements(document).filter(el => el.localName === 'img')
  // What is waited for ends by itself, since our server answers everything at once: no clock decides what is in the picture.
  for (let waited = 0; waited < 60000 && images().some(img => !img.complete); waited += 4) {
    images().forEach(img => img.loading = 'eager')
    await sleep(4)
  }
  // What a style paints tells nobody that it is there: an image of its address does, which the browser fetches once for both.
  const styles = elements(document).flatMap(el => everywhere ? [null, '::before', '::after'].map(part => getComputedStyle(el, part)) : /url\(/.test(el.getAttribute('style')) ? getComputedStyle(el) : [])
  const painted = styles.map(style => [style.backgroundImage, style.maskImage, style.borderImageSource, style.listStyleImage, style.content].join()).join()
  const addresses = new Set([...painted.matchAll(/url\("(?!data:|#)(.*?)"\)/g)].map(([, address]) => address))
  await Promise.race([sleep(60000), Promise.all([...addresses].map(address => new Promise((resolve) => {
    const image = new Image()
    image.onload = image.onerror = resolve
    image.src = address
  })))])
  await document.fonts.ready
  await frames()
  // A font that is first asked for in a frame changes what is laid out in the next.
  for (let turn = 0; document.fonts.status !== 'loaded' && turn < 10; turn++) {
    await document.fonts.ready
    await frames()
  }
  return state()
  function state() {
    const few = list => Array.from({ length: Math.min(20, list?.length || 0) }, (_, i) => list[i])
    return { faults: few(deck.faults), diagrams: few(deck.diagrams) }
  }
}

/** What a page says of itself is the deck's to write: lists of short texts, whatever stands there. */
function said({ faults, diagrams, stuck }) {
  const text = (value, most) => (typeof value === 'string' ? value : String(JSON.stringify(value))).slice(0, most)
  const list = (values, read) => (Array.isArray(values) ? values : []).slice(0, 20).map(value => read(value ?? {}))
  return {
    faults: list(faults, ({ where, message }) => ({ where: text(where, 80), message: text(message, 500) })),
    diagrams: list(diagrams, ({ code, message }) => ({ code: text(code, 1e5), message: text(message, 500) })),
    ...(stuck && { stuck: text(stuck, 80) }),
  }
}

/** Every animation at its end, or where it has none at its beginning; and what began since the page settled, settled too. */
function hold() {
  for (const animation of document.getAnimations()) {
    try {
      if (Number.isFinite(Number(animation.effect?.getComputedTiming().endTime))) {
        animation.finish()
      }
      else {
        animation.pause()
        animation.currentTime = 0
      }
    }
    catch { // one that stands still by its rate has no end, one of a scroll timeline no time
      animation.cancel()
    }
  }
}

/**
 * A page of a context, ready to be sent to slides; `lost` rejects when it can do nothing more. It is laid out in CSS pixels and drawn `scale` times as large
 * in a window of that size, one frame per picture, `width` by `height` CSS pixels: with the scale as a device's, the browser would draw it once more to show it small.
 */
export async function open(browser, browserContextId, scale, [width, height] = CANVAS) {
  const { targetId } = await browser.send('Target.createTarget', { url: 'about:blank', browserContextId, width: width * scale, height: height * scale, enableBeginFrameControl: true })
  const { sessionId } = await browser.send('Target.attachToTarget', { targetId, flatten: true })
  let world // the context of our own world, for a held page
  let lose
  const lost = new Promise((_, reject) => lose = reject)
  lost.catch(() => {})
  let loaded = () => {}
  let asked, shown // the document that was navigated to, and the one that is there
  const moving = new Map() // of what began to move, the time, ms, at which it stands in a picture: its end, or where it has none its beginning
  browser.listen(sessionId, (method, params) => {
    if (method === 'Page.loadEventFired')
      loaded()
    else if (method === 'Page.javascriptDialogOpening')
      browser.send('Page.handleJavaScriptDialog', { accept: false }, sessionId).catch(() => {})
    else if (method === 'Inspector.targetCrashed')
      lose(Object.assign(new Error('the page crashed'), { crash: true, page: true }))
    else if (method === 'Animation.animationStarted' && moving.size < MOVING) {
      const { id, source } = params.animation
      const end = source?.delay + source?.duration * source?.iterations
      moving.set(id, Number.isFinite(end) ? end : 0)
    }
    else if (method === 'Page.frameNavigated' && !params.frame.parentId)
      shown = params.frame.loaderId
    else if (method === 'Inspector.detached')
      lose(new Error('the page closed itself'))
    else if (process.env.DECKSMITH_RENDER_DEBUG && /^(?:Runtime\.(?:console|exception)|Log\.|Network\.loadingFailed)/.test(method))
      process.stderr.write(`${method} ${JSON.stringify(params).slice(0, 1500)}\n`)
  })
  const send = (method, params) => Promise.race([browser.send(method, params, sessionId), lost])
  const [{ frameTree }] = await Promise.all([
    send('Page.enable').then(() => send('Page.getFrameTree')), send('Inspector.enable'),
    ...(process.env.DECKSMITH_RENDER_DEBUG ? [send('Runtime.enable'), send('Log.enable'), send('Network.enable')] : []),
    send('Animation.enable'), send('Page.addScriptToEvaluateOnNewDocument', { source: PRELUDE }),
    send('Emulation.setDeviceMetricsOverride', { width, height, deviceScaleFactor: 1, scale, mobile: false, dontSetVisibleSize: true }),
    send('Emulation.setEmulatedMedia', { media: 'screen', features: [{ name: 'prefers-color-scheme', value: 'light' }, { name: 'prefers-reduced-motion', value: 'reduce' }] }),
    send('Emulation.setLocaleOverride', { locale: 'en-US' }), send('Emulation.setTimezoneOverride', { timezoneId: 'UTC' }),
  ])
  const run = async (executionContextId, fn, ...args) => {
    const { result, exceptionDetails } = await (executionContextId
      ? send('Runtime.callFunctionOn', { executionContextId, functionDeclaration: `${fn}`, arguments: args.map(value => ({ value })), returnByValue: true })
      : send('Runtime.evaluate', { expression: `(${fn})()`, awaitPromise: true, returnByValue: true }))
    if (exceptionDetails)
      throw new Error(`in the page: ${exceptionDetails.exception?.description ?? exceptionDetails.text}`)
    return result.value
  }
  /**
   * Frames for the page, which draws none by itself, until `work` is done; they lay out and run what waits for a frame, and paint nothing. Most slides
   * are done in the first dozen, which follow on each other; then the page is given time.
   */
  const frames = async (work, most = 6000) => {
    let done = false
    const failed = work.then(() => done = true).then(() => new Promise(() => {}))
    for (let n = 0; !done; n++) {
      if (shown !== asked) // it was there before it was asked anything, and nothing in it will ever be ready
        throw new Error('the page navigated')
      if (n > most) // 6000 are two minutes on an idle machine, by its own pace on a busy one
        throw new Error(`in the page: the slide was not ready after ${most} frames`)
      await Promise.race([send('HeadlessExperimental.beginFrame', { noDisplayUpdates: true }), failed])
      await Promise.race([new Promise(resolve => setTimeout(resolve, Math.min(20, Math.max(0, n - 12)))), work])
    }
    return work
  }
  const wake = () => Promise.all([send('Emulation.setScriptExecutionDisabled', { value: false }), send('Animation.setPlaybackRate', { playbackRate: 1 })])
  return {
    async visit(url, everywhere = true) {
      await wake()
      moving.clear()
      const load = new Promise(resolve => loaded = resolve)
      const { errorText, loaderId } = await send('Page.navigate', { url })
      if (errorText)
        throw new Error(`${url} did not load: ${errorText}`)
      await Promise.race([load, lost])
      asked = loaderId
      return said(await frames(run(undefined, `() => (${settle})(${everywhere})`)))
    },
    /** As `visit`, in the page that is there; only after slides that run no code of the deck's own. */
    async turn(address, everywhere) {
      await wake()
      return said(await frames(run(undefined, `async () => { await __deck.turn(${JSON.stringify(address)}); return (${settle})(${everywhere}) }`), 300))
    },
    /**
     * From here on the deck's scripts do not run, and nothing moves, until the next visit. A world of our own, which those scripts cannot reach, holds
     * the page. An animation may have ended since the last frame without a word to whoever waits for it: a frame lets that come out before the picture.
     */
    async hold() {
      world = (await send('Page.createIsolatedWorld', { frameId: frameTree.frame.id, worldName: 'xray' })).executionContextId
      // What no script finds, in a closed shadow root or a frame, stands still by the clock of the page, and where every run of it stands.
      await Promise.all([send('Emulation.setScriptExecutionDisabled', { value: true }), send('Animation.setPlaybackRate', { playbackRate: 0 })])
      await Promise.all([...moving].map(([id, currentTime]) => {
        if (currentTime) // it is over then
          moving.delete(id)
        return send('Animation.seekAnimations', { animations: [id], currentTime }).catch(() => moving.delete(id))
      }))
      await run(world, `${hold}`)
      await send('HeadlessExperimental.beginFrame', { noDisplayUpdates: true })
      await run(world, `${hold}`)
    },
    /**
     * Of a held page, after its picture: no frame lies between, so what was drawn is what is measured. The same source every time: the browser
     * compiles it once a deck.
     */
    async measure(facts) {
      const xray = JSON.parse(await run(world, `(facts) => JSON.stringify((${measure})(facts))`, facts))
      xray.words = xray.text.match(/[\p{L}\p{N}]+(?:['’.-][\p{L}\p{N}]+)*/gu)?.length ?? 0
      return xray
    },
    /** Of a held page whose picture is `shown`: finds the slide and, where something paints its letters in a way of its own, those that cannot be seen; for `measure`. */
    async read(slide, shown, styled) {
      await run(world, find, slide)
      if (!styled)
        return
      const lines = await run(world, strip, MOST)
      const lost = lines.length ? unseen(shown, await this.picture(), lines, width) : []
      const [groups, rest] = crowded(lines, lost)
      for (const group of groups) {
        await run(world, leave, group)
        lost.push(...unseen(shown, await this.picture(), lines.filter(([node]) => group.includes(node)), width))
      }
      lost.push(...rest)
      // What was not looked at, since there is too much of it, is not read.
      await run(world, restore, { lost, last: lines.length < MOST ? Number.MAX_SAFE_INTEGER : lines.at(-1)[0] })
    },
    /** PNG of a held page, base64. */
    async picture() {
      for (let attempt = 0; attempt < 3; attempt++) {
        const { screenshotData } = await send('HeadlessExperimental.beginFrame', { screenshot: { format: 'png', optimizeForSpeed: true } })
        if (screenshotData)
          return screenshotData
      }
      throw new Error('the browser took no picture')
    },
    /** One page of the canvas's size, its text as text. */
    async print() {
      const { data } = await send('Page.printToPDF', { printBackground: true, paperWidth: width / 96, paperHeight: height / 96, marginTop: 0, marginBottom: 0, marginLeft: 0, marginRight: 0, pageRanges: '1',
        generateTaggedPDF: false })
      return data
    },
    /** Of a held page, what a presentation program edits (editable.mjs); the last thing that is asked of it. */
    parts({ diagrams, layout }) {
      const ground = colour => send('Emulation.setDefaultBackgroundColorOverride', colour ? { color: colour } : {})
      return parts((fn, ...args) => run(world, fn, ...args), () => this.picture(), seen => ground(seen ? null : { r: 0, g: 0, b: 0, a: 0 }), { width, height, layout, charts: diagrams.map(diagram => diagram.chart) })
    },
    close() {
      browser.listen(sessionId, null)
      browser.send('Target.closeTarget', { targetId }).catch(() => {})
    },
  }
}

/**
 * Renders a compiled deck: {pictures (base64), xray, errors}.
 * @param print whether each slide is also printed: `prints` (base64 of one-page PDF files).
 * @param edit whether each slide is also taken apart for a presentation program: `parts`.
 * @param onSlide called with the slide's number before it is loaded (the host attributes a deadline to it).
 */
export async function shoot({ browser, server, deck, runtime, images, scale, print = false, edit = false, onSlide }) {
  server.deck = { files: deck.files, runtime, images }
  const { browserContextId } = await browser.send('Target.createBrowserContext', { disposeOnDetach: true })
  const errors = []
  const pictures = []
  const prints = []
  const edits = []
  const xrays = []
  try {
    await browser.send('Browser.setDownloadBehavior', { behavior: 'deny', browserContextId })
    let page = await open(browser, browserContextId, scale, deck.canvas)
    // A slide without code leaves its page to the next one without; anything out of the ordinary is seen once more in a page of its own.
    let left = false
    const everywhere = /url\((?!["']?(?:data:|#|\/@font\/|\/@katex\/))/.test(deck.files.get('/@deck/style.css'))
    const show = async (slide) => {
      const address = `/${slide.no}?print=true&range=${slide.no}`
      const turned = left && slide.plain && !print && !edit && await page.turn(address, everywhere).catch((error) => {
        if (error.crash)
          throw error
      })
      left = slide.plain
      return turned && !turned.stuck && !turned.faults.length ? { ...turned, turned: true } : page.visit(`${server.origin}${address}`, everywhere)
    }
    for (const slide of deck.slides) {
      onSlide(slide.no)
      const error = (cls, message, line = slide.row) => errors.push({ kind: 'model', class: cls, slide: slide.no, line, message })
      const found = cls => deck.errors.concat(errors).findLast(e => e.slide === slide.no && e.class === cls)
      const once = async () => {
        const state = await show(slide)
        await page.hold()
        const picture = await page.picture()
        await page.read(slide.no, picture, slide.styled)
        const xray = await page.measure({ slide: slide.no, line: slide.line, layout: slide.layout, title: slide.title, formulas: slide.formulas, width: deck.canvas[0], height: deck.canvas[1], replaced })
        return { state, xray, picture, print: print && await page.print(), parts: edit && await page.parts(slide) }
      }
      let replaced = !!slide.failed
      const replace = (cls, message) => {
        if (!found(cls))
          error(cls, message)
        deck.files.set(`/@deck/slide/${slide.no}.js`, errorSlide(slide.no, { class: cls, line: found(cls).line, message: found(cls).message }))
        replaced = true
        slide.plain = left = false
        return once()
      }
      let shot
      try {
        shot = await once()
        if (shot.state.turned && (shot.xray.blank || shot.xray.missing.length)) {
          left = false
          shot = await once()
        }
      }
      catch (failure) {
        // A page that goes elsewhere, closes or breaks its own builtins under our hands was told to by the deck; anything else is ours.
        const broke = /^in the page|^Runtime\.evaluate: (?!.*(?:context|navigated|closed|detached|session))/i.test(failure.message) // what a page says of itself may be nothing that can be said
        if (failure.crash || replaced || !broke && !/context was destroyed|navigated|closed|detached|not find context|Session with given id|frame (?:with|for) /i.test(failure.message))
          throw failure
        page.close()
        page = await open(browser, browserContextId, scale, deck.canvas)
        shot = await (broke ? replace('vue-runtime', 'the slide broke the page it stands in') : replace('forbidden', 'the slide tried to leave its page'))
      }
      for (const fault of shot.state.diagrams) {
        const block = slide.diagrams.find(diagram => diagram.code === fault.code)
        const inner = /(?:Parse error|Lexical error)[^\n]* line (\d+)/.exec(fault.message)
        error('mermaid', fault.message.split('\n')[0], Math.min(deck.lines.length, (block?.line ?? slide.row) + (inner ? Number(inner[1]) : 0)))
      }
      if (shot.state.stuck)
        error('deadline', `${shot.state.stuck} was not ready in 60 seconds`)
      const fatal = shot.state.faults.find(fault => fault.where !== 'promise' && fault.where !== 'page') ?? shot.state.faults[0]
      if (fatal && !replaced)
        shot = await replace('vue-runtime', fatal.message)
      const { missing, ...xray } = shot.xray
      for (const source of new Set(missing.map(source => source.replace(server.origin, '').replace(/^\//, '')))) {
        // What a theme's own layout would fetch from elsewhere (seriph's cover) is not the deck's fault.
        const line = lineOf(deck, slide, source)
        if (line)
          error('missing-image', `the picture ${source.slice(0, 200)} is not there`, line)
        else
          xray.images_broken--
      }
      if (xray.blank && !replaced && !shot.state.diagrams.length)
        error('blank', 'nothing can be seen on the slide')
      pictures.push(shot.picture)
      if (print)
        prints.push(shot.print)
      if (edit)
        edits.push(shot.parts)
      xrays.push(String(deck.canvas) === String(CANVAS) ? xray : { ...xray, canvas: deck.canvas })
    }
    return { pictures, prints, edits, errors, xray: xrays }
  }
  finally {
    server.deck = null
    browser.send('Target.disposeBrowserContext', { browserContextId }).catch(() => {})
  }
}

/** The line of the slide that names a picture, or the first that computes such a name; or undefined. */
function lineOf(deck, slide, source) {
  const next = deck.slides[slide.no]?.line ?? deck.lines.length + 1
  const spellings = [source, safeDecode(source)].map(text => text.slice(0, 80))
  let computed
  for (let line = slide.line; line < next; line++) {
    if (spellings.some(text => deck.lines[line - 1]?.includes(text)))
      return line
    if (/(?:\s:|v-bind:)(?:src|style|image)\s*=|^\s*v-bind\s*=/.test(deck.lines[line - 1]))
      computed ??= line
  }
  return computed
}

function safeDecode(text) {
  try {
    return decodeURIComponent(text)
  }
  catch {
    return text
  }
}
