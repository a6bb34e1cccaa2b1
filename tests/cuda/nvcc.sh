#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# nvcc.sh: the interpreter against PTX of another compiler: what nvcc makes of nvcc/kernels.cu, with and without lines, gives what the same C gives on the host.
# Skipped where there is no nvcc.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/../cli/lib.sh"
set -u
nvcc=$(command -v nvcc || { [ ! -x /usr/local/cuda/bin/nvcc ] || echo /usr/local/cuda/bin/nvcc; })
if [ -z "$nvcc" ]; then
    skip 'no nvcc'
    finish
fi
cd "$TMPDIR" || exit 1
for target in sm_80 sm_90; do
    for options in -O3 '-O3 -lineinfo'; do
        # shellcheck disable=SC2086
        if ! "$nvcc" -ptx -arch=$target $options -fmad=false -ccbin "${CXX:-g++}" -o k.ptx "$FUSOR_SRCDIR/tests/cuda/nvcc/kernels.cu" >out 2>err; then
            if grep -q 'unsupported\|Unsupported\|not supported' err; then
                skip "nvcc does not do this here: $(head -n 1 err)"
                continue
            fi
            bad "nvcc $options -arch=$target"
            continue
        fi
        "$FUSOR_BUILDDIR/tests/cuda/nvcc_run" k.ptx >log 2>err
        read -r p f < <(sed -nE 's/^([0-9]+) passed, ([0-9]+) failed.*/\1 \2/p' log)
        passed=$((passed + ${p:-0})) failed=$((failed + ${f:-1}))
        [ "${f:-1}" -eq 0 ] || { echo "nvcc $options -arch=$target:"; cat log; }
    done
done
finish
