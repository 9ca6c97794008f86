# marks: slow
load ../helper

@test "a capsule that reaches out of its folder is refused" {
  mkdir in
  echo '{}' > evil
  (cd in && tar --format=ustar -P -cf ../x.tar ../evil)
  rm evil
  run run-replay x.tar
  assert_failure 65
  assert_output "run-replay: x.tar: '../evil' has no place in a capsule"
  assert [ ! -e evil ]
}

# marks: long
# first: a capsule that reaches out of its folder is refused
@test "a capsule of another format is refused" {
  echo '{"format":99}' > capsule.json
  tar --format=ustar -cf x.tar capsule.json
  run run-replay x.tar
  assert_failure 65
  assert_output 'run-replay: x.tar: a capsule of format 99; this reads 2'
}

# marks: long
# first: a capsule that reaches out of its folder is refused
@test "a capsule that is not there is said to be missing" {
  run run-replay x.tar
  assert_failure 69
  assert_output 'run-replay: x.tar: No such file or directory; `make capsule` makes one'
}
