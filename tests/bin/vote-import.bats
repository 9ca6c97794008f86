load ../helper

# marks: slow
@test "votes are taken once, and named where they are none" {
  printf 'prompt,rater,left,right,choice\np1,ada,one,two,left\np2,ada,two,one,one\n' > votes.csv
  run --separate-stderr vote-import --study new --votes votes.csv
  assert_success
  assert_equal "$(jq -c '[.votes, .kept, .raters, .prompts, .makers]' <<< "$output")" '[2,0,1,2,["one","two"]]'
  run --separate-stderr vote-import --study new --votes votes.csv
  assert_equal "$(jq -c '[.votes, .kept]' <<< "$output")" '[0,2]'
  echo p3,,one,two,left >> votes.csv
  run --separate-stderr vote-import --study other --votes votes.csv
  assert_failure 65
  assert_equal "$stderr" "vote-import: votes.csv:4: rater: there is none; the row has prompt, left, right, choice
nothing was taken"
  assert [ ! -e other ]
  run vote-import --study new
  assert_failure 2
}
