// Drive the demo in the pinned Chromium.
//
//   node tests/web/demo.mjs check URL STUB         the first side of each behaviour, the models being those of tests/fixtures/demo behind
//                                                  tests/endpoint.py
//   node tests/web/demo.mjs whole URL STUB         every behaviour
//   node tests/web/demo.mjs embedded URL           one deck of the embedded model, and a second visitor in the queue
//   node tests/web/demo.mjs screenshot URL OUT.png   two decks side by side, by the first two models
//   node tests/web/demo.mjs shots URL STUB FOLDER  pictures: empty, while it is written, done, dark, phone, one model
//
// Prints {"trouble": [..], ..}; each trouble is a sentence. The browser is the renderer's; playwright-core and axe-core come from
// tests/node_modules (PLAYWRIGHT names another folder that has them in its node_modules).
import { mkdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { axe as auditor, start } from "./browser.mjs";

const [mode, url, third, out] = process.argv.slice(2);
const whole = mode === "whole";
if (!["check", "whole", "embedded", "screenshot", "shots"].includes(mode) || !url || (mode !== "embedded" && !third) || (mode === "shots" && !out)) {
  console.error("demo.mjs: usage: demo.mjs check URL STUB | whole URL STUB | embedded URL | screenshot URL OUT.png | shots URL STUB FOLDER");
  process.exit(2);
}

const { browser, close } = await start();

const trouble = [], asked = [], summary = {};
let lenient = false; // a hostile deck may make its own frame complain
const expect = (what, is, want) => { if (JSON.stringify(is) !== JSON.stringify(want)) trouble.push(`${what}: ${JSON.stringify(is)?.slice(0, 400)} instead of ${JSON.stringify(want)?.slice(0, 400)}`); };
// Looked at now and then: by default Playwright has the browser draw a frame for each look.
const wait = (page, wanted, given) => page.waitForFunction(wanted, given, { polling: 250, timeout: 400000 });
async function visit({ width = 1440, height = 900, hash = "", ...more } = {}) {
  const context = await browser.newContext({ viewport: { width, height }, acceptDownloads: true, reducedMotion: "reduce", ...more });
  context.setDefaultTimeout(240000);
  const page = await context.newPage();
  page.on("console", (message) => { if (!lenient && ["error", "warning"].includes(message.type())) trouble.push(`console ${message.type()}: ${message.text()} ${message.location().url}`); });
  page.on("pageerror", (error) => { if (!lenient) trouble.push(`page: ${error.message}`); });
  context.on("request", (request) => { asked.push(request.url()); });
  context.on("requestfailed", (request) => { if (request.failure()?.errorText === "csp") asked.splice(asked.lastIndexOf(request.url()), 1); }); // it never left
  page.on("response", (response) => { if (response.status() >= 400 && !lenient) trouble.push(`${response.status()}: ${response.url()}`); });
  page.on("dialog", (dialog) => { trouble.push(`dialog: ${dialog.message()}`); dialog.dismiss(); });
  context.on("page", (other) => { if (other !== page) trouble.push(`another window: ${other.url()}`); });
  await open(page, hash);
  return page;
}
async function open(page, hash = "") {
  await page.goto(url + "/" + hash);
  await wait(page, () => document.documentElement.dataset.ready);
}
const choose = (page, models) => page.evaluate((models) => { // the newest two choices hold
  const boxes = [...document.querySelectorAll(".chip input")];
  for (const name of models) { const box = boxes.find((one) => one.value === name); if (!box.checked) box.click(); }
  for (const box of boxes) if (box.checked && !models.includes(box.value)) box.click();
}, models);
async function write(page, prompt, models, more = {}) {
  await choose(page, models);
  for (const [name, value] of Object.entries({ prompt, ...more })) name === "theme" ? await page.selectOption(`#${name}`, value) : await page.fill(`#${name}`, value);
  const before = await page.evaluate(() => location.hash);
  await page.click("#go");
  await wait(page, (before) => location.hash.length === 33 && location.hash !== before && document.getElementById("result").dataset.ask === location.hash.slice(1), before);
}
const state = (page, at = 0) => page.evaluate((at) => document.querySelectorAll(".state")[at].className.split(" ")[1], at);
const rest = (page) => wait(page, () => { const all = [...document.querySelectorAll(".state")]; return all.length && all.every((node) => /done|failed|stopped|interrupted/.test(node.className)); });
const text = (page, at = 0) => page.evaluate((at) => document.querySelectorAll(".editor textarea")[at].value, at);
const shots = (page, at = 0) => page.evaluate((at) => document.querySelectorAll(".film")[at].children.length, at);
const events = (page) => page.evaluate(async () => {
  const said = await (await fetch(`/asks/${location.hash.slice(1)}/events`)).text();
  return said.split("\n").filter((line) => line.startsWith("data: [")).flatMap((line) => JSON.parse(line.slice(6)));
});
const go = () => fetch(third.replace("/v1", "/go"), { method: "POST" }); // the stub holds `tuned` before its last slide
const stub = async () => (await fetch(third.replace("/v1", "/stats"))).json();
const until = async (what, wanted) => { for (let tries = 0; tries < 900; tries++) { if (await wanted()) return; await new Promise((done) => setTimeout(done, 100)); } trouble.push(`never: ${what}`); };

async function axe(page, name, rare = true) { // what not every run looks at is rare
  if (rare && !whole) return;
  if (!(await page.evaluate(() => Boolean(window.axe)))) await page.evaluate(auditor);
  const found = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"], iframes: false }));
  for (const violation of found.violations) if (["serious", "critical"].includes(violation.impact))
    trouble.push(`axe, ${name}: ${violation.id} at ${violation.nodes.slice(0, 3).map((node) => `${node.target} (${node.any[0]?.message ?? ""})`).join("; ")}`);
  return found.violations.map((violation) => violation.id);
}

const REQUEST = "Linden Primary wants shade in the school yard: persuade the board to plant three trees and put up two sails. Name the costs, and end with the decision we ask for.";

/** One slide anew: only that one changes; a reply that is no deck changes nothing. */
async function anew(page, base, mended) {
  const first = page.locator(".side").first(), whole = await text(page, 0);
  await first.locator(".change textarea").fill("slide 3: one sentence");
  expect("the button names the slide", await first.locator(".change button").textContent(), "Change slide 3");
  await first.locator(".change textarea").press("Control+Enter");
  await wait(page, () => document.querySelector(".change p").textContent.startsWith("Slide 3 is new") && document.querySelector(".state").className === "state done");
  const anew = await text(page, 0);
  expect("the slide is the model's new one", anew.includes("# Three trees, two sails, one summer") && anew.includes("Say the price before anybody asks."), true);
  const cut = (deck) => deck.split(/^---$/m).map((part) => part.trim());
  const [was, is] = [cut(whole), cut(anew)];
  expect("the others are as they were", [was.filter((part) => !is.includes(part)).length, (await events(page)).findLast((event) => event.type === "rendered" && event.side === 0).slides], [2, 6]);
  expect("and it is shown", await first.locator(".place").textContent(), "3 / 6");
  await wait(page, () => [...document.querySelectorAll(".was img")].filter((image) => image.naturalWidth > 0).length === 2);
  expect("beside what it was", await first.locator(".was figcaption").allTextContents(), ["Before", "Now"]);
  await base.locator(".change textarea").fill("slide 1: a question as the title");
  await base.locator(".change button").click();
  await wait(page, () => document.querySelectorAll(".change p")[1].textContent.includes("was not changed"));
  await rest(page);
  expect("a reply that is no deck changes nothing", [await text(page, 1), await state(page, 1), await base.locator(".change p").textContent(), await base.locator(".change textarea").inputValue()],
    [mended, "done", "Slide 1 was not changed: the model's reply is no slide: it has neither a heading nor a frontmatter. The deck is as it was.", "slide 1: a question as the title"]);
}

/** A reference deck is everybody's, needs no model, and nobody changes it. */
async function reference(page) {
  const before_ = (await stub()).asked;
  await page.locator("#shelf a").first().click();
  await wait(page, () => document.querySelector(".who")?.textContent.includes("Reference deck"));
  await rest(page);
  expect("a reference deck is drawn", [await state(page), await shots(page), await page.locator(".change").isVisible(), await page.locator(".editor textarea").getAttribute("readonly"), (await stub()).asked], ["done", 7, false, "", before_]);
  expect("it says whose it is", await page.textContent("#asked-more"), "a deck that people wrote; no model was asked");
  await axe(page, "a reference deck");
  const looker = await visit();
  await looker.waitForSelector("#shelf img");
  expect("each card has its picture", await looker.evaluate(async () => {
    const pictures = [...document.querySelectorAll("#shelf img")];
    for (const one of pictures) one.loading = "eager";
    await Promise.all(pictures.map((one) => one.decode()));
    return pictures.map((one) => one.naturalWidth);
  }), Array(12).fill(640));
  await looker.locator("#shelf a").first().click();
  await wait(looker, () => location.hash.length > 1);
  expect("it is drawn once for all", await looker.evaluate(() => location.hash), await page.evaluate(() => location.hash));
  await looker.context().close();
}

/** A reply that is no deck says what is wrong, and with which line. */
async function broken(page) {
  await write(page, "Fail", ["broken"]);
  await rest(page);
  expect("how it ended", [await state(page), await page.locator(".empty b").textContent(), await page.locator(".findings button").allTextContents()], ["failed", "No deck came of it", ["line 1"]]);
  expect("why", (await page.locator(".findings span").first().textContent()).startsWith("the deck is empty"), true);
}

async function check() {
  const page = await visit();
  await axe(page, "empty page", false);
  // Examples fill the form; a document is read, cut and named; Ctrl+Enter sends from any field.
  await page.getByRole("button", { name: "A decision for a board" }).click();
  expect("an example fills the form", [(await page.inputValue("#prompt")).startsWith("Our library lends tools"), await page.inputValue("#audience"), await page.inputValue("#slides")], [true, "executives", "6"]);
  await page.setInputFiles("#file", { name: "<img src=x onerror=alert(1)>.md", mimeType: "text/markdown", buffer: Buffer.from("Shade cools a yard. <script>alert(2)</script>\n\n".repeat(400)) });
  await page.waitForSelector(".given");
  expect("a document is named as text", await page.textContent(".given b"), "<img src=x onerror=alert(1)>.md");
  expect("and what was cut is said", /^The first 1\d,\d{3} of 18,\d{3} characters are used; the rest was left out\.$/.test(await page.textContent(".given .soft")), true);
  await page.fill("#tone", "sober");
  await page.focus("#tone");
  await choose(page, ["broken"]);
  await page.focus("#tone");
  await page.keyboard.press("Control+Enter");
  await wait(page, () => document.querySelectorAll(".state").length === 1);
  await rest(page);
  expect("the request went with its document", (await events(page))[0].request.material.name, "<img src=x onerror=alert(1)>.md");
  expect("and says so", (await page.textContent("#asked-more")).endsWith("with <img src=x onerror=alert(1)>.md"), true);
  await page.click(".given button");
  expect("it is left out again", await page.locator(".given").count(), 0);
  lenient = true; // the refusal is an answer of 422
  await page.setInputFiles("#file", { name: "x.pdf", mimeType: "application/pdf", buffer: Buffer.from("%PDF-1.7 nothing") });
  await page.waitForSelector("#wrong:not([hidden])");
  expect("what is no document is said", await page.textContent("#wrong"), "X.pdf cannot be read: it is no PDF, is locked, or is too complicated.");
  lenient = false;
  await page.locator(".card .drop").first().click();
  await wait(page, () => !document.querySelectorAll("#cards .card").length);
  await page.fill("#prompt", "");
  await page.fill("#tone", "");
  expect("what is missing is said by the form", await page.evaluate(() => { document.getElementById("go").click(); return document.getElementById("prompt").validity.valueMissing; }), true);

  // Side by side, reloaded in the middle: nothing that had arrived is gone, and it goes on.
  await write(page, REQUEST, ["tuned", "base"], { audience: "the school board", theme: "seriph", slides: "6" });
  await wait(page, () => document.querySelectorAll(".film")[0].children.length > 0);
  const [before, pictures] = [await text(page), await shots(page)];
  await page.reload();
  await wait(page, () => document.querySelectorAll(".film")[0]?.children.length > 0);
  expect("a reload in the middle keeps the words", (await text(page)).startsWith(before), true);
  expect("and the slides", (await shots(page)) >= pictures, true);
  expect("and the form", await page.inputValue("#prompt"), REQUEST);
  await wait(page, () => document.querySelectorAll(".film")[0].children.length > 3);
  expect("the model still writes when its first slides are there", await state(page), "writing");
  await go();
  await rest(page);
  const all = await events(page), tuned = all.filter((event) => event.side === 0);
  const at = (kind) => tuned.findIndex((event) => event.type === kind);
  const last = tuned.findLastIndex((event) => event.type === "text");
  expect("the first slide was rendered before the last words came", at("slide") >= 0 && at("slide") < last && last < at("written"), true);
  expect("and so were all but the last two", tuned.filter((event) => event.type === "slide").map((event) => event.no).slice(0, 4), [1, 2, 3, 4]);
  const known = tuned.slice(0, at("slide")).filter((event) => event.type === "text").map((event) => event.text).join("");
  expect("when the last slide was not begun", known.includes("Shade for the school yard") && !known.includes("Please decide"), true);
  summary.early = tuned.filter((event) => event.type === "slide").length;
  expect("how the two ended", [await state(page, 0), await shots(page, 0), await state(page, 1), await shots(page, 1)], ["done", 6, "done", 4]);
  expect("what was asked", all[0].request, { prompt: REQUEST, audience: "the school board", tone: "", slides: 6, theme: "seriph" });
  expect("no event names the visitor", all.some((event) => "visitor" in event), false);
  expect("the thought stands apart", await page.evaluate(() => { document.getElementById("side-0-thought").click(); return document.querySelector(".thought").textContent.trim().split(" ").slice(0, 3).join(" "); }), "The audience is");
  await page.click("#side-0-text");
  expect("the deck begins with its headmatter", (await text(page)).startsWith("---\ntheme: seriph"), true);
  expect("the times are there", await page.evaluate(() => [...document.querySelectorAll(".times")[0].querySelectorAll("dt")].map((node) => node.textContent)), ["First word", "First slide", "Written", "Rendered", "Tokens"]);

  expect("fewer slides than were asked for are said", await page.locator(".findings").nth(1).locator("span").first().textContent(), "6 slides were asked for, there are 4");

  // A hint leads to its line; arrows turn; a wrong line is mended and rendered again.
  const base = page.locator(".side").nth(1);
  await base.getByRole("button", { name: "line 35" }).last().click();
  expect("the line of a hint is chosen", await page.evaluate(() => { const area = document.querySelectorAll(".editor textarea")[1]; return [document.activeElement === area, area.value.slice(area.selectionStart, area.selectionEnd)]; }), [true, '<Chart :data="options" />']);
  expect("and its slide is shown", await base.locator(".place").textContent(), "3 / 4");
  await base.locator(".stage").focus();
  await page.keyboard.press("ArrowRight");
  expect("an arrow turns the slides of the deck in focus alone", [await base.locator(".place").textContent(), await page.locator(".place").first().textContent()], ["4 / 4", "1 / 6"]);
  const mended = (await text(page, 1)).replace('<Chart :data="options" />', "Three options were weighed.").replace("{{ options.trees.cost }}", "Trees, sails, or both.").replace("two-columns", "two-cols");
  await base.locator(".editor textarea").fill(mended);
  await page.reload();
  await wait(page, () => document.querySelectorAll(".editor textarea")[1]?.value.includes("Three options were weighed"));
  expect("an edit survives a reload", await text(page, 1), mended);
  await base.locator(".editor textarea").focus();
  await page.keyboard.press("Control+Enter");
  await wait(page, () => document.querySelectorAll(".state")[1].className === "state done" && !document.querySelectorAll(".findings")[1].textContent.includes("Chart"));
  expect("the mended deck has its own version", (await events(page)).filter((event) => event.type === "rendered" && event.side === 1).map((event) => [event.version, event.findings.some((finding) => finding.check === "unknown-layout")]), [[1, true], [2, false]]);

  expect("what nobody looked at is said, and nothing is praised", (await base.locator(".clear").textContent()).endsWith("Nobody looked at whether it makes sense, is true, or is what was asked for."), true);

  if (whole) await anew(page, base, mended);

  // Downloads
  const marks = { Markdown: ["---\n", "deck.md"], PDF: ["%PDF-", ".pdf"], PowerPoint: ["PK", ".pptx"] };
  for (const [name, [magic, ending]] of Object.entries(marks)) {
    if (name === "PowerPoint" && !whole) continue;
    const [download] = await Promise.all([page.waitForEvent("download"), base.getByRole("button", { name, exact: true }).click()]);
    const data = readFileSync(await download.path());
    expect(`${name} is what it says`, [data.subarray(0, magic.length).toString(), download.suggestedFilename().startsWith("School-shade.")], [magic, true]);
    if (name === "Markdown") expect("the markdown is the edited one", data.toString(), mended);
    if (!download.suggestedFilename().endsWith(ending.replace("deck", ""))) trouble.push(`${name} is called ${download.suggestedFilename()}`);
  }

  // The interactive deck, in an origin of its own that may do nothing to this one
  await page.click("#side-1-play");
  const frame = await (await base.locator("iframe").elementHandle()).contentFrame();
  await frame.waitForSelector(".slidev-layout");
  expect("the deck runs elsewhere", [new URL(frame.url()).origin === url, new URL(frame.url()).hostname === new URL(url).hostname], [false, true]);
  expect("sandboxed", await base.locator("iframe").getAttribute("sandbox"), "allow-scripts");
  expect("what it can reach of us", await frame.evaluate(() => { const found = [origin]; for (const what of [() => parent.document.title, () => document.cookie || "", () => top.location.href]) try { found.push(String(what())); } catch (error) { found.push(error.name); } return found; }),
    ["null", "SecurityError", "", "SecurityError"]);
  await frame.locator("body").click({ position: { x: 300, y: 200 } });
  await page.keyboard.press("ArrowRight");
  await wait(frame, () => location.hash.startsWith("#/2"));
  await page.click("#side-1-pictures");

  await axe(page, "a finished pair", false);
  const stored = await page.context().storageState(), hash = await page.evaluate(() => location.hash);
  if (whole) {
    const dark = await visit({ storageState: stored, colorScheme: "dark", hash });
    await dark.waitForSelector(".shot");
    await axe(dark, "dark");
    await dark.context().close();
  }
  const phone = await visit({ storageState: stored, width: 390, height: 844, hash });
  await phone.waitForSelector(".shot");
  await axe(phone, "phone");
  expect("a phone does not scroll sideways", await phone.evaluate(() => document.documentElement.scrollWidth), 390);
  await phone.context().close();

  // Somebody else sees nothing of it.
  const other = await visit();
  lenient = true;
  expect("another visitor has no decks", await other.evaluate(async (id) => [(await (await fetch("/asks")).json()).length, (await fetch(`/asks/${id}/events`)).status, (await fetch(`/pictures/${id}.0.1/slides/01.png`)).status, (await fetch(`/asks/${id}`, { method: "DELETE" })).status], hash.slice(1)), [0, 404, 404, 404]);
  lenient = false;
  await other.context().close();

  if (whole) await reference(page);

  // A model that never ends is stopped at the endpoint.
  await write(page, "Never stop", ["endless"]);
  await wait(page, () => document.querySelector(".editor textarea").value.length > 30);
  await axe(page, "while it is written");
  await page.getByRole("button", { name: "Stop", exact: true }).click();
  await wait(page, () => document.querySelector(".state").className === "state stopped");
  await until("the endpoint stopped writing", async () => (await stub()).streams === 0);
  expect("what had arrived stays", (await text(page)).length > 30, true);

  if (whole) await broken(page);

  // A hostile request for a hostile deck
  const title = "</textarea><script>document.title='taken'</script><img src=x onerror=alert(3)>";
  lenient = true;
  asked.length = 0;
  await write(page, title, ["hostile"], { audience: "<b onmouseover=alert(4)>", tone: "{{constructor.constructor('alert(5)')()}}" });
  await rest(page);
  expect("the hostile deck is a deck", [await state(page), (await shots(page)) >= 3], ["done", true]);
  expect("its request is text", await page.locator("#asked").textContent(), title);
  await page.click("#side-0-play");
  const cell = await (await page.locator("iframe").elementHandle()).contentFrame();
  await cell.waitForSelector(".slidev-layout, .decksmith-error");
  for (let slide = 1; slide <= 4; slide++) {
    await cell.evaluate(() => { // what a deck's code could do at worst, done to it
      for (const attempt of [() => { top.location = "http://example.invalid/"; }, () => { parent.document.title = "taken"; }, () => { window.open("http://example.invalid/"); }, () => alert(6),
        () => { const form = document.createElement("form"); form.action = "http://example.invalid/"; form.target = "_top"; document.body.append(form); form.submit(); },
        () => { fetch("http://example.invalid/").catch(() => {}); }, () => { new Image().src = "http://example.invalid/pixel"; }, () => { parent.postMessage({ type: "end" }, "*"); },
        () => { for (const node of document.querySelectorAll("a, button, [role=button]")) node.click(); }]) try { attempt(); } catch {}
    }).catch(() => {});
    await page.keyboard.press("ArrowRight");
    await page.waitForTimeout(150);
  }
  await cell.evaluate(() => { location = "http://example.invalid/"; }).catch(() => {});
  await page.waitForTimeout(500);
  const alone = await (await browser.newContext()).newPage();
  alone.on("request", (request) => asked.push(request.url()));
  alone.on("requestfailed", (request) => { if (request.failure()?.errorText === "csp") asked.splice(asked.lastIndexOf(request.url()), 1); });
  await alone.goto(await page.locator("a", { hasText: "Open alone" }).first().getAttribute("href"));
  await wait(alone, () => document.querySelector("iframe").src.includes("?framed#/"));
  const shown = alone.frames().find((frame) => frame !== alone.mainFrame());
  await shown.waitForSelector(".slidev-layout, .decksmith-error");
  for (const go of ["top.location = 'http://example.invalid/alone'", "location = 'http://example.invalid/alone'"])
    await shown.evaluate(go).catch(() => {});
  await alone.waitForTimeout(500);
  expect("alone, the deck stays where it is", new URL(alone.url()).hostname, "127.0.0.1");
  await alone.context().close();
  expect("we are where we were", [page.url().startsWith(url), (await page.title()).endsWith("· decksmith demo"), await page.evaluate(() => document.querySelectorAll("script").length)], [true, true, 3]);
  const origins = [...new Set(asked.filter((address) => /^https?:/.test(address)).map((address) => new URL(address).hostname))];
  expect("nothing was asked of anybody else", origins, ["127.0.0.1"]);

  // A link to what is not there, or is another visitor's
  await open(page, "#" + "0".repeat(32));
  await page.waitForSelector("#wrong:not([hidden])");
  expect("a deck of somebody else", await page.textContent("#wrong"), "There is no such deck of yours.");
  lenient = false;

  // Removed is removed
  await open(page);
  const cards = await page.locator("#cards .card").count();
  await page.locator(".card .drop").first().click();
  await wait(page, (n) => document.querySelectorAll("#cards .card").length === n, cards - 1);
  summary.cards = cards;
  const foreign = asked.filter((address) => /^https?:/.test(address) && new URL(address).hostname !== "127.0.0.1");
  expect("requests to elsewhere", foreign, []);
}

async function embedded() {
  const page = await visit();
  await write(page, "A short introduction to tea", [], { slides: "4" });
  const second = await visit();
  await write(second, "Coffee", [], { slides: "4" });
  await wait(second, () => document.querySelector(".state b").textContent === "Waiting, next in line");
  await second.getByRole("button", { name: "Stop", exact: true }).click();
  await wait(second, () => document.querySelector(".state").className === "state stopped");
  await rest(page);
  const all = await events(page);
  Object.assign(summary, { state: await state(page), slides: await shots(page), first: all.findIndex((event) => event.type === "slide"), written: all.findIndex((event) => event.type === "written") });
}

async function screenshot(file) {
  const page = await visit({ width: 1080, height: 880, deviceScaleFactor: 1.6 });
  await page.fill("#prompt", "Visitors of our harbour open day think eelgrass is weed. Show them why it matters, and what they can do for it.");
  await page.click("#go");
  await wait(page, () => document.querySelectorAll(".side").length === 2);
  await rest(page);
  await page.evaluate(() => { // a slide with a picture, where the second deck has one
    document.querySelectorAll(".film")[1].children[3]?.click();
    document.activeElement.blur();
    document.getElementById("result").scrollIntoView();
  });
  await page.waitForTimeout(800);
  await page.screenshot({ path: file });
}

async function pictures(out) {
  mkdirSync(out, { recursive: true });
  const shoot = async (page, name, fullPage = false) => { await page.waitForTimeout(500); await page.screenshot({ path: path.join(out, `${name}.png`), fullPage }); };
  const page = await visit();
  await shoot(page, "empty");
  await write(page, REQUEST, ["tuned", "base"], { audience: "the school board", theme: "seriph", slides: "6" });
  await wait(page, () => [...document.querySelectorAll(".film")].every((film) => film.children.length > 1));
  await shoot(page, "writing");
  await go();
  await rest(page);
  await shoot(page, "pair", true);
  await page.locator(".side").nth(1).locator(".shot").nth(2).click();
  await shoot(page, "hints");
  const [storageState, hash] = [await page.context().storageState(), await page.evaluate(() => location.hash)];
  await write(page, REQUEST, ["tuned"]);
  await wait(page, () => document.querySelector(".thought")?.checkVisibility());
  await shoot(page, "thinking");
  await go();
  await rest(page);
  await shoot(page, "one", true);
  await page.click("#side-0-play");
  await page.waitForTimeout(2000);
  await shoot(page, "play");
  const dark = await visit({ storageState, hash, colorScheme: "dark" });
  await dark.waitForSelector(".shot");
  await shoot(dark, "dark");
  const phone = await visit({ storageState, hash, width: 390, height: 844, deviceScaleFactor: 2 });
  await phone.waitForSelector(".shot");
  await shoot(phone, "phone");
  await phone.evaluate(() => document.getElementById("result").scrollIntoView());
  await shoot(phone, "phone-deck");
}

try {
  if (mode === "check" || whole) await check();
  if (mode === "embedded") await embedded();
  if (mode === "screenshot") await screenshot(third);
  if (mode === "shots") await pictures(out);
} catch (error) {
  trouble.push(`${error.stack}`.slice(0, 1500));
} finally {
  await close();
}
console.log(JSON.stringify({ ...summary, trouble }));
process.exit(trouble.length ? 1 : 0);
