// The demo's page, drawn from the events of an ask alone. Models and strangers wrote most of what is shown: it only ever becomes text
// (textContent, value), never markup; a deck as a page runs in a sandboxed frame of another origin.

const $ = (id) => document.getElementById(id);
const facts = JSON.parse($("data").textContent);
const kept = { // what a private window or a full disk refuses is done without
  get(name) { try { return JSON.parse(localStorage.getItem(`decksmith.${name}`)); } catch { return null; } },
  set(name, value) { try { value === null ? localStorage.removeItem(`decksmith.${name}`) : localStorage.setItem(`decksmith.${name}`, JSON.stringify(value)); } catch {} },
};

function sign(path, size = 16) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg"), line = document.createElementNS("http://www.w3.org/2000/svg", "path");
  for (const [key, value] of Object.entries({ viewBox: "0 0 16 16", width: size, height: size, fill: "none", stroke: "currentColor", "stroke-width": "1.8", "stroke-linecap": "round", "stroke-linejoin": "round", "aria-hidden": "true" })) svg.setAttribute(key, value);
  line.setAttribute("d", path);
  svg.append(line);
  return svg;
}
const many = (n, word) => `${n.toLocaleString("en")} ${word}${n === 1 ? "" : "s"}`;
const colour = (value) => (/^#[0-9a-f]{3,8}$/i.test(value || "") ? value : "#686c74");
// Written only when it differs: a screen reader and the caret are left in peace.
function put(node, text) { if (node.textContent !== text) node.textContent = text; }

const refusal = ({ error }, answer) => (error ? error[0].toUpperCase() + error.slice(1) + (/[.?!]$/.test(error) ? "" : ".") : `The server said ${answer.status}.`);
async function call(path, method = "GET", body) {
  let answer;
  try {
    answer = await fetch(path, { method, headers: body ? { "Content-Type": "application/json" } : {}, body: body && JSON.stringify(body) });
  } catch {
    throw new Error("The server does not answer. Is it still running?");
  }
  const said = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(refusal(said, answer));
  return said;
}

// --- the form ------------------------------------------------------------------------------------------------------------

// Requests to begin with: what the button says, and the form's fields.
const EXAMPLES = [
  ["A talk about tides", { prompt: "Why are there two tides a day, and not one? For people who sail at weekends: one clear picture of the cause, what spring and neap tides are, and what it means for leaving the harbour.", audience: "weekend sailors", tone: "calm", slides: 6 }],
  ["A decision for a board", { prompt: "Our library lends tools as well as books: 412 loans in six months, 9 tools broken, 3,200 euros spent. Ask the board for a second year. Show the numbers in a table and end with the decision we need.", audience: "executives", tone: "matter-of-fact", slides: 6 }],
  ["A lesson with code", { prompt: "Explain recursion in Python to beginners: a function that calls itself, the base case, one traced example with code, and the mistake everybody makes first.", audience: "students", tone: "warm", slides: 7 }],
];
const form = $("form"), fields = ["prompt", "audience", "tone", "slides", "theme"];
for (const name of facts.themes) $("theme").append(h("option", { value: name }, name));
const chips = facts.models.map((model, at) => h("input", { type: "checkbox", name: "model", value: model.name, checked: at < 2 }));
$("models").querySelector(".chips").append(...facts.models.map((model, at) => h("label.chip", { "--c": colour(model.color) }, chips[at], h("i"), model.label)));
$("models").hidden = facts.models.length < 2;
let picked = chips.filter((chip) => chip.checked);
for (const chip of chips) chip.addEventListener("change", () => {
  picked = picked.filter((other) => other !== chip);
  if (chip.checked) picked.push(chip);
  if (!picked.length) { picked = [chip]; chip.checked = true; }
  if (picked.length > 2) picked.shift().checked = false; // two stand side by side: the newest choices hold
  label();
  keep();
});
const chosen = () => chips.filter((chip) => chip.checked).map((chip) => chip.value);
function label() { put($("go"), chosen().length > 1 ? "Write both decks" : "Write the deck"); }

function keep() { kept.set("form", { ...Object.fromEntries(fields.map((name) => [name, $(name).value])), models: chosen(), material }); }
function fill(request, models) {
  for (const name of fields) $(name).value = request[name] ?? "";
  bring(request.material || null);
  if (models?.some((name) => chips.some((chip) => chip.value === name))) {
    for (const chip of chips) chip.checked = models.includes(chip.value);
    picked = chips.filter((chip) => chip.checked);
  }
  label();
}

// A document is read by the server, which says what of it is used; it goes with the request.
let material = null;
function bring(found) {
  material = found;
  const name = found && h("span.given", null, h("b", { dir: "auto" }, found.name), " ", h("span.soft", null, found.cut || `All of its ${many(found.text.length, "character")} are used.`),
    h("button.quiet", { type: "button", "aria-label": `Leave ${found.name} out`, onclick: () => { bring(null); keep(); } }, "Leave it out"));
  $("document").querySelector(".given")?.remove();
  if (name) $("document").append(name);
}
$("file").accept = facts.documents.join(",");
$("file").addEventListener("change", async () => {
  const file = $("file").files[0];
  if (!file) return;
  $("wrong").hidden = true;
  try {
    if (file.size > facts.limits.document) throw new Error(`${file.name} has ${(file.size / 1e6).toFixed(1)} MB; at most ${facts.limits.document / 1e6} are read.`);
    const answer = await fetch(`/material?name=${encodeURIComponent(file.name)}`, { method: "POST", headers: { "Content-Type": "application/octet-stream" }, body: file });
    const said = await answer.json().catch(() => ({}));
    if (!answer.ok) throw new Error(refusal(said, answer));
    bring(said);
    keep();
  } catch (error) { wrong(error.message); }
  $("file").value = ""; // so that the same file can be chosen again
});

fill(kept.get("form") || { slides: 6 }, kept.get("form")?.models);
form.addEventListener("input", () => { keep(); $("wrong").hidden = true; });
$("examples").append(...EXAMPLES.map(([words, request]) => h("button", { type: "button", onclick: () => { fill(request); keep(); $("wrong").hidden = true; $("prompt").focus(); } }, words)));
const sends = (event) => event.key === "Enter" && (event.ctrlKey || event.metaKey);
form.addEventListener("keydown", (event) => { // from any of its fields; the editor and the wish see to themselves
  if (!sends(event)) return;
  event.preventDefault();
  form.requestSubmit();
});
form.addEventListener("submit", async (event) => {
  event.preventDefault();
  if ($("go").disabled) return;
  $("go").disabled = true;
  $("wrong").hidden = true;
  try {
    const slides = $("slides").value === "" ? null : Number($("slides").value);
    const { id } = await call("/asks", "POST", { prompt: $("prompt").value, audience: $("audience").value, tone: $("tone").value, slides, theme: $("theme").value, models: chosen(), material });
    location.hash = id;
  } catch (error) {
    put($("wrong"), error.message);
    $("wrong").hidden = false;
  } finally {
    $("go").disabled = false;
  }
});
$("scheme").addEventListener("click", () => {
  const dark = getComputedStyle(document.documentElement).colorScheme === "dark" || (!document.documentElement.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.dataset.theme = dark ? "light" : "dark";
  kept.set("scheme", document.documentElement.dataset.theme);
});
if (kept.get("scheme")) document.documentElement.dataset.theme = kept.get("scheme") === "dark" ? "dark" : "light";

// --- one deck ------------------------------------------------------------------------------------------------------------

const ENDS = { done: "Done", failed: "No deck", stopped: "Stopped", interrupted: "Interrupted" };
const CUT = { length: "The reply ended at the token limit, so the deck stops there.", "too-long": "The reply was far too long and was stopped; the deck stops there.",
  time: "The reply took too long and was stopped; the deck stops there.", "cut-off": "The connection to the model broke; the deck stops there." };
let active = null;

class Side {
  constructor(ask, at, model) {
    Object.assign(this, { ask, at, model, status: "queued", place: 0, text: "", thought: "", deck: null, version: 0, early: new Map(), pages: [], findings: [], slide: 1, chosen: false,
      view: "pictures", pane: "text", began: null, times: {}, usage: null, finish: null, message: null, shown: "", dirty: false, playing: null, stuck: true, sending: false });
    this.draft = kept.get(`edit.${ask.id}.${at}`);
    this.make();
  }

  make() {
    const e = this.e = {};
    const id = `side-${this.at}`;
    const tab = (group, name, words) => h("button", { type: "button", role: "tab", "data-tab": name, id: `${id}-${name}`, onclick: () => { this[group] = name; this.draw(); } }, words);
    e.status = h("b", { role: "status" });
    e.count = h("span.count");
    e.pulse = h("i.pulse");
    e.stop = h("button", { type: "button", onclick: () => this.stop() }, "Stop");
    e.state = h("p.state", null, e.pulse, e.status, e.count);
    e.tabs = h("div.tabs.inner", { role: "tablist", "aria-label": "Show the deck as" }, tab("view", "pictures", "Pictures"), tab("view", "play", "Interactive"));
    e.alone = h("a", { target: "_blank", rel: "noopener", hidden: true }, "Open alone");
    e.stage = h("div.stage", { tabindex: 0, role: "group", "aria-roledescription": "slide", "aria-label": "Slides", onpointerdown: () => { active = this; } });
    e.back = h("button", { type: "button", "aria-label": "Previous slide", onclick: () => this.turn(-1) }, sign("M10 3 5 8l5 5"));
    e.on = h("button", { type: "button", "aria-label": "Next slide", onclick: () => this.turn(1) }, sign("m6 3 5 5-5 5"));
    e.place = h("span.place");
    e.title = h("span.title", { dir: "auto" });
    e.turn = h("div.turn", null, e.back, e.on, e.place, e.title);
    e.film = h("div.film", { role: "group", "aria-label": "All slides" });
    e.wish = h("textarea", { rows: 1, maxlength: facts.limits.wish, dir: "auto", "aria-label": `What shall change in the deck by ${this.model.label}`, oninput: () => { this.answer = ""; this.draw(); },
      onkeydown: (event) => { if (event.key === "Enter" && !event.shiftKey) { event.preventDefault(); this.change(); } } });
    e.send = h("button", { type: "button", title: "Ctrl+Enter", onclick: () => this.change() });
    e.answer = h("p", { role: "status", dir: "auto" });
    e.was = h("div.was", { hidden: true });
    e.change = h("div.change", null, e.wish, e.send, e.answer, e.was);
    e.findings = h("ul.findings", { "aria-label": "Hints" });
    e.clear = h("p.clear");
    e.times = h("dl.times");
    e.take = h("div.take", null, "Download", ...[["md", "Markdown"], ["pdf", "PDF"], ["pptx", "PowerPoint"]].map(([kind, words]) =>
      h("button", { type: "button", onclick: (event) => this.take(kind, event.currentTarget) }, words)));
    e.took = h("span", { role: "status" });
    e.take.append(e.took);
    e.area = h("textarea", { spellcheck: "false", wrap: "off", "aria-label": `Markdown of the deck by ${this.model.label}`, autocapitalize: "off", autocomplete: "off", oninput: () => this.typed(),
      onscroll: () => { e.numbers.scrollTop = e.area.scrollTop; this.stuck = e.area.scrollTop + e.area.clientHeight > e.area.scrollHeight - 40; },
      onkeydown: (event) => { if (sends(event) || ((event.ctrlKey || event.metaKey) && event.key === "s")) { event.preventDefault(); this.render(); } } });
    e.lines = h("div");
    e.numbers = h("div.gutter", { "aria-hidden": "true" }, e.lines);
    e.editor = h("div.editor", { role: "tabpanel", "aria-labelledby": `${id}-text` }, e.numbers, e.area);
    e.thought = h("pre.thought", { tabindex: 0, role: "tabpanel", "aria-labelledby": `${id}-thought` });
    e.panes = h("div.tabs.inner", { role: "tablist", "aria-label": "Show the source as" }, tab("pane", "text", "Markdown"), tab("pane", "thought", "Thinking"));
    e.undo = h("button.quiet.back", { type: "button", onclick: () => this.undo() }, "Undo edits");
    e.again = h("button.go", { type: "button", title: "Ctrl+Enter", onclick: () => this.render() }, "Render again");
    e.bar = h("div.tabs", null, e.panes, h("span.grow"), e.undo, e.again);
    e.hint = h("p.hint", { role: "status" });
    e.tabpanel = h("div", { role: "tabpanel", "aria-label": "The deck" }, e.stage);
    this.node = h("article.side", { "--c": colour(this.model.color), "aria-label": `Deck by ${this.model.label}`, onfocusin: () => { active = this; } },
      h("header", null, h("h2.who", null, h("i"), h("span", null, this.model.label)), e.state, e.stop),
      h("div.inside", null, h("div.view", null, h("div.tabs", null, e.tabs, e.alone), e.tabpanel, e.turn, e.film, e.change, e.findings, e.clear, e.times, e.take), h("div.source", null, e.bar, e.editor, e.thought, e.hint)));
    for (const list of [e.tabs, e.panes]) list.addEventListener("keydown", (event) => {
      const tabs = [...list.querySelectorAll('[role="tab"]:not(:disabled)')], here = tabs.indexOf(document.activeElement);
      if (here < 0 || !["ArrowLeft", "ArrowRight"].includes(event.key)) return;
      event.stopPropagation();
      event.preventDefault();
      const next = tabs[(here + (event.key === "ArrowRight" ? 1 : tabs.length - 1)) % tabs.length];
      next.focus();
      next.click();
    });
  }

  take(kind, button) {
    if (button.disabled) return;
    const words = button.textContent;
    button.disabled = true;
    put(this.e.took, ["pdf", "pptx"].includes(kind) ? "Making the file .." : "");
    fetch(`/asks/${this.ask.id}/${this.at}/${this.version}/deck.${kind}`).then(async (answer) => {
      if (!answer.ok) throw new Error(refusal(await answer.json().catch(() => ({})), answer));
      const url = URL.createObjectURL(await answer.blob());
      const name = /filename="([^"]+)"/.exec(answer.headers.get("Content-Disposition") || "")?.[1] || `deck.${kind}`;
      h("a", { href: url, download: name }).click();
      setTimeout(() => URL.revokeObjectURL(url), 60000);
      put(this.e.took, `${words} saved`);
    }).catch((error) => put(this.e.took, error.message)).finally(() => { button.disabled = false; });
  }

  apply(event) {
    const now = event.at;
    switch (event.type) {
      case "place": this.place = event.place; break;
      case "started": this.status = "writing"; this.began = now; this.place = 0; break;
      case "reasoning": this.thought += event.text; this.times.first ??= now; break;
      case "text": this.text += event.text; this.times.first ??= now; break;
      case "turn": this.thought += this.text; this.text = ""; break;
      case "slide":
        this.early.set(event.no, event);
        this.times.slide ??= now;
        break;
      case "wish": this.status = "queued"; this.changing = event.slide; this.answer = ""; break;
      case "changing": this.status = "writing"; this.place = 0; break;
      case "unchanged": this.answer = event.message; break;
      case "written": this.usage = event.usage; this.finish = event.finish; this.times.written = now; break;
      case "deck":
        this.status = "rendering";
        this.version = event.version;
        this.deck = event.text;
        this.message = null;
        if (event.source === "edit" && this.draft === event.text) this.save(null);
        if (event.source === "change") { this.before = { slide: this.changing, picture: this.slides.find((one) => one.no === this.changing)?.picture }; this.slide = this.changing; this.chosen = true; this.e.wish.value = ""; this.answer = `Slide ${this.changing} is new; the others are as they were.`; }
        break;
      case "rendered":
        this.pages = event.pages;
        this.findings = event.findings;
        this.site = event.site;
        this.rendered = event.version;
        if (event.slides) this.early.clear();
        if (event.version === 1) { this.times.rendered = now; this.times.slide ??= event.slides ? now : undefined; }
        this.took = event.took;
        break;
      case "end": this.status = event.status; this.message = event.message; this.place = 0; this.changing = null; break;
    }
  }

  get busy() { return !(this.status in ENDS); }
  get source() { return this.deck ?? this.text; }
  get slides() {
    if (this.pages.length) return this.pages.map((page, at) => ({ no: at + 1, line: page.line, title: page.title, text: page.text, canvas: page.canvas, picture: `${this.ask.id}.${this.at}.${this.rendered}/slides/${String(at + 1).padStart(2, "0")}.png`,
      findings: this.findings.filter((finding) => finding.slide === at + 1) }));
    return [...this.early.values()].sort((a, b) => a.no - b.no);
  }

  save(text) { this.draft = text; kept.set(`edit.${this.ask.id}.${this.at}`, text); }
  typed() {
    this.save(this.e.area.value === this.source ? null : this.e.area.value);
    this.draw();
  }
  undo() { this.save(null); this.shown = null; this.draw(); this.e.area.focus(); }
  async render() {
    if (this.busy || this.sending) return;
    this.sending = true;
    this.fail = null;
    this.draw();
    try {
      await call(`/asks/${this.ask.id}/${this.at}/text`, "POST", { text: this.e.area.value });
      this.status = "rendering";
      this.ask.listen();
    } catch (error) {
      this.fail = error.message;
    }
    this.sending = false;
    this.draw();
  }
  // "slide 3: ..", else the slide that is shown.
  wanted() {
    const said = /^\s*(?:change\s+)?slide\s+(\d+)\s*[:,.-]?\s*([^]*)$/i.exec(this.e.wish.value);
    return said ? { slide: Number(said[1]), wish: said[2].trim() } : { slide: this.slide, wish: this.e.wish.value.trim() };
  }
  async change() {
    const wanted = this.wanted();
    if (this.busy || this.sending || !wanted.wish || this.draft !== null) return;
    this.sending = true;
    this.answer = "";
    this.go(wanted.slide);
    try {
      await call(`/asks/${this.ask.id}/${this.at}/change`, "POST", wanted);
      this.status = "queued";
      this.ask.listen();
    } catch (error) {
      this.answer = error.message;
    }
    this.sending = false;
    this.draw();
  }
  async stop() {
    this.e.stop.disabled = true;
    try { await call(`/asks/${this.ask.id}/${this.at}/stop`, "POST"); } catch (error) { this.fail = error.message; }
    this.e.stop.disabled = false;
    this.draw();
  }

  turn(by) { this.go(this.slide + by); }
  go(no) {
    const slides = this.slides;
    if (!slides.length) return;
    const at = Math.min(Math.max(slides.findIndex((slide) => slide.no >= no), no > slides.at(-1).no ? slides.length - 1 : 0), slides.length - 1);
    this.slide = slides[at].no;
    this.chosen = true;
    if (this.view === "play") this.playing = null;
    this.draw();
    const film = this.e.film, shot = film.querySelector('[aria-current="true"]');
    if (shot) film.scrollLeft = shot.offsetLeft - film.offsetLeft - (film.clientWidth - shot.clientWidth) / 2;
    if (slides[at].line && document.activeElement !== this.e.area && this.draft === null) this.e.area.scrollTop = (slides[at].line - 1) * 20;
  }

  jump(line) {
    this.pane = "text";
    this.draw();
    const area = this.e.area, lines = area.value.split("\n"), at = Math.min(line, lines.length) - 1;
    const from = lines.slice(0, at).reduce((sum, text) => sum + text.length + 1, 0);
    area.focus({ preventScroll: true });
    area.setSelectionRange(from, from + lines[at].length);
    area.scrollTop = Math.max(0, at * 20 - area.clientHeight / 3);
    area.scrollLeft = 0;
    this.node.querySelector(".source").scrollIntoView({ block: "nearest" });
  }

  // Everything again from what is known; parts that did not change are left as they are.
  draw() {
    const e = this.e, slides = this.slides, live = this.busy;
    if (!this.chosen && slides.length) this.slide = live && !this.pages.length ? slides.at(-1).no : 1;
    let current = slides.find((slide) => slide.no === this.slide);
    if (!current && slides.length) { current = slides.at(-1); this.slide = current.no; }

    const short = this.status === "done" && this.findings.some((finding) => finding.check === "too-few-slides");
    const words = (this.source.match(/\S+/g) || []).length;
    const anew = this.changing && live;
    const state = anew && !this.place && this.status !== "rendering" ? `Writing slide ${this.changing} anew` : this.place ? `Waiting, ${this.place === 1 ? "next" : `number ${this.place}`} in line` : this.status === "queued" ? "Waiting" : this.status === "writing" ? (this.text ? "Writing" : this.thought ? "Thinking" : "Starting")
      : this.status === "rendering" ? "Rendering" : short ? "Too short to count" : this.status === "failed" && this.pages.length ? "Failed" : ENDS[this.status];
    put(e.status, state);
    put(e.count, this.status === "writing" && this.text && !anew ? many(words, "word") : this.pages.length && !live ? `${many(this.pages.length, "slide")}${this.findings.length ? `, ${many(this.findings.length, "hint")}` : ""}` : "");
    e.state.className = `state ${this.status}${short ? " short" : ""}`;
    e.pulse.hidden = !live;
    e.stop.hidden = !live || this.ask.shared;

    for (const tab of this.node.querySelectorAll('[role="tab"]')) {
      const on = [this.view, this.pane].includes(tab.dataset.tab);
      tab.setAttribute("aria-selected", on);
      tab.tabIndex = on ? 0 : -1;
    }
    const play = e.tabs.querySelector('[data-tab="play"]'), can = this.site && this.pages.length && this.rendered === this.version;
    play.disabled = !can;
    play.title = can ? "" : live ? "When the deck is written" : "There is no deck to play";
    if (!can && this.view === "play") this.view = "pictures";
    const deck = `${facts.decks}/${this.ask.id}.${this.at}.${this.rendered}/build/index.html`, address = `${deck}?framed#/${this.slide}`;
    e.alone.hidden = !can;
    if (can) e.alone.href = `${deck}#/${this.slide}`;
    this.drawStage(current, address, live);

    e.turn.hidden = e.film.hidden = !slides.length || this.view === "play";
    put(e.place, `${this.slide} / ${this.pages.length || (live ? "…" : slides.length)}`);
    put(e.title, current?.title || "");
    e.back.disabled = current === slides[0];
    e.on.disabled = current === slides.at(-1);
    this.drawFilm(slides);
    this.drawFindings(current, live);
    this.drawChange(live);
    this.drawTimes();
    e.take.hidden = !this.version || this.rendered !== this.version || live;
    for (const [at, button] of [...e.take.querySelectorAll("button")].entries()) button.hidden = at > 0 && !this.pages.length;
    this.drawSource(current, live);
  }

  drawChange(live) {
    const e = this.e, wanted = this.wanted();
    e.change.hidden = this.ask.shared || !this.version || this.rendered !== this.version || (!this.pages.length && !this.changing);
    e.wish.placeholder = `Change slide ${this.slide}: shorter, as a table, with a question at the end ..`;
    e.wish.readOnly = live;
    put(e.send, `Change slide ${wanted.slide}`);
    e.send.disabled = live || this.sending || !wanted.wish || this.draft !== null;
    put(e.answer, this.draft !== null && !live ? "Render or undo your edits first." : this.answer || "");
    e.answer.hidden = !e.answer.textContent;
    // The slide that was changed last, as it was and as it is.
    const now = this.slides.find((one) => one.no === this.slide)?.picture, { slide, picture } = this.before || {};
    const both = !live && picture && slide === this.slide && now !== picture ? [["Before", picture], ["Now", now]] : [];
    e.was.hidden = !both.length;
    if (e.was.dataset.of === String(both)) return;
    e.was.dataset.of = String(both);
    e.was.replaceChildren(...both.map(([name, path]) => h("figure", null, h("img", { src: `/pictures/${path}`, alt: `${name}: slide ${slide}` }), h("figcaption", null, name))));
  }

  drawStage(current, address, live) {
    const e = this.e;
    const key = this.view === "play" ? `play ${this.rendered}` : current ? `${current.picture} ${this.pages.length}` : `none ${this.status} ${this.message} ${Boolean(this.text)}`;
    if (key === this.stageKey && (this.view !== "play" || this.playing)) return;
    this.stageKey = key;
    if (this.view === "play") {
      this.playing = h("iframe", { sandbox: "allow-scripts", referrerpolicy: "no-referrer", allow: "", title: `Interactive deck by ${this.model.label}`, src: address });
      e.stage.replaceChildren(this.playing);
      return;
    }
    this.playing = null;
    if (current) {
      const image = e.stage.querySelector("img");
      const source = `/pictures/${current.picture}`, [wide, high] = current.canvas || [980, 552]; // of an ask that was kept before slides had a size
      e.stage.style.aspectRatio = `${wide} / ${high}`;
      const boxes = (current.findings || []).filter((finding) => finding.box).map(({ box: [x, y, width, height] }) => {
        const box = h("div.box"), left = Math.min(wide - 10, Math.max(0, x)), top = Math.min(high - 10, Math.max(0, y)), share = (part, of, least = 0) => `${Math.max(least, 100 * part / of)}%`;
        Object.assign(box.style, { left: share(left, wide), top: share(top, high), width: share(Math.min(wide, x + width) - left, wide, 1), height: share(Math.min(high, y + height) - top, high, 1.8) });
        return box;
      });
      const picture = image?.getAttribute("src") === source ? image : h("img", { src: source, alt: current.text || current.title || `Slide ${current.no}`, width: wide, height: high, draggable: "false" });
      e.stage.replaceChildren(picture, ...boxes, !this.pages.length ? h("span.draft-mark", null, "draft") : "");
      return;
    }
    const bad = this.status === "failed";
    e.stage.replaceChildren(h(`div.empty${bad ? ".bad" : ""}`, null, live ? h("div.lines-coming", { "aria-hidden": "true" }, h("i"), h("i"), h("i")) : null,
      h("b", null, this.place ? "Waiting for a free model" : live ? (this.status === "rendering" ? "Rendering" : "The first slide comes as soon as it is written") : bad ? "No deck came of it" : ENDS[this.status]),
      this.message && !live ? h("p", { dir: "auto" }, this.message) : null));
  }

  drawFilm(slides) {
    const film = this.e.film, shots = new Map([...film.children].map((node) => [node.dataset.picture, node]));
    const nodes = slides.map((slide) => {
      const hints = (slide.findings || []).length;
      const node = shots.get(slide.picture) || h("button.shot", { type: "button", "data-picture": slide.picture, onclick: () => this.go(slide.no) }, h("img", { src: `/pictures/${slide.picture}`, alt: "", loading: "lazy", width: 980, height: 552 }), h("span"));
      if (!shots.has(slide.picture) && !this.pages.length) node.classList.add("fresh");
      node.classList.toggle("hint", hints > 0);
      node.setAttribute("aria-label", `Slide ${slide.no}${slide.title ? `, ${slide.title}` : ""}${hints ? `, ${many(hints, "hint")}` : ""}`);
      if (slide.no === this.slide) node.setAttribute("aria-current", "true");
      else node.removeAttribute("aria-current");
      put(node.querySelector("span"), String(slide.no));
      return node;
    });
    if (nodes.length !== film.children.length || nodes.some((node, at) => node !== film.children[at])) {
      const grew = nodes.length > film.children.length;
      film.replaceChildren(...nodes);
      if (!this.chosen) film.scrollLeft = grew && this.busy && !this.pages.length ? film.scrollWidth : 0;
    }
  }

  drawFindings(current, live) {
    const e = this.e, here = current ? (current.findings || []) : [];
    const others = this.findings.length || this.pages.length ? this.findings.filter((finding) => !here.includes(finding)) : this.slides.flatMap((slide) => slide.findings || []).filter((finding) => !here.includes(finding));
    const all = [...others.filter((finding) => !finding.slide), ...here, ...others.filter((finding) => finding.slide)];
    const key = JSON.stringify([this.slide, this.rendered, all, this.view]);
    if (key !== this.findingsKey) {
      this.findingsKey = key;
      e.findings.replaceChildren(...all.slice(0, 60).map((finding) => h(`li${here.includes(finding) ? ".here" : ""}${["too-few-slides", "vue-compile", "vue-runtime", "yaml", "deadline", "memory", "forbidden"].includes(finding.check) ? ".bad" : ""}`, {
        onpointerenter: () => this.light(finding), onpointerleave: () => this.light(null) },
        finding.line ? h("button", { type: "button", onclick: () => { if (finding.slide) this.go(finding.slide); this.jump(finding.line); }, onfocus: () => this.light(finding), onblur: () => this.light(null) }, `line ${finding.line}`) : null,
        h("span", { dir: "auto" }, finding.message), h("em", null, finding.slide && !here.includes(finding) ? `slide ${finding.slide}` : finding.check))));
    }
    e.findings.hidden = !all.length || this.view === "play";
    // What was checked, and what nobody looked at: a deck of nonsense may be drawn without a fault.
    e.clear.hidden = live || !this.pages.length || this.view === "play";
    const clear = this.status === "done" && !all.length ? "No hint: every slide is drawn, and nothing runs out of it, overlaps or is too small to read." : "";
    const unseen = this.ask.shared ? "" : "Checked by rules alone. Nobody looked at whether it makes sense, is true, or is what was asked for.";
    put(e.clear, `${clear} ${unseen}`.trim());
    const note = !live && this.finish in CUT && this.version <= 1 ? CUT[this.finish] : "";
    this.note = [note, this.message && this.slides.length && !live ? this.message : ""].filter(Boolean).join(" ");
  }

  light(finding) {
    const boxes = [...this.e.stage.querySelectorAll(".box")], with_ = (this.slides.find((slide) => slide.no === this.slide)?.findings || []).filter((one) => one.box);
    boxes.forEach((box, at) => box.classList.toggle("lit", with_[at] === finding));
  }

  drawTimes() {
    const after = (time) => (time && this.began ? `${Math.max(0, time - this.began).toFixed(1)} s` : null);
    const tokens = this.usage?.completion_tokens, writing = this.times.written - this.times.first;
    const rows = [["First word", after(this.times.first)], ["First slide", after(this.times.slide)], ["Written", after(this.times.written)], ["Rendered", after(this.times.rendered)],
      ["Tokens", tokens ? `${tokens.toLocaleString("en")}${writing > 0.2 ? `, ${Math.round(tokens / writing)} a second` : ""}` : null],
      ["Thinking", this.usage?.reasoning_tokens ? many(this.usage.reasoning_tokens, "token") : null], ["Cost", this.usage?.cost ? `$${this.usage.cost.toFixed(4)}` : null],
      ["Last rendering", this.rendered > 1 ? `${this.took.toFixed(1)} s` : null]].filter(([, value]) => value);
    const key = JSON.stringify(rows);
    if (key === this.timesKey) return;
    this.timesKey = key;
    this.e.times.replaceChildren(...rows.map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value))));
  }

  drawSource(current, live) {
    const e = this.e, area = e.area, text = live || this.draft === null ? this.source : this.draft;
    const thoughts = Boolean(this.thought);
    e.panes.querySelector('[data-tab="thought"]').hidden = !thoughts;
    if (live && this.status === "writing" && thoughts && !this.text && !this.paned) this.pane = "thought";
    if (this.text && this.pane === "thought" && live && !this.paned) { this.pane = "text"; this.paned = true; }
    e.editor.hidden = this.pane !== "text";
    e.thought.hidden = this.pane !== "thought";
    if (this.pane === "thought" && this.thoughtShown !== this.thought) {
      const end = e.thought.scrollTop + e.thought.clientHeight > e.thought.scrollHeight - 60;
      this.thoughtShown = this.thought;
      e.thought.textContent = this.thought.trim();
      if (end) e.thought.scrollTop = e.thought.scrollHeight;
    }
    if (this.shown !== text && area.value !== text) {
      const stuck = this.stuck, top = area.scrollTop;
      area.value = text;
      area.scrollTop = live && this.status === "writing" && stuck ? area.scrollHeight : top;
    }
    if (this.wasLive && !live && !this.chosen && document.activeElement !== area) area.scrollTop = 0; // with the first slide
    this.wasLive = live;
    this.shown = text;
    const edited = !live && area.value !== (this.deck ?? this.text);
    const lines = area.value.split("\n").length, wrong = new Set(this.slides.flatMap((slide) => slide.findings || []).concat(this.findings).map((finding) => finding.line));
    const key = `${lines} ${[...wrong].join(",")} ${current?.line}`;
    if (key !== this.linesKey) {
      this.linesKey = key;
      e.lines.replaceChildren(...Array.from({ length: Math.min(lines, 5000) }, (_, at) => h(`span${wrong.has(at + 1) ? ".mark" : current?.line === at + 1 ? ".here" : ""}`, null, String(at + 1))));
      e.numbers.scrollTop = area.scrollTop;
    }
    area.readOnly = live || this.ask.shared;
    e.again.hidden = live || this.pane !== "text" || !area.value.trim() || (!edited && this.rendered === this.version && this.version > 0);
    put(e.again, this.version ? "Render again" : "Render");
    e.undo.hidden = !edited || this.pane !== "text" || live;
    put(e.hint, this.fail || (edited ? "Edited, not rendered yet. Kept in this browser." : this.note || ""));
  }
}

