load ../helper

@test "a protocol without a vision judge has no settings for pictures" {
  mkdir study
  run pair-judge --study study --model judge --protocol offline < /dev/null
  assert_failure 78
  assert_output --partial 'the protocol offline has no vision judge'
}

@test "a record that is no pair is named" {
  mkdir study
  export OPENROUTER_API_KEY=x
  echo '{"id":"k1"}' > pairs.jsonl
  run pair-judge --study study --model judge < pairs.jsonl
  assert_failure 65
  assert_output --partial 'stdin:1: k1: no "left" in this record'
}
