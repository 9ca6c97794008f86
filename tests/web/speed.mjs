// How fast a report answers: node tests/web/speed.mjs REPORT.html [TIMES]
// Prints {ready_ms, parsed_ms, cpu_ms (the main thread's), heap_mib, scrolled_mib, nodes}, the middle of TIMES visits, each by a browser of its own.
import path from "node:path";
import { pathToFileURL } from "node:url";
import { start } from "./browser.mjs";

const [file, times = "3"] = process.argv.slice(2);

async function visit() {
  const { browser, close } = await start();
  try {
    const page = await (await browser.newContext({ viewport: { width: 1440, height: 900 } })).newPage();
    const devtools = await page.context().newCDPSession(page);
    await devtools.send("Performance.enable", { timeDomain: "threadTicks" });
    await page.goto(pathToFileURL(path.resolve(file)).href, { waitUntil: "commit", timeout: 120000 });
    await page.waitForFunction(() => document.documentElement.dataset.ready, null, { timeout: 120000 });
    const ready = Number(await page.evaluate(() => document.documentElement.dataset.ready));
    const parsed = await page.evaluate(() => Math.round(performance.getEntriesByType("navigation")[0].domInteractive));
    const look = async () => {
      await devtools.send("HeapProfiler.collectGarbage");
      const { metrics } = await devtools.send("Performance.getMetrics");
      return Object.fromEntries(metrics.map(({ name, value }) => [name, value]));
    };
    const first = await look();
    await page.evaluate(async () => {
      const end = document.documentElement.scrollHeight;
      for (let n = 0; n <= 100; n += 1) { scrollTo(0, end * n / 100); await new Promise(requestAnimationFrame); }
    });
    const last = await look();
    return { ready_ms: ready, parsed_ms: parsed, cpu_ms: 1000 * first.ThreadTime, heap_mib: first.JSHeapUsedSize / 2 ** 20, scrolled_mib: last.JSHeapUsedSize / 2 ** 20, nodes: first.Nodes };
  } finally {
    await close();
  }
}

const visits = [];
for (let n = 0; n < Number(times); n += 1) visits.push(await visit());
const middle = (name) => visits.map((one) => one[name]).sort((a, b) => a - b)[visits.length >> 1];
console.log(JSON.stringify(Object.fromEntries(Object.keys(visits[0]).map((name) => [name, middle(name)]))));
