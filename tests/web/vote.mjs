// Vote on a study in the pinned Chromium, against the real server, which this starts, kills and starts again.
//
//   node tests/web/vote.mjs check STUDY               voting; prints a JSON summary
//   node tests/web/vote.mjs whole STUDY               every behaviour
//   node tests/web/vote.mjs screenshot STUDY OUT.png  the booth, for a page of docs
//   node tests/web/vote.mjs shots STUDY FOLDER        start, booth, why, large, help, owner: light, dark, on phones
//
// STUDY is a folder of pair-build. The browser is the renderer's; playwright-core and axe-core come from tests/node_modules (PLAYWRIGHT
// names another folder that has them in its node_modules).
import { spawn } from "node:child_process";
import { mkdirSync, readFileSync, rmSync } from "node:fs";
import path from "node:path";
import { axe, seldom, start, tests } from "./browser.mjs";

const [mode, study, out] = process.argv.slice(2);
const whole = mode === "whole", checks = whole || mode === "check";
if (!(checks || ["screenshot", "shots"].includes(mode)) || !study || (!out && !checks)) {
  console.error("vote.mjs: usage: vote.mjs check STUDY | whole STUDY | screenshot STUDY OUT.png | shots STUDY FOLDER");
  process.exit(2);
}

// The server

let server = null;
const pause = (ms) => new Promise((done) => setTimeout(done, ms));
async function serve() {
  rmSync(path.join(study, "server.json"), { force: true });
  server = spawn(path.join(tests, "..", "bin", "vote-serve"), ["--study", study], { stdio: ["ignore", "ignore", "pipe"], env: { ...process.env, IMAGES: "off" } });
  const ended = new Promise((done) => server.once("exit", done));
  server.ended = ended;
  let said = "";
  server.stderr.on("data", (data) => { said += data; });
  for (let n = 0; n < 600; n += 1) {
    try { return JSON.parse(readFileSync(path.join(study, "server.json"))); } catch { await pause(50); }
    if (server.exitCode !== null) break;
  }
  throw new Error(`vote-serve did not come up: ${said}`);
}
async function kill() { server.kill("SIGKILL"); await server.ended; }

// The browser

const { browser, close } = await start();

const trouble = [];
let down = false; // while the server is, failed requests are no trouble
const expect = (what, is, want) => { if (JSON.stringify(is) !== JSON.stringify(want)) trouble.push(`${what}: ${JSON.stringify(is)?.slice(0, 300)} instead of ${JSON.stringify(want)?.slice(0, 300)}`); };
async function visitor({ width = 1440, height = 900, scheme = "light", scale = 1, touch = false } = {}) {
  const context = await browser.newContext({ viewport: { width, height }, colorScheme: scheme, deviceScaleFactor: scale, hasTouch: touch, reducedMotion: "reduce" });
  context.setDefaultTimeout(20000);
  const page = seldom(await context.newPage());
  page.on("console", (message) => { if (["error", "warning"].includes(message.type()) && !down && !/status of 4\d\d/.test(message.text())) trouble.push(`console ${message.type()}: ${message.text()}`); });
  page.on("pageerror", (error) => trouble.push(`page: ${error.message}`));
  page.on("dialog", (dialog) => { trouble.push(`dialog: ${dialog.message()}`); dialog.dismiss(); });
  return page;
}
const ready = (page) => page.waitForFunction(() => document.documentElement.dataset.ready);
const settled = async (page) => {
  await page.waitForFunction(() => document.fonts.status === "loaded" && [...document.querySelectorAll(".picture img")].every((image) => image.complete && image.naturalWidth));
  await page.waitForTimeout(120);
};
async function join(page, url, name) {
  await page.goto(`${url}/`);
  await page.fill("#name", name);
  await page.keyboard.press("Enter");
  await ready(page);
}
const link = async (owner, name) => {
  const answer = await fetch(`${owner}raters`, { method: "POST", body: JSON.stringify({ names: [name] }) });
  return new URL((await answer.json()).links[0].link, owner).href;
};
const state = async (owner) => (await fetch(`${owner}state`)).json();
const sheet = async (rater) => (await fetch(`${rater}sheet`)).json();
const place = (page) => page.textContent("#place");
const seen = (page) => page.waitForFunction(() => document.getElementById("room").classList.contains("ready"));
/** Page through with the keyboard until every slide was in view long enough. */
async function look(page) {
  for (let n = 0; n < 60; n += 1) {
    const done = await page.evaluate(() => document.getElementById("room").classList.contains("ready"));
    if (done) return;
    await page.waitForFunction(() => { // the slide in view counts
      const at = Number(document.getElementById("slide").textContent.match(/\d+/)[0]) - 1;
      return ["left", "right"].every((side) => { const thumb = document.querySelectorAll(`#${side} .thumb`)[at]; return !thumb || thumb.classList.contains("seen"); });
    });
    await page.keyboard.press("ArrowRight");
  }
  await seen(page);
}
/** No violation of axe, in light and in dark colours; what not every run looks at is `rare`. */
async function accessible(page, what, rare = true) {
  if (rare && !whole) return;
  await page.evaluate(axe);
  for (const colorScheme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme });
    await audit(page, `${what}, ${colorScheme}`);
  }
  await page.emulateMedia({ colorScheme: null });
}
async function audit(page, what) {
  const found = await page.evaluate(async () => (await window.axe.run(document, { resultTypes: ["violations"] })).violations.map(({ id, impact, nodes }) => ({ id, impact, at: nodes[0].target.join(" "), n: nodes.length })));
  for (const each of found) trouble.push(`axe, ${what}: ${each.impact} ${each.id} at ${each.at} (${each.n})`);
}

