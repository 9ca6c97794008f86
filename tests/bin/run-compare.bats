# marks: slow
load ../helper

setup_file() {
  export RUNS=$BATS_FILE_TMPDIR
  synthetic_runs "$RUNS" 12
}

pick() { "$ROOT/.venv/bin/python3" -c 'import jq, json, sys; print(json.dumps(jq.compile(sys.argv[1]).input_text(sys.stdin.read()).first(), separators=(",", ":")))' "$1"; }

@test "prints the tables with the judge and the protocol named, and exits 65 where lost decks leave nothing to say" {
  run --separate-stderr run-compare "$RUNS/smol" "$RUNS/smol-sft"
  assert_failure 65
  assert_line --index 0 --regexp 'no model or person has read these decks.*\. Protocol [0-9a-f]{12}\.$'
  assert_line --regexp '^- The decks of SmolLM2 135M \(fine-tuned\) render for 9 of 10 requests, those of SmolLM2 135M for 4 \(the decks without a score could change that\)\.'
  assert_regex "$stderr" 'computed again, and the same: scores and summaries of 2 runs, 24 records'
  assert_stderr_line --partial 'run-compare: nothing can be said: SmolLM2 135M: 2 of 12 decks have no score (judge faults 1, infra faults 1; at most 1 % may); `make baseline MODEL=NAME`'
}

# marks: long
# first: tests/results/test_terminal.py::test_nothing_is_wider_than_the_terminal
@test "with --page a terminal gets what fits, and the file all of it" {
  run --separate-stderr run-compare --page page.md "$RUNS/smol" "$RUNS/smol-sft"
  assert_failure 65
  for line in "${lines[@]}"; do [ "${#line}" -le 100 ] || fail "$line"; done
  assert_line --regexp '^model +renders +checks passed'
  assert_output --partial 'What was found'
  refute_output --partial 'Paired by prompt'
  run cat page.md
  assert_output --partial '**Paired by prompt**'
}

# marks: long
# first: prints the tables with the judge and the protocol named, and exits 65 where lost decks leave nothing to say
@test "the order of the arguments changes nothing" {
  run-compare "$RUNS/smol" "$RUNS/smol-sft" > one || true
  run-compare "$RUNS/smol-sft" "$RUNS/smol" > two || true
  run diff one two
  assert_success
}

# marks: long
# first: prints the tables with the judge and the protocol named, and exits 65 where lost decks leave nothing to say
@test "--json carries every pair with its interval, its test and its sentence" {
  run-compare --json "$RUNS/smol" "$RUNS/smol-sft" > out.json || true
  run pick '[(.runs | length), (.pairs | map(has("sentence") and (.difference | has("lo") and has("p"))) | all), (.pairs | map(.accounting) | unique), .unsettled, (.caveats | length),
    (.ranks | map(.) | unique), (.pairs | map(select(.clause == "") | .sentence | test(" on [0-9]+.* prompts, ")) | all), (.pairs | map(.clause) | unique)]' < out.json
  assert_output '[2,true,["floor","scored"],true,1,[[1,2]],true,["","better","renders"]]'
}

