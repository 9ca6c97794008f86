// The embedded backend: llama.cpp through node-llama-cpp's prebuilt binaries, on the CPU, or with `gpu` on a GPU where
// one is and its build is installed (as many layers as fit).
//
// With one slot (the default) the same request with the same seed gives the same bytes on one machine, whatever
// was asked before: requests to an adapter run one after the other, each from an empty context, with a sampler of
// its own. Another adapter has a context of its own, and works beside it.
// Several slots share batches; neighbours then change the arithmetic, and that promise is gone.
import {Template} from "@huggingface/jinja";
import {getLlama, LlamaGrammarEvaluationState, LlamaLogLevel} from "node-llama-cpp";
import {bad} from "./request.mjs";
import {compile} from "./schema.mjs";
import {splitter} from "./thoughts.mjs";

const PIECE = 64; // tokens of a text that are measured at once: between two pieces a client may leave

const JSON_OBJECT = String.raw`
root ::= object
value ::= object | array | string | number | "true" | "false" | "null"
object ::= "{" ws (pair ("," ws pair)*)? "}"
pair ::= string ":" ws value
array ::= "[" (value ("," ws value)*)? "]"
string ::= "\"" char* "\""
char ::= [^"\\\x00-\x1F] | "\\" (["\\/bfnrt] | "u" [0-9a-fA-F]{4})
number ::= "-"? ([0-9] | [1-9] [0-9]{0,15}) ("." [0-9]{1,15})? ([eE] [-+]? [0-9]{1,3})?
ws ::= " "?
`;

/** Admits at most `n` at a time, first come first served; a waiter whose signal aborts leaves the line. */
function gate(n) {
  const line = [];
  let free = n;
  const release = () => {
    const next = line.shift();
    if (next) next.enter();
    else free++;
  };
  return async (signal, work) => {
    signal.throwIfAborted();
    if (free > 0) free--;
    else
      await new Promise((resolve, reject) => {
        const waiter = {enter: resolve};
        line.push(waiter);
        signal.addEventListener(
          "abort",
          () => {
            const i = line.indexOf(waiter);
            if (i >= 0) {
              line.splice(i, 1);
              reject(signal.reason);
            }
          },
          {once: true},
        );
      });
    try {
      signal.throwIfAborted();
      return await work();
    } finally {
      release();
    }
  };
}

/** Cuts a stream of text at the first stop string; holds back what may be the beginning of one. */
function cutter(stops) {
  let held = "";
  return {
    push(piece) {
      held += piece;
      let at = -1;
      for (const stop of stops) {
        const i = held.indexOf(stop);
        if (i >= 0 && (at < 0 || i < at)) at = i;
      }
      if (at >= 0) {
        const out = held.slice(0, at);
        held = "";
        return [out, true];
      }
      let keep = 0;
      for (const stop of stops)
        for (let k = Math.min(stop.length - 1, held.length); k > keep; k--)
          if (held.endsWith(stop.slice(0, k))) {
            keep = k;
            break;
          }
      const out = held.slice(0, held.length - keep);
      held = held.slice(held.length - keep);
      return [out, false];
    },
    rest: () => held,
  };
}

// llama.cpp reads 2^32 - 1 as "random".
const seed32 = (seed) =>
  seed === null
    ? Math.floor(Math.random() * 0xfffffffe)
    : Math.min(Number(BigInt.asUintN(32, BigInt(seed))), 0xfffffffe);