async function shots(folder) {
  mkdirSync(folder, { recursive: true });
  const { url, owner } = await serve();
  const shoot = async (page, name) => { if (await page.locator("#room:not([hidden])").count()) await settled(page); else await page.waitForTimeout(150); await page.screenshot({ path: path.join(folder, `${name}.png`) }); };
  const ada = await link(owner, "Ada");
  for (const [name, how] of [["light", {}], ["dark", { scheme: "dark" }], ["wide", { width: 1920, height: 1080 }], ["laptop", { width: 1280, height: 720 }], ["phone", { width: 390, height: 844, scale: 2, touch: true }], ["phone-dark", { width: 390, height: 844, scale: 2, touch: true, scheme: "dark" }], ["small", { width: 360, height: 640, scale: 2, touch: true }]]) {
    const page = await visitor(how);
    await page.goto(`${url}/`);
    await shoot(page, `${name}-start`);
    await page.goto(ada);
    await ready(page);
    await shoot(page, `${name}-first`);
    await look(page);
    await shoot(page, `${name}-ready`);
    await page.keyboard.press("w");
    await shoot(page, `${name}-why`);
    await page.keyboard.press("w");
    await page.keyboard.press("1");
    await shoot(page, `${name}-large`);
    await page.keyboard.press("Escape");
    await page.keyboard.press("?");
    await shoot(page, `${name}-help`);
    await page.keyboard.press("Escape");
    await page.evaluate(() => document.body.classList.add("full"));
    await shoot(page, `${name}-full`);
    await page.goto(owner);
    await ready(page);
    await shoot(page, `${name}-owner`);
    await page.context().close();
  }
}

/** Two windows of one person: the second learns of the first. */
async function windows(ben) {
  const other = seldom(await ben.context().newPage());
  await other.goto(ben.url());
  await ready(other);
  await look(ben);
  await look(other);
  await ben.keyboard.press("l");
  await ben.waitForFunction(() => document.getElementById("saved").textContent === "Saved");
  await other.keyboard.press("r");
  await other.waitForFunction(() => document.getElementById("said").textContent === "This pair was voted on in another window.");
  expect("the first one stands", Object.values((await sheet(ben.url())).done).map(({ choice }) => choice).toSorted(), ["left", "tie", "tie"]);

  // What both say while the server is away arrives, and nothing is crowded out by the other's copy
  await look(ben);
  await look(other);
  down = true;
  await kill();
  await ben.keyboard.press("b");
  await ben.keyboard.press("s");
  await other.keyboard.press("r");
  await other.waitForFunction(() => document.getElementById("saved").textContent.startsWith("3 votes not saved yet"));
  await serve();
  for (const page of [ben, other]) await page.waitForFunction(() => !localStorage.getItem(`decksmith-outbox ${location.pathname}`) || localStorage.getItem(`decksmith-outbox ${location.pathname}`) === "[]");
  down = false;
  const both = await sheet(ben.url());
  expect("all of it", [Object.keys(both.done).length, both.skipped.length], [4, 1]);
  await other.close();
  await ben.reload();
  await ready(ben);
}

