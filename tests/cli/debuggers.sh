#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# debuggers.sh: what gdb and perf see of a kernel: its name, and the line of its description. Skips, counted, where a tool is
# missing or may not trace.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"
set -u
work=$TMPDIR/debuggers
mkdir -p "$work/dump" && cd "$work" || exit 1
need_module
cat >p.fusor <<'P'
func @f(%x: f32[N, 200]) -> f32[N, 200] { %e = exp(%x) %y = softmax(%e, axis=1) %z = tanh(%y) return %z }
P
export FUSOR_DUMP_DIR=$work/dump FUSOR_THREADS=1
"$FUSOR" run p.fusor --fill ones --dim N=3 --cache ro >/dev/null 2>out && ok || bad 'the program runs'

# gdb: a breakpoint at the line of tanh, the frame's name, the text of the line
FUSOR_GDB=1 "$FUSOR" run p.fusor --fill ones --dim N=3 >/dev/null 2>out && ok || bad 'a run with FUSOR_GDB=1' # makes the text
if [ -n "${FUSOR_SANITIZE-}" ]; then skip 'a sanitizer: gdb sees the same kernel'
elif ! command -v gdb >/dev/null; then skip 'no gdb'
elif ! timeout 60 gdb -q -batch -ex run --args true >out 2>&1 || ! grep -q 'exited normally' out; then skip 'gdb may not trace here'
else
    text=$(ls dump/*.kernel | head -n 1)
    line=$(grep -n 'tanh' "$text" | cut -d: -f1)
    cat >commands <<G
set pagination off
set debuginfod enabled off
set breakpoint pending on
break $(basename "$text"):$line
run
bt 2
kill
G
    FUSOR_GDB=1 timeout 300 gdb -q -batch -x commands --args "$FUSOR" run p.fusor --fill ones --dim N=3 >out 2>&1
    grep -q "^#0  fk_row_f32_exp[^ ]* () at .*\.kernel:$line\$" out && ok || bad 'gdb: the frame has no name or line'
    grep -q "^$line.*= tanh\.f32" out && ok || bad 'gdb: the text of the line'
fi

# perf: names by the map, and by jitdump after perf inject
FUSOR_PERF=map "$FUSOR" run p.fusor --fill ones --dim N=3 -q >out 2>&1 & pid=$!
wait $pid
grep -q '^[0-9a-f]* [0-9a-f]* fk_row_f32_exp' "/tmp/perf-$pid.map" && ok || bad 'perf map'
rm -f "/tmp/perf-$pid.map"
FUSOR_PERF=jitdump "$FUSOR" run p.fusor --fill ones --dim N=3 -q >out 2>&1 & pid=$!
wait $pid
[ "$(od -An -tx4 -N8 "dump/jit-$pid.dump" 2>>out | tr -d ' ')" = 4a69544400000001 ] && ok || bad 'jitdump: no header'
grep -aq 'fk_row_f32_exp' "dump/jit-$pid.dump" && grep -aq "dump/fk_row_f32_exp.*\.kernel" "dump/jit-$pid.dump" && ok || bad 'jitdump: no name or file'
if [ -n "${FUSOR_SANITIZE-}" ]; then skip 'a sanitizer: perf samples the same kernel'
elif ! command -v perf >/dev/null; then skip 'no perf'
elif ! perf record -k 1 -o perf.data true >out 2>&1; then skip 'perf may not record here'
else
    FUSOR_PERF=jitdump perf record -k 1 -o perf.data "$FUSOR" run p.fusor --fill ones --dim N=30000 --time --runs 10 >out 2>&1
    perf inject --jit -i perf.data -o perf.jit.data >>out 2>&1
    perf report -i perf.jit.data --stdio >report 2>>out
    grep -q 'fk_row_f32_exp' report && ok || { cat report >>out; bad 'perf: no sample in the kernel'; }
    perf record -o perf.data "$FUSOR" run p.fusor --fill ones --dim N=30000 --time --runs 1000 --perf >out 2>&1
    perf report -i perf.data --stdio >report 2>>out
    grep -q 'fk_row_f32_exp' report && ok || { cat report >>out; bad 'perf: no sample in the kernel, by the map'; }
fi

# USDT probes, where the library was built with them
if ! echo '#include <sys/sdt.h>' | ${CC:-cc} -E -xc - >/dev/null 2>&1; then skip 'no sys/sdt.h (systemtap-sdt-dev)'
else
    readelf -n "$FUSOR" >out 2>&1
    for probe in compile load run; do
        grep -A1 'Provider: fusor' out | grep -q "Name: $probe\$" && ok || bad "no probe fusor:$probe"
    done
fi

# instructions below their lines
FUSOR_GDB=0 "$FUSOR" cache disasm fk_row_f32_exp >out 2>&1
grep -q '^; [0-9]*: %[0-9]* = tanh\.f32' out && grep -q 'loads from it$' out && ok || bad 'disasm: no lines'
finish
