#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# run.sh [--out DIR] [--minutes M] [--driver FILE] [--device NAME] [--small] [--eager] [--only PART,...]: proves and
# measures fusor on a machine with a GPU, out of the bundle that bundle.sh makes.
#
#   tests   the test programs of tests/cuda with the machine's driver, those of tests/amx, and random programs
#   gpu     peers.py: workloads on the device, checked against fusor on the CPU, beside torch where Python has it
#   cpu     fusor bench with 1, 2, 4, 8, 16 threads
#
# Each part has a third of the minutes (30; 1.5 is allowed) at most, and what one leaves goes to the next. DIR
# (fusor-results) gets results.json, summary.md and the logs. --eager: without torch.compile, which takes seconds a
# workload. --small: sizes of a test, for the fake driver (--driver tests/libcuda_fake.so). Exit status: 1 where
# something was wrong.
set -u
here=$(cd "$(dirname "$0")" && pwd)
out=fusor-results minutes=30 driver=libcuda.so.1 device=cuda small="" eager="" only=tests,gpu,cpu
while [ $# -gt 0 ]; do
    case $1 in
    --out) out=$2; shift 2 ;;
    --minutes) minutes=$2; shift 2 ;;
    --driver) driver=$2; shift 2 ;;
    --device) device=$2; shift 2 ;;
    --only) only=$2; shift 2 ;;
    --small) small=--small; shift ;;
    --eager) eager=--eager; shift ;;
    *) sed -n 's/^# \{0,1\}//p' "$0" | sed -n '2,13p' >&2; exit 2 ;;
    esac
done
mkdir -p "$out" && out=$(cd "$out" && pwd) || exit 1
case $driver in */*) driver=$(cd "$(dirname "$driver")" && pwd)/$(basename "$driver") ;; esac
export FUSOR_CODEGEN=$here/fusor-codegen.so FUSOR_CUDA_LIB=$driver FUSOR_CACHE_DIR=$out/cache FUSOR_LIB=$here/libfusor.so.0
export FUSOR_BUILDDIR=$here FUSOR_SRCDIR=$here FUSOR_START_UNFUSED=0 LC_ALL=C.UTF-8
unset FUSOR_DEVICE FUSOR_TARGET FUSOR_CACHE FUSOR_PASSES
end=$((SECONDS + $(awk "BEGIN { printf \"%d\", 60 * $minutes }"))) wrong=0
# Of our programs alone: torch brings its own libraries.
ours() { LD_LIBRARY_PATH=$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} "$@"; }
left() { echo $((end - SECONDS > 1 ? end - SECONDS : 1)); }
wants() { case ,$only, in *,$1,*) return 0 ;; *) return 1 ;; esac; }
text() { tr -d '\000-\037\\"' | tr '\n' ' '; } # for a string of JSON

if ! ours "$here/bin/fusor" --version >"$out/version.txt" 2>&1; then
    echo "run.sh: the command does not start:" >&2
    cat "$out/version.txt" >&2
    exit 1
fi
{ ours "$here/bin/fusor" info; nvidia-smi; lscpu; uname -a; } >"$out/machine.txt" 2>&1
gpu=$(awk '/^CUDA: / { sub(/^CUDA: */, ""); on = 1; print; next } on && /^ / { print; next } { on = 0 }' "$out/machine.txt" | tr -s ' \n' ' ')
python=$(command -v python3 || true)
summary=$out/summary.md
{
    echo "# fusor on a GPU"
    echo
    echo "- version: $(head -n 1 "$out/version.txt"), $(cat "$here/VERSION")"
    echo "- CUDA: ${gpu:-?}"
    echo "- CPU: $(sed -n 's/^Model name: *//p' "$out/machine.txt" | head -n 1), $(nproc) CPUs"
} >"$summary"

