# marks: slow
setup() { load ../helper; }

# What it does when it runs is in tests/rewards/test_server.py.

@test "rules and prompts that cannot be used are said before anything is served" {
  run reward-serve --root root --rules nothing
  assert_failure 78
  assert_output --partial "no reward $ROOT/assets/rewards/nothing.toml; there are: "
  printf '{"id": "a", "asks": {}}\n' > bad.jsonl
  run reward-serve --root root --prompts bad.jsonl
  assert_failure 65
  assert_output "reward-serve: bad.jsonl:1: no request and no messages in this row"
}

# marks: long
# first: rules and prompts that cannot be used are said before anything is served
@test "a network that is none, and a port that is taken, are said" {
  run reward-serve --root root --allow gpu-1
  assert_failure 78
  assert_output "reward-serve: --allow gpu-1: no network and no address; write 10.0.0.0/8 or 10.1.2.3"
  start_endpoint
  port=${URL##*:}
  run reward-serve --root root --port "${port%%/*}"
  stop_endpoint
  assert_failure 69
  assert_output "reward-serve: 127.0.0.1 port ${port%%/*}: Address already in use; give another with --port"
}
