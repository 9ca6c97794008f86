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
from decksmith.study import pairs, store
pairs.build(folder / "study", [ballots.run(folder / name, prompts=5, slides=1, size=40) for name in ("one", "two")], prompts=5, seed=1, gold=0)
EOF
}

setup() { cp -r "$STUDY" here; }

@test "writes one page a person, the same again when it is asked again" {
  run --separate-stderr vote-export --study here --out ballots 'Ada Lovelace' grace
  assert_success
  first=$output
  assert_equal "$(jq -r .name <<< "$output")" $'Ada Lovelace\ngrace'
  assert_equal "$(jq -r '.path' <<< "$output" | xargs -n 1 dirname | sort -u)" ballots
  for page in $(jq -r .path <<< "$output"); do
    assert_equal "$(head -c 15 "$page")" '<!doctype html>'
    assert_equal "$(wc -c < "$page")" "$(jq --arg page "$page" 'select(.path == $page).bytes' <<< "$output")"
  done
  sha256sum ballots/* > sums
  run --separate-stderr vote-export --study here --out ballots 'Ada Lovelace' grace
  assert_output "$first"
  sha256sum --quiet --check sums
}

@test "ballots go into the study's folder by default" {
  run --separate-stderr vote-export --study here ada
  assert_success
  assert_equal "$(jq -r .path <<< "$output")" "$(echo here/ballots/ada-*.html)"
}

@test "a closed study gives no ballot" {
  vote-export --study here ada > /dev/null
  "$ROOT/.venv/bin/python3" -c 'import sys; sys.path.insert(0, sys.argv[1]); from decksmith.study import store; store.Study("here").close()' "$ROOT/lib"
  run vote-export --study here grace
  assert_failure 65
  assert_output 'vote-export: grace: the study is closed'
}

@test "an empty name is no name" {
  run vote-export --study here ' '
  assert_failure 65
  assert_output 'vote-export: a name has 1 to 40 characters'
}

@test "help is the script's own header" {
  run vote-export --help
  assert_success
  assert_line --index 0 'Write ballots for people without a connection: one page a person that is one file, pictures and all.'
}
