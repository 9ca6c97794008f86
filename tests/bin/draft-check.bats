# marks: slow
load ../helper

setup() {
  cp -r "$FIXTURES/drafts/kept" kept
  cp -r kept cold
  sed -i 's/layout: fact/layout: facts/; s/Air from below/{{ air }}/' cold/deck.md
}

# A record as seed-author leaves it.
record() { printf '{"id":"%s","seed":%s,"draft":{"path":"%s"}}\n' "$1" "$(tr -d '\n' < kept/seed.json)" "$2"; }


@test "folders are checked: every fault with file, line, rule and remedy, a table, and 65" {
  run --separate-stderr draft-check --no-render kept cold
  assert_failure 65
  assert_equal "$(echo "$output" | grep -o '"id":"[a-z]*"\|"path":"[a-z]*"\|"class":"[a-z-]*"' | xargs)" \
    "id:kept path:kept id:cold path:cold class:interpolation"
  assert_equal "$(echo "$stderr" | grep -v records)" \
"draft-check: cold: deck.md:31: the layout facts does not exist (unknown-layout); use a layout of Slidev or of the theme
draft-check: cold: model fault, interpolation: deck.md:23: {{ stands outside of code; write \`{{\` only inside of code; Vue evaluates it elsewhere
drafts 1 kept, 1 dropped, 0 never written
       interpolation     1
      unknown-layout     1"
}

# marks: long
# first: folders are checked: every fault with file, line, rule and remedy, a table, and 65
@test "a draft without a fault is kept" {
  run draft-check --no-render kept
  assert_success
}

# marks: long
# first: folders are checked: every fault with file, line, rule and remedy, a table, and 65
@test "in a pipe every record goes on, one that was never written untouched, and a rerun takes verdicts from the journal" {
  { record a kept; record b cold; echo '{"id":"c","seed":{},"draft":{"error":{"kind":"model","class":"timeout","message":"late"}}}'; } > in.jsonl
  run --separate-stderr draft-check --no-render --run . < in.jsonl
  assert_success
  first=$output
  assert_equal "$(echo "$output" | wc -l)" 3
  assert_line --index 2 "$(tail -1 in.jsonl)"
  [[ $stderr == *"drafts 1 kept, 1 dropped, 1 never written"* ]]
  run --separate-stderr draft-check --no-render --run . < in.jsonl
  assert_output "$first"
  [[ $stderr == *"2 of them from the journal, 1 passed through"* ]]
  [[ $stderr == *"draft-check: b: deck.md:23: {{ stands"* ]]
  sed -i 's/facts/fact/; s/{{ air }}/Air/' cold/deck.md
  run --separate-stderr draft-check --no-render --run . < in.jsonl
  [[ $stderr == *"drafts 2 kept, 0 dropped, 1 never written"* ]]
}

# marks: long
# first: folders are checked: every fault with file, line, rule and remedy, a table, and 65
@test "a folder without a seed is bad data" {
  rm kept/seed.json
  run draft-check kept
  assert_failure 65
  assert_output "draft-check: kept/seed.json: [Errno 2] No such file or directory: 'kept/seed.json'"
}
