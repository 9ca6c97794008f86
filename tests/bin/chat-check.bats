# marks: slow
load ../helper

setup() {
  export HF_HUB_OFFLINE=1 HF_HOME=$BATS_TEST_TMPDIR/hub
  THINKER=$BATS_TEST_TMPDIR/thinker
  cp -r "$FIXTURES/sft/thinker" "$THINKER"
  echo '{"model_type": "llama"}' > "$THINKER/config.json"
  for n in $(seq 20); do
    echo '{"Instruction":"Deck '$n'","Output":"# '$n'"}'
  done > my.jsonl
}

@test "what becomes of the columns, rows as they are trained, and lengths are shown" {
  echo '{"Instruction":"Deck","Output":""}' >> my.jsonl
  run --separate-stderr chat-check --base "$THINKER" --run run --rows 1 my.jsonl
  assert_success
  assert_equal "$(jq -c '[.counts.train, .counts.test, .dropped]' <<< "$output")" '[16,4,{"no answer":["1","line 21"]}]'
  output=$stderr
  mapfile -t lines <<< "$stderr"
  assert_line --index 0 "my.jsonl: 21 rows, Alpaca (JSONL)"
  assert_line --index 1 "instruction -> user, output -> assistant"
  assert_line --index 3 "dropped: 1 x no answer (line 21)"
  assert_output --regexp "\\[\\[.*# [0-9]+"
  assert_output --partial "tokens of 16 conversations, of which 8,192 are taken at most"
  assert_line --regexp "^ +[0-9]+ to +[0-9]+  #{48} 16$"
}

# marks: long
# first: tests/corpus/test_chat_data.py::test_pairs_and_conversations_name_the_target_that_trains_on_them
@test "pairs are looked at by the recipe of pairs" {
  jq -c '{prompt: .Instruction, chosen: .Output, rejected: "No."}' my.jsonl > pairs.jsonl
  run --separate-stderr chat-check --base "$THINKER" --run run pairs.jsonl
  assert_equal "$(jq -c .shapes <<< "$output")" '{"preference pairs":20}'
  grep -q "^dpo:" run/recipe.yaml
}

# marks: long
# first: what becomes of the columns, rows as they are trained, and lengths are shown
@test "a file of another kind is refused in one sentence" {
  printf '%%PDF-1.7\n' > deck.pdf
  run chat-check --run run deck.pdf
  assert_failure 65
  assert_output --regexp "^chat-check: deck.pdf is a PDF, no chat data; DATA= takes JSONL, .* renames others\\)$"
  run chat-check --run run nothing.jsonl
  assert_failure 69
}
