# marks: slow
load ../helper

setup_file() {
  cd "$BATS_FILE_TMPDIR" || exit 1
  for prompt in p1 p2 p3 p4 p5 p6 p7; do
    for rater in ada bob; do echo "$prompt,$rater,one,two,left"; done
    for maker in one two; do
      score=$([ $maker = one ] && echo 4 || echo 2)
      echo '{"id":"'$prompt'","model":"'$maker'","rendered":true,"scores":{"content":'"$score"'}}' >> wise.jsonl
    done
  done | { echo prompt,rater,left,right,choice; cat; } > votes.csv
  vote-import --study here --votes votes.csv > /dev/null
}
setup() {
  cp -r "$BATS_FILE_TMPDIR/." .
}

@test "a judge that prefers what people prefer follows every vote" {
  run --separate-stderr judge-compare --study here wise=wise.jsonl
  assert_success
  [ "$(jq -c '.judges[0] | [.judge, .agreement.mean == 1]' <<< "$output")" = '["wise",true]' ]
}

# marks: long
# first: a judge that prefers what people prefer follows every vote
@test "--table is for people" {
  run judge-compare --study here --table wise=wise.jsonl
  assert_line --partial '| wise |'
  assert_line --partial 'another person'
}

# marks: long
# first: a judge that prefers what people prefer follows every vote
@test "a judge without a name or file is named with what to type" {
  run judge-compare --study here wise
  assert_failure 2
  assert_output --partial "'wise': a judge is NAME=FOLDER or NAME=FILE"
  run judge-compare --study here none=nowhere.jsonl
  assert_failure 69
  assert_output --partial 'there is no nowhere.jsonl'
}

# marks: long
# first: a judge that prefers what people prefer follows every vote
@test "two judges of one name are refused" {
  run judge-compare --study here a=wise.jsonl a=wise.jsonl
  assert_failure 2
  assert_output --partial 'two judges are called a'
}
