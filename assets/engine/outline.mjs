// smol-outline: the small model fills a bounded outline, a template makes the deck. What always holds is the
// form: at least four slides, known layouts, nothing that Vue, YAML or a code fence would take for syntax. The
// content is a 135M model's.

const THEMES = ["default", "seriph", "apple-basic", "bricks", "shibainu"];
const WORDS = {
  four: 4,
  five: 5,
  six: 6,
  seven: 7,
  eight: 8,
  nine: 9,
  ten: 10,
  eleven: 11,
  twelve: 12,
  thirteen: 13,
  fourteen: 14,
  fifteen: 15,
};
const NUMBER = `\\d{1,2}|${Object.keys(WORDS).join("|")}`;
// The word for slides in the languages a request may come in.
const SLIDES =
  "(?:slides?|pages?|folien|diapositiv\\w*|diapo\\w*|lâminas?|dia's|slajd\\w*|snímk\\w*|слайд\\w*|枚|张|張|页|頁|スライド|슬라이드|장|bilder|slayt|trang|شرائح|شريحة|of them)";

/** What the request fixes: {count, theme, titles (from an outline in it), topic, features}. */
export function asks(messages) {
  const text = messages
    .filter((m) => m.role === "user")
    .map((m) => m.content)
    .join("\n");
  const number = `(${NUMBER})`;
  const near =
    text.match(
      new RegExp(
        `${number}(?:\\s*(?:-|–|to|bis|à|a)\\s*${number})?[\\s-]*(?:[\\p{L}]+[\\s-]+){0,2}?${SLIDES}`,
        "iu",
      ),
    ) ?? text.match(new RegExp(`${SLIDES}\\s*[:=(]?\\s*${number}`, "iu"));
  const value = (word) => WORDS[word?.toLowerCase()] ?? Number(word);
  const count = near ? Math.min(30, Math.max(4, value(near[1]))) : 8;
  const quoted = "[`\"'*“„«]*";
  const theme =
    [text, messages.map((m) => m.content).join("\n")]
      .map((where) =>
        THEMES.find((name) =>
          new RegExp(
            `\\btheme\\w*\\s*(?:is|of|:|=)?\\s*${quoted}${name}\\b(?!-)|(?<![\\w-])${name}${quoted}\\s+(?:slidev\\s+)?theme`,
            "i",
          ).test(where),
        ),
      )
      .find(Boolean) ??
    THEMES.slice(1).find((name) => new RegExp(`(?<![\\w-])${name}(?![\\w-])`, "i").test(text)) ??
    "default";
  return {
    count,
    theme,
    titles: outlineIn(text),
    topic: topicIn(text),
    wants: {
      mermaid: /mermaid|diagram|flow ?chart|schéma|esquema|図|图|圖|схем/i.test(text),
      table: /\btables?\b|tabel|tableau|tabla|tabul|表|جدول|таблиц/i.test(text),
    },
  };
}

