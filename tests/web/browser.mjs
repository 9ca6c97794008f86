// The pinned Chromium of the renderer for a test of pages. playwright-core and axe-core come from tests/node_modules (PLAYWRIGHT names
// another folder that has them in its node_modules).
import { createRequire } from "node:module";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { unpack } from "../../assets/renderer/browser.mjs";

export const tests = path.resolve(path.dirname(fileURLToPath(import.meta.url)), "..");
const need = createRequire(path.join(process.env.PLAYWRIGHT || tests, "package.json"));
export const axe = readFileSync(need.resolve("axe-core/axe.min.js"), "utf8"); // to be evaluated in a page

/** {browser, close}: a browser with a home of its own, which goes with it. */
export async function start() {
  const home = mkdtempSync(path.join(tmpdir(), "decksmith-browser-"));
  const folder = await unpack();
  const browser = await need("playwright-core").chromium.launch({
    executablePath: path.join(folder, "chromium"),
    args: ["--no-sandbox", "--no-zygote", "--disable-gpu", "--disable-dev-shm-usage", "--font-render-hinting=none", "--disable-lcd-text", "--force-color-profile=srgb"],
    env: { HOME: home, XDG_CACHE_HOME: home, TMPDIR: home, TZ: "UTC", LANG: "C.UTF-8", FONTCONFIG_FILE: path.join(folder, "fonts.conf"), LD_LIBRARY_PATH: path.join(folder, "lib") },
  });
  return { browser, async close() { await browser.close(); rmSync(home, { recursive: true, force: true }); } };
}

/** A page that looks now and then whether what it waits for is there: by default Playwright has the browser draw a frame for each look. */
export function seldom(page) {
  const wait = page.waitForFunction.bind(page);
  page.waitForFunction = (wanted, given, how) => wait(wanted, given, { polling: 100, ...how });
  return page;
}
