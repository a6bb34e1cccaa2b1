#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# accuracy.sh ROWS...: writes doc/accuracy.md to standard output. Each ROWS is the output of `tests/diff/ulp --table`, of
# any type, stride, functions, levels and range. Of rows for one function, type and level those with the smallest stride
# count; parts of a range are put together.
if [ $# -eq 0 ]; then
    echo "usage: accuracy.sh ROWS... > doc/accuracy.md" >&2
    exit 2
fi
cat <<'END'
# Accuracy of functions

Largest and mean errors of the functions that are approximated, as generated for each CPU level, in units of the last
place (ULP) of the exact result. Operators that are not here return the correctly rounded result. Made by

    tests/diff/ulp --table --all [--function NAME] [--range I/N] > ROWS        # f32: every float, in N parts
    tests/diff/ulp --table --type f64 --stride 1009 > ROWS                     # f16, bf16: the same without a stride
    tests/diff/accuracy.sh ROWS... > doc/accuracy.md

- The judge is MPFR with 160 bits: for a grid, and for every argument whose error is the largest so far or near the bound.
  For f32 the f64 kernel of the same function chooses those (on the grid it agrees with MPFR to 0.001 ULP of f32), for f64
  long double with a margin.
- *max* is the largest error found, at *worst argument*; in bold where it is beyond the bound, which is a defect. *mean* is
  over the arguments whose result is a number.
- *arguments*, f32: all 2^32 floats, or every Nth (of two arguments: pairs). f64: special values and their neighbours,
  random bits, the domain of interest, values around 1, near multiples of pi/2, and a search around the worst ones.
- f16 and bf16 are computed in f32 and rounded: at most half an ULP and a little. All 65,536 values, best level.
- 1 ULP is 2^-149 (f32), 2^-1074 (f64) for results below the smallest normal number. Where the bound of f32 is "4 or
  1e-07" (ULP or absolute), errors of more ULP may occur where results are near zero: *beyond* is the largest absolute
  error of those, and *max* the largest error of the others. Infinities, NaNs and signs of zero are right in all.

END
cat -- "$@" | awk -F ' *[|] *' '
/^\| / {
    key = $2 SUBSEP $3 SUBSEP $4
    stride = $10 ~ /^every/ ? 1 : $10 + 0
    if (!($2 in seen)) { seen[$2] = 1; name[++n] = $2 }
    if (key in best && best[key] < stride) next
    if (!(key in best) || stride < best[key]) { best[key] = stride; max[key] = -1; sum[key] = count[key] = 0; beyond[key] = "" }
    if ($5 + 0 > max[key]) { max[key] = $5 + 0; at[key] = $7 }
    if ($8 + 0 > beyond[key] + 0) beyond[key] = $8
    sum[key] += $6 * $11
    count[key] += $11
    bound[key] = $9
}
function error(key) {
    if (!(key in max)) return ""
    return max[key] > bound[key] + 0 ? sprintf("**%.3f**", max[key]) : sprintf("%.3f", max[key])
}
function mean(key) { return count[key] ? sprintf("%.3f", sum[key] / count[key]) : "" }
function best_level(f, t,  l) {
    for (l = 4; l > 2; l--) if ((f SUBSEP t SUBSEP "v" l) in max) break
    return f SUBSEP t SUBSEP "v" l
}
END {
    print "## f32\n"
    print "| function | level | max | mean | worst argument | beyond | bound | arguments |"
    print "|---|---|---|---|---|---|---|---|"
    for (i = 1; i <= n; i++) for (l = 2; l <= 4; l++) {
        k = name[i] SUBSEP "f32" SUBSEP "v" l
        if (!(k in max)) continue
        what = best[k] > 1 ? "every " best[k] "th" : count[k] >= 4294967296 ? "every float" : "every float (in part)"
        print "| " name[i] " | v" l " | " error(k) " | " mean(k) " | " at[k] " | " beyond[k] " | " bound[k] " | " what " |"
    }
    print "\n## f64, and the halves at the best level\n"
    print "| function | v2 max | mean | v3 max | mean | v4 max | mean | worst argument | bound | arguments | f16 max | mean | bf16 max | mean |"
    print "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|"
    for (i = 1; i <= n; i++) {
        line = "| " name[i]
        for (l = 2; l <= 4; l++) { k = name[i] SUBSEP "f64" SUBSEP "v" l; line = line " | " error(k) " | " mean(k) }
        k = best_level(name[i], "f64")
        line = line " | " at[k] " | " bound[k] " | " count[k]
        for (t = 1; t <= 2; t++) { k = best_level(name[i], t == 1 ? "f16" : "bf16"); line = line " | " error(k) " | " mean(k) }
        print line " |"
    }
}'
