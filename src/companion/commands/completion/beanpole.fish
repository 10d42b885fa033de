# Completion of beanpole for fish, written by 'beanpole completion fish'.
function __beanpole_candidates
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l lines (beanpole completion words $words[2..] "$current" 2>/dev/null)
    switch "$lines[1]"
        case words
            printf '%s\n' $lines[2..]
        case files
            __fish_complete_path "$current"
        case directories
            __fish_complete_directories "$current"
        case programs
            __fish_complete_subcommand --fcs-skip=2
    end
end
complete -c beanpole -f -a '(__beanpole_candidates)'
