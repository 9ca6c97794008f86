# marks: slow
load ../helper

# A folder of three pictures of slides.
pictures() {
  "$ROOT/.venv/bin/python3" -c 'import sys; from PIL import Image
from pathlib import Path
Path(sys.argv[1]).mkdir()
for n in (1, 2, 3): Image.new("RGB", (80, 45), (60 * n, 0, 0)).save(f"{sys.argv[1]}/{n}.png")' "$1"
}

setup() {
  export DECKSMITH_MODELS="$PWD/models" NAME="bats-import-$$"
}
teardown() { rm -rf "$ROOT/data/decks/$NAME"; }

@test "a deck becomes a model's, its prompt is said, and a second time nothing is read" {
  pictures p001
  pictures 'Last year'
  IN=$(realpath -m --relative-to="$PWD" "$ROOT/data/decks/$NAME")
  run --separate-stderr deck-import --as "$NAME" p001 'Last year'
  assert_success
  assert_equal "$stderr" "deck-import: p001: pictures, 3 slides, prompt p001 of prompts.jsonl
deck-import: Last year: pictures, 3 slides, of no prompt
deck-import: next: make baseline MODEL=$NAME PROMPTS=$IN/$NAME.jsonl
deck-import: next: make baseline MODEL=$NAME PROMPTS=$IN/alone.jsonl"
  assert_equal "$(cut -c1-12 <<< "$output")" '{"id": "p001
{"id": "Last'
  grep -q "^base_url = \"files:data/decks/$NAME/\"$" "models/$NAME.toml"
  run --separate-stderr deck-import --as "$NAME" p001
  assert_equal "$stderr" "deck-import: p001: pictures, 3 slides, prompt p001 of prompts.jsonl, as it was
deck-import: next: make baseline MODEL=$NAME PROMPTS=$IN/$NAME.jsonl
deck-import: next: make baseline MODEL=$NAME PROMPTS=$IN/alone.jsonl"
}

# marks: long
# first: tests/render/test_imported.py::test_checks_that_cannot_apply_are_absent_and_named
@test "the pipeline takes an imported deck, and says which checks it leaves out" {
  pictures p001
  deck-import --as "$NAME" p001 2> /dev/null > in.jsonl
  chat-generate --model "$NAME" --run . < in.jsonl 2> /dev/null | deck-parse --run . 2> /dev/null |
    deck-illustrate --run . 2> /dev/null | deck-render --run . 2> /dev/null |
    deck-judge --run . 2> /dev/null > judged.jsonl
  "$ROOT/.venv/bin/python3" -c 'import json
record = json.loads(open("judged.jsonl").read())
assert record["render"]["imported"] == "pictures", record["render"]
assert record["render"]["slides"] == [f"p001/slides/{n:02d}.png" for n in (1, 2, 3)]
assert record["judge"]["not_checked"]["heading"] == "a picture has no text"
assert record["judge"]["asked"] == []'
  assert [ -s p001/slides/03.png ]
}

# marks: long
# first: a deck becomes a model's, its prompt is said, and a second time nothing is read
@test "a wrong file, a taken name and a name that is none are refused in a sentence" {
  echo 'Dear colleague' > letter.txt
  run --separate-stderr deck-import --as "$NAME" letter.txt
  assert_failure 65
  assert_equal "$stderr" "deck-import: letter.txt cannot be read: it is none of these: a PDF, PowerPoint or OpenDocument file, a page of reveal.js or Marp, a picture (PNG, JPEG, WebP) or a folder or zip of pictures; export it as PDF"
  run --separate-stderr deck-import --as smol letter.txt
  assert_failure 78
  assert_equal "$stderr" 'deck-import: smol is a model already; give these decks another name with --as'
  run --separate-stderr deck-import --as "$NAME" none.pdf
  assert_failure 65
  assert_equal "$stderr" 'deck-import: there is no none.pdf; name a file, a folder of pictures, or ID=FILE'
  assert [ ! -e models ]
}
