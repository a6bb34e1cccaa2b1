#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# vectors.sh: the approximated functions against tables of others: NumPy's, where `python3 -m numpy` has them, and glibc's
# auto-libm-test-out-*, in the directory that FUSOR_GLIBC_VECTORS names (glibc's source, math/). One test case a function,
# type and level; a source that is missing is one counted skip.
vectors=$FUSOR_BUILDDIR/tests/diff/vectors
if [ ! -x "$vectors" ]; then
    echo "no code generation in this build"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi
files=() skipped=0
skip() {
    echo "skipped: $1"
    skipped=$((skipped + 1))
}
numpy=$("${PYTHON:-python3}" -c 'import numpy, os; print(os.path.dirname(numpy.__file__))' 2>/dev/null)
data=$numpy/_core/tests/data
if ls "$data"/umath-validation-set-*.csv >/dev/null 2>&1; then files+=("$data"/umath-validation-set-*.csv)
else skip "no NumPy with its umath-validation-set-*.csv"; fi
if [ -n "$FUSOR_GLIBC_VECTORS" ]; then
    for name in acos acosh asin asinh atan atan2 atanh cbrt cos cosh erf erfc exp exp2 expm1 hypot log log10 log1p log2 \
        pow sin sinh tan tanh; do
        [ -s "$FUSOR_GLIBC_VECTORS/auto-libm-test-out-$name" ] && files+=("$FUSOR_GLIBC_VECTORS/auto-libm-test-out-$name")
    done
else skip "FUSOR_GLIBC_VECTORS names no directory with glibc's auto-libm-test-out-*"; fi
status=0
if [ "${#files[@]}" -gt 0 ]; then
    out=$("$vectors" "${files[@]}" 2>&1)
    status=$?
    echo "$out"
fi
passed=$(echo "$out" | grep -c ' steps away$')
failed=$(echo "$out" | grep -c ' FAILED$')
[ "$status" -ne 0 ] && [ "$failed" -eq 0 ] && failed=1
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
