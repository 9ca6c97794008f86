load ../helper

setup() {
  export DECKSMITH_EVAL_URL=http://node7:9050 DECKSMITH_EVAL_TOKEN=s3cret-s3cret
  cp "$ROOT/assets/multi_tasks.yaml" tasks.yaml
}

@test "the example passes, from a path and from standard input" {
  run --separate-stderr eval-check tasks.yaml
  assert_success
  assert_output ""
  assert_equal "$stderr" "eval-check: tasks.yaml: nothing speaks against it"
  run --separate-stderr eval-check - < tasks.yaml
  assert_success
  assert_equal "$stderr" "eval-check: stdin: nothing speaks against it"
}

@test "findings are lines with file, what happens and what to write instead, and the exit is 65" {
  sed -i 's/max_retries: 20/max_retries: 5/; s/name: aime25/name: aime52/' tasks.yaml
  run -65 eval-check tasks.yaml
  assert_line --index 0 --regexp '^eval-check: tasks.yaml: skills: max_retries: .5. is not at least 10 .*; write max_retries: 20'
  assert_line --index 1 --regexp "^eval-check: tasks.yaml: no benchmark 'aime52' \(did you mean aime25\?\)"
  unset DECKSMITH_EVAL_TOKEN
  run -65 eval-check tasks.yaml
  assert_output --partial "Environment variable 'DECKSMITH_EVAL_TOKEN' not found"
}

@test "a file that is not there is 2, one that is no YAML or no text is 65" {
  run -2 eval-check none.yaml
  assert_output --partial "'none.yaml': No such file or directory"
  run -65 eval-check - <<< 'eval: ['
  assert_output --partial "eval-check: stdin: the trainer cannot read this, "
  run -65 eval-check - < <(printf '\377\376')
  assert_output "eval-check: stdin:1: not UTF-8 text (byte 0)"
}
