# Completion of paceline's commands, options and methods for bash. The program itself is asked.

_paceline() {
    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
    local command=${COMP_WORDS[1]-} words=""
    if [ "$COMP_CWORD" -eq 1 ]; then
        words="$("$1" --help 2>/dev/null | sed -n '/^Subcommands:/,/^$/s/^  \([a-z]*\) .*/\1/p') --help --version"
    elif [ "$previous" = --method ]; then
        words="$("$1" run --list-methods all 2>/dev/null | sed -n 's/^\([a-z][^ ]*\) .*/\1/p') auto plain"
    elif [ "${current#-}" != "$current" ]; then
        words=$("$1" "$command" --help 2>/dev/null | grep -oE '^ +-[^ ]+' | tr ', ' '\n\n' | grep -E '^-')
    fi
    if [ -n "$words" ]; then
        mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
    else
        mapfile -t COMPREPLY < <(compgen -f -- "$current")
    fi
}
complete -o filenames -F _paceline paceline