async function check() {
  let { url, owner } = await serve();
  const ada = await visitor(), ben = await visitor();
  const heard = []; // every text that reached a rater before the end
  ada.on("response", async (answer) => { if (/html|json/.test(answer.headers()["content-type"])) heard.push(JSON.stringify(answer.headers()), await answer.text().catch(() => "")); });
  const votes = {};
  const pairId = (page) => page.evaluate(() => document.querySelector("#left .picture img, #right .picture img").src.split("/").at(-1));

  // Two people at once, one with a name that would like to be markup
  const hostile = '<img src=x onerror=document.title="taken">';
  await ada.goto(`${url}/`);
  await accessible(ada, "start", false);
  await join(ada, url, hostile);
  await ben.goto(`${url}/`);
  await ben.fill("#name", hostile.toUpperCase());
  await ben.keyboard.press("Enter");
  await ben.waitForSelector("#trouble:not([hidden])");
  expect("a name that is taken", await ben.textContent("#trouble"), "This name is taken; if it is yours, open your personal link.");
  await join(ben, url, "Ben");
  const mine = await sheet(ada.url()), bens = await sheet(ben.url());
  expect("both were given the same pairs", mine.pairs.map(({ id }) => id).toSorted(), bens.pairs.map(({ id }) => id).toSorted());
  expect("each in an order of their own", mine.pairs.map(({ id }) => id).join() !== bens.pairs.map(({ id }) => id).join(), true);

  // Before every slide was seen there is no vote
  await ada.keyboard.press("l");
  expect("a vote too early", (await ada.textContent("#said")).replace(/\d+ slides?/, "N slides"), "Look at every slide first: N slides to go.");
  expect("the place stays", await place(ada), `1 of ${mine.pairs.length}`);

  // Time that nobody looks does not count
  const ms = () => ada.evaluate(() => Object.values(JSON.parse(localStorage.getItem(Object.keys(localStorage).find((name) => name.startsWith("decksmith-draft")))))[0].ms);
  const hide = (hidden) => ada.evaluate((value) => { Object.defineProperty(document, "hidden", { configurable: true, get: () => value }); document.dispatchEvent(new Event("visibilitychange")); }, hidden);
  await look(ada);
  await hide(true);
  const before = await ms();
  await pause(400);
  await hide(false);
  await hide(true);
  expect("hidden time is not counted", (await ms()) - before < 300, true);
  await hide(false);

  // The whole queue by keyboard; reasons, a reload in mid-vote, undo, skip, a second person and a server that dies on the way
  await ada.keyboard.press("w");
  await accessible(ada, "why", false);
  await ada.click("#why [data-is='design left']");
  await ada.click("#why [data-is=looks]");
  await ada.keyboard.press("1");
  await accessible(ada, "large");
  expect("one slide large", await ada.getAttribute("#large img", "alt"), `Left deck, slide ${Math.min(Number((await ada.textContent("#slide")).match(/\d+/)[0]), mine.pairs[0].left.length)} of ${mine.pairs[0].left.length}`);
  await ada.keyboard.press("r"); // no vote while a slide is large
  await ada.keyboard.press("Escape");
  expect("closed again", await ada.evaluate(() => document.getElementById("large").open), false);
  await ada.keyboard.press("?");
  await accessible(ada, "help");
  await ada.keyboard.press("Escape");
  const choices = { l: "left", t: "tie", b: "bad", r: "right" };
  let literal = 0;
  for (const [index, pair] of mine.pairs.entries()) {
    expect("the request is shown as it is", await ada.evaluate(() => document.getElementById("request").textContent), pair.request);
    if (pair.request.includes("<")) literal += 1;
    await look(ada);
    if (index === 1) { // what was seen and said survives a reload
      await ada.click("#why [data-is=facts]");
      await ada.reload();
      await ready(ada);
      expect("after a reload all is as it was", await ada.evaluate(() => [document.getElementById("room").classList.contains("ready"), document.querySelector("[data-is=facts]").getAttribute("aria-pressed"), document.getElementById("place").textContent]), [true, "true", `2 of ${mine.pairs.length}`]);
    }
    const key = "ltbr"[index % 4];
    if (index === 2) { await ada.keyboard.press("s"); expect("skipped", (await ada.textContent("#said")), "Skipped. Next pair."); continue; }
    if (index === 3) { // undone and said again
      await ada.keyboard.press("l");
      await ada.keyboard.press("u");
      expect("the same pair again", await ada.evaluate(() => document.getElementById("request").textContent), pair.request);
      expect("and nothing is to be seen twice", await ada.evaluate(() => document.getElementById("room").classList.contains("ready")), true);
    }
    if (index === 4) { // kill -9 between two votes; the page goes on and saves when the server is back
      down = true;
      await kill();
    }
    await ada.keyboard.press(key);
    votes[pair.id] = choices[key];
    if (index === 5) {
      await ada.waitForFunction(() => /^2 votes not saved yet/.test(document.getElementById("saved").textContent));
      const again = await serve();
      expect("the server is where it was", again.url, url);
      await ada.waitForFunction(() => document.getElementById("saved").textContent === "Saved", null, { timeout: 30000 });
      down = false;
    }
    if (index < 2) { await look(ben); await ben.keyboard.press("t"); }
  }
  await ada.waitForSelector("#end:not([hidden])");
  expect("the end", await ada.textContent("#end h1"), "That was all. Thank you!");
  await accessible(ada, "end");
  await ada.waitForFunction(() => document.getElementById("saved").textContent === "Saved");
  const stored = await sheet(ada.url());
  expect("every vote is stored, once, as it was said", Object.fromEntries(Object.entries(stored.done).map(([id, ballot]) => [id, ballot.choice]).toSorted()), Object.fromEntries(Object.entries(votes).toSorted()));
  const { seconds, ...reasons } = stored.done[mine.pairs[0].id];
  expect("the reasons too", reasons, { choice: "left", dimensions: { design: "left" }, tags: ["looks"], seen: true });
  expect("and the time in view", seconds > 0, true);
  expect("one was skipped", stored.skipped, [mine.pairs[2].id]);
  await ada.click("text=Look again at 1 skipped pair");
  await seen(ada);
  await ada.keyboard.press("b");
  await ada.waitForSelector("#end:not([hidden])");
  expect("hostile requests were among them", literal > 0, true);
  expect("the title stayed", await ada.title(), mine.title);
  expect("no element came from a text", await ada.evaluate(() => document.querySelectorAll("img[onerror], iframe, object, embed, script:not([src])").length), 0);
  for (const name of identities) expect(`${name} in what a rater was told`, heard.some((text) => text.includes(name)), false);
  expect("Ben has two", Object.keys((await sheet(ben.url())).done).length, 2);

  if (whole) await windows(ben);

  // Dark, and a phone: swipe, tap, nothing sideways
  const phone = await visitor({ width: 390, height: 844, scheme: "dark", touch: true });
  await phone.goto(await link(owner, "Cleo"));
  await ready(phone);
  await accessible(phone, "phone");
  expect("a phone does not scroll sideways", await phone.evaluate(() => document.documentElement.scrollWidth), 390);
  expect("the two decks are one above the other", await phone.evaluate(() => document.querySelector("#right .picture").getBoundingClientRect().top >= document.querySelector("#left .picture").getBoundingClientRect().bottom), true);
  expect("both and the buttons fit", await phone.evaluate(() => document.querySelector("#right .picture").getBoundingClientRect().bottom <= document.getElementById("votes").getBoundingClientRect().top), true);
  expect("what is still to be seen does not lie over the pager", await phone.evaluate(() => document.getElementById("hint").getClientRects().length === 1 && document.querySelector(".pager").getBoundingClientRect().bottom <= document.getElementById("hint").getBoundingClientRect().top), true);
  await phone.waitForFunction(() => ["left", "right"].every((side) => document.querySelector(`#${side} .thumb`)?.classList.contains("seen") ?? true));
  await phone.evaluate(() => {
    const stage = document.getElementById("stage"), touch = (x) => new Touch({ identifier: 1, target: stage, clientX: x, clientY: 300 });
    stage.dispatchEvent(new TouchEvent("touchstart", { bubbles: true, touches: [touch(300)], changedTouches: [touch(300)] }));
    stage.dispatchEvent(new TouchEvent("touchend", { bubbles: true, touches: [], changedTouches: [touch(100)] }));
  });
  expect("a swipe turns both", (await phone.textContent("#slide")).slice(0, 7), "Slide 2");
  await look(phone);
  await phone.tap(".vote.right");
  await phone.waitForFunction(() => document.getElementById("saved").textContent === "Saved");
  expect("the lower one is the right one", Object.values((await sheet(phone.url())).done).map(({ choice }) => choice), ["right"]);
  await phone.goto(`${url}/r/nonsense/`);
  expect("a wrong link", await phone.textContent("[role=alert]"), "This link is not complete, or belongs to another study.");

  // The owner
  const boss = await visitor();
  await boss.goto(owner);
  await ready(boss);
  await accessible(boss, "owner", false);
  expect("the hostile name is a name", await boss.evaluate(() => document.querySelector("tbody th[scope=row]") && [...document.querySelectorAll("tbody th")].some((cell) => cell.textContent.startsWith("<img src=x"))), true);
  await boss.click("#toggle");
  await boss.click("text=Yes, close and show the counts");
  await boss.waitForFunction(() => document.getElementById("toggle").textContent === "Open again");
  await ben.bringToFront();
  await look(ben);
  await ben.keyboard.press("t");
  await ben.waitForSelector("#end:not([hidden])");
  expect("closed", await ben.textContent("#end h1"), "This study is closed");
  expect("and the counts are there", await ben.evaluate(() => [...document.querySelectorAll("#end tbody th")].map((label) => label.textContent)), identities.toSorted());
  expect("each beside its own votes, however long its name", await ben.evaluate(() => { const top = (cell) => Math.round(cell.getBoundingClientRect().top); return [...document.querySelectorAll("#end tbody tr")].every((row) => top(row.querySelector("th")) === top(row.querySelector("td"))); }), true);
  expect("the late vote is none", Object.keys((await sheet(ben.url())).done).length, whole ? 4 : 2);
  await accessible(ben, "results");
  const now = await state(owner);

  await fetch(`${owner}open`, { method: "POST" });
  for (let n = 0; n < 3; n++) await fetch(`${url}/join`, { method: "POST", body: JSON.stringify({ name: `Guest ${n}` }) });

  // They came from one network, and the owner sees it while the study is open
  const together = boss.locator("th .names", { hasText: "names of one network" });
  await together.first().waitFor();
  expect("names of one network are marked", await together.count() >= 3, true);
  expect("names are texts", await boss.getByRole("region", { name: "People" }).evaluate((node) => node.querySelectorAll("img, script").length), 0);
  await accessible(boss, "people");
  return { votes: now.votes, raters: now.raters.length };
}
const identities = (process.env.IDENTITIES || "").split(",").filter(Boolean);

let status = 0;
try {
  if (checks) {
    const summary = await check();
    console.log(JSON.stringify({ ...summary, trouble }));
    status = trouble.length ? 1 : 0;
  }
  if (mode === "shots") await shots(out);
  if (mode === "screenshot") {
    const { owner } = await serve(), page = await visitor({ width: 1080, height: 780, scale: 1.6 });
    await page.goto(await link(owner, "Somebody"));
    await ready(page);
    await look(page);
    await page.keyboard.press("Home");
    await page.keyboard.press("ArrowRight");
    await settled(page);
    await page.screenshot({ path: out });
  }
} catch (error) {
  trouble.push(error.stack);
} finally {
  if (trouble.length && (!checks || !status)) { console.error(trouble.join("\n")); status = 1; }
  await close();
  server?.kill("SIGTERM");
  await server?.ended;
}
process.exit(status);
