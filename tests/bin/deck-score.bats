# marks: slow
load ../helper

# Apply a jq program to every line of a file or of stdin (the box may have no jq of its own).
each() {
  "$ROOT/.venv/bin/python3" -c 'import sys, json, jq
program = jq.compile(sys.argv[1])
for line in open(sys.argv[2] if len(sys.argv) > 2 else 0):
    for value in program.input_text(line).all(): print(json.dumps(value, separators=(",", ":")))' "$@"
}

setup() {
  cat > in.jsonl <<'EOF2'
{"id":"a","checklist":[{"id":"c1"},{"id":"c2"}],"render":{"status":"ok","slides":["a/1.png","a/2.png","a/3.png"],"errors":[]},"judge":{"checks":{"passed":6,"of":8},"scores":{"content":2,"design":4,"coherence":3},"checklist":[{"id":"c1","yes":true,"slide":1},{"id":"c2","yes":false,"slide":null}]},"features":{"craft_v5":5,"craft":2}}
{"id":"b","checklist":[{"id":"c1"}],"deck":{"error":{"kind":"model","class":"no-deck","message":"m"}}}
{"id":"c","gen":{"error":{"kind":"infra","class":"timeout","message":"m"}}}
{"id":"d","asks":{"slides":3,"features":["code"]},"render":{"status":"partial","slides":["a/1.png","a/2.png","a/3.png"],"errors":[{"kind":"model","class":"vue-compile","slide":2,"line":9,"message":"m"}]},"judge":{"checks":{"passed":3,"of":4},"scores":{"content":2,"design":2,"coherence":2},"checklist":[]},"features":{"craft_v5":5,"craft":2}}
EOF2
}

@test "weighs by the published protocol, floors what the model failed, and scores no failure of others" {
  run --separate-stderr deck-score --protocol published < in.jsonl
  assert_success
  assert_equal "$(each '[.id,(.score|.overall,.judge_only,.checklist,.rendered,.floored,.fault.stage,.fault.kind)]' <<< "$output")" \
'["a",3.85,3.0833,0.5,true,false,null,null]
["b",1,1,0,false,true,"deck","model"]
["c",null,null,null,false,false,"gen","infra"]
["d",1,1,null,false,true,"render","model"]'
}

# marks: long
# first: weighs by the published protocol, floors what the model failed, and scores no failure of others
@test "the offline protocol accepts a deck with an error slide and gives the share of checks; every other key passes, without a journal" {
  run --separate-stderr deck-score --protocol offline < in.jsonl
  assert_success
  said=$output
  assert_equal "$(each '[.id,(.score|.checks,.overall,.floored)]' <<< "$output")" \
'["a",0.75,null,false]
["b",null,null,true]
["c",null,null,false]
["d",0.75,null,false]'
  run diff <(each 'del(.score)' <<< "$said") <(each "." in.jsonl)
  assert_success
  refute [ -e journal ]
}

# marks: long
# first: tests/judging/test_protocol.py::test_a_score_that_is_there_already_does_not_stand_in_the_way
@test "scoring again with other weights replaces the score" {
  deck-score --protocol offline < in.jsonl > first.jsonl
  deck-score --protocol published < first.jsonl > second.jsonl
  deck-score --protocol published < in.jsonl > direct.jsonl
  run diff <(each 'del(..|.by?)' second.jsonl) <(each 'del(..|.by?)' direct.jsonl)
  assert_success
}

# marks: long
# first: weighs by the published protocol, floors what the model failed, and scores no failure of others
@test "a record that skipped the judge is named" {
  run deck-score < <(each 'del(.judge)' in.jsonl)
  assert_failure 65
  assert_line --partial 'a: no judge.checks in this record; deck-judge writes it'
}
