# marks: slow
load ../helper

setup() {
  printf '%s\n' '{"id":"a","n":1,"gen":{"text":"<think>plan</think>\nHere it is:\n\n```markdown\n---\ntheme: seriph\n---\n\n# Hi\n\n---\nlayout: end\n---\n\n# Bye\n```\n\nEnjoy!","reasoning":""}}' > in.jsonl
  printf '%s\n' '{"id":"b","gen":{"text":"","reasoning":""}}' '{"id":"c","gen":{"text":"","reasoning":"hm"}}' \
    '{"id":"d","gen":{"error":{"kind":"infra","class":"http","message":"503"}}}' '{"id":"e","gen":{"text":"Just prose."}}' >> in.jsonl
}


@test "replies become decks, faults are named, records keep their order and keys" {
  deck-parse --run r < in.jsonl 2> err | jq -c 'del(..|.by?)|{id,n,deck}' > out
  run cat out
  assert_output '{"id":"a","n":1,"deck":{"path":"a/deck.md","slides":2,"theme":"seriph","sha256":"'"$(sha256sum r/a/deck.md | cut -d' ' -f1)"'"}}
{"id":"b","n":null,"deck":{"error":{"kind":"model","class":"empty-reply","message":"the reply is empty"}}}
{"id":"c","n":null,"deck":{"error":{"kind":"model","class":"no-deck","message":"the reply holds reasoning but no deck"}}}
{"id":"d","n":null,"deck":null}
{"id":"e","n":null,"deck":{"path":"e/deck.md","slides":1,"theme":"default","sha256":"'"$(sha256sum r/e/deck.md | cut -d' ' -f1)"'"}}'
  run cat r/a/deck.md
  assert_output $'---\ntheme: seriph\n---\n\n# Hi\n\n---\nlayout: end\n---\n\n# Bye'
  run cat r/a/reasoning.md r/c/reasoning.md
  assert_output $'plan\nhm'
}

@test "a rerun takes everything from the journal, and makes again what was changed or deleted" {
  deck-parse --run r < in.jsonl > one
  run --separate-stderr deck-parse --run r < in.jsonl
  assert_success
  assert_equal "$output" "$(cat one)"
  [[ $stderr == *"4 of them from the journal, 1 passed through"* ]]
  echo changed >> r/a/deck.md
  rm r/e/deck.md
  run --separate-stderr deck-parse --run r < in.jsonl
  [[ $stderr == *"2 of them from the journal"* ]]
  run grep -c changed r/a/deck.md
  assert_output 0
}

# marks: long
# first: tests/core/test_stream.py::test_a_wrong_key_is_named_before_any_work_and_what_is_lacking_or_unknown_passes
@test "a record without a reply is a bad record" {
  run --separate-stderr deck-parse --run r < <(echo '{"id":"x"}')
  assert_failure 65
  [[ $stderr == *'deck-parse: stdin:1: x: no "gen" in this record'* ]]
}

# marks: long
# first: replies become decks, faults are named, records keep their order and keys
@test "a file that is named and empty is said" {
  echo > none.md
  run deck-parse --run r none.md
  assert_failure 65
  assert_output --partial "none.md is empty: no deck and no record"
}

# marks: long
# first: replies become decks, faults are named, records keep their order and keys
@test "an unknown option is a usage error" {
  run deck-parse --frobnicate < /dev/null
  assert_failure 2
}
