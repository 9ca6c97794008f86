# marks: slow
load ../helper

setup_file() {
  cd "$BATS_FILE_TMPDIR" || exit 1
  mkdir -p r/a/slides
  "$ROOT/.venv/bin/python3" - <<'PY'
import json
from PIL import Image
titles = ["Puffins", "When they come", "What they need"]
said = ["", "In April the first puffins reach the island", "A quiet slope with soft soil, and sand eels"]
xray, slides = [], []
for n, (title, text) in enumerate(zip(titles, said), 1):
    picture = Image.new("L", (980, 552), 250)
    picture.paste(40, (60, 50, 200 * n, 200))
    slides.append(f"a/slides/0{n}.png")
    picture.save("r/" + slides[-1])
    xray.append({"slide": n, "line": 1, "layout": "default", "title": title, "text": f"{title}\n{text}", "overflow": {"x": 0, "y": 0}, "overlap": 0.0,
                 "font": {"min": 16, "dominant": 18, "title": 36}, "contrast": 9.0, "whitespace": 0.6, "blank": False})
row = {"messages": [{"role": "user", "content": "Three slides on puffins"}], "asks": {"slides": 3, "theme": "seriph"}}
deck = {"path": "a/deck.md", "slides": 3, "theme": "seriph"}
render = {"status": "ok", "slides": slides, "expected": 3, "errors": [], "xray": xray}
rows = [
    {"id": "a", **row, "deck": deck, "render": render},
    {"id": "b", **row, "deck": {"error": {"kind": "model", "class": "no-deck", "message": "nothing but reasoning"}}},
    {"id": "c", **row, "deck": deck, "render": {"error": {"kind": "renderer", "class": "internal", "message": "the browser died"}}},
]
with open("in.jsonl", "w") as file:
    file.writelines(json.dumps(each) + "\n" for each in rows)
PY
}
setup() {
  cp -r "$BATS_FILE_TMPDIR/." .
}

# Apply a jq program to every line of stdin.
each() {
  "$ROOT/.venv/bin/python3" -c 'import sys, json, jq
program = jq.compile(sys.argv[1])
for line in sys.stdin:
    for value in program.input_text(line).all(): print(json.dumps(value, separators=(",", ":")))' "$@"
}

@test "a deck gets a reward, a model's fault nothing, and a fault of ours is masked" {
  run --separate-stderr deck-reward --run r < in.jsonl
  assert_success
  assert_equal "$(each '[.id, (.reward | .reward == 0, .reward == null, .masked)]' <<< "$output")" \
'["a",false,false,false]
["b",true,false,false]
["c",false,true,true]'
  assert_equal "$(each 'select(.id == "a") | .reward | .reward, .components.slides, (.rules | startswith("layout "))' <<< "$output")" \
"1
0.75
true"
}

# marks: long
# first: a deck gets a reward, a model's fault nothing, and a fault of ours is masked
@test "every other key is passed through, and rewarding again replaces the reward" {
  deck-reward --run r < in.jsonl > once.jsonl
  deck-reward --run r < once.jsonl > twice.jsonl
  run diff <(each 'del(.reward.by)' < once.jsonl) <(each 'del(.reward.by)' < twice.jsonl)
  assert_success
  run diff <(each 'del(.reward)' < once.jsonl) <(each . < in.jsonl)
  assert_success
}

# marks: long
# first: a deck gets a reward, a model's fault nothing, and a fault of ours is masked
@test "a record that was not rendered is named" {
  run --separate-stderr deck-reward --run r < <(each 'select(.id == "a") | del(.render)' < in.jsonl)
  assert_failure 65
  assert_equal "$stderr" "deck-reward: a: no render in this record; deck-render writes it"
}

@test "rules that cannot be used are refused by file and key before anything is read" {
  sed 's/"offline"/"published"/' "$ROOT/assets/rewards/layout.toml" > mine.toml
  run --separate-stderr deck-reward --rules ./mine.toml < in.jsonl
  assert_failure 78
  assert_equal "$stderr" "deck-reward: mine.toml: protocol: published has no checks; name one that has them, as offline"
  assert_equal "$output" ""
}

# marks: long
# first: tests/rewards/test_rules.py::test_a_reward_with_a_judge_needs_one_that_reads
@test "a reward with a judge that reads asks for one" {
  run --separate-stderr deck-reward --run r --rules read < in.jsonl
  assert_failure 65
  assert_equal "$stderr" "deck-reward: a: no judge.scores of a judge that reads in this record; deck-judge --protocol text writes them"
}
