# shellcheck shell=bash disable=SC2034,SC2016  # COMPREPLY and COMP_* belong to the shell
# Completion for bash and zsh: make's targets, its variables and what they may name, and the flags of
# the scripts in bin/. For every shell to come, in the folder of the checkout:
#
#   echo "source '$PWD/make/completion.sh'" >> ~/.bashrc      # or ~/.zshrc
#
# Nothing here is a list: targets and variables are read from the makefiles, names from make/given.py,
# flags are said by the scripts (click).

# What a variable of make may name in the checkout ROOT, a line each.
_decksmith_values() { # ROOT VARIABLE
  (
    cd "$1" || return
    python=python3
    [ ! -x .venv/bin/python3 ] || python=.venv/bin/python3
    "$python" make/given.py --values "$2" 2> /dev/null
  )
}

# The words of stdin that begin with WORD become the reply, each behind BEFORE.
_decksmith_reply() { # WORD BEFORE
  local each
  while IFS= read -r each; do
    case $each in "$1"*) COMPREPLY+=("$2$each") ;; esac
  done
}

_decksmith_make() {
  local line=${COMP_LINE:0:$COMP_POINT} name='' value='' before
  COMPREPLY=()
  if [ ! -f make/given.py ]; then # a Makefile of somebody else
    [ -n "${ZSH_VERSION:-}" ] || _decksmith_others "$@"
    return
  fi
  case $line in *=*)
    name=${line%=*} name=${name##*[[:space:]]} value=${line##*=}
    case $value in
      [\"\']*) value=${value#?} ;;
      *[[:space:]]*) name='' ;; # that word has ended
    esac ;;
  esac
  if [ -n "$name" ]; then
    before=${value%"${value##*[[:space:]+]}"} # of "smol smol-s", and of few-shot+rev
    [ -z "${ZSH_VERSION:-}" ] || before="$name=$before"
    _decksmith_reply "${value##*[[:space:]+]}" "$before" < <(_decksmith_values . "$name")
    # Where it names none, a path: bash completes it by itself.
    [ -z "${ZSH_VERSION:-}" ] || [ -n "${COMPREPLY[*]-}" ] ||
      _decksmith_reply "$value" "$name=" < <(emulate zsh -c 'print -l -- ${value}*(N)')
    return
  fi
  _decksmith_reply "${line##*[[:space:]]}" '' < <(
    sed -n 's/^###\{0,1\} \([^ :]*\):.*/\1/p' Makefile make/*.mk
    sed -n 's/^\([A-Z_]*\) ?=.*/\1=/p' make/*.mk
  )
  case ${COMPREPLY[*]-} in
    *=) [ -n "${ZSH_VERSION:-}" ] || [ "${#COMPREPLY[@]}" != 1 ] || compopt -o nospace ;;
  esac
}

# What completes `make` elsewhere: bash-completion, where it is there.
_decksmith_others() {
  declare -F _make > /dev/null || {
    if declare -F _comp_load > /dev/null; then _comp_load make
    elif declare -F _completion_loader > /dev/null; then _completion_loader make
    fi > /dev/null 2>&1
    complete -o default -F _decksmith_make make
  }
  ! declare -F _make > /dev/null || _make "$@"
}

_decksmith_script() {
  local script=${COMP_WORDS[0]} word=${COMP_WORDS[COMP_CWORD]} flag=${COMP_WORDS[COMP_CWORD - 1]}
  local name root variable kind each
  COMPREPLY=()
  script=$(command -v -- "$script") || return
  root=$(cd "$(dirname "$(readlink -f "$script")")/.." && pwd) || return
  case $flag in
    --model | --judge | --claims) variable=MODEL ;;
    --protocol | --condition | --recipe | --template | --bench | --engine)
      variable=$(printf '%s' "${flag#--}" | tr '[:lower:]' '[:upper:]') ;;
    *) variable= ;;
  esac
  if [ -n "$variable" ]; then
    _decksmith_reply "$word" '' < <(_decksmith_values "$root" "$variable")
    return
  fi
  name=$(basename "$script" | tr '[:lower:]-' '[:upper:]_')
  while IFS=, read -r kind each; do
    [ "$kind" != plain ] || COMPREPLY+=("$each")
  done < <(env COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD="$COMP_CWORD" \
    "_${name}_COMPLETE=bash_complete" "$script" 2> /dev/null)
}

if [ -n "${ZSH_VERSION:-}" ]; then
  autoload -Uz compinit bashcompinit
  [ -n "${_comps[make]:-}" ] || compinit -u
  bashcompinit
  eval '_decksmith_bin=${${(%):-%x}:A:h:h}/bin'
  _decksmith_how='-o nospace -o default'
else
  _decksmith_bin=$(cd "$(dirname "${BASH_SOURCE[0]}")/../bin" && pwd)
  _decksmith_how='-o default'
fi
eval "complete $_decksmith_how -F _decksmith_make make"
for _decksmith_each in "$_decksmith_bin"/*-*; do
  complete -o default -F _decksmith_script "${_decksmith_each##*/}"
done
unset _decksmith_bin _decksmith_how _decksmith_each
