# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# lib.sh: counting for the tests of the command. A test changes to a directory of its own, leaves what it looked at in the
# files out and err there, and ends with finish.
# shellcheck shell=bash
passed=0 failed=0 skipped=0
ok() { passed=$((passed + 1)); }
bad() {
    failed=$((failed + 1))
    printf 'FAILED: %s\n' "$1"
    local f
    for f in out err; do
        [ ! -f $f ] || head -c 3000 $f | sed "s/^/    $f: /"
    done
}
skip() {
    skipped=$((skipped + 1))
    printf 'skip: %s\n' "$1"
}
finish() {
    echo "$passed passed, $failed failed, $skipped skipped"
    [ "$failed" -eq 0 ]
    exit
}
# Ends the test where kernels cannot be made.
need_module() {
    [ -n "${FUSOR_CODEGEN-}" ] && return
    skip 'no code generation module'
    finish
}
# expect STATUS WORDS ARGUMENT...: the exit status of $fusor ARGUMENT..., and WORDS ("" for any) in stdout or stderr: a grep
# pattern, or just words where fixed=-F.
expect() {
    local want=$1 words=$2
    shift 2
    "$fusor" "$@" >out 2>err </dev/null
    local got=$?
    if [ $got -ne "$want" ]; then bad "status $got, expected $want: fusor $*"
    elif [ -n "$words" ] && ! grep -q ${fixed-} -e "$words" out err; then bad "no '$words': fusor $*"
    else ok; fi
}
# Builds json_check in the directory of the test, for json.
need_json() { ${CC:-cc} -o ./json_check "$src/tests/cli/json_check.c" -ljansson || exit 1; }
# json SCHEMA 'PATHS' ARGUMENT...: $fusor ARGUMENT... --json writes one document to stdout, with a value at each path.
json() {
    local schema=$1 paths=$2
    shift 2
    "$fusor" "$@" --json >out 2>err </dev/null
    # shellcheck disable=SC2086
    if ./json_check "$schema" $paths <out >why; then ok; else bad "$(cat why): fusor $* --json"; fi
}
