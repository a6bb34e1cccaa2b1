#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# run.sh: reads 1,797 handwritten digits with digits.fusor and prints how well and how fast. FUSOR names the command
# (default: fusor in PATH). Exit status 1: accuracy on the held-out third below 0.95, or a label that is not NumPy's.
# Runs in any directory; leaves nothing behind and does not touch the user's cache.
set -u
fusor=${FUSOR:-fusor}
here=$(cd "$(dirname "$0")" && pwd) || exit 4
program=$here/digits.fusor
work=$(mktemp -d "${TMPDIR:-/tmp}/fusor-digits.XXXXXX") || exit 4
trap 'rm -rf "$work"' EXIT
export LC_ALL=C FUSOR_CACHE_DIR=$work/cache
unset FUSOR_CACHE FUSOR_CACHE_PATH FUSOR_VERBOSE FUSOR_DEBUG FUSOR_LOG_FILE

fail() { echo "digits: $1" >&2; exit "${2:-1}"; }
# start_ms COMMAND...: wall time of a whole process in milliseconds, in $ms.
start_ms() {
    local begin=$EPOCHREALTIME status
    "$@" >"$work/out" 2>"$work/err"
    status=$?
    [ $status -eq 0 ] || { cat "$work/err" >&2; fail "'$*' ended with status $status" $status; }
    ms=$(awk -v a="$begin" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.1f", (b - a) * 1000 }')
}
# field NAME KEY <JSON: a number of the object whose "name" is NAME; with NAME = . of the document.
field() {
    tr -d ' \t\n' | awk -v name="$1" -v key="\"$2\":" '{
        n = split($0, object, "{")
        for (i = 1; i <= n; i++) {
            if (name != "." && !index(object[i], "\"name\":\"" name "\"")) continue
            at = index(object[i], key)
            if (!at) continue
            split(substr(object[i], at + length(key)), part, /[,}\]]/)
            gsub(/"/, "", part[1])
            print part[1]
            exit
        }
    }'
}
command -v "$fusor" >/dev/null || fail "no program '$fusor'; build it (./demo does) or set FUSOR" 4

digits() { "$fusor" run "$program" @digits "x=$here/images.npy" "$@"; }
# The events of the cold start name the kernels and their compile times.
FUSOR_VERBOSE=compile FUSOR_LOG_FILE=$work/compiled start_ms digits -o "label=$work/label.npy"
cold=$ms
warm=
for _ in 1 2 3 4 5; do
    start_ms digits -o "label=$work/label.npy"
    warm=$(awk -v a="$ms" -v b="${warm:-$ms}" 'BEGIN { print a < b ? a : b }')
done

"$fusor" run "$program" @score "label=$work/label.npy" --json >"$work/score.json" ||
    fail "the score cannot be computed" $?
accuracy=$(field accuracy mean <"$work/score.json")
held_out=$(field digits mean <"$work/score.json")
differ=$(field differ mean <"$work/score.json")
# Alternately, and the best median of each: other processes on the machine disturb both alike.
for i in 1 2 3; do
    digits --time --min-time 0.1 --json >"$work/fused$i.json" || fail "the fused program cannot be timed" $?
    digits --time --min-time 0.1 --json --no-fuse >"$work/unfused$i.json" ||
        fail "the unfused program cannot be timed" $?
done
# least PREFIX: the smallest median of its three runs.
least() { for i in 1 2 3; do field . median_ns <"$work/$1$i.json"; done | sort -g | head -n 1; }

awk -v accuracy="$accuracy" -v held_out="$held_out" -v differ="$differ" -v cold="$cold" -v warm="$warm" \
    -v fused="$(least fused)" -v unfused="$(least unfused)" \
    -v kernels="$(field . kernels <"$work/fused1.json")" \
    -v unfused_kernels="$(field . kernels <"$work/unfused1.json")" '
BEGIN {
    printf "1,797 handwritten digits, 8x8 pixels; log-softmax(relu(x w1 + b1) w2 + b2) and its argmax\n"
    printf "accuracy    %.4f on the %d digits that training has not seen (at least 0.95 expected)\n", accuracy, held_out
    equal = differ != "" && differ + 0 == 0
    if (equal) print "labels      equal to those of NumPy for every digit"
    else print "labels      " differ " of them are not those of NumPy"
    printf "kernels     %d for 7 operators; with an operator a kernel: %d\n", kernels, unfused_kernels
}
FNR == 1 && /^#/ { next }
$3 == "compile" && $4 != "replay" { printf "            %s, compiled in %.1f ms\n", $4, $5 / 1e6 }
END {
    printf "cold start  %6.1f ms: the whole process with an empty cache\n", cold
    printf "warm start  %6.1f ms: the same again, best of 5\n", warm
    printf "one call    %6.1f us fused, %.1f us unfused (%.2f times): all digits, median\n", fused / 1e3, unfused / 1e3,
        fused ? unfused / fused : 0
    if (accuracy == "" || accuracy + 0 < 0.95 || !equal) {
        print "digits: FAILED: the accuracy or the labels above are not as expected"
        exit 1
    }
}' FS=, "$work/compiled"
