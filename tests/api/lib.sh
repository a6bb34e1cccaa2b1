# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# lib.sh: counting for the tests of the headers and the library. A test has a directory $tmp of its own.
# shellcheck shell=bash
passed=0 failed=0
verdict() { # NAME COMMAND...
    local name=$1
    shift
    if "$@" >"$tmp/out" 2>&1; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED: $name"
        sed 's/^/    /' "$tmp/out"
    fi
}