// --- one ask -------------------------------------------------------------------------------------------------------------

class Ask {
  constructor(id) {
    Object.assign(this, { id, last: -1, sides: [], source: null, waiting: false });
    this.listen();
  }

  listen() {
    this.source?.close();
    this.source = new EventSource(`/asks/${this.id}/events?after=${this.last}`);
    this.source.onmessage = (message) => {
      for (const event of JSON.parse(message.data)) if (event.n > this.last) { this.last = event.n; this.apply(event); }
      this.soon();
    };
    this.source.addEventListener("rest", () => { this.source.close(); if (!this.shared) refresh(); });
    this.source.onerror = () => {
      if (this.source.readyState === EventSource.CLOSED) this.lost();
      else for (const side of this.sides) if (side.busy) put(side.e.count, "connection lost, trying again");
    };
  }

  async lost() {
    if (this.sides.length) return void setTimeout(() => ask === this && this.sides.some((side) => side.busy) && this.listen(), 2000);
    try { await call(`/asks/${this.id}/events?after=-1`); } catch (error) { wrong(error.message); }
    location.hash = "";
  }

  apply(event) {
    if (event.type === "asked") {
      this.asked = event;
      this.shared = Boolean(event.reference); // everybody's: nobody changes it
      this.sides = event.models.map((model, at) => new Side(this, at, model));
      const { request } = event;
      put($("asked"), request.prompt);
      put($("asked-more"), [request.audience && `for ${request.audience}`, request.tone && `${request.tone} tone`, request.slides && many(request.slides, "slide"), request.theme && `${request.theme} theme`, request.material && `with ${request.material.name}`, this.shared && "a deck that people wrote; no model was asked"].filter(Boolean).join(", "));
      $("sides").replaceChildren(...this.sides.map((side) => side.node));
      $("sides").classList.toggle("two", this.sides.length > 1);
      $("result").hidden = false;
      $("result").dataset.ask = this.id;
      document.body.classList.add("shown");
      this.fresh = true;
    } else this.sides[event.side]?.apply(event);
  }

