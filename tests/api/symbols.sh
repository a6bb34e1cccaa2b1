#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# symbols.sh [--update]: what libfusor.so exports is exactly tests/api/symbols.txt, and exactly what the public headers
# declare; the module exports one function; libfusor depends on no LLVM and C++ library and is small. --update rewrites
# the list from the build, but for the operators, which `make generated` lists (review the diff: a name that went away
# breaks programs).
# shellcheck source=tests/api/lib.sh
. "$(dirname "$0")/lib.sh"
src=${FUSOR_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}
cd "${FUSOR_BUILDDIR:-.}" || exit 1
list=$src/tests/api/symbols.txt
lib=.libs/libfusor.so
module=.libs/fusor-codegen.so
export LC_ALL=C
skipped=0
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT

exports() { nm -D --defined-only "$1" | awk '{ print $NF }' | sed 's/@.*//' | grep -vE '^(FUSOR_|$|__asan|__ubsan|__tsan|__odr_asan|__gcov|_init$|_fini$)' | sort -u; }
same() { # EXPECTED GOT HINT
    diff -u --label expected --label built "$1" "$2" && return 0
    echo "$3"
    return 1
}

exports $lib >"$tmp/exported"
if [ "${1-}" = --update ]; then
    sed '/^# ---- end of op-symbols/q' "$list" >"$tmp/operators"
    { cat "$tmp/operators"; grep -vxFf "$tmp/operators" "$tmp/exported"; } >"$tmp/new" && cp "$tmp/new" "$list"
    exit 0
fi
grep -v '^#' "$list" | sort -u >"$tmp/listed"
# A declaration is FUSOR_API up to its '('; the name is the last word before. Preprocessor lines are none.
cat "$src"/include/fusor/*.h | sed -E -e ':a; /^#.*\\$/ { N; s/\\\n/ /; ba }' -e '/^[[:space:]]*#/d' -e 's@/\*.*\*/@@' |
    tr '\n' ' ' | grep -oE 'FUSOR_API [^;({]*\(' | grep -oE 'fusor_[a-z0-9_]+ *\($' | tr -d ' (' | sort -u >"$tmp/declared"

verdict "exports equal tests/api/symbols.txt" same "$tmp/listed" "$tmp/exported" \
    "A '-' line is missing in the library, a '+' line is new. If that is meant: make generated where it is an operator,
else FUSOR_BUILDDIR=BUILD tests/api/symbols.sh --update"
verdict "exports equal the declarations in include/fusor" same "$tmp/declared" "$tmp/exported" \
    "A '-' line is declared (FUSOR_API) but not defined, a '+' line is exported without a declaration."
nm -D --defined-only $lib | awk '{ print $NF }' | grep '^fusor_' | grep -v '@@FUSOR_[0-9]' >"$tmp/unversioned"
verdict "every export has the version of a release (src/libfusor.map)" test ! -s "$tmp/unversioned"
verdict "libfusor needs neither LLVM nor C++" sh -c "! readelf -d $lib | grep -E 'NEEDED.*(LLVM|stdc\+\+)'"
if [ -z "${FUSOR_SANITIZE-}" ]; then
    strip -o "$tmp/stripped" $lib
    bytes=$(stat -c %s "$tmp/stripped")
    verdict "libfusor stripped is below 1 MB (it has $bytes bytes)" test "$bytes" -lt 1000000
else
    skipped=$((skipped + 1))
fi
if [ -f $module ]; then
    exports $module >"$tmp/module"
    echo fusor_codegen_module >"$tmp/one"
    verdict "the module exports one function" same "$tmp/one" "$tmp/module" "see fusor_codegen_la_LDFLAGS"
else
    skipped=$((skipped + 1))
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
