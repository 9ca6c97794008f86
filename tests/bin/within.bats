load ../helper

@test "runs a command in the pinned toolchain, from any folder, without set-up of PATH" {
  cd /
  PATH=/usr/bin:/bin run "$BIN/within" tools python3 -c 'import sys, click; print(sys.prefix)'
  assert_success
  assert_output "$ROOT/.venv"
}

@test "passes the command's exit status and its words through" {
  run within tools sh -c 'echo said; exit 7'
  assert_failure 7
  assert_output said
}

@test "IMAGES=on insists on the image and names the command that builds it" {
  IMAGES=on run within nowhere true
  assert_failure 69
  assert_output 'within: image nowhere is not available; build it: make image-nowhere (Apptainer is needed)'
}

@test "inside the same image it runs the command at once, inside another it refuses" {
  DECKSMITH_IMAGE=tools run within tools echo here
  assert_output here
  DECKSMITH_IMAGE=render run within tools echo here
  assert_failure 69
}

@test "without a toolchain it names the command that builds it" {
  DECKSMITH_ROOT=$PWD run within tools true
  assert_failure 69
  assert_output "within: no toolchain in $PWD/.venv; build it: make -C $PWD setup"
}

@test ".env gives what is not set, and never overrides what is" {
  ln -s "$ROOT/.venv" .venv
  printf '# a comment\nFIRST=from file\nSECOND="quoted = value"\nbad-name=x\nTHIRD=$(touch danger)\nLAST=no newline' > .env
  FIRST=mine DECKSMITH_ROOT=$PWD run within tools sh -c 'printf "%s|" "$FIRST" "$SECOND" "$THIRD" "$LAST"'
  assert_output 'mine|quoted = value|$(touch danger)|no newline|'
  [ ! -e danger ]
}

@test "a script works through its own first line from another folder" {
  cd /
  PATH=/usr/bin:/bin run sh -c "echo '{\"id\":\"a\"}' | $BIN/record-sample"
  assert_success
  assert_output '{"id":"a"}'
}

@test "usage without a command exits 2" {
  run within tools
  assert_failure 2
}