/** Load the model; adapters = {name: path of a LoRA in GGUF}. Returns {run, likelihood, describe}. */
export async function load({modelPath, adapters = {}, threads, parallel = 1, contextSize = 8192, gpu = false}) {
  const log = (level, message) => process.stderr.write(`llama: ${level}: ${message}\n`);
  const llama = await getLlama({
    gpu: gpu ? "auto" : false,
    build: "never",
    skipDownload: true,
    maxThreads: 0,
    logLevel: LlamaLogLevel.error,
    logger: log,
  });
  const model = await llama.loadModel({modelPath, gpuLayers: {fitContext: {contextSize}}});
  const source = model.fileInfo.metadata?.tokenizer?.chat_template;
  if (!source) throw new Error(`${modelPath} carries no chat template`);
  const template = new Template(source);
  const thinks = source.includes("</think>");
  const size = Math.min(contextSize, model.trainContextSize);
  const contexts = new Map();

  function context(adapter) {
    if (!contexts.has(adapter)) {
      const made = model
        .createContext({
          contextSize: size,
          sequences: parallel,
          threads,
          lora: adapter ? adapters[adapter] : undefined,
        })
        .then((made) => ({idle: Array.from({length: parallel}, () => made.getSequence()), enter: gate(parallel)}));
      contexts.set(adapter, made);
      made.catch(() => contexts.delete(adapter));
    }
    return contexts.get(adapter);
  }
  await context("");

  async function constraint(format) {
    if (!format) return undefined;
    let gbnf = format.kind === "json" ? JSON_OBJECT : format.gbnf;
    if (format.kind === "schema") {
      const schema = compile(format.schema);
      // The compiler ends the root rule with four newlines, a trigger of its own chat class; ours ends with the value.
      let made;
      try {
        made = (await llama.createGrammarForJsonSchema(schema)).grammar;
      } catch (error) {
        throw bad(`the schema does not compile: ${error.message}`, "response_format");
      }
      gbnf = made.replace(/ "\\n\\n\\n\\n" \[\\n\]\*/, "");
      if (gbnf === made) throw new Error("the schema compiler changed its root rule");
    }
    try {
      return new LlamaGrammarEvaluationState({model, grammar: await llama.createGrammar({grammar: gbnf})});
    } catch (error) {
      throw bad(
        `the grammar does not compile: ${error.message}`,
        format.kind === "gbnf" ? "grammar" : "response_format",
      );
    }
  }

  /** {prompt, tokens} of a conversation, as the model's own template has it. */
  function templated(ask) {
    const prompt = template.render({
      messages: ask.messages,
      add_generation_prompt: true,
      // A reply of a given form is all answer.
      ...(ask.format ? {enable_thinking: false} : {}),
      bos_token: model.tokens.bosString ?? "",
      eos_token: model.tokens.eosString ?? "",
    });
    const tokens = model.tokenize(prompt, true);
    if (model.tokens.shouldPrependBosToken && model.tokens.bos !== null && tokens[0] !== model.tokens.bos)
      tokens.unshift(model.tokens.bos);
    if (tokens.length + (ask.reply?.length ?? 0) >= size)
      throw bad(
        `the prompt has ${tokens.length} tokens, the context holds ${size}`,
        "messages",
        "context_length_exceeded",
      );
    return {prompt, tokens};
  }

  async function generate(sequence, ask, signal, onText) {
    const {prompt, tokens} = templated(ask);
    const limit = Math.min(ask.maxTokens, size - tokens.length - 1);
    const s = ask.sampling;
    const made = [];
    const penal = s.frequency_penalty || s.presence_penalty || s.repeat_penalty !== 1;
    const options = {
      temperature: s.temperature,
      topP: s.top_p,
      topK: s.top_k,
      minP: s.min_p,
      seed: seed32(s.seed),
      grammarEvaluationState: await constraint(ask.format),
      repeatPenalty: penal
        ? {
            punishTokens: () => made.slice(made.length - Math.min(made.length, s.repeat_last_n)),
            maxPunishTokens: Math.max(1, s.repeat_last_n),
            penalty: s.repeat_penalty,
            frequencyPenalty: s.frequency_penalty,
            presencePenalty: s.presence_penalty,
          }
        : undefined,
    };
    const cut = cutter(ask.stop);
    const parts = thinks && !ask.format ? splitter(/<think>\s*$/.test(prompt)) : null;
    let text = "",
      reasoning = "",
      thoughtTokens = 0,
      pending = [],
      finish = "stop";
    const pass = ({thought, answer}) => {
      reasoning += thought;
      text += answer;
      if (thought) onText?.(thought, "reasoning", counted());
      if (answer) onText?.(answer, "text", counted());
    };
    const counted = () => ({
      prompt_tokens: tokens.length,
      completion_tokens: made.length,
      total_tokens: tokens.length + made.length,
      ...(reasoning ? {completion_tokens_details: {reasoning_tokens: thoughtTokens}} : {}),
    });
    const hear = (piece) => pass(parts ? parts.push(piece) : {thought: "", answer: piece});
    const emit = (piece) => {
      const [out, stopped] = cut.push(piece);
      if (out) hear(out);
      return stopped;
    };
    await sequence.clearHistory();
    let stopped = false;
    if (limit < 1) finish = "length";
    else
      for await (const token of sequence.evaluate(tokens, options)) {
        signal.throwIfAborted();
        made.push(token);
        if (parts?.thinking) thoughtTokens++;
        pending.push(token);
        const piece = model.detokenize(pending);
        // A character may span tokens: wait for its end, but not for ever.
        if (!piece.endsWith("\uFFFD") || pending.length > 8) {
          pending = [];
          stopped = emit(piece);
          if (stopped) break;
        }
        if (made.length >= limit) {
          finish = "length";
          break;
        }
      }
    if (!stopped) {
      if (pending.length) stopped = emit(model.detokenize(pending));
      if (stopped) finish = "stop";
      else if (cut.rest()) hear(cut.rest());
    }
    if (parts) pass(parts.rest());
    return {text, reasoning, finish, usage: counted()};
  }

  /** {characters, bits}: of the first `most` tokens of a text, each after those before it, the first after the token
   *  that begins every text; and how many characters they make. Of a reply, given as tokens, after a conversation:
   *  {prompt, bits, top, top_bits}, the conversation's tokens, and at each place the likeliest token too. */
  async function measure(sequence, ask, signal) {
    const before = ask.reply ? templated(ask).tokens : [model.tokens.bos ?? model.tokens.eos];
    const read = ask.reply ?? model.tokenize(ask.text).slice(0, Math.min(ask.most, size - 1)); // what looks like a control token is text
    const words = model.fileInfo.metadata.tokenizer.ggml.tokens.length;
    if (read.some((token) => token >= words)) throw bad(`the model has ${words} tokens`, "tokens");
    const tokens = [...before, ...read];
    const input = tokens.slice(0, -1).map((token, i) => {
      // The selected token is the likeliest; includeTop sorts the whole vocabulary for it, a third of the time.
      const logits = {filter: {tokens: [tokens[i + 1]], includeSelected: true}};
      return i < before.length - 1 ? token : [token, {generateNext: {logits, totalLogitWeight: true}}];
    });
    const bits = [],
      top = [],
      top_bits = [];
    await sequence.clearHistory();
    for (let i = 0; i < input.length; i += PIECE) {
      signal.throwIfAborted();
      for (const said of await sequence.controlledEvaluate(input.slice(i, i + PIECE))) {
        if (!said) continue; // a token of the conversation
        const {next} = said;
        const logit = next.logits.get(tokens[before.length + bits.length]);
        const [best, highest] = [...next.logits].reduce((a, b) => (b[1] > a[1] ? b : a)); // the weights are exp(logit - highest)
        top_bits.push(Math.log(next.totalLogitWeight) / Math.LN2);
        bits.push(top_bits.at(-1) + (highest - logit) / Math.LN2);
        top.push(best);
      }
    }
    if (ask.reply) return {prompt: before, bits, top, top_bits};
    return {characters: [...model.detokenize(read)].length, bits};
  }

  /** `work(sequence)` with the adapter `adapter` ("" for none), when one of its sequences is idle. */
  async function lend(adapter, signal, work) {
    const {enter, idle} = await context(adapter);
    return enter(signal, async () => {
      const sequence = idle.pop();
      try {
        return await work(sequence);
      } finally {
        idle.push(sequence);
      }
    });
  }
  /** One completion by the weights. */
  const run = (adapter, ask, signal, onText) =>
    lend(adapter, signal, (sequence) => generate(sequence, ask, signal, onText));
  /** How unlikely the weights find a text. */
  const likelihood = (adapter, ask, signal) =>
    lend(adapter, signal, (sequence) => measure(sequence, ask, signal));
  const device = llama.gpu ? {gpu: llama.gpu, gpu_layers: model.gpuLayers} : {};
  return {run, likelihood, describe: {engine: "node-llama-cpp", threads, parallel, context: size, ...device}};
}
