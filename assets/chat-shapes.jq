# The shapes in which people have chat data, and what becomes of each: {"shape", "row"}, where row is a conversation (messages, tools) or a
# pair of them (context, completions); or {"unfit"}, why nothing can be trained of it. A shape is told from the columns that a row has.

def unfit($why): error("unfit: \($why)");

# How people name the columns. One is found by the first of its names that a row has.
def names: {
  turns: ["messages", "conversations", "conversation", "dialogue", "dialog", "chat", "turns"],
  prompt: ["instruction", "prompt", "question", "query", "problem", "request", "user", "input"],
  context: ["input", "context", "passage", "document"],
  answer: ["completion", "output", "response", "answer", "answers", "solution", "reply", "target", "assistant"],
  reasoning: ["reasoning_content", "reasoning", "thinking", "thought", "rationale", "chain_of_thought", "cot"],
  system: ["system", "system_prompt"],
  tools: ["tools", "functions"],
  history: ["history"],
  chosen: ["chosen", "preferred_output", "preferred"],
  completions: ["completions"],
  rejected: ["rejected", "non_preferred_output", "dispreferred"],
  id: ["id", "row_id", "uid", "uuid", "_id", "prompt_id", "conversation_id", "idx", "index"],
  split: ["group", "cluster", "source", "domain", "topic", "category", "subject"]
};
def roles: {
  system: "system", developer: "system", user: "user", human: "user", prompter: "user", customer: "user", assistant: "assistant",
  gpt: "assistant", bot: "assistant", model: "assistant", chatgpt: "assistant", ai: "assistant", function_call: "assistant",
  tool: "tool", function: "tool", observation: "tool", function_response: "tool", ipython: "tool"
};
# What somebody wrote, as a few words of a sentence.
def plain: .[:40] | gsub("[^[:print:]]"; "?");
def name($kind): first(names[$kind][] as $name | select(has($name)) | $name) // null;
def maybe($kind): name($kind) as $name | if $name then .[$name] else null end;
def need($kind): maybe($kind) // unfit("no \($kind)");
# A list or an object, also where a text says it as JSON, as the cell of a CSV does.
def parsed: . as $value | if type == "string" and (ltrim | .[:1] | IN("[", "{")) then (try fromjson catch $value) else . end;

def text:
  if . == null then ""
  elif type == "number" then tostring
  elif type == "array" and length == 1 and (.[0] | type) == "string" then .[0]
  elif type == "array" and length > 0 and all(type == "object") then
    if all(.text | type == "string") then map(.text) | join("\n") else unfit("a picture, or another part that is no text") end
  elif type == "string" then . else unfit("a content that is no text") end
  # A text of several lines may be code, whose first line is indented.
  | rtrim | if contains("\n") then sub("^\\s*\n"; "") else ltrim end;

# Without the nulls that a table fills in where a row lacks a key that others have.
def bare: walk(if type == "object" then with_entries(select(.value != null)) else . end);

