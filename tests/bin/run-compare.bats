load ../helper

setup_file() {
  export RUNS=$BATS_FILE_TMPDIR
  "$BATS_TEST_DIRNAME/../../.venv/bin/python3" "$BATS_TEST_DIRNAME/../web/synthetic.py" "$RUNS" 12 2
}

pick() { "$ROOT/.venv/bin/python3" -c 'import jq, json, sys; print(json.dumps(jq.compile(sys.argv[1]).input_text(sys.stdin.read()).first(), separators=(",", ":")))' "$1"; }

@test "prints the tables with the judge and the protocol named, and refuses a headline that lost decks could undo" {
  run run-compare "$RUNS/smol" "$RUNS/smol-outline"
  assert_failure 65
  assert_line --index 0 --regexp '^Judge: offline-v1 \(offline measures, no vision model looked at these pictures\)\. Protocol [0-9a-f]{12}\.$'
  assert_line '**No headline**'
  assert_line --partial '2 of 12 decks have no score (judge faults 1, infra faults 1; at most 1 % may); `make baseline MODEL=smol`'
}

@test "the order of the arguments changes nothing" {
  run-compare "$RUNS/smol" "$RUNS/smol-outline" > one || true
  run-compare "$RUNS/smol-outline" "$RUNS/smol" > two || true
  run diff one two
  assert_success
}

@test "--json carries every pair with its interval, its test and its sentence" {
  run-compare --json "$RUNS/smol" "$RUNS/smol-outline" > out.json || true
  run pick '[(.runs | length), (.pairs | map(has("sentence") and (.difference | has("lo") and has("p"))) | all), (.pairs | map(.accounting) | unique), .headlines, .ranks]' < out.json
  assert_output '[2,true,["floor","renderable","scored"],[],null]'
}

@test "scores of another tool get the same tests and a headline" {
  for n in 1 2 3 4 5 6 7 8 9; do
    for model in x:4 y:3; do
      echo '{"model":"'${model%:*}'","id":"p'$n'","scores":{"design":'${model#*:}',"content":3.'$n'},"rendered":true,"error_kind":null}'
    done
  done > theirs.jsonl
  run run-compare theirs.jsonl
  assert_success
  assert_line --index 0 'Scores as theirs.jsonl gives them. Protocol unknown.'
  assert_line '- x beats y by 0.50 [0.50, 0.50]'
  assert_line '- Ranks left open by the tests: x 1; y 2'
}

@test "runs that differ in more than the model are refused with the fields" {
  cp -r "$RUNS/smol-outline" other
  pick '.sampling.temperature = 0.1 | .hash = "changed"' < "$RUNS/smol-outline/protocol.json" > other/protocol.json
  run run-compare "$RUNS/smol" other
  assert_failure 65
  assert_output "run-compare: $RUNS/smol and other differ in more than the model; their scores do not belong in one table
  $RUNS/smol/protocol.json != other/protocol.json:
  sampling.temperature: 0.7 != 0.1"
}

@test "a run that is not there names the command that makes it" {
  run run-compare results/runs/gpt-5.4
  assert_failure 69
  assert_output 'run-compare: there is no run results/runs/gpt-5.4; `make baseline MODEL=gpt-5.4` makes it'
}

@test "help is the script's own header" {
  run run-compare --help
  assert_success
  assert_line --index 0 'Put runs of different models side by side, with intervals and paired differences.'
}
