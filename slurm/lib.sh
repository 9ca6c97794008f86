# shellcheck shell=bash
# What a job that runs from a snapshot begins with (one that runs from the checkout: site.sh); bin/job-submit makes the folder it reads:
#
#   RUN=$1; . "$RUN/snapshot/slurm/lib.sh"
#
# Sets from slurm/site.env and then from the job's own snapshot/job.env (all exported), with --export=NONE too:
#   DECKSMITH_HOME   the checkout: images, toolchain, results      CODE  the frozen snapshot; the job runs this code
#   LOGS             this start's folder, RUN/slurm/NAME-JOB[-rN]   TMP  a short folder of the job's own on each node's local disk
# and defines say, node_ip, enter, seconds_left, own_tmp.

CODE=$RUN/snapshot
strict=${-//[^u]/}
set +u
# shellcheck source=slurm/module.sh
. "$CODE/slurm/module.sh"
set -a
# shellcheck disable=SC1091
[ ! -f "$CODE/slurm/site.env" ] || . "$CODE/slurm/site.env"
# shellcheck disable=SC1091
. "$CODE/job.env"
set +a ${strict:+-u}
# The names that these two files give, for the environment inside an image.
GIVEN=$(sed -n 's/^\(export  *\)\{0,1\}\([A-Za-z_][A-Za-z0-9_]*\)=.*/\2/p' "$CODE/job.env" "$CODE/slurm/site.env" 2> /dev/null |
  grep -vxE 'PATH|LD_LIBRARY_PATH|HOME|SBATCH_.*')
# shellcheck source=slurm/steps.sh
. "$CODE/slurm/steps.sh"
unset SLURM_EXPORT_ENV # left by --export=NONE: srun would hand nothing on
RESTART=${SLURM_RESTART_COUNT:-0}
if [ -z "${LOGS-}" ]; then # a step has it from its job; there, the name is the step's
  LOGS=$RUN/slurm/$SLURM_JOB_NAME-$SLURM_JOB_ID
  [ "$RESTART" = 0 ] || LOGS=$LOGS-r$RESTART
fi
export RUN GIVEN LOGS TMP=${DECKSMITH_TMP:-/tmp}/ds$SLURM_JOB_ID
mkdir -p "$LOGS"
export HF_HOME="${HF_HOME:-$DECKSMITH_HOME/data/huggingface}"
mkdir -p "$HF_HOME"

# What a container sees besides its image: the same paths as outside, and of a link also what it leads to. Apptainer and bin/within both
# read this.
APPTAINER_BIND=$DECKSMITH_HOME,$RUN${DECKSMITH_BINDS:+,$DECKSMITH_BINDS}${JOB_BINDS:+,$JOB_BINDS} # JOB_BINDS: of a job's steps, by the job
for place in "$HF_HOME" "$(readlink -f "$HF_HOME")" "${DECKSMITH_TMP:-/tmp}" "$(readlink -f "${DECKSMITH_TMP:-/tmp}")"; do
  case ,$APPTAINER_BIND, in *",$place,"*) continue ;; esac
  case $place in "$DECKSMITH_HOME"/* | /tmp) ;; *) APPTAINER_BIND+=,$place ;; esac
done
export APPTAINER_BIND

# One line of the job's log: name, time, seconds since this start.
say() { printf '%s: %(%H:%M:%S)T +%d s: %s\n' "${SLURM_JOB_NAME%%-*}" -1 "$SECONDS" "$*"; }

# Seconds until Slurm ends this job (of a hetjob the first component); nothing where there is no limit.
seconds_left() {
  local end
  end=$(scontrol show job -o "$SLURM_JOB_ID" | sed -n 's/.* EndTime=\([0-9][^ ]*\).*/\1/p' | head -n 1)
  [ -z "$end" ] || echo $(($(date -d "$end" +%s) - $(date +%s)))
}

# Make TMP on this node; it is named after the job, and somebody else's folder of that name is not used.
own_tmp() {
  (umask 077 && mkdir -p "$TMP") && [ -O "$TMP" ]
}
