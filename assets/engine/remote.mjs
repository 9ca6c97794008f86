// The other backend: a llama-server (or anything that speaks its API) that somebody already runs, named by
// LLAMA_SERVER. Adapters there are chosen by that server, so only its own weights are offered.
import http from "node:http";
import https from "node:https";
import {ApiError} from "./request.mjs";

function call(url, body, signal) {
  const headers = {"content-type": "application/json"};
  if (process.env.LLAMA_API_KEY) headers.authorization = `Bearer ${process.env.LLAMA_API_KEY}`;
  return new Promise((resolve, reject) => {
    // node:http rather than fetch: a queued completion may be silent for longer than fetch waits.
    const request = (url.protocol === "https:" ? https : http).request(
      url,
      {method: body ? "POST" : "GET", headers, signal},
      resolve,
    );
    request.on("error", (error) =>
      reject(
        signal?.aborted
          ? signal.reason
          : new ApiError(502, `LLAMA_SERVER ${url.origin} cannot be reached: ${error.message}`),
      ),
    );
    request.end(body && JSON.stringify(body));
  });
}

async function all(response) {
  response.setEncoding("utf8");
  let text = "";
  for await (const piece of response) text += piece;
  return text;
}

async function refused(response) {
  const text = await all(response);
  let message = text.slice(0, 500);
  try {
    message = JSON.parse(text).error?.message ?? message;
  } catch {
    /* not JSON: the text itself is the message */
  }
  return new ApiError(response.statusCode, `LLAMA_SERVER said: ${message}`);
}

/** Connect to a llama-server at `base` (http://host:port, with or without /v1). Returns {run, describe}. */
export async function connect(base) {
  const root = base.replace(/\/+$/, "").replace(/\/v1$/, "");
  const listed = await call(new URL(`${root}/v1/models`));
  if (listed.statusCode !== 200) throw await refused(listed);
  const slug = JSON.parse(await all(listed)).data?.[0]?.id;

  async function run(adapter, ask, signal, onText) {
    const s = ask.sampling;
    const body = {
      model: slug,
      messages: ask.messages,
      stream: true,
      stream_options: {include_usage: true},
      temperature: s.temperature,
      top_p: s.top_p,
      top_k: s.top_k,
      min_p: s.min_p,
      frequency_penalty: s.frequency_penalty || undefined,
      presence_penalty: s.presence_penalty || undefined,
      repeat_penalty: s.repeat_penalty,
      repeat_last_n: s.repeat_last_n,
      seed: s.seed ?? undefined,
      max_tokens: Number.isFinite(ask.maxTokens) ? ask.maxTokens : undefined,
      stop: ask.stop.length ? ask.stop : undefined,
      response_format:
        ask.format?.kind === "schema"
          ? ask.format.given
          : ask.format?.kind === "json"
            ? {type: "json_object"}
            : undefined,
      grammar: ask.format?.kind === "gbnf" ? ask.format.gbnf : undefined,
    };
    const response = await call(new URL(`${root}/v1/chat/completions`), body, signal);
    if (response.statusCode !== 200) throw await refused(response);
    let text = "",
      reasoning = "",
      finish = null,
      usage = null,
      line = "";
    response.setEncoding("utf8");
    try {
      for await (const piece of response) {
        const lines = (line + piece).split("\n");
        line = lines.pop();
        for (const one of lines) {
          if (!one.startsWith("data:") || one.includes("[DONE]")) continue;
          const chunk = JSON.parse(one.slice(5));
          if (chunk.error) throw new ApiError(502, `LLAMA_SERVER said: ${chunk.error.message}`);
          const choice = chunk.choices?.[0];
          if (choice?.delta?.reasoning_content) {
            reasoning += choice.delta.reasoning_content;
            onText?.(choice.delta.reasoning_content, "reasoning");
          }
          if (choice?.delta?.content) {
            text += choice.delta.content;
            onText?.(choice.delta.content);
          }
          finish = choice?.finish_reason ?? finish;
          usage = chunk.usage ?? usage;
        }
      }
    } catch (error) {
      if (signal.aborted) throw signal.reason;
      throw error instanceof ApiError ? error : new ApiError(502, `LLAMA_SERVER broke off: ${error.message}`);
    }
    if (finish === null) throw new ApiError(502, "LLAMA_SERVER broke off before the end of its reply");
    return {
      text,
      reasoning,
      finish,
      usage: {
        prompt_tokens: usage?.prompt_tokens ?? 0,
        completion_tokens: usage?.completion_tokens ?? 0,
        total_tokens: usage?.total_tokens ?? 0,
      },
    };
  }
  return {run, describe: {engine: "llama-server", upstream: root, upstream_model: slug}};
}
