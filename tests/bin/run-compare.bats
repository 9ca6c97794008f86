load ../helper

setup_file() {
  export RUNS=$BATS_FILE_TMPDIR
  "$BATS_TEST_DIRNAME/../../.venv/bin/python3" "$BATS_TEST_DIRNAME/../web/synthetic.py" "$RUNS" 4 2
}

pick() { "$ROOT/.venv/bin/python3" -c 'import jq, json, sys; print(json.dumps(jq.compile(sys.argv[1]).input_text(sys.stdin.read()).first(), separators=(",", ":")))' "$1"; }

@test "prints the table with the judge and the protocol named" {
  run run-compare "$RUNS/smol" "$RUNS/smol-outline"
  assert_success
  assert_line --index 0 --regexp '^Judge: offline-v1 \(offline measures, no vision model looked at these pictures\)\. Protocol [0-9a-f]{12}\.$'
  assert_line --partial '- Overall, floor: SmolLM2 135M'
}

@test "the order of the arguments changes nothing" {
  run-compare "$RUNS/smol" "$RUNS/smol-outline" > one
  run-compare "$RUNS/smol-outline" "$RUNS/smol" > two
  run diff one two
  assert_success
}

@test "--json carries every pair with its interval and its sentence" {
  run-compare --json "$RUNS/smol" "$RUNS/smol-outline" > out.json
  run pick '[(.runs | length), (.pairs | map(has("sentence") and (.difference | has("lo"))) | all), (.pairs | map(.accounting) | unique)]' < out.json
  assert_output '[2,true,["floor","renderable"]]'
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
