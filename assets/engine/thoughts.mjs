// Parts a model's thought from its answer while it writes. Only for a model whose own template knows <think>: for any
// other one the tag is text like any text.
const OPEN = "<think>",
  CLOSE = "</think>";

/** How many characters at the end of `text` may be the beginning of `tag`. */
function beginning(text, tag) {
  for (let n = Math.min(tag.length - 1, text.length); n > 0; n--) if (text.endsWith(tag.slice(0, n))) return n;
  return 0;
}

/**
 * A splitter; `open` says that the template has opened the thought already. `push(piece)` and, at the end, `rest()`
 * return `{thought, answer}`: what is certain of what has arrived. `thinking` says where it stands.
 */
export function splitter(open) {
  let held = "",
    state = open ? "thought" : "head";
  const parted = (thought, answer) => ({thought, answer});
  function push(piece) {
    held += piece;
    if (state === "head") {
      const text = held.trimStart();
      if (text.startsWith(OPEN)) {
        held = text.slice(OPEN.length);
        state = "thought";
      } else if (OPEN.startsWith(text)) return parted("", "");
      else state = "answer";
    }
    let thought = "";
    if (state === "thought") {
      const at = held.indexOf(CLOSE);
      if (at < 0) {
        const keep = beginning(held, CLOSE);
        thought = held.slice(0, held.length - keep);
        held = held.slice(held.length - keep);
        return parted(thought, "");
      }
      thought = held.slice(0, at);
      held = held.slice(at + CLOSE.length);
      state = "gap";
    }
    if (state === "gap") {
      held = held.replace(/^\n+/, "");
      if (held) state = "answer";
    }
    const answer = held;
    held = "";
    return parted(thought, answer);
  }
  return {
    push,
    rest: () => (state === "thought" ? parted(held, "") : parted("", held)),
    get thinking() {
      return state === "thought" || state === "head";
    },
  };
}
