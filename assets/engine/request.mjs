// What a /v1/chat/completions body may say. Everything the server cannot honour is refused by name: a sampling
// parameter that is silently dropped would change an experiment.

export class ApiError extends Error {
  constructor(status, message, {param = null, code = null, type = null} = {}) {
    super(message);
    this.status = status;
    this.body = {
      error: {message, param, code, type: type ?? (status < 500 ? "invalid_request_error" : "server_error")},
    };
  }
}

export const bad = (message, param = null, code = null) => new ApiError(400, message, {param, code});

// Keys of the OpenAI API and of OpenRouter that carry no meaning for a local model.
const HARMLESS = new Set([
  "user",
  "metadata",
  "store",
  "service_tier",
  "safety_identifier",
  "prompt_cache_key",
  "usage",
  // What sglang's router adds to whatever it hands on.
  "skip_special_tokens",
  "separate_reasoning",
  "stream_reasoning",
]);

function number(body, key, low, high, {integer = false} = {}) {
  const value = body[key];
  if (value === undefined || value === null) return undefined;
  if (
    typeof value !== "number" ||
    !Number.isFinite(value) ||
    value < low ||
    value > high ||
    (integer && !Number.isInteger(value))
  )
    throw bad(`'${key}' must be ${integer ? "an integer" : "a number"} from ${low} to ${high}`, key);
  return value;
}

function text(content, where) {
  if (typeof content === "string") return content;
  if (!Array.isArray(content)) throw bad(`'${where}.content' must be a string or a list of parts`, where);
  return content
    .map((part, i) => {
      if (part?.type !== "text" || typeof part.text !== "string")
        throw bad(`'${where}.content[${i}]' must be a text part; this model reads text only`, where);
      return part.text;
    })
    .join("");
}

function messages(list) {
  if (!Array.isArray(list) || list.length === 0) throw bad("'messages' must be a non-empty list", "messages");
  return list.map((message, i) => {
    const where = `messages[${i}]`;
    if (typeof message !== "object" || message === null) throw bad(`'${where}' must be an object`, "messages");
    const role = message.role === "developer" ? "system" : message.role;
    if (!["system", "user", "assistant"].includes(role))
      throw bad(`'${where}.role' must be system, developer, user or assistant`, "messages");
    return {role, content: text(message.content, where)};
  });
}

function stops(stop) {
  if (stop === undefined || stop === null) return [];
  const list = Array.isArray(stop) ? stop : [stop];
  if (list.length > 16 || list.some((s) => typeof s !== "string" || s === ""))
    throw bad("'stop' must be a non-empty string or at most 16 of them", "stop");
  return list;
}

function format(value) {
  if (value === undefined || value === null || value.type === "text") return null;
  if (value.type === "json_object") return {kind: "json"};
  if (value.type === "json_schema") {
    const schema = value.json_schema?.schema;
    if (typeof schema !== "object" || schema === null)
      throw bad("'response_format.json_schema.schema' must be an object", "response_format");
    return {kind: "schema", schema, given: value};
  }
  throw bad("'response_format.type' must be text, json_object or json_schema", "response_format");
}

/** {model, messages, sampling, maxTokens, stop, format, stream, includeUsage, countsOn} of a body; throws ApiError 400. */
export function parse(body) {
  if (typeof body !== "object" || body === null || Array.isArray(body))
    throw bad("the body must be a JSON object");
  if (typeof body.model !== "string") throw bad("'model' must be a string", "model");
  for (const key of ["stream"])
    if (![undefined, null, true, false].includes(body[key])) throw bad(`'${key}' must be true or false`, key);
  if ((body.n ?? 1) !== 1) throw bad("'n' must be 1; ask several times with different seeds", "n");
  if (body.logprobs) throw bad("'logprobs' is not supported by the embedded engine", "logprobs");
  const known = new Set([
    "model",
    "messages",
    "stream",
    "stream_options",
    "n",
    "logprobs",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "seed",
    "max_tokens",
    "max_completion_tokens",
    "stop",
    "response_format",
    "grammar",
    "frequency_penalty",
    "presence_penalty",
    "repeat_penalty",
    "repeat_last_n",
  ]);
  for (const [key, value] of Object.entries(body))
    // What is false asks for nothing.
    if (!known.has(key) && !HARMLESS.has(key) && value !== null && value !== false)
      throw bad(`'${key}' is not supported by the embedded engine`, key);
  if (body.grammar != null && (typeof body.grammar !== "string" || body.response_format != null))
    throw bad("'grammar' must be a GBNF string, without 'response_format' beside it", "grammar");
  return {
    model: body.model,
    messages: messages(body.messages),
    sampling: {
      temperature: number(body, "temperature", 0, 10) ?? 1,
      top_p: number(body, "top_p", 0, 1) ?? 1,
      top_k: number(body, "top_k", 0, 1e6, {integer: true}) ?? 40, // llama.cpp's default; 0 turns it off
      min_p: number(body, "min_p", 0, 1) ?? 0,
      seed: number(body, "seed", Number.MIN_SAFE_INTEGER, Number.MAX_SAFE_INTEGER, {integer: true}) ?? null,
      frequency_penalty: number(body, "frequency_penalty", -2, 2) ?? 0,
      presence_penalty: number(body, "presence_penalty", -2, 2) ?? 0,
      repeat_penalty: number(body, "repeat_penalty", 0.1, 10) ?? 1, // llama.cpp's names
      repeat_last_n: number(body, "repeat_last_n", 0, 8192, {integer: true}) ?? 64,
    },
    maxTokens:
      number(body, "max_completion_tokens", 1, 1e9, {integer: true}) ??
      number(body, "max_tokens", 1, 1e9, {integer: true}) ??
      Infinity,
    stop: stops(body.stop),
    format: body.grammar != null ? {kind: "gbnf", gbnf: body.grammar} : format(body.response_format),
    stream: body.stream === true,
    includeUsage: body.stream_options?.include_usage === true,
    // vLLM's name: the usage so far in each chunk, for a client that may leave before the end.
    countsOn: body.stream_options?.continuous_usage_stats === true,
  };
}

const READ = {characters: 8192, tokens: 1024}; // of a text that is measured

/** {model, text, most} of a body that asks how likely the first `most` tokens of a text are, {model, messages, reply} of
 *  one that asks how likely a reply is; throws ApiError 400. */
export function parseText(body) {
  if (typeof body !== "object" || body === null || Array.isArray(body))
    throw bad("the body must be a JSON object");
  if (typeof body.model !== "string") throw bad("'model' must be a string", "model");
  if (body.messages !== undefined) {
    const reply = body.tokens;
    if (!Array.isArray(reply) || !reply.length || reply.length > READ.tokens || !reply.every((token) => Number.isInteger(token) && token >= 0))
      throw bad(`'tokens' must be 1 to ${READ.tokens} numbers of tokens`, "tokens");
    return {model: body.model, messages: messages(body.messages), reply};
  }
  if (typeof body.text !== "string" || body.text === "" || body.text.length > READ.characters)
    throw bad(`'text' must be a string of 1 to ${READ.characters} characters`, "text");
  for (const key of Object.keys(body))
    if (!["model", "text", "max_tokens"].includes(key)) throw bad(`'${key}' has no meaning here`, key);
  const most = number(body, "max_tokens", 1, READ.tokens, {integer: true}) ?? READ.tokens;
  return {model: body.model, text: body.text.toWellFormed(), most};
}
