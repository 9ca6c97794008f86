load ../helper

setup() {
  mkdir run
  echo '{"id":"p1","checklist":[{"id":"c1","ask":"x"}]}' > run/scores.jsonl
}

@test "a file that is no file of answers is named" {
  echo '[]' > answers.json
  run judge-tally --run run answers.json
  assert_failure 65
  assert_output --partial 'answers.json: no file of answers; the page saves one by "Save my answers"'
}

@test "the answers of another run are refused" {
  echo '{"run":"0","answers":{}}' > answers.json
  run judge-tally --run run answers.json
  assert_failure 65
  assert_output --partial 'answers.json: the answers of another run'
  run judge-tally --run run none.json
  assert_failure 69
}