  soon() {
    if (this.waiting) return;
    this.waiting = true;
    // A window in the background draws no frames, but its page must be right when somebody looks or listens.
    const once = () => { if (this.waiting) { this.waiting = false; this.draw(); } };
    requestAnimationFrame(once);
    setTimeout(once, 300);
  }

  draw() {
    if (ask !== this) return;
    for (const side of this.sides) side.draw();
    const deck = this.sides.map((side) => side.slides[0]?.title).find(Boolean);
    document.title = `${deck || this.asked?.request.prompt.slice(0, 60) || "A deck"} · decksmith demo`;
    if (this.fresh) {
      this.fresh = false;
      if (this.sides.some((side) => side.busy)) $("result").scrollIntoView({ block: "start", behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
      refresh();
    }
    document.documentElement.dataset.at = this.last;
  }
}

let ask = null;
function wrong(message) { put($("wrong"), message); $("wrong").hidden = false; }
function route() {
  const id = /^#([0-9a-f]{32})$/.exec(location.hash)?.[1];
  if (id && ask?.id === id) return;
  if (!id && ask && location.hash.length > 1) return; // a place on the page
  ask?.source.close();
  ask = null;
  active = null;
  $("result").hidden = true;
  document.body.classList.remove("shown");
  document.title = "decksmith demo";
  if (id) ask = new Ask(id);
  mark();
}
addEventListener("hashchange", route);
$("again").addEventListener("click", () => {
  fill(ask.asked.request, ask.shared ? undefined : ask.asked.models.map((model) => model.model));
  keep();
  $("prompt").focus();
  scrollTo({ top: 0 });
});
addEventListener("keydown", (event) => {
  if (event.defaultPrevented || event.altKey || event.ctrlKey || event.metaKey || event.target.closest("input, textarea, select, [role=tab]") || !ask) return;
  const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!by) return;
  event.preventDefault();
  for (const side of active && active.node.contains(document.activeElement) ? [active] : ask.sides) side.turn(by);
});

// --- the visitor's decks ---------------------------------------------------------------------------------------------------

function when(at) {
  const then = new Date(at * 1000), days = new Date().toDateString() === then.toDateString();
  return then.toLocaleString("en", days ? { hour: "2-digit", minute: "2-digit", hour12: false } : { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", hour12: false });
}
async function refresh() {
  let asks;
  try { asks = await call("/asks"); } catch (error) { return wrong(error.message); }
  $("past").hidden = $("to-past").hidden = !asks.length;
  $("cards").replaceChildren(...asks.map((one) => {
    const title = one.sides.map((side) => side.title).find(Boolean) || one.prompt.slice(0, 90);
    const states = one.sides.map((side) => (side.status in ENDS ? (side.status === "done" ? many(side.slides, "slide") : ENDS[side.status].toLowerCase()) : "in work"));
    return h("li.card", { "data-id": one.id }, h("div.thumbs", { "aria-hidden": "true" }, one.sides.map((side) => (side.picture ? h("img", { src: `/pictures/${side.picture}`, alt: "", loading: "lazy" }) : h("span", null, side.status in ENDS ? ENDS[side.status] : "in work")))),
      h("a", { href: `#${one.id}` }, h("span", { dir: "auto" }, title)), h("p", null, `${when(one.at)} · ${one.sides.map((side, at) => `${side.label}: ${states[at]}`).join(" · ")}`),
      h("button.drop", { type: "button", title: "Remove", "aria-label": `Remove ${title}`, onclick: async () => {
        try { await call(`/asks/${one.id}`, "DELETE"); } catch (error) { wrong(error.message); }
        for (const at of [0, 1]) kept.set(`edit.${one.id}.${at}`, null);
        if (ask?.id === one.id) location.hash = "";
        refresh();
      } }, sign("M4 4l8 8M12 4l-8 8", 13)));
  }));
  mark();
}
async function shelf() {
  let decks;
  try { decks = await call("/references"); } catch { return; }
  $("references").hidden = !decks.length;
  $("shelf").replaceChildren(...decks.map((deck) => h("li.card", null, h("div.thumbs", { "aria-hidden": "true" }, h("img", { src: `/${deck.picture}`, alt: "", loading: "lazy", width: 640, height: 360 })),
    h("a", { href: "#", onclick: async (event) => {
      event.preventDefault();
      try { location.hash = (await call(`/references/${deck.id}`, "POST")).id; } catch (error) { wrong(error.message); }
    } }, h("span", { dir: "auto" }, deck.title)), h("p", null, `${many(deck.slides, "slide")} · ${deck.theme} theme`))));
}
function mark() {
  for (const card of $("cards").children) card.classList.toggle("here", card.dataset.id === ask?.id);
}

// The first answer brings the cookie, so that what follows belongs to somebody.
refresh().then(() => { shelf(); route(); document.documentElement.dataset.ready = "1"; });
