// The pages of a blind study: start, a rater's booth, the owner's. What requests, names and decks say reaches the page as text and
// pictures, never as markup.
//
// The booth talks to one object:
//   sheet()                      everything there is to vote on, and what was said already (Study.sheet of lib/decksmith/people/study/store.py)
//   send(action)                 {what: vote|skip|undo, pair, key, ballot}: kept until it is stored; actions arrive in order
//   more()                       more pairs, how many
//   picture(pair, side, index)   the address of a slide
//   link                         the rater's own address
(() => {
  "use strict";
  const $ = (id) => document.getElementById(id);
  const memory = new Map(); // where storage is full or closed to a page
  const keep = (name, value) => { try { localStorage.setItem(name, JSON.stringify(value)); memory.delete(name); } catch { memory.set(name, value); } };
  const kept = (name) => { if (memory.has(name)) return memory.get(name); try { return JSON.parse(localStorage.getItem(name)) ?? undefined; } catch { return undefined; } };
  const random = () => Array.from(crypto.getRandomValues(new Uint8Array(12)), (byte) => byte.toString(16).padStart(2, "0")).join("");
  const pause = (ms) => new Promise((done) => setTimeout(done, ms));
  const many = (n, one) => `${n} ${one}${n === 1 ? "" : "s"}`;

  // Light or dark: as the system says, until the button says otherwise.
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const paint = () => { document.documentElement.dataset.theme = kept("decksmith-theme") || (dark.matches ? "dark" : "light"); };
  paint();
  dark.addEventListener("change", paint);

  /** Ask the server; resolves to {status, body}, with status 0 when it cannot be reached, is not well, or wants us to wait. */
  async function ask(path, body) {
    try {
      const answer = await fetch(path, { method: body ? "POST" : "GET", body: body && JSON.stringify(body), signal: AbortSignal.timeout(15000), credentials: "omit", cache: "no-store",
        headers: body ? { "Content-Type": "application/json" } : {} });
      if (answer.status >= 500 || answer.status === 429) return { status: 0, wait: Number(answer.headers.get("Retry-After")) || 0, body: await answer.json().catch(() => null) };
      return { status: answer.status, body: await answer.json() };
    } catch {
      return { status: 0, wait: 0 };
    }
  }

  // The start page

  function start() {
    $("join")?.addEventListener("submit", async (event) => {
      event.preventDefault();
      const button = $("join").querySelector("button");
      button.disabled = true;
      const { status, body } = await ask("/join", { name: $("name").value });
      button.disabled = false;
      if (status === 200) { location.assign(body.link); return; }
      $("trouble").hidden = false;
      $("trouble").textContent = body?.error ? sentence(body.error) : "The server does not answer. Try again in a moment.";
      $("name").focus();
    });
  }

  const sentence = (text) => text ? text[0].toUpperCase() + text.slice(1) + (/[.?!]$/.test(text) ? "" : ".") : "";

  // The booth

  /** The booth's other side: actions wait in storage until the server has stored them. */
  function online() {
    const base = location.pathname, name = `decksmith-outbox ${base}`;
    let busy = false, heard = () => {};
    const box = () => kept(name) || [];
    async function flush() {
      if (busy) return;
      busy = true;
      for (let tries = 0; box().length;) {
        const { what, ...rest } = box()[0];
        const { status, body, wait } = await ask(base + what, rest);
        // Anything else is not this study's server, or not as it should be: what was voted waits.
        if (![200, 400, 409, 413, 423].includes(status)) {
          heard({ waiting: box().length, lost: true });
          // Sooner when the network comes back.
          await Promise.race([pause(Math.max(1000 * (wait || 0), Math.min(8000, 400 * 2 ** tries++)) * (0.75 + Math.random() / 2)),
            new Promise((done) => addEventListener("online", done, { once: true }))]);
          continue;
        }
        tries = 0;
        keep(name, box().filter(({ key }) => key !== rest.key)); // stored, or refused for good; another window may have sent it too
        heard({ waiting: box().length, lost: false, refused: status === 200 ? null : { status, action: { what, ...rest }, ...body } });
      }
      busy = false;
    }
    return {
      link: location.href,
      pending: box,
      listen(listener) { heard = listener; flush(); },
      async sheet() {
        for (let tries = 0; ; tries += 1) {
          const { status, body } = await ask(`${base}sheet`);
          if (status === 200) return body;
          if (status) throw new Error(body.error);
          $("waiting").textContent = "The server does not answer. Trying again…";
          await pause(Math.min(5000, 500 * 2 ** tries));
        }
      },
      send(action) { keep(name, [...box(), action]); heard({ waiting: box().length, lost: false }); flush(); },
      async more() { const { status, body } = await ask(`${base}more`, {}); return status === 200 ? body.given : 0; },
      picture: (pair, side, index) => `${base}p/${pair[side][index]}`,
    };
  }

  async function booth() {
    const store = online();
    const SIDES = ["left", "right"], LOOK = 250; // ms that a slide must be in view to count as seen
    const narrow = matchMedia("(max-width: 760px)");
    const words = () => (narrow.matches ? { left: "Upper", right: "Lower" } : { left: "Left", right: "Right" });
    const drafts = `decksmith-draft ${store.link}`, set = `decksmith-booth ${store.link}`;
    let sheet, pairs, pair, draft, at = 0, since = null, looking = null, large = null;
    let settings = { why: false, keys: true, ...kept(set) };

    // What is known: the sheet, with what still waits to be stored on top of it.
    const state = { done: {}, skipped: new Set(), acted: [] };
    function apply(action) {
      state.acted = state.acted.filter((id) => id !== action.pair);
      delete state.done[action.pair];
      state.skipped.delete(action.pair);
      if (action.what === "undo") return;
      state.acted.push(action.pair);
      if (action.what === "vote") state.done[action.pair] = action.ballot; else state.skipped.add(action.pair);
    }
    async function load() {
      sheet = await store.sheet();
      pairs = new Map(sheet.pairs.map((each) => [each.id, each]));
      Object.assign(state, { done: { ...sheet.done }, skipped: new Set(sheet.skipped), acted: [...sheet.acted] });
      (store.pending()).filter((action) => pairs.has(action.pair)).forEach(apply);
    }
    const open = () => sheet.pairs.filter(({ id }) => !state.done[id] && !state.skipped.has(id));

    // One pair

    const length = () => Math.max(1, ...SIDES.map((side) => pair[side].length));
    const unseen = (side) => pair[side].map((_, index) => index).filter((index) => !draft.seen[side].includes(index));
    const ready = () => SIDES.every((side) => !unseen(side).length);

    function show(next) {
      stop();
      pair = next;
      const before = kept(drafts) || {}, said = before[pair.id];
      draft = { ms: 0, at: 0, dimensions: {}, tags: [], ...said, seen: { left: [], right: [], ...said?.seen } };
      if (large) closeLarge();
      $("end").hidden = $("wait").hidden = true;
      $("room").hidden = false;
      $("request").textContent = pair.request || "(no request was kept)";
      $("request").classList.remove("whole");
      $("request").scrollTop = 0;
      for (const side of SIDES) fill(side);
      why();
      turn(Math.min(draft.at, length() - 1), true);
      progress();
      buttons();
      measureRequest();
      scrollTo(0, 0);
      begin();
      preload();
    }

    function fill(side) {
      const box = $(side), slides = pair[side];
      const film = h("div.film", { role: "group" }, slides.map((_, index) => h("button.thumb", { type: "button", tabindex: -1, onclick: () => turn(index) },
        h("img", { src: store.picture(pair, side, index), alt: "", draggable: "false", loading: "lazy" }))));
      box.replaceChildren(
        h("div.head", {}, h("h2"), h("span.soft", { }, slides.length ? many(slides.length, "slide") : "no slides")),
        slides.length ? h("button.picture", { type: "button", onclick: () => enlarge(side) }, h("img", { alt: "", draggable: "false", onerror: again, onload: () => look() }))
          : h("div.picture.none", {}, h("p", {}, h("b", {}, "No slides"), "What came back could not be made into a deck.")),
        film);
    }

    // A picture that did not come is asked for again; until it is there its slide does not count as seen.
    async function again(event) {
      const image = event.target, source = image.getAttribute("src").split("?")[0];
      tell("A slide did not load. Trying again…");
      await pause(1200);
      if (image.getAttribute("src").split("?")[0] === source) image.src = `${source}?${Date.now()}`;
    }

    function turn(to, silent) {
      look.settle?.();
      at = Math.max(0, Math.min(length() - 1, to));
      draft.at = at;
      const n = length();
      for (const side of SIDES) {
        const count = pair[side].length, index = Math.min(at, count - 1), box = $(side), name = words()[side];
        box.setAttribute("aria-label", `${name} deck`);
        box.querySelector("h2").textContent = name;
        box.classList.toggle("over", count > 0 && at >= count);
        if (count) {
          const image = box.querySelector(".picture img"), source = store.picture(pair, side, index);
          if (image.getAttribute("src") !== source) image.src = source;
          image.alt = at < count ? `${name} deck, slide ${at + 1} of ${count}` : `${name} deck, which ended with slide ${count}`;
          box.querySelector(".picture").title = `Larger (${side === "left" ? 1 : 2})`;
          box.querySelector(".picture").dataset.over = at >= count ? `ended with slide ${count}` : "";
        }
        box.querySelector(".film").setAttribute("aria-label", `${name} deck, all slides`);
        box.querySelectorAll(".thumb").forEach((thumb, each) => {
          thumb.setAttribute("aria-current", String(each === index && at < count));
          thumb.setAttribute("aria-label", `Slide ${each + 1}`);
        });
        const current = box.querySelectorAll(".thumb")[index], film = box.querySelector(".film");
        if (current) film.scrollLeft = current.offsetLeft - film.clientWidth / 2 + current.clientWidth / 2;
      }
      $("slide").textContent = `Slide ${at + 1} of ${n}`;
      $("back").disabled = at === 0;
      $("next").disabled = at === n - 1;
      if (large) enlarge(large);
      if (!silent) tell("");
      look();
    }

    // What is in view long enough has been seen. Only time in view counts.
    function look() {
      clearTimeout(looking);
      if (!pair || document.hidden || $("room").hidden) return;
      const on = at, which = pair;
      looking = setTimeout(() => {
        if (which !== pair || on !== at || document.hidden) return;
        for (const side of SIDES) {
          const image = large ? (large === side ? $("large").querySelector("img") : null) : $(side).querySelector(".picture img");
          if (image && image.complete && image.naturalWidth && at < pair[side].length && !draft.seen[side].includes(at)) draft.seen[side].push(at);
        }
        save();
        buttons();
      }, LOOK);
    }
    const begin = () => { if (since === null && !document.hidden && pair) since = performance.now(); };
    const stop = () => { if (since !== null && draft) draft.ms += performance.now() - since; since = null; };
    function save() {
      if (!pair) return;
      if (since !== null) { stop(); begin(); }
      keep(drafts, { ...kept(drafts), [pair.id]: draft });
    }

    function preload() {
      const following = open().find(({ id }) => id !== pair.id);
      if (following) for (const side of SIDES) following[side].forEach((_, index) => { new Image().src = store.picture(following, side, index); });
    }

    // Voting

    function act(action) {
      apply(action);
      store.send(action);
    }
    function vote(choice) {
      if (!pair) return;
      if (!ready()) {
        const first = Math.min(...SIDES.flatMap(unseen)), left = new Set(SIDES.flatMap(unseen)).size;
        if (at !== first) turn(first);
        tell(`Look at every slide first: ${many(left, "slide")} to go.`);
        return;
      }
      save();
      act({ what: "vote", pair: pair.id, key: random(), ballot: { choice, dimensions: { ...draft.dimensions }, tags: [...draft.tags], seconds: Math.min(86400, Math.round(draft.ms / 100) / 10), seen: true } });
      advance(`You said: ${sheet.choices[choice].replace("Left", words().left).replace("Right", words().right).toLowerCase()}.`);
    }
    function skip() {
      if (!pair) return;
      save();
      act({ what: "skip", pair: pair.id, key: random() });
      advance("Skipped.");
    }
    function undo() {
      const last = state.acted.at(-1);
      if (!last || sheet.closed) { tell("There is nothing to undo."); return; }
      act({ what: "undo", pair: last, key: random() });
      show(pairs.get(last));
      tell("Taken back. Vote again on this pair.");
    }
    function advance(said) {
      const next = open()[0];
      if (next) { show(next); tell(`${said} Next pair.`); $("request").focus({ preventScroll: true }); } else finish();
    }

    let hushed;
    function tell(text) {
      $("said").textContent = text;
      clearTimeout(hushed);
      if (text) hushed = setTimeout(() => { $("said").textContent = ""; }, 6000);
    }

    function progress() {
      const all = sheet.pairs.length, over = all - open().length;
      $("progress").max = Math.max(1, all);
      $("progress").value = over;
      $("place").textContent = pair ? `${Math.min(all, over + 1)} of ${all}` : `${over} of ${all}`;
    }

    const CHOICES = [["left", "l"], ["tie", "t"], ["bad", "b"], ["right", "r"]];
    function build() {
      const key = (letter) => h("kbd", { "aria-hidden": "true" }, letter.toUpperCase());
      $("votes").replaceChildren(...CHOICES.map(([choice, letter]) => h(`button.vote.${choice}`, { type: "button", "data-choice": choice, "aria-keyshortcuts": letter.toUpperCase(), onclick: () => vote(choice) },
        h("span", {}), key(letter))));
      $("others").replaceChildren(
        h("button.plain", { type: "button", id: "undo", "aria-keyshortcuts": "U", onclick: undo }, "Undo ", key("u")),
        h("button.plain", { type: "button", id: "skip", "aria-keyshortcuts": "S", onclick: skip }, "Skip ", key("s")),
        h("button.plain", { type: "button", id: "why-open", "aria-expanded": "false", "aria-controls": "why", "aria-keyshortcuts": "W", onclick: toggleWhy }, "Say why ", key("w")),
        h("button.plain", { type: "button", id: "full", "aria-pressed": "false", "aria-keyshortcuts": "F", onclick: full }, "Full screen ", key("f")));
      $("question").textContent = sheet.question;
    }
    function buttons() {
      const yes = ready(), missing = new Set(SIDES.flatMap(unseen)).size;
      for (const button of $("votes").children) {
        button.setAttribute("aria-disabled", String(!yes));
        button.querySelector("span").textContent = sheet.choices[button.dataset.choice].replace("Left", words().left).replace("Right", words().right);
        button.title = yes ? "" : `${many(missing, "slide")} not seen yet`;
      }
      for (const side of SIDES) $(side).querySelectorAll(".thumb").forEach((thumb, index) => thumb.classList.toggle("seen", draft.seen[side].includes(index)));
      $("room").classList.toggle("ready", yes);
      $("hint").textContent = yes ? "" : `${many(missing, "slide")} to see before you vote`;
      $("undo").disabled = !state.acted.length;
    }

    // Why: optional, before the vote

    function why() {
      const name = words(), dimension = ([id, title]) => h("div.dimension", { role: "group", "aria-label": `${title}: which is better?` }, h("b", {}, title),
        ...[["left", name.left], ["tie", "Same"], ["right", name.right]].map(([value, label]) => h("button.chip", { type: "button", "aria-pressed": String(draft.dimensions[id] === value), onclick: () => {
          if (draft.dimensions[id] === value) delete draft.dimensions[id]; else draft.dimensions[id] = value;
          save(); redo(`${id} ${value}`);
        }, "data-is": `${id} ${value}` }, label)));
      const tag = ([id, title]) => h("button.chip", { type: "button", "data-is": id, "aria-pressed": String(draft.tags.includes(id)), onclick: () => {
        draft.tags = draft.tags.includes(id) ? draft.tags.filter((each) => each !== id) : [...draft.tags, id];
        save(); redo(id);
      } }, title);
      const redo = (is) => { why(); $("why").querySelector(`[data-is="${is}"]`).focus(); };
      $("why").replaceChildren(h("div.dimensions", {}, Object.entries(sheet.dimensions).map(dimension)),
        h("div.tags", { role: "group", "aria-label": "What made the difference?" }, h("b", {}, "The better one"), Object.entries(sheet.tags).map(tag)));
      $("why").hidden = !settings.why;
      $("why-open").setAttribute("aria-expanded", String(settings.why));
    }
    function toggleWhy() {
      settings = { ...settings, why: !settings.why };
      keep(set, settings);
      why();
    }

    // Full screen: the two decks and the buttons alone. Where a browser has no such thing, the page itself does it.
    async function full() {
      const on = !document.body.classList.contains("full");
      document.body.classList.toggle("full", on);
      $("full").setAttribute("aria-pressed", String(on));
      try {
        if (on) await document.documentElement.requestFullscreen?.();
        else if (document.fullscreenElement) await document.exitFullscreen();
      } catch { /* not allowed: the class is enough */ }
      measureRequest();
    }
    document.addEventListener("fullscreenchange", () => {
      if (!document.fullscreenElement) { document.body.classList.remove("full"); $("full").setAttribute("aria-pressed", "false"); }
    });

    // One slide, large

    function enlarge(side) {
      if (!pair[side].length) return;
      const opening = !large, count = pair[side].length, index = Math.min(at, count - 1), name = words()[side], dialog = $("large");
      large = side;
      dialog.replaceChildren(
        h("img", { src: store.picture(pair, side, index), alt: `${name} deck, slide ${index + 1} of ${count}`, onload: () => look(), onerror: again }),
        h("div.row", {}, h("b", {}, name), h("span.soft", {}, at < count ? `Slide ${index + 1} of ${count}` : `ended with slide ${count}`), h("span.grow"),
          h("button.round", { type: "button", "aria-label": "Slide before", disabled: at === 0, onclick: () => turn(at - 1) }, "←"),
          h("button.round", { type: "button", "aria-label": "Next slide", disabled: at === length() - 1, onclick: () => turn(at + 1) }, "→"),
          h("button", { type: "button", onclick: () => { enlarge(side === "left" ? "right" : "left"); look(); } }, `${words()[side === "left" ? "right" : "left"]} deck `, h("kbd", { "aria-hidden": "true" }, side === "left" ? "2" : "1")),
          h("button", { type: "button", onclick: closeLarge }, "Close ", h("kbd", { "aria-hidden": "true" }, "Esc"))));
      if (opening) dialog.showModal();
      dialog.setAttribute("aria-label", `${name} deck, large`);
      look();
    }
    function closeLarge() { if ($("large").open) $("large").close(); large = null; look(); }
    $("large").addEventListener("close", () => { large = null; look(); });
    $("large").addEventListener("click", (event) => { if (event.target === $("large") || event.target.tagName === "IMG") closeLarge(); });

    // The end

    function finish() {
      stop();
      pair = null;
      closeLarge();
      if (document.fullscreenElement) document.exitFullscreen();
      document.body.classList.remove("full");
      $("room").hidden = $("wait").hidden = true;
      progress();
      const skipped = state.skipped.size, end = $("end");
      const parts = [];
      if (sheet.closed) {
        parts.push(h("h1", {}, "This study is closed"), h("p", {}, `Thank you, ${sheet.rater}. `, many(Object.keys(state.done).length, "vote"), " of yours count."), results(sheet.results || []));
      } else {
        parts.push(h("h1", {}, sheet.pairs.length ? "That was all. Thank you!" : "There is nothing to vote on yet"),
          h("p", {}, `You have voted on ${many(Object.keys(state.done).length, "pair")}, ${sheet.rater}. Results can be seen here when the study is closed.`),
          h("div.row", {},
            skipped > 0 && h("button", { type: "button", onclick: review }, `Look again at ${many(skipped, "skipped pair")}`),
            h("button.main", { type: "button", onclick: another }, "Vote on more"),
            state.acted.length > 0 && h("button", { type: "button", onclick: undo }, "Undo the last ", h("kbd", { "aria-hidden": "true" }, "U"))));
      }
      end.replaceChildren(...parts);
      end.hidden = false;
      end.focus();
    }
    function review() {
      for (const id of [...state.skipped]) act({ what: "undo", pair: id, key: random() });
      show(open()[0]);
    }
    async function another(event) {
      event.target.disabled = true;
      const given = await store.more();
      if (!given) { event.target.replaceWith(h("p.soft", { role: "status" }, "There are no more pairs that need votes.")); return; }
      await load();
      if (open().length) show(open()[0]);
    }
    function results(rows) {
      if (!rows.length) return h("p.soft", {}, "No votes were counted.");
      return h("div.wide", {}, table(rows));
    }

    // Saved or not, and what another window did

    store.listen(async ({ waiting, lost, refused }) => {
      $("saved").textContent = lost ? `${many(waiting, "vote")} not saved yet. Trying again…` : waiting ? "Saving…" : "Saved";
      $("saved").classList.toggle("lost", lost);
      if (!refused) return;
      if (refused.status === 423) { await load(); finish(); return; }
      const message = refused.status === 409 ? "This pair was voted on in another window." : sentence(refused.error);
      const now = pair?.id;
      await load();
      if (!open().some(({ id }) => id === now)) { if (open().length) show(open()[0]); else finish(); }
      tell(message);
    });

    function help() {
      const keys = [["L  R", "left, right is better"], ["T", "about the same"], ["B", "both are bad"], ["S", "skip"], ["U", "undo"], ["←  →", "slides of both decks"], ["Home  End", "first, last slide"],
        ["1  2", "left, right slide large"], ["W", "say why"], ["F", "full screen"], ["?", "this"]];
      const field = h("input", { readonly: true, value: store.link, "aria-label": "Your link", onfocus: (event) => event.target.select() });
      $("help").replaceChildren(h("div.keys", {}, h("h2", {}, "Keys"), h("dl", {}, keys.map(([key, what]) => h("div", {}, h("dt", {}, key.split("  ").map((each) => h("kbd", {}, each))), h("dd", {}, what)))),
        h("label.check", {}, h("input", { type: "checkbox", checked: settings.keys, onchange: (event) => { settings = { ...settings, keys: event.target.checked }; keep(set, settings); } }), "Single keys vote")),
        h("div", {}, h("h2", {}, `Your link, ${sheet.rater}`), h("p.soft", {}, "Open it to go on later or on another device. Whoever has it votes as you."), field),
        h("form", { method: "dialog" }, h("button.main", { autofocus: true }, "Close")));
      $("help").showModal();
    }

    const KEYS = { l: () => vote("left"), r: () => vote("right"), t: () => vote("tie"), b: () => vote("bad"), s: skip, u: undo, w: toggleWhy, f: full,
      1: () => (large === "left" ? closeLarge() : enlarge("left")), 2: () => (large === "right" ? closeLarge() : enlarge("right")) };
    document.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.("input:not([type=checkbox]), textarea")) return;
      if (event.key === "?") { if (!$("help").open) help(); event.preventDefault(); return; }
      if ($("help").open) return;
      const paging = pair && { ArrowRight: () => turn(at + 1), ArrowLeft: () => turn(at - 1), Home: () => turn(0), End: () => turn(length() - 1) }[event.key];
      if (paging) { paging(); event.preventDefault(); return; }
      const letter = event.key.toLowerCase();
      if (event.repeat || !settings.keys || !KEYS[letter] || (large && !"12".includes(letter))) return;
      if (!pair && letter !== "u") return;
      KEYS[letter]();
      event.preventDefault();
    });

    let touched = null;
    $("stage").addEventListener("touchstart", (event) => { touched = event.touches.length === 1 && !event.target.closest(".film") ? [event.touches[0].clientX, event.touches[0].clientY] : null; }, { passive: true });
    $("stage").addEventListener("touchend", (event) => {
      if (!touched) return;
      const [x, y] = [event.changedTouches[0].clientX - touched[0], event.changedTouches[0].clientY - touched[1]];
      touched = null;
      if (Math.abs(x) > 40 && Math.abs(x) > 1.5 * Math.abs(y)) turn(at + (x < 0 ? 1 : -1));
    }, { passive: true });

    document.addEventListener("visibilitychange", () => { if (document.hidden) { save(); stop(); } else { begin(); look(); } });
    addEventListener("pagehide", () => { save(); stop(); });
    narrow.addEventListener("change", () => { if (pair) { turn(at, true); why(); buttons(); } });

    // The request in a few lines, whole on demand.
    function measureRequest() {
      const box = $("request"), whole = box.classList.contains("whole");
      $("request-all").hidden = !whole && box.scrollHeight <= box.clientHeight + 2;
      $("request-all").textContent = whole ? "Less" : "Whole request";
      $("request-all").setAttribute("aria-expanded", String(whole));
    }
    addEventListener("resize", () => { if (pair) measureRequest(); });
    $("request-all").addEventListener("click", () => { $("request").classList.toggle("whole"); measureRequest(); });
    $("back").addEventListener("click", () => turn(at - 1));
    $("next").addEventListener("click", () => turn(at + 1));
    $("help-open").addEventListener("click", () => { if (sheet) help(); });

    try {
      await load();
    } catch (error) {
      $("waiting").textContent = sentence(error.message);
      return;
    }
    build();
    if (!sheet.closed && open().length) show(open()[0]); else finish();
    document.documentElement.dataset.ready = "yes";
  }

  // Counts for each two models

  function table(rows) {
    const share = (row, side) => { const decided = row.wins[0] + row.wins[1]; return decided ? ` (${Math.round(100 * row.wins[side] / decided)} %)` : ""; };
    return h("table", {}, h("caption", {}, "Preferred, pair by pair ", h("span", {}, "counts of votes, without attention items and repeats")),
      h("thead", {}, h("tr", {}, ["Models", "Preferred", "About the same", "Both bad", "Votes"].map((name) => h("th", { scope: "col" }, name)))),
      rows.map((row) => h("tbody", {}, [0, 1].map((side) => h("tr", {}, h("th", { scope: "row" }, row.labels[side]), h("td", {}, row.wins[side] + share(row, side)),
        side === 0 && [row.tie, row.bad, row.votes].map((n) => h("td", { rowspan: 2 }, String(n))))))));
  }

  // The owner's page

  async function owner() {
    const base = location.pathname;
    let links = [], sure = false;
    const ago = (time) => { const s = (Date.now() - new Date(time)) / 1000; return s < 90 ? "just now" : s < 5400 ? `${Math.round(s / 60)} min ago` : s < 129600 ? `${Math.round(s / 3600)} h ago` : `${Math.round(s / 86400)} days ago`; };
    const full = (link) => new URL(link, location.href).href;
    const parts = { state: h("div"), raters: h("div"), links: h("div") };
    const names = h("textarea", { id: "names", rows: 3, placeholder: "One name a line", spellcheck: "false" });
    $("owner").append(parts.state, h("section", {}, h("h2", {}, "Invite people"), h("label", { for: "names" }, "Names, one a line"), names,
      h("div.row", {}, h("button", { type: "button", onclick: invite }, "Make personal links")), parts.links), parts.raters);
    async function invite() {
      const { status, body } = await ask(`${base}raters`, { names: names.value.split("\n").map((name) => name.trim()).filter(Boolean) });
      if (status !== 200) { parts.links.replaceChildren(h("p.trouble", { role: "alert" }, sentence(body?.error || "the server does not answer"))); return; }
      links = body.links;
      names.value = "";
      parts.links.replaceChildren(h("ul.links", {}, links.map(({ name, link }) => h("li", {}, h("b", {}, name), h("code", {}, full(link))))),
        h("button", { type: "button", onclick: async (event) => { await navigator.clipboard?.writeText(links.map(({ name, link }) => `${name}\t${full(link)}`).join("\n")); event.target.textContent = "Copied"; } }, "Copy all"));
      refresh();
    }
    async function toggle(closed) {
      if (!closed && !sure) { sure = true; refresh(); return; }
      sure = false;
      await ask(base + (closed ? "open" : "close"), {});
      refresh();
    }
    let shown = "";
    async function refresh() {
      const { status, body } = await ask(`${base}state`);
      $("waiting").textContent = status === 200 ? "" : "The server does not answer. Trying again…";
      if (status !== 200) return;
      const now = JSON.stringify([body, sure]);
      if (now === shown) return; // what is read or chosen stays as it is
      shown = now;
      const most = Math.max(1, body.pairs);
      parts.state.replaceChildren(
        h("div.figures", {}, figure(body.votes, body.votes === 1 ? "vote" : "votes"), figure(body.raters.length, body.raters.length === 1 ? "person" : "people"), figure(body.pairs, body.pairs === 1 ? "pair" : "pairs"), figure(`${Math.round(100 * (body.covered) / most)} %`, `of them with ${many(body.each, "vote")} or more`)),
        h("div.row", {}, h("b", {}, body.closed ? "Closed: nobody votes, everybody sees the counts." : "Open: people vote, nobody but you sees results."), h("span.grow"),
          h(body.closed || sure ? "button.main" : "button", { type: "button", id: "toggle", onclick: () => toggle(body.closed) }, body.closed ? "Open again" : sure ? "Yes, close and show the counts" : "Close the study"),
          sure && h("button", { type: "button", onclick: () => { sure = false; refresh(); } }, "No")),
        body.results.length ? h("section", {}, h("h2", {}, "Counts so far"), h("div.wide", { tabindex: 0, role: "region", "aria-label": "Counts so far" }, table(body.results)), h("p.soft", {}, "Looking often and stopping when it pleases makes chance look like a result. vote-tally gives intervals.")) : "");
      parts.raters.replaceChildren(h("section", {}, h("h2", {}, "People"), body.raters.length ? h("div.wide", { tabindex: 0, role: "region", "aria-label": "People" }, h("table", {}, h("thead", {}, h("tr", {},
        ["Name", "Votes", "Skipped", "Seconds a vote", "Attention", "Last vote", "Link"].map((name) => h("th", { scope: "col" }, name)))), h("tbody", {}, body.raters.map((each) => h("tr", {},
        h("th", { scope: "row" }, each.name, each.alike && h("span.names", {}, "one of several names of one network, which may be one person: give links")), h("td", {}, `${each.votes} of ${each.given}`), h("td", {}, String(each.skipped)), h("td", {}, each.seconds === null ? "–" : String(Math.round(each.seconds))),
        h("td", each.gold[0] < each.gold[1] ? { class: "off" } : {}, each.gold[1] ? `${each.gold[0]} of ${each.gold[1]}` : "–"), h("td", {}, each.last ? ago(each.last) : "–"), h("td", {}, h("a", { href: each.link, "aria-label": `open the link of ${each.name}` }, "open"))))))) : h("p.soft", {}, "Nobody yet.")));
      document.documentElement.dataset.ready = "yes";
    }
    const figure = (n, what) => h("div", {}, h("b.big", {}, String(n)), h("span.soft", {}, what));
    await refresh();
    setInterval(() => { if (!document.hidden) refresh(); }, 3000);
  }

  document.addEventListener("DOMContentLoaded", () => {
    $("theme").addEventListener("click", () => { keep("decksmith-theme", document.documentElement.dataset.theme === "dark" ? "light" : "dark"); paint(); });
    ({ start, rater: booth, owner })[document.body.dataset.kind]();
  });
})();
