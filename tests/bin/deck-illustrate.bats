# marks: slow
load ../helper

setup_file() {
  cd "$BATS_FILE_TMPDIR" || exit 1
  printf '%s\n' '{"id":"a","gen":{"text":"---\nlayout: image\nimage-query: jazz concert\n---\n\n# Hi\n\n![x](image-query://jazz%20concert)\n"}}' \
    '{"id":"b","gen":{"text":"# No query"}}' '{"id":"c","gen":{"text":""}}' | deck-parse --run r > in.jsonl 2> /dev/null
}
setup() {
  cp -r "$BATS_FILE_TMPDIR/." .
  export XDG_CACHE_HOME=$BATS_TEST_TMPDIR/cache
}

# Print an expression over the records of a file, `r` being the list of them.
show() { "$ROOT/.venv/bin/python3" -c 'import json, sys
r = [json.loads(x) for x in open(sys.argv[2])]
print(eval(sys.argv[1]))' "$@"; }

@test "queries become drawn pictures on the same lines, other decks stay, faults pass" {
  deck-illustrate --run r < in.jsonl > out.jsonl
  run show '[x.get("images", {}).get("path") for x in r], [(i["query"], i["line"], i["provider"]) for i in r[0]["images"]["items"]]' out.jsonl
  assert_output "(['a/illustrated.md', 'b/deck.md', None], [('jazz concert', 3, 'drawn'), ('jazz concert', 8, 'drawn')])"
  picture=$(basename r/a/images/*.jpg)
  run cat r/a/illustrated.md
  assert_output "---
layout: image
image: images/$picture
---

# Hi

![x](images/$picture)"
  run cmp "r/a/images/$picture" "$ROOT/assets/pictures/rings-1.jpg"
  assert_success
}

# marks: long
# first: tests/bin/deck-parse.bats::a rerun takes everything from the journal, and makes again what was changed or deleted
@test "a rerun takes everything from the journal, unless a picture is gone" {
  deck-illustrate --run r < in.jsonl > one
  run --separate-stderr deck-illustrate --run r < in.jsonl
  assert_success
  assert_equal "$output" "$(cat one)"
  [[ $stderr == *"2 of them from the journal, 1 passed through"* ]]
  rm r/a/images/*.jpg
  run --separate-stderr deck-illustrate --run r < in.jsonl
  [[ $stderr == *" 1 of them from the journal"* ]]
  [ -s r/a/images/*.jpg ]
}

# marks: long
# first: queries become drawn pictures on the same lines, other decks stay, faults pass
@test "a run folder without the deck is named" {
  run deck-illustrate --run elsewhere < in.jsonl
  assert_failure 69
  assert_line --partial "deck-illustrate: a: elsewhere/a/deck.md: No such file or directory; is --run the folder that deck-parse wrote to?"
}

# marks: long
# first: tests/core/test_stream.py::test_a_wrong_key_is_named_before_any_work_and_what_is_lacking_or_unknown_passes
@test "a record without a deck is a bad record" {
  run deck-illustrate --run r < <(echo '{"id":"x"}')
  assert_failure 65
}
