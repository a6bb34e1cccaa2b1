#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# reference.sh: what is made from tables (scripts/generated.sh) is current, and links between pages lead somewhere.
passed=0 failed=0
verdict() { # verdict STATUS TEXT
    if [ "$1" -eq 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAILED: $2"; fi
}
stale=$(bash "$FUSOR_SRCDIR/scripts/generated.sh" --check tools/reference 2>&1)
verdict $? "what is made from tables is current: $stale"
stale=$(tools/reference reasons | grep -vxFf "$FUSOR_SRCDIR/doc/planning.md")
[ -z "$stale" ]
verdict $? "doc/planning.md lacks rows that 'tools/reference reasons' prints: $stale"
cd "$FUSOR_SRCDIR" || exit 1
for page in README.md doc/*.md examples/*/README.md; do
    dir=$(dirname "$page")
    broken=$(grep -oE '\]\([^)#]+\)' "$page" | sed 's/^](//; s/)$//' | grep -v '^https\?:' | while read -r link; do
        [ -e "$dir/$link" ] || echo "$link"
    done)
    [ -z "$broken" ]
    verdict $? "$page links to what is not there: $broken"
    # Paths of the tree that a page names in back quotes exist.
    pattern='`(src|include|tests|tools|doc|examples|scripts|bench)/[A-Za-z0-9_./-]*`'
    missing=$(grep -oE "$pattern" "$page" | tr -d '`' | sort -u | while read -r path; do
        [ -e "$path" ] || [ "$path" = tools/reference ] || echo "$path"
    done)
    [ -z "$missing" ]
    verdict $? "$page names paths that are not there: $missing"
done
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
