#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# headers.sh: every public header compiles alone, as C99 to C23 and as C++11 to C++20, without a warning, and includes nothing of
# LLVM, CUDA or OpenMP; a program that uses their macros compiles without one too, with clang where it is there.
cd "${FUSOR_SRCDIR:-$(dirname "$0")/../..}" || exit 1
passed=0 failed=0 skipped=0
check() {
    local what=$1
    shift
    if out=$("$@" 2>&1); then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        printf '%s:\n%s\n' "$what" "$out"
    fi
}
strict="-Iinclude -Wall -Wextra -pedantic -Wconversion -Werror -fsyntax-only"
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
for h in include/fusor/*.h include/fusor/fusor.hpp; do
    echo "#include \"fusor/${h##*/}\"" >"$tmp/one.c"
    cp "$tmp/one.c" "$tmp/one.cc"
    # shellcheck disable=SC2086
    [ "$h" = include/fusor/fusor.hpp ] || for std in c99 c11 c17 c2x; do
        # shellcheck disable=SC2086
        check "$h as $std" ${CC:-cc} -std=$std $strict "$tmp/one.c"
    done
    if command -v "${CXX:-c++}" >/dev/null; then
        for std in c++11 c++17 c++20; do
            # shellcheck disable=SC2086
            check "$h as $std" ${CXX:-c++} -std=$std $strict "$tmp/one.cc"
        done
    else
        skipped=$((skipped + 1))
        echo "$h as C++: skipped, no C++ compiler"
    fi
    check "$h includes LLVM, CUDA or OpenMP" sh -c "! grep -nEi 'include.*(llvm|cuda|omp\.h)' $h"
done
# what the macros of the headers come to in a program
cat >"$tmp/uses.c" <<'END'
#include <fusor/fusor.h>
int main(void) {
    float x[6] = {0};
    fusor_context_options options = FUSOR_CONTEXT_OPTIONS_INIT;
    fusor_context *ctx = fusor_context_new(&options);
    fusor_buffer b = FUSOR_BUFFER(x, FUSOR_F32, 2, 3), scalar = FUSOR_BUFFER(x, FUSOR_F32);
    fusor_buffer most = FUSOR_BUFFER(x, FUSOR_F32, 1, 1, 1, 1, 1, 1, 2, 3);
    fusor_status status;
    FUSOR_SCOPE(ctx, &status) {
        fusor_tensor t = fusor_wrap(ctx, x, FUSOR_F32, FUSOR_SHAPE(2, 3));
        (void)fusor_assign(t, fusor_mul(fusor_reduce_sum(t, FUSOR_AXES(0, 1), 1), .5));
    }
    return b.rank == 2 && scalar.rank == 0 && most.rank == 8 && most.shape[7] == 3;
}
END
echo "#include <fusor/fusor.hpp>" >"$tmp/hpp.cc"
cat >"$tmp/uses.cc" <<'END'
#include <fusor/fusor.h>
static_assert(decltype(fusor_shape_of_(2, 3))::count == 2, "");
int main() {
    float x[6] = {0};
    size_t rows = 2;
    fusor_context *ctx = fusor_context_new(nullptr);
    fusor_tensor t = fusor_wrap(ctx, x, FUSOR_F32, FUSOR_SHAPE(rows, 3));
    t = fusor_layer_norm(fusor_reduce_sum(t, FUSOR_AXES(0, 1), 1), FUSOR_NO_TENSOR, FUSOR_NO_TENSOR, 0, 1e-5);
    t = fusor_reshape(t, FUSOR_SHAPE());
    fusor_context_free(ctx);
}
END
for cc in "${CC:-cc}" clang; do
    command -v "${cc##* }" >/dev/null || continue
    # shellcheck disable=SC2086
    for std in c99 c11 c17; do check "macros with $cc as $std" $cc -std=$std $strict -Wshadow "$tmp/uses.c"; done
done
for cxx in "${CXX:-c++}" clang++; do
    command -v "${cxx##* }" >/dev/null || continue
    # shellcheck disable=SC2086
    for std in c++11 c++14 c++17 c++20; do
        check "macros with $cxx as $std" $cxx -std=$std $strict -Wshadow "$tmp/uses.cc"
        check "fusor.hpp with $cxx as $std" $cxx -std=$std $strict -Wshadow "$tmp/hpp.cc"
    done
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
