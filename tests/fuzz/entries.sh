#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# entries.sh: cache entries, bundles, stats files and kernel objects of mutated bytes, FUSOR_ENTRY_FUZZ_COUNT of them (default
# 300000), from one seed unless FUSOR_FUZZ_SEED says another. Where the build is for libFuzzer, its driver has the program.
set -u
program=$FUSOR_BUILDDIR/tests/fuzz/entry_fuzz
if [ ! -x "$program" ] || "$program" -help=1 2>&1 | grep -q libFuzzer; then
    echo "skip: the fuzzer is built for libFuzzer (scripts run it by hand)"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi
if "$program" "${FUSOR_ENTRY_FUZZ_COUNT:-300000}" "${FUSOR_FUZZ_SEED:-1}"; then
    echo "1 passed, 0 failed, 0 skipped"
else
    echo "0 passed, 1 failed, 0 skipped"
    exit 1
fi
