#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# run.sh: every tests/error/*.fusor must make `fusor check` exit with 3 and say, for each line "# expect-error LINE:COL TEXT",
# FILE:LINE:COL: error: TEXT. (tests/unit/parse_test.c compares the status too.)
cd "${FUSOR_SRCDIR:-$(dirname "$0")/../..}/tests/error" || exit 1
fusor=${FUSOR:-${FUSOR_BIN:-fusor}}
passed=0 failed=0
files=(*.fusor)
if ! command -v "$fusor" >/dev/null; then
    echo "no command $fusor"
    echo "0 passed, 0 failed, ${#files[@]} skipped"
    exit 0
fi
for file in "${files[@]}"; do
    said=$("$fusor" check "$file" 2>&1 >/dev/null </dev/null)
    status=$? wrong=
    [ "$status" -eq 3 ] || wrong="exit status $status, expected 3"
    while read -r _ _ place text; do
        [[ $said == *"$file:$place: error: $text"* ]] || wrong+="${wrong:+; }did not say $place $text"
    done < <(LC_ALL=C grep -a '^# expect-error ' "$file")
    if [ -z "$wrong" ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        printf '%s: %s\n%s\n' "$file" "$wrong" "$said"
    fi
done
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
