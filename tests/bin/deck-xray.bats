# marks: browser
load ../helper

# A deck of three slides, rendered; its third slide begins on line 11.
deck() {
  mkdir -p "$1"
  printf -- '---\ntheme: default\n---\n\n# Cover\n\n---\n\n## Two\n\n---\n\n%b\n' "$2" > "$1/deck.md"
  echo "{\"id\":\"$1\",\"deck\":{\"path\":\"$1/deck.md\"}}"
}

# The values of a jq program over the output, compact.
of() { "$ROOT/.venv/bin/python3" -c 'import sys, json, jq
for value in jq.compile(sys.argv[1]).input_text(sys.stdin.read()).all(): print(json.dumps(value, separators=(",", ":")))' "$1"; }

setup_file() {
  cd "$BATS_FILE_TMPDIR" || exit 1
  { deck good '## Three'; deck small '# Three\n\n<p style="font-size:8px">tiny</p>'; deck open '# Three\n\nan <open> tag'; } |
    deck-render --run . > in.jsonl 2> /dev/null
}
setup() {
  cp -r "$BATS_FILE_TMPDIR/." .
}

@test "findings are printed as lint by line, in the order of the records, and --strict exits 65" {
  run --separate-stderr deck-xray --run . < in.jsonl
  assert_success
  assert_output 'small/deck.md:15: text is set in 8 px, below 12 (small-text)
open/deck.md:15: Element is missing end tag. (vue-compile)'
  assert [ -z "$stderr" ]
  run --separate-stderr deck-xray --run . --strict < in.jsonl
  assert_failure 65
  head -n 1 in.jsonl > good.jsonl
  run --separate-stderr deck-xray --run . --strict < good.jsonl
  assert_success
  assert_output ''
}

# marks: long
# first: findings are printed as lint by line, in the order of the records, and --strict exits 65
@test "--json passes the records on with their findings" {
  sed -i 3d in.jsonl
  echo '{"id":"y","gen":{"error":{"kind":"infra","class":"http","message":"503"}}}' >> in.jsonl
  run --separate-stderr deck-xray --run . --json < in.jsonl
  assert_success
  run of '[.id, (.xray.findings | map([.slide, .line, .check])), .xray.by.tool]' <<< "$output"
  assert_output '["good",[],"deck-xray"]
["small",[[3,15,"small-text"]],"deck-xray"]
["y",[],"deck-xray"]'
}

# marks: long
# first: findings are printed as lint by line, in the order of the records, and --strict exits 65
@test "a record that was not rendered is a bad record" {
  run deck-xray --run . <<< '{"id":"x","deck":{"path":"x/deck.md"}}'
  assert_failure 65
  assert_output 'deck-xray: x: no "render" in this record; deck-render writes it'
}
