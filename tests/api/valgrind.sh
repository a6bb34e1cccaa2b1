#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# valgrind.sh: the first program under valgrind, on a CPU level that it knows: no invalid access, nothing lost; once compiled,
# once from the cache. Kernels are written through another mapping, so translations are checked (smc-check). Skipped, counted, where valgrind is absent, and in sanitizer builds.
src=${FUSOR_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}
cd "${FUSOR_BUILDDIR:-.}" || exit 1
passed=0 failed=0
if ! command -v valgrind >/dev/null || [ -n "${FUSOR_SANITIZE-}" ]; then
    echo "skipped: valgrind is not installed, or this is a sanitizer build"
    echo "0 passed, 0 failed, 2 skipped"
    exit 0
fi
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
${CC:-cc} -std=c11 -g -I"$src/include" "$src/tests/api/first_program.c" -o "$tmp/program" -L.libs -lfusor -Wl,-rpath,"$PWD/.libs" || exit 1
# valgrind 3.19 gives up on the debug information that comes with LLVM's static libraries
strip -g -o "$tmp/fusor-codegen.so" .libs/fusor-codegen.so || exit 1
export FUSOR_CODEGEN=$tmp/fusor-codegen.so FUSOR_CACHE_DIR=$tmp/cache FUSOR_TARGET=x86-64-v2 FUSOR_THREADS=1
for run in compiled cached; do
    if valgrind -q --smc-check=all --error-exitcode=9 --leak-check=full --errors-for-leak-kinds=definite,indirect --show-leak-kinds=definite,indirect \
        "$tmp/program" >"$tmp/out" 2>"$tmp/err" && grep -q '^4.5 0$' "$tmp/out"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED: the first program, $run"
        head -60 "$tmp/err"
    fi
done
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
