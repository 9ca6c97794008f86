# shellcheck shell=bash
# How a step of a job gets into its container, and to the other nodes. Read by slurm/lib.sh and slurm/step/vllm; needs DECKSMITH_HOME.
#
# CONTAINER (slurm/site.env) is apptainer (the step's command starts it: slurm/image.sh, bin/within), pyxis (srun itself starts it, with the
# flags below) or none (what the nodes have installed).

: "${CONTAINER:=apptainer}"
case $CONTAINER in
  apptainer | pyxis | none) export CONTAINER ;;
  *) echo "CONTAINER=$CONTAINER in slurm/site.env: write apptainer, pyxis or none" >&2; exit 78 ;;
esac

# enter IMAGE NAME MOUNT,..: the flags of srun for a step in an image, in the array ENTER; none without Pyxis. A container with
# a NAME stays on its node: the first step there unpacks it, the others enter it. Mounts lie under the same path inside.
# shellcheck disable=SC2034  # for whoever reads this file
enter() {
  ENTER=()
  [ "$CONTAINER" = pyxis ] || return 0
  local image=${1^^}_IMAGE place mounts=''
  for place in ${3//,/ }; do mounts+=${mounts:+,}$place:$place; done
  ENTER=(--container-image="${!image:-$DECKSMITH_HOME/containers/$1.sqsh}" --container-mounts="$mounts"
    --no-container-mount-home --container-remap-root)
  # shellcheck disable=SC2206  # words
  ENTER+=(${PYXIS_FLAGS-})
  [ -z "$2" ] || ENTER+=(--container-name="$2")
}

# The address of a node as Slurm itself reaches it.
node_ip() {
  local address
  address=$(scontrol show node "$1" -o | sed -n 's/.* NodeAddr=\([^ ]*\).*/\1/p')
  getent ahostsv4 "${address:-$1}" | awk 'NR == 1 { print $1 }'
}
