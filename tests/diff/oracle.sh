#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# oracle.sh: oracle.py as a test of `make check`; without Python or NumPy it is one counted skip.
FUSOR=${FUSOR:-fusor}
skip() {
    echo "oracle: skipped: $1"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
}
command -v python3 >/dev/null || skip "there is no python3"
"$FUSOR" run --help >/dev/null 2>&1 || skip "there is no command '$FUSOR run'"
exec python3 "${FUSOR_SRCDIR:-.}/tests/diff/oracle.py" --fusor "$FUSOR"
