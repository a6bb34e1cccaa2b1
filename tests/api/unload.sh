#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# unload.sh: dlclose of libfusor.so while a thread that used it runs on (unload.c).
src=${FUSOR_SRCDIR:-$(cd "$(dirname "$0")/../.." && pwd)}
cd "${FUSOR_BUILDDIR:-.}" || exit 1
. "$src/tests/api/lib.sh"
if [ ! -e .libs/libfusor.so ]; then
    echo "skip: there is no shared library"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
# shellcheck disable=SC2086
verdict "unload.c compiles" ${CC:-cc} -std=gnu11 -Wall -Wextra -Werror ${FUSOR_SANITIZE-} -I"$src/include" \
    "$src/tests/api/unload.c" -o "$tmp/unload" -ldl -lpthread
verdict "a thread ends after dlclose" sh -c '[ "$("$1" "$2" 2>&1)" = "1
ended" ]' - "$tmp/unload" "$PWD/.libs/libfusor.so"
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
