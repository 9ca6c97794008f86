# shellcheck shell=bash
# How a job of slurm/ that runs from the checkout begins: there, with this site's settings, and with its part of an array.
#
#   . "$SLURM_SUBMIT_DIR/slurm/site.sh"

say() { printf '%s: %(%H:%M:%S)T +%d s: %s\n' "${SLURM_JOB_NAME%.sbatch}" -1 "$SECONDS" "$*"; }
cd "$SLURM_SUBMIT_DIR" || exit 69
submitted=${SBATCH_PARTITION-}${SLURM_EXPORT_ENV-} # sbatch hands on what it was told by environment, unless it shall hand on nothing
strict=${-//[^u]/}
set +u
# shellcheck source=slurm/module.sh
. slurm/module.sh
set -a
# shellcheck disable=SC1091
[ ! -f slurm/site.env ] || . slurm/site.env
# shellcheck disable=SC2034  # exported
{
  APPTAINER_BIND=${DECKSMITH_BINDS:-}      # seen in containers under the same path
  TMPDIR=${DECKSMITH_TMP:-${TMPDIR:-/tmp}} # caches on the node's own disk
  [ -z "${SLURM_ARRAY_TASK_ID:-}" ] || [ -z "${SHARDS:-}" ] || SHARD=$SLURM_ARRAY_TASK_ID/$SHARDS
}
set +a ${strict:+-u}
[ -n "$submitted" ] || case ,${SBATCH_PARTITION:-$SLURM_JOB_PARTITION}, in
  *",$SLURM_JOB_PARTITION,"*) ;;
  *)
    say "this job is in partition $SLURM_JOB_PARTITION, not in $SBATCH_PARTITION of slurm/site.env, which sbatch does not read: type slurm/sbatch in its place"
    exit 78
    ;;
esac
