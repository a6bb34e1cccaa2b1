#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# cuda_h.sh: where a CUDA toolkit is installed, what src/rt/cuda_api.h declares of the driver's API is compared with its cuda.h.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/../cli/lib.sh"
src=${FUSOR_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}
for dir in ${CUDA_HOME:+"$CUDA_HOME/include"} /usr/local/cuda/include /opt/cuda/include /usr/include; do
    [ -f "$dir/cuda.h" ] && break
done
if [ ! -f "$dir/cuda.h" ]; then
    skip 'no cuda.h: not in CUDA_HOME, /usr/local/cuda, /opt/cuda, /usr/include'
    finish
fi
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
check() {
    ${CC:-cc} -std=c11 -Wall -Werror -Wincompatible-pointer-types -fsyntax-only -I "$1" -I "$src/src" -I "$src/include" \
        -isystem "$dir" "$src/tests/cuda/cuda_h_check.c" >out 2>err
}
if check "$src/src"; then ok; else bad "cuda_api.h differs from $dir/cuda.h"; fi

# The comparison finds a number, a type and a count of parameters that are wrong.
change() {
    rm -rf changed
    mkdir -p changed/rt && cp "$src/src/rt/cuda_api.h" "$src/src/rt/cuda_api.def" changed/rt/
    sed -i "$1" "changed/rt/$2"
    if cmp -s "$src/src/rt/$2" "changed/rt/$2"; then bad "nothing to change: $1"
    elif check changed; then bad "not found: $1"
    else ok; fi
}
change 's/CU_NOT_READY = 600/CU_NOT_READY = 601/' cuda_api.h
change 's/size_t bytes, cu_stream stream))$/unsigned bytes, cu_stream stream))/' cuda_api.def
change 's/cuStreamCreate, (cu_stream \*stream, unsigned flags)/cuStreamCreate, (cu_stream *stream)/' cuda_api.def
finish
