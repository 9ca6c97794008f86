# marks: slow
load ../helper

setup_file() {
  export RUNS=$BATS_FILE_TMPDIR
  "$BATS_TEST_DIRNAME/../../.venv/bin/python3" "$BATS_TEST_DIRNAME/../web/synthetic.py" "$RUNS" 4 2
}

@test "writes every plot as PNG and SVG and prints the paths" {
  run --separate-stderr run-plot --out plots "$RUNS/smol" "$RUNS/smol-outline"
  assert_success
  assert_output 'plots/overall.png
plots/overall.svg
plots/dimensions.png
plots/dimensions.svg
plots/radar.png
plots/radar.svg
plots/deltas.png
plots/deltas.svg'
  assert_equal "$(head -c 4 plots/deltas.png | od -An -tx1 | tr -d ' ')" 89504e47
  assert_equal "$stderr" ''
}

@test "an unfinished run is named" {
  cp -r "$RUNS/smol" half
  rm half/summary.json
  run run-plot --out plots half
  assert_failure 69
  assert_output 'run-plot: half has no summary.json; `make baseline MODEL=NAME` makes it'
}

@test "help is the script's own header" {
  run run-plot --help
  assert_success
  assert_line --index 0 'Draw the scores of runs: overall, dimensions, radar, and the differences to the run named first.'
}
