# shellcheck shell=bash
# `module` for slurm/site.env, where the shell has none: a job with --export=NONE starts no login shell. By the start file of Lmod or of
# Environment Modules, whichever is there. Read without -u: modules read what may be unset.

if ! command -v module > /dev/null 2>&1; then
  for start in "${LMOD_PKG:-/usr/share/lmod/lmod}/init/bash" "${MODULESHOME:-/usr/share/modules}/init/bash" \
    /etc/profile.d/{lmod,z00_lmod,modules}.sh; do
    # shellcheck disable=SC1090
    [ ! -r "$start" ] || { . "$start" && break; }
  done
fi
