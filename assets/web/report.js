// The report's page. Models wrote most of what is shown here: it only ever becomes text (textContent), never markup.
(() => {
  "use strict";
  const data = JSON.parse(document.getElementById("data").textContent);
  const $ = (id) => document.getElementById(id);
  const embedded = $("inside") && JSON.parse($("inside").textContent); // of a page that is one file
  const picture = (size, name) => (embedded ? embedded[name] : `img/${size}/${name}`);
  /** The sources of a slide that is so many points wide: the small picture where it has enough pixels, else the large one. */
  const sources = (name, wide) => ({ src: picture("small", name), ...(!embedded && { srcset: `${picture("small", name)} 490w, ${picture("full", name)} 980w`, sizes: wide }) });

  function sign(path) {
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    const line = document.createElementNS("http://www.w3.org/2000/svg", "path");
    for (const [key, value] of Object.entries({ viewBox: "0 0 16 16", fill: "none", stroke: "currentColor", "stroke-width": "2.2", "stroke-linecap": "round", "stroke-linejoin": "round", "aria-hidden": "true" })) svg.setAttribute(key, value);
    line.setAttribute("d", path);
    svg.append(line);
    return svg;
  }
  const two = (value) => (value === null || value === undefined ? "–" : Number(value).toFixed(2));
  const percent = (value) => (value === null || value === undefined ? "–" : `${Math.round(100 * value)} %`);
  const offline = data.good === "checks";
  const edits = data.good === "edit"; // requests to change a deck
  const good = edits ? "Met x stayed" : offline ? "Checks passed" : "Overall";
  const said = (value) => (typeof value === "string" ? value : JSON.stringify(value));
  const kinds = { model: "model fault", renderer: "renderer fault, not the model's", judge: "judge fault, not the model's", infra: "infrastructure fault, not the model's" };

  // What only a deck in the window shows stands on a line of its own, of many decks in a file beside the page, and is parsed when it
  // is asked for. Its node is made then too.
  const lines = data.in_file ? [] : $("later").textContent.split("\n");
  const later = { get node() { this.shell ??= shell(this); return this.shell; } };
  for (const name of data.later) Object.defineProperty(later, name, { get() { this.rest ??= JSON.parse(lines[this.order]); return this.rest[name]; } });
  const rows = data.rows.map((values, order) => {
    const row = Object.assign(Object.create(later), { order, rest: null, shell: null, text: null });
    for (let at = 0; at < values.length; at += 1) row[data.names[at]] = values[at];
    return Object.assign(row, { model: data.runs[row.run], request: data.prompts[row.prompt] });
  });

  /** Do something once these decks are there whole: at once, unless their files have to be read. */
  function ready(wanted, then) {
    const files = new Set(wanted.filter((row) => data.in_file && !lines[row.order]).map((row) => Math.floor(row.order / data.in_file)));
    let left = files.size;
    if (!left) then();
    for (const number of files) fromFile(`later/${data.files[number]}.js`, () => {
      window.report_decks.forEach((text, at) => { lines[number * data.in_file + at] = text; });
      left -= 1;
      if (!left) then();
    }, () => { $("replaced").hidden = false; });
  }
  const siblings = Map.groupBy ? Map.groupBy(rows, (row) => row.prompt) : rows.reduce((map, row) => map.set(row.prompt, [...(map.get(row.prompt) || []), row]), new Map());
  const place = new Map(Object.keys(data.prompts).map((id, index) => [id, index]));
  const key = (row) => `${row.model.name}/${row.id}`;
  const theme = (row) => row.request.asks.theme || "";
  const domain = (row) => row.request.asks.domain || "";

  function haystack(row) {
    const whole = data.in_file ? Object.keys(row.failed) : [row.markdown, row.reply, ...row.findings.map((one) => `${one.check} ${one.message}`)];
    row.text ??= [row.id, row.model.label, row.request.text, row.fault && `${row.fault.class} ${row.fault.message}`,
      ...row.errors.map((error) => `${error.class} ${error.message}`), ...whole, domain(row), theme(row)].join("\n").toLowerCase();
    return row.text;
  }

  // Two models: the decks of one request, and how far apart they are

  const pairs = data.runs.flatMap((a, at) => data.runs.slice(at + 1).map((b, more) => ({
    name: `${a.name},${b.name}`, a: at, b: at + 1 + more, label: `${a.label} and ${b.label}`,
    said: (data.said[a.label] || {})[b.label] || (data.said[b.label] || {})[a.label],
  })));
  const pair = () => (pairs.length === 1 ? pairs[0] : pairs.find((one) => one.name === state.pair));
  const ours = (row) => !pair() || row.run === pair().a || row.run === pair().b;

  const average = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
  function mean(prompt, run) {
    const scores = siblings.get(prompt).filter((row) => row.run === run && typeof row.worth === "number").map((row) => row.worth);
    return scores.length ? average(scores) : null;
  }

  /** {by: how far apart the models are on a prompt, first: the better one}; of two models `by` is the first's less the second's. */
  function apart(prompt) {
    const two = pair();
    const means = (two ? [two.a, two.b] : data.runs.map((_, at) => at)).map((run) => [mean(prompt, run), run]);
    const known = means.filter(([value]) => value !== null).sort((x, y) => y[0] - x[0]);
    if (known.length < 2) return { by: null, first: null };
    if (two) return { by: means[0][0] - means[1][0], first: data.runs[known[0][1]] };
    return { by: known[0][0] - known.at(-1)[0], first: data.runs[known[0][1]] };
  }

  // Filters and order

  const unfiltered = { q: "", pair: "", model: "", status: "", class: "", domain: "", theme: "", sort: "request" };
  const state = { ...unfiltered };
  const states = { rendered: ["renders"], partial: ["renders", "with an error"], failed: ["does not render"], excluded: ["not counted"] };
  const filters = {
    model: ["All models", (row) => [row.model.label]],
    status: ["Any status", (row) => [...states[row.status], row.truncated && "cut off"].filter(Boolean)],
    class: ["Any failure or finding", (row) => [...new Set([...[row.fault, ...row.errors].filter(Boolean).map((error) => error.class), ...Object.keys(row.failed)])]],
    domain: [edits ? "All kinds" : "All domains", (row) => [domain(row)].filter(Boolean)],
    theme: ["All themes", (row) => [theme(row)].filter(Boolean)],
  };
  const by = (value, sign) => (a, b) => {
    const [x, y] = [value(a), value(b)];
    const [none, nothing] = [x === null || x === undefined, y === null || y === undefined];
    return none || nothing ? none - nothing : sign * (x - y);
  };
  const inOrder = (a, b) => place.get(a.prompt) - place.get(b.prompt);
  const far = (sign, value = (x) => x) => {
    const known = new Map([...siblings.keys()].map((prompt) => [prompt, apart(prompt).by]));
    return (a, b) => by((row) => (known.get(row.prompt) === null ? null : value(known.get(row.prompt))), sign)(a, b) || inOrder(a, b);
  };
  // What stands in one list, and how; those that keep a request's decks together come first.
  const orders = {
    request: ["Order of requests", () => inOrder],
    apart: ["Largest difference first", () => far(-1, Math.abs)],
    a: [() => `${data.runs[pair().a].label} better, most first`, () => far(-1)],
    b: [() => `${data.runs[pair().b].label} better, most first`, () => far(1)],
    high: [`${good}, most first`, () => by((row) => row.worth, -1)],
    low: [`${good}, least first`, () => by((row) => row.worth, 1)],
    checks: ["Checklist, least first", () => by((row) => row.checklist, 1)],
    slides: ["Slides, many first", () => by((row) => row.drawn, -1)],
    tokens: ["Tokens out, many first", () => by((row) => row.usage.completion_tokens, -1)],
    took: ["Generation time, long first", () => by((row) => row.took, -1)],
  };
  const together = () => data.runs.length > 1 && ["request", "apart", "a", "b"].includes(state.sort);
  let shown = rows;

  function fillSelects() {
    for (const [name, [all, values]] of Object.entries(filters)) {
      const counts = new Map();
      for (const row of rows) for (const value of values(row)) counts.set(value, (counts.get(value) || 0) + 1);
      const names = [...counts.keys()].sort((a, b) => a.localeCompare(b));
      const select = $(`f-${name}`);
      select.replaceChildren(h("option", { value: "" }, all), ...names.map((value) => h("option", { value }, `${value} (${counts.get(value)})`)));
      select.hidden = names.length < 2 && name !== "class";
      select.addEventListener("change", () => change({ [name]: select.value }));
    }
    $("f-pair").replaceChildren(h("option", { value: "" }, "Two models"), ...pairs.map((one) => h("option", { value: one.name }, one.label)));
    $("f-pair").hidden = pairs.length < 2;
    $("f-pair").addEventListener("change", () => change({ pair: $("f-pair").value }));
    $("sort").addEventListener("change", () => change({ sort: $("sort").value }));
  }

  function fillSort() {
    const names = Object.keys(orders).filter((name) => !["a", "b"].includes(name) || pair()).filter((name) => name !== "apart" || pairs.length);
    if (!names.includes(state.sort)) state.sort = pairs.length ? "apart" : "request";
    $("sort").replaceChildren(...names.map((name) => h("option", { value: name }, typeof orders[name][0] === "function" ? orders[name][0]() : orders[name][0])));
    $("sort").value = state.sort;
  }

  /** Set some of the state, list what fits it, and put it into the address. */
  function change(values, replace) {
    Object.assign(state, values);
    apply();
    address(replace);
  }

  function apply() {
    fillSort();
    const words = state.q.toLowerCase().split(/\s+/).filter(Boolean);
    const order = orders[state.sort][1]();
    shown = rows.filter((row) => ours(row) && Object.entries(filters).every(([name, [, values]]) => !state[name] || values(row).includes(state[name])) &&
      words.every((word) => haystack(row).includes(word)));
    shown.sort((a, b) => order(a, b) || a.order - b.order);
    $("list").classList.toggle("together", together());
    $("list").replaceChildren();
    listed = 0;
    list();
    $("none").hidden = shown.length > 0;
    $("count").textContent = shown.length === rows.length ? `${rows.length} decks` : `${shown.length} of ${rows.length}`;
    $("said").textContent = (pairs.length > 1 && pair()?.said) || "";
    $("said").hidden = !$("said").textContent;
    for (const name of [...Object.keys(filters), "pair"]) {
      $(`f-${name}`).value = state[name];
      $(`f-${name}`).classList.toggle("on", Boolean(state[name]));
    }
    if (document.activeElement !== $("search")) $("search").value = state.q;
    $("clear").hidden = !Object.keys(filters).some((name) => state[name]) && !state.q && !state.pair;
    if (!shown.includes(current)) choose(null);
    else for (const row of rows) if (row.shell) row.shell.tabIndex = row === current ? 0 : -1;
    if (!current && shown[0]) shown[0].node.tabIndex = 0;
  }

  /** List some more of the decks that fit, and so many that this one is among them. */
  function list(row) {
    const to = Math.max(listed + data.listed, shown.indexOf(row) + 1);
    const part = shown.slice(listed, to);
    $("list").append(...part.flatMap((one, at) => (together() && one.prompt !== shown[listed + at - 1]?.prompt ? [asked(one), one.node] : [one.node])));
    listed = Math.min(to, shown.length);
    end.disconnect();
    if (listed < shown.length) end.observe($("list").lastElementChild);
  }

  function clear() {
    $("search").value = "";
    change({ ...unfiltered, sort: state.sort });
  }

  /** What stands above the decks of one request. */
  function asked(row) {
    const { by: far, first } = apart(row.prompt);
    const count = row.request.asks.slides, failed = siblings.get(row.prompt).some((one) => one.status === "failed");
    return h("header.asked", null, h("code", null, row.prompt), h("p.ask", { dir: "auto" }, row.request.text),
      h("div.tags", null, ...[domain(row), theme(row), count && `${count} slides asked`].filter(Boolean).map((word) => h("span", null, word)),
        far !== null && h("b.apart", { "--c": first.color }, h("i"), Math.abs(far) < 0.005 ? "no difference" : `${first.label} +${offline ? `${Math.round(100 * Math.abs(far))} points` : two(Math.abs(far))}${offline && failed ? ", failures as 0" : ""}`),
        h("button", { type: "button", onclick: () => { choose(row); open(row, 0, "beside"); } }, "Compare")));
  }

  // The address holds what is listed and what is open, so that it can be sent to somebody and the browser's back goes back.

  let restoring = false;

  function address(replace) {
    if (restoring) return;
    const words = new URLSearchParams();
    for (const [name, value] of Object.entries(state)) if (value !== unfiltered[name]) words.set(name, value);
    if (deck) {
      words.set("deck", key(deck));
      if (view === "diff" && other) words.set("with", key(other));
      if (slide && ["one", "show"].includes(view)) words.set("slide", slide + 1);
      if (view !== "one") words.set("view", view);
    }
    const hash = `#${words.toString().replaceAll("%2F", "/").replaceAll("%2C", ",") || "decks"}`;
    if (hash === location.hash || (hash === "#decks" && !location.hash.includes("="))) return;
    history[replace ? "replaceState" : "pushState"](null, "", hash);
  }

  function restore() {
    const words = new URLSearchParams(location.hash.includes("=") ? location.hash.slice(1) : "");
    restoring = true;
    for (const name of Object.keys(unfiltered)) state[name] = words.get(name) ?? unfiltered[name];
    if (!Object.hasOwn(orders, state.sort)) state.sort = unfiltered.sort;
    $("search").value = state.q;
    apply();
    const wanted = rows.find((row) => key(row) === words.get("deck"));
    if (wanted) {
      choose(wanted);
      other = rows.find((row) => key(row) === words.get("with")) || null;
      const mode = ["beside", "diff", "show"].includes(words.get("view")) ? words.get("view") : "one";
      open(wanted, Math.max(0, (Number(words.get("slide")) || 1) - 1), mode);
    } else {
      $("show").close();
      detail.close();
    }
    restoring = false;
  }
  addEventListener("popstate", restore);

  // The list: so many decks have their place at once, more when the last of those comes near the window; then what is in one is made.

  let current = null, listed = 0;
  const end = new IntersectionObserver((entries) => { if (entries.some((entry) => entry.isIntersecting)) list(); }, { rootMargin: "3000px 0px" });
  const near = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting) { near.unobserve(entry.target); fill(entry.target.row); }
  }, { rootMargin: "1200px 0px" });

  function shell(row) {
    const node = h("article.deck", { tabindex: -1, "--c": row.model.color, "aria-label": `${row.id} by ${row.model.label}`,
      onclick: () => { choose(row); open(row); }, onfocus: () => { current = row; } });
    node.row = row;
    near.observe(node);
    return node;
  }

  const fill = (row) => ready([row], () => {
    if (!row.node.firstChild) row.node.append(
      h("div.left", null, who(row), h("p.ask", { dir: "auto" }, row.request.text), tags(row)),
      h("div.middle", null, faultLine(row), row.slides.length ? film(row) : row.reply || row.markdown ? h("pre.reply", { dir: "auto" }, (row.markdown || row.reply).slice(0, 600)) : null),
      points(row));
  });

  const who = (row) => h("p.who", { "--c": row.model.color }, h("i"), h("span", { title: row.model.label }, row.model.label), h("code", null, row.id));

  function tags(row) {
    const asked = row.request.asks.slides;
    const many = row.drawn ? `${row.drawn} slide${row.drawn === 1 ? "" : "s"}${asked && asked !== row.drawn ? `, ${asked} asked` : ""}` : asked ? `${asked} slides asked` : null;
    return h("div.tags", null, ...[domain(row), theme(row)].filter(Boolean).map((word) => h("span.of", null, word)), many && h("span", null, many),
      row.status !== "rendered" && h(`span.${row.status}`, null, states[row.status].at(-1)), row.truncated && h("span.cut", { title: row.stopped ? "The reply was stopped: it repeated itself or began no slide" : "The reply ended at the token limit (finish_reason length)" }, "cut off"));
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

  function shot(row, slide, wide, onclick, another) {
    const wrong = row.errors.some((error) => error.slide === slide.n) || (row === deck && row.findings.some((one) => one.slide === slide.n));
    const label = `Slide ${slide.n}${slide.title ? `: ${slide.title}` : ""}`;
    return h(`button.shot${wrong ? ".wrong" : ""}${another ? ".another" : ""}`, { type: "button", tabindex: -1, "aria-label": label, title: label, onclick: (event) => { event.stopPropagation(); onclick(); } },
      slide.img ? h("img", { ...sources(slide.img, wide), loading: "lazy", decoding: "async", width: 980, height: 552, alt: "" }) : h("span.lost", null, "picture missing"));
  }

  const film = (row) => h("div.film", null, ...row.slides.map((slide, index) => shot(row, slide, "240px", () => { choose(row); open(row, index); })));

  /** How many checks a deck passes, and which of them it fails how often. */
  function passed(row, open) {
    const failed = Object.entries(row.failed).sort((a, b) => b[1] - a[1]);
    return h(`div.points${row.floored ? ".floored" : ""}`, { "--c": row.model.color },
      h("div.total", null, h("b", null, row.passed ? `${row.passed.passed} of ${row.passed.of}` : "–"), h("span", null, row.passed ? "checks passed" : row.floored ? "does not render" : "not counted")),
      !open && failed.slice(0, 5).map(([name, n]) => h("div.fails", { title: data.says[name] || data.says.error }, h("span", null, name), h("span", null, n))),
      !open && failed.length > 5 && h("div.fails", null, h("span", null, `and ${failed.length - 5} more`)));
  }

  /** How far an edit meets its request, and how much of the rest stayed. */
  function twoNumbers(row) {
    const line = (name, value) => h("div.dim", null, h("span", null, name), h("i", { "--w": `${100 * (value || 0)}%` }), h("span", null, percent(value).replace(" ", "\u00a0")));
    return h(`div.points${row.floored ? ".floored" : ""}`, { "--c": row.model.color },
      h("div.total", null, h("b", null, percent(row.worth)), h("span", null, row.floored ? "nothing to judge" : "met x stayed")),
      !row.floored && [line("request met", row.met), line("rest stayed", row.stayed)]);
  }

  function points(row, open) {
    if (offline) return passed(row, open);
    if (edits) return twoNumbers(row);
    const checks = row.request.checklist;
    const yes = row.answers.filter((check) => check.yes).length;
    const scored = row.overall !== null && row.overall !== undefined;
    return h(`div.points${row.floored ? ".floored" : ""}`, { "--c": row.model.color },
      h("div.total", null, h("b", null, scored ? two(row.overall) : "–"), h("span", null, row.floored ? "does not render" : scored ? "overall" : "not counted")),
      data.dimensions.map(([name, title]) => [
        h("div.dim", null, h("span", null, title), h("i", { "--w": row.dimensions[name] ? `${Math.max(2, (row.dimensions[name] - 1) * 25)}%` : "0%" }), h("span", null, two(row.dimensions[name]))),
        open && row.why[name] && h("p.why", { dir: "auto" }, linked(row.why[name])),
        open && (row.evidence[name] || []).map((one) => h("p.why", { dir: "auto" }, one.seen, " ", jump(one.slide)))]),
      !open && checks.length > 0 && h("div.marks", { title: "Checklist" }, ...checks.slice(0, 12).map((item) => h(`i${row.answers.some((check) => check.id === item.id && check.yes) ? ".yes" : ""}`)),
        h("span", null, row.answers.length ? `${yes} of ${checks.length}` : "not checked")));
  }

  function choose(row, scroll) {
    if (current?.shell) current.shell.tabIndex = -1;
    current = row;
    if (!row) { if (shown[0]) shown[0].node.tabIndex = 0; return; }
    row.node.tabIndex = 0;
    if (scroll) {
      if (!row.node.isConnected) list(row);
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
  let deck = null, slide = 0, view = "one", other = null; // view: one, show (the slide alone), beside, diff

  const open = (row, at, mode = "one") => ready([row, ...siblings.get(row.prompt)], () => {
    deck = row;
    marked = null;
    view = mode;
    const wrong = row.slides.findIndex((one) => [...row.errors, ...row.findings].some((error) => error.slide === one.n));
    slide = Math.min(at ?? Math.max(0, wrong), Math.max(0, row.slides.length - 1));
    show();
  });

  const others = () => [...before(deck), ...siblings.get(deck.prompt).filter((row) => row !== deck)];

  /** The deck before an edit as if one more model had written it; none of another request. */
  function before(row) {
    if (!row.before) return [];
    row.was ??= { ...row.before, id: row.prompt, prompt: row.prompt, run: row.run, request: row.request, model: { label: "Before", color: "#8a8f98", name: "before" }, errors: [], findings: [], status: "rendered" };
    return [row.was];
  }
  const modes = { one: ["One deck", ""], beside: ["Side by side", "c"], diff: ["Difference", "d"] };

  function show() {
    const at = shown.indexOf(deck);
    const many = others().length > 0;
    const mode = view === "show" ? "one" : view;
    detail.replaceChildren(
      h("div.head", null, mode === "one" ? who(deck) : h("p.who", null, h("span", null, modes[mode][0]), h("code", null, deck.prompt)), h("span.grow"),
        h("span.place", null, at < 0 ? "" : `${at + 1} of ${shown.length}`),
        deck.slides.length > 0 && h("button", { type: "button", id: "play", onclick: play, title: "All slides, full screen, from the first (p)" }, "Play"),
        h("button", { type: "button", onclick: () => move(-1), title: "Previous deck (k)" }, "Previous"), h("button", { type: "button", onclick: () => move(1), title: "Next deck (j)" }, "Next"),
        many && h("span.modes", null, ...Object.entries(modes).map(([name, [label, letter]]) =>
          h("button", { type: "button", id: name, onclick: () => look(name), title: letter ? `${label} (${letter})` : label, "aria-pressed": String(name === mode) }, label))),
        h("button", { type: "button", onclick: () => detail.close(), title: "Close (Esc)" }, "Close")),
      { one: inside, beside: sides, diff: difference }[mode]());
    if (!detail.open) detail.showModal();
    detail.scrollTop = 0;
    detail.tabIndex = -1;
    detail.focus({ preventScroll: true });
    if (view === "show") enlarge();
    else $("show").close();
    if (mode === "one") turn(slide);
    address();
  }

  const look = (mode) => { view = mode; show(); };
  const toggle = (mode) => look(view === mode ? "one" : mode);

  function move(by) {
    const from = shown.indexOf(deck);
    // Where several decks of a request are in view, the next is of another request.
    let at = from + by;
    if (["beside", "diff"].includes(view)) while (shown[at] && shown[at].prompt === deck.prompt) at += by;
    const row = shown[at];
    if (!row) return;
    choose(row);
    other = null;
    open(row, ["beside", "diff"].includes(view) ? 0 : undefined, view === "show" ? "one" : view);
  }

  function inside() {
    return h("div.inside", null, stage(), source(), h("div.panels", null,
      h("div", null, panel(offline ? "Checks" : "Scores", points(deck, true), ...caps(), findings()), panel("Beside the score", extras())),
      h("div", null, panel(offline || edits ? "What was asked for" : "Checklist", offline || edits ? wanted() : checklist()), pictures()),
      h("div", null, panel("Request", h("p.request", { dir: "auto" }, deck.request.text), asks()), panel("Reply", facts(replyFacts())),
        deck.reasoning && deck.markdown !== null && panel("Reasoning", h("details", null, h("summary", null, `${deck.reasoning.length.toLocaleString("en")} characters`), h("pre.reply.whole", { dir: "auto" }, deck.reasoning))),
        deck.markdown && deck.reply && panel("What the model wrote", h("pre.reply.whole", { dir: "auto" }, deck.reply)))));
  }

  const panel = (title, ...content) => (content.flat().some(Boolean) ? h("section.panel", null, h("h3", null, title), ...content) : null);

  function stage() {
    if (!deck.slides.length) {
      const expected = deck.expected ? ` It has ${deck.expected} slides.` : "";
      return h("div.stage", null, h("div.picture", null, h(`p.empty.${deck.status}`, { dir: "auto" }, h("b", null, deck.fault ? deck.fault.class : "no pictures"),
        deck.fault ? `${kinds[deck.fault.kind] || deck.fault.kind}${where(deck.fault) ? ` · ${where(deck.fault)}` : ""}.${expected}` : "Nothing was rendered.")), h("div.film"), faultLine(deck));
    }
    return h("div.stage", null, h("div.picture", null, h("button", { type: "button", title: "The slide alone (f)", "aria-label": "The slide alone", onclick: () => look("show") }, h("img", { id: "picture", alt: "" })), frame()),
      h("div.seen", { id: "seen" }), h("ul.remarks", { id: "remarks" }),
      h("div.film", { id: "film" }, ...deck.slides.map((one, index) => shot(deck, one, "128px", () => turn(index)))), faultLine(deck), interactive());
  }

  /** How to open the deck itself: a page from disk cannot, since a built site needs a server. */
  function interactive() {
    const { folder } = deck.model;
    return h("details", { id: "interactive" }, h("summary", null, "Open it with its click steps"),
      h("p.soft", null, "The pictures show each slide after its last click. This builds the deck as a site and serves it; then open ",
        h("code", null, `http://127.0.0.1:8000/${deck.id}/build/`)),
      h("pre.command", { tabindex: 0 }, `grep -F '{"id":"${deck.id}",' ${folder}/scores.jsonl | bin/deck-build --run ${folder} > /dev/null\npython3 -m http.server --bind 127.0.0.1 --directory ${folder} 8000`));
  }

  /** What was said of a slide: by the checks or the renderer, by the judge, by the checklist. */
  function remarks(number) {
    const found = [];
    const listed = deck.findings.filter((one) => one.slide === number).map((one) => finding(one));
    if (!listed.length) for (const error of deck.errors) if (error.slide === number) found.push(["off", error.class, error.message || ""]);
    for (const [name, title] of data.dimensions) {
      for (const one of deck.evidence[name] || []) if (one.slide === number) found.push(["", title, one.seen]);
    }
    for (const one of deck.observations) if (one.slide === number) found.push(["off", "seen", one.seen.replaceAll("_", " ")]);
    for (const check of deck.answers) {
      const item = check.yes && check.slide === number && deck.request.checklist.find((one) => one.id === check.id);
      if (item) found.push(["good", "checklist", item.ask]);
    }
    return listed.concat(found.map(([tone, what, words]) => h(tone ? `li.${tone}` : "li", { dir: "auto" }, h("b", null, what), " ", words)));
  }

  // What the checks find: a sentence each, with a button that goes to its slide and line and draws its box

  const canvas = () => deck.slides[slide]?.seen?.canvas || [980, 552]; // CSS px, which boxes are given in
  let marked = null;

  function frame() {
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    for (const [key, value] of Object.entries({ id: "frame", "aria-hidden": "true" })) svg.setAttribute(key, value);
    return svg;
  }

  /** Draw the box of the chosen finding, as much of it as is on the slide. */
  function box() {
    const here = marked && marked.slide === deck.slides[slide].n ? marked : null;
    $("frame").setAttribute("viewBox", `0 0 ${canvas().join(" ")}`);
    $("frame").replaceChildren(...(here?.box ? [rectangle(here.box)] : []));
    for (const node of document.querySelectorAll(".finding")) node.setAttribute("aria-pressed", String(Boolean(here) && node.finding === here));
  }

  function rectangle([x, y, width, height]) {
    const rect = document.createElementNS("http://www.w3.org/2000/svg", "rect");
    const [wide, high] = canvas();
    const [left, top] = [Math.min(Math.max(3, x), wide - 9), Math.min(Math.max(3, y), high - 9)];
    const [right, bottom] = [Math.min(wide - 3, x + width), Math.min(high - 3, y + height)];
    for (const [key, value] of Object.entries({ x: left, y: top, width: Math.max(6, right - left), height: Math.max(6, bottom - top), rx: 3 })) rect.setAttribute(key, value);
    return rect;
  }

  function finding(one, withSlide) {
    const place = [withSlide && one.slide && `slide ${one.slide}`, one.line && `line ${one.line}`].filter(Boolean).join(", ");
    const onSlide = deck.slides.some((shown) => shown.n === one.slide);
    const show = () => { marked = marked === one ? null : one; goto(one.slide, true); };
    const words = [h("b", { title: data.says[one.check] || data.says.error }, one.check), " ", one.message];
    if (!onSlide) return h("li.off", { dir: "auto" }, words, place && h("small", null, ` ${place}`));
    const node = h("button.finding", { type: "button", dir: "auto", onclick: show, title: one.box ? "Show it on the slide" : "Show the slide" }, words, h("small", null, ` ${place}`));
    node.finding = one;
    return h("li.off", null, node);
  }

  /** Everything that a check found; what was asked for and is not there stands in its own panel. */
  function findings() {
    const asked = new Set(edits ? [] : deck.asked.map((one) => one.check));
    const found = deck.findings.filter((one) => !asked.has(one.check));
    const unread = Object.entries(deck.not_checked).map(([name, why]) => `Not checked: ${name} (${why}).`);
    if (!deck.passed && !(edits && found.length)) return null;
    return [found.length ? h("ul.remarks.all", null, ...found.map((one) => finding(one, true))) : h("p.soft", null, "No check finds anything on a slide."), ...unread.map((words) => h("p.soft", null, words))];
  }

  /** What was asked for, with yes or no. */
  function wanted() {
    const ask = deck.request.asks.slides;
    const made = deck.slides.length;
    const number = ask && deck.passed ? [{ check: "slides", what: ask === made ? `${ask} slides` : `${ask} slides; there are ${made}`, yes: ask === made }] : [];
    const items = [...number, ...deck.asked];
    if (!items.length) return deck.passed ? null : h("p.soft", null, "Not checked: the deck has no score.");
    return h("ul.checks", null, ...items.map((one) => {
      const words = (one.check === "checklist" && deck.request.checklist.find((item) => item.id === one.what)?.ask) || one.what;
      return h(one.yes ? "li.yes" : "li", null, tick(one.yes), h("span", { dir: "auto" }, h("small", null, one.check), " ", words), one.yes ? jump(one.slide) : null);
    }));
  }

  const tick = (yes) => sign(yes ? "M2.5 8.5l3.5 3.5 7.5-8" : "M4 4l8 8M12 4l-8 8");

  function turn(index) {
    if (!deck || !deck.slides.length || !["one", "show"].includes(view)) return;
    slide = Math.min(deck.slides.length - 1, Math.max(0, index));
    const one = deck.slides[slide];
    const alt = `Slide ${one.n}${one.title ? `: ${one.title}` : ""}`;
    for (const image of [$("picture"), $("large")]) {
      if (one.img) image.src = picture("full", one.img); else image.removeAttribute("src");
      image.alt = alt;
    }
    $("large-said").textContent = one.img ? "" : "This picture is missing.";
    $("large-place").textContent = `${slide + 1} of ${deck.slides.length}`;
    if (view === "show" && deck.slides[slide + 1]?.img) new Image().src = picture("full", deck.slides[slide + 1].img);
    $("remarks").replaceChildren(...remarks(one.n));
    box();
    [...$("film").children].forEach((node, at) => {
      if (at === slide) {
        node.setAttribute("aria-current", "true");
        const box = $("film");
        if (node.offsetLeft < box.scrollLeft + box.offsetLeft || node.offsetLeft + node.offsetWidth > box.scrollLeft + box.offsetLeft + box.clientWidth) box.scrollLeft = node.offsetLeft - box.offsetLeft - 60;
      } else node.removeAttribute("aria-current");
    });
    const { seen } = deck.slides[slide];
    const fact = (name, value, off) => value !== undefined && value !== null && h(off ? "span.off" : "span", null, `${name} `, h("b", null, value));
    const past = seen.overflow ? Math.max(seen.overflow.x || 0, seen.overflow.y || 0) : 0;
    $("seen").replaceChildren(...[h("span", null, h("b", null, `Slide ${one.n}`), ` of ${Math.max(deck.expected || 0, deck.slides.length)}`), fact("words", seen.words), fact("smallest text", seen.font && seen.font.min && `${seen.font.min} px`, seen.font && seen.font.min < 12),
      fact("contrast", seen.contrast && seen.contrast.toFixed(1), seen.contrast < 3), past > 0 && fact("overflow", `${Math.round(past)} px`, true),
      seen.images_broken > 0 && fact("broken pictures", seen.images_broken, true), seen.blank && fact("", "blank", true)].filter(Boolean));
    mark();
    address(true);
  }

  // The slide alone

  const large = $("show");

  function enlarge() {
    if (!deck.slides.length) { view = "one"; return; }
    if (!large.open) large.showModal();
    large.tabIndex = -1;
    large.focus(); // and no button of it, so that Space goes on
  }
  /** The deck from its first slide, on the whole screen where the browser allows that. */
  function play() {
    if (!deck.slides.length) return;
    slide = 0;
    look("show");
    $("screen").requestFullscreen?.().catch(() => {});
  }
  document.addEventListener("fullscreenchange", () => { if (!document.fullscreenElement) large.close(); }); // Escape ends both
  large.addEventListener("close", () => {
    if (document.fullscreenElement) document.exitFullscreen();
    if (view === "show" && !large.open) { view = "one"; address(); } // it may be open again before the event comes
  });
  $("large-before").addEventListener("click", () => turn(slide - 1));
  $("large-next").addEventListener("click", () => turn(slide + 1));
  $("large-close").addEventListener("click", () => large.close());
  $("large").addEventListener("click", () => turn(slide + 1));

  // The markdown beside the picture

  function source() {
    const text = deck.markdown ?? (deck.reply || deck.reasoning);
    const title = deck.markdown !== null ? "deck.md" : deck.reply ? "What the model wrote" : "What the model thought (it gave no answer)";
    if (!text) return h("div.source", null, h("h3", null, title), h("p.empty", null, deck.fault && deck.fault.stage === "gen" ? "No reply came." : "The reply is empty."));
    const lines = text.split("\n");
    const wrong = new Map();
    for (const error of [...(deck.findings.length ? deck.findings : deck.errors), deck.fault].filter((one) => one && one.line && deck.markdown !== null)) {
      const about = `${error.check || error.class}: ${error.message}`;
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

  function goto(number, toPicture) {
    const index = deck.slides.findIndex((one) => one.n === number);
    if (index < 0) return;
    turn(index);
    if (toPicture) $("picture").closest(".picture").scrollIntoView({ block: "nearest" });
    else detail.scrollTop = 0;
  }
  /** Words in which each "slide 3" leads there. */
  const linked = (words) => said(words).split(/(\bslide \d+\b)/).map((part) => {
    const number = Number(/^slide (\d+)$/.exec(part)?.[1]);
    return number && deck.slides.some((one) => one.n === number) ? h("button.to", { type: "button", onclick: () => goto(number) }, part) : part;
  });
  const jump = (number) => number && h("button", { type: "button", onclick: () => goto(number) }, `slide ${number}`);

  const caps = () => deck.caps.map((cap) => h("p.cap", { dir: "auto" }, `${cap.dimension} at most ${cap.max}: ${cap.why}`));

  function checklist() {
    const items = deck.request.checklist;
    if (!items.length) return null;
    return h("ul.checks", null, ...items.map((item) => {
      const check = deck.answers.find((one) => one.id === item.id);
      return h(check && check.yes ? "li.yes" : "li", null, check ? tick(check.yes) : sign("M4 8h8"), h("span", { dir: "auto" }, item.ask), check && check.yes ? jump(check.slide) : null);
    }), !deck.answers.length && h("li", null, h("span"), h("span", null, "Not checked: the deck failed before it could be judged.")));
  }

  /** What is counted beside the score, in a line each. */
  function extras() {
    const counts = Object.entries(deck.features.counts || {}).filter(([, n]) => n && typeof n === "number");
    const made = [];
    if (deck.features.craft !== undefined || deck.features.craft_v5 !== undefined) made.push(h("p.soft", null, `craft ${two(deck.features.craft)} of 5, craft-v5 ${two(deck.features.craft_v5)} of 5${counts.length ? `: ${counts.map(([name, n]) => `${name.replaceAll("_", " ")} ${said(n)}`).join(", ")}` : ""}`));
    const ground = deck.features.grounding;
    if (ground) {
      const lost = ground.unsupported.map((one) => `${one.text} (slide ${one.slide}, line ${one.line})`).join("; ");
      made.push(h("p.soft", null, `${ground.figures} figures and ${ground.names} names; in no document: ${lost || "none"}.`));
    }
    if (typeof deck.features.kept === "number") made.push(h("p.soft", null, `kept ${percent(deck.features.kept)} of the slides that this turn should not change`));
    return made.length ? h("div", null, ...made) : null;
  }

  function asks() {
    const words = Object.entries(deck.request.asks).map(([name, value]) => [name, Array.isArray(value) ? value.join(", ") : said(value)]).filter(([, value]) => value);
    return words.length ? facts(words) : null;
  }

  const facts = (pairs) => h("dl.facts", null, ...pairs.flatMap(([name, value]) => [h("dt", null, name), h("dd", { dir: "auto" }, value)]));

  function replyFacts() {
    const usage = deck.usage;
    return [["finish", deck.stopped ? `stopped after ${deck.stopped.read} characters: ${{ repeats: "it repeats itself", "no line": "it has no line of what was asked" }[deck.stopped.why] || "no slide has begun"}` : deck.truncated ? `length: cut off ${deck.cut_by === "server" ? "by the server, before max_tokens" : "at the token limit"}` : deck.finish || "none"], ["tokens", usage.completion_tokens === undefined ? "unknown" : `${usage.prompt_tokens ?? 0} in, ${usage.completion_tokens} out${usage.reasoning_tokens ? ` (${usage.reasoning_tokens} reasoning)` : ""}`],
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

  // The same request, all models; slides with one number stand in one row

  function sides() {
    const decks = [...before(deck), ...siblings.get(deck.prompt).filter((row) => ours(row) || row === deck)];
    const seen = new Set(before(deck).flatMap((row) => row.slides.map((one) => one.img)));
    const most = Math.max(1, ...decks.map((row) => row.slides.length));
    const one = (row, index) => row.slides[index] ? shot(row, row.slides[index], "max(280px, 45vw)", () => { if (row.node) { choose(row); open(row, index); } }, seen.size && !seen.has(row.slides[index].img)) : h("span", null, !index && empty(row));
    const rows = Array.from({ length: most }, (_, index) => decks.map((row) => one(row, index)));
    return h("div.sides", { tabindex: 0, role: "region", "aria-label": "Side by side" },
      h("div.columns", { "--n": decks.length }, ...decks.map(who), ...rows, ...decks.map((row) => h("div.below", null, faultLine(row), row.node && points(row), row.truncated && h("div.tags", null, h("span.cut", null, "cut off"))))),
      h("h3", null, "Request"), h("p", { dir: "auto" }, deck.request.text));
  }

  /** What stands in the place of slides where there are none. */
  const empty = (row) => h("div.empty", null, h("p", null, "No slide."), h("pre.reply.whole", { dir: "auto" }, (row.markdown || row.reply || "").slice(0, 3000)));

  // The difference of two decks' markdown

  const wrote = (row) => (row.markdown ?? row.reply ?? "").split("\n");

  function difference() {
    if (!other || other === deck || other.prompt !== deck.prompt) other = others().find(ours) || others()[0];
    const was = other === deck.was; // the deck before an edit stands at the left
    const [a, b] = was ? [wrote(other), wrote(deck)] : [wrote(deck), wrote(other)];
    const found = diff(a, b);
    const count = (kind) => { const n = found.filter(([one]) => one === kind).length; return `${n} line${n === 1 ? "" : "s"}`; };
    const choice = h("select", { "aria-label": "Compared with", onchange: (event) => { other = others()[event.target.value]; show(); } },
      ...others().map((row, at) => h("option", { value: at, selected: row === other }, `${row.model.label}${row.id === row.prompt ? "" : ` ${row.id}`}`)));
    return h("div.sides", null,
      h("p.soft", null, `The same: ${count("=")}. Only at the left: ${count("-")}. Only at the right: ${count("+")}.`),
      h("div.two", null, ...(was ? [h("div", null, choice), who(deck)] : [who(deck), h("div", null, choice)])), h("div.lines.diff", { tabindex: 0, role: "region", "aria-label": "Difference" }, folded(beside(found), a, b)));
  }

  /** The rows of a difference; long stretches without one are folded. */
  function folded(rows, a, b) {
    const line = ([i, j, equal]) => h(equal ? "div" : "div.changed", null, ...[[i, a, "gone"], [j, b, "come"]].flatMap(([at, lines, word]) =>
      [h("span", null, at === null ? "" : String(at + 1)), h(equal || at === null ? "span" : `span.${word}`, { dir: "auto" }, at === null ? "" : lines[at] || " ")]));
    const made = [];
    for (let from = 0; from < rows.length;) {
      let to = from;
      while (to < rows.length && rows[to][2] === rows[from][2]) to += 1;
      const part = rows.slice(from, to);
      if (!part[0][2] || part.length < 9) made.push(...part.map(line));
      else {
        const hidden = part.slice(3, -3);
        const more = h("button.more", { type: "button", onclick: () => more.replaceWith(...hidden.map(line)) }, `${hidden.length} lines that are the same`);
        made.push(...part.slice(0, 3).map(line), more, ...part.slice(-3).map(line));
      }
      from = to;
    }
    return made;
  }

  detail.addEventListener("close", () => {
    if (deck && shown.includes(deck)) choose(deck, true);
    deck = null;
    view = "one";
    address();
  });

  // The head's pair: one slide of an ordinary request, by the best and the worst of those models that have slides

  const isGood = (row) => row && row.drawn > 1 && ["rendered", "partial"].includes(row.status);

  function headed() {
    const worth = data.runs.map((_, run) => rows.filter((row) => row.run === run && isGood(row)).map((row) => row.worth ?? 0));
    const drawn = [...worth.keys()].filter((run) => worth[run].length).sort((a, b) => average(worth[b]) - average(worth[a]));
    if (!drawn.length) return;
    const others = [...worth.keys()].filter((run) => run !== drawn[0]);
    const last = drawn.length > 1 ? drawn.at(-1) : others.at(-1);
    const of = (decks, run) => decks.find((row) => row.run === run);
    const both = [...siblings.values()].map((decks) => [of(decks, drawn[0]), of(decks, last)]).filter(([a, b]) => isGood(a) && (drawn.length < 2 || isGood(b)));
    const gap = ([a, b]) => (a.worth ?? 0) - (b?.worth ?? 0);
    const [a, b] = both.sort((x, y) => gap(x) - gap(y))[both.length >> 1] || [];
    if (a) ready([a, b].filter(Boolean), () => pictured(a, b, both.length > 2 && drawn.length > 1));
  }

  function pictured(a, b, isMedian) {
    const show = (row, index) => (isGood(row) ? shot(row, row.slides[index], "(max-width: 640px) 46vw, 310px", () => { choose(row); open(row, index, b ? "beside" : "one"); })
      : h("div.shot", null, h("span.lost", null, `No deck that renders${row.fault ? `: ${row.fault.class}` : ""}`)));
    const tile = (row, index) => h("figure", null, who(row), show(row, index), row.passed && isGood(row) && h("figcaption", null, `${row.passed.passed} of ${row.passed.of} checks passed`));
    $("pair").append(h("p.ask", { dir: "auto", title: a.request.text }, a.request.text), h("div.two", null, tile(a, b ? 1 : 0), tile(b || a, 1)));
    if (b && isMedian) $("pair").append(h("p.soft", null, "Slide 2 of each, for the request with the median difference."));
    $("pair").hidden = false;
  }

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
    const turns = { ArrowRight: () => turn(slide + 1), ArrowLeft: () => turn(slide - 1), Home: () => turn(0), End: () => turn(Infinity) };
    const several = deck && others().length > 0;
    const onButton = /^(BUTTON|SUMMARY|A)$/.test(event.target.tagName);
    const actions = large.open
      ? { ...turns, PageDown: turns.ArrowRight, PageUp: turns.ArrowLeft, f: () => large.close(), ...(!onButton && { " ": turns.ArrowRight }) }
      : detail.open
        ? { ...turns, j: () => move(1), k: () => move(-1), f: () => deck.slides.length && look("show"), p: play, c: () => several && toggle("beside"), d: () => several && toggle("diff"), "?": () => $("help").showModal() }
        : { j: () => step(1), k: () => step(-1), "/": () => $("search").focus(), "?": () => $("help").showModal(),
            c: () => current && siblings.get(current.prompt).length > 1 && open(current, 0, "beside"), d: () => current && siblings.get(current.prompt).length > 1 && open(current, 0, "diff"),
            ...(listed && !onButton && { ArrowDown: () => step(1), ArrowUp: () => step(-1), ArrowRight: () => slideFilm(1), ArrowLeft: () => slideFilm(-1), Enter: () => open(current) }) };
    if (Object.hasOwn(actions, event.key)) { event.preventDefault(); actions[event.key](); }
  });
  function slideFilm(by) { const strip = current && current.node.querySelector(".film"); if (strip) strip.scrollLeft += by * 198; }

  $("help-open").addEventListener("click", () => $("help").showModal());
  $("clear").addEventListener("click", clear);
  let waiting = 0;
  $("search").addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(() => change({ q: $("search").value }, Boolean(state.q)), 90); });
  for (const button of document.querySelectorAll("[data-class]")) button.addEventListener("click", () => {
    $("search").value = "";
    change({ ...unfiltered, sort: state.sort, class: button.dataset.class });
    $("decks").scrollIntoView();
  });

  // The page's own sections, without a word in the address, where the filters are.
  for (const link of document.querySelectorAll('.top a')) link.addEventListener("click", (event) => {
    event.preventDefault();
    document.querySelector(link.getAttribute("href")).scrollIntoView();
  });

  // Files for other tools

  function save(name, kind, text) {
    const url = URL.createObjectURL(new Blob([text], { type: `${kind};charset=utf-8` }));
    h("a", { href: url, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(url), 1000);
  }

  /** A cell of CSV (RFC 4180); what a spreadsheet would take for a formula is made text. */
  function cell(value) {
    if (value === null || value === undefined) return "";
    if (typeof value === "number" || typeof value === "boolean") return String(value);
    const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value;
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  }

  function csv() {
    const columns = {
      model: (row) => row.model.label, id: (row) => row.id, prompt: (row) => row.prompt, domain, theme, status: (row) => row.status,
      fault: (row) => row.fault?.class, fault_kind: (row) => row.fault?.kind, truncated: (row) => row.truncated, slides: (row) => row.drawn,
      checks_passed: (row) => row.passed?.passed, checks_of: (row) => row.passed?.of, findings: (row) => Object.entries(row.failed).map(([name, n]) => `${name} ${n}`).join(", "),
      overall: (row) => row.overall, judge_only: (row) => row.judge_only, ...Object.fromEntries(data.dimensions.map(([name]) => [name, (row) => row.dimensions[name]])),
      checklist: (row) => row.checklist, craft: (row) => row.features.craft, craft_v5: (row) => row.features.craft_v5,
      grounding: (row) => row.features.grounding?.grounding, kept: (row) => row.features.kept,
      tokens_in: (row) => row.usage.prompt_tokens, tokens_out: (row) => row.usage.completion_tokens, cost_usd: (row) => row.usage.cost, seconds: (row) => row.took,
    };
    const lines = [Object.keys(columns), ...shown.map((row) => Object.values(columns).map((value) => value(row)))];
    return `${lines.map((line) => line.map(cell).join(",")).join("\r\n")}\r\n`;
  }
  const offer = (id, name, kind, text, of = () => []) => { if ($(id)) { $(id).hidden = false; $(id).addEventListener("click", () => ready(of(), () => save(name, kind, text()))); } };
  offer("save-decks", "decks.csv", "text/csv", csv, () => shown);
  offer("save-tables", "tables.md", "text/markdown", () => data.markdown);

  /** Load a script beside the page, which sets a global; a page from disk can read no other file. */
  function fromFile(name, then, fail = () => {}) {
    const script = h("script", { nonce: data.key, src: `${name}?${Date.now()}`, onload: () => { script.remove(); then(); }, onerror: () => { script.remove(); fail(); } });
    document.head.append(script);
  }
  // The page as one file stands in a script, as text.
  $("send")?.addEventListener("click", () => fromFile("send.js", () => { save("report.html", "text/html", window.report_file); delete window.report_file; }));

  // While a run goes on: the page loads itself again when it was written anew, unless somebody reads a deck or types

  const busy = () => document.querySelector("dialog[open]") || /^(INPUT|SELECT)$/.test(document.activeElement.tagName);
  const folds = () => [...document.querySelectorAll("main details")];
  const named = (fold) => fold.firstElementChild.textContent;

  /** Where the reader is; the first deck in the window keeps its place, whatever comes above it. */
  function here() {
    const row = shown.slice(0, listed).find((one) => one.node.isConnected && one.node.getBoundingClientRect().top >= 0);
    const top = row && row.node.getBoundingClientRect().top;
    const inList = row && $("list").getBoundingClientRect().top < 0;
    return { y: scrollY, deck: inList && key(row), top, current: current && document.activeElement === current.node && key(current), open: folds().filter((one) => one.open).map(named) };
  }

  function back({ y, deck: first, top, current: focused, open: opened }) {
    for (const fold of folds()) fold.open = opened.includes(named(fold));
    const find = (name) => name && rows.find((row) => key(row) === name);
    if (find(focused)) { choose(find(focused)); current.node.focus({ preventScroll: true }); }
    const node = find(first)?.node;
    if (node && !node.isConnected) list(find(first));
    scrollTo(0, y);
    const place = () => { if (node?.isConnected) { node.scrollIntoView(); scrollBy(0, node.getBoundingClientRect().top - top); } };
    place();
    requestAnimationFrame(place); // what stands above has its height only once it was drawn
  }

  function follow() {
    history.scrollRestoration = "manual"; // back() does it
    const tried = history.state?.tried; // a page that was not written whole is loaded once
    setInterval(() => fromFile("version.js", () => {
      if ([data.key, tried].includes(window.report_version) || busy()) return;
      history.replaceState({ here: here(), tried: window.report_version }, "");
      location.reload();
    }), 2000);
  }

  // On paper: every deck that is listed, and every fold open

  let closed = [];
  addEventListener("beforeprint", () => {
    closed = folds().filter((fold) => !fold.open);
    for (const fold of closed) fold.open = true;
    shown.slice(0, listed).forEach(fill);
    for (const image of document.images) image.loading = "eager";
  });
  addEventListener("afterprint", () => { for (const fold of closed) fold.open = false; });

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
  fillSelects();
  restore();
  headed();
  if (data.live) follow();
  if (history.state?.here) { back(history.state.here); history.replaceState(null, ""); }
  // For the browser test: milliseconds until the page answers.
  requestAnimationFrame(() => setTimeout(() => { document.documentElement.dataset.ready = String(Math.round(performance.now())); }));
})();
