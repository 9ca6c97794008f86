load ../helper

# A root of its own without a toolchain: what is said here is said before anything is set up.
setup() {
  for name in Makefile make bin lib assets data; do ln -s "$ROOT/$name" .; done
}

# Not as a part of the make that runs the tests, which would be said in each line.
make_says() { run env -u MAKELEVEL -u MAKEFLAGS -u MFLAGS make "$@" 2>&1; }

@test "a model that is not there: the sentence with the models there are, before anything is made" {
  make_says baseline MODEL="smol typo"
  assert_failure 2
  assert_line --index 0 --regexp '^There is no model typo in assets/models.toml or assets/gguf.toml. Type MODEL=NAME with one of: local smol .*gpt-5.4 '
  [ "${#lines[@]}" = 2 ] && [[ ${lines[1]} == "make: *** "*"Error 78" ]]
  [ ! -e results ]
}

@test "a protocol that is not there: the sentence with the protocols there are" {
  make_says baseline PROTOCOL=typo
  assert_failure 2
  assert_line --index 0 --regexp '^There is no protocol typo in assets/protocols. Type PROTOCOL=NAME with one of: .*offline '
  [ "${#lines[@]}" = 2 ] && [ ! -e results ]
}

@test "a trainer that is not there: the sentence with the trainers there are, before anything is set up" {
  make_says sft TRAINER=typo
  assert_failure 2
  assert_line --index 0 "There is no trainer typo. Type TRAINER=NAME with one of: nemo-rl trl"
  [ "${#lines[@]}" = 2 ] && [ ! -e results ]
}

@test "a push without a repository, a curve without a run: what to type" {
  make_says push
  assert_line --index 0 "REPO says where: make push REPO=owner/name"
  make_says curve SFT=results/sft/none
  assert_line --index 0 "There is no training run results/sft/none. Name one, make curve SFT=results/sft/RUN, or train one: make sft"
}

@test "a reader of the help that has seen enough is no error" {
  run bash -c 'set -o pipefail; make 2>&1 | true'
  assert_success
  assert_output ""
  run bash -c "set -o pipefail; PYTHONPATH=$ROOT/lib $ROOT/.venv/bin/python3 -m decksmith.measure.results.layout | true"
  assert_success
  assert_output ""
}

@test "before a first set-up a key that is not set is said, and nothing is fetched" {
  export OPENROUTER_API_KEY=
  make_says baseline MODEL=gpt-5.4
  assert_failure 2
  assert_line --index 0 'gpt-5.4 needs a key: set OPENROUTER_API_KEY in the environment or in .env'
  [ ! -e results ] && [ ! -e .venv ]
  echo 'OPENROUTER_API_KEY=k' > .env
  make_says -s run-check MODEL=gpt-5.4
  assert_success
}
