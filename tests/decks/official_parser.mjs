// Answers one JSON string (a deck) per line with {slides: the slices of the official @slidev/parser [{start, end, content, note, title, yaml, data, error}],
// shown: [{start, end, note, faulty}], what the renderer shows}. The renderer's folder is the only argument.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const core = `${process.argv[2]}/node_modules/@slidev/parser/dist/core.mjs`;
const { parseSync } = await import(pathToFileURL(core).href);
const { cut } = await import(pathToFileURL(`${process.argv[2]}/compile.mjs`).href);
const YAML = createRequire(core)("yaml");

function slice(slide) {
  const { start, end, content, note, title, frontmatterRaw } = slide;
  let data = null, error = null;
  if (frontmatterRaw) {
    try {
      const doc = YAML.parseDocument(frontmatterRaw);
      if (doc.errors.length) error = doc.errors[0].message;
      else data = doc.toJSON() ?? null;
    } catch (thrown) { error = String(thrown); }
  }
  return { start, end, content, note: note ?? null, title: title ?? null, yaml: frontmatterRaw ?? null, data, error };
}

function shown({ start, end, note, parsed }) {
  return { start, end, note: note ?? null, faulty: parsed.findings.some(finding => finding.class === "yaml") };
}

for await (const line of createInterface({ input: process.stdin })) {
  const text = JSON.parse(line);
  const { slides } = parseSync(text, "deck.md", { noParseYAML: true });
  console.log(JSON.stringify({ slides: slides.map(slice), shown: cut(text).shown.map(shown) }));
}
