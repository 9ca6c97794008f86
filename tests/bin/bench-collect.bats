load ../helper

@test "an environment that Gym does not have is named, with what lists them" {
  run bench-collect --base-url http://127.0.0.1:9/v1 --slug m --run run nowhere
  assert_failure 78
  assert_output --partial "has no benchmark 'nowhere'"
}
