#!/bin/bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# start.sh: a program that was never seen starts on kernels of one operator each, gives the same bytes as the fused one, and leaves the
# fused kernels in the cache.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"
set -u
unset FUSOR_START_UNFUSED
work=$TMPDIR/start
mkdir -p "$work" && cd "$work" || exit 1
need_module
# Of the programs that are installed, those that this one needs; all of them must be right.
"$FUSOR_BUILDDIR/tools/reference" start-programs >all.fusor && "$FUSOR" check all.fusor >out 2>&1 && ok || bad 'the start programs'
grep -E '^func @(mul|add|tanh|exp|sub|maximum|softmax)_' all.fusor >few.fusor
FUSOR_CACHE_DIR=$work/made "$FUSOR" cache warm few.fusor --no-fuse -o start.fbundle >out 2>&1 && ok || bad 'the bundle'
cat >p.fusor <<'P'
func @f(%x: f32[M, N], %b: f32[N]) -> f32[M, N] {
  %a = mul(%x, 2.) %c = add(%a, %b) %d = tanh(%c) %e = exp(%d) %g = sub(%e, %x) %y = maximum(%g, .1) return %y
}
func @other(%x: f32[N]) -> f32[N] { %a = cosh(%x) %y = neg(%a) return %y }
P
run() { "$FUSOR" run p.fusor "$@" --fill normal:1 --dim M=37 --dim N=101 >out 2>&1; }
export FUSOR_CACHE_DIR=$work/cache FUSOR_START_BUNDLE=$work/start.fbundle
FUSOR_VERBOSE=dispatch FUSOR_START_UNFUSED=1 run @f -o y=unfused.npy && ok || bad 'the first run'
grep -q '@f,starts-unfused' out && ok || bad 'it did not start unfused'
grep -q '@f,fused' out && ok || bad 'the fused program was not made'
FUSOR_VERBOSE=dispatch FUSOR_START_UNFUSED=1 FUSOR_CODEGEN=/nowhere run @f -o y=fused.npy && ok || bad 'the second run: the fused kernel is not in the cache'
grep -q 'starts-unfused' out && bad 'the second run started unfused' || ok
cmp -s unfused.npy fused.npy && ok || bad 'other bytes'
# An operator that the bundle lacks: compiled as ever. So is everything where the bundle is missing or damaged.
FUSOR_VERBOSE=dispatch "$FUSOR" run p.fusor @other --fill normal:1 --dim N=5 >out 2>&1 && ! grep -q 'starts-unfused' out && ok || bad 'without a kernel in the bundle'
rm -rf cache && truncate -s 100 start.fbundle
FUSOR_START_UNFUSED=1 run @f -o y=again.npy && cmp -s fused.npy again.npy && ok || bad 'a bundle that is cut'
rm -rf cache
FUSOR_START_UNFUSED=1 FUSOR_START_BUNDLE=/nowhere run @f -o y=again.npy && cmp -s fused.npy again.npy && ok || bad 'a bundle that is missing'
# fusor run starts so without being told, says it, and not where somebody wants the fused kernels, or where it moves much memory.
FUSOR_CACHE_DIR=$work/made2 "$FUSOR" cache warm few.fusor --no-fuse -o start.fbundle >out 2>&1
json() { rm -rf cache; run @f --json "$@"; }
json && grep -q '"started": "unfused"' out && ok || bad 'it does not start unfused by itself'
json -o y=again.npy && cmp -s fused.npy again.npy && ok || bad 'started by itself: other bytes'
run @f --json && grep -q '"started": "fused"' out && ok || bad 'the kernels are in the cache'
json --wait && grep -q '"started": "fused"' out && ok || bad '--wait'
FUSOR_START_UNFUSED=0 json && grep -q '"started": "fused"' out && ok || bad 'FUSOR_START_UNFUSED=0'
json --check && grep -q '"started": "fused"' out && ok || bad '--check looks at the fused kernels'
json --cache refresh && grep -q '"started": "fused"' out && ok || bad '--cache refresh'
rm -rf cache
"$FUSOR" run p.fusor @f --fill normal:1 --dim M=3000 --dim N=3000 --json >out 2>&1 && grep -q '"started": "fused"' out && ok || bad 'a call that moves much memory'
# What fusor eval builds is not in the language's text: the fused program is made of it all the same.
rm -rf cache
evaluate() { FUSOR_VERBOSE=dispatch "$FUSOR" eval 'tanh(a) * b + 2 * a' --fill normal:1 --dim 1000 -q -o "$1" >out 2>&1; }
evaluate e1.npy && grep -q '@eval,starts-unfused' out && grep -q '@eval,fused' out && ok || bad 'eval: the fused program was not made'
evaluate e2.npy && ! grep -q 'starts-unfused' out && cmp -s e1.npy e2.npy && ok || bad 'eval: the fused kernel is not in the cache'
# Types beside f32: a chain in each, on what make put beside the module.
if [ -f "$FUSOR_BUILDDIR/.libs/fusor-start.fbundle" ]; then
    unset FUSOR_START_BUNDLE
    for t in f32 f64 f16 bf16 i32 i64; do
        rm -rf cache
        echo "func @g(%x: $t[N], %z: $t[N]) -> $t[N] { %a = mul(%x, %z) %b = add(%a, 2) %c = maximum(%b, %x) %y = sub(%c, %z) return %y }" >g.fusor
        "$FUSOR" run g.fusor --fill arange --dim N=301 --json -o y=g1.npy >out 2>&1 && grep -q '"started": "unfused"' out && ok || bad "a chain in $t"
        "$FUSOR" run g.fusor --fill arange --dim N=301 --json -o y=g2.npy >out 2>&1 && grep -q '"started": "fused"' out && cmp -s g1.npy g2.npy && ok || bad "the same in $t, fused"
    done
fi
finish
