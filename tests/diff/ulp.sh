#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# ulp.sh: the accuracy of the approximated functions in every float type, at every level that the host has: over a stride
# of all floats, over all halves (of a few functions: the code is that of f32), over a grid and a search in f64; the
# fast tier in f32 and some functions of the halves. One test
# case a function, level and type, one more for the agreement of the f64 kernels with MPFR, skipped without MPFR.
# FUSOR_ULP_STRIDE=1 measures every float (an hour of a core). Under sanitizers, which see the code that makes kernels and not
# the kernels, one level and a tenth of the floats are enough.
ulp=$FUSOR_BUILDDIR/tests/diff/ulp
if [ ! -x "$ulp" ]; then
    echo "no code generation in this build"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi
status=0
level=() stride=${FUSOR_ULP_STRIDE:-5003}
[ -n "${FUSOR_SANITIZE-}" ] && level=(--level v2) stride=$((stride * 10 - 3))
measure() {
    "$ulp" "${level[@]}" "$@" || status=1
}
out=$(
    measure --stride "$stride"
    measure --type f64 --stride 100003
    for function in exp gelu sin; do
        measure --type f16 --function $function
        measure --type bf16 --function $function
    done
    measure --fast --stride "$stride"
    for function in exp gelu tanh; do
        measure --fast --type f16 --function $function
        measure --fast --type bf16 --function $function
    done
    exit $status
)
status=$?
echo "$out"
lines=$(echo "$out" | grep -c ' max ')
failed=$(echo "$out" | grep -c ' FAILED$')
skipped=0
if echo "$out" | grep -q '^MPFR: missing'; then skipped=1; else lines=$((lines + 1)); fi
[ "$status" -ne 0 ] && [ "$failed" -eq 0 ] && failed=1
echo "$((lines - failed)) passed, $failed failed, $skipped skipped"
exit "$status"
