// A person with the page of judge-export, from disk in the pinned Chromium: answers by keyboard and by click, reloads, saves.
//
//   node tests/web/audit.mjs PAGE.html FOLDER
//
// Writes answers.json and pictures into FOLDER; prints what stood there, axe's serious findings, and any trouble.
import { mkdirSync } from "node:fs";
import path from "node:path";
import { pathToFileURL } from "node:url";
import { axe, start } from "./browser.mjs";

const [file, out] = process.argv.slice(2);
mkdirSync(out, { recursive: true });
const { browser, close } = await start();
const trouble = [];
const context = await browser.newContext({ viewport: { width: 1360, height: 860 }, acceptDownloads: true });
context.setDefaultTimeout(20000);
const page = await context.newPage();
page.on("console", (message) => ["error", "warning"].includes(message.type()) && trouble.push(message.text()));
page.on("pageerror", (error) => trouble.push(error.message));
page.on("request", (request) => { if (!/^(file|data|blob):/.test(request.url())) trouble.push(`request: ${request.url()}`); });
await page.goto(pathToFileURL(path.resolve(file)).href);
await page.waitForSelector("fieldset.now");
await page.screenshot({ path: path.join(out, "page.png") });
await page.keyboard.press("y");
await page.keyboard.press("n");
await page.locator("fieldset.now button").first().click();
await page.reload();
await page.waitForSelector("#deck h1");
const after = await page.locator("#place").textContent();
// The page's own policy refuses scripts of others: axe stands in an isolated copy of its text.
const looked = await browser.newContext({ viewport: { width: 390, height: 800 }, bypassCSP: true, colorScheme: "dark" });
const phone = await looked.newPage();
await phone.goto(pathToFileURL(path.resolve(file)).href);
await phone.waitForSelector("fieldset.now");
await phone.screenshot({ path: path.join(out, "phone.png") });
const findings = [];
for (const scheme of ["dark", "light"]) {
  await phone.emulateMedia({ colorScheme: scheme });
  await phone.evaluate(axe);
  findings.push(...(await phone.evaluate(async () => (await axe.run()).violations.filter((one) => ["serious", "critical"].includes(one.impact)).map((one) => `${one.id}: ${one.nodes[0].html.slice(0, 200)}`))));
}
const waiting = page.waitForEvent("download");
await page.locator("#save").click();
await (await waiting).saveAs(path.join(out, "answers.json"));
await close();
console.log(JSON.stringify({ after, findings, trouble }));
