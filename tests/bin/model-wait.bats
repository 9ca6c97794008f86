load ../helper

setup() {
  export DECKSMITH_SERVE=$PWD/serve
  mkdir serve
}

teardown() { [ -z "${SERVER:-}" ] || kill -- "-$SERVER" 2> /dev/null || true; }

stub() {
  setsid "$FIXTURES/serve/vllm" serve base --host 127.0.0.1 --port "$1" --lora-modules tuned=x --served-model-name base > server.log 2>&1 &
  SERVER=$!
}
free() { "$ROOT/.venv/bin/python3" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
announce() { echo "{\"url\":\"http://127.0.0.1:$1/v1\",\"models\":[\"base\",\"tuned\"],\"job\":$2}" > "serve/$3.json"; }

# marks: slow
@test "waits until the server is there, and prints what its file says" {
  port=$(free)
  (sleep 1; announce "$port" null x) &
  stub "$port"
  run --separate-stderr model-wait --timeout 300
  assert_success
  assert_output --partial "\"url\": \"http://127.0.0.1:$port/v1\""
  run --separate-stderr model-wait --timeout 300 --address
  assert_output "http://127.0.0.1:$port/v1"
}

# marks: long
# first: waits until the server is there, and prints what its file says
@test "a file of a server that is gone does not count, and neither does one of another job" {
  port=$(free)
  stub "$port"
  announce 9 '"7_1"' a
  announce "$port" '"8"' b
  run --separate-stderr model-wait --job 8 --timeout 300
  assert_success
  assert_output --partial "$port"
  run model-wait --job 7 --timeout 1
  assert_failure 75
  assert_output --partial 'is not ready in time'
}

# marks: slow long
# first: waits until the server is there, and prints what its file says
@test "the deadline says what is lacking" {
  run model-wait --timeout 0
  assert_failure 75
  assert_output "model-wait: no server in $PWD/serve is ready after 0 s: none has been started (make serve)"
}

# marks: long
# first: waits until the server is there, and prints what its file says
@test "a process that dies ends the waiting at once" {
  run model-wait --pid 4194999 --timeout 60
  assert_failure 69
  assert_output "model-wait: process 4194999 is gone, and with it the server"
}

# marks: long
# first: waits until the server is there, and prints what its file says
@test "a job that is over ends the waiting, with the last lines of its log" {
  seq 100 > serve/12.log
  mkdir stub
  printf '#!/bin/sh\necho FAILED\n' > stub/squeue
  chmod +x stub/squeue
  PATH=$PWD/stub:$PATH run model-wait --job 12 --timeout 60
  assert_failure 69
  assert_line --index 0 --partial "job 12 is FAILED, and with it the server"
  assert_line --index 1 51
  assert_line --index 50 100
}
