# marks: slow
load ../helper

setup() {
  cp -r "$FIXTURES/drafts/kept" kept
  seed=$(tr -d '\n' < kept/seed.json)
  for id in a b; do printf '{"id":"%s","seed":%s,"draft":{"path":"kept"},"check":{"faults":[]}}\n' $id "$seed"; done > in.jsonl
  echo '{"id":"c","seed":{},"draft":{"error":{"kind":"infra","class":"x","message":"y"}}}' >> in.jsonl
  echo '{"id":"d","seed":{},"draft":{"path":"kept"},"check":{"error":{"kind":"model","class":"x","message":"y"}}}' >> in.jsonl
}


@test "good records become rows, faults end here and are counted, lengths are told" {
  run --separate-stderr draft-pack --cheatsheet 0 < in.jsonl
  assert_success
  assert_equal "$(echo "$output" | wc -l)" 2
  assert_equal "$(echo "$output" | grep -o '^{"id":"[ab]"\|"role":"[a-z]*"\|"reasoning_content":"## R' | tr -d '{"\n')" \
    "id:arole:systemrole:userrole:assistantreasoning_content:## Rid:brole:systemrole:userrole:assistantreasoning_content:## R"
  assert_equal "$(echo "$stderr" | head -1)" "draft-pack: 2 rows; 2 records with a fault left out"
  assert_regex "${stderr_lines[1]}" "^draft-pack: tokens of a row \(estimated\): [0-9]+ to [0-9]+, half of them up to [0-9]+$"
}

# marks: long
# first: good records become rows, faults end here and are counted, lengths are told
@test "two runs give the same bytes" {
  draft-pack < in.jsonl > one
  draft-pack < in.jsonl > two
  run cmp one two
  assert_success
}

# marks: long
# first: good records become rows, faults end here and are counted, lengths are told
@test "a record that was never checked is a bad record" {
  run draft-pack < <(echo '{"id":"x","seed":{},"draft":{"path":"kept"}}')
  assert_failure 65
  assert_output --partial 'stdin:1: x: no "check" in this record'
}
