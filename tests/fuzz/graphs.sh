#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# graphs.sh: the cases that the graph fuzzer found, and a few seeds that are always the same. tests/fuzz/run.sh goes on from there.
set -u
fuzz=${FUSOR_BUILDDIR:?}/tests/fuzz/graph_fuzz
if [ ! -x "$fuzz" ] || [ -z "${FUSOR_CODEGEN-}" ]; then
    echo "skip: no code generation module: nothing to compare"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi
count=250
[ -n "${FUSOR_SANITIZE-}" ] && count=80
passed=0 failed=0 skipped=0
for arguments in "$(echo "${FUSOR_SRCDIR:?}"/tests/fuzz/corpus/*.fusor)" "--seed 1 --count $count" \
    "--tiles --seed 2000 --count $((count / 4))" "--device cuda --seed 1 --count $((count / 4))"; do
    # shellcheck disable=SC2086
    out=$("$fuzz" $arguments 2>&1)
    echo "$out"
    read -r p f s < <(echo "$out" | tail -n 1 | tr -dc '0-9 \n')
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
    [ "$s" -eq 0 ] && continue
    case $out in
    *'no code can be generated'*) echo "skip $s: no code can be generated for this processor" ;;
    *'refused by the type rules'*) echo "skip $s: random programs that the type rules refuse" ;;
    *) echo "skip $s: cases of the corpus for instructions that this processor lacks" ;;
    esac
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
