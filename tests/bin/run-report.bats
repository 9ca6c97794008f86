# marks: slow
load ../helper

setup_file() {
  export RUNS=$BATS_FILE_TMPDIR
  "$BATS_TEST_DIRNAME/../../.venv/bin/python3" "$BATS_TEST_DIRNAME/../web/synthetic.py" "$RUNS" 3 1
}

@test "writes a page with its pictures and plots, and makes no picture twice; it names nothing of the network and nothing of this machine" {
  run --separate-stderr run-report --out report "$RUNS/smol"
  assert_success
  assert_output report/index.html
  assert [ -s report/plots/scores.svg ]
  run --separate-stderr run-report --out report "$RUNS/smol"
  assert_success
  assert_regex "$stderr" 'run-report: 3 decks, [0-9]+ pictures \(0 made now\)$'
  run grep -E "https?://|$RUNS" <(sed -n '1,/<style>/p; /<\/style>/,/type="application\/json"/p' report/index.html | grep -v '"application/json"')
  assert_failure
}

# marks: long
# first: writes a page with its pictures and plots, and makes no picture twice; it names nothing of the network and nothing of this machine
@test "a run without protocol is named with the command that finishes it" {
  cp -r "$RUNS/smol" half
  rm half/protocol.json
  run run-report --out report half
  assert_failure 69
  assert_output 'run-report: half has no protocol.json; `make baseline MODEL=NAME` makes it'
}
