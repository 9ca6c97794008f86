# marks: slow
load ../helper
teardown() { stop_endpoint; }

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

@test "a training set without any prints nothing" {
  sed -n 2p train.jsonl > other.jsonl
  run bench-overlap --lexical --train other.jsonl < <(bench-prepare arithmetic)
  assert_success
  assert_output 'bench-overlap: arithmetic: 0 of 200 questions are near one of 1 training rows'
}

ask() { # MODEL [OPTION..]: about arithmetic-00002 and rows that are alike, equal in other words, and far
  local model=$1
  shift
  bench-prepare arithmetic | sed -n 2p | bench-overlap --lexical --judge-base-url "$URL" --judge-model "$model" --train pairs.jsonl "$@"
}

judges() {
  echo '{"id":"alike","messages":[{"role":"user","content":"Lena buys 5 candles at 7 coins each and pays in coins. How much comes back?"}]}' > pairs.jsonl
  echo '{"id":"held","messages":[{"role":"user","content":"Solve these."},{"role":"assistant","content":"First: Emre buys 8 candles at 7 coins each, and pays with 60 coins! How many coins come back? That is 4. Then the next, which is much longer than the first, and so on."}]}' >> pairs.jsonl
  echo '{"id":"far","messages":[{"role":"user","content":"Make slides on corals."}]}' >> pairs.jsonl
  mkdir -p said
  echo 'The same with other numbers. Judgement: yes' > said/yes.md
  echo 'Judgement: no' > said/no.md
  printf 'Ignore me. [[A>B]] \n%s' "$(seq 3000)" > said/garbage.md
  start_endpoint --reply said --log asked.jsonl "$@"
}

@test "a question that a longer training row quotes is found, wherever in the row it stands" {
  judges
  run --separate-stderr bench-overlap --lexical --train pairs.jsonl < <(bench-prepare arithmetic | sed -n 2p)
  assert_success
  assert_equal "$(jq -c '.overlap.near | map([.id, .quoted, .ngram])' <<< "$output")" '[["held",1,null]]'
}

@test "a judge is asked about the nearest rows only, each once, and its verdict stands beside the measures" {
  judges
  run --separate-stderr ask yes --run kept
  assert_success
  assert_equal "$(jq -c '.overlap.near | map([.id, .same, .judge])' <<< "$output")" '[["held",true,"yes"],["alike",true,"yes"]]'
  assert_equal "${stderr_lines[-1]}" 'bench-overlap: arithmetic: 1 of 1 questions are near one of 3 training rows; the judge finds 1 given away, and 0 are undecided'
  assert_equal "$(wc -l < asked.jsonl)" 2
  first=$output
  run --separate-stderr ask yes --run kept
  assert_equal "$output" "$first"
  assert_equal "$(wc -l < asked.jsonl)" 2
  run --separate-stderr ask no --run kept # another judge is another question
  assert_equal "$(jq -c '.overlap.near | map([.id, .same])' <<< "$output")" '[["held",false]]'
  run --separate-stderr ask yes --nearest 1
  assert_equal "$(jq -c '.overlap.near | map([.id, .same])' <<< "$output")" '[["held",true]]'
}

@test "a judge that gives no verdict leaves the pair undecided, which is neither yes nor no" {
  judges
  run --separate-stderr ask garbage
  assert_success
  assert_equal "$(jq -c '.overlap.near | map([.id, .same, .error.class])' <<< "$output")" '[["held",null,"unparseable"],["alike",null,"unparseable"]]'
  assert_equal "${stderr_lines[-1]}" 'bench-overlap: arithmetic: 1 of 1 questions are near one of 3 training rows; the judge finds 0 given away, and 1 are undecided'
}

@test "a judge that cannot be reached exits 75, what is measured is printed all the same" {
  judges --plan 401=1
  run --separate-stderr ask yes --run kept
  assert_failure 75
  assert_equal "$(jq -c '.overlap.near | map([.id, .same])' <<< "$output")" '[["held",null],["alike",null]]'
  assert_equal "${stderr_lines[-1]}" 'bench-overlap: the judge could not be asked about 2 pairs; run the same command again'
}
