# marks: slow
load ../helper

# Apply a jq program to every line of a file or of stdin (the box may have no jq of its own).
each() {
  "$ROOT/.venv/bin/python3" -c 'import sys, json, jq
program = jq.compile(sys.argv[1])
for line in open(sys.argv[2] if len(sys.argv) > 2 else 0):
    for value in program.input_text(line).all(): print(json.dumps(value, separators=(",", ":")))' "$@"
}

setup_file() {
  cd "$BATS_FILE_TMPDIR" || exit 1
  make_run
}
setup() {
  cp -r "$BATS_FILE_TMPDIR/." .
}
teardown() { stop_endpoint; }

# A run folder with three pictures, and the record of its deck in in.jsonl.
make_run() {
  "$ROOT/.venv/bin/python3" - <<'PY'
import json, pathlib
from PIL import Image, ImageDraw
titles = ["Coral reefs", "Why reefs matter", "Summary"]
xray = []
for n, title in enumerate(titles, 1):
    path = pathlib.Path(f"r/p1/slides/{n:02}.png")
    path.parent.mkdir(parents=True, exist_ok=True)
    picture = Image.new("RGB", (980, 552), "white")
    ImageDraw.Draw(picture).rectangle((60, 60, 200 + 90 * n, 90), fill="black")
    picture.save(path)
    xray.append({"slide": n, "layout": "cover" if n == 1 else "default", "title": title, "text": f"{title} Reefs feed families and break the waves {n}",
                 "words": 9, "images": 0, "line": 1, "overflow": {"x": 0, "y": 0}, "overlap": 0.0, "font": {"min": 16, "dominant": 18, "title": 36},
                 "contrast": 9.0, "whitespace": 0.6, "blank": False})
pathlib.Path("r/p1/deck.md").write_text("# Coral reefs\n")
json.dump({"id": "p1", "messages": [{"role": "user", "content": "Three slides on reefs"}], "asks": {"slides": 3},
           "checklist": [{"id": "c1", "ask": "Says why reefs matter", "match": ["feed families"]}],
           "deck": {"path": "p1/deck.md", "theme": "default"},
           "render": {"status": "ok", "slides": [f"p1/slides/{n:02}.png" for n in (1, 2, 3)], "expected": 3, "errors": [], "xray": xray}},
          open("in.jsonl", "w"))
open("in.jsonl", "a").write("\n")
PY
}

score='{"score":4,"why":"w","evidence":[{"slide":1,"seen":"s"}]}'
reply="{\"content\":$score,\"design\":$score,\"coherence\":$score,\"observations\":[],\"checklist\":[{\"id\":\"c1\",\"yes\":true,\"slide\":2}]}"

@test "the offline protocol needs no network and no key, and says the same each time" {
  deck-judge --run r < in.jsonl > first.jsonl
  rm -r r/journal
  deck-judge --run r --protocol offline --jobs 2 < in.jsonl > second.jsonl
  run each '.judge|[.judge,.checks,.checklist,(.findings|map([.check,.slide]))]' first.jsonl
  assert_output '["offline checks",{"passed":3,"of":4},[{"id":"c1","yes":true,"slide":1}],[["twice",2]]]'
  run diff <(each 'del(..|.by?)' first.jsonl) <(each 'del(..|.by?)' second.jsonl)
  assert_success
}

# marks: long
# first: tests/judging/test_judges.py::test_a_changed_picture_makes_a_reply_stale_and_a_missing_one_stops
@test "a finished record is taken from the journal, and judged again when its pictures change" {
  deck-judge --run r < in.jsonl > /dev/null
  run deck-judge --run r < in.jsonl
  assert_line --partial '1 of them from the journal'
  cp r/p1/slides/01.png r/p1/slides/02.png
  run deck-judge --run r < in.jsonl
  assert_line --partial '1 done'
}