# ---- tests ----
tests_json=
if wants tests; then
    echo "run.sh: tests" >&2
    printf '\n## Tests\n\n| program | passed | failed | skipped | s |\n|---|---|---|---|---|\n' >>"$summary"
    for_all=$(($(left) / 3 > 5 ? $(left) / 3 : 5)) names=
    rm -f "$out"/*.rc "$out"/*_test.log "$out"/fuzz.log
    for t in "$here"/tests/*_test; do
        name=$(basename "$t")
        # the others have no driver in them, or need the fake one; amx_*: on the machine's tiles, where it has them
        case $name in device_fault_test) continue ;; device_* | gpu_ops_* | gpu_rows_* | gpu_mma_* | gpu_conv_* | gpu_attention_* | amx_*) ;; *) continue ;; esac
        [ -z "$small" ] || [ "$name" = device_exec_test ] || continue
        names="$names $name"
    done
    # Side by side, but few: each process makes a context, which takes half a second and half a gigabyte of the device.
    tests_end=$(($(date +%s) + for_all))
    export here out tests_end FUSOR_TEST_DEVICE=1
    {
        case $names in *gpu_ops_test*) echo gpu_ops_test ;; esac
        for name in $names; do [ "$name" = gpu_ops_test ] || echo "$name"; done
        [ -n "$small" ] || echo fuzz
    } | ours xargs -P 4 -I{} bash -c '
        for_it=$((tests_end - $(date +%s)))
        [ $for_it -gt 0 ] && cd "$out" || exit 0
        if [ {} = fuzz ]; then set -- "$here/tests/graph_fuzz" --device cuda --seed 1000000 --count 400
        else set -- "$here/tests/{}" -j8 --verbose=0; fi
        timeout -s KILL $for_it "$@" >{}.log 2>&1
        echo "$? $SECONDS" >{}.rc'
    unset FUSOR_TEST_DEVICE
    for name in $names; do
        rc=124 took=$for_all
        [ ! -e "$out/$name.rc" ] || read -r rc took <"$out/$name.rc"
        [ -e "$out/$name.log" ] || echo 'no time was left for it' >"$out/$name.log"
        read -r passed failed < <(sed 's/\x1b\[[0-9;]*m//g' "$out/$name.log" |
            sed -nE 's/.*Tested: [0-9]+ \| Passing: ([0-9]+) \| Failing: ([0-9]+) \| Crashing: ([0-9]+).*/\1 \2 \3/p' | awk '{ print $1, $2 + $3 }')
        # what only the fake driver can be asked: counts, faults, several devices
        skipped=$(sed 's/\x1b\[[0-9;]*m//g' "$out/$name.log" | grep -c '^\[SKIP\]')
        if [ -z "${passed:-}" ]; then
            passed=0 failed=1
            case $rc in
            124 | 137) echo "timed out after $for_all s of all tests" >>"$out/$name.log" ;;
            *) echo "ended with $rc" >>"$out/$name.log" ;;
            esac
        fi
        [ "$failed" -eq 0 ] && [ "$rc" -eq 0 ] || wrong=1
        echo "| $name | $passed | $failed | $skipped | $took |" >>"$summary"
        tests_json="$tests_json${tests_json:+, }{\"name\": \"$name\", \"passed\": $passed, \"failed\": $failed, \"skipped\": $skipped, \"seconds\": $took}"
        passed='' failed=''
    done
    if [ -z "$small" ]; then
        result=$(grep -E '^[0-9]+ passed' "$out/fuzz.log" 2>/dev/null | tail -n 1)
        echo "- random programs: ${result:-not done: $(tail -n 1 "$out/fuzz.log" 2>&1)}" >>"$summary"
        case $result in *' 0 failed'*) ;; *) wrong=1 ;; esac
    fi
    grep -h '^\[FAIL\]\|^\[CRASH\]\|^timed out\|^ended with' "$out"/*_test.log 2>/dev/null | sed 's/\x1b\[[0-9;]*m//g; s/^/- /' | sort -u | head -n 100 >>"$summary"
fi

# ---- the device, beside others ----
if wants gpu; then
    echo "run.sh: workloads on $device" >&2
    printf '\n## Workloads on %s\n\n' "$device" >>"$summary"
    if [ -z "$python" ]; then
        echo "no python3: not measured" >>"$summary"
    else
        span=$(left)
        wants cpu && span=$((span * 2 / 3))
        timeout -k 10 $((span + 60)) "$python" "$here/bench/peers.py" --out "$out/gpu.json" --device "$device" $small $eager \
            --minutes "$(awk "BEGIN { print $span / 60 }")" >"$out/gpu.md" 2>"$out/gpu.log" || wrong=1
        cat "$out/gpu.md" >>"$summary"
        sed 's/^/- /' "$out/gpu.log" | tail -n 60 >>"$summary"
    fi
fi

# ---- the CPU ----
cpu_json=
if wants cpu; then
    printf '\n## CPU\n\n' >>"$summary"
    for n in 1 2 4 8 16; do
        [ "$n" -le "$(nproc)" ] && [ "$(left)" -gt 5 ] || continue
        echo "run.sh: the CPU with $n threads" >&2
        # shellcheck disable=SC2046
        if ours timeout -k 5 "$(left)" "$here/bin/fusor" bench $([ -z "$small" ] || echo elementwise --filter relu --min-time 0.01) --quick --peers none \
            --threads "$n" --device cpu --export-json "$out/cpu-$n.json" >"$out/cpu-$n.txt" 2>&1; then
            cpu_json="$cpu_json${cpu_json:+, }\"$n\": $(cat "$out/cpu-$n.json")"
            printf '### %s threads\n\n```\n%s\n```\n' "$n" "$(cat "$out/cpu-$n.txt")" >>"$summary"
        else
            wrong=1
            echo "- $n threads: failed or took too long (cpu-$n.txt)" >>"$summary"
        fi
    done
fi
{
    echo "{\"version\": \"$(head -n 1 "$out/version.txt" | text)\", \"source\": \"$(text <"$here/VERSION")\", \"cuda\": \"$(echo "$gpu" | text)\","
    echo " \"cpus\": $(nproc), \"tests\": [$tests_json], \"gpu\": $(cat "$out/gpu.json" 2>/dev/null || echo null), \"cpu\": {$cpu_json}}"
} >"$out/results.json"
cat "$summary"
echo "run.sh: $out/summary.md, $out/results.json" >&2
exit $wrong
