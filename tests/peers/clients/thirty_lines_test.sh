#!/bin/bash
# Tests the shell's client of thirty lines: thirty_lines_test.sh HOST:PORT
#
# The server there must have no jobs. The status is 0 if the client works well
# with it.
set -eu
# shellcheck source=tests/peers/clients/thirty_lines.sh
. "$(dirname "$0")/thirty_lines.sh"

# Asks, and expects this status and this reply. <id> stands for the job's id.
expect() {
    local status=$1 wanted=$2
    shift 2
    local got=0
    ask "$@" || got=$?
    [[ ${reply[0]} != INSERTED ]] || id=${reply[1]}
    [[ $got = "$status" && ${reply[*]} = "${wanted//<id>/$id}" ]] || {
        echo "$*: ${reply[*]}, status $got; not $wanted, status $status" >&2
        exit 1
    }
}

id=
connect "${1%:*}" "${1##*:}"
trap 'rm -f "$chunk" "$body"' EXIT
expect 1 TIMED_OUT reserve-with-timeout 0
# Bodies with any bytes, and bodies that do not fit into one read.
for size in 0 2 256 70000 900000; do
    head -c "$size" /dev/urandom >"$body.sent"
    ask put 0 0 60 <"$body.sent"
    id=${reply[1]}
    expect 0 "RESERVED <id> $size" reserve
    cmp "$chunk" "$body.sent"
    rm "$body.sent"
    expect 0 DELETED delete "$id"
    expect 1 NOT_FOUND delete "$id"
done
printf 'a letter\r\n' | ask put 0 100 60
expect 0 "WATCHING 2" watch mail
expect 0 "KICKED 1" kick 10
expect 0 "RESERVED $((id + 1)) 10" reserve
expect 0 BURIED bury "$((id + 1))" 0
expect 0 "OK 21" list-tubes
[[ $(cat "$chunk") = $'---\n- default\n- mail' ]]
expect 0 DELETED delete "$((id + 1))"
expect 2 BAD_FORMAT use "not a tube"

# After an error the connection is closed, so the job that it held is free.
connect "${1%:*}" "${1##*:}"
expect 0 "INSERTED <id>" put 0 0 60 < <(printf hello)
expect 0 "RESERVED <id> 5" reserve
expect 2 BAD_FORMAT use "not a tube"
connect "${1%:*}" "${1##*:}"
expect 0 "RESERVED <id> 5" reserve-with-timeout 5
expect 0 DELETED delete "$id"
