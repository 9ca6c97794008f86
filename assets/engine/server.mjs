// A thin OpenAI-compatible server for the embedded default model, on loopback unless told otherwise.
//
//   node server.mjs --model weights.gguf [--host H] [--port N | --fd N] [--threads N] [--parallel N]
//       [--lora NAME=PATH].. [--name NAME] [--gpu] [--id TEXT] [--stay]
//
// --name: what the weights are called, in place of the default model's names; --gpu: use one where there is one.
// An adapter without a path is the plain weights under one more name. A --host other than loopback lets other
// machines in: for the nodes of one job.
//
// POST /v1/likelihood {model, text, max_tokens} says how unlikely the beginning of a text is: bits by token. With
// {model, messages, tokens} it says how unlikely a reply is, given as token numbers, and what it would have said.
//
// Without --stay it lives as long as somebody holds GET /lease open: it ends 2 s after the last lease,
// or 30 s after its start if none came. The kernel closes the connections of a killed client, so no way of
// dying leaves an orphan.
import http from "node:http";
import os from "node:os";
import {parseArgs} from "node:util";
import {ApiError, bad, parse, parseText} from "./request.mjs";

const IDLE_MS = 1000 * (Number(process.env.DECKSMITH_IDLE) || 60), // until a connection must have asked something whole
  LINGER_MS = 2000,
  UNLEASED_MS = 30000,
  LOADING_MS = {own: 170000, named: 890000},
  BODY_BYTES = 8 << 20;
const {values: flags} = parseArgs({
  options: {
    model: {type: "string"},
    host: {type: "string", default: "127.0.0.1"},
    port: {type: "string", default: "0"},
    fd: {type: "string"},
    threads: {type: "string"},
    parallel: {type: "string", default: "1"},
    context: {type: "string", default: "8192"},
    lora: {type: "string", multiple: true, default: []},
    name: {type: "string"},
    gpu: {type: "boolean", default: false},
    id: {type: "string", default: ""},
    stay: {type: "boolean", default: false},
  },
});

const say = (message) => process.stderr.write(`engine: ${message}\n`);
const whole = (name, low) => {
  const value = Number(flags[name]);
  if (!Number.isInteger(value) || value < low) {
    say(`--${name} must be an integer, at least ${low}`);
    process.exit(2);
  }
  return value;
};
const adapters = Object.fromEntries(
  flags.lora.map((pair) => {
    const at = pair.indexOf("=");
    if (at < 1) {
      say(`--lora wants NAME=PATH, not ${pair}`);
      process.exit(2);
    }
    return [pair.slice(0, at), pair.slice(at + 1)];
  }),
);
flags.threads ??= String(Math.max(1, os.availableParallelism() - 1));

const watchdog = setTimeout(() => {
  say("loading took too long");
  process.exit(1);
}, LOADING_MS[flags.name ? "named" : "own"]);
let backend;
try {
  const {load} = await import("./llama.mjs");
  backend = await load({
    modelPath: flags.model,
    adapters,
    threads: whole("threads", 1),
    parallel: whole("parallel", 1),
    contextSize: whole("context", 256),
    gpu: flags.gpu,
  });
} catch (error) {
  if (!(error instanceof ApiError)) process.stderr.write(`${error.stack}\n`);
  say(`cannot start: ${error.message}`);
  process.exit(1);
}
clearTimeout(watchdog);

const models = new Map([
  ...(flags.name ? [[flags.name, ""]] : [["smol", ""]]),
  ...Object.entries(adapters).map(([name, path]) => [name, path && name]),
]);
const created = Math.floor(Date.now() / 1000);

let counter = 0;
function known(model) {
  if (!models.has(model))
    throw new ApiError(
      404,
      `the model '${model}' does not exist; there are: ${[...models.keys()].join(", ")}`,
      {param: "model", code: "model_not_found"},
    );
  return models.get(model);
}

/** How unlikely the beginning of a text is: {model, tokens, characters, bits: [one number a token]}, or a reply. */
async function likelihood(body, response, signal) {
  const ask = parseText(body);
  const adapter = known(ask.model);
  const {bits, ...more} = await backend.likelihood(adapter, ask, signal);
  json(response, 200, {model: ask.model, tokens: bits.length, ...more, bits});
}

