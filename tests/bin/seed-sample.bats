# marks: slow
load ../helper

teardown() { stop_endpoint; }

reply() { echo '{"topic": "How the night ferry of Brannoc found its second harbour", "audience_phrase": "its deck hands", "style": "a log read aloud", "feature_hints": ["table"]}'; }

@test "a row that never becomes good is named with its reasons; the others are there, and the exit is 0" {
  reply > reply.txt
  start_endpoint --reply reply.txt
  run --separate-stderr seed-sample --n 2 --base-url "$URL" --slug m --jobs 1 --run .
  assert_success
  [ "$(grep -c . <<< "$output")" = 1 ]
  [[ $stderr == *"seed-sample: s0000"?": dropped after 4 rounds: the topic is taken already (How the night ferry"* ]]
  [[ $stderr == *"seed-sample: 1 of 2 seeds, 0 of them from before; 5 requests" ]]
  cmp seeds.jsonl <(echo "$output")
}

# marks: long
# first: tests/corpus/test_seeds.py::test_an_endpoint_that_refuses_is_trouble_of_the_rows_and_is_not_asked_on
@test "a dead endpoint ends with 75 and its words" {
  run --separate-stderr seed-sample --n 1 --base-url http://127.0.0.1:9/v1 --slug m --run .
  assert_failure 75
  [[ $stderr == *"s00001: infra fault, "* && $stderr == *"0 of 1 seeds"* ]]
  [ -z "$output" ]
}

# marks: long
# first: a row that never becomes good is named with its reasons; the others are there, and the exit is 0
@test "an unknown model is one line" {
  run seed-sample --n 1 --model nobody
  assert_failure 78
  assert_output --partial "no model 'nobody' in"
}

# marks: long
# first: a row that never becomes good is named with its reasons; the others are there, and the exit is 0
@test "missing key, no number of rows: one line each" {
  run env -u OPENROUTER_API_KEY seed-sample --n 1 --model gpt-5.4
  assert_failure 78
  assert_output --partial 'set OPENROUTER_API_KEY in the environment or in .env'
  run seed-sample --model smol
  assert_failure 2
  assert_output --partial "Missing option '--n'"
}

# marks: engine long
# first: tests/models/test_embedded.py::test_a_chat_reply_has_the_shape_of_the_openai_api_and_counts_its_tokens
@test "the embedded model answers by the row's schema, and nothing is written outside of the run folder" {
  mkdir home
  HOME=$PWD/home run --separate-stderr seed-sample --n 1 --model smol --run run
  [ "$status" = 0 ] || [ "$status" = 65 ]
  [ -z "$(find . -type f ! -path './run/*' ! -name 'separate-stderr-*')" ]
  "$ROOT/.venv/bin/python3" - run/journal/seed.jsonl <<'END'
import json, sys
for line in open(sys.argv[1]):
    answer = json.loads(json.loads(line)["reply"]["text"])
    assert list(answer) == ["topic", "audience_phrase", "style", "feature_hints"], answer
    assert set(answer["feature_hints"]) <= {"image", "table", "quote", "two-cols", "notes", "mermaid", "clicks"}, answer
END
}
