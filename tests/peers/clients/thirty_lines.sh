# Sourced by bash: `connect HOST PORT', then `ask COMMAND...', with the body of
# a put on standard input. It leaves the words of the reply in $reply, and the
# bytes after it in the file $chunk. Status 1: the answer is no. Status 2: the
# connection is closed, start again.

connect() {
    exec {queue}<>"/dev/tcp/$1/$2" && chunk=${chunk:-$(mktemp)} && body=${body:-$(mktemp)}
}

lost() {
    exec {queue}>&-
    return 2
}

ask() {
    local line=$* LC_ALL=C
    case $line in *[$'\r\n']*) lost; return ;; esac
    if [ "$1" = put ]; then
        cat >"$body"
        { printf '%s %d\r\n' "$line" "$(wc -c <"$body")"; cat "$body"; printf '\r\n'; } >&"$queue"
    else
        printf '%s\r\n' "$line" >&"$queue"
    fi
    : >"$chunk"
    IFS= read -r line <&"$queue" || { lost; return; }
    read -ra reply <<<"${line%$'\r'}"
    case $line in
    RESERVED* | FOUND* | OK*)
        head -c "${reply[-1]}" <&"$queue" >"$chunk"
        IFS= read -r line <&"$queue" && [ "$line" = $'\r' ] || lost ;;
    BAD_FORMAT* | UNKNOWN_COMMAND* | EXPECTED_CRLF* | INTERNAL_ERROR*) lost ;;
    NOT_* | TIMED_OUT* | DEADLINE_SOON* | DRAINING* | JOB_TOO_BIG* | OUT_OF_MEMORY*) return 1 ;;
    esac
}
