#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# accuracy.sh ROWS...: writes doc/accuracy.md to standard output. Each ROWS is the output of `tests/diff/ulp --table`,
# with any stride, functions and levels; of rows for one function and level the one with the smallest stride counts.
if [ $# -eq 0 ]; then
    echo "usage: accuracy.sh ROWS... > doc/accuracy.md" >&2
    exit 2
fi
strides=$(cat -- "$@" | awk -F ' *[|] *' '/^\| / { print $(NF - 1) }' | sort -un | grep -v every | tr '\n' ' ')
cat <<'END'
# Accuracy of functions

Largest errors of the f32 functions that are approximated, as generated for each CPU level, in units of the last place
(ULP) of the exact result. Operators that are not here return the correctly rounded result. Made by

    tests/diff/ulp --table --stride N > coarse
    tests/diff/ulp --table --all --function NAME [--level LEVEL] > fine
    tests/diff/accuracy.sh coarse fine... > doc/accuracy.md

END
if ! cat -- "$@" | grep -q '^| .* every float |'; then
    echo "with N of ${strides% }."
else
    echo "with N of ${strides% }, and --all for the rows marked \"every float\"."
fi
cat <<'END'

- The judge is MPFR with 160 bits, on a grid of every 40,009th float and special values, and for every argument whose
  error in long double is the largest so far or near the bound. Long double chooses those; on the grid it agrees to
  0.001 ULP.
- *max* is the largest error found; in bold where it is beyond the bound, which is a defect. Where the bound is
  "4 or 1e-07" (ULP or absolute), errors of more ULP may occur where results are near zero: *beyond* is the
  largest absolute error of those, and *max* the largest error of the others.
- *mean* is that of the grid, which is even in the bits of the argument, over arguments whose result is a number.
- *every*: the distance in bits of the arguments that were measured; for two arguments 2^32 / N pairs: special values,
  random bits, moderate values, values around 1, values of similar size.
- 1 ULP is 2^-149 for results below the smallest normal number. Infinities, NaNs and signs of zero are right in all.

| function | level | max ULP | mean ULP | worst argument | beyond | bound | every |
|---|---|---|---|---|---|---|---|
END
cat -- "$@" | awk -F ' *[|] *' '/^\| / {
    key = $2 " " $3
    if ($4 + 0 > $(NF - 2) + 0) sub(/[|] [0-9.]+ [|]/, "| **" $4 "** |")
    stride = $(NF - 1) ~ /^every/ ? 1 : $(NF - 1)
    if (!(key in row)) order[++n] = key
    if (!(key in row) || stride < best[key]) { row[key] = $0; best[key] = stride }
}
END { for (i = 1; i <= n; i++) print row[order[i]] }'
