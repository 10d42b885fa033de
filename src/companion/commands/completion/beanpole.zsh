#compdef beanpole
# Completion of beanpole for zsh, written by 'beanpole completion zsh'.
_beanpole() {
    local tab=$'\t'
    local -a lines candidates
    lines=("${(@f)$(beanpole completion words "${(@Q)words[2,CURRENT]}" 2>/dev/null)}")
    case $lines[1] in
    words)
        candidates=("${(@)lines[2,-1]/$tab/:}")
        _describe candidate candidates
        ;;
    files) _files ;;
    directories) _directories ;;
    programs) _command_names -e ;;
    esac
}
if [[ $funcstack[1] == _beanpole ]]; then
    _beanpole "$@"
else
    compdef _beanpole beanpole
fi
