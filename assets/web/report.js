// The report's page. Models wrote most of what is shown here: it only ever becomes text (textContent), never markup.
(() => {
  "use strict";
  const data = JSON.parse(document.getElementById("data").textContent);
  const $ = (id) => document.getElementById(id);

  function sign(path) {
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    const line = document.createElementNS("http://www.w3.org/2000/svg", "path");
    for (const [key, value] of Object.entries({ viewBox: "0 0 16 16", fill: "none", stroke: "currentColor", "stroke-width": "2.2", "stroke-linecap": "round", "stroke-linejoin": "round", "aria-hidden": "true" })) svg.setAttribute(key, value);
    line.setAttribute("d", path);
    svg.append(line);
    return svg;
  }
  const two = (value) => (value === null || value === undefined ? "–" : Number(value).toFixed(2));
  const said = (value) => (typeof value === "string" ? value : JSON.stringify(value));
  const kinds = { model: "model fault", renderer: "renderer fault, not the model's", judge: "judge fault, not the model's", infra: "infrastructure fault, not the model's" };

  const rows = data.rows.map((row, order) => ({ ...row, order, model: data.runs[row.run], request: data.prompts[row.prompt], node: null, text: null }));
  const siblings = Map.groupBy ? Map.groupBy(rows, (row) => row.prompt) : rows.reduce((map, row) => map.set(row.prompt, [...(map.get(row.prompt) || []), row]), new Map());
  const place = new Map(Object.keys(data.prompts).map((id, index) => [id, index]));
  const theme = (row) => row.request.asks.theme || "";
  const domain = (row) => row.request.asks.domain || "";

  function haystack(row) {
    row.text ??= [row.id, row.model.label, row.request.text, row.markdown, row.reply, row.fault && `${row.fault.class} ${row.fault.message}`,
      ...row.errors.map((error) => `${error.class} ${error.message}`), domain(row), theme(row)].join("\n").toLowerCase();
    return row.text;
  }

  // Filters and order

  const state = { search: "", model: "", status: "", class: "", domain: "", theme: "", sort: "request" };
  const filters = {
    model: ["All models", (row) => [row.model.label]],
    status: ["Any status", (row) => (row.truncated ? [row.status, "truncated"] : [row.status])],
    class: ["Any failure", (row) => [...new Set([row.fault, ...row.errors].filter(Boolean).map((error) => error.class))]],
    domain: ["All domains", (row) => [domain(row)].filter(Boolean)],
    theme: ["All themes", (row) => [theme(row)].filter(Boolean)],
  };
  const by = (value, sign) => (a, b) => {
    const [x, y] = [value(a), value(b)];
    const [none, nothing] = [x === null || x === undefined, y === null || y === undefined];
    return none || nothing ? none - nothing : sign * (x - y);
  };
  const orders = {
    request: ["Order of requests", (a, b) => place.get(a.prompt) - place.get(b.prompt)],
    high: ["Overall, high first", by((row) => row.overall, -1)],
    low: ["Overall, low first", by((row) => row.overall, 1)],
    checks: ["Checklist, low first", by((row) => row.checklist, 1)],
    slides: ["Slides, many first", by((row) => row.slides.length, -1)],
    tokens: ["Tokens out, many first", by((row) => row.usage.completion_tokens, -1)],
    took: ["Generation time, long first", by((row) => row.took, -1)],
  };
  let shown = rows;

  function fillSelects() {
    for (const [name, [all, values]] of Object.entries(filters)) {
      const counts = new Map();
      for (const row of rows) for (const value of values(row)) counts.set(value, (counts.get(value) || 0) + 1);
      const names = [...counts.keys()].sort((a, b) => a.localeCompare(b));
      const select = $(`f-${name}`);
      select.replaceChildren(h("option", { value: "" }, all), ...names.map((value) => h("option", { value }, `${value} (${counts.get(value)})`)));
      select.hidden = names.length < 2 && name !== "class";
      select.addEventListener("change", () => { state[name] = select.value; apply(); });
    }
    $("sort").replaceChildren(...Object.entries(orders).map(([value, [label]]) => h("option", { value }, label)));
    $("sort").addEventListener("change", () => { state.sort = $("sort").value; apply(); });
  }

  function apply() {
    const words = state.search.toLowerCase().split(/\s+/).filter(Boolean);
    shown = rows.filter((row) => Object.entries(filters).every(([name, [, values]]) => !state[name] || values(row).includes(state[name])) &&
      words.every((word) => haystack(row).includes(word)));
    shown.sort((a, b) => orders[state.sort][1](a, b) || a.order - b.order);
    $("list").replaceChildren(...shown.map((row) => row.node));
    $("none").hidden = shown.length > 0;
    $("count").textContent = shown.length === rows.length ? `${rows.length} decks` : `${shown.length} of ${rows.length}`;
    for (const name of Object.keys(filters)) $(`f-${name}`).classList.toggle("on", Boolean(state[name]));
    $("clear").hidden = !Object.keys(filters).some((name) => state[name]) && !state.search;
    if (!shown.includes(current)) choose(null);
    else for (const row of rows) if (row.node) row.node.tabIndex = row === current ? 0 : -1;
    if (!current && shown[0]) shown[0].node.tabIndex = 0;
  }

  function clear() {
    for (const name of Object.keys(filters)) { state[name] = ""; $(`f-${name}`).value = ""; }
    state.search = $("search").value = "";
    apply();
  }

  // The list: every deck has its place at once; what is in it is made when it comes near the window.

  let current = null;
  const near = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting) { near.unobserve(entry.target); fill(entry.target.row); }
  }, { rootMargin: "1200px 0px" });

  function shell(row) {
    const node = h("article.deck", { tabindex: -1, "--c": row.model.color, "aria-label": `${row.id} by ${row.model.label}`,
      onclick: () => { choose(row); open(row); }, onfocus: () => { current = row; } });
    node.row = row;
    row.node = node;
    near.observe(node);
  }

  function fill(row) {
    if (row.node.firstChild) return;
    row.node.append(
      h("div.left", null, who(row), h("p.ask", { dir: "auto" }, row.request.text), tags(row)),
      h("div.middle", null, faultLine(row), row.slides.length ? film(row) : row.reply || row.markdown ? h("pre.reply", { dir: "auto" }, (row.markdown || row.reply).slice(0, 600)) : null),
      points(row));
  }

  const who = (row) => h("p.who", { "--c": row.model.color }, h("i"), h("span", { title: row.model.label }, row.model.label), h("code", null, row.id));

  function tags(row) {
    const asked = row.request.asks.slides;
    const many = row.slides.length ? `${row.slides.length} slide${row.slides.length === 1 ? "" : "s"}${asked && asked !== row.slides.length ? `, ${asked} asked` : ""}` : asked ? `${asked} slides asked` : null;
    return h("div.tags", null, ...[domain(row), theme(row), many].filter(Boolean).map((word) => h("span", null, word)),
      row.status !== "rendered" && h(`span.${row.status}`, null, row.status), row.truncated && h("span.cut", { title: "The reply ended at the token limit (finish_reason length)" }, "truncated"));
  }

  function where(error) {
    return [error.stage, error.slide && `slide ${error.slide}`, error.line && `line ${error.line}`].filter(Boolean).join(", ");
  }

  function faultLine(row) {
    const error = row.fault || (row.status === "partial" && row.errors[0]);
    if (!error) return null;
    const kind = row.fault ? kinds[error.kind] || error.kind : "one slide failed";
    return h(`p.fault.${row.status}`, { dir: "auto" }, h("b", null, error.class), h("span", null, [kind, where(error)].filter(Boolean).join(" · ")), h("q", null, error.message || ""));
  }

  function shot(row, slide, size, onclick) {
    const wrong = row.errors.some((error) => error.slide === slide.n);
    const label = `Slide ${slide.n}${slide.title ? `: ${slide.title}` : ""}`;
    return h(`button.shot${wrong ? ".wrong" : ""}`, { type: "button", tabindex: -1, "aria-label": label, title: label, onclick: (event) => { event.stopPropagation(); onclick(); } },
      slide.img ? h("img", { src: `img/${size}/${slide.img}`, loading: "lazy", decoding: "async", width: 336, height: 189, alt: "" }) : h("span.lost", null, "picture missing"));
  }

  const film = (row) => h("div.film", null, ...row.slides.map((slide, index) => shot(row, slide, "thumb", () => { choose(row); open(row, index); })));

  function points(row, open) {
    const checks = row.request.checklist;
    const yes = row.checks.filter((check) => check.yes).length;
    const scored = row.overall !== null && row.overall !== undefined;
    return h(`div.points${row.floored ? ".floored" : ""}`, { "--c": row.model.color },
      h("div.total", null, h("b", null, scored ? two(row.overall) : "–"), h("span", null, row.floored ? "floor" : scored ? "overall" : "not scored")),
      data.dimensions.map(([name, title]) => [
        h("div.dim", null, h("span", null, title), h("i", { "--w": row.dimensions[name] ? `${Math.max(2, (row.dimensions[name] - 1) * 25)}%` : "0%" }), h("span", null, two(row.dimensions[name]))),
        open && row.why[name] && h("p.why", { dir: "auto" }, said(row.why[name]))]),
      !open && checks.length > 0 && h("div.marks", { title: "Checklist" }, ...checks.slice(0, 12).map((item) => h(`i${row.checks.some((check) => check.id === item.id && check.yes) ? ".yes" : ""}`)),
        h("span", null, row.checks.length ? `${yes} of ${checks.length}` : "not checked")));
  }

  function choose(row, scroll) {
    if (current && current.node) current.node.tabIndex = -1;
    current = row;
    if (!row) { if (shown[0]) shown[0].node.tabIndex = 0; return; }
    row.node.tabIndex = 0;
    if (scroll) {
      fill(row);
      row.node.focus({ preventScroll: true });
      row.node.scrollIntoView({ block: "nearest" });
    }
  }

  function step(by) {
    if (!shown.length) return null;
    const at = shown.indexOf(current);
    const row = shown[Math.min(shown.length - 1, Math.max(0, at < 0 ? 0 : at + by))];
    choose(row, !detail.open);
    return row;
  }

  // One deck

  const detail = $("detail");
  let deck = null, slide = 0, beside = false;

  function open(row, at) {
    deck = row;
    beside = false;
    const wrong = row.slides.findIndex((one) => row.errors.some((error) => error.slide === one.n));
    slide = at ?? Math.max(0, wrong);
    show();
  }

  function show() {
    const at = shown.indexOf(deck);
    const many = siblings.get(deck.prompt).length > 1;
    detail.replaceChildren(
      h("div.head", null, beside ? h("p.who", null, h("span", null, "Side by side"), h("code", null, deck.prompt)) : who(deck), h("span.grow"),
        h("span.place", null, at < 0 ? "" : `${at + 1} of ${shown.length}`),
        h("button", { type: "button", onclick: () => move(-1), title: "Previous deck (k)" }, "Previous"), h("button", { type: "button", onclick: () => move(1), title: "Next deck (j)" }, "Next"),
        many && h("button", { type: "button", id: "beside", onclick: toggle, title: "All models (c)", "aria-pressed": String(beside) }, beside ? "One deck" : "Side by side"),
        h("button", { type: "button", onclick: () => detail.close(), title: "Close (Esc)" }, "Close")),
      beside ? sides() : inside());
    if (!detail.open) detail.showModal();
    detail.scrollTop = 0;
    detail.tabIndex = -1;
    detail.focus({ preventScroll: true });
    history.replaceState(null, "", `#${encodeURIComponent(deck.model.name)}/${encodeURIComponent(deck.id)}`);
    if (!beside) turn(slide);
  }

  const toggle = () => { beside = !beside; show(); };
  function move(by) { const row = step(by); if (row && (row !== deck || beside)) { const was = beside; deck = row; beside = was; slide = 0; if (!was) open(row); else show(); } }

  function inside() {
    return h("div.inside", null, stage(), source(), h("div.panels", null,
      h("div", null, panel("Scores", points(deck, true), ...caps()), panel("Measures", measures())),
      h("div", null, panel("Checklist", checklist()), pictures()),
      h("div", null, panel("Request", h("p.request", { dir: "auto" }, deck.request.text), asks()), panel("Reply", facts(replyFacts())),
        deck.markdown && deck.reply && panel("What the model wrote", h("pre.reply.whole", { dir: "auto" }, deck.reply)))));
  }

  const panel = (title, ...content) => (content.flat().some(Boolean) ? h("section.panel", null, h("h3", null, title), ...content) : null);

  function stage() {
    if (!deck.slides.length) {
      const expected = deck.expected ? ` It has ${deck.expected} slides.` : "";
      return h("div.stage", null, h("div.picture", null, h(`p.empty.${deck.status}`, { dir: "auto" }, h("b", null, deck.fault ? deck.fault.class : "no pictures"),
        deck.fault ? `${kinds[deck.fault.kind] || deck.fault.kind}${where(deck.fault) ? ` · ${where(deck.fault)}` : ""}.${expected}` : "Nothing was rendered.")), h("div.film"), faultLine(deck));
    }
    return h("div.stage", null, h("div.picture", null, h("img", { id: "picture", alt: "" })), h("div.seen", { id: "seen" }),
      h("div.film", { id: "film" }, ...deck.slides.map((one, index) => shot(deck, one, "thumb", () => turn(index)))), faultLine(deck));
  }

  function turn(index) {
    if (!deck || !deck.slides.length || beside) return;
    slide = Math.min(deck.slides.length - 1, Math.max(0, index));
    const one = deck.slides[slide];
    if (one.img) $("picture").src = `img/full/${one.img}`; else $("picture").removeAttribute("src");
    $("picture").alt = `Slide ${one.n}${one.title ? `: ${one.title}` : ""}`;
    [...$("film").children].forEach((node, at) => {
      if (at === slide) {
        node.setAttribute("aria-current", "true");
        const box = $("film");
        if (node.offsetLeft < box.scrollLeft + box.offsetLeft || node.offsetLeft + node.offsetWidth > box.scrollLeft + box.offsetLeft + box.clientWidth) box.scrollLeft = node.offsetLeft - box.offsetLeft - 60;
      } else node.removeAttribute("aria-current");
    });
    const seen = one.seen;
    const fact = (name, value, off) => value !== undefined && value !== null && h(off ? "span.off" : "span", null, `${name} `, h("b", null, value));
    const past = seen.overflow ? Math.max(seen.overflow.x || 0, seen.overflow.y || 0) : 0;
    $("seen").replaceChildren(...[h("span", null, h("b", null, `Slide ${one.n}`), ` of ${Math.max(deck.expected || 0, deck.slides.length)}`), fact("words", seen.words), fact("smallest text", seen.font && seen.font.min && `${seen.font.min} px`, seen.font && seen.font.min < 12),
      fact("contrast", seen.contrast && seen.contrast.toFixed(1), seen.contrast < 3), past > 0 && fact("overflow", `${Math.round(past)} px`, true),
      seen.images_broken > 0 && fact("broken pictures", seen.images_broken, true), seen.blank && fact("", "blank", true)].filter(Boolean));
    mark();
  }

  // The markdown beside the picture

  function source() {
    const text = deck.markdown ?? deck.reply;
    const title = deck.markdown !== null ? "deck.md" : deck.thought ? "What the model thought (it gave no answer)" : "What the model wrote";
    if (!text) return h("div.source", null, h("h3", null, title), h("p.empty", null, deck.fault && deck.fault.stage === "gen" ? "No reply came." : "The reply is empty."));
    const lines = text.split("\n");
    const wrong = new Map();
    for (const error of [...deck.errors, deck.fault].filter((one) => one && one.line && deck.markdown !== null)) {
      const about = `${error.class}: ${error.message}`;
      wrong.set(error.line, [...new Set([...(wrong.get(error.line) || []), about])]);
    }
    return h("div.source", null, h("h3", null, title, h("span", null, `${lines.length} lines`)),
      h("div.lines", { id: "lines", tabindex: 0, "aria-label": title }, ...lines.map((line, at) => h(wrong.has(at + 1) ? "div.error" : "div", null,
        h("span", null, String(at + 1)), h("span", { dir: "auto" }, line || " "), ...(wrong.get(at + 1) || []).map((about) => h("span.says", { dir: "auto" }, about))))));
  }

  function mark() {
    const lines = $("lines");
    if (!lines || deck.markdown === null) return;
    const starts = deck.slides.map((one) => one.line).filter(Boolean);
    const from = deck.slides[slide].line;
    const to = Math.min(...starts.filter((line) => line > from), Infinity);
    [...lines.children].forEach((node, at) => node.classList.toggle("here", Boolean(from) && at + 1 >= from && at + 1 < to));
    const target = [...lines.children].find((node) => node.classList.contains("here") && node.classList.contains("error")) || lines.children[from - 1];
    if (target) lines.scrollTop += target.getBoundingClientRect().top - lines.getBoundingClientRect().top - (target.classList.contains("error") ? 90 : 12);
  }

  function goto(number) { const index = deck.slides.findIndex((one) => one.n === number); if (index >= 0) { turn(index); detail.scrollTop = 0; } }
  const jump = (number) => number && h("button", { type: "button", onclick: () => goto(number) }, `slide ${number}`);

  const caps = () => deck.caps.map((cap) => h("p.cap", { dir: "auto" }, `${cap.dimension} at most ${cap.max}: ${cap.why}`));

  function checklist() {
    const items = deck.request.checklist;
    if (!items.length) return null;
    return h("ul.checks", null, ...items.map((item) => {
      const check = deck.checks.find((one) => one.id === item.id);
      return h(check && check.yes ? "li.yes" : "li", null, sign(check ? (check.yes ? "M2.5 8.5l3.5 3.5 7.5-8" : "M4 4l8 8M12 4l-8 8") : "M4 8h8"), h("span", { dir: "auto" }, item.ask), check && check.yes ? jump(check.slide) : null);
    }), !deck.checks.length && h("li", null, h("span"), h("span", null, "Not checked: the deck failed before it could be judged.")));
  }

  function measures() {
    const entries = Object.entries(deck.measures);
    const counts = Object.entries(deck.features.counts || {}).filter(([, n]) => n && typeof n === "number");
    const made = [];
    if (entries.length) made.push(h("div.measures", null, ...entries.filter(([, one]) => one && one.value !== null && one.value !== undefined || typeof one !== "object").map(([name, one]) =>
      h(one && one.quality !== null && one.quality < 0.5 ? "div.low" : "div", { title: one && one.slide ? `worst on slide ${one.slide}` : null }, h("span", null, name.replaceAll("_", " ")), h("b", null, said(one && typeof one === "object" && "value" in one ? one.value : one)),
        h("i", { "--w": `${Math.round(100 * ((one && one.quality) ?? 0))}%` })))));
    if (deck.features.craft !== undefined || deck.features.craft_v5 !== undefined) made.push(h("p.soft", null, `craft ${two(deck.features.craft)}, craft-v5 ${two(deck.features.craft_v5)}${counts.length ? `: ${counts.map(([name, n]) => `${name.replaceAll("_", " ")} ${said(n)}`).join(", ")}` : ""}`));
    return made.length ? h("div", null, ...made) : null;
  }

  function asks() {
    const words = Object.entries(deck.request.asks).map(([name, value]) => [name, Array.isArray(value) ? value.join(", ") : said(value)]).filter(([, value]) => value);
    return words.length ? facts(words) : null;
  }

  const facts = (pairs) => h("dl.facts", null, ...pairs.flatMap(([name, value]) => [h("dt", null, name), h("dd", { dir: "auto" }, value)]));

  function replyFacts() {
    const usage = deck.usage;
    return [["finish", deck.truncated ? `length: cut off ${deck.cut_by === "server" ? "by the server, before max_tokens" : "at the token limit"}` : deck.finish || "none"], ["tokens", usage.completion_tokens === undefined ? "unknown" : `${usage.prompt_tokens ?? 0} in, ${usage.completion_tokens} out${usage.reasoning_tokens ? ` (${usage.reasoning_tokens} reasoning)` : ""}`],
      usage.cost !== undefined && ["cost", `$${Number(usage.cost).toFixed(4)}`], deck.took && ["time", `${Number(deck.took).toFixed(1)} s`]].filter(Boolean);
  }

  function pictures() {
    if (!deck.pictures.length) return null;
    const credit = (value) => {
      if (!value) return null;
      const link = typeof value === "object" ? value.url || value.link : null;
      const words = typeof value === "object" ? value.text || value.name || value.photographer || said(value) : value;
      return link && /^https:\/\//.test(link) ? h("a", { href: link, rel: "noopener noreferrer", target: "_blank" }, said(words)) : said(words);
    };
    return panel("Pictures", facts(deck.pictures.map((item) => [item.query || "", h("span", null, item.provider || "unknown", item.attribution && ", ", credit(item.attribution), item.fallback && `; ${said(item.fallback)}`)])));
  }

  // The same request, all models

  function sides() {
    const decks = siblings.get(deck.prompt);
    return h("div.sides", null, h("p", { dir: "auto" }, deck.request.text), h("div.columns", { "--n": decks.length }, ...decks.map((row) => h("div", null,
      h("header", null, who(row), points(row)), faultLine(row), row.truncated && h("div.tags", null, h("span.cut", null, "truncated")),
      ...row.slides.map((one, index) => shot(row, one, "full", () => { choose(row); open(row, index); })),
      !row.slides.length && (row.markdown || row.reply) && h("pre.reply.whole", { dir: "auto" }, (row.markdown || row.reply).slice(0, 3000))))));
  }

  detail.addEventListener("close", () => {
    history.replaceState(null, "", "#decks");
    if (deck && shown.includes(deck)) choose(deck, true);
    deck = null;
  });

  // Keys

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
    if (typing) {
      if (event.key === "Escape") { event.target.blur(); event.preventDefault(); }
      if (event.key === "Enter" && event.target.id === "search" && shown[0]) choose(shown[0], true);
      return;
    }
    if ($("help").open) return;
    const listed = event.target.closest && event.target.closest(".deck");
    const actions = detail.open
      ? { j: () => move(1), k: () => move(-1), ArrowRight: () => turn(slide + 1), ArrowLeft: () => turn(slide - 1), Home: () => turn(0), End: () => turn(Infinity), c: () => siblings.get(deck.prompt).length > 1 && toggle(), "?": () => $("help").showModal() }
      : { j: () => step(1), k: () => step(-1), "/": () => $("search").focus(), "?": () => $("help").showModal(),
          c: () => current && siblings.get(current.prompt).length > 1 && (deck = current, beside = true, show()),
          ...(listed && { ArrowDown: () => step(1), ArrowUp: () => step(-1), ArrowRight: () => slideFilm(1), ArrowLeft: () => slideFilm(-1), Enter: () => open(current) }) };
    if (Object.hasOwn(actions, event.key)) { event.preventDefault(); actions[event.key](); }
  });
  function slideFilm(by) { const strip = current && current.node.querySelector(".film"); if (strip) strip.scrollLeft += by * 198; }

  $("help-open").addEventListener("click", () => $("help").showModal());
  $("filters-open").addEventListener("click", () => $("filters-open").setAttribute("aria-expanded", String(document.querySelector(".filters").classList.toggle("open"))));
  $("clear").addEventListener("click", clear);
  let waiting = 0;
  $("search").addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(() => { state.search = $("search").value; apply(); }, 90); });
  for (const button of document.querySelectorAll("[data-class]")) button.addEventListener("click", () => {
    clear();
    state.class = $("f-class").value = button.dataset.class;
    apply();
    $("decks").scrollIntoView();
  });

  // Light or dark: as the system says, until the button says otherwise. Storage may be closed to a page from disk.
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const remembered = () => { try { return localStorage.getItem("decksmith-theme"); } catch { return null; } };
  const paint = () => { document.documentElement.dataset.theme = remembered() || chosen || (dark.matches ? "dark" : "light"); };
  let chosen = null;
  dark.addEventListener("change", paint);
  $("theme").addEventListener("click", () => {
    chosen = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    try { localStorage.setItem("decksmith-theme", chosen); } catch { /* from disk */ }
    paint();
  });

  paint();
  rows.forEach(shell);
  fillSelects();
  apply();
  const linked = location.hash.slice(1).split("/").map(decodeURIComponent);
  const wanted = linked.length === 2 && rows.find((row) => row.model.name === linked[0] && row.id === linked[1]);
  if (wanted) { choose(wanted); open(wanted); }
  // For the browser test: milliseconds until the page answers.
  requestAnimationFrame(() => setTimeout(() => { document.documentElement.dataset.ready = String(Math.round(performance.now())); }));
})();
