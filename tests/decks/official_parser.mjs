// Answers one JSON string (a deck) per line with the slices of the official @slidev/parser: [{start, end, content, note, title, yaml, data, error}].
// The path of the parser's core module is the only argument.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const core = process.argv[2];
const { parseSync } = await import(pathToFileURL(core).href);
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

for await (const line of createInterface({ input: process.stdin })) {
  console.log(JSON.stringify(parseSync(JSON.parse(line), "deck.md", { noParseYAML: true }).slides.map(slice)));
}
