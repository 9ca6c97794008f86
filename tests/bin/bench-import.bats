# marks: slow
load ../helper

@test "a folder of NeMo-Skills becomes graded rows; one without outputs exits 69" {
  mkdir -p aime25
  echo '{"problem":"1+1?","expected_answer":"2","generation":"\\boxed{2}","predicted_answer":"2","symbolic_correct":true}' > aime25/output.jsonl
  run --separate-stderr bench-import skills --model theirs aime25
  assert_success
  assert_equal "$(jq -c '[.id, .task.bench, .gen.model.name, .grade.verdict]' <<< "$output")" '["aime25-00001","aime25","theirs","right"]'
  mkdir gsm8k
  run bench-import skills --model theirs gsm8k
  assert_failure 69
  assert_output --partial 'gsm8k has no output.jsonl'
}

@test "a file without rollouts exits 65 and says so" {
  : > rollouts.jsonl
  run bench-import gym --model theirs --bench gym-aime24 rollouts.jsonl
  assert_failure 65
  assert_output 'bench-import: rollouts.jsonl has no results'
}
