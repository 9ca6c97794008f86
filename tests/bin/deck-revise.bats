load ../helper

# The work itself: tests/rewards/test_revising.py.
@test "without revision in the condition every record passes, and nobody is asked" {
  echo '{"id":"a","gen":{"text":"x"}}' > in.jsonl
  run --separate-stderr deck-revise --model smol --condition cheatsheet --run . < in.jsonl
  assert_success
  assert_equal "$output" "$(cat in.jsonl)"
}
