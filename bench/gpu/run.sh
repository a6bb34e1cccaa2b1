#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# run.sh [--out DIR] [--minutes M] [--driver FILE] [--device NAME] [--small] [--only PART,...]: proves and measures fusor on a machine with a GPU, out of
# the bundle that bundle.sh makes.
#
#   tests   the test programs of tests/cuda with the machine's driver
#   gpu     peers.py: workloads on the device, checked against fusor on the CPU, beside torch where Python has it
#   cpu     fusor bench with 1, 2, 4, 8, 16 threads
#
# Each part has a third of the minutes (30) at most, and what one leaves goes to the next. DIR (fusor-results) gets results.json, summary.md and
# the logs. --small: sizes of a test, for the fake driver (--driver tests/libcuda_fake.so). Exit status: 1 where something was wrong.
set -u
here=$(cd "$(dirname "$0")" && pwd)
out=fusor-results minutes=30 driver=libcuda.so.1 device=cuda small= only=tests,gpu,cpu
while [ $# -gt 0 ]; do
    case $1 in
    --out) out=$2; shift 2 ;;
    --minutes) minutes=$2; shift 2 ;;
    --driver) driver=$2; shift 2 ;;
    --device) device=$2; shift 2 ;;
    --only) only=$2; shift 2 ;;
    --small) small=--small; shift ;;
    *) sed -n 's/^# \{0,1\}//p' "$0" | sed -n '2,12p' >&2; exit 2 ;;
    esac
done
mkdir -p "$out" && out=$(cd "$out" && pwd) || exit 1
case $driver in */*) driver=$(cd "$(dirname "$driver")" && pwd)/$(basename "$driver") ;; esac
export FUSOR_CODEGEN=$here/fusor-codegen.so FUSOR_CUDA_LIB=$driver FUSOR_CACHE_DIR=$out/cache FUSOR_LIB=$here/libfusor.so.0
export FUSOR_BUILDDIR=$here FUSOR_SRCDIR=$here FUSOR_START_UNFUSED=0 LC_ALL=C.UTF-8
unset FUSOR_DEVICE FUSOR_TARGET FUSOR_CACHE FUSOR_PASSES
end=$((SECONDS + ${minutes%.*} * 60)) wrong=0
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
    printf '\n## Tests\n\n| program | passed | failed | s |\n|---|---|---|---|\n' >>"$summary"
    tests_end=$((SECONDS + $(left) / 3))
    for t in "$here"/tests/*_test; do
        name=$(basename "$t")
        # the others have no driver in them, or need the fake one
        case $name in device_fault_test) continue ;; device_*) ;; *) continue ;; esac
        [ -z "$small" ] || [ "$name" = device_exec_test ] || continue
        start=$SECONDS for_it=$((tests_end - SECONDS > 5 ? tests_end - SECONDS : 5))
        (cd "$out" && ours timeout -k 5 "$for_it" "$t" --verbose=0) >"$out/$name.log" 2>&1 </dev/null
        rc=$?
        read -r passed failed < <(sed 's/\x1b\[[0-9;]*m//g' "$out/$name.log" |
            sed -nE 's/.*Tested: [0-9]+ \| Passing: ([0-9]+) \| Failing: ([0-9]+) \| Crashing: ([0-9]+).*/\1 \2 \3/p' | awk '{ print $1, $2 + $3 }')
        # What only the fake driver can be asked (its counters, its faults) fails with these words; it is no fault of the machine.
        asked=$(sed 's/\x1b\[[0-9;]*m//g' "$out/$name.log" | grep -c 'the driver does not count')
        if [ -z "${passed:-}" ]; then passed=0 failed=1; [ $rc -ne 124 ] || echo "timed out after $for_it s" >>"$out/$name.log"; fi
        [ "$failed" -le "$asked" ] || wrong=1
        echo "| $name | $passed | $failed$([ "$asked" -eq 0 ] || echo " ($asked need the fake driver)") | $((SECONDS - start)) |" >>"$summary"
        tests_json="$tests_json${tests_json:+, }{\"name\": \"$name\", \"passed\": $passed, \"failed\": $failed, \"need_fake\": $asked, \"seconds\": $((SECONDS - start))}"
        passed='' failed=''
    done
    grep -h '^\[FAIL\]\|^\[CRASH\]\|^timed out' "$out"/*_test.log 2>/dev/null | sed 's/\x1b\[[0-9;]*m//g; s/^/- /' | sort -u | head -n 100 >>"$summary"
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
        timeout -k 10 $((span + 60)) "$python" "$here/bench/peers.py" --out "$out/gpu.json" --device "$device" $small \
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