# marks: long
# first: tests/results/test_claims.py::test_scores_of_another_tool_are_compared_by_the_same_rules
@test "scores of another tool get the same tests and a headline" {
  for n in 1 2 3 4 5 6 7 8 9; do
    for model in x:5 y:1; do
      echo '{"model":"'${model%:*}'","id":"p'$n'","scores":{"design":'${model#*:}',"content":3.'$n'},"rendered":true,"error_kind":null}'
    done
  done > theirs.jsonl
  run run-compare theirs.jsonl
  assert_success
  assert_line --index 0 'Scores as theirs.jsonl gives them. Protocol unknown.'
  assert_line --regexp '^- The decks of x and those of y render for 9 of 9 requests each\. Where both render, x gets 4\.25 of 5, y 2\.25 \(difference 2\.00 on 9 requests\)\. Overall, counting failures as 1: x beats y by 2\.00 \[[01]\.[0-9]+, 2\.[0-9]+\] on 9 prompts\.$'
}

# marks: long
# first: tests/results/test_report.py::test_runs_that_differ_in_more_than_the_model_are_refused_with_the_fields
@test "runs that differ in more than the model are refused with the fields" {
  mkdir other
  sed 's/"sampling":{"temperature":0.7}/"sampling":{"temperature":0.1}/' "$RUNS/smol-sft/scores.jsonl" > other/scores.jsonl
  run-summarize --run other < other/scores.jsonl > other/summary.json
  run run-compare "$RUNS/smol" other
  assert_failure 65
  assert_output "run-compare: $RUNS/smol and other differ in more than the model; their scores do not belong in one table
  $RUNS/smol/protocol.json != other/protocol.json:
  sampling.temperature: 0.7 != 0.1"
}

# marks: long
# first: tests/results/test_verify.py::test_rows_deleted_from_scores_are_named
@test "rows that were deleted are missed, in runs and in scores of another tool" {
  cp -r "$RUNS/smol" less
  "$ROOT/.venv/bin/python3" - <<< 'import json; [print(json.dumps({k: r[k] for k in ("id", "messages", "asks", "checklist")})) for r in map(json.loads, open("less/scores.jsonl"))]' > less/prompts.jsonl
  run run-compare less
  assert_success
  sed -i '3,5d' less/scores.jsonl
  run-summarize --run less < less/scores.jsonl > less/summary.json
  run run-compare less
  assert_failure 65
  assert_output "run-compare: less contradicts itself:
  scores.jsonl: lacks 3 of the 12 prompts in prompts.jsonl: p003, p004, p005
  to derive all of it again from what was paid for: rm less/scores.jsonl && make baseline MODEL=NAME"
  for n in 1 2 3 4 5 6 7 8 9; do
    echo '{"model":"x","id":"p'$n'","scores":{"design":5},"rendered":true}'
    [ $n -lt 3 ] || echo '{"model":"y","id":"p'$n'","scores":{"design":1},"rendered":true}'
  done > theirs.jsonl
  run run-compare theirs.jsonl
  assert_failure 65
  assert_output --partial 'x and y cannot be compared: y lacks 2 of 9 prompts (p1, p2).'
  run run-compare --common theirs.jsonl
  assert_success
  assert_line --regexp 'x beats y by 4\.00 \[[0-9.]+, 4\.00\] on 7 common prompts\.$'
  assert_line '- x: 2 of its decks are left out, which not all have (p1, p2)'
}

# marks: long
# first: prints the tables with the judge and the protocol named, and exits 65 where lost decks leave nothing to say
@test "a folder that is no run at all is said to be none" {
  run -69 run-compare /etc
  assert_output "run-compare: /etc is no run: it has no scores.jsonl; \`make baseline MODEL=NAME\` makes one, \`make runs\` lists those there are"
}

# marks: long
# first: prints the tables with the judge and the protocol named, and exits 65 where lost decks leave nothing to say
@test "a run that is not there names the command that makes it" {
  run run-compare results/runs/gpt-5.4/offline
  assert_failure 69
  assert_output 'run-compare: there is no run results/runs/gpt-5.4/offline; `make baseline MODEL=gpt-5.4 PROTOCOL=offline` makes it'
}

# marks: long
# first: tests/results/test_looks.py::test_looks_at_two_models_are_counted_with_their_prompts_and_what_that_means
@test "looks are counted" {
  cp -r "$RUNS/smol" "$RUNS/smol-sft" .
  rm -f smol*/journal/looks.jsonl
  run run-compare smol smol-sft
  assert_failure 65
  assert_line --partial '- Nobody has compared these models on these prompts before'
}

# Scores of 40 decks in scores.jsonl, and votes on 15 of them in the study here.
voted() {
  for n in $(seq 1 40); do
    lead=$((n % 3))
    for maker in one two; do
      mark=$([ $maker = one ] && echo $((3 + (lead > 0))) || echo 3)
      echo '{"id":"p'$n'","model":"'$maker'","rendered":true,"scores":{"content":'$mark'}}'
    done >> scores.jsonl
    [ $n -gt 15 ] || for rater in ada bob cleo dan eve; do
      echo "p$n,$rater,one,two,$([ $lead -gt 0 ] && echo left || echo right)"
    done >> rows.csv
  done
  { echo prompt,rater,left,right,choice; cat rows.csv; } > votes.csv
  vote-import --study here --votes votes.csv > /dev/null
}

# marks: long
# first: prints the tables with the judge and the protocol named, and exits 65 where lost decks leave nothing to say
@test "votes on some prompts and scores on all say what people would prefer on all" {
  voted
  run --separate-stderr run-compare --votes here --json scores.jsonl
  assert_success
  [ "$(jq -c '.people[0] | [.a, .votes, .prompts, .unvoted, .saved > 0, .joined.mean > 0.6]' <<< "$output")" = '["one",75,15,25,true,true]' ]
}

# marks: long
# first: prints the tables with the judge and the protocol named, and exits 65 where lost decks leave nothing to say
@test "what people would prefer stands on the page" {
  voted
  run run-compare --votes here scores.jsonl
  assert_output --partial 'Of people, on all 40 prompts, '
  assert_output --partial 'The judge saved about'
}
