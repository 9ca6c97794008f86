# marks: slow
load ../helper

record() { # id overall [judge]
  printf '{"id":"%s","gen":{"finish_reason":"stop","usage":{"prompt_tokens":5,"completion_tokens":7,"cost":null},"model":{"name":"m","slug":"lab/m","params":{}}},"judge":{"judge":"%s","usage":{}},"score":{"overall":%s,"judge_only":%s,"checklist":1.0,"dimensions":{"design":%s},"rendered":true,"floored":false,"fault":null}}\n' "$1" "${3:-offline-v1}" "$2" "$2" "$2"
}

pick() { "$ROOT/.venv/bin/python3" -c 'import jq, json, sys; print(json.dumps(jq.compile(sys.argv[1]).input_text(sys.stdin.read()).first(), separators=(",", ":")))' "$1"; }

@test "reduces a stream to one object, and writes what was held fixed into the run folder" {
  run --separate-stderr run-summarize --protocol offline --run r < <(record a 2; record b 3; record c 4)
  assert_success
  assert_equal "$(pick '[.model.slug, .judge, .n, .cost, .tokens.completion, .means.floor.overall, .means.renderable.design]' <<< "$output")" \
    '["lab/m","offline-v1",3,null,21,{"mean":3,"lo":1,"hi":5,"n":3},{"mean":3,"lo":1,"hi":5,"n":3}]'
  assert_equal "$(pick '[.protocol, .prompts.count, (.hash | length)]' < r/protocol.json)" '["offline",3,64]'
}

# marks: long
# first: reduces a stream to one object, and writes what was held fixed into the run folder
@test "says what the model was asked with, and by a fingerprint what it was asked" {
  asked() { record "$1" 3 | sed "s/\"model\":{/\"sampling\":{\"top_k\":$2,\"seed\":5},\"request\":\"$1\",&/"; }
  run --separate-stderr run-summarize < <(asked a 3; asked b 3)
  assert_equal "$(pick '[.asked.parameters, (.asked.sha256 | length)]' <<< "$output")" '[{"seed":5,"top_k":3},64]'
  run --separate-stderr run-summarize < <(record a 2)
  assert_equal "$(pick '[.asked, .by.wall_s]' <<< "$output")" '[{"sha256":null,"parameters":{}},null]'
}

# marks: long
# first: reduces a stream to one object, and writes what was held fixed into the run folder
@test "nothing on stdin is refused" {
  run run-summarize < /dev/null
  assert_failure 65
  assert_output 'run-summarize: no records on stdin; a summary needs the scores.jsonl of a run'
}

# marks: long
# first: reduces a stream to one object, and writes what was held fixed into the run folder
@test "two judges in one stream are refused, with both records named" {
  run run-summarize < <(record a 2; record b 3 gemini)
  assert_failure 65
  assert_output 'run-summarize: stdin:2: b: one summary is for one judge, here are two: a has "offline-v1", b has "gemini"'
}

# marks: long
# first: reduces a stream to one object, and writes what was held fixed into the run folder
@test "a record that was never scored is named with its line" {
  run run-summarize < <(record a 2; echo '{"id":"b"}')
  assert_failure 65
  assert_output 'run-summarize: stdin:2: b: no "score" in this record; deck-score writes it'
}
