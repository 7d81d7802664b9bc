# Completes command lines of plugfest from the output of --help. bash loads this file automatically; for zsh:
#   autoload -U bashcompinit && bashcompinit && source /usr/share/bash-completion/completions/plugfest
_plugfest() {
  local program=${COMP_WORDS[0]} word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
  local command=() each help names value=
  for each in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    [[ $each != -* ]] || break
    command+=("$each")
  done
  help=$("$program" "${command[@]}" --help 2>/dev/null)
  # The placeholder of the value of the option before the word: "FILE". Flags have none.
  [[ $previous != -* ]] || value=$(sed -nE "s/^ +(-.,)?$previous(,--[a-z-]+)? \[?([A-Z][^] ]*).*/\3/p" <<<"$help" \
    | head -n 1)
  case $value in
  '') [[ $word == -* ]] && names=$(grep -oE '^ +(-.,)?--[a-z-]+' <<<"$help" | grep -oE -- '--.*') ||
    names=$(sed -nE '/^Subcommands:/,$ s/^  ([a-z]+) .*/\1/p' <<<"$help") ;;
  PATTERN) [[ ${command[*]} == mutants ]] && names=$("$program" mutants --list 2>/dev/null) \
    || names=$("$program" run --list 2>/dev/null) ;;
  *FILE* | PATH | PLUGIN | TOPOLOGY | FAULTS) ;;
  *) return ;;
  esac
  mapfile -t COMPREPLY < <(compgen -W "$names" -- "$word")
  [[ -n $names ]] || { compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- "$word"); }
}
complete -F _plugfest plugfest
