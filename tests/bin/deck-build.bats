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

@test "the formats that are asked for are built whatever the judge said, in order; a deck in a fence or none is the model's fault" {
  { deck a default; deck none default; deck b default | sed 's/}$/,"judge":{"error":{"kind":"judge","class":"http","message":"503"}}}/'; } > in.jsonl
  echo '{"id":"y","gen":{"text":""},"deck":{"error":{"kind":"model","class":"empty-reply","message":"nothing came"}}}' >> in.jsonl
  printf -- '```markdown\n---\ntheme: default\n---\n\n# Cover\n```\n' > none/deck.md
  run --separate-stderr deck-build --run . --format site --format pdf --format pptx --format pptx-image < in.jsonl
  assert_success
  assert_output --partial "there is no deck to build: nothing came"
  run of '[.id, .build.slides, .build.site.path, .build.pdf.path, .build.pptx.path, .build.pptx_image.path, .build.error.class]' <<< "$output"
  assert_output '["a",2,"a/build/index.html","a/build/deck.pdf","a/build/deck.pptx","a/build/deck-image.pptx",null]
["none",0,null,null,null,null,"fenced-deck"]
["b",2,"b/build/index.html","b/build/deck.pdf","b/build/deck.pptx","b/build/deck-image.pptx",null]
["y",null,null,null,null,null,"empty-reply"]'
  assert [ "$(head -c 5 a/build/deck.pdf)" = "%PDF-" ]
  cmp a/build/deck.pptx b/build/deck.pptx
  cmp a/build/deck-image.pptx b/build/deck-image.pptx
  cmp a/build/deck.pdf b/build/deck.pdf
  diff -r a/build b/build
  assert [ "$(ls -A _runtime | wc -l)" = 2 ] # one theme's runtime and the fonts
  assert [ ! -e none/build ]
}

# marks: long
# first: tests/render/test_pool.py::test_a_deck_that_was_rendered_before_needs_no_worker_and_gives_the_same_record_and_bytes
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

# marks: long
# first: the formats that are asked for are built whatever the judge said, in order; a deck in a fence or none is the model's fault
@test "a format that does not exist is a mistake in use" {
  run deck-build --format docx < /dev/null
  assert_failure 2
}

# marks: long
# first: the formats that are asked for are built whatever the judge said, in order; a deck in a fence or none is the model's fault
@test "decks of one's own that have one name have a folder each, whether they are built together or one by one" {
  mkdir a b
  for folder in a b; do printf -- '---\ntheme: default\n---\n\n# Deck %s\n\n---\n\n## Two\n' $folder > $folder/deck.md; done
  deck-build --format pdf a/deck.md > /dev/null 2>&1
  cp a-deck/build/deck.pdf first.pdf
  run --separate-stderr deck-build --format pdf b/deck.md a/deck.md
  assert_success
  run of '[.id, .build.pdf.path]' <<< "$output"
  assert_output '["b-deck","b-deck/build/deck.pdf"]
["a-deck","a-deck/build/deck.pdf"]'
  cmp a-deck/build/deck.pdf first.pdf
  run ! cmp a-deck/build/deck.pdf b-deck/build/deck.pdf
}

# marks: long
# first: tests/bin/deck-illustrate.bats::queries become drawn pictures on the same lines, other decks stay, faults pass
@test "pictures that a deck asks for are there as deck-illustrate puts them, its own too, and a missing one is said" {
  mkdir images
  cp "$ROOT/assets/pictures/"$(ls "$ROOT/assets/pictures" | grep -m 1 jpg) images/own.jpg
  printf -- '---\ntheme: default\n---\n\n# Cover\n\n---\nlayout: image-right\nimage-query: coral reef\n---\n\n## Reef\n\n![mine](images/own.jpg)\n\n---\n\n## Gone\n\n![lost](images/lost.png)\n' > talk.md
  run --separate-stderr deck-build --format pptx talk.md
  assert_success
  assert_equal "$stderr" "deck-build: talk: line 20: the picture images/lost.png is not there
deck-build: 1 records in ${stderr##* in }"
  run "$ROOT/.venv/bin/python3" -c 'from pptx import Presentation
slide = Presentation("talk/build/deck.pptx").slides[1]
print(slide.slide_layout.name)
for shape in slide.shapes:
    print(shape.shape_type, shape._element.xpath(".//p:cNvPr/@descr"))'
  assert_output --partial "Picture with Caption"
  assert_output --partial "['coral reef']"
  assert_output --partial "['mine']"
  assert [ -s images/own.jpg ]
  run --separate-stderr bash -c 'deck-illustrate talk.md | deck-build --run . --format pptx'
  run of '[.build.errors[].message]' <<< "$output"
  assert_output '["the picture images/lost.png is not there"]'
}
