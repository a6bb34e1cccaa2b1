#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# ulp.sh: the accuracy of the approximated functions over a stride of all floats, at every level that the host has. One
# test case a function and level, one more for the agreement of long double with MPFR, skipped without MPFR.
# FUSOR_ULP_STRIDE=1 measures every float (hours).
ulp=$FUSOR_BUILDDIR/tests/diff/ulp
if [ ! -x "$ulp" ]; then
    echo "no code generation in this build"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi
out=$("$ulp" --stride "${FUSOR_ULP_STRIDE:-5003}")
status=$?
echo "$out"
lines=$(echo "$out" | grep -c ' max ')
failed=$(echo "$out" | grep -c ' FAILED$')
skipped=0
if echo "$out" | grep -q '^MPFR: missing'; then skipped=1; else lines=$((lines + 1)); fi
[ "$status" -ne 0 ] && [ "$failed" -eq 0 ] && failed=1
echo "$((lines - failed)) passed, $failed failed, $skipped skipped"
exit "$status"
