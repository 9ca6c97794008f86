load ../helper

setup_file() {
  cd "$BATS_FILE_TMPDIR" || exit 1
  for deck in honest/tides hollow/keys_only; do
    "$ROOT/.venv/bin/python3" -c 'import json, sys; print(json.dumps({"id": sys.argv[1].split("/")[1], "gen": {"text": open(f"{sys.argv[2]}/decks/{sys.argv[1]}.md").read()}}))' \
      $deck "$FIXTURES"
  done > gen.jsonl
  echo '{"id":"none","gen":{"text":""}}' >> gen.jsonl
  deck-parse --run r < gen.jsonl > in.jsonl 2> /dev/null
}
setup() {
  cp -r "$BATS_FILE_TMPDIR/." .
}

scores() { "$ROOT/.venv/bin/python3" -c 'import json, sys
for line in sys.stdin:
    r = json.loads(line)
    print(r["id"], r["features"].get("craft_v5"), r["features"].get("craft"))'; }

@test "both scans are reported, and only the published one is fooled by a hollow deck" {
  run --separate-stderr bash -c 'set -o pipefail; deck-scan --run r < in.jsonl'
  assert_success
  run scores <<< "$output"
  assert_output "tides 5.0 3.071
keys_only 5.0 1.0
none None None"
}

@test "a deck is scanned once, and again when its text or the deck of the turn before is another" {
  local turn='s/}$/,"messages":[],"turn":{"of":"tides","n":2,"keeps":{"slides":[1]}}}/'
  sed -e '/keys_only/!d' -e "$turn" in.jsonl | cat in.jsonl - | sed '2d' > both.jsonl
  run deck-scan --run r < both.jsonl
  run --separate-stderr deck-scan --run r < both.jsonl
  [[ $stderr == *"3 done, 3 of them from the journal" ]]
  printf '\n# One more\n' >> r/tides/deck.md
  run --separate-stderr deck-scan --run r < both.jsonl
  [[ $stderr == *"3 done, 1 of them from the journal" ]]
  assert_equal "$(deck-scan --run r < both.jsonl 2> /dev/null | grep -c '"kept":0.0')" 1
}

# marks: long
# first: both scans are reported, and only the published one is fooled by a hollow deck
@test "a deck that failed to render is scanned all the same" {
  sed 's/}$/,"render":{"error":{"kind":"model","class":"yaml","message":"x"}}}/' in.jsonl | deck-scan --run r 2> /dev/null > out
  run scores < out
  assert_line "tides 5.0 3.071"
}

# marks: long
# first: both scans are reported, and only the published one is fooled by a hollow deck
@test "a run folder without the deck is named" {
  run deck-scan --run elsewhere < in.jsonl
  assert_failure 69
  assert_line --partial "deck-scan: tides: elsewhere/tides/deck.md: No such file or directory; is --run the folder that deck-parse wrote to?"
}

# marks: long
# first: both scans are reported, and only the published one is fooled by a hollow deck
@test "a deck of one's own is scanned as the same deck of a model" {
  cp "$FIXTURES/decks/honest/tides.md" "my tides.md"
  deck-scan --run r < in.jsonl 2> /dev/null | head -1 | sed 's/.*"features"/"features"/; s/,"by".*//' > theirs
  run --separate-stderr deck-scan "my tides.md"
  assert_success
  assert_output --partial '{"id":"my-tides","deck":{"path":"'
  assert_output --partial "$(cat theirs)"
  assert_equal "$(ls --ignore "separate-*")" "$(printf '%s\n' gen.jsonl in.jsonl 'my tides.md' r theirs)"
}

# marks: long
# first: both scans are reported, and only the published one is fooled by a hollow deck
@test "a deck of one's own is welcome: as a file, from a file, through a pipe; nothing is left beside it" {
  cp "$FIXTURES/decks/honest/tides.md" "my tides.md"
  deck-scan --run r < in.jsonl 2> /dev/null | head -1 | sed 's/.*"features"/"features"/; s/,"by".*//' > theirs
  for way in 'deck-scan "my tides.md"' 'deck-scan < "my tides.md"' 'cd r && cp "../my tides.md" . && deck-scan --run .. "my tides.md"'; do
    run --separate-stderr bash -c "$way"
    assert_success
    assert_output --partial '{"id":"my-tides","deck":{"path":"'
    assert_output --partial "$(cat theirs)"
  done
  assert_equal "$(ls --ignore "separate-*")" "$(printf '%s\n' gen.jsonl in.jsonl 'my tides.md' r theirs)"
  run --separate-stderr bash -c 'cat "my tides.md" | deck-scan --run piped'
  assert_output --partial '{"id":"stdin","deck":{"path":"stdin/deck.md",'
  cmp "my tides.md" piped/stdin/deck.md
  run --separate-stderr deck-scan --run r "my tides.md" in.jsonl "my tides.md"
  run "$ROOT/.venv/bin/python3" -c 'import json, sys; print([json.loads(line)["id"] for line in sys.stdin])' <<< "$output"
  assert_output "['my-tides', 'tides', 'keys_only', 'none', 'my-tides-2']"
}

# marks: long
# first: both scans are reported, and only the published one is fooled by a hollow deck
@test "a file of one's own in the folder beside the deck is named, and nothing is written there" {
  cp "$FIXTURES/decks/honest/tides.md" .
  mkdir tides && touch tides/notes.txt
  run -65 deck-parse tides.md
  assert_output "deck-parse: tides has files of your own (notes.txt), and deck-parse would write there; name another folder with --run"
  assert_equal "$(ls tides)" notes.txt
}

# marks: long
# first: both scans are reported, and only the published one is fooled by a hollow deck
@test "a folder of one's own beside the deck is never written to" {
  cp "$FIXTURES/decks/honest/tides.md" .
  for file in notes.txt images/map.png slides/01.svg; do
    rm -rf tides && mkdir -p "$(dirname "tides/$file")" && touch "tides/$file"
    run -65 deck-parse tides.md
    assert_output "deck-parse: tides has files of your own ($file), and deck-parse would write there; name another folder with --run"
  done
  run -65 deck-illustrate tides.md
  assert_output --partial "deck-illustrate: tides has files of your own (slides/01.svg)"
  deck-scan tides.md > /dev/null 2>&1
  deck-parse --run elsewhere tides.md > /dev/null 2>&1
  mkdir deck && cp tides.md deck/deck.md
  (cd deck && run -65 deck-parse --run .. deck.md &&
    assert_output --partial "deck-parse: ../deck has files of your own (deck.md)")
  deck-parse deck/deck.md > /dev/null 2>&1
  cmp tides.md deck/deck.md
  cmp tides.md deck-deck/deck.md
}

# marks: long
# first: tests/core/test_scripts.py::test_markdown_where_records_are_wanted_is_answered_with_the_command
@test "where a deck is not enough the error says what makes the rest of it" {
  cp "$FIXTURES/decks/honest/tides.md" .
  run -65 deck-judge tides.md
  assert_output "deck-judge: tides.md is markdown, not a record: deck-render tides.md | deck-judge"
  run -65 deck-xray < tides.md
  assert_output "deck-xray: $PWD/tides.md is markdown, not a record: deck-render $PWD/tides.md | deck-xray"
  run -65 bash -c 'cat tides.md | deck-score'
  assert_output "deck-score: stdin is markdown, not a record: deck-render deck.md | deck-judge | deck-scan | deck-score"
  run -2 deck-scan nothing.md
  assert_output --partial "File 'nothing.md' does not exist"
}

# marks: long
# first: tests/core/test_scripts.py::test_what_is_no_record_is_refused_by_line
@test "a list, a text or half an object is a bad record and no deck" {
  for line in '[1]' '"a"' '{"id":'; do
    run -65 deck-scan <<< "$line"
    assert_line --index 0 --partial "deck-scan: stdin:1: not"
  done
}

# marks: long
# first: tests/bin/deck-parse.bats::replies become decks, faults are named, records keep their order and keys
@test "a broken line is a bad record, an unknown option a usage error" {
  run deck-scan --run r < <(echo '{"id":')
  assert_failure 65
  run deck-scan --frobnicate < /dev/null
  assert_failure 2
}
