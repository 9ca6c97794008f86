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

@test "findings are lines with file, line, what happens and what to write instead, and the exit is 65" {
  sed -i 's/max_retries: 20/max_retries: 5/; s/name: aime25/name: aime52/' tasks.yaml
  run -65 eval-check tasks.yaml
  assert_line --index 0 --regexp '^eval-check: tasks.yaml:14: skills: max_retries: .5. is not at least 10 .*; write max_retries: 20'
  assert_line --index 1 --regexp "^eval-check: tasks.yaml:23: no benchmark 'aime52' \(did you mean aime25\?\)"
  unset DECKSMITH_EVAL_TOKEN
  run -65 eval-check tasks.yaml
  assert_output --regexp '^eval-check: tasks.yaml:16: the variable DECKSMITH_EVAL_TOKEN is not set here: .*; export it'
}

@test "a file that is not there is 69, one that is no YAML is 65, no file is 2" {
  run eval-check none.yaml
  assert_failure 69
  assert_output "eval-check: none.yaml: No such file or directory; assets/multi_tasks.yaml is one to begin with"
  run eval-check - <<< 'eval: ['
  assert_failure 65
  assert_output --partial "eval-check: stdin:2: the trainer cannot read this: "
  run eval-check
  assert_failure 2
}
