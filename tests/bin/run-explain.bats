load ../helper

setup() {
  mkdir -p r/journal
  echo '{"id":"p001","messages":[{"role":"user","content":"Five slides on reefs"}]}' > r/prompts.jsonl
  echo '{"id":"p001","inputs":"0","gen":{"text":"\u001b[31mred","finish_reason":"stop","model":{"name":"smol","slug":"smol"},"usage":{}}}' > r/journal/gen.jsonl
}

@test "shows a prompt of a run that was not finished, and nothing that speaks to the terminal" {
  run --separate-stderr run-explain r p001
  assert_success
  assert_line --index 0 "p001 in r (from the journals; scores.jsonl does not have it (this run was not finished))"
  assert_line "  Five slides on reefs"
  assert_line "  finished: stop; None tokens; its reply begins: red"
  assert_line "  features, score: always computed anew"
  refute_output --partial $'\e'
}

@test "an id that the run does not have is answered with those near it" {
  run run-explain r p01
  assert_failure 65
  assert_output "run-explain: r: no record 'p01'; near it: p001"
}

@test "a run that is not there is said to be missing" {
  run run-explain nowhere p001
  assert_failure 69
  assert_output --partial 'run-explain: there is no run nowhere; '
}

@test "help is the script's own header" {
  run run-explain --help
  assert_success
  assert_line --index 0 'Say on one screen what became of one prompt of a run, whose doing that is, and what a rerun would do.'
}
