# marks: slow
load ../helper

# Twelve prompts in three parts, generated and parsed; R is the run.
setup_file() {
  cd "$BATS_FILE_TMPDIR" || exit 1
  R=run
  start_endpoint --log asked.jsonl
  for i in $(seq 12); do echo "{\"id\":\"p$i\",\"messages\":[{\"role\":\"user\",\"content\":\"Deck $i\"}]}"; done > prompts.jsonl
  for i in 1 2 3; do part $i; done
  export URL ENDPOINT
}
setup() {
  R=run
  cp -r "$BATS_FILE_TMPDIR/run" "$BATS_FILE_TMPDIR/prompts.jsonl" .
}
teardown_file() { stop_endpoint; }

part() {
  local folder=$R/shard-$1-of-3
  mkdir -p "$folder"
  record-sample --shard "$1/3" < prompts.jsonl |
    chat-generate --base-url "$URL" --slug m --run "$folder" 2>> said | deck-parse --run "$folder" 2>> said > "$folder/scores.jsonl"
}
merge() { run-merge --run $R < prompts.jsonl; }
ids() { sed 's/^{"id":"\([^"]*\)".*/\1/' "$1"; }
asked() { wc -l < "$BATS_FILE_TMPDIR/asked.jsonl"; } # in all tests so far

@test "the parts become one run in the order of the prompts, with every folder and journal, and nothing is asked again" {
  merge > $R/scores.jsonl
  [ "$(ids $R/scores.jsonl)" = "$(seq -f 'p%.0f' 12)" ]
  for i in $(seq 12); do [ -s "$R/p$i/deck.md" ]; done
  before=$(asked)
  chat-generate --base-url "$URL" --slug m --run $R < prompts.jsonl | deck-parse --run $R > again.jsonl
  [ "$(asked)" = "$before" ]
  cmp again.jsonl $R/scores.jsonl
}

# marks: long
# first: the parts become one run in the order of the prompts, with every folder and journal, and nothing is asked again
@test "a run made in one piece gives the same records" {
  merge > $R/scores.jsonl
  chat-generate --base-url "$URL" --slug m --run whole < prompts.jsonl | deck-parse --run whole > whole.jsonl
  clean() { "$ROOT/.venv/bin/python3" -c 'import jq,sys; print(jq.compile("del(..|.by?)").input_text(sys.stdin.read()).text())'; }
  cmp <(clean < whole.jsonl) <(clean < $R/scores.jsonl)
}

# marks: long
# first: the parts become one run in the order of the prompts, with every folder and journal, and nothing is asked again
@test "a part that is not done is named with what it lacks, and nothing is written" {
  second=$(ids $R/shard-2-of-3/scores.jsonl)
  rm $R/shard-2-of-3/scores.jsonl
  run --separate-stderr merge
  assert_failure 75
  assert_output ''
  [ "${stderr#*: part }" = "2 of 3 lacks $(few $second). Do these again: --array=2" ]
  [ ! -e $R/journal ] && [ ! -e $R/p1 ]
}

