# marks: slow
load ../helper

@test "a group's plan is a table and a sentence; an unknown group exits 78" {
  run --separate-stderr bench-plan guard
  assert_success
  assert_line --regexp '^\| reasoning \| gsm8k, math-500, mmlu-pro, arithmetic \| 700 \| 0.041 \| 0.06 \| 98% \|$'
  assert_line --regexp '^\*\*guard: [0-9,]+ questions of each model find a loss of 0\.0[0-9]+; about .* on 8 GPUs'
  run bench-plan nothing
  assert_failure 78
  assert_output --partial 'there are: guard'
}
