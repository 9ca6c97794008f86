# marks: browser
load ../helper

deck() {
  mkdir -p "$1"
  printf -- '---\ntheme: %s\n---\n\n# Cover\n\n---\n\n## Two\n\n- a\n\n---\n\n%s\n' "$2" "$3" > "$1/deck.md"
  echo "{\"id\":\"$1\",\"deck\":{\"path\":\"$1/deck.md\"}}"
}

# The values of a jq program over the output, compact.
of() { "$ROOT/.venv/bin/python3" -c 'import sys, json, jq
for value in jq.compile(sys.argv[1]).input_text(sys.stdin.read()).all(): print(json.dumps(value, separators=(",", ":")))' "$1"; }

@test "good and bad decks come out in order, with pictures, status and the line of the fault" {
  { deck good default '## Three'; deck bad seriph 'an <open> tag'; deck none nosuch '## Three'; } > in.jsonl
  # The illustrated deck is preferred; a record that already failed passes through.
  deck x default '## Three' > /dev/null
  sed 's/Cover/Illustrated/' x/deck.md > x/illustrated.md
  echo '{"id":"x","deck":{"path":"x/deck.md"},"images":{"path":"x/illustrated.md","items":[]}}' >> in.jsonl
  echo '{"id":"y","gen":{"error":{"kind":"infra","class":"http","message":"503"}}}' >> in.jsonl
  run --separate-stderr deck-render --run . < in.jsonl
  assert_success
  said=$output
  run of '[.id, .render.status, (.render.slides | length), (.render.errors // [] | map([.class, .slide, .line])), .render.xray[0].title]' <<< "$said"
  assert_output '["good","ok",3,[],"Cover"]
["bad","partial",3,[["vue-compile",3,15]],"Cover"]
["none","partial",3,[["unknown-theme",1,2]],"Cover"]
["x","ok",3,[],"Illustrated"]
["y",null,0,[],null]'
  assert [ -s good/slides/03.png ]
  cmp none/slides/02.png good/slides/02.png
}

# marks: long
# first: good and bad decks come out in order, with pictures, status and the line of the fault
@test "what was rendered is taken from the journal; a lost picture or another text is rendered again" {
  deck x default '## Three' > in.jsonl
  deck-render --run . < in.jsonl > first 2> /dev/null
  run --separate-stderr deck-render --run . < in.jsonl
  assert_output "$(cat first)"
  [[ $stderr == *"from the journal"* ]]
  rm x/slides/02.png
  run --separate-stderr deck-render --run . < in.jsonl
  assert [ -s x/slides/02.png ]
  deck x default '## Another' > in.jsonl
  run --separate-stderr deck-render --run . < in.jsonl
  [[ $stderr == *"1 done"* && $stderr != *"journal"* ]]
}

# marks: long
# first: good and bad decks come out in order, with pictures, status and the line of the fault
@test "what any run rendered is taken from there by the next, also while another process renders it" {
  unset DECKSMITH_RENDERS
  export XDG_CACHE_HOME=$PWD/cache
  deck x seriph 'an <open> tag' > in.jsonl
  mkdir a b c
  cp -r x a; cp -r x b; cp -r x c
  deck-render --run a < in.jsonl > a.jsonl 2> /dev/null &
  deck-render --run b < in.jsonl > b.jsonl 2> /dev/null
  wait $!
  deck-render --run c < in.jsonl > c.jsonl 2> /dev/null
  run of 'del(.render.by)' < a.jsonl
  expected=$output
  run of 'del(.render.by)' < b.jsonl
  assert_output "$expected"
  run of 'del(.render.by)' < c.jsonl
  assert_output "$expected"
  run of '.render.by.cached' < c.jsonl
  assert_output true
  diff -r a/x b/x
  diff -r a/x c/x
  run ls cache/decksmith/renders
  assert_output --regexp '^[0-9a-f]{64}$'
}

# marks: long
# first: good and bad decks come out in order, with pictures, status and the line of the fault
@test "a deck of one's own is rendered where one is, without a journal" {
  deck x default '## Three' > /dev/null
  mv x/deck.md talk.md && rmdir x
  run --separate-stderr deck-render talk.md
  assert_success
  run of '[.id, .deck.path, .render.status]' <<< "$output"
  assert_output '["talk","talk.md","ok"]'
  assert_equal "$(ls --ignore "separate-*")" "talk
talk.md"
  assert_equal "$(ls talk)" slides
}

# marks: long
# first: good and bad decks come out in order, with pictures, status and the line of the fault
@test "the scripts score a deck of one's own in a pipe, and with --run the journal is there" {
  deck x default '## Three' > /dev/null
  mv x/deck.md talk.md
  run --separate-stderr bash -c 'deck-illustrate --run r talk.md | deck-render --run r | deck-judge --run r | deck-scan --run r | deck-score'
  assert_success
  run of '[.id, .score.checks > 0.5]' <<< "$output"
  assert_output '["talk",true]'
  assert_equal "$(ls r/journal)" "images.jsonl
judge.jsonl
render.jsonl"
}

# marks: long
# first: good and bad decks come out in order, with pictures, status and the line of the fault
@test "a record whose deck cannot be read is a bad record" {
  run deck-render --run . <<< '{"id":"x","deck":{"path":"x/deck.md"}}'
  assert_failure 65
  assert_output --partial 'deck-render: x: the deck of this record cannot be read'
}

# marks: long
# first: good and bad decks come out in order, with pictures, status and the line of the fault
@test "the engine names what decides the pixels" {
  deck x default '## Three' > in.jsonl
  run --separate-stderr deck-render --run . --scale 2 < in.jsonl
  run of '.render.engine | [.slidev, .scale, .mode, (.lock | length), (.fonts | length), (.browser | test("chromium"))]' <<< "$output"
  assert_output '["52.20.1",2,"page",64,64,true]'
}
