# marks: slow
load ../helper

setup() {
  cat > samples.jsonl <<'EOT'
{"id":"p1~0","messages":[{"role":"user","content":"Teach my pupils to read a map of tides before the trip to the mudflats"}],"gen":{"text":"# Tides\nthe moon pulls and the water follows","finish_reason":"stop","sample":{"of":"p1","k":0}},"reward":{"reward":0.9,"masked":false}}
{"id":"p1~1","messages":[{"role":"user","content":"Teach my pupils to read a map of tides before the trip to the mudflats"}],"gen":{"text":"# Something\nI am sorry, I can not do that today","finish_reason":"stop","sample":{"of":"p1","k":1}},"reward":{"reward":0.1,"masked":false}}
{"id":"p2~0","messages":[{"role":"user","content":"A deck for beekeepers on how a swarm finds its new home"}],"gen":{"text":"# Swarm","finish_reason":"stop","sample":{"of":"p2","k":0}},"reward":{"reward":null,"masked":true}}
EOT
}

@test "a pair a prompt, its report, and sentences with the figures of the lengths" {
  run --separate-stderr chat-prefer --lexical --report report.json < samples.jsonl
  assert_success
  assert_output '{"id":"p1","context":[{"role":"user","content":"Teach my pupils to read a map of tides before the trip to the mudflats"}],"completions":[{"rank":0,"completion":[{"role":"assistant","content":"# Tides\nthe moon pulls and the water follows"}]},{"rank":1,"completion":[{"role":"assistant","content":"# Something\nI am sorry, I can not do that today"}]}],"prefer":{"chosen":"p1~0","rejected":"p1~1","models":{"chosen":null,"rejected":null},"margin":0.8,"tokens":{"chosen":13,"rejected":14}}}'
  assert_equal "$stderr" "chat-prefer: 1 pairs of 2 prompts and 3 answers
chat-prefer: 1 prompts left out: fewer than two answers that count
chat-prefer: 1 answers left out: no measurement: a fault that is not the model's
chat-prefer: the chosen answer is longer than the rejected one in 0% of the rows, 0.93 times as long on average (geometric)"
  run jq -c '[.rows, .left_out.answers, .held_out > 100]' report.json
  assert_output '[1,{"masked":1},true]'
}

# marks: long
# first: tests/corpus/test_prefer.py::test_the_best_answer_is_of_middling_length_among_those_as_good_and_good_enough
@test "with --best the rows are a corpus that chat-split splits and sft-config reads" {
  chat-prefer --lexical --best < samples.jsonl > best.jsonl
  run jq -c '[.messages[].role]' best.jsonl
  assert_output '["user","assistant"]'
  run chat-split --out data < best.jsonl
  assert_success
}

# marks: long
# first: tests/corpus/test_prefer.py::test_a_prompt_of_an_evaluation_and_one_that_came_before_are_left_out_and_named
@test "a held-out prompt is left out and named" {
  echo '{"id":"e1","messages":[{"role":"user","content":"teach my pupils to read a map of the tides, before the trip to the mudflats!"}]}' > held.jsonl
  run --separate-stderr chat-prefer --lexical --against held.jsonl < samples.jsonl
  assert_success
  assert_output ''
  [[ $stderr == *"chat-prefer: p1: left out, near the held-out e1"* ]]
}

# marks: long
# first: a pair a prompt, its report, and sentences with the figures of the lengths
@test "a record without a reward is one sentence" {
  run chat-prefer --lexical < <(sed 's/"reward":{/"score":{/' samples.jsonl)
  assert_failure 65
  assert_output --partial 'stdin:1: p1~0: no "reward" in this record; deck-reward writes it'
}
