#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# run.sh --unit 'PROGRAM ...' --script 'SCRIPT ...' [NAME ...]: runs the unit tests (Criterion programs, relative to
# the build directory) and script tests (relative to the source directory), as many at once as there are processors,
# and closes with one line "N passed, N failed, N skipped" that counts test cases; before it, one line for each test and
# reason to skip cases. With NAMEs, only those whose path contains one of them (make check TESTS_ONLY="parse"); a NAME
# that no path contains is an error. `make check` calls it; logs are in tests/log of the build, with NAMEs beside those
# of earlier runs. run.sh --list prints the paths of all tests; run.sh --match NAME ... only looks the NAMEs up.
#
# What a script test can rely on: FUSOR_SRCDIR and FUSOR_BUILDDIR (absolute), FUSOR (the command), CC, CXX, FILECHECK,
# FUSOR_SANITIZE (flags, or empty), FUSOR_CODEGEN (the module that was built), an empty FUSOR_CACHE_DIR and TMPDIR of its
# own; it starts in the build directory. It prints "N passed, N failed, N skipped" and exits with 0 when nothing failed.
# It says why it skips in lines of their own: "skip: REASON", "skip N: REASON" for N cases, or "WHAT: skipped: REASON".
# A test that takes longer than FUSOR_TEST_SECONDS (default 1800) has failed.
set -u
all_tests() { # of KIND (unit, script, or a pattern)
    sed -nE "s,^(jit_)?($1)_tests \\+= %D%/,tests/,p" "$(dirname "$0")/local.mk"
}
units= scripts= only=() run=true
while [ $# -gt 0 ]; do
    case $1 in
    --list) all_tests 'unit|script'; exit ;;
    --match) run=false; units=$(all_tests unit) scripts=$(all_tests script); shift ;;
    --unit) units=$2; shift 2 ;;
    --script) scripts=$2; shift 2 ;;
    *) only+=("$1"); shift ;;
    esac
done

