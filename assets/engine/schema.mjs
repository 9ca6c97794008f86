// JSON schemas as the embedded engine can honour them: rewritten to what node-llama-cpp's grammar compiler
// knows, refused by name where it would silently ignore a constraint.
import {bad} from "./request.mjs";

const NOTES = new Set([
  "title",
  "description",
  "default",
  "examples",
  "$schema",
  "$id",
  "$comment",
  "deprecated",
  "readOnly",
  "writeOnly",
]);
const KNOWN = new Set([
  "type",
  "properties",
  "required",
  "additionalProperties",
  "items",
  "prefixItems",
  "minItems",
  "maxItems",
  "minLength",
  "maxLength",
  "minProperties",
  "maxProperties",
  "enum",
  "const",
  "oneOf",
  "$ref",
  "$defs",
  "format",
]);
const map = (object, f) => Object.fromEntries(Object.entries(object).map(([k, v]) => [k, f(v, k)]));

/** The schema in the compiler's dialect; throws ApiError 400 naming the first keyword that would not be obeyed. */
export function compile(schema, at = "$") {
  if (schema === true) throw bad(`the schema at ${at} allows anything; give it a type`, "response_format");
  if (typeof schema !== "object" || schema === null || Array.isArray(schema))
    throw bad(`the schema at ${at} must be an object`, "response_format");
  const out = {};
  for (const [key, value] of Object.entries(schema)) {
    if (NOTES.has(key)) continue;
    if (key === "anyOf") out.oneOf = value;
    else if (key === "definitions") out.$defs = value;
    else if (key === "minimum" || key === "maximum") continue;
    else if (!KNOWN.has(key) || (key === "format" && !["date-time", "time", "date"].includes(value)))
      throw bad(`schema keyword '${key}' at ${at} is not supported by the embedded engine`, "response_format");
    else out[key] = value;
  }
  // A bounded integer is a short list of values to a grammar.
  if ("minimum" in schema || "maximum" in schema) {
    const {minimum, maximum} = schema;
    if (
      out.type !== "integer" ||
      !Number.isInteger(minimum) ||
      !Number.isInteger(maximum) ||
      maximum < minimum ||
      maximum - minimum > 1000
    )
      throw bad(
        `'minimum' and 'maximum' at ${at} are supported together, on integers, up to 1000 apart`,
        "response_format",
      );
    return {enum: Array.from({length: maximum - minimum + 1}, (_, i) => minimum + i)};
  }
  if (out.$ref) out.$ref = String(out.$ref).replace("#/definitions/", "#/$defs/");
  if (!out.type && out.properties) out.type = "object";
  for (const key of ["properties", "$defs"])
    if (out[key]) out[key] = map(out[key], (value, name) => compile(value, `${at}.${name}`));
  for (const key of ["oneOf", "prefixItems"])
    if (out[key]) out[key] = out[key].map((value, i) => compile(value, `${at}.${key}[${i}]`));
  if (typeof out.items === "object") out.items = compile(out.items, `${at}[]`);
  if (typeof out.additionalProperties === "object")
    out.additionalProperties = compile(out.additionalProperties, `${at}.*`);
  return out;
}
