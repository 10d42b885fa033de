# Completion of beanpole for bash, written by 'beanpole completion bash'.
_beanpole() {
    local current=${COMP_WORDS[COMP_CWORD]} word
    local -a lines
    mapfile -t lines < <(beanpole completion words "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
    COMPREPLY=()
    case ${lines[0]} in
    words)
        # The name of a tube may be one that the shell would run.
        for word in "${lines[@]:1}"; do
            COMPREPLY+=("$(printf %q "${word%%$'\t'*}")")
        done
        ;;
    files) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- "$current") ;;
    directories) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -d -- "$current") ;;
    programs) mapfile -t COMPREPLY < <(compgen -c -- "$current") ;;
    esac
}
complete -F _beanpole beanpole
