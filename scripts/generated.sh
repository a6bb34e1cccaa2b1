#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# generated.sh [--check] REFERENCE: rewrites what follows from tables and is kept in the source tree, from the pages
# that the program REFERENCE (tools/reference of a build) prints. `make generated` calls it. With --check it writes
# nothing: it shows what differs, says how to refresh it, and fails. Some whole files are pages; in the other files a
# page is the region between the lines "---- PAGE, made from ..." and "---- end of PAGE ----".
set -u
export LC_ALL=C
check=
if [ "${1-}" = --check ]; then check=1; shift; fi
if [ $# -ne 1 ] || [ ! -x "$1" ]; then
    echo "usage: generated.sh [--check] REFERENCE (tools/reference of a build; make generated makes it)" >&2
    exit 2
fi
case $1 in
*/*) reference=$1 ;;
*) reference=./$1 ;;
esac
src=$(cd "$(dirname "$0")/.." && pwd) || exit 1
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
failed=0

page() { # page NAME: into $tmp/page
    "$reference" "$1" >"$tmp/page" && [ -s "$tmp/page" ] && return 0
    echo "$reference prints no page '$1'"
    failed=1
    return 1
}
put() { # put FILE: FILE should be as $tmp/new; unchanged files keep their times, so that nothing is rebuilt
    [ -f "$src/$1" ] && cmp -s "$src/$1" "$tmp/new" && return
    if [ -z "$check" ]; then
        if cp "$tmp/new" "$src/$1"; then echo "rewrote $1"; else failed=1; fi
        return
    fi
    diff -u --label "$1" --label "made from the table" "$src/$1" "$tmp/new"
    echo "$1 is not current: make generated refreshes it"
    failed=1
}
whole() { # whole FILE PAGE
    page "$2" && cp "$tmp/page" "$tmp/new" && put "$1"
}
regions() { # regions FILE PAGE...
    local file=$1 name
    shift
    cp "$src/$file" "$tmp/new" || { failed=1; return; }
    for name in "$@"; do
        page "$name" || return
        if ! awk -v name="$name" -v page="$tmp/page" '
            index($0, "---- " name ", made from ") {
                print
                while ((getline line < page) > 0) print line
                begun++
                inside = 1
                next
            }
            index($0, "---- end of " name " ----") { ended += inside; inside = 0 }
            !inside { print }
            END { exit !(begun == 1 && ended == 1) }' "$tmp/new" >"$tmp/next"; then
            echo "$file: expected one line '---- $name, made from ...' and after it one '---- end of $name ----'"
            failed=1
            return
        fi
        mv "$tmp/next" "$tmp/new"
    done
    put "$file"
}

regions include/fusor/op.h op-declarations op-macros
regions include/fusor/fusor.hpp op-overloads
regions tests/api/symbols.txt op-symbols
regions doc/numerics.md fast-functions
regions tools/fusor.bash bash-words
whole tools/fusor.zsh zsh
for command in run check explain emit bench info fmt eval; do whole doc/man/fusor-$command.1 man-$command; done
whole doc/operators.md operators
whole doc/environment.md environment
exit $failed
