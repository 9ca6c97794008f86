load ../helper

setup_file() {
  export STUDY=$BATS_FILE_TMPDIR/study
  "$BATS_TEST_DIRNAME/../../.venv/bin/python3" - "$BATS_FILE_TMPDIR" "$BATS_TEST_DIRNAME/.." << 'EOF'
import hashlib, hmac, json, sys
from pathlib import Path
folder, tests = map(Path, sys.argv[1:])
sys.path[:0] = [str(tests / "../lib"), str(tests / "web")]
import ballots as drawn
from decksmith.study import ballots, pairs, store
pairs.build(folder / "study", [drawn.run(folder / name, prompts=5, slides=1, size=40) for name in ("one", "two")], prompts=5, seed=1, gold=0, repeats=0)
study = store.Study(folder / "study")
rater = study.rater(study.add_rater("Ada", source="ballot"))
answers = [{"pair": pair, "key": f"key {pair}", "ballot": {"choice": "left", "seconds": 8, "seen": True}} for pair in study.queue(rater)]
for name, some in (("whole", answers), ("part", answers[:2])):
    payload = json.dumps({"study": ballots.study_id(study), "rater": rater, "at": "2026-11-21T20:00:00Z", "answers": some, "skipped": []})
    signature = hmac.new(ballots.key(study, rater), payload.encode(), hashlib.sha256).hexdigest()
    (folder / f"{name}.json").write_text(json.dumps({"ballot": 1, "payload": payload, "signature": signature}))
EOF
}

setup() { cp -r "$STUDY" here; cp "$BATS_FILE_TMPDIR"/{whole,part}.json .; }

@test "takes a file once, however often it comes" {
  run --separate-stderr vote-import --study here whole.json whole.json
  assert_success
  assert_output '{"file": "whole.json", "is": "stored", "rater": "Ada", "votes": 5, "same": 0, "differ": 0, "why": null}
{"file": "whole.json", "is": "same", "rater": "Ada", "votes": 0, "same": 5, "differ": 0, "why": null}'
  assert_equal "$stderr" ''
}

@test "refuses what was changed, cut off, or is not finished, says why, and takes the others" {
  sed 's/left/right/' whole.json > changed.json
  head -c 300 whole.json > cut.json
  run --separate-stderr vote-import --study here changed.json cut.json part.json nowhere.json whole.json
  assert_failure 65
  assert_equal "$(jq -r '[.file, .is, .votes] | @tsv' <<< "$output")" 'changed.json	refused	0
cut.json	refused	0
part.json	refused	0
nowhere.json	refused	0
whole.json	stored	5'
  assert_equal "$stderr" 'vote-import: changed.json: refused: the signature does not fit: somebody or something changed the file after it was saved; ask for it again
vote-import: cut.json: refused: no JSON: cut off, or not a file of answers
vote-import: part.json: refused: 3 of 5 pairs have no answer yet; --unfinished takes what is there, and the rest can come later
vote-import: nowhere.json: refused: cannot be read: No such file or directory'
}

@test "takes an unfinished file when told to, and the rest later" {
  run --separate-stderr vote-import --study here --unfinished part.json
  assert_success
  run --separate-stderr vote-import --study here whole.json
  assert_success
  assert_output '{"file": "whole.json", "is": "stored", "rater": "Ada", "votes": 3, "same": 2, "differ": 0, "why": null}'
}

@test "answers to another study are refused as such" {
  head -c 32 /dev/urandom > here/secret
  run --separate-stderr vote-import --study here whole.json
  assert_failure 65
  assert_equal "$stderr" 'vote-import: whole.json: refused: of another study'
}

# marks: slow
@test "votes from elsewhere are taken once, and named where they are none" {
  printf 'prompt,rater,left,right,choice\np1,ada,one,two,left\np2,ada,two,one,one\n' > votes.csv
  run --separate-stderr vote-import --study new --votes votes.csv
  assert_success
  assert_equal "$(jq -c '[.is, .votes, .same, .raters, .prompts, .makers]' <<< "$output")" '["stored",2,0,1,2,["one","two"]]'
  run --separate-stderr vote-import --study new --votes votes.csv
  assert_equal "$(jq -c '[.is, .votes, .same]' <<< "$output")" '["same",0,2]'
  echo p3,,one,two,left >> votes.csv
  run --separate-stderr vote-import --study other --votes votes.csv
  assert_failure 65
  assert_equal "$stderr" "vote-import: votes.csv:4: rater: is empty
nothing was taken"
  assert [ ! -e other ]
  run vote-import --study here --votes votes.csv whole.json
  assert_failure 2
  run vote-import --study here
  assert_failure 2
}

@test "help is the script's own header" {
  run vote-import --help
  assert_success
  assert_line --index 0 'Put the answers that people sent back from their ballots into the study, or make a study of votes that were cast elsewhere.'
}
