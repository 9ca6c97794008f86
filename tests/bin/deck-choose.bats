# marks: slow
load ../helper

setup() {
  for k in 0 1 2 3; do
    echo '{"id":"a~'$k'","gen":{"sample":{"of":"a","k":'$k'},"usage":{"cost":1}},"render":{"error":{"kind":"model","class":"x","message":"m"}}}'
  done > in.jsonl
}

@test "of samples that all failed the first stands for its prompt" {
  run --separate-stderr deck-choose --condition best-of-4 < in.jsonl
  assert_success
  assert_equal "$(jq -c '[.id,.choose.k,.choose.worth,.choose.spent.cost]' <<< "$output")" '["a",0,[null,null,null,null],4]'
}

# marks: long
# first: of samples that all failed the first stands for its prompt
@test "without samples in the condition every record passes, and a condition that is not there is named" {
  run --separate-stderr deck-choose --condition revise < in.jsonl
  assert_success
  assert_equal "$output" "$(cat in.jsonl)"
  run deck-choose --condition nine < in.jsonl
  assert_failure 78
  assert_output --partial "no condition 'nine'"
}