# near NAME: the paths of tests that contain most of it, at most six.
near() {
    local name=${1##*/} cut found
    name=${name%.*}
    for ((cut = 0; ${#name} - cut >= 3; cut++)); do
        # shellcheck disable=SC2086
        found=$(printf '%s\n' $units $scripts | grep -iF -e "${name:0:${#name}-cut}" -e "${name:cut}")
        [ -z "$found" ] || { head -n 6 <<<"$found"; return; }
    done
}
unknown=false
for name in "${only[@]}"; do
    # shellcheck disable=SC2086
    printf '%s\n' $units $scripts | grep -qF -e "$name" && continue
    unknown=true
    echo "no test's path contains '$name'; ./check --list has all paths" >&2
    near "$name" | sed '1s/^/near: /; 2,$s/^/      /' >&2
done
$unknown && exit 2
$run || exit 0

cd "$FUSOR_BUILDDIR" || exit 1
export FUSOR=$FUSOR_BUILDDIR/fusor
export FUSOR_VERIFY=${FUSOR_VERIFY-2}
export FUSOR_SRCDIR FUSOR_BUILDDIR CC CXX FILECHECK FUSOR_SANITIZE
if [ -z "${FUSOR_CODEGEN-}" ] && [ -f .libs/fusor-codegen.so ]; then
    export FUSOR_CODEGEN=$FUSOR_BUILDDIR/.libs/fusor-codegen.so
fi
unset MAKEFLAGS MFLAGS MAKELEVEL FUSOR_DEBUG FUSOR_VERBOSE FUSOR_LOG_FILE FUSOR_DUMP_DIR FUSOR_CACHE FUSOR_CACHE_PATH FUSOR_TARGET FUSOR_PASSES
# fusor run must run the fused kernels, but in the test of the other way (cli/start.sh).
export FUSOR_START_UNFUSED=0
export LC_ALL=C.UTF-8
# malloc fills its memory: reads of freed or uninitialized memory show as wrong results.
export MALLOC_PERTURB_=165
# intercept_tls_get_addr=0: LeakSanitizer of GCC 12 takes the bytes before a library's thread-local block for the header of
# an allocation and now and then reads a wild address at exit. glibc allocates those blocks where it finds them anyway.
export UBSAN_OPTIONS=print_stacktrace=1
export ASAN_OPTIONS=${ASAN_OPTIONS-detect_leaks=1:allocator_may_return_null=1:intercept_tls_get_addr=0}
export LSAN_OPTIONS=${LSAN_OPTIONS-suppressions=$FUSOR_SRCDIR/tests/lsan.supp:print_suppressions=0}
log=tests/log
[ ${#only[@]} -gt 0 ] || rm -rf "$log"
mkdir -p "$log"
scratch=$(mktemp -d "${TMPDIR:-/tmp}/fusor-check.XXXXXX") || exit 1
trap 'rm -rf "$scratch"' EXIT
export log scratch

log_of() { echo "$log/${1//\//-}"; }

# reasons LOG PASSED FAILED SKIPPED: why a test skipped cases, a line "CASES REASON" for each reason.
reasons() {
    sed 's/\x1b\[[0-9;]*m//g' "$1" | awk -v ran=$(($2 + $3)) -v skipped="$4" '
    function add(n, why) {
        sub(/^ +/, "", why)
        if (!(why in cases)) order[++kinds] = why
        cases[why] += n
        sum += n
    }
    /^\[SKIP\] / { sub(/^\[SKIP\] [^ ]*: /, ""); add(1, $0); next }           # Criterion
    /^skip [0-9]+: / { n = $2 + 0; sub(/^skip [0-9]+: /, ""); add(n, $0); next }
    /^SKIP [^:]*: / || /^MPFR: missing/ { sub(/^SKIP [^:]*: /, ""); add(1, $0); next }
    /^([^:]*: )?(skip|skipped)[:,]/ {
        what = why = $0
        sub(/^([^:]*: )?(skip|skipped)[:,]/, "", why)
        sub(/: skipped.*/, "", what)
        add(1, why ~ /[^ ]/ ? why : what)
        next
    }
    !/^[0-9]+ passed, / && NF { last = $0 }
    END {
        if (!kinds) add(skipped, !ran && last != "" ? last : "its log gives no reason")
        else if (kinds == 1) cases[order[1]] = skipped
        else if (sum < skipped) add(skipped - sum, "its log gives no reason")
        for (i = 1; i <= kinds; i++) print cases[order[i]], substr(order[i], 1, 160)
    }'
}

# Runs one test; writes "passed failed skipped seconds processor-seconds name" to LOG.sum, its reasons to LOG.skips.
run_one() {
    local kind=$1 name=$2 base plain sum passed=0 failed=0 skipped=0 rc start=$SECONDS cpu
    base=$(log_of "$name")
    export TMPDIR=$scratch/$(basename "$base")
    export FUSOR_CACHE_DIR=$TMPDIR/cache
    mkdir -p "$TMPDIR"
    if [ "$kind" = unit ]; then
        timeout -k 10 "${FUSOR_TEST_SECONDS:-1800}" "./$name" --verbose=0 >"$base.log" 2>&1 </dev/null
        rc=$?
        plain=$(sed 's/\x1b\[[0-9;]*m//g' "$base.log")
        sum=$(grep 'Synthesis: Tested:' <<<"$plain" | tail -n 1)
        if [ -n "$sum" ]; then
            read -r passed failed skipped < <(echo "$sum" | sed -E \
                's/.*Tested: ([0-9]+) \| Passing: ([0-9]+) \| Failing: ([0-9]+) \| Crashing: ([0-9]+).*/\1 \2 \3 \4/' |
                awk '{ print $2, $3 + $4, $1 - $2 - $3 - $4 }')
            # A test that skips itself is not among those tested.
            [ "$skipped" -eq 0 ] && skipped=$(grep -c '^\[SKIP\]' <<<"$plain")
        fi
    else
        timeout -k 10 "${FUSOR_TEST_SECONDS:-1800}" bash "$FUSOR_SRCDIR/$name" >"$base.log" 2>&1 </dev/null
        rc=$?
        sum=$(grep -E '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$' "$base.log" | tail -n 1)
        [ -n "$sum" ] && read -r passed failed skipped < <(echo "$sum" | tr -dc '0-9 \n' | awk '{ print $1, $2, $3 }')
    fi
    if [ $((passed + failed + skipped)) -eq 0 ]; then sum=; echo "ran no test case" >>"$base.log"; fi
    # No count, or an exit status that contradicts it: the test itself broke.
    if [ -z "$sum" ] || { [ "$rc" -ne 0 ] && [ "$failed" -eq 0 ]; }; then
        failed=$((failed + 1))
        [ "$rc" -eq 124 ] && echo "timed out after ${FUSOR_TEST_SECONDS:-1800} s" >>"$base.log"
        echo "exit status $rc" >>"$base.log"
    fi
    # What the children took of processors says what a test costs however busy the machine is.
    times >"$TMPDIR/times"
    cpu=$(awk 'NR == 2 { split($1, u, /[ms]/); split($2, s, /[ms]/); printf "%.0f", 60 * (u[1] + s[1]) + u[2] + s[2] }' "$TMPDIR/times")
    rm -rf "$TMPDIR"
    local verdict=PASS
    [ "$failed" -gt 0 ] && verdict=FAIL
    [ "$verdict" = PASS ] && [ "$passed" -eq 0 ] && verdict=SKIP
    [ "$skipped" -eq 0 ] || reasons "$base.log" "$passed" "$failed" "$skipped" >"$base.skips"
    echo "$passed $failed $skipped $((SECONDS - start)) $cpu $name" >"$base.sum"
    local line
    line=$(printf '%s %-44s %5d passed %3d failed %3d skipped %4d s, %4d s of cpu' $verdict "$name" "$passed" "$failed" "$skipped" \
        $((SECONDS - start)) "$cpu")
    if [ "$verdict" = FAIL ]; then
        line=$line$'\n'$(sed 's/\x1b\[[0-9;]*m//g; s/^/    /' "$base.log" | tail -n 60)
    fi
    echo "$line"
}
export -f run_one log_of reasons

selected() {
    [ ${#only[@]} -eq 0 ] && return 0
    local o
    for o in "${only[@]}"; do [[ $1 == *"$o"* ]] && return 0; done
    return 1
}

# The longest first: at the end none is left that runs alone.
longest=" tests/diff/ops_test tests/cuda/mutation_test tests/cuda/gpu_ops_test tests/cuda/gpu_mma_test tests/amx/amx_ops_test "
first=() rest=()
for u in $units; do if [[ $longest == *" $u "* ]]; then first+=("$u"); else rest+=("$u"); fi; done

list=() skipped_units=0
add_units() {
    local u
    for u in "$@"; do
        selected "$u" || continue
        if [ -n "$FUSOR_HAVE_CRITERION" ]; then list+=(unit "$u"); else skipped_units=$((skipped_units + 1)); fi
    done
}
add_units "${first[@]}"
for s in $scripts; do if selected "$s"; then list+=(script "$s"); fi; done
add_units "${rest[@]}"
for ((i = 1; i < ${#list[@]}; i += 2)); do rm -f "$(log_of "${list[i]}")".{log,sum,skips}; done
if [ ${#list[@]} -gt 0 ]; then
    printf '%s\0' "${list[@]}" | xargs -0 -n 2 -P "${FUSOR_TEST_JOBS:-$(nproc)}" bash -c 'run_one "$@"' _
fi

passed=0 failed=0 skipped=$skipped_units
[ "$skipped_units" -eq 0 ] || echo "skipped: unit test programs $skipped_units (Criterion is not installed: scripts/setup.sh)"
for ((i = 1; i < ${#list[@]}; i += 2)); do
    base=$(log_of "${list[i]}") p=0 f=0 s=0
    if [ -f "$base.sum" ]; then read -r p f s _ <"$base.sum"
    else f=1; echo "FAIL ${list[i]} was ended"; fi
    passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
    [ ! -f "$base.skips" ] || while read -r n why; do echo "skipped: ${list[i]} $n ($why)"; done <"$base.skips"
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