// The titles a request lists: one to a line, or in one line between " / ", "; " or commas. [] when it lists none.
function outlineIn(text) {
  const lines = text.split("\n").map((line) => line.trim());
  const mark = /^(?:[-*•]|\(?(?:\d{1,2}|[a-zA-Z]|[ivxIVX]{1,5})[.):])\s+/;
  const tidy = (list) =>
    list
      .map((item) =>
        item
          .replace(mark, "")
          .replace(/^\d{1,2}\s+(?=\p{Lu})/u, "")
          .replace(/[*_`]/g, "")
          .trim()
          .slice(0, 80),
      )
      .filter(Boolean);
  for (const fits of [
    (line) => mark.test(line),
    (line, i) => i > 0 && line.length < 60 && /[^.!:;,]$/.test(line),
  ])
    for (let i = 0; i < lines.length; i++) {
      let j = i;
      while (j < lines.length && fits(lines[j], j)) j++;
      if (j - i >= 3) return tidy(lines.slice(i, j));
      i = Math.max(i, j - 1);
    }
  for (const [separator, each] of [
    [" / ", /^.{2,80}$/],
    [/[;；] ?/, /^.{2,60}$/],
    [/, |、|，/, /^(?:\p{Lu}|\p{Lo}|\d).{1,50}$/u],
  ])
    for (const line of lines) {
      const parts = line.split(separator);
      // The list begins after a colon and ends with its sentence.
      const first = parts[0].split(/[:：]\s*/).pop(),
        last = parts
          .at(-1)
          .split(/(?<=[.。])(?:\s|$)|\.$/)[0]
          .replace(/\.$/, "");
      const items = [first, ...parts.slice(1, -1), last].map((item) => item.trim());
      if (
        parts.length >= 4 &&
        items.every((item) => each.test(item)) &&
        (separator === " / " || /[:：]/.test(parts[0]))
      )
        return tidy(items);
    }
  return [];
}

// Where a phrase that names the topic ends.
const END = new RegExp(
  '[.;:!?\\n。，、！？：("“”«»]| [-–] | (?:with|using|aimed|mit|con|com|avec|have) |' +
    `,? (?:${NUMBER})[\\s-]${SLIDES}|,? (?:theme |in (?:the )?|tema |thema )?(?:${THEMES.join("|")})\\b|,? in the |,? (?:slides|theme)\\b`,
  "iu",
);
const AUDIENCE = new RegExp(
  " (?:for|für|para|pour|per) (?=[^,]*(?:students?|pupils|undergraduates|children|beginners|newcomers|developers|engineers|" +
    "managers|executives|investors|teachers|researchers|scientists|clinicians|staff|colleagues|teams?|audience|public|experts|board|users|customers)).*$",
  "i",
);

// What the deck is about, as far as patterns find it: a named title, what follows "talk on" and its like, or
// the first clause.
function topicIn(text) {
  const flat = text.replace(/\s+/g, " ").trim();
  const start = flat.slice(0, 360);
  const named =
    flat.match(
      /(?<!\p{L})(?:topic|subject|title|thema|tema|sujet|konu|titled|called|题目是|主题是)\s*[:：]?\s*["“«„]([^"”»“]{4,80})["”»“]/iu,
    ) ?? flat.match(/(?<!\p{L})(?:topic|subject|thema|sujet|konu|argomento)\s*:\s*(.{4,})/iu);
  const after = [
    ...start.matchAll(
      /(?<!\p{L})(?:about|explaining|introducing|covering|explains|teach|über|sobre|(?:talk|deck|slides?|theme|seriph|basic|presentation|lecture|lesson|session|primer|explainer|seminar|pitch|workshop|overview|question)[^.;:!?]{0,60}? on|introduction to|sur)\s+(?=(.{4,}))/giu,
    ),
  ]
    .map((match) => match[1])
    .find(
      (rest) =>
        !new RegExp(
          `^(?:${NUMBER}|slide|mon|tues|wednes|thurs|fri|satur|sun|it\\b|them|which|that|make|build|the (?:next|last|first))`,
          "iu",
        ).test(rest),
    );
  const polite =
    /^(?:please |could you |can you |hi[,!] )*(?:i need|i want|make|create|write|draft|prepare|build|produce|put together|give me|help me)?(?: me| us)?(?: please)? ?/i;
  const phrase =
    (named?.[1] ?? after ?? start.replace(polite, "")).split(END).find((part) => part?.trim().length >= 4) ??
    "";
  const topic = phrase.replace(AUDIENCE, "").replace(/^["'“«„*_\s]+|["'”»“*_,\s]+$/g, "");
  const short =
    topic.length <= 64
      ? topic
      : topic
          .slice(0, 64)
          .replace(/[ ,]+\S*$/, "")
          .replace(DANGLING, "");
  return short.length >= 2 ? short : start.slice(0, 40) || "the topic";
}

const TITLE_LETTERS = 44,
  POINT_LETTERS = 130,
  STEP_TOKENS = 240;

function letters(topic) {
  return /[À-ÿ]/.test(topic) ? "a-zA-ZÀ-ÿ" : "a-zA-Z";
} // a small model drifts where it may

// A title cut at its bound may end on a word that wants another.
const DANGLING =
  /(?: (?:and|or|the|a|an|of|to|in|on|at|by|for|with|from|is|are|as|that|how|how's|your|its|their|der|die|das|und|de|la|el))+$/i;

// How titles begin: a model of this size goes on with a stem far better than it invents a title.
const STEMS = [
  "What Is",
  "Why",
  "How",
  "The Role of",
  "Examples of",
  "Challenges of",
  "Benefits of",
  "Lessons from",
  "The Future of",
];

/** The outline step: a JSON list of `n` slide titles, the first of them being slide number `from` of the content. */
function titlesStep(topic, n, from) {
  const l = letters(topic);
  const items = Array.from({length: n}, (_, k) => `"\\"${STEMS[(from + k) % STEMS.length]} " words "\\""`);
  return {
    messages: [
      {role: "user", content: `Write a JSON list with the titles of ${n} different slides about ${topic}.`},
    ],
    format: {
      kind: "gbnf",
      gbnf: [
        `root ::= "[" ${items.join(' ", " ')} "]"`,
        `words ::= [${l}] word (" " [${l}] word){0,4}`,
        `word ::= [${l.replace("A-Z", "")}']{0,12}`,
      ].join("\n"),
    },
  };
}

/** The step that fills one slide: a JSON list of `n` sentences. */
function pointsStep(topic, title, n) {
  return {
    messages: [
      {
        role: "user",
        content: `${title}? Explain it to an audience that hears about ${topic} for the first time. Answer with a JSON list of ${n} short sentences.`,
      },
    ],
    format: {
      kind: "gbnf",
      gbnf: [
        String.raw`root ::= "[\n" item (",\n" item){${n - 1}} "\n]"`,
        String.raw`item ::= "  \"" [A-Z] [${letters(topic).replace("A-Z", "")} '] [${letters(topic)}0-9 ,'-]{24,${POINT_LETTERS}} ".\""`,
      ].join("\n"),
    },
  };
}

// The whole strings of a JSON list that may have been cut off anywhere; the grammar leaves no escapes in them.
const strings = (text) => [...text.matchAll(/"([^"\n]*)"/g)].map((match) => match[1]);

// The layout of each content slide: the asks first, then a fixed round.
function kind(k, content, ask) {
  if (ask.wants.table && k === Math.min(2, content - 1)) return "table";
  if (ask.wants.mermaid && k === Math.min(3, content - 1)) return "mermaid";
  return ["default", "two-cols", "image-right", "default", "center"][k % 5];
}

// Text as Markdown text: nothing in it may start HTML, a Vue expression, code, a formula, emphasis, a table
// cell or a link.
const plain = (text) =>
  String(text)
    .replace(/\s+/g, " ")
    .trim()
    .replace(/[<>{}`$*_\\|[\]~^#]/g, (c) => `&#${c.charCodeAt(0)};`)
    .replace(/:\/\//g, "&#58;//");
// A double-quoted YAML scalar.
const yaml = (text) =>
  JSON.stringify(String(text).replace(/\s+/g, " ").trim()).replace(
    /[<>{}`]/g,
    (c) => `\\u00${c.charCodeAt(0).toString(16)}`,
  );
// A text that ran into its bound ends at a word.
const whole = (text, bound) => {
  if (text.length < bound) return text.trim();
  const comma = text.lastIndexOf(", ");
  return text
    .slice(0, comma > bound / 3 ? comma : Math.max(text.lastIndexOf(" "), 8))
    .trim()
    .replace(/,$/, "");
};

const bullets = (list) => list.map((point) => `- ${plain(point)}`).join("\n");
const column = (list) => bullets(list.length ? list : ["More in the talk"]);

const FORMS = {
  default: (heading, points) => `---\nlayout: default\n---\n\n${heading}\n\n${bullets(points)}\n`,
  center: (heading, points) => `---\nlayout: center\n---\n\n${heading}\n\n${bullets(points)}\n`,
  "two-cols": (heading, points) => {
    const half = Math.ceil(points.length / 2);
    return `---\nlayout: two-cols\n---\n\n${heading}\n\n${bullets(points.slice(0, half))}\n\n::right::\n\n${column(points.slice(half))}\n`;
  },
  "image-right": (heading, points, query) =>
    `---\nlayout: image-right\nimage-query: ${yaml(query)}\n---\n\n${heading}\n\n${bullets(points)}\n`,
  table: (heading, points) =>
    `---\nlayout: default\n---\n\n${heading}\n\n| No. | Point |\n| --- | --- |\n${points.map((point, i) => `| ${i + 1} | ${plain(point)} |`).join("\n")}\n`,
  mermaid: (heading, points) =>
    `---\nlayout: default\n---\n\n${heading}\n\n\`\`\`mermaid\nflowchart TB\n${points
      .map((point, i) => `  n${i}["${label(point)}"]`)
      .join("\n")}\n${points
      .slice(1)
      .map((_, i) => `  n${i} --> n${i + 1}`)
      .join("\n")}\n\`\`\`\n`,
};

/**
 * Write the deck for `messages`: exactly as many slides as asked for (4 to 30), each handed to `onText` when it is done.
 * `run(step)` asks the weights. Every step is bounded; when `maxTokens` is spent the template says the rest (finish "length").
 */
export async function write(run, messages, sampling, maxTokens, onText) {
  const ask = asks(messages);
  const {topic} = ask;
  const content = ask.count - 2;
  const usage = {prompt_tokens: 0, completion_tokens: 0, total_tokens: 0};
  let finish = "stop",
    text = "";
  const step = async (one) => {
    const left = maxTokens - usage.completion_tokens;
    if (left < 1) {
      finish = "length";
      return [];
    }
    // Held a little tighter than asked: at this size a model rambles and repeats itself, and this is the careful reference.
    const reply = await run({
      stop: [],
      ...one,
      maxTokens: Math.min(left, Math.max(STEP_TOKENS, content * 16)),
      sampling: {
        ...sampling,
        temperature: Math.min(sampling.temperature, 0.6),
        top_p: Math.min(sampling.top_p, 0.95),
        min_p: Math.max(sampling.min_p, 0.05),
        repeat_penalty: Math.max(sampling.repeat_penalty, 1.06),
        repeat_last_n: 256,
      },
    });
    for (const key of Object.keys(usage)) usage[key] += reply.usage[key];
    if (usage.completion_tokens >= maxTokens && reply.finish === "length") finish = "length";
    return strings(reply.text);
  };
  const emit = (slide) => {
    const piece = (text && "\n") + slide;
    text += piece;
    onText?.(piece);
  };

  // An outline as long as the deck counts the cover and the last slide; one shorter counts the last slide.
  const given = [...ask.titles];
  const opening = given.length >= ask.count ? given.shift() : null;
  const closing = given.length > content ? given[content] : null;
  const titles = given.slice(0, content);
  const listed = titles.length;
  if (listed < content)
    for (const title of await step(titlesStep(topic, content - listed, listed)))
      titles.push(whole(title, TITLE_LETTERS).replace(DANGLING, ""));
  const name = opening ?? topic[0].toUpperCase() + topic.slice(1);
  emit(
    `---\ntheme: ${ask.theme}\ntitle: ${yaml(name)}\nlayout: cover\n---\n\n# ${plain(name)}\n\n${plain(titles.slice(0, 3).join(" · "))}\n`,
  );
  const seen = new Set();
  for (let k = 0; k < content; k++) {
    const title = titles[k] ?? `${topic}, part ${k + 1}`;
    const form = kind(k, content, ask);
    const points = (await step(pointsStep(topic, title, form === "two-cols" ? 4 : 3)))
      .map((point) => whole(point, POINT_LETTERS))
      .filter(
        (point) => !(point.length < title.length + 24 && point.toLowerCase().startsWith(title.toLowerCase())),
      ) // says the title again
      .filter((point) => !seen.has(point.toLowerCase()) && seen.add(point.toLowerCase()));
    if (points.length === 0) points.push(`More about ${topic}`);
    emit(
      FORMS[points.length === 1 && form !== "image-right" ? "default" : form](
        `# ${plain(title)}`,
        points,
        listed > k ? title : topic,
      ),
    );
  }
  emit(`---\nlayout: end\n---\n\n# ${plain(closing ?? "Thank you")}\n\nQuestions and comments are welcome.\n`);
  return {text, finish, usage};
}

const label = (text) =>
  text
    .replace(/[^\p{L}\p{N} ,.-]/gu, "")
    .split(" ")
    .slice(0, 4)
    .join(" ");
