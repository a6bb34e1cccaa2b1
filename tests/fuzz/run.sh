#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# run.sh: builds the fuzz programs in FUSOR_BUILDDIR, replays the corpus (tests/fuzz/corpus), then fuzzes programs and the
# parser for FUSOR_FUZZ_SECONDS (default 60) together. FUSOR_FUZZ_SEED chooses where the seeds begin (default: 1, so that a
# change is judged by itself; try others by hand). Prints "N passed, N failed, N skipped".
set -u
src=$(cd "$(dirname "$0")/../.." && pwd)
export FUSOR_BUILDDIR=${FUSOR_BUILDDIR:-$src/build}
build=$FUSOR_BUILDDIR
seconds=${FUSOR_FUZZ_SECONDS:-60}
seed=${FUSOR_FUZZ_SEED:-1}
passed=0 failed=0 skipped=0

make -s -C "$build" --no-print-directory fuzz-programs tests/fuzz/graph_fuzz tests/fuzz/entry_fuzz >"$build/fuzz.log" 2>&1 || {
    tail -n 25 "$build/fuzz.log"
    echo "0 passed, 1 failed, 0 skipped"
    exit 1
}
export FUSOR_VERIFY=${FUSOR_VERIFY-2}
if [ -z "${FUSOR_CODEGEN-}" ] && [ -f "$build/.libs/fusor-codegen.so" ]; then
    export FUSOR_CODEGEN=$build/.libs/fusor-codegen.so
fi
unset FUSOR_DEBUG FUSOR_VERBOSE FUSOR_PASSES FUSOR_CACHE FUSOR_CACHE_PATH

# add COMMAND...: runs it, adds its counts.
add() {
    local out rc p f s
    out=$("$@" 2>&1)
    rc=$?
    echo "$out" | grep -vE '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$'
    if read -r p f s < <(echo "$out" | grep -E '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$' | tail -n 1 | tr -dc '0-9 \n'); then
        passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
        [ "$rc" -ne 0 ] && [ "$f" -eq 0 ] && failed=$((failed + 1))
    elif [ "$rc" -eq 0 ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
    fi
}

[ -f "$build/tests/fuzz/graph_fuzz" ] && {
    add "$build/tests/fuzz/graph_fuzz" "$src"/tests/fuzz/corpus/*.fusor
    add "$build/tests/fuzz/graph_fuzz" --seed "$seed" --seconds $((seconds / 2 + 1))
    add "$build/tests/fuzz/graph_fuzz" --device cuda --seed "$seed" --seconds $((seconds / 4 + 1))
}
[ -f "$build/tests/fuzz/parse_fuzz" ] && add timeout $((seconds + 600)) "$build/tests/fuzz/parse_fuzz" $((seconds * 200)) "$seed"
[ -f "$build/tests/fuzz/entry_fuzz" ] && add timeout $((seconds + 600)) "$build/tests/fuzz/entry_fuzz" $((seconds * 20000)) "$seed"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
