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

# node_ip NODE [FLAG of srun ..]: the address of a node, on the network DECKSMITH_NET (slurm/site.env), an interface (ib0) or a name made
# of the node's (*-ib); without one, as Slurm itself reaches it. Nothing where there is none.
node_ip() {
  local node=$1 address
  shift
  case ${DECKSMITH_NET-} in
    '') ;;
    *'*'*)
      getent ahostsv4 "${DECKSMITH_NET/\*/$node}" | awk 'NR == 1 { print $1 }'
      return
      ;;
    *)
      srun "$@" --overlap --nodes=1 --ntasks=1 --nodelist="$node" --cpu-bind=none --mem=0 ip -4 -o address show dev "$DECKSMITH_NET" < /dev/null |
        awk 'NR == 1 { sub("/.*", "", $4); print $4 }'
      return
      ;;
  esac
  address=$(scontrol show node "$node" -o | sed -n 's/.* NodeAddr=\([^ ]*\).*/\1/p')
  getent ahostsv4 "${address:-$node}" | awk 'NR == 1 { print $1 }'
}
