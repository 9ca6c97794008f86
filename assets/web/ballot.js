// The booth of a ballot: one file for one person, without a server. Answers are kept in this browser as they are given, and saved as a
// file to send back, signed with this ballot's key (lib/decksmith/study/ballots.py says what that shows).
(() => {
  "use strict";
  const data = JSON.parse(document.getElementById("data").textContent);
  const place = `decksmith ballot ${data.study} ${data.rater}`;
  let kept = [], lasting = true, heard = () => {};

  const read = () => {
    try {
      const found = JSON.parse(localStorage.getItem(place) || "[]");
      if (Array.isArray(found) && found.length >= kept.length) kept = found;
    } catch { lasting = false; }
    return kept;
  };

  // What stands after all that was done: the last vote or skip of each pair that was not taken back.
  const standing = () => {
    const found = new Map();
    for (const { what, pair, key, ballot } of read()) {
      if (what === "undo") found.delete(pair);
      else found.set(pair, { what, key, ballot });
    }
    return found;
  };

  const send = async (action) => {
    if (read().some((one) => one.key === action.key)) return;  // another tab may have written meanwhile: read first
    kept = [...kept, action];
    try { localStorage.setItem(place, JSON.stringify(kept)); } catch { lasting = false; }
    tell();
    heard({ waiting: 0, lost: false });
    if (!lasting) document.getElementById("saved").textContent = "Not kept by this browser";
  };
  addEventListener("beforeunload", (event) => { if (!lasting && kept.length) event.preventDefault(); });

  const sheet = async () => {
    const found = structuredClone(data.sheet), skipped = new Set(found.skipped);
    for (const { what, pair, ballot } of read()) {
      found.acted = (found.acted || []).filter((id) => id !== pair);
      if (what !== "undo") found.acted.push(pair);
      if (what === "vote") found.done[pair] = { choice: ballot.choice, dimensions: ballot.dimensions || {}, tags: ballot.tags || [] };
      else delete found.done[pair];
      if (what === "skip") skipped.add(pair); else skipped.delete(pair);
    }
    return { ...found, skipped: [...skipped] };
  };

  // SHA-256 (FIPS 180-4) and HMAC (FIPS 198-1) over bytes. crypto.subtle is missing where a page is not in a secure context, which a file
  // that a phone's mail program opened may not be.
  const fraction = (x) => ((x - Math.floor(x)) * 2 ** 32) >>> 0;
  const primes = [];
  for (let n = 2; primes.length < 64; n++) if (primes.every((p) => n % p)) primes.push(n);
  const K = primes.map((p) => fraction(Math.cbrt(p)));
  const sha256 = (bytes) => {
    const length = bytes.length, words = new Uint8Array(((length + 72) >> 6) << 6), view = new DataView(words.buffer), w = new Uint32Array(64);
    words.set(bytes);
    words[length] = 0x80;
    view.setUint32(words.length - 8, Math.floor(length / 2 ** 29));
    view.setUint32(words.length - 4, (length << 3) >>> 0);
    const h = Uint32Array.from(primes.slice(0, 8), (p) => fraction(Math.sqrt(p)));
    const turn = (x, n) => (x >>> n) | (x << (32 - n));
    for (let at = 0; at < words.length; at += 64) {
      for (let i = 0; i < 16; i++) w[i] = view.getUint32(at + 4 * i);
      for (let i = 16; i < 64; i++) {
        const a = w[i - 15], b = w[i - 2];
        w[i] = w[i - 16] + (turn(a, 7) ^ turn(a, 18) ^ (a >>> 3)) + w[i - 7] + (turn(b, 17) ^ turn(b, 19) ^ (b >>> 10));
      }
      let [a, b, c, d, e, f, g, x] = h;
      for (let i = 0; i < 64; i++) {
        const one = (x + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) + ((e & f) ^ (~e & g)) + K[i] + w[i]) >>> 0;
        const two = ((turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + ((a & b) ^ (a & c) ^ (b & c))) >>> 0;
        [a, b, c, d, e, f, g, x] = [(one + two) >>> 0, a, b, c, (d + one) >>> 0, e, f, g];
      }
      [a, b, c, d, e, f, g, x].forEach((value, i) => { h[i] += value; });
    }
    const out = new DataView(new ArrayBuffer(32));
    h.forEach((value, i) => out.setUint32(4 * i, value));
    return new Uint8Array(out.buffer);
  };
  const hmac = (key, text) => {
    const pad = (value) => Uint8Array.from({ length: 64 }, (_, i) => (key[i] || 0) ^ value);
    const join = (a, b) => { const all = new Uint8Array(a.length + b.length); all.set(a); all.set(b, a.length); return all; };
    const found = sha256(join(pad(0x5c), sha256(join(pad(0x36), new TextEncoder().encode(text)))));
    return [...found].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  };

  const file = () => {
    const answers = [], skipped = [];
    for (const [pair, { what, key, ballot }] of standing()) what === "vote" ? answers.push({ pair, key, ballot }) : skipped.push({ pair, key });
    const payload = JSON.stringify({ study: data.study, rater: data.rater, at: new Date().toISOString(), answers, skipped });
    return JSON.stringify({ ballot: 1, payload, signature: hmac(Uint8Array.from(data.key.match(/../g), (pair) => parseInt(pair, 16)), payload) });
  };
  const save = () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([file()], { type: "application/json" }));
    link.download = data.file;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60000);
  };

  const places = new Set();
  const tell = () => {
    const found = standing(), open = data.sheet.pairs.filter(({ id }) => !found.has(id) && !(id in data.sheet.done)).length;
    for (const one of places) {
      one.textContent = !lasting ? "This browser keeps nothing: save the file before you close the page."
        : open ? `${open} left. Your answers are kept in this browser; you can close the page and go on later.`
          : "All answered. Save the file and send it back to whoever gave you this page.";
    }
  };
  const button = (name, text) => {
    const one = document.createElement("button");
    one.type = "button";
    one.className = name;
    one.textContent = text;
    one.title = one.ariaLabel = "Save my answers";
    one.addEventListener("click", save);
    return one;
  };
  const finished = (element) => {
    const said = document.createElement("p");
    said.setAttribute("role", "status");
    element.append(said, button("main", "Save my answers"));
    places.clear();
    places.add(said);
    tell();
  };
  document.getElementById("help-open").before(button("plain", "Save"));

  window.booth = { link: "", sheet, send, more: null, finished, listen: (listener) => { heard = listener; },
    picture: (pair, side, index) => `data:image/webp;base64,${data.pictures[pair[side][index]]}` };
})();