async function complete(body, response, signal) {
  const ask = parse(body);
  const adapter = known(ask.model);
  const head = {
    id: `chatcmpl-${process.pid}-${++counter}`,
    created: Math.floor(Date.now() / 1000),
    model: ask.model,
  };
  const run = (onText) => backend.run(adapter, ask, signal, onText);
  if (!ask.stream) {
    const {text, reasoning, finish, usage} = await run();
    const thought = reasoning ? {reasoning_content: reasoning.trim()} : {};
    return json(response, 200, {
      ...head,
      object: "chat.completion",
      choices: [{index: 0, message: {role: "assistant", content: text, ...thought}, logprobs: null, finish_reason: finish}],
      usage,
    });
  }
  const send = (data) => response.write(`data: ${typeof data === "string" ? data : JSON.stringify(data)}\n\n`);
  const chunk = (delta, finish = null, usage = null) => ({
    ...head,
    object: "chat.completion.chunk",
    choices: [{index: 0, delta, logprobs: null, finish_reason: finish}],
    ...(ask.includeUsage ? {usage: ask.countsOn ? usage : null} : {}),
  });
  let begun = false;
  const begin = () => {
    if (begun) return;
    begun = true;
    response.writeHead(200, {"content-type": "text/event-stream", "cache-control": "no-cache"});
    send(chunk({role: "assistant", content: ""}));
  };
  try {
    const {finish, usage} = await run((text, kind, counted) => {
      begin();
      send(chunk({[kind === "reasoning" ? "reasoning_content" : "content"]: text}, null, counted));
    });
    begin();
    send(chunk({}, finish));
    if (ask.includeUsage) send({...head, object: "chat.completion.chunk", choices: [], usage});
    send("[DONE]");
  } catch (error) {
    if (!begun || signal.aborted) throw error;
    send(
      error instanceof ApiError
        ? error.body
        : {error: {message: String(error.message), type: "server_error", param: null, code: null}},
    );
  }
  response.end();
}

function json(response, status, body) {
  const data = Buffer.from(JSON.stringify(body));
  response.writeHead(status, {"content-type": "application/json", "content-length": data.length});
  response.end(data);
}

async function read(request) {
  const pieces = [];
  let size = 0;
  for await (const piece of request) {
    if ((size += piece.length) > BODY_BYTES)
      throw new ApiError(413, `the body is larger than ${BODY_BYTES} bytes`);
    pieces.push(piece);
  }
  try {
    return JSON.parse(Buffer.concat(pieces).toString("utf8"));
  } catch (error) {
    throw bad(`the body is not JSON: ${error.message}`);
  }
}

let leases = 0,
  busy = 0,
  farewell = flags.stay ? null : setTimeout(leave, UNLEASED_MS);
function leave() {
  say("nobody holds a lease; ending");
  process.exit(0);
}
function settle() {
  if (flags.stay) return;
  clearTimeout(farewell);
  farewell = leases + busy === 0 ? setTimeout(leave, LINGER_MS) : null;
}

/** A route for what takes long: it keeps the server alive, and ends when its client leaves. */
function work(answer) {
  return async (request, response) => {
    const gone = new AbortController();
    response.on("close", () => gone.abort(new Error("the client went away")));
    busy++;
    settle();
    try {
      await answer(await read(request), response, gone.signal);
    } finally {
      busy--;
      settle();
    }
  };
}

const routes = {
  "GET /health": (request, response) =>
    json(response, 200, {
      status: "ok",
      id: flags.id,
      pid: process.pid,
      leases,
      models: [...models.keys()],
      ...backend.describe,
    }),
  "GET /v1/models": (request, response) =>
    json(response, 200, {
      object: "list",
      data: [...models.keys()].map((id) => ({id, object: "model", created, owned_by: "decksmith"})),
    }),
  "GET /lease": (request, response, url) => {
    if (url.searchParams.get("id") !== flags.id)
      throw new ApiError(409, "this is another server than the one you look for");
    leases++;
    settle();
    response.on("close", () => {
      leases--;
      settle();
    });
    response.writeHead(200, {"content-type": "application/json"});
    response.write(JSON.stringify({id: flags.id, pid: process.pid}) + "\n");
  },
  "POST /v1/chat/completions": work(complete),
  "POST /v1/likelihood": work(likelihood),
};

const server = http.createServer(
  {
    requestTimeout: IDLE_MS,
    headersTimeout: IDLE_MS,
    keepAliveTimeout: IDLE_MS,
    connectionsCheckingInterval: IDLE_MS / 4,
  },
  async (request, response) => {
    try {
      // A page in somebody's browser must not be able to use the machine: it cannot forge these two headers.
      if (
        request.headers.origin ||
        (flags.host === "127.0.0.1" &&
          !/^(127\.0\.0\.1|localhost|\[::1\])(:\d+)?$/.test(request.headers.host ?? ""))
      )
        throw new ApiError(403, "loopback clients only");
      const url = new URL(request.url, "http://127.0.0.1");
      const route = routes[`${request.method} ${url.pathname}`];
      if (!route) throw new ApiError(404, `there is no ${request.method} ${url.pathname}`);
      await route(request, response, url);
    } catch (error) {
      if (response.destroyed) return;
      if (!(error instanceof ApiError)) say(error.stack ?? String(error));
      if (response.headersSent) return response.destroy();
      json(
        response,
        error.status ?? 500,
        error.body ?? {error: {message: String(error.message), type: "server_error", param: null, code: null}},
      );
    }
  },
);
server.listen(
  flags.fd === undefined ? {host: flags.host, port: whole("port", 0)} : {fd: whole("fd", 3)},
  () => {
    say(
      `ready on http://${flags.host}:${server.address().port}/v1 after ${Math.round(performance.now())} ms: ${JSON.stringify(backend.describe)}`,
    );
  },
);
server.on("error", (error) => {
  say(`cannot listen: ${error.message}`);
  process.exit(1);
});
process.on("SIGTERM", () => process.exit(0));
process.on("SIGINT", () => process.exit(0));
