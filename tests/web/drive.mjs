// Drive a report in the pinned Chromium.
//
//   node tests/web/drive.mjs check REPORT                every behaviour; prints a JSON summary
//   node tests/web/drive.mjs live REPORT                 the page of a run that goes on
//   node tests/web/drive.mjs files REPORT                one whose decks stand in files beside it
//   node tests/web/drive.mjs screenshot REPORT OUT.png   the picture for the README: the first screen
//   node tests/web/drive.mjs shots REPORT FOLDER         light, dark, phone, one deck, side by side
//
// REPORT is index.html or its folder. The browser is the renderer's; playwright-core comes from tests/node_modules (PLAYWRIGHT names
// another folder that has it in its node_modules).
import { mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import path from "node:path";
import { pathToFileURL } from "node:url";
import { axe as auditor, seldom, start } from "./browser.mjs";

const [mode, target, out] = process.argv.slice(2);
if (!["check", "live", "files", "screenshot", "shots"].includes(mode) || !target || (!out && !["check", "live", "files"].includes(mode))) {
  console.error("drive.mjs: usage: drive.mjs check REPORT | screenshot REPORT OUT.png | shots REPORT FOLDER");
  process.exit(2);
}
const file = statSync(target).isDirectory() ? path.join(target, "index.html") : target;
const url = pathToFileURL(path.resolve(file)).href;

const { browser, close } = await start();

const trouble = [];
async function visit({ width = 1440, height = 900, scheme = "light", hash = "", scale = 1 } = {}) {
  const context = await browser.newContext({ viewport: { width, height }, colorScheme: scheme, deviceScaleFactor: scale });
  context.setDefaultTimeout(20000);
  const page = seldom(await context.newPage());
  page.on("console", (message) => ["error", "warning"].includes(message.type()) && trouble.push(`console ${message.type()}: ${message.text()}`));
  page.on("pageerror", (error) => trouble.push(`page: ${error.message}`));
  page.on("request", (request) => { if (!/^(file|data|blob):/.test(request.url())) trouble.push(`request: ${request.url()}`); });
  // A picture whose element went away while it loaded is aborted: that is no failure.
  page.on("requestfailed", (request) => { if (request.failure()?.errorText !== "net::ERR_ABORTED") trouble.push(`failed: ${request.url()} ${request.failure()?.errorText}`); });
  page.on("dialog", (dialog) => { trouble.push(`dialog: ${dialog.message()}`); dialog.dismiss(); });
  await page.goto(url + hash);
  await page.waitForFunction(() => document.documentElement.dataset.ready);
  return page;
}
// Pictures in the window are there (lazy ones outside it never load: not waited for), fonts too, two frames drawn.
const settled = async (page) => {
  await page.waitForFunction(() => document.fonts.status === "loaded" && [...document.images].every((image) => {
    const box = image.getBoundingClientRect();
    return !box.width || box.bottom < 0 || box.top > innerHeight || box.right < 0 || box.left > innerWidth || image.complete || image.closest(".film");
  }), null, { timeout: 20000 });
  await page.waitForTimeout(250);
};
const shoot = async (page, name) => { await settled(page); await page.screenshot({ path: name }); };

async function shots(folder) {
  mkdirSync(folder, { recursive: true });
  const at = (name) => path.join(folder, `${name}.png`);
  for (const scheme of ["light", "dark"]) {
    const page = await visit({ scheme });
    await shoot(page, at(`${scheme}-top`));
    await page.locator("#comparison").scrollIntoViewIfNeeded();
    await page.evaluate(() => { document.querySelector("#comparison details").open = true; document.getElementById("comparison").scrollIntoView(); });
    await shoot(page, at(`${scheme}-comparison`));
    await page.evaluate(() => document.getElementById("plots").scrollIntoView());
    await shoot(page, at(`${scheme}-plots`));
    await page.evaluate(() => document.getElementById("decks").scrollIntoView());
    await page.waitForTimeout(150);
    await shoot(page, at(`${scheme}-decks`));
    await page.keyboard.press("j");
    await page.keyboard.press("Enter");
    await shoot(page, at(`${scheme}-deck`));
    await page.keyboard.press("c");
    await shoot(page, at(`${scheme}-beside`));
    await page.keyboard.press("d");
    await shoot(page, at(`${scheme}-difference`));
    await page.keyboard.press("Escape");
    await page.evaluate(() => { for (const fold of document.querySelectorAll(".fold")) fold.open = true; document.getElementById("words").scrollIntoView(); });
    await shoot(page, at(`${scheme}-words`));
    await page.context().close();
  }
  const page = await visit({ width: 390, height: 844, scale: 2 });
  await shoot(page, at("phone-top"));
  await page.evaluate(() => document.getElementById("decks").scrollIntoView());
  await page.waitForTimeout(150);
  await shoot(page, at("phone-decks"));
  await page.keyboard.press("j");
  await page.keyboard.press("Enter");
  await shoot(page, at("phone-deck"));
  await page.keyboard.press("d");
  await shoot(page, at("phone-difference"));
  await page.keyboard.press("Escape");
  await page.evaluate(() => document.getElementById("plots").scrollIntoView());
  await shoot(page, at("phone-plots"));
  await page.context().close();
}

const few = (all) => all.length < 30; // what is the same of many decks is looked at with few
const rows = (page) => page.evaluate(() => { const { names, rows } = JSON.parse(document.getElementById("data").textContent); return rows.map((values) => Object.fromEntries(names.map((name, at) => [name, values[at]]))).map((row) => ({ id: row.id, run: row.run, status: row.status, worth: row.worth, failed: row.failed, slides: row.drawn, class: row.fault && row.fault.class, line: row.fault && row.fault.line })); });
const ids = (page) => page.evaluate(() => [...document.querySelectorAll(".deck")].map((node) => `${node.row.run} ${node.row.id}`));
const expect = (what, is, want) => { if (JSON.stringify(is) !== JSON.stringify(want)) trouble.push(`${what}: ${JSON.stringify(is)?.slice(0, 300)} instead of ${JSON.stringify(want)?.slice(0, 300)}`); };

async function audit(page, name) {
  if (!(await page.evaluate(() => Boolean(window.axe)))) await page.evaluate(auditor);
  const found = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"], iframes: false }));
  for (const violation of found.violations) {
    trouble.push(`axe, ${name}: ${violation.id} at ${violation.nodes.slice(0, 3).map((node) => `${node.target} (${node.any[0]?.message ?? ""})`).join("; ")}`);
  }
}

/** What the browser would write to the disk when a button is clicked. */
async function saved(page, button) {
  const [download] = await Promise.all([page.waitForEvent("download"), page.click(button)]);
  return { name: download.suggestedFilename(), text: readFileSync(await download.path(), "utf8") };
}

// Several models: what stands together, how far apart they are, what the address holds, and the way back
async function several(all) {
  const page = await visit();
  const hash = () => page.evaluate(() => decodeURIComponent(location.hash));
  const settle = (text) => page.waitForFunction((wanted) => decodeURIComponent(location.hash).includes(wanted), text);
  const groups = () => page.evaluate(() => [...document.querySelectorAll(".asked")].map((node) => node.querySelector("code").textContent));
  expect("each request stands once above its decks", await groups(), [...new Set(all.map((row) => row.id))]);
  expect("and below it are its decks", await page.evaluate(() => [...document.querySelectorAll(".asked")].every((node) =>
    node.nextElementSibling.row.prompt === node.querySelector("code").textContent)), true);

  const score = (id, run) => all.find((row) => row.id === id && row.run === run)?.worth;
  await page.selectOption("#sort", "a");
  const order = (await groups()).map((id) => (typeof score(id, 0) === "number" && typeof score(id, 1) === "number" ? score(id, 0) - score(id, 1) : null));
  const far = order.filter((value) => value !== null);
  expect("sorted by the difference, unscored last", order, [...far.toSorted((x, y) => y - x), ...order.filter((value) => value === null)]);
  expect("the sort is in the address", await hash(), "#sort=a");
  await page.selectOption("#f-status", "renders");
  expect("and the filter", await hash(), "#status=renders&sort=a");
  const listed = await ids(page);

  await page.locator(".asked button").first().click();
  await settle("view=beside");
  await page.keyboard.press("d");
  await settle("view=diff");
  expect("the difference has lines of both", await page.evaluate(() => [document.querySelectorAll(".diff .gone").length > 0, document.querySelectorAll(".diff .come").length > 0]), [true, true]);
  const more = page.locator(".diff .more").first();
  if (await more.count()) {
    const before = await page.locator(".diff > div").count();
    await more.click();
    expect("equal lines unfold", (await page.locator(".diff > div").count()) > before, true);
  }
  await audit(page, "difference");
  await page.click("#one");
  await page.keyboard.press("ArrowRight");
  await settle("slide=2");
  const there = await hash();
  await page.keyboard.press("f");
  await settle("view=show");
  await page.keyboard.press("Escape");
  await page.click("#play");
  await page.waitForFunction(() => document.fullscreenElement?.id === "screen");
  expect("play begins at the first slide", [await page.textContent("#large-place"), await hash()], ["1 of 7", there.replace(/&slide=\d+/, "") + "&view=show"]);
  await page.keyboard.press("End");
  expect("End goes to the last", await page.textContent("#large-place"), "7 of 7");
  await page.keyboard.press("Home");
  await page.keyboard.press("ArrowRight");
  await page.evaluate(() => document.exitFullscreen()); // what the browser does with Escape
  await page.waitForFunction(() => !document.getElementById("show").open);
  expect("and the deck stays at the slide that was played last", (await hash()).includes("slide=2"), true);
  await page.keyboard.press("f");
  await settle("view=show");
  await page.keyboard.press(" ");
  expect("space goes on, enlarged", [await page.textContent("#large-place"), await page.evaluate(() => document.getElementById("show").open)], ["3 of 7", true]);
  await page.keyboard.press("Escape");
  await page.waitForFunction(() => !document.getElementById("show").open && document.getElementById("detail").open);
  await page.keyboard.press("Escape");
  await page.waitForFunction(() => !location.hash.includes("deck="));
  expect("closed, the list's state stays", await hash(), "#status=renders&sort=a");
  for (let n = 0; n < 20 && !(await hash()).includes("view=beside"); n += 1) await page.goBack();
  expect("back opens what was open", await page.locator(".columns > .who").count() > 1, true);
  while ((await hash()).includes("deck=")) await page.goBack();
  await page.waitForFunction(() => !document.getElementById("detail").open);
  expect("and before it the list", await ids(page), listed);
  await page.goBack();
  await page.waitForFunction(() => document.getElementById("f-status").value === "");
  expect("back undoes the filter", await page.textContent("#count"), `${all.length} decks`);
  await page.goForward();
  await page.waitForFunction(() => document.getElementById("f-status").value === "renders");
  const table = await saved(page, "#save-decks");
  expect("CSV has a line for each deck listed", [table.name, table.text.trim().split("\r\n").length], ["decks.csv", listed.length + 1]);
  expect("and names its columns", table.text.split("\r\n")[0].startsWith("model,id,prompt,domain,theme,status,fault,"), true);
  expect("the tables are saved as markdown", (await saved(page, "#save-tables")).text.includes("**Scores**"), true);
  await page.context().close();

  const sent = await visit({ hash: there });
  expect("an address opens the same slide", await sent.evaluate(() => [...document.querySelectorAll("#film .shot")].findIndex((node) => node.getAttribute("aria-current") === "true")), 1);
  if (await sent.evaluate(() => JSON.parse(document.getElementById("data").textContent).good === "checks")) await boxes(sent);
  else {
    const remarks = () => sent.locator("#remarks").textContent();
    expect("with what the judge said of it", (await remarks()).startsWith("Design "), true);
    await sent.keyboard.press("ArrowRight");
    expect("and saw on the next", (await remarks()).includes("text cut off"), true);
  }
  expect("and the model's thought", await sent.evaluate(() => document.querySelector("#detail .panels").textContent.includes("Outline first.")), true);
  await sent.context().close();
}

// A finding leads to its slide and line, and draws its box on the picture
async function boxes(page) {
  const found = page.locator(".panels .finding").first();
  if (!(await found.count())) return;
  await found.click();
  const wanted = await found.evaluate((node) => [node.finding.slide, node.finding.box]);
  const state = () => page.evaluate(() => {
    const rect = document.querySelector("#frame rect")?.getBoundingClientRect();
    const frame = document.getElementById("frame").getBoundingClientRect();
    return { slide: Number(/^Slide (\d+)/.exec(document.getElementById("seen").textContent)?.[1]), share: rect && [(rect.x - frame.x) / frame.width, (rect.y - frame.y) / frame.height].map((at) => Math.round(100 * at)) };
  });
  const [slide, [x, y]] = wanted;
  expect("a finding shows its slide and its box", await state(), { slide, share: [Math.round((100 * x) / 980), Math.round((100 * y) / 552)] });
  expect("and its line", await page.locator("#lines .error").count() > 0, true);
  await found.click();
  expect("a second click takes the box away", (await state()).share, undefined);
}

/** A phone with two pixels per point: nothing for axe to find, pictures sharp, tables that keys can reach. */
async function small(scheme) {
  const page = await visit({ width: 390, height: 844, scheme, scale: 2 });
  await audit(page, `phone, ${scheme}`);
  const screens = await page.evaluate(() => document.querySelector(".deck").getBoundingClientRect().top / innerHeight);
  expect(`the first deck is within one and a half screens (${screens.toFixed(2)})`, screens < 1.5, true);
  expect("the filters are one row", await page.evaluate(() => document.querySelector(".bar").offsetHeight < 60), true);
  const image = page.locator(".deck .shot img").first();
  await image.scrollIntoViewIfNeeded();
  expect("a thumbnail has two pixels for each point", await image.evaluate(async (node) => { await node.decode(); const pixels = new Image(); pixels.src = node.currentSrc; await pixels.decode(); return pixels.naturalWidth >= 2 * node.clientWidth; }), true);
  await page.evaluate(() => { for (const fold of document.querySelectorAll("main details")) fold.open = true; });
  await audit(page, `phone, ${scheme}, unfolded`);
  const wide = page.locator(".wide").first();
  await wide.focus();
  await page.keyboard.press("ArrowRight");
  await page.waitForFunction(() => [...document.querySelectorAll(".wide")].every((node) => node.tabIndex === 0 && node.getAttribute("aria-label")));
  if (await wide.evaluate((node) => node.scrollWidth > node.clientWidth)) await page.waitForFunction(() => document.querySelector(".wide").scrollLeft > 0);
  await page.context().close();
}

/** Where things stand, what "Send" saves, what goes to paper. */
async function laid(all) {
  const page = await visit();
  expect("the first deck is in the first screen", await page.evaluate(() => document.querySelector(".deck").getBoundingClientRect().top < innerHeight - 60), true);
  expect("the filters are one row", await page.evaluate(() => document.querySelector(".bar").offsetHeight < 60), true);
  expect("a pair of slides is in the head", await page.locator("#pair figure").count(), 2);
  expect("who judged is said once", (await page.evaluate(() => document.querySelector("main").textContent)).split(/No model or person has read|a vision model that saw/).length, 2);
  await page.locator(".asked button").first().click();
  expect("slides stand above request and scores", await page.evaluate(() => {
    const top = (name) => document.querySelector(name).getBoundingClientRect().top;
    return top(".columns .shot") < top(".columns .below") && top(".columns .below") < top(".sides > p");
  }), true);
  await audit(page, "side by side");
  await page.keyboard.press("Escape");
  if (await page.locator("#send").count()) {
    const one = await saved(page, "#send");
    expect("Send saves the page as one file", [one.name, /(src|srcset)="(img|plots)\//.test(one.text), one.text.includes('id="inside"')], ["report.html", false, true]);
  }
  if (few(all)) {
    const paper = await page.pdf({ preferCSSPageSize: true });
    expect("paper has pictures", paper.includes("/Subtype /Image"), true);
    await page.evaluate(() => dispatchEvent(new Event("beforeprint")));
    expect("and every deck and fold", await page.evaluate(() => [[...document.querySelectorAll("main details")].every((fold) => fold.open), [...document.querySelectorAll(".deck")].every((node) => node.firstChild)]), [true, true]);
    await page.evaluate(() => dispatchEvent(new Event("afterprint")));
    expect("folded again", await page.evaluate(() => [...document.querySelectorAll("main details")].some((fold) => fold.open)), false);
  }
  await page.context().close();
}

/** The page of a run that goes on: it loads itself again when it was written anew, unless somebody reads or types. */
async function live() {
  const version = (words) => writeFileSync(path.join(path.dirname(file), "version.js"), `report_version = "${words}"\n`);
  const page = await visit({ hash: "#status=renders" });
  const looked = () => page.waitForEvent("requestfinished", (request) => request.url().includes("version.js"));
  const old = () => page.evaluate(() => window.old === true);
  expect("it says how far it is", / \d+ of \d+ so far/.test(await page.textContent("h1")), true);
  await audit(page, "live");
  await page.evaluate(() => { window.old = true; });
  await looked();
  await looked();
  expect("the same version stays", await old(), true);
  await page.focus("#search");
  version("two");
  await looked();
  await looked();
  expect("nothing is taken from who types", await old(), true);
  await page.evaluate(() => { document.activeElement.blur(); const deck = document.querySelectorAll(".deck")[2]; deck.scrollIntoView(); scrollBy(0, -40); });
  const seen = () => page.evaluate(() => { const node = [...document.querySelectorAll(".deck")].find((one) => one.getBoundingClientRect().top >= 0); return [`${node.row.run} ${node.row.id}`, Math.round(node.getBoundingClientRect().top / 8)]; });
  const place = await seen();
  await page.waitForFunction(() => !window.old && document.documentElement.dataset.ready);
  expect("written anew it is loaded, at the same place", await seen(), place);
  expect("with the same filter", await page.evaluate(() => document.getElementById("f-status").value), "renders");
  await page.context().close();
}

async function files() {
  const all = (await rows(await visit())).filter((row) => row.slides);
  const { id, slides } = all.at(-1);
  const page = await visit({ hash: `#sort=request&deck=gpt-5.4/${id}` });
  await page.waitForSelector("#detail[open] #film");
  expect("the address opens a deck of the last file", await page.locator("#film .shot").count(), slides);
  await page.keyboard.press("c");
  await page.waitForSelector("#detail .columns .shot img");
  await page.keyboard.press("Escape");
  await page.waitForFunction((id) => [...document.querySelectorAll(".deck")].some((node) => node.row.id === id), id); // once it is closed, it is listed
  await page.waitForFunction((count) => {
    const nodes = [...document.querySelectorAll(".deck")], atEnd = scrollY + innerHeight >= document.documentElement.scrollHeight - 1;
    scrollTo(0, atEnd ? 0 : scrollY + innerHeight);
    return nodes.length === count && nodes.every((node) => node.firstChild);
  }, (await rows(page)).length, { polling: 100, timeout: 120000 });
  expect("every deck is there", (await ids(page)).length, (await rows(page)).length);
  expect("whole", await page.evaluate(() => [...document.querySelectorAll(".deck")].filter((node) => node.row.drawn !== node.querySelectorAll(".film .shot").length).length), 0);
  const [download] = await Promise.all([page.waitForEvent("download"), page.click("#save-decks")]);
  expect("and in the table", readFileSync(await download.path(), "utf8").trim().split("\r\n").length, (await rows(page)).length + 1);
  await page.context().close();
  const before = trouble.length;
  rmSync(path.join(path.dirname(file), "later"), { recursive: true }); // as where the page is written anew
  const old = await visit();
  await old.waitForSelector("#replaced:not([hidden])");
  await old.context().close();
  trouble.splice(before); // the files that are gone
}

async function check() {
  const page = await visit();
  const all = await rows(page);
  const ready = Number(await page.evaluate(() => document.documentElement.dataset.ready));
  const title = await page.title();
  expect("decks listed", (await ids(page)).length, all.length);

  if (few(all)) await audit(page, "page");

  // Filter, search, sort
  await page.selectOption("#f-status", "does not render");
  expect("status filter", (await ids(page)).length, all.filter((row) => row.status === "failed").length);
  expect("count", await page.textContent("#count"), `${all.filter((row) => row.status === "failed").length} of ${all.length}`);
  await page.click("#clear");
  expect("cleared", await page.textContent("#count"), `${all.length} decks`);
  await page.keyboard.press("Escape");
  await page.locator("body").click({ position: { x: 2, y: 2 } });
  await page.keyboard.press("/");
  expect("slash focuses the search", await page.evaluate(() => document.activeElement.id), "search");
  await page.keyboard.type("p002");
  await page.waitForFunction((n) => document.querySelectorAll(".deck").length < n, all.length);
  const found = await ids(page);
  expect("search", found, all.filter((row) => row.id === "p002").map((row) => `${row.run} p002`));
  await page.keyboard.press("Escape");
  expect("escape leaves the search", await page.evaluate(() => document.activeElement.id === "search"), false);
  await page.fill("#search", "");
  await page.waitForFunction((n) => document.querySelectorAll(".deck").length === n, all.length);
  await page.selectOption("#sort", "low");
  const scores = await page.evaluate(() => [...document.querySelectorAll(".deck")].map((node) => node.row.worth));
  const known = scores.filter((score) => score !== null);
  expect("sorted by score, unscored last", scores, [...known.toSorted((a, b) => a - b), ...scores.filter((score) => score === null)]);
  await page.selectOption("#sort", "request");
  const button = page.locator(".legend button").first();
  if (await button.count()) {
    const name = await button.getAttribute("data-class");
    await button.click();
    expect("class button filters", await page.evaluate(() => document.getElementById("f-class").value), name);
    await page.click("#clear");
  }

  // Keyboard: choose, open, turn slides, move, side by side, close
  await page.locator("body").click({ position: { x: 2, y: 2 } });
  await page.selectOption("#f-status", "renders");
  await page.evaluate(() => document.activeElement.blur());
  const listed = await ids(page);
  const chosen = () => page.evaluate(() => document.activeElement.row && `${document.activeElement.row.run} ${document.activeElement.row.id}`);
  await page.keyboard.press("j");
  expect("j chooses the first deck", await chosen(), listed[0]);
  await page.keyboard.press("j");
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("k");
  expect("j, down, k", await chosen(), listed[1]);
  await page.keyboard.press("Enter");
  const head = () => page.textContent("#detail .head code");
  expect("enter opens it", await head(), listed[1].split(" ")[1]);
  const current = () => page.evaluate(() => [...document.querySelectorAll("#film .shot")].findIndex((node) => node.getAttribute("aria-current") === "true"));
  await page.keyboard.press("ArrowRight");
  await page.keyboard.press("ArrowRight");
  await page.keyboard.press("ArrowLeft");
  expect("arrows turn slides", await current(), 1);
  expect("the slide's own lines are marked", await page.evaluate(() => document.querySelectorAll("#lines .here").length > 0), true);
  expect("full picture", await page.evaluate(async () => { const image = document.getElementById("picture"); await image.decode(); return image.naturalWidth; }), 980);
  if (few(all)) await audit(page, "a deck");
  await page.keyboard.press("j");
  expect("j moves on inside", await head(), listed[2].split(" ")[1]);
  if (await page.locator("#beside").count()) {
    await page.keyboard.press("c");
    expect("side by side shows every model", await page.locator(".columns > .who").count(), all.filter((row) => row.id === listed[2].split(" ")[1]).length);
  }
  await page.keyboard.press("Escape");
  expect("escape closes", await page.evaluate(() => document.getElementById("detail").open), false);
  await page.waitForTimeout(200); // the dialog gives the focus back first, its close event moves it on
  expect("and the deck keeps the focus", await chosen(), listed[2]);
  await page.keyboard.press("?");
  expect("question mark opens the help", await page.evaluate(() => document.getElementById("help").open), true);
  await page.keyboard.press("Escape");
  await page.click("#clear");

  // A failure with a line: highlighted in the markdown
  const wrong = all.findIndex((row) => row.line && row.slides);
  if (wrong >= 0) {
    await page.evaluate((at) => [...document.querySelectorAll(".deck")].find((node) => node.row.order === at).click(), wrong);
    expect("the error's line is marked", await page.evaluate(() => document.querySelector("#lines .error > span").textContent), String(all[wrong].line));
    await page.keyboard.press("Escape");
  }

  // Every deck opened once: nothing that a model wrote may act or break the page
  const before = await page.evaluate(() => document.querySelectorAll("script, style, link, iframe, object, embed").length);
  const shown = await page.evaluate(async () => {
    let literal = 0, wide = 0;
    for (const node of document.querySelectorAll(".deck")) {
      node.click();
      const detail = document.getElementById("detail");
      if (detail.textContent.includes("</script><script>document.title")) literal += 1;
      if (detail.scrollWidth > detail.clientWidth) wide += 1;
      detail.close();
      await null;
    }
    return { literal, wide, images: [...document.images].filter((image) => image.hasAttribute("onerror")).length };
  });
  expect("no element came from a text", await page.evaluate(() => document.querySelectorAll("script, style, link, iframe, object, embed").length), before);
  expect("no deck is wider than the window", shown.wide, 0);
  expect("no hostile picture", shown.images, 0);
  expect("the title stayed", await page.title(), title);
  expect("the page is not wider than the window", await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), true);
  const stored = await page.evaluate(() => document.getElementById("data").textContent.includes("document.title=\\\"taken"));
  if (stored) expect("hostile text is shown literally", shown.literal > 0, true);

  // How smooth: frames while the whole list is scrolled
  await page.evaluate(() => document.getElementById("decks").scrollIntoView());
  const frames = await page.evaluate(async () => {
    const gaps = [];
    let last = performance.now();
    const end = document.documentElement.scrollHeight;
    for (let y = scrollY, n = 0; y < end && n < 240; y += Math.max(300, end / 240), n += 1) {
      scrollTo(0, y);
      await new Promise(requestAnimationFrame);
      const now = performance.now();
      gaps.push(now - last);
      last = now;
    }
    gaps.sort((a, b) => a - b);
    return { median_ms: Math.round(gaps[gaps.length >> 1]), worst_ms: Math.round(gaps.at(-1)), steps: gaps.length };
  });
  await page.context().close();

  if (few(all)) {
    const dark = await visit({ scheme: "dark" });
    await audit(dark, "dark page");
    await dark.context().close();
    if (new Set(all.map((row) => row.run)).size === 2) await several(all);
  }
  const phone = await visit({ width: 390, height: 844 });
  expect("a phone does not scroll sideways", await phone.evaluate(() => document.documentElement.scrollWidth), 390);
  await phone.context().close();
  if (few(all)) for (const scheme of ["light", "dark"]) await small(scheme);
  await laid(all);
  return { decks: all.length, ready_ms: ready, literal: shown.literal, frames };
}

let status = 0;
try {
  if (mode === "shots") await shots(out);
  if (mode === "screenshot") {
    // What somebody sees who opens the page: nothing hidden, nothing put in.
    await shoot(await visit({ width: 1440, height: 1240, scale: 1.5 }), out);
  }
  if (mode === "live") {
    await live();
    status = trouble.length ? 1 : 0;
  }
  if (mode === "files") await files();
  if (mode === "check") {
    const summary = await check();
    console.log(JSON.stringify({ ...summary, trouble }));
    status = trouble.length ? 1 : 0;
  }
  if (mode !== "check" && trouble.length) { console.error(trouble.join("\n")); status = 1; }
} finally {
  await close();
}
process.exit(status);
