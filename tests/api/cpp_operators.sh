#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# cpp_operators.sh: fusor.hpp has every operator that the C headers op.h and tensor.h declare, as a function of
# namespace fusor or of its context, and cpp_operators.cc uses each; that program compiles as C++11 to C++20, with clang
# where it is there, without a warning, and every result is what it should be.
# shellcheck source=tests/api/lib.sh
. "$(dirname "$0")/lib.sh"
src=${FUSOR_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}
cd "${FUSOR_BUILDDIR:-.}" || exit 1
export LC_ALL=C
cxx=${CXX:-c++}
if ! command -v "$cxx" >/dev/null; then
    echo "cpp_operators: skipped: there is no C++ compiler"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT

# Every FUSOR_API function of the two headers, and every operator of the table (the list that `make generated` makes);
# what has another form in C++ stands as that: weak scalars are tensor's constructors, references kept's.
{
    sed -e '/^[[:space:]]*#/d' -e 's@/\*.*\*/@@' "$src/include/fusor/op.h" "$src/include/fusor/tensor.h" | tr '\n' ' ' |
        grep -oE 'FUSOR_API [^;({]*\(' | grep -oE 'fusor_[a-z0-9_]+ *\($' | tr -d ' ('
    sed -n '/---- op-symbols/,/---- end of op-symbols/p' "$src/tests/api/symbols.txt" | grep -v '^#'
} | sed -E -e 's/^fusor_//' -e 's/^([fiub])$/tensor/' -e 's/^(keep|release)$/kept/' -e 's/^scope_(begin|end)$/scope/' \
    -e 's/^wrap_const$/wrap/' -e 's/^(and|or|not|xor)$/\1_/' | sort -u >"$tmp/names"

missing() { # missing SCOPE <NAMES: those that are no name in fusor or, where SCOPE is context, in fusor::context
    local name n=0
    : >"$tmp/list"
    echo '#include <fusor/fusor.hpp>' >"$tmp/names.cc"
    while read -r name; do
        n=$((n + 1))
        echo "$name" >>"$tmp/list"
        echo "#line $n \"names\""
        if [ "$1" = context ]; then echo "struct with_$n : fusor::context { using fusor::context::$name; };"
        else echo "using fusor::$name;"; fi
    done >>"$tmp/names.cc"
    "$cxx" -std=c++11 -fsyntax-only -I"$src/include" "$tmp/names.cc" 2>&1 |
        sed -nE 's/^names:([0-9]+):.*error:.*/\1/p' | sort -nu | while read -r n; do sed -n "${n}p" "$tmp/list"; done
}
all_are_there() {
    local functions nowhere
    functions=$(wc -l <"$tmp/names")
    missing fusor <"$tmp/names" >"$tmp/no_function"
    missing context <"$tmp/no_function" >"$tmp/nowhere"
    nowhere=$(wc -l <"$tmp/nowhere")
    [ "$functions" -gt 150 ] && [ "$nowhere" -eq 0 ] && return
    echo "of $functions functions of op.h and tensor.h fusor.hpp has no"
    cat "$tmp/nowhere"
    return 1
}
all_are_used() {
    local name rc=0
    while read -r name; do
        grep -qwE -- "$name" "$src/tests/api/cpp_operators.cc" && continue
        echo "cpp_operators.cc does not use $name"
        rc=1
    done <"$tmp/names"
    return $rc
}
builds_and_runs() { # COMPILER STANDARD
    # shellcheck disable=SC2086
    "$1" -std="$2" -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror ${FUSOR_SANITIZE-} -I"$src/include" \
        "$src/tests/api/cpp_operators.cc" -o "$tmp/program" -L.libs -lfusor -Wl,-rpath,"$PWD/.libs" && "$tmp/program"
}
finds_what_is_missing() {
    [ "$(printf 'relu\nno_such_function\nfull\n' | missing fusor | tr '\n' ' ')" = 'no_such_function full ' ] &&
        [ "$(printf 'no_such_function\nfull\n' | missing context)" = no_such_function ]
}

export FUSOR_CACHE_DIR=$tmp/cache
verdict "a name that is missing is found" finds_what_is_missing
verdict "fusor.hpp has every operator" all_are_there
verdict "cpp_operators.cc uses every operator" all_are_used
for std in c++11 c++14 c++17 c++20; do verdict "$cxx as $std" builds_and_runs "$cxx" $std; done
if command -v clang++ >/dev/null && [ -z "${FUSOR_SANITIZE-}" ]; then
    for std in c++11 c++20; do verdict "clang++ as $std" builds_and_runs clang++ $std; done
fi
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
