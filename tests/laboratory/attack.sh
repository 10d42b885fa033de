#!/bin/bash
# Runs all attacks, the small forms, in some three minutes:
# tests/laboratory/attack.sh
# BEANPOLE_SEARCH=20 has it search twenty times as long.
#
# An attack fails if the server grows, loses a job, answers otherwise than
# beanstalkd, or is gone. It never fails because something takes long.
# `attack --help` tells how to run the large forms.
set -euo pipefail
cd "$(dirname "$0")/../.."
trap 'echo "FAILED: $step" >&2' ERR
search=${BEANPOLE_SEARCH:-1}
step() {
    step=$*
    printf '\n== %s\n' "$step"
}

step packages
tests/laboratory/packages

step building
cargo build --locked --workspace --bins
make
attack=target/debug/attack
server="'$PWD/target/debug/beanpoled' -l 127.0.0.1 -p {port}"

step bad clients
# The promises about memory hold for a build without debugging. With debugging,
# each thread needs more of its stack.
$attack clients --small --ours "'$PWD/target/release/beanpoled' -l 127.0.0.1 -p {port}"

step the same commands to beanstalkd
beanstalkd="${BEANSTALKD:-$(command -v beanstalkd)} -l 127.0.0.1 -p {port}"
$attack differential --streams $((2000 * search)) --seconds $((30 * search)) --ours "$server" --theirs "$beanstalkd"

step 200 clients at once
$attack soak --seconds $((15 * search)) --ours "$server"
$attack soak --seconds $((15 * search)) --ours "$server -b {dir} -s 100000"

step fuzzing
tests/fuzz/run $((10 * search))
