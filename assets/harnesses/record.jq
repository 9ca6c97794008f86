# What the programs of the tables beside this share. $file and $folders (the nearest first) are the log's place; $head is what it
# says of itself, with `metric` and `part`, which are chosen, `scale`, `tool`, and `label`, `revision` and `rules` in words.

# The group of a question, among what its data set says of it.
def group: . as $all | ["group", "cluster", "passage_id", "document_id", "subject", "subset", "category", "topic", "domain", "subfield"]
  | map(. as $key | $all | objects | .[$key] | strings, numbers) | first // null;

# The model in lm-eval's arguments, a text or an object.
def named(given): given | if type == "string" then (capture("(?:pretrained|model)=(?<m>[^,]+)").m)? else .pretrained? // .model? end;

def padded: tostring | "00000"[length:] + .;

def share($of): ($head.scale[1] - $head.scale[0]) as $wide
  | (if type == "boolean" then (if . then 1 else 0 end) else . end) as $value
  | (if ($value | type) == "number" then ($value - $head.scale[0]) / $wide else -1 end) as $share
  | if $share >= -0.000001 and $share <= 1.000001 then [0, ([1, $share] | min)] | max
    else error("\($head.label) is \(tojson | .[:40]), where a score is from \($head.scale[0]) to \($head.scale[1]); bench-import --scale LO,HI names another scale, --metric another score of \($of | keys_unsorted | .[:12] | map(.[:40]) | join(", "))") end;

# A question, a score and a group (a row of the table), with the record's number as `n`, as a graded row of ours less its id.
def record: . as $row | ($row.scores | objects // {}) as $scores | $scores[$head.metric] as $value
  | if ($scores | length) > 0 and ($row.part != $head.part) then {other: true}
    elif $row.sample != null and ($row.sample | type != "number" or . < 0 or . >= 10000 or . != floor) then error("sample \($row.sample | tojson | .[:40]) is no number")
    else {
      question: ($row.question // $row.n | if type == "string" then . elif type == "number" then padded else error("its question is \(tojson | .[:40]), and no id") end),
      task: ({bench: $head.bench, split: null, fields: {}, expected: null, subset: $row.group, revision: $head.revision, metric: $head.label}
        + if $row.prompt then {asked: $row.prompt} else {} end),
      prompt: ($row.asked | if type == "string" then . else tojson end),
      gen: ({text: ($row.text | strings // ""), finish_reason: (if $row.cut == true then "length" else null end), model: {name: $head.model, slug: $head.model},
        sampling: {how: $head.how}, by: {tool: $head.tool}}
        + if $row.sample == null then {} else {sample: {k: $row.sample}} end
        + ([$row.tokens[]? | numbers] | if length == 2 then {usage: {prompt_tokens: .[0], completion_tokens: .[1]}} else {} end)),
      grade: (if $row.error or $value == null then {error: {kind: "infra", class: (if $row.error then $row.error | strings // "no-score" | if test("^[\\w-]{1,40}$") then . else "no-score" end else "no-score" end),
          message: ($row.error // "the log has no score of this row" | tostring | .[:300])}}
        else ($value | share($scores)) as $score | {verdict: (if $score == 1 then "right" elif $row.silent == true and $score == 0 then "no_answer" else "wrong" end),
          score: $score, answer: ($row.answer | strings // null), truncated: ($row.cut == true), detail: {},
          rules: $head.rules} end)
    } end;
