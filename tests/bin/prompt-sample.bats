setup() { load ../helper; }

@test "a seed names the prompts, and fewer of them begin the more" {
  prompt-sample --seed 5 --limit 3 > three.jsonl
  prompt-sample --seed 5 --limit 2 | diff - <(head -2 three.jsonl)
  run jq -r .id three.jsonl
  assert_line --index 0 fresh-5-0001
  run --separate-stderr prompt-check < three.jsonl
  assert_success
  assert_equal "$stderr" ''
}

@test "a seed is needed" {
  run prompt-sample
  assert_failure 2
  assert_output --partial "Missing option '--seed'"
}
