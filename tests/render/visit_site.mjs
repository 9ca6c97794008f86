// Visits a built site in the pinned Chromium, with none of the renderer's walls around it.
//
//   node tests/render/visit_site.mjs     lines of [{"url": .., "keys": ["ArrowRight", ..], "frame": "sandbox flags", "wait": ms, "shots": folder, "blind": no states}, ..]
//
// Prints a line for each: an array with, for each visit, {"states": [{no, text, hidden, hash, all}, ..] (at first and after each key), "trouble": [..] (console, page, failed requests),
// "requests": [..], "pages": n, "url": ..}.
import { createRequire } from "node:module";
import http from "node:http";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import readline from "node:readline";
import { fileURLToPath } from "node:url";
import { unpack } from "../../assets/renderer/browser.mjs";

const tests = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "..");
const { chromium } = createRequire(path.join(tests, "package.json"))("playwright-core");
const home = mkdtempSync(path.join(tmpdir(), "decksmith-visit-"));
const folder = await unpack();
const browser = await chromium.launch({
  executablePath: path.join(folder, "chromium"),
  args: ["--no-sandbox", "--no-zygote", "--disable-gpu", "--disable-dev-shm-usage", "--font-render-hinting=none", "--disable-popup-blocking"],
  env: { HOME: home, XDG_CACHE_HOME: home, TMPDIR: home, TZ: "UTC", LANG: "C.UTF-8", FONTCONFIG_FILE: path.join(folder, "fonts.conf"), LD_LIBRARY_PATH: path.join(folder, "lib") },
});
// Another origin than the site's: a page of our own that shows it in a frame.
let framed = "";
const outer = http.createServer((request, response) => response.writeHead(200, { "content-type": "text/html" }).end(framed));
await new Promise((resolve) => outer.listen(0, "127.0.0.1", resolve));

// Visits wait more than they work: several at once, each in a context of its own. Those in a frame share `framed`, and go alone.
for await (const line of readline.createInterface(process.stdin)) {
  const visits = JSON.parse(line), seen = [];
  const atOnce = visits.some((visit) => visit.frame != null) ? 1 : 4;
  let next = 0;
  await Promise.all(Array.from({ length: atOnce }, async () => {
    while (next < visits.length) {
      const number = next++;
      seen[number] = await look(visits[number]);
    }
  }));
  console.log(JSON.stringify(seen));
}
await browser.close();
outer.close();
rmSync(home, { recursive: true, force: true });

async function look({ url, keys = [], frame = null, wait = 0, shots = null, blind = false }) {
  const context = await browser.newContext({ viewport: { width: 980, height: 552 } });
  const trouble = [], requests = [], states = [];
  context.on("request", (request) => requests.push(request.url()));
  context.on("requestfailed", (request) => trouble.push(`failed: ${request.url()} ${request.failure()?.errorText}`));
  context.on("response", (response) => response.status() >= 400 && trouble.push(`${response.status()}: ${response.url()}`));
  const page = await context.newPage();
  page.on("console", (message) => ["error", "warning"].includes(message.type()) && trouble.push(`console ${message.type()}: ${message.text()}`));
  page.on("pageerror", (error) => trouble.push(`page: ${error.message}`));
  page.on("dialog", (dialog) => { trouble.push(`dialog: ${dialog.message()}`); dialog.dismiss(); });
  page.setDefaultTimeout(30000);

  framed = `<!DOCTYPE html><link rel="icon" href="data:,"><style>html,body,iframe{margin:0;border:0;width:100%;height:100%;display:block}</style><iframe sandbox="${frame}" src="${url}"></iframe>`;
  try {
    await page.goto(frame === null ? url : `http://localhost:${outer.address().port}/`);
    let inner = page.mainFrame();
    if (frame !== null) {
      for (let tries = 0; tries < 100 && !(inner = page.frames()[1]); tries++) await page.waitForTimeout(50);
      await inner.waitForLoadState();
      await inner.locator("body").click({ position: { x: 5, y: 5 } }).catch((error) => trouble.push(`click: ${error.message}`));
    }
    const state = async () => {
      await inner.waitForFunction(() => [...document.querySelectorAll("[data-slidev-no]")].some((el) => el.checkVisibility() && el.querySelector(".slidev-layout, .decksmith-error")), null, { timeout: 20000 });
      await page.waitForTimeout(300);
      await inner.waitForFunction(() => document.fonts.status === "loaded");
      states.push(await inner.evaluate(() => {
        const slide = [...document.querySelectorAll("[data-slidev-no]")].find((el) => el.checkVisibility());
        const hidden = [...slide.querySelectorAll(".slidev-vclick-hidden")].map((el) => el.textContent.trim());
        return { no: Number(slide.dataset.slidevNo), text: slide.innerText, hidden, hash: location.hash, all: document.body.innerText };
      }));
      if (shots) await page.screenshot({ path: path.join(shots, `${String(states.length).padStart(2, "0")}.png`) });
    };
    if (!blind)
      await state();
    for (const key of keys) {
      await page.keyboard.press(key);
      await state();
    }
    await page.waitForTimeout(wait);
  } catch (error) {
    trouble.push(`visit: ${error.message}`);
    if (shots) await page.screenshot({ path: path.join(shots, "error.png") }).catch(() => {});
  }
  const seen = { states, trouble, requests, pages: context.pages().length, url: page.url() };
  await context.close();
  return seen;
}
