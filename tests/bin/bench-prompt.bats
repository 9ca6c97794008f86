# marks: slow
load ../helper

row='{"id":"arithmetic-00001","task":{"bench":"arithmetic","fields":{"problem":"What is 1+1?"},"expected":"2"}}'

@test "a row gets the messages of its benchmark's template and keeps the rest" {
  run bench-prompt <<< "$row"
  assert_success
  assert_equal "$(jq -c 'del(.messages)' <<< "$output")" "$row"
  assert_equal "$(jq -r '.messages[0].content' <<< "$output")" "What is 1+1?

Work it out step by step. On the last line put the final answer, and nothing but the answer, into \\boxed{}."
}

# marks: long
# first: tests/benchmarks/test_tasks.py::test_examples_come_as_turns_before_the_question_and_never_are_the_question
@test "examples come as turns before the question" {
  echo '{"id":"s","fields":{"problem":"What is 2+2?"},"answer":"4"}' > shots.jsonl
  run bench-prompt --shots shots.jsonl <<< "$row"
  assert_success
  assert_equal "$(jq -c '.messages | map([.role, (.content | split("\n")[0])])' <<< "$output")" \
    '[["user","What is 2+2?"],["assistant","4"],["user","What is 1+1?"]]'
}

# marks: long
# first: a row gets the messages of its benchmark's template and keeps the rest
@test "a record without a task is refused by id, an example without an answer by line" {
  run bench-prompt <<< '{"id":"x"}'
  assert_failure 65
  assert_output 'bench-prompt: x: no task in this record; bench-prepare writes it'
  echo '{"id":"s","fields":{"problem":"p"}}' > shots.jsonl
  run bench-prompt --shots shots.jsonl <<< "$row"
  assert_failure 65
  assert_output --partial 'shots.jsonl:1: s: an example needs "fields"'
}
