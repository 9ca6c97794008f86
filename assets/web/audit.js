// The page on which a person answers the checklists of some decks. Answers are kept in this browser as they are given.
const given = JSON.parse(document.getElementById("data").textContent);
const kept = `audit-${given.run}-${given.who}`;
let answers = {};
try { answers = JSON.parse(localStorage.getItem(kept) || "{}"); } catch { /* the browser keeps nothing; the file does */ }
let at = Math.max(0, given.decks.findIndex((deck) => open(deck).length));
let unsaved = false;

function open(deck) {
  return deck.items.filter((item) => (answers[deck.id] || {})[item.id] === undefined);
}

function answer(deck, item, yes) {
  (answers[deck.id] ||= {})[item.id] = yes;
  unsaved = true;
  try { localStorage.setItem(kept, JSON.stringify(answers)); } catch { /* as above */ }
  draw();
}

function choice(deck, item, yes, word, key) {
  const pressed = (answers[deck.id] || {})[item.id] === yes;
  return h("button", { type: "button", "aria-pressed": String(pressed), title: `${word} (${key})`, onclick: () => answer(deck, item, yes) }, word);
}

function draw() {
  const deck = given.decks[at];
  const all = given.decks.flatMap((one) => one.items).length;
  const done = all - given.decks.flatMap(open).length;
  document.getElementById("progress").value = all ? done / all : 1;
  document.getElementById("place").textContent = `deck ${at + 1} of ${given.decks.length}, ${done} of ${all} items`;
  const next = open(deck)[0];
  const items = deck.items.map((item) => h(item === next ? "fieldset.now" : "fieldset", { "aria-label": item.ask },
    h("p", { dir: "auto" }, item.ask), choice(deck, item, true, "Yes", "y"), choice(deck, item, false, "No", "n")));
  const turn = h("div.turn", {},
    h("button", { type: "button", disabled: at === 0, onclick: () => go(at - 1) }, "Back"),
    h("button", { type: "button", disabled: at === given.decks.length - 1, onclick: () => go(at + 1) }, "Next deck"));
  const main = document.getElementById("deck");
  const scroll = main.querySelector(".items")?.scrollTop || 0;
  main.replaceChildren(
    h("h1", {}, "Does a slide of this deck visibly show it?"),
    h("blockquote", { dir: "auto", tabindex: "0" }, deck.request),
    h("div.slides", {}, deck.slides.map((src, n) => h("figure", {}, h("img", { src, alt: `Slide ${n + 1}` }), h("figcaption", {}, `${n + 1}`)))),
    h("div.items", {}, items, turn, h("p.soft", {}, next ? "y: yes, n: no, of the framed item" : done === all ? "All is answered: save your answers, and send the file." : "This deck is done: next deck (right arrow).")));
  main.querySelector(".items").scrollTop = scroll;
}

function go(to) {
  if (to < 0 || to >= given.decks.length) return;
  at = to;
  draw();
  window.scrollTo(0, 0);
  document.getElementById("deck").focus();
}

function save() {
  const text = JSON.stringify({ run: given.run, who: given.who, answers }, null, 1);
  const link = h("a", { href: URL.createObjectURL(new Blob([text], { type: "application/json" })), download: `answers-${given.who}.json` });
  link.click();
  unsaved = false;
}

document.getElementById("save").addEventListener("click", save);
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const deck = given.decks[at];
  const next = open(deck)[0];
  if ((event.key === "y" || event.key === "n") && next) answer(deck, next, event.key === "y");
  else if (event.key === "ArrowRight") go(at + 1);
  else if (event.key === "ArrowLeft") go(at - 1);
});
window.addEventListener("beforeunload", (event) => { if (unsaved) event.preventDefault(); });
draw();
