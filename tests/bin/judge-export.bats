load ../helper

@test "a run without judged checklists has nothing to answer" {
  mkdir run
  echo '{"id":"p1","checklist":[{"id":"c1","ask":"x"}]}' > run/scores.jsonl
  run judge-export --run run --out page.html ada
  assert_failure 65
  assert_output --partial 'run: no deck with a checklist was judged'
  [ ! -e page.html ]
}