@test "the published protocol asks the judge with the pictures and records what it said" {
  printf '%s' "$reply" > reply.txt
  start_endpoint --reply reply.txt --log asked.jsonl
  run --separate-stderr env OPENROUTER_API_KEY=x deck-judge --run r --protocol published --base-url "$URL" < in.jsonl
  assert_success
  assert_equal "$(each '.judge|[.judge,.scores,.checklist,.replies]' <<< "$output")" \
    '["google/gemini-3-flash-preview",{"content":4,"design":4,"coherence":4},[{"id":"c1","yes":true,"slide":2}],["p1/judge/1.txt"]]'
  assert_equal "$(cat r/p1/judge/1.txt)" "$reply"
  assert_equal "$(wc -l < asked.jsonl)" 1
}

@test "a judge that talks nonsense is a judge fault, named and kept, with exit 0" {
  echo 'A lovely deck!' > reply.txt
  start_endpoint --reply reply.txt
  run --separate-stderr env OPENROUTER_API_KEY=x deck-judge --run r --protocol published --base-url "$URL" < in.jsonl
  assert_success
  assert_equal "$(each '.judge|[.error,.scores]' <<< "$output")" \
    '[{"kind":"judge","class":"unparseable","message":"no usable reply in 4 tries; the last: it holds no JSON object"},null]'
  assert_equal "$(ls r/p1/judge)" $'1.txt\n2.txt\n3.txt\n4.txt'
}

# marks: long
# first: tests/bin/chat-generate.bats::passing faults of the endpoint are retried until every row has its reply
@test "a storm of 429 replies costs time and no reply" {
  printf '%s' "$reply" > reply.txt
  start_endpoint --reply reply.txt --storm 3 --log asked.jsonl
  run --separate-stderr env OPENROUTER_API_KEY=x deck-judge --run r --protocol published --base-url "$URL" < in.jsonl
  assert_success
  assert_equal "$(each '[.status]' asked.jsonl | sort | uniq -c | tr -s ' ')" $' 1 [200]\n 3 [429]'
}

# marks: long
# first: the offline protocol needs no network and no key, and says the same each time
@test "an endpoint that refuses the request is an infrastructure fault and leaves no score" {
  start_endpoint --plan 400=1
  run --separate-stderr env OPENROUTER_API_KEY=x deck-judge --run r --protocol published --base-url "$URL" < in.jsonl
  assert_equal "$(each '.judge|[.error.kind,.error.retriable,.scores]' <<< "$output")" '["infra",false,null]'
}

# marks: long
# first: the offline protocol needs no network and no key, and says the same each time
@test "without the judge's key nothing is asked and the key is named" {
  run env -u OPENROUTER_API_KEY deck-judge --run r --protocol published < in.jsonl
  assert_failure 78
  assert_line --partial 'OPENROUTER_API_KEY'
}

# marks: long
# first: tests/core/test_stream.py::test_a_record_that_failed_earlier_goes_through_untouched
@test "a deck that did not render goes through untouched" {
  each '.render={"error":{"kind":"model","class":"yaml","message":"m"}}' in.jsonl > broken.jsonl
  run --separate-stderr deck-judge --run r < broken.jsonl
  assert_success
  assert_output "$(cat broken.jsonl)"
}

# marks: long
# first: the offline protocol needs no network and no key, and says the same each time
@test "a record that was never rendered is named with its line" {
  run deck-judge --run r <<< '{"id":"p2"}'
  assert_failure 65
  assert_line --partial 'deck-judge: stdin:1: p2: no "render" in this record'
}

# marks: long
# first: tests/judging/test_protocol.py::test_an_unknown_protocol_lists_the_known_ones
@test "an unknown protocol and a broken one are configuration errors" {
  run deck-judge --run r --protocol nope < in.jsonl
  assert_failure 78
  assert_line --partial 'there are: edit, offline, open, published'
  sed 's/^overlap = /overlay = /' "$ROOT/assets/protocols/offline.toml" > mine.toml
  run deck-judge --run r --protocol mine.toml < in.jsonl
  assert_failure 78
  assert_line --partial 'mine.toml: checks'
}
