load ../helper

# make/bench in a folder whose stages do nothing: which parts of a group are asked, with how many questions, and what is left out.
setup() {
  mkdir -p bin assets/groups make
  ln -s "$ROOT/make/bench" make/bench
  touch assets/groups/small.toml
  stage within 'case $* in *bench_asked.py\ parts*) printf "arithmetic 5\ngsm8k 3\nneedle 4\n" ;; *) echo --max-tokens 8 ;; esac'
  stage bench-prepare 'case $1 in gsm8k) echo "bench-prepare: gsm8k: the Hub did not answer" >&2; exit 75 ;; esac; echo "{\"id\":\"$1\"}"'
  stage record-sample 'echo "record-sample $*" >> asked.log; cat'
  stage bench-prompt 'echo "bench-prompt $*" >> asked.log; cat'
  stage chat-generate 'echo "chat-generate $*" >> asked.log; cat; [ ! -f broken ]'
  stage bench-grade cat
  stage bench-summarize 'echo "bench-summarize $*: $(wc -l)"'
  stage run-merge cat
}

stage() { # NAME LINE
  printf '#!/bin/bash\n%s\n' "$2" > "bin/$1"
  chmod +x "bin/$1"
}

@test "the parts of a group are asked, and one whose rows cannot be had is named and left out" {
  LIMIT=2 run --separate-stderr make/bench small m
  assert_success
  assert_output "bench-summarize --table --group small --out results/bench/m/small: 2"
  assert_equal "$(cat results/bench/m/small/gsm8k/skipped.txt)" "the Hub did not answer"
  [[ $stderr == *"small: gsm8k is left out: the Hub did not answer"* ]]
  assert_equal "$(grep -c 'record-sample --shuffle --limit 2' asked.log)" 2
  : > asked.log
  LIMIT=0 make/bench small m 2> /dev/null
  assert_equal "$(grep -o 'limit .' asked.log | tr '\n' ' ')" "limit 5 limit 4 "
}

@test "a part that fails does not keep the others from being asked, and the command fails" {
  touch broken
  run make/bench small m
  assert_failure 1
  assert_line "small: needle: m"
}

@test "parts of an array are joined" {
  SHARD=1/2 run --separate-stderr make/bench small m
  assert_success
  assert_output ""
  [ -f results/bench/m/small/needle/shard-1-of-2/rows.jsonl ]
  MERGE=1 run --separate-stderr make/bench small m
  assert_output "bench-summarize --table --group small --out results/bench/m/small: 2"
}
