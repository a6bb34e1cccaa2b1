#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# counts.sh: what fusor bench --counts tells now beside what tests/bench/counts.txt keeps. Kernels and bytes must be the same, so that a
# fusion that is lost fails a test; instructions may shrink, or grow by a fifth, and are compared where LLVM's major version is
# the same. "make bench-counts" writes the file anew: look at its difference, which says what a change did.
src=${FUSOR_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}
fusor=${FUSOR:-./fusor}
[ -n "${FUSOR_CODEGEN-}" ] || { echo '0 passed, 0 failed, 1 skipped'; exit 0; }
now=$(mktemp) || exit 1
trap 'rm -f "$now"' EXIT
"$fusor" bench --counts >"$now" || { echo 'FAILED: fusor bench --counts'; echo '0 passed, 1 failed, 0 skipped'; exit 1; }
awk '
function fail(text) { print "FAILED: " text; failed++ }
# name: kernels A of B, bytes C of D, instructions I J K, code ...: fields from the end, for names may have commas
function parse(line,    parts) {
    name = line; sub(/: kernels [0-9]+ of .*/, "", name)
    rest = substr(line, length(name) + 3)
    split(rest, parts, /, /)
    plan = parts[1] ", " parts[2]
    instructions = parts[3]; sub(/^instructions /, "", instructions)
}
FNR == 1 { file++ }
/^#/ { if ($2 == "llvm") llvm[file] = $3; next }
NF == 0 { next }
{ parse($0) }
file == 1 { kept_plan[name] = plan; kept_instructions[name] = instructions; next }
{
    seen[name] = 1
    if (!(name in kept_plan)) { fail(name ": not kept yet (make bench-counts)"); next }
    if (plan != kept_plan[name]) { fail(name ": " plan "; kept are " kept_plan[name] " (make bench-counts, if that is meant)"); next }
    split(instructions, a, " "); split(kept_instructions[name], b, " "); grown = 0
    for (k = 1; k <= 3; k++)
        if (llvm[1] == llvm[2] && a[k] > 1.2 * b[k] + 16) { fail(name ": instructions " instructions " at v2, v3, v4; kept are " kept_instructions[name] " (make bench-counts, if that is meant)"); grown = 1; break }
    passed += !grown
}
END {
    for (name in kept_plan) if (!(name in seen)) fail(name ": kept, but no workload any more (make bench-counts)")
    printf "%d passed, %d failed, 0 skipped\n", passed, failed
    exit failed > 0
}' "$src/tests/bench/counts.txt" "$now"