def call:
  (.function? // .) | .arguments |= (. // {} | parsed | bare)
  | if (.name | type) == "string" and (.arguments | type) == "object" then {type: "function", function: {name, arguments}}
    else unfit("a tool call without name or arguments") end;

# A thought stands apart, also where tags held it in the reply.
def thinking($given):
  (.content | split("</think>")) as $parts
  | if ($parts | length) > 1 and $given == null then
      .content = ($parts[1:] | join("</think>") | text)
      | .reasoning_content = ($parts[0] | sub("^\\s*<think>"; "") | text)
    elif $given | type == "string" then .reasoning_content = ($given | text) else . end
  | if .content + (.reasoning_content // "") | test("</?think>") then unfit("a think tag within the reply") else . end
  | if .reasoning_content == "" then del(.reasoning_content) else . end;

def turn:
  (.role // .from | tostring | ascii_downcase) as $who
  | (roles[$who] // unfit("an unknown role, \($who | plain)")) as $role
  | (if $who == "function_call" then .content // .value | parsed else .tool_calls // .function_call end) as $calls
  | if .weight == 0 then unfit("a message of weight 0, which no trainer here leaves out") else . end
  | maybe("reasoning") as $thought
  | {role: $role, content: (if $who == "function_call" then "" else .content // .value | text end)}
  | if $calls | . == null or . == [] then . else .tool_calls = ([$calls] | flatten(1) | map(call)) end
  | if $role == "assistant" then thinking($thought) else . end;

# Messages of a list, of one message, or of a text that $role says.
def turns($role):
  parsed
  | if type == "object" and has("text") then .text else . end  # SQuAD's answers
  | if type == "object" then [.] else . end
  | if type == "array" and length > 0 and all(type == "object" and (has("role") or has("from"))) then map(turn)
    elif $role then [{$role, content: .} | {role, content} | turn] else unfit("no list of messages") end;

def instructed($row):
  ($row | maybe("system")) as $system
  | if $system == null or .[0].role == "system" then . else ($system | turns("system")) + . end;

def with_tools($row):
  ($row | maybe("tools") | parsed | bare) as $tools
  | if $tools == null then . elif ($tools | type) != "array" or ($tools | all(type == "object") | not) then unfit("tools that are no list of objects")
    else .tools = ($tools | map(if has("function") then . else {type: "function", function: .} end)) end;

def asked($row):
  ($row | need("prompt") | turns("user")) as $request
  | ($row | name("prompt")) as $prompt
  | ($row | first(names.context[] as $name | select($name != $prompt and has($name)) | .[$name]) // null) as $context
  | [$row.history // [] | .[] | (.[0] | turns("user")), (.[1] | turns("assistant"))] + [$request] | add
  | if ($request | length) == 1 and ($context | type) == "string" then .[-1].content += "\n\n" + ($context | text) else . end
  | instructed($row);

# A pair; what both sides begin with is its context.
def ranked($context; $chosen; $rejected):
  if ($chosen | length) > 1 and ($rejected | length) > 1 and $chosen[0] == $rejected[0] then
    ranked($context + [$chosen[0]]; $chosen[1:]; $rejected[1:])
  elif $chosen == $rejected then unfit("two equal answers")
  elif ($chosen | length) != 1 or ($rejected | length) != 1 then unfit("answers to different requests")
  else {$context, completions: [{rank: 0, completion: $chosen}, {rank: 1, completion: $rejected}]} end;

# Two dialogues as one text each, in which every speaker is named.
def transcript:
  [splits("(^|\n\n)(?=(Human|Assistant):)") | select(test("\\S"))
   | capture("^\\s*(?<role>Human|Assistant): ?(?<content>[\\s\\S]*)$") | turn];

# A list of turns, each with who speaks (role, from) and what (content, value). What nobody answers is cut.
def talk:
  . as $row | need("turns") | turns(null)
  | .[:(map(.role == "assistant") | rindex(true) // -1) + 1]
  | {messages: instructed($row)} | with_tools($row);

def request_and_answer:
  . as $row | (need("answer") | turns("assistant")) as $reply
  | maybe("reasoning") as $thought
  | {messages: (asked($row) + if ($thought | type) == "string" and ($reply | length) == 1 then
      [$reply[0] + {reasoning_content: ($thought | text)}] else $reply end)}
  | with_tools($row);

def pair:
  (if .input | type == "object" then .input + del(.input) else . end) as $row  # OpenAI's preference data
  | ($row | need("chosen") | turns("assistant")) as $chosen | ($row | need("rejected") | turns("assistant")) as $rejected
  | ($row | if maybe("tools") != null then unfit("tools, which a pair cannot have")
     elif name("turns") then need("turns") | turns(null) | instructed($row)
     elif name("prompt") and ($chosen | length) == 1 then asked($row) else [] end) as $context
  | ranked($context; $chosen; $rejected);

def our_pair:
  (.completions | sort_by(.rank) | map(.completion | turns(null))) as $sides
  | ranked(.context | turns(null); $sides[0]; $sides[1]);

def shape:
  (maybe("turns") | parsed | .[0]? // null) as $turn | name("prompt") as $prompt | name("answer") as $answer
  | if name("chosen") and name("rejected") then
      if ($prompt or $turn | not) and (need("chosen") | type == "string" and test("^\\s*Human:")) then "preference pairs, transcripts"
      else "preference pairs" end
    elif has("context") and has("completions") then "our own rows"
    elif $turn | type == "object" and has("from") then "ShareGPT"
    elif $turn | type == "object" then if has("messages") and (.id | type == "string") then "our own rows" else "OpenAI messages" end
    elif $prompt == "instruction" and $answer == "output" then "Alpaca"
    elif $prompt == "prompt" and $answer == "completion" then "prompt and completion"
    elif $prompt and $answer then "question and answer"
    elif name("turns") then unfit("no list of messages")
    elif $prompt then unfit("no answer")
    else unfit("none of the columns that are known") end;

# What becomes of each column.
def columns:
  . as $row
  | {turns: "messages", prompt: "user", context: "user", answer: "assistant", reasoning: "reasoning_content", history: "messages"} as $made
  | [names | to_entries[] | .key as $kind | ($row | name($kind)) | select(.) | {(.): ($made[$kind] // $kind)}] | add as $known
  | $row | with_entries(.value = ($known[.key] // "not used") | .key |= plain);

# A conversation that a chat template takes, and of which something is trained.
def checked:
  if .[-1].role != "assistant" then unfit("no reply of an assistant") else . end
  | (first(.[] | select(.content == "" and (has("tool_calls") | not)) | .role) // null) as $empty
  | if $empty then unfit("an empty message of the \($empty)") else . end
  # A letter for each turn: of calls, and of what tools answer, any number; then the reply, or a call last.
  | if map(if has("tool_calls") then "c" else .role[:1] end) | add | test("^s?(u(ct+)*a)*u(ct+)*[ac]$") then .
    else unfit("roles that do not take turns") end
  | if map(.content + (.reasoning_content // "")) | add | test("[\u0000-\u0008\u000e-\u001f\ufffd]") then
      unfit("characters that are no text (of Latin-1: iconv -f LATIN1 -t UTF-8)") else . end;

def made($shape):
  if $shape == "preference pairs" then pair
  elif $shape == "preference pairs, transcripts" then (.chosen | transcript) as $chosen | ranked([]; $chosen; .rejected | transcript)
  elif has("completions") and $shape == "our own rows" then our_pair
  elif $shape | IN("our own rows", "OpenAI messages", "ShareGPT") then talk
  else request_and_answer end
  | if .messages then .messages |= checked
    else .context as $context | .completions |= map(.completion |= ($context + . | checked | .[-1:])) end;

# Names in lower case; a column in which there is nothing is not there.
with_entries(.key |= (ascii_downcase | split(" ") | join("_")) | select(.value | IN(null, "", [], {}) | not))
| if $columns then columns else
    try (shape as $shape | {$shape, id: maybe("id"), group: maybe("split"), reward: .prefer.reward?, row: made($shape)})
    catch {unfit: (if type == "string" and startswith("unfit: ") then .[7:] else "not of the shape that its columns have" end)}
  end
