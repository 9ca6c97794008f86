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

@test ".env that cannot be read is said by every script, with two ways on" {
  ln -s "$ROOT/.venv" .venv
  ln -s nowhere .env
  DECKSMITH_ROOT=$PWD run within tools echo done
  assert_failure 78
  assert_output "within: $PWD/.env cannot be read: make it a file of yours (chown, chmod 600), or go on without it: DECKSMITH_ENV_READ=1"
  DECKSMITH_ENV_READ=1 DECKSMITH_ROOT=$PWD run within tools echo done
  assert_output done
  rm .env
  echo A=1 > .env
  chmod 000 .env
  [ -r .env ] || { DECKSMITH_ROOT=$PWD run within tools echo done; assert_failure 78; }  # root reads it
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

# A checkout with one image, x, whose SIF is a word, and an Apptainer that says how it was called.
fake_image() {
  mkdir -p root/containers root/.venv bin
  cp "$ROOT/containers/verify" root/containers/
  printf 'Bootstrap: docker\n%%files\n  made.of /made.of\n%%post\n' > "root/containers/$1.def"
  echo stuff > root/made.of
  echo built > "root/containers/$1.sif"
  printf 'sif %s\nsources %s\n' "$(sha256sum < "root/containers/$1.sif" | cut -c -64)" "$(root/containers/verify --sources "$1")" > "root/containers/$1.sif.lock"
  printf '#!/bin/sh\nprintf "%%s\\n" "$*"\nenv | sed -n "s/^APPTAINERENV_//p" | sort > inner\n' > bin/apptainer
  chmod +x bin/apptainer
  export PATH=$PWD/bin:$PATH DECKSMITH_ROOT=$PWD/root TMPDIR=$PWD
  unset XDG_CACHE_HOME HF_HOME SSL_CERT_FILE
}

@test "an image is entered isolated, the host's toolchain covered, without a network where none is needed" {
  fake_image render
  root=$PWD/root
  IMAGES=on run within render python3 -c 'a b'
  assert_success
  home="--home $PWD/decksmith-$(id -u)/home:/home/decksmith"
  assert_output --partial "--silent exec --cleanenv $home"
  assert_output --partial " --net --network none --bind $root --pwd $PWD --bind $PWD"
  assert_output --partial " --bind $root/containers/empty:$root/.venv $root/containers/render.sif python3 -c a b"
  fake_image tools
  IMAGES=on run within tools true
  refute_output --partial "--net"
}

@test "keys cross into an image by environment and never by argument; other variables stay outside" {
  fake_image tools
  SOME2_API_KEY='a "b" $c' OTHER=no SLURM_JOB_ID=7 DECKSMITH_TOOLCHAIN=/mine IMAGES=on run within tools true
  assert_success
  refute_output --partial 'a "b"'
  run grep -E '^(SOME2|OTHER|SLURM|DECKSMITH_(IMAGE|TOOLCHAIN)|PYTHONNO)' inner
  assert_output 'DECKSMITH_IMAGE=tools
PYTHONNOUSERSITE=1
SLURM_JOB_ID=7
SOME2_API_KEY=a "b" $c'
}

@test "neither HOME nor a folder of the system comes into an image because one works in it" {
  fake_image tools
  cd /usr
  IMAGES=on run within tools true
  assert_output --partial "--pwd / "
  refute_output --partial "--bind /usr"
  cd "$BATS_TEST_TMPDIR"
  HOME=$PWD IMAGES=on TMPDIR=/tmp run within tools true
  assert_output --partial "--pwd / "
  refute_output --partial "--bind $PWD "
}

@test "an image that is not the one that was built, or not from this checkout's sources, is refused with the command that mends it" {
  fake_image x
  IMAGES=on run within x true
  assert_success
  touch -d 2020-01-01 root/containers/x.sif # only the clock: looked at again, and right
  IMAGES=on run within x true
  assert_success
  echo other > root/containers/x.sif
  IMAGES=on run within x true
  assert_failure 69
  assert_output 'within: image x is not the file that was built (its sha256 differs); build it: make image-x'
  echo built > root/containers/x.sif
  echo newer > root/made.of
  IMAGES=on run within x true
  assert_failure 69
  assert_output "within: image x was built from other sources than this checkout's; build it: make image-x"
  rm root/containers/x.sif.lock
  IMAGES=on run within x true
  assert_failure 69
  assert_output 'within: image x has no record of its build (containers/x.sif.lock); build it: make image-x'
}

@test "what was found right is not hashed again until it changes" {
  fake_image x
  IMAGES=on run within x true
  assert_success
  printf '#!/bin/sh\n[ $# != 0 ] || readlink /proc/self/fd/0 | grep -F .sif >> "%s/hashed"\nexec /usr/bin/sha256sum "$@"\n' "$PWD" > bin/sha256sum
  chmod +x bin/sha256sum
  IMAGES=on run within x true
  assert_success
  [ ! -s hashed ]
  touch root/containers/x.sif
  IMAGES=on run within x true
  assert_success
  [ -s hashed ]
}

@test "CONTAINER=docker shows with DRY=1 how a model is served in its image, keys by name" {
  SOME_KEY=sk-1 IMAGES=auto CONTAINER=docker DRY=1 run within serve vllm serve base
  assert_success
  assert_output --partial "docker run --rm -i --pull never --read-only --pid host --user $(id -u):$(id -g) --network host --gpus all"
  assert_output --partial " -e SOME_KEY "
  refute_output --partial sk-1
  assert_output --regexp " decksmith/serve:[0-9a-f]{12} $BIN/within serve vllm serve base\$"
  CONTAINER=dokcer run within tools true
  assert_failure 78
  assert_output "within: CONTAINER=dokcer: write apptainer, docker or podman"
}

@test "a definition becomes a Containerfile of the same base, files, script, environment and test" {
  run "$ROOT/containers/containerfile" tools abc def
  assert_success
  assert_line --index 0 "FROM $(sed -n 's/^From: //p' "$ROOT/containers/tools.def")"
  assert_line "COPY uv.lock /toolchain/uv.lock"
  assert_line "ENV DECKSMITH_TOOLCHAIN=/toolchain PATH=/toolchain/.venv/bin:/usr/bin:/bin LC_ALL=C.UTF-8"
  assert_line 'LABEL decksmith.revision="abc"'
  refute_output --partial '{{'
  BASE=mine DEBIAN_MIRROR=http://near/debian run "$ROOT/containers/containerfile" sandbox
  assert_line --index 0 "FROM mine"
  assert_output --partial "deb http://near/debian bookworm main"
}
