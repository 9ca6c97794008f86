# marks: slow
load ../helper

setup() {
  echo '{"id":"t1","messages":[{"role":"user","content":"Emre buys 8 candles at 7 coins each, and pays with 60 coins! How many coins come back?"},{"role":"assistant","content":"4"}]}' > train.jsonl
  echo '{"id":"t2","messages":[{"role":"user","content":"Make slides on corals."},{"role":"assistant","content":"---"}]}' >> train.jsonl
  export DECKSMITH_BENCH=$PWD/bench
}

@test "a question that a training row holds is printed with the row, and counted" {
  run --separate-stderr bench-overlap --lexical --train train.jsonl < <(bench-prepare arithmetic)
  assert_success
  assert_equal "$(jq -c 'select(.id == "arithmetic-00002") | .overlap' <<< "$output")" '{"near":[{"id":"t1","exact":true,"ngram":1,"cosine":null,"quoted":1}]}'
  assert_regex "$stderr" 'bench-overlap: arithmetic: [0-9]+ of 200 questions are near one of 2 training rows'
}

# marks: long
# first: a question that a training row holds is printed with the row, and counted
@test "a training set without any prints nothing" {
  sed -n 2p train.jsonl > other.jsonl
  run bench-overlap --lexical --train other.jsonl < <(bench-prepare arithmetic)
  assert_success
  assert_output 'bench-overlap: arithmetic: 0 of 200 questions are near one of 1 training rows'
}

# marks: long
# first: tests/corpus/test_overlap.py::test_a_text_that_quotes_another_is_found_however_long_it_is
@test "a question that a longer training row quotes is found, wherever in the row it stands" {
  echo '{"id":"held","messages":[{"role":"user","content":"Solve these."},{"role":"assistant","content":"First: Emre buys 8 candles at 7 coins each, and pays with 60 coins! How many coins come back? That is 4. Then the next, which is much longer than the first, and so on."}]}' > pairs.jsonl
  run --separate-stderr bench-overlap --lexical --train pairs.jsonl < <(bench-prepare arithmetic | sed -n 2p)
  assert_success
  assert_equal "$(jq -c '.overlap.near | map([.id, .quoted, .ngram])' <<< "$output")" '[["held",1,null]]'
}
