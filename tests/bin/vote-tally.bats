# marks: slow
load ../helper

setup_file() {
  export STUDY=$BATS_FILE_TMPDIR/study
  "$BATS_TEST_DIRNAME/../../.venv/bin/python3" - "$BATS_FILE_TMPDIR" "$BATS_TEST_DIRNAME/.." << 'EOF'
import sys
from pathlib import Path
folder, tests = map(Path, sys.argv[1:])
sys.path[:0] = [str(tests / "../lib"), str(tests / "web")]
import ballots
from decksmith.people.study import pairs, store
pairs.build(folder / "study", [ballots.run(folder / name, prompts=10, slides=1, size=40) for name in ("one", "two")], prompts=10, seed=1, gold=0)
study = store.Study(folder / "study")
for person in range(6):
    rater = study.rater(study.add_rater(f"person {person}"))
    for n, pair in enumerate(study.queue(rater)):
        about = study.pairs[pair]
        sides = {about[side]["model"]: side for side in ("left", "right")}
        choice = "tie" if n % 5 == 4 else sides["two" if (person + n) % 4 else "one"]
        study.act("vote", rater, pair, {"choice": choice, "seconds": 8, "seen": True}, key=f"key {pair}")
EOF
}

setup() { cp -r "$STUDY" here; }

# marks: long
# first: a closed study is counted once: one object, the votes, tables and pictures
@test "an open study has no results yet" {
  run --separate-stderr vote-tally --study here
  assert_failure 65
  assert_output ''
  assert_equal "$stderr" "vote-tally: here is open; close it first, on the owner's page or by vote-tally --study here --close"
  assert [ ! -e here/tally ]
}

@test "a closed study is counted once: one object, the votes, tables and pictures" {
  scores=$BATS_FILE_TMPDIR/two/scores.jsonl
  mv "$scores" aside
  run --separate-stderr vote-tally --study here --close
  mv aside "$scores"
  assert_success
  assert_equal "$(jq -c '[.study.closed, .votes.counted, .raters, .prompts, (.pairs | length)]' <<< "$output")" '[true,60,6,10,1]'
  assert_equal "$(jq -r '.pairs[0] | [.a, .b, .votes] | @tsv' <<< "$output")" $'one\ttwo\t60'
  assert_equal "$(ls here/tally | tr '\n' ' ')" 'tally.json tally.md votes.jsonl '
  assert_equal "$(jq -cS . here/tally/tally.json)" "$(jq -cS . <<< "$output")"
  assert_equal "$(jq -s length here/tally/votes.jsonl)" "$(jq .votes.all <<< "$output")"
  assert_equal "$stderr" 'vote-tally: two: no scores of a judge beside the votes; `make baseline MODEL=two` brings them'
}

# marks: long
# first: a closed study is counted once: one object, the votes, tables and pictures
@test "--table is for people" {
  run --separate-stderr vote-tally --study here --close --table
  assert_success
  assert_line --index 0 '# Two decks, one request'
  assert_line --partial '| one and two | 60 |'
  assert_equal "$(cat here/tally/tally.md)" "$output"
}

# marks: long
# first: a closed study is counted once: one object, the votes, tables and pictures
@test "a folder without a study says how to make one" {
  mkdir empty
  run vote-tally --study empty
  assert_failure 69
  assert_output 'vote-tally: empty is no study; `pair-build --study empty RUN RUN` makes one'
}
