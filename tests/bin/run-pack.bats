load ../helper

@test "a run that is not whole is named with the file it lacks" {
  mkdir r
  run run-pack --out caps r
  assert_failure 69
  assert_output 'run-pack: r/scores.jsonl: No such file or directory; `make baseline MODEL=NAME` makes it'
  assert [ ! -e caps ]
}

# marks: long
# first: a run that is not whole is named with the file it lacks
@test "two runs of one name are refused" {
  run run-pack --out caps a/r b/r
  assert_failure 65
  assert_output 'run-pack: two of these runs have one name; a capsule tells them apart by it'
}
