# marks: slow
load ../helper

setup_file() {
  export RUNS=$BATS_FILE_TMPDIR
  "$BATS_TEST_DIRNAME/../../.venv/bin/python3" "$BATS_TEST_DIRNAME/../web/synthetic.py" "$RUNS" 3 2
}

@test "writes a log for each run and prints their paths" {
  run --separate-stderr run-export --out logs "$RUNS/smol" "$RUNS/smol-sft"
  assert_success
  assert_output $'logs/smol_offline.eval\nlogs/smol-sft_offline.eval'
  run jq -r '.eval.model, .status' <(unzip -p logs/smol_offline.eval header.json)
  assert_output $'smol\nsuccess'
}

@test "two runs that would be one file are refused" {
  run run-export --out logs "$RUNS/smol" "$RUNS/smol"
  assert_failure 65
  assert_output --partial 'would both be logs/smol_offline.eval; write them into two folders'
}
