// A person with a ballot from disk, in the pinned Chromium: votes by keyboard, closes the page half way, goes on, saves the answers.
//
//   node tests/web/ballot.mjs BALLOT.html FOLDER [CHOICES]
//
// Writes half.json, answers.json and pictures into FOLDER; prints what was chosen, what was left after the reload, and any trouble: errors,
// and every request that leaves the file. CHOICES: keys, used in turn.
import { mkdirSync } from "node:fs";
import path from "node:path";
import { pathToFileURL } from "node:url";
import { start } from "./browser.mjs";

const [ballot, out, choices = "lrtb"] = process.argv.slice(2);
if (!ballot || !out) {
  console.error("ballot.mjs: usage: ballot.mjs BALLOT.html FOLDER [CHOICES]");
  process.exit(2);
}
mkdirSync(out, { recursive: true });

const { browser, close } = await start();
const trouble = [], chosen = [];
const context = await browser.newContext({ viewport: { width: 1360, height: 860 }, acceptDownloads: true });
context.setDefaultTimeout(20000);

async function open() {
  const page = await context.newPage();
  page.on("console", (message) => ["error", "warning"].includes(message.type()) && trouble.push(`console ${message.type()}: ${message.text()}`));
  page.on("pageerror", (error) => trouble.push(`page: ${error.message}`));
  page.on("request", (request) => { if (!/^(file|data|blob):/.test(request.url())) trouble.push(`request: ${request.url()}`); });
  await page.goto(pathToFileURL(path.resolve(ballot)).href);
  await page.waitForFunction(() => !document.getElementById("room").hidden || !document.getElementById("end").hidden);
  return page;
}
const place = (page) => page.locator("#place").textContent();
async function vote(page, key) {
  for (let tries = 0; !(await page.locator("#room.ready").count()); tries++) {
    if (tries > 60) throw new Error("the slides never count as seen");
    await page.waitForTimeout(270);
    await page.keyboard.press(await page.locator("#next:disabled").count() ? "Home" : "ArrowRight"); // on a slow machine not every look counts
  }
  const before = await page.locator("#place").textContent();
  await page.keyboard.press(key);
  await page.waitForFunction((was) => document.getElementById("place").textContent !== was || !document.getElementById("end").hidden, before);
  chosen.push(key);
}
async function save(page, name) {
  const [download] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "Save my answers" }).last().click()]);
  await download.saveAs(path.join(out, name));
  return download.suggestedFilename();
}

try {
  let page = await open();
  const all = Number((await place(page)).split(" of ")[1]), half = Math.floor(all / 2);
  await page.keyboard.press("l");  // nothing was looked at: this is no vote
  const early = await place(page);
  for (let n = 0; n < half; n++) await vote(page, choices[n % choices.length]);
  await page.keyboard.press("u");  // and the same again
  const key = chosen.pop();
  await vote(page, key);
  await page.screenshot({ path: path.join(out, "voting.png") });
  await save(page, "half.json");
  await page.close();

  page = await open();
  const after = await place(page);
  for (let n = half; n < all; n++) await vote(page, choices[n % choices.length]);
  await page.locator("#end").waitFor();
  await page.screenshot({ path: path.join(out, "end.png") });
  const file = await save(page, "answers.json");

  // A browser that keeps nothing says so, and the file can be saved all the same.
  const private_ = await browser.newContext({ acceptDownloads: true });
  await private_.addInitScript(() => { Storage.prototype.setItem = () => { throw new Error("full"); }; });
  const other = await private_.newPage();
  await other.goto(pathToFileURL(path.resolve(ballot)).href);
  await other.waitForFunction(() => !document.getElementById("room").hidden);
  await other.keyboard.press("s");
  const kept = await other.locator("#saved").textContent();
  await save(other, "kept-nowhere.json");

  console.log(JSON.stringify({ all, half, early, after, kept, chosen: chosen.join(""), file, trouble }));
} finally {
  await close();
}
