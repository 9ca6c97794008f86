# marks: browser
load ../helper

deck() {
  mkdir -p "$1"
  printf -- '---\ntheme: %s\n---\n\n# Cover\n\n---\n\n## Two\n\n<!-- say this -->\n' "$2" > "$1/deck.md"
  echo "{\"id\":\"$1\",\"deck\":{\"path\":\"$1/deck.md\"}}"
}

# The values of a jq program over the output, compact.
of() { "$ROOT/.venv/bin/python3" -c 'import sys, json, jq
for value in jq.compile(sys.argv[1]).input_text(sys.stdin.read()).all(): print(json.dumps(value, separators=(",", ":")))' "$1"; }

@test "the formats that are asked for are built, a deck in a fence is the model's fault, and the order is kept" {
  { deck a default; deck none default; deck b default; } > in.jsonl
  printf -- '```markdown\n---\ntheme: default\n---\n\n# Cover\n```\n' > none/deck.md
  run --separate-stderr deck-build --run . --format site --format pdf --format pptx --format pptx-image < in.jsonl
  assert_success
  run of '[.id, .build.slides, .build.site.path, .build.pdf.path, .build.pptx.path, .build.pptx_image.path, .build.error.class]' <<< "$output"
  assert_output '["a",2,"a/build/index.html","a/build/deck.pdf","a/build/deck.pptx","a/build/deck-image.pptx",null]
["none",0,null,null,null,null,"fenced-deck"]
["b",2,"b/build/index.html","b/build/deck.pdf","b/build/deck.pptx","b/build/deck-image.pptx",null]'
  assert [ "$(head -c 5 a/build/deck.pdf)" = "%PDF-" ]
  cmp a/build/deck.pptx b/build/deck.pptx
  cmp a/build/deck-image.pptx b/build/deck-image.pptx
  cmp a/build/deck.pdf b/build/deck.pdf
  diff -r a/build b/build
  assert [ "$(ls -A _runtime | wc -l)" = 2 ] # one theme's runtime and the fonts
  assert [ ! -e none/build ]
}

@test "a site alone is the default; what was built is taken from the journal until a file of it is lost" {
  deck x seriph > in.jsonl
  deck-build --run . < in.jsonl > first 2> /dev/null
  assert [ ! -e x/build/deck.pdf ]
  run --separate-stderr deck-build --run . < in.jsonl
  assert_output "$(cat first)"
  [[ $stderr == *"from the journal"* ]]
  rm -r _runtime x/build/slide
  run --separate-stderr deck-build --run . < in.jsonl
  [[ $stderr != *"from the journal"* ]]
  assert [ -s x/build/slide/2.js ]
  assert [ -s "$(of .build.site.runtime < first | tr -d '"')/main.js" ]
}

@test "what render or judge said does not matter; without a deck there is nothing to build" {
  deck x default | sed 's/}$/,"judge":{"error":{"kind":"judge","class":"http","message":"503"}}}/' > in.jsonl
  echo '{"id":"y","gen":{"text":""},"deck":{"error":{"kind":"model","class":"empty-reply","message":"nothing came"}}}' >> in.jsonl
  run --separate-stderr deck-build --run . < in.jsonl
  assert_success
  run of '[.id, .build.slides, .build.error.class, .build.error.message]' <<< "$output"
  assert_output '["x",2,null,null]
["y",null,"empty-reply","there is no deck to build: nothing came"]'
}

@test "a format that does not exist is a mistake in use" {
  run deck-build --format docx < /dev/null
  assert_failure 2
}
