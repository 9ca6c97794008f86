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

# marks: long
# first: tests/benchmarks/test_harnesses.py::test_a_plan_from_logs_says_how_many_questions_find_a_difference
@test "of a log of another tool it is how many questions find a difference" {
  { echo '{"spec":{"completion_fns":["m"],"eval_name":"mini.v0","base_eval":"mini"}}'
    jq -nc 'range(300) | {sample_id: "\(.)", type: "match", data: {correct: (. % 2 == 0)}}'; } > a.jsonl
  run --separate-stderr bench-plan --effect 0.1 a.jsonl
  assert_success
  assert_line --regexp '^\| mini \| 300 \| 0.7[0-9]+ \| 0.1[0-9]+ \| [34][0-9][0-9] \|$'
  assert_line --regexp '^\*\*mini: [34][0-9][0-9] questions find a difference of 0.1; these 300 find 0.1[0-9]+\*\*$'
  assert_line --partial 'of one log an upper bound'
}