# marks: long
# first: the parts become one run in the order of the prompts, with every folder and journal, and nothing is asked again
@test "only the part that is not done is redone" {
  rm $R/shard-2-of-3/scores.jsonl
  before=$(asked)
  part 2
  run --separate-stderr merge
  assert_success
  [ "$(asked)" = "$before" ]
}
few() { local n=$#; echo "$*" | cut -d' ' -f1-5 | sed 's/ /, /g' | tr -d '\n'; [ "$n" -le 5 ] || printf ' and %d more' $((n - 5)); }

# marks: long
# first: the parts become one run in the order of the prompts, with every folder and journal, and nothing is asked again
@test "a record that is missing from a finished part is named" {
  ids $R/shard-1-of-3/scores.jsonl | head -1 > first
  sed -i 1d $R/shard-1-of-3/scores.jsonl
  run --separate-stderr merge
  assert_failure 75
  [[ $stderr == *"part 1 of 3 lacks $(cat first). Do these again: --array=1" ]]
}

# marks: long
# first: the parts become one run in the order of the prompts, with every folder and journal, and nothing is asked again
@test "merging twice changes nothing" {
  merge > first.jsonl
  sha256sum $R/journal/* $R/p1/* > before
  merge | cmp - first.jsonl
  sha256sum --check --quiet before
}

# marks: long
# first: the parts become one run in the order of the prompts, with every folder and journal, and nothing is asked again
@test "another adapter in one part is refused" {
  sed -i '1s/"slug":"m"/"slug":"m","served":{"adapter":"other"}/' $R/shard-1-of-3/scores.jsonl
  run --separate-stderr merge
  assert_failure 65
  [[ $stderr == *'two settings in one run'*'gen.model.served'* ]]
}

# marks: long
# first: the parts become one run in the order of the prompts, with every folder and journal, and nothing is asked again
@test "what does not belong into one run is refused: a record twice, another division, another prompt" {
  head -1 $R/shard-1-of-3/scores.jsonl > one
  cp $R/shard-1-of-3/scores.jsonl good
  cat one >> $R/shard-1-of-3/scores.jsonl
  run --separate-stderr merge
  assert_failure 65
  [[ $stderr == *"part 1 has this record too" ]]
  cp good $R/shard-1-of-3/scores.jsonl
  cat one >> $R/shard-3-of-3/scores.jsonl
  run --separate-stderr merge
  assert_failure 65
  sed -i '$d' $R/shard-3-of-3/scores.jsonl
  sed 's/Deck/Eine Rede/' good > $R/shard-1-of-3/scores.jsonl
  run --separate-stderr merge
  assert_failure 65
  [[ $stderr == *"its messages differ from those of the prompt on stdin; do part 1 again" ]]
  cp good $R/shard-1-of-3/scores.jsonl
  mkdir $R/shard-1-of-2
  run --separate-stderr merge
  assert_failure 65
  [[ $stderr == *"has parts of 2 and of 3; remove those of one division" ]]
}

# marks: long
# first: the parts become one run in the order of the prompts, with every folder and journal, and nothing is asked again
@test "parts that were made for different protocols are refused" {
  touch $R/shard-1-of-3/.for-12 $R/shard-2-of-3/.for-24
  run merge
  assert_failure 65
  assert_output --partial 'was made for .for-12'
}

# marks: long
# first: the parts become one run in the order of the prompts, with every folder and journal, and nothing is asked again
@test "a part without prompts need not be done" {
  head -1 prompts.jsonl > few && mv few prompts.jsonl
  for i in 1 2 3; do grep -q '"id":"p1"' $R/shard-$i-of-3/scores.jsonl || rm -r $R/shard-$i-of-3; done
  sed -i '/"id":"p1"/!d' $R/shard-*/scores.jsonl
  run --separate-stderr merge
  assert_success
  assert_output --regexp '^\{"id":"p1"'
}

# marks: long
# first: the parts become one run in the order of the prompts, with every folder and journal, and nothing is asked again
@test "graded questions of a benchmark are joined alike, with all samples, and are those of a run made in one piece" {
  export DECKSMITH_BENCH=$PWD/bench
  bench-prepare arithmetic | record-sample --limit 9 > questions.jsonl
  ask() { # FOLDER SHARD
    mkdir -p "$1"
    record-sample --shard "$2" < questions.jsonl | bench-prompt | chat-generate --base-url "$URL" --slug m --samples 2 --seed 0 --run "$1" 2>> said |
      bench-grade --run "$1" 2>> said > "$1/rows.jsonl"
  }
  for i in 1 2; do ask "arithmetic/shard-$i-of-2" "$i/2"; done
  run --separate-stderr run-merge --run arithmetic < questions.jsonl
  assert_success
  echo "$output" > merged.jsonl
  ask whole 1/1
  clean() { "$ROOT/.venv/bin/python3" -c 'import jq,sys; print(jq.compile("del(..|.by?)").input_text(sys.stdin.read()).text())'; }
  cmp <(clean < whole/rows.jsonl) <(clean < merged.jsonl)
  assert_equal "$(wc -l < merged.jsonl)" 18
  sed -i 1d arithmetic/shard-2-of-2/rows.jsonl
  run --separate-stderr run-merge --run arithmetic < questions.jsonl
  assert_failure 75
  assert_output ''
  assert_regex "$stderr" 'part 2 of 2 lacks arithmetic-0000[0-9]~0. Do these again: --array=2$'
}
