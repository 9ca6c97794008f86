load ../helper

setup() { PATH=$ROOT/.venv/bin:$PATH; }

# Runs of four requests, three slides each.
runs() {
  "$ROOT/.venv/bin/python3" - "$@" <<'END'
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1] + "/tests/web")
import ballots
for name in sys.argv[2:]:
    ballots.run(Path(name), prompts=4, size=98, failed=range(4) if name == "broken" else ())
END
}

# marks: slow
@test "two runs become pairs whose files say nothing, and a third adds its own without touching them" {
  runs "$ROOT" one two three
  run --separate-stderr pair-build --study study --seed 1 one two
  assert_success
  assert_output '{"study": "study", "runs": ["one", "two"], "pairs": {"vote": 4, "repeat": 1, "gold": 1}, "added": {"vote": 4, "repeat": 1, "gold": 1}, "seed": 1}'
  assert_equal "$stderr" 'pair-build: study: 4 pairs, 1 repeat, 1 attention item added'
  run jq -s '[map(select(.kind == "vote")) | group_by(.left.run)[] | length]' -c study/pairs.jsonl
  assert_output '[2,2]'
  run bash -c 'ls study/pictures | grep -cEx "[a-z2-7]{26}\.webp"'
  assert_output 36
  cp study/pairs.jsonl before
  run --separate-stderr pair-build --study study three
  assert_equal "$stderr" 'pair-build: study: 8 pairs, 1 repeat added'
  run cmp -n "$(stat -c %s before)" before study/pairs.jsonl
  assert_success
  run --separate-stderr pair-build --study study one two three
  assert_equal "$stderr" 'pair-build: study: nothing to add'
}

# marks: slow long
# first: two runs become pairs whose files say nothing, and a third adds its own without touching them
@test "a study in which no two decks rendered is refused" {
  runs "$ROOT" one broken
  run -65 pair-build --study study one broken
  assert_line --index 0 'pair-build: there is no request for which two of these runs have a rendered deck'
  assert_line --index 1 '  broken: 0 of 4 rendered (4 yaml)'
  assert_line --index 3 '  --failed also pairs answers that gave no accepted deck'
}

# marks: long
# first: two runs become pairs whose files say nothing, and a third adds its own without touching them
@test "decks that did not render are paired when asked for" {
  runs "$ROOT" one broken
  run --separate-stderr pair-build --study study --failed one broken
  assert_success
  run jq -s 'map(select(.kind == "vote")) | all(.pictures | any(. == []))' study/pairs.jsonl
  assert_output true
}

# marks: long
# first: two runs become pairs whose files say nothing, and a third adds its own without touching them
@test "a run that is not there is named with the command that makes it, and the help shows a pipe" {
  run -69 pair-build none
  assert_output 'pair-build: there is no run none; `make baseline MODEL=NAME` makes it'
  run -2 pair-build
  run pair-build --help
  assert_line --partial 'pair-build --study results/blindtest/decks results/runs/base/offline results/runs/tuned/offline | jq .pairs'
}
