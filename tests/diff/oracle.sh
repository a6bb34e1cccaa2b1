#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# oracle.sh: the outside oracles (oracle.py: NumPy, optim_oracle.py: torch, pool_oracle.py: ONNX Runtime) as a test of
# `make check`. An oracle that is
# not installed is one counted skip. PYTHON names the interpreter that has them (python3).
FUSOR=${FUSOR:-fusor}
python=${PYTHON:-python3}
skip() {
    echo "oracle: skipped: $1"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
}
command -v "$python" >/dev/null || skip "there is no $python"
"$FUSOR" run --help >/dev/null 2>&1 || skip "there is no command '$FUSOR run'"
here=${FUSOR_SRCDIR:-.}/tests/diff
passed=0 failed=0 skipped=0
for oracle in oracle optim_oracle pool_oracle; do
    out=$("$python" "$here/$oracle.py" --fusor "$FUSOR" 2>&1)
    status=$?
    last=${out##*$'\n'}
    if [[ $last =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed,\ ([0-9]+)\ skipped$ ]]; then
        passed=$((passed + BASH_REMATCH[1])) failed=$((failed + BASH_REMATCH[2])) skipped=$((skipped + BASH_REMATCH[3]))
        [ "$status" -ne 0 ] || [ "${BASH_REMATCH[3]}" -ne 0 ] && echo "$out" | sed '$d'
    else
        failed=$((failed + 1))
        echo "$oracle.py ended with status $status:"
        echo "$out"
    fi
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
