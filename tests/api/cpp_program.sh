#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# cpp_program.sh: fusor.hpp compiles as C++11, C++17 and C++20 without a warning, and cpp_program.cc prints what it should.
src=${FUSOR_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}
cd "${FUSOR_BUILDDIR:-.}" || exit 1
cxx=${CXX:-c++}
if ! command -v "$cxx" >/dev/null; then
    echo "cpp_program: skipped: there is no C++ compiler"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi
passed=0 failed=0
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
cat >"$tmp/expected" <<END
4.5 0 0 0 
1 0 0 1 1 0 
-4
4
3 5 1 1 1 -2 1 5 -1 
0 0 0
100 400 900
11 31 61
3 400 1
-18.5 43.5 -54.5
bind: parameter %w is bound already
device 'cuba': expected cpu, cuda, cuda:K, auto or reference; did you mean 'cuda'?
FUSOR_ERROR_SHAPE
this is no tensor with data:
read: the tensor is f32; asked for f64
slice: 2 starts but 1 ends
input %a has rank 9; expected 1
fusor_scope_begin: the context is NULL
fusor_executable_call: the executable is NULL
FUSOR_ERROR_SYNTAX
END
export FUSOR_CACHE_DIR=$tmp/cache
for std in c++11 c++17 c++20; do
    # shellcheck disable=SC2086
    if "$cxx" -std=$std -Wall -Wextra -pedantic -Werror ${FUSOR_SANITIZE-} -I"$src/include" "$src/tests/api/cpp_program.cc" -o "$tmp/program" \
        -L.libs -lfusor -Wl,-rpath,"$PWD/.libs" 2>"$tmp/err" && "$tmp/program" >"$tmp/out" 2>"$tmp/err" && diff -u "$tmp/expected" "$tmp/out"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED: $std"
        cat "$tmp/err"
    fi
done
# the same program on a device
if [ -f tests/cuda/libcuda_fake.so ]; then
    if FUSOR_CUDA_LIB=$PWD/tests/cuda/libcuda_fake.so FUSOR_DEVICE=cuda "$tmp/program" >"$tmp/out" 2>"$tmp/err" &&
        diff -u "$tmp/expected" "$tmp/out" && [ ! -s "$tmp/err" ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED: on a device"
        cat "$tmp/err"
    fi
fi
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
