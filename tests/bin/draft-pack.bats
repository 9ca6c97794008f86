load ../helper

setup() {
  cp -r "$FIXTURES/drafts/kept" kept
  seed=$(tr -d '\n' < kept/seed.json)
  for id in a b; do printf '{"id":"%s","seed":%s,"draft":{"path":"kept"},"check":{"faults":[]}}\n' $id "$seed"; done > in.jsonl
  echo '{"id":"c","seed":{},"draft":{"error":{"kind":"infra","class":"x","message":"y"}}}' >> in.jsonl
  echo '{"id":"d","seed":{},"draft":{"path":"kept"},"check":{"error":{"kind":"model","class":"x","message":"y"}}}' >> in.jsonl
}


@test "help is one sentence and a pipe" {
  run draft-pack --help
  assert_success
  assert_line --index 0 "Pack checked drafts into chat rows: system, user, assistant with the deck and the reasoning apart."
}

@test "good records become rows, faults end here and are counted, lengths are told" {
  run --separate-stderr draft-pack --cheatsheet 0 --limit 8000 < in.jsonl
  assert_success
  assert_equal "$(echo "$output" | wc -l)" 2
  assert_equal "$(echo "$output" | grep -o '^{"id":"[ab]"\|"role":"[a-z]*"\|"reasoning_content":"## R' | tr -d '{"\n')" \
    "id:arole:systemrole:userrole:assistantreasoning_content:## Rid:brole:systemrole:userrole:assistantreasoning_content:## R"
  assert_equal "$(echo "$stderr" | head -1)" "draft-pack: 2 rows; 2 records with a fault left out; tokens (estimated, 3.5 bytes each):"
  assert_equal "$(echo "$stderr" | sed -n '2p;$p')" "$(printf '%12s     0\n%12s     0' 1-1000 'over 8000')"
}

@test "rows over the limit are named" {
  run --separate-stderr draft-pack --limit 500 < in.jsonl
  assert_success
  [[ $stderr == *"draft-pack: a: "*" tokens, over the limit of 500"* ]]
  [[ $stderr == *"draft-pack: b: "*" tokens, over the limit of 500"* ]]
}

@test "two runs give the same bytes" {
  draft-pack < in.jsonl > one
  draft-pack < in.jsonl > two
  run cmp one two
  assert_success
}

@test "a record that was never checked is a bad record" {
  run draft-pack < <(echo '{"id":"x","seed":{},"draft":{"path":"kept"}}')
  assert_failure 65
  assert_output --partial 'stdin:1: x: no "check" in this record'
}

@test "a tokenizer that cannot be used is named" {
  echo '{}' > tokenizer.json
  run draft-pack --tokenizer tokenizer.json < in.jsonl
  assert_failure
  assert_output --partial 'tokenizer'
}
