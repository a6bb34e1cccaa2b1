#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# first_program.sh: first_program.c compiles against nothing but the public headers, without a warning, links
# libfusor.so alone, and prints what it should: compiled, from the cache, with the reference evaluator, linked statically.
src=${FUSOR_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}
cd "${FUSOR_BUILDDIR:-.}" || exit 1
passed=0 failed=0 skipped=0
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
cat >"$tmp/expected" <<END
4.5 0
0 0
0.1000 3.9970 0.9750
0.8000 3.9970 0.7999
2.0000 4.0000 0.5000
2.7000 3.9960 0.3247
END
check() { # WHAT COMMAND...
    local what=$1
    shift
    if "$@" >"$tmp/out" 2>"$tmp/err" && diff -u "$tmp/expected" "$tmp/out" >"$tmp/diff" && [ ! -s "$tmp/err" ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED: $what"
        cat "$tmp/err" "$tmp/diff" 2>/dev/null
    fi
}
# shellcheck disable=SC2086
if ! ${CC:-cc} -std=c11 -Wall -Wextra -Wshadow -pedantic -Werror ${FUSOR_SANITIZE-} -I"$src/include" "$src/tests/api/first_program.c" \
    -o "$tmp/program" -L.libs -lfusor -Wl,-rpath,"$PWD/.libs" 2>"$tmp/err"; then
    cat "$tmp/err"
    echo "0 passed, 1 failed, 0 skipped"
    exit 1
fi
export FUSOR_CACHE_DIR=$tmp/cache
check "the first program, compiled" "$tmp/program"
check "the first program, from the cache" "$tmp/program"
check "the first program, by the reference evaluator" env FUSOR_DEVICE=reference "$tmp/program"
# without a dynamic linker the module would crash: cached kernels run, the reference evaluator serves others
# shellcheck disable=SC2046,SC2086
if [ -z "${FUSOR_SANITIZE-}" ] && ${CC:-cc} -std=c11 -static -I"$src/include" "$src/tests/api/first_program.c" -o "$tmp/static" .libs/libfusor.a \
    $(sed -n 's/^Libs.private: *//p' fusor.pc) 2>"$tmp/err"; then
    check "the first program, linked statically, from the cache" "$tmp/static"
    check "the first program, linked statically, alone" env FUSOR_CACHE=off "$tmp/static"
else
    skipped=$((skipped + 1))
    echo "linked statically: skipped, $(head -1 "$tmp/err")"
fi
fake=$PWD/tests/cuda/libcuda_fake.so
if [ -f "$fake" ]; then
    check "the first program, on a device" env FUSOR_CUDA_LIB="$fake" FUSOR_DEVICE=cuda "$tmp/program"
    # the program of doc/devices.md, as it is printed there
    sed -n '/^```c$/,/^```$/p' "$src/doc/devices.md" | grep -v '^```' >"$tmp/device.c"
    sed -n '/^```text$/,/^```$/p' "$src/doc/devices.md" | grep -v '^```' >"$tmp/expected"
    # shellcheck disable=SC2086
    check "doc/devices.md compiles" sh -c "${CC:-cc} -std=c11 -Wall -Wextra -Werror ${FUSOR_SANITIZE-} -I'$src/include' '$tmp/device.c' \
        -o '$tmp/device' -L.libs -lfusor -Wl,-rpath,'$PWD/.libs' && cat '$tmp/expected'"
    check "doc/devices.md" env FUSOR_CUDA_LIB="$fake" "$tmp/device"
else
    skipped=$((skipped + 1))
    echo "on a device: skipped, there is no $fake (make check builds it)"
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
