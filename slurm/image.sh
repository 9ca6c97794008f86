#!/bin/sh
# Run a command in an image of a job, isolated, with the variables of a file and nothing else of the environment.
#
#   image.sh NAME FILE [FLAG of apptainer exec ..] COMMAND [ARG..]
#
# Needs what slurm/lib.sh exports. A file, because a value may hold commas and quotes, and a token must not stand in a command line.
# With CONTAINER=pyxis its step is in the container already, with CONTAINER=none there is none: the variables alone are set.
set -eu
name=$1 file=$2
shift 2
nv=
flags=${IMAGE_FLAGS-}
while :; do case $1 in -*) flags="$flags $1"; shift ;; *) break ;; esac; done
if [ "$CONTAINER" != apptainer ]; then
  # shellcheck disable=SC2016  # of the inner bash
  exec bash -c '
    for name in $(compgen -e); do case $name in SLURM_* | SLURMD_* | PMI* | OMPI_* | MPI_*) unset "$name" ;; esac; done
    set -a
    . "$0"
    HOME=$RUN/home
    exec "$@"' "$file" "$@"
fi
image=$DECKSMITH_HOME/containers/$name.sif
[ -e "$image" ] || { echo "$image is not there; make image-$name" >&2; exit 69; }
[ ! -f "$image.lock" ] || "$DECKSMITH_HOME/containers/verify" "$name" || exit 69 # one that was built here is still that one
[ ! -e /dev/nvidiactl ] || nv=--nv
export APPTAINERENV_CUDA_VISIBLE_DEVICES="${CUDA_VISIBLE_DEVICES-}" # by Slurm, for this node
# shellcheck disable=SC2086  # words
exec apptainer --silent exec --cleanenv --home "$RUN/home:/home/decksmith" $nv $flags --env-file "$file" "$image" "$@"
